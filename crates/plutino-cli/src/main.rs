//! The `plutino` command.

fn main() {}

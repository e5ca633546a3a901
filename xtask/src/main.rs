//! Chores of the project, run as `cargo xtask NAME`.

fn main() {}

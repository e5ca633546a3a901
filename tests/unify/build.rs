//! Nothing to build: the dependencies of this script are what matters.

fn main() {}

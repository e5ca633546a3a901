//! Chores of the project, run as `cargo xtask NAME`. One file per chore.

mod fixtures;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    Fixtures(fixtures::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Fixtures(args) => fixtures::run(&args),
    }
}

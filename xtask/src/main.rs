//! Chores of the project, run as `cargo xtask NAME`. One file per chore.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // chores report on the terminal

mod bench_operators;
mod bench_peers;
mod cancel;
mod checked;
mod ci;
mod conformance;
mod downstream;
mod examples;
mod exporter;
mod features;
mod fixtures;
mod frames;
mod fuzz;
mod gallery;
mod hash;
mod hostile;
mod hot_loops;
mod licences;
mod loom;
mod memory;
mod miri;
mod models;
mod mutants;
mod native;
mod ops_docs;
mod portable;
mod promises;
mod python;
mod releases;
mod resources;
mod scale;
mod soak;
mod steps;
mod tidy;
mod view_test;
mod walk;
mod wheel;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    BenchOperators(bench_operators::Args),
    BenchPeers(bench_peers::Args),
    #[command(hide = true)]
    BenchWorker(bench_peers::WorkerArgs),
    Cancel(cancel::Args),
    Conformance(conformance::Args),
    Checked(checked::Args),
    Ci(ci::Args),
    Downstream(downstream::Args),
    Examples(examples::Args),
    Exporter(exporter::Args),
    Fixtures(fixtures::Args),
    Fuzz(fuzz::Args),
    Gallery(gallery::Args),
    Hash(hash::Args),
    HotLoops(hot_loops::Args),
    Hostile(hostile::Args),
    #[command(hide = true)]
    HostileOne(hostile::OneArgs),
    Loom(loom::Args),
    Memory(memory::Args),
    #[command(hide = true)]
    MemoryOne(memory::OneArgs),
    Miri(miri::Args),
    Models(models::Args),
    Mutants(mutants::Args),
    #[command(hide = true)]
    MutantsWorker(mutants::WorkerArgs),
    Native(native::Args),
    OpsDocs(ops_docs::Args),
    Portable(portable::Args),
    Releases(releases::Args),
    Scale(scale::Args),
    Steps(steps::Args),
    Soak(soak::Args),
    Tidy(tidy::Args),
    ViewTest(view_test::Args),
    Wheel(wheel::Args),
    WheelTest(wheel::TestArgs),
    Clusters(wheel::ClusterArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::BenchOperators(args) => bench_operators::run(&project_root()?, &args),
        Chore::BenchPeers(args) => bench_peers::run(&args),
        Chore::BenchWorker(args) => bench_peers::work(&args),
        Chore::Cancel(args) => cancel::run(&args),
        Chore::Conformance(args) => conformance::run(&args),
        Chore::Checked(_) => checked::run(&project_root()?),
        Chore::Ci(_) => ci::run(&project_root()?),
        Chore::Downstream(args) => downstream::run(&args),
        Chore::Examples(_) => examples::run(&project_root()?),
        Chore::Exporter(args) => exporter::run(&project_root()?, &args),
        Chore::Fixtures(args) => fixtures::run(&args),
        Chore::Fuzz(args) => fuzz::run(&project_root()?, &args),
        Chore::Gallery(args) => gallery::run(&project_root()?, &args),
        Chore::Hash(args) => hash::run(&args),
        Chore::HotLoops(args) => hot_loops::run(&args),
        Chore::Hostile(args) => hostile::run(&args),
        Chore::HostileOne(args) => hostile::run_one(&args),
        Chore::Loom(_) => loom::run(&project_root()?),
        Chore::Memory(args) => memory::run(&args),
        Chore::MemoryOne(args) => memory::run_one(&args),
        Chore::Miri(args) => miri::run(&project_root()?, &args),
        Chore::Models(args) => models::run(&args),
        Chore::Mutants(args) => mutants::run(&args),
        Chore::MutantsWorker(args) => mutants::work(&args),
        Chore::Native(_) => native::run(),
        Chore::OpsDocs(args) => ops_docs::run(&project_root()?, &args),
        Chore::Portable(args) => portable::run(&args),
        Chore::Releases(args) => releases::run(&args),
        Chore::Scale(args) => scale::run(&args),
        Chore::Steps(args) => steps::run(&args),
        Chore::Soak(args) => soak::run(&args),
        Chore::Tidy(_) => tidy::run(&project_root()?),
        Chore::ViewTest(args) => view_test::run(&args),
        Chore::Wheel(args) => wheel::run(&project_root()?, &args),
        Chore::WheelTest(args) => wheel::test(&project_root()?, &args),
        Chore::Clusters(args) => wheel::clusters(&project_root()?, &args),
    }
}

fn project_root() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(manifest.parent().context("xtask lies in the project's root")?.to_owned())
}

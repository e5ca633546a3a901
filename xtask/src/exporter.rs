//! `cargo xtask exporter`: what `plutino.export` writes, shown on many models.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::python::{self, SCRIPTS, succeed};
use crate::wheel;

/// Export many models of PyTorch's libraries, compare each with its module, and write the table of
/// docs/exporting.md, or with --pnnx that of docs/models.md
///
/// Builds the wheel. Takes an hour. Results are kept in target/python/exporter.jsonl (pnnx.jsonl):
/// what is in it is not run again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only models whose name has this word.
    #[arg(long)]
    only: Vec<String>,
    /// Run models again that were not right.
    #[arg(long)]
    again: bool,
    /// Export by pnnx alone, and ask the command line (`check`, `verify`) what it says of the
    /// files.
    #[arg(long)]
    pnnx: bool,
    /// Use the wheel that is there.
    #[arg(long)]
    no_build: bool,
    /// Seconds that a model may take.
    #[arg(long, default_value_t = 300)]
    timeout: u32,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if !args.no_build {
        wheel::run(root, &wheel::Args::default())?;
    }
    let python = python::interpreter(root, &["requirements.txt", "exporter/requirements.txt"])?;
    let site = wheel::unpacked(root, &python)?;
    let (results, document) = match args.pnnx {
        true => ("pnnx.jsonl", "docs/models.md"),
        false => ("exporter.jsonl", "docs/exporting.md"),
    };
    let mut run = Command::new(python);
    run.current_dir(root.join(SCRIPTS)).env("PYTHONPATH", site).env("OMP_NUM_THREADS", "1");
    run.args(["-m", "exporter.run", "--timeout", &args.timeout.to_string()]);
    run.arg("--results").arg(root.join("target/python").join(results));
    run.args(args.only.iter().flat_map(|word| ["--only", word]));
    if args.pnnx {
        run.arg("--command").arg(command_line(root)?);
    }
    if args.again {
        run.arg("--again");
    }
    if args.only.is_empty() {
        run.arg("--document").arg(root.join(document));
    }
    succeed(&mut run)
}

/// The command `plutino`, built.
fn command_line(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    succeed(cargo.current_dir(root).args(["build", "--release", "--package", "plutino-cli"]))?;
    Ok(root.join("target/release").join(format!("plutino{}", std::env::consts::EXE_SUFFIX)))
}

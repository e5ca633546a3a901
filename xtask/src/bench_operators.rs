//! `cargo xtask bench-operators`: single operators beside PyTorch's interpreter.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::python::{self, SCRIPTS, succeed};
use crate::wheel;

/// Time single operators, each exported by itself, beside PyTorch's interpreter
///
/// Builds the wheel. For a look at what is slow by itself: `bench-peers` measures networks.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only operators, or families of them, whose name has one of these words.
    only: Vec<String>,
    /// Threads of each side.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Use the wheel that is there.
    #[arg(long)]
    no_build: bool,
    /// Write the table to this file, too.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if !args.no_build {
        wheel::run(root, &wheel::Args::default())?;
    }
    let python = python::interpreter(root, &["requirements.txt"])?;
    let mut run = Command::new(&python);
    run.env("PYTHONPATH", wheel::unpacked(root, &python)?);
    run.arg(root.join(SCRIPTS).join("peers/operators.py"));
    run.args(["--threads", &args.threads.to_string()]);
    run.args(args.only.iter().flat_map(|word| ["--only", word]));
    run.args(args.markdown.iter().flat_map(|file| ["--markdown".as_ref(), file.as_os_str()]));
    succeed(&mut run)
}

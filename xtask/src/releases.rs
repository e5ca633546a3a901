//! `cargo xtask releases`: files of several releases of pnnx give the results of PyTorch.
//!
//! `xtask/python/releases.py` exports small networks with each; they are run as conformance cases.

use anyhow::Result;
use std::process::Command;

use crate::{conformance, project_root, python};

/// Export small networks with several releases of pnnx, and compare their results with PyTorch's.
///
/// Needs python3 with PyTorch, as `fixtures` does, and the network: releases are installed from
/// PyPI into virtual environments below target/releases.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Releases, such as 20250430 [default: six].
    releases: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = project_root()?;
    let out = root.join("target/releases");
    let cases = out.join("cases");
    if cases.exists() {
        std::fs::remove_dir_all(&cases)?;
    }
    python::succeed(
        Command::new(python::interpreter(&root, &["requirements.txt"])?)
            .arg(root.join(python::SCRIPTS).join("releases.py"))
            .arg("--out")
            .arg(&out)
            .args(&args.releases),
    )?;
    conformance::run(&conformance::Args::of(cases))
}

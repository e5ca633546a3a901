//! `cargo xtask loom`: the models of `par` in all interleavings.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Try the models of tests/loom: threads that share work, in all interleavings
#[derive(clap::Args)]
pub(crate) struct Args;

pub(crate) fn run(root: &Path) -> Result<()> {
    let status = Command::new("cargo")
        .current_dir(root.join("tests/loom"))
        .args(["test", "--release", "--locked", "--", "models::", "waits::"])
        .env("CARGO_TARGET_DIR", root.join("target/loom"))
        .status()
        .context("cargo")?;
    ensure!(status.success(), "the models of tests/loom failed: {status}");
    Ok(())
}

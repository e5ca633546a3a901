//! `cargo xtask ci`: what CI checks, in its order, stopping at the first failure.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Run the checks that must pass before a change lands
#[derive(clap::Args)]
pub(crate) struct Args;

pub(crate) fn run(root: &Path) -> Result<()> {
    let script = root.join(".ci/run");
    let status =
        Command::new("bash").arg(&script).status().with_context(|| script.display().to_string())?;
    if !status.success() {
        bail!("{} failed: {status}", script.display());
    }
    Ok(())
}

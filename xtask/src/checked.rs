//! `cargo xtask checked`: the tests of the kernels with all assertions and checks of overflow.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Run the tests of the kernels' crates with debug assertions and checks of overflow
#[derive(clap::Args)]
pub(crate) struct Args;

/// Elsewhere they are compiled as users have them: without either.
const CRATES: &[&str] =
    &["plutino-cpu", "plutino-products", "plutino-convolution", "plutino-kernels"];

pub(crate) fn run(root: &Path) -> Result<()> {
    let packages = CRATES.iter().flat_map(|name| ["--package", name]);
    let status = Command::new("cargo")
        .current_dir(root)
        .args(["test", "--profile", "checked", "--locked"])
        .args(packages)
        .status()
        .context("cargo")?;
    ensure!(status.success(), "the kernels' tests failed with all assertions: {status}");
    Ok(())
}

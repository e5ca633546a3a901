//! `cargo xtask native`: the table of PyTorch's native functions, out of `xtask/python/native.py`.

use std::process::Command;

use crate::{project_root, python};

/// Rewrite crates/plutino-ops/src/native/schemas.txt from the installed PyTorch.
///
/// Needs python3, as `cargo xtask fixtures` does. Worth a run for each new version of PyTorch.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run() -> anyhow::Result<()> {
    let root = project_root()?;
    python::succeed(
        Command::new(python::interpreter(&root, &["requirements.txt"])?)
            .arg(root.join(python::SCRIPTS).join("native.py"))
            .arg("--out")
            .arg(root.join("crates/plutino-ops/src/native/schemas.txt")),
    )
}

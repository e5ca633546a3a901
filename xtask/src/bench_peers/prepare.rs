//! What must be there before anything is measured: the models in all formats, and our worker,
//! optimised.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::set::Set;
use crate::python::SCRIPTS;

/// A model with its inputs, as `peers/prepare.py` describes it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) batch: usize,
    /// Whether PyTorch joins.
    pub(super) torch: bool,
    /// Formats that could not be exported, with the reason.
    pub(super) failed: BTreeMap<String, String>,
}

/// Exports the models of the set that are not in the cache yet; `names` chooses some of them.
pub(super) fn models(
    python: &Path,
    root: &Path,
    cache: &Path,
    set: Set,
    names: &[String],
) -> anyhow::Result<Vec<Case>> {
    let mut command = module(python, root, "peers.prepare");
    command.arg("--out").arg(cache).args(["--set", set.name()]).args(names);
    command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    serde_json::from_slice(&output.stdout).context("peers/prepare.py describes the models")
}

/// A Python module of ours.
pub(super) fn module(python: &Path, root: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", name]).env("PYTHONPATH", root.join(SCRIPTS));
    command
}

/// Builds this program as users build the engine, and returns where it lies.
pub(super) fn worker(root: &Path) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let build = ["build", "--release", "--package", "xtask"];
    let format = "--message-format=json-render-diagnostics";
    command.args(build).arg(format).current_dir(root).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    let messages = output.stdout.split(|&byte| byte == b'\n');
    messages
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .context("cargo names no executable")
}

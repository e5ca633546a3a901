//! `cargo xtask fixtures`: models, inputs and PyTorch's outputs, out of `xtask/python/fixtures.py`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::{project_root, python};

const LARGEST: u64 = 10 << 20;

/// Regenerate the folder fixtures/ with PyTorch and pnnx.
///
/// Needs python3: a virtual environment with the versions of xtask/python/requirements.txt is made
/// in .venv at the project's root. Set PLUTINO_PYTHON to an interpreter that has them already.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these fixtures: a folder of fixtures/, or a case as ops/TABLE/NAME; `ops` is all cases
    /// [default: all].
    names: Vec<String>,
    /// Change nothing: write to target/fixtures and compare with what is committed, byte by byte.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = project_root()?;
    let committed = root.join("fixtures");
    let out = if args.check { root.join("target/fixtures") } else { committed.clone() };
    if args.check && out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let script = root.join("xtask/python/fixtures.py");
    python::succeed(
        Command::new(python::interpreter(&root, &["requirements.txt"])?)
            .arg(script)
            .arg("--out")
            .arg(&out)
            .args(&args.names),
    )?;
    if args.check {
        return compare(&committed, &out, args.names.is_empty());
    }
    let size = files_below(&committed)?
        .iter()
        .map(|file| file.metadata().map(|m| m.len()))
        .sum::<Result<u64, _>>()?;
    ensure!(
        size <= LARGEST,
        "fixtures/ takes {size} bytes, more than the {LARGEST} that we commit"
    );
    Ok(())
}

/// Compares two folders file by file; `all` also reports files that were not written again.
fn compare(committed: &Path, fresh: &Path, all: bool) -> anyhow::Result<()> {
    let relative = |base: &Path| -> anyhow::Result<BTreeSet<PathBuf>> {
        let files = files_below(base)?;
        Ok(files
            .iter()
            .filter_map(|file| file.strip_prefix(base).ok().map(Path::to_owned))
            .collect())
    };
    let written = relative(fresh)?;
    let mut wrong = Vec::new();
    for file in &written {
        if fs::read(committed.join(file)).ok() != Some(fs::read(fresh.join(file))?) {
            wrong.push(format!("differs: {}", file.display()));
        }
    }
    if all {
        let by_hand = Path::new("README.md");
        let stale = relative(committed)?
            .into_iter()
            .filter(|file| !written.contains(file) && file != by_hand);
        wrong.extend(stale.map(|file| format!("is written no more: {}", file.display())));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("fixtures/ is not what the script writes here:\n  {}", wrong.join("\n  "))
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

//! One set of features for every build of the workspace: see `tests/unify`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Selections of packages that are built while working, each with `cargo test -p` or `cargo xtask`.
/// `plutino-ir`, `plutino-tensor` and `plutino-fixtures` are not among them: nothing that they
/// depend on takes long.
const SELECTIONS: &[&str] = &[
    "plutino",
    "plutino-attack",
    "plutino-cli",
    "plutino-convolution",
    "plutino-cpu",
    "plutino-kernels",
    "plutino-ops",
    "plutino-products",
    "plutino-runtime",
    "plutino-tests",
    "xtask",
];

/// What a selection asks of a package that it builds with other features than `--workspace` does,
/// where the engine depends on that package.
pub(crate) fn differences(root: &Path) -> Result<Vec<String>> {
    let engine = tree(root, &["--package", "plutino"], "normal,build", "{p}")?;
    let name = |line: &str| line.split(' ').next().unwrap_or(line).to_owned();
    let engine: Vec<String> = engine.iter().map(|line| name(line)).collect();
    let features = |select: &[&str]| -> Result<Vec<String>> {
        let mut all = tree(root, select, "normal,build,dev", "{p} {f}")?;
        all.retain(|line| engine.contains(&name(line)));
        Ok(all)
    };
    let whole = features(&["--workspace"])?;
    let mut found = Vec::new();
    for selection in SELECTIONS {
        let own = features(&["--package", selection])?;
        let other = own.into_iter().filter(|line| !whole.contains(line));
        found.extend(
            other.map(|line| format!("-p {selection} builds {line}: see tests/unify/Cargo.toml")),
        );
    }
    Ok(found)
}

/// What `cargo tree` prints of the selected packages and their dependencies along these edges, each
/// line once, in order.
pub(crate) fn tree(root: &Path, select: &[&str], edges: &str, format: &str) -> Result<Vec<String>> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["tree", "--locked", "--no-dedupe", "--prefix", "none"])
        .args(["--edges", edges, "--format", format])
        .args(select)
        .output()
        .context("cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let mut lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.retain(|line| !line.is_empty());
    lines.sort_unstable();
    lines.dedup();
    Ok(lines)
}

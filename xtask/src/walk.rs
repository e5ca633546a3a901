//! Files below a folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// All files below a folder, at any depth, that are to be kept; in order.
pub(crate) fn files(folder: &Path, keep: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut pending = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = pending.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                pending.push(path);
            } else if keep(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// All folders with a `model.pnnx.param` below a folder, itself included; in order.
pub(crate) fn models(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = files(folder, |path| path.ends_with("model.pnnx.param"))?;
    Ok(found.iter().filter_map(|path| path.parent().map(Path::to_owned)).collect())
}

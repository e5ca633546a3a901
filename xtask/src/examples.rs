//! `cargo xtask examples`: runs the examples of every crate.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Run every example of every crate, without arguments
#[derive(clap::Args)]
pub(crate) struct Args;

pub(crate) fn run(root: &Path) -> Result<()> {
    let mut count = 0;
    for package in names(&root.join("crates"), "")? {
        let folder = root.join("crates").join(&package).join("examples");
        if !folder.is_dir() {
            continue;
        }
        for example in names(&folder, ".rs")? {
            let arguments = ["run", "--quiet", "--locked", "-p", &package, "--example", &example];
            let output = Command::new("cargo")
                .current_dir(root)
                .args(arguments)
                .output()
                .context("cargo")?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{package}: {example}: {}\n{said}", output.status);
            ensure!(!output.stdout.is_empty(), "{package}: {example} shows nothing");
            println!("{package}: {example}");
            count += 1;
        }
    }
    ensure!(count > 0, "no crate has an example");
    Ok(())
}

/// What a folder holds, by name without `ending`, sorted.
fn names(folder: &Path, ending: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(ending).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

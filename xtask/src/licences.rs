//! The licences of all dependencies, compared with the list in deny.toml.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::wheel;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// What cargo says of a package.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    /// None for crates of ours.
    pub(crate) source: Option<String>,
}

/// The packages of a workspace, and all that they depend on.
pub(crate) fn packages(workspace: &Path) -> Result<Vec<Package>> {
    let metadata: Metadata = serde_json::from_slice(&metadata(workspace)?)?;
    Ok(metadata.packages)
}

/// The dependencies of which no alternative of their licence is allowed.
pub(crate) fn refused(root: &Path) -> Result<Vec<String>> {
    let list = fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let allowed = allowed(&list).context("deny.toml lists no licences: [licenses] allow")?;
    // The package of Python is a workspace of its own.
    let mut packages = BTreeMap::new();
    for workspace in [root.to_owned(), root.join(wheel::FOLDER)] {
        let all = self::packages(&workspace)?;
        packages.extend(all.into_iter().map(|p| ((p.name.clone(), p.version.clone()), p)));
    }
    let foreign = packages.values().filter(|package| package.source.is_some());
    let refused = foreign.filter_map(|package| {
        let Package { name, version, license, .. } = package;
        let license = license.as_deref().unwrap_or("none");
        (!suits(license, &allowed)).then(|| format!("{name} {version}: {license}"))
    });
    Ok(refused.collect())
}

/// What `cargo metadata` says of a workspace and all that it depends on, as JSON.
fn metadata(workspace: &Path) -> Result<Vec<u8>> {
    let output = Command::new("cargo")
        .current_dir(workspace)
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// The words of `allow` in the section `[licenses]`.
fn allowed(list: &str) -> Option<Vec<&str>> {
    let (_, section) = list.split_once("\n[licenses]\n")?;
    let (_, rest) = section.split_once("allow = [")?;
    let words = rest.split_once(']')?.0.split('"').skip(1).step_by(2);
    Some(words.collect())
}

/// Whether an SPDX expression has an alternative of which every part is allowed. `/` is the older
/// way to write OR.
fn suits(expression: &str, allowed: &[&str]) -> bool {
    let text = expression.replace('/', " OR ");
    let text = text.trim();
    for (word, all) in [(" OR ", false), (" AND ", true)] {
        let parts = split(text, word);
        if parts.len() > 1 {
            let mut parts = parts.into_iter().map(|part| suits(part, allowed));
            return if all { parts.all(|part| part) } else { parts.any(|part| part) };
        }
    }
    match text.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => suits(inner, allowed),
        None => allowed.contains(&text),
    }
}

/// The parts between a word that stands in no parentheses.
fn split<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices(word) {
        let before = &text[..at];
        if before.matches('(').count() == before.matches(')').count() {
            parts.push(&text[start..at]);
            start = at + word.len();
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alternative_must_be_allowed_in_full() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
        for good in
            ["MIT", "GPL-3.0 OR MIT", "Unlicense/MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"]
        {
            assert!(suits(good, &allowed), "{good}");
        }
        for bad in ["GPL-3.0", "none", "MIT AND GPL-3.0", "(MIT OR BSD) AND (GPL-3.0 OR Zlib)"] {
            assert!(!suits(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn the_list_is_that_of_its_section() {
        let list = "[graph]\n\n[licenses]\n# why\nallow = [\n    \"MIT\",\n    \"Zlib\",\n]\n[bans]\nallow = []\n";
        assert_eq!(allowed(list).unwrap(), ["MIT", "Zlib"]);
        assert_eq!(allowed("[bans]\n"), None);
    }
}

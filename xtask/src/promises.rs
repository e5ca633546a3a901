//! Promises of SECURITY.md: each names the tests that hold it, and the tests are there.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Sections whose items are promises of ours; the others are advice.
const SECTIONS: [&str; 2] = ["## What a hostile file cannot do", "## What a hostile model can do"];

/// What is wrong with the names of tests.
pub(crate) fn broken(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join("SECURITY.md")).context("SECURITY.md")?;
    Ok(findings(&page, |file| fs::read_to_string(root.join(file)).ok()))
}

fn findings(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for start in SECTIONS {
        let Some((_, section)) = page.split_once(start) else {
            found.push(format!("SECURITY.md has no section '{start}'"));
            continue;
        };
        let section = section.split("\n## ").next().unwrap_or_default();
        for promise in section.split("\n- ").skip(1) {
            let tests: Vec<(&str, &str)> = named(promise).collect();
            if tests.is_empty() {
                let brief: String = promise.trim().chars().take(60).collect();
                found.push(format!("SECURITY.md: no test holds '{brief}'"));
            }
            for (file, test) in tests {
                if !read(file).is_some_and(|text| has_test(&text, test)) {
                    found.push(format!("SECURITY.md: {file} has no test {test}"));
                }
            }
        }
    }
    found
}

/// Tests as a promise names them: `` `path.rs::name` ``.
fn named(promise: &str) -> impl Iterator<Item = (&str, &str)> {
    promise.split('`').skip(1).step_by(2).filter_map(|code| {
        let (file, test) = code.split_once("::")?;
        file.ends_with(".rs").then_some((file, test))
    })
}

/// Whether a function of that name follows `#[test]`, other attributes aside.
fn has_test(text: &str, name: &str) -> bool {
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if is_test && line.starts_with(&format!("fn {name}(")) {
            return true;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            is_test = false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_without_tests_are_found() {
        let page = "# S\n\n## What a hostile file cannot do\n\n- **A.** Held by `a.rs::x`.\n- **B.** No.\n\n\
                    ## What a hostile model can do, and more\n\n- **C.** `a.rs::y`, `b.rs::x`.\n\n## Rest\n\n- D\n";
        let read = |file: &str| {
            let text = "#[test]\nfn x() {}\nfn y() {}\n";
            (file == "a.rs").then(|| text.to_owned())
        };
        assert_eq!(
            findings(page, read),
            [
                "SECURITY.md: no test holds '**B.** No.'",
                "SECURITY.md: a.rs has no test y",
                "SECURITY.md: b.rs has no test x"
            ]
        );
        assert_eq!(findings("", |_| None).len(), 2);
    }
}

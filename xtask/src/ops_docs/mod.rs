//! `cargo xtask ops-docs`: docs/operators.md, out of the registry and the operators' own
//! documentation.

use anyhow::{Context, Result, bail};
use plutino::ops::registry;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Where the documentation stands, from the project's root.
const FILE: &str = "docs/operators.md";

/// Write docs/operators.md: every operator type that is supported, by family
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check that the file is current
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let text = document(root)?;
    let path = root.join(FILE);
    if args.check {
        if fs::read_to_string(&path).unwrap_or_default() != text {
            bail!("{FILE} is not current: run `cargo xtask ops-docs`");
        }
        return Ok(());
    }
    fs::create_dir_all(root.join("docs"))?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

fn document(root: &Path) -> Result<String> {
    let registry = registry()?;
    // A family is the source file that registers its types.
    let mut families: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (kind, entry) in registry.iter() {
        families.entry(entry.file).or_default().push(kind);
    }
    let mut text = format!(
        "# Operators\n\nWritten by `cargo xtask ops-docs`; do not edit.\n\n\
         plutino runs {} operator types. A family is one source file: parameters, shape rule, kernels, tests.\n\
         `pnnx.Input`, `pnnx.Output`, `pnnx.Attribute`, `prim::TupleConstruct` and `prim::TupleUnpack` are the \
         graph's own structure and cost nothing.\n\n| family | types |\n|---|---|\n",
        registry.len()
    );
    for (file, kinds) in families {
        let kinds: Vec<String> = kinds.iter().map(|k| format!("`{k}`")).collect();
        writeln!(text, "| [{}](../{file}) | {} |", summary(root, file)?, kinds.join(" "))?;
    }
    Ok(text)
}

/// The first sentence of a source file's documentation, up to a colon: the name of the family.
fn summary(root: &Path, file: &str) -> Result<String> {
    let source = fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
    let doc = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let first: Vec<&str> = doc.take_while(|line| !line.is_empty()).collect();
    let sentence = first.join(" ");
    let end = sentence.find(": ").or_else(|| sentence.find(". ")).unwrap_or(sentence.len());
    let name = sentence[..end].trim_end_matches(['.', ':']);
    if name.is_empty() {
        bail!("{file} registers operators but has no documentation to name the family by");
    }
    Ok(name.replace('|', "\\|"))
}

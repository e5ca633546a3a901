//! `plutino ops`

use crate::failure::Failure;
use crate::output::{Output, count};
use std::io::Write;

/// What is known of every operator type, written by `cargo xtask ops-docs`: a line for each family
/// (title, file, notes), below it one for each of its rows (types, inputs, parameters, weights,
/// dtypes); fields are separated by tabs.
const KNOWN: &str = include_str!("../../assets/operators.txt");

/// List every operator type that is supported, or show the parameters of one
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A type, to see its inputs, parameters, weights and dtypes; or a part of names, to see which
    /// types have it. Capitals and small letters are the same
    filter: Option<String>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let registry = plutino::ops::registry().map_err(|e| Failure::Model(e.to_string()))?;
    let filter = args.filter.as_deref().unwrap_or_default();
    let folded = filter.to_lowercase();
    let kinds: Vec<&str> = registry
        .iter()
        .map(|(kind, _)| kind)
        .filter(|kind| kind.to_lowercase().contains(&folded))
        .collect();
    if let Some(kind) = kinds.iter().find(|kind| kind.to_lowercase() == folded) {
        return show(kind, out);
    }
    for kind in &kinds {
        writeln!(out, "{kind}")?;
    }
    if !kinds.is_empty() {
        return Ok(());
    }
    // With and without a namespace, in which names are far more alike.
    let namespaces = ["", "torch.", "nn.", "F.", "Tensor."];
    let mut nearest: Vec<&str> =
        namespaces.iter().filter_map(|n| registry.nearest(&format!("{n}{filter}"))).collect();
    nearest.dedup();
    Err(Failure::usage(match nearest.as_slice() {
        [] => format!("no operator type contains '{filter}', of {}", count(registry.len(), "type")),
        [only] => format!("no operator type contains '{filter}'; the nearest is {only}"),
        all => format!("no operator type contains '{filter}'; the nearest are {}", all.join(", ")),
    }))
}

/// What docs/operators.md says of a type.
fn show(kind: &str, out: &mut Output) -> Result<(), Failure> {
    let mut family = "";
    for line in KNOWN.lines() {
        let mut fields = line.split('\t');
        match line.strip_prefix("# ") {
            Some(rest) => family = rest,
            None if fields.next().is_some_and(|kinds| kinds.split(' ').any(|k| k == kind)) => {
                return describe(kind, family, fields, out);
            }
            None => {}
        }
    }
    writeln!(out, "{kind}")?; // registered by another crate that is linked
    Ok(())
}

fn describe<'a>(
    kind: &str,
    family: &str,
    fields: impl Iterator<Item = &'a str>,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut about = family.split('\t');
    let mut next = || about.next().unwrap_or_default();
    let (title, file, notes) = (next(), next(), next());
    writeln!(out, "{kind}\n{title} ({file})")?;
    for (name, text) in ["inputs", "parameters", "weights", "dtypes"].iter().zip(fields) {
        for (i, part) in text.split("; ").filter(|part| !part.is_empty()).enumerate() {
            writeln!(out, "  {:<12}{part}", if i == 0 { name } else { "" })?;
        }
    }
    if !notes.is_empty() {
        writeln!(out, "\n{}", notes.replace("\\n", "\n"))?;
    }
    Ok(())
}

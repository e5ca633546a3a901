//! `plutino ops`

use crate::failure::Failure;
use crate::output::{Output, count};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;

/// What is known of every operator type, written by `cargo xtask ops-docs`: a line for each family
/// (title, file, notes), below it one for each of its rows (types, inputs, parameters, weights,
/// dtypes); fields are separated by tabs.
const KNOWN: &str = include_str!("../../assets/operators.txt");

/// List every operator type that is supported, or show the parameters of one
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A type, to see its inputs, parameters, weights and dtypes (of aten:: types those of the type
    /// that they are read as); or a part of names, to see which types have it. Capitals and small
    /// letters are the same
    filter: Option<String>,
    /// Print a JSON array with all that is known of each type
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let registry = plutino::ops::registry().map_err(|e| Failure::Model(e.to_string()))?;
    let filter = args.filter.as_deref().unwrap_or_default();
    let folded = filter.to_lowercase();
    let mut kinds: Vec<&str> = registry
        .iter()
        .map(|(kind, _)| kind)
        .filter(|kind| kind.to_lowercase().contains(&folded))
        .collect();
    let same = kinds.iter().copied().find(|kind| kind.to_lowercase() == folded);
    let raw = registry.meaning(filter).filter(|_| same.is_none());
    let exact = same.or(raw);
    if let Some(kind) = exact {
        kinds = vec![kind];
    }
    if args.json && !kinds.is_empty() {
        return out.json(&kinds.into_iter().map(Known::of).collect::<Vec<_>>());
    }
    if let Some(kind) = exact {
        if raw.is_some() {
            writeln!(out, "{filter} is read as {kind}\n")?;
        }
        return Known::of(kind).print(out);
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
    let mut seen = BTreeSet::new();
    nearest.retain(|kind| seen.insert(*kind));
    let filter = plutino::ir::quote(filter);
    Err(Failure::usage(match nearest.as_slice() {
        [] => format!("no operator type contains '{filter}', of {}", count(registry.len(), "type")),
        [only] => format!("no operator type contains '{filter}'; the nearest is {only}"),
        all => format!("no operator type contains '{filter}'; the nearest are {}", all.join(", ")),
    }))
}

/// What docs/operators.md says of a type. Lists are separated by semicolons there.
#[derive(Serialize)]
struct Known<'a> {
    r#type: &'a str,
    family: &'a str,
    /// The source file, in plutino's repository.
    file: &'a str,
    inputs: Vec<&'a str>,
    parameters: Vec<&'a str>,
    weights: Vec<&'a str>,
    dtypes: Vec<&'a str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    notes: String,
}

impl<'a> Known<'a> {
    /// Nothing but the name of a type that another crate registers, which is linked.
    fn of(kind: &'a str) -> Self {
        let mut family = "";
        for line in KNOWN.lines() {
            let mut fields = line.split('\t');
            match line.strip_prefix("# ") {
                Some(rest) => family = rest,
                None if fields.next().is_some_and(|kinds| kinds.split(' ').any(|k| k == kind)) => {
                    return Self::read(kind, family, fields);
                }
                None => {}
            }
        }
        Self::read(kind, "", std::iter::empty())
    }

    fn read(kind: &'a str, family: &'a str, mut fields: impl Iterator<Item = &'a str>) -> Self {
        let mut about = family.split('\t');
        let mut next = || about.next().unwrap_or_default();
        let (family, file, notes) = (next(), next(), next().replace("\\n", "\n"));
        let mut list = || {
            let parts = fields.next().unwrap_or_default().split("; ");
            parts.filter(|part| !part.is_empty()).collect()
        };
        let (inputs, parameters, weights, dtypes) = (list(), list(), list(), list());
        Self { r#type: kind, family, file, inputs, parameters, weights, dtypes, notes }
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        writeln!(out, "{}", self.r#type)?;
        if self.family.is_empty() {
            return Ok(());
        }
        writeln!(out, "{} ({})", self.family, self.file)?;
        for (name, parts) in [
            ("inputs", &self.inputs),
            ("parameters", &self.parameters),
            ("weights", &self.weights),
            ("dtypes", &self.dtypes),
        ] {
            for (i, part) in parts.iter().enumerate() {
                writeln!(out, "  {:<12}{part}", if i == 0 { name } else { "" })?;
            }
        }
        if !self.notes.is_empty() {
            writeln!(out, "\n{}", self.notes)?;
        }
        Ok(())
    }
}

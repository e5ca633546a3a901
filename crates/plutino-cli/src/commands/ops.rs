//! `plutino ops`

use crate::failure::Failure;
use crate::output::{Output, count};
use std::io::Write;

/// List every operator type that is supported
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only types whose name contains this; capitals and small letters are the same
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

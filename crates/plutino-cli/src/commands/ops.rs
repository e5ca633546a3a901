//! `plutino ops`

use crate::failure::Failure;
use crate::output::{Output, count};
use std::io::Write;

/// List every operator type that is supported
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only types whose name contains this
    filter: Option<String>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let registry = plutino::ops::registry().map_err(|e| Failure::Model(e.to_string()))?;
    let filter = args.filter.as_deref().unwrap_or_default();
    let kinds: Vec<&str> =
        registry.iter().map(|(kind, _)| kind).filter(|kind| kind.contains(filter)).collect();
    for kind in &kinds {
        writeln!(out, "{kind}")?;
    }
    if kinds.is_empty() {
        return Err(Failure::usage(match registry.nearest(filter) {
            Some(nearest) => {
                format!("no operator type contains '{filter}'; the nearest is {nearest}")
            }
            None => format!(
                "no operator type contains '{filter}', of {}",
                count(registry.len(), "type")
            ),
        }));
    }
    Ok(())
}

//! What changed between two profiles.

use super::report::{Report, Row};
use crate::failure::Failure;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// A profile beside an older one.
#[derive(Debug, Serialize)]
pub(crate) struct Against {
    /// The file that holds the older one, and its model.
    pub(crate) file: String,
    pub(crate) model: String,
    pub(crate) old_total_ms: f64,
    pub(crate) total_ms: f64,
    /// The time now, divided by the time before.
    pub(crate) ratio: Option<f64>,
    /// Operators and types, the greatest difference first.
    pub(crate) operators: Vec<Change>,
    pub(crate) kinds: Vec<Change>,
}

/// An operator, or a type of operators, then and now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Change {
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// None where only the other profile has it.
    pub(crate) old_ms: Option<f64>,
    pub(crate) ms: Option<f64>,
    pub(crate) difference_ms: f64,
    /// The time now, divided by the time before.
    pub(crate) ratio: Option<f64>,
    /// Kernels, where they are others now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernels: Option<(String, String)>,
}

/// Of a profile, at most: some 500 bytes for each operator.
const MOST_BYTES: u64 = 256 << 20;

impl Against {
    /// Reads the older profile, as --json printed it, and compares.
    pub(crate) fn read(path: &Path, new: &Report) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let text = plutino::ir::read_small(path, MOST_BYTES)
            .map_err(|e| Failure::usage(format!("cannot read '{file}': {e}")))?;
        let old: Report = serde_json::from_slice(&text).map_err(|e| {
            let what = e.to_string();
            let what = plutino::ir::told(&what);
            Failure::usage(format!("{file}: not what plutino profile --json prints: {what}"))
        })?;
        if old.operators.is_empty() && old.kinds.is_empty() {
            return Err(Failure::usage(format!("{file}: no profile: it has no operators")));
        }
        Ok(Self {
            file,
            ratio: ratio(Some(old.total_ms), Some(new.total_ms)),
            old_total_ms: old.total_ms,
            total_ms: new.total_ms,
            operators: changes(&old.operators, &new.operators),
            kinds: changes(&old.kinds, &new.kinds),
            model: old.model,
        })
    }
}

fn ratio(old: Option<f64>, new: Option<f64>) -> Option<f64> {
    old.zip(new).filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old)
}

/// Rows of the same type and name belong together, in order where several have the same.
fn changes(old: &[Row], new: &[Row]) -> Vec<Change> {
    let mut before: BTreeMap<(&str, &str), VecDeque<&Row>> = BTreeMap::new();
    for row in old {
        before.entry((&row.kind, &row.name)).or_default().push_back(row);
    }
    let mut changes: Vec<Change> = Vec::new();
    for row in new {
        let old = before.get_mut(&(row.kind.as_str(), row.name.as_str()));
        changes.push(Change::of(old.and_then(VecDeque::pop_front), Some(row)));
    }
    changes.extend(before.into_values().flatten().map(|row| Change::of(Some(row), None)));
    changes.sort_by(|a, b| b.difference_ms.abs().total_cmp(&a.difference_ms.abs()));
    changes
}

impl Change {
    fn of(old: Option<&Row>, new: Option<&Row>) -> Self {
        let (old_ms, ms) = (old.map(|row| row.ms), new.map(|row| row.ms));
        let kernels = old.zip(new).filter(|(old, new)| old.kernel != new.kernel);
        let either = new.or(old);
        Self {
            kind: either.map(|row| row.kind.clone()).unwrap_or_default(),
            name: either.map(|row| row.name.clone()).unwrap_or_default(),
            old_ms,
            ms,
            difference_ms: ms.unwrap_or(0.0) - old_ms.unwrap_or(0.0),
            ratio: ratio(old_ms, ms),
            kernels: kernels.map(|(old, new)| (old.kernel.clone(), new.kernel.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, name: &str, kernel: &str, ms: f64) -> Row {
        let text = |s: &str| s.to_owned();
        Row { kind: text(kind), name: text(name), kernel: text(kernel), ms, ..Row::default() }
    }

    #[test]
    fn rows_find_each_other() {
        let old = [row("A", "x", "k", 4.0), row("B", "y", "k", 1.0), row("C", "gone", "k", 0.5)];
        let new = [row("A", "x", "k", 1.0), row("B", "y", "l", 1.25), row("D", "new", "k", 2.0)];
        let changes = changes(&old, &new);
        let found: Vec<_> = changes.iter().map(|c| (c.name.as_str(), c.difference_ms)).collect();
        assert_eq!(found, [("x", -3.0), ("new", 2.0), ("gone", -0.5), ("y", 0.25)]);
        assert_eq!((changes[0].ratio, changes[1].ratio), (Some(0.25), None));
        assert_eq!(changes[3].kernels, Some(("k".into(), "l".into())));
    }
}

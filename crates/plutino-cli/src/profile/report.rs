//! Times of operators, summed up by type and by module. What is written as JSON can be read again.

use crate::memory_map::{AllocationRow, Totals};
use crate::profile::against::Against;
use plutino::{Frame, Plan, Profile, StepInfo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// One row: an operator, or all operators of a type or of a module.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// The module of PyTorch that it belongs to: `layer1.0` for `layer1.0.conv1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) scope: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kernel: String,
    /// What it reads and what it makes: dtypes, shapes and layouts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) shapes: String,
    /// Number of operators.
    pub(crate) count: usize,
    pub(crate) ms: f64,
    pub(crate) percent: f64,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) gflop_per_s: f64,
    pub(crate) gbyte_per_s: f64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    pub(crate) model: String,
    pub(crate) threads: usize,
    pub(crate) isa: String,
    /// Binding shapes, passes, packing weights, memory plan.
    pub(crate) plan_ms: f64,
    /// The first run after that, which touches memory for the first time.
    pub(crate) first_ms: f64,
    /// All timed runs, and those of them whose times are shown: the faster half.
    pub(crate) runs: usize,
    pub(crate) shown: usize,
    /// Of the timed runs.
    pub(crate) slowest_ms: f64,
    /// What the rows add up to.
    pub(crate) total_ms: f64,
    pub(crate) between_ms: f64,
    /// What the model takes, as known before the first run.
    pub(crate) memory: Totals,
    pub(crate) operators: Vec<Row>,
    pub(crate) kinds: Vec<Row>,
    pub(crate) scopes: Vec<Row>,
    /// What control operators ran: one row for each of their bodies, with the number of its runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) frames: Vec<Row>,
    /// What steps take of the arena.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub(crate) allocations: Option<Vec<AllocationRow>>,
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub(crate) against: Option<Against>,
}

/// A duration in milliseconds.
pub(crate) fn in_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The faster half of the runs: those that nothing else on the machine held up, the fastest first.
/// Of each of their parts, the mean is shown, so that parts add up to the whole, as medians do not.
pub(crate) fn faster_half(mut profiles: Vec<Profile>) -> Vec<Profile> {
    profiles.sort_by_key(|profile| profile.total);
    profiles.truncate(profiles.len().div_ceil(2));
    profiles
}

/// The mean, in milliseconds.
pub(crate) fn mean(times: impl ExactSizeIterator<Item = Duration>) -> f64 {
    let runs = times.len().max(1) as f64;
    times.map(|time| time.as_secs_f64()).sum::<f64>() * 1e3 / runs
}

impl Report {
    /// Of the runs that are shown; modules are told apart as far as `depth` names.
    pub(crate) fn new(plan: &Plan, profiles: &[Profile], depth: Option<usize>) -> Self {
        let total_ms = mean(profiles.iter().map(|p| p.total));
        let step = |i: usize, p: &Profile| p.steps.get(i).map_or(Duration::ZERO, |s| s.duration);
        let operators = plan.steps().enumerate().map(|(i, info)| {
            let mut row = Row::of(&info, depth);
            row.ms = mean(profiles.iter().map(|p| step(i, p)));
            row.rated(total_ms)
        });
        let operators: Vec<Row> = operators.collect();
        let kinds = sums(&operators, total_ms, |row| &row.kind, |kind, row| row.kind = kind);
        let scopes = sums(&operators, total_ms, |row| &row.scope, |scope, row| row.scope = scope);
        Self {
            shown: profiles.len(),
            total_ms,
            between_ms: mean(profiles.iter().map(Profile::between)),
            operators,
            kinds,
            scopes,
            frames: frames(plan, profiles, total_ms),
            ..Self::default()
        }
    }
}

impl Row {
    fn of(step: &StepInfo, depth: Option<usize>) -> Self {
        let specs = |values: &[plutino::ValueReport]| {
            values.iter().map(|v| v.spec.as_str()).collect::<Vec<_>>().join(" ")
        };
        Self {
            kind: step.location.kind.clone(),
            name: step.location.name.clone(),
            scope: scope(step, depth),
            kernel: step.kernel.clone(),
            shapes: format!("{} -> {}", specs(&step.inputs), specs(&step.outputs)),
            count: 1,
            flops: step.cost.flops as f64,
            bytes: step.cost.bytes as f64,
            ..Self::default()
        }
    }

    /// A row that is no operator.
    pub(crate) fn extra(kind: &str, ms: f64, whole: f64) -> Self {
        Self { kind: kind.into(), ms, ..Self::default() }.rated(whole)
    }

    /// With what follows from its time.
    fn rated(mut self, whole: f64) -> Self {
        // 1e9 in a second is 1e6 in a millisecond.
        let per_s = |amount: f64| if self.ms > 0.0 { amount / self.ms / 1e6 } else { 0.0 };
        (self.gflop_per_s, self.gbyte_per_s) = (per_s(self.flops), per_s(self.bytes));
        self.percent = if whole > 0.0 { self.ms / whole * 100.0 } else { 0.0 };
        self
    }
}

/// One row for each `key` of the rows, the slowest first.
fn sums(
    rows: &[Row],
    whole: f64,
    key: impl Fn(&Row) -> &String,
    name: impl Fn(String, &mut Row),
) -> Vec<Row> {
    let mut sums: BTreeMap<&String, Row> = BTreeMap::new();
    for row in rows {
        let sum = sums.entry(key(row)).or_default();
        sum.count += row.count;
        sum.ms += row.ms;
        sum.flops += row.flops;
        sum.bytes += row.bytes;
    }
    let named = sums.into_iter().map(|(key, mut sum)| {
        name(key.clone(), &mut sum);
        sum.rated(whole)
    });
    let mut named: Vec<Row> = named.collect();
    named.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    named
}

/// The bodies that control operators ran, those within bodies with the names of all operators on
/// the way: `scan/choice else=Grow`. Times are means of the runs, counts those of the fastest.
fn frames(plan: &Plan, profiles: &[Profile], whole: f64) -> Vec<Row> {
    fn walk(plan: &Plan, frames: &[Frame], above: &str, each: &mut impl FnMut(String, &Frame)) {
        let names: Vec<String> = plan.steps().map(|step| step.location.name).collect();
        for frame in frames {
            let name = names.get(frame.step).map_or("?", String::as_str);
            let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            walk(&frame.plan, &frame.frames, &path, each);
            each(path, frame);
        }
    }
    let mut sums: BTreeMap<(String, &'static str, String), Row> = BTreeMap::new();
    for (number, profile) in profiles.iter().enumerate() {
        walk(plan, &profile.frames, "", &mut |path, frame| {
            let row = sums.entry((path, frame.part, frame.kind.clone())).or_default();
            row.count += usize::from(number == 0);
            row.ms += in_millis(frame.duration) / profiles.len() as f64;
            for cost in frame.plan.steps().map(|step| step.cost).filter(|_| number == 0) {
                row.flops += cost.flops as f64;
                row.bytes += cost.bytes as f64;
            }
        });
    }
    let rows = sums.into_iter().map(|((path, part, kind), row)| {
        Row { name: path, kind: format!("{part}={kind}"), ..row }.rated(whole)
    });
    rows.collect()
}

/// The module of PyTorch that a step belongs to, as its name tells: operators are called as the
/// modules are, `layer1.0.conv1`. Names that pnnx made up (`convbn2d_3`, `pnnx_expr_12`) tell
/// nothing; then that of an operator that the step absorbed does, where there is one. What a
/// definition put in the place of a node belongs to that.
pub(crate) fn scope(step: &StepInfo, depth: Option<usize>) -> String {
    let module = |name: &'_ String| name.rsplit_once('.').map(|(scope, _)| scope.to_owned());
    let scope = match &step.location.origin {
        Some(origin) => {
            let name = &step.location.name;
            let own = name.strip_prefix(&origin.node.name).and_then(|own| own.strip_prefix('.'));
            let deeper = own.is_some_and(|own| !is_kind(own));
            module(name).filter(|_| deeper).unwrap_or_else(|| origin.node.name.clone())
        }
        None => {
            let names = std::iter::once(&step.location.name).chain(&step.absorbed);
            names.filter(|name| !is_kind(name)).find_map(module).unwrap_or_default()
        }
    };
    match depth {
        Some(depth) => scope.split('.').take(depth).collect::<Vec<_>>().join("."),
        None => scope,
    }
}

/// Whether pnnx called the operator after its type: `torch.flatten_0`, `F.relu_3`.
fn is_kind(name: &str) -> bool {
    ["torch.", "Tensor.", "F.", "nn.", "pnnx.", "prim.", "aten.", "torchvision.", "xformers."]
        .iter()
        .any(|kind| name.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_their_rows() {
        let row = |kind: &str, ms: f64, flops: f64| Row {
            kind: kind.into(),
            count: 1,
            ms,
            flops,
            ..Row::default()
        };
        let rows = [row("a", 1.0, 2e6), row("b", 5.0, 0.0), row("a", 3.0, 6e6)];
        let sums = sums(&rows, 10.0, |row| &row.kind, |kind, row| row.kind = kind);
        let found: Vec<_> = sums.iter().map(|r| (r.kind.as_str(), r.count, r.ms)).collect();
        assert_eq!(found, [("b", 1, 5.0), ("a", 2, 4.0)]);
        assert_eq!((sums[1].percent, sums[1].gflop_per_s), (40.0, 2.0));
    }

    #[test]
    fn names_of_types_are_no_modules() {
        for name in ["torch.flatten_0", "Tensor.reshape_12", "F.relu_1"] {
            assert!(is_kind(name), "{name}");
        }
        assert!(!is_kind("layer1.0.conv1") && !is_kind("features.0"));
    }
}

//! What a plan is estimated to cost: the tables of `info --cost`.

use crate::failure::Failure;
use crate::output::{Output, bytes, si, time};
use crate::profile::report::scope;
use plutino::cost::{Bound, Estimator, PlanCost, StepCost};
use plutino::{Plan, StepInfo};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// An operator, or all operators of a type or of a module.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct CostRow {
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    scope: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kernel: String,
    /// What sets the time: compute, memory, overhead, or that it was recorded.
    #[serde(skip_serializing_if = "str::is_empty")]
    bound: &'static str,
    count: usize,
    us: f64,
    flops: u64,
    /// Read and written.
    bytes: u64,
    output_bytes: usize,
    scratch_bytes: usize,
    /// Weights in the form that the kernel wants.
    persistent_bytes: usize,
}

/// What a plan is estimated to cost.
#[derive(Debug, Serialize)]
pub(crate) struct CostReport {
    /// Of a run.
    us: f64,
    threads: usize,
    isa: String,
    /// Whose figures they are; empty for built-in ones.
    cpu: String,
    peak_gflops: f64,
    operators: Vec<CostRow>,
    kinds: Vec<CostRow>,
    scopes: Vec<CostRow>,
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl CostReport {
    pub(crate) fn new(plan: &Plan, estimator: &Estimator, isa: String) -> Self {
        let PlanCost { steps, time, .. } = estimator.plan(plan);
        let rows: Vec<CostRow> =
            plan.steps().zip(&steps).map(|(info, cost)| CostRow::of(info, cost)).collect();
        let machine = estimator.machine();
        Self {
            us: micros(time),
            threads: estimator.threads(),
            isa,
            cpu: machine.cpu.clone(),
            peak_gflops: machine.peak_gflops,
            kinds: sums(&rows, |row| &row.kind, |kind, row| row.kind = kind),
            scopes: sums(&rows, |row| &row.scope, |scope, row| row.scope = scope),
            operators: rows,
        }
    }
}

impl CostRow {
    fn of(info: StepInfo, cost: &StepCost) -> Self {
        Self {
            scope: scope(&info, None),
            kind: info.location.kind,
            name: info.location.name,
            kernel: info.kernel,
            bound: cost.estimate.map_or("unknown", |estimate| estimate.bound.name()),
            count: 1,
            us: cost.estimate.map_or(0.0, |estimate| micros(estimate.time)),
            flops: cost.cost.flops,
            bytes: cost.cost.bytes,
            output_bytes: cost.output,
            scratch_bytes: cost.scratch,
            persistent_bytes: cost.persistent,
        }
    }

    /// The columns that all tables share.
    fn numbers(&self) -> [String; 6] {
        [
            format!("{:.1}", self.us),
            si(self.flops),
            bytes(self.bytes),
            bytes(self.output_bytes as u64),
            bytes(self.scratch_bytes as u64),
            bytes(self.persistent_bytes as u64),
        ]
    }
}

/// One row for each `key`, the most expensive first. Scratch memory is taken in turn: the most
/// counts.
fn sums(
    rows: &[CostRow],
    key: impl Fn(&CostRow) -> &String,
    name: impl Fn(String, &mut CostRow),
) -> Vec<CostRow> {
    let mut sums: BTreeMap<&String, CostRow> = BTreeMap::new();
    for row in rows {
        let sum = sums.entry(key(row)).or_default();
        sum.count += 1;
        sum.us += row.us;
        sum.flops = sum.flops.saturating_add(row.flops);
        sum.bytes = sum.bytes.saturating_add(row.bytes);
        sum.output_bytes = sum.output_bytes.saturating_add(row.output_bytes);
        sum.scratch_bytes = sum.scratch_bytes.max(row.scratch_bytes);
        sum.persistent_bytes = sum.persistent_bytes.saturating_add(row.persistent_bytes);
    }
    let named = sums.into_iter().map(|(key, mut sum)| {
        name(key.clone(), &mut sum);
        sum
    });
    let mut named: Vec<CostRow> = named.collect();
    named.sort_by(|a, b| b.us.total_cmp(&a.us));
    named
}

/// The module of a row, or what stands for it where names tell none.
fn module(row: &CostRow) -> &str {
    if row.scope.is_empty() { "(top level)" } else { &row.scope }
}

const NUMBERS: [&str; 6] = ["µs", "FLOP", "moved", "output", "scratch", "packed"];

pub(crate) fn print(report: &CostReport, out: &mut Output) -> Result<(), Failure> {
    writeln!(out)?;
    let operator = |row: &CostRow| {
        let names = [row.kind.clone(), row.name.clone()];
        let ends = [row.bound.to_owned(), row.kernel.clone()];
        names.into_iter().chain(row.numbers()).chain(ends).collect()
    };
    let header: Vec<&str> =
        ["type", "operator"].into_iter().chain(NUMBERS).chain(["bound", "kernel"]).collect();
    out.table(&header, report.operators.iter().map(operator).collect())?;
    let mut table = |first: &'static str, rows: &[CostRow], name: fn(&CostRow) -> &str| {
        let header: Vec<&str> = [first, "count"].into_iter().chain(NUMBERS).collect();
        let row = |row: &CostRow| {
            [name(row).to_owned(), row.count.to_string()].into_iter().chain(row.numbers()).collect()
        };
        writeln!(out)?;
        out.table(&header, rows.iter().map(row).collect())
    };
    table("type", &report.kinds, |row| &row.kind)?;
    if report.scopes.iter().any(|row| !row.scope.is_empty()) {
        table("module", &report.scopes, module)?;
    }
    let total = time(Duration::try_from_secs_f64(report.us / 1e6).unwrap_or_default());
    let CostReport { threads, isa, peak_gflops, .. } = report;
    let cpu = match report.cpu.as_str() {
        "" => "built-in figures (--machine measured for those of this one)",
        cpu => cpu,
    };
    let operators = report.operators.len();
    let is_recorded = |row: &&CostRow| row.bound == Bound::Recorded.name();
    let cpu = match report.operators.iter().filter(is_recorded).count() {
        0 => cpu.to_owned(),
        all if all == operators => "all operators as recorded".to_owned(),
        some => format!("{some} of {operators} operators as recorded, the others by {cpu}"),
    };
    Ok(writeln!(
        out,
        "\n{total} by estimate: {threads} threads, {isa}, {peak_gflops:.0} GFLOP/s each; {cpu}"
    )?)
}

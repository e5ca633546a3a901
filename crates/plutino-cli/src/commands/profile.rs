//! `plutino profile`

use crate::failure::Failure;
use crate::inputs::{self, ShapeArg};
use crate::output::{Output, progress};
use crate::session::{self, SessionArgs};
use plutino::{Plan, Profile};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Show where the time of a run goes: by operator and by operator type
///
/// Times are the medians of several runs. The row "(between steps)" is what is spent outside operators:
/// calling threads, making output tensors, timing itself.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    model: PathBuf,
    /// Shape of an input; without NAME, shapes are those of the inputs in order [default: as recorded in
    /// the file]
    #[arg(long = "shape", value_name = "[NAME=]1x3x224x224")]
    shapes: Vec<ShapeArg>,
    /// Runs before timing starts
    #[arg(long, value_name = "N", default_value_t = 3)]
    warmup: usize,
    /// Timed runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    runs: usize,
    /// Show the K slowest operators only
    #[arg(long, value_name = "K")]
    top: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    session: SessionArgs,
}

/// One row: an operator, or a type of operators.
#[derive(Debug, Clone, Serialize)]
struct Row {
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kernel: String,
    /// Number of operators.
    count: usize,
    ms: f64,
    percent: f64,
    gflop_per_s: f64,
    gbyte_per_s: f64,
}

#[derive(Serialize)]
struct Report {
    model: String,
    total_ms: f64,
    between_ms: f64,
    operators: Vec<Row>,
    kinds: Vec<Row>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let model = session::load(&args.model)?;
    let specs = inputs::specs(&args.shapes, &inputs::slots(&model))?;
    let inputs = inputs::make_up(&specs)?;
    let session = args.session.session(&model)?;
    let plan = session.plan(&specs)?;
    let bar = progress("running", (args.warmup + args.runs) as u64);
    let mut profiles = Vec::with_capacity(args.runs);
    for i in 0..args.warmup + args.runs {
        let (_, profile) = session.profile(&inputs)?;
        if i >= args.warmup {
            profiles.push(profile);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut report = Report::new(&args.model.display().to_string(), &plan, &profiles);
    if let Some(top) = args.top {
        report.operators.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        report.operators.truncate(top);
    }
    if args.json { out.json(&report) } else { print(&report, out) }
}

fn median(times: impl Iterator<Item = Duration>) -> f64 {
    crate::timing::Timing::of(times.collect()).median.as_secs_f64() * 1e3
}

impl Report {
    fn new(model: &str, plan: &Plan, profiles: &[Profile]) -> Self {
        let total_ms = median(profiles.iter().map(|p| p.total));
        let between_ms = median(profiles.iter().map(Profile::between));
        // The parts add up to the whole that percentages refer to.
        let mut work = Vec::new();
        for (i, step) in plan.steps().enumerate() {
            let times = profiles.iter().filter_map(|p| p.steps.get(i)).map(|s| s.duration);
            work.push((step, median(times)));
        }
        let whole = between_ms + work.iter().map(|(_, ms)| ms).sum::<f64>();
        let mut operators = Vec::new();
        let mut kinds: BTreeMap<String, (usize, f64, f64, f64)> = BTreeMap::new();
        for (step, ms) in work {
            let (flops, bytes) = (step.cost.flops as f64, step.cost.bytes as f64);
            let kind = kinds.entry(step.location.kind.clone()).or_default();
            *kind = (kind.0 + 1, kind.1 + ms, kind.2 + flops, kind.3 + bytes);
            let mut row = Row::new(step.location.kind, 1, (ms, flops, bytes), whole);
            row.name = step.location.name;
            row.kernel = step.kernel;
            operators.push(row);
        }
        let rows = kinds.into_iter();
        let mut kinds: Vec<Row> = rows
            .map(|(kind, (n, ms, flops, bytes))| Row::new(kind, n, (ms, flops, bytes), whole))
            .collect();
        kinds.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        Self { model: model.to_owned(), total_ms, between_ms, operators, kinds }
    }
}

impl Row {
    fn new(kind: String, count: usize, (ms, flops, bytes): (f64, f64, f64), whole: f64) -> Self {
        // 1e9 in a second is 1e6 in a millisecond.
        let per_s = |amount: f64| if ms > 0.0 { amount / ms / 1e6 } else { 0.0 };
        let percent = if whole > 0.0 { ms / whole * 100.0 } else { 0.0 };
        let (gflop_per_s, gbyte_per_s) = (per_s(flops), per_s(bytes));
        Self {
            kind,
            name: String::new(),
            kernel: String::new(),
            count,
            ms,
            percent,
            gflop_per_s,
            gbyte_per_s,
        }
    }

    /// The columns that both tables share.
    fn numbers(&self) -> [String; 4] {
        let rate = |x: f64| if x > 0.0 { format!("{x:.1}") } else { String::new() };
        [
            format!("{:.3}", self.ms),
            format!("{:.1}", self.percent),
            rate(self.gflop_per_s),
            rate(self.gbyte_per_s),
        ]
    }
}

fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let whole = report.kinds.iter().map(|row| row.ms).sum::<f64>() + report.between_ms;
    let between = Row::new("(between steps)".into(), 0, (report.between_ms, 0.0, 0.0), whole);
    let operator = |row: &Row| {
        [&row.kind, &row.name]
            .into_iter()
            .cloned()
            .chain(row.numbers())
            .chain([row.kernel.clone()])
            .collect()
    };
    let kind = |row: &Row| {
        let count = if row.count > 0 { row.count.to_string() } else { String::new() };
        [row.kind.clone(), count].into_iter().chain(row.numbers()).collect()
    };
    let with_between = |rows: &[Row], columns: &dyn Fn(&Row) -> Vec<String>| {
        rows.iter().chain([&between]).map(columns).collect::<Vec<_>>()
    };
    let operators = with_between(&report.operators, &operator);
    out.table(&["type", "operator", "ms", "%", "GFLOP/s", "GB/s", "kernel"], operators)?;
    writeln!(out)?;
    let kinds = with_between(&report.kinds, &kind);
    out.table(&["type", "count", "ms", "%", "GFLOP/s", "GB/s"], kinds)?;
    Ok(writeln!(out, "\n{}: {:.3} ms", report.model, report.total_ms)?)
}

//! `plutino profile`

use crate::failure::Failure;
use crate::inputs::{self, FileArgs, ShapeArg};
use crate::output::{Output, millis, progress};
use crate::session::{self, SessionArgs};
use crate::timing::as_millis;
use plutino::{Plan, Profile, Tensor};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Show where the time of a run goes: by operator and by operator type
///
/// Times are means over the faster half of the runs, so that rows add up to the time of a run. The
/// row "(between steps)" is what is spent outside operators: calling threads, making output
/// tensors, timing itself.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    model: PathBuf,
    /// Shape of an input; without NAME, shapes are those of the inputs in order [default: as
    /// recorded in the file, and 1 for what it leaves open]
    #[arg(long = "shape", value_name = "[NAME=]1x3x224x224")]
    shapes: Vec<ShapeArg>,
    #[command(flatten)]
    files: FileArgs,
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
    /// Binding shapes, passes, packing weights, memory plan.
    #[serde(serialize_with = "as_millis", rename = "plan_ms")]
    plan: Duration,
    /// The first run after that, which touches memory for the first time.
    #[serde(serialize_with = "as_millis", rename = "first_ms")]
    first: Duration,
    /// All timed runs, and those of them whose times are shown: the faster half.
    runs: usize,
    shown: usize,
    /// Of the timed runs.
    #[serde(serialize_with = "as_millis", rename = "slowest_ms")]
    slowest: Duration,
    /// What the rows add up to.
    total_ms: f64,
    between_ms: f64,
    operators: Vec<Row>,
    kinds: Vec<Row>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let model = session::load(&args.model)?;
    let inputs = args.files.one(&inputs::slots(&model), &args.shapes)?;
    let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
    let session = args.session.session(&model)?;
    let start = Instant::now();
    let plan = session.plan(&specs)?;
    let plan_time = start.elapsed();
    let bar = progress("running", (args.warmup + args.runs) as u64);
    let mut profiles = Vec::with_capacity(args.runs);
    let mut first = Duration::ZERO;
    for i in 0..args.warmup + args.runs {
        let (_, profile) = session.profile(&inputs)?;
        if i == 0 {
            first = profile.total;
        }
        if i >= args.warmup {
            profiles.push(profile);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut report = Report::new(&args.model.display().to_string(), &plan, profiles);
    (report.plan, report.first) = (plan_time, first);
    if let Some(top) = args.top {
        report.operators.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        report.operators.truncate(top);
    }
    if args.json { out.json(&report) } else { print(&report, out) }
}

/// The faster half of the runs: those that nothing else on the machine held up. Of each of their
/// parts, the mean is shown, so that parts add up to the whole, as medians do not.
pub(super) fn faster_half(mut profiles: Vec<Profile>) -> Vec<Profile> {
    profiles.sort_by_key(|profile| profile.total);
    profiles.truncate(profiles.len().div_ceil(2));
    profiles
}

/// The mean, in milliseconds.
pub(super) fn mean(times: impl ExactSizeIterator<Item = Duration>) -> f64 {
    let runs = times.len().max(1) as f64;
    times.map(|time| time.as_secs_f64()).sum::<f64>() * 1e3 / runs
}

impl Report {
    fn new(model: &str, plan: &Plan, profiles: Vec<Profile>) -> Self {
        let runs = profiles.len();
        let slowest = profiles.iter().map(|p| p.total).max().unwrap_or_default();
        let profiles = faster_half(profiles);
        let whole = mean(profiles.iter().map(|p| p.total));
        let between_ms = mean(profiles.iter().map(Profile::between));
        let step = |i: usize, p: &Profile| p.steps.get(i).map_or(Duration::ZERO, |s| s.duration);
        let work = plan.steps().enumerate();
        let work = work.map(|(i, info)| (info, mean(profiles.iter().map(|p| step(i, p)))));
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
        Self {
            model: model.to_owned(),
            plan: Duration::ZERO,
            first: Duration::ZERO,
            runs,
            shown: profiles.len(),
            slowest,
            total_ms: whole,
            between_ms,
            operators,
            kinds,
        }
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
    let whole = report.total_ms;
    let extra = |what: &str, ms: f64| Row::new(what.into(), 0, (ms, 0.0, 0.0), whole);
    let between = extra("(between steps)", report.between_ms);
    // With --top, the rest is a row as well.
    let shown: f64 = report.operators.iter().map(|row| row.ms).sum();
    let all: f64 = report.kinds.iter().map(|row| row.ms).sum();
    let hidden = report.kinds.iter().map(|row| row.count).sum::<usize>() - report.operators.len();
    let others = (hidden > 0).then(|| extra(&format!("({hidden} others)"), all - shown));
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
    let total = extra("(run)", whole);
    let ends = [&between, &total];
    let rows = report.operators.iter().chain(&others).chain(ends);
    let operators = rows.map(operator).collect();
    out.table(&["type", "operator", "ms", "%", "GFLOP/s", "GB/s", "kernel"], operators)?;
    writeln!(out)?;
    let kinds = report.kinds.iter().chain(ends).map(kind).collect();
    out.table(&["type", "count", "ms", "%", "GFLOP/s", "GB/s"], kinds)?;
    let Report { model, plan, first, runs, shown, slowest, .. } = report;
    Ok(writeln!(
        out,
        "\n{model}: {whole:.3} ms, the mean of the faster {shown} of {runs} runs; slowest {} ms, first {} ms, \
         planning {} ms",
        millis(*slowest),
        millis(*first),
        millis(*plan)
    )?)
}

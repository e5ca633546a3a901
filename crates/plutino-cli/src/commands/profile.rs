//! `plutino profile`

use crate::failure::Failure;
use crate::inputs::{self, FileArgs, Need, Open, ShapeArg};
use crate::memory_map;
use crate::names;
use crate::output::{Output, progress, warn_all, write_file};
use crate::profile::against::{Against, Change};
use crate::profile::report::{Report, Row, faster_half, in_millis};
use crate::profile::trace::Trace;
use crate::request::{Prepared, RequestArgs};
use crate::session::{SessionArgs, parse_some, parse_whole};
use plutino::cost::Recorded;
use plutino::{Model, Plan, Session, SessionError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Show where the time of a run goes: by operator, by operator type and by module
///
/// Times are means over the faster half of the runs, so that rows add up to the time of a run. The
/// row "(between steps)" is what is spent outside operators: calling threads, making output
/// tensors, timing itself. Modules are those of PyTorch, as far as the names of operators tell.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    model: PathBuf,
    /// Shape of an input; without NAME, shapes are those of the inputs in order [default: as
    /// recorded in the file, and 1 for what it leaves open]
    #[arg(long = "shape", value_name = "[NAME=]1x3x224x224")]
    shapes: Vec<ShapeArg>,
    /// Runs before timing starts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_whole)]
    warmup: usize,
    /// Timed runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = parse_some)]
    runs: usize,
    /// Show the K slowest operators only
    #[arg(long, value_name = "K", value_parser = parse_whole)]
    top: Option<usize>,
    /// Tell modules apart by the first N names only: with 1, layer1.0.conv1 counts for layer1
    #[arg(long, value_name = "N", value_parser = parse_some)]
    depth: Option<usize>,
    /// Write a trace of the fastest run, for ui.perfetto.dev or chrome://tracing: the steps, what
    /// each thread computed and when it waited, and how much of the arena is in use
    #[arg(long, value_name = "OUT.json")]
    pub(super) trace: Option<PathBuf>,
    /// Show what each step takes of the arena, and which step frees it
    #[arg(long)]
    allocations: bool,
    /// Show what changed since an older profile, which --json printed
    #[arg(long, value_name = "OLD.json")]
    against: Option<PathBuf>,
    /// Note in this file what each operator took, for --costs; what it holds of other operators,
    /// instruction sets and numbers of threads stays
    #[arg(long, value_name = "COSTS.json")]
    pub(super) record: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print the operators as CSV; times are milliseconds
    #[arg(long, conflicts_with_all = ["json", "against", "allocations"])]
    csv: bool,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let model = args.session.load(&args.model)?;
    let session = args.session.session(&model)?;
    let start = Instant::now();
    let (run, plan) = prepare(args, &model, &session)?;
    let plan_time = start.elapsed();
    warn_all(names::misplaced(&model, &plan));
    let request = run.request();
    let bar = progress("running", (args.warmup + args.runs) as u64);
    let mut profiles = Vec::new();
    let mut first_ms = 0.0;
    for i in 0..args.warmup + args.runs {
        let (_, profile) = session.profile_request(&request)?;
        if i == 0 {
            first_ms = in_millis(profile.total);
        }
        if i >= args.warmup {
            profiles.push(profile);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let slowest_ms = profiles.iter().map(|p| in_millis(p.total)).fold(0.0, f64::max);
    let profiles = faster_half(profiles);
    if let Some(file) = &args.record {
        let mut recorded = match file.exists() {
            true => Recorded::read(file)?,
            false => Recorded::default(),
        };
        recorded.record(&profiles, session.isa(), session.threads());
        recorded.write(file)?;
    }
    let mut report = Report {
        model: args.model.display().to_string(),
        threads: session.threads(),
        isa: session.isa().to_string(),
        plan_ms: in_millis(plan_time),
        first_ms,
        runs: args.runs,
        slowest_ms,
        memory: plan.memory().into(),
        ..Report::new(&plan, &profiles, args.depth)
    };
    report.allocations = args.allocations.then(|| memory_map::allocations(&plan));
    if let Some(path) = &args.against {
        report.against = Some(Against::read(path, &report)?);
    }
    if let (Some(path), Some(fastest)) = (&args.trace, profiles.first()) {
        let about = serde_json::json!({
            "model": report.model, "threads": report.threads, "isa": report.isa,
        });
        write_trace(path, &Trace::of(fastest, about))?;
    }
    if let Some(top) = args.top {
        report.operators.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        report.operators.truncate(top);
        if let Some(against) = &mut report.against {
            against.operators.truncate(top);
        }
    }
    match (args.json, args.csv) {
        (true, _) => out.json(&report),
        (_, true) => print_csv(&report, out),
        _ => print(&report, out),
    }
}

fn read<T>(args: &Args, read: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    args.session.reading(read)
}

/// What is run, and its plan. Inputs for which there are no files are made up where they are
/// needed.
fn prepare(
    args: &Args,
    model: &Model,
    session: &Session,
) -> Result<(Prepared, Arc<Plan>), Failure> {
    let slots = inputs::slots(model);
    if args.request.is_plain() {
        let run = Prepared::plain(model, read(args, || args.files.one(&slots, &args.shapes))?);
        let plan = session.plan_request(&run.request());
        let plan = plan.map_err(|error| run.refused(error, model))?;
        return Ok((run, plan));
    }
    if !args.files.is_empty() && !args.shapes.is_empty() {
        return Err(Failure::usage("--shape is for inputs that are made up: not with -i"));
    }
    let mut runs = read(args, || args.request.prepare(model, &args.files, Need::All))?;
    let (Some(mut run), true) = (runs.pop(), runs.is_empty()) else {
        return Err(Failure::usage("the model takes one picture at a time: give one"));
    };
    if !args.request.feeds_operands() && args.files.is_empty() {
        run.make_up(&slots, &args.shapes)?; // as for a plain run
    }
    match session.plan_request(&run.request()) {
        Err(SessionError::NotFed { missing, .. }) if args.files.is_empty() => {
            let needed: Vec<_> =
                slots.into_iter().filter(|slot| missing.contains(&slot.operand)).collect();
            run.make_up(&needed, &args.shapes)?;
            let plan = session.plan_request(&run.request());
            let plan = plan.map_err(|error| run.refused(error, model))?;
            Ok((run, plan))
        }
        Err(error) => Err(run.refused(error, model)),
        Ok(plan) => Ok((run, plan)),
    }
}

impl Prepared {
    /// Feeds these inputs with made-up numbers.
    fn make_up(&mut self, slots: &[inputs::Slot], shapes: &[ShapeArg]) -> Result<(), Failure> {
        let tensors = inputs::make_up(&inputs::specs(shapes, slots, Open::One)?)?;
        let names = slots.iter().map(|slot| slot.operand.clone());
        self.feeds.extend(names.zip(tensors));
        Ok(())
    }
}

fn write_trace(path: &Path, trace: &Trace) -> Result<(), Failure> {
    let text = serde_json::to_vec(trace)
        .map_err(|e| Failure::usage(format!("cannot write '{}': {e}", path.display())))?;
    write_file(path, &text)
}

/// The unit of all times of a report: that of the time of a run.
#[derive(Debug, Clone, Copy)]
struct Unit {
    name: &'static str,
    in_ms: f64,
}

impl Unit {
    fn of(report: &Report) -> Self {
        match report.total_ms {
            ms if ms < 1.0 => Self { name: "µs", in_ms: 1e-3 },
            _ => Self { name: "ms", in_ms: 1.0 },
        }
    }

    fn show(self, ms: f64) -> String {
        format!("{:.3}", ms / self.in_ms)
    }

    /// With a sign.
    fn difference(self, ms: f64) -> String {
        format!("{:+.3}", ms / self.in_ms)
    }
}

impl Row {
    /// The columns that all tables share.
    fn numbers(&self, unit: Unit) -> [String; 4] {
        let rate = |x: f64| if x > 0.0 { format!("{x:.1}") } else { String::new() };
        [
            unit.show(self.ms),
            format!("{:.1}", self.percent),
            rate(self.gflop_per_s),
            rate(self.gbyte_per_s),
        ]
    }
}

fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let (whole, unit) = (report.total_ms, Unit::of(report));
    let between = Row::extra("(between steps)", report.between_ms, whole);
    let total = Row::extra("(run)", whole, whole);
    // With --top, the rest is a row as well.
    let shown: f64 = report.operators.iter().map(|row| row.ms).sum();
    let all: f64 = report.kinds.iter().map(|row| row.ms).sum();
    let hidden = report.kinds.iter().map(|row| row.count).sum::<usize>() - report.operators.len();
    let others = Row::extra(&format!("({hidden} others)"), all - shown, whole);
    let others = (hidden > 0).then_some(&others);
    let ends = [&between, &total];
    let operator = |row: &Row| {
        let names = [row.kind.clone(), row.name.clone()];
        names.into_iter().chain(row.numbers(unit)).chain([row.kernel.clone()]).collect()
    };
    let rows = report.operators.iter().chain(others).chain(ends).map(operator).collect();
    out.table(&["type", "operator", unit.name, "%", "GFLOP/s", "GB/s", "kernel"], rows)?;
    let sums = |rows: &[Row], name: fn(&Row) -> &str| {
        let row = |row: &Row| {
            let count = if row.count > 0 { row.count.to_string() } else { String::new() };
            let name = if row.count > 0 { name(row) } else { &row.kind };
            [name.to_owned(), count].into_iter().chain(row.numbers(unit)).collect()
        };
        rows.iter().chain(ends).map(row).collect()
    };
    writeln!(out)?;
    let header = |first| [first, "count", unit.name, "%", "GFLOP/s", "GB/s"];
    out.table(&header("type"), sums(&report.kinds, |row| &row.kind))?;
    if report.scopes.iter().any(|row| !row.scope.is_empty()) {
        writeln!(out)?;
        out.table(&header("module"), sums(&report.scopes, module))?;
    }
    if !report.frames.is_empty() {
        writeln!(out)?;
        let row = |row: &Row| {
            let names = [row.name.clone(), row.kind.clone(), row.count.to_string()];
            names.into_iter().chain(row.numbers(unit)).collect()
        };
        let header = ["control flow", "body", "runs", unit.name, "%", "GFLOP/s", "GB/s"];
        out.table(&header, report.frames.iter().map(row).collect())?;
    }
    if let Some(allocations) = &report.allocations {
        writeln!(out)?;
        memory_map::print_allocations(allocations, out)?;
    }
    if let Some(against) = &report.against {
        print_changes(against, unit, out)?;
    }
    writeln!(out, "\nmemory {}", report.memory.sum())?;
    let Report { model, plan_ms, first_ms, runs, shown, slowest_ms, .. } = report;
    let time = |ms: f64| crate::output::time(std::time::Duration::from_secs_f64(ms / 1e3));
    Ok(writeln!(
        out,
        "\n{model}: {} {}, the mean of the faster {shown} of {runs} runs; slowest {}, first {}, planning {}",
        unit.show(whole),
        unit.name,
        time(*slowest_ms),
        time(*first_ms),
        time(*plan_ms)
    )?)
}

/// The module of a row, or what stands for it where names tell none.
fn module(row: &Row) -> &str {
    if row.scope.is_empty() { "(top level)" } else { &row.scope }
}

fn print_changes(against: &Against, unit: Unit, out: &mut Output) -> Result<(), Failure> {
    let number = |ms: Option<f64>| ms.map_or_else(|| "-".into(), |ms| unit.show(ms));
    let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |r| format!("{r:.2}"));
    let change = |c: &Change| {
        let kernels = c.kernels.as_ref().map(|(old, new)| format!("{old} -> {new}"));
        let (difference, kernels) = (unit.difference(c.difference_ms), kernels.unwrap_or_default());
        let times = [number(c.old_ms), number(c.ms), difference, ratio(c.ratio)];
        (times, kernels)
    };
    let before = format!("{} before", unit.name);
    writeln!(out, "\nagainst {} ({}):", against.file, against.model)?;
    let rows = against.operators.iter().map(|c| {
        let (times, kernels) = change(c);
        [c.kind.clone(), c.name.clone()].into_iter().chain(times).chain([kernels]).collect()
    });
    let header = ["type", "operator", &before, "now", "difference", "ratio", "kernel"];
    out.table(&header, rows.collect())?;
    writeln!(out)?;
    let whole = Change {
        kind: "(run)".into(),
        name: String::new(),
        old_ms: Some(against.old_total_ms),
        ms: Some(against.total_ms),
        difference_ms: against.total_ms - against.old_total_ms,
        ratio: against.ratio,
        kernels: None,
    };
    let rows = against.kinds.iter().chain([&whole]);
    let rows = rows.map(|c| [c.kind.clone()].into_iter().chain(change(c).0).collect());
    out.table(&["type", &before, "now", "difference", "ratio"], rows.collect())
}

fn print_csv(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let between = Row::extra("(between steps)", report.between_ms, report.total_ms);
    let rows = report.operators.iter().chain([&between]).map(|row| {
        let numbers = [row.ms, row.percent, row.flops, row.bytes, row.gflop_per_s, row.gbyte_per_s];
        let names = [&row.kind, &row.name, &row.scope, &row.kernel, &row.shapes];
        names.into_iter().cloned().chain(numbers.map(|n| n.to_string())).collect()
    });
    let header = [
        "type",
        "operator",
        "module",
        "kernel",
        "shapes",
        "ms",
        "percent",
        "flops",
        "bytes",
        "gflop_per_s",
        "gbyte_per_s",
    ];
    out.csv(&header, rows.collect())
}

//! `plutino bench`

use crate::failure::Failure;
use crate::inputs::{self, FileArgs, ShapeArg};
use crate::memory_map::Totals;
use crate::names;
use crate::output::{Output, bytes, millis, progress, warn_all};
use crate::session::{SessionArgs, parse_some, parse_whole};
use crate::system;
use crate::timing::{Timing, as_millis};
use plutino::Tensor;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time a model on made-up inputs, or on those given with -i
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
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = parse_some)]
    runs: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

/// What is measured, in the order in which it is printed.
#[derive(Serialize)]
struct Report {
    model: String,
    inputs: Vec<String>,
    threads: usize,
    isa: String,
    /// Reading and decoding the model.
    #[serde(serialize_with = "as_millis", rename = "load_ms")]
    load: Duration,
    /// Binding shapes, passes, packing weights, memory plan.
    #[serde(serialize_with = "as_millis", rename = "plan_ms")]
    plan: Duration,
    /// The first run after that, which touches memory for the first time.
    #[serde(serialize_with = "as_millis", rename = "first_ms")]
    first: Duration,
    #[serde(flatten)]
    timing: Timing,
    /// What the model takes, as known before the first run.
    memory: Totals,
    /// Of the whole process, where the system tells.
    peak_memory_bytes: Option<u64>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let start = Instant::now();
    let model = args.session.load(&args.model)?;
    let load = start.elapsed();
    let slots = inputs::slots(&model);
    let inputs = args.session.reading(|| args.files.one(&slots, &args.shapes))?;
    let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
    let session = args.session.session(&model)?;
    let start = Instant::now();
    let plan = session.plan(&specs);
    let plan_time = start.elapsed();
    let plan = plan.map_err(|error| inputs::refused_inputs(error, &model, &specs))?;
    warn_all(names::misplaced(&model, &plan));

    let bar = progress("running", (args.warmup + args.runs) as u64);
    let mut times = Vec::new();
    let mut outputs = Vec::new();
    let mut first = Duration::ZERO;
    for i in 0..args.warmup + args.runs {
        let start = Instant::now();
        session.run_into(&inputs, &mut outputs)?;
        let time = start.elapsed();
        if i == 0 {
            first = time;
        }
        if i >= args.warmup {
            times.push(time);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();

    let report = Report {
        model: args.model.display().to_string(),
        inputs: specs.iter().map(ToString::to_string).collect(),
        threads: session.threads(),
        isa: session.isa().to_string(),
        load,
        plan: plan_time,
        first,
        timing: Timing::of(times),
        memory: plan.memory().into(),
        peak_memory_bytes: system::peak_memory(),
    };
    if args.json { out.json(&report) } else { print(&report, out) }
}

fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let Report { model, inputs, threads, isa, load, plan, first, timing, .. } = report;
    writeln!(out, "{model} on {}, {isa}, threads: {threads}", inputs.join(" "))?;
    writeln!(out, "load     {:>9} ms", millis(*load))?;
    writeln!(out, "plan     {:>9} ms", millis(*plan))?;
    writeln!(out, "first    {:>9} ms", millis(*first))?;
    let Timing { runs, min, median, p90, p99, .. } = timing;
    for (name, time) in [("min", min), ("median", median), ("p90", p90), ("p99", p99)] {
        writeln!(out, "{name:<8} {:>9} ms", millis(*time))?;
    }
    writeln!(out, "runs     {runs:>9}")?;
    writeln!(out, "memory   {}", report.memory.sum())?;
    if let Some(peak) = report.peak_memory_bytes {
        writeln!(out, "peak     {:>12}  (whole process)", bytes(peak))?;
    }
    Ok(())
}

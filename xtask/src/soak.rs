//! `cargo xtask soak`: whether memory, threads or descriptors grow while a program loads, plans,
//! runs, cancels and fails for a long time.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use plutino_attack::mutant::Nursery;
use plutino_attack::trial::Bounds;
use plutino_tests::shared::{Crowd, Runs};

use crate::resources;

/// Load, plan, run, cancel and fail for a long time; report what grows
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Instead: so many runs for each of 8 threads that share a session, on 1 and on 2 threads.
    #[arg(long)]
    shared: Option<usize>,
}

/// Fixtures with the rows of their inputs that are run on.
const FIXTURES: [(&str, usize); 4] =
    [("digits", 2), ("bilstm", 1), ("squeezenet1_1", 1), ("mobilenet_v3_small", 1)];

/// Threads that share a session.
const CALLERS: usize = 8;

/// Growth of memory that is a fault, in MiB and in parts of what there is: allocators keep some.
const GROWTH: (f64, f64) = (4.0, 0.02);

/// What the process has between two rounds, when no session is alive.
#[derive(Debug, Clone, Copy)]
struct Sample {
    minutes: f64,
    mib: f64,
    threads: f64,
    descriptors: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(runs) = args.shared {
        return shared(runs);
    }
    let (start, nursery) = (Instant::now(), Nursery::new()?);
    let end = start + Duration::from_secs_f64(args.minutes * 60.0);
    let (mut samples, mut runs, mut mutants, mut shown) =
        (Vec::new(), Runs::default(), 0, Instant::now());
    while Instant::now() < end || samples.len() < 8 {
        runs.add(round()?);
        // The same each time: what grows is not that others are larger.
        for number in 0..500 {
            let made = nursery.mutant(0, number).attempt(Bounds::default());
            made.map_err(|fault| anyhow!("mutant {number}: {fault}"))?;
            mutants += 1;
        }
        samples.push(sample(start)?);
        if shown.elapsed() > Duration::from_secs(60) {
            shown = Instant::now();
            println!("{:?}", samples.last());
        }
    }
    report(&samples);
    println!(
        "{} runs, {} of them cancelled; {mutants} mutants",
        runs.whole + runs.cancelled,
        runs.cancelled
    );
    judge(&samples)
}

/// Everything anew: models, sessions, plans, runs.
fn round() -> Result<Runs> {
    let mut runs = Runs::default();
    for (name, rows) in FIXTURES {
        let crowd = Crowd::new(name, rows, 2).map_err(|what| anyhow!(what))?;
        for threads in [1, 2] {
            let session = crowd.session(threads).map_err(|what| anyhow!(what))?;
            runs.add(crowd.runs(&session, CALLERS, 4).map_err(|what| anyhow!(what))?);
        }
    }
    Ok(runs)
}

fn sample(start: Instant) -> Result<Sample> {
    let status = resources::status(&["VmRSS", "Threads"])?;
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    let (mib, threads) = (status[0], status[1]);
    Ok(Sample { minutes, mib, threads, descriptors: resources::descriptors()? })
}

/// The mean memory of some samples.
fn mean(samples: &[Sample]) -> f64 {
    samples.iter().map(|s| s.mib).sum::<f64>() / samples.len().max(1) as f64
}

/// The second quarter of the time against the last one: the first fills caches.
fn judge(samples: &[Sample]) -> Result<()> {
    let quarter = samples.len() / 4;
    let (early, late) = (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
    let (before, after) = (mean(early), mean(late));
    println!("memory {before:.1} MiB in the second quarter, {after:.1} MiB in the last one");
    ensure!(after - before < GROWTH.0 + GROWTH.1 * before, "memory grows");
    let most = |of: &[Sample], what: fn(&Sample) -> f64| of.iter().map(what).fold(0.0, f64::max);
    for (name, what) in [
        ("threads", (|s| s.threads) as fn(&Sample) -> f64),
        ("descriptors", |s| s.descriptors as f64),
    ] {
        let (before, after) = (most(early, what), most(late, what));
        println!("{name}: {before} before, {after} after");
        if after > before {
            bail!("{name} grow");
        }
    }
    Ok(())
}

/// Some ten rows.
fn report(samples: &[Sample]) {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "minutes",
        "rounds",
        "memory",
        "threads",
        "descriptors",
    ]);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let step = samples.len().div_ceil(10).max(1);
    let last = samples.len().saturating_sub(1);
    for (at, s) in samples.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last) {
        table.add_row([
            format!("{:.1}", s.minutes),
            (at + 1).to_string(),
            format!("{:.1} MiB", s.mib),
            s.threads.to_string(),
            s.descriptors.to_string(),
        ]);
    }
    println!("{table}");
}

fn shared(runs: usize) -> Result<()> {
    let crowd = Crowd::new("digits", 2, 4).map_err(|what| anyhow!(what))?;
    for threads in [1, 2] {
        let start = Instant::now();
        let session = crowd.session(threads).map_err(|what| anyhow!(what))?;
        let done = crowd.runs(&session, CALLERS, runs).map_err(|what| anyhow!(what))?;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{threads} threads, {CALLERS} callers, {runs} runs each, {seconds:.0} s: {} whole with the bits of runs alone, {} cancelled",
            done.whole, done.cancelled
        );
    }
    Ok(())
}

//! One model at one number of threads, on all engines in turn.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use plutino::Precision;

use super::Setup;
use super::engine::Engine;
use super::prepare::Case;
use super::process::Worker;
use super::protocol::{Command, Reply};
use super::report::{CaseReport, EngineReport};
use super::stats::median;

/// An error beyond this is no rounding of f32, or of bf16 (2^-8 for each of some hundred layers, as
/// independent errors grow): what the engine computes is something else.
fn wrong(precision: Precision) -> f64 {
    if precision == Precision::Medium { 4e-2 } else { 1e-3 }
}

/// After a slice, until the threads of its engine sleep: some spin for a while when a run ends.
const PAUSE: Duration = Duration::from_millis(50);

/// Loads and times every engine; those that fail are in the report with their reason.
pub(super) fn measure(setup: &Setup, case: &Case, threads: usize) -> CaseReport {
    let mut contenders: Vec<_> =
        setup.engines_of(case).map(|engine| Contender::new(setup, case, engine, threads)).collect();
    for load in 0..setup.loads {
        in_turn(&mut contenders, load, Contender::load);
    }
    for round in 0..setup.rounds {
        in_turn(&mut contenders, round, Contender::time);
    }
    let engines = contenders.into_iter().map(|c| c.report).collect();
    CaseReport::new(&case.name, case.batch, threads, engines)
}

/// One step of every contender that has not failed; each round another one begins.
fn in_turn<'a>(
    contenders: &mut [Contender<'a>],
    round: usize,
    step: fn(&mut Contender<'a>) -> anyhow::Result<()>,
) {
    let first = round % contenders.len().max(1);
    let (before, from) = contenders.split_at_mut(first);
    for contender in from.iter_mut().chain(before) {
        if contender.report.failed.is_none()
            && let Err(error) = step(contender)
        {
            contender.worker = None;
            // On one line, and without our paths: it stands in tables that are published.
            let cache = format!("{}/", contender.setup.cache.display());
            let words = format!("{error:#}").replace(&cache, "");
            let words: Vec<_> = words.split_whitespace().collect();
            contender.report.failed = Some(words.join(" "));
        }
    }
}

/// An engine with its process and what has been found out so far.
struct Contender<'a> {
    setup: &'a Setup,
    case: &'a Case,
    threads: usize,
    engine: Engine,
    worker: Option<Worker>,
    report: EngineReport,
}

impl<'a> Contender<'a> {
    fn new(setup: &'a Setup, case: &'a Case, engine: Engine, threads: usize) -> Self {
        let mut report = EngineReport::new(engine);
        report.failed = case.failed.get(engine.format()).cloned();
        Self { setup, case, threads, engine, worker: None, report }
    }

    /// Ends the process and starts another one: it loads the model, runs it a few times, and once
    /// the outputs are compared.
    fn load(&mut self) -> anyhow::Result<()> {
        self.worker = None;
        let logs = self.setup.cache.join("logs");
        fs::create_dir_all(&logs)?;
        let log = logs.join(format!("{}-{}.log", self.case.name, self.engine.name()));
        let process = self.engine.worker(self.setup, self.case, self.threads);
        let worker = self.worker.insert(Worker::start(process, &log)?);
        match worker.reply()? {
            Reply::Ready { version, harness } => {
                self.report.version = Some(version);
                self.report.harness_bytes.extend(harness);
            }
            other => bail!("the worker began with {other:?}"),
        }
        match worker.ask(&Command::Load)? {
            Reply::Loaded { ms } => self.report.load_ms.push(ms),
            other => bail!("the worker answered loading with {other:?}"),
        }
        match worker.ask(&Command::Run { seconds: 0.0 })? {
            Reply::Ran { peak, .. } => self.report.peak_bytes.extend(peak),
            other => bail!("the worker answered running with {other:?}"),
        }
        if self.report.error.is_none() {
            match worker.ask(&Command::Check)? {
                Reply::Checked { error } => self.report.error = Some(error),
                other => bail!("the worker answered checking with {other:?}"),
            }
        }
        match self.report.error {
            Some(error) if error > wrong(self.setup.precision) => {
                bail!("wrong outputs: error {error:.1e}")
            }
            _ => Ok(()),
        }
    }

    /// One slice of one round.
    fn time(&mut self) -> anyhow::Result<()> {
        let Some(worker) = &mut self.worker else { bail!("no process was started") };
        let found = worker.ask(&Command::Run { seconds: self.setup.slice })?;
        let Reply::Ran { ms, .. } = found else {
            bail!("the worker answered running with {found:?}")
        };
        let Some(middle) = median(&ms) else { bail!("the worker timed no run") };
        self.report.runs += ms.len();
        self.report.round_ms.push(middle);
        thread::sleep(PAUSE);
        Ok(())
    }
}

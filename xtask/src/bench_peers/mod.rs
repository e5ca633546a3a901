//! `cargo xtask bench-peers`: this engine beside others, on the same models with the same weights.
//!
//! The machine's speed may double or halve within minutes, so only neighbours in time are compared:
//! every engine lives in a process of its own, all of them take turns in short slices, and what
//! counts are the ratios within each round. `docs/benchmarks/README.md` describes the method.

mod engine;
mod machine;
mod measure;
mod ours;
mod prepare;
mod process;
mod protocol;
mod report;
mod set;
mod stats;
mod table;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use plutino::Precision;

use crate::{project_root, python};
use engine::Engine;
use machine::Machine;
use prepare::Case;
use report::Report;
use set::Set;

pub(crate) use ours::{WorkerArgs, work};

/// Compare speed, memory and accuracy with other engines.
///
/// Needs python3: a virtual environment with PyTorch, pnnx and the engines is made in .venv at the
/// project's root, models are exported to .cache/peers. Set PLUTINO_PYTHON to an interpreter that
/// has the packages of xtask/python/requirements.txt and xtask/python/peers/requirements.txt (and,
/// for the wider set, of xtask/python/peers/requirements-wider.txt) already.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The models to measure.
    #[arg(long, value_enum, default_value_t = Set::Sixteen)]
    set: Set,
    /// Only these models of the set, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    models: Vec<String>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = positive)]
    threads: Vec<usize>,
    /// Rounds in which every engine has one slice.
    #[arg(long, default_value = "20", value_parser = positive)]
    rounds: usize,
    /// Length of a slice; three runs are made where that takes longer.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    slice: f64,
    /// Fresh processes of each engine, for the time to load and the memory.
    #[arg(long, default_value = "3", value_parser = positive)]
    loads: usize,
    /// Only these engines, separated by commas [default: plutino and its peers; PyTorch where it
    /// may lead].
    #[arg(long, value_delimiter = ',')]
    engines: Vec<Engine>,
    /// How accurate plutino's products are at least; "medium" measures it beside engines that
    /// compute in bf16.
    #[arg(long, value_name = "highest|high|medium", default_value = "highest", value_parser = precision)]
    precision: Precision,
    /// Let plutino map the weights into memory in place of reading them.
    #[arg(long)]
    mmap: bool,
    /// Write everything that was measured to this file, after each model.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the summary to this file too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

fn positive(word: &str) -> Result<usize, String> {
    word.parse().ok().filter(|&n| n > 0).ok_or_else(|| "must be a positive number".to_owned())
}

fn seconds(word: &str) -> Result<f64, String> {
    let seconds = word.parse().ok().filter(|s: &f64| (0.0..=3600.0).contains(s));
    seconds.ok_or_else(|| "must be a number of seconds".to_owned())
}

fn precision(word: &str) -> Result<Precision, String> {
    Precision::named(word).ok_or_else(|| "must be highest, high or medium".to_owned())
}

/// What measuring needs.
struct Setup {
    root: PathBuf,
    cache: PathBuf,
    python: PathBuf,
    /// Our worker.
    ours: PathBuf,
    /// The engines that were asked for.
    engines: Vec<Engine>,
    rounds: usize,
    slice: f64,
    loads: usize,
    precision: Precision,
    mmap: bool,
}

impl Setup {
    fn engines_of(&self, case: &Case) -> impl Iterator<Item = Engine> {
        Engine::ALL.iter().copied().filter(|engine| match self.engines.is_empty() {
            true => engine.joins(case, self.precision),
            false => self.engines.contains(engine),
        })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = project_root()?;
    let machine = Machine::here();
    let cache = root.join(".cache/peers");
    let python = python::interpreter(&root, args.set.requirements())?;
    let cases = prepare::models(&python, &root, &cache, args.set, &args.models)?;
    let ours = prepare::worker(&root)?;
    let mut report = Report {
        date: machine::today(),
        revision: machine::revision(&root),
        machine,
        set: args.set.name(),
        rounds: args.rounds,
        slice_seconds: args.slice,
        loads: args.loads,
        precision: args.precision.name(),
        mmap: args.mmap,
        cases: Vec::new(),
        means: Vec::new(),
    };
    let setup = Setup {
        root,
        cache,
        python,
        ours,
        engines: args.engines.clone(),
        rounds: args.rounds,
        slice: args.slice,
        loads: args.loads,
        precision: args.precision,
        mmap: args.mmap,
    };
    for case in &cases {
        for &threads in &args.threads {
            let found = measure::measure(&setup, case, threads);
            println!("{}", table::case(&found));
            report.add(found);
            if let Some(file) = &args.json {
                let text = serde_json::to_string_pretty(&report)?;
                fs::write(file, text).with_context(|| file.display().to_string())?;
            }
        }
    }
    let summary = table::summary(&report);
    if let Some(file) = &args.markdown {
        fs::write(file, &summary).with_context(|| file.display().to_string())?;
    }
    println!("{summary}");
    Ok(())
}

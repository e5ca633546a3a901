//! The worker that runs plutino: the Rust twin of `xtask/python/peers/worker.py`.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use plutino::ir::LoadOptions;
use plutino::{DType, Model, Precision, Session, SessionOptions, Tensor, npy};

use super::protocol::{Command, Reply};

/// Run one model as the other engines' workers do: JSON on standard input and output.
#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    /// Folder of the prepared model.
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    mmap: bool,
    #[arg(long, default_value = "highest", value_parser = super::precision)]
    precision: Precision,
}

/// Share of each slice that is not timed: the caches hold another engine's data.
const WARM_UP: f64 = 0.1;
const FEWEST: usize = 3;

/// Serves until the input ends. A failure is an answer, not an error.
pub(crate) fn work(args: &WorkerArgs) -> anyhow::Result<()> {
    match serve(args) {
        Ok(()) => Ok(()),
        Err(error) => answer(&Reply::Failed { reason: format!("{error:#}") }),
    }
}

fn serve(args: &WorkerArgs) -> anyhow::Result<()> {
    let inputs = tensors(&args.folder, "in")?;
    let harness = memory("VmRSS:");
    answer(&Reply::Ready { version: env!("CARGO_PKG_VERSION").into(), harness })?;
    let mut engine: Option<Engine> = None;
    for line in io::stdin().lock().lines() {
        let command = serde_json::from_str(&line?)?;
        answer(&match command {
            Command::Load => {
                let start = Instant::now();
                let fresh = Engine::load(args, inputs.clone())?;
                let ms = milliseconds(start);
                engine = Some(fresh);
                Reply::Loaded { ms }
            }
            Command::Run { seconds } => Reply::Ran {
                ms: time_slice(loaded(&mut engine)?, seconds)?,
                peak: memory("VmHWM:"),
            },
            Command::Check => {
                let engine = loaded(&mut engine)?;
                engine.run()?;
                let expected = tensors(&args.folder, "out")?;
                Reply::Checked { error: largest_error(&engine.outputs, &expected)? }
            }
        })?;
    }
    Ok(())
}

fn loaded(engine: &mut Option<Engine>) -> anyhow::Result<&mut Engine> {
    engine.as_mut().context("no model is loaded")
}

struct Engine {
    session: Session,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

impl Engine {
    /// Loads the model and runs it once.
    fn load(args: &WorkerArgs, inputs: Vec<Tensor>) -> anyhow::Result<Self> {
        let options = LoadOptions { mmap: args.mmap, ..LoadOptions::default() };
        let model = Model::load_with(args.folder.join("model.pnnx.param"), &options)?;
        let options = SessionOptions::default().with_threads(args.threads);
        let session = model.session(options.with_precision(args.precision))?;
        let mut engine = Self { session, inputs, outputs: Vec::new() };
        engine.run()?;
        Ok(engine)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        Ok(self.session.run_into(&self.inputs, &mut self.outputs)?)
    }
}

/// Times of single runs in ms, after a warm-up. A slice takes longer than asked where a run does.
fn time_slice(engine: &mut Engine, seconds: f64) -> anyhow::Result<Vec<f64>> {
    let start = Instant::now();
    loop {
        engine.run()?;
        if start.elapsed().as_secs_f64() >= WARM_UP * seconds {
            break;
        }
    }
    let mut times = Vec::new();
    while times.len() < FEWEST || start.elapsed().as_secs_f64() < seconds {
        let before = Instant::now();
        engine.run()?;
        times.push(milliseconds(before));
    }
    Ok(times)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn answer(reply: &Reply) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(reply)?)?;
    Ok(out.flush()?)
}

/// The arrays `<kind>0.npy`, `<kind>1.npy` and so on.
fn tensors(folder: &Path, kind: &str) -> anyhow::Result<Vec<Tensor>> {
    let files =
        (0..).map(|i| folder.join(format!("{kind}{i}.npy"))).take_while(|path| path.exists());
    files.map(|path| npy::load(&path).with_context(|| path.display().to_string())).collect()
}

/// The largest difference of any output over the largest value of that output.
fn largest_error(found: &[Tensor], expected: &[Tensor]) -> anyhow::Result<f64> {
    ensure!(
        found.len() == expected.len(),
        "{} outputs in place of {}",
        found.len(),
        expected.len()
    );
    let mut largest = 0.0f64;
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        if a.shape() != b.shape() {
            bail!("output {i} has shape {} in place of {}", a.shape(), b.shape());
        }
        let (a, b) = (a.cast(DType::F64)?, b.cast(DType::F64)?);
        let (a, b) = (a.as_slice::<f64>()?, b.as_slice::<f64>()?);
        let scale = b.iter().fold(0.0f64, |m, y| m.max(y.abs()));
        for (x, y) in a.iter().zip(b) {
            let error = (x - y).abs() / scale;
            ensure!(error.is_finite(), "output {i} is not finite");
            largest = largest.max(error);
        }
    }
    Ok(largest)
}

/// `VmRSS:` or `VmHWM:` of this process in bytes, where the system tells.
fn memory(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_largest_value() {
        let expected = [Tensor::from_slice(&[1.0f64, -4.0], [2]).unwrap()];
        let found = [Tensor::from_slice(&[1.0f32, -3.0], [2]).unwrap()];
        assert_eq!(largest_error(&found, &expected).unwrap(), 0.25);
        let found = [Tensor::from_slice(&[f32::NAN, -4.0], [2]).unwrap()];
        assert!(largest_error(&found, &expected).is_err());
        assert!(largest_error(&[], &expected).is_err());
    }
}

//! `cargo xtask memory`: what networks take while they run, beside what was said before.
//!
//! Each network is loaded, planned and run in a process of its own, in three batch sizes, for speed
//! and for low memory, with weights that are read and that are mapped. Compared are
//! [`MemoryReport::total`](plutino_runtime::MemoryReport::total), asked before the first run, and
//! the most memory of its own that the process had (`RssAnon` of Linux), above what it had when the
//! engine had run a network of one operator. Inputs are made before that. Then the memory is given
//! back: what is left is shown as well.

use anyhow::{Context, Result, bail};
use plutino::ir::{Graph, LoadOptions};
use plutino_fixtures::Fixture;
use plutino_runtime::{MemoryUse, Model, Session, SessionOptions};
use plutino_tensor::{DType, Shape, Tensor, TensorSpec, npy};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::resources::bytes;
use crate::{models, project_root};

/// Compare the memory that networks take with what their plans say before the run
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these networks [default: all]
    names: Vec<String>,
    /// Factors of the first dimension of the recorded inputs
    #[arg(long, value_delimiter = ',', default_value = "1,2,5")]
    batches: Vec<usize>,
    /// Threads of the sessions
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Percent by which both may differ
    #[arg(long, default_value_t = 5.0)]
    percent: f64,
    /// MiB by which both may differ besides: the graph, lists of a plan, pages that small objects
    /// share, stacks
    #[arg(long, default_value_t = 1.0)]
    slack: f64,
}

/// Loads, plans and runs one network (the other end of `memory`)
#[derive(clap::Args)]
pub(crate) struct OneArgs {
    param: PathBuf,
    #[arg(long)]
    batch: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    low: bool,
    #[arg(long)]
    mmap: bool,
}

/// What a process tells about itself: bytes above the baseline, or why there is nothing to tell.
#[derive(Serialize, Deserialize)]
enum Told {
    Taken {
        inputs: String,
        predicted: usize,
        peak: usize,
        /// What planning may have taken besides: a buffer for each thread that reads weights of a
        /// file.
        buffers: usize,
        /// After `release_memory`, without the weights that were read.
        released: usize,
        /// After session and model are gone.
        gone: usize,
    },
    /// The network does not take inputs of this batch size.
    Refused(String),
}

const MIB: f64 = (1 << 20) as f64;

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = project_root()?.join("target/models");
    let fixtures = match args.names.is_empty() {
        true => Fixture::all()?,
        false => args.names.iter().map(|name| Fixture::named(name)).collect::<Result<_, _>>()?,
    };
    println!(
        "| network | inputs | memory | weights | predicted | taken | difference | released | gone |"
    );
    println!("|---|---|---|---|--:|--:|--:|--:|--:|");
    let (mut runs, mut outside, mut refused) = (0, 0, 0);
    for fixture in fixtures {
        let param = models::write(&fixture, &folder)?.join("model.pnnx.param");
        for batch in &args.batches {
            for (low, mmap) in [(false, false), (true, false), (false, true), (true, true)] {
                let mode = if low { "low" } else { "fast" };
                let weights = if mmap { "mapped" } else { "read" };
                match one(args, &param, *batch, low, mmap)? {
                    Told::Taken { inputs, predicted, peak, buffers, released, gone } => {
                        let mib = |bytes: usize| bytes as f64 / MIB;
                        let (said, took) = (mib(predicted), mib(peak));
                        let slack = args.slack + took * args.percent / 100.0;
                        let fits = took - said <= slack + mib(buffers) && said - took <= slack;
                        (runs, outside) = (runs + 1, outside + usize::from(!fits));
                        println!(
                            "| {} | {inputs} | {mode} | {weights} | {said:.1} | {took:.1} | {:+.1} %{} | {:.1} | {:.1} |",
                            fixture.name,
                            (said / took - 1.0) * 100.0,
                            if fits { "" } else { " (!)" },
                            mib(released),
                            mib(gone)
                        );
                    }
                    Told::Refused(why) if *batch == 1 => bail!("{}: {why}", fixture.name),
                    Told::Refused(_) => refused += 1,
                }
            }
        }
    }
    let fit = runs - outside;
    println!("\nMiB; within {} % and {} MiB: {fit} of {runs}", args.percent, args.slack);
    println!("{refused} not run: the network does not take that batch size");
    match outside {
        0 => Ok(()),
        _ => bail!("{outside} of {runs} predictions are too far from what was taken"),
    }
}

fn one(args: &Args, param: &Path, batch: usize, low: bool, mmap: bool) -> Result<Told> {
    let mut process = Command::new(std::env::current_exe()?);
    process.arg("memory-one").arg(param).args(["--batch", &batch.to_string()]);
    process.args(["--threads", &args.threads.to_string()]).stdin(Stdio::null());
    process.args(low.then_some("--low")).args(mmap.then_some("--mmap"));
    let output = process.stderr(Stdio::inherit()).output()?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{} ended with {}", param.display(), output.status))
}

/// The other end: does it, and tells.
pub(crate) fn run_one(args: &OneArgs) -> Result<()> {
    println!("{}", serde_json::to_string(&measure(args)?)?);
    Ok(())
}

/// Types of operators whose weights are not packed some rows at a time.
const READ_WHOLE: &[&str] = &["nn.LSTM", "nn.GRU", "nn.RNN", "ConvTranspose"];

fn measure(args: &OneArgs) -> Result<Told> {
    let memory = if args.low { MemoryUse::Low } else { MemoryUse::Fast };
    let options = SessionOptions::default().with_threads(args.threads).with_memory(memory);
    run_something(options.clone())?;
    let inputs = inputs(args)?;
    let specs: Vec<TensorSpec> = inputs.iter().map(Tensor::spec).collect();
    let base = own()?;
    let above = |bytes: usize| bytes.saturating_sub(base);

    let load = LoadOptions { mmap: args.mmap, ..LoadOptions::default() };
    let model = Model::load_with(&args.param, &load)?;
    let in_file = model.graph().operators().flat_map(|(_, op)| {
        let whole = READ_WHOLE.iter().any(|read| op.kind.contains(read));
        let parts = op.attrs.values().filter_map(|weight| weight.in_file());
        parts.map(move |part| if whole { part.len() } else { part.buffer_len(0) })
    });
    let buffers = in_file.max().unwrap_or(0).saturating_mul(args.threads);
    let session: Session = model.session(options)?;
    let plan = match session.plan(&specs) {
        Ok(plan) => plan,
        Err(refused) => return Ok(Told::Refused(refused.to_string())),
    };
    let report = plan.memory();
    let mut peak = own()?;
    drop(plan);
    let outputs = session.run(&inputs)?;
    peak = peak.max(own()?);
    if !args.mmap {
        // What was not its own at the end was not at the peak either: code is never taken back.
        peak = peak.max(bytes("VmHWM")?.saturating_sub(bytes("RssFile")?));
    }
    drop(outputs);
    session.release_memory();
    let released = above(own()?).saturating_sub(report.weights);
    drop((session, model));
    let gone = above(own()?);
    let inputs = specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    Ok(Told::Taken {
        inputs,
        predicted: report.total(),
        peak: above(peak),
        buffers,
        released,
        gone,
    })
}

/// Runs a network of one operator: threads and code are there then.
fn run_something(options: SessionOptions) -> Result<()> {
    let text =
        "7767517\n3 2\npnnx.Input in 0 1 0\nF.relu a 1 1 0 1 $input=0\npnnx.Output out 1 0 1\n";
    let session = Model::from_graph(Graph::parse(text)?)?.session(options)?;
    session.run(&[Tensor::ones(DType::F32, [1 << 10])?])?;
    Ok(())
}

/// The recorded inputs; in other batch sizes ones, in the same shape otherwise.
fn inputs(args: &OneArgs) -> Result<Vec<Tensor>> {
    let arrays = npy::npz::load(args.param.with_file_name("inputs.npz"))?;
    let batched = |(_, tensor): (String, Tensor)| -> Result<Tensor> {
        if args.batch == 1 {
            return Ok(tensor);
        }
        let dims = tensor.shape().iter().enumerate();
        let shape: Shape = dims.map(|(i, &n)| if i == 0 { n * args.batch } else { n }).collect();
        Ok(Tensor::ones(tensor.dtype(), shape)?)
    };
    arrays.into_iter().map(batched).collect()
}

/// Bytes that are this process's alone.
fn own() -> Result<usize> {
    bytes("RssAnon")
}

//! `cargo xtask hostile DIR`: loads, plans and runs every model below DIR in a process of its own,
//! and looks at what that took.
//!
//! A folder holds `.param` files, perhaps their `.bin` files, and perhaps `inputs.npz` (in0, in1,
//! ...); without it inputs are made up in the recorded shapes. A model may be anything: what
//! matters is that the process ends with a result or an error that says what is wrong, that it
//! takes little more memory than it may, and little time. The address space is limited as well, so
//! that memory which is taken by force ends the process.

use anyhow::{Context, Result, bail};
use plutino::ir::LoadOptions;
use plutino_runtime::{Model, ModelError, SessionError, SessionOptions};
use plutino_tensor::{DType, Shape, Tensor, npy};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::resources::{cpu_seconds, peak_mib};
use crate::walk;

/// Runs models that mean harm, and fails where one takes more memory or time than it may
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with folders of `.param` files, at any depth
    dir: PathBuf,
    /// Memory budgets of the sessions, in MiB
    #[arg(long, value_delimiter = ',', default_value = "64,256")]
    budgets: Vec<usize>,
    /// Seconds of CPU that a model may take
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Memory beyond the budget that a process may have, in MiB
    #[arg(long, default_value_t = 64)]
    extra: usize,
    /// Address space of a process, in MiB
    #[arg(long, default_value_t = 4096)]
    space: usize,
    /// Only files whose path below DIR contains this
    #[arg(long)]
    filter: Option<String>,
}

/// Loads, plans and runs one model (the other end of `hostile`)
#[derive(clap::Args)]
pub(crate) struct OneArgs {
    param: PathBuf,
    /// Memory budget in MiB
    #[arg(long)]
    budget: usize,
}

/// What a process tells about itself before it ends.
#[derive(Serialize, Deserialize)]
struct Told {
    /// Nothing where there was a result.
    error: Option<String>,
    cpu_seconds: f64,
    peak_mib: f64,
}

/// Bytes of a line of a message beyond which it quotes too much.
const LONG_MESSAGE: usize = 1500;

/// Made-up inputs larger than this are not made: the model is planned only.
const MOST_INPUT: usize = 64 << 20;

/// Runs all files with all budgets, and prints a line for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    let files = walk::files(&args.dir, |path| path.extension().is_some_and(|e| e == "param"))?;
    let (mut runs, mut broken) = (0, 0);
    for file in files {
        let name = file.strip_prefix(&args.dir).unwrap_or(&file).display().to_string();
        if args.filter.as_ref().is_some_and(|f| !name.contains(f.as_str())) {
            continue;
        }
        for &budget in &args.budgets {
            let (line, faults) = one(args, &file, budget)?;
            runs += 1;
            broken += usize::from(!faults.is_empty());
            let verdict = if faults.is_empty() { "ok".to_owned() } else { faults.join(", ") };
            println!("{name} ({budget} MiB): {verdict}; {line}");
        }
    }
    match (runs, broken) {
        (0, _) => bail!("{} holds no .param file that was asked for", args.dir.display()),
        (_, 0) => {
            println!("{runs} runs, all within bounds");
            Ok(())
        }
        _ => bail!("{broken} of {runs} runs are out of bounds"),
    }
}

/// One model in a process: what it says, and which bounds it breaks.
fn one(args: &Args, file: &Path, budget: usize) -> Result<(String, Vec<String>)> {
    let limited = format!("ulimit -v {}; ulimit -t 60; exec \"$0\" \"$@\"", args.space << 10);
    let mut process = Command::new("sh");
    process.arg("-c").arg(limited).arg(std::env::current_exe()?).arg("hostile-one").arg(file);
    process.args(["--budget", &budget.to_string()]);
    process.env("PLUTINO_THREADS", "1").stdin(Stdio::null());
    let output = process.output().context("sh could not be started")?;
    let Ok(told) = serde_json::from_slice::<Told>(&output.stdout) else {
        let last = String::from_utf8_lossy(&output.stderr);
        let last: String =
            last.lines().take(2).collect::<Vec<_>>().join(" ").chars().take(200).collect();
        return Ok((format!("{}: {last}", output.status), vec!["ended by force".into()]));
    };
    let mut faults = Vec::new();
    if told.cpu_seconds > args.seconds {
        faults.push("too long".into());
    }
    if told.peak_mib > (budget + args.extra) as f64 {
        faults.push("too much memory".into());
    }
    let message = told.error.as_deref().unwrap_or("a result");
    if message.contains("internal:") {
        faults.push("an internal error".into());
    }
    if let Some(line) = message.lines().find(|line| line.len() > LONG_MESSAGE) {
        faults.push(format!("a line of {} bytes", line.len()));
    }
    if message.chars().any(|c| c.is_control() && c != '\n') {
        faults.push("control characters".into());
    }
    let brief: String = message.chars().take(160).collect();
    let line = format!("{:.2} s, {:.0} MiB: {brief:?}", told.cpu_seconds, told.peak_mib);
    Ok((line, faults))
}

/// The other end: does it, and tells.
pub(crate) fn run_one(args: &OneArgs) -> Result<()> {
    let error = attempt(args).err().map(|e| e.to_string());
    let (cpu_seconds, peak_mib) = (cpu_seconds()?, peak_mib()?);
    println!("{}", serde_json::to_string(&Told { error, cpu_seconds, peak_mib })?);
    Ok(())
}

#[derive(Debug)]
enum Fault {
    Model(ModelError),
    Session(SessionError),
    Inputs(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model(e) => write!(f, "{e}"),
            Self::Session(e) => write!(f, "{e}"),
            Self::Inputs(e) => f.write_str(e),
        }
    }
}

fn attempt(args: &OneArgs) -> Result<(), Fault> {
    let options = LoadOptions { mmap: true, ..LoadOptions::default() };
    let model = Model::load_with(&args.param, &options).map_err(Fault::Model)?;
    let options = SessionOptions::default().with_memory_budget(args.budget << 20);
    let session = model.session(options).map_err(Fault::Session)?;
    let npz = args.param.with_file_name("inputs.npz");
    let inputs = match npz.exists() {
        true => {
            let arrays = npy::npz::load(&npz).map_err(|e| Fault::Inputs(e.to_string()))?;
            arrays.into_iter().map(|(_, tensor)| tensor).collect()
        }
        false => match made_up(&model)? {
            Made::Tensors(tensors) => tensors,
            Made::Specs(specs) => return session.plan(&specs).map(drop).map_err(Fault::Session),
        },
    };
    session.run(&inputs).map(drop).map_err(Fault::Session)
}

/// Inputs as recorded, or what they would be where they are large.
enum Made {
    Tensors(Vec<Tensor>),
    Specs(Vec<plutino_tensor::TensorSpec>),
}

fn made_up(model: &Model) -> Result<Made, Fault> {
    let specs = model.inputs().iter().map(|input| {
        let shape = input.recorded.known_shape().map(Shape::from);
        let dtype = input.dtype();
        let shape = shape.ok_or_else(|| Fault::Inputs("an input has no recorded shape".into()))?;
        Ok(plutino_tensor::TensorSpec::new(dtype.unwrap_or(DType::F32), shape))
    });
    let specs = specs.collect::<Result<Vec<_>, Fault>>()?;
    let bytes = specs.iter().map(|s| s.storage_bytes().unwrap_or(usize::MAX));
    if bytes.fold(0, usize::saturating_add) > MOST_INPUT {
        return Ok(Made::Specs(specs));
    }
    let ones = specs.iter().map(|s| Tensor::ones(s.dtype, s.shape.clone()));
    let ones = ones.collect::<Result<_, _>>().map_err(|e| Fault::Inputs(e.to_string()))?;
    Ok(Made::Tensors(ones))
}

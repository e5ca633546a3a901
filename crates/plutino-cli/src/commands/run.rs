//! `plutino run`

use crate::classes::{Labels, likeliest};
use crate::digits;
use crate::failure::Failure;
use crate::inputs::{self, Slot};
use crate::output::{Output, during, millis};
use crate::picture::{self, PictureArgs};
use crate::session::{self, SessionArgs, parse_seconds};
use plutino::npy::npz;
use plutino::{Model, Request, Tensor};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Run a model on inputs from files and show the outputs
///
/// Without MODEL, a small network that is built in reads a handwritten digit that is built in too, or
/// the picture given with -i.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model [default: a built-in one that reads digits]
    model: Option<PathBuf>,
    /// An input: npy, npz (each array is an input), png or jpeg. NAME is the operand's name, or in0, in1, ... by
    /// position; without it, files fill the inputs in order
    #[arg(short, long = "input", value_name = "[NAME=]FILE")]
    inputs: Vec<String>,
    /// Write the outputs to this file, as out0, out1, ...
    #[arg(short, long, value_name = "FILE.npz")]
    output: Option<PathBuf>,
    /// Show the K likeliest classes of the first output instead of its numbers
    #[arg(long, value_name = "K")]
    top: Option<usize>,
    /// Names of the classes, one a line
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Give up after this time
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Execution")]
    timeout: Option<Duration>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    picture: PictureArgs,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let labels = Labels::read(args.labels.as_deref())?;
    let model = match &args.model {
        Some(path) => session::load(path)?,
        None => digits::model()?,
    };
    let slots = inputs::slots(&model);
    let demo = args.model.is_none();
    let inputs = match demo && args.inputs.is_empty() {
        true => vec![sample(&slots, &args.picture)?],
        false => inputs::load(&args.inputs, &slots, &args.picture)?,
    };
    if demo && let [picture] = &inputs[..] {
        digits::draw(out, picture)?;
        writeln!(out)?;
    }
    let (outputs, time) = compute(args, &model, &inputs)?;
    let top = args.top.or(demo.then_some(3));
    for (i, output) in outputs.iter().enumerate() {
        match top {
            Some(k) if i == 0 => classes(out, output, k, &labels)?,
            Some(_) => {}
            None => writeln!(out, "out{i} {}\n{output}", output.spec())?,
        }
    }
    writeln!(out, "{} ms", millis(time))?;
    if let Some(path) = &args.output {
        let named = outputs.iter().enumerate().map(|(i, t)| (format!("out{i}"), t.view()));
        npz::save(path, named)?;
    }
    Ok(())
}

fn sample(slots: &[Slot], args: &PictureArgs) -> Result<Tensor, Failure> {
    let slot = slots.first().ok_or_else(|| Failure::Model("the model has no input".into()))?;
    picture::decode(digits::SAMPLE, slot.wanted(), args).map_err(Failure::Usage)
}

/// Plans and runs; the time is that of the run alone.
fn compute(
    args: &Args,
    model: &Model,
    inputs: &[Tensor],
) -> Result<(Vec<Tensor>, Duration), Failure> {
    let deadline = args.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let session = args.session.session(model)?;
    during("running", || {
        let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
        session.plan(&specs)?;
        let mut request = Request::new();
        for (info, input) in model.inputs().iter().zip(inputs) {
            request = request.feed(&info.name, input);
        }
        if let Some(deadline) = deadline {
            request = request.deadline(deadline);
        }
        let start = Instant::now();
        let outputs = session.run_with(&request)?;
        Ok((outputs, start.elapsed()))
    })
}

fn classes(out: &mut Output, scores: &Tensor, k: usize, labels: &Labels) -> Result<(), Failure> {
    let rows = likeliest(scores, k)?;
    for (i, row) in rows.iter().enumerate() {
        if rows.len() > 1 {
            writeln!(out, "row {i}")?;
        }
        for class in row {
            let (index, percent) = (class.index, class.probability * 100.0);
            let name = labels.name(index);
            writeln!(out, "{}", format!("{percent:6.2} %  {index:>4}  {name}").trim_end())?;
        }
    }
    Ok(())
}

//! `plutino run`

use crate::classes::{Labels, likeliest};
use crate::deviation::summary;
use crate::digits;
use crate::failure::Failure;
use crate::inputs::{self, Feed, FileArgs, Slot};
use crate::numpy;
use crate::output::{Output, during, millis, warn_all};
use crate::picture::{self, PictureArgs};
use crate::session::{self, SessionArgs, parse_seconds};
use plutino::npy::npz;
use plutino::{Limits, Model, Request, Session, Tensor};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Run a model on inputs from files and show the outputs
///
/// Without MODEL, a small network that is built in reads a handwritten digit that is built in too,
/// or the picture given with -i.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model [default: a built-in one that reads digits]
    model: Option<PathBuf>,
    #[command(flatten)]
    files: FileArgs,
    /// Write the outputs to this file, as out0, out1, ..., and show a summary of each instead of
    /// its numbers; those of several runs are called PICTURE.out0 and so on. Outputs of bf16, which
    /// NumPy does not have, are written as float32
    #[arg(short, long, value_name = "FILE.npz")]
    output: Option<PathBuf>,
    /// Show the K likeliest classes of the first output instead of its numbers
    #[arg(long, value_name = "K")]
    top: Option<usize>,
    /// Names of the classes, one a line
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Give up after this time, from the start of loading on
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Execution")]
    timeout: Option<Duration>,
    #[command(flatten)]
    session: SessionArgs,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let deadline = args.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let limits = Limits { deadline, ..Limits::default() };
    let labels = Labels::read(args.labels.as_deref())?;
    let model = match &args.model {
        Some(path) => session::load_within(path, &limits)?,
        None => digits::model()?,
    };
    let slots = inputs::slots(&model);
    let demo = args.model.is_none();
    let feeds = match demo && args.files.is_empty() {
        true => vec![sample(&slots, args.files.picture())?],
        false => args.files.feeds(&slots)?,
    };
    if demo
        && let [Feed { tensors, .. }] = &feeds[..]
        && let [picture] = &tensors[..]
    {
        digits::draw(out, picture)?;
        writeln!(out)?;
    }
    let session = args.session.session(&model)?;
    let mut written = Vec::new();
    for (i, feed) in feeds.iter().enumerate() {
        let (outputs, time) = compute(&session, &model, &feed.tensors, &limits, i == 0)?;
        if let Some(name) = &feed.name {
            writeln!(out, "{name}")?;
        }
        show(args, out, &outputs, feed, &labels)?;
        writeln!(out, "{} ms", millis(time))?;
        written.push(outputs);
    }
    match &args.output {
        Some(path) => write(path, &feeds, &written),
        None => Ok(()),
    }
}

/// Prints the outputs of one run: classes, numbers, or no more than a summary.
fn show(
    args: &Args,
    out: &mut Output,
    outputs: &[Tensor],
    feed: &Feed,
    labels: &Labels,
) -> Result<(), Failure> {
    let top = args.top.or(args.model.is_none().then_some(3));
    for (i, output) in outputs.iter().enumerate() {
        match (top, &args.output) {
            (Some(k), _) if i == 0 => classes(out, output, k, labels, &feed.rows)?,
            (Some(_), _) => {}
            (None, None) => writeln!(out, "out{i} {}\n{output}", output.spec())?,
            (None, Some(_)) => match summary(output)? {
                Some(summary) => writeln!(out, "out{i} {}: {summary}", output.spec())?,
                None => writeln!(out, "out{i} {}", output.spec())?,
            },
        }
    }
    Ok(())
}

/// Writes the outputs of all runs to one archive.
fn write(path: &Path, feeds: &[Feed], written: &[Vec<Tensor>]) -> Result<(), Failure> {
    let storable = written.iter().map(|outputs| outputs.iter().map(numpy::storable).collect());
    let written: Vec<Vec<_>> = storable.collect::<Result<_, _>>()?;
    let prefixes = prefixes(feeds.iter().map(|feed| feed.name.as_deref()));
    let runs = prefixes.iter().zip(&written).flat_map(|(prefix, outputs)| {
        let named = outputs.iter().enumerate();
        named.map(move |(i, tensor)| (format!("{prefix}out{i}"), tensor.view()))
    });
    Ok(npz::save(path, runs)?)
}

/// What the outputs of each run are called before `out0`: the stem of the picture, numbered where
/// it came before.
fn prefixes<'a>(names: impl Iterator<Item = Option<&'a str>>) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let Some(name) = name else {
            taken.push(String::new());
            continue;
        };
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        let numbered = (2..).map(|n| format!("{stem}-{n}."));
        let mut free =
            std::iter::once(format!("{stem}.")).chain(numbered).filter(|p| !taken.contains(p));
        taken.push(free.next().unwrap_or_default());
    }
    taken
}

fn sample(slots: &[Slot], args: &PictureArgs) -> Result<Feed, Failure> {
    args.check_used(1)?;
    let slot = slots.first().ok_or_else(|| Failure::Model("the model has no input".into()))?;
    let tensor = picture::decode(digits::SAMPLE, slot.wanted(), args).map_err(Failure::Usage)?;
    Ok(Feed { name: None, rows: Vec::new(), tensors: vec![tensor] })
}

/// Plans and runs; the time is that of the run alone. Warnings are told once.
fn compute(
    session: &Session,
    model: &Model,
    inputs: &[Tensor],
    limits: &Limits,
    first: bool,
) -> Result<(Vec<Tensor>, Duration), Failure> {
    let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
    let plan = during("planning", || session.plan_within(&specs, limits))?;
    if first {
        warn_all(model.warnings().iter().chain(plan.warnings()));
    }
    during("running", || {
        let mut request = Request::new();
        for (info, input) in model.inputs().iter().zip(inputs) {
            request = request.feed(&info.name, input);
        }
        if let Some(deadline) = limits.deadline {
            request = request.deadline(deadline);
        }
        let start = Instant::now();
        let outputs = session.run_with(&request)?;
        Ok((outputs, start.elapsed()))
    })
}

/// The likeliest classes, row by row; `names` are those of the rows, where they have any.
fn classes(
    out: &mut Output,
    scores: &Tensor,
    k: usize,
    labels: &Labels,
    names: &[String],
) -> Result<(), Failure> {
    let rows = likeliest(scores, k)?;
    for (i, row) in rows.iter().enumerate() {
        match names.get(i).filter(|_| names.len() == rows.len()) {
            Some(name) => writeln!(out, "{name}")?,
            None if rows.len() > 1 => writeln!(out, "row {i}")?,
            None => {}
        }
        for class in row {
            let (index, percent) = (class.index, class.probability * 100.0);
            let name = labels.name(index);
            writeln!(out, "{}", format!("{percent:6.2} %  {index:>4}  {name}").trim_end())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_several_pictures_have_names() {
        let names = [Some("a/cat.png"), Some("b/cat.jpg"), Some("dog.png")];
        assert_eq!(prefixes(names.into_iter()), ["cat.", "cat-2.", "dog."]);
        assert_eq!(prefixes([None].into_iter()), [""]);
    }
}

//! `plutino run`

use crate::carry::CarryArgs;
use crate::deviation::summary;
use crate::digits;
use crate::elements::Elements;
use crate::failure::Failure;
use crate::finite;
use crate::inputs::{self, FileArgs, Need, Slot};
use crate::names;
use crate::numpy;
use crate::output::{Output, during, time, warn_all};
use crate::pictures::free;
use crate::request::{Prepared, RequestArgs};
use crate::session::{SessionArgs, parse_whole};
use crate::timing::as_millis;
use plutino::ir::write_whole;
use plutino::npy::{NpyError, npz};
use plutino::{Session, State, Tensor};
use plutino_vision::{Class, Labels, Names, Pixels, Recipe, likeliest};
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Run a model on inputs from files and show the outputs
///
/// Without MODEL, a small network that is built in reads a handwritten digit that is built in too,
/// or the picture given with -i. With --feed and --fetch, any part of a model runs: from the
/// operands that are fed to those that are fetched.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model [default: a built-in one that reads digits]
    model: Option<PathBuf>,
    /// Write the outputs to this file, as out0, out1, ... (what is fetched, by its names), and show
    /// a summary of each instead of its numbers; those of several runs are called PICTURE.out0 and
    /// so on. Outputs of bf16, which NumPy does not have, are written as float32
    #[arg(short, long, value_name = "FILE.npz")]
    pub(super) output: Option<PathBuf>,
    /// Show the K likeliest classes of the first output instead of its numbers
    #[arg(long, value_name = "K", value_parser = parse_whole)]
    top: Option<usize>,
    /// Names of the classes: a list that ships with the command, or a file with one a line
    /// [default: those beside the model]
    #[arg(long, value_name = "imagenet|coco|voc|FILE")]
    labels: Option<Names>,
    /// Look at every value, and name the operators that make NaN or infinity; exit code 1 where NaN
    /// comes up, or an output is not finite
    #[arg(long, conflicts_with_all = ["json", "carries"])]
    check_finite: bool,
    /// Print one JSON object; numbers of outputs of up to 1000 elements are part of it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    pub(super) carry: CarryArgs,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

/// Elements of an output up to which its numbers are part of the JSON.
const MOST_ELEMENTS: usize = 1000;

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    model: String,
    threads: usize,
    isa: String,
    runs: Vec<RunReport>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct RunReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<String>,
    /// Of the run alone.
    #[serde(serialize_with = "as_millis", rename = "ms")]
    time: Duration,
    outputs: Vec<OutputReport>,
}

#[derive(Serialize)]
struct OutputReport {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    /// Of the finite elements; none where there are none, or they are complex.
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    /// Elements that are NaN or infinite.
    not_finite: usize,
    /// With --top: the likeliest classes of each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<Vec<ClassReport>>>,
    /// Row-major; null for NaN and infinities, pairs for complex numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<Elements>,
}

#[derive(Serialize)]
struct ClassReport {
    index: usize,
    name: String,
    probability: f64,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let model = match &args.model {
        Some(path) => args.session.load(path)?,
        None => digits::model()?,
    };
    let beside = args.files.picture().for_model(model.file(), Recipe::default())?.labels;
    let labels = Labels::read(args.labels.as_ref().or(beside.as_ref()))?;
    let demo = args.model.is_none();
    let own_input = demo && args.files.is_empty();
    let need = if args.carry.is_given() || own_input { Need::Some } else { Need::All };
    let prepare = || match own_input && args.request.is_plain() {
        true => Ok(vec![Prepared::plain(&model, Vec::new())]),
        false => args.request.prepare(&model, &args.files, need),
    };
    let mut runs = args.session.reading(prepare)?;
    if own_input {
        let slots = inputs::slots(&model);
        let sample = sample(&slots, args.files.picture())?;
        runs.iter_mut().for_each(|run| run.feed_rest(&slots, &sample));
    }
    if demo
        && !args.json
        && let [Prepared { feeds, .. }] = &runs[..]
        && let [(_, picture)] = &feeds[..]
        && args.request.is_plain()
    {
        digits::draw(out, picture)?;
        writeln!(out)?;
    }
    let session = args.session.session(&model)?;
    let (mut state, runs) = match args.carry.is_given() {
        true => args.carry.begin(&session, runs).map(|(state, runs)| (Some(state), runs))?,
        false => (None, runs),
    };
    let mut reports = Vec::new();
    let mut written = Vec::new();
    let mut warnings = Vec::new();
    let mut finite = true;
    for (i, run) in runs.iter().enumerate() {
        let (outputs, spent, planned) = compute(args, &session, run, state.as_mut())?;
        if i == 0 {
            warnings = model.warnings().iter().map(ToString::to_string).chain(planned).collect();
            if !args.json {
                warn_all(&warnings);
            }
        }
        if args.json {
            reports.push(report(args, run, &outputs, spent, &labels)?);
        } else {
            if let Some(name) = &run.picture {
                writeln!(out, "{name}")?;
            }
            show(args, out, &outputs, run, &labels)?;
            writeln!(out, "{}", time(spent))?;
        }
        written.push(outputs);
        if args.check_finite {
            finite &= finite::check(&session, &run.request(), out)?;
        }
    }
    if args.json {
        let file = |path: &PathBuf| path.display().to_string();
        out.json(&Report {
            model: args.model.as_ref().map_or_else(|| "built-in".into(), file),
            threads: session.threads(),
            isa: session.isa().to_string(),
            runs: reports,
            warnings,
        })?;
    }
    if let Some(path) = &args.output {
        write(path, &runs, &written)?;
    }
    if let Some(state) = &state {
        args.carry.end(state)?;
    }
    if finite { Ok(()) } else { Err(Failure::Mismatch) }
}

/// How many of the likeliest classes are shown, where that is what is shown.
fn top(args: &Args) -> Option<usize> {
    args.top.or((args.model.is_none() && args.request.is_plain()).then_some(3))
}

/// Prints the outputs of one run: classes, numbers, or no more than a summary.
fn show(
    args: &Args,
    out: &mut Output,
    outputs: &[(String, Tensor)],
    run: &Prepared,
    labels: &Labels,
) -> Result<(), Failure> {
    for (i, (name, output)) in outputs.iter().enumerate() {
        match (top(args), &args.output) {
            (Some(k), _) if i == 0 => classes(out, output, k, labels, &run.rows)?,
            (Some(_), _) => {}
            (None, None) => writeln!(out, "{name} {}\n{output}", output.spec())?,
            (None, Some(_)) => match summary(output)? {
                Some(summary) => writeln!(out, "{name} {}: {summary}", output.spec())?,
                None => writeln!(out, "{name} {}", output.spec())?,
            },
        }
    }
    Ok(())
}

/// The outputs of one run, for JSON.
fn report(
    args: &Args,
    run: &Prepared,
    outputs: &[(String, Tensor)],
    time: Duration,
    labels: &Labels,
) -> Result<RunReport, Failure> {
    let outputs = outputs.iter().enumerate().map(|(i, (name, output))| {
        let summary = summary(output)?;
        let classes = match top(args).filter(|_| i == 0) {
            Some(k) => Some(likeliest(output, k)?),
            None => None,
        };
        let names = match classes {
            Some(_) => labels.of_classes(output.shape().last().copied().unwrap_or(0))?,
            None => Labels::default(),
        };
        let class = |c: &Class| ClassReport {
            index: c.index,
            name: names.name(c.index).to_owned(),
            probability: c.probability,
        };
        Ok(OutputReport {
            name: name.clone(),
            dtype: output.dtype().to_string(),
            shape: output.shape().to_vec(),
            min: summary.map(|s| s.min),
            max: summary.map(|s| s.max),
            mean: summary.map(|s| s.mean),
            not_finite: summary.map_or(0, |s| s.not_finite),
            classes: classes
                .map(|rows| rows.iter().map(|row| row.iter().map(class).collect()).collect()),
            elements: match output.numel() <= MOST_ELEMENTS {
                true => Some(Elements::of(output)?),
                false => None,
            },
        })
    });
    let outputs = outputs.collect::<Result<_, Failure>>()?;
    Ok(RunReport { picture: run.picture.clone(), time, outputs })
}

/// Writes the outputs of all runs to one archive.
fn write(path: &Path, runs: &[Prepared], written: &[Vec<(String, Tensor)>]) -> Result<(), Failure> {
    let prefixes = prefixes(runs.iter().map(|run| run.picture.as_deref()));
    let named = prefixes.iter().zip(written).flat_map(|(prefix, outputs)| {
        outputs.iter().map(move |(name, tensor)| (format!("{prefix}{name}"), tensor))
    });
    let storable = named.map(|(name, tensor)| Ok((name, numpy::storable(tensor)?)));
    let arrays = storable.collect::<Result<Vec<_>, Failure>>()?;
    let arrays = arrays.iter().map(|(name, array)| (name, array.view()));
    let saved = write_whole(path, |file| npz::write(BufWriter::new(file), arrays));
    let in_file = |error| NpyError::File { path: path.to_owned(), error: Box::new(error) };
    Ok(saved.map_err(in_file)?)
}

/// What the outputs of each run are called before their names: the stem of the picture, numbered
/// where it came before.
fn prefixes<'a>(names: impl Iterator<Item = Option<&'a str>>) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    let prefix = |name: Option<&str>| {
        let Some(name) = name else { return String::new() };
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
        let name = free(&stem, &taken);
        taken.push(name.clone());
        format!("{name}.")
    };
    names.map(prefix).collect()
}

fn sample(slots: &[Slot], recipe: &Recipe) -> Result<Vec<Tensor>, Failure> {
    let slot = slots.first().ok_or_else(|| Failure::Model("the model has no input".into()))?;
    let pixels = Pixels::read(digits::SAMPLE)?;
    let tensor = recipe.prepare(&pixels, slot.wanted())?.0;
    Ok(vec![tensor])
}

/// Plans and runs: the results by name, the time of the run alone, and what planning warned of.
#[allow(clippy::type_complexity)] // read at the one place that calls it
fn compute(
    args: &Args,
    session: &Session,
    run: &Prepared,
    state: Option<&mut State>,
) -> Result<(Vec<(String, Tensor)>, Duration, Vec<String>), Failure> {
    let request = run.request();
    let refused = |error| run.refused(error, session.model());
    let plan = during("planning", || match &state {
        Some(state) => session.plan_with_state(state, &request),
        None => session.plan_request(&request),
    });
    let plan = plan.map_err(refused)?;
    let warnings = names::warnings(session.model(), &plan);
    let start = Instant::now();
    let outputs = during("running", || match state {
        Some(state) => session.run_named_with_state(state, &request),
        None => session.run_named(&request),
    });
    let mut outputs = outputs.map_err(refused)?;
    let time = start.elapsed();
    if !args.request.names_results() {
        outputs.iter_mut().enumerate().for_each(|(i, (name, _))| *name = format!("out{i}"));
    }
    Ok((outputs, time, warnings))
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
    let labels = labels.of_classes(scores.shape().last().copied().unwrap_or(0))?;
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

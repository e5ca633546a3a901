//! `plutino view`

use crate::failure::Failure;
use crate::inputs::{self, FileArgs, Open, ShapeArg};
use crate::names;
use crate::output::{Output, bytes, during, progress, warn_all, write_file};
use crate::profile::report::faster_half;
use crate::session::{LoadArgs, SessionArgs, parse_some};
use plutino::ir::{Attribute, Graph, LoadError, LoadOptions, Weights, quote};
use plutino::{Model, ModelError, ModelOptions, Session, Tensor};
use plutino_view::{Data, Marks, Times};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write a page that shows a model: its graph, plan, times, memory and weights
///
/// The page is one file that needs no network: open it with any browser. Times are measured with a
/// few runs on made-up inputs, or those given with -i. What cannot be found out is left out and
/// said: operators that are not supported are marked, and without a .bin file the plan is made with
/// weights of zeros.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model; its .bin file may be missing
    model: PathBuf,
    /// Write to this file; - is standard output [default: the model's name with .html, in the
    /// current folder]
    #[arg(short, long, value_name = "FILE.html")]
    pub(super) output: Option<PathBuf>,
    /// Shape of an input; without NAME, shapes are those of the inputs in order [default: as
    /// recorded in the file, and 1 for what it leaves open]
    #[arg(long = "shape", value_name = "[NAME=]1x3x224x224")]
    shapes: Vec<ShapeArg>,
    /// Do not run the model: no times
    #[arg(long)]
    no_profile: bool,
    /// Timed runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = parse_some)]
    runs: usize,
    /// Colours by error: what `plutino compare --json` printed, or a JSON object of numbers by
    /// operator name, of which null is infinite
    #[arg(long, value_name = "FILE.json")]
    errors: Option<PathBuf>,
    /// Print one JSON object: where the page is, and what was left out of it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

/// Bytes of `--errors`, at most.
const MOST_ERRORS: u64 = 256 << 20;

/// Names in `--errors` of no operator that are shown.
const MOST_UNKNOWN: usize = 10;

/// Bytes of the largest weight that zeros stand in for.
const MOST_ZEROS: usize = 4 << 30;

/// Runs before timing starts.
const WARMUP: usize = 2;

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let mut notes = Vec::new();
    let mut marks = Marks { errors: errors(args.errors.as_deref())?, ..Marks::default() };
    let file = load(&args.model, args.session.files(), &mut notes, &mut marks)?;
    let graph = file.graph();
    let unknown = marks.errors.keys().filter(|name| graph.operator_by_name(name).is_none());
    let unknown: Vec<String> = unknown.cloned().collect();
    notes.extend(unknown.iter().take(MOST_UNKNOWN).map(|name| {
        format!("--errors names '{}', which is no operator of the model", quote(name))
    }));
    if let Some(more @ 1..) = unknown.len().checked_sub(MOST_UNKNOWN) {
        notes.push(format!("--errors has {more} more such names"));
    }
    marks.errors.retain(|name, _| graph.operator_by_name(name).is_some());
    let mut data = during("reading weights", || {
        let read = !matches!(file, File::Model { zeros: true, .. });
        Data::new(args.model.display().to_string(), graph, &marks, read)
    });
    match &file {
        File::Model { model, zeros } => {
            notes.extend(model.warnings().iter().map(ToString::to_string));
            notes.extend(plan(args, model, *zeros, &mut data)?);
        }
        File::Graph(_) => {}
    }
    if !args.json {
        warn_all(&notes);
    }
    data.notes = notes;
    let page = plutino_view::page(&data).map_err(|e| Failure::usage(format!("no page: {e}")))?;
    write(args, &page, data.notes, out)
}

/// What was read of the files.
enum File {
    /// A model, perhaps with weights of zeros.
    Model { model: Model, zeros: bool },
    /// The graph of a model that cannot be run.
    Graph(Graph),
}

impl File {
    fn graph(&self) -> &Graph {
        match self {
            Self::Model { model, .. } => model.graph(),
            Self::Graph(graph) => graph,
        }
    }
}

/// Reads as much as is there. Why it is not all goes to `notes`, and to `marks` where it is about
/// single operators.
fn load(
    path: &Path,
    files: &LoadArgs,
    notes: &mut Vec<String>,
    marks: &mut Marks,
) -> Result<File, Failure> {
    let all = files.options(files.load_options())?;
    let skip = LoadOptions { weights: Weights::Skip, ..files.load_options() };
    let skip = files.options(skip)?;
    let graph = |options: &ModelOptions| options.graph(path);
    let loaded = during(&format!("loading {}", path.display()), || Model::load_with(path, &all));
    match loaded {
        Ok(model) => Ok(File::Model { model, zeros: false }),
        Err(ModelError::Load(error @ LoadError::NoWeights { .. })) => {
            notes.push(format!("{error}: the plan is made with weights of zeros"));
            let mut graph = graph(&skip)?;
            let unread = graph.clone();
            match zeros(&mut graph).map(|()| Model::from_graph_with(graph, &skip)) {
                Some(Ok(model)) => Ok(File::Model { model, zeros: true }),
                Some(Err(error)) => Ok(File::Graph(undecoded(unread, &error, notes, marks))),
                None => {
                    notes.push("no plan: its weights would be too large".into());
                    Ok(File::Graph(unread))
                }
            }
        }
        Err(error @ (ModelError::Operators(_) | ModelError::Cycle { .. })) => {
            let graph = graph(&all).or_else(|_| graph(&skip))?;
            Ok(File::Graph(undecoded(graph, &error, notes, marks)))
        }
        Err(other) => Err(other.into()),
    }
}

/// Marks what cannot be run.
fn undecoded(
    graph: Graph,
    error: &ModelError,
    notes: &mut Vec<String>,
    marks: &mut Marks,
) -> Graph {
    notes.push(format!("no plan: {error}"));
    if let ModelError::Operators(list) = error {
        for kind in &list.kinds {
            for (_, op) in graph.operators_of(&kind.kind) {
                marks.unsupported.insert(op.name.clone(), "this type is not supported".into());
            }
        }
        for node in &list.nodes {
            marks.unsupported.insert(node.location.name.clone(), node.to_string());
        }
    }
    graph
}

/// Gives every weight zeros, which all share the same memory; none where one is too large.
fn zeros(graph: &mut Graph) -> Option<()> {
    let ids = graph.operator_ids().to_vec();
    let attributes = graph.operators().flat_map(|(_, op)| op.attrs.values());
    let largest = attributes.map(Attribute::byte_len).max().unwrap_or(0);
    let mut memory = Vec::new();
    if largest > MOST_ZEROS || memory.try_reserve_exact(largest).is_err() {
        return None;
    }
    memory.resize(largest, 0u8); // bounded: within what is reserved
    let whole = Attribute::new(plutino::ir::DType::U8, [largest], memory).ok()?;
    let whole = whole.data().ok()?;
    for id in ids {
        for attribute in graph.attrs_mut(id).ok()?.values_mut() {
            let len = attribute.byte_len();
            attribute.set_data(whole.slice(..len)).ok()?;
        }
    }
    Some(())
}

/// Adds the plan, and times. What went wrong is returned, but for wrong arguments and limits.
fn plan(args: &Args, model: &Model, zeros: bool, data: &mut Data) -> Result<Vec<String>, Failure> {
    let asked = !args.shapes.is_empty() || !args.files.is_empty();
    let soft = |failure: Failure| match failure {
        Failure::Usage(what) if !asked => Ok(vec![format!("no plan: {what}")]),
        Failure::Model(what) => Ok(vec![format!("no plan: {what}")]),
        other => Err(other),
    };
    let slots = inputs::slots(model);
    let feeds = match args.no_profile && args.files.is_empty() || zeros {
        true => inputs::specs(&args.shapes, &slots, Open::One).map(|specs| (specs, None)),
        false => args
            .session
            .reading(|| args.files.one(&slots, &args.shapes))
            .map(|tensors| (tensors.iter().map(Tensor::spec).collect(), Some(tensors))),
    };
    let (specs, tensors) = match feeds {
        Ok(feeds) => feeds,
        Err(failure) => return soft(failure),
    };
    let session = args.session.session(model)?;
    let plan = match during("planning", || session.plan(&specs)) {
        Ok(plan) => plan,
        Err(error) => return soft(error.into()),
    };
    during("inferring shapes", || data.add_unfused(model, &specs));
    data.add_plan(&plan);
    let mut notes = names::warnings(model, &plan);
    if let Some(tensors) = tensors.filter(|_| !args.no_profile) {
        match profile(&session, &tensors, args.runs) {
            Ok(times) => data.set_times(times),
            Err(Failure::Model(what)) => notes.push(format!("no times: {what}")),
            Err(other) => return Err(other),
        }
    }
    Ok(notes)
}

/// Times of a few runs.
fn profile(session: &Session, inputs: &[Tensor], runs: usize) -> Result<Times, Failure> {
    let bar = progress("running", (WARMUP + runs) as u64);
    let mut profiles = Vec::new();
    for i in 0..WARMUP + runs {
        let (_, profile) = session.profile(inputs)?;
        if i >= WARMUP {
            profiles.push(profile);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Times::of(runs, &faster_half(profiles)))
}

/// What `--errors` may hold.
#[derive(Deserialize)]
#[serde(untagged)]
enum Errors {
    /// As `plutino compare --json` prints it.
    Compared { values: Vec<ComparedValue> },
    /// By operator name; null is infinite.
    Named(BTreeMap<String, Option<f64>>),
}

/// A value that was compared.
#[derive(Deserialize)]
struct ComparedValue {
    operator: String,
    verdict: String,
    error: Option<ComparedError>,
}

#[derive(Deserialize)]
struct ComparedError {
    /// In parts of the largest magnitude; null is infinite.
    scaled: Option<f64>,
}

impl Errors {
    /// The largest error of each operator's values: none where it is infinite.
    fn by_operator(self) -> BTreeMap<String, Option<f64>> {
        let values = match self {
            Self::Named(errors) => return errors,
            Self::Compared { values } => values,
        };
        let mut errors = BTreeMap::new();
        for ComparedValue { operator, verdict, error } in values {
            let error = match error {
                Some(error) => error.scaled,
                None if verdict == "ok" => Some(0.0),
                // Of another shape, or not computed.
                None if verdict != "skipped" => None,
                None => continue,
            };
            let larger = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
            errors
                .entry(operator)
                .and_modify(|known| *known = larger(*known, error))
                .or_insert(error);
        }
        errors
    }
}

/// Reads `--errors`: none where an error is infinite.
fn errors(path: Option<&Path>) -> Result<BTreeMap<String, Option<f64>>, Failure> {
    let Some(path) = path else { return Ok(BTreeMap::new()) };
    let name = path.display();
    let text = plutino::ir::read_small(path, MOST_ERRORS)
        .map_err(|e| Failure::usage(format!("cannot read '{name}': {e}")))?;
    let wrong = |what: String| Failure::usage(format!("{name}: {what}"));
    let value: serde_json::Value = serde_json::from_slice(&text)
        .map_err(|e| wrong(format!("no JSON: {}", quote(&e.to_string()))))?;
    let errors = serde_json::from_value::<Errors>(value).map_err(|_| {
        wrong(
            "must be what `compare --json` printed, or an object of numbers by operator name"
                .into(),
        )
    })?;
    let errors = errors.by_operator();
    match errors.iter().find(|(_, error)| error.is_some_and(|e| e < 0.0)) {
        Some((operator, _)) => {
            Err(wrong(format!("the error of '{}' is below zero", quote(operator))))
        }
        None => Ok(errors),
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    page: String,
    bytes: usize,
    /// What was left out, and warnings of the model.
    notes: Vec<String>,
}

/// Writes the page where it is wanted, and says where that is.
fn write(args: &Args, page: &str, notes: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    let path = match &args.output {
        Some(path) if path.as_os_str() == "-" => {
            return match args.json {
                true => Err(Failure::usage("-o - prints the page: not with --json")),
                false => Ok(out.raw(page.as_bytes())?),
            };
        }
        Some(path) => path.clone(),
        None => default_output(&args.model),
    };
    write_file(&path, page.as_bytes())?;
    match args.json {
        true => out.json(&Report { page: path.display().to_string(), bytes: page.len(), notes }),
        false => Ok(writeln!(out, "{}: {}", path.display(), bytes(page.len() as u64))?),
    }
}

/// The model's name with another ending, in the current folder.
fn default_output(model: &Path) -> PathBuf {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".param").unwrap_or(&name);
    let stem = stem.strip_suffix(".pnnx").unwrap_or(stem);
    PathBuf::from(format!("{stem}.html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_called_as_the_model() {
        for model in ["a/net.pnnx.param", "net.param", "net.pnnx", "net"] {
            assert_eq!(default_output(Path::new(model)), Path::new("net.html"));
        }
    }

    #[test]
    fn zeros_share_their_memory() {
        let mut graph = Graph::parse(
            "7767517\n2 1\nnn.Linear a 0 1 0 @bias=(5)f32 @weight=(5,3)f32\npnnx.Output o 1 0 0\n",
        )
        .unwrap();
        zeros(&mut graph).unwrap();
        let attributes: Vec<_> = graph.operators().flat_map(|(_, op)| op.attrs.values()).collect();
        let start = |a: &Attribute| a.data().unwrap().as_ptr();
        assert_eq!(start(attributes[0]), start(attributes[1]));
        assert_eq!(attributes[1].data().unwrap()[..], [0; 60]);
    }
}

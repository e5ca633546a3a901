//! Models and sessions as the options of the command line want them.

use crate::failure::Failure;
use crate::names;
use crate::output::{during, note};
use plutino::cost::{Costs, Machine, Recorded};
use plutino::ir::{
    Definition, Definitions, Graph, LoadError, LoadOptions, SaveError, UnknownLimit, Weights,
    find_param,
};
use plutino::runtime::{knobs, save_definitions};
use plutino::tensor::Scope;
use plutino::tensor::alloc::Ledger;
use plutino::tensor::stop::Stop;
use plutino::{
    Context, DType, Dispatch, Isa, Limits, MemoryUse, Model, ModelError, ModelOptions, Placement,
    Precision, Session, SessionOptions, SizeLimit, SizeLimits, TensorError, WeightDtype,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Options of every command that runs a model.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    limits: LimitArgs,
    /// What to spend memory on
    #[arg(long, value_name = "USE", value_enum, default_value_t = MemoryArg::Fast)]
    memory: MemoryArg,
}

/// Options of every command that plans a model.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Execution")]
pub(crate) struct LimitArgs {
    /// Threads that compute [default: PLUTINO_THREADS, else the cores available]
    #[arg(short, long, value_name = "N", value_parser = parse_some)]
    threads: Option<usize>,
    #[command(flatten)]
    placing: PlaceArgs,
    #[command(flatten)]
    files: LoadArgs,
    /// Keep the f32 weights of linear layers as narrow floats (half of the memory), integers of 8
    /// bits (a quarter) or levels of 4 bits (a sixth) with scales: faster where each is read once
    /// (single rows, steps of a decoder); sums stay f32
    #[arg(long, value_name = "bf16|f16|int8|nf4", value_parser = parse_weights)]
    weights: Option<WeightDtype>,
    /// How accurate products of f32 are at least: "medium" allows bf16, which is faster where the
    /// CPU multiplies it [default: highest]
    #[arg(long, value_name = "highest|high|medium", value_parser = parse_precision)]
    precision: Option<Precision>,
    /// The same for operators of a name, scope (layer1) or type (nn.Conv2d) alone; may be given
    /// several times, the last one that means an operator counts
    #[arg(long, value_name = "WHAT=PRECISION", value_parser = parse_precision_of)]
    precision_of: Vec<(String, Precision)>,
    /// Compute convolutions without Winograd's algorithms: slower, with the rounding errors of
    /// plain sums
    #[arg(long)]
    no_winograd: bool,
    /// Give every row of a batch the bits that it has alone, whatever the batch
    #[arg(long)]
    batch_invariant: bool,
    /// How operators are handed to threads: one after the other, independent ones at the same time
    /// where that pays, or wherever there are any [default: PLUTINO_DISPATCH, else by-cost]
    #[arg(long, value_name = "in-turn|by-cost|together", value_parser = parse_dispatch)]
    dispatch: Option<Dispatch>,
    /// Estimate what operators cost by what `profile --record` measured
    #[arg(long, value_name = "FILE.json")]
    costs: Option<PathBuf>,
    /// Estimate what operators cost by figures of this machine, which are measured once and kept
    /// (measured), or by those of a file [default: built-in figures of the instruction set]
    #[arg(long, value_name = "measured|FILE.json")]
    machine: Option<PathBuf>,
    /// Leave out a pass over the graph, altogether or for one operator; may be given several times,
    /// or with commas between (`plutino info MODEL --passes` lists them)
    #[arg(long, value_name = "PASS[@OPERATOR]", value_delimiter = ',')]
    disable: Vec<String>,
    /// Leave out the passes that come after this one
    #[arg(long, value_name = "PASS")]
    stop_after: Option<String>,
}

/// On which cores a model computes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Compute in contexts, groups of cores with threads of their own: so many of all cores (2), or
    /// these (0-3/4-7). Operators are placed by cost: contexts are stages that follow each other
    #[arg(long, value_name = "N|CORES/CORES/...", conflicts_with = "threads")]
    contexts: Option<ContextsArg>,
    /// Place operators of a name, scope (layer1) or type (nn.Conv2d) in a context, numbered from 0;
    /// may be given several times, the last one counts
    #[arg(long, value_name = "WHAT=N", value_parser = parse_place, requires = "contexts")]
    place: Vec<(String, usize)>,
    /// Keep operators of these names, scopes or types in one context; may be given several times
    #[arg(long, value_name = "WHAT,WHAT,...", requires = "contexts")]
    together: Vec<String>,
}

/// Contexts on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ContextsArg {
    Groups(usize),
    Cores(Vec<Vec<usize>>),
}

impl std::str::FromStr for ContextsArg {
    type Err = String;

    /// A number is one of groups; anything else are lists of cores, as the system writes them.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(groups) = text.parse() {
            return Ok(Self::Groups(groups));
        }
        let lists = text.split('/').map(Context::parse_cores).collect::<Option<Vec<_>>>();
        let lists = lists.filter(|lists| lists.iter().all(|cores| !cores.is_empty()));
        lists.map(Self::Cores).ok_or_else(|| {
            "expected a number of groups, or cores of each as in 0-3/4-7 or 0,2/1,3".to_owned()
        })
    }
}

fn parse_place(text: &str) -> Result<(String, usize), String> {
    let (what, context) = text.rsplit_once('=').ok_or("expected WHAT=N")?;
    let context = context.parse().map_err(|_| "the context is a number, counted from 0")?;
    Ok((what.to_owned(), context))
}

impl PlaceArgs {
    fn place(&self, options: SessionOptions) -> Result<SessionOptions, Failure> {
        let contexts = match &self.contexts {
            None => return Ok(options),
            Some(ContextsArg::Groups(groups)) => Context::split(*groups)?,
            Some(ContextsArg::Cores(lists)) => {
                lists.iter().map(|cores| Context::on_cores(cores)).collect::<Result<_, _>>()?
            }
        };
        let place = |placement: Placement, (what, context): &(String, usize)| {
            placement.place(what.clone(), *context)
        };
        let placement = self.place.iter().fold(Placement::new(), place);
        let together = |placement: Placement, group: &String| placement.together(group.split(','));
        let placement = self.together.iter().fold(placement, together);
        Ok(options.with_contexts(contexts).with_placement(placement))
    }
}

/// Options of every command that loads a model.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LoadArgs {
    /// Refuse to load, plan and run where that takes more memory than this, packed weights
    /// included (500000000, 500MB, 2GB), and to read larger inputs; pages of the mapped file do not
    /// count
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_memory: Option<usize>,
    /// Give up after this time, from the start of the command on
    #[arg(long = "timeout", value_name = "SECONDS", value_parser = parse_deadline)]
    deadline: Option<Instant>,
    /// Raise or lower a limit on the size of models, such as words=4000000; may be given several
    /// times (text-bytes, words, operators, operands, arguments, parameter-bytes,
    /// expression-parts, rank, planned-bytes)
    #[arg(long, value_name = "NAME=N", value_parser = parse_limit)]
    limit: Vec<(SizeLimit, usize)>,
    /// Let another model say what operators of a type are, such as a module that pnnx kept whole
    /// (moduleop=); of a folder, each .param file defines the type of its name. May be given
    /// several times; the last one counts. A folder MODEL.definitions is read without this
    #[arg(long, value_name = "TYPE=MODEL|FOLDER", value_parser = DefineArg::parse)]
    define: Vec<DefineArg>,
}

/// A definition on the command line.
#[derive(Debug, Clone)]
pub(crate) enum DefineArg {
    Type { kind: String, path: PathBuf },
    Folder(PathBuf),
}

impl DefineArg {
    fn parse(text: &str) -> Result<Self, String> {
        let folder = Path::new(text);
        match text.split_once('=') {
            _ if folder.is_dir() => Ok(Self::Folder(folder.to_owned())),
            Some((kind, path)) if !kind.is_empty() && !path.is_empty() => {
                Ok(Self::Type { kind: kind.to_owned(), path: path.into() })
            }
            _ => Err("expected TYPE=MODEL, or a folder".to_owned()),
        }
    }
}

impl LoadArgs {
    fn sizes(&self) -> SizeLimits {
        self.limit.iter().fold(SizeLimits::default(), |sizes, &(limit, n)| sizes.with(limit, n))
    }

    /// What --timeout leaves to do work in.
    pub(crate) fn limits(&self) -> Limits {
        Limits { deadline: self.deadline, ..Limits::default() }
    }

    /// Does the work of a command within --timeout: all that this thread plans, runs and computes
    /// from numbers ends with it.
    pub(crate) fn within<T>(
        &self,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.deadline.is_none() {
            return work();
        }
        let stop = Stop::new(|| false, self.deadline);
        let _scope = Scope::current().ended_by(&stop).enter();
        let result = work()?;
        // What was printed may be a part of a result where nobody asked.
        match stop.seen() {
            Some(_) => Err(TensorError::Stopped.into()),
            None => Ok(result),
        }
    }

    /// How a model is loaded, within the limits: files are mapped, since whoever runs the command
    /// leaves them alone meanwhile.
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            mmap: true,
            limits: self.limits(),
            memory_budget: self.max_memory,
            sizes: self.sizes(),
            ..LoadOptions::default()
        }
    }

    /// [`ModelOptions`] with the definitions that are asked for, read as `load` says.
    pub(crate) fn options(&self, load: LoadOptions) -> Result<ModelOptions, Failure> {
        let mut definitions = Definitions::new();
        for define in &self.define {
            match define {
                DefineArg::Type { kind, path } => {
                    let definition = Definition::load(path, &load).map_err(ModelError::from)?;
                    definitions.define(kind.clone(), definition);
                }
                DefineArg::Folder(folder) => {
                    let read = definitions.load_folder(folder, &load).map_err(ModelError::from)?;
                    if read == 0 {
                        let folder = folder.display();
                        return Err(Failure::usage(format!("no .param file in folder '{folder}'")));
                    }
                }
            }
        }
        let options = ModelOptions::from(load);
        match definitions.is_empty() {
            true => Ok(options),
            false => Ok(options.with_definitions(definitions)),
        }
    }
}

fn parse_dispatch(text: &str) -> Result<Dispatch, String> {
    let names = Dispatch::ALL.map(Dispatch::name).join(", ");
    Dispatch::named(text).ok_or_else(|| format!("expected one of {names}"))
}

fn parse_limit(text: &str) -> Result<(SizeLimit, usize), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=N")?;
    let limit = name.parse().map_err(|e: UnknownLimit| e.to_string())?;
    let bytes = matches!(limit, SizeLimit::TextBytes | SizeLimit::ParameterBytes)
        || limit == SizeLimit::PlannedBytes;
    let value = match bytes {
        true => parse_bytes(value)?,
        false => parse_number(value).ok_or("a whole number, as in words=4000000 or words=4e6")?,
    };
    match limit.largest() {
        largest if value > largest => Err(format!("{limit} is {largest} at most")),
        _ => Ok((limit, value)),
    }
}

pub(crate) fn parse_weights(name: &str) -> Result<WeightDtype, String> {
    WeightDtype::named(name).ok_or_else(|| WeightDtype::NAMES.join(", "))
}

pub(crate) fn parse_precision(name: &str) -> Result<Precision, String> {
    Precision::named(name).ok_or_else(|| "highest, high or medium".into())
}

fn parse_precision_of(text: &str) -> Result<(String, Precision), String> {
    let (what, name) = text.rsplit_once('=').ok_or("expected WHAT=PRECISION")?;
    Ok((what.to_owned(), parse_precision(name)?))
}

/// [`MemoryUse`] on the command line.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum MemoryArg {
    /// Larger weights and scratch memory where they pay
    Fast,
    /// Nothing larger than the model's own weights
    Low,
}

/// An instruction set on the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IsaArg(pub(crate) Isa);

impl std::str::FromStr for IsaArg {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Isa::named(name).map(Self).ok_or_else(|| {
            let names: Vec<String> = Isa::available().iter().map(ToString::to_string).collect();
            format!("this machine has {}", names.join(", "))
        })
    }
}

impl From<MemoryArg> for MemoryUse {
    fn from(arg: MemoryArg) -> Self {
        match arg {
            MemoryArg::Fast => Self::Fast,
            MemoryArg::Low => Self::Low,
        }
    }
}

impl SessionArgs {
    /// Loads a model, within the limits.
    pub(crate) fn load(&self, path: &Path) -> Result<Model, Failure> {
        let files = self.files();
        load_with(path, &files.options(files.load_options())?)
    }

    pub(crate) fn session(&self, model: &Model) -> Result<Session, Failure> {
        self.limits.session(model, self.memory)
    }

    /// Reads what a run needs, within --max-memory: what is compressed may become a thousand times
    /// as large.
    pub(crate) fn reading<T>(
        &self,
        read: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let ledger = Ledger::new(self.limits.files.max_memory);
        let _scope = Scope::current().charged_to(&ledger).enter();
        read()
    }

    pub(crate) fn options(&self) -> Result<SessionOptions, Failure> {
        self.limits.options(self.memory)
    }

    pub(crate) fn files(&self) -> &LoadArgs {
        self.limits.files()
    }
}

impl LimitArgs {
    pub(crate) fn files(&self) -> &LoadArgs {
        &self.files
    }

    pub(crate) fn session(&self, model: &Model, memory: MemoryArg) -> Result<Session, Failure> {
        names::check_environment(&[model])?;
        Ok(model.session(self.options(memory)?)?)
    }

    /// By which figures costs are estimated.
    pub(crate) fn estimates(&self) -> Result<Costs, Failure> {
        let mut costs = Costs::default();
        if let Some(file) = &self.costs {
            costs = costs.with_recorded(Recorded::read(file)?);
        }
        match &self.machine {
            Some(name) if name.as_os_str() == "measured" => {
                let isa = knobs::ISA.get().and_then(|name| Isa::named(&name)).unwrap_or_default();
                let all = || std::thread::available_parallelism().map_or(1, |n| n.get());
                let threads = knobs::THREADS.get().and_then(|n| n.parse().ok());
                let threads = self.threads.or(threads).unwrap_or_else(all);
                let measured = || Machine::measured(isa, threads);
                costs = costs.with_machine(during("measuring the machine", measured)?);
            }
            Some(file) => costs = costs.with_machine(Machine::read(file)?),
            None => {}
        }
        Ok(costs)
    }

    fn options(&self, memory: MemoryArg) -> Result<SessionOptions, Failure> {
        let mut options = SessionOptions::default();
        options.costs = self.estimates()?;
        options.threads = self.threads;
        options.memory_budget = self.files.max_memory;
        options.memory = memory.into();
        options.weights = self.weights.unwrap_or_default();
        options.precision = self.precision.unwrap_or_default();
        options.precision_of.clone_from(&self.precision_of);
        options.winograd = !self.no_winograd;
        options.batch_invariant = self.batch_invariant;
        options.dispatch = self.dispatch;
        options.passes_off.extend(self.disable.iter().cloned());
        options.stop_after.clone_from(&self.stop_after);
        self.placing.place(options)
    }
}

/// Loads a model, with a sign of life on a terminal.
fn load_with(path: &Path, options: &ModelOptions) -> Result<Model, Failure> {
    let load = || Model::load_with(path, options);
    Ok(during(&format!("loading {}", path.display()), load)?)
}

/// What zeros may stand in for where --max-memory does not say: they are packed as weights are.
const MOST_STAND_INS: usize = 8 << 30;

impl LimitArgs {
    /// Loads a model; where its weights are missing, zeros stand in for them.
    pub(crate) fn load_or_stand_in(&self, path: &Path) -> Result<Model, Failure> {
        let options = self.files.options(self.files.load_options())?;
        match during(&format!("loading {}", path.display()), || Model::load_with(path, &options)) {
            Err(ModelError::Load(error @ LoadError::NoWeights { .. })) => {
                let skip = LoadOptions { weights: Weights::Skip, ..self.files.load_options() };
                let most = self.files.max_memory.unwrap_or(MOST_STAND_INS);
                let options = self.files.options(skip)?.with_stand_ins(most);
                let model = Model::load_with(path, options)?;
                note(&format!("{error}; zeros stand in for them"));
                let integers = integer_constants(&model);
                if !integers.is_empty() {
                    note(&format!(
                        "shapes may depend on constants whose values are not known: {}",
                        integers.join(", ")
                    ));
                }
                Ok(model)
            }
            other => Ok(other?),
        }
    }
}

/// Writes a model: `OUT.pnnx.param`, or that file itself, and the weights beside it. Returns the
/// path of the first.
///
/// # Errors
/// Where that is the model in `source`, which would be lost, or a folder.
pub(crate) fn save(graph: &Graph, source: &Path, output: &Path) -> Result<PathBuf, Failure> {
    if output.as_os_str().to_string_lossy().ends_with(std::path::is_separator) {
        let what = "names a folder: give the files a name in it";
        return Err(Failure::Usage(format!("-o {}: {what}", output.display())));
    }
    let param = match output.extension().is_some_and(|extension| extension == "param") {
        true => output.to_owned(),
        false => {
            let mut name = output.as_os_str().to_owned();
            name.push(".pnnx.param");
            name.into()
        }
    };
    let source = find_param(source).ok().and_then(|source| source.canonicalize().ok());
    if source.is_some() && source == param.canonicalize().ok() {
        let what = "is the model that is read: give another name";
        return Err(Failure::Usage(format!("-o {}: {} {what}", output.display(), param.display())));
    }
    let saved = graph.save(&param, param.with_extension("bin"));
    saved.map_err(not_saved)?;
    Ok(param)
}

fn not_saved(error: SaveError) -> Failure {
    match error {
        SaveError::Io { .. } | SaveError::Write(_) => Failure::usage(error.to_string()),
        _ => Failure::Model(error.to_string()),
    }
}

/// [`save`] that writes those of the model's definitions beside it that the graph still needs: the
/// bodies of its branches and loops. Returns how many there are, too.
pub(crate) fn save_whole(
    graph: &Graph,
    options: &ModelOptions,
    source: &Path,
    output: &Path,
) -> Result<(PathBuf, usize), Failure> {
    let path = save(graph, source, output)?;
    let count = match &options.definitions {
        Some(definitions) => save_definitions(graph, definitions, &path).map_err(not_saved)?,
        None => 0,
    };
    Ok((path, count))
}

/// The end of the line that says what was written.
pub(crate) fn and_definitions(count: usize) -> String {
    match count {
        0 => String::new(),
        n => format!(", and {}", crate::output::count(n, "definition")),
    }
}

/// Constants that may be sizes or indices.
fn integer_constants(model: &Model) -> Vec<String> {
    let constants = model.graph().operators_of("pnnx.Attribute");
    let integer = |dtype: plutino::ir::DType| {
        let dtype = plutino::ops::dtype_of(dtype);
        !dtype.is_float() && !dtype.is_complex() && dtype != DType::Bool
    };
    let constants = constants.filter(|(_, op)| op.attrs.values().any(|a| integer(a.dtype())));
    constants.map(|(_, op)| op.name.clone()).collect()
}

fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: usize = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        _ => return Err("the units are B, kB, MB and GB".into()),
    };
    let bytes = parse_number(digits.trim()).and_then(|n| n.checked_mul(unit));
    bytes.ok_or_else(|| "a number of bytes, as in 500MB".into())
}

/// A whole number, also as powers of ten are written: 1e6.
fn parse_number(text: &str) -> Option<usize> {
    let power = || {
        let (digits, zeros) = text.split_once(['e', 'E'])?;
        let factor = 10usize.checked_pow(zeros.parse().ok()?)?;
        digits.parse::<usize>().ok()?.checked_mul(factor)
    };
    text.parse().ok().or_else(power)
}

/// For clap: of what there must be some.
pub(crate) fn parse_some(text: &str) -> Result<usize, String> {
    parse_whole(text).ok().filter(|n| *n > 0).ok_or_else(|| "a whole number of at least 1".into())
}

/// For clap: of what there may be none.
pub(crate) fn parse_whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "a whole number, not negative".into())
}

/// An error that is allowed: NaN would allow any, and none is below zero.
pub(crate) fn parse_tolerance(text: &str) -> Result<f64, String> {
    let error = text.parse().ok().filter(|error| *error >= 0.0);
    error.ok_or_else(|| "a number of at least 0".into())
}

/// A positive number of seconds from now on. Arguments are read as soon as the command starts.
fn parse_deadline(text: &str) -> Result<Instant, String> {
    let seconds = text.parse().ok().filter(|s| *s > 0.0);
    let time = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    let deadline = time.and_then(|time| Instant::now().checked_add(time));
    deadline.ok_or_else(|| "a positive number of seconds".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_and_wishes() {
        let contexts = |text: &str| text.parse::<ContextsArg>();
        assert_eq!(contexts("2"), Ok(ContextsArg::Groups(2)));
        assert_eq!(contexts("0-1/2,4"), Ok(ContextsArg::Cores(vec![vec![0, 1], vec![2, 4]])));
        for bad in ["", "a", "0-1/", "/", "3-1/0", "0-99999999999/1"] {
            assert!(contexts(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_place("a.b=1"), Ok(("a.b".into(), 1)));
        assert!(parse_place("a").is_err() && parse_place("a=b").is_err());
    }

    #[test]
    fn precisions() {
        assert_eq!(parse_precision_of("a.b=high"), Ok(("a.b".into(), Precision::High)));
        assert!(parse_precision_of("a").is_err() && parse_precision_of("a=low").is_err());
    }

    #[test]
    fn limits() {
        assert_eq!(parse_limit("words=1e6"), Ok((SizeLimit::Words, 1_000_000)));
        assert_eq!(
            parse_limit("planned-bytes=2e3MB"),
            Ok((SizeLimit::PlannedBytes, 2_000_000_000))
        );
        assert_eq!(parse_limit("rank=64"), Ok((SizeLimit::Rank, 64)));
        assert_eq!(parse_limit("rank=65"), Err("rank is 64 at most".into()));
        for bad in ["words=", "words=-1", "words=1.5", "words=1e", "words=e6", "words=1e30"] {
            assert!(parse_limit(bad).unwrap_err().contains("a whole number"), "{bad}");
        }
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!(parse_bytes("500MB"), Ok(500_000_000));
        assert_eq!(parse_bytes("12"), Ok(12));
        assert_eq!(parse_bytes("2 gb"), Ok(2_000_000_000));
        for bad in ["", "MB", "5XB", "-1", "99999999999999999999", "99999999999999999GB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        let (before, half) = (Instant::now(), Duration::from_millis(500));
        let deadline = parse_deadline("0.5").unwrap();
        assert!(before + half <= deadline && deadline <= Instant::now() + half);
        for bad in ["0", "-1", "x", "inf", "nan", "1e300", "1e19"] {
            assert!(parse_deadline(bad).is_err(), "{bad}");
        }
    }
}

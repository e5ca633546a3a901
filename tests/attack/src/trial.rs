//! Loads, plans and runs a model that may be anything, and looks at what comes of it.

use crate::chance::Chance;
use crate::inputs;
use plutino::ir::{Graph, LoadError, LoadOptions, OperatorId};
use plutino::runtime::ModelOptions;
use plutino::{
    Isa, Limits, MemoryUse, Model, ModelError, Request, Session, SessionError, SessionOptions,
    Tensor,
};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// What a trial may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Memory of the session, in bytes.
    pub budget: usize,
    /// From the first byte to the end of the run.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { budget: 64 << 20, time: Duration::from_secs(1) }
    }
}

/// How far a model came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The files are refused.
    Unread,
    /// Operators are refused.
    Undecoded,
    /// Inputs would be larger than a trial makes.
    NotFed,
    /// What the session was given is refused: shapes, types, parameters.
    NotPlanned,
    /// An operator refuses its data.
    Failed,
    /// The time was over.
    Late,
    /// The memory budget does not suffice.
    Large,
    /// There are results.
    Ran,
}

impl Outcome {
    /// All, in the order in which they can come.
    pub const ALL: [Self; 8] = [
        Self::Unread,
        Self::Undecoded,
        Self::NotFed,
        Self::NotPlanned,
        Self::Failed,
        Self::Late,
        Self::Large,
        Self::Ran,
    ];

    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unread => "file refused",
            Self::Undecoded => "operator refused",
            Self::NotFed => "inputs too large",
            Self::NotPlanned => "shapes refused",
            Self::Failed => "data refused",
            Self::Late => "deadline",
            Self::Large => "budget",
            Self::Ran => "results",
        }
    }
}

/// Where the weights of a model come from.
#[derive(Debug, Clone)]
pub enum Weights {
    /// The bytes of a `.bin` file.
    File(Vec<u8>),
    /// Whatever the text asks for is made of these bytes, over and over.
    Made(Vec<u8>),
}

/// Weights that are made are no larger than this, all together; models that want more have none.
const MOST_WEIGHTS: usize = 8 << 20;

/// Bytes of a line of a message beyond which it quotes too much.
const LONG_LINE: usize = 1500;

/// Types whose results differ from run to run.
const RANDOM: &[&str] =
    &["rand", "dropout", "Dropout", "bernoulli", "normal", "multinomial", "exponential", "empty"];

/// Loads, plans and runs. The first word of a fault says of which kind it is.
///
/// # Errors
/// What must not be: an internal error, a message that nobody should print, other bits in a second
/// run.
pub fn attempt(
    text: &[u8],
    weights: &Weights,
    given: &[Tensor],
    definitions: &[(String, Vec<u8>)],
    chance: &mut Chance,
    bounds: Bounds,
) -> Result<Outcome, String> {
    let deadline = Instant::now() + bounds.time;
    let limits = Limits { deadline: Some(deadline), ..Limits::default() };
    let graph = match weights {
        Weights::File(bin) => Graph::from_bytes(text, bin.clone()),
        Weights::Made(_) => match std::str::from_utf8(text) {
            Ok(text) => Graph::parse(text)
                .map_err(|error| LoadError::Param { file: "made".into(), error: Box::new(error) }),
            Err(_) => Graph::from_bytes(text, Vec::new()),
        },
    };
    let mut graph = match graph {
        Ok(graph) => graph,
        Err(error) => return fit(&error).map(|()| Outcome::Unread),
    };
    if let Weights::Made(bytes) = weights {
        fill(&mut graph, bytes);
    }
    let random = graph.operators().any(|(_, op)| RANDOM.iter().any(|word| op.kind.contains(word)));
    let load = LoadOptions { limits: limits.clone(), ..LoadOptions::default() };
    let mut options = ModelOptions::default().with_load(load);
    for (kind, body) in definitions {
        let mut body = match Graph::from_bytes(body, Vec::new()) {
            Ok(body) => body,
            // Its weights are in no file: what is wrong with the text is told without them.
            Err(LoadError::NoWeights { .. } | LoadError::Bin { .. }) => {
                match std::str::from_utf8(body).map(Graph::parse) {
                    Ok(Ok(body)) => body,
                    _ => return Ok(Outcome::Unread),
                }
            }
            Err(error) => return fit(&error).map(|()| Outcome::Unread),
        };
        fill(&mut body, kind.as_bytes());
        options = options.define(kind.as_str(), body);
    }
    let model = match Model::from_graph_with(graph, options) {
        Ok(model) => model,
        Err(error @ ModelError::Interrupted { .. }) => return fit(&error).map(|()| Outcome::Late),
        Err(error) if error.is_limit() => return fit(&error).map(|()| Outcome::Large),
        Err(error) => return fit(&error).map(|()| Outcome::Undecoded),
    };
    let tensors = match inputs::made(&model, given, chance) {
        Ok(tensors) => tensors,
        Err(error) => return fit(&error).map(|()| Outcome::NotFed),
    };
    let session = match model.session(self::options(chance, bounds.budget)) {
        Ok(session) => session,
        Err(error) => return fit(&error).map(|()| Outcome::NotPlanned),
    };
    let specs: Vec<_> = tensors.iter().map(Tensor::spec).collect();
    if let Err(error) = session.plan_within(&specs, &limits) {
        return ended(&error, Outcome::NotPlanned);
    }
    let first = match run(&model, &session, &tensors, deadline) {
        Ok(outputs) => outputs,
        Err(error) => return ended(&error, Outcome::Failed),
    };
    if !random && chance.once_in(4) {
        // The arena holds what the first run left there.
        match run(&model, &session, &tensors, deadline) {
            Ok(second) => same(&first, &second)?,
            Err(error @ SessionError::Deadline { .. }) => return ended(&error, Outcome::Late),
            Err(error) => return Err(format!("unlike: the second run fails: {error}")),
        }
    }
    Ok(Outcome::Ran)
}

fn run(
    model: &Model,
    session: &Session,
    tensors: &[Tensor],
    deadline: Instant,
) -> Result<Vec<Tensor>, SessionError> {
    let fed = model.inputs().iter().zip(tensors);
    let request = Request::new().deadline(deadline);
    let request = fed.fold(request, |request, (input, x)| request.feed(input.name.as_str(), x));
    let all = model.outputs().iter();
    session.run_with(&all.fold(request, |request, output| request.fetch(output.name.as_str())))
}

fn options(chance: &mut Chance, budget: usize) -> SessionOptions {
    let mut options = SessionOptions::default().with_threads(1).with_memory_budget(budget);
    if chance.once_in(8) {
        options = options.without_passes();
    }
    if chance.once_in(8) {
        options = options.with_memory(MemoryUse::Low);
    }
    if chance.once_in(8) {
        let sets = Isa::available();
        options = options.with_isa(chance.one(&sets).copied().unwrap_or(Isa::PORTABLE));
    }
    options
}

/// What an error of a session means.
fn ended(error: &SessionError, otherwise: Outcome) -> Result<Outcome, String> {
    fit(error)?;
    Ok(match error {
        SessionError::Deadline { .. } => Outcome::Late,
        SessionError::Cancelled { .. } => return Err(format!("unasked: {error}")),
        error if error.is_limit() => Outcome::Large,
        _ => otherwise,
    })
}

/// Whether a message may be printed.
///
/// # Errors
/// What is wrong with it.
pub fn fit(error: &dyn Display) -> Result<(), String> {
    let message = error.to_string();
    let brief: String = message.chars().take(300).collect();
    if message.contains("internal:") {
        return Err(format!("internal: {brief}"));
    }
    if message.is_empty() {
        return Err("message: none at all".into());
    }
    if let Some(line) = message.lines().find(|line| line.len() > LONG_LINE) {
        return Err(format!("message: a line of {} bytes: {brief}", line.len()));
    }
    if message.chars().any(|c| c.is_control() && c != '\n') {
        return Err(format!("message: control characters: {brief:?}"));
    }
    Ok(())
}

fn same(first: &[Tensor], second: &[Tensor]) -> Result<(), String> {
    let bits = |(a, b): (&Tensor, &Tensor)| a.spec() == b.spec() && a.as_bytes() == b.as_bytes();
    if first.len() == second.len() && first.iter().zip(second).all(bits) {
        return Ok(());
    }
    Err("unlike: a second run of the session has other bits".into())
}

/// Makes weights for all that have none, unless they would be too large.
fn fill(graph: &mut Graph, from: &[u8]) {
    let sizes = graph.operators().flat_map(|(_, op)| op.attrs.values()).map(|attr| attr.byte_len());
    if sizes.fold(0, usize::saturating_add) > MOST_WEIGHTS {
        return;
    }
    let ids: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
    for id in ids {
        let Ok(attrs) = graph.attrs_mut(id) else { continue };
        for attr in attrs.values_mut().filter(|attr| !attr.is_loaded()) {
            // As long as it must be: nothing can be wrong with it.
            let _ = attr.set_data(made(attr.dtype(), attr.byte_len(), from));
        }
    }
}

/// Numbers of moderate size for floats, bytes as they come for the rest.
fn made(dtype: plutino::ir::DType, bytes: usize, from: &[u8]) -> Vec<u8> {
    let small =
        |i: usize| f32::from(from.get(i % from.len().max(1)).copied().unwrap_or(1)) / 128.0 - 1.0;
    let count = bytes / dtype.size_of().max(1);
    match dtype {
        plutino::ir::DType::F32 => (0..count).flat_map(|i| small(i).to_le_bytes()).collect(),
        plutino::ir::DType::F64 => {
            (0..count).flat_map(|i| f64::from(small(i)).to_le_bytes()).collect()
        }
        plutino::ir::DType::I64 => {
            (0..count).flat_map(|i| ((small(i) * 8.0) as i64).to_le_bytes()).collect()
        }
        plutino::ir::DType::Bool => (0..bytes).map(|i| u8::from(small(i) > 0.0)).collect(),
        _ => from.iter().copied().chain([1]).cycle().take(bytes).collect(),
    }
}

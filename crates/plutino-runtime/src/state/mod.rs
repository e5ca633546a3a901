//! Values that live from one run to the next: outputs that become inputs.
//!
//! Nothing is copied: the tensor that a run made is what the next one reads, and the one that the
//! run before made is written over by the next. So two buffers take turns for each value.

mod cache;
mod error;
mod run;

pub use error::StateError;

use crate::load::model::{Inner, Model};
use crate::open;
use crate::plan::net::ValueId;
use crate::plan::report::MemoryReport;
use crate::run::bind;
use crate::{Plan, SessionError};
use cache::Cache;
use plutino_ir::{Dim, TensorType};
use plutino_tensor::{DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// What is carried from each run to the next: outputs of a run that are inputs of the one after it,
/// such as the hidden state of a recurrent cell or the keys and values of a decoder.
///
/// A session may have any number of states, one for each stream of data, and runs them in any
/// order, from any threads; a state belongs to the model, so all sessions of a model can run it.
/// Cloning a state branches off: both share what is there and change nothing of each other.
///
/// ```
/// use plutino_runtime::{Model, SessionOptions};
/// use plutino_tensor::Tensor;
/// # use plutino_ops as _;
///
/// // The sum of everything so far.
/// let model = Model::from_graph(plutino_ir::Graph::parse(
///     "7767517
///      5 4
///      pnnx.Input      in0  0 1 x               #x=(2)f32
///      pnnx.Input      in1  0 1 before          #before=(2)f32
///      pnnx.Expression sum  2 1 x before after  expr=add(@0,@1) #after=(2)f32
///      nn.ReLU         relu 1 1 after y
///      pnnx.Output     out0 2 0 after y",
/// )?)?;
/// let session = model.session(SessionOptions::default())?;
/// let mut state = session.state();
/// state.carry("after", "before")?;
/// for (x, sum) in [(1.0f32, 1.0f32), (-5.0, -4.0), (6.0, 2.0)] {
///     let y = session.run_with_state(&mut state, &[Tensor::from_slice(&[x, x], [2])?])?;
///     assert_eq!(y[0].as_slice::<f32>()?, [sum.max(0.0); 2]);
/// }
/// assert_eq!(state.get("before")?.unwrap().as_slice::<f32>()?, [2.0, 2.0]);
/// state.reset(); // back to zeros
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct State {
    model: Model,
    carries: Vec<Carry>,
}

/// One value.
#[derive(Clone)]
struct Carry {
    output: ValueId,
    input: ValueId,
    /// Names of the operands.
    from: Arc<str>,
    to: Arc<str>,
    /// What the file records of `to`.
    recorded: TensorType,
    /// What the first run is fed with; none where nobody said.
    start: Option<Start>,
    /// The dimension in which the output is the input and more, as far as the graph tells.
    grows: Option<usize>,
    /// What the next run is fed with; none before the first.
    value: Option<Held>,
    /// What is not needed any more: its memory is written over.
    spare: Option<Held>,
}

/// A value, in memory of the state.
#[derive(Clone)]
enum Held {
    Tensor(Tensor),
    /// Runs append to it where it lies.
    Cache(Cache),
}

impl Held {
    /// A copy of a cache, else the tensor itself.
    fn to_tensor(&self) -> Result<Tensor, SessionError> {
        match self {
            Self::Tensor(tensor) => Ok(tensor.clone()),
            Self::Cache(cache) => Ok(cache.to_tensor()?),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.as_bytes().len(),
            Self::Cache(cache) => cache.bytes(),
        }
    }
}

/// What the first run is fed with.
#[derive(Debug, Clone)]
enum Start {
    Zeros(TensorSpec),
    Given(Tensor),
}

impl State {
    pub(crate) fn new(model: &Model) -> Self {
        Self { model: model.clone(), carries: Vec::new() }
    }

    /// Lets every run take for `input` what the run before it made for `output`.
    ///
    /// Both are operands of the model, by the names in the file or by those of the operators that
    /// make them, or its outputs and inputs by position: `out0`, `in1`. Positions count those of
    /// [`Model::outputs`] and [`Model::inputs`].
    ///
    /// The first run takes zeros where the file records one shape for both; nothing, in the
    /// dimension that grows, where it records shapes that differ in one dimension, or the output is
    /// a concatenation of the input and something else (a cache). In all other cases it must be
    /// told ([`State::start`], [`State::start_empty`]).
    ///
    /// A cache lies in memory with room for more, and runs append to it where it lies, if it is a
    /// concatenation that attention alone reads, and that is not fetched besides.
    ///
    /// # Errors
    /// Where there is no such operand, it is carried to already, or dtypes or shapes that the file
    /// records exclude each other.
    pub fn carry(&mut self, output: &str, input: &str) -> Result<&mut Self, SessionError> {
        let model = &self.model.inner;
        let from = bind::operand(model, output)?;
        let to = bind::operand(model, input)?;
        let name = |id: ValueId| operand(model, id).map_or(String::new(), |(name, _)| name);
        let (from_name, to_name) = (name(from), name(to));
        if let Some(earlier) = self.carries.iter().find(|c| c.input == to) {
            let (first, second) = (earlier.from.to_string(), from_name);
            return Err(StateError::CarriedTwice { input: to_name, first, second }.into());
        }
        let recorded = |id: ValueId| operand(model, id).map(|(_, ty)| ty).unwrap_or_default();
        let (made, fed) = (recorded(from), recorded(to));
        if let (Some(made), Some(fed)) = (dtype(&made), dtype(&fed))
            && made != fed
        {
            let (input, from) = (to_name, from_name);
            return Err(StateError::DType { input, expected: fed, from, found: made }.into());
        }
        let Some(grows) = difference(&made, &fed) else {
            let (expected, found) = (fed.to_string(), made.to_string());
            return Err(
                StateError::Shape { input: to_name, expected, from: from_name, found }.into()
            );
        };
        let rank = fed.shape.as_ref().map(Vec::len);
        let dim = rank.and_then(|rank| open::grows(model, from, to, rank));
        let start = match grows {
            Growth::Same(shape) | Growth::Along(shape) => Some(shape),
            Growth::Unknown => dim.and_then(|dim| empty(&fed, dim)),
        };
        let start = start.zip(dtype(&fed)).map(|(shape, dtype)| TensorSpec::new(dtype, shape));
        self.carries.push(Carry {
            output: from,
            input: to,
            from: from_name.into(),
            to: to_name.into(),
            recorded: fed,
            start: start.map(Start::Zeros),
            grows: dim,
            value: None,
            spare: None,
        });
        Ok(self)
    }

    /// Lets the first run, and the first one after each [`State::reset`], take this tensor for an
    /// input. Where no run was made since, the next one takes it.
    ///
    /// # Errors
    /// Where nothing is carried to the input, or dtype or rank differ from what the file records.
    pub fn start(&mut self, input: &str, value: Tensor) -> Result<&mut Self, SessionError> {
        let model = self.model.clone();
        let carry = self.carry_to(input)?;
        carry.check("the start", &value.spec())?;
        carry.learn(&model.inner, value.shape().rank());
        carry.start = Some(Start::Given(value));
        Ok(self)
    }

    /// [`State::start`] with nothing in dimension `dim`, and in the others what the file records:
    /// the cache of a decoder that has read nothing yet.
    ///
    /// # Errors
    /// Where nothing is carried to the input, or the file does not record its dtype and its size in
    /// another dimension.
    pub fn start_empty(&mut self, input: &str, dim: usize) -> Result<&mut Self, SessionError> {
        let carry = self.carry_to(input)?;
        let recorded = || carry.recorded.to_string();
        let no_start = || StateError::NoStart { input: carry.to.to_string(), recorded: recorded() };
        let dims = carry.recorded.shape.as_ref().ok_or_else(no_start)?;
        if dim >= dims.len() {
            let (input, recorded) = (carry.to.to_string(), recorded());
            return Err(StateError::NoDimension { input, dim, recorded }.into());
        }
        let shape = empty(&carry.recorded, dim).ok_or_else(no_start)?;
        let dtype = dtype(&carry.recorded).ok_or_else(no_start)?;
        carry.start = Some(Start::Zeros(TensorSpec::new(dtype, shape)));
        Ok(self)
    }

    /// Lets the next run take this tensor for an input.
    ///
    /// # Errors
    /// As [`State::start`].
    pub fn set(&mut self, input: &str, value: Tensor) -> Result<&mut Self, SessionError> {
        let model = self.model.clone();
        let carry = self.carry_to(input)?;
        carry.check("what is set", &value.spec())?;
        carry.learn(&model.inner, value.shape().rank());
        carry.put(Held::Tensor(value));
        Ok(self)
    }

    /// What the next run takes for an input; none where it is the first, and there is no start yet.
    /// The tensor shares its memory with the state: while somebody holds it, runs write elsewhere.
    /// Of a cache that runs append to it is a copy.
    ///
    /// # Errors
    /// Where nothing is carried to the input, or memory is refused.
    pub fn get(&self, input: &str) -> Result<Option<Tensor>, SessionError> {
        let id = bind::operand(&self.model.inner, input)?;
        match self.carries.iter().find(|c| c.input == id) {
            Some(carry) => carry.next(),
            None => Err(self.not_carried(input)),
        }
    }

    /// The operands that are carried to, with those that they are carried from.
    pub fn carried(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + '_ {
        self.carries.iter().map(|c| (&*c.to, &*c.from))
    }

    /// Back to before the first run. Memory stays for the next one.
    pub fn reset(&mut self) {
        for carry in &mut self.carries {
            if let Some(value) = carry.value.take() {
                carry.spare = Some(value);
            }
        }
    }

    /// What every input takes in the next run, by the names of the operands.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn values(&self) -> Result<Vec<(&str, Tensor)>, SessionError> {
        let values = self.carries.iter().map(|c| Ok(c.next()?.map(|v| (&*c.to, v))));
        values.filter_map(Result::transpose).collect()
    }

    /// Sets all values: inputs that `values` does not name are as before the first run.
    ///
    /// # Errors
    /// As [`State::set`], for each name; nothing is changed then.
    pub fn restore<N: AsRef<str>>(
        &mut self,
        values: impl IntoIterator<Item = (N, Tensor)>,
    ) -> Result<(), SessionError> {
        let mut restored = self.clone();
        restored.reset();
        for (name, value) in values {
            restored.set(name.as_ref(), value)?;
        }
        *self = restored;
        Ok(())
    }

    /// Writes all values to a `.npz` file, by the names of the operands that are carried to.
    ///
    /// # Errors
    /// Where NumPy has no such dtype, writing fails, or memory is refused.
    #[cfg(feature = "npy")]
    pub fn save(&self, path: impl AsRef<std::path::Path>) -> Result<(), StateFileError> {
        let values = self.values()?;
        let views = values.iter().map(|(name, value)| (*name, value.view()));
        Ok(plutino_tensor::npy::npz::save(path, views)?)
    }

    /// Takes over the values that [`State::save`] wrote; all others are as before the first run.
    ///
    /// # Errors
    /// Where the file cannot be read, or does not suit what is carried; nothing is changed then.
    #[cfg(feature = "npy")]
    pub fn load(&mut self, path: impl AsRef<std::path::Path>) -> Result<(), StateFileError> {
        Ok(self.restore(plutino_tensor::npy::npz::load(path)?)?)
    }

    /// Bytes that the state holds, those kept for the next run included.
    pub fn bytes(&self) -> usize {
        self.carries.iter().map(Carry::bytes).fold(0, usize::saturating_add)
    }

    /// The memory of a run by this plan that has this state: what the plan reports, and the values
    /// of the state. This is what a memory budget is compared with.
    pub fn memory(&self, plan: &Plan) -> MemoryReport {
        MemoryReport { state: self.held(), ..plan.memory() }
    }

    /// Where the value for an input lies.
    #[cfg(test)]
    pub(crate) fn address(&self, input: &str) -> usize {
        let carry = self.carries.iter().find(|carry| &*carry.to == input);
        match carry.and_then(|carry| carry.value.as_ref()) {
            Some(Held::Tensor(tensor)) => tensor.as_bytes().as_ptr().addr(),
            Some(Held::Cache(cache)) => cache.address(),
            None => 0,
        }
    }

    /// Bytes of what the next run reads.
    fn held(&self) -> usize {
        let values = self.carries.iter().filter_map(|carry| carry.value.as_ref());
        values.map(Held::bytes).fold(0, usize::saturating_add)
    }

    fn carry_to(&mut self, input: &str) -> Result<&mut Carry, SessionError> {
        let id = bind::operand(&self.model.inner, input)?;
        match self.carries.iter().position(|c| c.input == id) {
            Some(at) => Ok(&mut self.carries[at]),
            None => Err(self.not_carried(input)),
        }
    }

    fn not_carried(&self, input: &str) -> SessionError {
        let carried = self.carries.iter().map(|c| c.to.to_string()).collect();
        StateError::NotCarried { input: input.into(), carried }.into()
    }
}

impl Carry {
    /// What the next run is fed with; none where nobody said.
    fn next(&self) -> Result<Option<Tensor>, SessionError> {
        Ok(match (&self.value, &self.start) {
            (Some(value), _) => Some(value.to_tensor()?),
            (None, Some(Start::Given(value))) => Some(value.clone()),
            (None, Some(Start::Zeros(spec))) => {
                Some(Tensor::zeros(spec.dtype, spec.shape.clone())?)
            }
            (None, None) => None,
        })
    }

    /// Notes the dimension that grows, once the rank is known.
    fn learn(&mut self, model: &Inner, rank: usize) {
        if self.grows.is_none() {
            self.grows = open::grows(model, self.output, self.input, rank);
        }
    }

    /// Keeps what the next run is fed with; the memory of what was there is written over by the
    /// next run, unless it is somebody else's.
    fn put(&mut self, value: Held) {
        let old = self.value.replace(value);
        let start = match &self.start {
            Some(Start::Given(start)) => Some(start),
            _ => None,
        };
        let value = match &self.value {
            Some(Held::Tensor(value)) => Some(value),
            _ => None,
        };
        let shares = |old: &Tensor| {
            let same = |t: &&Tensor| t.as_bytes().as_ptr() == old.as_bytes().as_ptr();
            start.iter().chain(&value).any(same)
        };
        let spare = old.filter(|old| !matches!(old, Held::Tensor(old) if shares(old)));
        self.spare = spare.or(self.spare.take());
    }

    /// Whether the input can be fed with this.
    fn check(&self, from: &str, found: &TensorSpec) -> Result<(), StateError> {
        if let Some(expected) = dtype(&self.recorded)
            && expected != found.dtype
        {
            let (input, from) = (self.to.to_string(), from.to_owned());
            return Err(StateError::DType { input, expected, from, found: found.dtype });
        }
        match &self.recorded.shape {
            Some(dims) if dims.len() != found.shape.rank() => Err(StateError::Shape {
                input: self.to.to_string(),
                expected: self.recorded.to_string(),
                from: from.to_owned(),
                found: found.shape.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether what a run makes can be fed to the next one, in the place of what this one was fed.
    fn check_next(&self, before: &TensorSpec, made: &TensorSpec) -> Result<(), StateError> {
        if before.dtype != made.dtype {
            let (input, from) = (self.to.to_string(), self.from.to_string());
            return Err(StateError::DType {
                input,
                expected: before.dtype,
                from,
                found: made.dtype,
            });
        }
        if before.shape.rank() != made.shape.rank() {
            return Err(StateError::shape(&self.to, &before.shape, &self.from, &made.shape));
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let bytes = |held: &Option<Held>| held.as_ref().map_or(0, Held::bytes);
        bytes(&self.value).saturating_add(bytes(&self.spare))
    }
}

/// Name of an operand, and what the file records of it.
fn operand(model: &Inner, id: ValueId) -> Option<(String, TensorType)> {
    let mut operands = model.graph.operands();
    let (_, operand) = operands.find(|(other, _)| ValueId::from(*other) == id)?;
    Some((operand.name.clone(), operand.ty.clone()))
}

/// The recorded shape with nothing in one dimension, where the others are known.
fn empty(recorded: &TensorType, dim: usize) -> Option<Shape> {
    let size = |(d, size): (usize, &Dim)| match size {
        _ if d == dim => Some(0),
        Dim::Known(size) => Some(*size),
        Dim::Unknown | Dim::Symbol(_) => None,
    };
    recorded.shape.as_ref()?.iter().enumerate().map(size).collect()
}

fn dtype(recorded: &TensorType) -> Option<DType> {
    recorded.dtype.map(plutino_ops::dtype_of)
}

/// What shapes as the file records them say of a value that is carried; the shape is that of the
/// first run.
enum Growth {
    /// It keeps its shape.
    Same(Shape),
    /// It grows along one dimension.
    Along(Shape),
    /// They do not say.
    Unknown,
}

/// Compares shapes of what is made and of what is fed; none where they exclude each other.
fn difference(made: &TensorType, fed: &TensorType) -> Option<Growth> {
    let (Some(made), Some(fed)) = (&made.shape, &fed.shape) else { return Some(Growth::Unknown) };
    if made.len() != fed.len() {
        return None;
    }
    let (mut shape, mut grown, mut open) = (Shape::default(), 0usize, false);
    for pair in made.iter().zip(fed) {
        match pair {
            (Dim::Known(made), Dim::Known(fed)) if made == fed => shape.push(*fed),
            (Dim::Known(made), Dim::Known(fed)) => {
                grown += 1;
                open |= made < fed; // what shrinks begins as large as somebody says
                shape.push(0);
            }
            _ => open = true,
        }
    }
    match (grown, open) {
        (2.., _) => None,
        (_, true) => Some(Growth::Unknown),
        (0, false) => Some(Growth::Same(shape)),
        (1, false) => Some(Growth::Along(shape)),
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let carries = self.carries.iter().map(|c| (&c.from, &c.to));
        f.debug_map().entries(carries).finish()
    }
}

/// A state could not be saved, or restored from a file.
#[cfg(feature = "npy")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
    /// The file.
    #[error(transparent)]
    File(#[from] plutino_tensor::npy::NpyError),
    /// The values.
    #[error(transparent)]
    State(#[from] SessionError),
}

#[cfg(test)]
mod tests;

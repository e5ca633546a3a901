//! A session, as the Python half of the package wants it.

use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use numpy::{PyReadonlyArray1, PyUntypedArrayMethods};
use plutino::compare::{CompareOptions, Reference};
use plutino::ir::{Dim, Graph, LoadOptions, TensorType};
use plutino::runtime::knobs;
use plutino::{
    DType, Definition, Definitions, Isa, Limits, MemoryUse, Model, ModelOptions, Precision,
    Profile, Request, Session, SessionError, SessionOptions, StoreError, Tensor, TensorHandle,
    TensorSpec, TensorView, ValueInfo, WeightDtype,
};
use plutino_view::{Data, Marks, Times};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::interrupt::{CancelToken, counted, detached};
use crate::memory::TensorMemory;
use crate::report;
use crate::state::NativeState;

/// A run that is known to take less is not watched, and spared a thread: Ctrl-C waits for its end.
const QUICK: Duration = Duration::from_millis(2);

/// What a run that was quick before may take and still count as such: a busy machine is no reason
/// to make it slower.
const STILL_QUICK: Duration = Duration::from_millis(10);

/// Names of the instruction sets that this machine has.
#[pyfunction]
pub(crate) fn isas() -> Vec<&'static str> {
    Isa::available().into_iter().map(Isa::name).collect()
}

/// Warns where the environment names an operator that the model does not have. An error it is not:
/// the variable is that of all sessions of the process, and may mean another one.
fn warn_of_environment(py: Python<'_>, model: &Model) -> PyResult<()> {
    let (variable, asked) = (knobs::PASSES_OFF.name, knobs::passes_off());
    let Err(error) = Model::check_passes_off(&[model], variable, &asked) else { return Ok(()) };
    let message = CString::new(error.to_string())?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)
}

/// Options, as keywords have them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    threads: Option<usize>,
    isa: Option<String>,
    memory: Option<String>,
    weights: Option<String>,
    precision: Option<String>,
    precision_of: Vec<(String, String)>,
    max_memory: Option<usize>,
    batch_invariant: bool,
    winograd: bool,
    plan_cache_size: Option<usize>,
    passes_off: Vec<String>,
    mmap: bool,
    verify: bool,
}

/// What defines an operator type: the path of a model, or the bytes of its two files. A path
/// without a type is a folder of definitions.
type Defined = (Option<String>, Files);

/// A model on disk or in memory.
#[derive(FromPyObject)]
pub(crate) enum Files {
    Bytes((PyBackedBytes, PyBackedBytes)),
    Apart((PathBuf, PathBuf)),
    Path(PathBuf),
}

impl Options {
    fn loading(&self, limits: Limits) -> LoadOptions {
        LoadOptions {
            mmap: self.mmap,
            verify_crc: self.verify,
            memory_budget: self.max_memory,
            limits,
            ..LoadOptions::default()
        }
    }

    fn session(&self) -> Result<SessionOptions, Failure> {
        let mut options = SessionOptions::default();
        options.threads = self.threads;
        if let Some(name) = &self.isa {
            let isa = Isa::named(name).ok_or_else(|| {
                Failure::option("isa", &format!("one of {}", isas().join(", ")), name)
            })?;
            options.isa = Some(isa);
        }
        options.memory = match self.memory.as_deref() {
            None | Some("fast") => MemoryUse::Fast,
            Some("low") => MemoryUse::Low,
            Some(other) => return Err(Failure::option("memory", "'fast' or 'low'", other)),
        };
        options.weights = match self.weights.as_deref() {
            None => WeightDtype::AsStored,
            Some(name) => WeightDtype::named(name)
                .ok_or_else(|| Failure::option("weights", &WeightDtype::NAMES.join(", "), name))?,
        };
        let precision = |option: &'static str, name: &str| {
            Precision::named(name)
                .ok_or_else(|| Failure::option(option, "'highest', 'high' or 'medium'", name))
        };
        if let Some(name) = &self.precision {
            options.precision = precision("precision", name)?;
        }
        for (what, name) in &self.precision_of {
            options.precision_of.push((what.clone(), precision("precision_of", name)?));
        }
        options.memory_budget = self.max_memory;
        options.batch_invariant = self.batch_invariant;
        options.winograd = self.winograd;
        options.passes_off.extend(self.passes_off.iter().cloned());
        if let Some(size) = self.plan_cache_size {
            options.plan_cache_size = size;
        }
        Ok(options)
    }
}

/// What an operand is fed with: its name, the dtype's and the shape, and the bytes of the elements,
/// dense and in order.
pub(crate) type Feed<'py> = (String, String, Vec<usize>, PyReadonlyArray1<'py, u8>);

/// What an operand is fed with that is in the session's store: its name and the handle.
type Stored<'py> = (String, Bound<'py, NativeHandle>);

/// Names a tensor in the store of a session.
#[pyclass(frozen, module = "plutino._native")]
pub(crate) struct NativeHandle(TensorHandle);

/// What limits a run: a token, and seconds from now on; and whether signals are to be looked for.
type Bounds<'py> = (Option<Bound<'py, CancelToken>>, Option<f64>, bool);

/// An input or output: name, operator, dtype, and shape, where the file records them.
type Info = (String, String, Option<&'static str>, Option<Vec<Option<Size>>>);

/// A recorded dimension: a number, or the name of what is the same in several places.
#[derive(IntoPyObject)]
enum Size {
    Known(usize),
    Symbol(String),
}

/// A model with options, threads and plans.
#[pyclass(frozen, module = "plutino._native")]
pub(crate) struct NativeSession {
    session: Arc<Session>,
    options: SessionOptions,
    /// The process that it was made in, and has its threads in.
    process: u32,
    /// What was asked for (a digest) by the last run that was quick; 0 for none.
    quick: AtomicU64,
}

impl NativeSession {
    fn new(model: &Model, options: SessionOptions) -> Result<Self, Failure> {
        let session = Arc::new(model.session(options.clone())?);
        Ok(Self { session, options, process: std::process::id(), quick: AtomicU64::new(0) })
    }

    /// Does `work` with a request, its limits set.
    fn request<R: Send>(
        &self,
        py: Python<'_>,
        (feeds, stored): (&[Feed<'_>], &[Stored<'_>]),
        fetches: &[String],
        bounds: &Bounds<'_>,
        work: impl Fn(&Session, &Request<'_>) -> Result<R, SessionError> + Sync,
    ) -> PyResult<R> {
        let (token, limits) = limits(bounds)?;
        let mut request = Request::new().cancel(&token);
        if let Some(deadline) = limits.deadline {
            request = request.deadline(deadline);
        }
        for feed @ (name, dtype, shape, _) in feeds {
            let view = TensorView::from_bytes(named(dtype)?, shape.as_slice(), bytes(feed)?);
            request = request.feed(name, view.map_err(Failure::from)?);
        }
        for (name, handle) in stored {
            let tensor = self.session.store().get(handle.get().0).map_err(SessionError::from);
            request = request.feed(name, tensor.map_err(Failure::from)?);
        }
        request = fetches.iter().fold(request, |request, name| request.fetch(name));
        let digest = digest(feeds, stored.len(), fetches);
        let known = self.quick.load(Ordering::Relaxed) == digest;
        let (result, time) = detached(py, bounds.2 && !known, &token, || {
            let begun = Instant::now(); // not before: a thread may take long to start
            (work(&self.session, &request), begun.elapsed())
        })?;
        let quick = result.is_ok() && time < if known { STILL_QUICK } else { QUICK };
        self.quick.store(if quick { digest } else { 0 }, Ordering::Relaxed);
        Ok(result.map_err(Failure::from)?)
    }
}

impl Drop for NativeSession {
    /// In the child after a fork it is left behind: to free it would call threads that are not
    /// there, by locks that they may have held.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(Arc::clone(&self.session));
        }
    }
}

#[pymethods]
impl NativeSession {
    /// Loads a model: from files (the path of the `.param` file, or its stem), or from their bytes.
    /// Weights in bytes are read where they lie.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        files: Files,
        definitions: Vec<Defined>,
        options: Options,
        bounds: Bounds<'_>,
    ) -> PyResult<Self> {
        let (token, limits) = limits(&bounds)?;
        let wanted = options.session()?;
        let loading = options.loading(limits);
        let load = || {
            let mut options = ModelOptions::from(loading.clone());
            if !definitions.is_empty() {
                options = options.with_definitions(defined(&definitions, &loading)?);
            }
            match &files {
                Files::Path(path) => Model::load_with(path, options),
                Files::Apart((param, bin)) => {
                    let load = LoadOptions { bin: Some(bin.clone()), ..loading.clone() };
                    Model::load_with(param, options.with_load(load))
                }
                Files::Bytes(bytes) => Model::from_graph_with(graph(bytes)?, options),
            }
        };
        let model = detached(py, bounds.2, &token, load)?.map_err(Failure::from)?;
        warn_of_environment(py, &model)?;
        Ok(Self::new(&model, wanted)?)
    }

    /// The same model and options with threads of this process: after a fork, the old session's
    /// threads are not there.
    fn again(&self) -> PyResult<Self> {
        Ok(Self::new(self.session.model(), self.options.clone())?)
    }

    fn inputs(&self) -> Vec<Info> {
        self.session.model().inputs().iter().map(info).collect()
    }

    fn outputs(&self) -> Vec<Info> {
        self.session.model().outputs().iter().map(info).collect()
    }

    /// What is likely wrong in the file.
    fn warnings(&self) -> Vec<String> {
        self.session.model().warnings().iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn threads(&self) -> usize {
        self.session.threads()
    }

    #[getter]
    fn isa(&self) -> &'static str {
        self.session.isa().name()
    }

    #[getter]
    fn plan_count(&self) -> usize {
        self.session.plan_count()
    }

    fn release_memory(&self, py: Python<'_>) {
        counted(py, || self.session.release_memory());
    }

    /// A state that carries nothing yet.
    fn state(&self) -> NativeState {
        NativeState::new(self.session.state())
    }

    /// Runs; the results with their names. Without fetches: the model's outputs, but for those that
    /// the state carries.
    #[pyo3(signature = (feeds, fetches, bounds, state=None, stored=Vec::new()))]
    fn run(
        &self,
        py: Python<'_>,
        feeds: Vec<Feed<'_>>,
        fetches: Vec<String>,
        bounds: Bounds<'_>,
        state: Option<Bound<'_, NativeState>>,
        stored: Vec<Stored<'_>>,
    ) -> PyResult<Vec<(String, TensorMemory)>> {
        let state = state.as_ref().map(Bound::get);
        let results = self.request(
            py,
            (&feeds, &stored),
            &fetches,
            &bounds,
            |session, request| match state {
                None => session.run_named(request),
                Some(state) => session.run_named_with_state(&mut state.lock(), request),
            },
        )?;
        let memory = |(name, tensor)| Ok((name, TensorMemory::new(tensor)?));
        results.into_iter().map(memory).collect()
    }

    /// Runs, and keeps the results for these operands in the store: the other results, and handles.
    fn run_keeping(
        &self,
        py: Python<'_>,
        keep: Vec<String>,
        feeds: Vec<Feed<'_>>,
        stored: Vec<Stored<'_>>,
        fetches: Vec<String>,
        bounds: Bounds<'_>,
    ) -> PyResult<(Vec<TensorMemory>, Vec<NativeHandle>)> {
        let keep: Vec<&str> = keep.iter().map(String::as_str).collect();
        let (results, kept) =
            self.request(py, (&feeds, &stored), &fetches, &bounds, |session, request| {
                session.run_keeping(request, &keep)
            })?;
        let results = results.into_iter().map(|tensor| Ok(TensorMemory::new(tensor)?));
        Ok((results.collect::<PyResult<_>>()?, kept.into_iter().map(NativeHandle).collect()))
    }

    /// Keeps a copy of an array in the store.
    fn put(&self, value: Feed<'_>) -> PyResult<NativeHandle> {
        let (_, tensor) = tensor(&value)?;
        Ok(NativeHandle(self.session.store().put(tensor).map_err(stored_error)?))
    }

    /// A tensor of the store.
    fn get(&self, handle: &NativeHandle) -> PyResult<TensorMemory> {
        let tensor = self.session.store().get(handle.0).map_err(stored_error)?;
        Ok(TensorMemory::new(tensor)?)
    }

    /// Takes a tensor out of the store.
    fn remove(&self, handle: &NativeHandle) -> PyResult<()> {
        self.session.store().remove(handle.0).map_err(stored_error)?;
        Ok(())
    }

    /// Bytes of the tensors in the store.
    #[getter]
    fn stored_bytes(&self) -> usize {
        self.session.store().bytes()
    }

    /// Runs, and gives the times of all steps.
    #[pyo3(signature = (feeds, fetches, bounds, state=None))]
    fn profile<'py>(
        &self,
        py: Python<'py>,
        feeds: Vec<Feed<'py>>,
        fetches: Vec<String>,
        bounds: Bounds<'py>,
        state: Option<Bound<'py, NativeState>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let state = state.as_ref().map(Bound::get);
        let (_, profile): (Vec<Tensor>, Profile) =
            self.request(py, (&feeds, &[]), &fetches, &bounds, |session, request| match state {
                None => session.profile_request(request),
                Some(state) => session.profile_with_state(&mut state.lock(), request),
            })?;
        report::profile(py, &profile)
    }

    /// Compares the values of a run with those of a reference, by name of the operand; `alone`:
    /// each operator by itself, on the reference's inputs.
    fn compare<'py>(
        &self,
        py: Python<'py>,
        reference: Vec<Feed<'py>>,
        tolerance: Option<f64>,
        alone: bool,
        bounds: Bounds<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (token, _) = limits(&bounds)?;
        let arrays = reference.iter().map(tensor).collect::<Result<Vec<_>, Failure>>()?;
        let reference = Reference::new(arrays);
        let mut options = CompareOptions::default();
        options.tolerance = tolerance;
        let found = detached(py, bounds.2, &token, || match alone {
            true => self.session.isolate(&reference, &options, &[]),
            false => self.session.compare(&reference, &options),
        })?;
        report::comparison(py, &found.map_err(Failure::from)?)
    }

    /// The page of the model, with the plan for inputs of these dtypes and shapes, and the times of
    /// so many runs (beside one that warms up) where there is something to feed.
    fn view(
        &self,
        py: Python<'_>,
        title: String,
        specs: Vec<(String, Vec<usize>)>,
        feeds: Vec<Feed<'_>>,
        runs: usize,
        bounds: Bounds<'_>,
    ) -> PyResult<String> {
        let mut profiles: Vec<Profile> = Vec::new();
        for run in 0..if feeds.is_empty() { 0 } else { runs.saturating_add(1) } {
            let (_, profile): (Vec<Tensor>, Profile) =
                self.request(py, (&feeds, &[]), &[], &bounds, Session::profile_request)?;
            if run > 0 {
                profiles.push(profile);
            }
        }
        profiles.sort_by_key(|profile| profile.total);
        profiles.truncate(profiles.len().div_ceil(2)); // the faster half
        let (token, limits) = limits(&bounds)?;
        let specs = planned(&specs)?;
        let page = detached(py, bounds.2, &token, || {
            let model = self.session.model();
            let mut data = Data::new(title.clone(), model.graph(), &Marks::default(), true);
            data.notes.extend(model.warnings().iter().map(ToString::to_string));
            if !specs.is_empty() || model.inputs().is_empty() {
                let plan = self.session.plan_within(&specs, &limits)?;
                data.add_unfused(model, &specs);
                data.add_plan(&plan);
                data.notes.extend(plan.warnings().iter().map(ToString::to_string));
                if !profiles.is_empty() {
                    data.set_times(Times::of(runs, &profiles));
                }
            }
            plutino_view::page(&data)
                .map_err(|error| Failure::new("InternalError", error.to_string()))
        })?;
        Ok(page?)
    }

    /// The plan for inputs of these dtypes and shapes.
    fn plan<'py>(
        &self,
        py: Python<'py>,
        specs: Vec<(String, Vec<usize>)>,
        bounds: Bounds<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (token, limits) = limits(&bounds)?;
        let specs = planned(&specs)?;
        let plan = detached(py, bounds.2, &token, || self.session.plan_within(&specs, &limits))?;
        report::plan(py, &*plan.map_err(Failure::from)?)
    }
}

fn stored_error(error: StoreError) -> Failure {
    SessionError::from(error).into()
}

/// What a plan is made for.
fn planned(specs: &[(String, Vec<usize>)]) -> Result<Vec<TensorSpec>, Failure> {
    let spec = |(dtype, shape): &(String, Vec<usize>)| {
        Ok(TensorSpec::new(named(dtype)?, shape.as_slice()))
    };
    specs.iter().map(spec).collect()
}

fn bytes<'a>((_, _, _, bytes): &'a Feed<'_>) -> Result<&'a [u8], Failure> {
    bytes.as_slice().map_err(|error| Failure::new("InputError", error.to_string()))
}

/// A copy of what is fed, with its name.
pub(crate) fn tensor(feed: &Feed<'_>) -> Result<(String, Tensor), Failure> {
    let (name, dtype, shape, _) = feed;
    let tensor = Tensor::from_bytes(named(dtype)?, shape.as_slice(), bytes(feed)?);
    Ok((name.clone(), tensor.map_err(Failure::from)?))
}

/// A graph of the bytes of its two files.
fn graph((param, bin): &(PyBackedBytes, PyBackedBytes)) -> Result<Graph, plutino::ModelError> {
    let owned = Python::attach(|py| bin.clone_ref(py));
    Ok(Graph::from_bytes(&**param, Bytes::from_owner(owned))?)
}

/// Definitions, read; of several for a type the last one counts.
fn defined(all: &[Defined], loading: &LoadOptions) -> Result<Definitions, plutino::ModelError> {
    let mut definitions = Definitions::new();
    for (kind, files) in all {
        match (kind, files) {
            (None, Files::Path(folder)) => {
                definitions.load_folder(folder, loading)?;
            }
            (Some(kind), Files::Path(path)) => {
                definitions.define(kind.clone(), Definition::load(path, loading)?);
            }
            (kind, Files::Apart((param, bin))) => {
                let load = LoadOptions { bin: Some(bin.clone()), ..loading.clone() };
                let graph = Graph::load_with(param, &load)?;
                let definition = Definition::new(param.display().to_string(), graph);
                definitions.define(kind.clone().unwrap_or_default(), definition);
            }
            (kind, Files::Bytes(bytes)) => {
                let kind = kind.clone().unwrap_or_default();
                let definition = Definition::new(format!("<{kind}>"), graph(bytes)?);
                definitions.define(kind, definition);
            }
        }
    }
    Ok(definitions)
}

/// The token of some work, one of its own where none is given, and the limits with it.
fn limits((token, seconds, _): &Bounds<'_>) -> Result<(plutino::CancelToken, Limits), Failure> {
    let token = token.as_ref().map(|token| token.get().0.clone()).unwrap_or_default();
    let deadline = match seconds {
        None => None,
        Some(seconds) => {
            let time = Duration::try_from_secs_f64(*seconds).map_err(|_| {
                Failure::option("timeout", "seconds, not negative", &seconds.to_string())
            })?;
            Instant::now().checked_add(time) // none: beyond all time
        }
    };
    Ok((token.clone(), Limits { cancel: Some(token), deadline }))
}

fn named(dtype: &str) -> Result<DType, Failure> {
    let unknown = || Failure::new("InputError", format!("there is no dtype '{dtype}'"));
    DType::from_name(dtype).ok_or_else(unknown)
}

fn info(value: &ValueInfo) -> Info {
    let TensorType { shape, dtype } = &value.recorded;
    let size = |dim: &Dim| match dim {
        Dim::Known(size) => Some(Size::Known(*size)),
        Dim::Symbol(name) => Some(Size::Symbol(name.clone())),
        Dim::Unknown => None,
    };
    let shape = shape.as_ref().map(|dims| dims.iter().map(size).collect());
    (value.name.clone(), value.operator.clone(), dtype.map(|dtype| dtype.name()), shape)
}

/// What decides how long a run takes, data aside; never 0.
fn digest(feeds: &[Feed<'_>], stored: usize, fetches: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, dtype, shape, bytes) in feeds {
        (name, dtype, shape, bytes.len()).hash(&mut hasher);
    }
    (stored, fetches).hash(&mut hasher);
    hasher.finish() | 1
}

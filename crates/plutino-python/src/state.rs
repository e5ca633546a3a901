//! What is carried from run to run, as the Python half of the package wants it.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plutino::{SessionError, State, StateFileError, Tensor};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::interrupt::counted;
use crate::memory::TensorMemory;
use crate::session::{Feed, tensor};

/// Values that runs hand on. Runs with one state wait for each other, and whoever looks at it waits
/// for them: without the interpreter's lock.
#[pyclass(frozen, module = "plutino._native")]
pub(crate) struct NativeState(Mutex<State>);

impl NativeState {
    pub(crate) fn new(state: State) -> Self {
        Self(Mutex::new(state))
    }

    /// The state, once no run has it. One that a run left by a panic is whole all the same: runs
    /// change it at their end.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> Result<R, E> + Send,
    ) -> PyResult<R> {
        Ok(counted(py, || work(&mut self.lock()).map_err(Into::into))?)
    }
}

fn memory(value: Option<Tensor>) -> PyResult<Option<TensorMemory>> {
    Ok(value.map(TensorMemory::new).transpose()?)
}

#[pymethods]
impl NativeState {
    fn carry(&self, py: Python<'_>, output: &str, input: &str) -> PyResult<()> {
        self.with(py, |state| state.carry(output, input).map(drop))
    }

    fn start(&self, py: Python<'_>, value: Feed<'_>) -> PyResult<()> {
        let (name, value) = tensor(&value)?;
        self.with(py, |state| state.start(&name, value).map(drop))
    }

    fn start_empty(&self, py: Python<'_>, input: &str, dim: usize) -> PyResult<()> {
        self.with(py, |state| state.start_empty(input, dim).map(drop))
    }

    fn set(&self, py: Python<'_>, value: Feed<'_>) -> PyResult<()> {
        let (name, value) = tensor(&value)?;
        self.with(py, |state| state.set(&name, value).map(drop))
    }

    fn get(&self, py: Python<'_>, input: &str) -> PyResult<Option<TensorMemory>> {
        memory(self.with(py, |state| state.get(input))?)
    }

    /// Operands that are carried to, with those that they are carried from.
    fn carried(&self, py: Python<'_>) -> Vec<(String, String)> {
        counted(py, || {
            let state = self.lock();
            state.carried().map(|(to, from)| (to.to_owned(), from.to_owned())).collect()
        })
    }

    fn values(&self, py: Python<'_>) -> PyResult<Vec<(String, TensorMemory)>> {
        let values = self.with(py, |state| {
            let values = state.values()?.into_iter();
            Ok::<Vec<_>, SessionError>(values.map(|(name, v)| (name.to_owned(), v)).collect())
        })?;
        values.into_iter().map(|(name, value)| Ok((name, TensorMemory::new(value)?))).collect()
    }

    fn restore(&self, py: Python<'_>, values: Vec<Feed<'_>>) -> PyResult<()> {
        let values = values.iter().map(tensor).collect::<Result<Vec<_>, Failure>>()?;
        self.with(py, |state| state.restore(values))
    }

    fn reset(&self, py: Python<'_>) {
        counted(py, || self.lock().reset());
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.with(py, |state| state.save(&path))
    }

    fn load(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.with(py, |state| state.load(&path))
    }

    /// Another one that begins where this one is: neither changes the other.
    fn branch(&self, py: Python<'_>) -> Self {
        Self::new(counted(py, || self.lock().clone()))
    }

    /// Bytes that it holds.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        counted(py, || self.lock().bytes())
    }
}

impl From<StateFileError> for Failure {
    fn from(error: StateFileError) -> Self {
        match error {
            StateFileError::State(error) => error.into(),
            error => Self::new("StateError", error.to_string()),
        }
    }
}

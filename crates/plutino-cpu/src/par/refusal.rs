//! An error of some task, for the caller of all of them.

use plutino_tensor::TensorError;
use std::sync::{Mutex, PoisonError};

/// Where tasks leave what kept them from their work: memory that they did not get, say. The first
/// one stays.
#[derive(Debug, Default)]
pub struct Refusal(Mutex<Option<TensorError>>);

impl Refusal {
    /// What was made; none where it was refused, which is noted.
    pub fn of<T>(&self, made: Result<T, TensorError>) -> Option<T> {
        let refused = |error| {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        };
        made.map_err(refused).ok()
    }

    /// What to tell the caller.
    ///
    /// # Errors
    /// What a task noted.
    pub fn outcome(self) -> Result<(), TensorError> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

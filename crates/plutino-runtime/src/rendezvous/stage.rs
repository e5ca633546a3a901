//! A session between keys of a rendezvous.

use super::{Delivery, Rendezvous, RendezvousError};
use crate::{Request, Session, SessionError};
use plutino_ir::{Limits, quote};
use plutino_tensor::Tensor;
use std::sync::Arc;

/// A session whose inputs come from a rendezvous, and whose results go there: one stage of a
/// pipeline, or one part of a model that was cut into several.
///
/// A step receives a value for each input, runs, and sends each result. Where one of the inputs is
/// dead nothing is computed, and all results are dead.
///
/// ```
/// use plutino_runtime::{Delivery, Limits, Model, Rendezvous, SessionOptions, Stage};
/// use plutino_tensor::Tensor;
/// # use plutino_ops as _;
/// # fn model(operator: &str) -> Result<Model, Box<dyn std::error::Error>> {
/// #     let lines = format!("7767517\n3 2\npnnx.Input in 0 1 x\n{operator} op 1 1 x y\npnnx.Output out 1 0 y");
/// #     Ok(Model::from_graph(plutino_ir::Graph::parse(&lines)?)?)
/// # }
///
/// let place = Rendezvous::new(2);
/// let session = |operator: &str| -> Result<_, Box<dyn std::error::Error>> {
///     Ok(model(operator)?.session(SessionOptions::default().with_threads(1))?)
/// };
/// let first = Stage::new(session("nn.ReLU")?, &place).take("image", "x").give("y", "middle");
/// let second = Stage::new(session("torch.neg")?, &place).take("middle", "x").give("y", "result");
/// let none = Limits::default();
/// std::thread::scope(|scope| {
///     scope.spawn(|| first.run(&none)); // until nothing more comes
///     scope.spawn(|| second.run(&none));
///     place.send("image", Tensor::from_slice(&[-1.0f32, 2.0], [2])?, &none)?;
///     place.send("image", Delivery::Dead, &none)?;
///     place.finish("image");
///     let result = place.receive("result", &none)?.tensor().ok_or("it is dead")?;
///     assert_eq!(result.as_slice::<f32>()?, [0.0, -2.0]);
///     assert!(place.receive("result", &none)?.is_dead());
///     assert!(place.receive("result", &none).is_err()); // nothing more comes
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Stage {
    session: Arc<Session>,
    place: Rendezvous,
    takes: Vec<Take>,
    gives: Vec<Give>,
}

/// An input, and the keys under which its value may come.
#[derive(Debug)]
struct Take {
    keys: Vec<String>,
    operand: String,
}

/// A result, and the key under which it is sent.
#[derive(Debug)]
struct Give {
    operand: String,
    key: String,
}

/// A stage of a pipeline could not go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// The run failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A value could not be received or sent.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// Of several branches that join, more than one was taken.
    #[error(
        "operand '{}': values came under '{}' and under '{}'; one branch is taken at most",
        quote(operand),
        quote(first),
        quote(second)
    )]
    Both {
        /// The operand that is fed.
        operand: String,
        /// A key.
        first: String,
        /// Another one.
        second: String,
    },
    /// What is given is not one tensor.
    #[error("{expected} result(s) are given, the model made {found} tensors")]
    Results {
        /// Results that are given.
        expected: usize,
        /// Tensors of the run.
        found: usize,
    },
}

impl Stage {
    /// A stage that takes and gives nothing yet.
    pub fn new(session: impl Into<Arc<Session>>, place: &Rendezvous) -> Self {
        let (session, place) = (session.into(), place.clone());
        Self { session, place, takes: Vec::new(), gives: Vec::new() }
    }

    /// Feeds an operand with what comes under this key.
    #[must_use]
    pub fn take(self, key: &str, operand: &str) -> Self {
        self.take_one_of(&[key], operand)
    }

    /// Feeds an operand with what comes under one of these keys, where branches join: one value is
    /// received under each of them, of which one at most is alive.
    #[must_use]
    pub fn take_one_of(mut self, keys: &[&str], operand: &str) -> Self {
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        self.takes.push(Take { keys, operand: operand.to_owned() });
        self
    }

    /// Sends what an operand is under this key: one tensor.
    #[must_use]
    pub fn give(mut self, operand: &str, key: &str) -> Self {
        self.gives.push(Give { operand: operand.to_owned(), key: key.to_owned() });
        self
    }

    /// Receives, runs and sends once; whether it ran. The limits hold for waits and for the run.
    ///
    /// # Errors
    /// Those of the rendezvous and of the run. Values that were received are lost then.
    pub fn step(&self, limits: &Limits) -> Result<bool, StageError> {
        match self.step_or_end(limits)? {
            Some(alive) => Ok(alive),
            None => {
                let key = self.takes.first().and_then(|take| take.keys.first());
                Err(RendezvousError::Finished { key: key.cloned().unwrap_or_default() }.into())
            }
        }
    }

    /// Steps until nothing more comes under the first of the keys that it takes, and says the same
    /// of what it gives; how many of the steps ran. A stage that takes nothing steps once. One that
    /// fails aborts the rendezvous, so that nobody waits for it: also where values came under some
    /// of its keys, and nothing more comes under another.
    ///
    /// # Errors
    /// As [`Stage::step`], but for the end of what it takes.
    pub fn run(&self, limits: &Limits) -> Result<usize, StageError> {
        let mut ran = 0usize;
        loop {
            match self.step_or_end(limits) {
                Ok(Some(alive)) => ran = ran.saturating_add(usize::from(alive)),
                Ok(None) => break,
                Err(error) => {
                    self.place.abort(error.to_string());
                    return Err(error);
                }
            }
            if self.takes.is_empty() {
                break;
            }
        }
        self.gives.iter().for_each(|give| self.place.finish(&give.key));
        Ok(ran)
    }

    /// A step; none where nothing comes any more.
    fn step_or_end(&self, limits: &Limits) -> Result<Option<bool>, StageError> {
        let mut fed: Vec<Option<Tensor>> = Vec::new();
        for take in &self.takes {
            fed.push(match self.receive(take, limits) {
                Err(StageError::Rendezvous(RendezvousError::Finished { key }))
                    if fed.is_empty() && take.keys.first() == Some(&key) =>
                {
                    return Ok(None);
                }
                received => received?,
            });
        }
        let inputs: Option<Vec<Tensor>> = fed.into_iter().collect();
        let results = inputs.as_ref().map(|inputs| self.compute(inputs, limits)).transpose()?;
        let alive = results.is_some();
        let mut results = results.into_iter().flatten();
        for give in &self.gives {
            let value = results.next().map_or(Delivery::Dead, Delivery::Alive);
            self.place.send(&give.key, value, limits)?;
        }
        Ok(Some(alive))
    }

    /// The value of an input; none where it is dead.
    fn receive(&self, take: &Take, limits: &Limits) -> Result<Option<Tensor>, StageError> {
        let mut alive: Option<(&String, Tensor)> = None;
        for key in &take.keys {
            match (self.place.receive(key, limits)?, &alive) {
                (Delivery::Dead, _) => {}
                (Delivery::Alive(tensor), None) => alive = Some((key, tensor)),
                (Delivery::Alive(_), Some((first, _))) => {
                    return Err(StageError::Both {
                        operand: take.operand.clone(),
                        first: (*first).clone(),
                        second: key.clone(),
                    });
                }
            }
        }
        Ok(alive.map(|(_, tensor)| tensor))
    }

    fn compute(&self, inputs: &[Tensor], limits: &Limits) -> Result<Vec<Tensor>, StageError> {
        let mut request = Request::new().within(limits);
        for (take, input) in self.takes.iter().zip(inputs) {
            request = request.feed(&take.operand, input);
        }
        for give in &self.gives {
            request = request.fetch(&give.operand);
        }
        let results = self.session.run_with(&request)?;
        match (results.len(), self.gives.len()) {
            (found, expected) if found != expected && expected > 0 => {
                Err(StageError::Results { expected, found })
            }
            _ => Ok(results),
        }
    }
}

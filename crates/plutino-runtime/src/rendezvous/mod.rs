//! Where sessions and threads that know nothing of each other hand over tensors: by key.

mod stage;
mod table;
#[cfg(test)]
mod tests;

pub use stage::{Stage, StageError};

use crate::monitor::Monitor;
use plutino_ir::{Interrupted, Limits, quote};
use plutino_tensor::{DType, Shape, Tensor, TensorSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use table::{End, Table};

/// A place where some send tensors and others receive them, each under a key. Whoever comes first
/// waits: a receiver for the value, a sender for room, since only so many values lie under a key
/// at a time. What is sent under a key is received in that order, each value once.
///
/// Cloning gives another handle to the same place. Waits hold to the caller's [`Limits`], and end
/// when somebody gives up ([`Rendezvous::abort`]) or everything was sent ([`Rendezvous::finish`]).
///
/// ```
/// use plutino_runtime::{Delivery, Limits, Rendezvous, RendezvousError};
/// use plutino_tensor::{DType, Tensor};
///
/// let place = Rendezvous::new(1);
/// place.declare("scores", DType::F32, &[None, Some(3)])?;
/// let sender = place.clone();
/// let thread = std::thread::spawn(move || {
///     for x in [1.0f32, 2.0] {
///         let scores = Tensor::from_slice(&[x; 3], [1, 3])?;
///         sender.send("scores", scores, &Limits::default())?; // waits while one lies there
///     }
///     sender.finish("scores");
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
/// });
/// let mut sums = Vec::new();
/// loop {
///     match place.receive("scores", &Limits::default()) {
///         Ok(Delivery::Alive(x)) => sums.push(x.as_slice::<f32>()?.iter().sum::<f32>()),
///         Ok(Delivery::Dead) => {}
///         Err(RendezvousError::Finished { .. }) => break,
///         Err(error) => return Err(error.into()),
///     }
/// }
/// assert_eq!(sums, [3.0, 6.0]);
/// # thread.join().unwrap().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Rendezvous(Arc<Monitor<State>>);

/// What is sent and received: a tensor, or word that there will be none, because the branch that
/// would have made it was not taken. Whoever needs a value that is dead makes dead ones in turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// A value.
    Alive(Tensor),
    /// What an untaken branch would have made.
    Dead,
}

impl Delivery {
    /// The tensor, where there is one.
    pub fn tensor(self) -> Option<Tensor> {
        match self {
            Self::Alive(tensor) => Some(tensor),
            Self::Dead => None,
        }
    }

    /// Whether it is word that there is no value.
    pub fn is_dead(&self) -> bool {
        matches!(self, Self::Dead)
    }
}

impl From<Tensor> for Delivery {
    fn from(tensor: Tensor) -> Self {
        Self::Alive(tensor)
    }
}

/// What may be sent under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    dtype: DType,
    dims: Vec<Option<usize>>,
}

impl Kind {
    fn admits(&self, dtype: DType, shape: &Shape) -> bool {
        self.dtype == dtype
            && self.dims.len() == shape.rank()
            && self.dims.iter().zip(shape.iter()).all(|(dim, d)| dim.is_none_or(|dim| dim == *d))
    }
}

impl std::fmt::Display for Kind {
    /// As specs are written, with `?` for any size.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims = self.dims.iter().map(|d| d.map_or_else(|| "?".into(), |d| d.to_string()));
        write!(f, "({}){}", dims.collect::<Vec<_>>().join(","), self.dtype)
    }
}

#[derive(Debug)]
struct State {
    table: Table<Delivery>,
    kinds: BTreeMap<String, Kind>,
}

/// What somebody waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Room for a value to be sent.
    ToSend,
    /// A value to be received.
    ToReceive,
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ToSend => "waiting for room",
            Self::ToReceive => "waiting for a value",
        })
    }
}

/// A value could not be sent or received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// Somebody gave up.
    #[error("'{}': the rendezvous was aborted: {why}", quote(key))]
    Aborted {
        /// The key.
        key: String,
        /// The first reason that was given.
        why: String,
    },
    /// Nothing more is sent under this key, and everything that was sent was received.
    #[error("'{}': nothing more is sent", quote(key))]
    Finished {
        /// The key.
        key: String,
    },
    /// There is no room, and the caller does not wait.
    #[error("'{}': {room} value(s) lie there, which is all there is room for", quote(key))]
    Full {
        /// The key.
        key: String,
        /// Values that may lie under a key.
        room: usize,
    },
    /// A tensor is not of the kind that was declared.
    #[error("'{}': {expected} is what was declared, found {found}", quote(key))]
    Kind {
        /// The key.
        key: String,
        /// What was declared, with `?` for any size.
        expected: String,
        /// What was to be sent.
        found: TensorSpec,
    },
    /// Two declarations of one key differ.
    #[error("'{}': declared as {now}, and as {before} before", quote(key))]
    Declared {
        /// The key.
        key: String,
        /// The first declaration.
        before: String,
        /// The second one.
        now: String,
    },
    /// The caller's limits ended the wait.
    #[error("'{}': {why} while {doing}", quote(key))]
    Interrupted {
        /// The key.
        key: String,
        /// What for.
        doing: Waiting,
        /// Which limit.
        why: Interrupted,
    },
}

impl RendezvousError {
    /// Whether the caller's own limits ended the wait.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::Interrupted { .. })
    }

    fn ended(key: &str, end: End) -> Self {
        let key = key.to_owned();
        match end {
            End::Finished => Self::Finished { key },
            End::Aborted(why) => Self::Aborted { key, why },
        }
    }
}

impl Rendezvous {
    /// A place with room for so many values under each key; 0 counts as 1.
    pub fn new(room: usize) -> Self {
        Self(Monitor::new(State { table: Table::new(room), kinds: BTreeMap::new() }))
    }

    /// Lets only tensors of this dtype and shape be sent under a key (`None` is any size). Keys
    /// without a declaration take any.
    ///
    /// # Errors
    /// Where the key was declared otherwise.
    pub fn declare(
        &self,
        key: &str,
        dtype: DType,
        dims: &[Option<usize>],
    ) -> Result<(), RendezvousError> {
        let now = Kind { dtype, dims: dims.to_vec() };
        self.0.with(|state| match state.kinds.get(key) {
            Some(before) if *before != now => Err(RendezvousError::Declared {
                key: key.to_owned(),
                before: before.to_string(),
                now: now.to_string(),
            }),
            _ => {
                state.kinds.insert(key.to_owned(), now);
                Ok(())
            }
        })
    }

    /// Sends a tensor, or word that there is none; waits until there is room. (A tensor is not
    /// copied: clone it first where it is still needed after an error.)
    ///
    /// # Errors
    /// Where it is not what was declared, nothing more may be sent, somebody gave up, or the limits
    /// end the wait. Then nothing was sent.
    pub fn send(
        &self,
        key: &str,
        value: impl Into<Delivery>,
        limits: &Limits,
    ) -> Result<(), RendezvousError> {
        let mut value = Some(value.into());
        self.admit(key, &value)?;
        let sent = self.0.wait(limits, |state| state.table.put(key, &mut value));
        let doing = Waiting::ToSend;
        sent.map_err(|why| RendezvousError::Interrupted { key: key.to_owned(), doing, why })?
            .map_err(|end| RendezvousError::ended(key, end))
    }

    /// [`Rendezvous::send`] that does not wait.
    ///
    /// # Errors
    /// As [`Rendezvous::send`], and where there is no room.
    pub fn try_send(&self, key: &str, value: impl Into<Delivery>) -> Result<(), RendezvousError> {
        let mut value = Some(value.into());
        self.admit(key, &value)?;
        let (sent, room) =
            self.0.change(|state| (state.table.put(key, &mut value), state.table.room()));
        match sent {
            None => Err(RendezvousError::Full { key: key.to_owned(), room }),
            Some(sent) => sent.map_err(|end| RendezvousError::ended(key, end)),
        }
    }

    /// Receives what was sent first under a key; waits until there is something.
    ///
    /// # Errors
    /// Where everything was received and nothing more is sent, somebody gave up, or the limits end
    /// the wait. Then nothing is lost.
    pub fn receive(&self, key: &str, limits: &Limits) -> Result<Delivery, RendezvousError> {
        let received = self.0.wait(limits, |state| state.table.take(key));
        let doing = Waiting::ToReceive;
        received
            .map_err(|why| RendezvousError::Interrupted { key: key.to_owned(), doing, why })?
            .map_err(|end| RendezvousError::ended(key, end))
    }

    /// [`Rendezvous::receive`] that does not wait: nothing, where there is nothing yet.
    ///
    /// # Errors
    /// As [`Rendezvous::receive`].
    pub fn try_receive(&self, key: &str) -> Result<Option<Delivery>, RendezvousError> {
        let received = self.0.change(|state| state.table.take(key));
        received.transpose().map_err(|end| RendezvousError::ended(key, end))
    }

    /// Values that lie under a key at the moment.
    pub fn len(&self, key: &str) -> usize {
        self.0.with(|state| state.table.len(key))
    }

    /// Whether nothing lies under a key at the moment.
    pub fn is_empty(&self, key: &str) -> bool {
        self.len(key) == 0
    }

    /// Says that nothing more is sent under this key: whoever receives gets what is there, and is
    /// told then.
    pub fn finish(&self, key: &str) {
        self.0.change(|state| state.table.finish(key));
    }

    /// Says that nothing more is sent at all.
    pub fn close(&self) {
        self.0.change(|state| state.table.close());
    }

    /// Gives up: everybody who waits, and whoever comes later, is told why. The first reason stays.
    /// What lies there is dropped.
    pub fn abort(&self, why: impl Into<String>) {
        let left = self.0.change(|state| state.table.abort(why.into()));
        drop(left); // in no lock
    }

    /// Why somebody gave up.
    pub fn aborted(&self) -> Option<String> {
        self.0.with(|state| state.table.aborted().map(str::to_owned))
    }

    /// Whether a value may be sent under a key. (One that is dead may be.)
    fn admit(&self, key: &str, value: &Option<Delivery>) -> Result<(), RendezvousError> {
        let Some(Delivery::Alive(tensor)) = value else { return Ok(()) };
        self.0.with(|state| match state.kinds.get(key) {
            Some(kind) if !kind.admits(tensor.dtype(), tensor.shape()) => {
                Err(RendezvousError::Kind {
                    key: key.to_owned(),
                    expected: kind.to_string(),
                    found: tensor.spec(),
                })
            }
            _ => Ok(()),
        })
    }
}

impl std::fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.with(|state| write!(f, "Rendezvous({:?})", state.table))
    }
}

//! A request on its way: what is to be run, and who runs it.

use super::QueueError;
use super::batch::Mate;
use super::line::Entry;
use super::ticket::Ticket;
use crate::{Request, SessionError};
use plutino_ir::{CancelToken, Limits, Registration};
use plutino_tensor::Tensor;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub(super) type Outcome = Result<Vec<Tensor>, QueueError>;

/// See the module.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) feeds: Vec<(String, Tensor)>,
    pub(super) fetches: Vec<String>,
    all: bool,
    pub(super) deadline: Option<Instant>,
    /// Given by the handle, or by the token of the request.
    pub(super) token: CancelToken,
    pub(super) ticket: Ticket<Outcome>,
    /// What others must be like that run as one with it; none, where nobody can.
    pub(super) mate: Option<Mate>,
    /// When it was submitted.
    pub(super) since: Instant,
    /// Read and changed in the lock of the line alone.
    phase: Mutex<Phase>,
    /// The token of the request ends the job.
    link: Mutex<Option<Registration>>,
}

/// Where a job is.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Waiting,
    /// Its run looks at its limits.
    Alone,
    /// In a run that has limits of its own.
    Together(Arc<Together>),
}

/// Several jobs that run as one.
#[derive(Debug)]
pub(super) struct Together {
    pub(super) token: CancelToken,
    /// Jobs that still want a result.
    live: AtomicUsize,
}

impl Together {
    pub(super) fn new(jobs: usize) -> Arc<Self> {
        Arc::new(Self { token: CancelToken::new(), live: AtomicUsize::new(jobs) })
    }

    /// One job wants no result any more. The last one ends the run.
    pub(super) fn leave(&self) {
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.token.cancel();
        }
    }
}

impl Job {
    /// A request, with tensors of its own: views of memory that others own are copied.
    pub(super) fn new(number: u64, request: &Request<'_>) -> Result<Self, SessionError> {
        let feed =
            |(name, fed): &(&str, crate::Fed<'_>)| Ok(((*name).to_owned(), fed.owned(name)?));
        let feeds = request.feeds.iter().map(feed).collect::<Result<Vec<_>, SessionError>>()?;
        let fetches: Vec<String> = request.fetches.iter().map(|&name| name.to_owned()).collect();
        let mate = Mate::of(&feeds, &fetches).filter(|_| !request.all);
        Ok(Self {
            number,
            feeds,
            fetches,
            all: request.all,
            deadline: request.limits.deadline,
            token: CancelToken::new(),
            ticket: Ticket::new(),
            mate,
            since: Instant::now(),
            phase: Mutex::new(Phase::Waiting),
            link: Mutex::default(),
        })
    }

    /// The request, with limits of its own.
    pub(super) fn request(&self) -> Request<'_> {
        let limits = Limits { cancel: Some(self.token.clone()), deadline: self.deadline };
        let feeds = self.feeds.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let mut request = feeds.fold(Request::new(), |request, (name, x)| request.feed(name, x));
        request = self.fetches.iter().fold(request, |request, name| request.fetch(name));
        if self.all {
            request = request.fetch_all();
        }
        request.within(&limits)
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn enter(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// Keeps the registration as long as the job has no result.
    pub(super) fn link(&self, registration: Registration) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(registration);
    }

    /// Sets the result; whether it had none. See [`Ticket::complete`].
    pub(super) fn finish(&self, outcome: Outcome, note: impl FnOnce()) -> bool {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(link); // in no lock
        self.ticket.complete(outcome, note)
    }
}

impl Entry for Arc<Job> {
    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }

    fn joins(&self, other: &Self) -> bool {
        self.mate.is_some() && self.mate == other.mate
    }
}

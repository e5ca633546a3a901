//! Requests that are run later, by threads of a queue.

mod batch;
mod error;
mod job;
mod line;
#[cfg(test)]
mod tests;
mod ticket;
mod work;

pub use error::QueueError;

use crate::{Request, Session, SessionError};
use job::{Job, Outcome};
use line::Line;
use plutino_ir::{CancelToken, Interrupted, Limits};
use plutino_tensor::Tensor;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use ticket::Ticket;
use work::Shared;

/// Threads that run the requests of a session, in the order in which they were submitted.
///
/// [`Queue::submit`] returns at once with a [`Handle`]: a future, which can also be waited for.
/// Only so many requests wait at a time; a caller that brings more waits itself, or is refused
/// ([`Queue::try_submit`]). Limits of a request hold while it waits, too.
///
/// ```
/// use plutino_runtime::{Model, Queue, QueueOptions, Request, SessionOptions};
/// use plutino_tensor::Tensor;
/// # use plutino_ops as _;
/// # let model = Model::from_graph(plutino_ir::Graph::parse(
/// #     "7767517\n3 2\npnnx.Input in 0 1 x\nnn.ReLU relu 1 1 x y\npnnx.Output out 1 0 y",
/// # )?)?;
///
/// let session = model.session(SessionOptions::default())?;
/// let queue = Queue::new(session, QueueOptions::default().with_depth(16))?;
/// let mut handles = Vec::new();
/// for x in [-1.0f32, 2.0] {
///     let x = Tensor::from_slice(&[x], [1])?;
///     handles.push(queue.submit(&Request::new().feed("x", &x))?);
/// }
/// for (handle, expected) in handles.into_iter().zip([0.0f32, 2.0]) {
///     assert_eq!(handle.wait()?[0].as_slice::<f32>()?, [expected]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The end
/// [`Queue::close`] takes no more requests; [`Queue::finish`] waits for those that are there as
/// well. When a queue is dropped, requests that wait end with [`QueueError::Closed`], and those
/// that run are waited for.
pub struct Queue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    next: AtomicU64,
}

/// How a queue works.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Threads that run requests. Each run computes on the threads of the session besides, so more
    /// than one is of use where the session has one thread, or several contexts.
    pub workers: usize,
    /// Requests that may wait; at least 1.
    pub depth: usize,
    /// Whether requests that arrive together are run as one.
    pub batching: Option<Batching>,
}

/// Requests that arrive together are run as one: what they feed is joined along the first
/// dimension, and the results are taken apart again.
///
/// Requests are joined that feed and fetch the same operands with the same dtypes and shapes, but
/// for the first dimension, which all feeds of a request have in common. A model takes part where
/// all its results have as many rows as its inputs, which is asked of plans for two numbers of
/// rows; it must compute each row by itself, which no shape tells. Where a run of several fails,
/// each request is run alone, so that none suffers from another. The limits of each hold: one that
/// is cancelled or late has its error at once, and the run goes on for the others.
///
/// A row has the bits that it has in a batch of that size; in any, with
/// [`SessionOptions::batch_invariant`](crate::SessionOptions::batch_invariant).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// Requests that run as one at most. Smaller numbers are powers of two, since each number is a
    /// plan of its own ([`SessionOptions::plan_cache_size`](crate::SessionOptions)).
    pub most: usize,
    /// How long a request waits for others to arrive.
    pub window: Duration,
}

impl Default for QueueOptions {
    /// One worker, 64 requests that wait, no batches.
    fn default() -> Self {
        Self { workers: 1, depth: 64, batching: None }
    }
}

impl QueueOptions {
    /// Runs requests on so many threads.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Lets so many requests wait.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Runs up to `most` requests as one that arrive within so long.
    #[must_use]
    pub fn with_batching(mut self, most: usize, window: Duration) -> Self {
        self.batching = Some(Batching { most, window });
        self
    }
}

/// What a queue has done, and has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that have a result, or an error.
    pub done: u64,
    /// Runs of the session: fewer than requests where some ran as one.
    pub runs: u64,
}

impl Queue {
    /// A queue in front of a session, and its threads.
    ///
    /// # Errors
    /// Where an option makes no sense, or the system starts no thread.
    pub fn new(
        session: impl Into<Arc<Session>>,
        options: QueueOptions,
    ) -> Result<Self, QueueError> {
        let most = options.batching.map_or(1, |batching| batching.most);
        for (option, value) in
            [("workers", options.workers), ("depth", options.depth), ("batching.most", most)]
        {
            if value == 0 {
                let (expected, found) = ("at least 1".to_owned(), "0".to_owned());
                let option = option.to_owned();
                return Err(SessionError::Option { option, expected, found }.into());
            }
        }
        let line = Line::new(options.depth, most);
        let shared = Arc::new(Shared::new(session.into(), line, options.batching));
        let mut queue = Self { shared, threads: Vec::new(), next: AtomicU64::new(0) };
        queue.start("plutino-deadlines".into(), |shared| shared.keep_deadlines())?;
        for worker in 0..options.workers {
            queue.start(format!("plutino-queue-{worker}"), |shared| shared.work())?;
        }
        Ok(queue)
    }

    fn start(
        &mut self,
        name: String,
        run: impl FnOnce(&Shared) + Send + 'static,
    ) -> Result<(), QueueError> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name).spawn(move || run(&shared));
        self.threads.push(thread.map_err(|e| QueueError::Threads { what: e.to_string() })?);
        Ok(())
    }

    /// Puts a request at the end of the queue; waits, within the limits of the request, while the
    /// queue is full. Tensors are shared, views of other memory copied.
    ///
    /// # Errors
    /// Where the queue is closed, or the limits end the wait; where a view cannot be copied. All
    /// else is told by the handle.
    pub fn submit(&self, request: &Request<'_>) -> Result<Handle, QueueError> {
        self.enqueue(request, |job| {
            let pushed = self.shared.line.wait(&request.limits, |line| line.push(job));
            pushed.map_err(|why| QueueError::Interrupted { why, running: false })
        })
    }

    /// [`Queue::submit`] that does not wait.
    ///
    /// # Errors
    /// As [`Queue::submit`], and where the queue is full.
    pub fn try_submit(&self, request: &Request<'_>) -> Result<Handle, QueueError> {
        self.enqueue(request, |job| {
            let (pushed, depth) = self.shared.line.change(|line| (line.push(job), line.depth()));
            pushed.ok_or(QueueError::Full { depth })
        })
    }

    fn enqueue(
        &self,
        request: &Request<'_>,
        push: impl FnOnce(&Arc<Job>) -> Result<bool, QueueError>,
    ) -> Result<Handle, QueueError> {
        let interrupted = |why| QueueError::Interrupted { why, running: false };
        request.limits.check().map_err(interrupted)?;
        let job = Arc::new(Job::new(self.next.fetch_add(1, Relaxed), request)?);
        let handle = Handle {
            ticket: job.ticket.clone(),
            cancelling: Cancelling {
                token: job.token.clone(),
                job: Arc::downgrade(&job),
                shared: Arc::downgrade(&self.shared),
            },
            detached: false,
        };
        if let Some(token) = &request.limits.cancel {
            let cancelling = handle.cancelling.clone();
            job.link(token.on_cancel(move || cancelling.cancel()));
        }
        // Dropping the handle of a job that is nowhere does nothing.
        if !push(&job)? {
            return Err(QueueError::Closed);
        }
        self.shared.remember(&job);
        if job.token.is_cancelled() {
            handle.cancel(); // before the job was in the line
        }
        Ok(handle)
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.shared.session
    }

    /// What the queue has done, and has to do.
    pub fn counts(&self) -> QueueCounts {
        self.shared.counts()
    }

    /// Takes no more requests. Those that wait are run.
    pub fn close(&self) {
        self.shared.line.change(|line| line.close());
    }

    /// Takes no more requests, and returns when all that there are have their results.
    pub fn finish(mut self) {
        self.close();
        let keeper = (!self.threads.is_empty()).then(|| self.threads.remove(0));
        self.join();
        self.threads.extend(keeper);
    }

    /// Waits for threads to end.
    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A worker may drop the queue itself: by the waker of a request.
            if thread.thread().id() != thread::current().id() {
                _ = thread.join(); // a panic of an operator was caught, and is told by a handle
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let waiting = self.shared.line.change(|line| line.clear());
        waiting.iter().for_each(|job| _ = self.shared.finish(job, Err(QueueError::Closed)));
        self.shared.stop_keeping();
        self.join();
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({:?}, {:?})", self.session(), self.counts())
    }
}

/// A request that was submitted: wait for its result, poll it, or await it.
///
/// Dropping the handle cancels the request, as dropping a future does: what waits leaves the queue,
/// and a run ends within milliseconds. [`Handle::detach`] lets it go on without anybody who wants
/// the result.
#[must_use = "dropping the handle cancels the request"]
pub struct Handle {
    ticket: Ticket<Outcome>,
    cancelling: Cancelling,
    detached: bool,
}

/// What it takes to cancel a job, wherever it is.
#[derive(Clone)]
struct Cancelling {
    token: CancelToken,
    job: Weak<Job>,
    shared: Weak<Shared>,
}

impl Cancelling {
    fn cancel(&self) {
        self.token.cancel();
        if let (Some(job), Some(shared)) = (self.job.upgrade(), self.shared.upgrade()) {
            shared.end(&job, Interrupted::Cancelled);
        }
    }
}

impl Handle {
    /// Waits for the results, in the order of what was fetched.
    ///
    /// # Errors
    /// Why there are none.
    pub fn wait(mut self) -> Result<Vec<Tensor>, QueueError> {
        self.wait_within(&Limits::default()).unwrap_or(Err(QueueError::Taken))
    }

    /// [`Handle::wait`] for so long: the wait may end early, and the request goes on.
    ///
    /// # Errors
    /// Where the limits end the wait; inside, why there are no results.
    pub fn wait_within(
        &mut self,
        limits: &Limits,
    ) -> Result<Result<Vec<Tensor>, QueueError>, Interrupted> {
        Ok(self.ticket.wait(limits)?.unwrap_or(Err(QueueError::Taken)))
    }

    /// The results, or why there are none, where that is known; each is had once.
    pub fn try_take(&mut self) -> Option<Result<Vec<Tensor>, QueueError>> {
        self.ticket.take()
    }

    /// Whether the request has come to an end.
    pub fn is_done(&self) -> bool {
        self.ticket.is_done()
    }

    /// Ends the request: at once where it waits, within milliseconds where it runs. The handle then
    /// has an error, or the results, if they were there before.
    pub fn cancel(&self) {
        self.cancelling.cancel();
    }

    /// Lets the request go on, whose results nobody wants.
    pub fn detach(mut self) {
        self.detached = true;
    }
}

impl Future for Handle {
    type Output = Result<Vec<Tensor>, QueueError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.ticket.poll(cx).map(|outcome| outcome.unwrap_or(Err(QueueError::Taken)))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.detached && !self.ticket.is_done() {
            self.cancelling.cancel();
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", if self.is_done() { "done" } else { "not done" })
    }
}

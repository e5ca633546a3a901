//! Work without the interpreter's lock that Ctrl-C ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

/// Ends work from another thread: given to `Session.run(cancel=...)`.
///
/// Work ends within milliseconds after `cancel()`, with the exception `plutino.Cancelled`. One
/// token may be given to any number of runs. It stays cancelled.
#[pyclass(frozen, module = "plutino")]
#[derive(Debug, Default)]
pub(crate) struct CancelToken(pub(crate) plutino::CancelToken);

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Ends all work that this token was given to, and what it will be given to.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether `cancel` was called.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    fn __repr__(&self) -> &'static str {
        match self.0.is_cancelled() {
            true => "CancelToken(cancelled)",
            false => "CancelToken()",
        }
    }
}

/// Calls that are under way in this process.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// A call that is under way, until it is dropped.
struct Call;

impl Call {
    fn begin() -> Self {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Called in the child after a fork: whether calls were under way in the parent. Their threads are
/// not there any more, and what they had locked stays so.
#[pyfunction]
pub(crate) fn forked() -> bool {
    UNDER_WAY.swap(0, Ordering::SeqCst) > 0
}

/// Does `work` without the interpreter's lock, as a call that is under way: a fork meanwhile may
/// leave locks of a session or of a model held by a thread that is not in the child.
pub(crate) fn counted<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    let _call = Call::begin();
    py.detach(work)
}

/// Time between two looks for signals: half of what Ctrl-C may take, with room for the lock.
const LOOK: Duration = Duration::from_millis(5);

/// Does `work` without the interpreter's lock.
///
/// Handlers of signals run on the main thread alone, and only where that asks for them. So there,
/// with `watched`, another thread does the work, while this one asks; if a handler raises an
/// exception, as that of Ctrl-C does, `token` is cancelled, and the exception comes out when the
/// work has ended.
pub(crate) fn detached<R: Send>(
    py: Python<'_>,
    watched: bool,
    token: &plutino::CancelToken,
    work: impl Fn() -> R + Sync,
) -> PyResult<R> {
    let (_call, work) = (Call::begin(), &work);
    if !watched {
        return Ok(py.detach(work));
    }
    py.detach(|| {
        thread::scope(|scope| {
            let (done, ended) = sync_channel::<()>(1);
            let helper =
                thread::Builder::new().name("plutino-run".into()).spawn_scoped(scope, move || {
                    let result = work();
                    drop(done); // the channel closes, also where `work` panics
                    result
                });
            let Ok(helper) = helper else {
                return Ok(work()); // no further thread is to be had: Ctrl-C waits
            };
            let mut raised = None;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK) {
                if raised.is_none()
                    && let Err(error) = Python::attach(|py| py.check_signals())
                {
                    token.cancel();
                    raised = Some(error);
                }
            }
            let result = helper.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
            raised.map_or(Ok(result), Err)
        })
    })
}

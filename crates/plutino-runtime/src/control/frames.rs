//! What control operators ran, for profiles and messages: bodies and trips.
//!
//! A kernel knows neither the step that it is nor who looks on. Both are noted by the thread of the
//! run, which is the one that kernels are called by.

use crate::plan::Plan;
use crate::{SessionError, StepTime};
use plutino_ops::Location;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frames that a profile keeps of one run, with those within others. More are counted only.
const MOST_FRAMES: usize = 4096;

/// One run of a body: of the branch that was taken, of a loop's condition, or of a loop's body in
/// one trip.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Frame {
    /// The step of the plan around it that ran it.
    pub step: usize,
    /// What it is to the operator: `then`, `else`, `cond` or `body`.
    pub part: &'static str,
    /// Type of the body.
    pub kind: String,
    /// Which trip of the loop, from 0.
    pub trip: usize,
    /// Start, since the start of the whole run.
    pub start: Duration,
    /// Time taken.
    pub duration: Duration,
    /// What was run: its steps are those timed.
    pub plan: Arc<Plan>,
    /// One entry for each step of the plan; starts are those since the start of the frame.
    pub steps: Vec<StepTime>,
    /// What control operators in the body ran.
    pub frames: Vec<Frame>,
}

/// What is noted of a run that somebody looks at.
struct Notes {
    begin: Instant,
    step: usize,
    frames: Vec<Frame>,
    left_out: usize,
    /// Frames of the whole run so far.
    all: Rc<Cell<usize>>,
}

impl Notes {
    /// Whether there is room for another frame, which is taken then.
    fn reserve(&self) -> bool {
        let free = self.all.get() < MOST_FRAMES;
        self.all.set(self.all.get() + usize::from(free));
        free
    }
}

thread_local! {
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
    static FAILED: RefCell<Option<(String, SessionError)>> = const { RefCell::new(None) };
}

/// Frames are noted until this is dropped; then those of the run around are again.
pub(crate) struct Recording {
    around: Option<Notes>,
    done: bool,
}

impl Recording {
    /// Notes the frames of a run that began at `begin`.
    pub(crate) fn start(begin: Instant) -> Self {
        Self::counting(begin, Rc::default())
    }

    fn counting(begin: Instant, all: Rc<Cell<usize>>) -> Self {
        let notes = Notes { begin, step: 0, frames: Vec::new(), left_out: 0, all };
        let around = NOTES.with(|notes_of| notes_of.borrow_mut().replace(notes));
        Self { around, done: false }
    }

    /// Of a body, if those of the run around are noted; with the beginning of that.
    fn nested() -> Option<(Self, Instant)> {
        let around = |notes: &Notes| (notes.begin, Rc::clone(&notes.all));
        let (begin, all) = NOTES.with(|notes| notes.borrow().as_ref().map(around))?;
        Some((Self::counting(begin, all), begin))
    }

    /// What follows is done by this step.
    pub(crate) fn at(step: usize) {
        NOTES.with(|all| {
            if let Some(notes) = all.borrow_mut().as_mut() {
                notes.step = step;
            }
        });
    }

    /// The frames, and how many there were beyond those.
    pub(crate) fn finish(mut self) -> (Vec<Frame>, usize) {
        self.done = true;
        let around = self.around.take();
        let notes = NOTES.with(|all| std::mem::replace(&mut *all.borrow_mut(), around));
        notes.map_or((Vec::new(), 0), |notes| (notes.frames, notes.left_out))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.done {
            let around = self.around.take();
            NOTES.with(|all| *all.borrow_mut() = around);
        }
    }
}

/// What a frame is before it has run.
pub(crate) struct Opening<'a> {
    pub(crate) part: &'static str,
    pub(crate) kind: &'a str,
    pub(crate) trip: usize,
    pub(crate) plan: &'a Arc<Plan>,
}

/// Runs `f`, which notes the times of its steps where it is asked to, and notes the frame.
pub(crate) fn frame<R>(
    opening: &Opening<'_>,
    f: impl FnOnce(Option<&mut Vec<StepTime>>) -> R,
) -> R {
    let Some((recording, begin)) = Recording::nested() else { return f(None) };
    // Before it runs: those within it may be more than are kept.
    let kept = NOTES.with(|all| all.borrow().as_ref().is_some_and(Notes::reserve));
    let start = Instant::now();
    let mut steps = Vec::new();
    let result = f(Some(&mut steps));
    let duration = start.elapsed();
    let (frames, left_out) = recording.finish();
    NOTES.with(|all| {
        let mut all = all.borrow_mut();
        let Some(notes) = all.as_mut() else { return };
        notes.left_out += left_out;
        if !kept {
            notes.left_out += 1;
            return;
        }
        notes.frames.push(Frame {
            step: notes.step,
            part: opening.part,
            kind: opening.kind.to_owned(),
            trip: opening.trip,
            start: start.saturating_duration_since(begin),
            duration,
            plan: Arc::clone(opening.plan),
            steps,
            frames,
        });
    });
    result
}

/// Keeps what went wrong in a body, for whoever runs the step: a kernel's error says less.
pub(crate) fn fail(part: String, error: SessionError) {
    FAILED.with(|failed| *failed.borrow_mut() = Some((part, error)));
}

/// What went wrong in the body that this step ran, if that is why it failed.
pub(crate) fn failure(location: &Location) -> Option<SessionError> {
    let (part, source) = FAILED.with(|failed| failed.borrow_mut().take())?;
    let location = Box::new(location.clone());
    Some(SessionError::Inside { location, part, error: Box::new(source) })
}

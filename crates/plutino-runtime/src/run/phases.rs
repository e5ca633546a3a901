//! Running a phase of a plan whose chains of steps run at the same time.

use crate::memory::arena::{Blocks, Lend};
use crate::plan::schedule::Together;
use crate::plan::{Step, Work};
use crate::run::exec::{Handed, Run};
use crate::run::given::Given;
use crate::run::profile::StepTime;
use crate::{SessionError, spans};
use plutino_kernels::Par;
use plutino_kernels::par::Trace;
use plutino_ops::RunError;
use plutino_tensor::stop::Stop;
use plutino_tensor::{Scope, Tensor};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The times of the steps of a run.
pub(crate) struct Clock<'a> {
    pub(crate) trace: &'a Arc<Trace>,
    /// By step.
    pub(crate) times: &'a mut Vec<StepTime>,
}

impl Clock<'_> {
    /// Since the beginning of the run.
    pub(crate) fn now(&self) -> Duration {
        self.trace.begin().elapsed()
    }

    /// Notes that a step that began at `start` is over.
    pub(crate) fn note(&mut self, at: usize, start: Duration, thread: usize) {
        let duration = self.now().saturating_sub(start);
        self.put(at, StepTime { start, duration, thread });
    }

    fn put(&mut self, at: usize, time: StepTime) {
        if self.times.len() <= at {
            self.times.resize(at + 1, StepTime::default()); // bounded: steps
        }
        self.times[at] = time;
    }
}

/// What chains leave for whoever waits for them.
#[derive(Default)]
struct Outcome {
    /// The first step that failed, in the order of the steps: whoever ran first, it is the one at
    /// which a run in turn would have ended.
    failed: Option<(usize, RunError)>,
    times: Vec<(usize, StepTime)>,
}

impl Run<'_> {
    /// Runs chains of steps at the same time. What is wrong is told as it would be if the steps ran
    /// in turn.
    pub(crate) fn together(
        &self,
        phase: &Together,
        blocks: &mut Blocks<'_>,
        handed: &Handed,
        (par, scope): (&Par, &Scope),
        clock: &mut Option<Clock<'_>>,
    ) -> Result<(), SessionError> {
        let first = phase.chains.iter().flatten().copied().min().unwrap_or(0);
        if scope.stop().is_some_and(Stop::is_given) {
            self.halted(scope, first).map_or(Ok(()), Err)?;
        }
        let before = self.ledger.as_ref().map(|ledger| (ledger, ledger.spent()));
        let outcome = Mutex::new(Outcome::default());
        let divided = blocks.divide(&phase.territories);
        let chains = Chains {
            given: self.given(),
            heap: &handed.heap,
            begin: clock.as_ref().map(|clock| &**clock.trace),
            outcome: &outcome,
        };
        par.run_as(phase.chains.len(), |worker, number| {
            let (Some(steps), Some(memory)) = (phase.chains.get(number), divided.chain(number))
            else {
                return;
            };
            chains.run(steps, memory, worker);
        });
        let Outcome { failed, times } =
            outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Whoever saw the signal left steps out.
        let done = failed.map_or(Ok(()), |(at, error)| match self.plan.steps.get(at) {
            Some(step) => {
                let location = Box::new((*step.location).clone());
                Err(SessionError::Run { location, error })
            }
            None => Err(SessionError::internal(error.to_string())),
        });
        self.halted(scope, first).map_or(done, Err)?;
        if let Some((ledger, before)) = before {
            ledger.refund_to(before); // steps in chains leave nothing behind
        }
        if let Some(clock) = clock {
            times.into_iter().for_each(|(at, time)| clock.put(at, time));
        }
        Ok(())
    }
}

/// What the threads of a phase share.
struct Chains<'a> {
    given: Given<'a>,
    heap: &'a [Option<Tensor>],
    /// Where somebody wants to know the times.
    begin: Option<&'a Trace>,
    outcome: &'a Mutex<Outcome>,
}

impl Chains<'_> {
    /// Runs the steps of a chain, until one fails or the signal is given.
    fn run(&self, steps: &[usize], mut memory: impl Lend, thread: usize) {
        let (scope, par) = (Scope::current(), Par::serial());
        let mut times = Vec::new();
        let mut failed = None;
        for &at in steps {
            if scope.stop().is_some_and(Stop::is_given) {
                break;
            }
            let Some(step) = self.given.plan.steps.get(at) else { break };
            let _span = spans::step(at, step);
            let start = self.begin.map(|trace| trace.begin().elapsed());
            if let Err(error) = self.step(step, &mut memory, &par) {
                failed = Some((at, error));
                break;
            }
            if let (Some(trace), Some(start)) = (self.begin, start) {
                let duration = trace.begin().elapsed().saturating_sub(start);
                times.push((at, StepTime { start, duration, thread }));
            }
        }
        if failed.is_none() && times.is_empty() {
            return;
        }
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.times.append(&mut times);
        if let Some((at, error)) = failed
            && outcome.failed.as_ref().is_none_or(|(before, _)| at < *before)
        {
            outcome.failed = Some((at, error));
        }
    }

    fn step(&self, step: &Step, memory: &mut impl Lend, par: &Par) -> Result<(), RunError> {
        match &step.work {
            Work::Kernel(kernel) => {
                let made = self.given.kernel(step, kernel.as_ref(), memory, self.heap, par)?;
                match made.is_empty() {
                    true => Ok(()),
                    false => Err(RunError::Internal("a chain made a value of its own".into())),
                }
            }
            Work::Copy => self.given.copy(step, memory, self.heap, par),
            Work::Append(_) | Work::Late(_) => {
                Err(RunError::Internal("a step that must run in turn is in a chain".into()))
            }
        }
    }
}

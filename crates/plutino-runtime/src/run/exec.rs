//! Running a plan: one loop over its steps.

use crate::control;
use crate::halt;
use crate::lists;
use crate::memory::arena::{ArenaPool, Blocks, Lend};
use crate::place::Context;
use crate::plan::schedule::{How, Phase, Schedule};
use crate::plan::{Fetch, Plan, Sink, Source, Step, Work, members};
use crate::run::given::Given;
use crate::run::late::{self, LateError, LateInput, LateStep, LateValue};
use crate::run::phases::Clock;
use crate::run::profile::StepTime;
use crate::run::request::Dense;
use crate::run::watch::Watch;
use crate::settings::Settings;
use crate::{Profile, SessionError, spans};
use plutino_ir::{Interrupted, Limits};
use plutino_kernels::Par;
use plutino_kernels::par::Trace;
use plutino_ops::{Members, RunError};
use plutino_tensor::alloc::{self, Ledger};
use plutino_tensor::stop::Stop;
use plutino_tensor::{Scope, Shape, Tensor, TensorError, TensorSpec};
use smallvec::SmallVec;
use std::sync::Arc;

/// What stays the same during a run.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) feeds: &'a [Dense<'a>],
    pub(crate) limits: &'a Limits,
    pub(crate) settings: &'a Settings,
    /// What the run may take beside what its plan counts: values whose size depends on data, memory
    /// that kernels take for a moment, copies of feeds.
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// Who is shown the values between steps.
    pub(crate) watch: Option<&'a dyn Watch>,
}

/// What a caller wants of a run beside its results.
#[derive(Default)]
pub(crate) struct Observed<'a> {
    pub(crate) profile: Option<&'a mut Profile>,
    pub(crate) names: Option<&'a mut ResultNames>,
    /// Who is shown the values between steps.
    pub(crate) watch: Option<&'a dyn Watch>,
}

/// The names of results: which of the values that are fetched each is of, and what follows the name
/// of that.
pub(crate) type ResultNames = Vec<(usize, String)>;

/// What steps hand to later steps outside the blocks.
pub(crate) struct Handed {
    pub(crate) heap: Vec<Option<Tensor>>,
    pub(crate) late: Vec<Option<LateValue>>,
}

impl Handed {
    /// Bytes of what a step just made, which stays until the run ends.
    fn made_by(&self, step: &Step) -> usize {
        let bytes = |tensor: &Tensor| tensor.as_bytes().len();
        let heap = step.outputs.iter().filter_map(|output| match output.sink {
            Sink::Heap { slot, .. } => self.heap.get(slot)?.as_ref().map(bytes),
            _ => None,
        });
        let late: &[usize] = match &step.work {
            Work::Late(late) => &late.outputs,
            _ => &[],
        };
        let late = late.iter().filter_map(|&slot| self.late.get(slot)?.as_ref());
        let late = late.flat_map(|value| value.leaves.iter().map(bytes));
        heap.chain(late).fold(0, usize::saturating_add)
    }
}

/// Memory that the caller keeps for a run.
pub(crate) struct Memory<'a> {
    /// Tensors whose memory results may take over, by number of the result.
    pub(crate) reused: &'a mut [Option<Tensor>],
    /// That of [`Plan::residents`], in order.
    pub(crate) caches: SmallVec<[&'a mut [u8]; 4]>,
}

/// Runs the plan; results go to the end of `outputs`.
pub(crate) fn run(
    run: &Run<'_>,
    contexts: &[Arc<Context>],
    arenas: &ArenaPool,
    Memory { reused, caches }: Memory<'_>,
    Observed { profile, names, .. }: Observed<'_>,
    outputs: &mut Vec<Tensor>,
) -> Result<(), SessionError> {
    let _span = spans::run(run.plan);
    let _limits = halt::enter(run.limits);
    let trace = profile.as_ref().map(|_| Arc::new(Trace::new(most_threads(contexts))));
    let recording = trace.as_ref().map(|trace| control::Recording::start(trace.begin()));
    let direct = &run.plan.direct;
    let mut given: SmallVec<[Option<Tensor>; 2]> = SmallVec::new();
    given.extend(direct.iter().map(|d| {
        let old = reused.get_mut(d.fetch).and_then(Option::take);
        old.filter(|old| old.spec() == d.spec)
    }));
    let new = direct.iter().zip(&given).filter(|(_, given)| given.is_none());
    let mut made = arenas.results(new.map(|(d, _)| &d.spec))?.into_iter();
    let mut direct: SmallVec<[Tensor; 2]> = SmallVec::new();
    for given in given {
        let missing = || SessionError::internal("a result without a tensor");
        direct.push(given.or_else(|| made.next()).ok_or_else(missing)?);
    }
    let mut times = profile.as_ref().map(|_| Vec::with_capacity(run.plan.steps.len()));
    with_blocks(run.plan, arenas, &mut direct, caches, outputs, |blocks| {
        let clock = trace.as_ref().zip(times.as_mut());
        let clock = clock.map(|(trace, times)| Clock { trace, times });
        run.steps(blocks, Threads::Of(contexts), (reused, names), clock)
    })?;
    if let (Some(profile), Some(trace), Some(times)) = (profile, trace, times) {
        profile.steps = times;
        profile.total = trace.begin().elapsed();
        profile.take_threads(&trace);
        (profile.frames, profile.frames_left_out) =
            recording.map(control::Recording::finish).unwrap_or_default();
    }
    Ok(())
}

/// Runs the plan of a body of a control operator, which is a step of another run: with the threads
/// of that, and within its scope. The arena and the results that steps write to directly are those
/// that were charged when the plan was made. `times` are those of the steps, since their start.
pub(crate) fn run_within(
    run: &Run<'_>,
    par: &Par,
    arenas: &ArenaPool,
    reused: &mut [Option<Tensor>],
    times: Option<&mut Vec<StepTime>>,
    outputs: &mut Vec<Tensor>,
) -> Result<(), SessionError> {
    let scope = Scope::current();
    alloc::uncharged(|| {
        let mut direct: SmallVec<[Tensor; 2]> = SmallVec::new();
        for d in &run.plan.direct {
            let old = reused.get_mut(d.fetch).and_then(Option::take);
            direct.push(reuse_or_new(old, &d.spec)?);
        }
        with_blocks(run.plan, arenas, &mut direct, SmallVec::new(), outputs, |blocks| {
            let _scope = scope.enter();
            let trace = times.as_ref().map(|_| Arc::new(Trace::new(1)));
            let clock = trace.as_ref().zip(times);
            let clock = clock.map(|(trace, times)| Clock { trace, times });
            run.steps(blocks, Threads::These(par), (reused, None), clock)
        })
    })
}

/// Lends `steps` the blocks of a run: an arena, the results that are written directly, the caches.
/// What it makes goes to the end of `outputs`.
fn with_blocks(
    plan: &Plan,
    arenas: &ArenaPool,
    direct: &mut [Tensor],
    mut caches: SmallVec<[&mut [u8]; 4]>,
    outputs: &mut Vec<Tensor>,
    steps: impl FnOnce(Blocks<'_>) -> Result<SmallVec<[Done; 4]>, SessionError>,
) -> Result<(), SessionError> {
    let results = arenas.with(plan.memory.arena, |arena| {
        let mut memory: SmallVec<[&mut [u8]; 4]> = SmallVec::new();
        memory.push(arena.as_mut_bytes());
        for tensor in direct.iter_mut() {
            memory.push(tensor.as_mut_bytes()?);
        }
        memory.extend(caches.iter_mut().map(|cache| &mut **cache));
        steps(Blocks::new(memory.into_iter()))
    })?;
    finish(results, direct, outputs)
}

/// Hands over the results, in order.
fn finish(
    results: SmallVec<[Done; 4]>,
    direct: &[Tensor],
    outputs: &mut Vec<Tensor>,
) -> Result<(), SessionError> {
    for result in results {
        outputs.push(match result {
            Done::Tensor(tensor) => tensor,
            Done::Direct(at, shape) => match direct.get(at) {
                Some(tensor) => tensor.reshape(shape)?, // shares the buffer
                None => return Err(SessionError::internal("a result without a tensor")),
            },
        });
    }
    Ok(())
}

/// Who computes.
#[derive(Clone, Copy)]
enum Threads<'a> {
    /// Those of each context, which attend as long as the run is in it.
    Of(&'a [Arc<Context>]),
    /// Those that attend already.
    These(&'a Par),
}

impl Threads<'_> {
    /// Runs `f` with the threads of a context, once it is this run's turn; `alone` with the
    /// caller's thread there.
    fn enter<R>(
        self,
        context: usize,
        alone: bool,
        limits: &Limits,
        trace: Option<&Arc<Trace>>,
        f: impl FnOnce(&Par) -> Result<R, SessionError>,
    ) -> Result<R, Entering> {
        match self {
            Self::These(par) => Ok(f(par)?),
            Self::Of(contexts) => match contexts.get(context) {
                Some(context) => Ok(context.enter(limits, alone, trace, f)??),
                None => Err(SessionError::internal("there is no such context").into()),
            },
        }
    }
}

/// Why a run did not come through a context.
#[derive(Debug, thiserror::Error)]
enum Entering {
    #[error(transparent)]
    Failed(#[from] SessionError),
    /// While it waited for its turn.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Threads of the largest context.
fn most_threads(contexts: &[Arc<Context>]) -> usize {
    contexts.iter().map(|context| context.threads()).max().unwrap_or(1)
}

/// A result, while the output tensors are still lent to the blocks.
enum Done {
    Tensor(Tensor),
    /// Output tensor `i`, in this shape.
    Direct(usize, Shape),
}

/// `old`, where it is what is needed; else a new tensor. (Writing to one that somebody else holds
/// copies it first.)
fn reuse_or_new(old: Option<Tensor>, spec: &TensorSpec) -> Result<Tensor, TensorError> {
    match old {
        Some(tensor) if tensor.spec() == *spec => Ok(tensor),
        _ => Tensor::zeros(spec.dtype, spec.shape.clone()),
    }
}

impl Run<'_> {
    /// The loop. With a clock, each step's time is noted.
    fn steps(
        &self,
        mut blocks: Blocks<'_>,
        threads: Threads<'_>,
        results: (&mut [Option<Tensor>], Option<&mut ResultNames>),
        mut clock: Option<Clock<'_>>,
    ) -> Result<SmallVec<[Done; 4]>, SessionError> {
        let mut handed = Handed {
            heap: lists::filled(self.plan.heap_slots, None)?,
            late: lists::filled(self.plan.late_slots, None)?,
        };
        let mut scope = Scope::current();
        if let Some(ledger) = &self.ledger {
            scope = scope.charged_to(ledger);
        }
        let _charged = self.ledger.is_some().then(|| scope.clone().enter());
        let trace = clock.as_ref().map(|clock| Arc::clone(clock.trace));
        let Schedule { phases, alone } = &*self.plan.schedule;
        for phases in phases.chunk_by(|a, b| a.context == b.context) {
            let Some(first) = phases.first() else { continue };
            let entered =
                threads.enter(first.context, *alone, self.limits, trace.as_ref(), |par| {
                    phases.iter().try_for_each(|phase| {
                        self.phase(phase, &mut blocks, &mut handed, (par, &scope), &mut clock)
                    })
                });
            entered.map_err(|error| match error {
                Entering::Failed(error) => error,
                Entering::Interrupted(why) => {
                    let (at, steps) = (first.steps.start, self.plan.steps.len());
                    let location = self.plan.steps.get(at).map(|step| &*step.location);
                    SessionError::interrupted(why, at, steps, location)
                }
            })?;
        }
        self.show_results(&mut blocks, &handed)?;
        self.results(&mut blocks, &handed, results)
    }

    fn phase(
        &self,
        phase: &Phase,
        blocks: &mut Blocks<'_>,
        handed: &mut Handed,
        (par, scope): (&Par, &Scope),
        clock: &mut Option<Clock<'_>>,
    ) -> Result<(), SessionError> {
        match &phase.how {
            // Whoever looks on is shown values between steps.
            How::Together(together) if self.watch.is_none() && par.threads() > 1 => {
                self.together(together, blocks, handed, (par, scope), clock)
            }
            How::InTurn | How::Together(_) => {
                let mut steps = phase.steps.clone();
                steps.try_for_each(|at| self.one(at, blocks, handed, (par, scope), clock))
            }
        }
    }

    /// The error of a run whose signal was given at this step.
    pub(crate) fn halted(&self, scope: &Scope, at: usize) -> Option<SessionError> {
        let steps = &self.plan.steps;
        let location = steps.get(at).map(|step| &*step.location);
        halt::seen(scope).map(|why| SessionError::interrupted(why, at, steps.len(), location))
    }

    /// Runs a step with all threads.
    fn one(
        &self,
        at: usize,
        blocks: &mut Blocks<'_>,
        handed: &mut Handed,
        (par, scope): (&Par, &Scope),
        clock: &mut Option<Clock<'_>>,
    ) -> Result<(), SessionError> {
        let Some(step) = self.plan.steps.get(at) else {
            return Err(SessionError::internal("a phase of no steps"));
        };
        if scope.stop().is_some_and(Stop::is_given) {
            self.halted(scope, at).map_or(Ok(()), Err)?;
        }
        self.show_inputs(step, blocks, handed)?;
        let _span = spans::step(at, step);
        let start = clock.as_ref().map(|clock| clock.now());
        if start.is_some() {
            control::Recording::at(at);
        }
        let before = self.ledger.as_ref().map(|l| (l, l.spent(), self.packed_by(step)));
        let done = self.step(step, blocks, handed, par);
        // Whoever saw the signal left work out: what there is is no result, whatever the kernel
        // says of it.
        self.halted(scope, at).map_or(done, Err)?;
        if let Some((ledger, before, packed)) = before {
            ledger.refund_to(before);
            let packed = self.packed_by(step).saturating_sub(packed);
            ledger.charge(handed.made_by(step).saturating_add(packed))?;
        }
        if let (Some(clock), Some(start)) = (clock, start) {
            clock.note(at, start, 0);
        }
        self.show_outputs(step, blocks, handed)
    }

    /// Bytes of the packed weights that the plan uses, where this step may add to them: those stay
    /// when it is done.
    fn packed_by(&self, step: &Step) -> usize {
        match &step.work {
            Work::Late(_) => self.plan.packs.used_bytes(),
            _ => 0,
        }
    }

    fn step(
        &self,
        step: &Step,
        blocks: &mut Blocks<'_>,
        handed: &mut Handed,
        par: &Par,
    ) -> Result<(), SessionError> {
        let failed = |error| match control::failure(&step.location) {
            Some(inside) => inside,
            None => SessionError::Run { location: Box::new((*step.location).clone()), error },
        };
        match &step.work {
            Work::Kernel(kernel) => {
                let heap = &handed.heap;
                let made = self.given().kernel(step, kernel.as_ref(), blocks, heap, par);
                made.map_err(failed)?.into_iter().for_each(|(slot, tensor)| {
                    handed.heap[slot] = Some(tensor);
                });
                Ok(())
            }
            Work::Copy => self.given().copy(step, blocks, &handed.heap, par).map_err(failed),
            &Work::Append(at) => self.append(step, at, blocks, handed).map_err(failed),
            Work::Late(late) => self.late(step, late, blocks, handed, par),
        }
    }

    pub(crate) fn given(&self) -> Given<'_> {
        Given { plan: self.plan, feeds: self.feeds }
    }

    /// A few rows: not worth the threads.
    fn append(
        &self,
        step: &Step,
        at: usize,
        blocks: &mut Blocks<'_>,
        handed: &Handed,
    ) -> Result<(), RunError> {
        let (mut read, mut written) = (None, None);
        blocks.lend(&step.reads, &step.writes, |r| read = Some(r), |w| written = Some(w))?;
        let missing = || RunError::Internal("a cache, or what is appended, is missing".into());
        let input = step.inputs.first().ok_or_else(missing)?;
        let append = self.plan.appends.get(at).ok_or_else(missing)?;
        let given = self.given();
        let from = match given.outside(input.source, &handed.heap)? {
            Some(bytes) => bytes,
            None => read.ok_or_else(missing)?,
        };
        append.run(from, written.ok_or_else(missing)?)
    }

    fn late(
        &self,
        step: &Step,
        late: &LateStep,
        blocks: &mut Blocks<'_>,
        handed: &mut Handed,
        par: &Par,
    ) -> Result<(), SessionError> {
        let location = || Box::new((*step.location).clone());
        let failed = |error| match control::failure(&step.location) {
            Some(inside) => inside,
            None => SessionError::Run { location: location(), error },
        };
        let mut inputs = Vec::with_capacity(late.inputs.len());
        // Before they are copied: a list that data made may be read many times.
        let mut members = Members::default();
        for input in &late.inputs {
            let spec = match input {
                &LateInput::Slot(slot) => {
                    handed.late.get(slot).and_then(Option::as_ref).map(|value| &value.spec)
                }
                LateInput::Planned { spec, .. } => Some(spec),
            };
            let counted = spec.map_or(Ok(()), |spec| members.inside(spec, 1));
            counted.map_err(|error| SessionError::Shape {
                location: location(),
                inputs: format!("{} inputs", late.inputs.len()),
                error,
            })?;
        }
        for input in &late.inputs {
            inputs.push(match input {
                &LateInput::Slot(slot) => handed
                    .late
                    .get(slot)
                    .cloned()
                    .flatten()
                    .ok_or_else(|| failed(RunError::Internal("an input was not made".into())))?,
                LateInput::Planned { spec, leaves } => {
                    let leaves = leaves.iter().map(|(spec, source)| {
                        self.tensor(*source, spec, blocks, &handed.heap).map_err(failed)
                    });
                    LateValue::new(spec.clone(), leaves.collect::<Result<_, _>>()?)
                }
            });
        }
        let described = || {
            let specs: Vec<String> =
                inputs.iter().map(|i: &LateValue| i.spec.to_string()).collect();
            specs.join(", ")
        };
        let setting = self.settings.of(&step.location);
        let outputs = late::run(late, inputs.clone(), setting, &self.plan.packs, par).map_err(
            |e| match e {
                LateError::Run(error) => failed(error),
                LateError::Plan(error) => {
                    SessionError::Plan { location: location(), inputs: described(), error }
                }
            },
        )?;
        for (&slot, output) in late.outputs.iter().zip(outputs) {
            handed.late[slot] = Some(output);
        }
        Ok(())
    }

    /// A tensor of what a source holds: shared where it is a whole tensor already, else a copy.
    pub(crate) fn tensor(
        &self,
        source: Source,
        spec: &TensorSpec,
        blocks: &mut Blocks<'_>,
        heap: &[Option<Tensor>],
    ) -> Result<Tensor, RunError> {
        let whole = match source {
            Source::Feed { feed, len, .. } => {
                self.feeds.get(feed).and_then(Dense::tensor).filter(|t| t.as_bytes().len() == len)
            }
            Source::Constant { constant, len, .. } => {
                self.plan.constants.get(constant).filter(|t| t.as_bytes().len() == len)
            }
            Source::Heap(slot) => match heap.get(slot).and_then(Option::as_ref) {
                Some(tensor) => return Ok(tensor.clone()),
                None => return Err(RunError::Internal("a value was not made".into())),
            },
            Source::Lent(_) | Source::Shared => None,
        };
        if let Some(tensor) = whole.filter(|t| t.dtype() == spec.dtype) {
            return Ok(tensor.reshape(spec.shape.clone())?);
        }
        let copy = |bytes: &[u8]| Tensor::from_bytes(spec.dtype, spec.shape.clone(), bytes);
        match (source, self.given().outside(source, heap)?) {
            (_, Some(bytes)) => Ok(copy(bytes)?),
            (Source::Lent(region), None) => {
                let mut made = None;
                blocks.lend(&[region], &[], |bytes| made = Some(copy(bytes)), |_| ())?;
                made.unwrap_or_else(|| Err(TensorError::invalid("nothing was lent")))
                    .map_err(Into::into)
            }
            _ => Err(RunError::Internal(format!("{source:?} cannot be read"))),
        }
    }

    fn results(
        &self,
        blocks: &mut Blocks<'_>,
        handed: &Handed,
        (reused, mut names): (&mut [Option<Tensor>], Option<&mut ResultNames>),
    ) -> Result<SmallVec<[Done; 4]>, SessionError> {
        let mut note = |of: usize, name: &str| {
            if let Some(names) = &mut names {
                names.push((of, self.plan.ending(of, name).to_owned()));
            }
        };
        let mut results = SmallVec::new();
        for (at, fetch) in self.plan.fetches.iter().enumerate() {
            match fetch {
                Fetch::Resident { .. } => {}
                Fetch::Late { of, name, slot } => {
                    let value = handed.late.get(*slot).and_then(Option::as_ref);
                    let value = value.ok_or_else(|| {
                        SessionError::internal(format!("result '{name}' was not made"))
                    })?;
                    members(name, &value.spec).iter().for_each(|name| note(*of, name));
                    results.extend(value.leaves.iter().cloned().map(Done::Tensor));
                }
                Fetch::Leaf {
                    of, name, spec: Some(spec), source: Source::Lent(region), ..
                } => {
                    note(*of, name);
                    if let Some(direct) = region.block.checked_sub(1)
                        && region.offset == 0
                        && self.plan.direct.get(direct).is_some_and(|d| {
                            d.spec.dtype == spec.dtype && d.spec.shape.numel() == spec.shape.numel()
                        })
                    {
                        results.push(Done::Direct(direct, spec.shape.clone()));
                        continue;
                    }
                    let old = reused.get_mut(at).and_then(Option::take);
                    let mut tensor = reuse_or_new(old, spec)?;
                    let to = tensor.as_mut_bytes()?;
                    blocks
                        .lend(&[*region], &[], |bytes| to.copy_from_slice(bytes), |_| ())
                        .map_err(SessionError::of_result)?;
                    results.push(Done::Tensor(tensor));
                }
                Fetch::Leaf { of, name, spec, source, dtype } => {
                    note(*of, name);
                    let spec = spec.clone().unwrap_or(TensorSpec::new(*dtype, [0]));
                    let tensor = self
                        .tensor(*source, &spec, blocks, &handed.heap)
                        .map_err(SessionError::of_result)?;
                    results.push(Done::Tensor(tensor));
                }
            }
        }
        Ok(results)
    }
}

//! Running a plan: one loop over its steps.

use crate::arena::{ArenaPool, Blocks};
use crate::halt;
use crate::late::{self, LateError, LateInput, LateStep, LateValue};
use crate::plan::{Fetch, Plan, Sink, Source, Step, Work, members};
use crate::profile::StepTime;
use crate::request::Dense;
use crate::watch::Watch;
use crate::{Profile, SessionError, spans};
use plutino_ir::Limits;
use plutino_kernels::par::Trace;
use plutino_kernels::{Par, Pool};
use plutino_ops::{Input, Inputs, Members, Output, Outputs, RunCx, RunError, Setting};
use plutino_tensor::alloc::Ledger;
use plutino_tensor::stop::Stop;
use plutino_tensor::{AlignedBuf, Scope, Shape, Tensor, TensorError, TensorSpec};
use smallvec::SmallVec;
use std::sync::Arc;

/// Bytes that one task of a copy moves.
const COPY_GRAIN: usize = 64 << 10;

/// What stays the same during a run.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) feeds: &'a [Dense<'a>],
    pub(crate) limits: &'a Limits,
    pub(crate) setting: Setting,
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
    pool: &Pool,
    arenas: &ArenaPool,
    Memory { reused, mut caches }: Memory<'_>,
    Observed { profile, names, .. }: Observed<'_>,
    outputs: &mut Vec<Tensor>,
) -> Result<(), SessionError> {
    let _span = spans::run(run.plan);
    let _limits = halt::enter(run.limits);
    let trace = profile.as_ref().map(|_| Arc::new(Trace::new(pool.threads())));
    let mut direct: SmallVec<[Tensor; 2]> = SmallVec::new();
    for d in &run.plan.direct {
        let old = reused.get_mut(d.fetch).and_then(Option::take);
        direct.push(reuse_or_new(old, &d.spec)?);
    }
    let mut times = profile.as_ref().map(|_| Vec::with_capacity(run.plan.steps.len()));
    let results = arenas.with(run.plan.memory.arena, |arena| {
        let mut memory: SmallVec<[&mut [u8]; 4]> = SmallVec::new();
        memory.push(arena.as_mut_bytes());
        for tensor in &mut direct {
            memory.push(tensor.as_mut_bytes()?);
        }
        memory.extend(caches.iter_mut().map(|cache| &mut **cache));
        let clock = trace.as_ref().zip(times.as_mut());
        run.steps(Blocks::new(memory.into_iter()), pool, (reused, names), clock)
    })?;
    for result in results {
        outputs.push(match result {
            Done::Tensor(tensor) => tensor,
            Done::Direct(at, shape) => match direct.get(at) {
                Some(tensor) => tensor.reshape(shape)?, // shares the buffer
                None => return Err(SessionError::internal("a result without a tensor")),
            },
        });
    }
    if let (Some(profile), Some(trace), Some(times)) = (profile, trace, times) {
        profile.steps = times;
        profile.total = trace.begin().elapsed();
        profile.take_threads(&trace);
    }
    Ok(())
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
        pool: &Pool,
        results: (&mut [Option<Tensor>], Option<&mut ResultNames>),
        mut clock: Option<(&Arc<Trace>, &mut Vec<StepTime>)>,
    ) -> Result<SmallVec<[Done; 4]>, SessionError> {
        let steps = &self.plan.steps;
        let mut handed = Handed {
            heap: vec![None; self.plan.heap_slots],
            late: vec![None; self.plan.late_slots],
        };
        let mut scope = Scope::current();
        if let Some(ledger) = &self.ledger {
            scope = scope.charged_to(ledger);
        }
        let _charged = self.ledger.is_some().then(|| scope.clone().enter());
        let trace = clock.as_ref().map(|(trace, _)| Arc::clone(trace));
        pool.enter_traced(trace.as_ref(), |par| {
            for (at, step) in steps.iter().enumerate() {
                let halted = || {
                    let why = halt::seen(&scope)?;
                    Some(SessionError::interrupted(why, at, steps.len(), Some(&step.location)))
                };
                if scope.stop().is_some_and(Stop::is_given) {
                    halted().map_or(Ok(()), Err)?;
                }
                self.show_inputs(step, &mut blocks, &handed)?;
                let _span = spans::step(at, step);
                let start = clock.as_ref().map(|(trace, _)| trace.begin().elapsed());
                let before = self.ledger.as_ref().map(|l| (l, l.spent(), self.packed_by(step)));
                let done = self.step(step, &mut blocks, &mut handed, par);
                // Whoever saw the signal left work out: what there is is no result, whatever the
                // kernel says of it.
                halted().map_or(done, Err)?;
                if let Some((ledger, before, packed)) = before {
                    ledger.refund_to(before);
                    let packed = self.packed_by(step).saturating_sub(packed);
                    ledger.charge(handed.made_by(step).saturating_add(packed))?;
                }
                if let (Some((trace, times)), Some(start)) = (&mut clock, start) {
                    let duration = trace.begin().elapsed().saturating_sub(start);
                    times.push(StepTime { start, duration });
                }
                self.show_outputs(step, &mut blocks, &handed)?;
            }
            Ok::<_, SessionError>(())
        })?;
        self.show_results(&mut blocks, &handed)?;
        self.results(&mut blocks, &handed, results)
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
        let failed =
            |source| SessionError::Run { location: Box::new((*step.location).clone()), source };
        match &step.work {
            Work::Kernel(kernel) => {
                self.kernel(step, kernel.as_ref(), blocks, handed, par).map_err(failed)
            }
            Work::Copy => self.copy(step, blocks, handed, par).map_err(failed),
            &Work::Append(at) => self.append(step, at, blocks, handed).map_err(failed),
            Work::Late(late) => self.late(step, late, blocks, handed, par),
        }
    }

    /// The bytes of an input that is not lent by the blocks.
    fn outside<'s>(
        &'s self,
        source: Source,
        heap: &'s [Option<Tensor>],
    ) -> Result<Option<&'s [u8]>, RunError> {
        let (bytes, offset, len) = match source {
            Source::Lent(_) | Source::Shared => return Ok(None),
            Source::Feed { feed, offset, len } => {
                (self.feeds.get(feed).map(Dense::bytes), offset, len)
            }
            Source::Constant { constant, offset, len } => {
                (self.plan.constants.get(constant).map(Tensor::as_bytes), offset, len)
            }
            Source::Heap(slot) => {
                let bytes = heap.get(slot).and_then(Option::as_ref).map(Tensor::as_bytes);
                (bytes, 0, bytes.map_or(0, <[u8]>::len))
            }
        };
        let part = bytes.and_then(|b| b.get(offset..offset.checked_add(len)?));
        part.map(Some).ok_or_else(|| RunError::Internal(format!("{source:?} has no such bytes")))
    }

    fn kernel(
        &self,
        step: &Step,
        kernel: &dyn plutino_ops::Kernel,
        blocks: &mut Blocks<'_>,
        handed: &mut Handed,
        par: &Par,
    ) -> Result<(), RunError> {
        let mut emitted: SmallVec<[Option<Tensor>; 2]> = SmallVec::new();
        let dynamic = step.outputs.iter().filter(|o| matches!(o.sink, Sink::Heap { .. })).count();
        emitted.resize(dynamic, None); // bounded: outputs
        // What a kernel cuts out of no memory is aligned as well.
        let mut none = AlignedBuf::zeroed(0)?;
        let mut read: SmallVec<[&[u8]; 4]> = SmallVec::new();
        let mut written: SmallVec<[&mut [u8]; 4]> = SmallVec::new();
        blocks.lend(&step.reads, &step.writes, |r| read.push(r), |w| written.push(w))?;
        let (mut read, mut written) = (read.into_iter(), written.into_iter());
        let missing = || RunError::Internal("a region was not lent".into());
        let mut inputs = SmallVec::new();
        for input in &step.inputs {
            let bytes = match input.source {
                Source::Shared => None,
                Source::Lent(_) => Some(read.next().ok_or_else(missing)?),
                source => self.outside(source, &handed.heap)?,
            };
            inputs.push(Input { spec: &input.spec, bytes });
        }
        let mut slots = emitted.iter_mut();
        let mut outputs = SmallVec::new();
        for output in &step.outputs {
            outputs.push(match &output.sink {
                Sink::Lent(spec) => {
                    Some(Output::Fixed { spec, bytes: written.next().ok_or_else(missing)? })
                }
                Sink::Heap { dtype, .. } => {
                    Some(Output::Dynamic { dtype: *dtype, slot: slots.next().ok_or_else(missing)? })
                }
                Sink::View => None,
            });
        }
        let scratch = written.next().unwrap_or_else(|| none.as_mut_bytes());
        let mut cx = RunCx { inputs: Inputs(inputs), outputs: Outputs(outputs), scratch, par };
        kernel.run(&mut cx)?;
        drop(cx);
        let mut emitted = emitted.into_iter();
        for output in &step.outputs {
            if let Sink::Heap { slot, .. } = output.sink {
                let tensor = emitted.next().flatten();
                if tensor.is_none() {
                    return Err(RunError::Internal(format!(
                        "{} did not make output '{}'",
                        kernel.name(),
                        output.name
                    )));
                }
                handed.heap[slot] = tensor;
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        step: &Step,
        blocks: &mut Blocks<'_>,
        handed: &Handed,
        par: &Par,
    ) -> Result<(), RunError> {
        let mut read: SmallVec<[&[u8]; 4]> = SmallVec::new();
        let mut written: SmallVec<[&mut [u8]; 4]> = SmallVec::new();
        blocks.lend(&step.reads, &step.writes, |r| read.push(r), |w| written.push(w))?;
        let mut read = read.into_iter();
        for (input, to) in step.inputs.iter().zip(written) {
            let from = match self.outside(input.source, &handed.heap)? {
                Some(bytes) => bytes,
                None => read.next().unwrap_or_default(),
            };
            if from.len() != to.len() {
                return Err(RunError::Internal("a copy between different sizes".into()));
            }
            par.chunks_mut(to, COPY_GRAIN, |i, chunk| {
                let start = i * COPY_GRAIN;
                chunk.copy_from_slice(&from[start..start + chunk.len()]);
            });
        }
        Ok(())
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
        let from = match self.outside(input.source, &handed.heap)? {
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
        let failed = |source| SessionError::Run { location: location(), source };
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
            counted.map_err(|source| SessionError::Shape {
                location: location(),
                inputs: format!("{} inputs", late.inputs.len()),
                source,
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
        let outputs = late::run(late, inputs.clone(), self.setting, &self.plan.packs, par)
            .map_err(|e| match e {
                LateError::Run(source) => failed(source),
                LateError::Plan(source) => {
                    SessionError::Plan { location: location(), inputs: described(), source }
                }
            })?;
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
        match (source, self.outside(source, heap)?) {
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
                        .map_err(|e| SessionError::internal(e.to_string()))?;
                    results.push(Done::Tensor(tensor));
                }
                Fetch::Leaf { of, name, spec, source, dtype } => {
                    note(*of, name);
                    let spec = spec.clone().unwrap_or(TensorSpec::new(*dtype, [0]));
                    let tensor = self
                        .tensor(*source, &spec, blocks, &handed.heap)
                        .map_err(|e| SessionError::internal(e.to_string()))?;
                    results.push(Done::Tensor(tensor));
                }
            }
        }
        Ok(results)
    }
}

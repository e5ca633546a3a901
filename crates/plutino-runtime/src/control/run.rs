//! Running control flow: which bodies, how often, and what goes from one trip to the next.

use super::bound::{Shared, axis_of};
use super::frames::{self, Opening};
use super::{Body, Control, Flow};
use crate::run::exec::{self, Run};
use crate::run::request::{Dense, Fed};
use crate::{SessionError, StepTime};
use plutino_ir::Limits;
use plutino_kernels::Par;
use plutino_ops::{Input, Kernel, Output, RunCx, RunError};
use plutino_tensor::{DType, Shape, Tensor, TensorError, TensorView, alloc, stop};
use smallvec::SmallVec;
use std::sync::Arc;

/// A control operator, planned.
pub(super) struct Running {
    pub(super) control: Arc<Control>,
    pub(super) shared: Arc<Shared>,
}

/// A value on its way: an input of the operator, which stays where it is, or what a body made.
enum Value<'a> {
    Given(TensorView<'a>),
    Made(Tensor),
}

impl Value<'_> {
    fn fed(&self) -> Fed<'_> {
        match self {
            Self::Given(view) => view.clone().into(),
            Self::Made(tensor) => tensor.into(),
        }
    }
}

impl Kernel for Running {
    fn name(&self) -> &str {
        match &self.control.flow {
            Flow::If { .. } => "control.if",
            Flow::While { .. } => "control.while",
            Flow::Scan { .. } => "control.scan",
        }
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let inputs = &cx.inputs.0;
        let given: Vec<TensorView<'_>> =
            (0..inputs.len()).map(|i| cx.inputs.view(i)).collect::<Result<_, _>>()?;
        let mut sinks: Vec<Option<Output<'_>>> =
            cx.outputs.0.iter_mut().map(Option::take).collect();
        let call = Call { running: self, par: cx.par };
        let results = match &self.control.flow {
            Flow::If { then, otherwise } => {
                let taken = match truth(inputs.first())? {
                    true => then,
                    false => otherwise,
                };
                let feeds: Vec<Fed<'_>> = given.iter().skip(1).map(|v| v.clone().into()).collect();
                let mut outputs = Vec::new();
                call.body(taken, 0, &feeds, &mut outputs)?;
                outputs.into_iter().map(Value::Made).collect()
            }
            Flow::While { cond, body, most } => call.repeat(cond.as_ref(), body, *most, given)?,
            Flow::Scan { body, carried, axes, reverse, last } => {
                let mut made = sinks.split_off((*carried).min(sinks.len()));
                let scan = Scan { axes, reverse: *reverse, last };
                let state = call.scan(body, *carried, &scan, given, &mut made)?;
                sinks.into_iter().zip(state).try_for_each(|(sink, value)| put(sink, value))?;
                return Ok(());
            }
        };
        sinks.into_iter().zip(results).try_for_each(|(sink, value)| put(sink, value))
    }
}

/// Puts a result where the plan wants it.
fn put(sink: Option<Output<'_>>, value: Value<'_>) -> Result<(), RunError> {
    let (dtype, shape) = match &value {
        Value::Given(view) => (view.dtype(), view.shape().clone()),
        Value::Made(tensor) => (tensor.dtype(), tensor.shape().clone()),
    };
    match sink {
        Some(Output::Fixed { spec, bytes }) if spec.dtype == dtype && spec.shape == shape => {
            match &value {
                Value::Given(view) => bytes.copy_from_slice(view.as_bytes()?),
                Value::Made(tensor) => bytes.copy_from_slice(tensor.as_bytes()),
            }
            Ok(())
        }
        Some(Output::Dynamic { dtype: expected, slot }) if expected == dtype => {
            *slot = Some(match value {
                Value::Given(view) => view.to_tensor()?,
                Value::Made(tensor) => tensor,
            });
            Ok(())
        }
        Some(Output::Fixed { spec, .. }) => {
            Err(RunError::Internal(format!("a body made {dtype} {shape} for {spec}")))
        }
        Some(Output::Dynamic { dtype: expected, .. }) => {
            let what = format!("a body made {dtype}, but its file says {expected}");
            Err(RunError::Value { input: 0, what })
        }
        None => Err(RunError::Internal("an output does not exist".into())),
    }
}

/// Whether a value of one element is true: not zero.
fn truth(input: Option<&Input<'_>>) -> Result<bool, RunError> {
    let input = input.and_then(|input| Some((input.spec, input.bytes?)));
    let (spec, bytes) = input.ok_or_else(|| RunError::Internal("there is no condition".into()))?;
    is_true(spec.dtype, bytes)
}

fn is_true(dtype: DType, bytes: &[u8]) -> Result<bool, RunError> {
    if bytes.len() != dtype.size_of() || dtype.is_complex() {
        let found = bytes.len() / dtype.size_of().max(1);
        let what = format!("a condition must be one number or bool, found {found} of {dtype}");
        return Err(RunError::Value { input: 0, what });
    }
    let (last, rest) = match bytes.split_last() {
        Some((last, rest)) => (*last, rest),
        None => (0, bytes),
    };
    let sign = if dtype.is_float() { 0x80 } else { 0 }; // of -0.0, which is zero
    Ok(rest.iter().any(|&b| b != 0) || last & !sign != 0)
}

struct Scan<'a> {
    axes: &'a [i64],
    reverse: bool,
    last: &'a [bool],
}

/// Runs bodies for one run of the operator.
struct Call<'a> {
    running: &'a Running,
    par: &'a Par,
}

impl Call<'_> {
    /// Runs a body; its results replace `outputs`, in their memory where that fits.
    fn body(
        &self,
        body: &Body,
        trip: usize,
        feeds: &[Fed<'_>],
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), RunError> {
        stop::check()?;
        let result = self.within(body, trip, feeds, outputs);
        result.map_err(|error| {
            let limit = match &error {
                SessionError::Tensor(e) => Some(e.clone()),
                _ => None,
            };
            let part = match self.running.control.flow {
                Flow::If { .. } => format!("{}={}", body.part, body.kind),
                _ => format!("{}={}, trip {trip}", body.part, body.kind),
            };
            frames::fail(part, error);
            limit.map_or_else(|| RunError::Internal("a body failed".into()), RunError::from)
        })
    }

    fn within(
        &self,
        body: &Body,
        trip: usize,
        feeds: &[Fed<'_>],
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), SessionError> {
        let shared = &self.running.shared;
        let plan = shared.plan_for(body, feeds)?;
        let mut dense: SmallVec<[Dense<'_>; 4]> = SmallVec::new();
        for (feed, input) in feeds.iter().zip(&body.inner.inputs) {
            dense.push(feed.dense(&input.name)?);
        }
        let limits = Limits::default(); // those of the scope hold
        let settings = &shared.resolved.settings;
        let (feeds, limits) = (&dense[..], &limits);
        let run = Run { plan: &plan, feeds, limits, settings, ledger: None, watch: None };
        let opening = Opening { part: body.part, kind: &body.kind, trip, plan: &plan };
        let mut reused: SmallVec<[Option<Tensor>; 4]> = outputs.drain(..).map(Some).collect();
        frames::frame(&opening, |times: Option<&mut Vec<StepTime>>| {
            exec::run_within(&run, self.par, &shared.arenas, &mut reused, times, outputs)
        })
    }

    /// A loop: as long as the condition is true, and as often as it may.
    fn repeat<'v>(
        &self,
        cond: Option<&Body>,
        body: &Body,
        most: Option<usize>,
        given: Vec<TensorView<'v>>,
    ) -> Result<Vec<Value<'v>>, RunError> {
        let carried = self.running.control.outputs;
        let mut values: Vec<Value<'v>> = given.into_iter().map(Value::Given).collect();
        let mut room = Room::default();
        let (mut verdict, mut spare) = (Vec::new(), Vec::new());
        let mut trip = 0;
        while most.is_none_or(|most| trip < most) {
            if let Some(cond) = cond {
                let feeds: Vec<Fed<'_>> = values.iter().map(Value::fed).collect();
                alloc::temporary(|| self.body(cond, trip, &feeds, &mut verdict))?;
                let verdict: Option<&Tensor> = verdict.first();
                let verdict =
                    verdict.ok_or_else(|| RunError::Internal("no condition was made".into()))?;
                if !is_true(verdict.dtype(), verdict.as_bytes())? {
                    break;
                }
            }
            let feeds: Vec<Fed<'_>> = values.iter().map(Value::fed).collect();
            alloc::temporary(|| self.body(body, trip, &feeds, &mut spare))?;
            drop(feeds);
            carry(&mut values, &mut spare);
            room.hold(&values)?;
            trip += 1;
        }
        values.truncate(carried);
        Ok(values)
    }

    /// A loop over the indices of a dimension. Puts what each trip makes to `sinks`, and returns
    /// the state.
    fn scan<'v>(
        &self,
        body: &Body,
        carried: usize,
        scan: &Scan<'_>,
        given: Vec<TensorView<'v>>,
        sinks: &mut Vec<Option<Output<'_>>>,
    ) -> Result<Vec<Value<'v>>, RunError> {
        let axis = |view: &TensorView<'_>, axis| {
            axis_of(axis, view.shape().rank())
                .ok_or_else(|| RunError::Internal(format!("there is no dimension {axis}")))
        };
        let sliced = given.iter().skip(carried).zip(scan.axes);
        let dims: Vec<usize> = sliced.map(|(v, &a)| axis(v, a)).collect::<Result<_, _>>()?;
        let length = match (given.get(carried), dims.first()) {
            (Some(view), Some(&dim)) => view.shape().get(dim).copied().unwrap_or_default(),
            _ => 0,
        };
        let mut state: Vec<Value<'v>> =
            given.iter().take(carried).cloned().map(Value::Given).collect();
        let mut stacks: Vec<Stack<'_>> = Vec::new();
        for (sink, &last) in sinks.drain(..).zip(scan.last) {
            stacks.push(Stack::new(sink, last, length)?);
        }
        let mut room = Room::default();
        let mut spare = Vec::new();
        for trip in 0..length {
            let index = if scan.reverse { length - 1 - trip } else { trip };
            let mut feeds: Vec<Fed<'_>> = state.iter().map(Value::fed).collect();
            for (n, view) in given.iter().enumerate().skip(carried) {
                feeds.push(match dims.get(n - carried) {
                    Some(&dim) => view.select(dim, index)?.into(),
                    None => view.clone().into(),
                });
            }
            alloc::temporary(|| self.body(body, trip, &feeds, &mut spare))?;
            drop(feeds);
            let mut made = spare.split_off(carried.min(spare.len()));
            for (stack, each) in stacks.iter_mut().zip(&mut made) {
                stack.take(index, each, trip + 1 == length)?;
            }
            carry(&mut state, &mut spare);
            // Where the next trip can use the memory again, after that of the state.
            spare.append(&mut made);
            room.hold(&state)?;
        }
        stacks.into_iter().try_for_each(Stack::finish)?;
        Ok(state)
    }
}

/// Lets what a trip made take the place of the state. What that was is left in `made`, for the next
/// trip but one to write to: two sets of buffers take turns, and nothing is copied.
fn carry(state: &mut [Value<'_>], made: &mut Vec<Tensor>) {
    let mut old = Vec::with_capacity(made.len());
    for (value, new) in state.iter_mut().zip(made.drain(..)) {
        if let Value::Made(before) = std::mem::replace(value, Value::Made(new)) {
            old.push(before);
        }
    }
    *made = old;
}

/// What the state of a loop takes of the memory that a run may take.
#[derive(Default)]
struct Room(usize);

impl Room {
    /// Charges the state, where it is larger than ever before.
    fn hold(&mut self, state: &[Value<'_>]) -> Result<(), TensorError> {
        let bytes = |value: &Value<'_>| match value {
            Value::Made(tensor) => tensor.as_bytes().len(),
            Value::Given(_) => 0,
        };
        let now = state.iter().map(bytes).fold(0, usize::saturating_add);
        alloc::charge(now.saturating_sub(self.0))?;
        self.0 = self.0.max(now);
        Ok(())
    }
}

/// Where the results of all trips go.
enum Stack<'a> {
    /// One behind the other, in memory of the plan.
    Fixed(&'a mut [u8]),
    /// As above, in a tensor that is made when the first result is there.
    Open { slot: &'a mut Option<Tensor>, dtype: DType, made: Option<Tensor>, length: usize },
    /// Only that of the last trip.
    Last { sink: Option<Output<'a>>, seen: bool },
}

impl<'a> Stack<'a> {
    fn new(sink: Option<Output<'a>>, last: bool, length: usize) -> Result<Self, RunError> {
        match sink {
            sink if last => Ok(Self::Last { sink, seen: false }),
            Some(Output::Fixed { bytes, .. }) => Ok(Self::Fixed(bytes)),
            Some(Output::Dynamic { dtype, slot }) => {
                Ok(Self::Open { slot, dtype, made: None, length })
            }
            None => Err(RunError::Internal("an output does not exist".into())),
        }
    }

    fn take(&mut self, index: usize, each: &mut Tensor, is_last: bool) -> Result<(), RunError> {
        let (bytes, room) = match self {
            Self::Last { sink, seen } => {
                if is_last {
                    *seen = true;
                    put(sink.take(), Value::Made(each.clone()))?;
                }
                return Ok(());
            }
            Self::Fixed(bytes) => (each.as_bytes(), &mut **bytes),
            Self::Open { dtype, made, length, .. } => {
                let shape: Shape =
                    [*length].into_iter().chain(each.shape().iter().copied()).collect();
                if made.is_none() {
                    *made = Some(Tensor::zeros(*dtype, shape.clone())?);
                }
                let made = made
                    .as_mut()
                    .filter(|made| *made.shape() == shape && made.dtype() == each.dtype());
                let Some(made) = made else {
                    let what = format!(
                        "what trips make is stacked, and must have one shape: found {} {}",
                        each.dtype(),
                        each.shape()
                    );
                    return Err(RunError::Value { input: 0, what });
                };
                (each.as_bytes(), made.as_mut_bytes()?)
            }
        };
        let start = index.checked_mul(bytes.len());
        let end = start.and_then(|start| start.checked_add(bytes.len()));
        let part = start.zip(end).and_then(|(start, end)| room.get_mut(start..end));
        let part = part.ok_or_else(|| RunError::Internal("a trip made another shape".into()))?;
        part.copy_from_slice(bytes);
        Ok(())
    }

    fn finish(self) -> Result<(), RunError> {
        let none = |what: &str| {
            let what = format!("{what} cannot be made of no trips");
            Err(RunError::Value { input: 0, what })
        };
        match self {
            Self::Fixed(_) | Self::Last { seen: true, .. } => Ok(()),
            Self::Last { .. } => none("the result of the last trip"),
            Self::Open { slot, made: Some(made), .. } => {
                *slot = Some(made);
                Ok(())
            }
            Self::Open { made: None, .. } => none("a stack of results whose shape depends on data"),
        }
    }
}

//! A control operator within a session: what it makes of its inputs, and the plans of its bodies.

use super::run::Running;
use super::{Body, Control, Controls, Flow};
use crate::load::model::Inner;
use crate::memory::arena::ArenaPool;
use crate::options::Resolved;
use crate::passes::{self, PassCx};
use crate::plan::Plan;
use crate::plan::build;
use crate::plan::cache::{Made, PlanCache};
use crate::plan::dispatch::Dispatch;
use crate::plan::net::{Action, Net, ValueId, Wanted};
use crate::run::bind::Binding;
use crate::run::request::Fed;
use crate::{SessionError, SessionOptions};
use plutino_ir::Limits;
use plutino_kernels::Isa;
use plutino_ops::{Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue, ValueSpec};
use plutino_tensor::{DType, Shape, TensorError, TensorSpec, alloc};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What the control operators of a session share: options, arenas, and what is known of bodies.
pub(crate) struct Shared {
    pub(crate) resolved: Resolved,
    pub(crate) arenas: Arc<ArenaPool>,
    /// By the address of the body, which lives as long as the model.
    bodies: Mutex<HashMap<usize, Arc<Known>>>,
}

/// What is known of a body: it may be named by many operators, and each of them within bodies that
/// are named by many.
struct Known {
    plans: PlanCache,
    inferred: Mutex<Vec<(Vec<TensorSpec>, Vec<ValueSpec>)>>,
}

/// Shapes for which the results of a body are remembered.
const MOST_INFERRED: usize = 64;

impl Shared {
    pub(crate) fn new(resolved: Resolved, arenas: Arc<ArenaPool>) -> Arc<Self> {
        Arc::new(Self { resolved, arenas, bodies: Mutex::default() })
    }

    /// With default options: for inference without a session.
    pub(crate) fn unbound() -> Arc<Self> {
        let options = SessionOptions::default();
        Self::new(Resolved::new(1, Isa::best(), Dispatch::InTurn, options), Arc::default())
    }

    /// Forgets what can be made again.
    pub(crate) fn clear(&self) {
        let bodies = std::mem::take(&mut *lock(&self.bodies));
        drop(bodies); // outside of the lock
    }

    /// The plans of a body that are kept.
    pub(super) fn plans(&self, body: &Arc<Inner>) -> Vec<Arc<Plan>> {
        self.known(body).plans.all()
    }

    fn known(&self, body: &Arc<Inner>) -> Arc<Known> {
        let mut bodies = lock(&self.bodies);
        let known = bodies.entry(Arc::as_ptr(body).addr()).or_insert_with(|| {
            let plans = PlanCache::new(self.resolved.options.plan_cache_size);
            Arc::new(Known { plans, inferred: Mutex::default() })
        });
        Arc::clone(known)
    }

    /// The plan of a body for inputs of these specs. What it takes is charged when it is made.
    pub(crate) fn plan(
        self: &Arc<Self>,
        body: &Body,
        specs: impl ExactSizeIterator<Item = TensorSpec>,
    ) -> Result<Arc<Plan>, SessionError> {
        let binding = Binding::positional(&body.inner, specs)?;
        let known = self.known(&body.inner);
        if let Some(plan) = known.plans.find(|b| *b == binding) {
            return Ok(plan);
        }
        let limits = Limits::default(); // those of the scope hold
        let make = |binding: Binding, _: &[Arc<Plan>]| {
            let plan = build::body(&body.inner, self, binding)?;
            Ok(Made { plan, instead: None })
        };
        known.plans.get(binding, &limits, make, |_| true)
    }

    /// The plan of a body for what it is fed.
    pub(super) fn plan_for(
        self: &Arc<Self>,
        body: &Body,
        feeds: &[Fed<'_>],
    ) -> Result<Arc<Plan>, SessionError> {
        let inputs = &body.inner.inputs;
        let fed = || inputs.iter().map(|i| ValueId::from(i.id)).zip(feeds);
        let known = self.known(&body.inner);
        let fits =
            |b: &Binding| feeds.len() == inputs.len() && b.matches(fed(), &Wanted::Outputs, &[]);
        match known.plans.find(fits) {
            Some(plan) => Ok(plan),
            None => self.plan(body, feeds.iter().map(Fed::spec)),
        }
    }

    /// What a body makes of inputs of these specs: nothing known of values, and shapes that depend
    /// on data left open.
    fn infer(
        self: &Arc<Self>,
        body: &Body,
        specs: &[TensorSpec],
    ) -> Result<Vec<ValueSpec>, ShapeError> {
        let known = self.known(&body.inner);
        if let Some((_, made)) = lock(&known.inferred).iter().find(|(of, _)| of == specs) {
            return Ok(made.clone());
        }
        let failed = |error: SessionError| inside(body, error);
        let made = alloc::temporary(|| self.infer_anew(body, specs)).map_err(failed)?;
        let mut inferred = lock(&known.inferred);
        if inferred.len() >= MOST_INFERRED {
            inferred.remove(0);
        }
        inferred.push((specs.to_vec(), made.clone()));
        Ok(made)
    }

    fn infer_anew(
        self: &Arc<Self>,
        body: &Body,
        specs: &[TensorSpec],
    ) -> Result<Vec<ValueSpec>, SessionError> {
        let Body { inner, kind, .. } = body;
        let binding = Binding::positional(inner, specs.iter().cloned())?;
        let (ids, feeds): (Vec<_>, Vec<_>) = binding.feeds.iter().cloned().unzip();
        let sorting = self.resolved.options.sorting;
        let mut net = Net::new(inner, sorting, ids, &binding.wanted)?;
        bind(&mut net, &inner.controls, self);
        let mut cx = PassCx::new(inner, &feeds, &self.resolved.settings);
        passes::types(&mut net, &mut cx)?;
        let mut made = Vec::new();
        for &id in &net.fetches {
            let recorded = net.values.get(id.0).and_then(|value| value.recorded.dtype);
            made.push(match net.types.get(id) {
                Some(ValueSpec::Tensor(t)) => plain(&t.spec).into(),
                Some(ValueSpec::Dynamic { dtype }) => ValueSpec::Dynamic { dtype: *dtype },
                Some(ValueSpec::List(_) | ValueSpec::Word(_)) => {
                    let what = format!("result '{}' of {kind} is no tensor", net.name(id));
                    return Err(TensorError::invalid(what).into());
                }
                None => match recorded.map(plutino_ops::dtype_of) {
                    Some(dtype) => ValueSpec::Dynamic { dtype },
                    None => {
                        let what = format!(
                            "the shape of result '{0}' of {kind} depends on data, and the file does not record \
                             its dtype (#{0}=(?)f32)",
                            net.name(id)
                        );
                        return Err(TensorError::invalid(what).into());
                    }
                },
            });
        }
        Ok(made)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // whole at any time
}

fn plain(spec: &TensorSpec) -> TensorSpec {
    TensorSpec::new(spec.dtype, spec.shape.clone())
}

/// What went wrong in a body, as an operator says it.
fn inside(body: &Body, error: SessionError) -> ShapeError {
    use plutino_ops::PlanError::NoWeights;
    match error {
        SessionError::Tensor(
            e @ (TensorError::Budget { .. } | TensorError::OutOfMemory { .. }),
        )
        | SessionError::Shape {
            error: ShapeError::Tensor(e @ TensorError::Budget { .. }), ..
        } => e.into(),
        // Shapes may depend on what was not read.
        SessionError::Plan { error: NoWeights { name }, .. } => {
            ShapeError::NotKnown { input: 0, what: format!("weight '{name}'") }
        }
        error => ShapeError::Invalid(format!("in {}={}: {error}", body.part, body.kind)),
    }
}

/// Lets the control operators of a net plan and run with what the session has.
pub(crate) fn bind(net: &mut Net, controls: &Controls, shared: &Arc<Shared>) {
    if controls.is_empty() {
        return;
    }
    let by_id: HashMap<_, _> = controls.iter().map(|(id, control)| (*id, control)).collect();
    for node in &mut net.nodes {
        if let Some(control) = node.source.and_then(|id| by_id.get(&id)) {
            node.action = Action::Operator(Arc::new(Bound::new(control, shared)));
        }
    }
}

/// A control operator with what it plans and runs with.
pub(crate) struct Bound {
    pub(crate) control: Arc<Control>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.control.fmt(f)
    }
}

impl Bound {
    pub(crate) fn new(control: &Arc<Control>, shared: &Arc<Shared>) -> Self {
        Self { control: Arc::clone(control), shared: Arc::clone(shared) }
    }

    fn body(&self, body: &Body, specs: &[TensorSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.shared.infer(body, specs)
    }

    /// What the bodies are given first, each with the specs of that.
    fn first(&self, specs: &[TensorSpec]) -> Result<Vec<(&Body, Vec<TensorSpec>)>, ShapeError> {
        let control = &*self.control;
        Ok(match &control.flow {
            Flow::If { then, otherwise } => {
                let passed = specs.get(1..).unwrap_or_default();
                vec![(then, passed.to_vec()), (otherwise, passed.to_vec())]
            }
            Flow::While { cond, body, .. } => {
                cond.iter().chain([body]).map(|part| (part, specs.to_vec())).collect()
            }
            Flow::Scan { body, carried, axes, .. } => {
                vec![(body, scanned(specs, *carried, axes)?.1)]
            }
        })
    }
}

/// The length of a scan, and the specs of what the body is given: the dimension that is scanned is
/// gone.
pub(super) fn scanned(
    specs: &[TensorSpec],
    carried: usize,
    axes: &[i64],
) -> Result<(usize, Vec<TensorSpec>), ShapeError> {
    let mut given = specs.to_vec();
    let mut length = None;
    for (input, (spec, &axis)) in given.iter_mut().skip(carried).zip(axes).enumerate() {
        let input = input + carried;
        let dim = axis_of(axis, spec.shape.rank()).ok_or_else(|| ShapeError::Rank {
            input,
            expected: format!("dimension {axis}, so more"),
            found: spec.shape.clone(),
        })?;
        let size = spec.shape.get(dim).copied().unwrap_or_default();
        let expected = *length.get_or_insert(size);
        if size != expected {
            let (expected, found) = (expected.to_string(), spec.shape.clone());
            return Err(ShapeError::Size { input, dim, expected, found });
        }
        let shape: Shape =
            spec.shape.iter().enumerate().filter(|(at, _)| *at != dim).map(|(_, &n)| n).collect();
        *spec = TensorSpec::new(spec.dtype, shape);
    }
    Ok((length.unwrap_or_default(), given))
}

/// A dimension, counted from the last one where it is negative.
pub(super) fn axis_of(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let dim = if axis < 0 { axis.checked_add(rank)? } else { axis };
    usize::try_from(dim).ok().filter(|_| dim < rank)
}

/// The specs of inputs that must be tensors.
fn tensors(inputs: &[ValueSpec]) -> Result<Vec<TensorSpec>, ShapeError> {
    let spec = |(input, value): (usize, &ValueSpec)| match value {
        ValueSpec::Tensor(t) => Ok(plain(&t.spec)),
        other => Err(ShapeError::Sort { input, expected: "a tensor", found: other.to_string() }),
    };
    inputs.iter().enumerate().map(spec).collect()
}

fn dtype(value: &ValueSpec) -> Option<DType> {
    match value {
        ValueSpec::Tensor(TensorValue { spec, .. }) => Some(spec.dtype),
        ValueSpec::Dynamic { dtype } => Some(*dtype),
        _ => None,
    }
}

/// What a value is that may be either: the same, or open where the shapes differ.
fn either(what: &str, a: &ValueSpec, b: &ValueSpec) -> Result<ValueSpec, ShapeError> {
    let (Some(one), Some(other)) = (dtype(a), dtype(b)) else {
        return Err(ShapeError::Invalid(format!("{what} is no tensor")));
    };
    if one != other {
        return Err(ShapeError::Invalid(format!(
            "{what} is {one} in one case and {other} in another"
        )));
    }
    Ok(match (a.as_tensor(), b.as_tensor()) {
        (Some(a), Some(b)) if a.spec.shape == b.spec.shape => plain(&a.spec).into(),
        _ => ValueSpec::Dynamic { dtype: one },
    })
}

/// A value that decides must have one element.
fn decides(value: Option<&ValueSpec>, input: usize) -> Result<(), ShapeError> {
    let spec = value.and_then(ValueSpec::as_tensor).map(|t| &t.spec);
    match spec {
        Some(spec) if spec.shape.numel() == 1 && !spec.dtype.is_complex() => Ok(()),
        Some(spec) => {
            let found = spec.to_string();
            let expected = "one element that is true or not (bool, or a number)";
            Err(ShapeError::Sort { input, expected, found })
        }
        None => Ok(()), // whether it has is seen while running
    }
}

impl Operator for Bound {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let specs = tensors(inputs)?;
        match &self.control.flow {
            Flow::If { then, otherwise } => {
                decides(inputs.first(), 0)?;
                let passed = specs.get(1..).unwrap_or_default();
                let (yes, no) = (self.body(then, passed)?, self.body(otherwise, passed)?);
                let both = yes.iter().zip(&no).enumerate();
                both.map(|(n, (a, b))| either(&format!("output {n}"), a, b)).collect()
            }
            Flow::While { cond, body, .. } => {
                if let Some(cond) = cond {
                    decides(self.body(cond, &specs)?.first(), 0)?;
                }
                self.state(self.body(body, &specs)?, &specs, self.control.outputs)
            }
            Flow::Scan { body, carried, axes, last, .. } => {
                let (length, given) = scanned(&specs, *carried, axes)?;
                let mut made = self.body(body, &given)?;
                let each = made.split_off((*carried).min(made.len()));
                let mut outputs = self.state(made, &specs, *carried)?;
                // A state that grows may make anything grow.
                let settled = outputs.iter().all(|o| o.as_tensor().is_some());
                for (value, &last) in each.iter().zip(last) {
                    outputs.push(match (value, last) {
                        (ValueSpec::Tensor(t), _) if !settled => {
                            ValueSpec::Dynamic { dtype: t.spec.dtype }
                        }
                        (ValueSpec::Tensor(t), false) => {
                            let shape: Shape =
                                [length].into_iter().chain(t.spec.shape.iter().copied()).collect();
                            TensorSpec::new(t.spec.dtype, shape).into()
                        }
                        (other, _) => other.clone(),
                    });
                }
                Ok(outputs)
            }
        }
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let specs = tensors(cx.inputs)?;
        for (body, given) in self.first(&specs)? {
            let planned = self.shared.plan(body, given.into_iter());
            planned.map_err(|error| match error {
                SessionError::Plan { error: error @ PlanError::NoWeights { .. }, .. } => error,
                SessionError::Tensor(e) => e.into(),
                error => PlanError::from(inside(body, error)),
            })?;
        }
        let (control, shared) = (Arc::clone(&self.control), Arc::clone(&self.shared));
        Ok(Planned::new(Running { control, shared }))
    }

    /// What a body refuses, and how often it runs, is not known before it does.
    fn refuses_data(&self) -> bool {
        true
    }
}

impl Bound {
    /// What the state of a loop is when it ends, after any number of trips: open if one trip
    /// changes a shape, since that may change others.
    fn state(
        &self,
        made: Vec<ValueSpec>,
        specs: &[TensorSpec],
        carried: usize,
    ) -> Result<Vec<ValueSpec>, ShapeError> {
        let mut state = Vec::new();
        for (n, (made, spec)) in made.iter().zip(specs).take(carried).enumerate() {
            state.push(either(&format!("state {n}"), &plain(spec).into(), made)?);
        }
        if state.iter().all(|s| s.as_tensor().is_some()) {
            return Ok(state);
        }
        let open = |value: &ValueSpec| dtype(value).map(|dtype| ValueSpec::Dynamic { dtype });
        Ok(state.iter().filter_map(open).collect())
    }
}

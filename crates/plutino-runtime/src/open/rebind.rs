//! Binding a plan to other lengths.

use super::compare::same;
use super::{Depends, Open, Resident, rooms};
use crate::SessionError;
use crate::memory::storage::{Home, Place, Storage, Stored};
use crate::options::Resolved;
use crate::passes::fold::{self, Allowance, Folded};
use crate::plan::build::Assembler;
use crate::plan::infer::{self, Types, known};
use crate::plan::net::{Action, Net, Node};
use crate::plan::report::MemoryReport;
use crate::plan::values::Sharing;
use crate::plan::{Fetch, Plan};
use crate::run::bind::Binding;
use plutino_kernels::Isa;
use plutino_ops::{Alias, Cost, PlanCx, Planned, ValueSpec};
use plutino_tensor::TensorSpec;
use std::sync::Arc;

/// The plan for this binding, if `base` can be bound so. What does not depend on the lengths is
/// shared by both.
///
/// # Errors
/// Where parts of the plan contradict each other: a defect. What operators refuse is told by a plan
/// made anew.
pub(crate) fn rebind(
    base: &Plan,
    binding: &Binding,
    resolved: &Resolved,
) -> Result<Option<Plan>, SessionError> {
    let Some(open) = base.open.as_ref().filter(|open| open.accepts(binding)) else {
        return Ok(None);
    };
    let mut bound = open.bound();
    let bound = &mut *bound;
    if !bound.original.agrees(binding, resolved.isa)? {
        return Ok(None);
    }
    let mut binder = Binder {
        net: &mut bound.net,
        storage: &mut bound.storage,
        depends: &open.depends,
        constants: false,
    };
    for (feed, (id, spec)) in binding.feeds.iter().enumerate() {
        if open.dims.iter().any(|(open, _)| *open == feed) {
            binder.net.types.put(*id, spec.clone().into())?;
            binder.feed(feed, spec)?;
        }
    }
    let (mut steps, mut appends) = (base.steps.clone(), base.appends.clone());
    // Plans and costs of nodes, for their twins.
    let mut made: Vec<Option<(Planned, Cost)>> = Vec::with_capacity(open.nodes.len());
    for depends in &open.nodes {
        made.push(None);
        for (_, node) in open.prelude.iter().filter(|(before, _)| *before == depends.at) {
            let Some(inputs) = binder.net.types.all(&node.inputs) else { return Ok(None) };
            let Some(outputs) = evaluate(&binder.net.types, node, &inputs, resolved.isa) else {
                return Ok(None);
            };
            if !binder.put(node.outputs.iter().copied().zip(outputs))? {
                return Ok(None);
            }
        }
        if let Some(at) = base.residents.iter().position(|r| r.node == depends.at) {
            // The step stays: it lies where it lay.
            let resident = &base.residents[at];
            let Some(append) = resident.append(binder.net) else { return Ok(None) };
            binder.net.types.set_size(resident.output, resident.dim, append.length);
            appends[at] = append;
            continue;
        }
        let twin = depends.twin.and_then(|at| Some((open.nodes.get(at)?, made.get(at)?)));
        let (planned, cost) = match twin {
            Some((twin, Some((planned, cost)))) => {
                (binder.follow(depends, twin.at, planned)?, Some(*cost))
            }
            _ => (binder.plan(depends, base, resolved)?, None),
        };
        let Some(planned) = planned else { return Ok(None) };
        let Some(planned) = planned else { continue };
        let assembler = binder.assembler(open, &base.residents);
        let idle = planned.is_idle();
        let step = assembler.step(depends.at, Some(planned.clone()), None, cost)?;
        if let Some(made) = made.last_mut() {
            *made = Some((planned, step.as_ref().map(|step| step.cost).unwrap_or_default()));
        }
        match (depends.step.and_then(|at| steps.get_mut(at)), step) {
            (Some(place), Some(step)) => *place = Arc::new(step),
            (Some(place), None) if idle => *place = Arc::new(place.idle()),
            (None, None) => {}
            _ => return Ok(None),
        }
    }
    let fetches = binder.assembler(open, &base.residents).fetches()?;
    let mut direct = base.direct.clone();
    for result in &mut direct {
        if let Some(Fetch::Leaf { spec: Some(spec), .. }) = fetches.get(result.fetch) {
            result.spec = spec.clone();
        }
    }
    let constants = match binder.constants {
        true => binder.storage.constants.clone().into(),
        false => Arc::clone(&base.constants),
    };
    let outputs = fetches.iter().map(|fetch| match fetch {
        Fetch::Leaf { spec: Some(spec), source: crate::plan::Source::Lent(_), .. } => {
            spec.storage_bytes().unwrap_or(0)
        }
        _ => 0,
    });
    Ok(Some(Plan {
        steps,
        schedule: Arc::clone(&base.schedule),
        placement: Arc::clone(&base.placement),
        binding: binding.clone(),
        constants,
        memory: MemoryReport { outputs: outputs.fold(0, usize::saturating_add), ..base.memory },
        fetches,
        direct,
        fetched: Arc::clone(&base.fetched),
        residents: Arc::clone(&base.residents),
        appends,
        open: Some(Arc::clone(open)),
        heap_slots: base.heap_slots,
        late_slots: base.late_slots,
        packs: Arc::clone(&base.packs),
        values: Arc::clone(&base.values),
        allocations: Arc::clone(&base.allocations),
        passes: Arc::clone(&base.passes),
        warnings: Arc::clone(&base.warnings),
        input_names: Arc::clone(&base.input_names),
    }))
}

/// The net and the places of its values, while they are bound to other lengths.
struct Binder<'a> {
    net: &'a mut Net,
    storage: &'a mut Storage,
    /// For each value whether it may be another one than before.
    depends: &'a [bool],
    /// Whether constants of the plan changed.
    constants: bool,
}

impl Binder<'_> {
    fn assembler<'b>(&'b self, open: &'b Open, residents: &'b [Resident]) -> Assembler<'b> {
        let (net, storage) = (&*self.net, &*self.storage);
        Assembler { net, types: &net.types, storage, lay: &open.lay, residents }
    }

    fn feed(&mut self, feed: usize, spec: &TensorSpec) -> Result<(), SessionError> {
        let bytes = spec.storage_bytes()?;
        // Feeds come first among the leaves.
        if let Some(leaf) = self.storage.leaves.get_mut(feed) {
            leaf.place.len = bytes;
            leaf.spec = Some(spec.clone());
        }
        Ok(())
    }

    /// Sets what is known of values, and the constants that they are; false where one differs that
    /// must not.
    fn put(
        &mut self,
        values: impl Iterator<Item = (crate::plan::net::ValueId, ValueSpec)>,
    ) -> Result<bool, SessionError> {
        for (id, spec) in values {
            if !self.depends.get(id.0).copied().unwrap_or(false) {
                if !same(self.net.types.get(id), Some(&spec)) {
                    return Ok(false);
                }
                continue;
            }
            if let Some(Stored::Leaves(leaves)) = self.storage.values.get(id.0) {
                for (&leaf, value) in leaves.iter().zip(spec.leaves()) {
                    let Some(known) = value.as_tensor().and_then(|t| t.known.as_ref()) else {
                        continue;
                    };
                    let Home::Constant(constant) = self.storage.leaves[leaf].place.home else {
                        continue;
                    };
                    self.storage.constants[constant] = known.clone();
                    self.constants = true;
                    let leaf = &mut self.storage.leaves[leaf];
                    leaf.place = Place { len: known.as_bytes().len(), offset: 0, ..leaf.place };
                    leaf.spec = value.as_tensor().map(|t| t.spec.clone());
                }
            }
            self.net.types.put(id, spec)?;
        }
        Ok(true)
    }

    /// Infers and plans a node anew. None where that does not fit what there is; none inside where
    /// there is nothing to run.
    #[allow(clippy::option_option)] // the outer one ends it all
    fn plan(
        &mut self,
        depends: &Depends,
        base: &Plan,
        resolved: &Resolved,
    ) -> Result<Option<Option<Planned>>, SessionError> {
        let node = &self.net.nodes[depends.at];
        let Some(inputs) = self.net.types.all(&node.inputs) else { return Ok(None) };
        let Some(outputs) = evaluate(&self.net.types, node, &inputs, resolved.isa) else {
            return Ok(None);
        };
        let (Some(_), Some(operator)) = (&depends.planned, node.operator()) else {
            let ids = node.outputs.clone();
            return Ok(self.put(ids.into_iter().zip(outputs))?.then_some(None));
        };
        let cx = PlanCx {
            inputs: &inputs,
            outputs: &outputs,
            setting: resolved.settings.of(&node.location),
            packs: &base.packs,
        };
        let planned = Planned::of(operator, &cx, &rooms(node, &base.residents));
        let Ok(planned) = planned else { return Ok(None) };
        self.settle(depends, outputs, planned)
    }

    /// As [`Binder::plan`], for a node that makes the same as another one, whose plan is `planned`.
    #[allow(clippy::option_option)]
    fn follow(
        &mut self,
        depends: &Depends,
        twin: usize,
        planned: &Planned,
    ) -> Result<Option<Option<Planned>>, SessionError> {
        let Some(outputs) = self.net.types.all(&self.net.nodes[twin].outputs) else {
            return Ok(None);
        };
        self.settle(depends, outputs, planned.clone())
    }

    /// Sets what a node makes, and where; none where that does not fit what there is.
    #[allow(clippy::option_option)]
    fn settle(
        &mut self,
        depends: &Depends,
        outputs: Vec<ValueSpec>,
        planned: Planned,
    ) -> Result<Option<Option<Planned>>, SessionError> {
        let covers = depends.planned.as_ref().is_some_and(|form| form.covers(&planned));
        if !planned.is_idle() && !covers {
            return Ok(None);
        }
        let specs: Option<Vec<TensorSpec>> =
            outputs.iter().map(|value| value.as_tensor().map(|t| t.spec.clone())).collect();
        let Some(specs) = specs else { return Ok(None) };
        let ids = self.net.nodes[depends.at].outputs.clone();
        if !self.put(ids.into_iter().zip(outputs))? {
            return Ok(None);
        }
        Ok(self.place(depends.at, &planned, &specs)?.then_some(Some(planned)))
    }

    /// Sets the places of what a node makes; false where they do not suffice.
    fn place(
        &mut self,
        at: usize,
        planned: &Planned,
        specs: &[TensorSpec],
    ) -> Result<bool, SessionError> {
        let storage = &mut *self.storage;
        let node = &self.net.nodes[at];
        let (Some(inputs), Some(outputs)) =
            (storage.leaves_of(&node.inputs), storage.leaves_of(&node.outputs))
        else {
            return Ok(false);
        };
        if outputs.len() != specs.len() {
            return Ok(false);
        }
        for (k, (&leaf, spec)) in outputs.iter().zip(specs).enumerate() {
            let len = spec.storage_bytes()?;
            let before = storage.leaves[leaf].place;
            let alias = planned.alias.get(k).copied().unwrap_or(Alias::None);
            let shares = storage.leaves[leaf].shares;
            let place = match (before.home, shares, alias) {
                (Home::Constant(_), ..) => continue,
                _ if planned.is_idle() => Place { offset: 0, len: 0, ..before },
                (_, Some((Sharing::View, of)), Alias::View { input, offset }) => {
                    let source = &storage.leaves[of];
                    let start = offset.checked_mul(source.dtype.size_of());
                    let end = start.and_then(|start| start.checked_add(len));
                    let inside = end.is_some_and(|end| end <= source.place.len);
                    let (Some(start), true) = (start, inside && inputs.get(input) == Some(&of))
                    else {
                        return Ok(false);
                    };
                    Place { offset: source.place.offset + start, len, ..source.place }
                }
                (_, Some((Sharing::InPlace, of)), _) => {
                    let source = storage.leaves[of].place;
                    if source.len != len {
                        return Ok(false);
                    }
                    source
                }
                (Home::Buffer(buffer), None, _) if len <= storage.buffers[buffer].len => {
                    Place { len, ..before }
                }
                _ => return Ok(false),
            };
            storage.leaves[leaf].place = place;
            storage.leaves[leaf].spec = Some(spec.clone());
        }
        Ok(true)
    }
}

/// What a node makes of these inputs, in the layouts that were chosen before; none where it is of
/// another kind than before.
pub(super) fn evaluate(
    types: &Types,
    node: &Node,
    inputs: &[ValueSpec],
    isa: Isa,
) -> Option<Vec<ValueSpec>> {
    let mut outputs = match &node.action {
        Action::Operator(operator) => infer::outputs_of(operator.as_ref(), inputs).ok()?,
        action => infer::structure(action, inputs, node.outputs.len()).ok()?,
    };
    infer::check_sizes(&outputs).ok()?;
    if outputs.len() != node.outputs.len() {
        return None;
    }
    let was_known = !node.outputs.is_empty() && node.outputs.iter().all(|id| types.is_known(*id));
    if let (Some(operator), true) = (node.operator(), was_known && !outputs.iter().all(known)) {
        let allowance = &mut Allowance::default();
        match fold::compute(operator, inputs, &mut outputs, isa, allowance) {
            Folded::Known(_) => {}
            Folded::No | Folded::Refused(_) => return None,
        }
    }
    for (id, now) in node.outputs.iter().zip(&mut outputs) {
        match (types.get(*id)?, now) {
            (ValueSpec::Tensor(before), ValueSpec::Tensor(now)) => {
                let rank = |t: &plutino_ops::TensorValue| t.spec.shape.rank();
                if (before.spec.dtype, before.python, rank(before))
                    != (now.spec.dtype, now.python, rank(now))
                    || before.known.is_some() != now.known.is_some()
                {
                    return None;
                }
                now.spec.layout = before.spec.layout;
            }
            (ValueSpec::List(before), ValueSpec::List(now)) if before.len() == now.len() => {}
            _ => return None,
        }
    }
    Some(outputs)
}

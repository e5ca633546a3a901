//! Plans for lengths that grow from run to run, such as those of a decoder's caches.
//!
//! A plan is *open* in some dimensions of its inputs if it was made for a capacity and can be bound
//! to any smaller length: what does not depend on the length (packed weights, most kernels, all
//! offsets) stays, the few operators that do are inferred and planned again. Which those are shows
//! when the net is made for two lengths: it must be the same, operator by operator, and where
//! dtypes, shapes and known values differ, the length is to blame. So no pass has to know of
//! lengths; where one decides by them, the nets differ, and plans are made for each length as for
//! any other shape.
//!
//! Where a value is carried to the next run and nothing is done to it but to append to it, the run
//! appends to it where it lies (a [`Resident`]): readers see the valid part of a longer tensor.

mod compare;
mod original;
mod rebind;
mod twins;

pub(crate) use compare::Opening;

use crate::SessionError;
use crate::control::Shared;
use crate::load::model::{Inner, Role};
use crate::memory::lay::Lay;
use crate::memory::storage::Storage;
use crate::place::Context;
use crate::plan::Plan;
use crate::plan::build::{self, Making};
use crate::plan::cache::Made;
use crate::plan::net::{Net, Node, ValueId};
use crate::run::bind::Binding;
use crate::settings::Settings;
use original::Original;
use plutino_ir::Limits;
use plutino_ops::{Alias, Planned, Room, RunError};
use plutino_tensor::TensorSpec;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A dimension of a feed: numbers of both.
type Dim = (usize, usize);
type Dims = Vec<Dim>;

/// A cache to which a run appends where it lies.
#[derive(Debug, Clone)]
pub(crate) struct Resident {
    /// The node that appends.
    pub(crate) node: usize,
    /// What is fed, and what it is afterwards.
    pub(crate) input: ValueId,
    pub(crate) output: ValueId,
    /// The dimension that grows.
    pub(crate) dim: usize,
    /// Its size in memory.
    pub(crate) capacity: usize,
}

/// What lies with room to grow among the inputs of a node.
pub(crate) fn rooms(node: &Node, residents: &[Resident]) -> SmallVec<[Room; 2]> {
    let mut rooms = SmallVec::new();
    if residents.is_empty() {
        return rooms;
    }
    for (input, id) in node.inputs.iter().enumerate() {
        if let Some(Resident { dim, capacity, .. }) = residents.iter().find(|r| r.output == *id) {
            rooms.push(Room { input, dim: *dim, capacity: *capacity });
        }
    }
    rooms
}

/// Bytes of the caches, as far as they may grow.
pub(crate) fn bytes(residents: &[Resident], net: &Net) -> usize {
    let spec = |r: &Resident| net.types.get(r.output)?.as_tensor().map(|t| &t.spec);
    let bytes = residents.iter().filter_map(spec).map(|s| s.storage_bytes().unwrap_or(usize::MAX));
    bytes.fold(0, usize::saturating_add)
}

/// Rows that are copied to the end of a cache, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Append {
    /// From one outer index of the cache to the next.
    stride: usize,
    /// Of the first new row, from the first of the outer index.
    offset: usize,
    /// What is new for an outer index.
    len: usize,
    /// Indices of the dimension that grows, afterwards.
    length: usize,
}

impl Resident {
    /// What is to be copied, as the shapes of the inputs are.
    fn append(&self, net: &Net) -> Option<Append> {
        let inputs = &net.nodes.get(self.node)?.inputs;
        let shape = |input: usize| {
            let value = net.types.get(*inputs.get(input)?)?;
            value.as_tensor().map(|t| (&t.spec.shape, t.spec.dtype))
        };
        let ((past, _), (new, dtype)) = (shape(0)?, shape(1)?);
        let inner = new.product(self.dim + 1..new.rank());
        let row = inner.checked_mul(dtype.size_of())?;
        let (length, rows) = (*past.get(self.dim)?, *new.get(self.dim)?);
        Some(Append {
            stride: row.checked_mul(self.capacity)?,
            offset: row.checked_mul(length)?,
            len: row.checked_mul(rows)?,
            length: length.checked_add(rows).filter(|n| *n <= self.capacity)?,
        })
    }
}

/// What is to be copied to each cache.
///
/// # Errors
/// Where one has no room for it: a defect.
pub(crate) fn appends(residents: &[Resident], net: &Net) -> Result<Vec<Append>, SessionError> {
    let append = |resident: &Resident| {
        let name = net.name(resident.output);
        let none = || SessionError::internal(format!("nothing can be appended to {name}"));
        resident.append(net).ok_or_else(none)
    };
    residents.iter().map(append).collect()
}

impl Append {
    /// Copies.
    ///
    /// # Errors
    /// Where the cache is too small: a defect of the plan.
    pub(crate) fn run(&self, from: &[u8], to: &mut [u8]) -> Result<(), RunError> {
        let Self { stride, offset, len, .. } = *self;
        if from.is_empty() || len == 0 {
            return Ok(());
        }
        let end = offset.checked_add(len).filter(|end| *end <= stride);
        let outer = from.len() / len;
        let end = end.filter(|_| outer.checked_mul(stride) == Some(to.len()));
        let end = end.ok_or_else(|| RunError::Internal(format!("{self:?} leaves the cache")))?;
        for (new, whole) in from.chunks_exact(len).zip(to.chunks_exact_mut(stride)) {
            whole[offset..end].copy_from_slice(new);
        }
        Ok(())
    }
}

/// What it takes to bind a plan to other lengths.
pub(crate) struct Open {
    /// As of the last binding: whatever depends on the lengths is set anew by each.
    bound: Mutex<Bound>,
    lay: Lay,
    /// What the plan was made for: the greatest lengths.
    capacity: Binding,
    /// The dimensions of the feeds that are open.
    dims: Dims,
    /// What is inferred again, each before the node at this position.
    prelude: Vec<(usize, Node)>,
    /// The nodes that depend on the lengths, in order.
    nodes: Vec<Depends>,
    /// For each value whether it does.
    depends: Vec<bool>,
}

struct Bound {
    net: Net,
    storage: Storage,
    original: Original,
}

/// A node that depends on the lengths, and how it was planned.
#[derive(Debug)]
struct Depends {
    /// Its position in the net.
    at: usize,
    /// The position of its step.
    step: Option<usize>,
    /// None: there was nothing to plan.
    planned: Option<Form>,
    /// The position among such nodes of an earlier one that makes the same of the same.
    twin: Option<usize>,
}

/// What must be the same for every length.
#[derive(Debug)]
struct Form {
    kernel: bool,
    alias: Vec<Alias>,
    scratch: usize,
}

impl Form {
    fn of(planned: &Planned) -> Self {
        let Planned { kernel, scratch, alias, .. } = planned;
        Self { kernel: kernel.is_some(), alias: alias.clone(), scratch: *scratch }
    }

    /// Whether another plan needs no other arrangement: it may be smaller.
    fn covers(&self, other: &Planned) -> bool {
        let alike = |(a, b): (&Alias, &Alias)| match (a, b) {
            (Alias::View { input: a, .. }, Alias::View { input: b, .. }) => a == b,
            _ => a == b,
        };
        self.kernel == other.kernel.is_some()
            && self.scratch >= other.scratch
            && self.alias.len() == other.alias.len()
            && self.alias.iter().zip(&other.alias).all(alike)
    }
}

/// [`Opening`], with what became of its nodes.
pub(crate) struct Noted {
    dims: Dims,
    prelude: Vec<(usize, Node)>,
    nodes: Vec<Depends>,
    depends: Vec<bool>,
    original: Original,
}

impl Noted {
    /// Notes the steps of the nodes.
    pub(crate) fn note_steps(&mut self, steps: &[Option<usize>]) {
        for node in &mut self.nodes {
            node.step = steps.get(node.at).copied().flatten();
        }
    }
}

impl Open {
    pub(crate) fn new(
        Noted { dims, prelude, nodes, depends, original }: Noted,
        capacity: Binding,
        net: Net,
        storage: Storage,
        lay: Lay,
    ) -> Self {
        let bound = Mutex::new(Bound { net, storage, original });
        Self { bound, lay, capacity, dims, prelude, nodes, depends }
    }

    /// Whether the plan can be bound so: all open dimensions are as much shorter than the capacity,
    /// all others as they were.
    fn accepts(&self, binding: &Binding) -> bool {
        let size = |of: &Binding, (feed, dim): (usize, usize)| {
            of.feeds.get(feed).and_then(|(_, spec)| spec.shape.get(dim)).copied()
        };
        let shorter = |at| size(&self.capacity, at)?.checked_sub(size(binding, at)?);
        let Some(&first) = self.dims.first() else { return false };
        self.capacity.is_related(binding)
            && shorter(first).is_some_and(|by| {
                binding.feeds.iter().enumerate().all(|(feed, (_, spec))| {
                    (0..spec.shape.rank()).all(|dim| {
                        let open = self.dims.contains(&(feed, dim));
                        shorter((feed, dim)) == Some(if open { by } else { 0 })
                    })
                })
            })
    }

    /// Whether the plan would serve for a binding if its capacity were larger.
    fn is_outgrown_by(&self, binding: &Binding) -> bool {
        let feeds = self.capacity.feeds.iter().zip(&binding.feeds).enumerate();
        let as_before =
            |(feed, ((_, own), (_, other))): (usize, (&(_, TensorSpec), &(_, TensorSpec)))| {
                let sizes = own.shape.iter().zip(other.shape.iter()).enumerate();
                sizes
                    .into_iter()
                    .all(|(dim, (own, other))| own == other || self.dims.contains(&(feed, dim)))
            };
        self.capacity.is_related(binding) && feeds.into_iter().all(as_before)
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a session makes plans: by binding those that it has to other lengths, where that is
/// possible.
#[derive(Default)]
pub(crate) struct Openings {
    /// What could not be opened, and in which dimensions.
    refused: Mutex<Vec<(Binding, Dims)>>,
}

/// Refusals that are remembered.
const MOST_REFUSED: usize = 16;

/// Rows that a cache has room for, at least.
const LEAST_CAPACITY: usize = 64;

impl Openings {
    /// The plan for a binding. `related` are plans that differ in sizes alone, the most recently
    /// used first.
    ///
    /// # Errors
    /// As [`build::build`].
    pub(crate) fn make(
        &self,
        model: &Inner,
        shared: &Arc<Shared>,
        contexts: &[Arc<Context>],
        limits: &Limits,
        binding: Binding,
        related: &[Arc<Plan>],
    ) -> Result<Made, SessionError> {
        let resolved = &shared.resolved;
        for old in related {
            if let Some(plan) = rebind::rebind(old, &binding, resolved)? {
                return Ok(Made { plan, instead: Some(Arc::clone(old)) });
            }
        }
        let dims = dims(model, &binding, related.first().map(|plan| &plan.binding));
        if !dims.is_empty() && !self.is_refused(&binding, &dims) {
            let open = |making: &Making<'_>| opened(making, &binding, &dims);
            match build::within(model, resolved, contexts, shared, limits, open) {
                Ok(Some(plan)) => {
                    let outgrown = |plan: &&Arc<Plan>| {
                        plan.open.as_ref().is_some_and(|open| open.is_outgrown_by(&binding))
                    };
                    let outgrown = related.iter().find(outgrown);
                    return Ok(Made { plan, instead: outgrown.cloned() });
                }
                // The plain plan meets the same limit.
                Err(SessionError::Cancelled { .. } | SessionError::Deadline { .. }) => {}
                Ok(None) | Err(_) => self.refuse(&binding, dims),
            }
        }
        let plan = build::build(model, resolved, contexts, shared, binding, limits)?;
        Ok(Made { plan, instead: None })
    }

    fn is_refused(&self, binding: &Binding, dims: &[Dim]) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().any(|(other, open)| open == dims && other.is_related(binding))
    }

    fn refuse(&self, binding: &Binding, dims: Dims) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= MOST_REFUSED {
            refused.remove(0);
        }
        refused.push((binding.clone(), dims));
    }
}

/// The dimensions of the feeds in which a plan is to be open: those of what is carried and grows,
/// and others that have grown as much since `before`. Without anything carried, those that differ
/// from `before`, if something is appended to one of them.
fn dims(model: &Inner, binding: &Binding, before: Option<&Binding>) -> Dims {
    let mut dims: Dims = Vec::new();
    for growing in &binding.growing {
        if let Some(feed) = binding.feeds.iter().position(|(id, _)| *id == growing.input) {
            dims.push((feed, growing.dim));
        }
    }
    let Some(before) = before else { return dims };
    let mut grown = Vec::new();
    for (feed, ((_, now), (_, then))) in binding.feeds.iter().zip(&before.feeds).enumerate() {
        for (dim, (&now, &then)) in now.shape.iter().zip(then.shape.iter()).enumerate() {
            if now != then {
                grown.push(((feed, dim), now.abs_diff(then), now > then));
            }
        }
    }
    let by = |at: &(usize, usize)| grown.iter().find(|(other, ..)| other == at).copied();
    match dims.first().copied() {
        Some(first) => {
            if let Some((_, by, more)) = by(&first) {
                let same = grown.iter().filter(|(_, b, m)| (*b, *m) == (by, more));
                for (at, ..) in same {
                    if !dims.contains(at) {
                        dims.push(*at);
                    }
                }
            }
        }
        None => {
            let same = grown.windows(2).all(|w| (w[0].1, w[0].2) == (w[1].1, w[1].2));
            if same && grown.iter().any(|(at, ..)| is_appended_to(model, binding, *at)) {
                dims = grown.into_iter().map(|(at, ..)| at).collect();
            }
        }
    }
    dims
}

/// Whether an operator appends to this feed, in this dimension.
fn is_appended_to(model: &Inner, binding: &Binding, (feed, dim): (usize, usize)) -> bool {
    let Some((id, spec)) = binding.feeds.get(feed) else { return false };
    let rank = spec.shape.rank();
    model.graph.operators().any(|(at, operator)| match model.roles.get(at.index()) {
        Some(Some(Role::Operator(op))) => {
            operator.inputs.first().is_some_and(|first| ValueId::from(*first) == *id)
                && op.appends(rank) == Some(dim)
        }
        _ => false,
    })
}

/// The dimension in which `output` is `input` and more: as far as the graph tells.
pub(crate) fn grows(model: &Inner, output: ValueId, input: ValueId, rank: usize) -> Option<usize> {
    model.graph.operators().find_map(|(at, operator)| {
        let makes = operator.outputs.iter().any(|made| ValueId::from(*made) == output);
        let [first, new] = operator.inputs[..] else { return None };
        match model.roles.get(at.index()) {
            Some(Some(Role::Operator(op)))
                if makes && ValueId::from(first) == input && first != new =>
            {
                op.appends(rank)
            }
            _ => None,
        }
    })
}

/// A plan for this binding that is open in these dimensions; none where the net depends on the
/// lengths.
fn opened(
    making: &Making<'_>,
    binding: &Binding,
    dims: &[Dim],
) -> Result<Option<Plan>, SessionError> {
    let size = |&(feed, dim): &(usize, usize)| binding.feeds[feed].1.shape[dim];
    let longest = dims.iter().map(size).max().unwrap_or(0);
    let enough = longest.saturating_add(1).saturating_mul(3) / 2;
    let capacity = enough.checked_next_power_of_two().unwrap_or(enough).max(LEAST_CAPACITY);
    let slack = capacity.saturating_sub(longest);
    // A model may have an end, such as that of its table of positions.
    let mut failed = None;
    for slack in [slack, slack / 4, 4] {
        let longer = |by: usize| {
            let mut binding = binding.clone();
            for &(feed, dim) in dims {
                let size = &mut binding.feeds[feed].1.shape[dim];
                *size = size.saturating_add(by);
            }
            binding
        };
        let (upper, lower) = (longer(slack), longer(slack - slack.min(1)));
        let (a, b) = match (making.prepare(&upper), making.prepare(&lower)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(error), _) | (_, Err(error)) => {
                failed = Some(error);
                continue;
            }
        };
        let Some(opening) = Opening::find(making, (&upper, &lower), dims, &a.net, &b.net)? else {
            return Ok(None);
        };
        let base = making.finish(upper, a, Some(opening))?;
        return rebind::rebind(&base, binding, making.resolved);
    }
    failed.map_or(Ok(None), Err)
}

#[cfg(test)]
mod tests;

//! What of a net depends on lengths, found by comparing the nets of two.

use super::original::Original;
use super::twins::Known;
use super::{Depends, Dim, Dims, Form, Noted, Resident, rooms};
use crate::SessionError;
use crate::lists;
use crate::memory::storage::Storage;
use crate::plan::build::Making;
use crate::plan::infer::known;
use crate::plan::net::{Action, Net, Node, ValueId};
use crate::plan::values::Sharing;
use crate::run::bind::Binding;
use plutino_ops::{Planned, ValueSpec};
use std::collections::BTreeMap;

/// What of a net depends on the lengths of its inputs.
pub(crate) struct Opening {
    dims: Dims,
    /// For each value whether it depends on them.
    depends: Vec<bool>,
    /// Positions of the nodes that read or make such values, in order.
    nodes: Vec<usize>,
    /// Nodes that passes left out, because their results are known: they depend on lengths. Each
    /// with the first node that needs it.
    prelude: Vec<(usize, Node)>,
    /// Positions of nodes, each with that of an earlier one that makes the same of the same.
    twins: BTreeMap<usize, usize>,
    pub(crate) residents: Vec<Resident>,
    original: Original,
}

impl Opening {
    /// Compares two nets; none where they differ in more than sizes and known values, or where
    /// something depends on lengths that cannot be bound anew.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(crate) fn find(
        making: &Making<'_>,
        (binding, lower): (&Binding, &Binding),
        dims: &[Dim],
        net: &Net,
        other: &Net,
    ) -> Result<Option<Self>, SessionError> {
        if !alike(net, other) {
            return Ok(None);
        }
        let differs = |at| !same(net.types.get(ValueId(at)), other.types.get(ValueId(at)));
        let depends = lists::collect((0..net.values.len()).map(differs))?;
        let on_length = |id: &ValueId| depends.get(id.0).copied().unwrap_or(false);
        let touched = |node: &Node| node.inputs.iter().chain(&node.outputs).any(on_length);
        let nodes = net.nodes.iter().enumerate().filter(|(_, node)| touched(node));
        let nodes: Vec<usize> = nodes.map(|(at, _)| at).collect();
        if !nodes.iter().all(|&at| can_be_bound(net, at)) {
            return Ok(None);
        }
        let Some(prelude) = prelude(making, binding, net, &nodes, &on_length)? else {
            return Ok(None);
        };
        let residents = binding.growing.iter();
        let residents = residents
            .filter_map(|growing| resident(net, growing.input, growing.output, growing.dim));
        let residents = residents.collect();
        let known = Known {
            values: net.values.len(),
            feeds: &net.feeds,
            types: [&net.types, &other.types],
            depends: &depends,
            settings: &making.resolved.settings,
        };
        let twins = known.twins(nodes.iter().map(|&at| &net.nodes[at]))?;
        let twins = nodes.iter().zip(&twins.of);
        let twins = twins.filter_map(|(&at, twin)| Some((at, *nodes.get((*twin)?)?))).collect();
        let original = Original::find(making, binding, lower)?;
        Ok(Some(Self { dims: dims.to_vec(), depends, nodes, prelude, twins, residents, original }))
    }

    /// Adds the nodes that read what lies elsewhere for other lengths, whatever its size is: views.
    /// And nothing is written straight to a place that depends on lengths.
    ///
    /// # Errors
    /// Where such a node cannot be bound anew.
    pub(crate) fn settle(
        &mut self,
        net: &Net,
        storage: &Storage,
        planned: &mut [Option<Planned>],
    ) -> Result<(), SessionError> {
        let mut moved = lists::filled(storage.leaves.len(), false)?;
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for (at, node) in net.nodes.iter().enumerate() {
            let inputs = storage.leaves_of(&node.inputs).unwrap_or_default();
            let touched = self.nodes.binary_search(&at).is_ok();
            if !touched && !inputs.iter().any(|&leaf| moved[leaf]) {
                continue;
            }
            if !can_be_bound(net, at) {
                return Err(SessionError::internal("a view that depends on a length"));
            }
            nodes.push(at);
            for leaf in storage.leaves_of(&node.outputs).unwrap_or_default() {
                moved[leaf] = match storage.leaves[leaf].shares {
                    Some((Sharing::View, of)) => {
                        moved[of] || self.depends[storage.leaves[of].value.0]
                    }
                    Some((_, of)) => moved[of],
                    None => false,
                };
            }
        }
        self.nodes = nodes;
        for &at in &self.nodes {
            if let Some(Some(planned)) = planned.get_mut(at) {
                planned.placement = None;
            }
        }
        Ok(())
    }

    /// With the plans of the nodes.
    pub(crate) fn noting(self, net: &Net, planned: &[Option<Planned>]) -> Noted {
        let nodes: Vec<usize> = self.nodes.into_iter().filter(|at| *at < net.nodes.len()).collect();
        let twin = |at: usize| {
            let twin = *self.twins.get(&at)?;
            let rooms = |at: usize| rooms(&net.nodes[at], &self.residents);
            nodes.binary_search(&twin).ok().filter(|_| rooms(at) == rooms(twin))
        };
        let depends = |&at: &usize| Depends {
            at,
            step: None,
            planned: planned.get(at).and_then(Option::as_ref).map(Form::of),
            twin: twin(at),
        };
        Noted {
            dims: self.dims,
            prelude: self.prelude,
            nodes: nodes.iter().map(depends).collect(),
            depends: self.depends,
            original: self.original,
        }
    }
}

/// Whether a node can be bound to other lengths: no late step, nor one for lists of tensors.
fn can_be_bound(net: &Net, at: usize) -> bool {
    let node = &net.nodes[at];
    node.inputs.iter().chain(&node.outputs).all(|id| match net.types.get(*id) {
        Some(ValueSpec::List(_)) => net.types.is_known(*id),
        Some(ValueSpec::Dynamic { .. }) | None => false,
        Some(ValueSpec::Tensor(_) | ValueSpec::Word(_)) => true,
    })
}

/// Whether two nets are the same but for sizes: the same operators with the same parameters, on
/// the same values.
fn alike(a: &Net, b: &Net) -> bool {
    let same = |(a, b): (&Node, &Node)| {
        let action = match (&a.action, &b.action) {
            (Action::Operator(a), Action::Operator(b)) => format!("{a:?}") == format!("{b:?}"),
            (Action::Constant(a), Action::Constant(b)) => a.name == b.name,
            (Action::Pack, Action::Pack) | (Action::Unpack, Action::Unpack) => true,
            _ => false,
        };
        let ends = (&a.inputs, &a.outputs, a.source) == (&b.inputs, &b.outputs, b.source);
        action && ends && a.order == b.order
    };
    a.nodes.len() == b.nodes.len()
        && (a.values.len(), &a.feeds, &a.fetches) == (b.values.len(), &b.feeds, &b.fetches)
        && a.nodes.iter().zip(&b.nodes).all(same)
}

/// Whether nothing tells two values apart.
pub(super) fn same(a: Option<&ValueSpec>, b: Option<&ValueSpec>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(ValueSpec::Tensor(a)), Some(ValueSpec::Tensor(b))) => {
            (&a.spec, a.python) == (&b.spec, b.python) && a.known == b.known
        }
        (Some(ValueSpec::List(a)), Some(ValueSpec::List(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(Some(a), Some(b)))
        }
        (Some(ValueSpec::Word(a)), Some(ValueSpec::Word(b))) => a == b,
        (Some(ValueSpec::Dynamic { dtype: a }), Some(ValueSpec::Dynamic { dtype: b })) => a == b,
        _ => false,
    }
}

/// The nodes that make what `nodes` read and nobody in the net makes any more; none where that
/// cannot be known.
fn prelude(
    making: &Making<'_>,
    binding: &Binding,
    net: &Net,
    nodes: &[usize],
    on_length: &dyn Fn(&ValueId) -> bool,
) -> Result<Option<Vec<(usize, Node)>>, SessionError> {
    let orphan =
        |id: &ValueId| on_length(id) && net.producer(*id).is_none() && !net.feeds.contains(id);
    // Each with the first node that needs it.
    let mut wanted: BTreeMap<ValueId, usize> = BTreeMap::new();
    for &at in nodes {
        for id in net.nodes[at].inputs.iter().filter(|id| orphan(id)) {
            wanted.entry(*id).or_insert(at);
        }
    }
    if wanted.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let feeds = binding.feeds.iter().map(|(id, _)| *id).collect();
    let sorting = making.resolved.options.sorting;
    let original = Net::new(making.model, sorting, feeds, &binding.wanted)?;
    let mut prelude = Vec::new();
    for node in original.nodes.into_iter().rev() {
        let needed = node.outputs.iter().filter_map(|id| wanted.get(id)).min();
        let Some(&before) = needed else { continue };
        if !node.outputs.iter().all(|id| net.types.get(*id).is_some_and(known)) {
            return Ok(None); // a value of the run that a pass computes in another way
        }
        for id in &node.outputs {
            wanted.remove(id);
        }
        for id in node.inputs.iter().filter(|id| on_length(id)) {
            match net.producer(*id) {
                None if net.feeds.contains(id) => {}
                None => {
                    let first = wanted.entry(*id).or_insert(before);
                    *first = before.min(*first);
                }
                Some(made) if made < before => {}
                Some(_) => return Ok(None), // a pass put it behind what needs it
            }
        }
        prelude.push((before, node));
    }
    prelude.reverse();
    Ok(wanted.is_empty().then_some(prelude))
}

/// How a value that is carried can be appended to where it lies: whoever reads it must take it with
/// room at its end.
fn resident(net: &Net, input: ValueId, output: ValueId, dim: usize) -> Option<Resident> {
    let at = net.producer(output)?;
    let node = &net.nodes[at];
    let (fed, made) = (net.computed(input)?, net.computed(output)?);
    let new = net.computed(*node.inputs.get(1)?)?;
    let appends = node.inputs[..] == [input, node.inputs[1]]
        && node.inputs[1] != input
        && node.operator()?.appends(made.shape.rank()) == Some(dim)
        && (fed.dtype, fed.layout) == (made.dtype, made.layout)
        && (new.dtype, new.layout) == (made.dtype, made.layout);
    let alone = net.readers(input).eq([at])
        && !net.fetches.contains(&input)
        && net.fetches.iter().filter(|id| **id == output).count() == 1;
    let takes = |reader: usize| {
        let node = &net.nodes[reader];
        let (Some(operator), Some(inputs)) = (node.operator(), net.types.all(&node.inputs)) else {
            return false;
        };
        let read = node.inputs.iter().enumerate().filter(|(_, id)| **id == output);
        read.into_iter().all(|(input, _)| operator.takes_room(&inputs, input, dim))
    };
    let capacity = *made.shape.get(dim)?;
    (appends && alone && capacity > 0 && net.readers(output).all(takes)).then_some(Resident {
        node: at,
        input,
        output,
        dim,
        capacity,
    })
}

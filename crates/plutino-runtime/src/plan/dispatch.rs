//! Whether independent operators of a plan run at the same time, and whether threads are called at
//! all: decided by what they cost.

use crate::control::is_control;
use crate::cost::{Estimator, Key, Nanos};
use crate::plan::infer::{self, Types};
use crate::plan::net::{Action, Net, Node};
use crate::plan::overlap::{self, Group, Part, Terms, Weight};
use plutino_ops::{Planned, ValueSpec};
use plutino_tensor::TensorSpec;

/// How the operators of a plan are handed to threads.
///
/// Whatever it is, results have the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Dispatch {
    /// One operator after the other, each with all threads.
    InTurn,
    /// Independent operators run at the same time where they are too small to be shared by threads,
    /// by the estimates of [`cost`](crate::cost), and where that takes hardly more memory; a plan
    /// that is too small for threads runs on the caller's alone.
    #[default]
    ByCost,
    /// Independent operators run at the same time wherever there are any, whatever that costs: for
    /// tests.
    Together,
}

impl Dispatch {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::InTurn, Self::ByCost, Self::Together];

    /// The word for it, as the command line and `PLUTINO_DISPATCH` have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::InTurn => "in-turn",
            Self::ByCost => "by-cost",
            Self::Together => "together",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dispatch| dispatch.name() == name)
    }
}

/// A group of chains must save so much of its time, by the estimates ...
const SHARE: f64 = 0.15;

/// ... and so many nanoseconds.
const LEAST: f64 = 1500.0;

/// What the arena may grow by for chains: the first is a share of it, the second so many bytes. The
/// larger one counts: what is small lies in the caches anyway.
const GROWTH: (usize, usize) = (10, 256 << 10);

/// What an arena may become where it would have so many bytes without chains.
pub(crate) fn allowance(arena: usize) -> usize {
    let (part, bytes) = GROWTH;
    arena.saturating_add((arena / part).max(bytes))
}

/// How the nodes of a plan are handed to threads.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// Which nodes run at the same time, if memory allows it.
    pub(crate) groups: Vec<Group>,
    /// Whether the caller's thread runs everything.
    pub(crate) alone: bool,
}

/// Decides for the nodes of a net that are planned like this.
pub(crate) fn decide(
    net: &Net,
    types: &Types,
    planned: &[Option<Planned>],
    estimator: &Estimator,
    dispatch: Dispatch,
) -> Decision {
    let threads = estimator.threads();
    if threads < 2 || dispatch == Dispatch::InTurn {
        return Decision::default();
    }
    let free = dispatch == Dispatch::Together;
    let nodes = net.nodes.iter().zip(planned).enumerate();
    let parts: Vec<Part> = nodes
        .map(|(at, (node, planned))| {
            part(net, types, at, (node, planned.as_ref()), estimator, free)
        })
        .collect();
    let terms = match free {
        true => Terms { threads, job: 0.0, share: 0.0, least: 0.5 },
        false => Terms { threads, job: estimator.job(), share: SHARE, least: LEAST },
    };
    let groups = overlap::find(&parts, &terms);
    let alone = !free && is_too_small(&parts, &groups, estimator);
    Decision { groups: if alone { Vec::new() } else { groups }, alone }
}

/// Whether all of it takes one thread no longer than several.
fn is_too_small(parts: &[Part], groups: &[Group], estimator: &Estimator) -> bool {
    let weights = || {
        parts.iter().map(|part| match part {
            Part::Nothing => Weight { alone: 0.0, shared: 0.0 },
            Part::Free { weight, .. } | Part::Wall { weight, .. } => *weight,
        })
    };
    if parts
        .iter()
        .any(|part| matches!(part, Part::Wall { weight, .. } if weight.alone.is_infinite()))
    {
        return false; // nobody knows
    }
    let alone: f64 = weights().map(|w| w.alone).sum();
    let shared: f64 = weights().map(|w| w.shared).sum();
    let saved: f64 = groups.iter().map(|group| group.in_turn - group.together).sum();
    alone <= shared - saved + estimator.enter()
}

/// A node, as the search for groups sees it.
fn part(
    net: &Net,
    types: &Types,
    at: usize,
    (node, planned): (&Node, Option<&Planned>),
    estimator: &Estimator,
    free: bool,
) -> Part {
    let (inputs, outputs) = (types.all(&node.inputs), types.all(&node.outputs));
    let (Some(inputs), Some(outputs)) = (inputs, outputs) else {
        // Planned while running: nobody knows what it takes.
        let weight = Weight { alone: f64::INFINITY, shared: f64::INFINITY };
        return Part::Wall { weight, needs: overlap::needs(net, at) };
    };
    // What others wait for without reading it stays, as a step of no time.
    let idle = matches!(node.action, Action::Constant(_)) || infer::all_known(&outputs);
    if idle && node.order.is_empty() {
        return Part::Nothing;
    }
    let needs = overlap::needs(net, at);
    let kernel = planned.and_then(|planned| planned.kernel.as_deref());
    let (Some(operator), Some(kernel)) = (node.operator(), kernel) else {
        return Part::Free { weight: Weight { alone: 0.0, shared: 0.0 }, needs };
    };
    let fixed = |spec: &ValueSpec| {
        spec.leaves().into_iter().all(|leaf| !matches!(leaf, ValueSpec::Dynamic { .. }))
    };
    let fits = inputs.iter().chain(&outputs).all(fixed);
    if is_control(&node.location.kind) {
        let weight = Weight { alone: f64::INFINITY, shared: f64::INFINITY };
        return Part::Wall { weight, needs };
    }
    let weight = match free {
        true => Weight { alone: 1.0, shared: 1.0 },
        false => {
            let key = || key(&node.location.kind, kernel.name(), &inputs, &outputs);
            let cost = operator.cost(&inputs, &outputs);
            let Nanos { alone, shared } = estimator.nanos(kernel.name(), cost, key);
            Weight { alone, shared }
        }
    };
    match fits {
        true => Part::Free { weight, needs },
        false => Part::Wall { weight, needs },
    }
}

/// What an operator is to the records of costs.
pub(crate) fn key(kind: &str, kernel: &str, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Key {
    let specs = |values: &[ValueSpec]| -> Vec<TensorSpec> {
        let leaves = values.iter().flat_map(ValueSpec::leaves);
        leaves.filter_map(ValueSpec::as_tensor).map(|t| t.spec.clone()).collect()
    };
    Key::new(kind, kernel, &specs(inputs), &specs(outputs))
}

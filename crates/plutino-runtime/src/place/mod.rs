//! Placement: which context each operator of a plan runs in.
//!
//! [`rules`] decides by groups, wishes and costs; this file says what these are for a net, and what
//! became of them. Contexts of a CPU share memory; between those that do not, [`copy`] puts nodes.

mod context;
pub(crate) mod copy;
mod cores;
mod rules;
#[cfg(test)]
mod tests;
pub(crate) mod turns;

pub use context::Context;
pub use rules::Bond;

use crate::cost::Estimator;
use crate::open::Resident;
use crate::plan::dispatch;
use crate::plan::net::{Action, Net, Node};
use crate::run::bind::Binding;
use crate::settings::{is_called, is_meant};
use crate::{Profile, SessionError, lists};
use plutino_ir::quote;
use plutino_ops::{Alias, Planned};
use rules::{Nodes, Overruled};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What is asked of a placement: wishes, groups, and times that were measured. Operators without a
/// wish are placed by cost: as stages that follow each other and take equally long.
///
/// Operators are called by name (`conv1`), by scope (`layer1`, which is all of `layer1.0.conv1` and
/// the like) or by type (`nn.Conv2d`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    wishes: Vec<(String, usize)>,
    together: Vec<Vec<String>>,
    /// By operator.
    times: BTreeMap<String, Duration>,
}

impl Placement {
    /// A placement by cost alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for this context for operators of this name, scope or type. Of several wishes that an
    /// operator is meant by the last one counts. A wish is not a condition: where it cannot be met,
    /// [`PlacementReport::notes`] says why.
    #[must_use]
    pub fn place(mut self, what: impl Into<String>, context: usize) -> Self {
        self.wishes.push((what.into(), context));
        self
    }

    /// Keeps operators in one context, whichever it is.
    #[must_use]
    pub fn together<S: Into<String>>(mut self, what: impl IntoIterator<Item = S>) -> Self {
        self.together.push(what.into_iter().map(Into::into).collect());
        self
    }

    /// Balances the times of a run instead of estimates: best those of a run on as many threads as
    /// a context has.
    #[must_use]
    pub fn measured_by(mut self, profile: &Profile) -> Self {
        for (step, time) in profile.plan.steps().zip(&profile.steps) {
            *self.times.entry(step.location.name).or_default() += time.duration;
        }
        self
    }
}

/// Why something that was asked of a placement is not so.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementNote {
    /// No operator of the plan has this name, scope or type. It may have been left out or fused.
    NothingMatches {
        /// What was asked for.
        what: String,
    },
    /// There is no such context.
    NoSuchContext {
        /// What was to be placed there.
        what: String,
        /// The number that was asked for.
        context: usize,
        /// Contexts that there are, numbered from 0.
        contexts: usize,
    },
    /// An operator stays with others.
    KeptTogether {
        /// The operator.
        operator: String,
        /// The context that was asked for.
        wanted: usize,
        /// The one that it is in.
        context: usize,
        /// The operator whose wish came first.
        with: String,
        /// Why they stay together.
        bond: Bond,
    },
    /// An operator is part of another one's step.
    Absorbed {
        /// The operator.
        operator: String,
        /// The context that was asked for.
        wanted: usize,
        /// The operator that took it over.
        into: String,
    },
}

impl std::fmt::Display for PlacementNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NothingMatches { what } => {
                write!(f, "no operator has the name, scope or type '{}'", quote(what))
            }
            Self::NoSuchContext { what, context, contexts } => write!(
                f,
                "'{}' cannot be placed in context {context}: there are {contexts}, numbered from 0",
                quote(what)
            ),
            Self::KeptTogether { operator, wanted, context, with, bond } => {
                let (operator, with) = (quote(operator), quote(with));
                write!(
                    f,
                    "'{operator}' is in context {context} with '{with}', not in {wanted}: {bond}"
                )
            }
            Self::Absorbed { operator, wanted, into } => {
                let (operator, into) = (quote(operator), quote(into));
                write!(f, "'{operator}' is not in context {wanted}, but part of '{into}'")
            }
        }
    }
}

/// What became of a placement.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct PlacementReport {
    /// For each context, how long its steps take as estimated or measured.
    pub loads: Vec<Duration>,
    /// What was asked for and is not so.
    pub notes: Vec<PlacementNote>,
}

/// For each node its context, and what is to be said of that.
#[derive(Debug, Default)]
pub(crate) struct Located {
    pub(crate) of: Vec<usize>,
    pub(crate) report: PlacementReport,
}

impl Located {
    /// Whether all of these nodes run in one context.
    pub(crate) fn is_one_context(&self, nodes: Range<usize>) -> bool {
        let of = self.of.get(nodes).unwrap_or_default();
        of.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// The context of each step, where there are several; `times` says which step a node became.
    pub(crate) fn of_steps(&self, times: &[Option<usize>]) -> Option<Vec<usize>> {
        let steps = times.iter().zip(&self.of).filter(|(step, _)| step.is_some());
        (!self.of.is_empty()).then(|| steps.map(|(_, context)| *context).collect())
    }
}

/// Places the nodes of a net, of which some are planned.
pub(crate) fn place(
    (placement, contexts, estimator): (&Placement, &[Arc<Context>], &Estimator),
    (net, binding): (&Net, &Binding),
    planned: &[Option<Planned>],
    residents: &[Resident],
) -> Result<Located, SessionError> {
    let mut notes = Vec::new();
    let costs: Vec<f64> = lists::collect(
        net.nodes
            .iter()
            .zip(planned)
            .map(|(node, planned)| cost(placement, estimator, net, node, planned)),
    )?;
    let mut bonds = state_bonds(net, binding, residents);
    bonds.extend(generator_bonds(net));
    if contexts.windows(2).any(|pair| !pair[0].shares_memory_with(&pair[1])) {
        bonds.extend(in_place_bonds(net, planned));
    }
    for group in &placement.together {
        let mut members = Vec::new();
        for what in group {
            let before = members.len();
            let meant =
                net.nodes.iter().enumerate().filter(|(_, node)| is_meant(what, &node.location));
            members.extend(meant.map(|(at, _)| at));
            if members.len() == before {
                notes.push(PlacementNote::NothingMatches { what: what.clone() });
            }
        }
        bonds.extend(members.windows(2).map(|pair| (pair[0], pair[1], Bond::Group)));
    }
    let wishes = wishes(placement, contexts.len(), net, &mut notes)?;
    let nodes = Nodes { costs, wishes, bonds };
    let (of, overruled) = rules::assign(&nodes, contexts.len());
    notes.extend(overruled.iter().map(|o: &Overruled| PlacementNote::KeptTogether {
        operator: net.nodes[o.node].location.name.clone(),
        wanted: o.wanted,
        context: of[o.node],
        with: net.nodes[o.with].location.name.clone(),
        bond: o.bond,
    }));
    let load = |context| {
        let costs = of.iter().zip(&nodes.costs).filter(|(of, _)| **of == context);
        Duration::try_from_secs_f64(costs.map(|(_, cost)| cost).sum()).unwrap_or_default()
    };
    let loads = (0..contexts.len()).map(load).collect(); // bounded: contexts
    Ok(Located { of, report: PlacementReport { loads, notes } })
}

/// What a node takes, in seconds.
fn cost(
    placement: &Placement,
    estimator: &Estimator,
    net: &Net,
    node: &Node,
    planned: &Option<Planned>,
) -> f64 {
    if let Some(time) = placement.times.get(&node.location.name) {
        return time.as_secs_f64();
    }
    let Some(operator) = node.operator() else { return 0.0 };
    let kernel = planned.as_ref().and_then(|planned| planned.kernel.as_deref());
    match (net.types.all(&node.inputs), net.types.all(&node.outputs), kernel) {
        (Some(inputs), Some(outputs), Some(kernel)) => {
            let key = || dispatch::key(&node.location.kind, kernel.name(), &inputs, &outputs);
            let cost = operator.cost(&inputs, &outputs);
            estimator.estimate(kernel.name(), cost, key).time.as_secs_f64()
        }
        // Nothing to do, computed while planning, or planned while running: nobody knows.
        _ => 0.0,
    }
}

/// The wish of each node.
fn wishes(
    placement: &Placement,
    contexts: usize,
    net: &Net,
    notes: &mut Vec<PlacementNote>,
) -> Result<Vec<Option<usize>>, SessionError> {
    let mut wishes = lists::filled(net.nodes.len(), None)?;
    for (what, context) in &placement.wishes {
        if *context >= contexts {
            let (what, context) = (what.clone(), *context);
            notes.push(PlacementNote::NoSuchContext { what, context, contexts });
            continue;
        }
        let mut found = false;
        for (wish, node) in wishes.iter_mut().zip(&net.nodes) {
            if is_meant(what, &node.location) {
                (*wish, found) = (Some(*context), true);
            }
            // Names of what is fused into a step: its own wish counts, or that of the first.
            for absorbed in node.absorbed.iter().filter(|name| is_called(what, name, "")) {
                found = true;
                if !is_meant(what, &node.location) {
                    notes.push(PlacementNote::Absorbed {
                        operator: absorbed.clone(),
                        wanted: *context,
                        into: node.location.name.clone(),
                    });
                }
            }
        }
        if !found {
            notes.push(PlacementNote::NothingMatches { what: what.clone() });
        }
    }
    Ok(wishes)
}

/// Whoever changes a state where it lies stays with whoever reads it.
fn state_bonds(net: &Net, binding: &Binding, residents: &[Resident]) -> Vec<(usize, usize, Bond)> {
    let mut bonds = Vec::new();
    let pairs = residents.iter().map(|resident| (resident.input, resident.output));
    let pairs = pairs.chain(binding.growing.iter().map(|growing| (growing.input, growing.output)));
    for (input, output) in pairs {
        let Some(writer) = net.producer(output) else { continue };
        let readers = net.readers(input).chain(net.readers(output));
        bonds.extend(readers.map(|reader| (writer, reader, Bond::State)));
    }
    bonds
}

/// Whoever makes a value out of nothing stays with its only reader.
fn generator_bonds(net: &Net) -> impl Iterator<Item = (usize, usize, Bond)> + '_ {
    net.nodes.iter().enumerate().filter_map(|(at, node)| {
        let generates = node.inputs.is_empty() && !matches!(node.action, Action::Constant(_));
        let output = net.only_output(at).filter(|_| generates)?;
        let mut readers = net.readers(output);
        let reader = readers.next().filter(|_| !net.is_fetched(output))?;
        readers.next().is_none().then_some((at, reader, Bond::Generator))
    })
}

/// Whoever may write over what it reads stays with whoever made that: in another memory it would
/// write over a copy, so that there were two.
fn in_place_bonds(net: &Net, planned: &[Option<Planned>]) -> Vec<(usize, usize, Bond)> {
    let mut bonds = Vec::new();
    for (at, (node, planned)) in net.nodes.iter().zip(planned).enumerate() {
        let Some(planned) = planned else { continue };
        for alias in &planned.alias {
            // Leaves are inputs where there are no lists; with lists nothing is known of partners.
            if let Alias::InPlace { input } = alias
                && let Some(producer) = node.inputs.get(*input).and_then(|id| net.producer(*id))
            {
                bonds.push((producer, at, Bond::InPlace));
            }
        }
    }
    bonds
}

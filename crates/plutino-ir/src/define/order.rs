//! Order without data across definitions: what comes after a node comes after all that stands in
//! its place, and all of that after what the node came after.
//!
//! Enough is said by the operators with which a definition begins, and those with which it ends.

use std::collections::{HashMap, HashSet};

use super::Definitions;
use crate::graph::{Graph, Operator, OperatorId};

/// What stands in the place of an operator.
#[derive(Debug, Default)]
pub(super) struct Unit {
    /// Operators that wait for none of the others.
    begin: Vec<OperatorId>,
    /// Operators that none of the others waits for.
    end: Vec<OperatorId>,
}

impl Unit {
    /// Adds another one, which may wait for some of this.
    pub(super) fn join(&mut self, other: Self, waits: bool) {
        if !waits {
            self.begin.extend(other.begin);
        }
        self.end.extend(other.end);
    }
}

/// What stands in the place of the operators of one graph; nothing is kept where nothing is said
/// about order.
#[derive(Debug, Default)]
pub(super) struct Units(Option<HashMap<OperatorId, Unit>>);

impl Units {
    /// Without operators; for a graph and definitions of which some may say something about order.
    pub(super) fn of(graph: &Graph, definitions: &Definitions) -> Self {
        let mut graphs = definitions.iter().map(|(_, definition)| &*definition.graph);
        let ordered = graph.controls().next().is_some()
            || graphs.any(|graph| graph.controls().next().is_some());
        Self(ordered.then(HashMap::new))
    }

    /// The same without operators.
    pub(super) fn none(&self) -> Self {
        Self(self.0.as_ref().map(|_| HashMap::new()))
    }

    /// An operator that stands for itself.
    pub(super) fn one(&self, id: OperatorId) -> Unit {
        match self.0 {
            Some(_) => Unit { begin: vec![id], end: vec![id] },
            None => Unit::default(),
        }
    }

    pub(super) fn put(&mut self, id: OperatorId, unit: Unit) {
        if let Some(units) = &mut self.0 {
            units.insert(id, unit);
        }
    }

    fn get(&self, id: OperatorId) -> Option<&Unit> {
        self.0.as_ref()?.get(&id)
    }

    pub(super) fn begins(&self, id: OperatorId) -> &[OperatorId] {
        self.get(id).map_or(&[], |unit| &unit.begin)
    }

    pub(super) fn ends(&self, id: OperatorId) -> &[OperatorId] {
        self.get(id).map_or(&[], |unit| &unit.end)
    }

    /// All operators of a definition as what stands in the place of one.
    pub(super) fn whole(&self, graph: &Graph) -> Unit {
        let mut whole = Unit::default();
        if self.0.is_none() {
            return whole;
        }
        let mut awaited = HashSet::new();
        for (id, operator) in graph.operators().filter(|(_, operator)| is_work(operator)) {
            let producers = operator.inputs.iter().filter_map(|&i| graph.operand(i)?.producer);
            let earlier: Vec<OperatorId> =
                producers.chain(operator.after.iter().copied()).collect();
            let waits = earlier.iter().any(|&id| graph.operator(id).is_some_and(is_work));
            if !waits {
                whole.begin.extend(self.begins(id));
            }
            awaited.extend(earlier);
        }
        for (id, _) in graph.operators().filter(|(_, operator)| is_work(operator)) {
            if !awaited.contains(&id) {
                whole.end.extend(self.ends(id));
            }
        }
        whole
    }
}

/// Whether an operator does something: inputs and constants are there when a run begins.
fn is_work(operator: &Operator) -> bool {
    !matches!(operator.kind.as_str(), "pnnx.Input" | "pnnx.Output" | "pnnx.Attribute")
}

/// The operators that the results of a graph come after without reading from them.
pub(super) fn before_outputs(graph: &Graph) -> Vec<OperatorId> {
    let mut last: Vec<OperatorId> = Vec::new();
    for (_, output) in graph.operators_of("pnnx.Output") {
        last.extend(output.after.iter().filter(|id| !last.contains(id)).collect::<Vec<_>>());
    }
    last
}

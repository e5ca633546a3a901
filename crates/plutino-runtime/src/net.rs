//! The part of a model that one run needs, in execution order: what passes edit and planning reads.

use crate::model::{Inner, Role};
use crate::{SessionError, Sorting};
use plutino_ir::{OperandId, OperatorId, TensorType, topo};
use plutino_ops::{Location, Operator, Weight};
use std::collections::HashSet;
use std::sync::Arc;

/// Names a value within its net: [`OperandId::index`] of the operand, or beyond for a value that
/// stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueId(pub(crate) usize);

impl From<OperandId> for ValueId {
    fn from(id: OperandId) -> Self {
        Self(id.index())
    }
}

/// A value: what the file says about it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) recorded: TensorType,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum Action {
    /// Stands for a constant of the model.
    Constant(Weight),
    /// Makes a tuple of its inputs.
    Pack,
    /// Takes its input, a tuple, apart.
    Unpack,
    /// Computes, as the file says.
    Operator(Arc<dyn Operator>),
    /// Computes, after a pass changed what.
    Fused(Box<dyn Operator>),
}

/// A step on the way from feeds to fetches.
#[derive(Debug)]
pub(crate) struct Node {
    /// The operator of the graph that this node was made of; none for one that a pass put in.
    pub(crate) source: Option<OperatorId>,
    pub(crate) location: Arc<Location>,
    pub(crate) action: Action,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<ValueId>,
    /// Operators that this node absorbed, by name.
    pub(crate) absorbed: Vec<String>,
}

impl Node {
    /// The operator, where this node computes.
    pub(crate) fn operator(&self) -> Option<&dyn Operator> {
        match &self.action {
            Action::Operator(op) => Some(op.as_ref()),
            Action::Fused(op) => Some(op.as_ref()),
            _ => None,
        }
    }
}

/// Nodes in execution order between feeds and fetches.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) nodes: Vec<Node>,
    /// By [`ValueId`].
    pub(crate) values: Vec<Value>,
    pub(crate) feeds: Vec<ValueId>,
    pub(crate) fetches: Vec<ValueId>,
}

impl Net {
    /// The nodes that can run once `feeds` are given, in topological order. Whoever makes a fed
    /// value is left out; so is whatever needs a model input that is not fed.
    ///
    /// # Errors
    /// Where a fetch cannot be computed.
    pub(crate) fn new(
        model: &Inner,
        sorting: Sorting,
        feeds: Vec<ValueId>,
        fetches: Vec<ValueId>,
    ) -> Result<Self, SessionError> {
        let graph = &model.graph;
        let order = match sorting {
            Sorting::DepthFirst => topo::depth_first(graph),
            Sorting::Kahn => topo::kahn(graph),
        };
        let order = order.map_err(|e| SessionError::internal(e.to_string()))?; // load refuses cycles
        let mut values = vec![Value::default(); graph.operand_slots()];
        for (id, operand) in graph.operands() {
            values[id.index()] = Value { name: operand.name.clone(), recorded: operand.ty.clone() };
        }
        let mut ready = vec![false; values.len()];
        feeds.iter().for_each(|f| ready[f.0] = true);
        let mut nodes = Vec::with_capacity(order.len());
        for id in order {
            let (Some(op), Some(role)) = (graph.operator(id), &model.roles[id.index()]) else {
                continue;
            };
            let action = match role {
                Role::Input | Role::Output => continue,
                Role::Constant(weight) => Action::Constant(weight.clone()),
                Role::Pack => Action::Pack,
                Role::Unpack => Action::Unpack,
                Role::Operator(op) => Action::Operator(Arc::clone(op)),
            };
            let fed = !op.outputs.is_empty() && op.outputs.iter().all(|o| ready[o.index()]);
            if fed || !op.inputs.iter().all(|i| ready[i.index()]) {
                continue;
            }
            let mut outputs: Vec<ValueId> = op.outputs.iter().map(|&o| o.into()).collect();
            for output in outputs.iter_mut().filter(|o| ready[o.0]) {
                // Fed, while a sister output is needed: what the node makes goes nowhere.
                values.push(values[output.0].clone());
                *output = ValueId(values.len() - 1);
            }
            op.outputs.iter().for_each(|o| ready[o.index()] = true);
            nodes.push(Node {
                source: Some(id),
                location: Arc::new(model.location(id)),
                action,
                inputs: op.inputs.iter().map(|&i| i.into()).collect(),
                outputs,
                absorbed: Vec::new(),
            });
        }
        if let Some(fetch) = fetches.iter().find(|f| !ready[f.0]) {
            return Err(SessionError::NotFed {
                fetch: values[fetch.0].name.clone(),
                missing: missing_input(model, &ready, *fetch).unwrap_or_default(),
            });
        }
        Ok(Self { nodes, values, feeds, fetches })
    }

    /// Name of a value.
    pub(crate) fn name(&self, id: ValueId) -> &str {
        self.values.get(id.0).map_or("?", |v| &v.name)
    }

    /// The values that are fetched.
    pub(crate) fn fetched(&self) -> HashSet<ValueId> {
        self.fetches.iter().copied().collect()
    }

    /// Positions of the nodes that read each value, once for each time they do.
    pub(crate) fn consumers(&self) -> Vec<Vec<usize>> {
        let mut consumers = vec![Vec::new(); self.values.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|i| consumers[i.0].push(at));
        }
        consumers
    }

    /// Position of the node that makes each value.
    pub(crate) fn producers(&self) -> Vec<Option<usize>> {
        let mut producers = vec![None; self.values.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|o| producers[o.0] = Some(at));
        }
        producers
    }
}

/// Name of a model input above `value` that nobody feeds.
fn missing_input(model: &Inner, ready: &[bool], value: ValueId) -> Option<String> {
    let mut seen = vec![false; ready.len()];
    let mut operands = vec![None; ready.len()];
    for (id, operand) in model.graph.operands() {
        operands[id.index()] = Some(operand);
    }
    let mut stack = vec![value.0];
    while let Some(at) = stack.pop() {
        if ready[at] || std::mem::replace(&mut seen[at], true) {
            continue;
        }
        let operand = operands.get(at).copied().flatten()?;
        let op = model.graph.operator(operand.producer?)?;
        if op.kind == "pnnx.Input" {
            return Some(operand.name.clone());
        }
        stack.extend(op.inputs.iter().map(|i| i.index()));
    }
    None
}

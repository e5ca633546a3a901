//! The part of a model that one run needs, in execution order: what passes edit and planning reads.

use crate::load::model::{Inner, Role};
use crate::memory::storage::Leaf;
use crate::order::{Order, Ordering, Orders, Token};
use crate::plan::infer::Types;
use crate::plan::reach;
use crate::{SessionError, Sorting, lists};
use plutino_ir::{OperandId, OperatorId, TensorType, topo};
use plutino_ops::{Location, Operator, Role as Meaning, ValueSpec, Weight};
use plutino_tensor::{TensorError, TensorSpec};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, LazyLock};

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
    pub(crate) name: Arc<str>,
    pub(crate) recorded: TensorType,
}

/// What a run must yield.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wanted {
    /// The model's outputs.
    Outputs,
    /// Every operand that can be computed from what is fed.
    All,
    /// These values, in this order.
    These(Vec<ValueId>),
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
    /// Computes: as the file says, or what a pass made of that.
    Operator(Arc<dyn Operator>),
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
    /// What it comes after without reading from it, and what comes after it so.
    pub(crate) order: Order,
}

impl Node {
    /// The operator, where this node computes.
    pub(crate) fn operator(&self) -> Option<&dyn Operator> {
        match &self.action {
            Action::Operator(op) => Some(op.as_ref()),
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
    /// What the results come after without being made of it.
    pub(crate) last: BTreeSet<Token>,
    /// What is known of each value, as far as inference got.
    pub(crate) types: Types,
    /// Who makes and who reads each value, at the last [`Net::index`] and what patches changed
    /// since.
    pub(crate) uses: Uses,
}

/// Who makes and who reads each value, by [`ValueId`]. Positions are those of nodes.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(crate) producers: Vec<Option<usize>>,
    /// Positions of readers, and how many inputs of each it is.
    pub(crate) readers: Vec<BTreeMap<usize, usize>>,
    pub(crate) fetched: Vec<bool>,
    pub(crate) orders: Orders,
}

impl Uses {
    /// Enters a node at this position.
    pub(crate) fn enter(&mut self, at: usize, node: &Node) {
        for input in &node.inputs {
            *self.readers[input.0].entry(at).or_insert(0) += 1;
        }
        node.outputs.iter().for_each(|output| self.producers[output.0] = Some(at));
        self.orders.enter(at, &node.order);
    }

    /// Forgets a node at this position.
    pub(crate) fn leave(&mut self, at: usize, node: &Node) {
        for input in &node.inputs {
            self.readers[input.0].remove(&at);
        }
        for output in &node.outputs {
            self.producers[output.0] = None;
        }
        self.orders.leave(at, &node.order);
    }

    /// Notes that these values are fetched, and no others.
    pub(crate) fn fetch(&mut self, fetches: &[ValueId]) {
        self.fetched.fill(false);
        fetches.iter().for_each(|fetch| self.fetched[fetch.0] = true);
    }

    /// Makes room for values that were added.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(crate) fn grow(&mut self, values: usize) -> Result<(), TensorError> {
        lists::lengthen(&mut self.producers, values, None)?;
        lists::lengthen(&mut self.readers, values, BTreeMap::new())?;
        lists::lengthen(&mut self.fetched, values, false)
    }
}

impl Net {
    /// The nodes that can run once `feeds` are given, in topological order. Whoever makes a fed
    /// value is left out; so is whatever needs a model input that is not fed. Results that are all
    /// outputs of the model come after what its `pnnx.Output` operators come after.
    ///
    /// # Errors
    /// Where a fetch cannot be computed, or what it comes after.
    pub(crate) fn new(
        model: &Inner,
        sorting: Sorting,
        feeds: Vec<ValueId>,
        wanted: &Wanted,
    ) -> Result<Self, SessionError> {
        let graph = &model.graph;
        let order = match sorting {
            Sorting::DepthFirst => topo::depth_first(graph),
            Sorting::Kahn => topo::kahn(graph),
        };
        let order = order.map_err(|e| SessionError::internal(e.to_string()))?; // load refuses cycles
        let mut values = lists::filled(graph.operand_slots(), Value::default())?;
        for (id, operand) in graph.operands() {
            values[id.index()] =
                Value { name: operand.name.as_str().into(), recorded: operand.ty.clone() };
        }
        let mut ready = lists::filled(values.len(), false)?;
        feeds.iter().for_each(|f| ready[f.0] = true);
        let mut nodes = lists::list(order.len())?;
        let mut ordering = Ordering::new(graph);
        for &id in &order {
            let (Some(op), Some(role)) = (graph.operator(id), &model.roles[id.index()]) else {
                continue;
            };
            let action = match role {
                Role::Input | Role::Output => {
                    ordering.there(id);
                    continue;
                }
                Role::Constant(weight) => Action::Constant(weight.clone()),
                Role::Pack => Action::Pack,
                Role::Unpack => Action::Unpack,
                Role::Operator(op) => Action::Operator(Arc::clone(op)),
            };
            let fed = !op.outputs.is_empty() && op.outputs.iter().all(|o| ready[o.index()]);
            if fed {
                ordering.there(id);
                continue;
            }
            if let Some(&missing) = op.inputs.iter().find(|i| !ready[i.index()]) {
                ordering.stuck(id, missing.into());
                continue;
            }
            let mut outputs: Vec<ValueId> = op.outputs.iter().map(|&o| o.into()).collect();
            for output in outputs.iter_mut().filter(|o| ready[o.0]) {
                // Fed, while a sister output is needed: what the node makes goes nowhere.
                let same = values[output.0].clone();
                lists::push(&mut values, same)?;
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
                order: ordering.node(id),
            });
        }
        let fetches: Vec<ValueId> = match wanted {
            Wanted::Outputs => model.outputs.iter().map(|o| o.id.into()).collect(),
            Wanted::All => graph
                .operands()
                .map(|(id, _)| id.into())
                .filter(|id: &ValueId| ready[id.0])
                .collect(),
            Wanted::These(fetches) => fetches.clone(),
        };
        if let Some(fetch) = fetches.iter().find(|f| !ready[f.0]) {
            return Err(reach::not_fed(model, &order, &ready, *fetch));
        }
        let last = ordering.last(model);
        let asked: HashSet<ValueId> = match last.is_empty() {
            true => HashSet::new(),
            false => fetches.iter().copied().collect(),
        };
        let whole = model.outputs.iter().all(|o| asked.contains(&o.id.into()));
        let last = if whole { last } else { BTreeSet::new() };
        ordering
            .settle(&mut nodes, &values, &fetches, &last)
            .map_err(|missing| reach::not_fed(model, &order, &ready, missing))?;
        let (types, uses) = (Types::default(), Uses::default());
        Ok(Self { nodes, values, feeds, fetches, last, types, uses })
    }

    /// Name of a value.
    pub(crate) fn name(&self, id: ValueId) -> &str {
        self.shared_name(id)
    }

    /// The name of a tensor of the plan: that of its value, and which member of it.
    pub(crate) fn leaf_name(&self, leaf: &Leaf) -> Arc<str> {
        let name = self.shared_name(leaf.value);
        leaf.member.map_or_else(|| Arc::clone(name), |m| format!("{name}.{m}").into())
    }

    /// As [`Net::name`], to be kept.
    pub(crate) fn shared_name(&self, id: ValueId) -> &Arc<str> {
        static UNKNOWN: LazyLock<Arc<str>> = LazyLock::new(|| "?".into());
        self.values.get(id.0).map_or(&UNKNOWN, |v| &v.name)
    }

    /// Notes who makes and who reads each value.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(crate) fn index(&mut self) -> Result<(), TensorError> {
        let mut uses = Uses::default();
        uses.grow(self.values.len())?;
        self.nodes.iter().enumerate().for_each(|(at, node)| uses.enter(at, node));
        uses.fetch(&self.fetches);
        self.uses = uses;
        Ok(())
    }

    /// A new value, with what is said of another one.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(crate) fn add_value(&mut self, value: Value) -> Result<ValueId, TensorError> {
        self.uses.grow(self.values.len() + 1)?;
        lists::push(&mut self.values, value)?;
        Ok(ValueId(self.values.len() - 1))
    }

    /// Position of the node that makes a value.
    pub(crate) fn producer(&self, value: ValueId) -> Option<usize> {
        self.uses.producers.get(value.0).copied().flatten()
    }

    /// Positions of the nodes that read a value, each once.
    pub(crate) fn readers(&self, value: ValueId) -> impl Iterator<Item = usize> + '_ {
        self.uses.readers.get(value.0).into_iter().flat_map(|readers| readers.keys().copied())
    }

    /// Positions of the nodes that the one at a position comes after without reading from them.
    pub(crate) fn earlier(&self, at: usize) -> BTreeSet<usize> {
        self.nodes.get(at).map_or_else(BTreeSet::new, |node| self.uses.earlier(at, &node.order))
    }

    /// Whether anybody waits for what a node carries, or the results do.
    pub(crate) fn is_awaited(&self, node: &Node) -> bool {
        let waits = |token: &Token| {
            self.last.contains(token) || self.uses.orders.waiters(*token).next().is_some()
        };
        node.order.carries.iter().any(waits)
    }

    /// Whether a value is a result of the run.
    pub(crate) fn is_fetched(&self, value: ValueId) -> bool {
        self.uses.fetched.get(value.0).copied().unwrap_or(false)
    }

    /// The node that reads a value, where that is done once, and the value is not fetched.
    pub(crate) fn only_reader(&self, value: ValueId) -> Option<usize> {
        let readers = self.uses.readers.get(value.0)?;
        let once = readers.len() == 1 && !self.is_fetched(value);
        readers.iter().next().filter(|&(_, &times)| once && times == 1).map(|(&at, _)| at)
    }

    /// The node that makes a value, and nothing else, for one input of `reader` alone.
    pub(crate) fn maker_for(&self, value: ValueId, reader: usize) -> Option<usize> {
        let alone = self.only_reader(value) == Some(reader);
        self.producer(value).filter(|&p| alone && self.only_output(p) == Some(value))
    }

    /// The output of a node that has one.
    pub(crate) fn only_output(&self, at: usize) -> Option<ValueId> {
        match self.nodes.get(at)?.outputs[..] {
            [output] => Some(output),
            _ => None,
        }
    }

    /// What a node is in patterns of several.
    pub(crate) fn role(&self, at: usize) -> Option<Meaning> {
        let node = self.nodes.get(at)?;
        node.operator()?.role(&self.types.all(&node.inputs)?)
    }

    /// The spec of a tensor that is computed at run time.
    pub(crate) fn computed(&self, value: ValueId) -> Option<&TensorSpec> {
        match self.types.get(value) {
            Some(ValueSpec::Tensor(t)) if t.known.is_none() && !t.python => Some(&t.spec),
            _ => None,
        }
    }
}

//! The graph: operators in file order, operands between them.

mod control;
mod edit;
mod error;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use crate::attribute::Attribute;
use crate::define::Origin;
use crate::dtype::TensorType;
use crate::parameter::Parameter;

pub use control::ControlProblem;
pub use error::EditError;
pub(crate) use error::check_word;
pub use validate::InvalidGraph;
pub(crate) use validate::entry_name;

/// Names an operator within its graph. Stays valid whatever else is edited, and is never given out
/// twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorId(pub(crate) usize);

/// Names an operand within its graph. Stays valid whatever else is edited, and is never given out
/// twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperandId(pub(crate) usize);

impl OperatorId {
    /// A number below [`Graph::operator_slots`], for tables beside the graph.
    pub fn index(self) -> usize {
        self.0
    }
}

impl OperandId {
    /// A number below [`Graph::operand_slots`], for tables beside the graph.
    pub fn index(self) -> usize {
        self.0
    }
}

/// A value that flows between operators: made by one, read by any number.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Operand {
    /// Name, unique among operands; exporters number them.
    pub name: String,
    /// What the file records about shape and element type: a hint, not a fact.
    pub ty: TensorType,
    /// The operator that makes it; `None` only while a graph is being built.
    pub producer: Option<OperatorId>,
    /// The operators that read it, once for each time they do: `torch.cat` of 3 and 3 appears
    /// twice.
    pub consumers: Vec<OperatorId>,
}

/// A node of the graph.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Operator {
    /// Type, for example `nn.Conv2d`, `torch.cat`, `pnnx.Input`.
    pub kind: String,
    /// Name, unique among operators; a module's path such as `layer1.0.conv1` where there is one.
    pub name: String,
    /// Operands read, in order. The same one may appear several times.
    pub inputs: Vec<OperandId>,
    /// Operands made, in order.
    pub outputs: Vec<OperandId>,
    /// The argument that each input stands for (`$attn_mask=4`), where the file says; as long as
    /// `inputs`.
    pub input_names: Vec<Option<String>>,
    /// Operators that must be over before this one begins, beside those that make its inputs
    /// (`^name=after`); each once. See [`Graph::add_control`].
    pub after: Vec<OperatorId>,
    /// Operators that come after this one so.
    pub followers: Vec<OperatorId>,
    /// Parameters by name.
    pub params: BTreeMap<String, Parameter>,
    /// Weights by name.
    pub attrs: BTreeMap<String, Attribute>,
    /// Line in the `.param` file, from 1; `None` if the operator was made by an edit.
    pub line: Option<u32>,
    /// The node in whose place a definition put this operator; the line is one of the definition's
    /// file then. `None` for an operator of the model itself.
    pub origin: Option<Arc<Origin>>,
}

impl Operator {
    /// The parameter of this name.
    pub fn param(&self, name: &str) -> Option<&Parameter> {
        self.params.get(name)
    }

    /// The weight of this name.
    pub fn attr(&self, name: &str) -> Option<&Attribute> {
        self.attrs.get(name)
    }

    /// The input that the file names so.
    pub fn named_input(&self, name: &str) -> Option<OperandId> {
        let at = self.input_names.iter().position(|key| key.as_deref() == Some(name))?;
        self.inputs.get(at).copied()
    }
}

/// A PNNX model: operators in file order, connected by operands.
///
/// Operators and operands are reached by id, by name or in order, and changed only through the
/// graph, which keeps both ends of every connection in agreement. Indexing (`graph[id]`) is for ids
/// known to be live, for instance those that an operator of the same graph holds, and panics on an
/// id that was removed; [`Graph::operator`] and [`Graph::operand`] answer `None` instead.
///
/// Two graphs are equal if they would be written alike: ids and line numbers do not count.
#[derive(Clone, Default)]
pub struct Graph {
    operators: Vec<Option<Operator>>,
    operands: Vec<Option<Operand>>,
    /// Live operators in file order.
    order: Vec<OperatorId>,
    operator_names: HashMap<String, OperatorId>,
    operand_names: HashMap<String, OperandId>,
}

impl Graph {
    /// A graph without operators.
    pub fn new() -> Self {
        Graph::default()
    }

    /// The operator of this id, unless it was removed.
    pub fn operator(&self, id: OperatorId) -> Option<&Operator> {
        self.operators.get(id.0)?.as_ref()
    }

    /// The operand of this id, unless it was removed.
    pub fn operand(&self, id: OperandId) -> Option<&Operand> {
        self.operands.get(id.0)?.as_ref()
    }

    /// Operators in file order.
    pub fn operators(&self) -> impl DoubleEndedIterator<Item = (OperatorId, &Operator)> + '_ {
        self.order.iter().filter_map(|&id| Some((id, self.operator(id)?)))
    }

    /// Ids of the operators in file order.
    pub fn operator_ids(&self) -> &[OperatorId] {
        &self.order
    }

    /// Operands in the order of their making.
    pub fn operands(&self) -> impl DoubleEndedIterator<Item = (OperandId, &Operand)> + '_ {
        self.operands
            .iter()
            .enumerate()
            .filter_map(|(slot, operand)| Some((OperandId(slot), operand.as_ref()?)))
    }

    /// Number of operators.
    pub fn operator_count(&self) -> usize {
        self.order.len()
    }

    /// Number of operands.
    pub fn operand_count(&self) -> usize {
        self.operand_names.len()
    }

    /// One more than the largest [`OperatorId::index`] ever given out.
    pub fn operator_slots(&self) -> usize {
        self.operators.len()
    }

    /// One more than the largest [`OperandId::index`] ever given out.
    pub fn operand_slots(&self) -> usize {
        self.operands.len()
    }

    /// Looks an operator up by name.
    pub fn operator_by_name(&self, name: &str) -> Option<OperatorId> {
        self.operator_names.get(name).copied()
    }

    /// Looks an operand up by name.
    pub fn operand_by_name(&self, name: &str) -> Option<OperandId> {
        self.operand_names.get(name).copied()
    }

    /// Operators of one kind in file order, for example all `pnnx.Input`.
    pub fn operators_of<'a>(
        &'a self,
        kind: &'a str,
    ) -> impl Iterator<Item = (OperatorId, &'a Operator)> + 'a {
        self.operators().filter(move |(_, operator)| operator.kind == kind)
    }

    /// Whether every attribute has its data.
    pub fn has_weights(&self) -> bool {
        self.operators().all(|(_, operator)| operator.attrs.values().all(|attr| attr.is_loaded()))
    }

    /// Makes an operator without checking anything, at the end of the order.
    pub(crate) fn push_operator(&mut self, operator: Operator) -> OperatorId {
        let id = OperatorId(self.operators.len());
        self.operator_names.insert(operator.name.clone(), id);
        self.operators.push(Some(operator));
        self.order.push(id);
        id
    }

    /// Makes an operand without checking anything.
    pub(crate) fn push_operand(&mut self, operand: Operand) -> OperandId {
        let id = OperandId(self.operands.len());
        self.operand_names.insert(operand.name.clone(), id);
        self.operands.push(Some(operand));
        id
    }

    pub(crate) fn operator_mut(&mut self, id: OperatorId) -> Option<&mut Operator> {
        self.operators.get_mut(id.0)?.as_mut()
    }

    pub(crate) fn operand_mut(&mut self, id: OperandId) -> Option<&mut Operand> {
        self.operands.get_mut(id.0)?.as_mut()
    }

    fn operand_name(&self, id: OperandId) -> Option<&str> {
        Some(&self.operand(id)?.name)
    }
}

impl Index<OperatorId> for Graph {
    type Output = Operator;

    #[allow(clippy::panic)] // as for slices: the id is the caller's, never the file's
    fn index(&self, id: OperatorId) -> &Operator {
        self.operator(id).unwrap_or_else(|| panic!("operator {} is not in this graph", id.0))
    }
}

impl Index<OperandId> for Graph {
    type Output = Operand;

    #[allow(clippy::panic)] // as for slices: the id is the caller's, never the file's
    fn index(&self, id: OperandId) -> &Operand {
        self.operand(id).unwrap_or_else(|| panic!("operand {} is not in this graph", id.0))
    }
}

impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        let same_operands = |ours: &[OperandId], theirs: &[OperandId]| {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(&a, &b)| {
                    match (self.operand(a), other.operand(b)) {
                        (Some(a), Some(b)) => a.name == b.name && a.ty == b.ty,
                        _ => false,
                    }
                })
        };
        self.operand_count() == other.operand_count()
            && self.operator_count() == other.operator_count()
            && self.operators().zip(other.operators()).all(|((_, a), (_, b))| {
                a.kind == b.kind
                    && a.name == b.name
                    && a.input_names == b.input_names
                    && a.params == b.params
                    && a.attrs == b.attrs
                    && same_operands(&a.inputs, &b.inputs)
                    && same_operands(&a.outputs, &b.outputs)
                    && self.names_of(&a.after).eq(other.names_of(&b.after))
            })
    }
}

/// One line an operator, as in the `.param` file.
impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Graph\n")?;
        self.operators().try_for_each(|(_, operator)| {
            crate::param::write_operator(f, self, operator)?;
            f.write_str("\n")
        })
    }
}

//! Operators that make the same of the same, whatever the lengths are: layers of a decoder.
//!
//! This is value numbering: a value has the number of the first one of which as much is known.
//! Feeds are alike if they have the same dtype and shape for both lengths that a plan is opened
//! with (all open dimensions grow together); what depends on no length, if the same is known of
//! it; outputs, if operators with the same parameters make them of inputs with the same numbers.
//! Numbers stand for what planning knows (dtypes, shapes, values known before the run), not for
//! data.
//!
//! So a binding infers and plans one layer, and the others follow it.

use super::Settings;
use crate::control;
use crate::lists;
use crate::plan::infer::Types;
use crate::plan::net::{Action, Node, ValueId};
use plutino_ops::ValueSpec;
use plutino_tensor::TensorError;
use std::collections::HashMap;
use std::fmt::Write;

/// What is known of the values of a net.
pub(super) struct Known<'a> {
    /// Number of values.
    pub(super) values: usize,
    pub(super) feeds: &'a [ValueId],
    /// As of two lengths.
    pub(super) types: [&'a Types; 2],
    /// For each value whether it depends on lengths.
    pub(super) depends: &'a [bool],
    pub(super) settings: &'a Settings,
}

/// Nodes and values that are alike.
pub(super) struct Twins {
    /// For each node the position of an earlier one that makes the same of the same.
    pub(super) of: Vec<Option<usize>>,
    /// For each value the first of which as much is known.
    numbers: Vec<ValueId>,
}

impl Twins {
    /// The first value of which as much is known as of this one.
    pub(super) fn number(&self, id: ValueId) -> ValueId {
        self.numbers.get(id.0).copied().unwrap_or(id)
    }
}

/// Bytes of a known value up to which it is told from others by what it is, not by its name.
const SMALL: usize = 64;

impl Known<'_> {
    /// Finds twins among nodes, which are in order.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(super) fn twins<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n Node>,
    ) -> Result<Twins, TensorError> {
        let mut numbers: Vec<Option<ValueId>> = lists::filled(self.values, None)?;
        let mut values: HashMap<String, ValueId> = HashMap::new();
        let mut makers: HashMap<String, (usize, &[ValueId])> = HashMap::new();
        let mut twins = Vec::new();
        for (at, node) in nodes.into_iter().enumerate() {
            for &id in &node.inputs {
                if let Some(number @ None) = numbers.get_mut(id.0) {
                    let key = self.spelled(id);
                    *number = Some(key.map_or(id, |key| *values.entry(key).or_insert(id)));
                }
            }
            let number = |id: &ValueId| numbers.get(id.0).copied().flatten().unwrap_or(*id);
            let inputs = node.inputs.iter().map(number);
            let key = self.parameters(node).map(|parameters| {
                let mut key = parameters;
                inputs.for_each(|id| spell(&mut key, format_args!(" {}", id.0)));
                key
            });
            let twin = key.as_ref().and_then(|key| makers.get(key)).copied();
            let twin = twin.filter(|(_, made)| self.are_alike(made, &node.outputs));
            lists::push(&mut twins, twin.map(|(at, _)| at))?;
            for (k, id) in node.outputs.iter().enumerate() {
                let first = twin.and_then(|(_, made)| made.get(k));
                if let Some(number) = numbers.get_mut(id.0) {
                    *number = Some(*first.unwrap_or(id));
                }
            }
            if let (Some(key), None) = (key, twin) {
                makers.insert(key, (at, &node.outputs));
            }
        }
        let numbers = numbers.into_iter().enumerate();
        let numbers = lists::collect(numbers.map(|(id, number)| number.unwrap_or(ValueId(id))))?;
        Ok(Twins { of: twins, numbers })
    }

    fn depends(&self, id: ValueId) -> bool {
        self.depends.get(id.0).copied().unwrap_or(true)
    }

    /// What tells a value that no node of ours makes from others; none where nothing does but its
    /// name.
    fn spelled(&self, id: ValueId) -> Option<String> {
        let mut key = String::new();
        let depends = self.depends(id);
        if depends && !self.feeds.contains(&id) {
            return None;
        }
        for types in &self.types[..if depends { 2 } else { 1 }] {
            spell_value(&mut key, types.get(id)?)?;
        }
        Some(key)
    }

    /// What tells an operator from others, besides its inputs; none where it is like no other.
    fn parameters(&self, node: &Node) -> Option<String> {
        let kind = &node.location.kind;
        let what = match &node.action {
            Action::Operator(operator) if !operator.has_effects() && !control::is_control(kind) => {
                format!("{kind} {operator:?} {:?}", self.settings.of(&node.location))
            }
            Action::Pack => "pack".to_owned(),
            Action::Unpack => "unpack".to_owned(),
            Action::Operator(_) | Action::Constant(_) => return None,
        };
        Some(what)
    }

    /// Whether nothing tells outputs apart, at both lengths.
    fn are_alike(&self, a: &[ValueId], b: &[ValueId]) -> bool {
        let alike = |(a, b): (&ValueId, &ValueId)| {
            let [first, second] = self.types;
            self.depends(*a) == self.depends(*b)
                && super::compare::same(first.get(*a), first.get(*b))
                && super::compare::same(second.get(*a), second.get(*b))
        };
        a.len() == b.len() && a.iter().zip(b).all(alike)
    }
}

fn spell(key: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = key.write_fmt(what); // writing to a string does not fail
}

/// Adds what is known of a value; none for what is told by its name alone.
fn spell_value(key: &mut String, value: &ValueSpec) -> Option<()> {
    match value {
        ValueSpec::Tensor(tensor) => {
            spell(key, format_args!("{:?} {} ", tensor.spec, tensor.python));
            if let Some(known) = &tensor.known {
                let bytes = Some(known.as_bytes()).filter(|bytes| bytes.len() <= SMALL)?;
                spell(key, format_args!("{bytes:?} "));
            }
        }
        ValueSpec::Word(word) => spell(key, format_args!("{word:?} ")),
        ValueSpec::List(members) => {
            spell(key, format_args!("[{} ", members.len()));
            members.iter().try_for_each(|member| spell_value(key, member))?;
        }
        ValueSpec::Dynamic { .. } => return None,
    }
    Some(())
}

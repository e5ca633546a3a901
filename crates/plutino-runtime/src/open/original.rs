//! What the model as it is written makes of a length.
//!
//! Passes see two lengths. What these have in common need not hold for a third: a window over the
//! last rows is full for both, and not for a shorter one; a padding is empty for both. So each
//! binding asks the operators that the file has: whatever was the same for both lengths must be the
//! same again, before anything that passes made of it is relied on.

use super::compare::same;
use super::rebind::evaluate;
use super::twins::Known;
use crate::SessionError;
use crate::lists;
use crate::passes::{PassCx, fold};
use crate::plan::build::Making;
use crate::plan::infer::{self, Types};
use crate::plan::net::{Net, Node, ValueId};
use crate::run::bind::Binding;
use plutino_kernels::Isa;

/// The part of a model that depends on lengths, before all passes.
pub(crate) struct Original {
    /// The nodes that read or make what depends on them, in order, without their [twins](super::twins).
    nodes: Vec<Node>,
    /// As of the last binding.
    types: Types,
    /// For each value whether it depends on the lengths.
    depends: Vec<bool>,
}

impl Original {
    /// Compares what the model makes of two bindings.
    ///
    /// # Errors
    /// Where an operator refuses one of them, or memory is refused.
    pub(crate) fn find(
        making: &Making<'_>,
        a: &Binding,
        b: &Binding,
    ) -> Result<Self, SessionError> {
        let Net { nodes, types, values, feeds, .. } = inferred(making, a)?;
        let other = inferred(making, b)?.types;
        let differs = |at| !same(types.get(ValueId(at)), other.get(ValueId(at)));
        let depends = lists::collect((0..values.len()).map(differs))?;
        let on_length = |id: &ValueId| depends.get(id.0).copied().unwrap_or(false);
        let touched = |node: &Node| node.inputs.iter().chain(&node.outputs).any(on_length);
        let nodes: Vec<Node> = nodes.into_iter().filter(touched).collect();
        let known = Known {
            values: values.len(),
            feeds: &feeds,
            types: [&types, &other],
            depends: &depends,
            settings: &making.resolved.settings,
        };
        // Of those that make the same of the same, one tells of all.
        let twins = known.twins(&nodes)?;
        let alone = nodes.into_iter().zip(&twins.of).filter(|(_, twin)| twin.is_none());
        let nodes = alone.map(|(mut node, _)| {
            node.inputs.iter_mut().for_each(|id| *id = twins.number(*id));
            node
        });
        let nodes = lists::collect(nodes)?;
        Ok(Self { nodes, types, depends })
    }

    /// Whether everything that did not depend on the lengths is for this binding what it was.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(crate) fn agrees(&mut self, binding: &Binding, isa: Isa) -> Result<bool, SessionError> {
        for (id, spec) in &binding.feeds {
            self.types.put(*id, spec.clone().into())?;
        }
        for node in &self.nodes {
            let Some(inputs) = self.types.all(&node.inputs) else { return Ok(false) };
            let Some(outputs) = evaluate(&self.types, node, &inputs, isa) else {
                return Ok(false);
            };
            for (id, now) in node.outputs.iter().zip(outputs) {
                if !self.depends.get(id.0).copied().unwrap_or(false)
                    && !same(self.types.get(*id), Some(&now))
                {
                    return Ok(false);
                }
                self.types.put(*id, now)?;
            }
        }
        Ok(true)
    }
}

/// The net as the file has it, with dtypes, shapes and values as far as they are known before the
/// run: neither of the two passes changes a node.
fn inferred(making: &Making<'_>, binding: &Binding) -> Result<Net, SessionError> {
    let (ids, feeds): (Vec<_>, Vec<_>) = binding.feeds.iter().cloned().unzip();
    let mut net = Net::new(making.model, making.resolved.options.sorting, ids, &binding.wanted)?;
    let mut cx = PassCx::new(making.model, &feeds, &making.resolved.settings);
    infer::infer(&mut net, &mut cx)?;
    fold::fold(&mut net, &mut cx)?;
    Ok(net)
}

//! Layout: convolutions compute in channel blocks (NCHWc), and so does whatever lies between them.
//!
//! Shapes stay PyTorch's; the pass decides in which physical layout each value lies and puts a reorder where a
//! node needs a value in the other one. In execution order, so that one look suffices:
//!
//! 1. a convolution takes and makes blocks ([`LayoutSupport::Blocked`]), a first one takes plain images;
//! 2. what computes in either layout ([`LayoutSupport::Any`]) follows its inputs: the reorder sinks below it;
//! 3. everything else, and every result of the run, is plain;
//! 4. a value is reordered once, however many need it, and never back: its twin is found instead.

use super::PassReport;
use crate::infer::{self, Types};
use crate::net::{Action, Net, Node, Value, ValueId};
use plutino_ops::{LayoutSupport, Location, Operator, Reorder, ValueSpec};
use plutino_tensor::{DType, Layout, TensorSpec};
use std::collections::HashMap;
use std::sync::Arc;

/// Chooses the layout of every value; a block has `block` channels.
pub(super) fn layout(net: &mut Net, types: &mut Types, block: usize, report: &mut PassReport) {
    let mut pass =
        Pass { blocked: Layout::Blocked { block }, twins: HashMap::new(), nodes: Vec::new() };
    for mut node in std::mem::take(&mut net.nodes) {
        let (inputs, outputs) = pass.wanted(&node, types, block);
        let pairs: Vec<_> = node.inputs.iter().copied().zip(inputs).collect();
        for (slot, (value, layout)) in node.inputs.iter_mut().zip(pairs) {
            *slot = pass.in_layout(net, types, value, layout, &node.location, report);
        }
        for &output in &node.outputs {
            set_layout(types, output, outputs);
        }
        pass.nodes.push(node);
    }
    for at in 0..net.fetches.len() {
        let value = net.fetches[at];
        let location =
            Arc::new(Location { name: net.name(value).to_owned(), ..Location::default() });
        net.fetches[at] = pass.in_layout(net, types, value, Layout::Plain, &location, report);
    }
    net.nodes = pass.nodes;
}

struct Pass {
    blocked: Layout,
    /// The same value in the other layout.
    twins: HashMap<ValueId, ValueId>,
    nodes: Vec<Node>,
}

impl Pass {
    /// The layouts in which a node takes each of its inputs, and makes its outputs.
    fn wanted(&self, node: &Node, types: &Types, block: usize) -> (Vec<Layout>, Layout) {
        let plain = || (vec![Layout::Plain; node.inputs.len()], Layout::Plain);
        let (Some(operator), Some(inputs), Some(outputs)) =
            (node.operator(), types.all(&node.inputs), types.all(&node.outputs))
        else {
            return plain();
        };
        // A constant of the plan is as it was computed; nothing runs.
        let constant = outputs.iter().all(infer::known);
        if constant {
            return plain();
        }
        let in_blocks = || {
            inputs.iter().map(|v| if blockable(v).is_some() { self.blocked } else { Layout::Plain })
        };
        let support = operator.layouts(&inputs, block);
        if support == LayoutSupport::BlockedToPlain {
            return (in_blocks().collect(), Layout::Plain);
        }
        if !outputs.iter().all(|v| blockable(v).is_some()) {
            return plain();
        }
        match support {
            LayoutSupport::Plain | LayoutSupport::BlockedToPlain => plain(),
            LayoutSupport::Any => {
                let any = inputs.iter().filter_map(blockable).any(|t| t.layout == self.blocked);
                if any { (in_blocks().collect(), self.blocked) } else { plain() }
            }
            LayoutSupport::Blocked => (in_blocks().collect(), self.blocked),
            LayoutSupport::PlainToBlocked => {
                let mut inputs: Vec<_> = in_blocks().collect();
                inputs.iter_mut().take(1).for_each(|first| *first = Layout::Plain);
                (inputs, self.blocked)
            }
        }
    }

    /// The value, or its twin, in this layout; makes the reorder where there is none yet.
    fn in_layout(
        &mut self,
        net: &mut Net,
        types: &mut Types,
        value: ValueId,
        layout: Layout,
        reader: &Location,
        report: &mut PassReport,
    ) -> ValueId {
        let Some(spec) = types.get(value).and_then(blockable) else { return value };
        if spec.layout == layout {
            return value;
        }
        if let Some(&twin) = self.twins.get(&value) {
            return twin;
        }
        let made = TensorSpec { layout, ..spec.clone() };
        let twin = ValueId(net.values.len());
        let Value { name, recorded } = net.values[value.0].clone();
        report.did(&reader.name, format!("reads {name} reordered to {layout}"));
        net.values.push(Value { name: name.clone(), recorded });
        types.put(twin, made.into());
        // Of the producer's place in the file, for messages and profiles.
        let producer = self.nodes.iter().rev().find(|n| n.outputs.contains(&value));
        let location = producer.map_or_else(Location::default, |n| (*n.location).clone());
        let kind = "plutino.Reorder".to_owned();
        let location = Arc::new(Location { kind, name, ..location });
        self.nodes.push(Node {
            source: None,
            location,
            action: Action::Fused(Box::new(Reorder { to: layout }) as Box<dyn Operator>),
            inputs: vec![value],
            outputs: vec![twin],
            absorbed: Vec::new(),
        });
        self.twins.insert(value, twin);
        self.twins.insert(twin, value);
        twin
    }
}

/// The spec of a value that may lie in blocks: an f32 tensor of rank 4.
fn blockable(value: &ValueSpec) -> Option<&TensorSpec> {
    match value {
        ValueSpec::Tensor(t)
            if t.spec.dtype == DType::F32 && t.spec.shape.rank() == 4 && !t.python =>
        {
            Some(&t.spec)
        }
        _ => None,
    }
}

fn set_layout(types: &mut Types, id: ValueId, layout: Layout) {
    let spec = types.get(id).and_then(ValueSpec::as_tensor).map(|t| &t.spec);
    if let Some(spec) = spec.filter(|s| s.layout != layout).cloned() {
        types.put(id, spec.with_layout(layout).into());
    }
}

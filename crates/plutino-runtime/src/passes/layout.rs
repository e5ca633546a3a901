//! Layout: convolutions compute in channel blocks (NCHWc), and so does whatever lies between them.
//!
//! Shapes stay PyTorch's; the pass decides in which physical layout each value lies and puts a
//! reorder where a node needs a value in the other one. In execution order, so that one look
//! suffices:
//!
//! 1. a convolution takes and makes blocks ([`LayoutSupport::Blocked`]), a first one takes plain
//!    images;
//! 2. what computes in either layout ([`LayoutSupport::Any`]) follows its inputs: the reorder sinks
//!    below it;
//! 3. everything else, and every result of the run, is plain; means of pixels and the head of a
//!    detector read blocks;
//! 4. a value is reordered once, however many need it, and never back: its twin is found instead;
//! 5. a permutation between channels first and channels last at the edge of blocks is a reorder
//!    itself.

use super::PassCx;
use crate::SessionError;
use crate::infer::{self, Types};
use crate::net::{Action, Net, Node, Value, ValueId};
use plutino_ops::{LayoutCx, LayoutSupport, Location, Reorder, Role, ValueSpec};
use plutino_tensor::{DType, Layout, TensorSpec};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Chooses the layout of every value; a block has as many channels as a vector has lanes.
pub(super) fn layout(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let mut types = std::mem::take(&mut net.types);
    let done = super::searching(|| choose(net, &mut types, cx));
    net.types = types;
    done
}

fn choose(net: &mut Net, types: &mut Types, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let block = cx.setting.isa.lanes();
    let mut pass = Pass {
        blocked: Layout::Blocked { block },
        twins: HashMap::new(),
        makers: HashMap::new(),
        nodes: Vec::new(),
    };
    let from_channels_last = follow_channels_last(net, types, cx);
    for (at, mut node) in std::mem::take(&mut net.nodes).into_iter().enumerate() {
        cx.limits.check_at(at)?;
        let allowed = cx.allows(&node.location.name);
        let turn = allowed && from_channels_last.contains(&at);
        if let Some(reorder) = pass.turn(&node, types, block, turn).filter(|_| allowed) {
            cx.did(&node.location.name, format!("reorders to {} on the way", reorder.to));
            set_layout(types, node.outputs[0], reorder.to);
            node.action = Action::Operator(Arc::new(reorder));
            pass.push(node);
            continue;
        }
        let (inputs, outputs) = match allowed {
            true => pass.wanted(&node, types, cx),
            false => plain(&node),
        };
        let pairs: Vec<_> = node.inputs.iter().copied().zip(inputs).collect();
        for (slot, (value, layout)) in node.inputs.iter_mut().zip(pairs) {
            *slot = pass.in_layout(net, types, value, layout, &node.location, cx);
        }
        for &output in &node.outputs {
            set_layout(types, output, outputs);
        }
        pass.push(node);
    }
    for at in 0..net.fetches.len() {
        let value = net.fetches[at];
        let location =
            Arc::new(Location { name: net.name(value).to_owned(), ..Location::default() });
        net.fetches[at] = pass.in_layout(net, types, value, Layout::Plain, &location, cx);
    }
    net.nodes = pass.nodes;
    Ok(())
}

struct Pass {
    blocked: Layout,
    /// The same value in the other layout.
    twins: HashMap<ValueId, ValueId>,
    /// The node that makes a value.
    makers: HashMap<ValueId, usize>,
    nodes: Vec<Node>,
}

/// The nodes that permute channels last to channels first, whole blocks of them, for readers that
/// all compute in blocks.
fn follow_channels_last(net: &Net, types: &Types, cx: &PassCx<'_>) -> HashSet<usize> {
    let in_blocks = |reader: usize| {
        let node = &net.nodes[reader];
        let support = node.operator().zip(types.all(&node.inputs));
        support.is_some_and(|(operator, inputs)| {
            let support = operator.layouts(&asked(&inputs, cx));
            matches!(support, LayoutSupport::Any | LayoutSupport::Blocked)
        })
    };
    let fits = |node: &Node| {
        let [output] = node.outputs[..] else { return false };
        let spec = types.get(output).and_then(blockable);
        permutes(node, types, Reorder::FROM_CHANNELS_LAST)
            && spec.is_some_and(|spec| spec.shape[1].is_multiple_of(cx.setting.isa.lanes()))
            && !types.is_known(output) // a constant of the plan: nothing runs
            && !net.is_fetched(output)
            && net.readers(output).all(in_blocks)
    };
    (0..net.nodes.len()).filter(|&at| fits(&net.nodes[at])).collect()
}

/// What an operator is asked for its layouts with.
fn asked<'a>(inputs: &'a [ValueSpec], cx: &PassCx<'_>) -> LayoutCx<'a> {
    LayoutCx { inputs, setting: cx.setting }
}

/// Whether a node does nothing but put the dimensions in this order.
fn permutes(node: &Node, types: &Types, order: [usize; 4]) -> bool {
    let role = node.operator().zip(types.all(&node.inputs)).and_then(|(op, x)| op.role(&x));
    matches!(role, Some(Role::Permute(0, own)) if own[..] == order)
        && matches!((&node.inputs[..], &node.outputs[..]), ([_], [_]))
}

impl Pass {
    fn push(&mut self, node: Node) {
        self.makers.extend(node.outputs.iter().map(|&output| (output, self.nodes.len())));
        self.nodes.push(node);
    }

    /// What a permutation becomes that can reorder on the way.
    fn turn(&self, node: &Node, types: &Types, block: usize, to_blocks: bool) -> Option<Reorder> {
        let &[input] = &node.inputs[..] else { return None };
        let spec = types.get(input).and_then(blockable)?;
        if to_blocks && spec.layout == Layout::Plain {
            return Some(Reorder { to: self.blocked, channels_last: true });
        }
        (spec.layout == self.blocked
            && spec.shape[1].is_multiple_of(block)
            && permutes(node, types, Reorder::TO_CHANNELS_LAST))
        .then_some(Reorder { to: Layout::Plain, channels_last: true })
    }

    /// The layouts in which a node takes each of its inputs, and makes its outputs.
    fn wanted(&self, node: &Node, types: &Types, cx: &PassCx<'_>) -> (Vec<Layout>, Layout) {
        let plain = || plain(node);
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
        let support = operator.layouts(&asked(&inputs, cx));
        match support {
            LayoutSupport::Plain => plain(),
            LayoutSupport::BlockedToPlain => (in_blocks().collect(), Layout::Plain),
            LayoutSupport::AnyToPlain => {
                let own = |v: &ValueSpec| blockable(v).map_or(Layout::Plain, |t| t.layout);
                (inputs.iter().map(own).collect(), Layout::Plain)
            }
            _ if !outputs.iter().all(|v| blockable(v).is_some()) => plain(),
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
        cx: &mut PassCx<'_>,
    ) -> ValueId {
        let Some(spec) = types.get(value).and_then(blockable) else { return value };
        if spec.layout == layout {
            return value;
        }
        if let Some(&twin) = self.twins.get(&value) {
            return twin;
        }
        let made = TensorSpec { layout, ..spec.clone() };
        let Value { name, recorded } = net.values[value.0].clone();
        cx.did(&reader.name, format!("reads {name} reordered to {layout}"));
        let twin = net.add_value(Value { name: name.clone(), recorded });
        types.put(twin, made.into());
        // Of the producer's place in the file, for messages and profiles.
        let producer = self.makers.get(&value).and_then(|&at| self.nodes.get(at));
        let location = producer.map_or_else(Location::default, |n| (*n.location).clone());
        let kind = "plutino.Reorder".to_owned();
        let location = Arc::new(Location { kind, name, ..location });
        self.push(Node {
            source: None,
            location,
            action: Action::Operator(Arc::new(Reorder { to: layout, channels_last: false })),
            inputs: vec![value],
            outputs: vec![twin],
            absorbed: Vec::new(),
        });
        self.twins.insert(value, twin);
        self.twins.insert(twin, value);
        twin
    }
}

/// All inputs and the outputs of a node plain.
fn plain(node: &Node) -> (Vec<Layout>, Layout) {
    (vec![Layout::Plain; node.inputs.len()], Layout::Plain)
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

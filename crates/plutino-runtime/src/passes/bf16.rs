//! Bf16: what convolutions of bf16 hand on lies as such, in half the memory.
//!
//! Shapes and dtypes stay PyTorch's: it is a layout, of values that lie in channel blocks. A value
//! gets it if whoever makes it writes bf16, and all who read it take it: convolutions whose
//! precision allows it, which would round what they read anyway, sums that they add
//! ([`Operator::bf16`](plutino_ops::Operator::bf16)), and what moves numbers between such without
//! looking. A single reader that computes with f32 keeps a value f32, and so does whoever fetches
//! it.
//!
//! Comes last: the passes before it ask convolutions about f32.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::halt;
use crate::net::{Net, ValueId};
use plutino_ops::{Bf16Support, LayoutCx};
use plutino_tensor::Layout;
use std::collections::HashSet;

/// Chooses the values.
pub(super) fn bf16(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let block = cx.settings.base.isa.lanes();
    let chosen = super::searching(|| choose(net, cx, Layout::Blocked { block }))?;
    let layout = Layout::BlockedBf16 { block: 2 * block };
    for at in 0..net.nodes.len() {
        let Some(output) = net.only_output(at).filter(|output| chosen.contains(output)) else {
            continue;
        };
        let note = format!("makes {layout}");
        let name = net.nodes[at].location.name.clone();
        let patch = Patch::before(at, Vec::new(), Vec::new()).lying(vec![(output, layout)]);
        if !cx.apply(net, patch.note(&name, note))? {
            // Others count on it.
            return Err(SessionError::internal("a layout was refused"));
        }
    }
    Ok(())
}

/// The values in blocks that become bf16.
fn choose(net: &Net, cx: &PassCx<'_>, blocked: Layout) -> Result<HashSet<ValueId>, SessionError> {
    let mut supports = Vec::with_capacity(net.nodes.len());
    for at in 0..net.nodes.len() {
        halt::go_on_at(at)?;
        supports.push(support(net, cx, at, blocked));
    }
    let lies = |value: &ValueId| net.computed(*value).is_some_and(|spec| spec.layout == blocked);
    let made = (0..net.nodes.len()).filter(|&at| supports[at].output);
    let made = made.filter_map(|at| net.only_output(at));
    let mut chosen: HashSet<ValueId> =
        made.filter(|value| lies(value) && !net.is_fetched(*value)).collect();
    for (node, support) in net.nodes.iter().zip(&supports) {
        for (slot, value) in node.inputs.iter().enumerate() {
            if !support.takes(slot) {
                chosen.remove(value);
            }
        }
    }
    // Of those that go together all stay, or none: one that goes may take others with it.
    let together = |at: &usize| supports[*at].together;
    let mut left: Vec<usize> = (0..net.nodes.len()).filter(together).collect();
    while let Some(at) = left.pop() {
        let node = &net.nodes[at];
        let all = || node.inputs.iter().chain(&node.outputs).filter(|value| lies(value));
        if all().all(|value| chosen.contains(value)) {
            continue;
        }
        for value in all() {
            if chosen.remove(value) {
                let beside = net.producer(*value).into_iter().chain(net.readers(*value));
                left.extend(beside.filter(together));
            }
        }
    }
    Ok(chosen)
}

/// What a node takes and makes as bf16.
fn support(net: &Net, cx: &PassCx<'_>, at: usize, blocked: Layout) -> Bf16Support {
    let node = &net.nodes[at];
    let in_blocks =
        |&value: &ValueId| net.computed(value).is_some_and(|spec| spec.layout == blocked);
    let any = node.inputs.iter().chain(&node.outputs).any(in_blocks);
    let asked = node.operator().filter(|_| any && cx.allows(&node.location.name));
    let Some((operator, inputs)) = asked.zip(net.types.all(&node.inputs)) else {
        return Bf16Support::default();
    };
    let setting = cx.settings.of(&node.location);
    operator.bf16(&LayoutCx { inputs: &inputs, setting })
}

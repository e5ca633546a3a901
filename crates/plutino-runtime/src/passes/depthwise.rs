//! Depthwise: a depthwise convolution is computed some rows at a time together with the 1x1
//! convolutions before and after it.
//!
//! Nobody else reads what lies between them, MobileNets' largest tensors. Whether convolutions can
//! be computed so, and better so, is theirs to say ([`FusedDepthwise::pays`]); it takes channel
//! blocks, so this comes after the layout pass.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::net::{Net, ValueId};
use plutino_ops::{Conv, FusedDepthwise, Operator};
use std::sync::Arc;

/// Joins convolutions into one node.
pub(super) fn depthwise(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, cx, at| find(net, cx, at).map(Ok))
}

/// The convolution at `at` together with those beside it, in the place of the last one.
fn find(net: &Net, cx: &PassCx<'_>, at: usize) -> Option<Patch> {
    convolution(net, at).filter(|conv| conv.has_groups())?;
    let before = net.nodes[at].inputs.first().and_then(|&x| net.maker_for(x, at));
    let after = net.only_output(at).and_then(|y| net.only_reader(y));
    let all = [before, Some(at), after].map(|at| at.filter(|&at| convolution(net, at).is_some()));
    // As many as can be joined.
    let [before, at, after] = all;
    let tries = [[before, at, after], [before, at, None], [None, at, after]];
    tries.into_iter().find_map(|nodes| join(net, cx, nodes))
}

/// These nodes as one: a depthwise convolution, and one before or after it or both.
fn join(net: &Net, cx: &PassCx<'_>, [before, at, after]: [Option<usize>; 3]) -> Option<Patch> {
    let nodes: Vec<usize> = [before, at, after].into_iter().flatten().collect();
    let (&into, others) = nodes.split_last().filter(|(_, others)| !others.is_empty())?;
    let setting = cx.settings.of(&net.nodes[into].location);
    let output = net.only_output(into)?;
    let layout = |value| net.computed(value).map(|spec| spec.layout);
    for pair in nodes.windows(2) {
        let &[from, to] = pair else { return None };
        let between = net.only_output(from)?;
        let alone = net.nodes[from].inputs.len() == 1 && net.only_reader(between) == Some(to);
        let first = net.nodes[to].inputs.first() == Some(&between);
        if !alone || !first || layout(between) != layout(output) {
            return None;
        }
        if cx.settings.of(&net.nodes[from].location) != setting {
            return None; // as in `rows`
        }
    }
    let conv = |at: Option<usize>| at.and_then(|at| convolution(net, at)).cloned();
    let fused = FusedDepthwise { before: conv(before), depthwise: conv(at)?, after: conv(after) };
    let first = &net.nodes[*others.first()?].inputs;
    let more = net.nodes[into].inputs.iter().skip(1);
    let inputs: Vec<ValueId> = first.iter().chain(more).copied().collect();
    if !fused.pays(&net.types.all(&inputs)?, setting) {
        return None;
    }
    let name = &net.nodes[into].location.name;
    let fused: Arc<dyn Operator> = Arc::new(fused);
    let mut patch =
        Patch::replace(into, fused, inputs, vec![output]).without(others.iter().copied());
    for &other in others {
        let note = format!("computed some rows at a time, with {name}");
        patch = patch.note(&net.nodes[other].location.name, note);
    }
    Some(patch)
}

/// The convolution that a node is.
fn convolution(net: &Net, at: usize) -> Option<&Conv> {
    net.nodes.get(at)?.operator()?.convolution()
}

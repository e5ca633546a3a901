//! Depthwise: a depthwise convolution is computed some rows at a time together with the 1x1
//! convolutions before and after it.
//!
//! Nobody else reads what lies between them, MobileNets' largest tensors. Whether convolutions can
//! be computed so, and better so, is theirs to say ([`FusedDepthwise::pays`]); it takes channel
//! blocks, so this comes after the layout pass.
//!
//! What is computed so reads and makes f32. At `medium`, where tensors between operators may be
//! bf16 (`bf16.rs`), threads would decide what is rounded, since it takes enough work for all of
//! them: so what one thread would compute so keeps its tensors f32 however it is computed.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::halt;
use crate::plan::net::{Net, Node, ValueId};
use plutino_ops::{Conv, FusedDepthwise, Operator, Precision};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Joins convolutions into one node.
pub(super) fn depthwise(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let rounds = |node: &Node| cx.settings.of(&node.location).precision == Precision::Medium;
    if net.nodes.iter().any(rounds) {
        keep_f32(net, cx)?;
    }
    super::apply_at_each(net, cx, |net, cx, at| find(net, cx, at).map(Ok))
}

/// Keeps the tensors f32 of the convolutions that one thread would join.
fn keep_f32(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let mut kept = BTreeSet::new();
    for at in 0..net.nodes.len() {
        halt::go_on_at(at)?;
        let alone = |nodes| Some(join(net, cx, nodes, true)?.0);
        kept.extend(tries(net, at).into_iter().flatten().find_map(alone).unwrap_or_default());
    }
    for at in kept {
        let Some(conv) = convolution(net, at) else { continue };
        let conv: Arc<dyn Operator> = Arc::new(conv.keeping_f32());
        let node = &net.nodes[at];
        let patch = Patch::replace(at, conv, node.inputs.clone(), node.outputs.clone());
        cx.apply(net, patch)?;
    }
    Ok(())
}

/// The convolution at `at` together with those beside it, in the place of the last one.
fn find(net: &Net, cx: &PassCx<'_>, at: usize) -> Option<Patch> {
    let mut tries = tries(net, at)?.into_iter();
    tries.find_map(|nodes| Some(join(net, cx, nodes, false)?.1))
}

/// What a depthwise convolution may be joined with: as many as can be.
fn tries(net: &Net, at: usize) -> Option<[[Option<usize>; 3]; 3]> {
    convolution(net, at).filter(|conv| conv.has_groups())?;
    let before = net.nodes[at].inputs.first().and_then(|&x| net.maker_for(x, at));
    let after = net.only_output(at).and_then(|y| net.only_reader(y));
    let all = [before, Some(at), after].map(|at| at.filter(|&at| convolution(net, at).is_some()));
    let [before, at, after] = all;
    Some([[before, at, after], [before, at, None], [None, at, after]])
}

/// These nodes as one: a depthwise convolution, and one before or after it or both. `alone` asks
/// for a single thread.
fn join(
    net: &Net,
    cx: &PassCx<'_>,
    [before, at, after]: [Option<usize>; 3],
    alone: bool,
) -> Option<(Vec<usize>, Patch)> {
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
    let threads = if alone { 1 } else { setting.threads };
    if !fused.pays(&net.types.all(&inputs)?, setting.on_threads(threads)) {
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
    Some((nodes, patch))
}

/// The convolution that a node is.
fn convolution(net: &Net, at: usize) -> Option<&Conv> {
    net.nodes.get(at)?.operator()?.convolution()
}

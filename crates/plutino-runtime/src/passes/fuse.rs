//! Fusion: an operator takes over the activation or the sum that follows it, so that its result is
//! written once.
//!
//! `conv -> add(., shortcut) -> relu` becomes one convolution with the shortcut as a last input.
//! Which operators take over what is theirs to say
//! ([`Operator::absorb`](plutino_ops::Operator::absorb)); here is only what fits: shapes stay, and
//! the shortcut is there in time.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::{Net, ValueId};
use plutino_ops::{Neighbour, Operator, Role, ValueSpec};

/// Fuses what follows into what computes, in execution order, so that chains fuse link by link.
pub(super) fn fuse(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, _, at| find(net, at))
}

/// What the node at `at` could be absorbed by, or why it is not, though an operator would.
fn find(net: &Net, at: usize) -> Option<Result<Patch, String>> {
    let node = &net.nodes[at];
    let output = net.only_output(at)?;
    let (neighbour, value, other) = match (net.role(at)?, &node.inputs[..]) {
        (Role::Activation(function), &[x]) => (Neighbour::Activation(function), x, None),
        (Role::Sum(terms), [_, _]) => {
            let &[(a, 1.0), (b, 1.0)] = &terms[..] else { return None };
            let (a, b) = (*node.inputs.get(a)?, *node.inputs.get(b)?);
            let (value, other) = summands(net, a, b)?;
            (Neighbour::Add, value, Some(other))
        }
        _ => return None,
    };
    let into = net.producer(value)?;
    let (spec, result) = (net.computed(value)?, net.computed(output)?);
    let producer = &net.nodes[into];
    if producer.outputs[..] != [value] {
        return None;
    }
    let absorbed: Box<dyn Operator> =
        producer.operator()?.absorb(&neighbour, &net.types.all(&producer.inputs)?)?;
    if spec != result {
        let producer = &producer.location.name;
        return Some(Err(format!("{producer} makes {spec}, the result is {result}")));
    }
    if let Some(other) = other {
        match net.types.get(other) {
            Some(ValueSpec::Tensor(t)) if t.spec == *spec && !t.python => {}
            Some(t) => return Some(Err(format!("the summands are {spec} and {t}"))),
            None => return Some(Err("the other summand is known only while running".into())),
        }
    }
    let inputs = producer.inputs.iter().copied().chain(other).collect();
    let note = format!("absorbed by {}", producer.location.name);
    let patch = Patch::replace(into, absorbed, inputs, vec![output]).without([at]);
    Some(Ok(patch.note(&node.location.name, note)))
}

/// Of two summands, the one that is computed last takes over: the other is there by then.
fn summands(net: &Net, a: ValueId, b: ValueId) -> Option<(ValueId, ValueId)> {
    let order = |value| net.producer(value).map_or(0, |at| at + 1);
    match a == b {
        true => None,
        false if order(b) > order(a) => Some((b, a)),
        false => Some((a, b)),
    }
}

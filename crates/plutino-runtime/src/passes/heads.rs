//! Grouped queries: attention reads a head of keys and values for all heads of queries that share
//! it, instead of a tensor in which each is there as often as it is read.
//!
//! `repeat_interleave(k, n, 1)`, and what spells it out (`unsqueeze`, `expand`, `reshape`), are
//! left out where whoever reads the result takes that over ([`Neighbour::Repeated`]).

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::halt;
use crate::plan::net::{Net, ValueId};
use plutino_ops::{Neighbour, Role};

/// Lets attention take over repetitions of its keys' and values' heads.
pub(super) fn heads(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    for at in 0..net.nodes.len() {
        halt::go_on_at(at)?;
        let inputs = net.nodes[at].inputs.len();
        for input in 0..inputs.min(MOST_INPUTS) {
            if let Some(patch) = super::searching(|| find(net, at, input)) {
                cx.apply(net, patch)?;
            }
        }
    }
    Ok(())
}

/// Inputs that are looked at: more than attention has.
const MOST_INPUTS: usize = 4;

/// The node at `at`, with an input as it was before its heads were repeated.
fn find(net: &Net, at: usize, input: usize) -> Option<Patch> {
    let node = net.nodes.get(at)?;
    let value = *node.inputs.get(input)?;
    let (before, times) = repeated(net, value)?;
    let neighbour = Neighbour::Repeated(input, times);
    let operator = node.operator()?.absorb(&neighbour, &net.types.all(&node.inputs)?)?;
    let mut inputs = node.inputs.clone();
    *inputs.get_mut(input)? = before;
    let patch = Patch::replace(at, operator, inputs, node.outputs.clone());
    let what = format!("reads each head of {} {times} times", net.name(before));
    Some(patch.note(&node.location.name, what))
}

/// What a value was before each index of the dimension before the last two was repeated, and how
/// often it is.
fn repeated(net: &Net, value: ValueId) -> Option<(ValueId, usize)> {
    let shape = &net.computed(value)?.shape;
    let dim = shape.rank().checked_sub(3)?;
    let role = |value: ValueId| {
        let at = net.producer(value)?;
        Some((net.role(at)?, at))
    };
    let (before, times) = match role(value)? {
        (Role::Repeat(input, at_dim, times), at) if at_dim == dim => {
            (*net.nodes[at].inputs.get(input)?, times)
        }
        // (.., KV, L, D) as (.., KV, 1, L, D), repeated there, and as one dimension again.
        (Role::Reshape(input), at) => {
            let wide = *net.nodes[at].inputs.get(input)?;
            let (Role::Repeat(input, at_dim, times), at) = role(wide)? else { return None };
            let narrow = *net.nodes[at].inputs.get(input)?;
            let (Role::Reshape(input), at) = role(narrow)? else { return None };
            let before = *net.nodes[at].inputs.get(input)?;
            let mut unsqueezed = net.computed(before)?.shape.clone();
            if unsqueezed.rank() != shape.rank() || at_dim != dim + 1 {
                return None;
            }
            unsqueezed.insert(dim + 1, 1);
            (net.computed(narrow)?.shape == unsqueezed).then_some((before, times))?
        }
        _ => return None,
    };
    let mut repeated = net.computed(before)?.shape.clone();
    *repeated.get_mut(dim)? = repeated[dim].checked_mul(times)?;
    (repeated == *shape).then_some((before, times))
}

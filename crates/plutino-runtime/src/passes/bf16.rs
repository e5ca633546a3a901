//! Bf16: what operators of bf16 hand on lies as such, in half the memory.
//!
//! Shapes and dtypes stay PyTorch's: it is a layout, of values that lie in channel blocks and of
//! plain ones. A value gets it if whoever makes it writes bf16, and all who read it take it:
//! convolutions and linear layers whose precision allows it, which would round what they read
//! anyway, sums that convolutions add ([`Operator::bf16`](plutino_ops::Operator::bf16)), and what
//! moves numbers between such without looking. A single reader that computes with f32 keeps a value
//! f32, and so does whoever fetches it.
//!
//! Comes after the passes that ask convolutions about f32.

use super::PassCx;
use super::patch::{Patch, may_be_bf16};
use crate::SessionError;
use crate::halt;
use crate::plan::net::{Net, ValueId};
use plutino_ops::{Bf16Support, LayoutCx, Precision, ValueSpec};
use plutino_tensor::{DType, Layout};
use std::collections::HashMap;

/// The one at which operators round to bf16.
const PRECISION: Precision = Precision::Medium;

/// Chooses the values.
pub(super) fn bf16(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    if !net.nodes.iter().any(|node| cx.settings.of(&node.location).precision == PRECISION) {
        return Ok(());
    }
    let kinds = Kinds { block: cx.settings.base.isa.lanes() };
    let chosen = super::searching(|| choose(net, cx, kinds))?;
    for at in 0..net.nodes.len() {
        let output = net.only_output(at);
        let Some((output, layout)) = output.and_then(|v| Some((v, *chosen.get(&v)?))) else {
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

/// The layouts that have a counterpart of bf16.
#[derive(Clone, Copy)]
struct Kinds {
    /// Channels of a block of f32.
    block: usize,
}

impl Kinds {
    /// That of a value; none where it has none.
    fn counterpart(self, net: &Net, value: ValueId) -> Option<Layout> {
        let spec = net.computed(value).filter(|spec| spec.dtype == DType::F32)?;
        match spec.layout {
            Layout::Blocked { block } if block == self.block => {
                Some(Layout::BlockedBf16 { block: 2 * block })
            }
            Layout::Plain if may_be_bf16(&spec.shape) => Some(Layout::PlainBf16),
            _ => None,
        }
    }
}

/// The values that become bf16, and their layouts then.
fn choose(
    net: &Net,
    cx: &PassCx<'_>,
    kinds: Kinds,
) -> Result<HashMap<ValueId, Layout>, SessionError> {
    let mut supports = Vec::with_capacity(net.nodes.len());
    for at in 0..net.nodes.len() {
        halt::go_on_at(at)?;
        supports.push(support(net, cx, at, kinds));
    }
    // The counterpart of a value that is one of those that an operator's answer is about.
    let lies = |support: &Bf16Support, value: &ValueId| {
        let counterpart = kinds.counterpart(net, *value);
        counterpart.filter(|layout| (*layout == Layout::PlainBf16) == support.plain)
    };
    let made = (0..net.nodes.len()).filter(|&at| supports[at].output);
    let made = made.filter_map(|at| Some((net.only_output(at)?, &supports[at])));
    let made = made.filter(|(value, _)| !net.is_fetched(*value));
    let mut chosen: HashMap<ValueId, Layout> =
        made.filter_map(|(value, support)| Some((value, lies(support, &value)?))).collect();
    for (node, support) in net.nodes.iter().zip(&supports) {
        for (slot, value) in node.inputs.iter().enumerate() {
            if !support.takes(slot) || lies(support, value).is_none() {
                chosen.remove(value);
            }
        }
    }
    // Of those that go together all stay, or none: one that goes may take others with it.
    let together = |at: &usize| supports[*at].together;
    let mut left: Vec<usize> = (0..net.nodes.len()).filter(together).collect();
    while let Some(at) = left.pop() {
        let (node, support) = (&net.nodes[at], &supports[at]);
        let all = || {
            let values = node.inputs.iter().chain(&node.outputs);
            values.filter(|value| lies(support, value).is_some())
        };
        if all().all(|value| chosen.contains_key(value)) {
            continue;
        }
        for value in all() {
            if chosen.remove(value).is_some() {
                let beside = net.producer(*value).into_iter().chain(net.readers(*value));
                left.extend(beside.filter(together));
            }
        }
    }
    Ok(chosen)
}

/// What a node takes and makes as bf16.
fn support(net: &Net, cx: &PassCx<'_>, at: usize, kinds: Kinds) -> Bf16Support {
    let node = &net.nodes[at];
    let setting = cx.settings.of(&node.location);
    let has = |&value: &ValueId| kinds.counterpart(net, value).is_some();
    let asked = node.operator().filter(|_| cx.allows(&node.location.name));
    let asked = asked.filter(|_| node.inputs.iter().chain(&node.outputs).any(has));
    let Some((operator, inputs)) = asked.zip(net.types.all(&node.inputs)) else {
        return Bf16Support::default();
    };
    let support = operator.bf16(&LayoutCx { inputs: &inputs, setting });
    // What moves numbers moves those of all its tensors, or none: one that cannot be bf16, such as
    // a constant, keeps the others f32.
    let of_f32 = |value: &ValueId| {
        let tensor = net.types.get(*value).and_then(ValueSpec::as_tensor);
        tensor.is_none_or(|t| t.dtype() == DType::F32)
    };
    let mut all = node.inputs.iter().chain(&node.outputs).filter(|value| of_f32(value));
    let allowed = match support.together {
        true => !support.plain || all.all(has),
        false => setting.precision == PRECISION,
    };
    if allowed { support } else { Bf16Support::default() }
}

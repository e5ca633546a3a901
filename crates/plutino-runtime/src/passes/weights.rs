//! Weights: what takes weights as inputs takes constants of the model as its own.
//!
//! Layers that share weights are written as functions of values that several of them read, since a
//! weight of a module has one owner. Packed forms are shared by name, so that a constant is packed
//! once for all that read it, and who has its weights while planning may compute in any layout and
//! take over what follows. Comes after feeds are known: a constant that is fed is no constant.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::{Action, Net, ValueId};
use plutino_ops::{Neighbour, Operator};
use std::sync::Arc;

/// Lets operators take constants over.
pub(super) fn weights(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, _, at| find(net, at).map(Ok))
}

/// The operator at `at` with all constants that it takes.
fn find(net: &Net, at: usize) -> Option<Patch> {
    let node = &net.nodes[at];
    let (mut inputs, mut with): (Vec<ValueId>, Option<Arc<dyn Operator>>) =
        (node.inputs.clone(), None);
    // The last first: numbers of those before stay.
    for slot in (0..inputs.len()).rev() {
        let producer = net.producer(inputs[slot]).and_then(|producer| net.nodes.get(producer));
        let Some(Action::Constant(weight)) = producer.map(|producer| &producer.action) else {
            continue;
        };
        let operator = with.as_deref().or(node.operator())?;
        let neighbour = Neighbour::Stored(slot, weight.clone());
        if let Some(taken) = operator.absorb(&neighbour, &net.types.all(&inputs)?) {
            with = Some(taken.into());
            inputs.remove(slot);
        }
    }
    let patch = Patch::replace(at, with?, inputs, node.outputs.clone());
    let name = &node.location.name;
    Some(patch.note(name, "takes constants as its weights".to_owned()))
}

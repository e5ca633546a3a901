//! Depth multipliers: a depthwise convolution that makes several channels of each reads an image
//! whose channels are repeated, and is one like others then.
//!
//! Which convolutions gain by it is theirs to say
//! ([`Conv::by_repeated_channels`](plutino_ops::Conv::by_repeated_channels)).

use super::PassCx;
use super::patch::{NewNode, Patch};
use crate::SessionError;
use crate::halt;
use crate::plan::net::{Action, Net, Value};
use plutino_ops::{ChannelMap, Conv, Location};
use std::sync::Arc;

/// Repeats channels in front of these convolutions.
pub(super) fn multiplier(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    for at in 0..net.nodes.len() {
        halt::go_on_at(at)?;
        let Some((map, conv)) = super::searching(|| find(net, at)) else { continue };
        let node = &net.nodes[at];
        let name = format!("{}/repeated", node.location.name);
        let kind = "plutino.ChannelMap".to_owned();
        let location = Location { kind, name: name.clone(), ..(*node.location).clone() };
        let (operator, outputs) = (node.location.name.clone(), node.outputs.clone());
        let mut inputs = node.inputs.clone();
        let Some(image) = inputs.first_mut() else { continue };
        let repeated = net.add_value(Value { name: name.into(), ..Value::default() })?;
        let map = NewNode {
            location: Some(Arc::new(location)),
            action: Action::Operator(Arc::new(map)),
            inputs: vec![std::mem::replace(image, repeated)],
            outputs: vec![repeated],
        };
        let action = Action::Operator(Arc::new(conv));
        let conv = NewNode { location: None, action, inputs, outputs };
        let patch = Patch::with(at, vec![map, conv]);
        cx.apply(net, patch.note(&operator, "reads its channels repeated"))?;
    }
    Ok(())
}

/// What computes the convolution at `at` of its first input, if it is one with a multiplier.
fn find(net: &Net, at: usize) -> Option<(ChannelMap, Conv)> {
    let node = net.nodes.get(at)?;
    if node.outputs.iter().any(|&output| net.types.is_known(output)) {
        return None; // constants of the plan: nothing runs
    }
    let inputs = net.types.all(&node.inputs)?;
    node.operator()?.convolution()?.by_repeated_channels(&inputs)
}

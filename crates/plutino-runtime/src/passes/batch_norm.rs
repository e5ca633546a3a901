//! Batch norm at inference becomes a part of the convolution or linear layer in front of it: their
//! weights and biases take over its scale and its shift.
//!
//! The scaled weight is made where the layer is planned, and packed under a name of its own.
//! Layers whose weights are inputs of the run, or of another dtype than f32, stay as they are.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::Net;
use plutino_ops::{Neighbour, Role};

/// Lets layers take over the scale and shift that follow.
pub(super) fn batch_norm(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, _, at| find(net, at))
}

/// The layer whose result the batch norm at `at` scales, with that in it, or why not.
fn find(net: &Net, at: usize) -> Option<Result<Patch, String>> {
    let Role::Affine(affine) = net.role(at)? else { return None };
    let (node, output) = (&net.nodes[at], net.only_output(at)?);
    let value = *node.inputs.first()?;
    let into = net.producer(value)?;
    let layer = &net.nodes[into];
    let (operator, inputs) = (layer.operator()?, net.types.all(&layer.inputs)?);
    if layer.outputs[..] != [value] || net.computed(value)? != net.computed(output)? {
        return None;
    }
    let Some(with) = operator.absorb(&Neighbour::Affine(affine), &inputs) else {
        return Some(Err(format!("{} does not take it over", layer.location.name)));
    };
    let patch = Patch::replace(into, with, layer.inputs.clone(), vec![output]).without([at]);
    let note = format!("a part of the weights of {}", layer.location.name);
    Some(Ok(patch.note(&node.location.name, note)))
}

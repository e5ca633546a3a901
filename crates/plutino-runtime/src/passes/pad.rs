//! Zeros around an image become the padding of the convolution behind it, which reads them without
//! a copy.
//!
//! Only convolutions take them over, and only around pixels: an average would count other pixels.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::Net;
use plutino_ops::{Neighbour, Role};

/// Lets convolutions take over the zeros in front of them.
pub(super) fn pad(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, _, at| find(net, at).map(Ok))
}

/// The convolution behind the padding at `at`, with that in it.
fn find(net: &Net, at: usize) -> Option<Patch> {
    let Role::Zeros(input, zeros) = net.role(at)? else { return None };
    let (node, padded) = (&net.nodes[at], net.only_output(at)?);
    let image = *node.inputs.get(input)?;
    net.computed(padded)?;
    // All readers are asked: the patch says who stands in the way.
    let takes = |into: usize| {
        let reader = &net.nodes[into];
        let first = reader.inputs.first() == Some(&padded);
        let (operator, inputs) = (reader.operator()?, net.types.all(&reader.inputs)?);
        let with = operator.absorb(&Neighbour::Zeros(zeros.clone()), &inputs)?;
        let once = reader.inputs.iter().filter(|&&input| input == padded).count() == 1;
        (first && once).then_some((into, with))
    };
    let (into, with) = net.readers(padded).find_map(takes)?;
    let reader = &net.nodes[into];
    let others = reader.inputs.iter().skip(1).copied();
    let inputs = std::iter::once(image).chain(others).collect();
    let patch = Patch::replace(into, with, inputs, reader.outputs.clone()).without([at]);
    Some(patch.note(&node.location.name, format!("padding of {}", reader.location.name)))
}

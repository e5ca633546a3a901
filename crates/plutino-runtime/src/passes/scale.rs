//! Squeeze and excite: a 1x1 convolution takes over the factors that the channels of its input are
//! multiplied by.
//!
//! `mul(x, factors) -> conv` becomes one convolution, which multiplies its weights instead of the
//! image. Whether that pays is the convolution's to say
//! ([`Neighbour::Factors`]). It can do so in channel blocks only, so this comes after the layout
//! pass.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::{Net, ValueId};
use plutino_ops::{Neighbour, Role};
use plutino_tensor::{Layout, TensorSpec};

/// Lets convolutions take over multiplications of their input's channels.
pub(super) fn scale(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, _, at| find(net, at).map(Ok))
}

/// The product at `at` in the convolution that reads it.
fn find(net: &Net, at: usize) -> Option<Patch> {
    let Product { image, factors, output } = product(net, at)?;
    let into = net.only_reader(output)?;
    let (name, node) = (&net.nodes[at].location.name, &net.nodes[into]);
    let (&first, others) = node.inputs.split_first()?;
    if first != output {
        return None;
    }
    let scaled = node.operator()?.absorb(&Neighbour::Factors, &net.types.all(&node.inputs)?)?;
    let inputs = [image, factors].into_iter().chain(others.iter().copied()).collect();
    let patch = Patch::replace(into, scaled, inputs, node.outputs.clone()).without([at]);
    Some(patch.note(name, format!("absorbed by {}", node.location.name)))
}

/// A product of an image with a factor for each of its channels.
struct Product {
    image: ValueId,
    factors: ValueId,
    output: ValueId,
}

/// The product that the node at `at` is.
fn product(net: &Net, at: usize) -> Option<Product> {
    let Role::Times(a, b) = net.role(at)? else { return None };
    let inputs = &net.nodes[at].inputs;
    let (a, b, output) = (*inputs.get(a)?, *inputs.get(b)?, net.only_output(at)?);
    let result = net.computed(output)?;
    let fits = |image: &TensorSpec, factors: &TensorSpec| {
        image == result
            && image.layout != Layout::Plain
            && factors.layout == image.layout
            && matches!(image.shape.dims(), &[n, c, ..] if factors.shape.dims() == [n, c, 1, 1])
    };
    let (image, factors) = if fits(net.computed(a)?, net.computed(b)?) {
        (a, b)
    } else if fits(net.computed(b)?, net.computed(a)?) {
        (b, a)
    } else {
        return None;
    };
    Some(Product { image, factors, output })
}

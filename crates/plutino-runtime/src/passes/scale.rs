//! Squeeze and excite: a 1x1 convolution takes over the factors that the channels of its input are
//! multiplied by.
//!
//! `mul(x, factors) -> conv` becomes one convolution, which multiplies its weights instead of the
//! image. Whether that pays is the convolution's to say
//! ([`Operator::absorb_factors`](plutino_ops::Operator::absorb_factors)). It can do so in channel
//! blocks only, so this comes after the layout pass.

use super::fuse::change;
use super::{PassReport, TypedCx, check_fused};
use crate::SessionError;
use crate::infer::Types;
use crate::net::{Net, ValueId};
use plutino_ops::{Role, ValueSpec};
use plutino_tensor::{Layout, TensorSpec};
use std::collections::HashSet;

/// Lets convolutions take over multiplications of their input's channels.
pub(super) fn scale(
    net: &mut Net,
    cx: &TypedCx<'_>,
    report: &mut PassReport,
) -> Result<(), SessionError> {
    let (consumers, fetched) = (net.consumers(), net.fetched());
    let mut gone = HashSet::new();
    for at in 0..net.nodes.len() {
        cx.limits.check_at(at)?;
        let Some(Product { image, factors, output }) = product(net, cx.types, at) else { continue };
        let [into] = consumers[output.0][..] else { continue };
        let node = &net.nodes[into];
        let reads = node.inputs.iter().filter(|&&input| input == output).count();
        if fetched.contains(&output) || reads != 1 || node.inputs.first() != Some(&output) {
            continue;
        }
        let name = net.nodes[at].location.name.clone();
        let inputs = cx.types.all(&node.inputs).unwrap_or_default();
        if !change(net, cx, into, |operator| operator.absorb_factors(&inputs))? {
            continue;
        }
        let node = &mut net.nodes[into];
        node.inputs[0] = image;
        node.inputs.insert(1, factors);
        node.absorbed.push(name.clone());
        report.did(&name, format!("absorbed by {}", node.location.name));
        check_fused(net, cx.types, into)?;
        gone.insert(at);
    }
    let mut at = 0..;
    net.nodes.retain(|_| at.next().is_none_or(|at| !gone.contains(&at)));
    Ok(())
}

/// A product of an image with a factor for each of its channels.
struct Product {
    image: ValueId,
    factors: ValueId,
    output: ValueId,
}

/// The product that the node at `at` is.
fn product(net: &Net, types: &Types, at: usize) -> Option<Product> {
    let node = &net.nodes[at];
    let Role::Times(a, b) = node.operator()?.role(&types.all(&node.inputs)?)? else { return None };
    let (&a, &b) = (node.inputs.get(a)?, node.inputs.get(b)?);
    let &[output] = &node.outputs[..] else { return None };
    let spec = |value| match types.get(value) {
        Some(ValueSpec::Tensor(t)) if t.known.is_none() && !t.python => Some(&t.spec),
        _ => None,
    };
    let result = spec(output)?;
    let fits = |image: &TensorSpec, factors: &TensorSpec| {
        image == result
            && image.layout != Layout::Plain
            && factors.layout == image.layout
            && matches!(image.shape.dims(), &[n, c, ..] if factors.shape.dims() == [n, c, 1, 1])
    };
    let (image, factors) = if fits(spec(a)?, spec(b)?) {
        (a, b)
    } else if fits(spec(b)?, spec(a)?) {
        (b, a)
    } else {
        return None;
    };
    Some(Product { image, factors, output })
}

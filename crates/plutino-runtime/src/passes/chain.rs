//! Elementwise operators, one after the other, compute in one pass over memory.
//!
//! Only where what lies between them has the shape of the result, so that nothing is computed
//! twice, and a dtype that is not rounded more than once. A product with a factor for each channel
//! stays for convolutions to take over (`scale`).

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::{Net, ValueId};
use plutino_ops::{Operator, Role};
use plutino_tensor::DType;

/// Inputs of a joined operator, at most.
const MOST_INPUTS: usize = 8;

/// Joins chains, link by link, in execution order.
pub(super) fn chain(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, _, at| find(net, at))
}

/// The node at `at` with the one that makes one of its inputs for it alone, or why not.
fn find(net: &Net, at: usize) -> Option<Result<Patch, String>> {
    let node = &net.nodes[at];
    let next = node.operator()?.elementwise()?;
    let output = net.only_output(at)?;
    let result = net.computed(output)?;
    if is_product_of_channels(net, at) {
        return None;
    }
    let maker = |value: ValueId| {
        let from = net.producer(value).filter(|&from| net.only_output(from) == Some(value))?;
        let alone = net.readers(value).eq([at]) && !net.is_fetched(value);
        let between = net.computed(value).filter(|spec| spec.shape == result.shape)?;
        let exact = !matches!(between.dtype, DType::F16 | DType::Bf16 | DType::C32);
        let first = net.nodes[from].operator()?.elementwise().filter(|_| alone && exact)?;
        Some((value, from, first))
    };
    let (value, from, first) = node.inputs.iter().find_map(|&value| maker(value))?;
    let before = &net.nodes[from];
    let is_between = |&(_, &input): &(usize, &ValueId)| input == value;
    let places = node.inputs.iter().enumerate().filter(is_between).map(|(i, _)| i).collect();
    let others = node.inputs.iter().copied().filter(|&input| input != value);
    let inputs: Vec<ValueId> = before.inputs.iter().copied().chain(others).collect();
    if inputs.len() > MOST_INPUTS {
        return Some(Err(format!("with {} it would read too much", before.location.name)));
    }
    let joined: Box<dyn Operator> = first.then(before.inputs.len(), &next, places);
    if let Err(why) = joined.infer(&net.types.all(&inputs)?) {
        return Some(Err(why.to_string()));
    }
    let patch = Patch::replace(at, joined, inputs, vec![output]).without([from]);
    let note = format!("computed with {}", before.location.name);
    Some(Ok(patch.note(&node.location.name, note)))
}

/// Whether the node multiplies an image by a factor for each channel.
fn is_product_of_channels(net: &Net, at: usize) -> bool {
    let Some(Role::Times(a, b)) = net.role(at) else { return false };
    let shape = |input: usize| {
        let value = net.nodes[at].inputs.get(input)?;
        Some(&net.computed(*value)?.shape)
    };
    shape(a).zip(shape(b)).is_some_and(|(a, b)| a != b)
}

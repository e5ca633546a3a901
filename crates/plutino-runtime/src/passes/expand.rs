//! Expansion: operators that are others, such as a layer of a transformer's encoder, become those.
//!
//! Their steps then fuse, share the arena and show in the profile as if the file spelled them out.
//! A step is at its operator's place in the file, and called `operator/step`. What an operator
//! consists of is its own to say ([`Operator::expand`](plutino_ops::Operator::expand)); steps that
//! consist of others are expanded as well. Where shapes depend on data nothing is expanded: such
//! operators are planned whole, while running.

use super::PassCx;
use super::patch::{NewNode, Patch};
use crate::SessionError;
use crate::build::node_memory;
use crate::infer;
use crate::net::{Action, Net, Node, Value, ValueId};
use plutino_ops::{ExpandedStep, Expansion, Location, StepValue};
use plutino_tensor::alloc;
use std::sync::Arc;

/// Nodes that expansion may add to a net.
const MOST_NODES: usize = 1 << 16;

/// Operators within operators.
const MOST_LEVELS: usize = 8;

/// Expands what consists of others, in execution order.
pub(super) fn expand(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let mut room = MOST_NODES;
    for at in 0..net.nodes.len() {
        cx.limits.check()?;
        let node = &net.nodes[at];
        if !cx.allows(&node.location.name) || node.outputs.iter().any(|&o| net.types.is_known(o)) {
            continue;
        }
        let Some(expansion) = consists_of(net, node) else { continue };
        let name = node.location.name.clone();
        let whole = Whole {
            location: Arc::clone(&node.location),
            inputs: node.inputs.clone(),
            outputs: node.outputs.clone(),
        };
        let mut nodes = Vec::new();
        if let Err(why) = splice(net, cx, whole, expansion, MOST_LEVELS, &mut room, &mut nodes)? {
            cx.refuse(&name, why);
            continue;
        }
        let note = format!("becomes {} operators", nodes.len());
        cx.apply(net, Patch::with(at, nodes).note(&name, note))?;
    }
    Ok(())
}

/// What is replaced by its steps.
struct Whole {
    location: Arc<Location>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

/// What a node consists of, if that is more than itself, and can be said by values: each output
/// comes from a step of its own.
fn consists_of(net: &Net, node: &Node) -> Option<Expansion> {
    let inputs = net.types.all(&node.inputs)?;
    net.types.all(&node.outputs)?;
    let expansion = node.operator()?.expand(&inputs)?.ok()?; // errors are those of inference
    let inside = |value: &StepValue| !matches!(value, StepValue::Member(..));
    let named = expansion.steps.iter().flat_map(|step| &step.inputs).all(inside);
    let outputs = &expansion.outputs;
    let own = |(i, value): (usize, &StepValue)| {
        matches!(value, StepValue::Step(..)) && !outputs[..i].contains(value)
    };
    (named && outputs.len() == node.outputs.len() && outputs.iter().enumerate().all(own))
        .then_some(expansion)
}

/// Adds the steps of an operator to `nodes`, typed; why not, where that is not possible.
fn splice(
    net: &mut Net,
    cx: &mut PassCx<'_>,
    whole: Whole,
    expansion: Expansion,
    levels: usize,
    room: &mut usize,
    nodes: &mut Vec<NewNode>,
) -> Result<Result<(), String>, SessionError> {
    let Some(left) = room.checked_sub(expansion.steps.len()) else {
        return Ok(Err(format!("expanded operators may be {MOST_NODES} at most")));
    };
    *room = left;
    let before = net.nodes.len() + MOST_NODES - *room - expansion.steps.len();
    let bytes = node_memory(before + expansion.steps.len()) - node_memory(before);
    if let Err(why) = alloc::charge(bytes) {
        return Ok(Err(why.to_string()));
    }
    let mut made: Vec<Vec<ValueId>> = Vec::with_capacity(expansion.steps.len());
    for (number, step) in expansion.steps.into_iter().enumerate() {
        cx.limits.check()?;
        let ExpandedStep { kind, name, operator, inputs } = step;
        let value = |value: &StepValue| match *value {
            StepValue::Input(i) => whole.inputs.get(i).copied(),
            StepValue::Step(step, output) => made.get(step)?.get(output).copied(),
            StepValue::Member(..) => None,
        };
        let Some(inputs) = inputs.iter().map(value).collect::<Option<Vec<_>>>() else {
            return Ok(Err("a step reads what nobody makes".into()));
        };
        let name = format!("{}/{name}", whole.location.name);
        let specs = net.types.all(&inputs);
        let count = specs.and_then(|specs| operator.infer(&specs).ok()).map_or(0, |all| all.len());
        let output = |net: &mut Net, output: usize| {
            let result = StepValue::Step(number, output);
            let outside = expansion.outputs.iter().position(|&value| value == result);
            let name = if count == 1 { name.clone() } else { format!("{name}.{output}") };
            let own = || net.add_value(Value { name, ..Value::default() });
            outside.and_then(|i| whole.outputs.get(i).copied()).unwrap_or_else(own)
        };
        let outputs: Vec<ValueId> = (0..count).map(|i| output(net, i)).collect(); // bounded: outputs
        made.push(outputs.clone());
        let location = Location { kind, name, ..(*whole.location).clone() };
        let node = Node {
            source: None,
            location: Arc::new(location),
            action: Action::Operator(operator),
            inputs,
            outputs,
            absorbed: Vec::new(),
        };
        infer::node(&mut net.types, &node, cx, true, true)?;
        if net.types.all(&node.outputs).is_none() {
            return Ok(Err(format!("{} depends on data", node.location.name)));
        }
        // A constant of the plan stays as it is: nothing runs.
        let known = node.outputs.iter().all(|&output| net.types.is_known(output));
        let inner = if known { None } else { consists_of(net, &node) };
        match inner.zip(levels.checked_sub(1)) {
            Some((inner, levels)) => {
                let Node { location, inputs, outputs, .. } = node;
                let whole = Whole { location, inputs, outputs };
                let done = splice(net, cx, whole, inner, levels, room, nodes)?;
                if done.is_err() {
                    return Ok(done);
                }
            }
            None => {
                let Node { location, action, inputs, outputs, .. } = node;
                nodes.push(NewNode { location: Some(location), action, inputs, outputs });
            }
        }
    }
    Ok(Ok(()))
}

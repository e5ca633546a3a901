//! Expansion: operators that are others, such as a layer of a transformer's encoder, become those.
//!
//! Their steps then fuse, share the arena and show in the profile as if the file spelled them out.
//! A step is at its operator's place in the file, and called `operator/step`. What an operator
//! consists of is its own to say ([`Operator::expand`](plutino_ops::Operator::expand)); steps that
//! consist of others are expanded as well. Members of lists are those that the list was made of, or
//! are taken out of it. Where shapes depend on data nothing is expanded: such operators are planned
//! whole, while running.

use super::PassCx;
use super::patch::{NewNode, Patch};
use crate::SessionError;
use crate::halt;
use crate::lists;
use crate::order::Order;
use crate::plan::build::node_memory;
use crate::plan::infer;
use crate::plan::net::{Action, Net, Node, Value, ValueId};
use crate::settings::STEP_OF;
use plutino_ops::{ExpandedStep, Expansion, Location, StepValue, ValueSpec};
use plutino_tensor::{TensorError, alloc};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Nodes that expansion may add to a net.
const MOST_NODES: usize = 1 << 16;

/// Operators within operators.
const MOST_LEVELS: usize = 8;

/// Expands what consists of others, in execution order.
pub(super) fn expand(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let mut room = Room(MOST_NODES);
    for at in 0..net.nodes.len() {
        halt::go_on()?;
        let node = &net.nodes[at];
        if !cx.allows(&node.location.name) || node.outputs.iter().any(|&o| net.types.is_known(o)) {
            continue;
        }
        let name = node.location.name.clone();
        let expansion = match consists_of(net, node) {
            None => continue,
            Some(Ok(expansion)) => expansion,
            Some(Err(why)) => {
                cx.refuse(&name, why);
                continue;
            }
        };
        let whole = Whole {
            location: Arc::clone(&node.location),
            inputs: node.inputs.clone(),
            outputs: node.outputs.clone(),
        };
        let mut nodes = Vec::new();
        match splice(net, cx, whole, expansion, MOST_LEVELS, &mut room, &mut nodes) {
            Ok(()) => {
                let note = format!("becomes {} operators", nodes.len());
                cx.apply(net, Patch::with(at, nodes).note(&name, note))?;
            }
            Err(Failure::Refused(why)) => cx.refuse(&name, why),
            Err(Failure::Ended(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Why an operator does not become its steps.
enum Failure {
    /// It stays whole, and the net is planned with it.
    Refused(String),
    /// Nothing is planned.
    Ended(SessionError),
}

impl<E: Into<SessionError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Ended(error.into())
    }
}

/// What is replaced by its steps.
struct Whole {
    location: Arc<Location>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

/// What a node consists of, if that is more than itself; why not, where it cannot be said by
/// values: each output comes from a step of its own, or they are members of one list.
fn consists_of(net: &Net, node: &Node) -> Option<Result<Expansion, String>> {
    let inputs = net.types.all(&node.inputs)?;
    net.types.all(&node.outputs)?;
    let expansion = node.operator()?.expand(&inputs)?.ok()?; // errors are those of inference
    let mut seen = HashSet::new();
    let mut own = |value: &StepValue| match *value {
        StepValue::Step(step, output) => seen.insert((step, output)),
        StepValue::Input(_) | StepValue::Member(..) => false,
    };
    let outputs = &expansion.outputs;
    let apart = match expansion.listed {
        true => node.outputs.len() == 1,
        false => outputs.len() == node.outputs.len() && outputs.iter().all(&mut own),
    };
    Some(apart.then_some(expansion).ok_or_else(|| "one of its results is another value".into()))
}

/// What expansion may still add to a net.
struct Room(usize);

impl Room {
    /// Takes so many nodes. Where that is too much, or too much for the budget, the operator stays
    /// whole.
    fn take(&mut self, net: &Net, nodes: usize) -> Result<(), Failure> {
        let most = || Failure::Refused(format!("expanded operators may be {MOST_NODES} at most"));
        let left = self.0.checked_sub(nodes).ok_or_else(most)?;
        let before = net.nodes.len() + MOST_NODES - self.0;
        self.0 = left;
        let charged = alloc::charge(node_memory(before + nodes) - node_memory(before));
        charged.map_err(|error| Failure::Refused(error.to_string()))
    }
}

/// The leaves of a list: those that it was made of, or values that new nodes take out of it.
fn members(
    net: &mut Net,
    cx: &mut PassCx<'_>,
    list: ValueId,
    of: &Location,
    room: &mut Room,
    nodes: &mut Vec<NewNode>,
) -> Result<Vec<ValueId>, Failure> {
    let (mut leaves, mut left) = (Vec::new(), vec![list]);
    while let Some(value) = left.pop() {
        let Some(ValueSpec::List(members)) = net.types.get(value) else {
            leaves.push(value);
            continue;
        };
        let count = members.len();
        room.take(net, 1 + count)?;
        if let Some(node) = net.producer(value).and_then(|at| net.nodes.get(at))
            && matches!(node.action, Action::Pack)
        {
            left.extend(node.inputs.iter().rev());
            continue;
        }
        let name = net.name(value).to_owned();
        let member = |i| Value { name: format!("{name}.{i}").into(), ..Value::default() };
        let outputs = (0..count).map(|i| net.add_value(member(i))); // bounded: room
        let outputs = outputs.collect::<Result<Vec<ValueId>, _>>()?;
        let node = Node {
            source: None,
            location: Arc::new(Location { kind: "prim::ListUnpack".into(), name, ..of.clone() }),
            action: Action::Unpack,
            inputs: vec![value],
            outputs,
            absorbed: Vec::new(),
            order: Order::default(),
        };
        infer::node(&mut net.types, &node, cx, true, true)?;
        left.extend(node.outputs.iter().rev());
        nodes.push(node.into());
    }
    Ok(leaves)
}

/// Adds the steps of an operator to `nodes`, typed.
fn splice(
    net: &mut Net,
    cx: &mut PassCx<'_>,
    whole: Whole,
    expansion: Expansion,
    levels: usize,
    room: &mut Room,
    nodes: &mut Vec<NewNode>,
) -> Result<(), Failure> {
    let refused = |why: &str| Failure::Refused(why.to_owned());
    room.take(net, expansion.steps.len())?;
    let mut lists: HashMap<usize, Vec<ValueId>> = HashMap::new();
    for value in expansion.steps.iter().flat_map(|step| &step.inputs) {
        if let StepValue::Member(i, _) = *value
            && let Some(&list) = whole.inputs.get(i)
            && !lists.contains_key(&i)
        {
            lists.insert(i, members(net, cx, list, &whole.location, room, nodes)?);
        }
    }
    let Expansion { steps, outputs: results, listed } = expansion;
    let outputs: HashMap<StepValue, ValueId> = match listed {
        true => HashMap::new(),
        false => results.iter().copied().zip(whole.outputs.iter().copied()).collect(),
    };
    let mut made: Vec<Vec<ValueId>> = Vec::with_capacity(steps.len());
    let value = |made: &[Vec<ValueId>], value: &StepValue| match *value {
        StepValue::Input(i) => whole.inputs.get(i).copied(),
        StepValue::Step(step, output) => made.get(step)?.get(output).copied(),
        StepValue::Member(i, m) => lists.get(&i)?.get(m).copied(),
    };
    let values = |made: &[Vec<ValueId>], values: &[StepValue]| {
        values.iter().map(|each| value(made, each)).collect::<Option<Vec<_>>>()
    };
    for (number, step) in steps.into_iter().enumerate() {
        halt::go_on()?;
        let ExpandedStep { kind, name, operator, inputs } = step;
        let inputs = values(&made, &inputs);
        let inputs = inputs.ok_or_else(|| refused("a step reads what nobody makes"))?;
        let name = format!("{}{STEP_OF}{name}", whole.location.name);
        let specs = net.types.all(&inputs);
        let count = specs.and_then(|specs| operator.infer(&specs).ok()).map_or(0, |all| all.len());
        let output = |net: &mut Net, output: usize| -> Result<ValueId, TensorError> {
            let result = StepValue::Step(number, output);
            let outside = outputs.get(&result);
            let name = if count == 1 { name.clone() } else { format!("{name}.{output}") };
            let own = || net.add_value(Value { name: name.into(), ..Value::default() });
            outside.copied().map_or_else(own, Ok)
        };
        let outputs = (0..count).map(|i| output(net, i)); // bounded: outputs
        let outputs = outputs.collect::<Result<Vec<ValueId>, _>>()?;
        made.push(outputs.clone());
        let location = Location { kind, name, ..(*whole.location).clone() };
        let node = Node {
            source: None,
            location: Arc::new(location),
            action: Action::Operator(operator),
            inputs,
            outputs,
            absorbed: Vec::new(),
            order: Order::default(),
        };
        infer::node(&mut net.types, &node, cx, true, true)?;
        if net.types.all(&node.outputs).is_none() {
            return Err(Failure::Refused(format!("{} depends on data", node.location.name)));
        }
        // A constant of the plan stays as it is: nothing runs.
        let known = node.outputs.iter().all(|&output| net.types.is_known(output));
        let inner = if known { None } else { consists_of(net, &node).and_then(Result::ok) };
        match inner.zip(levels.checked_sub(1)) {
            Some((inner, levels)) => {
                let Node { location, inputs, outputs, .. } = node;
                let whole = Whole { location, inputs, outputs };
                splice(net, cx, whole, inner, levels, room, nodes)?;
            }
            None => lists::push(nodes, node.into())?,
        }
    }
    if listed {
        let inputs = values(&made, &results);
        let inputs = inputs.ok_or_else(|| refused("a member of the list is what nobody makes"))?;
        let location = Location { kind: "prim::ListConstruct".into(), ..(*whole.location).clone() };
        let node = Node {
            source: None,
            location: Arc::new(location),
            action: Action::Pack,
            inputs,
            outputs: whole.outputs,
            absorbed: Vec::new(),
            order: Order::default(),
        };
        infer::node(&mut net.types, &node, cx, true, true)?;
        nodes.push(node.into());
    }
    Ok(())
}

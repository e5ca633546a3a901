//! Copies between contexts that do not share memory: a node for each value and each memory in which
//! it is read and not made.

use super::Context;
use crate::order::Order;
use crate::plan::net::{Action, Net, Node, Value, ValueId};
use crate::{SessionError, lists};
use plutino_ops::{
    Kernel, Location, Operator, Output, PlanCx, PlanError, Planned, RunCx, RunError, ShapeError,
    ValueSpec,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Whether some value is made in one memory and read in another.
pub(crate) fn are_needed(net: &Net, contexts: &[Arc<Context>], of: &[usize]) -> bool {
    net.nodes.iter().enumerate().any(|(at, node)| {
        node.inputs.iter().any(|&id| crosses(net, contexts, of, id, at).is_some())
    })
}

/// The context that makes a value, where the node at this position reads it in another memory.
/// Feeds and constants are there in each.
fn crosses(
    net: &Net,
    contexts: &[Arc<Context>],
    of: &[usize],
    id: ValueId,
    reader: usize,
) -> Option<usize> {
    let from = *of.get(net.producer(id).filter(|_| !net.types.is_known(id))?)?;
    let to = *of.get(reader)?;
    let shared = contexts.get(from)?.shares_memory_with(contexts.get(to)?);
    (!shared).then_some(from)
}

/// Puts copies where they are needed: behind whoever makes a value, for its first reader in each
/// other memory. `planned` and `of` stay beside the nodes.
pub(crate) fn insert(
    net: &mut Net,
    contexts: &[Arc<Context>],
    planned: &mut Vec<Option<Planned>>,
    of: &mut Vec<usize>,
    plan: impl Fn(&Net, &Node) -> Result<Option<Planned>, SessionError>,
) -> Result<(), SessionError> {
    let mut copies: HashMap<(ValueId, usize), ValueId> = HashMap::new();
    let (nodes, old_planned, old_of) =
        (std::mem::take(&mut net.nodes), std::mem::take(planned), std::mem::take(of));
    let crossing: Vec<Vec<Option<usize>>> = {
        // Uses are those of the nodes as they were.
        let of = |at: usize, id: ValueId| crosses(net, contexts, &old_of, id, at);
        let all = nodes.iter().enumerate();
        lists::collect(all.map(|(at, node)| node.inputs.iter().map(|&id| of(at, id)).collect()))?
    };
    for (((mut node, planned_node), to), crossing) in
        nodes.into_iter().zip(old_planned).zip(old_of).zip(crossing)
    {
        let memory = contexts.iter().position(|other| other.shares_memory_with(&contexts[to]));
        let memory = memory.unwrap_or(to);
        for (input, from) in node.inputs.iter_mut().zip(crossing) {
            let Some(from) = from else { continue };
            if let Some(copy) = copies.get(&(*input, memory)) {
                *input = *copy;
                continue;
            }
            let old = &net.values[input.0];
            let name = format!("{}@{to}", old.name);
            let value = Value { name: name.as_str().into(), recorded: old.recorded.clone() };
            let made = net.add_value(value)?;
            // A value whose shape depends on data is copied by a late step, which knows it.
            let fixed = |spec: &&ValueSpec| {
                !spec.leaves().iter().any(|leaf| matches!(leaf, ValueSpec::Dynamic { .. }))
            };
            if let Some(spec) = net.types.get(*input).filter(fixed).cloned() {
                net.types.put(made, spec)?;
            }
            let location = Location {
                kind: "plutino.Copy".into(),
                name,
                line: None,
                ..(*node.location).clone()
            };
            let copy = Node {
                source: None,
                location: Arc::new(location),
                action: Action::Operator(Arc::new(Copy { from, to })),
                inputs: vec![*input],
                outputs: vec![made],
                absorbed: Vec::new(),
                order: Order::default(),
            };
            lists::push(planned, plan(net, &copy)?)?;
            lists::push(&mut net.nodes, copy)?;
            lists::push(of, to)?;
            copies.insert((*input, memory), made);
            *input = made;
        }
        lists::push(planned, planned_node)?;
        lists::push(&mut net.nodes, node)?;
        lists::push(of, to)?;
    }
    net.index()?;
    Ok(())
}

/// Takes a value from one context's memory into another's.
#[derive(Debug, Clone, Copy)]
struct Copy {
    from: usize,
    to: usize,
}

impl Operator for Copy {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(inputs.to_vec())
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::new(Copying(format!("copy.{}.{}", self.from, self.to))))
    }
}

/// As memory is copied within the process: whoever brings another device brings its own.
#[derive(Debug)]
struct Copying(String);

impl Kernel for Copying {
    fn name(&self) -> &str {
        &self.0
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let outputs = cx.outputs.0.iter_mut().map(Option::take);
        for (input, output) in cx.inputs.0.iter().zip(outputs) {
            let bytes = input.bytes.unwrap_or_default();
            match output {
                Some(Output::Fixed { bytes: to, .. }) if to.len() == bytes.len() => {
                    to.copy_from_slice(bytes);
                }
                _ => return Err(RunError::Internal("a copy of another type".into())),
            }
        }
        Ok(())
    }
}

//! Fusion: an operator takes over the activation or the sum that follows it, so that its result is
//! written once.
//!
//! `conv -> add(., shortcut) -> relu` becomes one convolution with the shortcut as a last input.
//! Which operators take over what is theirs to say ([`Operator::absorb`]); here is only what the
//! graph must allow: nobody else reads the value in between, shapes stay, and the shortcut is there
//! in time.

use super::{PassReport, TypedCx, check_fused};
use crate::SessionError;
use crate::infer::Types;
use crate::net::{Action, Net, ValueId};
use plutino_ops::{Epilogue, Operator, ValueSpec};
use std::collections::HashSet;

/// Why a fusion that fits is not made.
enum Refusal {
    /// Nothing to fuse with: not worth a note.
    Nothing,
    /// Something stands in the way.
    Because(String),
}

/// Fuses what follows into what computes, in execution order, so that chains fuse link by link.
pub(super) fn fuse(
    net: &mut Net,
    cx: &TypedCx<'_>,
    report: &mut PassReport,
) -> Result<(), SessionError> {
    let consumers = net.consumers();
    let mut producers = net.producers();
    let fetched = net.fetched();
    let mut gone = HashSet::new();
    for at in 0..net.nodes.len() {
        cx.limits.check_at(at)?;
        let Some(epilogue) = net.nodes[at].operator().and_then(Operator::epilogue) else {
            continue;
        };
        let name = net.nodes[at].location.name.clone();
        let candidate =
            match candidate(net, cx.types, (&consumers, &producers, &fetched), at, epilogue) {
                Ok(candidate) => candidate,
                Err(Refusal::Nothing) => continue,
                Err(Refusal::Because(why)) => {
                    report.refuse(&name, why);
                    continue;
                }
            };
        if !absorb(net, cx, candidate.into, epilogue)? {
            continue;
        }
        let output = net.nodes[at].outputs[0];
        let into = &mut net.nodes[candidate.into];
        into.outputs[0] = output;
        into.inputs.extend(candidate.other);
        into.absorbed.push(name.clone());
        report.did(&name, format!("absorbed by {}", into.location.name));
        check_fused(net, cx.types, candidate.into)?;
        producers[output.0] = Some(candidate.into);
        gone.insert(at);
    }
    let mut at = 0..;
    net.nodes.retain(|_| at.next().is_none_or(|at| !gone.contains(&at)));
    Ok(())
}

/// A node that could take over an epilogue, and the second summand.
struct Candidate {
    into: usize,
    other: Option<ValueId>,
}

/// The producer that the node at `at` could be absorbed by.
fn candidate(
    net: &Net,
    types: &Types,
    (consumers, producers, fetched): (&[Vec<usize>], &[Option<usize>], &HashSet<ValueId>),
    at: usize,
    epilogue: Epilogue,
) -> Result<Candidate, Refusal> {
    let node = &net.nodes[at];
    let [output] = node.outputs[..] else { return Err(Refusal::Nothing) };
    let summands = match (epilogue, &node.inputs[..]) {
        (Epilogue::Activation(_), &[x]) => [(x, None), (x, None)],
        (Epilogue::Add, &[a, b]) if a != b => [(a, Some(b)), (b, Some(a))],
        _ => return Err(Refusal::Nothing),
    };
    // Of two summands, the one that is computed last takes over: the other is there by then.
    let position = |v: ValueId| producers[v.0].map_or(-1, |p| p as isize);
    let [first, second] = summands;
    let (value, other) = if position(second.0) > position(first.0) { second } else { first };
    let Some(into) = producers[value.0] else { return Err(Refusal::Nothing) };
    if net.nodes[into].operator().is_none() || net.nodes[into].outputs[..] != [value] {
        return Err(Refusal::Nothing);
    }
    let producer = &net.nodes[into].location.name;
    let tensor = |v: ValueId| match types.get(v) {
        Some(ValueSpec::Tensor(t)) if t.known.is_none() => Some(&t.spec),
        _ => None,
    };
    let (Some(spec), Some(result)) = (tensor(value), tensor(output)) else {
        return Err(Refusal::Nothing);
    };
    let because = |why: String| Err(Refusal::Because(why));
    if fetched.contains(&value) {
        return because(format!("the result of {producer} is fetched"));
    }
    if let Some(&reader) = consumers[value.0].iter().find(|&&c| c != at) {
        let reader = &net.nodes[reader].location.name;
        return because(format!("the result of {producer} is also read by {reader}"));
    }
    if spec != result {
        return because(format!("{producer} makes {spec}, the result is {result}"));
    }
    if let Some(other) = other {
        match types.get(other) {
            Some(ValueSpec::Tensor(t)) if t.spec == *spec && !t.python => {}
            Some(t) => return because(format!("the summands are {spec} and {t}")),
            None => return because("the other summand is known only while running".into()),
        }
    }
    Ok(Candidate { into, other })
}

/// Asks the operator at `into` to take over; it becomes this net's own if it agrees.
fn absorb(
    net: &mut Net,
    cx: &TypedCx<'_>,
    into: usize,
    epilogue: Epilogue,
) -> Result<bool, SessionError> {
    change(net, cx, into, |operator| operator.absorb(epilogue).is_ok())
}

/// Changes the operator at `at`, which becomes this net's own if `f` says that it changed
/// something.
pub(super) fn change(
    net: &mut Net,
    cx: &TypedCx<'_>,
    at: usize,
    f: impl FnOnce(&mut dyn Operator) -> bool,
) -> Result<bool, SessionError> {
    let node = &mut net.nodes[at];
    if let Action::Fused(operator) = &mut node.action {
        return Ok(f(operator.as_mut()));
    }
    // The model's operator is shared by all plans: decode one that may be changed.
    let Some(op) = node.source.and_then(|id| cx.model.graph.operator(id)) else { return Ok(false) };
    let mut operator = cx
        .model
        .registry
        .build(&cx.model.file, &cx.model.graph, op)
        .map_err(|e| SessionError::internal(format!("decoded before, now: {e}")))?;
    let changed = f(operator.as_mut());
    if changed {
        node.action = Action::Fused(operator);
    }
    Ok(changed)
}

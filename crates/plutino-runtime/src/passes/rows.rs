//! Rows: two linear layers, one after the other, compute some rows at a time where what lies
//! between exceeds the cache.
//!
//! Nobody else reads what lies between them. What is decided depends on sizes and on the machine's
//! caches, not on the number of threads.

use super::{PassReport, TypedCx, check_fused};
use crate::SessionError;
use crate::infer::Types;
use crate::net::{Action, Net, ValueId};
use plutino_kernels::gemm::Machine;
use plutino_ops::{ByRows, Operator, ValueSpec};
use plutino_tensor::{DType, TensorSpec};
use std::collections::HashSet;
use std::sync::Arc;

/// Joins pairs of layers into one node.
pub(super) fn rows(
    net: &mut Net,
    cx: &TypedCx<'_>,
    report: &mut PassReport,
) -> Result<(), SessionError> {
    let (consumers, fetched) = (net.consumers(), net.fetched());
    let mut gone = HashSet::new();
    for at in 0..net.nodes.len() {
        cx.limits.check_at(at)?;
        let Some((into, chunks)) = pair(net, cx.types, (&consumers, &fetched), at) else {
            continue;
        };
        // The first one's place is free from now on; it goes where the second one is.
        let first = std::mem::replace(&mut net.nodes[at].action, Action::Pack);
        let second = std::mem::replace(&mut net.nodes[into].action, Action::Pack);
        let (Some(first), Some(next)) = (shared(first), shared(second)) else {
            return Err(SessionError::internal("layers that do not compute"));
        };
        let inputs = net.nodes[at].inputs.clone();
        let (name, absorbed) =
            (net.nodes[at].location.name.clone(), net.nodes[at].absorbed.clone());
        let node = &mut net.nodes[into];
        let operator = ByRows { first, inputs: inputs.len(), next, chunks };
        node.action = Action::Fused(Box::new(operator));
        node.inputs.splice(..1, inputs);
        node.absorbed.push(name.clone());
        node.absorbed.extend(absorbed);
        report.did(&name, format!("computed in {chunks} chunks with {}", node.location.name));
        check_fused(net, cx.types, into)?;
        gone.insert(at);
    }
    let mut at = 0..;
    net.nodes.retain(|_| at.next().is_none_or(|at| !gone.contains(&at)));
    Ok(())
}

/// The operator of a node that computes.
fn shared(action: Action) -> Option<Arc<dyn Operator>> {
    match action {
        Action::Operator(operator) => Some(operator),
        Action::Fused(operator) => Some(Arc::from(operator)),
        _ => None,
    }
}

/// The layer that follows the one at `at` and can be joined with it, and the chunks of both.
fn pair(
    net: &Net,
    types: &Types,
    (consumers, fetched): (&[Vec<usize>], &HashSet<ValueId>),
    at: usize,
) -> Option<(usize, usize)> {
    let node = &net.nodes[at];
    let &[between] = &node.outputs[..] else { return None };
    let &[into] = &consumers[between.0][..] else { return None };
    let next = &net.nodes[into];
    let &[output] = &next.outputs[..] else { return None };
    let by_row = [node, next].iter().all(|node| node.operator().is_some_and(Operator::by_row));
    let reads = next.inputs.first() == Some(&between);
    if !by_row || !reads || fetched.contains(&between) {
        return None;
    }
    // Further inputs, which are summands, are rows as well.
    let rows_of =
        |spec: &TensorSpec| Some(spec.shape.product(0..spec.shape.rank().checked_sub(1)?));
    let rows = rows_of(matrix(types, output)?)?;
    for &value in node.inputs.iter().chain(&next.inputs) {
        if rows_of(matrix(types, value)?)? != rows {
            return None;
        }
    }
    let width = |value: ValueId| matrix(types, value)?.shape.last().copied();
    let widths = [width(*node.inputs.first()?)?, width(between)?, width(output)?];
    let chunks = ByRows::chunks(rows, widths, Machine::this().l2);
    (chunks > 1).then_some((into, chunks))
}

/// The spec of an f32 tensor that is computed at run time.
fn matrix(types: &Types, value: ValueId) -> Option<&TensorSpec> {
    match types.get(value) {
        Some(ValueSpec::Tensor(t))
            if t.known.is_none() && !t.python && t.spec.dtype == DType::F32 =>
        {
            Some(&t.spec)
        }
        _ => None,
    }
}

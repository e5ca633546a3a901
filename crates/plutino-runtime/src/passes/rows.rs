//! Rows: two linear layers, one after the other, compute some rows at a time where what lies
//! between exceeds the cache.
//!
//! Nobody else reads what lies between them. It may be bf16 in memory: the pass `bf16` came before.
//! What is decided depends on sizes and on the machine's caches, not on the number of threads.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::{Action, Net, Node, ValueId};
use plutino_kernels::gemm::Machine;
use plutino_ops::{ByRows, Operator, Role};
use plutino_tensor::{DType, TensorSpec};
use std::sync::Arc;

/// Joins pairs of layers into one node.
pub(super) fn rows(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, cx, at| find(net, cx, at).map(Ok))
}

/// The layer at `at` together with the one that follows, in its place.
fn find(net: &Net, cx: &PassCx<'_>, at: usize) -> Option<Patch> {
    let by_row = |at: usize| net.role(at) == Some(Role::ByRow);
    let between = net.only_output(at).filter(|_| by_row(at))?;
    let into = net.only_reader(between).filter(|&into| by_row(into))?;
    let (node, next) = (&net.nodes[at], &net.nodes[into]);
    let (&first, others) = next.inputs.split_first()?;
    // One plan has one setting: a precision that one of them alone was asked for is kept.
    if first != between || cx.settings.of(&node.location) != cx.settings.of(&next.location) {
        return None;
    }
    let output = net.only_output(into)?;
    // Further inputs, which are residuals, are rows as well.
    let rows_of =
        |spec: &TensorSpec| Some(spec.shape.product(0..spec.shape.rank().checked_sub(1)?));
    let rows = rows_of(matrix(net, output)?)?;
    for &value in node.inputs.iter().chain(&next.inputs) {
        if rows_of(matrix(net, value)?)? != rows {
            return None;
        }
    }
    let width = |value: ValueId| matrix(net, value)?.shape.last().copied();
    let widths = [width(*node.inputs.first()?)?, width(between)?, width(output)?];
    let chunks = ByRows::chunks(rows, widths, Machine::this().l2);
    if chunks <= 1 {
        return None;
    }
    let inputs = node.inputs.len();
    let between = matrix(net, between)?.layout;
    let both = ByRows { first: shared(node)?, inputs, next: shared(next)?, between, chunks };
    let inputs = [&node.inputs[..], others].concat();
    let both: Arc<dyn Operator> = Arc::new(both);
    let patch = Patch::replace(into, both, inputs, vec![output]).without([at]);
    let note = format!("computed in {chunks} chunks with {}", next.location.name);
    Some(patch.note(&node.location.name, note))
}

/// The operator of a node that computes.
fn shared(node: &Node) -> Option<Arc<dyn Operator>> {
    match &node.action {
        Action::Operator(operator) => Some(Arc::clone(operator)),
        _ => None,
    }
}

/// The spec of an f32 tensor that is computed at run time.
fn matrix(net: &Net, value: ValueId) -> Option<&TensorSpec> {
    net.computed(value).filter(|spec| spec.dtype == DType::F32)
}

//! Constant folding: what depends on no input is computed once, while shapes are inferred, so that
//! shapes which depend on it are known too.

use super::PassCx;
use crate::SessionError;
use crate::halt;
use crate::lists;
use crate::plan::infer;
use crate::plan::net::Net;
use plutino_kernels::{Isa, Par};
use plutino_ops::{Operator, ValueSpec, eager};
use plutino_tensor::{Tensor, alloc};

/// Bytes that a folded value may take where it is larger than everything it is made of.
const MAX_GROWTH: usize = 1 << 20;

/// Bytes of all values that a plan computes while it is made, beyond those that are views.
const MAX_BYTES: usize = 64 << 20;

/// Arithmetic that all folding of a plan may take.
const MAX_FLOPS: u64 = 1 << 29;

/// What a plan may still compute while it is made.
pub(crate) struct Allowance {
    bytes: usize,
    flops: u64,
}

impl Default for Allowance {
    /// At most half of the memory that the caller allows.
    fn default() -> Self {
        let bytes = alloc::left().map_or(MAX_BYTES, |left| MAX_BYTES.min(left / 2));
        Self { bytes, flops: MAX_FLOPS }
    }
}

/// Computes what depends on known values alone, in execution order; what that makes known is
/// inferred again.
pub(crate) fn fold(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let mut news = lists::filled(net.values.len(), false)?;
    cx.folds = true;
    for node in &net.nodes {
        halt::check(&node.location)?;
        let stale = node.inputs.iter().any(|input| news[input.0]);
        let changed = infer::node(&mut net.types, node, cx, stale, true);
        // What was computed of a constant until then is none: the plan ends here.
        halt::check(&node.location)?;
        if changed? {
            node.outputs.iter().for_each(|output| news[output.0] = true);
        }
    }
    Ok(())
}

/// What became of a node's constants.
pub(crate) enum Folded {
    /// Nothing: not all inputs are known, or it is no matter of constants.
    No,
    /// All outputs are known now, and how.
    Known(&'static str),
    /// They could be, but are not.
    Refused(String),
}

/// Makes `outputs` known if all inputs are, computing them if need be and if that is cheap.
pub(crate) fn compute(
    operator: &dyn Operator,
    inputs: &[ValueSpec],
    outputs: &mut [ValueSpec],
    isa: Isa,
    allowance: &mut Allowance,
) -> Folded {
    if !inputs.iter().all(infer::known) || outputs.iter().any(ValueSpec::is_dynamic) {
        return Folded::No;
    }
    if infer::all_known(outputs) {
        return Folded::Known("known from shapes and constants");
    }
    if !allowance.covers(operator, inputs, outputs) {
        let why = "constant, but too large or costly to compute while planning";
        return Folded::Refused(why.into());
    }
    let data: Option<Vec<Tensor>> = inputs
        .iter()
        .flat_map(ValueSpec::leaves)
        .map(|leaf| leaf.as_tensor().and_then(|t| t.known.clone()))
        .collect();
    let Some(data) = data else { return Folded::No };
    match eager::run(operator, inputs, &data, isa, &Par::serial()) {
        Ok(results) => {
            let mut results = results.into_iter();
            outputs.iter_mut().for_each(|o| set_known(o, &mut results));
            Folded::Known("computed while planning")
        }
        // The run will meet the same error, with its location, unless nobody needs the value.
        Err(error) => Folded::Refused(error.to_string()),
    }
}

impl Allowance {
    /// Whether outputs are hardly larger than inputs, and bytes and arithmetic are within what is
    /// left; they are taken off then.
    fn covers(
        &mut self,
        operator: &dyn Operator,
        inputs: &[ValueSpec],
        outputs: &[ValueSpec],
    ) -> bool {
        let bytes = bytes(outputs);
        if bytes > self::bytes(inputs).max(MAX_GROWTH) {
            return false;
        }
        let flops = operator.cost(inputs, outputs).flops;
        let left = self.bytes.checked_sub(bytes).zip(self.flops.checked_sub(flops));
        if let Some((bytes, flops)) = left {
            (self.bytes, self.flops) = (bytes, flops);
        }
        left.is_some()
    }
}

fn bytes(specs: &[ValueSpec]) -> usize {
    specs
        .iter()
        .flat_map(ValueSpec::leaves)
        .filter_map(ValueSpec::as_tensor)
        .map(|t| t.spec.storage_bytes().unwrap_or(usize::MAX))
        .fold(0, usize::saturating_add)
}

/// Hands the leaves of a value their results, in order.
fn set_known(spec: &mut ValueSpec, results: &mut impl Iterator<Item = Tensor>) {
    match spec {
        ValueSpec::List(members) => members.iter_mut().for_each(|m| set_known(m, results)),
        ValueSpec::Tensor(t) => t.known = results.next(),
        ValueSpec::Dynamic { .. } | ValueSpec::Word(_) => {}
    }
}

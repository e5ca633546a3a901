//! Attention that a model spells out becomes one operator, so that the scores of a head never leave
//! the cache.
//!
//! `matmul -> (scale, masks) -> softmax -> matmul`, and the permutations before and after it, are
//! what [`AttentionPattern`] computes. Operators say what they are ([`Role`]); here is how they
//! must hang together. Where queries or keys are multiplied by a number, the scores are instead.
//! Masks may be added between views that regroup batches, such as images of windows: each is read
//! as the scores are viewed when it is added.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::halt;
use crate::plan::net::{Net, ValueId};
use plutino_ops::{AttentionPattern, Role, ValueSpec};
use plutino_tensor::{DType, Shape, TensorSpec};

/// Permutations and factors in a row that are seen through.
const MOST_PERMUTATIONS: usize = 16;

/// Views, factors and masks between the product and the softmax.
const MOST_BETWEEN: usize = 8;

/// Replaces each chain around a softmax that is an attention.
pub(super) fn attention(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    for at in 0..net.nodes.len() {
        halt::go_on_at(at)?;
        let Some(found) = super::searching(|| Graph(net).attention(at)) else { continue };
        let name = net.nodes[found.at].location.name.clone();
        let operator = found.pattern.into_operator();
        // The kernel wants rows of neighbours, the pattern has anything.
        let inputs = net.types.all(&found.inputs).unwrap_or_default();
        if let Err(why) = operator.infer(&inputs) {
            cx.refuse(&name, why.to_string());
            continue;
        }
        let absorbed: Vec<_> =
            found.absorbed.iter().map(|&at| net.nodes[at].location.name.as_str()).collect();
        let note = format!("absorbed {}", absorbed.join(", "));
        let patch = Patch::replace(found.at, operator, found.inputs, vec![found.output]);
        cx.apply(net, patch.without(found.absorbed).note(&name, note))?;
    }
    Ok(())
}

/// A chain that is an attention.
struct Attention {
    /// The node whose place it takes: the second product.
    at: usize,
    /// The nodes whose work it takes over.
    absorbed: Vec<usize>,
    inputs: Vec<ValueId>,
    output: ValueId,
    pattern: AttentionPattern,
}

/// How the nodes of a net hang together.
struct Graph<'a>(&'a Net);

impl Graph<'_> {
    fn role(&self, at: usize) -> Option<Role> {
        self.0.role(at)
    }

    /// The only reader of the output of a node.
    fn reader(&self, at: usize) -> Option<usize> {
        self.0.only_reader(self.0.only_output(at)?)
    }

    fn spec(&self, value: ValueId) -> Option<&TensorSpec> {
        match self.0.types.get(value) {
            Some(ValueSpec::Tensor(t)) if !t.python && t.spec.dtype == DType::F32 => Some(&t.spec),
            _ => None,
        }
    }

    /// The attention around the softmax at `softmax`.
    fn attention(&self, softmax: usize) -> Option<Attention> {
        let Role::SoftmaxOfRows(input) = self.role(softmax)? else { return None };
        let scores = self.0.nodes[softmax].inputs[input];
        if self.0.types.is_known(scores) {
            return None; // constants of the plan: nothing runs
        }
        let weights = self.spec(scores)?;
        let Scores { nodes, query, key, shape, scale, masks } =
            self.scores(scores, softmax, MOST_BETWEEN)?;
        if shape != weights.shape {
            return None; // the values meet matrices that are grouped otherwise
        }

        let product = self.reader(softmax)?;
        let Role::Product(left, right) = self.role(product)? else { return None };
        let operands = &self.0.nodes[product].inputs;
        let value = operands[right];
        if Some(operands[left]) != self.0.only_output(softmax) || left == right {
            return None;
        }
        let [q, k, v] = [query, key, value].map(|value| self.spec(value));
        let (q, k, v) = (q?, k?, v?);

        // Dimensions may be permuted before and after, if rows stay rows.
        let Rows { value: query, order: q_order, factor: of_query } =
            self.source(query, q.shape.rank(), false, true);
        let Rows { value: key, order: k_order, factor: of_key } =
            self.source(key, k.shape.rank(), true, true);
        let Rows { value, order: v_order, .. } = self.source(value, v.shape.rank(), false, false);
        let scale = scale * of_query * of_key;
        let mut absorbed = nodes;
        absorbed.push(softmax);
        let (mut output, mut write) = (self.0.only_output(product)?, None);
        if let Some(reader) = self.reader(product)
            && let Some(Role::Permute(_, order)) = self.role(reader)
            && keeps_rows(&order)
            && order.len() <= 4
        {
            output = self.0.only_output(reader)?;
            write = Some(order);
            absorbed.push(reader);
        }
        let (added, masks): (Vec<_>, Vec<_>) = masks.into_iter().unzip();
        let inputs = [query, key, value].into_iter().chain(added).collect();
        let read = [q_order, k_order, v_order];
        let pattern = AttentionPattern { read, scale, masks, write };
        Some(Attention { at: product, absorbed, inputs, output, pattern })
    }

    /// The product that `value` is, or is a multiple of, with masks or without, or viewed; `left`
    /// nodes may be passed on the way to it.
    fn scores(&self, value: ValueId, reader: usize, left: usize) -> Option<Scores> {
        let at = self.0.maker_for(value, reader)?;
        let (inputs, result) = (&self.0.nodes[at].inputs, &self.spec(value)?.shape);
        let left = left.checked_sub(1);
        match self.role(at)? {
            Role::Product(a, b) => {
                let (query, key, shape) = (inputs[a], inputs[b], result.clone());
                Some(Scores { nodes: vec![at], query, key, shape, scale: 1.0, masks: Vec::new() })
            }
            // Whole matrices, grouped otherwise.
            Role::Reshape(input) => {
                let before = &self.spec(inputs[input])?.shape;
                let matrix = |shape: &Shape| {
                    shape.rank().checked_sub(2).map(|batch| shape[batch..].to_vec())
                };
                if matrix(before)? != matrix(result)? {
                    return None;
                }
                let mut scores = self.scores(inputs[input], at, left?)?;
                scores.nodes.push(at);
                Some(scores)
            }
            Role::Sum(terms) => (0..terms.len()).find_map(|which| {
                let (x, scale) = terms[which];
                let others = || terms.iter().enumerate().filter(|&(i, _)| i != which);
                if others().any(|(_, &(_, factor))| factor != 1.0) {
                    return None;
                }
                // The masks must not make more of the scores than there is.
                if self.spec(inputs[x])?.shape != *result {
                    return None;
                }
                let mut scores = self.scores(inputs[x], at, left?)?;
                // The kernel multiplies once, before it adds.
                if scale != 1.0 && (scores.scale != 1.0 || !scores.masks.is_empty()) {
                    return None;
                }
                let batch = || result.iter().take(result.rank().saturating_sub(2)).copied();
                let viewed = *result != scores.shape;
                for (_, &(mask, _)) in others() {
                    self.spec(inputs[mask])?;
                    scores.masks.push((inputs[mask], viewed.then(|| batch().collect())));
                }
                if scores.masks.len() > AttentionPattern::MOST_MASKS {
                    return None;
                }
                scores.scale *= scale;
                scores.nodes.push(at);
                Some(scores)
            }),
            _ => None,
        }
    }

    /// What `value` is a permutation of, and of which; `transposed`: its last two dimensions are to
    /// be swapped; `scaled`: it may be multiplied by a number. Only permutations that leave rows
    /// dense are seen through.
    fn source(&self, value: ValueId, rank: usize, transposed: bool, scaled: bool) -> Rows {
        let mut order: Vec<usize> = (0..rank).collect();
        if transposed && rank >= 2 {
            order.swap(rank - 1, rank - 2);
        }
        let mut best = Rows { value, order: transposed.then(|| order.clone()), factor: 1.0 };
        let (mut at, mut factor) = (value, 1.0);
        for _ in 0..MOST_PERMUTATIONS {
            if self.0.types.is_known(at) {
                break; // a constant of the plan: whatever made it is not there to be read
            }
            let Some(producer) = self.0.producer(at) else { break };
            match self.role(producer) {
                Some(Role::Permute(input, inner)) if inner.len() == rank => {
                    at = self.0.nodes[producer].inputs[input];
                    order = order.iter().map(|&d| inner[d]).collect();
                }
                Some(Role::Sum(terms)) if scaled => {
                    let &[(input, number)] = &terms[..] else { break };
                    let input = self.0.nodes[producer].inputs[input];
                    let same = self.spec(input).is_some() && self.spec(input) == self.spec(at);
                    // What becomes smaller cannot overflow where it did not before.
                    if !same || number == 0.0 || number.abs() > 1.0 {
                        break;
                    }
                    (at, factor) = (input, factor * number);
                }
                _ => break,
            }
            if keeps_rows(&order) {
                let kept = best.order.is_none() && order.iter().enumerate().all(|(i, &d)| i == d);
                let order = (!kept).then(|| order.clone());
                best = Rows { value: at, order, factor };
            }
        }
        best
    }
}

/// Queries, keys or values: a permutation of a tensor, multiplied by a number.
struct Rows {
    value: ValueId,
    /// None: as it is.
    order: Option<Vec<usize>>,
    factor: f64,
}

/// Scores before the softmax.
struct Scores {
    nodes: Vec<usize>,
    query: ValueId,
    /// Transposed: (..., E, S).
    key: ValueId,
    /// Of the product.
    shape: Shape,
    scale: f64,
    /// What is added, in order, and the batch dimensions that the scores are viewed with then; none
    /// for those of the product.
    masks: Vec<(ValueId, Option<Vec<usize>>)>,
}

/// Whether the last dimension stays the last one.
fn keeps_rows(order: &[usize]) -> bool {
    order.last().is_some_and(|&last| last + 1 == order.len())
}

//! `nn.MultiheadAttention`: projections of queries, keys and values, attention, output projection,
//! as one kernel.
//!
//! ```text
//! q = query Wqᵀ + bq,  k = key Wkᵀ + bk,  v = value Wvᵀ + bv      (rows of in_proj_weight, or three weights)
//! out = attention(q, k, v; a head is E / H neighbouring columns) Woᵀ + bo
//! ```
//! Where query, key and value are one tensor, one product computes all three; where key and value
//! are one, one computes both. Heads are read where the products wrote them: nothing is transposed.

use crate::matrix::linear::product_of_packed;
use crate::support::affine::Affine;
use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::invalid;
use crate::transformer::attention::planned;
use crate::{
    Bf16Support, BuildError, BuildProblem, Cost, Kernel, LayoutCx, Neighbour, NodeReader, Operator,
    PlanCx, PlanError, Planned, RunCx, RunError, ShapeError, TensorValue, ValueSpec, Weight,
    register_op,
};
use inputs::{Inputs, Widths};
use plutino_kernels::attention::{Attention, Head, Operands, Problem, Size, Strides};
use plutino_kernels::gemm::Target;
use plutino_tensor::{DType, Shape, alloc};
use std::ops::Range;

/// <https://pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html>
#[derive(Debug, Clone)]
struct MultiheadAttention {
    query: usize,
    key: usize,
    value: usize,
    /// (L, S), (N H, L, S) or (N, H, L, S): false, or added; true hides (the reverse of
    /// `scaled_dot_product_attention`).
    attn_mask: Option<usize>,
    /// Whether true in `attn_mask` shows a key: pnnx made the node of
    /// `scaled_dot_product_attention`, and left the mask as it was.
    shows: bool,
    /// (N, S), likewise.
    key_padding_mask: Option<usize>,
    embed: usize,
    kdim: usize,
    vdim: usize,
    heads: usize,
    batch_first: bool,
    projection: Projection,
    in_bias: Option<Weight>,
    out: (Weight, Option<Weight>),
    /// A key and a value that follow those of every sequence.
    bias_kv: Option<(Weight, Weight)>,
    /// A key and a value of zeros follow those of every sequence.
    zero: bool,
    weights: Weights,
    /// A residual connection follows as the last input.
    add: bool,
}

/// Whether the attention weights are an output, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weights {
    No,
    /// The mean over all heads, (N, L, S).
    Mean,
    /// (N, H, L, S), `average_attn_weights=False`.
    Heads,
}

#[derive(Debug, Clone)]
enum Projection {
    /// (3 E, E): rows for queries, keys, values.
    Joint(Weight),
    /// One for each.
    Apart(Box<[Weight; 3]>),
}

/// A product that projects an input: rows of it times some rows of a weight.
struct Projected<'a> {
    input: usize,
    /// Rows of the input.
    m: usize,
    weight: &'a Weight,
    rows: Range<usize>,
    /// Which columns it makes, of those of queries, keys and values side by side.
    covers: Range<usize>,
}

fn multihead_attention(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (embed, heads): (usize, usize) = (r.required("embed_dim")?, r.required("num_heads")?);
    if heads == 0 || embed % heads != 0 {
        return Err(r.bad("num_heads", format!("a divisor of embed_dim, {embed}")));
    }
    let (kdim, vdim) = (r.or("kdim", embed)?, r.or("vdim", embed)?);
    let bias = r.or("bias", true)?;
    let batch_first = r.or("batch_first", false)?;
    if r.or("dropout", 0.0)? != 0.0 {
        r.raw("training"); // dropout is the identity in inference
    }
    let zero = r.or("add_zero_attn", false)?;
    let bias_kv = if r.or("add_bias_kv", false)? {
        let shape = [1, 1, embed];
        Some((r.weight("bias_k", &shape)?, r.weight("bias_v", &shape)?))
    } else {
        None
    };
    let three =
        embed.checked_mul(3).ok_or_else(|| r.bad("embed_dim", "a size that fits memory"))?;
    let projection = if r.has_weight("in_proj_weight") {
        Projection::Joint(r.weight("in_proj_weight", &[three, embed])?)
    } else {
        Projection::Apart(Box::new([
            r.weight("q_proj_weight", &[embed, embed])?,
            r.weight("k_proj_weight", &[embed, kdim])?,
            r.weight("v_proj_weight", &[embed, vdim])?,
        ]))
    };
    let in_bias = r.weight_if(bias, "in_proj_bias", &[three])?;
    let out = (
        r.weight("out_proj.weight", &[embed, embed])?,
        r.weight_if(bias, "out_proj.bias", &[embed])?,
    );
    let inputs = inputs::read(r, &Widths { embed, kdim, vdim, batch_first })?;
    let Inputs { query, key, value, attn_mask, key_padding_mask } = inputs;
    // A module of that name reads its masks of bools first.
    let shows = is_fused(r.name()) && attn_mask.is_some_and(|mask| mask > query);
    let weights = match r.output_count() {
        1 => Weights::No,
        // pnnx leaves `average_attn_weights` out; recorded shapes tell.
        2 => match (r.recorded_input(query), r.recorded_output(1)) {
            (Some(x), Some(w)) if w.len() == x.len() + 1 => Weights::Heads,
            _ => Weights::Mean,
        },
        found => return Err(r.error(BuildProblem::Outputs { expected: "1 or 2".into(), found })),
    };
    Ok(Box::new(MultiheadAttention {
        query,
        key,
        value,
        attn_mask,
        shows,
        key_padding_mask,
        embed,
        kdim,
        vdim,
        heads,
        batch_first,
        projection,
        in_bias,
        out,
        bias_kv,
        zero,
        weights,
        add: false,
    }))
}
register_op!(multihead_attention => "nn.MultiheadAttention");

/// Whether a node is one that pnnx made of smaller ones: `attention_3`.
fn is_fused(name: &str) -> bool {
    let number = name.strip_prefix("attention_").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// The sizes of one call.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Of all but masks of bools.
    dtype: DType,
    batch: usize,
    queries: usize,
    /// Keys of the input, and with those that are added.
    keys: usize,
    all_keys: usize,
    /// Whether there is a batch dimension.
    batched: bool,
    batch_first: bool,
}

impl Sizes {
    /// Elements from one sequence to the next, and from one position of a sequence to the next,
    /// where rows of `width` elements follow each other as in the input.
    fn steps(&self, len: usize, width: usize) -> [usize; 2] {
        if self.batch_first { [len * width, width] } else { [width, self.batch * width] }
    }
}

impl MultiheadAttention {
    /// That of the queries, and of all else but masks of bools.
    fn dtype(&self, inputs: &[ValueSpec]) -> Result<DType, ShapeError> {
        let (input, found) = (self.query, TensorValue::at(inputs, self.query)?.dtype());
        match found.is_float() {
            true => Ok(found),
            false => Err(ShapeError::DType { input, expected: "a float".into(), found }),
        }
    }

    fn sizes(&self, inputs: &[ValueSpec]) -> Result<Sizes, ShapeError> {
        let dtype = self.dtype(inputs)?;
        let mut found = [(0, 0, false); 3];
        let wanted = [(self.query, self.embed), (self.key, self.kdim), (self.value, self.vdim)];
        for (slot, (input, width)) in found.iter_mut().zip(wanted) {
            let t = TensorValue::at(inputs, input)?;
            if t.dtype() != dtype {
                let expected = dtype.to_string();
                return Err(ShapeError::DType { input, expected, found: t.dtype() });
            }
            let dims = t.shape().dims();
            *slot = match *dims {
                [len, _] => (1, len, false),
                [batch, len, _] if self.batch_first => (batch, len, true),
                [len, batch, _] => (batch, len, true),
                _ => {
                    let found = t.shape().clone();
                    return Err(ShapeError::Rank { input, expected: "2 or 3".into(), found });
                }
            };
            if dims.last() != Some(&width) {
                let (dim, expected) = (dims.len() - 1, width.to_string());
                return Err(ShapeError::Size { input, dim, expected, found: t.shape().clone() });
            }
        }
        let [(batch, queries, batched), (kb, keys, k_batched), (vb, values, v_batched)] = found;
        if (kb, k_batched, vb, v_batched, values) != (batch, batched, batch, batched, keys) {
            return Err(invalid(format!(
                "query, key and value are {batch} x {queries}, {kb} x {keys} and {vb} x {values}: the batch must \
                 be the same, and there must be a value for each key"
            )));
        }
        let all_keys = keys + usize::from(self.bias_kv.is_some()) + usize::from(self.zero);
        let batch_first = self.batch_first || !batched;
        Ok(Sizes { dtype, batch, queries, keys, all_keys, batched, batch_first })
    }

    /// The fewest products that make queries, keys and values.
    fn projections(&self, s: &Sizes) -> Vec<Projected<'_>> {
        let e = self.embed;
        let q_rows = s.batch.saturating_mul(s.queries);
        let k_rows = s.batch.saturating_mul(s.keys);
        let [query, key, value] = [(self.query, q_rows), (self.key, k_rows), (self.value, k_rows)];
        match &self.projection {
            Projection::Joint(weight) => {
                let of = |(input, m): (usize, usize), covers: Range<usize>| Projected {
                    input,
                    m,
                    weight,
                    rows: covers.clone(),
                    covers,
                };
                match (self.query == self.key, self.key == self.value) {
                    (true, true) => vec![of(query, 0..3 * e)],
                    (_, true) => vec![of(query, 0..e), of(key, e..3 * e)],
                    _ => vec![of(query, 0..e), of(key, e..2 * e), of(value, 2 * e..3 * e)],
                }
            }
            Projection::Apart(weights) => {
                let inputs = [query, key, value].into_iter().enumerate();
                let each = inputs.zip(&**weights).map(|((i, (input, m)), weight)| {
                    let covers = i * e..(i + 1) * e;
                    Projected { input, m, weight, rows: 0..e, covers }
                });
                each.collect()
            }
        }
    }

    fn problem(&self, s: &Sizes, q: usize, k: usize, v: usize) -> Problem {
        let depth = self.embed / self.heads;
        let out = s.steps(s.queries, self.embed);
        let size = Size { queries: s.queries, keys: s.all_keys, depth, values: depth };
        let scale = (depth as f64).sqrt().recip();
        let weights = self.weights != Weights::No;
        // PyTorch gets at the weights by a plain softmax.
        let unattended = if weights { f32::NAN } else { 0.0 };
        let (groups, heads, group) = match self.weights {
            Weights::No | Weights::Mean => (s.batch, self.heads, out[0]),
            // Each head is a group of its own, so that weights are the mean of one. Its results lie
            // beside those of the head before it, be that of the same sequence or not (see
            // `plan::chunks`).
            Weights::Heads => (s.batch.saturating_mul(self.heads), 1, depth),
        };
        let (mask, out) = ([0, 0], [group, depth, out[1]]);
        let strides = Strides { q, k, v, mask, second: mask, out };
        Problem { size, strides, groups, heads, scale, unattended, weights }
    }
}

impl Operator for MultiheadAttention {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let s = self.sizes(inputs)?;
        self.masks(&s, inputs)?;
        let dtype = s.dtype;
        let output = TensorValue::at(inputs, self.query)?.shape().clone();
        if self.add {
            let residual = TensorValue::at(inputs, inputs.len().saturating_sub(1))?;
            if *residual.shape() != output || residual.dtype() != dtype {
                return Err(invalid(format!("cannot add {} to {output}{dtype}", residual.spec)));
            }
        }
        let mut outputs = vec![ValueSpec::tensor(dtype, output)];
        if self.weights != Weights::No {
            let batch = s.batched.then_some(s.batch);
            let heads = (self.weights == Weights::Heads).then_some(self.heads);
            let shape: Shape =
                batch.into_iter().chain(heads).chain([s.queries, s.all_keys]).collect();
            shape.checked_numel()?;
            outputs.push(ValueSpec::tensor(dtype, shape));
        }
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        match self.dtype(cx.inputs)? {
            DType::F64 => wide::plan(self, cx),
            half if halves::is_half(half) => halves::widened(cx, |cx| plan::plan(self, cx)),
            _ => plan::plan(self, cx),
        }
    }

    fn absorb(&self, neighbour: &Neighbour, _: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        match neighbour {
            Neighbour::Add if !self.add && self.weights == Weights::No => {
                Some(Box::new(Self { add: true, ..self.clone() }))
            }
            _ => None,
        }
    }

    fn bf16(&self, cx: &LayoutCx<'_>) -> Bf16Support {
        let Ok(whole) = self.sizes(cx.inputs) else { return Bf16Support::default() };
        let (s, _) = plan::chunk(self, &whole, cx.setting.isa);
        let projections = self.projections(&s);
        let takes = |p: &Projected<'_>| {
            let k = p.weight.dims().get(1).copied().unwrap_or(0);
            let sizes = [p.m, k, p.rows.len()];
            let product = product_of_packed(&cx.setting, p.weight.spec.dtype, sizes, None);
            product.is_ok_and(|product| product.bf16_matrices().x)
        };
        let all = |input: &usize| projections.iter().filter(|p| p.input == *input).all(takes);
        let of_f32 = [self.query, self.key, self.value].into_iter();
        let inputs = of_f32.filter(|_| whole.dtype == DType::F32).filter(all).collect();
        Bf16Support { inputs, ..Bf16Support::default() }.of_plain()
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.sizes(inputs).map_or(0, |s| {
            let product = |rows: usize, k: usize, n: usize| {
                [s.batch, rows, k, n].iter().fold(2u64, |all, &n| all.saturating_mul(n as u64))
            };
            let e = self.embed;
            product(s.queries, e, e)
                .saturating_mul(2) // in and out
                .saturating_add(product(s.keys, self.kdim, e))
                .saturating_add(product(s.keys, self.vdim, e))
                .saturating_add(crate::transformer::attention::flops(&self.problem(&s, e, e, e)))
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

mod inputs;
mod masks;
mod native;
mod plan;
mod wide;

#[cfg(test)]
mod tests;

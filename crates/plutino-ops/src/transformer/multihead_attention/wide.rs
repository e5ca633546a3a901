//! f64: the products and attention of any float, without packed weights; the batch is one piece.

use super::masks::{self, MaskSum, Place};
use super::plan::{Memory, ProjectedRows};
use super::*;
use plutino_kernels::attention::attention_any;
use plutino_kernels::gemm::{AnyMatrix, gemm_any};
use plutino_kernels::{Isa, Par};
use plutino_tensor::Tensor;

/// Plans the memory between the products.
pub(super) fn plan(op: &MultiheadAttention, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
    let s = op.sizes(cx.inputs)?;
    let mut memory = Memory::default();
    let (mut products, mut places) = (Vec::new(), Vec::new());
    let in_bias = op.in_bias.as_ref().map(Weight::tensor).transpose()?;
    for Projected { input, m, weight, rows, covers } in op.projections(&s) {
        let at = memory.take(m.saturating_mul(rows.len()));
        places.push((covers.clone(), at));
        let bias = in_bias.clone().map(|bias| (bias, covers.start));
        products.push((leaf(cx.inputs, input), at, Affine::new(cx.isa, weight, (m, rows), bias)?));
    }
    let rows = ProjectedRows::new(op, &s, &places, &mut memory)?;
    let row = |w: &Weight| Ok::<_, PlanError>(w.tensor()?.as_slice::<f64>()?.to_vec());
    let bias_kv =
        op.bias_kv.as_ref().map(|(k, v)| Ok::<_, PlanError>((row(k)?, row(v)?))).transpose()?;
    let mask = MaskSum::plan::<f64>(op, &s, cx, |len| memory.take(len))?;
    let (problem, heads) = rows.heads(op, (&s, &s), mask.as_ref())?;
    let q_rows = s.batch.saturating_mul(s.queries);
    let bias = op.out.1.as_ref().map(|bias| Ok::<_, PlanError>((bias.tensor()?, 0))).transpose()?;
    let out = Affine::new(cx.isa, &op.out.0, (q_rows, 0..op.embed), bias)?;
    let mixed = memory.take(q_rows.saturating_mul(op.embed));
    let residual = op.add.then(|| leaf(cx.inputs, cx.inputs.len().saturating_sub(1)));
    let scratch = memory.end.saturating_mul(size_of::<f64>());
    let weights = op.weights != Weights::No;
    let kernel = Run {
        sizes: s,
        products,
        rows,
        bias_kv,
        mask,
        problem,
        heads,
        weights,
        mixed,
        out,
        residual,
    };
    Ok(Planned::new(kernel).with_scratch(scratch))
}

/// Rows times some rows of a weight, and a bias.
struct Affine {
    isa: Isa,
    rows: usize,
    /// (outputs, inputs)
    weight: Tensor,
    /// The outputs.
    columns: Range<usize>,
    /// Those of more columns, and where these begin.
    bias: Option<(Tensor, usize)>,
}

impl Affine {
    fn new(
        isa: Isa,
        weight: &Weight,
        (rows, columns): (usize, Range<usize>),
        bias: Option<(Tensor, usize)>,
    ) -> Result<Self, PlanError> {
        let weight = weight.tensor()?;
        let all = [Some(&weight), bias.as_ref().map(|(bias, _)| bias)];
        if all.into_iter().flatten().any(|tensor| tensor.dtype() != DType::F64) {
            return Err(PlanError::Unsupported("f64 times weights of another dtype".into()));
        }
        Ok(Self { isa, rows, weight, columns, bias })
    }

    /// Computes `rows` times as many columns; `residual` is as long, and added.
    fn run(
        &self,
        par: &Par,
        x: &[f64],
        residual: Option<&[f64]>,
        y: &mut [f64],
    ) -> Result<(), RunError> {
        let (k, n) = (self.weight.shape().dims().last().copied().unwrap_or(0), self.columns.len());
        let weight = &self.weight.as_slice::<f64>()?[self.columns.start * k..];
        let bias = match &self.bias {
            Some((bias, first)) => Some(&bias.as_slice::<f64>()?[*first..]),
            None => None,
        };
        let a = AnyMatrix { data: x, strides: (k, 1) };
        let b = AnyMatrix { data: weight, strides: (1, k) };
        let store = |i: usize, sum: f64| {
            sum + bias.map_or(0.0, |bias| bias[i % n]) + residual.map_or(0.0, |r| r[i])
        };
        gemm_any(self.isa, par, (self.rows, n, k), a, b, &store, &mut y[..self.rows * n]);
        Ok(())
    }
}

struct Run {
    sizes: Sizes,
    /// Input leaf, place of the result, product.
    products: Vec<(usize, usize, Affine)>,
    rows: ProjectedRows,
    bias_kv: Option<(Vec<f64>, Vec<f64>)>,
    mask: Option<MaskSum>,
    problem: Problem,
    heads: Vec<Head>,
    weights: bool,
    /// Place of what attention yields.
    mixed: usize,
    out: Affine,
    residual: Option<usize>,
}

impl Kernel for Run {
    fn name(&self) -> &str {
        "attention.multihead.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let memory = cx.take_scratch::<f64>()?;
        if let Some(sum) = &self.mask
            && let Place::Scratch(at) = sum.place
        {
            sum.add_up::<f64>(&cx.inputs, &mut memory[at..])?;
        }
        let y = cx.outputs.take::<f64>(0)?;
        let weights = if self.weights { Some(cx.outputs.take::<f64>(1)?) } else { None };
        for (leaf, at, product) in &self.products {
            product.run(cx.par, cx.inputs.get(*leaf)?, None, &mut memory[*at..])?;
        }
        self.rows.extend(&self.sizes, self.bias_kv.as_ref(), memory);
        let (before, mixed) = memory.split_at_mut(self.mixed);
        let mask = masks::read(self.mask.as_ref(), &cx.inputs, before)?;
        let x = Operands { q: before, k: before, v: before, mask, out: mixed, weights };
        attention_any::<f64>(&self.problem, &self.heads, x)?;
        let residual = self.residual.map(|leaf| cx.inputs.get(leaf)).transpose()?;
        self.out.run(cx.par, mixed, residual, y)
    }
}

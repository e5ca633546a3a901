//! x Wᵀ + b with weights of the model file, as a step of a larger kernel (attention, recurrent
//! layers).

use crate::{PlanCx, PlanError, Weight};
use plutino_kernels::Par;
use plutino_kernels::gemm::{
    Bias, Epilogue, Gemm, Operand, PackedMatrix, Product, Side, Size, Strided, Summand, Target,
};
use std::ops::Range;
use std::sync::Arc;

/// A planned product of `m` rows with some rows of a weight (outputs x inputs).
pub(crate) struct Affine {
    gemm: Gemm,
    weight: Arc<PackedMatrix>,
    bias: Option<Vec<f32>>,
}

impl Affine {
    /// Plans it. Rows of the weight are the columns of the result, as are the elements of the bias
    /// in the same places.
    pub(crate) fn new(
        cx: &PlanCx<'_>,
        m: usize,
        weight: &Weight,
        rows: Range<usize>,
        bias: Option<&Weight>,
    ) -> Result<Self, PlanError> {
        Self::planned(cx, m, weight, rows.clone(), bias.map(|b| (b, rows.start)))
    }

    /// Plans a product with all rows of a weight, whose bias begins at element `first` of a longer
    /// one.
    pub(crate) fn apart(
        cx: &PlanCx<'_>,
        m: usize,
        weight: &Weight,
        bias: Option<&Weight>,
        first: usize,
    ) -> Result<Self, PlanError> {
        let rows = 0..weight.dims().first().copied().unwrap_or(0);
        Self::planned(cx, m, weight, rows, bias.map(|b| (b, first)))
    }

    fn planned(
        cx: &PlanCx<'_>,
        m: usize,
        weight: &Weight,
        rows: Range<usize>,
        bias: Option<(&Weight, usize)>,
    ) -> Result<Self, PlanError> {
        let target = Target::this(cx.isa);
        let k = weight.dims().get(1).copied().unwrap_or(1);
        let n = rows.len();
        let outside =
            || PlanError::Unsupported(format!("rows {rows:?} of weight '{}'", weight.name));
        let packing = match weight.dims().first() {
            Some(&all) if rows == (0..all) => format!("gemm.right.{}", cx.isa), // as nn.Linear packs
            _ => format!("gemm.right.{}.{rows:?}", cx.isa),
        };
        let weight = cx.packs.get(&weight.name, &packing, || -> Result<_, PlanError> {
            weight.read_f32(|all| {
                if rows.end.checked_mul(k).is_none_or(|end| end > all.len()) {
                    return Err(outside());
                }
                let right = Strided::right(all.part(rows.start * k..rows.end * k), (k, n), (1, k));
                Ok(PackedMatrix::of(target, Side::Right, &right, &Par::serial())?)
            })?
        })?;
        let part = |(b, first): (&Weight, usize)| {
            b.to_f32()?.get(first..first + n).map(<[f32]>::to_vec).ok_or_else(outside)
        };
        let bias = bias.map(part).transpose()?;
        let gemm = Gemm::new(target, cx.threads, Size { batch: 1, m, n, k }, (false, true));
        Ok(Self { gemm, weight, bias })
    }

    /// Elements of scratch memory of [`Affine::run`].
    pub(crate) fn scratch(&self, threads: usize) -> usize {
        self.gemm.scratch(threads)
    }

    /// Columns of the result.
    pub(crate) fn columns(&self) -> usize {
        self.gemm.size().n
    }

    /// Elements of the result, where its rows follow each other without gaps.
    pub(crate) fn len(&self) -> usize {
        self.gemm.size().m.saturating_mul(self.gemm.size().n)
    }

    /// `out[i * stride..] = x[i] Wᵀ + b (+ summand)` for all rows; those of `x` follow each other.
    pub(crate) fn run(
        &self,
        par: &Par,
        x: &[f32],
        out: &mut [f32],
        stride: usize,
        summand: Summand<'_>,
        scratch: &mut [f32],
    ) {
        let Size { m, k, .. } = self.gemm.size();
        let product = Product {
            a: Operand::Source(Strided::left(x, (m, k), (k, 1))),
            b: Operand::Packed(&self.weight),
            epilogue: Epilogue {
                bias: self.bias.as_deref().map_or(Bias::None, Bias::Cols),
                summand,
                activation: None,
            },
        };
        self.gemm.run(par, &product, out, stride, scratch);
    }
}

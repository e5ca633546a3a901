//! x Wᵀ + b with weights of the model file, as a step of a larger kernel (attention, recurrent
//! layers).

use crate::matrix::linear::{plan_error, product_of_packed, run_error};
use crate::{PlanCx, PlanError, RunError, Weight};
use plutino_kernels::Par;
use plutino_kernels::gemm::{Bf16Matrices, LinearArgs, LinearProduct, Matrix, PackedMatrix};
use plutino_tensor::SourcePart;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A planned product of `m` rows with some rows of a weight (outputs x inputs).
pub(crate) struct Affine {
    product: LinearProduct,
    weight: Arc<PackedMatrix>,
    bias: Option<Vec<f32>>,
}

impl Affine {
    /// Plans it. Rows of the weight are the columns of the result; their bias begins at an element
    /// of what may be a longer one.
    pub(crate) fn new(
        cx: &PlanCx<'_>,
        m: usize,
        weight: &Weight,
        rows: Range<usize>,
        bias: Option<(&Weight, usize)>,
    ) -> Result<Self, PlanError> {
        let k = weight.dims().get(1).copied().unwrap_or(1);
        let n = rows.len();
        let product = product_of_packed(&cx.setting, weight.spec.dtype, [m, k, n], None)?;
        let outside =
            || PlanError::Unsupported(format!("rows {rows:?} of weight '{}'", weight.name));
        let name = match weight.dims().first() {
            Some(&all) if rows == (0..all) => Cow::Borrowed(&*weight.name), // as nn.Linear packs
            _ => Cow::Owned(format!("{} rows {rows:?}", weight.name)),
        };
        let weight = cx.packs.get(&name, product.pack_key(), || -> Result<_, PlanError> {
            weight.read_f32(|all| {
                let own = rows.start.saturating_mul(k)..rows.end.saturating_mul(k);
                let mut own = SourcePart::new(all, own).ok_or_else(outside)?;
                product.pack_from(&mut own, (1, k), &Par::serial()).map_err(plan_error)
            })?
        })?;
        let part = |(b, first): (&Weight, usize)| {
            b.to_f32()?.get(first..first + n).map(<[f32]>::to_vec).ok_or_else(outside)
        };
        let bias = bias.map(part).transpose()?;
        Ok(Self { product, weight, bias })
    }

    /// The same with these matrices as bf16, which must be among [`Affine::bf16_matrices`].
    pub(crate) fn with_bf16(self, bf16: Bf16Matrices) -> Result<Self, PlanError> {
        Ok(Self { product: self.product.with_bf16(bf16).map_err(plan_error)?, ..self })
    }

    /// Which matrices can be bf16.
    pub(crate) fn bf16_matrices(&self) -> Bf16Matrices {
        self.product.bf16_matrices()
    }

    /// Elements of scratch memory of [`Affine::run`].
    pub(crate) fn scratch(&self) -> usize {
        self.product.workspace() / size_of::<f32>()
    }

    /// Columns of the result.
    pub(crate) fn columns(&self) -> usize {
        let [_, _, n] = self.product.sizes();
        n
    }

    /// Elements of the result, where its rows follow each other without gaps.
    pub(crate) fn len(&self) -> usize {
        let [m, _, n] = self.product.sizes();
        m.saturating_mul(n)
    }

    /// `out[i * stride..] = x[i] Wᵀ + b (+ residual)` for all rows; those of `x` follow each other.
    pub(crate) fn run(
        &self,
        par: &Par,
        x: &[f32],
        out: &mut [f32],
        stride: usize,
        residual: Option<&[f32]>,
        scratch: &mut [f32],
    ) -> Result<(), RunError> {
        let args = LinearArgs {
            x,
            w: Matrix::Packed(&self.weight),
            bias: self.bias.as_deref(),
            residual,
            y: out,
            stride,
            workspace: bytemuck::cast_slice_mut(scratch),
        };
        self.product.run(args, par).map_err(run_error)
    }
}

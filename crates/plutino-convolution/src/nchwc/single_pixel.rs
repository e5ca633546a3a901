//! 1x1 convolution of single pixels: squeeze and excite, heads of classifiers.
//!
//! ```text
//! y[n, o] = act(bias[o] + residual[n, o] + sum over c of x[n, c] w[o, c])
//! ```
//! Whole blocks of channels of one pixel lie as a row of features does: this is the matrix product
//! of a linear layer, with its register tile, loops and packed weights (which it shares), and a
//! batch makes its rows.

use super::pointwise;
use crate::algorithm::{Bound, Operands};
use crate::choose::Request;
use crate::cost;
use crate::post_ops::ResidualOrder;
use crate::problem::ConvError;
use plutino_cpu::{PackKey, Par};
use plutino_products::gemm::{LinearArgs, LinearProduct, Matrix, MatrixUnit, PackedMatrix, Target};
use plutino_tensor::FloatSource;

/// Of the time of tiles of pixels, of which there would be one: weights are read as fast, and used
/// for several rows.
const OF_POINTWISE: f64 = 0.95;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct SinglePixel {
    product: LinearProduct,
    cycles: f64,
}

/// None where blocks are not whole, or the residual comes after the activation.
pub(crate) fn bind(request: &Request<'_>) -> Option<SinglePixel> {
    let &Request { problem, post_ops, isa, threads, .. } = request;
    let window = super::window::Window::of(&problem)?;
    let sizes @ [_, k, n] = [problem.batch(), problem.in_channels(), problem.out_channels()];
    let fits = window.is_pointwise()
        && window.pixels() == 1
        && problem.groups() == 1
        && [k, n].iter().all(|c| c.is_multiple_of(isa.lanes()))
        && !post_ops.factors
        && post_ops.residual != Some(ResidualOrder::AfterActivation);
    let target = Target::this(isa);
    // What decides is the same for any number of images, where their bits must be.
    let images = if request.batch_invariant { 1 } else { problem.batch() };
    let judged = Request { problem: problem.of_images(images), ..*request };
    let mut cycles = OF_POINTWISE * pointwise::cycles(&judged);
    let unit = request.unit.filter(|unit| match *unit {
        MatrixUnit::Pairs(pairs) => pairs.isa() == isa,
        // A batch of few images reads more weights than it has rows to multiply them with.
        MatrixUnit::Tiles(_, terms) => {
            let on_tiles = cost::OnTiles::of_product(terms, [images, k, n]).cycles(isa);
            let pays = on_tiles < cycles;
            cycles = if pays { on_tiles } else { cycles };
            pays
        }
        _ => false,
    });
    let product = match unit {
        Some(unit) => {
            LinearProduct::plan_on_unit(target, threads, sizes, unit, post_ops.activation)
        }
        None => LinearProduct::plan(target, threads, sizes, true, post_ops.activation),
    };
    fits.then_some(SinglePixel { product: product.ok()?, cycles })
}

impl Bound for SinglePixel {
    type Weights = PackedMatrix;

    fn cycles(&self) -> f64 {
        self.cycles
    }

    fn unit(&self) -> Option<MatrixUnit> {
        self.product.unit()
    }

    fn pack_key(&self) -> PackKey {
        self.product.pack_key()
    }

    fn pack(&self, weight: &mut dyn FloatSource, par: &Par) -> Result<PackedMatrix, ConvError> {
        let [_, k, _] = self.product.sizes();
        Ok(self.product.pack_from(weight, (1, k), par)?)
    }

    fn bytes(weights: &PackedMatrix) -> usize {
        weights.bytes()
    }

    fn workspace(&self) -> usize {
        self.product.workspace()
    }

    fn run(
        &self,
        weights: &PackedMatrix,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let residual = operands.residual(ResidualOrder::BeforeActivation);
        let Operands { x, bias, y, .. } = operands;
        let [_, _, stride] = self.product.sizes();
        let (w, bias) = (Matrix::Packed(weights), Some(bias).filter(|b| !b.is_empty()));
        self.product.run(LinearArgs { x, w, bias, residual, y, stride, workspace }, par)?;
        Ok(())
    }
}

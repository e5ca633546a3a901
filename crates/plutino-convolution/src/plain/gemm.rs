//! Kernel 1, stride 1, no padding: a matrix product with the pixels of each image as they are.
//!
//! ```text
//! y[n, g, o, p] = sum over c of w[g, o, c] x[n, g, c, p]        (out x in) times (in x pixels)
//! ```
//! Register tile and loops are those of matrix products (`plutino-products/src/gemm`), the weights
//! packed as its left operand. For images in one or three dimensions, and where layers around it
//! are plain; figures in docs/decisions/005-matrix-products.md.

use super::products::{self, MatrixWeights, Plan};
use crate::algorithm::{Bound, Operands};
use crate::choose::Request;
use crate::problem::{Axis, ConvError};
use plutino_cpu::{PackKey, Par};
use plutino_products::gemm::Strided;
use plutino_tensor::FloatSource;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct PixelProducts(Plan);

pub(crate) fn bind(request: &Request<'_>) -> Option<PixelProducts> {
    let fits = request.problem.axes().iter().all(Axis::is_pointwise);
    Plan::new(request, usize::MAX).filter(|_| fits).map(PixelProducts)
}

impl Bound for PixelProducts {
    type Weights = MatrixWeights;

    fn cycles(&self) -> f64 {
        // Nothing is copied: ahead of im2col.
        0.9 * products::cycles(&self.0.problem, self.0.isa())
    }

    fn pack_key(&self) -> PackKey {
        products::pack_key("conv.matrix", self.0.isa())
    }

    fn pack(&self, weight: &mut dyn FloatSource, par: &Par) -> Result<MatrixWeights, ConvError> {
        self.0.pack(weight, par)
    }

    fn bytes(weights: &MatrixWeights) -> usize {
        weights.bytes()
    }

    fn workspace(&self) -> usize {
        self.0.scratch().saturating_mul(size_of::<f32>())
    }

    fn run(
        &self,
        weights: &MatrixWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        self.0.run(weights, operands, workspace, |images, scratch| {
            // The pixels of a group's channels are the right operand as they are.
            let (channels, plane) = (self.0.problem.group_in(), self.0.problem.in_plane());
            let x = images.x;
            let pixels = |i: usize| {
                let group = &x[i * channels * plane..(i + 1) * channels * plane];
                Strided::right(group, (channels, plane), (plane, 1))
            };
            images.run(par, pixels, scratch);
        })
    }
}

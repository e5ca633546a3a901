//! Any window, stride, dilation, padding mode and number of groups: a matrix product whose right
//! operand is never built, its panels packed straight from the image (implicit im2col).
//!
//! ```text
//! y[n, g, o, p] = sum over (c, t) of w[g, o, (c, t)]
//!                                    x[n, g, c, p * stride + t * dilation - padding]
//! ```
//! How the image is laid out for it is told in `windows.rs`. Register tile and loops are those of
//! matrix products; figures in docs/decisions/005-matrix-products.md.

use super::products::{self, MatrixWeights, Plan};
use super::windows::{Phases, Windows};
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::problem::ConvError;
use plutino_cpu::{PackKey, Par};
use plutino_tensor::FloatSource;

/// Bytes of laid out images that are kept at a time, where the batch leaves a choice.
const IMAGE_BYTES: usize = 2 << 20;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct WindowProducts {
    plan: Plan,
    phases: Phases,
}

pub(crate) fn bind(request: &Request<'_>) -> Option<WindowProducts> {
    if request.problem.is_transposed() {
        return None;
    }
    let phases = Phases::new(&request.problem);
    let images = (IMAGE_BYTES / size_of::<f32>()).checked_div(phases.len(1));
    let plan = Plan::new(request, images.unwrap_or(usize::MAX))?;
    Some(WindowProducts { plan, phases })
}

impl WindowProducts {
    /// f32 of the laid out images, in whole cache lines.
    fn laid_out(&self) -> usize {
        self.phases.len(self.plan.images()).next_multiple_of(16)
    }
}

impl Bound for WindowProducts {
    type Weights = MatrixWeights;

    fn cycles(&self) -> f64 {
        products::cycles(&self.plan.problem, self.plan.isa())
    }

    fn pack_key(&self) -> PackKey {
        products::pack_key("conv.matrix", self.plan.isa())
    }

    fn pack(&self, weight: &mut dyn FloatSource, par: &Par) -> Result<MatrixWeights, ConvError> {
        self.plan.pack(weight, par)
    }

    fn bytes(weights: &MatrixWeights) -> usize {
        weights.bytes()
    }

    fn workspace(&self) -> usize {
        self.laid_out().saturating_add(self.plan.scratch()).saturating_mul(size_of::<f32>())
    }

    fn run(
        &self,
        weights: &MatrixWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let (laid_out, rest) = take::<f32>(workspace, self.laid_out())?;
        self.plan.run(weights, operands, rest, |part, scratch| {
            let images = self.phases.lay_out(par, part.x, laid_out);
            let groups = self.plan.problem.groups();
            let windows = |i: usize| Windows::new(&self.phases, images, i / groups, i % groups);
            part.run(par, windows, scratch);
        })
    }
}

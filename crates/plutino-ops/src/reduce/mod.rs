//! Reductions: what happens to dimensions, for all of them.
//!
//! - `fold`: sums, means, products, norms, variances;
//! - `count`: elements that are not zero, sums and means without NaN;
//! - `extremum`: greatest and least elements and their positions;
//! - `norms`: those of `torch.linalg`, by the sums and extrema of the others, or by singular
//!   values;
//! - `order`: medians, k-th elements, modes; `quantile`: quantiles;
//! - `scan`: cumulative sums and products, extrema, log-sums;
//! - `sum_to_size`: sums over what broadcasting would repeat;
//! - `truth`: whether any element, or each, is not zero.

mod count;
mod extremum;
mod fold;
mod norms;
mod order;
mod quantile;
mod scan;
mod sum_to_size;
mod truth;

use crate::{
    BuildError, Kernel, LayoutOf, LayoutSupport, NodeReader, Planned, RunCx, RunError, ShapeError,
    TensorValue,
};
use plutino_kernels::reduce::Fold;
use plutino_tensor::Shape;

/// Which dimensions are reduced.
#[derive(Debug, Clone)]
pub(crate) struct Dims {
    /// Empty: all.
    dims: Vec<i64>,
    keepdim: bool,
}

impl Dims {
    /// `dim` (missing, `None` or `()`: all) and `keepdim`.
    pub(crate) fn read(r: &mut NodeReader<'_>) -> Result<Self, BuildError> {
        let dims = r.optional("dim")?.unwrap_or_default();
        Ok(Self { dims, keepdim: r.or("keepdim", false)? })
    }

    /// Whether these dimensions of a tensor are reduced, and no others.
    fn are_exactly(&self, shape: &Shape, dims: &[usize]) -> bool {
        let known = |&dim: &i64| shape.dim(dim).is_ok_and(|d| dims.contains(&d));
        self.dims.len() == dims.len() && self.dims.iter().all(known)
    }

    /// The layouts of what is made of all pixels of each channel, in blocks of so many; plain where
    /// something else is reduced.
    fn of_pixels(&self, x: &TensorValue, block: usize) -> LayoutSupport {
        let shape = x.shape();
        let spatial = &[2, 3, 4][..shape.rank().saturating_sub(2).min(3)];
        let pixels = x.spec.may_lie_in_blocks() && self.are_exactly(shape, spatial);
        match pixels && shape.numel() > 0 {
            true if self.keepdim => LayoutSupport::COMMON,
            // The results of whole blocks lie as those of planes do.
            true if shape[1].is_multiple_of(block) => {
                LayoutSupport { inputs: &[LayoutOf::Own], outputs: &[LayoutOf::Plain] }
            }
            _ => LayoutSupport::PLAIN,
        }
    }

    /// First dimensions that are not reduced.
    fn kept(&self, shape: &Shape) -> usize {
        let reduced = self.dims.iter().filter_map(|&dim| shape.dim(dim).ok());
        reduced.min().unwrap_or(0)
    }

    /// Which elements are reduced together, and the shape of the result.
    pub(crate) fn bind(&self, shape: &Shape) -> Result<(Fold, Shape), ShapeError> {
        let mut reduced = vec![self.dims.is_empty(); shape.rank().max(1)];
        for &dim in &self.dims {
            if std::mem::replace(&mut reduced[shape.dim(dim)?], true) {
                return Err(ShapeError::Invalid(format!("dimension {dim} is named twice")));
            }
        }
        let fold = Fold::new(shape, |d| reduced[d]);
        let sizes = shape.iter().zip(&reduced);
        let result = if self.keepdim {
            sizes.map(|(&size, &gone)| if gone { 1 } else { size }).collect()
        } else {
            sizes.filter(|(_, gone)| !**gone).map(|(&size, _)| size).collect()
        };
        Ok((fold, result))
    }
}

/// A kernel that is a closure.
struct Closure<F> {
    name: String,
    run: F,
}

impl<F: Fn(&mut RunCx<'_>) -> Result<(), RunError> + Send + Sync> Kernel for Closure<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        (self.run)(cx)
    }
}

/// Plans a closure.
pub(crate) fn planned(
    name: impl Into<String>,
    run: impl Fn(&mut RunCx<'_>) -> Result<(), RunError> + Send + Sync + 'static,
) -> Planned {
    Planned::new(Closure { name: name.into(), run })
}

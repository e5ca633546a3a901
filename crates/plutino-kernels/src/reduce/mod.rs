//! Reductions over any set of dimensions, and scans along one.
//!
//! [`Fold`] sorts out which elements are reduced together; the kernels only see rows (reduced
//! elements side by side) or columns (kept elements side by side):
//!
//! - `vector`: sums, means, extrema and norms of f32, vectorised, compensated;
//! - `any`: every dtype and every other reduction, as a left fold in a wide type;
//! - `scan`: cumulative sums, products, extrema and log-sums.
//!
//! An output is always reduced by one thread in one order: results do not depend on the thread
//! count.

pub(crate) mod algebra;
mod any;
mod scan;
#[cfg(test)]
mod tests;
mod vector;

pub use any::{
    arg_extremum, extremum, first_zeros, fold_any, logsumexp, power_norm, product, sum, variance,
};
pub use scan::{Scan, running_extremum, running_logsumexp, scan, scan_any};
pub use vector::{Reduction, logsumexp_f32, reduce_f32, variance_f32};

/// A run of dimensions that lie evenly in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dim {
    size: usize,
    stride: usize,
}

/// Which elements of a dense tensor are reduced together.
///
/// Neighbouring dimensions that are both kept or both reduced count as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fold {
    /// Kept dimensions, outermost first, without `inner`.
    kept: Vec<Dim>,
    /// Reduced dimensions, outermost first, without `row`.
    reduced: Vec<Dim>,
    /// Reduced elements side by side; 1 where the innermost dimension is kept.
    row: usize,
    /// Kept elements side by side; 1 where the innermost dimension is reduced.
    inner: usize,
    outputs: usize,
    count: usize,
}

impl Fold {
    /// Reduces the dimensions of `shape` for which `reduced` holds.
    pub fn new(shape: &[usize], reduced: impl Fn(usize) -> bool) -> Self {
        let mut groups: Vec<(bool, Dim)> = Vec::new(); // innermost first
        let mut stride = 1usize;
        let (mut outputs, mut count) = (1usize, 1usize);
        for (d, &size) in shape.iter().enumerate().rev() {
            let flag = reduced(d);
            let total = if flag { &mut count } else { &mut outputs };
            *total = total.saturating_mul(size);
            match groups.last_mut() {
                _ if size == 1 => {}
                Some((last, dim)) if *last == flag => dim.size = dim.size.saturating_mul(size),
                _ => groups.push((flag, Dim { size, stride })),
            }
            stride = stride.saturating_mul(size);
        }
        let side_by_side = |flag: bool| match groups.first() {
            Some(&(first, dim)) if first == flag => dim.size,
            _ => 1,
        };
        let (row, inner) = (side_by_side(true), side_by_side(false));
        let outer = |flag: bool| {
            groups.iter().skip(1).rev().filter(|g| g.0 == flag).map(|g| g.1).collect::<Vec<_>>()
        };
        Self { kept: outer(false), reduced: outer(true), row, inner, outputs, count }
    }

    /// Number of results.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Number of elements that make one result.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of elements.
    pub fn inputs(&self) -> usize {
        self.outputs.saturating_mul(self.count)
    }

    /// Reduced rows (or single elements, where `inner` is not 1) of an output.
    fn runs(&self) -> usize {
        self.count / self.row.max(1)
    }

    /// # Panics
    /// Where the slices are not as long as the shape says.
    fn check(&self, input: usize, output: usize) {
        assert_eq!(input, self.inputs(), "input of a reduction");
        assert_eq!(output, self.outputs, "output of a reduction");
    }
}

/// The position of element `index` (row-major) of these dimensions.
#[inline(always)]
fn offset(dims: &[Dim], mut index: usize) -> usize {
    match dims {
        [] => 0,
        [dim] => index * dim.stride,
        _ => {
            let mut at = 0;
            for dim in dims.iter().rev() {
                at += index % dim.size * dim.stride;
                index /= dim.size;
            }
            at
        }
    }
}

//! Matrix products of any dtype, with wide sums: for dtypes without a register tile.

use plutino_cpu::Par;
use plutino_cpu::number::{Number, Wide};
use plutino_cpu::par::stop::Watch;

/// Columns whose sums are in the making.
const COLUMNS: usize = 256;

/// A matrix in memory: element (i, j) at `i * strides.0 + j * strides.1`.
#[derive(Debug, Clone, Copy)]
pub struct AnyMatrix<'a, T> {
    /// The elements, from (0, 0) on.
    pub data: &'a [T],
    /// Distance of rows and of columns.
    pub strides: (usize, usize),
}

/// Computes `c[i, j] = store(i * n + j, sum over k of a[i, k] b[k, j])`, with `c` m x n, dense.
///
/// # Panics
/// Where a matrix is shorter than its strides say, or `c` has not m x n elements.
pub fn gemm_any<T: Number>(
    par: &Par,
    (m, n, k): (usize, usize, usize),
    a: AnyMatrix<'_, T>,
    b: AnyMatrix<'_, T>,
    store: impl Fn(usize, T::Wide) -> T + Sync,
    c: &mut [T],
) {
    assert_eq!(c.len(), m * n, "length of the output");
    par.chunks_mut(c, n, |i, row| {
        for (part, row) in row.chunks_mut(COLUMNS).enumerate() {
            let first = part * COLUMNS;
            let mut sums = [<T::Wide as Wide>::ZERO; COLUMNS];
            let sums = &mut sums[..row.len()];
            let mut watch = Watch::new();
            for l in 0..k {
                if watch.stops(row.len()) {
                    return;
                }
                let x = a.data[i * a.strides.0 + l * a.strides.1].widen();
                for (j, sum) in (first..).zip(&mut *sums) {
                    *sum = sum.plus(x.times(b.data[l * b.strides.0 + j * b.strides.1].widen()));
                }
            }
            for (j, (y, &mut sum)) in (first..).zip(row.iter_mut().zip(sums)) {
                *y = store(i * n + j, sum);
            }
        }
    });
}

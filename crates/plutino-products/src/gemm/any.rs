//! Matrix products of any dtype, with wide sums: for dtypes without a register tile of ours. Those
//! of f64 are matrixmultiply's.

use plutino_cpu::Par;
use plutino_cpu::number::{Number, Wide};
use plutino_cpu::par::SharedMut;
use plutino_cpu::par::stop::Watch;
use plutino_tensor::DType;

/// Columns whose sums are in the making.
const COLUMNS: usize = 256;
/// Rows and columns of a product of f64 that are one task: a task packs its part of both operands
/// for itself, which takes a few percent of its time. No number of threads changes it, so that
/// results cannot depend on that.
const TASK: (usize, usize) = (256, 256);
/// Multiplications below which packing costs more than it gains.
const SMALL: usize = 16 * 16 * 16;

/// A matrix in memory: element (i, j) at `i * strides.0 + j * strides.1`.
#[derive(Debug, Clone, Copy)]
pub struct AnyMatrix<'a, T> {
    /// The elements, from (0, 0) on.
    pub data: &'a [T],
    /// Distance of rows and of columns.
    pub strides: (usize, usize),
}

impl<T> AnyMatrix<'_, T> {
    /// Whether so many rows and columns, one of each at least, lie in the data.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        let down = (rows - 1).checked_mul(self.strides.0);
        let right = (columns - 1).checked_mul(self.strides.1);
        let last = down.zip(right).and_then(|(down, right)| down.checked_add(right));
        last.is_some_and(|last| last < self.data.len())
    }
}

/// What becomes of a sum, by the number of its element. Called through a pointer, once for a sum
/// of many terms: the product is then compiled once for each dtype, not for each of its callers.
pub type Store<'a, T> = dyn Fn(usize, <T as Number>::Wide) -> T + Sync + 'a;

/// Computes `c[i, j] = store(i * n + j, sum over k of a[i, k] b[k, j])`, with `c` m x n, dense.
///
/// # Panics
/// Where a matrix is shorter than its strides say, or `c` has not m x n elements.
pub fn gemm_any<T: Number>(
    par: &Par,
    (m, n, k): (usize, usize, usize),
    a: AnyMatrix<'_, T>,
    b: AnyMatrix<'_, T>,
    store: &Store<'_, T>,
    c: &mut [T],
) {
    assert_eq!(c.len(), m * n, "length of the output");
    if T::DTYPE == DType::F64 && m.saturating_mul(n).saturating_mul(k) >= SMALL {
        return product_of_f64(par, (m, n, k), a, b, store, c);
    }
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
                let right = &b.data[l * b.strides.0 + first * b.strides.1..];
                if b.strides.1 == 1 {
                    for (sum, b) in sums.iter_mut().zip(&right[..row.len()]) {
                        *sum = sum.plus(x.times(b.widen()));
                    }
                } else {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = sum.plus(x.times(right[j * b.strides.1].widen()));
                    }
                }
            }
            for (j, (y, &mut sum)) in (first..).zip(row.iter_mut().zip(sums)) {
                *y = store(i * n + j, sum);
            }
        }
    });
}

/// The same of f64, which `T` is, for sizes of one at least.
fn product_of_f64<T: Number>(
    par: &Par,
    (m, n, k): (usize, usize, usize),
    a: AnyMatrix<'_, T>,
    b: AnyMatrix<'_, T>,
    store: &Store<'_, T>,
    c: &mut [T],
) {
    assert!(T::DTYPE == DType::F64, "elements of f64");
    assert!(a.holds(m, k), "left operand too short");
    assert!(b.holds(k, n), "right operand too short");
    let c = SharedMut::new(c);
    let grid = (m.div_ceil(TASK.0), n.div_ceil(TASK.1));
    par.run(grid.0 * grid.1, |task| {
        let (row, col) = (task / grid.1 * TASK.0, task % grid.1 * TASK.1);
        let (rows, cols) = (TASK.0.min(m - row), TASK.1.min(n - col));
        let first = row * n + col;
        // Strides of slices fit isize; where they do not matter, they may be anything.
        let strides = |(down, right): (usize, usize)| (down as isize, right as isize);
        let ((a_down, a_right), (b_down, b_right)) = (strides(a.strides), strides(b.strides));
        // SAFETY: T is f64, for no other element has its dtype (asserted). Both operands have all
        // elements of all rows and columns (asserted), so those of this task; the output has m rows
        // of n elements (asserted by the caller), and its tasks are disjoint.
        unsafe {
            matrixmultiply::dgemm(
                rows,
                k,
                cols,
                1.0,
                a.data.as_ptr().add(row * a.strides.0).cast(),
                a_down,
                a_right,
                b.data.as_ptr().add(col * b.strides.1).cast(),
                b_down,
                b_right,
                0.0,
                c.as_mut_ptr().add(first).cast(),
                n as isize,
                1,
            );
        }
        for i in 0..rows {
            let start = first + i * n;
            // SAFETY: part of a row of this task alone.
            let row = unsafe { c.slice(start..start + cols) };
            for (at, y) in (start..).zip(row) {
                *y = store(at, y.widen());
            }
        }
    });
}

//! Matrix products of any dtype, with wide sums: for dtypes without a register tile of ours.
//! Large ones of f64 and of complex numbers are matrixmultiply's; those of complex numbers are
//! added up in the precision of their parts, as PyTorch's.
//!
//! Of others a task computes [`ROWS`] x [`COLUMNS`] elements. Columns of B are widened into a panel
//! for [`DEPTH`] terms, which four rows of A at a time, widened too, are multiplied with:
//!
//! ```text
//!              panel of B: DEPTH x COLUMNS
//!  rows of A   sums: ROWS x COLUMNS, each one chain in the order of its terms
//! ```
//! Products of 128 x 128 x 128, one thread of Zen 4 with AVX-512, from Python: of i64 2.9 ms before
//! there were panels and instruction sets, 1.05 after; of c64, by the command, 1.86 and 0.23
//! (2026-11-29).

use plutino_cpu::extent::elements;
use plutino_cpu::number::{Number, Wide};
use plutino_cpu::par::SharedMut;
use plutino_cpu::par::stop::Watch;
use plutino_cpu::simd::{Simd, Vectorized};
use plutino_cpu::{Isa, Par};
use plutino_tensor::DType;

/// Rows and columns of a task.
const ROWS: usize = 64;
const COLUMNS: usize = 16;
/// Terms of a panel.
const DEPTH: usize = 128;
/// Rows that are multiplied with a panel at once.
const TOGETHER: usize = 4;
/// Rows and columns of a task of matrixmultiply's: a task packs its part of both operands for
/// itself, which takes a few percent of its time. No number of threads changes it, so that results
/// cannot depend on that.
const TASK: (usize, usize) = (256, 256);
/// Multiplications below which matrixmultiply's packing costs more than it gains.
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
    /// Whether so many rows and columns lie in the data.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        if rows == 0 || columns == 0 {
            return true;
        }
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
#[inline(never)] // compiled here, see below
pub fn gemm_any<T: Number>(
    isa: Isa,
    par: &Par,
    size: (usize, usize, usize),
    a: AnyMatrix<'_, T>,
    b: AnyMatrix<'_, T>,
    store: &Store<'_, T>,
    c: &mut [T],
) {
    let (m, n, k) = size;
    assert_eq!(Some(c.len()), elements([m, n]), "length of the output");
    assert!(a.holds(m, k), "left operand too short");
    assert!(b.holds(k, n), "right operand too short");
    let large = m.saturating_mul(n).saturating_mul(k) >= SMALL;
    if large && matches!(T::DTYPE, DType::F64 | DType::C64 | DType::C128) {
        return by_matrixmultiply(par, size, a, b, store, c);
    }
    let c = SharedMut::new(c);
    let grid = (m.div_ceil(ROWS), n.div_ceil(COLUMNS));
    par.run(grid.0 * grid.1, |task| {
        let (row, col) = (task / grid.1 * ROWS, task % grid.1 * COLUMNS);
        let (rows, cols) = (ROWS.min(m - row), COLUMNS.min(n - col));
        let mut sums = [[T::Wide::ZERO; COLUMNS]; ROWS];
        let mut left = [[T::Wide::ZERO; DEPTH]; TOGETHER];
        let mut panel = [[T::Wide::ZERO; COLUMNS]; DEPTH];
        let mut watch = Watch::new();
        for first in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - first);
            if watch.stops(depth * COLUMNS * rows) {
                return;
            }
            for (l, panel) in panel[..depth].iter_mut().enumerate() {
                let start = (first + l) * b.strides.0 + col * b.strides.1;
                for (j, x) in panel[..cols].iter_mut().enumerate() {
                    *x = b.data[start + j * b.strides.1].widen();
                }
            }
            for (tile, sums) in sums[..rows].chunks_mut(TOGETHER).enumerate() {
                for (r, left) in left[..sums.len()].iter_mut().enumerate() {
                    let row = row + tile * TOGETHER + r;
                    let start = row * a.strides.0 + first * a.strides.1;
                    for (l, x) in left[..depth].iter_mut().enumerate() {
                        *x = a.data[start + l * a.strides.1].widen();
                    }
                }
                isa.run(Tile { left: &left, panel: &panel[..depth], sums });
            }
        }
        for (i, sums) in sums[..rows].iter().enumerate() {
            let start = (row + i) * n + col;
            // SAFETY: part of a row of this task alone.
            let row = unsafe { c.slice(start..start + cols) };
            for ((at, y), &sum) in (start..).zip(row).zip(sums) {
                *y = store(at, sum);
            }
        }
    });
}

plutino_cpu::compiled_for_numbers!(gemm_any_compiled: gemm_any);

/// Adds the products of up to [`TOGETHER`] rows with a panel to sums: compiled for each wide type.
struct Tile<'a, W> {
    left: &'a [[W; DEPTH]; TOGETHER],
    panel: &'a [[W; COLUMNS]],
    sums: &'a mut [[W; COLUMNS]],
}

impl<W: Wide> Vectorized for Tile<'_, W> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { left, panel, sums } = self;
        if let Ok(sums) = <&mut [_; TOGETHER]>::try_from(&mut *sums) {
            return add_products(left, panel, sums);
        }
        for (left, sums) in left.iter().zip(sums) {
            add_products(std::array::from_ref(left), panel, std::array::from_mut(sums));
        }
    }
}

#[inline(always)]
fn add_products<W: Wide, const N: usize>(
    left: &[[W; DEPTH]; N],
    panel: &[[W; COLUMNS]],
    sums: &mut [[W; COLUMNS]; N],
) {
    for (l, right) in panel.iter().enumerate().take(DEPTH) {
        for (left, sums) in left.iter().zip(sums.iter_mut()) {
            for (sum, &y) in sums.iter_mut().zip(right) {
                *sum = sum.plus(left[l].times(y));
            }
        }
    }
}

/// The same of f64 or of complex numbers.
fn by_matrixmultiply<T: Number>(
    par: &Par,
    (m, n, k): (usize, usize, usize),
    a: AnyMatrix<'_, T>,
    b: AnyMatrix<'_, T>,
    store: &Store<'_, T>,
    c: &mut [T],
) {
    use matrixmultiply::CGemmOption::Standard;
    assert!(matches!(T::DTYPE, DType::F64 | DType::C64 | DType::C128), "not matrixmultiply's");
    let c = SharedMut::new(c);
    let grid = (m.div_ceil(TASK.0), n.div_ceil(TASK.1));
    par.run(grid.0 * grid.1, |task| {
        let (row, col) = (task / grid.1 * TASK.0, task % grid.1 * TASK.1);
        let (rows, cols) = (TASK.0.min(m - row), TASK.1.min(n - col));
        let first = row * n + col;
        let (left, right) = (&a.data[row * a.strides.0..], &b.data[col * b.strides.1..]);
        // Strides of slices fit isize; where they do not matter, they may be anything.
        let strides = |(down, right): (usize, usize)| (down as isize, right as isize);
        let ((a_down, a_right), (b_down, b_right)) = (strides(a.strides), strides(b.strides));
        let (x, y) = (left.as_ptr(), right.as_ptr());
        // SAFETY: inside of the output, whose m rows have n elements (asserted by the caller).
        let to = unsafe { c.as_mut_ptr().add(first) };
        let n = n as isize;
        // SAFETY: T is what its dtype says, one of three (asserted), and a complex number is an
        // array of its parts. Both operands have all elements of all rows and columns (asserted by
        // the caller), so those of this task, and the tasks' outputs are disjoint.
        unsafe {
            match T::DTYPE {
                DType::F64 => {
                    let (x, y, to) = (x.cast(), y.cast(), to.cast());
                    matrixmultiply::dgemm(
                        rows, k, cols, 1.0, x, a_down, a_right, y, b_down, b_right, 0.0, to, n, 1,
                    );
                }
                DType::C128 => {
                    let ([one, zero], x, y, to) =
                        ([[1.0, 0.0], [0.0; 2]], x.cast(), y.cast(), to.cast());
                    matrixmultiply::zgemm(
                        Standard, Standard, rows, k, cols, one, x, a_down, a_right, y, b_down,
                        b_right, zero, to, n, 1,
                    );
                }
                _ => {
                    let ([one, zero], x, y, to) =
                        ([[1.0, 0.0], [0.0; 2]], x.cast(), y.cast(), to.cast());
                    matrixmultiply::cgemm(
                        Standard, Standard, rows, k, cols, one, x, a_down, a_right, y, b_down,
                        b_right, zero, to, n, 1,
                    );
                }
            }
        }
        for i in 0..rows {
            let start = first + i * n as usize;
            // SAFETY: part of a row of this task alone.
            let row = unsafe { c.slice(start..start + cols) };
            for (at, y) in (start..).zip(row) {
                *y = store(at, y.widen());
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "length of the output")]
    fn sizes_that_wrap_are_refused() {
        let one = AnyMatrix { data: &[1.0f64], strides: (0, 0) };
        let half = 1 << (usize::BITS / 2);
        gemm_any(Isa::best(), &Par::serial(), (half, half, 1), one, one, &|_, x| x, &mut []);
    }
}

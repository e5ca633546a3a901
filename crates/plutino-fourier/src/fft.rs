//! Discrete Fourier transforms along any dimensions.
//!
//! `X[k] = sum of x[j] e^(-2 pi i j k / n)`, with `+` for the inverse; neither is scaled here
//! (<https://pytorch.org/docs/stable/fft.html>). The transforms themselves are [`rustfft`]'s.
//!
//! Loops: for each line whose elements are neighbours (parallel) - transform it. Else for each 8
//! neighbouring lines (parallel) - gather them, transform each, put them back. One thread computes
//! a line.

use plutino_cpu::Par;
use plutino_cpu::extent::elements;
use plutino_cpu::number::{Number, Real, Wide};
use plutino_cpu::par::{Refusal, SharedMut, stop};
use plutino_tensor::{Complex, TensorError, alloc};
use rustfft::{Fft, FftNum, FftPlanner};
use std::sync::Arc;

pub use rustfft::FftDirection as Direction;

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 12;
/// Neighbouring lines that are gathered together: a line of cache of complex f32.
const COLUMNS: usize = 8;

/// Complex numbers that `rustfft` takes (by force) for lines of `len` elements, with those of a
/// task's scratch memory: a bound. Lengths with large prime factors are transformed as
/// convolutions, by lines of twice the length and more.
fn tables(len: usize) -> usize {
    let mut rest = len;
    for prime in [2, 3, 5, 7, 11, 13] {
        while rest > 1 && rest.is_multiple_of(prime) {
            rest /= prime;
        }
    }
    let factor = if rest <= 1 { 3 } else { 12 };
    len.saturating_mul(factor)
}

/// A precision that transforms are computed in: f32 or f64.
pub trait FftReal: Real + FftNum {
    /// The transform of lines of `len` elements.
    fn transform(direction: Direction, len: usize) -> Arc<dyn Fft<Self>>;
}

/// `rustfft` is generic over the precision. Made here, in functions that are not, its code is
/// compiled with this crate, and not with each that plans a transform.
macro_rules! fft_real {
    ($($real:ty),*) => {$(
        impl FftReal for $real {
            fn transform(direction: Direction, len: usize) -> Arc<dyn Fft<Self>> {
                FftPlanner::new().plan_fft(len, direction)
            }
        }
    )*};
}
fft_real!(f32, f64);

/// A transform of lines of one length.
#[derive(Clone)]
pub struct Lines<R: FftReal> {
    fft: Arc<dyn Fft<R>>,
    len: usize,
}

impl<R: FftReal> Lines<R> {
    /// Transforms of `len` elements.
    ///
    /// # Errors
    /// Where the tables that they take exceed the caller's budget, or memory.
    pub fn new(direction: Direction, len: usize) -> Result<Self, TensorError> {
        alloc::probe(tables(len).saturating_mul(size_of::<Complex<R>>()))?;
        Ok(Self { fft: R::transform(direction, len), len })
    }

    /// Elements of a line.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether lines have no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Transforms `[outer, len, inner]` along `len`, in place.
    ///
    /// # Errors
    /// Where a task finds no memory for a line.
    ///
    /// # Panics
    /// Where the slice does not hold such lines.
    pub fn run(&self, par: &Par, inner: usize, data: &mut [Complex<R>]) -> Result<(), TensorError> {
        let len = self.len;
        if data.is_empty() {
            return Ok(());
        }
        let lines = data.len() / len;
        assert!(lines * len == data.len() && lines.is_multiple_of(inner), "lines of a transform");
        let zero = Complex::new(R::nearest(0.0), R::nearest(0.0));
        let data = SharedMut::new(data);
        let refusal = Refusal::default();
        let together = COLUMNS.min(inner);
        let blocks = inner.div_ceil(together);
        par.split(lines / inner * blocks, GRAIN / len.saturating_mul(together), |range| {
            let scratch = alloc::filled(self.fft.get_inplace_scratch_len(), zero);
            let gathered = if inner == 1 { 0 } else { len.saturating_mul(together) };
            let gathered = alloc::filled(gathered, zero);
            let (Some(mut scratch), Some(mut gathered)) =
                (refusal.of(scratch), refusal.of(gathered))
            else {
                return;
            };
            for block in stop::paced(range, len.saturating_mul(16 * together)) {
                let column = block % blocks * together;
                let first = block / blocks * len * inner + column;
                if inner == 1 {
                    // SAFETY: lines are disjoint, and each is transformed by one task.
                    let line = unsafe { data.slice(first..first + len) };
                    self.fft.process_with_scratch(line, &mut scratch);
                    continue;
                }
                let count = together.min(inner - column);
                let gathered = &mut gathered[..count * len];
                for i in 0..len {
                    let at = first + i * inner;
                    // SAFETY: as above: no other task has an element of these lines.
                    let from = unsafe { data.slice(at..at + count) };
                    for (line, x) in gathered.chunks_exact_mut(len).zip(&*from) {
                        line[i] = *x;
                    }
                }
                // All lines of the chunk, one after the other.
                self.fft.process_with_scratch(gathered, &mut scratch);
                for i in 0..len {
                    let at = first + i * inner;
                    // SAFETY: as above.
                    let to = unsafe { data.slice(at..at + count) };
                    for (line, x) in gathered.chunks_exact(len).zip(to) {
                        *x = line[i];
                    }
                }
            }
        });
        refusal.outcome()
    }
}

impl<R: FftReal> std::fmt::Debug for Lines<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lines({})", self.len)
    }
}

/// A copy of a dense tensor as complex numbers, cropped or padded with zeros at the end of each
/// dimension.
///
/// # Panics
/// Where the slices are not as long as the shapes say, or these differ in rank.
pub fn load<T: Number, R: FftReal>(
    par: &Par,
    (from, src): (&[usize], &[T]),
    (to, dst): (&[usize], &mut [Complex<R>]),
) {
    let zero = Complex::new(R::nearest(0.0), R::nearest(0.0));
    let complex = |x: T| {
        let z = x.widen().to_complex();
        Complex::new(R::nearest(z.re), R::nearest(z.im))
    };
    resized(par, (from, src), (to, dst), zero, complex);
}

/// A copy of complex numbers as any dtype, scaled, cropped at the end of each dimension; real
/// numbers lose the imaginary part.
///
/// # Panics
/// Where the slices are not as long as the shapes say, or these differ in rank.
pub fn store<T: Number, R: FftReal>(
    par: &Par,
    scale: f64,
    (from, src): (&[usize], &[Complex<R>]),
    (to, dst): (&[usize], &mut [T]),
) {
    let factor = R::nearest(scale);
    let convert = |z: Complex<R>| {
        let (re, im) = ((z.re * factor).wide(), (z.im * factor).wide());
        T::narrow(T::Wide::of_complex(Complex::new(re, im)))
    };
    resized(par, (from, src), (to, dst), T::default(), convert);
}

/// A copy of a dense tensor, cropped or padded at the end of each dimension.
fn resized<A: Copy + Sync, B: Copy + Send + Sync>(
    par: &Par,
    (from, src): (&[usize], &[A]),
    (to, dst): (&[usize], &mut [B]),
    fill: B,
    convert: impl Fn(A) -> B + Sync,
) {
    assert_eq!(from.len(), to.len(), "ranks of a copy");
    assert_eq!(src.len(), from.iter().product::<usize>(), "source of a copy");
    assert_eq!(dst.len(), to.iter().product::<usize>(), "destination of a copy");
    let (row_from, row_to) = (from.last().map_or(1, |&n| n), to.last().map_or(1, |&n| n));
    let outer = to.len().saturating_sub(1);
    let rows = GRAIN.div_ceil(row_to.max(1));
    par.chunks_mut(dst, rows * row_to, |task, dst| {
        for (i, dst) in dst.chunks_exact_mut(row_to).enumerate() {
            let (mut left, mut row, mut step, mut inside) = (task * rows + i, 0, 1, true);
            for d in (0..outer).rev() {
                let index = left % to[d];
                left /= to[d];
                inside &= index < from[d];
                row += index * step;
                step *= from[d];
            }
            let src = if inside { &src[row * row_from..][..row_from] } else { &[] };
            let (head, tail) = dst.split_at_mut(row_from.min(row_to).min(src.len()));
            for (y, &x) in head.iter_mut().zip(src) {
                *y = convert(x);
            }
            tail.fill(fill);
        }
    });
}

/// The whole spectrum of a real signal of `n` elements out of its first half: `[outer, n / 2 + 1,
/// inner]` to `[outer, n, inner]`, with `X[n - k] = conj(X[k])`. What must be real is taken to be.
///
/// # Panics
/// Where the slices are not as long as the sizes say.
pub fn mirror<R: FftReal>(
    [outer, n, inner]: [usize; 3],
    half: &[Complex<R>],
    whole: &mut [Complex<R>],
) {
    let m = n / 2 + 1;
    assert_eq!(Some(half.len()), elements([outer, m, inner]), "halves of spectra");
    assert_eq!(Some(whole.len()), elements([outer, n, inner]), "spectra");
    if whole.is_empty() {
        return;
    }
    for (half, whole) in half.chunks_exact(m * inner).zip(whole.chunks_exact_mut(n * inner)) {
        for (k, row) in whole.chunks_exact_mut(inner).enumerate() {
            let from = &half[k.min(n - k) * inner..][..inner];
            for (y, &x) in row.iter_mut().zip(from) {
                *y = match k {
                    _ if k == 0 || 2 * k == n => Complex::new(x.re, R::nearest(0.0)),
                    _ if k > n - k => x.conj(),
                    _ => x,
                };
            }
        }
    }
}

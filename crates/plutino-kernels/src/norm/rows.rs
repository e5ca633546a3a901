//! Rows normalised by their own statistics: layer, group, instance and RMS norm.
//!
//! `y = (x - mean) / sqrt(variance + eps) * weight + bias`, where the variance is the biased one;
//! RMS norm leaves out the mean: `y = x / sqrt(mean(x^2) + eps) * weight`
//! (<https://pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html>, `GroupNorm`, `RMSNorm`).
//!
//! Loops: for some rows (parallel) - means, squared deviations, results: three passes over each row
//! in cache.
//!
//! Both sums have the bound of [`crate::reduce`], whatever the row's length: with u = 2^-24 the
//! mean errs by 72 u mean|x| and the variance by 75 u of itself plus the square of that (in
//! practice by 2 u). Where that is much beside the deviations, two more passes correct the mean.

use crate::number::Float;
use crate::par::SharedMut;
use crate::reduce::algebra::{Deviations, Recentered, Total, fold_row};
use crate::simd::{Pairs, Simd, Vectorized};
use crate::{InOut, Isa, Par};
use plutino_cpu::row::{Map, map_row, map_row_to_bf16};

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 13;

/// Rows whose moments are computed together, at most: each is a long chain of instructions that
/// wait for each other, those of several take turns.
const MOST: usize = 8;

/// Elements of these rows, which stay in the first-level cache meanwhile.
const TOGETHER: usize = 4 << 10;

/// How rows are normalised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowNorm {
    /// Elements of a row: those that share statistics.
    pub len: usize,
    /// Neighbouring elements that share a weight and a bias: element `i` of the tensor has number
    /// `i / span`, modulo their number. 1 for layer norm, the size of a channel for group norm.
    pub span: usize,
    /// Whether the mean is taken off: all but RMS norm.
    pub centered: bool,
    /// What is added to the variance.
    pub eps: f64,
}

impl RowNorm {
    /// # Panics
    /// Where the sizes do not fit: whole rows, whole spans in a row, and a parameter for each span
    /// of a whole number of rows.
    fn check(&self, total: usize, parameters: [Option<usize>; 2]) {
        assert!(self.len > 0 && self.span > 0 && total.is_multiple_of(self.len), "rows of a norm");
        assert!(self.len.is_multiple_of(self.span), "spans of a norm");
        let spans = self.len / self.span;
        for n in parameters.into_iter().flatten() {
            assert!(n > 0 && n.is_multiple_of(spans), "parameters of a norm");
        }
    }
}

/// Normalises the rows of a dense f32 tensor.
///
/// # Panics
/// Where the slices do not fit `norm`: whole rows, a parameter for each span.
pub fn normalize_rows(
    isa: Isa,
    par: &Par,
    norm: &RowNorm,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    data: InOut<'_, f32>,
) {
    let (src, dst) = match data {
        InOut::Apart { src, dst } => (Some(src), dst),
        InOut::Same(dst) => (None, dst),
    };
    assert!(src.is_none_or(|s| s.len() == dst.len()), "input of a norm");
    let parameters = Parameters { norm, weight, bias };
    parameters.all(par, src, (dst, 1), |rows| isa.run(rows));
}

/// As [`normalize_rows`], with results that become bf16, in words of two: each the nearest.
/// Elements of a row share no parameters ([`RowNorm::span`] is 1).
///
/// # Panics
/// As there; and where a row has an odd number of elements, or `words` are not half as many.
pub fn normalize_rows_to_bf16(
    isa: Isa,
    par: &Par,
    norm: &RowNorm,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    x: &[f32],
    words: &mut [f32],
) {
    assert!(norm.len.is_multiple_of(2) && norm.span == 1, "rows of words");
    assert!(x.len() == 2 * words.len(), "words of a norm");
    let parameters = Parameters { norm, weight, bias };
    parameters.all(par, Some(x), (words, 2), |rows| Pairs::convert(isa, rows));
}

#[derive(Clone, Copy)]
struct Parameters<'a> {
    norm: &'a RowNorm,
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
}

impl<'a> Parameters<'a> {
    /// All rows, to `dst`, whose elements are so many numbers each.
    fn all(
        self,
        par: &Par,
        src: Option<&'a [f32]>,
        (dst, numbers): (&mut [f32], usize),
        run: impl Fn(Rows<'_>) + Sync,
    ) {
        let Self { norm, weight, bias } = self;
        if dst.is_empty() {
            return;
        }
        let (len, row) = (dst.len() * numbers, norm.len / numbers);
        norm.check(len, [weight.map(<[_]>::len), bias.map(<[_]>::len)]);
        let dst = SharedMut::new(dst);
        par.split(len / norm.len, GRAIN / norm.len, |rows| {
            let src = src.map(|src| &src[rows.start * norm.len..rows.end * norm.len]);
            // SAFETY: tasks have disjoint rows.
            let dst = unsafe { dst.slice(rows.start * row..rows.end * row) };
            run(Rows { norm, weight, bias, src, dst, row, first: rows.start });
        });
    }
}

struct Rows<'a> {
    norm: &'a RowNorm,
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    /// None: in place.
    src: Option<&'a [f32]>,
    dst: &'a mut [f32],
    /// Elements of a row there: fewer than in `src` where they are words.
    row: usize,
    /// Number of the first row.
    first: usize,
}

impl Vectorized for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { norm, weight, bias, src, dst, row: dst_len, first } = self;
        let (len, span) = (norm.len, norm.span);
        let together = (TOGETHER / len).clamp(1, MOST);
        for (group, dst) in dst.chunks_mut(together * dst_len).enumerate() {
            let start = group * together;
            let src = src.map(|src| &src[start * len..][..dst.len() / dst_len * len]);
            let mut moments = [(0.0, 0.0); MOST];
            for (m, row) in moments.iter_mut().zip(src.unwrap_or(dst).chunks_exact(len)) {
                m.0 = mean(s, norm, row);
            }
            for (m, row) in moments.iter_mut().zip(src.unwrap_or(dst).chunks_exact(len)) {
                m.1 = squares(s, row, m.0);
            }
            let rows = src.unwrap_or(dst).chunks_exact(len);
            for ((mean, squares), row) in moments.iter_mut().zip(rows) {
                recenter(s, norm, row, mean, squares);
                *squares = scale(norm, *squares, *mean);
            }
            let each = dst.chunks_exact_mut(dst_len).zip(&moments);
            for (r, (dst, &(mean, scale))) in each.enumerate() {
                let src = src.map(|src| &src[r * len..][..len]);
                // Parameters of this row: whole rows of them repeat.
                let spans = len / span;
                let row = (first + start + r) * spans;
                let (weight, bias) = (repeating(weight, row, spans), repeating(bias, row, spans));
                if span == 1 {
                    let (mean, scale) = (s.splat(mean), s.splat(scale));
                    let mut map = Elements::<S> { mean, scale, weight, bias };
                    match src {
                        Some(src) if dst_len != len => map_row_to_bf16(s, &mut map, src, dst),
                        _ => map_row(s, &mut map, src, dst),
                    }
                } else {
                    for (i, dst) in dst.chunks_exact_mut(span).enumerate() {
                        let src = src.map(|src| &src[i * span..][..span]);
                        let mut map = Span::<S> {
                            mean: s.splat(mean),
                            scale: s.splat(scale * weight.get(i).copied().unwrap_or(1.0)),
                            bias: s.splat(bias.get(i).copied().unwrap_or(0.0)),
                        };
                        map_row(s, &mut map, src, dst);
                    }
                }
            }
        }
    }
}

/// `n` parameters from number `at` on, where their sequence repeats; nothing where there are none.
#[inline(always)]
fn repeating(parameters: Option<&[f32]>, at: usize, n: usize) -> &[f32] {
    match parameters {
        Some(p) => {
            let start = at % p.len();
            &p[start..start + n]
        }
        None => &[],
    }
}

/// The mean; 0 for RMS norm.
#[inline(always)]
fn mean<S: Simd>(s: S, norm: &RowNorm, row: &[f32]) -> f32 {
    if !norm.centered {
        return 0.0;
    }
    (f64::from(fold_row(s, Total { divisor: 1.0 }, 0.0, row)) / norm.len as f64) as f32
}

/// The sum of the squares of what deviates from the mean.
#[inline(always)]
fn squares<S: Simd>(s: S, row: &[f32], mean: f32) -> f32 {
    fold_row(s, Deviations { divisor: 1.0, root: false }, mean, row)
}

/// Takes the roundings off the mean where deviations are so small beside it that they count: rows
/// of numbers that are all the same become zeros.
#[inline(always)]
fn recenter<S: Simd>(s: S, norm: &RowNorm, row: &[f32], mean: &mut f32, of_squares: &mut f32) {
    if norm.centered && super::is_narrow(f64::from(*mean), f64::from(*of_squares) / norm.len as f64)
    {
        let off = fold_row(s, Recentered { divisor: 1.0 }, *mean, row);
        *mean += (f64::from(off) / norm.len as f64) as f32;
        *of_squares = squares(s, row, *mean);
    }
}

/// 1 / sqrt(variance + eps). Where the square of the mean or the variance overflows, PyTorch's
/// moments are NaN.
#[inline(always)]
fn scale(norm: &RowNorm, squares: f32, mean: f32) -> f32 {
    if norm.centered && !(mean * mean + squares).is_finite() {
        return f32::NAN;
    }
    (1.0 / (f64::from(squares) / norm.len as f64 + norm.eps).sqrt()) as f32
}

/// Each element has its own weight and bias, where there are any.
struct Elements<'a, S: Simd> {
    mean: S::F32,
    scale: S::F32,
    weight: &'a [f32],
    bias: &'a [f32],
}

impl<S: Simd> Map<S> for Elements<'_, S> {
    #[inline(always)]
    fn map(&mut self, s: S, x: S::F32, at: usize, n: usize) -> S::F32 {
        let y = s.mul(s.sub(x, self.mean), self.scale);
        match (self.weight.is_empty(), self.bias.is_empty()) {
            (true, true) => y,
            (false, true) => s.mul(y, s.load_up_to(&self.weight[at..], n)),
            (true, false) => s.add(y, s.load_up_to(&self.bias[at..], n)),
            (false, false) => {
                let weight = s.load_up_to(&self.weight[at..], n);
                s.fma(y, weight, s.load_up_to(&self.bias[at..], n))
            }
        }
    }
}

/// All elements have the same weight and bias.
struct Span<S: Simd> {
    mean: S::F32,
    scale: S::F32,
    bias: S::F32,
}

impl<S: Simd> Map<S> for Span<S> {
    #[inline(always)]
    fn map(&mut self, s: S, x: S::F32, _: usize, _: usize) -> S::F32 {
        s.fma(s.sub(x, self.mean), self.scale, self.bias)
    }
}

/// Normalises the rows of a dense tensor of any float dtype, in f64.
///
/// # Panics
/// As [`normalize_rows`].
pub fn normalize_rows_any<T: Float>(
    par: &Par,
    norm: &RowNorm,
    weight: Option<&[T]>,
    bias: Option<&[T]>,
    input: &[T],
    output: &mut [T],
) {
    if output.is_empty() {
        return;
    }
    norm.check(output.len(), [weight.map(<[_]>::len), bias.map(<[_]>::len)]);
    assert_eq!(input.len(), output.len(), "input of a norm");
    let n = norm.len as f64;
    let squares = |x: &[T], mean: f64| x.iter().map(|x| (x.widen() - mean).powi(2)).sum::<f64>();
    par.chunks_mut(output, norm.len, |r, out| {
        let x = &input[r * norm.len..(r + 1) * norm.len];
        let mean = x.iter().map(|x| x.widen()).sum::<f64>() / n;
        let mut mean = if norm.centered { mean } else { 0.0 };
        let mut of_squares = squares(x, mean);
        if norm.centered && super::is_narrow(mean, of_squares / n) {
            mean += x.iter().map(|x| x.widen() - mean).sum::<f64>() / n;
            of_squares = squares(x, mean);
        }
        let scale = 1.0 / (of_squares / n + norm.eps).sqrt();
        let parameter = |p: Option<&[T]>, i: usize, default: f64| {
            p.map_or(default, |p| p[(r * norm.len + i) / norm.span % p.len()].widen())
        };
        for (i, (out, x)) in out.iter_mut().zip(x).enumerate() {
            let y = (x.widen() - mean) * scale;
            *out = T::narrow(y * parameter(weight, i, 1.0) + parameter(bias, i, 0.0));
        }
    });
}

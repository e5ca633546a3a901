//! Vectors scaled to norm 1.
//!
//! `y = x / max(norm(x), eps)` along one dimension
//! (<https://pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html>).
//!
//! Loops: the norms (see [`crate::reduce`]), then for each row (parallel) the quotients.

use crate::number::Float;
use crate::reduce::{Fold, Reduction, power_norm, reduce_f32};
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par};
use plutino_cpu::row::{Map, map_row};

/// Rows below which a task is not worth a thread are this many elements.
const GRAIN: usize = 1 << 14;

/// Scales the vectors of a dense f32 tensor `[outer, len, inner]` along `len`. `norms` is scratch
/// memory for `outer * inner` elements.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn unit_rows(
    isa: Isa,
    par: &Par,
    p: f64,
    eps: f64,
    [outer, len, inner]: [usize; 3],
    input: &[f32],
    output: &mut [f32],
    norms: &mut [f32],
) {
    let fold = Fold::new(&[outer, len, inner], |d| d == 1);
    let reduction = match p {
        1.0 => Some(Reduction::AbsSum),
        2.0 => Some(Reduction::Euclidean),
        f64::INFINITY => Some(Reduction::AbsMax),
        _ => None,
    };
    match reduction {
        Some(reduction) => reduce_f32(isa, par, &fold, reduction, input, norms),
        None => power_norm(par, &fold, p, input, norms),
    }
    let eps = eps as f32;
    for norm in norms.iter_mut().filter(|n| **n < eps) {
        *norm = eps;
    }
    if inner == 0 || len == 0 {
        return;
    }
    // Rows share a norm where `len` is innermost, else have one for each element.
    let row = if inner == 1 { len } else { inner };
    let rows = GRAIN.div_ceil(row);
    par.chunks_mut(output, rows * row, |task, out| {
        let start = task * rows * row;
        let first = task * rows;
        isa.run(Quotients {
            norms,
            len,
            inner,
            first,
            src: &input[start..start + out.len()],
            dst: out,
        });
    });
}

struct Quotients<'a> {
    norms: &'a [f32],
    len: usize,
    inner: usize,
    /// Number of the first row.
    first: usize,
    src: &'a [f32],
    dst: &'a mut [f32],
}

impl Vectorized for Quotients<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { norms, len, inner, first, src, dst } = self;
        let row = if inner == 1 { len } else { inner };
        for (r, (dst, src)) in dst.chunks_exact_mut(row).zip(src.chunks_exact(row)).enumerate() {
            if inner == 1 {
                map_row(s, &mut Over::<S>(s.splat(norms[first + r])), Some(src), dst);
            } else {
                let norms = &norms[(first + r) / len * inner..][..inner];
                map_row(s, &mut OverEach(norms), Some(src), dst);
            }
        }
    }
}

struct Over<S: Simd>(S::F32);

impl<S: Simd> Map<S> for Over<S> {
    #[inline(always)]
    fn map(&mut self, s: S, x: S::F32, _: usize, _: usize) -> S::F32 {
        s.div(x, self.0)
    }
}

struct OverEach<'a>(&'a [f32]);

impl<S: Simd> Map<S> for OverEach<'_> {
    #[inline(always)]
    fn map(&mut self, s: S, x: S::F32, at: usize, n: usize) -> S::F32 {
        s.div(x, s.load_up_to(&self.0[at..], n))
    }
}

/// Scales the vectors of a dense tensor of any float dtype, in f64.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn unit_rows_any<T: Float>(
    par: &Par,
    p: f64,
    eps: f64,
    [outer, len, inner]: [usize; 3],
    input: &[T],
    output: &mut [T],
) {
    let total = outer.saturating_mul(len).saturating_mul(inner);
    assert!(input.len() == total && output.len() == total, "size of a normalisation");
    let fold = Fold::new(&[len], |_| true);
    par.chunks_mut(output, (len * inner).max(1), |o, out| {
        for i in 0..inner {
            let line = (i..len * inner).step_by(inner);
            let x = |at: usize| input[o * len * inner + at].widen();
            // One norm definition for all kernels: a line is a row of f64.
            let values: Vec<f64> = line.clone().map(x).collect();
            let mut norm = [0.0];
            power_norm(&Par::serial(), &fold, p, &values, &mut norm);
            let norm = if norm[0] < eps { eps } else { norm[0] };
            for at in line {
                out[at] = T::narrow(x(at) / norm);
            }
        }
    });
}

//! One pass over a row: `out[i] = f(in[i])`, vector by vector, out of place or in place; or with
//! results that become bf16.

use crate::simd::Simd;

/// A function of the elements of a row.
pub trait Map<S: Simd> {
    /// The results of the elements `at..at + n`; n is [`Simd::LANES`] but for the last vector,
    /// whose other lanes are 0 and are not written.
    fn map(&mut self, s: S, x: S::F32, at: usize, n: usize) -> S::F32;
}

/// Applies `map` to `src`, or to `dst` in place where there is no `src`.
///
/// # Panics
/// Where `src` is shorter than `dst`.
#[inline(always)]
pub fn map_row<S: Simd, M: Map<S>>(s: S, map: &mut M, src: Option<&[f32]>, dst: &mut [f32]) {
    let n = dst.len();
    let whole = n - n % S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        let x = match src {
            Some(src) => s.load(&src[at..n]),
            None => s.load(&dst[at..]),
        };
        s.store(map.map(s, x, at, S::LANES), &mut dst[at..]);
    }
    if whole < n {
        let x = match src {
            Some(src) => s.load_partial(&src[whole..n]),
            None => s.load_partial(&dst[whole..]),
        };
        s.store_partial(map.map(s, x, whole, n - whole), &mut dst[whole..]);
    }
}

/// Applies `map` to `src`, and writes the nearest bf16 of each result, in words of two.
///
/// # Panics
/// Where there are not as many words as two numbers need.
#[inline(always)]
pub fn map_row_to_bf16<S: Simd, M: Map<S>>(s: S, map: &mut M, src: &[f32], words: &mut [f32]) {
    assert!(src.len().div_ceil(2) == words.len(), "words of a row");
    let n = src.len();
    let whole = n - n % (2 * S::LANES);
    for at in (0..whole).step_by(2 * S::LANES) {
        let lower = map.map(s, s.load(&src[at..]), at, S::LANES);
        let next = at + S::LANES;
        let upper = map.map(s, s.load(&src[next..]), next, S::LANES);
        s.store(s.to_pairs(lower, upper), &mut words[at / 2..]);
    }
    if whole < n {
        let middle = n.min(whole + S::LANES);
        let lower = map.map(s, s.load_partial(&src[whole..middle]), whole, middle - whole);
        let upper = match middle < n {
            true => map.map(s, s.load_partial(&src[middle..]), middle, n - middle),
            false => s.zero(),
        };
        s.store_partial(s.to_pairs(lower, upper), &mut words[whole / 2..]);
    }
}

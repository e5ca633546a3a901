//! What the tests of several kernels share: data, and the loop over instruction sets and threads.

use plutino_cpu::{Isa, Par, Pool};
use plutino_tensor::{FloatSource, Floats, TensorError, bf16};
use std::ops::Range;

/// Numbers that come in the smallest parts, as those of a file may: those of a part are gone when
/// the next one is asked for, and come in order, none of them twice, or all at once.
pub struct Piecewise<'a> {
    all: &'a [f32],
    part: Vec<f32>,
    next: usize,
}

impl<'a> Piecewise<'a> {
    /// Of these.
    pub fn new(all: &'a [f32]) -> Self {
        Self { all, part: Vec::new(), next: 0 }
    }
}

impl FloatSource for Piecewise<'_> {
    fn len(&self) -> usize {
        self.all.len()
    }

    fn part(&mut self, range: Range<usize>) -> Result<Floats<'_>, TensorError> {
        let whole = range == (0..self.all.len());
        assert!(whole || range.start == self.next, "{range:?} after {}", self.next);
        self.next = range.end;
        self.part = self.all[range].to_vec();
        Ok(Floats::from(&self.part))
    }

    fn at_a_time(&self) -> usize {
        1
    }
}

/// `n` values in -1..1 (multiples of 2^-23), the same for the same seed (splitmix64).
pub fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    })
    .take(n)
    .collect()
}

/// Ones beside this are lost, but not the sum of an even number of them.
pub const LARGE: f32 = (1 << 24) as f32;

/// Calls `kernel` for every instruction set of this CPU with 1, 2 and 3 threads, and `check` once
/// for each set; the results of all thread counts must have the same bits.
pub fn on_every_machine(kernel: impl Fn(Isa, &Par) -> Vec<f32>, check: impl Fn(&[f32])) {
    thread_local!(static POOLS: [Pool; 3] = [1, 2, 3].map(Pool::new));
    for isa in Isa::available() {
        let results = POOLS.with(|pools| pools.each_ref().map(|p| p.enter(|par| kernel(isa, par))));
        check(&results[0]);
        for r in &results[1..] {
            assert!(
                same_bits(&results[0], r),
                "{isa}: the result depends on the number of threads"
            );
        }
    }
}

/// The nearest bf16 of each number, in words of two: the first one is the lower half.
pub fn words_of_bf16(x: &[f32]) -> Vec<f32> {
    let bits = |x: f32| u32::from(bf16::from_f32(x).to_bits());
    x.chunks_exact(2).map(|pair| f32::from_bits(bits(pair[0]) | bits(pair[1]) << 16)).collect()
}

/// Whether two results agree to the bit (any NaN equals any NaN).
pub fn same_bits(a: &[f32], b: &[f32]) -> bool {
    let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Panics unless |found - expected| <= bound(index) everywhere; infinities and NaN must match.
#[track_caller]
pub fn assert_close(found: &[f32], expected: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (&x, &y)) in found.iter().zip(expected).enumerate() {
        let same = (x.is_nan() && y.is_nan()) || f64::from(x) == y;
        let error = (f64::from(x) - y).abs();
        assert!(
            same || error <= bound(i),
            "[{i}]: {x} instead of {y}, off by {error:e}, not {:e}",
            bound(i)
        );
    }
}

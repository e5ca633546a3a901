//! What becomes of scores between the two products: N rows of them at a time.

use plutino_cpu::math::exp_nonpositive;
use plutino_cpu::simd::unroll::{array, unroll};
use plutino_cpu::simd::{Interleaved, Simd};

/// What is done to N rows of scores before the softmax.
pub(super) struct Masks<'a, const N: usize> {
    /// What all are multiplied with first.
    pub(super) scale: f32,
    /// What is added to each row then, in this order: as many as there are keys.
    pub(super) add: [Option<[&'a [f32]; N]>; 2],
    /// How many keys each row sees: the first ones.
    pub(super) visible: [usize; N],
}

/// N rows of the same length, one after the other.
#[inline(always)]
#[expect(unused_assignments, reason = "the rest behind the last one")]
fn apart<const N: usize>(rows: &mut [f32]) -> [&mut [f32]; N] {
    let (width, mut rest) = (rows.len() / N, rows);
    array!(N, |_I| {
        let (row, behind) = std::mem::take(&mut rest).split_at_mut(width);
        rest = behind;
        row
    })
}

impl<const N: usize> Masks<'_, N> {
    /// Scales and masks rows of scores with so many keys; the greatest of each. Rows are whole
    /// vectors: what is no key's becomes -inf.
    #[cfg_attr(not(unoptimised), inline(always))]
    pub(super) fn apply<S: Simd>(self, s: S, rows: &mut [f32], keys: usize) -> [f32; N] {
        let width = rows.len() / N;
        let rows = apart::<N>(rows);
        let Self { scale, add, visible } = self;
        let (scale, lowest) = (s.splat(scale), s.splat(f32::NEG_INFINITY));
        let mut greatest = array!(N, |I| lowest);
        let all = visible.iter().fold(keys, |all, &n| all.min(n));
        let whole = all - all % S::LANES;
        for at in (0..whole).step_by(S::LANES) {
            let mut x = array!(N, |I| s.mul(s.load(&rows[I][at..]), scale));
            for add in add.iter().flatten() {
                unroll!(N, |I| x[I] = s.add(x[I], s.load(&add[I][at..])));
            }
            unroll!(N, |I| {
                s.store(x[I], &mut rows[I][at..]);
                greatest[I] = s.max(x[I], greatest[I]); // a NaN leaves the greatest as it is
            });
        }
        for at in (whole..width).step_by(S::LANES) {
            let n = keys.saturating_sub(at).min(S::LANES);
            unroll!(N, |I| {
                let mut x = s.mul(s.load(&rows[I][at..]), scale);
                for add in add.iter().flatten() {
                    x = s.add(x, s.load_up_to(&add[I][at..], n));
                }
                x = s.first(x, visible[I].saturating_sub(at), f32::NEG_INFINITY);
                s.store(x, &mut rows[I][at..]);
                greatest[I] = s.max(x, greatest[I]);
            });
        }
        array!(N, |I| s.max_lane(greatest[I]))
    }
}

/// Turns rows of scores into e^(score - greatest), and sums them up; -inf is the greatest where
/// nothing is seen.
#[cfg_attr(not(unoptimised), inline(always))]
pub(super) fn exponentials<S: Simd, const N: usize>(
    s: S,
    rows: &mut [f32],
    greatest: &[f32; N],
) -> [f32; N] {
    let width = rows.len() / N;
    let rows = apart::<N>(rows);
    // Any finite number does where all are -inf: they become 0.
    let base = |m: f32| if m == f32::NEG_INFINITY { 0.0 } else { m };
    let base = array!(N, |I| s.splat(base(greatest[I])));
    let zero = s.zero();
    let mut sums = array!(N, |I| zero);
    for at in (0..width).step_by(S::LANES) {
        let x = array!(N, |I| s.sub(s.load(&rows[I][at..]), base[I]));
        let e = exp_nonpositive(Interleaved::<S, N>(s), x);
        unroll!(N, |I| {
            s.store(e[I], &mut rows[I][at..]);
            sums[I] = s.add(sums[I], e[I]);
        });
    }
    array!(N, |I| s.sum(sums[I]))
}

//! One step of one row: from gates to the next state, vectorised over units.

use plutino_cpu::activation::Activation;
use plutino_cpu::math::{sigmoid, tanh};
use plutino_cpu::simd::{Interleaved, Simd, Vectorized};

/// One step of one row. `gates` holds x Wih + h Whh + b, gate after gate.
pub(super) enum Step<'a> {
    /// c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c').
    Lstm {
        /// i, f, g, o.
        gates: &'a [f32],
        /// Updated.
        c: &'a mut [f32],
        /// Written.
        h: &'a mut [f32],
    },
    /// h' = (1 - z) n + z h with n = tanh(x Win + bin + r (h Whn + bhn)).
    Gru {
        /// r, z, and n's part of the input.
        gates: &'a [f32],
        /// h Whn + bhn.
        candidate: &'a [f32],
        /// Updated.
        h: &'a mut [f32],
    },
    /// h' = f(gate).
    Rnn {
        /// The activation.
        f: Activation,
        /// The only gate.
        gates: &'a [f32],
        /// Written.
        h: &'a mut [f32],
    },
}

impl Vectorized for Step<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self {
            Self::Lstm { gates, c, h } => lstm(Interleaved::<S, 2>(s), gates, c, h),
            Self::Gru { gates, candidate, h } => gru(Interleaved::<S, 2>(s), gates, candidate, h),
            Self::Rnn { f, gates, h } => {
                for (g, h) in gates.chunks(S::LANES).zip(h.chunks_mut(S::LANES)) {
                    let n = h.len();
                    s.store_up_to(f.apply(s, s.load_up_to(g, n)), h, n);
                }
            }
        }
    }
}

#[cfg_attr(not(unoptimised), inline(always))]
fn lstm<S: Simd>(s: S, gates: &[f32], c: &mut [f32], h: &mut [f32]) {
    let units = h.len();
    let (i, rest) = gates.split_at(units);
    let (f, rest) = rest.split_at(units);
    let (g, o) = rest.split_at(units);
    for at in (0..units).step_by(S::LANES) {
        let n = (units - at).min(S::LANES);
        let kept = s.mul(sigmoid(s, unit(s, f, at, n)), unit(s, c, at, n));
        let next = s.fma(sigmoid(s, unit(s, i, at, n)), tanh(s, unit(s, g, at, n)), kept);
        s.store_up_to(next, &mut c[at..], n);
        s.store_up_to(s.mul(sigmoid(s, unit(s, o, at, n)), tanh(s, next)), &mut h[at..], n);
    }
}

#[cfg_attr(not(unoptimised), inline(always))]
fn gru<S: Simd>(s: S, gates: &[f32], candidate: &[f32], h: &mut [f32]) {
    let units = h.len();
    let (r, rest) = gates.split_at(units);
    let (z, x) = rest.split_at(units);
    for at in (0..units).step_by(S::LANES) {
        let n = (units - at).min(S::LANES);
        let new = tanh(
            s,
            s.fma(sigmoid(s, unit(s, r, at, n)), unit(s, candidate, at, n), unit(s, x, at, n)),
        );
        let next = s.fma(sigmoid(s, unit(s, z, at, n)), s.sub(unit(s, h, at, n), new), new);
        s.store_up_to(next, &mut h[at..], n);
    }
}

/// `n` units from `at` on.
#[inline(always)] // a closure might not be
fn unit<S: Simd>(s: S, gate: &[f32], at: usize, n: usize) -> S::F32 {
    s.load_up_to(&gate[at..], n)
}

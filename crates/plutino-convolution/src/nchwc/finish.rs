//! Post-ops of every convolution on channel blocks: the residual and the activation.
//!
//! ```text
//! y = act(sum + residual)    or, where the residual comes last,    y = act(sum) + residual
//! ```
//! Limits and what else is cheap are applied while sums stand in registers. The other functions are
//! long chains of instructions that wait for each other, and it takes many vectors to keep a CPU
//! busy meanwhile: where a tile needs all registers they are applied later, to a run of results
//! that are still in the first-level cache.

use super::format::Format;
use crate::post_ops::{Residual, ResidualOrder};
use plutino_cpu::activation::{Activation, InPlace, hard_swish};
use plutino_cpu::math::silu;
use plutino_cpu::simd::unroll::unroll;
use plutino_cpu::simd::{Interleaved, Simd, Vectorized};

/// Pixels whose results are completed together: two blocks of channels take 7.5 KiB.
pub(super) const RUN: usize = 120;

/// The post-ops of a plan as tiles apply them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish {
    lo: f32,
    hi: f32,
    /// Whether these are limits.
    limited: bool,
    /// What is no limit.
    activation: Option<Activation>,
}

impl Finish {
    pub(super) fn new(activation: Option<Activation>) -> Self {
        let (lo, hi) = (f32::NEG_INFINITY, f32::INFINITY);
        let limits = |lo, hi| Self { lo, hi, limited: true, activation: None };
        match activation {
            Some(Activation::Relu) => limits(0.0, hi),
            Some(Activation::Relu6) => limits(0.0, 6.0),
            Some(Activation::Clamp { lo, hi }) => limits(lo as f32, hi as f32),
            activation => Self { lo, hi, limited: false, activation },
        }
    }

    /// Pixels after which results that are stored without [`Finish::late`] are to be completed.
    #[inline]
    pub(super) fn run_length(&self) -> usize {
        if self.late().is_some() { RUN } else { usize::MAX }
    }

    /// The activation that may be left for [`Finish::complete`].
    #[inline]
    fn late(&self) -> Option<Activation> {
        self.activation.filter(|&activation| activation != Activation::HardSwish)
    }

    /// Whether results are finished before they are stored, without `LATE`: else they are stored as
    /// f32 first.
    #[inline]
    pub(super) fn at_once(&self) -> bool {
        matches!(self.late(), None | Some(Activation::Silu))
    }

    /// Stores the results of consecutive pixels; `LATE` leaves the longer activations to
    /// [`Finish::complete`]. `y` and `residual` hold the words of as many pixels as there are, each
    /// a vector; where either is of bf16, `BF16` says so. What is stored as bf16 is
    /// [finished before](Self::at_once).
    #[cfg_attr(not(unoptimised), inline(always))]
    pub(super) fn store<S: Simd, const M: usize, const LATE: bool, const BF16: bool>(
        &self,
        s: S,
        sums: [S::F32; M],
        residual: Option<Residual<'_>>,
        (y, format): (&mut [f32], Format),
    ) {
        let mut sums = sums;
        let of = |format| if const { BF16 } { format } else { Format::F32 };
        let (before, after) = match residual {
            Some(Residual { data, order: ResidualOrder::AfterActivation, format }) => {
                (None, Some((data, of(format))))
            }
            Some(Residual { data, order: ResidualOrder::BeforeActivation, format }) => {
                (Some((data, of(format))), None)
            }
            None => (None, None),
        };
        add(s, &mut sums, before, y.len());
        if self.limited {
            // NaN comes through: the second operand of min and max wins over it.
            let (lo, hi) = (s.splat(self.lo), s.splat(self.hi));
            unroll!(M, |J| sums[J] = s.max(lo, sums[J]));
            // One step less for ReLU: what follows the sums keeps the next tile waiting.
            if self.hi < f32::INFINITY {
                unroll!(M, |J| sums[J] = s.min(hi, sums[J]));
            }
        }
        let mut rest = self.late();
        // By name: all of `Activation` in each tile would take minutes to compile.
        match self.activation {
            Some(Activation::Silu) if !LATE => (sums, rest) = (silu(Interleaved(s), sums), None),
            // So few steps that vectors need not take turns, which would take more registers than
            // there are.
            Some(Activation::HardSwish) => unroll!(M, |J| sums[J] = hard_swish(s, sums[J])),
            _ => {}
        }
        if rest.is_none() {
            add(s, &mut sums, after, y.len());
        }
        let n = M.min(y.len() / S::LANES);
        unroll!(M, |J| if J < n {
            of(format).store(s, sums[J], &mut y[J * S::LANES..]);
        });
        if let (Some(activation), false) = (rest, LATE) {
            debug_assert_eq!(format, Format::F32);
            s.outlined(Stored { activation, residual: after, y });
        }
    }

    /// Completes results that were stored as `LATE`: whole vectors of f32, as many as `residual`
    /// holds.
    #[cfg_attr(not(unoptimised), inline(always))]
    pub(super) fn complete<S: Simd>(&self, s: S, residual: Option<Residual<'_>>, y: &mut [f32]) {
        if let Some(activation) = self.late() {
            let after = |r: &Residual<'_>| r.order == ResidualOrder::AfterActivation;
            let residual = residual.filter(after).map(|r| (r.data, r.format));
            s.outlined(Stored { activation, residual, y });
        }
    }
}

/// Adds the vectors of a residual, as many as `len` elements are.
#[inline(always)]
fn add<S: Simd, const M: usize>(
    s: S,
    sums: &mut [S::F32; M],
    residual: Option<(&[f32], Format)>,
    len: usize,
) {
    if let Some((r, format)) = residual {
        unroll!(M, |J| if J < len / S::LANES {
            sums[J] = s.add(sums[J], format.load(s, &r[J * S::LANES..]));
        });
    }
}

/// Results that are stored, but for the activation and the residual after it: whole vectors.
struct Stored<'a> {
    activation: Activation,
    residual: Option<(&'a [f32], Format)>,
    y: &'a mut [f32],
}

impl Vectorized for Stored<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        s.outlined(InPlace::new(self.activation, self.y));
        let Some((residual, format)) = self.residual else { return };
        for (y, r) in self.y.chunks_exact_mut(S::LANES).zip(residual.chunks_exact(S::LANES)) {
            s.store(s.add(s.load(y), format.load(s, r)), y);
        }
    }
}

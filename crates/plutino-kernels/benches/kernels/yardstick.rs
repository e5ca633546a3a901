//! What the machine can do at best.

use std::hint::black_box;
use std::time::Instant;

use plutino_kernels::simd::{Simd, Vectorized};
use plutino_kernels::{Isa, Par};

/// What a computation cannot do without, and what bounds it therefore.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Multiplications and additions.
    Flops(u64),
    /// Bytes read and written.
    Bytes(u64),
}

/// Independent chains of multiply-adds: enough to cover their latency, few enough for 16 registers.
const CHAINS: usize = 12;
/// Links of a chain: some 50 microseconds.
const LINKS: usize = 16_000;

struct Chains;

impl Vectorized for Chains {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.zero(); CHAINS];
        let (a, b) = (black_box(s.splat(0.999)), black_box(s.splat(1e-3)));
        for _ in 0..LINKS {
            for sum in &mut sums {
                *sum = s.fma(*sum, a, b);
            }
        }
        sums.iter().map(|&sum| s.sum(sum)).sum()
    }
}

/// A computation of known work that meets its bound.
pub(crate) enum Yardstick {
    /// Multiply-adds in registers.
    Peak,
    /// A copy, from the one buffer to the other.
    Copy(Vec<f32>, Vec<f32>),
}

impl Yardstick {
    /// For work of this kind; a copy moves as many bytes, so that it meets the same caches.
    pub(crate) fn of(work: Work) -> Self {
        match work {
            Work::Flops(_) => Self::Peak,
            Work::Bytes(bytes) => {
                let len = bytes as usize / (2 * size_of::<f32>());
                Self::Copy(vec![1.0; len], vec![0.0; len])
            }
        }
    }

    /// Floating-point operations or bytes a second, the best of a few tries.
    pub(crate) fn measure(&mut self, isa: Isa, par: &Par) -> f64 {
        const TRIES: usize = 4;
        (0..TRIES).map(|_| self.once(isa, par)).fold(0.0, f64::max)
    }

    fn once(&mut self, isa: Isa, par: &Par) -> f64 {
        let start = Instant::now();
        let work = match self {
            Self::Peak => {
                par.run(par.threads(), |_| {
                    black_box(isa.run(Chains));
                });
                2 * CHAINS * LINKS * isa.lanes() * par.threads()
            }
            Self::Copy(from, to) => {
                let part = from.len().div_ceil(par.threads()).max(1);
                par.chunks_mut(to, part, |i, to| {
                    to.copy_from_slice(&black_box(&from)[i * part..][..to.len()]);
                });
                2 * size_of_val(black_box(&to[..]))
            }
        };
        work as f64 / start.elapsed().as_secs_f64()
    }
}

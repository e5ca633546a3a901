//! Max and average pooling on channel blocks.
//!
//! ```text
//! y[n, c, p] = max over taps t of x[n, c, at(p, t)]        taps in the padding do not count
//! y[n, c, p] = sum over taps t of x[n, c, at(p, t)] / d(p)
//! ```
//! where d(p) counts the taps inside the input, or inside input and padding, or is given
//! (<https://pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html>).

use super::window::{OUTSIDE, Window};
use crate::Par;
use crate::simd::{Isa, Simd, Vectorized};

/// What is computed over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolKind {
    /// The greatest; NaN wins.
    Max,
    /// The sum over the divisor of each output pixel.
    Average,
}

/// A pooling operator bound to its geometry.
#[derive(Debug)]
pub struct BlockedPool {
    isa: Isa,
    kind: PoolKind,
    window: Window,
    /// Offsets of all output pixels under each tap: `[tap][pixel]`.
    table: Vec<isize>,
    /// 1 / d(p) for each output pixel; empty for max.
    scale: Vec<f32>,
}

impl BlockedPool {
    /// Binds the geometry. `divisor(pixel, taps inside the input)` is d(p); max does not ask.
    pub fn new(
        isa: Isa,
        kind: PoolKind,
        window: Window,
        divisor: impl Fn(usize, usize) -> f32,
    ) -> Self {
        let pixels = window.pixels();
        let mut table = vec![0; pixels * window.taps()];
        window.offsets(0..pixels, isa.lanes(), &mut table);
        let scale = match kind {
            PoolKind::Max => Vec::new(),
            PoolKind::Average => (0..pixels)
                .map(|p| {
                    let inside =
                        table.iter().skip(p).step_by(pixels).filter(|&&o| o != OUTSIDE).count();
                    1.0 / divisor(p, inside)
                })
                .collect(),
        };
        Self { isa, kind, window, table, scale }
    }

    /// Computes all planes; `x` and `y` are blocked.
    ///
    /// Panics where the lengths do not fit: plans check them before.
    pub fn run(&self, x: &[f32], y: &mut [f32], par: &Par) {
        let b = self.isa.lanes();
        let (out_plane, in_plane) = (self.window.pixels() * b, self.window.input_pixels() * b);
        let planes = y.len() / out_plane;
        assert!(
            y.len() == planes * out_plane && x.len() == planes * in_plane,
            "lengths of a pooling"
        );
        par.chunks_mut(y, out_plane, |plane, y| {
            self.isa.run(Plane { pool: self, x: &x[plane * in_plane..][..in_plane], y });
        });
    }
}

struct Plane<'a> {
    pool: &'a BlockedPool,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Vectorized for Plane<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let pool = self.pool;
        let pixels = pool.window.pixels();
        for (p, y) in self.y.chunks_exact_mut(S::LANES).enumerate() {
            let mut acc = match pool.kind {
                PoolKind::Max => s.splat(f32::NEG_INFINITY),
                PoolKind::Average => s.zero(),
            };
            for &offset in pool.table[p..].iter().step_by(pixels) {
                if offset == OUTSIDE {
                    continue;
                }
                let x = s.load(&self.x[offset as usize..]);
                acc = match pool.kind {
                    // NaN of either operand comes through: of x as max's second operand, of acc by select.
                    PoolKind::Max => s.select(s.eq(acc, acc), s.max(acc, x), acc),
                    PoolKind::Average => s.add(acc, x),
                };
            }
            if let Some(&scale) = pool.scale.get(p) {
                acc = s.mul(acc, s.splat(scale));
            }
            s.store(acc, y);
        }
    }
}

//! From plain to blocked and back.

use plutino_cpu::Par;
use plutino_cpu::par::SharedMut;
use plutino_cpu::simd::{Isa, Simd, Vectorized};
use std::ops::Range;

/// Pixels of a task.
const PART: usize = 4096;

/// `(N, C, P)` plain to `(N, ceil(C/b), P, b)` blocked, with P pixels in a plane; surplus lanes
/// become 0.
///
/// Panics where the slices do not have those lengths.
pub fn to_blocked(
    isa: Isa,
    x: &[f32],
    y: &mut [f32],
    channels: usize,
    pixels: usize,
    block: usize,
    par: &Par,
) {
    let sizes = Sizes::new(channels, pixels, block);
    if pixels == 0 || channels == 0 {
        return;
    }
    let batch = sizes.batch(x.len(), y.len());
    let y = SharedMut::new(y);
    sizes.for_each_part(batch, par, |part| {
        let out = (part.blocks * pixels + part.pixels.start) * block
            ..(part.blocks * pixels + part.pixels.end) * block;
        isa.run(ToBlocked {
            planes: &x[part.plane..part.plane + part.lanes * pixels],
            stride: pixels,
            first: part.pixels.start,
            lanes: part.lanes,
            block,
            // SAFETY: parts are different pixels of different blocks.
            out: unsafe { y.slice(out) },
        });
    });
}

/// `(N, ceil(C/b), P, b)` blocked to `(N, C, P)` plain, with P pixels in a plane.
///
/// Panics where the slices do not have those lengths.
pub fn from_blocked(
    isa: Isa,
    x: &[f32],
    y: &mut [f32],
    channels: usize,
    pixels: usize,
    block: usize,
    par: &Par,
) {
    let sizes = Sizes::new(channels, pixels, block);
    if pixels == 0 || channels == 0 {
        return;
    }
    let batch = sizes.batch(y.len(), x.len());
    let y = SharedMut::new(y);
    // Whole planes: a part of a plane's pixels would be no slice of y's.
    let parts = batch * sizes.blocks();
    par.run(parts, |i| {
        let part = sizes.part(i, 0..pixels);
        isa.run(FromBlocked {
            source: &x[part.blocks * pixels * block..(part.blocks + 1) * pixels * block],
            pixels,
            lanes: part.lanes,
            block,
            // SAFETY: the planes of different blocks.
            planes: unsafe { y.slice(part.plane..part.plane + part.lanes * pixels) },
        });
    });
}

#[derive(Clone, Copy)]
struct Sizes {
    channels: usize,
    pixels: usize,
    block: usize,
}

/// Some pixels of one block of one image.
struct Part {
    /// Blocks before this one, of all images.
    blocks: usize,
    /// Where the first channel's plane starts in plain memory.
    plane: usize,
    /// Channels of the block.
    lanes: usize,
    pixels: Range<usize>,
}

impl Sizes {
    fn new(channels: usize, pixels: usize, block: usize) -> Self {
        Self { channels, pixels, block }
    }

    fn blocks(&self) -> usize {
        self.channels.div_ceil(self.block)
    }

    /// Images, from the lengths of plain and blocked memory.
    fn batch(&self, plain: usize, blocked: usize) -> usize {
        let image = self.channels * self.pixels;
        let batch = plain / image;
        assert!(
            plain == batch * image && blocked == batch * self.blocks() * self.pixels * self.block,
            "lengths of a reorder"
        );
        batch
    }

    fn part(&self, block: usize, pixels: Range<usize>) -> Part {
        let (n, cb) = (block / self.blocks(), block % self.blocks());
        let first = cb * self.block;
        Part {
            blocks: block,
            plane: (n * self.channels + first) * self.pixels,
            lanes: self.block.min(self.channels - first),
            pixels,
        }
    }

    fn for_each_part(&self, batch: usize, par: &Par, f: impl Fn(Part) + Sync) {
        let parts = self.pixels.div_ceil(PART);
        par.run_grid([batch, self.blocks(), parts], |_, [n, block, part]| {
            let start = part * PART;
            f(self.part(n * self.blocks() + block, start..(start + PART).min(self.pixels)));
        });
    }
}

/// out[pixel][lane] = planes[lane][first + pixel]
struct ToBlocked<'a> {
    planes: &'a [f32],
    /// Elements from one plane to the next.
    stride: usize,
    first: usize,
    lanes: usize,
    block: usize,
    out: &'a mut [f32],
}

impl Vectorized for ToBlocked<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { planes, stride, first, lanes, block, out } = self;
        let pixels = out.len() / block;
        if lanes < block {
            out.fill(0.0);
        }
        let (tiles, octets) = (pixels / 8, lanes / 8);
        for octet in 0..octets {
            for tile in 0..tiles {
                let from = &planes[octet * 8 * stride + first + tile * 8..];
                let to = &mut out[tile * 8 * block + octet * 8..];
                assert!(from.len() >= 7 * stride + 8 && to.len() >= 7 * block + 8);
                // SAFETY: 8 rows of 8 elements, `stride` apart; and as many written, `block` apart
                // (asserted).
                unsafe { s.transpose_8(8, from.as_ptr(), stride, to.as_mut_ptr(), block) };
            }
        }
        // Few channels, and what tiles leave over: some pixels at a time, which stay in the
        // first-level cache from lane to lane.
        const RUN: usize = 64;
        for (run, out) in out.chunks_mut(RUN * block).enumerate() {
            for lane in 0..lanes {
                let done = if lane < octets * 8 { tiles * 8 } else { 0 };
                let start = (run * RUN).max(done);
                let end = ((run + 1) * RUN).min(pixels);
                if start >= end {
                    continue;
                }
                let plane = &planes[lane * stride + first + start..][..end - start];
                let out = &mut out[(start - run * RUN) * block + lane..];
                for (out, &v) in out.iter_mut().step_by(block).zip(plane) {
                    *out = v;
                }
            }
        }
    }
}

/// planes[lane][pixel] = source[pixel][lane]
struct FromBlocked<'a> {
    source: &'a [f32],
    pixels: usize,
    lanes: usize,
    block: usize,
    planes: &'a mut [f32],
}

impl Vectorized for FromBlocked<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { source, pixels, lanes, block, planes } = self;
        let (tiles, octets) = (pixels / 8, lanes / 8);
        for octet in 0..octets {
            for tile in 0..tiles {
                let from = &source[tile * 8 * block + octet * 8..];
                let to = &mut planes[octet * 8 * pixels + tile * 8..];
                assert!(from.len() >= 7 * block + 8 && to.len() >= 7 * pixels + 8);
                // SAFETY: 8 rows of 8 elements, `block` apart; and as many written, `pixels` apart
                // (asserted).
                unsafe { s.transpose_8(8, from.as_ptr(), block, to.as_mut_ptr(), pixels) };
            }
        }
        for lane in 0..lanes {
            let done = if lane < octets * 8 { tiles * 8 } else { 0 };
            let plane = &mut planes[lane * pixels..][..pixels];
            for (p, v) in plane.iter_mut().enumerate().skip(done) {
                *v = source[p * block + lane];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_cpu::Pool;

    #[test]
    fn there_and_back() {
        for (batch, channels, pixels, block) in [
            (1usize, 3usize, 5usize, 8usize),
            (2, 17, 130, 8),
            (1, 16, 64, 16),
            (3, 4, 1, 4),
            (2, 3, 200, 4),
            (1, 7, 65, 4),
        ] {
            let x: Vec<f32> = (0..batch * channels * pixels).map(|i| i as f32 + 1.0).collect();
            let blocks = channels.div_ceil(block);
            let mut y = vec![f32::NAN; batch * blocks * pixels * block];
            let mut back = vec![0.0; x.len()];
            for isa in Isa::available() {
                y.fill(f32::NAN);
                back.fill(0.0);
                Pool::new(2).enter(|par| {
                    to_blocked(isa, &x, &mut y, channels, pixels, block, par);
                    from_blocked(isa, &y, &mut back, channels, pixels, block, par);
                });
                assert_eq!(back, x, "{isa}");
            }
            let at = |n: usize, c: usize, p: usize| {
                y[((n * blocks + c / block) * pixels + p) * block + c % block]
            };
            assert_eq!(at(batch - 1, channels - 1, pixels - 1), *x.last().unwrap());
            assert!(y.iter().all(|v| !v.is_nan()));
        }
    }
}

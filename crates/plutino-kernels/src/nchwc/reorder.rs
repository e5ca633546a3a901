//! From plain to blocked and back.

use crate::Par;
use crate::par::SharedMut;

/// Pixels that are moved at a time: their lines of all lanes stay in the first-level cache.
const RUN: usize = 64;
/// Pixels of a task: a multiple of [`RUN`].
const PART: usize = 64 * RUN;

/// `(N, C, P)` plain to `(N, ceil(C/b), P, b)` blocked, with P pixels in a plane; surplus lanes become 0.
///
/// Panics where the slices do not have those lengths.
pub fn to_blocked(
    x: &[f32],
    y: &mut [f32],
    channels: usize,
    pixels: usize,
    block: usize,
    par: &Par,
) {
    let blocks = channels.div_ceil(block);
    let (plain, blocked) = (channels * pixels, blocks * pixels * block);
    if plain == 0 {
        return;
    }
    let batch = x.len() / plain;
    assert!(x.len() == batch * plain && y.len() == batch * blocked, "lengths of a reorder");
    let parts = pixels.div_ceil(PART);
    let y = SharedMut::new(y);
    par.run(batch * blocks * parts, |task| {
        let (i, part) = (task / parts, task % parts);
        let (n, cb) = (i / blocks, i % blocks);
        let first = cb * block;
        let lanes = block.min(channels - first);
        let planes = &x[n * plain + first * pixels..][..lanes * pixels];
        for start in (part * PART..((part + 1) * PART).min(pixels)).step_by(RUN) {
            let end = (start + RUN).min(pixels);
            let at = i * pixels;
            // SAFETY: tasks write different pixels of different blocks, inside y (lengths asserted).
            let out = unsafe { y.slice((at + start) * block..(at + end) * block) };
            if block == 4 {
                let lane = |i: usize| planes.get(i * pixels + start..i * pixels + end);
                interleave([0, 1, 2, 3].map(|i| lane(i).unwrap_or(&[])), out);
                continue;
            }
            if lanes < block {
                out.fill(0.0);
            }
            for (lane, plane) in planes.chunks_exact(pixels).enumerate() {
                for (o, &v) in out[lane..].iter_mut().step_by(block).zip(&plane[start..end]) {
                    *o = v;
                }
            }
        }
    });
}

/// Four planes side by side; what a plane lacks is 0.
fn interleave([a, b, c, d]: [&[f32]; 4], out: &mut [f32]) {
    let zeros = [0.0; RUN];
    let pixels = out.len() / 4;
    let [a, b, c, d] = [a, b, c, d].map(|x| if x.len() < pixels { &zeros } else { x });
    for ((((out, a), b), c), d) in out.chunks_exact_mut(4).zip(a).zip(b).zip(c).zip(d) {
        out.copy_from_slice(&[*a, *b, *c, *d]);
    }
}

/// `(N, ceil(C/b), P, b)` blocked to `(N, C, P)` plain, with P pixels in a plane.
///
/// Panics where the slices do not have those lengths.
pub fn from_blocked(
    x: &[f32],
    y: &mut [f32],
    channels: usize,
    pixels: usize,
    block: usize,
    par: &Par,
) {
    let blocks = channels.div_ceil(block);
    let (plain, blocked) = (channels * pixels, blocks * pixels * block);
    if plain == 0 {
        return;
    }
    let batch = y.len() / plain;
    assert!(y.len() == batch * plain && x.len() == batch * blocked, "lengths of a reorder");
    let out = SharedMut::new(y);
    par.run(batch * blocks, |i| {
        let (n, cb) = (i / blocks, i % blocks);
        let first = cb * block;
        let lanes = block.min(channels - first);
        let start = n * plain + first * pixels;
        // SAFETY: tasks write the planes of different (image, block): disjoint, inside y (lengths asserted).
        let planes = unsafe { out.slice(start..start + lanes * pixels) };
        let source = &x[i * pixels * block..][..pixels * block];
        for start in (0..pixels).step_by(RUN) {
            let end = (start + RUN).min(pixels);
            let source = &source[start * block..end * block];
            for (lane, plane) in planes.chunks_exact_mut(pixels).enumerate() {
                for (o, &v) in
                    plane[start..end].iter_mut().zip(source[lane..].iter().step_by(block))
                {
                    *o = v;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

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
            Pool::new(2).enter(|par| {
                to_blocked(&x, &mut y, channels, pixels, block, par);
                from_blocked(&y, &mut back, channels, pixels, block, par);
            });
            assert_eq!(back, x);
            let at = |n: usize, c: usize, p: usize| {
                y[((n * blocks + c / block) * pixels + p) * block + c % block]
            };
            assert_eq!(at(batch - 1, channels - 1, pixels - 1), *x.last().unwrap());
            assert!(y.iter().all(|v| !v.is_nan()));
        }
    }
}

//! Input that a kernel asks the cache for before its turn.
//!
//! A tile goes through all channels of a few pixels. In channel blocks these lie in as many planes,
//! hundreds of kilobytes apart, and a CPU's own prefetchers do not follow from the one to the
//! other: where an image comes from the third-level cache or from memory, each line of it would be
//! waited for. So whoever is the first to read a part of such an image asks for the part after it.
//!
//! # Measured
//! Zen 5, one thread, images from memory, 2026-11-28: 1x1 layers 1.2 to 2.4 times as fast, direct
//! ones with stride 2 by 6 %, F(4x4, 3x3) and F(5x5, 3x3) by 5 to 9 %, depthwise ones 1.1 to 1.9
//! times: docs/decisions/002-direct-convolution.md.

use super::window::Window;
use plutino_cpu::simd::{LINE, Simd};
use plutino_products::gemm::Machine;

/// Cycles between asking for a line and using it: what memory takes, when it is busy.
const DISTANCE: usize = 2400;

/// Tiles of Winograd's stride 1 algorithms in which their input arrives.
pub(super) const TILES: usize = 4;

/// Whether images of so many f32 in all, which were made before the first of them is read, are not
/// in the second-level cache any more: too large. (Of smaller ones much is there, and asking took
/// ResNet-18 and ResNet-50 1 % longer.)
#[inline]
pub(super) fn pays(images: usize) -> bool {
    images > Machine::this().l2 / size_of::<f32>()
}

/// What a tile asks for while it reads its own input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// Elements from the tap of a pixel to that of a later one.
    pub(super) elements: usize,
    /// The taps where it does so, as [`first_taps`].
    pub(super) taps: u64,
}

impl Ahead {
    /// Nothing.
    pub(super) const NOTHING: Self = Self { elements: 0, taps: 0 };

    /// For tiles of so many pixels, of `terms` multiply-adds each, about a cycle for a pair of
    /// vectors; input pixels are `pixel` elements apart. A whole tile ahead at least.
    #[inline]
    pub(super) fn new(window: &Window, terms: usize, tile: usize, pixel: usize) -> Self {
        let pixels = (DISTANCE / terms.max(1)).max(tile);
        Self { elements: pixels * window.stride[1] * pixel, taps: first_taps(window) }
    }
}

/// The taps that are the first to meet a pixel of the input, as the bits of their numbers: those of
/// the last rows, and as many columns as one output pixel is ahead of the other. None beyond 64.
#[inline]
fn first_taps(window: &Window) -> u64 {
    let [height, width] = window.kernel;
    let rows = height.saturating_sub(window.stride[0])..height;
    let taps = rows.flat_map(|y| (0..width.min(window.stride[1])).map(move |x| y * width + x));
    taps.filter(|&tap| tap < 64).fold(0, |bits, tap| bits | 1 << tap)
}

/// Asks for so many f32.
#[inline(always)]
pub(super) fn lines<S: Simd>(s: S, first: *const f32, len: usize) {
    for at in (0..len).step_by(LINE / size_of::<f32>()) {
        s.prefetch(first.wrapping_add(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_that_meet_new_pixels() {
        let taps = |kernel, stride| {
            let window = Window::new([32, 32], [8, 8], [kernel; 2], [stride; 2], [1, 1], [1, 1]);
            first_taps(&window.unwrap())
        };
        assert_eq!(taps(1, 1), 1);
        assert_eq!(taps(3, 1), 1 << 6);
        assert_eq!(taps(3, 2), 0b11_011_000);
        assert_eq!(taps(2, 3), 0b1111);
        assert_eq!(taps(9, 1), 0); // tap 72
    }
}

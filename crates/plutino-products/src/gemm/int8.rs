//! Weights of one byte: integers from -127 to 127 and a scale for each column of each depth block.
//!
//! ```text
//! w[k, j] = q[k, j] scale[j]        scale[j] = max over k of |w[k, j]| / 127
//! ```
//! A depth block has at most [`CHAIN`](super::tile::CHAIN) terms, so that a scale is that of so
//! many neighbours; each weight is off by half a scale at most, 1/254 of the largest of them. The
//! integers are multiplied as f32, widened in a register or a block at a time as other narrow
//! weights are (`narrow.rs`), and the sum of a block is multiplied with the scale before it is
//! added to those of the blocks before it: either way with the same bits.

use plutino_cpu::Isa;
use plutino_cpu::simd::{Simd, Vectorized};

/// The greatest magnitude of an integer.
const MOST: f32 = 127.0;

/// Writes the integers of a panel of `scales.len()` columns, and the scales.
///
/// # Panics
/// Where there are not as many elements.
pub(super) fn write(isa: Isa, from: &[f32], to: &mut [i8], scales: &mut [f32]) {
    isa.run(Write { from, to, scales });
}

/// Widens integers.
///
/// # Panics
/// Where there are not as many elements.
pub(super) fn read(isa: Isa, from: &[i8], to: &mut [f32]) {
    isa.run(Read { from, to });
}

struct Write<'a> {
    from: &'a [f32],
    to: &'a mut [i8],
    scales: &'a mut [f32],
}

impl Vectorized for Write<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { from, to, scales } = self;
        let width = scales.len().max(1);
        assert_eq!(from.len(), to.len());
        scales.fill(0.0);
        for row in from.chunks_exact(width) {
            for (most, x) in scales.iter_mut().zip(row) {
                *most = if x.abs() > *most { x.abs() } else { *most };
            }
        }
        scales.iter_mut().for_each(|most| *most /= MOST);
        for (row, to) in from.chunks_exact(width).zip(to.chunks_exact_mut(width)) {
            for ((x, to), scale) in row.iter().zip(to).zip(&*scales) {
                // Of weights that are all as good as zero the scale is zero: 0 / 0 becomes 0.
                *to = (x / scale).round_ties_even().clamp(-MOST, MOST) as i8;
            }
        }
    }
}

struct Read<'a> {
    from: &'a [i8],
    to: &'a mut [f32],
}

impl Vectorized for Read<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        assert_eq!(self.from.len(), self.to.len());
        for (to, &x) in self.to.iter_mut().zip(self.from) {
            *to = f32::from(x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_a_column_is_127_scales() {
        for isa in Isa::available() {
            // Columns of nothing, of what is next to nothing, and of usual numbers.
            let from = [0.0, 1e-45, -2.0, 0.5, 0.0, 0.0, 1.0, -0.25, 0.0, 0.0, 0.01, 0.25];
            let (mut to, mut scales, mut back) = ([0i8; 12], [9.0f32; 4], [0.0f32; 12]);
            write(isa, &from, &mut to, &mut scales);
            assert_eq!(scales, [0.0, 0.0, 2.0 / 127.0, 0.5 / 127.0]);
            assert_eq!(to, [0, 127, -127, 127, 0, 0, 64, -64, 0, 0, 1, 64]);
            read(isa, &to, &mut back);
            assert_eq!(back.map(|x| x as i8), to);
        }
    }
}

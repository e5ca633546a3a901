//! Resizing as Pillow does it, to the last bit: `Image.resize` with `BILINEAR` or `BICUBIC`, which
//! torchvision's `Resize` calls for pictures.
//!
//! ```text
//! y[i] = sum over j of k[i, j] x[j],  k[i, j] = f((j + 1/2 - (i + 1/2) s) / max(s, 1)) / sum
//! ```
//! where s is how many pixels of the input one of the output covers: a filter that widens where the
//! picture shrinks (antialiasing). Columns and rows apart, each rounded to bytes; weights are
//! integers of 22 bits.

mod linear;

use plutino::tensor::alloc;

use crate::{Pixels, Size, VisionError};

/// Which filter resizing uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// A triangle over 2 pixels
    #[default]
    Bilinear,
    /// Keys' cubic over 4 pixels (a = -1/2)
    Bicubic,
    /// A triangle over 2 pixels of the input, however small the output (no antialiasing): what
    /// OpenCV does, to the last bit
    Linear,
}

impl Filter {
    /// Beyond this it is zero, on both sides.
    fn support(self) -> f64 {
        match self {
            Self::Bilinear | Self::Linear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Self::Bilinear | Self::Linear if x < 1.0 => 1.0 - x,
            Self::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            _ => 0.0,
        }
    }
}

/// Bits behind the point of a weight.
const BITS: u32 = 32 - 8 - 2;

/// The weights of one output pixel: the first input pixel that they are for, and themselves.
struct Weights {
    first: usize,
    each: Vec<i32>,
}

/// The weights of every output pixel along one dimension.
fn weights(filter: Filter, from: usize, to: usize) -> Result<Vec<Weights>, VisionError> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let one = |i: usize| {
        let center = (i as f64 + 0.5) * scale;
        // Towards zero, and no less than zero: as Pillow's conversions to int, then its limit.
        let first = (center - support + 0.5) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let raw = (first..end).map(|j| filter.at((j as f64 - center + 0.5) * (1.0 / stretch)));
        let raw: Vec<f64> = raw.collect();
        let sum = raw.iter().fold(0.0, |sum, w| sum + w);
        let fixed = |w: f64| {
            let w = if sum != 0.0 { w / sum } else { w } * f64::from(1 << BITS);
            (if w < 0.0 { w - 0.5 } else { w + 0.5 }) as i32
        };
        Weights { first, each: raw.into_iter().map(fixed).collect() }
    };
    Ok(alloc::collect((0..to).map(one))?)
}

/// A weighted sum, as a byte.
fn sum(weights: &Weights, byte: impl Fn(usize) -> u8) -> u8 {
    let each = weights.each.iter().zip(weights.first..);
    let sum: i32 = each.map(|(&w, at)| w * i32::from(byte(at))).sum();
    ((sum + (1 << (BITS - 1))) >> BITS).clamp(0, 255) as u8
}

/// The picture in another size.
///
/// # Errors
/// Too little memory.
pub(crate) fn resize(picture: &Pixels, to: Size, filter: Filter) -> Result<Pixels, VisionError> {
    let from = picture.size;
    if from == to {
        return Ok(picture.clone());
    }
    if filter == Filter::Linear {
        return linear::resize(picture, to);
    }
    // Pillow 13 begins with rows where that saves much (as its results tell: no page says so).
    let fewer = |from: u32, to: u32| i64::from(from) - i64::from(to);
    let (rows, columns) = (fewer(from.height, to.height), fewer(from.width, to.width));
    match rows > 0 && rows > 2 * columns {
        true => along_columns(&along_rows(picture, to.height, filter)?, to.width, filter),
        false => along_rows(&along_columns(picture, to.width, filter)?, to.height, filter),
    }
}

/// In another width.
fn along_columns(picture: &Pixels, width: u32, filter: Filter) -> Result<Pixels, VisionError> {
    let (size, channels) = (Size { width, ..picture.size }, picture.channels);
    if picture.size == size {
        return Ok(picture.clone());
    }
    let length = picture.size.width as usize * channels;
    let columns = weights(filter, picture.size.width as usize, width as usize)?;
    let mut bytes = alloc::filled(size.pixels() * channels, 0)?;
    let made = bytes.chunks_exact_mut(width as usize * channels);
    for (to, row) in made.zip(picture.bytes.chunks_exact(length)) {
        for (to, column) in to.chunks_exact_mut(channels).zip(&columns) {
            for (c, to) in to.iter_mut().enumerate() {
                *to = sum(column, |x| row[x * channels + c]);
            }
        }
    }
    Ok(Pixels { size, channels, bytes })
}

/// In another height.
fn along_rows(picture: &Pixels, height: u32, filter: Filter) -> Result<Pixels, VisionError> {
    let (size, channels) = (Size { height, ..picture.size }, picture.channels);
    if picture.size == size {
        return Ok(picture.clone());
    }
    let length = picture.size.width as usize * channels;
    let rows = weights(filter, picture.size.height as usize, height as usize)?;
    let mut bytes = alloc::filled(size.pixels() * channels, 0)?;
    // Sums of a whole row at once, as its pixels lie in memory.
    let mut sums = alloc::filled(length, 0i32)?;
    for (to, row) in bytes.chunks_exact_mut(length).zip(&rows) {
        sums.fill(1 << (BITS - 1));
        let from = picture.bytes.chunks_exact(length).skip(row.first);
        for (&weight, from) in row.each.iter().zip(from) {
            for (sum, &byte) in sums.iter_mut().zip(from) {
                *sum += weight * i32::from(byte);
            }
        }
        for (to, sum) in to.iter_mut().zip(&sums) {
            *to = (sum >> BITS).clamp(0, 255) as u8;
        }
    }
    Ok(Pixels { size, channels, bytes })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::crc32;

    /// A picture of noise: what `noise` in xtask/python/golden.py makes.
    pub(super) fn noise(size: Size, channels: usize) -> Pixels {
        let mut state = 12345u32;
        let bytes = (0..size.pixels() * channels).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        Pixels { size, channels, bytes: bytes.collect() }
    }

    #[test]
    fn as_pillow_resizes() {
        let golden: &[(&str, &[u32])] = &include!("antialiased.in");
        for (case, crcs) in golden {
            let sizes: Vec<u32> = case.split(' ').map(|n| n.parse().unwrap()).collect();
            let &[channels, h, w, height, width] = &sizes[..] else { panic!("{case}") };
            let picture = noise(Size { height: h, width: w }, channels as usize);
            for (filter, &crc) in [Filter::Bilinear, Filter::Bicubic].into_iter().zip(*crcs) {
                let made = resize(&picture, Size { height, width }, filter).unwrap();
                assert_eq!(crc32(&made.bytes), crc, "{case}, {filter:?}");
            }
        }
    }
}

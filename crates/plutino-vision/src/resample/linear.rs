//! Resizing as OpenCV does bytes with `INTER_LINEAR`, to the last bit: two pixels of the input for
//! one of the output along each axis, however small the output. Weights are integers of 11 bits;
//! columns keep all digits, rows drop four before and the rest after they are weighted.

use plutino::tensor::alloc;

use crate::{Pixels, Size, VisionError};

/// Bits behind the point of a weight.
const BITS: i32 = 11;

/// The two pixels of the input that an output pixel lies between, and their weights.
#[derive(Clone, Copy)]
struct Taps {
    at: [usize; 2],
    weight: [i32; 2],
}

/// Those of every output pixel along one axis. Outside of the picture its outermost pixel stands:
/// along `x` with the whole weight, along `y` twice, which rounds in another way.
fn taps(from: u32, to: u32, along_x: bool) -> Result<Vec<Taps>, VisionError> {
    let scale = 1.0 / (f64::from(to) / f64::from(from));
    let last = i64::from(from) - 1;
    let each = (0..to).map(|i| {
        let place = ((f64::from(i) + 0.5) * scale - 0.5) as f32;
        let first = place.floor();
        let outside = along_x && (first < 0.0 || first as i64 >= last);
        let part = if outside { 0.0 } else { place - first };
        let at = |i: i64| i.clamp(0, last) as usize;
        let fixed = |w: f32| (w * (1 << BITS) as f32).round_ties_even() as i32;
        Taps {
            at: [at(first as i64), at(first as i64 + 1)],
            weight: [fixed(1.0 - part), fixed(part)],
        }
    });
    Ok(alloc::grow(each)?)
}

/// The picture in another size.
pub(super) fn resize(picture: &Pixels, to: Size) -> Result<Pixels, VisionError> {
    match picture.channels {
        1 => resize_channels::<1>(picture, to),
        _ => resize_channels::<3>(picture, to),
    }
}

/// [`resize`] for pixels of so many bytes: a number that the compiler knows unrolls the loops.
fn resize_channels<const C: usize>(picture: &Pixels, to: Size) -> Result<Pixels, VisionError> {
    let columns = taps(picture.size.width, to.width, true)?;
    let rows = taps(picture.size.height, to.height, false)?;
    let (own, made) = (picture.size.width as usize, to.width as usize * C);
    // Two rows of the input in the width of the output, each computed once.
    let mut lines = [alloc::filled(made, 0i16)?, alloc::filled(made, 0i16)?];
    let mut held = [usize::MAX; 2];
    let (pixels, _) = picture.bytes.as_chunks::<C>();
    let widen = |row: usize, line: &mut [i16]| {
        let Some(pixels) = pixels.get(row * own..(row + 1) * own) else { return };
        for (to, taps) in line.as_chunks_mut::<C>().0.iter_mut().zip(&columns) {
            let [left, right] = taps.at.map(|at| pixels.get(at).unwrap_or(&[0; C]));
            for c in 0..C {
                let sums = [left[c], right[c]].map(i32::from);
                let sum = sums[0] * taps.weight[0] + sums[1] * taps.weight[1];
                to[c] = (sum >> 4) as i16; // below 2^15: a byte and the weights' 11 bits, less 4
            }
        }
    };
    let mut bytes = alloc::filled(to.pixels() * C, 0)?;
    for (out, taps) in bytes.chunks_exact_mut(made.max(1)).zip(&rows) {
        if held[1] == taps.at[0] && held[0] != taps.at[0] {
            lines.swap(0, 1);
            held.swap(0, 1);
        }
        for (line, (held, &row)) in lines.iter_mut().zip(held.iter_mut().zip(&taps.at)) {
            if *held != row {
                widen(row, line);
                *held = row;
            }
        }
        let [above, below] = &lines;
        let [first, second] = taps.weight.map(|weight| weight as i16);
        for ((out, above), below) in out.iter_mut().zip(above).zip(below) {
            // The upper half of a product of 16 bits: one instruction for a vector of them.
            let part = |weight: i16, sum: i16| ((i32::from(weight) * i32::from(sum)) >> 16) as i16;
            *out = ((part(first, *above) + part(second, *below) + 2) >> 2).clamp(0, 255) as u8;
        }
    }
    Ok(Pixels { size: to, channels: C, bytes })
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use crate::{Recipe, Size};

    /// What ultralytics' `LetterBox` makes of noise (xtask/python/golden.py).
    #[test]
    fn letterboxes_as_ultralytics_does() {
        let golden: &[(&str, u32)] = &include!("letterbox.in");
        assert!(golden.len() >= 30);
        for (case, crc) in golden {
            let sizes: Vec<u32> = case.split(' ').map(|n| n.parse().unwrap()).collect();
            let &[h, w, height, width] = &sizes[..] else { panic!("{case}") };
            let recipe =
                Recipe { letterbox: true, size: Some(Size { height, width }), ..Recipe::default() };
            let (made, _) = recipe.place(&noise(Size { height: h, width: w }, 3), None).unwrap();
            assert_eq!(crate::crc32(&made.bytes), *crc, "{case}");
        }
    }
}

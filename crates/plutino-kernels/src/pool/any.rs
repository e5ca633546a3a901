//! Pooling of every dtype, and maximum with indices: one window after the other.
//!
//! Loops: for each plane (parallel) - each output - each input of its window, row-major, so that
//! the first of equal maxima, and the last NaN, win.

use super::{Divisor, Geometry, Reduction, Window};
use crate::Par;
use crate::number::{Number, Ordered, Wide, WideReal};
use crate::par::SharedMut;
use std::ops::Range;

/// Steps of work (output x tap) below which a task is not worth a thread.
const GRAIN: usize = 1 << 12;

/// Output rows that make up a task.
fn grain(geometry: &Geometry) -> usize {
    let taps: usize = geometry.axes.iter().map(|a| a.window(a.output() / 2).taps.max(1)).product();
    GRAIN / geometry.axes[2].output().saturating_mul(taps).max(1)
}

/// Plane and windows of every output of these rows.
fn outputs(geometry: &Geometry, rows: Range<usize>) -> impl Iterator<Item = (usize, [Window; 3])> {
    rows.flat_map(move |row| {
        let (plane, z, y) = geometry.row(row);
        (0..geometry.axes[2].output()).map(move |x| (plane, [z, y, geometry.axes[2].window(x)]))
    })
}

/// The positions of a window's inputs, row-major.
#[inline(always)]
fn inputs(geometry: &Geometry, plane: usize, windows: [Window; 3]) -> impl Iterator<Item = usize> {
    let [z, y, x] = windows;
    let [depth, height, width] = geometry.axes.map(|a| a.input());
    z.positions().flat_map(move |z| {
        y.positions().flat_map(move |y| {
            let row = ((plane * depth + z) * height + y) * width;
            x.positions().map(move |x| row + x)
        })
    })
}

/// Pools plain volumes (`inner` = 1) of any real dtype. Sums are taken in f64, or in i64, where
/// averages truncate.
///
/// # Panics
/// Where a slice is not as long as the geometry says.
pub fn pool_any<T: Ordered>(
    par: &Par,
    geometry: &Geometry,
    reduction: Reduction,
    input: &[T],
    output: &mut [T],
) {
    geometry.check(input.len(), output.len());
    let (row, output) = (geometry.axes[2].output(), SharedMut::new(output));
    par.split(geometry.rows(), grain(geometry), |rows| {
        // SAFETY: tasks have disjoint rows.
        let output = unsafe { output.slice(rows.start * row..rows.end * row) };
        for ((plane, windows), out) in outputs(geometry, rows).zip(output) {
            let taps = inputs(geometry, plane, windows).map(|i| input[i]);
            *out = match reduction {
                Reduction::Max => {
                    taps.fold(T::LOWEST, |best, x| if x.beats_as_max(best) { x } else { best })
                }
                Reduction::Average(divisor) => {
                    let empty = windows.iter().any(|w| w.taps == 0);
                    let sum = taps.fold(T::Wide::ZERO, |sum, x| sum.plus(x.widen()));
                    let mean = T::overflow(sum).over(divisor.of(windows));
                    T::narrow(if empty { T::Wide::ZERO } else { mean })
                }
                Reduction::Power { p, .. } if p.is_infinite() => {
                    let sizes = taps.map(|x| x.widen().to_f64().abs() * p.signum());
                    let most = sizes
                        .fold(f64::LOWEST, |best, x| if x.beats_as_max(best) { x } else { best });
                    T::narrow(T::Wide::from_f64(most * p.signum()))
                }
                Reduction::Power { p, size } => {
                    let sum: f64 = taps.map(|x| x.widen().to_f64().powf(p)).sum();
                    let mean = sum / Divisor::Inputs.of(windows) as f64;
                    T::narrow(T::Wide::from_f64((mean * size as f64).powf(1.0 / p)))
                }
            };
        }
    });
}

/// The maximum of each window and its flat position in the input volume. The first of equal maxima
/// wins, and the last NaN over everything, as in PyTorch. A window without inputs gives -inf (or
/// the least integer) and 0.
///
/// # Panics
/// Where a slice is not as long as the geometry says.
pub fn max_with_indices<T: Ordered>(
    par: &Par,
    geometry: &Geometry,
    input: &[T],
    output: &mut [T],
    indices: &mut [i64],
) {
    geometry.check(input.len(), output.len());
    geometry.check(input.len(), indices.len());
    let row = geometry.axes[2].output();
    let (output, indices) = (SharedMut::new(output), SharedMut::new(indices));
    par.split(geometry.rows(), grain(geometry), |rows| {
        let part = rows.start * row..rows.end * row;
        // SAFETY: tasks have disjoint rows.
        let (output, indices) = unsafe { (output.slice(part.clone()), indices.slice(part)) };
        for (((plane, windows), out), index) in outputs(geometry, rows).zip(output).zip(indices) {
            let start = plane * geometry.input_volume();
            let (mut best, mut at) = (T::LOWEST, start);
            for (n, i) in inputs(geometry, plane, windows).enumerate() {
                if n == 0 || input[i] > best || input[i].is_nan() {
                    (best, at) = (input[i], i);
                }
            }
            (*out, *index) = (best, (at - start) as i64);
        }
    });
}

/// Puts each input at its index of the output volume, zeros elsewhere: the inverse of
/// [`max_with_indices`], see <https://pytorch.org/docs/stable/generated/torch.nn.MaxUnpool2d.html>.
/// Of equal indices the last wins.
///
/// # Errors
/// The first index outside `0..volume`, where there is one.
///
/// # Panics
/// Where the slices do not hold the same number of volumes.
pub fn max_unpool<T: Number>(
    par: &Par,
    planes: usize,
    input: &[T],
    indices: &[i64],
    output: &mut [T],
) -> Result<(), i64> {
    assert_eq!(input.len(), indices.len(), "indices of an unpooling");
    let (from, to) = (input.len() / planes.max(1), output.len() / planes.max(1));
    assert!(from * planes == input.len() && to * planes == output.len(), "planes of an unpooling");
    if let Some(&bad) = indices.iter().find(|&&i| !usize::try_from(i).is_ok_and(|i| i < to)) {
        return Err(bad);
    }
    par.chunks_mut(output, to, |plane, output| {
        output.fill(T::default());
        let part = plane * from..(plane + 1) * from;
        for (&x, &i) in input[part.clone()].iter().zip(&indices[part]) {
            output[i as usize] = x;
        }
    });
    Ok(())
}

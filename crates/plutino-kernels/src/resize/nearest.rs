//! Nearest neighbours: copies of elements.
//!
//! `out[z, y, x] = in[nearest(z), nearest(y), nearest(x)]`
//!
//! Loops: for each output row (parallel) - copy the row before it where that has the same inputs,
//! else pick its elements one by one, or repeat each input where the width grows by a whole factor.
//! The speed is the memory's.

use super::Taps;
use crate::Par;
use crate::par::SharedMut;

/// Elements below which a task is not worth a thread.
const GRAIN: usize = 1 << 13;

/// A nearest-neighbour resize bound to its sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Nearest {
    axes: [Taps; 3],
    /// By which factor the width grows, where every input is repeated as often.
    factor: Option<usize>,
}

impl Nearest {
    /// From the taps of depth, height and width; of each output the first input counts.
    pub fn new(axes: [Taps; 3]) -> Self {
        let (input, starts) = (axes[2].input(), axes[2].starts());
        let factor = (starts.len() / input).max(1);
        let even = starts.len() == input * factor
            && starts.iter().enumerate().all(|(o, &i)| o / factor == i as usize);
        Self { axes, factor: even.then_some(factor) }
    }

    /// Elements of an input volume.
    pub fn input_volume(&self) -> usize {
        self.axes.iter().map(Taps::input).fold(1, usize::saturating_mul)
    }

    /// Elements of an output volume.
    pub fn output_volume(&self) -> usize {
        self.axes.iter().map(Taps::output).fold(1, usize::saturating_mul)
    }
}

/// Resizes volumes of elements of any type (a block of channels is an element, too).
///
/// # Panics
/// Where the slices do not hold the same number of volumes.
pub fn resize_nearest<T: Copy + Send + Sync>(
    par: &Par,
    resize: &Nearest,
    planes: usize,
    input: &[T],
    output: &mut [T],
) {
    assert_eq!(input.len(), planes.saturating_mul(resize.input_volume()), "input of a resize");
    assert_eq!(output.len(), planes.saturating_mul(resize.output_volume()), "output of a resize");
    let [depth, height, width] = &resize.axes;
    let row = width.output();
    if output.is_empty() {
        return;
    }
    let source = |r: usize| {
        let (plane_z, y) = (r / height.output(), r % height.output());
        let (plane, z) = (plane_z / depth.output(), plane_z % depth.output());
        let z = plane * depth.input() + depth.starts()[z] as usize;
        z * height.input() + height.starts()[y] as usize
    };
    let rows = output.len() / row;
    let output = SharedMut::new(output);
    par.split(rows, GRAIN / row, |rows| {
        // SAFETY: tasks have disjoint rows.
        let out = unsafe { output.slice(rows.start * row..rows.end * row) };
        let mut last = None;
        for (k, r) in rows.enumerate() {
            let from = source(r);
            if last == Some(from) {
                out.copy_within((k - 1) * row..k * row, k * row);
                continue;
            }
            last = Some(from);
            let from = &input[from * width.input()..(from + 1) * width.input()];
            let out = &mut out[k * row..(k + 1) * row];
            match resize.factor {
                Some(1) => out.copy_from_slice(from),
                // A factor known when compiling becomes vector code.
                Some(2) => out.chunks_exact_mut(2).zip(from).for_each(|(out, &x)| out.fill(x)),
                Some(n) => out.chunks_exact_mut(n).zip(from).for_each(|(out, &x)| out.fill(x)),
                None => {
                    for (out, &i) in out.iter_mut().zip(width.starts()) {
                        *out = from[i as usize];
                    }
                }
            }
        }
    });
}

//! Fourier transforms of the frames of a signal, and the way back.
//!
//! `X[k, t] = sum of window[j] x[t hop + j] e^(-2 pi i j k / n)`
//! (<https://pytorch.org/docs/stable/generated/torch.stft.html>), and for the way back frames are
//! added up and divided by the sum of the squared windows over them
//! (<https://pytorch.org/docs/stable/generated/torch.istft.html>).
//!
//! Loops: cut all frames out of the signals, transform them as lines ([`crate::fft`]), transpose.

use crate::fft::{FftReal, Lines, mirror};
use plutino_cpu::Par;
use plutino_cpu::extent::elements;
use plutino_tensor::{Complex, TensorError, alloc};
use std::ops::Range;

/// Frames of signals, all of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames {
    /// Signals.
    pub batch: usize,
    /// Elements of a signal (as it is framed: with its padding).
    pub signal: usize,
    /// Elements of a frame.
    pub frame: usize,
    /// Elements from one frame to the next; at least 1.
    pub hop: usize,
    /// Frames of a signal; the last one ends within it.
    pub count: usize,
}

impl Frames {
    /// Elements of all frames.
    pub fn len(&self) -> usize {
        self.batch * self.count * self.frame
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The frames that reach into a part of the signal.
    fn reaching(&self, range: &Range<usize>) -> Range<usize> {
        let first = range.start.checked_sub(self.frame).map_or(0, |n| n / self.hop + 1);
        let end = range.end.div_ceil(self.hop).min(self.count);
        first.min(end)..end
    }

    /// Where frame `t`, which reaches into a part of the signal, begins in it, and which of its
    /// elements lie there.
    fn part(&self, t: usize, range: &Range<usize>) -> (usize, Range<usize>) {
        let start = t * self.hop;
        let from = range.start.saturating_sub(start);
        (start.saturating_sub(range.start), from..self.frame.min(range.end - start))
    }
}

/// Elements of a task.
const GRAIN: usize = 1 << 13;

/// The frames `[batch, count, frame]` of `[batch, signal]`, each times the window, transformed: in
/// place in `frames`. `window` has `frame` elements.
///
/// # Errors
/// Where no memory is left for the transforms.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn analyse<R: FftReal>(
    par: &Par,
    f: &Frames,
    lines: &Lines<R>,
    window: &[Complex<R>],
    signals: &[Complex<R>],
    frames: &mut [Complex<R>],
) -> Result<(), TensorError> {
    assert_eq!(Some(signals.len()), elements([f.batch, f.signal]), "signals");
    assert!(frames.len() == f.len() && window.len() == f.frame && lines.len() == f.frame, "frames");
    let rows = GRAIN.div_ceil(f.frame.max(1));
    par.chunks_mut(frames, rows * f.frame, |task, frames| {
        for (i, frame) in frames.chunks_exact_mut(f.frame).enumerate() {
            let number = task * rows + i;
            let first = number / f.count * f.signal + number % f.count * f.hop;
            for ((y, &x), &w) in frame.iter_mut().zip(&signals[first..]).zip(window) {
                *y = x * w;
            }
        }
    });
    lines.run(par, 1, frames)
}

/// The transpose of `[batch, rows, columns]`, of the first `keep` columns, through `convert`:
/// `[batch, keep, rows]`.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn transpose<A: Copy + Sync, B: Send>(
    par: &Par,
    [rows, columns, keep]: [usize; 3],
    input: &[A],
    output: &mut [B],
    convert: impl Fn(A) -> B + Sync,
) {
    assert!(
        keep <= columns
            && (rows * columns == 0
                || input.len() / (rows * columns) * keep * rows == output.len())
    );
    par.chunks_mut(output, rows, |line, output| {
        let (batch, column) = (line / keep, line % keep);
        for (row, y) in output.iter_mut().enumerate() {
            *y = convert(input[(batch * rows + row) * columns + column]);
        }
    });
}

/// Signals that cannot be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SynthesisError {
    /// The sum of the squared windows vanishes somewhere: nothing can be divided by it.
    #[error("the squared windows add up to nothing at element {at}: frames must overlap")]
    NoOverlap {
        /// The first such element of the signal.
        at: usize,
    },
    /// No memory is left.
    #[error(transparent)]
    Memory(#[from] TensorError),
}

/// The signals of spectra: `spectra` is `[batch, count, bins]`, of which `bins` may be the half
/// that determines a real signal's. `scale` is applied to the inverse transforms. Writes elements
/// `range` of the framed signal for each of the batch, zeros beyond its end; `frames` is scratch
/// memory of [`Frames::len`].
///
/// # Errors
/// Where nothing overlaps an element, or no memory is left.
///
/// # Panics
/// Where a slice is not as long as the sizes say.
pub fn synthesise<R: FftReal>(
    par: &Par,
    f: &Frames,
    lines: &Lines<R>,
    scale: f64,
    window: &[Complex<R>],
    spectra: &[Complex<R>],
    frames: &mut [Complex<R>],
    range: Range<usize>,
    signals: &mut [Complex<R>],
) -> Result<(), SynthesisError> {
    assert!(frames.len() == f.len() && window.len() == f.frame && lines.len() == f.frame, "frames");
    assert_eq!(Some(signals.len()), elements([f.batch, range.len()]), "signals");
    if spectra.len() == frames.len() {
        frames.copy_from_slice(spectra);
    } else {
        mirror([f.batch * f.count, f.frame, 1], spectra, frames);
    }
    lines.run(par, 1, frames)?;
    let zero = Complex::new(R::nearest(0.0), R::nearest(0.0));
    let len = range.len();
    let range = range.start.min(f.signal)..range.end.min(f.signal);
    let mut envelope = alloc::filled(range.len(), zero)?;
    for t in f.reaching(&range) {
        let (at, part) = f.part(t, &range);
        for (sum, &w) in envelope[at..].iter_mut().zip(&window[part]) {
            *sum = *sum + w * w;
        }
    }
    let tiny = R::nearest(1e-11);
    if let Some(at) = envelope.iter().position(|sum| sum.norm() <= tiny) {
        return Err(SynthesisError::NoOverlap { at: range.start + at });
    }
    let scale = R::nearest(scale);
    par.chunks_mut(signals, len, |signal, sums| {
        sums.fill(zero);
        for t in f.reaching(&range) {
            let frame = &frames[(signal * f.count + t) * f.frame..][..f.frame];
            let (at, part) = f.part(t, &range);
            let weighted = frame[part.clone()].iter().zip(&window[part]);
            for (sum, (&x, &w)) in sums[at..].iter_mut().zip(weighted) {
                *sum = *sum + x * w * scale;
            }
        }
        for (y, &envelope) in sums.iter_mut().zip(&envelope) {
            *y = *y / envelope;
        }
    });
    Ok(())
}

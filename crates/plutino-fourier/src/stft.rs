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
    assert_eq!(signals.len(), f.batch * f.signal, "signals");
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
    assert_eq!(signals.len(), f.batch * range.len(), "signals");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::Direction;
    use plutino_cpu::Pool;
    use plutino_reference::fft::dft;
    use plutino_reference::testkit::random;

    fn complex(values: &[f32]) -> Vec<Complex<f64>> {
        values.iter().map(|&x| Complex::new(f64::from(x), 0.0)).collect()
    }

    #[test]
    fn there_and_back() {
        let f = Frames { batch: 3, signal: 50, frame: 10, hop: 4, count: 11 };
        let signals = complex(&random(150, 1));
        let window: Vec<_> = complex(&random(10, 2)).iter().map(|w| w + 2.0).collect();
        for threads in [1, 2] {
            Pool::new(threads).enter(|par| {
                let mut frames = vec![Complex::new(f64::NAN, 0.0); f.len()];
                let forward = Lines::new(Direction::Forward, 10).unwrap();
                analyse(par, &f, &forward, &window, &signals, &mut frames).unwrap();
                // Frame 7 of signal 1.
                let frame: Vec<_> = (0..10).map(|j| signals[50 + 28 + j] * window[j]).collect();
                let expected = dft(-1.0, [1, 10, 1], &frame);
                for (y, e) in frames[(11 + 7) * 10..].iter().zip(&expected) {
                    assert!((y - e).norm() < 1e-13);
                }
                let inverse = Lines::new(Direction::Inverse, 10).unwrap();
                let half: Vec<_> = frames.chunks(10).flat_map(|f| f[..6].to_vec()).collect();
                for spectra in [&frames.clone(), &half] {
                    let mut back = vec![Complex::new(f64::NAN, 0.0); 3 * 50];
                    synthesise(
                        par,
                        &f,
                        &inverse,
                        0.1,
                        &window,
                        spectra,
                        &mut frames,
                        2..52,
                        &mut back,
                    )
                    .unwrap();
                    for (signal, back) in signals.chunks(50).zip(back.chunks(50)) {
                        let error = |(x, y): (&Complex<f64>, &Complex<f64>)| (x - y).norm();
                        assert!(signal[2..].iter().zip(back).map(error).all(|e| e < 1e-13));
                        assert_eq!(back[48..], [Complex::new(0.0, 0.0); 2]);
                    }
                }
            });
        }
    }

    #[test]
    fn a_part_of_frames_that_lie_far_apart() {
        let f = Frames { batch: 1, signal: 4 + (1 << 40), frame: 4, hop: 1 << 40, count: 2 };
        let (one, inverse) =
            (Complex::new(1.0f64, 0.0), Lines::new(Direction::Inverse, 4).unwrap());
        let mut spectra = [Complex::new(0.0, 0.0); 8];
        (spectra[0], spectra[4]) = (one * 4.0, one * 8.0);
        for (range, expected) in [(1..3, 1.0), ((1 << 40) + 1..(1 << 40) + 4, 2.0)] {
            let mut y = vec![one * 9.0; range.len()];
            let window = [one; 4];
            let (par, mut frames) = (Par::serial(), spectra);
            synthesise(&par, &f, &inverse, 0.25, &window, &spectra, &mut frames, range, &mut y)
                .unwrap();
            assert!(y.iter().all(|y| (y - one * expected).norm() < 1e-12), "{y:?}");
        }
        let mut y = [one; 3];
        let (par, mut frames) = (Par::serial(), spectra);
        let gap =
            synthesise(&par, &f, &inverse, 1.0, &[one; 4], &spectra, &mut frames, 3..6, &mut y);
        assert_eq!(gap, Err(SynthesisError::NoOverlap { at: 4 }));
    }

    #[test]
    fn gaps_are_errors_and_transposes_crop() {
        let f = Frames { batch: 1, signal: 5, frame: 2, hop: 3, count: 2 };
        let zero = Complex::new(0.0f64, 0.0);
        let result = synthesise(
            &Par::serial(),
            &f,
            &Lines::new(Direction::Inverse, 2).unwrap(),
            1.0,
            &[Complex::new(1.0, 0.0); 2],
            &[zero; 4],
            &mut [zero; 4],
            0..5,
            &mut [zero; 5],
        );
        assert_eq!(result, Err(SynthesisError::NoOverlap { at: 2 }));
        let mut y = [0; 8];
        transpose(
            &Par::serial(),
            [2, 3, 2],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
            &mut y,
            |x| x,
        );
        assert_eq!(y, [0, 3, 1, 4, 6, 9, 7, 10]);
    }
}

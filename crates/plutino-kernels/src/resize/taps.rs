//! Which inputs an output is made of, along one dimension.
//!
//! With `scale` inputs to an output (`input / output`, or what the caller says), output `o` lies at
//! input position `scale * o` with aligned corners, else at `scale * (o + 1/2) - 1/2`.

use plutino_tensor::{TensorError, alloc};
use std::ops::Range;

/// How outputs lie over the inputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Whether the centers of the corner elements coincide; else the corners do.
    pub align_corners: bool,
    /// Outputs to an input, where the caller gave it; else the quotient of the sizes.
    pub factor: Option<f64>,
    /// Whether positions are computed in f64 (of tensors of f64 and of bytes); else every step is
    /// rounded to f32, as PyTorch does for the other dtypes.
    pub double: bool,
}

/// Between which inputs an output is interpolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// The input at the position rounded down.
    Nearest,
    /// The input whose center is nearest.
    NearestExact,
    /// Two neighbours.
    Linear,
    /// Four neighbours, Keys' kernel with a = -0.75.
    Cubic,
    /// A triangle as wide as the scale (PyTorch's `antialias`).
    LinearAntialias,
    /// Keys' kernel with a = -0.5, as wide as the scale.
    CubicAntialias,
}

/// The table does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TapsError {
    /// There is no input, or a size is beyond what positions are computed for.
    #[error("resizing {input} elements to {output} is not possible")]
    Size {
        /// Input size.
        input: usize,
        /// Output size.
        output: usize,
    },
    /// The table exceeds the caller's budget, or memory.
    #[error(transparent)]
    Memory(#[from] TensorError),
}

/// Inputs and weights of every output along one dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Taps {
    input: usize,
    /// First input of each output.
    start: Vec<u32>,
    /// Number of inputs of each output, at most `width`.
    count: Vec<u32>,
    /// `width` weights for each output.
    weight: Vec<f64>,
    /// The same as f32.
    weight_f32: Vec<f32>,
    width: usize,
}

impl Taps {
    /// The taps that resize `input` elements to `output`.
    ///
    /// # Errors
    /// Where there is no input, or the table exceeds memory.
    pub fn new(
        input: usize,
        output: usize,
        sampling: Sampling,
        scale: Scale,
    ) -> Result<Self, TapsError> {
        // Positions are computed in f32, where larger numbers are not exact anyway.
        if input == 0 || input > 1 << 31 || output > 1 << 31 {
            return Err(TapsError::Size { input, output });
        }
        let rule = Rule { input, ratio: scale.ratio(input, output), scale, sampling };
        let width = rule.width();
        let weights = output.saturating_mul(width);
        // Some kernels read f64, some f32.
        let (mut weight, mut weight_f32) = (alloc::list(weights)?, alloc::list(weights)?);
        let (mut start, mut count) = (alloc::list(output)?, alloc::list(output)?);
        let mut taps = alloc::filled(width, 0.0f64)?;
        for o in 0..output {
            taps.fill(0.0);
            let range = rule.taps(o, &mut taps);
            start.push(range.start as u32);
            count.push(range.len() as u32);
            weight.extend_from_slice(&taps);
        }
        weight_f32.extend(weight.iter().map(|&w| w as f32));
        Ok(Self { input, start, count, weight, weight_f32, width })
    }

    /// A dimension that keeps its size: every output is its input.
    ///
    /// # Errors
    /// As [`Taps::new`].
    pub fn identity(size: usize) -> Result<Self, TapsError> {
        let scale = Scale { align_corners: false, factor: None, double: false };
        Self::new(size, size, Sampling::Nearest, scale)
    }

    /// Inputs along this dimension.
    pub fn input(&self) -> usize {
        self.input
    }

    /// Outputs along this dimension.
    pub fn output(&self) -> usize {
        self.start.len()
    }

    /// Most inputs of an output.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The inputs of an output.
    #[inline(always)]
    pub fn inputs(&self, o: usize) -> Range<usize> {
        let start = self.start[o] as usize;
        start..start + self.count[o] as usize
    }

    /// The weights of an output's inputs.
    #[inline(always)]
    pub fn weights(&self, o: usize) -> &[f64] {
        &self.weight[o * self.width..][..self.count[o] as usize]
    }

    /// As many weights as an output may have; behind those of its inputs, zeros.
    pub(super) fn padded(&self, o: usize) -> &[f64] {
        &self.weight[o * self.width..][..self.width]
    }

    /// The weights of an output's inputs, rounded.
    #[inline(always)]
    pub fn weights_f32(&self, o: usize) -> &[f32] {
        &self.weight_f32[o * self.width..][..self.count[o] as usize]
    }

    /// First input and all weights of the outputs that have `width` inputs without a break in
    /// between.
    pub(super) fn whole(&self) -> (Range<usize>, &[u32], &[f32]) {
        let whole = |&n: &u32| n as usize == self.width;
        let first = self.count.iter().position(whole).unwrap_or(self.output());
        let len = self.count[first..].iter().take_while(|n| whole(n)).count();
        let range = first..first + len;
        let weights = range.start * self.width..range.end * self.width;
        (range.clone(), &self.start[range], &self.weight_f32[weights])
    }

    /// The first input of every output.
    pub(super) fn starts(&self) -> &[u32] {
        &self.start
    }
}

impl Scale {
    /// Rounds as PyTorch's arithmetic does.
    fn round(&self, x: f64) -> f64 {
        if self.double { x } else { f64::from(x as f32) }
    }

    /// Inputs to an output.
    fn ratio(&self, input: usize, output: usize) -> f64 {
        if self.align_corners {
            if output <= 1 {
                return 0.0;
            }
            return self.round((input - 1) as f64 / (output - 1) as f64);
        }
        match self.factor {
            Some(factor) if factor > 0.0 => self.round(1.0 / factor),
            _ => self.round(input as f64 / output as f64),
        }
    }
}

struct Rule {
    input: usize,
    ratio: f64,
    scale: Scale,
    sampling: Sampling,
}

impl Rule {
    fn width(&self) -> usize {
        let width = match self.sampling {
            Sampling::Nearest | Sampling::NearestExact => 1,
            Sampling::Linear => 2,
            Sampling::Cubic => 4,
            // More than all inputs are never needed.
            _ => (self.support().ceil() * 2.0 + 1.0).min(self.input as f64) as usize,
        };
        width.min(self.input)
    }

    /// Half the width of an antialiasing filter, in inputs.
    fn support(&self) -> f64 {
        let half = if self.sampling == Sampling::LinearAntialias { 1.0 } else { 2.0 };
        half * self.ratio.max(1.0)
    }

    /// The position of an output among the inputs.
    fn position(&self, o: usize) -> f64 {
        let round = |x| self.scale.round(x);
        if self.scale.align_corners {
            round(self.ratio * round(o as f64))
        } else {
            round(round(self.ratio * round(o as f64 + 0.5)) - 0.5)
        }
    }

    /// Puts the weights of an output into `weights` and returns its inputs.
    fn taps(&self, o: usize, weights: &mut [f64]) -> Range<usize> {
        let round = |x| self.scale.round(x);
        let last = self.input - 1;
        match self.sampling {
            Sampling::Nearest | Sampling::NearestExact => {
                weights[0] = 1.0;
                let position = if self.sampling == Sampling::Nearest {
                    round(self.ratio * round(o as f64))
                } else {
                    self.position(o).max(0.0) + 0.5
                };
                let i = (round(position).floor() as usize).min(last);
                i..i + 1
            }
            Sampling::Linear => {
                let x = self.position(o).max(0.0);
                let i = (x as usize).min(last);
                let t = round(x - i as f64).clamp(0.0, 1.0);
                self.clamped(i as i64, &[round(1.0 - t), t], weights)
            }
            Sampling::Cubic => {
                let x = self.position(o);
                let i = x.floor().min(last as f64);
                let t = round(x - i).clamp(0.0, 1.0);
                let taps = [t + 1.0, t, 1.0 - t, 2.0 - t].map(|d| keys(d, -0.75));
                self.clamped(i as i64 - 1, &taps, weights)
            }
            Sampling::LinearAntialias | Sampling::CubicAntialias => {
                let center = round(self.ratio * round(o as f64 + 0.5));
                let first = ((center - self.support() + 0.5) as i64).max(0) as usize;
                let end = (center + self.support() + 0.5).max(0.0) as usize;
                let range = first.min(last)..end.clamp(first.min(last) + 1, self.input);
                let range = range.start..range.end.min(range.start + weights.len());
                let stretch = 1.0 / self.ratio.max(1.0);
                for (w, i) in weights.iter_mut().zip(range.clone()) {
                    let d = ((i as f64 - center + 0.5) * stretch).abs();
                    *w = match self.sampling {
                        Sampling::LinearAntialias => (1.0 - d).max(0.0),
                        _ => keys(d, -0.5),
                    };
                }
                let total: f64 = weights.iter().sum();
                if total != 0.0 {
                    weights.iter_mut().for_each(|w| *w /= total);
                }
                range
            }
        }
    }

    /// Inputs `first..`, where those outside the tensor count as its first or last one: their
    /// weights are added.
    fn clamped(&self, first: i64, taps: &[f64], weights: &mut [f64]) -> Range<usize> {
        let last = self.input as i64 - 1;
        let start = first.clamp(0, last);
        let end = (first + taps.len() as i64 - 1).clamp(0, last);
        for (k, &w) in (first..).zip(taps) {
            weights[(k.clamp(0, last) - start) as usize] += w;
        }
        start as usize..end as usize + 1
    }
}

/// Keys' cubic convolution kernel at distance `d` (IEEE Trans. ASSP 29(6), 1981).
fn keys(d: f64, a: f64) -> f64 {
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else if d < 2.0 {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    } else {
        0.0
    }
}

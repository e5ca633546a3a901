//! Windows along one spatial dimension: which inputs an output of a pooling sees.
//!
//! Sliding windows follow
//! <https://pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html>: with
//! `span = dilation * (kernel - 1) + 1`,
//!
//! ```text
//! output = (input + 2 padding - span) / stride + 1        division rounds down, or up with ceil_mode,
//! ```
//! and with `ceil_mode` a last window that would start in the right padding is dropped. Adaptive
//! windows follow <https://pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html>:
//! output `o` sees inputs `floor(o * input / output) .. ceil((o + 1) * input / output)`.

use std::ops::Range;

/// A window rule that makes no sense for its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// Kernel size, stride or dilation is zero.
    #[error("kernel size {kernel}, stride {stride} and dilation {dilation} must be positive")]
    Zero {
        /// Kernel size.
        kernel: usize,
        /// Stride.
        stride: usize,
        /// Dilation.
        dilation: usize,
    },
    /// More padding than half the window.
    #[error("padding {padding} must be at most half of the window, which spans {span}")]
    Padding {
        /// Padding on each side.
        padding: usize,
        /// `dilation * (kernel - 1) + 1`.
        span: usize,
    },
    /// The window does not fit into the padded input.
    #[error(
        "a window that spans {span} does not fit into an input of {input} with padding {padding}"
    )]
    TooSmall {
        /// Input size.
        input: usize,
        /// Padding on each side.
        padding: usize,
        /// `dilation * (kernel - 1) + 1`.
        span: usize,
    },
    /// A size exceeds what can be addressed.
    #[error("the sizes of the window overflow")]
    Overflow,
}

/// The parameters of a sliding window in one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sliding {
    /// Taps of the window.
    pub kernel: usize,
    /// Distance of neighbouring windows.
    pub stride: usize,
    /// Virtual inputs on each side.
    pub padding: usize,
    /// Distance of neighbouring taps.
    pub dilation: usize,
    /// Whether a window may overhang the right end.
    pub ceil_mode: bool,
}

/// How windows lie along one spatial dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    input: usize,
    output: usize,
    rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Sliding { kernel: usize, stride: usize, padding: usize, dilation: usize },
    Adaptive,
}

/// The inputs of one output along one dimension: `start`, `start + step`, ...
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First input.
    pub start: usize,
    /// Number of inputs.
    pub taps: usize,
    /// Distance of neighbouring inputs.
    pub step: usize,
    /// Number of inputs, those in the padding counted: PyTorch's divisor with `count_include_pad`.
    pub padded: usize,
}

impl Window {
    /// The positions of the inputs.
    #[inline(always)]
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..self.taps).map(move |t| self.start + t * self.step)
    }
}

impl Axis {
    /// A dimension of size 1 with one window of size 1: what a missing dimension counts as.
    pub const ONE: Self = Self { input: 1, output: 1, rule: Rule::Adaptive };

    /// Sliding windows over `input` elements.
    ///
    /// # Errors
    /// Where PyTorch refuses, see [`WindowError`].
    pub fn sliding(input: usize, window: Sliding) -> Result<Self, WindowError> {
        let Sliding { kernel, stride, padding, dilation, ceil_mode } = window;
        if kernel == 0 || stride == 0 || dilation == 0 {
            return Err(WindowError::Zero { kernel, stride, dilation });
        }
        let limit = |x: usize| isize::try_from(x).map(|_| x).map_err(|_| WindowError::Overflow);
        let span = dilation.checked_mul(kernel - 1).and_then(|x| x.checked_add(1));
        let span = limit(span.ok_or(WindowError::Overflow)?)?;
        if padding > span / 2 {
            return Err(WindowError::Padding { padding, span });
        }
        let padded = limit(input.saturating_add(padding.saturating_mul(2)))?;
        limit(stride.saturating_add(padded))?;
        let rounding = if ceil_mode { stride - 1 } else { 0 };
        // As PyTorch: with ceil_mode the window may even be larger than the padded input.
        let Some(room) = (padded + rounding).checked_sub(span) else {
            return Err(WindowError::TooSmall { input, padding, span });
        };
        let mut output = room / stride + 1;
        if ceil_mode && (output - 1) * stride >= input + padding {
            output -= 1;
        }
        if output == 0 || input == 0 {
            return Err(WindowError::TooSmall { input, padding, span });
        }
        Ok(Self { input, output, rule: Rule::Sliding { kernel, stride, padding, dilation } })
    }

    /// `output` windows that cover `input` elements as evenly as possible.
    ///
    /// # Errors
    /// Where `input` is 0 or a product overflows.
    pub fn adaptive(input: usize, output: usize) -> Result<Self, WindowError> {
        if input == 0 {
            return Err(WindowError::TooSmall { input, padding: 0, span: 1 });
        }
        let product = output.checked_add(1).and_then(|o| o.checked_mul(input));
        product.and_then(|p| p.checked_add(output)).ok_or(WindowError::Overflow)?;
        Ok(Self { input, output, rule: Rule::Adaptive })
    }

    /// Inputs along this dimension.
    pub fn input(&self) -> usize {
        self.input
    }

    /// Outputs along this dimension.
    pub fn output(&self) -> usize {
        self.output
    }

    /// Whether there is one window, and it covers every input exactly once.
    pub fn is_global(&self) -> bool {
        self.output == 1 && {
            let w = self.window(0);
            w.taps == self.input && w.padded == self.input
        }
    }

    /// The inputs of output `o`. A window has no taps where all of them fall into the padding.
    #[inline(always)]
    pub fn window(&self, o: usize) -> Window {
        match self.rule {
            Rule::Adaptive => {
                let start = o * self.input / self.output.max(1);
                let end = ((o + 1) * self.input).div_ceil(self.output.max(1));
                Window { start, taps: end - start, step: 1, padded: end - start }
            }
            Rule::Sliding { kernel, stride, padding, dilation } => {
                // On the padded line: the window starts at `first`, the input lies in padding..end.
                let (first, end) = (o * stride, padding + self.input);
                let taps =
                    |length: usize| if dilation == 1 { length } else { length.div_ceil(dilation) };
                let skipped = taps(padding.saturating_sub(first));
                let inside = taps(end.saturating_sub(first)).min(kernel);
                Window {
                    start: (first + skipped * dilation).saturating_sub(padding),
                    taps: inside.saturating_sub(skipped),
                    step: dilation,
                    padded: taps((end + padding).saturating_sub(first)).min(kernel),
                }
            }
        }
    }

    /// The outputs whose windows lie wholly inside the input of a sliding axis, with the stride
    /// between them: all these windows have the same shape. Empty for adaptive windows.
    #[inline]
    pub fn interior(&self) -> (Range<usize>, usize) {
        match self.rule {
            Rule::Adaptive => (0..0, 1),
            Rule::Sliding { kernel, stride, padding, dilation } => {
                let first = padding.div_ceil(stride).min(self.output);
                let span = dilation * (kernel - 1) + 1;
                let end = (self.input + padding).checked_sub(span).map_or(0, |x| x / stride + 1);
                (first..end.clamp(first, self.output), stride)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(
        input: usize,
        k: usize,
        s: usize,
        p: usize,
        d: usize,
        ceil_mode: bool,
    ) -> Option<usize> {
        let window = Sliding { kernel: k, stride: s, padding: p, dilation: d, ceil_mode };
        Axis::sliding(input, window).ok().map(|a| a.output())
    }

    #[test]
    fn output_sizes() {
        // The examples of PyTorch's pages, and the corners of the rule.
        assert_eq!(output(50, 3, 2, 0, 1, false), Some(24)); // nn.MaxPool1d(3, stride=2)
        assert_eq!(output(32, 2, 1, 0, 1, false), Some(31)); // nn.MaxPool2d((3, 2), stride=(2, 1)), width
        assert_eq!(output(112, 3, 2, 1, 1, false), Some(56)); // ResNet's stem
        assert_eq!(output(6, 3, 2, 0, 1, false), Some(2));
        assert_eq!(output(6, 3, 2, 0, 1, true), Some(3));
        assert_eq!(output(5, 2, 2, 1, 1, true), Some(3));
        assert_eq!(output(4, 1, 3, 0, 1, true), Some(2));
        assert_eq!(output(1, 2, 2, 1, 1, true), Some(1)); // the second would start in the padding
        assert_eq!(output(7, 3, 1, 1, 3, false), Some(3));
        assert_eq!(output(2, 3, 2, 0, 1, true), Some(1)); // larger than the input
        assert_eq!(output(2, 3, 1, 0, 1, true), None);
        assert_eq!(output(2, 3, 1, 2, 1, false), None); // too much padding
        assert_eq!(output(4, 0, 1, 0, 1, false), None);
        assert_eq!(output(4, 2, 0, 0, 1, false), None);
        assert_eq!(output(4, usize::MAX, 1, 0, 2, false), None);
    }

    #[test]
    fn windows_are_the_taps_inside_the_input() {
        for input in 1..9 {
            for (k, s, p, d, c) in rules(&[1, 2, 3, 5], &[1, 2, 3], &[0, 1, 2], &[1, 2, 3]) {
                let window =
                    Sliding { kernel: k, stride: s, padding: p, dilation: d, ceil_mode: c };
                let Ok(axis) = Axis::sliding(input, window) else { continue };
                for o in 0..axis.output() {
                    let taps: Vec<usize> = (0..k)
                        .map(|t| (o * s + t * d) as isize - p as isize)
                        .filter(|&x| (0..input as isize).contains(&x))
                        .map(|x| x as usize)
                        .collect();
                    let w = axis.window(o);
                    assert_eq!(w.positions().collect::<Vec<_>>(), taps, "{axis:?} {o}");
                    assert_eq!(axis.interior().0.contains(&o), taps.len() == k, "{axis:?} {o}");
                    if d == 1 {
                        let first = (o * s) as isize - p as isize;
                        let end = (first + k as isize).min((input + p) as isize);
                        assert_eq!(w.padded as isize, end - first); // avg_pool's pool_size
                    }
                }
            }
        }
    }

    fn rules(
        a: &[usize],
        b: &[usize],
        c: &[usize],
        d: &[usize],
    ) -> Vec<(usize, usize, usize, usize, bool)> {
        let mut all = Vec::new();
        for &k in a {
            for &s in b {
                for &p in c {
                    for &d in d {
                        all.extend([(k, s, p, d, false), (k, s, p, d, true)]);
                    }
                }
            }
        }
        all
    }

    #[test]
    fn adaptive_windows_cover_the_input() {
        for (input, output) in [(7, 3), (3, 7), (1, 5), (5, 5), (10, 1)] {
            let axis = Axis::adaptive(input, output).unwrap();
            assert_eq!(axis.window(0).start, 0);
            let last = axis.window(output - 1);
            assert_eq!(last.start + last.taps, input);
            assert!((0..output).all(|o| axis.window(o).taps > 0));
        }
        assert!(Axis::adaptive(9, 1).unwrap().is_global());
        assert!(Axis::adaptive(0, 1).is_err());
        assert!(Axis::adaptive(2, usize::MAX).is_err());
    }
}

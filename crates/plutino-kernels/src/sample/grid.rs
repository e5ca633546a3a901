//! Images sampled at the points of a grid.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html>. A point (x, y)
//! or (x, y, z) in -1..1 is a position between the outermost pixels' centres (`align_corners`) or
//! edges. In every mode the result is separable: along each dimension a few pixels with weights.
//!
//! Loops: for each image and 128 points (parallel) - the pixels and weights of the points, once -
//! each channel - each point - its pixels.

use crate::extent::elements;
use crate::number::{Float, Real};
use crate::par::SharedMut;
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par};
use plutino_tensor::{TensorError, alloc};
use smallvec::SmallVec;

/// Points whose pixels and weights are kept at a time.
const POINTS: usize = 128;

/// Which pixels make a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The nearest one; halfway between two, the even one.
    Nearest,
    /// Two along each dimension.
    Linear,
    /// Four along each dimension (Keys' kernel with a = -0.75).
    Cubic,
}

impl Mode {
    /// Pixels along one dimension, at most.
    fn width(self) -> usize {
        match self {
            Self::Nearest => 1,
            Self::Linear => 2,
            Self::Cubic => 4,
        }
    }
}

/// What lies outside of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Zeros.
    Zeros,
    /// The nearest pixel of the border.
    Border,
    /// The image, mirrored at its border again and again.
    Reflection,
}

/// A sampling of images of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridSample {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Size of an image, outermost dimension first: height and width, or depth, height and width;
    /// none is 0.
    pub size: Vec<usize>,
    /// Points for each image.
    pub points: usize,
    /// Which pixels make a sample.
    pub mode: Mode,
    /// What lies outside.
    pub padding: Padding,
    /// Whether -1 and 1 are the centres of the outermost pixels, not their edges.
    pub align_corners: bool,
}

/// Pixels along one dimension, and their weights.
struct Taps<R> {
    list: [(usize, R); 4],
    len: usize,
}

impl<R: Real> Taps<R> {
    fn new() -> Self {
        Self { list: [(0, R::nearest(0.0)); 4], len: 0 }
    }

    /// Adds one that lies inside.
    #[inline(always)]
    fn push(&mut self, position: R, weight: R, size: usize) {
        // Every pixel's number is exact: nothing is as large as 2^24 pixels wide, or it is f64.
        let at = position.wide();
        if at >= 0.0
            && at < size as f64
            && let Some(slot) = self.list.get_mut(self.len)
        {
            *slot = (at as usize, weight);
            self.len += 1;
        }
    }

    #[inline(always)]
    fn as_slice(&self) -> &[(usize, R)] {
        &self.list[..self.len.min(4)]
    }
}

/// Some of an image's points, with memory for their pixels. A kernel, so that roundings are
/// instructions.
struct Task<'a, T: Float> {
    sample: &'a GridSample,
    /// The image.
    n: usize,
    /// The first point and how many there are, at most [`POINTS`].
    points: (usize, usize),
    input: &'a [T],
    grid: &'a [T],
    output: &'a SharedMut<'a, T>,
    taps: &'a mut [(usize, T::Real)],
}

impl<T: Float> Vectorized for Task<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { sample, n, points: (first, count), input, grid, output, taps } = self;
        let (rank, volume) = (sample.size.len(), sample.size.iter().product::<usize>());
        let mut ends = [0; POINTS];
        let grid = &grid[(n * sample.points + first) * rank..][..count * rank];
        let mut end = 0;
        for (point, place) in grid.chunks_exact(rank).zip(&mut ends) {
            end += sample.taps(point, &mut taps[end..]);
            *place = end;
        }
        for c in 0..sample.channels {
            let image = &input[(n * sample.channels + c) * volume..][..volume];
            let at = (n * sample.channels + c) * sample.points + first;
            // SAFETY: tasks have disjoint points, and channels disjoint rows of them.
            let output = unsafe { output.slice(at..at + count) };
            let mut start = 0;
            for (out, &end) in output.iter_mut().zip(&ends) {
                let taps = &taps[start..end];
                // Most points of a plane have four pixels: a loop of as many has no end to find.
                *out = T::from_real(match <&[_; 4]>::try_from(taps) {
                    Ok(four) => weighted(image, four),
                    Err(_) => weighted(image, taps),
                });
                start = end;
            }
        }
    }
}

/// The sum of pixels times their weights.
#[inline(always)]
fn weighted<'a, T: Float>(
    image: &[T],
    taps: impl IntoIterator<Item = &'a (usize, T::Real)>,
) -> T::Real {
    let mut sum = T::Real::nearest(0.0);
    for &(at, weight) in taps {
        sum = sum + image[at].to_real() * weight;
    }
    sum
}

impl GridSample {
    /// Samples `[batch, channels, size...]` at `[batch, points, coordinates]`, where the coordinate
    /// of the innermost dimension comes first; the output is `[batch, channels, points]`.
    ///
    /// # Errors
    /// Where no memory is left for the pixels of the points that each thread has at a time.
    ///
    /// # Panics
    /// Where a slice is not as long as the sizes say.
    pub fn run<T: Float>(
        &self,
        isa: Isa,
        par: &Par,
        input: &[T],
        grid: &[T],
        output: &mut [T],
    ) -> Result<(), TensorError> {
        let Self { batch, channels, points, .. } = *self;
        let (rank, images) = (self.size.len(), [batch, channels].into_iter());
        let volumes = elements(images.clone().chain(self.size.iter().copied()));
        assert_eq!(Some(input.len()), volumes, "input of a sampling");
        assert_eq!(Some(grid.len()), elements([batch, points, rank]), "grid of a sampling");
        assert_eq!(Some(output.len()), elements(images.chain([points])), "output of a sampling");
        let parts = points.div_ceil(POINTS);
        // Taken once for each thread, not by each task: a budget would count every time.
        let most = POINTS.min(points) * (0..rank).fold(1, |taps, _| taps * self.mode.width());
        let mut taps = alloc::filled(par.threads() * most, (0, T::Real::nearest(0.0)))?;
        let (output, taps) = (SharedMut::new(output), SharedMut::new(&mut taps));
        par.run_as(batch * parts, |worker, task| {
            let (n, first) = (task / parts, task % parts * POINTS);
            let points = (first, POINTS.min(points - first));
            // SAFETY: no two tasks run under the same number at the same time.
            let taps = unsafe { taps.slice(worker * most..(worker + 1) * most) };
            isa.run(Task { sample: self, n, points, input, grid, output: &output, taps });
        });
        Ok(())
    }

    /// Writes the pixels of a point and their weights to the front of `taps`; returns how many.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn taps<T: Float>(&self, point: &[T], taps: &mut [(usize, T::Real)]) -> usize {
        taps[0] = (0, T::Real::nearest(1.0));
        let mut count = 1;
        if self.is_nowhere(point) {
            taps[0].1 = T::Real::nearest(f64::NAN);
            return count;
        }
        // The outermost dimension's coordinate is the last.
        for (&size, x) in self.size.iter().zip(point.iter().rev()) {
            let along = self.along(x.to_real(), size);
            let along = along.as_slice();
            // Each becomes as many as there are along this dimension, from the last one on: what is
            // written lies behind what is still to be read.
            for outer in (0..count).rev() {
                let (at, weight) = taps[outer];
                for (i, &(inner, w)) in along.iter().enumerate() {
                    taps[outer * along.len() + i] = (at * size + inner, weight * w);
                }
            }
            count *= along.len();
        }
        count
    }

    /// The pixels along a dimension, without those outside.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn along<R: Real>(&self, x: R, size: usize) -> Taps<R> {
        let mut taps = Taps::new();
        let mut push = |position, weight| taps.push(position, weight, size);
        let (one, position) = (R::nearest(1.0), self.position(x, size));
        match self.mode {
            Mode::Nearest => push(round_half_even(self.inside(position, size)), one),
            Mode::Linear => {
                let position = self.inside(position, size);
                let t = position - position.floor();
                push(position.floor(), one - t);
                push(position.floor() + one, t);
            }
            Mode::Cubic => {
                let t = position - position.floor();
                for (i, weight) in cubic(t).into_iter().enumerate() {
                    let pixel = position.floor() + R::nearest(i as f64 - 1.0);
                    push(self.inside(pixel, size), weight);
                }
            }
        }
        taps
    }

    /// Whether a point's weights are NaN, whatever they are multiplied with: of pixels in a plane,
    /// where the position that they are computed from is not held inside. (In a volume PyTorch
    /// looks which pixels there are before it multiplies.)
    #[cfg_attr(not(unoptimised), inline(always))]
    fn is_nowhere<T: Float>(&self, point: &[T]) -> bool {
        let free = match self.mode {
            Mode::Nearest => false,
            Mode::Linear => self.padding == Padding::Zeros,
            Mode::Cubic => true,
        };
        let mut along = self.size.iter().zip(point.iter().rev());
        let finite = |(&size, x): (&usize, &T)| self.position(x.to_real(), size).wide().is_finite();
        free && self.size.len() == 2 && !along.all(finite)
    }

    /// The position of a coordinate, in pixels.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn position<R: Real>(&self, x: R, size: usize) -> R {
        let [one, two, n] = [1.0, 2.0, size as f64].map(R::nearest);
        if self.align_corners { (x + one) / two * (n - one) } else { ((x + one) * n - one) / two }
    }

    /// Where a position is read, as the padding says.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn inside<R: Real>(&self, position: R, size: usize) -> R {
        let [zero, last] = [0.0, size as f64 - 1.0].map(R::nearest);
        // As PyTorch's kernels of planes and of volumes order their comparisons.
        let of_nan = if self.size.len() == 2 { zero } else { last };
        let position = match self.padding {
            Padding::Zeros => return position,
            Padding::Border => position,
            Padding::Reflection if self.align_corners => reflect(position, zero, last),
            Padding::Reflection => {
                let half = R::nearest(0.5);
                reflect(position, -half, last + half)
            }
        };
        if position.is_nan() { of_nan } else { position.max(zero).min(last) }
    }
}

/// Mirrors a position at both ends until it lies between them. What has no position (infinity) is
/// NaN.
#[cfg_attr(not(unoptimised), inline(always))]
fn reflect<R: Real>(position: R, low: R, high: R) -> R {
    let span = high - low;
    if span <= R::nearest(0.0) {
        return R::nearest(0.0);
    }
    let distance = (position - low).abs();
    let (flips, extra) = ((distance / span).floor(), distance % span);
    if flips % R::nearest(2.0) == R::nearest(0.0) { low + extra } else { high - extra }
}

#[cfg_attr(not(unoptimised), inline(always))]
fn round_half_even<R: Real>(x: R) -> R {
    let (two, half) = (R::nearest(2.0), R::nearest(0.5));
    if (x - x.floor()) == half { (x / two).round() * two } else { x.round() }
}

/// Keys' kernel at distances 1 + t, t, 1 - t, 2 - t.
#[cfg_attr(not(unoptimised), inline(always))]
fn cubic<R: Real>(t: R) -> [R; 4] {
    let [a, one, two, three] = [-0.75, 1.0, 2.0, 3.0].map(R::nearest);
    let [four, five, eight] = [4.0, 5.0, 8.0].map(R::nearest);
    let near = |d: R| ((a + two) * d - (a + three)) * d * d + one;
    let far = |d: R| ((a * d - five * a) * d + eight * a) * d - four * a;
    [far(t + one), near(t), near(one - t), far(two - t)]
}

/// The points of an affine map: `theta (x, y, 1)` or `theta (x, y, z, 1)` for every pixel of a
/// `size` (outermost dimension first), where x, y and z run from -1 to 1 between the outermost
/// pixels' centres (`align_corners`) or edges. `theta` is `[rank, rank + 1]`, the output `[pixels,
/// rank]`.
///
/// <https://pytorch.org/docs/stable/generated/torch.nn.functional.affine_grid.html>
///
/// # Panics
/// Where a slice is not as long as the size says.
pub fn affine_points<T: Float>(size: &[usize], align_corners: bool, theta: &[T], output: &mut [T]) {
    let rank = size.len();
    let coordinates = elements(size.iter().copied().chain([rank]));
    assert_eq!(theta.len(), rank * (rank + 1), "matrix of an affine grid");
    assert_eq!(Some(output.len()), coordinates, "points of an affine grid");
    for (pixel, out) in output.chunks_exact_mut(rank.max(1)).enumerate() {
        let mut left = pixel;
        // (x, y, z): the innermost dimension first.
        let mut base: SmallVec<[T::Real; 3]> = SmallVec::new();
        for &n in size.iter().rev() {
            base.push(T::Real::nearest(spread(n, align_corners, left % n)));
            left /= n;
        }
        for (out, row) in out.iter_mut().zip(theta.chunks_exact(rank + 1)) {
            let terms = base.iter().zip(row).map(|(&x, t)| x * t.to_real());
            let sum = terms.fold(row[rank].to_real(), |sum, x| sum + x);
            *out = T::from_real(sum);
        }
    }
}

/// Number `i` of `n` from -1 to 1; moved to the centres of `n` equal parts where the corners are
/// not aligned. A single one is 0.
fn spread(n: usize, align_corners: bool, i: usize) -> f64 {
    match n {
        0 | 1 => 0.0,
        _ => {
            let x = 2.0 * i as f64 / (n - 1) as f64 - 1.0;
            if align_corners { x } else { x * (n - 1) as f64 / n as f64 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::round_half_even;

    #[test]
    fn halves_round_to_even() {
        assert_eq!(
            [0.5f32, 1.5, 2.5, -0.5, 0.4, 2.6].map(round_half_even),
            [0., 2., 2., 0., 0., 3.]
        );
    }
}

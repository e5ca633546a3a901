//! Winograd's algorithms in one dimension: a line of outputs of a filter of few taps, with fewer
//! multiplications.
//!
//! Numbers of the input and of the filter are transformed into as many points as there are inputs;
//! the products of the points, transformed back, are the outputs: `y = A^T ((G g) * (B^T d))`. In
//! two dimensions lines are transformed one way, then the other.

use plutino_cpu::simd::Simd;
use plutino_cpu::simd::unroll::array;
use std::f32;
use std::f64::consts::FRAC_1_SQRT_2;

/// Room for the points of a line: for each index that `unroll` knows.
pub(super) const MOST: usize = 12;
/// Most outputs of a line.
pub(super) const MOST_OUT: usize = 5;
/// Most taps of a filter.
pub(super) const MOST_TAPS: usize = 4;
/// Most different filters among the points of a line.
pub(super) const MOST_FILTERS: usize = 7;

/// A vector for each point, or each input, of a line; those past the algorithm's own are anything.
pub(super) type Line<S> = [<S as Simd>::F32; MOST];

/// One of the algorithms.
pub(super) trait Transform: Copy + Send + Sync + 'static {
    /// Inputs from one output to the next.
    const STRIDE: usize;
    /// Outputs.
    const OUT: usize;
    /// Taps of a filter.
    const TAPS: usize;
    /// Points, and inputs: `(OUT - 1) * STRIDE + TAPS`.
    const POINTS: usize;
    /// Different filters among the points.
    const FILTERS: usize;
    /// Input channels up to which errors stay well below 1e-5 of the largest output.
    const MOST_CHANNELS: usize = usize::MAX;
    /// Outputs of a short tile, which may be the last of a line.
    const SHORT_OUT: usize;
    /// Its points: some of a whole tile's, so that filters are the same. The points left out are
    /// still part of the filters' denominators, for which [`Transform::short_input`] makes up.
    const SHORT: &'static [usize];
    /// What it takes to transform a number, to write and to read it, in multiply-adds: as measured.
    const COST: f64 = 24.0;

    /// Products of a point that are added one after the other, a few blocks of channels: the
    /// transform back makes more of the rounding errors of long chains than of those of all other
    /// steps. (Half as many take 2 % more time.)
    const CHAIN: usize = 32;

    /// Which filter a point is multiplied by.
    #[inline]
    fn filter_of(point: usize) -> usize {
        point
    }
    /// G g: the filters; taps past the algorithm's own are zeros.
    fn filter(g: [f64; MOST_TAPS]) -> [f64; MOST_FILTERS];
    /// B^T d
    fn input<S: Simd>(s: S, d: Line<S>) -> Line<S>;
    /// A^T m; those past the algorithm's own are anything.
    fn output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT];
    /// [`Transform::input`] of a short tile; what are not its points is anything.
    fn short_input<S: Simd>(s: S, d: Line<S>) -> Line<S>;
    /// [`Transform::output`] of a short tile.
    fn short_output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT];

    /// Either.
    #[inline(always)]
    fn input_of<S: Simd>(s: S, d: Line<S>, short: bool) -> Line<S> {
        if short { Self::short_input(s, d) } else { Self::input(s, d) }
    }
    /// Either.
    #[inline(always)]
    fn output_of<S: Simd>(s: S, m: Line<S>, short: bool) -> [S::F32; MOST_OUT] {
        if short { Self::short_output(s, m) } else { Self::output(s, m) }
    }
}

/// F(2, 3): 4 multiplications instead of 6. Points 0, 1, -1, infinity.
///
/// ```text
///        1  0 -1  0          1    0    0
/// B^T =  0  1  1  0    G =  1/2  1/2  1/2    A^T =  1  1  1  0
///        0 -1  1  0         1/2 -1/2  1/2           0  1 -1  1
///        0 -1  0  1          0    0    1
/// ```
#[derive(Clone, Copy)]
pub(super) struct Two;

impl Transform for Two {
    const STRIDE: usize = 1;
    const OUT: usize = 2;
    const TAPS: usize = 3;
    const POINTS: usize = 4;
    const FILTERS: usize = 4;
    const SHORT_OUT: usize = 1;
    const SHORT: &'static [usize] = &[0, 1, 3];
    const CHAIN: usize = 64;

    #[inline(always)]
    fn filter([a, b, c, _]: [f64; MOST_TAPS]) -> [f64; MOST_FILTERS] {
        let (even, odd) = ((a + c) * 0.5, b * 0.5);
        [a, even + odd, even - odd, c, 0.0, 0.0, 0.0]
    }
    #[inline(always)]
    fn input<S: Simd>(s: S, d: Line<S>) -> Line<S> {
        let mut points = d;
        points[0] = s.sub(d[0], d[2]);
        points[1] = s.add(d[1], d[2]);
        points[2] = s.sub(d[2], d[1]);
        points[3] = s.sub(d[3], d[1]);
        points
    }
    #[inline(always)]
    fn output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT] {
        let (sum, dif) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        let (first, second) = (s.add(m[0], sum), s.add(m[3], dif));
        [first, second, first, second, first]
    }
    #[inline(always)]
    fn short_input<S: Simd>(s: S, d: Line<S>) -> Line<S> {
        let mut points = d;
        points[0] = s.sub(d[0], d[1]);
        points[1] = s.add(d[1], d[1]);
        points[3] = s.sub(d[2], d[1]);
        points
    }
    #[inline(always)]
    fn short_output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT] {
        [s.add(s.add(m[0], m[1]), m[3]); MOST_OUT]
    }
}

/// F(4, 3): 6 multiplications instead of 12. Points 0, r, -r, 2r, -2r with r = sqrt(1/2), infinity:
/// the products of their differences are close to 1, and rounding errors a third of those with the
/// points 1 and 2 (Barabasz and others, arXiv 1803.10986, on the choice of points).
///
/// ```text
///        1  0 -5/2  0   1  0           1     0     0           1   1    1   1   1  0
///        0 -2r -2   r   1  0         -2/3 -2r/3 -1/3           0   r   -r  2r -2r  0
/// B^T =  0  2r -2  -r   1  0    G =  -2/3  2r/3 -1/3   A^T =   0  1/2  1/2  2   2  0
///        0 -r  -1/2 2r  1  0          1/6   r/3  1/3           0  r/2 -r/2 4r -4r  1
///        0  r  -1/2 -2r 1  0          1/6  -r/3  1/3
///        0  1   0 -5/2  0  1           0     0    1
/// ```
#[derive(Clone, Copy)]
pub(super) struct Four;

impl Transform for Four {
    const STRIDE: usize = 1;
    const OUT: usize = 4;
    const TAPS: usize = 3;
    const POINTS: usize = 6;
    const FILTERS: usize = 6;
    const SHORT_OUT: usize = 2;
    const SHORT: &'static [usize] = &[0, 1, 2, 5];

    #[inline(always)]
    fn filter([a, b, c, _]: [f64; MOST_TAPS]) -> [f64; MOST_FILTERS] {
        let b = b * (FRAC_1_SQRT_2 / 3.0);
        let (near, far) = ((2.0 * a + c) * (-1.0 / 3.0), (a + 2.0 * c) * (1.0 / 6.0));
        [a, near - 2.0 * b, near + 2.0 * b, far + b, far - b, c, 0.0]
    }
    #[inline(always)]
    fn input<S: Simd>(s: S, d: Line<S>) -> Line<S> {
        let r = f32::consts::FRAC_1_SQRT_2;
        let (half, two, sum) = (s.splat(-0.5), s.splat(-2.0), s.splat(-2.5));
        // (d4 - 2 d2) +- r (d3 - 2 d1), (d4 - d2 / 2) +- 2r (d3 - d1 / 2)
        let (even_r, odd_r) = (s.fma(two, d[2], d[4]), s.fma(two, d[1], d[3]));
        let (even_2r, odd_2r) = (s.fma(half, d[2], d[4]), s.fma(half, d[1], d[3]));
        let mut points = d;
        points[0] = s.fma(sum, d[2], s.add(d[0], d[4]));
        points[1] = s.fma(s.splat(r), odd_r, even_r);
        points[2] = s.fma(s.splat(-r), odd_r, even_r);
        points[3] = s.fma(s.splat(2.0 * r), odd_2r, even_2r);
        points[4] = s.fma(s.splat(-2.0 * r), odd_2r, even_2r);
        points[5] = s.fma(sum, d[3], s.add(d[1], d[5]));
        points
    }
    #[inline(always)]
    fn output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT] {
        let r = f32::consts::FRAC_1_SQRT_2;
        let (sum_r, dif_r) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        let (sum_2r, dif_2r) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
        [
            s.add(m[0], s.add(sum_r, sum_2r)),
            s.mul(s.splat(r), s.fma(s.splat(2.0), dif_2r, dif_r)),
            s.fma(s.splat(2.0), sum_2r, s.mul(s.splat(0.5), sum_r)),
            s.fma(s.splat(4.0 * r), dif_2r, s.fma(s.splat(0.5 * r), dif_r, m[5])),
            m[5],
        ]
    }
    #[inline(always)]
    fn short_input<S: Simd>(s: S, d: Line<S>) -> Line<S> {
        let (r, most) = (f32::consts::FRAC_1_SQRT_2, s.splat(-1.5));
        // -3/2 (d2 +- r d1)
        let (even, odd) = (s.mul(most, d[2]), s.mul(most, d[1]));
        let mut points = d;
        points[0] = s.fma(s.splat(-2.0), d[2], d[0]);
        points[1] = s.fma(s.splat(r), odd, even);
        points[2] = s.fma(s.splat(-r), odd, even);
        points[5] = s.fma(s.splat(-0.5), d[1], d[3]);
        points
    }
    #[inline(always)]
    fn short_output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT] {
        let (sum, dif) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        let first = s.add(m[0], sum);
        let second = s.fma(s.splat(f32::consts::FRAC_1_SQRT_2), dif, m[5]);
        [first, second, first, second, first]
    }
}

/// The points, and their squares.
const P: [f64; 3] = [0.25, 0.875, 1.75];
const Q: [f64; 3] = [P[0] * P[0], P[1] * P[1], P[2] * P[2]];

const fn power(base: f64, exponent: usize) -> f32 {
    let (mut power, mut i) = (1.0, 0);
    while i < exponent {
        power *= base;
        i += 1;
    }
    power as f32
}

/// F(5, 3) and F(4, 4): 7 multiplications instead of 15 and 16. Points p and -p for three numbers
/// p, and infinity. Without zero among them, all come in pairs, which share their even and their
/// odd terms. With 1/4, 7/8 and 7/4 errors are least among the points tried: half of those with 0,
/// +-1/2, +-1 and 2 (F(4, 4), 12 channels, against f64).
///
/// ```text
///        tp  t  -sp -s  p  1  0      for p and for -p
/// B^T =       ...
///        -c  0   b  0  -a  0  1
/// ```
/// where s is the sum of the squares of the other two points and t their product, a the sum of all
/// squares, b that of their products by two, and c their product.
#[derive(Clone, Copy)]
pub(super) struct Seven<const OUT: usize, const TAPS: usize>;

/// F(5, 3).
pub(super) type Five = Seven<5, 3>;
/// F(4, 4).
pub(super) type FourFour = Seven<4, 4>;

impl<const OUT: usize, const TAPS: usize> Transform for Seven<OUT, TAPS> {
    const STRIDE: usize = 1;
    const OUT: usize = OUT;
    const TAPS: usize = TAPS;
    const POINTS: usize = 7;
    const FILTERS: usize = 7;
    const SHORT_OUT: usize = OUT - 2;
    const SHORT: &'static [usize] = &[0, 1, 2, 3, 6];
    // 4e-6; with 512 channels about 1e-5.
    const MOST_CHANNELS: usize = 128;
    const COST: f64 = 30.0;

    // Each polynomial of the taps at the points, over the products of the points' differences; the
    // last tap.
    #[inline(always)]
    fn filter(g: [f64; MOST_TAPS]) -> [f64; MOST_FILTERS] {
        let [a, b, c, d] = g;
        let mut points = [g[TAPS - 1]; MOST_FILTERS];
        for i in 0..3 {
            let (q, [other, another]) = (Q[i], [Q[(i + 1) % 3], Q[(i + 2) % 3]]);
            let scale = 0.5 / (P[i] * (q - other) * (q - another));
            let (even, odd) = (scale * (a + q * c), scale * P[i] * (b + q * d));
            (points[2 * i], points[2 * i + 1]) = (odd + even, odd - even);
        }
        points
    }
    #[inline(always)]
    fn input<S: Simd>(s: S, d: Line<S>) -> Line<S> {
        let mut points = d;
        [points[0], points[1]] = Self::pair::<S, 0>(s, d);
        [points[2], points[3]] = Self::pair::<S, 1>(s, d);
        [points[4], points[5]] = Self::pair::<S, 2>(s, d);
        let ones = s.splat(const { -(Q[0] + Q[1] + Q[2]) as f32 });
        let twos = s.splat(const { (Q[0] * Q[1] + Q[1] * Q[2] + Q[2] * Q[0]) as f32 });
        let all = s.splat(const { -(Q[0] * Q[1] * Q[2]) as f32 });
        points[6] = s.fma(all, d[0], s.fma(twos, d[2], s.fma(ones, d[4], d[6])));
        points
    }
    #[inline(always)]
    fn output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT] {
        let sums = [s.add(m[0], m[1]), s.add(m[2], m[3]), s.add(m[4], m[5])];
        let difs = [s.sub(m[0], m[1]), s.sub(m[2], m[3]), s.sub(m[4], m[5])];
        [
            s.add(sums[0], s.add(sums[1], sums[2])),
            Self::powers::<S, 1, 3>(s, difs, m[6], OUT),
            Self::powers::<S, 2, 3>(s, sums, m[6], OUT),
            Self::powers::<S, 3, 3>(s, difs, m[6], OUT),
            Self::powers::<S, 4, 3>(s, sums, m[6], OUT),
        ]
    }
    #[inline(always)]
    fn short_input<S: Simd>(s: S, d: Line<S>) -> Line<S> {
        let mut points = d;
        [points[0], points[1]] = Self::short_pair::<S, 0>(s, d);
        [points[2], points[3]] = Self::short_pair::<S, 1>(s, d);
        let ones = s.splat(const { -(Q[0] + Q[1]) as f32 });
        let all = s.splat(const { (Q[0] * Q[1]) as f32 });
        points[6] = s.fma(all, d[0], s.fma(ones, d[2], d[4]));
        points
    }
    #[inline(always)]
    fn short_output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT] {
        let sums = [s.add(m[0], m[1]), s.add(m[2], m[3])];
        let difs = [s.sub(m[0], m[1]), s.sub(m[2], m[3])];
        let first = s.add(sums[0], sums[1]);
        let second = Self::powers::<S, 1, 2>(s, difs, m[6], OUT - 2);
        [first, second, Self::powers::<S, 2, 2>(s, sums, m[6], OUT - 2), first, second]
    }
}

impl<const OUT: usize, const TAPS: usize> Seven<OUT, TAPS> {
    /// The I-th point and its negative.
    #[inline(always)]
    fn pair<S: Simd, const I: usize>(s: S, d: Line<S>) -> [S::F32; 2] {
        let sum = s.splat(const { -(Q[(I + 1) % 3] + Q[(I + 2) % 3]) as f32 });
        let product = s.splat(const { (Q[(I + 1) % 3] * Q[(I + 2) % 3]) as f32 });
        let even = s.fma(product, d[0], s.fma(sum, d[2], d[4]));
        let odd = s.fma(product, d[1], s.fma(sum, d[3], d[5]));
        let p = const { P[I] as f32 };
        [s.fma(s.splat(p), even, odd), s.fma(s.splat(-p), even, odd)]
    }

    /// Terms of the first N pairs times the points to the power of E; to the last output infinity
    /// is added.
    #[inline(always)]
    fn powers<S: Simd, const E: usize, const N: usize>(
        s: S,
        terms: [S::F32; N],
        infinity: S::F32,
        outputs: usize,
    ) -> S::F32 {
        let powers = const { [power(P[0], E), power(P[1], E), power(P[2], E)] };
        let mut sum = match E + 1 == outputs {
            true => s.fma(s.splat(powers[0]), terms[0], infinity),
            false => s.mul(s.splat(powers[0]), terms[0]),
        };
        for i in 1..N {
            sum = s.fma(s.splat(powers[i]), terms[i], sum);
        }
        sum
    }

    /// [`Self::pair`] where the third one is not there.
    #[inline(always)]
    fn short_pair<S: Simd, const I: usize>(s: S, d: Line<S>) -> [S::F32; 2] {
        let (scale, other) = const { ((Q[I] - Q[2]) as f32, -((Q[I] - Q[2]) * Q[1 - I]) as f32) };
        let even = s.fma(s.splat(other), d[0], s.mul(s.splat(scale), d[2]));
        let odd = s.fma(s.splat(other), d[1], s.mul(s.splat(scale), d[3]));
        let p = const { P[I] as f32 };
        [s.fma(s.splat(p), even, odd), s.fma(s.splat(-p), even, odd)]
    }
}

/// Stride 2: 9 multiplications instead of 12. The even inputs meet the outer taps by F(4, 2) with
/// points 0, 1, -1, 2, infinity; the odd ones are multiplied by the middle tap as they are, and are
/// points of one and the same filter.
///
/// ```text
///        2 -1 -2  1  0          1/2    0
///        0 -2 -1  1  0         -1/2  -1/2           1  1  1  1  0
/// B^T =  0  2 -3  1  0    G =  -1/6   1/6    A^T =  0  1 -1  2  0
///        0 -1  0  1  0          1/6   1/3           0  1  1  4  0
///        0  2 -1 -2  1           0     1            0  1 -1  8  1
/// ```
#[derive(Clone, Copy)]
pub(super) struct FourStrided;

impl Transform for FourStrided {
    const STRIDE: usize = 2;
    const OUT: usize = 4;
    const TAPS: usize = 3;
    const POINTS: usize = 9;
    const FILTERS: usize = 6;
    const SHORT_OUT: usize = 2;
    const SHORT: &'static [usize] = &[0, 1, 4, 5, 6];

    #[inline]
    fn filter_of(point: usize) -> usize {
        point.min(5)
    }
    #[inline(always)]
    fn filter([a, b, c, _]: [f64; MOST_TAPS]) -> [f64; MOST_FILTERS] {
        let (half, sixth) = (a * 0.5, a * (1.0 / 6.0));
        let sixth_of_c = c * (1.0 / 6.0);
        [half, -half - c * 0.5, sixth_of_c - sixth, sixth + 2.0 * sixth_of_c, c, b, 0.0]
    }
    #[inline(always)]
    fn input<S: Simd>(s: S, d: Line<S>) -> Line<S> {
        let (two, three) = (s.splat(2.0), s.splat(3.0));
        let [e0, e1, e2, e3, e4] = [d[0], d[2], d[4], d[6], d[8]];
        let (outer, inner) = (s.sub(e3, e1), s.sub(e0, e2)); // e3 - e1, e0 - e2
        [
            s.fma(two, inner, outer),
            s.sub(s.sub(e3, e2), s.mul(two, e1)),
            s.fma(two, e1, s.sub(e3, s.mul(three, e2))),
            outer,
            s.sub(s.sub(e4, e2), s.mul(two, outer)),
            d[1],
            d[3],
            d[5],
            d[7],
            d[9],
            d[10],
            d[11],
        ]
    }
    #[inline(always)]
    fn output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT] {
        let (two, four, eight) = (s.splat(2.0), s.splat(4.0), s.splat(8.0));
        let (sum, dif) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        [
            s.add(s.add(m[0], m[5]), s.add(sum, m[3])),
            s.fma(two, m[3], s.add(dif, m[6])),
            s.fma(four, m[3], s.add(sum, m[7])),
            s.fma(eight, m[3], s.add(s.add(dif, m[4]), m[8])),
            m[8],
        ]
    }
    #[inline(always)]
    fn short_input<S: Simd>(s: S, d: Line<S>) -> Line<S> {
        let mut points = d;
        points[0] = s.mul(s.splat(2.0), s.sub(d[0], d[2]));
        points[1] = s.mul(s.splat(-2.0), d[2]);
        points[4] = s.sub(d[4], d[2]);
        (points[5], points[6]) = (d[1], d[3]);
        points
    }
    #[inline(always)]
    fn short_output<S: Simd>(s: S, m: Line<S>) -> [S::F32; MOST_OUT] {
        let first = s.add(s.add(m[0], m[1]), m[5]);
        let second = s.add(s.add(m[1], m[4]), m[6]);
        [first, second, first, second, first]
    }
}

/// A line of zeros.
#[inline(always)]
pub(super) fn zeros<S: Simd>(s: S) -> Line<S> {
    let zero = s.zero();
    array!(MOST, |I| zero)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_cpu::simd::Portable;

    fn check<T: Transform>() {
        assert_eq!((T::OUT - 1) * T::STRIDE + T::TAPS, T::POINTS);
        assert_eq!((T::SHORT_OUT - 1) * T::STRIDE + T::TAPS, T::SHORT.len());
        convolve::<T>(false);
        convolve::<T>(true);
    }

    fn convolve<T: Transform>(short: bool) {
        let outputs = if short { T::SHORT_OUT } else { T::OUT };
        let mut g = [0.7, -1.3, 0.4, 0.9];
        g[T::TAPS..].fill(0.0);
        let d: [f32; MOST] = [0.3, -0.8, 1.1, 0.5, -0.2, 0.9, -1.4, 0.6, 0.1, 0.0, 0.0, 0.0];
        let filters = T::filter(g);
        let s = Portable;
        let mut points = T::input_of(s, d.map(|d| s.splat(d)), short);
        for (i, point) in points.iter_mut().enumerate().take(T::POINTS) {
            assert!(T::filter_of(i) < T::FILTERS);
            let there = !short || T::SHORT.contains(&i);
            let filter = if there { filters[T::filter_of(i)] as f32 } else { f32::NAN };
            *point = s.mul(*point, s.splat(filter));
        }
        let found = T::output_of(s, points, short);
        for (j, found) in found.iter().enumerate().take(outputs) {
            let exact: f64 = (0..T::TAPS).map(|t| g[t] * f64::from(d[j * T::STRIDE + t])).sum();
            assert!(
                (f64::from(found[0]) - exact).abs() < 1e-5,
                "output {j}, {short}: {found:?}, not {exact}"
            );
        }
    }

    #[test]
    fn lines_are_convolved() {
        check::<Two>();
        check::<Four>();
        check::<FourStrided>();
        check::<Five>();
        check::<FourFour>();
    }
}

//! Pooling, straight from the formulas of PyTorch's pages.

use plutino_kernels::pool::{Divisor, Reduction};

/// The parameters of a sliding pooling in three dimensions, as PyTorch names them.
#[derive(Debug, Clone, Copy)]
pub struct SlidingPool {
    /// Depth, height and width of the input.
    pub input: [usize; 3],
    /// Depth, height and width of the output.
    pub output: [usize; 3],
    /// `kernel_size`.
    pub kernel: [usize; 3],
    /// `stride`.
    pub stride: [usize; 3],
    /// `padding`.
    pub padding: [usize; 3],
    /// `dilation`.
    pub dilation: [usize; 3],
}

/// Pools each volume of `input`; returns values and, for the maximum, flat indices.
pub fn sliding_pool(p: &SlidingPool, reduction: Reduction, input: &[f32]) -> (Vec<f64>, Vec<i64>) {
    let volume: usize = p.input.iter().product();
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for x in input.chunks_exact(volume) {
        each(p.output, |o| {
            let taps = |a: usize| {
                let first = (o[a] * p.stride[a]) as i64 - p.padding[a] as i64;
                (0..p.kernel[a]).map(move |t| first + (t * p.dilation[a]) as i64)
            };
            let inside = |a: usize, i: &i64| (0..p.input[a] as i64).contains(i);
            let padded = |a: usize| {
                taps(a).filter(|&i| i < (p.input[a] + p.padding[a]) as i64).count() as f64
            };
            let (mut best, mut at, mut n) = (f64::NEG_INFINITY, 0, 0.0);
            let (mut sum, mut power) = (0.0, 0.0);
            let (mut largest, mut least) = (f64::NEG_INFINITY, f64::INFINITY);
            for d in taps(0).filter(|i| inside(0, i)) {
                for h in taps(1).filter(|i| inside(1, i)) {
                    for w in taps(2).filter(|i| inside(2, i)) {
                        let i = (d * p.input[1] as i64 + h) * p.input[2] as i64 + w;
                        let v = f64::from(x[i as usize]);
                        if n == 0.0 || v > best || v.is_nan() {
                            (best, at) = (v, i);
                        }
                        n += 1.0;
                        sum += v;
                        (largest, least) = (largest.max(v.abs()), least.min(v.abs()));
                        if let Reduction::Power { p, .. } = reduction {
                            power += v.powf(p);
                        }
                    }
                }
            }
            values.push(match reduction {
                Reduction::Max => best,
                Reduction::Average(_) if n == 0.0 => 0.0,
                Reduction::Average(Divisor::Inputs) => sum / n,
                Reduction::Average(Divisor::Padded) => sum / (padded(0) * padded(1) * padded(2)),
                Reduction::Average(Divisor::Fixed(n)) => sum / n as f64,
                Reduction::Power { p: f64::INFINITY, .. } => largest,
                Reduction::Power { p: f64::NEG_INFINITY, .. } => least,
                Reduction::Power { p, size } => (power / n * size as f64).powf(1.0 / p),
            });
            indices.push(at);
        });
    }
    (values, indices)
}

/// Adaptive average or maximum of each volume.
pub fn adaptive_pool(
    shape: [usize; 3],
    output: [usize; 3],
    max: bool,
    input: &[f32],
) -> (Vec<f64>, Vec<i64>) {
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for x in input.chunks_exact(shape.iter().product()) {
        each(output, |o| {
            let range = |a: usize| {
                let start = (o[a] as f64 * shape[a] as f64 / output[a] as f64).floor() as usize;
                let end = ((o[a] + 1) as f64 * shape[a] as f64 / output[a] as f64).ceil() as usize;
                start..end
            };
            let (mut best, mut at, mut sum, mut n) = (f64::NEG_INFINITY, 0, 0.0, 0.0);
            for d in range(0) {
                for h in range(1) {
                    for w in range(2) {
                        let i = (d * shape[1] + h) * shape[2] + w;
                        let v = f64::from(x[i]);
                        if v > best || v.is_nan() {
                            (best, at) = (v, i as i64);
                        }
                        sum += v;
                        n += 1.0;
                    }
                }
            }
            values.push(if max { best } else { sum / n });
            indices.push(at);
        });
    }
    (values, indices)
}

/// Calls `f` for each position of a volume, row-major.
fn each(shape: [usize; 3], mut f: impl FnMut([usize; 3])) {
    for d in 0..shape[0] {
        for h in 0..shape[1] {
            for w in 0..shape[2] {
                f([d, h, w]);
            }
        }
    }
}

//! Normalisations, straight from the formulas of PyTorch's pages.

use super::reduce::norm as p_norm;
use plutino_kernels::norm::{LocalResponse, RowNorm};

/// Rows normalised by their own statistics.
pub fn rows(n: &RowNorm, weight: Option<&[f32]>, bias: Option<&[f32]>, x: &[f32]) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks_exact(n.len) {
        let row: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
        let mean = if n.centered { row.iter().sum::<f64>() / row.len() as f64 } else { 0.0 };
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
        for x in row {
            let parameter = |p: &[f32]| f64::from(p[out.len() / n.span % p.len()]);
            let y = (x - mean) / (variance + n.eps).sqrt();
            out.push(y * weight.map_or(1.0, parameter) + bias.map_or(0.0, parameter));
        }
    }
    out
}

/// A scale and a shift for each channel of `[outer, channels, inner]`.
pub fn channels(shape: [usize; 3], scale: &[f32], shift: &[f32], x: &[f32]) -> Vec<f64> {
    let channel = |i: usize| i / shape[2] % shape[1];
    let affine = |(i, &x): (usize, &f32)| {
        f64::from(x) * f64::from(scale[channel(i)]) + f64::from(shift[channel(i)])
    };
    x.iter().enumerate().map(affine).collect()
}

/// Local response normalisation of `[outer, channels, inner]`.
pub fn local_response(n: &LocalResponse, shape: [usize; 3], x: &[f32]) -> Vec<f64> {
    let [outer, channels, inner] = shape;
    let mut out = vec![0.0; x.len()];
    for o in 0..outer {
        for c in 0..channels as i64 {
            for i in 0..inner {
                let at = |c: i64| (o * channels + c as usize) * inner + i;
                let first = c - (n.size / 2) as i64;
                let sum: f64 = (first..first + n.size as i64)
                    .filter(|c| (0..channels as i64).contains(c))
                    .map(|c| f64::from(x[at(c)]).powi(2))
                    .sum();
                let d = (n.k + n.alpha * sum / n.size as f64).powf(n.beta);
                out[at(c)] = f64::from(x[at(c)]) / d;
            }
        }
    }
    out
}

/// Vectors along the middle of `[outer, len, inner]` over their p-norm.
pub fn unit(p: f64, eps: f64, [outer, len, inner]: [usize; 3], x: &[f32]) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    for o in 0..outer {
        for i in 0..inner {
            let at = |l: usize| (o * len + l) * inner + i;
            let line: Vec<f64> = (0..len).map(|l| f64::from(x[at(l)])).collect();
            let norm = if p.is_infinite() {
                line.iter().fold(0.0, |m, x| x.abs().max(m))
            } else {
                p_norm(&line, p)
            };
            for (l, x) in line.iter().enumerate() {
                out[at(l)] = x / norm.max(eps);
            }
        }
    }
    out
}

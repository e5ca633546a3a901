//! The discrete Fourier transform, by definition.

use plutino_tensor::Complex;

/// `X[k] = sum of x[j] e^(sign 2 pi i j k / n)` along the middle of `[outer, n, inner]`.
pub fn dft(sign: f64, [outer, n, inner]: [usize; 3], x: &[Complex<f64>]) -> Vec<Complex<f64>> {
    let mut out = Vec::with_capacity(x.len());
    for at in 0..outer * n * inner {
        let (o, k, i) = (at / (n * inner), at / inner % n, at % inner);
        let term = |j: usize| {
            let turn = (j * k % n) as f64 / n as f64;
            x[(o * n + j) * inner + i]
                * Complex::from_polar(1.0, sign * std::f64::consts::TAU * turn)
        };
        out.push((0..n).map(term).sum());
    }
    out
}

//! Matrix products by the definition.

/// C\[i, j\] = sum over k of A\[i, k\] B\[k, j\], in f64; all matrices dense and row by row.
pub fn gemm(m: usize, n: usize, k: usize, a: &[f32], b: &[f32]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                c[i * n + j] += f64::from(a[i * k + l]) * f64::from(b[l * n + j]);
            }
        }
    }
    c
}

/// How far a sum of `terms` products may be off in f32, whatever its order: gamma(terms) x
/// sum of |a| |b| (Higham, Accuracy and Stability, theorem 3.1), with `scale` that sum.
pub fn gamma(terms: usize, scale: f64) -> f64 {
    let unit = f64::from(f32::EPSILON) / 2.0;
    let n = terms as f64 * unit;
    n / (1.0 - n) * scale + f64::from(f32::MIN_POSITIVE)
}

//! Distances, straight from PyTorch's formula of a vector norm.

/// The p-norms of `a - b + eps`, where both are `count` vectors of `len` elements, one after the
/// other.
pub fn distance(p: f64, eps: f64, [count, len]: [usize; 2], a: &[f32], b: &[f32]) -> Vec<f64> {
    let element = |i: usize| (f64::from(a[i]) - f64::from(b[i]) + eps).abs();
    let vector = |v: usize| (v * len..(v + 1) * len).map(element);
    let norm = |v: usize| match p {
        0.0 => vector(v).filter(|x| *x != 0.0).count() as f64,
        f64::INFINITY => vector(v).fold(0.0, f64::max),
        f64::NEG_INFINITY => vector(v).fold(f64::INFINITY, f64::min),
        p => vector(v).map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
    };
    (0..count).map(norm).collect()
}

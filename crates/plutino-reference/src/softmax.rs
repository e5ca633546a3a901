//! Softmax, from its definition.

use plutino_kernels::softmax::Softmax;

/// Softmax of `[outer, len, inner]` along `len`.
pub fn softmax(kind: Softmax, [outer, len, inner]: [usize; 3], input: &[f32]) -> Vec<f64> {
    let mut out = vec![0.0; input.len()];
    for o in 0..outer {
        for i in 0..inner {
            let at = |l: usize| (o * len + l) * inner + i;
            let sign = if kind == Softmax::Softmin { -1.0 } else { 1.0 };
            let x: Vec<f64> = (0..len).map(|l| sign * f64::from(input[at(l)])).collect();
            let max = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
            for (l, x) in x.iter().enumerate() {
                out[at(l)] = match kind {
                    Softmax::LogSoftmax => x - max - sum.ln(),
                    _ => (x - max).exp() / sum,
                };
            }
        }
    }
    out
}

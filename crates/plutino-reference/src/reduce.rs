//! Reductions, straight from their definitions.

/// The elements of each output, row-major, in f64.
pub fn groups(shape: &[usize], reduced: &[usize], input: &[f32]) -> Vec<Vec<f64>> {
    let outputs: usize =
        (0..shape.len()).filter(|d| !reduced.contains(d)).map(|d| shape[d]).product();
    let mut groups = vec![Vec::new(); outputs];
    for (i, &x) in input.iter().enumerate() {
        let (mut rest, mut output, mut step) = (i, 0, 1);
        for d in (0..shape.len()).rev() {
            if !reduced.contains(&d) {
                output += rest % shape[d] * step;
                step *= shape[d];
            }
            rest /= shape[d];
        }
        groups[output].push(f64::from(x));
    }
    groups
}

/// The p-norm.
pub fn norm(x: &[f64], p: f64) -> f64 {
    x.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p)
}

/// The variance, with `n - correction` as divisor.
pub fn variance(x: &[f64], correction: f64) -> f64 {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (x.len() as f64 - correction)
}

/// The first position of the greatest element, or of the first NaN.
pub fn argmax(x: &[f64]) -> usize {
    let nan = x.iter().position(|x| x.is_nan());
    let max = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    nan.or_else(|| x.iter().position(|&v| v == max)).unwrap_or(0)
}

//! Resizing, straight from the formulas of PyTorch's pages, one dimension after the other in f64.

use plutino_kernels::resize::{Sampling, Scale};

/// Resizes the middle of `[outer, input, inner]`; positions are exact (f64).
pub fn resize_axis(
    [outer, input, inner]: [usize; 3],
    output: usize,
    sampling: Sampling,
    scale: Scale,
    x: &[f64],
) -> Vec<f64> {
    let ratio = match scale {
        Scale { align_corners: true, .. } if output > 1 => (input - 1) as f64 / (output - 1) as f64,
        Scale { align_corners: true, .. } => 0.0,
        Scale { factor: Some(f), .. } => 1.0 / f,
        _ => input as f64 / output as f64,
    };
    let mut out = vec![0.0; outer * output * inner];
    for (at, out) in out.iter_mut().enumerate() {
        let (o, j, i) = (at / (output * inner), at / inner % output, at % inner);
        let value = |k: i64| {
            let k = k.clamp(0, input as i64 - 1) as usize;
            x[(o * input + k) * inner + i]
        };
        let position =
            if scale.align_corners { ratio * j as f64 } else { ratio * (j as f64 + 0.5) - 0.5 };
        *out = match sampling {
            Sampling::Nearest => value((ratio * j as f64).floor() as i64),
            Sampling::NearestExact => value((ratio * (j as f64 + 0.5)).floor() as i64),
            Sampling::Linear => {
                let x = position.max(0.0);
                let t = x - x.floor();
                (1.0 - t) * value(x.floor() as i64) + t * value(x.floor() as i64 + 1)
            }
            Sampling::Cubic => {
                let (k, t) = (position.floor() as i64, position - position.floor());
                (-1..=2).map(|d| cubic((t - d as f64).abs(), -0.75) * value(k + d)).sum()
            }
            Sampling::LinearAntialias | Sampling::CubicAntialias => {
                let (center, wide) = (ratio * (j as f64 + 0.5), ratio.max(1.0));
                let weight = |k: usize| {
                    let d = ((k as f64 + 0.5 - center) / wide).abs();
                    if sampling == Sampling::LinearAntialias {
                        (1.0 - d).max(0.0)
                    } else {
                        cubic(d, -0.5)
                    }
                };
                let total: f64 = (0..input).map(weight).sum();
                (0..input).map(|k| weight(k) * value(k as i64)).sum::<f64>() / total
            }
        };
    }
    out
}

/// Keys' kernel.
fn cubic(d: f64, a: f64) -> f64 {
    match d {
        d if d <= 1.0 => (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0,
        d if d < 2.0 => a * d.powi(3) - 5.0 * a * d.powi(2) + 8.0 * a * d - 4.0 * a,
        _ => 0.0,
    }
}

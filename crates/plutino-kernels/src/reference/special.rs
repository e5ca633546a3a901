//! Special functions in f64.

/// erf x, to a few ULP of f64.
///
/// Near zero by the Taylor series (DLMF 7.6.2), farther out as 1 - [`erfc`].
pub fn erf(x: f64) -> f64 {
    if x.abs() < 2.0 {
        // erf x = 2/sqrt(pi) e^(-x^2) sum 2^n x^(2n+1) / (1 3 5 ... (2n+1)): all terms positive.
        let mut term = x;
        let mut sum = x;
        for n in 1..80 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
    } else {
        x.signum() * (1.0 - erfc(x.abs()))
    }
}

/// 1 - erf x, without cancellation for positive x.
///
/// From 2 on by the continued fraction of DLMF 7.9.1, evaluated from the far end.
pub fn erfc(x: f64) -> f64 {
    if x.is_nan() {
        x
    } else if x < 2.0 {
        1.0 - erf(x)
    } else {
        let mut tail = x;
        for k in (1..200).rev() {
            tail = x + 0.5 * f64::from(k) / tail;
        }
        (-x * x).exp() / (tail * std::f64::consts::PI.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // Rounded from 20 digits.
        for (x, y) in [
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (3.0, 0.999_977_909_503_001_4),
        ] {
            assert!((erf(x) - y).abs() < 4e-16, "{x}");
            assert!((erf(-x) + y).abs() < 4e-16, "{x}");
        }
        assert!((erfc(4.0) / 1.541_725_790_028_002e-8 - 1.0).abs() < 1e-14);
        assert!((erfc(1.999_999) / erfc(2.000_001) - 1.0).abs() < 1e-5);
        assert_eq!(erf(0.0), 0.0);
        assert_eq!(erf(f64::INFINITY), 1.0);
    }
}

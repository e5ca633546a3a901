//! Medians and quartiles: what a machine of changing speed leaves of an average.

use serde::Serialize;

/// The median of some values, and the quartiles around it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Quartiles {
    pub(super) q1: f64,
    pub(super) median: f64,
    pub(super) q3: f64,
}

impl Quartiles {
    /// `None` where there are no values. Between two values we interpolate linearly.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let position = share * sorted.len().checked_sub(1)? as f64;
            let below = sorted.get(position.floor() as usize)?;
            let above = sorted.get(position.ceil() as usize)?;
            Some(below + (above - below) * position.fract())
        };
        Some(Self { q1: at(0.25)?, median: at(0.5)?, q3: at(0.75)? })
    }
}

/// The median; `None` where there are no values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    Quartiles::of(values).map(|q| q.median)
}

/// The geometric mean of positive values; `None` where there are none.
pub(super) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms: f64 = values.iter().map(|v| v.ln()).sum();
    (!values.is_empty()).then(|| (logarithms / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate() {
        let q = Quartiles::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(q, Quartiles { q1: 1.75, median: 2.5, q3: 3.25 });
        let one = Quartiles::of(&[7.0]).unwrap();
        assert_eq!(one, Quartiles { q1: 7.0, median: 7.0, q3: 7.0 });
        assert_eq!(Quartiles::of(&[]), None);
    }

    #[test]
    fn a_mean_of_ratios_is_symmetric() {
        let mean = geometric_mean(&[0.5, 2.0]).unwrap();
        assert!((mean - 1.0).abs() < 1e-15, "{mean}");
        assert_eq!(geometric_mean(&[]), None);
    }
}

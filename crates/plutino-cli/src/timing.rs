//! Times of repeated runs.

use serde::Serialize;
use std::time::Duration;

/// What is worth knowing of many times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Timing {
    /// Number of runs.
    pub(crate) runs: usize,
    #[serde(serialize_with = "as_millis", rename = "min_ms")]
    pub(crate) min: Duration,
    #[serde(serialize_with = "as_millis", rename = "median_ms")]
    pub(crate) median: Duration,
    #[serde(serialize_with = "as_millis", rename = "p90_ms")]
    pub(crate) p90: Duration,
    #[serde(serialize_with = "as_millis", rename = "p99_ms")]
    pub(crate) p99: Duration,
    #[serde(serialize_with = "as_millis", rename = "max_ms")]
    pub(crate) max: Duration,
}

/// For serde: milliseconds as a number.
pub(crate) fn as_millis<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64() * 1e3)
}

impl Timing {
    /// Percentiles by nearest rank: the smallest time that at least p percent of the runs do not
    /// exceed.
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let percentile = |p: usize| {
            let rank = (times.len() * p).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or_default()
        };
        Self {
            runs: times.len(),
            min: percentile(0),
            median: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max: percentile(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_ranks() {
        let ms = Duration::from_millis;
        let t = Timing::of((1..=100).rev().map(ms).collect());
        assert_eq!(
            (t.min, t.median, t.p90, t.p99, t.max),
            (ms(1), ms(50), ms(90), ms(99), ms(100))
        );
        let t = Timing::of(vec![ms(3), ms(1), ms(2)]);
        assert_eq!((t.min, t.median, t.p90), (ms(1), ms(2), ms(3)));
        assert_eq!(Timing::of(Vec::new()).median, ms(0));
    }
}

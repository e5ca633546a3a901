//! What is worth knowing of a weight without reading its numbers.

use plutino::ir::Attribute;
use plutino::{DType, Tensor};
use serde::Serialize;

/// Bars of the picture of how numbers are spread.
const BARS: usize = 24;

/// Elements that are looked at one after the other as `f64`: what is copied at a time.
const CHUNK: usize = 1 << 16;

/// Statistics of the finite numbers of a weight, and how many are not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Stats {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    /// Standard deviation of all elements (not of a sample).
    pub(crate) std: f64,
    pub(crate) zeros: u64,
    pub(crate) nan: u64,
    pub(crate) inf: u64,
    /// How many lie in each of [`BARS`] equal parts of the range from `min` to `max`.
    pub(crate) bars: Vec<u64>,
}

/// The statistics; none without numbers: data that is not loaded, an empty weight, or complex
/// numbers. Values are those of a conversion to `f64`.
pub(crate) fn stats(attribute: &Attribute) -> Option<Stats> {
    let mut sum = Sums::default();
    each(attribute, |x| sum.add(x))?;
    let (n, nan, inf) = (sum.finite, sum.nan, sum.inf);
    if n + nan + inf == 0 {
        return None;
    }
    if n == 0 {
        let none = Stats {
            min: f64::NAN,
            max: f64::NAN,
            mean: f64::NAN,
            std: f64::NAN,
            zeros: 0,
            nan,
            inf,
            bars: Vec::new(),
        };
        return Some(none);
    }
    let mean = sum.total / n as f64;
    // The second pass: squares of distances from the mean, which a single pass would cancel.
    let (mut squares, mut bars) = (0.0, vec![0u64; BARS]); // bounded: BARS
    let width = sum.max / BARS as f64 - sum.min / BARS as f64;
    each(attribute, |x| {
        if x.is_finite() {
            squares += (x - mean) * (x - mean);
            let at = if width > 0.0 { ((x - sum.min) / width) as usize } else { 0 };
            if let Some(bar) = bars.get_mut(at.min(BARS - 1)) {
                *bar += 1;
            }
        }
    })?;
    let std = (squares / n as f64).sqrt();
    Some(Stats { min: sum.min, max: sum.max, mean, std, zeros: sum.zeros, nan, inf, bars })
}

#[derive(Debug)]
struct Sums {
    min: f64,
    max: f64,
    total: f64,
    finite: u64,
    zeros: u64,
    nan: u64,
    inf: u64,
}

impl Default for Sums {
    fn default() -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { min, max, total: 0.0, finite: 0, zeros: 0, nan: 0, inf: 0 }
    }
}

impl Sums {
    fn add(&mut self, x: f64) {
        if x.is_nan() {
            self.nan += 1;
        } else if x.is_infinite() {
            self.inf += 1;
        } else {
            self.finite += 1;
            self.total += x;
            self.zeros += u64::from(x == 0.0);
            self.min = self.min.min(x);
            self.max = self.max.max(x);
        }
    }
}

/// Hands over every element as `f64`; none where there are no real numbers.
fn each(attribute: &Attribute, mut with: impl FnMut(f64)) -> Option<()> {
    let dtype = plutino::ops::dtype_of(attribute.dtype());
    if dtype.is_complex() {
        return None;
    }
    let size = attribute.dtype().size_of();
    for part in attribute.look().ok()?.chunks(CHUNK * size) {
        let part = Tensor::from_bytes(dtype, [part.len() / size], part).ok()?;
        let part = part.cast(DType::F64).ok()?;
        part.as_slice::<f64>().ok()?.iter().for_each(|&x| with(x));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finite_numbers_count_and_others_are_counted() {
        let numbers = [1.0f32, -3.0, 0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0];
        let found = stats(&Attribute::from_elements([7], &numbers).unwrap()).unwrap();
        assert_eq!((found.min, found.max, found.mean), (-3.0, 2.0, 0.0));
        assert_eq!(found.std, 3.5f64.sqrt()); // (1 + 9 + 0 + 4) / 4
        assert_eq!((found.zeros, found.nan, found.inf), (1, 1, 2));
        assert_eq!((found.bars.len(), found.bars.iter().sum::<u64>()), (BARS, 4));
        assert_eq!((found.bars[0], found.bars[BARS - 1]), (1, 1));
    }

    #[test]
    fn every_part_of_a_long_weight_is_seen() {
        let n = CHUNK as i64 * 2 + 3;
        let numbers: Vec<i64> = (0..n).collect();
        let found = stats(&Attribute::from_elements([n as usize], &numbers).unwrap()).unwrap();
        assert_eq!((found.min, found.max), (0.0, (n - 1) as f64));
        assert_eq!(found.mean, (n - 1) as f64 / 2.0);
        assert_eq!(found.bars.iter().sum::<u64>(), n as u64);
    }

    #[test]
    fn without_numbers_there_are_no_statistics() {
        assert_eq!(stats(&Attribute::from_elements::<f32>([0], &[]).unwrap()), None);
        let unread = Attribute::without_data(plutino::ir::DType::F32, [3]).unwrap();
        assert_eq!(stats(&unread), None);
        let nan = stats(&Attribute::from_elements([1], &[f32::NAN]).unwrap()).unwrap();
        assert!(nan.min.is_nan() && nan.nan == 1 && nan.bars.is_empty());
        let constant = stats(&Attribute::from_elements([3], &[5u8; 3]).unwrap()).unwrap();
        assert_eq!(
            (constant.min, constant.max, constant.std, constant.bars[0]),
            (5.0, 5.0, 0.0, 3)
        );
    }
}

//! Values out of names, by integer arithmetic and correctly rounded operations only, so that every
//! machine and language gets the same bits.

use plutino_tensor::{Tensor, TensorError};
use serde::Deserialize;

/// The words of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
#[derive(Debug, Clone)]
pub struct Words {
    state: u64,
}

impl Words {
    /// The sequence that belongs to `key`: seeded by its 64-bit FNV-1a hash.
    pub fn of(key: &str) -> Self {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(PRIME);
        Words { state: key.bytes().fold(OFFSET, hash) }
    }

    /// f32 values in `[centre - spread, centre + spread)`: the upper 24 bits of each word as a
    /// multiple of 2^-23 in `[-1, 1)`, times `spread`, plus `centre`, both operations rounded to
    /// f32.
    pub(crate) fn uniform(self, centre: f64, spread: f64) -> impl Iterator<Item = f32> {
        const STEP: f32 = 1.0 / (1 << 23) as f32;
        let (centre, spread) = (centre as f32, spread as f32);
        self.map(move |word| {
            let unit = ((word >> 40) as i32 - (1 << 23)) as f32 * STEP;
            spread * unit + centre
        })
    }

    /// Integers in `[low, high)`: the upper 32 bits of each word, scaled to the range.
    fn integers(self, low: i64, high: i64) -> impl Iterator<Item = i64> {
        let range = high.wrapping_sub(low) as u64;
        self.map(move |word| low.wrapping_add(((word >> 32).wrapping_mul(range) >> 32) as i64))
    }
}

impl Iterator for Words {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(z ^ (z >> 31))
    }
}

/// How to make one input of a fixture.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Recipe {
    /// `in0`, `in1`, ... in the order of the graph's inputs.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Where the values come from.
    #[serde(flatten)]
    pub kind: InputKind,
}

/// Where an input's values come from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum InputKind {
    /// f32, uniform in `[low, high)`.
    Uniform {
        /// Seed of the sequence.
        key: String,
        /// Smallest value.
        low: f64,
        /// Bound of the largest value.
        high: f64,
    },
    /// i64, each integer of `[low, high)` equally likely.
    Integers {
        /// Seed of the sequence.
        key: String,
        /// Smallest value.
        low: i64,
        /// One more than the largest value.
        high: i64,
    },
    /// Stored: the array that is named as the input.
    File {
        /// npz file in the fixture's folder.
        file: String,
    },
}

impl Recipe {
    /// The generated values; none where they are stored.
    pub(crate) fn generate(&self) -> Option<Result<Tensor, TensorError>> {
        let shape = &self.shape[..];
        match &self.kind {
            InputKind::Uniform { key, low, high } => {
                let mut values = Words::of(key).uniform((high + low) / 2.0, (high - low) / 2.0);
                Some(Tensor::from_fn(shape, |_| values.next().unwrap_or_default()))
            }
            InputKind::Integers { key, low, high } => {
                let mut values = Words::of(key).integers(*low, *high);
                Some(Tensor::from_fn(shape, |_| values.next().unwrap_or_default()))
            }
            InputKind::File { .. } => None,
        }
    }

    /// The npz file of stored values.
    pub(crate) fn file(&self) -> Option<&str> {
        match &self.kind {
            InputKind::File { file } => Some(file),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hashed_by_fnv_1a() {
        // Test vectors of the algorithm's authors (Fowler, Noll and Vo).
        assert_eq!(Words::of("").state, 0xcbf2_9ce4_8422_2325);
        assert_eq!(Words::of("foobar").state, 0x8594_4171_f739_67e8);
    }

    #[test]
    fn words_are_those_of_splitmix64() {
        // First outputs for the seed 1234567 of the reference implementation (Vigna, splitmix64.c).
        let words: Vec<u64> = Words { state: 1_234_567 }.take(3).collect();
        assert_eq!(words, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    /// `test_generator.py` expects the same answers of the Python side.
    #[test]
    fn values_are_those_of_python() {
        let bits = |values: &mut dyn Iterator<Item = f32>| -> Vec<u32> {
            values.take(4).map(f32::to_bits).collect()
        };
        let mut weights = Words::of("conv.weight").uniform(0.0, (3.0f64 * 2.0 / 147.0).sqrt());
        assert_eq!(bits(&mut weights), [0xbe00_bbb9, 0x3d84_7805, 0x3e16_a850, 0x3d2e_a5b5]);
        let mut norm = Words::of("norm.weight").uniform(1.0, 0.25);
        assert_eq!(bits(&mut norm), [0x3f61_a845, 0x3f43_71f2, 0x3f84_8373, 0x3f68_9e58]);
        let tokens: Vec<i64> = Words::of("tokens").integers(-5, 30522).take(4).collect();
        assert_eq!(tokens, [23169, 8908, 10716, 4632]);
    }

    #[test]
    fn values_stay_in_range() {
        let all = |low: f32, high: f32, values: &mut dyn Iterator<Item = f32>| {
            values.take(10_000).all(|value| (low..high).contains(&value))
        };
        assert!(all(0.75, 1.25, &mut Words::of("a").uniform(1.0, 0.25)));
        assert!(Words::of("b").integers(-3, 4).take(10_000).all(|n| (-3..4).contains(&n)));
    }
}

//! Which token comes next: the likeliest, or one that is drawn.

use plutino_tensor::{TensorError, alloc};

/// How tokens are chosen. The default is the likeliest each time.
///
/// Scores are divided by the temperature, then the `top_k` highest are kept, then the fewest of
/// these whose probabilities sum up to `top_p`. One of what is left is drawn by its probability.
/// Of equal scores the lower token comes first.
///
/// Draws are reproducible: row `r` of a batch has a SplitMix64 generator of its own, whose state
/// starts as word `r` (from 0) of a SplitMix64 generator whose state starts as `seed`. Each token
/// takes one word; its upper 53 bits times 2^-53 are the point, as a share of the kept
/// probabilities (in f64, summed up in the order of tokens), where the drawn token lies.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// What scores are divided by; 0: the likeliest token, whatever the other options say.
    pub temperature: f64,
    /// How many of the likeliest tokens are kept; 0: all.
    pub top_k: usize,
    /// The probability that is kept, of the likeliest tokens; 1: all.
    pub top_p: f64,
    /// Where the random numbers start.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

/// A token cannot be chosen.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// An option makes no sense.
    #[error("{option} must be {expected}, found {found}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// What would have been right.
        expected: &'static str,
        /// What was given.
        found: f64,
    },
    /// A score is not a number.
    #[error("the model's score of token {token} is NaN")]
    NotANumber {
        /// The token.
        token: usize,
    },
    /// No token has a score above negative infinity.
    #[error("no token is possible: all {tokens} scores are -inf, or there is none")]
    Nothing {
        /// Number of scores.
        tokens: usize,
    },
    /// Memory is refused.
    #[error(transparent)]
    Memory(#[from] TensorError),
}

impl Sampling {
    /// Checks the options.
    ///
    /// # Errors
    /// Where one makes no sense.
    pub fn check(&self) -> Result<(), SamplingError> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            let (expected, found) = ("0 or more", self.temperature);
            return Err(SamplingError::Option { option: "temperature", expected, found });
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            let (expected, found) = ("above 0 and at most 1", self.top_p);
            return Err(SamplingError::Option { option: "top-p", expected, found });
        }
        Ok(())
    }
}

/// Chooses the tokens of one row.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    random: SplitMix64,
    /// Tokens that may come, and their weights: kept for its memory.
    kept: Vec<(u32, f64)>,
}

impl Sampler {
    /// For row `row` of a batch.
    ///
    /// # Errors
    /// As [`Sampling::check`].
    pub fn new(sampling: Sampling, row: usize) -> Result<Self, SamplingError> {
        sampling.check()?;
        let mut seeds = SplitMix64(sampling.seed.wrapping_add(GAMMA.wrapping_mul(row as u64)));
        Ok(Self { random: SplitMix64(seeds.next()), sampling, kept: Vec::new() })
    }

    /// The next token, by the scores of all tokens.
    ///
    /// # Errors
    /// Where a score is NaN, or no token is possible.
    pub fn choose(&mut self, scores: &[f32]) -> Result<u32, SamplingError> {
        let likeliest = likeliest(scores)?;
        if self.sampling.temperature == 0.0 {
            return Ok(likeliest as u32);
        }
        self.keep(scores, scores[likeliest])?;
        let total: f64 = self.kept.iter().map(|(_, weight)| weight).sum();
        let point = self.random.unit() * total;
        let mut sum = 0.0;
        let drawn = self.kept.iter().find(|(_, weight)| {
            sum += weight;
            point < sum
        });
        // Rounding may leave the point at the very end: the last token that has a weight.
        let last = || self.kept.iter().rev().find(|(_, weight)| *weight > 0.0);
        Ok(drawn.or_else(last).map_or(likeliest as u32, |(token, _)| *token))
    }

    /// Fills `kept`: what top-k and top-p leave, in the order of tokens, with weights relative to
    /// that of the likeliest.
    fn keep(&mut self, scores: &[f32], highest: f32) -> Result<(), SamplingError> {
        let Sampling { temperature, top_k, top_p, .. } = self.sampling;
        let weight = |score: f32| match score == highest {
            true => 1.0, // also where both are infinite
            false => ((f64::from(score) - f64::from(highest)) / temperature).exp(),
        };
        self.kept.clear();
        let weights = scores.iter().zip(0u32..).map(|(&score, token)| (token, weight(score)));
        if self.kept.capacity() < scores.len() {
            self.kept = alloc::list(scores.len())?;
        }
        self.kept.extend(weights);
        let before = |a: &(u32, f64), b: &(u32, f64)| {
            let score = |entry: &(u32, f64)| scores.get(entry.0 as usize).copied().unwrap_or(0.0);
            score(b).total_cmp(&score(a)).then(a.0.cmp(&b.0))
        };
        if top_k > 0 && top_k < self.kept.len() {
            self.kept.select_nth_unstable_by(top_k - 1, before);
            self.kept.truncate(top_k);
        }
        if top_p < 1.0 {
            self.kept.sort_unstable_by(before);
            let total: f64 = self.kept.iter().map(|(_, weight)| weight).sum();
            let mut sum = 0.0;
            let enough = self.kept.iter().position(|(_, weight)| {
                sum += weight;
                sum >= top_p * total
            });
            self.kept.truncate(enough.map_or(self.kept.len(), |at| at + 1));
        }
        self.kept.sort_unstable_by_key(|(token, _)| *token);
        Ok(())
    }
}

/// The first token with the highest score.
fn likeliest(scores: &[f32]) -> Result<usize, SamplingError> {
    let (mut best, mut highest) = (None, f32::NEG_INFINITY);
    for (token, &score) in scores.iter().enumerate() {
        if score.is_nan() {
            return Err(SamplingError::NotANumber { token });
        }
        if score > highest {
            (best, highest) = (Some(token), score);
        }
    }
    best.ok_or(SamplingError::Nothing { tokens: scores.len() })
}

/// Steele, Lea and Flood's generator (2014).
#[derive(Debug, Clone)]
struct SplitMix64(u64);

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A multiple of 2^-53 in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities, told plainly: sort all, cut, divide.
    fn reference(scores: &[f32], sampling: &Sampling) -> Vec<f64> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a])); // stable: the lower token first
        if sampling.top_k > 0 {
            order.truncate(sampling.top_k);
        }
        let probabilities = |order: &[usize]| {
            let weights: Vec<f64> = order
                .iter()
                .map(|&i| (f64::from(scores[i]) / sampling.temperature).exp())
                .collect();
            let sum: f64 = weights.iter().sum();
            weights.into_iter().map(|w| w / sum).collect::<Vec<f64>>()
        };
        let mut sum = 0.0;
        let mut enough = 0;
        for p in probabilities(&order) {
            enough += 1;
            sum += p;
            if sum >= sampling.top_p {
                break;
            }
        }
        order.truncate(enough);
        let mut all = vec![0.0; scores.len()];
        for (p, &i) in probabilities(&order).into_iter().zip(&order) {
            all[i] = p;
        }
        all
    }

    fn scores() -> Vec<f32> {
        (0..23u32).map(|i| ((i * 7 + 3) % 23) as f32 * 0.31 - 2.0).chain([5.5, 5.5]).collect()
    }

    #[test]
    fn draws_follow_the_reference() {
        let scores = scores();
        for (temperature, top_k, top_p) in [
            (1.0, 0, 1.0),
            (0.7, 5, 1.0),
            (1.5, 0, 0.8),
            (2.0, 9, 0.6),
            (0.2, 1, 1.0),
            (1.0, 24, 0.01),
        ] {
            let sampling = Sampling { temperature, top_k, top_p, seed: 7 };
            let expected = reference(&scores, &sampling);
            let mut sampler = Sampler::new(sampling, 0).unwrap();
            sampler.keep(&scores, 5.5).unwrap();
            let total: f64 = sampler.kept.iter().map(|k| k.1).sum();
            let kept: Vec<u32> = sampler.kept.iter().map(|k| k.0).collect();
            for &(token, weight) in &sampler.kept {
                let expected = expected[token as usize];
                assert!((weight / total - expected).abs() < 1e-12, "{weight} {total} {expected}");
            }
            let possible = expected.iter().filter(|p| **p > 0.0).count();
            assert_eq!(kept.len(), possible, "{temperature} {top_k} {top_p}");
            // Counts of n draws: the standard deviation of each is at most sqrt(n) / 2.
            let n = 40_000;
            let mut counts = vec![0usize; scores.len()];
            for _ in 0..n {
                counts[sampler.choose(&scores).unwrap() as usize] += 1;
            }
            for (count, p) in counts.into_iter().zip(&expected) {
                let deviation = (f64::from(n) * p * (1.0 - p)).sqrt();
                assert!((count as f64 - f64::from(n) * p).abs() <= 5.0 * deviation, "{count} {p}");
            }
        }
    }

    #[test]
    fn draws_are_those_that_are_written_down() {
        // SplitMix64 from 0: its published first words.
        let mut words = SplitMix64(0);
        assert_eq!([words.next(), words.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        let sampling = Sampling { temperature: 1.0, seed: 42, ..Sampling::default() };
        let draw = |row| {
            let mut sampler = Sampler::new(sampling.clone(), row).unwrap();
            [(); 8].map(|()| sampler.choose(&scores()).unwrap())
        };
        assert_eq!((draw(0), draw(1)), (draw(0), draw(1)));
        assert_ne!(draw(0), draw(1));
        let mut seeds = SplitMix64(42);
        let mut row = [SplitMix64(seeds.next()), SplitMix64(seeds.next())];
        let sampler = Sampler::new(sampling.clone(), 1).unwrap();
        assert_eq!({ sampler }.random.next(), row[1].next());
    }

    #[test]
    fn zero_is_the_likeliest() {
        let mut greedy = Sampler::new(Sampling { top_k: 3, ..Sampling::default() }, 0).unwrap();
        assert_eq!(greedy.choose(&scores()), Ok(23), "the first of two");
        assert_eq!(greedy.choose(&[f32::NEG_INFINITY, -1e30]), Ok(1));
        assert_eq!(greedy.choose(&[0.0, f32::INFINITY]), Ok(1));
    }

    #[test]
    fn what_cannot_be_chosen_is_refused() {
        let inf = f32::INFINITY;
        for temperature in [0.0, 1.0] {
            let mut sampler =
                Sampler::new(Sampling { temperature, ..Sampling::default() }, 0).unwrap();
            assert_eq!(
                sampler.choose(&[0.0, f32::NAN]),
                Err(SamplingError::NotANumber { token: 1 })
            );
            assert_eq!(sampler.choose(&[-inf; 3]), Err(SamplingError::Nothing { tokens: 3 }));
            assert_eq!(sampler.choose(&[]), Err(SamplingError::Nothing { tokens: 0 }));
            assert_eq!(sampler.choose(&[-inf, inf, 3.0]), Ok(1));
        }
        for (temperature, top_p) in
            [(-1.0, 1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, 0.0), (1.0, 1.1)]
        {
            let sampling = Sampling { temperature, top_p, ..Sampling::default() };
            assert!(Sampler::new(sampling, 0).is_err());
        }
    }
}

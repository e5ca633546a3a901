//! Pairs of bf16: two numbers in the place of one f32, multiplied and added up by one instruction.
//!
//! ```text
//! lane of a:  | a1 (bf16) | a0 (bf16) |      c' = fma(a0, b0, fma(a1, b1, c))
//! lane of b:  | b1 (bf16) | b0 (bf16) |      in f32, each step rounded to nearest even
//! ```
//! A pair is a 32-bit word, so whatever moves f32 moves pairs: a product over `k` numbers is one
//! over `k / 2` words whose multiply-add is [`Simd::dot_pairs`]. Products are exact in f32 (8 bits
//! times 8), sums have the 24 bits of f32; what is lost is lost when numbers become bf16.
//!
//! The instruction (`vdpbf16ps` of AVX512_BF16) takes the upper numbers first, reads denormals as
//! zero, and makes none (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).
//! The emulation computes the same, to the bit: tests on any machine show what the machines that
//! have it compute.

use super::{Isa, Level, Portable, Simd, Vectorized};

/// A way to compute with pairs, which this CPU has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pairs(Unit);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Unit {
    Emulated,
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    Avx512Bf16,
}

impl Pairs {
    /// What the instruction computes, in plain Rust, with vectors of [`Isa::PORTABLE`]: slower than
    /// f32, and everywhere.
    pub const EMULATED: Self = Self(Unit::Emulated);

    /// The instructions that go with an instruction set, where the CPU has them.
    pub fn of(isa: Isa) -> Option<Self> {
        match isa.0 {
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 if super::avx512::has_bf16() => Some(Self(Unit::Avx512Bf16)),
            _ => None,
        }
    }

    /// The instruction set whose vectors they are.
    pub const fn isa(self) -> Isa {
        match self.0 {
            Unit::Emulated => Isa::PORTABLE,
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Unit::Avx512Bf16 => Isa(Level::Avx512),
        }
    }

    /// `avx512_bf16` or `emulated`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Unit::Emulated => "emulated",
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Unit::Avx512Bf16 => "avx512_bf16",
        }
    }

    /// Multiply-adds in the time of one of f32, for choices between algorithms.
    ///
    /// AMD's CPUs compute a vector of pairs as often as one of f32. Intel's have two units for f32
    /// and one for pairs: nothing is gained but bytes. The emulation claims a gain, so that tests
    /// see what is chosen where there is one.
    pub fn rate(self) -> f64 {
        match self.0 {
            Unit::Emulated => 2.0,
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Unit::Avx512Bf16 => match super::avx512::is_amd() {
                true => 1.9,
                false => 1.0,
            },
        }
    }

    /// Runs a kernel that makes pairs of numbers ([`Simd::to_pairs`]), by the instruction for it
    /// where the CPU has it: the same bits anywhere.
    #[inline]
    pub fn convert<K: Vectorized>(isa: Isa, kernel: K) -> K::Output {
        match Self::of(isa) {
            Some(pairs) => pairs.run(kernel),
            None => isa.run(kernel),
        }
    }

    /// Runs a kernel whose [`Simd::dot_pairs`] is the instruction.
    #[inline]
    pub fn run<K: Vectorized>(self, kernel: K) -> K::Output {
        match self.0 {
            Unit::Emulated => kernel.run(Portable),
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            // SAFETY: a unit of this name only exists where the CPU has the instructions.
            Unit::Avx512Bf16 => unsafe { super::avx512::run_avx512_bf16(kernel) },
        }
    }
}

impl std::fmt::Display for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// [`Simd::dot_pairs`] by operations of f32, which do not treat denormals as the instruction does.
#[inline(always)]
pub(super) fn dot_by_fma<S: Simd>(s: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
    let upper = s.fma(s.upper_bf16(a), s.upper_bf16(b), c);
    s.fma(s.lower_bf16(a), s.lower_bf16(b), upper)
}

/// [`Simd::to_pairs`] by operations of f32.
#[cfg_attr(not(unoptimised), inline(always))]
pub(super) fn round_to_pairs<S: Simd>(s: S, a: S::F32, b: S::F32) -> S::F32 {
    const EVEN: [f32; 16] =
        [0., 2., 4., 6., 8., 10., 12., 14., 16., 18., 20., 22., 24., 26., 28., 30.];
    let even = s.to_i32(s.load(&EVEN));
    let lower = rounded(s, s.pick(even, a, b));
    let upper = rounded(s, s.pick(s.add_i32(even, s.splat_i32(1)), a, b));
    let lower = s.and_i32(s.shr_i32::<16>(lower), s.splat_i32(0xffff));
    s.as_f32(s.or_i32(lower, upper))
}

/// The numbers of the words in the lower half of a vector, in their order.
#[cfg_attr(not(unoptimised), inline(always))]
pub(super) fn widen<S: Simd>(s: S, words: S::F32) -> S::F32 {
    const WORD: [f32; 16] = [0., 0., 1., 1., 2., 2., 3., 3., 4., 4., 5., 5., 6., 6., 7., 7.];
    const LOWER: [f32; 16] = [1., 0., 1., 0., 1., 0., 1., 0., 1., 0., 1., 0., 1., 0., 1., 0.];
    let own = s.pick(s.to_i32(s.load(&WORD)), words, words);
    let lower = s.lt(s.zero(), s.load(&LOWER));
    s.select(lower, s.lower_bf16(own), s.upper_bf16(own))
}

/// The bits of the nearest bf16, in the upper half; those of a NaN stay some.
#[inline(always)]
fn rounded<S: Simd>(s: S, x: S::F32) -> S::I32 {
    let bits = s.as_i32(x);
    let odd = s.and_i32(s.shr_i32::<16>(bits), s.splat_i32(1));
    let nearest = s.add_i32(bits, s.add_i32(odd, s.splat_i32(0x7fff)));
    let quiet = s.or_i32(bits, s.splat_i32(0x40_0000));
    let finite = s.select(s.eq(x, x), s.as_f32(nearest), s.as_f32(quiet));
    s.and_i32(s.as_i32(finite), s.splat_i32(!0xffff))
}

/// What the instruction computes for four lanes. A call: in the place of each multiply-add of each
/// register tile it would take 0.7 MB, for what is slow anyway.
#[inline(never)]
pub(super) fn dot_words(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
    std::array::from_fn(|i| dot(a[i], b[i], c[i]))
}

/// What the instruction computes for one lane.
#[inline(always)]
pub(super) fn dot(a: f32, b: f32, c: f32) -> f32 {
    let upper = |x: f32| flushed(f32::from_bits(x.to_bits() & 0xffff_0000));
    let lower = |x: f32| flushed(f32::from_bits(x.to_bits() << 16));
    let c = flushed(upper(a).mul_add(upper(b), flushed(c)));
    flushed(lower(a).mul_add(lower(b), c))
}

/// Zero, with its sign, in the place of a denormal.
#[inline(always)]
pub(crate) fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

/// A pair of bf16 as a word, by their bits.
#[inline(always)]
pub fn pair(lower: u16, upper: u16) -> f32 {
    f32::from_bits(u32::from(lower) | u32::from(upper) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_tensor::bf16;

    /// Numbers as pairs, each the nearest bf16: `words[i]` holds numbers `2 i` and, upper, `2 i +
    /// 1`; 0 where there is none. Words are half as many, rounded up.
    struct ToPairs<'a> {
        /// The numbers.
        numbers: &'a [f32],
        /// Where words go: half as many, rounded up.
        words: &'a mut [f32],
    }

    impl Vectorized for ToPairs<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Self { numbers, words } = self;
            let words = &mut words[..numbers.len().div_ceil(2)];
            let mut vectors = numbers.chunks_exact(2 * S::LANES);
            let mut to = words.chunks_exact_mut(S::LANES);
            for (from, to) in (&mut vectors).zip(&mut to) {
                s.store(s.to_pairs(s.load(from), s.load(&from[S::LANES..])), to);
            }
            let rest = vectors.remainder();
            if !rest.is_empty() {
                let (low, high) = rest.split_at(rest.len().min(S::LANES));
                let pairs = s.to_pairs(s.load_partial(low), s.load_partial(high));
                s.store_partial(pairs, &mut words[numbers.len() / (2 * S::LANES) * S::LANES..]);
            }
        }
    }

    struct Dot<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

    impl Vectorized for Dot<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let n = S::LANES;
            for at in (0..self.0.len()).step_by(n) {
                let (a, b) = (s.load(&self.0[at..]), s.load(&self.1[at..]));
                s.store(s.dot_pairs(a, b, s.load(&self.2[at..])), &mut self.2[at..]);
            }
        }
    }

    /// Makes bf16 of numbers, and numbers of these.
    struct ThereAndBack<'a>(&'a mut [f32], &'a mut [f32]);

    impl Vectorized for ThereAndBack<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let numbers = self.0.chunks_exact_mut(S::LANES);
            for (x, words) in numbers.zip(self.1.chunks_exact_mut(S::LANES / 2)) {
                s.store_bf16(s.load(x), words);
                s.store(s.load_bf16(words), x);
            }
        }
    }

    #[test]
    fn vectors_of_bf16_are_written_and_read() {
        let numbers: Vec<f32> = (0..64).map(|i| (i as f32 - 20.3) * 1.37).collect();
        let expected: Vec<f32> = numbers.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
        let check = |mut found: Vec<f32>, words: Vec<f32>| {
            for (i, &x) in expected.iter().enumerate() {
                let word = (words[i / 2].to_bits() >> (i % 2 * 16)) as u16;
                assert_eq!(word, bf16::from_f32(x).to_bits());
                assert_eq!(std::mem::take(&mut found[i]), x);
            }
        };
        for isa in Isa::available() {
            let (mut found, mut words) = (numbers.clone(), vec![f32::NAN; 32]);
            isa.run(ThereAndBack(&mut found, &mut words));
            check(found, words);
        }
        for unit in [Some(Pairs::EMULATED), Pairs::of(Isa::best())].into_iter().flatten() {
            let (mut found, mut words) = (numbers.clone(), vec![f32::NAN; 32]);
            unit.run(ThereAndBack(&mut found, &mut words));
            check(found, words);
        }
    }

    /// Bits that are often special: zeros, denormals, infinities, NaN, and ordinary numbers.
    fn words(seed: u64) -> Vec<f32> {
        let mut state = seed | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as u32
        };
        let special = [0, 0x8000, 1, 0x807f, 0x7f80, 0xff80, 0x7fc0, 0x3f80, 0x0080, 0x7f7f];
        let half = |bits: u32| match bits % 16 {
            i if (i as usize) < special.len() => special[i as usize],
            _ => bits >> 16,
        };
        (0..1 << 16)
            .map(|i| match i % 3 {
                0 => f32::from_bits(half(next()) | half(next()) << 16),
                1 => f32::from_bits(next() & 0x8fff_8fff | next() & 0x3000_3000),
                _ => f32::from_bits(next()),
            })
            .collect()
    }

    #[test]
    fn emulated_and_real_have_the_same_bits() {
        let Some(real) = Pairs::of(Isa::best()) else { return };
        let (a, b, c) = (words(1), words(2), words(3));
        let [mut expected, mut found] = [c.clone(), c];
        Pairs::EMULATED.run(Dot(&a, &b, &mut expected));
        real.run(Dot(&a, &b, &mut found));
        for (i, (x, y)) in expected.iter().zip(&found).enumerate() {
            let same = x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            assert!(same, "{i}: {:x} {:x}: {x:e} {y:e}", a[i].to_bits(), b[i].to_bits());
        }
    }

    #[test]
    fn upper_numbers_come_first() {
        let pair = |low: f32, high: f32| {
            let bits = |x| u32::from(bf16::from_f32(x).to_bits());
            f32::from_bits(bits(low) | bits(high) << 16)
        };
        assert_eq!(dot(pair(2.0, 3.0), pair(5.0, 7.0), 100.0), 131.0);
        // 2^24 + 1 is rounded away; 2^24 - 2^24 + 1 is not.
        let large = 16777216.0;
        assert_eq!(dot(pair(1.0, -large), pair(1.0, 1.0), large), 1.0);
        assert_eq!(dot(pair(-large, 1.0), pair(1.0, 1.0), large), 0.0);
        assert_eq!(dot(1e-45, pair(1.0, 1.0), 0.0), 0.0);
    }

    #[test]
    fn numbers_become_pairs_in_order() {
        let mut units = vec![Pairs::EMULATED];
        units.extend(Pairs::of(Isa::best()));
        for unit in units {
            for n in (0..70).chain([255, 256usize]) {
                let numbers: Vec<f32> = (0..n).map(|i| (i as f32 - 20.3) * 1.37).collect();
                let mut words = vec![f32::NAN; n.div_ceil(2) + 1];
                unit.run(ToPairs { numbers: &numbers, words: &mut words });
                for (i, &x) in numbers.iter().enumerate() {
                    let found = (words[i / 2].to_bits() >> (i % 2 * 16)) as u16;
                    assert_eq!(found, bf16::from_f32(x).to_bits(), "{unit} {n}: {i}");
                }
                let half = n.is_multiple_of(2) || words[n / 2].to_bits() >> 16 == 0;
                assert!(half && words[n.div_ceil(2)].is_nan(), "{unit} {n}");
            }
        }
    }
}

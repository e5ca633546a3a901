//! Instruction sets, found at run time.
//!
//! An [`Isa`] is a value that only exists when the CPU has the instructions. A kernel is written
//! once, generic over [`Simd`] (vectors of `S::LANES` f32), as a [`Vectorized`] value; [`Isa::run`]
//! compiles it for each set behind one `#[target_feature]` function:
//!
//! ```
//! use plutino_cpu::simd::{Isa, Simd, Vectorized};
//!
//! struct Sum<'a>(&'a [f32]);
//! impl Vectorized for Sum<'_> {
//!     type Output = f32;
//!     #[inline(always)]
//!     fn run<S: Simd>(self, s: S) -> f32 {
//!         let mut acc = s.zero();
//!         let mut chunks = self.0.chunks_exact(S::LANES);
//!         for c in &mut chunks {
//!             acc = s.add(acc, s.load(c));
//!         }
//!         s.sum(s.add(acc, s.load_partial(chunks.remainder())))
//!     }
//! }
//! assert_eq!(Isa::best().run(Sum(&[1.0; 37])), 37.0);
//! ```
//! Everything between [`Vectorized::run`] and the intrinsics is `#[inline(always)]`: only then does
//! the compiler use the instruction set throughout. Where it does not optimise, large bodies stay
//! functions of their own (`cfg_attr(not(unoptimised), inline(always))`): inlined without
//! optimisation, they need megabytes of stack. What they compute is the same; the intrinsics bring
//! their instructions with them.

#[cfg(all(target_arch = "x86_64", feature = "avx2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod avx512;
mod interleaved;
mod pairs;
mod portable;
pub mod unroll;

use plutino_tensor::f16;
use std::sync::OnceLock;

#[cfg(all(target_arch = "x86_64", feature = "avx2"))]
pub use avx2::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub use avx512::Avx512;
pub use interleaved::Interleaved;
pub(crate) use pairs::flushed;
pub use pairs::{Pairs, pair};
pub use portable::Portable;

/// Bytes of a line of cache, of every CPU that has one of the instruction sets.
pub const LINE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Level {
    Portable,
    #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    Avx512,
}

/// An instruction set that this CPU has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa(Level);

impl Isa {
    /// Plain Rust, vectorised by the compiler for the target's baseline. Every CPU has it.
    pub const PORTABLE: Self = Self(Level::Portable);

    /// Every instruction set of this CPU that is compiled in (features `avx2`, `avx512`), the least
    /// first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)] // other architectures and features add nothing
        let mut all = vec![Self::PORTABLE];
        #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
        if avx2::has_avx2() {
            all.push(Self(Level::Avx2));
        }
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if avx512::has_avx512() {
            all.push(Self(Level::Avx512));
        }
        all
    }

    /// The best instruction set of this CPU.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().pop().unwrap_or(Self::PORTABLE))
    }

    /// The instruction set of this name (`scalar`, `avx2`, `avx512`), where the CPU has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|isa| isa.name() == name)
    }

    /// The name: `scalar`, `avx2` or `avx512`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "scalar",
            #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
            Level::Avx2 => "avx2",
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 => "avx512",
        }
    }

    /// f32 elements of one vector: 4, 8 or 16. Also the channel block of the blocked layout.
    pub const fn lanes(self) -> usize {
        match self.0 {
            Level::Portable => Portable::LANES,
            #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
            Level::Avx2 => Avx2::LANES,
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 => <Avx512>::LANES,
        }
    }

    /// Vectors of multiply-adds that a core of this CPU completes in a cycle, for choices between
    /// algorithms: 2, or 1 where it computes vectors of AVX-512 by halves.
    pub fn multiply_adds(self) -> usize {
        match self.0 {
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 if avx512::halves_avx512() => 1,
            _ => 2,
        }
    }

    /// Runs the kernel, compiled for this instruction set.
    #[inline]
    pub fn run<K: Vectorized>(self, kernel: K) -> K::Output {
        match self.0 {
            Level::Portable => kernel.run(Portable),
            #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
            // SAFETY: an `Isa` of this level only exists where the CPU has the instructions.
            Level::Avx2 => unsafe { avx2::run_avx2(kernel) },
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            // SAFETY: as above.
            Level::Avx512 => unsafe { avx512::run_avx512(kernel) },
        }
    }
}

impl Default for Isa {
    fn default() -> Self {
        Self::best()
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A computation that is compiled once for each instruction set.
pub trait Vectorized {
    /// What it returns.
    type Output;
    /// The computation. Implementations say `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// A kernel that is compiled once, however many others call it: see [`Simd::outlined`].
pub struct Outlined<K>(pub K);

impl<K: Vectorized> Vectorized for Outlined<K> {
    type Output = K::Output;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> K::Output {
        s.outlined(self.0)
    }
}

/// Vector operations on f32, as methods of a token that proves that the CPU has them.
///
/// Only what kernels use. Comparisons follow IEEE 754 (false for NaN); `min` and `max` return the
/// second operand when either is NaN, as x86 does.
pub trait Simd: Copy + Send + Sync + 'static {
    /// A vector of [`Simd::LANES`] f32.
    type F32: Copy;
    /// A vector of [`Simd::LANES`] i32.
    type I32: Copy;
    /// The outcome of a comparison, lane by lane.
    type Mask: Copy;
    /// Vectors of half as many lanes, in as many registers, where a CPU may compute them in half
    /// the time; else these.
    type Half: Simd;
    /// f32 in a vector.
    const LANES: usize;
    /// Vector registers of the instruction set: bounds the tile of a microkernel.
    const REGISTERS: usize;
    /// Whether [`Simd::lookup`] and [`Simd::scale`] are an instruction each, so that functions with
    /// tables pay.
    const TABLES: bool = false;
    /// The instruction set.
    fn isa(self) -> Isa;
    /// The token of [`Simd::Half`].
    fn half(self) -> Self::Half;
    /// Half a vector, and zeros in the lanes that it lacks.
    fn widen(self, half: <Self::Half as Simd>::F32) -> Self::F32;
    /// Runs a kernel as a function of its own: its constants and branches stay out of the registers
    /// and the code of a caller that is a tight loop.
    fn outlined<K: Vectorized>(self, kernel: K) -> K::Output;

    /// All lanes 0.
    #[inline(always)]
    fn zero(self) -> Self::F32 {
        self.splat(0.0)
    }
    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F32;
    /// The first [`Simd::LANES`] elements. Panics where there are fewer.
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::F32 {
        assert!(x.len() >= Self::LANES);
        // SAFETY: long enough (asserted).
        unsafe { self.load_ptr(x.as_ptr()) }
    }
    /// All elements of a slice of at most [`Simd::LANES`]; missing lanes are 0.
    #[inline(always)]
    fn load_partial(self, x: &[f32]) -> Self::F32 {
        assert!(x.len() <= Self::LANES);
        // SAFETY: exactly `x.len()` elements are read.
        unsafe { self.load_partial_ptr(x.as_ptr(), x.len()) }
    }
    /// The first `n` elements, at most [`Simd::LANES`]; missing lanes are 0. Fast where all are
    /// there.
    #[inline(always)]
    fn load_up_to(self, x: &[f32], n: usize) -> Self::F32 {
        if n == Self::LANES { self.load(x) } else { self.load_partial(&x[..n]) }
    }
    /// Writes the first `n` lanes, at most all. Fast where it is all.
    #[inline(always)]
    fn store_up_to(self, v: Self::F32, out: &mut [f32], n: usize) {
        if n == Self::LANES {
            self.store(v, out);
        } else {
            self.store_partial(v, &mut out[..n]);
        }
    }
    /// As [`Simd::load_partial`], with `fill` in the missing lanes.
    #[inline(always)]
    fn load_partial_or(self, x: &[f32], fill: f32) -> Self::F32 {
        self.first(self.load_partial(x), x.len(), fill)
    }
    /// The first `n` lanes of `a`, and `fill` in the others.
    #[inline(always)]
    fn first(self, a: Self::F32, n: usize, fill: f32) -> Self::F32 {
        const LANE: [f32; 16] =
            [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
        let inside = self.lt(self.load(&LANE), self.splat(n as f32));
        self.select(inside, a, self.splat(fill))
    }
    /// Writes the first [`Simd::LANES`] elements. Panics where there are fewer.
    #[inline(always)]
    fn store(self, v: Self::F32, out: &mut [f32]) {
        assert!(out.len() >= Self::LANES);
        // SAFETY: long enough (asserted).
        unsafe { self.store_ptr(v, out.as_mut_ptr()) }
    }
    /// Writes all elements of a slice of at most [`Simd::LANES`].
    #[inline(always)]
    fn store_partial(self, v: Self::F32, out: &mut [f32]) {
        assert!(out.len() <= Self::LANES);
        // SAFETY: exactly `out.len()` elements are written.
        unsafe { self.store_partial_ptr(v, out.as_mut_ptr(), out.len()) }
    }
    /// Loads [`Simd::LANES`] elements.
    ///
    /// # Safety
    /// `p` is valid for reads of that many f32. It need not be aligned.
    unsafe fn load_ptr(self, p: *const f32) -> Self::F32;
    /// Loads `n <= LANES` elements; the other lanes are 0.
    ///
    /// # Safety
    /// `p` is valid for reads of `n` f32. It need not be aligned.
    unsafe fn load_partial_ptr(self, p: *const f32, n: usize) -> Self::F32;
    /// Loads [`Simd::LANES`] f16: the same numbers as f32.
    ///
    /// # Safety
    /// `p` is valid for reads of that many f16. It need not be aligned.
    unsafe fn load_f16_ptr(self, p: *const f16) -> Self::F32;
    /// Loads [`Simd::LANES`] i8: the same numbers as f32.
    ///
    /// # Safety
    /// `p` is valid for reads of that many i8.
    unsafe fn load_i8_ptr(self, p: *const i8) -> Self::F32;
    /// Loads [`Simd::LANES`] bytes: the same numbers as integers.
    ///
    /// # Safety
    /// `p` is valid for reads of that many bytes.
    unsafe fn load_u8_ptr(self, p: *const u8) -> Self::I32;
    /// Stores [`Simd::LANES`] elements.
    ///
    /// # Safety
    /// `p` is valid for writes of that many f32.
    unsafe fn store_ptr(self, v: Self::F32, p: *mut f32);
    /// Stores the first `n <= LANES` elements.
    ///
    /// # Safety
    /// `p` is valid for writes of `n` f32.
    unsafe fn store_partial_ptr(self, v: Self::F32, p: *mut f32, n: usize);

    /// a + b
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a - b
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a * b
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a / b
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a * b + c; rounded once where the CPU has FMA.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// The products of [pairs of bf16](Pairs) in each lane, added to c: the upper ones first, each
    /// rounded once, denormals as zero. An instruction where [`Pairs::run`] runs the kernel;
    /// elsewhere slow, or without the rule for denormals.
    #[inline(always)]
    fn dot_pairs(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        pairs::dot_by_fma(self, a, b, c)
    }
    /// The lower numbers of [pairs of bf16](Pairs), as f32.
    #[inline(always)]
    fn lower_bf16(self, pairs: Self::F32) -> Self::F32 {
        self.as_f32(self.shl_i32::<16>(self.as_i32(pairs)))
    }
    /// The upper numbers of [pairs of bf16](Pairs), as f32.
    #[inline(always)]
    fn upper_bf16(self, pairs: Self::F32) -> Self::F32 {
        self.as_f32(self.and_i32(self.as_i32(pairs), self.splat_i32(!0xffff)))
    }
    /// Two vectors of numbers as one of [pairs of bf16](Pairs), in their order: each the nearest,
    /// of two the even one.
    #[inline(always)]
    fn to_pairs(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        pairs::round_to_pairs(self, a, b)
    }
    /// [`Simd::LANES`] bf16 in half as many words, as f32. Panics where there are fewer.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn load_bf16(self, words: &[f32]) -> Self::F32 {
        let words = &words[..Self::LANES / 2];
        // SAFETY: long enough.
        unsafe { self.load_bf16_ptr(words.as_ptr()) }
    }
    /// The same.
    ///
    /// # Safety
    /// `words` is valid for reads of half as many f32 as there are lanes.
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_bf16_ptr(self, words: *const f32) -> Self::F32 {
        // SAFETY: the same (precondition).
        pairs::widen(self, unsafe { self.load_partial_ptr(words, Self::LANES / 2) })
    }
    /// Writes the nearest bf16 of each lane, of two the even one, into half as many words. Panics
    /// where there are fewer.
    #[cfg_attr(not(unoptimised), inline(always))]
    fn store_bf16(self, v: Self::F32, words: &mut [f32]) {
        self.store_partial(self.to_pairs(v, v), &mut words[..Self::LANES / 2]);
    }
    /// The lesser; b when either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The greater; b when either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// Absolute value.
    fn abs(self, a: Self::F32) -> Self::F32;
    /// Square root, correctly rounded.
    fn sqrt(self, a: Self::F32) -> Self::F32;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: Self::F32) -> Self::F32;
    /// Rounds down.
    fn floor(self, a: Self::F32) -> Self::F32;
    /// Rounds up.
    fn ceil(self, a: Self::F32) -> Self::F32;
    /// Rounds toward zero.
    fn trunc(self, a: Self::F32) -> Self::F32;

    /// a < b
    fn lt(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// a <= b
    fn le(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// a == b
    fn eq(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `yes` where the mask holds, else `no`.
    fn select(self, mask: Self::Mask, yes: Self::F32, no: Self::F32) -> Self::F32;

    /// All lanes `x`.
    fn splat_i32(self, x: i32) -> Self::I32;
    /// To integer, rounding to nearest; lanes outside i32 are unspecified.
    fn to_i32(self, a: Self::F32) -> Self::I32;
    /// From integer, rounding to nearest.
    fn to_f32(self, a: Self::I32) -> Self::F32;
    /// The bits of the f32 as integers.
    fn as_i32(self, a: Self::F32) -> Self::I32;
    /// Integers as the bits of f32.
    fn as_f32(self, a: Self::I32) -> Self::F32;
    /// a + b, wrapping.
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// a - b, wrapping.
    fn sub_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bitwise and.
    fn and_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bitwise or.
    fn or_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bitwise exclusive or.
    fn xor_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// a << N
    fn shl_i32<const N: i32>(self, a: Self::I32) -> Self::I32;
    /// a >> N, keeping the sign.
    fn shr_i32<const N: i32>(self, a: Self::I32) -> Self::I32;

    /// The sum of all lanes, pairwise.
    fn sum(self, a: Self::F32) -> f32;
    /// The greatest of all lanes.
    fn max_lane(self, a: Self::F32) -> f32;
    /// The lanes of two vectors in turn, `a0 b0 a1 b1 ...`: the first vector of them, and the
    /// second.
    fn zip(self, a: Self::F32, b: Self::F32) -> [Self::F32; 2];
    /// Lanes of two vectors: where a number is below [`Simd::LANES`] that of `a`, else what is left
    /// of it is that of `b`.
    #[inline(always)]
    fn pick(self, lanes: Self::I32, a: Self::F32, b: Self::F32) -> Self::F32 {
        const MOST: usize = 256;
        const { assert!(2 * Self::LANES <= MOST) };
        let [mut from, mut numbers, mut to] = [[0.0; MOST]; 3];
        self.store(a, &mut from);
        self.store(b, &mut from[Self::LANES..]);
        self.store(self.as_f32(lanes), &mut numbers);
        for (to, number) in to.iter_mut().zip(numbers).take(Self::LANES) {
            *to = from[number.to_bits() as usize % (2 * Self::LANES)];
        }
        self.load(&to)
    }
    /// Lanes of a vector by their numbers, which are below [`Simd::LANES`].
    #[inline(always)]
    fn permute(self, lanes: Self::I32, a: Self::F32) -> Self::F32 {
        self.pick(lanes, a, a)
    }
    /// Elements of a table: those whose numbers are the low four bits of `index`.
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: Self::I32) -> Self::F32 {
        const MOST: usize = 16;
        const { assert!(Self::LANES <= MOST) };
        let mut lanes = [0.0; MOST];
        self.store(self.as_f32(index), &mut lanes);
        for lane in lanes.iter_mut().take(Self::LANES) {
            *lane = table[lane.to_bits() as usize % 16];
        }
        self.load(&lanes)
    }
    /// a 2^n, for an integer n and |n| <= 254; rounded once for an a between 1/2 and 2. With
    /// [`Simd::TABLES`], n may have a fraction, which does not count: it is rounded down.
    #[inline(always)]
    fn scale(self, a: Self::F32, n: Self::F32) -> Self::F32 {
        // Two factors, since 2^n alone may overflow or be denormal. Only the second one rounds.
        const ROUND: f32 = 12_582_912.0; // leaves integers in the low bits
        let n = self.as_i32(self.add(n, self.splat(ROUND)));
        let n = self.sub_i32(n, self.as_i32(self.splat(ROUND)));
        let half = self.shr_i32::<1>(n);
        let bias = self.splat_i32(127);
        let first = self.shl_i32::<23>(self.add_i32(half, bias));
        let second = self.shl_i32::<23>(self.add_i32(self.sub_i32(n, half), bias));
        self.mul(self.mul(a, self.as_f32(first)), self.as_f32(second))
    }
    /// Transposes eight columns of up to eight rows: `dst[k * dst_stride + i] = src[i *
    /// src_stride + k]` for `i < rows`, `k < 8`. Eight elements are written for each k, in
    /// ascending order of k; those from `rows` on may become anything.
    ///
    /// # Safety
    /// `rows <= 8`; `src`, which need not be aligned, is valid for reads of 8 elements in each row,
    /// `dst` for writes of `7 * dst_stride + 8` elements.
    #[inline(always)]
    unsafe fn transpose_8(
        self,
        rows: usize,
        src: *const f32,
        src_stride: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        for k in 0..8 {
            for i in 0..rows {
                // SAFETY: both are valid (precondition).
                unsafe {
                    *dst.add(k * dst_stride + i) = src.add(i * src_stride + k).read_unaligned();
                }
            }
        }
    }
    /// Asks the cache for the line at `p`. Any address will do.
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        let _ = p;
    }
    /// Asks the second-level cache for the line at `p`. Any address will do.
    #[inline(always)]
    fn prefetch_l2(self, p: *const f32) {
        let _ = p;
    }
    /// Asks for a line of the weights that come next, while others are multiplied with this many
    /// rows (or pixels).
    #[inline(always)]
    fn prefetch_next(self, p: *const f32, rows: usize) {
        // A line of weights lasts about as many cycles as there are rows. Into the first level it
        // comes with less trouble, but one every 20 cycles or so is more than that has places for
        // lines on their way from memory.
        if rows >= 24 { self.prefetch(p) } else { self.prefetch_l2(p) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Transpose<'a> {
        rows: usize,
        src: &'a [f32],
        strides: (usize, usize),
        dst: &'a mut [f32],
    }

    impl Vectorized for Transpose<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Self { rows, src, strides, dst } = self;
            assert!(rows >= 1 && src.len() >= (rows - 1) * strides.0 + 8);
            assert!(dst.len() >= 7 * strides.1 + 8);
            // SAFETY: both are long enough (asserted).
            unsafe { s.transpose_8(rows, src.as_ptr(), strides.0, dst.as_mut_ptr(), strides.1) }
        }
    }

    #[test]
    fn rows_become_columns() {
        for isa in Isa::available() {
            for rows in 1..=8 {
                for strides in [(8, 8), (11, 6), (9, 12)] {
                    let src: Vec<f32> = (0..(rows - 1) * strides.0 + 8).map(|i| i as f32).collect();
                    let mut dst = vec![-1.0; 7 * strides.1 + 8];
                    isa.run(Transpose { rows, src: &src, strides, dst: &mut dst });
                    for k in 0..8 {
                        for i in 0..rows.min(strides.1) {
                            let found = dst[k * strides.1 + i];
                            assert_eq!(found, src[i * strides.0 + k], "{isa}, {rows}, {strides:?}");
                        }
                    }
                }
            }
        }
    }

    struct Zip<'a>(&'a [f32], &'a mut [f32]);

    impl Vectorized for Zip<'_> {
        type Output = usize;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> usize {
            let [first, second] = s.zip(s.load(self.0), s.load(&self.0[S::LANES..]));
            s.store(first, self.1);
            s.store(second, &mut self.1[S::LANES..]);
            S::LANES
        }
    }

    #[test]
    fn lanes_take_turns() {
        let src: [f32; 32] = std::array::from_fn(|i| i as f32);
        for isa in Isa::available() {
            let mut dst = [0.0; 32];
            let lanes = isa.run(Zip(&src, &mut dst));
            for i in 0..lanes {
                assert_eq!([dst[2 * i], dst[2 * i + 1]], [src[i], src[lanes + i]], "{isa}");
            }
        }
    }

    struct Lookup<'a>(&'a [f32; 16], &'a [f32], &'a mut [f32]);

    impl Vectorized for Lookup<'_> {
        type Output = usize;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> usize {
            let s = Interleaved::<S, 2>(s);
            s.store(s.lookup(self.0, s.as_i32(s.load(self.1))), self.2);
            2 * S::LANES
        }
    }

    #[test]
    fn low_bits_are_looked_up() {
        let table: [f32; 16] = std::array::from_fn(|i| i as f32);
        let index: [u32; 32] = std::array::from_fn(|i| (i as u32).wrapping_mul(0x9e37_79b9));
        for isa in Isa::available() {
            let mut dst = [0.0; 32];
            let lanes = isa.run(Lookup(&table, &index.map(f32::from_bits), &mut dst));
            for i in 0..lanes {
                assert_eq!(dst[i], (index[i] % 16) as f32, "{isa}");
            }
        }
    }

    struct Scale<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

    impl Vectorized for Scale<'_> {
        type Output = usize;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> usize {
            let s = Interleaved::<S, 2>(s);
            let n = s.load(self.1);
            let n = if S::TABLES { n } else { s.floor(n) };
            s.store(s.scale(s.load(self.0), n), self.2);
            2 * S::LANES
        }
    }

    #[test]
    fn exponents_are_added() {
        for isa in Isa::available() {
            for first in -254i16..254 {
                let n: [f32; 32] = std::array::from_fn(|i| f32::from(first) + i as f32 / 32.0);
                for a in [0.5, 1.234_567_8, 1.999_999_9, f32::NAN] {
                    let mut y = [0.0; 32];
                    let lanes = isa.run(Scale(&[a; 32], &n, &mut y));
                    let exact = (f64::from(a) * f64::from(first).exp2()) as f32;
                    for &y in &y[..lanes] {
                        assert!(y == exact || (y.is_nan() && a.is_nan()), "{isa} {a} 2^{first}");
                    }
                }
            }
        }
    }

    struct Pick<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

    impl Vectorized for Pick<'_> {
        type Output = usize;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> usize {
            let [a, b] = [s.load(self.0), s.load(&self.0[S::LANES..])];
            s.store(s.pick(s.as_i32(s.load(self.1)), a, b), self.2);
            S::LANES
        }
    }

    #[test]
    fn lanes_are_picked() {
        let src: [f32; 32] = std::array::from_fn(|i| i as f32);
        for isa in Isa::available() {
            let numbers: [u32; 16] =
                std::array::from_fn(|i| (7 * i + 3) as u32 % (2 * isa.lanes()) as u32);
            let mut dst = [0.0; 16];
            let lanes = isa.run(Pick(&src, &numbers.map(f32::from_bits), &mut dst));
            for i in 0..lanes {
                assert_eq!(dst[i], src[numbers[i] as usize], "{isa}");
            }
        }
    }
}

//! AVX2 with FMA and F16C.
//!
//! Every method is one or two intrinsics. They are safe because a token only exists behind
//! [`super::Isa`], which checks CPUID, and because each is inlined into a `#[target_feature]`
//! function.

use super::{Isa, Level, Simd, Vectorized};
use plutino_tensor::f16;
use std::arch::x86_64::*;

/// AVX2, FMA and F16C: 16 registers of 8 f32. Only [`Isa::run`] makes one.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(pub(super) ());

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// # Safety
/// [`has_avx2`] holds.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run_avx2<K: Vectorized>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// # Safety
/// As [`run_avx2`].
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn outlined_avx2<K: Vectorized>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Methods that are one intrinsic of their arguments.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $body:expr;)*) => {$(
        #[cfg_attr(not(unoptimised), inline(always))]
        fn $name(self, $($arg: $ty),*) -> $ret {
            // SAFETY: the token proves that the CPU has the instruction.
            unsafe { $body }
        }
    )*};
}

#[cfg(feature = "avx512")]
pub(super) use intrinsics;

/// Lane `i` of the result is set where `i < n`: slide this window over it.
static TAIL: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

impl Avx2 {
    #[inline(always)]
    fn tail(self, n: usize) -> __m256i {
        let n = n.min(8);
        // SAFETY: 8 - n + 8 <= 16 elements; the token proves AVX.
        unsafe { _mm256_loadu_si256(TAIL.as_ptr().add(8 - n).cast()) }
    }
}

/// [`Simd::transpose_8`] in eight registers: pairs, then quads of rows are interleaved, then halves
/// swapped.
///
/// # Safety
/// As [`Simd::transpose_8`], and the CPU has AVX.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // the indices are those of the shuffles
pub(super) unsafe fn transpose_8(
    rows: usize,
    src: *const f32,
    src_stride: usize,
    dst: *mut f32,
    dst_stride: usize,
) {
    // SAFETY: the preconditions are those of the loads and stores.
    unsafe {
        let mut r = [_mm256_setzero_ps(); 8];
        for i in 0..8 {
            if i < rows {
                r[i] = _mm256_loadu_ps(src.add(i * src_stride));
            }
        }
        let mut pairs = [_mm256_setzero_ps(); 8];
        for i in 0..4 {
            pairs[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            pairs[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        let mut quads = [_mm256_setzero_ps(); 8]; // of rows 0 to 3, then of rows 4 to 7
        for half in 0..2 {
            let at = 4 * half;
            quads[at] = _mm256_shuffle_ps::<0x44>(pairs[at], pairs[at + 2]);
            quads[at + 1] = _mm256_shuffle_ps::<0xee>(pairs[at], pairs[at + 2]);
            quads[at + 2] = _mm256_shuffle_ps::<0x44>(pairs[at + 1], pairs[at + 3]);
            quads[at + 3] = _mm256_shuffle_ps::<0xee>(pairs[at + 1], pairs[at + 3]);
        }
        for k in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(quads[k], quads[k + 4]);
            _mm256_storeu_ps(dst.add(k * dst_stride), low);
        }
        for k in 0..4 {
            let high = _mm256_permute2f128_ps::<0x31>(quads[k], quads[k + 4]);
            _mm256_storeu_ps(dst.add((k + 4) * dst_stride), high);
        }
    }
}

impl Simd for Avx2 {
    type F32 = __m256;
    type I32 = __m256i;
    type Mask = __m256;
    type Half = Self;
    const LANES: usize = 8;
    const REGISTERS: usize = 16;

    fn isa(self) -> Isa {
        Isa(Level::Avx2)
    }
    #[inline(always)]
    fn half(self) -> Self {
        self
    }
    #[inline(always)]
    fn widen(self, half: Self::F32) -> Self::F32 {
        half
    }
    #[inline(always)]
    fn outlined<K: Vectorized>(self, kernel: K) -> K::Output {
        // SAFETY: a token of this type only exists where the CPU has the instructions.
        unsafe { outlined_avx2(kernel) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_ptr(self, p: *const f32) -> __m256 {
        // SAFETY: precondition of the method.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_f16_ptr(self, p: *const f16) -> __m256 {
        // SAFETY: precondition of the method.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_i8_ptr(self, p: *const i8) -> __m256 {
        // SAFETY: precondition of the method: eight bytes.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_u8_ptr(self, p: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    fn lookup(self, table: &[f32; 16], index: __m256i) -> __m256 {
        // A permutation looks at three bits; the fourth one, as the sign, decides between two.
        let [lower, upper] = [self.load(&table[..8]), self.load(&table[8..])];
        // SAFETY: the token proves AVX2.
        unsafe {
            let lower = _mm256_permutevar8x32_ps(lower, index);
            let upper = _mm256_permutevar8x32_ps(upper, index);
            let fourth = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
            _mm256_blendv_ps(lower, upper, fourth)
        }
    }
    #[inline(always)]
    unsafe fn load_partial_ptr(self, p: *const f32, n: usize) -> __m256 {
        // SAFETY: lanes from n on are masked off and not read.
        unsafe { _mm256_maskload_ps(p, self.tail(n)) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn store_ptr(self, v: __m256, p: *mut f32) {
        // SAFETY: precondition of the method.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn store_partial_ptr(self, v: __m256, p: *mut f32, n: usize) {
        // SAFETY: lanes from n on are masked off and not written.
        unsafe { _mm256_maskstore_ps(p, self.tail(n), v) }
    }
    intrinsics! {
        splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        abs(a: __m256) -> __m256 = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        sqrt(a: __m256) -> __m256 = _mm256_sqrt_ps(a);
        round(a: __m256) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        floor(a: __m256) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a);
        ceil(a: __m256) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(a);
        trunc(a: __m256) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a);
        lt(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
        le(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_LE_OQ>(a, b);
        eq(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
        select(mask: __m256, yes: __m256, no: __m256) -> __m256 = _mm256_blendv_ps(no, yes, mask);
        splat_i32(x: i32) -> __m256i = _mm256_set1_epi32(x);
        to_i32(a: __m256) -> __m256i = _mm256_cvtps_epi32(a);
        to_f32(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
        as_i32(a: __m256) -> __m256i = _mm256_castps_si256(a);
        as_f32(a: __m256i) -> __m256 = _mm256_castsi256_ps(a);
        add_i32(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        sub_i32(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b);
        and_i32(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        or_i32(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        xor_i32(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
        sum(a: __m256) -> f32 = {
            let x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
        };
        max_lane(a: __m256) -> f32 = {
            let x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
        };
        pick(lanes: __m256i, a: __m256, b: __m256) -> __m256 = {
            // Both look at the lowest three bits; the fourth, as a sign, says which of them is
            // meant.
            let [a, b] = [_mm256_permutevar8x32_ps(a, lanes), _mm256_permutevar8x32_ps(b, lanes)];
            _mm256_blendv_ps(a, b, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(lanes)))
        };
        permute(lanes: __m256i, a: __m256) -> __m256 = _mm256_permutevar8x32_ps(a, lanes);
        zip(a: __m256, b: __m256) -> [__m256; 2] = {
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)); // in each half
            [_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high)]
        };
        prefetch(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
        prefetch_l2(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_T1>(p.cast());
    }
    #[inline(always)]
    unsafe fn transpose_8(
        self,
        rows: usize,
        src: *const f32,
        src_stride: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        // SAFETY: precondition of the method; the token proves AVX.
        unsafe { transpose_8(rows, src, src_stride, dst, dst_stride) }
    }
    #[inline(always)]
    fn shl_i32<const N: i32>(self, a: __m256i) -> __m256i {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    fn shr_i32<const N: i32>(self, a: __m256i) -> __m256i {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_srai_epi32::<N>(a) }
    }
}

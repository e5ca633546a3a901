//! AVX-512 (F, BW, DQ, VL), as `avx2.rs` has AVX2.

use super::avx2::{Avx2, has_avx2, intrinsics, transpose_8};
use super::pairs::{dot_by_fma, round_to_pairs};
use super::{Isa, Level, Simd, Vectorized};
use plutino_tensor::f16;
use std::arch::x86_64::*;
use std::mem::transmute;
use std::sync::OnceLock;

/// AVX-512 F, BW, DQ and VL: 32 registers of 16 f32; with `BF16` its instructions for pairs of bf16
/// as well. Only [`Isa::run`] and [`Pairs::run`](super::Pairs::run) make one.
#[derive(Clone, Copy, Debug)]
pub struct Avx512<const BF16: bool = false>(());

pub(super) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// Whether pairs of bf16 are multiplied: AVX512_BF16.
pub(super) fn has_bf16() -> bool {
    has_avx512() && is_x86_feature_detected!("avx512bf16")
}

/// Whether AMD made this CPU.
pub(super) fn is_amd() -> bool {
    static AMD: OnceLock<bool> = OnceLock::new();
    *AMD.get_or_init(|| {
        let vendor = cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
    })
}

/// Whether this is a CPU of AMD's family 19h (Zen 4), whose units are 256 bits wide. ("Software
/// Optimization Guide for the AMD Zen4 Microarchitecture", 57647, section 2.11.)
pub(super) fn halves_avx512() -> bool {
    static HALVES: OnceLock<bool> = OnceLock::new();
    *HALVES.get_or_init(|| {
        let version = cpuid(1).eax;
        // The family, and what is added to it where it is 15.
        let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
        is_amd() && family == 0x19
    })
}

/// The instruction of this name. Newer compilers know that it is safe, older ones do not.
#[allow(unused_unsafe)]
fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every CPU of this architecture has it.
    unsafe { __cpuid(leaf) }
}

/// # Safety
/// [`has_avx512`] holds.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn run_avx512<K: Vectorized>(kernel: K) -> K::Output {
    kernel.run(Avx512::<false>(()))
}

/// # Safety
/// As [`run_avx512`].
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn outlined_avx512<K: Vectorized>(kernel: K) -> K::Output {
    kernel.run(Avx512::<false>(()))
}

/// # Safety
/// [`has_bf16`] holds.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn run_avx512_bf16<K: Vectorized>(kernel: K) -> K::Output {
    kernel.run(Avx512::<true>(()))
}

/// # Safety
/// As [`run_avx512_bf16`].
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn outlined_avx512_bf16<K: Vectorized>(kernel: K) -> K::Output {
    kernel.run(Avx512::<true>(()))
}

impl<const BF16: bool> Avx512<BF16> {
    #[inline(always)]
    fn tail(self, n: usize) -> __mmask16 {
        ((1u32 << n.min(16)) - 1) as __mmask16
    }
}

impl<const BF16: bool> Simd for Avx512<BF16> {
    type F32 = __m512;
    type I32 = __m512i;
    type Mask = __mmask16;
    type Half = Avx2;
    const LANES: usize = 16;
    const REGISTERS: usize = 32;
    const TABLES: bool = true;

    fn isa(self) -> Isa {
        Isa(Level::Avx512)
    }
    /// Inlined into a function with AVX-512, its methods use all 32 registers.
    #[inline(always)]
    fn half(self) -> Avx2 {
        Avx2(())
    }
    #[inline(always)]
    fn outlined<K: Vectorized>(self, kernel: K) -> K::Output {
        // SAFETY: a token of this type only exists where the CPU has the instructions.
        unsafe {
            if const { BF16 } { outlined_avx512_bf16(kernel) } else { outlined_avx512(kernel) }
        }
    }
    #[inline(always)]
    fn dot_pairs(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512, and with `BF16` that instruction.
        unsafe {
            if const { BF16 } {
                return _mm512_dpbf16_ps(
                    c,
                    transmute::<__m512, __m512bh>(a),
                    transmute::<__m512, __m512bh>(b),
                );
            }
            dot_by_fma(self, a, b, c)
        }
    }
    #[inline(always)]
    fn to_pairs(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above. The second operand is the lower half of the result.
        unsafe {
            if const { BF16 } {
                return transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(b, a));
            }
            round_to_pairs(self, a, b)
        }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_bf16_ptr(self, words: *const f32) -> __m512 {
        // SAFETY: precondition of the method; the token proves AVX-512.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(words.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    fn store_bf16(self, v: __m512, words: &mut [f32]) {
        let words = &mut words[..8];
        // SAFETY: as for the products; the words are there.
        unsafe {
            let narrow = match const { BF16 } {
                true => transmute::<__m256bh, __m256>(_mm512_cvtneps_pbh(v)),
                false => _mm512_castps512_ps256(round_to_pairs(self, v, v)),
            };
            _mm256_storeu_ps(words.as_mut_ptr(), narrow);
        }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_ptr(self, p: *const f32) -> __m512 {
        // SAFETY: precondition of the method.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_f16_ptr(self, p: *const f16) -> __m512 {
        // SAFETY: precondition of the method.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_i8_ptr(self, p: *const i8) -> __m512 {
        // SAFETY: precondition of the method: 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn load_u8_ptr(self, p: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_partial_ptr(self, p: *const f32, n: usize) -> __m512 {
        // SAFETY: lanes from n on are masked off and not read.
        unsafe { _mm512_maskz_loadu_ps(self.tail(n), p) }
    }
    #[cfg_attr(not(unoptimised), inline(always))]
    unsafe fn store_ptr(self, v: __m512, p: *mut f32) {
        // SAFETY: precondition of the method.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn store_partial_ptr(self, v: __m512, p: *mut f32, n: usize) {
        // SAFETY: lanes from n on are masked off and not written.
        unsafe { _mm512_mask_storeu_ps(p, self.tail(n), v) }
    }
    intrinsics! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps(a);
        round(a: __m512) -> __m512 = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        floor(a: __m512) -> __m512 = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a);
        ceil(a: __m512) -> __m512 = _mm512_roundscale_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(a);
        trunc(a: __m512) -> __m512 = _mm512_roundscale_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a);
        lt(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        le(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b);
        eq(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
        select(mask: __mmask16, yes: __m512, no: __m512) -> __m512 = _mm512_mask_blend_ps(mask, no, yes);
        splat_i32(x: i32) -> __m512i = _mm512_set1_epi32(x);
        to_i32(a: __m512) -> __m512i = _mm512_cvtps_epi32(a);
        to_f32(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
        as_i32(a: __m512) -> __m512i = _mm512_castps_si512(a);
        as_f32(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);
        add_i32(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        sub_i32(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        and_i32(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        or_i32(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        xor_i32(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        sum(a: __m512) -> f32 = _mm512_reduce_add_ps(a);
        max_lane(a: __m512) -> f32 = _mm512_reduce_max_ps(a);
        pick(lanes: __m512i, a: __m512, b: __m512) -> __m512 = _mm512_permutex2var_ps(a, lanes, b);
        permute(lanes: __m512i, a: __m512) -> __m512 = _mm512_permutexvar_ps(lanes, a);
        scale(a: __m512, n: __m512) -> __m512 = _mm512_scalef_ps(a, n);
        widen(half: __m256) -> __m512 = _mm512_zextps256_ps512(half);
        zip(a: __m512, b: __m512) -> [__m512; 2] = {
            // Numbers from 16 on are lanes of the second vector.
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
            [_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b)]
        };
        prefetch(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
        prefetch_l2(p: *const f32) -> () = _mm_prefetch::<_MM_HINT_T1>(p.cast());
    }
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: __m512i) -> __m512 {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm512_permutexvar_ps(index, self.load(table)) }
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
    fn shl_i32<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(N)) }
    }
    #[inline(always)]
    fn shr_i32<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm512_sra_epi32(a, _mm_cvtsi32_si128(N)) }
    }
}

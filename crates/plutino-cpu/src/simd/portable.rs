//! The instruction set that every CPU has: arrays that the compiler vectorises as far as it can.

use super::{Isa, Simd, Vectorized};
use crate::halves::Half;
use plutino_tensor::f16;

/// Four f32 in plain Rust.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

type V = [f32; 4];
type I = [i32; 4];

// Lane by lane, not in loops: thousands of them in one kernel take minutes to unroll.

#[inline(always)]
fn map<A: Copy, R>(a: [A; 4], f: impl Fn(A) -> R) -> [R; 4] {
    [f(a[0]), f(a[1]), f(a[2]), f(a[3])]
}

#[inline(always)]
fn zip<A: Copy, B: Copy, R>(a: [A; 4], b: [B; 4], f: impl Fn(A, B) -> R) -> [R; 4] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

#[inline(always)]
fn zip3<A: Copy, B: Copy, R>(a: [A; 4], b: [B; 4], c: [B; 4], f: impl Fn(A, B, B) -> R) -> [R; 4] {
    [f(a[0], b[0], c[0]), f(a[1], b[1], c[1]), f(a[2], b[2], c[2]), f(a[3], b[3], c[3])]
}

impl Simd for Portable {
    type F32 = V;
    type I32 = I;
    type Mask = [bool; 4];
    type Half = Self;
    const LANES: usize = 4;
    const REGISTERS: usize = 16;

    fn isa(self) -> Isa {
        Isa::PORTABLE
    }
    #[inline(always)]
    fn half(self) -> Self {
        self
    }
    #[inline(always)]
    fn widen(self, half: Self::F32) -> Self::F32 {
        half
    }
    #[inline(never)]
    fn outlined<K: Vectorized>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x, x, x, x]
    }
    #[inline(always)]
    unsafe fn load_ptr(self, p: *const f32) -> V {
        // SAFETY: valid for four reads (precondition).
        unsafe { p.cast::<V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_partial_ptr(self, p: *const f32, n: usize) -> V {
        // SAFETY: lanes below n are valid for reads (precondition).
        map([0, 1, 2, 3], |i| if i < n { unsafe { p.add(i).read_unaligned() } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn load_f16_ptr(self, p: *const f16) -> V {
        // SAFETY: as above.
        map(unsafe { p.cast::<[f16; 4]>().read_unaligned() }, Half::to_single)
    }
    #[inline(always)]
    unsafe fn load_i8_ptr(self, p: *const i8) -> V {
        // SAFETY: as above.
        map(unsafe { p.cast::<[i8; 4]>().read() }, f32::from)
    }
    #[inline(always)]
    unsafe fn load_u8_ptr(self, p: *const u8) -> I {
        // SAFETY: as above.
        unsafe { p.cast::<[u8; 4]>().read() }.map(i32::from)
    }
    #[inline(always)]
    unsafe fn store_ptr(self, v: V, p: *mut f32) {
        // SAFETY: valid for four writes (precondition).
        unsafe { *p.cast::<V>() = v }
    }
    #[inline(always)]
    unsafe fn store_partial_ptr(self, v: V, p: *mut f32, n: usize) {
        zip(v, [0, 1, 2, 3], |x, i| {
            if i < n {
                // SAFETY: lanes below n are valid for writes (precondition).
                unsafe { *p.add(i) = x }
            }
        });
    }
    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x * y)
    }
    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x / y)
    }
    #[inline(always)]
    fn dot_pairs(self, a: V, b: V, c: V) -> V {
        super::pairs::dot_words(a, b, c)
    }
    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        zip3(a, b, c, |x, y, z| x * y + z) // f32::mul_add is a library call on the baseline
    }
    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    fn abs(self, a: V) -> V {
        map(a, f32::abs)
    }
    #[inline(always)]
    fn sqrt(self, a: V) -> V {
        map(a, f32::sqrt)
    }
    #[inline(always)]
    fn round(self, a: V) -> V {
        map(a, f32::round_ties_even)
    }
    #[inline(always)]
    fn floor(self, a: V) -> V {
        map(a, f32::floor)
    }
    #[inline(always)]
    fn ceil(self, a: V) -> V {
        map(a, f32::ceil)
    }
    #[inline(always)]
    fn trunc(self, a: V) -> V {
        map(a, f32::trunc)
    }
    #[inline(always)]
    fn lt(self, a: V, b: V) -> [bool; 4] {
        zip(a, b, |x, y| x < y)
    }
    #[inline(always)]
    fn le(self, a: V, b: V) -> [bool; 4] {
        zip(a, b, |x, y| x <= y)
    }
    #[inline(always)]
    #[allow(clippy::float_cmp)] // lane-wise IEEE equality is what is asked for
    fn eq(self, a: V, b: V) -> [bool; 4] {
        zip(a, b, |x, y| x == y)
    }
    #[inline(always)]
    fn select(self, mask: [bool; 4], yes: V, no: V) -> V {
        zip3(mask, yes, no, |mask, yes, no| if mask { yes } else { no })
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> I {
        [x, x, x, x]
    }
    #[inline(always)]
    fn to_i32(self, a: V) -> I {
        map(a, |x| x.round_ties_even() as i32)
    }
    #[inline(always)]
    fn to_f32(self, a: I) -> V {
        map(a, |x| x as f32)
    }
    #[inline(always)]
    fn as_i32(self, a: V) -> I {
        map(a, |x| x.to_bits().cast_signed())
    }
    #[inline(always)]
    fn as_f32(self, a: I) -> V {
        map(a, |x| f32::from_bits(x.cast_unsigned()))
    }
    #[inline(always)]
    fn add_i32(self, a: I, b: I) -> I {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn sub_i32(self, a: I, b: I) -> I {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn and_i32(self, a: I, b: I) -> I {
        zip(a, b, |x, y| x & y)
    }
    #[inline(always)]
    fn or_i32(self, a: I, b: I) -> I {
        zip(a, b, |x, y| x | y)
    }
    #[inline(always)]
    fn xor_i32(self, a: I, b: I) -> I {
        zip(a, b, |x, y| x ^ y)
    }
    #[inline(always)]
    fn shl_i32<const N: i32>(self, a: I) -> I {
        map(a, |x| x << N)
    }
    #[inline(always)]
    fn shr_i32<const N: i32>(self, a: I) -> I {
        map(a, |x| x >> N)
    }
    #[inline(always)]
    fn zip(self, a: V, b: V) -> [V; 2] {
        [[a[0], b[0], a[1], b[1]], [a[2], b[2], a[3], b[3]]]
    }
    #[inline(always)]
    fn sum(self, a: V) -> f32 {
        (a[0] + a[2]) + (a[1] + a[3])
    }
    #[inline(always)]
    fn max_lane(self, a: V) -> f32 {
        a[0].max(a[2]).max(a[1].max(a[3]))
    }
}

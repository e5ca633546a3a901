//! Several vectors as one, so that a long chain of dependent operations is written for all of them
//! at once.
//!
//! A function like e^x is twenty instructions, each of which waits for the one before. A CPU runs
//! several such chains side by side only if they fit its scheduler together; written one after the
//! other they do not. Here each operation comes N times in a row.

use super::unroll::array;
use super::{Isa, Simd, Vectorized};
use plutino_tensor::f16;

/// N vectors of S.
#[derive(Clone, Copy, Debug)]
pub struct Interleaved<S, const N: usize>(pub S);

macro_rules! methods {
    ($($name:ident($($arg:ident: $ty:ident),+) -> $out:ident;)+) => {
        $(#[cfg_attr(not(unoptimised), inline(always))]
        fn $name(self, $($arg: Self::$ty),+) -> Self::$out {
            array!(N, |I| self.0.$name($($arg[I]),+))
        })+
    };
}

#[allow(clippy::needless_range_loop)] // an iterator over vectors might not be inlined
impl<S: Simd, const N: usize> Simd for Interleaved<S, N> {
    type F32 = [S::F32; N];
    type I32 = [S::I32; N];
    type Mask = [S::Mask; N];
    type Half = Self;
    const LANES: usize = N * S::LANES;
    const REGISTERS: usize = S::REGISTERS / N;
    const TABLES: bool = S::TABLES;

    fn isa(self) -> Isa {
        self.0.isa()
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
        self.0.outlined(kernel)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F32 {
        let x = self.0.splat(x);
        array!(N, |I| x)
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I32 {
        let x = self.0.splat_i32(x);
        array!(N, |I| x)
    }
    #[inline(always)]
    fn first(self, a: Self::F32, n: usize, fill: f32) -> Self::F32 {
        array!(N, |I| self.0.first(a[I], n.saturating_sub(I * S::LANES).min(S::LANES), fill))
    }
    #[inline(always)]
    unsafe fn load_ptr(self, p: *const f32) -> Self::F32 {
        // SAFETY: `p` is valid for N times as many elements (precondition).
        array!(N, |I| unsafe { self.0.load_ptr(p.add(I * S::LANES)) })
    }
    #[inline(always)]
    unsafe fn load_f16_ptr(self, p: *const f16) -> Self::F32 {
        // SAFETY: as in `load_ptr`.
        array!(N, |I| unsafe { self.0.load_f16_ptr(p.add(I * S::LANES)) })
    }
    #[inline(always)]
    unsafe fn load_i8_ptr(self, p: *const i8) -> Self::F32 {
        // SAFETY: as in `load_ptr`.
        array!(N, |I| unsafe { self.0.load_i8_ptr(p.add(I * S::LANES)) })
    }
    #[inline(always)]
    unsafe fn load_u8_ptr(self, p: *const u8) -> Self::I32 {
        // SAFETY: as in `load_ptr`.
        array!(N, |I| unsafe { self.0.load_u8_ptr(p.add(I * S::LANES)) })
    }
    #[inline(always)]
    unsafe fn load_partial_ptr(self, p: *const f32, n: usize) -> Self::F32 {
        array!(N, |I| {
            let n = n.saturating_sub(I * S::LANES).min(S::LANES);
            // SAFETY: the first `n` elements are there (precondition); where none is left, none is
            // read.
            unsafe { self.0.load_partial_ptr(p.wrapping_add(I * S::LANES), n) }
        })
    }
    #[inline(always)]
    unsafe fn store_ptr(self, v: Self::F32, p: *mut f32) {
        for i in 0..N {
            // SAFETY: as in `load_ptr`.
            unsafe { self.0.store_ptr(v[i], p.add(i * S::LANES)) };
        }
    }
    #[inline(always)]
    unsafe fn store_partial_ptr(self, v: Self::F32, p: *mut f32, n: usize) {
        for i in 0..N {
            let n = n.saturating_sub(i * S::LANES).min(S::LANES);
            // SAFETY: as in `load_partial_ptr`.
            unsafe { self.0.store_partial_ptr(v[i], p.wrapping_add(i * S::LANES), n) };
        }
    }

    methods! {
        add(a: F32, b: F32) -> F32;
        sub(a: F32, b: F32) -> F32;
        mul(a: F32, b: F32) -> F32;
        div(a: F32, b: F32) -> F32;
        fma(a: F32, b: F32, c: F32) -> F32;
        min(a: F32, b: F32) -> F32;
        max(a: F32, b: F32) -> F32;
        abs(a: F32) -> F32;
        sqrt(a: F32) -> F32;
        round(a: F32) -> F32;
        floor(a: F32) -> F32;
        ceil(a: F32) -> F32;
        trunc(a: F32) -> F32;
        lt(a: F32, b: F32) -> Mask;
        le(a: F32, b: F32) -> Mask;
        eq(a: F32, b: F32) -> Mask;
        select(mask: Mask, yes: F32, no: F32) -> F32;
        to_i32(a: F32) -> I32;
        to_f32(a: I32) -> F32;
        as_i32(a: F32) -> I32;
        as_f32(a: I32) -> F32;
        add_i32(a: I32, b: I32) -> I32;
        sub_i32(a: I32, b: I32) -> I32;
        and_i32(a: I32, b: I32) -> I32;
        or_i32(a: I32, b: I32) -> I32;
        xor_i32(a: I32, b: I32) -> I32;
        scale(a: F32, n: F32) -> F32;
    }
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: Self::I32) -> Self::F32 {
        array!(N, |I| self.0.lookup(table, index[I]))
    }
    #[inline(always)]
    fn shl_i32<const BITS: i32>(self, a: Self::I32) -> Self::I32 {
        array!(N, |I| self.0.shl_i32::<BITS>(a[I]))
    }
    #[inline(always)]
    fn shr_i32<const BITS: i32>(self, a: Self::I32) -> Self::I32 {
        array!(N, |I| self.0.shr_i32::<BITS>(a[I]))
    }
    #[inline(always)]
    fn zip(self, a: Self::F32, b: Self::F32) -> [Self::F32; 2] {
        let pairs = array!(N, |I| self.0.zip(a[I], b[I]));
        [array!(N, |I| pairs[I / 2][I % 2]), array!(N, |I| pairs[(N + I) / 2][(N + I) % 2])]
    }
    #[inline(always)]
    fn sum(self, a: Self::F32) -> f32 {
        let mut sum = a[0];
        for i in 1..N {
            sum = self.0.add(sum, a[i]);
        }
        self.0.sum(sum)
    }
    #[inline(always)]
    fn max_lane(self, a: Self::F32) -> f32 {
        let mut max = a[0];
        for i in 1..N {
            max = self.0.max(max, a[i]);
        }
        self.0.max_lane(max)
    }
}

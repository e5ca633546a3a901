//! Loops over a few vectors, written out.
//!
//! Arrays of vectors live in registers only if each index is a constant before the compiler looks
//! at them. Whether it unrolls a loop soon enough depends on the size of its body, of the loops
//! around it, and on what is called later; and it takes minutes to unroll the thousands of such
//! loops that activations are made of. Closures are no way out: one that is not inlined lacks the
//! instruction set.

use std::mem::MaybeUninit;

/// `$body` for each index from 0 up to the constant `$n`, at most 12 (the most pixels of a register
/// tile); in it, `$i` is a constant. What lies past `$n` is not compiled, but its types are
/// checked: where loops stand inside loops, `at most 6:` or `at most 7:` leaves out what never is.
/// (With 12 for each of the three of a depthwise kernel, checking that crate took 95 s instead of
/// 7.)
///
/// Give `$n` a name, if it stands inside of another loop: that an index is below a constant with a
/// name is found out once in a crate, and that it is below an expression once in each copy of each
/// function (of the matrix products some 260,000 times).
#[macro_export]
macro_rules! unroll {
    ($n:tt, |$i:ident| $body:expr) => {
        $crate::unroll!(@named 12, $n, $i, $body; 0 1 2 3 4 5 6 7 8 9 10 11)
    };
    (at most 6: $n:tt, |$i:ident| $body:expr) => {
        $crate::unroll!(@named 6, $n, $i, $body; 0 1 2 3 4 5)
    };
    (at most 7: $n:tt, |$i:ident| $body:expr) => {
        $crate::unroll!(@named 7, $n, $i, $body; 0 1 2 3 4 5 6)
    };
    (at most 8: $n:tt, |$i:ident| $body:expr) => {
        $crate::unroll!(@named 8, $n, $i, $body; 0 1 2 3 4 5 6 7)
    };
    ($n:expr, |$i:ident| $body:expr) => {{
        const { assert!($n <= 12) };
        $crate::unroll!(@any $n, $i, $body; 0 1 2 3 4 5 6 7 8 9 10 11);
    }};
    (at most 6: $n:expr, |$i:ident| $body:expr) => {{
        const { assert!($n <= 6) };
        $crate::unroll!(@any $n, $i, $body; 0 1 2 3 4 5);
    }};
    (@named $most:literal, $n:tt, $i:ident, $body:expr; $($index:literal)+) => {{
        let () = $crate::simd::unroll::Below::<$n, { $most + 1 }>::SURE;
        $(
            if $crate::simd::unroll::Below::<$index, $n>::IS {
                #[allow(dead_code)] // not every body uses it
                const $i: usize = $index;
                $body;
            }
        )+
    }};
    (@any $n:expr, $i:ident, $body:expr; $($index:literal)+) => {$(
        if const { $index < $n } {
            #[allow(dead_code)] // not every body uses it
            const $i: usize = $index;
            $body;
        }
    )+};
}

/// Whether one constant is below another.
pub struct Below<const I: usize, const N: usize>;

impl<const I: usize, const N: usize> Below<I, N> {
    /// Whether it is.
    pub const IS: bool = I < N;
    /// Nothing compiles where it is not.
    pub const SURE: () = assert!(I < N);
}

/// The array of `$value` for each index: see [`unroll`].
#[macro_export]
macro_rules! array {
    ($n:expr, |$i:ident| $value:expr) => {{
        let mut slots = $crate::simd::unroll::Slots::<_, { $n }>::new();
        $crate::unroll!($n, |$i| slots.set($i, $value));
        // SAFETY: all are set.
        unsafe { slots.filled() }
    }};
}

pub use crate::{array, unroll};

/// An array of N that is filled one by one.
pub struct Slots<T, const N: usize>(MaybeUninit<[T; N]>);

impl<T, const N: usize> Slots<T, N> {
    #[inline(always)]
    /// None is filled.
    #[allow(clippy::new_without_default)] // an empty array is no value
    pub fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    #[inline(always)]
    /// Fills number `i`, where there is one.
    pub fn set(&mut self, i: usize, value: T) {
        if i < N {
            // SAFETY: inside the array (asked).
            unsafe { self.0.as_mut_ptr().cast::<T>().add(i).write(value) };
        }
    }

    /// # Safety
    /// Each of the N is set.
    #[inline(always)]
    pub unsafe fn filled(self) -> [T; N] {
        // SAFETY: the precondition.
        unsafe { self.0.assume_init() }
    }
}

//! The element types in which kernels compute.
//!
//! A kernel's body for "every other dtype" is written once over [`Number`]: it reads an element,
//! widens it, computes there, and narrows the result. Floats widen to f64, integers and bool to i64
//! (wrapping, as PyTorch's sums do), complex numbers to two f64.
//! [`for_numbers!`](crate::for_numbers) and its kin turn a run-time [`DType`] into the type.

#[doc(hidden)] // the names that the macros below expand to
pub use plutino_tensor::{Complex, DType, bf16, f16};

use crate::halves::Half;
use plutino_tensor::Element;

/// The type in which sums and products of a [`Number`] are taken.
pub trait Wide: Copy + PartialEq + Send + Sync + 'static {
    /// The empty sum.
    const ZERO: Self;
    /// The empty product.
    const ONE: Self;
    /// a + b; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// a - b; integers wrap.
    fn minus(self, other: Self) -> Self;
    /// a * b; integers wrap.
    fn times(self, other: Self) -> Self;
    /// a / n; integers truncate, and n = 0 gives 0 for them.
    fn over(self, n: i64) -> Self;
    /// The value as a complex number.
    fn to_complex(self) -> Complex<f64>;
    /// The real part for real types.
    fn of_complex(z: Complex<f64>) -> Self;
}

macro_rules! wide_float {
    ($($t:ty, $zero:expr, $one:expr, $of:expr;)*) => {$(
        impl Wide for $t {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn over(self, n: i64) -> Self {
                self / n as f64
            }
            #[inline(always)]
            fn to_complex(self) -> Complex<f64> {
                self.into()
            }
            #[inline(always)]
            fn of_complex(z: Complex<f64>) -> Self {
                $of(z)
            }
        }
    )*};
}
wide_float! {
    f64, 0.0, 1.0, |z: Complex<f64>| z.re;
    Complex<f64>, Complex::new(0.0, 0.0), Complex::new(1.0, 0.0), |z| z;
}

impl Wide for i64 {
    const ZERO: Self = 0;
    const ONE: Self = 1;
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    #[inline(always)]
    fn over(self, n: i64) -> Self {
        self.checked_div(n).unwrap_or(0)
    }
    #[inline(always)]
    fn to_complex(self) -> Complex<f64> {
        (self as f64).into()
    }
    #[inline(always)]
    fn of_complex(z: Complex<f64>) -> Self {
        z.re as i64
    }
}

/// A [`Wide`] type with an order: f64 or i64.
pub trait WideReal: Wide + PartialOrd {
    /// The nearest f64.
    fn to_f64(self) -> f64;
    /// From f64; integers truncate and saturate.
    fn from_f64(x: f64) -> Self;
    /// See [`Ordered::rank`].
    fn rank(self) -> u64;
}

/// The rank of every NaN.
pub const RANK_OF_NAN: u64 = u64::MAX;

const SIGN: u64 = 1 << 63;

impl WideReal for f64 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn rank(self) -> u64 {
        if self.is_nan() {
            return RANK_OF_NAN;
        }
        let bits = (self + 0.0).to_bits();
        // Negative numbers come before, in the opposite order of their bits.
        if bits & SIGN == 0 { bits | SIGN } else { !bits }
    }
}

impl WideReal for i64 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x as i64
    }
    #[inline(always)]
    fn rank(self) -> u64 {
        self as u64 ^ SIGN
    }
}

/// An element that can be added and multiplied. All thirteen dtypes are.
pub trait Number: Element {
    /// Where its sums and products are taken: f64, i64 or `Complex<f64>`.
    type Wide: Wide;
    /// The same value, wide.
    fn widen(self) -> Self::Wide;
    /// The nearest value of this type; integers wrap, bool is "not zero".
    fn narrow(wide: Self::Wide) -> Self;
    /// A sum of elements, infinite where PyTorch's would be: it adds f16, bf16 and f32 in f32.
    #[inline(always)]
    fn overflow(sum: Self::Wide) -> Self::Wide {
        sum
    }
}

/// A number with an order: every real dtype.
pub trait Ordered: Number<Wide: WideReal> + PartialOrd {
    /// The identity of max: -inf, or the least integer.
    const LOWEST: Self;
    /// The identity of min: +inf, or the greatest integer.
    const HIGHEST: Self;
    /// Whether the value is not a number. Integers never are.
    fn is_nan(self) -> bool;
    /// A number in whose order values stand, the same for all dtypes: whatever sorts, sorts these,
    /// and is compiled once. Equal values (0 and -0 too) have equal ranks, a NaN has the greatest,
    /// [`RANK_OF_NAN`], which is also that of the greatest i64.
    #[inline(always)]
    fn rank(self) -> u64 {
        WideReal::rank(self.widen())
    }

    /// Whether `self` takes the place of `best` as the maximum: it is greater, or the first NaN.
    #[inline(always)] // without branches, so that loops become vectors
    fn beats_as_max(self, best: Self) -> bool {
        (self > best) | (self.is_nan() & !best.is_nan())
    }
    /// Whether `self` takes the place of `best` as the minimum: it is less, or the first NaN.
    #[inline(always)]
    fn beats_as_min(self, best: Self) -> bool {
        (self < best) | (self.is_nan() & !best.is_nan())
    }
}

/// A real floating-point dtype: f32, f64, f16 or bf16.
pub trait Float: Ordered<Wide = f64> {
    /// The precision in which PyTorch computes with elements of this type, which decides on which
    /// side of a pixel's edge a position comes to lie: f64 for f64, else f32.
    type Real: Real;
    /// The same value.
    #[inline(always)]
    fn to_real(self) -> Self::Real {
        Self::Real::nearest(self.widen())
    }
    /// The nearest value of this type.
    #[inline(always)]
    fn from_real(x: Self::Real) -> Self {
        Self::narrow(x.wide())
    }
}

/// f32 or f64: a precision to compute in.
pub trait Real: num_traits::Float + Send + Sync + 'static {
    /// The nearest value.
    fn nearest(x: f64) -> Self;
    /// The same value.
    fn wide(self) -> f64;
}

impl Real for f32 {
    #[inline(always)]
    fn nearest(x: f64) -> Self {
        x as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    #[inline(always)]
    fn nearest(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}

macro_rules! floats {
    ($($t:ty, $real:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Number for $t {
            type Wide = f64;
            #[inline(always)]
            fn widen(self) -> f64 {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(wide: f64) -> Self {
                $narrow(wide)
            }
            #[inline(always)]
            fn overflow(sum: f64) -> f64 {
                let sum_there = sum as $real;
                if sum_there.is_infinite() { f64::from(sum_there) } else { sum }
            }
        }
        impl Ordered for $t {
            const LOWEST: Self = <$t>::NEG_INFINITY;
            const HIGHEST: Self = <$t>::INFINITY;
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
        }
        impl Float for $t {
            type Real = $real;
        }
    )*};
}
floats! {
    f32, f32, f64::from, |x| x as f32;
    f64, f64, |x| x, |x| x;
    f16, f32, |x: f16| f64::from(x.to_single()), f16::from_f64;
    bf16, f32, |x: bf16| f64::from(x.to_single()), bf16::from_f64;
}

macro_rules! integers {
    ($($t:ty, $narrow:expr, $lowest:expr, $highest:expr;)*) => {$(
        impl Number for $t {
            type Wide = i64;
            #[inline(always)]
            fn widen(self) -> i64 {
                i64::from(self)
            }
            #[inline(always)]
            fn narrow(wide: i64) -> Self {
                $narrow(wide)
            }
        }
        impl Ordered for $t {
            const LOWEST: Self = $lowest;
            const HIGHEST: Self = $highest;
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}
integers! {
    i64, |x| x, i64::MIN, i64::MAX;
    i32, |x| x as i32, i32::MIN, i32::MAX;
    i16, |x| x as i16, i16::MIN, i16::MAX;
    i8, |x| x as i8, i8::MIN, i8::MAX;
    u8, |x| x as u8, u8::MIN, u8::MAX;
    bool, |x| x != 0, false, true;
}

macro_rules! complexes {
    ($($t:ty;)*) => {$(
        impl Number for Complex<$t> {
            type Wide = Complex<f64>;
            #[inline(always)]
            fn widen(self) -> Complex<f64> {
                Complex::new(self.re.widen(), self.im.widen())
            }
            #[inline(always)]
            fn narrow(wide: Complex<f64>) -> Self {
                Complex::new(<$t>::narrow(wide.re), <$t>::narrow(wide.im))
            }
        }
    )*};
}
complexes! { f32; f64; f16; }

/// Evaluates an expression with `$T` bound to the Rust type of a dtype, for the four real
/// floating-point dtypes; `_` is evaluated for the rest.
///
/// ```
/// use plutino_cpu::{for_floats, number::Number};
/// use plutino_tensor::DType;
/// let size = for_floats!(DType::F64, T => Some(size_of::<T>()), _ => None);
/// assert_eq!(size, Some(8));
/// ```
#[macro_export]
macro_rules! for_floats {
    ($dtype:expr, $T:ident => $body:expr, _ => $other:expr $(,)?) => {
        $crate::for_types!($dtype, $T => $body, _ => $other; F32 f32, F64 f64, F16 $crate::number::f16,
            Bf16 $crate::number::bf16)
    };
}

/// As [`for_floats!`](crate::for_floats), for the ten dtypes with an order: floats, integers and
/// bool.
#[macro_export]
macro_rules! for_ordered {
    ($dtype:expr, $T:ident => $body:expr, _ => $other:expr $(,)?) => {
        $crate::for_types!($dtype, $T => $body, _ => $other; F32 f32, F64 f64, F16 $crate::number::f16,
            Bf16 $crate::number::bf16, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8, Bool bool)
    };
}

/// As [`for_floats!`](crate::for_floats), for all thirteen dtypes.
#[macro_export]
macro_rules! for_numbers {
    ($dtype:expr, $T:ident => $body:expr $(,)?) => {
        $crate::for_types!($dtype, $T => $body; F32 f32, F64 f64, F16 $crate::number::f16,
            Bf16 $crate::number::bf16, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8, Bool bool,
            C64 $crate::number::Complex<f32>, C128 $crate::number::Complex<f64>,
            C32 $crate::number::Complex<$crate::number::f16>)
    };
}

/// Compiles a generic function in the crate that defines it, for all types of
/// [`for_numbers!`](crate::for_numbers): crates that call it link to that copy, and compile none at
/// a level of their own. The function has to be `#[inline(never)]`: of others the compiler shares
/// no copies between optimised crates.
#[macro_export]
macro_rules! compiled_for_numbers {
    ($name:ident: $function:ident) => {
        #[doc(hidden)]
        #[inline(never)] // not compiled by callers either
        pub fn $name(dtype: $crate::number::DType) -> *const () {
            $crate::for_numbers!(dtype, T => $function::<T> as *const ())
        }
    };
}

/// The match behind [`for_floats!`](crate::for_floats) and its kin.
#[doc(hidden)]
#[macro_export]
macro_rules! for_types {
    ($dtype:expr, $T:ident => $body:expr $(, _ => $other:expr)?; $($variant:ident $t:ty),*) => {
        match $dtype {
            $($crate::number::DType::$variant => {
                #[allow(dead_code)] // a body need not name the type
                type $T = $t;
                $body
            })*
            $(_ => $other,)?
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_stand_in_the_order_of_values() {
        let least = f64::from_bits(1);
        let floats = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -1.0,
            -least,
            0.0,
            least,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        assert!(floats.map(Ordered::rank).is_sorted_by(|a, b| a < b));
        assert_eq!(Ordered::rank(-0.0f32), Ordered::rank(0.0f32));
        for nan in [f32::NAN, -f32::NAN] {
            assert_eq!(Ordered::rank(nan), RANK_OF_NAN);
        }
        assert!(Ordered::rank(f64::INFINITY) < RANK_OF_NAN);
        let integers = [i64::MIN, -2, -1, 0, 1, i64::MAX];
        assert!(integers.map(Ordered::rank).is_sorted_by(|a, b| a < b));
        assert!(Ordered::rank(false) < Ordered::rank(true));
        assert!(Ordered::rank(f16::from_f32(-2.0)) < Ordered::rank(f16::from_f32(-1.0)));
    }

    #[test]
    fn every_dtype_is_a_number_of_its_size() {
        for d in DType::ALL {
            assert_eq!(for_numbers!(d, T => size_of::<T>()), d.size_of());
            let round_trip = for_numbers!(d, T => T::narrow(T::default().widen()) == T::default());
            assert!(round_trip);
        }
        assert!(for_ordered!(DType::C64, T => Some(T::LOWEST.is_nan()), _ => None).is_none());
    }

    #[test]
    fn the_first_nan_is_the_greatest() {
        assert!(f32::NAN.beats_as_max(1.0) && !1.0f32.beats_as_max(f32::NAN));
        assert!(!f32::NAN.beats_as_max(f32::NAN));
        assert!(f16::NAN.beats_as_min(f16::LOWEST));
    }

    #[test]
    fn integer_sums_wrap() {
        assert_eq!(i64::MAX.plus(1), i64::MIN);
        assert_eq!(7i64.over(0), 0);
        assert_eq!(u8::narrow(258), 2);
    }
}

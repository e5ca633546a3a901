//! Conversion between dtypes, as `torch.Tensor.to` does it.

use crate::{DType, Element, Tensor, TensorError, TensorView, for_dtype};
use half::{bf16, f16};
use num_complex::Complex;

/// Conversion of one element to any other element type.
///
/// - float to integer truncates toward zero. Out of range (and NaN), where PyTorch calls the result
///   undefined, it is what PyTorch gives on x86-64: the smallest i64 for i64, the low bits of the
///   smallest i32 for narrower types;
/// - integer to narrower integer wraps;
/// - anything to bool is "not zero", NaN included;
/// - complex to real keeps the real part;
/// - to f16, bf16 and c32 goes through f32, as in PyTorch.
///
/// See <https://pytorch.org/docs/stable/generated/torch.Tensor.to.html>.
pub trait Convert: Copy {
    /// A type that holds every value of this one as it is: i64, f64 or complex f64.
    type Exact: Convert + Default;
    /// The same value.
    fn exact(self) -> Self::Exact;
    /// The value (its real part) as i32.
    fn to_i32(self) -> i32;
    /// The value (its real part) as i64.
    fn to_i64(self) -> i64;
    /// The value (its real part) as f32.
    fn to_f32(self) -> f32;
    /// The value (its real part) as f64.
    fn to_f64(self) -> f64;
    /// The imaginary part, zero for real types.
    fn imag(self) -> f64;
    /// Whether the value is not zero.
    fn is_nonzero(self) -> bool;
    /// The value of another type, converted.
    fn convert_from<S: Convert>(value: S) -> Self;
    /// The value nearest to `re + im i`; real types drop `im`.
    fn from_parts(re: f64, im: f64) -> Self {
        Self::convert_from(Complex::new(re, im))
    }
}

/// `cvttsd2si` and its kin: out of range gives the smallest integer, not the nearest.
#[inline(always)]
fn truncate_i32(x: f64) -> i32 {
    // The bounds are exact: a truncated value below 2^31 and above -2^31 - 1 fits.
    if x > -2_147_483_649.0 && x < 2_147_483_648.0 { x as i32 } else { i32::MIN }
}

#[inline(always)]
fn truncate_i64(x: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if (-BOUND..BOUND).contains(&x) { x as i64 } else { i64::MIN }
}

macro_rules! integer {
    ($($t:ty: |$s:ident| $from:expr),* $(,)?) => {$(
        impl Convert for $t {
            type Exact = i64;
            fn exact(self) -> i64 { self.to_i64() }
            fn to_i32(self) -> i32 { self as i32 }
            fn to_i64(self) -> i64 { self as i64 }
            fn to_f32(self) -> f32 { self as f32 }
            fn to_f64(self) -> f64 { self as f64 }
            fn imag(self) -> f64 { 0.0 }
            fn is_nonzero(self) -> bool { self != 0 }
            fn convert_from<S: Convert>($s: S) -> Self { $from }
        }
    )*};
}
integer! {
    i64: |s| s.to_i64(),
    i32: |s| s.to_i32(),
    i16: |s| s.to_i32() as i16,
    i8: |s| s.to_i32() as i8,
    u8: |s| s.to_i32() as u8,
}

macro_rules! float {
    ($($t:ty: |$x:ident| $f32:expr, $f64:expr, |$s:ident| $from:expr);* $(;)?) => {$(
        impl Convert for $t {
            type Exact = f64;
            fn exact(self) -> f64 { self.to_f64() }
            fn to_i32(self) -> i32 { truncate_i32(self.to_f64()) }
            fn to_i64(self) -> i64 { truncate_i64(self.to_f64()) }
            fn to_f32(self) -> f32 { let $x = self; $f32 }
            fn to_f64(self) -> f64 { let $x = self; $f64 }
            fn imag(self) -> f64 { 0.0 }
            fn is_nonzero(self) -> bool { self.to_f64() != 0.0 }
            fn convert_from<S: Convert>($s: S) -> Self { $from }
        }
    )*};
}
float! {
    f32: |x| x, f64::from(x), |s| s.to_f32();
    f64: |x| x as f32, x, |s| s.to_f64();
    f16: |x| f16::to_f32(x), f64::from(f16::to_f32(x)), |s| f16::from_f32(s.to_f32());
    bf16: |x| bf16::to_f32(x), f64::from(bf16::to_f32(x)), |s| bf16::from_f32(s.to_f32());
}

impl Convert for bool {
    type Exact = i64;
    fn exact(self) -> i64 {
        self.into()
    }
    fn to_i32(self) -> i32 {
        self.into()
    }
    fn to_i64(self) -> i64 {
        self.into()
    }
    fn to_f32(self) -> f32 {
        self.into()
    }
    fn to_f64(self) -> f64 {
        self.into()
    }
    fn imag(self) -> f64 {
        0.0
    }
    fn is_nonzero(self) -> bool {
        self
    }
    fn convert_from<S: Convert>(value: S) -> Self {
        value.is_nonzero()
    }
}

impl<T: Convert> Convert for Complex<T> {
    type Exact = Complex<f64>;
    fn exact(self) -> Complex<f64> {
        Complex::new(self.re.to_f64(), self.im.to_f64())
    }
    fn to_i32(self) -> i32 {
        self.re.to_i32()
    }
    fn to_i64(self) -> i64 {
        self.re.to_i64()
    }
    fn to_f32(self) -> f32 {
        self.re.to_f32()
    }
    fn to_f64(self) -> f64 {
        self.re.to_f64()
    }
    fn imag(self) -> f64 {
        self.im.to_f64()
    }
    fn is_nonzero(self) -> bool {
        self.re.is_nonzero() || self.im.is_nonzero()
    }
    fn convert_from<S: Convert>(value: S) -> Self {
        Self { re: T::convert_from(value), im: T::convert_from(value.imag()) }
    }
}

impl TensorView<'_> {
    /// The elements in another dtype; [`Convert`] says how. The result is dense.
    ///
    /// # Errors
    /// Where no memory is left, or a byte of a bool tensor is neither 0 nor 1.
    pub fn cast(&self, dtype: DType) -> Result<Tensor, TensorError> {
        if dtype == self.dtype() {
            return self.to_tensor();
        }
        let mut out = Tensor::zeros(dtype, self.shape().clone())?;
        for_dtype!(self.dtype(), S => self.convert_into::<S>(&mut out))?;
        Ok(out)
    }

    /// Writes the elements, which are of type `S`, to a tensor of the same shape, some at a time by
    /// way of the type that holds them exactly: thirteen dtypes are read, and written from three,
    /// instead of 169 pairs compiled.
    fn convert_into<S: Element + Convert>(&self, out: &mut Tensor) -> Result<(), TensorError> {
        let mut block = [S::Exact::default(); BLOCK];
        let mut written = 0;
        let mut elements = self.iter::<S>()?;
        let dense = self.as_slice::<S>().ok();
        loop {
            let len = match dense {
                Some(from) => {
                    let from = from.get(written..).unwrap_or_default();
                    block.iter_mut().zip(from).map(|(to, x)| *to = x.exact()).count()
                }
                None => {
                    let some = block.iter_mut().zip(&mut elements);
                    some.map(|(to, x)| *to = x.exact()).count()
                }
            };
            if len == 0 {
                return Ok(());
            }
            for_dtype!(out.dtype(), D => {
                let to = out.as_mut_slice::<D>()?.iter_mut().skip(written);
                to.zip(&block[..len]).for_each(|(to, &x)| *to = D::convert_from(x));
            });
            written += len;
        }
    }
}

/// Elements that are converted at a time.
const BLOCK: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn cast<S: Element, D: Element>(from: &[S]) -> Vec<D> {
        let view = TensorView::from_slice(from, [from.len()]).unwrap();
        view.cast(D::DTYPE).unwrap().as_slice::<D>().unwrap().to_vec()
    }

    // Expected values are PyTorch 2's on x86-64.
    const FLOATS: [f32; 10] =
        [-1.9, -1.5, 1.9, 300., -300., 3e9, -3e9, 1e20, f32::INFINITY, f32::NAN];

    #[test]
    fn float_to_integer_truncates() {
        assert_eq!(cast::<f32, u8>(&FLOATS), [255, 255, 1, 44, 212, 0, 0, 0, 0, 0]);
        assert_eq!(cast::<f32, i8>(&FLOATS), [-1, -1, 1, 44, -44, 0, 0, 0, 0, 0]);
        assert_eq!(cast::<f32, i16>(&FLOATS), [-1, -1, 1, 300, -300, 0, 0, 0, 0, 0]);
        let m = i32::MIN;
        assert_eq!(cast::<f32, i32>(&FLOATS), [-1, -1, 1, 300, -300, m, m, m, m, m]);
        let m = i64::MIN;
        let expected = [-1, -1, 1, 300, -300, 3_000_000_000, -3_000_000_000, m, m, m];
        assert_eq!(cast::<f32, i64>(&FLOATS), expected);
        assert_eq!(cast::<f32, bool>(&[0.0, -0.0, f32::NAN, 0.1]), [false, false, true, true]);
    }

    #[test]
    fn integers_wrap() {
        let x = [300, -1, 70_000, (1 << 40) + 5];
        assert_eq!(cast::<i64, u8>(&x), [44, 255, 112, 5]);
        assert_eq!(cast::<i64, i16>(&x), [300, -1, 4464, 5]);
        assert_eq!(cast::<i64, i32>(&x), [300, -1, 70_000, 5]);
        assert_eq!(cast::<i64, bool>(&[0, 256]), [false, true]);
        assert_eq!(cast::<u8, i8>(&[200]), [-56]);
        assert_eq!(cast::<i64, bf16>(&x)[2], bf16::from_f32(70_144.0));
        assert_eq!(cast::<i64, f16>(&x)[2], f16::INFINITY);
    }

    #[test]
    fn half_precision_goes_through_f32() {
        // Rounded directly, the first would be 1 + 2^-10; f32 drops its last bit first.
        let x = [1.0 + 2f64.powi(-11) + 2f64.powi(-40), 65520.0 - 1e-9];
        assert_eq!(cast::<f64, f16>(&x), [f16::ONE, f16::INFINITY]);
    }

    #[test]
    fn complex_and_real() {
        let x = [Complex::new(1.0f32, 2.0), Complex::new(0.0, 3.0)];
        assert_eq!(cast::<Complex<f32>, f64>(&x), [1.0, 0.0]);
        assert_eq!(cast::<Complex<f32>, bool>(&x), [true, true]);
        assert_eq!(cast::<Complex<f32>, Complex<f64>>(&x)[1], Complex::new(0.0, 3.0));
        assert_eq!(cast::<i8, Complex<f16>>(&[-1]), [Complex::new(f16::NEG_ONE, f16::ZERO)]);
    }

    #[test]
    fn many_elements_and_strides() {
        let x = Tensor::from_fn([3, 301], |i| i as i64 * 7 - 1000).unwrap();
        let turned = x.view().transpose(0, 1).unwrap().cast(DType::F32).unwrap();
        assert_eq!(turned.shape().dims(), [301, 3]);
        for (i, &y) in turned.as_slice::<f32>().unwrap().iter().enumerate() {
            let (row, column) = (i % 3, i / 3);
            assert_eq!(y, (row * 301 + column) as f32 * 7.0 - 1000.0);
        }
        assert_eq!(turned.view().transpose(0, 1).unwrap().cast(DType::I64).unwrap(), x);
        assert_eq!(
            Tensor::zeros(DType::F16, [0, 5]).unwrap().cast(DType::C64).unwrap().shape().numel(),
            0
        );
    }

    #[test]
    fn every_pair_of_dtypes() {
        for from in DType::ALL {
            let zero_one = Tensor::arange(from, 0.0, 2.0, 1.0).unwrap();
            for to in DType::ALL {
                let expected = Tensor::arange(to, 0.0, 2.0, 1.0).unwrap();
                assert_eq!(zero_one.cast(to).unwrap(), expected, "{from} to {to}");
            }
        }
    }
}

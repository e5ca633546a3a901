//! Tensors from rules instead of data: constants, ranges, random numbers.

use crate::{Convert, DType, Element, Shape, Tensor, TensorError, for_dtype};
use std::ops::Range;

impl Tensor {
    /// A tensor whose elements are all `value`.
    ///
    /// # Errors
    /// Where shape x element size exceeds memory.
    pub fn full<T: Element>(shape: impl Into<Shape>, value: T) -> Result<Self, TensorError> {
        let mut out = Self::zeros(T::DTYPE, shape)?;
        out.as_mut_slice::<T>()?.fill(value);
        Ok(out)
    }

    /// A tensor of ones (true for bool).
    ///
    /// # Errors
    /// Where shape x element size exceeds memory.
    pub fn ones(dtype: DType, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        for_dtype!(dtype, T => Self::full(shape, T::convert_from(true)))
    }

    /// A tensor with the elements of a vector, row-major. The elements are copied to aligned
    /// memory.
    ///
    /// # Errors
    /// Where `shape` does not hold exactly `values.len()` elements.
    pub fn from_vec<T: Element>(
        values: Vec<T>,
        shape: impl Into<Shape>,
    ) -> Result<Self, TensorError> {
        Self::from_slice(&values, shape)
    }

    /// A tensor whose element number `i`, row-major, is `f(i)`.
    ///
    /// # Errors
    /// Where shape x element size exceeds memory.
    pub fn from_fn<T: Element>(
        shape: impl Into<Shape>,
        mut f: impl FnMut(usize) -> T,
    ) -> Result<Self, TensorError> {
        let mut out = Self::zeros(T::DTYPE, shape)?;
        out.as_mut_slice::<T>()?.iter_mut().enumerate().for_each(|(i, to)| *to = f(i));
        Ok(out)
    }

    /// The numbers `start, start + step, ...` below (above, for a negative step) `end`; rank 1.
    /// Computed in f64, so integers are exact up to 2^53.
    ///
    /// See <https://pytorch.org/docs/stable/generated/torch.arange.html>.
    ///
    /// # Errors
    /// Where the range is not finite, does not lead from `start` to `end`, or exceeds memory.
    pub fn arange(dtype: DType, start: f64, end: f64, step: f64) -> Result<Self, TensorError> {
        let len = ((end - start) / step).ceil();
        if !(0.0..9e15).contains(&len) {
            return Err(TensorError::invalid(format!(
                "no finite range leads from {start} to {end} by steps of {step}"
            )));
        }
        let value = |i| step.mul_add(i as f64, start);
        for_dtype!(dtype, T => Self::from_fn([len as usize], |i| T::convert_from(value(i))))
    }

    /// Random numbers, uniform over `range`; complex parts are drawn one by one. Made for floats:
    /// integers get the truncated numbers ([`Tensor::randint`] draws integers evenly).
    ///
    /// The same seed gives the same tensor.
    ///
    /// # Errors
    /// Where shape x element size exceeds memory.
    pub fn uniform(
        dtype: DType,
        shape: impl Into<Shape>,
        range: Range<f64>,
        seed: u64,
    ) -> Result<Self, TensorError> {
        let mut rng = fastrand::Rng::with_seed(seed);
        Self::draw(dtype, shape.into(), || {
            (range.end - range.start).mul_add(rng.f64(), range.start)
        })
    }

    /// Random numbers of a normal distribution; complex parts are drawn one by one.
    ///
    /// The same seed gives the same tensor.
    ///
    /// # Errors
    /// Where shape x element size exceeds memory.
    pub fn normal(
        dtype: DType,
        shape: impl Into<Shape>,
        mean: f64,
        std: f64,
        seed: u64,
    ) -> Result<Self, TensorError> {
        let mut rng = fastrand::Rng::with_seed(seed);
        Self::draw(dtype, shape.into(), || {
            // Box and Muller (1958). 1 - u lies in (0, 1], so that the logarithm is finite.
            let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
            (std * radius).mul_add((std::f64::consts::TAU * rng.f64()).cos(), mean)
        })
    }

    /// Random integers of `range`, each equally likely, in any dtype.
    ///
    /// The same seed gives the same tensor.
    ///
    /// # Errors
    /// Where the range is empty, or shape x element size exceeds memory.
    pub fn randint(
        dtype: DType,
        shape: impl Into<Shape>,
        range: Range<i64>,
        seed: u64,
    ) -> Result<Self, TensorError> {
        if range.is_empty() {
            return Err(TensorError::invalid(format!("{range:?} holds no integer")));
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        for_dtype!(dtype, T => Self::from_fn(shape, |_| T::convert_from(rng.i64(range.clone()))))
    }

    fn draw(
        dtype: DType,
        shape: Shape,
        mut number: impl FnMut() -> f64,
    ) -> Result<Self, TensorError> {
        let complex = dtype.is_complex();
        for_dtype!(dtype, T => Self::from_fn(shape, |_| {
            let re = number();
            T::from_parts(re, if complex { number() } else { 0.0 })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        assert_eq!(Tensor::full([2], 7i16).unwrap().as_slice::<i16>().unwrap(), [7, 7]);
        assert_eq!(Tensor::ones(DType::Bool, [1]).unwrap().as_slice::<bool>().unwrap(), [true]);
        assert!(Tensor::full([usize::MAX, 2], 0u8).is_err());
    }

    #[test]
    fn ranges() {
        let x = Tensor::arange(DType::F32, 1.0, 0.0, -0.25).unwrap();
        assert_eq!(x.as_slice::<f32>().unwrap(), [1.0, 0.75, 0.5, 0.25]);
        assert_eq!(Tensor::arange(DType::I64, 0.0, 2.5, 1.0).unwrap().numel(), 3);
        for (start, end, step) in [(0.0, 1.0, -1.0), (0.0, 1.0, 0.0), (0.0, f64::INFINITY, 1.0)] {
            assert!(Tensor::arange(DType::F32, start, end, step).is_err());
        }
    }

    #[test]
    fn random_numbers_repeat_and_spread() {
        let n = 10_000;
        let normal = |seed| Tensor::normal(DType::F64, [n], 3.0, 2.0, seed).unwrap();
        assert_eq!(normal(1), normal(1));
        assert_ne!(normal(1), normal(2));
        // Both within five standard errors.
        let x = normal(1);
        let x = x.as_slice::<f64>().unwrap();
        let mean = x.iter().sum::<f64>() / n as f64;
        let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((mean - 3.0).abs() < 5.0 * 2.0 / (n as f64).sqrt(), "{mean}");
        assert!((var - 4.0).abs() < 5.0 * 4.0 * (2.0 / n as f64).sqrt(), "{var}");

        let x = Tensor::uniform(DType::C64, [n], -1.0..1.0, 1).unwrap();
        let x = x.as_slice::<crate::Complex<f32>>().unwrap();
        assert!(x.iter().all(|c| c.re.abs() <= 1.0 && c.im.abs() <= 1.0 && c.re != c.im));
        let x = Tensor::randint(DType::U8, [n], 3..6, 1).unwrap();
        let count = |v| x.as_slice::<u8>().unwrap().iter().filter(|&&x| x == v).count();
        assert_eq!(count(3) + count(4) + count(5), n);
        assert!(count(3) > n / 4 && count(4) > n / 4 && count(5) > n / 4);
        assert!(Tensor::randint(DType::U8, [1], 3..3, 1).is_err());
    }
}

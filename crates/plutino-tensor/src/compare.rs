//! Comparison of what was computed with what was expected.

use crate::{Element, Tensor, TensorError, TensorView, for_dtype};

/// How far an element may lie from the expected one: `|actual - expected| <= atol + rtol *
/// |expected|`. Integers and booleans must be equal whatever the tolerance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Allowed error relative to the expected element.
    pub rtol: f64,
    /// Allowed error where the expected element is near zero.
    pub atol: f64,
}

impl Tolerance {
    /// Nothing but equal values.
    pub const EXACT: Self = Self { rtol: 0.0, atol: 0.0 };
}

impl Default for Tolerance {
    /// `torch.allclose`'s: rtol 1e-5, atol 1e-8.
    fn default() -> Self {
        Self { rtol: 1e-5, atol: 1e-8 }
    }
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Number of elements compared.
    pub elements: usize,
    /// Number of elements outside the tolerance.
    pub mismatches: usize,
    /// Largest `|actual - expected|`; infinite where NaN or infinity meets something else.
    pub max_abs_error: f64,
    /// Largest `|actual - expected| / |expected|` over the elements whose expected value is not
    /// zero.
    pub max_rel_error: f64,
    /// Largest finite `|expected|`: the scale of the tensor.
    pub max_expected: f64,
    /// The element furthest outside its tolerance (or nearest to it); none where all are equal.
    pub worst: Option<Worst>,
}

/// One element of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// Index of the element.
    pub index: Vec<usize>,
    /// The element, printed.
    pub actual: String,
    /// The expected element, printed.
    pub expected: String,
}

impl Comparison {
    /// Whether all elements are inside the tolerance.
    pub fn is_match(&self) -> bool {
        self.mismatches == 0
    }

    /// The largest absolute error relative to the largest expected element: the error at the scale
    /// of the tensor, which unlike [`Comparison::max_rel_error`] elements near zero do not inflate.
    pub fn scaled_error(&self) -> f64 {
        if self.max_abs_error == 0.0 { 0.0 } else { self.max_abs_error / self.max_expected }
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { elements, mismatches, max_abs_error, max_rel_error, .. } = self;
        match mismatches {
            0 => write!(f, "{elements} elements match")?,
            _ => write!(f, "{mismatches} of {elements} elements differ")?,
        }
        write!(f, ", max abs error {max_abs_error:.3e}, max rel error {max_rel_error:.3e}")?;
        match &self.worst {
            Some(Worst { index, actual, expected }) => {
                write!(f, ", worst at {index:?}: {actual}, expected {expected}")
            }
            None => Ok(()),
        }
    }
}

impl TensorView<'_> {
    /// Compares with an expected tensor of the same dtype and shape. NaN equals NaN, and an
    /// infinity equals the infinity of the same sign. Errors of complex numbers are distances.
    ///
    /// # Errors
    /// Where dtype or shape differ.
    pub fn compare(
        &self,
        expected: &TensorView<'_>,
        tolerance: Tolerance,
    ) -> Result<Comparison, TensorError> {
        if self.dtype() != expected.dtype() {
            return Err(TensorError::DType { expected: expected.dtype(), found: self.dtype() });
        }
        if self.shape() != expected.shape() {
            let (expected, found) = (expected.shape().clone(), self.shape().clone());
            return Err(TensorError::Shape { expected, found });
        }
        for_dtype!(self.dtype(), T => compare::<T>(self, expected, tolerance))
    }
}

impl Tensor {
    /// As [`TensorView::compare`].
    ///
    /// # Errors
    /// Where dtype or shape differ.
    pub fn compare(
        &self,
        expected: &Tensor,
        tolerance: Tolerance,
    ) -> Result<Comparison, TensorError> {
        self.view().compare(&expected.view(), tolerance)
    }
}

fn compare<T: Element>(
    actual: &TensorView<'_>,
    expected: &TensorView<'_>,
    tolerance: Tolerance,
) -> Result<Comparison, TensorError> {
    let tolerance = match T::DTYPE.is_float() || T::DTYPE.is_complex() {
        true => tolerance,
        false => Tolerance::EXACT,
    };
    let mut out = Comparison {
        elements: actual.numel(),
        mismatches: 0,
        max_abs_error: 0.0,
        max_rel_error: 0.0,
        max_expected: 0.0,
        worst: None,
    };
    let mut worst: Option<(usize, T, T)> = None;
    let mut worst_excess = f64::NEG_INFINITY;
    for (i, (a, e)) in actual.iter::<T>()?.zip(expected.iter::<T>()?).enumerate() {
        let size = e.to_f64().hypot(e.imag());
        if size.is_finite() {
            out.max_expected = out.max_expected.max(size);
        }
        if a == e {
            continue;
        }
        let error = distance(a, e);
        if error == 0.0 {
            continue;
        }
        out.max_abs_error = out.max_abs_error.max(error);
        if size > 0.0 {
            out.max_rel_error =
                out.max_rel_error.max(if error.is_finite() { error / size } else { error });
        }
        let allowed = tolerance.rtol.mul_add(size, tolerance.atol);
        // Not `error > allowed`: where the expected element is NaN or infinite, `allowed` is too.
        let inside = error.is_finite() && error <= allowed;
        out.mismatches += usize::from(!inside);
        let excess = if error.is_finite() { error - allowed } else { error };
        if excess > worst_excess {
            worst_excess = excess;
            worst = Some((i, a, e));
        }
    }
    out.worst = worst.map(|(i, a, e)| Worst {
        index: unravel(i, actual.shape()),
        actual: print(a),
        expected: print(e),
    });
    Ok(out)
}

/// `|a - e|`; zero for NaN and NaN; infinite where only one is NaN, or infinities differ.
fn distance<T: Element>(a: T, e: T) -> f64 {
    if T::DTYPE.is_integer() {
        // Exact: the difference of two i64 fits 65 bits.
        return (i128::from(a.to_i64()) - i128::from(e.to_i64())).unsigned_abs() as f64;
    }
    let is_nan = |x: T| x.to_f64().is_nan() || x.imag().is_nan();
    let distance = match (is_nan(a), is_nan(e)) {
        (true, true) => 0.0,
        (false, false) => part(a.to_f64(), e.to_f64()).hypot(part(a.imag(), e.imag())),
        _ => f64::INFINITY,
    };
    if distance.is_nan() { f64::INFINITY } else { distance }
}

fn part(a: f64, e: f64) -> f64 {
    if a == e { 0.0 } else { a - e }
}

fn print<T: Element>(x: T) -> String {
    match T::DTYPE {
        d if d.is_integer() => x.to_i64().to_string(),
        d if d.is_complex() => format!("{}{:+}j", x.to_f64(), x.imag()),
        d if d.is_float() && d.size_of() <= 4 => x.to_f32().to_string(),
        d if d.is_float() => x.to_f64().to_string(),
        _ => x.is_nonzero().to_string(),
    }
}

fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &d) in index.iter_mut().zip(shape).rev() {
        *i = at % d.max(1);
        at /= d.max(1);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Complex, DType};

    fn compare<T: Element>(actual: &[T], expected: &[T], rtol: f64, atol: f64) -> Comparison {
        let a = Tensor::from_slice(actual, [1, actual.len()]).unwrap();
        let e = Tensor::from_slice(expected, [1, expected.len()]).unwrap();
        a.compare(&e, Tolerance { rtol, atol }).unwrap()
    }

    #[test]
    fn the_worst_is_named() {
        let c = compare(&[1.0f32, 2.5, 0.25], &[1.0, 2.0, 0.0], 0.1, 0.0);
        assert_eq!((c.mismatches, c.max_abs_error, c.max_rel_error), (2, 0.5, 0.25));
        assert_eq!(c.max_expected, 2.0);
        assert_eq!(c.scaled_error(), 0.25);
        assert_eq!(c.worst.unwrap().index, [0, 1]);
        let c = compare(&[1.0f64, 2.5], &[1.0, 2.0], 0.25, 0.0);
        assert!(c.is_match());
        assert_eq!(c.worst.unwrap().actual, "2.5");
    }

    #[test]
    fn what_is_not_finite() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert!(compare(&[nan, inf, -inf], &[nan, inf, -inf], 0.0, 0.0).is_match());
        for (a, e) in [(nan, 1.0), (1.0, nan), (inf, -inf), (1.0, inf), (inf, 1.0), (nan, inf)] {
            let c = compare(&[a], &[e], 1.0, 1e30);
            assert!(!c.is_match() && c.max_abs_error == f64::INFINITY, "{a} {e}");
            assert_eq!(c.worst.unwrap().index, [0, 0]);
        }
        let c = |re, im| Complex::new(re, im);
        assert!(
            compare(&[c(nan, 1.0), c(inf, 2.0)], &[c(0.0, nan), c(inf, 2.0)], 0.0, 0.0).is_match()
        );
        assert_eq!(compare(&[c(3.0, 4.0)], &[c(0.0, 0.0)], 0.0, 0.0).max_abs_error, 5.0);
    }

    #[test]
    fn integers_and_booleans_are_exact() {
        let c = compare(&[i64::MAX, 5], &[i64::MAX - 1, 5], 1.0, 1e9);
        assert_eq!((c.mismatches, c.max_abs_error), (1, 1.0));
        assert_eq!(c.worst.unwrap().expected, "9223372036854775806");
        assert_eq!(compare(&[true], &[false], 1.0, 1.0).mismatches, 1);
        assert_eq!(compare(&[u8::MAX], &[0], 1.0, 1.0).max_abs_error, 255.0);
    }

    #[test]
    fn every_dtype_and_the_reports() {
        for dtype in DType::ALL {
            let x = Tensor::ones(dtype, [2, 2]).unwrap();
            let c = x.compare(&x, Tolerance::EXACT).unwrap();
            assert!(c.is_match() && c.worst.is_none(), "{dtype}");
            assert_eq!(
                c.to_string(),
                "4 elements match, max abs error 0.000e0, max rel error 0.000e0"
            );
            let y = Tensor::zeros(dtype, [2, 2]).unwrap();
            assert_eq!(x.compare(&y, Tolerance::default()).unwrap().mismatches, 4, "{dtype}");
        }
        let (x, y) =
            (Tensor::ones(DType::F32, [2]).unwrap(), Tensor::ones(DType::F64, [2]).unwrap());
        assert!(matches!(x.compare(&y, Tolerance::EXACT), Err(TensorError::DType { .. })));
        let y = Tensor::ones(DType::F32, [1, 2]).unwrap();
        assert!(matches!(x.compare(&y, Tolerance::EXACT), Err(TensorError::Shape { .. })));
        assert!(
            Tensor::zeros(DType::F32, [0])
                .unwrap()
                .view()
                .compare(&Tensor::zeros(DType::F32, [0]).unwrap().view(), Tolerance::EXACT)
                .unwrap()
                .is_match()
        );
    }
}

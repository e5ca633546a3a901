//! How far a tensor lies from another one.

use plutino_tensor::{Complex, DType, Tensor, TensorError, Tolerance, Worst};

/// How far a value lies from the expected one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ValueError {
    /// Number of elements.
    pub elements: usize,
    /// Those that lie outside of the tolerance.
    pub mismatches: usize,
    /// The largest `|actual - expected|`; infinite where NaN or infinity meets something else.
    pub max_abs: f64,
    /// The largest error relative to its own expected element, over those that are not zero.
    pub max_rel: f64,
    /// `max_abs`, relative to the largest magnitude of the expected tensor: what is compared with
    /// the tolerance.
    pub scaled: f64,
    /// What `scaled` may be.
    pub tolerance: f64,
    /// The error of the worst element in units in the last place of the expected one; none for
    /// integers and complex numbers.
    pub ulps: Option<f64>,
    /// The cosine of the angle between both tensors, taken as vectors; none where one is zero, or
    /// something is not finite.
    pub cosine: Option<f64>,
    /// The element with the largest error; none where all are equal.
    pub worst: Option<Worst>,
}

/// Compares. `tolerance` is relative to the largest magnitude expected. The reference may be wider:
/// f32 for bf16, which NumPy does not know.
///
/// # Errors
/// Where dtypes or shapes cannot be compared.
pub(crate) fn measure(
    actual: &Tensor,
    expected: &Tensor,
    tolerance: f64,
) -> Result<ValueError, TensorError> {
    let (dtype, wide) = (actual.dtype(), expected.dtype());
    let wider = dtype.is_float() && wide.is_float() && wide.size_of() > dtype.size_of();
    let widened = if wider { Some(actual.cast(wide)?) } else { None };
    let actual = widened.as_ref().unwrap_or(actual);
    let compared = actual.compare(expected, Tolerance::EXACT)?;
    let scale = compared.max_expected;
    let exact = !(dtype.is_float() || dtype.is_complex());
    let tolerance = if exact { 0.0 } else { tolerance };
    let atol = if exact { 0.0 } else { tolerance * scale };
    let within = actual.compare(expected, Tolerance { rtol: 0.0, atol })?;
    let worst = within.worst;
    let float = worst.as_ref().filter(|_| dtype.is_float());
    let ulps = float.map(|worst| ulps(worst, actual.dtype(), dtype));
    Ok(ValueError {
        elements: within.elements,
        mismatches: within.mismatches,
        max_abs: within.max_abs_error,
        max_rel: within.max_rel_error,
        scaled: compared.scaled_error(),
        tolerance,
        ulps,
        cosine: cosine(actual, expected)?,
        worst,
    })
}

/// The error of an element in units in the last place of `dtype`; it was printed as one of another.
fn ulps(worst: &Worst, printed: DType, dtype: DType) -> f64 {
    let number = |text: &str| match printed {
        DType::F64 => text.parse().unwrap_or(f64::NAN),
        _ => text.parse::<f32>().map_or(f64::NAN, f64::from), // the shortest text that reads so
    };
    let (actual, expected) = (number(&worst.actual), number(&worst.expected));
    let error = (actual - expected).abs() / ulp(expected, dtype);
    if error.is_nan() { f64::INFINITY } else { error }
}

/// The distance from a number to the next one of a dtype.
fn ulp(x: f64, dtype: DType) -> f64 {
    let (digits, least) = match dtype {
        DType::F64 => (52, -1022),
        DType::F16 => (10, -14),
        DType::Bf16 => (7, -126),
        _ => (23, -126),
    };
    let exponent =
        if x == 0.0 { least } else { x.abs().log2().floor().max(f64::from(least)) as i32 };
    2f64.powi(exponent - digits)
}

fn cosine(a: &Tensor, b: &Tensor) -> Result<Option<f64>, TensorError> {
    let mut sums = [0.0; 3]; // of products, and of the squares of either
    let mut add = |x: f64, y: f64| {
        sums.iter_mut().zip([x * y, x * x, y * y]).for_each(|(sum, term)| *sum += term);
    };
    if a.dtype().is_complex() {
        let (a, b) = (a.cast(DType::C128)?, b.cast(DType::C128)?);
        for (x, y) in a.as_slice::<Complex<f64>>()?.iter().zip(b.as_slice::<Complex<f64>>()?) {
            add(x.re, y.re);
            add(x.im, y.im);
        }
    } else {
        let (a, b) = (a.cast(DType::F64)?, b.cast(DType::F64)?);
        a.as_slice::<f64>()?.iter().zip(b.as_slice::<f64>()?).for_each(|(&x, &y)| add(x, y));
    }
    let [dot, a, b] = sums;
    let cosine = dot / (a.sqrt() * b.sqrt());
    Ok(Some(cosine.clamp(-1.0, 1.0)).filter(|c| c.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Tensor {
        Tensor::from_slice(values, [values.len()]).unwrap()
    }

    #[test]
    fn every_measure_of_an_error() {
        let e = measure(&f32s(&[3.0, 4.0 + 4.0 * f32::EPSILON]), &f32s(&[3.0, 4.0]), 1e-9).unwrap();
        assert_eq!((e.elements, e.mismatches, e.ulps), (2, 1, Some(1.0)));
        assert_eq!(e.max_abs, 4.0 * f64::from(f32::EPSILON));
        assert_eq!(e.scaled, f64::from(f32::EPSILON));
        assert_eq!(e.worst.unwrap().index, [1]);
        assert!(e.cosine.unwrap() > 0.999_999);
        let e = measure(&f32s(&[4.0, -3.0]), &f32s(&[3.0, 4.0]), 0.1).unwrap();
        assert_eq!((e.mismatches, e.cosine), (2, Some(0.0)));
        let e = measure(&f32s(&[f32::NAN]), &f32s(&[1.0]), 0.1).unwrap();
        assert_eq!((e.mismatches, e.ulps, e.cosine), (1, Some(f64::INFINITY), None));
        // An error near zero is one at the scale of the tensor.
        assert_eq!(measure(&f32s(&[1e-6, 1.0]), &f32s(&[0.0, 1.0]), 1e-5).unwrap().mismatches, 0);
    }

    #[test]
    fn references_may_be_wider() {
        let half = f32s(&[1.0, 1.5]).cast(DType::Bf16).unwrap();
        let e = measure(&half, &f32s(&[1.0, 1.5]), 0.0).unwrap();
        assert_eq!((e.mismatches, e.max_abs), (0, 0.0));
        let e = measure(&half, &f32s(&[1.0, 1.507_812_5]), 0.0).unwrap();
        assert_eq!(e.ulps, Some(1.0), "in units of bf16");
        assert!(measure(&f32s(&[1.0]), &f32s(&[1.0]).cast(DType::I64).unwrap(), 0.0).is_err());
        assert!(measure(&f32s(&[1.0]), &f32s(&[1.0, 2.0]), 0.0).is_err());
    }

    #[test]
    fn integers_are_equal_or_not() {
        let i = |v: i64| Tensor::from_slice(&[v], [1]).unwrap();
        let e = measure(&i(5), &i(4), 10.0).unwrap();
        assert_eq!((e.mismatches, e.tolerance, e.ulps), (1, 0.0, None));
        assert_eq!(measure(&i(4), &i(4), 0.0).unwrap().mismatches, 0);
    }
}

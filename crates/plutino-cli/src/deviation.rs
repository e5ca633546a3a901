//! How far the elements of a tensor lie apart, and their range: the scale on which an error is
//! large or small.

use crate::failure::Failure;
use plutino::{Complex, DType, Tensor};

/// What is worth knowing of many numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    /// Elements that are NaN or infinite, which count for nothing above.
    pub(crate) not_finite: usize,
}

/// Range and mean of the finite elements; none where there are none, or they are complex.
pub(crate) fn summary(tensor: &Tensor) -> Result<Option<Summary>, Failure> {
    if tensor.dtype().is_complex() {
        return Ok(None);
    }
    let values = tensor.cast(DType::F64)?;
    let values = values.as_slice::<f64>()?;
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let count = finite().count();
    if count == 0 {
        return Ok(None);
    }
    Ok(Some(Summary {
        min: finite().fold(f64::INFINITY, f64::min),
        max: finite().fold(f64::NEG_INFINITY, f64::max),
        mean: finite().sum::<f64>() / count as f64,
        not_finite: values.len() - count,
    }))
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { min, max, mean, not_finite } = self;
        write!(f, "min {} max {} mean {}", short(*min), short(*max), short(*mean))?;
        if *not_finite > 0 {
            write!(f, ", {not_finite} not finite")?;
        }
        Ok(())
    }
}

/// A number with four digits or so.
fn short(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        size if (1e-3..1e5).contains(&size) => {
            let text = format!("{x:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{x:.3e}"),
    }
}

/// The standard deviation of the finite elements; of complex ones, of their distances from the
/// mean. Zero for one element, and none for none.
pub(crate) fn deviation(tensor: &Tensor) -> Result<Option<f64>, Failure> {
    let parts: [Vec<f64>; 2] = if tensor.dtype().is_complex() {
        let values = tensor.cast(DType::C128)?;
        let finite = values.as_slice::<Complex<f64>>()?.iter().filter(|z| z.is_finite());
        finite.map(|z| (z.re, z.im)).unzip::<f64, f64, Vec<_>, Vec<_>>().into()
    } else {
        let values = tensor.cast(DType::F64)?;
        [values.as_slice::<f64>()?.iter().copied().filter(|x| x.is_finite()).collect(), Vec::new()]
    };
    let count = parts[0].len() as f64;
    if parts[0].is_empty() {
        return Ok(None);
    }
    let squares = parts.iter().map(|part| {
        let mean = part.iter().sum::<f64>() / count;
        part.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
    });
    Ok(Some((squares.sum::<f64>() / count).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_finite_elements() {
        let t = Tensor::from_slice(&[1.0f32, 3.0, f32::NAN, f32::INFINITY], [4]).unwrap();
        assert_eq!(deviation(&t).unwrap(), Some(1.0));
        let s = summary(&t).unwrap().unwrap();
        assert_eq!(s.to_string(), "min 1 max 3 mean 2, 2 not finite");
        assert_eq!(deviation(&Tensor::from_slice(&[7i64], [1]).unwrap()).unwrap(), Some(0.0));
        let none = Tensor::from_slice(&[f32::NAN], [1]).unwrap();
        assert_eq!((deviation(&none).unwrap(), summary(&none).unwrap()), (None, None));
        let c = |re, im| Complex::new(re, im);
        let t = Tensor::from_slice(&[c(0.0f32, 1.0), c(0.0, -1.0)], [2]).unwrap();
        assert_eq!(deviation(&t).unwrap(), Some(1.0));
    }

    #[test]
    fn digits_worth_reading() {
        let texts = [0.0, 0.5, -12345.678901, 1e-7, 3e9].map(short);
        assert_eq!(texts, ["0", "0.5", "-12345.6789", "1.000e-7", "3.000e9"]);
    }
}

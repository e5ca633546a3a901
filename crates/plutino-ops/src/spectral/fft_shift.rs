//! Halves that change places, and powers of vectors: fftshift, ifftshift, vander.

use crate::support::composite::{Compose, StepText, composed, list, word};
use crate::support::rearrange::{distinct_dims, invalid, subject};
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, register_op};
use plutino_tensor::{DType, Shape};

/// The zero frequency to the middle, or back:
/// <https://pytorch.org/docs/stable/generated/torch.fft.fftshift.html>,
/// <https://pytorch.org/docs/stable/generated/torch.fft.ifftshift.html>
#[derive(Debug)]
struct Shift {
    input: usize,
    /// None: all dimensions.
    dims: Option<Vec<i64>>,
    back: bool,
}

fn shift(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (dims, back) = (r.optional("dim")?, r.kind().ends_with("ifftshift"));
    composed(Shift { input: subject(r)?, dims, back })
}
register_op!(shift => "torch.fft.fftshift", "torch.fft.ifftshift");

impl Compose for Shift {
    fn name(&self) -> &'static str {
        if self.back { "ifftshift" } else { "fftshift" }
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(invalid("one tensor")) };
        let dims = match &self.dims {
            Some(dims) => distinct_dims(x.shape(), dims)?,
            None => (0..x.shape().rank()).collect(),
        };
        let by =
            |&d: &usize| x.shape().get(d).map(|n| if self.back { n.div_ceil(2) } else { n / 2 });
        let shifts: Option<Vec<usize>> = dims.iter().map(by).collect();
        let Some(shifts) = shifts.filter(|shifts| !shifts.is_empty()) else {
            return Ok(vec![StepText::new("torch.clone", &["x0"], "y", "")]);
        };
        let how = format!("shifts={} dims={}", list(&shifts), list(&dims));
        Ok(vec![StepText::new("torch.roll", &["x0"], "y", &how)])
    }
}

/// Powers of every element, as rows: increasing ones
/// (<https://pytorch.org/docs/stable/generated/torch.linalg.vander.html>), or of a vector
/// decreasing ones (<https://pytorch.org/docs/stable/generated/torch.vander.html>).
#[derive(Debug)]
struct Vander {
    input: usize,
    /// None: as many as there are elements.
    count: Option<usize>,
    increasing: bool,
    /// One vector only.
    vector: bool,
}

fn vander(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let count = r.optional("N")?;
    let vector = r.kind() == "torch.vander";
    let increasing = if vector { r.or("increasing", false)? } else { true };
    let input = r.named_input("x").map_or_else(|| subject(r), Ok)?;
    composed(Vander { input, count, increasing, vector })
}
register_op!(vander => "torch.vander", "torch.linalg.vander");

impl Compose for Vander {
    fn name(&self) -> &'static str {
        "vander"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(invalid("one tensor")) };
        let fits = if self.vector { x.shape().rank() == 1 } else { x.shape().rank() >= 1 };
        let Some(&len) = x.shape().last().filter(|_| fits) else {
            let expected = if self.vector { "1" } else { "at least 1" }.into();
            let found = x.shape().clone();
            return Err(ShapeError::Rank { input: self.input, expected, found });
        };
        let whole = x.dtype() == DType::Bool || x.dtype().is_integer();
        let dtype = if whole { DType::I64 } else { x.dtype() };
        let count = self.count.unwrap_or(len);
        let with = |last: usize| -> Shape { x.shape().iter().copied().chain([last]).collect() };
        let size = format!("size={} dtype={}", list(&with(count.min(1))), word(dtype));
        let mut steps = vec![StepText::new("torch.ones", &[], "ones", &size)];
        let mut last = "ones";
        if count > 1 {
            let sizes = format!("sizes={}", list(&with(count - 1)));
            steps.extend([
                StepText::new("torch.unsqueeze", &["x0"], "column", "dim=-1"),
                StepText::new("Tensor.expand", &["column"], "equal", &sizes),
                StepText::new("torch.cumprod", &["equal"], "powers", "dim=-1"),
                StepText::new("torch.cat", &["ones", "powers"], "all", "dim=-1"),
            ]);
            last = "all";
        }
        if !self.increasing {
            steps.push(StepText::new("torch.flip", &[last], "y", "dims=(-1)"));
        }
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, values};

    #[test]
    fn halves_change_places() {
        let x = iota([5]);
        let y = check(&*op("torch.fft.fftshift f 1 1 0 1 dim=None"), std::slice::from_ref(&x));
        assert_eq!(values::<f32>(&y[0]), [3., 4., 0., 1., 2.]);
        assert_eq!(check(&*op("torch.fft.ifftshift f 1 1 0 1 dim=(0)"), &y)[0], x);
        let y = check(&*op("torch.fft.fftshift f 1 1 0 1 dim=(-1)"), &[iota([2, 2])]);
        assert_eq!(values::<f32>(&y[0]), [1., 0., 3., 2.]);
        let y = check(&*op("torch.fft.fftshift f 1 1 0 1"), &[iota([2, 2])]);
        assert_eq!(values::<f32>(&y[0]), [3., 2., 1., 0.]);
        assert_eq!(check(&*op("torch.fft.fftshift f 1 1 0 1"), &[iota([])])[0], iota([]));
        assert_eq!(check(&*op("torch.fft.fftshift f 1 1 0 1"), &[iota([0, 3])])[0], iota([0, 3]));
        error(&*op("torch.fft.fftshift f 1 1 0 1 dim=(1)"), &[x]);
    }

    #[test]
    fn powers_in_rows() {
        let x = tensor([3], &[1i32, 2, 3]);
        let y =
            check(&*op("torch.vander v 1 1 0 1 N=None increasing=False"), std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([3, 3], &[1i64, 1, 1, 4, 2, 1, 9, 3, 1]));
        let y = check(&*op("torch.vander v 1 1 0 1 N=2 increasing=True"), &[x]);
        assert_eq!(y[0], tensor([3, 2], &[1i64, 1, 1, 2, 1, 3]));
        let x = tensor([2, 1], &[2.0f32, 3.0]);
        let y = check(&*op("torch.linalg.vander v 1 1 0 1 N=3"), std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([2, 1, 3], &[1.0f32, 2., 4., 1., 3., 9.]));
        for n in [0, 1] {
            let line = format!("torch.linalg.vander v 1 1 0 1 N={n}");
            let y = check(&*op(&line), std::slice::from_ref(&x));
            assert_eq!(y[0], tensor([2, 1, n], &vec![1.0f32; 2 * n]));
        }
        error(&*op("torch.vander v 1 1 0 1"), &[x]);
        error(&*op("torch.linalg.vander v 1 1 0 1"), &[iota([])]);
    }
}

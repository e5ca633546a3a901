//! Windows along one dimension: `Tensor.unfold`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.Tensor.unfold.html>: `size` neighbours every
//! `step` become a new last dimension. (`F.unfold` cuts images: see `unfold`.)

use crate::support::rearrange::{Geometry, Part, Parts, Rearrange, invalid, rearranged};
use crate::{
    Arg, BuildError, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op,
};

#[derive(Debug)]
struct Sliding {
    input: usize,
    dim: i64,
    size: Arg<i64>,
    step: Arg<i64>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dimension")?;
    let mut length = |key: &str| match r.arg(key)? {
        Some(length) => Ok(length),
        None => r.required(key).map(Arg::Value),
    };
    let (size, step) = (length("size")?, length("step")?);
    rearranged(Sliding { input: r.required_input("input")?, dim, size, step })
}
register_op!(build => "Tensor.unfold");

impl Rearrange for Sliding {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let dim = x.shape().dim(self.dim)?;
        // A tensor without dimensions is one element long.
        let whole = match x.shape().rank() {
            0 => Geometry::dense(&[1].into()),
            _ => Geometry::dense(x.shape()),
        };
        let (given, length) = ([self.size.int(inputs)?, self.step.int(inputs)?], whole.shape[dim]);
        let [size, step] = given.map(|n| usize::try_from(n).ok());
        let (Some(size), Some(step @ 1..)) = (size.filter(|&size| size <= length), step) else {
            let [size, step] = given;
            return Err(invalid(format!(
                "windows of {size} every {step} do not fit dimension {dim} of {}: its size is {length}, the step is \
                 at least 1",
                x.shape()
            )));
        };
        let stride = whole.strides[dim];
        let mut windows = whole.slice(dim, 0, (length - size) / step + 1, step);
        windows.shape.push(size);
        windows.strides.push(stride);
        if x.shape().rank() == 0 {
            windows = windows.select(0, 0);
        }
        Ok(Part::new(x.dtype(), windows).into())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, iota, line_error, op, tensor, try_op, values};

    #[test]
    fn windows_overlap_or_leave_gaps() {
        let x = iota([2, 5]);
        let y = check_line("aten::unfold u 4 1 0 =1 =3 =2 1", std::slice::from_ref(&x)).remove(0);
        assert_eq!(y.shape().dims(), [2, 2, 3]);
        assert_eq!(values::<f32>(&y), [0., 1., 2., 2., 3., 4., 5., 6., 7., 7., 8., 9.]);
        let line = "Tensor.unfold u 1 1 0 1 dimension=0 size=1 step=7 $input=0";
        let y = check(&*op(line), std::slice::from_ref(&x)).remove(0);
        assert_eq!(
            (y.shape().dims(), values::<f32>(&y)),
            (&[1, 5, 1][..], vec![0., 1., 2., 3., 4.])
        );
        let y = check_line("aten::unfold u 4 1 0 =-2 =2 =1 1", std::slice::from_ref(&x)).remove(0);
        assert_eq!(y.shape().dims(), [1, 5, 2]);
        assert_eq!(values::<f32>(&y)[..4], [0., 5., 1., 6.]);
        let y = check_line("aten::unfold u 4 1 0 =0 =0 =1 1", &[tensor([2], &[true, false])]);
        assert_eq!(y[0].shape().dims(), [3, 0]);
    }

    #[test]
    fn scalars_and_what_does_not_fit() {
        let y = check_line("aten::unfold u 4 1 0 =0 =1 =1 1", &[tensor([], &[3i64])]);
        assert_eq!(y[0], tensor([1], &[3i64]));
        for arguments in ["=1 =6 =1", "=2 =1 =1", "=1 =1 =0", "=1 =-1 =1", "=1 =1 =-1"] {
            line_error(&format!("aten::unfold u 4 1 0 {arguments} 1"), &[iota([2, 5])]);
        }
        assert!(try_op("Tensor.unfold u 1 1 0 1 dimension=0 size=1 $input=0", &[]).is_err());
        error(&*op("Tensor.unfold u 1 1 0 1 dimension=1 size=1 step=1"), &[iota([])]);
    }
}

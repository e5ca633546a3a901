//! The bytes of a tensor as another dtype: `x.view(torch.int32)`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.Tensor.view.html>: where elements are of another
//! size, the last dimension has as many more or fewer of them.

use crate::reduce::planned;
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, NodeReader, Operator, PlanCx, PlanError, Planned, RunError, ShapeError, StrideRule,
    TensorValue, ValueSpec, register_op,
};
use plutino_tensor::DType;

#[derive(Debug)]
struct ViewDType {
    input: usize,
    dtype: DType,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dtype = r.required("dtype")?;
    Ok(Box::new(ViewDType { input: r.required_input("input")?, dtype }))
}
register_op!(build => "Tensor.view.dtype");

impl Operator for ViewDType {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::Contiguous
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (mut shape, from, to) = (x.shape().clone(), x.dtype().size_of(), self.dtype.size_of());
        if from != to {
            let rank = shape.rank();
            let last = shape.last_mut().ok_or_else(|| {
                invalid(format!("a number of {} has no parts of {}", x.dtype(), self.dtype))
            })?;
            let bytes = last.checked_mul(from).filter(|bytes| bytes % to == 0);
            let (input, dim) = (self.input, rank - 1);
            *last = bytes.map(|bytes| bytes / to).ok_or_else(|| ShapeError::Size {
                input,
                dim,
                expected: format!("a multiple of {} elements of {}", to / from.max(1), x.dtype()),
                found: x.shape().clone(),
            })?;
        }
        Ok(vec![ValueSpec::tensor(self.dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (input, dtype) = (leaf(cx.inputs, self.input), self.dtype);
        Ok(planned("view_dtype", move |cx| {
            let x = cx.inputs.bytes(input)?;
            if let Some(byte) = x.iter().find(|&&byte| dtype == DType::Bool && byte > 1) {
                let what = format!("a byte of {byte} is no bool");
                return Err(RunError::Value { input, what });
            }
            let (_, y) = cx.outputs.take_bytes(0)?;
            if x.len() != y.len() {
                return Err(RunError::Internal("a view of another size".into()));
            }
            y.copy_from_slice(x);
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, op, tensor};
    use plutino_tensor::Tensor;

    fn view(dtype: &str, x: Tensor) -> Tensor {
        check(&*op(&format!("Tensor.view.dtype v 1 1 0 1 dtype=torch.{dtype}")), &[x]).remove(0)
    }

    #[test]
    fn bits_stay_as_they_are() {
        let x = tensor([2, 1], &[1.0f32, -0.0]);
        assert_eq!(view("int32", x.clone()), tensor([2, 1], &[0x3f80_0000, i32::MIN]));
        let bytes = tensor([2, 4], &[0u8, 0, 0x80, 0x3f, 0, 0, 0, 0x80]);
        assert_eq!(view("uint8", x.clone()), bytes);
        assert_eq!(view("float", bytes), x);
        assert_eq!(view("int8", tensor([2], &[255u8, 1])), tensor([2], &[-1i8, 1]));
        assert_eq!(view("bool", tensor([2], &[0u8, 1])), tensor([2], &[false, true]));
        assert_eq!(view("int64", tensor([], &[1.0f64])), tensor([], &[0x3ff0_0000_0000_0000i64]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let run = |dtype: &str, x| {
            error(&*op(&format!("Tensor.view.dtype v 1 1 0 1 dtype=torch.{dtype}")), &[x])
                .to_string()
        };
        assert!(run("int32", tensor([3], &[1u8, 2, 3])).contains("a multiple of 4"));
        assert!(run("uint8", tensor([], &[1i32])).contains("no parts"));
        assert!(run("bool", tensor([1], &[2u8])).contains("no bool"));
    }
}

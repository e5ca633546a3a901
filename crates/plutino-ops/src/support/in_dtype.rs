//! Operators that are computed in a dtype of their own: `torch.sum(x, dtype=torch.float64)`, or in
//! floats where they are given integers.

use crate::support::composite::{Compose, StepText, composed};
use crate::support::promotion::inexact;
use crate::{BuildError, Operator, ShapeError, TensorValue};
use plutino_tensor::DType;
use std::fmt::Debug;

/// An operator of one tensor, which is converted before; the result is, too, where it has another
/// dtype.
struct InDType<F> {
    name: &'static str,
    input: usize,
    /// None: that of the tensor, PyTorch's default float for integers and bool.
    dtype: Option<DType>,
    make: F,
}

/// The operator that `make` makes, of input 0, applied to input `input` in this dtype; none: in
/// that of the input, or in the default float where it holds integers.
pub(crate) fn in_dtype(
    name: &'static str,
    input: usize,
    dtype: Option<DType>,
    make: impl Fn() -> Box<dyn Operator> + Send + Sync + 'static,
) -> Result<Box<dyn Operator>, BuildError> {
    composed(InDType { name, input, dtype, make })
}

/// The parameter of `Tensor.to` for a dtype.
pub(crate) fn to_dtype(dtype: DType) -> String {
    let name = match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "half",
        DType::Bf16 => "bfloat16",
        DType::I64 => "long",
        DType::I32 => "int",
        DType::I16 => "short",
        DType::I8 => "int8",
        DType::U8 => "uint8",
        DType::Bool => "bool",
        DType::C64 => "complex64",
        DType::C128 => "complex128",
        DType::C32 => "complex32",
    };
    format!("dtype=torch.{name}")
}

impl<F> Debug for InDType<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}", self.name, self.dtype.map_or("floats".into(), |d| d.to_string()))
    }
}

impl<F: Fn() -> Box<dyn Operator> + Send + Sync + 'static> Compose for InDType<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(ShapeError::Invalid("one tensor".into())) };
        let (mut steps, mut name, mut of) = (Vec::new(), "x0", x.clone());
        let dtype = self.dtype.unwrap_or_else(|| inexact(x.dtype()));
        if x.dtype() != dtype {
            steps.push(StepText::new("Tensor.to", &[name], "converted", &to_dtype(dtype)));
            of.spec.dtype = dtype;
            name = "converted";
        }
        of.known = None;
        let operator = (self.make)();
        let result = operator.infer(&[crate::ValueSpec::Tensor(of)])?;
        steps.push(StepText::of(operator, &[name], "result"));
        if TensorValue::at(&result, 0)?.dtype() != dtype {
            steps.push(StepText::new("Tensor.to", &["result"], "back", &to_dtype(dtype)));
        }
        Ok(steps)
    }
}

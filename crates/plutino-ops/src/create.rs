//! Tensors that are made, not computed from others: zeros, ones, full, empty, arange, eye, and their `_like` and
//! `new_` forms; Tensor.fill. What is known before the run is folded by the runtime.

use crate::assemble::leaf;
use crate::rearrange::{ints, invalid, subject};
use crate::{
    Arg, BuildError, Inputs, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::{Side, StridedCopy};
use plutino_kernels::elementwise::Scalar;
use plutino_tensor::{DType, Element, Shape, Tensor};

/// Where the values of an argument come from that may be a number or a tensor.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// This input leaf.
    Leaf(usize),
    /// One element, known beforehand.
    Known(Tensor),
}

impl Source {
    /// The argument's values in `dtype`. Numbers and known scalars are converted; tensors must have it.
    pub(crate) fn of(
        arg: &Arg<Scalar>,
        dtype: DType,
        inputs: &[ValueSpec],
    ) -> Result<Self, ShapeError> {
        let input = match arg {
            Arg::Value(number) => return Ok(Self::Known(constant(*number, dtype)?)),
            Arg::Input(at) => *at,
        };
        let value = TensorValue::at(inputs, input)?;
        match &value.known {
            Some(known) if value.shape().rank() == 0 => Ok(Self::Known(known.cast(dtype)?)),
            _ if value.dtype() == dtype => Ok(Self::Leaf(leaf(inputs, input))),
            _ => {
                Err(ShapeError::DType { input, expected: dtype.to_string(), found: value.dtype() })
            }
        }
    }

    /// The raw elements.
    pub(crate) fn bytes<'a>(&'a self, inputs: &Inputs<'a>) -> Result<&'a [u8], RunError> {
        match self {
            Self::Leaf(at) => inputs.bytes(*at),
            Self::Known(t) => Ok(t.as_bytes()),
        }
    }

    /// The elements.
    pub(crate) fn read<'a, T: Element>(&'a self, inputs: &Inputs<'a>) -> Result<&'a [T], RunError> {
        match self {
            Self::Leaf(at) => inputs.get(*at),
            Self::Known(t) => Ok(t.as_slice()?),
        }
    }
}

/// A number as a tensor of one element.
pub(crate) fn constant(number: Scalar, dtype: DType) -> Result<Tensor, ShapeError> {
    let exact = match number {
        Scalar::Bool(b) => Tensor::scalar(b),
        Scalar::Int(i) => Tensor::scalar(i),
        Scalar::Float(x) => Tensor::scalar(x),
        Scalar::Complex(z) => Tensor::scalar(z),
    };
    Ok(exact?.cast(dtype)?)
}

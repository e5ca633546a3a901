//! Results of a run as memory that arrays of NumPy lie in.

use plutino::{DType, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::Failure;

/// The memory of a result. `numpy.asarray` makes an array of it without a copy, by the array
/// interface of NumPy: the array keeps this object as its base, and so the memory.
///
/// The address is that of a buffer that nobody else has, because [`TensorMemory::new`] made it so,
/// and that is neither read nor moved by Rust again before it is freed with this object: whoever
/// has the array may write to it.
#[pyclass(frozen, module = "plutino._native")]
#[derive(Debug)]
pub(crate) struct TensorMemory {
    tensor: Tensor,
    address: usize,
}

impl TensorMemory {
    /// Takes a tensor; copies it where its memory is shared (with a constant of the model, say).
    pub(crate) fn new(mut tensor: Tensor) -> Result<Self, Failure> {
        let address = tensor.as_mut_bytes()?.as_mut_ptr().expose_provenance();
        Ok(Self { tensor, address })
    }
}

#[pymethods]
impl TensorMemory {
    /// PNNX's name of the dtype: NumPy has none for bfloat16, which lies here as uint16, and for
    /// pairs of halves, which have a dimension of 2 here.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.dtype().name()
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut dims = self.tensor.shape().dims().to_vec();
        if self.tensor.dtype() == DType::C32 {
            dims.push(2);
        }
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, dims)?)?;
        interface.set_item("typestr", code(self.tensor.dtype()))?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }
}

/// NumPy's code of a dtype, little-endian as our tensors are.
fn code(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 | DType::C32 => "<f2",
        DType::Bf16 => "<u2",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I16 => "<i2",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
    }
}

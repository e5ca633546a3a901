//! What examples that measure models share.

use plutino::ir::Dim;
use plutino::{DType, Model, Tensor, ValueInfo};
use std::error::Error;

/// Inputs of the shapes that the file records.
pub(crate) fn inputs(model: &Model) -> Result<Vec<Tensor>, Box<dyn Error>> {
    let input = |info: &ValueInfo| -> Result<Tensor, Box<dyn Error>> {
        let size = |dim: &Dim| match dim {
            Dim::Known(size) => *size,
            _ => 1,
        };
        let dims: Vec<usize> = info.recorded.shape.iter().flatten().map(size).collect();
        let dtype = info.dtype();
        match dtype.unwrap_or(DType::F32) {
            DType::F32 => Ok(Tensor::from_fn(dims, |i| ((i * 7919) % 255) as f32 / 255.0)?),
            other => Ok(Tensor::zeros(other, dims)?),
        }
    };
    model.inputs().iter().map(input).collect()
}

//! Weights of an operator, as the model file holds them.

use super::PlanError;
use bytes::Bytes;
use plutino_tensor::{DType, Tensor, TensorSpec};
use std::sync::Arc;

/// A weight: raw bytes of the file (often memory-mapped, not aligned) with dtype and shape. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Weight {
    /// `<operator name>.<weight name>`: unique in a model, the key under which packed forms are shared.
    pub name: Arc<str>,
    /// Dtype and shape.
    pub spec: TensorSpec,
    pub(super) data: Option<Bytes>,
}

impl Weight {
    /// The shape's dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.spec.shape
    }

    /// The raw little-endian bytes; not aligned.
    ///
    /// # Errors
    /// Where the model was loaded without weights.
    pub fn bytes(&self) -> Result<&[u8], PlanError> {
        self.data.as_deref().ok_or_else(|| PlanError::NoWeights { name: self.name.to_string() })
    }

    /// A tensor with a copy of the weight (64-byte aligned).
    ///
    /// # Errors
    /// Where the model was loaded without weights, or no memory is left.
    pub fn tensor(&self) -> Result<Tensor, PlanError> {
        Ok(Tensor::from_bytes(self.spec.dtype, self.spec.shape.clone(), self.bytes()?)?)
    }

    /// The elements as f32, converted where the weight is stored in f64, f16 or bf16.
    ///
    /// # Errors
    /// Where the weight was not loaded or is not a real float.
    pub fn to_f32(&self) -> Result<Vec<f32>, PlanError> {
        let bytes = self.bytes()?;
        Ok(match self.spec.dtype {
            DType::F32 => bytemuck::pod_collect_to_vec(bytes),
            DType::F64 => bytes
                .chunks_exact(8)
                .map(|b| bytemuck::pod_read_unaligned::<f64>(b) as f32)
                .collect(),
            DType::F16 => bytes
                .chunks_exact(2)
                .map(|b| bytemuck::pod_read_unaligned::<half::f16>(b).to_f32())
                .collect(),
            DType::Bf16 => bytes
                .chunks_exact(2)
                .map(|b| bytemuck::pod_read_unaligned::<half::bf16>(b).to_f32())
                .collect(),
            other => {
                return Err(PlanError::Unsupported(format!(
                    "weight '{}' of dtype {other}",
                    self.name
                )));
            }
        })
    }
}

//! Running: what a kernel gets.

use super::RunError;
use plutino_kernels::{InOut, Par};
use plutino_tensor::{DType, Element, Layout, Tensor, TensorSpec, TensorView};
use smallvec::SmallVec;

/// Inputs, outputs, scratch memory and threads of one run of one kernel.
///
/// The parts are separate fields, so that a kernel can hold an input, an output and scratch at
/// once.
pub struct RunCx<'a> {
    /// The input leaves, in order.
    pub inputs: Inputs<'a>,
    /// The output leaves, in order.
    pub outputs: Outputs<'a>,
    /// As many bytes as the plan asked for, 64-byte aligned, contents undefined.
    pub scratch: &'a mut [u8],
    /// The threads.
    pub par: &'a Par,
}

/// One input leaf: dense storage in its spec's layout.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Dtype, shape, layout.
    pub spec: &'a TensorSpec,
    /// The storage; none where it is the output's (see [`RunCx::inout`]).
    pub bytes: Option<&'a [u8]>,
}

/// One output leaf.
pub enum Output<'a> {
    /// Memory to fill: dense storage in its spec's layout. Contents undefined, or the input's where
    /// it is computed in place.
    Fixed {
        /// Dtype, shape, layout.
        spec: &'a TensorSpec,
        /// The storage.
        bytes: &'a mut [u8],
    },
    /// The kernel decides the shape and hands over a tensor ([`Outputs::emit`]).
    Dynamic {
        /// Element type.
        dtype: DType,
        /// Where the tensor goes.
        slot: &'a mut Option<Tensor>,
    },
}

/// The input leaves of a run.
pub struct Inputs<'a>(pub SmallVec<[Input<'a>; 4]>);

impl<'a> Inputs<'a> {
    /// Number of leaves.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn at(&self, i: usize) -> Result<Input<'a>, RunError> {
        self.0.get(i).copied().ok_or_else(|| RunError::Internal(format!("there is no input {i}")))
    }

    /// Dtype, shape and layout of input `i`.
    ///
    /// # Errors
    /// Where there is no such input.
    pub fn spec(&self, i: usize) -> Result<&'a TensorSpec, RunError> {
        Ok(self.at(i)?.spec)
    }

    /// The storage of input `i`, as bytes.
    ///
    /// # Errors
    /// Where there is no such input, or it is shared with an output.
    pub fn bytes(&self, i: usize) -> Result<&'a [u8], RunError> {
        let shared = || RunError::Internal(format!("input {i} is computed in place: use inout"));
        self.at(i)?.bytes.map(placed).ok_or_else(shared)
    }

    /// The storage of input `i`: dense, in its spec's layout.
    ///
    /// # Errors
    /// Where the plan promised another dtype.
    pub fn get<T: Element>(&self, i: usize) -> Result<&'a [T], RunError> {
        let input = self.at(i)?;
        elements(self.bytes(i)?, input.spec.dtype)
    }

    /// Input `i` as a view; plain layout only.
    ///
    /// # Errors
    /// Where the layout is not plain.
    pub fn view(&self, i: usize) -> Result<TensorView<'a>, RunError> {
        let input = self.at(i)?;
        if input.spec.layout != Layout::Plain {
            return Err(RunError::Internal(format!("input {i} is not plain")));
        }
        Ok(TensorView::from_bytes(input.spec.dtype, input.spec.shape.clone(), self.bytes(i)?)?)
    }
}

/// The output leaves of a run. Each is taken once.
pub struct Outputs<'a>(pub SmallVec<[Option<Output<'a>>; 2]>);

impl<'a> Outputs<'a> {
    /// Number of leaves.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take_slot(&mut self, i: usize) -> Result<Output<'a>, RunError> {
        self.0.get_mut(i).and_then(Option::take).ok_or_else(|| {
            RunError::Internal(format!("output {i} does not exist, or was taken before"))
        })
    }

    /// Takes the storage of output `i` as bytes, with its spec.
    ///
    /// # Errors
    /// Where there is no such output, it was taken before, or its shape is the kernel's to decide.
    pub fn take_bytes(&mut self, i: usize) -> Result<(&'a TensorSpec, &'a mut [u8]), RunError> {
        match self.take_slot(i)? {
            Output::Fixed { spec, bytes } => Ok((spec, placed_mut(bytes))),
            Output::Dynamic { .. } => {
                Err(RunError::Internal(format!("output {i} has no shape yet: use emit")))
            }
        }
    }

    /// Takes the storage of output `i`: dense, in its spec's layout. Contents are undefined.
    ///
    /// # Errors
    /// Where the plan promised another dtype, or the output was taken before.
    pub fn take<T: Element>(&mut self, i: usize) -> Result<&'a mut [T], RunError> {
        let (spec, bytes) = self.take_bytes(i)?;
        if T::DTYPE == DType::Bool {
            bytes.fill(0); // undefined contents need not be bools
        }
        elements_mut(bytes, spec.dtype)
    }

    /// Hands over the tensor of an output whose shape depends on data.
    ///
    /// # Errors
    /// Where the output's shape was planned, or the dtype is another.
    pub fn emit(&mut self, i: usize, tensor: Tensor) -> Result<(), RunError> {
        match self.take_slot(i)? {
            Output::Dynamic { dtype, slot } if dtype == tensor.dtype() => {
                *slot = Some(tensor);
                Ok(())
            }
            _ => Err(RunError::Internal(format!("output {i} was planned with another type"))),
        }
    }
}

impl<'a> RunCx<'a> {
    /// Input `input` and output `output` of an elementwise kernel: apart, or the same memory.
    ///
    /// # Errors
    /// Where the plan promised another dtype, or the output was taken before.
    pub fn inout<T: Element>(
        &mut self,
        input: usize,
        output: usize,
    ) -> Result<InOut<'a, T>, RunError> {
        match self.inputs.at(input)?.bytes {
            None => {
                let (spec, bytes) = self.outputs.take_bytes(output)?;
                Ok(InOut::Same(elements_mut(bytes, spec.dtype)?))
            }
            Some(bytes) => {
                let src = elements(placed(bytes), self.inputs.spec(input)?.dtype)?;
                Ok(InOut::Apart { src, dst: self.outputs.take(output)? })
            }
        }
    }

    /// Takes the scratch memory as elements: as many as fit.
    ///
    /// # Errors
    /// Never for memory that the executor lays out: it is 64-byte aligned.
    pub fn take_scratch<T: bytemuck::Pod>(&mut self) -> Result<&'a mut [T], RunError> {
        let bytes = std::mem::take(&mut self.scratch);
        if bytes.is_empty() {
            return Ok(&mut []); // no scratch memory was asked for: not aligned either
        }
        let whole = bytes.len() / size_of::<T>().max(1) * size_of::<T>();
        bytemuck::try_cast_slice_mut(&mut bytes[..whole])
            .map_err(|e| RunError::Internal(format!("scratch memory: {e}")))
    }
}

/// Bytes where elements of any type may lie: a caller's tensor without any has no place that says
/// so.
fn placed(bytes: &[u8]) -> &[u8] {
    if bytes.is_empty() { bytemuck::cast_slice::<u128, u8>(&[]) } else { bytes }
}

/// The same.
fn placed_mut(bytes: &mut [u8]) -> &mut [u8] {
    if bytes.is_empty() { bytemuck::cast_slice_mut::<u128, u8>(&mut []) } else { bytes }
}

fn elements<T: Element>(bytes: &[u8], found: DType) -> Result<&[T], RunError> {
    if T::DTYPE != found {
        return Err(plutino_tensor::TensorError::DType { expected: T::DTYPE, found }.into());
    }
    T::of_bytes(bytes).map_err(|e| RunError::Internal(e.to_string()))
}

fn elements_mut<T: Element>(bytes: &mut [u8], found: DType) -> Result<&mut [T], RunError> {
    if T::DTYPE != found {
        return Err(plutino_tensor::TensorError::DType { expected: T::DTYPE, found }.into());
    }
    T::of_bytes_mut(bytes).map_err(|e| RunError::Internal(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_without_any_lie_anywhere() {
        let spec = TensorSpec::new(DType::F64, [3, 0]);
        let (bytes, mut made) = ([0u8; 3], [0u8; 3]);
        for at in [1, 2] {
            let inputs = [Input { spec: &spec, bytes: Some(&bytes[at..at]) }];
            let inputs = Inputs(inputs.into_iter().collect());
            assert!(inputs.get::<f64>(0).unwrap().is_empty() && inputs.get::<f32>(0).is_err());
            assert!(bytemuck::try_cast_slice::<u8, f64>(inputs.bytes(0).unwrap()).is_ok());
            let mut outputs = Outputs(Default::default());
            outputs.0.push(Some(Output::Fixed { spec: &spec, bytes: &mut made[at..at] }));
            assert!(outputs.take::<f64>(0).unwrap().is_empty());
        }
    }
}

//! Changes of physical layout. Not an operator of PNNX: the layout pass puts it between operators that compute
//! in channel blocks and those that do not.

use crate::{
    Kernel, Operator, PlanCx, PlanError, Planned, RunCx, RunError, ShapeError, TensorValue,
    ValueSpec,
};
use plutino_kernels::Isa;
use plutino_kernels::nchwc::{from_blocked, to_blocked};
use plutino_tensor::{DType, Layout};

/// The same tensor in another layout.
#[derive(Debug, Clone)]
pub struct Reorder {
    /// The layout of the output.
    pub to: Layout,
}

impl Operator for Reorder {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, 0)?;
        if x.dtype() != DType::F32 || x.shape().rank() != 4 {
            return Err(ShapeError::Invalid(
                "only f32 tensors of rank 4 have blocked layouts".into(),
            ));
        }
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, 0)?;
        let (channels, pixels) = (x.shape().product(1..2), x.shape().product(2..4));
        let isa = cx.isa;
        let kernel = |name, block, convert: Convert| {
            Ok(Planned::new(ReorderKernel { isa, name, channels, pixels, block, convert }))
        };
        match (x.spec.layout, self.to) {
            // One pixel and whole blocks: both layouts are the same bytes.
            (Layout::Plain, Layout::Blocked { block })
            | (Layout::Blocked { block }, Layout::Plain)
                if pixels == 1 && channels.is_multiple_of(block) =>
            {
                Ok(Planned::view_of(0))
            }
            (Layout::Plain, Layout::Blocked { block }) => {
                kernel("reorder.to_blocked", block, to_blocked)
            }
            (Layout::Blocked { block }, Layout::Plain) => {
                kernel("reorder.from_blocked", block, from_blocked)
            }
            (from, to) if from == to => Ok(Planned::view_of(0)),
            (from, to) => Err(PlanError::Unsupported(format!("a reorder from {from} to {to}"))),
        }
    }
}

/// One of the two directions: instruction set, source, destination, channels, pixels of a plane, block, threads.
type Convert = fn(Isa, &[f32], &mut [f32], usize, usize, usize, &plutino_kernels::Par);

struct ReorderKernel {
    isa: Isa,
    name: &'static str,
    channels: usize,
    pixels: usize,
    block: usize,
    convert: Convert,
}

impl Kernel for ReorderKernel {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let x = cx.inputs.get::<f32>(0)?;
        let y = cx.outputs.take::<f32>(0)?;
        (self.convert)(self.isa, x, y, self.channels, self.pixels, self.block, cx.par);
        Ok(())
    }
}

//! Changes of physical layout. Not an operator of PNNX: the layout pass puts it between operators
//! that compute in channel blocks and those that do not, and in the place of permutations that lie
//! in between.

use crate::support::assemble::Copies;
use crate::support::rearrange::{Geometry, invalid};
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
    /// Whether the plain one of input and output is (N, H, W, C): a permutation is done on the way.
    /// Whole blocks only.
    pub channels_last: bool,
}

impl Reorder {
    /// The order of dimensions that takes (N, C, H, W) to (N, H, W, C).
    pub const TO_CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];
    /// The order of dimensions that takes (N, H, W, C) to (N, C, H, W).
    pub const FROM_CHANNELS_LAST: [usize; 4] = [0, 3, 1, 2];

    /// The permutation that is done on the way.
    fn order(&self) -> Option<[usize; 4]> {
        self.channels_last.then_some(match self.to {
            Layout::Plain => Self::TO_CHANNELS_LAST,
            _ => Self::FROM_CHANNELS_LAST,
        })
    }

    /// Neighbouring channels are neighbours in both layouts: strided copies of whole blocks.
    fn plan_channels_last(&self, x: &TensorValue) -> Result<Planned, PlanError> {
        let from = match (x.spec.layout, self.to, x.shape().last()) {
            (Layout::Blocked { block }, Layout::Plain, _) if x.shape()[1].is_multiple_of(block) => {
                Geometry::dense(&x.spec.physical_shape()).permute(&[0, 2, 3, 1, 4])
            }
            (Layout::Plain, Layout::Blocked { block }, Some(&c)) if c.is_multiple_of(block) => {
                Geometry::dense(x.shape()).unmerge(3, c / block, block).permute(&[0, 3, 1, 2, 4])
            }
            (from, to, _) => {
                let what = format!("a reorder of {} from {from} to {to}", x.shape());
                return Err(PlanError::Unsupported(what));
            }
        };
        let mut copies = Copies::default();
        copies.push(0, 0, DType::F32, &from, None)?;
        Ok(copies.into_planned())
    }
}

impl Operator for Reorder {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, 0)?;
        if x.dtype() != DType::F32 || x.shape().rank() != 4 {
            return Err(invalid("only f32 tensors of rank 4 have blocked layouts"));
        }
        let shape = match self.order() {
            Some(order) => order.iter().map(|&d| x.shape()[d]).collect(),
            None => x.shape().clone(),
        };
        Ok(vec![ValueSpec::tensor(x.dtype(), shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, 0)?;
        if self.channels_last {
            return self.plan_channels_last(x);
        }
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

/// One of the two directions: instruction set, source, destination, channels, pixels of a plane,
/// block, threads.
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

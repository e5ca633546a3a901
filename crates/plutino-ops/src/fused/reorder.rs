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
use smallvec::SmallVec;

/// The same tensor in another layout.
#[derive(Debug, Clone)]
pub struct Reorder {
    /// The layout of the output.
    pub to: Layout,
    /// Whether the plain one of input and output is (N, spatial..., C): a permutation is done on
    /// the way. Whole blocks only.
    pub channels_last: bool,
}

impl Reorder {
    /// The order of dimensions that takes (N, C, spatial...) to (N, spatial..., C), of tensors of
    /// this rank.
    pub fn to_channels_last(rank: usize) -> SmallVec<[usize; 5]> {
        [0].into_iter().chain(2..rank).chain([1]).collect()
    }

    /// The order of dimensions that takes (N, spatial..., C) to (N, C, spatial...).
    pub fn from_channels_last(rank: usize) -> SmallVec<[usize; 5]> {
        let last = rank.saturating_sub(1);
        [0, last].into_iter().chain(1..last).collect()
    }

    /// The permutation that is done on the way.
    fn order(&self, rank: usize) -> Option<SmallVec<[usize; 5]>> {
        self.channels_last.then(|| match self.to {
            Layout::Plain => Self::to_channels_last(rank),
            _ => Self::from_channels_last(rank),
        })
    }

    /// Neighbouring channels are neighbours in both layouts: strided copies of whole blocks.
    fn plan_channels_last(&self, x: &TensorValue) -> Result<Planned, PlanError> {
        // Channels within a block stay the last.
        let rank = x.shape().rank();
        let of_blocks = |mut order: SmallVec<[usize; 5]>| {
            order.push(rank);
            order
        };
        let from = match (x.spec.layout, self.to, x.shape().last()) {
            (Layout::Blocked { block }, Layout::Plain, _) if x.shape()[1].is_multiple_of(block) => {
                let order = of_blocks(Self::to_channels_last(rank));
                Geometry::dense(&x.spec.physical_shape()).permute(&order)
            }
            (Layout::Plain, Layout::Blocked { block }, Some(&c)) if c.is_multiple_of(block) => {
                let order = of_blocks(Self::from_channels_last(rank));
                Geometry::dense(x.shape()).unmerge(rank - 1, c / block, block).permute(&order)
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
        if !x.spec.may_lie_in_blocks() {
            return Err(invalid("only f32 tensors of rank 3 to 5 have blocked layouts"));
        }
        let shape = match self.order(x.shape().rank()) {
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
        let (channels, pixels) = (x.shape().product(1..2), x.shape().product(2..x.shape().rank()));
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

//! What an algorithm is, and the table of them.
//!
//! An algorithm is a file: it says for which problems, post-ops and instruction sets it exists,
//! what it is estimated to cost, how it wants its weights, how much workspace it takes, and
//! computes. Its row in [`ALGORITHMS`] is all that the rest of the crate knows of it.

use crate::choose::Request;
use crate::nchwc::depthwise::Depthwise;
use crate::nchwc::direct::Shared;
use crate::nchwc::winograd::Variant;
use crate::nchwc::{
    depthwise, direct, first_layer, grouped, on_tiles, pairs, phases, pointwise, single_pixel,
    winograd,
};
use crate::plain::{gemm, im2col, transposed};
use crate::post_ops::{Bf16Tensors, Residual, ResidualOrder};
use crate::problem::{ConvError, ConvProblem, check_len};
use plutino_cpu::{PackKey, Par};
use plutino_products::gemm::MatrixUnit;
use plutino_tensor::FloatSource;
use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;

/// How an algorithm wants its image, and how it makes its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvLayout {
    /// Row-major `(N, C, ...)`, both.
    Plain,
    /// A plain image (and factors); output and residual in channel blocks.
    PlainToBlocked,
    /// Channel blocks, all of them: see [`nchwc`](crate::nchwc).
    Blocked,
}

impl ConvLayout {
    /// Every layout, the preferred ones first.
    pub const ALL: [Self; 3] = [Self::PlainToBlocked, Self::Blocked, Self::Plain];

    /// Whether the image lies in channel blocks.
    pub fn reads_blocks(self) -> bool {
        self == Self::Blocked
    }

    /// Whether the output lies in channel blocks.
    pub fn writes_blocks(self) -> bool {
        self != Self::Plain
    }
}

/// A row of [`ALGORITHMS`].
#[derive(Debug)]
pub struct Algorithm {
    /// As profiles show it.
    pub name: &'static str,
    /// How its tensors lie.
    pub layout: ConvLayout,
    /// The algorithm bound to a problem; none where it does not exist.
    pub(crate) bind: fn(&Request<'_>) -> Option<Box<dyn BoundAlgorithm>>,
}

const fn row(
    name: &'static str,
    layout: ConvLayout,
    bind: fn(&Request<'_>) -> Option<Box<dyn BoundAlgorithm>>,
) -> Algorithm {
    Algorithm { name, layout, bind }
}

/// Every algorithm. Of those that cost the same, the first is taken.
pub static ALGORITHMS: &[Algorithm] = &[
    row("single_pixel", ConvLayout::Blocked, |r| erased(single_pixel::bind(r))),
    row("depthwise", ConvLayout::Blocked, |r| erased(depthwise::bind(r))),
    row("grouped", ConvLayout::Blocked, |r| erased(grouped::bind(r))),
    row("pointwise_bf16", ConvLayout::Blocked, |r| erased(pairs::bind_pointwise(r))),
    row("pointwise", ConvLayout::Blocked, |r| erased(pointwise::bind(r))),
    row("winograd2x2_3x3", ConvLayout::Blocked, |r| erased(winograd::bind(r, Variant::Two))),
    row("winograd4x4_3x3", ConvLayout::Blocked, |r| erased(winograd::bind(r, Variant::Four))),
    row("winograd5x5_3x3", ConvLayout::Blocked, |r| erased(winograd::bind(r, Variant::Five))),
    row("winograd4x4_4x4", ConvLayout::Blocked, |r| erased(winograd::bind(r, Variant::FourFour))),
    row("winograd4x4_3x3s2", ConvLayout::Blocked, |r| {
        erased(winograd::bind(r, Variant::FourStrided))
    }),
    row("tiles", ConvLayout::Blocked, |r| erased(on_tiles::bind(r))),
    row("direct_bf16", ConvLayout::Blocked, |r| erased(pairs::bind(r))),
    row("direct", ConvLayout::Blocked, |r| erased(direct::bind(r))),
    row("phases_tiles", ConvLayout::Blocked, |r| erased(on_tiles::bind_phases(r))),
    row("phases_bf16", ConvLayout::Blocked, |r| erased(phases::bind_pairs(r))),
    row("phases", ConvLayout::Blocked, |r| erased(phases::bind(r))),
    row("winograd2x2_3x3_plain", ConvLayout::PlainToBlocked, |r| {
        erased(winograd::bind_plain(r, Variant::Two))
    }),
    row("winograd4x4_3x3_plain", ConvLayout::PlainToBlocked, |r| {
        erased(winograd::bind_plain(r, Variant::Four))
    }),
    row("winograd5x5_3x3_plain", ConvLayout::PlainToBlocked, |r| {
        erased(winograd::bind_plain(r, Variant::Five))
    }),
    row("winograd4x4_4x4_plain", ConvLayout::PlainToBlocked, |r| {
        erased(winograd::bind_plain(r, Variant::FourFour))
    }),
    row("tiles_plain", ConvLayout::PlainToBlocked, |r| erased(on_tiles::bind_plain(r))),
    row("first_layer_bf16", ConvLayout::PlainToBlocked, |r| erased(first_layer::bind_pairs(r))),
    row("first_layer", ConvLayout::PlainToBlocked, |r| erased(first_layer::bind(r))),
    row("gemm", ConvLayout::Plain, |r| erased(gemm::bind(r))),
    row("im2col", ConvLayout::Plain, |r| erased(im2col::bind(r))),
    row("transposed", ConvLayout::Plain, |r| erased(transposed::bind(r))),
];

/// An algorithm bound to a problem: what its file implements.
pub(crate) trait Bound: Debug + Send + Sync + Sized + 'static {
    /// The weights as it wants them.
    type Weights: Debug + Send + Sync + 'static;

    /// The estimated time.
    fn cycles(&self) -> f64;

    /// What multiplies bf16, where its name says so.
    fn unit(&self) -> Option<MatrixUnit> {
        None
    }

    /// Which tensors it can have as bf16: if not all that it is asked for are, it is not chosen.
    fn bf16_tensors(&self) -> Bf16Tensors {
        Bf16Tensors::NONE
    }

    /// What decides the form of its weights.
    fn pack_key(&self) -> PackKey;

    /// Prepares weights, whose number is right: those of some output channels at a time, if it can.
    fn pack(&self, weight: &mut dyn FloatSource, par: &Par) -> Result<Self::Weights, ConvError>;

    /// Bytes of packed weights.
    fn bytes(weights: &Self::Weights) -> usize;

    /// The bias as it wants it: as it is, or padded. Its length is right.
    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        Cow::Borrowed(bias.unwrap_or_default())
    }

    /// Bytes of workspace.
    fn workspace(&self) -> usize;

    /// The tiles of a 1x1 convolution that can compute some pixels by themselves.
    fn pointwise(&self) -> Option<&Shared> {
        None
    }

    /// A depthwise convolution, which can compute some rows by themselves.
    fn depthwise(&self) -> Option<&Depthwise> {
        None
    }

    /// Computes. Lengths are right, and the workspace starts at a cache line.
    fn run(
        &self,
        weights: &Self::Weights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError>;
}

/// The tensors of a run.
pub(crate) struct Operands<'a> {
    pub(crate) x: &'a [f32],
    /// As [`Bound::bias`] made it.
    pub(crate) bias: &'a [f32],
    pub(crate) factors: Option<&'a [f32]>,
    pub(crate) residual: Option<Residual<'a>>,
    pub(crate) y: &'a mut [f32],
}

impl<'a> Operands<'a> {
    /// The residual that is added when `order` says.
    pub(crate) fn residual(&self, order: ResidualOrder) -> Option<&'a [f32]> {
        self.residual.filter(|r| r.order == order).map(|r| r.data)
    }
}

/// [`Bound`] without its type: weights are told apart by their key, then by their type.
pub(crate) trait BoundAlgorithm: Debug + Send + Sync {
    fn cycles(&self) -> f64;
    fn unit(&self) -> Option<MatrixUnit>;
    fn bf16_tensors(&self) -> Bf16Tensors;
    fn pack_key(&self) -> PackKey;
    fn pack(
        &self,
        problem: &ConvProblem,
        weight: &mut dyn FloatSource,
        par: &Par,
    ) -> Result<ConvWeights, ConvError>;
    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]>;
    fn workspace(&self) -> usize;
    fn pointwise(&self) -> Option<&Shared>;
    fn depthwise(&self) -> Option<&Depthwise>;
    fn run(
        &self,
        weights: &ConvWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError>;
}

impl<B: Bound> BoundAlgorithm for B {
    fn cycles(&self) -> f64 {
        Bound::cycles(self)
    }

    fn unit(&self) -> Option<MatrixUnit> {
        Bound::unit(self)
    }

    fn bf16_tensors(&self) -> Bf16Tensors {
        Bound::bf16_tensors(self)
    }

    fn pack_key(&self) -> PackKey {
        Bound::pack_key(self)
    }

    fn pack(
        &self,
        problem: &ConvProblem,
        weight: &mut dyn FloatSource,
        par: &Par,
    ) -> Result<ConvWeights, ConvError> {
        let packed = Bound::pack(self, weight, par)?;
        let bytes = B::bytes(&packed);
        let (key, sizes) = (Bound::pack_key(self), problem.weight_sizes());
        Ok(ConvWeights { key, sizes, bytes, packed: Box::new(packed) })
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        Bound::bias(self, bias)
    }

    fn workspace(&self) -> usize {
        Bound::workspace(self)
    }

    fn pointwise(&self) -> Option<&Shared> {
        Bound::pointwise(self)
    }

    fn depthwise(&self) -> Option<&Depthwise> {
        Bound::depthwise(self)
    }

    fn run(
        &self,
        weights: &ConvWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        Bound::run(self, weights.packed_for(self)?, operands, workspace, par)
    }
}

fn erased<B: Bound>(bound: Option<B>) -> Option<Box<dyn BoundAlgorithm>> {
    bound.map(|bound| Box::new(bound) as Box<dyn BoundAlgorithm>)
}

/// Weights packed for an algorithm: for any convolution that has the same
/// [`pack_key`](crate::Convolution::pack_key), whatever its batch and image size.
#[derive(Debug)]
pub struct ConvWeights {
    key: PackKey,
    /// Groups, channels and taps.
    pub(crate) sizes: [usize; 6],
    bytes: usize,
    packed: Box<dyn Any + Send + Sync>,
}

impl ConvWeights {
    /// As this algorithm wants them.
    pub(crate) fn packed_for<B: Bound>(&self, bound: &B) -> Result<&B::Weights, ConvError> {
        let (expected, found) = (bound.pack_key(), self.key);
        let packed = self.packed.downcast_ref().filter(|_| found == expected);
        packed.ok_or(ConvError::Packed { expected, found })
    }

    /// What decided their form.
    pub fn key(&self) -> PackKey {
        let [groups, ..] = self.sizes;
        PackKey { groups, ..self.key }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The first `len` elements of a workspace, and the bytes behind them.
pub(crate) fn take<T: bytemuck::Pod>(
    workspace: &mut [u8],
    len: usize,
) -> Result<(&mut [T], &mut [u8]), ConvError> {
    if len == 0 {
        return Ok((&mut [], workspace)); // nothing is aligned anyhow
    }
    let bytes = len.saturating_mul(size_of::<T>());
    let found = workspace.len();
    let short = ConvError::Length { what: "workspace", found, expected: bytes };
    let (own, rest) = workspace.split_at_mut_checked(bytes).ok_or(short)?;
    let own = bytemuck::try_cast_slice_mut(own).map_err(|_| ConvError::Misaligned)?;
    check_len("workspace", own.len(), len)?;
    Ok((own, rest))
}

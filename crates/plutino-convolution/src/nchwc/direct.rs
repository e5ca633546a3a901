//! Direct convolution on channel blocks: any window, stride and dilation, with zeros around the
//! image, which may be a line or a volume; with groups of whole blocks.
//!
//! ```text
//! y[n, o, p] = act(bias[o] + residual[n, o, p]
//!                  + sum over taps t, channels c of x[n, c, at(p, t)] w[o, c, t])
//!
//!                two blocks of output channels (vectors)
//!   MR pixels   [ sum sum ]      one step: MR broadcasts of x, 2 loads of w, 2 MR multiply-adds
//!               [ sum sum ]      MR = 12 with AVX-512, 6 with AVX2 (tile.rs)
//! ```
//! Loops, outermost first: image and part of the pixels (a task; its input stays in the
//! second-level cache) / pair of output channel blocks (its weights stay in the first level) / tile
//! / input channel block / tap / channel. Where taps lie is looked up in a table of offsets, made
//! once for each task. The sum over taps and channels runs in one fixed order: the result does not
//! depend on tasks.
//!
//! For: windows that Winograd does not take or does not pay for, strides, dilation, groups.
//! Figures: docs/decisions/002-direct-convolution.md.

use super::tile::NB;
use super::tiled::{self, ConvInput, DirectWeights, Tiled, pad_bias};
use super::window::Window;
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::post_ops::Bf16Tensors;
use crate::problem::{ConvError, ConvProblem};
use plutino_cpu::{Isa, PackKey, Par};
use plutino_tensor::{DType, FloatSource};
use std::borrow::Cow;

/// Bound to a problem: this, and the others whose tiles read something else.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) problem: ConvProblem,
    pub(super) isa: Isa,
    pub(super) threads: usize,
    cycles: f64,
    bf16: Bf16Tensors,
    pub(super) input: ConvInput,
    pub(super) tiled: Tiled,
}

/// Whether no group of channels cuts a block.
pub(super) fn has_whole_groups(problem: &ConvProblem, isa: Isa) -> bool {
    let whole = |channels: usize| channels.is_multiple_of(isa.lanes());
    problem.groups() == 1 || (whole(problem.group_in()) && whole(problem.group_out()))
}

/// None where groups cut blocks.
pub(crate) fn bind(request: &Request<'_>) -> Option<Shared> {
    let &Request { problem, post_ops, isa, threads, .. } = request;
    let window = Window::of_volume(&problem)?;
    if !has_whole_groups(&problem, isa) || post_ops.factors {
        return None;
    }
    let channels = [problem.in_channels(), problem.out_channels()];
    let tiled =
        Tiled::in_place(isa, window, channels, problem.batch(), post_ops.activation, threads);
    Some(Shared::new(request, ConvInput::Blocked, tiled))
}

impl Shared {
    pub(super) fn new(request: &Request<'_>, input: ConvInput, tiled: Tiled) -> Self {
        let &Request { problem, isa, threads, .. } = request;
        let (threads, cycles, bf16) = (threads.max(1), tiled::cycles(request), Bf16Tensors::NONE);
        Self { problem, isa, threads, cycles, bf16, input, tiled }
    }

    /// With another estimate.
    pub(super) fn costing(self, cycles: f64) -> Self {
        Self { cycles, ..self }
    }

    /// Which tensors could be bf16.
    pub(super) fn taking(self, bf16: Bf16Tensors) -> Self {
        Self { bf16, ..self }
    }

    /// Computes with these weights: those of the plan, or scaled ones.
    pub(super) fn run(
        &self,
        weights: DirectWeights<&[f32]>,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let (scratch, _) = take::<isize>(workspace, self.tiled.scratch(self.threads))?;
        self.tiled.run(operands, weights, scratch, par);
        Ok(())
    }
}

/// Of all that share it: only what is read differs.
impl Bound for Shared {
    type Weights = DirectWeights;

    fn cycles(&self) -> f64 {
        self.cycles
    }

    fn bf16_tensors(&self) -> Bf16Tensors {
        self.bf16
    }

    fn pack_key(&self) -> PackKey {
        let form = match self.input {
            ConvInput::Blocked => "conv.direct",
            ConvInput::Plain => "conv.direct.plain",
            ConvInput::Pairs => "conv.direct.pairs",
            ConvInput::PlainPairs => "conv.direct.plain.pairs",
        };
        let key = PackKey::f32(form, [NB * self.isa.lanes(), 0, 0], self.isa);
        match self.input.is_of_pairs() {
            true => PackKey { precision: DType::Bf16, ..key },
            false => key,
        }
    }

    fn pack(&self, weight: &mut dyn FloatSource, _: &Par) -> Result<DirectWeights, ConvError> {
        let p = &self.problem;
        let channels = [p.group_out(), p.group_in()];
        let block = self.isa.lanes();
        let pack = match self.input.is_of_pairs() {
            true => DirectWeights::pack_pairs,
            false => DirectWeights::pack,
        };
        Ok(pack(weight, p.groups(), channels, p.taps(), block, self.input)?)
    }

    fn bytes(weights: &DirectWeights) -> usize {
        weights.bytes()
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        let p = &self.problem;
        Cow::Owned(pad_bias(bias, p.groups(), p.group_out(), self.isa.lanes()))
    }

    fn pointwise(&self) -> Option<&Shared> {
        (self.problem.groups() == 1 && self.tiled.is_pointwise()).then_some(self)
    }

    fn workspace(&self) -> usize {
        self.tiled.scratch(self.threads).saturating_mul(size_of::<isize>())
    }

    fn run(
        &self,
        weights: &DirectWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        Shared::run(self, weights.view(), operands, workspace, par)
    }
}

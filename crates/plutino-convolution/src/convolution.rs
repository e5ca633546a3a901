//! A convolution with its algorithm chosen, for anybody's slices.

use crate::algorithm::{Algorithm, BoundAlgorithm, ConvLayout, ConvWeights, Operands};
use crate::choose::Request;
use crate::nchwc::format::Format;
use crate::post_ops::{Bf16Tensors, PostOps, Residual};
use crate::problem::{ConvError, ConvProblem, check_len};
use plutino_cpu::simd::LINE;
use plutino_cpu::{Isa, PackKey, Par};
use plutino_tensor::{FloatSource, Floats};
use std::borrow::Cow;

/// A convolution planned for its sizes: made by [`choose`](crate::choose()).
///
/// ```
/// use plutino_convolution::{Axis, ConvArgs, ConvProblem, Request, Window, choose};
/// use plutino_cpu::Par;
///
/// // One image of 2 channels and 5 x 4 pixels, 3 windows of 3 x 3, padding 1.
/// let window = Window { kernel: 3, padding: (1, 1), ..Window::default() };
/// let axes = [Axis::new(5, window)?, Axis::new(4, window)?];
/// let problem = ConvProblem::new(1, 1, 2, 3, &axes)?;
/// let conv = choose(&Request::plain(problem))?;
///
/// let weights = conv.pack(&vec![1.0; problem.weight_len()][..], &Par::serial())?;
/// let mut workspace = plutino_tensor::AlignedBuf::zeroed(conv.workspace())?;
/// let mut y = vec![0.0; problem.output_len()];
/// conv.run(
///     ConvArgs {
///         x: &vec![1.0; problem.input_len()],
///         weights: &weights,
///         bias: &conv.bias(Some(&[0.5; 3]))?,
///         factors: None,
///         residual: None,
///         y: &mut y,
///         workspace: workspace.as_mut_bytes(),
///     },
///     &Par::serial(),
/// )?;
/// assert_eq!((y[0], y[5]), (8.5, 18.5)); // a corner sees 2 x 2 pixels of both channels
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Convolution {
    problem: ConvProblem,
    post_ops: PostOps,
    bf16: Bf16Tensors,
    isa: Isa,
    threads: usize,
    algorithm: &'static Algorithm,
    bound: Box<dyn BoundAlgorithm>,
    /// Elements of a prepared bias where there is none.
    no_bias: usize,
    /// Bytes.
    workspace: usize,
}

/// What [`Convolution::run`] reads and writes. Lengths are those of the layout: see
/// [`Convolution::input_len`], [`Convolution::residual_len`] and [`Convolution::output_len`].
#[derive(Debug)]
pub struct ConvArgs<'a> {
    /// The images.
    pub x: &'a [f32],
    /// Of [`Convolution::pack`].
    pub weights: &'a ConvWeights,
    /// Of [`Convolution::bias`].
    pub bias: &'a [f32],
    /// A factor for each channel of each image, where the post-ops have them, laid out as an input
    /// of one pixel.
    pub factors: Option<&'a [f32]>,
    /// Laid out as the output, where the post-ops have it; in blocks of bf16 where it was said so.
    pub residual: Option<&'a [f32]>,
    /// The results.
    pub y: &'a mut [f32],
    /// [`Convolution::workspace`] bytes, at a multiple of 64; what they hold does not matter.
    pub workspace: &'a mut [u8],
}

impl Convolution {
    pub(crate) fn new(
        request: &Request<'_>,
        algorithm: &'static Algorithm,
        bound: Box<dyn BoundAlgorithm>,
    ) -> Self {
        let Request { problem, post_ops, bf16, isa, threads, .. } = *request;
        let no_bias = bound.bias(None).len();
        let workspace = bound.workspace().next_multiple_of(LINE);
        Self { problem, post_ops, bf16, isa, threads, algorithm, bound, no_bias, workspace }
    }

    /// The sizes.
    pub fn problem(&self) -> &ConvProblem {
        &self.problem
    }

    /// The algorithm's row.
    pub fn algorithm(&self) -> &'static Algorithm {
        self.algorithm
    }

    /// The algorithm and what computes it, as in `conv.direct.avx2` or `conv.tiles.c16.bf16x3.amx`.
    pub fn name(&self) -> String {
        let scaled = if self.post_ops.factors { "scaled_" } else { "" };
        let block = match self.layout().writes_blocks() {
            true => format!("c{}.", self.isa.lanes()),
            false => String::new(),
        };
        let computes = self.bound.unit().map_or_else(|| self.isa.to_string(), |u| u.to_string());
        format!("conv.{scaled}{}.{block}{computes}", self.algorithm.name)
    }

    /// How its tensors lie.
    pub fn layout(&self) -> ConvLayout {
        self.algorithm.layout
    }

    /// The estimated cycles of one core.
    pub fn cycles(&self) -> f64 {
        self.bound.cycles()
    }

    /// Which of its tensors are bf16, as it was asked for.
    pub fn bf16(&self) -> Bf16Tensors {
        self.bf16
    }

    /// Which of its tensors could be bf16: see [`Request::bf16`].
    pub fn bf16_tensors(&self) -> Bf16Tensors {
        self.bound.bf16_tensors()
    }

    /// Elements of the input: channels are padded to whole blocks where it lies in blocks; words of
    /// two, where these are of bf16.
    pub fn input_len(&self) -> usize {
        let (batch, channels) = (self.problem.batch(), self.problem.in_channels());
        let blocked = self.layout().reads_blocks();
        batch * self.channels(channels, blocked, self.bf16.input) * self.problem.in_plane()
    }

    /// Elements of the output: as for the input.
    pub fn output_len(&self) -> usize {
        self.results(self.bf16.output)
    }

    /// Elements of a residual: as for the input.
    pub fn residual_len(&self) -> usize {
        self.results(self.bf16.residual)
    }

    fn results(&self, bf16: bool) -> usize {
        let (batch, channels) = (self.problem.batch(), self.problem.out_channels());
        let blocked = self.layout().writes_blocks();
        batch * self.channels(channels, blocked, bf16) * self.problem.out_plane()
    }

    /// Elements of a pixel.
    fn channels(&self, channels: usize, blocked: bool, bf16: bool) -> usize {
        let block = self.isa.lanes();
        match blocked {
            true => Format::of(bf16).planes(channels.div_ceil(block)) * block,
            false => channels,
        }
    }

    /// What decides the form of packed weights: convolutions with equal keys can share those of a
    /// layer.
    pub fn pack_key(&self) -> PackKey {
        PackKey { groups: self.problem.groups(), ..self.bound.pack_key() }
    }

    /// Prepares weights, row-major as [`ConvProblem`] says.
    ///
    /// # Errors
    /// [`ConvError::Length`] for another number of weights; [`ConvError::Memory`].
    pub fn pack<'w>(
        &self,
        weight: impl Into<Floats<'w>>,
        par: &Par,
    ) -> Result<ConvWeights, ConvError> {
        self.pack_from(&mut weight.into(), par)
    }

    /// As [`Convolution::pack`], of numbers that are read while they are packed: those of some
    /// output channels at a time, where the algorithm can.
    ///
    /// # Errors
    /// As there, and those of the source.
    pub fn pack_from(
        &self,
        weight: &mut dyn FloatSource,
        par: &Par,
    ) -> Result<ConvWeights, ConvError> {
        check_len("weight", weight.len(), self.problem.weight_len())?;
        self.bound.pack(&self.problem, weight, par)
    }

    /// Prepares a bias, one number for each output channel.
    ///
    /// # Errors
    /// [`ConvError::Length`].
    pub fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Result<Cow<'b, [f32]>, ConvError> {
        let channels = self.problem.out_channels();
        check_len("bias", bias.map_or(channels, <[f32]>::len), channels)?;
        Ok(self.bound.bias(bias))
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    pub(crate) fn bound(&self) -> &dyn BoundAlgorithm {
        &*self.bound
    }

    pub(crate) fn post_ops(&self) -> PostOps {
        self.post_ops
    }

    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Whether weights and bias are those of such a layer.
    pub(crate) fn check_layer(&self, weights: &ConvWeights, bias: &[f32]) -> Result<(), ConvError> {
        let (expected, found) = (self.problem.weight_sizes(), weights.sizes);
        if found != expected {
            return Err(ConvError::Weights { expected, found });
        }
        if bias.is_empty() && self.no_bias == 0 {
            return Ok(());
        }
        let prepared = if self.no_bias == 0 { self.problem.out_channels() } else { self.no_bias };
        check_len("bias", bias.len(), prepared)
    }

    /// Computes.
    ///
    /// # Errors
    /// [`ConvError::Length`] where a slice is not of the plan's size, or is given and not planned
    /// for; [`ConvError::Packed`], [`ConvError::Weights`], [`ConvError::Misaligned`],
    /// [`ConvError::Threads`].
    pub fn run(&self, args: ConvArgs<'_>, par: &Par) -> Result<(), ConvError> {
        let ConvArgs { x, weights, bias, factors, residual, y, workspace } = args;
        let (inputs, outputs) = (self.input_len(), self.output_len());
        self.check_layer(weights, bias)?;
        check_len("input", x.len(), inputs)?;
        check_len("output", y.len(), outputs)?;
        let expected = if self.post_ops.residual.is_some() { self.residual_len() } else { 0 };
        check_len("residual", residual.map_or(0, <[f32]>::len), expected)?;
        let expected = match self.post_ops.factors {
            true => inputs.checked_div(self.problem.in_plane()).unwrap_or(0),
            false => 0,
        };
        check_len("factors", factors.map_or(0, <[f32]>::len), expected)?;
        check_workspace(workspace, self.workspace(), self.threads.max(1), par)?;
        if y.is_empty() {
            return Ok(());
        }
        let format = Format::of(self.bf16.residual);
        let residual = residual.zip(self.post_ops.residual);
        let residual = residual.map(|(data, order)| Residual { data, order, format });
        let operands = Operands { x, bias, factors, residual, y };
        self.bound.run(weights, operands, workspace, par)
    }
}

/// Whether a workspace is as long as planned and starts where it should, and the threads are no
/// more than planned.
pub(crate) fn check_workspace(
    workspace: &[u8],
    len: usize,
    threads: usize,
    par: &Par,
) -> Result<(), ConvError> {
    check_len("workspace", workspace.len().min(len), len)?;
    if !workspace.as_ptr().addr().is_multiple_of(LINE) && len > 0 {
        return Err(ConvError::Misaligned);
    }
    match par.threads() > threads {
        true => Err(ConvError::Threads { planned: threads, found: par.threads() }),
        false => Ok(()),
    }
}

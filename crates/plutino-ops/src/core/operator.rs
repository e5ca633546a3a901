//! The operator: meaning, independent of shapes.

use super::{
    Expansion, LayoutCx, PlanCx, PlanError, Planned, Room, ShapeError, StorageView, StrideRule,
    TensorValue, ValueSpec, Weight,
};
use crate::convolution::conv::Conv;
use crate::elementwise::Elementary;
use plutino_ir::expr::Expr;
use plutino_kernels::activation::Activation;
use smallvec::SmallVec;
use std::fmt::Debug;
use std::sync::Arc;

/// A decoded operator. Built from a PNNX node by a [`Builder`](super::Builder).
pub trait Operator: Debug + Send + Sync + 'static {
    /// Dtypes and shapes of the outputs (and their values, where they are known already), from
    /// those of the inputs. Layouts play no part: shapes are PyTorch's.
    ///
    /// # Errors
    /// Where PyTorch would refuse the inputs.
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError>;

    /// Binds the operator to concrete shapes and yields a kernel with nothing left to decide.
    ///
    /// # Errors
    /// Where no kernel computes these inputs.
    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError>;

    /// This operator with the work of a neighbour beside its own; none where it does not take that
    /// over. `inputs` are its own, without those that the neighbour brings, in the layouts that are
    /// known so far.
    fn absorb(&self, neighbour: &Neighbour, inputs: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        let _ = (neighbour, inputs);
        None
    }

    /// The operators that this one consists of for these inputs; none for most.
    ///
    /// # Errors
    /// Where PyTorch would refuse the inputs.
    fn expand(&self, inputs: &[ValueSpec]) -> Option<Result<Expansion, ShapeError>> {
        let _ = inputs;
        None
    }

    /// What this operator is in patterns of several operators that passes recognise; none for most.
    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        let _ = inputs;
        None
    }

    /// What is computed of each element, where the operator computes one output elementwise: to be
    /// joined with what others compute ([`Elementary::then`]).
    fn elementwise(&self) -> Option<Elementary> {
        None
    }

    /// The convolution that this operator is, to be computed together with another one
    /// ([`FusedDepthwise`](crate::FusedDepthwise)).
    fn convolution(&self) -> Option<&Conv> {
        None
    }

    /// In which physical layouts the operator computes; asked by the layout pass before
    /// [`Operator::plan`]. What it answers, `plan` must accept.
    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let _ = cx;
        LayoutSupport::PLAIN
    }

    /// Which of its tensors the operator takes and makes as bf16, in the layouts that it was given
    /// ([`Layout::BlockedBf16`](plutino_tensor::Layout::BlockedBf16),
    /// [`Layout::PlainBf16`](plutino_tensor::Layout::PlainBf16)); asked where the precision allows
    /// it, when [`Operator::layouts`] has been answered. What it answers, `plan` must accept, for
    /// each of these tensors by itself.
    fn bf16(&self, cx: &LayoutCx<'_>) -> Bf16Support {
        let _ = cx;
        Bf16Support::default()
    }

    /// What the operator does to strides, as PyTorch computes it. One that reads storage
    /// ([`StrideRule::Storage`]) must take over what its input is a view of
    /// ([`Neighbour::View`]) before it is planned.
    fn stride_rule(&self, inputs: &[ValueSpec]) -> StrideRule {
        let _ = inputs;
        StrideRule::Unknown
    }

    /// The dimension along which the output is input 0 followed by input 1, both of this rank and
    /// read by nothing else here: a cache to which something is appended; none for most.
    fn appends(&self, rank: usize) -> Option<usize> {
        let _ = rank;
        None
    }

    /// Whether [`Operator::plan_with_room`] takes this input with room to grow in this dimension.
    fn takes_room(&self, inputs: &[ValueSpec], input: usize, dim: usize) -> bool {
        let _ = (inputs, input, dim);
        false
    }

    /// [`Operator::plan`] where some inputs, which it takes so, lie in memory with room to grow.
    /// Shapes in `cx` are those of what is there; while running, the specs and the bytes of such
    /// inputs are those of the whole memory. What is beyond the end is nobody's: it is not read.
    ///
    /// # Errors
    /// As [`Operator::plan`].
    fn plan_with_room(&self, cx: &PlanCx<'_>, rooms: &[Room]) -> Result<Planned, PlanError> {
        match rooms {
            [] => self.plan(cx),
            _ => Err(PlanError::Unsupported("an input with room to grow".into())),
        }
    }

    /// Whether data are refused even where no output has an element: indices that nothing has,
    /// matrices without an inverse. Elsewhere such an operator is not run ([`Planned::of`]).
    fn refuses_data(&self) -> bool {
        false
    }

    /// Whether a run of the operator does more than make its outputs, such as to keep or to send
    /// something: it is run once in each run that needs it, never while a plan is made. A run needs
    /// what its results are made of, and what these come after (`^name=after` in a file).
    fn has_effects(&self) -> bool {
        false
    }

    /// Arithmetic and memory traffic of one run.
    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::moved(inputs, outputs)
    }
}

/// What an operator may take over from one beside it: from the only reader of its output
/// (a post-op), or from the producer of its input 0, which nobody else reads.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Neighbour {
    /// After: an activation function.
    Activation(Activation),
    /// After: the sum with a second tensor of the same shape, a residual connection, which becomes
    /// the last input.
    Add,
    /// Before: the multiplication of each channel by one factor for each image. The factors,
    /// `(N, C, 1, 1)`, become input 1.
    Factors,
    /// After: a scale and a shift of each channel of the output.
    Affine(ChannelAffine),
    /// Before: a constant of the model, which is this input. It becomes a weight of the operator,
    /// and is no input any more.
    Stored(usize, Weight),
    /// Before: so many zeros before and after each dimension.
    Zeros(Vec<(usize, usize)>),
    /// Before: each index of the dimension before the last two of this input so many times in a
    /// row, which becomes the input as it was before.
    Repeated(usize, usize),
    /// Before: views of memory. The input that [`StrideRule::Storage`] names is this part of the
    /// row-major value that becomes the input in its place.
    View(StorageView),
}

/// A scale and a shift for each channel: y = scale x + shift.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelAffine {
    /// What tells it from others of the model, such as the name of a weight.
    pub key: Arc<str>,
    /// By channel.
    pub scale: Arc<[f64]>,
    /// By channel.
    pub shift: Arc<[f64]>,
}

impl ChannelAffine {
    /// Numbers that have no name: told from others by a checksum of them.
    pub fn unnamed(scale: Arc<[f64]>, shift: Arc<[f64]>) -> Self {
        // FNV-1a, forwards with two bases.
        let mut sums = [0xcbf2_9ce4_8422_2325u64, 0x6c62_272e_07bb_0142];
        for byte in scale.iter().chain(&*shift).flat_map(|x| x.to_bits().to_le_bytes()) {
            for sum in &mut sums {
                *sum = (*sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(1);
            }
        }
        Self { key: format!("{:016x}{:016x}", sums[0], sums[1]).into(), scale, shift }
    }
}

/// What an operator with one output is in a pattern of several operators. Numbers are those of
/// inputs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Role {
    /// The products of two tensors of matrices, and nothing else.
    Product(usize, usize),
    /// The products of two tensors' elements, broadcast.
    Times(usize, usize),
    /// Softmax along the last dimension.
    SoftmaxOfRows(usize),
    /// The sum of tensors, each multiplied by a number, broadcast.
    Sum(Vec<(usize, f64)>),
    /// The input with its dimensions in this order.
    Permute(usize, Vec<usize>),
    /// f32 images (N, C, H, W) made of channels of the inputs: for each output an input and a
    /// channel of it, for each of its channels.
    Channels(Vec<Vec<(usize, usize)>>),
    /// An activation function of the only input.
    Activation(Activation),
    /// Each row of the output (an index of all dimensions but the last) depends on the same row of
    /// each input and on nothing else: some rows may be computed alone, as a matrix.
    ByRow,
    /// A scale and a shift of each channel (dimension 1) of input 0, known by now.
    Affine(ChannelAffine),
    /// The input with so many zeros before and after each dimension.
    Zeros(usize, Vec<(usize, usize)>),
    /// The input as it is: the same numbers in the same shape.
    Same(usize),
    /// The elements of the input in another shape.
    Reshape(usize),
    /// The input, with each index of this dimension so many times in a row.
    Repeat(usize, usize, usize),
    /// The mean of each row of the input: of its last dimension, which stays as 1.
    MeanOfRows(usize),
    /// Arithmetic on the inputs.
    Formula(Expr),
}

/// In which physical layout an operator takes an input, or makes an output. Only f32 tensors of
/// rank 4 have blocked ones: others are plain, whatever is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutOf {
    /// Row-major.
    Plain,
    /// In channel blocks.
    Blocks,
    /// In blocks if one of the inputs that say so lies in blocks, plain otherwise.
    Common,
    /// As the input comes, whatever the others are. An output cannot be asked for so: it is plain.
    Own,
}

/// Which tensors may be bf16 in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bf16Support {
    /// Whether they are plain ones, and not those in channel blocks.
    pub plain: bool,
    /// Numbers of inputs.
    pub inputs: SmallVec<[usize; 2]>,
    /// The only output.
    pub output: bool,
    /// Whether it is all inputs and the output, or none: what moves numbers without looking.
    pub together: bool,
}

impl Bf16Support {
    /// Of what moves numbers without looking at them, where it can.
    pub fn moves_if(supported: bool) -> Self {
        Self { output: supported, together: supported, ..Self::default() }
    }

    /// The same of what lies in rows.
    #[must_use]
    pub fn of_plain(self) -> Self {
        Self { plain: true, ..self }
    }

    /// Whether this input may be bf16.
    pub fn takes(&self, input: usize) -> bool {
        self.together || self.inputs.contains(&input)
    }
}

/// In which physical layouts an operator computes: for each input and each output, those beyond
/// the end of a list as its last one. Where an output would have to lie in blocks and cannot,
/// everything is plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutSupport {
    /// By input.
    pub inputs: &'static [LayoutOf],
    /// By output.
    pub outputs: &'static [LayoutOf],
}

impl LayoutSupport {
    /// Row-major inputs and outputs only.
    pub const PLAIN: Self = Self::same(&[LayoutOf::Plain]);
    /// All inputs and outputs plain, or all of them in blocks, as they come: elementwise operators,
    /// pooling, concatenation of whole blocks.
    pub const COMMON: Self = Self::same(&[LayoutOf::Common]);
    /// Inputs and outputs in blocks, for speed: convolutions.
    pub const BLOCKS: Self = Self::same(&[LayoutOf::Blocks]);

    const fn same(each: &'static [LayoutOf]) -> Self {
        Self { inputs: each, outputs: each }
    }

    /// [`Self::COMMON`] where that is supported.
    pub fn common_if(supported: bool) -> Self {
        if supported { Self::COMMON } else { Self::PLAIN }
    }

    /// How this input is taken.
    pub fn input(&self, at: usize) -> LayoutOf {
        Self::of(self.inputs, at)
    }

    /// How this output is made.
    pub fn output(&self, at: usize) -> LayoutOf {
        Self::of(self.outputs, at)
    }

    fn of(list: &[LayoutOf], at: usize) -> LayoutOf {
        list.get(at).or(list.last()).copied().unwrap_or(LayoutOf::Plain)
    }
}

/// Arithmetic and memory traffic of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts two.
    pub flops: u64,
    /// Bytes read and written, each once.
    pub bytes: u64,
    /// Results of a product or a convolution to which it applies an activation that is not cheap:
    /// one with an exponential, say. They are not among `flops`, which go at another rate.
    pub activations: u64,
}

impl Cost {
    /// The bytes of all inputs and outputs; no arithmetic.
    pub fn moved(inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Self {
        let bytes = inputs
            .iter()
            .chain(outputs)
            .flat_map(ValueSpec::leaves)
            .filter_map(ValueSpec::as_tensor)
            .map(|t| t.spec.storage_bytes().unwrap_or(0) as u64)
            .fold(0, u64::saturating_add);
        Self { bytes, ..Self::default() }
    }

    /// That of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            flops: self.flops.saturating_add(other.flops),
            bytes: self.bytes.saturating_add(other.bytes),
            activations: self.activations.saturating_add(other.activations),
        }
    }

    /// As [`Cost::moved`], with an operation for each element of this input.
    pub fn folded(inputs: &[ValueSpec], outputs: &[ValueSpec], input: usize) -> Self {
        let numel = TensorValue::at(inputs, input).map_or(0, |x| x.shape().numel());
        Self { flops: numel as u64, ..Self::moved(inputs, outputs) }
    }

    /// As [`Cost::moved`], with `per_element` operations for each element of the outputs.
    pub fn elementwise(inputs: &[ValueSpec], outputs: &[ValueSpec], per_element: u64) -> Self {
        let numel = outputs
            .iter()
            .flat_map(ValueSpec::leaves)
            .filter_map(ValueSpec::as_tensor)
            .map(|t| t.spec.shape.numel() as u64)
            .fold(0, u64::saturating_add);
        Self { flops: numel.saturating_mul(per_element), ..Self::moved(inputs, outputs) }
    }
}

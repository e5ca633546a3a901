//! Planning: from meaning to a kernel.

use super::{Operator, PackCache, PlanError, RunCx, RunError, ValueSpec};
use plutino_kernels::Isa;
use plutino_kernels::gemm::{Compact, MatrixUnit, Narrow};
use plutino_kernels::simd::Pairs;
use plutino_kernels::tiles::{Terms, TileUnit};
use plutino_tensor::DType;
use std::ops::Deref;
use std::sync::Arc;

/// What an operator is bound to.
pub struct PlanCx<'a> {
    /// The inputs: shapes, layouts, known values.
    pub inputs: &'a [ValueSpec],
    /// The outputs as [`Operator::infer`](super::Operator::infer) gave them, with the layouts that
    /// were chosen.
    pub outputs: &'a [ValueSpec],
    /// What the session computes with; its fields can be read as if they were fields here.
    pub setting: Setting,
    /// Packed weights, shared by the sessions of a model.
    pub packs: &'a PackCache,
}

impl Deref for PlanCx<'_> {
    type Target = Setting;

    fn deref(&self) -> &Setting {
        &self.setting
    }
}

/// What an operator is asked for layouts with: see [`Operator::layouts`](super::Operator::layouts).
#[derive(Clone, Copy)]
pub struct LayoutCx<'a> {
    /// The inputs: shapes, dtypes, known values.
    pub inputs: &'a [ValueSpec],
    /// As that of [`PlanCx`] will be.
    pub setting: Setting,
}

impl LayoutCx<'_> {
    /// Channels of a block.
    pub fn block(&self) -> usize {
        self.setting.isa.lanes()
    }
}

/// What a session computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// The instruction set.
    pub isa: Isa,
    /// Number of threads that will run the kernels. Must not change a result, to the bit.
    pub threads: usize,
    /// What to spend memory on.
    pub memory: MemoryUse,
    /// What weights of f32 are kept as.
    pub weights: WeightDtype,
    /// How accurate products of f32 are at least.
    pub precision: Precision,
    /// What multiplies bf16.
    pub units: Units,
    /// Whether Winograd's algorithms may compute convolutions.
    pub winograd: bool,
    /// Whether the bits of a row must not depend on the rows beside it: where algorithms that round
    /// in different ways are compared, they are compared for a single row.
    pub batch_invariant: bool,
}

impl Setting {
    /// For speed, whatever memory that takes, and with all algorithms.
    pub fn new(isa: Isa, threads: usize) -> Self {
        Self {
            isa,
            threads,
            memory: MemoryUse::Fast,
            weights: WeightDtype::AsStored,
            precision: Precision::Highest,
            units: Units::Cpu,
            winograd: true,
            batch_invariant: false,
        }
    }

    /// What multiplies pairs of bf16, where the precision allows it. None: products are those of
    /// f32.
    fn pairs(&self) -> Option<Pairs> {
        let pairs = match self.units {
            Units::Cpu | Units::Amx | Units::Vectors => Pairs::of(self.isa),
            Units::EmulatedBf16 => Some(Pairs::EMULATED),
            Units::EmulatedAmx => None,
        };
        let allowed = self.precision == Precision::Medium;
        pairs.filter(|pairs| allowed && pairs.isa() == self.isa)
    }

    /// The same for so many threads.
    #[must_use]
    pub fn on_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// What computes convolutions and products with known matrices, where it is not f32: tiles,
    /// with as many terms as the precision asks for, else pairs.
    pub fn unit(&self) -> Option<MatrixUnit> {
        let terms = match self.precision {
            Precision::Medium => Terms::One,
            Precision::High => Terms::Two,
            Precision::Highest => Terms::Three,
        };
        // The CPU's unit is asked for, and tried, where somebody wants one and not before. It comes
        // with AVX-512, whose vectors finish what it computes.
        let tiles = match self.units {
            Units::Vectors | Units::EmulatedBf16 => None,
            Units::Cpu | Units::Amx if self.isa.lanes() < 16 => None,
            Units::Cpu | Units::Amx => TileUnit::of_cpu(),
            Units::EmulatedAmx => Some(TileUnit::EMULATED),
        };
        match tiles {
            Some(unit) => Some(MatrixUnit::Tiles(unit, terms)),
            None => self.pairs().map(MatrixUnit::Pairs),
        }
    }
}

/// What multiplies bf16, where the precision allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Units {
    /// What the CPU has. Its matrix unit (AMX) is used at the highest precision as well, where that
    /// is estimated to pay: each product is six of bf16 then, with the accuracy of f32.
    #[default]
    Cpu,
    /// The same but for matrix units: vectors alone.
    Vectors,
    /// As `Cpu`, and an error where there is no matrix unit.
    Amx,
    /// What CPUs with AVX512_BF16 compute, in plain Rust with vectors of `scalar`: for tests, slow.
    EmulatedBf16,
    /// What matrix units compute, in plain Rust, at every precision: for tests, very slow.
    EmulatedAmx,
}

/// How accurate products of f32 are at least: convolutions, linear layers, products with known
/// matrices. The words and their meaning are those of
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html):
/// a lower one allows what is faster, and changes nothing where the CPU has nothing such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Precision {
    /// f32: 24 bits.
    #[default]
    Highest,
    /// At least 16 bits of each number: three products of bf16 on matrix units (AMX); f32
    /// elsewhere.
    High,
    /// At least 8 bits of each number, bf16; sums are f32. Where the CPU multiplies bf16 (AMX,
    /// AVX512_BF16), weights are packed as such, in half the memory; f32 elsewhere.
    Medium,
}

impl Precision {
    /// All of them, the most accurate first.
    pub const ALL: [Self; 3] = [Self::Highest, Self::High, Self::Medium];

    /// `highest`, `high` or `medium`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Highest => "highest",
            Self::High => "high",
            Self::Medium => "medium",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.name() == name)
    }
}

/// What a session spends memory on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryUse {
    /// Speed: algorithms that want larger weights or scratch memory, where they pay.
    #[default]
    Fast,
    /// As little as possible: no weights that are larger than those of the file, packed one after
    /// the other.
    Low,
}

/// What the f32 weights of linear layers are kept as: half or a quarter of the memory, and a step
/// that reads each of them once, such as one of a decoder, takes less time. Sums stay f32. Weights
/// that a file has as f16 or bf16 stay so if nothing else is asked for, and lose nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WeightDtype {
    /// As the file has them.
    #[default]
    AsStored,
    /// The nearest bf16: 8 bits of precision, a relative error of 2^-9 each at most.
    Bf16,
    /// The nearest f16: 11 bits of precision, a relative error of 2^-12 at most for magnitudes from
    /// 6e-5 on; a weight beyond 65504 is an error.
    F16,
    /// Integers of 8 bits with a scale for each output and 256 inputs at most: a quarter of the
    /// memory, an error of 1/254 of the largest of those weights each at most. Weights of f16 and
    /// bf16 become such as well, those of recurrent layers do not; one that is not finite is an
    /// error.
    Int8,
    /// The numbers of NF4, four bits each, with a scale for each output and 32 inputs at most: less
    /// than a sixth of the memory, an error of 15 % of the largest of those weights each at most, 8
    /// to 9 % of them as a rule. Otherwise as [`WeightDtype::Int8`].
    Nf4,
}

impl WeightDtype {
    /// The names of those that can be asked for.
    pub const NAMES: [&'static str; 4] = ["bf16", "f16", "int8", "nf4"];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Bf16, Self::F16, Self::Int8, Self::Nf4];
        Self::NAMES.iter().zip(all).find(|(own, _)| **own == name).map(|(_, dtype)| dtype)
    }

    /// How a weight of this dtype is packed, if not as f32.
    pub(crate) fn compact(self, stored: DType) -> Option<Compact> {
        match self {
            Self::Int8 => Some(Compact::Int8),
            Self::Nf4 => Some(Compact::Nf4),
            _ => self.narrow(stored).map(Compact::Float),
        }
    }

    /// The same, as floats alone.
    pub(crate) fn narrow(self, stored: DType) -> Option<Narrow> {
        Narrow::of(stored).or(match self {
            Self::AsStored | Self::Int8 | Self::Nf4 => None,
            Self::Bf16 => Some(Narrow::Bf16),
            Self::F16 => Some(Narrow::F16),
        })
    }
}

/// An input that lies in memory with room to grow: as part of a dense tensor that is longer in one
/// dimension, of which it is the first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The input, which is a tensor.
    pub input: usize,
    /// The dimension in which there is room.
    pub dim: usize,
    /// Its size in memory.
    pub capacity: usize,
}

impl Room {
    /// The room of this input.
    pub fn of(rooms: &[Self], input: usize) -> Option<Self> {
        rooms.iter().find(|room| room.input == input).copied()
    }
}

/// A kernel and what it needs from the executor.
#[derive(Clone)]
pub struct Planned {
    /// What to run; none where there is nothing to do (all outputs are views or known).
    pub kernel: Option<Arc<dyn Kernel>>,
    /// Bytes of scratch memory, 64-byte aligned, contents undefined.
    pub scratch: usize,
    /// For each output leaf, how it may share memory; missing ones are [`Alias::None`].
    pub alias: Vec<Alias>,
    /// For a concatenation along the outermost non-1 dimension: at which element of output 0 each
    /// input leaf lies. Where the memory planner makes every input's producer write there, the
    /// kernel is not run.
    pub placement: Option<Vec<usize>>,
}

impl Planned {
    /// The plan of an operator; one without a kernel where no output has an element and no data
    /// matter ([`Operator::refuses_data`]), so that kernels meet dimensions of any size only where
    /// memory bounds them: beside a dimension of 0, nothing does. For inputs with room to grow, see
    /// [`Operator::plan_with_room`].
    ///
    /// # Errors
    /// Where no kernel computes these inputs.
    pub fn of(operator: &dyn Operator, cx: &PlanCx<'_>, rooms: &[Room]) -> Result<Self, PlanError> {
        let idle = !operator.refuses_data() && !operator.has_effects();
        match is_nothing(cx.outputs) && idle {
            true => Ok(Self::views(Vec::new())),
            false => operator.plan_with_room(cx, rooms),
        }
    }

    /// Whether there is nothing to run, and no memory to share.
    pub fn is_idle(&self) -> bool {
        self.kernel.is_none() && self.alias.is_empty()
    }

    /// A kernel without scratch or aliases.
    pub fn new(kernel: impl Kernel + 'static) -> Self {
        Self { kernel: Some(Arc::new(kernel)), scratch: 0, alias: Vec::new(), placement: None }
    }

    /// Output `0` is the memory of this input leaf, as it is: a reshape.
    pub fn view_of(input: usize) -> Self {
        Self::views(vec![Alias::View { input, offset: 0 }])
    }

    /// Every output is a part of an input's memory, as it is.
    pub fn views(alias: Vec<Alias>) -> Self {
        Self { kernel: None, scratch: 0, alias, placement: None }
    }

    /// Asks for scratch memory.
    #[must_use]
    pub fn with_scratch(mut self, bytes: usize) -> Self {
        self.scratch = bytes;
        self
    }

    /// Output 0 may overwrite this input leaf, where that is not needed any more: the kernel uses
    /// [`RunCx::inout`] for the pair.
    #[must_use]
    pub fn in_place(mut self, input: usize) -> Self {
        self.alias = vec![Alias::InPlace { input }];
        self
    }
}

/// Whether no leaf of these values has an element. A known one has its place among the constants,
/// empty or not.
fn is_nothing(values: &[ValueSpec]) -> bool {
    let mut leaves = values.iter().flat_map(ValueSpec::leaves);
    leaves.all(|leaf| leaf.as_tensor().is_some_and(|t| t.spec.shape.numel() == 0))
}

/// How an output may share the memory of an input. Inputs are counted by leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alias {
    /// Memory of its own.
    None,
    /// May overwrite the input, if it is not needed any more. Same number of bytes, same layout.
    InPlace {
        /// The input leaf.
        input: usize,
    },
    /// Is the input's memory, read only: no step at all.
    View {
        /// The input leaf.
        input: usize,
        /// Elements from the input's first to the output's first.
        offset: usize,
    },
}

/// Something to run: everything is decided, only data is missing. One may serve several steps,
/// where operators that are alike are planned for the same.
pub trait Kernel: Send + Sync {
    /// The algorithm, such as `conv.im2col.avx2`; shown by `info --plan` and `profile`.
    fn name(&self) -> &str;
    /// Computes the outputs.
    ///
    /// # Errors
    /// Where a value in the data is outside what the operator accepts.
    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError>;
}

//! What a plan says about itself.

use plutino_ir::quote;
use plutino_ops::{Cost, Location};

/// Memory of a model that is run by a plan, in bytes. The one place that says what counts: every
/// total that plutino prints, compares with a budget or predicts is [`MemoryReport::total`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Weights of the file that were read into memory, and what decoding the model took besides.
    /// Shared by all sessions of the model; each counts them in full.
    pub weights: usize,
    /// Weights of the file that are mapped: not part of the total, because the system takes such
    /// pages back whenever it needs memory. What was packed of them is not needed any more.
    pub mapped: usize,
    /// Weights in the forms that kernels want. Shared by all sessions of the model; each counts
    /// those in full that its plan uses.
    pub packed: usize,
    /// What the plan took besides: tables of kernels, values computed once.
    pub tables: usize,
    /// The arena of a run: intermediate values and scratch.
    pub arena: usize,
    /// Output tensors that steps write to directly.
    pub outputs: usize,
    /// Values that a [`State`](crate::State) carries from run to run, as they were before this one;
    /// 0 in what a plan alone reports.
    pub state: usize,
    /// Tensors of the session's [`TensorStore`](crate::TensorStore); 0 in what a plan alone reports.
    pub stored: usize,
    /// The greatest scratch memory of a step (part of the arena).
    pub scratch: usize,
    /// The most that is alive in the arena at any one time: no arena can be smaller.
    pub lower_bound: usize,
    /// Constants that steps read: attributes of the file (part of the packed weights), and values
    /// computed while planning (part of the tables).
    pub constants: usize,
    /// Everything that operators compute, each in memory of its own: what the arena and the
    /// outputs spare.
    pub unshared: usize,
}

impl MemoryReport {
    /// What the model takes while it is run once, the caller's inputs aside: weights as they were
    /// read and as they are packed, tables, arena, outputs, state and store. Known before the run,
    /// but for values whose shapes depend on data. This is what a memory budget is compared with.
    pub fn total(&self) -> usize {
        let run = [self.arena, self.outputs, self.state, self.stored];
        let parts = [self.weights, self.packed, self.tables].into_iter().chain(run);
        parts.fold(0, usize::saturating_add)
    }
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepInfo {
    /// Which operator of the file.
    pub location: Location,
    /// The algorithm, such as `conv.im2col.avx2`.
    pub kernel: String,
    /// Operators that it absorbed, by name.
    pub absorbed: Vec<String>,
    /// Operators that it comes after without reading from them, by name.
    pub after: Vec<String>,
    /// What it reads.
    pub inputs: Vec<ValueReport>,
    /// What it writes.
    pub outputs: Vec<ValueReport>,
    /// Scratch memory, in bytes.
    pub scratch: usize,
    /// Arithmetic and memory traffic.
    pub cost: Cost,
    /// Where it runs: a number out of the contexts of the session.
    pub context: usize,
}

/// A value that a step reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueReport {
    /// Name of the operand; members of a list are numbered (`7.0`).
    pub name: String,
    /// Dtype, shape and layout.
    pub spec: String,
    /// Where it lies, such as `arena+1024` or `input 0`.
    pub place: String,
}

/// A model that runs, but perhaps does not compute what it did in PyTorch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// What was inferred differs from what the file records.
    Recorded {
        /// The operator that makes the value.
        location: Location,
        /// Name of the operand.
        operand: String,
        /// What the file says.
        recorded: String,
        /// What was inferred.
        inferred: String,
    },
    /// What the file says itself is likely not what the model was.
    File {
        /// The operator in question.
        location: Location,
        /// What is likely wrong, and what to do.
        what: String,
    },
}

impl Warning {
    /// The operator in question.
    pub fn location(&self) -> &Location {
        match self {
            Self::Recorded { location, .. } | Self::File { location, .. } => location,
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Recorded { location, operand, recorded, inferred } => {
                let (operand, recorded) = (quote(operand), quote(recorded));
                write!(
                    f,
                    "{location}: operand {operand} is {inferred}, the file records {recorded}"
                )
            }
            Self::File { location, what } => write!(f, "{location}: {what}"),
        }
    }
}

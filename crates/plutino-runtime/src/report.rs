//! What a plan says about itself.

use plutino_ir::quote;
use plutino_ops::{Cost, Location};

/// Memory of a plan, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Everything that operators compute, each in memory of its own: what a run without a plan
    /// would take.
    pub total: usize,
    /// The arena of a run: intermediate values and scratch.
    pub arena: usize,
    /// The most that is alive in the arena at any one time: no arena can be smaller.
    pub lower_bound: usize,
    /// The greatest scratch memory of a step (part of the arena).
    pub scratch: usize,
    /// Output tensors that steps write to directly.
    pub outputs: usize,
    /// What planning took: tables of kernels, and values computed once. Counts towards the memory
    /// budget.
    pub tables: usize,
    /// Constants: attributes of the file, and values computed while planning.
    pub constants: usize,
}

impl MemoryReport {
    /// What counts towards the memory budget: arena, outputs and tables.
    pub fn needed(&self) -> usize {
        self.arena.saturating_add(self.outputs).saturating_add(self.tables)
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
    /// What it reads.
    pub inputs: Vec<ValueReport>,
    /// What it writes.
    pub outputs: Vec<ValueReport>,
    /// Scratch memory, in bytes.
    pub scratch: usize,
    /// Arithmetic and memory traffic.
    pub cost: Cost,
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

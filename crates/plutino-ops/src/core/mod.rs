//! What every operator is made of.

mod alias;
mod asked;
mod computed;
mod dtypes;
mod error;
pub(crate) mod expand;
mod node;
mod operator;
mod packs;
mod plan;
mod registry;
mod run;
mod similar;
mod strides;
mod value;
mod weight;

pub use asked::{Asked, AskedSort};
pub use dtypes::{dtype_of, recorded_as};
pub use error::{BuildError, BuildProblem, Location, PlanError, RunError, ShapeError};
pub use expand::{ExpandedStep, Expansion, StepValue};
pub use node::{Arg, FromParameter, NodeReader};
pub use operator::{
    Bf16Support, ChannelAffine, Cost, LayoutOf, LayoutSupport, Neighbour, Operator, Role,
};
pub use packs::{PackCache, Packed};
pub use plan::{
    Alias, Kernel, LayoutCx, MemoryUse, PlanCx, Planned, Precision, Room, Setting, Units,
    WeightDtype,
};
pub use registry::{Builder, DuplicateKind, OpEntry, Registry, registry};
pub use run::{Input, Inputs, Output, Outputs, RunCx};
pub use similar::most_similar;
pub use strides::{LoopNest, Memory, StorageView, StrideRule, outputs as memory_of_outputs};
pub use value::{MAX_MEMBERS, MAX_NESTING, Members, TensorValue, ValueSpec, check_members};
pub(crate) use weight::MakeWeight;
pub use weight::{F32Copy, F32View, Weight};

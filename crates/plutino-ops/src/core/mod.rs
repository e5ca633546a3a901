//! What every operator is made of.

mod error;
mod node;
mod operator;
mod plan;
mod registry;
mod run;
mod value;
mod weight;

pub use error::{BuildError, BuildProblem, Location, PlanError, RunError, ShapeError};
pub use node::{Arg, FromParameter, NodeReader};
pub use operator::{Cost, Epilogue, LayoutSupport, Operator, Role};
pub use plan::{Alias, Kernel, MemoryUse, PackCache, PlanCx, Planned};
pub use registry::{Builder, DuplicateKind, OpEntry, Registry, registry};
pub use run::{Input, Inputs, Output, Outputs, RunCx};
pub use value::{TensorValue, ValueSpec};
pub use weight::{F32Copy, F32View, Weight};

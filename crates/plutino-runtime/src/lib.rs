//! Plans and runs PNNX models: passes, memory plan, sessions, profiles.
//!
//! ```text
//! Model::load  ->  Model::session(options)  ->  Session::run(inputs)
//! ```
//! A [`Model`] is a file, decoded: every operator is known. A [`Session`] adds options and threads.
//! A [`Plan`] binds both to the shapes of a run; a session makes one where a shape is new, and
//! keeps the last few. What is not built cannot be run.
//!
//! ```no_run
//! use plutino_runtime::{Model, SessionOptions};
//! use plutino_tensor::{DType, Tensor};
//!
//! let model = Model::load("resnet18.pnnx.param")?;
//! let session = model.session(SessionOptions::default())?;
//! let image = Tensor::zeros(DType::F32, [1, 3, 224, 224])?;
//! let outputs = session.run(&[image])?;
//! println!("{}", outputs[0].shape());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From file to run (`load`, `plan` and `passes`, `memory`, `run`): the graph is ordered and cut to
//! what the run needs ([`passes()`], structure), dtypes and shapes are inferred, operators are
//! fused, each is planned (in parallel, packed weights shared by all sessions of a model), values
//! are laid out in one arena, and the result is a list of steps with nothing left to decide.
#![deny(unsafe_code)]

pub mod compare;
mod control;
pub mod cost;
mod error;
mod halt;
pub mod knobs;
mod lists;
mod load;
mod memory;
mod monitor;
mod open;
mod options;
mod order;
mod passes;
mod place;
mod plan;
mod queue;
mod rendezvous;
mod run;
mod session;
mod settings;
mod spans;
mod state;
mod sync;
mod tools;

#[cfg(test)]
mod testkit;

pub use control::{BodyInfo, Frame};
pub use error::{ModelError, SessionError, UndecodedOperators, UnsupportedKind};
pub use load::check::Inference;
pub use load::model::{CheckReport, Model, ValueInfo};
pub use memory::arena::ArenaPool;
pub use options::{ModelOptions, SessionOptions, Sorting};
pub use passes::{PassInfo, PassNote, PassReport, passes};
pub use place::{Bond, Context, Placement, PlacementNote, PlacementReport};
pub use plan::Plan;
pub use plan::dispatch::Dispatch;
pub use plan::report::{MemoryReport, StepInfo, ValueReport, Warning};
pub use plan::schedule::PhaseInfo;
pub use plan::values::{Allocation, PlannedValue, Sharing, ValueKind, ValueStorage};
pub use plutino_ir::{CancelToken, Limits, Registration, SizeLimit, SizeLimits, TooLarge};
pub use plutino_ops::{MemoryUse, Precision, Units, WeightDtype};
pub use queue::{Batching, Handle, Queue, QueueCounts, QueueError, QueueOptions};
pub use rendezvous::{Delivery, Rendezvous, RendezvousError, Stage, StageError, Waiting};
pub use run::profile::{Profile, StepTime, ThreadWork};
pub use run::request::{Fed, Request};
pub use run::store::{StoreError, TensorHandle, TensorStore};
pub use session::Session;
#[cfg(feature = "npy")]
pub use state::StateFileError;
pub use state::{State, StateError};
pub use tools::extract::{ExtractError, extract};
pub use tools::optimize::Optimized;
pub use tools::partition::{Link, Part, Partition, PartitionError};
pub use tools::program::{Program, ScanOptions, Value, save_definitions};

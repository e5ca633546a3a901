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
//! From file to run: the graph is ordered and cut to what the run needs ([`passes()`], structure),
//! dtypes and shapes are inferred, operators are fused, each is planned (in parallel, packed
//! weights shared by all sessions of a model), values are laid out in one arena, and the result is
//! a list of steps with nothing left to decide.
#![deny(unsafe_code)]

mod arena;
mod bind;
mod build;
mod cache;
mod check;
pub mod compare;
mod concat;
mod control;
pub mod cost;
mod dispatch;
mod dtypes;
mod error;
mod exec;
mod extract;
mod given;
mod halt;
mod infer;
pub mod knobs;
mod late;
mod lay;
mod lists;
mod memory;
mod model;
mod monitor;
mod net;
mod open;
mod optimize;
mod options;
mod order;
mod overlap;
mod partition;
mod passes;
mod phases;
mod place;
mod plan;
mod profile;
mod program;
mod queue;
mod reach;
mod rendezvous;
mod report;
mod request;
mod schedule;
mod session;
mod settings;
mod shared;
mod spans;
mod stand_ins;
mod state;
mod storage;
mod store;
mod strides;
mod suspects;
mod sync;
mod tied;
mod values;
mod verify;
mod watch;

#[cfg(test)]
mod testkit;

pub use arena::ArenaPool;
pub use check::Inference;
pub use control::{BodyInfo, Frame};
pub use dispatch::Dispatch;
pub use error::{ModelError, SessionError, UndecodedOperators, UnsupportedKind};
pub use extract::{ExtractError, extract};
pub use model::{CheckReport, Model, ValueInfo};
pub use optimize::Optimized;
pub use options::{ModelOptions, SessionOptions, Sorting};
pub use partition::{Link, Part, Partition, PartitionError};
pub use passes::{PassInfo, PassNote, PassReport, passes};
pub use place::{Bond, Context, Placement, PlacementNote, PlacementReport};
pub use plan::Plan;
pub use plutino_ir::{CancelToken, Limits, Registration, SizeLimit, SizeLimits, TooLarge};
pub use plutino_ops::{MemoryUse, Precision, Units, WeightDtype};
pub use profile::{Profile, StepTime, ThreadWork};
pub use program::{Program, ScanOptions, Value, save_definitions};
pub use queue::{Batching, Handle, Queue, QueueCounts, QueueError, QueueOptions};
pub use rendezvous::{Delivery, Rendezvous, RendezvousError, Stage, StageError, Waiting};
pub use report::{MemoryReport, StepInfo, ValueReport, Warning};
pub use request::{Fed, Request};
pub use schedule::PhaseInfo;
pub use session::Session;
#[cfg(feature = "npy")]
pub use state::StateFileError;
pub use state::{State, StateError};
pub use store::{StoreError, TensorHandle, TensorStore};
pub use values::{Allocation, PlannedValue, Sharing, ValueKind, ValueStorage};

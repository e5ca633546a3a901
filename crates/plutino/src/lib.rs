//! Runs PyTorch models that [pnnx](https://pypi.org/project/pnnx/) exported, on the CPU, without
//! PyTorch.
//!
//! `pnnx` turns a traced `nn.Module` into two files: `model.pnnx.param` (the graph, as text) and
//! `model.pnnx.bin` (the weights). This crate loads them, plans a run for the shapes at hand, and
//! runs it:
//!
//! ```no_run
//! use plutino::{Model, SessionOptions, npy};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::load("resnet18.pnnx.param")?;
//! let session = model.session(SessionOptions::default())?;
//! let outputs = session.run(&[npy::load("image.npy")?])?;
//! println!("{}", outputs[0]);
//! # Ok(())
//! # }
//! ```
//!
//! A graph may also come from memory. This one has no weights; it turns what is above zero into
//! probabilities:
//!
//! ```
//! use plutino::{Model, SessionOptions, Tensor, ir::Graph};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::from_graph(Graph::parse(
//!     "7767517
//!      4 3
//!      pnnx.Input   pnnx_input_0   0 1 0    #0=(?,3)f32
//!      nn.ReLU      relu           1 1 0 1  #0=(?,3)f32 #1=(?,3)f32
//!      nn.Softmax   softmax        1 1 1 2  dim=1 #1=(?,3)f32 #2=(?,3)f32
//!      pnnx.Output  pnnx_output_0  1 0 2    #2=(?,3)f32",
//! )?)?;
//! let session = model.session(SessionOptions::default())?;
//! let outputs = session.run(&[Tensor::from_slice(&[-5.0f32, 0.0, 1.0], [1, 3])?])?;
//! let scores = outputs[0].as_slice::<f32>()?;
//! assert!(scores.iter().zip([0.211_94, 0.211_94, 0.576_12]).all(|(x, y)| (x - y).abs() < 1e-5));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Request`] runs any part of a model: from the operands that are fed to those that are
//! fetched, each by its name in the file or by that of its operator. What is fed may be memory of
//! somebody else, which is read where it lies:
//!
//! ```
//! use plutino::{Model, Request, SessionOptions, TensorView, ir::Graph};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = Model::from_graph(Graph::parse(
//! #     "7767517
//! #      4 3
//! #      pnnx.Input   pnnx_input_0   0 1 0    #0=(?,3)f32
//! #      nn.ReLU      relu           1 1 0 1  #0=(?,3)f32 #1=(?,3)f32
//! #      nn.Softmax   softmax        1 1 1 2  dim=1 #1=(?,3)f32 #2=(?,3)f32
//! #      pnnx.Output  pnnx_output_0  1 0 2    #2=(?,3)f32",
//! # )?)?;
//! let session = model.session(SessionOptions::default())?;
//! let numbers = vec![-5.0f32, 0.0, 1.0];
//! let x = TensorView::from_slice(&numbers, [1, 3])?;
//! let results = session.run_named(&Request::new().feed("0", x).fetch("relu"))?;
//! assert_eq!(results[0].0, "relu");
//! assert_eq!(results[0].1.as_slice::<f32>()?, [0.0, 0.0, 1.0]);
//! // What is missing is named, and what could be fed instead.
//! let error = session.run_with(&Request::new().fetch("softmax")).unwrap_err();
//! assert!(error.to_string().ends_with("input '0' is not fed; '1' could be fed instead"));
//! # Ok(())
//! # }
//! ```
//!
//! - [`Model::load`] reads and decodes the files; every operator that is not supported is named at
//!   once.
//! - [`Model::session`] adds threads and options; a [`Session`] is `Send + Sync` and runs from many
//!   threads.
//! - [`Session::run`] plans for shapes that it has not seen (and remembers the plan), then runs.
//!   Inputs may have other shapes than those of the export where the model's operators allow it.
//! - Errors are typed and name file, line, operator and parameter; no file and no input makes the
//!   crate panic.
//!
//! # Features
//!
//! All but the last two are on by default, and each can be left out: `avx512` and `avx2` (kernels
//! for these instruction sets; which is used is found at run time), `mmap`, `npy`, `fft`, `linalg`,
//! `generate` (text generation: the module of that name), and `families`, the chapters of operators
//! `distance`, `losses`, `quantized`, `recurrent`, `samples` and `vision`. A model that needs what
//! was left out is refused with the operator's name. With `tokenizers`, the crate of that name
//! reads the kinds of `tokenizer.json` that plutino does not read itself (90 s more to compile).
//! With `tracing`, loading, planning, running and each step are spans for whoever subscribes with
//! the crate of that name.
//!
//! The layers below are crates of their own: [`ir`] reads, edits and writes PNNX files, [`tensor`]
//! holds tensors and reads and writes NumPy's files, [`kernels`] computes, [`ops`] gives PyTorch's
//! operators their meaning.
#![forbid(unsafe_code)]

#[cfg(feature = "generate")]
pub use plutino_generate as generate;
pub use plutino_ir as ir;
pub use plutino_kernels as kernels;
pub use plutino_ops as ops;
pub use plutino_runtime as runtime;
pub use plutino_tensor as tensor;

// Operators register themselves; a crate that nobody names is not linked at all.
use plutino_ops as _;

pub use plutino_ir::{Definition, Definitions};
pub use plutino_kernels::Isa;
#[cfg(feature = "npy")]
pub use plutino_runtime::StateFileError;
pub use plutino_runtime::{
    Allocation, ArenaPool, Batching, BodyInfo, Bond, CancelToken, CheckReport, Context, Delivery,
    Dispatch, Fed, Frame, Handle, Inference, Limits, Link, MemoryReport, MemoryUse, Model,
    ModelError, ModelOptions, Part, Partition, PartitionError, PassNote, PassReport, PhaseInfo,
    Placement, PlacementNote, PlacementReport, Plan, PlannedValue, Precision, Profile, Program,
    Queue, QueueCounts, QueueError, QueueOptions, Registration, Rendezvous, RendezvousError,
    Request, ScanOptions, Session, SessionError, SessionOptions, Sharing, SizeLimit, SizeLimits,
    Sorting, Stage, StageError, State, StateError, StepInfo, StepTime, StoreError, TensorHandle,
    TensorStore, ThreadWork, TooLarge, Units, ValueInfo, ValueKind, ValueReport, ValueStorage,
    Waiting, Warning, WeightDtype,
};
pub use plutino_runtime::{compare, cost};
#[cfg(feature = "npy")]
pub use plutino_tensor::npy;
pub use plutino_tensor::{
    Comparison, Complex, DType, Element, Shape, Tensor, TensorError, TensorSpec, TensorView,
    TensorViewMut, Tolerance, bf16, f16,
};

//! Runs PyTorch models that [pnnx](https://pypi.org/project/pnnx/) exported, on the CPU, without PyTorch.
//!
//! `pnnx` turns a traced `nn.Module` into two files: `model.pnnx.param` (the graph, as text) and
//! `model.pnnx.bin` (the weights). This crate loads them, plans a run for the shapes at hand, and runs it:
//!
//! ```
//! use plutino::{Model, SessionOptions, Tensor, npy::npz};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))?;
//! // A small network that reads handwritten digits of 8 x 8 pixels.
//! let model = Model::load("digits/model.pnnx.param")?;
//! let session = model.session(SessionOptions::default())?;
//!
//! // 360 digits that it has not seen in training: shape (360, 1, 8, 8), values 0..1.
//! let digits = &npz::load("digits/inputs.npz")?[0].1;
//! let outputs = session.run(&[digits.clone()])?;
//!
//! let scores: &Tensor = &outputs[0];
//! assert_eq!(scores.shape().dims(), [360, 10]);
//! let first = scores.as_slice::<f32>()?[..10].iter().enumerate();
//! let likeliest = first.max_by(|a, b| a.1.total_cmp(b.1)).map(|(digit, _)| digit as i64);
//! let labels = &npz::load("digits/labels.npz")?[0].1;
//! assert_eq!(likeliest, Some(labels.get(&[0])?));
//! # Ok(())
//! # }
//! ```
//!
//! - [`Model::load`] reads and decodes the files; every operator that is not supported is named at once.
//! - [`Model::session`] adds threads and options; a [`Session`] is `Send + Sync` and runs from many threads.
//! - [`Session::run`] plans for shapes that it has not seen (and remembers the plan), then runs. Inputs may have
//!   other shapes than those of the export where the model's operators allow it.
//! - Errors are typed and name file, line, operator and parameter; no file and no input makes the crate panic.
//!
//! The layers below are crates of their own: [`ir`] reads, edits and writes PNNX files, [`tensor`] holds tensors
//! and reads and writes NumPy's files, [`kernels`] computes, [`ops`] gives PyTorch's operators their meaning.
#![forbid(unsafe_code)]

pub use plutino_ir as ir;
pub use plutino_kernels as kernels;
pub use plutino_ops as ops;
pub use plutino_runtime as runtime;
pub use plutino_tensor as tensor;

// Operators register themselves; a crate that nobody names is not linked at all.
use plutino_ops as _;

pub use plutino_kernels::Isa;
pub use plutino_runtime::{
    CancelToken, CheckReport, MemoryReport, MemoryUse, Model, ModelError, PassNote, PassReport,
    Plan, Profile, Request, Session, SessionError, SessionOptions, Sorting, StepInfo, ValueInfo,
    ValueReport, Warning,
};
#[cfg(feature = "npy")]
pub use plutino_tensor::npy;
pub use plutino_tensor::{
    Comparison, Complex, DType, Element, Shape, Tensor, TensorError, TensorSpec, TensorView,
    TensorViewMut, Tolerance, bf16, f16,
};

//! Reads, edits and writes PNNX model files (.pnnx.param and .pnnx.bin).
#![deny(unsafe_code)]

mod attribute;
mod dtype;
mod error;
pub mod expr;
mod graph;
mod load;
mod mmap;
mod number;
mod param;
mod parameter;
mod save;
pub mod topo;
mod weights;

pub use attribute::{Attribute, AttributeError, Element};
pub use dtype::{DType, Dim, TensorType, UnknownDType};
pub use error::{BinError, LoadError, Lookalike, ParseError, ParseErrorKind, SaveError};
pub use graph::{EditError, Graph, InvalidGraph, Operand, OperandId, Operator, OperatorId};
pub use load::{LoadOptions, Weights};
pub use parameter::{Parameter, ParameterError};

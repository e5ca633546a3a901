//! Reads, edits and writes PNNX models: `model.pnnx.param`, a text with one operator a line, and
//! `model.pnnx.bin`, a zip archive of weights. `pip install pnnx` turns any traceable PyTorch
//! module into them:
//!
//! ```python
//! pnnx.export(model.eval(), "model.pt", torch.rand(1, 3, 224, 224))
//! ```
//!
//! A [`Graph`] holds [`Operator`]s in file order and the [`Operand`]s between them, each with one
//! producer and any number of consumers. This crate knows what a file says, not what it means: it
//! checks that a graph fits together and computes nothing.
//!
//! # Loading
//! ```no_run
//! use plutino_ir::{Graph, LoadOptions, Weights};
//!
//! // the stem, or the path of the .param file; the .bin file is found beside it
//! let graph = Graph::load("resnet18")?;
//! for (_, operator) in graph.operators_of("nn.Conv2d") {
//!     let kernel = operator.param("kernel_size").and_then(|value| value.as_ints());
//!     println!("{} {:?} {}", operator.name, kernel, operator.attrs["weight"]);
//! }
//!
//! // structure only
//! let skip = LoadOptions { weights: Weights::Skip, ..LoadOptions::default() };
//! let structure = Graph::load_with("resnet18", &skip)?;
//! # Ok::<(), plutino_ir::LoadError>(())
//! ```
//! [`Graph::from_bytes`] reads from memory, and [`LoadOptions::mmap`] maps the weights instead of
//! reading them. Weights are slices of the file, never copied: see [`Attribute`].
//!
//! # Building, editing, saving
//! ```
//! use plutino_ir::{Attribute, DType, Graph, Parameter, TensorType};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // y = x W' + b
//! let mut graph = Graph::new();
//! let input = graph.new_operator("pnnx.Input", "in")?;
//! let linear = graph.new_operator("nn.Linear", "fc")?;
//! let output = graph.new_operator("pnnx.Output", "out")?;
//! let (x, y) = (graph.new_operand("x")?, graph.new_operand("y")?);
//! graph.connect_output(input, x)?;
//! graph.connect_input(linear, x)?;
//! graph.connect_output(linear, y)?;
//! graph.connect_input(output, y)?;
//! graph.set_type(x, TensorType::new(DType::F32, &[1, 3]))?;
//! graph.params_mut(linear)?.extend([
//!     ("bias".to_owned(), Parameter::from(true)),
//!     ("in_features".to_owned(), Parameter::from(3)),
//!     ("out_features".to_owned(), Parameter::from(2)),
//! ]);
//! graph.attrs_mut(linear)?.extend([
//!     ("weight".to_owned(), Attribute::from_elements([2, 3], &[0f32, 1., 2., 3., 4., 5.])?),
//!     ("bias".to_owned(), Attribute::from_elements([2], &[0.5f32, -0.5])?),
//! ]);
//!
//! // put a ReLU between the linear layer and whoever reads it
//! let relu = graph.new_operator_after("nn.ReLU", "relu", linear)?;
//! let z = graph.new_operand("z")?;
//! graph.replace_uses(y, z)?;
//! graph.connect_input(relu, y)?;
//! graph.connect_output(relu, z)?;
//! assert_eq!(graph[z].consumers, [output]);
//!
//! // ids stay valid; what was written reads back equal
//! assert_eq!(graph[linear].name, "fc");
//! let (text, weights) = (graph.to_param_string()?, graph.to_bin_bytes()?);
//! assert_eq!(Graph::from_bytes(text, weights)?, graph);
//! # Ok(())
//! # }
//! ```
//! [`Graph::save`] writes both files. It refuses what would not read back equal, for instance a
//! parameter whose text means something else.
//!
//! # Order without data
//! What an operator does may be more than its outputs: a value that is kept, a message that is
//! sent. [`Graph::add_control`] lets one come after another though it reads nothing of it; in the
//! text that is `^NAME=after` on the line of the later one, which to other readers of the format is
//! a parameter. [`Graph::sources`] wait for nobody, and on [`Graph::sinks`] nobody waits.
//!
//! # Definitions
//! A module that pnnx keeps whole is a node of a type of its own. [`Definitions`] say what such
//! types are, each by another model, and [`Graph::inline`] puts those in their places.
//!
//! # Strictness
//! Files come from anywhere, so nothing in them is taken on trust. Wrong magic, counts that
//! disagree, unknown or doubly made operands, cycles, malformed numbers, archives that are cut off,
//! compressed, corrupt or at odds with themselves, and weights of the wrong size are errors: of a
//! type of their own, with line and column in the text ([`ParseError`]) or the archive's entry
//! ([`BinError`]). No input makes the crate panic, and memory taken is in proportion to the size of
//! the files, whatever they announce. How large a model may be is said by [`SizeLimits`].
#![deny(unsafe_code)]

mod attribute;
mod define;
mod draft;
mod dtype;
mod error;
pub mod expr;
mod graph;
mod in_file;
mod limits;
mod load;
#[cfg(all(feature = "mmap", not(target_family = "wasm")))]
mod mmap;
#[cfg(not(all(feature = "mmap", not(target_family = "wasm"))))]
#[path = "unmapped.rs"]
mod mmap;
mod number;
mod param;
mod parameter;
mod quote;
mod save;
mod sizes;
pub mod topo;
mod weights;

pub use attribute::{Attribute, AttributeError, Element, WeightData};
pub use define::{
    DefineError, DefineProblem, Definition, Definitions, MOST_DEFINITION_LEVELS, Origin, Site,
};
pub use draft::write_whole;
pub use dtype::{DType, Dim, TensorType, UnknownDType};
pub use error::{BinError, LoadError, Lookalike, ParseError, ParseErrorKind, SaveError};
pub use graph::{
    ControlProblem, EditError, Graph, InvalidGraph, Operand, OperandId, Operator, OperatorId,
};
pub use in_file::{FileBytes, FilePart, PartReader, WeightBytes};
pub use limits::{CancelToken, Interrupted, Limits, Registration};
pub use load::{LoadOptions, Weights, find_param, read_regular, read_small};
pub use mmap::Mapping;
pub use parameter::{Parameter, ParameterError};
pub use quote::{MOST_QUOTED, Quoted, escaped, quote, quote_display, quote_path, told};
pub use sizes::{SizeLimit, SizeLimits, TooLarge, UnknownLimit};

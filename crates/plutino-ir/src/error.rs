//! What can be wrong with a model file: fields first, wording second. A message says all there is
//! to say, so no error has a source beneath it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::attribute::AttributeError;
use crate::dtype::{DType, TensorType};
use crate::graph::{ControlProblem, EditError, InvalidGraph};
use crate::limits::Interrupted;
use crate::parameter::ParameterError;
use crate::quote::{quote, quote_display, quote_path};
use crate::sizes::TooLarge;
use crate::topo::CycleError;

/// A model could not be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no `.param` file at the path, nor one that it is the stem of.
    #[error("no model at '{}': tried {}", quote_path(path), list(tried))]
    NotFound {
        /// The path asked for.
        path: PathBuf,
        /// The files that were looked for.
        tried: Vec<PathBuf>,
    },
    /// A file could not be read.
    #[error("cannot read '{}': {error}", quote_path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The operators of the `.param` file have weights, but there is no `.bin` file; or there is
    /// none where [`LoadOptions::bin`](crate::LoadOptions::bin) says.
    #[error("'{}' does not exist{}", quote_path(path), in_it(*weights))]
    NoWeights {
        /// Where the `.bin` file should be.
        path: PathBuf,
        /// Number of weights that the `.param` file names.
        weights: usize,
    },
    /// What should be a file is a folder, a device or a pipe: it is not opened.
    #[error("'{}' is no regular file", quote_path(path))]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// The caller's limits ended the work.
    #[error("{path}: {error} while loading", path = quote_path(path))]
    Interrupted {
        /// The `.param` file.
        path: PathBuf,
        /// Which limit.
        error: Interrupted,
    },
    /// The model takes more memory than the caller allows
    /// ([`LoadOptions::memory_budget`](crate::LoadOptions::memory_budget)). Nothing of the file was
    /// read.
    #[error("{path}: loading needs {needed} bytes of memory, the budget is {budget}", path = quote_path(path))]
    Budget {
        /// The file that exceeds it.
        path: PathBuf,
        /// Bytes that are needed with it.
        needed: usize,
        /// Bytes allowed.
        budget: usize,
    },
    /// The `.param` file is wrong.
    #[error("{}:{error}", quote_path(file))]
    Param {
        /// The file, or `<memory>`.
        file: String,
        /// Where and what.
        error: Box<ParseError>,
    },
    /// The `.bin` file is wrong, or does not belong to the `.param` file.
    #[error("{}: {error}", quote_path(file))]
    Bin {
        /// The file, or `<memory>`.
        file: String,
        /// What.
        error: BinError,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("'{}'", quote_path(path))).collect::<Vec<_>>().join(", ")
}

/// A fault in the `.param` text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{line}:{column}: {kind}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong there.
    pub kind: ParseErrorKind,
}

/// What can be wrong in the `.param` text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The text is not UTF-8.
    #[error("the text is not UTF-8{}", Hint(hint))]
    Encoding {
        /// What the file looks like instead.
        hint: Option<Lookalike>,
    },
    /// The first line is not `7767517`.
    #[error("expected the magic number 7767517, found '{found}'{}", Hint(hint), found = quote(found))]
    Magic {
        /// What stands there.
        found: String,
        /// What the file looks like instead.
        hint: Option<Lookalike>,
    },
    /// The file has the right magic number, but ncnn's operators.
    #[error(
        "operator '{operator}' of kind '{kind}' is ncnn's, not PNNX's: this is a .ncnn.param file; \
         use the .pnnx.param file that pnnx writes beside it", operator = quote(operator), kind = quote(kind)
    )]
    Ncnn {
        /// Kind of the operator, for example `Input`.
        kind: String,
        /// Name of the operator.
        operator: String,
    },
    /// The grammar asks for something else.
    #[error("expected {expected}, found {}", Found(found))]
    Syntax {
        /// What would have been right.
        expected: String,
        /// What stands there; empty at the end of a line.
        found: String,
    },
    /// The header announces another number of operators or operands than there are.
    #[error("the header announces {declared} {what}, but there are {found}")]
    Count {
        /// `operators` or `operands`.
        what: &'static str,
        /// Number in the header.
        declared: usize,
        /// Number in the file.
        found: usize,
    },
    /// Two operators have the same name.
    #[error("operator '{name}' is already defined in line {first}", name = quote(name))]
    DuplicateOperator {
        /// The name.
        name: String,
        /// Line of the first one.
        first: u32,
    },
    /// Two operators make the same operand, or one makes it twice.
    #[error("operand '{name}' is already made by '{producer}' in line {first}", name = quote(name), producer = quote(producer))]
    DuplicateOperand {
        /// Name of the operand.
        name: String,
        /// Name of the operator that makes it first.
        producer: String,
        /// Line of that operator.
        first: u32,
    },
    /// No operator makes the operand.
    #[error("operand '{name}' is made by no operator", name = quote(name))]
    UnknownOperand {
        /// Name of the operand.
        name: String,
    },
    /// A key occurs twice on one operator.
    #[error("'{key}' occurs twice on operator '{operator}'", key = quote(key), operator = quote(operator))]
    DuplicateKey {
        /// The key with its prefix, for example `@weight`.
        key: String,
        /// Name of the operator.
        operator: String,
    },
    /// `#operand=` or `$key=operand` names an operand that is not of this operator, or already has
    /// a key.
    #[error("operand '{operand}' of '{key}' is no {expected} of operator '{operator}'", operand = quote(operand), key = quote(key), operator = quote(operator))]
    ForeignOperand {
        /// The key with its prefix.
        key: String,
        /// Name of the operand.
        operand: String,
        /// `input or output`, or `input without a key`.
        expected: &'static str,
        /// Name of the operator.
        operator: String,
    },
    /// `^NAME=after` names no operator that this one could come after.
    #[error("operator '{operator}' cannot come after '{earlier}': {problem}", operator = quote(operator), earlier = quote(earlier))]
    Control {
        /// Name of the operator that would wait.
        operator: String,
        /// What it would wait for.
        earlier: String,
        /// Why not.
        problem: ControlProblem,
    },
    /// Two lines record different types for the same operand.
    #[error("operand '{operand}' is {} here, but {} before", quote_display(found), quote_display(recorded), operand = quote(operand))]
    ConflictingType {
        /// Name of the operand.
        operand: String,
        /// The type on this line.
        found: TensorType,
        /// The type on an earlier line.
        recorded: TensorType,
    },
    /// A parameter's value is malformed.
    #[error("parameter '{name}' of operator '{operator}': {error}", name = quote(name), operator = quote(operator))]
    Parameter {
        /// Name of the parameter.
        name: String,
        /// Name of the operator.
        operator: String,
        /// What is wrong.
        error: ParameterError,
    },
    /// A weight's shape is impossible.
    #[error("weight '{name}' of operator '{operator}': {error}", name = quote(name), operator = quote(operator))]
    Attribute {
        /// Name of the weight.
        name: String,
        /// Name of the operator.
        operator: String,
        /// What is wrong.
        error: AttributeError,
    },
    /// Operators wait for each other.
    #[error(transparent)]
    Cycle(#[from] CycleError),
    /// The caller's limits ended the work; [`LoadError::Interrupted`] where a file was loaded.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// More than one of [`LoadOptions::sizes`](crate::LoadOptions::sizes) allows.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The file is longer than line numbers go.
    #[error("the file has too many lines")]
    TooLong,
}

/// A file that is not the one meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lookalike {
    /// A zip archive: the `.bin` file or a TorchScript file.
    Zip,
    /// UTF-8 with a byte order mark.
    ByteOrderMark,
    /// UTF-16 text.
    Utf16,
    /// ncnn's text format before it had a magic number.
    OldNcnn,
    /// Python code, such as the `_pnnx.py` that pnnx writes.
    Python,
    /// An ONNX model.
    Onnx,
}

impl fmt::Display for Lookalike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lookalike::Zip => "this is a zip archive: the .pnnx.bin file or a TorchScript model, not the .pnnx.param file",
            Lookalike::ByteOrderMark => "the file begins with a byte order mark; save it without",
            Lookalike::Utf16 => "the file is UTF-16; save it as UTF-8",
            Lookalike::OldNcnn => "this looks like an old ncnn .param file",
            Lookalike::Python => "this looks like Python code, not the .pnnx.param file beside it",
            Lookalike::Onnx => "this looks like an ONNX model; convert it with pnnx first",
        })
    }
}

struct Hint<'a>(&'a Option<Lookalike>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

struct Found<'a>(&'a str);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("the end of the line")
        } else {
            write!(f, "'{}'", quote(self.0))
        }
    }
}

/// A fault in the `.bin` archive, or between it and the `.param` file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BinError {
    /// The end of a zip archive is missing or malformed: cut off, or no zip archive at all.
    #[error("not a complete zip archive: {reason}", reason = quote(reason))]
    Archive {
        /// What is missing.
        reason: String,
    },
    /// Bytes follow the archive.
    #[error("{bytes} bytes follow the end of the archive")]
    TrailingBytes {
        /// How many.
        bytes: u64,
    },
    /// The archive announces another number of entries than there are.
    #[error("the archive announces {declared} entries, but its directory holds {found}")]
    EntryCount {
        /// Number announced.
        declared: u64,
        /// Number found.
        found: u64,
    },
    /// A record of the central directory is malformed.
    #[error("entry {index} of the directory is malformed: {reason}", reason = quote(reason))]
    Directory {
        /// Position in the directory, from 0.
        index: usize,
        /// What is wrong.
        reason: String,
    },
    /// An entry's name is not UTF-8.
    #[error("the name of entry {index} is not UTF-8")]
    EntryName {
        /// Position in the directory, from 0.
        index: usize,
    },
    /// An entry is compressed, encrypted, or has its sizes behind its data.
    #[error("entry '{entry}' is {how}; PNNX stores weights plainly", entry = quote(entry))]
    NotStored {
        /// Name of the entry.
        entry: String,
        /// `compressed`, `encrypted` or `written with a data descriptor`.
        how: &'static str,
    },
    /// An entry reaches past the data.
    #[error("entry '{entry}' is cut off: {reason}", entry = quote(entry), reason = quote(reason))]
    Truncated {
        /// Name of the entry.
        entry: String,
        /// What is missing.
        reason: String,
    },
    /// An entry's own header says something else than the directory.
    #[error("entry '{entry}': its header says {field} {local}, the directory says {central}", entry = quote(entry), local = quote(local), central = quote(central))]
    HeadersDisagree {
        /// Name of the entry.
        entry: String,
        /// The field.
        field: &'static str,
        /// Value in the entry's header.
        local: String,
        /// Value in the directory.
        central: String,
    },
    /// Two entries have the same name.
    #[error("there are two entries named '{entry}'", entry = quote(entry))]
    DuplicateEntry {
        /// The name.
        entry: String,
    },
    /// Two entries share bytes.
    #[error("entries '{first}' and '{second}' overlap", first = quote(first), second = quote(second))]
    Overlap {
        /// Name of the entry that begins first.
        first: String,
        /// Name of the entry that begins before the first one ends, or `the directory`.
        second: String,
    },
    /// An entry's data does not have the checksum that the archive states.
    #[error("entry '{entry}' is corrupt: its CRC-32 is {found:08x}, not {expected:08x}", entry = quote(entry))]
    Crc {
        /// Name of the entry.
        entry: String,
        /// Checksum that the archive states.
        expected: u32,
        /// Checksum of the data.
        found: u32,
    },
    /// The `.param` file names a weight that has no entry.
    #[error(
        "there is no entry '{entry}' for weight '{weight}' of operator '{operator}' in line {line}", entry = quote(entry), weight = quote(weight), operator = quote(operator)
    )]
    MissingEntry {
        /// Name that the entry should have.
        entry: String,
        /// Name of the weight.
        weight: String,
        /// Name of the operator.
        operator: String,
        /// Line of the operator in the `.param` file.
        line: u32,
    },
    /// An entry belongs to no weight of the `.param` file.
    #[error("entry '{entry}' belongs to no weight of the .param file", entry = quote(entry))]
    UnknownEntry {
        /// Name of the entry.
        entry: String,
    },
    /// An entry's size is not that of the weight.
    #[error("entry '{entry}' has {found} bytes, but {} of {dtype} takes {expected}", quote_display(&format_args!("{shape:?}")), entry = quote(entry))]
    EntrySize {
        /// Name of the entry.
        entry: String,
        /// Dimensions in the `.param` file.
        shape: Vec<usize>,
        /// Element type in the `.param` file.
        dtype: DType,
        /// Bytes that shape and type ask for.
        expected: u64,
        /// Bytes of the entry.
        found: u64,
    },
    /// The caller's limits ended the work; [`LoadError::Interrupted`] where a file was loaded.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// Two weights share the name of one entry.
    #[error(transparent)]
    SharedEntry(InvalidGraph),
}

/// A graph could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The graph is not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidGraph),
    /// A name cannot be written.
    #[error(transparent)]
    Name(#[from] EditError),
    /// A parameter's text would be read back as another value, for instance the word `3` as the
    /// integer 3.
    #[error(
        "parameter '{name}' of operator '{operator}', {kind} '{text}', would not be read back as the same value", name = quote(name), operator = quote(operator), text = quote(text)
    )]
    Parameter {
        /// Name of the operator.
        operator: String,
        /// Name of the parameter.
        name: String,
        /// Kind of the value.
        kind: &'static str,
        /// Its text.
        text: String,
    },
    /// An operator reads one operand twice and only the later input is named; the format would name
    /// the first.
    #[error(
        "operator '{operator}' reads operand '{operand}' several times and names a later input only ('{key}')", operator = quote(operator), operand = quote(operand), key = quote(key)
    )]
    InputName {
        /// Name of the operator.
        operator: String,
        /// Name of the operand.
        operand: String,
        /// Name of the input.
        key: String,
    },
    /// A weight has no data, because the graph was read without.
    #[error("weight '{weight}' of operator '{operator}' has no data", weight = quote(weight), operator = quote(operator))]
    NotLoaded {
        /// Name of the operator.
        operator: String,
        /// Name of the weight.
        weight: String,
    },
    /// A weight was left in its file, and cannot be read any more.
    #[error("weight '{weight}' of operator '{operator}': {error}", weight = quote(weight), operator = quote(operator))]
    Weight {
        /// Name of the operator.
        operator: String,
        /// Name of the weight.
        weight: String,
        /// Why.
        error: AttributeError,
    },
    /// The name of a weight's entry is longer than a zip archive allows.
    #[error("'{entry}' is too long for the name of an archive entry", entry = quote(entry))]
    EntryName {
        /// The name.
        entry: String,
    },
    /// A file could not be written.
    #[error("cannot write '{}': {error}", quote_path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The writer failed.
    #[error("cannot write the weights: {0}")]
    Write(io::Error),
}

/// What a file that does not exist should have.
fn in_it(weights: usize) -> String {
    if weights == 0 {
        String::new()
    } else {
        format!(", but the model has {weights} weights in it")
    }
}

//! How large a model may be: every limit, its default and its error, in one place.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::dtype::Dim;
use crate::graph::{Graph, Operator, OperatorId};
use crate::parameter::Parameter;

/// Something that a model may have so much of.
///
/// Defaults are far beyond what exported models have, and low enough that a hostile file takes
/// neither much time nor much memory. They add up: a file that exceeds none of them is read in some
/// seconds, and in some hundred megabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SizeLimit {
    /// Bytes of the text of the `.param` file: 16 MiB.
    TextBytes,
    /// Words of that text, and elements of lists in it, each of which takes some hundred bytes in a
    /// graph: 1,048,576.
    Words,
    /// Operators: 262,144.
    Operators,
    /// Operands: 262,144.
    Operands,
    /// Inputs and outputs of one operator: 131,072.
    Arguments,
    /// Bytes of the text of one parameter: 1 MiB.
    ParameterBytes,
    /// Functions, lists, inputs and constants in one expression, or list of indices: 131,072.
    ExpressionParts,
    /// Dimensions of a tensor: 64, and never more, as in PyTorch's kernels.
    Rank,
    /// Bytes that a plan may need for activations, outputs and tables, where no budget of memory is
    /// lower: 1 TiB.
    PlannedBytes,
}

/// What there is to know about a limit.
struct Row {
    limit: SizeLimit,
    name: &'static str,
    /// What is counted, for messages: `the model has 5 operators`.
    what: &'static str,
    default: usize,
}

const fn row(limit: SizeLimit, name: &'static str, what: &'static str, default: usize) -> Row {
    Row { limit, name, what, default }
}

/// A terabyte, or all that an address can say.
const TERABYTE: usize = if usize::BITS > 40 { 1 << 40 } else { usize::MAX };

/// In the order of [`SizeLimit`].
const ROWS: [Row; 9] = [
    row(SizeLimit::TextBytes, "text-bytes", "bytes in the text", 16 << 20),
    row(SizeLimit::Words, "words", "words in the text", 1 << 20),
    row(SizeLimit::Operators, "operators", "operators", 1 << 18),
    row(SizeLimit::Operands, "operands", "operands", 1 << 18),
    row(SizeLimit::Arguments, "arguments", "inputs and outputs of one operator", 1 << 17),
    row(SizeLimit::ParameterBytes, "parameter-bytes", "bytes in one parameter", 1 << 20),
    row(SizeLimit::ExpressionParts, "expression-parts", "parts in one expression", 1 << 17),
    row(SizeLimit::Rank, "rank", "dimensions of a tensor", 64),
    row(SizeLimit::PlannedBytes, "planned-bytes", "bytes in a plan", TERABYTE),
];

impl SizeLimit {
    /// All limits.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        ROWS.iter().map(|row| row.limit)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize] // a test compares their order
    }

    /// Its name, for command lines and configuration files.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What is counted.
    pub fn what(self) -> &'static str {
        self.row().what
    }

    /// What holds where nobody says otherwise.
    pub fn default_value(self) -> usize {
        self.row().default
    }

    /// The most that can be set: what tensors can have, of their dimensions.
    pub fn largest(self) -> usize {
        if self == Self::Rank { self.default_value() } else { usize::MAX }
    }
}

impl fmt::Display for SizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no limit has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no limit has this name; there are {}", names())]
pub struct UnknownLimit;

fn names() -> String {
    SizeLimit::all().map(SizeLimit::name).collect::<Vec<_>>().join(", ")
}

impl FromStr for SizeLimit {
    type Err = UnknownLimit;

    fn from_str(name: &str) -> Result<Self, UnknownLimit> {
        SizeLimit::all().find(|limit| limit.name() == name).ok_or(UnknownLimit)
    }
}

/// How large a model may be: a value for each [`SizeLimit`].
///
/// ```
/// use plutino_ir::{LoadOptions, SizeLimit, SizeLimits};
/// let sizes = SizeLimits::default().with(SizeLimit::Operators, 1000);
/// assert_eq!(sizes.get(SizeLimit::Operators), 1000);
/// assert_eq!(sizes.get(SizeLimit::Rank), 64);
/// let options = LoadOptions { sizes, ..LoadOptions::default() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimits([usize; ROWS.len()]);

impl Default for SizeLimits {
    fn default() -> Self {
        Self(std::array::from_fn(|at| ROWS[at].default))
    }
}

impl SizeLimits {
    /// How much there may be.
    pub fn get(&self, limit: SizeLimit) -> usize {
        self.0[limit as usize]
    }

    /// The same but for one limit: so much, or [`SizeLimit::largest`] where that is less.
    #[must_use]
    pub fn with(mut self, limit: SizeLimit, most: usize) -> Self {
        self.0[limit as usize] = most.min(limit.largest());
        self
    }

    /// Whether there may be so much.
    ///
    /// # Errors
    /// Where there may not.
    pub fn check(&self, limit: SizeLimit, found: usize) -> Result<(), TooLarge> {
        match self.get(limit) {
            most if found > most => Err(TooLarge { limit, found, most }),
            _ => Ok(()),
        }
    }

    /// Whether a graph is small enough, wherever it comes from.
    ///
    /// # Errors
    /// The first limit that is exceeded, and by which operator, where it is one.
    pub fn check_graph(&self, graph: &Graph) -> Result<(), (Option<OperatorId>, TooLarge)> {
        let whole = |e| (None, e);
        self.check(SizeLimit::Operators, graph.operator_count()).map_err(whole)?;
        self.check(SizeLimit::Operands, graph.operand_count()).map_err(whole)?;
        for (id, operator) in graph.operators() {
            self.check_operator(graph, operator).map_err(|e| (Some(id), e))?;
        }
        Ok(())
    }

    fn check_operator(&self, graph: &Graph, operator: &Operator) -> Result<(), TooLarge> {
        let arguments = operator.inputs.len().saturating_add(operator.outputs.len());
        self.check(SizeLimit::Arguments, arguments)?;
        for (key, value) in &operator.params {
            let (Parameter::Str(text) | Parameter::Other(text)) = value else { continue };
            self.check_parameter(key, text).map_err(|(_, e)| e)?;
        }
        for attribute in operator.attrs.values() {
            self.check(SizeLimit::Rank, attribute.shape().len())?;
        }
        let made = operator.outputs.iter().filter_map(|&id| graph.operand(id));
        made.filter_map(|operand| operand.ty.shape.as_deref()).try_for_each(|dims| self.dims(dims))
    }

    /// Whether a recorded shape has few enough dimensions.
    pub(crate) fn dims(&self, dims: &[Dim]) -> Result<(), TooLarge> {
        self.check(SizeLimit::Rank, dims.len())
    }

    /// Whether the text of a parameter is small enough; otherwise, where in it that is exceeded.
    pub(crate) fn check_parameter(&self, key: &str, text: &str) -> Result<(), (usize, TooLarge)> {
        self.check(SizeLimit::ParameterBytes, text.len()).map_err(|e| (0, e))?;
        if key != EXPRESSION {
            return Ok(());
        }
        // Every part but the first comes behind one of these.
        let most = self.get(SizeLimit::ExpressionParts);
        let mut ends = text.match_indices(['(', '[', ',']).map(|(at, _)| at);
        match most.checked_sub(1).map_or(Some(0), |skipped| ends.by_ref().nth(skipped)) {
            None => Ok(()),
            Some(at) => {
                let found = most.saturating_add(1).saturating_add(ends.count());
                Err((at, TooLarge { limit: SizeLimit::ExpressionParts, found, most }))
            }
        }
    }
}

/// The parameter that holds expressions and lists of indices.
pub(crate) const EXPRESSION: &str = "expr";

/// A model exceeds one of its [`SizeLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{found} {}, the limit is {most}{}", limit.what(), remedy(*limit, *most))]
pub struct TooLarge {
    /// Which limit.
    pub limit: SizeLimit,
    /// How much there is, or would be.
    pub found: usize,
    /// How much there may be.
    pub most: usize,
}

impl TooLarge {
    /// Where the part of the message begins that says what to do about it.
    pub const REMEDY: &str = ": whoever trusts the model can raise ";
}

fn remedy(limit: SizeLimit, most: usize) -> String {
    if most >= limit.largest() {
        return String::new();
    }
    let how = TooLarge::REMEDY;
    format!("{how}'{limit}' (LoadOptions::sizes, or `--limit {limit}=N`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_raised_is_not_said_to_be() {
        let sizes = SizeLimits::default().with(SizeLimit::Rank, 100);
        assert_eq!(sizes.get(SizeLimit::Rank), 64);
        let error = sizes.check(SizeLimit::Rank, 65).unwrap_err();
        assert_eq!(error.to_string(), "65 dimensions of a tensor, the limit is 64");
        let error = sizes.with(SizeLimit::Rank, 3).check(SizeLimit::Rank, 4).unwrap_err();
        assert!(error.to_string().contains(TooLarge::REMEDY), "{error}");
    }

    #[test]
    fn limits_have_a_row_and_a_name_each() {
        for (at, (limit, row)) in SizeLimit::all().zip(&ROWS).enumerate() {
            assert_eq!(limit as usize, at);
            assert_eq!(row.limit, limit);
            assert_eq!(limit.name().parse(), Ok(limit));
            assert_eq!(SizeLimits::default().get(limit), limit.default_value());
        }
        let names = "operator".parse::<SizeLimit>().unwrap_err().to_string();
        assert!(names.ends_with("rank, planned-bytes"), "{names}");
    }

    #[test]
    fn what_is_as_large_as_the_limit_is_not_too_large() {
        let sizes = SizeLimits::default().with(SizeLimit::Words, 3);
        assert_eq!(sizes.check(SizeLimit::Words, 3), Ok(()));
        let error = sizes.check(SizeLimit::Words, 4).unwrap_err();
        assert_eq!(error, TooLarge { limit: SizeLimit::Words, found: 4, most: 3 });
        assert_eq!(
            error.to_string(),
            "4 words in the text, the limit is 3: whoever trusts the model can raise 'words' \
             (LoadOptions::sizes, or `--limit words=N`)"
        );
    }

    #[test]
    fn parts_of_expressions_are_counted() {
        let parts = |text: &str, most: usize| {
            SizeLimits::default()
                .with(SizeLimit::ExpressionParts, most)
                .check_parameter("expr", text)
        };
        let of = |found, most| TooLarge { limit: SizeLimit::ExpressionParts, found, most };
        assert_eq!(parts("add(@0,mul(@1,2.0))", 5), Ok(()));
        assert_eq!(parts("add(@0,mul(@1,2.0))", 4), Err((13, of(5, 4))));
        assert_eq!(parts("add(@0,mul(@1,2.0))", 1), Err((3, of(5, 1))));
        assert_eq!(parts("@0", 0), Err((0, of(1, 0))));
        let long = "x".repeat(100);
        let sizes = SizeLimits::default().with(SizeLimit::ParameterBytes, 99);
        assert!(sizes.check_parameter("foo", &long).is_err());
    }
}

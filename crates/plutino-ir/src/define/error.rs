//! What can be wrong between a node and the definition of its type.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::{MOST_DEFINITION_LEVELS, Origin};
use crate::graph::Operator;
use crate::limits::Interrupted;
use crate::quote::{Quoted, quote, quote_path};
use crate::sizes::TooLarge;

/// Where an operator stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The file, or what stands for it.
    pub file: Arc<str>,
    /// Line, from 1; none where the operator was made by an edit.
    pub line: Option<u32>,
    /// Type.
    pub kind: String,
    /// Name, in the graph that everything is put into.
    pub name: String,
    /// The node in whose place the operator stands, where that is one.
    pub origin: Option<Arc<Origin>>,
}

impl Site {
    /// The place of an operator of a graph that was read from `file`.
    pub fn of(file: &str, operator: &Operator) -> Self {
        Self {
            file: operator.origin.as_ref().map_or_else(|| file.into(), |o| Arc::clone(&o.file)),
            line: operator.line,
            kind: operator.kind.clone(),
            name: operator.name.clone(),
            origin: operator.origin.clone(),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote_path(&*self.file))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {} '{}'", quote(&self.kind), quote(&self.name))?;
        self.origin.as_ref().map_or(Ok(()), |origin| origin.fmt(f))
    }
}

/// ` (for models.Focus 'focus' at net.pnnx.param:4)`, with the nodes between left out.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (site, levels) = self.outermost();
        let file = quote_path(&*site.file);
        write!(f, " (for {} '{}' at {file}", quote(&site.kind), quote(&site.name))?;
        if let Some(line) = site.line {
            write!(f, ":{line}")?;
        }
        match levels {
            1 => f.write_str(")"),
            _ => write!(f, ", {levels} definitions deep)"),
        }
    }
}

/// A definition does not fit the node that asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{node}: {problem}; it is defined by {definition}")]
pub struct DefineError {
    /// The node.
    pub node: Box<Site>,
    /// The file of the definition, with a line where one operator of it is in question.
    pub definition: String,
    /// What is wrong.
    pub problem: DefineProblem,
}

/// What is wrong between a node and the definition of its type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DefineProblem {
    /// The type is one that no model can stand for.
    #[error("this type cannot be defined: it is a part of the format")]
    Reserved,
    /// A definition contains its own type.
    #[error("the type is defined by itself: {}", chain(.0))]
    Recursive(
        /// The types, each of which contains the next one; the last is the first.
        Vec<String>,
    ),
    /// Definitions lie too deep inside each other.
    #[error("definitions may lie {MOST_DEFINITION_LEVELS} deep inside each other at most: {}", chain(.0))]
    TooDeep(
        /// The types, each of which contains the next one.
        Vec<String>,
    ),
    /// The number of inputs differs.
    #[error("{found} inputs are given, the definition has {} ({})", expected.len(), list(expected))]
    Inputs {
        /// The inputs of the definition.
        expected: Vec<String>,
        /// The number of inputs of the node.
        found: usize,
    },
    /// The number of outputs differs.
    #[error(
        "the file gives it {found} outputs, the definition has {} ({}){}", expected.len(), list(expected),
        if *open { ", and what is recorded of them does not tell which are meant" } else { "" }
    )]
    Outputs {
        /// The outputs of the definition, tuples taken apart.
        expected: Vec<String>,
        /// The number of outputs of the node.
        found: usize,
        /// Whether it has fewer, of which more than one choice is possible.
        open: bool,
    },
    /// Neither the node nor the definition has the weight.
    #[error(
        "weight '@{weight}' is missing: the node has none of that name, and the definition has no data (a \
         .bin file) for it", weight = quote(weight)
    )]
    MissingWeight {
        /// Name of the weight within the definition.
        weight: String,
    },
    /// The node's weight is another one than the definition's.
    #[error("weight '@{weight}' must be {expected}, found {found}", weight = quote(weight))]
    Weight {
        /// Name of the weight within the definition.
        weight: String,
        /// Shape and type in the definition.
        expected: String,
        /// Shape and type in the node.
        found: String,
    },
    /// A weight of the node is read by nobody: the definition has weights of its own instead, which
    /// need not be those of this node.
    #[error(
        "weight '@{weight}' of the node is read by no operator of the definition: export the definition with \
         pnnx's optlevel=1, which keeps names and merges no layers", weight = quote(weight)
    )]
    UnusedWeight {
        /// Name of the weight.
        weight: String,
    },
    /// Put into each other, the definitions exceed a limit.
    #[error("{0}, with all definitions in their places")]
    TooLarge(TooLarge),
    /// Put into each other, the definitions take more memory than the caller allows
    /// ([`LoadOptions::memory_budget`](crate::LoadOptions::memory_budget)).
    #[error(
        "the operators of all definitions need {needed} bytes of memory, the budget is {budget}"
    )]
    Budget {
        /// Bytes needed.
        needed: usize,
        /// Bytes allowed.
        budget: usize,
    },
    /// The caller's limits ended the work.
    #[error("{0} while definitions are put in their places")]
    Interrupted(Interrupted),
}

impl DefineProblem {
    /// Whether a limit that the caller can move is what is wrong.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::TooLarge(_) | Self::Budget { .. } | Self::Interrupted(_))
    }
}

/// Names that a message lists.
const MOST_NAMED: usize = 8;

fn quoted(names: &[String]) -> impl Iterator<Item = Quoted<'_>> {
    names.iter().take(MOST_NAMED).map(|name| quote(name))
}

fn list(names: &[String]) -> String {
    let shown: Vec<String> = quoted(names).map(|name| format!("'{name}'")).collect();
    match names.len().saturating_sub(MOST_NAMED) {
        0 if names.is_empty() => "none".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// `a -> b -> a`
fn chain(names: &[String]) -> String {
    let mut shown: Vec<String> = quoted(names).map(|name| name.to_string()).collect();
    if let Some(left @ 1..) = names.len().checked_sub(MOST_NAMED) {
        if left > 1 {
            shown.push(format!("... {} more", left - 1));
        }
        shown.extend(names.last().map(|name| quote(name).to_string()));
    }
    shown.join(" -> ")
}

//! The `.param` text: grammar, graph from lines, lines from graph.

mod build;
mod grammar;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use build::parse_graph;
pub(crate) use write::{check_type, write_operator};

//! From a graph to lines, spelled and spaced as pnnx does.

use std::collections::HashSet;
use std::fmt::{self, Write};

use super::build::parameter;
use super::grammar::{self, AFTER, MAGIC};
use crate::dtype::{Dim, TensorType};
use crate::error::SaveError;
use crate::graph::{EditError, Graph, OperandId, Operator, check_word};

impl Graph {
    /// The text of the `.param` file. Operators keep their order, parameters and weights are sorted
    /// by name; a type without a shape is left out, because the format has no place for it.
    ///
    /// # Errors
    /// If the graph is not [valid](Graph::validate), or has something that would be read back
    /// differently.
    pub fn to_param_string(&self) -> Result<String, SaveError> {
        self.validate()?;
        let mut text = format!("{MAGIC}\n{} {}\n", self.operator_count(), self.operand_count());
        for (_, operator) in self.operators() {
            check_operator(self, operator)?;
            // Writing to a String does not fail.
            let _ = write_operator(&mut text, self, operator);
            text.push('\n');
        }
        Ok(text)
    }
}

/// One operator, without the end of the line.
pub(crate) fn write_operator(
    out: &mut impl Write,
    graph: &Graph,
    operator: &Operator,
) -> fmt::Result {
    let name = |id: &OperandId| graph.operand(*id).map_or("", |operand| &operand.name);
    let (n_inputs, n_outputs) = (operator.inputs.len(), operator.outputs.len());
    write!(out, "{:<24} {:<24} {n_inputs} {n_outputs}", operator.kind, operator.name)?;
    for operand in operator.inputs.iter().chain(&operator.outputs) {
        write!(out, " {}", name(operand))?;
    }
    for (key, value) in &operator.params {
        write!(out, " {key}={value}")?;
    }
    for (key, attr) in &operator.attrs {
        write!(out, " @{key}={attr}")?;
    }
    for (key, operand) in operator.input_names.iter().zip(&operator.inputs) {
        if let Some(key) = key {
            write!(out, " ${key}={}", name(operand))?;
        }
    }
    for earlier in operator.after.iter().filter_map(|&id| graph.operator(id)) {
        write!(out, " ^{}{AFTER}", earlier.name)?;
    }
    for &id in operator.inputs.iter().chain(&operator.outputs) {
        if let Some(operand) = graph.operand(id).filter(|operand| operand.ty.shape.is_some()) {
            write!(out, " #{}={}", operand.name, operand.ty)?;
        }
    }
    Ok(())
}

/// Refuses what could be written but not read back.
fn check_operator(graph: &Graph, operator: &Operator) -> Result<(), SaveError> {
    for (name, value) in &operator.params {
        check_key("a parameter's name", name)?;
        let text = value.to_string();
        let one_word = !text.chars().any(char::is_whitespace);
        if !one_word || parameter(name, &text).as_ref() != Ok(value) {
            return Err(SaveError::Parameter {
                operator: operator.name.clone(),
                name: name.clone(),
                kind: value.kind(),
                text,
            });
        }
    }
    for name in operator.attrs.keys() {
        check_key("a weight's name", name)?;
    }
    let mut unnamed = HashSet::new();
    for (input, key) in operator.inputs.iter().zip(&operator.input_names) {
        match key {
            None => {
                unnamed.insert(input);
            }
            Some(key) if unnamed.contains(input) => {
                let operand =
                    graph.operand(*input).map(|operand| operand.name.clone()).unwrap_or_default();
                return Err(SaveError::InputName {
                    operator: operator.name.clone(),
                    operand,
                    key: key.clone(),
                });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn check_key(what: &'static str, key: &str) -> Result<(), EditError> {
    check_word(what, key, Some('='))?;
    if what == "a parameter's name" && key.starts_with(['@', '#', '$', '^']) {
        let why = "it begins with '@', '#', '$' or '^'";
        return Err(EditError::InvalidName { what, name: key.to_owned(), why });
    }
    Ok(())
}

/// Checks that a type's symbols read back.
pub(crate) fn check_type(ty: &TensorType) -> Result<(), EditError> {
    let what = "a dimension's name";
    for dim in ty.shape.iter().flatten() {
        if let Dim::Symbol(name) = dim {
            check_word(what, name, None)?;
            if !grammar::is_symbol(name) {
                return Err(EditError::InvalidName {
                    what,
                    name: name.clone(),
                    why: "it contains ',', '(' or ')'",
                });
            }
        }
    }
    Ok(())
}

//! Operators that are a few others, written down as PNNX has them.
//!
//! A family gives the text of its steps for given inputs ([`Compose`]). A pass puts the steps in
//! the operator's place; where nobody does, they are one kernel ([`super::steps`]).

use super::steps::{Composed, Composite};
use crate::{
    BuildError, ExpandedStep, Expansion, Operator, ShapeError, StepValue, TensorValue, ValueSpec,
    registry,
};
use plutino_ir::Graph;
use plutino_tensor::DType;
use std::fmt::Debug;

/// An operator that is computed by others.
pub(crate) trait Compose: Debug + Send + Sync + 'static {
    /// PyTorch's name, shown as the kernel's.
    fn name(&self) -> &'static str;

    /// The inputs of the node that the steps read: tensors, or lists of them.
    fn inputs(&self) -> Vec<usize>;

    /// The steps for these inputs, a line each: type, inputs, output and parameters of an operator
    /// with one output. The tensors among the inputs of the node are named `x0`, `x1`, and so on,
    /// in the order of [`Compose::inputs`]; the last line's output is the result.
    ///
    /// # Errors
    /// Where PyTorch would refuse the inputs.
    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError>;
}

/// A step: type (or operator), names of the inputs, name of the output, parameters.
pub(crate) struct StepText {
    kind: &'static str,
    /// What is computed, where that has no type of its own.
    operator: Option<Box<dyn Operator>>,
    inputs: Vec<String>,
    output: String,
    parameters: String,
}

impl StepText {
    pub(crate) fn new(kind: &'static str, inputs: &[&str], output: &str, parameters: &str) -> Self {
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        let (output, parameters) = (output.to_owned(), parameters.to_owned());
        Self { kind, operator: None, inputs, output, parameters }
    }

    /// A step that no file could name: this operator, of these inputs, in the order that it knows
    /// them by.
    pub(crate) fn of(operator: Box<dyn Operator>, inputs: &[&str], output: &str) -> Self {
        Self { operator: Some(operator), ..Self::new("step", inputs, output, "") }
    }
}

/// Makes steps of their text.
#[derive(Debug)]
struct Text(Box<dyn Compose>);

/// The boxed operator that a builder returns.
pub(crate) fn composed(c: impl Compose) -> Result<Box<dyn Operator>, BuildError> {
    Ok(composite(c))
}

/// The operator of the steps.
pub(crate) fn composite(c: impl Compose) -> Box<dyn Operator> {
    Box::new(Composite(Text(Box::new(c))))
}

/// Sizes, dimensions or permutations as a parameter has them: `(2,3)`.
pub(crate) fn list<T: ToString>(numbers: &[T]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("({})", numbers.join(","))
}

/// A number as a parameter has it: with a point or an exponent, or it would be an integer.
pub(crate) fn number(x: f64) -> String {
    format!("{x:?}")
}

/// A dtype as a parameter has it: `torch.float32`.
pub(crate) fn word(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "torch.float32",
        DType::F64 => "torch.float64",
        DType::F16 => "torch.float16",
        DType::Bf16 => "torch.bfloat16",
        DType::I64 => "torch.int64",
        DType::I32 => "torch.int32",
        DType::I16 => "torch.int16",
        DType::I8 => "torch.int8",
        DType::U8 => "torch.uint8",
        DType::Bool => "torch.bool",
        DType::C64 => "torch.complex64",
        DType::C128 => "torch.complex128",
        DType::C32 => "torch.complex32",
    }
}

/// The tensors among the inputs that steps read: where they are, and what planning knows of them.
fn tensors(
    inputs: &[ValueSpec],
    read: &[usize],
) -> Result<Vec<(StepValue, ValueSpec)>, ShapeError> {
    let mut found = Vec::with_capacity(read.len());
    for &input in read {
        match inputs.get(input) {
            // A list is what an operator of nothing but a list takes apart.
            Some(list @ ValueSpec::List(_))
                if read.len() == 1
                    && list.leaf_count() > 0
                    && list.leaves().iter().all(|leaf| leaf.as_tensor().is_some()) =>
            {
                let leaves = list.leaves().into_iter().cloned().enumerate();
                found.extend(leaves.map(|(i, leaf)| (StepValue::Member(input, i), leaf)));
            }
            _ => {
                let tensor = TensorValue::at(inputs, input)?.clone(); // an error names the input
                found.push((StepValue::Input(input), ValueSpec::Tensor(tensor)));
            }
        }
    }
    Ok(found)
}

fn defect(what: impl std::fmt::Display) -> ShapeError {
    ShapeError::Invalid(format!("internal: {what}"))
}

impl Composed for Text {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn expansion(&self, inputs: &[ValueSpec]) -> Result<Expansion, ShapeError> {
        let read = tensors(inputs, &self.0.inputs())?;
        let values: Vec<_> = read.iter().filter_map(|(_, value)| value.as_tensor()).collect();
        let texts = self.0.steps(&values)?;
        let mut text = format!("7767517\n{0} {0}\n", read.len() + texts.len());
        for i in 0..read.len() {
            text += &format!("pnnx.Input in{i} 0 1 x{i}\n");
        }
        for (i, step) in texts.iter().enumerate() {
            let StepText { kind, inputs, output, parameters, .. } = step;
            let (count, inputs) = (inputs.len(), inputs.join(" "));
            text += &format!("{kind} step{i} {count} 1 {inputs} {output} {parameters}\n");
        }
        let graph = Graph::parse(&text).map_err(defect)?;
        let registry = registry().map_err(defect)?;
        // Values by operand: those of the inputs, then those of the steps.
        let mut made: Vec<_> =
            (0..read.len()).map(|i| (graph.operand_by_name(&format!("x{i}")), read[i].0)).collect();
        let mut steps = Vec::with_capacity(texts.len());
        for ((_, node), text) in graph.operators().skip(read.len()).zip(texts) {
            let (kind, operator) = match text.operator {
                Some(operator) => (self.0.name(), operator),
                None => (
                    text.kind,
                    registry.build(self.0.name(), &graph, node).map_err(|e| {
                        ShapeError::Invalid(e.problem.to_string()) // about an argument that was passed on
                    })?,
                ),
            };
            let at = |id| made.iter().find(|(other, _)| *other == Some(id)).map(|&(_, v)| v);
            let inputs: Option<Vec<StepValue>> = node.inputs.iter().map(|&id| at(id)).collect();
            let inputs = inputs.ok_or_else(|| defect("a step reads what nobody made"))?;
            made.push((node.outputs.first().copied(), StepValue::Step(steps.len(), 0)));
            let kind = kind.to_owned();
            steps.push(ExpandedStep { kind, name: text.output, operator: operator.into(), inputs });
        }
        let last = steps.len().checked_sub(1).ok_or_else(|| defect("there are no steps"))?;
        Ok(Expansion { steps, outputs: vec![StepValue::Step(last, 0)], listed: false })
    }
}

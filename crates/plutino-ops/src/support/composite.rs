//! Operators that are a few others, written down as PNNX has them.
//!
//! A family gives the text of its steps for given inputs ([`Compose`]); infer, plan and the kernel
//! are here. What lies between the steps lies in scratch memory, each value in a place of its own.

use crate::{
    Alias, BuildError, Cost, Input, Inputs, Kernel, Operator, Output, Outputs, PlanCx, PlanError,
    Planned, RunCx, RunError, ShapeError, TensorValue, ValueSpec, registry,
};
use plutino_ir::Graph;
use plutino_tensor::{DType, TensorSpec};
use smallvec::smallvec;
use std::fmt::Debug;

/// Bytes between the places of two values, and what divides them.
const ALIGNMENT: usize = 64;

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

/// Where a step finds an input.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// An input leaf of the node, from this byte on.
    Leaf(usize, usize),
    /// The result of a step, from this byte on.
    Step(usize, usize),
}

impl Place {
    /// The place so many bytes on.
    fn further(self, bytes: usize) -> Self {
        match self {
            Self::Leaf(leaf, start) => Self::Leaf(leaf, start.saturating_add(bytes)),
            Self::Step(step, start) => Self::Step(step, start.saturating_add(bytes)),
        }
    }
}

/// A step for given inputs.
#[derive(Debug)]
struct Step {
    operator: Box<dyn Operator>,
    /// Where its inputs are: numbers of the node's inputs read, then of steps.
    from: Vec<usize>,
    inputs: Vec<ValueSpec>,
    output: ValueSpec,
}

/// Makes an operator of its steps.
#[derive(Debug)]
struct Composite<C>(C);

/// The boxed operator that a builder returns.
pub(crate) fn composed(c: impl Compose) -> Result<Box<dyn Operator>, BuildError> {
    Ok(Box::new(Composite(c)))
}

/// Sizes, dimensions or permutations as a parameter has them: `(2,3)`.
pub(crate) fn list<T: ToString>(numbers: &[T]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("({})", numbers.join(","))
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

/// The tensors among the inputs that steps read: the number of the leaf, and what planning knows of
/// it.
fn tensors(inputs: &[ValueSpec], read: &[usize]) -> Result<Vec<(usize, ValueSpec)>, ShapeError> {
    let mut found = Vec::with_capacity(read.len());
    for &input in read {
        let first = crate::support::assemble::leaf(inputs, input);
        let leaves = inputs.get(input).map(ValueSpec::leaves).unwrap_or_default();
        if leaves.iter().any(|leaf| leaf.as_tensor().is_none()) || !input_exists(inputs, input) {
            TensorValue::at(inputs, input)?; // names the input
        }
        let numbered = leaves.into_iter().enumerate();
        found.extend(numbered.map(|(i, leaf)| (first.saturating_add(i), leaf.clone())));
    }
    Ok(found)
}

fn input_exists(inputs: &[ValueSpec], input: usize) -> bool {
    !matches!(inputs.get(input), None | Some(ValueSpec::Word(_)))
}

fn defect(what: impl std::fmt::Display) -> ShapeError {
    ShapeError::Invalid(format!("internal: {what}"))
}

impl<C: Compose> Composite<C> {
    /// The steps for these tensors, inferred one after the other.
    fn steps(&self, read: &[(usize, ValueSpec)]) -> Result<Vec<Step>, ShapeError> {
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
        let mut made = Vec::with_capacity(read.len() + texts.len());
        let mut specs: Vec<ValueSpec> = Vec::with_capacity(read.len() + texts.len());
        for (i, (_, value)) in read.iter().enumerate() {
            made.push(graph.operand_by_name(&format!("x{i}")));
            specs.push(value.clone());
        }
        let mut steps = Vec::with_capacity(texts.len());
        for ((_, node), text) in graph.operators().skip(read.len()).zip(texts) {
            let operator = match text.operator {
                Some(operator) => operator,
                None => registry.build(self.0.name(), &graph, node).map_err(|e| {
                    ShapeError::Invalid(e.problem.to_string()) // about an argument that was passed on
                })?,
            };
            let at = |id| made.iter().position(|&other| other == Some(id));
            let from: Option<Vec<usize>> = node.inputs.iter().map(|&id| at(id)).collect();
            let from = from.ok_or_else(|| defect("a step reads what nobody made"))?;
            let inputs: Vec<ValueSpec> =
                from.iter().filter_map(|&i| specs.get(i).cloned()).collect();
            let mut outputs = operator.infer(&inputs)?;
            let (Some(output), true) = (outputs.pop(), outputs.is_empty()) else {
                return Err(defect("a step has one output"));
            };
            TensorValue::at(std::slice::from_ref(&output), 0)?;
            made.push(node.outputs.first().copied());
            specs.push(output.clone());
            steps.push(Step { operator, from, inputs, output });
        }
        Ok(steps)
    }
}

impl<C: Compose> Operator for Composite<C> {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let read = tensors(inputs, &self.0.inputs())?;
        let last = self.steps(&read)?.pop().ok_or_else(|| defect("there are no steps"))?;
        Ok(vec![last.output])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let read = tensors(cx.inputs, &self.0.inputs())?;
        let steps = self.steps(&read)?;
        let mut places: Vec<Place> = read.iter().map(|(leaf, _)| Place::Leaf(*leaf, 0)).collect();
        let (mut kernels, mut lens, mut inner) = (Vec::new(), Vec::new(), 0);
        let mut result = None;
        for step in steps {
            let outputs = std::slice::from_ref(&step.output);
            let planned = step.operator.plan(&PlanCx { inputs: &step.inputs, outputs, ..*cx })?;
            let spec = TensorValue::at(outputs, 0)?.spec.clone();
            let from = step.from.iter().filter_map(|&i| places.get(i).copied()).collect::<Vec<_>>();
            result = Some(spec.clone());
            let Some(kernel) = planned.kernel else {
                // No step: the memory of an input, from somewhere on.
                let view = match planned.alias.first() {
                    Some(&Alias::View { input, offset }) => from.get(input).map(|p| (*p, offset)),
                    _ => None,
                };
                let refuse = || PlanError::Unsupported(format!("{} without a step", self.0.name()));
                let (place, offset) = view.ok_or_else(refuse)?;
                places.push(place.further(offset.saturating_mul(spec.dtype.size_of())));
                continue;
            };
            let specs: Result<Vec<_>, ShapeError> = (0..step.inputs.len())
                .map(|i| Ok(TensorValue::at(&step.inputs, i)?.spec.clone()))
                .collect();
            places.push(Place::Step(kernels.len(), 0));
            inner = inner.max(planned.scratch);
            lens.push(spec.storage_bytes()?.next_multiple_of(ALIGNMENT));
            let inputs = specs?.into_iter().zip(from).collect();
            kernels.push(StepKernel { kernel, inputs, output: spec });
        }
        let last = kernels.len().saturating_sub(1);
        if let (Some(&place), Some(spec)) = (places.last(), result) {
            let unit = spec.dtype.size_of();
            match place {
                Place::Leaf(input, start) if start.is_multiple_of(unit) => {
                    let view = Alias::View { input, offset: start / unit };
                    return Ok(Planned::views(vec![view]));
                }
                // Another shape for what the last kernel computed.
                Place::Step(step, 0)
                    if step == last && kernels.get(last).is_some_and(|k| k.fills(&spec)) => {}
                _ => {
                    lens.push(spec.storage_bytes()?.next_multiple_of(ALIGNMENT));
                    let inputs = vec![(spec.clone(), place)];
                    kernels.push(StepKernel { kernel: Box::new(CopyBytes), inputs, output: spec });
                }
            }
        }
        lens.pop(); // the last result is the output
        let scratch = lens.iter().fold(inner, |all: usize, &len| all.saturating_add(len));
        Ok(Planned::new(Steps { name: self.0.name(), kernels, lens }).with_scratch(scratch))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let steps = tensors(inputs, &self.0.inputs()).and_then(|read| self.steps(&read));
        let Ok(steps) = steps else { return Cost::moved(inputs, outputs) };
        steps.iter().fold(Cost::default(), |all, step| {
            let cost = step.operator.cost(&step.inputs, std::slice::from_ref(&step.output));
            Cost {
                flops: all.flops.saturating_add(cost.flops),
                bytes: all.bytes.saturating_add(cost.bytes),
            }
        })
    }
}

/// The kernel of a step.
struct StepKernel {
    kernel: Box<dyn Kernel>,
    inputs: Vec<(TensorSpec, Place)>,
    output: TensorSpec,
}

impl StepKernel {
    /// Whether a value of this kind is all of the result, as it lies in memory.
    fn fills(&self, spec: &TensorSpec) -> bool {
        let bytes = |spec: &TensorSpec| spec.storage_bytes().ok();
        bytes(&self.output) == bytes(spec)
    }
}

/// A result that lies among the inputs, or inside what a step computed.
struct CopyBytes;

impl Kernel for CopyBytes {
    fn name(&self) -> &str {
        "copy"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let from = cx.inputs.bytes(0)?;
        let (_, to) = cx.outputs.take_bytes(0)?;
        match from.len() == to.len() {
            true => to.copy_from_slice(from),
            false => return Err(RunError::Internal("a view of another size".into())),
        }
        Ok(())
    }
}

struct Steps {
    name: &'static str,
    kernels: Vec<StepKernel>,
    /// Bytes of every result but the last.
    lens: Vec<usize>,
}

impl Kernel for Steps {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let outside = || RunError::Internal("a step lies outside its memory".into());
        let mut scratch = &mut *cx.scratch;
        let mut results: Vec<&mut [u8]> = Vec::with_capacity(self.kernels.len());
        for &len in &self.lens {
            let (result, rest) = scratch.split_at_mut_checked(len).ok_or_else(outside)?;
            results.push(result);
            scratch = rest;
        }
        results.push(cx.outputs.take_bytes(0)?.1);
        for (i, step) in self.kernels.iter().enumerate() {
            let (before, now) = results.split_at_mut_checked(i).ok_or_else(outside)?;
            let mut inputs = Inputs(Default::default());
            for (spec, place) in &step.inputs {
                let (bytes, start) = match *place {
                    Place::Leaf(leaf, start) => (cx.inputs.bytes(leaf)?, start),
                    Place::Step(step, start) => (&**before.get(step).ok_or_else(outside)?, start),
                };
                let end = start.saturating_add(spec.storage_bytes()?);
                let bytes = Some(bytes.get(start..end).ok_or_else(outside)?);
                inputs.0.push(Input { spec, bytes });
            }
            let bytes = now.first_mut().ok_or_else(outside)?;
            let bytes = bytes.get_mut(..step.output.storage_bytes()?).ok_or_else(outside)?;
            let output = Output::Fixed { spec: &step.output, bytes };
            let outputs = Outputs(smallvec![Some(output)]);
            let mut inner = RunCx { inputs, outputs, scratch: &mut *scratch, par: cx.par };
            step.kernel.run(&mut inner)?;
        }
        Ok(())
    }
}

//! Operators that are a few others, written down as PNNX has them.
//!
//! A family gives the text of its steps for given inputs ([`Compose`]); infer, plan and the kernel are here. What lies
//! between the steps lies in scratch memory, each value in a place of its own.

use crate::{
    Alias, BuildError, Cost, Input, Inputs, Kernel, Operator, Output, Outputs, PlanCx, PlanError,
    Planned, RunCx, RunError, ShapeError, TensorValue, ValueSpec, registry,
};
use plutino_ir::Graph;
use plutino_tensor::TensorSpec;
use smallvec::smallvec;
use std::fmt::Debug;

/// Bytes between the places of two values, and what divides them.
const ALIGNMENT: usize = 64;

/// An operator that is computed by others.
pub(crate) trait Compose: Debug + Send + Sync + 'static {
    /// PyTorch's name, shown as the kernel's.
    fn name(&self) -> &'static str;

    /// The inputs of the node that the steps read.
    fn inputs(&self) -> Vec<usize>;

    /// The steps for these inputs, a line each: type, inputs, output and parameters of an operator with one output. The
    /// inputs of the node are named `x0`, `x1`, and so on, in the order of [`Compose::inputs`]; the last line's output is
    /// the result.
    ///
    /// # Errors
    /// Where PyTorch would refuse the inputs.
    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError>;
}

/// A step: type, names of the inputs, name of the output, parameters.
pub(crate) struct StepText {
    kind: &'static str,
    inputs: Vec<String>,
    output: String,
    parameters: String,
}

impl StepText {
    pub(crate) fn new(kind: &'static str, inputs: &[&str], output: &str, parameters: &str) -> Self {
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        Self { kind, inputs, output: output.to_owned(), parameters: parameters.to_owned() }
    }
}

/// Where a step finds an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// An input leaf of the node, from this byte on.
    Leaf(usize, usize),
    /// The result of a step, from this byte on.
    Step(usize, usize),
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

fn defect(what: impl std::fmt::Display) -> ShapeError {
    ShapeError::Invalid(format!("internal: {what}"))
}

impl<C: Compose> Composite<C> {
    /// The steps, inferred one after the other.
    fn steps(&self, inputs: &[ValueSpec]) -> Result<Vec<Step>, ShapeError> {
        let read = self.0.inputs();
        let values: Result<Vec<_>, _> = read.iter().map(|&i| TensorValue::at(inputs, i)).collect();
        let texts = self.0.steps(&values?)?;
        let mut text = format!("7767517\n{0} {0}\n", read.len() + texts.len());
        for i in 0..read.len() {
            text += &format!("pnnx.Input in{i} 0 1 x{i}\n");
        }
        for (i, step) in texts.iter().enumerate() {
            let StepText { kind, inputs, output, parameters } = step;
            let (count, inputs) = (inputs.len(), inputs.join(" "));
            text += &format!("{kind} step{i} {count} 1 {inputs} {output} {parameters}\n");
        }
        let graph = Graph::parse(&text).map_err(defect)?;
        let registry = registry().map_err(defect)?;
        // Values by operand: those of the inputs, then those of the steps.
        let mut made = Vec::with_capacity(read.len() + texts.len());
        let mut specs: Vec<ValueSpec> = Vec::with_capacity(read.len() + texts.len());
        for (i, &input) in read.iter().enumerate() {
            made.push(graph.operand_by_name(&format!("x{i}")));
            specs.extend(inputs.get(input).cloned());
        }
        let mut steps = Vec::with_capacity(texts.len());
        for (_, node) in graph.operators().skip(read.len()) {
            let operator = registry.build(self.0.name(), &graph, node).map_err(|e| {
                ShapeError::Invalid(e.problem.to_string()) // about an argument that was passed on
            })?;
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
        let last = self.steps(inputs)?.pop().ok_or_else(|| defect("there are no steps"))?;
        Ok(vec![last.output])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let read = self.0.inputs();
        let steps = self.steps(cx.inputs)?;
        let last = steps.len().saturating_sub(1);
        let mut places: Vec<Place> =
            read.iter().map(|&i| Place::Leaf(crate::assemble::leaf(cx.inputs, i), 0)).collect();
        let (mut kernels, mut lens, mut inner) = (Vec::new(), Vec::new(), 0);
        for step in steps {
            let outputs = std::slice::from_ref(&step.output);
            let planned = step.operator.plan(&PlanCx { inputs: &step.inputs, outputs, ..*cx })?;
            let spec = TensorValue::at(outputs, 0)?.spec.clone();
            let from = step.from.iter().filter_map(|&i| places.get(i).copied()).collect::<Vec<_>>();
            let Some(kernel) = planned.kernel else {
                // No step: the memory of an input, from somewhere on.
                let view = match planned.alias.first() {
                    Some(&Alias::View { input, offset }) => from.get(input).map(|p| (*p, offset)),
                    _ => None,
                };
                let Some((place, offset)) = view.filter(|_| places.len() != read.len() + last)
                else {
                    return Err(PlanError::Unsupported(format!(
                        "{} without a step",
                        self.0.name()
                    )));
                };
                let bytes = offset.saturating_mul(spec.dtype.size_of());
                places.push(match place {
                    Place::Leaf(leaf, start) => Place::Leaf(leaf, start.saturating_add(bytes)),
                    Place::Step(step, start) => Place::Step(step, start.saturating_add(bytes)),
                });
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
        lens.pop(); // the last result is the output
        let scratch = lens.iter().fold(inner, |all: usize, &len| all.saturating_add(len));
        Ok(Planned::new(Steps { name: self.0.name(), kernels, lens }).with_scratch(scratch))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let Ok(steps) = self.steps(inputs) else { return Cost::moved(inputs, outputs) };
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

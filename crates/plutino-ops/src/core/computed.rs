//! Parameters that a model computes.
//!
//! Builders read sizes, numbers and lists as parameters. Where a file gives one of them as an input
//! instead (`$kernel_size=12`, made of the sizes of a tensor), the operator cannot be built before
//! that value is known: then it stands for the operator that it becomes for given inputs.

use super::registry::OpEntry;
use super::{AskedSort, BuildError, BuildProblem, ExpandedStep, Expansion, NodeReader, Operator};
use super::{ShapeError, StepValue, ValueSpec};
use crate::native::Call;
use crate::support::steps::{Composed, Composite};
use plutino_ir::{Graph, OperandId, OperatorId, Parameter, TensorType};
use plutino_tensor::DType;
use std::collections::{BTreeMap, BTreeSet};

/// A node some of whose parameters are inputs.
#[derive(Debug)]
struct Computed {
    entry: &'static OpEntry,
    file: String,
    kind: String,
    /// Its name.
    node: String,
    /// The parameters that the file gives.
    params: BTreeMap<String, Parameter>,
    /// The others, and the input of each.
    given: Vec<(String, usize)>,
    /// The inputs that stay, by position, with their names and what the file records of them.
    inputs: Vec<(usize, Option<String>, TensorType)>,
    outputs: Vec<TensorType>,
}

/// The operator of a node that could not be built, if the reason may be that its parameters are
/// inputs.
pub(super) fn late(
    entry: &'static OpEntry,
    (file, graph, op, call): (&str, &Graph, &plutino_ir::Operator, &Call),
    problem: &BuildProblem,
) -> Option<Box<dyn Operator>> {
    let inputs = BuildProblem::UnknownInputs { expected: 0, found: 0 };
    let may_be = matches!(problem, BuildProblem::MissingParameter { .. })
        || std::mem::discriminant(problem) == std::mem::discriminant(&inputs);
    if !may_be || !op.attrs.is_empty() {
        return None;
    }
    let mut reader = NodeReader::in_graph(file, graph, op, call);
    let (names, mut params) = (reader.input_names(), reader.known_params());
    reader.record();
    // What it makes is of no use, but it tells what it asks for.
    let _ = (entry.build)(&mut reader);
    let asked = reader.into_asked();
    let keys = |sort: AskedSort| {
        asked
            .iter()
            .filter(move |a| a.sort == sort)
            .map(|a| a.key.as_str())
            .collect::<BTreeSet<_>>()
    };
    let (parameters, tensors) = (keys(AskedSort::Parameter), keys(AskedSort::Input));
    // What the native schema has by default, and the builder does not know.
    params.retain(|key, _| {
        parameters.contains(key.as_str()) || !call.optional.contains(&key.as_str())
    });
    let recorded = |id: OperandId| graph.operand(id).map(|o| o.ty.clone()).unwrap_or_default();
    let (mut given, mut rest) = (Vec::new(), Vec::new());
    for (at, (&operand, name)) in op.inputs.iter().zip(names).enumerate() {
        match name {
            Some(name) if params.contains_key(name) => {} // a constant
            Some(name) if parameters.contains(name) && !tensors.contains(name) => {
                given.push((name.to_owned(), at));
            }
            name => rest.push((at, name.map(str::to_owned), recorded(operand))),
        }
    }
    let (kind, node) = (call.kind.unwrap_or(&op.kind).to_owned(), op.name.clone());
    let outputs = op.outputs.iter().map(|&id| recorded(id)).collect();
    let file = file.to_owned();
    let computed = Computed { entry, file, kind, node, params, given, inputs: rest, outputs };
    (!computed.given.is_empty()).then(|| Box::new(Composite(computed)) as _)
}

/// A value as a parameter has it, where it is known.
fn parameter(value: &ValueSpec) -> Option<Parameter> {
    let tensor = match value {
        ValueSpec::Word(word) => return Some(Parameter::Str(word.to_string())),
        ValueSpec::Tensor(tensor) => tensor,
        list => {
            let ints = list.known_ints().map(Parameter::Ints);
            return ints.or_else(|| list.known_floats().map(Parameter::Floats));
        }
    };
    let known = tensor.known.as_ref()?;
    let bools = |t: &plutino_tensor::Tensor| t.as_slice::<bool>().ok().map(<[bool]>::to_vec);
    match (known.dtype(), tensor.shape().rank()) {
        (DType::Bool, 0) => bools(known)?.first().copied().map(Parameter::Bool),
        (DType::Bool, _) => bools(known).map(Parameter::Bools),
        (_, 0) => {
            let int = value.known_ints().and_then(|ints| ints.first().copied());
            let float = || value.known_floats()?.first().copied();
            int.map(Parameter::Int).or_else(|| float().map(Parameter::float))
        }
        (_, 1) => {
            let ints = value.known_ints().map(Parameter::Ints);
            ints.or_else(|| value.known_floats().map(Parameter::Floats))
        }
        _ => None,
    }
}

fn defect(what: impl std::fmt::Display) -> ShapeError {
    ShapeError::Invalid(format!("internal: {what}"))
}

impl Computed {
    /// The node with these parameters, alone.
    fn alone(
        &self,
        params: BTreeMap<String, Parameter>,
    ) -> Result<(Graph, OperatorId), plutino_ir::EditError> {
        let mut graph = Graph::new();
        let mut operands = Vec::with_capacity(self.inputs.len());
        for (at, _, ty) in &self.inputs {
            let operand = graph.new_operand(&format!("in{at}"))?;
            graph.set_type(operand, ty.clone())?;
            let input = graph.new_operator("pnnx.Input", &format!("input{at}"))?;
            graph.connect_output(input, operand)?;
            operands.push(operand);
        }
        let node = graph.new_operator(&self.kind, &self.node)?;
        for ((_, name, _), operand) in self.inputs.iter().zip(operands) {
            match name {
                Some(name) => graph.connect_named_input(node, name, operand)?,
                None => graph.connect_input(node, operand)?,
            }
        }
        for (at, ty) in self.outputs.iter().enumerate() {
            let operand = graph.new_operand(&format!("out{at}"))?;
            graph.set_type(operand, ty.clone())?;
            graph.connect_output(node, operand)?;
        }
        *graph.params_mut(node)? = params;
        Ok((graph, node))
    }
}

impl Composed for Computed {
    fn name(&self) -> &str {
        &self.kind
    }

    fn expansion(&self, inputs: &[ValueSpec]) -> Result<Expansion, ShapeError> {
        let mut params = self.params.clone();
        for (key, at) in &self.given {
            let value = inputs.get(*at).and_then(parameter);
            let unknown = || ShapeError::NotKnown { input: *at, what: key.clone() };
            params.insert(key.clone(), value.ok_or_else(unknown)?);
        }
        let (graph, node) = self.alone(params).map_err(defect)?;
        let node = graph.operator(node).ok_or_else(|| defect("the node is gone"))?;
        let wrong = |e: BuildError| ShapeError::Invalid(e.problem.to_string());
        let call = Call::default();
        let operator = build(self.entry, &self.file, &graph, node, &call).map_err(wrong)?;
        let step = ExpandedStep {
            kind: self.kind.clone(),
            name: "known".into(),
            operator: operator.into(),
            inputs: self.inputs.iter().map(|(at, ..)| StepValue::Input(*at)).collect(),
        };
        let outputs = (0..self.outputs.len()).map(|output| StepValue::Step(0, output)).collect();
        Ok(Expansion { steps: vec![step], outputs, listed: false })
    }
}

/// Decodes a node; where its parameters are inputs, later.
///
/// # Errors
/// Where a parameter, weight or input is missing, malformed or unknown.
pub(super) fn build(
    entry: &'static OpEntry,
    file: &str,
    graph: &Graph,
    op: &plutino_ir::Operator,
    call: &Call,
) -> Result<Box<dyn Operator>, BuildError> {
    let mut reader = NodeReader::in_graph(file, graph, op, call);
    let built = (entry.build)(&mut reader).and_then(|built| reader.finish().map(|()| built));
    built.or_else(|error| late(entry, (file, graph, op, call), &error.problem).ok_or(error))
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check_values, iota, op, try_op, values};
    use crate::{BuildProblem, Operator, ShapeError, ValueSpec};
    use plutino_tensor::Tensor;

    fn known(operator: &dyn Operator, x: &Tensor, given: ValueSpec) -> Vec<f32> {
        let inputs = [ValueSpec::from(x.spec()), given];
        let tensors: Vec<Tensor> = inputs.iter().flat_map(ValueSpec::leaves).skip(1).fold(
            vec![x.clone()],
            |mut all, l| {
                all.extend(l.as_tensor().and_then(|t| t.known.clone()));
                all
            },
        );
        values(&check_values(operator, &inputs, &tensors)[0])
    }

    #[test]
    fn sizes_and_numbers_as_inputs() {
        let list = |ints: &[i64]| ValueSpec::python_ints(ints).unwrap();
        let pool = op("F.avg_pool2d p 2 1 0 1 2 stride=None padding=(0,0) ceil_mode=False \
                       count_include_pad=True divisor_override=None $input=0 $kernel_size=1");
        assert_eq!(known(&*pool, &iota([1, 1, 2, 3]), list(&[2, 3])), [2.5]);
        let roll = op("torch.roll r 2 1 0 1 2 dims=(0) $input=0 $shifts=1");
        assert_eq!(known(&*roll, &iota([4]), ValueSpec::python(1i64).unwrap()), [3., 0., 1., 2.]);
        let norm =
            op("aten::layer_norm n 2 1 0 1 2 cudnn_enable=False $input=0 $normalized_shape=1");
        let y = known(&*norm, &iota([2, 2]), list(&[2]));
        assert!(y.iter().zip([-1.0, 1.0, -1.0, 1.0]).all(|(y, e)| (y - e).abs() < 1e-4), "{y:?}");
        let slope = op("F.leaky_relu r 2 1 0 1 2 $input=0 $negative_slope=1");
        let x = Tensor::from_slice(&[-2.0f32, 4.0], [2]).unwrap();
        assert_eq!(known(&*slope, &x, ValueSpec::python(0.25f64).unwrap()), [-0.5, 4.0]);
    }

    #[test]
    fn what_is_not_known_or_wrong_is_told() {
        let roll = op("torch.roll r 2 1 0 1 2 dims=(0) $input=0 $shifts=1");
        let open = [ValueSpec::from(iota([4]).spec()), iota([1]).spec().into()];
        let found = roll.infer(&open).unwrap_err();
        assert_eq!(found, ShapeError::NotKnown { input: 1, what: "shifts".into() });
        let wrong = [ValueSpec::from(iota([4]).spec()), ValueSpec::python(0.5f64).unwrap()];
        assert!(
            matches!(roll.infer(&wrong), Err(ShapeError::Invalid(what)) if what.contains("shifts"))
        );
        let missing = try_op("torch.roll r 1 1 0 1 dims=(0) $input=0", &[]).unwrap_err();
        assert!(matches!(missing.problem, BuildProblem::MissingParameter { .. }));
    }
}

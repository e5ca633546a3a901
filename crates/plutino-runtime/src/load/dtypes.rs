//! Dtypes that pnnx leaves out and its records tell.
//!
//! PyTorch's reductions and softmaxes take a `dtype` to compute in, which pnnx does not write. What
//! it records of the result tells: a sum of f32 that is recorded as f64 was taken in f64. The
//! conversion becomes an operator of its own, as `x.to(dtype).sum()` would have been written:
//!
//! ```text
//! torch.sum s 1 1 0 1 dim=(1) keepdim=False #0=(4,5)f32 #1=(4)f64
//! ```
//! Autocast converts the inputs of linear layers and convolutions; pnnx folds the conversions of
//! weights, and writes none of the others. Where half weights stand between f32 and f32, both
//! conversions are put back.

use plutino_ir::{DType, EditError, Graph, OperandId, Operator, OperatorId, Parameter, TensorType};

/// Where a conversion is missing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Missing {
    /// Of the input, to this dtype.
    Before(DType),
    /// Of the result, to this dtype.
    After(DType),
    /// Of the input, to the first one, and of the result, to the second one.
    Around(DType, DType),
}

/// Conversions that one model can have lost: an edit takes time for every reader of what it edits.
const MOST: usize = 4096;

/// Puts the conversions in that a model lost, where the file records of both sides of an operator
/// show it.
pub(crate) fn restore(graph: &mut Graph) {
    let found = graph.operators().filter_map(|(id, op)| Some((id, missing(graph, op)?)));
    let all: Vec<(OperatorId, Missing)> = found.take(MOST).collect();
    for (id, missing) in all {
        // An edit fails where a name is taken: then the operator stays, and the record is said to
        // differ.
        let _ = match missing {
            Missing::Before(dtype) => before(graph, id, dtype),
            Missing::After(dtype) => after(graph, id, dtype),
            Missing::Around(inside, outside) => {
                before(graph, id, inside).and_then(|()| after(graph, id, outside))
            }
        };
    }
}

/// The conversion that an operator lacks.
fn missing(graph: &Graph, op: &Operator) -> Option<Missing> {
    let whole = |d: DType| {
        matches!(d, DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64)
    };
    let half = |d: DType| matches!(d, DType::F16 | DType::Bf16);
    if let Some(weights) = half_weights(op) {
        let ([input], [output]) = (op.inputs.as_slice(), op.outputs.as_slice()) else {
            return None;
        };
        let (from, to) = (dtype_of(graph, *input)?, dtype_of(graph, *output)?);
        return match (from, to) {
            (DType::F32, DType::F32) => Some(Missing::Around(weights, to)),
            (DType::F32, _) if to == weights => Some(Missing::Before(weights)),
            _ => None,
        };
    }
    let sums = match op.kind.as_str() {
        "torch.sum" | "torch.prod" | "torch.cumsum" | "torch.cumprod" => true,
        "torch.mean" | "torch.norm" | "F.softmax" | "F.log_softmax" | "F.softmin" | "Tensor.to" => {
            false
        }
        _ => return None,
    };
    let ([input], [output]) = (op.inputs.as_slice(), op.outputs.as_slice()) else { return None };
    if op.param("dtype").is_some_and(|dtype| !dtype.is_null()) {
        return None;
    }
    let (from, to) = (dtype_of(graph, *input)?, dtype_of(graph, *output)?);
    let natural = if sums && whole(from) { DType::I64 } else { from };
    match to {
        _ if to == natural => None,
        // As 8-bit integers, pnnx records tensors on a quantised grid.
        DType::I8 | DType::U8 | DType::Bool => None,
        _ if whole(to) && whole(from) => Some(Missing::After(to)),
        // What a model converts back at once, pnnx writes without either conversion.
        _ if half(from) && is_read_as_half(graph, *output) => None,
        _ => Some(Missing::Before(to)),
    }
}

/// The dtype of all weights of a linear layer or convolution, where that is a half.
pub(crate) fn half_weights(op: &Operator) -> Option<DType> {
    let autocast = op.kind == "nn.Linear" || op.kind.starts_with("nn.Conv");
    let first = op.attrs.values().next().filter(|_| autocast)?.dtype();
    let same = op.attrs.values().all(|weight| weight.dtype() == first);
    (same && matches!(first, DType::F16 | DType::Bf16)).then_some(first)
}

/// Whether somebody computes a half out of this value, or multiplies it by one.
fn is_read_as_half(graph: &Graph, operand: OperandId) -> bool {
    let half = |id: &OperandId| matches!(dtype_of(graph, *id), Some(DType::F16 | DType::Bf16));
    let consumers = graph.operand(operand).map(|o| o.consumers.as_slice()).unwrap_or_default();
    let mut consumers = consumers.iter().filter_map(|&id| graph.operator(id));
    consumers.any(|op| op.kind != "Tensor.to" && op.inputs.iter().chain(&op.outputs).any(half))
}

fn dtype_of(graph: &Graph, operand: OperandId) -> Option<DType> {
    graph.operand(operand)?.ty.dtype
}

/// Converts the only input of an operator.
fn before(graph: &mut Graph, id: OperatorId, dtype: DType) -> Result<(), EditError> {
    let parts = graph.operator(id).map(|op| (format!("{}.input", op.name), op.inputs.first()));
    let Some((name, Some(&input))) = parts else { return Ok(()) };
    let shape = graph.operand(input).and_then(|o| o.ty.shape.clone());
    let (cast, converted) = conversion(graph, &name, dtype)?;
    graph.set_type(converted, TensorType { shape, dtype: Some(dtype) })?;
    graph.connect_input(cast, input)?;
    graph.connect_output(cast, converted)?;
    graph.replace_input(id, 0, converted).map(|_| ())
}

/// Converts the only output of an operator, which keeps its name.
fn after(graph: &mut Graph, id: OperatorId, dtype: DType) -> Result<(), EditError> {
    let parts = graph.operator(id).map(|op| (format!("{}.output", op.name), op.outputs.first()));
    let Some((name, Some(&output))) = parts else { return Ok(()) };
    let (cast, raw) = conversion(graph, &name, dtype)?;
    graph.disconnect_output(output)?;
    graph.connect_output(id, raw)?;
    graph.connect_input(cast, raw)?;
    graph.connect_output(cast, output)
}

/// A `Tensor.to` that nothing is connected to yet, and an operand of the same name.
fn conversion(
    graph: &mut Graph,
    name: &str,
    dtype: DType,
) -> Result<(OperatorId, OperandId), EditError> {
    let operand = graph.new_operand(name)?;
    match graph.new_operator("Tensor.to", name) {
        Ok(operator) => {
            let dtype = Parameter::Str(torch(dtype).into());
            graph.params_mut(operator)?.insert("dtype".into(), dtype);
            Ok((operator, operand))
        }
        Err(error) => {
            graph.remove_operand(operand)?;
            Err(error)
        }
    }
}

/// PyTorch's name of a dtype.
fn torch(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "torch.float",
        DType::F64 => "torch.double",
        DType::F16 => "torch.half",
        DType::Bf16 => "torch.bfloat16",
        DType::I64 => "torch.long",
        DType::I32 => "torch.int",
        DType::I16 => "torch.short",
        DType::I8 => "torch.int8",
        DType::U8 => "torch.uint8",
        DType::Bool => "torch.bool",
        DType::C32 => "torch.complex32",
        DType::C64 => "torch.complex64",
        DType::C128 => "torch.complex128",
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::model;
    use crate::{Model, SessionOptions};
    use plutino_tensor::{Element, Tensor};

    /// The result for one input, and its values.
    fn run<T: Element>(model: &Model, input: Tensor) -> Vec<T> {
        let session = model.session(SessionOptions::default().with_threads(1)).unwrap();
        let output = session.run(&[input]).unwrap().remove(0);
        assert_eq!(output.dtype(), T::DTYPE);
        output.as_slice::<T>().unwrap().to_vec()
    }

    fn one(line: &str, from: &str, to: &str) -> Model {
        model(&format!(
            "pnnx.Input in 0 1 0 #0=(2,2){from}\n{line} #0=(2,2){from} #1={to}\npnnx.Output o 1 0 1"
        ))
    }

    #[test]
    fn a_recorded_dtype_is_what_is_computed_in() {
        let x = || Tensor::from_slice(&[16_777_216.0f32, 1.0, 0.0, 1.0], [2, 2]).unwrap();
        let sum = "torch.sum s 1 1 0 1 dim=(1) keepdim=False $input=0";
        assert_eq!(run::<f64>(&one(sum, "f32", "(2)f64"), x()), [16_777_217.0, 1.0]);
        assert_eq!(run::<f32>(&one(sum, "f32", "(2)f32"), x()), [16_777_216.0, 1.0]);
        let scan = "torch.cumsum s 1 1 0 1 dim=1 $input=0";
        let sums = run::<f64>(&one(scan, "f32", "(2,2)f64"), x());
        assert_eq!(sums, [16_777_216.0, 16_777_217.0, 0.0, 1.0]);
        let softmax = "F.log_softmax s 1 1 0 1 dim=-1 $input=0";
        let y = run::<f64>(&one(softmax, "f32", "(2,2)f64"), x());
        assert_eq!(y[2], -(1.0f64 + 1.0f64.exp()).ln());
        // Means and softmaxes of integers are taken in floats alone.
        let ints = || Tensor::from_slice(&[1i64, 2, 3, 4], [2, 2]).unwrap();
        let mean = "torch.mean s 1 1 0 1 dim=(1) keepdim=False $input=0";
        assert_eq!(run::<f32>(&one(mean, "i64", "(2)f32"), ints()), [1.5, 3.5]);
        let to = "Tensor.to s 1 1 0 1 copy=False $input=0";
        assert_eq!(run::<f64>(&one(to, "i64", "(2,2)f64"), ints()), [1.0, 2.0, 3.0, 4.0]);
        let ints = || Tensor::from_slice(&[1i32, 2, 3, i32::MAX], [2, 2]).unwrap();
        assert_eq!(run::<i64>(&one(sum, "i32", "(2)i64"), ints()), [3, (1 << 31) + 2]);
        assert_eq!(run::<i32>(&one(sum, "i32", "(2)i32"), ints()), [3, i32::MIN + 2]);
        assert_eq!(one(sum, "i32", "(2)i32").outputs()[0].name, "1");
    }

    #[test]
    fn half_weights_between_floats_are_those_of_autocast() {
        let lines = "pnnx.Input in 0 1 0 #0=(1,2)f32
             nn.Linear l 1 1 0 1 bias=False in_features=2 out_features=1 @weight=(1,2)bf16 #0=(1,2)f32 #1=(1,1)f32
             pnnx.Output o 1 0 1";
        let mut graph = crate::testkit::graph(lines);
        let id = graph.operator_by_name("l").unwrap();
        let one = 0x3f80u16.to_le_bytes(); // 1.0 as bf16
        let weight = graph.attrs_mut(id).unwrap().get_mut("weight").unwrap();
        weight.set_data([one, one].concat()).unwrap();
        let model = Model::from_graph(graph).unwrap();
        assert_eq!((model.warnings().len(), model.outputs()[0].name.as_str()), (1, "1"));
        // 1 + 2^-9 is rounded before the product, and 257 after it.
        let x = |values: [f32; 2]| Tensor::from_slice(&values, [1, 2]).unwrap();
        assert_eq!(run::<f32>(&model, x([1.0 + 1.0 / 512.0, 0.0])), [1.0]);
        assert_eq!(run::<f32>(&model, x([256.0, 1.0])), [256.0]);
    }

    #[test]
    fn what_is_recorded_alike_stays() {
        let sum = "torch.sum s 1 1 0 1 dim=(1) keepdim=False $input=0";
        for (from, to) in
            [("f32", "(2)f32"), ("bool", "(2)i64"), ("f32", "(2)null"), ("u8", "(2)u8")]
        {
            assert_eq!(one(sum, from, to).graph().operator_count(), 3, "{from} {to}");
        }
    }

    #[test]
    fn a_softmax_that_is_read_as_half_is_one() {
        let lines = |consumer: &str| {
            model(&format!(
                "pnnx.Input in 0 1 0 #0=(2,2)f16\n\
                 F.softmax s 1 1 0 1 dim=-1 $input=0 #0=(2,2)f16 #1=(2,2)f32\n{consumer}\n\
                 pnnx.Output o 1 0 2"
            ))
        };
        let product =
            "torch.matmul m 2 1 1 0 2 $input=1 $other=0 #1=(2,2)f32 #0=(2,2)f16 #2=(2,2)f16";
        assert_eq!(lines(product).graph().operator_count(), 4);
        let double = "pnnx.Expression m 1 1 1 2 expr=mul(@0,2) #1=(2,2)f32 #2=(2,2)f32";
        assert_eq!(lines(double).graph().operator_count(), 5);
    }
}

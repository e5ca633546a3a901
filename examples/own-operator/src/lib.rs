//! An operator that plutino does not have: [Snake](https://arxiv.org/abs/2006.08195), the
//! activation function x + sin²(a x) / a of networks that generate audio, with a number `a` for
//! each channel.
//!
//! pnnx keeps a module whole where it is told to (`pnnx.export(..., moduleop="audio.Snake")`): the
//! file then has an operator of the type `audio.Snake`, with the module's weights. This crate says
//! what that means.
#![forbid(unsafe_code)]

use plutino::DType;
use plutino::ops::{
    BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, Weight, register_op,
};

/// What a node means, whatever its shapes.
#[derive(Debug)]
struct Snake {
    /// Position of the input among those of the node.
    input: usize,
    /// (C): a number for each channel.
    frequency: Weight,
}

/// Decodes a node: what is not asked for (parameter, weight, input) is an error.
///
/// # Errors
/// Where the input or the weight is missing.
pub fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    let frequency = r.any_weight("alpha")?;
    Ok(Box::new(Snake { input, frequency }))
}

// Known to every program that links this crate: it must be named somewhere, if only by
// `use own_operator as _;`.
register_op!(build => "audio.Snake");

impl Snake {
    /// (N, C, ...), and the channels that there are numbers for.
    fn channels(&self, x: &TensorValue) -> Result<usize, ShapeError> {
        if x.dtype() != DType::F32 {
            let expected = "f32".into();
            return Err(ShapeError::DType { input: self.input, expected, found: x.dtype() });
        }
        let known = self.frequency.dims();
        match (x.shape().dims(), known) {
            ([_, channels, ..], [numbers]) if channels == numbers => Ok(*channels),
            _ => Err(ShapeError::Invalid(format!(
                "images (N, C, ...) and a number for each channel are needed, found {} and {known:?}",
                x.spec
            ))),
        }
    }
}

impl Operator for Snake {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        self.channels(x)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let channels = self.channels(x)?;
        let frequency = self.frequency.tensor()?.as_slice::<f32>()?.to_vec();
        let pixels = x.shape().dims().iter().skip(2).product();
        let kernel = SnakeKernel { input: self.input, channels, pixels, frequency };
        // The output may be the input's memory, where nobody else needs that.
        Ok(Planned::new(kernel).in_place(self.input))
    }
}

/// Everything is decided; only data is missing.
struct SnakeKernel {
    input: usize,
    channels: usize,
    pixels: usize,
    frequency: Vec<f32>,
}

impl Kernel for SnakeKernel {
    fn name(&self) -> &str {
        "snake"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let lines = cx.inout::<f32>(self.input, 0)?.into_same();
        for (i, line) in lines.chunks_mut(self.pixels.max(1)).enumerate() {
            let a = self.frequency[i % self.channels.max(1)];
            for x in line {
                let sine = (a * *x).sin();
                *x += sine * sine / a;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino::ir::{Attribute, Graph};
    use plutino::ops::{OpEntry, Registry};
    use plutino::{Model, ModelOptions, SessionOptions, Tensor};
    use plutino_ops::testkit::{assert_close, check, error, iota, op_with, tensor};
    use std::sync::Arc;

    /// The kit runs the operator on every instruction set, with 1, 2 and 3 threads, in place and
    /// apart, with garbage in its outputs: all bits must be the same.
    #[test]
    fn snake_is_computed_for_each_channel() {
        let numbers = tensor([2], &[1.0f32, 2.0]);
        let snake = op_with("audio.Snake s 1 1 0 1", &[("alpha", numbers)]);
        let y = check(&*snake, &[iota([1, 2, 2])]);
        let expected = [0.0f32, 1.708_073_4, 2.286_375, 3.039_037];
        assert_close(&y[0], &tensor([1, 2, 2], &expected), 1e-5);
        error(&*snake, &[iota([1, 3, 2])]);
        error(&*snake, &[iota([2])]);
        error(&*snake, &[tensor([1, 2], &[1i64, 2])]);
    }

    fn graph(kind: &str) -> Graph {
        let text = format!(
            "7767517\n3 2\npnnx.Input in 0 1 x\n{kind} snake 1 1 x y\npnnx.Output out 1 0 y\n"
        );
        let mut graph = Graph::parse(&text).unwrap();
        let id = graph.operator_by_name("snake").unwrap();
        let numbers = Attribute::from_elements([1], &[2.0f32]).unwrap();
        graph.attrs_mut(id).unwrap().insert("alpha".into(), numbers);
        graph
    }

    fn first(model: &Model) -> f32 {
        let session = model.session(SessionOptions::default()).unwrap();
        let x = Tensor::from_slice(&[3.0f32], [1, 1]).unwrap();
        session.run(&[x]).unwrap()[0].as_slice::<f32>().unwrap()[0]
    }

    #[test]
    fn models_know_it() {
        let model = Model::from_graph(graph("audio.Snake")).unwrap();
        assert!((first(&model) - 3.039_037).abs() < 1e-5);
    }

    /// Operators may also be given to one model, under any name.
    #[test]
    fn a_model_may_be_given_operators_of_its_own() {
        static OTHER: OpEntry =
            OpEntry { kinds: &["nn.Identity"], build, file: file!(), line: line!() };
        let operators = Registry::new([&OTHER]).unwrap();
        let options = ModelOptions::default().with_operators(Arc::new(operators));
        let model = Model::from_graph_with(graph("nn.Identity"), options).unwrap();
        assert!((first(&model) - 3.039_037).abs() < 1e-5, "the model's own goes first");
        assert!(Model::from_graph(graph("nn.Identity")).is_err(), "which has no weights");
    }
}

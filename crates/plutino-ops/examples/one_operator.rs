//! One operator of PyTorch's, without a model: decoded from a line of text, and run eagerly.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino_ir::Graph;
use plutino_kernels::{Isa, Pool};
use plutino_ops::{eager, registry};
use plutino_tensor::Tensor;
use std::error::Error;

/// The line of an operator in a `.param` file: type, name, numbers of inputs and outputs, their
/// names, parameters.
const NODE: &str = "7767517
2 2
pnnx.Input x 0 1 x
F.softmax y 1 1 x y dim=1
";

fn main() -> Result<(), Box<dyn Error>> {
    let graph = Graph::parse(NODE)?;
    let (_, node) = graph.operators_of("F.softmax").next().ok_or("the operator is gone")?;
    let softmax = registry()?.build("<text>", &graph, node)?;

    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 0.0, 0.0, 0.0], [2, 3])?;
    // Shapes are inferred from what is known of the inputs: here, dtype and shape.
    let specs = [x.spec().into()];
    let outputs = softmax.infer(&specs)?;
    println!("{} -> {}", x.spec(), outputs[0]);
    let y = Pool::new(2).enter(|par| eager::run(&*softmax, &specs, &[x], Isa::best(), par))?;
    println!("{}", y[0]);
    Ok(())
}

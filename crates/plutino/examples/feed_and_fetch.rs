//! Feeds and fetches any value of a model by its name: what is not needed is not computed.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::ir::Graph;
use plutino::{Model, Request, SessionOptions, Tensor, TensorView};
use std::error::Error;

const MODEL: &str = "7767517
5 4
pnnx.Input  input   0 1 x
nn.ReLU     relu    1 1 x hidden
torch.sum   total   1 1 hidden sum dim=(1)
nn.Sigmoid  gate    1 1 sum y
pnnx.Output output  1 0 y
";

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::from_graph(Graph::parse(MODEL)?)?;
    let session = model.session(SessionOptions::default())?;
    let x = Tensor::from_slice(&[-1.0f32, 2.0, 3.0, -4.0], [2, 2])?;

    // What lies between, by the operand's name or by that of the operator: the result of the ReLU
    // beside the model's own output.
    let request = Request::new().feed("x", &x).fetch("relu").fetch("y");
    for (name, tensor) in session.run_named(&request)? {
        println!("{name}:\n{tensor}");
    }

    // The second half alone, on memory that belongs to somebody else: neither the input nor the
    // ReLU takes part, and nothing is copied.
    let numbers = [0.5f32, -0.5, 1.0, 1.0];
    let hidden = TensorView::from_slice(&numbers, [2, 2])?;
    let request = Request::new().feed("hidden", hidden).fetch("sum");
    println!("{} step", session.plan_request(&request)?.steps().len());
    let mut outputs = session.run_with(&request)?;
    assert_eq!(outputs[0].as_slice::<f32>()?, [0.0, 2.0]);
    session.run_request_into(&request, &mut outputs)?; // into the tensors that are there

    // Everything, with the time of each step.
    let (_, profile) = session.profile_request(&Request::new().feed("x", &x).fetch_all())?;
    println!("{} steps in {:?}", profile.steps.len(), profile.busy());

    // What is missing is named, and what could be fed instead.
    if let Err(error) = session.run_with(&Request::new().fetch("y")) {
        println!("{error}");
    }
    Ok(())
}

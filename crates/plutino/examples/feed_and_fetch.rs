//! Feeds and fetches any value of a model by its name: what is not needed is not computed.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::ir::Graph;
use plutino::{Model, Request, SessionOptions, Tensor};
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

    // What lies between: the result of the ReLU beside the model's own output.
    let request = Request::new().feed("x", &x).fetch("hidden").fetch("y");
    let outputs = session.run_with(&request)?;
    println!("hidden:\n{}\ny:\n{}", outputs[0], outputs[1]);

    // The second half alone: neither the input nor the ReLU takes part.
    let hidden = Tensor::from_slice(&[0.5f32, -0.5, 1.0, 1.0], [2, 2])?;
    let outputs = session.run_with(&Request::new().feed("hidden", &hidden).fetch("sum"))?;
    println!("sum:\n{}", outputs[0]);
    assert_eq!(outputs[0].as_slice::<f32>()?, [0.0, 2.0]);
    Ok(())
}

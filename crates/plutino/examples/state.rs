//! Two streams through one session: what a run leaves for the next one is carried, not copied.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::ir::Graph;
use plutino::{Model, SessionOptions, Tensor};
use std::error::Error;

/// A cache to which each run appends a row, and attention of the new row to all rows so far.
const MODEL: &str = "7767517
6 4
pnnx.Input  in0    0 1 new #new=(1,1,1,4)f32
pnnx.Input  in1    0 1 past #past=(1,1,?,4)f32
torch.cat   append 2 1 past new all dim=2 #all=(1,1,?,4)f32
F.scaled_dot_product_attention attend 3 1 new all all y attn_mask=None dropout_p=0.0 is_causal=False $query=new $key=all $value=all
pnnx.Output out0   1 0 y
pnnx.Output out1   1 0 all
";

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::from_graph(Graph::parse(MODEL)?)?;
    let session = model.session(SessionOptions::default())?;

    // A cache begins empty: the graph says that it grows.
    let mut stream = session.state();
    stream.carry("all", "past")?; // or by position: "out1", "in1"
    let mut other = stream.clone();

    for step in 0..4u8 {
        let row = |seed: u8| Tensor::from_slice(&[f32::from(seed + step); 4], [1, 1, 1, 4]);
        let y = session.run_with_state(&mut stream, &[row(0)?])?;
        session.run_with_state(&mut other, &[row(10)?])?;
        println!("step {step}: {}", y[0]);
    }
    let cache = stream.get("past")?.ok_or("nothing was carried")?;
    assert_eq!(cache.shape().dims(), [1, 1, 4, 4]);
    assert_eq!(cache.get::<f32>(&[0, 0, 3, 0])?, 3.0);

    // To a branch, and back to the beginning.
    let mut branch = stream.clone();
    let row = Tensor::from_slice(&[1.0f32; 4], [1, 1, 1, 4])?;
    session.run_with_state(&mut branch, &[row])?;
    assert_eq!(branch.get("past")?.map(|cache| cache.shape()[2]), Some(5));
    assert_eq!(stream.get("past")?.map(|cache| cache.shape()[2]), Some(4));
    stream.reset();
    println!("{} bytes are held by the other stream", other.bytes());
    Ok(())
}

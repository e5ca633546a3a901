//! Edits a PNNX model: every ReLU becomes a SiLU, and the file is written under another name.
//!
//! ```console
//! $ cargo run -p plutino-ir --example edit_graph -- MODEL.pnnx.param EDITED_STEM
//! ```
//! Without arguments a model of three operators is edited, and its text shown.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino_ir::{Graph, Parameter};
use std::error::Error;

const MODEL: &str = "7767517
5 4
pnnx.Input   image   0 1 0
nn.ReLU      first   1 1 0 1
F.max_pool2d pool    1 1 1 2 kernel_size=(2,2) stride=(2,2)
nn.ReLU      second  1 1 2 3
pnnx.Output  result  1 0 3
";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut graph = match arguments.first() {
        Some(path) => Graph::load(path)?,
        None => Graph::parse(MODEL)?,
    };
    let relus: Vec<_> = graph.operators_of("nn.ReLU").map(|(id, _)| id).collect();
    for &id in &relus {
        // A new operator takes over inputs and outputs; whoever read the old one reads it.
        let (name, inputs, outputs) = {
            let old = &graph[id];
            (old.name.clone(), old.inputs.clone(), old.outputs.clone())
        };
        let silu = graph.new_operator_before("nn.SiLU", &format!("{name}_silu"), id)?;
        for input in inputs {
            graph.connect_input(silu, input)?;
        }
        for output in outputs {
            graph.disconnect_output(output)?;
            graph.connect_output(silu, output)?;
        }
        graph.remove_operator(id)?;
    }
    // Parameters are values, not text.
    let pools: Vec<_> = graph.operators_of("F.max_pool2d").map(|(id, _)| id).collect();
    for id in pools {
        graph.params_mut(id)?.insert("ceil_mode".into(), Parameter::from(true));
    }
    println!("{} operators changed", relus.len());
    match arguments.get(1) {
        Some(stem) => {
            graph.save(format!("{stem}.pnnx.param"), format!("{stem}.pnnx.bin"))?;
        }
        None => print!("{}", graph.to_param_string()?),
    }
    Ok(())
}

//! `cargo xtask hash`: one number for all that plutino computes, for each instruction set.
//!
//! Where code only moves, no bit of any result may change: the numbers before and after tell.
//! Models are `fixtures/`, the operators in it, and folders with a `model.pnnx.param` and an
//! `inputs.npz`. Results without a meaning of their own (random numbers, uninitialised memory) are
//! the same in each run, too.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use crc32fast::Hasher;
use plutino::{Isa, Model, SessionOptions, Tensor, npy};
use plutino_fixtures::{Fixture, OpCase};

use crate::walk;

/// Print a checksum of all results of all fixtures, for each instruction set.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print a checksum for each model, too.
    #[arg(long)]
    each: bool,
    /// More models: folders with a model.pnnx.param and an inputs.npz, at any depth.
    folders: Vec<PathBuf>,
}

/// A model with inputs of one or two sets of shapes.
struct Case {
    name: String,
    model: Model,
    inputs: Vec<Vec<Tensor>>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut sums: Vec<(Isa, Hasher)> =
        Isa::available().into_iter().map(|isa| (isa, Hasher::new())).collect();
    let mut count = 0;
    let mut add = |case: Result<Case>| -> Result<()> {
        let case = case?;
        count += 1;
        for (isa, sum) in &mut sums {
            let one = checksum(&case, *isa);
            if args.each {
                println!("{isa} {one:08x} {}", case.name);
            }
            sum.update(&one.to_le_bytes());
        }
        Ok(())
    };
    for case in OpCase::all()? {
        add(operators(&case).with_context(|| case.name.clone()))?;
    }
    for fixture in Fixture::all()? {
        add(network(&fixture).with_context(|| fixture.name.clone()))?;
    }
    for folder in &args.folders {
        for folder in walk::models(folder)? {
            add(saved(&folder).with_context(|| folder.display().to_string()))?;
        }
    }
    for (isa, sum) in sums {
        println!("{isa} {:08x} {count} models", sum.finalize());
    }
    Ok(())
}

fn operators(case: &OpCase) -> Result<Case> {
    let tensors = |inputs: Vec<(String, Tensor)>| inputs.into_iter().map(|(_, t)| t).collect();
    Ok(Case {
        name: format!("ops/{}", case.name),
        model: Model::from_graph(case.graph()?)?,
        inputs: case.runs()?.into_iter().map(|run| tensors(run.inputs)).collect(),
    })
}

fn network(fixture: &Fixture) -> Result<Case> {
    let inputs = fixture.inputs()?.into_iter().map(|(_, tensor)| tensor).collect();
    Ok(Case {
        name: fixture.name.clone(),
        model: Model::from_graph(fixture.graph()?)?,
        inputs: vec![inputs],
    })
}

fn saved(folder: &Path) -> Result<Case> {
    let inputs = npy::npz::load(folder.join("inputs.npz"))?;
    Ok(Case {
        name: folder.display().to_string(),
        model: Model::load(folder.join("model.pnnx.param"))?,
        inputs: vec![inputs.into_iter().map(|(_, tensor)| tensor).collect()],
    })
}

/// Of shapes and bytes of all results, or of the error.
fn checksum(case: &Case, isa: Isa) -> u32 {
    let mut sum = Hasher::new();
    let options = SessionOptions::default().with_isa(isa);
    for inputs in &case.inputs {
        let outputs = case.model.session(options.clone()).and_then(|session| session.run(inputs));
        match outputs {
            Ok(outputs) => {
                for output in outputs {
                    sum.update(format!("{} {}", output.dtype(), output.shape()).as_bytes());
                    sum.update(output.as_bytes());
                }
            }
            Err(error) => sum.update(error.to_string().as_bytes()),
        }
    }
    sum.finalize()
}

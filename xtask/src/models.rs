//! `cargo xtask models`: fixtures with their weights, as files that any tool can read.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use plutino_fixtures::Fixture;
use plutino_tensor::npy::npz;

use crate::project_root;

/// Write networks of fixtures/ with weights and inputs to target/models/.
///
/// Each folder holds model.pnnx.param, model.pnnx.bin, inputs.npz and outputs.npz.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these networks [default: all].
    names: Vec<String>,
    /// Write to this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => project_root()?.join("target/models"),
    };
    let fixtures = match args.names.is_empty() {
        true => Fixture::all()?,
        false => args.names.iter().map(|name| Fixture::named(name)).collect::<Result<_, _>>()?,
    };
    for fixture in fixtures {
        println!("{}", write(&fixture, &out)?.display());
    }
    Ok(())
}

/// Writes one network to a folder of its own below `out`.
pub(crate) fn write(fixture: &Fixture, out: &Path) -> anyhow::Result<PathBuf> {
    let folder = out.join(&fixture.name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    fixture.graph()?.save(folder.join("model.pnnx.param"), folder.join("model.pnnx.bin"))?;
    let inputs = fixture.inputs()?;
    npz::save(
        folder.join("inputs.npz"),
        inputs.iter().map(|(name, tensor)| (name, tensor.view())),
    )?;
    fs::copy(fixture.path().join("outputs.npz"), folder.join("outputs.npz"))?;
    Ok(folder)
}

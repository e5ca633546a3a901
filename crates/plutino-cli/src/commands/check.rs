//! `plutino check`

use crate::failure::Failure;
use crate::output::{Output, count};
use plutino::Model;
use std::io::Write;
use std::path::PathBuf;

/// Tell whether a model can be run, with every unsupported operator at once; needs no weights
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model; its .bin file is not read and may be missing
    model: PathBuf,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let report = Model::check(&args.model)?;
    if let Some(undecoded) = report.undecoded {
        return Err(Failure::Model(undecoded.to_string()));
    }
    let operators = report.kinds.values().sum();
    let (operators, kinds) = (count(operators, "operator"), count(report.kinds.len(), "type"));
    Ok(writeln!(out, "{}: {operators} of {kinds}, all supported", args.model.display())?)
}

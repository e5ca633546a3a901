//! `plutino extract`

use crate::failure::Failure;
use crate::output::{Output, count};
use crate::session::{self, LoadArgs};
use plutino::runtime::extract;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Write a part of a model as a model of its own: what lies between operands, with the weights that
/// it needs
///
/// Operands are called by their names in the file, or by that of the operator that makes one and no
/// other. The part computes what the whole does between them: to the bit, where the whole is given
/// the same operands and asked for the same ones; else operators may be fused in other places. With
/// --define, definitions are put in their places first; those that branches and loops of the part
/// run are written to the folder OUT.definitions.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    model: PathBuf,
    /// Operands to begin with: the inputs of the part, in this order [default: the inputs of the
    /// model that it needs]
    #[arg(long, value_name = "OPERAND,...", value_delimiter = ',')]
    from: Vec<String>,
    /// Operands to compute: the outputs of the part, in this order
    #[arg(long, value_name = "OPERAND,...", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// Where to write: OUT.pnnx.param and OUT.pnnx.bin
    #[arg(short, long, value_name = "OUT")]
    pub(super) output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) files: LoadArgs,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    /// The `.param` file that was written.
    model: String,
    operators: usize,
    /// Of the whole.
    of: usize,
    /// Bodies of branches and loops that were written with it.
    definitions: usize,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let options = args.files.options(args.files.load_options())?;
    let options = options.with_own_definitions(&args.model)?;
    let graph = options.graph(&args.model)?;
    let from: Vec<&str> = args.from.iter().map(String::as_str).collect();
    let to: Vec<&str> = args.to.iter().map(String::as_str).collect();
    let part = extract(&graph, &from, &to).map_err(|e| Failure::usage(e.to_string()))?;
    let (path, definitions) = session::save_whole(&part, &options, &args.model, &args.output)?;
    let (of, operators) = (graph.operator_count(), part.operator_count());
    let model = path.display().to_string();
    if args.json {
        return out.json(&Report { model, operators, of, definitions });
    }
    let more = session::and_definitions(definitions);
    Ok(writeln!(out, "{model}: {} of {of}{more}", count(operators, "operator"))?)
}

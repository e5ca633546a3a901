//! `plutino optimize`

use crate::failure::Failure;
use crate::output::{Output, count};
use crate::session::{self, LoadArgs};
use plutino::Model;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Write a model with less in it: constants computed, layers left out that nobody reads or that do
/// nothing, batch norms in the weights of the layers before them
///
/// The operators are those of PyTorch all the same; what a plan fuses beyond that, a file cannot
/// say. Results are those of the model, up to rounding where a layer took over a batch norm. With
/// --define, definitions are put in their places first; those that branches and loops run are
/// written to the folder OUT.definitions.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    model: PathBuf,
    /// Where to write: OUT.pnnx.param and OUT.pnnx.bin
    #[arg(short, long, value_name = "OUT")]
    pub(super) output: PathBuf,
    /// Name every operator that went
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) files: LoadArgs,
}

/// What is printed as JSON: the names of the operators that went, by reason.
#[derive(Serialize)]
struct Report<'a> {
    /// The `.param` file that was written.
    model: String,
    operators: usize,
    /// Before.
    of: usize,
    /// Bodies of branches and loops that were written with it.
    definitions: usize,
    computed: &'a [String],
    batch_norms: &'a [String],
    without_effect: &'a [String],
    read_by_nobody: &'a [String],
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let options = args.files.options(args.files.load_options())?;
    let options = options.with_own_definitions(&args.model)?;
    let model = Model::load_with(&args.model, options.clone())?;
    let done = model.optimized()?;
    let (path, definitions) =
        session::save_whole(&done.graph, &options, &args.model, &args.output)?;
    let (before, after) = (model.graph().operator_count(), done.graph.operator_count());
    let path = path.display().to_string();
    if args.json {
        return out.json(&Report {
            model: path,
            operators: after,
            of: before,
            definitions,
            computed: &done.folded,
            batch_norms: &done.batch_norms,
            without_effect: &done.identities,
            read_by_nobody: &done.dead,
        });
    }
    let more = session::and_definitions(definitions);
    writeln!(out, "{path}: {} of {before}{more}", count(after, "operator"))?;
    for (names, what) in [
        (&done.folded, "computed"),
        (&done.batch_norms, "in the layer before"),
        (&done.identities, "without effect"),
        (&done.dead, "read by nobody"),
    ] {
        if !names.is_empty() {
            writeln!(out, "  {} {what}", names.len())?;
        }
        for name in names.iter().filter(|_| args.verbose) {
            writeln!(out, "    {}", plutino::ir::quote(name))?;
        }
    }
    Ok(())
}

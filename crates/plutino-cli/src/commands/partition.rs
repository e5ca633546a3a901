//! `plutino partition`

use crate::failure::Failure;
use crate::inputs::{self, Open, ShapeArg};
use crate::names;
use crate::output::{Output, count, warn, warn_all, write_file};
use crate::session::{self, SessionArgs};
use plutino::Partition;
use plutino::ir::quote;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write a model as several: one for each context, and what goes from one to the other
///
/// Operators are placed as --contexts, --place and --together say (see `plutino info --plan`). Each
/// part is a model of its own, whose operands have the names that they had: DIR/part0.pnnx.param
/// and so on. DIR/partition.json lists them, and for each operand that goes from part to part,
/// where it comes from and where it goes: null is outside of the model. One after the other, or
/// each in a process or on a thread of its own, they compute what the whole model does.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    model: PathBuf,
    /// Where to write; made if it is not there
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,
    /// Shape of an input; without NAME, shapes are those of the inputs in order [default: as
    /// recorded in the file]
    #[arg(long = "shape", value_name = "[NAME=]1x3x224x224")]
    shapes: Vec<ShapeArg>,
    /// Print what is in DIR/partition.json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

/// What is in partition.json.
#[derive(Serialize)]
struct Manifest {
    parts: Vec<Part>,
    links: Vec<Link>,
}

#[derive(Serialize)]
struct Part {
    model: String,
    context: usize,
    operators: usize,
}

#[derive(Serialize)]
struct Link {
    operand: String,
    from: Option<usize>,
    to: Option<usize>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let files = args.session.files();
    let options = files.options(files.load_options())?.with_own_definitions(&args.model)?;
    let model = args.session.load(&args.model)?;
    let specs = inputs::specs(&args.shapes, &inputs::slots(&model), Open::Refuse)?;
    let plan = args.session.session(&model)?.plan(&specs);
    let plan = plan.map_err(|error| inputs::refused_inputs(error, &model, &specs))?;
    warn_all(names::misplaced(&model, &plan));
    let partition = Partition::of(&model, &plan).map_err(|e| Failure::Model(e.to_string()))?;
    let cannot = |what: &Path| {
        let what = what.display().to_string();
        move |e: std::io::Error| Failure::usage(format!("cannot write '{what}': {e}"))
    };
    std::fs::create_dir_all(&args.output).map_err(cannot(&args.output))?;
    let mut parts = Vec::new();
    for (number, part) in partition.parts().iter().enumerate() {
        let name = format!("part{number}.pnnx.param");
        let output = args.output.join(&name);
        let (path, _) = session::save_whole(&part.graph, &options, &args.model, &output)?;
        let operators = part.graph.operator_count();
        let what = count(operators, "operator");
        if !args.json {
            writeln!(out, "{}: {what} of context {}", path.display(), part.context)?;
        }
        parts.push(Part { model: name, context: part.context, operators });
    }
    warn_of_others(&args.output, parts.len())?;
    let link =
        |link: &plutino::Link| Link { operand: link.operand.clone(), from: link.from, to: link.to };
    let manifest = Manifest { parts, links: partition.links().iter().map(link).collect() };
    let path = args.output.join("partition.json");
    let text = serde_json::to_string_pretty(&manifest);
    let text = text.map_err(|e| Failure::usage(e.to_string()))?;
    write_file(&path, (text + "\n").as_bytes())?;
    match args.json {
        true => out.json(&manifest),
        false => {
            Ok(writeln!(out, "{}: {}", path.display(), count(manifest.links.len(), "operand"))?)
        }
    }
}

/// Tells of parts that a partition into more parts left there. They stay: nobody knows whose they
/// are.
fn warn_of_others(folder: &Path, parts: usize) -> Result<(), Failure> {
    let cannot = |e| Failure::usage(format!("cannot read '{}': {e}", folder.display()));
    let mut others = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name().to_string_lossy().into_owned();
        if part_of(&name).is_some_and(|number| number >= parts) {
            others.push(name);
        }
    }
    others.sort();
    if let Some(first) = others.first() {
        let (folder, count) = (folder.display(), count(others.len(), "file"));
        let first = quote(first);
        warn(&format!(
            "'{folder}' holds {count} of parts that this partition does not have, such as {first}: \
             remove them, or give an empty folder"
        ));
    }
    Ok(())
}

/// The number of the part that a file, or a folder of definitions, is called after.
fn part_of(name: &str) -> Option<usize> {
    let (number, end) = name.strip_prefix("part")?.split_once('.')?;
    let known = ["pnnx.param", "pnnx.bin", "definitions"].contains(&end);
    number.parse().ok().filter(|_| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_parts() {
        assert_eq!(part_of("part0.pnnx.param"), Some(0));
        assert_eq!(part_of("part12.pnnx.bin"), Some(12));
        assert_eq!(part_of("part3.definitions"), Some(3));
        for other in ["partition.json", "part.pnnx.bin", "part1.pnnx.bin.old", "party1.pnnx.bin"] {
            assert_eq!(part_of(other), None, "{other}");
        }
    }
}

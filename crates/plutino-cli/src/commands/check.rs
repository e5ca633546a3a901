//! `plutino check`

use crate::failure::Failure;
use crate::output::{Output, count, note, warn_all};
use plutino::ir::{LoadError, LoadOptions};
use plutino::{CheckReport, Inference, Model, ModelError, TensorSpec};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Tell whether a model would run as it was recorded; needs no weights
///
/// Every unsupported operator is named at once. Then dtypes and shapes of all values are inferred
/// from those that the file records of the inputs: an operator that refuses what reaches it is an
/// error (exit code 3), a value that differs from the record is a warning. Where a dimension is
/// open, sizes that stand in for it are tried, and once some fit, others: the last line says which.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model; its .bin file may be missing
    model: PathBuf,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let (report, weights) = check(&args.model)?;
    if let Some(undecoded) = &report.undecoded {
        return Err(Failure::Model(undecoded.to_string()));
    }
    let inference = report.inference.as_ref();
    warn_all(report.warnings.iter().chain(inference.iter().flat_map(|i| &i.warnings)));
    report.notes.iter().for_each(|what| note(what));
    if let Weights::Missing(what) = &weights {
        note(what);
    }
    let failures = inference.map_or(&[][..], |i| &i.failures);
    let certain = inference.is_some_and(|i| !i.stand_ins);
    let mut errors: Vec<String> = failures.iter().map(ToString::to_string).collect();
    if !certain {
        // The sizes tried may be to blame.
        errors.drain(..).take(3).for_each(|what| {
            note(&format!("with none of the sizes tried for open dimensions: {what}"));
        });
    }
    if let Weights::Damaged(what) = weights {
        errors.push(what);
    }
    if !errors.is_empty() {
        let all = errors.join("\n  ");
        let model = args.model.display();
        return Err(Failure::Model(format!("{model}: would fail at {}\n  {all}", errors.len())));
    }
    let operators = report.kinds.values().sum();
    let (operators, kinds) = (count(operators, "operator"), count(report.kinds.len(), "type"));
    let verdict = verdict(&report, inference);
    Ok(writeln!(out, "{}: {operators} of {kinds}, all supported; {verdict}", args.model.display())?)
}

/// What was found of the weights.
enum Weights {
    Read,
    Missing(String),
    Damaged(String),
}

/// Checks with the weights where they are there, since constants may decide shapes.
fn check(path: &Path) -> Result<(CheckReport, Weights), Failure> {
    // Whoever runs the command leaves the file alone meanwhile.
    let options = LoadOptions { mmap: true, verify_crc: false, ..LoadOptions::default() };
    let weights = match Model::check_with(path, &options) {
        Ok(report) => return Ok((report, Weights::Read)),
        Err(ModelError::Load(error @ LoadError::NoWeights { .. })) => {
            Weights::Missing(format!("{error}; checked without"))
        }
        Err(ModelError::Load(
            error @ (LoadError::Bin { .. } | LoadError::Io { .. } | LoadError::Param { .. }),
        )) => Weights::Damaged(error.to_string()),
        Err(other) => return Err(other.into()),
    };
    Ok((Model::check(path)?, weights))
}

/// Inputs that a line has room for.
const SHOWN: usize = 4;

/// The inputs of an attempt: dtypes and shapes.
fn sizes(inputs: &[Option<TensorSpec>]) -> String {
    let known = inputs.iter().flatten();
    let shown: Vec<String> = known.clone().take(SHOWN).map(ToString::to_string).collect();
    let mut text = shown.join(" ");
    let more = known.count().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!(" (and {more} more)");
    }
    text
}

/// The last part of the line that says how it went.
fn verdict(report: &CheckReport, inference: Option<&Inference>) -> String {
    let Some(inference) = inference else { return String::new() };
    let warnings = report.warnings.len() + inference.warnings.len();
    let mut text = match (inference.inputs.iter().all(Option::is_some), warnings) {
        (false, 0) => "the file does not record all inputs, so that little is known".to_owned(),
        (true, 0) if !inference.failures.is_empty() => "shapes could not be inferred".to_owned(),
        (true, 0) => "runs as recorded".to_owned(),
        (_, n) => format!("runs, with {}", count(n, "warning")),
    };
    if inference.stand_ins && inference.failures.is_empty() {
        text += &format!("; open sizes were taken as {}", sizes(&inference.inputs));
        match &inference.again {
            Some(again) => text += &format!(" and as {}", sizes(again)),
            None => text += ", no others fit",
        }
        if inference.flat > 0 {
            let flat = count(inference.flat, "value");
            text += &format!("; {flat} came to one element along an open dimension");
        }
    }
    if inference.open > 0 {
        let open = count(inference.open, "operator");
        text += &format!("; shapes of {open} depend on data");
    }
    text
}

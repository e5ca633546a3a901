//! `plutino check`

use crate::failure::Failure;
use crate::output::{Output, count, note, warn_all};
use crate::session::LoadArgs;
use plutino::ir::{self, LoadError, LoadOptions};
use plutino::runtime::UnsupportedKind;
use plutino::{CheckReport, Inference, Model, ModelError, TensorSpec};
use serde::Serialize;
use std::collections::BTreeMap;
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
    /// Print one JSON object; the exit code is the same
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) files: LoadArgs,
}

/// What was found.
#[derive(Serialize)]
struct Report {
    model: String,
    /// Whether nothing is in the way of a run.
    ok: bool,
    /// The line that says it, or why not.
    summary: String,
    operators: usize,
    kinds: BTreeMap<String, usize>,
    /// Types without an implementation.
    unsupported: Vec<Unsupported>,
    /// Where a run would fail.
    errors: Vec<String>,
    warnings: Vec<String>,
    notes: Vec<String>,
    /// What the inputs were taken to be; null where the file records too little.
    inputs: Vec<Option<String>>,
    /// Whether sizes of inputs are made up, since the file leaves them open.
    stand_ins: bool,
    /// Operators whose shapes depend on data.
    open: usize,
}

#[derive(Serialize)]
struct Unsupported {
    kind: String,
    count: usize,
    /// The first operator of this type.
    first: String,
    line: Option<u32>,
    nearest: Option<&'static str>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let (found, weights) = check(&args.model, &args.files)?;
    let inference = found.inference.as_ref();
    let failures = inference.map_or(&[][..], |i| &i.failures);
    let certain = inference.is_some_and(|i| !i.stand_ins);
    let (mut notes, mut errors) = (found.notes.clone(), Vec::new());
    match weights {
        Weights::Missing(what) => notes.push(what),
        Weights::Damaged(what) => errors.push(what),
        Weights::Read => {}
    }
    let failures = failures.iter().map(ToString::to_string);
    if certain {
        errors.splice(0..0, failures);
    } else {
        // The sizes tried may be to blame.
        let tried = |what| format!("with none of the sizes tried for open dimensions: {what}");
        notes.extend(failures.take(3).map(tried));
    }
    let warnings = found.warnings.iter().chain(inference.iter().flat_map(|i| &i.warnings));
    let warnings: Vec<String> = warnings.map(ToString::to_string).collect();
    let model = args.model.display().to_string();
    let operators = found.kinds.values().sum();
    let summary = match &found.undecoded {
        Some(undecoded) => undecoded.to_string(),
        None if !errors.is_empty() => {
            format!("{model}: would fail at {}\n  {}", errors.len(), errors.join("\n  "))
        }
        None => {
            let kinds = count(found.kinds.len(), "type");
            let (operators, verdict) = (count(operators, "operator"), verdict(&found, inference));
            format!("{model}: {operators} of {kinds}, all supported; {verdict}")
        }
    };
    let ok = found.undecoded.is_none() && errors.is_empty();
    let report = Report {
        model,
        ok,
        summary,
        operators,
        unsupported: found.undecoded.iter().flat_map(|u| &u.kinds).map(Unsupported::from).collect(),
        errors,
        warnings,
        notes,
        inputs: inference
            .map(|i| i.inputs.iter().map(|spec| spec.as_ref().map(ToString::to_string)).collect())
            .unwrap_or_default(),
        stand_ins: inference.is_some_and(|i| i.stand_ins),
        open: inference.map_or(0, |i| i.open),
        kinds: found.kinds,
    };
    if args.json {
        out.json(&report)?;
    } else if found.undecoded.is_none() {
        warn_all(&report.warnings);
        report.notes.iter().for_each(|what| note(what));
    }
    match (ok, args.json) {
        (false, _) => Err(Failure::Model(report.summary)),
        (true, true) => Ok(()),
        (true, false) => Ok(writeln!(out, "{}", report.summary)?),
    }
}

impl From<&UnsupportedKind> for Unsupported {
    fn from(kind: &UnsupportedKind) -> Self {
        Self {
            kind: kind.kind.clone(),
            count: kind.count,
            first: kind.first.name.clone(),
            line: kind.first.line,
            nearest: kind.nearest,
        }
    }
}

/// What was found of the weights.
enum Weights {
    Read,
    Missing(String),
    Damaged(String),
}

/// Checks with the weights where they are there, since constants may decide shapes.
fn check(path: &Path, files: &LoadArgs) -> Result<(CheckReport, Weights), Failure> {
    let options = LoadOptions { verify_crc: false, ..files.load_options() };
    let weights = match Model::check_with(path, files.options(options.clone())?) {
        Ok(report) => return Ok((report, Weights::Read)),
        Err(ModelError::Load(error @ LoadError::NoWeights { .. })) => {
            Weights::Missing(format!("{error}; checked without"))
        }
        Err(ModelError::Load(
            error @ (LoadError::Bin { .. } | LoadError::Io { .. } | LoadError::Param { .. }),
        )) => Weights::Damaged(error.to_string()),
        Err(other) => return Err(other.into()),
    };
    let skip = LoadOptions { weights: ir::Weights::Skip, ..options };
    Ok((Model::check_with(path, files.options(skip)?)?, weights))
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

//! `plutino verify`

use crate::deviation::deviation;
use crate::failure::Failure;
use crate::inputs::{self, ConvertArgs};
use crate::names;
use crate::numpy;
use crate::output::{Output, count, during, note, warn_all};
use crate::session::{SessionArgs, parse_tolerance};
use plutino::npy::npz;
use plutino::{Comparison, Tensor, Tolerance};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Compare a model's outputs with expected ones, such as PyTorch's
///
/// An element matches where |ours - expected| <= atol + rtol * |expected|; NaN matches NaN;
/// integers and booleans must be equal. The last line says how it went, with the largest error
/// relative to the standard deviation of the expected output. Exit code 1 where anything does not
/// match.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    model: PathBuf,
    /// The inputs: in0, in1, ... (or the names of operands)
    #[arg(long, value_name = "IN.npz")]
    inputs: String,
    /// The expected outputs: out0, out1, ..., or any names in the order of the outputs
    #[arg(long, value_name = "OUT.npz")]
    expected: PathBuf,
    /// Allowed error relative to the expected element
    #[arg(long, value_parser = parse_tolerance, default_value_t = 1e-3)]
    rtol: f64,
    /// Allowed error where the expected element is near zero
    #[arg(long, value_parser = parse_tolerance, default_value_t = 1e-4)]
    atol: f64,
    #[command(flatten)]
    convert: ConvertArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

/// How it went.
#[derive(Serialize)]
struct Report {
    model: String,
    verdict: Verdict,
    /// The line that says it.
    summary: String,
    outputs: Vec<OutputReport>,
    warnings: Vec<String>,
    /// Where an output differs: what may have been lost in the export.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Mismatch,
}

/// How it went with one output.
#[derive(Serialize)]
struct OutputReport {
    name: String,
    /// Dtype and shape.
    spec: String,
    /// Name of the expected array.
    expected: String,
    verdict: Verdict,
    /// The comparison in words, or why there is none.
    detail: String,
    #[serde(flatten)]
    errors: Option<Errors>,
}

/// Errors of an output. JSON has no infinity: those are null.
#[derive(Serialize)]
struct Errors {
    elements: usize,
    mismatches: usize,
    max_abs_error: f64,
    max_rel_error: f64,
    /// The largest absolute error, divided by the standard deviation of the expected elements; none
    /// where that is 0.
    error_per_deviation: Option<f64>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let model = args.session.load(&args.model)?;
    let slots = inputs::slots(&model);
    let (inputs, expected) = args.session.reading(|| {
        let inputs = inputs::arrays(&args.inputs, &slots, args.convert)?;
        Ok((inputs, expected(&args.expected)?))
    })?;
    let session = args.session.session(&model)?;
    let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
    let computed = during("running", || Ok((session.plan(&specs)?, session.run(&inputs)?)));
    let (plan, outputs) =
        computed.map_err(|error| inputs::refused_inputs(error, &model, &specs))?;
    let warnings = model.warnings().iter().map(ToString::to_string);
    let warnings = warnings.chain(names::warnings(&model, &plan));

    let tolerance = Tolerance { rtol: args.rtol, atol: args.atol };
    let compared = outputs.iter().zip(&expected).enumerate();
    let compared = compared.map(|(i, (ours, expected))| compare(i, ours, expected, tolerance));
    let mut report = Report {
        model: args.model.display().to_string(),
        verdict: Verdict::Ok,
        summary: String::new(),
        outputs: compared.collect::<Result<_, _>>()?,
        warnings: warnings.collect(),
        notes: Vec::new(),
    };
    report.conclude(outputs.len(), expected.len());
    if report.verdict == Verdict::Mismatch {
        report.notes = model.notes();
    }
    if args.json {
        out.json(&report)?;
    } else {
        for o in &report.outputs {
            let verdict = o.verdict.word();
            writeln!(out, "{} {} against {}: {verdict}: {}", o.name, o.spec, o.expected, o.detail)?;
        }
        writeln!(out, "{}", report.summary)?;
        warn_all(&report.warnings);
        report.notes.iter().for_each(|what| note(&format!("the export may be to blame: {what}")));
    }
    if report.verdict == Verdict::Ok { Ok(()) } else { Err(Failure::Mismatch) }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Mismatch => "MISMATCH",
        }
    }
}

impl Report {
    /// Sums up, with the numbers of outputs and of expected ones.
    fn conclude(&mut self, ours: usize, theirs: usize) {
        let wrong: Vec<&str> = self
            .outputs
            .iter()
            .filter(|o| o.verdict == Verdict::Mismatch)
            .map(|o| o.name.as_str())
            .collect();
        let what = if ours != theirs {
            format!("the model has {ours} outputs, {theirs} are expected")
        } else if wrong.is_empty() {
            format!("{} as expected", count(ours, "output"))
        } else {
            let most = wrong.len().min(5);
            let (names, dots) =
                (wrong[..most].join(", "), if most < wrong.len() { ", ..." } else { "" });
            let differ = if wrong.len() == 1 { "differs" } else { "differ" };
            format!("{names}{dots} {differ} ({} of {})", wrong.len(), count(ours, "output"))
        };
        let fine = ours == theirs && wrong.is_empty();
        self.verdict = if fine { Verdict::Ok } else { Verdict::Mismatch };
        let errors = || self.outputs.iter().filter_map(|o| o.errors.as_ref());
        let most = errors().map(|e| e.max_abs_error).reduce(f64::max);
        let most = most.map(|error| format!("; largest error {error:.1e}"));
        let relative = errors().filter_map(|e| e.error_per_deviation).reduce(f64::max);
        let relative = relative.map(|error| format!(", {error:.1e} of the deviation of an output"));
        self.summary = format!(
            "{}: {what}{}{}",
            self.verdict.word(),
            most.unwrap_or_default(),
            relative.unwrap_or_default()
        );
    }
}

/// Compares one output.
fn compare(
    i: usize,
    ours: &Tensor,
    (name, expected): &(String, Tensor),
    tolerance: Tolerance,
) -> Result<OutputReport, Failure> {
    let spec = ours.spec().to_string();
    // A file holds what NumPy has.
    let stored = numpy::storable(ours)?;
    let ours = if stored.dtype() == expected.dtype() { &*stored } else { ours };
    let (verdict, detail, errors) = match ours.compare(expected, tolerance) {
        Ok(comparison) => {
            let verdict = if comparison.is_match() { Verdict::Ok } else { Verdict::Mismatch };
            (verdict, comparison.to_string(), Some(Errors::new(&comparison, expected)?))
        }
        Err(error) => (Verdict::Mismatch, error.to_string(), None),
    };
    let detail = match errors.as_ref().and_then(|e| e.error_per_deviation) {
        Some(error) => format!("{detail}; {error:.1e} of the deviation"),
        None => detail,
    };
    Ok(OutputReport {
        name: format!("out{i}"),
        spec,
        expected: name.clone(),
        verdict,
        detail,
        errors,
    })
}

impl Errors {
    fn new(comparison: &Comparison, expected: &Tensor) -> Result<Self, Failure> {
        let &Comparison { elements, mismatches, max_abs_error, max_rel_error, .. } = comparison;
        let deviation = deviation(expected)?.filter(|d| *d > 0.0);
        let error_per_deviation = deviation.map(|d| max_abs_error / d);
        Ok(Self { elements, mismatches, max_abs_error, max_rel_error, error_per_deviation })
    }
}

/// The arrays `out0`, `out1`, ... by number where that is what they are called, else in the file's
/// order.
fn expected(path: &Path) -> Result<Vec<(String, Tensor)>, Failure> {
    let mut arrays = npz::load(path)?;
    let number = |name: &str| name.strip_prefix("out")?.parse::<usize>().ok();
    if arrays.iter().all(|(name, _)| number(name).is_some()) {
        arrays.sort_by_key(|(name, _)| number(name));
    }
    Ok(arrays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_ordered_by_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let t = Tensor::scalar(1.0f32).unwrap();
        let names = |wanted: &[&str]| {
            npz::save(file.path(), wanted.iter().map(|n| (n, t.view()))).unwrap();
            let read = expected(file.path()).unwrap();
            read.into_iter().map(|(n, _)| n).collect::<Vec<_>>()
        };
        assert_eq!(names(&["out10", "out2", "out0"]), ["out0", "out2", "out10"]);
        assert_eq!(names(&["b", "a"]), ["b", "a"]);
    }

    #[test]
    fn errors_are_told_on_the_scale_of_the_output() {
        let ours = Tensor::from_slice(&[1.0f32, 3.5], [2]).unwrap();
        let theirs = Tensor::from_slice(&[1.0f32, 3.0], [2]).unwrap();
        let expected = ("out0".to_owned(), theirs);
        let one = compare(0, &ours, &expected, Tolerance::default()).unwrap();
        assert_eq!(one.verdict, Verdict::Mismatch);
        assert_eq!(one.errors.unwrap().error_per_deviation, Some(0.5));
    }
}

//! `plutino compare`

use crate::failure::Failure;
use crate::inputs::{self, FileArgs, ShapeArg};
use crate::output::{Output, count, during, note, warn_all};
use crate::session::{
    IsaArg, MemoryArg, SessionArgs, parse_precision, parse_tolerance, parse_weights, parse_whole,
};
use plutino::compare::{
    CompareOptions, CompareReport, PassBlame, Reference, ValueComparison, Verdict,
};
use plutino::npy::npz;
use plutino::{Isa, Model, Precision, Session, WeightDtype};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The script that makes a reference with PyTorch.
const SCRIPT: &str = include_str!("../../assets/dump.py");

/// Find the first operator whose values differ from PyTorch's, or from those of another run
///
/// Every value that exists in the plan is compared, in the order of the run, and the first that
/// differs is named: how far off it is and where, its operator, kernel and inputs, and whether the
/// operator is wrong by itself, on the reference's inputs, or inherits. The error allowed follows
/// from dtypes and the length of sums (docs/compare.md). Exit code 1 where something differs.
///
/// A reference comes from PyTorch: `plutino compare --script > dump.py`, then `python dump.py
/// model_pnnx.py -o reference.npz`. Or it is a run of another model (--with), or of this one: with
/// all weights and products in f32, unless --with-weights and --with-precision say otherwise.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model
    #[arg(required_unless_present = "script")]
    model: Option<PathBuf>,
    /// What values should be: arrays by the names of operands, inputs among them
    #[arg(long, value_name = "BUNDLE.npz", required_unless_present_any = ["script", "with"])]
    reference: Option<PathBuf>,
    /// Take the values of this model for the reference, run without passes, on inputs given with -i
    /// or made up. Operands are matched by name, or by place where the graphs are the same
    #[arg(long, value_name = "MODEL", conflicts_with = "reference")]
    with: Option<PathBuf>,
    /// Print the Python script that makes a reference with PyTorch
    #[arg(long)]
    script: bool,
    /// Run every operator alone, without passes, on the reference's inputs: tells the operators
    /// that are wrong from those that inherit
    #[arg(long, conflicts_with_all = ["passes", "isa"])]
    isolate: bool,
    /// Find the pass that is to blame, and the operator it touched, by bisection
    #[arg(long, conflicts_with = "isa")]
    passes: bool,
    /// Compare with every instruction set of this machine
    #[arg(long)]
    isa: bool,
    /// Allow errors of so much, relative to the largest magnitude of the expected tensor
    #[arg(long, value_name = "ERROR", value_parser = parse_tolerance)]
    tolerance: Option<f64>,
    /// Show so many values that differ
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = parse_whole)]
    top: usize,
    /// Show all values, those that match as well
    #[arg(long)]
    all: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Shape of an input that is made up, for --with
    #[arg(long = "shape", value_name = "[NAME=]1x3x224x224", requires = "with")]
    shapes: Vec<ShapeArg>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    other: OtherArgs,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

/// Options of the run that is the reference.
#[derive(clap::Args)]
#[command(next_help_heading = "The other run")]
struct OtherArgs {
    /// What it spends memory on
    #[arg(long, value_name = "USE", value_enum, default_value_t = MemoryArg::Fast, requires = "with")]
    with_memory: MemoryArg,
    /// Its instruction set
    #[arg(long, value_name = "ISA", requires = "with")]
    with_isa: Option<IsaArg>,
    /// How it keeps weights [default: as they are]
    #[arg(long, value_name = "bf16|f16|int8|nf4", value_parser = parse_weights, requires = "with")]
    with_weights: Option<WeightDtype>,
    /// How accurate its products are at least
    #[arg(long, value_name = "highest|high|medium", value_parser = parse_precision, requires = "with",
          default_value = "highest")]
    with_precision: Precision,
    /// Run it with passes as well: fewer values exist in both plans
    #[arg(long, requires = "with")]
    with_passes: bool,
}

/// How it went.
#[derive(Serialize)]
struct Report {
    model: String,
    verdict: &'static str,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    isa: Option<String>,
    /// Operands that were compared.
    compared: usize,
    differ: usize,
    /// The first value that differs.
    first: Option<Row>,
    /// The operators that are wrong alone, on the reference's inputs, of those that may have made
    /// the first value what it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    culprits: Vec<Row>,
    values: Vec<Row>,
    /// Operands of the reference that do not exist in the plan.
    unseen: Vec<String>,
}

/// One value.
#[derive(Debug, Clone, Serialize)]
struct Row {
    operand: String,
    spec: String,
    kind: String,
    operator: String,
    line: Option<u32>,
    kernel: String,
    absorbed: Vec<String>,
    inputs: Vec<String>,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

/// What was measured. JSON has no infinity: those are null.
#[derive(Debug, Clone, Serialize)]
struct Error {
    elements: usize,
    mismatches: usize,
    max_abs: f64,
    max_rel: f64,
    scaled: f64,
    tolerance: f64,
    ulps: Option<f64>,
    cosine: Option<f64>,
    index: Option<Vec<usize>>,
    actual: Option<String>,
    expected: Option<String>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let model = match &args.model {
        Some(path) if !args.script => path,
        _ => return Ok(write!(out, "{SCRIPT}")?),
    };
    let (path, model) = (model, args.session.load(model)?);
    let reference = args.session.reading(|| reference(args, &model))?;
    let mut options = CompareOptions::default();
    options.tolerance = args.tolerance;
    warn_all(model.warnings());
    if args.isa {
        return instruction_sets(args, path, &model, &reference, &options, out);
    }
    let session = args.session.session(&model)?;
    if args.passes {
        return passes(args, &session, &reference, &options, out);
    }
    let report = match args.isolate {
        true => during("running", || session.isolate(&reference, &options, &[]))?,
        false => during("running", || session.compare(&reference, &options))?,
    };
    let mut told = Report::new(path, &report, args.isolate);
    if !args.isolate && told.differ > 0 {
        let suspects = report.suspects(&model);
        let alone = during("running", || session.isolate(&reference, &options, &suspects))?;
        told.culprits = alone.wrong().map(Row::new).collect();
    }
    if args.json {
        out.json(&told)?;
    } else {
        print(&told, args, out)?;
        if told.differ > 0 {
            model
                .notes()
                .iter()
                .for_each(|what| note(&format!("the export may be to blame: {what}")));
        }
    }
    if told.differ == 0 { Ok(()) } else { Err(Failure::Mismatch) }
}

/// What values should be.
fn reference(args: &Args, model: &Model) -> Result<Reference, Failure> {
    let slots = inputs::slots(model);
    if let Some(path) = &args.reference {
        if !args.files.is_empty() {
            return Err(Failure::usage(
                "inputs are those of the reference: no -i with --reference",
            ));
        }
        let reference = Reference::new(npz::load(path)?);
        let graph = model.graph();
        let known = graph.operands().any(|(_, operand)| {
            let computed = operand.producer.and_then(|id| graph.operator(id));
            computed.is_some_and(|op| op.kind != "pnnx.Input")
                && reference.get(&operand.name).is_some()
        });
        if !known {
            return Err(Failure::Usage(format!(
                "{}: no array is called as an operand that the model computes: `plutino compare --script` prints \
                 the script that makes a reference",
                path.display()
            )));
        }
        return Ok(reference);
    }
    let Some(path) = &args.with else { return Err(Failure::usage("give --reference or --with")) };
    let inputs = args.files.one(&slots, &args.shapes)?;
    let other = args.session.load(path)?;
    let mut options = args.session.options()?;
    options.memory = args.other.with_memory.into();
    options.isa = args.other.with_isa.map(|isa| isa.0);
    options.weights = args.other.with_weights.unwrap_or_default();
    options.precision = args.other.with_precision;
    options.precision_of.clear();
    // Operators that options name may be those of one model alone.
    let has = |off: &String| off.split_once('@').is_none_or(|(_, name)| other.has_operator(name));
    options.passes_off.retain(has);
    if !args.other.with_passes {
        options = options.without_passes();
    }
    let session = other.session(options)?;
    // A model in f32 beside one in bf16 gets the same numbers.
    let fitted = inputs.iter().zip(other.inputs()).map(|(input, info)| {
        let recorded = info.dtype();
        match recorded.filter(|dtype| dtype.is_float() && input.dtype().is_float()) {
            Some(dtype) => input.cast(dtype),
            None => Ok(input.clone()),
        }
    });
    let mut fitted = fitted.collect::<Result<Vec<_>, _>>()?;
    fitted.extend(inputs.iter().skip(other.inputs().len()).cloned()); // to be refused
    let values = during("running the other model", || session.values(&fitted))?;
    let values = values.renamed(&other, model).unwrap_or(values);
    Ok(values.with_inputs(model, &inputs))
}

impl Report {
    fn new(path: &Path, report: &CompareReport, alone: bool) -> Self {
        let compared = report.values.iter().filter(|v| !matches!(v.verdict, Verdict::Skipped(_)));
        let (compared, differ) = (compared.count(), report.wrong().count());
        let hidden = match report.unseen.len() {
            0 => String::new(),
            n => format!(
                "; {} not in the plan (fused, or computed before the run)",
                count(n, "operand")
            ),
        };
        let values = count(compared, "value");
        let alone = if alone { ", each operator alone on the reference's inputs" } else { "" };
        let summary = match report.first() {
            None => format!("ok: {values} match{alone}{hidden}"),
            Some(first) => {
                let (name, kind) = (&first.location.name, &first.location.kind);
                let differ =
                    if differ == 1 { "1 differs".into() } else { format!("{differ} differ") };
                format!(
                    "MISMATCH: of {values} {differ}{alone}, the first is operand {} of {kind} '{name}'{hidden}",
                    first.operand
                )
            }
        };
        Self {
            model: path.display().to_string(),
            verdict: if differ == 0 { "ok" } else { "mismatch" },
            summary,
            isa: None,
            compared,
            differ,
            first: report.first().map(Row::new),
            culprits: Vec::new(),
            values: report.values.iter().map(Row::new).collect(),
            unseen: report.unseen.clone(),
        }
    }
}

impl Row {
    fn new(value: &ValueComparison) -> Self {
        let (verdict, why) = match &value.verdict {
            Verdict::Match => ("ok", None),
            Verdict::Differs => ("differs", None),
            Verdict::Spec(why) => ("spec", Some(why.clone())),
            Verdict::Failed(why) => ("failed", Some(why.clone())),
            Verdict::Skipped(why) => ("skipped", Some(why.clone())),
            _ => ("unknown", None),
        };
        let error = value.error.as_ref().map(|e| Error {
            elements: e.elements,
            mismatches: e.mismatches,
            max_abs: e.max_abs,
            max_rel: e.max_rel,
            scaled: e.scaled,
            tolerance: e.tolerance,
            ulps: e.ulps,
            cosine: e.cosine,
            index: e.worst.as_ref().map(|w| w.index.clone()),
            actual: e.worst.as_ref().map(|w| w.actual.clone()),
            expected: e.worst.as_ref().map(|w| w.expected.clone()),
        });
        Self {
            operand: value.operand.clone(),
            spec: value.spec.clone(),
            kind: value.location.kind.clone(),
            operator: value.location.name.clone(),
            line: value.location.line,
            kernel: value.kernel.clone(),
            absorbed: value.absorbed.clone(),
            inputs: value.inputs.clone(),
            verdict,
            why,
            error,
        }
    }

    fn is_wrong(&self) -> bool {
        matches!(self.verdict, "differs" | "spec" | "failed")
    }

    fn cells(&self) -> Vec<String> {
        let mut cells: Vec<String> = [&self.operand, &self.kind, &self.operator, &self.kernel]
            .into_iter()
            .cloned()
            .chain([self.verdict.to_owned()])
            .collect();
        match (&self.error, &self.why) {
            (Some(e), _) => {
                let number = |x: f64| if x == 0.0 { "0".to_owned() } else { format!("{x:.1e}") };
                let option = |x: Option<f64>| x.map(number).unwrap_or_default();
                let cosine = e.cosine.map(|c| format!("{c:.6}")).unwrap_or_default();
                cells.extend([number(e.scaled), number(e.tolerance), option(e.ulps), cosine]);
            }
            (None, why) => cells.push(why.clone().unwrap_or_default()),
        }
        cells.resize(9, String::new()); // bounded: the columns
        cells
    }

    /// Everything that is known of a value, over several lines.
    fn details(&self) -> String {
        let line = self.line.map(|line| format!(", line {line}")).unwrap_or_default();
        let mut text = format!(
            "operand {} {} of {} '{}'{line}",
            self.operand, self.spec, self.kind, self.operator
        );
        let mut add = |what: String| {
            text += "\n    ";
            text += &what;
        };
        if !self.kernel.is_empty() {
            add(format!("kernel {}", self.kernel));
        }
        if !self.absorbed.is_empty() {
            add(format!("fused with {}", self.absorbed.join(", ")));
        }
        if !self.inputs.is_empty() {
            add(format!("inputs {}", self.inputs.join(", ")));
        }
        if let Some(why) = &self.why {
            add(why.clone());
        }
        if let Some(e) = &self.error {
            add(format!(
                "error {:.3e}, {:.3e} of the largest magnitude ({:.1e} allowed), {:.3e} of an element",
                e.max_abs, e.scaled, e.tolerance, e.max_rel
            ));
            let cosine = e.cosine.map(|c| format!(", cosine {c:.6}")).unwrap_or_default();
            add(format!("{} of {} elements differ{cosine}", e.mismatches, e.elements));
            if let (Some(index), Some(actual), Some(expected)) = (&e.index, &e.actual, &e.expected)
            {
                let ulps = e.ulps.map(|u| format!(", {u:.3e} ulp")).unwrap_or_default();
                add(format!("worst at {index:?}: {actual}, expected {expected}{ulps}"));
            }
        }
        text
    }
}

const HEADER: [&str; 9] =
    ["operand", "type", "operator", "kernel", "verdict", "error", "allowed", "ulp", "cosine"];

fn print(report: &Report, args: &Args, out: &mut Output) -> Result<(), Failure> {
    let shown = report.values.iter().filter(|row| args.all || row.is_wrong());
    let most = if args.all { usize::MAX } else { args.top };
    let rows: Vec<Vec<String>> = shown.take(most).map(Row::cells).collect();
    if !rows.is_empty() {
        out.table(&HEADER, rows)?;
        writeln!(out)?;
    }
    if let Some(first) = &report.first {
        writeln!(out, "first: {}", first.details())?;
        if !args.isolate {
            match &report.culprits[..] {
                [] => writeln!(
                    out,
                    "alone, on the reference's inputs and without passes, no operator that made it is wrong: it \
                     inherits, or a pass is to blame (--passes); --isolate looks at all operators"
                )?,
                [same] if same.operand == first.operand => {
                    let error = same.error.as_ref().map(|e| format!(", by {:.3e}", e.scaled));
                    let error = error.unwrap_or_default();
                    writeln!(out, "alone, on the reference's inputs, it is wrong as well{error}")?;
                }
                culprits => {
                    for culprit in culprits {
                        writeln!(
                            out,
                            "wrong alone, on the reference's inputs: {}",
                            culprit.details()
                        )?;
                    }
                }
            }
        }
        writeln!(out)?;
    }
    Ok(writeln!(out, "{}", report.summary)?)
}

/// `--isa`: which instruction sets differ.
fn instruction_sets(
    args: &Args,
    path: &Path,
    model: &Model,
    reference: &Reference,
    options: &CompareOptions,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut reports = Vec::new();
    for isa in Isa::available() {
        let session = model.session(args.session.options()?.with_isa(isa))?;
        let report = during(&format!("running {isa}"), || session.compare(reference, options))?;
        let mut told = Report::new(path, &report, false);
        told.isa = Some(isa.to_string());
        reports.push(told);
    }
    let differ = reports.iter().any(|report| report.differ > 0);
    if args.json {
        out.json(&BTreeMap::from([("isa", &reports)]))?;
    } else {
        let rows = reports.iter().map(|report| {
            let first = report.first.as_ref();
            let text = |f: fn(&Row) -> &String| first.map(f).cloned().unwrap_or_default();
            let error = first.and_then(|row| row.error.as_ref());
            let isa = report.isa.clone().unwrap_or_default();
            let counts = [report.compared.to_string(), report.differ.to_string()];
            let place = [text(|r| &r.operand), text(|r| &r.operator), text(|r| &r.kernel)];
            let error = error.map(|e| format!("{:.1e}", e.scaled)).unwrap_or_default();
            [isa].into_iter().chain(counts).chain(place).chain([error]).collect()
        });
        let header = ["isa", "values", "differ", "first", "operator", "kernel", "error"];
        out.table(&header, rows.collect())?;
    }
    if differ { Err(Failure::Mismatch) } else { Ok(()) }
}

/// `--passes`, as JSON.
#[derive(Serialize)]
struct Blamed {
    verdict: &'static str,
    summary: String,
    pass: Option<&'static str>,
    disable: Vec<String>,
    cured: bool,
}

/// `--passes`: which pass is to blame.
fn passes(
    args: &Args,
    session: &Session,
    reference: &Reference,
    options: &CompareOptions,
    out: &mut Output,
) -> Result<(), Failure> {
    let blame = during("bisecting passes", || session.blame_passes(reference, options))?;
    let (verdict, summary, pass, disable, cured) = match blame {
        PassBlame::Nothing => {
            ("ok", "ok: all values match, with all passes".into(), None, vec![], true)
        }
        PassBlame::Pass { name, disable, cured } => {
            let how = disable.iter().map(|what| format!("--disable {what}"));
            let how = how.collect::<Vec<_>>().join(" ");
            let rest = match cured {
                true => "all values match",
                false => "other passes still make a difference",
            };
            let text = format!("MISMATCH: pass '{name}' is to blame; with {how} {rest}");
            ("mismatch", text, Some(name), disable, cured)
        }
        _ => {
            let text = "MISMATCH: no pass is to blame: values differ without any; --isolate tells which operator is \
                        wrong";
            ("mismatch", text.into(), None, vec![], false)
        }
    };
    if args.json {
        out.json(&Blamed { verdict, summary, pass, disable, cured })?;
    } else {
        writeln!(out, "{summary}")?;
    }
    if verdict == "ok" { Ok(()) } else { Err(Failure::Mismatch) }
}

//! `cargo xtask conformance DIR`: runs every case folder below DIR through the runtime and compares
//! with PyTorch.
//!
//! A case folder holds `model.pnnx.param`, `model.pnnx.bin`, `inputs.npz` (in0, in1, ...),
//! `outputs.npz` (out0, ...), `meta.json` with tolerance and operators, and perhaps `inputs2.npz`
//! and `outputs2.npz`: the same graph at other sizes. Of a model without weights, it is checked
//! that it would run.

use anyhow::{Context, Result, bail};
use clap::Parser;
use plutino::ir::LoadError;
use plutino_runtime::{Model, ModelError, SessionError, SessionOptions};
use plutino_tensor::{Tensor, Tolerance, npy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::walk;

/// Runs conformance cases and counts what passes, by operator and in total.
#[derive(Parser)]
pub(crate) struct Args {
    /// Folder with case folders, at any depth.
    dir: PathBuf,
    /// Writes the results to this file, too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only cases whose path below DIR contains this.
    #[arg(long)]
    filter: Option<String>,
}

impl Args {
    /// All cases below a folder.
    pub(crate) fn of(dir: PathBuf) -> Self {
        Self { dir, json: None, filter: None }
    }
}

/// What `meta.json` says.
#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    ops: BTreeMap<String, usize>,
    #[serde(default = "default_rtol")]
    rtol: f64,
    #[serde(default = "default_atol")]
    atol: f64,
    #[serde(default)]
    nondeterministic: bool,
}

fn default_rtol() -> f64 {
    1e-3
}

fn default_atol() -> f64 {
    1e-4
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Pass,
    /// Other outputs than PyTorch's, from a file of which plutino says that something is lost in
    /// it.
    Warned,
    Fail,
    Unsupported,
}

#[derive(Serialize)]
struct Case {
    name: String,
    status: Status,
    error: Option<String>,
    /// What plutino says of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip)]
    operators: Vec<String>,
}

#[derive(Default, Clone, Copy, Serialize)]
struct Counts {
    pass: usize,
    warned: usize,
    fail: usize,
    unsupported: usize,
}

impl Counts {
    fn add(&mut self, status: Status) {
        match status {
            Status::Pass => self.pass += 1,
            Status::Warned => self.warned += 1,
            Status::Fail => self.fail += 1,
            Status::Unsupported => self.unsupported += 1,
        }
    }
}

#[derive(Serialize)]
struct Report {
    total: Counts,
    operators: BTreeMap<String, Counts>,
    cases: Vec<Case>,
}

/// Runs the cases and prints the table. Fails where a case fails without a word; unsupported ones
/// are only counted.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut folders = walk::models(&args.dir)?;
    folders.retain(|folder| folder.join("meta.json").is_file());
    let mut report =
        Report { total: Counts::default(), operators: BTreeMap::new(), cases: Vec::new() };
    for folder in folders {
        let name = folder.strip_prefix(&args.dir).unwrap_or(&folder).display().to_string();
        if args.filter.as_ref().is_some_and(|f| !name.contains(f.as_str())) {
            continue;
        }
        let case = run_case(&folder, name)?;
        report.total.add(case.status);
        for operator in &case.operators {
            report.operators.entry(operator.clone()).or_default().add(case.status);
        }
        report.cases.push(case);
    }
    print(&report);
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    match (report.cases.len(), report.total.fail) {
        (0, _) => bail!("{} holds no case that was asked for", args.dir.display()),
        (_, 0) => Ok(()),
        (_, failed) => bail!("{failed} case(s) failed"),
    }
}

fn run_case(folder: &Path, name: String) -> Result<Case> {
    let text = std::fs::read_to_string(folder.join("meta.json")).with_context(|| name.clone())?;
    let meta: Meta = serde_json::from_str(&text).with_context(|| name.clone())?;
    let structure = |kind: &str| {
        kind.starts_with("pnnx.") && kind != "pnnx.Expression" || kind.starts_with("prim::")
    };
    let operators = meta.ops.keys().filter(|kind| !structure(kind)).cloned().collect();
    let mut warnings = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| compute(folder, &meta, &mut warnings)));
    let (status, error) = match outcome {
        Ok(Ok(())) => (Status::Pass, None),
        Ok(Err(error)) => (status_of(&error, &warnings), Some(format!("{error:#}"))),
        Err(_) => (Status::Fail, Some("panicked".into())),
    };
    Ok(Case { name, status, error, warnings, operators })
}

/// Other numbers than PyTorch's.
#[derive(Debug)]
struct Differs(String);

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Differs {}

/// Whether an error says that something is not implemented, or that numbers differ of which the
/// file is known to have lost something, rather than that something is wrong.
fn status_of(error: &anyhow::Error, warnings: &[String]) -> Status {
    let operators = match error.downcast_ref::<ModelError>() {
        Some(ModelError::Operators(list)) => !list.kinds.is_empty(),
        _ => false,
    };
    let plan = matches!(
        error.downcast_ref::<SessionError>(),
        Some(SessionError::Plan { error: plutino_ops::PlanError::Unsupported(_), .. })
    );
    match error.downcast_ref::<Differs>() {
        _ if operators || plan => Status::Unsupported,
        Some(_) if !warnings.is_empty() => Status::Warned,
        _ => Status::Fail,
    }
}

/// Runs one case on all its sets of inputs; adds what is said of the file to `warnings`.
fn compute(folder: &Path, meta: &Meta, warnings: &mut Vec<String>) -> Result<()> {
    let path = folder.join("model.pnnx.param");
    let model = match Model::load(&path) {
        Err(ModelError::Load(LoadError::NoWeights { .. })) => return check(&path, warnings),
        model => model?,
    };
    warnings.extend(model.warnings().iter().map(ToString::to_string));
    warnings.extend(model.inference().warnings.iter().map(ToString::to_string));
    warnings.extend(model.notes());
    let session = model.session(SessionOptions::default())?;
    for suffix in ["", "2"] {
        let inputs = folder.join(format!("inputs{suffix}.npz"));
        if !suffix.is_empty() && !inputs.is_file() {
            continue;
        }
        let inputs = load(&inputs, "in")?;
        let expected = load(&folder.join(format!("outputs{suffix}.npz")), "out")?;
        let outputs = session.run(&inputs)?;
        compare(&outputs, &expected, meta)?;
    }
    Ok(())
}

/// Checks that a model of which there are no weights would run as recorded.
fn check(path: &Path, warnings: &mut Vec<String>) -> Result<()> {
    let report = Model::check(path)?;
    warnings.extend(report.warnings.iter().map(ToString::to_string));
    if let Some(undecoded) = report.undecoded {
        return Err(ModelError::from(undecoded).into());
    }
    let inference = report.inference.unwrap_or_default();
    if let Some(failure) = inference.failures.into_iter().next() {
        return Err(failure.into());
    }
    match inference.warnings.first() {
        Some(warning) => bail!("{warning}"),
        None => Ok(()),
    }
}

/// The arrays `in0, in1, ...` of a file.
fn load(path: &Path, prefix: &str) -> Result<Vec<Tensor>> {
    let arrays: BTreeMap<String, Tensor> = npy::npz::load(path)?.into_iter().collect();
    let named = |i| arrays.get(&format!("{prefix}{i}")).cloned();
    let tensors: Vec<Tensor> = (0..arrays.len()).map_while(named).collect();
    if tensors.len() != arrays.len() {
        let names: Vec<_> = arrays.keys().map(String::as_str).collect();
        bail!("{} should hold {prefix}0 and so on, found {}", path.display(), names.join(", "));
    }
    Ok(tensors)
}

fn compare(outputs: &[Tensor], expected: &[Tensor], meta: &Meta) -> Result<()> {
    if outputs.len() != expected.len() {
        bail!("{} output(s), expected {}", outputs.len(), expected.len());
    }
    let tolerance = Tolerance { rtol: meta.rtol, atol: meta.atol };
    for (i, (ours, theirs)) in outputs.iter().zip(expected).enumerate() {
        if ours.spec() != theirs.spec() {
            let what = format!("output {i} is {}, expected {}", ours.spec(), theirs.spec());
            return Err(Differs(what).into());
        }
        if meta.nondeterministic {
            continue;
        }
        let comparison = ours.compare(theirs, tolerance)?;
        if !comparison.is_match() {
            return Err(Differs(format!("output {i}: {comparison}")).into());
        }
    }
    Ok(())
}

#[allow(clippy::print_stdout)] // a chore's result
fn print(report: &Report) {
    let titles =
        [(Status::Unsupported, "unsupported"), (Status::Warned, "warned"), (Status::Fail, "fail")];
    for (status, title) in titles {
        for case in report.cases.iter().filter(|c| c.status == status) {
            let error = case.error.as_deref().unwrap_or_default().replace('\n', "\n    ");
            println!("{title} {}\n    {error}", case.name);
            let said = case.warnings.iter().filter(|_| status == Status::Warned).take(3);
            said.for_each(|warning| println!("    said: {warning}"));
        }
    }
    let row = |name: &str, c: &Counts| {
        println!("{name:40} {:6} {:6} {:6} {:12}", c.pass, c.warned, c.fail, c.unsupported);
    };
    println!(
        "{:40} {:>6} {:>6} {:>6} {:>12}",
        "operator (cases with it)", "pass", "warned", "fail", "unsupported"
    );
    report.operators.iter().for_each(|(name, counts)| row(name, counts));
    row("all cases", &report.total);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAM: &str = "7767517\n3 2\npnnx.Input in 0 1 0\nprim::TupleConstruct t 1 1 0 1\npnnx.Output out 1 0 1\n";

    /// What pnnx writes of `torch.round(x, decimals=1)`.
    const ROUND: &str = "7767517\n3 2\npnnx.Input in 0 1 0 #0=(2)f32\n\
        pnnx.Expression e 1 1 0 1 expr=round(@0) #1=(2)f32\npnnx.Output out 1 0 1\n";

    fn case(name: &str, meta: &str, expected: &[f32]) -> Case {
        case_of(PARAM, name, meta, expected)
    }

    fn case_of(param: &str, name: &str, meta: &str, expected: &[f32]) -> Case {
        let folder =
            std::env::temp_dir().join(format!("plutino-conformance-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("model.pnnx.param"), param).unwrap();
        std::fs::write(folder.join("meta.json"), meta).unwrap();
        let save = |file: &str, name: &str, values: &[f32]| {
            let tensor = Tensor::from_slice(values, [values.len()]).unwrap();
            npy::npz::save(folder.join(file), [(name, tensor.view())]).unwrap();
        };
        save("inputs.npz", "in0", &[1.0, f32::NAN]);
        save("outputs.npz", "out0", expected);
        let case = run_case(&folder, name.into()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        case
    }

    #[test]
    fn the_tolerance_decides() {
        assert!(case("pass", "{}", &[1.0005, f32::NAN]).status == Status::Pass);
        assert!(
            case("fail", r#"{"rtol": 1e-5, "atol": 0}"#, &[1.0005, f32::NAN]).status
                == Status::Fail
        );
        assert!(case("loose", r#"{"nondeterministic": true}"#, &[5.0, 7.0]).status == Status::Pass);
        let other = case("shape", "{}", &[1.0]);
        assert!(other.error.unwrap().contains("expected (1)f32"));
        assert!(other.status == Status::Fail, "nothing is said of the file");
        let lost = case_of(ROUND, "lost", "{}", &[1.2, f32::NAN]);
        assert!(lost.status == Status::Warned && lost.warnings[0].contains("decimals"));
        assert!(case_of(ROUND, "kept", "{}", &[1.0, f32::NAN]).status == Status::Pass);
    }
}

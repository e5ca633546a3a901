//! `plutino verify`

use crate::failure::Failure;
use crate::inputs;
use crate::output::{Output, during};
use crate::picture::PictureArgs;
use crate::session::{self, SessionArgs};
use plutino::npy::npz;
use plutino::{Tensor, Tolerance};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Compare a model's outputs with expected ones, such as PyTorch's
///
/// An element matches where |ours - expected| <= atol + rtol * |expected|; NaN matches NaN; integers and
/// booleans must be equal. Exit code 1 where anything does not match.
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
    #[arg(long, default_value_t = 1e-3)]
    rtol: f64,
    /// Allowed error where the expected element is near zero
    #[arg(long, default_value_t = 1e-4)]
    atol: f64,
    #[command(flatten)]
    session: SessionArgs,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let model = session::load(&args.model)?;
    let slots = inputs::slots(&model);
    let inputs = inputs::load(std::slice::from_ref(&args.inputs), &slots, &PictureArgs::default())?;
    let expected = expected(&args.expected)?;
    let session = args.session.session(&model)?;
    let outputs = during("running", || session.run(&inputs))?;

    let tolerance = Tolerance { rtol: args.rtol, atol: args.atol };
    let mut mismatches = 0;
    for (i, (ours, (name, expected))) in outputs.iter().zip(&expected).enumerate() {
        let spec = ours.spec();
        let (verdict, detail) = match ours.compare(expected, tolerance) {
            Ok(comparison) if comparison.is_match() => ("ok", comparison.to_string()),
            Ok(comparison) => ("MISMATCH", comparison.to_string()),
            Err(error) => ("MISMATCH", error.to_string()),
        };
        mismatches += usize::from(verdict != "ok");
        writeln!(out, "out{i} {spec} against {name}: {verdict}: {detail}")?;
    }
    if outputs.len() != expected.len() {
        mismatches += 1;
        let (ours, theirs) = (outputs.len(), expected.len());
        writeln!(out, "MISMATCH: the model has {ours} outputs, {theirs} are expected")?;
    }
    if mismatches == 0 { Ok(()) } else { Err(Failure::Mismatch) }
}

/// The arrays `out0`, `out1`, ... by number where that is what they are called, else in the file's order.
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
}

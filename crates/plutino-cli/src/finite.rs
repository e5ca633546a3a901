//! `--check-finite`: the operators that make NaN or infinity.

use crate::failure::Failure;
use crate::output::{Output, count, during};
use plutino::compare::{Origin, Seed};
use plutino::{Session, Tensor};
use std::io::Write;

/// Origins that are told one by one.
const MOST: usize = 10;

/// Looks at every value of a run, and tells where it stops being finite. Whether all is well.
pub(crate) fn check(
    session: &Session,
    inputs: &[Tensor],
    out: &mut Output,
) -> Result<bool, Failure> {
    let report = during("looking for NaN and infinity", || session.check_finite(inputs))?;
    for name in report.given.iter().take(MOST) {
        writeln!(out, "{name}: an input or constant that is not finite")?;
    }
    // The first NaN is what most look for: masks are made of infinities on purpose.
    let nans = report.origins.iter().filter(|origin| origin.seed == Seed::Nan);
    let infinities = report.origins.iter().filter(|origin| origin.seed == Seed::Infinity);
    for origin in nans.chain(infinities).take(MOST) {
        tell(origin, out)?;
    }
    let more = report.origins.len().saturating_sub(MOST);
    if more > 0 {
        writeln!(out, "and {}", count(more, "more origin"))?;
    }
    match (report.is_fine(), report.outputs.is_empty(), report.origins.is_empty()) {
        (true, _, true) => writeln!(out, "finite: every value of the run")?,
        (true, ..) => writeln!(out, "finite: the outputs; no NaN comes up")?,
        (false, true, _) => writeln!(out, "NOT FINITE: NaN comes up; the outputs are finite")?,
        (false, false, _) => {
            writeln!(out, "NOT FINITE: outputs {}", report.outputs.join(", "))?;
        }
    }
    Ok(report.is_fine())
}

fn tell(origin: &Origin, out: &mut Output) -> Result<(), Failure> {
    let Origin { location, absorbed, kernel, operand, spec, count, index, inputs, .. } = origin;
    let (what, of) = match origin.seed {
        Seed::Nan => ("NaN", "inputs without NaN"),
        Seed::Infinity => ("infinity", "finite inputs"),
    };
    writeln!(
        out,
        "{location}: makes {what} of {of}: {count} in operand {operand} {spec}, first at {index:?}"
    )?;
    let fused = match &absorbed[..] {
        [] => String::new(),
        names => format!(", fused with {}", names.join(", ")),
    };
    Ok(writeln!(out, "    kernel {kernel}{fused}\n    inputs {}", inputs.join("; "))?)
}

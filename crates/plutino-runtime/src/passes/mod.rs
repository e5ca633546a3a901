//! Passes over a net: the explicit, ordered list of everything that changes it before it is
//! planned.
//!
//! Each pass can be left out
//! ([`SessionOptions::without_pass`](crate::SessionOptions::without_pass)), the pipeline can stop
//! early, and each says what it did and what it refused to do, and why. Passes change speed and
//! memory, never results beyond rounding.

mod attention;
mod channels;
pub(crate) mod dead;
pub(crate) mod fold;
mod fuse;
mod layout;
mod rows;
mod scale;

use crate::infer::Types;
use crate::model::Inner;
use crate::net::Net;
use crate::{SessionError, SessionOptions};
use plutino_ir::Limits;
use plutino_ops::ValueSpec;

/// The passes, in the order in which they run.
pub(crate) const PIPELINE: &[Pass] = &[
    Pass {
        name: "dead",
        about: "leaves out operators whose results nobody reads",
        run: Run::Structure(dead::dead),
    },
    Pass {
        name: "fold",
        about: "computes what does not depend on the inputs once, while planning",
        run: Run::Inference,
    },
    Pass {
        name: "attention",
        about: "computes attention that is spelled out as products and a softmax in one step",
        run: Run::Typed(Stage::Inferred, attention::attention),
    },
    Pass {
        name: "channels",
        about: "shuffles channels where they lie, and joins and cuts tensors on the way",
        run: Run::Typed(Stage::Inferred, channels::channels),
    },
    Pass {
        name: "fuse",
        about: "lets convolutions and the like take over the activation or sum that follows",
        run: Run::Typed(Stage::Inferred, fuse::fuse),
    },
    Pass {
        name: "rows",
        about: "lets two linear layers compute some rows at a time, where what lies between exceeds the cache",
        run: Run::Typed(Stage::Inferred, rows::rows),
    },
    Pass {
        name: "layout",
        about: "keeps images in channel blocks where convolutions compute",
        run: Run::Layout(layout::layout),
    },
    Pass {
        name: "scale",
        about: "lets 1x1 convolutions take over the factors of their input's channels",
        run: Run::Typed(Stage::Placed, scale::scale),
    },
];

/// One entry of the pipeline.
pub(crate) struct Pass {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: Run,
}

/// When a pass runs.
pub(crate) enum Run {
    /// Before shapes are inferred: works on the structure alone.
    Structure(fn(&mut Net, &mut PassReport) -> Result<(), SessionError>),
    /// While shapes are inferred.
    Inference,
    /// After shapes are inferred.
    Typed(Stage, fn(&mut Net, &TypedCx<'_>, &mut PassReport) -> Result<(), SessionError>),
    /// Decides how values lie in memory, given the channels of a block.
    Layout(fn(&mut Net, &mut Types, usize, &Limits, &mut PassReport) -> Result<(), SessionError>),
}

/// How much is known when a pass runs that asks for shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Shapes.
    Inferred,
    /// And how values lie in memory.
    Placed,
}

/// What a pass may look at once shapes are known.
pub(crate) struct TypedCx<'a> {
    pub(crate) model: &'a Inner,
    pub(crate) types: &'a Types,
    /// What ends planning early.
    pub(crate) limits: &'a Limits,
}

/// A pass of the pipeline, described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassInfo {
    /// The name by which options call it.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// The passes, in the order in which they run.
pub fn passes() -> impl Iterator<Item = PassInfo> {
    PIPELINE.iter().map(|p| PassInfo { name: p.name, about: p.about })
}

/// What one pass did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PassReport {
    /// Name of the pass.
    pub name: &'static str,
    /// Whether it ran.
    pub ran: bool,
    /// What it changed.
    pub done: Vec<PassNote>,
    /// What it could have changed but did not, and why.
    pub refused: Vec<PassNote>,
}

/// One change, or one refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassNote {
    /// Name of the operator in question.
    pub operator: String,
    /// What was done with it, or why not.
    pub what: String,
}

impl PassReport {
    pub(crate) fn did(&mut self, operator: &str, what: impl Into<String>) {
        self.done.push(PassNote { operator: operator.into(), what: what.into() });
    }

    pub(crate) fn refuse(&mut self, operator: &str, why: impl Into<String>) {
        self.refused.push(PassNote { operator: operator.into(), what: why.into() });
    }
}

/// One empty report for each pass, with [`PassReport::ran`] set for those that the options allow.
pub(crate) fn reports(options: &SessionOptions) -> Vec<PassReport> {
    let allowed = |at: usize, name: &str| {
        options.stop_after.is_none_or(|n| at < n) && !options.passes_off.contains(name)
    };
    let passes = PIPELINE.iter().enumerate();
    passes
        .map(|(at, p)| PassReport {
            name: p.name,
            ran: allowed(at, p.name),
            ..PassReport::default()
        })
        .collect()
}

/// Runs the passes that come before inference.
pub(crate) fn run_structure(net: &mut Net, reports: &mut [PassReport]) -> Result<(), SessionError> {
    for (pass, report) in PIPELINE.iter().zip(reports) {
        if let (Run::Structure(run), true) = (&pass.run, report.ran) {
            run(net, report)?;
        }
    }
    Ok(())
}

/// The report of the pass that runs during inference, if it may.
pub(crate) fn inference(reports: &mut [PassReport]) -> Option<&mut PassReport> {
    let (_, report) =
        PIPELINE.iter().zip(reports).find(|(p, _)| matches!(p.run, Run::Inference))?;
    report.ran.then_some(report)
}

/// Runs the passes of a stage after inference.
pub(crate) fn run_typed(
    stage: Stage,
    net: &mut Net,
    cx: &TypedCx<'_>,
    reports: &mut [PassReport],
) -> Result<(), SessionError> {
    for (pass, report) in PIPELINE.iter().zip(reports) {
        match pass.run {
            Run::Typed(at, run) if at == stage && report.ran => run(net, cx, report)?,
            _ => {}
        }
    }
    Ok(())
}

/// Runs the passes that decide how values lie in memory.
pub(crate) fn run_layout(
    net: &mut Net,
    types: &mut Types,
    block: usize,
    limits: &Limits,
    reports: &mut [PassReport],
) -> Result<(), SessionError> {
    for (pass, report) in PIPELINE.iter().zip(reports) {
        if let (Run::Layout(run), true) = (&pass.run, report.ran) {
            run(net, types, block, limits, report)?;
        }
    }
    Ok(())
}

/// A fused operator must make exactly what the last one that it stands for made, wherever that
/// lies.
fn check_fused(net: &Net, types: &Types, at: usize) -> Result<(), SessionError> {
    let node = &net.nodes[at];
    let inputs = types.all(&node.inputs).unwrap_or_default();
    let made = node.operator().and_then(|op| op.infer(&inputs).ok()).unwrap_or_default();
    let promised = types.all(&node.outputs).unwrap_or_default();
    let same = |(made, promised): (&ValueSpec, &ValueSpec)| match (made, promised) {
        (ValueSpec::Tensor(a), ValueSpec::Tensor(b)) => {
            (&a.spec.shape, a.spec.dtype) == (&b.spec.shape, b.spec.dtype)
        }
        _ => false,
    };
    if made.is_empty() || made.len() != promised.len() || !made.iter().zip(&promised).all(same) {
        return Err(SessionError::internal(format!(
            "{}: fusion changed the result's shape",
            node.location
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

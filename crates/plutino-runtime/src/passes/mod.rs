//! Passes over a net: the explicit, ordered list of everything that is done to it before it is
//! planned.
//!
//! One loop runs the list in its order. A pass looks for what it knows in the net, and says in a
//! [`Patch`](patch::Patch) what takes its place; patches are checked and applied in one file. Each
//! pass can be left out, altogether or for single operators
//! ([`SessionOptions::without_pass`](crate::SessionOptions::without_pass)), the list can end
//! early, and each pass says what it did and what it refused to do, and why. Passes change speed
//! and memory, never results beyond rounding.

mod activation;
mod attention;
mod batch_norm;
mod bf16;
mod branches;
mod chain;
mod channels;
pub(crate) mod dead;
mod depthwise;
mod expand;
pub(crate) mod fold;
mod formula;
mod fuse;
mod heads;
mod identity;
mod layout;
mod multiplier;
mod norm;
mod pad;
mod patch;
mod rows;
mod scale;
mod weights;

use crate::halt;
use crate::load::model::Inner;
use crate::options::Resolved;
use crate::plan::infer;
use crate::plan::net::Net;
use crate::plan::report::Warning;
use crate::plan::strides;
use crate::settings::Settings;
use crate::{SessionError, SessionOptions};
use plutino_ir::SizeLimits;
use plutino_ops::PackCache;
use plutino_tensor::{TensorSpec, alloc};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The passes, in the order in which they run.
pub(crate) const PIPELINE: &[Pass] = &[
    Pass {
        name: "dead",
        about: "leaves out operators whose results nobody reads",
        run: dead::dead,
        kind: Kind::Optional,
    },
    Pass {
        name: "infer",
        about: "finds dtypes and shapes of all values",
        run: infer::infer,
        kind: Kind::Required,
    },
    Pass {
        name: "fold",
        about: "computes what does not depend on the inputs once, while planning",
        run: fold::fold,
        kind: Kind::Optional,
    },
    Pass {
        name: "record",
        about: "compares dtypes and shapes with those that the file records",
        run: infer::compare_with_file,
        kind: Kind::Required,
    },
    Pass {
        name: "strides",
        about: "gives operators that read storage the value that owns it",
        run: strides::bind,
        kind: Kind::Required,
    },
    Pass {
        name: "weights",
        about: "lets convolutions and linear layers take constants of the model as weights",
        run: weights::weights,
        kind: Kind::Optional,
    },
    Pass {
        name: "constants",
        about: "leaves out operators that only constants of the plan depend on",
        run: dead::constants,
        kind: Kind::Optional,
    },
    Pass {
        name: "expand",
        about: "takes operators apart that consist of others",
        run: expand::expand,
        kind: Kind::Optional,
    },
    Pass {
        name: "identity",
        about: "leaves out operators whose result is there already",
        run: identity::identity,
        kind: Kind::Optional,
    },
    Pass {
        name: "pad",
        about: "lets convolutions take over the zeros around their input",
        run: pad::pad,
        kind: Kind::Optional,
    },
    Pass {
        name: "batch_norm",
        about: "lets weights of convolutions and linear layers take over the batch norm that follows",
        run: batch_norm::batch_norm,
        kind: Kind::Optional,
    },
    Pass {
        name: "norm",
        about: "computes layer norm and RMS norm that are written out in one step",
        run: norm::norm,
        kind: Kind::Optional,
    },
    Pass {
        name: "activation",
        about: "computes activation functions that are written out as formulas in one step",
        run: activation::activation,
        kind: Kind::Optional,
    },
    Pass {
        name: "attention",
        about: "computes attention that is spelled out as products and a softmax in one step",
        run: attention::attention,
        kind: Kind::Optional,
    },
    Pass {
        name: "heads",
        about: "lets attention read heads of keys and values that queries share where they lie",
        run: heads::heads,
        kind: Kind::Optional,
    },
    Pass {
        name: "channels",
        about: "shuffles channels where they lie, and joins and cuts tensors on the way",
        run: channels::channels,
        kind: Kind::Optional,
    },
    Pass {
        name: "branches",
        about: "computes convolutions of one image whose results are added as one convolution",
        run: branches::branches,
        kind: Kind::Optional,
    },
    Pass {
        name: "multiplier",
        about: "repeats channels for depthwise convolutions that make several of each",
        run: multiplier::multiplier,
        kind: Kind::Optional,
    },
    Pass {
        name: "fuse",
        about: "lets convolutions and the like take over the activation or sum that follows",
        run: fuse::fuse,
        kind: Kind::Optional,
    },
    Pass {
        name: "chain",
        about: "computes elementwise operators, one after the other, in one pass over memory",
        run: chain::chain,
        kind: Kind::Optional,
    },
    Pass {
        name: "layout",
        about: "keeps images in channel blocks where convolutions compute",
        run: layout::layout,
        kind: Kind::Optional,
    },
    Pass {
        name: "scale",
        about: "lets 1x1 convolutions take over the factors of their input's channels",
        run: scale::scale,
        kind: Kind::Optional,
    },
    Pass {
        name: "depthwise",
        about: "lets a 1x1 convolution make the rows that the depthwise convolution after it needs, some at a time",
        run: depthwise::depthwise,
        kind: Kind::Optional,
    },
    Pass {
        name: "bf16",
        about: "lets convolutions, linear layers and norms hand on bf16 where all who read it take it, at medium precision",
        run: bf16::bf16,
        kind: Kind::Optional,
    },
    Pass {
        name: "rows",
        about: "lets two linear layers compute some rows at a time, where what lies between exceeds the cache",
        run: rows::rows,
        kind: Kind::Optional,
    },
];

/// One entry of the pipeline.
pub(crate) struct Pass {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&mut Net, &mut PassCx<'_>) -> Result<(), SessionError>,
    pub(crate) kind: Kind,
}

/// Whether a pass may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing can be planned without it.
    Required,
    /// It makes plans better.
    Optional,
}

/// What passes look at beside the net, and what they use up together.
pub(crate) struct PassCx<'a> {
    pub(crate) feeds: &'a [TensorSpec],
    /// What the session computes with.
    pub(crate) settings: &'a Settings,
    /// The weights that the plan uses, as they are packed.
    pub(crate) packs: PackCache,
    /// How large the plan may be.
    pub(crate) sizes: SizeLimits,
    /// Whether what is known is computed while planning.
    pub(crate) folds: bool,
    /// What may still be computed while planning.
    pub(crate) allowance: fold::Allowance,
    /// Members of all lists so far.
    pub(crate) lists: crate::plan::infer::Lists,
    /// What the user should know.
    pub(crate) warnings: Vec<Warning>,
    /// Nodes that patches put before that at a position.
    queued: BTreeMap<usize, Vec<crate::plan::net::Node>>,
    /// Of the pass that runs.
    report: PassReport,
    /// Operators that the pass leaves alone.
    off: BTreeSet<String>,
}

impl<'a> PassCx<'a> {
    pub(crate) fn new(model: &Inner, feeds: &'a [TensorSpec], settings: &'a Settings) -> Self {
        Self {
            feeds,
            settings,
            packs: model.packs.for_another(),
            sizes: model.sizes,
            folds: false,
            allowance: fold::Allowance::default(),
            lists: crate::plan::infer::Lists::default(),
            warnings: Vec::new(),
            queued: BTreeMap::new(),
            report: PassReport::default(),
            off: BTreeSet::new(),
        }
    }

    /// Name of the pass that runs.
    fn name(&self) -> &'static str {
        self.report.name
    }

    /// Whether the pass may touch the operator of this name.
    pub(crate) fn allows(&self, operator: &str) -> bool {
        !self.off.contains(operator)
    }

    /// Notes what was done with an operator.
    pub(crate) fn did(&mut self, operator: &str, what: impl Into<String>) {
        self.report.done.push(PassNote { operator: operator.into(), what: what.into() });
    }

    /// Notes what was not done with an operator, and why.
    pub(crate) fn refuse(&mut self, operator: &str, why: impl Into<String>) {
        self.report.refused.push(PassNote { operator: operator.into(), what: why.into() });
    }
}

/// Runs the pipeline. Returns what each pass did, for passes that were left out as well.
///
/// # Errors
/// Where an operator refuses its inputs, a limit is exceeded, or a pass is wrong.
pub(crate) fn run(
    net: &mut Net,
    cx: &mut PassCx<'_>,
    resolved: &Resolved,
) -> Result<Vec<PassReport>, SessionError> {
    let options = &resolved.options;
    let last = options.stop_after.as_ref();
    let last = last.and_then(|last| PIPELINE.iter().position(|pass| pass.name == last));
    let mut reports = Vec::with_capacity(PIPELINE.len());
    net.index()?;
    for (at, pass) in PIPELINE.iter().enumerate() {
        let off = options.passes_off.contains(pass.name) || last.is_some_and(|last| at > last);
        let ran = pass.kind == Kind::Required || !off;
        cx.report = PassReport { name: pass.name, ran, ..PassReport::default() };
        if ran {
            let _span = crate::spans::pass(pass.name);
            cx.off = without(options, pass.name);
            let start = Instant::now();
            (pass.run)(net, cx)?;
            cx.settle(net)?;
            cx.report.time = start.elapsed();
        }
        reports.push(std::mem::take(&mut cx.report));
    }
    Ok(reports)
}

/// Finds dtypes and shapes of everything, with constants computed, and does nothing else.
///
/// # Errors
/// Where an operator refuses its inputs, or a limit is exceeded.
pub(crate) fn types(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    net.index()?;
    for pass in [dead::dead, infer::infer, fold::fold] {
        pass(net, cx)?;
        cx.settle(net)?;
    }
    Ok(())
}

/// The operators for which a pass is left out.
fn without(options: &SessionOptions, pass: &str) -> BTreeSet<String> {
    let named = options.passes_off.iter().filter_map(|name| name.split_once('@'));
    named.filter(|(name, _)| *name == pass).map(|(_, operator)| operator.to_owned()).collect()
}

/// Whether this names a pass that can be left out, or one for an operator (`fuse@conv1`).
pub(crate) fn can_be_left_out(name: &str) -> bool {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    optional().any(|pass| pass.name == name)
}

/// The passes that can be left out.
pub(crate) fn optional() -> impl Iterator<Item = &'static Pass> {
    PIPELINE.iter().filter(|pass| pass.kind == Kind::Optional)
}

/// Applies what is found at each node, in execution order, or says why it is not done.
fn apply_at_each(
    net: &mut Net,
    cx: &mut PassCx<'_>,
    find: impl Fn(&Net, &PassCx<'_>, usize) -> Option<Result<patch::Patch, String>>,
) -> Result<(), SessionError> {
    apply_at(0..net.nodes.len(), net, cx, find)
}

/// The same at these nodes, in this order.
fn apply_at(
    nodes: impl Iterator<Item = usize>,
    net: &mut Net,
    cx: &mut PassCx<'_>,
    find: impl Fn(&Net, &PassCx<'_>, usize) -> Option<Result<patch::Patch, String>>,
) -> Result<(), SessionError> {
    for at in nodes {
        halt::go_on_at(at)?;
        match searching(|| find(net, cx, at)) {
            Some(Ok(patch)) => {
                cx.apply(net, patch)?;
            }
            Some(Err(why)) => cx.refuse(&net.nodes[at].location.name, why),
            None => {}
        }
    }
    Ok(())
}

/// What a search takes it gives back: only what lasts is charged.
fn searching<R>(search: impl FnOnce() -> R) -> R {
    alloc::temporary(search)
}

/// A pass of the pipeline, described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassInfo {
    /// The name by which options call it.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Whether nothing can be planned without it: it cannot be left out.
    pub required: bool,
}

/// The passes, in the order in which they run.
pub fn passes() -> impl Iterator<Item = PassInfo> {
    PIPELINE.iter().map(|p| PassInfo {
        name: p.name,
        about: p.about,
        required: p.kind == Kind::Required,
    })
}

/// What one pass did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PassReport {
    /// Name of the pass.
    pub name: &'static str,
    /// Whether it ran.
    pub ran: bool,
    /// How long that took.
    pub time: Duration,
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

#[cfg(test)]
mod branches_tests;
#[cfg(test)]
mod fusion_tests;
#[cfg(test)]
mod tests;

//! Control flow: operators whose branches, condition and body are definitions.
//!
//! `plutino.If`, `plutino.While` and `plutino.Scan` name definitions by their types. Those are
//! models of their own, decoded once however many operators name them, and run by the executor that
//! runs everything else: a control operator is an [`Operator`](plutino_ops::Operator) like others,
//! whose kernel runs plans ([`bound`], [`run`]). So that it has its place in plans, arenas and
//! profiles, and may depend on data as any operator may.

mod bodies;
mod bound;
mod frames;
mod run;
#[cfg(test)]
mod tests;

use crate::load::model::Inner;
use crate::{Model, ModelError, ModelOptions, UndecodedOperators};
use plutino_ir::{
    Attribute, DefineError, DefineProblem, Graph, Operator, OperatorId, Site, SizeLimit, quote,
};
use plutino_ops::{BuildError, BuildProblem, NodeReader, PackCache};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

pub use bodies::BodyInfo;
pub use frames::Frame;

pub(crate) use bound::{Bound, Shared, bind};
pub(crate) use frames::{Recording, failure};

/// Control operators that lie within each other's definitions: each takes stack to plan and to run.
const MOST_LEVELS: usize = 16;

/// What an operator of control flow does.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) flow: Flow,
    /// Outputs of the operator.
    pub(crate) outputs: usize,
}

/// The sorts of control flow.
#[derive(Debug)]
pub(crate) enum Flow {
    /// The first input decides which of two bodies gets the others.
    If { then: Body, otherwise: Body },
    /// The first inputs are the state, the others stay as they are.
    While {
        /// None: as often as `most` says.
        cond: Option<Body>,
        body: Body,
        most: Option<usize>,
    },
    /// State, inputs of which the body gets one index after the other, and inputs that stay as they
    /// are.
    Scan {
        body: Body,
        carried: usize,
        /// For each scanned input the dimension, counted from the last one where it is negative.
        axes: Vec<i64>,
        reverse: bool,
        /// For each output beyond the state, whether it is the last one alone and not all.
        last: Vec<bool>,
    },
}

impl Flow {
    /// The models that it runs.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &Body> {
        let (first, second) = match self {
            Self::If { then, otherwise } => (Some(then), otherwise),
            Self::While { cond, body, .. } => (cond.as_ref(), body),
            Self::Scan { body, .. } => (None, body),
        };
        first.into_iter().chain([second])
    }
}

/// A model that a control operator runs.
#[derive(Clone)]
pub(crate) struct Body {
    /// The parameter that names it: `then`, `else`, `cond`, `body`.
    pub(crate) part: &'static str,
    /// Its type.
    pub(crate) kind: String,
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.part, self.kind)
    }
}

/// Whether an operator type is one of control flow.
pub(crate) fn is_control(kind: &str) -> bool {
    matches!(kind, "plutino.If" | "plutino.While" | "plutino.Scan")
}

/// The control operators of a model.
pub(crate) type Controls = Vec<(OperatorId, Arc<Control>)>;

/// What is shared by all models that are decoded for one: each definition is decoded once, unless
/// a node has weights for it.
pub(crate) struct Decoding<'a> {
    options: &'a ModelOptions,
    known: HashMap<String, Arc<Inner>>,
    /// Types of bodies that could not be decoded.
    failed: HashSet<String>,
    /// Why, as far as nobody was told.
    pub(crate) undecoded: Vec<UndecodedOperators>,
    /// Bodies of the model at hand that are not defined.
    pub(crate) undefined: Vec<BuildError>,
    /// The types around, the outermost first.
    chain: Vec<String>,
    /// Operators of all bodies so far.
    operators: usize,
    /// Bytes of all weights so far that are mapped.
    pub(crate) mapped: usize,
    /// What control operators infer with where there is no session.
    shared: Arc<Shared>,
}

/// Why an operator of control flow cannot be decoded: told together with other operators, or alone.
pub(crate) enum Fault {
    Node(BuildError),
    /// In a body: what is wrong is in [`Decoding::undecoded`], or in [`Decoding::undefined`].
    Body,
    Model(ModelError),
}

impl From<BuildError> for Fault {
    fn from(error: BuildError) -> Self {
        Self::Node(error)
    }
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

impl<'a> Decoding<'a> {
    pub(crate) fn new(options: &'a ModelOptions) -> Self {
        Self {
            options,
            known: HashMap::new(),
            failed: HashSet::new(),
            undecoded: Vec::new(),
            undefined: Vec::new(),
            chain: Vec::new(),
            operators: 0,
            mapped: 0,
            shared: Shared::unbound(),
        }
    }

    /// An operator of control flow, with the models that it runs.
    pub(crate) fn control(&mut self, file: &str, op: &Operator) -> Result<Arc<Control>, Fault> {
        let mut reader = NodeReader::new(file, op);
        let mut weights = self.weights_by_part(&mut reader, op)?;
        let (inputs, outputs) = (reader.rest().len(), op.outputs.len());
        let mut body = |cx: &mut Self, part: &'static str, kind: String, sizes: [usize; 2]| {
            let attrs = weights.remove(part).unwrap_or_default();
            cx.body(file, op, (part, kind), attrs, sizes)
        };
        let too_few = |reader: &NodeReader<'_>, what: String| {
            Fault::from(reader.error(BuildProblem::Invalid(what)))
        };
        let flow = match op.kind.as_str() {
            "plutino.If" => {
                let Some(passed) = inputs.checked_sub(1) else {
                    return Err(too_few(&reader, "the first input must be the condition".into()));
                };
                let (then, otherwise) = (reader.required("then")?, reader.required("else")?);
                let then = body(self, "then", then, [passed, outputs]);
                let otherwise = body(self, "else", otherwise, [passed, outputs]);
                Flow::If { then: then?, otherwise: otherwise? }
            }
            "plutino.While" => {
                let (cond, name) = (reader.optional("cond")?, reader.required("body")?);
                let most: Option<usize> = reader.optional("max")?;
                if cond.is_none() && most.is_none() {
                    let problem = BuildProblem::MissingParameter {
                        key: "cond".into(),
                        expected: "a type that is defined, where 'max' does not say how often"
                            .into(),
                    };
                    return Err(reader.error(problem).into());
                }
                if outputs > inputs {
                    let what =
                        format!("{outputs} outputs are carried, but there are {inputs} inputs");
                    return Err(too_few(&reader, what));
                }
                let cond = cond.map(|kind| body(self, "cond", kind, [inputs, 1])).transpose();
                let body = body(self, "body", name, [inputs, outputs]);
                Flow::While { cond: cond?, body: body?, most }
            }
            _ => {
                let name = reader.required("body")?;
                let carried = reader.or("carried", 0usize)?;
                let scanned = reader.or("scanned", 1usize)?;
                let mut axes = reader.or("axis", vec![0i64])?;
                let reverse = reader.or("reverse", false)?;
                let last: Vec<i64> = reader.or("last", Vec::new())?;
                if let [axis] = axes[..] {
                    axes = std::iter::repeat_n(axis, scanned.min(inputs)).collect();
                }
                let made = outputs.checked_sub(carried);
                let whole = |n: i64| usize::try_from(n).ok().filter(|&n| Some(n) < made);
                if scanned == 0 || carried.checked_add(scanned).is_none_or(|n| n > inputs) {
                    let what = format!(
                        "{carried} inputs are carried and {scanned} are scanned (at least 1), but there are \
                         {inputs} inputs"
                    );
                    return Err(too_few(&reader, what));
                }
                let (Some(made), true) = (made, axes.len() == scanned) else {
                    let what = match made {
                        None => {
                            format!("{carried} values are carried, but there are {outputs} outputs")
                        }
                        Some(_) => {
                            format!("{scanned} inputs are scanned, but 'axis' has {}", axes.len())
                        }
                    };
                    return Err(too_few(&reader, what));
                };
                let mut alone: Vec<bool> = std::iter::repeat_n(false, made).collect();
                for &n in &last {
                    match whole(n).and_then(|n| alone.get_mut(n)) {
                        Some(alone) => *alone = true,
                        None => {
                            let expected =
                                format!("numbers below {made} of outputs that are not carried");
                            return Err(reader.bad("last", expected).into());
                        }
                    }
                }
                let body = body(self, "body", name, [inputs, outputs])?;
                Flow::Scan { body, carried, axes, reverse, last: alone }
            }
        };
        reader.finish()?;
        if let Some(part) = weights.keys().next() {
            let key = format!("{part}...");
            return Err(reader.error(BuildProblem::UnknownWeight { key }).into());
        }
        Ok(Arc::new(Control { flow, outputs }))
    }

    /// The weights of a node by the part that they are for: `then.fc.weight` is `fc.weight` of
    /// `then`.
    fn weights_by_part(
        &self,
        reader: &mut NodeReader<'_>,
        op: &Operator,
    ) -> Result<BTreeMap<String, BTreeMap<String, Attribute>>, BuildError> {
        let mut parts: BTreeMap<String, BTreeMap<String, Attribute>> = BTreeMap::new();
        for (key, attribute) in &op.attrs {
            let (part, name) = key.split_once('.').unwrap_or((key, ""));
            reader.any_weight(key)?;
            parts.entry(part.to_owned()).or_default().insert(name.to_owned(), attribute.clone());
        }
        Ok(parts)
    }

    /// The model of one type, decoded.
    fn body(
        &mut self,
        file: &str,
        op: &Operator,
        (part, kind): (&'static str, String),
        attrs: BTreeMap<String, Attribute>,
        [inputs, outputs]: [usize; 2],
    ) -> Result<Body, Fault> {
        let definitions = self.options.definitions.as_ref();
        let Some(definition) = definitions.and_then(|all| all.get(&kind)) else {
            self.undefined.push(undefined(file, op, part, &kind));
            return Err(Fault::Body);
        };
        let failed = |problem| {
            let (node, definition) = (Box::new(Site::of(file, op)), definition.file().to_owned());
            Fault::Model(DefineError { node, definition, problem }.into())
        };
        let chain = |cx: &Self| cx.chain.iter().chain([&kind]).cloned().collect::<Vec<_>>();
        if let Some(at) = self.chain.iter().position(|around| *around == kind) {
            let members = chain(self).split_off(at);
            return Err(failed(DefineProblem::Recursive(members)));
        }
        let alone = attrs.is_empty();
        let inner = match self.known.get(&kind).filter(|_| alone) {
            Some(inner) => Arc::clone(inner),
            None if alone && self.failed.contains(&kind) => return Err(Fault::Body),
            None => {
                if self.chain.len() >= MOST_LEVELS {
                    return Err(failed(DefineProblem::TooDeep(chain(self))));
                }
                let site = Site { name: format!("{}.{part}", op.name), ..Site::of(file, op) };
                let mut graph = definition.for_node(attrs, site).map_err(ModelError::from)?;
                self.options.inline(&mut graph, definition.file())?;
                self.count(&graph).map_err(&failed)?;
                self.chain.push(kind.clone());
                let undefined = std::mem::take(&mut self.undefined); // of the model around
                let decoded = {
                    let file = definition.file().to_owned();
                    Model::decode(graph, file, PackCache::default(), self)
                };
                self.chain.pop();
                self.undefined = undefined;
                let inner = match decoded {
                    Err(ModelError::Operators(list)) => {
                        self.undecoded.push(list);
                        if alone {
                            self.failed.insert(kind);
                        }
                        return Err(Fault::Body);
                    }
                    decoded => decoded?,
                };
                if alone {
                    self.known.insert(kind.clone(), Arc::clone(&inner));
                }
                inner
            }
        };
        let names = |all: &[crate::ValueInfo]| all.iter().map(|v| v.name.clone()).collect();
        if inner.inputs.len() != inputs {
            let expected = names(&inner.inputs);
            return Err(failed(DefineProblem::Inputs { expected, found: inputs }));
        }
        if inner.outputs.len() != outputs {
            let expected = names(&inner.outputs);
            return Err(failed(DefineProblem::Outputs { expected, found: outputs, open: false }));
        }
        Ok(Body { part, kind, inner })
    }

    /// Counts the operators of all bodies: one that is named by many nodes with weights of their
    /// own is there many times.
    fn count(&mut self, graph: &Graph) -> Result<(), DefineProblem> {
        self.operators = self.operators.saturating_add(graph.operator_count());
        let sizes = &self.options.load.sizes;
        sizes.check(SizeLimit::Operators, self.operators).map_err(DefineProblem::TooLarge)
    }

    pub(crate) fn options(&self) -> &'a ModelOptions {
        self.options
    }

    /// The operator that a control operator is where there is no session.
    pub(crate) fn unbound(&self, control: &Arc<Control>) -> Bound {
        Bound::new(control, &self.shared)
    }

    /// Whether a body is being decoded, and not the model itself.
    pub(crate) fn is_inside(&self) -> bool {
        !self.chain.is_empty()
    }
}

fn undefined(file: &str, op: &Operator, part: &str, kind: &str) -> BuildError {
    NodeReader::new(file, op).error(BuildProblem::BadParameter {
        key: part.to_owned(),
        expected: format!("a type that is defined ({})", UndecodedOperators::HOW_TO_DEFINE),
        found: quote(kind).to_string(),
    })
}

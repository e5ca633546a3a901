//! Operators one by one, each on the reference's inputs.

use crate::compare::outline::Outline;
use crate::compare::walk::Look;
use crate::compare::{CompareOptions, CompareReport, Reference, ValueComparison, Verdict};
use crate::load::model::Role;
use crate::{Request, Session, SessionError, SessionOptions};
use plutino_ir::{Operand, Operator, topo};
use plutino_tensor::{Tensor, Tolerance};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Passes that stay on: without them, each operator would drag all others along.
const NEEDED: [&str; 3] = ["dead", "fold", "constants"];

impl Session {
    /// Runs each operator of the model alone, without passes, on what the reference says that its
    /// inputs are, and compares its outputs. What no tensor can stand for, such as a list or a
    /// Python number, is computed of the nearest values above it. `only` restricts this to the
    /// operators that make these operands; empty: all.
    ///
    /// # Errors
    /// Where the reference lacks an input of the model, or a limit ends the run. What goes wrong
    /// with one operator is its [`Verdict::Failed`].
    pub fn isolate(
        &self,
        reference: &Reference,
        options: &CompareOptions,
        only: &[&str],
    ) -> Result<CompareReport, SessionError> {
        let inputs = reference.inputs(self.model())?;
        let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
        let given = &self.resolved().options;
        let mut alone: SessionOptions = given.clone().without_passes();
        alone.threads = Some(self.threads());
        alone.isa = Some(self.isa());
        alone.stop_after = None;
        alone.plan_cache_size = 1;
        alone
            .passes_off
            .retain(|pass| !NEEDED.contains(&pass.as_str()) || given.passes_off.contains(pass));
        let session = self.model().session(alone)?;
        let outline = Outline::new(&session, &specs)?;
        let inner = &self.model().inner;
        let order = topo::kahn(&inner.graph).map_err(|e| SessionError::internal(e.to_string()))?;
        let each = Each { session: &session, outline: &outline, reference, options };
        let mut values = Vec::new();
        for id in order {
            let Some(op) = inner.graph.operator(id) else { continue };
            let outputs = op.outputs.iter().filter_map(|&id| inner.graph.operand(id));
            let outputs: HashSet<&str> = outputs.map(|operand| operand.name.as_str()).collect();
            let computes = matches!(inner.roles.get(id.index()), Some(Some(Role::Operator(_))));
            let constant = matches!(inner.roles.get(id.index()), Some(Some(Role::Constant(_))));
            let asked = only.is_empty()
                || only.iter().any(|&name| {
                    let list = name.rsplit_once('.').map_or(name, |(list, _)| list);
                    outputs.contains(name) || outputs.contains(list)
                });
            if asked && (computes || constant) {
                values.extend(each.operator(op, outputs, &inputs)?);
            }
        }
        Ok(CompareReport { values, unseen: Vec::new() })
    }
}

/// What stays the same for all operators.
struct Each<'a> {
    session: &'a Session,
    outline: &'a Outline,
    reference: &'a Reference,
    options: &'a CompareOptions,
}

impl Each<'_> {
    fn operator(
        &self,
        op: &Operator,
        outputs: HashSet<&str>,
        inputs: &[Tensor],
    ) -> Result<Vec<ValueComparison>, SessionError> {
        let known = |name: &&str| {
            self.reference.get(name).is_some() || self.reference.get(&format!("{name}.0")).is_some()
        };
        let mut fetched: Vec<&str> = outputs.iter().copied().filter(known).collect();
        fetched.sort_unstable();
        let Some(&first) = fetched.first() else { return Ok(Vec::new()) };
        let verdict = |verdict: Verdict| vec![self.without(op, first, verdict)];
        let about = self.outline.get(first);
        if about.is_some_and(|about| about.random) {
            return Ok(verdict(Verdict::Skipped("it is drawn at random".into())));
        }
        let feeds = match self.feeds(op, inputs)? {
            Ok(feeds) => feeds,
            Err(why) => return Ok(verdict(Verdict::Skipped(why))),
        };
        let mut request = Request::new();
        for (name, tensor) in &feeds {
            request = request.feed(name, tensor.as_ref());
        }
        for name in &fetched {
            request = request.fetch(name);
        }
        let look = Look::new(self.reference, self.outline, self.options, Some(outputs));
        match self.session.watched(&request, &look) {
            Ok(_) => Ok(look.into_values()),
            Err(error) if error.is_limit() => Err(error),
            Err(error) => Ok(verdict(Verdict::Failed(error.to_string()))),
        }
    }

    /// An entry for an operator that was not run.
    fn without(&self, op: &Operator, operand: &str, verdict: Verdict) -> ValueComparison {
        ValueComparison {
            operand: operand.to_owned(),
            location: plutino_ops::Location::of(self.session.model().file(), op),
            kernel: String::new(),
            absorbed: Vec::new(),
            inputs: Vec::new(),
            spec: String::new(),
            verdict,
            error: None,
        }
    }

    /// What an operator is to be fed, by name; or why that is not possible.
    fn feeds<'t>(
        &'t self,
        op: &Operator,
        inputs: &'t [Tensor],
    ) -> Result<Result<BTreeMap<String, Cow<'t, Tensor>>, String>, SessionError> {
        let model = self.session.model();
        let graph = model.graph();
        let mut feeds = BTreeMap::new();
        let mut seen = HashSet::new();
        let mut stack = op.inputs.clone();
        if op.kind == "torch.as_strided" {
            return Ok(Err("it reads the memory of other values".into()));
        }
        while let Some(id) = stack.pop() {
            let Some(operand) = graph.operand(id).filter(|_| seen.insert(id)) else { continue };
            let Some(producer) = operand.producer.and_then(|id| graph.operator(id)) else {
                continue;
            };
            let expected = self.reference.get(&operand.name);
            let input = model.inputs().iter().position(|input| input.id == id);
            let fed = match (producer.kind.as_str(), expected) {
                ("pnnx.Input", _) => input.and_then(|at| inputs.get(at)).map(Cow::Borrowed),
                // The model's own constant, unless that is wrong: then it is to blame.
                ("pnnx.Attribute", Some(expected)) if self.differs(producer, expected) => {
                    Some(self.fit(operand, expected)?)
                }
                ("pnnx.Attribute", _) => continue,
                (_, Some(expected)) if self.feedable(&operand.name, expected) => {
                    Some(self.fit(operand, expected)?)
                }
                _ => None,
            };
            match fed {
                Some(tensor) => {
                    feeds.insert(operand.name.clone(), tensor);
                }
                None => stack.extend(producer.inputs.iter().copied()),
            }
        }
        Ok(Ok(feeds))
    }

    /// Whether a tensor can stand for a value. Where nothing is known of it, a number may be one of
    /// Python's.
    fn feedable(&self, name: &str, expected: &Tensor) -> bool {
        match self.outline.get(name) {
            Some(about) if about.dtype.is_some() => about.feedable,
            _ => !expected.shape().is_empty(),
        }
    }

    /// The reference in the dtype that the operator expects: bf16 that was saved as f32.
    fn fit<'t>(
        &self,
        operand: &Operand,
        expected: &'t Tensor,
    ) -> Result<Cow<'t, Tensor>, SessionError> {
        let inferred = self.outline.get(&operand.name).and_then(|about| about.dtype);
        let recorded = operand.ty.dtype.map(plutino_ops::dtype_of);
        match inferred.or(recorded) {
            Some(dtype) if dtype.is_float() && dtype.size_of() < expected.dtype().size_of() => {
                Ok(Cow::Owned(expected.cast(dtype)?))
            }
            _ => Ok(Cow::Borrowed(expected)),
        }
    }

    /// Whether a constant of the model is not what the reference says.
    fn differs(&self, constant: &Operator, expected: &Tensor) -> bool {
        let Some(data) = constant.attr("data") else { return false };
        let dtype = plutino_ops::dtype_of(data.dtype());
        let bytes = data.look().ok();
        let tensor = bytes
            .and_then(|bytes| Tensor::from_bytes(dtype, expected.shape().clone(), &bytes).ok());
        let same = tensor.and_then(|tensor| tensor.compare(expected, Tolerance::EXACT).ok());
        same.is_some_and(|compared| !compared.is_match())
    }
}

//! A run, value by value, as planned.

use crate::compare::measure::measure;
use crate::compare::outline::Outline;
use crate::compare::{CompareOptions, CompareReport, Reference, ValueComparison, Verdict};
use crate::plan::{Step, Work};
use crate::run::watch::{Shown, Watch};
use crate::{Request, Session, SessionError};
use plutino_tensor::{Tensor, TensorError};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

impl Session {
    /// Runs the model on the reference's inputs, as it is planned, and compares every value that
    /// exists in the plan. Operators that draw random numbers are left out, and the reference's
    /// taken for theirs.
    ///
    /// # Errors
    /// As [`Session::run`]; where the reference lacks an input of the model.
    pub fn compare(
        &self,
        reference: &Reference,
        options: &CompareOptions,
    ) -> Result<CompareReport, SessionError> {
        let inputs = reference.inputs(self.model())?;
        let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
        let outline = Outline::new(self, &specs)?;
        let fed = self.model().inputs().iter().map(|input| input.name.as_str());
        let mut request = Request::new();
        for (name, tensor) in fed.zip(&inputs) {
            request = request.feed(name, tensor);
        }
        let mut drawn: Vec<&str> = outline.random().collect();
        drawn.sort_unstable();
        for name in drawn {
            if let Some(tensor) = reference.get(name) {
                request = request.feed(name, tensor);
            }
        }
        let look = Look::new(reference, &outline, options, None);
        self.watched(&request, &look)?;
        let values = look.into_values();
        let unseen = unseen(self, reference, &values);
        Ok(CompareReport { values, unseen })
    }

    /// Every value of a run as a reference for another session: those that exist in the plan.
    /// Without passes ([`SessionOptions::without_passes`](crate::SessionOptions::without_passes)),
    /// these are all operands of the file.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn values(&self, inputs: &[Tensor]) -> Result<Reference, SessionError> {
        let names = self.model().inputs().iter().map(|input| input.name.as_str());
        let mut request = Request::new();
        for (name, tensor) in names.clone().zip(inputs) {
            request = request.feed(name, tensor);
        }
        let keep = Keep::default();
        self.watched(&request, &keep)?;
        let mut arrays = keep.0.into_inner();
        arrays.extend(names.map(str::to_owned).zip(inputs.iter().cloned()));
        Ok(Reference { arrays })
    }
}

/// Names of operands that the reference knows, and that the model makes, and that were not seen.
fn unseen(session: &Session, reference: &Reference, values: &[ValueComparison]) -> Vec<String> {
    let seen: HashSet<&str> = values.iter().map(|value| value.operand.as_str()).collect();
    let graph = session.model().graph();
    let names = graph.operators().filter(|(_, op)| op.kind != "pnnx.Input");
    let names = names.flat_map(|(_, op)| &op.outputs).filter_map(|&id| graph.operand(id));
    let names = names.map(|operand| operand.name.as_str());
    names
        .filter(|name| !seen.contains(name) && reference.get(name).is_some())
        .map(str::to_owned)
        .collect()
}

/// Keeps all values.
#[derive(Default)]
struct Keep(RefCell<HashMap<String, Tensor>>);

impl Watch for Keep {
    fn wants(&self, name: &str) -> bool {
        !self.0.borrow().contains_key(name)
    }

    fn see(&self, _: Shown, name: &str, value: Tensor) -> Result<(), SessionError> {
        self.0.borrow_mut().entry(name.to_owned()).or_insert(value);
        Ok(())
    }

    fn done(&self, _: &Step) {}
}

/// Compares values while they are shown.
pub(crate) struct Look<'a> {
    reference: &'a Reference,
    outline: &'a Outline,
    options: &'a CompareOptions,
    /// The operands to look at; none: all, with what they inherit.
    only: Option<HashSet<&'a str>>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    values: Vec<ValueComparison>,
    /// Where each value is, by name.
    at: HashMap<String, usize>,
    /// Values of the step that is under way.
    open: Vec<usize>,
}

impl<'a> Look<'a> {
    pub(crate) fn new(
        reference: &'a Reference,
        outline: &'a Outline,
        options: &'a CompareOptions,
        only: Option<HashSet<&'a str>>,
    ) -> Self {
        Self { reference, outline, options, only, state: RefCell::default() }
    }

    /// What was compared, in the order of the run.
    pub(crate) fn into_values(self) -> Vec<ValueComparison> {
        self.state.into_inner().values
    }

    fn concerns(&self, name: &str) -> bool {
        let operand = |only: &HashSet<&str>| {
            only.contains(name) || name.rsplit_once('.').is_some_and(|(n, _)| only.contains(n))
        };
        self.only.as_ref().is_none_or(operand) && self.reference.get(name).is_some()
    }

    fn compare(&self, name: &str, value: &Tensor) -> Option<ValueComparison> {
        let expected = self.reference.get(name)?;
        let about = self.outline.get(name);
        let tolerance = self.outline.tolerance(name, self.only.is_some(), self.options);
        let (verdict, error) = match measure(value, expected, tolerance) {
            _ if about.is_some_and(|about| about.random) => {
                (Verdict::Skipped("it is drawn at random".into()), None)
            }
            Ok(error) if error.mismatches == 0 => (Verdict::Match, Some(error)),
            Ok(error) => (Verdict::Differs, Some(error)),
            Err(TensorError::DType { .. } | TensorError::Shape { .. }) => {
                (Verdict::Spec(format!("expected {}", expected.spec())), None)
            }
            Err(other) => (Verdict::Skipped(other.to_string()), None),
        };
        let location = about.and_then(|about| about.location.as_deref().cloned());
        Some(ValueComparison {
            operand: name.to_owned(),
            location: location.unwrap_or_default(),
            kernel: String::new(),
            absorbed: Vec::new(),
            inputs: Vec::new(),
            spec: value.spec().to_string(),
            verdict,
            error,
        })
    }
}

impl Watch for Look<'_> {
    fn wants(&self, name: &str) -> bool {
        self.concerns(name) && !self.state.borrow().at.contains_key(name)
    }

    fn see(&self, how: Shown, name: &str, value: Tensor) -> Result<(), SessionError> {
        if !self.concerns(name) || self.outline.get(name).is_some_and(|a| a.location.is_none()) {
            return Ok(()); // inputs are the reference's
        }
        let Some(compared) = self.compare(name, &value) else { return Ok(()) };
        let mut state = self.state.borrow_mut();
        let State { values, at, open } = &mut *state;
        // A second value of the same name is a copy in another layout: news where it is wrong.
        let copy = at.get(name).and_then(|&first| values.get(first));
        if copy.is_some_and(|first| first.verdict.is_wrong() || !compared.verdict.is_wrong()) {
            return Ok(());
        }
        if how == Shown::Made {
            open.push(values.len());
        }
        at.insert(name.to_owned(), values.len());
        values.push(compared);
        Ok(())
    }

    fn done(&self, step: &Step) {
        let mut state = self.state.borrow_mut();
        let State { values, open, .. } = &mut *state;
        for at in open.drain(..) {
            let Some(value) = values.get_mut(at) else { continue };
            value.location = (*step.location).clone();
            value.kernel = step.kernel_name().to_owned();
            value.absorbed.clone_from(&step.absorbed);
            value.inputs = match &step.work {
                Work::Late(late) => late.input_names.clone(),
                _ => step.inputs.iter().map(|input| input.described()).collect(),
            };
        }
    }
}

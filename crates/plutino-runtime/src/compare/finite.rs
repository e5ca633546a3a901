//! Where numbers stop being finite.

use crate::plan::{Step, Work};
use crate::run::watch::{Shown, Watch};
use crate::{Request, Session, SessionError};
use plutino_ops::Location;
use plutino_tensor::{Complex, DType, Tensor};
use std::cell::RefCell;
use std::collections::HashMap;

/// What is not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seed {
    /// NaN, of inputs without one.
    Nan,
    /// Infinity, of finite inputs.
    Infinity,
}

/// A step that makes NaN or infinity of inputs that have none.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Origin {
    /// The operator.
    pub location: Location,
    /// Operators that were fused with it, by name.
    pub absorbed: Vec<String>,
    /// The algorithm.
    pub kernel: String,
    /// The operand.
    pub operand: String,
    /// Its dtype and shape.
    pub spec: String,
    /// What it makes.
    pub seed: Seed,
    /// How many such elements there are.
    pub count: usize,
    /// The first of them.
    pub index: Vec<usize>,
    /// What it was computed from: names, specs, and the ranges of finite elements.
    pub inputs: Vec<String>,
}

/// Where a run stops being finite.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct FiniteReport {
    /// Inputs and constants that are not finite from the start, by name.
    pub given: Vec<String>,
    /// Steps that make NaN or infinity of inputs without it, in the order of the run. The first
    /// NaN is what most look for; masks are made of infinities on purpose.
    pub origins: Vec<Origin>,
    /// Outputs of the model that are not finite, by name.
    pub outputs: Vec<String>,
}

impl FiniteReport {
    /// Whether all is well: no NaN comes up in the run, and all outputs are finite.
    pub fn is_fine(&self) -> bool {
        self.outputs.is_empty() && self.origins.iter().all(|origin| origin.seed != Seed::Nan)
    }
}

impl Session {
    /// Runs the model as it is planned, and looks at every value for NaN and infinity.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn check_finite(&self, inputs: &[Tensor]) -> Result<FiniteReport, SessionError> {
        let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
        self.plan(&specs)?; // with the errors of positional inputs
        let mut request = Request::new();
        for (info, tensor) in self.model().inputs().iter().zip(inputs) {
            request = request.feed(&info.name, tensor);
        }
        self.check_finite_of(&request)
    }

    /// [`Session::check_finite`] of what a request computes.
    ///
    /// # Errors
    /// As [`Session::run_with`].
    pub fn check_finite_of(&self, request: &Request<'_>) -> Result<FiniteReport, SessionError> {
        let plan = self.plan_request(request)?;
        let look = Look::default();
        self.watched(request, &look)?;
        let State { mut report, found, .. } = look.0.into_inner();
        let outputs = plan.outputs().map(|(name, _)| name);
        for output in outputs {
            let mut names: Vec<&String> = found
                .iter()
                .filter(|(name, found)| is_leaf(name, output) && !found.finite())
                .map(|(name, _)| name)
                .collect();
            names.sort_unstable();
            report.outputs.extend(names.into_iter().cloned());
        }
        report.outputs.dedup();
        Ok(report)
    }
}

/// Whether this names a value, or a member of it.
fn is_leaf(name: &str, value: &str) -> bool {
    name == value || name.rsplit_once('.').is_some_and(|(list, _)| list == value)
}

/// What is in a tensor.
#[derive(Debug, Clone, Default)]
struct Found {
    nan: usize,
    infinite: usize,
    first_nan: usize,
    first_infinite: usize,
    range: Option<(f64, f64)>,
}

impl Found {
    fn finite(&self) -> bool {
        self.nan + self.infinite == 0
    }

    fn of(tensor: &Tensor) -> Result<Self, SessionError> {
        match tensor.dtype() {
            dtype if dtype.is_float() => {
                let numbers = tensor.cast(DType::F64)?;
                Ok(Self::numbers(numbers.as_slice::<f64>()?.iter().copied()))
            }
            dtype if dtype.is_complex() => {
                let parts = tensor.cast(DType::C128)?;
                let parts = parts.as_slice::<Complex<f64>>()?.iter();
                // NaN where a part is, else infinite where a part is.
                Ok(Self::numbers(
                    parts.map(|z| if z.is_nan() { f64::NAN } else { z.re.hypot(z.im) }),
                ))
            }
            _ => Ok(Self::default()),
        }
    }

    fn numbers(numbers: impl Iterator<Item = f64>) -> Self {
        let mut found = Self::default();
        for (i, x) in numbers.enumerate() {
            if x.is_nan() {
                if found.nan == 0 {
                    found.first_nan = i;
                }
                found.nan += 1;
            } else if x.is_infinite() {
                if found.infinite == 0 {
                    found.first_infinite = i;
                }
                found.infinite += 1;
            } else {
                let (low, high) = found.range.unwrap_or((x, x));
                found.range = Some((low.min(x), high.max(x)));
            }
        }
        found
    }

    fn described(&self) -> String {
        let mut text = match self.range {
            Some((low, high)) => format!("{low:.4e} to {high:.4e}"),
            None => String::new(),
        };
        for (count, what) in [(self.nan, "NaN"), (self.infinite, "infinite")] {
            if count > 0 {
                let comma = if text.is_empty() { "" } else { ", " };
                text += &format!("{comma}{count} {what}");
            }
        }
        text
    }
}

#[derive(Default)]
struct State {
    report: FiniteReport,
    found: HashMap<String, Found>,
    /// What the step under way made: name, spec, shape, contents.
    made: Vec<(String, String, Vec<usize>, Found)>,
}

#[derive(Default)]
struct Look(RefCell<State>);

impl Watch for Look {
    fn wants(&self, name: &str) -> bool {
        !self.0.borrow().found.contains_key(name)
    }

    fn see(&self, how: Shown, name: &str, value: Tensor) -> Result<(), SessionError> {
        let found = Found::of(&value)?;
        let mut state = self.0.borrow_mut();
        if how == Shown::Made {
            let shape = value.shape().to_vec();
            state.made.push((name.to_owned(), value.spec().to_string(), shape, found.clone()));
        } else if how == Shown::Given && !found.finite() {
            state.report.given.push(name.to_owned());
        }
        state.found.insert(name.to_owned(), found);
        Ok(())
    }

    fn done(&self, step: &Step) {
        let mut state = self.0.borrow_mut();
        let State { report, found, made } = &mut *state;
        let inputs: Vec<(&str, &Found)> = match &step.work {
            // By value, of which a list has several leaves.
            Work::Late(late) => {
                let mut read: Vec<_> = found
                    .iter()
                    .filter(|(name, _)| late.input_names.iter().any(|value| is_leaf(name, value)))
                    .map(|(name, found)| (name.as_str(), found))
                    .collect();
                read.sort_unstable_by_key(|(name, _)| *name);
                read
            }
            _ => {
                let names = step.inputs.iter().map(|input| &*input.name);
                names.filter_map(|name| Some((name, found.get(name)?))).collect()
            }
        };
        let had_nan = inputs.iter().any(|(_, found)| found.nan > 0);
        let had_any = inputs.iter().any(|(_, found)| !found.finite());
        for (operand, spec, shape, made) in made.drain(..) {
            let (seed, count, first) = match (made.nan > 0 && !had_nan, made.infinite > 0) {
                (true, _) => (Seed::Nan, made.nan, made.first_nan),
                (false, true) if !had_any => (Seed::Infinity, made.infinite, made.first_infinite),
                _ => continue,
            };
            report.origins.push(Origin {
                location: (*step.location).clone(),
                absorbed: step.absorbed.clone(),
                kernel: step.kernel_name().to_owned(),
                operand,
                spec,
                seed,
                count,
                index: unravel(first, &shape),
                inputs: inputs
                    .iter()
                    .map(|(name, found)| format!("{name}: {}", found.described()))
                    .collect(),
            });
        }
    }
}

fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &size) in index.iter_mut().zip(shape).rev() {
        *i = at % size.max(1);
        at /= size.max(1);
    }
    index
}

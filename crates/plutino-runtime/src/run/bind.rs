//! From names and tensors to values and specs.

use crate::SessionError;
use crate::load::model::{Inner, ValueInfo};
use crate::plan::net::{ValueId, Wanted};
use crate::run::request::{Fed, Request};
use plutino_ir::{Dim, OperandId};
use plutino_ops::dtype_of;
use plutino_tensor::TensorSpec;
use smallvec::SmallVec;
use std::collections::HashMap;

/// What a plan is made for: which values are fed, with which specs, and which are fetched.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binding {
    pub(crate) feeds: Vec<(ValueId, TensorSpec)>,
    pub(crate) wanted: Wanted,
    /// What is carried from run to run and grows: fed value, fetched value, dimension. Where the
    /// plan can, it appends to it where it lies.
    pub(crate) growing: Vec<Growing>,
}

/// A value that is carried from each run to the next, and grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growing {
    /// What is fed.
    pub(crate) input: ValueId,
    /// What the next run is fed with.
    pub(crate) output: ValueId,
    /// The dimension that grows.
    pub(crate) dim: usize,
}

impl Binding {
    /// The model's inputs, in order.
    ///
    /// # Errors
    /// Where number, dtypes or symbols do not agree with the model.
    pub(crate) fn positional(
        model: &Inner,
        specs: impl ExactSizeIterator<Item = TensorSpec>,
    ) -> Result<Self, SessionError> {
        if specs.len() != model.inputs.len() {
            let names: Vec<_> = model.inputs.iter().map(|i| i.name.as_str()).collect();
            return Err(SessionError::InputCount {
                expected: model.inputs.len(),
                names: names.join(", "),
                found: specs.len(),
            });
        }
        let feeds = model.inputs.iter().map(|i| i.id.into()).zip(specs).collect();
        Self { feeds, wanted: Wanted::Outputs, growing: Vec::new() }.checked(model)
    }

    /// Operands, with their names.
    ///
    /// # Errors
    /// Where one is fed twice, or specs do not agree with the model.
    pub(crate) fn fed<'a>(
        model: &Inner,
        feeds: impl Iterator<Item = (ValueId, &'a str, TensorSpec)> + Clone,
        wanted: Wanted,
    ) -> Result<Self, SessionError> {
        let mut names: SmallVec<[(ValueId, &str); 16]> =
            feeds.clone().map(|(id, name, _)| (id, name)).collect();
        names.sort_by_key(|(id, _)| *id);
        if let Some(twice) = names.windows(2).find(|w| w[0].0 == w[1].0) {
            return Err(SessionError::FedTwice { name: twice[1].1.into() });
        }
        let feeds = feeds.map(|(id, _, spec)| (id, spec)).collect();
        Self { feeds, wanted, growing: Vec::new() }.checked(model)
    }

    /// Whether a run with these feeds and fetches can use a plan for this binding.
    pub(crate) fn matches<'a>(
        &self,
        feeds: impl ExactSizeIterator<Item = (ValueId, &'a Fed<'a>)>,
        wanted: &Wanted,
        growing: &[Growing],
    ) -> bool {
        self.wanted == *wanted
            && self.growing == growing
            && self.feeds.len() == feeds.len()
            && self.feeds.iter().zip(feeds).all(|((id, spec), (fed, data))| {
                *id == fed && spec.dtype == data.dtype() && spec.shape == *data.shape()
            })
    }

    /// Whether the other one differs from this in sizes of dimensions alone.
    pub(crate) fn is_related(&self, other: &Self) -> bool {
        let alike = |((id, a), (other, b)): (&(ValueId, TensorSpec), &(ValueId, TensorSpec))| {
            id == other && a.dtype == b.dtype && a.shape.rank() == b.shape.rank()
        };
        self.feeds.len() == other.feeds.len()
            && self.growing == other.growing
            && self.wanted == other.wanted
            && self.feeds.iter().zip(&other.feeds).all(alike)
    }

    /// Checks dtypes and symbols of the model's inputs.
    fn checked(self, model: &Inner) -> Result<Self, SessionError> {
        let mut symbols: HashMap<&str, (usize, &ValueInfo)> = HashMap::new();
        let mut inputs: SmallVec<[(ValueId, &ValueInfo); 16]> =
            model.inputs.iter().map(|i| (i.id.into(), i)).collect();
        inputs.sort_unstable_by_key(|(id, _)| *id);
        for (id, spec) in &self.feeds {
            let Ok(at) = inputs.binary_search_by_key(id, |(id, _)| *id) else { continue };
            let input = inputs[at].1;
            let (recorded, found) = (input.recorded.dtype.map(dtype_of), spec.dtype);
            if let Some(expected) = recorded.filter(|expected| *expected != found) {
                let name = input.name.clone();
                return Err(SessionError::InputDType { name, expected, found });
            }
            for (dim, &size) in input.recorded.shape.iter().flatten().zip(spec.shape.iter()) {
                let Dim::Symbol(symbol) = dim else { continue };
                match symbols.get(symbol.as_str()) {
                    Some(&(first, at)) if first != size => {
                        return Err(SessionError::Symbol {
                            symbol: symbol.clone(),
                            first,
                            first_input: at.name.clone(),
                            second: size,
                            second_input: input.name.clone(),
                        });
                    }
                    Some(_) => {}
                    None => {
                        symbols.insert(symbol, (size, input));
                    }
                }
            }
        }
        Ok(self)
    }
}

/// What a request fetches.
///
/// # Errors
/// Where there is no such operand.
pub(crate) fn wanted(model: &Inner, request: &Request<'_>) -> Result<Wanted, SessionError> {
    if request.all {
        return Ok(Wanted::All);
    }
    if request.fetches.is_empty() {
        return Ok(Wanted::Outputs);
    }
    let fetches = request.fetches.iter().map(|name| operand(model, name));
    Ok(Wanted::These(fetches.collect::<Result<_, _>>()?))
}

/// The operand of this name, or the only one that the operator of this name makes, or an input
/// (`in0`) or output (`out0`) of the model by position.
pub(crate) fn operand(model: &Inner, name: &str) -> Result<ValueId, SessionError> {
    let graph = &model.graph;
    if let Some(id) = graph.operand_by_name(name) {
        return Ok(id.into());
    }
    let operator = graph.operator_by_name(name).and_then(|id| graph.operator(id));
    let made = operator.map_or(&[][..], |operator| &operator.outputs);
    if let [only] = *made {
        return Ok(only.into());
    }
    if let Some(id) = by_position(model, name) {
        return Ok(id.into());
    }
    let made: Vec<String> =
        made.iter().filter_map(|&id| graph.operand(id)).map(|o| o.name.clone()).collect();
    let ends = [&model.inputs, &model.outputs].map(|all| match made[..] {
        [] => all.iter().map(|value| value.name.clone()).collect(),
        _ => Vec::new(),
    });
    let ([inputs, outputs], name) = (ends, name.into());
    Err(SessionError::NoSuchOperand { name, made, inputs, outputs })
}

fn by_position(model: &Inner, name: &str) -> Option<OperandId> {
    let at = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
    let value = match at("in") {
        Some(at) => model.inputs.get(at),
        None => model.outputs.get(at("out")?),
    };
    value.map(|value| value.id)
}

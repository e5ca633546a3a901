//! Two elementwise operators, one after the other, as one: what lies between them is never written.

use super::{Elementwise, Formula, Lowering, Term};
use crate::{Operator, ShapeError};
use std::sync::Arc;

/// What an elementwise operator computes, to be joined with others: see
/// [`Operator::elementwise`].
#[derive(Debug, Clone)]
pub struct Elementary(pub(crate) Arc<dyn Formula>);

/// Functions that are computed in one pass over memory, at most.
const MOST_FUNCTIONS: usize = 32;

/// Characters of a kernel's name, at most.
const MOST_NAMED: usize = 48;

impl Elementary {
    /// `next` of what this makes of its `inputs` inputs, in the place of those inputs of `next`
    /// that are named by `places`. The inputs of the whole are its own, then the others of `next`.
    pub fn then(&self, inputs: usize, next: &Self, places: Vec<usize>) -> Box<dyn Operator> {
        let name: String = format!("{}>{}", self.0.name(), next.0.name());
        let name = name.chars().take(MOST_NAMED).collect();
        let (first, next) = (Arc::clone(&self.0), Arc::clone(&next.0));
        Elementwise::boxed(Chain { name, first, inputs, next, places })
    }
}

#[derive(Debug)]
struct Chain {
    name: String,
    first: Arc<dyn Formula>,
    inputs: usize,
    next: Arc<dyn Formula>,
    places: Vec<usize>,
}

/// An input of a formula within another one.
#[derive(Debug, Clone)]
pub(super) enum Slot {
    /// An input of the whole.
    Input(usize),
    /// What another formula made.
    Made(Term),
}

impl Formula for Chain {
    fn name(&self) -> &str {
        &self.name
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let all = f.count();
        let own = (0..self.inputs).map(Slot::Input).collect(); // bounded: inputs
        let made = f.within(own, |f| self.first.lower(f))?;
        let mut others = self.inputs..all;
        let count = all.saturating_sub(self.inputs).saturating_add(self.places.len());
        let slot = |place: usize| match self.places.contains(&place) {
            true => Ok(Slot::Made(made.clone())),
            false => others.next().map(Slot::Input).ok_or_else(missing),
        };
        let slots = (0..count).map(slot).collect::<Result<_, _>>()?; // bounded: inputs
        let result = f.within(slots, |f| self.next.lower(f))?;
        match f.functions() <= MOST_FUNCTIONS {
            true => Ok(result),
            false => Err(ShapeError::Invalid("too many functions for one operator".into())),
        }
    }
}

fn missing() -> ShapeError {
    ShapeError::Invalid("internal: an input of a chain is missing".into())
}

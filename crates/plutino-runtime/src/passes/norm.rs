//! Layer norm and RMS norm that a model writes out become one step.
//!
//! ```text
//! c = x - mean(x), or x     y = c / sqrt(mean(c^2) + eps)     (y weight) + bias
//! ```
//! Means are those of the last dimension. Products and sums may stand in any order, in one
//! expression or in several.

use super::PassCx;
use super::formula::{Term, formula};
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::{Net, ValueId};
use plutino_ir::expr::{BinaryFn, UnaryFn};
use plutino_ops::{NormPattern, Role};
use plutino_tensor::DType;
use std::collections::BTreeSet;

/// Replaces each norm around a mean of squares.
pub(super) fn norm(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    super::apply_at_each(net, cx, |net, _, at| find(net, at).map(Ok))
}

/// The norm whose mean of squares is the node at `at`.
fn find(net: &Net, at: usize) -> Option<Patch> {
    let (variance, squares) = (net.only_output(at)?, rows_meant(net, at)?);
    let mut search = Search { net, nodes: BTreeSet::from([at]), variance };
    let centred = search.square(&Term::Value(squares))?;
    let spec = net.computed(centred.x).filter(|spec| spec.dtype == DType::F32)?;
    let width = *spec.shape.last()?;
    // From the mean of squares forward. Its root may have a step of its own.
    let mut at = net.only_reader(variance)?;
    let mut affine = search.affine(&formula(net, at)?, centred);
    if affine.is_none() {
        search.nodes.insert(at);
        at = net.only_reader(net.only_output(at)?)?;
        affine = search.affine(&formula(net, at)?, centred);
    }
    let mut affine = affine?;
    search.nodes.insert(at);
    // What it is multiplied with and what is added may have steps of their own as well.
    while affine.bias.is_none()
        && let Some(result) = net.only_output(at)
        && let Some(next) = net.only_reader(result)
        && let Some(more) = formula(net, next).and_then(|t| affine.with(&t, result))
        && more.rows().all(|value| is_row(net, value, width))
    {
        (affine, at) = (more, next);
        search.nodes.insert(at);
    }
    if !affine.rows().all(|value| is_row(net, value, width)) {
        return None;
    }
    let pattern = NormPattern {
        width,
        eps: affine.eps,
        centred: centred.mean.is_some(),
        weighted: affine.weight.is_some(),
        biased: affine.bias.is_some(),
    };
    let inputs = std::iter::once(centred.x).chain(affine.rows()).collect();
    let what = if pattern.centred { "a layer norm" } else { "an RMS norm" };
    search.nodes.remove(&at);
    let operator = pattern.into_operator();
    let patch = Patch::replace(at, operator, inputs, vec![net.only_output(at)?]);
    Some(patch.without(search.nodes).note(&net.nodes[at].location.name, what))
}

/// The value that the node at `at` takes the means of the rows of.
fn rows_meant(net: &Net, at: usize) -> Option<ValueId> {
    let Role::MeanOfRows(input) = net.role(at)? else { return None };
    net.nodes[at].inputs.get(input).copied()
}

/// Whether a value is a number for each element of a row.
fn is_row(net: &Net, value: ValueId, width: usize) -> bool {
    let spec = net.types.get(value).and_then(|v| v.as_tensor()).filter(|t| !t.python);
    spec.is_some_and(|t| t.shape().dims() == [width] && t.dtype() == DType::F32)
}

/// What is normalised: x less its mean, or x.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Centred {
    x: ValueId,
    mean: Option<ValueId>,
}

/// What the quotient is multiplied with, and what is added.
#[derive(Debug, Clone, Copy)]
struct Affine {
    eps: f64,
    weight: Option<ValueId>,
    bias: Option<ValueId>,
}

impl Affine {
    /// The values with a number for each element of a row.
    fn rows(&self) -> impl Iterator<Item = ValueId> + use<> {
        self.weight.into_iter().chain(self.bias)
    }

    /// With one step more, a formula of the result so far.
    fn with(self, term: &Term, result: ValueId) -> Option<Self> {
        let Term::Binary(function, a, b) = term else { return None };
        let other = match (&**a, &**b) {
            (Term::Value(a), Term::Value(b)) if *a == result => *b,
            (Term::Value(a), Term::Value(b)) if *b == result => *a,
            (Term::Binary(..), Term::Value(b)) => {
                let inner = self.with(a, result)?;
                return inner.step(*function, *b);
            }
            _ => return None,
        };
        self.step(*function, other)
    }

    /// Multiplied with, or added to, one value more.
    fn step(self, function: BinaryFn, value: ValueId) -> Option<Self> {
        match function {
            BinaryFn::Mul if self.weight.is_none() && self.bias.is_none() => {
                Some(Self { weight: Some(value), ..self })
            }
            BinaryFn::Add if self.bias.is_none() => Some(Self { bias: Some(value), ..self }),
            _ => None,
        }
    }
}

/// Looks for the parts of a norm.
struct Search<'a> {
    net: &'a Net,
    /// Nodes that it is made of.
    nodes: BTreeSet<usize>,
    /// The mean of squares.
    variance: ValueId,
}

impl Search<'_> {
    /// The formula that a value is the result of, and the node of that.
    fn open(&self, value: ValueId) -> Option<(Term, usize)> {
        let at = self.net.producer(value)?;
        Some((formula(self.net, at)?, at))
    }

    /// What a term is the square of.
    fn square(&mut self, term: &Term) -> Option<Centred> {
        match term {
            Term::Value(value) => {
                let (term, at) = self.open(*value)?;
                let found = match term {
                    Term::Value(_) => None,
                    term => self.square(&term),
                };
                self.nodes.insert(at);
                found
            }
            Term::Unary(UnaryFn::Square, x) => self.centred(x),
            Term::Binary(BinaryFn::Pow, x, two) if **two == Term::Number(2.0) => self.centred(x),
            Term::Binary(BinaryFn::Mul, a, b) if a == b => self.centred(a),
            _ => None,
        }
    }

    /// A term less its mean, or any value.
    fn centred(&mut self, term: &Term) -> Option<Centred> {
        match term {
            Term::Value(value) => {
                if let Some((term @ Term::Binary(BinaryFn::Sub, ..), at)) = self.open(*value)
                    && let Some(found) = self.centred(&term)
                {
                    self.nodes.insert(at);
                    return Some(found);
                }
                Some(Centred { x: *value, mean: None })
            }
            Term::Binary(BinaryFn::Sub, x, mean) => {
                let (Term::Value(x), Term::Value(mean)) = (&**x, &**mean) else { return None };
                let at = self.net.producer(*mean)?;
                if rows_meant(self.net, at)? != *x {
                    return None;
                }
                self.nodes.insert(at);
                Some(Centred { x: *x, mean: Some(*mean) })
            }
            _ => None,
        }
    }

    /// The quotient, or what it is multiplied with and added to within the same formula.
    fn affine(&mut self, term: &Term, centred: Centred) -> Option<Affine> {
        if let Some(eps) = self.quotient(term, centred) {
            return Some(Affine { eps, weight: None, bias: None });
        }
        let Term::Binary(function @ (BinaryFn::Mul | BinaryFn::Add), a, b) = term else {
            return None;
        };
        let (inner, other) = match (&**a, &**b) {
            (inner, Term::Value(other)) if !matches!(inner, Term::Value(_)) => (inner, *other),
            (Term::Value(other), inner) => (inner, *other),
            _ => return None,
        };
        self.affine(inner, centred)?.step(*function, other)
    }

    /// The number below the root that `centred` is divided by.
    fn quotient(&mut self, term: &Term, centred: Centred) -> Option<f64> {
        let Term::Binary(function, a, b) = term else { return None };
        let by = |this: &mut Self, numerator: &Term, root: &Term, power: f64| {
            let same = this.centred(numerator)? == centred;
            this.root(root, power).filter(|_| same)
        };
        match function {
            BinaryFn::Div => by(self, a, b, 0.5),
            BinaryFn::Mul => by(self, a, b, -0.5).or_else(|| by(self, b, a, -0.5)),
            _ => None,
        }
    }

    /// What is added to the mean of squares, if a term is this power of the sum.
    fn root(&mut self, term: &Term, power: f64) -> Option<f64> {
        let sum = match (term, power) {
            (Term::Value(value), _) if *value != self.variance => {
                let (term, at) = self.open(*value)?;
                if matches!(term, Term::Value(_)) || !self.nodes.contains(&at) {
                    return None; // the only reader of the mean of squares has been seen
                }
                return self.root(&term, power);
            }
            (Term::Unary(UnaryFn::Sqrt, sum), 0.5) => sum,
            (Term::Unary(UnaryFn::Rsqrt, sum), -0.5) => sum,
            (Term::Unary(UnaryFn::Reciprocal, root), -0.5) => return self.root(root, 0.5),
            (Term::Binary(BinaryFn::Pow, sum, by), _) if **by == Term::Number(power) => sum,
            (Term::Binary(BinaryFn::Div, one, root), -0.5) if **one == Term::Number(1.0) => {
                return self.root(root, 0.5);
            }
            _ => return None,
        };
        let Term::Binary(BinaryFn::Add, a, b) = &**sum else { return None };
        match (&**a, &**b) {
            (Term::Value(v), &Term::Number(eps)) | (&Term::Number(eps), Term::Value(v))
                if *v == self.variance && eps > 0.0 =>
            {
                Some(eps)
            }
            _ => None,
        }
    }
}

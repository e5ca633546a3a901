//! What nodes compute of values, as formulas, for passes that look for what a model writes out.

use crate::plan::net::{Net, ValueId};
use plutino_ir::expr::{BinaryFn, Expr, UnaryFn};
use plutino_ops::Role;

/// A formula of values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    Value(ValueId),
    Number(f64),
    Unary(UnaryFn, Box<Term>),
    Binary(BinaryFn, Box<Term>, Box<Term>),
}

/// What the node at `at` computes of its inputs.
pub(super) fn formula(net: &Net, at: usize) -> Option<Term> {
    let inputs = &net.nodes.get(at)?.inputs;
    let input = |i: usize| inputs.get(i).map(|&value| Box::new(Term::Value(value)));
    match net.role(at)? {
        Role::Times(a, b) => Some(Term::Binary(BinaryFn::Mul, input(a)?, input(b)?)),
        Role::Sum(terms) => terms
            .iter()
            .map(|&(at, by)| times(input(at)?, by))
            .reduce(|a, b| Some(Term::Binary(BinaryFn::Add, Box::new(a?), Box::new(b?))))?,
        Role::Formula(expr) => term(&expr, inputs),
        _ => None,
    }
}

/// A value times a number.
fn times(value: Box<Term>, by: f64) -> Option<Term> {
    Some(match by {
        1.0 => *value,
        by => Term::Binary(BinaryFn::Mul, value, Box::new(Term::Number(by))),
    })
}

/// An expression of these inputs, if it is made of functions and numbers. The depth of the
/// recursion is bounded by [`plutino_ir::expr::MAX_DEPTH`].
fn term(expr: &Expr, inputs: &[ValueId]) -> Option<Term> {
    Some(match expr {
        Expr::Input(at) => Term::Value(*inputs.get(*at)?),
        Expr::Int(i) => Term::Number(*i as f64),
        Expr::Float(x) => Term::Number(*x),
        Expr::Unary(function, x) => Term::Unary(*function, Box::new(term(x, inputs)?)),
        Expr::Binary(function, a, b) => {
            Term::Binary(*function, Box::new(term(a, inputs)?), Box::new(term(b, inputs)?))
        }
        _ => return None,
    })
}

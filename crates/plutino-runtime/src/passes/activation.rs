//! Activation functions that a model writes out become the activation, which then fuses into the
//! layer in front of it.
//!
//! ```text
//! x sigmoid(x)   x tanh(softplus(x))   x (1 + erf(x / sqrt 2)) / 2   x relu6(x + 3) / 6   ...
//! ```
//! Arithmetic is compared as polynomials of x and of functions of such polynomials: products and
//! sums may stand in any order, multiplied out or not, in one expression or in several.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::plan::net::{Net, ValueId};
use plutino_ir::Graph;
use plutino_ir::expr::{BinaryFn, Expr, UnaryFn};
use plutino_kernels::Activation;
use plutino_ops::{Operator, Role, registry};
use plutino_tensor::DType;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Steps that one function may be written in.
const MOST_STEPS: usize = 8;

/// What two numbers may differ by, relatively: products of two with seven digits each, as files
/// have them.
const DIGITS: f64 = 1e-6;

/// Replaces formulas of one value that are activation functions of it.
pub(super) fn activation(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let known = known();
    super::apply_at_each(net, cx, |net, _, at| find(net, at, &known).map(Ok))
}

/// The activation function that ends with the node at `at`.
fn find(net: &Net, at: usize, known: &[(&str, Sum)]) -> Option<Patch> {
    if !matches!(net.role(at)?, Role::Formula(_) | Role::Times(..) | Role::Sum(_)) {
        return None;
    }
    let output = net.only_output(at)?;
    net.computed(output).filter(|spec| spec.dtype == DType::F32)?;
    let (x, kind, mut steps) = arguments(net, at).into_iter().find_map(|x| {
        let mut search = Search { net, x, output, steps: BTreeSet::new() };
        let formula = search.value(output)?;
        let (kind, _) = known.iter().find(|(_, known)| known.is(&formula))?;
        Some((x, kind, search.steps))
    })?;
    let operator = operator(kind)?;
    steps.remove(&at);
    let patch = Patch::replace(at, operator, vec![x], vec![output]).without(steps);
    Some(patch.note(&net.nodes[at].location.name, format!("is {kind} of {}", net.name(x))))
}

/// Values that what the node at `at` computes may be a function of, nearest first.
fn arguments(net: &Net, at: usize) -> Vec<ValueId> {
    let (mut values, mut nodes) = (Vec::new(), vec![at]);
    for step in 0..MOST_STEPS {
        let Some(node) = nodes.get(step).and_then(|&at| net.nodes.get(at)) else { break };
        for &input in &node.inputs {
            if !values.contains(&input) && values.len() < MOST_STEPS {
                values.push(input);
                nodes.extend(net.producer(input));
            }
        }
    }
    values
}

/// The operator of a type with parameters, of one tensor.
fn operator(kind: &str) -> Option<Arc<dyn Operator>> {
    let (kind, parameters) = kind.split_once(' ').unwrap_or((kind, ""));
    let text =
        format!("7767517\n2 2\npnnx.Input x 0 1 x\n{kind} activation 1 1 x y {parameters}\n");
    let graph = Graph::parse(&text).ok()?;
    let (_, node) = graph.operators().last()?;
    Some(registry().ok()?.build("activation", &graph, node).ok()?.into())
}

/// The functions that are looked for, as PNNX writes them, and what they are.
fn known() -> Vec<(&'static str, Sum)> {
    let x = Sum::x;
    let gate = |f: Option<Sum>| x().times(&f?);
    let half = |f: Option<Sum>| x().times(&f?.plus(Sum::number(1.0)))?.times(&Sum::number(0.5));
    let scaled = |factor: f64| x().times(&Sum::number(factor));
    let cube = || x().times(&x())?.times(&scaled(0.044715)?);
    let inner = || x().plus(cube()?).times(&Sum::number((2.0 / std::f64::consts::PI).sqrt()));
    let functions = [
        ("F.sigmoid", x().apply(Activation::Sigmoid)),
        ("F.silu", gate(x().apply(Activation::Sigmoid))),
        ("F.mish", gate(x().apply(SOFTPLUS).and_then(|s| s.apply(Activation::Tanh)))),
        ("F.gelu approximate=none", half(scaled(0.5f64.sqrt()).and_then(Sum::erf))),
        ("F.gelu approximate=tanh", half(inner().and_then(|s| s.apply(Activation::Tanh)))),
        ("F.hardsigmoid", x().apply(Activation::HardSigmoid)),
        ("F.hardswish", gate(x().apply(Activation::HardSigmoid))),
    ];
    functions.into_iter().filter_map(|(kind, sum)| Some((kind, sum?))).collect()
}

/// ln(1 + e^x), where PyTorch takes it to be x above 20.
const SOFTPLUS: Activation = Activation::Softplus { beta: 1.0, threshold: 20.0 };

/// A function of a polynomial.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Function {
    Activation(Activation),
    Unary(UnaryFn),
}

/// What is multiplied.
#[derive(Debug, Clone)]
enum Factor {
    X,
    Of(Function, Sum),
}

/// A product of a number with factors.
#[derive(Debug, Clone)]
struct Product {
    number: f64,
    factors: Vec<Factor>,
}

/// A polynomial of x and of functions of such polynomials; no two products have the same factors.
#[derive(Debug, Clone)]
struct Sum(Vec<Product>);

impl Factor {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::X, Self::X) => true,
            (Self::Of(f, a), Self::Of(g, b)) => f == g && a.is(b),
            _ => false,
        }
    }
}

impl Product {
    /// Whether the factors are the same, in any order.
    fn has(&self, factors: &[Factor]) -> bool {
        pairs(&self.factors, factors, Factor::is)
    }
}

/// Whether each of `a` is one of `b`, and another one.
fn pairs<T>(a: &[T], b: &[T], is: impl Fn(&T, &T) -> bool) -> bool {
    let mut left: Vec<&T> = b.iter().collect();
    let mut take = |x: &T| left.iter().position(|y| is(x, y)).map(|at| left.swap_remove(at));
    a.len() == b.len() && a.iter().all(|x| take(x).is_some())
}

impl Sum {
    fn number(number: f64) -> Self {
        Self(vec![Product { number, factors: Vec::new() }])
    }

    fn x() -> Self {
        Self(vec![Product { number: 1.0, factors: vec![Factor::X] }])
    }

    fn of(function: Function, argument: Self) -> Self {
        Self(vec![Product { number: 1.0, factors: vec![Factor::Of(function, argument)] }])
    }

    /// Whether this is the same polynomial, but for rounded numbers.
    fn is(&self, other: &Self) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= DIGITS * a.abs().max(b.abs());
        pairs(&self.0, &other.0, |a, b| close(a.number, b.number) && a.has(&b.factors))
    }

    /// The number that it is.
    fn as_number(&self) -> Option<f64> {
        match &self.0[..] {
            [] => Some(0.0),
            [Product { number, factors }] if factors.is_empty() => Some(*number),
            _ => None,
        }
    }

    fn plus(mut self, other: Self) -> Self {
        for product in other.0 {
            match self.0.iter_mut().find(|own| own.has(&product.factors)) {
                Some(own) => own.number += product.number,
                None => self.0.push(product),
            }
        }
        self.0.retain(|product| product.number != 0.0);
        self
    }

    /// None where that would be too much.
    fn times(&self, other: &Self) -> Option<Self> {
        let mut all = Self(Vec::new());
        for (a, b) in self.0.iter().flat_map(|a| other.0.iter().map(move |b| (a, b))) {
            let factors = [&a.factors[..], &b.factors].concat();
            let product = Product { number: a.number * b.number, factors };
            if product.factors.len() > MOST_STEPS || all.0.len() >= MOST_STEPS {
                return None;
            }
            all = all.plus(Self(vec![product]));
        }
        Some(all)
    }

    fn erf(self) -> Option<Self> {
        self.unary(UnaryFn::Erf)
    }

    /// An activation function of this; those that are others in disguise as these.
    fn apply(self, function: Activation) -> Option<Self> {
        let clamp =
            |sum: Self, lo, hi| Self::of(Function::Activation(Activation::Clamp { lo, hi }), sum);
        match function {
            Activation::Relu6 => Some(clamp(self, 0.0, 6.0)),
            Activation::HardSigmoid => {
                clamp(self.plus(Self::number(3.0)), 0.0, 6.0).times(&Self::number(1.0 / 6.0))
            }
            // Above the threshold it is x but for less than a rounding.
            Activation::Softplus { beta: 1.0, threshold } if threshold >= 20.0 => {
                Some(Self::of(Function::Activation(SOFTPLUS), self))
            }
            Activation::Silu | Activation::HardSwish => {
                let gate = match function {
                    Activation::Silu => Activation::Sigmoid,
                    _ => Activation::HardSigmoid,
                };
                self.times(&self.clone().apply(gate)?)
            }
            function => Some(Self::of(Function::Activation(function), self)),
        }
    }

    fn unary(self, function: UnaryFn) -> Option<Self> {
        match function {
            UnaryFn::Neg => self.times(&Self::number(-1.0)),
            UnaryFn::Square => self.times(&self),
            UnaryFn::Tanh => self.apply(Activation::Tanh),
            UnaryFn::Log => match self.exponent_beside_one() {
                Some(exponent) => exponent.apply(SOFTPLUS),
                None => Some(Self::of(Function::Unary(function), self)),
            },
            UnaryFn::Log1p => self.plus(Self::number(1.0)).unary(UnaryFn::Log),
            UnaryFn::Reciprocal => match (self.as_number(), self.exponent_beside_one()) {
                (Some(number), _) => Some(Self::number(number.recip())),
                (_, Some(exponent)) => exponent.unary(UnaryFn::Neg)?.apply(Activation::Sigmoid),
                _ => Some(Self::of(Function::Unary(function), self)),
            },
            UnaryFn::Erf | UnaryFn::Exp => Some(Self::of(Function::Unary(function), self)),
            _ => None,
        }
    }

    /// u, where this is 1 + e^u.
    fn exponent_beside_one(&self) -> Option<Self> {
        self.0.iter().find_map(|product| match &product.factors[..] {
            [Factor::Of(Function::Unary(UnaryFn::Exp), exponent)] => {
                let exp = Self::of(Function::Unary(UnaryFn::Exp), exponent.clone());
                self.is(&exp.plus(Self::number(1.0))).then(|| exponent.clone())
            }
            _ => None,
        })
    }

    fn binary(self, function: BinaryFn, other: Self) -> Option<Self> {
        match function {
            BinaryFn::Add => Some(self.plus(other)),
            BinaryFn::Sub => Some(self.plus(other.unary(UnaryFn::Neg)?)),
            BinaryFn::Mul => self.times(&other),
            BinaryFn::Div => self.times(&other.unary(UnaryFn::Reciprocal)?),
            BinaryFn::Pow => match other.as_number()? {
                2.0 => self.times(&self),
                3.0 => self.times(&self)?.times(&self),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Writes values as functions of one of them.
struct Search<'a> {
    net: &'a Net,
    x: ValueId,
    /// What the whole is.
    output: ValueId,
    /// The nodes that compute in between.
    steps: BTreeSet<usize>,
}

impl Search<'_> {
    fn value(&mut self, value: ValueId) -> Option<Sum> {
        if value == self.x {
            return Some(Sum::x());
        }
        let at = self.net.producer(value)?;
        // No broadcasting and no other dtype on the way.
        if self.net.computed(value)? != self.net.computed(self.output)?
            || self.net.only_output(at) != Some(value)
            || (self.steps.insert(at) && self.steps.len() > MOST_STEPS)
        {
            return None;
        }
        let net = self.net;
        let inputs = &net.nodes[at].inputs;
        let mut input = |i: usize| self.value(*inputs.get(i)?);
        match net.role(at)? {
            Role::Times(a, b) => input(a)?.times(&input(b)?),
            Role::Sum(terms) => {
                let mut sum = Sum(Vec::new());
                for (i, factor) in terms {
                    sum = sum.plus(input(i)?.times(&Sum::number(factor))?);
                }
                Some(sum)
            }
            Role::Activation(function) => match inputs[..] {
                [_] => input(0)?.apply(function),
                _ => None,
            },
            Role::Formula(expr) => formula(&expr, &mut input),
            _ => None,
        }
    }
}

/// An expression of these inputs. The depth of the recursion is bounded by
/// [`plutino_ir::expr::MAX_DEPTH`].
fn formula(expr: &Expr, input: &mut impl FnMut(usize) -> Option<Sum>) -> Option<Sum> {
    let bound = |expr: &Expr| match expr {
        Expr::Int(i) => Some(*i as f64),
        Expr::Float(x) => Some(*x),
        _ => None,
    };
    match expr {
        Expr::Input(i) => input(*i),
        Expr::Int(i) => Some(Sum::number(*i as f64)),
        Expr::Float(x) => Some(Sum::number(*x)),
        Expr::Unary(function, x) => formula(x, input)?.unary(*function),
        Expr::Binary(BinaryFn::Min | BinaryFn::Minimum, inner, hi) => match &**inner {
            Expr::Binary(BinaryFn::Max | BinaryFn::Maximum, x, lo) => {
                let (lo, hi) = (bound(lo)?, bound(hi)?);
                formula(x, input)?.apply(Activation::Clamp { lo, hi })
            }
            _ => None,
        },
        Expr::Binary(function, a, b) => formula(a, input)?.binary(*function, formula(b, input)?),
        _ => None,
    }
}

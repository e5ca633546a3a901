//! `pnnx.Expression`: arithmetic on tensors and Python numbers, computed in one pass over memory.
//!
//! `sub(mul(@0,2),1)` reads `@0` once and writes the result once. What concerns sizes,
//! `[size(@0,0),-1]`, is Python arithmetic and known before the run; it feeds the shapes of other
//! operators. `prim::Constant` is an expression that reads nothing.

use crate::elementwise::{Elementary, Formula, Lowered, Lowering, Term, convert_number, plan};
use crate::{
    BuildError, BuildProblem, Cost, LayoutCx, LayoutSupport, Members, NodeReader, Operator, PlanCx,
    PlanError, Planned, Role, ShapeError, StrideRule, TensorValue, ValueSpec, check_members,
    register_op,
};
use plutino_ir::expr::{BinaryFn, Expr, UnaryFn};
use plutino_ir::{Parameter, quote};
use plutino_kernels::Activation;
use plutino_kernels::elementwise::{Binary, Scalar, Unary};
use plutino_tensor::DType;
use std::sync::Arc;

register_op!(expression => "pnnx.Expression");
register_op!(constant => "prim::Constant");

/// `expr`, over all inputs of the node: `@n` is input n, whatever the file names it.
fn expression(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let text: String = r.required("expr")?;
    let inputs = r.rest().len();
    let problem =
        |what: String| BuildProblem::Invalid(format!("parameter 'expr={}': {what}", quote(&text)));
    if inputs > MOST_INPUTS {
        let what = format!("an expression reads at most {MOST_INPUTS} inputs, this one {inputs}");
        return Err(r.error(BuildProblem::Invalid(what)));
    }
    let expr = match Expr::parse(&text) {
        Ok(expr) => expr,
        // A constant that is no arithmetic: the equation of an einsum.
        Err(_) if inputs == 0 && is_word(&text) => Expr::Word(text.clone()),
        Err(e) => return Err(r.error(problem(e.to_string()))),
    };
    if expr.input_count() > inputs {
        let last = expr.input_count() - 1;
        return Err(r.error(problem(format!("@{last} is used, but there are {inputs} inputs"))));
    }
    // pnnx writes `torch.div(a, b, rounding_mode="floor")` as `div`, and records what it makes of
    // integers.
    let whole = r.recorded_dtype().is_some_and(|dtype| dtype.is_integer());
    let floored = floored(&expr).filter(|_| whole);
    Ok(Box::new(Expression { expr, floored }))
}

/// Whether text that is no expression may be a word: nothing in it calls, lists or reads anything.
pub(crate) fn is_word(text: &str) -> bool {
    !text.contains(['(', ')', '[', ']', '@'])
}

/// A constant of TorchScript, which optlevel=0 leaves as it is.
fn constant(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let value = r.raw("value").cloned().unwrap_or_default();
    let expr = literal(&value).ok_or_else(|| {
        r.bad("value", "None, a boolean, a number, a word, or a list of booleans or numbers")
    })?;
    Ok(Box::new(Expression { expr, floored: None }))
}

/// The expression that is this value.
fn literal(value: &Parameter) -> Option<Expr> {
    fn list<T: Copy>(values: &[T], each: impl Fn(T) -> Expr) -> Expr {
        Expr::List(values.iter().map(|&value| each(value)).collect()) // bounded: by the file's list
    }
    Some(match value {
        Parameter::Null => Expr::None,
        Parameter::Bool(value) => Expr::Bool(*value),
        Parameter::Int(value) => Expr::Int(*value),
        Parameter::Float(value) => Expr::Float(*value),
        Parameter::Complex(re, im) => Expr::Complex(*re, *im),
        Parameter::Str(word) => match Expr::parse(word) {
            Ok(float @ Expr::Float(_)) => float, // inf, nan
            _ => Expr::Word(word.clone()),
        },
        Parameter::Bools(values) => list(values, Expr::Bool),
        Parameter::Ints(values) => list(values, Expr::Int),
        Parameter::Floats(values) => list(values, Expr::Float),
        Parameter::Complexes(values) => list(values, |(re, im)| Expr::Complex(re, im)),
        Parameter::Strs(_) | Parameter::Other(_) => return None,
    })
}

/// Inputs of an expression: what each part of it means is looked up among them.
const MOST_INPUTS: usize = 1024;

#[derive(Debug)]
struct Expression {
    expr: Expr,
    /// The same with floor divisions, where the file records integers: what is meant if `expr`
    /// makes none.
    floored: Option<Expr>,
}

/// The sum of so many inputs, from the first to the last.
pub fn sum_of(inputs: usize) -> Box<dyn Operator> {
    let add = |a, b| Expr::Binary(BinaryFn::Add, Box::new(a), Box::new(b));
    let expr = (0..inputs).map(Expr::Input).reduce(add).unwrap_or(Expr::Int(0));
    Box::new(Expression { expr, floored: None })
}

/// The expression with floor divisions for true ones; none where there is no division. The depth of
/// the recursion is bounded by [`plutino_ir::expr::MAX_DEPTH`].
fn floored(expr: &Expr) -> Option<Expr> {
    let either = |a: &Expr, b: &Expr| {
        let (left, right) = (floored(a), floored(b));
        let changed = left.is_some() || right.is_some();
        let parts = [left.unwrap_or_else(|| a.clone()), right.unwrap_or_else(|| b.clone())];
        (changed, parts.map(Box::new))
    };
    match expr {
        Expr::Binary(function, a, b) => {
            let (changed, [a, b]) = either(a, b);
            match function {
                BinaryFn::Div => Some(Expr::Binary(BinaryFn::FloorDivide, a, b)),
                _ => changed.then_some(Expr::Binary(*function, a, b)),
            }
        }
        Expr::Unary(function, x) => Some(Expr::Unary(*function, Box::new(floored(x)?))),
        _ => None,
    }
}

/// Whether a value is a tensor of integers.
fn is_whole(spec: &ValueSpec) -> bool {
    spec.as_tensor().is_some_and(|t| t.dtype().is_integer())
}

/// A value and what its leaves come to.
struct Evaluated {
    spec: ValueSpec,
    leaves: Vec<Lowered>,
}

impl Expression {
    fn evaluate(&self, inputs: &[ValueSpec]) -> Result<Evaluated, ShapeError> {
        let mut members = Members::default();
        count(&self.expr, inputs, 1, &mut members)?;
        members.room()?;
        let made = evaluate(&self.expr, inputs)?;
        match &self.floored {
            Some(floored) if !is_whole(&made.spec) => {
                let whole = evaluate(floored, inputs).ok().filter(|whole| is_whole(&whole.spec));
                Ok(whole.unwrap_or(made))
            }
            _ => Ok(made),
        }
    }
}

impl Operator for Expression {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::Elementwise
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![self.evaluate(inputs)?.spec])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        plan(cx, &self.short_name(), self.evaluate(cx.inputs)?.leaves)
    }

    fn elementwise(&self) -> Option<Elementary> {
        let several = matches!(self.expr, Expr::List(_) | Expr::None | Expr::Word(_));
        if several || self.floored.is_some() || matches!(self.expr, Expr::Size { .. }) {
            return None;
        }
        let (name, expr) = (self.short_name(), self.expr.clone());
        Some(Elementary(Arc::new(Single { name, expr })))
    }

    fn role(&self, _: &[ValueSpec]) -> Option<Role> {
        if self.floored.is_some() {
            return None;
        }
        if let Expr::Binary(BinaryFn::Mul, a, b) = &self.expr
            && let (Expr::Input(a), Expr::Input(b)) = (&**a, &**b)
        {
            return Some(Role::Times(*a, *b));
        }
        let formula = || Role::Formula(self.expr.clone());
        let known = activation(&self.expr).map(Role::Activation);
        known.or_else(|| terms(&self.expr).map(Role::Sum)).or_else(|| Some(formula()))
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        match self.evaluate(cx.inputs).map(|e| e.leaves).as_deref() {
            Ok([only]) => only.layouts(cx.inputs, cx.block()),
            _ => LayoutSupport::PLAIN,
        }
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let functions: usize = self
            .evaluate(inputs)
            .map_or(0, |e| e.leaves.iter().map(Lowered::functions).max().unwrap_or(0));
        Cost::elementwise(inputs, outputs, functions as u64)
    }
}

impl Expression {
    /// The expression, if it is short; else its outermost function.
    fn short_name(&self) -> String {
        let text = self.expr.to_string();
        match &self.expr {
            _ if text.len() <= 24 => text,
            Expr::Unary(f, _) => format!("{f}(..)"),
            Expr::Binary(f, ..) => format!("{f}(..)"),
            _ => "[..]".into(),
        }
    }
}

/// An expression that makes one tensor or number.
#[derive(Debug)]
struct Single {
    name: String,
    expr: Expr,
}

impl Formula for Single {
    fn name(&self) -> &str {
        &self.name
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        lower(&self.expr, f)
    }
}

/// The activation function of input 0 that the expression is.
fn activation(expr: &Expr) -> Option<Activation> {
    match expr {
        Expr::Binary(function, a, b) => {
            let (Expr::Input(0), Some(bound)) = (&**a, number(b)) else { return None };
            let (lo, hi) = match function {
                BinaryFn::Max | BinaryFn::Maximum => (bound, f64::INFINITY),
                BinaryFn::Min | BinaryFn::Minimum => (f64::NEG_INFINITY, bound),
                _ => return None,
            };
            Some(Activation::Clamp { lo, hi })
        }
        Expr::Unary(UnaryFn::Tanh, x) if **x == Expr::Input(0) => Some(Activation::Tanh),
        _ => None,
    }
}

/// The inputs and their factors, where the expression is a sum of multiples of inputs.
fn terms(expr: &Expr) -> Option<Vec<(usize, f64)>> {
    let times = |x: &Expr, factor: f64| {
        let scaled = terms(x)?.into_iter().map(|(input, own)| (input, own * factor));
        Some(scaled.collect())
    };
    match expr {
        Expr::Input(at) => Some(vec![(*at, 1.0)]),
        Expr::Binary(BinaryFn::Add, a, b) => Some([terms(a)?, terms(b)?].concat()),
        Expr::Binary(BinaryFn::Mul, a, b) => match (number(a), number(b)) {
            (None, Some(factor)) => times(a, factor),
            (Some(factor), None) => times(b, factor),
            _ => None,
        },
        Expr::Binary(BinaryFn::Div, a, b) => times(a, number(b)?.recip()),
        _ => None,
    }
}

/// A finite literal.
fn number(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Int(i) => Some(*i as f64),
        Expr::Float(x) if x.is_finite() => Some(*x),
        _ => None,
    }
}

/// Counts the members of the list that an expression makes, before it is made: `depth` lists deep.
fn count(
    expr: &Expr,
    inputs: &[ValueSpec],
    depth: usize,
    members: &mut Members,
) -> Result<(), ShapeError> {
    match expr {
        Expr::List(items) => {
            check_members(items.len())?;
            items.iter().try_for_each(|item| {
                members.one(depth)?;
                count(item, inputs, depth + 1, members)
            })
        }
        Expr::Input(at) => inputs.get(*at).map_or(Ok(()), |list| members.inside(list, depth)),
        // Anything else is no list, or one of as many members as a tensor has dimensions.
        _ => Ok(()),
    }
}

/// A whole expression: lists are taken apart, every other value is one formula.
fn evaluate(expr: &Expr, inputs: &[ValueSpec]) -> Result<Evaluated, ShapeError> {
    match expr {
        Expr::List(items) => {
            let items = items.iter().map(|item| evaluate(item, inputs));
            let items = items.collect::<Result<Vec<_>, _>>()?;
            let mut list = Evaluated { spec: ValueSpec::List(Vec::new()), leaves: Vec::new() };
            let mut specs = Vec::with_capacity(items.len());
            for item in items {
                specs.push(item.spec);
                list.leaves.extend(item.leaves);
            }
            list.spec = ValueSpec::List(specs);
            Ok(list)
        }
        // What a parameter's `None` is as well: the empty list.
        Expr::None => Ok(Evaluated { spec: ValueSpec::List(Vec::new()), leaves: Vec::new() }),
        Expr::Word(word) => {
            Ok(Evaluated { spec: ValueSpec::Word(word.as_str().into()), leaves: Vec::new() })
        }
        // A list among the inputs is passed on as it is.
        Expr::Input(at) if matches!(inputs.get(*at), Some(ValueSpec::List(_))) => {
            let before: usize = inputs[..*at].iter().map(ValueSpec::leaf_count).sum();
            let leaves = (before..before + inputs[*at].leaf_count()).map(Lowered::Input).collect();
            Ok(Evaluated { spec: inputs[*at].clone(), leaves })
        }
        Expr::Size { of, dim: None } => {
            let shape = shape_of(of, inputs)?;
            let sizes = shape.iter().map(|&n| Scalar::Int(n as i64));
            let leaves: Vec<_> = sizes.map(Lowered::Number).collect();
            let specs: Result<_, _> = leaves.iter().map(|l| l.spec(inputs)).collect();
            Ok(Evaluated { spec: ValueSpec::List(specs?), leaves })
        }
        _ => {
            let mut f = Lowering::new(inputs);
            let result = lower(expr, &mut f)?;
            let lowered = f.finish(result);
            Ok(Evaluated { spec: lowered.spec(inputs)?, leaves: vec![lowered] })
        }
    }
}

/// One tensor or number. The depth of the recursion is bounded by [`plutino_ir::expr::MAX_DEPTH`].
fn lower(expr: &Expr, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
    match expr {
        Expr::Input(at) => f.input(*at),
        Expr::Int(i) => Ok(Term::Number(Scalar::Int(*i))),
        Expr::Float(x) => Ok(Term::Number(Scalar::Float(*x))),
        Expr::Bool(b) => Ok(Term::Number(Scalar::Bool(*b))),
        Expr::Complex(re, im) => {
            Ok(Term::Number(Scalar::Complex(num_complex::Complex::new(*re, *im))))
        }
        Expr::Size { of, dim: Some(dim) } => size(of, dim, f.specs()),
        Expr::Unary(function, x) => {
            let x = lower(x, f)?;
            unary(*function, x, f)
        }
        Expr::Binary(function, a, b) => {
            let a = lower(a, f)?;
            let b = lower(b, f)?;
            binary(*function, a, b, f)
        }
        Expr::None | Expr::Word(_) | Expr::List(_) | Expr::Size { dim: None, .. } => {
            Err(ShapeError::Invalid(format!("{expr} stands where a tensor or a number is needed")))
        }
    }
}

/// `size(of, dim)`: a Python int. The tensor itself is not read.
fn size(of: &Expr, dim: &Expr, inputs: &[ValueSpec]) -> Result<Term, ShapeError> {
    let shape = shape_of(of, inputs)?;
    match lower(dim, &mut Lowering::new(inputs))? {
        Term::Number(Scalar::Int(dim)) => {
            let dim = shape.dim(dim)?;
            // A scalar has no dimension 0 to ask for, though it is a valid number.
            let size =
                shape.get(dim).ok_or(plutino_tensor::TensorError::Dim { dim: 0, rank: 0 })?;
            Ok(Term::Number(Scalar::Int(*size as i64)))
        }
        _ => Err(ShapeError::Invalid(format!("{dim} is no dimension: it must be an int"))),
    }
}

fn shape_of(expr: &Expr, inputs: &[ValueSpec]) -> Result<plutino_tensor::Shape, ShapeError> {
    if let Expr::Input(at) = expr {
        return Ok(TensorValue::at(inputs, *at)?.shape().clone());
    }
    match lower(expr, &mut Lowering::new(inputs))? {
        Term::Tensor(t) => Ok(t.shape),
        Term::Number(_) => Err(ShapeError::Invalid(format!("{expr} is a number: it has no size"))),
    }
}

fn unary(function: UnaryFn, x: Term, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
    let op = match function {
        UnaryFn::Abs => Unary::Abs,
        UnaryFn::Acos => Unary::Acos,
        UnaryFn::Acosh => Unary::Acosh,
        UnaryFn::Asin => Unary::Asin,
        UnaryFn::Asinh => Unary::Asinh,
        UnaryFn::Atan => Unary::Atan,
        UnaryFn::Atanh => Unary::Atanh,
        UnaryFn::Ceil => Unary::Ceil,
        UnaryFn::Cos => Unary::Cos,
        UnaryFn::Cosh => Unary::Cosh,
        UnaryFn::Erf => Unary::Erf,
        UnaryFn::Exp => Unary::Exp,
        UnaryFn::Expm1 => Unary::Expm1,
        UnaryFn::Floor => Unary::Floor,
        UnaryFn::Log => Unary::Log,
        UnaryFn::Log10 => Unary::Log10,
        UnaryFn::Log1p => Unary::Log1p,
        UnaryFn::Neg => Unary::Neg,
        UnaryFn::Reciprocal => Unary::Reciprocal,
        UnaryFn::Round => Unary::Round,
        UnaryFn::Rsqrt => Unary::Rsqrt,
        UnaryFn::Sign => Unary::Sign,
        UnaryFn::Sin => Unary::Sin,
        UnaryFn::Sinh => Unary::Sinh,
        UnaryFn::Sqrt => Unary::Sqrt,
        UnaryFn::Square => Unary::Square,
        UnaryFn::Tan => Unary::Tan,
        UnaryFn::Tanh => Unary::Activation(Activation::Tanh),
        UnaryFn::Trunc => Unary::Trunc,
        UnaryFn::Int | UnaryFn::Long => return convert(x, DType::I64, f),
        UnaryFn::Bool => return convert(x, DType::Bool, f),
        UnaryFn::Float => return convert(x, DType::F32, f),
        other => return Err(ShapeError::Invalid(format!("function {other} is not supported"))),
    };
    f.unary(op, x)
}

fn convert(x: Term, dtype: DType, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
    match x {
        Term::Number(x) => Ok(Term::Number(convert_number(x, dtype)?)),
        tensor => Ok(f.cast(tensor, dtype)),
    }
}

fn binary(function: BinaryFn, a: Term, b: Term, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
    let op = match function {
        BinaryFn::Add => Binary::Add,
        BinaryFn::Sub => Binary::Sub,
        BinaryFn::Mul => Binary::Mul,
        BinaryFn::Div => Binary::Div,
        BinaryFn::FloorDivide => Binary::FloorDivide,
        BinaryFn::Remainder => Binary::Remainder,
        BinaryFn::Fmod => Binary::Fmod,
        BinaryFn::Pow => return f.pow(a, b),
        BinaryFn::Atan2 => Binary::Atan2,
        BinaryFn::Logaddexp => Binary::LogAddExp,
        BinaryFn::Max | BinaryFn::Maximum => Binary::Maximum,
        BinaryFn::Min | BinaryFn::Minimum => Binary::Minimum,
        BinaryFn::And => Binary::BitwiseAnd,
        BinaryFn::Or => Binary::BitwiseOr,
        BinaryFn::Xor => Binary::BitwiseXor,
        BinaryFn::LeftShift => Binary::ShiftLeft,
        BinaryFn::RightShift => Binary::ShiftRight,
        other => return Err(ShapeError::Invalid(format!("function {other} is not supported"))),
    };
    f.binary(op, a, b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{
        assert_close, check, check_values, error, op, random, specs, tensor, try_op, values,
    };
    use crate::{Alias, PackCache};
    use num_complex::Complex;
    use plutino_kernels::Isa;
    use plutino_tensor::Tensor;

    /// An expression of as many inputs as are given.
    fn expression(expr: &str, inputs: usize) -> Box<dyn Operator> {
        let names: Vec<String> = (0..=inputs).map(|i| i.to_string()).collect();
        op(&format!("pnnx.Expression e {inputs} 1 {} expr={expr}", names.join(" ")))
    }

    fn run(expr: &str, inputs: &[Tensor]) -> Tensor {
        check(&*expression(expr, inputs.len()), inputs).remove(0)
    }

    /// The ints that an expression is known to be before the run.
    fn ints(expr: &str, inputs: &[Tensor]) -> Vec<i64> {
        let operator = expression(expr, inputs.len());
        let spec = operator.infer(&specs(inputs)).unwrap().remove(0);
        check(&*operator, inputs);
        spec.known_ints().unwrap_or_else(|| panic!("{expr} is {spec}"))
    }

    #[test]
    fn trees_of_functions() {
        let (a, b) = (random([3, 4], 1), random([4], 2));
        let (x, y) = (values::<f32>(&a), values::<f32>(&b));
        type Formula = fn(f32, f32) -> f32;
        #[rustfmt::skip]
        let cases: &[(&str, Formula)] = &[
            ("sub(mul(@0,2),1)", |x, _| x * 2.0 - 1.0),
            ("add(@0,@1)", |x, y| x + y),
            ("sub(1,@0)", |x, _| 1.0 - x),
            ("add(sin(@0),mul(cos(@1),sqrt(add(abs(@0),1))))", |x, y| x.sin() + y.cos() * (x.abs() + 1.0).sqrt()),
            ("div(sub(@0,@1),sqrt(add(square(@1),1.000000e-7)))", |x, y| (x - y) / (y * y + 1e-7).sqrt()),
            ("expm1,sub(@0,0.5)", |x, _| (x - 0.5).exp_m1()),
            ("log1p,@0", |x, _| x.ln_1p()),
            ("pow(@0,2)", |x, _| x * x),
            ("maximum(@0,mul(@1,-1.5))", |x, y| x.max(y * -1.5)),
            ("atan2(@0,@1)", f32::atan2),
            ("round(mul(@0,10))", |x, _| (x * 10.0).round_ties_even()),
            ("add(add(add(@0,floor(@1)),@1),trunc(mul(@1,3)))", |x, y| x + y.floor() + y + (y * 3.0).trunc()),
            ("remainder(@0,0.3)", |x, _| x.rem_euclid(0.3)),
        ];
        for (expr, f) in cases {
            let n = if expr.contains("@1") { 2 } else { 1 };
            let found = run(expr, &[a.clone(), b.clone()][..n]);
            let expected: Vec<f32> =
                x.iter().zip(y.iter().cycle()).map(|(&x, &y)| f(x, y)).collect();
            assert_close(&found, &tensor([3, 4], &expected), 1e-6);
        }
    }

    /// An expression with what the file records of its result.
    fn recorded(expr: &str, inputs: usize, dtype: &str) -> Box<dyn Operator> {
        let names: Vec<String> = (0..inputs).map(|i| i.to_string()).collect();
        op(&format!(
            "pnnx.Expression e {inputs} 1 {} out expr={expr} #out=(4){dtype}",
            names.join(" ")
        ))
    }

    #[test]
    fn recorded_integers_are_floored() {
        let ints = || tensor([4], &[-7i64, -1, 0, 7]);
        let run = |expr: &str, dtype: &str| check(&*recorded(expr, 1, dtype), &[ints()]).remove(0);
        assert_eq!(run("div(@0,3)", "i64"), tensor([4], &[-3i64, -1, 0, 2]));
        assert_eq!(run("add(div(@0,3),remainder(@0,3))", "i64"), tensor([4], &[-1i64, 1, 0, 3]));
        // Nothing else is: floats, and what makes integers by itself.
        let third = |x: f32| x / 3.0;
        assert_eq!(run("div(@0,3)", "f32"), tensor([4], &[-7.0, -1.0, 0.0, 7.0].map(third)));
        assert_eq!(run("div(@0,2.0)", "i64"), tensor([4], &[-3.5f32, -0.5, 0.0, 3.5]));
        assert_eq!(run("int(div(@0,2))", "i64"), tensor([4], &[-3i64, 0, 0, 3]));
        let pair = recorded("div(@0,@1)", 2, "i64");
        let y = check(&*pair, &[ints(), tensor([4], &[2i64, -2, 5, -2])]);
        assert_eq!(y[0], tensor([4], &[-4i64, 0, 0, -4]));
    }

    #[test]
    fn sizes_are_known_before_the_run() {
        let x = [Tensor::zeros(DType::F32, [2, 3, 20, 30]).unwrap(), tensor([5], &[0.0f32; 5])];
        assert_eq!(ints("[size(@0,0),size(@0,-1),-1]", &x), [2, 30, -1]);
        assert_eq!(ints("[floor_divide(size(@0,2),6)]", &x), [3]);
        assert_eq!(ints("floor_divide(neg(size(@0,2)),7)", &x), [-3]);
        assert_eq!(ints("[int(div(size(@0,2),3)),8]", &x), [6, 8]);
        assert_eq!(ints("[size(@1,0),add(size(@0,1),mul(2,4))]", &x), [5, 11]);
        assert_eq!(ints("size(@0)", &x), [2, 3, 20, 30]);
        assert_eq!(ints("int(ceil(div(size(@0,3),7)))", &x), [5]);
        assert_eq!(ints("lshift(and(size(@0,2),28),1)", &x), [40]);
        let e = expression("[size(@0,4)]", 1);
        assert!(e.infer(&specs(&x[..1])).is_err());
        assert!(expression("add(size(@0),1)", 1).infer(&specs(&x[..1])).is_err());
        assert!(expression("floor_divide(size(@0,0),0)", 1).infer(&specs(&x[..1])).is_err());
    }

    #[test]
    fn sizes_and_tensors_mix_without_reading_the_sized_tensor() {
        let (x, y) = (tensor([3], &[3.0f32, 6.0, 9.0]), Tensor::zeros(DType::F32, [7, 2]).unwrap());
        let found = run("div(@0,size(@1,1))", &[x, y]);
        assert_eq!(values::<f32>(&found), [1.5, 3.0, 4.5]);
    }

    #[test]
    fn python_numbers_among_the_inputs() {
        let x = tensor([2], &[1i64, 2]);
        let three = ValueSpec::python(3i64).unwrap();
        let operator = expression("add(mul(@0,@1),div(@1,2))", 2);
        let inputs = [specs(std::slice::from_ref(&x)).remove(0), three.clone()];
        let y = check_values(&*operator, &inputs, &[x, tensor([], &[3i64])]);
        assert_eq!(values::<f32>(&y[0]), [4.5, 7.5]);
        let known = expression("[@0,add(@0,1)]", 1).infer(&[three]).unwrap();
        assert_eq!(known[0].known_ints(), Some(vec![3, 4]));
    }

    #[test]
    fn constants_are_pythons() {
        let value = |text: &str| expression(text, 0).infer(&[]).unwrap().remove(0);
        for (text, expected) in [("True", true), ("False", false)] {
            let found = value(text);
            let found = found.as_tensor().unwrap();
            assert!(found.python && found.known == Some(tensor([], &[expected])), "{text}");
        }
        let word = value("sum");
        assert_eq!((word.to_string().as_str(), word.leaf_count()), ("'sum'", 0));
        assert_eq!((word.known_ints(), word.known_floats()), (None, None));
        // Nothing to compute with.
        assert!(expression("add(@0,1)", 1).infer(&[word]).is_err());
        let bools = run("and(@0,True)", &[tensor([2], &[true, false])]);
        assert_eq!(values::<bool>(&bools), [true, false]);
    }

    #[test]
    fn dtypes_are_pytorchs() {
        let ints = tensor([3], &[-7i64, 7, 4]);
        for (expr, dtype) in [
            ("mul(@0,2)", DType::I64),
            ("mul(@0,2.0)", DType::F32),
            ("div(@0,2)", DType::F32),
            ("floor_divide(@0,2)", DType::I64),
            ("sqrt(@0)", DType::F32),
            ("torch.float(@0)", DType::F32),
            ("torch.bool(@0)", DType::Bool),
            ("sub(@0,0.000000e+00+4.000000e+00j)", DType::C64),
        ] {
            assert_eq!(run(expr, std::slice::from_ref(&ints)).dtype(), dtype, "{expr}");
        }
        assert_eq!(
            values::<i64>(&run("floor_divide(@0,2)", std::slice::from_ref(&ints))),
            [-4, 3, 2]
        );
        assert_eq!(
            values::<i64>(&run("remainder(@0,-3)", std::slice::from_ref(&ints))),
            [-1, -2, -2]
        );
        assert_eq!(
            values::<i64>(&run("xor(or(and(@0,6),8),1)", std::slice::from_ref(&ints))),
            [9, 15, 13]
        );
        let bools = tensor([2], &[true, false]);
        assert_eq!(
            values::<bool>(&run("and(@0,@1)", &[bools.clone(), tensor([], &[true])])),
            [true, false]
        );
        assert_eq!(values::<i64>(&run("and(@0,3)", &[bools])), [1, 0]);
        let z = run("mul(@0,sub(1.200000e+00-9.000000e-01j,@0))", &[tensor([1], &[2.0f32])]);
        assert!((values::<Complex<f32>>(&z)[0] - Complex::new(-1.6, -1.8)).norm() < 1e-6);
        // A rank-0 double does not make floats double; a double with dimensions does.
        let y = run("add(@0,@1)", &[tensor([1], &[1.0f32]), tensor([], &[1.0f64])]);
        assert_eq!(y.dtype(), DType::F32);
        let y = run("add(@0,@1)", &[tensor([1], &[1.0f32]), tensor([1], &[1.0f64])]);
        assert_eq!(y.dtype(), DType::F64);
    }

    #[test]
    fn lists_hold_tensors_as_they_are() {
        let x = [random([2, 3], 1), tensor([2], &[1i64, 0])];
        let operator = expression("[@1,mul(@0,2),size(@0,0),@0]", 2);
        let outputs = operator.infer(&specs(&x)).unwrap();
        assert_eq!(outputs[0].leaf_count(), 4);
        let found = check(&*operator, &x);
        assert_eq!((&found[0], &found[3]), (&x[1], &x[0]));
        assert_eq!(values::<i64>(&found[2]), [2]);
        let list = ValueSpec::List(specs(&x));
        let passed = expression("@0", 1).infer(&[list]).unwrap();
        assert_eq!(passed[0].to_string(), "[(2,3)f32, (2)i64]");
    }

    #[test]
    fn what_an_input_is_stays_a_view() {
        let x = specs(&[random([4], 1)]);
        let operator = expression("@0", 1);
        let outputs = operator.infer(&x).unwrap();
        let packs = PackCache::default();
        let cx = PlanCx {
            inputs: &x,
            outputs: &outputs,
            setting: crate::Setting::new(Isa::best(), 1),
            packs: &packs,
        };
        let planned = operator.plan(&cx).unwrap();
        assert!(planned.kernel.is_none());
        assert_eq!(planned.alias, [Alias::View { input: 0, offset: 0 }]);
    }

    #[test]
    fn activations_are_recognised() {
        for (expr, expected) in [
            ("add(@0,1)", None),
            ("max(@0,0.0)", Some(Activation::Clamp { lo: 0.0, hi: f64::INFINITY })),
            ("min(@0,6)", Some(Activation::Clamp { lo: f64::NEG_INFINITY, hi: 6.0 })),
            ("tanh(@0)", Some(Activation::Tanh)),
            ("max(@1,0.0)", None),
        ] {
            let role = expression(expr, 2).role(&[]);
            let found = match role {
                Some(Role::Activation(activation)) => Some(activation),
                _ => None,
            };
            assert_eq!(found, expected, "{expr}");
        }
    }

    #[test]
    fn roles_are_recognised() {
        for (expr, expected) in [
            ("mul(@0,@1)", Some(Role::Times(0, 1))),
            ("mul(@1,@0)", Some(Role::Times(1, 0))),
            ("mul(@0,2)", Some(Role::Sum(vec![(0, 2.0)]))),
            ("add(@1,@0)", Some(Role::Sum(vec![(1, 1.0), (0, 1.0)]))),
            ("add(@0,div(@1,4))", Some(Role::Sum(vec![(0, 1.0), (1, 0.25)]))),
            ("mul(@0,add(@1,1))", Some(Role::Formula(Expr::parse("mul(@0,add(@1,1))").unwrap()))),
        ] {
            assert_eq!(expression(expr, 2).role(&[]), expected, "{expr}");
        }
    }

    #[test]
    fn faults_are_named() {
        for (line, what) in [
            ("pnnx.Expression e 1 1 0 1 expr=add(@0,@1)", "@1 is used, but there are 1 inputs"),
            ("pnnx.Expression e 1 1 0 1 expr=frobnicate(@0)", "expr=frobnicate(@0)"),
            ("pnnx.Expression e 1 1 0 1", "'expr' is missing"),
        ] {
            let e = try_op(line, &[]).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        }
        error(&*expression("add(@0,@1)", 2), &[random([2], 1), random([3], 2)]);
        error(&*expression("remainder(@0,@1)", 2), &[tensor([1], &[1i32]), tensor([1], &[0i32])]);
    }

    #[test]
    fn the_deepest_expression_fits_the_stack() {
        let depth = plutino_ir::expr::MAX_DEPTH - 1;
        let expr = format!("{}@0{}", "neg(".repeat(depth), ")".repeat(depth));
        let sign = if depth.is_multiple_of(2) { 1.0 } else { -1.0 };
        assert_eq!(values::<f32>(&run(&expr, &[tensor([1], &[3.0f32])])), [3.0 * sign]);
    }
}

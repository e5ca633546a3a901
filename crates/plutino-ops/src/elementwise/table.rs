//! Functions that are a few others, element by element, in a table: name, arguments, formula.

use super::{Elementwise, Formula, Lowering, Term, common_dtype, operand};
use crate::support::promotion::Category;
use crate::{
    Arg, BuildError, BuildProblem, NodeReader, Operator, ShapeError, function, register_op,
};
use plutino_kernels::Activation;
use plutino_kernels::elementwise::{Binary, Scalar, Unary};
use plutino_tensor::{DType, bf16};
use std::f64::consts::PI;

register_op!(build =>
    "torch.absolute", "torch.angle", "torch.arccos", "torch.arccosh", "torch.arcsin", "torch.arcsinh",
    "torch.arctan", "torch.arctan2", "torch.arctanh", "torch.conj", "torch.conj_physical", "torch._conj",
    "torch._conj_physical", "torch.copysign", "torch.deg2rad", "torch.digamma", "torch.erfinv", "torch.exp2",
    "torch.fix", "torch.float_power", "torch.fmax", "torch.fmin", "torch.frac", "torch.gcd", "torch.greater",
    "torch.greater_equal", "torch.heaviside", "torch.hypot", "torch.i0", "torch.igamma",
    "torch.igammac", "torch.isneginf", "torch.isposinf",
    "torch.isreal", "torch.lcm", "torch.ldexp", "torch.less", "torch.less_equal", "torch.logaddexp2",
    "torch.logit", "torch.multiply", "torch.negative", "torch._neg_view", "torch.nextafter",
    "torch.not_equal", "torch.polygamma", "torch.rad2deg", "torch.resolve_conj", "torch.resolve_neg",
    "torch.sgn", "torch.signbit", "torch.sinc", "torch.xlogy",
    "torch.special.bessel_j0", "torch.special.bessel_j1", "torch.special.bessel_y0",
    "torch.special.bessel_y1", "torch.special.digamma", "torch.special.entr", "torch.special.erf",
    "torch.special.erfc", "torch.special.erfcx", "torch.special.erfinv", "torch.special.exp2",
    "torch.special.expit", "torch.special.expm1", "torch.special.gammainc",
    "torch.special.gammaincc", "torch.special.gammaln", "torch.special.i0",
    "torch.special.i0e", "torch.special.i1", "torch.special.i1e", "torch.special.log1p",
    "torch.special.log_ndtr", "torch.special.logit", "torch.special.modified_bessel_i0",
    "torch.special.modified_bessel_i1", "torch.special.ndtr", "torch.special.ndtri",
    "torch.special.polygamma", "torch.special.psi", "torch.special.sinc", "torch.special.xlog1py",
    "torch.special.xlogy", "torch.special.zeta");

/// What a function's arguments come to.
type Lower = fn(&mut Lowering<'_>, &[Term]) -> Result<Term, ShapeError>;

/// A function: PyTorch's name, those of its arguments, and what it computes.
struct Entry {
    name: &'static str,
    arguments: &'static [&'static str],
    lower: Lower,
}

const X: &[&str] = &["input"];
const XY: &[&str] = &["input", "other"];

macro_rules! table {
    ($($name:literal $arguments:expr => $lower:expr;)*) => {
        &[$(Entry { name: $name, arguments: $arguments, lower: $lower }),*]
    };
}

/// <https://pytorch.org/docs/stable/torch.html#pointwise-ops>,
/// <https://pytorch.org/docs/stable/special.html>
static TABLE: &[Entry] = table! {
    "absolute" X => |f, a| of_one(f, Unary::Abs, a);
    "negative" X => |f, a| of_one(f, Unary::Neg, a);
    "_neg_view" X => |f, a| of_one(f, Unary::Neg, a);
    "arccos" X => |f, a| of_one(f, Unary::Acos, a);
    "arccosh" X => |f, a| of_one(f, Unary::Acosh, a);
    "arcsin" X => |f, a| of_one(f, Unary::Asin, a);
    "arcsinh" X => |f, a| of_one(f, Unary::Asinh, a);
    "arctan" X => |f, a| of_one(f, Unary::Atan, a);
    "arctanh" X => |f, a| of_one(f, Unary::Atanh, a);
    "fix" X => |f, a| of_one(f, Unary::Trunc, a);
    "erf" X => |f, a| of_one(f, Unary::Erf, a);
    "erfc" X => |f, a| of_one(f, Unary::Erfc, a);
    "expm1" X => |f, a| of_one(f, Unary::Expm1, a);
    "log1p" X => |f, a| of_one(f, Unary::Log1p, a);
    "gammaln" X => |f, a| of_one(f, Unary::Lgamma, a);
    "digamma" X => |f, a| of_one(f, Unary::Digamma, a);
    "psi" X => |f, a| of_one(f, Unary::Digamma, a);
    "erfinv" X => |f, a| of_one(f, Unary::Erfinv, a);
    "erfcx" X => |f, a| of_one(f, Unary::Erfcx, a);
    "exp2" X => |f, a| of_one(f, Unary::Exp2, a);
    "ndtr" X => |f, a| of_one(f, Unary::Ndtr, a);
    "log_ndtr" X => |f, a| of_one(f, Unary::LogNdtr, a);
    "ndtri" X => |f, a| of_one(f, Unary::Ndtri, a);
    "i0" X => |f, a| of_one(f, Unary::I0, a);
    "i0e" X => |f, a| of_one(f, Unary::I0e, a);
    "i1" X => |f, a| of_one(f, Unary::I1, a);
    "i1e" X => |f, a| of_one(f, Unary::I1e, a);
    "modified_bessel_i0" X => |f, a| of_one(f, Unary::I0, a);
    "modified_bessel_i1" X => |f, a| of_one(f, Unary::I1, a);
    "bessel_j0" X => |f, a| of_one(f, Unary::J0, a);
    "bessel_j1" X => |f, a| of_one(f, Unary::J1, a);
    "bessel_y0" X => |f, a| of_one(f, Unary::Y0, a);
    "bessel_y1" X => |f, a| of_one(f, Unary::Y1, a);
    "expit" X => |f, a| of_one(f, Unary::Activation(Activation::Sigmoid), a);
    "frac" X => frac;
    "sinc" X => sinc;
    "entr" X => entr;
    "logit" &["input", "eps"] => logit;
    "polygamma" &["n", "input"] => polygamma;
    "rad2deg" X => |f, a| f.binary(Binary::Mul, at(a, 0)?, float(180.0 / PI));
    "deg2rad" X => |f, a| f.binary(Binary::Mul, at(a, 0)?, float(PI / 180.0));
    "signbit" X => signbit;
    "sgn" X => sgn;
    "isposinf" X => |f, a| is_infinite(f, a, f64::INFINITY);
    "isneginf" X => |f, a| is_infinite(f, a, f64::NEG_INFINITY);
    "isreal" X => is_real;
    "angle" X => angle;
    "conj" X => conjugate;
    "_conj" X => conjugate;
    "conj_physical" X => conjugate;
    "_conj_physical" X => conjugate;
    // Nothing is pending: conjugates and negatives are computed where they are asked for.
    "resolve_conj" X => |_, a| at(a, 0);
    "resolve_neg" X => |_, a| at(a, 0);
    "arctan2" XY => |f, a| of_two(f, Binary::Atan2, a);
    "multiply" XY => |f, a| of_two(f, Binary::Mul, a);
    "greater" XY => |f, a| of_two(f, Binary::Gt, a);
    "greater_equal" XY => |f, a| of_two(f, Binary::Ge, a);
    "less" XY => |f, a| of_two(f, Binary::Lt, a);
    "less_equal" XY => |f, a| of_two(f, Binary::Le, a);
    "not_equal" XY => |f, a| of_two(f, Binary::Ne, a);
    "copysign" XY => |f, a| of_two(f, Binary::CopySign, a);
    "hypot" XY => |f, a| of_two(f, Binary::Hypot, a);
    "nextafter" XY => next_after;
    "gcd" XY => |f, a| of_two(f, Binary::Gcd, a);
    "lcm" XY => |f, a| of_two(f, Binary::Lcm, a);
    "logaddexp2" XY => |f, a| of_two(f, Binary::LogAddExp2, a);
    "igamma" XY => |f, a| of_two(f, Binary::GammaP, a);
    "igammac" XY => |f, a| of_two(f, Binary::GammaQ, a);
    "gammainc" XY => |f, a| of_two(f, Binary::GammaP, a);
    "gammaincc" XY => |f, a| of_two(f, Binary::GammaQ, a);
    "zeta" XY => |f, a| of_two(f, Binary::Zeta, a);
    "fmax" XY => |f, a| without_nan(f, Binary::Maximum, a);
    "fmin" XY => |f, a| without_nan(f, Binary::Minimum, a);
    "xlogy" XY => |f, a| times_log(f, Unary::Log, a);
    "xlog1py" XY => |f, a| times_log(f, Unary::Log1p, a);
    "heaviside" &["input", "values"] => heaviside;
    "ldexp" XY => ldexp;
    "float_power" &["input", "exponent"] => float_power;
};

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = function(r.kind());
    let Some(entry) = TABLE.iter().find(|entry| entry.name == name) else {
        return Err(r.error(BuildProblem::UnsupportedKind { nearest: None }));
    };
    let mut arguments = Vec::with_capacity(entry.arguments.len());
    for &key in entry.arguments {
        match key {
            "eps" => arguments.extend(r.arg(key)?), // may be missing
            _ => arguments.push(operand(r, key)?),
        }
    }
    Ok(Elementwise::boxed(Function { entry, arguments }))
}

struct Function {
    entry: &'static Entry,
    arguments: Vec<Arg<Scalar>>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.entry.name, self.arguments)
    }
}

impl Formula for Function {
    fn name(&self) -> &str {
        self.entry.name
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let terms = self.arguments.iter().map(|a| f.arg(a)).collect::<Result<Vec<_>, _>>()?;
        (self.entry.lower)(f, &terms)
    }
}

/// The argument at this place.
fn at(arguments: &[Term], place: usize) -> Result<Term, ShapeError> {
    arguments
        .get(place)
        .cloned()
        .ok_or_else(|| ShapeError::Invalid(format!("there is no argument {place}")))
}

fn two(arguments: &[Term]) -> Result<(Term, Term), ShapeError> {
    Ok((at(arguments, 0)?, at(arguments, 1)?))
}

pub(crate) fn float(x: f64) -> Term {
    Term::Number(Scalar::Float(x))
}

pub(crate) fn int(x: i64) -> Term {
    Term::Number(Scalar::Int(x))
}

fn of_one(f: &mut Lowering<'_>, op: Unary, a: &[Term]) -> Result<Term, ShapeError> {
    f.unary(op, at(a, 0)?)
}

fn of_two(f: &mut Lowering<'_>, op: Binary, a: &[Term]) -> Result<Term, ShapeError> {
    let (x, y) = two(a)?;
    f.binary(op, x, y)
}

/// x - trunc(x): NaN for what is infinite.
fn frac(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let x = at(a, 0)?;
    let whole = f.unary(Unary::Trunc, x.clone())?;
    f.binary(Binary::Sub, x, whole)
}

/// sin(pi x) / (pi x), and 1 at 0.
fn sinc(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let x = at(a, 0)?;
    let angle = f.binary(Binary::Mul, x.clone(), float(PI))?;
    let sine = f.unary(Unary::Sin, angle.clone())?;
    let y = f.binary(Binary::Div, sine, angle)?;
    let zero = f.binary(Binary::Eq, x, int(0))?;
    f.select(zero, int(1), y)
}

/// -x ln x: 0 at 0, -inf below.
fn entr(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let x = at(a, 0)?;
    let log = f.unary(Unary::Log, x.clone())?;
    let minus = f.unary(Unary::Neg, log)?;
    let y = f.binary(Binary::Mul, x.clone(), minus)?;
    let zero = f.binary(Binary::Eq, x.clone(), int(0))?;
    let y = f.select(zero, int(0), y)?;
    let negative = f.binary(Binary::Lt, x, int(0))?;
    f.select(negative, float(f64::NEG_INFINITY), y)
}

/// ln(x / (1 - x)), with x held within eps..1 - eps where eps is given.
fn logit(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    // 1 - x of an unsigned integer would wrap around.
    let [mut x] = f.promoted([at(a, 0)?]);
    match a.get(1) {
        None => {}
        Some(Term::Number(Scalar::Float(eps))) => {
            let low = f.binary(Binary::Lt, x.clone(), float(*eps))?;
            let high = f.binary(Binary::Gt, x.clone(), float(1.0 - eps))?;
            x = f.select(high, float(1.0 - eps), x)?;
            x = f.select(low, float(*eps), x)?;
        }
        Some(_) => return Err(ShapeError::Invalid("eps must be a float that is known".into())),
    }
    let rest = f.binary(Binary::Sub, int(1), x.clone())?;
    let odds = f.binary(Binary::Div, x, rest)?;
    f.unary(Unary::Log, odds)
}

/// The n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x).
fn polygamma(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let (n, x) = two(a)?;
    let n = match n {
        Term::Number(Scalar::Int(n)) if n >= 0 => n,
        _ => return Err(ShapeError::Invalid("n must be an integer of at least 0".into())),
    };
    if n == 0 {
        return f.unary(Unary::Digamma, x);
    }
    let factorial = Unary::Lgamma.of_f64(n as f64 + 1.0).exp();
    let factor = if n % 2 == 1 { factorial } else { -factorial };
    let zeta = f.binary(Binary::Zeta, float(n as f64 + 1.0), x)?;
    f.binary(Binary::Mul, zeta, float(factor))
}

/// Whether the sign bit is set: also that of -0.
fn signbit(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let mut x = at(a, 0)?;
    if x.dtype().is_float() {
        let one = f.cast(int(1), x.dtype());
        x = f.binary(Binary::CopySign, one, x)?;
    }
    f.binary(Binary::Lt, x, int(0))
}

/// x / |x|, and 0 at 0.
fn sgn(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let x = at(a, 0)?;
    if !x.dtype().is_complex() {
        return f.unary(Unary::Sign, x);
    }
    let length = f.unary(Unary::Abs, x.clone())?;
    let unit = f.binary(Binary::Div, x, length.clone())?;
    let zero = f.binary(Binary::Eq, length, int(0))?;
    f.select(zero, int(0), unit)
}

fn is_infinite(f: &mut Lowering<'_>, a: &[Term], infinity: f64) -> Result<Term, ShapeError> {
    let x = at(a, 0)?;
    match x.dtype() {
        dtype if dtype.is_float() => f.binary(Binary::Eq, x, float(infinity)),
        dtype if dtype.is_complex() => {
            Err(ShapeError::DType { input: 0, expected: "a real number".into(), found: dtype })
        }
        _ => f.binary(Binary::Ne, x.clone(), x),
    }
}

fn is_real(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let x = at(a, 0)?;
    if x.dtype().is_complex() {
        let imaginary = f.unary(Unary::Imag, x)?;
        return f.binary(Binary::Eq, imaginary, int(0));
    }
    // True of NaN as well.
    let no = f.unary(Unary::NotZero, x.clone())?;
    let yes = f.unary(Unary::LogicalNot, x)?;
    f.binary(Binary::LogicalOr, no, yes)
}

/// The angle in the complex plane: of a real number 0 or pi, and NaN of NaN.
fn angle(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let x = at(a, 0)?;
    if x.dtype().is_complex() {
        let (re, im) = (f.unary(Unary::Real, x.clone())?, f.unary(Unary::Imag, x)?);
        return f.binary(Binary::Atan2, im, re);
    }
    let negative = f.binary(Binary::Lt, x.clone(), int(0))?;
    let dtype = crate::support::promotion::inexact(x.dtype());
    let (zero, half_turn) = (f.cast(int(0), dtype), f.cast(float(PI), dtype));
    let y = f.select(negative, half_turn, zero)?;
    if !x.dtype().is_float() {
        return Ok(y);
    }
    let nan = f.binary(Binary::Ne, x.clone(), x.clone())?;
    f.select(nan, x, y)
}

fn conjugate(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let x = at(a, 0)?;
    if !x.dtype().is_complex() {
        return Ok(x);
    }
    let (re, im) = (f.unary(Unary::Real, x.clone())?, f.unary(Unary::Imag, x)?);
    let im = f.unary(Unary::Neg, im)?;
    f.binary(Binary::Complex, re, im)
}

/// The greater or the lesser one; a NaN gives way to a number.
fn without_nan(f: &mut Lowering<'_>, op: Binary, a: &[Term]) -> Result<Term, ShapeError> {
    let (a, b) = two(a)?;
    // The second of equals is taken: of 0 and -0 the one that comes first.
    let both = f.binary(op, b.clone(), a.clone())?;
    if !both.dtype().is_float() {
        return Ok(both);
    }
    let no_a = f.binary(Binary::Ne, a.clone(), a.clone())?;
    let no_b = f.binary(Binary::Ne, b.clone(), b.clone())?;
    let y = f.select(no_b, a, both)?;
    f.select(no_a, b, y)
}

/// x log(y), where 0 times anything but NaN is 0.
fn times_log(f: &mut Lowering<'_>, log: Unary, a: &[Term]) -> Result<Term, ShapeError> {
    let (x, y) = two(a)?;
    let [x, y] = f.promoted([x, y]);
    let logarithm = f.unary(log, y.clone())?;
    let product = f.binary(Binary::Mul, x.clone(), logarithm)?;
    let zero = f.binary(Binary::Eq, x, int(0))?;
    let product = f.select(zero, int(0), product)?;
    let nan = f.binary(Binary::Ne, y.clone(), y)?;
    f.select(nan, float(f64::NAN), product)
}

/// The number of the dtype after x, on the way to y. Those of half the width: what is nearest to x
/// and between half and one and a half of the distance to the next number away.
fn next_after(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let (x, y) = two(a)?;
    // The share of that distance in magnitudes, its least, and the greatest number.
    let [share, least, greatest] = match common_dtype([&x, &y]) {
        DType::F16 => [1.25 * 0.5f64.powi(11), 0.75 * 0.5f64.powi(24), 65504.0],
        DType::Bf16 => [1.25 * 0.5f64.powi(8), 0.75 * 0.5f64.powi(133), bf16::MAX.to_f64()],
        _ => return f.binary(Binary::NextAfter, x, y),
    };
    f.rounded_once([x, y], |f, [x, y]| {
        let size = f.unary(Unary::Abs, x.clone())?;
        let step = f.binary(Binary::Mul, size, float(share))?;
        let step = f.binary(Binary::Maximum, step, float(least))?;
        let (up, down) = (
            f.binary(Binary::Add, x.clone(), step.clone())?,
            f.binary(Binary::Sub, x.clone(), step)?,
        );
        let rises = f.binary(Binary::Gt, y.clone(), x.clone())?;
        let mut next = f.select(rises, up, down)?;
        // Below infinity comes the greatest number.
        for (infinity, greatest) in [(f64::INFINITY, greatest), (f64::NEG_INFINITY, -greatest)] {
            let there = f.binary(Binary::Eq, x.clone(), float(infinity))?;
            next = f.select(there, float(greatest), next)?;
        }
        let same = f.binary(Binary::Eq, x.clone(), y.clone())?;
        let next = f.select(same, y.clone(), next)?;
        let nan = f.binary(Binary::Ne, y.clone(), y.clone())?;
        let next = f.select(nan, y, next)?;
        let nan = f.binary(Binary::Ne, x.clone(), x.clone())?;
        f.select(nan, x, next)
    })
}

/// 0 below zero, 1 above, at zero what `values` says.
fn heaviside(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let (x, values) = two(a)?;
    let dtype = x.dtype();
    if values.dtype() != dtype || dtype.is_complex() {
        let what = format!(
            "input and values must be real and of one dtype, found {dtype} and {}",
            values.dtype()
        );
        return Err(ShapeError::Invalid(what));
    }
    let above = f.binary(Binary::Gt, x.clone(), int(0))?;
    let above = f.cast(above, dtype);
    let zero = f.binary(Binary::Eq, x, int(0))?;
    f.select(zero, values, above)
}

/// x 2^other: infinite only where that is.
fn ldexp(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let (x, other) = two(a)?;
    if x.dtype().is_complex() || other.dtype().is_complex() {
        let power = f.pow(float(2.0), other)?;
        return f.binary(Binary::Mul, x, power);
    }
    let terms = f.promoted([x, other]);
    f.rounded_once(terms, |f, [x, other]| {
        // Twice half of the power, which may be beyond the range of the dtype.
        let half = f.binary(Binary::Mul, other.clone(), float(0.5))?;
        let half = f.unary(Unary::Floor, half)?;
        // Nothing is left of infinity, as of 0.
        let whole = f.binary(Binary::Eq, half.clone(), other.clone())?;
        let rest = f.binary(Binary::Sub, other, half.clone())?;
        let rest = f.select(whole, float(0.0), rest)?;
        let (half, rest) = (f.pow(float(2.0), half)?, f.pow(float(2.0), rest)?);
        let x = f.binary(Binary::Mul, x, half)?;
        f.binary(Binary::Mul, x, rest)
    })
}

/// Powers in f64 (c128 of complex numbers), whatever the arguments are.
fn float_power(f: &mut Lowering<'_>, a: &[Term]) -> Result<Term, ShapeError> {
    let (x, exponent) = two(a)?;
    let complex = Category::of(x.dtype()).max(Category::of(exponent.dtype())) == Category::Complex;
    let dtype = if complex { DType::C128 } else { DType::F64 };
    let mut wide = |x| match x {
        Term::Number(Scalar::Int(n)) => float(n as f64),
        Term::Number(number) => Term::Number(number),
        tensor => f.cast(tensor, dtype),
    };
    let (x, exponent) = (wide(x), wide(exponent));
    f.pow(x, exponent)
}

register_op!(mvlgamma => "torch.mvlgamma", "torch.special.multigammaln");

/// <https://pytorch.org/docs/stable/special.html#torch.special.multigammaln>
fn mvlgamma(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let p: i64 = r.required("p")?;
    if !(1..=MOST_DIMENSIONS).contains(&p) {
        return Err(r.bad("p", format!("an integer in 1..={MOST_DIMENSIONS}")));
    }
    Ok(Elementwise::boxed(MultiGamma { input: r.required_input("input")?, p }))
}

/// Dimensions of a multivariate gamma function: each is a term of the formula.
const MOST_DIMENSIONS: i64 = 64;

#[derive(Debug)]
struct MultiGamma {
    input: usize,
    p: i64,
}

impl Formula for MultiGamma {
    fn name(&self) -> &str {
        "mvlgamma"
    }

    /// p (p - 1) / 4 ln(pi) + the sum of lgamma(x - j / 2) over j in 0..p
    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let x = f.input(self.input)?;
        let mut sum = float((self.p * (self.p - 1)) as f64 / 4.0 * PI.ln());
        for j in 0..self.p {
            let shifted = f.binary(Binary::Sub, x.clone(), float(j as f64 / 2.0))?;
            let part = f.unary(Unary::Lgamma, shifted)?;
            sum = f.binary(Binary::Add, sum, part)?;
        }
        Ok(sum)
    }
}

register_op!(rsub => "torch.rsub");

/// `other - alpha x input`, what is written `other - input` where `other` is a number.
fn rsub(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let alpha = r.arg("alpha")?.unwrap_or(Arg::Value(Scalar::Int(1)));
    let arguments = [operand(r, "input")?, operand(r, "other")?];
    Ok(Elementwise::boxed(Rsub { arguments, alpha }))
}

#[derive(Debug)]
struct Rsub {
    arguments: [Arg<Scalar>; 2],
    alpha: Arg<Scalar>,
}

impl Formula for Rsub {
    fn name(&self) -> &str {
        "rsub"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let [x, other] = &self.arguments;
        let (x, other, alpha) = (f.arg(x)?, f.arg(other)?, f.arg(&self.alpha)?);
        f.sum(Binary::Sub, other, alpha, x)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, op, tensor, try_op, values};
    use num_complex::Complex;
    use plutino_tensor::{DType, Element, Tensor, bf16, f16};

    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;

    fn one(kind: &str, x: &[f32]) -> Vec<f32> {
        values(&check(&*op(&format!("{kind} f 1 1 0 1")), &[tensor([x.len()], x)])[0])
    }

    fn two<A: Element, B: Element>(kind: &str, a: &[A], b: &[B]) -> Tensor {
        let inputs = [tensor([a.len()], a), tensor([b.len()], b)];
        check(&*op(&format!("{kind} f 2 1 0 1 2")), &inputs).remove(0)
    }

    /// As PyTorch, which takes the first of 0 and -0 (but for bf16, where it takes the second).
    #[test]
    fn the_first_zero_gives_the_sign() {
        let signs = |y: &Tensor| {
            let y = values::<f32>(&y.cast(DType::F32).unwrap());
            y.iter().map(|y| y.is_sign_negative()).collect::<Vec<_>>()
        };
        let (plus, minus) = ([0.0f32; 40], [-0.0f32; 40]);
        for kind in ["torch.fmax", "torch.fmin"] {
            assert_eq!(signs(&two(kind, &plus, &minus)), [false; 40]);
            assert_eq!(signs(&two(kind, &minus, &plus)), [true; 40]);
            let wide = |x: [f32; 40]| x.map(f64::from);
            assert_eq!(signs(&two(kind, &wide(plus), &wide(minus))), [false; 40]);
            assert_eq!(signs(&two(kind, &wide(minus), &wide(plus))), [true; 40]);
        }
    }

    #[test]
    fn every_function_of_the_table_is_registered_and_computes() {
        let kinds = crate::registry().unwrap();
        for entry in super::TABLE {
            let spaces = ["torch.", "torch.special."];
            let known = spaces.map(|space| kinds.get(&format!("{space}{}", entry.name)));
            assert!(known.iter().any(Option::is_some), "{}", entry.name);
        }
        let named = |entry: &crate::OpEntry| entry.file.ends_with("table.rs");
        for (kind, _) in kinds.iter().filter(|(_, entry)| named(entry)) {
            let whole = ["gcd", "lcm"].iter().any(|w| kind.contains(w));
            let x = tensor([2, 3], &[0.1f32, 0.5, 0.9, 0.3, 0.7, 1.0]);
            let x = if whole { x.cast(DType::I64).unwrap() } else { x };
            let line = match kind {
                "torch.mvlgamma" | "torch.special.multigammaln" => format!("{kind} f 1 1 0 1 p=2"),
                _ if kind.ends_with("polygamma") => format!("{kind} f 1 1 0 1 n=2"),
                _ => format!("{kind} f 1 1 0 1"),
            };
            let y = match try_op(&line, &[]) {
                Ok(operator) => check(&*operator, &[x]),
                Err(_) => check(&*op(&format!("{kind} f 2 1 0 1 2")), &[x.clone(), x]),
            };
            assert_eq!(y[0].shape().dims(), [2, 3], "{kind}");
        }
    }

    #[test]
    fn parts_and_signs() {
        let x = [-2.5, -0.0, 1.25, INF, NAN];
        let y = one("torch.frac", &x);
        assert_eq!(y[..3], [-0.5, 0.0, 0.25]);
        assert!(y[3].is_nan() && y[4].is_nan());
        let sign = check(&*op("torch.signbit f 1 1 0 1"), &[tensor([4], &x[..4])]);
        assert_eq!(values::<bool>(&sign[0]), [true, true, false, false]);
        let sign = check(&*op("torch.signbit f 1 1 0 1"), &[tensor([2], &[-1i32, 0])]);
        assert_eq!(values::<bool>(&sign[0]), [true, false]);
        let signs = two("torch.copysign", &[1.0f32, -2.0], &[-0.0f32, 3.0]);
        assert_eq!(values::<f32>(&signs), [-1.0, 2.0]);
        assert_eq!(two("torch.copysign", &[1i64], &[-2i64]), tensor([1], &[-1.0f32]));
        let line = "torch.copysign f 1 1 0 1 $input=0 other=-1.0";
        assert_eq!(check(&*op(line), &[tensor([1], &[3.0f32])])[0], tensor([1], &[-3.0f32]));
        let finite = check(&*op("torch.isposinf f 1 1 0 1"), &[tensor([1], &[1.0f32])]);
        assert_eq!(values::<bool>(&finite[0]), [false]);
    }

    #[test]
    fn special_functions() {
        let near = |kind: &str, x: f32, y: f32| {
            assert_close(
                &tensor([1], &one(kind, &[x])),
                &tensor([1], &[y]),
                1e-6 * y.abs().max(1e-3),
            );
        };
        near("torch.exp2", 3.5, 11.313_708);
        near("torch.erfinv", 0.5, 0.476_936_28);
        near("torch.digamma", 0.25, -4.227_453_5);
        near("torch.special.psi", 1.0, -0.577_215_7);
        near("torch.i0", 1.0, 1.266_065_8);
        near("torch.special.i1e", -1.0, -0.207_910_42);
        near("torch.special.ndtri", 0.975, 1.959_964);
        near("torch.special.ndtr", -1.0, 0.158_655_26);
        near("torch.special.log_ndtr", -10.0, -53.231_285);
        near("torch.special.erfcx", 2.0, 0.255_395_68);
        near("torch.special.bessel_j0", 1.0, 0.765_197_7);
        near("torch.logit", 0.25, -1.098_612_3);
        near("torch.special.expit", 0.0, 0.5);
        near("torch.sinc", 0.5, 0.636_619_75);
        near("torch.rad2deg", 1.0, 57.295_78);
        assert_eq!(one("torch.sinc", &[0.0]), [1.0]);
        assert_eq!(one("torch.special.entr", &[0.0, -1.0, 1.0]), [0.0, -INF, 0.0]);
        let line = "torch.logit f 1 1 0 1 eps=0.25";
        let y = check(&*op(line), &[tensor([3], &[0.0f32, 0.5, 2.0])]);
        assert_close(&y[0], &tensor([3], &[-1.098_612_3f32, 0.0, 1.098_612_3]), 1e-6);
        let line = "torch.polygamma f 1 1 0 1 n=1";
        let y = check(&*op(line), &[tensor([1], &[1.0f32])]);
        assert_close(&y[0], &tensor([1], &[1.644_934_f32]), 1e-6);
        let line = "torch.mvlgamma f 1 1 0 1 p=2";
        let y = check(&*op(line), &[tensor([1], &[3.0f32])]);
        // ln(pi) / 2 + lgamma(3) + lgamma(2.5)
        assert_close(&y[0], &tensor([1], &[1.550_194f32]), 1e-5);
        assert!(try_op("torch.mvlgamma f 1 1 0 1 p=1000000000", &[]).is_err());
        error(&*op("torch.polygamma f 1 1 0 1 n=-1"), &[tensor([1], &[1.0f32])]);
    }

    #[test]
    fn zeros_and_nan_as_pytorch_has_them() {
        let y = two("torch.xlogy", &[0.0f32, 0.0, 2.0, 1.0], &[0.0f32, NAN, 1.0, 0.0]);
        assert_close(&y, &tensor([4], &[0.0, NAN, 0.0, -INF]), 0.0);
        assert_eq!(two("torch.xlogy", &[0i64], &[0i64]), tensor([1], &[0.0f32]));
        // Promoted before the logarithm is computed.
        let (x, y) = (tensor([2], &[2.0f32, 3.0]), tensor([2], &[10.0f32, 7.0]));
        let f16 = |t: &Tensor| t.cast(DType::F16).unwrap();
        let line = op("torch.xlogy f 2 1 0 1 2");
        let z = check(&*line, &[x.clone(), f16(&y)]).remove(0);
        assert_close(&z, &tensor([2], &[4.605_17f32, 5.837_731]), 1e-6);
        let z = check(&*line, &[f16(&x), y.cast(DType::I64).unwrap()]);
        assert_eq!(z[0].dtype(), DType::F16);
        let z = check(&*op("torch.ldexp f 2 1 0 1 2"), &[f16(&x), tensor([2], &[1i64, 2])]);
        assert_eq!(z[0], f16(&tensor([2], &[4.0f32, 12.0])));
        // 1 - x of an unsigned integer is no such.
        let z = check(&*op("torch.logit f 1 1 0 1"), &[tensor([3], &[0u8, 1, 5])]).remove(0);
        assert_close(&z, &tensor([3], &[-INF, INF, NAN]), 0.0);
        let y = two("torch.fmax", &[NAN, 1.0f32, NAN, 2.0], &[1.0f32, NAN, NAN, 3.0]);
        assert_close(&y, &tensor([4], &[1.0, 1.0, NAN, 3.0]), 0.0);
        assert_eq!(two("torch.fmin", &[3i64], &[2i32]), tensor([1], &[2i64]));
        let y = two("torch.heaviside", &[-1.0f32, 0.0, 2.0, NAN], &[0.5f32]);
        assert_eq!(values::<f32>(&y), [0.0, 0.5, 1.0, 0.0]);
        let inputs = [tensor([1], &[1.0f32]), tensor([1], &[1i64])];
        error(&*op("torch.heaviside f 2 1 0 1 2"), &inputs);
        let y = one("torch.angle", &[-1.0, -0.0, 2.0, NAN]);
        assert_eq!(y[..3], [std::f32::consts::PI, 0.0, 0.0]);
        assert!(y[3].is_nan());
    }

    #[test]
    fn whole_numbers_and_powers() {
        assert_eq!(two("torch.gcd", &[12i64, 0], &[18i32, 5]), tensor([2], &[6i64, 5]));
        assert_eq!(two("torch.lcm", &[4u8], &[6u8]), tensor([1], &[12u8]));
        error(&*op("torch.gcd f 2 1 0 1 2"), &[tensor([1], &[1.0f32]), tensor([1], &[1.0f32])]);
        assert_eq!(two("torch.ldexp", &[3.0f32], &[2i64]), tensor([1], &[12.0f32]));
        // Where the power is beyond the range, and the result is not; a half of an exponent.
        let y = two("torch.ldexp", &[1e-30f32, 3.0, 1.0, 3.0], &[150.0f32, 200.0, -140.0, 2.5]);
        let expected = [1.427_247_7e15, INF, 0.5f32.powi(140), 16.970_563];
        assert_close(&y, &tensor([4], &expected), 1e-6 * 1.5e15);
        let (inf, none) = (f32::INFINITY, f32::NEG_INFINITY);
        let y = two("torch.ldexp", &[2.0f32, 2.0, -3.0], &[none, inf, inf]);
        assert_eq!(y, tensor([3], &[0.0f32, inf, none]));
        assert_eq!(two("torch.ldexp", &[3i64], &[-1i64]), tensor([1], &[1.5f32]));
        let z = Complex::new(1.0f32, 2.0);
        assert_eq!(two("torch.ldexp", &[z], &[3i64]), tensor([1], &[z * 8.0]));
        assert_eq!(two("torch.float_power", &[2i64], &[-1i64]), tensor([1], &[0.5f64]));
        let line = "torch.float_power f 1 1 0 1 $input=0 exponent=2";
        assert_eq!(check(&*op(line), &[tensor([1], &[3i32])])[0], tensor([1], &[9.0f64]));
        let y =
            check(&*op("torch.rsub f 1 1 0 1 $input=0 other=1 alpha=2"), &[tensor([1], &[3i64])]);
        assert_eq!(y[0], tensor([1], &[-5i64]));
        assert_eq!(two("torch.rsub", &[1.0f32], &[3.0f32]), tensor([1], &[2.0f32]));
    }

    /// All of them, in both directions.
    #[test]
    fn the_next_number_of_half_the_width() {
        let line = op("torch.nextafter f 2 1 0 1 2");
        for dtype in [DType::F16, DType::Bf16] {
            let number = |bits: u16| match dtype {
                DType::F16 => f16::from_bits(bits).to_f32(),
                _ => bf16::from_bits(bits).to_f32(),
            };
            // Magnitudes up to infinity; the next of the greatest is that.
            let infinity = if dtype == DType::F16 { 0x7c00u16 } else { 0x7f80 };
            let x: Vec<f32> = (0..=infinity).map(number).collect();
            let next = |sign: f32, to: f32| {
                let all = tensor([x.len()], &x.iter().map(|x| sign * x).collect::<Vec<_>>());
                let to = tensor([], &[to]).cast(dtype).unwrap();
                let y = check(&*line, &[all.cast(dtype).unwrap(), to]).remove(0);
                values::<f32>(&y.cast(DType::F32).unwrap())
            };
            for sign in [1.0, -1.0] {
                let (up, down) = (next(sign, sign * INF), next(sign, 0.0));
                for (i, &x) in x.iter().enumerate() {
                    let above = if x == INF { INF } else { number(i as u16 + 1) };
                    let below = if i == 0 { 0.0 } else { number(i as u16 - 1) };
                    assert_eq!((up[i], down[i]), (sign * above, sign * below), "{sign} {x}");
                }
            }
            assert!(next(1.0, NAN).iter().all(|y| y.is_nan()));
        }
    }

    #[test]
    fn complex_numbers() {
        let z = tensor([2], &[Complex::new(3.0f32, -4.0), Complex::new(0.0, 0.0)]);
        let run = |kind: &str| {
            check(&*op(&format!("{kind} f 1 1 0 1")), std::slice::from_ref(&z)).remove(0)
        };
        let y = values::<Complex<f32>>(&run("torch.sgn"));
        assert_eq!(y, [Complex::new(0.6, -0.8), Complex::new(0.0, 0.0)]);
        assert_eq!(values::<Complex<f32>>(&run("torch.conj"))[0], Complex::new(3.0, 4.0));
        assert_eq!(run("torch.resolve_conj"), z);
        assert_eq!(values::<f32>(&run("torch.angle")), [-0.927_295_2, 0.0]);
        assert_eq!(values::<bool>(&run("torch.isreal")), [false, true]);
        assert_eq!(one("torch.conj_physical", &[2.0]), [2.0]);
    }
}

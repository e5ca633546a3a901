//! Activation functions: `nn.ReLU`, `F.gelu`, `torch.clamp` and the rest of
//! <https://pytorch.org/docs/stable/nn.functional.html#non-linear-activation-functions>.
//!
//! One line registers a function; its formula is
//! [`Activation::apply`](plutino_kernels::Activation::apply).

use crate::elementwise::{Elementwise, Formula, Lowering, Term};
use crate::support::promotion::{Category, range_of};
use crate::{
    Arg, BuildError, NodeReader, Operator, Role, ShapeError, TensorValue, Weight, register_op,
};
use plutino_kernels::activation::{Activation, SELU_ALPHA, SELU_SCALE};
use plutino_kernels::elementwise::{Binary, Scalar, Unary};
use plutino_tensor::{DType, Shape};

/// Registers activation functions, each as a function from its parameters to an [`Activation`].
macro_rules! activations {
    ($($kinds:literal | $more:literal $(| $rest:literal)* => |$r:ident| $activation:expr;)*) => {$(
        const _: () = {
            fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
                let input = r.required_input("input")?;
                r.raw("inplace");
                let $r = r;
                Ok(Elementwise::boxed(Function { activation: $activation, input }))
            }
            register_op!(build => $kinds, $more $(, $rest)*);
        };
    )*};
}

activations! {
    "nn.ReLU" | "F.relu" | "torch.relu" => |_r| Activation::Relu;
    "nn.ReLU6" | "F.relu6" => |_r| Activation::Relu6;
    "nn.LeakyReLU" | "F.leaky_relu" => |r| Activation::LeakyRelu { slope: r.or("negative_slope", 0.01)? };
    "nn.ELU" | "F.elu" => |r| Activation::Elu { alpha: r.or("alpha", 1.0)? };
    "nn.CELU" | "F.celu" => |r| celu(r)?;
    "nn.SELU" | "F.selu" => |_r| Activation::Selu;
    "nn.Sigmoid" | "F.sigmoid" | "torch.sigmoid" => |_r| Activation::Sigmoid;
    "nn.LogSigmoid" | "F.logsigmoid" => |_r| Activation::LogSigmoid;
    "nn.SiLU" | "F.silu" => |_r| Activation::Silu;
    "nn.Hardsigmoid" | "F.hardsigmoid" => |_r| Activation::HardSigmoid;
    "nn.Hardswish" | "F.hardswish" => |_r| Activation::HardSwish;
    "nn.Tanh" | "F.tanh" | "torch.tanh" => |_r| Activation::Tanh;
    "nn.GELU" | "F.gelu" => |r| r.one_of("approximate", GELU, Some(Activation::Gelu))?;
    "nn.Mish" | "F.mish" => |_r| Activation::Mish;
    "nn.Softplus" | "F.softplus" => |r| softplus(r)?;
    "nn.Softsign" | "F.softsign" => |_r| Activation::Softsign;
    "nn.Tanhshrink" | "F.tanhshrink" => |_r| Activation::Tanhshrink;
    "nn.Softshrink" | "F.softshrink" => |r| Activation::Softshrink { lambda: r.or("lambd", 0.5)? };
    "nn.Hardshrink" | "F.hardshrink" => |r| Activation::Hardshrink { lambda: r.or("lambd", 0.5)? };
    "nn.Threshold" | "F.threshold" => |r| Activation::Threshold {
        threshold: r.required("threshold")?,
        value: r.required("value")?,
    };
    "nn.RReLU" | "F.rrelu" => |r| rrelu(r)?;
}

const GELU: &[(&str, Activation)] = &[("none", Activation::Gelu), ("tanh", Activation::GeluTanh)];

/// A parameter that is divided by.
fn not_zero(r: &mut NodeReader<'_>, key: &str, default: f64) -> Result<f64, BuildError> {
    match r.or(key, default)? {
        0.0 => Err(r.bad(key, "a number other than zero")),
        x => Ok(x),
    }
}

fn celu(r: &mut NodeReader<'_>) -> Result<Activation, BuildError> {
    Ok(Activation::Celu { alpha: not_zero(r, "alpha", 1.0)? })
}

fn softplus(r: &mut NodeReader<'_>) -> Result<Activation, BuildError> {
    let (beta, threshold) = (not_zero(r, "beta", 1.0)?, r.or("threshold", 20.0)?);
    Ok(Activation::Softplus { beta, threshold })
}

register_op!(native_elu => "aten::elu");

/// What ELU, CELU and SELU are to PyTorch: `scale x` above zero, else
/// `scale alpha (e^(input_scale x) - 1)`.
fn native_elu(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let alpha: f64 = r.or("alpha", 1.0)?;
    let (scale, input_scale) = (r.or("scale", 1.0)?, r.or("input_scale", 1.0)?);
    let input = r.required_input("input")?;
    // pnnx writes nine digits.
    let is = |x: f64, y: f64| x as f32 == y as f32;
    let activation = match (scale, input_scale) {
        (1.0, 1.0) => Activation::Elu { alpha },
        (1.0, inverse) if alpha != 0.0 && is(inverse, alpha.recip()) => Activation::Celu { alpha },
        (scale, 1.0) if is(alpha, SELU_ALPHA) && is(scale, SELU_SCALE) => Activation::Selu,
        _ => return Ok(Elementwise::boxed(ScaledElu { input, alpha, scale, input_scale })),
    };
    Ok(Elementwise::boxed(Function { activation, input }))
}

#[derive(Debug)]
struct ScaledElu {
    input: usize,
    alpha: f64,
    scale: f64,
    input_scale: f64,
}

impl Formula for ScaledElu {
    fn name(&self) -> &str {
        "elu"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let number = |x| Term::Number(Scalar::Float(x));
        let x = f.input(self.input)?;
        if is_integer(&x) {
            return Err(ShapeError::Invalid(format!("elu is not defined for {}", x.dtype())));
        }
        let inner = f.binary(Binary::Mul, x.clone(), number(self.input_scale))?;
        let below = f.unary(Unary::Expm1, inner)?;
        let below = f.binary(Binary::Mul, below, number(self.alpha * self.scale))?;
        let above = f.binary(Binary::Mul, x.clone(), number(self.scale))?;
        let positive = f.binary(Binary::Gt, x, number(0.0))?;
        f.select(positive, above, below)
    }
}

register_op!(native_rrelu => "aten::rrelu_with_noise");

/// The native form of `F.rrelu`; the noise is of training.
fn native_rrelu(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    r.input("noise");
    r.raw("generator");
    Ok(Elementwise::boxed(Function { activation: rrelu(r)?, input }))
}

/// In inference the slope is the middle of the interval: exactly so in f64, as in PyTorch.
fn rrelu(r: &mut NodeReader<'_>) -> Result<Activation, BuildError> {
    if r.or("training", false)? {
        return Err(r.bad("training", "False: plutino only infers"));
    }
    let (lower, upper): (f64, f64) = (r.or("lower", 1.0 / 8.0)?, r.or("upper", 1.0 / 3.0)?);
    Ok(Activation::LeakyRelu { slope: (lower + upper) / 2.0 })
}

#[derive(Debug)]
struct Function {
    activation: Activation,
    input: usize,
}

impl Formula for Function {
    fn name(&self) -> &str {
        self.activation.name()
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let x = f.input(self.input)?;
        let zero = Term::Number(Scalar::Int(0));
        match self.activation {
            // Those that PyTorch has for integers, too.
            Activation::Relu if is_integer(&x) => f.binary(Binary::Maximum, x, zero),
            Activation::Relu6 if is_integer(&x) => {
                let x = f.binary(Binary::Maximum, x, zero)?;
                f.binary(Binary::Minimum, x, Term::Number(Scalar::Int(6)))
            }
            Activation::Sigmoid | Activation::Tanh if is_integer(&x) => {
                let x = f.cast(x, DType::F32);
                f.unary(Unary::Activation(self.activation), x)
            }
            // Of integers both numbers become such.
            Activation::Threshold { threshold, value } if is_integer(&x) => {
                let [threshold, value] =
                    [threshold, value].map(|x| Term::Number(Scalar::Int(x as i64)));
                let above = f.binary(Binary::Gt, x.clone(), threshold)?;
                f.select(above, x, value)
            }
            _ if is_integer(&x) => {
                let name = self.activation.name();
                Err(ShapeError::Invalid(format!("{name} is not defined for {}", x.dtype())))
            }
            activation => f.unary(Unary::Activation(activation), x),
        }
    }

    fn role(&self) -> Option<Role> {
        Some(Role::Activation(self.activation))
    }
}

fn is_integer(x: &Term) -> bool {
    Category::of(x.dtype()) <= Category::Integer
}

register_op!(clamp => "torch.clamp", "torch.clip", "torch.clamp_min", "torch.clamp_max");

/// <https://pytorch.org/docs/stable/generated/torch.clamp.html>: bounds are numbers or tensors,
/// either may be missing.
fn clamp(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    let (min, max) = (r.arg::<Scalar>("min")?, r.arg::<Scalar>("max")?);
    Ok(Elementwise::boxed(Clamp { input, min, max, keeps_integers: false }))
}

register_op!(hardtanh => "nn.Hardtanh", "F.hardtanh");

/// <https://pytorch.org/docs/stable/generated/torch.nn.Hardtanh.html>
fn hardtanh(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    r.raw("inplace");
    let min = r.or("min_val", Scalar::Int(-1))?;
    let max = r.or("max_val", Scalar::Int(1))?;
    let (min, max) = (Some(Arg::Value(min)), Some(Arg::Value(max)));
    Ok(Elementwise::boxed(Clamp { input, min, max, keeps_integers: true }))
}

#[derive(Debug)]
struct Clamp {
    input: usize,
    min: Option<Arg<Scalar>>,
    max: Option<Arg<Scalar>>,
    /// Whether bounds become integers beside integers, and not these floats.
    keeps_integers: bool,
}

impl Clamp {
    /// Both bounds as numbers, infinite where there is none. A bound that is NaN, which makes every
    /// result NaN, is left to the general formula.
    fn activation(&self) -> Option<Activation> {
        let number = |bound: &Option<Arg<Scalar>>, none: f64| match bound {
            None => Some(none),
            Some(Arg::Value(Scalar::Int(i))) => Some(*i as f64),
            Some(Arg::Value(Scalar::Float(x))) if !x.is_nan() => Some(*x),
            _ => None,
        };
        let lo = number(&self.min, f64::NEG_INFINITY)?;
        Some(Activation::Clamp { lo, hi: number(&self.max, f64::INFINITY)? })
    }

    /// A bound of integers of this dtype: one that none of them reaches is the outermost one.
    fn beside_integers(&self, bound: Scalar, dtype: DType) -> Scalar {
        let Some([least, most]) = range_of(dtype) else { return bound };
        match bound {
            Scalar::Float(x) if self.keeps_integers => Scalar::Int((x as i64).clamp(least, most)),
            Scalar::Int(i) => Scalar::Int(i.clamp(least, most)),
            other => other,
        }
    }
}

impl Formula for Clamp {
    fn name(&self) -> &str {
        "clamp"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let mut x = f.input(self.input)?;
        match self.activation() {
            Some(activation) if x.dtype() == DType::F32 => {
                f.unary(Unary::Activation(activation), x)
            }
            _ => {
                for (op, bound) in [(Binary::Maximum, &self.min), (Binary::Minimum, &self.max)] {
                    if let Some(bound) = bound {
                        let mut bound = f.arg(bound)?;
                        if let Term::Number(number) = &mut bound
                            && x.dtype().is_integer()
                        {
                            *number = self.beside_integers(*number, x.dtype());
                        }
                        // The second of equals is taken: 0 within bounds keeps its sign.
                        x = f.binary(op, bound, x)?;
                    }
                }
                Ok(x)
            }
        }
    }

    fn role(&self) -> Option<Role> {
        self.activation().map(Role::Activation)
    }
}

register_op!(prelu => "nn.PReLU");

/// <https://pytorch.org/docs/stable/generated/torch.nn.PReLU.html>: one slope for all, or one for
/// each channel.
fn prelu(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    let n = r.or("num_parameters", 1)?;
    let weight = r.weight("weight", &[n])?;
    // A single slope is a number like any other, and can be fused like one.
    if n == 1
        && let Ok(slope) = weight.tensor()
        && let Ok(slope) = slope.cast(DType::F64)
        && let Ok(&[slope]) = slope.as_slice::<f64>()
    {
        let activation = Activation::LeakyRelu { slope };
        return Ok(Elementwise::boxed(Function { activation, input }));
    }
    Ok(Elementwise::boxed(Prelu { input, slope: Slope::Weight(weight) }))
}

register_op!(functional_prelu => "F.prelu");

/// <https://pytorch.org/docs/stable/generated/torch.nn.functional.prelu.html>
fn functional_prelu(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, slope) = (r.required_input("input")?, Slope::Input(r.required_input("weight")?));
    Ok(Elementwise::boxed(Prelu { input, slope }))
}

register_op!(native_prelu => "aten::_prelu_kernel");

/// The native form of `F.prelu`, whose slopes have been brought into the shape in which they are
/// broadcast.
fn native_prelu(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, slope) = (r.required_input("input")?, r.required_input("weight")?);
    Ok(Elementwise::boxed(Broadcast { input, slope }))
}

#[derive(Debug)]
struct Broadcast {
    input: usize,
    slope: usize,
}

impl Formula for Broadcast {
    fn name(&self) -> &str {
        "prelu"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let (x, slope) = (f.input(self.input)?, f.input(self.slope)?);
        let slope = f.cast(slope, x.dtype());
        f.binary(Binary::Prelu, x, slope)
    }
}

#[derive(Debug)]
struct Prelu {
    input: usize,
    slope: Slope,
}

#[derive(Debug)]
enum Slope {
    Weight(Weight),
    Input(usize),
}

impl Formula for Prelu {
    fn name(&self) -> &str {
        "prelu"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let shape = TensorValue::at(f.specs(), self.input)?.shape().clone();
        let slopes = match &self.slope {
            Slope::Weight(w) => w.spec.shape.numel(),
            Slope::Input(at) => TensorValue::at(f.specs(), *at)?.shape().numel(),
        };
        let channels = shape.get(1).copied().unwrap_or(1);
        if slopes != 1 && slopes != channels {
            return Err(ShapeError::Size {
                input: self.input,
                dim: 1,
                expected: format!("{slopes}, one for each slope"),
                found: shape,
            });
        }
        // Along dimension 1: (C, 1, 1, ...).
        let mut along = Shape::scalar();
        if slopes > 1 {
            along.push(slopes);
            (2..shape.rank()).for_each(|_| along.push(1));
        }
        let x = f.input(self.input)?;
        let slope = match &self.slope {
            Slope::Weight(w) => f.weight(w, along)?,
            Slope::Input(at) => f.input_as(*at, along)?,
        };
        let slope = f.cast(slope, x.dtype());
        f.binary(Binary::Prelu, x, slope)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{
        assert_close, check, check_line, error, op, op_with, random, tensor, try_op, values,
    };
    use crate::{Role, registry};
    use plutino_kernels::Activation;
    use plutino_tensor::{DType, Tensor};

    /// Every line with what it is decoded to.
    const LINES: &[(&str, Activation)] = &[
        ("nn.ReLU a 1 1 0 1", Activation::Relu),
        ("F.relu6 a 1 1 0 1 $input=0", Activation::Relu6),
        ("nn.LeakyReLU a 1 1 0 1 negative_slope=-0.24", Activation::LeakyRelu { slope: -0.24 }),
        ("F.leaky_relu a 1 1 0 1 negative_slope=0", Activation::LeakyRelu { slope: 0.0 }),
        ("nn.RReLU a 1 1 0 1 lower=0.1 upper=0.42", Activation::LeakyRelu { slope: 0.26 }),
        ("F.elu a 1 1 0 1 alpha=-0.6", Activation::Elu { alpha: -0.6 }),
        ("F.celu a 1 1 0 1 alpha=2", Activation::Celu { alpha: 2.0 }),
        ("nn.SELU a 1 1 0 1", Activation::Selu),
        ("F.gelu a 1 1 0 1", Activation::Gelu),
        ("nn.GELU a 1 1 0 1 approximate=tanh", Activation::GeluTanh),
        ("nn.Hardtanh a 1 1 0 1 max_val=1.0 min_val=-1.0", Activation::Clamp { lo: -1.0, hi: 1.0 }),
        ("torch.clamp a 1 1 0 1 max=6.0 min=0", Activation::Clamp { lo: 0.0, hi: 6.0 }),
        (
            "torch.clamp a 1 1 0 1 max=None min=0.5",
            Activation::Clamp { lo: 0.5, hi: f64::INFINITY },
        ),
        (
            "F.softplus a 1 1 0 1 beta=-0.7 threshold=15",
            Activation::Softplus { beta: -0.7, threshold: 15.0 },
        ),
        ("F.softshrink a 1 1 0 1 lambd=0.22", Activation::Softshrink { lambda: 0.22 }),
        ("nn.Hardshrink a 1 1 0 1 lambd=0.2", Activation::Hardshrink { lambda: 0.2 }),
        (
            "F.threshold a 1 1 0 1 threshold=0.1 value=20",
            Activation::Threshold { threshold: 0.1, value: 20.0 },
        ),
    ];

    /// As PyTorch: between a bound of 0 and an element of 0 it is the element, in every dtype.
    #[test]
    fn a_zero_at_a_bound_keeps_its_sign() {
        let x = tensor([40], &[[0.0f32, -0.0]; 20].concat());
        for line in [
            "torch.clamp c 1 1 0 1 min=0 max=1",
            "torch.clamp c 1 1 0 1 min=-0.0",
            "torch.clamp c 1 1 0 1 max=0.0",
            "torch.clamp c 1 1 0 1 min=-1.0 max=-0.0",
            "F.hardtanh c 1 1 0 1 min_val=0.0 max_val=1.0",
            "F.relu6 c 1 1 0 1",
            "F.relu c 1 1 0 1",
        ] {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
                let y = check(&*op(line), &[x.cast(dtype).unwrap()]);
                let y = values::<f32>(&y[0].cast(DType::F32).unwrap());
                let minus = y.iter().map(|y| y.is_sign_negative());
                assert!(minus.eq([false, true].into_iter().cycle().take(40)), "{line} {dtype}");
            }
        }
    }

    #[test]
    fn integers_stay_between_integers() {
        let x = tensor([3], &[-3i64, 0, 5]);
        for (min, max, expected) in [("-0.5", "2.7", [0i64, 0, 2]), ("-1.0", "2.0", [-1, 0, 2])] {
            let line = format!("F.hardtanh a 1 1 0 1 min_val={min} max_val={max}");
            assert_eq!(check(&*op(&line), std::slice::from_ref(&x))[0], tensor([3], &expected));
        }
        let y = check(&*op("torch.clamp a 1 1 0 1 min=-0.5 max=None"), &[x]);
        assert_eq!(y[0], tensor([3], &[-0.5f32, 0.0, 5.0]));
    }

    #[test]
    fn parameters_reach_the_function() {
        let x = random([3, 7, 11], 1);
        for (line, activation) in LINES {
            let operator = op(line);
            assert_eq!(operator.role(&[]), Some(Role::Activation(*activation)), "{line}");
            let mut expected = values::<f32>(&x);
            activation.apply_in_place(plutino_kernels::Isa::best(), &mut expected);
            let y = check(&*operator, std::slice::from_ref(&x));
            assert_close(&y[0], &tensor([3, 7, 11], &expected), 0.0);
        }
    }

    #[test]
    fn every_registered_function_keeps_shape_and_dtype() {
        let x = random([2, 3], 2);
        for (kind, _) in
            registry().unwrap().iter().filter(|(_, e)| e.file.ends_with("activation.rs"))
        {
            let line = match kind {
                "nn.PReLU" | "F.prelu" => continue,
                _ if kind.starts_with("aten::") => continue, // with more inputs
                _ if kind.ends_with("hreshold") => format!("{kind} a 1 1 0 1 threshold=0 value=1"),
                _ => format!("{kind} a 1 1 0 1"),
            };
            let y = check(&*op(&line), std::slice::from_ref(&x));
            assert_eq!(y[0].spec(), x.spec(), "{kind}");
        }
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (line, what) in [
            ("nn.GELU a 1 1 0 1 approximate=sigmoid", "'approximate' must be one of none, tanh"),
            ("F.celu a 1 1 0 1 alpha=0", "'alpha' must be a number other than zero"),
            ("nn.Threshold a 1 1 0 1 value=1", "'threshold' is missing"),
            ("F.rrelu a 1 1 0 1 training=True", "'training' must be False"),
            ("nn.ReLU a 1 1 0 1 slope=1", "'slope=1' is not known"),
        ] {
            let e = try_op(line, &[]).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        }
    }

    #[test]
    fn integers_where_pytorch_has_them() {
        let x = tensor([3], &[-5i64, 3, 9]);
        assert_eq!(
            values::<i64>(&check(&*op("F.relu6 a 1 1 0 1"), std::slice::from_ref(&x))[0]),
            [0, 3, 6]
        );
        let clamp = op("torch.clamp a 1 1 0 1 min=-1 max=4");
        assert_eq!(values::<i64>(&check(&*clamp, std::slice::from_ref(&x))[0]), [-1, 3, 4]);
        let clamp = op("torch.clamp a 1 1 0 1 min=0.5");
        assert_eq!(values::<f32>(&check(&*clamp, std::slice::from_ref(&x))[0]), [0.5, 3.0, 9.0]);
        assert_eq!(
            check(&*op("F.sigmoid a 1 1 0 1"), std::slice::from_ref(&x))[0].dtype().name(),
            "f32"
        );
        let threshold = op("F.threshold a 1 1 0 1 threshold=-5.5 value=7.9");
        assert_eq!(values::<i64>(&check(&*threshold, std::slice::from_ref(&x))[0]), [7, 3, 9]);
        error(&*op("F.gelu a 1 1 0 1"), &[x]);
    }

    #[test]
    fn clamp_takes_tensors_and_nan() {
        let x = tensor([2, 2], &[1.0f32, 5.0, -3.0, f32::NAN]);
        let line = "torch.clamp a 2 1 0 1 2 $input=0 $min=1 max=4";
        let y = values::<f32>(&check(&*op(line), &[x.clone(), tensor([2], &[0.0f32, 2.0])])[0]);
        assert_eq!(y[..3], [1.0, 4.0, 0.0]);
        assert!(y[3].is_nan());
        let y = check(&*op("torch.clamp a 1 1 0 1 min=nan"), &[x]);
        assert!(values::<f32>(&y[0]).iter().all(|y| y.is_nan()));
    }

    #[test]
    fn prelu_has_a_slope_for_each_channel() {
        let x = tensor([1, 2, 3], &[-1.0f32, 2.0, -3.0, -4.0, 5.0, -6.0]);
        let w = tensor([2], &[0.5f32, 0.25]);
        let expected = [-0.5, 2.0, -1.5, -1.0, 5.0, -1.5];
        let module =
            op_with("nn.PReLU a 1 1 0 1 num_parameters=2 @weight=(2)f32", &[("weight", w.clone())]);
        assert_eq!(values::<f32>(&check(&*module, std::slice::from_ref(&x))[0]), expected);
        let function = op("F.prelu a 2 1 0 1 2 $input=0 $weight=1");
        assert_eq!(values::<f32>(&check(&*function, &[x.clone(), w])[0]), expected);
        error(&*function, &[x.clone(), Tensor::from_slice(&[0.0f32; 3], [3]).unwrap()]);

        let one = tensor([1], &[0.5f32]);
        let module = op_with(
            "nn.PReLU a 1 1 0 1 num_parameters=1 @weight=(1)f32",
            &[("weight", one.clone())],
        );
        assert_eq!(module.role(&[]), Some(Role::Activation(Activation::LeakyRelu { slope: 0.5 })));
        for shape in [&[6][..], &[2, 3], &[1, 2, 3]] {
            let x = x.reshape(shape).unwrap();
            let y = check(&*function, &[x.clone(), one.clone()]);
            assert_eq!(values::<f32>(&y[0]), [-0.5, 2.0, -1.5, -2.0, 5.0, -3.0]);
            assert_eq!(y, check(&*module, &[x]));
        }
    }

    #[test]
    fn native_functions() {
        let x = random([2, 3, 4], 1);
        let slopes = random([3], 2);
        let expected = check(&*op("F.prelu p 2 1 0 1 2"), &[x.clone(), slopes.clone()]);
        let along = tensor([1, 3, 1], &values::<f32>(&slopes));
        let given = [x.clone(), along];
        assert_eq!(check(&*op("aten::_prelu_kernel p 2 1 0 1 2"), &given), expected);
        let elu = |factors: &str| {
            check_line(&format!("aten::elu e 4 1 0 {factors} 1"), std::slice::from_ref(&x))
        };
        for (factors, same) in [
            ("=1.6732632423543772 =1.0507009873554805 =1", "nn.SELU s 1 1 0 1"),
            ("=1.67326319 =1.05070102 =1", "nn.SELU s 1 1 0 1"),
            ("=0.3 =1 =1", "F.elu e 1 1 0 1 alpha=0.3"),
            ("=0.3 =1 =3.3333333333333335", "nn.CELU c 1 1 0 1 alpha=0.3"),
        ] {
            assert_eq!(elu(factors), check(&*op(same), std::slice::from_ref(&x)), "{factors}");
        }
        let scaled = values::<f32>(&elu("=1.5 =2.0 =0.5")[0]);
        for (x, y) in values::<f32>(&x).into_iter().zip(scaled) {
            let expected = if x > 0.0 { 2.0 * x } else { 3.0 * (0.5 * x).exp_m1() };
            // Two roundings of factors, and what expm1 errs.
            assert!((y - expected).abs() <= 4.0 * f32::EPSILON * expected.abs(), "{x}: {y}");
        }
        let line = "aten::rrelu_with_noise p 6 1 0 1 =0.1 =0.3 =False =None 2";
        let expected =
            check(&*op("F.rrelu p 1 1 0 1 lower=0.1 upper=0.3"), std::slice::from_ref(&x));
        assert_eq!(check_line(line, &[x.clone(), x]), expected);
    }

    #[test]
    fn parameters_of_f64_are_not_rounded_to_f32() {
        let x = tensor([2], &[-1.0f64, 0.3]);
        for (line, expected) in [
            ("F.leaky_relu a 1 1 0 1 negative_slope=0.1", [-0.1, 0.3]),
            ("F.elu a 1 1 0 1 alpha=0.1", [0.1 * (-1.0f64).exp_m1(), 0.3]),
            ("F.threshold a 1 1 0 1 threshold=0.3 value=0.7", [0.7, 0.7]),
            ("F.softshrink a 1 1 0 1 lambd=0.1", [-0.9, 0.3 - 0.1]),
        ] {
            assert_eq!(
                values::<f64>(&check(&*op(line), std::slice::from_ref(&x))[0]),
                expected,
                "{line}"
            );
        }
    }
}

//! Sums, means, products, norms, variances, log-sum-exp.
//!
//! <https://pytorch.org/docs/stable/generated/torch.sum.html> and its neighbours. Sums and products
//! of integers and bool are i64, wrapping; means, norms and variances are made of floats.

use super::{Dims, planned};
use crate::pool::{OfBlocks, planned_fold_of_blocks};
use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::support::in_dtype::in_dtype;
use crate::support::several::several;
use crate::{
    BuildError, BuildProblem, Cost, FromParameter, LayoutCx, LayoutSupport, NodeReader, Operator,
    PlanCx, PlanError, Planned, Role, ShapeError, StrideRule, TensorValue, ValueSpec, function,
    register_op,
};
use plutino_ir::Parameter;
use plutino_kernels::reduce::{
    Fold, Reduction, logsumexp, logsumexp_f32, power_norm, product, reduce_f32, sum, variance,
    variance_f32,
};
use plutino_kernels::{for_floats, for_numbers};
use plutino_tensor::{DType, Layout};

/// Rows and columns of an image up to which means and sums are taken in channel blocks: 2^-16 of
/// the sum of all |x| at most.
const MOST_STEPS: usize = 256;

#[derive(Debug)]
struct Reduce {
    input: usize,
    what: What,
    dims: Dims,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Sum,
    Mean,
    Product,
    Norm(f64),
    Variance { correction: f64, root: bool },
    LogSumExp,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Product => "product",
            Self::Norm(_) => "norm",
            Self::Variance { .. } => "variance",
            Self::LogSumExp => "logsumexp",
        }
    }
}

fn reduce(r: &mut NodeReader<'_>, what: What) -> Result<Box<dyn Operator>, BuildError> {
    let (dims, dtype) = (Dims::read(r)?, r.optional::<DType>("dtype")?);
    let input = r.required_input("input")?;
    match dtype {
        None if what != What::LogSumExp => Ok(Box::new(Reduce { input, what, dims })),
        _ => in_dtype(what.name(), input, dtype, move || {
            Box::new(Reduce { input: 0, what, dims: dims.clone() })
        }),
    }
}

fn plain(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let what = match r.kind() {
        "torch.sum" => What::Sum,
        "torch.mean" => What::Mean,
        "torch.prod" => What::Product,
        _ => What::LogSumExp,
    };
    reduce(r, what)
}
register_op!(plain => "torch.sum", "torch.mean", "torch.prod", "torch.logsumexp",
    "torch.special.logsumexp");

/// <https://pytorch.org/docs/stable/generated/torch.norm.html>: of all elements, however many
/// dimensions there are.
fn norm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let nuclear = r.raw("p").and_then(Parameter::as_str) == Some("nuc");
    if nuclear || r.optional::<DType>("dtype")?.is_some() {
        return super::norms::of_torch(r);
    }
    let p = match r.raw("p") {
        None | Some(Parameter::Null) => 2.0,
        Some(p) => match (p.as_float(), p.as_str()) {
            (Some(p), _) => p,
            (None, Some("fro")) => 2.0,
            (None, Some("inf")) => f64::INFINITY,
            (None, Some("-inf")) => f64::NEG_INFINITY,
            _ => return Err(r.bad("p", "a number, inf, -inf or fro")),
        },
    };
    reduce(r, What::Norm(p))
}
register_op!(norm => "torch.norm");

/// `unbiased` of a variance: a flag, or the number that PNNX writes there where a model says
/// `correction`.
#[derive(Debug)]
struct Unbiased(f64);

impl FromParameter for Unbiased {
    const EXPECTED: &'static str = "True, False or a number";
    fn from_parameter(value: &Parameter) -> Option<Self> {
        value.as_bool().map(f64::from).or_else(|| value.as_float()).map(Self)
    }
}

/// What the number of elements is reduced by; `unbiased` is the older name of `correction=1`.
fn correction(r: &mut NodeReader<'_>) -> Result<f64, BuildError> {
    let unbiased = r.optional::<Unbiased>("unbiased")?;
    let correction = r.optional::<f64>("correction")?;
    match (correction, unbiased) {
        (Some(c), None) | (None, Some(Unbiased(c))) => Ok(c),
        (None, None) => Ok(1.0),
        (Some(_), Some(_)) => Err(r.bad("correction", "None where 'unbiased' is given")),
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.var.html>
fn spread(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let correction = correction(r)?;
    let root = r.kind() == "torch.std";
    reduce(r, What::Variance { correction, root })
}
register_op!(spread => "torch.var", "torch.std");

/// <https://pytorch.org/docs/stable/generated/torch.var_mean.html>,
/// <https://pytorch.org/docs/stable/generated/torch.std_mean.html>: both, of the same elements.
fn spread_and_mean(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    if r.output_count() != 2 {
        let (expected, found) = ("2".into(), r.output_count());
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    let (name, root) = match function(r.kind()) {
        "std_mean" => ("std_mean", true),
        _ => ("var_mean", false),
    };
    let (correction, dims) = (correction(r)?, Dims::read(r)?);
    let input = r.required_input("input")?;
    let part = |what, dims| Box::new(Reduce { input, what, dims }) as Box<dyn Operator>;
    let variance = part(What::Variance { correction, root }, dims.clone());
    Ok(several(name, vec![variance, part(What::Mean, dims)]))
}
register_op!(spread_and_mean => "torch.var_mean", "torch.std_mean");

impl Reduce {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Fold, ValueSpec), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let dtype = x.dtype();
        let (fits, expected) = match self.what {
            What::Sum | What::Product => (true, ""),
            What::Mean => (dtype.is_float() || dtype.is_complex(), "a float or complex"),
            _ => (dtype.is_float(), "a float"),
        };
        if !fits {
            return Err(ShapeError::DType {
                input: self.input,
                expected: expected.into(),
                found: dtype,
            });
        }
        let (fold, shape) = self.dims.bind(x.shape())?;
        let whole = dtype.is_integer() || dtype == DType::Bool;
        let natural = if whole { DType::I64 } else { dtype };
        Ok((dtype, fold, ValueSpec::tensor(natural, shape)))
    }
}

impl Operator for Reduce {
    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        let shape = TensorValue::at(inputs, self.input).ok()?.shape();
        let last = shape.rank().checked_sub(1)?;
        let rows = self.dims.keepdim && self.dims.are_exactly(shape, &[last]);
        (rows && self.what == What::Mean).then_some(Role::MeanOfRows(self.input))
    }

    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![self.bind(inputs)?.2])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, fold, _) = self.bind(cx.inputs)?;
        let (input, what) = (leaf(cx.inputs, self.input), self.what);
        if TensorValue::at(cx.inputs, self.input)?.spec.layout != Layout::Plain {
            return match what {
                What::Mean => planned_fold_of_blocks(cx, self.input, OfBlocks::Mean),
                What::Sum => planned_fold_of_blocks(cx, self.input, OfBlocks::Sum),
                _ => Err(PlanError::Unsupported(format!("a {} of channel blocks", what.name()))),
            };
        }
        if halves::is_half(dtype) {
            let dims = self.dims.kept(TensorValue::at(cx.inputs, self.input)?.shape());
            return halves::widened_by(cx, Parts { dims, of: &[self.input] }, |cx| self.plan(cx));
        }
        if dtype == DType::F32
            && let Some(planned) = vectorised(cx, fold.clone(), what, input)
        {
            return Ok(planned);
        }
        let name = format!("reduce.{}.any", what.name());
        macro_rules! kernel {
            ($T:ty => $U:ty, |$par:ident, $fold:ident, $x:ident, $y:ident| $run:expr) => {
                planned(name, move |cx| {
                    let ($x, $y) = (cx.inputs.get::<$T>(input)?, cx.outputs.take::<$U>(0)?);
                    let ($par, $fold) = (cx.par, &fold);
                    $run;
                    Ok(())
                })
            };
        }
        let count = i64::try_from(fold.count()).unwrap_or(i64::MAX);
        let unsupported = || PlanError::Unsupported(format!("a {} of {dtype}", what.name()));
        Ok(match what {
            What::Sum | What::Mean | What::Product => {
                let divisor = if what == What::Mean { count } else { 1 };
                macro_rules! sums {
                    ($T:ty => $U:ty) => {
                        if what == What::Product {
                            kernel!($T => $U, |par, fold, x, y| product(par, fold, x, y))
                        } else {
                            kernel!($T => $U, |par, fold, x, y| sum(par, fold, divisor, x, y))
                        }
                    };
                }
                match dtype {
                    DType::I64 => sums!(i64 => i64),
                    DType::I32 => sums!(i32 => i64),
                    DType::I16 => sums!(i16 => i64),
                    DType::I8 => sums!(i8 => i64),
                    DType::U8 => sums!(u8 => i64),
                    DType::Bool => sums!(bool => i64),
                    _ => for_numbers!(dtype, T => sums!(T => T)),
                }
            }
            What::Norm(p) => for_floats!(dtype,
                T => kernel!(T => T, |par, fold, x, y| power_norm(par, fold, p, x, y)),
                _ => return Err(unsupported()),
            ),
            What::Variance { correction, root } => for_floats!(dtype,
                T => kernel!(T => T, |par, fold, x, y| variance(par, fold, correction, root, x, y)),
                _ => return Err(unsupported()),
            ),
            What::LogSumExp => for_floats!(dtype,
                T => kernel!(T => T, |par, fold, x, y| logsumexp(par, fold, x, y)),
                _ => return Err(unsupported()),
            ),
        })
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let Ok(x) = TensorValue::at(cx.inputs, self.input) else { return LayoutSupport::PLAIN };
        // In blocks, slices are added, rows of their sum, and then its columns: (D + H + W) steps
        // of rounding, not as few as elsewhere.
        let spatial = x.shape().iter().skip(2);
        let steps = spatial.fold(0, |sum: usize, &n| sum.saturating_add(n));
        match self.what {
            What::Mean | What::Sum if steps <= MOST_STEPS => self.dims.of_pixels(x, cx.block()),
            _ => LayoutSupport::PLAIN,
        }
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::folded(inputs, outputs, self.input)
    }
}

/// The vectorised kernel of f32, where there is one.
fn vectorised(cx: &PlanCx<'_>, fold: Fold, what: What, input: usize) -> Option<Planned> {
    let isa = cx.isa;
    let name = format!("reduce.{}.{isa}", what.name());
    let reduction = match what {
        What::Sum => Reduction::Sum,
        What::Mean => Reduction::Mean,
        What::Norm(1.0) => Reduction::AbsSum,
        What::Norm(2.0) => Reduction::Euclidean,
        What::Norm(f64::INFINITY) => Reduction::AbsMax,
        What::Product | What::Norm(_) => return None,
        What::Variance { correction, root } => {
            let divisor = (fold.count() as f64 - correction).max(0.0) as f32;
            return Some(planned(name, move |cx| {
                let (x, y) = (cx.inputs.get(input)?, cx.outputs.take(0)?);
                variance_f32(isa, cx.par, &fold, divisor, root, x, y);
                Ok(())
            }));
        }
        What::LogSumExp => {
            return Some(planned(name, move |cx| {
                let (x, y) = (cx.inputs.get(input)?, cx.outputs.take(0)?);
                logsumexp_f32(isa, cx.par, &fold, x, y);
                Ok(())
            }));
        }
    };
    if fold.count() == 0 && reduction == Reduction::AbsMax {
        return None; // the norm of nothing is 0
    }
    Some(planned(name, move |cx| {
        let (x, y) = (cx.inputs.get(input)?, cx.outputs.take(0)?);
        reduce_f32(isa, cx.par, &fold, reduction, x, y);
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, random, tensor, try_op, values};
    use plutino_reference::reduce::{groups, norm, variance};
    use plutino_tensor::{Complex, DType, Shape, Tensor, f16};

    fn expected(x: &Tensor, dims: &[usize], keepdim: bool, f: impl Fn(&[f64]) -> f64) -> Tensor {
        let y: Vec<f32> =
            groups(x.shape(), dims, &values::<f32>(x)).iter().map(|g| f(g) as f32).collect();
        let sizes = x.shape().iter().enumerate();
        let shape: Shape = if keepdim {
            sizes.map(|(d, &n)| if dims.contains(&d) { 1 } else { n }).collect()
        } else {
            sizes.filter(|(d, _)| !dims.contains(d)).map(|(_, &n)| n).collect()
        };
        tensor(shape, &y)
    }

    #[test]
    fn every_reduction_over_every_kind_of_dimensions() {
        let x = random([3, 4, 5, 6], 1);
        for (dim, dims) in [
            ("(2,3)", vec![2, 3]),
            ("(0)", vec![0]),
            ("1", vec![1]),
            ("(-1,-3)", vec![1, 3]),
            ("(0,2)", vec![0, 2]),
            ("None", vec![0, 1, 2, 3]),
        ] {
            for (keep, keepdim) in [("True", true), ("False", false)] {
                let run = |kind: &str, extra: &str| {
                    let line =
                        format!("{kind} r 1 1 0 1 dim={dim} keepdim={keep} {extra} $input=0");
                    check(&*op(&line), std::slice::from_ref(&x)).remove(0)
                };
                let of = |f: &dyn Fn(&[f64]) -> f64| expected(&x, &dims, keepdim, f);
                let n = |g: &[f64]| g.len() as f64;
                assert_close(&run("torch.sum", ""), &of(&|g| g.iter().sum()), 2e-5);
                assert_close(&run("torch.mean", ""), &of(&|g| g.iter().sum::<f64>() / n(g)), 1e-6);
                assert_close(&run("torch.prod", ""), &of(&|g| g.iter().product()), 1e-6);
                assert_close(&run("torch.norm", "p=1"), &of(&|g| norm(g, 1.0)), 2e-5);
                assert_close(&run("torch.norm", "p=2"), &of(&|g| norm(g, 2.0)), 1e-5);
                assert_close(&run("torch.norm", "p=3.0"), &of(&|g| norm(g, 3.0)), 1e-5);
                let max = |g: &[f64]| g.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                assert_close(&run("torch.norm", "p=inf"), &of(&max), 0.0);
                assert_close(&run("torch.var", "unbiased=False"), &of(&|g| variance(g, 0.0)), 1e-6);
                // As PNNX writes correction=2.
                assert_close(&run("torch.var", "unbiased=2"), &of(&|g| variance(g, 2.0)), 1e-6);
                assert_close(
                    &run("torch.std", "correction=1"),
                    &of(&|g| variance(g, 1.0).sqrt()),
                    1e-6,
                );
                let log = |g: &[f64]| g.iter().map(|x| x.exp()).sum::<f64>().ln();
                assert_close(&run("torch.logsumexp", ""), &of(&log), 1e-6);
            }
        }
    }

    #[test]
    fn dtypes_of_results() {
        let sum = op("torch.sum r 1 1 0 1 dim=(0) keepdim=False $input=0");
        assert_eq!(values::<i64>(&check(&*sum, &[tensor([3], &[200u8, 200, 1])])[0]), [401]);
        assert_eq!(values::<i64>(&check(&*sum, &[tensor([3], &[true, false, true])])[0]), [2]);
        let half = [1.5, 2.5].map(f16::from_f32);
        assert_eq!(values::<f16>(&check(&*sum, &[tensor([2], &half)])[0]), [f16::from_f32(4.0)]);
        let c = [Complex::new(1.0f32, 2.0), Complex::new(0.5, -1.0)];
        assert_eq!(
            values::<Complex<f32>>(&check(&*sum, &[tensor([2], &c)])[0]),
            [Complex::new(1.5, 1.0)]
        );
        let prod = op("torch.prod r 1 1 0 1 dim=(0,1) keepdim=False $input=0");
        assert_eq!(values::<i64>(&check(&*prod, &[tensor([1, 3], &[2i32, 3, 4])])[0]), [24]);
        let var = op("torch.var r 1 1 0 1 dim=(0) keepdim=False unbiased=True $input=0");
        assert_eq!(values::<f64>(&check(&*var, &[tensor([3], &[1.0f64, 2.0, 3.0])])[0]), [1.0]);
        assert!(values::<f32>(&check(&*var, &[iota([1])])[0])[0].is_nan());
        let mean = op("torch.mean r 1 1 0 1 dim=(0) keepdim=False $input=0");
        assert!(error(&*mean, &[tensor([1], &[1i64])]).to_string().contains("a float"));
    }

    #[test]
    fn nothing_to_reduce_beside_something_to_keep() {
        let run = |kind: &str, dims: &str, shape: &[usize]| {
            let operator = op(&format!("{kind} r 1 1 0 1 dim={dims} keepdim=False $input=0"));
            values::<f32>(&check(&*operator, &[iota(shape)])[0]).to_vec()
        };
        assert_eq!(run("torch.sum", "(0)", &[0, 4, 5]), [0.0; 20]);
        assert_eq!(run("torch.sum", "(1,3)", &[2, 0, 4, 5, 6]), [0.0; 48]);
        assert_eq!(run("torch.sum", "(2)", &[3, 4, 0]), [0.0; 12]);
        for kind in ["torch.mean", "torch.var", "torch.std"] {
            let y = run(kind, "(1)", &[2, 0, 9]);
            assert!(y.len() == 18 && y.iter().all(|y| y.is_nan()), "{kind}");
        }
    }

    #[test]
    fn scalars_and_nothing() {
        let sum = op("torch.sum r 1 1 0 1 dim=(-1) keepdim=True $input=0");
        assert_eq!(check(&*sum, &[tensor([], &[3.0f32])]), [tensor([], &[3.0f32])]);
        let empty = Tensor::zeros(DType::F32, [2, 0]).unwrap();
        assert_eq!(values::<f32>(&check(&*sum, std::slice::from_ref(&empty))[0]), [0.0, 0.0]);
        let mean = op("torch.mean r 1 1 0 1 dim=(1) keepdim=False $input=0");
        assert!(
            values::<f32>(&check(&*mean, std::slice::from_ref(&empty))[0])
                .iter()
                .all(|x| x.is_nan())
        );
        let log = op("torch.logsumexp r 1 1 0 1 dim=(1) keepdim=False $input=0");
        assert_eq!(check(&*log, &[tensor([1, 1], &[7i64])]), [tensor([1], &[7.0f32])]);
        assert_eq!(values::<f32>(&check(&*log, &[empty])[0]), [f32::NEG_INFINITY; 2]);
    }

    #[test]
    fn in_a_dtype_of_their_own() {
        let run = |line: &str, x: Tensor| check(&*op(line), &[x]).remove(0);
        let whole = tensor([2], &[1i64, 2]);
        let y = run("torch.mean r 1 1 0 1 dtype=torch.float $input=0", whole.clone());
        assert_eq!(y, tensor([], &[1.5f32]));
        let y = run("torch.sum r 1 1 0 1 dim=(0) dtype=torch.double", iota([2, 2]));
        assert_eq!(y, tensor([2], &[2.0f64, 4.0]));
        // In i64, and then wrapped.
        let y = run("torch.sum r 1 1 0 1 dtype=torch.uint8", tensor([2], &[200.0f32, 100.0]));
        assert_eq!(y, tensor([], &[44u8]));
        assert_eq!(run("torch.prod r 1 1 0 1 dtype=torch.long", whole), tensor([], &[2i64]));
    }

    #[test]
    fn a_spread_beside_its_mean() {
        let x = random([3, 4, 5], 1);
        for (kind, alone) in [("torch.var_mean", "torch.var"), ("torch.std_mean", "torch.std")] {
            let line = format!("{kind} r 1 2 0 1 2 dim=(0,2) correction=0 keepdim=True $input=0");
            let both = check(&*op(&line), std::slice::from_ref(&x));
            for (y, kind, extra) in
                [(&both[0], alone, "correction=0"), (&both[1], "torch.mean", "")]
            {
                let line = format!("{kind} r 1 1 0 1 dim=(0,2) keepdim=True {extra} $input=0");
                assert_eq!(*y, check(&*op(&line), std::slice::from_ref(&x))[0]);
            }
            let all =
                check(&*op(&format!("{kind} r 1 2 0 1 2 unbiased=True")), std::slice::from_ref(&x));
            assert_eq!(all[1].shape().dims(), [0usize; 0]);
            error(&*op(&format!("{kind} r 1 2 0 1 2")), &[tensor([2], &[1i64, 2])]);
            assert!(try_op(&format!("{kind} r 1 1 0 1"), &[]).is_err());
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for line in [
            "torch.norm r 1 1 0 1 p=most $input=0",
            "torch.var r 1 1 0 1 correction=0 unbiased=True $input=0",
        ] {
            assert!(try_op(line, &[]).is_err());
        }
        for dim in ["(2)", "(0,0)", "(0,-2)"] {
            error(
                &*op(&format!("torch.sum r 1 1 0 1 dim={dim} keepdim=True $input=0")),
                &[random([2, 2], 1)],
            );
        }
    }
}

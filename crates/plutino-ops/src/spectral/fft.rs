//! Discrete Fourier transforms: `torch.fft.fft` and its kin.
//!
//! <https://pytorch.org/docs/stable/fft.html>. Of six families, each for one dimension, for two,
//! and for any (those for two differ from these in nothing but the default of `dim`):
//!
//! | family | from | to | sign of the exponent |
//! |---|---|---|---|
//! | fft, ifft | complex (or real) | complex | -, + |
//! | rfft, ihfft | real | first half of the complex numbers along the last dimension | -, + |
//! | hfft, irfft | such a half | real | -, + |
//!
//! Transforms of f64 are computed in f64, all others in f32.

use crate::support::assemble::leaf;
use crate::support::promotion::inexact;
use crate::support::rearrange::{distinct_dims, invalid};
use crate::{
    Arg, BuildError, BuildProblem, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::elementwise::{complex_of, real_of};
use plutino_kernels::fft::{Direction, FftReal, Lines, load, mirror, store};
use plutino_kernels::number::Number;
use plutino_kernels::{for_floats, for_numbers};
use plutino_tensor::{Complex, DType, Shape, f16};

/// What is known to be real, or half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Complex,
    /// The input is real, the output a half.
    ToHalf,
    /// The input is a half, the output real.
    FromHalf,
}

/// How results are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Norm {
    /// 1/n after the inverse transform.
    Backward,
    /// 1/n after the forward transform.
    Forward,
    /// 1/sqrt n after both.
    Ortho,
}

#[derive(Debug)]
struct Fourier {
    input: usize,
    family: Family,
    direction: Direction,
    norm: Norm,
    /// Sizes of the signal along the dimensions: it is cropped or padded to them.
    sizes: Option<Arg<Vec<i64>>>,
    dims: Option<Vec<i64>>,
}

const FAMILIES: [(&str, Family, Direction); 6] = [
    ("fft", Family::Complex, Direction::Forward),
    ("ifft", Family::Complex, Direction::Inverse),
    ("rfft", Family::ToHalf, Direction::Forward),
    ("ihfft", Family::ToHalf, Direction::Inverse),
    ("hfft", Family::FromHalf, Direction::Forward),
    ("irfft", Family::FromHalf, Direction::Inverse),
];

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = r.kind().trim_start_matches("torch.fft.");
    let (name, rank) = match name {
        name if name.ends_with('2') => (name.trim_end_matches('2'), Some(2)),
        name if name.ends_with('n') => (name.trim_end_matches('n'), None),
        name => (name, Some(1)),
    };
    let Some(&(_, family, direction)) = FAMILIES.iter().find(|(n, ..)| *n == name) else {
        return Err(r.error(BuildProblem::UnsupportedKind { nearest: None }));
    };
    let norms = [("backward", Norm::Backward), ("forward", Norm::Forward), ("ortho", Norm::Ortho)];
    let norm = r.one_of("norm", &norms, Some(Norm::Backward))?;
    let sizes = r.arg(if rank == Some(1) { "n" } else { "s" })?;
    let default = match rank {
        Some(1) => Some(vec![-1]),
        Some(_) => Some(vec![-2, -1]),
        None => None,
    };
    let dims: Option<Vec<i64>> = r.optional("dim")?.or(default);
    if rank == Some(1) && dims.as_ref().is_some_and(|dims| dims.len() != 1) {
        return Err(r.bad("dim", "an integer"));
    }
    let input = r.required_input("input")?;
    Ok(Box::new(Fourier { input, family, direction, norm, sizes, dims }))
}
register_op!(build => "torch.fft.fft", "torch.fft.fft2", "torch.fft.fftn", "torch.fft.ifft", "torch.fft.ifft2",
    "torch.fft.ifftn", "torch.fft.rfft", "torch.fft.rfft2", "torch.fft.rfftn", "torch.fft.irfft", "torch.fft.irfft2",
    "torch.fft.irfftn", "torch.fft.hfft", "torch.fft.hfft2", "torch.fft.hfftn", "torch.fft.ihfft", "torch.fft.ihfft2",
    "torch.fft.ihfftn");

/// A transform for given shapes.
#[derive(Debug, Clone)]
struct Bound {
    input: Shape,
    /// The input, cropped or padded.
    work: Shape,
    /// The same, after a half was made whole.
    whole: Shape,
    output: Shape,
    dtype: DType,
    /// Dimensions, in the order of the parameter.
    dims: Vec<usize>,
    scale: f64,
}

impl Fourier {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Bound, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let shape = x.shape();
        let mut from = inexact(x.dtype());
        if self.family == Family::ToHalf && from.is_complex() {
            let (expected, found) = ("real".into(), from);
            return Err(ShapeError::DType { input: self.input, expected, found });
        }
        if from == DType::Bf16 {
            let expected = "of a dtype that has complex numbers".into();
            return Err(ShapeError::DType { input: self.input, expected, found: from });
        }
        if !from.is_complex() {
            from = complex_of(from);
        }
        let asked = self.sizes.as_ref().map(|s| s.ints(inputs)).transpose()?;
        let dims = match (&self.dims, &asked) {
            (Some(dims), _) => dims.clone(),
            (None, Some(sizes)) => {
                (0..sizes.len() as i64).map(|d| d - sizes.len() as i64).collect()
            }
            (None, None) => (0..shape.rank() as i64).collect(),
        };
        for &dim in &dims {
            crate::shaping::slice::existing(shape, dim)?;
        }
        let dims = distinct_dims(shape, &dims)?;
        let asked = asked.unwrap_or_else(|| vec![-1; dims.len()]);
        if asked.len() != dims.len() {
            return Err(invalid(format!(
                "{} sizes are given for {} dimensions",
                asked.len(),
                dims.len()
            )));
        }
        let mut whole = shape.clone();
        for (&dim, &size) in dims.iter().zip(&asked) {
            if size != -1 {
                whole[dim] = usize::try_from(size).unwrap_or(0);
            }
        }
        let (mut work, mut output) = (whole.clone(), whole.clone());
        if self.family != Family::Complex {
            let (Some(&last), Some(&size)) = (dims.last(), asked.last()) else {
                return Err(invalid("a real transform needs a dimension"));
            };
            if self.family == Family::FromHalf {
                if size == -1 {
                    whole[last] = shape[last].saturating_sub(1).saturating_mul(2);
                }
                output[last] = whole[last];
                work[last] = whole[last] / 2 + 1;
            } else {
                output[last] = whole[last] / 2 + 1;
            }
        }
        if dims.iter().any(|&d| whole[d] == 0) {
            return Err(invalid(format!(
                "a signal of {whole} has no elements to transform along {dims:?}"
            )));
        }
        for shape in [&work, &whole] {
            let bytes: Shape =
                shape.iter().copied().chain([2, size_of::<Complex<f64>>()]).collect();
            bytes.checked_numel()?;
        }
        let n = dims.iter().map(|&d| whole[d] as f64).product::<f64>();
        let scale = match (self.norm, self.direction) {
            (Norm::Ortho, _) => 1.0 / n.sqrt(),
            (Norm::Backward, Direction::Inverse) | (Norm::Forward, Direction::Forward) => 1.0 / n,
            _ => 1.0,
        };
        let dtype = if self.family == Family::FromHalf { real_of(from) } else { from };
        Ok(Bound { input: shape.clone(), work, whole, output, dtype, dims, scale })
    }
}

impl Operator for Fourier {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let bound = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(bound.dtype, bound.output)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let bound = self.bind(cx.inputs)?;
        let input = leaf(cx.inputs, self.input);
        match bound.dtype {
            DType::F64 | DType::C128 => FourierKernel::<f64>::plan(self, input, bound),
            _ => FourierKernel::<f32>::plan(self, input, bound),
        }
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.bind(inputs).map_or(0.0, |b| {
            let stages: f64 = b.dims.iter().map(|&d| (b.whole[d] as f64).log2()).sum();
            5.0 * b.whole.numel() as f64 * stages // of a transform by powers of two
        });
        Cost { flops: flops as u64, ..Cost::moved(inputs, outputs) }
    }
}

struct FourierKernel<R: FftReal> {
    input: usize,
    bound: Bound,
    from_half: bool,
    /// One for each dimension.
    lines: Vec<Lines<R>>,
}

impl<R: FftReal> FourierKernel<R>
where
    Complex<R>: bytemuck::Pod,
{
    fn plan(operator: &Fourier, input: usize, bound: Bound) -> Result<Planned, PlanError> {
        let line = |&d: &usize| Lines::new(operator.direction, bound.whole[d]);
        let lines = bound.dims.iter().map(line).collect::<Result<_, _>>()?;
        let from_half = operator.family == Family::FromHalf;
        let whole = if from_half { bound.whole.numel() } else { 0 };
        let scratch =
            bound.work.numel().saturating_add(whole).saturating_mul(size_of::<Complex<R>>());
        Ok(Planned::new(Self { input, bound, from_half, lines }).with_scratch(scratch))
    }

    fn store_as<T: Number>(&self, cx: &mut RunCx<'_>, data: &[Complex<R>]) -> Result<(), RunError> {
        let Bound { whole, output, scale, .. } = &self.bound;
        store(cx.par, *scale, (whole, data), (output, cx.outputs.take::<T>(0)?));
        Ok(())
    }
}

impl<R: FftReal> Kernel for FourierKernel<R>
where
    Complex<R>: bytemuck::Pod,
{
    fn name(&self) -> &str {
        "fft"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let Bound { input, work, whole, dims, dtype, .. } = &self.bound;
        let memory = cx.take_scratch::<Complex<R>>()?;
        let (data, rest) = memory.split_at_mut(work.numel().min(memory.len()));
        for_numbers!(cx.inputs.spec(self.input)?.dtype, T => {
            load(cx.par, (input, cx.inputs.get::<T>(self.input)?), (work, data));
        });
        let inner = |d: usize| whole.product(d + 1..whole.rank());
        let mut stages: Vec<_> = self.lines.iter().zip(dims).collect();
        let mut data = data;
        if let (true, Some((last, &dim))) = (self.from_half, stages.pop()) {
            for (lines, &d) in stages {
                lines.run(cx.par, work.product(d + 1..work.rank()), data)?;
            }
            let whole_data = &mut rest[..whole.numel()];
            mirror([whole.product(0..dim), whole[dim], inner(dim)], data, whole_data);
            last.run(cx.par, inner(dim), whole_data)?;
            data = whole_data;
        } else {
            for (lines, &d) in self.lines.iter().zip(dims) {
                lines.run(cx.par, inner(d), data)?;
            }
        }
        match dtype {
            DType::C64 => self.store_as::<Complex<f32>>(cx, data),
            DType::C128 => self.store_as::<Complex<f64>>(cx, data),
            DType::C32 => self.store_as::<Complex<f16>>(cx, data),
            real => for_floats!(*real,
                T => self.store_as::<T>(cx, data),
                _ => Err(RunError::Internal("a transform makes floats".into())),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, random, tensor, try_op, values};
    use plutino_tensor::{Complex, DType, Tensor};

    fn run(line: &str, x: &Tensor) -> Tensor {
        check(
            &*op(&format!("torch.fft.{line} $input=0").replacen(' ', " f 1 1 0 1 ", 1)),
            std::slice::from_ref(x),
        )
        .remove(0)
    }

    fn complex(shape: impl Into<plutino_tensor::Shape>, values: &[(f32, f32)]) -> Tensor {
        let values: Vec<_> = values.iter().map(|&(re, im)| Complex::new(re, im)).collect();
        tensor(shape, &values)
    }

    /// |found - expected| <= bound in both parts.
    #[track_caller]
    fn assert_near(found: &Tensor, expected: &Tensor, bound: f32) {
        assert_eq!(found.spec(), expected.spec());
        for (x, y) in values::<Complex<f32>>(found).iter().zip(values::<Complex<f32>>(expected)) {
            assert!((x - y).norm() <= bound, "{x} instead of {y}");
        }
    }

    #[test]
    fn small_transforms_by_hand() {
        let x = tensor([4], &[0.0f32, 1.0, 2.0, 3.0]);
        let all = complex([4], &[(6., 0.), (-2., 2.), (-2., 0.), (-2., -2.)]);
        assert_near(&run("fft dim=-1 n=None norm=backward", &x), &all, 1e-6);
        let half = complex([3], &[(6., 0.), (-2., 2.), (-2., 0.)]);
        assert_near(&run("rfft dim=0 n=None norm=None", &x), &half, 1e-6);
        let quarter = complex([3], &[(1.5, 0.), (-0.5, -0.5), (-0.5, 0.)]);
        assert_near(&run("ihfft dim=0 norm=backward", &x), &quarter, 1e-6);
        assert_close(&run("irfft dim=0 norm=backward", &half), &x, 1e-6);
        assert_close(
            &run("hfft dim=0 norm=forward", &half),
            &tensor([4], &[0.0f32, 3., 2., 1.]),
            1e-6,
        );
        // Cropped to two, and padded to five.
        assert_near(&run("fft dim=0 n=2", &x), &complex([2], &[(1., 0.), (-1., 0.)]), 1e-6);
        assert_eq!(run("rfft dim=0 n=5", &x).shape().dims(), [3]);
        assert_eq!(run("irfft dim=0 n=5", &half).shape().dims(), [5]);
    }

    #[test]
    fn inverses_undo() {
        let x = random([3, 4, 5], 1);
        for norm in ["backward", "forward", "ortho"] {
            for (there, back) in [
                ("fft2", "ifft2"),
                ("fftn", "ifftn"),
                ("rfft2", "irfft2 s=(4,5)"),
                ("rfftn dim=(2,0)", "irfftn s=(5,3) dim=(2,0)"),
                ("ihfft2", "hfft2 s=(4,5)"),
                ("ihfftn", "hfftn s=(-1,-1,5)"),
            ] {
                let y = run(&format!("{there} norm={norm}"), &x);
                let z = run(&format!("{back} norm={norm}"), &y);
                let z = if z.dtype() == DType::C64 {
                    tensor(
                        z.shape().clone(),
                        &values::<Complex<f32>>(&z).iter().map(|z| z.re).collect::<Vec<_>>(),
                    )
                } else {
                    z
                };
                // Sums of 60 terms below 1, six stages at most.
                assert_close(&z, &x, 2e-6);
            }
        }
    }

    #[test]
    fn the_real_families_are_parts_of_the_complex_one() {
        let x = random([2, 6], 3);
        let all = values::<Complex<f32>>(&run("fft2", &x));
        let half = values::<Complex<f32>>(&run("rfft2", &x));
        for (i, z) in half.iter().enumerate() {
            assert!((z - all[i / 4 * 6 + i % 4]).norm() < 1e-5);
        }
        let conjugates = values::<Complex<f32>>(&run("ihfft2 norm=forward", &x));
        assert!(conjugates.iter().zip(&half).all(|(a, b)| (a - b.conj()).norm() < 1e-5));
    }

    #[test]
    fn dtypes_and_errors() {
        let ints = run("fft dim=0", &tensor([2], &[1i32, 2]));
        assert_near(&ints, &complex([2], &[(3., 0.), (-1., 0.)]), 0.0);
        assert_eq!(run("rfft dim=0", &tensor([2], &[1.0f64, 2.0])).dtype(), DType::C128);
        assert_eq!(run("irfft dim=0", &complex([2], &[(1., 0.), (2., 0.)])).dtype(), DType::F32);
        assert_eq!(run("fft dim=1", &iota([0, 3])).shape().dims(), [0, 3]);
        let refused = |line: &str, x: Tensor| {
            error(
                &*op(&format!("torch.fft.{line} $input=0").replacen(' ', " f 1 1 0 1 ", 1)),
                &[x],
            );
        };
        refused("rfft dim=0", complex([1], &[(1., 0.)]));
        refused("fft dim=1", iota([3]));
        refused("fft dim=0", iota([]));
        refused("fft dim=0 n=0", iota([3]));
        refused("fft dim=0 n=-2", iota([3]));
        refused("irfft dim=0", iota([1]));
        refused("fft2 dim=(0,0)", iota([3, 3]));
        assert!(try_op("torch.fft.fft f 1 1 0 1 dim=(0,1)", &[]).is_err());
        assert_eq!(run("fft2 dim=0", &iota([3, 3])), run("fft dim=0", &iota([3, 3])));
        refused("fftn s=(2,2) dim=(0)", iota([3, 3]));
        refused("fft dim=0 n=9223372036854775807", iota([3]));
        assert!(try_op("torch.fft.fft f 1 1 0 1 norm=none $input=0", &[]).is_err());
    }
}

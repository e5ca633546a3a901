//! Random numbers: rand, randn, randint, randperm, bernoulli, multinomial, normal and their kin.
//! The generator is not PyTorch's, and the numbers are the same in every run.

use crate::creation::create::{Model, ignore_placement, known_number};
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::elementwise::Scalar;
use plutino_tensor::stop;
use plutino_tensor::{Convert, DType, Shape, Tensor, for_dtype};

/// Where every run begins.
const SEED: u64 = 0;

/// Numbers that do not depend on others:
/// <https://pytorch.org/docs/stable/generated/torch.randn.html> and its kin, and
/// <https://pytorch.org/docs/stable/generated/torch.Tensor.uniform_.html> and its kin.
#[derive(Debug)]
struct Random {
    model: Model,
    distribution: Distribution,
    dtype: Option<DType>,
}

#[derive(Debug, Clone)]
enum Distribution {
    Uniform {
        from: f64,
        to: f64,
    },
    Normal {
        mean: f64,
        std: f64,
    },
    Exponential {
        rate: f64,
    },
    /// Ones with this probability.
    Bernoulli {
        p: f64,
    },
    /// Integers; `low` is 0 where it is none.
    Integers {
        low: Option<Arg<Scalar>>,
        high: Arg<Scalar>,
    },
}

fn random(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dtype = r.optional("dtype")?;
    ignore_placement(r);
    let kind = r.kind();
    let distribution = match kind {
        "torch.randn" | "torch.randn_like" => Distribution::Normal { mean: 0.0, std: 1.0 },
        "Tensor.normal" => {
            Distribution::Normal { mean: r.or("mean", 0.0)?, std: r.or("std", 1.0)? }
        }
        "Tensor.uniform" => {
            Distribution::Uniform { from: r.or("from", 0.0)?, to: r.or("to", 1.0)? }
        }
        "Tensor.exponential" => Distribution::Exponential { rate: r.or("lambd", 1.0)? },
        "torch.randint" | "torch.randint_like" => {
            let low = r.arg("low")?;
            let high = match r.arg("high")? {
                Some(high) => high,
                None => Arg::Value(r.required("high")?),
            };
            Distribution::Integers { low, high }
        }
        _ => Distribution::Uniform { from: 0.0, to: 1.0 },
    };
    let model = if kind.starts_with("Tensor.") {
        Model::Like(crate::support::rearrange::subject(r)?)
    } else {
        Model::read(r)?
    };
    Ok(Box::new(Random { model, distribution, dtype }))
}
register_op!(random =>
    "torch.rand", "torch.rand_like", "torch.randn", "torch.randn_like", "torch.randint",
    "torch.randint_like", "Tensor.normal", "Tensor.uniform", "Tensor.exponential");

/// `torch.normal`: of a size, or (as PNNX writes `Tensor.normal_`) of the size of a tensor, or with
/// a mean or a deviation for every element:
/// <https://pytorch.org/docs/stable/generated/torch.normal.html>
fn normal(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dtype = r.optional("dtype")?;
    ignore_placement(r);
    let like = r.named_input("input");
    let sized = r.has("size") || r.named_input("size").is_some();
    if like.is_none() && !sized {
        let mut of_each = |key| match r.has(key) {
            true => r.required(key).map(Arg::Value),
            false => r.required_input(key).map(Arg::Input),
        };
        let (mean, std) = (of_each("mean")?, of_each("std")?);
        return Ok(Box::new(Sample { what: Parameters::Normal(mean, std) }));
    }
    let distribution = Distribution::Normal { mean: r.or("mean", 0.0)?, std: r.or("std", 1.0)? };
    let model = match like {
        Some(input) => Model::Like(input),
        None => Model::read(r)?,
    };
    Ok(Box::new(Random { model, distribution, dtype }))
}
register_op!(normal => "torch.normal");

/// Zeros and ones: the input says with which probability every one is 1
/// (<https://pytorch.org/docs/stable/generated/torch.bernoulli.html>), or `p` does
/// (<https://pytorch.org/docs/stable/generated/torch.Tensor.bernoulli_.html>).
fn bernoulli(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    ignore_placement(r);
    let p = r.optional("p")?;
    let input = r.required_input("input")?;
    Ok(match p {
        Some(p) if (0.0..=1.0).contains(&p) => {
            let (model, distribution) = (Model::Like(input), Distribution::Bernoulli { p });
            Box::new(Random { model, distribution, dtype: None })
        }
        Some(_) => return Err(r.bad("p", "a probability in 0..=1")),
        None => Box::new(Sample { what: Parameters::Bernoulli(input) }),
    })
}
register_op!(bernoulli => "torch.bernoulli", "Tensor.bernoulli");

impl Random {
    fn spec(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape), ShapeError> {
        let natural = match (&self.distribution, &self.model) {
            (Distribution::Integers { .. }, Model::Sizes(_)) => DType::I64,
            _ => DType::F32,
        };
        let (shape, dtype) = self.model.resolve(inputs, natural)?;
        Ok((self.dtype.unwrap_or(dtype), shape))
    }

    fn draw(&self, inputs: &[ValueSpec]) -> Result<Draw, ShapeError> {
        let int = |arg: &Arg<Scalar>| match known_number(arg, inputs)? {
            Scalar::Int(i) => Ok(i),
            Scalar::Float(x) if x.fract() == 0.0 && x.abs() < 9e15 => Ok(x as i64),
            other => Err(invalid(format!("bounds are integers, found {other:?}"))),
        };
        Ok(match &self.distribution {
            &Distribution::Uniform { from, to } => Draw::Uniform { from, to },
            &Distribution::Normal { mean, std } => Draw::Normal { mean, std },
            &Distribution::Exponential { rate } => Draw::Exponential { rate },
            &Distribution::Bernoulli { p } => Draw::Bernoulli { p },
            Distribution::Integers { low, high } => {
                let low = low.as_ref().map_or(Ok(0), int)?;
                let high = int(high)?;
                if low >= high {
                    return Err(invalid(format!("there is no integer in {low}..{high}")));
                }
                Draw::Integers { low, high }
            }
        })
    }
}

impl Operator for Random {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape) = self.spec(inputs)?;
        self.draw(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::new(self.draw(cx.inputs)?))
    }
}

#[derive(Debug, Clone, Copy)]
enum Draw {
    Uniform { from: f64, to: f64 },
    Normal { mean: f64, std: f64 },
    Exponential { rate: f64 },
    Bernoulli { p: f64 },
    Integers { low: i64, high: i64 },
}

/// A number of the standard normal distribution (Box and Muller, 1958).
fn standard_normal(rng: &mut fastrand::Rng) -> f64 {
    // 1 - u lies in (0, 1], so that the logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

impl Kernel for Draw {
    fn name(&self) -> &str {
        "random"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (spec, bytes) = cx.outputs.take_bytes(0)?;
        let complex = spec.dtype.is_complex();
        let mut rng = fastrand::Rng::with_seed(SEED);
        let mut number = || match *self {
            Self::Uniform { from, to } => (to - from).mul_add(rng.f64(), from),
            Self::Normal { mean, std } => std.mul_add(standard_normal(&mut rng), mean),
            Self::Exponential { rate } => -(1.0 - rng.f64()).ln() / rate,
            Self::Bernoulli { p } => f64::from(rng.f64() < p),
            Self::Integers { low, high } => rng.i64(low..high) as f64,
        };
        for_dtype!(spec.dtype, T => {
            for out in stop::paced(bytes.chunks_exact_mut(spec.dtype.size_of()), 16) {
                let re = number();
                let x = T::from_parts(re, if complex { number() } else { 0.0 });
                out.copy_from_slice(bytemuck::bytes_of(&x));
            }
        });
        Ok(())
    }
}

/// What tensors say of every number.
#[derive(Debug)]
enum Parameters {
    /// Mean and standard deviation.
    Normal(Arg<f64>, Arg<f64>),
    /// The probability of 1.
    Bernoulli(usize),
}

#[derive(Debug)]
struct Sample {
    what: Parameters,
}

impl Sample {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape), ShapeError> {
        let mut spec: Option<(DType, Shape)> = None;
        let tensors = match &self.what {
            Parameters::Normal(mean, std) => vec![mean.clone(), std.clone()],
            Parameters::Bernoulli(input) => vec![Arg::Input(*input)],
        };
        for arg in tensors {
            let Arg::Input(input) = arg else { continue };
            let x = TensorValue::at(inputs, input)?;
            if !x.dtype().is_float() {
                let (expected, found) = ("a float".into(), x.dtype());
                return Err(ShapeError::DType { input, expected, found });
            }
            spec = Some(match spec {
                None => (x.dtype(), x.shape().clone()),
                Some((dtype, shape)) => {
                    let dtype = crate::support::promotion::promote(dtype, x.dtype());
                    (dtype, shape.broadcast(x.shape())?)
                }
            });
        }
        let (dtype, shape) = spec.ok_or_else(|| invalid("a size, or a tensor, is needed"))?;
        shape.checked_numel()?;
        Ok((dtype, shape))
    }
}

impl Operator for Sample {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (_, shape) = self.bind(cx.inputs)?;
        let at = |arg: &Arg<f64>| match *arg {
            Arg::Value(x) => Arg::Value(x),
            Arg::Input(input) => Arg::Input(leaf(cx.inputs, input)),
        };
        let what = match &self.what {
            Parameters::Normal(mean, std) => Parameters::Normal(at(mean), at(std)),
            Parameters::Bernoulli(input) => Parameters::Bernoulli(leaf(cx.inputs, *input)),
        };
        Ok(Planned::new(SampleKernel { what, shape }))
    }
}

struct SampleKernel {
    /// With leaves for inputs.
    what: Parameters,
    shape: Shape,
}

impl SampleKernel {
    /// The elements of an argument as f64, broadcast.
    fn elements(&self, cx: &RunCx<'_>, arg: &Arg<f64>) -> Result<Tensor, RunError> {
        match *arg {
            Arg::Value(x) => Ok(Tensor::scalar(x)?),
            Arg::Input(leaf) => Ok(cx.inputs.view(leaf)?.cast(DType::F64)?),
        }
    }
}

impl Kernel for SampleKernel {
    fn name(&self) -> &str {
        "random.sample"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let mut drawn: Vec<f64> = Vec::new();
        let wide = |t: &Tensor| t.view().broadcast_to(self.shape.clone())?.to_tensor();
        match &self.what {
            &Parameters::Bernoulli(leaf) => {
                let p = self.elements(cx, &Arg::Input(leaf))?;
                for (i, &p) in p.as_slice::<f64>()?.iter().enumerate() {
                    if !(0.0..=1.0).contains(&p) {
                        let what = format!("element {i} is {p}: no probability in 0..=1");
                        return Err(RunError::Value { input: 0, what });
                    }
                    drawn.push(f64::from(rng.f64() < p));
                }
            }
            Parameters::Normal(mean, std) => {
                let (mean, std) = (self.elements(cx, mean)?, self.elements(cx, std)?);
                let (mean, std) = (wide(&mean)?, wide(&std)?);
                for (&mean, &std) in mean.as_slice::<f64>()?.iter().zip(std.as_slice::<f64>()?) {
                    drawn.push(std.mul_add(standard_normal(&mut rng), mean));
                }
            }
        }
        let (spec, bytes) = cx.outputs.take_bytes(0)?;
        for_dtype!(spec.dtype, T => {
            for (out, x) in bytes.chunks_exact_mut(spec.dtype.size_of()).zip(drawn) {
                out.copy_from_slice(bytemuck::bytes_of(&T::convert_from(x)));
            }
        });
        Ok(())
    }
}

/// The numbers below n in random order:
/// <https://pytorch.org/docs/stable/generated/torch.randperm.html>
#[derive(Debug)]
struct Randperm {
    n: Arg<i64>,
    dtype: DType,
}

fn randperm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dtype = r.optional("dtype")?.unwrap_or(DType::I64);
    ignore_placement(r);
    let n = match r.arg("n")? {
        Some(n) => n,
        None => match r.input("n") {
            Some(at) => Arg::Input(at),
            None => Arg::Value(r.required("n")?),
        },
    };
    Ok(Box::new(Randperm { n, dtype }))
}
register_op!(randperm => "torch.randperm");

impl Operator for Randperm {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let n = self.n.int(inputs)?;
        let len = usize::try_from(n).map_err(|_| invalid(format!("n must not be {n}")))?;
        Shape::from([len]).checked_numel()?;
        Ok(vec![ValueSpec::tensor(self.dtype, [len])])
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::new(Shuffle))
    }
}

struct Shuffle;

impl Kernel for Shuffle {
    fn name(&self) -> &str {
        "random.permutation"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (spec, bytes) = cx.outputs.take_bytes(0)?;
        let unit = spec.dtype.size_of();
        for_dtype!(spec.dtype, T => {
            for (i, out) in bytes.chunks_exact_mut(unit).enumerate() {
                out.copy_from_slice(bytemuck::bytes_of(&T::convert_from(i as i64)));
            }
        });
        // Fisher and Yates, from the end.
        let mut rng = fastrand::Rng::with_seed(SEED);
        for i in (1..spec.shape.numel()).rev() {
            let j = rng.usize(..=i);
            for b in 0..unit {
                bytes.swap(i * unit + b, j * unit + b);
            }
        }
        Ok(())
    }
}

/// Indices drawn by their weights:
/// <https://pytorch.org/docs/stable/generated/torch.multinomial.html>
#[derive(Debug)]
struct Multinomial {
    input: usize,
    samples: Arg<i64>,
    replacement: bool,
}

fn multinomial(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    ignore_placement(r);
    let replacement = r.or("replacement", false)?;
    let samples = match r.arg("num_samples")? {
        Some(samples) => samples,
        None => Arg::Value(r.required("num_samples")?),
    };
    Ok(Box::new(Multinomial { input: r.required_input("input")?, samples, replacement }))
}
register_op!(multinomial => "torch.multinomial");

impl Multinomial {
    /// Number of weights in a row, and of samples.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(usize, usize), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        if !x.dtype().is_float() {
            let (input, expected, found) = (self.input, "a float".into(), x.dtype());
            return Err(ShapeError::DType { input, expected, found });
        }
        let (Some(&len), 1 | 2) = (x.shape().last(), x.shape().rank()) else {
            let (expected, found) = ("1 or 2".into(), x.shape().clone());
            return Err(ShapeError::Rank { input: self.input, expected, found });
        };
        let samples = self.samples.int(inputs)?;
        let drawn = usize::try_from(samples).ok().filter(|&n| n > 0 && len > 0);
        match drawn.filter(|&n| self.replacement || n <= len) {
            Some(n) => Ok((len, n)),
            None => Err(invalid(format!("{samples} samples cannot be drawn from {len} weights"))),
        }
    }
}

impl Operator for Multinomial {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (_, samples) = self.bind(inputs)?;
        let mut shape = TensorValue::at(inputs, self.input)?.shape().clone();
        if let Some(last) = shape.last_mut() {
            *last = samples;
        }
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(DType::I64, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (len, samples) = self.bind(cx.inputs)?;
        let (input, replacement) = (leaf(cx.inputs, self.input), self.replacement);
        Ok(Planned::new(DrawIndices { input, len, samples, replacement }))
    }
}

struct DrawIndices {
    input: usize,
    len: usize,
    samples: usize,
    replacement: bool,
}

impl DrawIndices {
    fn row(&self, weights: &[f64], out: &mut [i64], rng: &mut fastrand::Rng) -> bool {
        let mut sum = 0.0;
        let sums: Vec<f64> = weights
            .iter()
            .map(|w| {
                sum += w;
                sum
            })
            .collect();
        let set = weights.iter().filter(|w| **w > 0.0).count();
        let valid = weights.iter().all(|w| *w >= 0.0 && w.is_finite());
        if !valid || set == 0 || (!self.replacement && set < self.samples) {
            return false;
        }
        if self.replacement {
            for out in out {
                let x = rng.f64() * sum;
                let at = sums.partition_point(|s| *s <= x);
                *out = at.min(weights.len() - 1) as i64;
            }
            return true;
        }
        // The first to arrive, where each takes an exponential time by its weight.
        let mut times: Vec<(f64, i64)> =
            weights.iter().zip(0..).map(|(w, i)| (-(1.0 - rng.f64()).ln() / w, i)).collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (out, (_, i)) in out.iter_mut().zip(times) {
            *out = i;
        }
        true
    }
}

impl Kernel for DrawIndices {
    fn name(&self) -> &str {
        "random.multinomial"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let weights = cx.inputs.view(self.input)?.cast(DType::F64)?;
        let out = cx.outputs.take::<i64>(0)?;
        let mut rng = fastrand::Rng::with_seed(SEED);
        let rows = weights.as_slice::<f64>()?.chunks_exact(self.len);
        for (weights, out) in rows.zip(out.chunks_exact_mut(self.samples)) {
            if !self.row(weights, out, &mut rng) {
                let what = "weights must be finite and not negative, and enough of them not zero";
                return Err(RunError::Value { input: self.input, what: what.into() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, iota, op, run, tensor, try_op, values};
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn numbers_are_reproducible() {
        let y = run("torch.randn r 0 1 0 size=(100,10) dtype=None", &[]);
        let mean = values::<f32>(&y).iter().sum::<f32>() / 1000.0;
        assert!(mean.abs() < 0.15, "{mean}"); // five standard deviations
        let y = run("torch.rand_like r 1 1 0 1", &[iota([50])]);
        assert!(values::<f32>(&y).iter().all(|x| (0.0..1.0).contains(x)));
        let y = run("torch.randint r 0 1 0 low=-2 high=3 size=(200)", &[]);
        let mut found = values::<i64>(&y);
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [-2, -1, 0, 1, 2]);
        let y = run("torch.randint_like r 1 1 0 1 high=4 dtype=None", &[iota([3])]);
        assert!(values::<f32>(&y).iter().all(|x| [0.0, 1.0, 2.0, 3.0].contains(x)));
        error(&*op("torch.randint r 0 1 0 low=3 high=3 size=(2)"), &[]);
    }

    #[test]
    fn in_place_forms_keep_shape_and_dtype() {
        let x = tensor([400], &[0.0f64; 400]);
        let mean = |t: &Tensor| values::<f64>(t).iter().sum::<f64>() / 400.0;
        let y = run("Tensor.uniform u 1 1 0 1 from=2.0 to=4.0", std::slice::from_ref(&x));
        assert!((mean(&y) - 3.0).abs() < 0.15);
        let y = run(
            "torch.normal n 1 1 0 1 generator=None mean=5.0 std=0.1 $input=0",
            std::slice::from_ref(&x),
        );
        assert!((mean(&y) - 5.0).abs() < 0.03);
        let y = run("Tensor.exponential e 1 1 0 1 lambd=2.0", std::slice::from_ref(&x));
        assert!((mean(&y) - 0.5).abs() < 0.13);
        let y = run("Tensor.bernoulli b 1 1 0 1 p=0.25", std::slice::from_ref(&x));
        assert!((mean(&y) - 0.25).abs() < 0.11);
        assert!(try_op("Tensor.bernoulli b 1 1 0 1 p=1.5", &[]).is_err());
    }

    #[test]
    fn tensors_say_how_numbers_are_distributed() {
        let p = tensor([3], &[0.0f32, 1.0, 0.0]);
        let y = run("torch.bernoulli b 1 1 0 1 generator=None", std::slice::from_ref(&p));
        assert_eq!(y, p);
        error(&*op("torch.bernoulli b 1 1 0 1"), &[tensor([1], &[1.5f32])]);
        error(&*op("torch.bernoulli b 1 1 0 1"), &[tensor([1], &[1i64])]);
        let inputs = [iota([3]), tensor([2, 1], &[0.0f32; 2])];
        let y = run("torch.normal n 2 1 0 1 2 $mean=0 $std=1", &inputs);
        assert_eq!(y, tensor([2, 3], &[0.0f32, 1., 2., 0., 1., 2.]));
        let y = run("torch.normal n 1 1 0 1 $mean=0 std=0.0", &[iota([2])]);
        assert_eq!(y, iota([2]));
    }

    #[test]
    fn permutations_and_choices() {
        let mut found = values::<i64>(&run("torch.randperm p 0 1 0 n=20", &[]));
        assert_ne!(found, (0..20).collect::<Vec<_>>());
        found.sort_unstable();
        assert_eq!(found, (0..20).collect::<Vec<_>>());
        let y = run("torch.randperm p 0 1 0 n=1 dtype=torch.int", &[]);
        assert_eq!(y, tensor([1], &[0i32]));
        let weights = tensor([2, 3], &[0.0f32, 1.0, 1.0, 5.0, 0.0, 0.0]);
        let y = run(
            "torch.multinomial m 1 1 0 1 num_samples=9 replacement=True",
            std::slice::from_ref(&weights),
        );
        let drawn = values::<i64>(&y);
        assert!(drawn[..9].iter().all(|i| [1, 2].contains(i)) && drawn[9..] == [0; 9]);
        let two = op("torch.multinomial m 1 1 0 1 num_samples=2");
        let mut y = values::<i64>(&check(&*two, &[tensor([3], &[1.0f64, 0.0, 2.0])])[0]);
        y.sort_unstable();
        assert_eq!(y, [0, 2]);
        error(&*two, &[weights]); // the second row has one weight
        error(&*two, &[tensor([1], &[1.0f32])]);
        assert_eq!(
            check_line("torch.randperm p 0 1 0 n=0", &[])[0].spec(),
            Tensor::zeros(DType::I64, [0]).unwrap().spec()
        );
    }
}

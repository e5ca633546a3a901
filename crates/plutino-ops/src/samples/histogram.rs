//! How often numbers occur, or how many lie in each of neighbouring intervals.

use crate::reduce::planned;
use crate::support::assemble::leaf;
use crate::support::names::optional_tensor;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, BuildProblem, Cost, Inputs, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_floats;
use plutino_kernels::number::{Float, Real};
use plutino_tensor::stop;
use plutino_tensor::{DType, Tensor};

/// How often each integer occurs.
#[derive(Debug)]
struct BinCount {
    input: usize,
    weights: Option<usize>,
    /// Results at least.
    least: Arg<i64>,
}

/// <https://pytorch.org/docs/stable/generated/torch.bincount.html>: of integers of at least 0, as
/// many results as the greatest asks for, or `minlength`; with weights, their sums, in f32 for
/// those of f32 and in f64 for others.
fn bincount(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let least = r.arg("minlength")?.unwrap_or(Arg::Value(0));
    if let Arg::Value(..0) = least {
        return Err(r.bad("minlength", "an integer of at least 0"));
    }
    let weights = optional_tensor(r, "weights")?;
    let input = r.required_input("input")?;
    let weights = weights.or_else(|| r.input("weights"));
    Ok(Box::new(BinCount { input, weights, least }))
}
register_op!(bincount => "torch.bincount");

impl BinCount {
    /// The dtypes of input and result, and the least number of results.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<([DType; 2], usize), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if !x.dtype().is_integer() {
            let expected = "an integer".into();
            return Err(ShapeError::DType { input, expected, found: x.dtype() });
        }
        if x.shape().rank() != 1 && x.shape().numel() > 0 {
            let (expected, found) = ("1".into(), x.shape().clone());
            return Err(ShapeError::Rank { input, expected, found });
        }
        let mut result = DType::I64;
        if let Some(at) = self.weights {
            let weights = TensorValue::at(inputs, at)?;
            if weights.shape() != x.shape() {
                return Err(invalid(format!(
                    "{} weights for {} numbers",
                    weights.shape(),
                    x.shape()
                )));
            }
            if weights.dtype().is_complex() {
                let (expected, found) = ("a real number".into(), weights.dtype());
                return Err(ShapeError::DType { input: at, expected, found });
            }
            result = if weights.dtype() == DType::F32 { DType::F32 } else { DType::F64 };
        }
        let least = self.least.int(inputs)?;
        let least = usize::try_from(least).map_err(|_| invalid(format!("minlength is {least}")))?;
        Ok(([x.dtype(), result], least))
    }
}

impl Operator for BinCount {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![ValueSpec::Dynamic { dtype: self.bind(inputs)?.0[1] }])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let ([_, result], least) = self.bind(cx.inputs)?;
        let input = leaf(cx.inputs, self.input);
        let weights = self.weights.map(|at| leaf(cx.inputs, at));
        Ok(planned("bincount", move |cx| {
            let x = cx.inputs.view(input)?.cast(DType::I64)?;
            let x = x.as_slice::<i64>()?;
            let refuse = |what: String| RunError::Value { input, what };
            let most = x.iter().max().map_or(Ok(0), |&most| {
                usize::try_from(most).ok().and_then(|most| most.checked_add(1)).ok_or_else(|| {
                    refuse(format!(
                        "{most} is no number that can be counted: below 0, or too large"
                    ))
                })
            })?;
            if let Some(negative) = x.iter().find(|&&x| x < 0) {
                return Err(refuse(format!("{negative} is below 0")));
            }
            let mut counts = Tensor::zeros(result, [most.max(least)])?;
            let Some(at) = weights else {
                let to = counts.as_mut_slice::<i64>()?;
                stop::paced(x, 2).for_each(|&x| to[x as usize] += 1);
                return cx.outputs.emit(0, counts);
            };
            let weights = cx.inputs.view(at)?.cast(result)?;
            for_floats!(result,
                T => {
                    let to = counts.as_mut_slice::<T>()?;
                    for (&x, w) in stop::paced(x.iter().zip(weights.as_slice::<T>()?), 2) {
                        let sum = &mut to[x as usize];
                        *sum = T::from_real(sum.to_real() + w.to_real());
                    }
                },
                _ => return Err(RunError::Internal("weights are floats".into())),
            );
            cx.outputs.emit(0, counts)
        }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::moved(inputs, outputs)
    }
}

/// How many elements lie in each of some intervals.
#[derive(Debug)]
struct Histogram {
    input: usize,
    bins: Bins,
    /// None: from the least to the greatest element.
    range: Option<[f64; 2]>,
    weight: Option<usize>,
    density: bool,
    /// Whether the edges are an output; then elements are compared with them.
    edges: bool,
}

#[derive(Debug)]
enum Bins {
    /// So many of equal width.
    Equal(Arg<i64>),
    /// Between the numbers of an input.
    Edges(usize),
}

/// <https://pytorch.org/docs/stable/generated/torch.histc.html>: the range is that of the elements
/// where `min` and `max` are equal. What lies outside, and NaN, does not count.
fn histc(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let bins = Bins::Equal(r.arg("bins")?.unwrap_or(Arg::Value(100)));
    let (low, high): (f64, f64) = (r.or("min", 0.0)?, r.or("max", 0.0)?);
    if !(low <= high && low.is_finite() && high.is_finite()) {
        return Err(r.bad("max", "finite, and at least 'min'"));
    }
    let range = (low < high).then_some([low, high]);
    let input = r.required_input("input")?;
    Ok(Box::new(Histogram { input, bins, range, weight: None, density: false, edges: false }))
}
register_op!(histc => "torch.histc");

/// <https://pytorch.org/docs/stable/generated/torch.histogram.html>: counts and edges.
fn histogram(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    if r.output_count() != 2 {
        let (expected, found) = ("2".into(), r.output_count());
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    let range = match &r.or("range", Vec::<f64>::new())?[..] {
        [] => None,
        &[low, high] if low <= high && low.is_finite() && high.is_finite() => Some([low, high]),
        _ => return Err(r.bad("range", "two finite numbers, the lower one first")),
    };
    let (weight, density) = (optional_tensor(r, "weight")?, r.or("density", false)?);
    let bins = r.arg("bins")?;
    let input = r.required_input("input")?;
    let bins = match bins {
        Some(Arg::Value(count)) => Bins::Equal(Arg::Value(count)),
        Some(Arg::Input(at)) => Bins::Edges(at),
        None => Bins::Edges(r.required_input("bins")?),
    };
    if matches!(bins, Bins::Edges(_)) && range.is_some() {
        return Err(r.bad("range", "None where the edges are given"));
    }
    let weight = weight.or_else(|| r.input("weight"));
    Ok(Box::new(Histogram { input, bins, range, weight, density, edges: true }))
}
register_op!(histogram => "torch.histogram");

impl Histogram {
    /// The dtype, and the number of intervals.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, usize), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        let dtype = x.dtype();
        if !dtype.is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: dtype });
        }
        let like_input = |at: usize, found: DType| {
            let expected = format!("{dtype}, as input {input}");
            if found == dtype {
                Ok(())
            } else {
                Err(ShapeError::DType { input: at, expected, found })
            }
        };
        if let Some(at) = self.weight {
            let weight = TensorValue::at(inputs, at)?;
            like_input(at, weight.dtype())?;
            if weight.shape() != x.shape() {
                return Err(invalid(format!("{} weights for {}", weight.shape(), x.shape())));
            }
        }
        let bins = match &self.bins {
            Bins::Equal(count) => {
                let count = count.int(inputs)?;
                usize::try_from(count).ok().filter(|&n| n > 0).ok_or_else(|| {
                    invalid(format!("there are {count} bins: it must be at least 1"))
                })?
            }
            &Bins::Edges(at) => {
                let edges = TensorValue::at(inputs, at)?;
                like_input(at, edges.dtype())?;
                match edges.shape().dims() {
                    &[edges] if edges >= 2 => edges - 1,
                    _ => {
                        return Err(invalid(format!(
                            "edges are a vector of 2 or more, not {}",
                            edges.shape()
                        )));
                    }
                }
            }
        };
        Ok((dtype, bins))
    }
}

/// From where to where the intervals reach, `apart` to both sides where that is one number. PyTorch
/// takes another for edges than for `torch.histc`.
fn reach<T: Float>(x: &[T], range: Option<[f64; 2]>, apart: f64) -> Result<[T::Real; 2], String> {
    let [low, high] = match range {
        Some(range) => range,
        None => {
            let least = x.iter().map(|x| x.widen()).fold(f64::INFINITY, f64::min);
            let most = x.iter().map(|x| x.widen()).fold(f64::NEG_INFINITY, f64::max);
            if x.is_empty() { [0.0, 1.0] } else { [least, most] }
        }
    };
    if !(low.is_finite() && high.is_finite()) || x.iter().any(|x| range.is_none() && x.is_nan()) {
        return Err(format!("the elements reach from {low} to {high}: that is no finite range"));
    }
    let apart = if low == high { apart } else { 0.0 };
    Ok([low - apart, high + apart].map(T::Real::nearest))
}

/// `count` numbers, evenly spaced, as `torch.linspace` has them: from both ends to the middle.
fn spaced<T: Float>([low, high]: [T::Real; 2], edges: &mut [T]) {
    let steps = edges.len().saturating_sub(1);
    let real = |n: usize| T::Real::nearest(n as f64);
    let step = (high - low) / real(steps.max(1));
    for (i, edge) in edges.iter_mut().enumerate() {
        let from_low = i < steps.div_ceil(2);
        let x = if from_low { low + step * real(i) } else { high - step * real(steps - i) };
        *edge = T::from_real(x);
    }
}

impl Operator for Histogram {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, bins) = self.bind(inputs)?;
        let mut outputs = vec![ValueSpec::tensor(dtype, [bins])];
        if self.edges {
            let edges = bins.checked_add(1).ok_or_else(|| invalid("too many bins"))?;
            outputs.push(ValueSpec::tensor(dtype, [edges]));
        }
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, bins) = self.bind(cx.inputs)?;
        let input = leaf(cx.inputs, self.input);
        let at = |input: usize| leaf(cx.inputs, input);
        let given = match self.bins {
            Bins::Edges(edges) => Some(at(edges)),
            Bins::Equal(_) => None,
        };
        let work = Work {
            input,
            bins,
            given,
            weight: self.weight.map(at),
            range: self.range,
            density: self.density,
        };
        let edges = self.edges;
        for_floats!(dtype,
            T => Ok(planned("histogram", move |cx| match edges {
                true => work.by_edges::<T>(cx),
                false => work.by_width::<T>(cx),
            })),
            _ => Err(PlanError::Unsupported(format!("a histogram of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::moved(inputs, outputs)
    }
}

/// A histogram with everything decided; inputs by leaves.
struct Work {
    input: usize,
    bins: usize,
    given: Option<usize>,
    weight: Option<usize>,
    range: Option<[f64; 2]>,
    density: bool,
}

impl Work {
    fn reach<T: Float>(&self, inputs: &Inputs<'_>, apart: f64) -> Result<[T::Real; 2], RunError> {
        let x = inputs.get::<T>(self.input)?;
        reach(x, self.range, apart).map_err(|what| RunError::Value { input: self.input, what })
    }

    /// Intervals of equal width, which are computed.
    fn by_width<T: Float>(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let [low, high] = self.reach::<T>(&cx.inputs, 1.0)?;
        let y = cx.outputs.take::<T>(0)?;
        y.fill(T::default());
        let (bins, one) = (T::Real::nearest(self.bins as f64), T::Real::nearest(1.0));
        for x in stop::paced(cx.inputs.get::<T>(self.input)?, 4).map(|x| x.to_real()) {
            if x >= low && x <= high {
                let at = ((x - low) * bins / (high - low)).wide() as usize;
                let count = &mut y[at.min(self.bins - 1)];
                *count = T::from_real(count.to_real() + one);
            }
        }
        Ok(())
    }

    /// Intervals between edges, with which elements are compared.
    fn by_edges<T: Float>(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (y, edges) = (cx.outputs.take::<T>(0)?, cx.outputs.take::<T>(1)?);
        match self.given {
            Some(at) => edges.copy_from_slice(cx.inputs.get::<T>(at)?),
            None => spaced(self.reach::<T>(&cx.inputs, 0.5)?, edges),
        }
        y.fill(T::default());
        let (low, high) = (edges[0], edges[self.bins]);
        let weights = self.weight.map(|at| cx.inputs.get::<T>(at)).transpose()?;
        for (i, &x) in stop::paced(cx.inputs.get::<T>(self.input)?, 16).enumerate() {
            if x >= low && x <= high {
                let at = edges.partition_point(|&edge| edge <= x).saturating_sub(1);
                let weight = weights.map_or(T::Real::nearest(1.0), |w| w[i].to_real());
                let sum = &mut y[at.min(self.bins - 1)];
                *sum = T::from_real(sum.to_real() + weight);
            }
        }
        if self.density {
            let total: f64 = y.iter().map(|y| y.widen()).sum();
            for (y, edges) in y.iter_mut().zip(edges.windows(2)) {
                let width = edges[1].to_real() - edges[0].to_real();
                *y = T::from_real(y.to_real() / T::Real::nearest(total) / width);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor, try_op};
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn how_often_integers_occur() {
        let x = tensor([4], &[1i64, 3, 1, 0]);
        let run = |line: &str, inputs: &[Tensor]| check(&*op(line), inputs).remove(0);
        assert_eq!(
            run("torch.bincount b 1 1 0 1", std::slice::from_ref(&x)),
            tensor([4], &[1i64, 2, 0, 1])
        );
        let line = "torch.bincount b 1 1 0 1 minlength=5 weights=None $input=0";
        assert_eq!(run(line, std::slice::from_ref(&x)), tensor([5], &[1i64, 2, 0, 1, 0]));
        let weights = tensor([4], &[0.5f32, 1.0, 2.0, 4.0]);
        let y = run("torch.bincount b 2 1 0 1 2 $input=0 $weights=1", &[x.clone(), weights]);
        assert_eq!(y, tensor([4], &[4.0f32, 2.5, 0.0, 1.0]));
        let y = run("torch.bincount b 2 1 0 1 2", &[x.clone(), x.clone()]);
        assert_eq!(y, tensor([4], &[0.0f64, 2.0, 0.0, 3.0]));
        let none = run("torch.bincount b 1 1 0 1 minlength=2", &[tensor([0], &[0u8; 0])]);
        assert_eq!(none, tensor([2], &[0i64, 0]));
        let count = op("torch.bincount b 1 1 0 1");
        error(&*count, &[tensor([1], &[-1i64])]);
        error(&*count, &[tensor([1], &[i64::MAX])]);
        error(&*count, &[iota([2])]);
        error(&*count, &[tensor([1, 1], &[1i64])]);
        assert!(try_op("torch.bincount b 1 1 0 1 minlength=-1", &[]).is_err());
    }

    #[test]
    fn intervals_of_equal_width() {
        let x = tensor([2, 3], &[1.0f32, 2.0, 1.0, f32::NAN, -5.0, 4.0]);
        let run = |line: &str, x: &Tensor| check(&*op(line), std::slice::from_ref(x)).remove(0);
        let y = run("torch.histc h 1 1 0 1 bins=4 min=0 max=4 $input=0", &x);
        assert_eq!(y, tensor([4], &[0.0f32, 2.0, 1.0, 1.0]));
        error(&*op("torch.histc h 1 1 0 1 bins=4"), &[x]);
        let y = run("torch.histc h 1 1 0 1 bins=3", &tensor([3], &[1.0f64, 2.0, 1.0]));
        assert_eq!(y, tensor([3], &[2.0f64, 0.0, 1.0]));
        let y = run("torch.histc h 1 1 0 1 bins=3 min=7 max=7", &tensor([2], &[1.0f32, 1.0]));
        assert_eq!(y, tensor([3], &[0.0f32, 2.0, 0.0]));
        let y = run("torch.histc h 1 1 0 1 bins=2", &iota([0]));
        assert_eq!(y, tensor([2], &[0.0f32; 2]));
        error(&*op("torch.histc h 1 1 0 1 bins=0"), &[iota([2])]);
        error(&*op("torch.histc h 1 1 0 1 bins=2"), &[tensor([1], &[1i64])]);
        assert!(try_op("torch.histc h 1 1 0 1 min=2 max=1", &[]).is_err());
    }

    #[test]
    fn intervals_between_edges() {
        let x = tensor([3], &[1.0f32, 2.0, 1.0]);
        let run = |line: &str, inputs: &[Tensor]| check(&*op(line), inputs);
        let y = run("torch.histogram h 1 2 0 1 2 bins=3", std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([3], &[2.0f32, 0.0, 1.0]));
        assert_close(&y[1], &tensor([4], &[1.0f32, 1.333_333_3, 1.666_666_6, 2.0]), 1e-6);
        let line = "torch.histogram h 3 2 0 1 2 3 4 density=True $input=0 $bins=1 $weight=2";
        let (edges, weight) = (tensor([4], &[0.0f32, 1.0, 1.5, 3.0]), iota([3]));
        let y = run(line, &[x.clone(), edges, weight]);
        assert_close(&y[0], &tensor([3], &[0.0f32, 1.333_333_4, 0.222_222_2]), 1e-6);
        let line = "torch.histogram h 1 2 0 1 2 bins=2 range=(0.0,4.0)";
        assert_eq!(run(line, std::slice::from_ref(&x))[0], tensor([2], &[2.0f32, 1.0]));
        let wide = Tensor::zeros(DType::F64, [3]).unwrap();
        error(&*op("torch.histogram h 2 2 0 1 2 3 $input=0 $bins=1"), &[x, wide]);
        assert!(try_op("torch.histogram h 1 1 0 1 bins=2", &[]).is_err());
        assert!(try_op("torch.histogram h 1 2 0 1 2 bins=2 range=(4.0,0.0)", &[]).is_err());
    }
}

//! Different elements, or different slices along a dimension: how many there are depends on data.
//!
//! <https://pytorch.org/docs/stable/generated/torch.unique.html>: in ascending order, NaN last,
//! each NaN for itself; <https://pytorch.org/docs/stable/generated/torch.unique_consecutive.html>:
//! the first of each run of equal ones. With them, for each element the place of its like
//! (`return_inverse`) and how many there are of each (`return_counts`). PyTorch's native functions
//! have all three outputs; those that are not asked for are empty.

use crate::activations::softmax::lines;
use crate::support::assemble::leaf;
use crate::{
    BuildError, BuildProblem, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, function, register_op,
};
use plutino_kernels::for_ordered;
use plutino_kernels::number::{Ordered, RANK_OF_NAN};
use plutino_kernels::sort::{Ranked, sort, sort_ranked};
use plutino_tensor::stop;
use plutino_tensor::{DType, Shape, Tensor, TensorError, alloc};
use std::cmp::Ordering;

#[derive(Debug)]
struct Unique {
    input: usize,
    consecutive: bool,
    /// None: the tensor as one row.
    dim: Option<i64>,
    outputs: Vec<Output>,
}

/// An output besides the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Inverse,
    Counts,
    /// A vector of nothing.
    Empty,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let consecutive = function(r.kind()).ends_with("consecutive");
    let _: bool = r.or("sorted", true)?; // leaves the order open; ours is always ascending
    let dim = match r.kind().contains("unique_dim") {
        true => Some(r.required("dim")?),
        false => r.optional("dim")?,
    };
    let wanted = [
        (r.or("return_inverse", false)?, Output::Inverse),
        (r.or("return_counts", false)?, Output::Counts),
    ];
    let asked = wanted.iter().filter(|(asked, _)| *asked).map(|(_, output)| *output);
    let count = r.output_count();
    let outputs = match count {
        3 => wanted.map(|(asked, output)| if asked { output } else { Output::Empty }).to_vec(),
        // `torch._unique` has no counts.
        2 if asked.clone().next().is_none() => vec![Output::Empty],
        _ => asked.take(count.saturating_sub(1)).collect(),
    };
    if count != outputs.len() + 1 {
        let (expected, found) = ("1 to 3, as many as are asked for,".into(), count);
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    Ok(Box::new(Unique { input: r.required_input("input")?, consecutive, dim, outputs }))
}
register_op!(build => "torch.unique", "torch.unique_consecutive", "torch.unique_dim",
    "torch.unique_dim_consecutive", "torch._unique", "torch._unique2");

impl Unique {
    /// The slices that are compared, as `[outer, len, inner]`.
    fn sizes(&self, inputs: &[ValueSpec]) -> Result<[usize; 3], ShapeError> {
        let x = TensorValue::real_at(inputs, self.input)?;
        let Some(dim) = self.dim else { return Ok([1, x.shape().numel(), 1]) };
        let sizes = lines(x.shape(), dim)?;
        if x.shape().numel() == 0 && sizes[1] > 0 {
            let text = format!("slices of nothing are not told apart: the input is {}", x.shape());
            return Err(ShapeError::Invalid(text));
        }
        Ok(sizes)
    }
}

impl Operator for Unique {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let sizes = self.sizes(inputs)?;
        let x = TensorValue::at(inputs, self.input)?;
        let mut outputs = vec![ValueSpec::Dynamic { dtype: x.dtype() }];
        outputs.extend(self.outputs.iter().map(|output| match output {
            Output::Inverse if self.dim.is_none() => {
                ValueSpec::tensor(DType::I64, x.shape().clone())
            }
            Output::Inverse => ValueSpec::tensor(DType::I64, [sizes[1]]),
            Output::Counts => ValueSpec::Dynamic { dtype: DType::I64 },
            Output::Empty => ValueSpec::tensor(DType::I64, [0]),
        }));
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (sizes, x) = (self.sizes(cx.inputs)?, TensorValue::at(cx.inputs, self.input)?);
        Ok(Planned::new(UniqueKernel {
            dtype: x.dtype(),
            input: leaf(cx.inputs, self.input),
            sizes,
            dim: self.dim.map(|dim| x.shape().dim(dim)).transpose().map_err(ShapeError::from)?,
            consecutive: self.consecutive,
            outputs: self.outputs.clone(),
        }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let x = TensorValue::at(inputs, self.input).map_or(0, |x| x.shape().numel() as u64);
        let comparisons = u64::from(x.checked_ilog2().unwrap_or(0)).saturating_mul(x);
        Cost { flops: comparisons, ..Cost::moved(inputs, outputs) }
    }
}

struct UniqueKernel {
    dtype: DType,
    input: usize,
    sizes: [usize; 3],
    dim: Option<usize>,
    consecutive: bool,
    outputs: Vec<Output>,
}

/// Slices of `[outer, len, inner]`.
struct Slices {
    ranks: Vec<u64>,
    sizes: [usize; 3],
    /// What differs from itself.
    nan: Option<u64>,
}

impl Slices {
    fn of<T: Ordered>(x: &[T], sizes: [usize; 3]) -> Result<Self, TensorError> {
        let nan = T::DTYPE.is_float().then_some(RANK_OF_NAN);
        Ok(Self { ranks: alloc::collect(x.iter().map(|x| x.rank()))?, sizes, nan })
    }

    /// The ranks of the elements of two slices, in pairs.
    fn pairs(&self, a: i64, b: i64) -> impl Iterator<Item = (u64, u64)> {
        let [outer, len, inner] = self.sizes;
        // Without elements nothing bounds the outer dimensions.
        let outer = if self.ranks.is_empty() { 0 } else { outer };
        (0..outer).flat_map(move |o| {
            let start = |k: i64| (o * len + k as usize) * inner;
            let (a, b) = (start(a), start(b));
            let [a, b] = [a, b].map(|start| self.ranks[start..start + inner].iter().copied());
            a.zip(b)
        })
    }

    fn order(&self, a: i64, b: i64) -> Ordering {
        let unequal = self.pairs(a, b).find(|(a, b)| a != b);
        unequal.map_or_else(|| a.cmp(&b), |(a, b)| a.cmp(&b))
    }

    fn same(&self, a: i64, b: i64) -> bool {
        self.pairs(a, b).all(|(a, b)| a == b && Some(a) != self.nan)
    }
}

/// Which slices differ.
struct Groups {
    /// The first slice of each group, in the order of the groups.
    first: Vec<i64>,
    /// How many slices each group has.
    counts: Vec<i64>,
    /// The group of each slice.
    inverse: Tensor,
}

fn groups(slices: &Slices, sorted: bool) -> Result<Groups, TensorError> {
    let len = slices.sizes[1];
    let mut order = Tensor::zeros(DType::I64, [len])?;
    let order = order.as_mut_slice::<i64>()?;
    order.iter_mut().enumerate().for_each(|(i, o)| *o = i as i64);
    match slices.sizes {
        _ if !sorted => {}
        [1, _, 1] => {
            let ranked = slices.ranks.iter().enumerate().map(|(at, &rank)| Ranked::new(rank, at));
            let mut ranked = alloc::collect(ranked)?;
            sort_ranked(&mut ranked);
            order.iter_mut().zip(ranked).for_each(|(o, ranked)| *o = ranked.at() as i64);
        }
        _ => sort(order, |&a, &b| slices.order(a, b)),
    }
    let mut inverse = Tensor::zeros(DType::I64, [len])?;
    let to = inverse.as_mut_slice::<i64>()?;
    let (mut first, mut counts) = (alloc::list(len)?, alloc::list(len)?);
    let mut before = None;
    for &k in stop::paced(&*order, 8) {
        match counts.last_mut() {
            Some(count) if before.is_some_and(|b| slices.same(b, k)) => *count += 1,
            _ => {
                first.push(k);
                counts.push(1);
            }
        }
        to[k as usize] = first.len() as i64 - 1;
        before = Some(k);
    }
    stop::check()?;
    Ok(Groups { first, counts, inverse })
}

impl Kernel for UniqueKernel {
    fn name(&self) -> &str {
        "unique"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_ordered!(self.dtype,
            T => {
                let x = cx.inputs.get::<T>(self.input)?;
                let groups = groups(&Slices::of(x, self.sizes)?, !self.consecutive)?;
                let mut shape: Shape = match self.dim {
                    Some(_) => cx.inputs.spec(self.input)?.shape.clone(),
                    None => [groups.first.len()].into(),
                };
                if let Some(size) = shape.get_mut(self.dim.unwrap_or(0)) {
                    *size = groups.first.len();
                }
                let mut values = Tensor::zeros(self.dtype, shape)?;
                let ([outer, len, inner], count) = (self.sizes, groups.first.len());
                let to = values.as_mut_slice::<T>()?;
                let outer = if to.is_empty() { 0 } else { outer };
                for o in 0..outer {
                    for (n, &k) in groups.first.iter().enumerate() {
                        let (from, at) = ((o * len + k as usize) * inner, (o * count + n) * inner);
                        to[at..at + inner].copy_from_slice(&x[from..from + inner]);
                    }
                }
                cx.outputs.emit(0, values)?;
                for (i, output) in self.outputs.iter().enumerate() {
                    match output {
                        Output::Inverse => {
                            let inverse = groups.inverse.as_slice::<i64>()?;
                            cx.outputs.take::<i64>(i + 1)?.copy_from_slice(inverse);
                        }
                        Output::Counts => {
                            let counts = Tensor::from_slice(&groups.counts, [count])?;
                            cx.outputs.emit(i + 1, counts)?;
                        }
                        Output::Empty => drop(cx.outputs.take::<i64>(i + 1)?),
                    }
                }
                Ok(())
            },
            _ => Err(RunError::Internal("complex numbers have no order".into())),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, try_op, values};
    use num_complex::Complex;
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn different_elements() {
        let x = tensor([2, 3], &[3i64, 1, 3, 2, 1, 3]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x));
        assert_eq!(run("torch.unique u 1 1 0 1")[0], tensor([3], &[1i64, 2, 3]));
        let line = "torch.unique u 1 3 0 1 2 3 return_inverse=True return_counts=True sorted=False";
        let (inverse, counts) =
            (tensor([2, 3], &[2i64, 0, 2, 1, 0, 2]), tensor([3], &[2i64, 1, 3]));
        assert_eq!(run(line)[1..], [inverse.clone(), counts.clone()]);
        assert_eq!(run("torch.unique u 1 2 0 1 2 return_counts=True")[1], counts);
        let empty = Tensor::zeros(DType::I64, [0]).unwrap();
        let line = "torch._unique2 u 1 3 0 1 2 3 sorted=True return_inverse=True";
        assert_eq!(run(line)[1..], [inverse, empty.clone()]);
        assert_eq!(run("torch._unique u 1 2 0 1 2")[1], empty);
        assert!(try_op("torch.unique u 1 4 0 1 2 3 4", &[]).is_err());
        let nan = tensor([3], &[f32::NAN, 1.0, f32::NAN]);
        let y = check(&*op("torch.unique u 1 2 0 1 2 return_inverse=True"), &[nan]);
        assert_eq!((values::<f32>(&y[0])[0], y[0].numel()), (1.0, 3));
        assert_eq!(values::<i64>(&y[1]), [1, 0, 2]);
        let line = "torch.unique u 1 2 0 1 2 return_inverse=True";
        let y = check(&*op(line), &[tensor([], &[true])]);
        assert_eq!(y, [tensor([1], &[true]), tensor([], &[0i64])]);
        assert_eq!(check(&*op("torch.unique u 1 1 0 1"), &[iota([0, 2])])[0], iota([0]));
        error(&*op("torch.unique u 1 1 0 1"), &[tensor([1], &[Complex::new(0.0f32, 1.0)])]);
    }

    #[test]
    fn runs_of_equal_elements() {
        let x = tensor([6], &[1.0f32, 1.0, 2.0, 2.0, 2.0, 1.0]);
        let line = "torch.unique_consecutive u 1 3 0 1 2 3 return_inverse=True return_counts=True";
        let y = check(&*op(line), std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([3], &[1.0f32, 2.0, 1.0]));
        let (inverse, counts) = (tensor([6], &[0i64, 0, 1, 1, 1, 2]), tensor([3], &[2i64, 3, 1]));
        assert_eq!(y[1..], [inverse, counts]);
        let x = tensor([2, 4], &[1i32, 1, 1, 2, 3, 3, 4, 4]);
        let line = "torch.unique_consecutive u 1 2 0 1 2 dim=1 return_inverse=True";
        let y = check(&*op(line), &[x]);
        assert_eq!(y, [tensor([2, 3], &[1i32, 1, 2, 3, 4, 4]), tensor([4], &[0i64, 0, 1, 2])]);
    }

    #[test]
    fn different_slices() {
        let x = tensor([3, 2], &[3u8, 1, 1, 1, 3, 1]);
        let line = "torch.unique_dim u 1 3 0 1 2 3 dim=0 return_inverse=True return_counts=True";
        let y = check(&*op(line), std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([2, 2], &[1u8, 1, 3, 1]));
        assert_eq!(y[1..], [tensor([3], &[1i64, 0, 1]), tensor([2], &[1i64, 2])]);
        let y = check(&*op("torch.unique u 1 1 0 1 dim=-1"), std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([3, 2], &[1u8, 3, 1, 1, 1, 3]));
        error(&*op("torch.unique u 1 1 0 1 dim=2"), &[x]);
        error(&*op("torch.unique u 1 1 0 1 dim=0"), &[iota([2, 0])]);
    }
}

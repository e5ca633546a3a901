//! Positions of the elements that are not zero: how many there are depends on data.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nonzero.html>,
//! <https://pytorch.org/docs/stable/generated/torch.argwhere.html>: a row of numbers for each of
//! them, in row-major order; or (`as_tuple`, `nonzero_numpy`, `torch.where` of a condition alone) a
//! vector for each dimension. `nonzero_static` has as many rows as it is told: the first ones, or
//! all and then rows of one number.

use crate::reduce::planned;
use crate::support::assemble::leaf;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, function, register_op,
};
use plutino_kernels::for_numbers;
use plutino_kernels::number::{Number, Wide};
use plutino_tensor::stop;
use plutino_tensor::{DType, Shape, Tensor};

#[derive(Debug)]
struct NonZero {
    input: usize,
    /// A vector for each dimension, instead of a matrix.
    vectors: bool,
    /// The outputs that the file gives the operator: a list of the vectors, or each by itself.
    outputs: usize,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let vectors = r.or("as_tuple", false)? || function(r.kind()) == "nonzero_numpy";
    let (input, outputs) = (r.required_input("input")?, r.output_count());
    Ok(Box::new(NonZero { input, vectors, outputs }))
}
register_op!(build => "torch.nonzero", "torch.argwhere", "torch.nonzero_numpy");

/// Positions in so many rows.
#[derive(Debug)]
struct NonZeroStatic {
    input: usize,
    rows: usize,
    fill: i64,
}

fn build_static(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (size, fill) = (r.required::<i64>("size")?, r.or("fill_value", -1)?);
    let rows = usize::try_from(size).map_err(|_| r.bad("size", "a number of rows"))?;
    Ok(Box::new(NonZeroStatic { input: r.required_input("input")?, rows, fill }))
}
register_op!(build_static => "torch.nonzero_static");

impl Operator for NonZeroStatic {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let shape = Shape::from([self.rows, TensorValue::at(inputs, self.input)?.shape().rank()]);
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(DType::I64, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (x, input) = (TensorValue::at(cx.inputs, self.input)?, leaf(cx.inputs, self.input));
        let (dtype, shape, fill) = (x.dtype(), x.shape().clone(), self.fill);
        Ok(planned("nonzero_static", move |cx| {
            let y = cx.outputs.take::<i64>(0)?;
            let mut rows = y.chunks_exact_mut(shape.rank().max(1));
            for_numbers!(dtype, T => {
                let zero = <T as Number>::Wide::ZERO;
                let elements = stop::paced(cx.inputs.get::<T>(input)?, 2).enumerate();
                let found = elements.filter(|(_, x)| x.widen() != zero).map(|(number, _)| number);
                found.zip(rows.by_ref()).for_each(|(number, row)| {
                    positions(&shape, std::iter::once(number), |d, _, index| row[d] = index);
                });
            });
            rows.for_each(|row| row.fill(fill));
            Ok(stop::check()?)
        }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::moved(inputs, outputs)
    }
}

/// `torch.where(condition)`: the positions at which it holds.
pub(crate) fn where_holds(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, outputs) = (r.required_input("condition")?, r.output_count());
    Ok(Box::new(NonZero { input, vectors: true, outputs }))
}

impl NonZero {
    /// The shape whose positions are asked for: a scalar has one where it is read as a vector.
    fn shape(&self, x: &TensorValue) -> Shape {
        if self.vectors && x.shape().rank() == 0 { [1].into() } else { x.shape().clone() }
    }
}

impl Operator for NonZero {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let shape = self.shape(TensorValue::at(inputs, self.input)?);
        let positions = ValueSpec::Dynamic { dtype: DType::I64 };
        match self.outputs {
            1 if !self.vectors => Ok(vec![positions]),
            1 => Ok(vec![ValueSpec::List(vec![positions; shape.rank()])]),
            n if self.vectors && n == shape.rank() => Ok(vec![positions; shape.rank()]),
            n => Err(ShapeError::Invalid(format!(
                "there are {} dimensions, the file has outputs for {n}",
                shape.rank()
            ))),
        }
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let x = TensorValue::at(cx.inputs, self.input)?;
        let (shape, input) = (self.shape(x), leaf(cx.inputs, self.input));
        Ok(Planned::new(Positions { dtype: x.dtype(), input, shape, vectors: self.vectors }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::moved(inputs, outputs)
    }
}

struct Positions {
    dtype: DType,
    input: usize,
    shape: Shape,
    vectors: bool,
}

/// Writes the positions in a shape, counted by row-major numbers, `rank` numbers each: `put` gets
/// the dimension, the number of the position among all, and the index.
fn positions(
    shape: &[usize],
    numbers: impl Iterator<Item = usize>,
    mut put: impl FnMut(usize, usize, i64),
) {
    for (n, mut number) in numbers.enumerate() {
        for (d, &size) in shape.iter().enumerate().rev() {
            put(d, n, (number % size.max(1)) as i64);
            number /= size.max(1);
        }
    }
}

impl Kernel for Positions {
    fn name(&self) -> &str {
        "nonzero"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_numbers!(self.dtype, T => {
            let (x, zero) = (cx.inputs.get::<T>(self.input)?, <T as Number>::Wide::ZERO);
            let found = || {
                let elements = stop::paced(x, 2).enumerate();
                elements.filter(|(_, x)| x.widen() != zero).map(|(number, _)| number)
            };
            let (count, rank) = (found().count(), self.shape.rank());
            stop::check()?; // else there may be more than were counted
            if !self.vectors {
                let mut y = Tensor::zeros(DType::I64, [count, rank])?;
                let out = y.as_mut_slice::<i64>()?;
                positions(&self.shape, found(), |d, n, index| out[n * rank + d] = index);
                return cx.outputs.emit(0, y);
            }
            let mut vectors = Vec::with_capacity(rank);
            for _ in 0..rank {
                vectors.push(Tensor::zeros(DType::I64, [count])?);
            }
            let slices: Result<Vec<_>, _> = vectors.iter_mut().map(Tensor::as_mut_slice).collect();
            let mut slices: Vec<&mut [i64]> = slices?;
            positions(&self.shape, found(), |d, n, index| slices[d][n] = index);
            vectors.into_iter().enumerate().try_for_each(|(d, y)| cx.outputs.emit(d, y))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, infer, iota, op, specs, tensor, try_op};
    use num_complex::Complex;
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn rows_of_positions() {
        let x = tensor([2, 3], &[0.0f32, 1.0, f32::NAN, -0.0, 0.0, 2.0]);
        for kind in ["torch.nonzero", "torch.argwhere"] {
            let y = check(&*op(&format!("{kind} n 1 1 0 1")), std::slice::from_ref(&x));
            assert_eq!(y[0], tensor([3, 2], &[0i64, 1, 0, 2, 1, 2]));
        }
        let run = |x: Tensor| check(&*op("torch.nonzero n 1 1 0 1 $input=0"), &[x]).remove(0);
        assert_eq!(run(tensor([], &[true])), Tensor::zeros(DType::I64, [1, 0]).unwrap());
        assert_eq!(run(tensor([], &[false])), Tensor::zeros(DType::I64, [0, 0]).unwrap());
        assert_eq!(run(iota([0, 3])), Tensor::zeros(DType::I64, [0, 2]).unwrap());
        let z = tensor([2], &[Complex::new(0.0f32, 1.0), Complex::new(0.0, 0.0)]);
        assert_eq!(run(z), tensor([1, 1], &[0i64]));
    }

    #[test]
    fn as_many_rows_as_are_told() {
        let x = tensor([2, 3], &[0.0f32, 1.0, f32::NAN, -0.0, 0.0, 2.0]);
        let run = |rest: &str, x: &Tensor| {
            let line = format!("torch.nonzero_static n 1 1 0 1 {rest}");
            check(&*op(&line), std::slice::from_ref(x)).remove(0)
        };
        assert_eq!(run("size=2", &x), tensor([2, 2], &[0i64, 1, 0, 2]));
        assert_eq!(run("size=3", &x), tensor([3, 2], &[0i64, 1, 0, 2, 1, 2]));
        let five = tensor([5, 2], &[0i64, 1, 0, 2, 1, 2, -1, -1, -1, -1]);
        assert_eq!(run("size=5", &x), five);
        let filled = tensor([2, 1], &[1i64, 7]);
        assert_eq!(run("size=2 fill_value=7", &tensor([2], &[false, true])), filled);
        assert_eq!(run("size=0", &x), Tensor::zeros(DType::I64, [0, 2]).unwrap());
        assert_eq!(run("size=2", &tensor([], &[3i64])), Tensor::zeros(DType::I64, [2, 0]).unwrap());
        assert!(try_op("torch.nonzero_static n 1 1 0 1 size=-1", &[]).is_err());
    }

    #[test]
    fn a_vector_for_each_dimension() {
        let x = tensor([2, 2], &[true, false, true, true]);
        for line in [
            "torch.nonzero n 1 1 0 1 as_tuple=True",
            "torch.nonzero_numpy n 1 1 0 1",
            "torch.where n 1 1 0 1 $condition=0",
        ] {
            let y = check(&*op(line), std::slice::from_ref(&x));
            assert_eq!(y, [tensor([3], &[0i64, 1, 1]), tensor([3], &[0i64, 0, 1])], "{line}");
        }
        let operator = op("torch.where n 1 1 0 1");
        assert_eq!(infer(&*operator, &specs(&[x])).unwrap()[0].leaf_count(), 2);
        assert_eq!(check(&*operator, &[tensor([], &[3i64])]), [tensor([1], &[0i64])]);
        assert_eq!(check(&*operator, &[tensor([], &[f32::NAN])]), [tensor([1], &[0i64])]);
        let none = [tensor([0], &[0i64; 0]), tensor([0], &[0i64; 0])];
        assert_eq!(check(&*operator, &[tensor([2, 0], &[0.0f32; 0])]), none);
    }

    #[test]
    fn vectors_may_be_outputs_of_their_own() {
        let two = op("torch.where w 1 2 0 1 2 $condition=0");
        let y = check(&*two, &[tensor([2, 2], &[true, false, true, true])]);
        assert_eq!(y, [tensor([3], &[0i64, 1, 1]), tensor([3], &[0i64, 0, 1])]);
        assert!(two.infer(&[iota([3]).into()]).is_err(), "one dimension, two outputs");
    }
}

//! Tensors with something on their diagonals: diag_embed, diagflat, diagonal_scatter,
//! fill_diagonal.

use crate::creation::create::Source;
use crate::elementwise::operand;
use crate::shaping::diagonal::diagonal_of;
use crate::shaping::slice::existing;
use crate::support::assemble::{Assemble, Assembly, Piece, assembled, leaf};
use crate::support::rearrange::{Geometry, invalid, subject};
use crate::{
    Arg, BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::elementwise::Scalar;
use plutino_kernels::for_numbers;
use plutino_tensor::Shape;

/// The last dimension as diagonals of matrices that are zero elsewhere; the matrices' dimensions
/// are counted in the result: <https://pytorch.org/docs/stable/generated/torch.diag_embed.html>,
/// <https://pytorch.org/docs/stable/generated/torch.diagflat.html>
#[derive(Debug)]
struct DiagEmbed {
    input: usize,
    offset: i64,
    dims: (i64, i64),
    /// All elements make one diagonal.
    flat: bool,
}

fn diag_embed(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (offset, dims) = (r.or("offset", 0)?, (r.or("dim1", -2)?, r.or("dim2", -1)?));
    let flat = r.kind() == "torch.diagflat";
    assembled(DiagEmbed { input: subject(r)?, offset, dims, flat })
}
register_op!(diag_embed => "torch.diag_embed", "torch.diagflat");

impl Assemble for DiagEmbed {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let from = match self.flat {
            true => Shape::from([x.shape().checked_numel()?]),
            false => x.shape().clone(),
        };
        let Some((&len, rest)) = from.split_last() else {
            return Err(invalid("a tensor without dimensions has no diagonals to give"));
        };
        let side = usize::try_from(self.offset.unsigned_abs()).ok();
        let side = side.and_then(|shift| shift.checked_add(len));
        let side =
            side.ok_or_else(|| invalid(format!("diagonal {} is too far out", self.offset)))?;
        let rank = Shape::from(vec![1; from.rank() + 1]);
        let (a, b) = (existing(&rank, self.dims.0)?, existing(&rank, self.dims.1)?);
        if a == b {
            return Err(invalid(format!("the dimensions of a matrix are {a} and {b}")));
        }
        let mut shape = Shape::from(rest);
        for dim in [a.min(b), a.max(b)] {
            shape.insert(dim, side);
        }
        shape.checked_numel()?;
        let to = diagonal_of(&Geometry::dense(&shape), a, b, self.offset);
        let from = Geometry::dense(&from);
        let piece = Piece { leaf: leaf(inputs, self.input), from, to };
        Ok(Assembly { zero: true, ..Assembly::new(x.dtype(), shape, vec![piece]) })
    }
}

/// A tensor with another diagonal:
/// <https://pytorch.org/docs/stable/generated/torch.diagonal_scatter.html>
#[derive(Debug)]
struct DiagonalScatter {
    input: usize,
    src: usize,
    offset: i64,
    dims: (i64, i64),
}

fn diagonal_scatter(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (offset, dims) = (r.or("offset", 0)?, (r.or("dim1", 0)?, r.or("dim2", 1)?));
    let input = r.required_input("input")?;
    assembled(DiagonalScatter { input, src: r.required_input("src")?, offset, dims })
}
register_op!(diagonal_scatter => "torch.diagonal_scatter");

impl Assemble for DiagonalScatter {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let (x, src) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.src)?);
        let (a, b) = (existing(x.shape(), self.dims.0)?, existing(x.shape(), self.dims.1)?);
        if a == b {
            return Err(invalid(format!("the dimensions of a diagonal are {a} and {b}")));
        }
        let whole = Geometry::dense(x.shape());
        let part = diagonal_of(&whole, a, b, self.offset);
        if *src.shape() != part.shape {
            return Err(invalid(format!(
                "src must have the shape of the diagonal, {}, not {}",
                part.shape,
                src.shape()
            )));
        }
        let from = Geometry::dense(src.shape());
        let pieces = vec![
            Piece { leaf: leaf(inputs, self.input), from: whole.clone(), to: whole },
            Piece { leaf: leaf(inputs, self.src), from, to: part },
        ];
        Ok(Assembly { in_place: true, ..Assembly::new(x.dtype(), x.shape().clone(), pieces) })
    }
}

/// A matrix (or a hypercube) with one value on its main diagonal, which begins anew below where
/// `wrap` is asked for:
/// <https://pytorch.org/docs/stable/generated/torch.Tensor.fill_diagonal_.html>
#[derive(Debug)]
struct FillDiagonal {
    input: usize,
    value: Arg<Scalar>,
    wrap: bool,
}

fn fill_diagonal(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let wrap = r.or("wrap", false)?;
    let input = r.required_input("input")?;
    Ok(Box::new(FillDiagonal { input, value: operand(r, "fill_value")?, wrap }))
}
register_op!(fill_diagonal => "Tensor.fill_diagonal");

impl FillDiagonal {
    /// The value, the number of elements from one place to the next, and the number of places.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(Source, usize, usize), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let value = Source::of(&self.value, x.dtype(), inputs)?;
        let shape = x.shape();
        let step = shape
            .dense_strides()
            .iter()
            .fold(0usize, |sum, s| sum.saturating_add(s.unsigned_abs()));
        let len = match *shape.dims() {
            [] | [_] => {
                let (expected, found) = ("at least 2".into(), shape.clone());
                return Err(ShapeError::Rank { input: self.input, expected, found });
            }
            [_, _] if self.wrap => shape.checked_numel()?.div_ceil(step.max(1)),
            [n, m] => n.min(m),
            [n, ref others @ ..] if others.iter().all(|d| *d == n) => n,
            _ => return Err(invalid(format!("the dimensions of {shape} must have one size"))),
        };
        Ok((value, step.max(1), len))
    }
}

impl Operator for FillDiagonal {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.bind(inputs)?;
        let x = TensorValue::at(inputs, self.input)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (value, step, len) = self.bind(cx.inputs)?;
        let x = leaf(cx.inputs, self.input);
        Ok(Planned::new(FillKernel { x, value, step, len }).in_place(x))
    }
}

struct FillKernel {
    x: usize,
    value: Source,
    step: usize,
    len: usize,
}

impl Kernel for FillKernel {
    fn name(&self) -> &str {
        "fill_diagonal"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_numbers!(cx.inputs.spec(self.x)?.dtype, T => {
            let y = cx.inout::<T>(self.x, 0)?.into_same();
            if let Some(&value) = self.value.read::<T>(&cx.inputs)?.first() {
                y.iter_mut().step_by(self.step).take(self.len).for_each(|y| *y = value);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, values};
    use plutino_tensor::Tensor;

    fn run(line: &str, x: &Tensor) -> Tensor {
        check(&*op(line), std::slice::from_ref(x)).remove(0)
    }

    #[test]
    fn diagonals_become_matrices() {
        let x = tensor([2, 2], &[1.0f32, 2., 3., 4.]);
        let y = run("torch.diag_embed d 1 1 0 1", &x);
        assert_eq!(y, tensor([2, 2, 2], &[1.0f32, 0., 0., 2., 3., 0., 0., 4.]));
        let y = run("torch.diag_embed d 1 1 0 1 offset=1 dim1=0 dim2=2", &x);
        assert_eq!(y.shape().dims(), [3, 2, 3]);
        #[rustfmt::skip]
        let expected = [
            0., 1., 0., 0., 3., 0.,
            0., 0., 2., 0., 0., 4.,
            0., 0., 0., 0., 0., 0.,
        ];
        assert_eq!(values::<f32>(&y), expected);
        let swapped = run("torch.diag_embed d 1 1 0 1 offset=-1 dim1=2 dim2=0", &x);
        assert_eq!(swapped, y);
        let y = run("torch.diagflat d 1 1 0 1 offset=-1", &tensor([2, 1], &[true, true]));
        assert_eq!(
            values::<bool>(&y),
            [false, false, false, true, false, false, false, true, false]
        );
        assert_eq!(run("torch.diagflat d 1 1 0 1", &iota([])), tensor([1, 1], &[0.0f32]));
        assert_eq!(run("torch.diag_embed d 1 1 0 1", &iota([3, 0])), iota([3, 0, 0]));
        error(&*op("torch.diag_embed d 1 1 0 1"), &[iota([])]);
        error(&*op("torch.diag_embed d 1 1 0 1 dim1=2 dim2=-1"), std::slice::from_ref(&x));
        error(&*op("torch.diag_embed d 1 1 0 1 offset=9223372036854775807"), &[x]);
    }

    #[test]
    fn a_diagonal_is_overwritten() {
        let scatter = op("torch.diagonal_scatter d 2 1 0 1 2 offset=1 dim1=0 dim2=1");
        let y = check(&*scatter, &[iota([2, 3]), tensor([2], &[-1i64, -2])]);
        assert_eq!(values::<f32>(&y[0]), [0., -1., 2., 3., 4., -2.]);
        error(&*scatter, &[iota([2, 3]), iota([3])]);
    }

    #[test]
    fn the_main_diagonal_is_filled() {
        let y = run("Tensor.fill_diagonal f 1 1 0 1 fill_value=9 wrap=False", &iota([5, 2]));
        assert_eq!(values::<f32>(&y), [9., 1., 2., 9., 4., 5., 6., 7., 8., 9.]);
        let y = run("Tensor.fill_diagonal f 1 1 0 1 fill_value=9 wrap=True", &iota([5, 2]));
        assert_eq!(values::<f32>(&y), [9., 1., 2., 9., 4., 5., 9., 7., 8., 9.]);
        let y =
            run("Tensor.fill_diagonal f 1 1 0 1 fill_value=1.9", &tensor([2, 2, 2], &[0i64; 8]));
        assert_eq!(values::<i64>(&y), [1, 0, 0, 0, 0, 0, 0, 1]);
        let fill = op("Tensor.fill_diagonal f 1 1 0 1 fill_value=1");
        error(&*fill, &[iota([3])]);
        error(&*fill, &[iota([2, 2, 3])]);
        assert_eq!(check(&*fill, &[iota([0, 3])])[0], iota([0, 3]));
    }
}

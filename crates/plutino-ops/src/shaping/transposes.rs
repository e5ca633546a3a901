//! Transposes by their other names, and rotations: T, mT, H, mH, adjoint, rot90.

use crate::matrix::products::conjugated;
use crate::support::composite::{Compose, StepText, composed, list};
use crate::support::rearrange::{
    Geometry, Part, Parts, Rearrange, Views, distinct_dims, invalid, rearranged, subject,
};
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op};
use plutino_tensor::Shape;

/// All dimensions in reverse, or the last two swapped:
/// <https://pytorch.org/docs/stable/tensors.html#torch.Tensor.T>,
/// <https://pytorch.org/docs/stable/tensors.html#torch.Tensor.mT>
#[derive(Debug)]
struct Transposed {
    input: usize,
    matrices: bool,
}

fn transposed(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let matrices = r.kind() == "Tensor.mT";
    rearranged(Transposed { input: subject(r)?, matrices })
}
register_op!(transposed => "Tensor.T", "Tensor.numpy_T", "Tensor.mT");

/// The dimensions of `shape` in reverse, or with the last two swapped.
fn reversed(shape: &Shape, matrices: bool) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..shape.rank()).collect();
    match matrices {
        false => order.reverse(),
        true => order.get_mut(shape.rank().checked_sub(2)?..)?.reverse(),
    }
    Some(order)
}

fn no_matrices(input: usize, found: &Shape) -> ShapeError {
    ShapeError::Rank { input, expected: "at least 2".into(), found: found.clone() }
}

impl Rearrange for Transposed {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let order = reversed(x.shape(), self.matrices);
        let order = order.ok_or_else(|| no_matrices(self.input, x.shape()))?;
        Ok(Part::new(x.dtype(), Geometry::dense(x.shape()).permute(&order)).into())
    }

    fn order(&self, x: &TensorValue, _: &[ValueSpec]) -> Option<Vec<usize>> {
        reversed(x.shape(), self.matrices)
    }
}

/// The transpose of the complex conjugate of matrices: of one (`H`), or of a batch (`mH`,
/// `adjoint`).
///
/// <https://pytorch.org/docs/stable/generated/torch.adjoint.html>
#[derive(Debug)]
struct Adjoint {
    input: usize,
    one: bool,
}

fn adjoint(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let one = matches!(r.kind(), "Tensor.H" | "Tensor.matrix_H");
    composed(Adjoint { input: subject(r)?, one })
}
register_op!(adjoint => "Tensor.H", "Tensor.matrix_H", "Tensor.mH", "torch.adjoint");

impl Compose for Adjoint {
    fn name(&self) -> &'static str {
        "adjoint"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(invalid("one tensor")) };
        let (shape, mut steps) = (x.shape(), Vec::new());
        if self.one && !matches!(shape.rank(), 0 | 2) {
            let (expected, found) = ("2".into(), shape.clone());
            return Err(ShapeError::Rank { input: self.input, expected, found });
        }
        let matrices = !(self.one && shape.rank() == 0);
        let order = reversed(shape, matrices).ok_or_else(|| no_matrices(self.input, shape))?;
        let complex = x.dtype().is_complex();
        let name = if complex { conjugated(&mut steps, "x0", "conj") } else { "x0" };
        let dims = format!("dims={}", list(&order));
        steps.push(StepText::new("torch.permute", &[name], "y", &dims));
        Ok(steps)
    }
}

/// A plane turned by right angles, from the first of two dimensions to the second:
/// <https://pytorch.org/docs/stable/generated/torch.rot90.html>
#[derive(Debug)]
struct Rot90 {
    input: usize,
    k: i64,
    dims: Vec<i64>,
}

fn rot90(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (k, dims) = (r.or("k", 1)?, r.or("dims", vec![0, 1])?);
    if dims.len() != 2 {
        return Err(r.bad("dims", "two dimensions"));
    }
    rearranged(Rot90 { input: subject(r)?, k, dims })
}
register_op!(rot90 => "torch.rot90");

impl Rearrange for Rot90 {
    fn input(&self) -> usize {
        self.input
    }

    /// A copy, for some angles in other strides.
    fn views(&self) -> Views {
        Views::Unknown
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let dims = distinct_dims(x.shape(), &self.dims)?;
        let (&[a, b], true) = (&dims[..], x.shape().rank() >= 2) else {
            return Err(no_matrices(self.input, x.shape()));
        };
        let mut order: Vec<usize> = (0..x.shape().rank()).collect();
        order.swap(a, b);
        let dense = Geometry::dense(x.shape());
        let from = match self.k.rem_euclid(4) {
            0 => dense,
            1 => dense.flip(b).permute(&order),
            2 => dense.flip(a).flip(b),
            _ => dense.flip(a).permute(&order),
        };
        Ok(Part::new(x.dtype(), from).into())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, values};
    use plutino_tensor::{Complex, Tensor};

    fn run(line: &str, x: &Tensor) -> Tensor {
        check(&*op(line), std::slice::from_ref(x)).remove(0)
    }

    #[test]
    fn dimensions_change_places() {
        let x = iota([2, 3]);
        let turned = tensor([3, 2], &[0.0f32, 3., 1., 4., 2., 5.]);
        for kind in ["Tensor.T", "Tensor.numpy_T", "Tensor.mT", "Tensor.H", "Tensor.mH"] {
            assert_eq!(run(&format!("{kind} t 1 1 0 1"), &x), turned, "{kind}");
        }
        assert_eq!(run("torch.adjoint t 1 1 0 1 $input=0", &x), turned);
        let x = iota([2, 3, 4]);
        assert_eq!(run("Tensor.T t 1 1 0 1", &x).shape().dims(), [4, 3, 2]);
        for kind in ["Tensor.mT", "Tensor.mH"] {
            assert_eq!(run(&format!("{kind} t 1 1 0 1"), &x).shape().dims(), [2, 4, 3]);
        }
        assert_eq!(run("Tensor.T t 1 1 0 1", &iota([])), iota([]));
        assert_eq!(run("Tensor.H t 1 1 0 1", &iota([])), iota([]));
        error(&*op("Tensor.mT t 1 1 0 1"), &[iota([3])]);
        error(&*op("Tensor.mH t 1 1 0 1"), &[iota([3])]);
        error(&*op("Tensor.H t 1 1 0 1"), &[x]);
    }

    #[test]
    fn adjoints_are_conjugated() {
        let z = |re, im| Complex::<f32>::new(re, im);
        let x = tensor([1, 2], &[z(1.0, 2.0), z(3.0, -4.0)]);
        let y = run("Tensor.mH t 1 1 0 1", &x);
        assert_eq!(y, tensor([2, 1], &[z(1.0, -2.0), z(3.0, 4.0)]));
    }

    #[test]
    fn quarter_turns() {
        let x = iota([2, 3]);
        let turn = |k: i64| run(&format!("torch.rot90 r 1 1 0 1 k={k} dims=(0,1)"), &x);
        assert_eq!(turn(1), tensor([3, 2], &[2.0f32, 5., 1., 4., 0., 3.]));
        assert_eq!(values::<f32>(&turn(2)), [5., 4., 3., 2., 1., 0.]);
        assert_eq!(turn(3), tensor([3, 2], &[3.0f32, 0., 4., 1., 5., 2.]));
        assert_eq!((turn(-1), turn(4)), (turn(3), x.clone()));
        let back = run("torch.rot90 r 1 1 0 1 k=1 dims=(-1,0)", &x);
        assert_eq!(back, turn(3));
        error(&*op("torch.rot90 r 1 1 0 1 k=1 dims=(0,-2)"), &[x]);
        error(&*op("torch.rot90 r 1 1 0 1"), &[iota([3])]);
        assert_eq!(run("torch.rot90 r 1 1 0 1", &iota([0, 2])), iota([2, 0]));
    }
}

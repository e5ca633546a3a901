//! Diagonals and free loop nests: diagonal, diag, as_strided.

use crate::shaping::slice::existing;
use crate::support::assemble::{Assemble, Assembly, Piece, assembled, leaf};
use crate::support::rearrange::{
    self, Geometry, Part, Parts, Rearrange, Views, ints, invalid, rearranged, subject,
};
use crate::{
    Arg, BuildError, NodeReader, Operator, ShapeError, StorageView, TensorValue, ValueSpec,
    register_op,
};
use plutino_tensor::{Shape, Strides};

/// <https://pytorch.org/docs/stable/generated/torch.diagonal.html>
#[derive(Debug)]
struct Diagonal {
    input: usize,
    offset: i64,
    dims: (i64, i64),
}

fn diagonal(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (offset, dims) = (r.or("offset", 0)?, (r.or("dim1", 0)?, r.or("dim2", 1)?));
    rearranged(Diagonal { input: subject(r)?, offset, dims })
}
register_op!(diagonal => "torch.diagonal");

impl Rearrange for Diagonal {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let (a, b) = (existing(x.shape(), self.dims.0)?, existing(x.shape(), self.dims.1)?);
        if a == b {
            return Err(invalid(format!(
                "the dimensions of a diagonal are {a} and {b}: they must differ"
            )));
        }
        Ok(Part::new(x.dtype(), diagonal_of(&Geometry::dense(x.shape()), a, b, self.offset)).into())
    }
}

/// The diagonal of dimensions `a` (rows) and `b` (columns), as a new last dimension.
pub(crate) fn diagonal_of(matrix: &Geometry, a: usize, b: usize, offset: i64) -> Geometry {
    let shift = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    let (row, col) = if offset < 0 { (shift, 0) } else { (0, shift) };
    let [rows, cols] = [(a, row), (b, col)].map(|(d, first)| matrix.shape[d].saturating_sub(first));
    let len = rows.min(cols);
    let (row, col) = if len == 0 { (0, 0) } else { (row, col) };
    let step = matrix.strides[a].wrapping_add(matrix.strides[b]);
    let mut part = matrix.clone().slice(a, row, len, 1).slice(b, col, len, 1);
    for dim in [a.max(b), a.min(b)] {
        part.shape.remove(dim);
        part.strides.remove(dim);
    }
    part.shape.push(len);
    part.strides.push(step);
    part
}

/// The diagonal of a matrix, or a matrix with this diagonal:
/// <https://pytorch.org/docs/stable/generated/torch.diag.html>
#[derive(Debug)]
struct Diag {
    input: usize,
    diagonal: i64,
}

fn diag(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let diagonal = r.or("diagonal", 0)?;
    assembled(Diag { input: subject(r)?, diagonal })
}
register_op!(diag => "torch.diag");

impl Assemble for Diag {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let leaf = leaf(inputs, self.input);
        let whole = Geometry::dense(x.shape());
        match x.shape().dims() {
            [_, _] => {
                let from = diagonal_of(&whole, 0, 1, self.diagonal);
                let (shape, to) = (from.shape.clone(), Geometry::dense(&from.shape));
                Ok(Assembly::new(x.dtype(), shape, vec![Piece { leaf, from, to }]))
            }
            [len] => {
                let side = usize::try_from(self.diagonal.unsigned_abs()).ok();
                let side = side.and_then(|shift| shift.checked_add(*len));
                let side = side
                    .ok_or_else(|| invalid(format!("diagonal {} is too far out", self.diagonal)))?;
                let shape = Shape::from([side, side]);
                shape.checked_numel()?;
                let to = diagonal_of(&Geometry::dense(&shape), 0, 1, self.diagonal);
                let piece = Piece { leaf, from: whole, to };
                Ok(Assembly { zero: true, ..Assembly::new(x.dtype(), shape, vec![piece]) })
            }
            _ => Err(ShapeError::Rank {
                input: self.input,
                expected: "1 or 2".into(),
                found: x.shape().clone(),
            }),
        }
    }
}

/// Any loop nest over the memory that the input lies in, which may belong to another value:
/// <https://pytorch.org/docs/stable/generated/torch.as_strided.html>
#[derive(Debug)]
struct AsStrided {
    input: usize,
    size: Arg<Vec<i64>>,
    stride: Arg<Vec<i64>>,
    /// The first element; none: that of the input.
    offset: Option<i64>,
    /// Whether the input is the value that owns the storage, row-major.
    bound: bool,
}

fn as_strided(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (size, stride) = (ints(r, &["size"])?, ints(r, &["stride"])?);
    let offset = r.optional("storage_offset")?;
    rearranged(AsStrided { input: subject(r)?, size, stride, offset, bound: false })
}
register_op!(as_strided => "torch.as_strided");

impl AsStrided {
    /// Shape and strides.
    fn loops(&self, inputs: &[ValueSpec]) -> Result<(Shape, Strides), ShapeError> {
        let (size, stride) = (self.size.ints(inputs)?, self.stride.ints(inputs)?);
        let refuse = |why: &str| invalid(format!("size {size:?} with stride {stride:?} {why}"));
        let shape: Option<Shape> = size.iter().map(|&v| usize::try_from(v).ok()).collect();
        let strides: Option<Strides> =
            stride.iter().map(|&v| isize::try_from(v).ok().filter(|&v| v >= 0)).collect();
        let (Some(shape), Some(strides)) = (shape, strides) else {
            return Err(refuse("is negative somewhere"));
        };
        if shape.rank() != strides.len() {
            return Err(refuse("are lists of different length"));
        }
        shape.checked_numel()?;
        Ok((shape, strides))
    }
}

impl Rearrange for AsStrided {
    fn views(&self) -> Views {
        if self.bound { Views::Always } else { Views::Storage }
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let (shape, strides) = self.loops(inputs)?;
        if !self.bound {
            // Only the shape is of use: see `Views::Storage`.
            return Ok(Part::new(x.dtype(), Geometry::dense(&shape)).into());
        }
        let offset = usize::try_from(self.offset.unwrap_or(0)).ok();
        let mut last = offset;
        for (&d, &s) in shape.iter().zip(&strides) {
            let span = d.saturating_sub(1).saturating_mul(s.unsigned_abs());
            last = last.and_then(|at| at.checked_add(span));
        }
        let empty = shape.numel() == 0;
        match (offset, last) {
            _ if empty => Ok(Part::new(x.dtype(), Geometry { shape, strides, offset: 0 }).into()),
            (Some(offset), Some(last)) if last < x.shape().numel() => {
                Ok(Part::new(x.dtype(), Geometry { shape, strides, offset }).into())
            }
            _ => Err(invalid(format!(
                "size {shape} with stride {:?} from element {} reaches beyond the {} elements of the \
                 storage",
                &strides[..],
                self.offset.unwrap_or(0),
                x.shape().numel()
            ))),
        }
    }

    fn on_storage(&self, view: &StorageView) -> Option<Box<dyn Operator>> {
        let own = || i64::try_from(view.elements.offset).unwrap_or(i64::MAX);
        let offset = Some(self.offset.unwrap_or_else(own));
        let (size, stride) = (self.size.clone(), self.stride.clone());
        let bound = Self { input: self.input, size, stride, offset, bound: true };
        (!self.bound).then(|| rearrange::operator(bound))
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, values};
    use crate::{Neighbour, StorageView};
    use plutino_tensor::Tensor;

    fn run(line: &str, x: &Tensor) -> Tensor {
        check(&*op(line), std::slice::from_ref(x)).remove(0)
    }

    #[test]
    fn diagonals() {
        let x = iota([3, 4]);
        assert_eq!(values::<f32>(&run("torch.diag d 1 1 0 1 diagonal=0", &x)), [0., 5., 10.]);
        assert_eq!(values::<f32>(&run("torch.diag d 1 1 0 1 diagonal=2", &x)), [2., 7.]);
        assert_eq!(values::<f32>(&run("torch.diag d 1 1 0 1 diagonal=-2", &x)), [8.]);
        assert_eq!(run("torch.diag d 1 1 0 1 diagonal=7", &x), iota([0]));
        let x = iota([2, 2, 3]);
        let y = run("torch.diagonal d 1 1 0 1 offset=1 dim1=0 dim2=-1", &x);
        assert_eq!((y.shape().dims(), values::<f32>(&y)), (&[2, 2][..], vec![1., 8., 4., 11.]));
        error(&*op("torch.diagonal d 1 1 0 1 offset=0 dim1=0 dim2=-3"), &[x]);
        error(&*op("torch.diag d 1 1 0 1 diagonal=0"), &[iota([1, 1, 1])]);
    }

    #[test]
    fn a_matrix_of_a_diagonal() {
        let y = run("torch.diag d 1 1 0 1 diagonal=-1", &iota([2]));
        assert_eq!(values::<f32>(&y), [0., 0., 0., 0., 0., 0., 0., 1., 0.]);
        assert_eq!(run("torch.diag d 1 1 0 1 diagonal=0", &iota([0])), iota([0, 0]));
        let zeros = run("torch.diag d 1 1 0 1 diagonal=2", &iota([0]));
        assert_eq!(values::<f32>(&zeros), [0.0; 4]);
        error(&*op("torch.diag d 1 1 0 1 diagonal=9223372036854775807"), &[iota([2])]);
    }

    #[test]
    fn as_strided_reads_anywhere_inside_the_storage() {
        let x = iota([3, 4]);
        let bound = |parameters: &str| {
            let line = format!("torch.as_strided a 1 1 0 1 {parameters}");
            let view = Neighbour::View(StorageView::contiguous(0, x.shape()));
            op(&line).absorb(&view, &[x.spec().into()]).unwrap()
        };
        let run = |parameters| check(&*bound(parameters), std::slice::from_ref(&x)).remove(0);
        let y = run("size=(2,3) stride=(1,2) storage_offset=3");
        assert_eq!(values::<f32>(&y), [3., 5., 7., 4., 6., 8.]);
        assert_eq!(values::<f32>(&run("size=(2,2) stride=(0,4)")), [0., 4., 0., 4.]);
        error(&*bound("size=(4) stride=(4)"), std::slice::from_ref(&x));
        error(&*bound("size=(4) stride=(-1)"), std::slice::from_ref(&x));
        // Where the input lies is for the caller to say.
        error(&*op("torch.as_strided a 1 1 0 1 size=(2) stride=(1)"), std::slice::from_ref(&x));
    }
}

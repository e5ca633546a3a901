//! Tensors put together in other ways than by `cat`: hstack, vstack, dstack, column_stack,
//! block_diag, cartesian_prod.

use crate::shaping::cat::{common_dtype, join, tensors};
use crate::support::assemble::{Assemble, Assembly, Piece, assembled};
use crate::support::rearrange::{Geometry, invalid};
use crate::{BuildError, NodeReader, Operator, ShapeError, ValueSpec, register_op};
use plutino_tensor::{Shape, Strides};

/// Tensors that get dimensions of size 1 where they have too few, and are joined.
#[derive(Debug, Clone, Copy)]
enum Stack {
    /// <https://pytorch.org/docs/stable/generated/torch.hstack.html>
    Columns,
    /// <https://pytorch.org/docs/stable/generated/torch.vstack.html>
    Rows,
    /// <https://pytorch.org/docs/stable/generated/torch.dstack.html>
    Depth,
    /// <https://pytorch.org/docs/stable/generated/torch.column_stack.html>
    VectorsAsColumns,
}

fn stack(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let stack = match r.kind() {
        "torch.hstack" => Stack::Columns,
        "torch.dstack" => Stack::Depth,
        "torch.column_stack" => Stack::VectorsAsColumns,
        _ => Stack::Rows,
    };
    r.rest();
    assembled(stack)
}
register_op!(stack =>
    "torch.hstack", "torch.vstack", "torch.row_stack", "torch.dstack", "torch.column_stack");

/// The shape with at least `rank` dimensions, as `atleast_1d`, `atleast_2d` and `atleast_3d` have
/// it.
pub(crate) fn at_least(shape: &Shape, rank: usize) -> Shape {
    match (rank, shape.dims()) {
        (1, []) => [1].into(),
        (2, []) => [1, 1].into(),
        (2, &[n]) => [1, n].into(),
        (3, []) => [1, 1, 1].into(),
        (3, &[n]) => [1, n, 1].into(),
        (3, &[n, m]) => [n, m, 1].into(),
        _ => shape.clone(),
    }
}

impl Assemble for Stack {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let tensors = tensors(inputs)?;
        let dtype = common_dtype(&tensors)?;
        let shaped = |shape: &Shape| match (self, shape.rank()) {
            (Self::Columns, _) => at_least(shape, 1),
            (Self::Rows, _) => at_least(shape, 2),
            (Self::Depth, _) => at_least(shape, 3),
            (Self::VectorsAsColumns, 0 | 1) => [shape.numel(), 1].into(),
            (Self::VectorsAsColumns, _) => shape.clone(),
        };
        let shapes: Vec<Shape> = tensors.iter().map(|t| shaped(t.shape())).collect();
        let dim = match self {
            // The first tensor decides whether there are columns.
            Self::Columns if shapes.first().is_some_and(|shape| shape.rank() == 1) => 0,
            Self::Columns | Self::VectorsAsColumns => 1,
            Self::Rows => 0,
            Self::Depth => 2,
        };
        join(dtype, shapes, dim)
    }
}

/// Matrices along the diagonal of one, which is zero elsewhere:
/// <https://pytorch.org/docs/stable/generated/torch.block_diag.html>
#[derive(Debug)]
struct BlockDiag;

fn block_diag(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.rest();
    assembled(BlockDiag)
}
register_op!(block_diag => "torch.block_diag");

impl Assemble for BlockDiag {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let tensors = tensors(inputs)?;
        let dtype = common_dtype(&tensors)?;
        let too_large = || invalid("the blocks are too large together");
        let (mut rows, mut columns) = (0usize, 0usize);
        let mut blocks = Vec::with_capacity(tensors.len());
        for (input, t) in tensors.iter().enumerate() {
            let [n, m] = match *t.shape().dims() {
                [] => [1, 1],
                [m] => [1, m],
                [n, m] => [n, m],
                _ => {
                    let (expected, found) = ("at most 2".into(), t.shape().clone());
                    return Err(ShapeError::Rank { input, expected, found });
                }
            };
            blocks.push((rows, columns, n, m));
            rows = rows.checked_add(n).ok_or_else(too_large)?;
            columns = columns.checked_add(m).ok_or_else(too_large)?;
        }
        let shape = Shape::from([rows, columns]);
        shape.checked_numel()?;
        let whole = Geometry::dense(&shape);
        let piece = |(leaf, (row, column, n, m)): (usize, (usize, usize, usize, usize))| {
            let to = whole.clone().slice(0, row, n, 1).slice(1, column, m, 1);
            Piece { leaf, from: Geometry::dense(&Shape::from([n, m])), to }
        };
        let pieces = blocks.into_iter().enumerate().map(piece).collect();
        Ok(Assembly { zero: true, ..Assembly::new(dtype, shape, pieces) })
    }
}

/// One element of each tensor in all combinations, as rows:
/// <https://pytorch.org/docs/stable/generated/torch.cartesian_prod.html>
#[derive(Debug)]
struct CartesianProd;

fn cartesian_prod(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.rest();
    assembled(CartesianProd)
}
register_op!(cartesian_prod => "torch.cartesian_prod");

impl Assemble for CartesianProd {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let tensors = tensors(inputs)?;
        let dtype = match &tensors[..] {
            [] => return Err(invalid("there are no tensors to combine")),
            [first, others @ ..] => {
                let others = others.iter().enumerate().map(|(i, t)| (i + 1, t.dtype()));
                crate::support::assemble::same_dtype((0, first.dtype()), others)?
            }
        };
        let mut sizes = Vec::with_capacity(tensors.len());
        for (input, t) in tensors.iter().enumerate() {
            match *t.shape().dims() {
                [n] => sizes.push(n),
                _ => {
                    let (expected, found) = ("1".into(), t.shape().clone());
                    return Err(ShapeError::Rank { input, expected, found });
                }
            }
        }
        let count = sizes.len();
        let grid = Shape::from(sizes);
        let mut all = grid.clone();
        all.push(count);
        all.checked_numel()?;
        let places = Geometry::dense(&all);
        let piece = |leaf: usize| {
            let mut strides = Strides::from_elem(0, count);
            strides[leaf] = 1;
            let from = Geometry { shape: grid.clone(), strides, offset: 0 };
            Piece { leaf, from, to: places.clone().select(count, leaf) }
        };
        let pieces = (0..count).map(piece).collect(); // bounded: the number of tensors
        // One tensor alone stays a row of elements.
        let shape = if count == 1 { grid.clone() } else { [grid.numel(), count].into() };
        Ok(Assembly::new(dtype, shape, pieces))
    }
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{check, check_values, error, iota, op, specs, tensor, values};

    #[test]
    fn stacks_of_any_rank() {
        let (row, matrix) = (iota([2]), iota([1, 2]));
        let y = check(&*op("torch.hstack s 2 1 0 1 2"), &[row.clone(), tensor([], &[5.0f32])]);
        assert_eq!(y[0], tensor([3], &[0.0f32, 1., 5.]));
        let y = check(&*op("torch.hstack s 2 1 0 1 2"), &[matrix.clone(), matrix.clone()]);
        assert_eq!(y[0], tensor([1, 4], &[0.0f32, 1., 0., 1.]));
        let rows = tensor([2, 2], &[0.0f32, 1., 0., 1.]);
        for kind in ["torch.vstack", "torch.row_stack"] {
            let stack = op(&format!("{kind} s 2 1 0 1 2"));
            assert_eq!(check(&*stack, &[row.clone(), matrix.clone()])[0], rows);
        }
        let y = check(&*op("torch.dstack s 2 1 0 1 2"), &[row.clone(), row.clone()]);
        assert_eq!(y[0], tensor([1, 2, 2], &[0.0f32, 0., 1., 1.]));
        let list = [ValueSpec::List(specs(&[row.clone(), tensor([2, 1], &[7i64, 8])]))];
        let data = [row.clone(), tensor([2, 1], &[7i64, 8])];
        let y = check_values(&*op("torch.column_stack s 1 1 0 1"), &list, &data);
        assert_eq!(y[0], tensor([2, 2], &[0.0f32, 7., 1., 8.]));
        error(&*op("torch.vstack s 2 1 0 1 2"), &[row, iota([3])]);
        error(&*op("torch.dstack s 0 1 0"), &[]);
    }

    #[test]
    fn blocks_along_the_diagonal() {
        let blocks = op("torch.block_diag b 3 1 0 1 2 3");
        let y = check(&*blocks, &[iota([2, 1]), tensor([], &[9i64]), tensor([2], &[true, false])]);
        #[rustfmt::skip]
        let expected = [
            0.0f32, 0., 0., 0.,
            1., 0., 0., 0.,
            0., 9., 0., 0.,
            0., 0., 1., 0.,
        ];
        assert_eq!(y[0], tensor([4, 4], &expected));
        let y = check(&*blocks, &[iota([0, 2]), iota([1]), iota([0])]);
        assert_eq!(y[0], tensor([2, 3], &[0.0f32; 6]));
        error(&*blocks, &[iota([1, 1, 1]), iota([1]), iota([1])]);
    }

    #[test]
    fn all_combinations() {
        let y = check(
            &*op("torch.cartesian_prod c 2 1 0 1 2"),
            &[tensor([2], &[1i64, 2]), tensor([3], &[5i64, 6, 7])],
        );
        assert_eq!(values::<i64>(&y[0]), [1, 5, 1, 6, 1, 7, 2, 5, 2, 6, 2, 7]);
        assert_eq!(y[0].shape().dims(), [6, 2]);
        assert_eq!(check(&*op("torch.cartesian_prod c 1 1 0 1"), &[iota([3])])[0], iota([3]));
        let y = check(&*op("torch.cartesian_prod c 2 1 0 1 2"), &[iota([2]), iota([0])]);
        assert_eq!(y[0], iota([0, 2]));
        error(&*op("torch.cartesian_prod c 2 1 0 1 2"), &[iota([2]), tensor([1], &[1i64])]);
        error(&*op("torch.cartesian_prod c 2 1 0 1 2"), &[iota([2]), iota([])]);
    }
}

//! Grids of coordinates: `torch.meshgrid`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.meshgrid.html>: output i has the elements of
//! tensor i along dimension i, all of them everywhere else; with `indexing=xy` the first two
//! dimensions change places.

use crate::support::assemble::{Copies, leaf, same_dtype};
use crate::support::rearrange::{Geometry, invalid};
use crate::{
    BuildError, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue,
    ValueSpec, register_op,
};
use plutino_tensor::{DType, MAX_RANK, Shape, Strides};

#[derive(Debug)]
struct Meshgrid {
    /// The tensors, or one list of them.
    inputs: Vec<usize>,
    swapped: bool,
    /// Whether the output is one list.
    list: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let swapped = r.one_of("indexing", &[("ij", false), ("xy", true)], Some(false))?;
    Ok(Box::new(Meshgrid { list: r.output_count() == 1, inputs: r.rest(), swapped }))
}
register_op!(build => "torch.meshgrid");

/// Dtype and shape of every output, and for each its input leaf and the elements.
struct Grid {
    dtype: DType,
    shape: Shape,
    parts: Vec<(usize, Geometry)>,
}

impl Meshgrid {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Grid, ShapeError> {
        let mut axes = Vec::new();
        for &input in self.inputs.iter().take(MAX_RANK + 1) {
            let items = match inputs.get(input) {
                Some(ValueSpec::List(items)) => &items[..],
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            for i in 0..items.len() {
                axes.push((
                    leaf(inputs, input).saturating_add(i),
                    input,
                    TensorValue::at(items, i)?,
                ));
            }
        }
        let Some((_, first, x)) = axes.first() else {
            return Err(invalid("a grid has at least one tensor"));
        };
        if axes.len() > MAX_RANK {
            // Before shapes of as many dimensions are made, one for each tensor.
            let found = axes.len();
            return Err(invalid(format!("a grid may have {MAX_RANK} dimensions, found {found}")));
        }
        let others = axes.iter().map(|(_, input, x)| (*input, x.dtype()));
        let dtype = same_dtype((*first, x.dtype()), others)?;
        let mut sizes = Vec::with_capacity(axes.len());
        for (_, input, x) in &axes {
            if x.shape().rank() > 1 {
                let (expected, found) = ("at most 1".into(), x.shape().clone());
                return Err(ShapeError::Rank { input: *input, expected, found });
            }
            sizes.push(x.shape().numel());
        }
        let mut dims: Vec<usize> = (0..axes.len()).collect();
        if let (true, [a, b, ..]) = (self.swapped, &mut dims[..]) {
            std::mem::swap(a, b);
        }
        let shape: Shape = dims.iter().map(|&d| sizes[d]).collect();
        shape.checked_numel()?;
        let part = |(&dim, (leaf, ..)): (&usize, &(usize, usize, &TensorValue))| {
            let mut strides = Strides::from_elem(0, dims.len());
            strides[dim] = 1;
            (*leaf, Geometry { shape: shape.clone(), strides, offset: 0 })
        };
        let parts = dims.iter().zip(&axes).map(part).collect();
        Ok(Grid { dtype, shape, parts })
    }
}

impl Operator for Meshgrid {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let Grid { dtype, shape, parts } = self.bind(inputs)?;
        let all = vec![ValueSpec::tensor(dtype, shape); parts.len()];
        Ok(if self.list { vec![ValueSpec::List(all)] } else { all })
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let Grid { dtype, parts, .. } = self.bind(cx.inputs)?;
        let mut copies = Copies::default();
        for (output, (leaf, from)) in parts.iter().enumerate() {
            copies.push(*leaf, output, dtype, from, None)?;
        }
        Ok(copies.into_planned())
    }
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{
        check, check_values, error, infer, iota, op, specs, tensor, try_op, values,
    };

    #[test]
    fn coordinates_of_every_point() {
        let (x, y) = (tensor([2], &[1i64, 2]), tensor([3], &[5i64, 6, 7]));
        let list = [ValueSpec::List(specs(&[x.clone(), y.clone()])), ValueSpec::Word("ij".into())];
        for (indexing, shape, a, b) in [
            ("ij", [2, 3], [1, 1, 1, 2, 2, 2], [5, 6, 7, 5, 6, 7]),
            ("xy", [3, 2], [1, 2, 1, 2, 1, 2], [5, 5, 6, 6, 7, 7]),
        ] {
            let grid = op(&format!("aten::meshgrid m 2 1 0 ={indexing} 1"));
            assert!(
                matches!(&infer(&*grid, &list).unwrap()[..], [ValueSpec::List(all)] if all.len() == 2)
            );
            let found = check_values(&*grid, &list, &[x.clone(), y.clone()]);
            assert_eq!(found[0].shape().dims(), shape);
            assert_eq!(
                (values::<i64>(&found[0]), values::<i64>(&found[1])),
                (a.to_vec(), b.to_vec())
            );
            let apart = op(&format!("torch.meshgrid m 2 2 0 1 2 3 indexing={indexing}"));
            assert_eq!(check(&*apart, &[x.clone(), y.clone()]), found);
        }
    }

    #[test]
    fn three_axes_scalars_and_what_makes_no_grid() {
        let axes = [iota([2]), iota([]), iota([3])];
        let y = check(&*op("torch.meshgrid m 3 3 0 1 2 3 4 5 indexing=xy"), &axes);
        assert_eq!(y[0].shape().dims(), [1, 2, 3]);
        assert_eq!(values::<f32>(&y[2]), [0., 1., 2., 0., 1., 2.]);
        let pair = op("torch.meshgrid m 2 2 0 1 2 3");
        error(&*pair, &[iota([2]), tensor([2], &[1i64, 2])]);
        error(&*pair, &[iota([2]), iota([2, 1])]);
        error(&*op("torch.meshgrid m 0 1 0"), &[]);
        assert!(try_op("torch.meshgrid m 1 1 0 1 indexing=yx", &[]).is_err());
        assert_eq!(check(&*op("torch.meshgrid m 1 1 0 1"), &[iota([2])]), [iota([2])]);
    }
}

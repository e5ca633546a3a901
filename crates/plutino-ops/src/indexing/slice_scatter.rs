//! Writing into a part of a tensor: slice_copy, slice_scatter, select_scatter. Where the tensor is
//! not needed any more, only the part is written.

use crate::shaping::slice::Range;
use crate::support::assemble::{Assemble, Assembly, Piece, assembled, leaf};
use crate::support::rearrange::{Geometry, ints, invalid};
use crate::{
    Arg, BuildError, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op,
};

/// A tensor with one part overwritten: `y = x.clone(); y[part] = src`.
#[derive(Debug)]
struct SliceScatter {
    input: usize,
    src: usize,
    range: Range,
    /// Whether `src` is broadcast to the part (`copy_`), or must have its shape.
    broadcast: bool,
}

fn slice_scatter(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let range = match r.kind() {
        "torch.select_scatter" => Range {
            dims: ints(r, &["dim"])?,
            starts: Arg::Value(Vec::new()),
            ends: Arg::Value(Vec::new()),
            steps: Arg::Value(Vec::new()),
            selects: ints(r, &["index"])?,
        },
        _ => Range::read(r)?,
    };
    let broadcast = r.kind() == "Tensor.slice_copy";
    let input = r.required_input(if broadcast { "self" } else { "input" })?;
    assembled(SliceScatter { input, src: r.required_input("src")?, range, broadcast })
}
register_op!(slice_scatter => "Tensor.slice_copy", "torch.slice_scatter", "torch.select_scatter");

impl Assemble for SliceScatter {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let (x, src) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.src)?);
        let part = self.range.of(x.shape(), inputs)?;
        let whole = Geometry::dense(x.shape());
        let from = if self.broadcast {
            // PNNX writes a number as one element; `y[part] = src` drops leading ones.
            let more = src.shape().rank().saturating_sub(part.shape.rank());
            let ones = src.shape().iter().take(more).take_while(|&&n| n == 1).count();
            let own = src.shape().iter().skip(ones).copied().collect();
            Geometry::dense(&own).broadcast(&part.shape)?
        } else if *src.shape() == part.shape {
            Geometry::dense(src.shape())
        } else {
            return Err(invalid(format!(
                "src must have the shape of the part, {}, not {}",
                part.shape,
                src.shape()
            )));
        };
        let pieces = vec![
            Piece { leaf: leaf(inputs, self.input), from: whole.clone(), to: whole },
            Piece { leaf: leaf(inputs, self.src), from, to: part },
        ];
        // The source is converted, as by `copy_`.
        Ok(Assembly { in_place: true, ..Assembly::new(x.dtype(), x.shape().clone(), pieces) })
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, values};

    #[test]
    fn a_part_is_overwritten() {
        let (x, src) = (iota([4, 3]), tensor([2, 3], &[-1.0f32; 6]));
        let y = check(
            &*op("torch.slice_scatter s 2 1 0 1 2 dim=0 end=None start=1 step=2 $input=0 $src=1"),
            &[x.clone(), src],
        );
        assert_eq!(values::<f32>(&y[0]), [0., 1., 2., -1., -1., -1., 6., 7., 8., -1., -1., -1.]);
        let y = check(
            &*op("torch.select_scatter s 2 1 0 1 2 dim=1 index=-2 $input=0 $src=1"),
            &[x.clone(), iota([4])],
        );
        assert_eq!(values::<f32>(&y[0]), [0., 0., 2., 3., 1., 5., 6., 2., 8., 9., 3., 11.]);
        error(
            &*op("torch.slice_scatter s 2 1 0 1 2 dim=0 end=1 start=0 step=1"),
            &[x.clone(), iota([3])],
        );
        let y = check(
            &*op("torch.slice_scatter s 2 1 0 1 2 dim=0 end=1 start=0 step=1"),
            &[x, tensor([1, 3], &[-1i64, -2, -3])],
        );
        assert_eq!(values::<f32>(&y[0])[..4], [-1., -2., -3., 3.]);
    }

    #[test]
    fn slice_copy_broadcasts() {
        let line = "Tensor.slice_copy s 2 1 5 13 14 dims=(0,1) starts=(0,0) ends=(0,2) steps=(0,1) \
                    selects=(1,2147483647) $self=5 $src=13";
        let y = check(&*op(line), &[iota([2, 3]), tensor([1], &[9.0f32])]);
        assert_eq!(values::<f32>(&y[0]), [0., 1., 2., 9., 9., 5.]);
        error(&*op(line), &[iota([2, 3]), iota([3])]);
    }

    #[test]
    fn an_index_is_overwritten() {
        // As PNNX writes y[:, -1] = src.
        let line =
            "Tensor.slice_copy s 2 1 5 13 14 dim=1 end=0 select=-1 start=0 step=0 $self=5 $src=13";
        let y = check(&*op(line), &[iota([2, 3]), tensor([2], &[8.0f32, 9.0])]);
        assert_eq!(values::<f32>(&y[0]), [0., 1., 8., 3., 4., 9.]);
    }

    #[test]
    fn leading_ones_of_the_source_are_dropped() {
        let run = |src| {
            let line = "Tensor.slice_copy s 2 1 5 13 14 dim=0 end=0 select=-2 start=0 step=0 $self=5 $src=13";
            check(&*op(line), &[iota([3]), src]).remove(0)
        };
        assert_eq!(values::<f32>(&run(tensor([1], &[9.0f32]))), [0., 9., 2.]);
        assert_eq!(values::<f32>(&run(tensor([1, 1], &[9.0f32]))), [0., 9., 2.]);
        let line = "Tensor.slice_copy s 2 1 5 13 14 dim=0 end=2 start=0 step=1 $self=5 $src=13";
        error(&*op(line), &[iota([3]), iota([2, 2])]);
    }

    #[test]
    fn the_same_tensor_may_be_both() {
        let y = check(
            &*op("Tensor.slice_copy s 2 1 5 5 14 dim=0 start=0 end=3 step=1 $self=5 $src=5"),
            &[iota([3]), iota([3])],
        );
        assert_eq!(y[0], iota([3]));
    }
}

//! Several tensors in one shape, or each with more dimensions: broadcast_tensors, atleast_1d,
//! atleast_2d, atleast_3d.

use crate::shaping::stacks::at_least;
use crate::support::assemble::{Copies, leaf};
use crate::support::rearrange::{Geometry, Part};
use crate::{
    BuildError, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue,
    ValueSpec, register_op,
};
use plutino_tensor::Shape;

/// What becomes of every tensor.
#[derive(Debug, Clone, Copy)]
enum What {
    /// <https://pytorch.org/docs/stable/generated/torch.broadcast_tensors.html>
    Broadcast,
    /// <https://pytorch.org/docs/stable/generated/torch.atleast_1d.html> and its kin.
    AtLeast(usize),
}

#[derive(Debug)]
struct Each {
    /// Tensors and lists of them.
    inputs: Vec<usize>,
    what: What,
    /// The outputs that the file gives the operator.
    outputs: usize,
}

fn each(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let what = match r.kind() {
        "torch.atleast_1d" => What::AtLeast(1),
        "torch.atleast_2d" => What::AtLeast(2),
        "torch.atleast_3d" => What::AtLeast(3),
        _ => What::Broadcast,
    };
    Ok(Box::new(Each { inputs: r.rest(), what, outputs: r.output_count() }))
}
register_op!(each =>
    "torch.broadcast_tensors", "torch.atleast_1d", "torch.atleast_2d", "torch.atleast_3d");

impl Each {
    /// For every tensor its leaf, and what becomes of it.
    fn parts(&self, inputs: &[ValueSpec]) -> Result<Vec<(usize, Part)>, ShapeError> {
        let mut tensors = Vec::new();
        for &input in &self.inputs {
            let items = match inputs.get(input) {
                Some(ValueSpec::List(items)) => &items[..],
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            for i in 0..items.len() {
                let at = leaf(inputs, input).saturating_add(i);
                tensors.push((at, TensorValue::at(items, i)?));
            }
        }
        let mut common = Shape::scalar();
        if matches!(self.what, What::Broadcast) {
            for (_, t) in &tensors {
                common = common.broadcast(t.shape())?;
            }
            common.checked_numel()?;
        }
        let part = |(at, t): (usize, &TensorValue)| {
            let part = match self.what {
                What::AtLeast(rank) => Part::reshaped(t, at_least(t.shape(), rank)),
                What::Broadcast => {
                    Part::new(t.dtype(), Geometry::dense(t.shape()).broadcast(&common)?)
                }
            };
            Ok((at, part))
        };
        tensors.into_iter().map(part).collect()
    }
}

impl Operator for Each {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let parts = self.parts(inputs)?;
        let value = |(_, p): (usize, Part)| ValueSpec::tensor(p.dtype, p.shape);
        let mut all: Vec<ValueSpec> = parts.into_iter().map(value).collect();
        // One tensor that is no list stays one.
        let alone = match &self.inputs[..] {
            &[input] => matches!(inputs.get(input), Some(ValueSpec::Tensor(_))),
            _ => false,
        };
        let single = matches!(self.what, What::AtLeast(_)) && alone;
        Ok(match self.outputs {
            1 if single => vec![all.remove(0)],
            1 => vec![ValueSpec::List(all)],
            _ => all,
        })
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (mut copies, mut alias) = (Copies::default(), Vec::new());
        for (output, (input, part)) in self.parts(cx.inputs)?.into_iter().enumerate() {
            let (from, to) = ((input, part.dtype), (output, part.dtype));
            alias.push(copies.view_or_copy(from, to, part.dtype, &part.from)?);
        }
        let mut planned = copies.into_planned();
        planned.alias = alias;
        Ok(planned)
    }
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{check, check_values, error, infer, iota, op, specs, tensor};
    use plutino_tensor::DType;

    #[test]
    fn all_in_one_shape() {
        let (a, b) = (iota([2, 1]), tensor([3], &[5i64, 6, 7]));
        let list = [ValueSpec::List(specs(&[a.clone(), b.clone()]))];
        let as_list = op("torch.broadcast_tensors b 1 1 0 1");
        assert!(
            matches!(&infer(&*as_list, &list).unwrap()[..], [ValueSpec::List(l)] if l.len() == 2)
        );
        let y = check_values(&*as_list, &list, &[a.clone(), b.clone()]);
        assert_eq!(y[0], tensor([2, 3], &[0.0f32, 0., 0., 1., 1., 1.]));
        assert_eq!(y[1], tensor([2, 3], &[5i64, 6, 7, 5, 6, 7]));
        let apart = op("torch.broadcast_tensors b 2 2 0 1 2 3");
        assert_eq!(check(&*apart, &[a.clone(), b]), y);
        let same = check(&*apart, &[iota([2]), iota([])]);
        assert_eq!(same, [iota([2]), tensor([2], &[0.0f32; 2])]);
        error(&*apart, &[a, iota([3, 1])]);
        let huge = [[1 << 40, 1], [1, 1 << 40]].map(|s| ValueSpec::tensor(DType::F32, s));
        assert!(infer(&*apart, &huge).is_err());
    }

    #[test]
    fn more_dimensions() {
        let shape = |rank: usize, from: &[usize]| {
            let line = format!("torch.atleast_{rank}d a 1 1 0 1 $input=0");
            check(&*op(&line), &[iota(from)])[0].shape().to_vec()
        };
        assert_eq!((shape(1, &[]), shape(1, &[2])), (vec![1], vec![2]));
        assert_eq!((shape(2, &[]), shape(2, &[2])), (vec![1, 1], vec![1, 2]));
        assert_eq!((shape(3, &[]), shape(3, &[2])), (vec![1, 1, 1], vec![1, 2, 1]));
        assert_eq!((shape(3, &[2, 3]), shape(3, &[1, 2, 3, 4])), (vec![2, 3, 1], vec![1, 2, 3, 4]));
        let list = [ValueSpec::List(specs(&[iota([2]), iota([])]))];
        let y = check_values(&*op("torch.atleast_2d a 1 2 0 1 2"), &list, &[iota([2]), iota([])]);
        assert_eq!(y, [iota([1, 2]), iota([1, 1])]);
    }
}

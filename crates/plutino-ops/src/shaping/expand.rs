//! Elements that occur more than once: expand, expand_as, repeat, tile.

use crate::support::rearrange::{
    Geometry, Part, Parts, Rearrange, Views, ints, invalid, rearranged, subject,
};
use crate::{
    Arg, BuildError, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_tensor::Shape;

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.expand.html>
#[derive(Debug)]
struct Expand {
    input: usize,
    sizes: Arg<Vec<i64>>,
}

fn expand(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let sizes = ints(r, &["sizes", "size", "shape"])?;
    rearranged(Expand { input: subject(r)?, sizes })
}
register_op!(expand => "Tensor.expand", "torch.broadcast_to");

impl Rearrange for Expand {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let sizes = self.sizes.ints(inputs)?;
        let refuse =
            || invalid(format!("a tensor of shape {} cannot be expanded to {sizes:?}", x.shape()));
        let lead = sizes.len().checked_sub(x.shape().rank()).ok_or_else(refuse)?;
        let size = |(i, &size): (usize, &i64)| match (size, i.checked_sub(lead)) {
            (-1, Some(d)) => Ok(x.shape()[d]), // as it is
            _ => usize::try_from(size).map_err(|_| refuse()),
        };
        let shape: Shape = sizes.iter().enumerate().map(size).collect::<Result<_, _>>()?;
        shape.checked_numel()?;
        let from = Geometry::dense(x.shape()).broadcast(&shape).map_err(|_| refuse())?;
        Ok(Part::new(x.dtype(), from).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.expand_as.html>
#[derive(Debug)]
struct ExpandAs {
    input: usize,
    other: usize,
}

fn expand_as(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    rearranged(ExpandAs { input, other: r.required_input("other")? })
}
register_op!(expand_as => "Tensor.expand_as");

impl Rearrange for ExpandAs {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let shape = TensorValue::at(inputs, self.other)?.shape();
        Ok(Part::new(x.dtype(), Geometry::dense(x.shape()).broadcast(shape)?).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.repeat.html>,
/// <https://pytorch.org/docs/stable/generated/torch.tile.html>
#[derive(Debug)]
struct Repeat {
    input: usize,
    sizes: Arg<Vec<i64>>,
    /// `tile`: missing counts are 1.
    tile: bool,
}

fn repeat(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let tile = r.kind() == "torch.tile";
    let sizes = ints(r, if tile { &["dims"] } else { &["sizes", "repeats"] })?;
    rearranged(Repeat { input: subject(r)?, sizes, tile })
}
register_op!(repeat => "Tensor.repeat", "torch.tile");

impl Rearrange for Repeat {
    fn views(&self) -> Views {
        Views::Never
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let sizes = self.sizes.ints(inputs)?;
        let rank = x.shape().rank();
        let refuse = || {
            invalid(format!("a tensor of shape {} cannot be repeated {sizes:?} times", x.shape()))
        };
        let counts: Option<Vec<usize>> = sizes.iter().map(|&n| usize::try_from(n).ok()).collect();
        let mut counts = counts.ok_or_else(refuse)?;
        if counts.len() < rank && !self.tile {
            return Err(refuse());
        }
        let missing = rank.saturating_sub(counts.len());
        counts.splice(0..0, std::iter::repeat_n(1, missing)); // bounded: dimensions
        let lead = counts.len() - rank;
        let mut from = Geometry::dense(x.shape());
        let mut shape = Shape::default();
        for (i, &count) in counts.iter().enumerate() {
            // Every dimension becomes (count, size); new ones have size 1.
            let size = i.checked_sub(lead).map_or(1, |d| x.shape()[d]);
            shape.push(count.checked_mul(size).ok_or_else(refuse)?);
            let at = if i < lead { i } else { lead + 2 * (i - lead) };
            from = from.repeat(at, count);
        }
        Ok(Part { from, shape, dtype: x.dtype() }.into())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, specs, values};
    use plutino_tensor::{Shape, Tensor};

    fn run(line: &str, x: &Tensor) -> Tensor {
        check(&*op(line), std::slice::from_ref(x)).remove(0)
    }

    #[test]
    fn what_is_repeated_in_a_row_says_so() {
        let role = |line: &str, shape: &[usize]| {
            op(line).role(&specs(&[iota(shape.iter().copied().collect::<Shape>())]))
        };
        let repeat = |dim, times| Some(crate::Role::Repeat(0, dim, times));
        let expand = "Tensor.expand e 1 1 0 1 sizes=(2,4,3,5) $input=0";
        assert_eq!(role(expand, &[2, 1, 3, 5]), repeat(1, 4));
        assert_eq!(role(expand, &[2, 1, 1, 5]), None, "in two dimensions");
        assert_eq!(role(expand, &[1, 3, 5]), None, "a new dimension beside");
        assert_ne!(role(expand, &[2, 4, 3, 5]), repeat(1, 4));
        let interleave = "torch.repeat_interleave r 1 1 0 1 dim=1 repeats=3 $input=0";
        assert_eq!(role(interleave, &[2, 4, 5]), repeat(1, 3));
        let flat = "torch.repeat_interleave r 1 1 0 1 dim=None repeats=3 $input=0";
        assert_eq!(role(flat, &[2, 4]), None);
        let whole = "Tensor.repeat r 1 1 0 1 sizes=(1,3,1) $input=0";
        assert_eq!(role(whole, &[2, 4, 5]), None, "one after the other");
    }

    #[test]
    fn expand_repeats_ones() {
        let x = iota([3, 1]);
        let y = run("Tensor.expand e 1 1 0 1 sizes=(2,-1,2) $mask=0", &x);
        assert_eq!(y.shape().dims(), [2, 3, 2]);
        assert_eq!(values::<f32>(&y), [0., 0., 1., 1., 2., 2., 0., 0., 1., 1., 2., 2.]);
        assert_eq!(run("Tensor.expand e 1 1 0 1 sizes=(0)", &iota([1])), iota([0]));
        for bad in ["(-1,3,2)", "(3)", "(3,-2)", "(2,2)", "(4294967296,4294967296,3,1)"] {
            error(&*op(&format!("Tensor.expand e 1 1 0 1 sizes={bad}")), std::slice::from_ref(&x));
        }
        let y =
            check(&*op("Tensor.expand_as e 2 1 0 1 2 $input=0 $other=1"), &[x, iota([2, 3, 4])]);
        assert_eq!(y[0].shape().dims(), [2, 3, 4]);
    }

    #[test]
    fn repeat_and_tile() {
        let x = iota([2, 2]);
        let y = run("Tensor.repeat r 1 1 0 1 sizes=(2,1,3)", &x);
        assert_eq!(y.shape().dims(), [2, 2, 6]);
        let once = [0., 1., 0., 1., 0., 1., 2., 3., 2., 3., 2., 3.];
        assert_eq!(values::<f32>(&y), [once, once].concat());
        assert_eq!(run("torch.tile t 1 1 0 1 dims=(3)", &x).shape().dims(), [2, 6]);
        assert_eq!(run("torch.tile t 1 1 0 1 dims=()", &x), x);
        assert_eq!(run("Tensor.repeat r 1 1 0 1 sizes=(0,2)", &x), iota([0, 4]));
        error(&*op("Tensor.repeat r 1 1 0 1 sizes=(3)"), std::slice::from_ref(&x));
        error(&*op("Tensor.repeat r 1 1 0 1 sizes=(3,-1)"), &[x]);
    }
}

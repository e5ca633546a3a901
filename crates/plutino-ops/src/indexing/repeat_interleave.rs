//! Every element (of a dimension) several times in a row.
//!
//! <https://pytorch.org/docs/stable/generated/torch.repeat_interleave.html>. One count for all is a
//! strided copy; counts of their own are a choice of blocks, and must be known before the sizes
//! are.

use crate::shaping::slice::existing;
use crate::support::assemble::{internal, leaf};
use crate::support::rearrange::{Geometry, Part, Parts, Rearrange, Views, invalid, rearranged};
use crate::{
    Arg, BuildError, BuildProblem, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::index::take;
use plutino_tensor::{DType, Shape, Tensor, alloc};

/// The tensor, and the dimension in which elements are repeated.
#[derive(Debug)]
struct RepeatInterleave {
    input: usize,
    /// None: the tensor as one row.
    dim: Option<i64>,
}

impl RepeatInterleave {
    /// The shape in which elements are repeated, and the dimension.
    fn lines(&self, x: &TensorValue) -> Result<(Shape, usize), ShapeError> {
        match self.dim {
            None => Ok((Shape::from([x.shape().checked_numel()?]), 0)),
            Some(dim) => Ok((x.shape().clone(), existing(x.shape(), dim)?)),
        }
    }
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.optional("dim")?;
    let output_size = r.optional("output_size")?;
    let repeats = match r.arg("repeats")? {
        Some(repeats) => repeats,
        None => Arg::Value(r.required("repeats")?),
    };
    let Some(input) = r.input("input") else {
        return match repeats {
            Arg::Input(counts) => Ok(Box::new(RepeatIndices { counts, output_size })),
            Arg::Value(_) => Err(r.error(BuildProblem::MissingInput { key: "input".into() })),
        };
    };
    let what = RepeatInterleave { input, dim };
    match repeats {
        Arg::Value(count) if output_size.is_none() => rearranged(RepeatAll { what, count }),
        repeats => Ok(Box::new(RepeatEach { what, repeats, output_size })),
    }
}
register_op!(build => "torch.repeat_interleave");

/// Every element as often as the others.
#[derive(Debug)]
struct RepeatAll {
    what: RepeatInterleave,
    count: i64,
}

impl Rearrange for RepeatAll {
    fn views(&self) -> Views {
        Views::Never
    }

    fn input(&self) -> usize {
        self.what.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let refuse = || invalid(format!("elements cannot be repeated {} times", self.count));
        let count = usize::try_from(self.count).map_err(|_| refuse())?;
        let (shape, dim) = self.what.lines(x)?;
        let mut out = shape.clone();
        out[dim] = out[dim].checked_mul(count).ok_or_else(refuse)?;
        let from = Geometry::dense(&shape).repeat(dim + 1, count);
        Ok(Part { from, shape: out, dtype: x.dtype() }.into())
    }
}

/// Each index of the counts as often as they say: `torch.repeat_interleave(counts)`.
#[derive(Debug)]
struct RepeatIndices {
    counts: usize,
    output_size: Option<i64>,
}

impl RepeatIndices {
    fn indices(&self, inputs: &[ValueSpec]) -> Result<Vec<i64>, ShapeError> {
        let n = TensorValue::at(inputs, self.counts)?.shape().checked_numel()?;
        let numbers = ValueSpec::tensor(DType::I64, [n]);
        let what = RepeatInterleave { input: 0, dim: None };
        let (repeats, output_size) = (Arg::Input(1), self.output_size);
        let counts = inputs.get(self.counts).cloned().into_iter();
        let inputs: Vec<_> = std::iter::once(numbers).chain(counts).collect();
        let blocks = RepeatEach { what, repeats, output_size }.blocks(&inputs);
        let blocks = blocks.map_err(|error| match error {
            // Its own input: who runs the model makes it known.
            ShapeError::NotKnown { what, .. } => ShapeError::NotKnown { input: self.counts, what },
            other => other,
        });
        Ok(blocks?.1)
    }
}

impl Operator for RepeatIndices {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let dtype = TensorValue::at(inputs, self.counts)?.dtype();
        let indices = self.indices(inputs)?;
        Ok(vec![Tensor::from_slice(&indices, [indices.len()])?.cast(dtype)?.into()])
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::views(Vec::new())) // known: nothing to compute
    }
}

/// Every element (or all of them) as often as a tensor says.
#[derive(Debug)]
struct RepeatEach {
    what: RepeatInterleave,
    repeats: Arg<i64>,
    output_size: Option<i64>,
}

impl RepeatEach {
    /// The shape of the input's lines, the dimension, and how often each of its elements is
    /// repeated.
    fn counts(&self, inputs: &[ValueSpec]) -> Result<(Shape, usize, Vec<usize>), ShapeError> {
        let x = TensorValue::at(inputs, self.what.input)?;
        let (shape, dim) = self.what.lines(x)?;
        let mut repeats = match self.repeats {
            Arg::Value(count) => vec![count],
            Arg::Input(input) => {
                let counts = TensorValue::at(inputs, input)?;
                if counts.shape().rank() > 1 {
                    let (expected, found) = ("at most 1".into(), counts.shape().clone());
                    return Err(ShapeError::Rank { input, expected, found });
                }
                crate::indexing::gather::check_index(input, counts)?;
                let unknown = || ShapeError::NotKnown { input, what: "counts".into() };
                inputs.get(input).and_then(ValueSpec::known_ints).ok_or_else(unknown)?
            }
        };
        if let [one] = repeats[..] {
            repeats = alloc::filled(shape[dim], one)?;
        }
        if repeats.len() != shape[dim] {
            return Err(invalid(format!(
                "{} counts are given for dimension {dim} of {shape}",
                repeats.len()
            )));
        }
        let negative = || invalid("an element cannot be repeated a negative number of times");
        let count = |n: i64| usize::try_from(n).map_err(|_| negative());
        let counts = alloc::try_collect(repeats.into_iter().map(count))?;
        Ok((shape, dim, counts))
    }

    /// The shape of the result.
    fn output(&self, shape: &Shape, dim: usize, counts: &[usize]) -> Result<Shape, ShapeError> {
        let mut out = shape.clone();
        out[dim] = counts.iter().fold(0, |sum: usize, &n| sum.saturating_add(n));
        if self.output_size.is_some_and(|size| usize::try_from(size) != Ok(out[dim])) {
            return Err(invalid(format!(
                "output_size is {:?}, but the counts add up to {}",
                self.output_size, out[dim]
            )));
        }
        out.checked_numel()?;
        Ok(out)
    }

    /// Sizes of the blocks of the result, and which blocks of the input it consists of.
    fn blocks(&self, inputs: &[ValueSpec]) -> Result<([usize; 3], Vec<i64>), ShapeError> {
        let x = TensorValue::at(inputs, self.what.input)?;
        let (shape, dim, counts) = self.counts(inputs)?;
        let out = self.output(&shape, dim, &counts)?;
        let mut blocks = alloc::list(out[dim])?;
        for (i, &n) in counts.iter().enumerate() {
            blocks.extend(std::iter::repeat_n(i as i64, n)); // bounded: reserved
        }
        let inner = shape.product(dim + 1..shape.rank()).saturating_mul(x.dtype().size_of());
        Ok(([shape.product(0..dim), shape[dim], inner], blocks))
    }
}

impl Operator for RepeatEach {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let dtype = TensorValue::at(inputs, self.what.input)?.dtype();
        let (shape, dim, counts) = self.counts(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, self.output(&shape, dim, &counts)?)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (sizes, blocks) = self.blocks(cx.inputs)?;
        Ok(Planned::new(Blocks { input: leaf(cx.inputs, self.what.input), sizes, blocks }))
    }
}

struct Blocks {
    input: usize,
    /// Outer, blocks, bytes of a block.
    sizes: [usize; 3],
    blocks: Vec<i64>,
}

impl Kernel for Blocks {
    fn name(&self) -> &str {
        "index.take"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let ([outer, size, block], (_, dst)) = (self.sizes, cx.outputs.take_bytes(0)?);
        take(cx.par, cx.inputs.bytes(self.input)?, dst, outer, size, block, &self.blocks)
            .map_err(internal)
    }
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{check, check_values, error, infer, iota, op, specs, tensor, values};
    use crate::{Operator, ShapeError};
    use plutino_tensor::Tensor;

    /// With counts that are known before the run.
    fn repeated(operator: &dyn Operator, x: &Tensor, counts: &Tensor) -> Tensor {
        let inputs = [specs(std::slice::from_ref(x)).remove(0), ValueSpec::from(counts.clone())];
        check_values(operator, &inputs, &[x.clone(), counts.clone()]).remove(0)
    }

    #[test]
    fn one_count_for_all() {
        let run = |line: &str| check(&*op(line), &[iota([2, 2])]).remove(0);
        let y = run("torch.repeat_interleave r 1 1 0 1 dim=1 repeats=2 $input=0");
        assert_eq!(
            (y.shape().dims(), values::<f32>(&y)),
            (&[2, 4][..], vec![0., 0., 1., 1., 2., 2., 3., 3.])
        );
        let y = run("torch.repeat_interleave r 1 1 0 1 dim=None repeats=2 $input=0");
        assert_eq!(y.shape().dims(), [8]);
        error(&*op("torch.repeat_interleave r 1 1 0 1 dim=None repeats=-1 $input=0"), &[iota([2])]);
    }

    #[test]
    fn counts_of_their_own() {
        let by_rows = op("torch.repeat_interleave r 2 1 0 1 2 dim=0 $input=0 $repeats=1");
        let y = repeated(&*by_rows, &iota([3, 2]), &tensor([3], &[2i64, 0, 1]));
        assert_eq!(y, tensor([3, 2], &[0.0f32, 1., 0., 1., 4., 5.]));
        let flat = op("torch.repeat_interleave r 2 1 0 1 2 dim=None $input=0 $repeats=1");
        let y = repeated(&*flat, &tensor([2, 1], &[7u8, 8]), &tensor([2], &[1i32, 2]));
        assert_eq!(y, tensor([3], &[7u8, 8, 8]));
        // One count in a tensor, and nothing to repeat.
        assert_eq!(
            repeated(&*by_rows, &iota([2]), &tensor([1], &[2i64])),
            tensor([4], &[0.0f32, 0., 1., 1.])
        );
        assert_eq!(repeated(&*by_rows, &iota([0, 2]), &tensor([0], &[0i64; 0])), iota([0, 2]));
        assert_eq!(repeated(&*by_rows, &iota([2]), &tensor([2], &[0i64; 2])), iota([0]));
    }

    #[test]
    fn counts_alone() {
        let indices = op("torch.repeat_interleave r 1 1 1 2 $repeats=1");
        let counts = ValueSpec::from(tensor([3], &[1i64, 0, 2]));
        let y = indices.infer(std::slice::from_ref(&counts)).unwrap().remove(0);
        assert_eq!(y.known_ints(), Some(vec![0, 2, 2]));
        let late = infer(&*indices, &specs(&[tensor([2], &[1i64, 2])]));
        assert!(matches!(late, Err(ShapeError::NotKnown { input: 0, .. })));
    }

    #[test]
    fn counts_that_do_not_fit() {
        let operator =
            op("torch.repeat_interleave r 2 1 0 1 2 dim=0 output_size=3 $input=0 $repeats=1");
        let refused = |counts: &[i64]| {
            let counts = tensor([counts.len()], counts);
            let inputs = [specs(&[iota([2])]).remove(0), ValueSpec::from(counts)];
            infer(&*operator, &inputs).unwrap_err()
        };
        for counts in [&[1, 1][..], &[1, 1, 1], &[-1, 4], &[i64::MAX, i64::MAX]] {
            assert!(matches!(refused(counts), ShapeError::Invalid(_)), "{counts:?}");
        }
        let late = infer(&*operator, &specs(&[iota([2]), tensor([2], &[1i64, 2])]));
        assert!(matches!(late, Err(ShapeError::NotKnown { input: 1, .. })));
    }
}

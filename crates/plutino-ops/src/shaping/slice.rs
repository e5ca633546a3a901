//! Parts of a tensor: slice in all its forms, select, narrow. A part that is contiguous memory is a
//! view.

use crate::support::rearrange::{
    Geometry, Part, Parts, Rearrange, ints, invalid, rearranged, subject,
};
use crate::{
    Arg, BuildError, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_ir::Parameter;
use plutino_tensor::Shape;

/// What PNNX writes for "to the end" among bounds, and for "not a select" among selects.
const OPEN: i64 = i32::MAX as i64;

/// Which part of a tensor is meant: `x[starts[i]:ends[i]:steps[i]]` in each of `dims`, or one index
/// of it.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) dims: Arg<Vec<i64>>,
    pub(crate) starts: Arg<Vec<i64>>,
    pub(crate) ends: Arg<Vec<i64>>,
    pub(crate) steps: Arg<Vec<i64>>,
    /// [`OPEN`] where the dimension is sliced. Empty: everywhere.
    pub(crate) selects: Arg<Vec<i64>>,
}

impl Range {
    /// Reads `dim`, `start`, `end`, `step` and `select`, or their plurals; each a parameter or an
    /// input. Beside `select` the others but `dim` are placeholders.
    pub(crate) fn read(r: &mut NodeReader<'_>) -> Result<Self, BuildError> {
        let has = |r: &mut NodeReader<'_>, key: &str| r.has(key) || r.named_input(key).is_some();
        if has(r, "dims") {
            return Ok(Self {
                dims: ints(r, &["dims"])?,
                starts: r.arg("starts")?.unwrap_or(Arg::Value(Vec::new())),
                ends: r.arg("ends")?.unwrap_or(Arg::Value(Vec::new())),
                steps: r.arg("steps")?.unwrap_or(Arg::Value(Vec::new())),
                selects: r.arg("selects")?.unwrap_or(Arg::Value(Vec::new())),
            });
        }
        let one = |r: &mut NodeReader<'_>, key, default| -> Result<_, BuildError> {
            Ok(r.arg(key)?.unwrap_or(Arg::Value(vec![default])))
        };
        Ok(Self {
            dims: ints(r, &["dim"])?,
            starts: one(r, "start", 0)?,
            ends: one(r, "end", OPEN)?,
            steps: one(r, "step", 1)?,
            selects: r.arg("select")?.unwrap_or(Arg::Value(Vec::new())),
        })
    }

    /// The elements of the part, in a dense tensor of this shape.
    pub(crate) fn of(&self, shape: &Shape, inputs: &[ValueSpec]) -> Result<Geometry, ShapeError> {
        let dims = self.dims.ints(inputs)?;
        let [starts, ends, steps, selects] =
            [&self.starts, &self.ends, &self.steps, &self.selects].map(|list| list.ints(inputs));
        let (starts, ends, steps, selects) = (starts?, ends?, steps?, selects?);
        for (name, list) in
            [("starts", &starts), ("ends", &ends), ("steps", &steps), ("selects", &selects)]
        {
            if !list.is_empty() && list.len() != dims.len() {
                return Err(invalid(format!(
                    "{name} {list:?} must have one entry for each of dims {dims:?}"
                )));
            }
        }
        let mut part = Geometry::dense(shape);
        let mut dropped = Vec::new();
        for (i, &dim) in dims.iter().enumerate() {
            let dim = existing(shape, dim)?;
            match selects.get(i) {
                None | Some(&OPEN) => {
                    let at = |list: &[i64], default| list.get(i).copied().unwrap_or(default);
                    let (start, end, step) = (at(&starts, 0), at(&ends, OPEN), at(&steps, 1));
                    let (start, len, step) = bounds(part.shape[dim], start, end, step)?;
                    part = part.slice(dim, start, len, step);
                }
                Some(&index) => {
                    // Not that of the whole: the dimension may have been sliced before.
                    let at = position(part.shape[dim], index)?;
                    part = part.slice(dim, at, 1, 1);
                    dropped.push(dim);
                }
            }
        }
        dropped.sort_unstable();
        dropped.dedup();
        for dim in dropped.into_iter().rev() {
            part.shape.remove(dim);
            part.strides.remove(dim);
        }
        Ok(part)
    }
}

/// A dimension that exists: slicing a scalar is an error, although -1 and 0 name "its dimension"
/// elsewhere.
pub(crate) fn existing(shape: &Shape, dim: i64) -> Result<usize, ShapeError> {
    let at = shape.dim(dim)?;
    if at < shape.rank() {
        Ok(at)
    } else {
        Err(invalid("a tensor without dimensions has no parts"))
    }
}

/// First index, number of indices and step of Python's `start:end:step` in a dimension of this
/// size.
pub(crate) fn bounds(
    size: usize,
    start: i64,
    end: i64,
    step: i64,
) -> Result<(usize, usize, usize), ShapeError> {
    let Some(step) = usize::try_from(step).ok().filter(|&s| s > 0) else {
        return Err(invalid(format!("the step of a slice must be at least 1, not {step}")));
    };
    let clamp = |i: i64| {
        let length = i64::try_from(size).unwrap_or(i64::MAX);
        let i = if i < 0 { i.saturating_add(length) } else { i };
        i.clamp(0, length) as usize
    };
    let (start, end) = (clamp(start), clamp(end));
    Ok((start, end.saturating_sub(start).div_ceil(step), step))
}

/// An index that exists.
pub(crate) fn position(size: usize, index: i64) -> Result<usize, ShapeError> {
    plutino_kernels::copy::index::resolve(index, size).map_err(|e| invalid(e.to_string()))
}

/// `x[a:b:c, ...]`
#[derive(Debug)]
struct Slice {
    input: usize,
    range: Range,
}

fn slice(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let range = Range::read(r)?;
    rearranged(Slice { input: subject(r)?, range })
}
register_op!(slice => "Tensor.slice");

impl Rearrange for Slice {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        Ok(Part::new(x.dtype(), self.range.of(x.shape(), inputs)?).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.select.html>
#[derive(Debug)]
struct Select {
    input: usize,
    dim: i64,
    index: Arg<i64>,
}

fn select(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    let index = match r.arg("index")? {
        Some(index) => index,
        None => Arg::Value(r.required("index")?),
    };
    rearranged(Select { input: subject(r)?, dim, index })
}
register_op!(select => "Tensor.select", "torch.select");

impl Rearrange for Select {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let dim = existing(x.shape(), self.dim)?;
        let index = position(x.shape()[dim], self.index.int(inputs)?)?;
        Ok(Part::new(x.dtype(), Geometry::dense(x.shape()).select(dim, index)).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.narrow.html>
#[derive(Debug)]
struct Narrow {
    input: usize,
    dim: i64,
    start: Arg<i64>,
    length: Arg<i64>,
}

fn narrow(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    let mut int = |key: &str| -> Result<_, BuildError> {
        Ok(match r.arg(key)? {
            Some(value) => value,
            None => Arg::Value(r.required(key)?),
        })
    };
    let (start, length) = (int("start")?, int("length")?);
    rearranged(Narrow { input: subject(r)?, dim, start, length })
}
register_op!(narrow => "torch.narrow", "Tensor.narrow");

impl Rearrange for Narrow {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let dim = existing(x.shape(), self.dim)?;
        let (size, start, length) =
            (x.shape()[dim], self.start.int(inputs)?, self.length.int(inputs)?);
        let from = if start < 0 { start.saturating_add(size as i64) } else { start };
        let inside = usize::try_from(from).ok().zip(usize::try_from(length).ok());
        match inside.filter(|&(from, len)| from.checked_add(len).is_some_and(|end| end <= size)) {
            Some((from, len)) => {
                Ok(Part::new(x.dtype(), Geometry::dense(x.shape()).slice(dim, from, len, 1)).into())
            }
            None => Err(invalid(format!(
                "{length} indices from {start} on do not exist in dimension {dim} of {}",
                x.shape()
            ))),
        }
    }
}

/// A list of integers, some of them taken from the inputs: `indexes=(@0,2147483647,@1)`.
#[derive(Debug)]
struct SliceIndexes {
    items: Vec<Arg<i64>>,
}

fn slice_indexes(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let expected = "integers and inputs such as @0";
    let given = r.raw("indexes").map(ToString::to_string);
    let text = given.ok_or_else(|| r.bad("indexes", expected))?;
    let inner = text.trim_start_matches(['(', '[']).trim_end_matches([')', ']']);
    let count = r.rest().len();
    let item = |token: &str| match token.strip_prefix('@') {
        Some(at) => at.parse().ok().filter(|&at: &usize| at < count).map(Arg::Input),
        None => Parameter::parse(token).ok()?.as_int().map(Arg::Value),
    };
    let items: Option<Vec<_>> = inner.split(',').filter(|t| !t.is_empty()).map(item).collect();
    Ok(Box::new(SliceIndexes { items: items.ok_or_else(|| r.bad("indexes", expected))? }))
}
register_op!(slice_indexes => "pnnx.SliceIndexes");

impl Operator for SliceIndexes {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let values =
            self.items.iter().map(|item| item.int(inputs)).collect::<Result<Vec<_>, _>>()?;
        Ok(vec![ValueSpec::python_ints(&values)?])
    }

    fn plan(&self, _: &crate::PlanCx<'_>) -> Result<crate::Planned, crate::PlanError> {
        Ok(crate::Planned::views(Vec::new())) // the values are known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{check, check_values, error, iota, op, specs, tensor, values};
    use plutino_tensor::{DType, Tensor};
    use proptest::prelude::*;

    fn run(line: &str, x: &Tensor) -> Tensor {
        check(&*op(line), std::slice::from_ref(x)).remove(0)
    }

    #[test]
    fn slices_of_one_dimension() {
        let x = iota([4, 5]);
        let y = run("Tensor.slice s 1 1 0 1 dim=1 start=1 end=2147483647 step=2 $input=0", &x);
        assert_eq!(values::<f32>(&y), [1., 3., 6., 8., 11., 13., 16., 18.]);
        let folded =
            run("Tensor.slice s 1 1 0 1 dim=1 start=1 end=int(9) step=int(2) $input=0", &x);
        assert_eq!(folded, y);
        let y = run("Tensor.slice s 1 1 0 1 dim=-2 start=-3 end=-1 step=1", &x);
        assert_eq!(y, run("torch.narrow n 1 1 0 1 dim=0 start=1 length=2", &x));
        assert_eq!(run("Tensor.slice s 1 1 0 1 dim=0 start=None end=None step=1", &x), x);
        assert_eq!(run("Tensor.slice s 1 1 0 1 dim=0 start=3 end=1 step=1", &x), iota([0, 5]));
        let e = error(&*op("Tensor.slice s 1 1 0 1 dim=0 start=0 end=2 step=0"), &[x]);
        assert!(e.to_string().contains("at least 1, not 0"), "{e}");
        error(&*op("Tensor.slice s 1 1 0 1 dim=0"), &[iota([])]);
    }

    #[test]
    fn slices_of_several_dimensions_with_selects() {
        let x = iota([3, 4, 5]);
        let line = "Tensor.slice s 1 1 0 1 dims=(0,2) starts=(0,1) ends=(0,-1) steps=(0,2) \
                    selects=(-1,2147483647)";
        let y = run(line, &x);
        assert_eq!(y.shape().dims(), [4, 2]);
        assert_eq!(values::<f32>(&y), [41., 43., 46., 48., 51., 53., 56., 58.]);
        let line =
            "Tensor.slice s 1 1 0 1 dims=(-1,0) starts=(0,0) ends=(0,0) steps=(0,0) selects=(4,1)";
        assert_eq!(values::<f32>(&run(line, &x)), [24., 29., 34., 39.]);
        error(&*op("Tensor.slice s 1 1 0 1 dims=(0,1) starts=(0) ends=(1,1) steps=(1,1)"), &[x]);
    }

    #[test]
    fn bounds_may_be_inputs() {
        let x = iota([8]);
        let indexes = op("pnnx.SliceIndexes i 2 1 a b c indexes=(@0,2147483647,@1)");
        let ints = [3, 7].map(|v| ValueSpec::python(v).unwrap());
        let list = indexes.infer(&ints).unwrap();
        assert_eq!(list[0].known_ints(), Some(vec![3, 2_147_483_647, 7]));
        let unknown = ValueSpec::tensor(DType::I64, []);
        assert!(indexes.infer(&[unknown.clone(), unknown]).is_err());
        assert!(crate::testkit::try_op("pnnx.SliceIndexes i 1 1 a c indexes=(@1)", &[]).is_err());

        let slice = op("Tensor.slice s 3 1 x a b y dim=0 step=2 $input=x $start=a $end=b");
        let inputs = [x.spec().into(), ints[0].clone(), ints[1].clone()];
        let data = [x, tensor([], &[3i64]), tensor([], &[7i64])];
        assert_eq!(values::<f32>(&check_values(&*slice, &inputs, &data)[0]), [3., 5.]);
    }

    #[test]
    fn select_drops_the_dimension() {
        let x = iota([3, 4]);
        assert_eq!(
            values::<f32>(&run("Tensor.select s 1 1 0 1 dim=1 index=-1", &x)),
            [3., 7., 11.]
        );
        assert_eq!(run("Tensor.select s 1 1 0 1 dim=0 index=0", &iota([1])), iota([]));
        let e = error(&*op("Tensor.select s 1 1 0 1 dim=0 index=3"), std::slice::from_ref(&x))
            .to_string();
        assert!(e.contains("index 3 is outside -3..3"), "{e}");
        error(&*op("torch.narrow n 1 1 0 1 dim=0 start=2 length=2"), std::slice::from_ref(&x));
        error(&*op("torch.narrow n 1 1 0 1 dim=0 start=0 length=-1"), &[x]);
    }

    #[test]
    fn outer_parts_are_views() {
        for (line, offset) in [
            ("Tensor.slice s 1 1 0 1 dim=1 start=2 end=3 step=1", Some(8)),
            ("Tensor.select s 1 1 0 1 dim=1 index=1", Some(4)),
            ("Tensor.slice s 1 1 0 1 dim=2 start=2 end=3 step=1", None),
        ] {
            let (operator, inputs) = (op(line), specs(&[iota([1, 3, 4])]));
            let outputs = operator.infer(&inputs).unwrap();
            let (packs, isa) = (crate::PackCache::default(), plutino_kernels::Isa::best());
            let cx = crate::PlanCx {
                inputs: &inputs,
                outputs: &outputs,
                setting: crate::Setting::new(isa, 1),
                packs: &packs,
            };
            let planned = operator.plan(&cx).unwrap();
            assert_eq!(planned.kernel.is_none(), offset.is_some());
            let view = |offset| crate::Alias::View { input: 0, offset };
            assert_eq!(planned.alias[0], offset.map_or(crate::Alias::None, view));
        }
    }

    proptest! {
        /// Against Python's definition: indices start, start + step ... below end, both clamped.
        #[test]
        fn bounds_are_pythons(size in 0usize..9, start in -12i64..12, end in -12i64..12, step in 1i64..5) {
            let (first, len, by) = bounds(size, start, end, step).unwrap();
            let found: Vec<usize> = (0..len).map(|i| first + i * by).collect();
            let n = size as i64;
            let clamp = |i: i64| (if i < 0 { i + n } else { i }).clamp(0, n);
            let expected: Vec<usize> =
                (clamp(start)..clamp(end)).step_by(step as usize).map(|i| i as usize).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

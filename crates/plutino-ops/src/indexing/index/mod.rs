//! Indexing with tensors: `x[i, :, j]`, `x[mask]`, and assignments to such parts.
//!
//! The rules are NumPy's
//! (<https://numpy.org/doc/stable/user/basics.indexing.html#advanced-indexing>), as PyTorch has
//! them. There is one index for each of the leading dimensions: none (the dimension as it is),
//! integers, or a mask, which stands for as many dimensions as it has. The integers are broadcast;
//! their dimensions take the place of those that they index if these are neighbours, else they come
//! first.

use crate::creation::create::Source;
use crate::indexing::gather::value_error;
use crate::support::assemble::{internal, leaf};
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, Inputs, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_ir::expr::Literal;
use plutino_kernels::copy::index::{Index as IndexType, Places, Reduce, pick, place, resolve};
use plutino_kernels::elementwise::Scalar;
use plutino_kernels::for_numbers;
use plutino_tensor::{DType, Element, Shape, Tensor, TensorSpec, TensorView, alloc};

/// The indices of a node.
#[derive(Debug)]
enum Indices {
    /// Constants; none for a dimension as it is.
    Known(Vec<Option<Tensor>>),
    /// The list (or the only one) at this input.
    Input(usize),
}

/// One index, as planning sees it.
#[derive(Debug, Clone)]
enum Slot<'a> {
    /// The dimension as it is.
    Whole,
    Known(Tensor),
    /// The tensor at this input leaf.
    Leaf(usize, TensorSpec),
    /// That tensor, in a run.
    Read(TensorView<'a>),
}

impl Indices {
    fn slots(&self, inputs: &[ValueSpec]) -> Result<Vec<Slot<'static>>, ShapeError> {
        let input = match self {
            Self::Known(list) => {
                let slot = |t: &Option<Tensor>| t.clone().map_or(Slot::Whole, Slot::Known);
                return Ok(list.iter().map(slot).collect());
            }
            Self::Input(input) => *input,
        };
        let items = match inputs.get(input) {
            Some(ValueSpec::List(items)) => &items[..],
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        let mut at = leaf(inputs, input);
        let mut slots = Vec::with_capacity(items.len());
        for item in items {
            slots.push(match item {
                ValueSpec::Tensor(TensorValue { known: Some(known), .. }) => {
                    Slot::Known(known.clone())
                }
                ValueSpec::Tensor(t) => Slot::Leaf(at, t.spec.clone()),
                ValueSpec::List(none) if none.is_empty() => Slot::Whole,
                other => {
                    let (expected, found) = ("a list of tensors of known shape", other.to_string());
                    return Err(ShapeError::Sort { input, expected, found });
                }
            });
            at += item.leaf_count();
        }
        Ok(slots)
    }
}

/// Integers that index one dimension; without values where only the run knows them.
#[derive(Debug)]
struct Integers<'a> {
    shape: Shape,
    values: Option<Values<'a>>,
}

#[derive(Debug)]
enum Values<'a> {
    /// Where a mask is set.
    OfMask(Vec<i64>),
    /// i64 or i32.
    Given(TensorView<'a>),
}

impl Values<'_> {
    /// Adds the positions that they mean in a dimension of `size` elements, `step` apart, to those
    /// of `at`, to whose shape the integers of `own` shape are broadcast.
    fn add_to(
        &self,
        own: &Shape,
        (at, shape): (&mut [usize], &Shape),
        (size, step): (usize, usize),
    ) -> Result<(), RunError> {
        fn add<T: IndexType + Element>(
            view: &TensorView<'_>,
            at: &mut [usize],
            (size, step): (usize, usize),
        ) -> Result<(), RunError> {
            for (at, i) in at.iter_mut().zip(view.iter::<T>()?) {
                *at += resolve(i, size).map_err(|e| value_error(1, e))? * step;
            }
            Ok(())
        }
        let view = match self {
            Self::OfMask(values) => TensorView::from_slice(values, own.clone())?,
            Self::Given(view) => view.clone(),
        };
        let view = view.broadcast_to(shape.clone())?;
        match view.dtype() {
            DType::I32 => add::<i32>(&view, at, (size, step)),
            _ => add::<i64>(&view, at, (size, step)),
        }
    }
}

/// The integers for each dimension of `x`, none for a dimension as it is. Nothing where a mask is
/// not known.
fn expand<'a>(
    x: &Shape,
    slots: &'a [Slot<'a>],
) -> Result<Option<Vec<Option<Integers<'a>>>>, ShapeError> {
    let mut axes = Vec::with_capacity(x.rank());
    let mut known = true;
    for slot in slots {
        let (dtype, shape, tensor) = match slot {
            Slot::Whole => {
                axes.push(None);
                continue;
            }
            Slot::Known(t) => (t.dtype(), t.shape(), Some(t.view())),
            Slot::Read(view) => (view.dtype(), view.shape(), Some(view.clone())),
            Slot::Leaf(_, spec) => (spec.dtype, &spec.shape, None),
        };
        match dtype {
            DType::I64 | DType::I32 => {
                let (shape, values) = (shape.clone(), tensor.map(Values::Given));
                axes.push(Some(Integers { shape, values }));
            }
            DType::Bool | DType::U8 => {
                let rank = shape.rank();
                let part = x.get(axes.len()..axes.len().saturating_add(rank));
                if rank == 0 || part != Some(shape.dims()) {
                    let dims = (axes.len(), axes.len().saturating_add(rank));
                    return Err(invalid(format!(
                        "a mask of shape {shape} cannot index dimensions {}..{} of {x}",
                        dims.0, dims.1
                    )));
                }
                match tensor {
                    Some(mask) => {
                        axes.extend(positions(&mask.to_tensor()?)?.into_iter().map(Some));
                    }
                    None => {
                        known = false;
                        axes.extend((0..rank).map(|_| None));
                    }
                }
            }
            found => {
                return Err(invalid(format!(
                    "an index must be i64, i32, bool or u8, found {found}"
                )));
            }
        }
    }
    if axes.len() > x.rank() {
        return Err(invalid(format!("{} indices are too many for {x}", axes.len())));
    }
    axes.extend((axes.len()..x.rank()).map(|_| None));
    Ok(known.then_some(axes))
}

/// The positions at which a mask is set, for each of its dimensions.
fn positions(mask: &Tensor) -> Result<Vec<Integers<'static>>, ShapeError> {
    let shape = mask.shape();
    let set = mask.as_bytes().iter().enumerate().filter(|(_, b)| **b != 0).map(|(i, _)| i);
    let set: Vec<usize> = alloc::grow(set)?;
    let strides = shape.dense_strides();
    let along = |d: usize| {
        let step = strides[d].unsigned_abs();
        let values = alloc::collect(set.iter().map(|&i| (i / step % shape[d]) as i64))?;
        Ok(Integers { shape: Shape::from([set.len()]), values: Some(Values::OfMask(values)) })
    };
    (0..shape.rank()).map(along).collect()
}

/// The shape of a part: that of the integers, between or before the dimensions that stay.
fn part_shape(x: &Shape, axes: &[Option<Integers<'_>>]) -> Result<Shape, ShapeError> {
    let mut integers = Shape::scalar();
    for axis in axes.iter().flatten() {
        integers = integers.broadcast(&axis.shape)?;
    }
    let stay = |range: std::ops::Range<usize>| {
        range.filter(|&d| axes[d].is_none()).map(|d| x[d]).collect::<Vec<_>>()
    };
    let before = neighbours(axes).map_or(0, |range| range.start);
    let (lead, rest) = (stay(0..before), stay(before..axes.len()));
    let shape: Shape = lead.into_iter().chain(integers.iter().copied()).chain(rest).collect();
    shape.checked_numel()?;
    Ok(shape)
}

/// The dimensions that are indexed, where they are neighbours.
fn neighbours(axes: &[Option<Integers<'_>>]) -> Option<std::ops::Range<usize>> {
    let first = axes.iter().position(Option::is_some)?;
    let end = axes.iter().rposition(Option::is_some)? + 1;
    axes[first..end].iter().all(Option::is_some).then_some(first..end)
}

/// A part of a tensor: where its blocks lie, in blocks.
struct Part {
    shape: Shape,
    outer: Vec<usize>,
    at: Vec<usize>,
    inner: Vec<usize>,
    /// Elements of a block.
    block: usize,
}

impl Part {
    fn new(x: &Shape, axes: &[Option<Integers<'_>>]) -> Result<Self, RunError> {
        let shape = part_shape(x, axes).map_err(shape_error)?;
        let end = axes.iter().rposition(Option::is_some).map_or(0, |d| d + 1);
        let block = x.product(end..x.rank());
        let step = |d: usize| x.product(d + 1..end);
        let mut integers = Shape::scalar();
        for axis in axes.iter().flatten() {
            integers = integers.broadcast(&axis.shape)?;
        }
        let mut at = alloc::filled(integers.checked_numel()?, 0)?;
        for (d, axis) in axes.iter().enumerate() {
            if let Some(Integers { shape, values: Some(values) }) = axis {
                values.add_to(shape, (&mut at, &integers), (x[d], step(d)))?;
            }
        }
        let stay = |dims: std::ops::Range<usize>| {
            let mut all = vec![0];
            for d in dims.filter(|&d| axes[d].is_none()) {
                all =
                    alloc::grow(all.iter().flat_map(|&p| (0..x[d]).map(move |i| p + i * step(d))))?;
            }
            Ok::<_, RunError>(all)
        };
        let (outer, inner) = match neighbours(axes) {
            Some(dims) => (stay(0..dims.start)?, vec![0]),
            None => (vec![0], stay(0..end)?),
        };
        Ok(Self { shape, outer, at, inner, block })
    }

    /// The part that slots mean, those at leaves read now.
    fn read(x: &Shape, slots: &[Slot<'_>], inputs: &Inputs<'_>) -> Result<Self, RunError> {
        let read = slots.iter().map(|slot| match slot {
            Slot::Leaf(at, _) => Ok(Slot::Read(inputs.view(*at)?)),
            other => Ok(other.clone()),
        });
        let read = read.collect::<Result<Vec<_>, RunError>>()?;
        let axes = expand(x, &read).map_err(shape_error)?;
        Self::new(x, &axes.ok_or_else(|| RunError::Internal("a mask was not read".into()))?)
    }

    /// Its places, for blocks of `unit` bytes or elements for each element.
    fn places(&self, unit: usize) -> Places<'_> {
        let Self { outer, at, inner, block, .. } = self;
        Places { outer, at, inner, block: block * unit }
    }
}

/// What a mask turns out to be wrong about while running.
fn shape_error(e: ShapeError) -> RunError {
    RunError::Value { input: 1, what: e.to_string() }
}

/// `x[indices]`
#[derive(Debug)]
struct Index {
    input: usize,
    indices: Indices,
    lost: Option<Lost>,
}

/// Shapes that the file records of a node whose indices it has lost: of a constant index with more
/// than one dimension, pnnx keeps as many elements as its first dimension has, as one list.
#[derive(Debug)]
struct Lost {
    input: Shape,
    result: Shape,
}

impl Lost {
    /// Compares the recorded result with that of these indices.
    fn find(r: &NodeReader<'_>, input: usize, indices: &[Option<Tensor>]) -> Option<Self> {
        let input = Shape::from(r.known_input(input)?);
        let result = Shape::from(r.known_output(0)?);
        let slot = |t: &Option<Tensor>| t.clone().map_or(Slot::Whole, Slot::Known);
        let slots: Vec<Slot<'_>> = indices.iter().map(slot).collect();
        let axes = expand(&input, &slots).ok().flatten();
        let found = axes.and_then(|axes| part_shape(&input, &axes).ok());
        (found.as_ref() != Some(&result)).then_some(Self { input, result })
    }

    /// The result where indices do not matter: all elements of `x` are known, and equal.
    fn result(&self, x: &TensorValue) -> Result<ValueSpec, ShapeError> {
        const MOST: usize = 1 << 20;
        let same = x.known.as_ref().filter(|_| *x.shape() == self.input).and_then(|known| {
            let mut elements = known.as_bytes().chunks_exact(known.dtype().size_of());
            let first = elements.next()?;
            elements.all(|e| e == first).then_some(first)
        });
        let Some(element) = same.filter(|_| self.result.numel() <= MOST) else {
            return Err(invalid(format!(
                "the file records a result of shape {}, which these indices do not give: pnnx keeps only the first \
                 elements of a constant index with several dimensions; export with example inputs of two shapes",
                self.result
            )));
        };
        let mut out = Tensor::zeros(x.dtype(), self.result.clone())?;
        for part in out.as_mut_bytes()?.chunks_exact_mut(element.len()) {
            part.copy_from_slice(element);
        }
        Ok(out.into())
    }
}

fn index(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let given = match r.named_input("expr").or_else(|| r.named_input("indices")) {
        None if r.has("expr") => Some(Indices::Known(literal(r)?)),
        at => at.map(Indices::Input),
    };
    let input = r.required_input("input")?;
    let indices = match given {
        Some(indices) => indices,
        None => Indices::Input(r.required_input("expr")?),
    };
    let lost = match &indices {
        Indices::Known(list) => Lost::find(r, input, list),
        Indices::Input(_) => None,
    };
    Ok(Box::new(Index { input, indices, lost }))
}
register_op!(index => "Tensor.index");

/// Indices in a parameter: `[[2,1],[0,1]]`, `[None,None,[1,0]]`.
fn literal(r: &mut NodeReader<'_>) -> Result<Vec<Option<Tensor>>, BuildError> {
    let expected = "a list of None and of lists of integers or of booleans, each rectangular";
    let text: String = r.required("expr")?;
    let list = match Literal::parse(&text) {
        Ok(Literal::List(list)) => list,
        _ => return Err(r.bad("expr", expected)),
    };
    let index = |l: &Literal| match l {
        Literal::None => Some(None),
        other => constant(other).map(Some),
    };
    list.iter().map(index).collect::<Option<_>>().ok_or_else(|| r.bad("expr", expected))
}

/// Nested lists of one kind and of equal lengths, as a tensor. The depth is bounded by the reader
/// of literals.
fn constant(l: &Literal) -> Option<Tensor> {
    fn walk(l: &Literal, depth: usize, shape: &mut Vec<usize>, out: &mut Vec<i64>) -> Option<bool> {
        let (value, bools) = match l {
            Literal::Int(i) => (*i, false),
            Literal::Bool(b) => (i64::from(*b), true),
            Literal::List(items) => {
                match shape.get(depth) {
                    None if out.is_empty() => shape.push(items.len()),
                    len if len != Some(&items.len()) => return None,
                    _ => {}
                }
                let kinds = items.iter().map(|item| walk(item, depth + 1, shape, out));
                let kinds = kinds.collect::<Option<Vec<_>>>()?;
                let bools = kinds.first().copied().unwrap_or(false);
                return kinds.iter().all(|&k| k == bools).then_some(bools);
            }
            _ => return None,
        };
        if depth != shape.len() {
            return None;
        }
        out.push(value);
        Some(bools)
    }
    let (mut shape, mut out) = (Vec::new(), Vec::new());
    let bools = walk(l, 0, &mut shape, &mut out)?;
    let tensor = Tensor::from_slice(&out, shape).ok()?;
    if bools { tensor.cast(DType::Bool).ok() } else { Some(tensor) }
}

impl Operator for Index {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        if let Some(lost) = &self.lost {
            return Ok(vec![lost.result(x)?]);
        }
        Ok(vec![match expand(x.shape(), &self.indices.slots(inputs)?)? {
            Some(axes) => ValueSpec::tensor(x.dtype(), part_shape(x.shape(), &axes)?),
            None => ValueSpec::Dynamic { dtype: x.dtype() },
        }])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let shape = TensorValue::at(cx.inputs, self.input)?.shape().clone();
        let slots = self.indices.slots(cx.inputs)?;
        let dynamic = expand(&shape, &slots)?.is_none();
        Ok(Planned::new(Pick { input: leaf(cx.inputs, self.input), shape, slots, dynamic }))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

struct Pick {
    input: usize,
    shape: Shape,
    slots: Vec<Slot<'static>>,
    /// Whether the output's shape depends on data.
    dynamic: bool,
}

impl Kernel for Pick {
    fn name(&self) -> &str {
        "index.pick"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let part = Part::read(&self.shape, &self.slots, &cx.inputs)?;
        let dtype = cx.inputs.spec(self.input)?.dtype;
        let (src, places) = (cx.inputs.bytes(self.input)?, part.places(dtype.size_of()));
        if self.dynamic {
            let mut out = Tensor::zeros(dtype, part.shape.clone())?;
            pick(cx.par, src, out.as_mut_bytes()?, places).map_err(internal)?;
            return cx.outputs.emit(0, out);
        }
        let (_, dst) = cx.outputs.take_bytes(0)?;
        pick(cx.par, src, dst, places).map_err(internal)
    }
}

/// `x[indices] = values`, or `+=`:
/// <https://pytorch.org/docs/stable/generated/torch.Tensor.index_put_.html>
#[derive(Debug)]
struct IndexPut {
    input: usize,
    indices: Indices,
    values: Arg<Scalar>,
    accumulate: bool,
}

fn index_put(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let accumulate = r.or("accumulate", false)?;
    let values = r.arg("values")?;
    let (input, indices) = (r.required_input("input")?, r.required_input("indices")?);
    let values = match values {
        Some(values) => values,
        None => Arg::Input(r.required_input("values")?),
    };
    Ok(Box::new(IndexPut { input, indices: Indices::Input(indices), values, accumulate }))
}
register_op!(index_put => "Tensor.index_put");

impl IndexPut {
    /// The new values and their shape.
    fn values(&self, inputs: &[ValueSpec]) -> Result<(Source, Shape), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let source = Source::of(&self.values, x.dtype(), inputs)?;
        let shape = match self.values {
            Arg::Value(_) => Shape::scalar(),
            Arg::Input(at) => TensorValue::at(inputs, at)?.shape().clone(),
        };
        Ok((source, shape))
    }
}

impl Operator for IndexPut {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (_, values) = self.values(inputs)?;
        if let Some(axes) = expand(x.shape(), &self.indices.slots(inputs)?)? {
            let part = part_shape(x.shape(), &axes)?;
            if values.broadcast(&part)? != part {
                return Err(invalid(format!("values of {values} do not broadcast to {part}")));
            }
        }
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let input = leaf(cx.inputs, self.input);
        let shape = TensorValue::at(cx.inputs, self.input)?.shape().clone();
        let (values, values_shape) = self.values(cx.inputs)?;
        let slots = self.indices.slots(cx.inputs)?;
        let reduce = if self.accumulate { Reduce::Add } else { Reduce::Replace };
        Ok(Planned::new(Put { input, shape, slots, values, values_shape, reduce }).in_place(input))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

struct Put {
    input: usize,
    shape: Shape,
    slots: Vec<Slot<'static>>,
    values: Source,
    values_shape: Shape,
    reduce: Reduce,
}

impl Kernel for Put {
    fn name(&self) -> &str {
        "index.place"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let part = Part::read(&self.shape, &self.slots, &cx.inputs)?;
        let dtype = cx.inputs.spec(self.input)?.dtype;
        for_numbers!(dtype, T => {
            let y = cx.inout::<T>(self.input, 0)?.into_same();
            let values = self.values.read::<T>(&cx.inputs)?;
            if self.values_shape == part.shape {
                return place(&values, y, part.places(1), self.reduce).map_err(internal);
            }
            let values = TensorView::from_slice(&values, self.values_shape.clone())?;
            let all: Vec<T> = alloc::grow(values.broadcast_to(part.shape.clone())?.iter::<T>()?)?;
            place(&all, y, part.places(1), self.reduce).map_err(internal)
        })
    }
}

#[cfg(test)]
mod tests;

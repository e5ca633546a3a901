//! Sums, means and maxima of rows of a table: embedding bags.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.embedding_bag.html>. Bags follow
//! one another in a list of row numbers, and offsets say where each begins; or they are the rows of
//! a matrix of numbers. A bag without rows is zero. Row `padding_idx` counts for nothing.

use crate::indexing::gather::check_index;
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::support::weights::Source;
use crate::{
    BuildError, BuildProblem, Cost, Inputs, Kernel, NodeReader, Operator, PlanCx, PlanError,
    Planned, RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::number::{Float, Real};
use plutino_kernels::simd::{Simd, Vectorized};
use plutino_kernels::{Isa, PackKey, for_floats};
use plutino_tensor::stop;
use plutino_tensor::{DType, Element, Shape, Tensor};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Columns that are summed at a time, where the sums stay in registers and first-level cache.
const STRIP: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sum,
    Mean,
    Max,
}

/// The word of a function or module, by the number of the native function.
const MODES: [(&str, Mode); 3] = [("sum", Mode::Sum), ("mean", Mode::Mean), ("max", Mode::Max)];

#[derive(Debug)]
struct EmbeddingBag {
    table: Source,
    indices: usize,
    offsets: Option<usize>,
    /// Factors of the rows.
    factors: Option<usize>,
    mode: Mode,
    /// Whether the last offset is the end of the last bag.
    last_offset: bool,
    padding: Option<i64>,
    /// Whether the native function's further results are outputs: the bag of each index, sizes of
    /// the bags, and where maxima come from.
    more: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    if r.optional::<f64>("max_norm")?.is_some() {
        return Err(r.bad("max_norm", "None: PyTorch would change the weights while it runs"));
    }
    let _: Option<f64> = r.optional("norm_type")?;
    let mode = r.one_of("mode", &MODES, Some(Mode::Mean))?;
    let indices = r.required_input("input")?;
    let table = if r.kind() == "nn.EmbeddingBag" {
        let (rows, columns) = (r.required("num_embeddings")?, r.required("embedding_dim")?);
        Source::Stored(r.weight("weight", &[rows, columns])?)
    } else {
        Source::Input(r.required_input("weight")?)
    };
    let offsets = optional_input(r, "offsets")?;
    bag(r, table, indices, offsets, mode, false)
}
register_op!(build => "nn.EmbeddingBag", "F.embedding_bag");

fn native(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let mode = r.or::<usize>("mode", 0)?;
    let mode = MODES.get(mode).ok_or_else(|| r.bad("mode", "0, 1 or 2"))?.1;
    let table = Source::Input(r.required_input("weight")?);
    let (indices, offsets) = (r.required_input("indices")?, r.required_input("offsets")?);
    let more = match r.output_count() {
        1 => false,
        4 => true,
        found => {
            let expected = "1 or 4".into();
            return Err(r.error(BuildProblem::Outputs { expected, found }));
        }
    };
    bag(r, table, indices, Some(offsets), mode, more)
}
register_op!(native => "aten::embedding_bag", "aten::_embedding_bag", "aten::_embedding_bag_forward_only");

/// An input that may be missing or `None`.
fn optional_input(r: &mut NodeReader<'_>, key: &str) -> Result<Option<usize>, BuildError> {
    if r.has(key) {
        return match r.optional::<String>(key)? {
            None => Ok(None),
            Some(_) => Err(r.bad(key, "None, or an input")),
        };
    }
    Ok(r.input(key))
}

fn bag(
    r: &mut NodeReader<'_>,
    table: Source,
    indices: usize,
    offsets: Option<usize>,
    mode: Mode,
    more: bool,
) -> Result<Box<dyn Operator>, BuildError> {
    // These matter for training only.
    let _: (bool, bool) = (r.or("sparse", false)?, r.or("scale_grad_by_freq", false)?);
    let factors = optional_input(r, "per_sample_weights")?;
    if factors.is_some() && mode != Mode::Sum {
        return Err(r.bad("mode", "sum, where there are per_sample_weights"));
    }
    let last_offset = r.or("include_last_offset", false)?;
    let mut padding = r.optional::<i64>("padding_idx")?;
    if r.kind().starts_with("aten::_") {
        padding = padding.filter(|&row| row >= 0); // -1 stands for None there
    }
    Ok(Box::new(EmbeddingBag {
        table,
        indices,
        offsets,
        factors,
        mode,
        last_offset,
        padding,
        more,
    }))
}

/// What is known of the inputs before the run.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    dtype: DType,
    rows: usize,
    columns: usize,
    indices: usize,
    /// Indices of every bag, where they are rows of a matrix.
    each: Option<usize>,
    offsets: usize,
    bags: usize,
    padding: Option<usize>,
    /// The wider dtype of indices and offsets.
    index: DType,
}

impl EmbeddingBag {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Sizes, ShapeError> {
        let table = self.table.spec(inputs)?;
        let &[rows, columns] = table.shape.dims() else {
            let what = format!("the table must have 2 dimensions, found {table}");
            return Err(ShapeError::Invalid(what));
        };
        let indices = TensorValue::at(inputs, self.indices)?;
        check_index(self.indices, indices)?;
        let mut index = indices.dtype();
        let (each, offsets, bags) = match (indices.shape().dims(), self.offsets) {
            (&[bags, each], None) => (Some(each), bags, bags),
            (&[_], Some(at)) => {
                let offsets = TensorValue::at(inputs, at)?;
                check_index(at, offsets)?;
                if offsets.dtype() != index {
                    index = DType::I64;
                }
                let &[n] = offsets.shape().dims() else {
                    let (expected, found) = ("1".into(), offsets.shape().clone());
                    return Err(ShapeError::Rank { input: at, expected, found });
                };
                let bags = if self.last_offset { n.checked_sub(1) } else { Some(n) };
                (None, n, bags.ok_or_else(|| invalid("there is no last offset"))?)
            }
            (dims, _) => {
                return Err(invalid(format!(
                    "bags are a list of indices with offsets, or a matrix without, found shape {dims:?}"
                )));
            }
        };
        if let Some(at) = self.factors {
            let factors = TensorValue::at(inputs, at)?;
            if factors.shape() != indices.shape() || factors.dtype() != table.dtype {
                return Err(invalid(format!(
                    "per_sample_weights must be a {} for each of {}, found {}",
                    table.dtype, indices.spec, factors.spec
                )));
            }
        }
        if !table.dtype.is_float() {
            let (input, expected) = (self.indices, "a table of floats".into());
            return Err(ShapeError::DType { input, expected, found: table.dtype });
        }
        let outside = || invalid(format!("padding_idx must be one of {rows} rows"));
        let row = |row: i64| {
            let row = if row < 0 { row.checked_add(i64::try_from(rows).ok()?)? } else { row };
            usize::try_from(row).ok().filter(|&row| row < rows)
        };
        let padding = self.padding.map(|p| row(p).ok_or_else(outside)).transpose()?;
        let indices = indices.shape().checked_numel()?;
        let dtype = table.dtype;
        Ok(Sizes { dtype, rows, columns, indices, each, offsets, bags, padding, index })
    }

    /// The shapes of the native function's further results.
    fn more(&self, s: &Sizes) -> [Shape; 3] {
        let fast = self.mode == Mode::Sum && s.padding.is_none() && s.dtype != DType::F64;
        // Sums leave them empty, or zero.
        let bags = match self.mode {
            Mode::Sum if self.factors.is_none() => s.offsets,
            _ => s.bags,
        };
        let sources = match self.mode {
            Mode::Max => Shape::from([s.bags, s.columns]),
            _ => Shape::from([bags]),
        };
        [Shape::from([if fast { 0 } else { s.indices }]), Shape::from([bags]), sources]
    }
}

impl Operator for EmbeddingBag {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let s = self.bind(inputs)?;
        let shape = Shape::from([s.bags, s.columns]);
        shape.checked_numel()?;
        let mut outputs = vec![ValueSpec::tensor(s.dtype, shape)];
        if self.more {
            outputs.extend(self.more(&s).map(|shape| ValueSpec::tensor(s.index, shape)));
        }
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let sizes = self.bind(cx.inputs)?;
        if let Source::Stored(weight) = &self.table {
            weight.bytes()?; // refused here, not in the run
        }
        let table = match &self.table {
            Source::Stored(weight) => Table::Stored(cx.packs.get(
                &weight.name,
                PackKey::as_stored(weight.spec.dtype),
                || weight.tensor(),
            )?),
            &Source::Input(at) => Table::Leaf(leaf(cx.inputs, at)),
        };
        let at = |i: usize| leaf(cx.inputs, i);
        let kernel = BagKernel {
            isa: cx.isa,
            sizes,
            table,
            mode: self.mode,
            indices: at(self.indices),
            offsets: self.offsets.map(at),
            factors: self.factors.map(at),
            names: [self.indices, self.offsets.unwrap_or(self.indices)],
            more: self.more,
        };
        // First and last index of each bag.
        let scratch =
            Shape::from([sizes.bags.saturating_add(1), size_of::<u64>()]).checked_numel()?;
        for_floats!(sizes.dtype,
            T => Ok(Planned::new(Typed::<T>(kernel, PhantomData)).with_scratch(scratch)),
            _ => Err(PlanError::Unsupported(format!("bags of {}", sizes.dtype))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let moved = Cost::moved(inputs, outputs);
        let Ok(s) = self.bind(inputs) else { return moved };
        let read = (s.indices as u64).saturating_mul(s.columns as u64);
        let bytes = read.saturating_mul(s.dtype.size_of() as u64);
        Cost { flops: read, bytes, ..moved }
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

#[derive(Debug)]
enum Table {
    Stored(Arc<Tensor>),
    Leaf(usize),
}

struct BagKernel {
    isa: Isa,
    sizes: Sizes,
    table: Table,
    mode: Mode,
    /// Leaves.
    indices: usize,
    offsets: Option<usize>,
    factors: Option<usize>,
    /// Numbers of the inputs with indices and offsets, for messages.
    names: [usize; 2],
    more: bool,
}

/// Of elements of this type.
struct Typed<T>(BagKernel, PhantomData<T>);

/// Row numbers of either dtype.
#[derive(Clone, Copy)]
enum Index<'a> {
    I64(&'a [i64]),
    I32(&'a [i32]),
}

impl<'a> Index<'a> {
    fn of(inputs: &Inputs<'a>, leaf: usize) -> Result<Self, RunError> {
        Ok(match inputs.spec(leaf)?.dtype {
            DType::I32 => Self::I32(inputs.get(leaf)?),
            _ => Self::I64(inputs.get(leaf)?),
        })
    }

    fn get(self, i: usize) -> i64 {
        match self {
            Self::I64(v) => v.get(i).copied().unwrap_or(-1),
            Self::I32(v) => v.get(i).map_or(-1, |&v| i64::from(v)),
        }
    }
}

impl<T: Float> Kernel for Typed<T> {
    fn name(&self) -> &str {
        "embedding_bag"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (k, s) = (&self.0, &self.0.sizes);
        let starts = k.starts(cx)?;
        let indices = Index::of(&cx.inputs, k.indices)?;
        for i in 0..s.indices {
            let row = indices.get(i);
            if !usize::try_from(row).is_ok_and(|row| row < s.rows) {
                let what = format!("index {row} is outside 0..{}", s.rows);
                return Err(RunError::Value { input: k.names[0], what });
            }
        }
        let bags = Bags {
            s,
            mode: k.mode,
            table: match &k.table {
                Table::Stored(tensor) => tensor.as_slice::<T>()?,
                Table::Leaf(leaf) => cx.inputs.get::<T>(*leaf)?,
            },
            indices,
            factors: k.factors.map(|leaf| cx.inputs.get::<T>(leaf)).transpose()?,
        };
        let bag = |i: usize| starts.get(i..i + 2).map_or(0..0, |s| s[0] as usize..s[1] as usize);
        let values = cx.outputs.take::<T>(0)?;
        cx.par.chunks_mut(values, s.columns.max(1), |i, out| {
            k.isa.run(Fold { bags: &bags, bag: bag(i), out });
        });
        if k.more {
            match s.index {
                DType::I32 => bags.describe::<i32>(cx, bag, |n| n as i32)?,
                _ => bags.describe::<i64>(cx, bag, |n| n as i64)?,
            }
        }
        Ok(())
    }
}

impl BagKernel {
    /// The first index of each bag, and the end of the last.
    fn starts<'a>(&self, cx: &mut RunCx<'a>) -> Result<&'a [u64], RunError> {
        let s = &self.sizes;
        let starts = cx.take_scratch::<u64>()?;
        let starts = starts
            .get_mut(..=s.bags)
            .ok_or_else(|| RunError::Internal("scratch memory of embedding_bag".into()))?;
        let Some(leaf) = self.offsets else {
            let each = s.each.unwrap_or(0) as u64;
            (0..).zip(&mut *starts).for_each(|(i, start)| *start = i * each);
            return Ok(starts);
        };
        let offsets = Index::of(&cx.inputs, leaf)?;
        let wrong = |what: String| RunError::Value { input: self.names[1], what };
        let mut before = 0;
        for (i, start) in starts.iter_mut().enumerate() {
            let offset = if i < s.offsets { offsets.get(i) } else { s.indices as i64 };
            if i == 0 && offset != 0 && s.offsets > 0 {
                return Err(wrong(format!("the first offset is {offset}, it must be 0")));
            }
            if offset < before || offset > s.indices as i64 {
                return Err(wrong(format!(
                    "offset {offset} must lie between {before} and {}",
                    s.indices
                )));
            }
            (before, *start) = (offset, offset as u64);
        }
        Ok(starts)
    }
}

/// One bag. A kernel, so that the loops over its rows have the instruction set.
struct Fold<'a, T> {
    bags: &'a Bags<'a, T>,
    bag: Range<usize>,
    out: &'a mut [T],
}

impl<T: Float> Vectorized for Fold<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.bags.fold(self.bag, self.out);
    }
}

/// Everything about the bags of a run.
struct Bags<'a, T> {
    s: &'a Sizes,
    mode: Mode,
    table: &'a [T],
    indices: Index<'a>,
    factors: Option<&'a [T]>,
}

impl<T: Float> Bags<'_, T> {
    /// The rows of a bag that count, each with its place among the indices.
    fn rows(&self, bag: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        bag.map(|i| (i, self.indices.get(i) as usize))
            .filter(|&(_, row)| Some(row) != self.s.padding)
    }

    /// Elements of a strip of a row.
    fn strip(&self, row: usize, columns: &Range<usize>) -> &[T] {
        let first = row * self.s.columns;
        &self.table[first + columns.start..first + columns.end]
    }

    /// Combines the rows of a bag.
    #[inline(always)]
    fn fold(&self, bag: Range<usize>, out: &mut [T]) {
        let count = self.rows(bag.clone()).count();
        for (strip, out) in out.chunks_mut(STRIP).enumerate() {
            let columns = strip * STRIP..strip * STRIP + out.len();
            let mut sums = [<T::Real as Real>::nearest(0.0); STRIP];
            for (nth, (i, row)) in stop::paced(self.rows(bag.clone()), out.len()).enumerate() {
                let row = self.strip(row, &columns).iter().zip(&mut sums);
                match (self.mode, self.factors) {
                    (Mode::Max, _) => row.for_each(|(x, best)| {
                        if nth == 0 || x.to_real() > *best {
                            *best = x.to_real();
                        }
                    }),
                    (_, Some(factors)) => {
                        let factor = factors[i].to_real();
                        row.for_each(|(x, sum)| *sum = *sum + factor * x.to_real());
                    }
                    _ => row.for_each(|(x, sum)| *sum = *sum + x.to_real()),
                }
            }
            let divisor = match self.mode {
                Mode::Mean => <T::Real as Real>::nearest(count.max(1) as f64),
                _ => <T::Real as Real>::nearest(1.0),
            };
            for (y, sum) in out.iter_mut().zip(sums) {
                *y = T::from_real(sum / divisor);
            }
        }
    }

    /// The native function's further results.
    fn describe<I: Element + Send>(
        &self,
        cx: &mut RunCx<'_>,
        bag: impl Fn(usize) -> Range<usize>,
        index: impl Fn(usize) -> I,
    ) -> Result<(), RunError> {
        let (of_index, sizes, sources) =
            (cx.outputs.take::<I>(1)?, cx.outputs.take::<I>(2)?, cx.outputs.take::<I>(3)?);
        for i in stop::paced(0..self.s.bags, 4) {
            let range = bag(i);
            if let Some(places) = of_index.get_mut(range) {
                places.fill(index(i));
            }
        }
        let count = |i: usize| match self.mode {
            Mode::Sum => 0,
            _ => self.rows(bag(i)).count(),
        };
        let each = self.s.indices / self.s.bags.max(1);
        stop::paced(&mut *sizes, each).enumerate().for_each(|(i, n)| *n = index(count(i)));
        if self.mode != Mode::Max {
            sources.copy_from_slice(sizes);
            return Ok(());
        }
        let sources = sources.chunks_mut(self.s.columns.max(1));
        for (i, sources) in stop::paced(sources, each.saturating_mul(self.s.columns)).enumerate() {
            for (c, source) in sources.iter_mut().enumerate() {
                let value = |row: usize| self.table[row * self.s.columns + c];
                let best = self.rows(bag(i)).map(|(_, row)| row);
                let best = best.reduce(|a, b| if value(b) > value(a) { b } else { a });
                *source = index(best.unwrap_or(0));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{
        assert_close, check, check_line, error, iota, line_error, op, op_with, tensor, try_op,
        values,
    };
    use plutino_tensor::{DType, Tensor};

    const INDICES: [i64; 7] = [1, 2, 2, 5, 9, 3, 3];

    fn run(tail: &str, tensors: &[Tensor]) -> Vec<Tensor> {
        check_line(&format!("aten::embedding_bag e 9 4 0 1 2 =False {tail} 10 11 12 13"), tensors)
    }

    fn given() -> Vec<Tensor> {
        vec![iota([10, 2]), tensor([7], &INDICES), tensor([3], &[0i64, 3, 3])]
    }

    /// Values of PyTorch.
    #[test]
    fn sums_means_and_maxima() {
        let sums = run("=0 =False =None =False =None", &given());
        assert_eq!(sums[0], tensor([3, 2], &[10.0f32, 13.0, 0.0, 0.0, 40.0, 44.0]));
        assert_eq!((sums[1].numel(), sums[2].shape().dims()), (0, &[3][..]));
        let means = run("=1 =False =None =False =3", &given());
        let expected = [10.0f32 / 3.0, 13.0 / 3.0, 0.0, 0.0, 14.0, 15.0];
        assert_close(&means[0], &tensor([3, 2], &expected), 1e-6);
        assert_eq!(means[1], tensor([7], &[0i64, 0, 0, 2, 2, 2, 2]));
        assert_eq!(means[2], tensor([3], &[3i64, 0, 2]));
        assert_eq!(means[2], means[3]);
        let maxima = run("=2 =False =None =False =-1", &given());
        assert_eq!(maxima[0], tensor([3, 2], &[4.0f32, 5.0, 0.0, 0.0, 10.0, 11.0]));
        assert_eq!(maxima[3], tensor([3, 2], &[2i64, 2, 0, 0, 5, 5]));
    }

    #[test]
    fn factors_and_a_last_offset() {
        let mut tensors = given();
        tensors[2] = tensor([3], &[0i32, 3, 5]);
        tensors.push(tensor([7], &[1.0f32, 2.0, -1.0, 0.5, 1.0, 7.0, 7.0]));
        let line = "aten::embedding_bag e 9 4 0 1 2 =False =0 =False 3 =True =None 10 11 12 13";
        let sums = check_line(line, &tensors);
        assert_eq!(sums[0], tensor([2, 2], &[6.0f32, 8.0, 23.0, 24.5]));
        assert_eq!(sums[3].dtype(), DType::I64);
    }

    #[test]
    fn functions_and_modules() {
        let table = iota([4, 3]);
        let matrix = tensor([2, 2], &[3i32, 0, 1, 1]);
        let line = "embedding_dim=3 num_embeddings=4 mode=sum include_last_offset=False";
        let module =
            op_with(&format!("nn.EmbeddingBag e 1 1 0 1 {line}"), &[("weight", table.clone())]);
        let y = check(&*module, std::slice::from_ref(&matrix));
        assert_eq!(values::<f32>(&y[0]), [9.0, 11.0, 13.0, 6.0, 8.0, 10.0]);
        let function = op("F.embedding_bag e 2 1 0 1 2 mode=mean $input=0 $weight=1");
        for dtype in [DType::F32, DType::F64, DType::F16] {
            let y = check(&*function, &[matrix.clone(), table.cast(dtype).unwrap()]);
            let y = y[0].cast(DType::F32).unwrap();
            assert_eq!(values::<f32>(&y), [4.5, 5.5, 6.5, 3.0, 4.0, 5.0]);
        }
        let offsets = op("F.embedding_bag e 3 1 0 1 2 3 mode=max $input=0 $weight=1 $offsets=2");
        let list = tensor([2], &[3i64, 0]);
        let y = check(&*offsets, &[list, table, tensor([1], &[0i64])]);
        assert_eq!(values::<f32>(&y[0]), [9.0, 10.0, 11.0]);
        assert!(
            try_op("F.embedding_bag e 2 1 0 1 2 max_norm=1.0 $input=0 $weight=1", &[]).is_err()
        );
    }

    #[test]
    fn what_does_not_fit() {
        let line = "aten::embedding_bag e 8 4 0 1 2 =False =0 =False =None =False 10 11 12 13";
        let with = |at: usize, t: Tensor| {
            let mut tensors = given();
            tensors[at] = t;
            line_error(line, &tensors)
        };
        for bad in [-1, 10] {
            let mut indices = INDICES;
            indices[3] = bad;
            assert!(with(1, tensor([7], &indices)).to_string().contains("outside 0..10"));
        }
        for offsets in [[0i64, 5, 3], [1, 2, 3], [0, 2, 8]] {
            assert!(with(2, tensor([3], &offsets)).to_string().contains("offset"), "{offsets:?}");
        }
        with(0, tensor([2, 2], &[1i64; 4]));
        with(1, tensor([2, 2], &[1i64; 4]));
        with(2, tensor([1, 1], &[0i64]));
        let function = op("F.embedding_bag e 2 1 0 1 2 mode=mean $input=0 $weight=1");
        error(&*function, &[tensor([2], &[0i64; 2]), iota([3, 2])]);
        let padded = op("F.embedding_bag e 2 1 0 1 2 padding_idx=3 $input=0 $weight=1");
        error(&*padded, &[tensor([2, 1], &[0i64; 2]), iota([3, 2])]);
        assert!(
            try_op(
                "F.embedding_bag e 3 1 0 1 2 3 mode=max $input=0 $weight=1 $per_sample_weights=2",
                &[]
            )
            .is_err()
        );
    }
}

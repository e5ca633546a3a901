//! Where numbers belong in sorted ones: `searchsorted`, `bucketize`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.searchsorted.html>: one sorted row for all
//! numbers, or one for each row of them; the place before equal elements, or after them (`right`).
//! <https://pytorch.org/docs/stable/generated/torch.bucketize.html> is the same with one row. A NaN
//! belongs at the end.

use crate::indexing::gather::check_index;
use crate::reduce::planned;
use crate::support::assemble::leaf;
use crate::support::names::optional_tensor;
use crate::support::promotion::promote;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, BuildProblem, Cost, Inputs, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, function, register_op,
};
use plutino_kernels::elementwise::Scalar;
use plutino_kernels::for_ordered;
use plutino_kernels::number::Ordered;
use plutino_kernels::sort::sort;
use plutino_tensor::{DType, Shape, Tensor, alloc};

/// Numbers to be searched for below which a task is not worth a thread.
const GRAIN: usize = 1 << 10;

#[derive(Debug)]
struct Search {
    sorted: usize,
    wanted: Arg<Scalar>,
    /// The order in which the sorted rows are sorted, where they are not as they stand.
    sorter: Option<usize>,
    right: bool,
    /// i32 or i64.
    dtype: DType,
}

/// `out_int32`, and whether the place is after equal elements.
fn options(r: &mut NodeReader<'_>) -> Result<(DType, bool), BuildError> {
    let dtype = if r.or("out_int32", false)? { DType::I32 } else { DType::I64 };
    let right = r.or("right", false)?;
    match r.one_of("side", &[("left", false), ("right", true)], Some(right))? {
        false if right => Err(r.bad("side", "right, where 'right' is True")),
        right => Ok((dtype, right)),
    }
}

/// An argument that is a parameter, the input of that name, or the next unnamed input.
fn wanted(r: &mut NodeReader<'_>, keys: [&str; 2]) -> Result<Arg<Scalar>, BuildError> {
    for key in keys {
        if let Some(wanted) = r.arg(key)? {
            return Ok(wanted);
        }
    }
    r.required_input(keys[0]).map(Arg::Input)
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (dtype, right) = options(r)?;
    if function(r.kind()) == "bucketize" {
        let wanted = wanted(r, ["input", "self"])?;
        let sorted = r.required_input("boundaries")?;
        return Ok(Box::new(Search { sorted, wanted, sorter: None, right, dtype }));
    }
    let sorter = optional_tensor(r, "sorter")?;
    let sorted = match r.named_input("sorted_sequence") {
        Some(sorted) => sorted,
        None => r.required_input("sorted_sequence")?,
    };
    let wanted = wanted(r, ["input", "self"])?;
    Ok(Box::new(Search { sorted, wanted, sorter, right, dtype }))
}
register_op!(build => "torch.searchsorted", "torch.bucketize");

/// What a search comes to for given inputs.
struct Bound {
    /// The dtype in which numbers are compared.
    dtype: DType,
    shape: Shape,
    /// Elements of a sorted row, and numbers to be searched for in each.
    row: usize,
    each: usize,
}

impl Search {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Bound, ShapeError> {
        let sorted = TensorValue::real_at(inputs, self.sorted)?;
        let of = sorted.shape();
        let (wanted, shape, number) = match &self.wanted {
            Arg::Value(number) => {
                (crate::elementwise::number_dtype(*number), Shape::scalar(), true)
            }
            &Arg::Input(at) => {
                let wanted = TensorValue::real_at(inputs, at)?;
                (wanted.dtype(), wanted.shape().clone(), wanted.python)
            }
        };
        if let Some(sorter) = self.sorter {
            let order = TensorValue::at(inputs, sorter)?;
            check_index(sorter, order)?;
            if order.shape() != of {
                return Err(invalid(format!("the sorter is {}, not {of}", order.shape())));
            }
        }
        let Some((&row, rows)) = of.split_last() else {
            let (expected, found) = ("at least 1".into(), of.clone());
            return Err(ShapeError::Rank { input: self.sorted, expected, found });
        };
        let each = match (rows, shape.split_last()) {
            ([], _) => shape.numel(),
            (rows, Some((&each, own))) if rows == own => each,
            _ => {
                return Err(invalid(format!(
                    "the sorted rows are {of}, what is searched for is {shape}: all dimensions but the last must agree"
                )));
            }
        };
        // A number takes the dtype of the rows where it can.
        let dtype = match number {
            true if sorted.dtype().is_float() || !wanted.is_float() => sorted.dtype(),
            true => DType::F32,
            false => promote(sorted.dtype(), wanted),
        };
        Ok(Bound { dtype, shape, row, each })
    }
}

/// The number of elements of a sorted row that stand before a place for `x`.
fn place<T: Ordered>(row: impl Fn(usize) -> T, len: usize, x: T, right: bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        let y = row(middle);
        #[expect(
            clippy::neg_cmp_op_on_partial_ord,
            reason = "as PyTorch: a NaN stands after every number"
        )]
        let before = if right { !(y > x) } else { !(y >= x) };
        if before {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// An input as a tensor of this dtype.
fn cast(inputs: &Inputs<'_>, at: usize, dtype: DType) -> Result<Tensor, RunError> {
    Ok(inputs.view(at)?.cast(dtype)?)
}

/// Positions as i64, each within its row.
fn order(inputs: &Inputs<'_>, at: usize, row: usize) -> Result<Vec<i64>, RunError> {
    let order = cast(inputs, at, DType::I64)?;
    let order = alloc::collect(order.as_slice::<i64>()?.iter().copied())?;
    match order.iter().find(|&&i| usize::try_from(i).map_or(true, |i| i >= row)) {
        None => Ok(order),
        Some(i) => {
            Err(RunError::Value { input: at, what: format!("position {i} is outside 0..{row}") })
        }
    }
}

impl Operator for Search {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![ValueSpec::tensor(self.dtype, self.bind(inputs)?.shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let Bound { dtype, row, each, .. } = self.bind(cx.inputs)?;
        let sorted = leaf(cx.inputs, self.sorted);
        let wanted = match self.wanted {
            Arg::Value(number) => Arg::Value(number),
            Arg::Input(at) => Arg::Input(leaf(cx.inputs, at)),
        };
        let (sorter, right, result) =
            (self.sorter.map(|at| leaf(cx.inputs, at)), self.right, self.dtype);
        let run = move |cx: &mut RunCx<'_>| {
            let rows = cast(&cx.inputs, sorted, dtype)?;
            let wanted = match &wanted {
                Arg::Input(at) => cast(&cx.inputs, *at, dtype)?,
                Arg::Value(number) => crate::elementwise::number_tensor(*number, dtype)?,
            };
            let order = sorter.map(|at| order(&cx.inputs, at, row)).transpose()?;
            for_ordered!(dtype,
                T => {
                    let (rows, wanted) = (rows.as_slice::<T>()?, wanted.as_slice::<T>()?);
                    let find = |k: usize| {
                        let start = if rows.len() == row { 0 } else { k / each.max(1) * row };
                        let at = |i: usize| match &order {
                            None => rows[start + i],
                            Some(order) => rows[start + order[start + i] as usize],
                        };
                        place(at, row, wanted[k], right)
                    };
                    macro_rules! write {
                        ($I:ty) => {
                            cx.par.chunks_mut(cx.outputs.take::<$I>(0)?, GRAIN, |chunk, out| {
                                for (i, out) in out.iter_mut().enumerate() {
                                    *out = find(chunk * GRAIN + i) as $I;
                                }
                            })
                        };
                    }
                    match result {
                        DType::I32 => write!(i32),
                        _ => write!(i64),
                    }
                    Ok(())
                },
                _ => Err(RunError::Internal("complex numbers have no order".into())),
            )
        };
        Ok(planned("search.sorted", run))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let row = TensorValue::at(inputs, self.sorted).map_or(0, |x| x.shape().numel());
        Cost::elementwise(inputs, outputs, u64::from(row.checked_ilog2().unwrap_or(0)) + 1)
    }

    /// Positions of the order are looked at first.
    fn refuses_data(&self) -> bool {
        self.sorter.is_some()
    }
}

/// Whether elements are among others.
#[derive(Debug)]
struct IsIn {
    elements: Arg<Scalar>,
    among: Arg<Scalar>,
    invert: bool,
}

/// <https://pytorch.org/docs/stable/generated/torch.isin.html>: a NaN is among nothing.
fn isin(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let invert = r.or("invert", false)?;
    let _: bool = r.or("assume_unique", false)?; // only makes PyTorch faster
    let elements = wanted(r, ["elements", "element"])?;
    let among = wanted(r, ["test_elements", "test_element"])?;
    if matches!((&elements, &among), (Arg::Value(_), Arg::Value(_))) {
        return Err(r.error(BuildProblem::MissingInput { key: "elements".into() }));
    }
    Ok(Box::new(IsIn { elements, among, invert }))
}
register_op!(isin => "torch.isin");

impl IsIn {
    /// The dtype in which elements are compared, and the shape of the result.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape), ShapeError> {
        let of = |arg: &Arg<Scalar>| -> Result<_, ShapeError> {
            match arg {
                Arg::Value(number) => {
                    Ok((crate::elementwise::number_dtype(*number), true, Shape::scalar()))
                }
                &Arg::Input(at) => {
                    let x = TensorValue::real_at(inputs, at)?;
                    Ok((x.dtype(), x.python, x.shape().clone()))
                }
            }
        };
        let ((a, a_number, shape), (b, b_number, _)) = (of(&self.elements)?, of(&self.among)?);
        let dtype = match (a_number, b_number) {
            (true, false) if b.is_float() || !a.is_float() => b,
            (false, true) if a.is_float() || !b.is_float() => a,
            (false, false) => promote(a, b),
            _ => DType::F32,
        };
        Ok((dtype, shape))
    }
}

impl Operator for IsIn {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![ValueSpec::tensor(DType::Bool, self.bind(inputs)?.1)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _) = self.bind(cx.inputs)?;
        let at = |arg: &Arg<Scalar>| match *arg {
            Arg::Value(number) => Arg::Value(number),
            Arg::Input(at) => Arg::Input(leaf(cx.inputs, at)),
        };
        let (elements, among, invert) = (at(&self.elements), at(&self.among), self.invert);
        let run = move |cx: &mut RunCx<'_>| {
            let read = |arg: &Arg<Scalar>| match arg {
                Arg::Input(at) => cast(&cx.inputs, *at, dtype),
                Arg::Value(number) => Ok(crate::elementwise::number_tensor(*number, dtype)?),
            };
            let (elements, among) = (read(&elements)?, read(&among)?);
            for_ordered!(dtype,
                T => {
                    let (x, among) = (elements.as_slice::<T>()?, among.as_slice::<T>()?);
                    let mut sorted = alloc::collect(among.iter().map(|y| y.rank()))?;
                    sort(&mut sorted, Ord::cmp);
                    cx.par.chunks_mut(cx.outputs.take::<bool>(0)?, GRAIN, |chunk, out| {
                        for (out, &x) in out.iter_mut().zip(&x[chunk * GRAIN..]) {
                            let found = !x.is_nan() && sorted.binary_search(&x.rank()).is_ok();
                            *out = found != invert;
                        }
                    });
                    Ok(())
                },
                _ => Err(RunError::Internal("complex numbers have no order".into())),
            )
        };
        Ok(planned("search.isin", run))
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{error, iota, op, run, tensor, try_op};
    use num_complex::Complex;
    use plutino_tensor::DType;

    #[test]
    fn before_equal_elements_or_after_them() {
        let sorted = tensor([4], &[1.0f32, 2.0, 2.0, 5.0]);
        let x = tensor([2, 3], &[0.0f32, 2.0, 3.0, 5.0, 9.0, f32::NAN]);
        let both = [sorted.clone(), x.clone()];
        let y = run("torch.searchsorted s 2 1 0 1 2 $sorted_sequence=0 $input=1", &both);
        assert_eq!(y, tensor([2, 3], &[0i64, 1, 3, 3, 4, 4]));
        let y = run("torch.searchsorted s 2 1 0 1 2 right=True out_int32=True", &both);
        assert_eq!(y, tensor([2, 3], &[0i32, 3, 3, 4, 4, 4]));
        assert_eq!(run("torch.searchsorted s 2 1 0 1 2 side=right out_int32=True", &both), y);
        let y = run("torch.bucketize s 2 1 0 1 2 $input=0 $boundaries=1", &[x, sorted.clone()]);
        assert_eq!(y, tensor([2, 3], &[0i64, 1, 3, 3, 4, 4]));
        let y = run(
            "torch.searchsorted s 1 1 0 1 $sorted_sequence=0 input=2.5",
            std::slice::from_ref(&sorted),
        );
        assert_eq!(y, tensor([], &[3i64]));
        let y = run("torch.bucketize s 1 1 0 1 $boundaries=0 input=2", &[sorted]);
        assert_eq!(y, tensor([], &[1i64]));
        assert!(try_op("torch.searchsorted s 2 1 0 1 2 side=left right=True", &[]).is_err());
    }

    /// What PyTorch gives, also where NaN stands among the boundaries, or they are not sorted: the
    /// same steps of a binary search.
    #[test]
    fn infinities_zeros_and_nan() {
        const INF: f32 = f32::INFINITY;
        const NAN: f32 = f32::NAN;
        let x = [-INF, -1.0, -0.0, 0.0, 1.0, 2.0, INF, NAN];
        let rows: [(&[f32], [i64; 8], [i64; 8]); 7] = [
            (&[-INF, -1.0, 0.0, 1.0, INF], [0, 1, 2, 2, 3, 4, 4, 5], [1, 2, 3, 3, 4, 4, 5, 5]),
            (&[-INF, 0.0, INF, NAN], [0, 1, 1, 1, 2, 2, 2, 4], [1, 1, 2, 2, 2, 2, 4, 4]),
            (&[0.0, 1.0, 2.0, NAN, NAN], [0, 0, 0, 0, 1, 2, 5, 5], [0, 0, 1, 1, 2, 5, 5, 5]),
            (&[NAN, NAN], [2; 8], [2; 8]),
            (&[-1.0, -0.0, 0.0, 1.0], [0, 0, 1, 1, 3, 4, 4, 4], [0, 1, 3, 3, 4, 4, 4, 4]),
            (&[NAN, 0.0, 1.0, 2.0], [1, 1, 1, 1, 2, 3, 4, 4], [1, 1, 2, 2, 3, 4, 4, 4]),
            (&[0.0, NAN, 1.0, NAN, 2.0], [2, 2, 2, 2, 2, 4, 5, 5], [2, 2, 2, 2, 4, 5, 5, 5]),
        ];
        for (sorted, left, right) in rows {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
                let of = |x: &[f32]| tensor([x.len()], x).cast(dtype).unwrap();
                let (sorted, x) = (of(sorted), of(&x));
                for (side, expected) in [("False", left), ("True", right)] {
                    let expected = tensor([8], &expected);
                    let line = format!("torch.searchsorted s 2 1 0 1 2 right={side}");
                    assert_eq!(run(&line, &[sorted.clone(), x.clone()]), expected);
                    let line = format!("torch.bucketize s 2 1 0 1 2 right={side}");
                    assert_eq!(run(&line, &[x.clone(), sorted.clone()]), expected);
                }
            }
        }
    }

    #[test]
    fn rows_dtypes_and_sorters() {
        let rows = tensor([2, 3], &[1i64, 3, 5, 2, 4, 6]);
        let x = tensor([2, 2], &[3i64, 6, 3, 6]);
        let y = run("torch.searchsorted s 2 1 0 1 2", &[rows.clone(), x.clone()]);
        assert_eq!(y, tensor([2, 2], &[1i64, 3, 1, 2]));
        let half = tensor([2, 1], &[2.5f32, 2.5]);
        let y = run("torch.searchsorted s 2 1 0 1 2", &[rows.clone(), half]);
        assert_eq!(y, tensor([2, 1], &[1i64, 1]));
        let line = "torch.searchsorted s 3 1 0 1 2 3 $sorted_sequence=0 $input=1 $sorter=2";
        let unsorted = tensor([3], &[5.0f32, 1.0, 3.0]);
        let sorter = tensor([3], &[1i64, 2, 0]);
        let y = run(line, &[unsorted.clone(), tensor([1], &[4.0f32]), sorter]);
        assert_eq!(y, tensor([1], &[2i64]));
        let outside = tensor([3], &[1i64, 2, 3]);
        error(&*op(line), &[unsorted, tensor([1], &[4.0f32]), outside]);
        error(&*op("torch.searchsorted s 2 1 0 1 2"), &[rows, tensor([3, 2], &[0i64; 6])]);
        error(&*op("torch.searchsorted s 2 1 0 1 2"), &[iota([]), iota([1])]);
        let none = run("torch.searchsorted s 2 1 0 1 2", &[iota([0]), iota([2])]);
        assert_eq!(none, tensor([2], &[0i64, 0]));
        let z = tensor([1], &[Complex::new(0.0f32, 0.0)]);
        error(&*op("torch.bucketize s 2 1 0 1 2"), &[z, iota([1])]);
    }

    #[test]
    fn elements_among_others() {
        let x = tensor([2, 2], &[1.0f32, 2.0, f32::NAN, 4.0]);
        let among = tensor([3], &[4.0f32, f32::NAN, 1.0]);
        let both = [x.clone(), among];
        let y = run("torch.isin i 2 1 0 1 2 $elements=0 $test_elements=1", &both);
        assert_eq!(y, tensor([2, 2], &[true, false, false, true]));
        let y = run("torch.isin i 2 1 0 1 2 invert=True assume_unique=True", &both);
        assert_eq!(y, tensor([2, 2], &[false, true, true, false]));
        let y = run("torch.isin i 1 1 0 1 $elements=0 test_elements=2", &[x]);
        assert_eq!(y, tensor([2, 2], &[false, true, false, false]));
        let y = run("torch.isin i 2 1 0 1 2", &[tensor([2], &[1i64, 2]), tensor([1], &[2i32])]);
        assert_eq!(y, tensor([2], &[false, true]));
        assert_eq!(run("torch.isin i 2 1 0 1 2", &[iota([1]), iota([0])]), tensor([1], &[false]));
    }
}

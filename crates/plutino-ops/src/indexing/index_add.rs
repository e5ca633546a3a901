//! Slices of a tensor that an index names, along one dimension: sums with them, and new values for
//! them.
//!
//! <https://pytorch.org/docs/stable/generated/torch.Tensor.index_add_.html>,
//! <https://pytorch.org/docs/stable/generated/torch.Tensor.index_copy_.html>,
//! <https://pytorch.org/docs/stable/generated/torch.Tensor.index_fill_.html>. Where a slice is
//! named more than once, sums have all of it, and the last value stays.

use crate::creation::create::Source;
use crate::elementwise::operand;
use crate::indexing::gather::{check_index, value_error};
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::index::{Places, Reduce, place, resolve, within};
use plutino_kernels::elementwise::Scalar;
use plutino_kernels::for_numbers;
use plutino_kernels::number::{Number, Wide};
use plutino_kernels::sort::sort;
use plutino_tensor::{DType, Shape, alloc};

#[derive(Debug)]
struct IndexAdd {
    input: usize,
    dim: i64,
    index: usize,
    source: Arg<Scalar>,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The source, this many times, is added.
    Add(Arg<Scalar>),
    Copy,
    /// The source is one value, and indices count from both ends.
    Fill,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = r.kind().trim_start_matches("torch.");
    let source = if name == "index_fill" { "value" } else { "source" };
    let dim = r.required("dim")?;
    let what = match name {
        "index_add" => What::Add(r.arg("alpha")?.unwrap_or(Arg::Value(Scalar::Int(1)))),
        "index_copy" => What::Copy,
        _ => What::Fill,
    };
    let (input, index) = (r.required_input("input")?, r.required_input("index")?);
    let source = match what {
        What::Fill => operand(r, source)?,
        _ => Arg::Input(r.required_input(source)?),
    };
    Ok(Box::new(IndexAdd { input, dim, index, source, what }))
}
register_op!(build => "torch.index_add", "torch.index_copy", "torch.index_fill");

/// How the slices lie in the tensor.
#[derive(Debug, Clone, Copy)]
struct Slices {
    outer: usize,
    size: usize,
    inner: usize,
}

impl IndexAdd {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(Slices, Source), ShapeError> {
        let (x, index) =
            (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.index)?);
        check_index(self.index, index)?;
        if index.shape().rank() > 1 {
            let (input, found) = (self.index, index.shape().clone());
            return Err(ShapeError::Rank { input, expected: "at most 1".into(), found });
        }
        let dim = x.shape().dim(self.dim)?;
        let mut expected = x.shape().clone();
        match (expected.get_mut(dim), &self.what) {
            (_, What::Fill) => expected = Shape::scalar(),
            (Some(size), _) => *size = index.shape().numel(),
            (None, _) => {}
        }
        if let Arg::Input(at) = self.source {
            let found = TensorValue::at(inputs, at)?.shape();
            // One slice may lack the dimension that the index counts along.
            let slice = x.shape().rank() == 1 && expected.numel() == 1 && found.rank() == 0;
            if *found != expected && !slice {
                return Err(invalid(format!(
                    "input {at} must have shape {expected}, found {found}"
                )));
            }
        }
        if x.shape().rank() == 0 && index.shape().numel() != 1 && !matches!(self.what, What::Fill) {
            return Err(invalid("a tensor without dimensions has one slice"));
        }
        let outer = x.shape().product(0..dim);
        let inner =
            x.shape().product(dim.saturating_add(1).min(x.shape().rank())..x.shape().rank());
        let slices = Slices { outer, size: x.shape().get(dim).copied().unwrap_or(1), inner };
        Ok((slices, Source::of(&self.source, x.dtype(), inputs)?))
    }

    /// The factor of what is added, where it is not 1.
    fn factor(&self, inputs: &[ValueSpec]) -> Result<Option<Source>, ShapeError> {
        let What::Add(alpha) = &self.what else { return Ok(None) };
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        let float = match alpha {
            Arg::Value(Scalar::Int(1)) => return Ok(None),
            Arg::Value(x) => matches!(x, Scalar::Float(_) | Scalar::Complex(_)),
            Arg::Input(at) => TensorValue::at(inputs, *at)?.dtype().is_float(),
        };
        if float && (dtype.is_integer() || dtype == DType::Bool) {
            return Err(invalid(format!("alpha must be an integer for tensors of {dtype}")));
        }
        Source::of(alpha, dtype, inputs).map(Some)
    }
}

impl Operator for IndexAdd {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.bind(inputs)?;
        self.factor(inputs)?;
        let x = TensorValue::at(inputs, self.input)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (slices, source) = self.bind(cx.inputs)?;
        let [x, index] = [self.input, self.index].map(|i| leaf(cx.inputs, i));
        let reduce = if matches!(self.what, What::Add(_)) { Reduce::Add } else { Reduce::Replace };
        let fill = matches!(self.what, What::Fill);
        let factor = self.factor(cx.inputs)?;
        let kernel = IndexAddKernel { x, index, source, factor, slices, reduce, fill };
        Ok(Planned::new(kernel).in_place(x))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

struct IndexAddKernel {
    x: usize,
    index: usize,
    source: Source,
    factor: Option<Source>,
    slices: Slices,
    reduce: Reduce,
    fill: bool,
}

impl Kernel for IndexAddKernel {
    fn name(&self) -> &str {
        "index.place"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let Slices { outer, size, inner } = self.slices;
        let index = cx.inputs.view(self.index)?.cast(DType::I64)?;
        let find = |&i: &i64| if self.fill { resolve(i, size) } else { within(i, size) };
        let find = |i| find(i).map_err(|e| value_error(self.index, e));
        let mut at = alloc::try_collect(index.as_slice::<i64>()?.iter().map(find))?;
        if self.fill {
            // Once is enough, and no more values than the tensor has.
            sort(&mut at, Ord::cmp);
            at.dedup();
        }
        // Where nothing is written, the outer dimensions may be of any size.
        let outer = if inner == 0 || at.is_empty() { 0 } else { outer };
        let outer = alloc::collect((0..outer).map(|o| o * size))?;
        let places = Places { outer: &outer, at: &at, inner: &[0], block: inner };
        for_numbers!(cx.inputs.spec(self.x)?.dtype, T => {
            let dst = cx.inout::<T>(self.x, 0)?.into_same();
            let src = self.source.read::<T>(&cx.inputs)?;
            let factor = match &self.factor {
                Some(factor) => factor.read::<T>(&cx.inputs)?.first().copied(),
                None => None,
            };
            let made: Vec<T> = match (factor, src.first()) {
                (Some(a), _) => {
                    alloc::collect(src.iter().map(|x| T::narrow(x.widen().times(a.widen()))))?
                }
                (None, Some(&value)) if self.fill => {
                    alloc::filled(outer.len() * at.len() * inner, value)?
                }
                _ => Vec::new(),
            };
            let src = if self.fill || factor.is_some() { &made[..] } else { &src[..] };
            place(src, dst, places, self.reduce).map_err(|e| value_error(self.index, e))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, iota, line_error, op, tensor, values};
    use plutino_kernels::number::f16;
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn slices_are_added() {
        let x = iota([2, 3]);
        let (index, source) =
            (tensor([3], &[2i64, 0, 2]), tensor([2, 3], &[1.0f32, 2., 4., 8., 16., 32.]));
        let all = [x.clone(), index.clone(), source.clone()];
        let y = check_line("aten::index_add i 5 1 0 =1 2 3 =1 4", &all);
        assert_eq!(values::<f32>(&y[0]), [2., 1., 7., 19., 4., 45.]);
        let y = check(
            &*op("torch.index_add i 3 1 0 1 2 3 dim=-1 alpha=-0.5 $input=0 $index=1 $source=2"),
            &all,
        );
        assert_eq!(values::<f32>(&y[0]), [-1., 1., -0.5, -5., 4., -15.]);
        let rows = [x.clone(), tensor([1], &[1i32]), tensor([1, 3], &[1.0f32; 3])];
        let y = check_line("aten::index_add i 5 1 0 =0 2 3 =1 4", &rows);
        assert_eq!(values::<f32>(&y[0]), [0., 1., 2., 4., 5., 6.]);
        for wrong in [[3i64, 0, 0], [-1, 0, 0]] {
            line_error(
                "aten::index_add i 5 1 0 =1 2 3 =1 4",
                &[x.clone(), tensor([3], &wrong), source.clone()],
            );
        }
        line_error("aten::index_add i 5 1 0 =0 2 3 =1 4", &all); // the source has three rows
        let wide = source.view().cast(DType::F64).unwrap();
        line_error("aten::index_add i 5 1 0 =1 2 3 =1 4", &[x, index, wide]);
    }

    #[test]
    fn slices_are_replaced() {
        let (x, index) = (iota([2, 3]), tensor([2], &[2i64, 0]));
        let all = [x.clone(), index.clone(), tensor([2, 2], &[-1.0f32, -2., -3., -4.])];
        let y = check_line("aten::index_copy i 4 1 0 =1 2 3 4", &all);
        assert_eq!(values::<f32>(&y[0]), [-2., 1., -1., -4., 4., -3.]);
        let two = [x.clone(), index];
        let y = check_line("aten::index_fill i 4 1 0 =1 2 =7 4", &two);
        assert_eq!(values::<f32>(&y[0]), [7., 1., 7., 7., 4., 7.]);
        let last = [x.clone(), tensor([], &[-1i64])];
        let y =
            check(&*op("torch.index_fill i 2 1 0 1 2 dim=0 value=0.5 $input=0 $index=1"), &last);
        assert_eq!(values::<f32>(&y[0]), [0., 1., 2., 0.5, 0.5, 0.5]);
        let y = check(
            &*op("torch.index_fill i 3 1 0 1 2 3 dim=0 $input=0 $index=1 $value=2"),
            &[x, tensor([1], &[0i64]), tensor([], &[9.0f32])],
        );
        assert_eq!(values::<f32>(&y[0]), [9., 9., 9., 3., 4., 5.]);
    }

    #[test]
    fn other_dtypes_scalars_and_nothing() {
        let whole = [tensor([2], &[1i64, 2]), tensor([2], &[1i64, 1]), tensor([2], &[10i64, 20])];
        let y = check_line("aten::index_add i 5 1 0 =0 2 3 =2 4", &whole);
        assert_eq!(y[0], tensor([2], &[1i64, 62]));
        line_error("aten::index_add i 5 1 0 =0 2 3 =0.5 4", &whole);
        let half = |v: &[f32]| v.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>();
        let halves = [tensor([1], &half(&[1.0])), tensor([1], &[0i64]), tensor([1], &half(&[0.5]))];
        let y = check_line("aten::index_add i 5 1 0 =0 2 3 =3 4", &halves);
        assert_eq!(y[0], tensor([1], &half(&[2.5])));
        let scalar = [tensor([], &[1.0f32]), tensor([1], &[0i64]), tensor([], &[2.0f32])];
        assert_eq!(
            check_line("aten::index_add i 5 1 0 =0 2 3 =1 4", &scalar)[0],
            tensor([], &[3.0f32])
        );
        let many = [iota([2]), tensor([3], &[1i64, -1, 1])];
        assert_eq!(
            check_line("aten::index_fill i 4 1 0 =0 2 =5 4", &many)[0],
            tensor([2], &[0.0f32, 5.])
        );
        let wide = [iota([1 << 50, 2, 0]), tensor([1], &[1i64]), iota([1 << 50, 1, 0])];
        assert_eq!(check_line("aten::index_add i 5 1 0 =1 2 3 =1 4", &wide)[0], wide[0]);
        let none = [iota([2, 0]), tensor([1], &[1i64]), iota([1, 0])];
        assert_eq!(check_line("aten::index_add i 5 1 0 =0 2 3 =1 4", &none)[0], iota([2, 0]));
        let index = Tensor::zeros(DType::I64, [0]).unwrap();
        let y = check_line("aten::index_copy i 4 1 0 =0 2 3 4", &[iota([2]), index, iota([0])]);
        assert_eq!(y[0], iota([2]));
        error(&*op("torch.index_copy i 3 1 0 1 2 3 dim=0"), &[iota([2]), iota([1]), iota([1])]);
    }
}

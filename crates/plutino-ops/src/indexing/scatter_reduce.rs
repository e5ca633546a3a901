//! Elements combined where an index sends them: `torch.scatter_reduce`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.Tensor.scatter_reduce_.html>. Without
//! `include_self`, an element that something is sent to does not count itself; one that nothing is
//! sent to stays as it is.

use crate::creation::create::Source;
use crate::indexing::gather::{Fit, Scatter, value_error, with_index};
use crate::support::assemble::leaf;
use crate::{
    Arg, BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::index::{Reduce, scatter_with};
use plutino_kernels::for_ordered;
use plutino_kernels::number::{Ordered, Wide, WideReal};
use plutino_tensor::{DType, Strides, alloc};

#[derive(Debug)]
struct ScatterReduce {
    scatter: Scatter,
    combine: Combine,
    include_self: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combine {
    Sum,
    Product,
    Mean,
    Greatest,
    Least,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let table = [
        ("sum", Combine::Sum),
        ("prod", Combine::Product),
        ("mean", Combine::Mean),
        ("amax", Combine::Greatest),
        ("amin", Combine::Least),
    ];
    let combine = r.one_of("reduce", &table, None)?;
    let (dim, include_self) = (r.required("dim")?, r.or("include_self", true)?);
    let (input, index) = (r.required_input("input")?, r.required_input("index")?);
    let src = Arg::Input(r.required_input("src")?);
    let scatter = Scatter { input, index, src, dim, reduce: Reduce::Replace };
    Ok(Box::new(ScatterReduce { scatter, combine, include_self }))
}
register_op!(build => "torch.scatter_reduce", "Tensor.scatter_reduce");

impl Operator for ScatterReduce {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        TensorValue::real_at(inputs, self.scatter.input)?;
        self.scatter.infer(inputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (fit, src, src_strides) = self.scatter.fit(cx.inputs)?;
        let [x, index] = [self.scatter.input, self.scatter.index].map(|i| leaf(cx.inputs, i));
        let (combine, include_self) = (self.combine, self.include_self);
        let dtype = TensorValue::at(cx.inputs, self.scatter.input)?.dtype();
        let kernel = Scattered { dtype, x, index, src, src_strides, fit, combine, include_self };
        Ok(Planned::new(kernel).in_place(x))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

struct Scattered {
    dtype: DType,
    /// Leaves of the tensor and of the index.
    x: usize,
    index: usize,
    src: Source,
    src_strides: Strides,
    fit: Fit,
    combine: Combine,
    include_self: bool,
}

impl Combine {
    /// What counts for nothing.
    fn identity<T: Ordered>(self) -> T {
        match self {
            Self::Sum | Self::Mean => T::narrow(T::Wide::ZERO),
            Self::Product => T::narrow(T::Wide::ONE),
            Self::Greatest => T::LOWEST,
            Self::Least => T::HIGHEST,
        }
    }

    fn of<T: Ordered>(self, there: T, new: T) -> T {
        match self {
            Self::Sum | Self::Mean => T::narrow(there.widen().plus(new.widen())),
            Self::Product => T::narrow(there.widen().times(new.widen())),
            Self::Greatest if new.beats_as_max(there) => new,
            Self::Least if new.beats_as_min(there) => new,
            Self::Greatest | Self::Least => there,
        }
    }
}

/// sum / n; integers are rounded down.
fn quotient<T: Ordered>(sum: T, n: i64) -> T {
    let sum = sum.widen();
    let quotient = sum.over(n);
    let whole = !T::DTYPE.is_float();
    let above = whole && quotient.times(T::Wide::from_f64(n as f64)) > sum;
    T::narrow(if above { quotient.minus(T::Wide::ONE) } else { quotient })
}

impl Kernel for Scattered {
    fn name(&self) -> &str {
        "index.scatter_reduce"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_ordered!(self.dtype,
            T => {
                let dst = cx.inout::<T>(self.x, 0)?.into_same();
                let src = self.src.read::<T>(&cx.inputs)?;
                let (par, along, combine) = (cx.par, self.fit.along(), self.combine);
                let one = vec![0; self.src_strides.len()]; // the strides of a single value
                let mean = combine == Combine::Mean;
                let targets = if mean { dst.len() } else { 0 };
                let mut counts = alloc::filled(targets, i64::from(self.include_self))?;
                with_index!(cx.inputs, self.index, i => {
                    let mut done = Ok(());
                    if !self.include_self {
                        let nothing = [combine.identity::<T>()];
                        done = scatter_with(par, &nothing, &one, dst, i, along, |_, new| new);
                    }
                    let count = |there: i64, new: i64| there.saturating_add(new);
                    done.and_then(|()| {
                        let combine = |there, new| combine.of(there, new);
                        scatter_with(par, &src, &self.src_strides, dst, i, along, combine)
                    })
                    .and_then(|()| match mean {
                        true => scatter_with(par, &[1], &one, &mut counts, i, along, count),
                        false => Ok(()),
                    })
                })
                .map_err(|e| value_error(self.index, e))?;
                for (y, &n) in dst.iter_mut().zip(&counts).filter(|(_, n)| **n > 1) {
                    *y = quotient(*y, n);
                }
                Ok(())
            },
            _ => Err(RunError::Internal("complex numbers have no order".into())),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, iota, line_error, op, tensor, try_op, values};
    use num_complex::Complex;
    use plutino_tensor::Tensor;

    fn inputs() -> [Tensor; 3] {
        let src = tensor([2, 4], &[1.0f32, 2., 3., 4., -1., -2., -3., -4.]);
        [tensor([2, 3], &[10.0f32; 6]), tensor([2, 4], &[0i64, 0, 2, 0, 1, 1, 1, 0]), src]
    }

    /// PyTorch: `x.scatter_reduce(1, index, src, reduce, include_self=...)`.
    #[test]
    fn every_way_to_combine_with_and_without_what_is_there() {
        let third = 1.0 / 3.0;
        for (reduce, with, without) in [
            ("sum", [17., 10., 13., 6., 4., 10.], [7., 10., 3., -4., -6., 10.]),
            ("prod", [80., 10., 30., -40., -60., 10.], [8., 10., 3., -4., -6., 10.]),
            ("mean", [4.25, 10., 6.5, 3., 1., 10.], [7. * third, 10., 3., -4., -2., 10.]),
            ("amax", [10., 10., 10., 10., 10., 10.], [4., 10., 3., -4., -1., 10.]),
            ("amin", [1., 10., 3., -4., -3., 10.], [1., 10., 3., -4., -3., 10.]),
        ] {
            for (include_self, expected) in [("True", with), ("False", without)] {
                let line =
                    format!("aten::scatter_reduce s 6 1 0 =1 2 3 ={reduce} ={include_self} 4");
                let found = check_line(&line, &inputs()).remove(0);
                let named = format!(
                    "torch.scatter_reduce s 3 1 0 1 2 3 dim=-1 include_self={include_self} reduce={reduce} $input=0 \
                     $index=1 $src=2"
                );
                assert_eq!(check(&*op(&named), &inputs())[0], found);
                for (x, y) in values::<f32>(&found).into_iter().zip(expected) {
                    assert!((x - y).abs() <= 1e-6, "{reduce} {include_self}: {x} instead of {y}");
                }
            }
        }
    }

    #[test]
    fn nan_wins_and_means_of_integers_are_rounded_down() {
        let index = tensor([3], &[0i64, 0, 1]);
        let src = tensor([3], &[f32::NAN, 1.0, 2.0]);
        let line = "aten::scatter_reduce s 6 1 0 =0 2 3 =amax =False 4";
        let y = values::<f32>(&check_line(line, &[iota([2]), index.clone(), src])[0]);
        assert!(y[0].is_nan() && y[1] == 2.0);
        let whole = [tensor([2], &[0i32, 5]), index.clone(), tensor([3], &[-3i32, 0, 2])];
        let y = check_line("aten::scatter_reduce s 6 1 0 =0 2 3 =mean =False 4", &whole);
        assert_eq!(y[0], tensor([2], &[-2i32, 2]));
        let bools = [tensor([2], &[false, false]), index, tensor([3], &[false, true, false])];
        let y = check_line("aten::scatter_reduce s 6 1 0 =0 2 3 =amax =True 4", &bools);
        assert_eq!(y[0], tensor([2], &[true, false]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let [x, index, src] = inputs();
        let line = "aten::scatter_reduce s 6 1 0 =1 2 3 =sum =True 4";
        line_error(line, &[x.clone(), tensor([2, 4], &[3i64; 8]), src.clone()]);
        line_error(line, &[x.clone(), index.clone(), iota([2, 3])]);
        line_error(line, &[x, index, tensor([2, 4], &[1i64; 8])]);
        let z = tensor([1], &[Complex::new(0.0f32, 0.0)]);
        let complex = op("torch.scatter_reduce s 3 1 0 1 2 3 dim=0 reduce=sum");
        error(&*complex, &[z.clone(), tensor([1], &[0i64]), z]);
        assert!(try_op("torch.scatter_reduce s 3 1 0 1 2 3 dim=0 reduce=median", &[]).is_err());
        assert!(try_op("torch.scatter_reduce s 3 1 0 1 2 3 dim=0", &[]).is_err());
    }
}

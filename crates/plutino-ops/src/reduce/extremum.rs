//! Greatest and least elements, and their positions.
//!
//! <https://pytorch.org/docs/stable/generated/torch.max.html>, `amax`, `argmax` and their
//! counterparts. A NaN counts as the extremum; of equal elements the first gives the position.

use super::{Dims, planned};
use crate::pool::{OfBlocks, planned_fold_of_blocks};
use crate::support::assemble::leaf;
use crate::support::halves::{self, Parts};
use crate::support::several::several;
use crate::{
    BuildError, BuildProblem, Cost, LayoutCx, LayoutSupport, NodeReader, Operator, PlanCx,
    PlanError, Planned, ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_ordered;
use plutino_kernels::reduce::{Fold, Reduction, arg_extremum, extremum, first_zeros, reduce_f32};
use plutino_tensor::{DType, Layout, Shape};

#[derive(Debug)]
struct Extremum {
    input: usize,
    max: bool,
    outputs: Outputs,
    dims: Dims,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outputs {
    /// Of equal elements any: of 0 and -0 either.
    Values,
    /// Of equal elements the first.
    First,
    Indices,
    Both,
}

fn extremum_of(
    r: &mut NodeReader<'_>,
    max: bool,
    outputs: Outputs,
) -> Result<Box<dyn Operator>, BuildError> {
    let dims = Dims::read(r)?;
    Ok(Box::new(Extremum { input: r.required_input("input")?, max, outputs, dims }))
}

/// `torch.max(input)`, or `torch.max(input, dim, keepdim)` with values and (where they are used)
/// indices.
fn with_dim(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let max = r.kind() == "torch.max";
    let outputs = match (r.has("dim"), r.output_count()) {
        (true, 1) => Outputs::First,
        (false, 1) => Outputs::Values,
        (true, 2) => Outputs::Both,
        (dim, found) => {
            let expected = if dim { "1 or 2" } else { "1" }.into();
            return Err(r.error(BuildProblem::Outputs { expected, found }));
        }
    };
    extremum_of(r, max, outputs)
}
register_op!(with_dim => "torch.max", "torch.min");

fn values(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let max = r.kind() == "torch.amax";
    extremum_of(r, max, Outputs::Values)
}
register_op!(values => "torch.amax", "torch.amin");

fn indices(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let max = r.kind() == "torch.argmax";
    extremum_of(r, max, Outputs::Indices)
}
register_op!(indices => "torch.argmax", "torch.argmin");

/// <https://pytorch.org/docs/stable/generated/torch.aminmax.html>: the least beside the greatest.
fn both_ends(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    if r.output_count() != 2 {
        let (expected, found) = ("2".into(), r.output_count());
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    let (dims, input) = (Dims::read(r)?, r.required_input("input")?);
    let part = |max| {
        let (dims, outputs) = (dims.clone(), Outputs::Values);
        Box::new(Extremum { input, max, outputs, dims }) as Box<dyn Operator>
    };
    Ok(several("aminmax", vec![part(false), part(true)]))
}
register_op!(both_ends => "torch.aminmax");

impl Extremum {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Fold, Shape), ShapeError> {
        let x = TensorValue::real_at(inputs, self.input)?;
        let (fold, shape) = self.dims.bind(x.shape())?;
        if fold.count() == 0 {
            let text = format!("there is no extremum of nothing: the input is {}", x.shape());
            return Err(ShapeError::Invalid(text));
        }
        Ok((x.dtype(), fold, shape))
    }
}

impl Operator for Extremum {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, _, shape) = self.bind(inputs)?;
        let values = ValueSpec::tensor(dtype, shape.clone());
        let indices = ValueSpec::tensor(DType::I64, shape);
        Ok(match self.outputs {
            Outputs::Values | Outputs::First => vec![values],
            Outputs::Indices => vec![indices],
            Outputs::Both => vec![values, indices],
        })
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, fold, _) = self.bind(cx.inputs)?;
        if TensorValue::at(cx.inputs, self.input)?.spec.layout != Layout::Plain {
            return planned_fold_of_blocks(cx, self.input, OfBlocks::Max);
        }
        let (input, max, isa) = (leaf(cx.inputs, self.input), self.max, cx.isa);
        let outputs = self.outputs;
        if halves::is_half(dtype) {
            let dims = self.dims.kept(TensorValue::at(cx.inputs, self.input)?.shape());
            return halves::widened_by(cx, Parts { dims, of: &[self.input] }, |cx| self.plan(cx));
        }
        if dtype == DType::F32 && matches!(outputs, Outputs::Values | Outputs::First) {
            let reduction = if max { Reduction::Max } else { Reduction::Min };
            return Ok(planned(format!("reduce.extremum.{isa}"), move |cx| {
                let (x, y) = (cx.inputs.get(input)?, cx.outputs.take(0)?);
                reduce_f32(isa, cx.par, &fold, reduction, x, y);
                if outputs == Outputs::First {
                    first_zeros(cx.par, &fold, x, y);
                }
                Ok(())
            }));
        }
        for_ordered!(dtype,
            T => Ok(planned("reduce.extremum.any", move |cx| {
                let x = cx.inputs.get::<T>(input)?;
                match outputs {
                    Outputs::Values | Outputs::First => {
                        extremum(cx.par, &fold, max, x, cx.outputs.take::<T>(0)?);
                    }
                    Outputs::Indices => {
                        arg_extremum(cx.par, &fold, max, x, None, Some(cx.outputs.take(0)?));
                    }
                    Outputs::Both => {
                        let (values, indices) = (cx.outputs.take::<T>(0)?, cx.outputs.take(1)?);
                        arg_extremum(cx.par, &fold, max, x, Some(values), Some(indices));
                    }
                }
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("an extremum of {dtype}"))),
        )
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        match TensorValue::at(cx.inputs, self.input) {
            Ok(x) if self.max && self.outputs == Outputs::Values => {
                self.dims.of_pixels(x, cx.block())
            }
            _ => LayoutSupport::PLAIN,
        }
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::folded(inputs, outputs, self.input)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, op, random, tensor, try_op, values};
    use plutino_reference::reduce::{argmax, groups};
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn values_and_indices() {
        let x = random([3, 5, 7], 1);
        for (dim, d) in [("0", 0), ("1", 1), ("-1", 2)] {
            let groups = groups(x.shape(), &[d], &values::<f32>(&x));
            let both = op(&format!("torch.max m 1 2 0 1 2 dim={dim} keepdim=False $input=0"));
            let y = check(&*both, std::slice::from_ref(&x));
            let alone = op(&format!("torch.argmax m 1 1 0 1 dim={dim} keepdim=False $input=0"));
            assert_eq!(check(&*alone, std::slice::from_ref(&x))[0], y[1]);
            let amax = op(&format!("torch.amax m 1 1 0 1 dim=({dim}) keepdim=False $input=0"));
            assert_eq!(check(&*amax, std::slice::from_ref(&x))[0], y[0]);
            for (k, g) in groups.iter().enumerate() {
                assert_eq!(values::<i64>(&y[1])[k] as usize, argmax(g));
                assert_eq!(f64::from(values::<f32>(&y[0])[k]), g[argmax(g)]);
            }
        }
        let all = values::<f32>(&x);
        let least = all.iter().copied().fold(f32::INFINITY, f32::min);
        assert_eq!(
            values::<f32>(
                &check(&*op("torch.min m 1 1 0 1 $input=0"), std::slice::from_ref(&x))[0]
            ),
            [least]
        );
        let at = check(&*op("torch.argmin m 1 1 0 1 dim=None keepdim=True $input=0"), &[x]);
        assert_eq!(at[0].shape().dims(), [1, 1, 1]);
        assert_eq!(all[values::<i64>(&at[0])[0] as usize], least);
    }

    /// As PyTorch, which takes the first of equal elements along a dimension (and any of them
    /// where there is none, or for `amax`).
    #[test]
    fn the_first_zero_gives_the_sign() {
        for n in [2, 8, 17, 40] {
            let line = |first: f32| (0..n).map(|i| if i == 0 { first } else { -first }).collect();
            let rows: [Vec<f32>; 2] = [line(0.0), line(-0.0)];
            let columns: Vec<f32> = (0..n).flat_map(|i| [rows[0][i], rows[1][i]]).collect();
            for kind in ["max", "min"] {
                for (dim, x) in [(1, tensor([2, n], &rows.concat())), (0, tensor([n, 2], &columns))]
                {
                    for (outputs, operands) in [(1, "1"), (2, "1 2")] {
                        let line = format!(
                            "torch.{kind} m 1 {outputs} 0 {operands} dim={dim} keepdim=False $input=0"
                        );
                        for dtype in [DType::F32, DType::F64, DType::F16] {
                            let y = check(&*op(&line), &[x.cast(dtype).unwrap()]);
                            let y = values::<f32>(&y[0].cast(DType::F32).unwrap());
                            assert_eq!(
                                y.iter().map(|y| y.is_sign_negative()).collect::<Vec<_>>(),
                                [false, true],
                                "{line} of {n} {dtype}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn both_ends() {
        let x = tensor([2, 3], &[3.0f32, -1.0, 2.0, f32::NAN, 0.0, 7.0]);
        let y = check(
            &*op("torch.aminmax m 1 2 0 1 2 dim=0 keepdim=True $input=0"),
            std::slice::from_ref(&x),
        );
        assert_eq!(values::<f32>(&y[0])[1..], [-1.0, 2.0]);
        assert_eq!(values::<f32>(&y[1])[1..], [0.0, 7.0]);
        assert_eq!(y[0].shape().dims(), [1, 3]);
        let y = check(&*op("torch.aminmax m 1 2 0 1 2"), &[tensor([3], &[3i16, -1, 2])]);
        assert_eq!(y, [tensor([], &[-1i16]), tensor([], &[3i16])]);
        error(&*op("torch.aminmax m 1 2 0 1 2"), &[Tensor::zeros(DType::F32, [0]).unwrap()]);
        assert!(try_op("torch.aminmax m 1 1 0 1", &[]).is_err());
    }

    #[test]
    fn other_dtypes_nan_and_errors() {
        let amin = op("torch.amin m 1 1 0 1 dim=(0) keepdim=True $input=0");
        assert_eq!(values::<u8>(&check(&*amin, &[tensor([3], &[7u8, 3, 9])])[0]), [3]);
        assert_eq!(values::<bool>(&check(&*amin, &[tensor([2], &[true, false])])[0]), [false]);
        assert!(
            values::<f32>(&check(&*amin, &[tensor([3], &[1.0, f32::NAN, 0.0])])[0])[0].is_nan()
        );
        error(&*amin, &[Tensor::zeros(DType::F32, [0, 2]).unwrap()]);
        error(&*amin, &[Tensor::zeros(DType::C64, [2]).unwrap()]);
        assert!(try_op("torch.max m 1 2 0 1 2 $input=0", &[]).is_err());
    }
}

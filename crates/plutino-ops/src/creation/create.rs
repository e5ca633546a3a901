//! Tensors that are made, not computed from others: zeros, ones, full, empty, arange, eye, and
//! their `_like` and `new_` forms; Tensor.fill. What is known before the run is folded by the
//! runtime.

use crate::support::assemble::{internal, leaf};
use crate::support::rearrange::{ints, invalid, subject};
use crate::{
    Arg, BuildError, Inputs, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::copy::{Side, StridedCopy};
use plutino_kernels::elementwise::Scalar;
use plutino_kernels::for_numbers;
use plutino_tensor::stop;
use plutino_tensor::{Convert, DType, Element, Shape, Tensor};
use std::borrow::Cow;

/// Where the values of an argument come from that may be a number or a tensor.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// This input leaf.
    Leaf(usize),
    /// One element, known beforehand.
    Known(Tensor),
    /// The scalar at this input leaf, in this dtype.
    Scalar(usize, DType),
}

impl Source {
    /// The argument's values in `dtype`. Numbers and scalars are converted; tensors must have it.
    pub(crate) fn of(
        arg: &Arg<Scalar>,
        dtype: DType,
        inputs: &[ValueSpec],
    ) -> Result<Self, ShapeError> {
        let input = match arg {
            Arg::Value(number) => return Ok(Self::Known(constant(*number, dtype)?)),
            Arg::Input(at) => *at,
        };
        let value = TensorValue::at(inputs, input)?;
        match &value.known {
            Some(known) if value.shape().rank() == 0 => Ok(Self::Known(known.cast(dtype)?)),
            _ if value.dtype() == dtype => Ok(Self::Leaf(leaf(inputs, input))),
            _ if value.shape().rank() == 0 => Ok(Self::Scalar(leaf(inputs, input), dtype)),
            _ => {
                Err(ShapeError::DType { input, expected: dtype.to_string(), found: value.dtype() })
            }
        }
    }

    /// The raw elements.
    pub(crate) fn bytes<'s, 'i: 's>(
        &'s self,
        inputs: &Inputs<'i>,
    ) -> Result<Cow<'s, [u8]>, RunError> {
        Ok(match self {
            Self::Leaf(at) => Cow::Borrowed(inputs.bytes(*at)?),
            Self::Known(t) => Cow::Borrowed(t.as_bytes()),
            Self::Scalar(at, dtype) => Cow::Owned(scalar(inputs, *at, *dtype)?.as_bytes().to_vec()),
        })
    }

    /// The elements.
    pub(crate) fn read<'s, 'i: 's, T: Element>(
        &'s self,
        inputs: &Inputs<'i>,
    ) -> Result<Cow<'s, [T]>, RunError> {
        Ok(match self {
            Self::Leaf(at) => Cow::Borrowed(inputs.get(*at)?),
            Self::Known(t) => Cow::Borrowed(t.as_slice()?),
            Self::Scalar(at, dtype) => {
                Cow::Owned(scalar(inputs, *at, *dtype)?.as_slice()?.to_vec())
            }
        })
    }
}

/// The scalar at an input leaf, in another dtype.
fn scalar(inputs: &Inputs<'_>, at: usize, dtype: DType) -> Result<Tensor, RunError> {
    Ok(inputs.view(at)?.to_tensor()?.cast(dtype)?)
}

/// A number as a tensor of one element.
pub(crate) fn constant(number: Scalar, dtype: DType) -> Result<Tensor, ShapeError> {
    let exact = match number {
        Scalar::Bool(b) => Tensor::scalar(b),
        Scalar::Int(i) => Tensor::scalar(i),
        Scalar::Float(x) => Tensor::scalar(x),
        Scalar::Complex(z) => Tensor::scalar(z),
    };
    Ok(exact?.cast(dtype)?)
}

/// The shape that an operator asks for.
fn shape(sizes: &Arg<Vec<i64>>, inputs: &[ValueSpec]) -> Result<Shape, ShapeError> {
    let sizes = sizes.ints(inputs)?;
    let shape: Option<Shape> = sizes.iter().map(|&s| usize::try_from(s).ok()).collect();
    let shape = shape.ok_or_else(|| invalid(format!("sizes {sizes:?} must not be negative")))?;
    shape.checked_numel()?;
    Ok(shape)
}

/// Parameters of every factory function that say where, not what.
pub(crate) fn ignore_placement(r: &mut NodeReader<'_>) {
    for key in ["device", "layout", "pin_memory", "requires_grad", "memory_format", "generator"] {
        r.raw(key);
        r.named_input(key); // the device of another tensor
    }
}

/// Where shape and default dtype of a made tensor come from.
#[derive(Debug)]
pub(crate) enum Model {
    /// Given as sizes.
    Sizes(Arg<Vec<i64>>),
    /// Given as sizes, with the dtype of this input: `new_zeros`.
    New(usize, Arg<Vec<i64>>),
    /// Those of this input: `zeros_like`.
    Like(usize),
}

impl Model {
    /// Reads what the form of the operator's name asks for.
    pub(crate) fn read(r: &mut NodeReader<'_>) -> Result<Self, BuildError> {
        let kind = r.kind();
        Ok(if kind.ends_with("_like") || matches!(kind, "Tensor.fill" | "Tensor.zero") {
            Self::Like(subject(r)?)
        } else if kind.starts_with("Tensor.new_") {
            let sizes = ints(r, &["size"])?;
            Self::New(subject(r)?, sizes)
        } else {
            Self::Sizes(ints(r, &["size"])?)
        })
    }

    /// Shape, and the dtype where none is asked for.
    pub(crate) fn resolve(
        &self,
        inputs: &[ValueSpec],
        dtype: DType,
    ) -> Result<(Shape, DType), ShapeError> {
        Ok(match self {
            Self::Sizes(sizes) => (shape(sizes, inputs)?, dtype),
            Self::New(input, sizes) => {
                (shape(sizes, inputs)?, TensorValue::at(inputs, *input)?.dtype())
            }
            Self::Like(input) => {
                let t = TensorValue::at(inputs, *input)?;
                (t.shape().clone(), t.dtype())
            }
        })
    }
}

/// One value everywhere: <https://pytorch.org/docs/stable/generated/torch.full.html> and its kin.
/// Memory that PyTorch leaves uninitialised (`empty`) is zero here.
#[derive(Debug)]
struct Full {
    model: Model,
    value: Arg<Scalar>,
    /// Whether the model's author chose the value (`full`): its kind decides the dtype.
    given: bool,
    dtype: Option<DType>,
}

fn full(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dtype = r.optional("dtype")?;
    ignore_placement(r);
    let kind = r.kind();
    let given = kind.contains("full") || kind == "Tensor.fill";
    let value = if given {
        let key = if kind == "Tensor.fill" || r.has("value") { "value" } else { "fill_value" };
        match r.arg(key)? {
            Some(value) => value,
            None => Arg::Value(r.required(key)?),
        }
    } else {
        Arg::Value(Scalar::Int(i64::from(kind.contains("ones"))))
    };
    Ok(Box::new(Full { model: Model::read(r)?, value, given, dtype }))
}
register_op!(full =>
    "torch.zeros", "torch.ones", "torch.empty", "torch.full", "torch.zeros_like", "torch.ones_like",
    "torch.empty_like", "torch.full_like", "Tensor.new_zeros", "Tensor.new_ones", "Tensor.new_empty",
    "Tensor.new_full", "Tensor.fill", "Tensor.zero");

impl Full {
    fn spec(&self, inputs: &[ValueSpec]) -> Result<(Shape, DType), ShapeError> {
        // What torch.full makes of its value; zeros and ones are floats.
        let default = match (&self.value, &self.model) {
            (Arg::Value(Scalar::Bool(_)), _) => DType::Bool,
            (Arg::Value(Scalar::Int(_)), Model::Sizes(_)) if self.given => DType::I64,
            (Arg::Value(Scalar::Complex(_)), _) => DType::C64,
            (Arg::Input(at), _) => match TensorValue::at(inputs, *at)? {
                t if t.python && t.dtype() == DType::F64 => DType::F32,
                t => t.dtype(),
            },
            _ => DType::F32,
        };
        let (shape, default) = self.model.resolve(inputs, default)?;
        Ok((shape, self.dtype.unwrap_or(default)))
    }
}

impl Operator for Full {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (shape, dtype) = self.spec(inputs)?;
        Source::of(&self.value, dtype, inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (shape, dtype) = self.spec(cx.inputs)?;
        let value = Source::of(&self.value, dtype, cx.inputs)?;
        let repeat = Side { offset: 0, strides: &vec![0; shape.rank()] };
        let copy = StridedCopy::to_dense(dtype.size_of(), &shape, repeat);
        let copy = copy.map_err(|e| PlanError::Unsupported(e.to_string()))?;
        Ok(Planned::new(Fill { value, copy }))
    }
}

/// Copies one element everywhere.
struct Fill {
    value: Source,
    copy: StridedCopy,
}

impl Kernel for Fill {
    fn name(&self) -> &str {
        "fill"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (_, dst) = cx.outputs.take_bytes(0)?;
        self.copy.run(cx.par, &self.value.bytes(&cx.inputs)?, dst).map_err(internal)
    }
}

/// Evenly spaced numbers: <https://pytorch.org/docs/stable/generated/torch.arange.html>
#[derive(Debug)]
struct Arange {
    start: Arg<Scalar>,
    end: Arg<Scalar>,
    step: Arg<Scalar>,
    dtype: Option<DType>,
}

fn arange(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dtype = r.optional("dtype")?;
    ignore_placement(r);
    let start = r.arg("start")?.unwrap_or(Arg::Value(Scalar::Int(0)));
    let step = r.arg("step")?.unwrap_or(Arg::Value(Scalar::Int(1)));
    let end = match r.arg("end")? {
        Some(end) => end,
        None => Arg::Value(r.required("end")?),
    };
    Ok(Box::new(Arange { start, end, step, dtype }))
}
register_op!(arange => "torch.arange");

/// Start and step, exact for integers, and the number of elements.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Progression {
    Int { start: i64, step: i64, len: usize },
    Float { start: f64, step: f64, len: usize },
}

impl Arange {
    fn progression(&self, inputs: &[ValueSpec]) -> Result<(Progression, DType), ShapeError> {
        let [start, end, step] =
            [&self.start, &self.end, &self.step].map(|arg| known_number(arg, inputs));
        let (start, end, step) = (start?, end?, step?);
        let refuse = || invalid(format!("no range leads from {start:?} to {end:?} by {step:?}"));
        let p =
            if let (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) = (start, end, step) {
                let span = i128::from(end) - i128::from(start);
                if step == 0 || (span != 0 && (span > 0) != (step > 0)) {
                    return Err(refuse());
                }
                let len = span.unsigned_abs().div_ceil(u128::from(step.unsigned_abs()));
                Progression::Int { start, step, len: usize::try_from(len).map_err(|_| refuse())? }
            } else {
                let [start, end, step] = [start, end, step].map(|s| match s {
                    Scalar::Int(i) => i as f64,
                    Scalar::Float(x) => x,
                    _ => f64::NAN,
                });
                let len = ((end - start) / step).ceil();
                if !(0.0..9e15).contains(&len) || step == 0.0 {
                    return Err(refuse());
                }
                Progression::Float { start, step, len: len as usize }
            };
        let natural = if matches!(p, Progression::Int { .. }) { DType::I64 } else { DType::F32 };
        Ok((p, self.dtype.unwrap_or(natural)))
    }
}

/// A number that is known before the run.
pub(crate) fn known_number(arg: &Arg<Scalar>, inputs: &[ValueSpec]) -> Result<Scalar, ShapeError> {
    let input = match arg {
        Arg::Value(number) => return Ok(*number),
        Arg::Input(at) => *at,
    };
    let not_known = || ShapeError::NotKnown { input, what: "a number".into() };
    let value = inputs.get(input).ok_or_else(not_known)?;
    if let Some(&[i]) = value.known_ints().as_deref() {
        return Ok(Scalar::Int(i));
    }
    match value.known_floats().as_deref() {
        Some(&[x]) => Ok(Scalar::Float(x)),
        _ => Err(not_known()),
    }
}

impl Operator for Arange {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (Progression::Int { len, .. } | Progression::Float { len, .. }, dtype) =
            self.progression(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, [len])])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::new(Steps(self.progression(cx.inputs)?.0)))
    }
}

struct Steps(Progression);

impl Kernel for Steps {
    fn name(&self) -> &str {
        "arange"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (spec, bytes) = cx.outputs.take_bytes(0)?;
        let out = stop::paced(bytes.chunks_exact_mut(spec.dtype.size_of()), 2);
        for_numbers!(spec.dtype, T => for (i, out) in out.enumerate() {
            let x = match self.0 {
                Progression::Int { start, step, .. } => {
                    T::convert_from(start.wrapping_add(step.wrapping_mul(i as i64)))
                }
                Progression::Float { start, step, .. } => T::convert_from(step.mul_add(i as f64, start)),
            };
            out.copy_from_slice(bytemuck::bytes_of(&x));
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{check, check_values, error, iota, op, tensor, try_op, values};

    #[test]
    fn one_value_everywhere() {
        let y = check(&*op("torch.zeros z 0 1 0 size=(2,3) dtype=None"), &[]);
        assert_eq!(y[0], tensor([2, 3], &[0.0f32; 6]));
        let y = check(&*op("torch.full f 0 1 0 size=(2) fill_value=7 dtype=None device=cpu"), &[]);
        assert_eq!(y[0], tensor([2], &[7i64; 2]));
        let y = check(&*op("torch.full f 0 1 0 size=(2) fill_value=7 dtype=torch.half"), &[]);
        assert_eq!(y[0].dtype(), DType::F16);
        let y = check(&*op("torch.full f 0 1 0 size=() fill_value=True"), &[]);
        assert_eq!(y[0], tensor([], &[true]));
        let x = tensor([2, 2], &[1i32; 4]);
        let y =
            check(&*op("torch.ones_like o 1 1 0 1 dtype=torch.float"), std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([2, 2], &[1.0f32; 4]));
        let y = check(&*op("Tensor.new_ones o 1 1 0 1 size=(1,3)"), std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([1, 3], &[1i32; 3]));
        error(&*op("torch.zeros z 0 1 0 size=(2,-3)"), &[]);
        error(&*op("torch.zeros z 0 1 0 size=(4294967296,4294967296)"), &[]);
    }

    #[test]
    fn fill_keeps_shape_and_dtype() {
        let x = tensor([3], &[1i64; 3]);
        let y = check(&*op("Tensor.fill f 1 1 0 1 value=2.9 $input=0"), std::slice::from_ref(&x));
        assert_eq!(values::<i64>(&y[0]), [2, 2, 2]);
        let by_input = op("Tensor.fill f 2 1 0 1 2 $input=0 $value=1");
        let y = check(&*by_input, &[iota([2, 2]), tensor([], &[5.0f32])]);
        assert_eq!(values::<f32>(&y[0]), [5.0; 4]);
        // A number of another dtype that the run makes, such as what `item()` returns.
        let y = check(&*by_input, &[iota([2]), tensor([], &[2.5f64])]);
        assert_eq!(values::<f32>(&y[0]), [2.5; 2]);
        error(
            &*op("Tensor.index_put p 3 1 0 1 2 3 $input=0 $indices=1 $values=2 accumulate=False"),
            &[iota([2]), tensor([1], &[0i64]), tensor([1], &[1.0f64])],
        );
        let number = [x.spec().into(), ValueSpec::python(4.0).unwrap()];
        let y = check_values(&*by_input, &number, &[x, tensor([], &[4.0])]);
        assert_eq!(values::<i64>(&y[0]), [4; 3]);
    }

    #[test]
    fn shapes_may_be_inputs() {
        let operator = op("torch.zeros z 1 1 0 1 dtype=torch.long $size=0");
        let inputs = [ValueSpec::python_ints(&[2, 1]).unwrap()];
        let data = [tensor([], &[2i64]), tensor([], &[1i64])];
        assert_eq!(check_values(&*operator, &inputs, &data)[0], tensor([2, 1], &[0i64; 2]));
    }

    #[test]
    fn arange_counts() {
        let run = |line: &str| check(&*op(line), &[]).remove(0);
        assert_eq!(run("torch.arange a 0 1 0 dtype=None end=3"), tensor([3], &[0i64, 1, 2]));
        assert_eq!(run("torch.arange a 0 1 0 start=5 end=0 step=-2"), tensor([3], &[5i64, 3, 1]));
        assert_eq!(
            run("torch.arange a 0 1 0 dtype=torch.float end=2"),
            tensor([2], &[0.0f32, 1.0])
        );
        let y = run("torch.arange a 0 1 0 start=1 end=2.1 step=0.5");
        assert_eq!(y, tensor([3], &[1.0f32, 1.5, 2.0]));
        assert_eq!(run("torch.arange a 0 1 0 start=2 end=2"), tensor([0], &[0i64; 0]));
        for bad in ["end=3 step=0", "end=3 step=-1", "start=3 end=1", "end=nan", "end=1.0e30"] {
            error(&*op(&format!("torch.arange a 0 1 0 {bad}")), &[]);
        }
        let by_input = op("torch.arange a 1 1 0 1 dtype=None $end=0");
        let known = [ValueSpec::python(2).unwrap()];
        let y = check_values(&*by_input, &known, &[tensor([], &[2i64])]);
        assert_eq!(y[0], tensor([2], &[0i64, 1]));
        assert!(by_input.infer(&[ValueSpec::tensor(DType::I64, [])]).is_err());
        assert!(try_op("torch.arange a 0 1 0 start=1", &[]).is_err());
    }
}

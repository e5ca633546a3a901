//! What is known of a tensor without its elements (numel, dim, is_floating_point, its device), and
//! single elements as Python numbers and back (item, `aten::Int`, `prim::NumToTensor`,
//! scalar_tensor).

use crate::creation::create::constant;
use crate::support::assemble::leaf;
use crate::support::promotion::DEFAULT_FLOAT;
use crate::support::rearrange::subject;
use crate::{
    Arg, BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::elementwise::Scalar;
use plutino_tensor::{DType, Shape, Tensor, TensorError, TensorSpec};

/// Something that dtype and shape say.
#[derive(Debug, Clone, Copy)]
enum Fact {
    /// <https://pytorch.org/docs/stable/generated/torch.numel.html>
    Numel,
    /// <https://pytorch.org/docs/stable/generated/torch.Tensor.dim.html>
    Dim,
    /// The size of the first dimension, or of a list.
    Len,
    /// <https://pytorch.org/docs/stable/generated/torch.Tensor.element_size.html>
    ElementSize,
    /// <https://pytorch.org/docs/stable/generated/torch.is_floating_point.html>
    IsFloatingPoint,
    /// <https://pytorch.org/docs/stable/generated/torch.is_complex.html>
    IsComplex,
    /// <https://pytorch.org/docs/stable/generated/torch.Tensor.is_signed.html>
    IsSigned,
    /// Where the tensor lies: `cpu`, always.
    Device,
}

#[derive(Debug)]
struct Ask {
    input: usize,
    fact: Fact,
}

fn ask(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let fact = match r.kind().rsplit(['.', ':']).next() {
        Some("dim" | "ndim" | "ndimension") => Fact::Dim,
        Some("len") => Fact::Len,
        Some("element_size") => Fact::ElementSize,
        Some("is_floating_point") => Fact::IsFloatingPoint,
        Some("is_complex") => Fact::IsComplex,
        Some("is_signed") => Fact::IsSigned,
        Some("device") => Fact::Device,
        _ => Fact::Numel,
    };
    Ok(Box::new(Ask { input: subject(r)?, fact }))
}
register_op!(ask =>
    "torch.numel", "Tensor.numel", "Tensor.nelement", "Tensor.dim", "Tensor.ndim", "Tensor.ndimension",
    "Tensor.element_size", "Tensor.is_floating_point", "torch.is_floating_point", "Tensor.is_complex",
    "torch.is_complex", "Tensor.is_signed", "aten::len", "prim::device");

impl Operator for Ask {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let int = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        if let (Fact::Len, Some(ValueSpec::List(items))) = (self.fact, inputs.get(self.input)) {
            return Ok(vec![ValueSpec::python(int(items.len()))?]);
        }
        let x = TensorValue::at(inputs, self.input)?;
        let (shape, dtype) = (x.shape(), x.dtype());
        Ok(vec![match self.fact {
            Fact::Numel => ValueSpec::python(int(shape.checked_numel()?))?,
            Fact::Dim => ValueSpec::python(int(shape.rank()))?,
            Fact::Len => match shape.first() {
                Some(&size) => ValueSpec::python(int(size))?,
                None => return Err(TensorError::Dim { dim: 0, rank: 0 }.into()),
            },
            Fact::ElementSize => ValueSpec::python(int(dtype.size_of()))?,
            Fact::IsFloatingPoint => ValueSpec::python(dtype.is_float())?,
            Fact::IsComplex => ValueSpec::python(dtype.is_complex())?,
            Fact::IsSigned => ValueSpec::python(!matches!(dtype, DType::Bool | DType::U8))?,
            Fact::Device => ValueSpec::Word("cpu".into()),
        }])
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::views(Vec::new())) // known: nothing to compute
    }
}

/// What a number is made into.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// A Python number of this dtype; without one, of the category of the tensor's.
    Python(Option<DType>),
    /// A tensor without dimensions of this dtype; without one, of the number's.
    Tensor(Option<DType>),
}

/// A tensor of one element, or a Python number, as another of them:
/// <https://pytorch.org/docs/stable/generated/torch.Tensor.item.html>
#[derive(Debug)]
struct Number {
    from: Arg<Scalar>,
    to: Target,
}

fn number(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let to = match r.kind() {
        "aten::Int" | "aten::IntImplicit" => Target::Python(Some(DType::I64)),
        "aten::Float" | "aten::FloatImplicit" => Target::Python(Some(DType::F64)),
        "aten::Bool" => Target::Python(Some(DType::Bool)),
        "aten::Complex" | "aten::ComplexImplicit" => Target::Python(Some(DType::C128)),
        "prim::NumToTensor" => Target::Tensor(None),
        _ => Target::Python(None),
    };
    Ok(Box::new(Number { from: Arg::Input(subject(r)?), to }))
}
register_op!(number =>
    "Tensor.item", "aten::Int", "aten::IntImplicit", "aten::Float", "aten::FloatImplicit", "aten::Bool",
    "aten::Complex", "aten::ComplexImplicit", "aten::ScalarImplicit", "prim::NumToTensor");

/// A tensor without dimensions, a float where no dtype is given; `torch.scalar_tensor` is not
/// documented.
fn scalar_tensor(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dtype = r.optional("dtype")?.unwrap_or(DEFAULT_FLOAT);
    crate::creation::create::ignore_placement(r);
    let from = match r.arg("s")? {
        Some(from) => from,
        None => crate::elementwise::operand(r, "s")?,
    };
    Ok(Box::new(Number { from, to: Target::Tensor(Some(dtype)) }))
}
register_op!(scalar_tensor => "torch.scalar_tensor");

impl Number {
    /// Dtype of the result, the element where it is known, and whether the result is a Python
    /// number.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Option<Tensor>, bool), ShapeError> {
        let (found, known) = match self.from {
            Arg::Value(number) => {
                let exact = crate::elementwise::number_dtype(number);
                (exact, Some(constant(number, exact)?))
            }
            Arg::Input(input) => {
                let x = TensorValue::at(inputs, input)?;
                if x.shape().checked_numel()? != 1 {
                    return Err(ShapeError::Invalid(format!(
                        "input {input} must have one element, found shape {}",
                        x.shape()
                    )));
                }
                (x.dtype(), x.known.clone())
            }
        };
        let (dtype, python) = match self.to {
            Target::Tensor(dtype) => (dtype.unwrap_or(found), false),
            Target::Python(Some(dtype)) => (dtype, true),
            Target::Python(None) if found == DType::Bool => (found, true),
            Target::Python(None) if found.is_integer() => (DType::I64, true),
            Target::Python(None) if found.is_complex() => (DType::C128, true),
            Target::Python(None) => (DType::F64, true),
        };
        let known = known.map(|t| t.cast(dtype)?.reshape(Shape::scalar())).transpose()?;
        Ok((dtype, known, python))
    }
}

impl Operator for Number {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, known, python) = self.bind(inputs)?;
        let spec = TensorSpec::new(dtype, Shape::scalar());
        Ok(vec![ValueSpec::Tensor(TensorValue { spec, known, python })])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, known, _) = self.bind(cx.inputs)?;
        let (None, Arg::Input(input)) = (known, &self.from) else {
            return Ok(Planned::views(Vec::new()));
        };
        let at = leaf(cx.inputs, *input);
        if TensorValue::at(cx.inputs, *input)?.dtype() == dtype {
            return Ok(Planned::view_of(at));
        }
        Ok(Planned::new(Convert { at, dtype }))
    }
}

struct Convert {
    /// The input leaf.
    at: usize,
    dtype: DType,
}

impl Kernel for Convert {
    fn name(&self) -> &str {
        "item"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let number = cx.inputs.view(self.at)?.cast(self.dtype)?;
        let (_, to) = cx.outputs.take_bytes(0)?;
        match number.as_bytes() {
            from if from.len() == to.len() => to.copy_from_slice(from),
            _ => return Err(RunError::Internal("a number has one element".into())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{check, check_values, error, infer, iota, op, specs, tensor};
    use plutino_tensor::{DType, Tensor};

    fn known(line: &str, x: &Tensor) -> Tensor {
        let inputs = specs(std::slice::from_ref(x));
        let facts = infer(&*op(line), &inputs).unwrap();
        let fact = facts[0].as_tensor().unwrap().clone();
        assert!(fact.python);
        check(&*op(line), std::slice::from_ref(x));
        fact.known.unwrap()
    }

    #[test]
    fn facts_are_known_before_the_run() {
        let x = iota([2, 3]);
        for kind in ["torch.numel", "Tensor.numel", "Tensor.nelement"] {
            assert_eq!(known(&format!("{kind} n 1 1 0 1 $input=0"), &x), tensor([], &[6i64]));
        }
        assert_eq!(known("Tensor.dim d 1 1 0 1", &x), tensor([], &[2i64]));
        assert_eq!(known("aten::len d 1 1 0 1", &x), tensor([], &[2i64]));
        assert_eq!(known("Tensor.element_size d 1 1 0 1", &x), tensor([], &[4i64]));
        assert_eq!(known("Tensor.is_floating_point d 1 1 0 1", &x), tensor([], &[true]));
        assert_eq!(known("torch.is_complex d 1 1 0 1", &x), tensor([], &[false]));
        assert_eq!(known("Tensor.is_signed d 1 1 0 1", &tensor([1], &[1u8])), tensor([], &[false]));
        let device = infer(&*op("prim::device d 1 1 0 1"), &specs(&[x])).unwrap();
        assert!(matches!(&device[0], ValueSpec::Word(word) if &**word == "cpu"));
        error(&*op("aten::len d 1 1 0 1"), &[iota([])]);
        let list = [ValueSpec::List(specs(&[iota([]), iota([2])]))];
        let len = infer(&*op("aten::len d 1 1 0 1"), &list).unwrap();
        assert_eq!(len[0].known_ints(), Some(vec![2]));
    }

    #[test]
    fn one_element_as_a_number() {
        let x = tensor([1, 1], &[2.75f32]);
        for (kind, expected) in [
            ("Tensor.item", tensor([], &[2.75f64])),
            ("aten::ScalarImplicit", tensor([], &[2.75f64])),
            ("aten::Float", tensor([], &[2.75f64])),
            ("aten::Int", tensor([], &[2i64])),
            ("aten::IntImplicit", tensor([], &[2i64])),
            ("aten::Bool", tensor([], &[true])),
            ("prim::NumToTensor", tensor([], &[2.75f32])),
        ] {
            let operator = op(&format!("{kind} i 1 1 0 1"));
            assert_eq!(check(&*operator, std::slice::from_ref(&x))[0], expected, "{kind}");
            // Known before the run.
            let inputs = [ValueSpec::from(x.clone())];
            let value = infer(&*operator, &inputs).unwrap();
            assert_eq!(value[0].as_tensor().unwrap().known, Some(expected));
        }
        let whole = infer(&*op("Tensor.item i 1 1 0 1"), &specs(&[tensor([], &[3i32])])).unwrap();
        assert!(whole[0].as_tensor().is_some_and(|t| t.python && t.dtype() == DType::I64));
        error(&*op("Tensor.item i 1 1 0 1"), &[iota([2])]);
    }

    #[test]
    fn numbers_as_tensors() {
        let y = check(&*op("torch.scalar_tensor s 0 1 0 s=3 dtype=None device=cpu"), &[]);
        assert_eq!(y[0], tensor([], &[3.0f32]));
        let y = check(&*op("torch.scalar_tensor s 0 1 0 s=3 dtype=torch.long"), &[]);
        assert_eq!(y[0], tensor([], &[3i64]));
        let by_input = op("torch.scalar_tensor s 1 1 0 1 $s=0");
        let number = [ValueSpec::python(2i64).unwrap()];
        let y = check_values(&*by_input, &number, &[tensor([], &[2i64])]);
        assert_eq!(y[0], tensor([], &[2.0f32]));
        assert!(!infer(&*by_input, &number).unwrap()[0].as_tensor().unwrap().python);
    }
}

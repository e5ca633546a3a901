//! Into and out of quantised numbers: `torch.quantize_per_tensor`, `nn.quantized.Quantize`,
//! `torch.dequantize`.

use super::{Grid, Quantize, QuantizedType, quantized};
use crate::elementwise::{Elementwise, Formula, Lowering, Term, To};
use crate::{
    Arg, BuildError, FromParameter, NodeReader, Operator, ShapeError, StrideRule, ValueSpec,
    register_op,
};

register_op!(quantize => "torch.quantize_per_tensor");

/// <https://pytorch.org/docs/stable/generated/torch.quantize_per_tensor.html>. pnnx leaves `aten::`
/// in the name, and all arguments as inputs, where scale and zero point are numbers.
fn quantize(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    Ok(Elementwise::boxed(QuantizePerTensor {
        input: r.required_input("input")?,
        scale: argument(r, &["scale", "input_scale"])?,
        zero_point: argument(r, &["zero_point", "input_zero_point"])?,
        dtype: argument(r, &["dtype"])?,
    }))
}

/// The argument of one of these names, be it a parameter or an input, else the next unnamed input.
fn argument<T: FromParameter>(r: &mut NodeReader<'_>, keys: &[&str]) -> Result<Arg<T>, BuildError> {
    for key in keys {
        if let Some(argument) = r.arg(key)? {
            return Ok(argument);
        }
    }
    r.required_input(keys[0]).map(Arg::Input)
}

/// All but the first argument must be known before the run.
#[derive(Debug)]
struct QuantizePerTensor {
    input: usize,
    scale: Arg<Vec<f64>>,
    zero_point: Arg<i64>,
    dtype: Arg<QuantizedType>,
}

impl QuantizePerTensor {
    fn grid(&self, inputs: &[ValueSpec]) -> Result<Grid, ShapeError> {
        let scale = match self.scale.floats(inputs)?[..] {
            [scale] => scale,
            _ => return Err(ShapeError::Invalid("a tensor has one scale".into())),
        };
        let dtype = match self.dtype {
            Arg::Value(dtype) => dtype,
            Arg::Input(input) => {
                let known = inputs.get(input).and_then(ValueSpec::known_ints);
                let number = known.and_then(|ints| ints.first().copied());
                number.and_then(QuantizedType::of_number).ok_or_else(|| ShapeError::NotKnown {
                    input,
                    what: "PyTorch's number of a quantised dtype, 12 to 14".into(),
                })?
            }
        };
        let grid = Grid::new(scale, self.zero_point.int(inputs)?, dtype);
        grid.map_err(|e| ShapeError::Invalid(e.to_string()))
    }
}

impl Formula for QuantizePerTensor {
    fn name(&self) -> &str {
        "quantize"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let grid = self.grid(f.specs())?;
        quantized(f, self.input, &grid)
    }
}

register_op!(module => "nn.quantized.Quantize");

/// `torch.ao.nn.quantized.Quantize`. pnnx writes `dtype=torch.qint8` whatever the module's dtype
/// is: the recorded dtype of the output comes first.
fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let written = r.or("dtype", QuantizedType::Quint8)?;
    let grid = Grid::read(r, ["scale", "zero_point"], written)?;
    Ok(Elementwise::boxed(Quantize { input: r.required_input("input")?, grid }))
}

register_op!(dequantize => "torch.dequantize", "nn.quantized.DeQuantize");

/// <https://pytorch.org/docs/stable/generated/torch.dequantize.html>: the numbers as they are.
fn dequantize(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    Ok(Elementwise::boxed(To {
        input: r.required_input("input")?,
        dtype: None,
        strides: StrideRule::Elementwise,
    }))
}

#[cfg(test)]
mod tests {
    use crate::ValueSpec;
    use crate::testkit::{check, check_values, error, op, tensor, try_op, values};
    use plutino_tensor::Tensor;

    const X: [f32; 10] = [-1e30, -3.0, -0.75, -0.25, 0.25, 0.75, 1.25, 61.0, 100.0, f32::INFINITY];

    fn run(line: &str) -> Vec<f32> {
        values(&check(&*op(line), &[tensor([10], &X)])[0])
    }

    /// PyTorch: `torch.quantize_per_tensor(x, 0.5, 3, dtype).dequantize()`.
    #[test]
    fn rounds_halves_to_even_steps_and_clips() {
        let inner = [-1.0, 0.0, 0.0, 1.0, 1.0];
        let expected = |low: [f32; 2], high: [f32; 3]| [&low[..], &inner, &high].concat();
        let with = |dtype: &str| {
            let parameters = format!("scale=0.5 zero_point=3 dtype={dtype}");
            let y = run(&format!("torch.quantize_per_tensor q 1 1 0 1 {parameters} $input=0"));
            assert_eq!(y, run(&format!("nn.quantized.Quantize q 1 1 0 1 {parameters}")));
            y
        };
        let quint8 = expected([-1.5, -1.5], [61.0, 100.0, 126.0]);
        let qint8 = expected([-65.5, -3.0], [61.0, 62.0, 62.0]);
        assert_eq!(with("torch.quint8"), quint8);
        assert_eq!(with("13"), quint8);
        assert_eq!(with("torch.qint8"), qint8);
        let qint32 = with("torch.qint32");
        assert_eq!(&qint32[1..9], &expected([0.0, -3.0], [61.0, 100.0, 0.0])[1..9]);
        assert_eq!(qint32[0], -1_073_741_824.0);
    }

    #[test]
    fn arguments_may_be_inputs() {
        let lines = [
            "aten::quantize_per_tensor q 4 1 0 1 2 3 4",
            "torch.quantize_per_tensor q 4 1 0 1 2 3 4 $input=0 $input_scale=1 $input_zero_point=2",
        ];
        let x = tensor([10], &X);
        let arguments = |dtype: i64| {
            [
                x.spec().into(),
                ValueSpec::python(0.5).unwrap(),
                ValueSpec::python(3i64).unwrap(),
                ValueSpec::python(dtype).unwrap(),
            ]
        };
        let data: [Tensor; 4] =
            [x.clone(), tensor([], &[0.5f64]), tensor([], &[3i64]), tensor([], &[12i64])];
        for line in lines {
            let y = check_values(&*op(line), &arguments(12), &data);
            let expected =
                run("torch.quantize_per_tensor q 1 1 0 1 scale=0.5 zero_point=3 dtype=12");
            assert_eq!(values::<f32>(&y[0]), expected);
            assert!(op(line).infer(&arguments(6)).is_err()); // f32 is no quantised dtype
        }
    }

    #[test]
    fn the_recorded_dtype_overrules_what_pnnx_always_writes() {
        let line = "nn.quantized.Quantize q 1 1 0 1 scale=0.5 zero_point=3 dtype=torch.qint8";
        assert_eq!(run(&format!("{line} #1=(10)u8"))[8], 100.0);
        assert_eq!(run(&format!("{line} #1=(10)i8"))[8], 62.0);
    }

    #[test]
    fn dequantizing_changes_nothing() {
        for line in ["torch.dequantize d 1 1 0 1 $input=0", "nn.quantized.DeQuantize d 1 1 0 1"] {
            assert_eq!(run(line), X);
        }
    }

    #[test]
    fn bad_grids_are_refused() {
        for bad in [
            "scale=0.0 zero_point=3",
            "scale=-1.0 zero_point=3",
            "scale=nan zero_point=0",
            "scale=1.0e-60 zero_point=0",
            "scale=1.0 zero_point=-1",
            "scale=1.0 zero_point=256",
            "scale=(1.0,2.0) zero_point=0",
            "scale=1.0",
            "zero_point=1",
        ] {
            let line = format!("nn.quantized.Quantize q 1 1 0 1 {bad} dtype=torch.quint8");
            assert!(try_op(&line, &[]).is_err(), "{bad}");
        }
        let line = "nn.quantized.Quantize q 1 1 0 1 scale=1.0 zero_point=0 dtype=torch.float";
        assert!(try_op(line, &[]).is_err());
        let line = "nn.quantized.Quantize q 1 1 0 1 scale=1.0 zero_point=0 dtype=torch.qint8";
        error(&*op(line), &[tensor([1], &[1i64])]);
    }
}

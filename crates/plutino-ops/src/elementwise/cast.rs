//! Conversions of dtype, and operators that change nothing.

use super::{Elementwise, Formula, Lowering, Term};
use crate::support::composite::{Compose, StepText, composed};
use crate::support::several::several;
use crate::{
    BuildError, BuildProblem, NodeReader, Operator, ShapeError, StrideRule, TensorValue,
    register_op,
};
use plutino_ir::Parameter;
use plutino_tensor::DType;

register_op!(to => "Tensor.to");

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.to.html>. Values are immutable here, so
/// that nothing is copied; memory formats are the planner's choice.
fn to(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    for key in ["non_blocking", "device"] {
        r.raw(key);
    }
    let copies = r.raw("copy") == Some(&Parameter::Bool(true));
    let format = memory_format(r);
    let dtype = r.optional::<DType>("dtype")?;
    let strides = match format {
        Some(StrideRule::Elementwise) if !copies => StrideRule::Same(input),
        other => other.unwrap_or_default(),
    };
    Ok(Elementwise::boxed(To { input, dtype, strides }))
}

/// What the parameter `memory_format` says of a copy.
fn memory_format(r: &mut NodeReader<'_>) -> Option<StrideRule> {
    match r.raw("memory_format") {
        None | Some(Parameter::Null) => Some(StrideRule::Elementwise),
        Some(format) => match format.as_str()?.trim_start_matches("torch.") {
            "preserve_format" => Some(StrideRule::Elementwise),
            "contiguous_format" => Some(StrideRule::Contiguous),
            _ => None,
        },
    }
}

/// A tensor in this dtype; without one, as it is.
#[derive(Debug)]
pub(crate) struct To {
    pub(crate) input: usize,
    pub(crate) dtype: Option<DType>,
    /// Where PyTorch puts the result.
    pub(crate) strides: StrideRule,
}

impl Formula for To {
    fn name(&self) -> &str {
        "to"
    }

    fn stride_rule(&self) -> StrideRule {
        self.strides.clone()
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let x = f.input(self.input)?;
        Ok(match self.dtype {
            Some(dtype) => f.cast(x, dtype),
            None => x,
        })
    }
}

register_op!(type_as => "Tensor.type_as");

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.type_as.html>
fn type_as(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, other) = (r.required_input("input")?, r.required_input("other")?);
    Ok(Elementwise::boxed(TypeAs { input, other }))
}

#[derive(Debug)]
struct TypeAs {
    input: usize,
    other: usize,
}

impl Formula for TypeAs {
    fn name(&self) -> &str {
        "type_as"
    }

    fn stride_rule(&self) -> StrideRule {
        StrideRule::Same(self.input) // of the other only the type is asked for
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let x = f.input(self.input)?;
        let dtype = TensorValue::at(f.specs(), self.other)?.dtype(); // only its type is asked for
        Ok(f.cast(x, dtype))
    }
}

register_op!(copy => "Tensor.copy");

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.copy_.html>, without the underscore:
/// `src` in dtype and shape of `self`, whose values are not read.
fn copy(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.raw("non_blocking");
    // PyTorch's schema calls it otherwise than pnnx does.
    let model = match r.named_input("input") {
        Some(at) => at,
        None => r.required_input("self")?,
    };
    let src = r.required_input("src")?;
    // With optlevel 0 and 1, pnnx gives the whole tensor as the result of a write to a part of it,
    // and does not say where the part lies.
    if let (Some(part), Some(whole)) = (r.known_input(model), r.known_output(0))
        && part != whole
    {
        return Err(r.error(BuildProblem::Invalid(
            "it writes to a part of a tensor, and the file does not say to which: export the model \
             with optlevel=2"
                .into(),
        )));
    }
    Ok(Elementwise::boxed(Copy { model, src }))
}

#[derive(Debug)]
struct Copy {
    model: usize,
    src: usize,
}

impl Formula for Copy {
    fn name(&self) -> &str {
        "copy"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let model = TensorValue::at(f.specs(), self.model)?.spec.clone();
        let x = f.input(self.src)?;
        let x = f.cast(x, model.dtype);
        f.expand(x, &model.shape)
    }
}

register_op!(identity =>
    "nn.Identity", "torch.clone", "Tensor.clone", "Tensor.contiguous", "Tensor.detach",
    "nn.Dropout", "nn.Dropout1d", "nn.Dropout2d", "nn.Dropout3d", "nn.AlphaDropout", "nn.FeatureAlphaDropout",
    "torch.dropout", "torch.feature_dropout", "torch.alpha_dropout", "torch.feature_alpha_dropout",
    "F.dropout", "F.dropout1d", "F.dropout2d", "F.dropout3d", "F.alpha_dropout", "F.feature_alpha_dropout");

register_op!(native_dropout => "aten::native_dropout");

/// `(output, mask)` of dropout in inference: the input, and a mask of ones.
fn native_dropout(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.raw("p");
    if r.optional::<bool>("train")? != Some(false) {
        return Err(r.bad("train", "False: plutino only infers"));
    }
    let input = r.required_input("input")?;
    let strides = StrideRule::Same(input);
    let same = Elementwise::boxed(To { input, dtype: None, strides });
    match r.output_count() {
        1 => Ok(same),
        2 => Ok(several("dropout", vec![same, composed(Kept(input))?])),
        found => Err(r.error(BuildProblem::Outputs { expected: "1 or 2".into(), found })),
    }
}

/// The mask of what dropout keeps: everything.
#[derive(Debug)]
struct Kept(usize);

impl Compose for Kept {
    fn name(&self) -> &'static str {
        "dropout.mask"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.0]
    }

    fn steps(&self, _: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        // Whatever is cast to bool and not less than itself.
        let whole = StepText::new("Tensor.to", &["x0"], "whole", "dtype=torch.bool");
        Ok(vec![whole, StepText::new("torch.eq", &["whole", "whole"], "y", "")])
    }
}

/// What is the identity in inference: copies of immutable values, and every dropout.
fn identity(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    for key in ["p", "inplace"] {
        r.raw(key);
    }
    let format = memory_format(r);
    let strides = match r.kind() {
        "Tensor.contiguous" => StrideRule::Dense(input),
        "torch.clone" | "Tensor.clone" => format.unwrap_or_default(),
        _ => StrideRule::Same(input),
    };
    for key in ["training", "train"] {
        if r.raw(key) == Some(&Parameter::Bool(true)) {
            return Err(r.bad(key, "False: plutino only infers"));
        }
    }
    Ok(Elementwise::boxed(To { input, dtype: None, strides }))
}

#[cfg(test)]
mod tests {
    use crate::testkit::{
        check, check_line, check_values, error, op, specs, tensor, try_op, values,
    };
    use crate::{Alias, PackCache, PlanCx, ValueSpec};
    use plutino_kernels::Isa;
    use plutino_tensor::DType;

    #[test]
    fn floats_out_of_range_become_the_least_integer() {
        // As PyTorch on x86-64: i64 by itself, all others by way of i32.
        let x = [f32::NAN, f32::INFINITY, -1e19, 3e9, 300.0, -1.7];
        let to = |dtype: &str, x: plutino_tensor::Tensor| {
            check(&*op(&format!("Tensor.to t 1 1 0 1 dtype=torch.{dtype}")), &[x]).remove(0)
        };
        let (long, int) = (i64::MIN, i32::MIN);
        for x in [tensor([6], &x), tensor([6], &x).cast(DType::F64).unwrap()] {
            let y = tensor([6], &[long, long, long, 3_000_000_000, 300, -1]);
            assert_eq!(to("long", x.clone()), y);
            assert_eq!(to("int", x.clone()), tensor([6], &[int, int, int, int, 300, -1]));
            assert_eq!(to("int16", x.clone()), tensor([6], &[0i16, 0, 0, 0, 300, -1]));
            assert_eq!(to("uint8", x), tensor([6], &[0u8, 0, 0, 0, 44, 255]));
        }
    }

    #[test]
    fn converts_to_the_dtype_asked_for() {
        let x = tensor([3], &[0.0f32, -1.5, 2.7]);
        let line =
            "Tensor.to t 1 1 0 1 copy=False dtype=torch.bool memory_format=torch.preserve_format";
        assert_eq!(
            values::<bool>(&check(&*op(line), std::slice::from_ref(&x))[0]),
            [false, true, true]
        );
        let y = check(&*op("Tensor.to t 1 1 0 1 dtype=torch.int"), std::slice::from_ref(&x));
        assert_eq!(values::<i32>(&y[0]), [0, -1, 2]);
        let y =
            check(&*op("Tensor.type_as t 2 1 0 1 2 $input=0 $other=1"), &[x, tensor([1], &[1i64])]);
        assert_eq!(values::<i64>(&y[0]), [0, -1, 2]);
    }

    #[test]
    fn a_copy_takes_dtype_and_shape_of_what_it_overwrites() {
        let model = tensor([2, 3], &[9i32; 6]);
        let copy = op("Tensor.copy c 2 1 0 1 2 non_blocking=False $self=0 $src=1");
        let y = check(&*copy, &[model.clone(), tensor([3], &[1.5f32, -2.5, 3.0])]);
        assert_eq!(y[0], tensor([2, 3], &[1i32, -2, 3, 1, -2, 3]));
        let y = check(&*copy, &[model.clone(), tensor([2, 1], &[4i32, 5])]);
        assert_eq!(y[0], tensor([2, 3], &[4i32, 4, 4, 5, 5, 5]));
        let same = tensor([2, 3], &[1i32, 2, 3, 4, 5, 6]);
        assert_eq!(check(&*copy, &[model.clone(), same.clone()])[0], same);
        let raw = "aten::copy_ c 3 1 0 1 =False 2";
        assert_eq!(check_line(raw, &[model.clone(), same.clone()])[0], same);
        let number = [model.spec().into(), ValueSpec::python(2.5).unwrap()];
        let y = check_values(&*copy, &number, &[model.clone(), tensor([], &[2.5])]);
        assert_eq!(y[0], tensor([2, 3], &[2i32; 6]));
        error(&*copy, &[model.clone(), tensor([2], &[1i32; 2])]);
        error(&*copy, &[model, tensor([1, 2, 3], &[1i32; 6])]);
    }

    #[test]
    fn what_changes_nothing_is_a_view() {
        let x = tensor([3], &[0.0f32, -1.5, 2.7]);
        for line in [
            "torch.clone t 1 1 0 1 memory_format=torch.channels_last",
            "Tensor.to t 1 1 0 1 dtype=torch.float",
            "nn.Dropout t 1 1 0 1 p=0.5 inplace=False",
            "F.dropout t 1 1 0 1 p=0.5 training=False",
            "torch.positive t 1 1 0 1",
        ] {
            let operator = op(line);
            assert_eq!(check(&*operator, std::slice::from_ref(&x))[0], x, "{line}");
            let inputs = specs(std::slice::from_ref(&x));
            let outputs = operator.infer(&inputs).unwrap();
            let packs = PackCache::default();
            let cx = PlanCx {
                inputs: &inputs,
                outputs: &outputs,
                setting: crate::Setting::new(Isa::best(), 1),
                packs: &packs,
            };
            let planned = operator.plan(&cx).unwrap();
            assert!(planned.kernel.is_none(), "{line}");
            assert_eq!(planned.alias, [Alias::View { input: 0, offset: 0 }], "{line}");
        }
        assert!(try_op("F.dropout t 1 1 0 1 p=0.5 training=True", &[]).is_err());
        assert!(try_op("Tensor.to t 1 1 0 1 dtype=torch.nothing", &[]).is_err());
        assert_eq!(DType::from_name("f32"), Some(DType::F32));
    }

    #[test]
    fn dropout_with_its_mask() {
        let x = tensor([3], &[0.0f32, f32::NAN, -2.0]);
        let y =
            check_line("aten::native_dropout d 3 2 0 =0.5 =False 1 2", std::slice::from_ref(&x));
        assert_eq!(values::<f32>(&y[0])[2], -2.0);
        assert_eq!(y[1], tensor([3], &[true; 3]));
        assert!(try_op("aten::native_dropout d 3 2 0 =0.5 =True 1 2", &[]).is_err());
    }
}

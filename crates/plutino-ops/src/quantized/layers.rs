//! Layers with 8-bit weights: `nn.quantized.Conv2d`, `nn.quantized.Linear`.
//!
//! The weights become f32 numbers when the model is loaded, and the layer is that of `nn.Conv2d` or
//! `nn.Linear`, with all it can absorb. pnnx writes the rounding of the result as an operator of
//! its own, `nn.quantized.Quantize`, which may come after a ReLU; where scale and zero point are
//! the layer's own parameters, the layer rounds.

use super::{Grid, QuantizedType, rounded};
use crate::convolution::conv;
use crate::matrix::linear;
use crate::support::weights::Stored;
use crate::{BuildError, BuildProblem, NodeReader, Operator, Weight, register_op};
use plutino_tensor::{DType, Tensor, TensorSpec};

register_op!(conv2d => "nn.quantized.Conv2d");
register_op!(linear_layer => "nn.quantized.Linear");

/// <https://pytorch.org/docs/stable/generated/torch.ao.nn.quantized.Conv2d.html>
fn conv2d(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let layer = conv::with_weights(r, dequantized)?;
    perhaps_rounded(r, layer)
}

/// <https://pytorch.org/docs/stable/generated/torch.ao.nn.quantized.Linear.html>
fn linear_layer(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let layer = linear::with_weights(r, dequantized)?;
    perhaps_rounded(r, layer)
}

fn perhaps_rounded(
    r: &mut NodeReader<'_>,
    layer: Box<dyn Operator>,
) -> Result<Box<dyn Operator>, BuildError> {
    if !r.has("scale") && !r.has("zero_point") {
        return Ok(layer);
    }
    Ok(rounded(layer, Grid::read(r, ["scale", "zero_point"], QuantizedType::Quint8)?))
}

const SCALES: &str = "weight.q_per_channel_scales";
const ZERO_POINTS: &str = "weight.q_per_channel_zero_points";

/// The weight of this shape as f32, and the bias.
fn dequantized(r: &mut NodeReader<'_>, shape: &[usize]) -> Result<Stored, BuildError> {
    // pnnx asks the module for an attribute `bias`, which is a method there: the parameter is
    // always False.
    r.raw("bias");
    let bias = r.weight_if(r.has_weight("bias"), "bias", &shape[..1])?;
    let weight = r.weight("weight", shape)?;
    match weight.spec.dtype {
        DType::F32 if !r.has_weight(SCALES) => return Ok((weight, bias)), // numbers already
        DType::I8 | DType::U8 if r.has_weight(SCALES) => {}
        DType::I8 | DType::U8 => {
            return Err(r.error(BuildProblem::Invalid(format!(
                "weight '@{SCALES}' is missing: pnnx does not store the scale of weights that were quantised per \
                 tensor; quantise them per channel"
            ))));
        }
        _ => {
            let (expected, found) = ("of dtype i8 or u8".into(), weight.spec.to_string());
            return Err(r.error(BuildProblem::BadWeight { key: "weight".into(), expected, found }));
        }
    }
    let parameters = [r.weight(SCALES, &shape[..1])?, r.weight(ZERO_POINTS, &shape[..1])?];
    let spec = TensorSpec::new(DType::F32, shape);
    let numbers = match weight.is_loaded() {
        true => Some(numbers(&weight, &parameters).map_err(|e| r.error(e.into()))?),
        false => None,
    };
    Ok((Weight::computed(weight.name, spec, numbers), bias))
}

/// (q - zero point) x scale, of each output channel its own: computed in f32, as PyTorch does.
fn numbers(
    weight: &Weight,
    [scales, zero_points]: &[Weight; 2],
) -> Result<Tensor, crate::PlanError> {
    let f32s =
        |w: &Weight| -> Result<Tensor, crate::PlanError> { Ok(w.tensor()?.cast(DType::F32)?) };
    let (mut numbers, scales, zero_points) = (f32s(weight)?, f32s(scales)?, f32s(zero_points)?);
    let (scales, zero_points) = (scales.as_slice::<f32>()?, zero_points.as_slice::<f32>()?);
    let values = numbers.as_mut_slice::<f32>()?;
    let per_channel = (values.len() / scales.len().max(1)).max(1);
    let channels = values.chunks_exact_mut(per_channel).zip(scales.iter().zip(zero_points));
    for (channel, (scale, zero_point)) in channels {
        for x in channel {
            *x = (*x - zero_point) * scale;
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, op_with, tensor, try_op};
    use plutino_tensor::Tensor;

    const CONV: &str = "nn.quantized.Conv2d c 1 1 0 1 bias=False dilation=(1,1) groups=1 in_channels=2 \
         kernel_size=(2,2) out_channels=2 padding=(1,0) padding_mode=zeros stride=(1,1)";

    fn conv_weights() -> [(&'static str, Tensor); 4] {
        let q: [i8; 16] = [1, -2, 3, 4, 5, -6, 7, 8, -1, 0, 2, 1, 0, 3, -4, 2];
        [
            ("weight", tensor([2, 2, 2, 2], &q)),
            ("bias", tensor([2], &[0.5f32, -1.0])),
            ("weight.q_per_channel_scales", tensor([2], &[0.5f64, 0.25])),
            ("weight.q_per_channel_zero_points", tensor([2], &[0i64, 0])),
        ]
    }

    /// PyTorch's quantised input and result of that convolution, of scale 0.75 and zero point 20.
    fn conv_case() -> (Tensor, Tensor) {
        let x = [
            -2.0f32, -1.75, -1.375, -1.125, -0.75, -0.5, -0.25, 0.125, 0.375, //
            0.75, 1.0, 1.25, 1.625, 1.875, 2.25, 2.5, 2.75, 3.125,
        ];
        let y = [
            0.75f32, 3.75, 10.5, 13.5, 18.75, 21.75, -1.5, -2.25, //
            -3.0, -2.25, -1.5, -0.75, -0.75, 0.0, 1.5, 1.5,
        ];
        (tensor([1, 2, 3, 3], &x), tensor([1, 2, 4, 2], &y))
    }

    #[test]
    fn a_convolution_rounds_its_result() {
        let (x, expected) = conv_case();
        let conv = op_with(&format!("{CONV} scale=0.75 zero_point=20"), &conv_weights());
        assert_close(&check(&*conv, &[x])[0], &expected, 0.0);
    }

    #[test]
    fn without_a_scale_the_next_operator_rounds() {
        let (x, expected) = conv_case();
        let exact = check(&*op_with(CONV, &conv_weights()), &[x]).remove(0);
        assert_close(&exact, &expected, 0.375); // half a step
        let quantize =
            "nn.quantized.Quantize q 1 1 0 1 scale=0.75 zero_point=20 dtype=torch.quint8";
        assert_close(&check(&*crate::testkit::op(quantize), &[exact])[0], &expected, 0.0);
    }

    #[test]
    fn a_linear_layer_rounds_its_result() {
        let line =
            "nn.quantized.Linear l 1 1 0 1 in_features=3 out_features=2 scale=0.1 zero_point=30";
        let weights = [
            ("weight", tensor([2, 3], &[1i8, -2, 3, 4, 5, -6])),
            ("bias", tensor([2], &[0.5f32, -1.0])),
            ("weight.q_per_channel_scales", tensor([2], &[0.5f64, 0.25])),
            ("weight.q_per_channel_zero_points", tensor([2], &[0i64, 0])),
        ];
        let x = tensor([2, 3], &[0.25f32, 1.125, -0.75, 2.0, -1.0, 0.125]);
        // PyTorch's. 0.1 is no f32: neither are its multiples.
        let expected = tensor([2, 2], &[-1.6f32, 1.8, 2.7, -0.4]);
        assert_close(&check(&*op_with(line, &weights), &[x])[0], &expected, 1e-6);
    }

    #[test]
    fn zero_points_and_float_weights() {
        let line = "nn.quantized.Linear l 1 1 0 1 in_features=2 out_features=1";
        let x = tensor([1, 2], &[1.0f32, 10.0]);
        let quantized = [
            ("weight", tensor([1, 2], &[3u8, 4])),
            ("weight.q_per_channel_scales", tensor([1], &[0.5f64])),
            ("weight.q_per_channel_zero_points", tensor([1], &[2i64])),
        ];
        let y = check(&*op_with(line, &quantized), std::slice::from_ref(&x));
        assert_eq!(y[0], tensor([1, 1], &[10.5f32]));
        let y = check(&*op_with(line, &[("weight", tensor([1, 2], &[0.5f32, 1.0]))]), &[x]);
        assert_eq!(y[0], tensor([1, 1], &[10.5f32]));
    }

    #[test]
    fn weights_without_their_scales_are_refused() {
        let error = try_op(CONV, &conv_weights()[..2]).unwrap_err().to_string();
        assert!(error.contains("q_per_channel_scales"), "{error}");
        assert!(try_op(CONV, &conv_weights()[..3]).is_err());
        let mut floats = conv_weights();
        floats[0].1 = tensor([2, 2, 2, 2], &[1.0f32; 16]);
        let error = try_op(CONV, &floats).unwrap_err().to_string();
        assert!(error.contains("i8 or u8"), "{error}");
    }
}

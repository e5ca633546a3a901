//! Transposed convolution: `nn.ConvTranspose1d`, `nn.ConvTranspose2d`, `nn.ConvTranspose3d` and
//! `F.conv_transpose1d`, `F.conv_transpose2d`, `F.conv_transpose3d`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html>

use crate::convolution::conv::{Conv, Padding, spatial_dims};
use crate::support::weighted::Weighted;
use crate::support::weights::Source;
use crate::{BuildError, NodeReader, Operator, register_op};
use plutino_kernels::conv::PadMode;

register_op!(module => "nn.ConvTranspose1d", "nn.ConvTranspose2d", "nn.ConvTranspose3d");
register_op!(function => "F.conv_transpose1d", "F.conv_transpose2d", "F.conv_transpose3d");

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = spatial_dims(r)?;
    let (inp, out): (usize, usize) = (r.required("in_channels")?, r.required("out_channels")?);
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 || inp % groups != 0 || out % groups != 0 {
        return Err(r.bad("groups", format!("a divisor of {inp} and {out} channels")));
    }
    let mut shape = vec![inp, out / groups];
    shape.extend(r.sizes("kernel_size", dims, 1, None)?);
    r.one_of("padding_mode", &[("zeros", ())], Some(()))?;
    let bias = r.or("bias", true)?;
    let weight = Source::Stored(r.weight("weight", &shape)?);
    let bias = r.weight_if(bias, "bias", &[out])?.map(Source::Stored);
    common(r, dims, groups, |r| Ok(Weighted::new(r.required_input("input")?, weight, bias)))
}

fn function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = spatial_dims(r)?;
    functional(r, dims)
}

/// A function whose weights are inputs.
pub(crate) fn functional(
    r: &mut NodeReader<'_>,
    dims: usize,
) -> Result<Box<dyn Operator>, BuildError> {
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 {
        return Err(r.bad("groups", "a positive integer"));
    }
    common(r, dims, groups, Weighted::of_function)
}

/// What modules and functions share.
fn common(
    r: &mut NodeReader<'_>,
    dims: usize,
    groups: usize,
    weights: impl FnOnce(&mut NodeReader<'_>) -> Result<Weighted, BuildError>,
) -> Result<Box<dyn Operator>, BuildError> {
    let stride = r.sizes("stride", dims, 1, Some(1))?;
    let padding = r.sizes("padding", dims, 0, Some(0))?.into_iter().map(|p| (p, p)).collect();
    let output_padding = r.sizes("output_padding", dims, 0, Some(0))?;
    Ok(Box::new(Conv {
        dims,
        stride,
        padding: Padding::Sizes(padding),
        dilation: r.sizes("dilation", dims, 1, Some(1))?,
        groups,
        mode: PadMode::Zeros,
        transposed: Some(output_padding),
        keeps_f32: false,
        weighted: weights(r)?,
    }))
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, op, random, tensor, try_op, values};
    use plutino_tensor::DType;

    #[test]
    fn windows_add_up_at_their_places() {
        let line = "F.conv_transpose1d c 3 1 0 1 2 9 stride=(2) padding=(1) output_padding=(1)";
        let x = tensor([1, 1, 3], &[1.0f32, 2.0, 3.0]);
        let w = tensor([1, 1, 3], &[1.0f32, 10.0, 100.0]);
        let y = check(&*op(line), &[x, w, tensor([1], &[0.5f32])]);
        // 1 10 100+2 20 200+3 30 300, without the first and the last, and one more
        assert_eq!(values::<f32>(&y[0]), [10.5, 102.5, 20.5, 203.5, 30.5, 300.5]);
        assert_eq!(y[0].shape().dims(), [1, 1, 6]);
    }

    #[test]
    fn other_dtypes_agree_with_f32() {
        let conv = op("F.conv_transpose2d c 2 1 0 1 9 bias=None stride=(2,1) groups=2");
        let inputs = [random([4, 3, 4], 1), random([4, 3, 2, 3], 2)];
        let expected = check(&*conv, &inputs);
        assert_eq!(expected[0].shape().dims(), [6, 6, 6]);
        let wide = inputs.map(|t| t.cast(DType::F64).unwrap());
        let found = check(&*conv, &wide)[0].cast(DType::F32).unwrap();
        assert_close(&found, &expected[0], 12.0 * 12.0 * f32::EPSILON);
    }

    #[test]
    fn what_does_not_suit_is_an_error() {
        let line = "nn.ConvTranspose2d c 1 1 0 9 in_channels=4 out_channels=6 kernel_size=(3,3)";
        let text = try_op(&format!("{line} padding_mode=reflect"), &[]).unwrap_err().to_string();
        assert!(text.contains("'padding_mode' must be one of zeros"), "{text}");
        let conv = op("F.conv_transpose1d c 2 1 0 1 9 bias=None stride=(2) output_padding=(2)");
        error(&*conv, &[random([1, 1, 3], 1), random([1, 1, 3], 2)]);
        error(&*conv, &[random([1, 2, 3], 1), random([1, 1, 3], 2)]);
    }
}

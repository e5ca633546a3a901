//! Decoding of the pooling operators.

use super::{Indices, Kind, Pool, Windows};
use crate::{BuildError, BuildProblem, NodeReader, Operator, register_op};
use plutino_kernels::pool::{Divisor, Sliding};

/// Spatial dimensions, by the type's name: `nn.MaxPool2d`.
pub(super) fn rank(r: &NodeReader<'_>) -> usize {
    match r.kind() {
        k if k.contains("1d") => 1,
        k if k.contains("2d") => 2,
        _ => 3,
    }
}

fn pool(
    r: &mut NodeReader<'_>,
    windows: Windows,
    kind: Kind,
) -> Result<Box<dyn Operator>, BuildError> {
    Ok(Box::new(Pool { input: r.required_input("input")?, windows, kind }))
}

/// The parameters that all sliding windows share; `stride=None` is the kernel size.
fn sliding(r: &mut NodeReader<'_>, padded: bool, dilated: bool) -> Result<Windows, BuildError> {
    let rank = rank(r);
    let kernel = r.sizes("kernel_size", rank, 1, None)?;
    let stride = if matches!(r.raw("stride"), None | Some(plutino_ir::Parameter::Null)) {
        kernel.clone()
    } else {
        r.sizes("stride", rank, 1, None)?
    };
    let padding = if padded { r.sizes("padding", rank, 0, Some(0))? } else { vec![0; rank] };
    let dilation = if dilated { r.sizes("dilation", rank, 1, Some(1))? } else { vec![1; rank] };
    let ceil_mode = r.or("ceil_mode", false)?;
    let window = |a| Sliding {
        kernel: kernel[a],
        stride: stride[a],
        padding: padding[a],
        dilation: dilation[a],
        ceil_mode,
    };
    Ok(Windows::Sliding((0..rank).map(window).collect()))
}

/// `return_indices`: a second output, or, where the node has one output, a tuple.
fn indices(r: &mut NodeReader<'_>) -> Result<Indices, BuildError> {
    match (r.or("return_indices", false)?, r.output_count()) {
        (false, 1) => Ok(Indices::No),
        (true, 2) => Ok(Indices::Second),
        (true, 1) => Ok(Indices::Tuple),
        (asked, found) => {
            let expected = if asked { "1 or 2" } else { "1" }.into();
            Err(r.error(BuildProblem::Outputs { expected, found }))
        }
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html>
fn max(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (windows, indices) = (sliding(r, true, true)?, indices(r)?);
    pool(r, windows, Kind::Max(indices))
}
register_op!(max => "nn.MaxPool1d", "nn.MaxPool2d", "nn.MaxPool3d", "F.max_pool1d", "F.max_pool2d", "F.max_pool3d");

/// <https://pytorch.org/docs/stable/generated/torch.nn.AvgPool2d.html>
fn average(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let windows = sliding(r, true, false)?;
    let count_include_pad = r.or("count_include_pad", true)?;
    let divisor = match r.optional::<i64>("divisor_override")? {
        Some(0) => return Err(r.bad("divisor_override", "None, or an integer other than 0")),
        Some(n) => Divisor::Fixed(n),
        None if count_include_pad => Divisor::Padded,
        None => Divisor::Inputs,
    };
    pool(r, windows, Kind::Average(divisor))
}
register_op!(average => "nn.AvgPool1d", "nn.AvgPool2d", "nn.AvgPool3d", "F.avg_pool1d", "F.avg_pool2d", "F.avg_pool3d");

/// <https://pytorch.org/docs/stable/generated/torch.nn.LPPool2d.html>
fn power(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let windows = sliding(r, false, false)?;
    let p: f64 = r.required("norm_type")?;
    if p == 0.0 {
        return Err(r.bad("norm_type", "a number other than 0"));
    }
    pool(r, windows, Kind::Power(p))
}
register_op!(power => "nn.LPPool1d", "nn.LPPool2d", "nn.LPPool3d", "F.lp_pool1d", "F.lp_pool2d", "F.lp_pool3d");

/// `output_size`, where PNNX writes 0 for None in more than one dimension.
fn adaptive(r: &mut NodeReader<'_>) -> Result<Windows, BuildError> {
    let rank = rank(r);
    let sizes = r.sizes("output_size", rank, 0, None)?;
    let size = |n: usize| (rank == 1 || n > 0).then_some(n);
    Ok(Windows::Adaptive(sizes.into_iter().map(size).collect()))
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html>
fn adaptive_average(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let windows = adaptive(r)?;
    pool(r, windows, Kind::Average(Divisor::Inputs))
}
register_op!(adaptive_average => "nn.AdaptiveAvgPool1d", "nn.AdaptiveAvgPool2d", "nn.AdaptiveAvgPool3d",
    "F.adaptive_avg_pool1d", "F.adaptive_avg_pool2d", "F.adaptive_avg_pool3d");

/// <https://pytorch.org/docs/stable/generated/torch.nn.AdaptiveMaxPool2d.html>
fn adaptive_max(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (windows, indices) = (adaptive(r)?, indices(r)?);
    pool(r, windows, Kind::Max(indices))
}
register_op!(adaptive_max => "nn.AdaptiveMaxPool1d", "nn.AdaptiveMaxPool2d", "nn.AdaptiveMaxPool3d",
    "F.adaptive_max_pool1d", "F.adaptive_max_pool2d", "F.adaptive_max_pool3d");

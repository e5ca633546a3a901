//! Names that PyTorch, ONNX and other libraries have for operators which are registered under
//! another one: hints for whoever meets an unsupported type.

/// A name without namespace, in small letters and without underscores, and the type that it means.
#[rustfmt::skip]
const MEANINGS: &[(&str, &str)] = &[
    // PyTorch's own second names, and those of Python's operators.
    ("absolute", "torch.abs"),
    ("adaptiveavgpool", "nn.AdaptiveAvgPool2d"),
    ("addbmm", "torch.baddbmm"),
    ("arccos", "torch.acos"),
    ("arccosh", "torch.acosh"),
    ("arcsin", "torch.asin"),
    ("arcsinh", "torch.asinh"),
    ("arctan", "torch.atan"),
    ("arctan2", "torch.atan2"),
    ("arctanh", "torch.atanh"),
    ("clip", "torch.clamp"),
    ("concat", "torch.cat"),
    ("concatenate", "torch.cat"),
    ("divide", "torch.div"),
    ("fix", "torch.trunc"),
    ("greater", "torch.gt"),
    ("greaterequal", "torch.ge"),
    ("less", "torch.lt"),
    ("lessequal", "torch.le"),
    ("moveaxis", "torch.permute"),
    ("movedim", "torch.permute"),
    ("multiply", "torch.mul"),
    ("negative", "torch.neg"),
    ("notequal", "torch.ne"),
    ("numpyt", "torch.t"),
    ("swapaxes", "torch.transpose"),
    ("swapdims", "torch.transpose"),
    ("subtract", "torch.sub"),
    ("truedivide", "torch.div"),
    ("view", "Tensor.reshape"),
    ("viewas", "Tensor.reshape"),
    ("reshapeas", "Tensor.reshape"),
    ("scaleddotproductattention", "F.scaled_dot_product_attention"),
    ("outer", "torch.einsum"),
    ("ger", "torch.einsum"),
    ("inner", "torch.einsum"),
    ("tensordot", "torch.einsum"),
    ("linearalgnorm", "torch.norm"),
    ("vectornorm", "torch.norm"),
    ("frobeniusnorm", "torch.norm"),
    // Modules that compute in inference what another one does.
    ("syncbatchnorm", "nn.BatchNorm2d"),
    ("frozenbatchnorm2d", "nn.BatchNorm2d"),
    ("batchnormalization", "nn.BatchNorm2d"),
    ("lazyconv1d", "nn.Conv1d"),
    ("lazyconv2d", "nn.Conv2d"),
    ("lazyconv3d", "nn.Conv3d"),
    ("lazylinear", "nn.Linear"),
    ("noneddynamicallyquantizablelinear", "nn.Linear"),
    ("nondynamicallyquantizablelinear", "nn.Linear"),
    ("swish", "nn.SiLU"),
    ("newgelu", "nn.GELU"),
    ("quickgelu", "nn.GELU"),
    ("fastgelu", "nn.GELU"),
    ("hardswishactivation", "nn.Hardswish"),
    ("clippedrelu", "nn.Hardtanh"),
    ("relun", "nn.Hardtanh"),
    ("upsamplingnearest2d", "nn.Upsample"),
    ("upsamplingbilinear2d", "nn.Upsample"),
    // ONNX, which pnnx's other front-end may leave as it is.
    ("gemm", "F.linear"),
    ("conv", "nn.Conv2d"),
    ("convtranspose", "nn.ConvTranspose2d"),
    ("globalaveragepool", "nn.AdaptiveAvgPool2d"),
    ("globalmaxpool", "nn.AdaptiveMaxPool2d"),
    ("averagepool", "nn.AvgPool2d"),
    ("maxpool", "nn.MaxPool2d"),
    ("reducemax", "torch.amax"),
    ("reducemin", "torch.amin"),
    ("reducemean", "torch.mean"),
    ("reducesum", "torch.sum"),
    ("reduceprod", "torch.prod"),
    ("reducel2", "torch.norm"),
    ("reducelogsumexp", "torch.logsumexp"),
    ("resize", "F.interpolate"),
    ("upsample", "F.interpolate"),
    ("cast", "Tensor.to"),
    ("gathernd", "Tensor.index"),
    ("gatherelements", "torch.gather"),
    ("scatternd", "Tensor.index_put"),
    ("instancenormalization", "nn.InstanceNorm2d"),
    ("layernormalization", "nn.LayerNorm"),
    ("groupnormalization", "nn.GroupNorm"),
    ("tile", "Tensor.repeat"),
    ("identity", "nn.Identity"),
];

/// A type without its namespace, in small letters and without underscores: what spellings of one
/// name share.
pub(super) fn bare(kind: &str) -> String {
    let name = kind.rsplit([':', '.']).next().unwrap_or(kind);
    name.chars().filter(|&c| c != '_').flat_map(char::to_lowercase).collect()
}

/// The types that a bare name may mean, the likeliest first.
pub(super) fn meanings(bare: &str) -> impl Iterator<Item = &'static str> + '_ {
    MEANINGS.iter().filter(move |(name, _)| *name == bare).map(|(_, kind)| *kind)
}

/// Every type that the table names.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    MEANINGS.iter().map(|(_, kind)| *kind)
}

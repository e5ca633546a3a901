//! How much of a machine each sort of kernel reaches: one table, a row for each.

/// A sort of kernel: those whose names begin alike.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Family {
    /// What the names begin with; of several that fit, the longest counts.
    pub prefix: &'static str,
    /// The rate of its arithmetic, as a share of the peak. More than 1 where an algorithm computes
    /// less than it is counted for, as Winograd's do.
    pub efficiency: f64,
    /// Whether threads share the work of one step.
    pub shares: bool,
}

const fn row(prefix: &'static str, efficiency: f64) -> Family {
    Family { prefix, efficiency, shares: true }
}

const fn serial(prefix: &'static str, efficiency: f64) -> Family {
    Family { prefix, efficiency, shares: false }
}

/// Whatever is not in the table.
const OTHER: Family = row("", 0.01);

/// The table. Figures were fitted to the models of docs/cost.md on Zen 4 with AVX-512; A
/// machine that was measured puts its own in their place.
#[rustfmt::skip]
pub(super) const TABLE: &[Family] = &[
    row("attention", 0.92),
    row("attention.avx512_bf16", 1.2),
    row("attention.multihead.avx512_bf16", 1.4),
    row("channels", 0.2),
    row("conv.depthwise", 0.55),
    row("conv.direct", 0.9),
    row("conv.direct_bf16", 1.5),
    row("conv.first_layer", 0.83),
    row("conv.gemm", 0.9),
    row("conv.grouped", 0.4),
    row("conv.im2col", 0.7),
    row("conv.phases", 0.75),
    row("conv.phases_bf16", 1.4),
    row("conv.phases_tiles", 1.3),
    row("conv.pointwise", 0.91),
    row("conv.pointwise_bf16", 1.5),
    row("conv.single_pixel", 0.9),
    row("conv.tiles", 1.3),
    row("conv.transposed", 0.7),
    row("conv.winograd2x2_3x3", 1.3),
    row("conv.winograd4x4_3x3", 2.6),
    row("conv.winograd4x4_3x3_plain", 1.26),
    row("conv.winograd4x4_3x3s2", 1.34),
    row("conv.winograd4x4_4x4", 1.6),
    row("conv.winograd5x5_3x3", 3.15),
    row("copy", 0.1),
    row("deform_conv", 0.2),
    row("detect", 0.48),
    row("elementwise", 0.1),
    row("gemm", 0.92),
    row("gemm.avx512_bf16", 1.6),
    row("group_norm", 0.19),
    row("normalize_rows", 0.19),
    row("pool.average", 0.17),
    row("pool.max", 0.3),
    row("recurrent", 0.6),
    row("reorder", 0.1),
    row("resize", 0.05),
    row("softmax", 0.06),
    serial("append", 0.1),
];

/// The family of a kernel. A convolution whose channels are scaled is of that without.
pub(super) fn of(kernel: &str) -> &'static Family {
    let fits = |prefix: &str| match kernel.strip_prefix("conv.scaled_") {
        Some(rest) => prefix.strip_prefix("conv.").is_some_and(|prefix| rest.starts_with(prefix)),
        None => kernel.starts_with(prefix),
    };
    let fitting = TABLE.iter().filter(|family| fits(family.prefix));
    fitting.max_by_key(|family| family.prefix.len()).unwrap_or(&OTHER)
}

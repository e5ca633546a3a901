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

/// The table. Figures were fitted to models of docs/cost.md on Zen 4 with AVX-512.
#[rustfmt::skip]
pub(super) const TABLE: &[Family] = &[
    row("conv.direct", 0.6),
    row("conv.im2col", 0.5),
    row("conv.winograd", 1.2),
    row("conv.depthwise", 0.15),
    serial("append", 0.01),
];

/// The family of a kernel.
pub(super) fn of(kernel: &str) -> &'static Family {
    let fitting = TABLE.iter().filter(|family| kernel.starts_with(family.prefix));
    fitting.max_by_key(|family| family.prefix.len()).unwrap_or(&OTHER)
}

//! Products of matrices, linear layers, Einstein sums, factorisations.

pub(crate) mod add_products;
pub(crate) mod cross;
pub(crate) mod einsum;
pub(crate) mod grouped_mm;
#[cfg(feature = "linalg")]
pub(crate) mod linalg;
pub(crate) mod linear;
pub(crate) mod matmul;
pub(crate) mod products;

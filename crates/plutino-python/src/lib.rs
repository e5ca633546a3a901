//! The native half of the Python package `plutino`.
//!
//! What a user of Python sees is written in Python (`python/plutino`): arguments of many kinds,
//! names, pickling, asyncio. It asks this module for what only Rust can do, in a few plain types:
//! bytes of arrays, names, numbers.
//!
//! Nothing here is unsafe. Arrays come in as slices of bytes, which the crate `numpy` lends;
//! results go out by NumPy's array interface ([`memory`]).
#![forbid(unsafe_code)]

mod errors;
mod interrupt;
mod memory;
mod report;
mod session;
mod state;

use pyo3::prelude::*;

/// What the Python half of the package is built on; not for users.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::interrupt::{CancelToken, forked};
    #[pymodule_export]
    use crate::memory::TensorMemory;
    #[pymodule_export]
    use crate::session::{NativeHandle, NativeSession, isas};
    #[pymodule_export]
    use crate::state::NativeState;
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}

//! Running a plan: what is fed and fetched, one loop over the steps, and who looks on.
//!
//! | module | what |
//! |---|---|
//! | [`request`], [`bind`] | what is fed and fetched, by name or position; values and specs of it |
//! | [`exec`], [`phases`], [`given`] | the loop over steps; chains side by side; a single step |
//! | [`late`] | operators whose inputs' shapes depend on data |
//! | [`store`] | tensors that stay between runs |
//! | [`watch`], [`profile`], [`verify`] | values between steps, times, a run without data |

pub(crate) mod bind;
pub(crate) mod exec;
pub(crate) mod given;
pub(crate) mod late;
pub(crate) mod phases;
pub(crate) mod profile;
pub(crate) mod request;
pub(crate) mod store;
pub(crate) mod verify;
pub(crate) mod watch;

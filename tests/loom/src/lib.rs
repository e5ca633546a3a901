//! The hand-written concurrency of `crates/plutino-cpu/src/par`, tried by loom in all interleavings
//! of two or three threads that differ in at most a few preemptions:
//!
//! ```text
//! cargo xtask loom
//! ```
//!
//! The files themselves are compiled here; what they are made of (atomics, memory that threads
//! share, the scope of a thread) is loom's instead of the standard library's. What is tried:
//!
//! - *Share*: its owner takes tasks from the front while another thread takes them from the back:
//!   each task is taken once, also the last one, which both want.
//! - *Region*: a job is published, joined (or not, or too late), closed and followed by another
//!   one, and dismissed while workers wait or work: each task runs once, under a number of its own;
//!   what tasks wrote is seen by the caller, what the caller wrote by tasks; job and scope are never
//!   read while they are written, and nothing is read of a job that is over. A panic of a task
//!   reaches the caller, whoever ran it. A job inside a task is run by the thread that has it.
//! - *Stop signal*: given at any moment by another thread. Where a task was left out, the caller
//!   sees it when the job is done; where it sees nothing, all tasks ran. A worker looks at the
//!   signal of the job that it is in, and at that of no other.
//!
//! What is not: where threads come from, and progress without preemption (workers spin).
#![cfg(test)]
#![deny(unsafe_code)]

/// In the place of `plutino_tensor`'s and the standard library's parts.
mod sync;

#[path = "../../../crates/plutino-cpu/src/par/grid.rs"]
#[allow(dead_code)]
mod grid;
#[path = "../../../crates/plutino-tensor/src/stop/latch.rs"]
mod latch;
#[path = "../../../crates/plutino-cpu/src/par/region.rs"]
#[allow(dead_code, unsafe_code)]
mod region;
#[path = "../../../crates/plutino-cpu/src/par/share.rs"]
mod share;

/// As `plutino_tensor::stop::Why`, which the latch keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)]
enum Why {
    Cancelled,
    Deadline,
}

#[allow(unsafe_code)] // memory of tasks, as kernels share it
mod models;

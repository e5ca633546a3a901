//! The hand-written concurrency of `crates/plutino-cpu/src/par`, and of the runtime's rendezvous
//! and queues, tried by loom in all interleavings of two or three threads that differ in at most a
//! few preemptions:
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
//! - *Monitor*: who waits sees a change or is told of it, and a token that is cancelled at any
//!   moment ends the wait. Where a wake-up were lost, loom would find threads that wait for ever.
//! - *Rendezvous*: values come in their order, each once, past senders that wait for room; an abort
//!   reaches whoever waits.
//! - *Line* of a queue: each request is run once or withdrawn once, by itself or with others, also
//!   when the queue is closed; the workers end.
//! - *Ticket*: of several results the first counts; who polled without one is woken.
//!
//! What is not: where threads come from, and progress without preemption (workers spin).
#![cfg(test)]
#![deny(unsafe_code)]

/// In the place of `plutino_tensor`'s and the standard library's parts.
mod sync;

#[path = "../../../crates/plutino-runtime/src/queue/line.rs"]
#[allow(dead_code)]
mod line;
#[path = "../../../crates/plutino-runtime/src/monitor.rs"]
#[allow(dead_code)]
mod monitor;
#[path = "../../../crates/plutino-runtime/src/rendezvous/table.rs"]
#[allow(dead_code)]
mod table;
#[path = "../../../crates/plutino-runtime/src/queue/ticket.rs"]
#[allow(dead_code)]
mod ticket;

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
mod waits;

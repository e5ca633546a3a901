//! Kernels at the sizes of real networks, each as a share of what the machine can do at best.
//!
//! ```text
//! cargo bench -p plutino-kernels                      # everything, on one core and on all
//! cargo bench -p plutino-kernels -- 'gemm'            # what the regular expression finds in the names
//! cargo bench -p plutino-kernels -- '1 thread' --quick
//! ```
//! `thrpt` says GFLOP/s and the share of the multiply-add peak, or GB/s and the share of the
//! bandwidth at which as many bytes are copied. `yardstick.rs` measures both beside each benchmark,
//! on the same threads.

// Benchmarks whose sizes are wrong have no result.
#![allow(clippy::expect_used)]

mod conv;
mod gemm;
mod stream;
mod suite;
mod yardstick;

use plutino_kernels::Pool;
use suite::Suite;

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads = vec![1, cores];
    threads.dedup();
    for threads in threads {
        Pool::new(threads).enter(|par| {
            let mut suite = Suite::new(par);
            gemm::products(&mut suite);
            conv::convolutions(&mut suite);
            conv::depthwise(&mut suite);
            stream::rows(&mut suite);
            stream::elementwise(&mut suite);
        });
    }
}

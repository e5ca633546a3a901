//! Files that the command line names, one of which may be standard input.

use crate::failure::Failure;
use plutino::ir;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most that is read of standard input.
const MOST_BYTES: u64 = 1 << 30;

/// The bytes of a regular file, or of standard input where the path is `-`.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let read = match path.as_os_str() == "-" {
        true if TAKEN.swap(true, Ordering::Relaxed) => {
            return Err(asked_twice());
        }
        true => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().take(MOST_BYTES).read_to_end(&mut bytes).map(|_| bytes)
        }
        false => ir::read_regular(path),
    };
    read.map_err(|e| Failure::usage(format!("cannot read '{}': {e}", path.display())))
}

pub(crate) fn asked_twice() -> Failure {
    Failure::usage("-: standard input is one file, and is asked for twice")
}

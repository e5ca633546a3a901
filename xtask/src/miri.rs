//! `cargo xtask miri`: what is unsafe below the kernels, interpreted.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Run the tests of ir, tensor and the arena in miri
///
/// Needs a nightly toolchain with it: rustup toolchain install nightly --component miri,rust-src
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The toolchain.
    #[arg(long, default_value = "nightly")]
    toolchain: String,
}

/// Packages, the part of their tests whose names begin so, and tests that are left out.
const SELECTIONS: &[(&str, &str, &[&str])] = &[
    ("plutino-tensor", "", ASKS_TOO_MUCH),
    ("plutino-ir", "", LONG),
    ("plutino-runtime", "arena", &[]),
];

/// Miri ends where it is asked for more memory than there is, and knows no `madvise`, by which the
/// pages of buffers of 128 KiB and more are asked for at once.
const ASKS_TOO_MUCH: &[&str] =
    &["sizes_beyond_memory_are_errors", "buffer::tests::aligned_and_zero"];

/// They make texts, lists or graphs of 100,000 parts to see what becomes of those, which takes
/// minutes each.
const LONG: &[&str] = &[
    "growth_is_counted_before_memory_is_taken",
    "recursion_is_refused_with_its_chain",
    "literal::tests::nonsense_is_refused",
    "nesting_is_bounded",
    "depth_is_no_limit",
];

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    for (package, filter, skipped) in SELECTIONS {
        let mut command = Command::new("cargo");
        command.arg(format!("+{}", args.toolchain));
        command.args(["miri", "test", "--locked", "--lib", "-p", package, "--", filter]);
        command.args(skipped.iter().flat_map(|name| ["--skip", name]));
        let status = command
            .current_dir(root)
            .env("CARGO_TARGET_DIR", root.join("target/miri"))
            // Files are read; sines and logarithms are not off by random bits.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-deterministic-floats")
            .env("PROPTEST_CASES", "4")
            .status()
            .context("cargo")?;
        ensure!(status.success(), "miri of {package}: {status}");
    }
    Ok(())
}

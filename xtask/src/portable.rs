//! `cargo xtask portable`: the library for other machines, other features, and the oldest compiler.
//!
//! Nothing is run: `cargo check` of the facade with each feature alone, for each target, one of
//! them without the default features, and with the compiler that `rust-version` declares. Before,
//! the list of packages is searched for those that build C: without them, a target needs no C
//! compiler, not even to link for it later.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::features::tree;
use crate::project_root;

/// Check the library for other machines, with each feature alone, and with the oldest compiler.
///
/// Targets and compiler are installed with rustup where they are missing.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these targets [default: all that are promised].
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,
    /// Fail where rustup cannot install something, instead of leaving it out with a note.
    #[arg(long)]
    strict: bool,
}

/// One of each operating system and processor that is promised.
const TARGETS: &[&str] = &[
    "aarch64-unknown-linux-gnu",
    "x86_64-pc-windows-gnu",
    "aarch64-apple-darwin",
    "wasm32-unknown-unknown",
];

/// Packages that run a compiler of C, an assembler or a search for a library when they are built.
const NATIVE: &[&str] = &["bindgen", "cc", "cmake", "nasm-rs", "pkg-config", "psm", "vcpkg"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = project_root()?;
    let all = packages(&root, &[])?;
    let least = packages(&root, &["--no-default-features"])?;
    println!("packages: {} with the default features, {} without", all.len(), least.len());
    // The one feature that brings a tree of packages of others.
    let tokenizers = packages(&root, &["--features", "tokenizers"])?;
    for package in all.iter().chain(&tokenizers) {
        ensure!(!NATIVE.contains(&package.as_str()), "{package} asks for more than Rust");
    }
    for package in ["flate2", "memmap2", "nalgebra", "rustfft"] {
        let left = least.iter().any(|other| other == package);
        ensure!(!left, "--no-default-features leaves {package} in");
    }

    // Each feature without the others: what it needs is there.
    for features in [
        "",
        "avx2",
        "avx512",
        "families",
        "fft",
        "generate",
        "linalg",
        "mmap",
        "npy",
        "tokenizers",
        "tracing",
    ] {
        let least = ["check", "--package", "plutino", "--no-default-features", "--features"];
        cargo(&root, &[&least[..], &[features]].concat())?;
    }

    let version = declared_version(&root)?;
    if installed(args.strict, &["toolchain", "install", &version, "--profile", "minimal"])? {
        // A folder of its own: compilers throw each other's work away.
        let folder = "target/oldest";
        let version = format!("+{version}");
        cargo(&root, &[&version, "check", "--package", "plutino", "--target-dir", folder])?;
    }
    let promised = TARGETS.iter().map(|&target| target.to_owned()).collect();
    for target in if args.targets.is_empty() { &promised } else { &args.targets } {
        if installed(args.strict, &["target", "add", target])? {
            let mut check = vec!["check", "--package", "plutino", "--target", target];
            // One of them shows that the features can be left out.
            if target.starts_with("wasm") {
                check.push("--no-default-features");
            }
            cargo(&root, &check)?;
        }
    }
    Ok(())
}

/// Names of the packages that a build of the facade compiles, for any target.
fn packages(root: &Path, features: &[&str]) -> Result<Vec<String>> {
    let select = [&["--package", "plutino", "--target", "all"], features].concat();
    let packages = tree(root, &select, "normal,build", "{p}")?; // two versions of a package are two
    Ok(packages.iter().map(|line| line.split(' ').next().unwrap_or(line).to_owned()).collect())
}

/// The oldest compiler that the workspace's manifest declares.
fn declared_version(root: &Path) -> Result<String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let version = line.and_then(|line| line.split('"').next());
    Ok(version.context("Cargo.toml declares no rust-version")?.to_owned())
}

/// Whether rustup could install it. Where there is no rustup, what is there has to do.
fn installed(strict: bool, what: &[&str]) -> Result<bool> {
    let done = Command::new("rustup").args(what).output().is_ok_and(|out| out.status.success());
    ensure!(done || !strict, "rustup {} failed", what.join(" "));
    if !done {
        println!("left out: rustup {} failed", what.join(" "));
    }
    Ok(done)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    println!("cargo {}", arguments.join(" "));
    let mut command = Command::new("cargo");
    // Set by `cargo xtask` for the compiler that runs it: another one may be asked for.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC").env_remove("CARGO");
    command.env("RUSTFLAGS", "-D warnings");
    let status = command.current_dir(root).args(arguments).status().context("cargo")?;
    ensure!(status.success(), "cargo {}: {status}", arguments.join(" "));
    Ok(())
}

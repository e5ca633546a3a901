//! `cargo xtask fuzz`: the targets of `fuzz/`, beginning with the fixtures.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use plutino_attack::{seeds, target};

/// Run the fuzz targets, which begin with the fixtures
///
/// Needs a nightly toolchain, a C++ compiler, and cargo-fuzz: cargo install cargo-fuzz
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only this target.
    #[arg(long)]
    only: Option<String>,
    /// The toolchain.
    #[arg(long, default_value = "nightly")]
    toolchain: String,
    /// Which sanitizer: address, or none, which is several times faster.
    #[arg(long, default_value = "none")]
    sanitizer: String,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let folder = root.join("fuzz");
    let wanted = |name: &&str| args.only.as_deref().is_none_or(|only| only == *name);
    let targets: Vec<&str> = target::ALL.iter().map(|(name, _)| *name).filter(wanted).collect();
    ensure!(!targets.is_empty(), "there is no such target");
    for name in targets {
        let corpus = folder.join("corpus").join(name);
        std::fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
        for (i, seed) in seeds::corpus(name)?.iter().enumerate() {
            std::fs::write(corpus.join(format!("seed-{i}")), seed)?;
        }
        let status = Command::new("cargo")
            .arg(format!("+{}", args.toolchain))
            .args(["fuzz", "run", "--release", "--debug-assertions"])
            .args(["--sanitizer", &args.sanitizer, name])
            // What takes longer than 2 seconds is a finding, and what takes 2 GB.
            .args(["--", "-timeout=2", "-rss_limit_mb=2048", "-max_len=65536"])
            .arg(format!("-max_total_time={}", args.seconds))
            .current_dir(&folder)
            .status()
            .context("cargo")?;
        ensure!(status.success(), "{name}: {status}; see fuzz/artifacts/{name}");
    }
    Ok(())
}

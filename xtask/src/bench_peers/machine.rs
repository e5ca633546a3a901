//! Where and when it was measured.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde::Serialize;
use time::OffsetDateTime;

/// The machine.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    /// Instruction sets that decide over speed.
    pub(super) features: Vec<&'static str>,
    /// Processes that wanted to run in the minute before, on average: others disturb the
    /// measurement.
    pub(super) load_average: Option<f64>,
}

impl Machine {
    /// This machine, as it is now.
    pub(super) fn here() -> Self {
        Self {
            cpu: cpu().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: thread::available_parallelism().map_or(1, usize::from),
            features: features(),
            load_average: load_average(),
        }
    }
}

fn cpu() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let found = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    found.into_iter().filter_map(|(name, there)| there.then_some(name)).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Today, in UTC.
pub(super) fn today() -> String {
    OffsetDateTime::now_utc().date().to_string()
}

/// The commit that is checked out, with `-dirty` where files have changed since.
pub(super) fn revision(root: &Path) -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=10"]).current_dir(root);
    match git.output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

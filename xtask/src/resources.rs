//! What this process takes, as Linux tells it.

use anyhow::{Context, Result};

/// User and system time: the 14th and 15th field of `stat`, in hundredths of a second.
pub(crate) fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("only on Linux")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).map(|t| t.parse::<f64>());
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// A number of `status`: for memory, in MiB.
pub(crate) fn status(names: &[&str]) -> Result<Vec<f64>> {
    let status = std::fs::read_to_string("/proc/self/status").context("only on Linux")?;
    let number = |name: &&str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let line = line.with_context(|| format!("no {name} in status"))?;
        let mut words = line.split_whitespace();
        let number = words.next().context("no number")?.parse::<f64>()?;
        Ok(if words.next() == Some("kB") { number / 1024.0 } else { number })
    };
    names.iter().map(number).collect()
}

/// Memory of `status`, in bytes.
pub(crate) fn bytes(name: &str) -> Result<usize> {
    Ok((status(&[name])?[0] * f64::from(1 << 20)) as usize) // exact: of whole KiB
}

/// The most memory that the process has had, since its start or the last [`forget_peak`], in MiB.
pub(crate) fn peak_mib() -> Result<f64> {
    Ok(status(&["VmHWM"])?[0])
}

/// Lets the peak be what the process has now.
pub(crate) fn forget_peak() -> Result<()> {
    std::fs::write("/proc/self/clear_refs", "5").context("clear_refs")
}

/// Files, pipes and sockets that are open.
pub(crate) fn descriptors() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd").context("only on Linux")?.count())
}

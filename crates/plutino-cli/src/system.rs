//! What the operating system knows of this process.

/// The most memory that the process has held at any time, in bytes (`VmHWM` of Linux); `None` on
/// systems that we do not know how to ask.
pub(crate) fn peak_memory() -> Option<u64> {
    peak_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_format() {
        assert_eq!(peak_of("Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 1 kB\n"), Some(1234 * 1024));
        assert_eq!(peak_of("Name:\tx\n"), None);
    }
}

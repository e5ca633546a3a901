//! The sizes of the caches, from which the blocks of a matrix product follow.

use std::sync::OnceLock;

/// Sizes of the data caches that one core sees, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// First level, of one core.
    pub l1: usize,
    /// Second level, of one core.
    pub l2: usize,
    /// Third level, shared.
    pub l3: usize,
}

impl Default for Machine {
    /// A modest x86-64 server core: 32 KiB, 512 KiB, 8 MiB.
    fn default() -> Self {
        Self { l1: 32 << 10, l2: 512 << 10, l3: 8 << 20 }
    }
}

impl Machine {
    /// This machine, read once; [`Machine::default`] where the system does not say.
    pub fn this() -> Self {
        static THIS: OnceLock<Machine> = OnceLock::new();
        *THIS.get_or_init(|| Self::read("/sys/devices/system/cpu/cpu0/cache"))
    }

    /// Reads Linux's description of the caches of one core.
    fn read(dir: &str) -> Self {
        let mut machine = Self::default();
        for index in 0..8 {
            let entry = |name: &str| {
                std::fs::read_to_string(format!("{dir}/index{index}/{name}")).unwrap_or_default()
            };
            let Some(bytes) = parse_size(entry("size").trim()) else { continue };
            if entry("type").trim() == "Instruction" {
                continue;
            }
            match entry("level").trim() {
                "1" => machine.l1 = bytes,
                "2" => machine.l2 = bytes,
                "3" => machine.l3 = bytes,
                _ => {}
            }
        }
        machine
    }
}

/// `32K` or `8M` in bytes; sizes that no cache has are ignored.
fn parse_size(text: &str) -> Option<usize> {
    let (digits, shift) = match text.strip_suffix('K') {
        Some(digits) => (digits, 10),
        None => (text.strip_suffix('M')?, 20),
    };
    let n: usize = digits.parse().ok()?;
    (1..1 << 16).contains(&n).then_some(n << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("32K"), Some(32768));
        assert_eq!(parse_size("8M"), Some(8 << 20));
        for bad in ["", "K", "0K", "-1K", "99999999999999999999K", "12"] {
            assert_eq!(parse_size(bad), None);
        }
        assert_eq!(Machine::read("/nonexistent"), Machine::default());
    }
}

//! A machine, in the figures that estimates need.

use super::families::Family;
use plutino_kernels::Isa;
use std::collections::BTreeMap;

/// How fast a machine computes and moves bytes, and what it costs to hand out work.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Machine {
    /// What the processor calls itself; empty for built-in figures.
    pub cpu: String,
    /// The instruction set that it was measured with.
    pub isa: String,
    /// Threads that it was measured with.
    pub threads: usize,
    /// Arithmetic of one thread at its best, in 10^9 operations a second.
    pub peak_gflops: f64,
    /// How fast one thread reads and writes, in 10^9 bytes a second, by how many bytes there are,
    /// ascending: what fits in a cache comes faster.
    pub bandwidth: Vec<(u64, f64)>,
    /// What a step costs whatever it does, in nanoseconds.
    pub step_ns: f64,
    /// What it costs to hand work to all threads and to wait for them, in nanoseconds.
    pub job_ns: f64,
    /// What it costs a run to call the threads, in nanoseconds.
    pub enter_ns: f64,
    /// What each thread beyond the first adds to the speed of a step.
    pub scaling: f64,
    /// Shares of the peak that kernels reach, where they were measured, by the beginning of their
    /// names: these count instead of [`Family::efficiency`].
    pub efficiency: BTreeMap<String, f64>,
}

impl Machine {
    /// Figures of a common server core for this instruction set: what sessions plan with that are
    /// not told otherwise, so that plans are the same wherever they are made.
    pub fn built_in(isa: Isa) -> Self {
        let (peak_gflops, factor) = match isa.lanes() {
            16.. => (112.0, 1.0),
            8.. => (100.0, 0.8),
            _ => (12.0, 0.4),
        };
        let bandwidth = [(32 << 10, 120.0), (1 << 20, 40.0), (24 << 20, 24.0), (u64::MAX, 11.0)];
        Self {
            cpu: String::new(),
            isa: isa.to_string(),
            threads: 1,
            peak_gflops,
            bandwidth: bandwidth.map(|(bytes, rate)| (bytes, rate * factor)).to_vec(),
            step_ns: 150.0,
            job_ns: 1200.0,
            enter_ns: 6000.0,
            scaling: 0.85,
            efficiency: BTreeMap::new(),
        }
    }

    /// The share of the peak that kernels of a family reach.
    pub(super) fn efficiency(&self, family: &Family) -> f64 {
        self.efficiency.get(family.prefix).copied().unwrap_or(family.efficiency)
    }

    /// How fast so many bytes come.
    pub(super) fn bandwidth(&self, bytes: u64) -> f64 {
        let fitting = self.bandwidth.iter().find(|(most, _)| bytes <= *most);
        fitting.or(self.bandwidth.last()).map_or(1.0, |(_, rate)| *rate)
    }
}

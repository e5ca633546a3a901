//! What was measured, as it stands in the JSON file.

use serde::Serialize;

use super::engine::Engine;
use super::machine::Machine;
use super::stats::{Quartiles, geometric_mean, median};

/// A run of `bench-peers`. All times are in milliseconds, sizes in bytes.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) date: String,
    pub(super) revision: String,
    pub(super) machine: Machine,
    /// The set that the models are of.
    pub(super) set: &'static str,
    pub(super) rounds: usize,
    pub(super) slice_seconds: f64,
    pub(super) loads: usize,
    /// Ours: `highest`, `high` or `medium`.
    pub(super) precision: &'static str,
    pub(super) mmap: bool,
    pub(super) cases: Vec<CaseReport>,
    pub(super) means: Vec<Mean>,
}

/// Geometric mean over the models that have a ratio.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Mean {
    pub(super) threads: usize,
    pub(super) ratio: f64,
    pub(super) models: usize,
    /// Models without a ratio.
    pub(super) without: Vec<String>,
}

/// One model at one number of threads.
#[derive(Debug, Serialize)]
pub(super) struct CaseReport {
    pub(super) model: String,
    pub(super) batch: usize,
    pub(super) threads: usize,
    pub(super) engines: Vec<EngineReport>,
    /// The peer that is fastest in comparison with ours over the same rounds.
    pub(super) best_peer: Option<&'static str>,
    /// Our time over that of the best peer.
    pub(super) ratio: Option<Quartiles>,
}

/// One engine on one model.
#[derive(Debug, Serialize)]
pub(super) struct EngineReport {
    pub(super) engine: &'static str,
    pub(super) version: Option<String>,
    pub(super) peer: bool,
    /// Why there are no times.
    pub(super) failed: Option<String>,
    /// Median time of a run in each round.
    pub(super) round_ms: Vec<f64>,
    /// Number of timed runs in all rounds.
    pub(super) runs: usize,
    /// Over the rounds.
    pub(super) ms: Option<Quartiles>,
    /// Our time over that of this engine, over the rounds.
    pub(super) ratio: Option<Quartiles>,
    /// Against PyTorch in double precision: the largest difference over the largest value.
    pub(super) error: Option<f64>,
    /// From the model's files to the first result, in each fresh process.
    pub(super) load_ms: Vec<f64>,
    /// The most memory that each process held after a few runs.
    pub(super) peak_bytes: Vec<u64>,
    /// What each process held before the engine was there.
    pub(super) harness_bytes: Vec<u64>,
}

impl EngineReport {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine: engine.name(),
            version: None,
            peer: engine.is_peer(),
            failed: None,
            round_ms: Vec::new(),
            runs: 0,
            ms: None,
            ratio: None,
            error: None,
            load_ms: Vec::new(),
            peak_bytes: Vec::new(),
            harness_bytes: Vec::new(),
        }
    }

    pub(super) fn works(&self) -> bool {
        self.failed.is_none()
    }

    /// Median of the loads.
    pub(super) fn load(&self) -> Option<f64> {
        median(&self.load_ms)
    }

    /// Median of the peaks, in MiB.
    pub(super) fn peak_mib(&self) -> Option<f64> {
        mib(&self.peak_bytes)
    }

    /// Median of what the processes hold without the engine, in MiB.
    pub(super) fn harness_mib(&self) -> Option<f64> {
        mib(&self.harness_bytes)
    }
}

fn mib(bytes: &[u64]) -> Option<f64> {
    let mib: Vec<_> = bytes.iter().map(|&b| b as f64 / f64::from(1 << 20)).collect();
    median(&mib)
}

impl CaseReport {
    /// Compares the engines round by round.
    pub(super) fn new(
        model: &str,
        batch: usize,
        threads: usize,
        mut engines: Vec<EngineReport>,
    ) -> Self {
        let working = |e: &&EngineReport| e.engine == Engine::Plutino.name() && e.works();
        let ours = engines.iter().find(working).map(|e| e.round_ms.clone()).unwrap_or_default();
        for engine in engines.iter_mut().filter(|e| e.works()) {
            engine.ms = Quartiles::of(&engine.round_ms);
            if engine.engine != Engine::Plutino.name() {
                let rounds = ours.iter().zip(&engine.round_ms);
                let ratios: Vec<_> = rounds.map(|(ours, theirs)| ours / theirs).collect();
                engine.ratio = Quartiles::of(&ratios);
            }
        }
        // The larger our time in comparison, the faster the peer; without ours, times decide.
        let speed = |e: &EngineReport| {
            e.ratio.map(|q| q.median).or_else(|| e.ms.map(|q| 1.0 / q.median)).unwrap_or(0.0)
        };
        let best = engines
            .iter()
            .filter(|e| e.peer && e.ms.is_some())
            .max_by(|a, b| speed(a).total_cmp(&speed(b)));
        let (best_peer, ratio) = (best.map(|e| e.engine), best.and_then(|e| e.ratio));
        Self { model: model.into(), batch, threads, engines, best_peer, ratio }
    }
}

impl Report {
    /// Takes up a case.
    pub(super) fn add(&mut self, case: CaseReport) {
        self.cases.push(case);
        let mut threads: Vec<_> = self.cases.iter().map(|c| c.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        self.means = threads.into_iter().filter_map(|t| self.mean(t)).collect();
    }

    fn mean(&self, threads: usize) -> Option<Mean> {
        let cases = || self.cases.iter().filter(|c| c.threads == threads);
        let ratios: Vec<_> = cases().filter_map(|c| c.ratio.map(|q| q.median)).collect();
        let without = cases().filter(|c| c.ratio.is_none()).map(|c| c.model.clone()).collect();
        let ratio = geometric_mean(&ratios)?;
        Some(Mean { threads, ratio, models: ratios.len(), without })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn engine(engine: Engine, round_ms: &[f64]) -> EngineReport {
        EngineReport { round_ms: round_ms.to_vec(), ..EngineReport::new(engine) }
    }

    #[test]
    fn the_best_peer_is_fastest_within_the_rounds() {
        let mut broken = engine(Engine::Ncnn, &[0.1]);
        broken.failed = Some("gone".into());
        // The machine became slower: ratios within the rounds say what medians of times would say
        // wrongly.
        let case = CaseReport::new(
            "net",
            1,
            2,
            vec![
                engine(Engine::Plutino, &[1.0, 2.0, 4.0]),
                engine(Engine::OnnxRuntime, &[2.0, 4.0, 8.0]),
                engine(Engine::OpenVino, &[1.25, 2.5, 5.0]),
                broken,
                engine(Engine::Torch, &[0.1, 0.2, 0.4]),
            ],
        );
        assert_eq!(case.best_peer, Some("openvino"));
        assert_eq!(case.ratio, Some(Quartiles { q1: 0.8, median: 0.8, q3: 0.8 }));
        assert_eq!(case.engines[1].ratio.unwrap().median, 0.5);
        assert_eq!(case.engines[3].ms, None);
    }

    #[test]
    fn without_ours_the_shortest_time_is_best_and_there_is_no_ratio() {
        let mut ours = engine(Engine::Plutino, &[]);
        ours.failed = Some("operators are missing".into());
        let peers = [engine(Engine::OnnxRuntime, &[2.0]), engine(Engine::OpenVino, &[3.0])];
        let case = CaseReport::new("net", 1, 1, [ours].into_iter().chain(peers).collect());
        assert_eq!((case.best_peer, case.ratio), (Some("onnxruntime"), None));
    }
}

//! Costs of operators as they were measured.

use crate::Profile;
use crate::plan::{Sink, Step};
use plutino_kernels::Isa;
use plutino_tensor::TensorSpec;
use std::collections::BTreeMap;

/// What an operator is to the records: its type and kernel, and the shapes of what it reads and
/// makes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Key {
    /// Type of the operator.
    pub kind: String,
    /// The algorithm, with what it absorbed as far as its name tells.
    pub kernel: String,
    /// Dtypes, shapes and layouts: of the inputs, then behind an arrow of the outputs.
    pub shapes: String,
}

impl Key {
    /// Of an operator of this type with this kernel.
    pub fn new<'a>(
        kind: &str,
        kernel: &str,
        inputs: impl IntoIterator<Item = &'a TensorSpec>,
        outputs: impl IntoIterator<Item = &'a TensorSpec>,
    ) -> Self {
        let list = |specs: &mut dyn Iterator<Item = &'a TensorSpec>| {
            specs.map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let (inputs, outputs) = (list(&mut inputs.into_iter()), list(&mut outputs.into_iter()));
        let shapes = format!("{inputs} -> {outputs}");
        Self { kind: kind.to_owned(), kernel: kernel.to_owned(), shapes }
    }

    /// Of a step; none of one whose shapes depend on data, or that has no kernel of its own.
    pub(crate) fn of(step: &Step) -> Option<Self> {
        let mut outputs = Vec::new();
        for output in &step.outputs {
            match &output.sink {
                Sink::Lent(spec) => outputs.push(spec),
                Sink::View => {}
                Sink::Heap { .. } => return None,
            }
        }
        let inputs = step.inputs.iter().map(|input| &input.spec);
        Some(Self::new(&step.location.kind, step.kernel_name(), inputs, outputs))
    }
}

/// When an operator was measured: with which instruction set, on how many threads.
type Setting = (String, usize);

/// Costs of operators as they were measured, by operator, instruction set and threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// Nanoseconds.
    times: BTreeMap<Key, BTreeMap<Setting, f64>>,
}

impl Recorded {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.times.values().map(BTreeMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Nanoseconds of an operator, if it was measured so.
    pub fn get(&self, key: &Key, isa: Isa, threads: usize) -> Option<f64> {
        self.times.get(key)?.get(&(isa.to_string(), threads)).copied()
    }

    /// Everything that was measured: operator, instruction set, threads, nanoseconds.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &str, usize, f64)> {
        self.times.iter().flat_map(|(key, of)| {
            of.iter().map(move |((isa, threads), ns)| (key, isa.as_str(), *threads, *ns))
        })
    }

    /// Notes what an operator takes, in nanoseconds; what was noted of it before is forgotten.
    pub fn insert(&mut self, key: Key, isa: &str, threads: usize, ns: f64) {
        self.times.entry(key).or_default().insert((isa.to_owned(), threads), ns);
    }

    /// Takes over what others measured: where both know an operator, theirs counts.
    pub fn merge(&mut self, other: &Self) {
        for (key, isa, threads, ns) in other.iter() {
            self.insert(key.clone(), isa, threads, ns);
        }
    }

    /// Notes the steps of these runs of one plan, by a session with this instruction set and so
    /// many threads. Of each step the median counts, and of steps that are alike their mean. Steps
    /// that ran beside others are measured as those of one thread.
    pub fn record(&mut self, profiles: &[Profile], isa: Isa, threads: usize) {
        let Some(plan) = profiles.first().map(|profile| &profile.plan) else { return };
        let mut sums: BTreeMap<(Key, usize), (f64, usize)> = BTreeMap::new();
        let chained: Vec<bool> = plan.chained();
        for (at, step) in plan.steps.iter().enumerate() {
            let Some(key) = Key::of(step) else { continue };
            let times = profiles.iter().filter_map(|p| p.steps.get(at)).map(|time| time.duration);
            let mut times: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e9).collect();
            times.sort_by(f64::total_cmp);
            let Some(&median) = times.get(times.len() / 2) else { continue };
            let threads =
                if chained.get(at) == Some(&true) || plan.runs_alone() { 1 } else { threads };
            let (sum, count) = sums.entry((key, threads)).or_default();
            (*sum, *count) = (*sum + median, *count + 1);
        }
        for ((key, threads), (sum, count)) in sums {
            self.insert(key, &isa.to_string(), threads, sum / count as f64);
        }
    }
}

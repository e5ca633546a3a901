//! Costs of operators as they were measured.

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
    /// The algorithm.
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
}

/// Costs of operators as they were measured, by operator, instruction set and threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// Nanoseconds.
    times: BTreeMap<(Key, String, usize), f64>,
}

impl Recorded {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Nanoseconds of an operator, if it was measured so.
    pub fn get(&self, key: &Key, isa: Isa, threads: usize) -> Option<f64> {
        self.times.get(&(key.clone(), isa.to_string(), threads)).copied()
    }
}

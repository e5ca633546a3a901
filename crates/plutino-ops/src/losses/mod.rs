//! Losses: <https://pytorch.org/docs/stable/nn.functional.html#loss-functions>.
//!
//! - this file: how the losses of elements become one (`reduction`);
//! - `elements`: those that are a formula of inputs and targets;
//! - `vectors`: those of distances and angles between vectors;
//! - `classes`: those of classes: `nll_loss`, `cross_entropy` and margins;
//! - `ctc`: that of labels without places.

mod classes;
mod ctc;
mod elements;
mod vectors;

use crate::support::composite::StepText;
use crate::{BuildError, Inputs, NodeReader, RunError};
use plutino_tensor::{DType, alloc};

/// What the losses of elements become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    None,
    Mean,
    Sum,
    /// The sum over the number of elements of the first dimension: `kl_div` knows it.
    BatchMean,
}

impl Reduction {
    fn read(r: &mut NodeReader<'_>) -> Result<Self, BuildError> {
        let words = [("none", Self::None), ("mean", Self::Mean), ("sum", Self::Sum)];
        r.one_of("reduction", &words, Some(Self::Mean))
    }

    /// The result of losses of this sum and total weight, where it is a single number.
    fn of(self, sum: f64, weight: f64) -> f64 {
        if self == Self::Sum { sum } else { sum / weight }
    }

    /// The step that makes the result of `losses`; none where they are it.
    fn step(self, losses: &str, batch: usize) -> Vec<StepText> {
        let of = |kind| vec![StepText::new(kind, &[losses], "loss", "")];
        match self {
            Self::None => Vec::new(),
            Self::Mean => of("torch.mean"),
            Self::Sum => of("torch.sum"),
            Self::BatchMean => vec![
                StepText::new("torch.sum", &[losses], "sum", ""),
                StepText::new(
                    "pnnx.Expression",
                    &["sum"],
                    "loss",
                    &format!("expr=div(@0,{batch}.0)"),
                ),
            ],
        }
    }
}

/// The elements of an input, whatever integers they are.
fn integers(inputs: &Inputs<'_>, at: usize) -> Result<Vec<i64>, RunError> {
    let tensor = inputs.view(at)?.cast(DType::I64)?;
    Ok(alloc::collect(tensor.as_slice::<i64>()?.iter().copied())?)
}

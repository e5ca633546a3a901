//! Which results of a recurrent network the outputs of a node are.
//!
//! pnnx writes the results that a model uses, in the order of their first use, and does not say
//! which they are. The recorded shapes tell; where they do not, the node is refused rather than
//! guessed at.

use crate::{BuildError, BuildProblem, NodeReader};
use plutino_ir::Dim;

/// A result of a recurrent network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The last layer's states of all time steps.
    Sequence,
    /// The final h of every layer.
    Hidden,
    /// The final c of every layer, of an LSTM.
    Cell,
}

/// All results, in PyTorch's order.
const ALL: [Part; 3] = [Part::Sequence, Part::Hidden, Part::Cell];

/// What the shapes of the results depend on, beside the input.
pub(super) struct Sizes {
    pub(super) lstm: bool,
    pub(super) batch_first: bool,
    /// Layers, times directions.
    pub(super) rows: usize,
    /// Columns of the sequence, of h and of c.
    pub(super) widths: [usize; 3],
}

/// The results that are outputs of the node, whose data is its input at position `input`.
///
/// # Errors
/// Where outputs are too many, or their recorded shapes leave open which of h and c is meant.
pub(super) fn results(
    r: &NodeReader<'_>,
    input: usize,
    sizes: &Sizes,
) -> Result<Vec<Part>, BuildError> {
    let all = if sizes.lstm { &ALL[..] } else { &ALL[..2] };
    let count = r.output_count();
    let fitting = match fitting(r, input, sizes, all) {
        // Nothing is recorded, or what is recorded is of another network: the sequence, or all.
        Some(fitting) if !fitting.is_empty() => fitting,
        _ if count == 1 => return Ok(vec![Part::Sequence]),
        _ if count == all.len() => return Ok(all.to_vec()),
        _ => {
            let expected = format!("1 or {}", all.len());
            return Err(r.error(BuildProblem::Outputs { expected, found: count }));
        }
    };
    let first = &fitting[0];
    let same = |other: &Vec<Part>| other.iter().all(|part| first.contains(part));
    match fitting.iter().all(same) {
        true => Ok(first.clone()), // they differ in their order at most: PyTorch's is the first
        false => Err(r.error(BuildProblem::Invalid(
            "the file does not say which of the final states h and c an output is: both have its shape. Export the \
             model again with a forward that uses all three results of the LSTM, h before c: return them, too"
                .into(),
        ))),
    }
}

/// The choices of results whose shapes are the recorded ones, in PyTorch's order; those with the
/// sequence, where there are some. None where a shape is not recorded.
fn fitting(
    r: &NodeReader<'_>,
    input: usize,
    sizes: &Sizes,
    all: &[Part],
) -> Option<Vec<Vec<Part>>> {
    let x = r.recorded_input(input)?;
    let batch = match x {
        [_, _] => None,
        [first, second, _] => Some(if sizes.batch_first { first } else { second }),
        _ => return None,
    };
    let is = |part: Part, found: &[Dim]| {
        let width = Dim::Known(sizes.widths[part as usize]);
        let Some((last, lead)) = found.split_last() else { return false };
        let expected: Vec<Dim> = match part {
            Part::Sequence => x[..x.len() - 1].to_vec(),
            _ => std::iter::once(Dim::Known(sizes.rows)).chain(batch.cloned()).collect(),
        };
        *last == width && lead == expected
    };
    let mut choices: Vec<Vec<Part>> = vec![Vec::new()];
    for at in 0..r.output_count() {
        let found = r.recorded_output(at)?;
        let longer = |choice: &Vec<Part>| {
            let next = all.iter().filter(|&&part| !choice.contains(&part) && is(part, found));
            next.map(|&part| [&choice[..], &[part]].concat()).collect::<Vec<_>>()
        };
        choices = choices.iter().flat_map(longer).collect();
    }
    let with_sequence = |choice: &Vec<Part>| choice.contains(&Part::Sequence);
    if choices.iter().any(with_sequence) {
        choices.retain(with_sequence);
    }
    Some(choices)
}

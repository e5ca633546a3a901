//! Sequences of several lengths as one tensor: `torch.nn.utils.rnn.pad_sequence`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html>: each tensor is
//! padded to the longest one along its first dimension.

use crate::support::composite::{Compose, StepText, composed};
use crate::support::rearrange::invalid;
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, register_op};

#[derive(Debug)]
struct PadSequence {
    sequences: usize,
    batch_first: bool,
    value: f64,
    /// Whether what is added comes first.
    left: bool,
}

fn pad_sequence(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let sides = [("right", false), ("left", true)];
    composed(PadSequence {
        batch_first: r.or("batch_first", false)?,
        value: r.or("padding_value", 0.0)?,
        left: r.one_of("padding_side", &sides, Some(false))?,
        sequences: r.required_input("sequences")?,
    })
}
register_op!(pad_sequence => "torch.nn.utils.rnn.pad_sequence");

impl Compose for PadSequence {
    fn name(&self) -> &'static str {
        "pad_sequence"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.sequences]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let length = |x: &&TensorValue| x.shape().first().copied();
        let lengths: Option<Vec<usize>> = inputs.iter().map(length).collect();
        let lengths = lengths.ok_or_else(|| invalid("a scalar is no sequence"))?;
        let longest = lengths.iter().max().copied().unwrap_or(0);
        let mut names = Vec::with_capacity(inputs.len());
        let mut steps = Vec::with_capacity(inputs.len() + 1);
        for (i, (x, length)) in inputs.iter().zip(&lengths).enumerate() {
            let (name, added) = (format!("x{i}"), longest - length);
            if added == 0 {
                names.push(name);
                continue;
            }
            // The last dimension first.
            let mut pad = vec!["0".to_owned(); 2 * x.shape().rank().saturating_sub(1)];
            let both = if self.left { [added, 0] } else { [0, added] };
            pad.extend(both.map(|n| n.to_string()));
            let parameters =
                format!("mode=constant pad=({}) value={:?}", pad.join(","), self.value);
            let padded = format!("padded{i}");
            steps.push(StepText::new("F.pad", &[&name], &padded, &parameters));
            names.push(padded);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let dim = if self.batch_first { "dim=0" } else { "dim=1" };
        steps.push(StepText::new("torch.stack", &names, "y", dim));
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check_values, op, tensor};
    use crate::{ValueSpec, eager};
    use plutino_tensor::Tensor;

    const LINE: &str = "torch.nn.utils.rnn.pad_sequence p 1 1 0 1";

    fn padded(parameters: &str, sequences: &[Tensor]) -> Tensor {
        let list = ValueSpec::List(sequences.iter().map(|t| t.spec().into()).collect());
        check_values(&*op(&format!("{LINE} {parameters}")), &[list], sequences).remove(0)
    }

    #[test]
    fn the_longest_sequence_decides() {
        let all =
            [tensor([1], &[1.0f32]), tensor([3], &[2.0f32, 3., 4.]), tensor([0], &[0.0f32; 0])];
        let y = padded("batch_first=True padding_value=-1.5", &all);
        assert_eq!(y, tensor([3, 3], &[1.0f32, -1.5, -1.5, 2., 3., 4., -1.5, -1.5, -1.5]));
        let y = padded("batch_first=True padding_side=left", &all[..2]);
        assert_eq!(y, tensor([2, 3], &[0.0f32, 0., 1., 2., 3., 4.]));
        let rows = [tensor([2, 2], &[1i64, 2, 3, 4]), tensor([1, 2], &[5i64, 6])];
        let y = padded("batch_first=False", &rows);
        assert_eq!(y, tensor([2, 2, 2], &[1i64, 2, 5, 6, 3, 4, 0, 0]));
    }

    #[test]
    fn what_cannot_be_padded() {
        let par = plutino_kernels::Par::serial();
        let refused = |sequences: &[Tensor]| {
            let list = ValueSpec::List(sequences.iter().map(|t| t.spec().into()).collect());
            eager::run(&*op(LINE), &[list], sequences, plutino_kernels::Isa::best(), &par).is_err()
        };
        assert!(refused(&[tensor([], &[1.0f32])]));
        assert!(refused(&[tensor([1, 2], &[1.0f32, 2.]), tensor([1, 1], &[1.0f32])]));
        assert!(refused(&[]));
    }
}

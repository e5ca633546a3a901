//! Connectionist temporal classification:
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.ctc_loss.html>.
//!
//! Minus the logarithm of the probability of all ways to spread the labels, with blanks between
//! them, over the steps of the input: the forward recursion of Graves et al., *Connectionist
//! Temporal Classification*, 2006, over logarithms in f64.

use super::{Reduction, integers};
use crate::reduce::planned;
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, Cost, Inputs, NodeReader, Operator, PlanCx, PlanError, Planned, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_floats;
use plutino_kernels::number::Number as _;
use plutino_tensor::{DType, Shape, TensorError, alloc, stop};

#[derive(Debug)]
struct CtcLoss {
    log_probs: usize,
    targets: usize,
    /// Of inputs and of targets.
    lengths: [Arg<Vec<i64>>; 2],
    blank: usize,
    reduction: Reduction,
    zero_infinity: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (reduction, zero_infinity) = (Reduction::read(r)?, r.or("zero_infinity", false)?);
    let blank: i64 = r.or("blank", 0)?;
    let blank = usize::try_from(blank).map_err(|_| r.bad("blank", "at least 0"))?;
    let (log_probs, targets) = (r.required_input("log_probs")?, r.required_input("targets")?);
    let mut lengths = |key| match r.arg(key)? {
        Some(lengths) => Ok(lengths),
        None => r.required_input(key).map(Arg::Input),
    };
    let lengths = [lengths("input_lengths")?, lengths("target_lengths")?];
    Ok(Box::new(CtcLoss { log_probs, targets, lengths, blank, reduction, zero_infinity }))
}
register_op!(build => "F.ctc_loss");

/// An operator bound to shapes.
struct Bound {
    dtype: DType,
    /// Steps, sequences, classes.
    sizes: [usize; 3],
    /// Labels of a row of targets; none where they follow each other.
    row: Option<usize>,
    shape: Shape,
}

impl CtcLoss {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Bound, ShapeError> {
        let x = TensorValue::at(inputs, self.log_probs)?;
        let targets = TensorValue::at(inputs, self.targets)?;
        if !matches!(x.dtype(), DType::F32 | DType::F64) {
            let (expected, found) = ("f32 or f64".into(), x.dtype());
            return Err(ShapeError::DType { input: self.log_probs, expected, found });
        }
        if !matches!(targets.dtype(), DType::I64 | DType::I32) {
            let (expected, found) = ("i64 or i32".into(), targets.dtype());
            return Err(ShapeError::DType { input: self.targets, expected, found });
        }
        let (sizes, mut shape) = match *x.shape().dims() {
            [steps, classes] => ([steps, 1, classes], Shape::scalar()),
            [steps, batch, classes] => ([steps, batch, classes], Shape::from([batch])),
            _ => {
                let (expected, found) = ("2 or 3".into(), x.shape().clone());
                return Err(ShapeError::Rank { input: self.log_probs, expected, found });
            }
        };
        let row = match *targets.shape().dims() {
            [_] => None,
            [batch, row] if batch == sizes[1] => Some(row),
            _ => {
                let (of, n) = (targets.shape(), sizes[1]);
                return Err(invalid(format!("targets of {of} do not suit {n} sequences")));
            }
        };
        if self.blank >= sizes[2] {
            return Err(invalid(format!("blank {} of {} classes", self.blank, sizes[2])));
        }
        if self.reduction != Reduction::None {
            shape = Shape::scalar();
        }
        Ok(Bound { dtype: x.dtype(), sizes, row, shape })
    }
}

impl Operator for CtcLoss {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let bound = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(bound.dtype, bound.shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let Bound { dtype, sizes, row, .. } = self.bind(cx.inputs)?;
        let [input, targets] = [self.log_probs, self.targets].map(|at| leaf(cx.inputs, at));
        let [steps, labels] = &self.lengths;
        let (steps, labels) = (Lengths::of(steps, cx.inputs)?, Lengths::of(labels, cx.inputs)?);
        let (blank, reduction, zero) = (self.blank, self.reduction, self.zero_infinity);
        for_floats!(dtype,
            T => Ok(planned("loss.ctc", move |cx| {
                let x = cx.inputs.get::<T>(input)?;
                let log = |t: usize, n: usize, c: usize| {
                    x[(t * sizes[1] + n) * sizes[2] + c].widen()
                };
                let steps = steps.read(&cx.inputs, sizes[1], sizes[0])?;
                let all = integers(&cx.inputs, targets)?;
                let lengths = labels.read(&cx.inputs, sizes[1], row.unwrap_or(all.len()))?;
                let labels = lengths.iter().fold(0usize, |sum, &n| sum.saturating_add(n));
                if row.is_none() && labels != all.len() {
                    let what = format!("{} labels, not as many as the lengths say", all.len());
                    return Err(RunError::Value { input: targets, what });
                }
                let y = cx.outputs.take::<T>(0)?;
                let (mut start, mut sum) = (0, 0.0);
                for n in 0..sizes[1] {
                    stop::check()?;
                    let from = row.map_or(start, |row| n * row);
                    start += lengths[n];
                    let labels = all.get(from..from + lengths[n]).unwrap_or_default();
                    let labels = below(targets, labels, sizes[2], "label")?;
                    let loss = loss(|t, c| log(t, n, c), steps[n], &labels, blank)?;
                    let loss = if zero && loss.is_infinite() { 0.0 } else { loss };
                    match reduction {
                        Reduction::None => y[n] = T::narrow(loss),
                        Reduction::Sum => sum += loss,
                        _ => sum += loss / lengths[n].max(1) as f64,
                    }
                }
                if reduction != Reduction::None {
                    y.fill(T::narrow(reduction.of(sum, sizes[1] as f64)));
                }
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("a loss of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        // Three exponentials and a logarithm for each step and state.
        let flops = self.bind(inputs).map_or(0, |Bound { sizes, row, .. }| {
            let states = row.unwrap_or(1).saturating_mul(2).saturating_add(1);
            states.saturating_mul(sizes[0]).saturating_mul(sizes[1]).saturating_mul(80) as u64
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

/// How long sequences are, by an input.
struct Lengths {
    /// Its first leaf.
    leaf: usize,
    /// None: what the leaf holds.
    known: Option<Vec<i64>>,
}

impl Lengths {
    fn of(lengths: &Arg<Vec<i64>>, inputs: &[ValueSpec]) -> Result<Self, ShapeError> {
        let leaf = match *lengths {
            Arg::Input(at) => leaf(inputs, at),
            Arg::Value(_) => 0,
        };
        let tensor = matches!(*lengths, Arg::Input(at) if TensorValue::at(inputs, at).is_ok());
        let known = if tensor { None } else { Some(lengths.ints(inputs)?) };
        Ok(Self { leaf, known })
    }

    /// One for each of `batch` sequences, at most `most`.
    fn read(&self, inputs: &Inputs<'_>, batch: usize, most: usize) -> Result<Vec<usize>, RunError> {
        let read;
        let lengths = match &self.known {
            Some(known) => known,
            None => {
                read = integers(inputs, self.leaf)?;
                &read
            }
        };
        if lengths.len() != batch {
            let what = format!("{} lengths of {batch} sequences", lengths.len());
            return Err(RunError::Value { input: self.leaf, what });
        }
        below(self.leaf, lengths, most.saturating_add(1), "a length of")
    }
}

/// Numbers from 0 to `end`.
fn below(input: usize, numbers: &[i64], end: usize, what: &str) -> Result<Vec<usize>, RunError> {
    let known = |&number: &i64| {
        let found = usize::try_from(number).ok().filter(|&number| number < end);
        let what = || format!("{what} {number} is outside 0..{end}");
        found.ok_or_else(|| RunError::Value { input, what: what() })
    };
    numbers.iter().map(known).collect()
}

/// The loss of one sequence: `log(t, c)` is the logarithm of the probability of class `c` at `t`.
fn loss(
    log: impl Fn(usize, usize) -> f64,
    steps: usize,
    labels: &[usize],
    blank: usize,
) -> Result<f64, TensorError> {
    // A state is a label, or the blank before one or after the last.
    let states = 2 * labels.len() + 1;
    let class = |state: usize| if state.is_multiple_of(2) { blank } else { labels[state / 2] };
    if steps == 0 {
        return Ok(if labels.is_empty() { 0.0 } else { f64::INFINITY });
    }
    let mut before = alloc::filled(states, f64::NEG_INFINITY)?;
    let mut now = alloc::filled(states, f64::NEG_INFINITY)?;
    for (state, way) in before.iter_mut().enumerate().take(2) {
        *way = log(0, class(state));
    }
    for t in stop::paced(1..steps, states.saturating_mul(80)) {
        for (state, way) in now.iter_mut().enumerate() {
            let from = |back: usize| state.checked_sub(back).map(|state| before[state]);
            // The blank between two labels may be left out where they differ.
            let skips = state >= 2 && class(state) != class(state - 2);
            let skipped = if skips { from(2) } else { None };
            let none = f64::NEG_INFINITY;
            let ways = [before[state], from(1).unwrap_or(none), skipped.unwrap_or(none)];
            *way = log_of_sum(&ways) + log(t, class(state));
        }
        std::mem::swap(&mut before, &mut now);
    }
    let last = &before[states.saturating_sub(2)..];
    Ok(-log_of_sum(last))
}

/// The logarithm of a sum of numbers whose logarithms are given.
fn log_of_sum(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return logs.iter().sum(); // no way there, or NaN
    }
    most + logs.iter().map(|log| (log - most).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, op, tensor};
    use plutino_tensor::{DType, Tensor};

    /// Logarithms of equal probabilities.
    fn even(shape: &[usize]) -> Tensor {
        let n = shape.iter().product();
        let log = -(shape[shape.len() - 1] as f32).ln();
        Tensor::from_vec(vec![log; n], shape).unwrap()
    }

    fn lengths(of: &[i64]) -> Tensor {
        tensor([of.len()], of)
    }

    #[test]
    fn ways_are_counted() {
        // Of 2 steps in 3 classes: a; -a and a- and aa; no ab without two steps; aa needs three.
        let x = even(&[2, 4, 3]);
        let targets = tensor([4, 2], &[1i64, 0, 2, 0, 1, 2, 1, 1]);
        let given = [x, targets, lengths(&[1, 2, 2, 2]), lengths(&[1, 1, 2, 2])];
        let line = "F.ctc_loss l 4 1 0 1 2 3 4";
        let ninth = |ways: f32| -(ways / 9.0).ln();
        let each = [3f32.ln(), ninth(3.0), ninth(1.0), f32::INFINITY];
        let y = check(&*op(&format!("{line} reduction=none")), &given).remove(0);
        assert_close(&y, &tensor([4], &each), 1e-6);
        let y = check(&*op(&format!("{line} reduction=sum zero_infinity=True")), &given).remove(0);
        assert_close(&y, &tensor([], &[each[..3].iter().sum::<f32>()]), 1e-6);
        let y = check(&*op(&format!("{line} zero_infinity=True")), &given).remove(0);
        assert_close(&y, &tensor([], &[(each[0] + each[1] + each[2] / 2.0) / 4.0]), 1e-6);
        // One sequence, of labels that follow each other; nothing to say is all blanks.
        let given = [even(&[2, 3]), tensor([1], &[2i32]), lengths(&[2]), lengths(&[1])];
        let y = check(&*op(&format!("{line} reduction=none")), &given).remove(0);
        assert_close(&y, &tensor([], &[ninth(3.0)]), 1e-6);
        let given = [even(&[2, 2, 3]), lengths(&[]), lengths(&[0, 2]), lengths(&[0, 0])];
        let y = check(&*op(&format!("{line} reduction=none blank=1")), &given).remove(0);
        assert_close(&y, &tensor([2], &[0.0, ninth(1.0)]), 1e-6);
    }

    #[test]
    fn what_does_not_suit_is_an_error() {
        let run = |x: Tensor, targets: Tensor, steps: &[i64], labels: &[i64]| {
            let given = [x, targets, lengths(steps), lengths(labels)];
            error(&*op("F.ctc_loss l 4 1 0 1 2 3 4"), &given).to_string()
        };
        let targets = || tensor([1, 2], &[1i64, 2]);
        assert!(run(even(&[2, 1, 3]), targets(), &[3], &[1]).contains("length of 3"));
        assert!(run(even(&[2, 1, 3]), targets(), &[2], &[-1]).contains("length of -1"));
        assert!(run(even(&[2, 1, 3]), targets(), &[2, 2], &[1]).contains("2 lengths"));
        assert!(run(even(&[2, 1, 2]), targets(), &[2], &[2]).contains("label 2"));
        let rows = tensor([3], &[1i64, 2, 1]);
        assert!(run(even(&[2, 1, 3]), rows, &[2], &[2]).contains("3 labels"));
        assert!(run(even(&[2, 2, 3]), targets(), &[2, 2], &[1, 1]).contains("2 sequences"));
        run(even(&[3]), targets(), &[2], &[1]);
        run(even(&[2, 1, 3]).cast(DType::F16).unwrap(), targets(), &[2], &[1]);
        run(even(&[2, 1, 3]), tensor([1, 2], &[1.0f32, 2.0]), &[2], &[1]);
    }
}

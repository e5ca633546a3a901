//! Losses of classes.

use super::{Reduction, integers};
use crate::elementwise::{Elementwise, Formula, Lowering, Term, float};
use crate::reduce::planned;
use crate::support::assemble::{leaf, same_dtype};
use crate::support::composite::{Compose, StepText, composed};
use crate::support::names::optional_tensor;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, BuildProblem, Inputs, NodeReader, Operator, PlanCx, PlanError, Planned, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::elementwise::Binary;
use plutino_kernels::for_floats;
use plutino_kernels::number::{Float, Number as _};
use plutino_tensor::stop;
use plutino_tensor::{DType, Shape};

/// What is lost for each target.
#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    /// Minus the logarithm of the probability of the class; the smoothed part of each class.
    Nll { ignore: i64, smoothing: f64 },
    /// How far other classes come near the right one.
    MultiMargin { p: i32, margin: f64 },
}

#[derive(Debug)]
struct ClassLoss {
    input: usize,
    target: usize,
    weight: Option<usize>,
    what: What,
    reduction: Reduction,
}

fn inputs(r: &mut NodeReader<'_>) -> Result<(usize, usize, Option<usize>), BuildError> {
    let weight = optional_tensor(r, "weight")?;
    Ok((r.required_input("input")?, r.required_input("target")?, weight))
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.NLLLoss.html>
fn nll(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (reduction, ignore) = (Reduction::read(r)?, r.or("ignore_index", -100)?);
    let (input, target, weight) = inputs(r)?;
    // `nll_loss_forward` has the sum of weights as well.
    if r.output_count() != 1 {
        let (expected, found) = ("1".into(), r.output_count());
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    let what = What::Nll { ignore, smoothing: 0.0 };
    Ok(Box::new(ClassLoss { input, target, weight, what, reduction }))
}
register_op!(nll => "F.nll_loss", "nn.NLLLoss", "F.nll_loss_nd", "F.nll_loss2d");

/// <https://pytorch.org/docs/stable/generated/torch.nn.MultiMarginLoss.html>
fn multi_margin(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (reduction, margin) = (Reduction::read(r)?, r.or("margin", 1.0)?);
    let p: f64 = r.or("p", 1.0)?;
    if p != 1.0 && p != 2.0 {
        return Err(r.bad("p", "1 or 2"));
    }
    let (input, target, weight) = inputs(r)?;
    let what = What::MultiMargin { p: p as i32, margin };
    Ok(Box::new(ClassLoss { input, target, weight, what, reduction }))
}
register_op!(multi_margin => "F.multi_margin_loss", "nn.MultiMarginLoss");

/// How many batches, classes and places an input has.
fn layout(input: usize, shape: &Shape) -> Result<[usize; 3], ShapeError> {
    match shape.dims() {
        [classes] => Ok([1, *classes, 1]),
        [batch, classes, ..] => Ok([*batch, *classes, shape.product(2..shape.rank())]),
        [] => {
            let (expected, found) = ("at least 1".into(), shape.clone());
            Err(ShapeError::Rank { input, expected, found })
        }
    }
}

impl ClassLoss {
    /// Dtype, batches x classes x places, and the shape of the targets.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, [usize; 3], Shape), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        let target = TensorValue::at(inputs, self.target)?;
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        if !matches!(target.dtype(), DType::I64 | DType::U8) {
            let (expected, found) = ("i64".into(), target.dtype());
            return Err(ShapeError::DType { input: self.target, expected, found });
        }
        let sizes = layout(input, x.shape())?;
        let mut shape = x.shape().clone();
        shape.remove(usize::from(shape.rank() > 1));
        let one = sizes[0] == 1 && x.shape().rank() == 1 && target.shape().numel() == 1;
        if *target.shape() != shape && !one {
            let (expected, found) = (shape, target.shape().clone());
            return Err(plutino_tensor::TensorError::Shape { expected, found }.into());
        }
        if matches!(self.what, What::MultiMargin { .. }) && x.shape().rank() > 2 {
            let (expected, found) = ("1 or 2".into(), x.shape().clone());
            return Err(ShapeError::Rank { input, expected, found });
        }
        if let Some(at) = self.weight {
            let weight = TensorValue::at(inputs, at)?;
            same_dtype((input, x.dtype()), [(at, weight.dtype())])?;
            if weight.shape().numel() != sizes[1] {
                return Err(invalid(format!(
                    "{} weights for {} classes",
                    weight.shape(),
                    sizes[1]
                )));
            }
        }
        Ok((x.dtype(), sizes, target.shape().clone()))
    }
}

/// The targets, -1 for those that are ignored.
fn classes(
    inputs: &Inputs<'_>,
    at: usize,
    count: usize,
    ignore: Option<i64>,
) -> Result<Vec<i64>, RunError> {
    let mut classes = integers(inputs, at)?;
    for class in &mut classes {
        if Some(*class) == ignore {
            *class = -1;
        } else if usize::try_from(*class).map_or(true, |class| class >= count) {
            let what = format!("class {class} is outside 0..{count}");
            return Err(RunError::Value { input: at, what });
        }
    }
    Ok(classes)
}

impl Operator for ClassLoss {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, _, shape) = self.bind(inputs)?;
        let shape = if self.reduction == Reduction::None { shape } else { Shape::scalar() };
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, sizes, _) = self.bind(cx.inputs)?;
        let [input, target] = [self.input, self.target].map(|at| leaf(cx.inputs, at));
        let weight = self.weight.map(|at| leaf(cx.inputs, at));
        let (what, reduction) = (self.what, self.reduction);
        for_floats!(dtype,
            T => Ok(planned("loss.classes", move |cx| {
                let x = cx.inputs.get::<T>(input)?;
                let weights = weight.map(|at| cx.inputs.get::<T>(at)).transpose()?;
                let ignore = match what {
                    What::Nll { ignore, .. } => Some(ignore),
                    What::MultiMargin { .. } => None,
                };
                let classes = classes(&cx.inputs, target, sizes[1], ignore)?;
                let y = cx.outputs.take::<T>(0)?;
                let loss = Losses { x, weights, sizes, what };
                let work = sizes[1].saturating_mul(4);
                if reduction == Reduction::None {
                    for (k, (y, &class)) in stop::paced(y.iter_mut().zip(&classes), work).enumerate() {
                        *y = T::narrow(loss.at(k, class).0);
                    }
                    return Ok(());
                }
                let each = stop::paced(&classes, work).enumerate().map(|(k, &class)| loss.at(k, class));
                let (sum, total) = each.fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
                y.fill(T::narrow(reduction.of(sum, total)));
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("a loss of {dtype}"))),
        )
    }
}

/// The losses of one input.
struct Losses<'a, T> {
    x: &'a [T],
    weights: Option<&'a [T]>,
    /// Batches, classes, places.
    sizes: [usize; 3],
    what: What,
}

impl<T: Float> Losses<'_, T> {
    fn weight(&self, class: usize) -> f64 {
        self.weights.map_or(1.0, |w| w[class].widen())
    }

    /// The loss of the target at this place, and what it counts in the mean.
    fn at(&self, k: usize, class: i64) -> (f64, f64) {
        let [_, count, places] = self.sizes;
        let Ok(class) = usize::try_from(class) else { return (0.0, 0.0) }; // ignored
        let x = |c: usize| self.x[(k / places * count + c) * places + k % places].widen();
        match self.what {
            What::Nll { smoothing, .. } => {
                let own = -x(class) * self.weight(class);
                let weight = self.weight(class);
                if smoothing == 0.0 {
                    return (own, weight);
                }
                let all: f64 = (0..count).map(|c| -x(c) * self.weight(c)).sum();
                ((1.0 - smoothing) * own + smoothing / count as f64 * all, weight)
            }
            What::MultiMargin { p, margin } => {
                let others = (0..count).filter(|&c| c != class);
                let each = others.map(|c| (margin - x(class) + x(c)).max(0.0).powi(p));
                (each.sum::<f64>() * self.weight(class) / count as f64, 1.0)
            }
        }
    }
}

#[derive(Debug)]
struct CrossEntropy {
    inputs: Vec<usize>,
    ignore: i64,
    smoothing: f64,
    reduction: Reduction,
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html>: targets are classes,
/// or a probability of each class.
fn cross_entropy(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (reduction, ignore) = (Reduction::read(r)?, r.or("ignore_index", -100)?);
    let smoothing: f64 = r.or("label_smoothing", 0.0)?;
    if !(0.0..=1.0).contains(&smoothing) {
        return Err(r.bad("label_smoothing", "in 0..=1"));
    }
    let (input, target, weight) = inputs(r)?;
    let inputs = [input, target].into_iter().chain(weight).collect();
    composed(CrossEntropy { inputs, ignore, smoothing, reduction })
}
register_op!(cross_entropy => "F.cross_entropy", "nn.CrossEntropyLoss", "F.cross_entropy_loss");

impl Compose for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let [x, target, weight @ ..] = inputs else { return Err(invalid("two tensors")) };
        let rank = x.shape().rank();
        let [batch, classes, places] = layout(0, x.shape())?;
        let dim = usize::from(rank > 1);
        let dims = format!("dim={dim}");
        let mut steps = vec![StepText::new("F.log_softmax", &["x0"], "logs", &dims)];
        if x.shape() != target.shape() {
            let (what, reduction) =
                (What::Nll { ignore: self.ignore, smoothing: self.smoothing }, self.reduction);
            let weight = (!weight.is_empty()).then_some(2);
            let loss = ClassLoss { input: 0, target: 1, weight, what, reduction };
            let of = ["logs", "x1", "x2"];
            let of = of.get(..inputs.len()).unwrap_or(&of);
            steps.push(StepText::of(Box::new(loss), of, "loss"));
            return Ok(steps);
        }
        let mut of = vec!["logs", "x1"];
        if let [weight] = weight {
            // A weight for each class, along its dimension.
            if weight.shape().numel() != classes {
                return Err(invalid(format!("{} weights for {classes} classes", weight.shape())));
            }
            let ones = ",1".repeat(rank - dim - 1);
            let shape = format!("shape=({classes}{ones})");
            steps.push(StepText::new("Tensor.reshape", &["x2"], "weights", &shape));
            of.push("weights");
        }
        let soft = Soft { smoothing: self.smoothing, classes, weighted: of.len() == 3 };
        steps.push(StepText::of(Elementwise::boxed(soft), &of, "parts"));
        let dims = format!("dim=({dim}) keepdim=False");
        steps.push(StepText::new("torch.sum", &["parts"], "losses", &dims));
        if self.reduction == Reduction::Mean {
            steps.push(StepText::new("torch.sum", &["losses"], "sum", ""));
            let targets = batch.saturating_mul(places);
            let mean = format!("expr=div(@0,{targets}.0)");
            steps.push(StepText::new("pnnx.Expression", &["sum"], "mean", &mean));
            return Ok(steps);
        }
        steps.extend(self.reduction.step("losses", 1));
        Ok(steps)
    }
}

/// The part of each class in a loss: minus the logarithm times the probability that is wanted, and
/// the weight.
#[derive(Debug)]
struct Soft {
    smoothing: f64,
    classes: usize,
    weighted: bool,
}

impl Formula for Soft {
    fn name(&self) -> &str {
        "cross_entropy"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let (log, mut wanted) = (f.input(0)?, f.input(1)?);
        if self.smoothing > 0.0 {
            wanted = f.binary(Binary::Mul, wanted, float(1.0 - self.smoothing))?;
            let all = float(self.smoothing / self.classes as f64);
            wanted = f.binary(Binary::Add, wanted, all)?;
        }
        let mut part = f.binary(Binary::Mul, log, wanted)?;
        if self.weighted {
            let weight = f.input(2)?;
            part = f.binary(Binary::Mul, part, weight)?;
        }
        f.binary(Binary::Mul, part, float(-1.0))
    }
}

#[derive(Debug)]
struct MultiLabelMargin {
    input: usize,
    target: usize,
    reduction: Reduction,
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.MultiLabelMarginLoss.html>: the classes of
/// each row come first, and end with a -1.
fn multilabel_margin(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let reduction = Reduction::read(r)?;
    let (input, target) = (r.required_input("input")?, r.required_input("target")?);
    Ok(Box::new(MultiLabelMargin { input, target, reduction }))
}
register_op!(multilabel_margin => "F.multilabel_margin_loss", "nn.MultiLabelMarginLoss");

impl MultiLabelMargin {
    /// Dtype, rows and classes, and the shape of the rows.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, [usize; 2], Shape), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        let target = TensorValue::at(inputs, self.target)?;
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        if target.dtype() != DType::I64 {
            let (expected, found) = ("i64".into(), target.dtype());
            return Err(ShapeError::DType { input: self.target, expected, found });
        }
        let (sizes, shape) = match *x.shape().dims() {
            [classes] => ([1, classes], Shape::scalar()),
            [rows, classes] => ([rows, classes], Shape::from([rows])),
            _ => {
                let (expected, found) = ("1 or 2".into(), x.shape().clone());
                return Err(ShapeError::Rank { input, expected, found });
            }
        };
        if target.shape() != x.shape() {
            let (expected, found) = (x.shape().clone(), target.shape().clone());
            return Err(plutino_tensor::TensorError::Shape { expected, found }.into());
        }
        Ok((x.dtype(), sizes, shape))
    }
}

impl Operator for MultiLabelMargin {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, _, shape) = self.bind(inputs)?;
        let shape = if self.reduction == Reduction::None { shape } else { Shape::scalar() };
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, [rows, count], _) = self.bind(cx.inputs)?;
        let [input, target] = [self.input, self.target].map(|at| leaf(cx.inputs, at));
        let reduction = self.reduction;
        for_floats!(dtype,
            T => Ok(planned("loss.labels", move |cx| {
                let (x, y) = (cx.inputs.get::<T>(input)?, cx.outputs.take::<T>(0)?);
                let labels = classes(&cx.inputs, target, count, Some(-1))?;
                let mut sum = 0.0;
                for row in stop::paced(0..rows, count.saturating_mul(count)) {
                    let (x, labels) = (&x[row * count..][..count], &labels[row * count..][..count]);
                    let end = labels.iter().position(|&label| label < 0).unwrap_or(count);
                    let labels = &labels[..end];
                    let others = || (0..count).filter(|&c| !labels.contains(&(c as i64)));
                    let each = labels.iter().flat_map(|&label| {
                        let own = x[label as usize].widen();
                        others().map(move |c| (1.0 - (own - x[c].widen())).max(0.0))
                    });
                    let loss = each.sum::<f64>() / count as f64;
                    sum += loss;
                    if reduction == Reduction::None {
                        y[row] = T::narrow(loss);
                    }
                }
                if reduction != Reduction::None {
                    y.fill(T::narrow(reduction.of(sum, rows as f64)));
                }
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("a loss of {dtype}"))),
        )
    }
}

/// The binary cross entropy of each class, over all classes.
#[derive(Debug)]
struct MultiLabelSoftMargin {
    inputs: Vec<usize>,
    reduction: Reduction,
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.MultiLabelSoftMarginLoss.html>
fn multilabel_soft_margin(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let reduction = Reduction::read(r)?;
    let (input, target, weight) = inputs(r)?;
    let inputs = [input, target].into_iter().chain(weight).collect();
    composed(MultiLabelSoftMargin { inputs, reduction })
}
register_op!(multilabel_soft_margin =>
    "F.multilabel_soft_margin_loss", "nn.MultiLabelSoftMarginLoss");

impl Compose for MultiLabelSoftMargin {
    fn name(&self) -> &'static str {
        "multilabel_soft_margin_loss"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let mut of = vec!["x0", "x1"];
        let mut text = String::from("reduction=none $input=x0 $target=x1");
        if inputs.len() == 3 {
            of.push("x2");
            text += " $weight=x2";
        }
        let mut steps = vec![
            StepText::new("F.binary_cross_entropy_with_logits", &of, "each", &text),
            StepText::new("torch.mean", &["each"], "losses", "dim=(-1) keepdim=False"),
        ];
        steps.extend(self.reduction.step("losses", 1));
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, error, iota, op, run, tensor, try_op};

    #[test]
    fn logarithms_of_classes() {
        let (x, target) = (iota([3, 2]), tensor([3], &[0i64, 1, -100]));
        let both = [x.clone(), target.clone()];
        let y = run("F.nll_loss n 2 1 0 1 2 reduction=none $input=0 $target=1", &both);
        assert_eq!(y, tensor([3], &[-0.0f32, -3.0, 0.0]));
        assert_eq!(run("nn.NLLLoss n 2 1 0 1 2", &both), tensor([], &[-1.5f32]));
        let weighted = [x.clone(), target, tensor([2], &[1.0f32, 3.0])];
        let line = "F.nll_loss n 3 1 0 1 2 3 $input=0 $target=1 $weight=2";
        assert_eq!(run(line, &weighted), tensor([], &[-9.0f32 / 4.0]));
        let images = [iota([1, 2, 2]), tensor([1, 2], &[1i64, 0])];
        let y = run("F.nll_loss n 2 1 0 1 2 reduction=none", &images);
        assert_eq!(y, tensor([1, 2], &[-2.0f32, -1.0]));
        let alone = [iota([3]), tensor([], &[2i64])];
        assert_eq!(run("F.nll_loss n 2 1 0 1 2 ignore_index=1", &alone), tensor([], &[-2.0f32]));
        error(&*op("F.nll_loss n 2 1 0 1 2"), &[x.clone(), tensor([3], &[0i64, 2, 0])]);
        error(&*op("F.nll_loss n 2 1 0 1 2"), &[x, tensor([2], &[0i64, 0])]);
    }

    #[test]
    fn cross_entropies() {
        let x = tensor([2, 3], &[0.0f32, 1.0, 2.0, 3.0, 1.0, 0.0]);
        let both = [x.clone(), tensor([2], &[2i64, 0])];
        let line = "F.cross_entropy c 2 1 0 1 2 reduction=none $input=0 $target=1";
        assert_close(&run(line, &both), &tensor([2], &[0.407_606f32, 0.169_846]), 1e-5);
        let y = run("nn.CrossEntropyLoss c 2 1 0 1 2 label_smoothing=0.1", &both);
        assert_close(&y, &tensor([], &[0.422_059_4f32]), 1e-5);
        // Probabilities, of which one is a class.
        let sure = tensor([2, 3], &[0.0f32, 0.0, 1.0, 1.0, 0.0, 0.0]);
        let y = run("F.cross_entropy c 2 1 0 1 2 label_smoothing=0.1", &[x.clone(), sure.clone()]);
        assert_close(&y, &tensor([], &[0.422_059_4f32]), 1e-5);
        let weight = tensor([3], &[2.0f32, 1.0, 0.5]);
        let line = "F.cross_entropy c 3 1 0 1 2 3 reduction=sum $input=0 $target=1 $weight=2";
        let y = run(line, &[x.clone(), sure, weight]);
        assert_close(&y, &tensor([], &[0.5f32 * 0.407_606 + 2.0 * 0.169_846]), 1e-5);
        assert!(try_op("F.cross_entropy c 2 1 0 1 2 label_smoothing=2", &[]).is_err());
    }

    #[test]
    fn margins_of_classes() {
        let x = tensor([2, 3], &[0.0f32, 1.0, 2.0, 3.0, 1.0, 0.0]);
        let both = [x.clone(), tensor([2], &[1i64, 0])];
        let y = run("F.multi_margin_loss m 2 1 0 1 2 reduction=none", &both);
        assert_close(&y, &tensor([2], &[2.0f32 / 3.0, 0.0]), 1e-6);
        let y = run("nn.MultiMarginLoss m 2 1 0 1 2 p=2 margin=2.0", &both);
        assert_close(&y, &tensor([], &[(1.0f32 + 9.0) / 6.0]), 1e-6);
        let labels = tensor([2, 3], &[2i64, -1, 0, 1, 0, -1]);
        let y = run("F.multilabel_margin_loss m 2 1 0 1 2 reduction=none", &[x.clone(), labels]);
        assert_close(&y, &tensor([2], &[0.0f32, 0.0]), 1e-6);
        let target = tensor([2, 3], &[1.0f32, 0.0, 1.0, 0.0, 0.0, 1.0]);
        let y = run("F.multilabel_soft_margin_loss m 2 1 0 1 2", &[x, target]);
        assert_close(&y, &tensor([], &[1.198_055_5f32]), 1e-5);
        error(
            &*op("F.multi_margin_loss m 2 1 0 1 2"),
            &[iota([1, 2, 2]), tensor([1, 2], &[0i64; 2])],
        );
    }
}

//! Losses that are a formula, element by element.

use super::Reduction;
use crate::elementwise::{Elementwise, Formula, Lowering, Term, float, int};
use crate::support::composite::{Compose, StepText, composed};
use crate::support::names::optional_tensor;
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, function, register_op};
use plutino_kernels::Activation;
use plutino_kernels::elementwise::{Binary, Scalar, Unary};
use std::f64::consts::PI;

/// The least value that a logarithm has in `binary_cross_entropy`.
const LEAST_LOG: f64 = -100.0;

/// A formula with its parameters, of inputs 0, 1, 2 and so on.
#[derive(Debug, Clone, Copy)]
enum What {
    L1,
    Mse,
    SmoothL1 {
        beta: f64,
    },
    Huber {
        delta: f64,
    },
    /// The third input is a weight.
    Bce {
        weighted: bool,
    },
    /// Further inputs are a weight, and a weight of positive ones.
    BceWithLogits {
        weighted: bool,
        positive: bool,
    },
    KlDiv {
        log_target: bool,
    },
    SoftMargin,
    HingeEmbedding {
        margin: f64,
    },
    /// Of two inputs and a target.
    MarginRanking {
        margin: f64,
    },
    PoissonNll {
        log_input: bool,
        full: bool,
        eps: f64,
    },
    /// The third input is the variance.
    GaussianNll {
        full: bool,
        eps: f64,
    },
}

#[derive(Debug)]
struct Loss {
    what: What,
    inputs: Vec<usize>,
    reduction: Reduction,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let name = r.kind().trim_start_matches("nn.").to_ascii_lowercase();
    let name = function(&name).replace('_', "");
    let name = name.trim_end_matches("loss");
    let reduction = match name {
        "kldiv" if r.raw("reduction").and_then(|p| p.as_str()) == Some("batchmean") => {
            Reduction::BatchMean
        }
        _ => Reduction::read(r)?,
    };
    let mut extra: Vec<usize> = Vec::new();
    let what = match name {
        "l1" => What::L1,
        "mse" => What::Mse,
        "smoothl1" => {
            let beta: f64 = r.or("beta", 1.0)?;
            match beta >= 0.0 {
                true => What::SmoothL1 { beta },
                false => return Err(r.bad("beta", "a number of at least 0")),
            }
        }
        "huber" => {
            let delta: f64 = r.or("delta", 1.0)?;
            match delta > 0.0 {
                true => What::Huber { delta },
                false => return Err(r.bad("delta", "a number above 0")),
            }
        }
        "bce" | "binarycrossentropy" => {
            extra.extend(optional_tensor(r, "weight")?);
            What::Bce { weighted: !extra.is_empty() }
        }
        "bcewithlogits" | "binarycrossentropywithlogits" => {
            let weights = [optional_tensor(r, "weight")?, optional_tensor(r, "pos_weight")?];
            extra.extend(weights.iter().flatten());
            let [weighted, positive] = weights.map(|w| w.is_some());
            What::BceWithLogits { weighted, positive }
        }
        "kldiv" => What::KlDiv { log_target: r.or("log_target", false)? },
        "softmargin" => What::SoftMargin,
        "hingeembedding" => What::HingeEmbedding { margin: r.or("margin", 1.0)? },
        "marginranking" => What::MarginRanking { margin: r.or("margin", 0.0)? },
        "poissonnll" => What::PoissonNll {
            log_input: r.or("log_input", true)?,
            full: r.or("full", false)?,
            eps: r.or("eps", 1e-8)?,
        },
        _ => What::GaussianNll { full: r.or("full", false)?, eps: r.or("eps", 1e-6)? },
    };
    let first: &[&str] = match what {
        What::MarginRanking { .. } => &["input1", "input2", "target"],
        What::GaussianNll { .. } => &["input", "target", "var"],
        _ => &["input", "target"],
    };
    let mut inputs = Vec::with_capacity(first.len() + extra.len());
    for key in first {
        inputs.push(r.required_input(key)?);
    }
    inputs.extend(extra);
    composed(Loss { what, inputs, reduction })
}
register_op!(build =>
    "F.l1_loss", "F.mse_loss", "F.smooth_l1_loss", "F.huber_loss", "F.binary_cross_entropy",
    "F.binary_cross_entropy_with_logits", "F.kl_div", "F.soft_margin_loss",
    "F.hinge_embedding_loss", "F.margin_ranking_loss", "F.poisson_nll_loss", "F.gaussian_nll_loss",
    "nn.L1Loss", "nn.MSELoss", "nn.SmoothL1Loss", "nn.HuberLoss", "nn.BCELoss",
    "nn.BCEWithLogitsLoss", "nn.KLDivLoss", "nn.SoftMarginLoss", "nn.HingeEmbeddingLoss",
    "nn.MarginRankingLoss", "nn.PoissonNLLLoss", "nn.GaussianNLLLoss");

impl Compose for Loss {
    fn name(&self) -> &'static str {
        "loss"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if let ([input, target, ..], What::Bce { .. } | What::BceWithLogits { .. }) =
            (inputs, self.what)
            && input.shape() != target.shape()
        {
            let (expected, found) = (input.shape().clone(), target.shape().clone());
            return Err(plutino_tensor::TensorError::Shape { expected, found }.into());
        }
        let batch = inputs.first().and_then(|x| x.shape().first().copied()).unwrap_or(1);
        let mut steps = vec![StepText::of(Elementwise::boxed(self.what), &names, "losses")];
        steps.extend(self.reduction.step("losses", batch));
        Ok(steps)
    }
}

impl Formula for What {
    fn name(&self) -> &str {
        "loss"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let (x, y) = (f.input(0)?, f.input(1)?);
        match *self {
            Self::L1 => distance(f, x, y),
            Self::Mse => {
                let d = f.binary(Binary::Sub, x, y)?;
                f.unary(Unary::Square, d)
            }
            Self::SmoothL1 { beta: 0.0 } => distance(f, x, y),
            Self::SmoothL1 { beta } => {
                // d^2 / (2 beta), or d - beta / 2
                let d = distance(f, x, y)?;
                let square = f.unary(Unary::Square, d.clone())?;
                let near = f.binary(Binary::Mul, square, float(0.5))?;
                let near = f.binary(Binary::Div, near, float(beta))?;
                let far = f.binary(Binary::Sub, d.clone(), float(0.5 * beta))?;
                let small = f.binary(Binary::Lt, d, float(beta))?;
                f.select(small, near, far)
            }
            Self::Huber { delta } => {
                let d = distance(f, x, y)?;
                let square = f.unary(Unary::Square, d.clone())?;
                let near = f.binary(Binary::Mul, square, float(0.5))?;
                let far = f.binary(Binary::Sub, d.clone(), float(0.5 * delta))?;
                let far = f.binary(Binary::Mul, far, float(delta))?;
                let small = f.binary(Binary::Lt, d, float(delta))?;
                f.select(small, near, far)
            }
            Self::Bce { weighted } => {
                let log = f.unary(Unary::Log, x.clone())?;
                let log = f.binary(Binary::Maximum, log, float(LEAST_LOG))?;
                let minus = f.unary(Unary::Neg, x)?;
                let other = f.unary(Unary::Log1p, minus)?;
                let other = f.binary(Binary::Maximum, other, float(LEAST_LOG))?;
                let rest = f.binary(Binary::Sub, y.clone(), int(1))?;
                let rest = f.binary(Binary::Mul, rest, other)?;
                let own = f.binary(Binary::Mul, y, log)?;
                let loss = f.binary(Binary::Sub, rest, own)?;
                times_input(f, loss, weighted.then_some(2))
            }
            Self::BceWithLogits { weighted, positive } => {
                let mut log = f.unary(Unary::Activation(Activation::LogSigmoid), x.clone())?;
                if positive {
                    let weight = f.input(2 + usize::from(weighted))?;
                    let weight = f.binary(Binary::Sub, weight, int(1))?;
                    let weight = f.binary(Binary::Mul, weight, y.clone())?;
                    let weight = f.binary(Binary::Add, weight, int(1))?;
                    log = f.binary(Binary::Mul, weight, log)?;
                }
                let rest = f.binary(Binary::Sub, int(1), y)?;
                let rest = f.binary(Binary::Mul, rest, x)?;
                let loss = f.binary(Binary::Sub, rest, log)?;
                times_input(f, loss, weighted.then_some(2))
            }
            Self::KlDiv { log_target: true } => {
                let d = f.binary(Binary::Sub, y.clone(), x)?;
                let y = f.unary(Unary::Exp, y)?;
                f.binary(Binary::Mul, y, d)
            }
            Self::KlDiv { log_target: false } => {
                // y ln(y) is 0 for y = 0.
                let log = f.unary(Unary::Log, y.clone())?;
                let own = f.binary(Binary::Mul, y.clone(), log)?;
                let zero = f.binary(Binary::Eq, y.clone(), int(0))?;
                let own = f.select(zero, int(0), own)?;
                let product = f.binary(Binary::Mul, y, x)?;
                f.binary(Binary::Sub, own, product)
            }
            Self::SoftMargin => {
                let minus = f.unary(Unary::Neg, y)?;
                let product = f.binary(Binary::Mul, minus, x)?;
                let e = f.unary(Unary::Exp, product)?;
                f.unary(Unary::Log1p, e)
            }
            Self::HingeEmbedding { margin } => {
                let near = f.binary(Binary::Sub, float(margin), x.clone())?;
                let near = f.binary(Binary::Maximum, near, int(0))?;
                let is_positive = f.binary(Binary::Eq, y.clone(), int(1))?;
                let is_negative = f.binary(Binary::Eq, y, int(-1))?;
                let near = f.select(is_positive, int(0), near)?;
                let own = f.select(is_negative, int(0), x)?;
                f.binary(Binary::Add, near, own)
            }
            Self::MarginRanking { margin } => {
                let (d, target) = (f.binary(Binary::Sub, x, y)?, f.input(2)?);
                let target = f.unary(Unary::Neg, target)?;
                let product = f.binary(Binary::Mul, target, d)?;
                let loss = f.binary(Binary::Add, product, float(margin))?;
                f.binary(Binary::Maximum, loss, int(0))
            }
            Self::PoissonNll { log_input, full, eps } => {
                let (rate, log) = match log_input {
                    true => (f.unary(Unary::Exp, x.clone())?, x),
                    false => {
                        let above = f.binary(Binary::Add, x.clone(), float(eps))?;
                        (x, f.unary(Unary::Log, above)?)
                    }
                };
                let product = f.binary(Binary::Mul, y.clone(), log)?;
                let loss = f.binary(Binary::Sub, rate, product)?;
                if !full {
                    return Ok(loss);
                }
                let stirling = stirling(f, y)?;
                f.binary(Binary::Add, loss, stirling)
            }
            Self::GaussianNll { full, eps } => {
                let variance = f.input(2)?;
                let variance = f.binary(Binary::Maximum, variance, float(eps))?;
                let log = f.unary(Unary::Log, variance.clone())?;
                let d = f.binary(Binary::Sub, x, y)?;
                let square = f.unary(Unary::Square, d)?;
                let ratio = f.binary(Binary::Div, square, variance)?;
                let sum = f.binary(Binary::Add, log, ratio)?;
                let loss = f.binary(Binary::Mul, sum, float(0.5))?;
                let constant = if full { 0.5 * (2.0 * PI).ln() } else { 0.0 };
                f.binary(Binary::Add, loss, float(constant))
            }
        }
    }
}

fn distance(f: &mut Lowering<'_>, x: Term, y: Term) -> Result<Term, ShapeError> {
    let d = f.binary(Binary::Sub, x, y)?;
    f.unary(Unary::Abs, d)
}

/// The loss times an input, where there is one.
fn times_input(f: &mut Lowering<'_>, loss: Term, at: Option<usize>) -> Result<Term, ShapeError> {
    let Some(at) = at else { return Ok(loss) };
    let weight = f.input(at)?;
    f.binary(Binary::Mul, loss, weight)
}

/// Stirling's approximation of ln(y!): y ln(y) - y + ln(2 pi y) / 2, and 0 up to 1.
fn stirling(f: &mut Lowering<'_>, y: Term) -> Result<Term, ShapeError> {
    let log = f.unary(Unary::Log, y.clone())?;
    let product = f.binary(Binary::Mul, y.clone(), log)?;
    let sum = f.binary(Binary::Sub, product, y.clone())?;
    let circle = f.binary(Binary::Mul, y.clone(), float(2.0 * PI))?;
    let circle = f.unary(Unary::Log, circle)?;
    let circle = f.binary(Binary::Mul, circle, Term::Number(Scalar::Float(0.5)))?;
    let sum = f.binary(Binary::Add, sum, circle)?;
    let few = f.binary(Binary::Le, y, int(1))?;
    f.select(few, int(0), sum)
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor, try_op};
    use plutino_tensor::Tensor;

    /// The losses of elements.
    fn each(line: &str, inputs: &[&[f32]]) -> Vec<f32> {
        let names: Vec<String> = (0..=inputs.len()).map(|i| i.to_string()).collect();
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let line = format!("{kind} l {} 1 {} reduction=none {rest}", inputs.len(), names.join(" "));
        let inputs: Vec<Tensor> = inputs.iter().map(|x| tensor([x.len()], x)).collect();
        crate::testkit::values(&check(&*op(&line), &inputs)[0])
    }

    #[track_caller]
    fn near(found: &[f32], expected: &[f32]) {
        let of = |x: &[f32]| tensor([x.len()], x);
        assert_close(&of(found), &of(expected), 1e-5);
    }

    #[test]
    fn of_distances() {
        let inputs: [&[f32]; 2] = [&[1.0, 2.0, -3.0], &[1.5, 0.0, -3.0]];
        assert_eq!(each("F.l1_loss", &inputs), [0.5, 2.0, 0.0]);
        assert_eq!(each("F.mse_loss", &inputs), [0.25, 4.0, 0.0]);
        assert_eq!(each("F.smooth_l1_loss beta=1.0", &inputs), [0.125, 1.5, 0.0]);
        assert_eq!(each("nn.SmoothL1Loss beta=0", &inputs), [0.5, 2.0, 0.0]);
        assert_eq!(each("F.huber_loss delta=0.25", &inputs), [0.09375, 0.46875, 0.0]);
        assert!(try_op("F.huber_loss h 2 1 0 1 2 delta=0", &[]).is_err());
    }

    #[test]
    fn of_probabilities() {
        let y = each("F.binary_cross_entropy", &[&[0.5, 0.0, 0.25], &[1.0, 1.0, 0.0]]);
        near(&y, &[std::f32::consts::LN_2, 100.0, 0.287_682_1]);
        let line = "F.binary_cross_entropy_with_logits $input=0 $target=1 $pos_weight=2";
        near(
            &each(line, &[&[0.0, 0.0], &[1.0, 0.0], &[3.0]]),
            &[2.079_441_5, std::f32::consts::LN_2],
        );
        let line =
            "F.binary_cross_entropy_with_logits $input=0 $target=1 $weight=2 pos_weight=None";
        near(&each(line, &[&[0.0, 2.0], &[1.0, 0.0], &[2.0]]), &[1.386_294_4, 4.253_856]);
        near(&each("F.kl_div", &[&[-1.0, 3.0], &[0.5, 0.0]]), &[0.153_426_41, 0.0]);
        near(&each("F.kl_div log_target=True", &[&[-1.0], &[0.0]]), &[1.0]);
        near(&each("F.poisson_nll_loss", &[&[0.0, 1.0], &[2.0, 1.0]]), &[1.0, 1.718_281_7]);
        let y = each("F.poisson_nll_loss log_input=False full=True", &[&[2.0], &[2.0]]);
        near(&y, &[2.0 - 2.0 * 2f32.ln() + 0.651_806_5]);
        let y = each("F.gaussian_nll_loss", &[&[1.0], &[0.0], &[0.5]]);
        near(&y, &[0.5 * (0.5f32.ln() + 2.0)]);
        error(&*op("F.binary_cross_entropy b 2 1 0 1 2"), &[iota([2]), iota([1])]);
    }

    #[test]
    fn of_margins() {
        near(
            &each("F.soft_margin_loss", &[&[1.0, -1.0], &[1.0, 1.0]]),
            &[0.313_261_7, 1.313_261_7],
        );
        let y = each("F.hinge_embedding_loss margin=2.0", &[&[0.5, 0.5, 3.0], &[1.0, -1.0, -1.0]]);
        assert_eq!(y, [0.5, 1.5, 0.0]);
        let y = each("F.margin_ranking_loss margin=0.5", &[&[1.0, 1.0], &[0.0, 0.0], &[1.0, -1.0]]);
        assert_eq!(y, [0.0, 1.5]);
    }

    #[test]
    fn what_they_become() {
        let inputs = [iota([2, 3]), Tensor::zeros(plutino_tensor::DType::F32, [2, 3]).unwrap()];
        let run = |line: &str| check(&*op(line), &inputs).remove(0);
        assert_eq!(run("F.l1_loss l 2 1 0 1 2 $input=0 $target=1"), tensor([], &[2.5f32]));
        assert_eq!(run("nn.L1Loss l 2 1 0 1 2 reduction=sum"), tensor([], &[15.0f32]));
        let y = run("F.kl_div l 2 1 0 1 2 reduction=batchmean log_target=True");
        assert_eq!(y, tensor([], &[-7.5f32]));
        assert!(try_op("F.l1_loss l 2 1 0 1 2 reduction=batchmean", &[]).is_err());
    }
}

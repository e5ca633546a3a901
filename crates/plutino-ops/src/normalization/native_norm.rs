//! PyTorch's native normalisations, which return the statistics as well, and batch norm by the
//! statistics of the batch.
//!
//! `aten::native_layer_norm`, `aten::native_group_norm`, `aten::_fused_rms_norm`,
//! `aten::native_batch_norm` and its neighbours, `aten::instance_norm` and weight norm
//! (<https://pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html>).

use crate::normalization::{batch_norm, group_norm, layer_norm};
use crate::support::composite::{Compose, StepText, composed};
use crate::support::several::{Nothing, several};
use crate::{BuildError, BuildProblem, NodeReader, Operator, ShapeError, TensorValue, register_op};

/// An input that may be `None`.
fn optional_input(r: &mut NodeReader<'_>, key: &str) -> Result<Option<usize>, BuildError> {
    match r.has(key) {
        true if r.optional::<String>(key)?.is_none() => Ok(None),
        true => Err(r.bad(key, "None, or an input")),
        false => Ok(r.input(key)),
    }
}

/// The normalised tensor and the statistics; without them where the node has one output.
fn with_statistics(
    r: &NodeReader<'_>,
    normalized: Box<dyn Operator>,
    statistics: Vec<Box<dyn Operator>>,
) -> Result<Box<dyn Operator>, BuildError> {
    let all = statistics.len() + 1;
    match r.output_count() {
        1 => Ok(normalized),
        found if found == all => {
            Ok(several("norm", std::iter::once(normalized).chain(statistics).collect()))
        }
        found => {
            let expected = format!("1 or {all}");
            Err(r.error(BuildProblem::Outputs { expected, found }))
        }
    }
}

/// Over which elements statistics are taken, and the shape that they have.
#[derive(Debug, Clone, Copy)]
enum Over {
    /// So many trailing dimensions, which are kept as 1.
    Trailing(usize),
    /// Each of so many groups of channels of an image: `(N, groups)`.
    Groups(usize),
    /// All dimensions but the channels: `(C)`.
    Channels,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Mean,
    /// 1 / sqrt(variance + eps).
    InverseDeviation,
    /// 1 / sqrt(mean of squares + eps).
    InverseRoot,
}

/// A statistic of an input.
#[derive(Debug)]
struct Statistic {
    input: usize,
    what: What,
    over: Over,
    /// None: the dtype's epsilon.
    eps: Option<f64>,
}

impl Statistic {
    fn boxed(self) -> Result<Box<dyn Operator>, BuildError> {
        composed(self)
    }
}

/// The text of a list, with a comma behind a single element.
fn list(values: impl IntoIterator<Item = usize>) -> String {
    let words: Vec<String> = values.into_iter().map(|v| v.to_string()).collect();
    format!("({})", words.join(","))
}

impl Compose for Statistic {
    fn name(&self) -> &'static str {
        "statistic"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let x = inputs.first().ok_or_else(|| ShapeError::Invalid("internal: no input".into()))?;
        let rank = x.shape().rank();
        let mut steps = Vec::new();
        let (mut from, mut keepdim) = ("x0", false);
        let dims = match self.over {
            Over::Trailing(n) => {
                keepdim = true;
                list(rank.saturating_sub(n)..rank)
            }
            Over::Groups(groups) => {
                let batch = x.shape().first().copied().unwrap_or(1);
                let each = x.shape().numel().checked_div(batch.saturating_mul(groups)).unwrap_or(0);
                let shape = format!("shape=({batch},{groups},{each})");
                steps.push(StepText::new("Tensor.reshape", &["x0"], "grouped", &shape));
                from = "grouped";
                "(2)".into()
            }
            Over::Channels => list((0..rank).filter(|&d| d != 1)),
        };
        let keepdim = if keepdim { "True" } else { "False" };
        let eps = self.eps.unwrap_or_else(|| layer_norm::epsilon(x.dtype()));
        let over = format!("dim={dims} keepdim={keepdim}");
        let inverse = format!("expr=rsqrt(add(@0,{eps:e}))");
        match self.what {
            What::Mean => steps.push(StepText::new("torch.mean", &[from], "y", &over)),
            What::InverseDeviation => {
                let over = format!("{over} correction=0");
                steps.push(StepText::new("torch.var", &[from], "variance", &over));
                steps.push(StepText::new("pnnx.Expression", &["variance"], "y", &inverse));
            }
            What::InverseRoot => {
                steps.push(StepText::new("pnnx.Expression", &[from], "squares", "expr=mul(@0,@0)"));
                steps.push(StepText::new("torch.mean", &["squares"], "mean", &over));
                steps.push(StepText::new("pnnx.Expression", &["mean"], "y", &inverse));
            }
        }
        Ok(steps)
    }
}

/// `(output, mean, 1 / deviation)`
fn native_layer_norm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let over = Over::Trailing(r.required::<Vec<i64>>("normalized_shape")?.len());
    let eps = Some(r.or("eps", 1e-5)?);
    let normalized = layer_norm::function(r, true)?;
    let input = normalized.input;
    let of = |what| Statistic { input, what, over, eps }.boxed();
    with_statistics(r, Box::new(normalized), vec![of(What::Mean)?, of(What::InverseDeviation)?])
}
register_op!(native_layer_norm => "aten::native_layer_norm");

/// `(output, 1 / root of the mean of squares)`
fn fused_rms_norm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let over = Over::Trailing(r.required::<Vec<i64>>("normalized_shape")?.len());
    let eps = r.optional("eps")?;
    let normalized = layer_norm::function(r, false)?;
    let input = normalized.input;
    let statistic = Statistic { input, what: What::InverseRoot, over, eps };
    with_statistics(r, Box::new(normalized), vec![statistic.boxed()?])
}
register_op!(fused_rms_norm => "aten::_fused_rms_norm");

/// `(output, mean, 1 / deviation)`
fn native_group_norm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    // Known from the input's shape; computed where the batch may vary.
    for key in ["N", "C", "HxW"] {
        r.arg::<i64>(key)?;
    }
    let groups: usize = r.required("group")?;
    if groups == 0 {
        return Err(r.bad("group", "an integer of at least 1"));
    }
    let eps = r.or("eps", 1e-5)?;
    let normalized = group_norm::grouped(r, groups, eps)?;
    let input = normalized.input;
    let of = |what| Statistic { input, what, over: Over::Groups(groups), eps: Some(eps) }.boxed();
    with_statistics(r, Box::new(normalized), vec![of(What::Mean)?, of(What::InverseDeviation)?])
}
register_op!(native_group_norm => "aten::native_group_norm");

/// `(output, mean, 1 / deviation)`; the statistics are empty where the running ones are used.
fn native_batch_norm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let eps = r.or("eps", 1e-5)?;
    let (input, normalized) = batch_norm::functional(r)?;
    let trained = r.or("training", false)?;
    let statistic = |what| -> Result<Box<dyn Operator>, BuildError> {
        match trained {
            true => Statistic { input, what, over: Over::Channels, eps: Some(eps) }.boxed(),
            false => Ok(Box::new(Nothing { input, dtype: None })),
        }
    };
    let statistics = vec![statistic(What::Mean)?, statistic(What::InverseDeviation)?];
    with_statistics(r, normalized, statistics)
}
register_op!(native_batch_norm => "aten::native_batch_norm", "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_no_training");

/// With `use_input_stats` of its own input, else by the running statistics.
fn instance_norm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let _: Option<f64> = r.optional("momentum")?; // of what is not kept
    match r.or("use_input_stats", true)? {
        true => group_norm::instance_function(r),
        false => Ok(batch_norm::functional(r)?.1),
    }
}
register_op!(instance_norm => "aten::instance_norm");

/// Batch norm by the mean and the variance of the batch itself.
#[derive(Debug)]
pub(crate) struct OwnStatistics {
    pub(crate) input: usize,
    pub(crate) weight: Option<usize>,
    pub(crate) bias: Option<usize>,
    pub(crate) eps: f64,
}

impl Compose for OwnStatistics {
    fn name(&self) -> &'static str {
        "batch_norm.own_statistics"
    }

    fn inputs(&self) -> Vec<usize> {
        std::iter::once(self.input).chain(self.weight).chain(self.bias).collect()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let dims = inputs.first().map(|x| x.shape().dims()).unwrap_or_default();
        let &[_, channels, ..] = dims else {
            let what = format!("batch norm needs 2 dimensions at least, found shape {dims:?}");
            return Err(ShapeError::Invalid(what));
        };
        let others = format!("dim={} keepdim=True", list((0..dims.len()).filter(|&d| d != 1)));
        let mut steps = vec![
            StepText::new("torch.mean", &["x0"], "mean", &others),
            StepText::new("torch.var", &["x0"], "variance", &format!("{others} correction=0")),
            // The roundings of the mean, which a small variance would make large.
            StepText::new("pnnx.Expression", &["x0", "mean"], "deviation", "expr=sub(@0,@1)"),
            StepText::new("torch.mean", &["deviation"], "off", &others),
        ];
        let eps = self.eps;
        let mut formula = format!("mul(sub(@0,@1),rsqrt(add(@2,{eps:e})))");
        let mut names = vec!["deviation", "off", "variance"];
        let shape = std::iter::once(1).chain([channels]).chain(vec![1; dims.len() - 2]);
        let shape = format!("shape={}", list(shape));
        let parameters = [(self.weight, "mul", "weight"), (self.bias, "add", "bias")];
        let given = parameters.into_iter().filter(|(input, ..)| input.is_some());
        for (i, (_, function, name)) in given.enumerate() {
            steps.push(StepText::new("Tensor.reshape", &[["x1", "x2"][i.min(1)]], name, &shape));
            formula = format!("{function}({formula},@{})", names.len());
            names.push(name);
        }
        steps.push(StepText::new("pnnx.Expression", &names, "y", &format!("expr={formula}")));
        Ok(steps)
    }
}

/// Weight norm: `v g / |v|`, where the norm is taken over all dimensions but one, or (-1) over all.
#[derive(Debug)]
struct WeightNorm {
    v: usize,
    g: usize,
    dim: i64,
    /// Whether the norm itself is the result.
    norm: bool,
}

/// `(w, |v|)`
fn weight_norm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.or("dim", 0)?;
    let (v, g) = (r.required_input("v")?, r.required_input("g")?);
    let part = |norm| composed(WeightNorm { v, g, dim, norm });
    with_statistics(r, part(false)?, vec![part(true)?])
}
register_op!(weight_norm => "aten::_weight_norm", "aten::_weight_norm_interface");

impl Compose for WeightNorm {
    fn name(&self) -> &'static str {
        "weight_norm"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.v, self.g]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let shape = inputs.first().map(|v| v.shape().clone()).unwrap_or_default();
        let over = match self.dim {
            -1 => "dim=None keepdim=False".to_owned(),
            dim => {
                let kept = shape.dim(dim)?;
                format!("dim={} keepdim=True", list((0..shape.rank()).filter(|&d| d != kept)))
            }
        };
        let name = if self.norm { "y" } else { "norm" };
        let mut steps = vec![StepText::new("torch.norm", &["x0"], name, &format!("p=2 {over}"))];
        if !self.norm {
            let formula = "expr=mul(@0,div(@1,@2))";
            steps.push(StepText::new("pnnx.Expression", &["x0", "x1", "norm"], "y", formula));
        }
        Ok(steps)
    }
}

/// The inputs of [`OwnStatistics`].
pub(crate) fn own_statistics(
    r: &mut NodeReader<'_>,
    input: usize,
    eps: f64,
) -> Result<OwnStatistics, BuildError> {
    Ok(OwnStatistics {
        input,
        weight: optional_input(r, "weight")?,
        bias: optional_input(r, "bias")?,
        eps,
    })
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, check_line, op, random, tensor, try_op, values};
    use plutino_tensor::Tensor;

    /// The mean and 1 / sqrt(variance + eps), in f64.
    fn statistics(x: &[f32], eps: f64) -> [f32; 2] {
        let n = x.len() as f64;
        let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let variance = x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
        [mean as f32, (1.0 / (variance + eps).sqrt()) as f32]
    }

    // A few dozen values below 1, deviations of about a half.
    const BOUND: f32 = 20.0 * f32::EPSILON;

    #[test]
    fn layers_and_groups_with_their_statistics() {
        let (x, w, b) = (random([3, 4, 6], 1), random([6], 2), random([6], 3));
        let y = check_line(
            "aten::native_layer_norm n 5 3 0 =[6] 1 2 =1.000000e-3 3 4 5",
            &[x.clone(), w.clone(), b.clone()],
        );
        let spelled = op("F.layer_norm n 3 1 0 1 2 3 normalized_shape=(6) eps=1.000000e-3");
        assert_eq!(y[0], check(&*spelled, &[x.clone(), w.clone(), b])[0]);
        let rows: Vec<[f32; 2]> =
            values::<f32>(&x).chunks(6).map(|row| statistics(row, 1e-3)).collect();
        for (i, found) in y[1..].iter().enumerate() {
            let expected: Vec<f32> = rows.iter().map(|row| row[i]).collect();
            assert_close(found, &tensor([3, 4, 1], &expected), BOUND);
        }
        let y =
            check_line("aten::_fused_rms_norm n 4 2 0 =[6] 1 =None 2 3", &[x.clone(), w.clone()]);
        let spelled = op("F.rms_norm n 2 1 0 1 2 normalized_shape=(6) eps=None");
        assert_eq!(y[0], check(&*spelled, &[x.clone(), w])[0]);
        assert_eq!(y[1].shape().dims(), [3, 4, 1]);

        let (w, b) = (random([4], 2), random([4], 3));
        let y = check_line(
            "aten::native_group_norm n 8 3 0 1 2 =3 =4 =6 =2 =1.000000e-5 3 4 5",
            &[x.clone(), w.clone(), b.clone()],
        );
        let spelled = op("F.group_norm n 3 1 0 1 2 3 num_groups=2 eps=1.000000e-5");
        assert_eq!(y[0], check(&*spelled, &[x.clone(), w, b])[0]);
        let groups: Vec<[f32; 2]> =
            values::<f32>(&x).chunks(12).map(|group| statistics(group, 1e-5)).collect();
        for (i, found) in y[1..].iter().enumerate() {
            let expected: Vec<f32> = groups.iter().map(|group| group[i]).collect();
            assert_close(found, &tensor([3, 2], &expected), BOUND);
        }
    }

    #[test]
    fn batches() {
        let x = random([3, 4, 5], 1);
        let [w, b, m, v] = [2, 3, 4, 5].map(|seed| random([4], seed));
        let v = tensor([4], &values::<f32>(&v).iter().map(|v| v.abs() + 0.5).collect::<Vec<_>>());
        let spelled = op(
            "F.batch_norm n 5 1 0 1 2 3 4 5 eps=1.000000e-5 $input=0 $running_mean=1 $running_var=2 \
                          $weight=3 $bias=4",
        );
        let given = [x.clone(), m.clone(), v.clone(), w.clone(), b.clone()];
        let expected = check(&*spelled, &given).remove(0);
        let all = [x.clone(), w.clone(), b.clone(), m.clone(), v.clone()];
        for line in [
            "aten::native_batch_norm n 8 3 0 1 2 3 4 =False =0.1 =1.000000e-5 5 6 7",
            "aten::_native_batch_norm_legit_no_training n 7 3 0 1 2 3 4 =0.1 =1.000000e-5 5 6 7",
        ] {
            let y = check_line(line, &all);
            assert_eq!(y[0], expected);
            assert_eq!((y[1].numel(), y[2].numel()), (0, 0));
        }
        let line = "aten::instance_norm n 9 1 0 1 2 3 4 =False =0.1 =1.000000e-5 =True 5";
        assert_eq!(check_line(line, &all)[0], expected);

        // By the batch's own statistics.
        let line = "aten::_native_batch_norm_legit n 6 3 0 1 2 =True =0.1 =1.000000e-5 5 6 7";
        let y = check_line(line, &[x.clone(), w.clone(), b.clone()]);
        let spelled = op(
            "F.batch_norm n 3 1 0 1 2 3 eps=1.000000e-5 running_mean=None running_var=None $input=0 \
                          $weight=1 $bias=2",
        );
        assert_eq!(check(&*spelled, &[x.clone(), w.clone(), b.clone()])[0], y[0]);
        let (x, w, b) = (values::<f32>(&x), values::<f32>(&w), values::<f32>(&b));
        let own: Vec<[f32; 2]> = (0..4)
            .map(|c| {
                let channel: Vec<f32> = x.chunks(5).skip(c).step_by(4).flatten().copied().collect();
                statistics(&channel, 1e-5)
            })
            .collect();
        let expected: Vec<f32> = x
            .iter()
            .enumerate()
            .map(|(i, x)| {
                let c = i / 5 % 4;
                (x - own[c][0]) * own[c][1] * w[c] + b[c]
            })
            .collect();
        assert_close(&y[0], &tensor([3, 4, 5], &expected), BOUND);
        let means: Vec<f32> = own.iter().map(|own| own[0]).collect();
        assert_close(&y[1], &tensor([4], &means), BOUND);
    }

    #[test]
    fn weights() {
        let (v, g) = (random([3, 4, 2], 1), random([3, 1, 1], 2));
        let y =
            check_line("aten::_weight_norm_interface w 3 2 0 1 =0 2 3", &[v.clone(), g.clone()]);
        let norms: Vec<f32> = values::<f32>(&v)
            .chunks(8)
            .map(|row| row.iter().map(|v| v * v).sum::<f32>().sqrt())
            .collect();
        assert_close(&y[1], &tensor([3, 1, 1], &norms), BOUND);
        let g = values::<f32>(&g);
        let expected: Vec<f32> = values::<f32>(&v)
            .iter()
            .enumerate()
            .map(|(i, v)| v * (g[i / 8] / norms[i / 8]))
            .collect();
        assert_close(&y[0], &tensor([3, 4, 2], &expected), BOUND);
        let all: Tensor = random([], 4);
        let whole = check_line("aten::_weight_norm w 3 1 0 1 =-1 2", &[v, all]);
        assert_eq!(whole[0].shape().dims(), [3, 4, 2]);
    }

    #[test]
    fn outputs_are_counted() {
        for line in [
            "aten::native_layer_norm n 5 2 0 =[6] =None =None =1.0 3 4",
            "aten::_fused_rms_norm n 4 3 0 =[6] =None =None 1 2 3",
        ] {
            assert!(try_op(line, &[]).unwrap_err().to_string().contains("outputs"));
        }
    }
}

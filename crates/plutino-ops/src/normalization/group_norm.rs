//! Group norm and instance norm: the channels of an image normalised in groups, or one by one.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.GroupNorm.html>,
//! <https://pytorch.org/docs/stable/generated/torch.nn.InstanceNorm2d.html>. An instance norm that
//! tracks running statistics uses them at inference, as batch norm does; the function
//! `F.instance_norm` uses those of the input whatever it is given (`use_input_stats` is true by
//! default).

use crate::normalization::batch_norm::{BatchNorm, with_running_statistics};
use crate::normalization::layer_norm::{check_parameters, plan_rows};
use crate::support::assemble::leaf;
use crate::support::weights::{Bound, Source, optional};
use crate::{
    BuildError, Cost, Kernel, LayoutCx, LayoutSupport, NodeReader, Operator, PlanCx, PlanError,
    Planned, RunCx, RunError, ShapeError, StrideRule, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::norm::{BlockedGroupNorm, RowNorm};
use plutino_tensor::Layout;

#[derive(Debug)]
pub(crate) struct GroupNorm {
    pub(crate) input: usize,
    /// None: each channel is a group.
    groups: Option<usize>,
    /// Spatial dimensions of instance norm, whose input may lack the batch.
    spatial: Option<usize>,
    eps: f64,
    weight: Option<Source>,
    bias: Option<Source>,
}

fn groups(r: &mut NodeReader<'_>) -> Result<usize, BuildError> {
    let groups: usize = r.required("num_groups")?;
    if groups == 0 { Err(r.bad("num_groups", "an integer of at least 1")) } else { Ok(groups) }
}

fn group_module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (groups, affine) = (groups(r)?, r.or("affine", true)?);
    // pnnx leaves it out where no weight has as many numbers.
    let channels = match affine {
        true => r.required::<usize>("num_channels")?,
        false => r.or("num_channels", 0)?,
    };
    if !channels.is_multiple_of(groups) {
        return Err(r.bad("num_channels", "a multiple of num_groups"));
    }
    let eps = r.or("eps", 1e-5)?;
    Ok(Box::new(GroupNorm {
        input: r.required_input("input")?,
        groups: Some(groups),
        spatial: None,
        eps,
        weight: r.weight_if(affine, "weight", &[channels])?.map(Source::Stored),
        bias: r.weight_if(affine, "bias", &[channels])?.map(Source::Stored),
    }))
}
register_op!(group_module => "nn.GroupNorm");

fn group_function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (groups, eps) = (groups(r)?, r.or("eps", 1e-5)?);
    Ok(Box::new(grouped(r, groups, eps)?))
}
register_op!(group_function => "F.group_norm");

/// A function whose weights are inputs.
pub(crate) fn grouped(
    r: &mut NodeReader<'_>,
    groups: usize,
    eps: f64,
) -> Result<GroupNorm, BuildError> {
    Ok(GroupNorm {
        input: r.required_input("input")?,
        groups: Some(groups),
        spatial: None,
        eps,
        weight: Source::optional_input(r, "weight")?,
        bias: Source::optional_input(r, "bias")?,
    })
}

fn instance_module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let spatial = match r.kind() {
        "nn.InstanceNorm1d" => 1,
        "nn.InstanceNorm2d" => 2,
        _ => 3,
    };
    if r.or("track_running_stats", false)? {
        let norm = with_running_statistics(r, (spatial + 2, spatial + 2))?;
        return Ok(Box::new(BatchNorm { unbatched: true, ..norm }));
    }
    let (channels, eps) = (r.required("num_features")?, r.or("eps", 1e-5)?);
    let affine = r.or("affine", false)?;
    Ok(Box::new(GroupNorm {
        input: r.required_input("input")?,
        groups: None,
        spatial: Some(spatial),
        eps,
        weight: r.weight_if(affine, "weight", &[channels])?.map(Source::Stored),
        bias: r.weight_if(affine, "bias", &[channels])?.map(Source::Stored),
    }))
}
register_op!(instance_module => "nn.InstanceNorm1d", "nn.InstanceNorm2d", "nn.InstanceNorm3d");

pub(crate) fn instance_function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let eps = r.or("eps", 1e-5)?;
    let input = r.required_input("input")?;
    Source::optional_input(r, "running_mean")?;
    Source::optional_input(r, "running_var")?;
    Ok(Box::new(GroupNorm {
        input,
        groups: None,
        spatial: None,
        eps,
        weight: Source::optional_input(r, "weight")?,
        bias: Source::optional_input(r, "bias")?,
    }))
}
register_op!(instance_function => "F.instance_norm");

impl GroupNorm {
    /// The input, its channels, and the elements of one.
    fn subject<'a>(
        &self,
        inputs: &'a [ValueSpec],
    ) -> Result<(&'a TensorValue, usize, usize), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (shape, rank) = (x.shape(), x.shape().rank());
        let (fits, expected) = match (self.spatial, self.groups) {
            (Some(n), _) => (rank == n + 1 || rank == n + 2, format!("{} or {}", n + 1, n + 2)),
            (None, None) => (rank >= 3, "at least 3".into()),
            (None, Some(_)) => (rank >= 2, "at least 2".into()),
        };
        if !fits {
            return Err(ShapeError::Rank { input: self.input, expected, found: shape.clone() });
        }
        let dim = usize::from(self.spatial != Some(rank - 1));
        let channels = shape[dim];
        if self.groups.is_some_and(|g| !channels.is_multiple_of(g)) {
            return Err(ShapeError::Size {
                input: self.input,
                dim,
                expected: format!("a multiple of {}", self.groups.unwrap_or(1)),
                found: shape.clone(),
            });
        }
        check_parameters(x, self.input, &[channels], [&self.weight, &self.bias], inputs)?;
        Ok((x, channels, shape.product(dim + 1..rank)))
    }
}

impl GroupNorm {
    fn plan_in_blocks(
        &self,
        cx: &PlanCx<'_>,
        groups: usize,
        sizes: [usize; 3],
    ) -> Result<Planned, PlanError> {
        let norm = BlockedGroupNorm::new(cx.isa, sizes, groups, self.eps);
        let norm = norm.ok_or_else(|| PlanError::Unsupported("these groups in blocks".into()))?;
        let scratch = norm.scratch_len().saturating_mul(size_of::<f64>());
        let elements = |source: &Option<Source>| {
            source.as_ref().map(|s| s.elements::<f32>(cx.inputs)).transpose()
        };
        let kernel = Blocks {
            name: format!("group_norm.c{}.{}", cx.isa.lanes(), cx.isa),
            norm,
            input: leaf(cx.inputs, self.input),
            weight: elements(&self.weight)?,
            bias: elements(&self.bias)?,
        };
        let input = kernel.input;
        Ok(Planned::new(kernel).with_scratch(scratch).in_place(input))
    }
}

impl Operator for GroupNorm {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (x, ..) = self.subject(inputs)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (x, channels, inner) = self.subject(cx.inputs)?;
        let groups = self.groups.unwrap_or(channels).max(1);
        if x.spec.layout != Layout::Plain {
            return self.plan_in_blocks(cx, groups, [x.shape()[0], channels, inner]);
        }
        let len = (channels / groups).saturating_mul(inner).max(1);
        let norm = RowNorm { len, span: inner.max(1), centered: true, eps: self.eps };
        // Images do not depend on each other; nor do channels that are groups without weights.
        let batch = usize::from(self.spatial.is_none_or(|n| x.shape().rank() == n + 2));
        let alone = self.groups.is_none() && self.weight.is_none() && self.bias.is_none();
        let first = (self.input, batch + usize::from(alone));
        plan_rows(cx, first, norm, [&self.weight, &self.bias])
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let batched = |(x, ..): (&TensorValue, usize, usize)| {
            let batched = self.spatial.is_none_or(|n| x.shape().rank() == n + 2);
            batched && x.spec.may_lie_in_blocks() && x.shape().numel() > 0
        };
        LayoutSupport::common_if(self.subject(cx.inputs).is_ok_and(batched))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, 7)
    }
}

/// Of channel blocks.
struct Blocks {
    name: String,
    norm: BlockedGroupNorm,
    input: usize,
    weight: Option<Bound<[f32]>>,
    bias: Option<Bound<[f32]>>,
}

impl Kernel for Blocks {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (weight, bias) =
            (optional(&self.weight, &cx.inputs)?, optional(&self.bias, &cx.inputs)?);
        let scratch = cx.take_scratch::<f64>()?;
        let data = cx.inout(self.input, 0)?;
        self.norm.run(cx.par, weight, bias, data, scratch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{assert_close, check, error, op, op_with, random, tensor, try_op, values};
    use plutino_reference::norm::rows;
    use plutino_tensor::{Shape, Tensor};

    fn parameters() -> Vec<(&'static str, Tensor)> {
        vec![("weight", random([6], 2)), ("bias", random([6], 3))]
    }

    fn expected(len: usize, span: usize, affine: bool, x: &Tensor) -> Tensor {
        let norm = RowNorm { len, span, centered: true, eps: 1e-3 };
        let p: Vec<Vec<f32>> = parameters().iter().map(|(_, t)| values(t)).collect();
        let (w, b) = (affine.then_some(&p[0][..]), affine.then_some(&p[1][..]));
        let y: Vec<f32> = rows(&norm, w, b, &values::<f32>(x)).iter().map(|&v| v as f32).collect();
        tensor(x.shape().clone(), &y)
    }

    #[test]
    fn groups_of_channels() {
        for (shape, inner) in [(vec![3, 6], 1), (vec![2, 6, 5], 5), (vec![2, 6, 3, 7], 21)] {
            for groups in [1, 2, 3, 6] {
                let x = random(shape.clone(), 1);
                let expected = expected(6 / groups * inner, inner, true, &x);
                let line = format!(
                    "nn.GroupNorm g 1 1 0 1 affine=True eps=0.001 num_channels=6 num_groups={groups}"
                );
                let y = check(&*op_with(&line, &parameters()), std::slice::from_ref(&x));
                // A group of one element has deviations of 0, whatever the rounding.
                assert_close(&y[0], &expected, 2e-5);
                let line = format!(
                    "F.group_norm g 3 1 0 1 2 3 eps=0.001 num_groups={groups} $input=0 $weight=1 $bias=2"
                );
                let data: Vec<Tensor> =
                    std::iter::once(x).chain(parameters().into_iter().map(|p| p.1)).collect();
                assert_eq!(check(&*op(&line), &data), y);
            }
        }
    }

    #[test]
    fn instances() {
        for (kind, shape) in [
            ("nn.InstanceNorm1d", vec![2, 6, 9]),
            ("nn.InstanceNorm2d", vec![6, 3, 4]),
            ("nn.InstanceNorm2d", vec![2, 6, 3, 4]),
            ("nn.InstanceNorm3d", vec![1, 6, 2, 3, 4]),
        ] {
            let x = random(shape.clone(), 1);
            let inner = Shape::from(shape.clone()).numel()
                / if kind.ends_with("2d") && shape.len() == 3 { 6 } else { 6 * shape[0] };
            for affine in ["True", "False"] {
                let line = format!(
                    "{kind} i 1 1 0 1 affine={affine} eps=0.001 num_features=6 track_running_stats=False"
                );
                let weights = if affine == "True" { parameters() } else { vec![] };
                let y = check(&*op_with(&line, &weights), std::slice::from_ref(&x));
                assert_close(&y[0], &expected(inner, inner, affine == "True", &x), 2e-5);
            }
        }
    }

    #[test]
    fn tracked_statistics_are_used_by_modules_only() {
        let x = random([2, 6, 9], 1);
        let statistics = [random([6], 8), tensor([6], &[0.25f32; 6])];
        let mut weights = parameters();
        weights.extend(["running_mean", "running_var"].into_iter().zip(statistics.clone()));
        let line = "nn.InstanceNorm1d i 1 1 0 1 affine=True eps=0.0 num_features=6 track_running_stats=True";
        let y = values::<f32>(&check(&*op_with(line, &weights), std::slice::from_ref(&x))[0]);
        let all: Vec<Vec<f32>> = weights.iter().map(|w| values(&w.1)).collect();
        let first = (values::<f32>(&x)[0] - all[2][0]) * 2.0 * all[0][0] + all[1][0];
        assert!((y[0] - first).abs() < 1e-5);
        // An image without a batch.
        let alone = random([6, 9], 1);
        let expected_of = |x: &Tensor| {
            values::<f32>(&check(&*op_with(line, &weights), std::slice::from_ref(x))[0])
        };
        let batch = tensor([1, 6, 9], &values::<f32>(&alone));
        assert_eq!(expected_of(&alone), expected_of(&batch));
        let refused = error(&*op_with(line, &weights), &[random([6], 1)]);
        assert!(refused.to_string().contains("must have 3 dimensions"), "{refused}");

        let line = "F.instance_norm i 5 1 0 1 2 3 4 5 eps=0.001 $input=0 $running_mean=1 $running_var=2 $weight=3 $bias=4";
        let p = parameters();
        let data = [
            x.clone(),
            statistics[0].clone(),
            statistics[1].clone(),
            p[0].1.clone(),
            p[1].1.clone(),
        ];
        assert_close(&check(&*op(line), &data)[0], &expected(9, 9, true, &x), 2e-5);
        let line = "F.instance_norm i 1 1 0 1 bias=None eps=0.001 running_mean=None running_var=None weight=None $input=0";
        assert_close(
            &check(&*op(line), std::slice::from_ref(&x))[0],
            &expected(9, 9, false, &x),
            2e-5,
        );
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        assert!(
            try_op("nn.GroupNorm g 1 1 0 1 affine=False num_channels=6 num_groups=4", &[]).is_err()
        );
        assert!(try_op("F.group_norm g 1 1 0 1 num_groups=0 $input=0", &[]).is_err());
        let groups = op("F.group_norm g 1 1 0 1 bias=None weight=None num_groups=4 $input=0");
        assert!(error(&*groups, &[random([1, 6, 2], 1)]).to_string().contains("a multiple of 4"));
        assert!(error(&*groups, &[random([8], 1)]).to_string().contains("at least 2"));
        let instance =
            op("nn.InstanceNorm2d i 1 1 0 1 affine=False num_features=6 track_running_stats=False");
        assert!(error(&*instance, &[random([6, 3], 1)]).to_string().contains("3 or 4"));
    }
}

//! `aten::_native_multi_head_attention`: what `nn.MultiheadAttention` calls in inference, with its
//! weights as inputs.
//!
//! Query, key and value are `(batch, steps, width)`. Results: `(batch, L, width)`, and the weights
//! of attention, `(batch, L, S)` averaged over heads or `(batch, heads, L, S)`; without elements
//! where they are not asked for.

use crate::support::composite::{Compose, StepText, composed};
use crate::support::rearrange::invalid;
use crate::support::several::{Nothing, several};
use crate::transformer::encoder_layer::NO_MASK;
use crate::{BuildError, BuildProblem, NodeReader, Operator, ShapeError, TensorValue, register_op};

/// The arguments that are tensors, as [`Compose::steps`] names them: `x0` to `x6`.
const TENSORS: [&str; 7] =
    ["query", "key", "value", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias"];

const NAME: &str = "native_multi_head_attention";

/// One of the results.
#[derive(Debug, Clone)]
struct Attention {
    inputs: Vec<usize>,
    width: usize,
    heads: usize,
    result: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Attended,
    Weights { averaged: bool },
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (width, heads): (usize, usize) = (r.required("embed_dim")?, r.required("num_head")?);
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(r.bad("num_head", format!("a divisor of embed_dim, {width}")));
    }
    let inputs: Result<Vec<_>, _> = TENSORS.iter().map(|name| r.required_input(name)).collect();
    let inputs = inputs?;
    for key in ["mask", "mask_type"] {
        if r.named_input(key).is_some() || r.optional::<i64>(key)?.is_some() {
            return Err(r.bad(key, NO_MASK));
        }
    }
    let averaged = r.or("average_attn_weights", true)?;
    let asked = r.or("need_weights", true)?;
    let query = inputs.first().copied().unwrap_or(0);
    let part = |result| composed(Attention { inputs: inputs.clone(), width, heads, result });
    let attended = part(Outcome::Attended)?;
    match r.output_count() {
        1 => Ok(attended),
        2 if asked => Ok(several(NAME, vec![attended, part(Outcome::Weights { averaged })?])),
        2 => Ok(several(NAME, vec![attended, Box::new(Nothing { input: query, dtype: None })])),
        found => Err(r.error(BuildProblem::Outputs { expected: "1 or 2".into(), found })),
    }
}
register_op!(build => "aten::_native_multi_head_attention");

impl Compose for Attention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let (width, heads) = (self.width, self.heads);
        let depth = width / heads.max(1);
        let mut all = Vec::new();
        let mut step = |kind, inputs: &[&str], output: &str, parameters: &str| {
            all.push(StepText::new(kind, inputs, output, parameters));
        };
        let mut lengths = [[0; 2]; 3];
        for (i, name) in ["q", "k", "v"].into_iter().enumerate() {
            let shape = inputs.get(i).map(|x| x.shape().dims()).unwrap_or_default();
            let &[batch, steps, features] = shape else {
                return Err(invalid(format!("{} must have 3 dimensions", TENSORS[i])));
            };
            if features != width {
                return Err(invalid(format!("{} must have {width} features", TENSORS[i])));
            }
            lengths[i] = [batch, steps];
            if self.result != Outcome::Attended && name == "v" {
                continue;
            }
            let part = format!("dim=0 start={} end={} step=1", i * width, (i + 1) * width);
            let [weight, bias, flat, split] =
                ["w", "b", "flat", "split"].map(|s| format!("{name}_{s}"));
            step("Tensor.slice", &["x3"], &weight, &part);
            step("Tensor.slice", &["x4"], &bias, &part);
            step("F.linear", &[["x0", "x1", "x2"][i], &weight, &bias], &flat, "");
            let shape = format!("shape=({batch},{steps},{heads},{depth})");
            step("Tensor.reshape", &[&flat], &split, &shape);
            step("torch.permute", &[&split], name, "dims=(0,2,1,3)");
        }
        let [[batch, steps], key, value] = lengths;
        if key != value || key[0] != batch {
            return Err(invalid(format!(
                "query, key and value of {lengths:?} images and steps do not go together"
            )));
        }
        match self.result {
            Outcome::Attended => {
                step("F.scaled_dot_product_attention", &["q", "k", "v"], "attended", "");
                step("torch.permute", &["attended"], "joined", "dims=(0,2,1,3)");
                let whole = format!("shape=({batch},{steps},{width})");
                step("Tensor.reshape", &["joined"], "whole", &whole);
                step("F.linear", &["whole", "x5", "x6"], "y", "");
            }
            Outcome::Weights { averaged } => {
                step("torch.permute", &["k"], "across", "dims=(0,1,3,2)");
                step("torch.matmul", &["q", "across"], "products", "");
                let scale = format!("expr=div(@0,{:e})", (depth as f64).sqrt());
                step("pnnx.Expression", &["products"], "scores", &scale);
                step("F.softmax", &["scores"], if averaged { "weights" } else { "y" }, "dim=-1");
                if averaged {
                    step("torch.mean", &["weights"], "y", "dim=(1) keepdim=False");
                }
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, check_line, op_with, random, try_op};
    use plutino_tensor::Tensor;

    const LINE: &str = "aten::_native_multi_head_attention m 13 2 0 1 2 =8 =2 3 4 5 6 =None =NEED =AVERAGE =None 7 8";

    #[test]
    fn agrees_with_the_module() {
        let shapes: [&[usize]; 7] =
            [&[2, 5, 8], &[2, 3, 8], &[2, 3, 8], &[24, 8], &[24], &[8, 8], &[8]];
        let t: Vec<Tensor> = shapes.iter().enumerate().map(|(i, &s)| random(s, i as u64)).collect();
        let weights = [
            ("in_proj_weight", t[3].clone()),
            ("in_proj_bias", t[4].clone()),
            ("out_proj.weight", t[5].clone()),
            ("out_proj.bias", t[6].clone()),
        ];
        let module = "nn.MultiheadAttention m 3 2 0 1 2 7 8 embed_dim=8 num_heads=2 batch_first=True bias=True \
                      add_zero_attn=False add_bias_kv=False kdim=8 vdim=8";
        let expected = check(&*op_with(module, &weights), &t[..3]);
        let line =
            |need: &str, average: &str| LINE.replace("NEED", need).replace("AVERAGE", average);
        let found = check_line(&line("True", "True"), &t);
        for (x, y) in found.iter().zip(&expected) {
            assert_close(x, y, 40.0 * f32::EPSILON);
        }
        let each = check_line(&line("True", "False"), &t);
        assert_eq!(each[1].shape().dims(), [2, 2, 5, 3]);
        let none = check_line(&line("False", "True"), &t);
        assert_eq!((&none[0], none[1].numel()), (&found[0], 0));
    }

    #[test]
    fn masks_are_refused() {
        let masked = LINE
            .replace("13 2", "12 2")
            .replace(" =None =NEED", " 9 =True")
            .replace("AVERAGE", "True");
        let masked = masked.replace("=None 7 8", "7 8");
        assert!(try_op(&masked, &[]).unwrap_err().to_string().contains("fastpath"));
    }
}

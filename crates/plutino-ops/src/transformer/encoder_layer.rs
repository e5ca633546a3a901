//! A layer of a transformer's encoder in one node: `aten::_transformer_encoder_layer_fwd`.
//!
//! What `nn.TransformerEncoderLayer` calls in inference
//! (<https://pytorch.org/docs/stable/generated/torch.nn.TransformerEncoderLayer.html>, "fast
//! path"), with its weights as inputs: self-attention and a network of two linear layers, each
//! added to what it was given, with a layer norm before or after each.

use crate::support::composite::{Compose, StepText, composed};
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, register_op};

/// What is right of a mask of PyTorch's fast path.
pub(crate) const NO_MASK: &str = "None: export the model with `plutino.export`; pnnx leaves out \
    masks that are causal where `torch.backends.mha.set_fastpath_enabled(False)`";

/// The arguments that are tensors, as [`Compose::steps`] names them: `x0` to `x12`.
const TENSORS: [&str; 13] = [
    "src",
    "qkv_weight",
    "qkv_bias",
    "proj_weight",
    "proj_bias",
    "norm_weight_1",
    "norm_bias_1",
    "norm_weight_2",
    "norm_bias_2",
    "ffn_weight_1",
    "ffn_bias_1",
    "ffn_weight_2",
    "ffn_bias_2",
];

#[derive(Debug)]
struct EncoderLayer {
    inputs: Vec<usize>,
    width: usize,
    heads: usize,
    gelu: bool,
    norm_first: bool,
    eps: f64,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (width, heads): (usize, usize) = (r.required("embed_dim")?, r.required("num_heads")?);
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(r.bad("num_heads", format!("a divisor of embed_dim, {width}")));
    }
    for key in ["mask", "mask_type"] {
        if r.input(key).is_some() || r.optional::<i64>(key)?.is_some() {
            return Err(r.bad(key, NO_MASK));
        }
    }
    let inputs: Result<Vec<_>, _> = TENSORS.iter().map(|name| r.required_input(name)).collect();
    composed(EncoderLayer {
        inputs: inputs?,
        width,
        heads,
        gelu: r.or("use_gelu", false)?,
        norm_first: r.or("norm_first", false)?,
        eps: r.or("eps", 1e-5)?,
    })
}
register_op!(build => "aten::_transformer_encoder_layer_fwd");

impl Compose for EncoderLayer {
    fn name(&self) -> &'static str {
        "transformer_encoder_layer"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.clone()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let (width, heads) = (self.width, self.heads);
        let [batch, steps] = match inputs.first().map(|x| x.shape().dims()) {
            Some(&[batch, steps, features]) if features == width => [batch, steps],
            found => {
                let found = found.unwrap_or_default();
                let what = format!("src must be (batch, steps, {width}), found shape {found:?}");
                return Err(ShapeError::Invalid(what));
            }
        };
        let depth = width / heads;
        let step = StepText::new;
        let sum =
            |a: &str, b: &str, y: &str| step("pnnx.Expression", &[a, b], y, "expr=add(@0,@1)");
        let eps = self.eps;
        let norm = |x: &str, weights: [&str; 2], y: &str| {
            let parameters = format!("normalized_shape=({width}) eps={eps:e}");
            step("F.layer_norm", &[x, weights[0], weights[1]], y, &parameters)
        };
        let linear = |x: &str, weights: [&str; 2], y: &str| {
            step("F.linear", &[x, weights[0], weights[1]], y, "")
        };
        let (first, second) = (["x5", "x6"], ["x7", "x8"]);
        let mut all = Vec::new();
        // Self-attention.
        if self.norm_first {
            all.push(norm("x0", first, "normed"));
        }
        all.push(linear(if self.norm_first { "normed" } else { "x0" }, ["x1", "x2"], "qkv"));
        let split = format!("shape=({batch},{steps},3,{heads},{depth})");
        all.push(step("Tensor.reshape", &["qkv"], "split", &split));
        all.push(step("torch.permute", &["split"], "apart", "dims=(2,0,3,1,4)"));
        for (i, name) in ["q", "k", "v"].into_iter().enumerate() {
            all.push(step("torch.select", &["apart"], name, &format!("dim=0 index={i}")));
        }
        all.push(step("F.scaled_dot_product_attention", &["q", "k", "v"], "attended", ""));
        all.push(step("torch.permute", &["attended"], "joined", "dims=(0,2,1,3)"));
        let whole = format!("shape=({batch},{steps},{width})");
        all.push(step("Tensor.reshape", &["joined"], "whole", &whole));
        all.push(linear("whole", ["x3", "x4"], "projected"));
        all.push(sum("projected", "x0", "sum1"));
        let middle = if self.norm_first { "sum1" } else { "middle" };
        // What is fed forward.
        let fed = if self.norm_first { "fed" } else { "middle" };
        all.push(norm("sum1", if self.norm_first { second } else { first }, fed));
        all.push(linear(fed, ["x9", "x10"], "wide"));
        all.push(step(if self.gelu { "F.gelu" } else { "F.relu" }, &["wide"], "active", ""));
        all.push(linear("active", ["x11", "x12"], "narrow"));
        all.push(sum("narrow", middle, "sum2"));
        if !self.norm_first {
            all.push(norm("sum2", second, "y"));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{
        assert_close, check, check_line, iota, line_error, op, op_with, random, try_op, values,
    };
    use plutino_tensor::{DType, Tensor};

    const LINE: &str = "aten::_transformer_encoder_layer_fwd t 20 1 0 =8 =2 1 2 3 4 =GELU =FIRST =1.000000e-5 5 6 7 8 9 \
                        10 11 12 =None =None y";

    fn line(gelu: bool, first: bool) -> String {
        let word = |b: bool| if b { "True" } else { "False" };
        LINE.replace("GELU", word(gelu)).replace("FIRST", word(first))
    }

    /// The input and the weights of a layer with 8 features, 2 heads and 12 hidden units.
    fn tensors() -> Vec<Tensor> {
        let shapes: [&[usize]; 13] = [
            &[2, 3, 8],
            &[24, 8],
            &[24],
            &[8, 8],
            &[8],
            &[8],
            &[8],
            &[8],
            &[8],
            &[12, 8],
            &[12],
            &[8, 12],
            &[8],
        ];
        shapes.iter().enumerate().map(|(i, &s)| random(s, i as u64)).collect()
    }

    /// The layer out of the modules that it is made of.
    fn by_modules(t: &[Tensor], gelu: bool, norm_first: bool) -> Tensor {
        let one = |line: &str, weights: &[(&str, Tensor)], x: &Tensor| {
            check(&*op_with(line, weights), std::slice::from_ref(x)).remove(0)
        };
        let norm = |x: &Tensor, at: usize| {
            let weights = [("weight", t[at].clone()), ("bias", t[at + 1].clone())];
            one(
                "nn.LayerNorm n 1 1 0 1 normalized_shape=(8) eps=1.0e-5 elementwise_affine=True",
                &weights,
                x,
            )
        };
        let sum = |x: &Tensor, y: &Tensor| {
            check(&*op("torch.add a 2 1 0 1 2"), &[x.clone(), y.clone()]).remove(0)
        };
        let attention = |x: &Tensor| {
            let weights = [
                ("in_proj_weight", t[1].clone()),
                ("in_proj_bias", t[2].clone()),
                ("out_proj.weight", t[3].clone()),
                ("out_proj.bias", t[4].clone()),
            ];
            let line = "nn.MultiheadAttention m 1 1 0 1 embed_dim=8 num_heads=2 batch_first=True bias=True \
                        add_zero_attn=False add_bias_kv=False kdim=8 vdim=8";
            one(line, &weights, x)
        };
        let feed = |x: &Tensor| {
            let linear = |x: &Tensor, at: usize, sizes: &str| {
                let weights = [("weight", t[at].clone()), ("bias", t[at + 1].clone())];
                one(&format!("nn.Linear l 1 1 0 1 bias=True {sizes}"), &weights, x)
            };
            let wide = linear(x, 9, "in_features=8 out_features=12");
            let kind = if gelu { "F.gelu" } else { "F.relu" };
            let active = one(&format!("{kind} f 1 1 0 1"), &[], &wide);
            linear(&active, 11, "in_features=12 out_features=8")
        };
        let x = &t[0];
        if norm_first {
            let x = sum(x, &attention(&norm(x, 5)));
            return sum(&x, &feed(&norm(&x, 7)));
        }
        let x = norm(&sum(x, &attention(x)), 5);
        norm(&sum(&x, &feed(&x)), 7)
    }

    #[test]
    fn agrees_with_its_modules() {
        let t = tensors();
        for (gelu, first) in [(false, false), (true, false), (false, true), (true, true)] {
            let y = check_line(&line(gelu, first), &t);
            assert_close(&y[0], &by_modules(&t, gelu, first), 2e-5);
        }
    }

    #[test]
    fn other_floats_compute_the_same() {
        let t = tensors();
        let wide: Vec<Tensor> = t.iter().map(|t| t.view().cast(DType::F64).unwrap()).collect();
        let y = check_line(&line(true, false), &wide).remove(0);
        assert_close(&y.view().cast(DType::F32).unwrap(), &by_modules(&t, true, false), 2e-5);
        assert_eq!(values::<f64>(&y).len(), 48);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let line = line(true, true);
        for (from, to) in [
            ("=2 1", "=3 1"),
            ("=2 1", "=0 1"),
            ("=None =None y", "=None =1 y"),
            ("=None =None y", "13 =1 y"),
        ] {
            assert!(try_op(&line.replacen(from, to, 1), &[]).is_err(), "{to}");
        }
        let mut t = tensors();
        t[0] = random([6, 8], 1);
        line_error(&line, &t);
        t[0] = random([2, 3, 9], 1);
        line_error(&line, &t);
        t[0] = random([2, 3, 8], 1);
        t[9] = iota([12, 9]);
        line_error(&line, &t);
    }
}

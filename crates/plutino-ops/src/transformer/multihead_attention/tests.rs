use crate::testkit::{
    assert_close, check, check_bf16, check_values, error, op_with, random, specs, tensor, try_op,
    values,
};
use plutino_tensor::{DType, Shape, Tensor};

const E: usize = 6;

#[test]
fn inputs_of_bf16() {
    let (x, y, z) = (random([2, 5, E], 1), random([2, 7, 4], 2), random([2, 7, 8], 3));
    let line = format!(
        "nn.MultiheadAttention m 1 1 0 1 batch_first=True bias=True embed_dim={E} num_heads=2"
    );
    let alone = op_with(&line, &weights(true, [E; 3], true, false));
    check_bf16(&*alone, std::slice::from_ref(&x), &[0], false);
    // What is added to the result is not rounded.
    let summed = alone.absorb(&crate::Neighbour::Add, &[]).unwrap();
    check_bf16(&*summed, &[x.clone(), random([2, 5, E], 4)], &[0], false);
    // Keys and values of their own, some of them, and a mask between.
    let line = format!(
        "nn.MultiheadAttention m 4 1 0 1 2 3 4 batch_first=True bias=True embed_dim={E} kdim=4 \
         num_heads=3 vdim=8 $query=0 $key=1 $value=2 $attn_mask=3"
    );
    let cross = op_with(&line, &weights(false, [E, 4, 8], true, false));
    let inputs = [x, y, z, random([5, 7], 5)];
    for which in [&[0][..], &[1], &[2], &[0, 1, 2]] {
        check_bf16(&*cross, &inputs, which, false);
    }
}

/// f64 copies of a tensor's values.
fn wide(t: &Tensor) -> Vec<f64> {
    values::<f32>(t).into_iter().map(f64::from).collect()
}

/// The weights of a module, by name.
fn weights(
    joint: bool,
    dims: [usize; 3],
    bias: bool,
    bias_kv: bool,
) -> Vec<(&'static str, Tensor)> {
    let mut all = vec![("out_proj.weight", random([E, E], 10))];
    if joint {
        all.push(("in_proj_weight", random([3 * E, E], 11)));
    } else {
        let names = ["q_proj_weight", "k_proj_weight", "v_proj_weight"];
        let make = |(i, name): (usize, _)| (name, random([E, dims[i]], 12 + i as u64));
        all.extend(names.into_iter().enumerate().map(make));
    }
    if bias {
        all.push(("in_proj_bias", random([3 * E], 15)));
        all.push(("out_proj.bias", random([E], 16)));
    }
    if bias_kv {
        all.push(("bias_k", random([1, 1, E], 17)));
        all.push(("bias_v", random([1, 1, E], 18)));
    }
    all
}

/// What the module yields for one sequence (L, E), (S, kdim), (S, vdim), in f64: the output and the
/// weights.
struct Naive<'a> {
    weights: &'a [(&'static str, Tensor)],
    heads: usize,
    zero: bool,
    /// Added to the scores of (head, query, key).
    mask: &'a dyn Fn(usize, usize, usize) -> f64,
}

impl Naive<'_> {
    fn weight(&self, name: &str) -> Option<Vec<f64>> {
        self.weights.iter().find(|(n, _)| *n == name).map(|(_, t)| wide(t))
    }

    /// x Wᵀ + b with E outputs, rows `first..` of weight and bias.
    fn affine(&self, x: &[Vec<f64>], w: &[f64], b: Option<&[f64]>) -> Vec<Vec<f64>> {
        let k = x.first().map_or(0, Vec::len);
        let dot = |row: &[f64], o: usize| {
            let sum: f64 = row.iter().zip(&w[o * k..]).map(|(x, w)| x * w).sum();
            sum + b.map_or(0.0, |b| b[o])
        };
        x.iter().map(|row| (0..E).map(|o| dot(row, o)).collect()).collect()
    }

    fn run(&self, x: [Vec<Vec<f64>>; 3]) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let names = ["q_proj_weight", "k_proj_weight", "v_proj_weight"];
        let joint = self.weight("in_proj_weight");
        let bias = self.weight("in_proj_bias");
        let mut qkv: Vec<Vec<Vec<f64>>> = Vec::new();
        for (i, x) in x.iter().enumerate() {
            let w = match &joint {
                Some(w) => w[i * E * E..(i + 1) * E * E].to_vec(),
                None => self.weight(names[i]).unwrap(),
            };
            qkv.push(self.affine(x, &w, bias.as_ref().map(|b| &b[i * E..])));
        }
        let keys = x[1].len();
        for (i, name) in [(1, "bias_k"), (2, "bias_v")] {
            qkv[i].extend(self.weight(name));
            if self.zero {
                qkv[i].push(vec![0.0; E]);
            }
        }
        let [q, k, v] = &qkv[..] else { unreachable!() };
        let depth = E / self.heads;
        let (mut mixed, mut average) =
            (vec![vec![0.0; E]; q.len()], vec![vec![0.0; k.len()]; q.len()]);
        for h in 0..self.heads {
            let columns = h * depth..(h + 1) * depth;
            for i in 0..q.len() {
                let score = |j: usize| {
                    let dot: f64 = columns.clone().map(|d| q[i][d] * k[j][d]).sum();
                    dot / (depth as f64).sqrt() + if j < keys { (self.mask)(h, i, j) } else { 0.0 }
                };
                let p: Vec<f64> = (0..k.len()).map(|j| score(j).exp()).collect();
                let sum: f64 = p.iter().sum();
                for j in 0..k.len() {
                    average[i][j] += p[j] / sum / self.heads as f64;
                    columns.clone().for_each(|d| mixed[i][d] += p[j] / sum * v[j][d]);
                }
            }
        }
        let bias = self.weight("out_proj.bias");
        (self.affine(&mixed, &self.weight("out_proj.weight").unwrap(), bias.as_deref()), average)
    }
}

/// Sequence `n` of a batch.
fn sequence(t: &Tensor, n: usize, batch_first: bool) -> Vec<Vec<f64>> {
    let (shape, data) = (t.shape(), wide(t));
    let (batch, len, width) = match (shape.dims(), batch_first) {
        (&[len, width], _) => (1, len, width),
        (&[batch, len, width], true) | (&[len, batch, width], false) => (batch, len, width),
        _ => unreachable!(),
    };
    let row = |i: usize| if batch_first || shape.rank() == 2 { n * len + i } else { i * batch + n };
    (0..len).map(|i| data[row(i) * width..(row(i) + 1) * width].to_vec()).collect()
}

/// Compares one sequence of the outputs with the naive module.
#[track_caller]
fn compare(
    found: &[Tensor],
    n: usize,
    batch_first: bool,
    expected: &(Vec<Vec<f64>>, Vec<Vec<f64>>),
) {
    let flat = |rows: &[Vec<f64>]| rows.concat().iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let rows = sequence(&found[0], n, batch_first);
    let shape = Shape::from([rows.len(), E]);
    // Sums of at most 12 terms of size below 8 in three stages: a few hundred ULP of 1.
    let bound = 256.0 * f32::EPSILON;
    assert_close(&tensor(shape.clone(), &flat(&rows)), &tensor(shape, &flat(&expected.0)), bound);
    if let Some(weights) = found.get(1) {
        let rows = sequence(weights, n, true);
        let shape = Shape::from([rows.len(), rows[0].len()]);
        assert_close(
            &tensor(shape.clone(), &flat(&rows)),
            &tensor(shape, &flat(&expected.1)),
            bound,
        );
    }
}

const BASE: &str = "add_bias_kv=False add_zero_attn=False bias=True embed_dim=6 num_heads=2";
const NO_MASK: &dyn Fn(usize, usize, usize) -> f64 = &|_, _, _| 0.0;

#[test]
fn one_input_is_all_three() {
    let w = weights(true, [E; 3], true, false);
    for (batch_first, shape) in [(true, &[2, 5, E][..]), (false, &[5, 2, E]), (false, &[5, E])] {
        let x = random(shape, 1);
        let flag = if batch_first { "batch_first=True" } else { "" };
        let line =
            format!("nn.MultiheadAttention m 1 2 0 1 2 {BASE} kdim=6 vdim=6 {flag} $input=0");
        let found = check(&*op_with(&line, &w), std::slice::from_ref(&x));
        assert_eq!(found[0].shape(), x.shape());
        for n in 0..if shape.len() == 3 { 2 } else { 1 } {
            let s = sequence(&x, n, batch_first);
            let naive = Naive { weights: &w, heads: 2, zero: false, mask: NO_MASK };
            compare(&found, n, batch_first, &naive.run([s.clone(), s.clone(), s]));
        }
    }
}

/// f64 is computed in f64: as the naive module, to 15 digits.
#[test]
fn all_in_f64() {
    let cast = |t: &Tensor| t.view().cast(DType::F64).unwrap();
    for (zero, names) in
        [(false, "$query=0 $kv=1"), (true, "$query=0 $kv=1"), (true, "$query=0 $kv=1 $attn_mask=2")]
    {
        let w = weights(true, [E; 3], true, zero);
        let (x, y, mask) = (random([3, 5, E], 1), random([3, 7, E], 2), random([5, 7], 3));
        let line = format!(
            "nn.MultiheadAttention m 2 2 0 1 8 9 add_bias_kv={} add_zero_attn={} bias=True embed_dim={E} \
             num_heads=2 batch_first=True {names}",
            if zero { "True" } else { "False" },
            if zero { "True" } else { "False" },
        );
        let masked = names.contains("mask");
        let line = if masked { line.replace("m 2 2 0 1", "m 3 2 0 1 2") } else { line };
        let inputs = [&x, &y, &mask].map(cast);
        let all = if masked { &inputs[..] } else { &inputs[..2] };
        let wide_weights: Vec<_> = w.iter().map(|(name, t)| (*name, cast(t))).collect();
        let op = op_with(&line, &wide_weights);
        let found = check(&*op, all);
        let m = wide(&mask);
        let added = |_, i: usize, j: usize| if masked { m[i * 7 + j] } else { 0.0 };
        let naive = Naive { weights: &w, heads: 2, zero, mask: &added };
        for n in 0..3 {
            let (q, kv) = (sequence(&x, n, true), sequence(&y, n, true));
            let (expected, average) = naive.run([q, kv.clone(), kv]);
            for (found, expected) in found.iter().zip([expected, average]) {
                let expected = expected.concat();
                let found = &values::<f64>(found)[n * expected.len()..][..expected.len()];
                for (x, y) in found.iter().zip(expected) {
                    // Sums of at most 12 terms of size below 8 in three stages.
                    assert!((x - y).abs() <= 256.0 * f64::EPSILON, "{x} for {y}");
                }
            }
        }
        // Weights of f32 are no weights of f64.
        let refused = error(&*op_with(&line, &w), all).to_string();
        assert!(refused.contains("f64"), "{refused}");
    }
}

/// Masks are added up: what is no number stays none where another mask hides the key.
#[test]
fn masks_that_are_no_numbers_stay_so() {
    let w = weights(true, [E; 3], true, false);
    let line = format!(
        "nn.MultiheadAttention m 3 1 0 1 2 9 {BASE} batch_first=True kdim=6 vdim=6 $input=0 \
         $attn_mask=1 $key_padding_mask=2 #0=(1,3,6)f32 #1=(3,3)f32 #2=(1,3)bool"
    );
    let x = random([1, 3, E], 1);
    let mut mask = [0.0f32; 9];
    mask[1] = f32::NAN;
    let inputs = [x, tensor([3, 3], &mask), tensor([1, 3], &[false, true, false])];
    let y = values::<f32>(&check(&*op_with(&line, &w), &inputs)[0]);
    assert!(y[..E].iter().all(|y| y.is_nan()) && y[E..].iter().all(|y| y.is_finite()), "{y:?}");
}

#[test]
fn keys_and_values_of_their_own() {
    for (joint, keys, names, dims) in [
        (true, 2, "$query=0 $kv=1", [E, E]),
        (true, 2, "", [E, E]),
        (true, 3, "$query=0 $key=1 $value=2", [E, E]),
        (false, 3, "$value=2 $query=0 $key=1", [4, 3]),
    ] {
        let w = weights(joint, [E, dims[0], dims[1]], true, false);
        let x = [random([3, 5, E], 1), random([3, 7, dims[0]], 2), random([3, 7, dims[1]], 3)];
        let inputs = if keys == 2 { "0 1" } else { "0 1 2" };
        let line = format!(
            "nn.MultiheadAttention m {keys} 1 {inputs} 9 {BASE} batch_first=True kdim={} vdim={} {names}",
            dims[0], dims[1]
        );
        let found = check(&*op_with(&line, &w), &x[..keys]);
        let value = if keys == 2 { &x[1] } else { &x[2] };
        for n in 0..3 {
            let s = [&x[0], &x[1], value].map(|t| sequence(t, n, true));
            let naive = Naive { weights: &w, heads: 2, zero: false, mask: NO_MASK };
            compare(&found, n, true, &naive.run(s));
        }
    }
}

#[test]
fn masks_of_every_form() {
    let w = weights(true, [E; 3], false, false);
    let base = BASE.replace("bias=True", "bias=False");
    let x = random([2, 5, E], 1);
    let floats = random([2 * 2 * 25], 4);
    let m = wide(&floats);
    let bools: Vec<bool> = (0..25).map(|i| i % 3 == 1).collect();
    let float = |shape: &[usize], n: usize| tensor(shape, &values::<f32>(&floats)[..n]);
    type Mask<'a> = &'a dyn Fn(usize, usize, usize, usize) -> f64;
    let cases: [(Tensor, &str, Mask<'_>); 5] = [
        (float(&[5, 5], 25), "attn_mask", &|_, _, i, j| m[i * 5 + j]),
        (float(&[4, 5, 5], 100), "attn_mask", &|n, h, i, j| m[((n * 2 + h) * 5 + i) * 5 + j]),
        (float(&[2, 1, 1, 5], 10), "attn_mask", &|n, _, _, j| m[n * 5 + j]),
        (tensor([5, 5], &bools), "attn_mask", &|_, _, i, j| {
            if bools[i * 5 + j] { f64::NEG_INFINITY } else { 0.0 }
        }),
        (float(&[2, 5], 10), "key_padding_mask", &|n, _, _, j| m[n * 5 + j]),
    ];
    for (mask, key, at) in cases {
        let line =
            format!("nn.MultiheadAttention m 2 1 0 1 9 {base} batch_first=True $input=0 ${key}=1");
        let (op, data) = (op_with(&line, &w), [x.clone(), mask]);
        let found = check(&*op, &data);
        // Known before the run.
        let mut inputs = specs(&data);
        inputs[1] = data[1].clone().into();
        assert_eq!(check_values(&*op, &inputs, &data), found);
        for n in 0..2 {
            let s = sequence(&x, n, true);
            let naive =
                Naive { weights: &w, heads: 2, zero: false, mask: &|h, i, j| at(n, h, i, j) };
            compare(&found, n, true, &naive.run([s.clone(), s.clone(), s]));
        }
    }
}

#[test]
fn masks_of_nodes_that_pnnx_fused_show_keys() {
    let w = weights(true, [E; 3], true, false);
    let x = random([2, 5, E], 1);
    let hides: Vec<bool> = (0..25).map(|i| i % 5 > i / 5).collect();
    let shows: Vec<bool> = hides.iter().map(|hides| !hides).collect();
    let run = |name: &str, inputs: &str, x: &[Tensor]| {
        let line =
            format!("nn.MultiheadAttention {name} 2 1 0 1 9 {BASE} batch_first=True {inputs}");
        check(&*op_with(&line, &w), x).remove(0)
    };
    let [hides, shows] = [hides, shows].map(|mask| tensor([5, 5], &mask));
    let module = run("m", "$input=0 $attn_mask=1", &[x.clone(), hides.clone()]);
    let fused = run("attention_3", "$input=0 $attn_mask=1", &[x.clone(), shows]);
    assert_eq!(fused, module);
    // A module that is called so: its masks come first.
    let named = run("attention_3", "$input=1 $attn_mask=0", &[hides, x]);
    assert_eq!(named, module);
}

#[test]
fn keys_are_added() {
    let w = weights(true, [E; 3], true, true);
    let x = random([4, 2, E], 1);
    let mask = tensor([4, 4], &[true, false, false, false].repeat(4));
    let base = "add_bias_kv=True add_zero_attn=True bias=True embed_dim=6 num_heads=3";
    let hidden = |_, _, j| if j == 0 { f64::NEG_INFINITY } else { 0.0 };
    let line = format!("nn.MultiheadAttention m 2 2 0 1 8 9 {base} $input=0 $attn_mask=1");
    let (op, data) = (op_with(&line, &w), [x.clone(), mask]);
    let found = check(&*op, &data);
    let mut inputs = specs(&data);
    inputs[1] = data[1].clone().into();
    assert_eq!(check_values(&*op, &inputs, &data), found);
    assert_eq!(found[1].shape().dims(), [2, 4, 6]);
    for n in 0..2 {
        let s = sequence(&x, n, false);
        let naive = Naive { weights: &w, heads: 3, zero: true, mask: &hidden };
        compare(&found, n, false, &naive.run([s.clone(), s.clone(), s]));
    }
}

#[test]
fn a_residual_connection_is_absorbed() {
    let w = weights(true, [E; 3], true, false);
    let line = format!("nn.MultiheadAttention m 1 1 0 1 {BASE} batch_first=True");
    let (x, y) = (random([1, 5, E], 1), random([1, 5, E], 2));
    let plain = check(&*op_with(&line, &w), std::slice::from_ref(&x));
    let operator = op_with(&line, &w);
    let operator = operator.absorb(&crate::Neighbour::Add, &[]).unwrap();
    assert!(operator.absorb(&crate::Neighbour::Add, &[]).is_none());
    let sum = check(&*operator, &[x, y.clone()]);
    let expected: Vec<f32> =
        values::<f32>(&plain[0]).iter().zip(values::<f32>(&y)).map(|(a, b)| a + b).collect();
    assert_close(&sum[0], &tensor([1, 5, E], &expected), 8.0 * f32::EPSILON);
}

#[test]
fn what_does_not_fit_is_refused() {
    let w = weights(true, [E; 3], true, false);
    let line = format!("nn.MultiheadAttention m 2 1 0 1 9 {BASE}");
    let operator = op_with(&line, &w);
    error(&*operator, &[random([5, 2, E], 1), random([5, 3, E], 1)]);
    error(&*operator, &[random([5, 2, E], 1), random([5, 2, 7], 1)]);
    error(&*operator, &[random([5, E], 1), random([5, 1, E], 1)]);
    error(&*operator, &[random([E], 1), random([5, E], 1)]);
    let masked = op_with(&format!("{line} $attn_mask=1"), &w);
    error(&*masked, &[random([5, 2, E], 1), random([5, 4], 1)]);
    assert!(try_op(&line.replace("num_heads=2", "num_heads=4"), &w).is_err());
    assert!(try_op(&line.replace("num_heads=2", "num_heads=0"), &w).is_err());
    assert!(try_op(&line, &w[..1]).is_err());
}

#[test]
fn a_large_batch_is_computed_in_chunks() {
    // 12 MB between the products: more than any second-level cache.
    let (batch, len) = (8192, 16);
    let w = weights(true, [E; 3], true, false);
    let x = random([batch, len, E], 1);
    let mask = random([batch, 1, 1, len], 2);
    let line = format!(
        "nn.MultiheadAttention m 2 1 0 1 9 {BASE} batch_first=True kdim=6 vdim=6 $input=0 $attn_mask=1"
    );
    let found = check(&*op_with(&line, &w), &[x.clone(), mask.clone()]);
    let m = wide(&mask);
    for n in [0, 1, batch / 2 - 1, batch - 1] {
        let s = sequence(&x, n, true);
        let naive = Naive { weights: &w, heads: 2, zero: false, mask: &|_, _, j| m[n * len + j] };
        compare(&found, n, true, &naive.run([s.clone(), s.clone(), s]));
    }
}

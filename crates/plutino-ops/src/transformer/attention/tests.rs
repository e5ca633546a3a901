use super::AttentionPattern;
use crate::testkit::{assert_close, check, check_line, error, op, random, tensor, try_op, values};
use plutino_tensor::{DType, Tensor};

const LINE: &str = "F.scaled_dot_product_attention a 3 1 0 1 2 9 attn_mask=None dropout_p=0.0 \
                    is_causal=False $query=0 $key=1 $value=2";
const MASKED: &str = "F.scaled_dot_product_attention a 4 1 0 1 2 3 9 dropout_p=0.0 is_causal=False \
                      $query=0 $key=1 $value=2 $attn_mask=3";

/// Attention of one head by the definition, in f64. `mask(i, k)` is added.
fn naive(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    scale: f64,
    mask: impl Fn(usize, usize) -> f64,
) -> Tensor {
    let ([l, e], [s, ev]) = ([q.shape()[0], q.shape()[1]], [v.shape()[0], v.shape()[1]]);
    let (q, k, v) = (values::<f32>(q), values::<f32>(k), values::<f32>(v));
    let mut out = Vec::new();
    for i in 0..l {
        let dot = |j: usize| -> f64 {
            (0..e).map(|d| f64::from(q[i * e + d]) * f64::from(k[j * e + d])).sum()
        };
        let p: Vec<f64> = (0..s).map(|j| (dot(j) * scale + mask(i, j)).exp()).collect();
        let sum: f64 = p.iter().sum();
        let value = |d: usize| (0..s).map(|j| p[j] * f64::from(v[j * ev + d])).sum::<f64>() / sum;
        out.extend((0..ev).map(|d| value(d) as f32));
    }
    tensor([l, ev], &out)
}

/// The matrix of a batch index.
fn matrix(t: &Tensor, i: usize) -> Tensor {
    let shape = t.shape();
    let (rows, cols) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
    tensor([rows, cols], &values::<f32>(t)[i * rows * cols..(i + 1) * rows * cols])
}

// Scores of at most 0.6 in size, off by a few ULP each; sums of at most 40 weights.
const BOUND: f32 = 40.0 * f32::EPSILON;

#[test]
fn batches_and_masks() {
    let (q, k, v) = (random([2, 3, 9, 10], 1), random([2, 3, 20, 10], 2), random([2, 3, 20, 8], 3));
    let scale = 10f64.sqrt().recip();
    let y = check(&*op(LINE), &[q.clone(), k.clone(), v.clone()]);
    assert_eq!(y[0].shape().dims(), [2, 3, 9, 8]);
    for i in 0..6 {
        let expected = naive(&matrix(&q, i), &matrix(&k, i), &matrix(&v, i), scale, |_, _| 0.0);
        assert_close(&matrix(&y[0], i), &expected, BOUND);
    }
    // A float mask for each batch, shared by the heads.
    let mask = random([2, 1, 9, 20], 4);
    let y = check(&*op(MASKED), &[q.clone(), k.clone(), v.clone(), mask.clone()]);
    let m = values::<f32>(&mask);
    let expected = naive(&matrix(&q, 4), &matrix(&k, 4), &matrix(&v, 4), scale, |i, j| {
        f64::from(m[180 + i * 20 + j])
    });
    assert_close(&matrix(&y[0], 4), &expected, BOUND);
    // A bool mask for all: true keeps.
    let keep: Vec<bool> = m[..20].iter().map(|&x| x > 0.0).collect();
    let y = check(&*op(MASKED), &[q.clone(), k.clone(), v.clone(), tensor([20], &keep)]);
    let expected = naive(&matrix(&q, 5), &matrix(&k, 5), &matrix(&v, 5), scale, |_, j| {
        if keep[j] { 0.0 } else { f64::NEG_INFINITY }
    });
    assert_close(&matrix(&y[0], 5), &expected, BOUND);
}

#[test]
fn causal_and_scale_and_rank_2() {
    let (q, k, v) = (random([9, 4], 1), random([9, 4], 2), random([9, 5], 3));
    let line =
        "F.scaled_dot_product_attention a 3 1 0 1 2 9 attn_mask=None is_causal=True scale=0.5";
    let y = check(&*op(line), &[q.clone(), k.clone(), v.clone()]);
    let later = |i, j| if j > i { f64::NEG_INFINITY } else { 0.0 };
    assert_close(&y[0], &naive(&q, &k, &v, 0.5, later), BOUND);
}

#[test]
fn heads_of_keys_may_be_shared() {
    let (q, k, v) = (random([2, 8, 9, 10], 1), random([2, 2, 9, 10], 2), random([2, 4, 9, 8], 3));
    let line = LINE.replace("is_causal=False", "is_causal=False enable_gqa=True");
    let y = check(&*op(&line), &[q.clone(), k.clone(), v.clone()]);
    for i in [0, 5, 15] {
        let (batch, head) = (i / 8, i % 8);
        let (k, v) = (matrix(&k, batch * 2 + head / 4), matrix(&v, batch * 4 + head / 2));
        let expected = naive(&matrix(&q, i), &k, &v, 10f64.sqrt().recip(), |_, _| 0.0);
        assert_close(&matrix(&y[0], i), &expected, BOUND);
    }
    error(&*op(LINE), &[q, k, v]);
}

/// Those with one query each become rows of one head, if their masks follow each other evenly.
#[test]
fn heads_of_one_query_share_keys_as_rows() {
    let grouped = op(&MASKED.replace("is_causal=False", "is_causal=False enable_gqa=True"));
    let (q, k, v) = (random([2, 6, 1, 10], 1), random([2, 2, 20, 10], 2), random([2, 2, 20, 8], 3));
    for shape in [[2, 6, 1, 20], [2, 1, 1, 20], [1, 6, 1, 20], [1, 1, 1, 20]] {
        let mask = random(shape, 4);
        let y = check(&*grouped, &[q.clone(), k.clone(), v.clone(), mask.clone()]);
        let m = values::<f32>(&mask);
        for i in 0..12 {
            let (batch, head) = (i / 6 * (shape[0] / 2), i % 6 * (shape[1] / 6));
            let (kv, first) = (i / 3, (batch * shape[1] + head) * 20);
            let mask = |_, j| f64::from(m[first + j]);
            let scale = 10f64.sqrt().recip();
            let expected = naive(&matrix(&q, i), &matrix(&k, kv), &matrix(&v, kv), scale, mask);
            assert_close(&matrix(&y[0], i), &expected, BOUND);
        }
    }
}

#[test]
fn keys_and_values_may_lie_with_room() {
    use crate::{PackCache, PlanCx, Room, Setting, eager};
    use plutino_kernels::{Isa, Par};
    // (2, 3, 9, ..) at the beginning of (2, 3, 14, ..), whose other rows are NaN.
    let roomy = |x: &Tensor| {
        let mut rows = Vec::new();
        for matrix in values::<f32>(x).chunks(9 * x.shape()[3]) {
            rows.extend_from_slice(matrix);
            rows.extend(std::iter::repeat_n(f32::NAN, 5 * x.shape()[3]));
        }
        tensor([2, 3, 14, x.shape()[3]], &rows)
    };
    let (q, k, v) = (random([2, 6, 4, 10], 1), random([2, 3, 9, 10], 2), random([2, 3, 9, 8], 3));
    let line = LINE.replace("is_causal=False", "is_causal=False enable_gqa=True");
    let op = op(&line);
    let expected = check(&*op, &[q.clone(), k.clone(), v.clone()]);
    let inputs = crate::testkit::specs(&[q.clone(), k.clone(), v.clone()]);
    assert!(!op.takes_room(&inputs, 0, 2));
    assert!(op.takes_room(&inputs, 1, 2) && op.takes_room(&inputs, 2, 2));
    let outputs = op.infer(&inputs).unwrap();
    for isa in Isa::available() {
        let (packs, setting) = (PackCache::default(), Setting::new(isa, 1));
        let cx = PlanCx { inputs: &inputs, outputs: &outputs, setting, packs: &packs };
        let rooms = [1, 2].map(|input| Room { input, dim: 2, capacity: 14 });
        let planned = op.plan_with_room(&cx, &rooms).unwrap();
        let data = [q.clone(), roomy(&k), roomy(&v)];
        let y = eager::execute(&planned, &outputs, &data, &Par::serial()).unwrap();
        let dense = op.plan(&cx).unwrap();
        let data = [q.clone(), k.clone(), v.clone()];
        let same = eager::execute(&dense, &outputs, &data, &Par::serial()).unwrap();
        assert_eq!(y, same, "{isa}");
        assert_close(&y[0], &expected[0], BOUND);
    }
}

#[test]
fn repeated_heads_are_taken_as_they_are() {
    let (q, k, v) = (random([2, 6, 4, 10], 1), random([2, 3, 9, 10], 2), random([2, 6, 9, 8], 3));
    let repeat = op("torch.repeat_interleave r 1 1 0 1 dim=1 repeats=2 $input=0");
    let wide = check(&*repeat, std::slice::from_ref(&k)).remove(0);
    let attention = op(LINE);
    let expected = check(&*attention, &[q.clone(), wide.clone(), v.clone()]);
    let inputs = crate::testkit::specs(&[q.clone(), wide, v.clone()]);
    let absorb = |input| attention.absorb(&crate::Neighbour::Repeated(input, 2), &inputs);
    assert!(absorb(0).is_none() && absorb(3).is_none());
    assert_eq!(check(&*absorb(1).unwrap(), &[q, k, v]), expected);
}

#[test]
fn a_pattern_reads_and_writes_permuted() {
    // (N, L, H, E) as projections leave them, read as (N, H, L, E), written back as (N, L, H,
    // Ev).
    let order = || Some(vec![0, 2, 1, 3]);
    let (q, k, v) = (random([2, 9, 3, 8], 1), random([2, 20, 3, 8], 2), random([2, 20, 3, 5], 3));
    let mask = random([2, 1, 1, 20], 4);
    let read = [order(), order(), order()];
    let pattern = AttentionPattern { read, scale: 0.3, masks: vec![None], write: order() };
    let op = pattern.clone().into_operator();
    let y = check(&*op, &[q.clone(), k.clone(), v.clone(), mask.clone()]);
    assert_eq!(y[0].shape().dims(), [2, 9, 3, 5]);
    // Head h of batch n of a tensor (N, rows, H, E).
    let head = |t: &Tensor, n: usize, h: usize| {
        let (rows, e) = (t.shape()[1], t.shape()[3]);
        let data = values::<f32>(t);
        let row = |i: usize| &data[((n * rows + i) * 3 + h) * e..][..e];
        tensor([rows, e], &(0..rows).flat_map(row).copied().collect::<Vec<f32>>())
    };
    let m = values::<f32>(&mask);
    for (n, h) in [(0, 0), (1, 2)] {
        let (q, k, v) = (head(&q, n, h), head(&k, n, h), head(&v, n, h));
        let expected = naive(&q, &k, &v, 0.3, |_, j| f64::from(m[n * 20 + j]));
        assert_close(&head(&y[0], n, h), &expected, BOUND);
    }
    // Rows that are not dense, and orders that are none, are refused.
    for order in [vec![0, 2, 3, 1], vec![0, 1, 2], vec![0, 0, 1, 2]] {
        for at in 0..4 {
            let mut pattern = pattern.clone();
            match pattern.read.get_mut(at) {
                Some(read) => *read = Some(order.clone()),
                None => pattern.write = Some(order.clone()),
            }
            error(&*pattern.into_operator(), &[q.clone(), k.clone(), v.clone(), mask.clone()]);
        }
    }
}

/// Windows: a bias for each head, and a mask for each of three windows of two images.
#[test]
fn a_pattern_adds_two_masks_to_scores_that_are_viewed_between() {
    let pattern = AttentionPattern {
        read: [None, None, None],
        scale: 0.3,
        masks: vec![None, Some(vec![2, 3, 2])],
        write: None,
    };
    let (q, k, v) = (random([6, 2, 4, 8], 1), random([6, 2, 5, 8], 2), random([6, 2, 5, 3], 3));
    let (bias, mask) = (random([1, 2, 4, 5], 4), random([1, 3, 1, 4, 5], 5));
    let given = |bias: &Tensor, mask: &Tensor| {
        [q.clone(), k.clone(), v.clone(), bias.clone(), mask.clone()]
    };
    let y = check(&*pattern.clone().into_operator(), &given(&bias, &mask)).remove(0);
    let (b, m) = (values::<f32>(&bias), values::<f32>(&mask));
    for i in 0..12 {
        let (window, head) = (i / 2 % 3, i % 2);
        let (q, k, v) = (matrix(&q, i), matrix(&k, i), matrix(&v, i));
        let expected = naive(&q, &k, &v, 0.3, |l, s| {
            f64::from(b[(head * 4 + l) * 5 + s]) + f64::from(m[(window * 4 + l) * 5 + s])
        });
        assert_close(&matrix(&y, i), &expected, BOUND);
    }
    // Other numbers of matrices, masks that do not fit the view, masks of bools, and three masks.
    for masks in [
        vec![None, Some(vec![2, 2, 2])],
        vec![None, Some(vec![3, 2, 2])],
        vec![None, Some(vec![usize::MAX, 3, 2])],
    ] {
        error(
            &*AttentionPattern { masks, ..pattern.clone() }.into_operator(),
            &given(&bias, &mask),
        );
    }
    let keep = tensor([4, 5], &[true; 20]);
    error(&*pattern.clone().into_operator(), &given(&bias, &keep));
    let mut three = given(&bias, &mask).to_vec();
    three.push(bias);
    let masks = vec![None, Some(vec![2, 3, 2]), None];
    error(&*AttentionPattern { masks, ..pattern }.into_operator(), &three);
}

#[test]
fn a_pattern_without_anything_to_see_is_nan() {
    let read = [None, None, None];
    let pattern = AttentionPattern { read, scale: 1.0, masks: vec![None], write: None };
    let hidden = tensor([3], &[f32::NEG_INFINITY; 3]);
    let x = random([3, 4], 1);
    let y = check(&*pattern.into_operator(), &[x.clone(), x.clone(), x, hidden]);
    assert!(values::<f32>(&y[0]).iter().all(|y| y.is_nan()));
}

#[test]
fn nothing_to_ask_or_to_compare_or_to_answer() {
    let of = |q: [usize; 3], k: [usize; 3], v: [usize; 3]| {
        check(&*op(LINE), &[random(q, 1), random(k, 2), random(v, 3)]).remove(0)
    };
    assert_eq!(of([2, 0, 8], [2, 3, 8], [2, 3, 8]).shape().dims(), [2, 0, 8]);
    assert_eq!(of([2, 3, 8], [2, 4, 8], [2, 4, 0]).shape().dims(), [2, 3, 0]);
    // Without anything to compare all keys count the same.
    let y = of([2, 3, 0], [2, 4, 0], [2, 4, 5]);
    let v = random([2, 4, 5], 3);
    let mean = (0..4).map(|k| values::<f32>(&v)[k * 5]).sum::<f32>() / 4.0;
    assert!((values::<f32>(&y)[0] - mean).abs() < 1e-6);
}

#[test]
fn other_floats_are_computed_too() {
    let [q, k, v] = [random([3, 4], 1), random([5, 4], 2), random([5, 2], 3)];
    let wide = [&q, &k, &v].map(|t| t.view().cast(DType::F64).unwrap());
    let y = check(&*op(LINE), &wide);
    let expected = naive(&q, &k, &v, 0.5, |_, _| 0.0);
    assert_close(&y[0].view().cast(DType::F32).unwrap(), &expected, f32::EPSILON);
}

#[test]
fn what_does_not_fit_is_refused() {
    let t = |shape: [usize; 2]| random(shape, 1);
    error(&*op(LINE), &[t([3, 4]), t([5, 3]), t([5, 2])]);
    error(&*op(LINE), &[t([3, 4]), t([5, 4]), t([4, 2])]);
    error(&*op(LINE), &[t([3, 4]), t([5, 4]), random([5], 1)]);
    error(&*op(MASKED), &[t([3, 4]), t([5, 4]), t([5, 2]), t([3, 4])]);
    error(&*op(MASKED), &[t([3, 4]), t([5, 4]), t([5, 2]), tensor([5], &[1i64; 5])]);
    assert!(try_op(&LINE.replace("0.0", "0.5"), &[]).is_err());
    assert!(try_op(&MASKED.replace("False", "True"), &[]).is_err());
}

#[test]
fn native_functions() {
    let given = [random([1, 2, 5, 8], 1), random([1, 2, 6, 8], 2), random([1, 2, 6, 8], 3)];
    let expected = check(&*op(LINE), &given);
    let line =
        "aten::_scaled_dot_product_flash_attention_for_cpu a 7 2 0 1 2 =0.0 =False =None =None 8 9";
    let y = check_line(line, &given);
    assert_eq!(y[0], expected[0]);
    assert_eq!(y[1].shape().dims(), [1, 2, 5]);
    let line = "aten::_scaled_dot_product_attention_math a 9 2 0 1 2 =None =0.0 =False =None =None =False 8 9";
    let y = check_line(line, &given);
    assert_eq!((&y[0], y[1].shape().dims()), (&expected[0], &[1, 2, 5, 6][..]));
}

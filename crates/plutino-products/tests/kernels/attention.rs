use plutino_cpu::simd::Pairs;
use plutino_cpu::tiles::{Terms, TileUnit};
use plutino_cpu::{Isa, Par};
use plutino_products::attention::*;
use plutino_products::gemm::{MatrixUnit, Target};
use plutino_reference::attention::attention as reference;
use plutino_reference::testkit::{assert_close, on_every_machine, random, words_of_bf16};
use plutino_tensor::bf16;

const DENSE: [usize; 2] = [0, 0];

/// A batch of dense (heads, L, E) operands; the output as (L, heads, Ev), as
/// `nn.MultiheadAttention` has it.
fn problem(groups: usize, heads: usize, size: Size) -> (Problem, Vec<Head>) {
    let Size { queries, keys, depth, values } = size;
    let out = [queries * heads * values, values, heads * values];
    let strides = Strides { q: depth, k: depth, v: values, mask: DENSE, second: DENSE, out };
    let place = |h| Head {
        q: h * queries * depth,
        k: h * keys * depth,
        v: h * keys * values,
        mask: 0,
        second: 0,
    };
    let problem =
        Problem { size, strides, groups, heads, scale: 0.3, unattended: 0.0, weights: false };
    (problem, (0..groups * heads).map(place).collect())
}

/// Runs on every machine against the reference in f64.
fn check(p: &Problem, heads: &[Head], mask: Mask<'_, f32>) {
    check_by(None, p, heads, mask);
}

/// The same with products by a unit.
fn check_by(unit: Option<MatrixUnit>, p: &Problem, heads: &[Head], mask: Mask<'_, f32>) {
    let Size { queries, keys, depth, values } = p.size;
    let n = heads.len();
    let lens = [n * queries * depth, n * keys * depth, n * keys * values];
    let mut seed = 0;
    let [mut q, mut k, mut v] = lens.map(|len| {
        seed += 1;
        random(len, seed)
    });
    // What is lost of a product, in parts of its factors: of weights alone where the other numbers
    // are bf16 already; of two terms what lies beyond them.
    let (of_scores, of_values) = match unit {
        None => (0.0, 0.0),
        Some(MatrixUnit::Tiles(_, Terms::Two)) => (3.0 * 0.5f64.powi(17), 3.0 * 0.5f64.powi(17)),
        Some(_) => {
            for x in q.iter_mut().chain(&mut k).chain(&mut v) {
                *x = bf16::from_f32(*x).to_f32();
            }
            (0.0, 0.5f64.powi(9))
        }
    };
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let lens = (n * queries * values, p.groups * queries * keys * usize::from(p.weights));
    let (mut out, mut w) = (vec![0.0f64; lens.0], vec![0.0f64; lens.1]);
    let wide_masks = match mask {
        Mask::Add(m) => [wide(m), Vec::new()],
        Mask::Both(m, second) => [wide(m), wide(second)],
        _ => [Vec::new(), Vec::new()],
    };
    let mask64 = match mask {
        Mask::None => Mask::None,
        Mask::Causal => Mask::Causal,
        Mask::Add(_) => Mask::Add(&wide_masks[0][..]),
        Mask::Both(..) => Mask::Both(&wide_masks[0][..], &wide_masks[1][..]),
        Mask::Keep(m) => Mask::Keep(m),
    };
    let weights = p.weights.then_some(&mut w[..]);
    let (q64, k64, v64) = (wide(&q), wide(&k), wide(&v));
    let x = Operands { q: &q64, k: &k64, v: &v64, mask: mask64, out: &mut out, weights };
    reference(p, heads, x).unwrap();
    out.extend(w);
    on_every_machine(
        |isa, par| {
            let plan = Attention::new(Target::this(isa), par.threads(), *p, unit);
            let mut scratch = vec![f32::NAN; plan.scratch(par.threads())];
            let (mut out, mut w) = (vec![0.0; lens.0], vec![0.0; lens.1]);
            let weights = p.weights.then_some(&mut w[..]);
            let x = Operands { q: &q, k: &k, v: &v, mask, out: &mut out, weights };
            plan.run(par, heads, x, &mut scratch);
            if let Some(plan) = plan.to_bf16() {
                let mut scratch = vec![f32::NAN; plan.scratch(par.threads())];
                let (mut words, mut again) = (vec![f32::NAN; lens.0 / 2], vec![0.0; lens.1]);
                let weights = p.weights.then_some(&mut again[..]);
                let x = Operands { q: &q, k: &k, v: &v, mask, out: &mut words, weights };
                plan.run(par, heads, x, &mut scratch);
                assert_eq!(again, w);
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&words), bits(&words_of_bf16(&out)), "{:?}", p.size);
            }
            out.extend(w);
            out
        },
        // Scores are at most 0.3 depth, off by gamma(depth) of that and what products lose, and
        // amplified by the softmax at most twice; weights sum to 1 over values of at most 1, summed
        // in keys steps.
        |found| {
            let unit = f64::from(f32::EPSILON);
            let score = 0.3 * depth as f64 * ((depth as f64 + 2.0) * unit + of_scores);
            let bound = (2.0 * score).exp_m1() + (keys as f64 + 8.0) * unit + of_values;
            assert_close(found, &out, |_| bound);
        },
    );
}

/// Pairs and tiles that attention takes, the emulations and those of this CPU.
fn units() -> Vec<MatrixUnit> {
    let pairs = Isa::available().into_iter().filter_map(Pairs::of).chain([Pairs::EMULATED]);
    let tiles = || TileUnit::of_cpu().into_iter().chain([TileUnit::EMULATED]);
    let of_terms = |terms| tiles().map(move |unit| MatrixUnit::Tiles(unit, terms));
    let tiles = [Terms::One, Terms::Two].into_iter().flat_map(of_terms);
    pairs.map(MatrixUnit::Pairs).chain(tiles).collect()
}

/// What names a plan's products: a unit, or an instruction set.
fn by(p: &Problem, unit: MatrixUnit) -> String {
    Attention::new(Target::default(), 1, *p, Some(unit)).by().to_string()
}

/// Odd depths and numbers of keys, panels and blocks that are not full, several blocks of keys,
/// keys that some queries of a block do not see.
#[test]
fn products_of_bf16() {
    for unit in units() {
        for (queries, keys, depth, values) in [
            (1, 1, 1, 1),
            (5, 7, 3, 2),
            (5, 7, 0, 2),
            (17, 33, 31, 35),
            (70, 300, 64, 20),
            (33, 49, 32, 32),
        ] {
            let (p, heads) = problem(1, 2, Size { queries, keys, depth, values });
            assert_eq!(by(&p, unit), unit.to_string());
            check_by(Some(unit), &p, &heads, Mask::None);
            check_by(Some(unit), &p, &heads, Mask::Causal);
        }
        let (mut p, heads) = problem(1, 2, Size { queries: 40, keys: 33, depth: 4, values: 6 });
        (p.weights, p.unattended) = (true, f32::NAN);
        check_by(Some(unit), &p, &heads, Mask::Causal);
        (p.weights, p.strides.mask) = (false, [33, 1]);
        let mut mask = random(40 * 33, 4);
        mask[7..100].fill(f32::NEG_INFINITY);
        check_by(Some(unit), &p, &heads, Mask::Add(&mask));
    }
}

/// Sums that are longer than a depth block of tiles, and three terms, are left to multiply-adds.
#[test]
fn what_tiles_do_not_take_is_f32() {
    let of = |terms| MatrixUnit::Tiles(TileUnit::EMULATED, terms);
    let (long, heads) = problem(1, 1, Size { queries: 9, keys: 20, depth: 520, values: 3 });
    let isa = Isa::best().to_string();
    assert_eq!(
        [by(&long, of(Terms::One)), by(&long, of(Terms::Three))],
        [isa.clone(), isa.clone()]
    );
    check_by(Some(of(Terms::Two)), &long, &heads, Mask::None);
    let (mut all, heads) = problem(1, 1, Size { queries: 9, keys: 600, depth: 5, values: 3 });
    all.weights = true; // all keys are one block
    assert_eq!(by(&all, of(Terms::One)), isa);
    check_by(Some(of(Terms::Two)), &all, &heads, Mask::None);
}

#[test]
fn sizes_and_tails() {
    for (queries, keys, depth, values) in [
        (1, 1, 1, 1),
        (5, 7, 3, 2),
        (5, 7, 0, 2),
        (17, 16, 8, 9),
        (49, 49, 32, 32),
        (70, 300, 16, 20),
        (3, 1100, 5, 1),
    ] {
        let (p, heads) = problem(2, 3, Size { queries, keys, depth, values });
        check(&p, &heads, Mask::None);
        check(&p, &heads, Mask::Causal);
    }
}

#[test]
fn masks_broadcast() {
    let (mut p, mut heads) = problem(2, 2, Size { queries: 20, keys: 150, depth: 8, values: 8 });
    let mut bias = random(2 * 20 * 150, 4);
    bias[7..400].fill(f32::NEG_INFINITY); // rows 0 to 2 of the first group see next to nothing
    bias[450] = -3.4e38;
    p.strides.mask = [150, 1];
    (2..4).for_each(|h| heads[h].mask = 20 * 150);
    check(&p, &heads, Mask::Add(&bias));
    let keep: Vec<bool> = bias.iter().map(|&x| x > 0.2).collect();
    check(&p, &heads, Mask::Keep(&keep));
    p.strides.mask = [0, 1]; // padding: one row for all queries
    check(&p, &heads, Mask::Add(&bias));
    check(&p, &heads, Mask::Keep(&keep));
    p.strides.mask = [1, 20]; // transposed
    check(&p, &heads, Mask::Add(&bias));
    check(&p, &heads, Mask::Keep(&keep));
}

/// Of a bias for each head of a group, and a mask for each group.
#[test]
fn two_masks_have_places_of_their_own() {
    let size = Size { queries: 20, keys: 150, depth: 8, values: 8 };
    let (mut p, mut heads) = problem(2, 3, size);
    let (bias, mut mask) = (random(3 * 20 * 150, 4), random(2 * 20 * 150, 5));
    mask[7..400].fill(f32::NEG_INFINITY);
    p.strides.mask = [150, 1];
    p.strides.second = [150, 1];
    for (h, head) in heads.iter_mut().enumerate() {
        (head.mask, head.second) = (h % 3 * 20 * 150, h / 3 * 20 * 150);
    }
    check(&p, &heads, Mask::Both(&bias, &mask));
    p.strides.second = [0, 1]; // one row for all queries
    check(&p, &heads, Mask::Both(&bias, &mask));
    p.strides.second = [1, 0]; // one number for all keys
    check(&p, &heads, Mask::Both(&bias, &mask));
    (p.strides.mask, p.strides.second) = ([1, 20], [150, 1]); // a mask that is transposed
    check(&p, &heads, Mask::Both(&bias, &mask));
}

#[test]
#[should_panic(expected = "second mask too small")]
fn a_second_mask_that_is_too_small_is_refused() {
    let (mut p, heads) = problem(1, 1, Size { queries: 2, keys: 3, depth: 1, values: 1 });
    (p.strides.mask, p.strides.second) = ([3, 1], [3, 1]);
    let plan = Attention::new(Target::default(), 1, p, None);
    let (x, mut out, mut scratch) = ([1.0; 6], [1.0; 2], vec![0.0; plan.scratch(1)]);
    let mask = Mask::Both(&x, &x[..5]);
    let x = Operands { q: &x, k: &x, v: &x, mask, out: &mut out, weights: None };
    plan.run(&Par::serial(), &heads, x, &mut scratch);
}

#[test]
fn weights_are_averaged_over_heads() {
    let (mut p, heads) = problem(2, 3, Size { queries: 40, keys: 33, depth: 4, values: 6 });
    (p.weights, p.unattended) = (true, f32::NAN);
    check(&p, &heads, Mask::None);
    check(&p, &heads, Mask::Causal);
}

#[test]
fn what_nothing_to_see_gives_is_the_callers_choice() {
    for (keys, unattended, expected) in
        [(0, 0.0, 0.0), (0, 7.0, 0.0), (3, 0.0, 0.0), (3, f32::NAN, f32::NAN)]
    {
        let (mut p, heads) = problem(1, 1, Size { queries: 2, keys, depth: 2, values: 2 });
        p.unattended = unattended;
        let plan = Attention::new(Target::default(), 1, p, None);
        let mut out = [1.0; 4];
        let mask = Mask::Keep(&[false]);
        let (x, mut scratch) = ([1.0; 6], vec![0.0; plan.scratch(1)]);
        let x = Operands { q: &x, k: &x, v: &x, mask, out: &mut out, weights: None };
        plan.run(&Par::serial(), &heads, x, &mut scratch);
        assert!(
            out.iter()
                .all(|x| x.to_bits() == expected.to_bits() || x.is_nan() && expected.is_nan())
        );
    }
}

#[test]
#[should_panic(expected = "output rows overlap")]
fn overlapping_outputs_are_refused() {
    let (mut p, heads) = problem(1, 2, Size { queries: 2, keys: 1, depth: 1, values: 2 });
    p.strides.out = [0, 2, 2];
    let plan = Attention::new(Target::default(), 1, p, None);
    let (x, mut out, mut scratch) = ([1.0; 6], [1.0; 9], vec![0.0; plan.scratch(1)]);
    let x = Operands { q: &x, k: &x, v: &x, mask: Mask::None, out: &mut out, weights: None };
    plan.run(&Par::serial(), &heads, x, &mut scratch);
}

/// Runs one head on every machine; the first numbers of the rows of the output.
fn rows_of(size: Size, q: &[f32], k: &[f32], mask: Mask<'_, f32>, check: impl Fn(&[f32])) {
    let (p, heads) = problem(1, 1, size);
    let p = Problem { strides: Strides { mask: [size.keys, 1], ..p.strides }, ..p };
    let v = random(size.keys * size.values, 3);
    on_every_machine(
        |isa, par| {
            let plan = Attention::new(Target::this(isa), par.threads(), p, None);
            let mut scratch = vec![f32::NAN; plan.scratch(par.threads())];
            let mut out = vec![0.0; size.queries * size.values];
            let x = Operands { q, k, v: &v, mask, out: &mut out, weights: None };
            plan.run(par, &heads, x, &mut scratch);
            out.chunks_exact(size.values).map(|row| row[0]).collect()
        },
        check,
    );
}

/// As in a softmax: +inf and NaN among the scores of a query make all of it NaN, -inf is a weight
/// of 0.
#[test]
fn scores_that_overflow() {
    for keys in [4, 40, 1100] {
        let size = Size { queries: 14, keys, depth: 8, values: 5 };
        let (q, k) = (random(14 * 8, 1), random(keys * 8, 2));
        let with = |x: &[f32], row: usize, value: f32| -> Vec<f32> {
            let mut x = x.to_vec();
            x[row * 8..(row + 1) * 8].fill(value);
            x
        };
        let only = |row: usize| {
            move |y: &[f32]| {
                let nan: Vec<usize> = (0..14).filter(|&i| y[i].is_nan()).collect();
                assert_eq!(nan, [row], "{keys} keys");
            }
        };
        let all = |y: &[f32]| assert!(y.iter().all(|y| y.is_nan()), "{keys} keys");
        let none = |y: &[f32]| assert!(y.iter().all(|y| y.is_finite()), "{keys} keys");
        let large = with(&q, 3, 1e30);
        for key in [0, keys / 2, keys - 1] {
            rows_of(size, &large, &with(&k, key, 1e30), Mask::None, only(3));
            rows_of(size, &large, &with(&k, key, -1e30), Mask::None, none);
            rows_of(size, &q, &with(&k, key, f32::NAN), Mask::None, all);
            let mut mask = vec![0.0; 14 * keys];
            mask[5 * keys + key] = f32::INFINITY;
            rows_of(size, &q, &k, Mask::Add(&mask), only(5));
            mask[5 * keys + key] = f32::NAN;
            rows_of(size, &q, &k, Mask::Add(&mask), only(5));
            // What is masked is added to: NaN stays NaN, and +inf becomes it.
            let keep: Vec<bool> = (0..14 * keys).map(|i| i % keys != key).collect();
            rows_of(size, &q, &with(&k, key, f32::NAN), Mask::Keep(&keep), all);
            rows_of(size, &large, &with(&k, key, 1e30), Mask::Keep(&keep), only(3));
            rows_of(size, &q, &with(&k, key, 1e30), Mask::Keep(&keep), none);
        }
        rows_of(size, &with(&q, 2, f32::NAN), &k, Mask::None, only(2));
        // The sum overflows before it is scaled by 0.3, as in PyTorch.
        let large = with(&q, 4, 8e18);
        rows_of(size, &large, &with(&k, 1, 3e18), Mask::None, none);
        rows_of(size, &large, &with(&k, 1, 8e18), Mask::None, only(4));
    }
}

//! Layers against the reference: instruction sets x threads x cells x tails of units and batch.

use plutino_cpu::activation::Activation;
use plutino_cpu::simd::Pairs;
use plutino_cpu::tiles::{Terms, TileUnit};
use plutino_cpu::{Isa, Pool};
use plutino_products::gemm::{MatrixUnit, Narrow, Target};
use plutino_products::recurrent::*;
use plutino_reference::gemm::gamma;
use plutino_reference::recurrent::recurrent as reference;
use plutino_reference::testkit::{LARGE, assert_close, on_every_machine, random};
use plutino_tensor::{Floats, bf16, f16};

const CELLS: [Cell; 4] =
    [Cell::Lstm, Cell::Gru, Cell::Rnn(Activation::Tanh), Cell::Rnn(Activation::Relu)];

/// Weights of one direction. Rows sum to at most 1 for the input, and to a half for the state, so
/// that a step does not make the errors of the one before larger.
struct Owned([Vec<f32>; 5], bool);

impl Owned {
    fn new(shape: &Shape, seed: u64, bias: bool) -> Self {
        let scaled = |n: usize, by: f32, seed: u64| -> Vec<f32> {
            random(n, seed).into_iter().map(|v| v * by).collect()
        };
        let (gates, features, state) = (shape.gates(), shape.features, shape.state);
        Self(
            [
                scaled(gates * features, 1.0 / features as f32, seed),
                scaled(gates * state, 0.5 / state as f32, seed + 1),
                random(gates, seed + 2),
                random(gates, seed + 3),
                scaled(state * shape.hidden, 1.0 / shape.hidden as f32, seed + 4),
            ],
            bias,
        )
    }

    fn weights(&self, shape: &Shape) -> Weights<Floats<'_>> {
        let [input, recurrent, ih, hh, projection] = self.0.each_ref().map(Floats::from);
        Weights {
            input,
            recurrent,
            bias: self.1.then_some((ih, hh)),
            projection: (shape.state != shape.hidden).then_some(projection),
        }
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| v.into()).collect()
}

/// y, h and c one after the other.
fn expected(shape: &Shape, owned: &[Owned], x: &[f32], h: &[f32], c: &[f32]) -> Vec<f64> {
    let wide_weights: Vec<[Vec<f64>; 5]> =
        owned.iter().map(|o| o.0.each_ref().map(|v| wide(v))).collect();
    let weights: Vec<Weights<&[f64]>> = wide_weights
        .iter()
        .zip(owned)
        .map(|(wide, owned)| {
            let [input, recurrent, ih, hh, projection] = wide.each_ref().map(Vec::as_slice);
            Weights {
                input,
                recurrent,
                bias: owned.1.then_some((ih, hh)),
                projection: (shape.state != shape.hidden).then_some(projection),
            }
        })
        .collect();
    let mut y = vec![0.0; shape.rows() * shape.directions * shape.state];
    let (mut h, mut c) = (wide(h), wide(c));
    reference(shape, &weights, &wide(x), &mut y, &mut h, &mut c);
    [y, h, c].concat()
}

fn check(shape: Shape, bias: bool) {
    let Shape { batch, features, hidden, state, directions, steps, .. } = shape;
    let owned: Vec<Owned> =
        (0..directions as u64).map(|d| Owned::new(&shape, 10 * d, bias)).collect();
    let x = random(shape.rows() * features, 90);
    let h0 = random(directions * batch * state, 91);
    let c0 =
        if shape.cell == Cell::Lstm { random(directions * batch * hidden, 92) } else { vec![] };
    let expected = expected(&shape, &owned, &x, &h0, &c0);
    // A gate's sum is at most 1 + 1/2 + 2 in size; its functions and their product are off by a few
    // units. A step keeps at most half of the error of h, and the error of c while f is near 1.
    let step = gamma(features + state + hidden + 2, 3.5) + 8.0 * f64::from(f32::EPSILON);
    on_every_machine(
        |isa, par| {
            let target = Target::this(isa);
            let weights: Vec<_> = owned.iter().map(|o| o.weights(&shape)).collect();
            let packed = PackedLayer::new(target, &shape, &weights, Reduced::default()).unwrap();
            let plan = Recurrent::new(target, par.threads(), shape, Reduced::default());
            let mut y = vec![f32::NAN; shape.rows() * directions * state];
            let (mut h, mut c) = (h0.clone(), c0.clone());
            let mut scratch = vec![f32::NAN; plan.scratch(par.threads())];
            let states = States { h: &mut h, c: &mut c };
            plan.run(par, &packed, Some(&x), &mut y, states, &mut scratch);
            [y, h, c].concat()
        },
        |found| assert_close(found, &expected, |_| 2.0 * steps as f64 * step),
    );
}

fn shape(cell: Cell, batch: usize, hidden: usize, directions: usize) -> Shape {
    let (steps, features) = (4, 5);
    Shape { cell, steps, batch, batch_first: false, features, hidden, state: hidden, directions }
}

#[test]
fn every_tail_of_units() {
    for cell in CELLS {
        for hidden in [1, 3, 8, 15, 16, 17, 33, 40] {
            check(shape(cell, 1, hidden, 1), true);
            check(shape(cell, 2, hidden, 2), false);
        }
    }
}

#[test]
fn every_tail_of_the_batch() {
    for cell in CELLS {
        for batch in [0, 1, 2, 3, 5, 6, 7, 13, 30] {
            for directions in [1, 2] {
                let shape = shape(cell, batch, 9, directions);
                check(shape, true);
                check(Shape { batch_first: true, ..shape }, true);
            }
        }
    }
}

#[test]
fn projections() {
    for (hidden, state) in [(9, 4), (16, 3), (40, 17), (2, 1)] {
        for batch in [1, 4, 8] {
            check(Shape { state, ..shape(Cell::Lstm, batch, hidden, 2) }, true);
        }
    }
}

#[test]
fn a_large_bias_takes_no_digits_of_the_sum() {
    let (hidden, features) = (200, 300);
    for batch in [1, 3, 20] {
        let shape =
            Shape { steps: 1, features, ..shape(Cell::Rnn(Activation::Relu), batch, hidden, 1) };
        let ones = vec![1.0; hidden * features.max(hidden)];
        let (ih, hh) = (vec![LARGE; hidden], vec![0.0; hidden]);
        on_every_machine(
            |isa, par| {
                let target = Target::this(isa);
                let weights = Weights {
                    input: Floats::from(&ones[..hidden * features]),
                    recurrent: Floats::from(&ones[..hidden * hidden]),
                    bias: Some((Floats::from(&ih), Floats::from(&hh))),
                    projection: None,
                };
                let packed =
                    PackedLayer::new(target, &shape, &[weights], Reduced::default()).unwrap();
                let plan = Recurrent::new(target, par.threads(), shape, Reduced::default());
                let (x, mut y) = (vec![1.0; batch * features], vec![0.0; batch * hidden]);
                let (mut h, mut scratch) =
                    (vec![1.0; batch * hidden], vec![0.0; plan.scratch(par.threads())]);
                let states = States { h: &mut h, c: &mut [] };
                plan.run(par, &packed, Some(&x), &mut y, states, &mut scratch);
                y
            },
            |y| assert!(y.iter().all(|&y| y == LARGE + (hidden + features) as f32)),
        );
    }
}

#[test]
fn a_product_shared_among_threads() {
    for cell in CELLS {
        let shape = shape(cell, 2, 200, 1);
        // More weights than a thread keeps to itself.
        assert!(cell != Cell::Lstm || 4 * 200 * 200 * 4 > 128 << 10);
        check(shape, true);
    }
}

#[test]
fn a_single_step_and_a_long_sequence() {
    for cell in CELLS {
        check(Shape { steps: 1, ..shape(cell, 3, 8, 2) }, true);
        check(Shape { steps: 50, features: 40, ..shape(cell, 1, 8, 2) }, true);
    }
}

/// Inputs on units, of bf16 or of as many terms as say their own errors; steps of narrow weights,
/// for as few rows as are read so.
#[test]
fn reduced_inputs_and_steps() {
    for cell in CELLS {
        for (batch, directions) in [(1, 1), (2, 1), (3, 2), (4, 1)] {
            let shape = Shape { steps: 7, features: 70, ..shape(cell, batch, 19, directions) };
            check_reduced(shape);
        }
    }
    check_reduced(Shape { state: 17, ..shape(Cell::Lstm, 2, 40, 2) });
    check_reduced(shape(Cell::Lstm, 1, 200, 1));
}

/// On each unit, with 1 to 3 threads, against f64 with numbers that are rounded as theirs are.
fn check_reduced(shape: Shape) {
    let Shape { batch, features, hidden, state, directions, steps, .. } = shape;
    let lstm = shape.cell == Cell::Lstm;
    let x = random(shape.rows() * features, 90);
    let h0 = random(directions * batch * state, 91);
    let c0 = random(if lstm { directions * batch * hidden } else { 0 }, 92);
    let tiles = |terms| Some(MatrixUnit::Tiles(TileUnit::EMULATED, terms));
    let pairs = Some(MatrixUnit::Pairs(Pairs::EMULATED));
    for (inputs, narrow, left_out) in [
        (pairs, None, 0.0),
        (pairs, Some(Narrow::Bf16), 0.0),
        (tiles(Terms::One), Some(Narrow::Bf16), 0.0),
        // As in the tests of products.
        (tiles(Terms::Two), None, 3.0 * 0.5f64.powi(17)),
        (tiles(Terms::Three), None, 0.5f64.powi(24)),
        (None, Some(Narrow::Bf16), 0.5f64.powi(24)),
        (None, Some(Narrow::F16), 0.5f64.powi(24)),
    ] {
        let reduced = Reduced { inputs, steps: narrow }.of(&shape);
        let owned: Vec<Owned> =
            (0..directions as u64).map(|d| Owned::new(&shape, 10 * d, true)).collect();
        let rounded = |x: &[f32]| -> Vec<f32> {
            match left_out {
                0.0 => x.iter().map(|&x| bf16::from_f32(x).to_f32()).collect(),
                _ => x.to_vec(),
            }
        };
        let of_step = |x: &[f32]| -> Vec<f32> {
            match reduced.steps {
                None => x.to_vec(),
                Some(Narrow::Bf16) => x.iter().map(|&x| bf16::from_f32(x).to_f32()).collect(),
                Some(Narrow::F16) => x.iter().map(|&x| f16::from_f32(x).to_f32()).collect(),
            }
        };
        let exact: Vec<Owned> = (owned.iter())
            .map(|Owned([input, recurrent, ih, hh, projection], bias)| {
                let (input, recurrent) = (rounded(input), of_step(recurrent));
                Owned([input, recurrent, ih.clone(), hh.clone(), of_step(projection)], *bias)
            })
            .collect();
        let expected = expected(&shape, &exact, &rounded(&x), &h0, &c0);
        // As in `check`; the inputs' sum is at most 1 in size.
        let step = gamma(features + state + hidden + 2, 3.5) + 8.0 * f64::from(f32::EPSILON);
        let allowed = 2.0 * steps as f64 * (step + left_out);
        let isas = match inputs {
            Some(MatrixUnit::Pairs(pairs)) => vec![pairs.isa()],
            Some(_) => vec![Isa::best()],
            None => Isa::available(),
        };
        for isa in isas {
            let target = Target::this(isa);
            let weights: Vec<_> = owned.iter().map(|o| o.weights(&shape)).collect();
            let packed = PackedLayer::new(target, &shape, &weights, reduced).unwrap();
            let mut alone: Option<Vec<f32>> = None;
            for threads in [1, 2, 3] {
                let plan = Recurrent::new(target, threads, shape, reduced);
                let mut y = vec![f32::NAN; shape.rows() * directions * state];
                let (mut h, mut c) = (h0.clone(), c0.clone());
                let mut scratch = vec![f32::NAN; plan.scratch(threads)];
                let states = States { h: &mut h, c: &mut c };
                Pool::new(threads).enter(|par| {
                    plan.run(par, &packed, Some(&x), &mut y, states, &mut scratch);
                });
                let found = [y, h, c].concat();
                assert_close(&found, &expected, |_| allowed);
                let alone = alone.get_or_insert_with(|| found.clone());
                assert_eq!(*alone, found, "{reduced:?} {threads}");
            }
        }
    }
}

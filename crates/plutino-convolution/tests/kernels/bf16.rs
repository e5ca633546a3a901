//! Tensors of bf16 beside convolutions: the same bits as of f32 that hold the same numbers.

use crate::harness::*;
use plutino_convolution::*;
use plutino_cpu::activation::Activation;
use plutino_cpu::simd::Pairs;
use plutino_cpu::tiles::{Terms, TileUnit};
use plutino_cpu::{Isa, Par, Pool};
use plutino_products::gemm::MatrixUnit;
use plutino_tensor::bf16;
use std::collections::BTreeSet;

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| bf16::from_f32(x).to_f32()).collect()
}

/// All choices of tensors among those that could be bf16, but for none.
fn choices(could: Bf16Tensors) -> Vec<Bf16Tensors> {
    let bit = |i: usize, n: usize| i >> n & 1 == 1;
    let all =
        (1..8).map(|i| Bf16Tensors { input: bit(i, 0), residual: bit(i, 1), output: bit(i, 2) });
    all.filter(|bf16| bf16.are_among(could)).collect()
}

/// What multiplies bf16, with the vectors beside it: pairs and tiles, emulated and of this CPU.
fn units() -> [Vec<(Isa, MatrixUnit)>; 2] {
    let pairs: Vec<Pairs> = Isa::available().into_iter().filter_map(Pairs::of).collect();
    let pairs = [Pairs::EMULATED].into_iter().chain(pairs);
    let tiles = pairs.clone().flat_map(|pairs| {
        let units = [TileUnit::EMULATED].into_iter().chain(TileUnit::of_cpu());
        units.map(move |unit| (pairs.isa(), MatrixUnit::Tiles(unit, Terms::One)))
    });
    [pairs.map(|pairs| (pairs.isa(), MatrixUnit::Pairs(pairs))).collect(), tiles.collect()]
}

/// Every algorithm that has tensors of bf16, with each choice of them, on 1 to 3 threads. Which
/// there were for all units of a kind.
fn check(p: ConvProblem, post_ops: PostOps) -> BTreeSet<&'static str> {
    let given = Tensors::random(&p, post_ops);
    let residual = given.residual.as_deref().map(rounded);
    let given = Tensors { x: rounded(&given.x), residual, ..given };
    let mut found = BTreeSet::new();
    for units in units() {
        let of = |(isa, unit)| of_unit(p, post_ops, &given, isa, unit);
        let all = units.into_iter().map(of).reduce(|all, ran| &all & &ran);
        found.extend(all.unwrap_or_default());
    }
    found
}

fn of_unit(
    p: ConvProblem,
    post_ops: PostOps,
    given: &Tensors,
    isa: Isa,
    unit: MatrixUnit,
) -> BTreeSet<&'static str> {
    let mut ran = BTreeSet::new();
    for threads in [1, 2, 3] {
        let (unit, layouts) = (Some(unit), &ConvLayout::ALL);
        let request = Request { post_ops, isa, threads, unit, layouts, ..Request::plain(p) };
        let on =
            |conv: &Convolution| Pool::new(threads).enter(|par: &Par| run(conv, isa, given, par));
        for plain in request.candidates() {
            let name = plain.algorithm().name;
            let choices = choices(plain.bf16_tensors());
            if choices.is_empty() {
                continue;
            }
            ran.insert(name);
            let exact = on(&plain);
            for bf16 in choices {
                let asked = Request { bf16, ..request };
                let mut same = asked.candidates().filter(|c| c.algorithm().name == name);
                let conv = same.next().expect("as it says");
                let expected = if bf16.output { rounded(&exact) } else { exact.clone() };
                assert!(on(&conv) == expected, "{name}, {bf16:?}, {threads} threads, {isa}");
            }
        }
    }
    ran
}

fn square(size: usize, w: Window) -> [Dim; 2] {
    [(size, w), (size + 2, w)]
}

#[test]
fn single_pixels_and_strides() {
    for stride in [1, 2] {
        let w = window(1, stride, 1, (0, 0));
        // Whole blocks or not, even and odd numbers of them.
        for channels in [[16, 21], [32, 64], [17, 16], [48, 40], [80, 100]] {
            let p = problem(2, 1, channels, &square(9, w));
            assert!(check(p, relu()).is_superset(&["pointwise_bf16", "direct_bf16"].into()));
        }
    }
}

/// Tiles are loaded from the image: of several planes, of more than a depth block, of fewer pixels
/// than tiles have rows or a number that tiles do not divide.
#[test]
fn single_pixels_on_tiles() {
    let w = window(1, 1, 1, (0, 0));
    for (size, channels) in
        [([9, 11], [96, 40]), ([5, 7], [1216, 24]), ([1, 1], [64, 32]), ([3, 11], [32, 33])]
    {
        let p = problem(2, 1, channels, &size.map(|n| (n, w)));
        assert!(check(p, relu()).contains("tiles"));
    }
}

#[test]
fn what_is_done_to_sums() {
    let one = window(1, 1, 1, (0, 0));
    for activation in
        [None, Some(Activation::Relu6), Some(Activation::Silu), Some(Activation::Tanh)]
    {
        for order in [ResidualOrder::BeforeActivation, ResidualOrder::AfterActivation] {
            let post_ops = with_residual(activation, order);
            // More pixels than are finished together.
            assert!(
                check(problem(1, 1, [32, 48], &square(14, one)), post_ops)
                    .contains("pointwise_bf16")
            );
            let w = window(3, 1, 1, (1, 1));
            let found = check(problem(2, 1, [16, 40], &square(7, w)), post_ops);
            assert!(found.contains("winograd4x4_3x3"), "{found:?}");
        }
    }
    // Whose weights are multiplied: the image is f32.
    let factors = PostOps { factors: true, ..with_residual(None, ResidualOrder::BeforeActivation) };
    assert!(check(problem(2, 1, [32, 33], &square(9, one)), factors).contains("pointwise_bf16"));
}

#[test]
fn windows() {
    for (w, channels) in [
        (window(3, 2, 1, (1, 1)), [32, 19]),
        (window(3, 1, 3, (3, 3)), [64, 16]),
        (window(5, 2, 1, (0, 1)), [48, 40]),
    ] {
        for batch in [1, 3] {
            let p = problem(batch, 1, channels, &square(11, w));
            assert!(check(p, relu()).contains("direct_bf16"));
        }
    }
    let p = problem(2, 3, [32, 16], &square(9, window(3, 2, 1, (1, 1))));
    assert!(check(p, relu()).is_empty(), "groups");
}

#[test]
fn transposed_convolutions() {
    for p in of_phases() {
        let names = ["phases_bf16", "phases_tiles"];
        assert!(check(p, relu()).is_superset(&names.into()));
    }
    let tanh = PostOps { activation: Some(Activation::Tanh), ..PostOps::default() };
    let two = window(2, 2, 1, (0, 0));
    let p = transposed(3, 1, [64, 80], &square(20, two).map(|(n, w)| (n, w, 0)));
    assert!(check(p, tanh).contains("phases_bf16"));
}

/// Images of whole cells, and of one block of depth or several.
#[test]
fn on_tiles() {
    let three = |stride| window(3, stride, 1, (1, 1));
    for (w, channels) in [
        (window(1, 1, 1, (0, 0)), [64, 40]),
        (window(1, 2, 1, (0, 0)), [96, 64]),
        (three(1), [32, 33]),
        (three(2), [64, 48]),
        (three(1), [192, 16]),
    ] {
        for batch in [1, 2] {
            let p = problem(batch, 1, channels, &square(8, w));
            let post_ops = with_residual(Some(Activation::Relu), ResidualOrder::BeforeActivation);
            assert!(check(p, post_ops).contains("tiles"));
        }
    }
    let [a, b] = units();
    for (isa, unit) in b.into_iter().filter(|(isa, _)| a.iter().any(|(other, _)| other == isa)) {
        let MatrixUnit::Tiles(unit, _) = unit else { continue };
        // With more terms numbers stay what they are.
        for terms in [Terms::Two, Terms::Three] {
            let p = problem(1, 1, [64, 64], &square(8, three(1)));
            let (unit, layouts) = (Some(MatrixUnit::Tiles(unit, terms)), &ConvLayout::ALL);
            let request = Request { isa, unit, layouts, ..Request::plain(p) };
            assert!(request.candidates().all(|c| c.bf16_tensors() == Bf16Tensors::NONE));
        }
    }
}

#[test]
fn winograd_and_first_layers() {
    let three = |stride| window(3, stride, 1, (1, 1));
    let names = ["winograd2x2_3x3", "winograd4x4_3x3", "winograd5x5_3x3"];
    for (batch, size) in [(1, 13), (3, 8), (2, 26)] {
        let p = problem(batch, 1, [20, 70], &square(size, three(1)));
        assert!(check(p, relu()).is_superset(&names.into()));
    }
    let p = problem(2, 1, [20, 40], &square(21, three(2)));
    assert!(check(p, relu()).contains("winograd4x4_3x3s2"));
    let first = problem(2, 1, [3, 48], &square(30, window(7, 2, 1, (3, 3))));
    let names = ["winograd4x4_4x4_plain", "first_layer_bf16"];
    assert!(check(first, relu()).is_superset(&names.into()));
    let silu = PostOps { activation: Some(Activation::Silu), ..PostOps::default() };
    let first = problem(1, 1, [3, 40], &square(50, three(2)));
    assert!(check(first, silu).contains("first_layer_bf16"));
}

//! Convolutions of pairs of bf16: sums of rounded numbers, as far as f32 sums go.

use crate::harness::*;
use plutino_convolution::*;
use plutino_cpu::activation::Activation;
use plutino_cpu::simd::Pairs;
use plutino_cpu::{Isa, Par, Pool};
use plutino_products::gemm::MatrixUnit;
use plutino_reference::testkit::assert_close;
use plutino_tensor::bf16;
use std::collections::BTreeSet;

/// The emulation, and what the CPU has.
fn units() -> Vec<Pairs> {
    let real = Isa::available().into_iter().filter_map(Pairs::of);
    [Pairs::EMULATED].into_iter().chain(real).collect()
}

/// Those that compute pairs; and products of single pixels do where they are given some.
const OF_PAIRS: [&str; 5] =
    ["pointwise_bf16", "direct_bf16", "first_layer_bf16", "phases_bf16", "single_pixel"];

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| bf16::from_f32(x).to_f32()).collect()
}

/// Each algorithm of pairs on 1 to 3 threads. Which there were for all units.
fn check(p: ConvProblem, post_ops: PostOps) -> BTreeSet<&'static str> {
    let given = Tensors::random(&p, post_ops);
    // Channels times their factors are rounded.
    let plane = p.in_plane();
    let factor = |i: usize| given.factors.as_ref().map_or(1.0, |f| f[i / plane]);
    let scaled: Vec<f32> = given.x.iter().enumerate().map(|(i, x)| x * factor(i)).collect();
    let factors = given.factors.as_ref().map(|f| vec![1.0; f.len()]);
    let weight = rounded(&given.weight);
    let exact = Tensors { x: rounded(&scaled), weight, factors, ..given.clone() };
    let (expected, bound) = definition(&p, post_ops, &exact);
    let mut all = BTreeSet::from(OF_PAIRS);
    for pairs in units() {
        let (isa, layouts) = (pairs.isa(), &ConvLayout::ALL);
        let mut ran = BTreeSet::new();
        let unit = Some(MatrixUnit::Pairs(pairs));
        for name in OF_PAIRS {
            let mut alone: Option<Vec<f32>> = None;
            for threads in [1, 2, 3] {
                let plain = Request::plain(p);
                let request = Request { post_ops, isa, threads, unit, layouts, ..plain };
                let Some(conv) = request.candidates().find(|c| c.algorithm().name == name) else {
                    continue;
                };
                ran.insert(name);
                let on = |t| Pool::new(threads).enter(|par: &Par| run(&conv, isa, t, par));
                let found = on(&given);
                assert_close(&found, &expected, &bound);
                // Numbers are rounded as they should be, and threads change nothing.
                assert_eq!(found, on(&exact), "{name}");
                assert_eq!(*alone.get_or_insert_with(|| found.clone()), found, "{name}");
            }
        }
        all.retain(|name| ran.contains(name));
    }
    all
}

fn square(size: usize, w: Window) -> [Dim; 2] {
    [(size, w), (size + 2, w)]
}

#[test]
fn single_pixels_and_strides() {
    for stride in [1, 2, 3] {
        let w = window(1, stride, 1, (0, 0));
        // Even and odd channels, of less than a block, of an odd number of them, of several.
        for inp in [1, 2, 7, 16, 17, 32, 33, 48, 80] {
            let p = problem(2, 1, [inp, 21], &square(9, w));
            assert!(check(p, relu()).is_superset(&["pointwise_bf16", "direct_bf16"].into()));
        }
    }
    let residual = with_residual(Some(Activation::Silu), ResidualOrder::BeforeActivation);
    let after = with_residual(Some(Activation::Relu), ResidualOrder::AfterActivation);
    let one = window(1, 1, 1, (0, 0));
    check(problem(1, 1, [40, 200], &square(20, one)), residual);
    check(problem(3, 1, [64, 96], &square(14, one)), after);
    let p = problem(5, 1, [64, 32], &[(1, one), (1, one)]);
    assert!(check(p, relu()).contains("single_pixel"));
}

/// As squeeze and excite gives them, for each image and channel.
#[test]
fn factors() {
    let order = ResidualOrder::BeforeActivation;
    let after = PostOps { factors: true, ..with_residual(None, order) };
    for stride in [1, 2] {
        let w = window(1, stride, 1, (0, 0));
        for inp in [1, 16, 17, 40, 96] {
            let p = problem(2, 1, [inp, 33], &square(9, w));
            assert!(check(p, after).contains("pointwise_bf16"));
        }
    }
    let p = problem(1, 1, [32, 16], &square(7, window(3, 2, 1, (1, 1))));
    assert!(check(p, PostOps { factors: true, ..PostOps::default() }).is_empty());
}

#[test]
fn windows() {
    for (w, channels) in [
        (window(3, 1, 1, (1, 1)), [16, 32]),
        (window(3, 2, 1, (1, 1)), [33, 19]),
        (window(3, 1, 3, (3, 3)), [64, 16]),
        (window(5, 2, 1, (0, 1)), [7, 40]),
        (window(2, 2, 1, (0, 0)), [96, 70]),
    ] {
        for batch in [1, 3] {
            let p = problem(batch, 1, channels, &square(11, w));
            assert!(check(p, relu()).contains("direct_bf16"));
        }
    }
    // More pixels than are made words together.
    let p = problem(1, 1, [40, 16], &square(40, window(3, 2, 1, (1, 1))));
    assert!(check(p, relu()).contains("direct_bf16"));
}

#[test]
fn first_layers() {
    for (w, size) in [
        (window(3, 2, 1, (1, 1)), 30),
        (window(7, 2, 1, (3, 3)), 61),
        (window(4, 4, 1, (0, 0)), 64),
        (window(3, 1, 1, (1, 1)), 9),
        (window(3, 1, 2, (2, 1)), 100),
    ] {
        for inp in 1..=4 {
            for (batch, out) in [(1, 20), (2, 64)] {
                let p = problem(batch, 1, [inp, out], &square(size, w));
                let found = check(p, relu());
                assert!(found.contains("first_layer_bf16"), "{w:?} {inp}: {found:?}");
            }
        }
    }
    let silu = with_residual(Some(Activation::Silu), ResidualOrder::AfterActivation);
    let p = problem(1, 1, [3, 40], &square(33, window(3, 2, 1, (1, 1))));
    assert!(check(p, silu).contains("first_layer_bf16"));
}

#[test]
fn groups_of_whole_blocks() {
    for w in [window(3, 1, 1, (1, 1)), window(1, 1, 1, (0, 0))] {
        let p = problem(2, 3, [32, 16], &square(9, w));
        assert!(check(p, relu()).contains("direct_bf16"));
        // Half a block of words: two groups would share it.
        let p = problem(2, 3, [16, 16], &square(9, w));
        assert!(check(p, relu()).is_empty() || Isa::best().lanes() < 16);
    }
}

#[test]
fn transposed_convolutions() {
    for p in of_phases() {
        assert!(check(p, relu()).contains("phases_bf16"));
    }
    let silu = PostOps { activation: Some(Activation::Silu), ..PostOps::default() };
    let two = window(2, 2, 1, (0, 0));
    assert!(
        check(transposed(3, 1, [70, 80], &square(20, two).map(|(n, w)| (n, w, 0))), silu)
            .contains("phases_bf16")
    );
}

/// Where nothing is said of pairs nobody computes with them, and what is chosen with them is one
/// that pays.
#[test]
fn pairs_are_chosen_where_they_are_given_and_pay() {
    let one = window(1, 1, 1, (0, 0));
    let p = problem(1, 1, [256, 256], &square(14, one));
    let pairs = Pairs::EMULATED;
    let (isa, layouts) = (pairs.isa(), &ConvLayout::ALL[..]);
    let request = Request { isa, layouts, ..Request::plain(p) };
    assert_eq!(choose(&request).unwrap().algorithm().name, "pointwise");
    let request = Request { unit: Some(MatrixUnit::Pairs(pairs)), ..request };
    assert_eq!(choose(&request).unwrap().algorithm().name, "pointwise_bf16");
    // With few output channels the copies take longer than is won.
    let p = problem(1, 1, [256, 1], &square(56, one));
    let few = Request { problem: p, ..request };
    assert_eq!(choose(&few).unwrap().algorithm().name, "pointwise");
}

//! Every algorithm against the definition, and what they promise beside the sums.

use crate::harness::*;
use plutino_convolution::*;
use plutino_cpu::activation::Activation;
use plutino_cpu::{Isa, Par, Pool};
use plutino_reference::conv::conv;
use plutino_reference::testkit::{LARGE, assert_close, on_every_machine, random};
use proptest::prelude::*;

/// A square of planes with a window of 3 x 3 that keeps the size.
const SAME: Window =
    Window { kernel: 3, stride: 1, dilation: 1, padding: (1, 1), mode: PadMode::Zeros };

/// One pixel.
const ONE: Window =
    Window { kernel: 1, stride: 1, dilation: 1, padding: (0, 0), mode: PadMode::Zeros };

#[test]
fn two_dimensions() {
    for w in [
        SAME,
        window(3, 2, 1, (1, 1)),
        window(7, 2, 1, (3, 3)),
        window(1, 2, 1, (0, 0)),
        window(3, 1, 2, (2, 2)),
        window(2, 1, 1, (0, 1)),
    ] {
        for size in [7, 14, 19] {
            let ran = check(problem(1, 1, [5, 9], &[(size, w), (size, w)]), relu());
            assert!(ran.contains("im2col") && ran.contains("direct"));
            let after = with_residual(Some(Activation::Relu), ResidualOrder::AfterActivation);
            check(problem(3, 2, [3, 2], &[(size, w), (size + 1, w)]), after);
        }
    }
}

#[test]
fn direct() {
    let dilated = (window(3, 1, 2, (2, 2)), window(3, 1, 3, (3, 3)));
    let uneven = (window(5, 1, 1, (3, 3)), window(2, 2, 1, (0, 0)));
    for (batch, channels, dims) in [
        (1, [16, 32], [(9, SAME), (7, SAME)]),
        (2, [16, 32], [(9, window(3, 2, 1, (1, 1))), (7, window(3, 2, 1, (1, 1)))]),
        (1, [5, 19], [(9, SAME), (7, SAME)]),
        (1, [33, 8], [(9, dilated.0), (7, dilated.1)]),
        (1, [16, 32], [(9, uneven.0), (7, uneven.1)]),
        (1, [16, 16], [(40, SAME), (33, SAME)]),
    ] {
        assert!(check(problem(batch, 1, channels, &dims), relu()).contains("direct"));
    }
    // Groups of whole blocks, for every instruction set.
    for (batch, groups, channels) in [(1, 3, [16, 32]), (2, 2, [32, 16])] {
        let p = problem(batch, groups, channels, &[(9, SAME), (7, SAME)]);
        assert!(check(p, relu()).contains("direct"));
    }
}

/// Lines and volumes, in blocks of channels as planes are.
#[test]
fn lines_and_volumes() {
    let by = |kernel: usize, stride: usize, pad: usize| window(kernel, stride, 1, (pad, pad));
    let (deep, far) = (window(3, 2, 1, (1, 1)), window(3, 1, 4, (4, 4)));
    for (batch, groups, channels, dims) in [
        (2, 1, [19, 33], &[(40, SAME)][..]),
        (1, 1, [16, 16], &[(61, window(5, 2, 3, (6, 6)))]),
        // Taps that only see padding: of every output, or of most.
        (1, 1, [16, 32], &[(5, window(3, 1, 7, (7, 7))), (6, far)]),
        (2, 1, [16, 32], &[(4, SAME), (9, SAME), (7, SAME)]),
        (1, 1, [5, 19], &[(4, deep), (9, deep), (7, by(5, 1, 2))]),
        (1, 1, [33, 8], &[(5, by(2, 1, 0)), (9, far), (7, by(3, 2, 0))]),
        (1, 2, [16, 32], &[(1, SAME), (5, SAME), (6, SAME)]),
        // As planes: a depth of one, columns of whole slices, rows of all slices.
        (1, 1, [20, 20], &[(1, ONE), (9, SAME), (7, SAME)]),
        (2, 1, [20, 20], &[(6, deep), (5, ONE), (7, ONE)]),
        (2, 1, [20, 20], &[(6, ONE), (5, ONE), (17, by(4, 3, 1))]),
        (1, 1, [20, 20], &[(6, SAME), (1, ONE), (17, SAME)]),
    ] {
        let before = with_residual(Some(Activation::Relu), ResidualOrder::BeforeActivation);
        let ran = check(problem(batch, groups, channels, dims), before);
        assert!(ran.contains("direct") && ran.contains("im2col"), "{dims:?} {ran:?}");
    }
    for dims in [[(6, ONE), (5, ONE), (7, ONE)], [(1, ONE), (1, ONE), (40, ONE)]] {
        assert!(check(problem(2, 1, [20, 40], &dims), relu()).contains("pointwise"));
    }
    let ran = check(problem(2, 19, [1, 1], &[(40, SAME)]), relu());
    assert!(ran.contains("depthwise"));
    for (groups, dims) in [
        (19, [(4, SAME), (9, SAME), (21, SAME)]),
        (16, [(5, deep), (9, deep), (13, by(5, 2, 2))]),
        (33, [(6, by(2, 1, 0)), (7, far), (9, window(3, 1, 2, (2, 1)))]),
        // All but one slice of the window is padding; no slice and no row is one of its own.
        (8, [(1, SAME), (3, by(7, 1, 3)), (10, by(7, 1, 3))]),
        (20, [(9, by(5, 1, 2)), (1, ONE), (1, ONE)]),
    ] {
        let after = with_residual(Some(Activation::Relu), ResidualOrder::AfterActivation);
        let ran = check(problem(2, groups, [1, 1], &dims), after);
        assert!(ran.contains("depthwise"), "{dims:?} {ran:?}");
    }
}

#[test]
fn winograd_on_slices() {
    let by = |kernel: usize, stride: usize, pad: usize| window(kernel, stride, 1, (pad, pad));
    let three = ["winograd2x2_3x3", "winograd4x4_3x3"];
    for (batch, channels, dims) in [
        (2, [16, 21], [(4, SAME), (9, SAME), (14, SAME)]),
        (1, [32, 16], [(5, window(3, 2, 2, (2, 1))), (8, by(3, 1, 0)), (7, SAME)]),
        // All but one slice of the window is padding.
        (1, [16, 16], [(1, SAME), (14, SAME), (14, SAME)]),
        // A slice has channels of its own alone: surplus lanes do no harm.
        (2, [19, 40], [(3, ONE), (14, SAME), (9, SAME)]),
        (1, [16, 40], [(6, by(1, 2, 0)), (30, SAME), (41, SAME)]),
    ] {
        let after = with_residual(Some(Activation::Relu), ResidualOrder::AfterActivation);
        let ran = check(problem(batch, 1, channels, &dims), after);
        assert!(three.iter().all(|name| ran.contains(name)), "{dims:?} {ran:?}");
    }
    let two = by(3, 2, 1);
    let ran = check(problem(1, 1, [16, 40], &[(4, two), (9, two), (14, two)]), relu());
    assert!(ran.contains("winograd4x4_3x3s2"));
    // Channels of two slices would share a block.
    let ran = check(problem(1, 1, [19, 16], &[(4, SAME), (9, SAME), (14, SAME)]), relu());
    assert!(!ran.iter().any(|name| name.starts_with("winograd")));
}

#[test]
fn pointwise() {
    let by = |stride: usize| window(1, stride, 1, (0, 0));
    for (batch, groups, channels, dims) in [
        (2, 1, [7, 13], [(9, ONE), (11, ONE)]),
        (3, 1, [40, 65], [(7, ONE), (7, ONE)]),
        (1, 1, [16, 32], [(9, by(2)), (7, by(2))]),
        (2, 1, [37, 40], [(31, by(2)), (40, by(3))]),
        (1, 2, [16, 32], [(9, by(1)), (7, by(2))]),
        // Each thread has pixels of its own, and these all channels, in several tasks.
        (1, 1, [40, 200], [(20, ONE), (21, ONE)]),
    ] {
        let ran = check(problem(batch, groups, channels, &dims), relu());
        assert!(ran.contains("pointwise") && ran.contains("im2col"));
        assert_eq!(ran.contains("gemm"), dims.iter().all(|(_, w)| *w == ONE));
    }
    check(problem(2, 3, [2, 4], &[(50, ONE)]), relu());
    for (batch, channels) in [(1, [64, 96]), (5, [16, 32])] {
        let p = problem(batch, 1, channels, &[(1, ONE), (1, ONE)]);
        let ran = check(p, with_residual(Some(Activation::Silu), ResidualOrder::BeforeActivation));
        assert!(ran.contains("single_pixel") && ran.contains("pointwise"));
    }
}

/// Squeeze and excite: each channel of each image times a factor, and a residual.
#[test]
fn scaled_channels() {
    for (channels, [h, w], batch) in
        [([16, 32], [9, 7], 1), ([37, 19], [5, 5], 3), ([8, 70], [31, 40], 2)]
    {
        let residual = Some(ResidualOrder::BeforeActivation);
        let post_ops = PostOps { residual, factors: true, activation: None };
        let ran = check(problem(batch, 1, channels, &[(h, ONE), (w, ONE)]), post_ops);
        assert_eq!(ran.into_iter().collect::<Vec<_>>(), ["pointwise"]);
    }
    // More weights than pixels: multiplying the image is faster.
    let p = problem(1, 1, [16, 64], &[(4, ONE), (4, ONE)]);
    assert!(check(p, PostOps { factors: true, ..PostOps::default() }).is_empty());
}

#[test]
fn first_layers() {
    let seven = window(7, 2, 1, (3, 3));
    let sized = |k: usize, s: usize, p: usize| window(k, s, 1, (p, p));
    for (batch, channels, dims) in [
        (1, [3, 24], [(17, seven), (15, seven)]),
        (2, [1, 5], [(17, seven), (15, seven)]),
        // Rows of several tiles, and an odd last block.
        (1, [3, 40], [(11, seven), (61, seven)]),
        (1, [4, 16], [(11, sized(7, 1, 3)), (61, sized(7, 1, 3))]),
        (1, [3, 40], [(9, sized(3, 2, 3)), (90, window(2, 3, 4, (3, 3)))]),
        // No padding: read where they lie. Rows of several tiles, and short ones, of which some are
        // not reached.
        (2, [3, 24], [(13, sized(4, 4, 0)), (91, sized(3, 3, 0))]),
        (2, [3, 24], [(11, sized(4, 4, 0)), (23, sized(3, 3, 0))]),
        (1, [3, 24], [(9, ONE), (60, sized(1, 2, 0))]),
        (1, [4, 40], [(40, sized(32, 8, 0)), (33, sized(16, 1, 0))]),
        // Of several parts, which share rows.
        (2, [2, 5], [(75, SAME), (61, SAME)]),
    ] {
        assert!(check(problem(batch, 1, channels, &dims), relu()).contains("first_layer"));
    }
}

#[test]
fn depthwise() {
    let pad = |k: usize, s: usize, p: usize| window(k, s, 1, (p, p));
    for (batch, dims) in [
        (1, [(9, SAME), (7, SAME)]),
        (1, [(9, pad(3, 2, 1)), (7, pad(3, 2, 1))]),
        (2, [(30, pad(5, 1, 2)), (29, pad(5, 1, 2))]),
        (1, [(9, window(3, 1, 2, (2, 2))), (7, pad(3, 1, 0))]),
        (1, [(5, SAME), (40, pad(3, 3, 1))]),
        (1, [(4, pad(7, 1, 3)), (3, pad(7, 1, 3))]),
        (1, [(7, pad(5, 2, 2)), (19, pad(5, 2, 2))]),
        // Pairs of rows: the last row alone, rows that are all padding, a plane narrower than the
        // window.
        (1, [(1, SAME), (9, SAME)]),
        (1, [(14, pad(3, 1, 0)), (14, SAME)]),
        (1, [(3, pad(3, 1, 3)), (20, pad(3, 1, 2))]),
        (1, [(3, pad(5, 1, 2)), (2, pad(5, 1, 2))]),
    ] {
        for channels in [8, 19] {
            let p = problem(batch, channels, [1, 1], &dims);
            let residual = with_residual(None, ResidualOrder::BeforeActivation);
            assert!(check(p, residual).contains("depthwise"));
        }
    }
}

#[test]
fn grouped() {
    let pad = |k: usize, s: usize, p: usize| window(k, s, 1, (p, p));
    for (batch, groups, each, dims) in [
        (1, 8, 4, &[(9, SAME), (7, SAME)][..]),
        (2, 10, 4, &[(9, pad(3, 2, 1)), (30, pad(3, 2, 1))]),
        (1, 3, 2, &[(5, pad(5, 1, 2)), (19, window(3, 1, 2, (2, 2)))]),
        (1, 7, 2, &[(1, ONE), (40, ONE)]),
        (2, 5, 4, &[(61, window(7, 3, 1, (3, 3)))]),
        // Columns of padding alone.
        (1, 4, 4, &[(2, SAME), (2, window(3, 1, 5, (5, 5)))]),
    ] {
        let p = problem(batch, groups, [each, each], dims);
        for order in [ResidualOrder::BeforeActivation, ResidualOrder::AfterActivation] {
            let ran = check(p, with_residual(Some(Activation::Relu), order));
            assert!(ran.contains("grouped"), "{dims:?} {ran:?}");
        }
    }
    let eight = problem(1, 6, [8, 8], &[(9, SAME), (7, SAME)]);
    let ran = check(eight, with_residual(None, ResidualOrder::BeforeActivation));
    assert_eq!(ran.contains("grouped"), Isa::available().iter().any(|isa| isa.lanes() > 8));
    // As many channels out as in, and equal parts of a block.
    for channels in [[4, 2], [3, 3]] {
        let ran = check(problem(1, 4, channels, &[(9, SAME), (7, SAME)]), relu());
        assert!(!ran.contains("grouped"));
    }
}

#[test]
fn winograd() {
    let pad = |k: usize, s: usize, p: usize| window(k, s, 1, (p, p));
    let (four, two) = (pad(4, 1, 1), pad(3, 2, 1));
    let three = ["winograd2x2_3x3", "winograd4x4_3x3", "winograd5x5_3x3"];
    for (batch, channels, dims) in [
        (1, [37, 21], [(14, SAME), (14, SAME)]),
        (2, [16, 16], [(30, pad(3, 1, 0)), (41, pad(3, 1, 2))]),
        (1, [64, 40], [(5, SAME), (3, SAME)]),
        // Several chunks, for a thread each.
        (1, [16, 16], [(101, SAME), (131, SAME)]),
        // As many as F(5x5, 3x3) takes.
        (1, [128, 16], [(30, SAME), (31, SAME)]),
        // Short tiles: in chunks that begin inside an image, too.
        (5, [128, 128], [(14, SAME), (14, SAME)]),
    ] {
        let relu = with_residual(Some(Activation::Relu), ResidualOrder::BeforeActivation);
        let ran = check(problem(batch, 1, channels, &dims), relu);
        assert!(three.iter().all(|name| ran.contains(name)));
    }
    for (name, batch, channels, dims) in [
        ("winograd4x4_4x4", 1, [128, 16], [(30, four), (31, four)]),
        ("winograd4x4_4x4", 1, [20, 16], [(15, four), (15, four)]),
        ("winograd4x4_3x3s2", 1, [16, 32], [(9, two), (7, two)]),
        ("winograd4x4_3x3s2", 1, [37, 21], [(17, two), (16, two)]),
        ("winograd4x4_3x3s2", 2, [16, 16], [(30, pad(3, 2, 0)), (41, pad(3, 2, 2))]),
        ("winograd4x4_3x3s2", 1, [64, 40], [(5, two), (3, two)]),
        // Images.
        ("winograd4x4_4x4_plain", 1, [3, 20], [(27, pad(7, 2, 3)), (27, pad(7, 2, 3))]),
        ("winograd4x4_4x4_plain", 1, [3, 20], [(9, pad(7, 2, 3)), (7, pad(7, 2, 3))]),
        ("winograd4x4_4x4_plain", 2, [4, 33], [(31, pad(8, 2, 3)), (62, pad(8, 2, 3))]),
        ("winograd4x4_3x3_plain", 1, [1, 16], [(29, pad(6, 2, 2)), (40, pad(5, 2, 2))]),
        ("winograd4x4_4x4_plain", 1, [3, 64], [(203, pad(7, 2, 3)), (150, pad(7, 2, 3))]),
    ] {
        let relu = with_residual(Some(Activation::Relu), ResidualOrder::BeforeActivation);
        assert!(check(problem(batch, 1, channels, &dims), relu).contains(name), "{name}");
    }
}

#[test]
fn transposed_convolutions() {
    let w = window(3, 2, 1, (1, 1));
    let (a, b) = (window(2, 2, 1, (0, 0)), window(3, 1, 2, (2, 1)));
    for p in [
        transposed(2, 1, [4, 5], &[(7, w, 1), (9, w, 0)]),
        transposed(1, 3, [3, 2], &[(20, window(4, 3, 2, (2, 2)), 2)]),
        transposed(1, 2, [2, 1], &[(3, w, 1), (4, a, 0), (5, b, 1)]),
    ] {
        assert!(check(p, relu()).contains("transposed"));
    }
    let by = |kernel: usize, stride: usize, pad: usize| window(kernel, stride, 1, (pad, pad));
    for p in of_phases() {
        for activation in [Activation::Relu, Activation::Silu] {
            let activation = Some(activation);
            let ran = check(p, PostOps { activation, ..PostOps::default() });
            assert!(ran.contains("phases") && ran.contains("transposed"));
        }
    }
    // A phase without taps, a row of input that nobody reads, too many phases, few channels.
    for (channels, dims) in [
        ([16, 16], [(4, by(1, 2, 0), 1), (4, by(2, 2, 0), 0)]),
        ([16, 16], [(4, by(2, 2, 1), 0), (4, by(2, 2, 0), 0)]),
        ([16, 16], [(4, by(5, 5, 0), 0), (4, by(5, 5, 0), 0)]),
        ([16, 3], [(4, by(2, 2, 0), 0), (4, by(2, 2, 0), 0)]),
    ] {
        assert!(!check(transposed(1, 1, channels, &dims), relu()).contains("phases"));
    }
}

#[test]
fn one_and_three_dimensions() {
    check(problem(2, 1, [4, 6], &[(33, window(5, 2, 3, (4, 1)))]), relu());
    let dims =
        [(5, window(3, 2, 1, (1, 1))), (6, window(2, 1, 1, (0, 1))), (7, window(3, 1, 2, (2, 2)))];
    check(problem(1, 2, [2, 3], &dims), relu());
}

#[test]
fn padding_larger_than_the_image() {
    let dims = [(1, window(3, 2, 1, (5, 4))), (2, window(2, 3, 4, (6, 7)))];
    check(problem(1, 1, [2, 2], &dims), relu());
}

#[test]
fn padding_modes() {
    for mode in [PadMode::Reflect, PadMode::Replicate, PadMode::Circular] {
        for (stride, dilation) in [(1, 1), (2, 1), (3, 2)] {
            let w = Window { mode, ..window(3, stride, dilation, (2, 3)) };
            check(problem(2, 1, [2, 3], &[(9, w), (11, w)]), relu());
            check(problem(1, 1, [2, 3], &[(4, w), (5, w), (6, w)]), relu());
        }
        let too_much = Window { mode, ..window(3, 1, 1, (1, 4)) };
        let found = Axis::new(3, too_much);
        assert_eq!(found.is_ok(), mode == PadMode::Replicate, "{mode:?}");
    }
}

#[test]
fn a_batch_too_large_to_be_laid_out_at_once() {
    check(problem(5, 1, [3, 2], &[(200, SAME), (210, SAME)]), relu());
}

#[test]
fn residual_and_activation_in_both_orders() {
    use ResidualOrder::{AfterActivation, BeforeActivation};
    for activation in [None, Some(Activation::Relu), Some(Activation::HardSwish)] {
        for order in [BeforeActivation, AfterActivation] {
            for (groups, channels) in [(1, [16, 16]), (24, [1, 1])] {
                for dims in [[(5, ONE), (5, ONE)], [(9, SAME), (7, SAME)]] {
                    check(problem(1, groups, channels, &dims), with_residual(activation, order));
                }
            }
        }
    }
}

#[test]
fn a_large_bias_takes_no_digits_of_the_sum() {
    let inside = window(3, 1, 1, (0, 0));
    let (strided, eight) = (window(1, 2, 1, (0, 0)), window(8, 1, 1, (0, 0)));
    let plain = [
        problem(2, 1, [40, 5], &[(7, inside), (9, window(2, 1, 1, (0, 0)))]),
        problem(1, 1, [16, 32], &[(9, inside), (7, inside)]),
        problem(1, 1, [70, 40], &[(9, inside), (7, inside)]),
        problem(1, 1, [300, 40], &[(9, ONE), (7, ONE)]),
        problem(1, 1, [300, 40], &[(9, strided), (7, strided)]),
        problem(1, 1, [4, 24], &[(9, inside), (60, inside)]),
        problem(1, 1, [4, 24], &[(20, eight), (20, eight)]),
        // Transposed, each output sees one tap of each channel.
        transposed(1, 1, [40, 16], &[(6, window(2, 2, 1, (0, 0)), 0); 2]),
    ];
    let wide = |k: usize, s: usize| window(k, s, 1, (0, 0));
    let depthwise = [wide(3, 1), wide(4, 1), wide(5, 1), wide(5, 2), wide(7, 1)]
        .map(|w| problem(1, 19, [1, 1], &[(14, w), (20, w)]));
    for p in plain.into_iter().chain(depthwise) {
        // Every second tap is one where there is a single channel: an even number in all.
        let even = |i: usize| if p.group_in() == 1 { (i % p.taps() % 2) as f32 } else { 1.0 };
        let t = Tensors {
            x: vec![1.0; p.input_len()],
            weight: (0..p.weight_len()).map(even).collect(),
            bias: Some(vec![LARGE; p.out_channels()]),
            factors: None,
            residual: None,
        };
        let exact: Vec<f64> =
            conv(&p, &t.x, &t.weight).iter().map(|sum| sum + f64::from(LARGE)).collect();
        for algorithm in ALGORITHMS.iter().filter(|a| !a.name.starts_with("winograd")) {
            on_every_machine(
                |isa, par| {
                    let conv = bound(algorithm.name, p, PostOps::default(), isa, par.threads());
                    conv.map(|conv| run(&conv, isa, &t, par)).unwrap_or_default()
                },
                |found| {
                    if !found.is_empty() {
                        assert_close(found, &exact, |_| 0.0);
                    }
                },
            );
        }
    }
}

/// A whole block and half of one, with what comes after the sums, against each block on its own.
#[test]
fn half_a_block_beside_a_whole_one() {
    let two = window(3, 2, 1, (1, 1));
    for (name, channels, dims) in
        [("first_layer", 3, [(6, two), (67, two)]), ("pointwise", 16, [(5, ONE), (29, ONE)])]
    {
        let post_ops = with_residual(Some(Activation::Silu), ResidualOrder::AfterActivation);
        let whole = problem(1, 1, [channels, 24], &dims);
        let t = Tensors::random(&whole, post_ops);
        let row = channels * whole.taps();
        let part = |isa, par: &Par, outputs: std::ops::Range<usize>| {
            let p = problem(1, 1, [channels, outputs.len()], &dims);
            let cut = |v: &[f32], n: usize| v[outputs.start * n..outputs.end * n].to_vec();
            let t = Tensors {
                x: t.x.clone(),
                weight: cut(&t.weight, row),
                bias: t.bias.as_ref().map(|b| cut(b, 1)),
                factors: None,
                residual: t.residual.as_ref().map(|r| cut(r, p.out_plane())),
            };
            run(&bound(name, p, post_ops, isa, par.threads()).unwrap(), isa, &t, par)
        };
        on_every_machine(
            |isa, par| {
                let found = part(isa, par, 0..24);
                let parts = [part(isa, par, 0..16), part(isa, par, 16..24)].concat();
                assert_eq!(found, parts, "{isa}");
                found
            },
            |_| {},
        );
    }
}

#[test]
fn any_dtype() {
    let w = Window { mode: PadMode::Replicate, ..window(3, 2, 1, (1, 2)) };
    for p in [
        problem(2, 2, [2, 3], &[(5, w), (6, w)]),
        // More places than are copied at a time.
        problem(1, 2, [2, 3], &[(45, w), (37, w)]),
        transposed(2, 2, [2, 3], &[(5, window(3, 2, 1, (1, 0)), 1)]),
    ] {
        let (x, w) = (random(p.input_len(), 1), random(p.weight_len(), 2));
        let expected = conv(&p, &x, &w);
        let wide = |v: &[f32]| -> Vec<f64> { v.iter().map(|&v| f64::from(v)).collect() };
        let mut y = vec![0.0f64; p.output_len()];
        conv_any(Isa::best(), &p, &wide(&x), &wide(&w), None, &mut y, &Par::serial()).unwrap();
        assert!(y.iter().zip(&expected).all(|(y, e)| (y - e).abs() < 1e-12));
        let mut threaded = vec![f64::NAN; p.output_len()];
        Pool::new(3).enter(|par| {
            conv_any(Isa::best(), &p, &wide(&x), &wide(&w), None, &mut threaded, par).unwrap();
        });
        assert_eq!(y, threaded);
    }
}

fn any_dim() -> impl Strategy<Value = Dim> {
    (1..12usize, 1..5usize, 1..4usize, 1..4usize, 0..5usize, 0..5usize).prop_map(
        |(size, kernel, stride, dilation, before, after)| {
            let span = dilation * (kernel - 1) + 1;
            let size = size.max(span.saturating_sub(before + after));
            (size, window(kernel, stride, dilation, (before, after)))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_problem(
        batch in 1..3usize,
        groups in 1..4usize,
        channels in prop::array::uniform2(1..20usize),
        dims in prop::collection::vec(any_dim(), 1..4),
        order in prop::option::of(prop::sample::select(vec![
            ResidualOrder::BeforeActivation,
            ResidualOrder::AfterActivation,
        ])),
    ) {
        let clamp = Activation::Clamp { lo: -0.25, hi: f64::INFINITY };
        let post_ops = PostOps { activation: Some(clamp), residual: order, factors: false };
        prop_assert!(!check(problem(batch, groups, channels, &dims), post_ops).is_empty());
    }
}

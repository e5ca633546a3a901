//! Convolutions against the reference.

use plutino_convolution::conv::*;
use plutino_cpu::Par;
use plutino_cpu::activation::Activation;
use plutino_products::gemm::{Bias, Epilogue, Summand, Target};
use plutino_reference::conv::{conv, conv_transpose};
use plutino_reference::gemm::gamma;
use plutino_reference::testkit::{LARGE, assert_close, on_every_machine, random};
use proptest::prelude::*;

fn window(kernel: usize, stride: usize, dilation: usize, padding: (usize, usize)) -> Window {
    Window { kernel, stride, dilation, padding, mode: PadMode::Zeros }
}

/// Batch, groups, channels of a group in and out.
type Channels = (usize, usize, usize, usize);

fn geometry((batch, groups, cin, cout): Channels, axes: &[(usize, Window)]) -> ConvGeometry {
    let axes: Vec<Axis> = axes.iter().map(|&(n, w)| Axis::new(n, w).unwrap()).collect();
    ConvGeometry::new(batch, groups, groups * cin, groups * cout, &axes).unwrap()
}

/// Plans and runs the convolution on every machine and compares.
fn check(g: &ConvGeometry) {
    let (input, weights) = (random(g.input_len(), 1), random(g.weight_len(), 2));
    let bias = random(g.out_channels(), 3);
    let other = random(g.output_len(), 4);
    let abs = |x: &[f32]| -> Vec<f32> { x.iter().map(|v| v.abs()).collect() };
    let scale = conv(g, &abs(&input), &abs(&weights));
    let expected: Vec<f64> = conv(g, &input, &weights)
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let bias = bias[i / g.out_plane() % g.out_channels()];
            (x + f64::from(bias) + f64::from(other[i])).max(-0.25)
        })
        .collect();
    let terms = g.group_in() * g.taps() + 2;
    let epilogue = Epilogue {
        bias: Bias::Rows(&bias),
        summand: Summand::Other(&other),
        activation: Some(Activation::Clamp { lo: -0.25, hi: f32::INFINITY }),
    };
    on_every_machine(
        |isa, par| {
            let conv = Conv::new(Target::this(isa), par.threads(), *g);
            let packed = conv.pack(&weights, par).unwrap();
            let mut output = vec![f32::NAN; g.output_len()];
            let mut scratch = vec![f32::NAN; conv.scratch()];
            conv.run(par, &packed, &input, &epilogue, &mut output, &mut scratch).unwrap();
            output
        },
        |found| assert_close(found, &expected, |i| gamma(terms, scale[i] + 2.0)),
    );
}

/// As [`check`], for the transposed convolution and for other dtypes.
fn check_transposed(g: &ConvGeometry) {
    let (input, weights) = (random(g.output_len(), 1), random(g.weight_len(), 2));
    let bias = random(g.in_channels(), 3);
    let abs = |x: &[f32]| -> Vec<f32> { x.iter().map(|v| v.abs()).collect() };
    let scale = conv_transpose(g, &abs(&input), &abs(&weights));
    let sums = conv_transpose(g, &input, &weights);
    let expected: Vec<f64> = (0..sums.len())
        .map(|i| (sums[i] + f64::from(bias[i / g.in_plane() % g.in_channels()])).max(0.0))
        .collect();
    let terms = g.group_out() * g.taps() + 1;
    on_every_machine(
        |isa, par| {
            let conv = ConvTranspose::new(Target::this(isa), par.threads(), *g);
            let packed = conv.pack(&weights, par).unwrap();
            let mut output = vec![f32::NAN; g.input_len()];
            let mut scratch = vec![f32::NAN; conv.scratch()];
            let finish = (Some(&bias[..]), Some(Activation::Relu));
            conv.run(par, &packed, &input, finish, &mut output, &mut scratch).unwrap();
            output
        },
        |found| assert_close(found, &expected, |i| gamma(terms, scale[i] + 1.0)),
    );
    let mut output = vec![0.0; g.input_len()];
    conv_transpose_any(g, &input, &weights, Some(&bias), &mut output, &Par::serial()).unwrap();
    output.iter_mut().for_each(|y| *y = y.max(0.0));
    assert_close(&output, &expected, |i| gamma(1, scale[i] + 1.0));
}

#[test]
fn a_large_bias_takes_no_digits_of_the_sum() {
    let g = geometry((2, 1, 40, 5), &[(7, window(3, 1, 1, (0, 0))), (9, window(2, 1, 1, (0, 0)))]);
    let (x, w, bias) = (vec![1.0; g.input_len()], vec![1.0; g.weight_len()], [LARGE; 5]);
    let epilogue = Epilogue { bias: Bias::Rows(&bias), ..Epilogue::default() };
    on_every_machine(
        |isa, par| {
            let conv = Conv::new(Target::this(isa), par.threads(), g);
            let packed = conv.pack(&w, par).unwrap();
            let (mut y, mut scratch) = (vec![0.0; g.output_len()], vec![0.0; conv.scratch()]);
            conv.run(par, &packed, &x, &epilogue, &mut y, &mut scratch).unwrap();
            y
        },
        |y| assert!(y.iter().all(|&y| y == LARGE + 240.0)),
    );
    // Transposed, each output sees one tap of each channel.
    let axis = Axis::transposed(6, window(2, 2, 1, (0, 0)), 0).unwrap();
    let g = ConvGeometry::new(1, 1, 3, 40, &[axis, axis]).unwrap();
    let (x, w, bias) = (vec![1.0; g.output_len()], vec![1.0; g.weight_len()], [LARGE; 3]);
    on_every_machine(
        |isa, par| {
            let conv = ConvTranspose::new(Target::this(isa), par.threads(), g);
            let packed = conv.pack(&w, par).unwrap();
            let (mut y, mut scratch) = (vec![0.0; g.input_len()], vec![0.0; conv.scratch()]);
            conv.run(par, &packed, &x, (Some(&bias), None), &mut y, &mut scratch).unwrap();
            y
        },
        |y| assert!(y.iter().all(|&y| y == LARGE + 40.0)),
    );
}

#[test]
fn any_dtype() {
    let w = Window { mode: PadMode::Replicate, ..window(3, 2, 1, (1, 2)) };
    let g = geometry((2, 2, 2, 3), &[(5, w), (6, w)]);
    let (x, w) = (random(g.input_len(), 1), random(g.weight_len(), 2));
    let expected = conv(&g, &x, &w);
    let wide = |v: &[f32]| -> Vec<f64> { v.iter().map(|&v| f64::from(v)).collect() };
    let mut y = vec![0.0f64; g.output_len()];
    conv_any(&g, &wide(&x), &wide(&w), None, &mut y, &Par::serial()).unwrap();
    assert!(y.iter().zip(&expected).all(|(y, e)| (y - e).abs() < 1e-12));
}

#[test]
fn transposed() {
    let axis = |n, w, extra| Axis::transposed(n, w, extra).unwrap();
    let g = |b, groups, cin: usize, cout: usize, axes: &[Axis]| {
        ConvGeometry::new(b, groups, groups * cin, groups * cout, axes).unwrap()
    };
    let w = window(3, 2, 1, (1, 1));
    check_transposed(&g(2, 1, 5, 4, &[axis(7, w, 1), axis(9, w, 0)]));
    check_transposed(&g(1, 3, 2, 3, &[axis(20, window(4, 3, 2, (2, 2)), 2)]));
    let (a, b) = (window(2, 2, 1, (0, 0)), window(3, 1, 2, (2, 1)));
    check_transposed(&g(1, 2, 1, 2, &[axis(3, w, 1), axis(4, a, 0), axis(5, b, 1)]));
    assert!(matches!(Axis::transposed(3, a, 2), Err(ConvError::OutputPadding { .. })));
    assert!(matches!(
        Axis::transposed(1, window(2, 1, 1, (1, 1)), 0),
        Err(ConvError::NothingLeft { .. })
    ));
    assert!(Axis::transposed(0, a, 0).is_err());
}

#[test]
fn two_dimensions() {
    for w in [
        window(3, 1, 1, (1, 1)),
        window(3, 2, 1, (1, 1)),
        window(7, 2, 1, (3, 3)),
        window(1, 2, 1, (0, 0)),
        window(3, 1, 2, (2, 2)),
        window(2, 1, 1, (0, 1)),
    ] {
        for size in [7, 14, 19] {
            check(&geometry((1, 1, 5, 9), &[(size, w), (size, w)]));
            check(&geometry((3, 2, 3, 2), &[(size, w), (size + 1, w)]));
        }
    }
}

#[test]
fn pointwise() {
    let one = Window::default();
    check(&geometry((2, 1, 7, 13), &[(9, one), (11, one)]));
    check(&geometry((2, 3, 2, 4), &[(50, one)]));
}

#[test]
fn one_and_three_dimensions() {
    check(&geometry((2, 1, 4, 6), &[(33, window(5, 2, 3, (4, 1)))]));
    let axes =
        [(5, window(3, 2, 1, (1, 1))), (6, window(2, 1, 1, (0, 1))), (7, window(3, 1, 2, (2, 2)))];
    check(&geometry((1, 2, 2, 3), &axes));
}

#[test]
fn padding_larger_than_the_image() {
    check(&geometry((1, 1, 2, 2), &[(1, window(3, 2, 1, (5, 4))), (2, window(2, 3, 4, (6, 7)))]));
}

#[test]
fn padding_modes() {
    for mode in [PadMode::Reflect, PadMode::Replicate, PadMode::Circular] {
        for (stride, dilation) in [(1, 1), (2, 1), (3, 2)] {
            let w = Window { mode, ..window(3, stride, dilation, (2, 3)) };
            check(&geometry((2, 1, 2, 3), &[(9, w), (11, w)]));
            check(&geometry((1, 1, 2, 3), &[(4, w), (5, w), (6, w)]));
        }
        let too_much = Window { mode, ..window(3, 1, 1, (1, 4)) };
        let found = Axis::new(3, too_much);
        assert_eq!(found.is_ok(), mode == PadMode::Replicate, "{mode:?}");
    }
}

#[test]
fn a_batch_too_large_to_be_laid_out_at_once() {
    let w = window(3, 1, 1, (1, 1));
    check(&geometry((5, 1, 3, 2), &[(200, w), (210, w)]));
}

#[test]
fn empty_batch() {
    let axis = Axis::new(5, window(3, 1, 1, (1, 1))).unwrap();
    check(&ConvGeometry::new(0, 1, 2, 2, &[axis]).unwrap());
}

#[test]
fn sizes_that_make_no_convolution() {
    let one = Window::default();
    assert!(matches!(Axis::new(5, Window { stride: 0, ..one }), Err(ConvError::Zero { .. })));
    assert!(matches!(Axis::new(5, Window { kernel: 6, ..one }), Err(ConvError::TooSmall { .. })));
    let huge = Window { kernel: usize::MAX, dilation: 3, ..one };
    assert_eq!(Axis::new(5, huge), Err(ConvError::Overflow));
    let axis = Axis::new(1 << 40, one).unwrap();
    assert_eq!(ConvGeometry::new(1, 1, 1, 1, &[axis, axis]), Err(ConvError::Overflow));
    let axis = Axis::new(5, one).unwrap();
    for groups in [0, 2] {
        let found = ConvGeometry::new(1, groups, 3, 4, &[axis]);
        assert_eq!(found, Err(ConvError::Groups { channels: 3, groups }));
    }
    assert_eq!(ConvGeometry::new(1, 1, 3, 4, &[]), Err(ConvError::Dims(0)));
}

#[test]
fn memory_of_the_wrong_size_is_an_error() {
    let g = geometry((1, 1, 2, 3), &[(5, window(3, 1, 1, (1, 1)))]);
    let (conv, par) = (Conv::new(Target::default(), 1, g), Par::serial());
    assert!(conv.pack(&[0.0; 17], &par).is_err());
    let weights = conv.pack(&[0.0; 18], &par).unwrap();
    let run = |input: usize, output: usize, scratch: usize| {
        let (input, mut output) = (vec![0.0; input], vec![0.0; output]);
        let mut scratch = vec![0.0; scratch];
        conv.run(&par, &weights, &input, &Epilogue::default(), &mut output, &mut scratch)
    };
    let scratch = conv.scratch();
    assert!(run(10, 15, scratch).is_ok());
    assert!(run(9, 15, scratch).is_err());
    assert!(run(10, 16, scratch).is_err());
    assert!(run(10, 15, scratch - 1).is_err());
}

fn any_axis() -> impl Strategy<Value = (usize, Window)> {
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
    fn any_geometry(
        channels in (1..3usize, 1..4usize, 1..4usize, 1..8usize),
        axes in prop::collection::vec(any_axis(), 1..4),
    ) {
        check(&geometry(channels, &axes));
    }
}

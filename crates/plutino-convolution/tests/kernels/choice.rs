//! Which algorithm is chosen, and what is refused.

use crate::harness::*;
use plutino_convolution::*;
use plutino_cpu::{Isa, Par, Pool};
use plutino_tensor::AlignedBuf;

/// The algorithm for a square image with a window that keeps its size (but for strides).
fn chosen(channels: [usize; 2], size: usize, kernel: usize, stride: usize) -> &'static str {
    let w = window(kernel, stride, 1, (kernel / 2, kernel / 2));
    let layouts = &ConvLayout::ALL;
    let problem = problem(1, 1, channels, &[(size, w), (size, w)]);
    let conv = choose(&Request { layouts, ..Request::plain(problem) }).unwrap();
    conv.algorithm().name
}

#[test]
fn winograd_pays_where_there_are_tiles_enough() {
    for (channels, size) in [(64, 56), (128, 28), (64, 256)] {
        assert_eq!(chosen([channels; 2], size, 3, 1), "winograd4x4_3x3");
    }
    assert_eq!(chosen([256; 2], 80, 3, 2), "winograd4x4_3x3s2");
    // More weights to read than multiplications saved.
    assert_eq!(chosen([512; 2], 2, 3, 1), "direct");
    assert_eq!(chosen([64; 2], 56, 3, 3), "direct");
}

#[test]
fn the_form_of_the_problem_decides() {
    assert_eq!(chosen([64, 256], 56, 1, 1), "pointwise");
    assert_eq!(chosen([512, 1024], 28, 1, 2), "pointwise");
    assert_eq!(chosen([64, 32], 1, 1, 1), "single_pixel");
    assert_eq!(chosen([3, 32], 224, 3, 2), "first_layer");
    assert_eq!(chosen([3, 64], 224, 7, 2), "winograd4x4_4x4_plain");
}

/// What the layout pass is told, planning finds again; threads decide nothing.
#[test]
fn asked_twice_the_answer_is_the_same() {
    let windows = [window(3, 1, 1, (1, 1)), window(1, 1, 1, (0, 0)), window(5, 2, 1, (2, 2))];
    for w in windows {
        for (groups, channels) in [(1, [3, 40]), (1, [64, 64]), (2, [3, 5]), (24, [1, 1])] {
            for isa in Isa::available() {
                for save_memory in [false, true] {
                    let problem = problem(1, groups, channels, &[(20, w), (20, w)]);
                    let layouts = &ConvLayout::ALL;
                    let plain = Request::plain(problem);
                    let all = Request { isa, layouts, save_memory, ..plain };
                    let first = choose(&all).unwrap();
                    let again = Request { layouts: &[first.layout()], threads: 3, ..all };
                    assert_eq!(choose(&again).unwrap().name(), first.name());
                }
            }
        }
    }
}

#[test]
fn memory_is_saved() {
    let w = window(3, 1, 1, (1, 1));
    let problem = problem(1, 1, [64, 64], &[(56, w), (56, w)]);
    let layouts = &ConvLayout::ALL;
    let request = Request { save_memory: true, layouts, ..Request::plain(problem) };
    assert_eq!(choose(&request).unwrap().algorithm().name, "direct");
}

#[test]
fn what_nothing_computes_is_refused() {
    let w = window(3, 1, 1, (1, 1));
    let problem = problem(1, 2, [3, 3], &[(5, w)]); // groups that cut blocks
    let blocks = Request { layouts: &[ConvLayout::Blocked], ..Request::plain(problem) };
    assert!(matches!(choose(&blocks), Err(ConvError::NoAlgorithm(_))));
}

#[test]
fn sizes_that_make_no_convolution() {
    let one = Window::default();
    assert!(matches!(Axis::new(5, Window { stride: 0, ..one }), Err(ConvError::Zero { .. })));
    assert!(matches!(Axis::new(5, Window { kernel: 6, ..one }), Err(ConvError::TooSmall { .. })));
    let huge = Window { kernel: usize::MAX, dilation: 3, ..one };
    assert_eq!(Axis::new(5, huge), Err(ConvError::Overflow));
    let axis = Axis::new(1 << 40, one).unwrap();
    assert_eq!(ConvProblem::new(1, 1, 1, 1, &[axis, axis]), Err(ConvError::Overflow));
    let axis = Axis::new(5, one).unwrap();
    for groups in [0, 2] {
        let found = ConvProblem::new(1, groups, 3, 4, &[axis]);
        assert_eq!(found, Err(ConvError::Groups { channels: 3, groups }));
    }
    assert_eq!(ConvProblem::new(1, 1, 3, 4, &[]), Err(ConvError::Dims(0)));
    let transposed = Axis::transposed(5, one, 0).unwrap();
    assert_eq!(ConvProblem::new(1, 1, 3, 4, &[axis, transposed]), Err(ConvError::Mixed));
    let two = window(2, 2, 1, (0, 0));
    assert!(matches!(Axis::transposed(3, two, 2), Err(ConvError::OutputPadding { .. })));
    let cut = window(2, 1, 1, (1, 1));
    assert!(matches!(Axis::transposed(1, cut, 0), Err(ConvError::NothingLeft { .. })));
    assert!(Axis::transposed(0, two, 0).is_err());
}

#[test]
fn an_empty_batch_is_nothing_to_do() {
    let w = window(3, 1, 1, (1, 1));
    for (channels, layouts) in [([2, 2], &[ConvLayout::Plain][..]), ([32, 32], &ConvLayout::ALL)] {
        let problem = problem(0, 1, channels, &[(5, w), (5, w)]);
        let conv = choose(&Request { layouts, ..Request::plain(problem) }).unwrap();
        let t = Tensors::random(&problem, PostOps::default());
        assert!(run(&conv, Isa::best(), &t, &Par::serial()).is_empty());
    }
}

/// Whatever a stranger passes in, the answer is an error that says what is wrong.
#[test]
fn slices_of_the_wrong_size_are_errors() {
    let w = window(3, 1, 1, (1, 1));
    for algorithm in ["im2col", "direct", "winograd2x2_3x3"] {
        let p = problem(1, 1, [16, 32], &[(5, w), (6, w)]);
        let conv = bound(algorithm, p, PostOps::default(), Isa::PORTABLE, 1).unwrap();
        let par = Par::serial();
        assert!(matches!(conv.pack(&[0.0; 17][..], &par), Err(ConvError::Length { .. })));
        assert!(matches!(conv.bias(Some(&[0.0; 3])), Err(ConvError::Length { .. })));
        let weights = conv.pack(&vec![0.0; p.weight_len()][..], &par).unwrap();
        let bias = conv.bias(None).unwrap();
        let attempt = |weights: &ConvWeights,
                       [x, bias_more, residual, y, workspace]: [isize; 5],
                       offset: usize,
                       par: &Par| {
            let len = |n: usize, more: isize| n.saturating_add_signed(more);
            let mut bias = bias.to_vec();
            bias.resize(len(bias.len(), bias_more), 0.0);
            let mut buf = AlignedBuf::zeroed(conv.workspace() + 128).unwrap();
            let end = offset + len(conv.workspace(), workspace);
            let residual = vec![0.0; residual as usize];
            conv.run(
                ConvArgs {
                    x: &vec![0.0; len(conv.input_len(), x)],
                    weights,
                    bias: &bias,
                    factors: None,
                    residual: Some(&residual[..]).filter(|r| !r.is_empty()),
                    y: &mut vec![0.0; len(conv.output_len(), y)],
                    workspace: &mut buf.as_mut_bytes()[offset..end],
                },
                par,
            )
        };
        assert_eq!(attempt(&weights, [0; 5], 0, &par), Ok(()));
        for (at, more) in [(0, -1), (0, 1), (1, 1), (2, 1), (3, -1), (3, 1), (4, -1)] {
            let mut lens = [0; 5];
            lens[at] = more;
            let found = attempt(&weights, lens, 0, &par);
            assert!(matches!(found, Err(ConvError::Length { .. })), "{at} {more}: {found:?}");
        }
        assert_eq!(attempt(&weights, [0; 5], 4, &par), Err(ConvError::Misaligned));
        let pool = Pool::new(2);
        let found = pool.enter(|par| attempt(&weights, [0; 5], 0, par));
        assert_eq!(found, Err(ConvError::Threads { planned: 1, found: 2 }));
        // Weights of another layer, and of another algorithm.
        let other = problem(1, 1, [16, 16], &[(5, w), (6, w)]);
        let conv = bound(algorithm, other, PostOps::default(), Isa::PORTABLE, 1).unwrap();
        let others = conv.pack(&vec![0.0; other.weight_len()][..], &par).unwrap();
        let found = attempt(&others, [0; 5], 0, &par);
        assert!(matches!(found, Err(ConvError::Weights { .. })), "{found:?}");
        let name = if algorithm == "direct" { "winograd4x4_3x3" } else { "direct" };
        let conv = bound(name, p, PostOps::default(), Isa::PORTABLE, 1).unwrap();
        let others = conv.pack(&vec![0.0; p.weight_len()][..], &par).unwrap();
        let found = attempt(&others, [0; 5], 0, &par);
        assert!(matches!(found, Err(ConvError::Packed { .. })), "{found:?}");
    }
}

#[test]
fn single_pixels_are_rows() {
    for channels in [[16, 64], [576, 144], [960, 1280], [2048, 1024]] {
        assert_eq!(chosen(channels, 1, 1, 1), "single_pixel", "{channels:?}");
    }
}

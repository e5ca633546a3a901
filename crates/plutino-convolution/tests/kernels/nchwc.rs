//! The blocked kernels against plain loops in f64, over instruction sets and threads.

use plutino_convolution::nchwc::*;
use plutino_cpu::activation::Activation;
use plutino_cpu::{Isa, Par};
use plutino_reference::testkit::{LARGE, assert_close, on_every_machine, random};

/// Sizes of one convolution.
#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    groups: usize,
    /// Input and output channels of a group.
    channels: [usize; 2],
    input: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    pad: [usize; 2],
}

impl Case {
    fn window(&self) -> Window {
        let out = |i: usize| {
            let span = (self.kernel[i] - 1) * self.dilation[i] + 1;
            (self.input[i] + 2 * self.pad[i] - span) / self.stride[i] + 1
        };
        Window::new(self.input, [out(0), out(1)], self.kernel, self.stride, self.dilation, self.pad)
            .unwrap()
    }
}

/// Sum and sum of magnitudes of each output, in f64, plain layout.
fn reference(c: &Case, x: &[f32], w: &[f32], bias: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let win = c.window();
    let [inp, out] = c.channels;
    let (mut sums, mut sizes) = (Vec::new(), Vec::new());
    for n in 0..c.batch {
        for o in 0..c.groups * out {
            for oy in 0..win.output[0] {
                for ox in 0..win.output[1] {
                    let (mut sum, mut size) = (f64::from(bias[o]), f64::from(bias[o].abs()));
                    for i in 0..inp {
                        for ky in 0..c.kernel[0] {
                            for kx in 0..c.kernel[1] {
                                let y =
                                    (oy * c.stride[0] + ky * c.dilation[0]).wrapping_sub(c.pad[0]);
                                let xx =
                                    (ox * c.stride[1] + kx * c.dilation[1]).wrapping_sub(c.pad[1]);
                                if y < c.input[0] && xx < c.input[1] {
                                    let ch = (o / out * inp + i) + n * c.groups * inp;
                                    let a = x[(ch * c.input[0] + y) * c.input[1] + xx];
                                    let b =
                                        w[((o * inp + i) * c.kernel[0] + ky) * c.kernel[1] + kx];
                                    sum += f64::from(a) * f64::from(b);
                                    size += (f64::from(a) * f64::from(b)).abs();
                                }
                            }
                        }
                    }
                    sums.push(sum);
                    sizes.push(size);
                }
            }
        }
    }
    (sums, sizes)
}

/// Runs `kernel` on blocked copies of plain tensors; the result is plain.
fn through_blocks(
    x: &[f32],
    in_shape: [usize; 2],
    out_shape: [usize; 2],
    batch: usize,
    isa: Isa,
    par: &Par,
    kernel: impl FnOnce(&[f32], &mut [f32]),
) -> Vec<f32> {
    let b = isa.lanes();
    let len = |[c, p]: [usize; 2]| batch * c.div_ceil(b) * b * p;
    let mut blocked = vec![f32::NAN; len(in_shape)];
    to_blocked(isa, x, &mut blocked, in_shape[0], in_shape[1], b, par);
    // Nobody may read the surplus lanes of the last block.
    let blocks = in_shape[0].div_ceil(b);
    for (i, v) in blocked.iter_mut().enumerate() {
        if i / (in_shape[1] * b) % blocks * b + i % b >= in_shape[0] {
            *v = f32::NAN;
        }
    }
    let mut y = vec![f32::NAN; len(out_shape)];
    kernel(&blocked, &mut y);
    let mut plain = vec![0.0; batch * out_shape[0] * out_shape[1]];
    from_blocked(isa, &y, &mut plain, out_shape[0], out_shape[1], b, par);
    plain
}

fn check_direct(c: Case, input: ConvInput) {
    let [inp, out] = c.channels;
    let win = c.window();
    let x = random(c.batch * c.groups * inp * win.input_pixels(), 1);
    let w = random(c.groups * out * inp * win.taps(), 2);
    let bias = random(c.groups * out, 3);
    let (sums, sizes) = reference(&c, &x, &w, &bias);
    // Rounding of a sum of n products, with one more for the bias: n + 1 steps of at most eps/2
    // each.
    let eps = f64::from(f32::EPSILON) * (inp * win.taps() + 2) as f64 / 2.0;
    on_every_machine(
        |isa, par| {
            let b = isa.lanes();
            let weights =
                DirectWeights::pack(&w, c.groups, [out, inp], win.taps(), b, input).unwrap();
            let conv = DirectConv::new(
                isa,
                win.clone(),
                input,
                c.groups * inp,
                c.groups * out,
                c.batch,
                Some(Activation::Relu),
                par.threads(),
            );
            let bias = DirectConv::pad_bias(Some(&bias), c.groups, out, b);
            let mut scratch = vec![0; conv.scratch(par.threads())];
            let shapes = ([c.groups * inp, win.input_pixels()], [c.groups * out, win.pixels()]);
            through_blocks(&x, shapes.0, shapes.1, c.batch, isa, par, |blocked, y| {
                let source = if input == ConvInput::Plain { &x } else { blocked };
                conv.run(source, &weights, &bias, None, y, &mut scratch, par);
            })
        },
        |found| {
            let relu: Vec<f64> = sums.iter().map(|s| s.max(0.0)).collect();
            assert_close(found, &relu, |i| eps * sizes[i]);
        },
    );
}

const BASE: Case = Case {
    batch: 1,
    groups: 1,
    channels: [16, 32],
    input: [9, 7],
    kernel: [3, 3],
    stride: [1, 1],
    dilation: [1, 1],
    pad: [1, 1],
};

#[test]
fn direct_convolution() {
    let pointwise = Case { kernel: [1, 1], pad: [0, 0], ..BASE };
    for c in [
        BASE,
        Case { batch: 2, stride: [2, 2], ..BASE },
        Case { channels: [5, 19], ..BASE },
        Case { channels: [33, 8], dilation: [2, 3], pad: [2, 3], ..BASE },
        Case { kernel: [5, 2], pad: [3, 0], stride: [1, 2], ..BASE },
        pointwise,
        Case { channels: [40, 65], input: [7, 7], batch: 3, ..pointwise },
        Case { stride: [2, 2], ..pointwise },
        Case { channels: [37, 40], input: [31, 40], stride: [2, 3], batch: 2, ..pointwise },
        Case { groups: 2, stride: [1, 2], ..pointwise },
        Case { input: [1, 1], channels: [64, 100], ..pointwise },
        Case { input: [40, 33], channels: [16, 16], ..BASE },
        // Each thread has pixels of its own, and these all channels, in several tasks.
        Case { input: [20, 21], channels: [40, 200], ..pointwise },
    ] {
        check_direct(c, ConvInput::Blocked);
    }
}

#[test]
fn a_large_bias_takes_no_digits_of_the_sum() {
    let inside = Case { pad: [0, 0], ..BASE };
    let pointwise = Case { kernel: [1, 1], ..inside };
    for (c, input) in [
        (inside, ConvInput::Blocked),
        (Case { channels: [70, 40], ..inside }, ConvInput::Blocked),
        (Case { channels: [300, 40], ..pointwise }, ConvInput::Blocked),
        (Case { channels: [300, 40], stride: [2, 2], ..pointwise }, ConvInput::Blocked),
        (Case { channels: [4, 24], input: [9, 60], ..inside }, ConvInput::Plain),
        (Case { channels: [4, 24], input: [20, 20], kernel: [8, 8], ..inside }, ConvInput::Plain),
    ] {
        let ([inp, out], win) = (c.channels, c.window());
        let (x, w) = (vec![1.0; inp * win.input_pixels()], vec![1.0; out * inp * win.taps()]);
        on_every_machine(
            |isa, par| {
                let (b, threads) = (isa.lanes(), par.threads());
                let weights = DirectWeights::pack(&w, 1, [out, inp], win.taps(), b, input).unwrap();
                let conv = DirectConv::new(isa, win.clone(), input, inp, out, 1, None, threads);
                let bias = DirectConv::pad_bias(Some(&vec![LARGE; out]), 1, out, b);
                let mut scratch = vec![0; conv.scratch(threads)];
                let shapes = ([inp, win.input_pixels()], [out, win.pixels()]);
                through_blocks(&x, shapes.0, shapes.1, 1, isa, par, |blocked, y| {
                    let source = if input == ConvInput::Plain { &x } else { blocked };
                    conv.run(source, &weights, &bias, None, y, &mut scratch, par);
                })
            },
            |found| {
                let expected = LARGE + (inp * win.taps()) as f32;
                assert!(found.iter().all(|&y| y == expected), "{inp} channels, {input:?}");
            },
        );
    }
}

#[test]
fn a_large_bias_takes_no_digits_of_depthwise_sums() {
    let inside = Case { groups: 19, channels: [1, 1], input: [14, 20], pad: [0, 0], ..BASE };
    for c in [
        inside,
        Case { kernel: [4, 4], ..inside },
        Case { kernel: [5, 5], ..inside },
        Case { kernel: [5, 5], stride: [2, 2], ..inside },
        Case { kernel: [7, 7], ..inside },
    ] {
        let win = c.window();
        let x = vec![1.0; c.groups * win.input_pixels()];
        let taps = win.taps();
        let w: Vec<f32> = (0..c.groups * taps).map(|i| (i % taps % 2) as f32).collect();
        // Every second tap is one, an even number in all.
        let expected = LARGE + (taps / 2) as f32;
        on_every_machine(
            |isa, par| {
                let bias = vec![LARGE; c.groups];
                let weights = DepthwiseWeights::pack(&w, Some(&bias), taps, isa.lanes()).unwrap();
                let conv = DepthwiseConv::new(isa, win.clone(), None);
                let shapes = ([c.groups, win.input_pixels()], [c.groups, win.pixels()]);
                through_blocks(&x, shapes.0, shapes.1, 1, isa, par, |blocked, y| {
                    conv.run(blocked, &weights, None, y, par);
                })
            },
            |found| assert!(found.iter().all(|&y| y == expected), "{:?}", c.kernel),
        );
    }
}

/// Squeeze and excite: each channel of each image times a factor, and a residual of its own.
#[test]
fn direct_convolution_of_scaled_channels() {
    for (channels, input, batch) in
        [([16, 32], [9, 7], 1), ([37, 19], [5, 5], 3), ([8, 70], [31, 40], 2)]
    {
        let c = Case { channels, input, batch, kernel: [1, 1], pad: [0, 0], ..BASE };
        let ([inp, out], win) = (channels, c.window());
        let x = random(batch * inp * win.pixels(), 1);
        let (w, bias) = (random(inp * out, 2), random(out, 3));
        let factors = random(batch * inp, 4);
        let residual = random(batch * out * win.pixels(), 5);
        let scaled: Vec<f32> =
            x.iter().enumerate().map(|(i, x)| x * factors[i / win.pixels()]).collect();
        let (mut sums, sizes) = reference(&c, &scaled, &w, &bias);
        for (sum, r) in sums.iter_mut().zip(&residual) {
            *sum += f64::from(*r);
        }
        // As in `check_direct`, with one rounding more of each product on either side and one of
        // the residual.
        let eps = f64::from(f32::EPSILON) * (inp + 5) as f64 / 2.0;
        on_every_machine(
            |isa, par| {
                let b = isa.lanes();
                let blocked = ConvInput::Blocked;
                let weights = DirectWeights::pack(&w, 1, [out, inp], 1, b, blocked).unwrap();
                let (window, threads) = (win.clone(), par.threads());
                let conv = DirectConv::new(isa, window, blocked, inp, out, 1, None, threads);
                let bias = DirectConv::pad_bias(Some(&bias), 1, out, b);
                let mut scratch = vec![0; conv.scaled_scratch(threads, &weights)];
                let blocked = |x: &[f32], channels: usize, pixels: usize| {
                    let len = batch * channels.next_multiple_of(b) * pixels;
                    let mut y = vec![f32::NAN; len];
                    to_blocked(isa, x, &mut y, channels, pixels, b, par);
                    y
                };
                let factors = blocked(&factors, inp, 1);
                let residual = blocked(&residual, out, win.pixels());
                let shapes = ([inp, win.pixels()], [out, win.pixels()]);
                through_blocks(&x, shapes.0, shapes.1, batch, isa, par, |x, y| {
                    let residual = Some(Residual { data: &residual, last: false });
                    conv.run_scaled(x, &factors, &weights, &bias, residual, y, &mut scratch, par);
                })
            },
            |found| assert_close(found, &sums, |i| eps * (sizes[i] + f64::from(residual[i].abs()))),
        );
    }
}

#[test]
fn direct_convolution_of_plain_input() {
    let first = Case {
        channels: [3, 24],
        input: [17, 15],
        kernel: [7, 7],
        stride: [2, 2],
        pad: [3, 3],
        ..BASE
    };
    check_direct(first, ConvInput::Plain);
    check_direct(Case { channels: [1, 5], batch: 2, ..first }, ConvInput::Plain);
    // Rows of several tiles, and an odd last block.
    let long = Case { channels: [3, 40], input: [11, 61], ..first };
    check_direct(long, ConvInput::Plain);
    check_direct(Case { channels: [4, 16], stride: [1, 1], ..long }, ConvInput::Plain);
    check_direct(
        Case { input: [9, 90], kernel: [3, 2], stride: [2, 3], dilation: [1, 4], ..long },
        ConvInput::Plain,
    );
    // No padding: read where they lie. Rows of several tiles, and short ones, of which some are not
    // reached.
    let inside = Case { channels: [3, 24], kernel: [4, 3], stride: [4, 3], pad: [0, 0], ..BASE };
    for c in [
        Case { input: [13, 91], batch: 2, ..inside },
        Case { input: [11, 23], batch: 2, ..inside },
        Case { input: [9, 60], kernel: [1, 1], stride: [1, 2], ..inside },
        Case { input: [40, 33], kernel: [32, 16], stride: [8, 1], channels: [4, 40], ..inside },
    ] {
        assert!(c.window().is_inside());
        check_direct(c, ConvInput::Plain);
    }
    // Of several parts, which share rows.
    check_direct(Case { channels: [2, 5], batch: 2, input: [75, 61], ..BASE }, ConvInput::Plain);
}

/// A whole block and half of one, with what comes after the sums, against each block on its own.
#[test]
fn half_a_block_beside_a_whole_one() {
    let plain = Case { channels: [3, 24], input: [6, 67], stride: [2, 2], ..BASE };
    let pointwise =
        Case { channels: [16, 24], input: [5, 29], kernel: [1, 1], pad: [0, 0], ..BASE };
    for (c, input) in [(plain, ConvInput::Plain), (pointwise, ConvInput::Blocked)] {
        let win = c.window();
        let [inp, out] = c.channels;
        let x = random(inp * win.input_pixels(), 1);
        let w = random(out * inp * win.taps(), 2);
        let plane = win.pixels();
        let residual = random(out * plane, 3);
        let run = |isa: Isa, par: &Par, channels: std::ops::Range<usize>| {
            let b = isa.lanes();
            let (first, count) = (channels.start, channels.len());
            let w = &w[first * inp * win.taps()..channels.end * inp * win.taps()];
            let weights = DirectWeights::pack(w, 1, [count, inp], win.taps(), b, input).unwrap();
            let silu = Some(Activation::Silu);
            let threads = par.threads();
            let conv = DirectConv::new(isa, win.clone(), input, inp, count, 1, silu, threads);
            let bias = DirectConv::pad_bias(Some(&[0.5; 24][..count]), 1, count, b);
            let mut scratch = vec![0; conv.scratch(threads)];
            let mut blocked = vec![f32::NAN; count.next_multiple_of(b) * plane];
            let part = &residual[first * plane..channels.end * plane];
            to_blocked(isa, part, &mut blocked, count, plane, b, par);
            let after = Residual { data: &blocked, last: true };
            let shapes = ([inp, win.input_pixels()], [count, plane]);
            through_blocks(&x, shapes.0, shapes.1, 1, isa, par, |in_blocks, y| {
                let x = if input == ConvInput::Plain { &x } else { in_blocks };
                conv.run(x, &weights, &bias, Some(after), y, &mut scratch, par);
            })
        };
        on_every_machine(
            |isa, par| {
                let found = run(isa, par, 0..24);
                let parts = [run(isa, par, 0..16), run(isa, par, 16..24)].concat();
                assert_eq!(found, parts, "{isa}");
                found
            },
            |_| {},
        );
    }
}

#[test]
fn direct_convolution_with_groups() {
    // Whole blocks for every instruction set.
    check_direct(Case { groups: 3, channels: [16, 32], ..BASE }, ConvInput::Blocked);
    check_direct(Case { groups: 2, channels: [32, 16], batch: 2, ..BASE }, ConvInput::Blocked);
    assert!(DirectWeights::pack(&[0.0; 12], 2, [3, 2], 1, 8, ConvInput::Blocked).is_err());
}

#[test]
fn residual_and_activation_in_both_orders() {
    let win = Window::new([5, 5], [5, 5], [1, 1], [1, 1], [1, 1], [0, 0]).unwrap();
    for (activation, last) in [
        (Some(Activation::Relu), false),
        (Some(Activation::Relu), true),
        (Some(Activation::HardSwish), false),
        (Some(Activation::HardSwish), true),
        (None, true),
    ] {
        on_every_machine(
            |isa, par| {
                let b = isa.lanes();
                let residual: Vec<f32> = (0..25 * b).map(|i| [-100.0, 0.5, 1.0][i % 3]).collect();
                let residual = Some(Residual { data: &residual, last });
                // Every sum is -1 without the residual.
                let (x, minus) = (vec![1.0; 25 * b], -1.0 / b as f32);
                let mut direct = vec![0.0; 25 * b];
                let input = ConvInput::Blocked;
                let conv = DirectConv::new(isa, win.clone(), input, b, b, 1, activation, 1);
                let weights =
                    DirectWeights::pack(&vec![minus; b * b], 1, [b, b], 1, b, input).unwrap();
                let bias = DirectConv::pad_bias(None, 1, b, b);
                let mut scratch = vec![0; conv.scratch(par.threads())];
                conv.run(&x, &weights, &bias, residual, &mut direct, &mut scratch, par);
                let mut depthwise = vec![0.0; 25 * b];
                let conv = DepthwiseConv::new(isa, win.clone(), activation);
                let weights = DepthwiseWeights::pack(&vec![-1.0; b], None, 1, b).unwrap();
                conv.run(&x, &weights, residual, &mut depthwise, par);
                assert_eq!(direct, depthwise);
                direct[..12].to_vec()
            },
            |found| {
                let act = |v: f32| match activation {
                    None => v,
                    Some(Activation::Relu) => v.max(0.0),
                    Some(_) => v * (v + 3.0).clamp(0.0, 6.0) * (1.0 / 6.0),
                };
                for (i, &y) in found.iter().enumerate() {
                    let r = [-100.0, 0.5, 1.0][i % 3];
                    let expected = if last { act(-1.0) + r } else { act(r - 1.0) };
                    assert!((y - expected).abs() <= 1e-5, "{activation:?} {last}: {y} {expected}");
                }
            },
        );
    }
}

#[test]
fn depthwise_convolution() {
    for c in [
        BASE,
        Case { stride: [2, 2], ..BASE },
        Case { kernel: [5, 5], pad: [2, 2], input: [30, 29], batch: 2, ..BASE },
        Case { dilation: [2, 1], pad: [2, 0], ..BASE },
        Case { stride: [1, 3], input: [5, 40], ..BASE },
        Case { kernel: [7, 7], pad: [3, 3], input: [4, 3], ..BASE },
        Case { kernel: [5, 5], stride: [2, 2], pad: [2, 2], input: [7, 19], ..BASE },
        // Pairs of rows: the last row alone, rows that are all padding, a plane narrower than the
        // window.
        Case { input: [1, 9], ..BASE },
        Case { input: [14, 14], pad: [0, 1], ..BASE },
        Case { input: [3, 20], pad: [3, 2], ..BASE },
        Case { kernel: [5, 5], pad: [2, 2], input: [3, 2], ..BASE },
    ] {
        for channels in [8, 19] {
            let c = Case { groups: channels, channels: [1, 1], ..c };
            let win = c.window();
            let x = random(c.batch * channels * win.input_pixels(), 4);
            let w = random(channels * win.taps(), 5);
            let bias = random(channels, 6);
            let (sums, sizes) = reference(&c, &x, &w, &bias);
            let eps = f64::from(f32::EPSILON) * (win.taps() + 2) as f64 / 2.0;
            on_every_machine(
                |isa, par| {
                    let weights =
                        DepthwiseWeights::pack(&w, Some(&bias), win.taps(), isa.lanes()).unwrap();
                    let conv = DepthwiseConv::new(isa, win.clone(), None);
                    let shapes = ([channels, win.input_pixels()], [channels, win.pixels()]);
                    through_blocks(&x, shapes.0, shapes.1, c.batch, isa, par, |blocked, y| {
                        // The second time, the first result is added.
                        let mut first = vec![f32::NAN; y.len()];
                        conv.run(blocked, &weights, None, &mut first, par);
                        let residual = Some(Residual { data: &first, last: false });
                        conv.run(blocked, &weights, residual, y, par);
                    })
                },
                |found| {
                    let halves: Vec<f32> = found.iter().map(|y| y * 0.5).collect();
                    assert_close(&halves, &sums, |i| eps * sizes[i]);
                },
            );
        }
    }
}

/// A transposed convolution by its definition, in f64: sums, and sums of magnitudes.
fn transposed_reference(
    w: &TransposedWindow,
    [batch, inp, out]: [usize; 3],
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
) -> (Vec<f64>, Vec<f64>) {
    let ([ih, iw], [oh, ow], [kh, kw]) = (w.input, w.output, w.kernel);
    let start = |o: usize| f64::from(bias[o]);
    let plane = oh * ow;
    let first = |i: usize| start(i / plane % out);
    let mut sums: Vec<f64> = (0..batch * out * plane).map(first).collect();
    let mut sizes: Vec<f64> = sums.iter().map(|v| v.abs()).collect();
    for n in 0..batch {
        for (c, o) in (0..inp).flat_map(|c| (0..out).map(move |o| (c, o))) {
            for (iy, ix) in (0..ih).flat_map(|iy| (0..iw).map(move |ix| (iy, ix))) {
                for (ky, kx) in (0..kh).flat_map(|ky| (0..kw).map(move |kx| (ky, kx))) {
                    let y = (iy * w.stride[0] + ky).wrapping_sub(w.pad[0]);
                    let xx = (ix * w.stride[1] + kx).wrapping_sub(w.pad[1]);
                    if y < oh && xx < ow {
                        let product = f64::from(x[((n * inp + c) * ih + iy) * iw + ix])
                            * f64::from(weight[((c * out + o) * kh + ky) * kw + kx]);
                        let at = ((n * out + o) * oh + y) * ow + xx;
                        sums[at] += product;
                        sizes[at] += product.abs();
                    }
                }
            }
        }
    }
    (sums, sizes)
}

#[test]
fn transposed_convolution() {
    let case =
        |input: [usize; 2], kernel: [usize; 2], stride: [usize; 2], pad: [usize; 2], more| {
            let output =
                [0, 1].map(|a: usize| (input[a] - 1) * stride[a] + kernel[a] + more - 2 * pad[a]);
            TransposedWindow { input, output, kernel, stride, pad }
        };
    for (window, [batch, inp, out]) in [
        (case([13, 11], [2, 2], [2, 2], [0, 0], 0), [2, 19, 37]),
        (case([4, 5], [4, 4], [2, 2], [1, 1], 0), [1, 40, 16]),
        (case([9, 30], [3, 3], [2, 2], [1, 1], 1), [1, 16, 24]),
        (case([5, 6], [3, 5], [1, 3], [1, 2], 0), [2, 8, 16]),
        (case([3, 1], [4, 3], [4, 2], [0, 1], 1), [1, 5, 21]),
        (case([1, 1], [4, 4], [1, 1], [0, 0], 0), [1, 33, 16]),
    ] {
        let x = random(batch * inp * window.input.iter().product::<usize>(), 1);
        let taps: usize = window.kernel.iter().product();
        let (weight, bias) = (random(inp * out * taps, 2), random(out, 3));
        let (sums, sizes) = transposed_reference(&window, [batch, inp, out], &x, &weight, &bias);
        let steps = (inp * taps + 2) as f64;
        let planes = [window.input, window.output].map(|[h, w]| h * w);
        for activation in [Activation::Relu, Activation::Silu] {
            let expected: Vec<f64> = sums
                .iter()
                .map(|&v| plutino_reference::elementwise::activation(activation, v))
                .collect();
            on_every_machine(
                |isa, par| {
                    let (b, threads) = (isa.lanes(), par.threads());
                    let conv = TransposedConv::new(
                        isa,
                        &window,
                        [inp, out],
                        batch,
                        Some(activation),
                        threads,
                    )
                    .unwrap();
                    let weights = conv.pack(&weight[..], [inp, out]).unwrap();
                    let bias = DirectConv::pad_bias(Some(&bias), 1, out, b);
                    let mut scratch = vec![0; conv.scratch(threads)];
                    let shapes = ([inp, planes[0]], [out, planes[1]]);
                    through_blocks(&x, shapes.0, shapes.1, batch, isa, par, |x, y| {
                        conv.run(x, &weights, &bias, y, &mut scratch, par);
                    })
                },
                |found| {
                    // The activations' slopes are below 1.1; their own errors are a few ULP of a
                    // result.
                    let bound =
                        |i: usize| f64::from(f32::EPSILON) * (1.1 * steps * sizes[i] / 2.0 + 4.0);
                    assert_close(found, &expected, bound);
                },
            );
        }
    }
}

#[test]
fn transposed_convolutions_that_do_not_suit() {
    let base = TransposedWindow {
        input: [4, 4],
        output: [8, 8],
        kernel: [2, 2],
        stride: [2, 2],
        pad: [0, 0],
    };
    assert!(base.suits(16, 8));
    assert!(!base.suits(7, 8));
    for odd in [
        TransposedWindow { kernel: [1, 2], ..base }, // rows without taps
        TransposedWindow { pad: [1, 0], output: [6, 8], ..base }, // a row of input that nobody reads
        TransposedWindow { kernel: [5, 5], stride: [5, 5], output: [20, 20], ..base },
        TransposedWindow { stride: [usize::MAX, 2], ..base },
        TransposedWindow { output: [1 << 20, 1 << 20], ..base },
    ] {
        assert!(!odd.suits(16, 8), "{odd:?}");
    }
}

#[test]
fn winograd_convolution() {
    let strided = Case { stride: [2, 2], ..BASE };
    let plain = Case { channels: [3, 20], kernel: [7, 7], pad: [3, 3], ..strided };
    for c in [
        BASE,
        Case { channels: [37, 21], input: [14, 14], ..BASE },
        Case { channels: [16, 16], input: [30, 41], batch: 2, pad: [0, 2], ..BASE },
        Case { channels: [64, 40], input: [5, 3], ..BASE },
        // Several chunks, for a thread each.
        Case { channels: [16, 16], input: [101, 131], ..BASE },
        // As many as F(5x5, 3x3) and F(4x4, 4x4) take.
        Case { channels: [128, 16], input: [30, 31], ..BASE },
        Case { channels: [128, 16], input: [30, 31], kernel: [4, 4], ..BASE },
        // Short tiles: in chunks that begin inside an image, too.
        Case { channels: [128, 128], input: [14, 14], batch: 5, ..BASE },
        Case { channels: [20, 16], input: [15, 15], kernel: [4, 4], ..BASE },
        Case { input: [27, 27], ..plain },
        strided,
        Case { channels: [37, 21], input: [17, 16], ..strided },
        Case { channels: [16, 16], input: [30, 41], batch: 2, pad: [0, 2], ..strided },
        Case { channels: [64, 40], input: [5, 3], ..strided },
        // Images.
        plain,
        Case { channels: [4, 33], input: [31, 62], kernel: [8, 8], batch: 2, ..plain },
        Case { channels: [1, 16], input: [29, 40], kernel: [6, 5], pad: [2, 2], ..plain },
        Case { channels: [3, 64], input: [203, 150], ..plain },
    ] {
        let [inp, out] = c.channels;
        let input = if inp <= FEW { ConvInput::Plain } else { ConvInput::Blocked };
        let win = c.window();
        let x = random(c.batch * inp * win.input_pixels(), 8);
        let w = random(out * inp * win.taps(), 9);
        let bias = random(out, 10);
        let (sums, _) = reference(&c, &x, &w, &bias);
        let residual = random(sums.len(), 11);
        let expected: Vec<f64> =
            sums.iter().zip(&residual).map(|(s, r)| (s + f64::from(*r)).max(0.0)).collect();
        let largest = expected.iter().fold(0.0, |a: f64, v| a.max(*v));
        let bind = |isa, algorithm, threads| {
            let relu = Some(Activation::Relu);
            WinogradConv::new(
                isa,
                algorithm,
                win.clone(),
                input,
                [out, inp],
                c.batch,
                relu,
                threads,
            )
        };
        let suits = |algorithm: &WinogradAlgorithm| bind(Isa::PORTABLE, *algorithm, 1).is_some();
        let algorithms: Vec<_> = WinogradAlgorithm::ALL.into_iter().filter(suits).collect();
        let three_taps = (c.stride, c.kernel) == ([1, 1], [3, 3]) || c.kernel == [6, 5];
        assert_eq!(algorithms.len(), if three_taps { 3 } else { 1 });
        for algorithm in algorithms {
            on_every_machine(
                |isa, par| {
                    let b = isa.lanes();
                    let conv = bind(isa, algorithm, par.threads()).unwrap();
                    let weights = conv.pack(&w).unwrap();
                    let bias = DirectConv::pad_bias(Some(&bias), 1, out, b);
                    let mut scratch = vec![f32::NAN; conv.scratch()];
                    let mut added = vec![0.0; c.batch * out.div_ceil(b) * b * win.pixels()];
                    to_blocked(isa, &residual, &mut added, out, win.pixels(), b, par);
                    let shapes = ([inp, win.input_pixels()], [out, win.pixels()]);
                    through_blocks(&x, shapes.0, shapes.1, c.batch, isa, par, |blocked, y| {
                        let source = if input == ConvInput::Plain { &x } else { blocked };
                        let added = Residual { data: &added, last: false };
                        conv.run(source, &weights, &bias, Some(added), y, &mut scratch, par);
                    })
                },
                |found| assert_close(found, &expected, |_| 1e-5 * largest),
            );
        }
    }
}

#[test]
fn winograd_pays_where_there_are_tiles_enough() {
    let fastest = |c: usize, input: usize, stride: usize| {
        let output = (input - 1) / stride + 1;
        let window =
            Window::new([input; 2], [output; 2], [3, 3], [stride; 2], [1, 1], [1, 1]).unwrap();
        WinogradConv::fastest(Isa::best(), &window, ConvInput::Blocked, [c, c], 1, None, 1)
            .map(|conv| conv.algorithm())
    };
    for (channels, size) in [(64, 56), (128, 28), (64, 256)] {
        assert_eq!(fastest(channels, size, 1), Some(WinogradAlgorithm::Four));
    }
    assert_eq!(fastest(256, 80, 2), Some(WinogradAlgorithm::FourStrided));
    assert_eq!(fastest(512, 2, 1), None, "more weights to read than multiplications saved");
    assert_eq!(fastest(64, 56, 3), None);
}

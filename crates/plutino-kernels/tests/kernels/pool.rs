use plutino_kernels::pool::*;
use plutino_kernels::simd::pair as pair_of;
use plutino_kernels::{Par, number::Number};
use plutino_reference::pool::{SlidingPool, adaptive_pool, sliding_pool};
use plutino_reference::testkit::{assert_close, on_every_machine, random};
use plutino_tensor::{bf16, f16};

const EPS: f64 = f32::EPSILON as f64 / 2.0;

struct Case {
    planes: usize,
    reference: SlidingPool,
    geometry: Geometry,
}

fn case(
    planes: usize,
    input: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
    ceil_mode: bool,
) -> Case {
    let axes: [Axis; 3] = std::array::from_fn(|a| {
        let window = Sliding {
            kernel: kernel[a],
            stride: stride[a],
            padding: padding[a],
            dilation: dilation[a],
            ceil_mode,
        };
        Axis::sliding(input[a], window).unwrap()
    });
    let output = axes.map(|a| a.output());
    let reference = SlidingPool { input, output, kernel, stride, padding, dilation };
    Case { planes, reference, geometry: Geometry::new(planes, &axes) }
}

/// 1-d to 3-d, all tails of a vector, overhanging and empty windows, every stride path.
fn cases() -> Vec<Case> {
    let flat = |n, k, s, p, d, c| case(2, [1, 3, n], [1, 1, k], [1, 1, s], [0, 0, p], [1, 1, d], c);
    let mut all = vec![
        case(3, [1, 7, 11], [1, 3, 3], [1, 2, 2], [0, 1, 1], [1, 1, 1], false),
        case(3, [1, 6, 40], [1, 2, 2], [1, 2, 2], [0, 0, 0], [1, 1, 1], false),
        case(2, [1, 13, 37], [1, 5, 5], [1, 1, 1], [0, 2, 2], [1, 1, 1], false),
        case(1, [1, 8, 9], [1, 3, 2], [1, 2, 3], [0, 1, 0], [1, 2, 3], true),
        case(2, [5, 6, 18], [2, 3, 3], [2, 1, 3], [1, 1, 0], [1, 1, 1], true),
        case(1, [1, 1, 1], [1, 2, 2], [1, 1, 1], [0, 2, 2], [1, 3, 3], false), // no input in any window
        case(1, [1, 2, 5], [1, 3, 3], [1, 2, 2], [0, 0, 0], [1, 1, 1], true), // taller than the input
        case(0, [1, 4, 4], [1, 2, 2], [1, 2, 2], [0, 0, 0], [1, 1, 1], false),
    ];
    for n in 3..36 {
        all.push(flat(n, 3, 1, 1, 1, false));
        all.push(flat(n, 3, 2, 1, 1, n % 2 == 0));
        all.push(flat(n, 2, 3, 1, 2, true));
    }
    all
}

fn pool(
    isa: plutino_kernels::Isa,
    par: &Par,
    geometry: &Geometry,
    r: Reduction,
    input: &[f32],
) -> Vec<f32> {
    let mut out = vec![f32::NAN; geometry.planes * geometry.output_volume()];
    let mut scratch = vec![f32::NAN; scratch_len(geometry, par.threads())];
    pool_f32(isa, par, geometry, r, input, &mut out, &mut scratch);
    out
}

#[test]
fn every_reduction_agrees_with_its_reference() {
    for c in cases() {
        let volume: usize = c.reference.input.iter().product();
        let taps: usize = c.reference.kernel.iter().product();
        let signed = random(c.planes * volume, 7);
        let positive: Vec<f32> = signed.iter().map(|x| x.abs() + 0.1).collect();
        let k = taps as f64;
        // Sums of k values below 1: (k - 1) roundings, one for the division; a power costs its
        // argument's relative error, and the ends of pow.
        for (r, input, bound) in [
            (Reduction::Max, &signed, 0.0),
            (Reduction::Average(Divisor::Inputs), &signed, (k + 1.0) * EPS),
            (Reduction::Average(Divisor::Padded), &signed, (k + 1.0) * EPS),
            (Reduction::Average(Divisor::Fixed(3)), &signed, k * (k + 1.0) * EPS),
            (Reduction::Power { p: 1.0, size: taps }, &signed, k * (k + 3.0) * EPS),
            (Reduction::Power { p: 2.0, size: taps }, &positive, 2.0 * k * (k + 4.0) * EPS),
            (Reduction::Power { p: 1.2, size: taps }, &positive, 3.0 * k * (k + 4.0) * EPS),
            (Reduction::Power { p: f64::INFINITY, size: taps }, &signed, 0.0),
            (Reduction::Power { p: f64::NEG_INFINITY, size: taps }, &signed, 0.0),
        ] {
            let (expected, _) = sliding_pool(&c.reference, r, input);
            on_every_machine(
                |isa, par| pool(isa, par, &c.geometry, r, input),
                |found| assert_close(found, &expected, |_| bound),
            );
            let mut any = vec![0.0f32; expected.len()];
            pool_any(&Par::serial(), &c.geometry, r, input, &mut any);
            assert_close(&any, &expected, |i| 8.0 * EPS * expected[i].abs());
        }
    }
}

#[test]
fn the_last_nan_or_the_first_maximum_is_the_index() {
    for c in cases() {
        let volume: usize = c.reference.input.iter().product();
        let mut input: Vec<f32> =
            random(c.planes * volume, 9).iter().map(|x| (x * 3.0).round()).collect();
        for x in input.iter_mut().skip(5).step_by(11) {
            *x = f32::NAN;
        }
        let (expected, at) = sliding_pool(&c.reference, Reduction::Max, &input);
        on_every_machine(
            |isa, par| pool(isa, par, &c.geometry, Reduction::Max, &input),
            |found| assert_close(found, &expected, |_| 0.0),
        );
        on_every_machine(
            |_, par| {
                let (mut out, mut indices) = (vec![0.0; at.len()], vec![0; at.len()]);
                max_with_indices(par, &c.geometry, &input, &mut out, &mut indices);
                assert_eq!(indices, at);
                out
            },
            |found| assert_close(found, &expected, |_| 0.0),
        );
    }
}

#[test]
fn adaptive_windows() {
    for (shape, output) in [
        ([1, 24, 24], [1, 7, 6]),
        ([1, 5, 3], [1, 7, 8]),
        ([4, 9, 31], [3, 2, 5]),
        ([1, 6, 35], [1, 1, 1]),
        ([1, 1, 9], [1, 1, 4]),
    ] {
        let input = random(3 * shape.iter().product::<usize>(), 3);
        let axes: [Axis; 3] = std::array::from_fn(|a| Axis::adaptive(shape[a], output[a]).unwrap());
        let geometry = Geometry::new(3, &axes);
        for (max, r) in [(true, Reduction::Max), (false, Reduction::Average(Divisor::Inputs))] {
            let (expected, at) = adaptive_pool(shape, output, max, &input);
            let taps = if max { 0.0 } else { (shape.iter().product::<usize>() + 1) as f64 };
            on_every_machine(
                |isa, par| pool(isa, par, &geometry, r, &input),
                |found| assert_close(found, &expected, |_| taps * EPS),
            );
            if max {
                let (mut out, mut indices) = (vec![0.0; at.len()], vec![0; at.len()]);
                max_with_indices(&Par::serial(), &geometry, &input, &mut out, &mut indices);
                assert_eq!(indices, at);
            }
        }
    }
}

#[test]
fn blocked_pixels_are_pooled_alone() {
    let c = case(1, [1, 7, 9], [1, 3, 3], [1, 2, 1], [0, 1, 1], [1, 1, 1], false);
    for inner in [3, 8, 16, 19] {
        let plain = random(inner * 63, 1);
        let blocked: Vec<f32> = (0..63)
            .flat_map(|p| (0..inner).map(move |i| (i, p)))
            .map(|(i, p)| plain[i * 63 + p])
            .collect();
        for r in [Reduction::Max, Reduction::Average(Divisor::Inputs)] {
            let (expected, _) = sliding_pool(&c.reference, r, &plain);
            let geometry = Geometry { inner, ..c.geometry };
            let outputs = expected.len() / inner;
            on_every_machine(
                |isa, par| pool(isa, par, &geometry, r, &blocked),
                |found| {
                    let found: Vec<f32> = (0..inner * outputs)
                        .map(|k| found[k % outputs * inner + k / outputs])
                        .collect();
                    assert_close(&found, &expected, |_| 10.0 * EPS);
                },
            );
        }
    }
}

/// Words of two bf16, with NaN and infinities among them, and windows without inputs.
#[test]
fn halves_of_words_are_pooled_alone() {
    for c in cases() {
        let volume: usize = c.reference.input.iter().product();
        for channels in [4, 16, 32, 38] {
            let mut plain: Vec<f32> = random(c.planes * channels * volume, 1)
                .iter()
                .map(|&x| bf16::from_f32(x).to_f32())
                .collect();
            for (i, special) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].iter().enumerate() {
                plain.iter_mut().skip(i + 5).step_by(17).for_each(|x| *x = *special);
            }
            let (expected, _) = sliding_pool(&c.reference, Reduction::Max, &plain);
            let bits = |i: usize| bf16::from_f32(plain[i]).to_bits();
            let words: Vec<f32> = (0..plain.len() / 2)
                .map(|i| {
                    let (pixel, pair) = (i / (channels / 2), i % (channels / 2));
                    let at = (pixel / volume * channels + 2 * pair) * volume + pixel % volume;
                    pair_of(bits(at), bits(at + volume))
                })
                .collect();
            let geometry = Geometry { inner: channels / 2, ..c.geometry };
            let output: usize = c.reference.output.iter().product();
            on_every_machine(
                |isa, par| {
                    let mut out = vec![0.0; geometry.planes * geometry.output_volume()];
                    let mut scratch = vec![f32::NAN; scratch_len(&geometry, par.threads())];
                    max_of_pairs(isa, par, &geometry, &words, &mut out, &mut scratch);
                    out
                },
                |found| {
                    let number = |i: usize| {
                        let (plane, pixel) = (i / output, i % output);
                        let (volume, channel) = (plane / channels, plane % channels);
                        let word = (volume * output + pixel) * (channels / 2) + channel / 2;
                        let bits = found[word].to_bits() >> (channel % 2 * 16);
                        bf16::from_bits(bits as u16).to_f32()
                    };
                    let found: Vec<f32> = (0..expected.len()).map(number).collect();
                    assert_close(&found, &expected, |_| 0.0);
                },
            );
        }
    }
}

#[test]
fn other_dtypes() {
    let c = case(1, [1, 1, 5], [1, 1, 2], [1, 1, 2], [0, 0, 0], [1, 1, 1], true);
    let x = [3i64, -4, i64::MAX, 7, -9];
    let mut out = [0; 3];
    pool_any(&Par::serial(), &c.geometry, Reduction::Max, &x, &mut out);
    assert_eq!(out, [3, i64::MAX, -9]);
    pool_any(
        &Par::serial(),
        &c.geometry,
        Reduction::Average(Divisor::Inputs),
        &[3, -4, 8, 7, -9],
        &mut out,
    );
    assert_eq!(out, [0, 7, -9]);
    // Sums of bf16 are taken in f32, and overflow; those of f16 do not.
    let average = Reduction::Average(Divisor::Inputs);
    let (large, mut out) = ([bf16::narrow(3e38); 5], [bf16::default(); 3]);
    pool_any(&Par::serial(), &c.geometry, average, &large, &mut out);
    assert_eq!(out, [bf16::INFINITY, bf16::INFINITY, large[0]]);
    let (large, mut out) = ([f16::narrow(6e4); 5], [f16::default(); 3]);
    pool_any(&Par::serial(), &c.geometry, average, &large, &mut out);
    assert_eq!(out, [large[0]; 3]);
    let half = [1.0, 2.0, 3.0, 5.0, 7.0].map(f16::narrow);
    let mut out = [f16::default(); 3];
    pool_any(&Par::serial(), &c.geometry, Reduction::Average(Divisor::Inputs), &half, &mut out);
    assert_eq!(out, [1.5, 4.0, 7.0].map(f16::narrow));
}

#[test]
fn unpooling_inverts_the_maximum() {
    let c = case(2, [1, 4, 6], [1, 2, 2], [1, 2, 2], [0, 0, 0], [1, 1, 1], false);
    let x = random(48, 5);
    let (mut max, mut at) = (vec![0.0; 12], vec![0; 12]);
    max_with_indices(&Par::serial(), &c.geometry, &x, &mut max, &mut at);
    let mut y = vec![1.0; 48];
    max_unpool(&Par::serial(), 2, &max, &at, &mut y).unwrap();
    for (i, &v) in y.iter().enumerate() {
        let kept = (0..6).any(|o| at[i / 24 * 6 + o] == (i % 24) as i64);
        assert_eq!(v, if kept { x[i] } else { 0.0 });
    }
    at[3] = 24;
    assert_eq!(max_unpool(&Par::serial(), 2, &max, &at, &mut y), Err(24));
}

use plutino_kernels::activation::Activation;
use plutino_kernels::norm::*;
use plutino_kernels::{InOut, Isa, Par, Pool};
use plutino_reference::norm as reference;
use plutino_reference::testkit::{
    assert_close, on_every_machine, random, same_bits, words_of_bf16,
};

const U: f64 = f32::EPSILON as f64 / 2.0;

/// Runs in place and out of place, which must agree.
fn both(x: &[f32], run: impl Fn(InOut<'_, f32>)) -> Vec<f32> {
    let (mut same, mut dst) = (x.to_vec(), vec![f32::NAN; x.len()]);
    run(InOut::Same(&mut same));
    run(InOut::Apart { src: x, dst: &mut dst });
    assert!(same_bits(&same, &dst));
    dst
}

#[test]
fn rows() {
    // Rows, elements of a row, elements of a span, parameters.
    let mut cases =
        vec![(6, 768, 1, 768), (3, 9000, 1, 9000), (8, 60, 5, 24), (4, 77, 77, 2), (2, 1, 1, 1)];
    // More rows than are normalised together, and some that are left.
    cases.extend([(19, 40, 1, 40), (11, 700, 1, 700), (21, 12, 3, 28), (17, 5000, 1, 5000)]);
    cases.extend((1..36).map(|n| (3, n, 1, n)));
    cases.extend((1..20).map(|n| (4, 3 * n, n, 6)));
    for (rows, len, span, parameters) in cases {
        // Far from zero: the mean must not swallow the deviations.
        let x: Vec<f32> = random(rows * len, 1).iter().map(|x| x + 3.0).collect();
        let (w, b) = (random(parameters, 2), random(parameters, 3));
        for centered in [true, false] {
            for affine in [0, 1, 2] {
                let weight = (affine > 0).then_some(&w[..]);
                let bias = (affine > 1).then_some(&b[..]);
                let norm = RowNorm { len, span, centered, eps: 1e-5 };
                let expected = reference::rows(&norm, weight, bias, &x);
                // x - mean errs by the mean's 2 u 4 (4 > |x|), scaled by up to 1 / sqrt(eps) where
                // all elements are equal, else by 1 / deviation (about 1.7); then the bounds of the
                // sums.
                let spread = if len == 1 { 316.0 } else { 1.7 * 4.0 };
                let bound =
                    if len < 4 { 316.0 * 16.0 * U } else { (75.0 + 8.0 * spread) * U * 4.0 };
                on_every_machine(
                    |isa, par| both(&x, |io| normalize_rows(isa, par, &norm, weight, bias, io)),
                    |found| assert_close(found, &expected, |_| bound),
                );
                if span == 1 && len % 2 == 0 {
                    to_bf16_is_rounded(&x, &norm, weight, bias);
                }
                let mut any = vec![0.0f32; x.len()];
                normalize_rows_any(&Par::serial(), &norm, weight, bias, &x, &mut any);
                assert_close(&any, &expected, |i| 2.0 * U * (expected[i].abs() + 1e-6));
            }
        }
    }
}

/// A row of one number deviates by nothing from its mean, which sums of thousands of it have moved
/// by some units in the last place: 1 / sqrt(eps) of those would be seen.
#[test]
fn rows_of_one_number_become_zeros() {
    for x in [3.3f32, -1000.1, 1e-3, 7e20] {
        for len in (1..70).chain([100, 768, 5000]) {
            let row: Vec<f32> = [x, x * 0.7, 0.1].iter().flat_map(|&x| vec![x; len]).collect();
            let norm = RowNorm { len, span: 1, centered: true, eps: 1e-12 };
            // The square of the mean overflows: PyTorch's NaN.
            let zero = |y: &f32| *y == 0.0 || (x > 1e19 && y.is_nan());
            let run =
                |isa, par: &Par| both(&row, |io| normalize_rows(isa, par, &norm, None, None, io));
            on_every_machine(run, |y| assert!(y.iter().all(zero), "{len} times {x}: {y:?}"));
            let mut y = vec![1.0f32; row.len()];
            normalize_rows_any(&Par::serial(), &norm, None, None, &row, &mut y);
            assert!(y.iter().all(|&y| y == 0.0), "{len} times {x}: {y:?}");
        }
        for isa in Isa::available() {
            // Groups of 3 channels of one number each, and of others; one image.
            let (channels, pixels) = (2 * isa.lanes() + 5, 1500);
            let channels = channels / 3 * 3;
            let norm = BlockedGroupNorm::new(isa, [1, channels, pixels], channels / 3, 1e-12);
            let norm = norm.unwrap();
            let blocks = channels.div_ceil(isa.lanes());
            let lanes = isa.lanes();
            let channel = |i: usize| i / (pixels * lanes) * lanes + i % lanes;
            let number = |i: usize| if channel(i) / 3 == 1 { i as f32 % 7.0 } else { x };
            let image: Vec<f32> = (0..blocks * pixels * lanes).map(number).collect();
            let mut scratch = vec![0.0; norm.scratch_len()];
            let mut y = vec![f32::NAN; image.len()];
            let data = InOut::Apart { src: &image, dst: &mut y };
            norm.run(&Par::serial(), None, None, data, &mut scratch);
            for (i, y) in y.iter().enumerate().filter(|(i, _)| channel(*i) < channels) {
                let zero = *y == 0.0 || (x > 1e19 && y.is_nan());
                assert_eq!(zero, channel(i) / 3 != 1 || *y == 0.0, "{y} for {x}, {isa}");
            }
        }
    }
}

/// Results that are bf16 are those of f32, rounded.
fn to_bf16_is_rounded(x: &[f32], norm: &RowNorm, weight: Option<&[f32]>, bias: Option<&[f32]>) {
    for isa in Isa::available() {
        for threads in [1, 3] {
            Pool::new(threads).enter(|par| {
                let mut y = vec![f32::NAN; x.len()];
                let to = InOut::Apart { src: x, dst: &mut y };
                normalize_rows(isa, par, norm, weight, bias, to);
                let mut words = vec![f32::NAN; x.len() / 2];
                normalize_rows_to_bf16(isa, par, norm, weight, bias, x, &mut words);
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&words), bits(&words_of_bf16(&y)), "{isa}");
            });
        }
    }
}

#[test]
fn channels() {
    let mut shapes = vec![[2, 7, 1], [3, 5, 49], [1, 64, 300], [4, 37, 1], [0, 3, 2]];
    shapes.extend((1..20).map(|n| [2, 3, n]));
    for shape @ [_, channels, _] in shapes {
        let x = random(shape.iter().product(), 1);
        let (scale, shift) = (random(channels, 2), random(channels, 3));
        for activation in [None, Some(Activation::Relu)] {
            let expected: Vec<f64> = reference::channels(shape, &scale, &shift, &x)
                .iter()
                .map(|y| if activation.is_some() { y.max(0.0) } else { *y })
                .collect();
            on_every_machine(
                |isa, par| {
                    both(&x, |io| channel_affine(isa, par, shape, &scale, &shift, activation, io))
                },
                |found| assert_close(found, &expected, |_| 2.0 * U),
            );
        }
        let wide = |v: &[f32]| v.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let mut any = vec![0.0f32; x.len()];
        channel_affine_any(&Par::serial(), shape, &wide(&scale), &wide(&shift), &x, &mut any);
        assert_close(&any, &reference::channels(shape, &scale, &shift, &x), |_| 2.0 * U);
    }
}

#[test]
fn blocks_of_channels() {
    for block in [8, 16] {
        let shape = [2, 3, 5, block];
        let x = random(2 * 3 * 5 * block, 1);
        let (scale, shift) = (random(3 * block, 2), random(3 * block, 3));
        let expected: Vec<f64> = (0..x.len())
            .map(|i| {
                let c = i / (5 * block) % 3 * block + i % block;
                f64::from(x[i]) * f64::from(scale[c]) + f64::from(shift[c])
            })
            .collect();
        for isa in Isa::available().into_iter().filter(|isa| block % isa.lanes() == 0) {
            let par = Par::serial();
            let y =
                both(&x, |io| channel_affine_blocked(isa, &par, shape, &scale, &shift, None, io));
            assert_close(&y, &expected, |_| 2.0 * U);
        }
    }
}

#[test]
fn local_responses() {
    for (shape, size) in [([2, 7, 13], 3), ([1, 4, 40], 5), ([2, 9, 1], 4), ([1, 3, 9], 20)] {
        let x: Vec<f32> = random(shape.iter().product(), 1).iter().map(|x| x * 10.0).collect();
        for beta in [0.75, 0.5, 1.0, 0.3] {
            let norm = LocalResponse { size, alpha: 0.5, beta, k: 0.9 };
            let expected = reference::local_response(&norm, shape, &x);
            // The sum of positive terms errs by `size + 2` roundings, the power adds its own (ln d
            // < 7).
            let bound = |i: usize| (size as f64 + 4.0 + 14.0 * beta + 6.0) * U * expected[i].abs();
            on_every_machine(
                |isa, par| {
                    let mut y = vec![f32::NAN; x.len()];
                    local_response(isa, par, &norm, shape, &x, &mut y);
                    y
                },
                |found| assert_close(found, &expected, bound),
            );
            let mut any = vec![0.0f32; x.len()];
            local_response_any(&Par::serial(), &norm, shape, &x, &mut any);
            assert_close(&any, &expected, |i| 2.0 * U * expected[i].abs());
        }
    }
}

#[test]
fn unit_vectors() {
    for shape @ [outer, _, inner] in [[3, 24, 1], [2, 5, 33], [1, 1, 7], [2, 300, 2], [3, 1, 1]] {
        let mut x = random(shape.iter().product(), 1);
        x[0] = 0.0;
        for p in [1.0, 2.0, 3.0, f64::INFINITY] {
            let expected = reference::unit(p, 1e-3, shape, &x);
            on_every_machine(
                |isa, par| {
                    let mut y = vec![f32::NAN; x.len()];
                    let mut norms = vec![f32::NAN; outer * inner];
                    unit_rows(isa, par, p, 1e-3, shape, &x, &mut y, &mut norms);
                    y
                },
                |found| assert_close(found, &expected, |i| 76.0 * U * expected[i].abs()),
            );
            let mut any = vec![0.0f32; x.len()];
            unit_rows_any(&Par::serial(), p, 1e-3, shape, &x, &mut any);
            assert_close(&any, &expected, |i| 4.0 * U * expected[i].abs());
        }
    }
}

/// A tensor in blocks of channels; surplus lanes hold what must not be read.
fn blocked(x: &[f32], [images, channels, pixels]: [usize; 3], b: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; images * channels.div_ceil(b) * pixels * b];
    for (i, &x) in x.iter().enumerate() {
        y[in_blocks(i, [channels, pixels], b)] = x;
    }
    y
}

/// Where an element of a plain tensor lies in blocks.
fn in_blocks(i: usize, [channels, pixels]: [usize; 2], b: usize) -> usize {
    let (image, c) = (i / (channels * pixels), i / pixels % channels);
    ((image * channels.div_ceil(b) + c / b) * pixels + i % pixels) * b + c % b
}

#[test]
fn groups_of_channels_in_blocks() {
    for (sizes, groups) in [
        ([2, 6, 5], 6),
        ([1, 32, 70], 32),
        ([2, 40, 65], 4),
        ([1, 40, 3], 1),
        ([1, 18, 1027], 3),
        ([3, 20, 1], 2),
    ] {
        let [images, channels, pixels] = sizes;
        let x: Vec<f32> = random(images * channels * pixels, 1).iter().map(|x| x + 3.0).collect();
        let (weight, bias) = (random(channels, 2), random(channels, 3));
        for affine in [true, false] {
            let (w, b) = (affine.then_some(&weight[..]), affine.then_some(&bias[..]));
            let (len, eps) = (channels / groups * pixels, 1e-3);
            let norm = RowNorm { len, span: pixels, centered: true, eps };
            let expected = reference::rows(&norm, w, b, &x);
            on_every_machine(
                |isa, par| {
                    let lanes = isa.lanes();
                    let norm = BlockedGroupNorm::new(isa, sizes, groups, eps).unwrap();
                    let y = both(&blocked(&x, sizes, lanes), |io| {
                        let mut scratch = vec![f64::NAN; norm.scratch_len()];
                        norm.run(par, w, b, io, &mut scratch);
                    });
                    (0..x.len()).map(|i| y[in_blocks(i, [channels, pixels], lanes)]).collect()
                },
                // The mean, 3 or a little more, errs by 18 u of itself; so do deviations from it,
                // which are multiplied by 1 / sqrt(eps) at most. Twice that for the results.
                |found: &[f32]| assert_close(found, &expected, |_| 2.0 * 18.0 * 4.0 * 32.0 * U),
            );
        }
    }
}

#[test]
fn groups_that_do_not_divide_channels_are_refused() {
    let new = |channels, groups| {
        BlockedGroupNorm::new(Isa::PORTABLE, [1, channels, 4], groups, 0.0).is_some()
    };
    assert!(new(6, 3) && !new(6, 4) && !new(6, 0) && !new(0, 3));
}

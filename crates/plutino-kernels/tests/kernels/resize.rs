use plutino_kernels::Par;
use plutino_kernels::resize::*;
use plutino_reference::resize::resize_axis;
use plutino_reference::testkit::{assert_close, on_every_machine, random};

const MODES: [Sampling; 6] = [
    Sampling::Nearest,
    Sampling::NearestExact,
    Sampling::Linear,
    Sampling::Cubic,
    Sampling::LinearAntialias,
    Sampling::CubicAntialias,
];

fn is_nearest(mode: Sampling) -> bool {
    matches!(mode, Sampling::Nearest | Sampling::NearestExact)
}

fn reference(
    planes: usize,
    from: [usize; 3],
    to: [usize; 3],
    mode: Sampling,
    scale: Scale,
    x: &[f32],
) -> Vec<f64> {
    let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    let x = resize_axis([planes, from[0], from[1] * from[2]], to[0], mode, scale, &x);
    let x = resize_axis([planes * to[0], from[1], from[2]], to[1], mode, scale, &x);
    resize_axis([planes * to[0] * to[1], from[2], 1], to[2], mode, scale, &x)
}

#[test]
fn every_mode_agrees_with_the_reference() {
    // Sizes whose ratios are exact in f32 or far from the next integer, where nearest would jump.
    for (from, to) in [
        ([1, 1, 12], [1, 1, 24]),
        ([1, 12, 12], [1, 24, 36]),
        ([1, 7, 19], [1, 11, 40]),
        ([1, 40, 33], [1, 13, 7]),
        ([3, 4, 5], [7, 6, 11]),
        ([4, 2, 3], [2, 1, 1]),
        ([1, 1, 1], [2, 3, 4]),
        ([1, 2, 3], [1, 2, 3]),
        ([1, 64, 3], [1, 8, 3]),
    ] {
        let planes = 3;
        let x = random(planes * from.iter().product::<usize>(), 1);
        for mode in MODES {
            for align_corners in [false, true] {
                let antialias =
                    matches!(mode, Sampling::LinearAntialias | Sampling::CubicAntialias);
                if align_corners && (is_nearest(mode) || antialias) {
                    continue;
                }
                let scale = Scale { align_corners, factor: None, double: false };
                let expected = reference(planes, from, to, mode, scale, &x);
                let axes: [Taps; 3] =
                    std::array::from_fn(|a| Taps::new(from[a], to[a], mode, scale).unwrap());
                if is_nearest(mode) {
                    let resize = Nearest::new(axes);
                    on_every_machine(
                        |_, par| {
                            let mut y = vec![f32::NAN; expected.len()];
                            resize_nearest(par, &resize, planes, &x, &mut y);
                            y
                        },
                        |found| assert_close(found, &expected, |_| 0.0),
                    );
                    continue;
                }
                // Positions below 64 in f32 are off by 3 roundings, and so are the weights (slopes
                // below 2, in up to three dimensions); the sums add a rounding for each tap.
                let u = f64::from(f32::EPSILON) / 2.0;
                let taps: usize = axes.iter().map(Taps::width).product();
                let bound = (3.0 * 3.0 * 2.0 * 64.0 + 4.0 * taps as f64) * u;
                let resize = Resize { axes, inner: 1 };
                on_every_machine(
                    |isa, par| {
                        let mut y = vec![f32::NAN; expected.len()];
                        let mut scratch = vec![f32::NAN; resize.scratch_len(par.threads())];
                        resize_f32(isa, par, &resize, planes, &x, &mut y, &mut scratch);
                        y
                    },
                    |found| assert_close(found, &expected, |_| bound),
                );
                let mut any = vec![0.0f32; expected.len()];
                resize_any(&Par::serial(), &resize, planes, &x, &mut any);
                assert_close(&any, &expected, |_| bound);
            }
        }
    }
}

#[test]
fn blocked_pixels_are_resized_alone() {
    let scale = Scale { align_corners: false, factor: None, double: false };
    let (from, to) = ([1, 5, 6], [1, 9, 13]);
    for inner in [3, 8, 16] {
        let plain = random(inner * 30, 1);
        let blocked: Vec<f32> =
            (0..inner * 30).map(|k| plain[k % inner * 30 + k / inner]).collect();
        let expected = reference(inner, from, to, Sampling::Linear, scale, &plain);
        let n = expected.len() / inner;
        let axes =
            std::array::from_fn(|a| Taps::new(from[a], to[a], Sampling::Linear, scale).unwrap());
        let resize = Resize { axes, inner };
        on_every_machine(
            |isa, par| {
                let mut y = vec![f32::NAN; expected.len()];
                let mut scratch = vec![f32::NAN; resize.scratch_len(par.threads())];
                resize_f32(isa, par, &resize, 1, &blocked, &mut y, &mut scratch);
                (0..y.len()).map(|k| y[k % n * inner + k / n]).collect()
            },
            |found| assert_close(found, &expected, |_| 1e-5),
        );
    }
}

#[test]
fn a_given_factor_decides_the_positions() {
    // 5 inputs, factor 1.5: 7 outputs, but positions follow 1.5, not 7/5.
    let scale = Scale { align_corners: false, factor: Some(1.5), double: false };
    let taps = Taps::new(5, 7, Sampling::Nearest, scale).unwrap();
    let starts: Vec<usize> = (0..7).map(|o| taps.inputs(o).start).collect();
    assert_eq!(starts, [0, 0, 1, 2, 2, 3, 4]);
    let taps = Taps::new(5, 7, Sampling::Linear, scale).unwrap();
    // The last output lies at 6.5 / 1.5 - 0.5 = 3.8333: weights 0.1667 and 0.8333 of inputs 3 and
    // 4.
    assert_eq!(taps.inputs(6), 3..5);
    assert!((taps.weights(6)[1] - 0.833_333).abs() < 1e-6);
}

#[test]
fn weights_add_up_to_one() {
    for mode in MODES {
        for (input, output) in [(1, 9), (2, 9), (3, 2), (10, 3), (5, 5), (100, 7)] {
            let scale = Scale { align_corners: false, factor: None, double: true };
            let taps = Taps::new(input, output, mode, scale).unwrap();
            for o in 0..output {
                assert!(taps.inputs(o).end <= input);
                let sum: f64 = taps.weights(o).iter().sum();
                assert!((sum - 1.0).abs() < 1e-12, "{mode:?} {input} {output} {o}: {sum}");
            }
        }
    }
}

#[test]
fn impossible_sizes_are_errors() {
    let scale = Scale { align_corners: false, factor: None, double: false };
    assert!(Taps::new(0, 3, Sampling::Linear, scale).is_err());
    assert!(Taps::new(3, usize::MAX, Sampling::Linear, scale).is_err());
    assert_eq!(Taps::new(3, 0, Sampling::Linear, scale).unwrap().output(), 0);
}

/// Two passes over whole images, from the taps' weights.
fn bytes_reference(planes: usize, [height, width]: &[Taps; 2], x: &[u8]) -> Vec<u8> {
    let pass = |taps: &Taps, inner: usize, x: &[u8]| {
        let most =
            (0..taps.output()).flat_map(|o| taps.weights(o)).fold(0.0, |a: f64, &w| a.max(w));
        let fits = |bits: i32| (0.5 + most * 2f64.powi(bits)).floor() < 32768.0;
        let bits = (0..22).take_while(|bits| fits(bits + 1)).count() as i32;
        let outer = x.len() / (taps.input() * inner);
        let mut y = vec![0u8; outer * taps.output() * inner];
        for (at, y) in y.iter_mut().enumerate() {
            let (i, o, k) = (at / inner / taps.output(), at / inner % taps.output(), at % inner);
            let sum: f64 = (taps.inputs(o).zip(taps.weights(o)))
                .map(|(j, w)| {
                    (w * 2f64.powi(bits)).round() * f64::from(x[(i * taps.input() + j) * inner + k])
                })
                .sum();
            *y = (sum / 2f64.powi(bits) + 0.5).floor().clamp(0.0, 255.0) as u8;
        }
        y
    };
    let wide = pass(width, 1, x);
    assert_eq!(wide.len(), planes * height.input() * width.output());
    pass(height, width.output(), &wide)
}

#[test]
fn bytes_agree_with_the_reference() {
    for (from, to) in [
        ([7, 19], [11, 40]),
        ([40, 33], [13, 7]),
        ([64, 3], [8, 3]),
        ([3, 100], [3, 67]),
        ([1, 1], [2, 5]),
        ([50, 70], [1, 1]),
        ([3, 100], [5, 230]),
        ([6, 300], [3, 150]),
    ] {
        let planes = 3;
        let x: Vec<u8> =
            random(planes * from[0] * from[1], 5).iter().map(|x| (x * 1e4) as i32 as u8).collect();
        for mode in &MODES[2..] {
            for align_corners in [false, true] {
                let scale = Scale { align_corners, factor: None, double: true };
                let taps =
                    || std::array::from_fn(|a| Taps::new(from[a], to[a], *mode, scale).unwrap());
                let expected: Vec<f32> =
                    bytes_reference(planes, &taps(), &x).into_iter().map(f32::from).collect();
                let resize = ResizeBytes::new(taps()).unwrap();
                on_every_machine(
                    |isa, par| {
                        let mut y = vec![1u8; expected.len()];
                        let mut scratch = vec![2u8; resize.scratch_len(par.threads())];
                        resize_bytes(isa, par, &resize, planes, &x, &mut y, &mut scratch);
                        y.into_iter().map(f32::from).collect()
                    },
                    |found| assert_eq!(found, expected, "{from:?} {to:?} {mode:?}"),
                );
            }
        }
    }
}

use plutino_kernels::sample::grid::*;
use plutino_kernels::{Isa, Par};
use plutino_reference::sample::grid_sample as reference;
use plutino_reference::testkit::{assert_close, on_every_machine, random};

#[test]
fn agrees_with_the_reference() {
    for size in [vec![5, 7], vec![1, 4], vec![3, 4, 5]] {
        let (batch, channels, points) = (2, 2, 140);
        let x = random(batch * channels * size.iter().product::<usize>(), 1);
        // Positions beyond the border, too.
        let grid: Vec<f32> =
            random(batch * points * size.len(), 2).iter().map(|x| x * 2.5).collect();
        for mode in [Mode::Nearest, Mode::Linear, Mode::Cubic] {
            for padding in [Padding::Zeros, Padding::Border, Padding::Reflection] {
                for align_corners in [false, true] {
                    let size = size.clone();
                    let sample =
                        GridSample { batch, channels, size, points, mode, padding, align_corners };
                    let expected = reference(&sample, &x, &grid);
                    on_every_machine(
                        |isa, par| {
                            let mut y = vec![f32::NAN; batch * channels * points];
                            sample.run(isa, par, &x, &grid, &mut y).unwrap();
                            y
                        },
                        // Positions below 16 are off by a few of their last places, slopes are
                        // below 8.
                        |found| assert_close(found, &expected, |_| 1e-4),
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_no_position() {
    let sample = |padding| GridSample {
        batch: 1,
        channels: 1,
        size: vec![1, 2],
        points: 4,
        mode: Mode::Linear,
        padding,
        align_corners: true,
    };
    let (x, inf) = ([3.0, 5.0], f32::INFINITY);
    let grid = [f32::NAN, 0.0, inf, 0.0, -inf, 0.0, 1e30, 0.0];
    let same = |found: &[f32], expected: &[f32]| {
        let mut both = found.iter().zip(expected);
        assert!(both.all(|(x, y)| x == y || x.is_nan() && y.is_nan()), "{found:?} {expected:?}");
    };
    let nan = f32::NAN;
    // What PyTorch computes: weights of infinite positions are NaN, of whatever pixels.
    for (mode, padding, expected) in [
        (Mode::Linear, Padding::Zeros, [nan, nan, nan, 0.0]),
        (Mode::Linear, Padding::Border, [3.0, 5.0, 3.0, 5.0]),
        (Mode::Nearest, Padding::Zeros, [0.0; 4]),
        (Mode::Nearest, Padding::Border, [3.0, 5.0, 3.0, 5.0]),
        (Mode::Cubic, Padding::Zeros, [nan, nan, nan, 0.0]),
        (Mode::Cubic, Padding::Border, [nan, nan, nan, 5.0]),
    ] {
        let mut y = [f32::NAN; 4];
        GridSample { mode, ..sample(padding) }
            .run(Isa::best(), &Par::serial(), &x, &grid, &mut y)
            .unwrap();
        same(&y, &expected);
    }
    // In a volume pixels are looked for first, and NaN is behind the last one.
    let x: Vec<f32> = (1..28).map(|i| i as f32).collect();
    let grid = [nan, nan, nan, nan, 0.0, 0.0, inf, 0.0, 0.0, 0.0, 0.0, -inf];
    for mode in [Mode::Linear, Mode::Nearest] {
        for (padding, expected) in [
            (Padding::Zeros, [0.0; 4]),
            (Padding::Border, [27.0, 15.0, 15.0, 5.0]),
            (Padding::Reflection, [27.0, 15.0, 15.0, 23.0]),
        ] {
            let mut y = [f32::NAN; 4];
            let (size, align_corners) = (vec![3; 3], false);
            let volume = GridSample { mode, size, align_corners, ..sample(padding) };
            volume.run(Isa::best(), &Par::serial(), &x, &grid, &mut y).unwrap();
            same(&y, &expected);
        }
    }
    let x = [3.0, 5.0];
    let grid = [nan, 0.0, inf, 0.0, -inf, 0.0, 1e30, 0.0];
    let mut y = [f32::NAN; 4];
    sample(Padding::Reflection).run(Isa::best(), &Par::serial(), &x, &grid, &mut y).unwrap();
    assert!(y.iter().all(|y| (0.0..=5.0).contains(y)), "{y:?}");
}

#[test]
fn the_identity_maps_pixels_to_themselves() {
    let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0f32];
    let mut points = [0.0; 8];
    affine_points(&[2, 2], false, &identity, &mut points);
    assert_eq!(points, [-0.5, -0.5, 0.5, -0.5, -0.5, 0.5, 0.5, 0.5]);
    affine_points(&[2, 2], true, &identity, &mut points);
    assert_eq!(points, [-1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0]);
    let mut point = [0.0; 3];
    let theta = [1.0, 0.0, 0.0, 4.0, 0.0, 1.0, 0.0, 5.0, 0.0, 0.0, 1.0, 6.0];
    affine_points(&[1, 1, 1], true, &theta, &mut point);
    assert_eq!(point, [4.0, 5.0, 6.0]);
}

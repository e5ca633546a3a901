use plutino_kernels::Par;
use plutino_kernels::pad::*;
use plutino_reference::pad::pad as reference;
use plutino_reference::testkit::{assert_close, on_every_machine, random};

const MODES: [PadMode; 4] =
    [PadMode::Constant, PadMode::Reflect, PadMode::Replicate, PadMode::Circular];

#[test]
fn every_mode_agrees_with_the_reference() {
    for (shape, padding) in [
        (vec![5], vec![(2, 3)]),
        (vec![5], vec![(-1, 2)]),
        (vec![5], vec![(-2, -1)]),
        (vec![5], vec![(3, -2)]),
        (vec![2, 3, 4, 6], vec![(0, 0), (0, 0), (1, 2), (3, 0)]),
        (vec![2, 3, 4, 6], vec![(0, 0), (2, 1), (0, 0), (0, 0)]),
        (vec![4, 3, 5], vec![(1, 1), (0, 0), (2, 2)]),
        (vec![2, 3, 4, 5], vec![(1, 0), (-1, 1), (2, -1), (1, 1)]),
        (vec![1, 1], vec![(0, 0), (0, 0)]),
        (vec![], vec![]),
        (vec![3, 40, 300], vec![(0, 0), (1, 2), (20, 30)]),
    ] {
        let x = random(shape.iter().product(), 1);
        for mode in MODES {
            let pad = Pad::new(&shape, &padding, mode).unwrap();
            let expected = reference(&shape, &padding, mode, 7.0, &x);
            on_every_machine(
                |_, par| {
                    let mut y = vec![f32::NAN; pad.output_len()];
                    pad.run(par, 7.0, &x, &mut y);
                    y
                },
                |found| assert_close(found, &expected, |_| 0.0),
            );
        }
    }
}

#[test]
fn pytorchs_examples() {
    // nn.ReflectionPad1d(2), nn.ReplicationPad1d(2) and nn.CircularPad1d(2) of 0, 1, 2, 3
    for (mode, expected) in [
        (PadMode::Constant, [9, 9, 0, 1, 2, 3, 9, 9]),
        (PadMode::Reflect, [2, 1, 0, 1, 2, 3, 2, 1]),
        (PadMode::Replicate, [0, 0, 0, 1, 2, 3, 3, 3]),
        (PadMode::Circular, [2, 3, 0, 1, 2, 3, 0, 1]),
    ] {
        let mut y = [0i64; 8];
        let pad = Pad::new(&[4], &[(2, 2)], mode).unwrap();
        pad.run(&Par::serial(), 9, &[0, 1, 2, 3], &mut y);
        assert_eq!(y, expected);
    }
}

#[test]
fn paddings_that_do_not_fit_are_errors() {
    for (n, before, after, mode) in [
        (4, -3, -2, PadMode::Constant),
        (4, 4, 0, PadMode::Reflect),
        (4, 0, 5, PadMode::Circular),
        (4, 4, -1, PadMode::Circular),
        (0, 1, 0, PadMode::Replicate),
        (4, i64::MAX, 1, PadMode::Constant),
        (4, i64::MIN, i64::MIN, PadMode::Replicate),
        (4, -2, -2, PadMode::Reflect),
    ] {
        assert!(Pad::new(&[n], &[(before, after)], mode).is_err(), "{n} {before} {after} {mode:?}");
    }
    let mut empty: [f32; 0] = [];
    Pad::new(&[4], &[(-2, -2)], PadMode::Constant).unwrap().run(
        &Par::serial(),
        0.0,
        &[1.0; 4],
        &mut empty,
    );
    let mut filled = [0.0; 3];
    Pad::new(&[0], &[(1, 2)], PadMode::Constant).unwrap().run(
        &Par::serial(),
        5.0,
        &[],
        &mut filled,
    );
    assert_eq!(filled, [5.0; 3]);
}

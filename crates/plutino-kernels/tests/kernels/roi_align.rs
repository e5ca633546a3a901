use plutino_kernels::Par;
use plutino_kernels::sample::roi_align::*;
use plutino_reference::sample::roi_align as reference;
use plutino_reference::testkit::{assert_close, on_every_machine, random};

const BASE: RoiAlign = RoiAlign {
    batch: 2,
    channels: 3,
    size: [9, 11],
    cells: [2, 3],
    scale: 0.5,
    samples: 2,
    aligned: true,
};

#[test]
fn agrees_with_the_reference() {
    let x = random(2 * 3 * 99, 1);
    let boxes = [
        [0.0, 1.0, 2.0, 15.5, 12.0],
        [1.0, -9.0, -5.0, 40.0, 30.0],
        [1.0, 3.0, 3.0, 3.0, 3.0],
        [0.0, 20.0, 16.0, 22.0, 18.0],
        [0.0, 9.0, 9.0, 2.0, 3.0],
    ]
    .concat();
    for (samples, aligned) in [(2, true), (0, true), (3, false), (0, false)] {
        let roi = RoiAlign { samples, aligned, ..BASE };
        let expected = reference(&roi, &x, &boxes);
        on_every_machine(
            |_, par| {
                let mut y = vec![f32::NAN; 5 * 3 * 6];
                roi.run(par, &x, &boxes, &mut y).unwrap();
                y
            },
            // Positions below 32 and slopes below 2, sums of at most 49 * 4 terms.
            |found| assert_close(found, &expected, |_| 2e-5),
        );
    }
}

#[test]
fn boxes_that_make_no_sense_are_errors() {
    let x = vec![0.0f64; 2 * 3 * 99];
    let run = |b: [f64; 5]| BASE.run(&Par::serial(), &x, &b, &mut [0.0; 18]);
    assert!(matches!(run([2.0, 0.0, 0.0, 1.0, 1.0]), Err(RoiError::Image { .. })));
    assert!(matches!(run([-1.0, 0.0, 0.0, 1.0, 1.0]), Err(RoiError::Image { .. })));
    assert!(matches!(run([f64::NAN, 0.0, 0.0, 1.0, 1.0]), Err(RoiError::Image { .. })));
    assert!(matches!(run([0.0, f64::NAN, 0.0, 1.0, 1.0]), Err(RoiError::Size { .. })));
    assert!(matches!(run([0.0, 0.0, 0.0, 1e30, 1.0]), Err(RoiError::Size { .. })));
    BASE.run(&Par::serial(), &x, &[], &mut []).unwrap();
}

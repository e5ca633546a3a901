use plutino_kernels::Par;
use plutino_kernels::sample::deform::*;
use plutino_reference::sample::deform_columns as reference;
use plutino_reference::testkit::{assert_close, on_every_machine, random};

#[test]
fn agrees_with_the_reference() {
    let g = DeformGeometry {
        channels: 4,
        offset_groups: 2,
        input: [12, 9],
        output: [11, 8],
        kernel: [2, 3],
        stride: [1, 1],
        padding: [1, 2],
        dilation: [3, 2],
    };
    let wide = DeformGeometry { stride: [2, 3], output: [6, 3], ..g };
    for g in [g, wide] {
        let fields = g.offset_groups * g.taps() * g.places();
        let image = random(4 * 12 * 9, 1);
        let offset: Vec<f32> = random(2 * fields, 2).iter().map(|x| x * 4.0).collect();
        let mask = random(fields, 3);
        for mask in [None, Some(&mask[..])] {
            let expected = reference(&g, &image, &offset, mask);
            on_every_machine(
                |_, par| {
                    let mut y = vec![f32::NAN; g.columns_len()];
                    deform_columns(par, &g, &image, &offset, mask, &mut y);
                    y
                },
                // Positions below 16, slopes below 4.
                |found| assert_close(found, &expected, |_| 1e-5),
            );
        }
    }
}

#[test]
fn infinities_outside_do_not_count() {
    let g = DeformGeometry {
        channels: 1,
        offset_groups: 1,
        input: [1, 1],
        output: [1, 1],
        kernel: [1, 1],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
    };
    for offset in [f32::INFINITY, f32::NAN, 1e30, -2.0] {
        let mut y = [1.0];
        deform_columns(&Par::serial(), &g, &[f32::INFINITY], &[offset, 0.0], None, &mut y);
        assert_eq!(y, [0.0]);
    }
}

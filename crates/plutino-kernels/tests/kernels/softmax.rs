use plutino_kernels::softmax::*;
use plutino_kernels::{InOut, Isa, Par};
use plutino_reference::softmax::softmax;
use plutino_reference::testkit::{assert_close, on_every_machine, random};

const KINDS: [Softmax; 3] = [Softmax::Softmax, Softmax::Softmin, Softmax::LogSoftmax];

fn run(isa: Isa, par: &Par, kind: Softmax, shape: [usize; 3], x: &[f32]) -> Vec<f32> {
    let mut same = x.to_vec();
    softmax_f32(isa, par, kind, shape, InOut::Same(&mut same));
    let mut dst = vec![f32::NAN; x.len()];
    softmax_f32(isa, par, kind, shape, InOut::Apart { src: x, dst: &mut dst });
    assert!(plutino_reference::testkit::same_bits(&same, &dst));
    dst
}

#[test]
fn every_shape_agrees_with_the_reference() {
    let mut shapes = vec![[2, 3000, 1], [3, 70, 150], [1, 5, 64], [4, 1, 1], [2, 0, 3], [1, 1, 9]];
    for n in 1..36 {
        shapes.extend([[3, n, 1], [2, 5, n]]);
    }
    for shape in shapes {
        let x: Vec<f32> = random(shape.iter().product(), 1).iter().map(|x| 20.0 * x).collect();
        for kind in KINDS {
            let expected = softmax(kind, shape, &x);
            // exp is within 1 ULP, its argument (up to 40) within half an ULP of 40; then a
            // product or two, and the sum. The logarithm's own error counts absolutely.
            let ulp = f64::from(f32::EPSILON);
            on_every_machine(
                |isa, par| run(isa, par, kind, shape, &x),
                |found| {
                    assert_close(found, &expected, |i| match kind {
                        Softmax::LogSoftmax => 40.0 * ulp,
                        _ => (20.0 + 40.0) * ulp * expected[i],
                    });
                },
            );
            let mut any = vec![0.0f32; x.len()];
            softmax_any(&Par::serial(), kind, shape, &x, &mut any);
            assert_close(&any, &expected, |i| ulp * expected[i].abs());
        }
    }
}

#[test]
fn large_numbers_do_not_overflow() {
    const B: f32 = 3e38;
    let row = [B, -B, 1.0, 2.0, 1e5, -1e5, 0.0];
    for repeated in [1, 9] {
        for inner in [1, 5] {
            let n = row.len() * repeated;
            let shape = [1, n, inner];
            let x: Vec<f32> = (0..n * inner).map(|i| row[i / inner % row.len()]).collect();
            let share = 1.0 / repeated as f64;
            for (kind, one) in [(Softmax::Softmax, 0), (Softmax::Softmin, 1)] {
                let expected = (0..n * inner).map(|i| i / inner % row.len() == one);
                let expected: Vec<f64> =
                    expected.map(|one| if one { share } else { 0.0 }).collect();
                on_every_machine(
                    |isa, par| run(isa, par, kind, shape, &x),
                    |y| assert_close(y, &expected, |_| 1e-6),
                );
                let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                let mut any = vec![0.0; x.len()];
                softmax_any(&Par::serial(), kind, shape, &wide, &mut any);
                assert!(any.iter().zip(&expected).all(|(y, e)| (y - e).abs() < 1e-12));
            }
            on_every_machine(
                |isa, par| run(isa, par, Softmax::LogSoftmax, shape, &x),
                |y| {
                    let log = -(repeated as f32).ln();
                    // The difference overflows, as in PyTorch; what is far below keeps its
                    // digits.
                    let first = [log, f32::NEG_INFINITY, -B, -B, -B, -B, -B];
                    for (i, y) in y.iter().enumerate() {
                        let e = first[i / inner % row.len()];
                        assert!(*y == e || (y - e).abs() <= 1e-6 * e.abs().max(1.0));
                    }
                },
            );
        }
    }
}

#[test]
fn infinities_and_nan_go_as_in_pytorch() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for n in [2, 40] {
        for (special, rest, expected_special, expected_rest) in [
            (-inf, -inf, nan, nan),
            (-inf, 1.0, 0.0, 1.0 / (n - 1) as f32),
            (inf, 1.0, nan, 0.0),
            (nan, 1.0, nan, nan),
        ] {
            for shape in [[1, n, 1], [1, n, 3]] {
                let inner = shape[2];
                let mut x = vec![rest; n * inner];
                x[..inner].fill(special);
                on_every_machine(
                    |isa, par| run(isa, par, Softmax::Softmax, shape, &x),
                    |y| {
                        let expected = |i| if i < inner { expected_special } else { expected_rest };
                        let expected: Vec<f64> =
                            (0..y.len()).map(|i| f64::from(expected(i))).collect();
                        // One NaN in the row makes the sum NaN.
                        if special == inf {
                            assert!(y.iter().all(|y| y.is_nan()));
                        } else {
                            assert_close(y, &expected, |_| 1e-6);
                        }
                    },
                );
            }
        }
    }
}

use plutino_cpu::Par;
use plutino_cpu::Pool;
use plutino_fourier::fft::{Direction, Lines, load, mirror, store};
use plutino_reference::fft::dft;
use plutino_reference::testkit::random;
use plutino_tensor::Complex;

fn signal(n: usize, seed: u64) -> Vec<Complex<f64>> {
    let part = |seed| random(n, seed).into_iter().map(f64::from).collect::<Vec<_>>();
    part(seed).into_iter().zip(part(seed + 1)).map(|(re, im)| Complex::new(re, im)).collect()
}

#[test]
fn lines_agree_with_the_definition() {
    for [outer, len, inner] in [[2, 8, 1], [1, 1, 3], [3, 7, 5], [2, 30, 2], [1, 127, 1]] {
        let x = signal(outer * len * inner, 1);
        for (direction, sign) in [(Direction::Forward, -1.0), (Direction::Inverse, 1.0)] {
            let expected = dft(sign, [outer, len, inner], &x);
            for threads in [1, 3] {
                let mut y = x.clone();
                let lines = Lines::new(direction, len).unwrap();
                Pool::new(threads).enter(|par| lines.run(par, inner, &mut y)).unwrap();
                for (y, e) in y.iter().zip(&expected) {
                    // Sums of len terms below sqrt 2.
                    assert!((y - e).norm() < 2.0 * len as f64 * f64::EPSILON * 8.0, "{y} {e}");
                }
            }
        }
    }
}

#[test]
fn cropped_padded_and_mirrored() {
    let par = Par::serial();
    let mut z = [Complex::new(9.0f32, 9.0); 6];
    load(&par, (&[3, 2], &[1i32, 2, 3, 4, 5, 6]), (&[2, 3], &mut z));
    assert_eq!(z.map(|z| (z.re, z.im)), [1., 2., 0., 3., 4., 0.].map(|x| (x, 0.0)));
    let mut y = [0.0f64; 2];
    store(&par, 0.5, (&[2, 3], &z), (&[2, 1], &mut y));
    assert_eq!(y, [0.5, 1.5]);
    let half = [(1.0, 7.0), (2.0, 3.0), (4.0, 5.0)].map(|(re, im)| Complex::new(re, im));
    let mut whole = [Complex::new(0.0, 0.0); 5];
    mirror([1, 4, 1], &half, &mut whole[..4]);
    assert_eq!(
        whole[..4],
        [(1., 0.), (2., 3.), (4., 0.), (2., -3.)].map(|(re, im)| Complex::new(re, im))
    );
    mirror([1, 5, 1], &half, &mut whole);
    assert_eq!(whole[2..4], [(4., 5.), (4., -5.)].map(|(re, im)| Complex::new(re, im)));
}

use plutino_cpu::Par;
use plutino_cpu::Pool;
use plutino_fourier::fft::{Direction, Lines};
use plutino_fourier::stft::{Frames, SynthesisError, analyse, synthesise, transpose};
use plutino_reference::fft::dft;
use plutino_reference::testkit::random;
use plutino_tensor::Complex;

fn complex(values: &[f32]) -> Vec<Complex<f64>> {
    values.iter().map(|&x| Complex::new(f64::from(x), 0.0)).collect()
}

#[test]
fn there_and_back() {
    let f = Frames { batch: 3, signal: 50, frame: 10, hop: 4, count: 11 };
    let signals = complex(&random(150, 1));
    let window: Vec<_> = complex(&random(10, 2)).iter().map(|w| w + 2.0).collect();
    for threads in [1, 2] {
        Pool::new(threads).enter(|par| {
            let mut frames = vec![Complex::new(f64::NAN, 0.0); f.len()];
            let forward = Lines::new(Direction::Forward, 10).unwrap();
            analyse(par, &f, &forward, &window, &signals, &mut frames).unwrap();
            // Frame 7 of signal 1.
            let frame: Vec<_> = (0..10).map(|j| signals[50 + 28 + j] * window[j]).collect();
            let expected = dft(-1.0, [1, 10, 1], &frame);
            for (y, e) in frames[(11 + 7) * 10..].iter().zip(&expected) {
                assert!((y - e).norm() < 1e-13);
            }
            let inverse = Lines::new(Direction::Inverse, 10).unwrap();
            let half: Vec<_> = frames.chunks(10).flat_map(|f| f[..6].to_vec()).collect();
            for spectra in [&frames.clone(), &half] {
                let mut back = vec![Complex::new(f64::NAN, 0.0); 3 * 50];
                synthesise(par, &f, &inverse, 0.1, &window, spectra, &mut frames, 2..52, &mut back)
                    .unwrap();
                for (signal, back) in signals.chunks(50).zip(back.chunks(50)) {
                    let error = |(x, y): (&Complex<f64>, &Complex<f64>)| (x - y).norm();
                    assert!(signal[2..].iter().zip(back).map(error).all(|e| e < 1e-13));
                    assert_eq!(back[48..], [Complex::new(0.0, 0.0); 2]);
                }
            }
        });
    }
}

#[test]
fn a_part_of_frames_that_lie_far_apart() {
    let f = Frames { batch: 1, signal: 4 + (1 << 40), frame: 4, hop: 1 << 40, count: 2 };
    let (one, inverse) = (Complex::new(1.0f64, 0.0), Lines::new(Direction::Inverse, 4).unwrap());
    let mut spectra = [Complex::new(0.0, 0.0); 8];
    (spectra[0], spectra[4]) = (one * 4.0, one * 8.0);
    for (range, expected) in [(1..3, 1.0), ((1 << 40) + 1..(1 << 40) + 4, 2.0)] {
        let mut y = vec![one * 9.0; range.len()];
        let window = [one; 4];
        let (par, mut frames) = (Par::serial(), spectra);
        synthesise(&par, &f, &inverse, 0.25, &window, &spectra, &mut frames, range, &mut y)
            .unwrap();
        assert!(y.iter().all(|y| (y - one * expected).norm() < 1e-12), "{y:?}");
    }
    let mut y = [one; 3];
    let (par, mut frames) = (Par::serial(), spectra);
    let gap = synthesise(&par, &f, &inverse, 1.0, &[one; 4], &spectra, &mut frames, 3..6, &mut y);
    assert_eq!(gap, Err(SynthesisError::NoOverlap { at: 4 }));
}

#[test]
fn gaps_are_errors_and_transposes_crop() {
    let f = Frames { batch: 1, signal: 5, frame: 2, hop: 3, count: 2 };
    let zero = Complex::new(0.0f64, 0.0);
    let result = synthesise(
        &Par::serial(),
        &f,
        &Lines::new(Direction::Inverse, 2).unwrap(),
        1.0,
        &[Complex::new(1.0, 0.0); 2],
        &[zero; 4],
        &mut [zero; 4],
        0..5,
        &mut [zero; 5],
    );
    assert_eq!(result, Err(SynthesisError::NoOverlap { at: 2 }));
    let mut y = [0; 8];
    transpose(&Par::serial(), [2, 3, 2], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], &mut y, |x| x);
    assert_eq!(y, [0, 3, 1, 4, 6, 9, 7, 10]);
}

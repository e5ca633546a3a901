use crate::testkit::{assert_close, check, error, iota, op, random, tensor, try_op, values};
use plutino_tensor::{Complex, Tensor};

/// One transform, by definition: of `signal` from element `first` on (zeros outside), under a
/// window.
fn bin(signal: &[f32], first: isize, window: &[f32], k: usize) -> Complex<f64> {
    let n = window.len();
    let element = |j: usize| {
        let x = usize::try_from(first + j as isize).ok().and_then(|at| signal.get(at)).copied();
        let turn = (j * k % n) as f64 / n as f64;
        Complex::from_polar(
            f64::from(x.unwrap_or(0.0)) * f64::from(window[j]),
            -std::f64::consts::TAU * turn,
        )
    };
    (0..n).map(element).sum()
}

fn wide(z: Complex<f32>) -> Complex<f64> {
    Complex::new(f64::from(z.re), f64::from(z.im))
}

#[test]
fn frames_are_transformed() {
    let stft = op(
        "torch.stft s 2 1 0 1 2 center=True hop_length=3 n_fft=8 normalized=False onesided=None \
                   pad_mode=constant return_complex=True win_length=6 $input=0 $window=1",
    );
    let (x, window) = (random([2, 20], 1), random([6], 2));
    let y = check(&*stft, &[x.clone(), window.clone()]);
    assert_eq!(y[0].shape().dims(), [2, 5, 7]);
    let padded = [&[0.0][..], &values::<f32>(&window), &[0.0]].concat();
    let (x, y) = (values::<f32>(&x), values::<Complex<f32>>(&y[0]));
    for (i, &z) in y.iter().enumerate() {
        let (b, k, t) = (i / 35, i / 7 % 5, i % 7);
        let expected = bin(&x[b * 20..][..20], t as isize * 3 - 4, &padded, k);
        assert!((wide(z) - expected).norm() < 1e-6, "{i}: {z} {expected}"); // 8 terms below 1
    }
}

#[test]
fn forms_of_the_result() {
    let line = "2 1 0 1 2 center=False hop_length=2 n_fft=4";
    let x = [random([9], 3), tensor([4], &[0.5f32, 1.0, 1.0, 0.5])];
    let complex = check(
        &*op(&format!("torch.stft s {line} normalized=False onesided=False return_complex=True")),
        &x,
    );
    assert_eq!(complex[0].shape().dims(), [4, 3]);
    let complex = values::<Complex<f32>>(&complex[0]);
    let pairs = check(
        &*op(&format!("torch.stft s {line} normalized=True onesided=True return_complex=False")),
        &x,
    );
    let halved: Vec<f32> = complex[..9].iter().flat_map(|z| [z.re / 2.0, z.im / 2.0]).collect();
    assert_close(&pairs[0], &tensor([3, 3, 2], &halved), 1e-6);
    for (norm, power, factor) in [
        ("False", "2", 1.0),
        ("frame_length", "1", 0.5),
        ("window", "1.0", 1.0 / 2.5f32.sqrt()),
        ("True", "3", 1.0 / 2.5f32.sqrt()),
    ] {
        let line = format!(
            "torchaudio.functional.spectrogram s {line} normalized={norm} onesided=True pad=0 power={power}"
        );
        let p: f32 = power.parse().unwrap();
        let expected: Vec<f32> = complex[..9].iter().map(|z| (z.norm() * factor).powf(p)).collect();
        assert_close(&check(&*op(&line), &x)[0], &tensor([3, 3], &expected), 2e-5);
    }
    let leading =
        op("torchaudio.functional.spectrogram s 2 1 0 1 2 n_fft=4 hop_length=2 pad=3 power=None");
    let y = check(&*leading, &[random([2, 3, 9], 1), x[1].clone()]);
    assert_eq!(y[0].shape().dims(), [2, 3, 3, 8]);
}

#[test]
fn there_and_back() {
    let x = random([3, 30], 5);
    let window: Vec<f32> = values::<f32>(&random([8], 6)).iter().map(|w| w + 2.0).collect();
    let window = tensor([8], &window);
    for (there, back) in [
        ("normalized=True onesided=None", "normalized=True onesided=None"),
        ("normalized=False onesided=False", "normalized=False onesided=False"),
    ] {
        let line = "center=True hop_length=3 n_fft=8 win_length=8";
        let there = op(&format!(
            "torch.stft s 2 1 0 1 2 {line} {there} pad_mode=reflect return_complex=True"
        ));
        let y = check(&*there, &[x.clone(), window.clone()]).remove(0);
        let back =
            op(&format!("torch.istft s 2 1 0 1 2 {line} {back} length=30 return_complex=False"));
        let z = check(&*back, &[y, window.clone()]);
        assert_close(&z[0], &x, 1e-5);
    }
    let line =
        "center=True hop_length=3 n_fft=8 win_length=8 normalized=window onesided=True pad=2";
    let there = op(&format!("torchaudio.functional.spectrogram s 2 1 0 1 2 {line} power=None"));
    let y = check(&*there, &[x.clone(), window.clone()]).remove(0);
    let back =
        op(&format!("torchaudio.functional.inverse_spectrogram s 2 1 0 1 2 {line} length=30"));
    assert_close(&check(&*back, &[y.clone(), window.clone()])[0], &x, 1e-5);
    let all =
        op(&format!("torchaudio.functional.inverse_spectrogram s 2 1 0 1 2 {line} length=None"));
    assert_eq!(check(&*all, &[y, window])[0].shape().dims(), [3, 33]);
}

#[test]
fn complex_signals() {
    let line = "1 1 0 1 center=False hop_length=2 n_fft=4 normalized=False";
    let x: Vec<_> =
        values::<f32>(&random([20], 1)).chunks(2).map(|c| Complex::new(c[0], c[1])).collect();
    let x = tensor([10], &x);
    let y =
        check(&*op(&format!("torch.stft s {line} return_complex=True")), std::slice::from_ref(&x));
    assert_eq!(y[0].shape().dims(), [4, 4]);
    let z = check(&*op(&format!("torch.istft s {line} return_complex=True")), &y);
    let pairs = values::<Complex<f32>>(&z[0]).into_iter().zip(values::<Complex<f32>>(&x));
    assert!(pairs.map(|(a, b)| (a - b).norm()).all(|e| e < 1e-6));
    error(&*op(&format!("torch.stft s {line} onesided=True")), &[x]);
}

#[test]
fn what_makes_no_sense_is_an_error() {
    for bad in [
        "n_fft=0",
        "n_fft=4 hop_length=0",
        "n_fft=4 win_length=5",
        "n_fft=4 pad_mode=mirror",
        "n_fft=-1",
    ] {
        assert!(try_op(&format!("torch.stft s 1 1 0 1 {bad}"), &[]).is_err(), "{bad}");
    }
    let stft = op("torch.stft s 2 1 0 1 2 n_fft=8 return_complex=True");
    error(&*stft, &[iota([3]), iota([8])]); // reflects more than there is
    error(&*stft, &[iota([20]), iota([7])]);
    error(&*stft, &[iota([1, 1, 20]), iota([8])]);
    error(&*stft, &[tensor([20], &[1i32; 20]), iota([8])]);
    let istft = op("torch.istft s 2 1 0 1 2 n_fft=8 hop_length=2");
    let spectrum = |bins: usize, count: usize| -> Tensor {
        tensor([bins, count], &vec![Complex::new(1.0f32, 0.0); bins * count])
    };
    let zeros = tensor([8], &[0.0f32; 8]);
    error(&*istft, &[spectrum(5, 4), zeros.clone()]); // nothing overlaps
    error(&*istft, &[spectrum(6, 4), zeros.clone()]);
    error(&*istft, &[spectrum(5, 0), zeros.clone()]);
    error(&*istft, &[iota([5, 4]), zeros]);
}

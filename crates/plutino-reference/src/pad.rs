//! Padding, one dimension after the other, as tensors of f64.

use plutino_kernels::pad::PadMode;

/// Pads each dimension in turn.
pub fn pad(
    shape: &[usize],
    padding: &[(i64, i64)],
    mode: PadMode,
    fill: f64,
    x: &[f32],
) -> Vec<f64> {
    let mut data: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    let mut shape = shape.to_vec();
    for d in 0..shape.len() {
        let inner: usize = shape[d + 1..].iter().product();
        let (outer, size): (usize, usize) = (shape[..d].iter().product(), shape[d]);
        let mut lines = Vec::new();
        for o in 0..outer {
            for i in 0..inner {
                let line: Vec<f64> = (0..size).map(|k| data[(o * size + k) * inner + i]).collect();
                lines.push(pad_line(&line, padding[d], mode, fill));
            }
        }
        let n = (shape[d] as i64 + padding[d].0 + padding[d].1) as usize;
        data = (0..outer * n * inner)
            .map(|at| lines[at / (n * inner) * inner + at % inner][at / inner % n])
            .collect();
        shape[d] = n;
    }
    data
}

/// Crops, then adds elements one at a time.
fn pad_line(x: &[f64], (before, after): (i64, i64), mode: PadMode, fill: f64) -> Vec<f64> {
    let n = x.len() as i64;
    let cropped = &x[(-before).max(0) as usize..(n - (-after).max(0)) as usize];
    let beyond = |i: i64| match mode {
        PadMode::Constant => fill,
        PadMode::Reflect => x[if i < 0 { -i } else { 2 * (n - 1) - i } as usize],
        PadMode::Replicate => x[i.clamp(0, n - 1) as usize],
        PadMode::Circular => {
            let (m, first) = (cropped.len() as i64, (-before).max(0));
            cropped[((i - first) % m + m) as usize % m as usize]
        }
    };
    let mut out: Vec<f64> = (0..before.max(0)).map(|k| beyond(k - before)).collect();
    out.extend(cropped);
    out.extend((0..after.max(0)).map(|k| beyond(n + k)));
    out
}

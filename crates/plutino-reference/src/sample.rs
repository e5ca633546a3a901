//! Samples between pixels, straight from the formulas: positions and weights in f64, every pixel of
//! the image looked at.

use plutino_kernels::sample::deform::DeformGeometry;
use plutino_kernels::sample::grid::{GridSample, Mode, Padding};
use plutino_kernels::sample::roi_align::RoiAlign;

/// See [`GridSample::run`]. Positions are computed in f32, as a nearest pixel depends on their last
/// bit.
pub fn grid_sample(s: &GridSample, x: &[f32], grid: &[f32]) -> Vec<f64> {
    let rank = s.size.len();
    let volume: usize = s.size.iter().product();
    let mut out = Vec::with_capacity(s.batch * s.channels * s.points);
    for n in 0..s.batch {
        for c in 0..s.channels {
            for p in 0..s.points {
                let point = &grid[(n * s.points + p) * rank..][..rank];
                let image = &x[(n * s.channels + c) * volume..][..volume];
                out.push(sample(s, image, point));
            }
        }
    }
    out
}

fn sample(s: &GridSample, image: &[f32], point: &[f32]) -> f64 {
    let mut sum = 0.0;
    // All pixels for two sizes around: what is outside is mirrored, moved to the border, or 0.
    let far: Vec<i64> = s.size.iter().map(|&n| 2 * n as i64 + 4).collect();
    let lens: Vec<i64> = far.iter().map(|f| 2 * f).collect();
    for i in 0..lens.iter().product::<i64>() {
        let (mut left, mut weight, mut at, mut step) = (i, 1.0, Some(0), 1);
        for d in (0..lens.len()).rev() {
            let pixel = left % lens[d] - far[d];
            left /= lens[d];
            let x = point[lens.len() - 1 - d];
            weight *= weight_of(s, x, pixel, s.size[d]);
            if weight == 0.0 {
                break;
            }
            at = at.zip(inside(s, pixel, s.size[d])).map(|(at, i)| at + i * step);
            step *= s.size[d];
        }
        if weight != 0.0 {
            sum += weight * at.map_or(0.0, |at| f64::from(image[at]));
        }
    }
    sum
}

/// The weight of pixel `k` of an endless image for a coordinate.
fn weight_of(s: &GridSample, x: f32, k: i64, size: usize) -> f64 {
    let n = size as f32;
    let position =
        if s.align_corners { (x + 1.0) / 2.0 * (n - 1.0) } else { ((x + 1.0) * n - 1.0) / 2.0 };
    if s.align_corners && size == 1 && s.padding != Padding::Zeros {
        return f64::from(k == 0);
    }
    let d = (f64::from(position) - k as f64).abs();
    match s.mode {
        Mode::Nearest => f64::from(position.round_ties_even() == k as f32),
        Mode::Linear => (1.0 - d).max(0.0),
        Mode::Cubic if d <= 1.0 => 1.25 * d.powi(3) - 2.25 * d.powi(2) + 1.0,
        Mode::Cubic if d < 2.0 => -0.75 * (d.powi(3) - 5.0 * d.powi(2) + 8.0 * d - 4.0),
        Mode::Cubic => 0.0,
    }
}

/// The pixel that stands for pixel `k` of an endless image.
fn inside(s: &GridSample, mut k: i64, size: usize) -> Option<usize> {
    let n = size as i64;
    while s.padding == Padding::Reflection && !(0..n).contains(&k) {
        if n == 1 {
            k = 0;
        } else if k < 0 {
            k = if s.align_corners { -k } else { -1 - k };
        } else {
            k = if s.align_corners { 2 * (n - 1) - k } else { 2 * n - 1 - k };
        }
    }
    if s.padding == Padding::Border {
        k = k.clamp(0, n - 1);
    }
    (0..n).contains(&k).then_some(k as usize)
}

/// See [`RoiAlign::run`].
pub fn roi_align(r: &RoiAlign, x: &[f32], boxes: &[f32]) -> Vec<f64> {
    let [h, w] = r.size;
    let mut out = Vec::new();
    for b in boxes.chunks(5) {
        let half = if r.aligned { 0.5 } else { 0.0 };
        let at = |i: usize| f64::from(b[i]) * r.scale - half;
        let least = if r.aligned { f64::NEG_INFINITY } else { 1.0 };
        let (height, width) = ((at(4) - at(2)).max(least), (at(3) - at(1)).max(least));
        let cell = [height / r.cells[0] as f64, width / r.cells[1] as f64];
        let samples =
            cell.map(|c| if r.samples == 0 { c.ceil().max(0.0) as usize } else { r.samples });
        for c in 0..r.channels {
            let plane = &x[(b[0] as usize * r.channels + c) * h * w..][..h * w];
            for i in 0..r.cells[0] * r.cells[1] {
                let [row, column] = [i / r.cells[1], i % r.cells[1]].map(|i| i as f64);
                let mut sum = 0.0;
                for sy in 0..samples[0] {
                    for sx in 0..samples[1] {
                        let y = at(2) + cell[0] * (row + (sy as f64 + 0.5) / samples[0] as f64);
                        let x = at(1) + cell[1] * (column + (sx as f64 + 0.5) / samples[1] as f64);
                        if y < -1.0 || x < -1.0 || y > h as f64 || x > w as f64 {
                            continue;
                        }
                        let (y, x) = (y.clamp(0.0, h as f64 - 1.0), x.clamp(0.0, w as f64 - 1.0));
                        for (k, &value) in plane.iter().enumerate() {
                            let wy = (1.0 - (y - (k / w) as f64).abs()).max(0.0);
                            let wx = (1.0 - (x - (k % w) as f64).abs()).max(0.0);
                            sum += wy * wx * f64::from(value);
                        }
                    }
                }
                out.push(sum / (samples[0] * samples[1]).max(1) as f64);
            }
        }
    }
    out
}

/// See [`deform_columns`](plutino_kernels::sample::deform::deform_columns).
pub fn deform_columns(
    g: &DeformGeometry,
    image: &[f32],
    offset: &[f32],
    mask: Option<&[f32]>,
) -> Vec<f64> {
    let (taps, places, [h, w]) = (g.taps(), g.places(), g.input);
    let mut out = Vec::with_capacity(g.columns_len());
    for i in 0..g.columns_len() {
        let (channel, tap, place) = (i / places / taps, i / places % taps, i % places);
        let field = channel / (g.channels / g.offset_groups) * taps + tap;
        let at = |d: usize, place: usize, tap: usize| {
            (place * g.stride[d] + tap * g.dilation[d]) as f64 - g.padding[d] as f64
        };
        let moved = |d: usize| f64::from(offset[(field * 2 + d) * places + place]);
        let y = at(0, place / g.output[1], tap / g.kernel[1]) + moved(0);
        let x = at(1, place % g.output[1], tap % g.kernel[1]) + moved(1);
        let mut sum = 0.0;
        for (k, &value) in image[channel * h * w..][..h * w].iter().enumerate() {
            let wy = (1.0 - (y - (k / w) as f64).abs()).max(0.0);
            let wx = (1.0 - (x - (k % w) as f64).abs()).max(0.0);
            sum += wy * wx * f64::from(value);
        }
        out.push(sum * mask.map_or(1.0, |m| f64::from(m[field * places + place])));
    }
    out
}

//! What pictures cost beside a detector: `cargo test --release -p plutino-vision --test cost --
//! --ignored --nocapture`.
//!
//! *Measured* (AMD EPYC Zen 4, one thread, best of 25, 2026-11-24): letterbox 4.9 ms, boxes 0.05,
//! suppression 0.15: 4.5 % of YOLOv5s' 115 ms on one thread, and 9 % of its 57 ms on two.

use std::time::Instant;

use plutino::{Tensor, TensorError};
use plutino_vision::{Boxes, Pixels, Recipe, Size, Suppressor, Wanted};

/// Rows of YOLOv5s' output for 640 x 640, and numbers in each.
const ROWS: [usize; 2] = [25_200, 85];

/// The best of so many runs, in milliseconds.
fn best<R>(work: impl Fn() -> R) -> f64 {
    let mut times: Vec<f64> = (0..25)
        .map(|_| {
            let start = Instant::now();
            let done = work();
            let time = start.elapsed().as_secs_f64() * 1e3;
            drop(done);
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[0]
}

/// An output in which every n-th row is an object, in a cluster with its neighbours.
fn output(every: usize) -> Result<Tensor, TensorError> {
    let [rows, columns] = ROWS;
    let mut numbers = vec![0.01f32; rows * columns];
    for (at, row) in numbers.chunks_exact_mut(columns).enumerate().step_by(every) {
        let cell = (at / (4 * every)) as f32;
        let inside = (at / every % 4) as f32;
        row[0] = 30.0 + (cell * 37.0) % 580.0 + inside;
        row[1] = 30.0 + (cell * 53.0) % 580.0 - inside;
        (row[2], row[3]) = (40.0, 60.0);
        row[4] = 0.9 - inside * 0.1;
        row[5 + at % (columns - 5)] = 0.9;
    }
    Tensor::from_slice(&numbers, [1, rows, columns])
}

/// A photo of 1080 x 810 fitted into 640 x 640; then what a crowded picture gives: 400 rows above
/// the threshold.
#[test]
#[ignore = "measures"]
#[allow(clippy::print_stdout)]
fn preparing_and_suppressing_take_little() {
    let size = Size { height: 1080, width: 810 };
    let bytes = (0..1080 * 810 * 3).map(|i| (i * 31 % 251) as u8).collect();
    let picture = Pixels::new(size, 3, bytes).unwrap();
    let wanted = Wanted { channels: 3, size: Some(Size { height: 640, width: 640 }) };
    let recipe = Recipe::of_detector(wanted);
    let suppressor = Suppressor::new(0.45).unwrap();
    let outputs = [output(63).unwrap()];
    let read = || Boxes::read(&outputs, None, 0.25).unwrap();
    let found = read().found;
    assert_eq!(found.len(), 400);
    let letterbox = best(|| recipe.prepare(&picture, wanted).unwrap());
    let reading = best(read);
    let suppressing = best(|| suppressor.suppress(found.clone(), 300).unwrap());
    println!("letterbox {letterbox:.2} ms, boxes {reading:.2} ms, suppression {suppressing:.2} ms");
}

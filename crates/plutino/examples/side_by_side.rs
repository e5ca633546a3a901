//! Two models at the same time on one machine: how long runs of each take when both have threads on
//! all cores, and when each has a context of its own.
//!
//! `cargo run --release -p plutino --example side_by_side [MODEL OTHER [SECONDS]]` measures models
//! of yours, on inputs of the shapes that their files record.
#![allow(clippy::print_stdout)] // examples report on the terminal

mod support;

use plutino::ir::Graph;
use plutino::{Context, Model, Session, SessionOptions, Tensor};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::inputs;

/// Products of square matrices, one after the other.
fn chain(steps: usize, size: usize) -> Result<Model, Box<dyn Error>> {
    let mut lines = format!("pnnx.Input in 0 1 0 #0=(1,{size},{size})f32\n");
    for i in 0..steps {
        lines += &format!("torch.matmul product{i} 2 1 {i} {i} {0}\n", i + 1);
    }
    let text =
        format!("7767517\n{} {}\n{lines}pnnx.Output out 1 0 {steps}\n", steps + 2, steps + 1);
    Ok(Model::from_graph(Graph::parse(&text)?)?)
}

/// Runs until told to stop; how many milliseconds each took.
fn stream(session: &Session, inputs: &[Tensor], stop: &AtomicBool) -> Vec<f64> {
    let (mut times, mut outputs) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        if session.run_into(inputs, &mut outputs).is_err() {
            return Vec::new();
        }
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times
}

/// Median and 99th percentile.
fn figures(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [0.5, 0.99].map(|share| {
        let at = (times.len() as f64 * share) as usize;
        times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    })
}

/// Streams of all sessions at the same time.
fn together(
    sessions: &[(&Session, &[Tensor])],
    time: Duration,
) -> Result<Vec<[f64; 2]>, Box<dyn Error>> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let streams: Vec<_> = sessions
            .iter()
            .map(|&(session, inputs)| scope.spawn(move || stream(session, inputs, stop)))
            .collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let joined = streams.into_iter().map(|s| s.join().map(figures));
        joined.collect::<Result<_, _>>().map_err(|_| "a stream panicked".into())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let models = match &arguments[..] {
        [first, other, ..] => [Model::load(first)?, Model::load(other)?],
        _ => [chain(24, 96)?, chain(4, 384)?],
    };
    let seconds = arguments.get(2).map_or(Ok(1.0), |seconds| seconds.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let inputs = [inputs(&models[0])?, inputs(&models[1])?];
    let cores = std::thread::available_parallelism()?.get();
    let all = SessionOptions::default().with_threads(cores);
    let wide = [models[0].session(all.clone())?, models[1].session(all)?];
    let contexts = match cores {
        1 => vec![Context::of_threads(1)?; 2],
        _ => Context::split(2)?,
    };
    let own =
        |i: usize| models[i].session(SessionOptions::default().with_context(contexts[i].clone()));
    let own = [own(0)?, own(1)?];

    println!("milliseconds of a run: median, 99th percentile");
    let show = |what: &str, found: &[[f64; 2]]| {
        let figures = found.iter().map(|[median, p99]| format!("{median:8.3} {p99:8.3}"));
        println!("{what:36}{}", figures.collect::<Vec<_>>().join("   "));
    };
    for (what, sessions) in [("all cores", &wide), ("a context of its own", &own)] {
        let alone = [0, 1].map(|i| together(&[(&sessions[i], &inputs[i][..])], time));
        let [first, second] = alone;
        show(&format!("{what}, alone"), &[first?, second?].concat());
        let both = [(&sessions[0], &inputs[0][..]), (&sessions[1], &inputs[1][..])];
        show(&format!("{what}, both"), &together(&both, time)?);
    }
    Ok(())
}

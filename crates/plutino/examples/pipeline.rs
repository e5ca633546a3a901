//! A stream of images through two contexts: the next image is in the first half of the model while
//! this one is in the second. Compared with all threads on one image after the other.
//!
//! `cargo run --release -p plutino --example pipeline [MODEL [ROUNDS]]` measures a model of yours,
//! on inputs of the shapes that its file records.
#![allow(clippy::print_stdout)] // examples report on the terminal

mod support;

use plutino::ir::Graph;
use plutino::{Context, Model, Placement, Queue, QueueOptions, Request, SessionOptions};
use std::error::Error;
use std::time::{Duration, Instant};
use support::inputs;

/// Products and norms of small matrices, one after the other.
fn chain(steps: usize) -> Result<Model, Box<dyn Error>> {
    let mut lines = String::from("pnnx.Input in 0 1 0 #0=(1,96,96)f32\n");
    for i in 0..steps {
        let next = i + 1;
        lines += &match i % 2 {
            0 => format!("torch.matmul product{i} 2 1 {i} {i} {next}\n"),
            _ => format!("nn.Softmax softmax{i} 1 1 {i} {next} dim=2\n"),
        };
    }
    let text =
        format!("7767517\n{} {}\n{lines}pnnx.Output out 1 0 {steps}\n", steps + 2, steps + 1);
    Ok(Model::from_graph(Graph::parse(&text)?)?)
}

/// Runs a number of requests, all in the queue at once; how long one takes on average.
fn stream(queue: &Queue, request: &Request<'_>, images: u32) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let handles = (0..images).map(|_| queue.submit(request)).collect::<Result<Vec<_>, _>>()?;
    for handle in handles {
        handle.wait()?;
    }
    Ok(start.elapsed() / images)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = match arguments.next() {
        Some(path) => Model::load(path)?,
        None => chain(24)?,
    };
    let rounds: usize = arguments.next().map_or(Ok(3), |rounds| rounds.parse())?;
    let inputs = inputs(&model)?;
    let names: Vec<String> = model.inputs().iter().map(|input| input.name.clone()).collect();
    let feeds = names.iter().zip(&inputs);
    let request = feeds.fold(Request::new(), |request, (name, x)| request.feed(name, x));

    // All threads on one image after the other.
    let all = model.session(SessionOptions::default())?;
    let expected = all.run_with(&request)?;
    // One thread on each image, two images at a time.
    let each = model.session(SessionOptions::default().with_threads(1))?;
    // Two stages, balanced by the times of a run on one thread.
    let (_, profile) = each.profile_request(&request)?;
    let (_, profile) = each.profile_request(&request).unwrap_or((Vec::new(), profile));
    let contexts = match Context::split(2) {
        Ok(contexts) => contexts,
        Err(_) => vec![Context::of_threads(1)?, Context::of_threads(1)?], // one core alone
    };
    let placement = Placement::new().measured_by(&profile);
    let options = SessionOptions::default().with_contexts(contexts).with_placement(placement);
    let stages = model.session(options)?;
    let plan = stages.plan_request(&request)?;
    println!("{} phases, stages of {:?}", plan.phases().len(), plan.placement().loads);
    assert_eq!(stages.run_with(&request)?, expected);

    let depth = QueueOptions::default().with_depth(64);
    let all = Queue::new(all, depth.clone())?;
    let each = Queue::new(each, depth.clone().with_workers(2))?;
    let stages = Queue::new(stages, depth.with_workers(2))?;
    let once = stream(&all, &request, 2)?.max(Duration::from_micros(1));
    let images = (0.1 / once.as_secs_f64()).clamp(4.0, 1000.0) as u32;
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (queue, times) in [&all, &stages, &each].into_iter().zip(&mut times) {
            times.push(stream(queue, &request, images)?.as_secs_f64() * 1e6);
        }
    }
    let [all, stages, each] = times.map(median);
    println!("all threads on an image: {all:.0} µs an image");
    println!("two stages:              {stages:.0} µs, {:.2} x as many images", all / stages);
    println!("a thread for each image: {each:.0} µs, {:.2} x as many images", all / each);
    Ok(())
}

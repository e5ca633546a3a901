//! Whether running independent operators at the same time pays: pairs of runs, with and without.
//!
//! ```sh
//! cargo run --release --example dispatch -- [--threads N] [--rounds N] [MODEL ...]
//! ```
//!
//! Without a model, of nets of many small branches that are made here. Runs alternate, so that
//! whatever else the machine does meets both alike; what is shown are medians of all rounds.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::ir::Graph;
use plutino::{Dispatch, Model, Session, SessionOptions, Tensor, TensorSpec};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let (mut threads, mut rounds, mut models) = (2, 200, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).ok_or("a number is missing");
        match arg.as_str() {
            "--threads" => threads = number()?,
            "--rounds" => rounds = number()?,
            path => models.push((path.to_owned(), Model::load(path)?)),
        }
    }
    if models.is_empty() {
        for (count, rows, width) in
            [(64, 1, 16), (64, 8, 64), (32, 16, 128), (8, 4, 64), (4, 8, 128)]
        {
            let name = format!("{count} branches of {width} x {width}, {rows} rows");
            models.push((name, branches(count, rows, width)?));
        }
    }
    println!("{:<40} {:>10} {:>10} {:>7} {:>7}", "model", "in turn", "by cost", "ratio", "chains");
    for (name, model) in models {
        let session = |dispatch| {
            model.session(SessionOptions::default().with_threads(threads).with_dispatch(dispatch))
        };
        let (in_turn, by_cost) = (session(Dispatch::InTurn)?, session(Dispatch::ByCost)?);
        let inputs = inputs(&model)?;
        let specs: Vec<TensorSpec> = inputs.iter().map(Tensor::spec).collect();
        let plan = by_cost.plan(&specs)?;
        let chains: usize = plan.phases().map(|phase| phase.chains.len()).sum();
        let how = if plan.runs_alone() { "alone".to_owned() } else { chains.to_string() };
        assert!(in_turn.run(&inputs)? == by_cost.run(&inputs)?, "the same bits");
        let [a, b] = pairs([&in_turn, &by_cost], &inputs, rounds)?;
        let ratio = b.as_secs_f64() / a.as_secs_f64();
        println!("{name:<40} {a:>10.1?} {b:>10.1?} {ratio:>7.3} {how:>7}");
    }
    Ok(())
}

/// The medians of both sessions' times.
fn pairs(sessions: [&Session; 2], inputs: &[Tensor], rounds: usize) -> Outcome<[Duration; 2]> {
    let mut outputs = Vec::new();
    let start = Instant::now();
    sessions[0].run_into(inputs, &mut outputs)?;
    // A slice is long enough that what one session leaves in caches does not matter to the other.
    let each = (2e-3 / start.elapsed().as_secs_f64()).clamp(1.0, 200.0) as usize;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for which in [round % 2, 1 - round % 2] {
            for run in 0..=each {
                let start = Instant::now();
                sessions[which].run_into(inputs, &mut outputs)?;
                if run > 0 {
                    times[which].push(start.elapsed());
                }
            }
        }
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    }))
}

/// Numbers for every input, in the shape that the file has.
fn inputs(model: &Model) -> Outcome<Vec<Tensor>> {
    let input = |info: &plutino::ValueInfo| {
        let spec = info.recorded.to_string();
        let shape: Vec<usize> = spec
            .trim_start_matches('(')
            .split(')')
            .next()
            .unwrap_or_default()
            .split(',')
            .map(|size| size.parse().unwrap_or(1))
            .collect();
        let count = shape.iter().product();
        let numbers: Vec<f32> =
            (0..count).map(|i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        Tensor::from_slice(&numbers, shape)
    };
    Ok(model.inputs().iter().map(input).collect::<Result<_, _>>()?)
}

/// Branches of two linear layers with a ReLU between and a softmax, side by side, joined.
fn branches(count: usize, rows: usize, width: usize) -> Outcome<Model> {
    let mut lines = vec![format!("pnnx.Input in 0 1 0 #0=({rows},{width})f32")];
    let linear = |name: &str, from: usize, to: usize| {
        format!(
            "nn.Linear {name} 1 1 {from} {to} bias=True in_features={width} out_features={width} \
             @bias=({width})f32 @weight=({width},{width})f32"
        )
    };
    for i in 0..count {
        let at = 1 + 4 * i;
        lines.push(linear(&format!("a{i}"), 0, at));
        lines.push(format!("nn.ReLU r{i} 1 1 {at} {}", at + 1));
        lines.push(linear(&format!("b{i}"), at + 1, at + 2));
        lines.push(format!("F.softmax s{i} 1 1 {} {} dim=-1 $input={}", at + 2, at + 3, at + 2));
    }
    let last = 1 + 4 * count;
    let parts: String = (0..count).map(|i| format!(" {}", 4 + 4 * i)).collect();
    lines.push(format!("torch.cat cat {count} 1{parts} {last} dim=-1"));
    lines.push(format!("pnnx.Output out 1 0 {last}"));
    let text = format!("7767517\n{} {}\n{}\n", lines.len(), last + 1, lines.join("\n"));
    let mut graph = Graph::parse(&text)?;
    let ids: Vec<_> = graph.operators().map(|(id, _)| id).collect();
    for id in ids {
        for attr in graph.attrs_mut(id)?.values_mut() {
            let bytes = 0..attr.element_count();
            let number = |i: usize| (i * 7919 % 31) as f32 / 64.0 - 0.25;
            attr.set_data(bytes.flat_map(|i| number(i).to_le_bytes()).collect::<Vec<u8>>())?;
        }
    }
    Ok(Model::from_graph(graph)?)
}

//! `cargo xtask steps`: what single steps of a decoder take, and what it takes of them to bind the
//! plan to a new length.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use comfy_table::{CellAlignment, Table, presets};
use plutino::ir::Graph;
use plutino::{Model, Request, Session, SessionOptions, Tensor, ValueInfo};

/// Time steps of a decoder whose caches grow, for caches of several lengths
///
/// The decoder has four layers, 128 wide, with 4 heads of 32, and made-up weights. Times are those
/// of steps with a state: binding the plan to the new length, the rest of the step, and both; and,
/// for comparison, of a run with a plan that was made for the length and is kept, into tensors that
/// are there. Medians, and the least, in microseconds. In a release: cargo run --release -p xtask
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rows in the caches.
    #[arg(long, value_delimiter = ',', default_value = "10,100,590,1000")]
    rows: Vec<usize>,
    /// Steps for each.
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// Threads of the session.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

const LAYERS: usize = 4;
const WIDTH: usize = 128;
const HEADS: usize = 4;
const INNER: usize = 512;

pub(crate) fn run(args: &Args) -> Result<()> {
    let model = Model::from_graph(decoder()?)?;
    let options = SessionOptions::default().with_threads(args.threads.max(1));
    let mut table = Table::new();
    let header = ["rows", "bind", "rest of the step", "step", "kept plan", "step / kept plan"];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    for &rows in &args.rows {
        let steps = args.steps.max(1);
        let (bind, rest) = with_state(&model, &model.session(options.clone())?, rows, steps)?;
        let whole: Vec<Duration> = bind.iter().zip(&rest).map(|(a, b)| *a + *b).collect();
        let kept = kept(&model, &model.session(options.clone())?, rows + steps / 2, steps)?;
        let ratio = median(&whole).as_secs_f64() / median(&kept).as_secs_f64();
        let cells = [&bind, &rest, &whole, &kept].map(|times| cell(times));
        let cells = [rows.to_string()].into_iter().chain(cells);
        table.add_row(cells.chain([format!("{ratio:.2}")]).collect::<Vec<_>>());
    }
    println!("{table}");
    Ok(())
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn cell(times: &[Duration]) -> String {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let least = times.iter().min().copied().unwrap_or_default();
    format!("{:.1} ({:.1})", us(median(times)), us(least))
}

/// Steps with a state that begins with so many rows: binding, and the rest of each.
fn with_state(
    model: &Model,
    session: &Session,
    rows: usize,
    steps: usize,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let mut state = session.state();
    for cache in caches() {
        state.carry(&cache, &format!("p{cache}"))?;
        state.start(&format!("p{cache}"), numbers(&[1, HEADS, rows, WIDTH / HEADS], 7)?)?;
    }
    let inputs = inputs(model, rows)?;
    let x = inputs.first().ok_or_else(|| anyhow!("no input"))?;
    let request = Request::new().feed("x0", x);
    let (mut bind, mut rest) = (Vec::new(), Vec::new());
    // The first ones open the plan, and pack weights.
    for step in 0..steps + 3 {
        let start = Instant::now();
        session.plan_with_state(&state, &request)?;
        let bound = Instant::now();
        session.run_with_state(&mut state, std::slice::from_ref(x))?;
        if step >= 3 {
            bind.push(bound - start);
            rest.push(bound.elapsed());
        }
    }
    Ok((bind, rest))
}

/// Runs with one plan for caches of so many rows.
fn kept(model: &Model, session: &Session, rows: usize, steps: usize) -> Result<Vec<Duration>> {
    let inputs = inputs(model, rows)?;
    let mut outputs = Vec::new();
    let mut times = Vec::new();
    for step in 0..steps + 3 {
        let start = Instant::now();
        session.run_into(&inputs, &mut outputs)?;
        if step >= 3 {
            times.push(start.elapsed());
        }
    }
    Ok(times)
}

/// Names of the caches, as they are after a step.
fn caches() -> impl Iterator<Item = String> {
    (0..LAYERS).flat_map(|layer| ["k", "v"].map(|which| format!("{which}{layer}")))
}

fn inputs(model: &Model, rows: usize) -> Result<Vec<Tensor>> {
    let one = |(at, input): (usize, &ValueInfo)| match input.name.as_str() {
        "x0" => numbers(&[1, 1, WIDTH], at),
        _ => numbers(&[1, HEADS, rows, WIDTH / HEADS], at),
    };
    model.inputs().iter().enumerate().map(one).collect()
}

fn numbers(shape: &[usize], seed: usize) -> Result<Tensor> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 997) as f32 / 500.0 - 1.0;
    let numbers: Vec<f32> = (0..shape.iter().product()).map(number).collect();
    Ok(Tensor::from_slice(&numbers, shape.iter().copied().collect::<plutino::Shape>())?)
}

/// A step of a decoder, as pnnx writes one with open lengths.
fn decoder() -> Result<Graph> {
    let size = WIDTH / HEADS;
    let cache = format!("(1,{HEADS},?,{size})f32");
    let mut lines = vec![format!("pnnx.Input in 0 1 x0 #x0=(1,1,{WIDTH})f32")];
    lines.extend(caches().map(|name| format!("pnnx.Input in{name} 0 1 p{name} #p{name}={cache}")));
    let linear = |name: &str, from: &str, to: &str, (n, m): (usize, usize)| {
        format!(
            "nn.Linear {name} 1 1 {from} {to} bias=True in_features={n} out_features={m} \
             @bias=({m})f32 @weight=({m},{n})f32"
        )
    };
    let norm = |name: &str, from: &str, to: &str| {
        format!(
            "nn.LayerNorm {name} 1 1 {from} {to} elementwise_affine=True eps=0.00001 \
             normalized_shape=({WIDTH}) @bias=({WIDTH})f32 @weight=({WIDTH})f32"
        )
    };
    for l in 0..LAYERS {
        lines.push(norm(&format!("n{l}"), &format!("x{l}"), &format!("y{l}")));
        for c in ["q", "k", "v"] {
            let (from, to) = (format!("y{l}"), format!("{c}a{l}"));
            lines.push(linear(&format!("{c}{l}"), &from, &to, (WIDTH, WIDTH)));
            lines.push(format!(
                "Tensor.reshape r{c}{l} 1 1 {c}a{l} {c}b{l} shape=(1,1,{HEADS},{size})"
            ));
            lines.push(format!("torch.transpose t{c}{l} 1 1 {c}b{l} {c}c{l} dim0=1 dim1=2"));
        }
        for c in ["k", "v"] {
            lines.push(format!(
                "torch.cat j{c}{l} 2 1 p{c}{l} {c}c{l} {c}{l} dim=2 #{c}{l}={cache}"
            ));
        }
        lines.push(format!(
            "F.scaled_dot_product_attention a{l} 3 1 qc{l} k{l} v{l} a{l} attn_mask=None \
             dropout_p=0.0 is_causal=False $query=qc{l} $key=k{l} $value=v{l}"
        ));
        lines.push(format!("torch.transpose b{l} 1 1 a{l} b{l} dim0=1 dim1=2"));
        lines.push(format!("Tensor.reshape c{l} 1 1 b{l} c{l} shape=(1,1,{WIDTH})"));
        lines.push(linear(&format!("o{l}"), &format!("c{l}"), &format!("d{l}"), (WIDTH, WIDTH)));
        lines.push(format!("pnnx.Expression s{l} 2 1 x{l} d{l} e{l} expr=add(@0,@1)"));
        lines.push(norm(&format!("m{l}"), &format!("e{l}"), &format!("f{l}")));
        lines.push(linear(&format!("u{l}"), &format!("f{l}"), &format!("g{l}"), (WIDTH, INNER)));
        lines.push(format!("F.gelu h{l} 1 1 g{l} h{l}"));
        lines.push(linear(&format!("w{l}"), &format!("h{l}"), &format!("i{l}"), (INNER, WIDTH)));
        lines.push(format!("pnnx.Expression z{l} 2 1 e{l} i{l} x{} expr=add(@0,@1)", l + 1));
    }
    let results = [format!("x{LAYERS}")].into_iter().chain(caches()).enumerate();
    lines.extend(results.map(|(at, name)| format!("pnnx.Output out{at} 1 0 {name}")));
    let made = lines.iter().filter_map(|line| line.split(' ').nth(3)?.parse::<usize>().ok());
    let text = format!("7767517\n{} {}\n{}\n", lines.len(), made.sum::<usize>(), lines.join("\n"));
    let mut graph = Graph::parse(&text)?;
    for id in graph.operator_ids().to_vec() {
        for attr in graph.attrs_mut(id)?.values_mut() {
            let number = |i: usize| ((i * 7919) % 31) as f32 / 256.0 - 0.06;
            let bytes = (0..attr.element_count()).flat_map(|i| number(i).to_le_bytes());
            attr.set_data(bytes.collect::<Vec<u8>>())?;
        }
    }
    Ok(graph)
}

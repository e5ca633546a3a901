//! Runs rows, and looks at what they take.

use plutino::ir::Graph;
use plutino::{DType, Model, SessionOptions, Shape, Tensor};
use plutino_attack::trial;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a session may take, and what the process may take beyond it, in MiB.
const BUDGET: usize = 64;
const EXTRA: f64 = 64.0;

/// Memory of a graph for each byte of its text.
const PER_BYTE: f64 = 32.0;

/// What is promised of a release on a machine with nothing else to do.
const PROMISED: Duration = Duration::from_millis(100);

/// Debug builds are some ten times slower than what is promised, and machines are busy.
const FACTOR: u32 = if cfg!(debug_assertions) { 40 } else { 4 };

/// A large file may take so many times as long: 10^5 operators are 5 MB of text.
pub(crate) const LARGE: u32 = 20;

/// Memory is measured for the whole process, so rows run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Operator lines with the right header.
pub(crate) fn text<S: AsRef<str>>(lines: &[S]) -> String {
    let mut operands = 0;
    let mut all = String::new();
    for line in lines {
        let line = line.as_ref();
        operands += line.split(' ').nth(3).map_or(0, |n| n.parse::<usize>().unwrap_or(0));
        all.push_str(line);
        all.push('\n');
    }
    format!("7767517\n{} {operands}\n{all}", lines.len())
}

/// A model of one operator with the inputs `a`, `b`, ..., whose result `y` is the only output.
pub(crate) fn single(kind: &str, inputs: &[&str], params: &str) -> String {
    let names = ["a", "b", "c", "d", "e"];
    let mut lines: Vec<String> = Vec::new();
    for (name, ty) in names.iter().zip(inputs) {
        lines.push(format!("pnnx.Input in_{name} 0 1 {name} #{name}={ty}"));
    }
    let read = names[..inputs.len()].join(" ");
    let line = format!("{kind} op {} 1 {read} y {params}", inputs.len());
    lines.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.push("pnnx.Output out 1 0 y".into());
    text(&lines)
}

/// Loads, plans and runs on ones (integers are 1, and weights are as well).
fn attempt(text: &str) -> Result<Vec<Tensor>, String> {
    let mut graph = Graph::parse(text).map_err(|e| told(&e))?;
    let ids: Vec<_> = graph.operators().map(|(id, _)| id).collect();
    for id in ids {
        for attr in graph.attrs_mut(id).unwrap().values_mut() {
            let dtype = DType::from_name(attr.dtype().name()).unwrap();
            if attr.byte_len() <= 1 << 20 {
                let ones = Tensor::ones(dtype, Shape::from(attr.shape().to_vec())).unwrap();
                attr.set_data(ones.as_bytes().to_vec()).unwrap();
            }
        }
    }
    let model = Model::from_graph(graph).map_err(|e| told(&e))?;
    let options = SessionOptions::default().with_threads(1).with_memory_budget(BUDGET << 20);
    let session = model.session(options).map_err(|e| told(&e))?;
    let ones = model.inputs().iter().map(|input| {
        let shape = input.recorded.known_shape().expect("rows record their inputs");
        let dtype = DType::from_name(input.recorded.dtype.unwrap().name()).unwrap();
        Tensor::ones(dtype, Shape::from(shape)).unwrap()
    });
    session.run(&ones.collect::<Vec<_>>()).map_err(|e| told(&e))
}

fn told(error: &dyn std::fmt::Display) -> String {
    trial::fit(error).unwrap_or_else(|fault| panic!("{fault}"));
    error.to_string()
}

/// A line of `/proc/self/status` in MiB; 0 where there is none.
fn status(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// What is wrong with what came of a row; nothing where it is as it must be.
fn judged(name: &str, made: &Result<Vec<Tensor>, String>, expected: &str) -> Option<String> {
    match (made, expected.split_at(1)) {
        (Err(message), ("!", word)) if message.contains(word.trim()) => None,
        (Ok(outputs), ("=", " none")) if outputs.is_empty() => None,
        (Ok(outputs), _) if outputs.is_empty() => Some(format!("{name}: no result")),
        (Ok(outputs), ("=", shape)) if shape.trim().starts_with('[') => {
            let found = format!("{:?}", outputs[0].shape().dims()).replace(' ', "");
            (found != shape.trim()).then(|| format!("{name}: {found}, not {shape}"))
        }
        (Ok(outputs), ("=", numbers)) => {
            let wide = outputs[0].cast(DType::F64).unwrap();
            let found: Vec<f64> = wide.as_slice::<f64>().unwrap().to_vec();
            let wanted: Vec<f64> =
                numbers.split_whitespace().map(|n| n.parse().expect("a number")).collect();
            let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
            let all = found.len() == wanted.len() && found.iter().zip(&wanted).all(same);
            (!all).then(|| format!("{name}: {found:?}, not {wanted:?}"))
        }
        (made, _) => Some(format!("{name}: {made:?}, not {expected:?}")),
    }
}

/// What this thread has computed, in ms: it does not count the time that others have the machine. 0
/// where the system does not say.
fn computing() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

/// Where `PLUTINO_HOSTILE_TIMES` is set: what a row took, for tests with `--nocapture`.
#[allow(clippy::print_stderr)] // the figures of docs/reliability.md
fn show(name: &str, computed: f64, time: Duration, peak: f64) {
    if std::env::var_os("PLUTINO_HOSTILE_TIMES").is_some() {
        let time = time.as_secs_f64() * 1e3;
        eprintln!("\n{computed:8.1} ms, {time:8.1} by the clock, {peak:5.0} MiB  {name}");
    }
}

/// Runs a row.
pub(crate) fn row(name: &str, text: &str, expected: &str, times: u32) -> Option<String> {
    let _alone = alone();
    let before = status("VmRSS");
    let resets = std::fs::write("/proc/self/clear_refs", "5").is_ok(); // the peak from now on
    let (start, computed) = (Instant::now(), computing());
    let made = attempt(text);
    let (time, peak) = (start.elapsed(), status("VmHWM") - before);
    show(name, computing() - computed, time, peak);
    if time > PROMISED * FACTOR * times {
        return Some(format!("{name}: took {time:?}"));
    }
    // The graph that a file becomes is on nobody's budget: it is in proportion to the file.
    let own = text.len() as f64 * PER_BYTE / f64::from(1 << 20);
    if resets && peak > BUDGET as f64 + EXTRA + own {
        return Some(format!("{name}: took {peak:.0} MiB"));
    }
    judged(name, &made, expected)
}

/// All faults at once.
pub(crate) fn all(faults: impl Iterator<Item = Option<String>>) {
    let faults: Vec<String> = faults.flatten().map(|f| f.chars().take(400).collect()).collect();
    assert!(faults.is_empty(), "{} rows:\n{}", faults.len(), faults.join("\n"));
}

//! Models of any size, and how long it takes to read, decode, check, plan and run them. For the
//! suite, which compares two sizes, and for `cargo xtask scale`, which prints a table.

use plutino::ir::{Graph, LoadOptions, SizeLimit, SizeLimits};
use plutino::{Model, SessionOptions, Shape, Tensor};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A family of models: one for each number of operators.
pub struct Family {
    /// What reports call it.
    pub name: &'static str,
    /// What is special about it.
    pub about: &'static str,
    write: fn(&mut Text, usize),
}

/// One of each kind of size that a file can have.
pub const FAMILIES: &[Family] = &[
    Family { name: "chain", about: "each operator reads the one before", write: chain },
    Family { name: "views", about: "a chain of views of one buffer", write: views },
    Family {
        name: "fan-out",
        about: "all read one operand, one reads all of them",
        write: fan_out,
    },
    Family { name: "slices", about: "pieces of one buffer, put together again", write: slices },
    Family { name: "outputs", about: "every operand is an output", write: outputs },
    Family { name: "inputs", about: "every operand is an input", write: inputs },
    Family { name: "mirror", about: "all are alive until they are read in reverse", write: mirror },
    Family { name: "weights", about: "linear layers and activations", write: weights },
    Family { name: "scopes", about: "names of 20 scopes inside each other", write: scopes },
    Family {
        name: "constants",
        about: "nothing depends on the input until the end",
        write: constants,
    },
    Family { name: "sizes", about: "every shape is computed from another", write: sizes },
    Family { name: "tuples", about: "one tuple of everything, taken apart again", write: tuples },
    Family { name: "late", about: "every shape depends on data", write: late },
    Family {
        name: "formulas",
        about: "activations and norms that are written out",
        write: formulas,
    },
];

/// A `.param` text that grows.
#[derive(Default)]
struct Text {
    lines: String,
    operators: usize,
    operands: usize,
}

impl Text {
    /// A line with one output.
    fn op(&mut self, kind: &str, inputs: &[&str], output: &str, params: &str) {
        self.line(kind, inputs, &[output], params);
    }

    fn line(&mut self, kind: &str, inputs: &[&str], outputs: &[&str], params: &str) {
        let name = self.operators;
        self.named(&format!("op{name}"), kind, inputs, outputs, params);
    }

    fn named(&mut self, name: &str, kind: &str, inputs: &[&str], outputs: &[&str], params: &str) {
        let (i, o) = (inputs.len(), outputs.len());
        write!(self.lines, "{kind} {name} {i} {o}").expect("strings take everything");
        for word in inputs.iter().chain(outputs).copied().chain([params]).filter(|w| !w.is_empty())
        {
            self.lines.push(' ');
            self.lines.push_str(word);
        }
        self.lines.push('\n');
        self.operators += 1;
        self.operands += o;
    }

    fn input(&mut self, name: &str, ty: &str) {
        self.op("pnnx.Input", &[], name, &format!("#{name}={ty}"));
    }

    fn output(&mut self, name: &str) {
        self.line("pnnx.Output", &[name], &[], "");
    }

    fn all(&mut self, kind: &str, inputs: &[String], output: &str, params: &str) {
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        self.op(kind, &inputs, output, params);
    }
}

fn value(i: usize) -> String {
    format!("v{i}")
}

fn values(n: usize) -> Vec<String> {
    (1..=n).map(value).collect()
}

/// `n` times what `op` writes, from `v0` to `v1` and so on; the last one is the output.
fn row(text: &mut Text, shape: &str, n: usize, op: impl Fn(&mut Text, usize, &str, &str)) {
    text.input("v0", shape);
    for i in 0..n {
        op(text, i, &value(i), &value(i + 1));
    }
    text.output(&value(n));
}

fn chain(text: &mut Text, n: usize) {
    row(text, "(4)f32", n, |text, _, from, to| text.op("torch.sin", &[from], to, ""));
}

fn views(text: &mut Text, n: usize) {
    row(text, "(4,4)f32", n, |text, i, from, to| match i % 2 {
        0 => text.op("Tensor.view", &[from], to, "shape=(2,8)"),
        _ => text.op("torch.sin", &[from], to, ""),
    });
}

fn fan_out(text: &mut Text, n: usize) {
    text.input("a", "(4)f32");
    text.op("torch.sin", &["a"], "b", "");
    (1..=n).for_each(|i| text.op("nn.ReLU", &["b"], &value(i), ""));
    text.all("torch.cat", &values(n), "y", "dim=0");
    text.output("y");
}

fn slices(text: &mut Text, n: usize) {
    let n = n / 2;
    text.input("a", &format!("({n},4)f32"));
    text.op("torch.sin", &["a"], "b", "");
    for i in 1..=n {
        text.op("Tensor.select", &["b"], &format!("s{i}"), &format!("dim=0 index={}", i - 1));
        text.op("torch.cos", &[&format!("s{i}")], &value(i), "");
    }
    text.all("torch.stack", &values(n), "y", "dim=0");
    text.output("y");
}

fn outputs(text: &mut Text, n: usize) {
    let n = n.min(MOST_RESULTS);
    text.input("a", "(4)f32");
    (1..=n).for_each(|i| text.op("nn.ReLU", &["a"], &value(i), ""));
    (1..=n).for_each(|i| text.output(&value(i)));
}

/// Results, and members of a list, that a model may have.
const MOST_RESULTS: usize = 1 << 16;

fn inputs(text: &mut Text, n: usize) {
    (1..=n).for_each(|i| text.input(&value(i), "(1)f32"));
    text.all("torch.cat", &values(n), "y", "dim=0");
    text.output("y");
}

fn mirror(text: &mut Text, n: usize) {
    let n = n / 2;
    text.input("v0", "(4)f32");
    (0..n).for_each(|i| text.op("torch.sin", &[&value(i)], &value(i + 1), ""));
    let mut last = value(n);
    for i in (1..n).rev() {
        let next = format!("w{i}");
        text.op("pnnx.Expression", &[&last, &value(i)], &next, "expr=add(@0,@1)");
        last = next;
    }
    text.output(&last);
}

fn weights(text: &mut Text, n: usize) {
    row(text, "(1,4)f32", n / 2, |text, i, from, to| {
        let inner = format!("w{i}");
        let layer = "bias=True in_features=4 out_features=4 @bias=(4)f32 @weight=(4,4)f32";
        text.op("nn.Linear", &[from], &inner, layer);
        text.op("nn.ReLU", &[&inner], to, "");
    });
}

fn scopes(text: &mut Text, n: usize) {
    row(text, "(4)f32", n, |text, i, from, to| {
        let scopes: Vec<String> = (0..20).rev().map(|bit| format!("b{}", i >> bit)).collect();
        text.named(&scopes.join("."), "torch.sin", &[from], &[to], "");
    });
}

fn constants(text: &mut Text, n: usize) {
    text.op("torch.ones", &[], "v0", "size=(4) dtype=torch.float");
    (0..n).for_each(|i| text.op("torch.sin", &[&value(i)], &value(i + 1), ""));
    text.input("a", "(4)f32");
    text.op("pnnx.Expression", &[&value(n), "a"], "y", "expr=add(@0,@1)");
    text.output("y");
}

fn sizes(text: &mut Text, n: usize) {
    row(text, "(4)f32", n / 2, |text, i, from, to| {
        let size = format!("s{i}");
        text.op("Tensor.size", &[from], &size, "dim=0");
        let inputs = format!("$input={from} $shape={size}");
        text.op("Tensor.view", &[from, &size], to, &inputs);
    });
}

fn tuples(text: &mut Text, n: usize) {
    let n = n.min(MOST_RESULTS);
    text.input("a", "(4)f32");
    (1..=n).for_each(|i| text.op("nn.ReLU", &["a"], &value(i), ""));
    text.all("prim::TupleConstruct", &values(n), "t", "");
    let members: Vec<String> = (0..n).map(|i| format!("m{i}")).collect();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    text.line("prim::TupleUnpack", &["t"], &names, "");
    text.all("torch.cat", &members, "y", "dim=0");
    text.output("y");
}

fn late(text: &mut Text, n: usize) {
    text.input("a", "(4)f32");
    text.op("torch.nonzero", &["a"], "v0", "as_tuple=False");
    (0..n).for_each(|i| text.op("torch.abs", &[&value(i)], &value(i + 1), ""));
    text.output(&value(n));
}

fn formulas(text: &mut Text, n: usize) {
    row(text, "(2,8)f32", n / 6, |text, i, from, to| {
        let name = |what: &str| format!("{what}{i}");
        let [g, m, d, p, q] = ["g", "m", "d", "p", "q"].map(name);
        let gelu = "expr=mul(mul(@0,0.5),add(erf(div(@0,1.4142135623730951)),1.0))";
        text.op("pnnx.Expression", &[from], &g, gelu);
        text.op("torch.mean", &[&g], &m, "dim=(-1) keepdim=True");
        text.op("pnnx.Expression", &[&g, &m], &d, "expr=sub(@0,@1)");
        text.op("pnnx.Expression", &[&d], &p, "expr=pow(@0,2)");
        text.op("torch.mean", &[&p], &q, "dim=(-1) keepdim=True");
        text.op("pnnx.Expression", &[&d, &q], to, "expr=div(@0,sqrt(add(@1,1e-5)))");
    });
}

impl Family {
    /// The text of a model of some `n` operators.
    pub fn text(&self, n: usize) -> String {
        let mut text = Text::default();
        (self.write)(&mut text, n);
        format!("7767517\n{} {}\n{}", text.operators, text.operands, text.lines)
    }
}

/// What was measured of one model: CPU time of this thread, which does everything.
pub struct Measured {
    /// Operators of the file.
    pub operators: usize,
    /// What was done, and how long it took, in the order in which it was done.
    pub times: Vec<(&'static str, Duration)>,
    /// Passes, with the time of the clock.
    pub passes: Vec<(&'static str, Duration)>,
}

impl Measured {
    /// How long one of [`Measured::times`] took.
    pub fn time(&self, what: &str) -> Duration {
        let times = self.times.iter().filter(|(name, _)| *name == what);
        times.map(|(_, time)| *time).sum()
    }
}

/// What [`measure`] does with a model.
pub const PHASES: &[&str] = &["parse", "decode", "check", "plan", "run", "drop"];

/// Reads, decodes, checks, plans, runs and drops the model of this text.
///
/// # Errors
/// The message of whatever fails.
pub fn measure(text: &str) -> Result<Measured, String> {
    let options = LoadOptions { sizes: generous(), ..LoadOptions::default() };
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let path = folder.path().join("model.pnnx.param");
    std::fs::write(&path, text).map_err(|e| e.to_string())?;
    let mut times = Vec::new();
    let mut timed = |what: &'static str, start: Duration| times.push((what, cpu() - start));

    let skip = LoadOptions { weights: plutino::ir::Weights::Skip, ..options.clone() };
    let start = cpu();
    let graph = Graph::load_with(&path, &skip).map_err(|e| e.to_string());
    timed("parse", start);
    folder.close().map_err(|e| e.to_string())?;
    let mut graph = graph?;
    plutino_fixtures::generate_weights(&mut graph).map_err(|e| e.to_string())?;
    let operators = graph.operator_count();

    let start = cpu();
    let model = Model::from_graph_with(graph, &options).map_err(|e| e.to_string())?;
    timed("decode", start);
    let start = cpu();
    let inferred = model.inference();
    timed("check", start);
    drop(inferred);
    let feeds = model.inputs().iter().map(|input| {
        let shape = input.recorded.known_shape().ok_or("a shape is open")?;
        Tensor::ones(plutino::DType::F32, Shape::from(shape)).map_err(|e| e.to_string())
    });
    let feeds = feeds.collect::<Result<Vec<_>, _>>()?;
    let session = model.session(SessionOptions::default().with_threads(1));
    let session = session.map_err(|e| e.to_string())?;
    let start = cpu();
    let plan = session.plan(&crate::specs(&feeds)).map_err(|e| e.to_string())?;
    timed("plan", start);
    let start = cpu();
    let results = session.run(&feeds).map_err(|e| e.to_string())?;
    timed("run", start);
    let passes = plan.passes().iter().map(|pass| (pass.name, pass.time)).collect();
    let start = cpu();
    drop((results, plan, session, model));
    timed("drop", start);
    Ok(Measured { operators, times, passes })
}

/// Room for the largest models of a table.
fn generous() -> SizeLimits {
    let more = [SizeLimit::TextBytes, SizeLimit::Words, SizeLimit::Operators, SizeLimit::Operands];
    let more = more.into_iter().chain([SizeLimit::Arguments]);
    more.fold(SizeLimits::default(), |sizes, limit| sizes.with(limit, 16 * limit.default_value()))
}

/// CPU time of this thread, which others that compute on the same machine hardly change. The time
/// of the clock, where the system does not tell.
fn cpu() -> Duration {
    std::thread::yield_now(); // has the system count up to now; else it does every 4 ms
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.as_deref().and_then(|line| line.split(' ').next()?.parse().ok());
    nanos.map_or_else(clock, Duration::from_nanos)
}

fn clock() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed()
}

//! Models that mean harm: each ends in a result or in an error that says what is wrong, within the
//! memory budget and a little more, and in little time. Small files of every family: sizes in
//! parameters, lists, tuples, constants, values of inputs, very many operators, very long names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

use plutino::ir::Graph;
use plutino::{
    CancelToken, Limits, Model, ModelError, Request, SessionError, SessionOptions, Tensor,
};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// What a session may take, and what the process may take beyond it, in MiB.
const BUDGET: usize = 64;
const EXTRA: f64 = 64.0;

/// Debug builds are many times slower than what is promised, and machines are busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A `.param` text of these operator lines, with the right header.
fn text(lines: &[String]) -> String {
    let outputs = |l: &String| l.split(' ').nth(3).map_or(0, |n| n.parse::<usize>().unwrap());
    let operands: usize = lines.iter().map(outputs).sum();
    format!("7767517\n{} {operands}\n{}\n", lines.len(), lines.join("\n"))
}

/// A model of one operator with the inputs `a`, `b`, ..., whose result `y` is the only output.
fn single(kind: &str, inputs: &[&str], params: &str) -> String {
    let names = ["a", "b", "c"];
    let input =
        |(name, ty): (&&str, &&str)| format!("pnnx.Input in_{name} 0 1 {name} #{name}={ty}");
    let mut lines: Vec<String> = names.iter().zip(inputs).map(input).collect();
    let read = names[..inputs.len()].join(" ");
    lines.push(format!("{kind} op {} 1 {read} y {params}", inputs.len()).trim_end().to_owned());
    lines.push("pnnx.Output out 1 0 y".into());
    text(&lines)
}

/// `n` times the line that `line` makes, between an input of `shape` and whatever `rest` says.
fn many(shape: &str, n: usize, line: impl Fn(usize) -> String, rest: &[String]) -> String {
    let first = format!("pnnx.Input in 0 1 a #a={shape}");
    text(
        &std::iter::once(first)
            .chain((0..n).map(line))
            .chain(rest.iter().cloned())
            .collect::<Vec<_>>(),
    )
}

/// Operators in a row.
fn chain(n: usize, kind: &str, params: &str) -> String {
    let name = |i: usize| if i == 0 { "a".into() } else { format!("v{i}") };
    let line = |i: usize| format!("{kind} op{i} 1 1 {} {} {params}", name(i), name(i + 1));
    many(
        "(4)f32",
        n,
        |i| line(i).trim_end().to_owned(),
        &[format!("pnnx.Output out 1 0 {}", name(n))],
    )
}

/// What came of a model.
#[derive(Debug)]
enum End {
    Outputs(usize),
    Refused(String),
}

/// Loads, plans and runs a model on ones, or on the given tensors.
fn attempt(text: &str, inputs: &[Tensor]) -> End {
    let load = || -> Result<Vec<Tensor>, String> {
        let graph = Graph::parse(text).map_err(|e| e.to_string())?;
        let model = Model::from_graph(graph).map_err(|e| e.to_string())?;
        let options = SessionOptions::default().with_threads(1).with_memory_budget(BUDGET << 20);
        let session = model.session(options).unwrap();
        let ones = model.inputs().iter().skip(inputs.len()).map(|input| {
            let shape = input.recorded.known_shape().unwrap();
            let dtype = plutino::DType::from_name(input.recorded.dtype.unwrap().name()).unwrap();
            Tensor::ones(dtype, plutino::Shape::from(shape)).unwrap()
        });
        let all: Vec<Tensor> = inputs.iter().cloned().chain(ones).collect();
        session.run(&all).map_err(|e| e.to_string())
    };
    match load() {
        Ok(outputs) => End::Outputs(outputs.len()),
        Err(message) => End::Refused(message),
    }
}

/// A line of `/proc/self/status` in MiB; 0 where there is none.
fn status(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// Runs a model; what it takes is within bounds, and its message is fit to print.
fn bounded(name: &str, text: &str, inputs: &[Tensor]) -> End {
    let before = status("VmRSS");
    let resets = std::fs::write("/proc/self/clear_refs", "5").is_ok(); // the highest memory since now
    let start = Instant::now();
    let end = attempt(text, inputs);
    let (time, peak) = (start.elapsed(), status("VmHWM") - before);
    assert!(time < PATIENCE, "{name} took {time:?}");
    assert!(!resets || peak <= BUDGET as f64 + EXTRA, "{name} took {peak:.0} MiB");
    if let End::Refused(message) = &end {
        assert!(message.len() < 1500, "{name}: a message of {} bytes", message.len());
        assert!(!message.contains("internal"), "{name}: {message}");
        assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{name}: {message:?}");
    }
    end
}

fn refused(name: &str, text: &str, word: &str) {
    match bounded(name, text, &[]) {
        End::Refused(message) => assert!(message.contains(word), "{name}: {message}"),
        end => panic!("{name}: {end:?}"),
    }
}

fn computed(name: &str, text: &str) {
    let end = bounded(name, text, &[]);
    assert!(matches!(end, End::Outputs(_)), "{name}: {end:?}");
}

/// All in one test, one after the other: memory is measured for the whole process.
#[test]
fn whatever_files_say_stays_within_bounds() {
    sizes_in_parameters();
    lists();
    constants();
    values_of_inputs();
    very_many_operators();
    long_names();
    what_was_internal();
}

fn sizes_in_parameters() {
    let x = "(2,3)f32";
    for n in ["1000000000", "67108864", "99999989"] {
        let params = format!("dim=-1 n={n} norm=None");
        for kind in ["fft", "rfft", "hfft"] {
            refused(kind, &single(&format!("torch.fft.{kind}"), &[x], &params), "budget");
        }
    }
    let stft = "center=True hop_length=None n_fft=2147483647 normalized=False onesided=None \
                pad_mode=constant return_complex=True win_length=None window=None";
    refused("stft", &single("torch.stft", &["(2,40)f32"], stft), "budget");
    let image = "(1,1,4,4)f32";
    for mode in
        ["mode=bilinear align_corners=False", "mode=bicubic align_corners=False", "mode=nearest"]
    {
        for width in ["100000000", "10000000", "8000000"] {
            let params = format!("{mode} size=(1,{width})");
            refused(mode, &single("F.interpolate", &[image], &params), "budget");
        }
    }
    for (batches, word) in [("65536", "budget"), ("4096", "budget")] {
        let (a, b) = (format!("({batches},1,1,1)f32"), format!("({batches},1,1)f32"));
        refused("matmul", &single("torch.matmul", &[&a, &b], ""), word);
    }
    let roi = "aligned=False output_size=(1,1) sampling_ratio=65536 spatial_scale=1.0";
    refused(
        "roi",
        &single("torchvision.ops.RoIAlign", &["(2,1,4,4)f32", "(1,5)f32"], roi),
        "samples",
    );
    // Frames lie far apart, but of the signal only its beginning is asked for.
    let istft = "center=True hop_length=4294967296 length=7 n_fft=16 normalized=True onesided=None \
                 return_complex=False win_length=None window=None $input=1";
    computed(
        "istft",
        &text(&[
            "pnnx.Input in 0 1 0 #0=(9,7,2)f32".into(),
            "torch.view_as_complex c 1 1 0 1 $input=0".into(),
            format!("torch.istft op 1 1 1 2 {istft}"),
            "pnnx.Output out 1 0 2".into(),
        ]),
    );
    let letters = format!("equation={}", "i".repeat(1 << 16));
    refused("einsum", &single("torch.einsum", &[x], &letters), "at most 64 labels");
    let ones = vec!["1"; 50_000].join(",");
    refused("rank", &single("Tensor.reshape", &["(1)f32"], &format!("shape=({ones})")), "64 dim");
}

fn lists() {
    let x = "(2,3)f32";
    let sections = "dim=0 sections=1000000000";
    refused("tensor_split", &single("torch.tensor_split", &[x], sections), "65536 members");
    let chunks = single("torch.chunk", &["(0,3)f32"], "chunks=1000000000 dim=0");
    refused("chunk", &chunks, "65536 members");
    refused("unbind", &single("torch.unbind", &["(100000)f32"], "dim=0"), "65536 members");
    computed("unbind, fewer", &single("torch.unbind", &["(3000)f32"], "dim=0"));
    let wide = format!("prim::TupleConstruct t 60000 1 {}t", "a ".repeat(60_000));
    let results: Vec<String> = (0..500).map(|i| format!("pnnx.Output o{i} 1 0 t")).collect();
    refused("tuples", &many("(2)f32", 1, |_| wide.clone(), &results), "results");
    let same = |i: usize| format!("prim::TupleConstruct u{i} 1 1 t u{i}");
    let mut lines = vec![wide.clone()];
    lines.extend((0..60).map(same));
    let last = (0..60).map(|i| format!("pnnx.Output o{i} 1 0 u{i}"));
    lines.extend(last.take(1));
    computed("tuples that nobody reads", &many("(2)f32", 0, |_| String::new(), &lines));
    let grid = format!("torch.meshgrid m 3000 1 {}y indexing=ij", "a ".repeat(3000));
    let out = ["pnnx.Output o 1 0 y".to_owned()];
    refused("meshgrid", &many("(1)f32", 1, |_| grid.clone(), &out), "64 dimensions");
}

fn constants() {
    let name = |i: usize| if i == 0 { "o".into() } else { format!("v{i}") };
    let ones = "torch.ones ones 0 1 o size=(512,512) dtype=torch.float".to_owned();
    let sine = |i: usize| format!("torch.sin s{i} 1 1 {} {}", name(i), name(i + 1));
    let mut lines = vec![ones.clone()];
    lines.extend((0..300).map(sine));
    lines.push("pnnx.Output out 1 0 v300".into());
    computed("a chain of constants", &many("(1)f32", 0, |_| String::new(), &lines));
    let twice = |i: usize| format!("torch.cat c{i} 2 1 {0} {0} {1} dim=0", name(i), name(i + 1));
    let mut lines = vec![ones];
    lines.extend((0..20).map(twice));
    lines.push("pnnx.Output out 1 0 v20".into());
    refused("constants that double", &many("(1)f32", 0, |_| String::new(), &lines), "budget");
}

fn values_of_inputs() {
    let counts = |n: i64| Tensor::from_slice(&[n], [1]).unwrap();
    let x = Tensor::from_slice(&[1.0f32], [1]).unwrap();
    let repeat =
        single("torch.repeat_interleave", &["(1)f32", "(1)i64"], "dim=0 $input=a $repeats=b");
    for n in [1_000_000_000_000, 30_000_000] {
        let end = bounded("repeat_interleave", &repeat, &[x.clone(), counts(n)]);
        assert!(matches!(&end, End::Refused(m) if m.contains("budget")), "{n}: {end:?}");
    }
    let end = bounded("repeat_interleave, less", &repeat, &[x, counts(1000)]);
    assert!(matches!(end, End::Outputs(1)), "{end:?}");
}

fn very_many_operators() {
    computed("a chain", &chain(8000, "nn.ReLU", ""));
    computed("views", &chain(8000, "Tensor.view", "shape=(4)"));
    let values = |i: usize| format!("nn.ReLU r{i} 1 1 a v{i}");
    let all: String = (0..8000).fold(String::new(), |mut s, i| {
        let _ = write!(s, "v{i} ");
        s
    });
    let rest = [format!("torch.cat c 8000 1 {all}y dim=0"), "pnnx.Output o 1 0 y".into()];
    computed("a wide concatenation", &many("(1)f32", 8000, values, &rest));
    let cat = format!("torch.cat c 20000 1 {}y dim=0", "a ".repeat(20_000));
    let out = ["pnnx.Output o 1 0 y".to_owned()];
    computed("one value many times", &many("(1)f32", 1, |_| cat.clone(), &out));
    refused("too many operators", &chain(200_000, "nn.ReLU", ""), "words");
    refused("more than the budget", &chain(40_000, "nn.ReLU", ""), "budget");
    let unknown = |i: usize| format!("bad.kind{i} r{i} 1 1 a v{i}");
    let out = ["pnnx.Output o 1 0 v1".to_owned()];
    let refusal = bounded_load("unknown types", &many("(1)f32", 20_000, unknown, &out));
    assert!(refusal.contains("20000 operator(s)") && refusal.contains("more operators"));
    let leaves = tree(1 << 12);
    computed("an expression", &single("pnnx.Expression", &["(4)f32"], &format!("expr={leaves}")));
}

/// A balanced sum of `n` inputs.
fn tree(n: usize) -> String {
    if n == 1 { "@0".into() } else { format!("add({},{})", tree(n / 2), tree(n - n / 2)) }
}

/// The message of a model that is refused, which may be a list.
fn bounded_load(name: &str, text: &str) -> String {
    let start = Instant::now();
    let error = Model::from_graph(Graph::parse(text).unwrap()).unwrap_err();
    assert!(start.elapsed() < PATIENCE, "{name}");
    let message = error.to_string();
    assert!(message.len() < 60_000, "{name}: a message of {} bytes", message.len());
    message
}

fn long_names() {
    let long = "x".repeat(5_000_000);
    refused("a type of 5 MB", &single(&long, &["(4)f32"], ""), "5000000 characters");
    let parameter = single("nn.ReLU", &["(4)f32"], &format!("foo={long}"));
    refused("a parameter of 5 MB", &parameter, "'parameter-bytes'");
    let name = single("nn.Softmax", &["(4)f32"], "dim=7").replace(" op ", &format!(" {long} "));
    refused("a name of 5 MB", &name, "dimension 7");
    let escapes = single("bad.\x1b[31m\x07\u{202e}", &["(4)f32"], "");
    refused("escapes", &escapes, r"bad.\u{1b}[31m\u{7}\u{202e}");
}

fn what_was_internal() {
    let sizes = |zeros: &str| {
        text(&[
            "pnnx.Input in 0 1 a #a=(1)i64".into(),
            "torch.max m 1 1 a s".into(),
            "pnnx.Expression x 1 1 s l expr=[int(@0),1000]".into(),
            format!("{zeros} z 1 1 l y $size=l dtype=torch.float"),
            "pnnx.Output out 1 0 y".into(),
        ])
    };
    computed("a list of a computed and a known size", &sizes("torch.zeros"));
    computed(
        "a tensor in a list of sizes",
        &text(&[
            "pnnx.Input in 0 1 a #a=(2,3)f32".into(),
            "nn.ReLU r 1 1 a b".into(),
            "pnnx.Expression x 1 1 b l expr=[@0,size(@0)]".into(),
            "pnnx.Output out 1 0 l".into(),
        ]),
    );
    let gather = "dim=0 $input=a $index=b";
    for (x, index) in [("(10,13,16)f32", "(10,13,16,1)i64"), ("(10,13,16,1)f32", "(10,13,16)i64")] {
        refused("gather", &single("torch.gather", &[x, index], gather), "dimensions");
    }
}

/// Deadlines and cancellation reach planning and loading.
#[test]
fn limits_reach_planning_and_loading() {
    let text = chain(2000, "nn.ReLU", "");
    let model = Model::from_graph(Graph::parse(&text).unwrap()).unwrap();
    let session = model.session(SessionOptions::default().with_threads(1)).unwrap();
    let x = Tensor::from_slice(&[1.0f32; 4], [4]).unwrap();
    let late = Request::new().feed("a", &x).deadline(Instant::now());
    let error = session.run_with(&late).unwrap_err();
    assert!(matches!(error, SessionError::Deadline { done: 0, steps: 0, .. }), "{error}");
    assert_eq!(error.to_string(), "the deadline passed while planning");
    let token = CancelToken::new();
    token.cancel();
    let limits = Limits { cancel: Some(token), ..Limits::default() };
    let error = session.plan_within(&[x.spec()], &limits).unwrap_err();
    assert!(matches!(error, SessionError::Cancelled { done: 0, steps: 0, .. }), "{error}");
    assert!(session.run(&[x]).is_ok());

    let folder = std::env::temp_dir().join(format!("plutino-bounds-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("chain.pnnx.param");
    std::fs::write(&path, text).unwrap();
    let options = plutino::ir::LoadOptions { limits, ..Default::default() };
    let error = Model::load_with(&path, &options).unwrap_err();
    let interrupted = matches!(
        error,
        ModelError::Interrupted { .. }
            | ModelError::Load(plutino::ir::LoadError::Interrupted { .. })
    );
    assert!(interrupted, "{error}");
    // What is no regular file is not opened: not as weights, not as a model.
    std::fs::create_dir(folder.join("chain.pnnx.bin")).unwrap();
    let error = Model::load(&path).unwrap_err();
    assert!(error.to_string().ends_with("is no regular file"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

//! Memory that the system refuses, at any request: every fixture of `fixtures/ops`, and with them
//! every operator type, is decoded, planned and run once for each request of more than some bytes
//! that it makes, and that one is refused. Each time there must be a typed error, nothing may be
//! leaked, and the session must work on.
//!
//! An allocation that cannot fail (`Vec::push`, `vec![]`, ...) ends the process where it is
//! refused. So a child process does the work and says where it is; if it ends early, that place is
//! noted, and another child goes on behind it. The place in the code is shown by
//! `PLUTINO_REFUSALS_TRACE=1 cargo test -p plutino-tests --test refusals -- --nocapture`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

use plutino::ir::Graph;
use plutino::{DType, Model, Session, SessionOptions, Shape, Tensor};
use plutino_fixtures::OpCase;
use plutino_tests::{fixture, inputs};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::SeqCst};

/// The system's allocator, which refuses one request of many.
struct Refusing;

/// Whether requests are counted.
static ARMED: AtomicBool = AtomicBool::new(false);
/// A request of more bytes than this counts.
static LEAST: AtomicUsize = AtomicUsize::new(0);
/// The request that is refused.
static TARGET: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Requests so far.
static SEEN: AtomicUsize = AtomicUsize::new(0);
/// Bytes that are taken and not given back.
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: hands every call on to the system's allocator, under the same conditions, or returns
// null, as an allocator may.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LEAST.load(SeqCst)
            && ARMED.load(SeqCst)
            && SEEN.fetch_add(1, SeqCst) == TARGET.load(SeqCst)
        {
            trace(layout.size());
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise is handed on.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            LIVE.fetch_add(layout.size() as isize, SeqCst);
        }
        memory
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, SeqCst);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static REFUSING: Refusing = Refusing;

/// Shows who asks, where that is wanted.
#[allow(clippy::print_stderr)] // the process may end right after
fn trace(bytes: usize) {
    ARMED.store(false, SeqCst);
    if std::env::var_os("PLUTINO_REFUSALS_TRACE").is_some() {
        let frames = std::backtrace::Backtrace::force_capture().to_string();
        let ours =
            frames.lines().filter(|line| line.contains("plutino") || line.contains("crates/"));
        let ours: Vec<&str> = ours.map(str::trim).take(12).collect();
        eprintln!("  {bytes} bytes for {}", ours.join(" < "));
    }
    ARMED.store(true, SeqCst);
}

/// Calls `f`; the request of this number that it makes is refused. Also, how many it made.
fn refusing<R>(target: usize, f: impl FnOnce() -> R) -> (R, usize) {
    TARGET.store(target, SeqCst);
    SEEN.store(0, SeqCst);
    ARMED.store(true, SeqCst);
    let result = f();
    ARMED.store(false, SeqCst);
    (result, SEEN.load(SeqCst))
}

/// Of requests of more bytes than this some are refused; and how many of a case at most, evenly
/// spread. Fixtures of single operators hardly ask for 64 KiB at once, those of networks do.
/// The last number is that of requests that must have been tried at least, of the 11 and some 320
/// there are: a change that lets none be made would let this test pass.
///
/// Buffers from 2 MiB on are pages of the system: no allocator is asked for them. Where the system
/// refuses those, the same function returns the same error (`AlignedBuf::zeroed`).
const PASSES: &[(usize, usize, usize)] = &[(64 << 10, 24, 8), (LOW, 64, 200)];

/// Below this, short lists are taken by force: names, the parts of an expression, the indices that
/// one task of a kernel has at a time. What is as long as a graph, a shape or an input is not.
const LOW: usize = 8 << 10;

/// Networks that are tried as well, since they ask for more at a time.
const NETWORKS: &[&str] = &["bilstm", "digits", "mobilenet_v3_small", "squeezenet1_1"];

/// Models that are tried as well, with weights of zeros: a result that is a part of what is fed,
/// and weights that are computed while a layer is decoded.
const WRITTEN: &[(&str, &str)] = &[
    (
        "a part of the input",
        "pnnx.Input x 0 1 x #x=(64,1024)f32\n\
         Tensor.slice s 1 1 x y dim=0 start=1 end=60 step=1\n\
         pnnx.Output o 1 0 y",
    ),
    (
        "a quantised layer",
        "pnnx.Input x 0 1 x #x=(1,256)f32\n\
         nn.quantized.Linear l 1 1 x y in_features=256 out_features=256 scale=0.5 zero_point=0 \
         @weight=(256,256)i8 @bias=(256)f32 @weight.q_per_channel_scales=(256)f64 \
         @weight.q_per_channel_zero_points=(256)i64\n\
         pnnx.Output o 1 0 y",
    ),
];

/// A case, ready to run.
struct Subject {
    graph: Graph,
    inputs: Vec<Tensor>,
    /// What a run without refusals gives; none where two runs differ, as random numbers do.
    expected: Option<Vec<Vec<u8>>>,
}

fn bytes(outputs: &[Tensor]) -> Vec<Vec<u8>> {
    outputs.iter().map(|o| o.as_bytes().to_vec()).collect()
}

fn options() -> SessionOptions {
    SessionOptions::default().with_threads(1)
}

impl Subject {
    fn case(case: &OpCase) -> Self {
        let inputs = case.runs().unwrap().swap_remove(0).inputs;
        Self::new(case.graph().unwrap(), inputs.into_iter().map(|(_, tensor)| tensor).collect())
    }

    fn network(name: &str) -> Self {
        let fixture = fixture(name);
        Self::new(fixture.graph().unwrap(), inputs(&fixture))
    }

    fn written(text: &str) -> Self {
        let mut graph = Graph::parse(&format!("7767517\n3 2\n{text}\n")).unwrap();
        for id in graph.operator_ids().to_vec() {
            for attr in graph.attrs_mut(id).unwrap().values_mut() {
                attr.set_data(vec![0; attr.byte_len()]).unwrap();
            }
        }
        let model = Model::from_graph(graph.clone()).unwrap();
        let shape = model.inputs()[0].recorded.known_shape().unwrap();
        Self::new(graph, vec![Tensor::ones(DType::F32, Shape::from(shape)).unwrap()])
    }

    fn new(graph: Graph, inputs: Vec<Tensor>) -> Self {
        let run = || {
            let session = Model::from_graph(graph.clone()).unwrap().session(options()).unwrap();
            bytes(&session.run(&inputs).unwrap())
        };
        let (first, second) = (run(), run());
        let expected = (first == second).then_some(first);
        Self { graph, inputs, expected }
    }

    /// Refuses the request of this number while the model is decoded. Also, how many there were.
    fn decode(&self, target: usize) -> (Result<(), String>, usize) {
        let graph = self.graph.clone();
        let (model, requests) = refusing(target, || Model::from_graph(graph));
        let outcome = match model {
            Ok(_) if target < requests => Err("decoding went on without memory".into()),
            Ok(_) => Ok(()),
            Err(error) if error.is_out_of_memory() => Ok(()),
            Err(other) => Err(format!("decoding: {other:?}")),
        };
        (outcome, requests)
    }

    /// Refuses the request of this number while the model is planned and run.
    fn run(&self, target: usize) -> (Result<(), String>, usize) {
        let session = Model::from_graph(self.graph.clone()).unwrap().session(options()).unwrap();
        let (outputs, requests) = refusing(target, || session.run(&self.inputs));
        let outcome = match outputs {
            // Folding goes without: what it would have computed once is computed by every run.
            Ok(outputs) if target < requests && self.differ(&outputs) => {
                Err("a run without memory computes something else".into())
            }
            Err(error) if !error.is_out_of_memory() => Err(format!("{error:?}")),
            Ok(_) | Err(_) => self.still_right(&session),
        };
        (outcome, requests)
    }

    fn differ(&self, outputs: &[Tensor]) -> bool {
        self.expected.as_ref().is_some_and(|expected| bytes(outputs) != *expected)
    }

    fn still_right(&self, session: &Session) -> Result<(), String> {
        match session.run(&self.inputs) {
            Err(error) => Err(format!("the next run fails: {error}")),
            Ok(outputs) if self.differ(&outputs) => {
                Err("the next run computes something else".into())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Does it again if memory is missing afterwards: what was taken once, such as a table that the
    /// whole process shares, is no leak.
    fn without_leaks(
        &self,
        work: impl Fn(&Self, usize) -> (Result<(), String>, usize),
        target: usize,
    ) -> Result<(), String> {
        let mut leaked = 0;
        for _ in 0..2 {
            let before = LIVE.load(SeqCst);
            work(self, target).0?;
            leaked = LIVE.load(SeqCst) - before;
            if leaked <= 0 {
                return Ok(());
            }
        }
        Err(format!("{leaked} bytes are leaked"))
    }

    /// All refusals from this one on; each is told before it is made.
    /// Returns how many were made.
    fn refuse(&self, name: &str, most: usize, from: usize, failures: &mut Vec<String>) -> usize {
        let decodes = self.decode(usize::MAX).1;
        let runs = self.run(usize::MAX).1;
        let stride = (decodes + runs).div_ceil(most).max(1);
        for (number, at) in (0..decodes + runs).step_by(stride).enumerate().skip(from) {
            say(&format!("at {name} {number}"));
            let done = match at.checked_sub(decodes) {
                None => self.without_leaks(Self::decode, at),
                Some(at) => self.without_leaks(Self::run, at),
            };
            failures.extend(done.err().map(|what| format!("{name}, request {at}: {what}")));
        }
        (decodes + runs).div_ceil(stride).saturating_sub(from)
    }
}

/// A line for the parent. Not `println!`, which the test harness would keep until the end.
fn say(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
}

/// Where a child begins: `bytes;requests;case;number`.
const FROM: &str = "PLUTINO_REFUSALS_FROM";

/// The work of a child; without a parent there is none.
#[test]
fn child() {
    let Ok(from) = std::env::var(FROM) else { return };
    let words: Vec<&str> = from.split(';').collect();
    let &[least, most, first, number] = &words[..] else { panic!("{from}") };
    let (most, number): (usize, usize) = (most.parse().unwrap(), number.parse().unwrap());
    LEAST.store(least.parse().unwrap(), SeqCst);
    let cases = OpCase::all().unwrap();
    let cases = cases.iter().map(|case| (case.name.as_str(), Some(case)));
    let written = WRITTEN.iter().map(|(name, _)| (*name, None));
    let all = NETWORKS.iter().map(|&name| (name, None)).chain(written).chain(cases);
    let (mut requests, mut from) = (0, number);
    for (name, case) in all.skip_while(|(name, _)| !first.is_empty() && *name != first) {
        say(&format!("at {name} {from}"));
        let text = WRITTEN.iter().find(|(of, _)| *of == name).map(|(_, text)| text);
        let subject = match (case, text) {
            (Some(case), _) => Subject::case(case),
            (None, Some(text)) => Subject::written(text),
            (None, None) => Subject::network(name),
        };
        let mut failures = Vec::new();
        requests += subject.refuse(name, most, from, &mut failures);
        from = 0;
        failures.iter().for_each(|failure| say(&format!("failed {failure}")));
    }
    say(&format!("done {requests}"));
}

/// Runs a child from a place on, and returns where it ended early, if it did.
fn follow(from: &str, failures: &mut Vec<String>, requests: &mut usize) -> Option<(String, usize)> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]).env(FROM, from);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut last = None;
    let mut done = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("at", place)) => last = Some(place.to_owned()),
            Some(("failed", what)) => failures.push(what.to_owned()),
            Some(("done", n)) => {
                *requests += n.parse::<usize>().unwrap();
                done = true;
            }
            _ => {}
        }
    }
    child.wait().unwrap();
    let place = last.filter(|_| !done)?;
    let (name, number) = place.rsplit_once(' ').unwrap();
    Some((name.to_owned(), number.parse().unwrap()))
}

/// What to try: [`PASSES`], or for those who look for more, sizes from the environment.
fn passes() -> Vec<(usize, usize, usize)> {
    match std::env::var("PLUTINO_REFUSALS_LEAST") {
        Ok(least) => vec![(least.parse().unwrap(), 24, 1)],
        Err(_) => PASSES.to_vec(),
    }
}

#[test]
fn every_refusal_is_a_typed_error() {
    for (least, most, enough) in passes() {
        let (mut failures, mut requests) = (Vec::new(), 0);
        let mut place = (String::new(), 0);
        while let Some((name, number)) =
            follow(&format!("{least};{most};{};{}", place.0, place.1), &mut failures, &mut requests)
        {
            failures.push(format!("{name}, refusal {number}: the process ended"));
            assert!(failures.len() < 2000, "{}", failures.join("\n"));
            place = (name, number + 1);
        }
        let told = format!("{} failures of more than {least} bytes:\n", failures.len());
        assert!(failures.is_empty(), "{told}{}", failures.join("\n"));
        assert!(requests >= enough, "{requests} requests of more than {least} bytes were tried");
    }
}

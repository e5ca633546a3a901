//! Cancelling at any instant: what must hold, and how long it takes. For the suite, and for
//! `cargo xtask cancel`, which reports figures.

use crate::{fixture, inputs, model};
use plutino::ir::{Graph, LoadOptions};
use plutino::tensor::stop::Stop;
use plutino::tensor::{DType, Scope};
use plutino::{
    CancelToken, Limits, Model, ModelError, Request, Session, SessionError, SessionOptions, Tensor,
};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A model with inputs that it is run on.
pub struct Subject {
    /// What reports call it.
    pub name: String,
    /// The model.
    pub model: Model,
    /// Its inputs, in order.
    pub inputs: Vec<Tensor>,
}

impl Subject {
    /// A fixture.
    pub fn fixture(name: &str) -> Self {
        let fixture = fixture(name);
        Self { name: name.into(), model: model(&fixture), inputs: inputs(&fixture) }
    }

    /// The product of two matrices of `n` x `n`: one operator.
    pub fn product(n: usize) -> Self {
        let lines = "pnnx.Input in_a 0 1 a\npnnx.Input in_b 0 1 b\n\
                     torch.matmul product 2 1 a b y $input=a $other=b\npnnx.Output out 1 0 y";
        let inputs = vec![noise([n, n], 1), noise([n, n], 2)];
        Self { name: format!("matmul {n} x {n} x {n}"), model: parse(4, 3, lines), inputs }
    }

    /// `n` elements sorted: one operator, one task.
    pub fn sort(n: usize) -> Self {
        let lines = "pnnx.Input in_x 0 1 x\n\
                     torch.sort sort 1 2 x y i dim=0 descending=False $input=x\npnnx.Output out 2 0 y i";
        Self {
            name: format!("sort of {n}"),
            model: parse(3, 3, lines),
            inputs: vec![noise([n], 3)],
        }
    }

    /// The recurrent fixture on a sequence of so many steps.
    pub fn lstm(steps: usize) -> Self {
        let inputs = vec![noise([1, steps, 128], 4)];
        let name = format!("bilstm of {steps} steps");
        Self { name, inputs, ..Self::fixture("bilstm") }
    }

    fn request(&self) -> Request<'_> {
        let names = self.model.inputs().iter().map(|input| input.name.as_str());
        names.zip(&self.inputs).fold(Request::new(), |request, (name, x)| request.feed(name, x))
    }

    /// A session, and what it must compute.
    fn session(&self, threads: usize) -> Result<(Session, Vec<Tensor>), String> {
        let options = SessionOptions::default().with_threads(threads);
        let session = self.model.session(options).map_err(told)?;
        let expected = session.run(&self.inputs).map_err(told)?;
        Ok((session, expected))
    }

    /// The model as if it had just been loaded: nothing is packed, nothing planned.
    fn fresh(&self) -> Result<Model, String> {
        Model::from_graph(self.model.graph().clone()).map_err(told)
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn parse(operators: usize, operands: usize, lines: &str) -> Model {
    let text = format!("7767517\n{operators} {operands}\n{lines}\n");
    let graph = Graph::parse(&text).expect("a model that is written here");
    Model::from_graph(graph).expect("operators that exist")
}

/// Numbers in -1..1 without an order.
fn noise(shape: impl Into<plutino::Shape>, seed: u64) -> Tensor {
    let shape = shape.into();
    let mut random = Random(seed);
    let mut tensor = Tensor::zeros(DType::F32, shape).expect("memory");
    let numbers = tensor.as_mut_slice::<f32>().expect("of f32");
    numbers.iter_mut().for_each(|x| *x = random.fraction() as f32 * 2.0 - 1.0);
    tensor
}

/// Splitmix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What became of some cancels.
#[derive(Debug, Clone, Default)]
pub struct Outcomes {
    /// Runs that were done before.
    pub finished: usize,
    /// Times from the call of `cancel` to the typed error, in ascending order.
    pub latencies: Vec<Duration>,
    /// An uncancelled run (or plan, or load).
    pub whole: Duration,
}

impl Outcomes {
    /// The latency that a part of all cancels does not exceed; 0 where nothing was cancelled.
    pub fn quantile(&self, part: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let at = (part * last as f64).ceil() as usize;
        self.latencies.get(at).copied().unwrap_or_default()
    }

    fn note(&mut self, latency: Option<Duration>) {
        match latency {
            Some(latency) => self.latencies.push(latency),
            None => self.finished += 1,
        }
    }
}

/// Cancels tokens at given instants, on a thread of its own.
struct Canceller(Sender<(CancelToken, Instant)>);

impl Canceller {
    fn new() -> Self {
        let (sender, orders): (_, Receiver<(CancelToken, Instant)>) = channel();
        std::thread::spawn(move || {
            for (token, at) in orders {
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                token.cancel();
            }
        });
        Self(sender)
    }

    /// Does `work` with a token that is cancelled after `delay`; with what came of it, the time
    /// from the cancel to its end.
    fn during<R>(&self, delay: Duration, work: impl FnOnce(&CancelToken) -> R) -> (R, Duration) {
        let token = CancelToken::new();
        let cancelled = Arc::new(OnceLock::new());
        let note = Arc::clone(&cancelled);
        let _registration = token.on_cancel(move || _ = note.set(Instant::now()));
        let at = Instant::now() + delay;
        self.0.send((token.clone(), at)).expect("the canceller lives as long as its orders");
        let made = work(&token);
        let end = Instant::now();
        let latency =
            cancelled.get().map_or(Duration::ZERO, |&at| end.saturating_duration_since(at));
        (made, latency)
    }
}

/// Whether an error is that of a cancelled run, and names the operator.
fn is_cancelled(error: &SessionError) -> bool {
    matches!(error, SessionError::Cancelled { at: Some(_), done, steps } if done < steps || *steps == 0)
}

/// `count` cancels at random instants of a run, and just after its end. Each ends in the right bits
/// or in the error that says so; the session works on.
///
/// # Errors
/// What was wrong.
pub fn runs(subject: &Subject, threads: usize, count: usize) -> Result<Outcomes, String> {
    let (session, expected) = subject.session(threads)?;
    let begin = Instant::now();
    session.run(&subject.inputs).map_err(told)?;
    let whole = begin.elapsed();
    let (mut random, canceller) = (Random(count as u64), Canceller::new());
    let mut outcomes = Outcomes { whole, ..Outcomes::default() };
    for i in 0..count {
        let delay = whole.mul_f64(random.fraction() * 1.1);
        let (made, latency) =
            canceller.during(delay, |token| session.run_with(&subject.request().cancel(token)));
        match made {
            Ok(outputs) if outputs == expected => outcomes.note(None),
            Ok(_) => return Err(format!("cancel {i}: other bits")),
            Err(error) if is_cancelled(&error) => outcomes.note(Some(latency)),
            Err(error) => return Err(format!("cancel {i}: {error}")),
        }
        // Every now and then, so that most cancels follow a cancel.
        if i % 16 == 15 && session.run(&subject.inputs).map_err(told)? != expected {
            return Err(format!("other bits after cancel {i}"));
        }
    }
    if session.run(&subject.inputs).map_err(told)? != expected || session.plan_count() != 1 {
        return Err("the session is not what it was".into());
    }
    outcomes.latencies.sort_unstable();
    Ok(outcomes)
}

/// As [`runs`], while the model is planned: nothing that others share keeps a part of a weight.
///
/// # Errors
/// What was wrong.
pub fn plans(subject: &Subject, threads: usize, count: usize) -> Result<Outcomes, String> {
    let (_, expected) = subject.session(threads)?;
    let specs = crate::specs(&subject.inputs);
    let options = || SessionOptions::default().with_threads(threads);
    let session = subject.fresh()?.session(options()).map_err(told)?;
    let begin = Instant::now();
    session.plan(&specs).map_err(told)?;
    let whole = begin.elapsed();
    let (mut random, canceller) = (Random(count as u64), Canceller::new());
    let mut outcomes = Outcomes { whole, ..Outcomes::default() };
    for i in 0..count {
        let session = subject.fresh()?.session(options()).map_err(told)?;
        let delay = whole.mul_f64(random.fraction() * 1.1);
        let (made, latency) = canceller.during(delay, |token| {
            let limits = Limits { cancel: Some(token.clone()), ..Limits::default() };
            session.plan_within(&specs, &limits).map(drop)
        });
        match made {
            Ok(()) => outcomes.note(None),
            Err(SessionError::Cancelled { done: 0, steps: 0, .. }) => outcomes.note(Some(latency)),
            Err(error) => return Err(format!("cancel {i}: {error}")),
        }
        if session.run(&subject.inputs).map_err(told)? != expected {
            return Err(format!("other bits after cancel {i}"));
        }
    }
    outcomes.latencies.sort_unstable();
    Ok(outcomes)
}

/// As [`runs`], while the model is loaded from files, which are written to `folder`.
///
/// # Errors
/// What was wrong.
pub fn loads(subject: &Subject, folder: &Path, count: usize) -> Result<Outcomes, String> {
    let [param, bin] = ["param", "bin"].map(|end| folder.join(format!("cancel.pnnx.{end}")));
    subject.model.graph().save(&param, &bin).map_err(told)?;
    let begin = Instant::now();
    Model::load(&param).map_err(told)?;
    let whole = begin.elapsed();
    let (mut random, canceller) = (Random(count as u64), Canceller::new());
    let mut outcomes = Outcomes { whole, ..Outcomes::default() };
    for i in 0..count {
        let delay = whole.mul_f64(random.fraction() * 1.1);
        let (made, latency) = canceller.during(delay, |token| {
            let limits = Limits { cancel: Some(token.clone()), ..Limits::default() };
            Model::load_with(&param, LoadOptions { limits, ..LoadOptions::default() }).map(drop)
        });
        match made {
            Ok(()) => outcomes.note(None),
            Err(
                ModelError::Interrupted { .. }
                | ModelError::Load(plutino::ir::LoadError::Interrupted { .. }),
            ) => outcomes.note(Some(latency)),
            Err(error) => return Err(format!("cancel {i}: {error}")),
        }
    }
    outcomes.latencies.sort_unstable();
    Ok(outcomes)
}

/// Runs on one thread in a scope whose signal is given at the look number `give` (from 0); how
/// often the signal was looked at, and what came of the run. Without chance: the looks of a run are
/// always the same.
///
/// # Errors
/// The session's.
pub fn run_until(
    subject: &Subject,
    session: &Session,
    give: usize,
) -> (usize, Result<Vec<Tensor>, SessionError>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&looks);
    let stop = Stop::new(move || seen.fetch_add(1, Ordering::Relaxed) == give, None);
    let scope = Scope::current().ended_by(&stop).enter();
    let made = session.run(&subject.inputs);
    drop(scope);
    (looks.load(Ordering::Relaxed), made)
}

/// Gives the signal at each look there is (or at `most` of them, spread evenly), planning included:
/// each time there is the typed error, and afterwards the session computes the right bits. Returns
/// the number of looks.
///
/// # Errors
/// What was wrong.
pub fn every_look(subject: &Subject, most: usize) -> Result<usize, String> {
    let (_, expected) = subject.session(1)?;
    let session = || {
        let options = SessionOptions::default().with_threads(1);
        subject.fresh()?.session(options).map_err(told)
    };
    let (looks, whole) = run_until(subject, &session()?, usize::MAX);
    if whole.map_err(told)? != expected {
        return Err("other bits in a scope".into());
    }
    for give in (0..looks).step_by(looks.div_ceil(most.max(1)).max(1)) {
        let session = session()?;
        match run_until(subject, &session, give).1 {
            Err(SessionError::Cancelled { .. }) => {}
            Err(error) => return Err(format!("at look {give}: {error}")),
            // Nothing was left to leave out: memory for the results was asked for.
            Ok(outputs) if outputs == expected => {}
            Ok(_) => return Err(format!("at look {give} of {looks}: other bits")),
        }
        if session.run(&subject.inputs).map_err(told)? != expected {
            return Err(format!("other bits after look {give}"));
        }
    }
    Ok(looks)
}

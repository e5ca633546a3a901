//! Inputs without elements and of huge dimensions: memory is no limit to them, so a list or a loop
//! as long as a dimension is not stopped by the budget, and a list ends the process.
//!
//! In every fixture of `fixtures/ops` all dimensions of one size become huge, and those of another
//! 0, so that shapes go on fitting together.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

use plutino::{
    Limits, Model, Request, Session, SessionError, SessionOptions, Shape, Tensor, TensorSpec,
};
use plutino_attack::trial::fit;
use plutino_fixtures::OpCase;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// More than fits into memory, whatever is counted. (2^31, whose square fits a word, was tried.)
const HUGE: usize = 1 << 40;

/// What a plan and a run may take of processor and clock; both look at the clock.
const TIME: Duration = Duration::from_secs(1);

/// Should the process end, this file says what it was at. It is written over, not anew: file
/// systems write the data of a file that was cut to disk when it is closed, milliseconds each time.
struct At(File);

impl At {
    fn new() -> Self {
        Self(File::create(concat!(env!("CARGO_TARGET_TMPDIR"), "/empty.txt")).unwrap())
    }

    fn say(&mut self, what: &str) {
        self.0.rewind().unwrap();
        writeln!(self.0, "{what:<150}").unwrap();
    }
}

fn attempt(session: &Session, inputs: &[Tensor]) -> Result<(), SessionError> {
    let (deadline, model) = (Instant::now() + TIME, session.model());
    let limits = Limits { deadline: Some(deadline), ..Limits::default() };
    let specs: Vec<TensorSpec> = inputs.iter().map(Tensor::spec).collect();
    session.plan_within(&specs, &limits)?;
    let fed = model.inputs().iter().zip(inputs);
    let request = fed.fold(Request::new(), |r, (input, x)| r.feed(input.name.as_str(), x));
    session.run_with(&request.deadline(deadline)).map(drop)
}

#[test]
fn huge_dimensions_of_nothing_end_in_results_or_errors() {
    let (mut ran, mut failures, mut place) = (0usize, Vec::new(), At::new());
    // For whoever looks for more than one: begins with this case.
    let from = std::env::var("PLUTINO_EMPTY_FROM").unwrap_or_default();
    for case in
        OpCase::all().unwrap().into_iter().skip_while(|c| !from.is_empty() && c.name != from)
    {
        let Some(run) = case.runs().unwrap().into_iter().next() else { continue };
        let Ok(model) = Model::from_graph(case.graph().unwrap()) else { continue };
        let options = SessionOptions::default().with_threads(1).with_memory_budget(64 << 20);
        let session = model.session(options).unwrap();
        let sizes: BTreeSet<usize> =
            run.inputs.iter().flat_map(|(_, t)| t.shape().iter().copied()).collect();
        for (huge, empty) in sizes.iter().flat_map(|a| sizes.iter().map(move |b| (*a, *b))) {
            let shape = |tensor: &Tensor| -> Shape {
                let dims = tensor.shape().iter();
                dims.map(|&n| match n {
                    n if n == empty => 0,
                    n if n == huge => HUGE,
                    n => n,
                })
                .collect()
            };
            let made = run.inputs.iter().map(|(_, x)| Tensor::zeros(x.dtype(), shape(x)));
            let inputs: Option<Vec<Tensor>> = made.map(Result::ok).collect();
            let Some(inputs) = inputs else { continue };
            let at = format!("{}: {huge} -> {HUGE}, {empty} -> 0", case.name);
            place.say(&at);
            let start = Instant::now();
            let outcome = catch_unwind(AssertUnwindSafe(|| attempt(&session, &inputs)));
            let took = start.elapsed();
            match outcome {
                _ if took > 20 * TIME => failures.push(format!("{at}: {took:?}")),
                Ok(Ok(())) => ran += 1,
                Ok(Err(error)) => failures.extend(fit(&error).err().map(|e| format!("{at}: {e}"))),
                Err(_) => failures.push(format!("{at}: a panic")),
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(ran > 500 || !from.is_empty(), "{ran} ran: shapes no longer fit");
}

//! One session, many threads, cancels at any instant: each run has the bits of a run alone, or is
//! cancelled. For the suite, and for `cargo xtask soak`.

use crate::cancel::Subject;
use plutino::{CancelToken, Request, Session, SessionError, SessionOptions, Tensor};
use plutino_fixtures::Words;
use std::sync::{Mutex, PoisonError};

/// What became of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Runs {
    /// With results, which are those of a run alone.
    pub whole: usize,
    /// Cancelled by another thread.
    pub cancelled: usize,
}

impl Runs {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.whole += other.whole;
        self.cancelled += other.cancelled;
    }
}

/// A model with several sets of inputs, so that a run which sees another's values shows.
pub struct Crowd {
    subject: Subject,
    inputs: Vec<Vec<Tensor>>,
    expected: Vec<Vec<Tensor>>,
}

impl Crowd {
    /// Of a fixture whose inputs are cut to their first `rows` rows; `sets` of them, each with
    /// other values.
    ///
    /// # Errors
    /// What is wrong with the fixture.
    pub fn new(name: &str, rows: usize, sets: usize) -> Result<Self, String> {
        let subject = Subject::fixture(name);
        let mut inputs = Vec::new();
        for set in 0..sets {
            let cut = subject.inputs.iter().map(|x| part(x, rows, set));
            inputs.push(cut.collect::<Result<Vec<_>, _>>()?);
        }
        let alone = subject.model.session(SessionOptions::default().with_threads(1));
        let alone = alone.map_err(|e| e.to_string())?;
        let expected = inputs.iter().map(|x| alone.run(x).map_err(|e| e.to_string()));
        let expected = expected.collect::<Result<_, _>>()?;
        Ok(Self { subject, inputs, expected })
    }

    /// A session for all threads.
    ///
    /// # Errors
    /// The session's.
    pub fn session(&self, threads: usize) -> Result<Session, String> {
        let options = SessionOptions::default().with_threads(threads);
        self.subject.model.session(options).map_err(|e| e.to_string())
    }

    /// `callers` threads with so many runs each; every now and then one cancels another's.
    ///
    /// # Errors
    /// Other bits, or another error than that of a cancelled run.
    pub fn runs(&self, session: &Session, callers: usize, runs: usize) -> Result<Runs, String> {
        let tokens: Vec<Mutex<CancelToken>> = (0..callers).map(|_| Mutex::default()).collect();
        let own = |caller: usize| {
            let mut random = Words::of(&format!("{} {caller}", self.subject.name));
            let mut below = |n: usize| (random.next().unwrap_or(0) % n.max(1) as u64) as usize;
            let mut done = Runs::default();
            for _ in 0..runs {
                let token = CancelToken::new();
                set(&tokens[caller], &token);
                if below(2) == 0 {
                    get(&tokens[below(callers)]).cancel();
                }
                match self.one(session, below(self.inputs.len()), &token)? {
                    true => done.whole += 1,
                    false => done.cancelled += 1,
                }
            }
            Ok::<_, String>(done)
        };
        let mut all = Runs::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..callers)
                .map(|i| {
                    scope.spawn({
                        let own = &own;
                        move || own(i)
                    })
                })
                .collect();
            for thread in threads {
                all.add(thread.join().map_err(|_| "a thread panicked".to_owned())??);
            }
            Ok::<_, String>(())
        })?;
        Ok(all)
    }

    /// Whether there was a result, which is as it must be.
    fn one(&self, session: &Session, set: usize, token: &CancelToken) -> Result<bool, String> {
        let names = self.subject.model.inputs().iter().map(|input| input.name.as_str());
        let request = names
            .zip(&self.inputs[set])
            .fold(Request::new().cancel(token), |request, (name, x)| request.feed(name, x));
        match session.run_with(&request) {
            Ok(outputs) if outputs == self.expected[set] => Ok(true),
            Ok(_) => Err(format!("{}: other bits than alone", self.subject.name)),
            Err(SessionError::Cancelled { .. }) => Ok(false),
            Err(error) => Err(format!("{}: {error}", self.subject.name)),
        }
    }
}

fn set(place: &Mutex<CancelToken>, token: &CancelToken) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = token.clone();
}

fn get(place: &Mutex<CancelToken>) -> CancelToken {
    place.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Rows from another place on, as many as there are; integers stay what they are.
fn part(x: &Tensor, rows: usize, set: usize) -> Result<Tensor, String> {
    let mut dims = x.shape().dims().to_vec();
    let all = dims.first().copied().unwrap_or(1).max(1);
    let rows = rows.clamp(1, all);
    let row = x.as_bytes().len() / all;
    let first = (set * rows) % (all - rows + 1);
    if let Some(dim) = dims.first_mut() {
        *dim = rows;
    }
    let bytes = &x.as_bytes()[first * row..][..rows * row];
    let mut y = Tensor::from_bytes(x.dtype(), dims, bytes).map_err(|e| e.to_string())?;
    if let Ok(numbers) = y.as_mut_slice::<f32>() {
        numbers.iter_mut().for_each(|x| *x *= 1.0 - 0.125 * set as f32);
    }
    Ok(y)
}

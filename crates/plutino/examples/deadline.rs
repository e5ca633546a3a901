//! Ends a run that takes too long: by a deadline, or from another thread.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::ir::Graph;
use plutino::{CancelToken, Model, Request, SessionError, SessionOptions, Tensor};
use std::error::Error;
use std::time::{Duration, Instant};

const MODEL: &str = "7767517
3 2
pnnx.Input  input  0 1 x
nn.Softmax  y      1 1 x y dim=1
pnnx.Output output 1 0 y
";

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::from_graph(Graph::parse(MODEL)?)?;
    // Memory is bounded as well: an input of any shape asks for no more than this.
    let session = model.session(SessionOptions::default().with_memory_budget(1 << 20))?;
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [1, 3])?;

    let soon = Instant::now() + Duration::from_secs(10);
    println!("in time: {}", session.run_with(&Request::new().feed("x", &x).deadline(soon))?[0]);

    let over = Request::new().feed("x", &x).deadline(Instant::now());
    match session.run_with(&over) {
        Err(error @ SessionError::Deadline { .. }) => println!("too late: {error}"),
        other => return Err(format!("expected to be too late, found {other:?}").into()),
    }

    let token = CancelToken::new();
    // Called once, by the thread that cancels; withdrawn when the registration is dropped.
    let _registration = token.on_cancel(|| println!("somebody cancels"));
    let canceller = token.clone();
    let done = std::thread::spawn(move || canceller.cancel());
    done.join().map_err(|_| "the other thread failed")?;
    match session.run_with(&Request::new().feed("x", &x).cancel(&token)) {
        Err(error @ SessionError::Cancelled { .. }) => println!("cancelled: {error}"),
        other => return Err(format!("expected to be cancelled, found {other:?}").into()),
    }
    Ok(())
}

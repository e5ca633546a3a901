//! A service: requests of several callers, joined into batches, with deadlines, through one queue.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::ir::Graph;
use plutino::{Model, Queue, QueueOptions, Request, SessionOptions, Tensor};
use std::error::Error;
use std::time::{Duration, Instant};

const MODEL: &str = "7767517
4 3
pnnx.Input   in      0 1 x   #x=(?,3)f32
nn.ReLU      relu    1 1 x y #y=(?,3)f32
nn.Softmax   softmax 1 1 y p dim=1 #p=(?,3)f32
pnnx.Output  out     1 0 p
";

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::from_graph(Graph::parse(MODEL)?)?;
    let session = model.session(SessionOptions::default())?;
    let options = QueueOptions::default().with_depth(64).with_batching(8, Duration::from_millis(2));
    let queue = Queue::new(session, options)?;

    // Callers on threads of their own; each knows of its own requests alone.
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4u8)
            .map(|caller| {
                let queue = &queue;
                scope.spawn(move || -> Result<f32, Box<dyn Error + Send + Sync>> {
                    let mut sum = 0.0;
                    for i in 0..50u8 {
                        let row = [f32::from(caller), f32::from(i % 7), 1.0];
                        let x = Tensor::from_slice(&row, [1, 3])?;
                        let soon = Instant::now() + Duration::from_secs(5);
                        let handle = queue.submit(&Request::new().feed("x", &x).deadline(soon))?;
                        sum += handle.wait()?[0].as_slice::<f32>()?.iter().sum::<f32>();
                    }
                    Ok(sum)
                })
            })
            .collect();
        for caller in callers {
            let sum = caller.join().map_err(|_| "a caller panicked")?;
            let sum = sum.map_err(|error| error.to_string())?;
            assert!((sum - 50.0).abs() < 1e-3);
        }
        Ok::<_, Box<dyn Error>>(())
    })?;

    let counts = queue.counts();
    assert_eq!((counts.done, counts.waiting), (200, 0));
    println!("{} requests in {} runs", counts.done, counts.runs);
    queue.finish();
    Ok(())
}

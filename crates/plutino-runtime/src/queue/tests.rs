//! Queues of requests, on the operators of the test kit.

use super::{Handle, Queue, QueueError, QueueOptions};
use crate::testkit::{model, session, values, vector};
use crate::{CancelToken, Limits, Request, Session, SessionError, SessionOptions};
use plutino_ir::Interrupted;
use plutino_tensor::{DType, Tensor, TensorView};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const DOUBLE: &str = "
    pnnx.Input in 0 1 x
    test.Scale s 1 1 x y by=2.0
    pnnx.Output out 1 0 y";

/// A second in pieces of 2 ms.
const LONG: &str = "
    pnnx.Input in 0 1 x
    test.Doze d 1 1 x y
    pnnx.Output out 1 0 y";

/// Rows by themselves; refuses negative numbers.
const ROWS: &str = "
    pnnx.Input in 0 1 x
    test.Refuse r 1 1 x a
    test.Scale s 1 1 a y by=2.0
    pnnx.Output out 1 0 y";

fn queue(lines: &str, options: QueueOptions) -> Queue {
    Queue::new(session(lines), options).unwrap()
}

fn batching(lines: &str, most: usize) -> Queue {
    queue(lines, QueueOptions::default().with_batching(most, Duration::from_secs(20)))
}

fn rows(from: f32, rows: usize) -> Tensor {
    Tensor::from_fn::<f32>([rows, 2], |index| from + (index / 2) as f32).unwrap()
}

fn submit(queue: &Queue, x: &Tensor) -> Handle {
    queue.submit(&Request::new().feed("x", x)).unwrap()
}

fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(60), "this never happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn requests_run_in_their_order() {
    for workers in [1, 3] {
        let queue = queue(DOUBLE, QueueOptions::default().with_workers(workers).with_depth(2));
        let handles: Vec<Handle> = (0..50).map(|i| submit(&queue, &vector(&[i as f32]))).collect();
        for (i, handle) in handles.into_iter().enumerate() {
            assert_eq!(values(&handle.wait().unwrap()[0]), [2.0 * i as f32]);
        }
        let counts = queue.counts();
        assert_eq!((counts.waiting, counts.done, counts.runs), (0, 50, 50));
    }
}

#[test]
fn what_is_asked_for_is_what_the_request_says() {
    let queue = queue(ROWS, QueueOptions::default());
    let numbers = [1.0f32, 5.0, 2.0, 6.0];
    let view = TensorView::from_slice(&numbers, [4]).unwrap().slice(0, 0..4, 2).unwrap();
    let handle = queue.submit(&Request::new().feed("x", view).fetch("y").fetch("a")).unwrap();
    let results = handle.wait().unwrap();
    assert_eq!(results.iter().map(values).collect::<Vec<_>>(), [[2.0, 4.0], [1.0, 2.0]]);
    let x = vector(&[3.0]);
    let all = queue.submit(&Request::new().feed("x", &x).fetch_all()).unwrap().wait().unwrap();
    assert_eq!(all.len(), 3);
    let error = submit(&queue, &vector(&[-1.0])).wait().unwrap_err();
    assert!(matches!(error, QueueError::Session(SessionError::Run { .. })), "{error}");
    let error = queue.submit(&Request::new().feed("nine", &x)).unwrap().wait().unwrap_err();
    assert!(matches!(error, QueueError::Session(SessionError::NoSuchOperand { .. })), "{error}");
    let error = Queue::new(session(DOUBLE), QueueOptions::default().with_workers(0)).unwrap_err();
    assert_eq!(error.to_string(), "workers must be at least 1, found '0'");
}

#[test]
fn a_full_queue_refuses_or_has_the_caller_wait() {
    let queue = queue(LONG, QueueOptions::default().with_depth(1));
    let x = vector(&[1.0]);
    let running = submit(&queue, &x);
    until(|| queue.counts().waiting == 0 && queue.counts().runs == 1);
    let waiting = submit(&queue, &x);
    let error = queue.try_submit(&Request::new().feed("x", &x)).unwrap_err();
    assert_eq!(error, QueueError::Full { depth: 1 });
    assert!(error.is_limit());
    let soon = Instant::now() + Duration::from_millis(20);
    let error = queue.submit(&Request::new().feed("x", &x).deadline(soon)).unwrap_err();
    assert_eq!(error.to_string(), "the deadline passed while the request waited in the queue");
    assert_eq!(queue.counts().waiting, 1);
    drop(waiting); // makes room
    until(|| queue.counts().waiting == 0);
    let next = queue.try_submit(&Request::new().feed("x", &x)).unwrap();
    assert!(!running.is_done());
    drop((running, next));
}

#[test]
fn limits_hold_in_the_queue() {
    let queue = queue(LONG, QueueOptions::default());
    let x = vector(&[1.0]);
    let start = Instant::now();
    let running = submit(&queue, &x);
    until(|| queue.counts().runs == 1);
    let (soon, token) = (Instant::now() + Duration::from_millis(20), CancelToken::new());
    let late = queue.submit(&Request::new().feed("x", &x).deadline(soon)).unwrap();
    let asked = queue.submit(&Request::new().feed("x", &x).cancel(&token)).unwrap();
    let own = submit(&queue, &x);
    let interrupted = |why| Err(QueueError::Interrupted { why, running: false });
    assert_eq!(late.wait(), interrupted(Interrupted::Deadline));
    token.cancel();
    assert_eq!(asked.wait(), interrupted(Interrupted::Cancelled));
    own.cancel();
    assert_eq!(own.wait(), interrupted(Interrupted::Cancelled));
    // The run itself says how far it came.
    running.cancel();
    let error = running.wait().unwrap_err();
    assert!(matches!(error, QueueError::Session(SessionError::Cancelled { .. })), "{error}");
    assert!(start.elapsed() < Duration::from_millis(900), "nobody waited for the run");
    // Before it is submitted, too.
    let error = queue.submit(&Request::new().feed("x", &x).cancel(&token)).unwrap_err();
    assert!(error.is_limit());
    // The deadline of a run.
    let soon = Instant::now() + Duration::from_millis(20);
    let run = queue.submit(&Request::new().feed("x", &x).deadline(soon)).unwrap();
    let error = run.wait().unwrap_err();
    assert!(error.is_limit(), "{error}");
    assert_eq!(queue.counts().done, 5);
}

#[test]
fn a_handle_that_is_dropped_cancels_unless_it_is_detached() {
    let queue = queue(DOUBLE, QueueOptions::default());
    submit(&queue, &vector(&[1.0])).detach();
    until(|| queue.counts().done == 1);
    let long = self::queue(LONG, QueueOptions::default());
    let start = Instant::now();
    drop(submit(&long, &vector(&[1.0])));
    submit(&long, &vector(&[1.0])).cancel();
    until(|| long.counts().done == 2);
    assert!(start.elapsed() < Duration::from_millis(900));
}

#[test]
fn a_handle_is_a_future_that_is_woken() {
    let queue = queue(DOUBLE, QueueOptions::default());
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut cx = Context::from_waker(&waker);
    let long = self::queue(LONG, QueueOptions::default());
    let mut pending = submit(&long, &vector(&[1.0]));
    assert!(std::pin::pin!(&mut pending).poll(&mut cx).is_pending());
    assert!(pending.try_take().is_none());
    let soon = Limits { deadline: Some(Instant::now()), cancel: None };
    assert_eq!(pending.wait_within(&soon), Err(Interrupted::Deadline), "it goes on");
    assert_eq!(bell.0.load(SeqCst), 0);
    pending.cancel();
    until(|| bell.0.load(SeqCst) == 1);
    assert!(pending.is_done());
    match std::pin::pin!(&mut pending).poll(&mut cx) {
        Poll::Ready(Err(error)) => assert!(error.is_limit(), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(pending.try_take(), None);
    assert_eq!(pending.wait(), Err(QueueError::Taken));
    let mut done = submit(&queue, &vector(&[4.0]));
    until(|| done.is_done());
    assert_eq!(values(&done.try_take().unwrap().unwrap()[0]), [8.0]);
}

#[test]
fn a_queue_ends_cleanly() {
    let queue = queue(DOUBLE, QueueOptions::default());
    let handles: Vec<Handle> = (0..20).map(|i| submit(&queue, &vector(&[i as f32]))).collect();
    queue.finish();
    assert!(handles.iter().all(Handle::is_done));
    assert!(handles.into_iter().all(|handle| handle.wait().is_ok()));
    let queue = self::queue(DOUBLE, QueueOptions::default());
    queue.close();
    let x = vector(&[1.0]);
    assert_eq!(queue.submit(&Request::new().feed("x", &x)).unwrap_err(), QueueError::Closed);
    // Dropped: what waits is told, what runs is waited for.
    let queue = self::queue(LONG, QueueOptions::default());
    let running = submit(&queue, &x);
    until(|| queue.counts().runs == 1);
    let waiting = submit(&queue, &x);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(queue));
        assert_eq!(waiting.wait(), Err(QueueError::Closed));
        assert!(!running.is_done());
        running.cancel();
    });
    assert!(running.is_done());
}

#[test]
fn requests_that_arrive_together_run_as_one() {
    let queue = batching(ROWS, 4);
    let handles: Vec<Handle> =
        (0..8).map(|i| submit(&queue, &rows(10.0 * i as f32, 1 + i % 3))).collect();
    for (i, handle) in handles.into_iter().enumerate() {
        let y = handle.wait().unwrap();
        assert_eq!(y[0].shape().dims(), [1 + i % 3, 2]);
        let x = values(&rows(10.0 * i as f32, 1 + i % 3));
        assert_eq!(values(&y[0]), x.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    }
    let counts = queue.counts();
    assert_eq!((counts.done, counts.runs), (8, 2));
    // Others shapes are no company; those that are there run as a power of two when time is over.
    let queue =
        self::queue(ROWS, QueueOptions::default().with_batching(8, Duration::from_millis(300)));
    let mut handles: Vec<Handle> = (0..3).map(|i| submit(&queue, &rows(i as f32, 1))).collect();
    handles.push(submit(&queue, &Tensor::zeros(DType::F32, [1, 3]).unwrap()));
    assert!(handles.into_iter().all(|handle| handle.wait().is_ok()));
    assert_eq!(queue.counts().runs, 3);
}

#[test]
fn one_bad_request_spoils_no_other() {
    let queue = batching(ROWS, 4);
    let handles: Vec<Handle> =
        [1.0, -5.0, 2.0, 3.0].iter().map(|&x| submit(&queue, &rows(x, 1))).collect();
    let results: Vec<_> = handles.into_iter().map(Handle::wait).collect();
    let firsts: Vec<Option<f32>> =
        results.iter().map(|result| Some(values(&result.as_ref().ok()?[0])[0])).collect();
    assert_eq!(firsts, [Some(2.0), None, Some(4.0), Some(6.0)]);
    let error = results[1].as_ref().unwrap_err().to_string();
    assert!(error.ends_with("input 0: -5 is negative"), "{error}");
    assert_eq!(queue.counts().runs, 5, "one together, and each alone");
}

/// The sizes as a result, a sum over all rows, a flat result: nothing of that is joined.
#[test]
fn models_whose_batch_is_not_open_run_alone() {
    for lines in [
        "pnnx.Input in 0 1 x\ntest.SizeOf s 1 1 x y\npnnx.Output out 1 0 y",
        "pnnx.Input in 0 1 x\ntest.View v 1 1 x y\npnnx.Output out 1 0 y",
        "pnnx.Input in 0 1 x\ntest.Positive v 1 1 x y\npnnx.Output out 1 0 y",
    ] {
        let (queue, alone) = (batching(lines, 2), session(lines));
        let handles: Vec<Handle> = (0..4).map(|i| submit(&queue, &rows(i as f32, 1))).collect();
        for (i, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.wait().unwrap(), alone.run(&[rows(i as f32, 1)]).unwrap());
        }
        assert_eq!(queue.counts().runs, 4, "{lines}");
    }
}

#[test]
fn who_leaves_a_batch_is_told_at_once_and_the_last_one_ends_it() {
    let queue = batching(LONG, 2);
    let start = Instant::now();
    let soon = Instant::now() + Duration::from_millis(30);
    let x = rows(1.0, 1);
    let late = queue.submit(&Request::new().feed("x", &x).deadline(soon)).unwrap();
    let other = submit(&queue, &rows(2.0, 1));
    let error = QueueError::Interrupted { why: Interrupted::Deadline, running: true };
    assert_eq!(late.wait(), Err(error));
    assert!(start.elapsed() < Duration::from_millis(900));
    assert_eq!(values(&other.wait().unwrap()[0]), [2.0, 2.0], "the other one has its result");
    let handles = [submit(&queue, &x), submit(&queue, &x)];
    until(|| queue.counts().runs == 2);
    let start = Instant::now();
    for handle in handles {
        handle.cancel();
        let error = QueueError::Interrupted { why: Interrupted::Cancelled, running: true };
        assert_eq!(handle.wait(), Err(error));
    }
    queue.finish();
    assert!(start.elapsed() < Duration::from_millis(900), "the run ended with its last request");
}

#[test]
fn threads_submit_and_cancel_at_the_same_time() {
    let options = QueueOptions::default().with_workers(2).with_depth(3);
    let queue = queue(ROWS, options.with_batching(4, Duration::from_micros(200)));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let queue = &queue;
            scope.spawn(move || {
                for i in 0..60 {
                    let x = (100 * thread + i) as f32;
                    let handle = submit(queue, &rows(x, 1));
                    match i % 4 {
                        0 => drop(handle),
                        1 => handle.detach(),
                        _ => assert_eq!(values(&handle.wait().unwrap()[0]), [2.0 * x; 2]),
                    }
                }
            });
        }
    });
    until(|| queue.counts().done == 180);
    assert_eq!(queue.counts().waiting, 0);
}

#[test]
fn sessions_are_shared() {
    let shared: Arc<Session> =
        Arc::new(model(DOUBLE).session(SessionOptions::default().with_threads(2)).unwrap());
    let queue = Queue::new(Arc::clone(&shared), QueueOptions::default()).unwrap();
    let handle = submit(&queue, &vector(&[1.0]));
    assert_eq!(values(&shared.run(&[vector(&[3.0])]).unwrap()[0]), [6.0]);
    assert_eq!(values(&handle.wait().unwrap()[0]), [2.0]);
    assert!(std::ptr::eq(queue.session(), &*shared));
}

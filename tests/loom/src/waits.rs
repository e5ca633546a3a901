//! What threads of the runtime wait for: rendezvous, queues, results.

use crate::line::{Entry, Line, Turn};
use crate::monitor::Monitor;
use crate::sync::{Arc, AtomicUsize, CancelToken, Interrupted, Limits, Ordering::SeqCst};
use crate::table::{End, Table};
use crate::ticket::Ticket;
use loom::thread;
use std::task::{Context, Poll, Wake, Waker};

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

fn none() -> Limits {
    Limits::default()
}

#[test]
fn a_change_is_seen_or_told() {
    model(3, || {
        let monitor = Monitor::new(0);
        let waiter = {
            let monitor = Arc::clone(&monitor);
            thread::spawn(move || monitor.wait(&none(), |n| (*n == 2).then_some(*n)))
        };
        monitor.change(|n| *n += 1);
        monitor.change(|n| *n += 1);
        assert_eq!(waiter.join().unwrap(), Ok(2));
    });
}

#[test]
fn a_token_ends_a_wait_whenever_it_is_cancelled() {
    model(3, || {
        let (monitor, token) = (Monitor::new(false), CancelToken::default());
        let waiter = {
            let (monitor, cancel) = (Arc::clone(&monitor), Some(token.clone()));
            let limits = Limits { cancel, deadline: None };
            thread::spawn(move || monitor.wait(&limits, |set| set.then_some(())))
        };
        token.cancel();
        assert_eq!(waiter.join().unwrap(), Err(Interrupted::Cancelled));
    });
    // What is there is had, or the wait ends: nothing in between.
    model(2, || {
        let (monitor, token) = (Monitor::new(false), CancelToken::default());
        let waiter = {
            let (monitor, cancel) = (Arc::clone(&monitor), Some(token.clone()));
            let limits = Limits { cancel, deadline: None };
            thread::spawn(move || monitor.wait(&limits, |set| std::mem::take(set).then_some(())))
        };
        monitor.change(|set| *set = true);
        token.cancel();
        let had = waiter.join().unwrap().is_ok();
        assert_ne!(had, monitor.with(|set| *set), "a value is lost, or there twice");
    });
}

type Place = Arc<Monitor<Table<u32>>>;

fn send(place: &Place, value: u32) -> Result<(), End> {
    let mut value = Some(value);
    place.wait(&none(), |table| table.put("key", &mut value)).unwrap()
}

fn receive(place: &Place) -> Result<u32, End> {
    place.wait(&none(), |table| table.take("key")).unwrap()
}

#[test]
fn values_come_in_their_order_past_senders_that_wait() {
    model(3, || {
        let place = Monitor::new(Table::<u32>::new(1));
        let sender = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                (0..3).for_each(|value| send(&place, value).unwrap());
                place.change(|table| table.finish("key"));
            })
        };
        for value in 0..3 {
            assert!(place.with(|table| table.len("key")) <= 1, "there is room for one");
            assert_eq!(receive(&place), Ok(value));
        }
        assert_eq!(receive(&place), Err(End::Finished));
        sender.join().unwrap();
    });
    // Two receivers: each value goes to one of them.
    model(2, || {
        let place = Monitor::new(Table::<u32>::new(1));
        let receivers: Vec<_> = (0..2)
            .map(|_| {
                let place = Arc::clone(&place);
                thread::spawn(move || receive(&place).unwrap())
            })
            .collect();
        (0..2).for_each(|value| send(&place, value).unwrap());
        let mut all: Vec<u32> = receivers.into_iter().map(|r| r.join().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1]);
    });
}

#[test]
fn an_abort_reaches_whoever_waits() {
    model(3, || {
        let place = Monitor::new(Table::<u32>::new(1));
        send(&place, 1).unwrap();
        let sender = {
            let place = Arc::clone(&place);
            thread::spawn(move || send(&place, 2))
        };
        let receiver = {
            let place = Arc::clone(&place);
            thread::spawn(move || (receive(&place), receive(&place), receive(&place)))
        };
        place.change(|table| table.abort("why".into()));
        let aborted = Err(End::Aborted("why".into()));
        let sent = sender.join().unwrap();
        assert!(sent == Ok(()) || sent.is_err());
        let (_, _, last) = receiver.join().unwrap();
        assert_eq!(last, aborted);
    });
}

/// A request; those of one kind may run as one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Job(usize);

impl Entry for Job {
    fn is(&self, other: &Self) -> bool {
        self == other
    }

    fn joins(&self, _: &Self) -> bool {
        true
    }
}

/// How often each of two requests was run.
type Counts = Arc<[AtomicUsize; 2]>;

fn counts() -> Counts {
    Arc::new(std::array::from_fn(|_| AtomicUsize::new(0)))
}

/// As workers do: a window ends at once.
fn work(line: &Arc<Monitor<Line<Job>>>, runs: &Counts) {
    let run = |job: &Job| _ = runs[job.0].fetch_add(1, SeqCst);
    loop {
        match line.wait(&none(), Line::turn).unwrap() {
            Turn::One(job) => run(&job),
            Turn::Lead(job) => line.change(|line| line.gather(&job)).iter().for_each(run),
            Turn::Over => return,
        }
    }
}

#[test]
fn each_request_runs_once_and_workers_end() {
    for (most, workers, preemptions) in [(1, 2, 2), (2, 2, 2)] {
        model(preemptions, move || {
            let (line, runs) = (Monitor::new(Line::<Job>::new(1, most)), counts());
            let workers: Vec<_> = (0..workers)
                .map(|_| {
                    let (line, runs) = (Arc::clone(&line), Arc::clone(&runs));
                    thread::spawn(move || work(&line, &runs))
                })
                .collect();
            for job in [Job(0), Job(1)] {
                assert!(line.wait(&none(), |line| line.push(&job)).unwrap());
            }
            line.change(|line| line.close());
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            assert_eq!(runs.each_ref().map(|n| n.load(SeqCst)), [1, 1]);
        });
    }
}

/// A window that ends when there are enough, or the leader is withdrawn: nobody waits for ever.
#[test]
fn a_leader_is_told_of_company_and_of_withdrawal() {
    model(2, || {
        let (line, runs) = (Monitor::new(Line::<Job>::new(2, 2)), counts());
        let worker = {
            let (line, runs) = (Arc::clone(&line), Arc::clone(&runs));
            thread::spawn(move || {
                let Turn::Lead(job) = line.wait(&none(), Line::turn).unwrap() else { panic!() };
                line.wait(&none(), |line| line.is_enough(&job).then_some(())).unwrap();
                let jobs = line.change(|line| line.gather(&job));
                jobs.iter().for_each(|job| _ = runs[job.0].fetch_add(1, SeqCst));
                work(&line, &runs);
            })
        };
        line.wait(&none(), |line| line.push(&Job(0))).unwrap();
        let other = {
            let line = Arc::clone(&line);
            thread::spawn(move || line.wait(&none(), |line| line.push(&Job(1))).unwrap())
        };
        let withdrawn = line.change(|line| line.withdraw(&Job(0)));
        assert!(other.join().unwrap());
        line.change(|line| line.close());
        worker.join().unwrap();
        let runs = runs.each_ref().map(|n| n.load(SeqCst));
        assert_eq!(runs, [usize::from(!withdrawn), 1]);
    });
}

#[test]
fn a_request_is_run_or_withdrawn_or_handed_back() {
    for most in [1, 2] {
        model(3, move || {
            let (line, runs) = (Monitor::new(Line::<Job>::new(2, most)), counts());
            for job in [Job(0), Job(1)] {
                line.wait(&none(), |line| line.push(&job)).unwrap();
            }
            let worker = {
                let (line, runs) = (Arc::clone(&line), Arc::clone(&runs));
                thread::spawn(move || work(&line, &runs))
            };
            let withdrawn = line.change(|line| line.withdraw(&Job(0)));
            let left = line.change(|line| line.clear());
            worker.join().unwrap();
            let runs = runs.each_ref().map(|n| n.load(SeqCst));
            let left = |job| left.iter().filter(|other| **other == job).count();
            assert_eq!(runs[0] + usize::from(withdrawn) + left(Job(0)), 1);
            assert_eq!(runs[1] + left(Job(1)), 1);
        });
    }
}

/// Counts how often it was woken.
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn of_results_the_first_counts_and_who_polled_is_woken() {
    model(3, || {
        let ticket = Ticket::new();
        let other = {
            let ticket = ticket.clone();
            thread::spawn(move || ticket.complete(1, || ()))
        };
        let bell = Arc::new(Bell(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&bell));
        let polled = ticket.poll(&mut Context::from_waker(&waker));
        let first = ticket.complete(2, || ());
        let others = other.join().unwrap();
        assert!(first != others, "one of them is the first");
        let result = match polled {
            Poll::Ready(result) => result,
            Poll::Pending => {
                assert_eq!(bell.0.load(SeqCst), 1, "whoever was first woke it");
                ticket.take()
            }
        };
        assert_eq!(result, Some(if first { 2 } else { 1 }));
        assert_eq!(ticket.take(), None);
    });
    model(3, || {
        let ticket = Ticket::new();
        let other = {
            let ticket = ticket.clone();
            thread::spawn(move || ticket.complete(1, || ()))
        };
        assert_eq!(ticket.wait(&none()), Ok(Some(1)));
        assert!(other.join().unwrap());
    });
}

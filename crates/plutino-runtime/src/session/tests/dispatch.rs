//! Steps that run at the same time.

use crate::testkit::{model, values, vector};
use crate::{Dispatch, MemoryUse, Request, Session, SessionError, SessionOptions};
use plutino_tensor::{DType, TensorSpec};
use std::fmt::Write;
use std::time::{Duration, Instant};

fn session(lines: &str, threads: usize, dispatch: Dispatch) -> Session {
    let options = SessionOptions::default().with_threads(threads).with_dispatch(dispatch);
    model(lines).session(options).unwrap()
}

fn chains(session: &Session, size: usize) -> Vec<Vec<usize>> {
    let plan = session.plan(&[TensorSpec::new(DType::F32, [size])]).unwrap();
    plan.phases().flat_map(|phase| phase.chains).collect()
}

const TWO: &str = "
    pnnx.Input in 0 1 0
    test.Scale s 1 1 0 1 by=2.0
    test.Meet a 1 1 1 2
    test.Reverse b 1 1 2 3
    test.Meet c 1 1 1 4
    test.Reverse d 1 1 4 5
    test.Add e 2 1 3 5 6
    pnnx.Output out 1 0 6";

#[test]
fn two_chains_run_at_the_same_time() {
    let session = session(TWO, 2, Dispatch::Together);
    let plan = session.plan(&[TensorSpec::new(DType::F32, [4])]).unwrap();
    let mut all: Vec<usize> = plan.phases().flat_map(|phase| phase.steps).collect();
    assert_eq!(all, (0..plan.steps().len()).collect::<Vec<_>>(), "each step is in one phase");
    all = plan.phases().flat_map(|phase| phase.chains).flatten().collect();
    assert_eq!(all.len(), 4);
    for _ in 0..20 {
        // Each of the two waits for the other.
        let (outputs, profile) = session.profile(&[vector(&[1.0, 2.0, 3.0, 4.0])]).unwrap();
        assert_eq!(values(&outputs[0]), [16.0, 12.0, 8.0, 4.0]);
        assert_eq!(profile.steps.len(), plan.steps().len());
        assert!(profile.busy() <= profile.total);
        let threads = |at: usize| profile.steps[all[at]].thread;
        assert_eq!(
            (threads(0), threads(2)),
            (threads(1), threads(3)),
            "a chain stays on its thread"
        );
        assert_ne!(threads(0), threads(2));
        let work: Vec<usize> = profile.threads.iter().map(Vec::len).collect();
        assert_eq!(work, [2, 2], "what each thread ran is told by step");
    }
}

#[test]
fn in_turn_nothing_runs_at_the_same_time() {
    let refuses = TWO.replace("test.Meet", "test.Refuse");
    for (threads, dispatch) in
        [(1, Dispatch::Together), (2, Dispatch::InTurn), (2, Dispatch::ByCost)]
    {
        // By cost: it is far too small.
        let session = session(&refuses, threads, dispatch);
        assert_eq!(chains(&session, 4), [] as [Vec<usize>; 0], "{dispatch:?}");
    }
    let low = SessionOptions::default()
        .with_threads(2)
        .with_dispatch(Dispatch::Together)
        .with_memory(MemoryUse::Low);
    assert_eq!(chains(&model(&refuses).session(low).unwrap(), 4), [] as [Vec<usize>; 0]);
}

#[test]
fn a_plan_too_small_for_threads_calls_none() {
    let plan = |dispatch| {
        let lines = TWO.replace("test.Meet", "test.Refuse");
        let session = session(&lines, 2, dispatch);
        let input = vector(&[1.0; 4]);
        let (_, profile) = session.profile(&[input]).unwrap();
        (session.plan(&[TensorSpec::new(DType::F32, [4])]).unwrap(), profile)
    };
    let (by_cost, profile) = plan(Dispatch::ByCost);
    assert!(by_cost.runs_alone());
    assert!(profile.threads.iter().all(Vec::is_empty));
    assert!(!plan(Dispatch::InTurn).0.runs_alone());
    assert!(!plan(Dispatch::Together).0.runs_alone());
}

#[test]
fn the_first_failure_in_order_is_told_whoever_ran_first() {
    // Of two chains that both fail, the one whose failing step comes first in turn; it runs last.
    let lines = "
        pnnx.Input in 0 1 0
        test.Sleep a 1 1 0 1
        test.Refuse early 1 1 1 2
        test.Refuse late 1 1 0 3
        test.Add e 2 1 2 3 4
        pnnx.Output out 1 0 4";
    let told = |dispatch| {
        let session = session(lines, 2, dispatch);
        session.run(&[vector(&[1.0, -1.0])]).unwrap_err().to_string()
    };
    let expected = told(Dispatch::InTurn);
    assert!(expected.contains("early"), "{expected}");
    for _ in 0..5 {
        assert_eq!(told(Dispatch::Together), expected);
    }
    let session = session(lines, 2, Dispatch::Together);
    assert_eq!(chains(&session, 2).len(), 2);
    assert!(session.run(&[vector(&[1.0, -1.0])]).is_err());
    let fine = session.run(&[vector(&[1.0, 2.0])]).unwrap();
    assert_eq!(values(&fine[0]), [2.0, 4.0], "the session works on");
}

#[test]
fn a_deadline_ends_all_chains() {
    // A second each.
    let lines = "
        pnnx.Input in 0 1 0
        test.Doze a 1 1 0 1
        test.Doze b 1 1 0 2
        test.Add e 2 1 1 2 3
        pnnx.Output out 1 0 3";
    let session = session(lines, 2, Dispatch::Together);
    assert_eq!(chains(&session, 2).len(), 2);
    let input = vector(&[1.0, 2.0]);
    let start = Instant::now();
    let request = Request::new().feed("0", &input).deadline(start + Duration::from_millis(50));
    let error = session.run_with(&request).unwrap_err();
    assert!(matches!(error, SessionError::Deadline { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
}

/// Branches of a scale and two reversals each, joined.
fn branches(count: usize) -> String {
    let mut lines = String::from("pnnx.Input in 0 1 0\n");
    for i in 0..count {
        let at = 1 + 3 * i;
        let by = i as f32 / 8.0;
        writeln!(lines, "test.Scale s{i} 1 1 0 {at} by={by}").unwrap();
        writeln!(lines, "test.Reverse r{i} 1 1 {at} {}", at + 1).unwrap();
        writeln!(lines, "test.Reverse q{i} 1 1 {} {}", at + 1, at + 2).unwrap();
    }
    write!(lines, "test.Cat cat {count} 1").unwrap();
    (0..count).for_each(|i| write!(lines, " {}", 3 + 3 * i).unwrap());
    let last = 1 + 3 * count;
    writeln!(
        lines,
        " {last}\ntest.Relu r 1 1 {last} {}\npnnx.Output out 1 0 {}",
        last + 1,
        last + 1
    )
    .unwrap();
    lines
}

#[test]
fn chains_have_memory_of_their_own_and_no_more_than_they_need() {
    let lines = branches(24);
    let of = |dispatch, threads| {
        let session = session(&lines, threads, dispatch);
        session.plan(&[TensorSpec::new(DType::F32, [64])]).unwrap()
    };
    let (in_turn, together) = (of(Dispatch::InTurn, 2), of(Dispatch::Together, 2));
    let count = together.phases().map(|phase| phase.chains.len()).max().unwrap();
    assert_eq!(count, 8, "four tasks for each thread");
    let (before, after) = (in_turn.memory(), together.memory());
    // A task needs what a branch needs: its own value and scratch memory, while others do.
    let branch = 3 * 64 * 4;
    assert!(after.arena <= before.arena + count * branch, "{before:?} {after:?}");
    assert!(after.arena > before.arena);
    assert!(after.arena <= after.lower_bound + after.lower_bound / 50);
    assert_eq!(together.live_bytes().into_iter().max(), Some(after.lower_bound));
    // No two pieces of the arena that are needed at the same time share a byte.
    let all = together.allocations();
    for (i, a) in all.iter().enumerate() {
        assert!(a.offset + a.bytes <= after.arena);
        for b in &all[i + 1..] {
            let end = |x: &crate::Allocation| x.freed_by.unwrap_or(usize::MAX);
            let meet = a.step <= end(b) && b.step <= end(a);
            assert!(!meet || a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
        }
    }
    let input: Vec<f32> = (0..64).map(|i| i as f32 - 30.0).collect();
    let run = |threads, dispatch| {
        values(&session(&lines, threads, dispatch).run(&[vector(&input)]).unwrap()[0])
    };
    let expected = run(1, Dispatch::InTurn);
    for threads in [2, 3, 8] {
        for _ in 0..20 {
            assert_eq!(run(threads, Dispatch::Together), expected, "{threads} threads");
        }
    }
}

#[test]
fn a_budget_that_is_too_small_for_chains_runs_in_turn() {
    let lines = branches(24);
    let spec = TensorSpec::new(DType::F32, [4096]);
    let with = |budget: Option<usize>| {
        let mut options =
            SessionOptions::default().with_threads(2).with_dispatch(Dispatch::Together);
        options.memory_budget = budget;
        model(&lines).session(options).unwrap().plan(std::slice::from_ref(&spec))
    };
    let together = with(None).unwrap();
    assert!(together.phases().any(|phase| !phase.chains.is_empty()));
    let less = with(Some(together.memory().total() - 64)).unwrap();
    assert!(less.phases().all(|phase| phase.chains.is_empty()));
    assert!(less.memory().total() < together.memory().total());
}

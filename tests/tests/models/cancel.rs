//! Runs, plans and loads end where somebody asks: at any instant, soon, and without harm.
//!
//! Instants are chosen without chance where that is possible: the signal is given at each look that
//! a run takes. `cargo xtask cancel` reports latencies of many random cancels.

use plutino::{SessionError, SessionOptions};
use plutino_tests::cancel::{Outcomes, Subject, every_look, loads, plans, run_until, runs};
use std::time::Duration;

/// What a cancel may take while other tests have the cores, in a build of tests. Without looks
/// inside of operators the largest of these models takes longer on an idle machine.
const PATIENCE: Duration = Duration::from_secs(5);

fn soon(outcomes: Result<Outcomes, String>) {
    let outcomes = outcomes.unwrap();
    assert!(outcomes.quantile(1.0) < PATIENCE, "{:?}", outcomes.latencies);
}

#[test]
fn at_every_look_there_is() {
    assert!(every_look(&Subject::fixture("digits"), 20).unwrap() > 10);
    assert!(every_look(&Subject::lstm(40), 4).unwrap() > 2 * 2 * 40, "each step of each layer");
    // Pieces of 16384 elements, which are divided once at least, with comparisons of 8 operations.
    assert!(
        every_look(&Subject::sort(100_000), 6).unwrap() > 100_000 / 16384 + 100_000 * 8 / 65536
    );
    assert!(every_look(&Subject::fixture("minilm"), 2).unwrap() > 50);
}

/// One operator that takes a second is looked into as often as one that takes a microsecond is not.
#[test]
fn long_operators_look_at_the_signal_within_a_few_million_operations() {
    let subject = Subject::product(512);
    let session = subject.model.session(SessionOptions::default().with_threads(1)).unwrap();
    session.run(&subject.inputs).unwrap();
    let (looks, made) = run_until(&subject, &session, usize::MAX);
    assert!(made.is_ok());
    assert!(looks >= 512 * 512 * 512 / (40 << 20), "{looks} looks");
    // A look in the middle names the operator, of which nothing is a result.
    let (_, made) = run_until(&subject, &session, looks / 2);
    match made {
        Err(SessionError::Cancelled { done: 0, steps: 1, at: Some(at) }) => {
            assert_eq!(at.name, "product");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn at_random_instants_of_runs() {
    for name in ["digits", "squeezenet1_1", "minilm"] {
        let subject = Subject::fixture(name);
        for threads in [1, 2] {
            soon(runs(&subject, threads, 6));
        }
    }
    for subject in [Subject::product(1024), Subject::sort(1_000_000), Subject::lstm(300)] {
        for threads in [1, 2] {
            soon(runs(&subject, threads, 3));
        }
    }
}

#[test]
fn at_random_instants_of_plans_and_loads() {
    let subject = Subject::fixture("squeezenet1_1");
    soon(plans(&subject, 2, 3));
    let folder = std::env::temp_dir().join(format!("plutino-cancel-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let outcomes = loads(&subject, &folder, 6);
    std::fs::remove_dir_all(&folder).unwrap();
    soon(outcomes);
}

//! One session for many threads, which cancel each other's runs. `cargo xtask soak` does it for
//! longer, and 8 x 10,000 times.

use plutino_tests::shared::Crowd;

#[test]
fn runs_of_many_threads_have_the_bits_of_runs_alone() {
    for (name, rows) in [("digits", 2), ("bilstm", 1)] {
        let crowd = Crowd::new(name, rows, 4).unwrap();
        for threads in [1, 2] {
            let session = crowd.session(threads).unwrap();
            let runs = crowd.runs(&session, 8, 60).unwrap();
            assert_eq!(runs.whole + runs.cancelled, 480, "{name}");
            assert!(runs.whole > 50 && runs.cancelled > 20, "{name}: {runs:?}");
            assert_eq!(session.plan_count(), 1, "{name}");
        }
    }
}

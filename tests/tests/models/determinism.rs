//! The same bits, however often a model runs, and on however many threads.

use plutino::{Dispatch, SessionOptions};
use plutino_fixtures::Fixture;
use plutino_tests::{fixture, inputs, model, specs};

fn same_bits(name: &str) {
    let fixture = fixture(name);
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    let mut first = None;
    for dispatch in [Dispatch::ByCost, Dispatch::Together] {
        for threads in [1, 2, 3, 8] {
            let options = SessionOptions::default().with_threads(threads).with_dispatch(dispatch);
            let session = model.session(options).unwrap();
            for _ in 0..2 {
                let outputs = session.run(&inputs).unwrap();
                let first = first.get_or_insert_with(|| outputs.clone());
                assert!(*first == outputs, "{name} on {threads} threads, {}", dispatch.name());
            }
        }
    }
}

/// Whatever can run at the same time does: each fixture, with what it computes in turn.
#[test]
fn every_fixture_runs_in_chains() {
    let mut chains = 0;
    for fixture in Fixture::all().unwrap() {
        let (name, model, inputs) = (&fixture.name, model(&fixture), inputs(&fixture));
        let run = |dispatch| {
            let options = SessionOptions::default().with_threads(3).with_dispatch(dispatch);
            let session = model.session(options).unwrap();
            let plan = session.plan(&specs(&inputs)).unwrap();
            (session.run(&inputs).unwrap(), plan)
        };
        let ((in_turn, _), (together, plan)) = (run(Dispatch::InTurn), run(Dispatch::Together));
        assert!(in_turn == together, "{name}");
        chains += plan.phases().map(|phase| phase.chains.len()).sum::<usize>();
    }
    assert!(chains > 50, "{chains}"); // 71 when this was first run (2026-11-24)
}

#[test]
fn a_small_classifier() {
    same_bits("digits");
}

#[test]
fn depthwise_convolutions_and_squeeze_and_excitation() {
    same_bits("mobilenet_v3_small");
}

#[test]
fn residual_sums() {
    same_bits("resnet18");
}

#[test]
fn channel_shuffles() {
    same_bits("shufflenet_v2_x1_0");
}

#[test]
fn transposed_convolutions_and_skips() {
    same_bits("unet");
}

#[test]
fn attention() {
    same_bits("minilm");
}

#[test]
fn recurrence() {
    same_bits("bilstm");
}

#[test]
fn one_kernel_of_attention() {
    same_bits("vit_b_32");
}

#[test]
fn attention_in_windows() {
    same_bits("swin_t");
}

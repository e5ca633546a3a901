//! The same bits, however often a model runs, and on however many threads.

use plutino::SessionOptions;
use plutino_tests::{fixture, inputs, model};

fn same_bits(name: &str) {
    let fixture = fixture(name);
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    let mut first = None;
    for threads in [1, 2, 3, 8] {
        let session = model.session(SessionOptions::default().with_threads(threads)).unwrap();
        for _ in 0..2 {
            let outputs = session.run(&inputs).unwrap();
            let first = first.get_or_insert_with(|| outputs.clone());
            assert!(*first == outputs, "{name} on {threads} threads");
        }
    }
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

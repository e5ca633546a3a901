//! Chains of layers against f64: errors are those of onnxruntime's f32, or not much larger.

use plutino::{Isa, Model, SessionOptions};
use plutino_fixtures::{Chain, Errors};

/// How many times onnxruntime's errors ours may be.
const MOST: f64 = 1.5;

/// The same for the value that is farthest off without fused multiply-adds: each product is
/// rounded, too.
const MOST_UNFUSED: f64 = 2.0;

/// Chains with convolutions that Winograd's algorithms take, on some instruction set at least: they
/// trade digits for speed, and onnxruntime does not use them. Without them the bound is that of all
/// others.
const WINOGRAD: &[(&str, f64)] = &[
    ("conv_3x3", 5.0),
    ("conv_3x3_wide", 4.0),
    ("conv_first", 5.0),
    ("conv_first_7x7", 7.5),
    ("conv_strided", 4.0),
];

#[test]
fn errors_are_those_of_onnxruntime() {
    let mut wrong = Vec::new();
    for name in Chain::names().unwrap() {
        let chain = Chain::named(&name).unwrap();
        let model = Model::from_graph(chain.graph().unwrap()).unwrap();
        let inputs = chain.inputs().unwrap();
        let winograd = WINOGRAD.iter().find(|(chain, _)| *chain == name).map(|&(_, most)| most);
        let mut runs = vec![(SessionOptions::default(), winograd.unwrap_or(MOST))];
        if winograd.is_some() {
            runs.push((SessionOptions::default().without_winograd(), MOST));
        }
        let isas = Isa::available();
        let each = runs.iter().flat_map(|run| isas.iter().map(move |isa| (*isa, run)));
        for (isa, &(ref options, allowed)) in each {
            let unfused = isa == Isa::PORTABLE;
            let farthest = if unfused { allowed.max(MOST_UNFUSED) } else { allowed };
            let outputs = plutino_tests::run(&model, &inputs, options.clone().with_isa(isa));
            let Errors { largest, rms } = chain.errors(&outputs[0]).unwrap();
            let (largest, rms) = (largest / chain.onnxruntime.largest, rms / chain.onnxruntime.rms);
            if !(largest <= farthest && rms <= allowed) {
                wrong.push(format!("{name} on {isa}: {largest:.2} times, rms {rms:.2} times"));
            }
        }
    }
    assert!(wrong.is_empty(), "errors, in onnxruntime's:\n{}", wrong.join("\n"));
}

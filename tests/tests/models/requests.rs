//! Every operand of whole networks fetched by name, and what their plans say of their values.

use plutino::ir::Dim;
use plutino::{Model, Request, SessionOptions, Tensor, ValueKind};
use plutino_fixtures::Fixture;
use plutino_tests::{fixture, inputs, model, specs};
use std::collections::HashMap;

/// Dtype and sizes of a fetched operand are those that the file records, as far as it does.
fn agrees_with_the_record(model: &Model, name: &str, tensor: &Tensor) {
    let graph = model.graph();
    let Some(operand) = graph.operand_by_name(name).and_then(|id| graph.operand(id)) else {
        return; // a member of a tuple
    };
    let found = tensor.shape();
    let Some(shape) = &operand.ty.shape else { return };
    assert_eq!(found.rank(), shape.len(), "{name}");
    let differs = |(dim, size): (&Dim, &usize)| matches!(dim, Dim::Known(n) if n != size);
    let differs = shape.iter().zip(found.iter()).any(differs);
    assert!(!differs, "{name}: {found} is not {}", operand.ty);
}

fn every_operand(name: &str) {
    let fixture = fixture(name);
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    let session = model.session(SessionOptions::default().with_threads(2)).unwrap();
    // Fed as memory of somebody else.
    let feeds = model.inputs().iter().zip(&inputs);
    let request = feeds.fold(Request::new(), |r, (info, x)| r.feed(&info.name, x.view()));
    let all = session.run_named(&request.clone().fetch_all()).unwrap();
    let plan = session.plan_request(&request.clone().fetch_all()).unwrap();
    assert_eq!(all.len(), plan.outputs().len());
    let by_name: HashMap<&str, &Tensor> = all.iter().map(|(n, t)| (n.as_str(), t)).collect();
    assert_eq!(by_name.len(), all.len(), "no two of the same name");
    for (name, tensor) in &all {
        agrees_with_the_record(&model, name, tensor);
    }
    for (_, operand) in model.graph().operands() {
        let member = format!("{}.0", operand.name);
        let there = |name: &str| by_name.contains_key(name);
        assert!(there(&operand.name) || there(&member), "{name}: {} is missing", operand.name);
    }
    // Nothing is fused across a value that is fetched: the results are PyTorch's all the same.
    let expected = fixture.outputs().unwrap();
    for (info, expected) in model.outputs().iter().zip(&expected) {
        if let Err(mismatch) = expected.verify(by_name[info.name.as_str()]) {
            panic!("{name}: {mismatch}");
        }
    }
    // The plain request yields the bits of a plain run.
    assert!(session.run_with(&request).unwrap() == session.run(&inputs).unwrap());
}

#[test]
fn of_a_recurrent_network() {
    every_operand("bilstm");
}

#[test]
fn of_transformers() {
    every_operand("minilm");
    every_operand("swin_t");
}

#[test]
fn of_channel_shuffles() {
    every_operand("shufflenet_v2_x1_0");
}

#[test]
fn of_squeeze_and_excitation() {
    every_operand("mobilenet_v3_small");
}

#[test]
fn of_a_detector() {
    every_operand("yolov5s");
}

#[test]
fn plans_tell_the_truth_about_their_memory() {
    for fixture in Fixture::all().unwrap() {
        let (name, model) = (&fixture.name, model(&fixture));
        let session = model.session(SessionOptions::default().with_threads(2)).unwrap();
        let plan = session.plan(&specs(&inputs(&fixture))).unwrap();
        let live = plan.live_bytes();
        assert_eq!(live.iter().max(), Some(&plan.memory().lower_bound), "{name}");
        let steps = plan.steps().len();
        for a in plan.allocations() {
            assert!(a.offset + a.bytes <= plan.memory().arena, "{name}: {a:?}");
            assert!(a.step < steps && a.freed_by.is_none_or(|last| last < steps && last >= a.step));
        }
        // What a step reads is there while it does.
        let mut values: HashMap<&str, Vec<_>> = HashMap::new();
        for value in plan.values() {
            values.entry(value.name.as_str()).or_default().push(value);
        }
        for (at, step) in plan.steps().enumerate() {
            for input in &step.inputs {
                let known = values.get(input.name.as_str()).into_iter().flatten();
                let mut known =
                    known.filter(|v| v.spec.as_ref().is_some_and(|s| s.to_string() == input.spec));
                let covers =
                    |used: Option<(usize, usize)>| used.is_some_and(|(a, b)| (a..=b).contains(&at));
                assert!(known.any(|v| covers(v.used)), "{name}: step {at} reads {}", input.name);
            }
        }
        for value in plan.values() {
            let before_the_run = matches!(value.kind, ValueKind::Bound | ValueKind::Constant);
            assert!(!before_the_run || value.made.is_none(), "{name}: {}", value.name);
            let first = value.used.map_or(usize::MAX, |(first, _)| first);
            assert!(value.made.is_none_or(|made| made <= first), "{name}: {}", value.name);
        }
    }
}

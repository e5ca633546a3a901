//! Memory of the process: what is said before a run, and what is given back. A process of its own,
//! with one test: memory is measured for all of it.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use plutino::ir::Graph;
use plutino::{Model, SessionOptions, Tensor};
use plutino_tests::{fixture, inputs, specs};

/// Bytes of this process alone; none where the system does not tell.
fn own() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib = line.split_whitespace().next()?.parse::<usize>().ok()?;
    Some(kib << 10)
}

/// What lists, small objects and pages that are shared may come to.
const SLACK: usize = 3 << 20;

fn options() -> SessionOptions {
    SessionOptions::default().with_threads(2)
}

/// A model of one operator.
fn small() -> Model {
    let text =
        "7767517\n3 2\npnnx.Input in 0 1 0\nF.relu a 1 1 0 1 $input=0\npnnx.Output o 1 0 1\n";
    Model::from_graph(Graph::parse(text).unwrap()).unwrap()
}

#[test]
fn memory_is_told_and_given_back() {
    let fixture = fixture("resnet18");
    let (graph, inputs) = (fixture.graph().unwrap(), inputs(&fixture));
    // Threads and code are there from here on.
    drop(small().session(options()).unwrap().run(&[Tensor::from_slice(&[1.0f32], [1]).unwrap()]));
    let Some(before) = own() else { return };
    let taken = || own().unwrap().saturating_sub(before);
    let model = Model::from_graph(graph).unwrap();
    let session = model.session(options()).unwrap();
    let memory = session.plan(&specs(&inputs)).unwrap().memory();
    let outputs = session.run(&inputs).unwrap();
    // The weights were there before.
    let said = memory.total() - memory.weights;
    assert!(said > 10 * SLACK, "{memory:?}");
    let difference = taken().abs_diff(said);
    assert!(difference <= said / 20 + SLACK, "{} taken, {memory:?}", taken());

    session.release_memory();
    assert_eq!((session.plan_count(), model.packed_bytes()), (0, 0));
    assert!(taken() <= SLACK, "{} of {said} bytes stayed", taken());
    assert_eq!(session.run(&inputs).unwrap(), outputs, "the session works on");

    // Packed weights outlive a session, for the next one, until the model is asked.
    drop(session);
    assert_eq!(model.packed_bytes(), memory.packed);
    assert!(taken().abs_diff(memory.packed) <= SLACK, "{} taken", taken());
    model.release_memory();
    assert_eq!(model.packed_bytes(), 0);
    assert!(taken() <= SLACK, "{} bytes stayed", taken());
}

//! Order without data in whole networks: operators that note when they run are put between those of
//! PyTorch, each after the one before and before what follows in the file. Whatever passes fuse
//! and whoever runs beside whom, notes come in their order and results are PyTorch's.

use plutino::ops::{
    BuildError, Kernel, NodeReader, OpEntry, Operator, PlanCx, PlanError, Planned, Registry, RunCx,
    RunError, ShapeError, ValueSpec,
};
use plutino::{Dispatch, Model, ModelOptions, SessionOptions};
use plutino_fixtures::Fixture;
use plutino_tests::inputs;
use std::sync::{Arc, Mutex};

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[derive(Debug, Clone)]
struct Note(String);

impl Operator for Note {
    fn infer(&self, _: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(Vec::new())
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::new(self.clone()))
    }

    fn has_effects(&self) -> bool {
        true
    }
}

impl Kernel for Note {
    fn name(&self) -> &str {
        "note"
    }

    fn run(&self, _: &mut RunCx<'_>) -> Result<(), RunError> {
        NOTES.lock().unwrap().push(self.0.clone());
        Ok(())
    }
}

fn note(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.rest();
    Ok(Box::new(Note(r.name().to_owned())))
}

static NOTE: OpEntry =
    OpEntry { kinds: &["order.Note"], build: note, file: file!(), line: line!() };

/// The fixture's graph with a note behind each operator of which the number in the file leaves this
/// rest; how many there are.
fn noted(fixture: &Fixture, rest: usize) -> (Model, Vec<String>) {
    let mut graph = fixture.graph().unwrap();
    let computes = |kind: &str| !kind.starts_with("pnnx.") && !kind.starts_with("prim::");
    let all: Vec<_> = graph.operators().map(|(id, _)| id).collect();
    let (mut names, mut last, mut pending) = (Vec::new(), None, None);
    for (at, id) in all.into_iter().enumerate() {
        if computes(&graph[id].kind) {
            if let Some(earlier) = pending.take() {
                graph.add_control(earlier, id).unwrap();
            }
            if at % 3 == rest && !graph[id].outputs.is_empty() {
                let name = format!("note{at}");
                let note = graph.new_operator_after("order.Note", &name, id).unwrap();
                let output = graph[id].outputs[0];
                graph.connect_input(note, output).unwrap();
                if let Some(last) = last {
                    graph.add_control(last, note).unwrap();
                }
                (last, pending) = (Some(note), Some(note));
                names.push(name);
            }
        } else if let (Some(last), "pnnx.Output") = (last, graph[id].kind.as_str()) {
            graph.add_control(last, id).unwrap();
        }
    }
    let text = graph.to_param_string().unwrap();
    let graph = plutino::ir::Graph::from_bytes(text, graph.to_bin_bytes().unwrap()).unwrap();
    let options = ModelOptions::default().with_operators(Arc::new(Registry::new([&NOTE]).unwrap()));
    (Model::from_graph_with(graph, options).unwrap(), names)
}

#[test]
fn notes_come_in_their_order_and_results_are_pytorchs() {
    let mut seen = 0;
    for (number, fixture) in Fixture::all().unwrap().into_iter().enumerate() {
        let (model, names) = noted(&fixture, number % 3);
        seen += names.len();
        for (threads, dispatch) in
            [(1, Dispatch::ByCost), (2, Dispatch::ByCost), (2, Dispatch::Together)]
        {
            let options = SessionOptions::default().with_threads(threads);
            let session = model.session(options.with_dispatch(dispatch)).unwrap();
            NOTES.lock().unwrap().clear();
            let outputs = session.run(&inputs(&fixture));
            let outputs = outputs.unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
            assert_eq!(*NOTES.lock().unwrap(), names, "{}", fixture.name);
            for (expected, actual) in fixture.outputs().unwrap().iter().zip(&outputs) {
                expected.verify(actual).unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

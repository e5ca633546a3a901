//! Programs of models against PyTorch: modules kept whole, and control flow over definitions.

use plutino::ir::{Graph, LoadOptions};
use plutino::runtime::{Program, extract};
use plutino::{
    Definitions, Model, ModelError, ModelOptions, Request, Session, SessionOptions, Tensor,
};
use plutino_fixtures::{Fixture, OpCase, Run};

fn definitions(case: &OpCase) -> Definitions {
    let mut definitions = Definitions::new();
    let folder = case.path().join("definitions");
    assert!(definitions.load_folder(folder, &LoadOptions::default()).unwrap() > 0);
    definitions
}

fn load(case: &OpCase) -> Result<Model, ModelError> {
    let options = ModelOptions::default().with_definitions(definitions(case));
    Model::load_with(case.path().join("model.pnnx.param"), options)
}

fn session(case: &OpCase, threads: usize) -> Session {
    load(case).unwrap().session(SessionOptions::default().with_threads(threads)).unwrap()
}

fn inputs(run: &Run) -> Vec<Tensor> {
    run.inputs.iter().map(|(_, tensor)| tensor.clone()).collect()
}

#[test]
fn every_program_agrees_with_pytorch() {
    let cases = OpCase::programs().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        for threads in [1, 2, 3] {
            let session = session(&case, threads);
            for run in case.runs().unwrap() {
                let outputs = session.run(&inputs(&run)).unwrap();
                assert_eq!(outputs.len(), run.outputs.len(), "{}", case.name);
                for (ours, (name, theirs)) in outputs.iter().zip(&run.outputs) {
                    let comparison = ours.compare(theirs, case.tolerance).unwrap();
                    assert!(comparison.is_match(), "{} {name}: {comparison}", case.name);
                }
            }
        }
    }
}

#[test]
fn a_module_kept_whole_runs_as_its_parts() {
    let case = OpCase::program("kept_whole").unwrap();
    let error = Model::load(case.path().join("model.pnnx.param")).unwrap_err().to_string();
    assert!(error.contains("models.focus.Focus x2"), "{error}");
    assert!(error.contains("--define TYPE=MODEL"), "{error}");
    let model = load(&case).unwrap();
    // Its batch norm is folded into its convolution, as if the file spelled it out.
    let session = model.session(SessionOptions::default().with_threads(1)).unwrap();
    let run = case.runs().unwrap().remove(0);
    let (_, profile) = session.profile(&inputs(&run)).unwrap();
    let steps: Vec<_> = profile.plan.steps().collect();
    let conv = steps.iter().find(|s| s.location.name == "second.block.conv").unwrap();
    assert!(conv.absorbed.iter().any(|name| name == "second.block.bn"), "{:?}", conv.absorbed);
    let at = conv.location.to_string();
    assert!(at.contains("models.focus.Focus.pnnx.param:"), "{at}");
    assert!(at.contains("(for models.focus.Focus 'second' at "), "{at}");
    // Inside of it, too, anything can be fetched.
    let request = Request::new().feed("0", &run.inputs[0].1).fetch("first.block.conv");
    assert_eq!(session.run_with(&request).unwrap()[0].shape().to_string(), "(1,8,4,4)");
}

#[test]
fn only_the_branch_that_is_taken_is_computed() {
    let case = OpCase::program("early_exit").unwrap();
    let session = session(&case, 1);
    let mut taken = Vec::new();
    for run in case.runs().unwrap() {
        let (_, profile) = session.profile(&inputs(&run)).unwrap();
        let parts: Vec<_> = profile.frames.iter().map(|f| (f.part, f.kind.clone())).collect();
        assert_eq!(parts.len(), 1);
        taken.extend(parts);
    }
    taken.sort();
    let expected = [("else", "early.Rest".to_owned()), ("then", "early.Exit".to_owned())];
    assert_eq!(taken, expected, "the two sets of inputs are one of each");
}

#[test]
fn loops_plan_their_body_once() {
    let case = OpCase::program("gru_scan").unwrap();
    let session = session(&case, 1);
    for run in case.runs().unwrap() {
        let (_, profile) = session.profile(&inputs(&run)).unwrap();
        let rows = run.inputs[1].1.shape().iter().next().copied().unwrap();
        assert_eq!(profile.frames.len(), rows);
        let first = std::sync::Arc::as_ptr(&profile.frames[0].plan);
        assert!(profile.frames.iter().all(|f| std::sync::Arc::as_ptr(&f.plan) == first));
    }
}

#[test]
fn programs_survive_saving() {
    let case = OpCase::program("gru_scan").unwrap();
    let mut program = Program::new();
    for (kind, definition) in definitions(&case).iter() {
        program.define(kind, definition.clone());
    }
    let (h, x) = (program.input("h").unwrap(), program.input("x").unwrap());
    let scan = program.scan("gru", "rnn.Cell", (&[h], &[x], &[]), 1, &Default::default());
    let (last, rows) = scan.unwrap();
    program.output(&[last, rows].concat()).unwrap();
    let folder = std::env::temp_dir().join(format!("plutino-programs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    program.save(folder.join("gru")).unwrap();
    let again = Program::load(folder.join("gru")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let session = again.model().unwrap().session(SessionOptions::default()).unwrap();
    for run in case.runs().unwrap() {
        let outputs = session.run(&inputs(&run)).unwrap();
        for (ours, (_, theirs)) in outputs.iter().zip(&run.outputs) {
            assert!(ours.compare(theirs, case.tolerance).unwrap().is_match());
        }
    }
}

/// What a part computes is, to the bit, what the whole does between the same operands.
#[test]
fn parts_of_models_compute_what_the_whole_does() {
    let fixture = Fixture::named("digits").unwrap();
    let graph = fixture.graph().unwrap();
    let session = |graph: &Graph| {
        let model = Model::from_graph(graph.clone()).unwrap();
        model.session(SessionOptions::default().with_threads(2)).unwrap()
    };
    let whole = session(&graph);
    let image = Tensor::from_slice(&[0.25f32; 128], [2, 1, 8, 8]).unwrap();
    let input = whole.model().inputs()[0].name.clone();
    let all = whole.run_named(&Request::new().feed(&input, &image).fetch_all()).unwrap();
    assert!(all.len() > 8, "{}", all.len());
    for (at, (from, fed)) in all.iter().enumerate() {
        for (to, _) in all.iter().skip(at + 1) {
            let part = match extract(&graph, &[from], &[to]) {
                Ok(part) => part,
                Err(error) => panic!("{from} to {to}: {error}"),
            };
            assert!(part.operator_count() <= graph.operator_count());
            let text = part.to_param_string().unwrap();
            let read = Graph::from_bytes(&text, part.to_bin_bytes().unwrap()).unwrap();
            let ours = session(&read).run(std::slice::from_ref(fed)).unwrap();
            let request = Request::new().feed(from, fed).fetch(to);
            let theirs = whole.run_with(&request).unwrap();
            assert_eq!(ours, theirs, "{from} to {to}");
        }
    }
}

/// An optimized graph is one of PyTorch's operators, has fewer of them, and computes the same up to
/// rounding.
#[test]
fn optimized_models_agree_with_pytorch() {
    let case = OpCase::program("kept_whole").unwrap();
    let model = load(&case).unwrap();
    let done = model.optimized().unwrap();
    assert_eq!(done.batch_norms, ["first.block.bn", "second.block.bn"]);
    assert!(done.graph.operator_count() < model.graph().operator_count());
    assert!(!done.graph.operators().any(|(_, op)| op.kind.starts_with("plutino.")));
    let (text, weights) =
        (done.graph.to_param_string().unwrap(), done.graph.to_bin_bytes().unwrap());
    let read = Model::from_graph(Graph::from_bytes(text, weights).unwrap()).unwrap();
    let session = read.session(SessionOptions::default()).unwrap();
    for run in case.runs().unwrap() {
        let outputs = session.run(&inputs(&run)).unwrap();
        for (ours, (name, theirs)) in outputs.iter().zip(&run.outputs) {
            let comparison = ours.compare(theirs, case.tolerance).unwrap();
            assert!(comparison.is_match(), "{name}: {comparison}");
        }
    }
}

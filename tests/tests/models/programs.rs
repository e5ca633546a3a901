//! Programs of models against PyTorch: modules kept whole, and control flow over definitions.

use plutino::ir::{Graph, LoadOptions};
use plutino::runtime::{Program, extract};
use plutino::{
    Context, Definitions, Model, ModelError, ModelOptions, Partition, Placement, Request, Session,
    SessionOptions, Tensor,
};
use plutino_fixtures::{Fixture, OpCase, Run};
use std::collections::HashMap;

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

/// Each part has the numbers of the file that it needs, and what follows from views of views of an
/// input is in the part of whoever reads it.
#[test]
fn parts_have_numbers_and_views_of_their_own() {
    let lines = "7767517\n10 10\n\
        pnnx.Input in 0 1 x #x=(1,5,9)f32\n\
        Tensor.select a 1 1 x y dim=0 index=-1\n\
        torch.reshape b 1 1 y z shape=(5,9)\n\
        Tensor.slice s 1 1 z v dim=1 start=0 end=-1 step=1\n\
        pnnx.Expression n 0 1 k expr=2\n\
        nn.ReLU r 1 1 v w\n\
        pnnx.Expression t 2 1 w k u expr=mul(@0,@1)\n\
        pnnx.Expression e 2 1 u k q expr=add(@0,@1)\n\
        pnnx.Output o1 1 0 v\n\
        pnnx.Output o2 1 0 q\n";
    let model = Model::from_graph(Graph::parse(lines).unwrap()).unwrap();
    let x: Vec<f32> = (0..45).map(|i| i as f32 - 20.0).collect();
    let x = Tensor::from_slice(&x, [1, 5, 9]).unwrap();
    let names = ["a", "b", "s", "r", "t", "e"];
    for cut in 1..names.len() {
        let contexts: Vec<_> = (0..2).map(|_| Context::of_threads(1).unwrap()).collect();
        let place = |p: Placement, (i, name): (usize, &&str)| p.place(*name, usize::from(i >= cut));
        let placement = names.iter().enumerate().fold(Placement::new(), place);
        let options = SessionOptions::default().with_contexts(contexts).with_placement(placement);
        let session = model.session(options).unwrap();
        let plan = session.plan(&[x.spec()]).unwrap();
        let partition = Partition::of(&model, &plan).unwrap();
        // What is known so far, by the names of operands.
        let mut known = HashMap::from([("x".to_owned(), x.clone())]);
        for (number, part) in partition.parts().iter().enumerate() {
            let part_model = Model::from_graph(part.graph.clone()).unwrap();
            let part_session = part_model.session(SessionOptions::default()).unwrap();
            let inputs = part_session.model().inputs().iter();
            let inputs: Vec<Tensor> = inputs.map(|input| known[&input.name].clone()).collect();
            let outputs = part_session.run(&inputs).unwrap();
            let mut made: Vec<&str> = Vec::new();
            for link in partition.links().iter().filter(|link| link.from == Some(number)) {
                if !made.contains(&link.operand.as_str()) {
                    made.push(&link.operand);
                }
            }
            assert_eq!(made.len(), outputs.len());
            known.extend(made.iter().map(ToString::to_string).zip(outputs));
        }
        let whole = session.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!([&known["v"], &known["q"]], [&whole[0], &whole[1]], "{cut}");
    }
}

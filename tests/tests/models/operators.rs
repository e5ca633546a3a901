//! Every small graph of `fixtures/ops` against PyTorch, all failures at once.

use plutino::ir::Graph;
use plutino::{Model, SessionOptions};
use plutino_fixtures::OpCase;

fn agrees(case: &OpCase) -> Result<(), Box<dyn std::error::Error>> {
    agrees_with(case, case.graph()?)
}

/// Whether a graph that stands for that of the case gives its outputs.
pub(crate) fn agrees_with(case: &OpCase, graph: Graph) -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::from_graph(graph)?;
    let session = model.session(SessionOptions::default().with_threads(2))?;
    for run in case.runs()? {
        let inputs: Vec<_> = run.inputs.into_iter().map(|(_, tensor)| tensor).collect();
        let outputs = session.run(&inputs)?;
        if outputs.len() != run.outputs.len() {
            return Err(format!("{} outputs, expected {}", outputs.len(), run.outputs.len()).into());
        }
        for (ours, (name, theirs)) in outputs.iter().zip(&run.outputs) {
            let comparison = ours.compare(theirs, case.tolerance)?;
            if !comparison.is_match() {
                return Err(format!("{name}: {comparison}").into());
            }
        }
    }
    Ok(())
}

#[test]
fn every_case_agrees_with_pytorch() {
    let cases = OpCase::all().unwrap();
    assert!(cases.len() > 300, "{} cases", cases.len());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| agrees(case).err().map(|e| format!("{}: {e}", case.name)))
        .collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

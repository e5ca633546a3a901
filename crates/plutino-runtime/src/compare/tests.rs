//! Comparisons on models that are broken on purpose: the right operator is named, with its error,
//! its place and its kernel, and those that inherit are told from those that are wrong.

use super::*;
use crate::testkit::{Do, graph, model, session_with, values, vector, weighted};
use crate::{Model, ModelOptions, Session, SessionOptions};
use plutino_kernels::activation::Activation;
use plutino_ops::{
    BuildError, Neighbour, NodeReader, OpEntry, Operator, PlanCx, PlanError, Planned, Registry,
    RunCx, ShapeError, ValueSpec,
};
use std::sync::Arc;

/// Every third element of a ReLU is not cut.
fn leaky(data: &mut [f32]) {
    data.iter_mut().enumerate().for_each(|(i, x)| {
        if i % 3 != 2 {
            *x = x.max(0.0)
        }
    });
}

/// A reversal that forgets the first element.
fn forgetful(data: &mut [f32]) {
    data.reverse();
    if let Some(first) = data.first_mut() {
        *first = 0.0;
    }
}

/// A scale that is slightly off.
fn imprecise(data: &mut [f32]) {
    data.iter_mut().for_each(|x| *x *= 2.001);
}

/// An operator of one input that is computed wrongly.
#[derive(Debug)]
struct Broken(fn(&mut [f32]));

impl Operator for Broken {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(inputs.to_vec())
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let how = self.0;
        Ok(Planned::new(Do("broken", move |cx: &mut RunCx<'_>| {
            how(cx.inout::<f32>(0, 0)?.into_same());
            Ok(())
        }))
        .in_place(0))
    }
}

/// A scale by 2 that takes over a ReLU, and takes absolute values where it was to cut.
#[derive(Debug)]
struct WrongWhenFused {
    fused: bool,
}

impl Operator for WrongWhenFused {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(inputs.to_vec())
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let fused = self.fused;
        Ok(Planned::new(Do("scale and more", move |cx: &mut RunCx<'_>| {
            let data = cx.inout::<f32>(0, 0)?.into_same();
            data.iter_mut().for_each(|x| *x = if fused { (2.0 * *x).abs() } else { 2.0 * *x });
            Ok(())
        }))
        .in_place(0))
    }

    fn absorb(&self, neighbour: &Neighbour, _: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        let relu = *neighbour == Neighbour::Activation(Activation::Relu);
        relu.then(|| Box::new(Self { fused: true }) as Box<dyn Operator>)
    }
}

type Built = Result<Box<dyn Operator>, BuildError>;

fn leaky_op(r: &mut NodeReader<'_>) -> Built {
    r.rest();
    Ok(Box::new(Broken(leaky)))
}

fn forgetful_op(r: &mut NodeReader<'_>) -> Built {
    r.rest();
    Ok(Box::new(Broken(forgetful)))
}

fn imprecise_op(r: &mut NodeReader<'_>) -> Built {
    r.rest();
    r.required::<f32>("by")?;
    Ok(Box::new(Broken(imprecise)))
}

fn wrong_when_fused_op(r: &mut NodeReader<'_>) -> Built {
    r.rest();
    Ok(Box::new(WrongWhenFused { fused: false }))
}

static LEAKY: OpEntry =
    OpEntry { kinds: &["test.Relu"], build: leaky_op, file: "tests.rs", line: 1 };
static FORGETFUL: OpEntry =
    OpEntry { kinds: &["test.Reverse"], build: forgetful_op, file: "tests.rs", line: 2 };
static IMPRECISE: OpEntry =
    OpEntry { kinds: &["test.Scale"], build: imprecise_op, file: "tests.rs", line: 3 };
static WRONG_WHEN_FUSED: OpEntry =
    OpEntry { kinds: &["test.Twice"], build: wrong_when_fused_op, file: "tests.rs", line: 4 };

/// Views, places in a concatenation, work in place and fusions: what a plan does to values.
const LINES: &str = "pnnx.Input in 0 1 0 #0=(6)f32
    test.Scale twice 1 1 0 1 by=2
    test.Relu relu 1 1 1 2
    test.Split halves 1 2 2 3 4
    test.Reverse reverse 1 1 3 5
    test.Cat cat 2 1 5 4 6
    test.View flat 1 1 6 7
    test.Add sum 2 1 7 1 8
    prim::TupleConstruct tuple 2 1 8 5 9
    pnnx.Output out 1 0 9";

fn options() -> SessionOptions {
    SessionOptions::default().with_threads(1)
}

/// The right values of every operand.
fn reference(lines: &str, input: &[f32]) -> Reference {
    session_with(lines, options().without_passes()).values(&[vector(input)]).unwrap()
}

const INPUT: [f32; 6] = [1.0, -2.0, 3.0, 4.0, -5.0, -6.0];

fn broken(entry: &'static OpEntry) -> Session {
    let operators = Arc::new(Registry::new([entry]).unwrap());
    let options = ModelOptions::default().with_operators(operators);
    Model::from_graph_with(graph(LINES), options).unwrap().session(self::options()).unwrap()
}

#[test]
fn a_run_agrees_with_itself() {
    let reference = reference(LINES, &INPUT);
    for name in ["0", "1", "2", "3", "4", "5", "6", "7", "8"] {
        assert!(reference.get(name).is_some(), "{name}");
    }
    assert_eq!(values(reference.get("8").unwrap()), [8.0, -4.0, 8.0, 16.0, -10.0, -12.0]);
    let session = session_with(LINES, options());
    let report = session.compare(&reference, &CompareOptions::default()).unwrap();
    assert!(report.first().is_none(), "{report:?}");
    assert!(report.unseen.is_empty(), "{report:?}");
    let alone = session.isolate(&reference, &CompareOptions::default(), &[]).unwrap();
    assert!(alone.first().is_none() && alone.values.len() == 8, "{alone:?}");
}

/// Checks that an operator is named, by the run and alone, and that no other is wrong alone.
fn blames(entry: &'static OpEntry, operator: &str, operand: &str, index: usize) {
    let reference = reference(LINES, &INPUT);
    let session = broken(entry);
    let report = session.compare(&reference, &CompareOptions::default()).unwrap();
    let first = report.first().unwrap();
    assert_eq!(first.operand, operand, "{report:?}");
    assert!(first.verdict.is_wrong() && report.wrong().count() > 1, "others inherit: {report:?}");
    let suspects = report.suspects(session.model());
    assert!(suspects.contains(&operand), "{suspects:?}");
    for only in [&suspects[..], &[]] {
        let alone = session.isolate(&reference, &CompareOptions::default(), only).unwrap();
        let wrong: Vec<&str> = alone.wrong().map(|v| v.location.name.as_str()).collect();
        assert_eq!(wrong, [operator], "{alone:?}");
        let wrong = alone.first().unwrap();
        assert_eq!((wrong.kernel.as_str(), wrong.operand.as_str()), ("broken", operand));
        let error = wrong.error.as_ref().unwrap();
        assert_eq!(error.worst.as_ref().unwrap().index, [index], "{error:?}");
        assert!(error.scaled > error.tolerance && error.ulps.unwrap() > 100.0, "{error:?}");
    }
}

#[test]
fn three_broken_kernels_are_named() {
    blames(&LEAKY, "relu", "2", 5);
    blames(&FORGETFUL, "reverse", "5", 0);
    blames(&IMPRECISE, "twice", "1", 5);
}

#[test]
fn a_tolerance_may_be_given() {
    let reference = reference(LINES, &INPUT);
    let session = broken(&IMPRECISE);
    let loose = CompareOptions::default().with_tolerance(1e-3);
    assert!(session.compare(&reference, &loose).unwrap().first().is_none());
}

#[test]
fn the_pass_to_blame_is_found() {
    let lines = "pnnx.Input in 0 1 0 #0=(6)f32
        test.Twice a 1 1 0 1
        test.Relu r 1 1 1 2
        test.Scale b 1 1 2 3 by=-1
        test.Relu s 1 1 3 4
        test.Add sum 2 1 2 4 5
        pnnx.Output out 1 0 5";
    let operators = Arc::new(Registry::new([&WRONG_WHEN_FUSED]).unwrap());
    let given = ModelOptions::default().with_operators(operators);
    let model = Model::from_graph_with(graph(lines), given).unwrap();
    let right = model.session(options().without_passes()).unwrap();
    let reference = right.values(&[vector(&INPUT)]).unwrap();
    let session = model.session(options()).unwrap();
    let compare = CompareOptions::default();
    assert_eq!(session.compare(&reference, &compare).unwrap().first().unwrap().operand, "2");
    assert!(session.isolate(&reference, &compare, &[]).unwrap().first().is_none());
    let PassBlame::Pass { name, disable, cured } =
        session.blame_passes(&reference, &compare).unwrap()
    else {
        panic!("a pass is to blame")
    };
    assert_eq!((name, cured), ("fuse", true));
    assert!(disable == ["fuse@r"] || disable == ["fuse@a"], "{disable:?}");
    assert_eq!(right.blame_passes(&reference, &compare).unwrap(), PassBlame::Nothing);
    let reference = self::reference(LINES, &INPUT);
    let blame = broken(&LEAKY).blame_passes(&reference, &compare).unwrap();
    assert_eq!(blame, PassBlame::NoPass);
}

#[test]
fn values_in_channel_blocks_are_compared_as_pytorch_has_them() {
    let lines = "pnnx.Input in 0 1 0 #0=(2,5,6,6)f32
        nn.Conv2d a 1 1 0 1 bias=True dilation=(1,1) groups=1 in_channels=5 kernel_size=(3,3) out_channels=20 \
        padding=(1,1) padding_mode=zeros stride=(1,1) @bias=(20)f32 @weight=(20,5,3,3)f32
        F.relu r 1 1 1 2
        nn.Conv2d b 1 1 2 3 bias=True dilation=(1,1) groups=1 in_channels=20 kernel_size=(1,1) out_channels=20 \
        padding=(0,0) padding_mode=zeros stride=(1,1) @bias=(20)f32 @weight=(20,20,1,1)f32
        pnnx.Expression e 2 1 3 2 4 expr=add(@0,@1)
        torch.chunk c 1 2 4 5 6 chunks=2 dim=1
        pnnx.Expression f 2 1 5 6 7 expr=sub(@0,@1)
        pnnx.Output out 1 0 7";
    let model = weighted(lines);
    let input: Vec<f32> = (0..360).map(|i| ((i * 37) % 64) as f32 / 32.0 - 1.0).collect();
    let input = Tensor::from_slice(&input, [2, 5, 6, 6]).unwrap();
    let whole = model.session(options().without_passes()).unwrap();
    let reference = whole.values(std::slice::from_ref(&input)).unwrap();
    let session = model.session(options()).unwrap();
    let report = session.compare(&reference, &CompareOptions::default()).unwrap();
    assert!(report.first().is_none() && report.values.len() >= 3, "{report:?}");
    assert!(report.unseen.contains(&"1".to_owned()), "fused: {report:?}");
    // The error of another weight is seen where it is, through views and blocks.
    let mut graph = model.graph().clone();
    let id = graph.operators().find(|(_, op)| op.name == "b").map(|(id, _)| id).unwrap();
    for (name, attr) in graph.attrs_mut(id).unwrap() {
        if name == "bias" {
            let bias: Vec<u8> = (0..20u8)
                .flat_map(|i| {
                    let at = usize::from(i) * 4;
                    let old =
                        f32::from_le_bytes(attr.data().unwrap()[at..at + 4].try_into().unwrap());
                    (if i == 17 { old + 0.5 } else { old }).to_le_bytes()
                })
                .collect();
            attr.set_data(bias).unwrap();
        }
    }
    let session = Model::from_graph(graph).unwrap().session(options()).unwrap();
    let report = session.compare(&reference, &CompareOptions::default()).unwrap();
    let first = report.first().unwrap();
    assert_eq!((first.location.name.as_str(), first.operand.as_str()), ("b", "4"));
    let error = first.error.as_ref().unwrap();
    assert_eq!((error.mismatches, error.worst.as_ref().unwrap().index[1]), (2 * 36, 17));
}

#[test]
fn what_depends_on_data_is_compared_as_well() {
    let lines = "pnnx.Input in 0 1 0 #0=(6)f32
        test.Positive some 1 1 0 1
        test.Scale twice 1 1 1 2 by=2
        test.Relu relu 1 1 2 3
        pnnx.Output out 1 0 3";
    let reference = reference(lines, &INPUT);
    assert_eq!(values(reference.get("3").unwrap()), [2.0, 6.0, 8.0]);
    let session = session_with(lines, options());
    let report = session.compare(&reference, &CompareOptions::default()).unwrap();
    assert!(report.first().is_none() && report.values.len() == 3, "{report:?}");
    assert_eq!(report.values[2].inputs, ["2"], "{report:?}");
    // Another number of elements is told as such.
    let other = self::reference(lines, &[1.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
    let other = other.with_inputs(session.model(), &[vector(&INPUT)]);
    let report = session.compare(&other, &CompareOptions::default()).unwrap();
    assert!(
        matches!(&report.first().unwrap().verdict, Verdict::Spec(what) if what.contains("(2)"))
    );
}

#[test]
fn graphs_that_differ_in_names_alone_are_matched_by_place() {
    let renamed =
        LINES.replace("1 1 0 1 by=2", "1 1 0 first by=2").replace("1 1 1 2", "1 1 first 2");
    let renamed = renamed.replace("2 1 7 1 8", "2 1 7 first 8");
    let (old, new) = (model(LINES), model(&renamed));
    let reference = reference(LINES, &INPUT);
    assert!(reference.get("first").is_none());
    let moved = reference.renamed(&old, &new).unwrap();
    assert_eq!(moved.get("first"), reference.get("1"));
    assert!(
        reference.renamed(&old, &model("pnnx.Input in 0 1 0\npnnx.Output out 1 0 0")).is_none()
    );
}

#[test]
fn missing_inputs_are_named() {
    let error = session_with(LINES, options())
        .compare(&Reference::default(), &CompareOptions::default())
        .unwrap_err();
    assert_eq!(error.to_string(), "the reference holds no array for input '0'");
}

#[test]
fn the_first_nan_and_the_first_infinity_are_named() {
    let lines = "pnnx.Input in 0 1 0 #0=(4)f32
        test.Scale big 1 1 0 1 by=3e38
        test.View flat 1 1 1 2
        pnnx.Expression zero 1 1 2 3 expr=sub(@0,@0)
        test.Relu relu 1 1 3 4
        pnnx.Output out 1 0 4";
    let session = session_with(lines, options().without_passes());
    let fine = session.check_finite(&[vector(&[1.0, 0.5, -1.0, 0.0])]).unwrap();
    assert!(fine.is_fine() && fine.origins.is_empty(), "{fine:?}");
    let report = session.check_finite(&[vector(&[1.0, 0.5, 2.0, -2.0])]).unwrap();
    let found: Vec<_> = report
        .origins
        .iter()
        .map(|o| (o.location.name.as_str(), o.seed, o.count, o.index.clone()))
        .collect();
    assert_eq!(
        found,
        [("big", Seed::Infinity, 2, vec![2]), ("zero", Seed::Nan, 2, vec![2])],
        "the view in between and the ReLU after it make nothing: {report:?}"
    );
    assert!(!report.is_fine() && report.given.is_empty());
    // What is there from the start has no origin.
    let given = session.check_finite(&[vector(&[1.0, f32::NAN, 0.0, 0.0])]).unwrap();
    assert_eq!((given.given.len(), given.origins.len()), (1, 0), "{given:?}");
    assert_eq!(given.outputs.len(), usize::from(!given.is_fine()));
}

//! Requests: what is fed and fetched, by which names, from whose memory.

use crate::testkit::{session, session_with, values, vector};
use crate::{Request, SessionError, SessionOptions};
use plutino_tensor::{DType, Tensor, TensorView};
use std::sync::Arc;

const CHAIN: &str = "
    pnnx.Input in 0 1 0 #0=(3)f32
    test.Scale a 1 1 0 1 by=2.0
    test.Reverse b 1 1 1 2
    test.Relu c 1 1 2 3
    pnnx.Output out 1 0 3";

fn named(results: Vec<(String, Tensor)>) -> Vec<(String, Vec<f32>)> {
    results.into_iter().map(|(name, tensor)| (name, values(&tensor))).collect()
}

fn name(text: &str, of: &[f32]) -> (String, Vec<f32>) {
    (text.to_owned(), of.to_vec())
}

#[test]
fn results_have_the_names_they_are_asked_by() {
    let session = session(CHAIN);
    let x = vector(&[1.0, -2.0]);
    let request = Request::new().feed("in", &x).fetch("2").fetch("a").fetch("out");
    let error = session.run_named(&request).unwrap_err();
    assert!(
        error.to_string().starts_with("the model has no operand named 'out' (input "),
        "{error}"
    );
    let request = Request::new().feed("in", &x).fetch("2").fetch("a");
    let results = named(session.run_named(&request).unwrap());
    assert_eq!(results, [name("2", &[-4.0, 2.0]), name("a", &[2.0, -4.0])]);
    let results = named(session.run_named(&Request::new().feed("b", &x)).unwrap());
    assert_eq!(results, [name("3", &[1.0, 0.0])]);
}

#[test]
fn members_of_tuples_are_numbered() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Pair p 1 1 0 1
        prim::TupleUnpack u 1 2 1 2 3
        prim::TupleConstruct t 3 1 3 1 0 4
        test.Positive d 1 1 0 5
        test.Pair late 1 1 5 6
        pnnx.Output out 1 0 4
        pnnx.Output also 1 0 6";
    let session = session(lines);
    let x = vector(&[1.0, -2.0]);
    let run = |request: Request<'_>| named(session.run_named(&request.feed("0", &x)).unwrap());
    let (plus, minus) = ([1.0, -2.0], [-1.0, 2.0]);
    let fetched = run(Request::new().fetch("4").fetch("p").fetch("3").fetch("late"));
    let expected = [
        name("4.0", &minus),
        name("4.1.0", &plus),
        name("4.1.1", &minus),
        name("4.2", &plus),
        name("p.0", &plus),
        name("p.1", &minus),
        name("3", &minus),
        name("late.0", &[1.0]),
        name("late.1", &[-1.0]),
    ];
    assert_eq!(fetched, expected);
    // The model's outputs: a tuple that is made of operands is told by their names.
    let names: Vec<String> = run(Request::new()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["3", "1.0", "1.1", "0", "6.0", "6.1"]);
    let error = session.run_with(&Request::new().feed("0", &x).fetch("u")).unwrap_err();
    let made = vec!["2".into(), "3".into()];
    let (inputs, outputs) = (Vec::new(), Vec::new());
    assert_eq!(error, SessionError::NoSuchOperand { name: "u".into(), made, inputs, outputs });
}

#[test]
fn all_is_what_can_be_computed() {
    let x = vector(&[1.0, -2.0]);
    for options in [SessionOptions::default(), SessionOptions::default().without_passes()] {
        let session = session_with(CHAIN, options);
        let all = named(session.run_named(&Request::new().feed("in", &x).fetch_all()).unwrap());
        let expected = [
            name("0", &[1.0, -2.0]),
            name("1", &[2.0, -4.0]),
            name("2", &[-4.0, 2.0]),
            name("3", &[0.0, 2.0]),
        ];
        assert_eq!(all, expected);
        let some = named(session.run_named(&Request::new().feed("2", &x).fetch_all()).unwrap());
        assert_eq!(some, [name("2", &[1.0, -2.0]), name("3", &[1.0, 0.0])]);
    }
}

#[test]
fn what_could_be_fed_instead_is_named() {
    // 2 and 3 meet in 4: each alone leaves a way from the input; so do both inputs of 6.
    let lines = "
        pnnx.Input in 0 1 0
        pnnx.Input other 0 1 1
        test.Relu a 1 1 0 2
        test.Scale b 1 1 0 3 by=2.0
        test.Add c 2 1 2 3 4
        test.Relu d 1 1 4 5
        test.Add e 2 1 5 1 6
        test.Relu f 1 1 6 7
        pnnx.Output out 1 0 7";
    let session = session(lines);
    let x = vector(&[1.0]);
    let not_fed = |request: &Request<'_>| match session.plan_request(request).unwrap_err() {
        SessionError::NotFed { fetch, missing, instead } => (fetch, missing, instead),
        other => panic!("{other}"),
    };
    let texts = |all: &[&str]| all.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
    let (fetch, missing, instead) = not_fed(&Request::new().feed("other", &x));
    assert_eq!((fetch.as_str(), missing), ("7", texts(&["0"])));
    assert_eq!(instead, texts(&["4", "5", "6"]));
    for operand in &instead {
        let request = Request::new().feed("other", &x).feed(operand, &x);
        assert!(session.run_with(&request).is_ok(), "{operand}");
    }
    assert!(session.run_with(&Request::new().feed("other", &x).feed("2", &x)).is_err());
    let (_, missing, instead) = not_fed(&Request::new());
    assert_eq!((missing, instead), (texts(&["0", "1"]), texts(&["6"])));
    let (_, missing, instead) = not_fed(&Request::new().feed("3", &x).fetch("4"));
    assert_eq!((missing, instead), (texts(&["0"]), texts(&["2"])));
    let error = session.plan_request(&Request::new().feed("other", &x)).unwrap_err().to_string();
    assert_eq!(
        error,
        "operand '7' cannot be computed: input '0' is not fed; one of '4', '5', '6' could be fed instead"
    );
}

#[test]
fn memory_of_others_is_read_where_it_lies() {
    let session = session(CHAIN);
    let numbers = [1.0f32, -2.0, 3.0, 4.0];
    let run = |view: TensorView<'_>| {
        let request = Request::new().feed("0", view).fetch("0").fetch("3");
        session.run_with(&request).unwrap().iter().map(values).collect::<Vec<_>>()
    };
    let dense = TensorView::from_slice(&numbers, [4]).unwrap();
    assert_eq!(run(dense.clone()), [numbers.to_vec(), vec![8.0, 6.0, 0.0, 2.0]]);
    // Every second element, and bytes that no f32 may lie at: copied.
    assert_eq!(run(dense.slice(0, 0..4, 2).unwrap()), [[1.0, 3.0], [6.0, 2.0]]);
    let mut bytes = [0u8; 17];
    let odd = usize::from(bytes.as_ptr().addr().is_multiple_of(2));
    for (to, x) in bytes[odd..].chunks_exact_mut(4).zip(numbers) {
        to.copy_from_slice(&x.to_le_bytes());
    }
    let unaligned = TensorView::from_bytes(DType::F32, [4], &bytes[odd..odd + 16]).unwrap();
    assert_eq!(run(unaligned.clone()), run(dense));
    // A copy counts towards the budget of the run.
    let limited = session_with(CHAIN, SessionOptions::default().with_memory_budget(1 << 20));
    let wide = TensorView::from_bytes(DType::F32, [1], &[0; 4]).unwrap();
    let wide = wide.broadcast_to([1 << 10]).unwrap();
    let request = Request::new().feed("0", wide);
    assert!(limited.run_with(&request).is_ok());
    let needed = limited.plan_request(&request).unwrap().memory().total();
    let options = SessionOptions::default().with_memory_budget(needed + (4 << 10) - 1);
    let error = session_with(CHAIN, options).run_with(&request).unwrap_err();
    assert!(matches!(&error, SessionError::Feed { name, .. } if name == "0"), "{error}");
    assert!(error.is_limit(), "{error}");
}

#[test]
fn requests_are_planned_profiled_and_run_into_tensors() {
    let session = session(CHAIN);
    let x = vector(&[1.0, -2.0]);
    let request = Request::new().feed("in", &x).fetch("2");
    let plan = session.plan_request(&request).unwrap();
    let (outputs, profile) = session.profile_request(&request).unwrap();
    assert_eq!(values(&outputs[0]), [-4.0, 2.0]);
    assert!(Arc::ptr_eq(&plan, &profile.plan));
    let kernels: Vec<String> = plan.steps().map(|step| step.kernel).collect();
    assert_eq!(kernels, ["scale", "reverse"], "only what lies between");
    assert_eq!(profile.steps.len(), 2);
    let address = outputs[0].as_bytes().as_ptr();
    let mut outputs = outputs;
    let y = vector(&[5.0, 6.0]);
    session.run_request_into(&Request::new().feed("in", &y).fetch("2"), &mut outputs).unwrap();
    assert_eq!((values(&outputs[0]), outputs[0].as_bytes().as_ptr()), (vec![12.0, 10.0], address));
    assert_eq!(session.plan_count(), 1);
}

//! Values from run to run: whose memory, which errors, what comes out.

use super::StateError;
use crate::testkit::{self, session, values, vector};
use crate::{Request, Session, SessionError, SessionOptions, State};
use plutino_ir::CancelToken;
use plutino_tensor::{DType, Tensor};

/// The sum so far, and what of it is positive.
const SUM: &str = "
    pnnx.Input in0 0 1 x #x=(2)f32
    pnnx.Input in1 0 1 before #before=(2)f32
    test.Add sum 2 1 x before after #after=(2)f32
    test.Relu relu 1 1 after y
    pnnx.Output out0 2 0 after y";

/// A cache that grows by whatever is fed, and the sum of a row that only a reader sees.
const CACHE: &str = "
    pnnx.Input in0 0 1 new #new=(1,2)f32
    pnnx.Input in1 0 1 past #past=(3,2)f32
    torch.cat cat 2 1 past new all dim=0 #all=(4,2)f32
    torch.sum sum 1 1 all y dim=(0) keepdim=False
    pnnx.Output out0 2 0 all y";

fn carrying(session: &Session, output: &str, input: &str) -> State {
    let mut state = session.state();
    state.carry(output, input).unwrap();
    state
}

fn error(result: Result<impl Sized, SessionError>) -> StateError {
    match result.err().expect("an error") {
        SessionError::State(error) => error,
        other => panic!("{other}"),
    }
}

fn held(state: &State, input: &str) -> Vec<f32> {
    values(&state.get(input).unwrap().unwrap())
}

fn address(state: &State, input: &str) -> usize {
    state.get(input).unwrap().unwrap().as_bytes().as_ptr().addr()
}

#[test]
fn streams_do_not_disturb_each_other() {
    let session = session(SUM);
    let (mut a, mut b) = (carrying(&session, "after", "before"), session.state());
    b.carry("out0", "in1").unwrap(); // the same, by position
    b.start("before", vector(&[10.0, 20.0])).unwrap();
    for step in 1..=4 {
        let n = step as f32;
        let y = session.run_with_state(&mut a, &[vector(&[1.0, -1.0])]).unwrap();
        assert_eq!(y.len(), 1, "what is carried is no result");
        assert_eq!(values(&y[0]), [n, 0.0]);
        session.run_with_state(&mut b, &[vector(&[1.0, 1.0])]).unwrap();
        assert_eq!(held(&b, "in1"), [10.0 + n, 20.0 + n]);
    }
    assert_eq!(held(&a, "before"), [4.0, -4.0]);
    // A branch goes its own way.
    let mut branch = a.clone();
    session.run_with_state(&mut branch, &[vector(&[1.0, 1.0])]).unwrap();
    assert_eq!((held(&a, "before"), held(&branch, "before")), (vec![4.0, -4.0], vec![5.0, -3.0]));
    a.reset();
    b.reset();
    assert_eq!((held(&a, "before"), held(&b, "before")), (vec![0.0, 0.0], vec![10.0, 20.0]));
}

#[test]
fn two_buffers_take_turns() {
    let session = session(SUM);
    let mut state = carrying(&session, "after", "before");
    let mut seen = Vec::new();
    for _ in 0..6 {
        session.run_with_state(&mut state, &[vector(&[1.0, 1.0])]).unwrap();
        seen.push(address(&state, "before"));
    }
    assert!(seen.windows(3).all(|w| w[0] == w[2] && w[0] != w[1]), "{seen:?}");
    assert_eq!(state.bytes(), 16);
    // The tensor that a run made is what the next one reads, and what the caller is shown.
    let x = vector(&[1.0, 1.0]);
    let request = Request::new().feed("x", &x).fetch("after").fetch("sum");
    let shown = session.run_request_with_state(&mut state, &request).unwrap();
    let pointers = shown.iter().map(|t| t.as_bytes().as_ptr().addr());
    assert!(pointers.clone().all(|p| p == address(&state, "before")));
    // It is not written over while somebody holds it.
    session.run_with_state(&mut state, &[vector(&[1.0, 1.0])]).unwrap();
    session.run_with_state(&mut state, &[vector(&[1.0, 1.0])]).unwrap();
    assert_eq!(values(&shown[0]), [7.0, 7.0]);
    assert_eq!(held(&state, "before"), [9.0, 9.0]);
    // Nor is what the first run was given.
    let start = vector(&[5.0, 5.0]);
    state.start("before", start.clone()).unwrap().reset();
    for _ in 0..3 {
        session.run_with_state(&mut state, &[vector(&[1.0, 1.0])]).unwrap();
    }
    assert_eq!((values(&start), held(&state, "before")), (vec![5.0, 5.0], vec![8.0, 8.0]));
}

#[test]
fn results_have_names_and_times() {
    let session = session(SUM);
    let mut state = carrying(&session, "sum", "before");
    let x = vector(&[1.0, -1.0]);
    let request = || Request::new().feed("x", &x);
    let names = |results: Vec<(String, Tensor)>| -> Vec<String> {
        results.into_iter().map(|(name, _)| name).collect()
    };
    let run = |state: &mut State, r: Request<'_>| session.run_named_with_state(state, &r).unwrap();
    assert_eq!(names(run(&mut state, request())), ["y"]);
    assert_eq!(names(run(&mut state, request().fetch("relu").fetch("sum"))), ["relu", "sum"]);
    assert_eq!(names(run(&mut state, request().fetch_all())), ["x", "before", "after", "y"]);
    let (results, profile) = session.profile_with_state(&mut state, &request()).unwrap();
    assert_eq!((values(&results[0]), profile.steps.len()), (vec![4.0, 0.0], 2));
    let plan = session.plan_with_state(&state, &request()).unwrap();
    assert_eq!(plan.outputs().map(|(name, _)| name).collect::<Vec<_>>(), ["after", "y"]);
}

#[test]
fn a_cache_grows_as_if_fed_by_hand() {
    let session = session(CACHE);
    let mut state = carrying(&session, "all", "past");
    let mut by_hand = Tensor::zeros(DType::F32, [0, 2]).unwrap();
    for step in 0..9 {
        let rows = 1 + step % 3; // more than one at a time
        let new: Vec<f32> = (0..2 * rows).map(|i| (step * 31 + i) as f32 / 7.0).collect();
        let new = Tensor::from_slice(&new, [rows, 2]).unwrap();
        let mut expected = session.run(&[new.clone(), by_hand]).unwrap();
        let carried = session.run_with_state(&mut state, &[new]).unwrap();
        by_hand = expected.remove(0);
        assert_eq!(carried, expected);
        assert_eq!(state.get("past").unwrap().unwrap(), by_hand);
    }
    // Begun elsewhere.
    state.set("past", by_hand.clone()).unwrap();
    let new = Tensor::from_slice(&[1.0f32, 2.0], [1, 2]).unwrap();
    session.run_with_state(&mut state, &[new]).unwrap();
    assert_eq!(state.get("past").unwrap().unwrap().shape().dims(), [19, 2]);
}

#[test]
fn a_recurrent_layer_step_by_step_is_the_whole_sequence() {
    let lines = "
        pnnx.Input in0 0 1 x #x=(7,1,5)f32
        pnnx.Input in1 0 1 h #h=(1,1,4)f32
        nn.GRU gru 2 2 x h y hn batch_first=False bias=True bidirectional=False hidden_size=4 \
            input_size=5 num_layers=1 @bias_hh_l0=(12)f32 @bias_ih_l0=(12)f32 \
            @weight_hh_l0=(12,4)f32 @weight_ih_l0=(12,5)f32 #hn=(1,1,4)f32
        pnnx.Output out0 1 0 y
        pnnx.Output out1 1 0 hn";
    let lines = lines.replace("\\\n", "");
    let session = testkit::weighted(&lines).session(SessionOptions::default()).unwrap();
    let x: Vec<f32> = (0..35).map(|i| (i as f32 * 0.7).sin()).collect();
    let whole = Tensor::from_slice(&x, [7, 1, 5]).unwrap();
    let zeros = Tensor::zeros(DType::F32, [1, 1, 4]).unwrap();
    let whole = session.run(&[whole, zeros]).unwrap();
    let mut state = carrying(&session, "hn", "h");
    for (step, y) in x.chunks(5).zip(values(&whole[0]).chunks(4)) {
        let x = Tensor::from_slice(step, [1, 1, 5]).unwrap();
        let out = session.run_with_state(&mut state, &[x]).unwrap();
        assert_eq!(values(&out[0]), y);
    }
    assert_eq!(held(&state, "h"), values(&whole[1]));
}

#[test]
fn what_cannot_be_carried_is_refused() {
    let lines = "
        pnnx.Input in0 0 1 x #x=(2)f32
        pnnx.Input in1 0 1 n #n=(2)i64
        pnnx.Input in2 0 1 wide #wide=(2,2)f32
        pnnx.Input in3 0 1 open #open=(?)f32
        test.Relu a 1 1 x y #y=(2)f32
        test.Pair p 1 1 x pair
        test.Positive d 1 1 x some
        pnnx.Output out0 3 0 y pair some";
    let session = session(lines);
    let mut state = session.state();
    assert!(matches!(state.carry("y", "z"), Err(SessionError::NoSuchOperand { .. })));
    assert!(matches!(state.carry("out9", "x"), Err(SessionError::NoSuchOperand { .. })));
    assert!(matches!(
        error(state.carry("y", "n")),
        StateError::DType { expected: DType::I64, found: DType::F32, .. }
    ));
    let wide = error(state.carry("y", "wide"));
    assert_eq!(
        wide.to_string(),
        "operand 'wide' of shape (2,2)f32 cannot take 'y' of shape (2)f32"
    );
    state.carry("y", "x").unwrap();
    let twice = error(state.carry("a", "x"));
    assert_eq!(twice.to_string(), "operand 'x' is carried to twice, from 'y' and 'y'");
    let unknown = error(state.set("open", vector(&[1.0])));
    assert_eq!(unknown.to_string(), "nothing is carried to operand 'open'; carried to are: 'x'");
    let wrong = Tensor::zeros(DType::I32, [2]).unwrap();
    assert!(matches!(error(state.set("x", wrong.clone())), StateError::DType { .. }));
    let wrong = Tensor::zeros(DType::F32, [2, 2]).unwrap();
    assert!(matches!(error(state.start("x", wrong)), StateError::Shape { .. }));

    // What only planning, or the run, tells.
    let x = vector(&[1.0, -2.0]);
    let run = |output: &str, start: bool| {
        let mut state = carrying(&session, output, "open");
        let none = error(
            session.run_request_with_state(&mut state, &Request::new().feed("x", &x).fetch("y")),
        );
        assert!(matches!(none, StateError::NoStart { .. }), "{none}");
        match start {
            true => state.start("open", vector(&[1.0])).unwrap(),
            false => state.start_empty("open", 0).unwrap(),
        };
        let run = session.run_request_with_state(&mut state, &Request::new().feed("x", &x));
        run.map(|_| state)
    };
    assert!(matches!(error(run("pair", true)), StateError::NotATensor { found: 2, .. }));
    assert_eq!(held(&run("some", false).unwrap(), "open"), [1.0], "as many as there are");
    let mut state = carrying(&session, "y", "open");
    let dimension = error(state.start_empty("open", 1));
    assert!(matches!(dimension, StateError::NoDimension { dim: 1, .. }), "{dimension}");
    let request = Request::new().feed("open", &x).feed("x", &x);
    let fed = error(session.run_request_with_state(&mut state, &request));
    assert_eq!(fed.to_string(), "operand 'open' is fed, and carried from 'y' as well");
    let count = session.run_with_state(&mut state, &[]).unwrap_err();
    assert!(matches!(count, SessionError::InputCount { expected: 3, found: 0, .. }), "{count}");
    let other = testkit::session(SUM);
    let another = error(other.run_with_state(&mut state, &[vector(&[1.0])]));
    assert!(matches!(another, StateError::AnotherModel { .. }), "{another}");
}

#[test]
fn rank_and_dtype_stay() {
    let lines = "
        pnnx.Input in0 0 1 x
        test.View v 1 1 x y
        test.SizeOf s 1 1 x n
        pnnx.Output out0 2 0 y n";
    let session = session(lines);
    for output in ["y", "n"] {
        let mut state = carrying(&session, output, "x");
        state.start("x", Tensor::zeros(DType::F32, [2, 2]).unwrap()).unwrap();
        let refused = error(session.run_with_state(&mut state, &[]));
        match output {
            "y" => assert!(matches!(refused, StateError::Shape { .. }), "{refused}"),
            _ => assert!(matches!(refused, StateError::DType { .. }), "{refused}"),
        }
        assert_eq!(state.get("x").unwrap().unwrap().shape().dims(), [2, 2], "as before");
    }
}

#[test]
fn a_run_that_fails_changes_nothing() {
    let session = session(SUM);
    let mut state = carrying(&session, "after", "before");
    session.run_with_state(&mut state, &[vector(&[1.0, 2.0])]).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let x = vector(&[1.0, 1.0]);
    let request = Request::new().feed("x", &x).cancel(&token);
    let error = session.run_request_with_state(&mut state, &request).unwrap_err();
    assert!(error.is_limit(), "{error}");
    assert_eq!(held(&state, "before"), [1.0, 2.0]);
    assert!(state.restore([("after", vector(&[0.0]))]).is_err());
    assert!(state.restore([("before", vector(&[9.0, 9.0])), ("x", vector(&[0.0]))]).is_err());
    assert_eq!(held(&state, "before"), [1.0, 2.0]);
    session.run_with_state(&mut state, &[vector(&[1.0, 1.0])]).unwrap();
    assert_eq!(held(&state, "before"), [2.0, 3.0]);
}

#[test]
#[cfg(feature = "npy")]
fn a_state_goes_to_a_file_and_back() {
    let path = std::env::temp_dir().join(format!("plutino-state-{}.npz", std::process::id()));
    let session = session(SUM);
    let mut state = carrying(&session, "after", "before");
    session.run_with_state(&mut state, &[vector(&[1.5, 2.0])]).unwrap();
    state.save(&path).unwrap();
    let mut later = carrying(&session, "after", "before");
    later.load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(held(&later, "before"), [1.5, 2.0]);
    session.run_with_state(&mut later, &[vector(&[1.0, 1.0])]).unwrap();
    assert_eq!(held(&later, "before"), [2.5, 3.0]);
    assert!(later.load(&path).is_err(), "it is gone");
}

#[test]
fn the_budget_counts_what_is_held() {
    let plan = |options: SessionOptions| {
        let session = testkit::session_with(CACHE, options);
        let mut state = carrying(&session, "all", "past");
        state.set("past", Tensor::zeros(DType::F32, [64, 2]).unwrap()).unwrap();
        let new = vector(&[1.0, 2.0]).reshape([1, 2]).unwrap();
        let request = Request::new().feed("new", &new);
        let plan = session.plan_with_state(&state, &request).unwrap();
        let memory = state.memory(&plan);
        assert_eq!(memory.state, 64 * 2 * 4);
        assert_eq!(memory.total(), plan.memory().total() + memory.state);
        let ran = session.run_with_state(&mut state, &[new]);
        (memory.total(), ran.map(|_| ()))
    };
    let (total, ran) = plan(SessionOptions::default());
    ran.unwrap();
    plan(SessionOptions::default().with_memory_budget(total)).1.unwrap();
    let (_, refused) = plan(SessionOptions::default().with_memory_budget(total - 1));
    let budget = total - 1;
    assert_eq!(refused.unwrap_err(), SessionError::Budget { needed: total, budget });
}

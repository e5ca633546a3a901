//! Sessions end to end, on the operators of the test kit.

mod dispatch;
mod random;
mod requests;

use crate::testkit::{model, session, session_with, values, vector};
use crate::{CancelToken, ModelError, Request, Session, SessionError, SessionOptions, Sorting};
use plutino_tensor::{DType, Tensor, TensorSpec};
use std::time::{Duration, Instant};

fn run(lines: &str, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    session(lines).run(inputs).unwrap().iter().map(values).collect()
}

const CHAIN: &str = "
    pnnx.Input in 0 1 0 #0=(3)f32
    test.Scale a 1 1 0 1 by=2.0
    test.Reverse b 1 1 1 2
    test.Relu c 1 1 2 3
    pnnx.Output out 1 0 3";

#[test]
fn a_chain_runs() {
    assert_eq!(run(CHAIN, &[vector(&[1.0, -2.0, 3.0])]), [[6.0, 0.0, 2.0]]);
}

#[test]
fn file_order_need_not_be_topological() {
    let lines = "
        pnnx.Output out 1 0 2
        test.Scale b 1 1 1 2 by=3.0
        test.Scale a 1 1 0 1 by=2.0
        pnnx.Input in 0 1 0";
    for sorting in [Sorting::DepthFirst, Sorting::Kahn] {
        let options = SessionOptions { sorting, ..SessionOptions::default() };
        let out = session_with(lines, options).run(&[vector(&[1.0])]).unwrap();
        assert_eq!(values(&out[0]), [6.0]);
    }
}

#[test]
fn outputs_may_be_inputs_repeated_and_tuples() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Pair p 1 1 0 1
        prim::TupleUnpack u 1 2 1 2 3
        test.Scale s 1 1 3 4 by=10.0
        prim::TupleConstruct t 4 1 0 4 1 4 5
        pnnx.Output out 1 0 5";
    let x = vec![1.0, 2.0];
    let y = vec![-10.0, -20.0];
    assert_eq!(run(lines, &[vector(&x)]), [x.clone(), y.clone(), x, vec![-1.0, -2.0], y]);
}

#[test]
fn views_and_in_place_do_not_disturb_each_other() {
    // `1` is needed after its halves are changed; the input is never written to.
    let lines = "
        pnnx.Input in 0 1 0
        test.Scale s 1 1 0 1 by=1.0
        test.Split h 1 2 1 2 3
        test.Relu r 1 1 2 4
        test.Scale n 1 1 3 5 by=-1.0
        test.Cat c 2 1 4 5 6
        test.Add a 2 1 6 1 7
        pnnx.Output o 1 0 7";
    let x = vector(&[-1.0, 2.0, 3.0, -4.0]);
    assert_eq!(run(lines, std::slice::from_ref(&x)), [[-1.0, 4.0, 0.0, 0.0]]);
    assert_eq!(values(&x), [-1.0, 2.0, 3.0, -4.0]);
    for pass in ["dead", "fold", "fuse"] {
        let off = session_with(lines, SessionOptions::default().without_pass(pass));
        assert_eq!(values(&off.run(std::slice::from_ref(&x)).unwrap()[0]), [-1.0, 4.0, 0.0, 0.0]);
    }
}

#[test]
fn in_place_is_used_where_the_input_dies() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Reverse r 1 1 0 1
        test.Relu a 1 1 1 2
        test.Relu b 1 1 2 3
        test.Reverse s 1 1 3 4
        pnnx.Output o 1 0 4";
    let plan = session(lines).plan(&[TensorSpec::new(DType::F32, [16])]).unwrap();
    let steps: Vec<_> = plan.steps().collect();
    assert_eq!(steps[1].inputs[0].place, "in place");
    assert_eq!(steps[2].inputs[0].place, "in place");
    // One buffer for 1, 2 and 3, and scratch beside it while 1 is written and 3 read.
    assert_eq!(plan.memory().arena, 128);
    assert_eq!(plan.memory().unshared, 256);
    assert_eq!(plan.memory().lower_bound, 128);
}

#[test]
fn the_same_value_twice_is_not_overwritten() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Reverse r 1 1 0 1
        test.Add a 2 1 1 1 2
        test.Reverse s 1 1 2 3
        pnnx.Output o 1 0 3";
    assert_eq!(run(lines, &[vector(&[1.0, 2.0])]), [[2.0, 4.0]]);
}

#[test]
fn concatenation_needs_no_step_where_producers_can_write_in_place() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Reverse r 1 1 0 1
        test.Pair p 1 1 0 2
        prim::TupleUnpack u 1 2 2 3 4
        test.Cat c 4 1 1 4 0 4 5
        test.Reverse s 1 1 5 6
        pnnx.Output o 1 0 6";
    let session = session(lines);
    let (out, profile) = session.profile(&[vector(&[1.0, 2.0])]).unwrap();
    assert_eq!(values(&out[0]), [-2.0, -1.0, 2.0, 1.0, -2.0, -1.0, 1.0, 2.0]);
    let kernels: Vec<String> = profile.plan.steps().map(|s| s.kernel).collect();
    assert_eq!(kernels, ["reverse", "pair", "copy", "reverse"]);
    assert_eq!(profile.steps.len(), 4);
    let copied: Vec<_> = profile.plan.steps().nth(2).unwrap().inputs;
    assert_eq!(copied.len(), 2, "the model's input, and what lies there already");
}

#[test]
fn constants_are_folded_and_counted() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Constant k 0 1 1
        test.Scale s 1 1 1 2 by=0.5
        test.Add a 2 1 0 2 3
        pnnx.Output o 1 0 3";
    let session = session(lines);
    assert_eq!(values(&session.run(&[vector(&[1.0, 1.0])]).unwrap()[0]), [6.0, 11.0]);
    let plan = session.plan(&[TensorSpec::new(DType::F32, [2])]).unwrap();
    assert_eq!(plan.steps().len(), 1);
    assert_eq!(plan.memory().constants, 8);
    let off = session_with(lines, SessionOptions::default().without_passes());
    assert_eq!(values(&off.run(&[vector(&[1.0, 1.0])]).unwrap()[0]), [6.0, 11.0]);
    assert_eq!(off.plan(&[TensorSpec::new(DType::F32, [2])]).unwrap().steps().len(), 3);
}

#[test]
fn shapes_that_depend_on_data_are_planned_while_running() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Positive p 1 1 0 1
        test.Scale s 1 1 1 2 by=2.0
        test.SizeOf z 1 1 2 3
        test.Pair q 1 1 2 4
        prim::TupleUnpack u 1 2 4 5 6
        test.Cat c 2 1 5 0 7
        prim::TupleConstruct t 4 1 1 7 3 4 8
        pnnx.Output o 1 0 8";
    let session = session(lines);
    for (x, kept) in [([1.0, -2.0, 3.0], vec![1.0, 3.0]), ([-1.0, -2.0, -3.0], vec![])] {
        let out = session.run(&[vector(&x)]).unwrap();
        let twice: Vec<f32> = kept.iter().map(|x| 2.0 * x).collect();
        assert_eq!(values(&out[0]), kept);
        assert_eq!(values(&out[1]), [&twice[..], &x[..]].concat());
        assert_eq!(out[2].as_slice::<i64>().unwrap(), [kept.len() as i64]);
        assert_eq!(values(&out[4]), twice.iter().map(|x| -x).collect::<Vec<_>>());
        assert_eq!(out.len(), 5);
    }
    assert_eq!(session.plan_count(), 1);
}

#[test]
fn a_shape_given_as_an_input_is_waited_for() {
    let lines = "
        pnnx.Input in 0 1 0
        pnnx.Input shape 0 1 1
        test.Reverse r 1 1 0 2
        test.ReshapeBy s 2 1 2 1 3
        test.Scale t 1 1 3 4 by=2.0
        pnnx.Output o 1 0 4";
    let session = session(lines);
    for shape in [[2i64, 3], [6, 1]] {
        let out = session
            .run(&[
                vector(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
                Tensor::from_slice(&shape, [2]).unwrap(),
            ])
            .unwrap();
        assert_eq!(out[0].shape().dims(), shape.map(|d| d as usize));
        assert_eq!(values(&out[0]), [12.0, 10.0, 8.0, 6.0, 4.0, 2.0]);
    }
}

#[test]
fn any_operand_can_be_fed_and_fetched() {
    let session = session(CHAIN);
    let x = vector(&[1.0, -2.0]);
    let fetched = session.run_with(&Request::new().feed("in", &x).fetch("1").fetch("2")).unwrap();
    assert_eq!(fetched.iter().map(values).collect::<Vec<_>>(), [[2.0, -4.0], [-4.0, 2.0]]);
    let fed = session.run_with(&Request::new().feed("2", &x)).unwrap();
    assert_eq!(values(&fed[0]), [1.0, 0.0]);
    let same = session.run_with(&Request::new().feed("2", &x).fetch("2")).unwrap();
    assert_eq!(same[0], x);
    let missing = session.run_with(&Request::new().feed("3", &x).fetch("2")).unwrap_err();
    assert_eq!(
        missing,
        SessionError::NotFed {
            fetch: "2".into(),
            missing: vec!["0".into()],
            instead: vec!["1".into()]
        }
    );
    let unknown = session.run_with(&Request::new().feed("nine", &x)).unwrap_err();
    let told = "the model has no operand named 'nine' (input '0', output '3')";
    assert_eq!(unknown.to_string(), told);
    let by_position = session.run_with(&Request::new().feed("in0", &x).fetch("out0")).unwrap();
    assert_eq!(by_position, session.run(std::slice::from_ref(&x)).unwrap());
    let twice = session.run_with(&Request::new().feed("0", &x).feed("in", &x)).unwrap_err();
    assert_eq!(twice, SessionError::FedTwice { name: "in".into() });
}

#[test]
fn inputs_are_checked() {
    let session = session(
        "pnnx.Input a 0 1 0 #0=(%n,2)f32
         pnnx.Input b 0 1 1 #1=(3,%n)f32
         test.View v 1 1 0 2
         test.View w 1 1 1 3
         test.Cat c 2 1 2 3 4
         pnnx.Output o 1 0 4",
    );
    let zeros = |dtype, shape: [usize; 2]| Tensor::zeros(dtype, shape).unwrap();
    let (a, b) = (zeros(DType::F32, [4, 2]), zeros(DType::F32, [3, 4]));
    assert_eq!(session.run(&[a.clone(), b.clone()]).unwrap()[0].numel(), 20);
    let error = session.run(std::slice::from_ref(&a)).unwrap_err();
    assert_eq!(error.to_string(), "the model has 2 input(s) (0, 1), 1 given");
    let error = session.run(&[a.clone(), zeros(DType::F32, [3, 5])]).unwrap_err();
    assert_eq!(error.to_string(), "dimension %n is 4 in input '0' and 5 in input '1'");
    let error = session.run(&[a, zeros(DType::I64, [3, 4])]).unwrap_err();
    assert_eq!(error.to_string(), "input '1' must be f32, found i64");
}

#[test]
fn errors_while_running_name_the_operator_and_spoil_nothing() {
    let session = session("pnnx.Input in 0 1 0\ntest.Refuse careful 1 1 0 1\npnnx.Output o 1 0 1");
    let error = session.run(&[vector(&[1.0, -1.0])]).unwrap_err();
    assert_eq!(error.to_string(), "<graph>:4: test.Refuse 'careful': input 0: -1 is negative");
    assert_eq!(values(&session.run(&[vector(&[1.0])]).unwrap()[0]), [1.0]);
}

#[test]
fn plans_are_kept_by_shape_and_the_oldest_goes() {
    let options = SessionOptions { plan_cache_size: 2, ..SessionOptions::default() };
    let session = session_with(CHAIN, options);
    for n in [1, 2, 1, 3, 1] {
        session.run(&[vector(&vec![1.0; n])]).unwrap();
        assert!(session.plan_count() <= 2);
    }
    let plan = |n: usize| session.plan(&[TensorSpec::new(DType::F32, [n])]).unwrap();
    let (one, three) = (plan(1), plan(3));
    assert!(std::sync::Arc::ptr_eq(&one, &plan(1)), "kept: used last");
    assert!(std::sync::Arc::ptr_eq(&three, &plan(3)));
    plan(2);
    assert!(!std::sync::Arc::ptr_eq(&one, &plan(1)), "made anew");
}

#[test]
fn outputs_are_reused_where_they_fit() {
    let session = session(CHAIN);
    let mut outputs = session.run(&[vector(&[1.0, 2.0])]).unwrap();
    let address = outputs[0].as_bytes().as_ptr();
    session.run_into(&[vector(&[3.0, 4.0])], &mut outputs).unwrap();
    assert_eq!((values(&outputs[0]), outputs[0].as_bytes().as_ptr()), (vec![8.0, 6.0], address));
    let shared = outputs[0].clone();
    session.run_into(&[vector(&[1.0, 1.0])], &mut outputs).unwrap();
    assert_eq!((values(&shared), values(&outputs[0])), (vec![8.0, 6.0], vec![2.0, 2.0]));
    session.run_into(&[vector(&[1.0])], &mut outputs).unwrap();
    assert_eq!(values(&outputs[0]), [2.0]);
}

#[test]
fn large_results_that_were_dropped_are_memory_of_later_ones() {
    let pool = std::sync::Arc::new(crate::ArenaPool::default());
    let options = SessionOptions::default().with_arena_pool(std::sync::Arc::clone(&pool));
    let session = session_with(CHAIN, options);
    let input = |x: f32| vector(&vec![x; 1 << 16]);
    let run = |x: f32| session.run(&[input(x)]).unwrap().remove(0);
    let address = |t: &Tensor| t.as_bytes().as_ptr() as usize;
    let all = |t: &Tensor, x: f32| values(t).iter().all(|&y| y == x);
    let first = run(1.0);
    let place = address(&first);
    let second = run(2.0);
    assert!(all(&first, 2.0) && all(&second, 4.0), "two that are held");
    drop(first);
    let third = run(3.0);
    assert_eq!(address(&third), place);
    assert!(all(&third, 6.0) && all(&second, 4.0));
    drop((second, third));
    let idle = pool.idle_bytes();
    assert!(idle >= 2 << 18, "{idle}");
    pool.release();
    assert_eq!(pool.idle_bytes(), 0);
    assert!(all(&run(4.0), 8.0));
}

#[test]
fn limits_end_a_run() {
    let sleep = "
        pnnx.Input in 0 1 0
        test.Sleep a 1 1 0 1
        test.Sleep b 1 1 1 2
        test.Sleep c 1 1 2 3
        test.Sleep d 1 1 3 4
        pnnx.Output o 1 0 4";
    let session = session(sleep);
    let x = vector(&[1.0]);
    let token = CancelToken::new();
    let request = Request::new().feed("0", &x).cancel(&token);
    assert!(session.run_with(&request).is_ok());
    token.cancel();
    let error = session.run_with(&request).unwrap_err();
    assert!(
        matches!(&error, SessionError::Cancelled { done: 0, steps: 4, at: Some(at) } if at.name == "a"),
        "{error}"
    );
    let soon = Instant::now() + Duration::from_millis(2);
    let error = session.run_with(&Request::new().feed("0", &x).deadline(soon)).unwrap_err();
    assert!(matches!(error, SessionError::Deadline { steps: 4, at: Some(_), .. }), "{error}");
    assert!(error.is_limit());
    assert!(session.run(&[x]).is_ok(), "the session lives on");
}

#[test]
fn limits_reach_into_operators_which_need_not_know_of_them() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Scale a 1 1 0 1 by=2.0
        test.Doze b 1 1 1 2
        test.Reverse c 1 1 2 3
        pnnx.Output o 1 0 3";
    let x = vector(&[1.0, 2.0]);
    for threads in [1, 2] {
        let session = session_with(lines, SessionOptions::default().with_threads(threads));
        session.plan(&[x.spec()]).unwrap();
        let token = CancelToken::new();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                token.cancel();
            });
            session.run_with(&Request::new().feed("0", &x).cancel(&token)).unwrap_err()
        });
        assert!(
            matches!(&error, SessionError::Cancelled { done: 1, steps: 3, at: Some(at) } if at.name == "b"),
            "{error}"
        );
        assert!(
            error.to_string().ends_with("after 1 of 3 steps, at <graph>:5: test.Doze 'b'"),
            "{error}"
        );
        let soon = Instant::now() + Duration::from_millis(30);
        let error = session.run_with(&Request::new().feed("0", &x).deadline(soon)).unwrap_err();
        assert!(matches!(error, SessionError::Deadline { done: 1, steps: 3, .. }), "{error}");
        assert_eq!(session.arenas.idle(), 1, "the arena went back, and serves the next run");
        assert_eq!(values(&session.run(std::slice::from_ref(&x)).unwrap()[0]), [4.0, 2.0]);
        assert_eq!(session.arenas.idle(), 1);
    }
}

/// One that waits for the plan of another run ends as well.
#[test]
fn limits_end_the_wait_for_a_plan() {
    let session = session(CHAIN);
    let spec = TensorSpec::new(DType::F32, [3]);
    let soon = crate::Limits {
        deadline: Some(Instant::now() + Duration::from_millis(5)),
        ..Default::default()
    };
    session.plans.while_planning(|| {
        let error = session.plan_within(std::slice::from_ref(&spec), &soon).unwrap_err();
        assert!(matches!(error, SessionError::Deadline { done: 0, steps: 0, .. }), "{error}");
    });
    assert!(session.plan(&[spec]).is_ok());
}

#[test]
fn the_memory_budget_is_checked_before_memory_is_taken() {
    let session = session_with(CHAIN, SessionOptions::default().with_memory_budget(1 << 20));
    assert!(session.run(&[vector(&[1.0; 64])]).is_ok());
    let error = session.plan(&[TensorSpec::new(DType::F32, [1 << 40])]).unwrap_err();
    assert!(matches!(error, SessionError::Budget { budget: 1048576, .. }), "{error}");
    let error = session.plan(&[TensorSpec::new(DType::F32, [usize::MAX])]).unwrap_err();
    assert!(matches!(error, SessionError::Tensor(_) | SessionError::Budget { .. }), "{error}");
}

#[test]
fn one_session_serves_many_threads() {
    fn shared<T: Send + Sync>(t: T) -> T {
        t
    }
    let session: Session =
        shared(model(CHAIN).session(SessionOptions::default().with_threads(2)).unwrap());
    std::thread::scope(|scope| {
        for t in 0..4 {
            let session = &session;
            scope.spawn(move || {
                for i in 0..50 {
                    let n = 1 + (t + i) % 3;
                    let x = vector(&vec![t as f32 + 1.0; n]);
                    assert_eq!(
                        values(&session.run(&[x]).unwrap()[0]),
                        vec![2.0 * (t as f32 + 1.0); n]
                    );
                }
            });
        }
    });
}

#[test]
fn shapes_that_differ_from_the_file_are_a_warning() {
    let session = session(
        "pnnx.Input in 0 1 0 #0=(4)f32\ntest.Scale s 1 1 0 1 by=1.0 #1=(5)f32\npnnx.Output o 1 0 1",
    );
    let plan = session.plan(&[TensorSpec::new(DType::F32, [4])]).unwrap();
    assert_eq!(plan.warnings().len(), 1);
    assert!(
        plan.warnings()[0].to_string().ends_with("operand 1 is (4)f32, the file records (5)f32")
    );
    assert!(session.plan(&[TensorSpec::new(DType::F32, [6])]).unwrap().warnings().is_empty());
}

#[test]
fn nested_tuples_cannot_blow_up_memory() {
    let mut lines = String::from("pnnx.Input in 0 1 0\n");
    for i in 0..40 {
        lines += &format!("prim::TupleConstruct t{i} 2 1 {i} {i} {}\n", i + 1);
    }
    lines += "pnnx.Output o 1 0 40";
    let error = crate::Model::from_graph(crate::testkit::graph(&lines)).unwrap_err();
    assert!(matches!(error, ModelError::Operators(_)), "{error}");
}

#[test]
fn a_constant_is_not_permuted_in_each_run() {
    // From channels last, for a reader that could compute in blocks.
    let lines = "
        pnnx.Input in 0 1 0
        torch.ones k 0 1 1 size=(1,2,2,16)
        Tensor.permute p 1 1 1 2 dims=(0,3,1,2)
        pnnx.Expression a 2 1 0 2 3 expr=add(@0,@1)
        pnnx.Output o 1 0 3";
    let session = session(lines);
    let x = Tensor::from_slice(&[1.0f32; 64], [1, 16, 2, 2]).unwrap();
    assert_eq!(values(&session.run(&[x]).unwrap()[0]), [2.0; 64]);
    let plan = session.plan(&[TensorSpec::new(DType::F32, [1, 16, 2, 2])]).unwrap();
    assert_eq!(plan.steps().len(), 1);
}

//! Placement of plans, on the operators of the test kit.

use super::{Bond, Context, Placement, PlacementNote};
use crate::plan::net::Wanted;
use crate::run::bind::{self, Growing};
use crate::testkit::{model, vector};
use crate::{
    Fed, Limits, Model, Plan, Queue, QueueOptions, Request, Session, SessionError, SessionOptions,
};
use plutino_ir::Graph;
use plutino_tensor::{DType, Tensor, TensorSpec};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Eight steps that are not fused, in two scopes.
const CHAIN: &str = "
    pnnx.Input in 0 1 0
    test.Reverse head.a 1 1 0 1
    test.Reverse head.b 1 1 1 2
    test.Reverse head.c 1 1 2 3
    test.Reverse head.d 1 1 3 4
    test.Reverse tail.a 1 1 4 5
    test.Reverse tail.b 1 1 5 6
    test.Scale tail.c 1 1 6 7 by=2.0
    test.Relu tail.d 1 1 7 8
    pnnx.Output out 1 0 8";

fn contexts(n: usize) -> Vec<Arc<Context>> {
    (0..n).map(|_| Context::of_threads(1).unwrap()).collect()
}

fn placed(lines: &str, contexts: Vec<Arc<Context>>, placement: Placement) -> Session {
    let options = SessionOptions::default().with_contexts(contexts).with_placement(placement);
    model(lines).session(options).unwrap()
}

fn plan(session: &Session) -> Arc<Plan> {
    session.plan(&[TensorSpec::new(DType::F32, [64])]).unwrap()
}

fn of(plan: &Plan) -> Vec<(String, usize)> {
    plan.steps().map(|step| (step.location.name, step.context)).collect()
}

fn numbers(plan: &Plan) -> Vec<usize> {
    plan.steps().map(|step| step.context).collect()
}

#[test]
fn stages_follow_each_other_and_compute_the_same() {
    let x = vector(&(0..64).map(|i| i as f32 - 30.0).collect::<Vec<_>>());
    let expected =
        placed(CHAIN, Vec::new(), Placement::new()).run(std::slice::from_ref(&x)).unwrap();
    for n in [1, 2, 3] {
        let session = placed(CHAIN, contexts(n), Placement::new());
        assert_eq!(session.contexts().len(), n);
        assert_eq!(session.run(std::slice::from_ref(&x)).unwrap(), expected);
        let plan = plan(&session);
        let numbers = numbers(&plan);
        assert!(numbers.is_sorted() && numbers.last() == Some(&(n - 1)), "{numbers:?}");
        assert_eq!(plan.phases().len(), n);
        assert_eq!(plan.placement().loads.len(), if n == 1 { 0 } else { n });
        let (_, profile) = session.profile(std::slice::from_ref(&x)).unwrap();
        assert_eq!(profile.steps.len(), 7, "the last two are one");
        assert!(profile.steps.windows(2).all(|w| w[0].start <= w[1].start));
    }
}

#[test]
fn wishes_by_name_scope_and_type_and_what_becomes_of_them() {
    let placement = Placement::new()
        .place("test.Reverse", 0)
        .place("head", 1)
        .place("tail.b", 1)
        .place("tail.d", 0)
        .place("nothing", 0)
        .place("tail", 9)
        .together(["head.a", "tail.a"]);
    let plan = plan(&placed(CHAIN, contexts(2), placement));
    let (head, tail) = (["head.a", "head.b", "head.c", "head.d"], ["tail.a", "tail.b"]);
    let steps = of(&plan);
    assert!(head.iter().chain(&tail).all(|name| steps.contains(&((*name).to_owned(), 1))));
    let notes = &plan.placement().notes;
    let expected = [
        PlacementNote::Absorbed { operator: "tail.d".into(), wanted: 0, into: "tail.c".into() },
        PlacementNote::NothingMatches { what: "nothing".into() },
        PlacementNote::NoSuchContext { what: "tail".into(), context: 9, contexts: 2 },
        PlacementNote::KeptTogether {
            operator: "tail.a".into(),
            wanted: 0,
            context: 1,
            with: "head.a".into(),
            bond: Bond::Group,
        },
    ];
    assert_eq!(notes[..], expected);
    let texts: Vec<String> = notes.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], "'tail.d' is not in context 0, but part of 'tail.c'");
    assert_eq!(
        texts[3],
        "'tail.a' is in context 1 with 'head.a', not in 0: they were to stay together"
    );
}

#[test]
fn times_that_were_measured_count_more_than_estimates() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Sleep slow 1 1 0 1
        test.Reverse a 1 1 1 2
        test.Reverse b 1 1 2 3
        test.Reverse c 1 1 3 4
        pnnx.Output out 1 0 4";
    let by_estimate = placed(lines, contexts(2), Placement::new());
    assert_eq!(numbers(&plan(&by_estimate)), [0, 0, 1, 1]);
    let (_, profile) = by_estimate.profile(&[vector(&[1.0; 64])]).unwrap();
    let measured = placed(lines, contexts(2), Placement::new().measured_by(&profile));
    assert_eq!(numbers(&plan(&measured)), [0, 1, 1, 1]);
    assert!(plan(&measured).placement().loads[0] >= Duration::from_millis(5));
}

#[test]
fn generators_stay_with_their_reader() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Reverse a 1 1 0 1
        test.Reverse b 1 1 1 2
        test.Constant k 0 1 3
        test.Add c 2 1 2 3 4
        pnnx.Output out 1 0 4";
    let options = SessionOptions::default().with_contexts(contexts(2)).without_passes();
    let options = options.with_placement(Placement::new().place("k", 0).place("c", 1));
    let session = model(lines).session(options).unwrap();
    let plan = session.plan(&[TensorSpec::new(DType::F32, [2])]).unwrap();
    let steps = of(&plan);
    let context = |name: &str| steps.iter().find(|(other, _)| other == name).unwrap().1;
    assert_eq!(context("k"), context("c"));
    let expected = [PlacementNote::KeptTogether {
        operator: if context("c") == 0 { "c".into() } else { "k".into() },
        wanted: 1 - context("c"),
        context: context("c"),
        with: if context("c") == 0 { "k".into() } else { "c".into() },
        bond: Bond::Generator,
    }];
    assert_eq!(plan.placement().notes, expected);
}

/// A cache to which each run appends, and attention to all of it.
const CACHE: &str = "7767517
7 5
pnnx.Input  in0    0 1 new #new=(1,1,1,4)f32
pnnx.Input  in1    0 1 past #past=(1,1,?,4)f32
nn.ReLU     relu   1 1 new row #row=(1,1,1,4)f32
torch.cat   append 2 1 past row all dim=2 #all=(1,1,?,4)f32
F.scaled_dot_product_attention attend 3 1 row all all y attn_mask=None dropout_p=0.0 is_causal=False $query=row $key=all $value=all
pnnx.Output out0   1 0 y
pnnx.Output out1   1 0 all
";

#[test]
fn a_state_stays_with_those_that_use_it() {
    let model = Model::from_graph(Graph::parse(CACHE).unwrap()).unwrap();
    let placement = Placement::new().place("append", 0).place("attend", 1);
    let options = SessionOptions::default().with_contexts(contexts(2)).with_placement(placement);
    let (two, one) = (model.session(options).unwrap(), model.session(SessionOptions::default()));
    let (mut state, mut other) = (two.state(), one.as_ref().unwrap().state());
    for states in [&mut state, &mut other] {
        states.carry("all", "past").unwrap();
    }
    for step in 0..70u8 {
        let row = Tensor::from_slice(&[f32::from(step); 4], [1, 1, 1, 4]).unwrap();
        let y = two.run_with_state(&mut state, std::slice::from_ref(&row)).unwrap();
        assert_eq!(y, one.as_ref().unwrap().run_with_state(&mut other, &[row]).unwrap());
    }
    // The plan that a state asks for.
    let zeros = |rows: usize| Tensor::zeros(DType::F32, [1, 1, rows, 4]).unwrap();
    let (new, past) = (zeros(1), zeros(3));
    let id = |name| bind::operand(&model.inner, name).unwrap();
    let growing = [Growing { input: id("past"), output: id("all"), dim: 2 }];
    let feeds = [("new", Fed::from(&new)), ("past", Fed::from(&past))];
    let plan = two.plan_fed(&feeds, Wanted::Outputs, &growing, &Limits::default()).unwrap();
    let steps = of(&plan);
    assert!(["append", "attend"].iter().all(|name| steps.contains(&((*name).to_owned(), 0))));
    let expected = [PlacementNote::KeptTogether {
        operator: "attend".into(),
        wanted: 1,
        context: 0,
        with: "append".into(),
        bond: Bond::State,
    }];
    assert_eq!(plan.placement().notes, expected);
}

/// Two memories, as two devices have: what is made in one and read in the other is copied, once.
#[test]
fn copies_are_nodes_where_memory_is_not_shared() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Reverse a 1 1 0 1
        test.Reverse b 1 1 1 2
        test.Reverse c 1 1 1 3
        test.Add d 2 1 2 3 4
        test.Reverse e 1 1 4 5
        test.Positive p 1 1 5 6
        test.Scale q 1 1 6 7 by=3.0
        pnnx.Output out 1 0 7";
    let x = vector(&[1.0, -2.0, 3.0, 4.0]);
    let expected =
        placed(lines, Vec::new(), Placement::new()).run(std::slice::from_ref(&x)).unwrap();
    let apart = || vec![Context::apart(0), Context::apart(1), Context::apart(1)];
    let wishes = Placement::new().place("a", 0).place("b", 1).place("c", 2).place("d", 1);
    let wishes = wishes.place("e", 0).place("p", 1).place("q", 0);
    let session = placed(lines, apart(), wishes.clone());
    assert_eq!(session.run(std::slice::from_ref(&x)).unwrap(), expected);
    let plan = session.plan(&[x.spec()]).unwrap();
    let steps: Vec<(String, usize)> =
        plan.steps().map(|step| (step.kernel.clone(), step.context)).collect();
    let steps: Vec<(&str, usize)> = steps.iter().map(|(k, c)| (k.as_str(), *c)).collect();
    let expected_steps = [
        ("reverse", 0),
        ("copy.0.1", 1), // for b and for c, whose context has the same memory
        ("reverse", 1),
        ("reverse", 2),
        ("add", 1),
        ("copy.1.0", 0),
        ("reverse", 0),
        ("copy.0.1", 1),
        ("positive", 1),
        ("planned while running", 0),
        ("planned while running", 0),
    ];
    assert_eq!(steps, expected_steps);
    let kinds: Vec<String> = plan.steps().map(|step| step.location.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "plutino.Copy").count(), 4);
    // With one memory there is none.
    let session = placed(lines, contexts(3), wishes);
    assert_eq!(session.run(std::slice::from_ref(&x)).unwrap(), expected);
    let plan = session.plan(&[x.spec()]).unwrap();
    assert!(!plan.steps().any(|step| step.kernel.starts_with("copy")));
}

#[test]
fn in_place_partners_stay_together_across_memories() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Reverse a 1 1 0 1
        test.Scale s 1 1 1 2 by=2.0
        test.Reverse b 1 1 2 3
        pnnx.Output out 1 0 3";
    let wishes = Placement::new().place("a", 0).place("s", 1).place("b", 1);
    let apart = placed(lines, vec![Context::apart(0), Context::apart(1)], wishes.clone());
    let apart = plan(&apart);
    let expected = [PlacementNote::KeptTogether {
        operator: "s".into(),
        wanted: 1,
        context: 0,
        with: "a".into(),
        bond: Bond::InPlace,
    }];
    assert_eq!(apart.placement().notes, expected);
    assert_eq!(numbers(&plan(&placed(lines, contexts(2), wishes))), [0, 1, 1], "nothing is copied");
}

/// Four steps of 5 ms in each of two stages.
fn slow() -> String {
    let mut lines = String::from("pnnx.Input in 0 1 0\n");
    for i in 0..8 {
        lines += &format!("test.Sleep s{i} 1 1 {i} {}\n", i + 1);
    }
    lines + "pnnx.Output out 1 0 8\n"
}

#[test]
fn runs_follow_each_other_through_the_contexts() {
    let time = |n: usize| {
        let session = placed(&slow(), contexts(n), Placement::new());
        assert_eq!(numbers(&plan(&session)).iter().filter(|c| **c == 0).count(), 8 / n);
        let queue = Queue::new(session, QueueOptions::default().with_workers(n)).unwrap();
        let x = vector(&[1.0; 64]);
        let start = Instant::now();
        let handles: Vec<_> =
            (0..8).map(|_| queue.submit(&Request::new().feed("0", &x)).unwrap()).collect();
        handles.into_iter().for_each(|handle| assert!(handle.wait().is_ok()));
        start.elapsed()
    };
    let (one, two) = (time(1), time(2));
    // 320 ms in one context; in two 20 ms for the first, and 20 ms for each of eight.
    assert!(one >= Duration::from_millis(320), "{one:?}");
    assert!(two >= Duration::from_millis(180) && two < one.mul_f64(0.8), "{two:?} of {one:?}");
}

#[test]
fn one_run_at_a_time_is_in_a_context() {
    let context = Context::of_threads(1).unwrap();
    let session = || placed(&slow(), vec![Arc::clone(&context)], Placement::new());
    let (a, b) = (session(), session());
    let x = vector(&[1.0; 4]);
    a.run(std::slice::from_ref(&x)).unwrap();
    b.run(std::slice::from_ref(&x)).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| a.run(std::slice::from_ref(&x)).unwrap());
        scope.spawn(|| b.run(std::slice::from_ref(&x)).unwrap());
    });
    assert!(start.elapsed() >= Duration::from_millis(80), "one after the other");
    // Who may not wait so long is told where it waited.
    let entered = context.enter(&Limits::default(), false, None, |_| {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let soon = Instant::now() + Duration::from_millis(10);
                a.run_with(&Request::new().feed("0", &x).deadline(soon))
            });
            run.join().unwrap().unwrap_err()
        })
    });
    match entered.unwrap() {
        SessionError::Deadline { done: 0, steps: 8, at: Some(at) } => assert_eq!(at.name, "s0"),
        other => panic!("{other}"),
    }
    a.run(&[x]).unwrap();
}

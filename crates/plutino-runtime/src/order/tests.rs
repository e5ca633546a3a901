//! What is said to come after something does, whatever passes make of it and whoever runs it.

use crate::extract;
use crate::testkit::{graph, model, notes, values, vector};
use crate::{
    Context, Dispatch, Model, ModelOptions, Partition, PartitionError, Placement, Program, Request,
    SessionError, SessionOptions, Sorting,
};
use plutino_ir::Graph;

/// Every way to run something.
fn ways() -> Vec<SessionOptions> {
    let mut ways = Vec::new();
    for threads in [1, 2, 3] {
        for dispatch in Dispatch::ALL {
            let way = SessionOptions::default().with_threads(threads).with_dispatch(dispatch);
            ways.push(way.clone());
            ways.push(way.clone().without_passes());
            ways.push(SessionOptions { sorting: Sorting::Kahn, ..way });
        }
    }
    let contexts = || [Context::of_threads(1).unwrap(), Context::of_threads(2).unwrap()];
    let placement = Placement::new().place("slow", 1).place("fast", 0);
    ways.push(SessionOptions::default().with_contexts(contexts()).with_placement(placement));
    ways.push(SessionOptions::default().with_contexts([Context::apart(0), Context::apart(1)]));
    ways
}

fn run(model: &Model, options: SessionOptions, x: &[f32]) -> Vec<Vec<f32>> {
    let session = model.session(options).unwrap();
    session.run(&[vector(x)]).unwrap().iter().map(values).collect()
}

#[test]
fn one_comes_after_the_other_in_every_way_to_run() {
    let model = model(
        "
        pnnx.Input in 0 1 x
        test.Note fast 1 1 x a log=ways ^slow=after
        test.Note slow 1 1 x b log=ways
        test.Note slow2 1 0 x log=ways ^fast=after
        test.Add sum 2 1 a b y
        pnnx.Output out 1 0 y ^slow2=after",
    );
    for way in ways() {
        assert_eq!(run(&model, way, &[1.0, 2.0]), [[2.0, 4.0]]);
        assert_eq!(notes("ways"), ["slow", "fast", "slow2"]);
    }
    let session = model.session(SessionOptions::default()).unwrap();
    let plan = session.plan(&[vector(&[1.0]).spec()]).unwrap();
    let after: Vec<_> = plan.steps().map(|step| (step.location.name, step.after)).collect();
    let expected =
        [("slow", vec![]), ("fast", vec!["slow"]), ("slow2", vec!["fast"]), ("sum", vec![])];
    let owned = |(name, after): (&str, Vec<&str>)| {
        (name.to_owned(), after.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let mut expected: Vec<_> = expected.map(owned).to_vec();
    let mut found = after;
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn without_an_order_both_run_at_the_same_time() {
    // What the test above would not notice if threads never ran both.
    let model = model(
        "
        pnnx.Input in 0 1 x
        test.Note slow 1 1 x a log=free
        test.Note fast 1 1 x b log=free
        test.Add sum 2 1 a b y
        pnnx.Output out 1 0 y",
    );
    let way = SessionOptions::default().with_threads(2).with_dispatch(Dispatch::Together);
    run(&model, way, &[1.0]);
    assert_eq!(notes("free"), ["fast", "slow"]);
}

#[test]
fn a_run_needs_what_its_results_come_after() {
    let model = model(
        "
        pnnx.Input in 0 1 x
        pnnx.Input other 0 1 z
        test.Note first 1 1 x a log=need
        test.Note second 1 0 z log=need ^first=after
        test.Note third 1 1 x b log=need ^second=after
        test.Note never 1 1 x c log=need
        test.Scale y 1 1 x y by=2 ^third=after
        test.Scale w 1 1 x w by=3
        pnnx.Output out 2 0 y w",
    );
    let session = model.session(SessionOptions::default()).unwrap();
    let (x, z) = (vector(&[1.0]), vector(&[5.0]));
    session.run(&[x.clone(), z.clone()]).unwrap();
    assert_eq!(notes("need"), ["first", "second", "third"]);
    let get = |request: Request<'_>| session.run_with(&request);
    get(Request::new().feed("x", &x).fetch("w")).unwrap();
    assert_eq!(notes("need"), [""; 0]);
    get(Request::new().feed("x", &x).feed("z", &z).fetch("y")).unwrap();
    assert_eq!(notes("need"), ["first", "second", "third"]);
    // What is fed is there, and so is what it came after: but that was all it came after.
    get(Request::new().feed("x", &x).feed("z", &z).feed("b", &x).fetch("y")).unwrap();
    assert_eq!(notes("need"), ["first", "second"]);
    let error = get(Request::new().feed("x", &x).fetch("y")).unwrap_err();
    let SessionError::NotFed { fetch, missing, .. } = &error else { panic!("{error}") };
    assert_eq!((fetch.as_str(), &missing[..]), ("z", &["z".to_owned()][..]));
    // What cannot run and is not needed is no matter.
    get(Request::new().feed("x", &x).fetch("c")).unwrap();
    assert_eq!(notes("need"), ["never"]);
    get(Request::new().feed("x", &x).feed("z", &z).fetch_all()).unwrap();
    assert_eq!(notes("need").len(), 4);
}

#[test]
fn effects_happen_in_each_run_and_never_while_planning() {
    let model = model(
        "
        pnnx.Input in 0 1 x
        test.Constant k 0 1 k
        test.Note slow 1 1 k a log=each
        test.Note empty 1 1 e0 e1 log=each ^slow=after
        test.Positive p 1 1 n e0
        test.Scale n 1 1 x n by=-1
        test.Note pure 1 1 k b log=each effects=False
        test.Add sum 2 1 a b y
        pnnx.Output out 1 0 y ^empty=after",
    );
    for way in ways() {
        let session = model.session(way).unwrap();
        let plan = session.plan(&[vector(&[1.0, 1.0]).spec()]).unwrap();
        let planned = notes("each");
        assert!(planned.iter().all(|name| name == "pure"), "{planned:?}");
        for _ in 0..2 {
            let y = session.run(&[vector(&[1.0, 1.0])]).unwrap();
            assert_eq!(values(&y[0]), [20.0, 40.0]);
            let mut seen = notes("each");
            seen.retain(|name| name != "pure");
            assert_eq!(seen, ["slow", "empty"], "{plan:?}");
        }
    }
}

#[test]
fn passes_keep_the_order_of_what_they_replace() {
    let lines = |a: &str, b: &str, c: &str| {
        format!(
            "
            pnnx.Input in 0 1 x
            test.Note slow 1 1 x s log=passes
            test.Scale a 1 1 x a by=2 {a}
            test.Relu b 1 1 a b {b}
            test.Note fast 1 1 x f log=passes {c}
            test.Add sum 2 1 s f t
            test.Add y 2 1 t b y
            pnnx.Output out 1 0 y"
        )
    };
    let absorbed = |text: &str| {
        let session = model(text).session(SessionOptions::default()).unwrap();
        let plan = session.plan(&[vector(&[1.0]).spec()]).unwrap();
        plan.steps().any(|step| {
            step.absorbed.contains(&"b".to_owned()) || step.absorbed.contains(&"a".to_owned())
        })
    };
    // Two that become one come after slow, and fast comes after them.
    let joined = lines("", "^slow=after", "^a=after ^b=after");
    let apart = lines("^slow=after", "", "^b=after");
    // What comes between them keeps them apart.
    let between = lines("^slow=after", "^fast=after", "^a=after");
    for (text, joins) in [(&joined, true), (&apart, true), (&between, false)] {
        assert_eq!(absorbed(text), joins, "{text}");
        for way in ways() {
            assert_eq!(run(&model(text), way, &[1.0, -1.0]), [[4.0, -2.0]]);
            assert_eq!(notes("passes"), ["slow", "fast"], "{text}");
        }
    }
}

#[test]
fn what_goes_hands_on_its_order() {
    let model = model(
        "
        pnnx.Input in 0 1 x
        test.Note slow 1 1 x s log=gone
        nn.Identity same 1 1 x i ^slow=after
        test.Note fast 1 1 i f log=gone
        nn.Identity other 1 1 f o
        test.Note slow2 1 1 x t log=gone ^other=after
        test.Add y 2 1 t s y
        pnnx.Output out 1 0 y",
    );
    for way in ways() {
        assert_eq!(run(&model, way, &[1.0]), [[2.0]]);
        assert_eq!(notes("gone"), ["slow", "fast", "slow2"]);
    }
    let optimized = model.optimized().unwrap();
    assert_eq!(optimized.identities, ["other"]);
    let model = Model::from_graph(optimized.graph).unwrap();
    for way in ways() {
        run(&model, way, &[1.0]);
        assert_eq!(notes("gone"), ["slow", "fast", "slow2"]);
    }
}

#[test]
fn parts_have_what_theirs_come_after() {
    let lines = |place: &str| {
        format!(
            "
            pnnx.Input in 0 1 x
            test.Note slow 1 1 x s log={place}
            test.Note fast 1 1 s f log={place} ^aside=after
            test.Note aside 1 0 x log={place}
            test.Scale z 1 1 f z by=2
            pnnx.Output out 1 0 z ^last=after
            test.Note last 1 0 s log={place}"
        )
    };
    let whole = graph(&lines("part"));
    let part = extract(&whole, &[], &["f"]).unwrap();
    let names: Vec<_> = part.operators().map(|(_, op)| op.name.as_str()).collect();
    assert_eq!(names, ["in", "slow", "fast", "aside", "pnnx_output_0"]);
    let name = |id: plutino_ir::OperatorId| part[id].name.as_str();
    let controls: Vec<_> = part.controls().map(|(a, b)| (name(a), name(b))).collect();
    assert_eq!(controls, [("aside", "fast")]);
    assert!(extract(&whole, &["s"], &["f"]).is_err(), "aside needs x");
    assert_eq!(extract(&whole, &["s", "x"], &["f"]).unwrap().controls().count(), 1);
    assert_eq!(extract(&whole, &["f"], &["z"]).unwrap().controls().count(), 0);

    // Parts of two contexts: the order holds where one takes something of the other.
    let cut = |placement: Placement| {
        let contexts = [Context::of_threads(1).unwrap(), Context::of_threads(1).unwrap()];
        let options = SessionOptions::default().with_contexts(contexts).with_placement(placement);
        let model = model(&lines("cut"));
        let plan = model.session(options).unwrap().plan(&[vector(&[1.0]).spec()]).unwrap();
        Partition::of(&model, &plan)
    };
    let at = |fast: usize, aside: usize| {
        let first = Placement::new().place("slow", 0).place("fast", fast).place("z", 1);
        first.place("aside", aside).place("last", 0)
    };
    let partition = cut(at(1, 0)).unwrap();
    let controls = |part: usize| {
        let graph = &partition.parts()[part].graph;
        let name = |id: plutino_ir::OperatorId| graph[id].name.clone();
        graph.controls().map(|(a, b)| [name(a), name(b)]).collect::<Vec<_>>()
    };
    let out = "pnnx_output_0".to_owned();
    assert_eq!(controls(0), [["aside".to_owned(), out.clone()], ["last".to_owned(), out]]);
    assert_eq!(controls(1), [[""; 2]; 0]);
    match cut(at(0, 1)).unwrap_err() {
        PartitionError::Order { earlier, later, .. } => {
            assert_eq!((earlier.as_str(), later.as_str()), ("aside", "fast"));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn programs_and_definitions_and_bodies_have_an_order() {
    let body = "
        pnnx.Input in 0 1 x
        test.Note fast 1 1 x y log=bodies ^slow=after
        test.Note slow 1 0 x log=bodies
        pnnx.Output out 1 0 y";
    let mut program = Program::new();
    program.define("Body", graph(body));
    let x = program.input("x").unwrap();
    let called = program.call("called", "Body", &[x], 1).unwrap();
    let looped = program.repeat("loop", None, ("Body", 2), &called, &[]).unwrap();
    program.call("after", "Body", &[x], 1).unwrap();
    program.output(&looped).unwrap();
    program.order("loop", "after").unwrap();
    program.keep("after").unwrap();
    let error = program.order("x", "after").unwrap_err().to_string();
    assert!(error.contains("pnnx_input_x"), "{error}");
    let folder = std::env::temp_dir().join(format!("plutino-order-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    program.save(folder.join("p")).unwrap();
    let saved = Program::load(folder.join("p")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(saved.graph(), program.graph());
    let model = saved.model().unwrap();
    for way in ways() {
        assert_eq!(run(&model, way, &[3.0]), [[3.0]]);
        let all = [
            "called.slow",
            "called.fast",
            "slow",
            "fast",
            "slow",
            "fast",
            "after.slow",
            "after.fast",
        ];
        assert_eq!(notes("bodies"), all);
    }
}

#[test]
fn the_order_of_a_state_holds_from_run_to_run() {
    let model = model(
        "
        pnnx.Input in 0 1 x
        pnnx.Input h 0 1 h #h=(1)f32
        test.Note slow 1 1 h s log=state
        test.Add next 2 1 x s n #n=(1)f32 ^fast=after
        test.Note fast 1 0 h log=state ^slow=after
        test.Scale y 1 1 h y by=10
        pnnx.Output out 2 0 y n ^fast=after",
    );
    let session = model.session(SessionOptions::default().with_threads(2)).unwrap();
    let mut state = session.state();
    state.carry("n", "h").unwrap();
    for expected in [0.0, 10.0, 20.0] {
        let y = session.run_with_state(&mut state, &[vector(&[1.0])]).unwrap();
        assert_eq!(values(&y[0]), [expected]);
        assert_eq!(notes("state"), ["slow", "fast"]);
    }
}

#[test]
fn an_order_may_go_through_what_takes_no_time() {
    // A constant, a view and a shape lie between those that are to come one after the other.
    let text = "
        pnnx.Input in 0 1 x
        test.Note slow 1 1 x s log=idle
        test.SizeOf size 1 1 x n ^slow=after
        test.View view 1 1 x v ^size=after
        test.Constant k 0 1 k ^view=after
        test.Note fast 1 1 x f log=idle ^k=after
        test.Add sum 2 1 s f y
        pnnx.Output out 1 0 y";
    let model = Model::from_graph_with(graph(text), ModelOptions::default()).unwrap();
    for way in ways() {
        assert_eq!(run(&model, way, &[1.0, 2.0]), [[2.0, 4.0]]);
        assert_eq!(notes("idle"), ["slow", "fast"]);
    }
    let text = model.graph().to_param_string().unwrap();
    assert_eq!(Graph::parse(&text).unwrap(), *model.graph());
}

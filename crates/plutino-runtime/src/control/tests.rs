//! Control flow: what is computed, what is planned, and what is refused.

use crate::testkit::vector;
use crate::{Model, ModelError, ModelOptions, Request, Session, SessionError, SessionOptions};
use plutino_ir::{DefineProblem, Graph};
use plutino_tensor::{DType, Tensor};
use std::time::{Duration, Instant};

fn graph(lines: &str) -> Graph {
    let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut operands = std::collections::BTreeSet::new();
    for line in &lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = |at: usize| words[at].parse::<usize>().unwrap();
        operands.extend(words[4 + count(2)..][..count(3)].iter().copied());
    }
    let text = format!("7767517\n{} {}\n{}\n", lines.len(), operands.len(), lines.join("\n"));
    Graph::parse(&text).unwrap()
}

fn options(definitions: &[(&str, &str)]) -> ModelOptions {
    definitions
        .iter()
        .fold(ModelOptions::default(), |options, (kind, lines)| options.define(*kind, graph(lines)))
}

fn model(lines: &str, definitions: &[(&str, &str)]) -> Result<Model, ModelError> {
    Model::from_graph_with(graph(lines), options(definitions))
}

fn session(lines: &str, definitions: &[(&str, &str)]) -> Session {
    let options = SessionOptions::default().with_threads(2);
    model(lines, definitions).unwrap().session(options).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.as_slice::<f32>().unwrap().to_vec()
}

const TWICE: &str = "
    pnnx.Input in 0 1 x
    pnnx.Expression e 1 1 x y expr=mul(@0,2)
    pnnx.Output out 1 0 y";

const MINUS: &str = "
    pnnx.Input in 0 1 x
    pnnx.Expression e 1 1 x y expr=neg(@0)
    pnnx.Output out 1 0 y";

const IF: &str = "
    pnnx.Input c 0 1 c
    pnnx.Input x 0 1 x
    plutino.If choice 2 1 c x y then=Twice else=Minus
    pnnx.Expression e 1 1 y z expr=add(@0,1)
    pnnx.Output out 1 0 z";

#[test]
fn the_branch_that_is_taken_runs_and_no_other() {
    let session = session(IF, &[("Twice", TWICE), ("Minus", MINUS)]);
    let x = vector(&[1.0, -2.0]);
    for (c, expected) in [
        (Tensor::scalar(true).unwrap(), [3.0, -3.0]),
        (Tensor::scalar(false).unwrap(), [0.0, 3.0]),
        (Tensor::scalar(-0.0f32).unwrap(), [0.0, 3.0]),
        (Tensor::scalar(256i64).unwrap(), [3.0, -3.0]),
    ] {
        let (outputs, profile) = session.profile(&[c, x.clone()]).unwrap();
        assert_eq!(values(&outputs[0]), expected);
        let parts: Vec<_> = profile.frames.iter().map(|f| (f.part, f.kind.as_str())).collect();
        let taken = if expected[0] == 3.0 { ("then", "Twice") } else { ("else", "Minus") };
        assert_eq!(parts, [taken]);
        assert_eq!(profile.frames[0].steps.len(), profile.frames[0].plan.steps().len());
        // Shapes agree, so that what follows is planned.
        assert!(profile.plan.steps().all(|s| s.kernel != "planned while running"));
    }
}

#[test]
fn passes_leave_operators_of_bodies_alone_by_name() {
    let inner = TWICE.replace(" e 1 1", " doubled 1 1");
    let model = model(IF, &[("Twice", &inner), ("Minus", MINUS)]).unwrap();
    let with = |off: &str| model.session(SessionOptions::default().without_pass(off)).map(|_| ());
    for known in ["fuse", "fuse@choice", "fuse@doubled", "fuse@doubled/step"] {
        with(known).unwrap();
    }
    let unknown = with("fuse@doublet").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "passes_off fuse@doublet: the model has no operator of this name; the most similar one is \
         'doubled'"
    );
    assert!(matches!(with("fuse@x1"), Err(SessionError::NoSuchOperator { .. })));
}

#[test]
fn branches_of_other_shapes_make_shapes_that_depend_on_data() {
    let head = "
        pnnx.Input in 0 1 x
        Tensor.slice s 1 1 x y dim=0 start=0 end=1 step=1 $input=x
        pnnx.Output out 1 0 y";
    let session = session(IF, &[("Twice", TWICE), ("Minus", head)]);
    let x = vector(&[1.0, -2.0]);
    let run = |c: bool| values(&session.run(&[Tensor::scalar(c).unwrap(), x.clone()]).unwrap()[0]);
    assert_eq!(run(true), [3.0, -3.0]);
    assert_eq!(run(false), [2.0]);
}

const BELOW: &str = "
    pnnx.Input a 0 1 n
    pnnx.Input b 0 1 x
    pnnx.Input l 0 1 limit
    torch.lt e 2 1 n limit c $input=n $other=limit
    pnnx.Output out 1 0 c";

const NEXT: &str = "
    pnnx.Input a 0 1 n
    pnnx.Input b 0 1 x
    pnnx.Input l 0 1 limit
    pnnx.Expression e 1 1 n m expr=add(@0,1.0)
    pnnx.Expression f 2 1 x n y expr=add(@0,@1)
    pnnx.Output out 2 0 m y";

const WHILE: &str = "
    pnnx.Input a 0 1 n
    pnnx.Input b 0 1 x
    pnnx.Input l 0 1 limit
    plutino.While loop 3 2 n x limit m y cond=Below body=Next
    pnnx.Output out 2 0 m y";

#[test]
fn loops_run_as_long_as_their_condition_holds() {
    let session = session(WHILE, &[("Below", BELOW), ("Next", NEXT)]);
    let (n, x) = (vector(&[0.0]), vector(&[1.0, 10.0]));
    for (limit, m, y) in
        [(0.0, 0.0, [1.0, 10.0]), (1.0, 1.0, [1.0, 10.0]), (5.0, 5.0, [11.0, 20.0])]
    {
        let inputs = [n.clone(), x.clone(), vector(&[limit])];
        let (outputs, profile) = session.profile(&inputs).unwrap();
        assert_eq!((values(&outputs[0]), values(&outputs[1])), (vec![m], y.to_vec()));
        let trips = profile.frames.iter().filter(|f| f.part == "body").count();
        assert_eq!(trips, m as usize);
        assert_eq!(
            profile.frames.len(),
            2 * trips + 1,
            "a condition before each trip, and the last"
        );
        assert!(profile.frames.iter().all(|f| f.step == 0 && f.duration <= profile.total));
        let plans: Vec<_> = profile.frames.iter().filter(|f| f.part == "body").collect();
        let first = plans.first().map(|f| std::sync::Arc::as_ptr(&f.plan));
        assert!(plans.iter().all(|f| Some(std::sync::Arc::as_ptr(&f.plan)) == first), "one plan");
    }
}

#[test]
fn trips_may_be_limited_and_state_may_grow() {
    let grow = "
        pnnx.Input in 0 1 x
        torch.cat c 2 1 x x y dim=0
        pnnx.Output out 1 0 y";
    let lines = "
        pnnx.Input in 0 1 x
        plutino.While loop 1 1 x y body=Grow max=5
        pnnx.Expression e 1 1 y z expr=mul(@0,2)
        pnnx.Output out 1 0 z";
    let session = session(lines, &[("Grow", grow)]);
    assert_eq!(values(&session.run(&[vector(&[1.5])]).unwrap()[0]), [3.0; 32]);
}

#[test]
fn what_trips_need_is_within_the_budget_however_many_there_are() {
    let lines = "
        pnnx.Input in 0 1 x
        plutino.While loop 1 1 x y body=Twice max=200
        pnnx.Output out 1 0 y";
    let made = model(lines, &[("Twice", TWICE)]).unwrap();
    let x = Tensor::zeros(DType::F32, [1 << 14]).unwrap();
    let plan = made.session(SessionOptions::default()).unwrap().plan(&[x.spec()]).unwrap();
    // Two buffers of state take turns.
    let budget = plan.memory().total() + 4 * (4 << 14);
    let session = made.session(SessionOptions::default().with_memory_budget(budget)).unwrap();
    assert!(session.run(std::slice::from_ref(&x)).is_ok());
    let few = SessionOptions::default().with_memory_budget(100_000);
    let error = made.session(few).unwrap().run(&[x]).unwrap_err();
    assert!(error.is_limit(), "{error}");
}

#[test]
fn loops_without_end_are_ended_by_deadline_and_cancellation() {
    let always = "
        pnnx.Input in 0 1 x
        torch.ge e 1 1 x c other=-1.0 $input=x
        pnnx.Output out 1 0 c";
    let lines = "
        pnnx.Input in 0 1 x
        plutino.While loop 1 1 x y cond=Always body=Twice
        pnnx.Output out 1 0 y";
    let session = session(lines, &[("Twice", TWICE), ("Always", always)]);
    let x = vector(&[0.0]);
    let deadline = Instant::now() + Duration::from_millis(50);
    let error = session.run_with(&Request::new().feed("x", &x).deadline(deadline)).unwrap_err();
    assert!(matches!(error, SessionError::Deadline { .. }), "{error}");
    let token = crate::CancelToken::new();
    let error = std::thread::scope(|scope| {
        let token = &token;
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            token.cancel();
        });
        session.run_with(&Request::new().feed("x", &x).cancel(token)).unwrap_err()
    });
    assert!(matches!(error, SessionError::Cancelled { .. }), "{error}");
}

const SUM: &str = "
    pnnx.Input a 0 1 s
    pnnx.Input b 0 1 x
    pnnx.Input c 0 1 w
    pnnx.Expression e 3 1 s x w t expr=add(@0,mul(@1,@2))
    pnnx.Expression f 1 1 t y expr=mul(@0,10.0)
    pnnx.Output out 3 0 t y t";

#[test]
fn scans_stack_what_trips_make() {
    let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]).unwrap();
    let (s, w) = (vector(&[0.5, 0.0]), vector(&[1.0, 2.0]));
    let lines = |options: &str| {
        format!(
            "pnnx.Input a 0 1 s
             pnnx.Input b 0 1 x
             pnnx.Input c 0 1 w
             plutino.Scan scan 3 3 s x w t y l body=Sum carried=1 last=1 {options}
             pnnx.Output out 3 0 t y l"
        )
    };
    let run = |options: &str, x: &Tensor| {
        let outputs = session(&lines(options), &[("Sum", SUM)]);
        outputs.run(&[s.clone(), x.clone(), w.clone()]).unwrap()
    };
    let outputs = run("", &x);
    assert_eq!(values(&outputs[0]), [9.5, 24.0]);
    assert_eq!(outputs[1].shape().to_string(), "(3,2)");
    assert_eq!(values(&outputs[1]), [15.0, 40.0, 45.0, 120.0, 95.0, 240.0]);
    assert_eq!(values(&outputs[2]), [9.5, 24.0]);
    let outputs = run("reverse=True", &x);
    assert_eq!(values(&outputs[1]), [95.0, 240.0, 85.0, 200.0, 55.0, 120.0]);
    // Along the last dimension.
    let across = x.view().transpose(0, 1).unwrap().to_tensor().unwrap();
    let outputs = run("axis=-1", &across);
    assert_eq!(values(&outputs[1]), [15.0, 40.0, 45.0, 120.0, 95.0, 240.0]);
    // Of nothing.
    let none = Tensor::zeros(DType::F32, [0, 2]).unwrap();
    let lines = lines("").replace("last=1", "");
    let outputs = session(&lines, &[("Sum", SUM)]).run(&[s.clone(), none, w.clone()]).unwrap();
    assert_eq!(
        (values(&outputs[0]), outputs[1].shape().to_string()),
        (vec![0.5, 0.0], "(0,2)".into())
    );
}

#[test]
fn control_flow_nests() {
    // For each row: doubled until it exceeds 100, or negated where it is negative.
    let large = "
        pnnx.Input in 0 1 x
        torch.lt e 1 1 x c other=100.0 $input=x
        pnnx.Output out 1 0 c";
    let grow = "
        pnnx.Input in 0 1 x
        plutino.While w 1 1 x y cond=Below body=Twice
        pnnx.Output out 1 0 y";
    let each = "
        pnnx.Input in 0 1 x
        torch.lt e 1 1 x c other=0.0 $input=x
        plutino.If i 2 1 c x y then=Minus else=Grow
        pnnx.Output out 1 0 y";
    let lines = "
        pnnx.Input in 0 1 x
        plutino.Scan s 1 1 x y body=Each
        pnnx.Output out 1 0 y";
    let definitions =
        [("Below", large), ("Twice", TWICE), ("Minus", MINUS), ("Grow", grow), ("Each", each)];
    let session = session(lines, &definitions);
    let x = Tensor::from_slice(&[3f32, -7.0, 90.0], [3, 1]).unwrap();
    let (outputs, profile) = session.profile(&[x]).unwrap();
    assert_eq!(values(&outputs[0]), [192.0, 7.0, 180.0]);
    let first = &profile.frames[0];
    assert_eq!((first.kind.as_str(), first.frames[0].part), ("Each", "else"));
    assert_eq!(first.frames[0].frames.iter().filter(|f| f.part == "body").count(), 6);
}

#[test]
fn profiles_of_long_loops_stay_small_and_constants_are_no_loops() {
    let lines = "
        pnnx.Input in 0 1 x
        plutino.While w 1 1 x y body=Inner max=100
        pnnx.Output out 1 0 y";
    let inner = "
        pnnx.Input in 0 1 x
        plutino.While w 1 1 x y body=Minus max=100
        pnnx.Output out 1 0 y";
    let session = session(lines, &[("Inner", inner), ("Minus", MINUS)]);
    let (outputs, profile) = session.profile(&[vector(&[2.0])]).unwrap();
    assert_eq!(values(&outputs[0]), [2.0]);
    let kept: usize = profile.frames.iter().map(|f| 1 + f.frames.len()).sum();
    assert_eq!((kept, profile.frames_left_out), (4096, 100 * 101 - 4096));
    // Neither planning nor inference runs a loop, though all that it takes is known.
    let always = "
        pnnx.Input in 0 1 x
        torch.eq e 1 1 x c other=1.0 $input=x
        pnnx.Output out 1 0 c";
    let same = "
        pnnx.Input in 0 1 x
        pnnx.Expression e 1 1 x y expr=mul(@0,1)
        pnnx.Output out 1 0 y";
    let lines = "
        torch.ones one 0 1 x size=(1)
        plutino.While w 1 1 x y cond=Always body=Same
        pnnx.Output out 1 0 y";
    let model = model(lines, &[("Always", always), ("Same", same)]).unwrap();
    assert!(model.inference().failures.is_empty());
    let session = model.session(SessionOptions::default()).unwrap();
    session.plan(&[]).unwrap();
    let soon = Instant::now() + Duration::from_millis(20);
    let error = session.run_with(&Request::new().deadline(soon)).unwrap_err();
    assert!(matches!(error, SessionError::Deadline { .. }), "{error}");
}

#[test]
fn errors_name_the_operator_the_body_and_the_trip() {
    let pick = "
        pnnx.Input a 0 1 n
        pnnx.Input b 0 1 x
        torch.gather g 2 1 x n y dim=0
        pnnx.Expression e 1 1 n m expr=add(@0,1)
        pnnx.Output out 2 0 m y";
    let lines = "
        pnnx.Input a 0 1 n
        pnnx.Input b 0 1 x
        plutino.While loop 2 2 n x m y body=Pick max=9";
    let lines = format!("{lines}\npnnx.Output out 2 0 m y");
    let session = session(&lines, &[("Pick", pick)]);
    let n = Tensor::from_slice(&[0i64], [1]).unwrap();
    let error = session.run(&[n, vector(&[1.0])]).unwrap_err();
    let SessionError::Inside { location, part, error } = &error else { panic!("{error}") };
    assert_eq!((location.name.as_str(), part.as_str()), ("loop", "body=Pick, trip 1"));
    assert!(
        matches!(&**error, SessionError::Run { location, .. } if location.name == "g"),
        "{error}"
    );
    assert!(error.to_string().contains("<definition>:5: torch.gather 'g'"), "{error}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |line: &str, definitions: &[(&str, &str)]| {
        let lines =
            format!("pnnx.Input in 0 1 x\npnnx.Input c 0 1 c\n{line}\npnnx.Output out 1 0 y");
        model(&lines, definitions).unwrap_err()
    };
    let both = [("Twice", TWICE), ("Minus", MINUS)];
    let error = refused("plutino.If i 2 1 c x y then=Twice else=Other", &both).to_string();
    assert!(error.contains("parameter 'else' must be a type that is defined"), "{error}");
    // All that are missing, at once: of one operator, of others, in bodies.
    let outer = "
        pnnx.Input in 0 1 x
        plutino.While w 1 1 x y body=Deep max=2
        pnnx.Output out 1 0 y";
    let error = refused(
        "plutino.If i 2 1 c x z then=This else=Outer\nplutino.If j 2 1 c z y then=That else=Other",
        &[("Outer", outer)],
    );
    let ModelError::Operators(list) = &error else { panic!("{error}") };
    let text = list.to_string();
    for kind in ["This", "That", "Other", "Deep"] {
        assert!(text.contains(&format!("found {kind}")) || text.contains(kind), "{kind}: {text}");
    }
    let error = refused("plutino.If i 2 1 c x y then=Twice", &both).to_string();
    assert!(error.contains("parameter 'else' is missing"), "{error}");
    let error = refused("plutino.If i 3 1 c x x y then=Twice else=Minus", &both);
    let inputs = DefineProblem::Inputs { expected: vec!["x".into()], found: 2 };
    assert!(matches!(&error, ModelError::Define(e) if e.problem == inputs), "{error}");
    let error = refused("plutino.While w 1 1 x y body=Twice", &both).to_string();
    assert!(error.contains("parameter 'cond' is missing"), "{error}");
    let error = refused("plutino.Scan s 1 1 x y body=Twice scanned=2", &both).to_string();
    assert!(error.contains("there are 1 inputs"), "{error}");
    let error = refused("plutino.Scan s 1 1 x y body=Twice last=1", &both).to_string();
    assert!(error.contains("parameter 'last'"), "{error}");
    let own = "
        pnnx.Input in 0 1 x
        plutino.While w 1 1 x y body=Own max=3
        pnnx.Output out 1 0 y";
    let error = refused("plutino.While w 1 1 x y body=Own max=3", &[("Own", own)]);
    let chain = DefineProblem::Recursive(vec!["Own".into(), "Own".into()]);
    assert!(matches!(&error, ModelError::Define(e) if e.problem == chain), "{error}");
}

#[test]
fn bodies_of_bodies_cost_what_they_are_and_not_more() {
    // Each names the next one twice: 2^14 of the innermost, if each was another.
    let mut definitions = vec![("D14".to_owned(), TWICE.to_owned())];
    for n in 0..14 {
        let next = n + 1;
        let lines = format!(
            "pnnx.Input in 0 1 x
             torch.lt e 1 1 x c other=0.0 $input=x
             plutino.If i 2 1 c x y then=D{next} else=D{next}
             pnnx.Output out 1 0 y"
        );
        definitions.push((format!("D{n}"), lines));
    }
    let definitions: Vec<(&str, &str)> =
        definitions.iter().map(|(kind, lines)| (kind.as_str(), lines.as_str())).collect();
    let lines = "
        pnnx.Input in 0 1 x
        plutino.While w 1 1 x y body=D0 max=2
        pnnx.Output out 1 0 y";
    let begin = Instant::now();
    let session = session(lines, &definitions);
    assert_eq!(values(&session.run(&[vector(&[1.0])]).unwrap()[0]), [4.0]);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn all_that_bodies_lack_is_listed_with_the_rest() {
    let lines = |kind: &str| {
        format!(
            "pnnx.Input in 0 1 x\nno.{kind} n 1 1 x y\nno.Both b 1 1 y z\npnnx.Output out 1 0 z"
        )
    };
    let text = "
        pnnx.Input c 0 1 c
        pnnx.Input x 0 1 x
        no.Main m 1 1 x y
        plutino.If choice 2 1 c y z then=Then else=Else
        plutino.If again 2 1 c z w then=Then else=Deep
        nn.Softmax s 1 1 w v dim=none
        pnnx.Output out 1 0 v";
    let deep = "
        pnnx.Input in 0 1 x
        plutino.While w 1 1 x y body=Else max=2
        no.Deep d 1 1 y z
        pnnx.Output out 1 0 z";
    let (then, otherwise) = (lines("Then"), lines("Else"));
    let error = model(text, &[("Then", &then), ("Else", &otherwise), ("Deep", deep)]).unwrap_err();
    let ModelError::Operators(list) = error else { panic!("{error}") };
    let mut found: Vec<_> = list.kinds.iter().map(|k| (k.kind.as_str(), k.count)).collect();
    found.sort_unstable();
    let expected = [("no.Both", 2), ("no.Deep", 1), ("no.Else", 1), ("no.Main", 1), ("no.Then", 1)];
    assert_eq!(found, expected);
    assert_eq!(list.nodes.len(), 1, "the parameter of the softmax");
}

#[test]
fn bodies_and_their_plans_are_told() {
    let outer = "
        pnnx.Input in 0 1 x
        plutino.While w 1 1 x y body=Twice max=2
        pnnx.Output out 1 0 y";
    let session = session(
        IF,
        &[("Twice", outer.replace("Twice", "Once").as_str()), ("Once", TWICE), ("Minus", MINUS)],
    );
    let bodies = session.model().bodies();
    let told: Vec<_> =
        bodies.iter().map(|b| (b.operator.name.as_str(), b.part, b.kind.as_str())).collect();
    assert_eq!(
        told,
        [("choice", "then", "Twice"), ("w", "body", "Once"), ("choice", "else", "Minus")]
    );
    assert!(bodies[1].graph().operator_by_name("e").is_some());
    assert!(bodies[0].is_same(&bodies[0]) && !bodies[0].is_same(&bodies[1]));
    assert!(bodies.iter().all(|body| session.body_plans(body).is_empty()));
    let specs = [Tensor::scalar(true).unwrap().spec(), vector(&[1.0, 2.0]).spec()];
    session.plan(&specs).unwrap();
    for body in &bodies {
        let plans = session.body_plans(body);
        assert_eq!(plans.len(), 1, "{body:?}");
        assert_eq!(plans[0].steps().len(), 1);
    }
}

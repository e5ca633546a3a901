//! Definitions in their places, and what is refused.

use super::{DefineProblem, Definitions};
use crate::attribute::Attribute;
use crate::graph::Graph;
use crate::limits::Limits;
use crate::sizes::{SizeLimit, SizeLimits};

fn parse(lines: &[&str]) -> Graph {
    let mut operands = std::collections::BTreeSet::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = |at: usize| words[at].parse::<usize>().unwrap();
        operands.extend(words[4 + count(2)..][..count(3)].iter().copied());
    }
    let text = format!("7767517\n{} {}\n{}\n", lines.len(), operands.len(), lines.join("\n"));
    Graph::parse(&text).unwrap()
}

fn inlined(graph: &Graph, definitions: &Definitions) -> Result<Graph, DefineProblem> {
    let mut graph = graph.clone();
    let (sizes, limits) = (SizeLimits::default(), Limits::default());
    graph.inline("main.param", definitions, &sizes, &limits, None).map_err(|e| e.problem)?;
    graph.validate().unwrap();
    Ok(graph)
}

fn of(pairs: &[(&str, Graph)]) -> Definitions {
    let mut definitions = Definitions::new();
    pairs.iter().for_each(|(kind, graph)| definitions.define(*kind, graph.clone()));
    definitions
}

fn names(graph: &Graph) -> Vec<String> {
    graph.operators().map(|(_, op)| op.name.clone()).collect()
}

const MAIN: [&str; 4] = [
    "pnnx.Input in 0 1 x #x=(2,3)f32",
    "m.Block a 1 1 x y @fc.weight=(3,3)f32",
    "m.Block b 1 1 y z @fc.weight=(3,3)f32",
    "pnnx.Output out 1 0 z",
];

const BLOCK: [&str; 4] = [
    "pnnx.Input in 0 1 0 #0=(2,3)f32",
    "nn.Linear fc 1 1 0 1 bias=False in_features=3 out_features=3 @weight=(3,3)f32 #1=(2,3)f32",
    "nn.ReLU act 1 1 1 2 #2=(2,3)f32",
    "pnnx.Output out 1 0 2",
];

#[test]
fn names_are_scoped_and_weights_are_the_nodes() {
    let mut main = parse(&MAIN);
    for (name, value) in [("a", 1f32), ("b", 2.0)] {
        let id = main.operator_by_name(name).unwrap();
        let weight = Attribute::from_elements([3, 3], &[value; 9]).unwrap();
        main.attrs_mut(id).unwrap().insert("fc.weight".into(), weight);
    }
    let graph = inlined(&main, &of(&[("m.Block", parse(&BLOCK))])).unwrap();
    assert_eq!(names(&graph), ["in", "a.fc", "a.act", "b.fc", "b.act", "out"]);
    for (name, value) in [("a.fc", 1f32), ("b.fc", 2.0)] {
        let fc = &graph[graph.operator_by_name(name).unwrap()];
        assert_eq!(fc.attrs["weight"].elements::<f32>().unwrap()[8], value);
        let origin = fc.origin.as_ref().unwrap();
        assert_eq!(
            (fc.line, origin.node.line),
            (Some(4), Some(if name == "a.fc" { 4 } else { 5 }))
        );
        assert_eq!(origin.node.file.as_ref(), "main.param");
    }
    // Results keep the names of the graph; what the definition records holds for the same input
    // alone, and the second block's has no record.
    assert!(graph.operand_by_name("y").is_some() && graph.operand_by_name("a.1").is_some());
    let ty = |name: &str| graph[graph.operand_by_name(name).unwrap()].ty.to_string();
    assert_eq!(
        (ty("a.1").as_str(), ty("y").as_str(), ty("b.1").as_str()),
        ("(2,3)f32", "(2,3)f32", "(2,3)f32")
    );
}

#[test]
fn records_of_other_shapes_are_left_out() {
    let main =
        parse(&["pnnx.Input in 0 1 x #x=(9,3)f32", "m.R a 1 1 x y", "pnnx.Output out 1 0 y"]);
    let relu = parse(&[
        "pnnx.Input in 0 1 0 #0=(2,3)f32",
        "nn.ReLU r 1 1 0 1 #1=(2,3)f32",
        "nn.ReLU s 1 1 1 2 #2=(2,3)f32",
        "pnnx.Output out 1 0 2",
    ]);
    let graph = inlined(&main, &of(&[("m.R", relu)])).unwrap();
    for name in ["y", "a.1"] {
        assert_eq!(graph[graph.operand_by_name(name).unwrap()].ty.shape, None, "{name}");
    }
}

#[test]
fn definitions_within_definitions_take_the_outer_weights() {
    let main = parse(&[
        "pnnx.Input in 0 1 x",
        "m.Pair p 1 1 x y @one.fc.weight=(3,3)f32 @two.fc.weight=(3,3)f32 @pnnx_0=(1)f32",
        "pnnx.Output out 1 0 y",
    ]);
    let pair = parse(&[
        "pnnx.Input in 0 1 0",
        "m.Block one 1 1 0 1 @fc.weight=(3,3)f32",
        "m.Block two 1 1 1 2 @fc.weight=(3,3)f32",
        "pnnx.Output out 1 0 2",
    ]);
    let graph = inlined(&main, &of(&[("m.Pair", pair), ("m.Block", parse(&BLOCK))])).unwrap();
    assert_eq!(names(&graph), ["in", "p.one.fc", "p.one.act", "p.two.fc", "p.two.act", "out"]);
    let fc = &graph[graph.operator_by_name("p.two.fc").unwrap()];
    let (outermost, levels) = fc.origin.as_ref().unwrap().outermost();
    assert_eq!((outermost.name.as_str(), levels), ("p", 2));
}

#[test]
fn what_does_not_fit_is_refused() {
    let block = || parse(&BLOCK);
    let main = |node: &str| parse(&["pnnx.Input in 0 1 x", node, "pnnx.Output out 1 0 y"]);
    let problem = |node: &str| inlined(&main(node), &of(&[("m.Block", block())])).unwrap_err();
    assert_eq!(
        problem("m.Block a 2 1 x x y @fc.weight=(3,3)f32"),
        DefineProblem::Inputs { expected: vec!["0".into()], found: 2 }
    );
    assert_eq!(
        problem("m.Block a 1 2 x y z @fc.weight=(3,3)f32"),
        DefineProblem::Outputs { expected: vec!["2".into()], found: 2, open: false }
    );
    assert_eq!(
        problem("m.Block a 1 1 x y"),
        DefineProblem::MissingWeight { weight: "fc.weight".into() }
    );
    assert_eq!(
        problem("m.Block a 1 1 x y @fc.weight=(3,4)f32"),
        DefineProblem::Weight {
            weight: "fc.weight".into(),
            expected: "(3,3)f32".into(),
            found: "(3,4)f32".into()
        }
    );
    assert_eq!(
        problem("m.Block a 1 1 x y @fc.weight=(3,3)f32 @bn.bias=(3)f32"),
        DefineProblem::UnusedWeight { weight: "bn.bias".into() }
    );
    let (sizes, limits) = (SizeLimits::default(), Limits::default());
    let definitions = of(&[("m.Block", block())]);
    let error = main("m.Block a 1 1 x y").inline("main.param", &definitions, &sizes, &limits, None);
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("main.param:4: m.Block 'a': weight '@fc.weight' is missing"),
        "{error}"
    );
    assert!(error.ends_with("it is defined by <definition>:4"), "{error}");
    let reserved = inlined(&parse(&MAIN), &of(&[("pnnx.Input", block())]));
    assert_eq!(reserved.unwrap_err(), DefineProblem::Reserved);
}

#[test]
fn recursion_is_refused_with_its_chain() {
    let one = |kind: &str| {
        let node = format!("{kind} n 1 1 0 1");
        parse(&["pnnx.Input in 0 1 0", &node, "pnnx.Output out 1 0 1"])
    };
    let definitions = of(&[("A", one("B")), ("B", one("C")), ("C", one("B"))]);
    let error = inlined(&one("A"), &definitions).unwrap_err();
    assert_eq!(error, DefineProblem::Recursive(["B", "C", "B"].map(str::to_owned).to_vec()));
    assert!(error.to_string().contains("B -> C -> B"), "{error}");
    // Deep, without recursion; the inner ones are known already when the outer ones are met.
    let deep: Vec<(String, Graph)> =
        (0..100).map(|n| (format!("K{n:03}"), one(&format!("K{:03}", n + 1)))).collect();
    let mut definitions = Definitions::new();
    deep.iter().for_each(|(kind, graph)| definitions.define(kind.clone(), graph.clone()));
    assert!(inlined(&one("K050"), &definitions).is_ok());
    assert!(matches!(inlined(&one("K000"), &definitions), Err(DefineProblem::TooDeep(_))));
    let both = parse(&[
        "pnnx.Input in 0 1 0",
        "K050 a 1 1 0 1",
        "K000 b 1 1 1 2",
        "pnnx.Output out 1 0 2",
    ]);
    assert!(matches!(inlined(&both, &definitions), Err(DefineProblem::TooDeep(_))));
}

#[test]
fn growth_is_counted_before_memory_is_taken() {
    let twice = |kind: &str| {
        let (a, b) = (format!("{kind} a 1 1 0 1"), format!("{kind} b 1 1 1 2"));
        parse(&["pnnx.Input in 0 1 0", &a, &b, "pnnx.Output out 1 0 2"])
    };
    let mut definitions = Definitions::new();
    for n in 0..60 {
        definitions.define(format!("D{n}"), twice(&format!("D{}", n + 1)));
    }
    definitions.define("D60", twice("nn.ReLU"));
    let error = inlined(&twice("D0"), &definitions).unwrap_err();
    assert!(
        matches!(&error, DefineProblem::TooLarge(e) if e.limit == SizeLimit::Operators),
        "{error}"
    );
    // Long names around many operators are text as well.
    let long = format!("D50 {} 1 1 0 1", "n".repeat(1 << 20));
    let main = parse(&["pnnx.Input in 0 1 0", &long, "pnnx.Output out 1 0 1"]);
    let error = inlined(&main, &definitions).unwrap_err();
    assert!(
        matches!(&error, DefineProblem::TooLarge(e) if e.limit == SizeLimit::TextBytes),
        "{error}"
    );
    let mut graph = twice("D55");
    assert!(inlined(&graph, &definitions).is_ok());
    let (sizes, limits) = (SizeLimits::default(), Limits::default());
    let error = graph.inline("f", &definitions, &sizes, &limits, Some(10_000)).unwrap_err();
    assert!(matches!(error.problem, DefineProblem::Budget { budget: 10_000, .. }), "{error}");
    assert!(error.problem.is_limit());
    let token = crate::limits::CancelToken::new();
    token.cancel();
    let limits = Limits { cancel: Some(token), ..Limits::default() };
    let error = graph.inline("f", &definitions, &sizes, &limits, None).unwrap_err();
    assert!(matches!(error.problem, DefineProblem::Interrupted(_)), "{error}");
    assert_eq!(graph, twice("D55"), "unchanged");
}

#[test]
fn outputs_are_those_that_are_asked_for() {
    let two = parse(&[
        "pnnx.Input in 0 1 0 #0=(2,3)f32",
        "nn.ReLU r 1 1 0 1 #1=(2,3)f32",
        "torch.mean m 1 1 0 2 #2=(2)f32",
        "prim::TupleConstruct t 2 1 1 2 3",
        "pnnx.Output out 1 0 3",
    ]);
    let definitions = of(&[("m.Two", two)]);
    let reader =
        |node: &str| parse(&["pnnx.Input in 0 1 x #x=(2,3)f32", node, "pnnx.Output out 1 0 y"]);
    let maker = |graph: &Graph, operand: &str| {
        let id = graph.operand_by_name(operand).unwrap();
        graph[graph[id].producer.unwrap()].name.clone()
    };
    let both = inlined(&reader("m.Two n 1 2 x y z"), &definitions).unwrap();
    assert_eq!((maker(&both, "y"), maker(&both, "z")), ("n.r".into(), "n.m".into()));
    for (record, expected) in [("(2)f32", "n.m"), ("(2,3)f32", "n.r"), ("(5)f32", "n.m")] {
        let one = inlined(&reader(&format!("m.Two n 1 1 x y #y={record}")), &definitions).unwrap();
        assert_eq!(maker(&one, "y"), expected, "{record}");
    }
    let open = inlined(&reader("m.Two n 1 1 x y"), &definitions).unwrap_err();
    assert!(matches!(open, DefineProblem::Outputs { open: true, .. }), "{open}");
    // A result that is an input, and one that is asked for twice.
    let same = parse(&["pnnx.Input in 0 1 0", "nn.ReLU r 1 1 0 1", "pnnx.Output out 3 0 0 1 1"]);
    let main = parse(&["pnnx.Input in 0 1 x", "m.Same n 1 3 x a b c", "pnnx.Output out 3 0 a b c"]);
    let graph = inlined(&main, &of(&[("m.Same", same)])).unwrap();
    assert_eq!(names(&graph), ["in", "n.r", "n.output", "n.output_2", "out"]);
    // A tuple that the graph takes apart itself.
    let main = parse(&[
        "pnnx.Input in 0 1 x",
        "m.Two n 1 1 x t",
        "prim::TupleUnpack u 1 2 t y z",
        "pnnx.Output out 2 0 y z",
    ]);
    let graph = inlined(&main, &definitions).unwrap();
    assert_eq!(maker(&graph, "t"), "n.t");
}

#[test]
fn a_graph_without_defined_types_stays_as_it_is() {
    let main = parse(&BLOCK);
    assert_eq!(inlined(&main, &of(&[("m.Other", parse(&MAIN))])).unwrap(), main);
}

/// Pairs of names that come after each other.
fn order(graph: &Graph) -> Vec<(String, String)> {
    let name = |id: crate::OperatorId| graph[id].name.clone();
    graph.controls().map(|(a, b)| (name(a), name(b))).collect()
}

#[test]
fn order_goes_into_a_definition_and_out_of_it() {
    let mut two = parse(&[
        "pnnx.Input in 0 1 0",
        "pnnx.Attribute w 0 1 5",
        "t.Late late 1 1 0 1 ^early=after",
        "t.Early early 2 1 0 5 2",
        "t.Sum sum 2 1 1 2 3",
        "t.Note note 1 0 3",
        "pnnx.Output out 1 0 3",
    ]);
    let w = two.operator_by_name("w").unwrap();
    let data = Attribute::from_elements([1], &[1f32]).unwrap();
    two.attrs_mut(w).unwrap().insert("data".into(), data);
    let main = |first: &str, node: &str, last: &str| {
        parse(&["pnnx.Input in 0 1 x", first, node, last, "pnnx.Output out 1 0 z"])
    };
    let definitions = of(&[("m.Two", two)]);
    // The file order is no execution order: what comes later may be said earlier.
    let graph =
        main("t.Last last 1 1 x z ^n=after", "m.Two n 1 1 x y ^first=after", "t.First first 0 0");
    let graph = inlined(&graph, &definitions).unwrap();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let expected = [pair("n.note", "last"), pair("n.early", "n.late"), pair("first", "n.early")];
    assert_eq!(order(&graph), expected);
    graph.validate().unwrap();
    let (text, bin) = (graph.to_param_string().unwrap(), graph.to_bin_bytes().unwrap());
    assert_eq!(Graph::from_bytes(text, bin).unwrap(), graph);

    // Results that come after something.
    let after = parse(&[
        "pnnx.Input in 0 1 0",
        "nn.ReLU r 1 1 0 1",
        "t.Note note 1 0 1",
        "pnnx.Output out 1 0 1 ^note=after",
    ]);
    let outer = parse(&["pnnx.Input in 0 1 0", "m.After a 1 1 0 1", "pnnx.Output out 1 0 1"]);
    let definitions = of(&[("m.After", after), ("m.Outer", outer)]);
    let graph =
        main("t.First first 0 0", "m.Outer n 1 1 x y ^first=after", "t.Last last 1 1 y z ^n=after");
    let graph = inlined(&graph, &definitions).unwrap();
    let expected = [
        pair("first", "n.a.r"),
        pair("n.a.note", "n.a.output"),
        pair("n.a.note", "last"),
        pair("n.a.output", "last"),
    ];
    assert_eq!(order(&graph), expected);
    let y = &graph[graph.operand_by_name("y").unwrap()];
    assert_eq!(graph[y.producer.unwrap()].name, "n.a.output");

    // Many that begin after many that end are counted.
    let lines: Vec<String> = (0..300).map(|i| format!("t.Note note{i} 1 0 0")).collect();
    let mut wide: Vec<&str> = vec!["pnnx.Input in 0 1 0"];
    wide.extend(lines.iter().map(String::as_str));
    let definitions = of(&[("m.Wide", parse(&wide))]);
    let mut graph = parse(&["pnnx.Input in 0 1 0", "m.Wide a 1 0 0", "m.Wide b 1 0 0 ^a=after"]);
    let sizes = SizeLimits::default().with(SizeLimit::Words, 80_000);
    let limits = Limits::default();
    let error = graph.inline("f", &definitions, &sizes, &limits, None).unwrap_err();
    assert!(matches!(&error.problem, DefineProblem::TooLarge(e) if e.limit == SizeLimit::Words));
    graph.inline("f", &definitions, &SizeLimits::default(), &limits, None).unwrap();
    assert_eq!(graph.controls().count(), 90_000);
}

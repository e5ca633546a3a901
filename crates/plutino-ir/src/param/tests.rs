use crate::attribute::AttributeError;
use crate::error::{Lookalike, ParseErrorKind};
use crate::graph::EditError;
use crate::limits::Limits;
use crate::sizes::{SizeLimit, SizeLimits, TooLarge};
use crate::{DType, Dim, Graph, InvalidGraph, Parameter, SaveError, TensorType};

/// A text from its operator lines, with the right header.
fn text(lines: &[&str]) -> String {
    let operands: usize =
        lines.iter().filter_map(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok()).sum();
    format!("7767517\n{} {operands}\n{}\n", lines.len(), lines.join("\n"))
}

/// Line, column and message of the fault in a text.
fn fault(text: &str) -> (u32, u32, ParseErrorKind) {
    let error = Graph::parse(text).expect_err(text);
    (error.line, error.column, error.kind)
}

fn syntax(expected: &str, found: &str) -> ParseErrorKind {
    ParseErrorKind::Syntax { expected: expected.into(), found: found.into() }
}

#[test]
fn an_operator_line_becomes_an_operator() {
    let graph = Graph::parse(&text(&[
        "pnnx.Input in 0 1 0",
        "nn.Conv2d\tconv  1 1 0 1 stride=(2,2) bias=None @weight=(8,3,1,1)f32 $input=0 #0=(1,3,?,%w) #1=()cp64",
    ]))
    .unwrap();
    let id = graph.operator_by_name("conv").unwrap();
    let conv = &graph[id];
    assert_eq!((conv.kind.as_str(), conv.line), ("nn.Conv2d", Some(4)));
    assert_eq!(conv.param("stride"), Some(&Parameter::Ints(vec![2, 2])));
    assert_eq!(conv.param("bias"), Some(&Parameter::Null));
    let weight = conv.attr("weight").unwrap();
    assert_eq!(
        (weight.dtype(), weight.shape(), weight.is_loaded()),
        (DType::F32, &[8, 3, 1, 1][..], false)
    );
    assert_eq!(conv.named_input("input"), Some(conv.inputs[0]));
    let (x, y) = (&graph[conv.inputs[0]], &graph[conv.outputs[0]]);
    assert_eq!((x.name.as_str(), x.consumers.as_slice(), y.producer), ("0", &[id][..], Some(id)));
    let dims = vec![Dim::Known(1), Dim::Known(3), Dim::Unknown, Dim::Symbol("w".into())];
    assert_eq!(x.ty, TensorType { shape: Some(dims), dtype: None });
    assert_eq!(y.ty, TensorType { shape: Some(vec![]), dtype: Some(DType::C64) });
}

#[test]
fn file_order_need_not_be_topological() {
    let graph = Graph::parse(&text(&[
        "pnnx.Output out 1 0 1",
        "nn.ReLU relu 1 1 0 1",
        "pnnx.Input in 0 1 0",
    ]))
    .unwrap();
    let names: Vec<_> = graph.operators().map(|(_, operator)| operator.name.as_str()).collect();
    assert_eq!(names, ["out", "relu", "in"]);
    graph.validate().unwrap();
}

#[test]
fn line_ends_and_trailing_lines_do_not_matter() {
    let graph = Graph::parse("7767517\n1 1\npnnx.Input in 0 1 0").unwrap();
    for text in [
        "7767517\r\n1 1\r\npnnx.Input in 0 1 0\r\n",
        " 7767517 \n 1  1 \n  pnnx.Input in 0 1 0 \n\n \n",
    ] {
        assert_eq!(Graph::parse(text).unwrap(), graph, "{text:?}");
    }
}

#[test]
fn keys_go_to_inputs_in_order() {
    let names = |line: &str| {
        let graph =
            Graph::parse(&text(&["pnnx.Input a 0 1 0", "pnnx.Input b 0 1 2", line])).unwrap();
        graph[graph.operator_by_name("op").unwrap()].input_names.clone()
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(
        names("nn.LSTM op 3 1 0 2 2 3 $input=0 $h=2 $c=2"),
        [some("input"), some("h"), some("c")]
    );
    assert_eq!(
        names("nn.LSTM op 3 1 0 2 2 3 $h=2 $c=2 $input=0"),
        [some("input"), some("h"), some("c")]
    );
    assert_eq!(
        names("nn.MultiheadAttention op 3 1 0 0 2 3 $attn_mask=2"),
        [None, None, some("attn_mask")]
    );
    assert_eq!(names("torch.eq op 2 1 2 2 3 $input=2 $other=2"), [some("input"), some("other")]);
}

#[test]
fn what_is_not_a_param_file_is_recognised() {
    let magic = |found: &str, hint| (1, 1, ParseErrorKind::Magic { found: found.into(), hint });
    assert_eq!(fault(""), magic("", None));
    assert_eq!(fault("7767518\n0 0\n"), magic("7767518", None));
    assert_eq!(fault("75 83\nInput data 0 1 data\n"), magic("75 83", Some(Lookalike::OldNcnn)));
    assert_eq!(fault("import torch\n"), magic("import torch", Some(Lookalike::Python)));
    assert_eq!(fault("# pnnx\n"), magic("# pnnx", Some(Lookalike::Python)));
    assert_eq!(
        fault("\u{feff}7767517\n0 0\n"),
        magic("\u{feff}7767517", Some(Lookalike::ByteOrderMark))
    );

    let bytes = |bytes: &[u8]| {
        super::parse_graph(bytes, &Limits::default(), &SizeLimits::default()).unwrap_err().kind
    };
    let encoding = |hint| ParseErrorKind::Encoding { hint };
    assert_eq!(bytes(b"PK\x03\x04\xff"), encoding(Some(Lookalike::Zip)));
    assert_eq!(bytes(b"\xff\xfe7\x007\x00"), encoding(Some(Lookalike::Utf16)));
    assert_eq!(bytes(b"\x08\x07\x12\xff"), encoding(Some(Lookalike::Onnx)));
    assert_eq!(bytes(b"\x3a\x9f\xfd"), encoding(Some(Lookalike::Onnx)));
    let error = super::parse_graph(
        "7767517\n1 1\npnnx.Input ä\u{0} ".as_bytes().split_last().unwrap().1,
        &Limits::default(),
        &SizeLimits::default(),
    )
    .unwrap_err();
    assert!(matches!(error.kind, ParseErrorKind::Syntax { .. }), "{error}");
    let error = super::parse_graph(
        b"7767517\n1 1\n\xc3\xa4b \xff",
        &Limits::default(),
        &SizeLimits::default(),
    )
    .unwrap_err();
    assert_eq!((error.line, error.column), (3, 4), "columns count characters");

    let ncnn =
        "7767517\n2 2\nInput in0 0 1 in0\nConvolution conv_0 1 1 in0 1 0=64 1=7 -23303=2,1,1\n";
    assert_eq!(
        fault(ncnn),
        (3, 1, ParseErrorKind::Ncnn { kind: "Input".into(), operator: "in0".into() })
    );
}

#[test]
fn syntax_faults_are_placed() {
    let input = "pnnx.Input in 0 1 0";
    for (line, column, expected, found) in [
        ("nn.ReLU", 8, "the operator's name", ""),
        ("nn.ReLU relu", 13, "the number of inputs", ""),
        ("nn.ReLU relu -1 1 0 1", 14, "the number of inputs", "-1"),
        ("nn.ReLU relu 1 x 0 1", 16, "the number of outputs", "x"),
        (
            "nn.ReLU relu 1 99999999999999999999 0 1",
            16,
            "the number of outputs",
            "99999999999999999999",
        ),
        ("nn.ReLU relu 2 1 0", 19, "input 2 of 2", ""),
        ("nn.ReLU relu 2 1 0 a=1", 20, "input 2 of 2", "a=1"),
        ("nn.ReLU relu 1 2 0 1 inplace=True", 22, "output 2 of 2", "inplace=True"),
        ("nn.ReLU relu 1 1 0 1 2 a=3", 22, "key=value", "2"),
        ("nn.ReLU relu 1 1 0 1 =3", 22, "key=value", "=3"),
        ("nn.ReLU relu 1 1 0 1 a=3\u{b}b=4", 25, "a parameter", "b=4"),
        ("nn.ReLU relu 1 1 0 1 @w=3", 25, "a shape such as (64,3,7,7)", "3"),
        ("nn.ReLU relu 1 1 0 1 @w=(3,?)f32", 28, "a size", "?)f32"),
        ("nn.ReLU relu 1 1 0 1 @w=(3", 27, "',' or ')'", ""),
        ("nn.ReLU relu 1 1 0 1 @w=(3)", 28, "an element type such as f32", ""),
        ("nn.ReLU relu 1 1 0 1 @w=(3)float", 28, "an element type such as f32", "float"),
        ("nn.ReLU relu 1 1 0 1 @w=(3)f32x4", 28, "an element type such as f32", "f32x4"),
        ("nn.ReLU relu 1 1 0 1 @w=(3)f32,", 31, "a blank", ","),
        ("nn.ReLU relu 1 1 0 1 #1=(3,-1)f32", 28, "a size, '?' or '%name'", "-1)f32"),
        ("nn.ReLU relu 1 1 0 1 #1=(3,)f32", 28, "a size, '?' or '%name'", ")f32"),
        ("nn.ReLU relu 1 1 0 1 #1=(3)f33", 28, "an element type such as f32, or nothing", "f33"),
        ("nn.ReLU relu 1 1 0 1 $input=", 29, "an operand", ""),
    ] {
        assert_eq!(fault(&text(&[input, line])), (4, column, syntax(expected, found)), "{line}");
    }
    assert_eq!(fault("7767517\n"), (2, 1, syntax("the number of operators", "")));
    assert_eq!(fault("7767517\n3\n"), (2, 2, syntax("the number of operands", "")));
    assert_eq!(fault("7767517\n0 0 0\n"), (2, 5, syntax("the end of the line", "0")));
    assert_eq!(fault("7767517\n1 1\n\npnnx.Input in 0 1 0\n"), (3, 1, syntax("an operator", "")));
}

#[test]
fn operators_and_operands_must_fit_together() {
    let input = "pnnx.Input in 0 1 0";
    let (operator, operand) = ("op".to_owned(), "0".to_owned());
    for (line, column, kind) in [
        (
            "nn.ReLU in 1 1 0 1",
            9,
            ParseErrorKind::DuplicateOperator { name: "in".into(), first: 3 },
        ),
        (
            "nn.ReLU op 1 1 0 0",
            18,
            ParseErrorKind::DuplicateOperand { name: "0".into(), producer: "in".into(), first: 3 },
        ),
        (
            "nn.ReLU op 1 2 0 1 1",
            20,
            ParseErrorKind::DuplicateOperand { name: "1".into(), producer: "op".into(), first: 4 },
        ),
        ("nn.ReLU op 1 1 x 1", 16, ParseErrorKind::UnknownOperand { name: "x".into() }),
        (
            "nn.ReLU op 1 1 0 1 a=1 a=2",
            24,
            ParseErrorKind::DuplicateKey { key: "a".into(), operator: operator.clone() },
        ),
        (
            "nn.ReLU op 1 1 0 1 @a=(1)u8 @a=(1)u8",
            30,
            ParseErrorKind::DuplicateKey { key: "@a".into(), operator: operator.clone() },
        ),
        (
            "nn.ReLU op 2 1 0 0 1 $a=0 $a=0",
            28,
            ParseErrorKind::DuplicateKey { key: "$a".into(), operator: operator.clone() },
        ),
        (
            "nn.ReLU op 1 1 0 1 $a=0 $b=0",
            28,
            ParseErrorKind::ForeignOperand {
                key: "$b".into(),
                operand: operand.clone(),
                expected: "input without a key",
                operator: operator.clone(),
            },
        ),
        (
            "nn.ReLU op 0 1 1 #0=(1)f32",
            19,
            ParseErrorKind::ForeignOperand {
                key: "#0".into(),
                operand: operand.clone(),
                expected: "input or output",
                operator: operator.clone(),
            },
        ),
        (
            "nn.ReLU op 1 1 0 1 #0=(1)f32 #0=(2)f32",
            31,
            ParseErrorKind::ConflictingType {
                operand,
                found: TensorType::new(DType::F32, &[2]),
                recorded: TensorType::new(DType::F32, &[1]),
            },
        ),
        (
            "nn.ReLU op 1 1 0 1 @a=(9223372036854775807)i16",
            21,
            ParseErrorKind::Attribute {
                name: "a".into(),
                operator: operator.clone(),
                error: AttributeError::TooLarge {
                    dtype: DType::I16,
                    shape: vec![9223372036854775807],
                },
            },
        ),
        (
            "nn.ReLU op 1 1 0 1 a=(1,2x)",
            25,
            ParseErrorKind::Parameter {
                name: "a".into(),
                operator: operator.clone(),
                error: Parameter::parse("(1,2x)").unwrap_err(),
            },
        ),
    ] {
        assert_eq!(fault(&text(&[input, line])), (4, column, kind), "{line}");
    }
}

#[test]
fn the_header_counts() {
    let count = |what, declared, found| (2, 1, ParseErrorKind::Count { what, declared, found });
    let lines = "pnnx.Input in 0 1 0\nnn.ReLU op 1 1 0 1\n";
    assert_eq!(fault(&format!("7767517\n3 2\n{lines}")), count("operators", 3, 2));
    assert_eq!(fault(&format!("7767517\n1 2\n{lines}")), count("operators", 1, 2));
    assert_eq!(fault(&format!("7767517\n2 1\n{lines}")), count("operands", 1, 2));
    // pnnx counts operands that it has merged with others.
    assert!(Graph::parse(&format!("7767517\n2 3\n{lines}")).is_ok());
}

#[test]
fn cycles_name_their_members() {
    let (line, column, kind) = fault(&text(&[
        "pnnx.Input in 0 1 0",
        "torch.add a 2 1 0 2 1",
        "nn.ReLU b 1 1 1 2",
        "pnnx.Output out 1 0 2",
    ]));
    assert_eq!(column, 1);
    let ParseErrorKind::Cycle(cycle) = kind else { panic!("{kind}") };
    let mut names = cycle.names.clone();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(line, if cycle.names[0] == "a" { 4 } else { 5 });
}

#[test]
fn types_of_an_operand_are_merged() {
    let graph =
        Graph::parse(&text(&["pnnx.Input in 0 1 0 #0=(1,2)", "nn.ReLU op 1 1 0 1 #0=(1,2)f32"]))
            .unwrap();
    let x = graph.operand_by_name("0").unwrap();
    assert_eq!(graph[x].ty, TensorType::new(DType::F32, &[1, 2]));
}

#[test]
fn what_would_not_read_back_is_not_written() {
    let mut graph = Graph::parse(&text(&["pnnx.Input in 0 1 0", "nn.ReLU op 1 1 0 1"])).unwrap();
    let op = graph.operator_by_name("op").unwrap();
    for value in [
        Parameter::Str("3".into()),
        Parameter::Str("a b".into()),
        Parameter::Str("None".into()),
        Parameter::Str("(a)".into()),
        Parameter::Float(f64::INFINITY),
        Parameter::Ints(vec![]),
        Parameter::Strs(vec!["1".into(), "2".into()]),
        Parameter::Strs(vec!["a,b".into()]),
        Parameter::Other("[1]".into()),
    ] {
        graph.params_mut(op).unwrap().insert("p".into(), value.clone());
        let refused = graph.to_param_string();
        assert!(matches!(refused, Err(SaveError::Parameter { .. })), "{value:?} gave {refused:?}");
    }
    // The text of an expression is free, but for blanks.
    graph.params_mut(op).unwrap().clear();
    graph.params_mut(op).unwrap().insert("expr".into(), "[1]".into());
    assert_eq!(Graph::parse(&graph.to_param_string().unwrap()).unwrap(), graph);

    for key in ["", "@a", "#a", "$a", "a=b", "a b"] {
        graph.params_mut(op).unwrap().clear();
        graph.params_mut(op).unwrap().insert(key.into(), Parameter::Null);
        let refused = graph.to_param_string();
        assert!(
            matches!(refused, Err(SaveError::Name(EditError::InvalidName { .. }))),
            "{key}: {refused:?}"
        );
    }

    graph.params_mut(op).unwrap().clear();
    let x = graph.operand_by_name("0").unwrap();
    graph.connect_named_input(op, "later", x).unwrap();
    assert!(matches!(graph.to_param_string(), Err(SaveError::InputName { .. })));
    graph.set_input_name(op, 0, Some("first")).unwrap();
    assert!(graph.to_param_string().is_ok());

    let y = graph.operand_by_name("1").unwrap();
    graph.disconnect_output(y).unwrap();
    assert!(matches!(
        graph.to_param_string(),
        Err(SaveError::Invalid(InvalidGraph::NoProducer { .. }))
    ));
}

/// Each limit, exceeded by one: the place, the limit and both numbers are told.
#[test]
fn sizes_are_limited() {
    let text = "7767517\n3 2\npnnx.Input in 0 1 a #a=(2,3)f32\n\
                pnnx.Expression op 2 1 a a b expr=add(@0,mul(@1,@0)) w=abcd @data=(1,2,3,4)f32\n\
                pnnx.Output out 1 0 b\n";
    let words = text.chars().filter(|c| " ,\n".contains(*c)).count();
    let cases = [
        (SizeLimit::TextBytes, text.len(), (1, 1)),
        (SizeLimit::Words, words, (1, 1)),
        (SizeLimit::Operators, 3, (5, 1)),
        (SizeLimit::Operands, 2, (4, 1)),
        (SizeLimit::Arguments, 3, (4, 1)),
        (SizeLimit::ParameterBytes, 18, (4, 35)),
        (SizeLimit::ExpressionParts, 5, (4, 48)),
        (SizeLimit::Rank, 4, (4, 62)),
    ];
    for (limit, found, (line, column)) in cases {
        let parse = |most: usize| {
            let sizes = SizeLimits::default().with(limit, most);
            super::parse_graph(text.as_bytes(), &Limits::default(), &sizes)
        };
        let graph = parse(found).unwrap();
        let most = found - 1;
        let error = parse(most).unwrap_err();
        let kind = ParseErrorKind::TooLarge(TooLarge { limit, found, most });
        assert_eq!(error, crate::ParseError { line, column, kind }, "{limit}");
        // The same of a graph that no text was parsed for.
        if !matches!(limit, SizeLimit::TextBytes | SizeLimit::Words) {
            let sizes = SizeLimits::default().with(limit, most);
            assert_eq!(sizes.check_graph(&graph).unwrap_err().1, TooLarge { limit, found, most });
        }
        assert_eq!(SizeLimits::default().with(limit, found).check_graph(&graph), Ok(()));
    }
}

#[test]
fn order_without_data_is_read() {
    use crate::graph::ControlProblem;
    let lines = |late: &str, out: &str| {
        text(&[
            "pnnx.Input in 0 1 0",
            late,
            "test.Keep 3=x 1 1 0 1 ^in=after",
            &format!("pnnx.Output out 1 0 2 {out}"),
        ])
    };
    let good = lines("nn.ReLU late 1 1 0 2 ^3=x=after key=1 #2=(1)f32", "^late=after ^3=x=after");
    let graph = Graph::parse(&good).unwrap();
    let id = |name| graph.operator_by_name(name).unwrap();
    let expected = [(id("3=x"), id("late")), (id("in"), id("3=x"))];
    let out = [(id("late"), id("out")), (id("3=x"), id("out"))];
    assert_eq!(graph.controls().collect::<Vec<_>>(), [&expected[..], &out[..]].concat());
    assert_eq!(Graph::parse(&graph.to_param_string().unwrap()).unwrap(), graph);

    let problem = |late: &str, out: &str| match fault(&lines(late, out)) {
        (line, column, ParseErrorKind::Control { problem, .. }) => (line, column, problem),
        (_, _, kind) => panic!("{kind}"),
    };
    let late = "nn.ReLU late 1 1 0 2";
    let unknown = problem(&format!("{late} ^nobody=after"), "");
    assert_eq!(unknown, (4, 23, ControlProblem::Unknown { producer: None }));
    let operand = problem(&format!("{late} ^1=after"), "");
    assert_eq!(operand.2, ControlProblem::Unknown { producer: Some("3=x".into()) });
    assert_eq!(problem(&format!("{late} ^late=after"), "").2, ControlProblem::Itself);
    assert_eq!(problem(&format!("{late} ^out=after"), "").2, ControlProblem::AfterOutput);
    let message = Graph::parse(&lines(&format!("{late} ^1=after"), "")).unwrap_err().to_string();
    assert!(message.contains("write ^3=x=after"), "{message}");
    let twice = fault(&lines(late, "^late=after ^late=after")).2;
    assert!(matches!(twice, ParseErrorKind::DuplicateKey { key, .. } if key == "^late"));
    let word = fault(&lines(&format!("{late} ^in=before"), ""));
    assert_eq!((word.0, word.1, word.2), (4, 22, syntax("^OPERATOR=after", "^in=before")));
    let empty = fault(&lines(&format!("{late} ^=after"), "")).2;
    assert_eq!(empty, syntax("^OPERATOR=after", "^=after"));
    // A cycle of data and order.
    let cycle = text(&["a.A a 1 1 1 0", "a.B b 0 1 1 ^c=after", "a.C c 0 0 ^a=after"]);
    match fault(&cycle).2 {
        ParseErrorKind::Cycle(cycle) => assert_eq!(cycle.names.len(), 3),
        kind => panic!("{kind}"),
    }
    let mut graph = Graph::parse(&good).unwrap();
    let late = graph.operator_by_name("late").unwrap();
    graph.params_mut(late).unwrap().insert("^x".into(), Parameter::from(1));
    assert!(matches!(graph.to_param_string(), Err(SaveError::Name(_))));
}

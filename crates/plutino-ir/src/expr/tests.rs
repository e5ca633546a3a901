use proptest::prelude::*;

use super::{BinaryFn, Expr, ExprErrorKind, MAX_DEPTH, UnaryFn};

fn canonical(text: &str) -> String {
    Expr::parse(text).unwrap_or_else(|error| panic!("{error}")).to_string()
}

#[test]
fn what_the_converter_writes_is_read() {
    for text in [
        "@0",
        "add(@0,23)",
        "sub(mul(@0,2),1)",
        "add(sin(@0),mul(cos(@0),sqrt(add(abs(@0),1))))",
        "div(sub(@0,@1),sqrt(add(@2,1.000000e-7)))",
        "[size(@0,0),size(@0,0),-1]",
        "[-1,floor_divide(neg(size(@0,2)),10),4]",
        "[int(size(@0,2)),8]",
        "size(@0)",
        "torch.float(@0)",
        "max(@0,-inf)",
        "[]",
        "[[1,2],@0]",
        "[None,@0,None]",
        "True",
        "False",
        "[True,False]",
        "and(@0,True)",
    ] {
        assert_eq!(canonical(text), text);
    }
    assert_eq!(canonical("mul(@0,sub(1.200000e+00-9.000000e-01j,@1))"), "mul(@0,sub(1.2-0.9j,@1))");
    assert_eq!(canonical("2.0e+00"), "2.0");
    assert_eq!(canonical("add(@0,,mul(@1,0.5))"), "add(@0,mul(@1,0.5))"); // of optlevel=1
}

#[test]
fn a_word_alone_is_a_constant() {
    for text in ["sum", "ij", "add", "neg", "nearest-exact", "torch.float", "Trueish"] {
        assert_eq!(Expr::parse(text).unwrap(), Expr::Word(text.into()));
    }
    for text in ["inf", "nan", "None", "True", "@0", "-inf"] {
        assert!(!matches!(Expr::parse(text).unwrap(), Expr::Word(_)), "{text}");
    }
    for text in ["[sum]", "neg(sum)", "sum,@0", "sum(", "_sum"] {
        assert!(Expr::parse(text).is_err(), "{text}");
    }
}

#[test]
fn prefixes_take_as_many_arguments_as_the_function() {
    assert_eq!(canonical("expm1,sub(@0,0.5)"), "expm1(sub(@0,0.5))");
    assert_eq!(canonical("log1p,@0"), "log1p(@0)");
    assert_eq!(canonical("atan2,@0,neg,@1"), "atan2(@0,neg(@1))");
    assert_eq!(canonical("add(expm1,@0,1)"), "add(expm1(@0),1)");
    assert_eq!(canonical("[log1p,@0,3]"), "[log1p(@0),3]");
    assert_eq!(canonical("[size,@0,1,add,@0,@1]"), "[size(@0,1),add(@0,@1)]");
}

#[test]
fn brackets_after_a_bare_name_are_ignored() {
    for (written, meant) in [
        ("add(mul(expm1,@0),1.5),0.25", "add(mul(expm1(@0),1.5),0.25)"),
        ("sqrt(expm1),@0", "sqrt(expm1(@0))"),
        ("add(log1p,@0),expm1,@1", "add(log1p(@0),expm1(@1))"),
        ("[mul(log1p,@0),2,[size(@0,1)]]", "[mul(log1p(@0),2),[size(@0,1)]]"),
    ] {
        assert_eq!(canonical(written), meant);
    }
    assert!(Expr::parse("add(mul(expm1,@0),1.5)").is_err());
    assert!(Expr::parse("add(mul(expm1,@0),1.5),0.25,1").is_err());
}

#[test]
fn nonsense_is_placed_and_named() {
    let unexpected =
        |expected, found: &str| ExprErrorKind::Unexpected { expected, found: found.into() };
    let arity = |function, count, found| ExprErrorKind::Arity {
        function,
        least: count,
        most: count,
        found,
    };
    let operand = "a number, '@n', a function or a list";
    for (text, column, kind) in [
        ("", 1, unexpected("an expression", "")),
        ("add(@0)", 1, arity("add", 2, 1)),
        ("add(@0,1,2)", 1, arity("add", 2, 3)),
        ("add()", 1, arity("add", 2, 0)),
        ("[neg]", 2, arity("neg", 1, 0)),
        ("add,@0", 1, arity("add", 2, 1)),
        ("add,@0,", 1, arity("add", 2, 1)),
        ("neg(add,@0)", 5, arity("add", 2, 1)),
        (
            "mul(@0,size())",
            8,
            ExprErrorKind::Arity { function: "size", least: 1, most: 2, found: 0 },
        ),
        ("add(@0,1", 4, ExprErrorKind::Unbalanced { bracket: '(' }),
        ("[@0,1", 1, ExprErrorKind::Unbalanced { bracket: '[' }),
        ("@0)", 3, ExprErrorKind::Unbalanced { bracket: ')' }),
        ("neg(@0]", 7, ExprErrorKind::Unbalanced { bracket: ']' }),
        ("@0,@1", 3, unexpected("the end of the expression", ",")),
        ("neg(@0)@1", 8, unexpected("the end of the expression", "@1")),
        ("add(@0,,,1)", 9, unexpected(operand, ",")),
        ("add(,@0,1)", 5, unexpected(operand, ",")),
        ("[1,,2]", 4, unexpected(operand, ",")),
        ("add(@0,", 8, unexpected(operand, "")),
        ("[1,]", 4, unexpected(operand, "]")),
        ("neg(@)", 5, unexpected("a name, a number, '@n', a bracket or a comma", "@")),
        ("neg(@99999999999999999999)", 5, unexpected("an input's number", "@99999999999999999999")),
        ("neg(1.2.3)", 5, unexpected("a finite float", "1.2.3")),
        ("neg(12x)", 5, unexpected("a 64-bit integer", "12x")),
        ("neg(@0) ", 8, unexpected("a name, a number, '@n', a bracket or a comma", " ")),
        (
            "sgrt(@0)",
            1,
            ExprErrorKind::UnknownFunction { name: "sgrt".into(), nearest: Some("sqrt") },
        ),
        ("[Truth]", 2, ExprErrorKind::UnknownFunction { name: "Truth".into(), nearest: None }),
    ] {
        let error = Expr::parse(text).unwrap_err();
        assert_eq!((error.column, &error.kind), (column, &kind), "{text}: {error}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nest =
        |open: &str, close: &str, n: usize| format!("{}@0{}", open.repeat(n), close.repeat(n));
    for (open, close) in [("neg(", ")"), ("[", "]"), ("neg,", ""), ("add(1,", ")")] {
        assert!(Expr::parse(&nest(open, close, MAX_DEPTH)).is_ok());
        for n in [MAX_DEPTH + 1, 200_000] {
            let error = Expr::parse(&nest(open, close, n)).unwrap_err();
            assert_eq!(error.kind, ExprErrorKind::TooDeep { limit: MAX_DEPTH });
        }
    }
}

#[test]
fn inputs_are_counted() {
    assert_eq!(Expr::parse("add(@2,[size(@0,@4)])").unwrap().input_count(), 5);
    assert_eq!(Expr::parse("1").unwrap().input_count(), 0);
}

fn expr() -> impl Strategy<Value = Expr> {
    let finite = any::<f64>().prop_filter("finite", |value| value.is_finite());
    let leaf = prop_oneof![
        (0usize..9).prop_map(Expr::Input),
        any::<i64>().prop_map(Expr::Int),
        finite.clone().prop_map(Expr::Float),
        Just(Expr::Float(f64::NEG_INFINITY)),
        any::<bool>().prop_map(Expr::Bool),
        Just(Expr::None),
        (finite.clone(), finite).prop_map(|(re, im)| Expr::Complex(re, im)),
    ];
    leaf.prop_recursive(6, 48, 4, |part| {
        let boxed = part.clone().prop_map(Box::new);
        prop_oneof![
            (proptest::sample::select(UnaryFn::ALL), boxed.clone())
                .prop_map(|(f, a)| Expr::Unary(f, a)),
            (proptest::sample::select(BinaryFn::ALL), boxed.clone(), boxed.clone())
                .prop_map(|(f, a, b)| Expr::Binary(f, a, b)),
            (boxed.clone(), proptest::option::of(boxed))
                .prop_map(|(of, dim)| Expr::Size { of, dim }),
            proptest::collection::vec(part, 0..4).prop_map(Expr::List),
        ]
    })
}

proptest! {
    #[test]
    fn text_reads_back_equal(expr in expr()) {
        prop_assert_eq!(Expr::parse(&expr.to_string()).unwrap(), expr);
    }

    #[test]
    fn commas_alone_mean_the_same(expr in expr()) {
        // `size` with one argument and lists need their brackets; all others are fixed by arity
        let mut fixed = true;
        expr.walk(&mut |part| fixed &= !matches!(part, Expr::List(_) | Expr::Size { dim: None, .. }));
        if fixed {
            let prefix = expr.to_string().replace('(', ",").replace(')', "");
            prop_assert_eq!(Expr::parse(&prefix).unwrap(), expr);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[@a-z0-9.,()\\[\\]+-]{0,40}") {
        if let Ok(expr) = Expr::parse(&text) {
            prop_assert_eq!(Expr::parse(&expr.to_string()).unwrap().to_string(), expr.to_string());
        }
    }
}

//! Expressions that are deep, long, or of numbers that do not exist.

use crate::harness::{all, row, single, text};

/// An expression of one input, and what must come of it.
#[rustfmt::skip]
const ROWS: &[(&str, &str)] = &[
    ("div(@0,0)", "= inf inf"),
    ("floor_divide(@0,0)", "= inf inf"),
    ("remainder(@0,0)", "= NaN NaN"),
    ("pow(@0,1e308)", "= 1.0 1.0"),
    ("add(@0,99999999999999999999999999)", "! expected a 64-bit integer"),
    ("add(@0,1e999)", "! expected a finite float"),
    ("add(@0,-9223372036854775808)", "= -9.223372036854776e18 -9.223372036854776e18"),
    ("neg(-9223372036854775808)", "! neg(-9223372036854775808) is no number"),
    ("mul(9223372036854775807,9223372036854775807)", "! mul(9223372036854775807, 9223372036854775807)"),
    ("floor_divide(-9223372036854775808,-1)", "! floor_divide(-9223372036854775808, -1) is no"),
    ("remainder(-9223372036854775808,-1)", "! remainder(-9223372036854775808, -1) is no"),
    ("pow(10,1000)", "! pow(10, 1000) is no number that fits 64 bits"),
    ("size(@0,7)", "! dimension 7 does not exist in a tensor of"),
    ("size(@0,-9223372036854775808)", "! dimension -9223372036854775808 does not exist"),
    ("@1", "! @1 is used, but there are 1 inputs"),
    ("@18446744073709551615", "! @18446744073709551614 is used, but there are"),
    ("add(@0", "! '(' has no counterpart"),
    ("add(@0,@0))", "! ')' has no counterpart"),
    ("nosuch(@0)", "! 'nosuch' is no function of pnnx.Expression"),
    ("add(@0)", "! 'add' takes 2 arguments"),
    ("[@0,@0,[@0]]", "= 1.0 1.0"),
    ("()", "! expected a number, '@n', a function or a list"),
    ("int(@0)", "= 1.0 1.0"),
    ("rshift(1,64)", "! bitwise_right_shift(1, 64) is no number that"),
    ("lshift(1,9223372036854775807)", "! bitwise_left_shift(1, 9223372036854775807) is"),
    ("sqrt(-1)", "= NaN"),
    ("log(0)", "= -inf"),
    ("trunc(1e308)", "! trunc(1e308) is no number"),
    ("round(nan)", "! round(NaN) is no number"),
];

#[test]
fn expressions_are_refused_or_computed() {
    all(ROWS.iter().map(|(expr, expected)| {
        row(expr, &single("pnnx.Expression", &["(2)f32"], &format!("expr={expr}")), expected, 1)
    }));
}

#[test]
fn deep_and_long_expressions_are_refused_or_computed() {
    let deep = |n: usize| format!("{}@0{}", "neg(".repeat(n), ")".repeat(n));
    let lists = format!("{}@0{}", "[".repeat(100_000), "]".repeat(100_000));
    let wide = format!("[{}@0]", "@0,".repeat(100_000));
    let one = |expr: &str| single("pnnx.Expression", &["(2)f32"], &format!("expr={expr}"));
    // Each doubles the one before: two to the hundredth additions, were they written out.
    let mut lines = vec!["pnnx.Input in 0 1 v0 #v0=(2)f32".to_owned()];
    for i in 0..100 {
        lines.push(format!("pnnx.Expression e{i} 1 1 v{i} v{} expr=add(@0,@0)", i + 1));
    }
    lines.push("pnnx.Output out 1 0 v100".into());
    // Each has twice the members of the one before, if the first has any: of `first`, `levels`.
    let doubled = |first: &str, levels: usize| {
        let mut lines = vec![
            "pnnx.Input in 0 1 a #a=(2)f32".to_owned(),
            format!("pnnx.Expression e 1 1 a v0 expr={first}"),
        ];
        for i in 0..levels {
            lines.push(format!("pnnx.Expression e{i} 1 1 v{i} v{} expr=[@0,@0]", i + 1));
        }
        lines.push(format!("pnnx.Output out 1 0 v{levels}"));
        text(&lines)
    };
    // A list in a list in a list, operator by operator.
    let mut deeper = vec!["pnnx.Input in 0 1 v0 #v0=(2)f32".to_owned()];
    deeper.extend((0..5000).map(|i| format!("pnnx.Expression e{i} 1 1 v{i} v{} expr=[@0]", i + 1)));
    deeper.push("pnnx.Output out 1 0 v5000".into());
    // One list, of as many members as there may be, read again and again.
    let read = |readers: usize, reader: &dyn Fn(usize) -> String| {
        let mut lines = vec![
            "pnnx.Input in 0 1 a #a=(65536)f32".to_owned(),
            "torch.unbind u 1 1 a l dim=0".to_owned(),
        ];
        lines.extend((0..readers).map(reader));
        let all: Vec<String> = (0..readers).map(|i| format!("v{i}")).collect();
        lines.push(format!("pnnx.Output out {readers} 0 {}", all.join(" ")));
        text(&lines)
    };
    let at_once = read(1, &|_| format!("pnnx.Expression e 1000 1 {}v0 expr=1", "l ".repeat(1000)));
    let again = read(1000, &|i| format!("torch.stack s{i} 1 1 l v{i} dim=0"));
    let long = format!("add(@0,{})", "1".repeat(1_000_000));
    let rows = [
        ("500 deep", one(&deep(500)), "= 1 1"),
        ("100,000 deep", one(&deep(100_000)), "! deep"),
        ("lists in lists", one(&lists), "! deep"),
        ("a wide list", one(&wide), "! a list may have 65536 members at most, this"),
        ("doubled a hundred times", text(&lines), "= 1.2676506002282294e30 1.2676506002282294e30"),
        ("lists that double twelve times", doubled("@0", 12), "= 1 1"),
        (
            "lists that double forty times",
            doubled("@0", 40),
            "! a list may have 65536 members at most, those",
        ),
        (
            "nothing that doubles forty times",
            doubled("None", 40),
            "! a list may have 65536 members at most, those",
        ),
        (
            "a list inside a list 5,000 times",
            text(&deeper),
            "! 64 lists may stand inside each other at most",
        ),
        ("a long list 1,000 times", at_once, "! and so may all lists that an operator reads"),
        ("a long list with 1,000 readers", again, "! budget"),
        ("a number of a million digits", one(&long), "! expected a 64-bit integer"),
    ];
    all(rows.iter().map(|(name, text, expected)| row(name, text, expected, 4)));
}

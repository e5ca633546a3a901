//! Graphs that no exporter makes.

use crate::harness::{LARGE, all, row, text};

/// Lines, and what must come of them.
#[rustfmt::skip]
const ROWS: &[(&str, &[&str], &str)] = &[
    ("nothing", &[], "= none"),
    ("inputs alone", &["pnnx.Input in 0 1 a #a=(1)f32"], "= none"),
    ("an output of nothing", &["pnnx.Output out 0 0"], "= none"),
    ("a cycle of one", &["nn.ReLU r 1 1 a a", "pnnx.Output out 1 0 a"], "! 3:1: these operators form a cycle: r -> r"),
    ("a cycle of two", &["nn.ReLU r 1 1 b a", "nn.ReLU s 1 1 a b", "pnnx.Output out 1 0 a"], "! 4:1: these operators form a cycle: s -> r ->"),
    ("readers before makers", &["pnnx.Output out 1 0 y", "nn.ReLU r 1 1 a y", "pnnx.Input in 0 1 a #a=(1)f32"], "= 1.0"),
    ("made twice", &["pnnx.Input in 0 1 a #a=(1)f32", "nn.ReLU r 1 1 a y", "nn.ReLU s 1 1 a y", "pnnx.Output out 1 0 y"], "! 5:17: operand 'y' is already made by 'r' in"),
    ("one name twice", &["pnnx.Input in 0 1 a #a=(1)f32", "nn.ReLU r 1 1 a b", "nn.ReLU r 1 1 b y", "pnnx.Output out 1 0 y"], "! 5:9: operator 'r' is already defined in line"),
    ("no input at all", &["nn.ReLU r 0 1 y", "pnnx.Output out 1 0 y"], "! input 'input' is missing"),
    ("too many inputs", &["pnnx.Input in 0 1 a #a=(1)f32", "nn.ReLU r 3 1 a a a y", "pnnx.Output out 1 0 y"], "! 3 inputs are given, of which the operator"),
    ("too many outputs", &["pnnx.Input in 0 1 a #a=(1)f32", "nn.ReLU r 1 3 a x y z", "pnnx.Output out 1 0 z"], "! the operator makes 1 output(s), the file"),
    ("the input is the output", &["pnnx.Input in 0 1 a #a=(2)f32", "pnnx.Output out 1 0 a"], "= 1.0 1.0"),
    ("one input twice", &["pnnx.Input in 0 1 a #a=(2)f32", "pnnx.Input in2 0 1 a #a=(2)f32", "pnnx.Output out 1 0 a"], "! 4:20: operand 'a' is already made by 'in' in"),
    ("shapes that contradict", &["pnnx.Input in 0 1 a #a=(2)f32", "nn.ReLU r 1 1 a y #a=(3)f32", "pnnx.Output out 1 0 y"], "! 4:20: operand 'a' is (3)f32 here, but (2)f32"),
    ("a recorded shape that is wrong", &["pnnx.Input in 0 1 a #a=(2)f32", "nn.ReLU r 1 1 a y #y=(9,9)f32", "pnnx.Output out 1 0 y"], "= 1.0 1.0"),
    ("a recorded shape beyond memory", &["pnnx.Input in 0 1 a #a=(2)f32", "nn.ReLU r 1 1 a y #y=(4294967296,4294967296,4294967296)f32", "pnnx.Output out 1 0 y"], "= 1.0 1.0"),
    ("a weight beyond memory", &["pnnx.Input in 0 1 a #a=(2)f32", "nn.ReLU r 1 1 a y @w=(4294967296,4294967296)f32", "pnnx.Output out 1 0 y"], "! (4294967296,4294967296) of f32 is larger than"),
    ("a product of dimensions that overflows to a little", &["pnnx.Input in 0 1 a #a=(2)f32", "Tensor.reshape r 1 1 a y shape=(4294967297,4294967297,2)", "pnnx.Output out 1 0 y"], "! shape (4294967297,4294967297,2) has more"),
    ("a tuple in itself", &["prim::TupleConstruct t 1 1 y y", "pnnx.Output out 1 0 y"], "! 3:1: these operators form a cycle: t -> t"),
    ("a tuple taken apart wrongly", &["pnnx.Input in 0 1 a #a=(2)f32", "prim::TupleConstruct t 1 1 a t", "prim::TupleUnpack u 1 2 t x y", "pnnx.Output out 1 0 y"], "! the tuple has 1 members, the file names 2"),
    ("a parameter twice", &["pnnx.Input in 0 1 a #a=(2)f32", "nn.Softmax s 1 1 a y dim=0 dim=9", "pnnx.Output out 1 0 y"], "! 4:28: 'dim' occurs twice on operator 's'"),
    ("a list of sizes before what it shapes", &["pnnx.Input in 0 1 a #a=(2,3)f32", "Tensor.size n 1 1 a n dim=0", "prim::Constant c 0 1 m value=3", "prim::ListConstruct l 2 1 n m l", "Tensor.reshape r 2 1 l a y $input=a $shape=l", "pnnx.Output out 1 0 y"], "= 1.0 1.0 1.0 1.0 1.0 1.0"),
    ("an empty list for a tensor", &["pnnx.Input in 0 1 a #a=(8)f32", "prim::ListConstruct l 0 1 l", "torch.dist d 2 1 l a y p=2", "pnnx.Output out 1 0 y"], "! input 0 must be a tensor of known shape"),
    ("more than there are", &["pnnx.Input in 0 1 a #a=(2,3)f32", "torch.topk t 1 2 a y i k=9223372036854775807 dim=1 largest=True sorted=True", "pnnx.Output out 1 0 y"], "! k is 9223372036854775807"),
    ("fewer than none", &["pnnx.Input in 0 1 a #a=(2,3)f32", "torch.topk t 1 2 a y i k=-1 dim=1 largest=True sorted=True", "pnnx.Output out 1 0 y"], "! -1"),
    ("a half of nothing", &["pnnx.Input in 0 1 a #a=(0,3)f16", "torch.mean m 1 1 a y dim=(1) keepdim=False", "pnnx.Output out 1 0 y"], "= [0]"),
    ("a norm of a great order", &["pnnx.Input in 0 1 a #a=(2)f32", "torch.dist d 2 1 a a y p=1e38", "pnnx.Output out 1 0 y"], "= 0.0"),
    ("least squares without full rank", &["pnnx.Input in 0 1 a #a=(3,2)f32", "pnnx.Input in2 0 1 b #b=(3,1)f32", "pnnx.Expression n 0 1 n expr=None", "pnnx.Expression g 0 1 g expr=gels", "aten::linalg_lstsq l 4 4 a b n g y r k s", "pnnx.Output out 1 0 r"], "= 1.4791141972893971e-31"),
];

#[test]
fn odd_graphs_are_refused_or_computed() {
    all(ROWS.iter().map(|(name, lines, expected)| row(name, &text(lines), expected, 1)));
}

#[test]
fn very_large_graphs_are_refused_or_computed() {
    let n = 100_000;
    let chain = |kind: &str, params: &str| {
        let mut lines = vec!["pnnx.Input in 0 1 v0 #v0=(2)f32".to_owned()];
        lines
            .extend((0..n).map(|i| {
                format!("{kind} o{i} 1 1 v{i} v{} {params}", i + 1).trim_end().to_owned()
            }));
        lines.push(format!("pnnx.Output out 1 0 v{n}"));
        text(&lines)
    };
    let mut readers = vec!["pnnx.Input in 0 1 a #a=(2)f32".to_owned()];
    readers.extend((0..n).map(|i| format!("nn.ReLU o{i} 1 1 a v{i}")));
    readers.push("pnnx.Output out 1 0 v7".into());
    let many = format!("torch.cat c {n} 1 {}y dim=0", "a ".repeat(n));
    let often = ["pnnx.Input in 0 1 a #a=(1)f32", &many, "pnnx.Output out 1 0 y"];
    let parameters: Vec<String> = (0..n).map(|i| format!("p{i}={i}")).collect();
    let line = format!("nn.ReLU r 1 1 a y {}", parameters.join(" "));
    let worded = ["pnnx.Input in 0 1 a #a=(1)f32", &line, "pnnx.Output out 1 0 y"];
    let dims = vec!["1"; n].join(",");
    let typed = format!("pnnx.Input in 0 1 a #a=({dims})f32");
    let ranked = [typed.as_str(), "pnnx.Output out 1 0 a"];
    let rows = [
        ("100,000 operators in a row", chain("nn.ReLU", ""), "! budget"),
        ("100,000 views in a row", chain("Tensor.view", "shape=(2)"), "! budget"),
        ("100,000 readers of one operand", text(&readers), "! budget"),
        ("one operand 100,000 times", text(&often), "= [100000]"),
        ("100,000 parameters", text(&worded), "! parameter 'p0=0' is not known to this"),
        ("100,000 dimensions", text(&ranked), "! 100000 dimensions of a tensor, the limit is 64"),
    ];
    all(rows.iter().map(|(name, text, expected)| row(name, text, expected, LARGE)));
}

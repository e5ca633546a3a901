//! Small models that describe large computations: they end at the budget.

use crate::harness::{all, row, text};

/// Operators in a row, each of which makes its input larger.
fn growing(kind: &str, params: &str, times: usize) -> String {
    let mut lines = vec!["pnnx.Input in 0 1 v0 #v0=(4,4,4,4)f32".to_owned()];
    for i in 0..times {
        lines.push(format!("{kind} o{i} 1 1 v{i} v{} {params}", i + 1));
    }
    lines.push(format!("pnnx.Output out 1 0 v{times}"));
    text(&lines)
}

#[test]
fn what_grows_ends_at_the_budget() {
    let wide = "upscale_factor=2";
    let rows = [
        ("repeats of repeats", growing("Tensor.repeat", "sizes=(2,2,2,2)", 40), "! "),
        (
            "padding of padding",
            growing("F.pad", "pad=(999,999,999,999) mode=constant value=1", 9),
            "! ",
        ),
        (
            "scaling of scaling",
            growing("F.interpolate", "mode=nearest scale_factor=(16,16)", 30),
            "! ",
        ),
        ("one that shrinks", growing("nn.PixelShuffle", wide, 2), "! "),
        (
            "expansion costs nothing, sums of it do",
            growing("Tensor.expand", "shape=(4,4,4,4)", 50),
            "= [4,4,4,4]",
        ),
    ];
    all(rows.iter().map(|(name, text, expected)| row(name, text, expected, 1)));
}

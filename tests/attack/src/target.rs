//! Bodies of the fuzz targets. Each takes any bytes, and panics where something is wrong that would
//! not panic of itself.
#![allow(clippy::panic)] // that is how a fuzzer is told

use crate::chance::Chance;
use crate::trial::{self, Bounds, Weights};
use plutino::ir::Graph;
use plutino::ir::expr::{Expr, Literal};
use plutino::{Model, npy};
use std::fmt::Write;
use std::time::Duration;

/// A target: its name, which is that of its file in `fuzz/fuzz_targets`, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const ALL: [Target; 5] =
    [("param", param), ("bin", bin), ("expression", expression), ("npz", npz), ("model", model)];

fn must<T>(what: Result<T, String>) -> T {
    what.unwrap_or_else(|fault| panic!("{fault}"))
}

/// A `.param` text: what is accepted fits together, and is the same when it was written and read.
/// Operators are decoded.
pub fn param(data: &[u8]) {
    let graph = match std::str::from_utf8(data) {
        Ok(text) => Graph::parse(text).map_err(|error| must(trial::fit(&error))),
        Err(_) => Graph::from_bytes(data, Vec::new()).map_err(|error| must(trial::fit(&error))),
    };
    let Ok(graph) = graph else { return };
    must(graph.validate().map_err(|error| format!("accepted, but {error}")));
    if let Ok(text) = graph.to_param_string() {
        match Graph::parse(&text) {
            Ok(again) if again == graph => {}
            Ok(_) => panic!("what was written reads back as another graph:\n{text}"),
            Err(error) => panic!("what was written is refused: {error}\n{text}"),
        }
    }
    if let Err(error) = Model::from_graph(graph) {
        must(trial::fit(&error));
    }
}

/// The text for which [`bin`] reads weights, which are those of the fixture `digits`.
pub const BIN_TEXT: &str = include_str!("../../../fixtures/digits/model.pnnx.param");

/// A `.bin` archive, for a given text.
pub fn bin(data: &[u8]) {
    match Graph::from_bytes(BIN_TEXT, data.to_vec()) {
        Err(error) => must(trial::fit(&error)),
        Ok(graph) => {
            let written = must(graph.to_bin_bytes().map_err(|error| error.to_string()));
            let again =
                must(Graph::from_bytes(BIN_TEXT, written).map_err(|error| error.to_string()));
            assert!(again == graph, "weights that were written read back as others");
        }
    }
}

/// An expression, parsed, printed, and computed on a tensor, a number and a list of sizes.
pub fn expression(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Literal::parse(text) {
        Ok(literal) => {
            let printed = literal.to_string();
            let again = Literal::parse(&printed).map(|literal| literal.to_string());
            assert!(again.as_ref() == Ok(&printed), "{printed} reads back as {again:?}");
        }
        Err(error) => must(trial::fit(&error)),
    }
    match Expr::parse(text) {
        Ok(expr) => {
            let printed = expr.to_string();
            let again = Expr::parse(&printed).map(|expr| expr.to_string());
            assert!(again.as_ref() == Ok(&printed), "{printed} reads back as {again:?}");
        }
        Err(error) => return must(trial::fit(&error)),
    }
    if text.contains(char::is_whitespace) {
        return;
    }
    let mut model = String::from("7767517\n6 5\n");
    let lines = [
        "pnnx.Input in_a 0 1 a #a=(2,3)f32",
        "pnnx.Input in_b 0 1 b #b=(3)i64",
        "pnnx.Expression n 0 1 c expr=7",
        "Tensor.size s 1 1 a d",
    ];
    lines.iter().for_each(|line| model.extend([line, "\n"]));
    let _ = writeln!(model, "pnnx.Expression x 4 1 a b c d e expr={text}");
    model.push_str("pnnx.Output out 1 0 e\n");
    attempt(model.as_bytes(), data);
}

/// A `.npz` archive, and a `.npy` file: what is read is written and read again.
pub fn npz(data: &[u8]) {
    match npy::npz::read(data) {
        Ok(arrays) => {
            let mut written = std::io::Cursor::new(Vec::new());
            let views = arrays.iter().map(|(name, tensor)| (name.as_str(), tensor.view()));
            // Names that no archive can hold twice are refused; what is written must be right.
            if npy::npz::write(&mut written, views).is_ok() {
                let again = npy::npz::read(written.get_ref());
                let again = must(again.map_err(|error| format!("what was written: {error}")));
                assert!(again.len() == arrays.len(), "arrays are lost");
                for ((name, a), (other, b)) in arrays.iter().zip(&again) {
                    assert!(name == other && a.spec() == b.spec() && a.as_bytes() == b.as_bytes());
                }
            }
        }
        Err(error) => must(trial::fit(&error)),
    }
    match npy::read(data) {
        Ok(tensor) => {
            let mut written = Vec::new();
            must(npy::write(&mut written, &tensor.view()).map_err(|error| error.to_string()));
            let again = must(npy::read(&written).map_err(|error| error.to_string()));
            assert!(tensor.spec() == again.spec() && tensor.as_bytes() == again.as_bytes());
        }
        Err(error) => must(trial::fit(&error)),
    }
}

/// A `.param` text that is loaded with weights that are made up, planned and run.
pub fn model(data: &[u8]) {
    attempt(data, data);
}

fn attempt(text: &[u8], key: &[u8]) {
    let mut chance = Chance::of(&String::from_utf8_lossy(key));
    let bounds = Bounds { budget: 16 << 20, time: Duration::from_millis(500) };
    must(trial::attempt(text, &Weights::Made(key.to_vec()), &[], &[], &mut chance, bounds));
}

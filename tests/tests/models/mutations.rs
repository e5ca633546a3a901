//! Damaged models: loading, planning and running end in a result or an error, never in a panic, and
//! within the memory budget. The damage is the same every time.

use plutino::ir::Graph;
use plutino::{Model, SessionOptions, Tensor};
use plutino_fixtures::{Fixture, Words};
use plutino_tests::{fixture, inputs, specs};

/// What a run of a damaged model may take.
const BUDGET: usize = 64 << 20;

/// One kind of damage to a text, at places that `random` chooses.
fn damage(text: &str, random: &mut Words) -> String {
    let mut pick = |n: usize| (random.next().unwrap_or(0) % n.max(1) as u64) as usize;
    let mut lines: Vec<Vec<&str>> =
        text.lines().map(|l| l.split(' ').filter(|t| !t.is_empty()).collect()).collect();
    let kind = pick(8);
    let line = 2 + pick(lines.len() - 2);
    let other = 2 + pick(lines.len() - 2);
    let (a, b) = (pick(lines[line].len()), pick(lines[other].len()));
    let changed;
    match kind {
        0 => return text[..pick(text.len())].to_owned(),
        1 => {
            let mut bytes = text.as_bytes().to_vec();
            let at = pick(bytes.len());
            bytes[at] = b" 0123456789=@#$(),-.%?\nxf"[pick(25)];
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        2 => {
            let copy = lines[line].clone();
            lines.insert(other, copy);
        }
        3 => {
            let (x, y) = (lines[line][a], lines[other][b]);
            (lines[line][a], lines[other][b]) = (y, x);
        }
        4 => {
            lines[line].remove(a);
        }
        5 => {
            let token = lines[other][b];
            lines[line].push(token);
        }
        // Values of parameters: the damage that reaches furthest.
        _ => {
            let values = [
                "0",
                "-1",
                "1",
                "7",
                "2147483647",
                "(0,0)",
                "(3,1)",
                "None",
                "1.5",
                "x",
                "()",
                "(1,2,3,4,5,6,7)",
            ];
            let params: Vec<usize> =
                (0..lines[line].len()).filter(|&i| lines[line][i].contains('=')).collect();
            if let Some(&at) = params.get(pick(params.len())) {
                let key = lines[line][at].split('=').next().unwrap_or_default();
                changed = format!("{key}={}", values[pick(values.len())]);
                lines[line][at] = &changed;
            }
        }
    }
    let mut text: Vec<String> = lines.iter().map(|l| l.join(" ")).collect();
    text[1] = counts(&lines);
    text.join("\n")
}

/// The counts that the damaged text should state, so that damage reaches beyond the parser.
fn counts(lines: &[Vec<&str>]) -> String {
    let outputs = lines[2..].iter().filter_map(|l| l.get(3)?.parse::<usize>().ok());
    format!("{} {}", lines.len() - 2, outputs.fold(0usize, usize::saturating_add))
}

/// Loads, plans and, if there are weights, runs.
fn survive(text: &str, weights: Option<&[u8]>, inputs: &[Tensor]) -> &'static str {
    let graph = match weights {
        Some(bin) => Graph::from_bytes(text, bin.to_vec()).ok(),
        None => Graph::parse(text).ok(),
    };
    let Some(model) = graph.and_then(|g| Model::from_graph(g).ok()) else { return "refused" };
    let options = SessionOptions::default().with_threads(1).with_memory_budget(BUDGET);
    let session = model.session(options).unwrap();
    let given = specs(inputs);
    let specs: Vec<_> =
        model.inputs().iter().zip(given.iter().cycle()).map(|(_, s)| s.clone()).collect();
    if session.plan(&specs).is_err() {
        return "not planned";
    }
    match session.run(&inputs.iter().cycle().take(specs.len()).cloned().collect::<Vec<_>>()) {
        Ok(_) => "ran",
        Err(_) => "failed",
    }
}

#[test]
fn damaged_networks_are_refused_or_planned() {
    for fixture in Fixture::all().unwrap() {
        let text = std::fs::read_to_string(fixture.param_path()).unwrap();
        let inputs = inputs(&fixture);
        let mut random = Words::of(&fixture.name);
        for _ in 0..60 {
            survive(&damage(&text, &mut random), None, &inputs);
        }
    }
}

#[test]
fn damaged_digits_run_or_fail() {
    let fixture = fixture("digits");
    let text = std::fs::read_to_string(fixture.param_path()).unwrap();
    let bin = std::fs::read(fixture.path().join("model.pnnx.bin")).unwrap();
    let few = Tensor::zeros(plutino::DType::F32, [2, 1, 8, 8]).unwrap();
    let mut random = Words::of("damaged digits");
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..1500 {
        let outcome = survive(&damage(&text, &mut random), Some(&bin), std::slice::from_ref(&few));
        *seen.entry(outcome).or_insert(0) += 1;
    }
    // The damage reaches every stage, else this tests the parser alone.
    assert!(seen["ran"] > 20 && seen["not planned"] > 20 && seen["refused"] > 20, "{seen:?}");
}

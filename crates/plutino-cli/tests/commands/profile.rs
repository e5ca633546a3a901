//! `profile`: rows, sums, traces, comparisons.

use crate::{Folder, digits, fails, json, ok, plutino, program_text};
use serde_json::Value;
use std::collections::BTreeMap;

const FEW: [&str; 6] = ["--shape", "64x1x8x8", "-n", "3", "--warmup", "1"];

fn rows<'a>(report: &'a Value, key: &str) -> &'a [Value] {
    report[key].as_array().unwrap()
}

fn sum(rows: &[Value], key: &str) -> f64 {
    rows.iter().map(|row| row[key].as_f64().unwrap()).sum()
}

#[test]
fn totals_are_the_sums_of_rows() {
    let model = digits("model.pnnx.param");
    let report = json(&[&["profile", &model, "--json", "-t", "2"], &FEW[..]].concat());
    let (total, between) = (&report["total_ms"], &report["between_ms"]);
    let (total, between) = (total.as_f64().unwrap(), between.as_f64().unwrap());
    for key in ["operators", "kinds", "scopes"] {
        let rows = rows(&report, key);
        assert!((sum(rows, "ms") + between - total).abs() < 1e-9 * total, "{key}");
        assert!((sum(rows, "percent") + between / total * 100.0 - 100.0).abs() < 1e-6, "{key}");
        let count = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(count as usize, report["operators"].as_array().unwrap().len(), "{key}");
    }
    // A run of microseconds is told in microseconds, with the same sums.
    let small = ["profile", &model, "--shape", "1x1x8x8", "-n", "5", "-t", "1"];
    let text = ok(&small);
    let last = text.lines().last().unwrap();
    let head = text.lines().next().unwrap();
    let unit = if last.contains(" µs, the mean") { "µs" } else { "ms" };
    assert!(head.split_whitespace().any(|word| word == unit), "{text}");
    let time = |start: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        words[words.len() - 2].parse().unwrap()
    };
    let whole: f64 = last.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((time("(run)") - whole).abs() < 0.002, "{text}");
}

#[test]
fn modules_are_told_by_names() {
    let folder = Folder::new();
    let line = |name: &str, from: usize| format!("torch.sin {name} 1 1 {from} {}\n", from + 1);
    let names = ["a.x.one", "a.x.two", "a.y.one", "top", "torch.sin_7"];
    let lines: String = names.iter().enumerate().map(|(i, name)| line(name, i)).collect();
    let model = folder.write(
        "model.pnnx.param",
        format!("7767517\n7 6\npnnx.Input in 0 1 0 #0=(8)f32\n{lines}pnnx.Output out 1 0 5\n"),
    );
    let scopes = |more: &[&str]| -> BTreeMap<String, u64> {
        let args = ["profile", &model, "--json", "-n", "1", "--disable", "chain"];
        let report = json(&[&args[..], more].concat());
        let scope = |row: &Value| row["scope"].as_str().unwrap_or_default().to_owned();
        let rows = rows(&report, "scopes").iter();
        rows.map(|row| (scope(row), row["count"].as_u64().unwrap())).collect()
    };
    let expected = |pairs: &[(&str, u64)]| pairs.iter().map(|(k, n)| ((*k).into(), *n)).collect();
    assert_eq!(scopes(&[]), expected(&[("", 2), ("a.x", 2), ("a.y", 1)]));
    assert_eq!(scopes(&["--depth", "1"]), expected(&[("", 2), ("a", 3)]));
    let text = ok(&["profile", &model, "-n", "1", "--disable", "chain"]);
    assert!(text.contains("module") && text.contains("(top level)"), "{text}");
}

#[test]
fn a_trace_has_a_row_for_each_thread() {
    let folder = Folder::new();
    let (model, file) = (digits("model.pnnx.param"), folder.path("trace.json"));
    ok(&[&["profile", &model, "--trace", &file, "-t", "2"], &FEW[..]].concat());
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |ph: &str| events.iter().filter(move |e| e["ph"] == ph).collect::<Vec<_>>();
    let names: Vec<&str> = of("M")
        .iter()
        .filter(|e| e["name"] == "thread_name")
        .map(|e| e["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["steps", "thread 0 (the caller)", "thread 1"]);
    // On each row events lie inside or beside each other, in whatever order they are written.
    let mut rows: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for e in of("X") {
        let number = |key: &str| e[key].as_f64().unwrap();
        assert!(number("dur") >= 0.0 && number("ts") >= 0.0);
        let tid = e["tid"].as_u64().unwrap();
        rows.entry(tid).or_default().push((number("ts"), number("ts") + number("dur")));
    }
    for (tid, spans) in &mut rows {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        for &(start, end) in spans.iter() {
            open.retain(|outer| *outer > start + 1e-3);
            assert!(open.iter().all(|outer| end <= outer + 1e-3), "row {tid}: {start} to {end}");
            open.push(end);
        }
    }
    assert_eq!(rows.len(), 3, "steps and two threads");
    let conv = of("X").into_iter().find(|e| e["tid"] == 1 && e["cat"] == "kernel").unwrap();
    let about = &conv["args"];
    assert!(about["kernel"].as_str().unwrap().starts_with("conv"), "{conv}");
    assert!(about["outputs"][0].as_str().unwrap().contains("(64,16,8,8)f32"), "{conv}");
    assert!(about["gflop_per_s"].as_f64().unwrap() > 0.0);
    let counters = of("C");
    let steps = of("X").iter().filter(|e| e["tid"] == 0).count();
    assert_eq!(counters.len(), steps + 1);
    assert!(counters.iter().any(|e| e["args"]["bytes"].as_u64().unwrap() > 0));
    assert_eq!(counters.last().unwrap()["args"]["bytes"], 0);
    assert!(of("X").iter().any(|e| e["cat"] == "wait" && e["tid"] == 2));
    assert_eq!(trace["otherData"]["threads"], 2);
    fails(&[&["profile", &model, "--trace", &folder.path("no/t.json")], &FEW[..]].concat(), 2);
}

#[test]
fn profiles_are_compared() {
    let folder = Folder::new();
    let model = digits("model.pnnx.param");
    let base = [&["profile", &model, "-t", "1"], &FEW[..]].concat();
    let old = ok(&[&base[..], &["--json"]].concat());
    let old_file = folder.write("old.json", &old);
    let old: Value = serde_json::from_str(&old).unwrap();
    let args = ["--against", &old_file, "--disable", "fuse"];
    let report = json(&[&base[..], &args, &["--json"]].concat());
    let against = &report["against"];
    assert_eq!(against["old_total_ms"], old["total_ms"]);
    assert_eq!(against["total_ms"], report["total_ms"]);
    let changes = rows(against, "operators");
    let relu = changes.iter().find(|c| c["name"] == "relu").unwrap();
    assert!(relu["old_ms"].is_null() && relu["ms"].is_number(), "a step of its own now: {relu}");
    let conv = changes.iter().find(|c| c["name"] == "convbn2d_0").unwrap();
    let difference = conv["ms"].as_f64().unwrap() - conv["old_ms"].as_f64().unwrap();
    assert!((conv["difference_ms"].as_f64().unwrap() - difference).abs() < 1e-12);
    let sizes: Vec<f64> =
        changes.iter().map(|c| c["difference_ms"].as_f64().unwrap().abs()).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let text = ok(&[&base[..], &args].concat());
    assert!(text.contains("difference") && text.contains("(run)"), "{text}");
    let bad = folder.write("bad.json", "{}");
    let error = fails(&[&base[..], &["--against", &bad]].concat(), 2);
    assert!(error.contains("no profile"), "{error}");
}

#[test]
fn tables_for_others() {
    let model = digits("model.pnnx.param");
    let base = [&["profile", &model, "-t", "1"], &FEW[..]].concat();
    let csv = ok(&[&base[..], &["--csv"]].concat());
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(&header[..3], ["type", "operator", "module"]);
    let first = lines.next().unwrap();
    assert!(first.contains("\"(64,1,8,8)f32"), "shapes hold commas: {first}");
    assert_eq!(csv.lines().filter(|line| line.starts_with("(between steps),")).count(), 1);
    let text = ok(&[&base[..], &["--allocations"]].concat());
    assert!(text.contains("freed by"), "{text}");
    let report = json(&[&base[..], &["--allocations", "--json"]].concat());
    assert!(!rows(&report, "allocations").is_empty());
    fails(&[&base[..], &["--csv", "--json"]].concat(), 2);
}

#[test]
fn a_request_is_profiled() {
    let folder = Folder::new();
    let model = digits("model.pnnx.param");
    let names = |args: &[&str]| -> Vec<String> {
        let base = ["profile", &model, "-n", "1", "-t", "1", "--json"];
        let report = json(&[&base[..], args].concat());
        let operators = rows(&report, "operators").iter();
        let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
        operators.map(name).filter(|name| !name.contains("->")).collect()
    };
    let made_up = names(&["--shape", "2x1x8x8", "--fetch", "pool"]);
    assert!(made_up.iter().any(|n| n == "convbn2d_0") && made_up.iter().all(|n| n != "head"));
    let x = plutino::Tensor::zeros(plutino::DType::F32, [2, 256]).unwrap();
    let file = folder.path("x.npy");
    plutino::npy::save(&file, &x.view()).unwrap();
    let fed = names(&["--feed", &format!("9={file}")]);
    assert_eq!(fed, ["head"]);
}

/// What was measured is what is estimated, for the same shapes and threads.
#[test]
fn recorded_costs_are_estimates() {
    let folder = Folder::new();
    let (model, file) = (digits("model"), folder.path("costs.json"));
    let cost = ["info", &model, "--shape", "1x1x8x8", "--cost", "-t", "1"];
    assert!(ok(&cost).contains("; built-in figures"));
    ok(&["profile", &model, "--shape", "1x1x8x8", "-t", "1", "-n", "3", "--record", &file]);
    let recorded = [&cost[..], &["--costs", &file]].concat();
    assert!(ok(&recorded).contains("; all operators as recorded"));
    let report = json(&[&recorded[..], &["--json"]].concat());
    let rows = report["cost"]["operators"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["bound"] == "recorded"));
    // Those of other shapes are not.
    let larger = recorded.iter().map(|arg| if *arg == "1x1x8x8" { "3x1x8x8" } else { arg });
    assert!(ok(&larger.collect::<Vec<_>>()).contains("; built-in figures"));
}

#[test]
fn a_type_is_no_module() {
    let folder = Folder::new();
    // pnnx calls functions after their types; here one becomes a part of the layer before it.
    let model = folder.write(
        "net.pnnx.param",
        program_text(&[
            "pnnx.Input in 0 1 x #x=(1,4)f32",
            "nn.Linear linear_0 1 1 x y bias=False in_features=4 out_features=4 @weight=(4,4)f32",
            "F.relu F.relu_0 1 1 y z",
            "pnnx.Output out 1 0 z",
        ]),
    );
    let output = plutino(&["info", &model, "--cost", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let operators = report["cost"]["operators"].as_array().unwrap();
    assert_eq!(operators.len(), 1, "{operators:?}");
    let scopes = report["cost"]["scopes"].as_array().unwrap();
    assert!(scopes.iter().all(|row| row.get("scope").is_none()), "{scopes:?}");
}

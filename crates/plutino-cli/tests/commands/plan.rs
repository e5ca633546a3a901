//! `info`: plans, values, memory, and models without weights.

use crate::{Folder, digits, fails, json, ok, plutino, run};
use serde_json::Value;
use std::path::Path;

const SHAPE: [&str; 2] = ["--shape", "4x1x8x8"];

fn of<'a>(values: &'a Value, name: &str) -> &'a Value {
    values.as_array().unwrap().iter().find(|v| v["name"] == name).unwrap()
}

#[test]
fn every_value_is_listed() {
    let model = digits("model.pnnx.param");
    let report = json(&[&["info", &model, "--memory", "--plan", "--json"], &SHAPE[..]].concat());
    let values = &report["values"];
    let (input, output) = (of(values, "0"), of(values, "10"));
    assert_eq!((&input["kind"], &input["storage"]), (&"bound".into(), &"input 0".into()));
    assert_eq!((&input["made"], &input["bytes"]), (&Value::Null, &(4 * 64 * 4).into()));
    assert_eq!((&output["result"], &output["kind"]), (&true.into(), &"internal".into()));
    let steps = report["plan"].as_array().unwrap();
    assert_eq!(output["made"].as_u64().unwrap() as usize, steps.len() - 1);
    let flat = values.as_array().unwrap().iter().find(|v| v["shares"] == "view of").unwrap();
    assert!(flat["with"].is_string());
    // The log of the arena: as many bytes in use at one time as the report says.
    let arena = report["memory"]["arena_bytes"].as_u64().unwrap();
    let log = report["allocations"].as_array().unwrap();
    assert!(!log.is_empty());
    for entry in log {
        let number = |key: &str| entry[key].as_u64().unwrap();
        assert!(number("offset") + number("bytes") <= arena, "{entry}");
        assert!(entry["freed_by"].as_u64().is_none_or(|last| last >= number("step")));
    }
    let text = ok(&[&["info", &model, "--memory"], &SHAPE[..]].concat());
    assert!(text.contains("bound") && text.contains("view of") && text.contains("freed by"));
    let text = ok(&[&["info", &model, "--plan"], &SHAPE[..]].concat());
    assert!(text.contains("FLOP, ") && text.contains("storage"), "{text}");
    assert!(!text.contains("freed by"), "{text}");
}

#[test]
fn the_arena_is_drawn() {
    let folder = Folder::new();
    let (model, file) = (digits("model.pnnx.param"), folder.path("arena.svg"));
    ok(&[&["info", &model, "--svg", &file], &SHAPE[..]].concat());
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg xmlns") && svg.trim_end().ends_with("</svg>"));
    let report = json(&[&["info", &model, "--memory", "--plan", "--json"], &SHAPE[..]].concat());
    let entries = report["allocations"].as_array().unwrap().len();
    let steps = report["plan"].as_array().unwrap().len();
    assert_eq!(svg.matches("<title>").count(), entries + steps);
    assert!(svg.contains("nn.Conv2d convbn2d_1"), "{svg}");
    fails(&[&["info", &model, "--svg", &folder.path("no/arena.svg")], &SHAPE[..]].concat(), 2);
}

#[test]
fn plans_need_no_weights() {
    let folder = Folder::new();
    let whole = digits("model.pnnx.param");
    let text = std::fs::read_to_string(&whole).unwrap();
    let alone = folder.write("alone.pnnx.param", &text);
    let args = ["--plan", "--memory", "--json", "-t", "1"];
    let report = |model: &str| {
        let (out, err) = run(&[&["info", model], &args[..], &SHAPE].concat(), 0);
        (serde_json::from_str::<Value>(&out).unwrap(), err)
    };
    let ((with, silent), (without, note)) = (report(&whole), report(&alone));
    assert_eq!(silent, "");
    assert!(note.contains("alone.pnnx.bin") && note.contains("zeros stand in"), "{note}");
    for part in ["plan", "memory", "values", "allocations"] {
        assert_eq!(with[part], without[part], "{part}");
    }
    // Weights that no machine has room for are refused before any memory is taken.
    let head = text.lines().find(|line| line.contains(" head ")).unwrap();
    let huge = head.replace("(10,256)", "(1000000000,1000000000)");
    assert_ne!(head, huge);
    let model = folder.write("huge.pnnx.param", text.replace(head, &huge));
    let error = fails(&[&["info", &model, "--plan"], &SHAPE[..]].concat(), 4);
    assert!(error.contains("zeros cannot stand in for weights of 4000000000"), "{error}");
    let error =
        fails(&[&["info", &alone, "--plan", "--max-memory", "100kB"], &SHAPE[..]].concat(), 4);
    assert!(error.contains("at most 100000 are allowed"), "{error}");
    // Running needs them.
    assert!(fails(&["bench", &alone, "-n", "1"], 3).contains("alone.pnnx.bin"));
}

/// One definition: whoever tells what a model takes tells the same.
#[test]
fn totals_agree() {
    let model = digits("model");
    let with = |command: &[&str]| {
        let args = [command, &[&model, "--json", "-t", "2"], &SHAPE[..]].concat();
        json(&args)["memory"].clone()
    };
    let memory = with(&["info", "--memory"]);
    let part = |name: &str| memory[format!("{name}_bytes")].as_u64().unwrap();
    let parts = ["weight", "packed", "table", "arena", "output"].map(part);
    assert_eq!(parts.iter().sum::<u64>(), part("total"), "{memory}");
    assert!(part("packed") > 0 && part("mapped") > 0 && part("weight") == 0, "{memory}");
    assert_eq!(with(&["bench", "-n", "1"]), memory);
    assert_eq!(with(&["profile", "-n", "1"]), memory);
}

#[test]
fn check_and_ops_as_json() {
    let folder = Folder::new();
    let report = json(&["check", &digits("model"), "--json"]);
    assert_eq!((&report["ok"], &report["operators"]), (&true.into(), &12.into()));
    assert!(report["summary"].as_str().unwrap().contains("all supported"));
    let model = folder.write(
        "model.pnnx.param",
        "7767517\n3 2\npnnx.Input a 0 1 0 #0=(1)f32\nnn.Rellu b 1 1 0 1\npnnx.Output d 1 0 1\n",
    );
    let (out, err) = run(&["check", &model, "--json"], 3);
    let report: Value = serde_json::from_str(&out).unwrap();
    let found = &report["unsupported"][0];
    assert_eq!((&report["ok"], &found["kind"]), (&false.into(), &"nn.Rellu".into()));
    assert_eq!((&found["line"], &found["nearest"]), (&4.into(), &"nn.ReLU".into()));
    assert!(err.contains("nn.Rellu"));
    let all = json(&["ops", "conv2d", "--json"]);
    let conv = all.as_array().unwrap().iter().find(|k| k["type"] == "nn.Conv2d").unwrap();
    assert!(conv["parameters"].as_array().unwrap().len() > 3, "{conv}");
    let one = json(&["ops", "nn.Conv2d", "--json"]);
    assert_eq!((&one[0], one.as_array().unwrap().len()), (conv, 1));
}

/// Contexts of all cores: one where there is one core, else two.
#[test]
fn steps_are_placed_in_contexts() {
    let model = digits("model.pnnx.param");
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let base = ["info", &model, "--plan", "--json"];
    if cores < 2 {
        fails(&[&base[..], &["--contexts", "2"]].concat(), 2);
        return;
    }
    let of = |more: &[&str]| {
        let report = json(&[&base[..], &["--contexts", "2"], &SHAPE[..], more].concat());
        let contexts = report["contexts"].as_array().unwrap().clone();
        assert_eq!(contexts.len(), 2);
        assert!(contexts.iter().all(|c| c["threads"].as_u64().unwrap() >= 1));
        let ends = |c: &Value| c["segments"].as_array().unwrap().len();
        let segments = contexts.iter().map(ends).collect::<Vec<_>>();
        (segments, report["warnings"].as_array().unwrap().len())
    };
    // By cost each has a part; by wish the second one has nothing.
    assert_eq!(of(&[]), (vec![1, 1], 0));
    let wish = ["--contexts", "2", "--place", "nn.Conv2d=1", "--place", "convbn2d_0=0"];
    let report = json(&[&base[..], &SHAPE[..], &wish[..]].concat());
    let steps = report["plan"].as_array().unwrap();
    for step in steps.iter().filter(|step| step["kind"] == "nn.Conv2d") {
        let first = step["name"] == "convbn2d_0";
        assert_eq!(step["context"].as_u64(), Some(u64::from(!first)), "{step}");
    }
    assert_eq!(of(&["--place", "nothing=1", "--place", "nn.Conv2d=7"]).1, 2);
    let (out, warned) = run(
        &[&["info", &model, "--plan", "--contexts", "2", "--place", "nn.Conv2d=7"], &SHAPE[..]]
            .concat(),
        0,
    );
    assert!(out.contains("\ncontext 0, ") && out.contains("\ncontext 1, "), "{out}");
    assert!(warned.contains("'nn.Conv2d' cannot be placed in context 7"), "{warned}");
    // Whoever plans tells of names that mean nothing.
    let odd = ["--contexts", "2", "--place", "convbn2d_9=1", "--together", "hed,nn.Conv2d"];
    let (shape, picture) = (&SHAPE[..], digits("samples/3.png"));
    for (command, more) in [
        (&["info", "--plan"][..], shape),
        (&["bench", "-n", "1"], shape),
        (&["profile", "-n", "1"], shape),
        (&["run"], &["-i", &picture]),
        (&["classify"], &["-i", &picture]),
    ] {
        let (_, warned) = run(&[command, &[&model], more, &odd[..]].concat(), 0);
        for (name, meant) in [("convbn2d_9", "convbn2d_"), ("hed", "head")] {
            let told =
                format!("no operator has the name, scope or type '{name}'; the most similar");
            assert!(warned.contains(&told) && warned.contains(meant), "{command:?}: {warned}");
        }
    }
    let fused = ["--contexts", "2", "--together", "relu,head"];
    let (_, warned) = run(&[&["run", &model, "-i", &picture], &fused[..]].concat(), 0);
    assert!(warned.contains("'relu' means nothing of the plan"), "{warned}");
    for bad in ["0", "1000000", "x", "0/", "0/0-"] {
        fails(&["info", &model, "--plan", "--contexts", bad], 2);
    }
    fails(&["info", &model, "--plan", "--contexts", "2", "--threads", "2"], 2);
    fails(&["info", &model, "--plan", "--place", "a=0"], 2);
    // What is computed is the same.
    let folder = crate::Folder::new();
    let (a, b) = (folder.path("a.npz"), folder.path("b.npz"));
    ok(&["run", &model, "-i", &digits("inputs.npz"), "-o", &a]);
    ok(&["run", &model, "-i", &digits("inputs.npz"), "-o", &b, "--contexts", "2"]);
    assert_eq!(std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
}

/// The parts one after the other, as the manifest says, compute to the bit what the whole does.
#[test]
fn a_model_becomes_several() {
    let folder = crate::Folder::new();
    let (model, parts) = (digits("model.pnnx.param"), folder.path("parts"));
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        return;
    }
    let place = ["--contexts", "2", "--place", "convbn2d_2=1", "--place", "head=1"];
    let shape = ["--shape", "3x1x8x8"];
    let text = ok(&[&["partition", &model, "-o", &parts], &place[..], &shape[..]].concat());
    assert!(text.contains("part0.pnnx.param") && text.contains("partition.json"), "{text}");
    let manifest = std::fs::read_to_string(format!("{parts}/partition.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let again = [&["partition", &model, "-o", &parts, "--json"], &place[..], &shape[..]].concat();
    assert_eq!(crate::json(&again), manifest);
    let of = |key: &str| manifest[key].as_array().unwrap().clone();
    assert!(of("parts").len() >= 2, "{manifest}");
    let mut values: Vec<(String, plutino::Tensor)> = Vec::new();
    let x = plutino::Tensor::from_fn::<f32>([3, 1, 8, 8], |i| (i % 16) as f32 / 16.0).unwrap();
    let links = of("links");
    for link in links.iter().filter(|link| link["from"].is_null()) {
        values.push((link["operand"].as_str().unwrap().to_owned(), x.clone()));
    }
    for (number, part) in of("parts").iter().enumerate() {
        let path = format!("{parts}/{}", part["model"].as_str().unwrap());
        let part = plutino::Model::load(path).unwrap();
        let session = part.session(plutino::SessionOptions::default()).unwrap();
        let number = Value::from(number);
        let operands = |key: &str| -> Vec<String> {
            let links = links.iter().filter(|link| link[key] == number);
            links.map(|link| link["operand"].as_str().unwrap().to_owned()).collect()
        };
        let (takes, gives) = (operands("to"), operands("from"));
        let mut request = plutino::Request::new();
        for operand in &takes {
            let found = values.iter().find(|(name, _)| name == operand).unwrap();
            request = request.feed(operand, &found.1);
        }
        for operand in &gives {
            request = request.fetch(operand);
        }
        let made = session.run_with(&request).unwrap();
        values.extend(gives.iter().cloned().zip(made));
    }
    let whole = plutino::Model::load(&model).unwrap();
    let whole = whole.session(plutino::SessionOptions::default()).unwrap();
    let expected = whole.run(std::slice::from_ref(&x)).unwrap();
    let results = links.iter().filter(|link| link["to"].is_null());
    let results = results.map(|link| {
        let operand = link["operand"].as_str().unwrap();
        values.iter().find(|(name, _)| name == operand).unwrap().1.clone()
    });
    assert_eq!(results.collect::<Vec<_>>(), expected);
    // What a partition into more parts left there is told of, and stays.
    let left = ["part7.pnnx.param", "part7.pnnx.bin"].map(|name| format!("{parts}/{name}"));
    left.iter().for_each(|path| std::fs::write(path, "").unwrap());
    std::fs::write(format!("{parts}/party.pnnx.bin"), "").unwrap();
    let (_, warned) =
        run(&[&["partition", &model, "-o", &parts], &place[..], &shape[..]].concat(), 0);
    assert!(warned.contains("2 files of parts that this partition does not have"), "{warned}");
    assert!(warned.contains("part7.pnnx.bin") && left.iter().all(|p| Path::new(p).exists()));
    fails(&["partition", &model, "-o", &parts, "--place", "head=1"], 2);
}

/// The plan names what computes at a precision; what the CPU lacks is emulated where the
/// environment says so.
#[test]
fn precision_shows_in_the_plan() {
    let model = digits("model.pnnx.param");
    // Tiles want more to do than there is for digits.
    let larger = digits("../squeezenet1_1/model.pnnx.param");
    for (isa, precision, kernel) in [
        ("bf16-emulated", "medium", "gemm.emulated"),
        ("amx-emulated", "medium", ".bf16x1.amx-emulated"),
        ("amx-emulated", "high", ".bf16x2.amx-emulated"),
        ("amx-emulated", "highest", ".bf16x3.amx-emulated"),
        ("scalar", "medium", "gemm.scalar"),
    ] {
        let (model, shape) = match isa {
            "amx-emulated" => (&larger, &[][..]),
            _ => (&model, &SHAPE[..]),
        };
        let args = ["info", model, "--plan", "--precision", precision];
        let output =
            plutino(&[&args[..], shape].concat()).env("PLUTINO_ISA", isa).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(kernel), "{isa} {precision}: {text}");
    }
    let args = ["info", &model, "--plan", "--precision-of", "head=medium"];
    let output =
        plutino(&[&args[..], &SHAPE].concat()).env("PLUTINO_ISA", "bf16-emulated").output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(text.contains("gemm.emulated") && !text.contains("_bf16"), "{text}");
    let error = fails(&["run", &model, "--precision", "low"], 2);
    assert!(error.contains("highest, high or medium"), "{error}");
    let args = ["info", &model, "--plan", "--precision-of", "hea=high"];
    let error = fails(&[&args[..], &SHAPE].concat(), 2);
    assert!(error.contains("found 'hea'"), "{error}");
}

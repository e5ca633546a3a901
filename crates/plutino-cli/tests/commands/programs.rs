//! Definitions, control flow, parts of models and smaller models, on the command line.

use crate::{Folder, fails, json, ok, run};
use std::path::Path;

/// A file of a folder of `fixtures/programs`.
fn program(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/programs")
        .join(name)
        .display()
        .to_string()
}

#[test]
fn definitions_are_given_by_type_and_by_folder() {
    let model = program("kept_whole/model.pnnx.param");
    let (_, err) = run(&["check", &model], 3);
    assert!(err.contains("unsupported type models.focus.Focus x2"), "{err}");
    assert!(err.contains("--define TYPE=MODEL"), "{err}");
    let folder = program("kept_whole/definitions");
    let file = format!("models.focus.Focus={folder}/models.focus.Focus.pnnx.param");
    for define in [&folder, &file] {
        let (out, _) = run(&["check", &model, "--define", define], 0);
        assert!(out.contains("all supported"), "{out}");
    }
    let inputs = program("kept_whole/inputs.npz");
    let outputs = program("kept_whole/outputs.npz");
    let args = ["verify", &model, "--inputs", &inputs, "--expected", &outputs, "--define", &folder];
    let (out, err) = run(&args, 0);
    assert!(out.contains("ok"), "{out}{err}");
    // Sums by module show the node.
    let report = json(&["profile", &model, "--define", &folder, "-n", "1", "--json"]);
    let scopes: Vec<&str> =
        report["scopes"].as_array().unwrap().iter().filter_map(|r| r["scope"].as_str()).collect();
    assert!(scopes.contains(&"first.block") && scopes.contains(&"second"), "{scopes:?}");
    let out = ok(&["info", &model, "--define", &folder, "--plan"]);
    assert!(out.contains("second.block.conv"), "{out}");
}

#[test]
fn definitions_that_do_not_fit_are_told() {
    let model = program("kept_whole/model.pnnx.param");
    let other = program("newton/definitions/newton.Step.pnnx.param");
    let err = fails(&["check", &model, "--define", &format!("models.focus.Focus={other}")], 3);
    assert!(err.contains("model.pnnx.param:5: models.focus.Focus 'first': "), "{err}");
    assert!(err.contains("newton.Step.pnnx.param"), "{err}");
    let folder = Folder::new();
    let err = fails(&["check", &model, "--define", &folder.path("")], 2);
    assert!(err.contains("no .param file in folder"), "{err}");
    run(&["check", &model, "--define", "nothing"], 2);
}

#[test]
fn control_flow_shows_in_profiles() {
    let model = program("gru_scan/model.pnnx.param");
    let define = program("gru_scan/definitions");
    let inputs = program("gru_scan/inputs.npz");
    let args = ["profile", &model, "--define", &define, "-i", &inputs, "-n", "1"];
    let report = json(&[&args[..], &["--json"]].concat());
    let frame = &report["frames"][0];
    assert_eq!(
        (frame["name"].as_str(), frame["kind"].as_str()),
        (Some("gru"), Some("body=rnn.Cell"))
    );
    assert_eq!(frame["count"], 9);
    let out = ok(&args);
    assert!(out.contains("control flow") && out.contains("body=rnn.Cell"), "{out}");
    let folder = Folder::new();
    let trace = folder.path("trace.json");
    ok(&[&args[..], &["--trace", &trace]].concat());
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.contains("body=rnn.Cell 8"), "{trace}");
}

#[test]
fn parts_and_smaller_models_are_written() {
    let folder = Folder::new();
    let model = program("kept_whole/model.pnnx.param");
    let define = program("kept_whole/definitions");
    let part = folder.path("part");
    let args =
        ["extract", &model, "--define", &define, "--from", "0,1", "--to", "first.block.conv"];
    let out = ok(&[&args[..], &["-o", &part]].concat());
    assert!(out.contains("part.pnnx.param: "), "{out}");
    let told = crate::json(&[&args[..], &["-o", &part, "--json"]].concat());
    assert!(told["operators"].as_u64() < told["of"].as_u64(), "{told}");
    let itself = fails(&["extract", &part, "--to", "first.block.conv", "-o", &part], 2);
    assert!(itself.contains("is the model that is read"), "{itself}");
    let inside = fails(&["optimize", &part, "-o", &format!("{}/", folder.path("new"))], 2);
    assert!(inside.contains("names a folder"), "{inside}");
    let err = fails(&["extract", &part, "--to", "nothing", "-o", &folder.path("x")], 2);
    assert!(err.contains("no operand 'nothing'"), "{err}");
    let small = folder.path("small.pnnx.param");
    let out = ok(&["optimize", &model, "--define", &define, "-o", &small, "--verbose"]);
    assert!(out.contains("2 in the layer before") && out.contains("first.block.bn"), "{out}");
    let told = crate::json(&["optimize", &model, "--define", &define, "-o", &small, "--json"]);
    assert_eq!(told["batch_norms"].as_array().map(Vec::len), Some(2), "{told}");
    for command in ["extract", "optimize", "check"] {
        let to: &[&str] = if command == "extract" { &["--to", "5"] } else { &[] };
        let out = if command == "check" { vec![] } else { vec!["-o", &small] };
        let args = [&[command, &model, "--max-memory", "1000"], to, &out[..]].concat();
        assert!(fails(&args, 4).contains("the budget is 1000"));
    }
    // No definition is needed any more.
    let inputs = program("kept_whole/inputs.npz");
    let outputs = program("kept_whole/outputs.npz");
    run(&["verify", &small, "--inputs", &inputs, "--expected", &outputs], 0);
}

#[test]
fn what_is_written_has_its_bodies_beside_it() {
    let folder = Folder::new();
    let model = program("newton/model.pnnx.param");
    let define = program("newton/definitions");
    let (inputs, outputs) = (program("newton/inputs.npz"), program("newton/outputs.npz"));
    let verify = ["--inputs", &inputs, "--expected", &outputs];
    let small = folder.path("small.pnnx.param");
    let out = ok(&["optimize", &model, "--define", &define, "-o", &small]);
    assert!(out.contains(" definitions"), "{out}");
    run(&[&["verify", small.as_str()], &verify[..]].concat(), 0);
    // Of a model whose own folder lies beside it as well.
    let text = std::fs::read_to_string(&small).unwrap();
    let result = text.lines().find(|line| line.starts_with("plutino.While")).unwrap();
    let name = result.split_whitespace().nth(1).unwrap();
    let part = folder.path("part.pnnx.param");
    ok(&["extract", &small, "--to", name, "-o", &part]);
    run(&[&["verify", part.as_str()], &verify[..]].concat(), 0);
    // No branch or loop, no folder.
    let digits = program("../digits/model.pnnx.param");
    ok(&["optimize", &digits, "-o", &folder.path("digits")]);
    assert!(!std::path::Path::new(&folder.path("digits.definitions")).exists());
}

#[test]
fn bodies_and_order_are_shown() {
    let model = program("newton/model.pnnx.param");
    let define = program("newton/definitions");
    let info = ["info", &model, "--define", &define];
    let out = ok(&info);
    assert!(out.contains("body    ") && out.contains(" cond="), "{out}");
    let plan = ok(&[&info[..], &["--plan", "--shape", "6"]].concat());
    assert!(plan.contains(" runs body=") && plan.contains(" runs cond="), "{plan}");
    let report = json(&[&info[..], &["--plan", "--shape", "6", "--json"]].concat());
    let bodies = report["bodies"].as_array().unwrap();
    assert_eq!(bodies.len(), 2);
    assert!(bodies.iter().all(|body| !body["plan"].as_array().unwrap().is_empty()), "{report}");

    let folder = Folder::new();
    let ordered = folder.write(
        "ordered.pnnx.param",
        "7767517\n5 4\npnnx.Input in 0 1 x #x=(2)f32\ntorch.neg first 1 1 x y\n\
         torch.topk second 1 2 x z i k=1 dim=0 largest=True sorted=True ^first=after\n\
         pnnx.Output out 2 0 y z\npnnx.Output out2 1 0 i ^second=after\n",
    );
    let out = ok(&["info", &ordered]);
    assert!(out.contains("order   second       after first"), "{out}");
    let out = ok(&["info", &ordered, "--plan"]);
    assert!(out.contains("; after first"), "{out}");
    let wrong = folder.write(
        "wrong.pnnx.param",
        "7767517\n3 2\npnnx.Input in 0 1 x\ntorch.neg n 1 1 x y ^y=after\npnnx.Output out 1 0 y\n",
    );
    let err = fails(&["check", &wrong], 3);
    assert!(err.contains("'n' cannot come after 'y'") && err.contains("write ^n=after"), "{err}");
}

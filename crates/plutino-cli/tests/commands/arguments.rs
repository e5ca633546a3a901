//! What the command line, and the environment, say wrongly: told as such, and before any work.

use crate::{Folder, digits, fails, json, ok, plutino};
use std::process::Stdio;

/// The message of a command that fails with exit code 2, with a variable set.
fn fails_with(variable: (&str, &str), args: &[&str]) -> String {
    let output = plutino(args).env(variable.0, variable.1).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    message
}

#[test]
fn operators_that_the_environment_names_are_checked() {
    let model = digits("model.pnnx.param");
    let args = ["bench", &model, "-n", "1", "--warmup", "0", "--shape", "1x1x8x8"];
    let message = fails_with(("PLUTINO_PASSES_OFF", "layout, fuse@rellu"), &args);
    assert!(message.contains("PLUTINO_PASSES_OFF fuse@rellu: the model has no"), "{message}");
    assert!(message.contains("the most similar one is 'relu'"), "{message}");
    let message = fails_with(("PLUTINO_PASSES_OFF", "fuze"), &args);
    assert!(message.contains("PLUTINO_PASSES_OFF must be"), "{message}");
    let known = plutino(&args).env("PLUTINO_PASSES_OFF", "fuse@relu").output().unwrap();
    assert!(known.status.success());
    // What is not at all alike is not suggested.
    let message = fails(&[&args[..], &["--disable", "fuse@backbone"]].concat(), 2);
    assert!(!message.contains("similar"), "{message}");
}

#[test]
fn options_are_called_as_they_are_typed() {
    let model = digits("model.pnnx.param");
    for (option, value) in [("--disable", "fuze"), ("--stop-after", "fuze"), ("--threads", "5000")]
    {
        let message = fails(&["bench", &model, "-n", "1", option, value], 2);
        assert!(message.contains(&format!("{option} must be")), "{message}");
    }
    let input = digits("inputs.npz");
    let message = fails(&["run", &model, "-i", &input, "--letterbox"], 2);
    assert!(message.contains("--letterbox applies to pictures"), "{message}");
    assert!(!message.contains("--mean"), "{message}");
}

#[test]
fn the_cache_is_a_folder() {
    let (folder, model) = (Folder::new(), digits("model.pnnx.param"));
    let file = folder.write("file", "");
    let args = ["info", &model, "--cost", "--machine", "measured", "--shape", "1x1x8x8"];
    for cache in [file.clone(), format!("{file}/below")] {
        let message = fails_with(("PLUTINO_CACHE", &cache), &args);
        assert!(message.contains("PLUTINO_CACHE must be a folder"), "{message}");
    }
}

#[test]
fn numbers_are_told_what_they_must_be() {
    let model = digits("model.pnnx.param");
    for args in [["bench", "--threads", "-1"], ["bench", "-n", "0"], ["view", "-n", "-1"]] {
        let message = fails(&[args[0], &model, args[1], args[2]], 2);
        assert!(message.contains("a whole number of at least 1"), "{message}");
        assert!(!message.contains("tip"), "{message}");
    }
    let message = fails(&["bench", &model, "--warmup", "-1"], 2);
    assert!(message.contains("a whole number, not negative"), "{message}");
    ok(&["check", &model, "--limit", "words=1e6"]);
    let message = fails(&["check", &model, "--limit", "words=many"], 2);
    assert!(message.contains("a whole number, as in"), "{message}");
    let message = fails(&["check", &model, "--limit", "rank=100"], 2);
    assert!(message.contains("rank is 64 at most"), "{message}");
    let picture = digits("samples/3.png");
    let message = fails(&["run", &model, "-i", &picture, "--mean=0.5,0.5"], 2);
    assert!(message.ends_with("give 1\n"), "{message}");
}

#[test]
fn places_of_results_are_looked_at_before_anything_is_computed() {
    let (folder, model, input) = (Folder::new(), digits("model.pnnx.param"), digits("inputs.npz"));
    let (here, missing) = (folder.path(""), folder.path("none/out"));
    let run = ["run", &model, "-i", &input, "-o"];
    for (path, what) in [
        (here.as_str(), "is a folder"),
        (missing.as_str(), "there is no folder"),
        ("-", "does not go to standard output"),
    ] {
        let output = plutino(&[&run[..], &[path]].concat()).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(what), "{message}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    }
    let carry = ["run", &model, "--carry", "out0=in0", "--save-state"];
    let trace = ["profile", &model, "--trace"];
    let extract = ["extract", &model, "--to", "1", "-o"];
    let svg = ["info", &model, "--shape", "1x1x8x8", "--svg"];
    let picture = digits("samples/3.png");
    let boxes = ["detect", &model, "-i", &picture, "-o"];
    for args in [&carry[..], &trace, &extract, &svg, &["view", &model, "-o"]] {
        let message = fails(&[args, &[&missing]].concat(), 2);
        assert!(message.contains("there is no folder"), "{message}");
    }
    let segments = ["segment", &model, "-i", &picture, "--mask"];
    for (args, option) in [(&boxes[..], "-o"), (&segments[..], "--mask")] {
        let message = fails(&[args, &[&format!("{missing}.png")]].concat(), 2);
        assert!(message.contains(&format!("{option} {missing}.png: there is no")), "{message}");
    }
    for args in [&carry[..], &trace, &extract, &svg, &boxes] {
        let message = fails(&[args, &["-"]].concat(), 2);
        assert!(message.contains("does not go to standard output"), "{message}");
    }
}

#[test]
fn an_input_may_be_standard_input() {
    let (model, picture) = (digits("model.pnnx.param"), digits("samples/3.png"));
    let piped = |args: &[&str]| {
        let file = std::fs::File::open(&picture).unwrap();
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("plutino"));
        command.args(args).stdin(Stdio::from(file)).output().unwrap()
    };
    let outputs = |args: &[&str]| {
        let output = piped(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["runs"][0]["outputs"].clone()
    };
    let named = json(&["run", &model, "-i", &picture, "--json"]);
    assert_eq!(outputs(&["run", &model, "-i", "-", "--json"]), named["runs"][0]["outputs"]);
    let twice = piped(&["run", &model, "-i", "-", "-i", "-"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(String::from_utf8(twice.stderr).unwrap().contains("asked for twice"));
}

#[test]
fn a_model_that_is_named_by_its_stem_is_told_by_its_file() {
    let folder = Folder::new();
    let text = "7767517\n3 2\npnnx.Input a 0 1 0\ntest.Unheard b 1 1 0 1\npnnx.Output c 1 0 1\n";
    folder.write("odd.pnnx.param", text);
    let message = fails(&["info", &folder.path("odd")], 3);
    assert!(message.contains("odd.pnnx.param: 1 operator(s) cannot be run"), "{message}");
}

#[test]
fn a_raw_type_is_found_under_its_public_name() {
    let out = ok(&["ops", "aten::sort"]);
    assert!(out.starts_with("aten::sort is read as torch.sort\n"), "{out}");
    assert_eq!(json(&["ops", "aten::sort", "--json"]), json(&["ops", "torch.sort", "--json"]));
    fails(&["ops", "aten::unheard_of"], 2);
}

#[test]
fn options_stand_under_their_headings() {
    for command in ["run", "classify", "detect", "segment", "generate", "view", "bench", "profile"]
    {
        let help = ok(&[command, "--help"]);
        let is_heading = |line: &&str| line.ends_with(':') && line.starts_with(char::is_uppercase);
        let headings: Vec<&str> = help.lines().filter(is_heading).collect();
        assert_eq!(headings.last(), Some(&"Execution:"), "{command}: {headings:?}");
        let place = |what: &str| help.find(what).unwrap_or_else(|| panic!("{command}: {what}"));
        assert!(place("--json") < place(headings[2]), "{command}");
    }
}

//! `plutino generate`

use crate::{fails, json, plutino, run};
use std::path::Path;

fn story(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/story")
        .join(name)
        .display()
        .to_string()
}

/// What PyTorch wrote.
fn written() -> Vec<(String, String)> {
    let fixture: serde_json::Value =
        serde_json::from_slice(&std::fs::read(story("written.json")).unwrap()).unwrap();
    let text = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let all = fixture["written"].as_array().unwrap();
    all.iter().map(|entry| (text(entry, "prompt"), text(entry, "text"))).collect()
}

#[test]
fn a_story_on_a_fresh_clone() {
    let (out, err) = run(&["generate"], 0);
    assert!(out.starts_with(&written()[0].1), "{out}");
    assert!(out.ends_with(".\n") && out.lines().count() == 1, "{out}");
    assert!(err.starts_with("prompt: ") && err.contains(" a second"), "{err}");
    let (again, _) = run(&["generate", "-t", "1"], 0);
    assert_eq!(out, again);
    let model = story("model.pnnx.param");
    assert_eq!(run(&["generate", &model, "-p", "Mira the fox"], 0).0, out);
}

#[test]
fn several_texts_at_once() {
    let written = written();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompts.txt");
    std::fs::write(&file, format!("{}\n\n{}\n", written[1].0, written[2].0)).unwrap();
    let (model, file) = (story("model"), file.display().to_string());
    let args = ["generate", &model, "-p", &written[0].0, "--prompts", &file, "--max", "100"];
    let (out, _) = run(&args, 0);
    let texts: Vec<&str> = out.split_terminator("\n\n").collect();
    assert_eq!(texts.len(), 3, "{out}");
    for (text, (_, expected)) in texts.iter().zip(&written) {
        // The model ends stories, PyTorch was asked for 100 tokens of each.
        let text = text.trim_end();
        assert!(text.starts_with(expected.as_str()) || expected.starts_with(text), "{text}");
    }
    let report = json(&[&args[..], &["--json"]].concat());
    let reports = report["texts"].as_array().unwrap();
    assert_eq!(reports.len(), 3);
    for (report, (prompt, expected)) in reports.iter().zip(&written) {
        assert_eq!(report["prompt"], **prompt);
        let text = format!("{prompt}{}", report["text"].as_str().unwrap());
        assert!(text.starts_with(expected.as_str()) || expected.starts_with(&text), "{text}");
    }
    assert!(report["timing"]["tokens_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn drawn_texts_are_reproducible() {
    let text = |more: &[&str]| run(&[&["generate", "--max", "60"], more].concat(), 0).0;
    let drawn = text(&["--seed", "3", "--top-p", "0.9"]);
    assert_eq!(drawn, text(&["--seed", "3", "--top-p", "0.9", "--temperature", "1"]));
    assert_ne!(drawn, text(&["--seed", "4", "--top-p", "0.9"]));
    let greedy = text(&[]);
    assert_eq!(greedy, text(&["--top-k", "1"]));
    assert_eq!(greedy, text(&["--seed", "3", "--temperature", "0"]));
}

#[test]
fn a_text_ends() {
    let end = |more: &[&str]| {
        let report = json(&[&["generate", "--json"], more].concat());
        let text = &report["texts"][0];
        (text["end"].clone(), text["tokens"].as_array().unwrap().len())
    };
    assert_eq!(end(&["--max", "5"]), ("max".into(), 5));
    assert_eq!(end(&["--max", "0"]), ("max".into(), 0));
    assert_eq!(end(&[]).0, "stop");
    let (out, _) = run(&["generate", "--stop", "."], 0);
    assert!(!out.contains('.') && out.ends_with('\n'), "{out}");
}

#[test]
fn what_is_wrong_is_said() {
    let model = story("model");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, r#"{"model": {"type": "Unigram", "vocab": []}}"#).unwrap();
    let other = file.display().to_string();
    for (args, code, message) in [
        (&[&model[..]][..], 2, "no text to continue: give one with --prompt"),
        (&[&model, "-p", ""], 0, ""),
        (&["-p", "x", "--temperature=-1"], 2, "temperature must be 0 or more, found -1"),
        (&["-p", "x", "--top-p", "1.5"], 2, "top-p must be above 0 and at most 1, found 1.5"),
        (&["--stop", "nothing"], 2, "--stop: the tokenizer has no token 'nothing'"),
        (&[&model, "-p", "x", "--tokenizer", "none.json"], 2, "none.json: "),
        (&[&model, "-p", "x", "--tokenizer", &other], 2, "model 'Unigram' is read by the crate"),
        (&["--prompts", "none.txt"], 2, "--prompts none.txt: "),
        (&["--timeout", "0.000001"], 4, "the deadline passed"),
        (&["--max-memory", "100kB"], 4, "the budget is 100000"),
    ] {
        let args = [&["generate"], args].concat();
        match code {
            0 => drop(run(&args, 0)), // the tokenizer puts a token in front of nothing
            _ => assert!(fails(&args, code).contains(message), "{args:?}: {message}"),
        }
    }
    let long = "x ".repeat(400);
    assert!(fails(&["generate", "-p", &long], 2).contains("the model's context is 256"));
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/digits/model");
    let tokenizer = story("tokenizer.json");
    let digits = digits.display().to_string();
    let args = ["generate", &digits, "-p", "x", "--tokenizer", &tokenizer];
    assert!(fails(&args, 3).contains("exactly one input must be tokens"));
}

#[test]
fn what_a_terminal_would_obey_is_not_shown() {
    let output = plutino(&["generate", "-p", "\u{1b}[2J", "--max", "1"]).output().unwrap();
    assert!(output.status.success() && !output.stdout.contains(&0x1b));
}

//! The page that `plutino view` writes, as far as that needs no browser (`cargo xtask view-test`
//! does), and what the command generates for shells and for man.

use crate::{plutino, run};
use plutino::ir::Graph;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/digits/model.pnnx.param")
}

/// The page of a model, what it knows, and what was said on standard error.
fn view(model: &Path, more: &[&str]) -> (String, Value, String) {
    let model = model.display().to_string();
    let (page, err) = run(&[&["view", &model, "-o", "-"], more].concat(), 0);
    let data = data(&page);
    (page, data, err)
}

/// The JSON of a page.
pub(crate) fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(json).unwrap()
}

/// Tags of a page, in order, without what stands inside of scripts and styles; `/x` closes `x`.
fn tags(page: &str) -> Vec<&str> {
    let (mut tags, mut rest) = (Vec::new(), page);
    while let Some((_, tag)) = rest.split_once('<') {
        let (inside, after) = tag.split_once('>').unwrap();
        let name = inside.split_whitespace().next().unwrap();
        tags.push(name);
        rest = match name {
            "script" | "style" => &after[after.find(&format!("</{name}>")).unwrap()..],
            _ => after,
        };
    }
    tags
}

/// That every tag that is opened is closed again, in order.
fn assert_well_formed(page: &str) {
    let mut open = Vec::new();
    for tag in tags(page) {
        match tag.strip_prefix('/') {
            _ if matches!(tag, "!doctype" | "meta" | "input") => {}
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None => open.push(tag),
        }
    }
    assert_eq!(open, [""; 0]);
}

fn names(data: &Value) -> Vec<&str> {
    data["operators"].as_array().unwrap().iter().map(|op| op["name"].as_str().unwrap()).collect()
}

/// A folder with one model in it.
fn folder(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let outputs = |line: &&str| line.split(' ').nth(3).unwrap().parse::<usize>().unwrap();
    let values: usize = lines.iter().map(outputs).sum();
    let text = format!("7767517\n{} {values}\n{}\n", lines.len(), lines.join("\n"));
    let path = folder.path().join("net.pnnx.param");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn the_page_holds_the_whole_model_and_loads_nothing() {
    let (page, data, err) = view(&digits(), &["--shape", "4x1x8x8", "-n", "2", "-t", "1"]);
    assert_eq!(err, "");
    assert_well_formed(&page);
    for word in ["http:", "https:", " src=", " href=", "<link", "<iframe", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    let graph = Graph::load(digits()).unwrap();
    let all: Vec<&str> = graph.operators().map(|(_, op)| op.name.as_str()).collect();
    assert_eq!(names(&data), all);
    let operator = |name: &str| {
        let at = all.iter().position(|n| *n == name).unwrap();
        (at, &data["operators"][at])
    };
    // Parameters and weights as in the file; statistics of its numbers.
    let (head, linear) = operator("head");
    assert_eq!(linear["params"]["in_features"], "256");
    assert_eq!(linear["weights"][1]["shape"], serde_json::json!([10, 256]));
    let weight = graph[graph.operator_by_name("head").unwrap()].attr("weight").unwrap();
    let numbers = weight.elements::<f32>().unwrap();
    let mean = numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / numbers.len() as f64;
    let stats = &linear["weights"][1]["stats"];
    assert!((stats["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
    assert_eq!(stats["nan"], 0);
    // Values: made by and read by operators, with shapes as planned.
    let value = &data["values"][linear["outputs"][0].as_u64().unwrap() as usize];
    assert_eq!((&value["name"], &value["planned"]), (&"10".into(), &"(4,10)f32".into()));
    // Those that are gone once operators are fused, and views, as well.
    for value in data["values"].as_array().unwrap() {
        let planned = value["planned"].as_str().unwrap_or_default();
        assert!(planned.starts_with("(4,") && planned.ends_with(")f32"), "{value}");
    }
    // Every step belongs to operators; the activation was fused.
    let plan = &data["plan"];
    let steps = plan["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["operator"] == head && step["flops"].as_u64() > Some(0)));
    let (relu, _) = operator("relu");
    assert!(steps.iter().any(|s| s["absorbed"].as_array().unwrap().contains(&relu.into())));
    let fuse = plan["passes"].as_array().unwrap().iter().find(|p| p["name"] == "fuse").unwrap();
    assert!(fuse["done"].as_array().unwrap().iter().any(|n| n["operator"].is_u64()), "{fuse}");
    // Times of each step, which the whole run takes at least.
    let times = &plan["times"];
    let ms: Vec<f64> =
        times["steps"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap()).collect();
    assert_eq!((ms.len(), &times["runs"]), (steps.len(), &2.into()));
    let between = times["between"].as_f64().unwrap();
    let total = times["total"].as_f64().unwrap();
    assert!((ms.iter().sum::<f64>() + between - total).abs() < 1e-9 * total);
}

#[test]
fn what_lies_in_the_arena_never_meets_and_fills_it() {
    for more in [&[][..], &["--disable", "fuse,chain,layout"]] {
        let args = [&["--shape", "4x1x8x8", "--no-profile", "-t", "1"], more].concat();
        let (_, data, _) = view(&digits(), &args);
        let plan = &data["plan"];
        assert_eq!(plan["times"], Value::Null);
        let number = |v: &Value| v.as_u64().unwrap();
        let end = plan["steps"].as_array().unwrap().len() as u64;
        let mut highest = 0;
        let mut rects: Vec<[u64; 4]> = Vec::new(); // bytes, then steps
        for place in plan["residents"].as_array().unwrap() {
            let readers: Vec<u64> =
                place["readers"].as_array().unwrap().iter().map(number).collect();
            let by = place["by"].as_u64();
            assert!(readers.is_sorted() && readers.iter().all(|r| Some(*r) > by && *r < end));
            let fetched = place["fetched"].as_bool().unwrap();
            let scratch = place["scratch"].as_bool().unwrap();
            assert!(scratch || fetched || !readers.is_empty(), "nobody reads {place}");
            if place["space"] == "arena" {
                let (offset, by) = (number(&place["offset"]), by.unwrap());
                let last = if fetched { end } else { readers.last().copied().unwrap_or(by) };
                highest = highest.max(offset + number(&place["bytes"]));
                rects.push([offset, offset + number(&place["bytes"]), by, last]);
            }
        }
        // The arena ends on a cache line.
        assert_eq!(highest.next_multiple_of(64), number(&plan["memory"]["arena"]));
        for (i, a) in rects.iter().enumerate() {
            for b in &rects[..i] {
                // What is worked on in place takes over at the step that reads it.
                let apart = a[0] >= b[1] || b[0] >= a[1] || a[2] > b[3] || b[2] > a[3];
                let in_place = a[2] == b[3] || b[2] == a[3];
                assert!(apart || in_place, "{a:?} {b:?}");
            }
        }
    }
}

#[test]
fn names_are_never_markup() {
    let name = "</script><img/onerror=alert(1)>";
    let plain = view(&digits(), &["--no-profile"]).0;
    let model = |parameter: &str| {
        folder(&format!(
            "pnnx.Input in 0 1 0 #0=(2)f32
             nn.ReLU {name} 1 1 0 <b>&amp; {parameter}#<b>&amp;=(2)f32
             pnnx.Output {{{{title}}}} 1 0 <b>&amp;"
        ))
    };
    // With a plan, and with a parameter that nobody knows.
    for parameter in ["", "a<!--=<script> "] {
        let (_folder, model) = model(parameter);
        let (page, data, _) = view(&model, &[]);
        assert_well_formed(&page);
        assert_eq!(names(&data), ["in", name, "{{title}}"]);
        assert_eq!(data["plan"].is_object(), parameter.is_empty());
        let value = &data["operators"][1]["params"]["a<!--"];
        assert_eq!(value == "<script>", !parameter.is_empty());
        assert_eq!(tags(&page), tags(&plain));
        assert_eq!(page.matches("</script").count(), 2);
        assert!(!page.contains("<img") && !page.contains("<!--"));
    }
    let (_folder, model) = model("");
    // The file's name is the title.
    let strange = model.with_file_name("<b>'&.pnnx.param");
    std::fs::rename(&model, &strange).unwrap();
    let (page, data, _) = view(&strange, &["--no-profile"]);
    assert_well_formed(&page);
    assert_eq!(tags(&page), tags(&plain));
    assert!(data["model"].as_str().unwrap().ends_with("<b>'&.pnnx.param"));
}

#[test]
fn without_weights_the_plan_is_made_with_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.pnnx.param");
    std::fs::copy(digits(), &model).unwrap();
    let (_, data, err) = view(&model, &["--shape", "4x1x8x8"]);
    assert!(err.contains("weights of zeros"), "{err}");
    assert!(data["notes"][0].as_str().unwrap().contains("weights of zeros"));
    let (_, whole, _) = view(&digits(), &["--shape", "4x1x8x8", "--no-profile"]);
    assert_eq!(data["plan"]["memory"]["arena"], whole["plan"]["memory"]["arena"]);
    assert_eq!(data["plan"]["steps"][0]["kernel"], whole["plan"]["steps"][0]["kernel"]);
    assert_eq!(data["plan"]["times"], Value::Null);
    let head = &data["operators"][10];
    assert_eq!((&head["name"], &head["weights"][1]["dtype"]), (&"head".into(), &"f32".into()));
    assert_eq!(
        head["weights"][1]["stats"],
        Value::Null,
        "zeros that nobody wrote have no statistics"
    );
}

#[test]
fn what_cannot_run_is_shown_and_marked() {
    let (_folder, model) = folder(
        "pnnx.Input a 0 1 0 #0=(1)f32
         my.Op m.b 1 1 0 1
         nn.Conv2d m.c 1 1 1 2
         pnnx.Output d 1 0 2",
    );
    let (page, data, err) = view(&model, &[]);
    assert_well_formed(&page);
    assert!(err.contains("my.Op"), "{err}");
    assert_eq!(names(&data), ["a", "m.b", "m.c", "d"]);
    assert!(data["operators"][1]["unsupported"].as_str().unwrap().contains("not supported"));
    assert!(data["operators"][2]["unsupported"].is_string(), "its parameters are missing");
    assert_eq!((&data["operators"][0]["unsupported"], &data["plan"]), (&Value::Null, &Value::Null));
    // Known operators that refuse their inputs, and inputs of which the file says nothing.
    let (_folder, model) = folder(
        "pnnx.Input a 0 1 0 #0=(2,3)f32
         Tensor.reshape r 1 1 0 1 shape=(4,4) $input=0
         pnnx.Output d 1 0 1",
    );
    let (_, data, err) = view(&model, &[]);
    assert!(err.contains("no plan: ") && data["plan"].is_null(), "{err}");
    let (_folder, model) = folder(
        "pnnx.Input a 0 1 0
         nn.ReLU r 1 1 0 1
         pnnx.Output d 1 0 1",
    );
    let (_, data, err) = view(&model, &[]);
    assert!(err.contains("--shape") && data["plan"].is_null(), "{err}");
    let (_, data, _) = view(&model, &["--shape", "5"]);
    assert!(data["plan"]["times"].is_object());
    let model = model.display().to_string();
    assert!(run(&["view", &model, "--shape", "nothing=5", "-o", "-"], 2).1.contains("nothing=5"));
    run(&["view", &model, "--shape", "500", "--max-memory", "16", "-o", "-"], 4);
}

#[test]
fn errors_colour_operators() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| {
        let path = folder.path().join("errors.json");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let errors = write(r#"{"head": 0.25, "pool": null, "nobody": 1}"#);
    let (_, data, err) = view(&digits(), &["--no-profile", "--errors", &errors]);
    assert!(err.contains("'nobody'"), "{err}");
    let by_name = |name: &str| {
        data["operators"].as_array().unwrap().iter().find(|op| op["name"] == name).unwrap().clone()
    };
    assert_eq!(by_name("head")["error"], 0.25);
    assert!(by_name("pool").as_object().unwrap().contains_key("error")); // null: infinite
    assert!(!by_name("relu").as_object().unwrap().contains_key("error"));
    let model = digits().display().to_string();
    for (text, word) in [("[1]", "object of numbers"), (r#"{"head": -1}"#, "below zero")] {
        let errors = write(text);
        let (_, err) = run(&["view", &model, "--errors", &errors, "-o", "-"], 2);
        assert!(err.contains(word), "{err}");
    }
    run(&["view", &model, "--errors", "no-such-file.json", "-o", "-"], 2);
}

#[test]
fn the_page_is_written_where_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let model = digits().canonicalize().unwrap().display().to_string();
    let output = plutino(&["view", &model, "--no-profile"]).current_dir(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let page = std::fs::read_to_string(folder.path().join("model.html")).unwrap();
    assert_eq!(names(&data(&page)).len(), 12);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("model.html: "));
    let nowhere = folder.path().join("no/such/folder.html").display().to_string();
    run(&["view", &model, "--no-profile", "-o", &nowhere], 2);
    run(&["view", "no-such-model", "-o", "-"], 3);
}

#[test]
fn thousands_of_operators_keep_their_modules() {
    let mut lines = String::from("pnnx.Input in 0 1 0 #0=(8)f32\n");
    for i in 0..1000 {
        let (v, module) = (2 * i, format!("stage{}.{}", i / 100, i % 100));
        lines += &format!("nn.ReLU {module}.act 1 1 {v} {}\n", v + 1);
        lines +=
            &format!("pnnx.Expression pnnx_expr_{i} 2 1 {} {v} {} expr=add(@0,@1)\n", v + 1, v + 2);
    }
    lines += "pnnx.Output out 1 0 2000";
    let (_folder, model) = folder(&lines);
    let (page, data, _) = view(&model, &["--no-profile"]);
    assert_well_formed(&page);
    assert_eq!(names(&data).len(), 2002);
    assert_eq!(data["operators"][1]["scope"], serde_json::json!(["stage0", "0"]));
    assert_eq!(data["operators"][2]["scope"], serde_json::json!(["stage0", "0"]), "its sum");
    assert!(page.len() < 4_000_000, "{}", page.len());
}

#[test]
fn completions_of_every_shell_know_all_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (script, err) = run(&["completions", shell], 0);
        assert_eq!(err, "");
        for word in ["view", "profile", "completions", "no-profile", "max-memory"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert!(run(&["completions", "tcsh"], 2).1.contains("bash"));
    // What bash makes of it, where there is one.
    let (script, _) = run(&["completions", "bash"], 0);
    let ask =
        "COMP_WORDS=(plutino vi); COMP_CWORD=1; _plutino plutino vi plutino; echo ${COMPREPLY[@]}";
    let bash =
        std::process::Command::new("bash").args(["-c", &format!("{script}\n{ask}")]).output();
    if let Ok(bash) = bash {
        assert_eq!(String::from_utf8(bash.stdout).unwrap().trim(), "view");
    }
}

#[test]
fn manual_pages_cover_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("man/man1");
    run(&["man", &dir.display().to_string()], 0);
    let page = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let main = page("plutino.1");
    for command in ["run", "info", "check", "verify", "bench", "profile", "view", "ops"] {
        assert!(main.contains(&format!("plutino\\-{command}(1)")), "{command}: {main}");
        let page = page(&format!("plutino-{command}.1"));
        assert!(page.starts_with(".ie") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(main.contains("PLUTINO_THREADS") && main.contains("Exit codes"));
    assert!(page("plutino-view.1").contains("no\\-profile"));
    run(&["man", &dir.join("plutino.1").display().to_string()], 2); // a file, no folder
}

//! `--feed` and `--fetch`: any part of a model.

use crate::{Folder, digits, fails, json, ok};
use plutino::Tensor;
use plutino::npy::{self, npz};

/// Arrays of a file, by name.
fn arrays(path: &str) -> Vec<(String, Tensor)> {
    npz::load(path).unwrap()
}

#[test]
fn every_operand_can_be_fetched_and_fed_again() {
    let folder = Folder::new();
    let (model, inputs) = (digits("model.pnnx.param"), digits("inputs.npz"));
    let (plain, all, part) = (folder.path("out.npz"), folder.path("all.npz"), folder.path("p.npz"));
    ok(&["run", &model, "-i", &inputs, "-o", &plain]);
    let out = ok(&["run", &model, "-i", &inputs, "--fetch", "all", "-o", &all]);
    assert!(out.lines().any(|line| line.starts_with("6 (360,64,4,4)f32: min ")), "{out}");
    let fetched = arrays(&all);
    let names: Vec<&str> = fetched.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    assert_eq!(fetched[0].1, arrays(&inputs)[0].1);
    let relu = |i: usize| {
        let before = fetched[i].1.as_slice::<f32>().unwrap().iter();
        assert!(before.clone().any(|x| *x < 0.0));
        before.map(|x| x.max(0.0)).collect::<Vec<_>>()
    };
    assert_eq!(relu(1), fetched[2].1.as_slice::<f32>().unwrap());
    // From the middle on: by the operand's name, and by the operator's.
    for name in ["5", "pool"] {
        let single = folder.path("five.npy");
        npy::save(&single, &fetched[5].1.view()).unwrap();
        let feed = format!("{name}={single}");
        ok(&["run", &model, "--feed", &feed, "-o", &part]);
        let (ours, expected) = (arrays(&part), arrays(&plain));
        assert_eq!(ours[0].0, "out0");
        // A convolution and a layer of 288 terms at most each, in other orders: 2 * 288 * 2^-24
        // of what is largest on the way, which is no larger than 10 times what comes out.
        let largest =
            |t: &Tensor| t.as_slice::<f32>().unwrap().iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let atol = f64::from(largest(&expected[0].1)) * 10.0 * 2.0 * 288.0 / f64::from(1 << 24);
        let close = plutino::Tolerance { rtol: 0.0, atol };
        assert!(ours[0].1.compare(&expected[0].1, close).unwrap().is_match());
    }
    // An archive holds the operand under its name.
    let feed = format!("9={all}");
    ok(&["run", &model, "--feed", &feed, "--fetch", "head,9,head", "-o", &part]);
    let found = arrays(&part);
    assert_eq!(found.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["head", "9"]);
    assert_eq!(found[1].1, fetched[9].1);
}

#[test]
fn the_built_in_model_has_its_input_whatever_is_fetched() {
    let fetched = json(&["run", "--fetch", "10", "--json"]);
    let plain = json(&["run", "--json"]);
    let elements = |report: &serde_json::Value| report["runs"][0]["outputs"][0]["elements"].clone();
    assert!(elements(&plain).is_array());
    assert_eq!(elements(&fetched), elements(&plain));
    ok(&["run", "--fetch", "all"]);
}

#[test]
fn members_of_a_tuple_are_numbered() {
    let folder = Folder::new();
    let model = folder.write(
        "split.pnnx.param",
        "7767517\n4 4\npnnx.Input in 0 1 x #x=(4)f32\ntorch.split halves 1 1 x both dim=0 split_size_or_sections=2\n\
         prim::ListUnpack parts 1 2 both a b\npnnx.Output out 2 0 a b\n",
    );
    let file = folder.path("x.npy");
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [4]).unwrap();
    npy::save(&file, &x.view()).unwrap();
    let out = ok(&["run", &model, "-i", &file, "--fetch", "halves,b"]);
    for line in ["halves.0 (2)f32", "halves.1 (2)f32", "b (2)f32"] {
        assert!(out.lines().any(|l| l == line), "{line}: {out}");
    }
}

#[test]
fn wrong_requests_are_explained() {
    let folder = Folder::new();
    let model = digits("model.pnnx.param");
    let text = |args: &[&str]| fails(&[&["run", &model], args].concat(), 2);
    let error = text(&["--fetch", "relu"]);
    assert!(error.contains("input '0' is not fed; '1' could be fed instead"), "{error}");
    assert!(text(&["--fetch", "rellu"]).contains("no operand named 'rellu'"));
    assert!(text(&["--feed", "5"]).contains("NAME=FILE"));
    assert!(text(&["--feed", &format!("5={}", digits("samples/3.png"))]).contains("a picture"));
    let two = digits("inputs.npz");
    let double = folder.path("double.npy");
    let wrong = Tensor::zeros(plutino::DType::F64, [1, 32, 4, 4]).unwrap();
    npy::save(&double, &wrong.view()).unwrap();
    let error = text(&["--feed", &format!("5={double}")]);
    assert!(error.contains("operand '5' must be f32"), "{error}");
    ok(&["run", &model, "--feed", &format!("5={double}"), "--cast"]);
    let twice = text(&["-i", &two, "--feed", &format!("0={two}")]);
    assert!(twice.contains("given twice"), "{twice}");
}

#[test]
fn a_run_as_json() {
    let (model, inputs) = (digits("model.pnnx.param"), digits("inputs.npz"));
    let args = ["run", &model, "-i", &inputs, "-t", "1", "--fetch", "10,relu", "--json"];
    let report = json(&args);
    let outputs = &report["runs"][0]["outputs"];
    assert_eq!((&outputs[0]["name"], &outputs[1]["name"]), (&"10".into(), &"relu".into()));
    assert_eq!(outputs[0]["shape"], serde_json::json!([360, 10]));
    assert_eq!(outputs[1]["min"], 0.0);
    assert!(outputs[1].get("elements").is_none(), "too many");
    assert!(report["runs"][0]["ms"].as_f64().unwrap() > 0.0);
    // Without a model: the built-in one, with classes.
    let report = json(&["run", "--json", "--top", "2"]);
    let classes = &report["runs"][0]["outputs"][0]["classes"][0];
    assert_eq!((&classes[0]["index"], classes.as_array().unwrap().len()), (&3.into(), 2));
    assert_eq!(report["runs"][0]["outputs"][0]["elements"].as_array().unwrap().len(), 10);
}

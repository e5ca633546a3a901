//! Files beside a model and files of options that mean harm: each ends in time, in a short message,
//! with the exit code of its kind.
#![allow(clippy::panic)] // that is how tests fail

use crate::{Folder, digits, plutino, program_text};
use std::fmt::Write;
use std::time::Duration;

/// A debug build on a busy machine: what hangs, hangs longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a message may have: a few quotes, and paths.
const MOST_TOLD: usize = 3000;

/// Runs the command; its exit code, and what it says.
fn ends(args: &[&str]) -> (i32, String) {
    let output = plutino(args).timeout(PATIENCE).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    let code = output.status.code().unwrap_or_else(|| panic!("{args:?} hangs or is ended: {err}"));
    assert!((0..=4).contains(&code), "{args:?}: {code}: {err}");
    assert!(err.len() < MOST_TOLD, "{args:?} says {} bytes", err.len());
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(!(out + &err).contains(['\x1b', '\x07']), "{args:?}: {err}");
    (code, err)
}

fn detector(folder: &Folder) -> String {
    let shapes = |name: &str| digits("").replace("digits", "shapes") + "/" + name;
    for file in ["model.pnnx.param", "model.pnnx.bin"] {
        std::fs::copy(shapes(&format!("detector/{file}")), folder.path(file)).unwrap();
    }
    std::fs::copy(shapes("0.png"), folder.path("0.png")).unwrap();
    folder.path("model")
}

fn story(folder: &Folder) -> String {
    let story = digits("").replace("digits", "story");
    for file in std::fs::read_dir(story).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path(&file.file_name().to_string_lossy())).unwrap();
    }
    folder.path("model")
}

/// What is opened because it lies beside a model, and what options name.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_not_waited_for() {
    let folder = Folder::new();
    let (detector, picture) = (detector(&folder), folder.path("0.png"));
    let texts = Folder::new();
    let story = story(&texts);
    let (model, inputs) = (digits("model.pnnx.param"), digits("inputs.npz"));
    let odd = folder.path("odd");
    let (recipe, names) = (folder.path("model.preprocess.json"), texts.path("tokenizer.json"));
    let generate = texts.path("model.generate.json");
    let detect = ["detect", &detector, "-i", &picture];
    let cost = ["info", &model, "--shape", "1x1x8x8", "--cost"];
    let options: [(&str, Vec<&str>); 12] = [
        (&recipe, detect.to_vec()),
        (&names, vec!["generate", &story, "--prompt", "Mira", "--max", "1"]),
        (&generate, vec!["generate", &story, "--prompt", "Mira", "--max", "1"]),
        (&odd, vec!["generate", &story, "--prompts", &odd, "--max", "1"]),
        (&odd, vec!["detect", &detector, "-i", &odd]),
        (&odd, [&detect[..], &["--labels", &odd]].concat()),
        (&odd, [&cost[..], &["--costs", &odd]].concat()),
        (&odd, [&cost[..], &["--machine", &odd]].concat()),
        (&odd, vec!["profile", &model, "-n", "1", "--against", &odd]),
        (&odd, vec!["view", &model, "--no-profile", "-o", "-", "--errors", &odd]),
        (&odd, vec!["compare", &model, "--reference", &odd]),
        (&odd, vec!["verify", &model, "--inputs", &inputs, "--expected", &odd]),
    ];
    for (file, args) in options {
        for device in [false, true] {
            let _ = std::fs::remove_file(file);
            if device {
                std::os::unix::fs::symlink("/dev/zero", file).unwrap();
            } else {
                assert!(std::process::Command::new("mkfifo").arg(file).status().unwrap().success());
            }
            let (code, err) = ends(&args);
            assert!(code == 2 || code == 3, "{args:?}: {code}");
            assert!(err.contains("it is no regular file"), "{args:?}: {err}");
        }
        std::fs::remove_file(file).unwrap();
        if file == names {
            std::fs::copy(digits("").replace("digits", "story") + "/tokenizer.json", file).unwrap();
        }
    }
}

/// Long and garbled text in files of JSON is not repeated.
#[test]
fn messages_about_files_of_options_are_short() {
    let folder = Folder::new();
    let (detector, picture) = (detector(&folder), folder.path("0.png"));
    let texts = Folder::new();
    let story = story(&texts);
    let model = digits("model.pnnx.param");
    let long = "k\\u001b[2J".repeat(20_000);
    let deep = "[".repeat(200_000);
    for text in [format!("{{\"{long}\": 1}}"), format!("\"{long}\""), format!("{{\"a\": {deep}")] {
        folder.write("model.preprocess.json", &text);
        assert_eq!(ends(&["detect", &detector, "-i", &picture]).0, 2);
        texts.write("model.generate.json", &text);
        assert_eq!(ends(&["generate", &story, "--prompt", "a", "--max", "1"]).0, 3);
        let file = folder.write("odd.json", &text);
        for option in ["--costs", "--machine"] {
            let args = ["info", &model, "--shape", "1x1x8x8", "--cost", option, &file];
            assert_eq!(ends(&args).0, 2);
        }
        assert_eq!(ends(&["profile", &model, "-n", "1", "--against", &file]).0, 2);
        // An error of an operator that there is not is warned of.
        let named = if text.ends_with("1}") { 0 } else { 2 };
        assert_eq!(ends(&["view", &model, "--no-profile", "-o", "-", "--errors", &file]).0, named);
    }
    std::fs::remove_file(texts.path("model.generate.json")).unwrap();
    let named = format!(r#"{{"model": {{"type": "{long}"}}}}"#);
    for text in [named, deep, "{}".into()] {
        texts.write("tokenizer.json", &text);
        assert_eq!(ends(&["generate", &story, "--prompt", "a", "--max", "1"]).0, 2);
    }
    let labels = format!(r#"{{"labels": "{long}"}}"#);
    folder.write("model.preprocess.json", labels);
    assert_eq!(ends(&["detect", &detector, "-i", &picture]).0, 2);
    // Ten thousand names that the model does not have.
    let mut errors = String::from("{\"nobody\": 1");
    (0..10_000).for_each(|i| write!(errors, ", \"nobody{i}\": 1").unwrap());
    let errors = folder.write("errors.json", errors + "}");
    let args = ["view", &model, "--no-profile", "--errors", &errors, "-o", &folder.path("v.html")];
    let (code, err) = ends(&args);
    assert!(code == 0 && err.contains("--errors has 9991 more such names"), "{err}");
    let path = folder.path(&"folder/".repeat(400));
    let (code, err) = ends(&["check", &path]);
    assert!(code == 3 && err.contains("no model at '..."), "{err}");
}

/// A small archive of zeros that become much more.
#[test]
fn what_is_compressed_stays_within_the_budget() {
    let folder = Folder::new();
    let model = folder.write(
        "m.pnnx.param",
        program_text(&[
            "pnnx.Input in 0 1 a #a=(?)f32",
            "nn.ReLU r 1 1 a y",
            "pnnx.Output o 1 0 y",
        ]),
    );
    let bomb = folder.write("bomb.npz", bomb(200_000_000));
    for args in [
        vec!["run", &model, "-i", &bomb],
        vec!["run", &model, "--feed", &format!("a={bomb}")],
        vec!["bench", &model, "-i", &bomb, "-n", "1"],
        vec!["profile", &model, "-i", &bomb, "-n", "1"],
        vec!["view", &model, "-i", &bomb, "-o", "-"],
        vec!["compare", &model, "--reference", &bomb],
        vec!["verify", &model, "--inputs", &bomb, "--expected", &bomb],
    ] {
        let (code, err) = ends(&[&args[..], &["--max-memory", "64MB"]].concat());
        assert!(code == 4 && err.contains("budget"), "{args:?}: {code}: {err}");
    }
    let (code, err) = ends(&["run", &model, "-i", &bomb, "--timeout", "0.000001"]);
    assert!(code == 4, "{err}");
}

/// An archive of one array `a` of so many bytes, all zero.
fn bomb(bytes: usize) -> Vec<u8> {
    let x = plutino::Tensor::zeros(plutino::DType::F32, [bytes / 4]).unwrap();
    let mut npy = Vec::new();
    plutino::npy::write(&mut npy, &x.view()).unwrap();
    let mut archive = rawzip::ZipArchiveWriter::new(Vec::new());
    let file = archive.new_file("a.npy").compression_method(rawzip::CompressionMethod::DEFLATE);
    let (mut entry, config) = file.start().unwrap();
    let deflate = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
    let mut data = config.wrap(deflate);
    std::io::Write::write_all(&mut data, &npy).unwrap();
    let (deflate, descriptor) = data.finish().unwrap();
    deflate.finish().unwrap();
    entry.finish(descriptor).unwrap();
    archive.finish().unwrap()
}

//! The built command, from outside: what it prints, where it prints it, and its exit codes.
#![allow(clippy::unwrap_used)] // helpers of tests

use assert_cmd::Command;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A file of the fixture `digits`.
fn digits(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/digits")
        .join(name)
        .display()
        .to_string()
}

fn plutino(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("plutino"));
    command.args(args).env_remove("PLUTINO_THREADS").env_remove("PLUTINO_ISA");
    command
}

/// Runs the command, checks its exit code, and returns what it printed to standard output and error.
fn run(args: &[&str], code: i32) -> (String, String) {
    let output = plutino(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

/// Runs a command that succeeds and is silent on standard error, as a pipe wants it.
fn ok(args: &[&str]) -> String {
    let (out, err) = run(args, 0);
    assert_eq!(err, "", "{args:?}");
    out
}

/// Runs a command that fails; the message.
fn fails(args: &[&str], code: i32) -> String {
    let (_, err) = run(args, code);
    assert!(err.contains("error: "), "{args:?}: {err}");
    err
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.path().join(name), content).unwrap();
        self.path(name)
    }
}

#[test]
fn without_a_model_the_built_in_one_reads_its_digit() {
    let out = ok(&["run"]);
    assert!(out.contains("██"), "{out}");
    let classes: Vec<&str> = out.lines().filter(|line| line.contains('%')).collect();
    assert_eq!(classes.len(), 3, "{out}");
    assert!(classes[0].trim_end().ends_with(" 3"), "{out}");
}

#[test]
fn every_sample_digit_is_read() {
    for digit in 0..10 {
        let picture = digits(&format!("samples/{digit}.png"));
        let out = ok(&["run", "-i", &picture, "--top", "1"]);
        let class = out.lines().find(|line| line.contains('%')).unwrap();
        assert!(class.trim_end().ends_with(&format!(" {digit}")), "{out}");
    }
}

#[test]
fn run_writes_what_verify_accepts() {
    let folder = Folder::new();
    let (model, outputs) = (digits("model.pnnx.param"), folder.path("out.npz"));
    let inputs = digits("inputs.npz");
    let out = ok(&["run", &model, "-i", &inputs, "-o", &outputs, "-t", "2"]);
    assert!(out.starts_with("out0 (360,10)f32\ntensor([["), "{out}");
    // Bit for bit, whatever the number of threads.
    let exact = ["--rtol", "0", "--atol", "0", "-t", "1"];
    let args =
        [&["verify", &model, "--inputs", &inputs, "--expected", &outputs], &exact[..]].concat();
    assert!(ok(&args).contains("out0 (360,10)f32 against out0: ok: 3600 elements match"));
}

#[test]
fn verify_against_pytorch() {
    let (model, inputs) = (digits("model.pnnx.param"), digits("inputs.npz"));
    let expected = digits("outputs.npz");
    let args = ["verify", &model, "--inputs", &inputs, "--expected", &expected];
    ok(&args);
    let strict = [&args[..], &["--rtol", "0", "--atol", "0"]].concat();
    let (out, err) = run(&strict, 1);
    assert!(out.contains("MISMATCH") && out.contains("worst at ["), "{out}");
    assert_eq!(err, "");
    let labels = digits("labels.npz");
    let (out, _) = run(&["verify", &model, "--inputs", &inputs, "--expected", &labels], 1);
    assert!(out.contains("MISMATCH"), "{out}");
}

#[test]
fn the_model_is_found_by_its_stem() {
    for stem in ["model.pnnx", "model"] {
        assert!(ok(&["check", &digits(stem)]).contains("all supported"));
    }
}

#[test]
fn labels_name_the_classes() {
    let folder = Folder::new();
    let labels = folder.write("labels.txt", "zero\none\ntwo\nthree\n");
    let out = ok(&["run", "--labels", &labels, "--top", "1"]);
    assert!(out.contains("three"), "{out}");
}

#[test]
fn memory_can_be_saved() {
    let digits = digits("model.pnnx.param");
    for memory in ["fast", "low"] {
        let json =
            ok(&["bench", &digits, "--shape", "1x1x8x8", "-n", "1", "--json", "--memory", memory]);
        assert!(json.contains("median_ms"), "{json}");
    }
    let text = ok(&["info", &digits, "--shape", "1x1x8x8", "--memory=low"]);
    assert!(text.contains("arena"), "{text}");
}

#[test]
fn info_in_text_and_json() {
    let model = digits("model.pnnx.param");
    let out = ok(&["info", &model]);
    assert!(out.contains("12 operators, 11 operands") && out.contains("(?,1,8,8)f32"), "{out}");
    let args = ["info", &model, "--plan", "--memory", "--passes", "--shape", "4x1x8x8"];
    let out = ok(&args);
    assert!(out.contains("nn.Conv2d 'convbn2d_0'") && out.contains("lower bound"), "{out}");
    let json: serde_json::Value =
        serde_json::from_str(&ok(&[&args[..], &["--json"]].concat())).unwrap();
    assert_eq!(json["parameters"], 25_866);
    assert_eq!(json["kinds"]["nn.Conv2d"], 3);
    assert!(json["plan"].as_array().unwrap().iter().any(|s| s["kind"] == "nn.Linear"));
    assert!(json["memory"]["arena_bytes"].as_u64().unwrap() > 0);
    let message = fails(&["info", &model, "--plan"], 2);
    assert!(message.contains("--shape") && message.contains("(?,1,8,8)f32"), "{message}");
}

#[test]
fn bench_and_profile() {
    let model = digits("model.pnnx.param");
    let args = ["--shape", "1x1x8x8", "-n", "3", "--warmup", "1", "-t", "1"];
    let out = ok(&[&["bench", &model], &args[..]].concat());
    assert!(out.contains("median") && out.contains("threads: 1"), "{out}");
    let out = ok(&[&["bench", &model, "--json"], &args[..]].concat());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["runs"], 3);
    assert!(json["min_ms"].as_f64().unwrap() > 0.0);
    assert!(json["median_ms"].as_f64().unwrap() >= json["min_ms"].as_f64().unwrap());
    if cfg!(target_os = "linux") {
        assert!(json["peak_memory_bytes"].as_u64().unwrap() > 1_000_000);
    }
    let out = ok(&[&["profile", &model], &args[..]].concat());
    assert!(out.contains("GFLOP/s") && out.contains("(between steps)"), "{out}");
    let out = ok(&[&["profile", &model, "--json"], &args[..]].concat());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let percent = |rows: &serde_json::Value| -> f64 {
        rows.as_array().unwrap().iter().map(|row| row["percent"].as_f64().unwrap()).sum()
    };
    assert!(percent(&json["kinds"]) <= 100.0 + 1e-6);
    assert!((percent(&json["kinds"]) - percent(&json["operators"])).abs() < 1e-6);
}

#[test]
fn ops_lists_what_is_registered() {
    let out = ok(&["ops"]);
    let kinds: Vec<&str> = out.lines().collect();
    assert!(kinds.is_sorted() && kinds.contains(&"nn.Conv2d"), "{out}");
    assert!(ok(&["ops", "Conv2d"]).lines().all(|kind| kind.contains("Conv2d")));
    assert!(fails(&["ops", "nn.Convv2d"], 2).contains("nearest"), "a near miss is named");
}

#[test]
fn unsupported_operators_are_all_named() {
    let folder = Folder::new();
    let model = folder.write(
        "model.pnnx.param",
        "7767517\n4 3\npnnx.Input a 0 1 0 #0=(1)f32\nnn.Rellu b 1 1 0 1\nmy.Op c 1 1 1 2\npnnx.Output d 1 0 2\n",
    );
    for command in ["check", "run"] {
        let args: &[&str] =
            if command == "run" { &["run", &model, "-i", "x.npy"] } else { &["check", &model] };
        let message = fails(args, 3);
        assert!(
            message.contains("nn.Rellu") && message.contains("nearest known: nn.ReLU"),
            "{message}"
        );
        assert!(message.contains("my.Op"), "{message}");
    }
}

#[test]
fn exit_codes() {
    let folder = Folder::new();
    let model = digits("model.pnnx.param");
    // 2: arguments and input files.
    fails(&["run", "--top", "many"], 2);
    fails(&["frobnicate"], 2);
    fails(&["run", &model], 2);
    fails(&["run", &model, "-i", "no-such-file.npy"], 2);
    fails(&["run", &model, "-i", &digits("labels.npz")], 2);
    fails(&["run", "--mean", "0.5", &model, "-i", &digits("inputs.npz")], 2);
    fails(&["run", "--labels", "no-such-file.txt"], 2);
    fails(&["run", "-o", &folder.path("no/such/folder/out.npz")], 2);
    fails(&["run", "-t", "0"], 2);
    fails(&["bench", &model, "--shape", "1x1x8x8", "-n", "0"], 2);
    // 3: models.
    let message = fails(&["check", &folder.path("none")], 3);
    assert!(message.contains("none.pnnx.param"), "{message}");
    let broken = folder.write("broken.pnnx.param", "7767517\n1 1\npnnx.Input a 0 1\n");
    let message = fails(&["check", &broken], 3);
    assert!(message.contains("broken.pnnx.param:3:"), "{message}");
    // 4: limits.
    fails(&["run", "--max-memory", "16"], 4);
    fails(&["run", "--timeout", "0.000000001"], 4);
}

#[test]
fn help_is_complete() {
    let out = ok(&["--help"]);
    for word in ["run", "info", "check", "verify", "bench", "profile", "ops", "Exit codes"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let out = ok(&["run", "--help"]);
    assert!(out.contains("red, green, blue"), "{out}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("plutino"))
        .args(["ops"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take()); // whoever reads goes away before anything is printed
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn damaged_pictures_are_errors() {
    let folder = Folder::new();
    let png = std::fs::read(PathBuf::from(digits("samples/3.png"))).unwrap();
    let cut = folder.write("cut.png", &png[..png.len() / 2]);
    fails(&["run", "-i", &cut], 2);
    let text = folder.write("text.png", "not a picture");
    assert!(fails(&["run", "-i", &text], 2).contains("neither npy, npz, png nor jpeg"));
}

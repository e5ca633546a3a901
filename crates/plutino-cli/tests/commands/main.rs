//! The built command, from outside: what it prints, where it prints it, and its exit codes.
#![allow(clippy::unwrap_used)] // helpers of tests

mod arguments;
mod carry;
mod compare;
mod generate;
mod hostile;
mod pictures;
mod plan;
mod profile;
mod programs;
#[cfg(target_os = "linux")]
mod progress;
mod requests;
mod timeouts;
mod view;

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

/// Runs the command, checks its exit code, and returns what it printed to standard output and
/// error.
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

/// Operator lines with the right header.
fn program_text(lines: &[&str]) -> String {
    let outputs = lines.iter().filter_map(|line| line.split(' ').nth(3)?.parse::<usize>().ok());
    format!("7767517\n{} {}\n{}\n", lines.len(), outputs.sum::<usize>(), lines.join("\n"))
}

/// Lines that are the time of a run.
fn times(out: &str) -> usize {
    out.lines().filter(|line| line.ends_with(" ms") || line.ends_with(" µs")).count()
}

/// What a command prints as JSON.
fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(args)).unwrap()
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
    let out = ok(&["run", &model, "-i", &inputs, "-t", "2"]);
    assert!(out.starts_with("out0 (360,10)f32\ntensor([["), "{out}");
    // What goes to a file is not printed as well.
    let out = ok(&["run", &model, "-i", &inputs, "-o", &outputs, "-t", "2"]);
    assert!(out.starts_with("out0 (360,10)f32: min -") && out.lines().count() == 2, "{out}");
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
    let out = ok(&args);
    let verdict = out.lines().last().unwrap();
    assert!(verdict.starts_with("ok: 1 output as expected; largest error "), "{out}");
    assert!(verdict.ends_with(" of the deviation of an output"), "{out}");
    let json = ok(&[&args[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["verdict"], &json["outputs"][0]["mismatches"]), (&"ok".into(), &0.into()));
    assert!(json["outputs"][0]["error_per_deviation"].as_f64().unwrap() < 1e-5);
    let strict = [&args[..], &["--rtol", "0", "--atol", "0"]].concat();
    let (out, err) = run(&strict, 1);
    assert!(out.contains("MISMATCH") && out.contains("worst at ["), "{out}");
    assert!(
        out.lines().last().unwrap().starts_with("MISMATCH: out0 differs (1 of 1 output);"),
        "{out}"
    );
    assert_eq!(err, "");
    let labels = digits("labels.npz");
    let (out, _) = run(&["verify", &model, "--inputs", &inputs, "--expected", &labels], 1);
    assert!(!out.contains("largest error"), "nothing was compared: {out}");
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
    let labels = format!("zero\none\ntwo\nthree\n{}", "more\n".repeat(6));
    let labels = folder.write("labels.txt", labels);
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
fn passes_can_be_left_out() {
    let model = digits("model.pnnx.param");
    let kinds = |more: &[&str]| -> Vec<String> {
        let args = ["info", &model, "--plan", "--passes", "--json", "--shape", "4x1x8x8"];
        let json: serde_json::Value =
            serde_json::from_str(&ok(&[&args[..], more].concat())).unwrap();
        let steps = json["plan"].as_array().unwrap().iter();
        steps.map(|s| s["kind"].as_str().unwrap().to_owned()).collect()
    };
    let activations = |more| kinds(more).iter().filter(|kind| *kind == "nn.ReLU").count();
    let all = activations(&["--disable", "fuse"]);
    assert!(all > 1 && activations(&[]) == 0);
    assert_eq!(activations(&["--disable", "layout,fuse@relu"]), 1);
    assert_eq!(activations(&["--stop-after", "infer"]), all);
    let unknown = ["bench", &model, "-n", "1", "--disable", "layout,fuse@rellu"];
    let error = fails(&unknown, 2);
    assert!(error.contains("--disable fuse@rellu: the model has no operator"), "{error}");
    for args in [["--disable", "infer"], ["--disable", "fuze@relu"], ["--stop-after", "fuze"]] {
        let message = fails(&[&["bench", &model, "-n", "1"], &args[..]].concat(), 2);
        assert!(message.contains(args[1]), "{message}");
    }
}

#[test]
fn bench_and_profile() {
    let model = digits("model.pnnx.param");
    let args = ["--shape", "1x1x8x8", "-n", "3", "--warmup", "1", "-t", "1"];
    let out = ok(&[&["bench", &model], &args[..]].concat());
    assert!(out.contains("median") && out.contains("threads: 1"), "{out}");
    // On inputs from a file, and with 1 for what the file leaves open.
    let inputs = digits("inputs.npz");
    let out = ok(&["bench", &model, "-i", &inputs, "-n", "1"]);
    assert!(out.contains("(360,1,8,8)f32"), "{out}");
    let (out, err) = run(&["bench", &model, "-n", "1"], 0);
    assert!(out.contains("(1,1,8,8)f32"), "{out}");
    assert!(err.starts_with("note: the file records (?,1,8,8)f32 for input in0"), "{err}");
    fails(&["bench", &model, "-i", &inputs, "--shape", "1x1x8x8"], 2);
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
    let between = json["between_ms"].as_f64().unwrap();
    let total = json["total_ms"].as_f64().unwrap();
    for rows in ["kinds", "operators"] {
        let sum: f64 =
            json[rows].as_array().unwrap().iter().map(|row| row["ms"].as_f64().unwrap()).sum();
        assert!((sum + between - total).abs() < 1e-9 * total, "{sum} {between} {total}");
        assert!((percent(&json[rows]) + between / total * 100.0 - 100.0).abs() < 1e-6);
    }
    assert!(json["first_ms"].as_f64().unwrap() > 0.0 && json["plan_ms"].as_f64().unwrap() > 0.0);
    // The rows of a table add up to its last one, with --top as well.
    let out = ok(&[&["profile", &model, "--top", "2"], &args[..]].concat());
    let others = out.lines().find(|line| line.contains(" others)")).unwrap();
    assert!(others.starts_with('('), "{out}");
    assert!(out.contains("(run)") && out.contains("the faster 2 of 3 runs"), "{out}");
    let out = ok(&["profile", &model, "-i", &inputs, "-n", "1"]);
    assert!(out.contains("the faster 1 of 1 runs"), "{out}");
}

#[test]
fn ops_lists_what_is_registered() {
    let out = ok(&["ops"]);
    let kinds: Vec<&str> = out.lines().collect();
    assert!(kinds.is_sorted() && kinds.contains(&"nn.Conv2d"), "{out}");
    assert!(ok(&["ops", "Conv2d"]).lines().all(|kind| kind.to_lowercase().contains("conv2d")));
    for filter in ["conv2d", "nn.conv2D", "CONV2D"] {
        assert!(ok(&["ops", filter]).lines().any(|kind| kind == "nn.Conv2d"), "{filter}");
    }
    let one = ok(&["ops", "nn.conv2d"]);
    for part in ["nn.Conv2d", "kernel_size (2 integers of at least 1)", "weights", "dtypes"] {
        assert!(one.contains(part), "{part}: {one}");
    }
    let all = ok(&["ops"]);
    for kind in all.lines() {
        assert!(ok(&["ops", kind]).contains("(crates/plutino-ops/src/"), "{kind} has no page");
    }
    assert!(fails(&["ops", "convv2d"], 2).contains("nn.Conv2d"));
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
    // Inputs of shapes that the file rules out; where it says nothing, operators speak: 3.
    let wrong = plutino::Tensor::zeros(plutino::DType::F32, [2, 3, 8, 8]).unwrap();
    let array = folder.path("wrong.npy");
    plutino::npy::save(&array, &wrong.view()).unwrap();
    let expected = digits("outputs.npz");
    for args in [
        &["run", &model, "-i", &array][..],
        &["run", &model, "-i", &array, "--fetch", "8"],
        &["bench", &model, "-i", &array],
        &["bench", &model, "--shape", "2x3x8x8"],
        &["profile", &model, "--shape", "2x3x8x8"],
        &["info", &model, "--plan", "--shape", "2x3x8x8"],
        &["verify", &model, "--inputs", &array, "--expected", &expected],
    ] {
        let message = fails(args, 2);
        assert!(message.contains("'0' is (2,3,8,8), the file records (?,1,8,8)f32"), "{message}");
        assert!(message.contains("convbn2d_0"), "{message}");
    }
    let open = folder.write(
        "open.pnnx.param",
        program_text(&[
            "pnnx.Input in 0 1 a #a=(?,?)f32",
            "torch.matmul m 2 1 a a y",
            "pnnx.Output o 1 0 y",
        ]),
    );
    fails(&["bench", &open, "--shape", "2x3"], 3);
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
fn sizes_are_limited() {
    let model = digits("model.pnnx.param");
    for command in ["check", "info", "view", "bench"] {
        let message = fails(&[command, &model, "--limit", "words=10"], 4);
        assert!(message.contains("`--limit words=N`"), "{message}");
    }
    let input = digits("inputs.npz");
    let limits = ["--limit", "operators=1000", "--limit", "planned-bytes=1kB"];
    let message = fails(&[&["run", &model, "-i", &input], &limits[..]].concat(), 4);
    assert!(message.contains("the limit is 1000"), "{message}");
    let message = fails(&["check", &model, "--limit", "wrds=10"], 2);
    assert!(message.contains("text-bytes, words, operators"), "{message}");
    ok(&["check", &model, "--limit", "words=100000"]);
}

#[test]
fn help_is_complete() {
    let out = ok(&["--help"]);
    for word in ["run", "info", "check", "verify", "bench", "profile", "ops", "Exit codes"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let out = ok(&["run", "--help"]);
    assert!(out.contains("red, green, blue"), "{out}");
    // Each option stands below the heading that it belongs to.
    for command in ["run", "bench", "profile"] {
        let out = ok(&[command, "--help"]);
        let at = |what: &str| out.find(what).unwrap_or_else(|| panic!("{command}: {what}"));
        assert!(at("\nOptions:") < at("  -i, --input"), "{out}");
        assert!(at("  -i, --input") < at("--json") && at("--json") < at("\nPictures"), "{out}");
        assert!(at("\nPictures") < at("\nExecution:") && at("\nExecution:") < at("--threads"));
    }
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
    assert!(fails(&["run", "-i", &text], 2).contains("neither npy, npz, png, jpeg, webp nor bmp"));
}

#[test]
fn check_infers_what_would_run() {
    let folder = Folder::new();
    let model = |name: &str, lines: &str| {
        let lines: Vec<&str> = lines.lines().map(str::trim).collect();
        let operands = lines.len() - 1;
        let text = format!("7767517\n{} {operands}\n{}\n", lines.len(), lines.join("\n"));
        folder.write(&format!("{name}.pnnx.param"), text)
    };
    assert!(
        ok(&["check", &digits("model")]).contains(
            "runs as recorded; open sizes were taken as (2,1,8,8)f32 and as (1,1,8,8)f32"
        )
    );
    // Without its weights.
    let linear = "nn.Linear l 1 1 0 1 bias=False in_features=3 out_features=5 @weight=(5,3)f32";
    let fine = model(
        "fine",
        &format!("pnnx.Input in 0 1 0 #0=(2,3)f32\n{linear} #1=(2,5)f32\npnnx.Output o 1 0 1"),
    );
    let (out, err) = run(&["check", &fine], 0);
    assert!(out.contains("all supported; runs as recorded"), "{out}");
    assert!(err.starts_with("note: ") && err.contains("checked without"), "{err}");
    // Two values that differ, one of them made of the other; both are told, also by info.
    let differs = model(
        "differs",
        "pnnx.Input in 0 1 0 #0=(2,3)f32
         torch.argmax a 1 1 0 1 dim=1 keepdim=False $input=0 #1=(2)i32
         pnnx.Expression e 1 1 1 2 expr=add(@0,1) #2=(2)i32
         pnnx.Output o 1 0 2",
    );
    let (out, err) = run(&["check", &differs], 0);
    assert!(out.contains("runs, with 1 warning"), "{out}");
    assert!(err.contains("operand 1 is (2)i64, the file records (2)i32"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    let (_, err) = run(&["info", &differs], 0);
    assert!(err.contains("operand 1 is (2)i64, the file records (2)i32"), "{err}");
    let input = folder.path("x.npy");
    let x = plutino::Tensor::zeros(plutino::DType::F32, [2, 3]).unwrap();
    plutino::npy::save(&input, &x.view()).unwrap();
    let (_, err) = run(&["run", &differs, "-i", &input], 0);
    assert!(err.contains("operand 1 is (2)i64, the file records (2)i32"), "{err}");
    let expected = folder.path("y.npz");
    let y = plutino::Tensor::from_slice(&[1i64, 1], [2]).unwrap();
    plutino::npy::npz::save(&expected, [("out0", y.view())]).unwrap();
    let args = ["verify", &differs, "--inputs", &input, "--expected", &expected];
    let (out, err) = run(&args, 0);
    assert!(out.contains("ok: 1 output as expected"), "{out}");
    assert!(err.contains("operand 1 is (2)i64, the file records (2)i32"), "{err}");
    // What would fail is an error, wherever it stands; all of it is named.
    let fails_twice = model(
        "fails",
        &format!(
            "pnnx.Input in 0 1 0 #0=(2,4)f32\n{linear} #1=(2,5)f32\n\
             Tensor.reshape r 1 1 1 2 shape=(3,4) $input=1 #2=(3,4)f32\npnnx.Output o 1 0 2"
        ),
    );
    let message = fails(&["check", &fails_twice], 3);
    assert!(message.contains("would fail at 2"), "{message}");
    assert!(message.contains(":4: nn.Linear 'l'") && message.contains(":5: Tensor.reshape 'r'"));
    // Weights that are there must be right.
    folder.write("fine.pnnx.bin", "no archive");
    assert!(fails(&["check", &fine], 3).contains("fine.pnnx.bin"));
}

#[test]
fn arrays_of_numpys_default_dtypes() {
    let folder = Folder::new();
    let model = digits("model.pnnx.param");
    let array = plutino::npy::npz::load(digits("inputs.npz")).unwrap().remove(0).1;
    let doubles = folder.path("x.npy");
    let wide = array.cast(plutino::DType::F64).unwrap();
    plutino::npy::save(&doubles, &wide.view()).unwrap();
    let message = fails(&["run", &model, "-i", &doubles], 2);
    for word in ["x.npy is f64", "must be f32", ".astype(np.float32)", "--cast"] {
        assert!(message.contains(word), "{message}");
    }
    let exact = folder.path("exact.npz");
    ok(&["run", &model, "-i", &digits("inputs.npz"), "-o", &exact]);
    let same = ["--expected", &exact, "--rtol", "0", "--atol", "0"];
    ok(&[&["verify", &model, "--inputs", &doubles, "--cast"], &same[..]].concat());
    fails(&[&["verify", &model, "--inputs", &doubles], &same[..]].concat(), 2);
    ok(&["bench", &model, "-i", &doubles, "--cast", "-n", "1"]);
    let large = folder.path("large.npy");
    let x = plutino::Tensor::full([1, 1, 8, 8], 1e300f64).unwrap();
    plutino::npy::save(&large, &x.view()).unwrap();
    assert!(fails(&["run", &model, "-i", &large, "--cast"], 2).contains("is no f32"));
}

/// f16 is one of NumPy's dtypes; bf16 is not: --cast makes it, and files hold it as f32.
#[test]
fn arrays_of_half_the_width() {
    let folder = Folder::new();
    let save = |name: &str, x: &plutino::Tensor| {
        plutino::npy::save(folder.path(name), &x.view()).unwrap();
        folder.path(name)
    };
    let x = plutino::Tensor::from_slice(&[0.1f32, -2.0, 3.0, 1.0, 0.0, 1000.0], [2, 3]).unwrap();
    let singles = save("singles.npy", &x);
    let halves = save("halves.npy", &x.cast(plutino::DType::F16).unwrap());
    for (dtype, found) in [("f16", plutino::DType::F16), ("bf16", plutino::DType::Bf16)] {
        let text = format!(
            "7767517\n3 2\npnnx.Input in 0 1 0 #0=(2,3){dtype}\nF.relu r 1 1 0 1\npnnx.Output o 1 0 1\n"
        );
        let model = folder.write(&format!("{dtype}.pnnx.param"), text);
        let message = fails(&["run", &model, "-i", &singles], 2);
        let way = if dtype == "f16" { ".astype(np.float16)" } else { "NumPy does not have" };
        assert!(message.contains(way) && message.contains("--cast"), "{message}");
        let file = folder.path(&format!("{dtype}.npz"));
        let out = ok(&["run", &model, "-i", &singles, "--cast", "-o", &file]);
        assert!(out.contains(&format!("out0 (2,3){dtype}")), "{out}");
        let written = plutino::npy::npz::load(&file).unwrap().remove(0).1;
        let relu = [0.1f32, 0.0, 3.0, 1.0, 0.0, 1000.0];
        let expected = plutino::Tensor::from_slice(&relu, [2, 3]).unwrap().cast(found).unwrap();
        assert_eq!(written.cast(found).unwrap(), expected);
        let exact = ["--cast", "--expected", &file, "--rtol", "0", "--atol", "0"];
        ok(&[&["verify", &model, "--inputs", &singles], &exact[..]].concat());
    }
    // As it is, where the model takes it.
    let model = folder.path("f16.pnnx.param");
    let numbers = |args: &[&str]| -> Vec<String> {
        let mut lines: Vec<String> = ok(args).lines().map(str::to_owned).collect();
        lines.pop(); // the time
        lines
    };
    let found = numbers(&["run", &model, "-i", &halves]);
    assert_eq!(found, numbers(&["run", &model, "-i", &singles, "--cast"]));
    assert!(found.len() > 2, "{found:?}");
    fails(&["run", &folder.path("bf16.pnnx.param"), "-i", &halves], 2);
}

#[test]
fn several_pictures_are_a_batch_or_runs() {
    let folder = Folder::new();
    let pictures: Vec<String> =
        [3, 7, 1].map(|n| digits(&format!("samples/{n}.png"))).into_iter().collect();
    let mut args = vec!["run".to_owned(), digits("model.pnnx.param"), "--top".into(), "1".into()];
    pictures.iter().for_each(|p| args.extend(["-i".into(), p.clone()]));
    let classes = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let out = ok(&args);
        let class = |line: &str| line.split_whitespace().last().map(str::to_owned);
        let classes: Vec<_> = out.lines().filter(|l| l.contains('%')).filter_map(class).collect();
        (out, classes)
    };
    // The batch is open: one run, whose rows are named after the pictures.
    let (out, found) = classes(&args);
    assert_eq!(found, ["3", "7", "1"]);
    assert_eq!(times(&out), 1, "{out}");
    pictures.iter().for_each(|p| assert!(out.contains(p.as_str()), "{out}"));
    // A model that takes one picture: one run for each.
    let text = std::fs::read_to_string(digits("model.pnnx.param")).unwrap();
    folder.write("one.pnnx.param", text.replace("(?,", "(1,"));
    folder.write("one.pnnx.bin", std::fs::read(digits("model.pnnx.bin")).unwrap());
    args[1] = folder.path("one");
    let (out, found) = classes(&args);
    assert_eq!(found, ["3", "7", "1"]);
    assert_eq!(times(&out), 3, "{out}");
    let file = folder.path("out.npz");
    args.extend(["-o".into(), file.clone()]);
    classes(&args);
    let written = plutino::npy::npz::load(&file).unwrap();
    let names: Vec<&str> = written.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["3.out0", "7.out0", "1.out0"]);
    args[0] = "bench".into();
    args.retain(|a| a != "--top" && a != "1" && a != "-o" && *a != file);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert!(fails(&args, 2).contains("one picture at a time"));
}

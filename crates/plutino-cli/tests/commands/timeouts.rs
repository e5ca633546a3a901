//! `--timeout`: every command that loads a model ends with it, whatever it is at.

use crate::{Folder, digits, fails, program_text, run};
use std::time::{Duration, Instant};

/// A model whose runs have no end.
pub(crate) struct Endless {
    folder: Folder,
    model: String,
    defines: [String; 2],
    input: String,
}

impl Endless {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let write = |name: &str, lines: &[&str]| {
            folder.write(&format!("{name}.pnnx.param"), program_text(lines))
        };
        let model = write(
            "endless",
            &[
                "pnnx.Input in 0 1 x #x=(2)f32",
                "plutino.While w 1 1 x y cond=Yes body=Same",
                "pnnx.Output out 1 0 y",
            ],
        );
        let yes = [
            "pnnx.Input in 0 1 x",
            "torch.max m 1 1 x y",
            "torch.ge g 1 1 y c other=-1e9",
            "pnnx.Output out 1 0 c",
        ];
        let same = [
            "pnnx.Input in 0 1 x",
            "pnnx.Expression e 1 1 x y expr=mul(@0,0.5)",
            "pnnx.Output out 1 0 y",
        ];
        let defines =
            [format!("Yes={}", write("Yes", &yes)), format!("Same={}", write("Same", &same))];
        let input = folder.path("in.npz");
        let zeros = plutino::Tensor::zeros(plutino::DType::F32, [2]).unwrap();
        plutino::npy::npz::save(&input, [("in0", zeros.view())]).unwrap();
        Self { folder, model, defines, input }
    }

    /// A command on it, which has this many seconds.
    pub(crate) fn args(&self, command: &[&str], seconds: &str) -> Vec<String> {
        let mut args: Vec<String> = command.iter().map(|arg| (*arg).to_owned()).collect();
        args.insert(1, self.model.clone());
        for define in &self.defines {
            args.extend(["--define".to_owned(), define.clone()]);
        }
        if command[0] == "run" {
            args.extend(["-i".to_owned(), self.input.clone()]);
        }
        args.extend(["--timeout".to_owned(), seconds.to_owned()]);
        args
    }

    fn ends(&self, command: &[&str]) {
        let args = self.args(command, "0.3");
        let start = Instant::now();
        let err = fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 4);
        assert!(err.contains("deadline"), "{command:?}: {err}");
        assert!(start.elapsed() < Duration::from_secs(30), "{command:?}");
    }
}

#[test]
fn runs_end() {
    let endless = Endless::new();
    endless.ends(&["run"]);
    endless.ends(&["run", "--check-finite"]);
    endless.ends(&["bench"]);
    endless.ends(&["profile"]);
    endless.ends(&["view", "-o", &endless.folder.path("page.html")]);
    endless.ends(&["verify", "--inputs", &endless.input, "--expected", &endless.input]);
    endless.ends(&["compare", "--with", &endless.model]);
    assert!(!std::path::Path::new(&endless.folder.path("page.html")).exists());
}

/// Loading takes a fraction of the time that planning does. How long it takes here is found out:
/// time is added until it is enough for the first.
#[test]
fn plans_end() {
    let folder = Folder::new();
    let operators = 30_000;
    let mut lines = vec!["pnnx.Input in 0 1 0 #0=(4)f32".to_owned()];
    lines.extend((0..operators).map(|i| format!("F.gelu e{i} 1 1 {i} {}", i + 1)));
    lines.push(format!("pnnx.Output out 1 0 {operators}"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let model = folder.write("long.pnnx.param", program_text(&lines));
    let out = folder.path("out");
    for command in [
        &["info", "--plan"][..],
        &["view", "--no-profile", "-o", &out],
        &["bench"],
        &["partition", "--contexts", "1", "-o", &out],
    ] {
        let mut seconds = 0.05;
        let err = loop {
            let time = seconds.to_string();
            let args = [&[command[0], &model], &command[1..], &["--timeout", &time]].concat();
            let err = fails(&args, 4); // an error: it never comes to the end
            assert!(err.contains("the deadline passed"), "{command:?}: {err}");
            if !err.contains("while loading") {
                break err;
            }
            seconds *= 1.5;
        };
        assert!(err.contains("the deadline passed while planning"), "{command:?}: {err}");
        assert!(!std::path::Path::new(&out).exists(), "{command:?}");
    }
}

/// All commands with a model, also those that end by themselves: no time at all is too little.
#[test]
fn every_command_knows_it() {
    let folder = Folder::new();
    let (model, inputs) = (digits("model.pnnx.param"), digits("inputs.npz"));
    let out = folder.path("out");
    let shapes =
        |name: &str| format!("{}/../../fixtures/shapes/{name}", env!("CARGO_MANIFEST_DIR"));
    let (detector, segmenter) =
        (shapes("detector/model.pnnx.param"), shapes("segmenter/model.pnnx.param"));
    let picture = shapes("0.png");
    let commands: &[&[&str]] = &[
        &["run", &model, "-i", &inputs],
        &["classify", &model, "-i", &picture],
        &["detect", &detector, "-i", &picture],
        &["segment", &segmenter, "-i", &picture],
        &["generate", "--max", "3"],
        &["info", &model],
        &["check", &model],
        &["verify", &model, "--inputs", &inputs, "--expected", &inputs],
        &["compare", &model, "--with", &model],
        &["bench", &model, "--shape", "1x1x8x8"],
        &["profile", &model, "--shape", "1x1x8x8"],
        &["view", &model, "-o", &out],
        &["extract", &model, "--to", "3", "-o", &out],
        &["optimize", &model, "-o", &out],
        &["partition", &model, "--contexts", "1", "--shape", "1x1x8x8", "-o", &out],
    ];
    for command in commands {
        let err = fails(&[command, &["--timeout", "0.000000001"][..]].concat(), 4);
        assert!(err.contains("deadline"), "{command:?}: {err}");
    }
    // None was forgotten: whatever takes a budget takes a time.
    let (help, _) = run(&["--help"], 0);
    let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    // Names stand in the third column, further lines of what is said of them behind it.
    let lines = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"partition"), "{help}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let (help, _) = run(&[name, "--help"], 0);
        assert_eq!(help.contains("--max-memory"), help.contains("--timeout"), "{name}");
    }
}

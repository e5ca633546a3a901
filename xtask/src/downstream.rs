//! `cargo xtask downstream`: what a program of somebody else meets.
//!
//! A crate outside of the workspace, with default profiles, holds the README's example word for
//! word (but for the names of the files). It is built and run, optimised and not, on the main
//! thread and on threads of the usual 2 MiB; and so are all cases of `fixtures/ops`. The frames of
//! the unoptimised program are checked. The tests of `examples/own-operator`, which depends on
//! public interfaces only, run as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use plutino_tensor::Tensor;
use plutino_tensor::npy::{self, npz};

use crate::{frames, project_root};

/// Build and run the README's example in a crate of its own, with default profiles.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do not build with optimisation.
    #[arg(long)]
    debug_only: bool,
    /// Run these folders, each with a model.pnnx.param and an inputs.npz [default: all of
    /// fixtures/ops].
    models: Vec<PathBuf>,
}

const MAIN: &str = r#"
mod example {
    include!("example.rs");
    pub fn run() {
        main().unwrap();
    }
}

/// The stack of a thread that the standard library starts, whatever RUST_MIN_STACK says.
fn spawn(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(work);
    thread.unwrap().join().unwrap();
}

fn main() {
    example::run();
    spawn(example::run);
    for folder in std::env::args().skip(1) {
        spawn(move || {
            let model = plutino::Model::load(format!("{folder}/model.pnnx.param")).unwrap();
            let session = model.session(plutino::SessionOptions::default()).unwrap();
            let inputs = plutino::npy::npz::load(format!("{folder}/inputs.npz")).unwrap();
            let inputs: Vec<_> = inputs.into_iter().map(|(_, tensor)| tensor).collect();
            if let Err(error) = session.run(&inputs) {
                panic!("{folder}: {error}");
            }
        });
    }
}
"#;

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = project_root()?;
    let folder = root.join("target/downstream");
    create(&root, &folder)?;
    let mut models = match args.models.is_empty() {
        true => cases()?,
        false => args.models.clone(),
    };
    models.extend(deep(&folder)?);
    cargo(&folder, &["build"], &[])?;
    frames::check(&folder.join("target/debug/downstream"))?;
    cargo(&folder, &["run", "--quiet", "--"], &models)?;
    let example = root.join("examples/own-operator");
    write(&example.join("Cargo.lock"), &fs::read_to_string(root.join("Cargo.lock"))?)?;
    cargo_in(&example, &folder, &["test", "--quiet"], &[])?;
    if !args.debug_only {
        cargo(&folder, &["run", "--release", "--"], &models)?;
    }
    println!("{} models run on stacks of 2 MiB", models.len() + 1);
    Ok(())
}

/// The folders of the cases in `fixtures/ops`.
fn cases() -> Result<Vec<PathBuf>> {
    let cases = plutino_fixtures::OpCase::all()?;
    Ok(cases.iter().map(|case| case.path().to_owned()).collect())
}

/// Models as deep as they may be: what walks them must not need more stack than there is.
fn deep(folder: &Path) -> Result<[PathBuf; 3]> {
    let input = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    let save = |name: &str, operators: &[String], output: usize| {
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        npz::save(folder.join("inputs.npz"), [("in0", input.view())])?;
        let mut text = format!("7767517\n{} {}\n", operators.len() + 2, operators.len() + 1);
        text += "pnnx.Input in 0 1 0\n";
        text.extend(operators.iter().map(|operator| format!("{operator}\n")));
        text += &format!("pnnx.Output out 1 0 {output}\n");
        write(&folder.join("model.pnnx.param"), &text)?;
        Ok::<_, anyhow::Error>(folder)
    };
    let levels = plutino::ir::expr::MAX_DEPTH - 1;
    let nested = format!("{}@0{}", "neg(".repeat(levels), ")".repeat(levels));
    let expression = save("expression", &[format!("pnnx.Expression e 1 1 0 1 expr={nested}")], 1)?;
    let length = 3000;
    let chain: Vec<_> =
        (0..length).map(|i| format!("torch.neg neg_{i} 1 1 {i} {}", i + 1)).collect();
    let chain = save("chain", &chain, length)?;
    // Tuples inside tuples, and out again.
    let levels = 60;
    let pack = (0..levels).map(|i| format!("prim::TupleConstruct in_{i} 1 1 {i} {}", i + 1));
    let unpack =
        (levels..2 * levels).map(|i| format!("prim::TupleUnpack out_{i} 1 1 {i} {}", i + 1));
    let tuples = save("tuples", &pack.chain(unpack).collect::<Vec<_>>(), 2 * levels)?;
    Ok([expression, chain, tuples])
}

/// Writes the crate. It takes the versions of the workspace's lock file.
fn create(root: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    let image = &npz::load(root.join("fixtures/digits/inputs.npz"))?[0].1;
    npy::save(folder.join("image.npy"), &image.view())?;
    let crates = root.join("crates");
    let crates = crates.to_str().context("a path that is not UTF-8")?;
    // The test kit is for examples/own-operator, so that both build the same.
    let manifest = format!(
        "[package]\nname = \"downstream\"\nedition = \"2024\"\n\n[dependencies]\n\
         plutino = {{ path = \"{crates}/plutino\" }}\n\
         plutino-ops = {{ path = \"{crates}/plutino-ops\", features = [\"testkit\"] }}\n\n[workspace]\n"
    );
    write(&folder.join("Cargo.toml"), &manifest)?;
    write(&folder.join("Cargo.lock"), &fs::read_to_string(root.join("Cargo.lock"))?)?;
    write(&folder.join("src/main.rs"), MAIN)?;
    write(&folder.join("src/example.rs"), &example(root)?)
}

/// Writes a file, unless it is there: nothing is built again that need not be. (Cargo leaves out of
/// the lock file what the crate does not use: then it is written again, which costs nothing.)
fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// The README's example, with files that exist.
fn example(root: &Path) -> Result<String> {
    let readme = fs::read_to_string(root.join("README.md"))?;
    let example = readme.split_once("```rust\n").and_then(|(_, rest)| rest.split_once("```"));
    let (example, _) = example.context("README.md has no example in Rust")?;
    let model = root.join("fixtures/digits/model.pnnx.param");
    let image = root.join("target/downstream/image.npy");
    let mut text = example.to_owned();
    for (name, path) in [("resnet18.pnnx.param", model), ("image.npy", image)] {
        let name = format!("{name:?}");
        ensure!(text.contains(&name), "README.md: the example does not load {name}");
        let path = path.to_str().context("a path that is not UTF-8")?;
        text = text.replace(&name, &format!("{path:?}"));
    }
    Ok(text)
}

fn cargo(folder: &Path, arguments: &[&str], models: &[PathBuf]) -> Result<()> {
    cargo_in(folder, folder, arguments, models)
}

/// Runs cargo as in a shell of the crate's author: with none of the settings of this project.
/// `built` is the crate that has built what both depend on.
fn cargo_in(folder: &Path, built: &Path, arguments: &[&str], models: &[PathBuf]) -> Result<()> {
    let mut command = Command::new("cargo");
    // Not RUSTFLAGS and CARGO_TARGET_DIR: they are set by who runs this, for all of it.
    command.current_dir(folder).env("CARGO_TARGET_DIR", built.join("target"));
    command.env_remove("CARGO_INCREMENTAL").env_remove("RUST_MIN_STACK");
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PROFILE_") || name.starts_with("CARGO_BUILD_TARGET") {
            command.env_remove(name);
        }
    }
    let status = command.args(arguments).args(models).status().context("cargo")?;
    ensure!(status.success(), "cargo {}: {status}", arguments.join(" "));
    Ok(())
}

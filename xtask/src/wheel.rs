//! `cargo xtask wheel` and `cargo xtask wheel-test`: the package of Python.
//!
//! `crates/plutino-python` is a workspace of its own, so that nothing else pays for PyO3. What is
//! built lies below `target/python`: `tools` (a virtual environment with maturin), `build` (what
//! cargo compiles), `wheels`, and `test` (a fresh environment with NumPy and the wheel).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::licences::{Package, packages};
use crate::python::{self, succeed};

/// Build the wheel of the Python package: target/python/wheels/plutino-*.whl
///
/// Needs python3 and PyPI, for maturin.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Build for older systems than this one, such as manylinux_2_17: linked by Zig (PyPI has it)
    /// against the C library of that year. Compiles everything anew the first time.
    #[arg(long, value_name = "TAG")]
    compatibility: Option<String>,
}

/// Build the wheel, install it with NumPy alone in a fresh environment, and run its tests
#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// The interpreter to test with.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Further packages to install, for the tests that want them: ml_dtypes.
    #[arg(long = "with")]
    packages: Vec<String>,
    /// Install PyTorch and pnnx as well, for the tests of the exporter.
    #[arg(long)]
    torch: bool,
    /// Install mypy as well, and hold the types: what users write (`tests/typed.py`), and the stub
    /// of the native half against it.
    #[arg(long)]
    types: bool,
    /// Test the wheel that is there.
    #[arg(long)]
    no_build: bool,
}

/// Run the Python package's examples on joblib, Dask, Ray and Spark, with two local workers each
///
/// Installs these in an environment of their own; Spark needs a Java runtime and is left out
/// without.
#[derive(clap::Args)]
pub(crate) struct ClusterArgs {
    /// The interpreter to run with.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Run with the wheel that is there.
    #[arg(long)]
    no_build: bool,
}

/// The package, below the project's root.
pub(crate) const FOLDER: &str = "crates/plutino-python";

/// What is built, below the project's root.
const OUT: &str = "target/python";

/// Bytes that a wheel may have.
const MOST: u64 = 8_000_000;

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let wheel = build(root, args.compatibility.as_deref())?;
    let bytes = fs::metadata(&wheel)?.len();
    println!("{}: {:.2} MB", wheel.display(), bytes as f64 / 1e6);
    ensure!(bytes <= MOST, "a wheel may have {MOST} bytes, this one has {bytes}");
    Ok(())
}

pub(crate) fn test(root: &Path, args: &TestArgs) -> Result<()> {
    if !args.no_build {
        run(root, &Args::default())?;
    }
    let wheel = newest(&root.join(OUT).join("wheels"))?;
    let venv = root.join(OUT).join("test");
    if venv.exists() {
        fs::remove_dir_all(&venv)?;
    }
    succeed(Command::new(&args.python).args(["-m", "venv"]).arg(&venv))?;
    let python = interpreter(&venv);
    let torch = if args.torch { &["torch", "torchvision", "pnnx"][..] } else { &[] };
    succeed(pip(&python).arg("numpy").arg(&wheel).args(&args.packages).args(torch))?;
    // Not in the package's folder: what is tested is what was installed.
    let tests = root.join(FOLDER).join("tests");
    let discover = ["-m", "unittest", "discover", "--start-directory"];
    succeed(Command::new(&python).current_dir(&venv).args(discover).arg(&tests))?;
    if args.types {
        succeed(pip(&python).arg("mypy"))?;
        let mypy = ["-m", "mypy", "--strict", "--ignore-missing-imports"];
        succeed(Command::new(&python).current_dir(&venv).args(mypy).arg(tests.join("typed.py")))?;
        // Stubs for Python 3.9 have no word for classes that cannot be bases together.
        let stubtest = ["-m", "mypy.stubtest", "plutino._native", "--ignore-disjoint-bases"];
        succeed(Command::new(&python).current_dir(&venv).args(stubtest))?;
    }
    Ok(())
}

pub(crate) fn clusters(root: &Path, args: &ClusterArgs) -> Result<()> {
    if !args.no_build {
        run(root, &Args::default())?;
    }
    let out = root.join(OUT);
    let (wheel, venv) = (newest(&out.join("wheels"))?, out.join("clusters"));
    let examples = root.join(FOLDER).join("examples");
    let python = interpreter(&venv);
    if !python.exists() {
        succeed(Command::new(&args.python).args(["-m", "venv"]).arg(&venv))?;
        succeed(pip(&python).arg("--requirement").arg(examples.join("requirements.txt")))?;
    }
    succeed(pip(&python).args(["--force-reinstall", "--no-deps"]).arg(&wheel))?;
    let java = Command::new("java").arg("-version").output().is_ok_and(|o| o.status.success());
    let all = ["joblib_pool", "dask_cluster", "ray_data", "spark"];
    for example in all.into_iter().filter(|&example| java || example != "spark") {
        succeed(Command::new(&python).arg(examples.join(example).with_extension("py")))?;
    }
    if !java {
        println!("spark: left out, there is no Java");
    }
    Ok(())
}

/// Builds the wheel, for systems of this tag or those like this one; its path.
fn build(root: &Path, compatibility: Option<&str>) -> Result<PathBuf> {
    same_version(root)?;
    let folder = root.join(FOLDER);
    fs::write(folder.join("LICENSE-THIRD-PARTY"), notices(root)?)?;
    let out = root.join(OUT);
    let wheels = out.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let venv = out.join("tools");
    let python = tools(root, &venv, "requirements.txt")?;
    let mut maturin = Command::new(&python);
    maturin.args(["-m", "maturin", "build", "--release", "--locked", "--manifest-path"]);
    maturin.arg(folder.join("Cargo.toml"));
    maturin.arg("--out").arg(&wheels).arg("--target-dir");
    match compatibility {
        None => maturin.arg(out.join("build")),
        Some(tag) => {
            tools(root, &venv, "zig.txt")?;
            maturin.env("CARGO_ZIGBUILD_PYTHON_PATH", &python); // which has Zig
            maturin.arg(out.join("build-zig")).args(["--zig", "--compatibility", tag])
        }
    };
    succeed(&mut maturin)?;
    newest(&wheels)
}

/// The interpreter of an environment with what builds a wheel: the packages of this file.
fn tools(root: &Path, venv: &Path, packages: &str) -> Result<PathBuf> {
    let python = interpreter(venv);
    let wanted = root.join(python::SCRIPTS).join("wheel").join(packages);
    let installed = venv.join(packages); // what the environment was made from
    if fs::read(&installed).ok() != Some(fs::read(&wanted)?) {
        if !python.exists() {
            succeed(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
        }
        succeed(pip(&python).arg("--requirement").arg(&wanted))?;
        fs::copy(&wanted, &installed)?;
    }
    Ok(python)
}

fn interpreter(venv: &Path) -> PathBuf {
    venv.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

pub(crate) fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// The one wheel of a folder.
pub(crate) fn newest(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut wheels = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            wheels.push(path);
        }
    }
    match <[PathBuf; 1]>::try_from(wheels) {
        Ok([wheel]) => Ok(wheel),
        Err(wheels) => bail!("{} wheels in {}, not one", wheels.len(), folder.display()),
    }
}

/// Dependencies of which the wheel has another version than the workspace was tested with: its lock
/// file is one of its own.
pub(crate) fn drift(root: &Path) -> Result<Vec<String>> {
    let mut tested: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages(root)? {
        tested.entry(package.name).or_default().push(package.version);
    }
    let built = packages(&root.join(FOLDER))?;
    let others = built.iter().filter_map(|Package { name, version, .. }| {
        let tested = tested.get(name).filter(|tested| !tested.contains(version))?;
        let (tested, fix) = (tested.join(", "), "cargo update --precise in");
        Some(format!("{name} {version}, the workspace has {tested}: {fix} {FOLDER}"))
    });
    Ok(others.collect())
}

/// The package stands in a workspace of its own, and cannot take its version from ours.
fn same_version(root: &Path) -> Result<()> {
    let packages = packages(&root.join(FOLDER))?;
    let version = |name: &str| {
        let package = packages.iter().find(|package| package.name == name);
        package.map(|package| package.version.clone()).context(name.to_owned())
    };
    let (own, engine) = (version("plutino-python")?, version("plutino")?);
    ensure!(own == engine, "plutino-python has version {own}, plutino has {engine}");
    Ok(())
}

/// The licences of everything that the wheel may hold code of: texts, each with the crates that
/// come under it.
fn notices(root: &Path) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let packages = packages(&root.join(FOLDER))?;
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let Package { name, version, license, manifest_path, .. } = package;
        let license = license.as_deref().unwrap_or_default();
        let crate_name = format!("{name} {version} ({license})");
        let folder = manifest_path.parent().context("a manifest lies in a folder")?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let is_notice = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];
            if path.is_file() && is_notice.iter().any(|start| file.starts_with(start)) {
                let text = String::from_utf8_lossy(&fs::read(&path)?).trim().to_owned();
                texts.entry(text).or_default().push(crate_name.clone());
            }
        }
    }
    let mut all = String::new();
    for (text, crates) in texts {
        writeln!(all, "{}\n\n{text}\n\n{}\n", crates.join("\n"), "-".repeat(80))?;
    }
    Ok(all)
}

/// The folder in which the wheel lies unpacked, for an interpreter that has all else.
pub(crate) fn unpacked(root: &Path, python: &Path) -> Result<PathBuf> {
    let out = root.join("target/python");
    let site = out.join("site");
    let mut pip = pip(python);
    pip.args(["--no-deps", "--upgrade", "--target"]).arg(&site);
    succeed(pip.arg(newest(&out.join("wheels"))?))?;
    Ok(site)
}

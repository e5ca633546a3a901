//! What is damaged: the fixtures.

use plutino::Tensor;
use plutino_fixtures::{Fixture, FixtureError, OpCase};
use std::path::{Path, PathBuf};

/// A model that is right, with inputs that suit it.
#[derive(Debug, Clone)]
pub struct Seed {
    /// Name of the fixture.
    pub name: String,
    /// The `.param` file.
    pub text: String,
    /// The `.bin` file; none where weights are generated.
    pub bin: Option<Vec<u8>>,
    /// Inputs, in order.
    pub inputs: Vec<Tensor>,
    /// Bodies of its control flow, and modules that were kept whole: types, and `.param` files.
    pub definitions: Vec<(String, String)>,
}

/// Inputs larger than this are left out (a model gets made-up ones then), in bytes.
const MOST_INPUT: usize = 1 << 20;

/// Fixtures of one operator or a few.
///
/// # Errors
/// Where a fixture is not complete.
pub fn operators() -> Result<Vec<Seed>, FixtureError> {
    let seed = |case: OpCase| {
        let (text, bin) = files(case.path())?;
        let run = case.runs()?.into_iter().next();
        let inputs = run.map_or_else(Vec::new, |run| small(run.inputs));
        Ok(Seed { name: case.name, text, bin, inputs, definitions: Vec::new() })
    };
    OpCase::all()?.into_iter().map(seed).collect()
}

/// Whole networks.
///
/// # Errors
/// Where a fixture is not complete.
pub fn networks() -> Result<Vec<Seed>, FixtureError> {
    let seed = |fixture: Fixture| {
        let (text, bin) = files(fixture.path())?;
        let inputs = small(fixture.inputs()?);
        Ok(Seed { name: fixture.name, text, bin, inputs, definitions: Vec::new() })
    };
    Fixture::all()?.into_iter().map(seed).collect()
}

/// Control flow, and modules that were kept whole: a model, and a folder of definitions beside it.
///
/// # Errors
/// Where a fixture is not complete.
pub fn programs() -> Result<Vec<Seed>, FixtureError> {
    let all = plutino_fixtures::folder().join("programs");
    let seed = |folder: PathBuf| {
        let (text, bin) = files(&folder)?;
        let inputs = plutino::npy::npz::load(folder.join("inputs.npz"))?;
        let mut definitions = Vec::new();
        for path in listed(&folder.join("definitions"))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(kind) = name.strip_suffix(".pnnx.param") {
                let text = std::fs::read_to_string(&path);
                let text = text.map_err(|error| FixtureError::Io { path: path.clone(), error })?;
                definitions.push((kind.to_owned(), text));
            }
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Seed { name, text, bin, inputs: small(inputs), definitions })
    };
    listed(&all)?.into_iter().map(seed).collect()
}

/// What lies in a folder, in order.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, FixtureError> {
    let entries = || -> std::io::Result<Vec<PathBuf>> {
        folder.read_dir()?.map(|entry| Ok(entry?.path())).collect()
    };
    let io = |error| FixtureError::Io { path: folder.to_owned(), error };
    let mut paths = entries().map_err(io)?;
    paths.sort();
    Ok(paths)
}

fn files(folder: &Path) -> Result<(String, Option<Vec<u8>>), FixtureError> {
    let path = folder.join("model.pnnx.param");
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| FixtureError::Io { path, error })?;
    Ok((text, std::fs::read(folder.join("model.pnnx.bin")).ok()))
}

fn small(inputs: Vec<(String, Tensor)>) -> Vec<Tensor> {
    let tensors = inputs.into_iter().map(|(_, tensor)| tensor);
    let tensors: Vec<Tensor> = tensors.collect();
    let bytes: usize = tensors.iter().map(|tensor| tensor.as_bytes().len()).sum();
    if bytes > MOST_INPUT { Vec::new() } else { tensors }
}

/// What the fuzz target of this name begins with: fixtures, and what it has found before
/// (`fuzz/found`).
///
/// # Errors
/// Where a fixture is not complete.
pub fn corpus(target: &str) -> Result<Vec<Vec<u8>>, FixtureError> {
    let fixtures = operators()?;
    let mut all: Vec<Vec<u8>> = match target {
        "param" | "model" => fixtures.iter().map(|seed| seed.text.clone().into_bytes()).collect(),
        "bin" => {
            let own = networks()?.into_iter().filter(|seed| seed.name == "digits");
            own.chain(fixtures).filter_map(|seed| seed.bin).filter(|bin| bin.len() > 22).collect()
        }
        "npz" => fixtures.iter().map(archive).collect::<Result<_, _>>()?,
        _ => {
            let words = fixtures.iter().flat_map(|seed| seed.text.split_whitespace());
            words.filter_map(|word| Some(word.strip_prefix("expr=")?.as_bytes().to_vec())).collect()
        }
    };
    all.sort_unstable();
    all.dedup();
    all.extend(found(target)?);
    Ok(all)
}

/// The inputs of a model, as an archive.
fn archive(seed: &Seed) -> Result<Vec<u8>, FixtureError> {
    let named = seed.inputs.iter().enumerate().map(|(i, x)| (format!("in{i}"), x.view()));
    let mut bytes = Vec::new();
    plutino::npy::npz::write(&mut bytes, named)?;
    Ok(bytes)
}

/// Files on which the target has failed once.
fn found(target: &str) -> Result<Vec<Vec<u8>>, FixtureError> {
    let folder = plutino_fixtures::folder().join("../fuzz/found").join(target);
    let read = || -> std::io::Result<Vec<Vec<u8>>> {
        let mut paths: Vec<PathBuf> = match folder.read_dir() {
            Ok(entries) => {
                entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?
            }
            Err(_) => Vec::new(),
        };
        paths.sort();
        paths.iter().map(std::fs::read).collect()
    };
    read().map_err(|error| FixtureError::Io { path: folder.clone(), error })
}

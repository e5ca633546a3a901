//! The project's fixtures: real networks as pnnx exports them, with inputs and PyTorch's outputs.
//!
//! Full-size networks are kept without weights. [`generate_weights`] makes them out of their names,
//! with the same bits as the Python script that computed the expected outputs; `fixtures/README.md`
//! states the rules.
//!
//! ```
//! let fixture = plutino_fixtures::Fixture::named("digits")?;
//! let graph = fixture.graph()?;
//! let outputs = fixture.outputs()?;
//! assert!(graph.has_weights());
//! assert_eq!(outputs[0].shape, [360, 10]);
//! # Ok::<(), plutino_fixtures::FixtureError>(())
//! ```
#![forbid(unsafe_code)]

mod case;
mod fixture;
mod output;
mod precision;
mod random;
mod weights;

use std::io;
use std::path::{Path, PathBuf};

use plutino_ir::{AttributeError, LoadError, ParseError};
use plutino_tensor::TensorError;
use plutino_tensor::npy::NpyError;
use thiserror::Error;

pub use case::{OpCase, Run};
pub use fixture::{Fixture, Weights};
pub use output::{Mismatch, Output};
pub use precision::{Chain, Errors};
pub use random::{InputKind, Recipe, Words};
pub use weights::generate_weights;

/// The project's folder `fixtures/`.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// A fixture's files are missing, or do not fit together.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the fields are what their types say
pub enum FixtureError {
    /// A file or folder cannot be read.
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    /// A description is not JSON of the right form.
    #[error("{}: {error}", path.display())]
    Json { path: PathBuf, error: serde_json::Error },
    /// A model does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A graph does not parse.
    #[error("{}: {error}", path.display())]
    Graph { path: PathBuf, error: ParseError },
    /// An array does not load.
    #[error(transparent)]
    Array(#[from] NpyError),
    /// A tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A weight's data is not of its size.
    #[error("weight {weight}: {error}")]
    Weight { weight: String, error: AttributeError },
    /// Something that the description names is not there, or not of the type that it says.
    #[error("{}: {what}", path.display())]
    Content { path: PathBuf, what: String },
}

/// Names of the folders in `folder`, sorted.
fn subfolders(folder: &Path) -> Result<Vec<String>, FixtureError> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.path().is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    };
    read().map_err(|error| FixtureError::Io { path: folder.to_owned(), error })
}

fn read_json<T: serde::de::DeserializeOwned>(path: PathBuf) -> Result<T, FixtureError> {
    let text =
        std::fs::read(&path).map_err(|error| FixtureError::Io { path: path.clone(), error })?;
    serde_json::from_slice(&text).map_err(|error| FixtureError::Json { path, error })
}

//! From graphs to files.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::draft::Draft;
use crate::error::SaveError;
use crate::graph::Graph;

impl Graph {
    /// Writes both files. Each is written beside its final place and renamed when complete, so that
    /// neither a failure nor a mapped source leaves a broken model behind.
    ///
    /// # Errors
    /// If the graph is not valid, has something that would be read back differently or a weight
    /// without data, or a file cannot be written.
    pub fn save(
        &self,
        param_path: impl AsRef<Path>,
        bin_path: impl AsRef<Path>,
    ) -> Result<(), SaveError> {
        let (param_path, bin_path) = (param_path.as_ref(), bin_path.as_ref());
        let text = self.to_param_string()?;
        let bin = Draft::create(bin_path).map_err(failed(bin_path))?;
        self.write_bin(BufWriter::new(&bin.file)).map_err(|error| match error {
            SaveError::Write(error) => failed(bin_path)(error),
            other => other,
        })?;
        let mut param = Draft::create(param_path).map_err(failed(param_path))?;
        param.file.write_all(text.as_bytes()).map_err(failed(param_path))?;
        bin.publish().map_err(failed(bin_path))?;
        param.publish().map_err(failed(param_path))
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> SaveError {
    move |error| SaveError::Io { path: path.to_owned(), error }
}

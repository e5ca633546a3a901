//! From graphs to files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

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
        let text = self.to_param_string()?;
        let bin = Draft::create(bin_path.as_ref())?;
        self.write_bin(BufWriter::new(&bin.file)).map_err(|error| match error {
            SaveError::Write(error) => bin.failed(error),
            other => other,
        })?;
        let mut param = Draft::create(param_path.as_ref())?;
        param.file.write_all(text.as_bytes()).map_err(|error| param.failed(error))?;
        bin.publish()?;
        param.publish()
    }
}

/// A file that is being written; removed unless published.
struct Draft {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Draft {
    fn create(target: &Path) -> Result<Draft, SaveError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let path = target.with_file_name(name);
        match File::create(&path) {
            Ok(file) => Ok(Draft { file, path, target: target.to_owned() }),
            Err(error) => Err(SaveError::Io { path: target.to_owned(), error }),
        }
    }

    fn failed(&self, error: io::Error) -> SaveError {
        SaveError::Io { path: self.target.clone(), error }
    }

    fn publish(self) -> Result<(), SaveError> {
        fs::rename(&self.path, &self.target).map_err(|error| self.failed(error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After publishing there is nothing left to remove; a failure to tidy up is not worth
        // another error.
        let _ = fs::remove_file(&self.path);
    }
}

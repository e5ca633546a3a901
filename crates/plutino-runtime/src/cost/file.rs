//! Machines and recorded costs as JSON.
//!
//! ```json
//! {"plutino": "costs", "version": 1, "operators": [
//!   {"type": "nn.Conv2d", "kernel": "conv.direct.avx512", "shapes": "(1,64,56,56)f32 -> (1,64,56,56)f32",
//!    "isa": "avx512", "threads": 2, "us": 612.3}]}
//! ```

use super::{CostsError, Key, Machine, Recorded};
use crate::{SessionError, knobs};
use plutino_ir::read_small;
use plutino_kernels::Isa;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a file has at most. A record of an operator takes about 200 bytes.
const MOST: u64 = 64 << 20;

/// The version that is written, and read.
const VERSION: u32 = 1;

/// Longer than any operator takes, in microseconds: an hour.
const LONGEST_US: f64 = 3.6e9;

#[derive(Serialize, Deserialize)]
struct CostsFile {
    plutino: String,
    version: u32,
    operators: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    kernel: String,
    shapes: String,
    isa: String,
    threads: usize,
    us: f64,
}

#[derive(Serialize, Deserialize)]
struct MachineFile {
    plutino: String,
    version: u32,
    cpu: String,
    isa: String,
    threads: usize,
    peak_gflops: f64,
    /// Bytes up to which a rate holds (none: any), and the rate in 10^9 bytes a second.
    bandwidth: Vec<(Option<u64>, f64)>,
    step_ns: f64,
    job_ns: f64,
    enter_ns: f64,
    scaling: f64,
    efficiency: BTreeMap<String, f64>,
}

/// Reads a file of one sort.
fn read<T: DeserializeOwned>(path: &Path) -> Result<T, CostsError> {
    let failed = |error| CostsError::Io { file: path.to_owned(), what: "read", error };
    if std::fs::metadata(path).is_ok_and(|found| found.len() > MOST) {
        return Err(CostsError::TooLarge { file: path.to_owned(), most: MOST });
    }
    let text = read_small(path, MOST).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| {
        let (line, column, what) = (error.line(), error.column(), error.to_string());
        let place = format!(" at line {line} column {column}"); // which is told before it
        let what = what.strip_suffix(&place).unwrap_or(&what).to_owned();
        CostsError::Malformed { file: path.to_owned(), line, column, what }
    })
}

/// Writes a file: beside it first, so that whoever reads it meanwhile finds the old one whole.
fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), CostsError> {
    let failed = |error| CostsError::Io { file: path.to_owned(), what: "written", error };
    let text = serde_json::to_string_pretty(value).map_err(|error| failed(error.into()))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let written = std::fs::write(&beside, text + "\n");
    written.and_then(|()| std::fs::rename(&beside, path)).map_err(|error| {
        let _ = std::fs::remove_file(&beside); // what is told is the first error
        failed(error)
    })
}

/// Where the figures of this machine are kept.
fn kept(isa: Isa, threads: usize) -> Result<Option<PathBuf>, SessionError> {
    let cpu = super::cpu();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let cpu: String = cpu.chars().take(80).map(plain).collect();
    let folder = knobs::cache_folder()?;
    Ok(folder.map(|folder| folder.join(format!("machine-{cpu}-{isa}-{threads}.json"))))
}

/// What makes numbers of a file wrong.
struct Checking<'a>(&'a Path);

impl Checking<'_> {
    fn wrong(&self, field: &str, expected: &'static str, found: impl ToString) -> CostsError {
        let (file, found) = (self.0.to_owned(), found.to_string());
        CostsError::Value { file, field: field.to_owned(), expected, found }
    }

    fn format(&self, what: &str, expected: &'static str, version: u32) -> Result<(), CostsError> {
        if what != expected {
            return Err(self.wrong("plutino", expected, what));
        }
        match version {
            VERSION => Ok(()),
            _ => Err(self.wrong("version", "1", version)),
        }
    }

    /// A rate, or a share: more than nothing.
    fn positive(&self, field: &str, value: f64) -> Result<f64, CostsError> {
        match value.is_finite() && value > 0.0 && value < 1e9 {
            true => Ok(value),
            false => Err(self.wrong(field, "a number between 0 and 1e9", value)),
        }
    }

    /// A time, which may be none.
    fn time(&self, field: &str, value: f64, most: f64) -> Result<f64, CostsError> {
        match value.is_finite() && (0.0..=most).contains(&value) {
            true => Ok(value),
            false => Err(self.wrong(field, "a time of an hour at most", value)),
        }
    }
}

impl Recorded {
    /// Reads what was measured before.
    ///
    /// # Errors
    /// Where the file cannot be read, or is none of costs.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, CostsError> {
        let path = path.as_ref();
        let file: CostsFile = read(path)?;
        let checking = Checking(path);
        checking.format(&file.plutino, "costs", file.version)?;
        let mut recorded = Self::default();
        for entry in file.operators {
            let us = checking.time("us", entry.us, LONGEST_US)?;
            let key = Key { kind: entry.kind, kernel: entry.kernel, shapes: entry.shapes };
            recorded.insert(key, &entry.isa, entry.threads, us * 1e3);
        }
        Ok(recorded)
    }

    /// Writes what was measured, so that [`Recorded::read`] reads the same.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), CostsError> {
        let entry = |(key, isa, threads, ns): (&Key, &str, usize, f64)| Entry {
            kind: key.kind.clone(),
            kernel: key.kernel.clone(),
            shapes: key.shapes.clone(),
            isa: isa.to_owned(),
            threads,
            us: ns / 1e3,
        };
        let operators = self.iter().map(entry).collect();
        write(path.as_ref(), &CostsFile { plutino: "costs".into(), version: VERSION, operators })
    }
}

impl Machine {
    /// Reads the figures of a machine.
    ///
    /// # Errors
    /// Where the file cannot be read, is none of a machine, or has figures that no machine has.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, CostsError> {
        let path = path.as_ref();
        let file: MachineFile = read(path)?;
        let checking = Checking(path);
        checking.format(&file.plutino, "machine", file.version)?;
        let hour = LONGEST_US * 1e3;
        let mut bandwidth = Vec::new();
        for (bytes, rate) in file.bandwidth {
            bandwidth.push((bytes.unwrap_or(u64::MAX), checking.positive("bandwidth", rate)?));
        }
        if bandwidth.is_empty() || !bandwidth.is_sorted_by(|a, b| a.0 < b.0) {
            let expected = "pairs of bytes and rates, ascending";
            return Err(checking.wrong("bandwidth", expected, format!("{bandwidth:?}")));
        }
        for share in file.efficiency.values() {
            checking.positive("efficiency", *share)?;
        }
        Ok(Self {
            peak_gflops: checking.positive("peak_gflops", file.peak_gflops)?,
            step_ns: checking.time("step_ns", file.step_ns, hour)?,
            job_ns: checking.time("job_ns", file.job_ns, hour)?,
            enter_ns: checking.time("enter_ns", file.enter_ns, hour)?,
            scaling: match (0.0..=1.0).contains(&file.scaling) {
                true => file.scaling,
                false => return Err(checking.wrong("scaling", "between 0 and 1", file.scaling)),
            },
            cpu: file.cpu,
            isa: file.isa,
            threads: file.threads,
            bandwidth,
            efficiency: file.efficiency,
        })
    }

    /// The figures of this machine, as they were measured before; measured now, and kept for the
    /// next time, where there are none or they cannot be read. They are kept by processor,
    /// instruction set and threads in the folder of `PLUTINO_CACHE`.
    ///
    /// # Errors
    /// As [`Machine::measure`]; where `PLUTINO_CACHE` names what is no folder.
    pub fn measured(isa: Isa, threads: usize) -> Result<Self, CostsError> {
        let file = kept(isa, threads)?;
        if let Some(file) = &file
            && let Ok(machine) = Self::read(file)
            && (machine.isa.as_str(), machine.threads) == (&*isa.to_string(), threads)
        {
            return Ok(machine);
        }
        let machine = Self::measure(isa, threads)?;
        if let Some(file) = &file {
            // Where nothing can be kept, the next one measures again.
            let folder = file.parent().map(std::fs::create_dir_all);
            let _ = folder.transpose().map(|_| machine.write(file));
        }
        Ok(machine)
    }

    /// Writes the figures, so that [`Machine::read`] reads the same.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), CostsError> {
        let bandwidth = self.bandwidth.iter();
        let file = MachineFile {
            plutino: "machine".into(),
            version: VERSION,
            cpu: self.cpu.clone(),
            isa: self.isa.clone(),
            threads: self.threads,
            peak_gflops: self.peak_gflops,
            bandwidth: bandwidth.map(|&(n, rate)| ((n < u64::MAX).then_some(n), rate)).collect(),
            step_ns: self.step_ns,
            job_ns: self.job_ns,
            enter_ns: self.enter_ns,
            scaling: self.scaling,
            efficiency: self.efficiency.clone(),
        };
        write(path.as_ref(), &file)
    }
}

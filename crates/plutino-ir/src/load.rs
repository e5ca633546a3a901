//! From files and memory to graphs.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{BinError, LoadError, ParseError, ParseErrorKind};
use crate::graph::Graph;
use crate::in_file::WeightFile;
use crate::limits::{Interrupted, Limits};
use crate::mmap::Mapping;
use crate::sizes::{SizeLimit, SizeLimits};
use crate::weights::Source;
use crate::{mmap, param, weights};

/// Bytes that are read between two looks at the limits.
const LOOK: u64 = 4 << 20;

/// File name in the errors of models that come from memory.
const MEMORY: &str = "<memory>";

/// Whether to read the `.bin` file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Weights {
    /// Every weight must be there. Those of a file of more than 1 MiB stay in it, if they have 64
    /// KiB or more, and each is read when it is needed, as it is packed for a kernel: a model takes
    /// the memory of its packed weights, not twice. So such a file must keep its contents while
    /// weights of it are alive; what was changed in place is an error when it is read. (Replacing
    /// the file, or taking it away, changes nothing where the system keeps what is open, as Unix
    /// does.)
    #[default]
    Stream,
    /// Every weight must be there, and is read when the model is loaded. The file may change or go
    /// afterwards.
    Read,
    /// Leave the `.bin` file alone: attributes have type and shape but no data.
    Skip,
}

/// How to load a model from files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// The `.bin` file, where it does not lie beside the `.param` file. (Definitions have their own
    /// beside them.)
    pub bin: Option<PathBuf>,
    /// Map the `.bin` file into memory instead of reading it: loading takes no time, and the system
    /// reads what is touched. You promise that nobody changes or truncates the file while the graph
    /// or any of its weights is alive; off by default.
    pub mmap: bool,
    /// Compare the checksum of every weight when it is read, which touches all of the data; on by
    /// default.
    pub verify_crc: bool,
    /// Whether to read the weights at all.
    pub weights: Weights,
    /// Bytes that loading may take: the text, what is made of it (32 bytes for each byte of the
    /// text), and weights that are read. (Those that are mapped take memory that the system takes
    /// back when it needs some.) Exceeding it is an error before memory is taken.
    pub memory_budget: Option<usize>,
    /// What ends loading early: checked every few hundred operators, and every few megabytes.
    pub limits: Limits,
    /// How large the model may be. Holds for its plans as well.
    pub sizes: SizeLimits,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            bin: None,
            mmap: false,
            verify_crc: true,
            weights: Weights::Stream,
            memory_budget: None,
            limits: Limits::default(),
            sizes: SizeLimits::default(),
        }
    }
}

impl Graph {
    /// Loads a model: `path` is the `.param` file, or its stem (`resnet18` or `resnet18.pnnx` for
    /// `resnet18.pnnx.param`). The `.bin` file is the one beside it with the same stem; it may be
    /// missing if the model has no weights.
    ///
    /// # Errors
    /// If a file cannot be read, or anything in it is wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<Graph, LoadError> {
        Graph::load_with(path, &LoadOptions::default())
    }

    /// [`Graph::load`] with options.
    ///
    /// # Errors
    /// If a file cannot be read, or anything in it is wrong.
    pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Graph, LoadError> {
        let param_path = find_param(path.as_ref())?;
        let interrupted = |error| LoadError::Interrupted { path: param_path.clone(), error };
        options.limits.check().map_err(interrupted)?;
        let mut budget = Budget { left: options.memory_budget, allowed: options.memory_budget };
        budget.take(&param_path, 1 + GRAPH_FACTOR)?;
        let text = read_param(&param_path, &options.sizes)?;
        let parsed = param::parse_graph(&text, &options.limits, &options.sizes);
        let mut graph = parsed.map_err(|e| match e.kind {
            ParseErrorKind::Interrupted(error) => interrupted(error),
            _ => LoadError::Param { file: param_path.display().to_string(), error: e.into() },
        })?;
        drop(text);
        if options.weights == Weights::Skip {
            return Ok(graph);
        }
        let bin_path = bin_of(&param_path, options);
        let weights = graph.operators().map(|(_, operator)| operator.attrs.len()).sum();
        let bin_path = match regular(&bin_path) {
            Ok(_) => bin_path,
            Err(LoadError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => bin_path,
            Err(other) => return Err(other),
        };
        let archive = if options.mmap {
            mmap::map(&bin_path, options.verify_crc).map(Archive::Memory)
        } else if stays(&bin_path, options) {
            WeightFile::open(&bin_path).map(|file| Archive::File(Arc::new(file)))
        } else {
            budget.take(&bin_path, 1)?;
            match read_within(&bin_path, &options.limits) {
                Ok(read) => read
                    .map_err(interrupted)
                    .map(|bytes| Ok(Archive::Memory((bytes.into(), None))))?,
                Err(error) => Err(error),
            }
        };
        let archive = match archive {
            Ok(archive) => archive,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && weights == 0
                    && options.bin.is_none() =>
            {
                return Ok(graph);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LoadError::NoWeights { path: bin_path, weights });
            }
            Err(error) => {
                return Err(LoadError::Io { path: bin_path, error });
            }
        };
        let bin = |error| LoadError::Bin { file: bin_path.display().to_string(), error };
        let source = match &archive {
            Archive::Memory((bytes, mapping)) => Source::Memory(bytes, mapping.as_ref()),
            Archive::File(file) => Source::File(file),
        };
        weights::attach(&mut graph, &source, options).map_err(|error| match error {
            BinError::Interrupted(error) => interrupted(error),
            error => bin(error),
        })?;
        Ok(graph)
    }

    /// Reads a model from memory: the text of the `.param` file and the bytes of the `.bin` file.
    /// The weights are slices of `bin`, not copies. Empty `bin` will do for a model without
    /// weights.
    ///
    /// # Errors
    /// If anything is wrong with either.
    pub fn from_bytes(param: impl AsRef<[u8]>, bin: impl Into<Bytes>) -> Result<Graph, LoadError> {
        let mut graph = in_memory(param.as_ref())
            .map_err(|error| LoadError::Param { file: MEMORY.into(), error: error.into() })?;
        let bin = bin.into();
        if bin.is_empty() && graph.operators().all(|(_, operator)| operator.attrs.is_empty()) {
            return Ok(graph);
        }
        weights::attach(&mut graph, &Source::Memory(&bin, None), &LoadOptions::default())
            .map_err(|error| LoadError::Bin { file: MEMORY.into(), error })?;
        Ok(graph)
    }

    /// Reads the text of a `.param` file; attributes have type and shape but no data.
    ///
    /// # Errors
    /// If anything in the text is wrong, with line and column.
    pub fn parse(param: &str) -> Result<Graph, ParseError> {
        in_memory(param.as_bytes())
    }
}

/// Text that the caller has in memory.
fn in_memory(text: &[u8]) -> Result<Graph, ParseError> {
    let LoadOptions { limits, sizes, .. } = LoadOptions::default();
    param::parse_graph(text, &limits, &sizes)
}

impl FromStr for Graph {
    type Err = ParseError;

    fn from_str(param: &str) -> Result<Self, Self::Err> {
        Graph::parse(param)
    }
}

/// Where the `.bin` file is once it is open.
enum Archive {
    Memory((Bytes, Option<Mapping>)),
    File(Arc<WeightFile>),
}

/// Bytes of a `.bin` file that is read as a whole, at most.
const SMALL: u64 = 1 << 20;

/// Whether weights stay in this file.
fn stays(bin: &Path, options: &LoadOptions) -> bool {
    options.weights == Weights::Stream && fs::metadata(bin).is_ok_and(|found| found.len() > SMALL)
}

/// The bytes of a regular file. What is none (a folder, a device, a pipe) is refused before it is
/// opened: opening a pipe waits for its other end.
///
/// # Errors
/// Where it is none, or cannot be read.
pub fn read_regular(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    ask_regular(path.as_ref())?;
    fs::read(path)
}

fn ask_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// The bytes of a regular file that has so many at most: for files that people write, which are
/// small, and which somebody else may have put beside a model.
///
/// # Errors
/// Those of [`read_regular`], and where the file is larger.
pub fn read_small(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    ask_regular(path)?;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it has more than {most} bytes, too many for such a file");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(bytes)
}

/// The bytes of a file, or why the limits ended reading. One that grows meanwhile is read as far as
/// it reached when it was opened.
fn read_within(path: &Path, limits: &Limits) -> io::Result<Result<Vec<u8>, Interrupted>> {
    let file = fs::File::open(path)?;
    let len = file.metadata()?.len();
    let mut file = file.take(len);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(len).unwrap_or(usize::MAX))?;
    loop {
        if let Err(why) = limits.check() {
            return Ok(Err(why));
        }
        if file.by_ref().take(LOOK).read_to_end(&mut bytes)? == 0 {
            return Ok(Ok(bytes));
        }
    }
}

/// Bytes in memory for each byte of a `.param` text: 900 bytes for an operator without parameters,
/// its names and its operand, of which a line is 31 bytes long. With parameters it is less.
pub(crate) const GRAPH_FACTOR: u64 = 32;

/// What loading may still take; none: without a limit.
struct Budget {
    left: Option<usize>,
    allowed: Option<usize>,
}

/// The `.bin` file of a model.
fn bin_of(param: &Path, options: &LoadOptions) -> PathBuf {
    options.bin.clone().unwrap_or_else(|| param.with_extension("bin"))
}

/// Bytes that a model holds which was loaded so, as [`Budget`] counts them.
pub(crate) fn held(param: &Path, options: &LoadOptions) -> usize {
    let len = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    let bin = bin_of(param, options);
    let weights = match options.mmap || options.weights == Weights::Skip || stays(&bin, options) {
        true => 0,
        false => len(&bin),
    };
    let bytes = len(param).saturating_mul(GRAPH_FACTOR).saturating_add(weights);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Budget {
    /// Takes memory for a file, `times` its size; one that is not there, or cannot be asked for its
    /// size, is an error elsewhere.
    fn take(&mut self, path: &Path, times: u64) -> Result<(), LoadError> {
        let (Some(left), Some(budget)) = (self.left, self.allowed) else { return Ok(()) };
        let bytes = fs::metadata(path).map_or(0, |found| found.len()).saturating_mul(times);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        match left.checked_sub(bytes) {
            Some(rest) => {
                self.left = Some(rest);
                Ok(())
            }
            None => {
                let needed = (budget - left).saturating_add(bytes);
                Err(LoadError::Budget { path: path.to_owned(), needed, budget })
            }
        }
    }
}

/// The text of a `.param` file: no more of it than is looked at.
fn read_param(path: &Path, sizes: &SizeLimits) -> Result<Vec<u8>, LoadError> {
    regular(path)?;
    let most = u64::try_from(sizes.get(SizeLimit::TextBytes)).unwrap_or(u64::MAX);
    let read = || {
        let mut text = Vec::new();
        fs::File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut text)?;
        Ok(text)
    };
    read().map_err(|error| LoadError::Io { path: path.to_owned(), error })
}

/// The path, where a regular file lies there. Asked before it is opened: opening a pipe waits for
/// its other end.
fn regular(path: &Path) -> Result<&Path, LoadError> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(path),
        Ok(_) => Err(LoadError::NotAFile { path: path.to_owned() }),
        Err(error) => Err(LoadError::Io { path: path.to_owned(), error }),
    }
}

/// The `.param` file at a path, or that it is the stem of: the one that [`Graph::load`] reads.
///
/// # Errors
/// [`LoadError::NotFound`] with all places that were looked at; [`LoadError::NotAFile`].
pub fn find_param(path: &Path) -> Result<PathBuf, LoadError> {
    let with = |suffix: &str| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    };
    let tried = if path.extension().is_some_and(|extension| extension == "param") {
        vec![path.to_owned()]
    } else {
        vec![with(".pnnx.param"), with(".param"), path.to_owned()]
    };
    // A folder may have a model's name: of several candidates a file goes first.
    let found = tried.iter().find(|c| c.is_file());
    match found.or_else(|| tried.iter().find(|c| c.exists() && !c.is_dir())) {
        Some(found) => regular(found).map(Path::to_owned),
        None => Err(LoadError::NotFound { path: path.to_owned(), tried }),
    }
}

//! Operator types that are models themselves: given by the user, put in the place of their nodes.
//!
//! pnnx keeps a module whole where it is told to (`moduleop=`), and writes one node of the module's
//! type with all its weights. What the module computes is then said by another PNNX model, its
//! *definition*: [`Graph::inline`] puts the operators of the definition in the place of each node.
//! They are called by the node's name and their own (`focus.conv`), and take the node's weights
//! where those have their names (`conv.weight`), so that a definition may be a `.param` file alone.

mod count;
mod error;
mod inline;
mod order;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::LoadError;
use crate::graph::Graph;
use crate::load::{LoadOptions, Weights, find_param, held};

pub use error::{DefineError, DefineProblem, Site};

/// Definitions that lie within each other.
pub const MOST_DEFINITION_LEVELS: usize = 64;

/// What an operator type is: a model, and the file that it comes from.
#[derive(Debug, Clone)]
pub struct Definition {
    pub(crate) graph: Arc<Graph>,
    pub(crate) file: Arc<str>,
    /// Whether it has weights that were not read.
    pub(crate) skipped: bool,
}

impl Definition {
    /// A definition that was read from this file, or is called so in messages.
    pub fn new(file: impl Into<Arc<str>>, graph: Graph) -> Self {
        Self { graph: Arc::new(graph), file: file.into(), skipped: false }
    }

    /// Reads a definition: `path` as for [`Graph::load`]. The `.bin` file may be missing; then
    /// every weight must come from the nodes.
    ///
    /// # Errors
    /// If a file cannot be read, or anything in it is wrong.
    pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let options = &LoadOptions { bin: None, ..options.clone() };
        let graph = match Graph::load_with(path, options) {
            Err(LoadError::NoWeights { .. }) => {
                Graph::load_with(path, &LoadOptions { weights: Weights::Skip, ..options.clone() })?
            }
            other => other?,
        };
        let file = find_param(path)?;
        let skipped = options.weights == Weights::Skip && file.with_extension("bin").is_file();
        Ok(Self { skipped, ..Self::new(file.display().to_string(), graph) })
    }

    /// The model.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The file, or what stands for it in messages.
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl From<Graph> for Definition {
    fn from(graph: Graph) -> Self {
        Self::new("<definition>", graph)
    }
}

/// Operator types and what defines each of them.
///
/// ```
/// use plutino_ir::{Definitions, Graph, Limits, SizeLimits};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let twice = Graph::parse(
///     "7767517\n3 2\n\
///      pnnx.Input       in  0 1 a\n\
///      pnnx.Expression  mul 1 1 a b expr=mul(@0,2)\n\
///      pnnx.Output      out 1 0 b\n",
/// )?;
/// let mut graph = Graph::parse(
///     "7767517\n3 2\n\
///      pnnx.Input       in    0 1 x\n\
///      models.Twice     twice 1 1 x y\n\
///      pnnx.Output      out   1 0 y\n",
/// )?;
/// let mut definitions = Definitions::new();
/// definitions.define("models.Twice", twice);
/// let (sizes, limits) = (SizeLimits::default(), Limits::default());
/// graph.inline("<memory>", &definitions, &sizes, &limits, None)?;
/// assert!(graph.operator_by_name("twice.mul").is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    kinds: BTreeMap<String, Definition>,
}

impl Definitions {
    /// No definitions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `definition` say what operators of this type are. The last one that is given for a type
    /// counts, and it counts for types that there are operators for, too.
    pub fn define(&mut self, kind: impl Into<String>, definition: impl Into<Definition>) {
        self.kinds.insert(kind.into(), definition.into());
    }

    /// Reads every `.param` file of a folder: each defines the type of its name
    /// (`models.common.Focus.pnnx.param` or `models.common.Focus.param`). Returns how many there
    /// are. All of them together have the budget that the options give.
    ///
    /// # Errors
    /// If the folder or a file of it cannot be read, or anything in one is wrong.
    pub fn load_folder(
        &mut self,
        folder: impl AsRef<Path>,
        options: &LoadOptions,
    ) -> Result<usize, LoadError> {
        let folder = folder.as_ref();
        let failed = |error| LoadError::Io { path: folder.to_owned(), error };
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(stem) = name.strip_suffix(".param") else { continue };
            let kind = stem.strip_suffix(".pnnx").unwrap_or(stem).to_owned();
            if let Some(first) = found.insert(kind, path.clone()) {
                let both = format!("it defines the type of '{}' as well", first.display());
                let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, both);
                return Err(LoadError::Io { path, error });
            }
        }
        let count = found.len();
        // The budget is that of the folder: whoever may have 100 MB may have them once.
        let mut options = LoadOptions { bin: None, ..options.clone() };
        for (kind, path) in found {
            let definition = Definition::load(&path, &options)?;
            options.memory_budget =
                options.memory_budget.map(|left| left.saturating_sub(held(&path, &options)));
            self.define(kind, definition);
        }
        Ok(count)
    }

    /// The folder that is a model's own: `net.definitions` beside `net.pnnx.param` (`path` as for
    /// [`Graph::load`]). Whoever loads the model by its path takes the definitions there, as it
    /// takes the `.bin` file.
    pub fn folder_beside(path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        let name = path.file_name().unwrap_or_default();
        let mut stem = PathBuf::from(name);
        for extension in ["param", "pnnx"] {
            if stem.extension().is_some_and(|found| found == extension) {
                stem.set_extension("");
            }
        }
        let mut name = stem.into_os_string();
        name.push(".definitions");
        path.with_file_name(name)
    }

    /// Takes what is in the folder that is a model's own, if there is one. What is defined already
    /// stays as it is. Returns how many definitions were read.
    ///
    /// # Errors
    /// As [`Definitions::load_folder`].
    pub fn load_beside(
        &mut self,
        path: impl AsRef<Path>,
        options: &LoadOptions,
    ) -> Result<usize, LoadError> {
        let folder = Self::folder_beside(path);
        if !folder.is_dir() {
            return Ok(0);
        }
        let mut own = Self::new();
        let count = own.load_folder(folder, options)?;
        for (kind, definition) in own.kinds {
            self.kinds.entry(kind).or_insert(definition);
        }
        Ok(count)
    }

    /// The definition of a type.
    pub fn get(&self, kind: &str) -> Option<&Definition> {
        self.kinds.get(kind)
    }

    /// Types and definitions, sorted by type.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Definition)> + '_ {
        self.kinds.iter().map(|(kind, definition)| (kind.as_str(), definition))
    }

    /// Whether nothing is defined.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }
}

/// Where an operator comes from that a definition put into a graph. Its line is one of the
/// definition's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file of the definition.
    pub file: Arc<str>,
    /// The node in whose place the operator stands.
    pub node: Site,
}

impl Origin {
    /// The node of the model itself, and how many definitions lie between, this one included.
    pub fn outermost(&self) -> (&Site, usize) {
        let (mut site, mut levels) = (&self.node, 1);
        while let Some(origin) = &site.origin {
            (site, levels) = (&origin.node, levels + 1);
        }
        (site, levels)
    }
}

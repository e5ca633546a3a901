//! Requests on the command line: which operands are fed, and which are fetched.

use crate::failure::Failure;
use crate::inputs::{self, Content, FileArgs, Need, Slot};
use plutino::{Model, Request, SessionError, Tensor};
use std::path::Path;

/// Operands to feed and to fetch.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct RequestArgs {
    /// Feed any operand of the model, so that what lies before it is not computed. NAME is that of
    /// the operand in the .param file, or of the operator that makes it (`layer1.0.conv1`); FILE is
    /// an npy, or an npz that holds one array or one called NAME. Inputs need files only where they
    /// are needed
    #[arg(long = "feed", value_name = "NAME=FILE")]
    feeds: Vec<String>,
    /// Compute these operands instead of the model's outputs, or `all` that can be computed. The
    /// members of a tuple are called NAME.0, NAME.1, ...
    #[arg(long = "fetch", value_name = "NAME[,NAME]|all", value_delimiter = ',')]
    fetches: Vec<String>,
}

impl RequestArgs {
    /// Whether this is a plain run: inputs in, outputs out.
    pub(crate) fn is_plain(&self) -> bool {
        self.feeds.is_empty() && self.fetches.is_empty()
    }

    /// Whether the results are operands that were asked for by name.
    pub(crate) fn names_results(&self) -> bool {
        !self.fetches.is_empty()
    }

    /// Whether operands are fed beside the inputs, or instead of them.
    pub(crate) fn feeds_operands(&self) -> bool {
        !self.feeds.is_empty()
    }

    /// What each run is fed with: the inputs that files are given for, and operands. A plain run
    /// needs files as `need` says.
    pub(crate) fn prepare(
        &self,
        model: &Model,
        files: &FileArgs,
        need: Need,
    ) -> Result<Vec<Prepared>, Failure> {
        let slots = inputs::slots(model);
        let (mut of_inputs, mut operands) = (Vec::new(), Vec::new());
        for argument in &self.feeds {
            let (name, path) = argument.split_once('=').ok_or_else(|| {
                Failure::usage(format!("--feed {argument}: give it as NAME=FILE"))
            })?;
            match inputs::position(&slots, name) {
                Some(_) => of_inputs.push(argument.clone()),
                None => operands.push((name.to_owned(), array(model, files, name, path)?)),
            }
        }
        let need = if self.is_plain() { need } else { Need::Some };
        let feeds = files.feeds(&slots, &of_inputs, need)?.into_iter();
        let prepared = feeds.map(|feed| Prepared {
            picture: feed.name,
            rows: feed.rows,
            feeds: by_name(feed.tensors, &slots).chain(operands.iter().cloned()).collect(),
            fetches: self.fetches(),
        });
        Ok(prepared.collect())
    }

    /// The operands to fetch, each once.
    fn fetches(&self) -> Fetches {
        if self.fetches.iter().any(|name| name == "all") {
            return Fetches::All;
        }
        let mut names: Vec<String> = Vec::new();
        for name in &self.fetches {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Fetches::These(names)
    }
}

/// What one run is asked for, with what it is fed.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// The picture that tells this run from others, where there are several.
    pub(crate) picture: Option<String>,
    /// Names of the pictures that are the rows of a batch.
    pub(crate) rows: Vec<String>,
    /// Operands by name.
    pub(crate) feeds: Vec<(String, Tensor)>,
    fetches: Fetches,
}

#[derive(Debug, Clone)]
enum Fetches {
    All,
    /// None: the model's outputs.
    These(Vec<String>),
}

impl Prepared {
    /// A run on the model's inputs that yields its outputs.
    pub(crate) fn plain(model: &Model, inputs: Vec<Tensor>) -> Self {
        let inputs = inputs.into_iter().enumerate().collect();
        let feeds = by_name(inputs, &inputs::slots(model)).collect();
        Self { picture: None, rows: Vec::new(), feeds, fetches: Fetches::These(Vec::new()) }
    }

    /// Feeds the inputs that are not fed with these, which are all of them in order. (What lies
    /// before operands that are fed is not computed, and needs none.)
    pub(crate) fn feed_rest(&mut self, slots: &[Slot], all: &[Tensor]) {
        for (slot, tensor) in slots.iter().zip(all) {
            if !self.feeds.iter().any(|(name, _)| *name == slot.operand) {
                self.feeds.push((slot.operand.clone(), tensor.clone()));
            }
        }
    }

    /// Why planning or running this failed.
    pub(crate) fn refused(&self, error: SessionError, model: &Model) -> Failure {
        let given = self.feeds.iter().map(|(name, tensor)| (name.as_str(), tensor.shape()));
        inputs::refused(error, model, given)
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let mut request = Request::new();
        for (name, tensor) in &self.feeds {
            request = request.feed(name, tensor);
        }
        match &self.fetches {
            Fetches::All => request.fetch_all(),
            Fetches::These(names) => names.iter().fold(request, |r, name| r.fetch(name)),
        }
    }
}

/// Inputs by the names of their operands.
fn by_name(inputs: Vec<(usize, Tensor)>, slots: &[Slot]) -> impl Iterator<Item = (String, Tensor)> {
    inputs.into_iter().filter_map(|(at, tensor)| Some((slots.get(at)?.operand.clone(), tensor)))
}

/// The array of a file that an operand is fed with, in the dtype that the model records.
fn array(model: &Model, files: &FileArgs, name: &str, path: &str) -> Result<Tensor, Failure> {
    let arrays = match inputs::read(Path::new(path))? {
        Content::Arrays(arrays) => arrays,
        Content::Picture(_) => {
            let what = format!("--feed {name}={path}: a picture is for an input of the model");
            return Err(Failure::usage(what));
        }
    };
    let named = |array: &&(Option<String>, Tensor)| array.0.as_deref() == Some(name);
    let found = match &arrays[..] {
        [only] => only,
        several => several.iter().find(named).ok_or_else(|| {
            let n = several.len();
            Failure::usage(format!("{path} holds {n} arrays, and none is called '{name}'"))
        })?,
    };
    let graph = model.graph();
    let by_operator = || match graph.operator(graph.operator_by_name(name)?)?.outputs[..] {
        [output] => Some(output),
        _ => None,
    };
    let operand = graph.operand_by_name(name).or_else(by_operator).and_then(|id| graph.operand(id));
    match operand {
        Some(operand) => {
            files.convert().fit(found.1.clone(), &operand.ty, &format!("operand '{name}'"), path)
        }
        None => Ok(found.1.clone()), // the session says what is wrong with the name
    }
}

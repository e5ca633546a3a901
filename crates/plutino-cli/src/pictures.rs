//! What `classify`, `detect` and `segment` share: pictures named on the command line, run through
//! a model one by one or in batches.

use crate::failure::Failure;
use crate::files;
use crate::inputs::{self, Slot};
use crate::names;
use crate::output::{progress, warn_all};
use crate::session::{LoadArgs, SessionArgs};
use plutino::{Model, Tensor};
use plutino_vision::{Format, Labels, Names, Pixels, Placement, Recipe, Size, Wanted};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pictures for one model.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ImageArgs {
    /// The model
    model: PathBuf,
    /// Pictures: png, jpeg, webp or bmp files, folders of them, or - for standard input. They make
    /// batches where the model takes any number at once, else they are run one after the other
    #[arg(short, long = "input", value_name = "PICTURE|FOLDER|-", num_args = 1.., required = true,
          display_order = 0)]
    inputs: Vec<PathBuf>,
    /// Names of the classes: a list that ships with the command, or a file with one a line
    /// [default: those beside the model]
    #[arg(long, value_name = "imagenet|coco|voc|FILE")]
    labels: Option<Names>,
    #[command(flatten)]
    picture: Recipe,
    #[command(flatten)]
    session: SessionArgs,
}

/// A picture, and what the model makes of it.
pub(crate) struct Shot {
    /// Its path, or `-`.
    pub(crate) name: String,
    /// As it was read.
    pub(crate) pixels: Pixels,
    /// Where the model sees it.
    pub(crate) placement: Placement,
    /// The size in which the model sees it.
    pub(crate) seen: Size,
    /// The model's outputs for it: batches of one.
    pub(crate) outputs: Vec<Tensor>,
    /// Its share of the time of the run.
    pub(crate) time: Duration,
}

/// Pictures in one batch, at most.
const BATCH: usize = 16;

impl ImageArgs {
    pub(crate) fn files(&self) -> &LoadArgs {
        self.session.files()
    }

    /// The pictures, those of folders one by one.
    pub(crate) fn pictures(&self) -> Result<Vec<PathBuf>, Failure> {
        gather(&self.inputs)
    }

    /// Runs these pictures, in order, and hands on what comes out, with the names of the classes.
    /// `custom` is how pictures are prepared where neither the command line nor a file beside the
    /// model says it.
    pub(crate) fn each(
        &self,
        files: &[PathBuf],
        custom: impl Fn(Wanted) -> Recipe,
        mut use_shot: impl FnMut(Shot, &Labels) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let model = self.session.load(&self.model)?;
        let slots = inputs::slots(&model);
        let [slot] = &slots[..] else {
            let n = slots.len();
            return Err(Failure::Model(format!("the model has {n} inputs, not one: use `run`")));
        };
        let recipe = self.picture.for_model(model.file(), custom(slot.wanted()))?;
        let labels = Labels::read(self.labels.as_ref().or(recipe.labels.as_ref()))?;
        let session = self.session.session(&model)?;
        let bar = (files.len() > 1).then(|| progress("pictures", files.len() as u64));
        let mut warned = false;
        for names in files.chunks(slot.batch().unwrap_or(BATCH).clamp(1, BATCH)) {
            let mut prepared = Vec::with_capacity(names.len());
            for name in names {
                prepared.push(prepare(name, slot, &recipe)?);
            }
            for group in groups(prepared) {
                let tensor = batch(&group, slot)?;
                if !warned {
                    let specs = [tensor.spec()];
                    let refused = |error| inputs::refused_inputs(error, &model, &specs);
                    let plan = session.plan(&specs).map_err(refused)?;
                    warn_all(
                        model_warnings(&model).into_iter().chain(names::warnings(&model, &plan)),
                    );
                    warned = true;
                }
                let start = Instant::now();
                let outputs = session.run(std::slice::from_ref(&tensor))?;
                let time = start.elapsed() / u32::try_from(group.len()).unwrap_or(1).max(1);
                let seen = seen(&tensor);
                let size = tensor.shape().first().copied().unwrap_or(1);
                for (row, Prepared { name, pixels, placement, .. }) in group.into_iter().enumerate()
                {
                    let outputs = outputs.iter().map(|output| one(output, row, size));
                    let outputs = outputs.collect::<Result<_, Failure>>()?;
                    use_shot(Shot { name, pixels, placement, seen, outputs, time }, &labels)?;
                    bar.iter().for_each(|bar| bar.inc(1));
                }
            }
        }
        bar.iter().for_each(|bar| bar.finish_and_clear());
        Ok(())
    }
}

/// Height and width of a batch.
fn seen(batch: &Tensor) -> Size {
    let side = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    match batch.shape().dims() {
        &[.., height, width] => Size { height: side(height), width: side(width) },
        _ => Size { height: 1, width: 1 },
    }
}

fn model_warnings(model: &Model) -> Vec<String> {
    model.warnings().iter().map(ToString::to_string).collect()
}

/// A picture as the model takes it.
struct Prepared {
    name: String,
    pixels: Pixels,
    placement: Placement,
    tensor: Tensor,
}

/// Pictures that follow each other in one size.
fn groups(prepared: Vec<Prepared>) -> Vec<Vec<Prepared>> {
    let mut groups: Vec<Vec<Prepared>> = Vec::new();
    for one in prepared {
        match groups.last_mut() {
            Some(group) if group.iter().all(|p| p.tensor.shape() == one.tensor.shape()) => {
                group.push(one);
            }
            _ => groups.push(vec![one]),
        }
    }
    groups
}

/// Pictures of one size as a batch; the last once more where the model takes a number of them that
/// is not reached.
fn batch(group: &[Prepared], slot: &Slot) -> Result<Tensor, Failure> {
    let size = slot.batch().unwrap_or(group.len());
    if size > BATCH {
        return Err(Failure::Model(format!("the model takes {size} pictures at once, not one")));
    }
    let views = group.iter().chain(std::iter::repeat(&group[group.len() - 1]));
    let views: Vec<_> = views.take(size).map(|p| p.tensor.view()).collect();
    Ok(plutino::tensor::concat(&views, 0)?)
}

/// The part of an output that belongs to one picture of a batch.
fn one(output: &Tensor, row: usize, size: usize) -> Result<Tensor, Failure> {
    match output.shape().first() {
        Some(&rows) if rows == size => Ok(output.view().slice(0, row..row + 1, 1)?.to_tensor()?),
        _ => Err(Failure::Model(format!(
            "the output {} has no row for each of the {size} pictures",
            output.spec()
        ))),
    }
}

fn prepare(path: &Path, slot: &Slot, recipe: &Recipe) -> Result<Prepared, Failure> {
    let name = path.display().to_string();
    let bytes = files::bytes(path)?;
    let pixels = inputs::pixels(&bytes, &name, recipe)?;
    let (tensor, placement) = inputs::prepare(&pixels, &name, slot.wanted(), recipe)?;
    let tensor = tensor.cast(slot.dtype())?;
    Ok(Prepared { name, pixels, placement, tensor })
}

/// The pictures that arguments name: of a folder those that lie in it, by name.
fn gather(arguments: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for argument in arguments {
        let cannot = |e: std::io::Error| {
            Failure::usage(format!("cannot read '{}': {e}", argument.display()))
        };
        if !argument.is_dir() {
            files.push(argument.clone());
            continue;
        }
        let mut found = Vec::new();
        for entry in std::fs::read_dir(argument).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path.is_file() && starts_as_picture(&path).map_err(cannot)? {
                found.push(path);
            }
        }
        if found.is_empty() {
            return Err(Failure::usage(format!("no picture lies in '{}'", argument.display())));
        }
        found.sort();
        files.append(&mut found);
    }
    if files.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(files::asked_twice()); // before one is run
    }
    Ok(files)
}

/// Of a regular file.
fn starts_as_picture(path: &Path) -> std::io::Result<bool> {
    let mut first = Vec::new();
    std::fs::File::open(path)?.take(32).read_to_end(&mut first)?;
    Ok(Format::of(&first).is_some())
}

/// Where what was drawn goes: to a file, or into a folder under the names of the pictures.
pub(crate) struct Drawings {
    path: PathBuf,
    /// Whether the path is that of a folder.
    folder: bool,
    /// Names that were given, so that no picture replaces another.
    taken: Vec<String>,
}

/// Ends of names by which a picture would be expected that is no PNG.
const NOT_WRITTEN: [&str; 8] = ["jpg", "jpeg", "webp", "bmp", "gif", "tif", "tiff", "avif"];

impl Drawings {
    /// Where a path is given.
    pub(crate) fn asked(path: Option<&Path>, pictures: usize) -> Result<Option<Self>, Failure> {
        path.map(|path| Self::new(path, pictures)).transpose()
    }

    /// For so many pictures. A folder, unless the name is that of a picture, and no folder has it.
    fn new(path: &Path, pictures: usize) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let end = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let folder = name.ends_with(std::path::is_separator) || path.is_dir();
        if !folder && NOT_WRITTEN.contains(&end.as_str()) {
            return Err(Failure::usage(format!(
                "'{name}': pictures are written as PNG: give a name that ends in .png, or a folder"
            )));
        }
        let folder = folder || end != "png";
        if !folder && pictures > 1 {
            return Err(Failure::usage(format!(
                "'{name}' is for one picture, and there are {pictures}: give a folder for several"
            )));
        }
        Ok(Self { path: path.to_owned(), folder, taken: Vec::new() })
    }

    /// The file for the next picture; never the picture itself.
    pub(crate) fn path(&mut self, picture: &str) -> Result<PathBuf, Failure> {
        let file = self.named(picture)?;
        let real = |path: &Path| path.canonicalize().ok();
        match (real(&file), real(Path::new(picture))) {
            (Some(drawn), Some(read)) if drawn == read => Err(Failure::usage(format!(
                "'{picture}' would be drawn over: give another folder or name"
            ))),
            _ => Ok(file),
        }
    }

    fn named(&mut self, picture: &str) -> Result<PathBuf, Failure> {
        if !self.folder {
            return Ok(self.path.clone());
        }
        let stem = Path::new(picture).file_stem().unwrap_or_default().to_string_lossy();
        let path = self.path.display();
        std::fs::create_dir_all(&self.path)
            .map_err(|e| Failure::usage(format!("cannot make the folder '{path}': {e}")))?;
        let name = free(&stem, &self.taken);
        let file = self.path.join(format!("{name}.png"));
        self.taken.push(name);
        Ok(file)
    }
}

/// The name, numbered where it is taken.
pub(crate) fn free(name: &str, taken: &[String]) -> String {
    let numbered = (2..).map(|n| format!("{name}-{n}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_or_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a.png", "a.PNG"] {
            let mut one = Drawings::new(&at(name), 1).unwrap();
            assert_eq!(one.path("x/y.jpg").unwrap(), at(name));
            let several = Drawings::new(&at(name), 2).err().unwrap();
            assert!(several.message().unwrap().contains("give a folder"));
        }
        for name in ["a.jpg", "a.JPEG", "a.webp", "a.bmp"] {
            let other = Drawings::new(&at(name), 1).err().unwrap();
            assert!(other.message().unwrap().contains("ends in .png"));
        }
        std::fs::create_dir(at("made.jpg")).unwrap();
        for (name, made) in [("made", "made"), ("made.jpg", "made.jpg"), ("made.png/", "made.png")]
        {
            let mut many = Drawings::new(&at(name), 3).unwrap();
            let names = ["x/y.jpg", "z/y.png", "-"].map(|name| many.path(name).unwrap());
            assert_eq!(names, ["y.png", "y-2.png", "-.png"].map(|name| at(made).join(name)));
        }
    }
}

//! From files named on the command line to the tensors that a model takes, in its order.

use crate::failure::Failure;
use crate::files;
use crate::numpy;
pub(crate) use crate::shapes::ShapeArg;
use plutino::ir::{self, Dim, TensorType};
use plutino::npy::{self, npz};
use plutino::{DType, Model, SessionError, Shape, Tensor, TensorSpec};
use plutino_vision::{Format, Pixels, Placement, Recipe, VisionError, Wanted};
use std::path::Path;

/// Inputs from files, on the command line.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FileArgs {
    /// An input: npy, npz (each array is an input), png, jpeg, webp or bmp; - is standard input.
    /// NAME is the operand's name, or in0, in1, ... by position; without it, files fill the inputs
    /// in order. Several pictures for one input are a batch where the model takes any number, else
    /// they are taken one after the other
    #[arg(short, long = "input", value_name = "[NAME=]FILE", display_order = 0)]
    inputs: Vec<String>,
    #[command(flatten)]
    convert: ConvertArgs,
    #[command(flatten)]
    picture: Recipe,
}

/// What to do with arrays of another dtype.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct ConvertArgs {
    /// Convert arrays to the dtypes that the file records: floats are rounded, anything else must
    /// keep its value
    #[arg(long, display_order = 1)]
    cast: bool,
}

/// What one run of a model takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Feed {
    /// The picture that tells this run from others, where there are several.
    pub(crate) name: Option<String>,
    /// Names of the pictures that are the rows of a batch.
    pub(crate) rows: Vec<String>,
    /// The inputs of the model that are given, by their positions.
    pub(crate) tensors: Vec<(usize, Tensor)>,
}

/// Which inputs files must be given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// All of them.
    All,
    /// Whichever a run turns out to need.
    Some,
}

impl FileArgs {
    /// Whether no file is named.
    pub(crate) fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// How pictures become tensors.
    pub(crate) fn picture(&self) -> &Recipe {
        &self.picture
    }

    /// What to do with arrays of another dtype.
    pub(crate) fn convert(&self) -> ConvertArgs {
        self.convert
    }

    /// Reads the files, and `more` such arguments: the inputs of one run, or of several where
    /// pictures cannot be a batch.
    pub(crate) fn feeds(
        &self,
        slots: &[Slot],
        more: &[String],
        need: Need,
    ) -> Result<Vec<Feed>, Failure> {
        load(&[&self.inputs[..], more].concat(), slots, &self.picture, self.convert, need)
    }

    /// The inputs of the only run: those of the files, or else made up in the shapes of `specs`.
    pub(crate) fn one(&self, slots: &[Slot], shapes: &[ShapeArg]) -> Result<Vec<Tensor>, Failure> {
        if self.is_empty() {
            check_used(&self.picture, 0)?;
            return make_up(&specs(shapes, slots, Open::One)?);
        }
        if !shapes.is_empty() {
            return Err(Failure::usage("--shape is for inputs that are made up: not with -i"));
        }
        match &mut self.feeds(slots, &[], Need::All)?[..] {
            [only] => Ok(std::mem::take(&mut only.tensors).into_iter().map(|(_, t)| t).collect()),
            _ => Err(Failure::usage("the model takes one picture at a time: give one")),
        }
    }
}

/// An input of a model.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// Name of the operand, such as `0`.
    pub(crate) operand: String,
    /// Name of its `pnnx.Input` operator, such as `pnnx_input_0`.
    operator: String,
    recorded: TensorType,
    /// The model's file.
    model: String,
}

/// The inputs of a model, in the order in which it takes them.
pub(crate) fn slots(model: &Model) -> Vec<Slot> {
    let slot = |v: &plutino::ValueInfo| Slot {
        operand: v.name.clone(),
        operator: v.operator.clone(),
        recorded: v.recorded.clone(),
        model: model.file().to_owned(),
    };
    model.inputs().iter().map(slot).collect()
}

impl Slot {
    /// The dtype recorded in the file, f32 where it records none.
    pub(crate) fn dtype(&self) -> DType {
        self.recorded.dtype.map(plutino::ops::dtype_of).unwrap_or(DType::F32)
    }

    /// The recorded shape, with 1 for what it leaves open.
    fn with_ones(&self) -> Option<Shape> {
        let dims = self.recorded.shape.as_ref()?.iter();
        let size = |dim: &Dim| if let Dim::Known(n) = dim { *n } else { 1 };
        Some(dims.map(size).collect())
    }

    /// Whether pictures are what it takes: four dimensions, or any.
    fn takes_pictures(&self) -> bool {
        self.recorded.rank().is_none_or(|rank| rank == 4)
    }

    /// How many pictures it takes at once, where the file says so.
    pub(crate) fn batch(&self) -> Option<usize> {
        match self.recorded.shape.as_deref() {
            Some([Dim::Known(batch), ..]) => Some(*batch),
            _ => None,
        }
    }

    /// Whether it takes this many pictures at once.
    fn takes_batch(&self, pictures: usize) -> bool {
        self.batch().is_none_or(|batch| batch == pictures)
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted::of(&self.recorded)
    }
}

/// Which input a name on the command line, or in an archive, means: the operand's, the operator's,
/// or `in0`, `in1`, ... by position.
pub(crate) fn position(slots: &[Slot], name: &str) -> Option<usize> {
    let by_name = slots.iter().position(|s| s.operand == name || s.operator == name);
    let by_number = || name.strip_prefix("in")?.parse().ok().filter(|&i| i < slots.len());
    by_name.or_else(by_number)
}

fn names(slots: &[Slot]) -> String {
    const MOST: usize = 16;
    let mut each: Vec<String> = slots.iter().take(MOST).enumerate().map(named).collect();
    if let Some(more @ 1..) = slots.len().checked_sub(MOST) {
        each.push(format!("{more} more"));
    }
    each.join(", ")
}

/// An input by position and operand.
fn named((i, slot): (usize, &Slot)) -> String {
    format!("in{i} ('{}')", ir::quote(&slot.operand))
}

/// What a file holds.
pub(crate) enum Content {
    Arrays(Vec<(Option<String>, Tensor)>),
    Picture(Vec<u8>),
}

pub(crate) fn read(path: &Path) -> Result<Content, Failure> {
    let bytes = files::bytes(path)?;
    let in_file = |error| {
        let path = path.to_owned();
        Failure::from(npy::NpyError::File { path, error: Box::new(error) })
    };
    if bytes.starts_with(b"\x93NUMPY") {
        Ok(Content::Arrays(vec![(None, npy::read(&bytes).map_err(in_file)?)]))
    } else if bytes.starts_with(b"PK") {
        let arrays = npz::read(&bytes).map_err(in_file)?;
        Ok(Content::Arrays(arrays.into_iter().map(|(name, t)| (Some(name), t)).collect()))
    } else if Format::of(&bytes).is_some() {
        Ok(Content::Picture(bytes))
    } else {
        Err(Failure::usage(format!("{}: neither npy, npz, {}", path.display(), Format::NAMES)))
    }
}

/// A picture's pixels; errors name it.
pub(crate) fn pixels(bytes: &[u8], name: &str, recipe: &Recipe) -> Result<Pixels, Failure> {
    let read = if recipe.no_exif { Pixels::read_as_stored } else { Pixels::read };
    read(bytes).map_err(|error| in_picture(name, error))
}

/// A picture as the model takes it, and where it went; errors name it.
pub(crate) fn prepare(
    pixels: &Pixels,
    name: &str,
    wanted: Wanted,
    recipe: &Recipe,
) -> Result<(Tensor, Placement), Failure> {
    recipe.prepare(pixels, wanted).map_err(|error| in_picture(name, error))
}

fn in_picture(name: &str, error: VisionError) -> Failure {
    match Failure::from(error) {
        Failure::Usage(what) => Failure::Usage(format!("{name}: {what}")),
        Failure::Limit(what) => Failure::Limit(format!("{name}: {what}")),
        other => other,
    }
}

/// An error where options for pictures are set though no input is one.
fn check_used(recipe: &Recipe, pictures: usize) -> Result<(), Failure> {
    let Recipe { mean, std, size, short, crop, letterbox, filter, order, no_exif, .. } = recipe;
    let options = [
        ("--mean", !mean.is_empty()),
        ("--std", !std.is_empty()),
        ("--size", size.is_some()),
        ("--short", short.is_some()),
        ("--crop", crop.is_some()),
        ("--letterbox", *letterbox),
        ("--filter", filter.is_some()),
        ("--order", order.is_some()),
        ("--no-exif", *no_exif),
    ];
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) if pictures == 0 => {
            Err(Failure::usage(format!("{option} applies to pictures, and no input is one")))
        }
        _ => Ok(()),
    }
}

/// The inputs of one run, which are arrays of one file.
pub(crate) fn arrays(
    path: &str,
    slots: &[Slot],
    convert: ConvertArgs,
) -> Result<Vec<Tensor>, Failure> {
    let inputs = vec![path.to_owned()];
    FileArgs { inputs, convert, picture: Recipe::default() }.one(slots, &[])
}

/// What the arguments give one input.
#[derive(Debug, Clone, Default)]
enum Given {
    #[default]
    Nothing,
    Array(Tensor),
    /// Pictures, by the names of their files.
    Pictures(Vec<(String, Tensor)>),
}

/// Reads the files of `-i [NAME=]FILE` arguments and gives each input its tensors.
fn load(
    arguments: &[String],
    slots: &[Slot],
    pictures: &Recipe,
    convert: ConvertArgs,
    need: Need,
) -> Result<Vec<Feed>, Failure> {
    let mut given: Vec<Given> = vec![Given::Nothing; slots.len()];
    let mut picture_count = 0;
    for argument in arguments {
        let (name, path) = split_name(argument, slots)?;
        match read(Path::new(path))? {
            Content::Picture(bytes) => {
                picture_count += 1;
                let at = match name {
                    Some(name) => position(slots, name),
                    None => next_picture(slots, &given),
                };
                let at = at.ok_or_else(|| too_many(path, slots))?;
                let recipe = pictures.for_model(&slots[at].model, Recipe::default())?;
                let pixels = pixels(&bytes, path, &recipe)?;
                let tensor = prepare(&pixels, path, slots[at].wanted(), &recipe)?.0;
                let picture = (path.to_owned(), tensor.cast(slots[at].dtype())?);
                match &mut given[at] {
                    Given::Pictures(all) => all.push(picture),
                    free @ Given::Nothing => *free = Given::Pictures(vec![picture]),
                    Given::Array(_) => return Err(twice(path, at)),
                }
            }
            Content::Arrays(arrays) => {
                if name.is_some() && arrays.len() != 1 {
                    let n = arrays.len();
                    return Err(Failure::usage(format!(
                        "{path} holds {n} arrays: give it without a name"
                    )));
                }
                for (own, tensor) in arrays {
                    // A name in the archive that means an input counts; any other is just a name.
                    let known = own.as_deref().filter(|own| position(slots, own).is_some());
                    let at = choose(slots, &given, name.or(known), path)?;
                    let place = own.map_or_else(|| path.into(), |own| format!("{path}: '{own}'"));
                    let what = format!("input in{at} ('{}')", slots[at].operand);
                    let tensor = convert.fit(tensor, &slots[at].recorded, &what, &place)?;
                    given[at] = Given::Array(tensor);
                }
            }
        }
    }
    check_used(pictures, picture_count)?;
    let missing = given.iter().position(|g| matches!(g, Given::Nothing));
    if let Some(missing) = missing.filter(|_| need == Need::All) {
        return Err(Failure::usage(format!(
            "no file for input in{missing} ('{}', {}): give each input with -i; the model has {}",
            slots[missing].operand,
            slots[missing].recorded,
            names(slots)
        )));
    }
    feeds(given, slots)
}

/// Makes runs of what was given.
fn feeds(given: Vec<Given>, slots: &[Slot]) -> Result<Vec<Feed>, Failure> {
    let mut one = Feed { name: None, rows: Vec::new(), tensors: Vec::with_capacity(slots.len()) };
    // The input whose pictures are runs of their own.
    let mut apart: Option<(usize, Vec<(String, Tensor)>)> = None;
    for (at, (given, slot)) in given.into_iter().zip(slots).enumerate() {
        let tensor = match given {
            Given::Nothing => continue, // not needed
            Given::Array(tensor) => tensor,
            Given::Pictures(pictures) => match batch(&pictures, slot)? {
                Some(tensor) => {
                    if pictures.len() > 1 {
                        one.rows = pictures.into_iter().map(|(name, _)| name).collect();
                    }
                    tensor
                }
                None if apart.is_some() => {
                    return Err(Failure::usage(
                        "several pictures for several inputs, none of which takes a batch: give one each",
                    ));
                }
                None => {
                    let first = pictures.first().map(|(_, tensor)| tensor.clone());
                    apart = Some((at, pictures));
                    first.unwrap_or(Tensor::zeros(slot.dtype(), [0])?)
                }
            },
        };
        one.tensors.push((at, tensor));
    }
    let Some((at, pictures)) = apart else { return Ok(vec![one]) };
    let each = pictures.into_iter().map(|(name, tensor)| {
        let mut feed = Feed { name: Some(name), ..one.clone() };
        feed.tensors.iter_mut().filter(|(i, _)| *i == at).for_each(|(_, t)| *t = tensor.clone());
        feed
    });
    Ok(each.collect())
}

/// Pictures as one tensor, where the model takes so many and they are of one size.
fn batch(pictures: &[(String, Tensor)], slot: &Slot) -> Result<Option<Tensor>, Failure> {
    let views: Vec<_> = pictures.iter().map(|(_, tensor)| tensor.view()).collect();
    let same = views.windows(2).all(|pair| pair[0].shape() == pair[1].shape());
    match (pictures, same && slot.takes_batch(pictures.len())) {
        ([(_, only)], _) => Ok(Some(only.clone())),
        (_, true) => Ok(Some(plutino::tensor::concat(&views, 0)?)),
        (_, false) => Ok(None),
    }
}

impl ConvertArgs {
    /// The array in the dtype that the file records for `what`.
    pub(crate) fn fit(
        self,
        array: Tensor,
        recorded: &TensorType,
        what: &str,
        place: &str,
    ) -> Result<Tensor, Failure> {
        let found = array.dtype();
        let wanted = recorded.dtype.map(plutino::ops::dtype_of).unwrap_or(found);
        if found == wanted {
            return Ok(array);
        }
        if !self.cast {
            let reason = match found {
                DType::F64 => ", NumPy's default for floats",
                DType::I64 => ", NumPy's default for integers",
                _ => "",
            };
            let way = match numpy::name(wanted) {
                Some(name) => format!("save it with .astype(np.{name}), or let --cast convert it"),
                None => "which NumPy does not have: let --cast convert it".into(),
            };
            return Err(Failure::usage(format!(
                "{place} is {found}{reason}; {what} must be {wanted}: {way}"
            )));
        }
        let converted = array.cast(wanted)?;
        match lost(&array, &converted)? {
            None => Ok(converted),
            Some(element) => Err(Failure::usage(format!(
                "--cast: {place} is {found}, and {element} is no {wanted}, which {what} must be"
            ))),
        }
    }
}

/// The first element that a conversion changed: floats may be rounded, but not become infinite.
fn lost(array: &Tensor, converted: &Tensor) -> Result<Option<String>, Failure> {
    let floats = array.dtype().is_float() && converted.dtype().is_float();
    if floats {
        let (before, after) = (array.cast(DType::F64)?, converted.cast(DType::F64)?);
        let mut pairs = before.as_slice::<f64>()?.iter().zip(after.as_slice::<f64>()?);
        let lost = pairs.find(|(before, after)| before.is_finite() && !after.is_finite());
        return Ok(lost.map(|(before, _)| before.to_string()));
    }
    let back = converted.cast(array.dtype())?;
    let comparison = array.compare(&back, plutino::Tolerance::EXACT)?;
    Ok(comparison.worst.filter(|_| comparison.mismatches > 0).map(|worst| worst.actual))
}

/// Splits `NAME=FILE`. A file whose own path holds a `=` is still found.
fn split_name<'a>(
    argument: &'a str,
    slots: &[Slot],
) -> Result<(Option<&'a str>, &'a str), Failure> {
    match argument.split_once('=') {
        Some((name, path)) if position(slots, name).is_some() => Ok((Some(name), path)),
        Some((name, _)) if !Path::new(argument).exists() => {
            Err(Failure::usage(format!("the model has no input '{name}', it has {}", names(slots))))
        }
        _ => Ok((None, argument)),
    }
}

/// The input that an array is for: the named one, or the next that has none.
fn choose(
    slots: &[Slot],
    given: &[Given],
    name: Option<&str>,
    path: &str,
) -> Result<usize, Failure> {
    let at = match name {
        Some(name) => position(slots, name),
        None => given.iter().position(|g| matches!(g, Given::Nothing)),
    };
    match at {
        Some(at) if matches!(given[at], Given::Nothing) => Ok(at),
        Some(at) => Err(twice(path, at)),
        None => Err(too_many(path, slots)),
    }
}

/// The input that a picture without a name is for: the next that has none, or else the only one
/// with pictures.
fn next_picture(slots: &[Slot], given: &[Given]) -> Option<usize> {
    let all = || given.iter().enumerate();
    let free = |slot: &Slot, g: &Given| slot.takes_pictures() && matches!(g, Given::Nothing);
    let mut pictured = all().filter(|(_, g)| matches!(g, Given::Pictures(_))).map(|(at, _)| at);
    let next = all().position(|(at, g)| free(&slots[at], g));
    next.or_else(|| pictured.next().filter(|_| pictured.next().is_none()))
}

fn twice(path: &str, at: usize) -> Failure {
    Failure::usage(format!("{path}: input in{at} is given twice"))
}

fn too_many(path: &str, slots: &[Slot]) -> Failure {
    let names = names(slots);
    Failure::usage(format!("{path} holds more than the model takes: it has {names}"))
}

/// What to do about sizes that neither the file nor the command line gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// Refuse.
    Refuse,
    /// Take 1, and say so.
    One,
}

/// Dtypes and shapes of the inputs: shapes are those of `--shape [NAME=]1x3x224x224`, else those
/// recorded in the file.
pub(crate) fn specs(
    arguments: &[ShapeArg],
    slots: &[Slot],
    open: Open,
) -> Result<Vec<TensorSpec>, Failure> {
    let mut shapes: Vec<Option<Shape>> = vec![None; slots.len()];
    for argument in arguments {
        let at = match &argument.name {
            Some(name) => position(slots, name),
            None => shapes.iter().position(Option::is_none),
        };
        let shape = at.and_then(|at| shapes.get_mut(at)).ok_or_else(|| {
            Failure::usage(format!("--shape {argument}: the model has {}", names(slots)))
        })?;
        *shape = Some(argument.shape.clone());
    }
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for (i, (slot, shape)) in slots.iter().zip(&mut shapes).enumerate() {
        if shape.is_none() {
            *shape = slot.recorded.known_shape().map(Shape::from);
        }
        if shape.is_none() {
            *shape = slot.with_ones().filter(|_| open == Open::One);
            if shape.is_some() { &mut taken } else { &mut refused }.push(i);
        }
    }
    for alike in recorded_alike(&taken, slots) {
        if let Some(shape) = alike.first().and_then(|&first| shapes[first].as_ref()) {
            let (what, give) = (in_words(alike, slots), shapes_of(alike));
            let text = format!("the file records {what}: taken as {shape}; give {give}");
            crate::output::note(&text);
        }
    }
    if !refused.is_empty() {
        let groups = recorded_alike(&refused, slots);
        let words: Vec<_> = groups.map(|alike| in_words(alike, slots)).collect();
        let (what, give) = (words.join(", "), shapes_of(&refused));
        return Err(Failure::usage(format!("the file records {what}: give {give}")));
    }
    let specs = slots.iter().zip(shapes.into_iter().flatten());
    Ok(specs.map(|(slot, shape)| TensorSpec::new(slot.dtype(), shape)).collect())
}

/// Inputs in groups of neighbours of which the file records the same.
fn recorded_alike<'a>(inputs: &'a [usize], slots: &'a [Slot]) -> impl Iterator<Item = &'a [usize]> {
    inputs.chunk_by(|&a, &b| a + 1 == b && slots[a].recorded == slots[b].recorded)
}

/// What the file records for inputs that are alike: `(?,3,?,?)f32 for input in0 ('x')`.
fn in_words(alike: &[usize], slots: &[Slot]) -> String {
    let name = |i: usize| named((i, &slots[i]));
    match *alike {
        [] => String::new(),
        [i] => format!("{} for input {}", slots[i].recorded, name(i)),
        [a, .., b] => format!("{} for inputs {} to {}", slots[a].recorded, name(a), name(b)),
    }
}

/// What is to be given for these inputs.
fn shapes_of(inputs: &[usize]) -> &'static str {
    if inputs.len() == 1 { "its shape with --shape" } else { "their shapes with --shape" }
}

/// Why planning or running failed: the inputs, where one has another shape than the file records
/// for its operand, else the model.
pub(crate) fn refused<'a>(
    error: SessionError,
    model: &Model,
    given: impl IntoIterator<Item = (&'a str, &'a Shape)>,
) -> Failure {
    let graph = model.graph();
    let odd = given.into_iter().find_map(|(name, shape)| {
        let operand = graph.operand_by_name(name).and_then(|id| graph.operand(id))?;
        let recorded = operand.ty.shape.as_ref()?;
        let fits = |(dim, size): (&Dim, &usize)| !matches!(dim, Dim::Known(n) if n != size);
        let fit = recorded.len() == shape.rank() && recorded.iter().zip(shape.iter()).all(fits);
        (!fit).then(|| format!("'{}' is {shape}, the file records {}", ir::quote(name), operand.ty))
    });
    match (Failure::from(error), odd) {
        (Failure::Model(what), Some(odd)) => Failure::Usage(format!("input {odd}: {what}")),
        (failure, _) => failure,
    }
}

/// As [`refused`], of the inputs in their order.
pub(crate) fn refused_inputs(error: SessionError, model: &Model, specs: &[TensorSpec]) -> Failure {
    let names = model.inputs().iter().map(|input| input.name.as_str());
    refused(error, model, names.zip(specs.iter().map(|spec| &spec.shape)))
}

/// Made-up inputs, for timing: normal numbers for floats, zeros and ones for integers (valid
/// indices of any embedding).
pub(crate) fn make_up(specs: &[TensorSpec]) -> Result<Vec<Tensor>, Failure> {
    let inputs = specs.iter().zip(0..).map(|(TensorSpec { dtype, shape, .. }, seed)| {
        Ok(match dtype.is_float() || dtype.is_complex() {
            true => Tensor::normal(*dtype, shape.clone(), 0.0, 1.0, seed)?,
            false => Tensor::randint(*dtype, shape.clone(), 0..2, seed)?,
        })
    });
    inputs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_vision::Size;

    fn slot(operand: &str, shape: Option<Vec<Dim>>, dtype: ir::DType) -> Slot {
        Slot {
            model: String::new(),
            operand: operand.into(),
            operator: format!("pnnx_input_{operand}"),
            recorded: TensorType { shape, dtype: Some(dtype) },
        }
    }

    fn two() -> Vec<Slot> {
        let known = |dims: &[usize]| Some(dims.iter().copied().map(Dim::Known).collect());
        vec![
            slot("x", known(&[1, 3, 4, 4]), ir::DType::F32),
            slot("ids", known(&[2]), ir::DType::I64),
        ]
    }

    fn message<T>(result: Result<T, Failure>) -> String {
        result.err().and_then(|f| f.message().map(str::to_owned)).unwrap()
    }

    #[test]
    fn open_sizes_are_told_in_groups() {
        let open = || Some(vec![Dim::Known(4), Dim::Unknown]);
        let caches = (1..4).map(|i| slot(&format!("past{i}"), open(), ir::DType::F32));
        let tokens = slot("tokens", Some(vec![Dim::Unknown]), ir::DType::I64);
        let slots: Vec<Slot> = std::iter::once(tokens).chain(caches).collect();
        let refused = "the file records (?)i64 for input in0 ('tokens'), (4,?)f32 for inputs in1 \
                       ('past1') to in3 ('past3'): give their shapes with --shape";
        assert_eq!(message(specs(&[], &slots, Open::Refuse)), refused);
        let groups: Vec<_> = recorded_alike(&[0, 1, 3], &slots).collect();
        assert_eq!(groups, [[0], [1], [3]]);
        let ones = specs(&[], &slots, Open::One).unwrap();
        assert_eq!(ones[3], TensorSpec::new(DType::F32, [4, 1]));
    }

    #[test]
    fn arrays_find_their_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let x = Tensor::zeros(DType::F32, [1, 3, 4, 4]).unwrap();
        let ids = Tensor::from_slice(&[1i64, 2], [2]).unwrap();
        npy::save(path("ids.npy"), &ids.view()).unwrap();
        npy::save(path("a=b.npy"), &x.view()).unwrap();
        npz::save(path("both.npz"), [("in1", ids.view()), ("in0", x.view())]).unwrap();
        npz::save(path("named.npz"), [("pnnx_input_ids", ids.view()), ("foo", x.view())]).unwrap();
        let load = |args: &[String]| {
            let args = FileArgs { inputs: args.to_vec(), ..FileArgs::default() };
            args.one(&two(), &[])
        };
        let expected = vec![x, ids];
        assert_eq!(load(&[path("both.npz")]).unwrap(), expected);
        assert_eq!(load(&[path("named.npz")]).unwrap(), expected);
        assert_eq!(load(&[format!("ids={}", path("ids.npy")), path("a=b.npy")]).unwrap(), expected);
        assert!(
            message(load(&[path("a=b.npy")])).contains("no file for input in1 ('ids', (2)i64)")
        );
        assert!(message(load(&[path("ids.npy")])).contains("ids.npy is i64"));
        assert!(
            message(load(&[path("both.npz"), path("ids.npy")]))
                .contains("more than the model takes")
        );
        assert!(message(load(&[format!("y={}", path("ids.npy"))])).contains("no input 'y'"));
        assert!(message(load(&[format!("x={}", path("both.npz"))])).contains("holds 2 arrays"));
        let twice = [format!("ids={}", path("ids.npy")), format!("ids={}", path("ids.npy"))];
        assert!(message(load(&twice)).contains("given twice"));
        assert!(message(load(&[path("none.npy")])).contains("cannot read"));
        std::fs::write(path("text.npy"), "hello").unwrap();
        assert!(
            message(load(&[path("text.npy")]))
                .contains("neither npy, npz, png, jpeg, webp nor bmp")
        );
    }

    #[test]
    fn made_up_inputs_follow_the_file() {
        let inputs = make_up(&specs(&[], &two(), Open::Refuse).unwrap()).unwrap();
        assert_eq!(inputs[0].spec().to_string(), "(1,3,4,4)f32");
        assert!(inputs[1].as_slice::<i64>().unwrap().iter().all(|i| (0..2).contains(i)));
        let shapes = ["ids=5".parse().unwrap(), "2x3x8x8".parse().unwrap()];
        let given = specs(&shapes, &two(), Open::Refuse).unwrap();
        assert_eq!((given[0].shape.dims(), given[1].shape.dims()), (&[2, 3, 8, 8][..], &[5][..]));
        let unknown =
            [slot("x", Some(vec![Dim::Known(1), Dim::Symbol("w".into())]), ir::DType::F32)];
        let refused = |shapes: &[ShapeArg]| message(specs(shapes, &unknown, Open::Refuse));
        assert!(refused(&[]).contains("(1,%w)f32 for input in0"));
        assert!(refused(&["y=1".parse().unwrap()]).contains("--shape y=1"));
        assert_eq!(specs(&[], &unknown, Open::One).unwrap()[0].shape.dims(), [1, 1]);
    }

    #[test]
    fn values_are_kept_or_named() {
        let slot = |dtype| slot("x", None, dtype);
        let cast = ConvertArgs { cast: true };
        let fit = |array: &Tensor, to, args: ConvertArgs| {
            args.fit(array.clone(), &slot(to).recorded, "input in0 ('x')", "x.npy")
        };
        let doubles = Tensor::from_slice(&[0.1f64, f64::NAN, -2.0], [3]).unwrap();
        let refused = message(fit(&doubles, ir::DType::F32, ConvertArgs::default()));
        for word in ["x.npy is f64", "in0 ('x') must be f32", "np.float32", "--cast"] {
            assert!(refused.contains(word), "{refused}");
        }
        let floats = fit(&doubles, ir::DType::F32, cast).unwrap();
        assert_eq!(floats.as_slice::<f32>().unwrap()[0], 0.1);
        assert!(message(fit(&doubles, ir::DType::I64, cast)).contains("is no i64"));
        let large = Tensor::from_slice(&[1.0f64, 1e300], [2]).unwrap();
        assert!(message(fit(&large, ir::DType::F32, cast)).contains("and 1"));
        let ints = Tensor::from_slice(&[1i64, -5, 1 << 20], [3]).unwrap();
        let narrow = fit(&ints, ir::DType::I32, cast).unwrap();
        assert_eq!(narrow.as_slice::<i32>().unwrap(), [1, -5, 1 << 20]);
        assert!(message(fit(&ints, ir::DType::I16, cast)).contains("1048576 is no i16"));
        assert!(fit(&ints, ir::DType::F32, cast).is_ok());
        let odd = Tensor::from_slice(&[(1i64 << 24) + 1], [1]).unwrap();
        assert!(message(fit(&odd, ir::DType::F32, cast)).contains("16777217 is no f32"));
        let bits = Tensor::from_slice(&[0u8, 1], [2]).unwrap();
        assert!(fit(&bits, ir::DType::Bool, cast).is_ok());
        assert!(fit(&ints, ir::DType::Bool, cast).is_err());
    }

    #[test]
    fn pictures_are_a_batch_or_runs() {
        let picture = |n: usize, side: usize| {
            (format!("{n}.png"), Tensor::ones(DType::F32, [1, 3, side, side]).unwrap())
        };
        let image = |batch: Dim| {
            let dims = vec![batch, Dim::Known(3), Dim::Unknown, Dim::Unknown];
            [slot("x", Some(dims), ir::DType::F32)]
        };
        let given = |sides: &[usize]| {
            let all = sides.iter().enumerate().map(|(n, &side)| picture(n, side));
            vec![Given::Pictures(all.collect())]
        };
        let made = |batch: Dim, sides: &[usize]| feeds(given(sides), &image(batch)).unwrap();
        for batch in [Dim::Unknown, Dim::Known(3)] {
            let feeds = made(batch, &[2, 2, 2]);
            assert_eq!(feeds.len(), 1);
            assert_eq!(feeds[0].tensors[0].1.shape().dims(), [3, 3, 2, 2]);
            assert_eq!(feeds[0].rows, ["0.png", "1.png", "2.png"]);
        }
        for (batch, sides) in [(Dim::Known(1), [2, 2]), (Dim::Unknown, [2, 4])] {
            let feeds = made(batch, &sides);
            let names: Vec<_> = feeds.iter().map(|f| f.name.as_deref()).collect();
            assert_eq!(names, [Some("0.png"), Some("1.png")]);
            assert_eq!(feeds[1].tensors[0].1.shape()[2], sides[1]);
        }
        let one = made(Dim::Known(1), &[2]);
        assert_eq!((one.len(), one[0].name.as_deref(), one[0].rows.len()), (1, None, 0));
    }

    #[test]
    fn pictures_follow_the_recorded_shape() {
        let wanted = two()[0].wanted();
        assert_eq!(wanted, Wanted { channels: 3, size: Some(Size { height: 4, width: 4 }) });
        let open = vec![Dim::Known(1), Dim::Known(1), Dim::Unknown, Dim::Known(9)];
        let wanted = slot("x", Some(open), ir::DType::F32).wanted();
        assert_eq!(wanted, Wanted { channels: 1, size: None });
    }
}

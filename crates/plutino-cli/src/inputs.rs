//! From files named on the command line to the tensors that a model takes, in its order.

use crate::failure::Failure;
use crate::picture::{self, PictureArgs, Size, Wanted};
use plutino::ir::{Dim, TensorType};
use plutino::npy::{self, npz};
use plutino::{DType, Model, Shape, Tensor, TensorSpec};
use std::path::Path;

/// An input of a model.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// Name of the operand, such as `0`.
    operand: String,
    /// Name of its `pnnx.Input` operator, such as `pnnx_input_0`.
    operator: String,
    recorded: TensorType,
}

/// The inputs of a model, in the order in which it takes them.
pub(crate) fn slots(model: &Model) -> Vec<Slot> {
    let slot = |v: &plutino::ValueInfo| Slot {
        operand: v.name.clone(),
        operator: v.operator.clone(),
        recorded: v.recorded.clone(),
    };
    model.inputs().iter().map(slot).collect()
}

impl Slot {
    /// The dtype recorded in the file, f32 where it records none.
    fn dtype(&self) -> DType {
        self.recorded.dtype.and_then(|d| DType::from_name(d.name())).unwrap_or(DType::F32)
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let dims = self.recorded.shape.as_deref().unwrap_or_default();
        let known = |dim: Option<&Dim>| match dim {
            Some(Dim::Known(n)) => Some(*n),
            _ => None,
        };
        let side = |dim: Option<&Dim>| known(dim).and_then(|n| u32::try_from(n).ok());
        match dims {
            [_, channels, height, width] => Wanted {
                channels: known(Some(channels)).unwrap_or(3),
                size: side(Some(height))
                    .zip(side(Some(width)))
                    .map(|(height, width)| Size { height, width }),
            },
            _ => Wanted { channels: 3, size: None },
        }
    }
}

/// Which input a name on the command line, or in an archive, means: the operand's, the operator's, or
/// `in0`, `in1`, ... by position.
fn position(slots: &[Slot], name: &str) -> Option<usize> {
    let by_name = slots.iter().position(|s| s.operand == name || s.operator == name);
    let by_number = || name.strip_prefix("in")?.parse().ok().filter(|&i| i < slots.len());
    by_name.or_else(by_number)
}

fn names(slots: &[Slot]) -> String {
    let each = slots.iter().enumerate();
    let each: Vec<String> = each.map(|(i, s)| format!("in{i} ('{}')", s.operand)).collect();
    each.join(", ")
}

/// What a file holds.
enum Content {
    Arrays(Vec<(Option<String>, Tensor)>),
    Picture(Vec<u8>),
}

fn read(path: &Path) -> Result<Content, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|e| Failure::usage(format!("cannot read '{}': {e}", path.display())))?;
    let in_file = |e: npy::NpyError| Failure::usage(format!("{}: {e}", path.display()));
    if bytes.starts_with(b"\x93NUMPY") {
        Ok(Content::Arrays(vec![(None, npy::read(&bytes).map_err(in_file)?)]))
    } else if bytes.starts_with(b"PK") {
        let arrays = npz::read(&bytes).map_err(in_file)?;
        Ok(Content::Arrays(arrays.into_iter().map(|(name, t)| (Some(name), t)).collect()))
    } else if picture::is_picture(&bytes) {
        Ok(Content::Picture(bytes))
    } else {
        Err(Failure::usage(format!("{}: neither npy, npz, png nor jpeg", path.display())))
    }
}

/// Reads the files of `-i [NAME=]FILE` arguments and gives each input its tensor.
pub(crate) fn load(
    arguments: &[String],
    slots: &[Slot],
    pictures: &PictureArgs,
) -> Result<Vec<Tensor>, Failure> {
    let mut filled: Vec<Option<Tensor>> = vec![None; slots.len()];
    let mut picture_count = 0;
    for argument in arguments {
        let (name, path) = split_name(argument, slots)?;
        match read(Path::new(path))? {
            Content::Picture(bytes) => {
                picture_count += 1;
                let at = choose(slots, &filled, name, path)?;
                let tensor = picture::decode(&bytes, slots[at].wanted(), pictures)
                    .map_err(|e| Failure::usage(format!("{path}: {e}")))?;
                filled[at] = Some(tensor.cast(slots[at].dtype())?);
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
                    let own = own.as_deref().filter(|own| position(slots, own).is_some());
                    let at = choose(slots, &filled, name.or(own), path)?;
                    filled[at] = Some(tensor);
                }
            }
        }
    }
    pictures.check_used(picture_count)?;
    let missing = filled.iter().position(Option::is_none);
    if let Some(missing) = missing {
        return Err(Failure::usage(format!(
            "no file for input in{missing} ('{}', {}): give each input with -i; the model has {}",
            slots[missing].operand,
            slots[missing].recorded,
            names(slots)
        )));
    }
    Ok(filled.into_iter().flatten().collect())
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

/// The input that a tensor is for: the named one, or the next that has none.
fn choose(
    slots: &[Slot],
    filled: &[Option<Tensor>],
    name: Option<&str>,
    path: &str,
) -> Result<usize, Failure> {
    let at = match name {
        Some(name) => position(slots, name),
        None => filled.iter().position(Option::is_none),
    };
    match at {
        Some(at) if filled[at].is_none() => Ok(at),
        Some(at) => Err(Failure::usage(format!("{path}: input in{at} is given twice"))),
        None => Err(Failure::usage(format!(
            "{path} holds more than the model takes: it has {}",
            names(slots)
        ))),
    }
}

/// Dtypes and shapes of the inputs: shapes are those of `--shape [NAME=]1x3x224x224`, else those recorded in the
/// file.
pub(crate) fn specs(arguments: &[ShapeArg], slots: &[Slot]) -> Result<Vec<TensorSpec>, Failure> {
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
    let specs = slots.iter().zip(shapes).enumerate().map(|(i, (slot, shape))| {
        let shape = shape.or_else(|| slot.recorded.known_shape().map(Shape::from));
        let shape = shape.ok_or_else(|| {
            Failure::usage(format!(
                "the file records {} for input in{i} ('{}'): give its shape with --shape",
                slot.recorded, slot.operand
            ))
        })?;
        Ok(TensorSpec::new(slot.dtype(), shape))
    });
    specs.collect()
}

/// Made-up inputs, for timing: normal numbers for floats, zeros and ones for integers (valid indices of any
/// embedding).
pub(crate) fn make_up(specs: &[TensorSpec]) -> Result<Vec<Tensor>, Failure> {
    let inputs = specs.iter().zip(0..).map(|(TensorSpec { dtype, shape, .. }, seed)| {
        Ok(match dtype.is_float() || dtype.is_complex() {
            true => Tensor::normal(*dtype, shape.clone(), 0.0, 1.0, seed)?,
            false => Tensor::randint(*dtype, shape.clone(), 0..2, seed)?,
        })
    });
    inputs.collect()
}

/// `[NAME=]1x3x224x224`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShapeArg {
    name: Option<String>,
    shape: Shape,
}

impl std::fmt::Display for ShapeArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        let dims: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        f.write_str(&dims.join("x"))
    }
}

impl std::str::FromStr for ShapeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, dims) = match text.split_once('=') {
            Some((name, dims)) => (Some(name.to_owned()), dims),
            None => (None, text),
        };
        let shape: Result<Vec<usize>, _> = match dims {
            "scalar" => Ok(Vec::new()),
            dims => dims.split('x').map(str::parse).collect(),
        };
        match shape {
            Ok(shape) => Ok(Self { name, shape: shape.into() }),
            Err(_) => Err("sizes as in 1x3x224x224, or 'scalar'".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino::ir;

    fn slot(operand: &str, shape: Option<Vec<Dim>>, dtype: ir::DType) -> Slot {
        Slot {
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
    fn arrays_find_their_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let x = Tensor::zeros(DType::F32, [1, 3, 4, 4]).unwrap();
        let ids = Tensor::from_slice(&[1i64, 2], [2]).unwrap();
        npy::save(path("ids.npy"), &ids.view()).unwrap();
        npy::save(path("a=b.npy"), &x.view()).unwrap();
        npz::save(path("both.npz"), [("in1", ids.view()), ("in0", x.view())]).unwrap();
        npz::save(path("named.npz"), [("pnnx_input_ids", ids.view()), ("foo", x.view())]).unwrap();
        let load = |args: &[String]| load(args, &two(), &PictureArgs::default());
        let expected = vec![x, ids];
        assert_eq!(load(&[path("both.npz")]).unwrap(), expected);
        assert_eq!(load(&[path("named.npz")]).unwrap(), expected);
        assert_eq!(load(&[format!("ids={}", path("ids.npy")), path("a=b.npy")]).unwrap(), expected);
        assert!(
            message(load(&[path("ids.npy")])).contains("no file for input in1 ('ids', (2)i64)")
        );
        assert!(
            message(load(&[path("both.npz"), path("ids.npy")]))
                .contains("more than the model takes")
        );
        assert!(message(load(&[format!("y={}", path("ids.npy"))])).contains("no input 'y'"));
        assert!(message(load(&[format!("x={}", path("both.npz"))])).contains("holds 2 arrays"));
        let twice = [format!("x={}", path("ids.npy")), format!("x={}", path("ids.npy"))];
        assert!(message(load(&twice)).contains("given twice"));
        assert!(message(load(&[path("none.npy")])).contains("cannot read"));
        std::fs::write(path("text.npy"), "hello").unwrap();
        assert!(message(load(&[path("text.npy")])).contains("neither npy, npz, png nor jpeg"));
    }

    #[test]
    fn made_up_inputs_follow_the_file() {
        let inputs = make_up(&specs(&[], &two()).unwrap()).unwrap();
        assert_eq!(inputs[0].spec().to_string(), "(1,3,4,4)f32");
        assert!(inputs[1].as_slice::<i64>().unwrap().iter().all(|i| (0..2).contains(i)));
        let shapes = ["ids=5".parse().unwrap(), "2x3x8x8".parse().unwrap()];
        let given = specs(&shapes, &two()).unwrap();
        assert_eq!((given[0].shape.dims(), given[1].shape.dims()), (&[2, 3, 8, 8][..], &[5][..]));
        let unknown =
            [slot("x", Some(vec![Dim::Known(1), Dim::Symbol("w".into())]), ir::DType::F32)];
        assert!(message(specs(&[], &unknown)).contains("(1,%w)f32 for input in0"));
        assert!(message(specs(&["y=1".parse().unwrap()], &unknown)).contains("--shape y=1"));
    }

    #[test]
    fn shape_syntax() {
        let shape: ShapeArg = "x=1x3".parse().unwrap();
        assert_eq!((shape.name.as_deref(), shape.shape.dims()), (Some("x"), &[1, 3][..]));
        assert_eq!("scalar".parse::<ShapeArg>().unwrap().shape.rank(), 0);
        for bad in ["", "1x", "axb", "-1"] {
            assert!(bad.parse::<ShapeArg>().is_err(), "{bad}");
        }
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

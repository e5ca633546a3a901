//! Inputs for a model that may be anything.

use crate::chance::Chance;
use plutino::{DType, Model, Shape, Tensor, TensorError};

/// What one input may take, in bytes; larger ones are not made.
const MOST: usize = 1 << 20;

const DTYPES: [DType; 9] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::Bf16,
    DType::I64,
    DType::I32,
    DType::U8,
    DType::Bool,
    DType::C64,
];

/// A tensor for each input of a model: those of the fixture, or what the file records, with changes
/// here and there.
///
/// # Errors
/// Where an input would be larger than is made.
pub fn made(
    model: &Model,
    given: &[Tensor],
    chance: &mut Chance,
) -> Result<Vec<Tensor>, TensorError> {
    let as_given = chance.once_in(2);
    let mut tensors = Vec::new();
    for (i, input) in model.inputs().iter().enumerate() {
        let recorded = input.recorded.known_shape().map(Shape::from);
        let dtype = input.dtype();
        let tensor = match (given.get(i), recorded) {
            (Some(tensor), _) if as_given => tensor.clone(),
            (Some(tensor), Some(shape)) if *tensor.shape() == shape => tensor.clone(),
            (given, recorded) => {
                let shape = recorded.or_else(|| given.map(|tensor| tensor.shape().clone()));
                let dtype = dtype.or_else(|| given.map(Tensor::dtype)).unwrap_or(DType::F32);
                numbers(dtype, shape.unwrap_or_else(|| Shape::from([2, 3])), chance.below(3))?
            }
        };
        tensors.push(if chance.once_in(4) { changed(&tensor, chance)? } else { tensor });
    }
    if chance.once_in(64) {
        tensors.pop();
    }
    Ok(tensors)
}

/// Another type, another shape, or other numbers.
fn changed(tensor: &Tensor, chance: &mut Chance) -> Result<Tensor, TensorError> {
    let mut dims = tensor.shape().dims().to_vec();
    let mut dtype = tensor.dtype();
    let at = chance.below(dims.len());
    match chance.below(8) {
        0 => dtype = chance.one(&DTYPES).copied().unwrap_or(dtype),
        1 => drop((at < dims.len()).then(|| dims.remove(at))),
        2 => dims.insert(at, chance.below(3)),
        3 | 4 => {
            let size = chance.one(&[0, 1, 2, 3, 7, 33]).copied().unwrap_or(0);
            dims.iter_mut().skip(at).take(1).for_each(|dim| *dim = size);
        }
        _ => {}
    }
    numbers(dtype, Shape::from(dims), chance.below(3))
}

/// Ones, small numbers, or the extremes of the type.
fn numbers(dtype: DType, shape: Shape, kind: usize) -> Result<Tensor, TensorError> {
    let count = shape.checked_numel()?;
    if count.saturating_mul(dtype.size_of()) > MOST {
        return Err(TensorError::invalid("an input of more than 1 MiB is not made"));
    }
    let cycle =
        |values: &[f64]| -> Vec<f64> { values.iter().copied().cycle().take(count).collect() };
    let whole =
        |values: &[i64]| -> Vec<i64> { values.iter().copied().cycle().take(count).collect() };
    let float = matches!(
        dtype,
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 | DType::C64 | DType::C128 | DType::C32
    );
    let tensor = match (kind, float) {
        (0, _) => return Tensor::ones(dtype, shape),
        (1, true) => Tensor::from_vec(cycle(&[0.5, -1.25, 2.0, 0.0, 3.0, -0.75, 1.5]), shape)?,
        (1, false) => Tensor::from_vec(whole(&[0, 1, 2, 1, 0, 3, 5]), shape)?,
        (_, true) => {
            let extremes = [
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                -0.0,
                0.0,
                1e-45,
                1e-310,
                3.4e38,
                -3.4e38,
                1.0,
                -1.0,
                1e9,
                -1e9,
            ];
            Tensor::from_vec(cycle(&extremes), shape)?
        }
        (_, false) => Tensor::from_vec(
            whole(&[
                i64::MAX,
                i64::MIN,
                -1,
                0,
                1,
                255,
                256,
                -129,
                i64::from(i32::MIN),
                1 << 40,
                100,
            ]),
            shape,
        )?,
    };
    tensor.cast(dtype)
}

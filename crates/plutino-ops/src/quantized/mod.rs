//! Quantised operators, computed with numbers on the quantisation grid.
//!
//! PyTorch stores a quantised tensor as integers q that stand for (q - zero_point) x scale
//! (<https://pytorch.org/docs/stable/quantization.html>). Here it is an f32 tensor of those
//! numbers: every value lies on the [`Grid`] of the operator that made it. To quantise is to round
//! to the grid, to dequantise is to do nothing, and every operator of this crate computes with
//! quantised values as it does with any others; only those that choose a grid of their own, in this
//! folder, round.
//!
//! How exact that is:
//! - quantising, dequantising, and what moves, compares or clips at 0 (reshape, max pooling, ReLU)
//!   give PyTorch's results to the bit;
//! - what computes and rounds to a new grid (convolution, linear, add, mul) may be one step of that
//!   grid off where the exact result lies halfway between two steps, up to rounding errors of f32:
//!   PyTorch sums integers, and rounds the bias of a layer to the grid of its products;
//! - what PyTorch rounds without a grid in the file (averages, interpolations, the 6 of ReLU6,
//!   sigmoid, the number of `add_scalar`) is not rounded here: at most half a step of PyTorch's
//!   grid between them;
//! - NaN stays NaN, which PyTorch makes some integer.
//!
//! What pnnx leaves out of a file: the dtype of results, where it does not record dtypes of
//! operands, is quint8, the only one that PyTorch's quantised modules compute on CPUs; scales of
//! weights that were quantised per tensor are not in the file, which is an error.

mod fake;
mod functional;
mod layers;
mod quantize;

use crate::elementwise::{Elementwise, Formula, Lowering, Term};
use crate::support::several::chain;
use crate::{BuildError, FromParameter, NodeReader, Operator, ShapeError};
use plutino_ir::Parameter;
use plutino_kernels::elementwise::{Binary, Scalar, Unary};
use plutino_tensor::DType;

/// PyTorch's quantised dtypes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuantizedType {
    Quint8,
    Qint8,
    Qint32,
}

impl QuantizedType {
    /// The one that files write as this number: PyTorch's `ScalarType`.
    fn of_number(number: i64) -> Option<Self> {
        match number {
            12 => Some(Self::Qint8),
            13 => Some(Self::Quint8),
            14 => Some(Self::Qint32),
            _ => None,
        }
    }

    /// The one whose integers files record as this dtype.
    fn of_integers(dtype: DType) -> Option<Self> {
        match dtype {
            DType::U8 => Some(Self::Quint8),
            DType::I8 => Some(Self::Qint8),
            DType::I32 => Some(Self::Qint32),
            _ => None,
        }
    }

    /// The smallest and the largest integer.
    fn range(self) -> (i64, i64) {
        match self {
            Self::Quint8 => (0, 255),
            Self::Qint8 => (-128, 127),
            Self::Qint32 => (i32::MIN.into(), i32::MAX.into()),
        }
    }
}

impl FromParameter for QuantizedType {
    const EXPECTED: &'static str = "torch.quint8, torch.qint8 or torch.qint32";

    fn from_parameter(value: &Parameter) -> Option<Self> {
        match value.as_str() {
            Some("torch.quint8") => Some(Self::Quint8),
            Some("torch.qint8") => Some(Self::Qint8),
            Some("torch.qint32") => Some(Self::Qint32),
            Some(_) => None,
            None => Self::of_number(value.as_int()?),
        }
    }
}

/// What makes no grid.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
enum GridError {
    #[error("the scale must be {}, found {found}", Self::SCALE)]
    Scale { found: f64 },
    #[error("the zero point must be {}, found {found}", Self::zero_point(*dtype))]
    ZeroPoint { dtype: QuantizedType, found: i64 },
}

impl GridError {
    const SCALE: &str = "a positive number";

    fn zero_point(dtype: QuantizedType) -> String {
        let (min, max) = dtype.range();
        format!("an integer from {min} to {max} for {dtype:?}")
    }
}

/// The numbers that a quantised tensor can hold: multiples of `scale`, from `low` to `high` times.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Grid {
    scale: f32,
    low: f32,
    high: f32,
}

impl Grid {
    fn new(scale: f64, zero_point: i64, dtype: QuantizedType) -> Result<Self, GridError> {
        let (min, max) = dtype.range();
        let narrow = scale as f32;
        if !(narrow.is_normal() && narrow > 0.0) {
            return Err(GridError::Scale { found: scale });
        }
        if !(min..=max).contains(&zero_point) {
            return Err(GridError::ZeroPoint { dtype, found: zero_point });
        }
        let steps = |q: i64| (q - zero_point) as f32; // both fit 33 bits
        Ok(Self { scale: narrow, low: steps(min), high: steps(max) })
    }

    /// The grid of these two parameters. The dtype is the recorded one of the output, else `dtype`.
    fn read(
        r: &mut NodeReader<'_>,
        [scale, zero_point]: [&str; 2],
        dtype: QuantizedType,
    ) -> Result<Self, BuildError> {
        let dtype = r.recorded_dtype().and_then(QuantizedType::of_integers).unwrap_or(dtype);
        Self::new(r.required(scale)?, r.required(zero_point)?, dtype).map_err(|e| match e {
            GridError::Scale { .. } => r.bad(scale, GridError::SCALE),
            GridError::ZeroPoint { .. } => r.bad(zero_point, GridError::zero_point(dtype)),
        })
    }

    /// The closest number of the grid, halves to even integers: PyTorch multiplies by 1 / scale in
    /// f32, rounds, and adds the zero point.
    fn nearest(&self, f: &mut Lowering<'_>, x: Term) -> Result<Term, ShapeError> {
        let number = |x: f32| Term::Number(Scalar::Float(x.into()));
        let steps = f.binary(Binary::Mul, x, number(self.scale.recip()))?;
        let steps = f.unary(Unary::Round, steps)?;
        let steps = f.binary(Binary::Maximum, steps, number(self.low))?;
        let steps = f.binary(Binary::Minimum, steps, number(self.high))?;
        f.binary(Binary::Mul, steps, number(self.scale))
    }
}

/// Input `input`, rounded to a grid: the formula of all that quantises.
fn quantized(f: &mut Lowering<'_>, input: usize, grid: &Grid) -> Result<Term, ShapeError> {
    let x = f.input(input)?;
    if x.dtype() != DType::F32 {
        return Err(ShapeError::DType { input, expected: "f32".into(), found: x.dtype() });
    }
    grid.nearest(f, x)
}

/// Rounds a tensor to a grid.
#[derive(Debug)]
struct Quantize {
    input: usize,
    grid: Grid,
}

impl Formula for Quantize {
    fn name(&self) -> &str {
        "quantize"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        quantized(f, self.input, &self.grid)
    }
}

/// `operator`, its result rounded to the grid.
fn rounded(operator: Box<dyn Operator>, grid: Grid) -> Box<dyn Operator> {
    chain("quantized", operator, Elementwise::boxed(Quantize { input: 0, grid }))
}

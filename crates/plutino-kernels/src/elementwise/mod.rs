//! Elementwise functions of any number of tensors, with broadcasting, in every dtype.
//!
//! There is one engine for everything that computes each element of a result from the elements that
//! broadcasting pairs with it: activations, arithmetic, comparisons, `where`, conversions, and
//! whole expressions of them. A [`Builder`] takes the function as a graph of typed values and
//! yields a [`Program`]; a [`LoopNest`] holds how shapes are walked through; [`Program::run`]
//! computes.
//!
//! ```
//! use plutino_kernels::elementwise::{Binary, Builder, LoopNest, Scalar, Source};
//! use plutino_kernels::{Isa, Par};
//! use plutino_tensor::DType;
//!
//! // 2 a - b, in one pass over memory, with b broadcast along the rows
//! let mut f = Builder::new();
//! let (a, b) = (f.input(DType::F32), f.input(DType::F32));
//! let two = f.constant(Scalar::Float(2.0), DType::F32);
//! let twice = f.binary(Binary::Mul, a, two)?;
//! let difference = f.binary(Binary::Sub, twice, b)?;
//! let program = f.finish(difference);
//!
//! let nest = LoopNest::new(&[2, 3], &[&[2, 3], &[3]])?;
//! let (a, b) = ([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0f32, 0.0, -1.0]);
//! let mut y = [0.0f32; 6];
//! let mut scratch = vec![0; program.scratch_bytes(1)];
//! program.run(
//!     Isa::best(),
//!     &Par::serial(),
//!     &nest,
//!     &[Source::of(&a), Source::of(&b)],
//!     bytemuck::cast_slice_mut(&mut y),
//!     &mut scratch,
//! )?;
//! assert_eq!(y, [1.0, 4.0, 7.0, 7.0, 10.0, 13.0]);
//! # Ok::<(), plutino_kernels::elementwise::ElementwiseError>(())
//! ```
//!
//! Values are computed in f32 (for f32, f16, bf16, bool), f64, i64, i32 (the shorter integers, too)
//! or complex f64, and rounded or wrapped to their dtype after each function, as PyTorch does. f32
//! are vectors, whose functions have the error bounds of [`crate::math`]; the others are plain
//! loops over slices, which the compiler vectorises.

mod chunks;
mod lanes;
mod nest;
mod op;
mod program;
mod run;
mod steps;
#[cfg(test)]
mod tests;
mod vectors;

pub use nest::LoopNest;
pub use op::{Binary, Unary, complex_of, real_of};
pub use program::{Builder, Program, Scalar, Value};
pub use run::Source;

use plutino_tensor::{DType, Shape, TensorError};

/// What can be wrong with an elementwise program, or with the data it runs on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ElementwiseError {
    /// The function is not defined for this dtype.
    #[error("{function} is not defined for {dtype}")]
    Undefined {
        /// PyTorch's name of the function.
        function: &'static str,
        /// The dtype of its arguments.
        dtype: DType,
    },
    /// The arguments have different dtypes.
    #[error("{function} takes arguments of one dtype, not {left} and {right}")]
    Mixed {
        /// PyTorch's name of the function.
        function: &'static str,
        /// The dtype of one argument.
        left: DType,
        /// The dtype of the other.
        right: DType,
    },
    /// An input does not broadcast to the result.
    #[error("shape {from} does not broadcast to {to}")]
    Broadcast {
        /// Shape of the input.
        from: Shape,
        /// Shape of the result.
        to: Shape,
    },
    /// The number of inputs, or of bytes of one of them (or of the result, or of scratch memory),
    /// is not what the program and the loop nest ask for.
    #[error("{what}: {expected} expected, {found} given")]
    Size {
        /// What was counted.
        what: &'static str,
        /// The right number.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// An integer was divided by zero.
    #[error("an integer is divided by zero")]
    ZeroDivision,
    /// Shapes.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

//! Rows times a matrix, for anybody's slices: what linear layers, attention's projections, products
//! with known matrices and convolutions of single pixels are.

use super::pack::{Elements, PackedMatrix, Side, Strided, at_least, check_matrix};
use super::{
    Bf16Matrices, Bias, Compact, Gemm, MatrixUnit, Operand, PostOps, Product, Residual, Size,
    Target,
};
use plutino_cpu::activation::Activation;
use plutino_cpu::{PackKey, Par};
use plutino_tensor::{FloatSource, Floats, TensorError};

/// What [`LinearProduct`] refuses.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GemmError {
    /// A slice of another size than the plan's.
    #[error("{what} has {found} elements, and needs {expected}")]
    Length {
        /// Which one.
        what: &'static str,
        /// Elements found.
        found: usize,
        /// Elements needed.
        expected: usize,
    },
    /// Sizes whose product exceeds what can be addressed.
    #[error("the sizes of a matrix product overflow")]
    Overflow,
    /// A matrix that was packed for another size, side or machine, or not as the plan says.
    #[error("the matrix is not packed as planned")]
    Packed,
    /// A workspace that does not start at a multiple of 4 bytes.
    #[error("a workspace must start at a multiple of 4 bytes")]
    Misaligned,
    /// More threads than the product was planned for.
    #[error("{found} threads run a product that was planned for {planned}")]
    Threads {
        /// Threads of the plan.
        planned: usize,
        /// Threads of the run.
        found: usize,
    },
    /// A number of the matrix that narrow floats have none near to.
    #[error(
        "{value:e} is beyond the range of f16, which ends at 65504, or of int8 and nf4, which \
         have finite numbers alone; bf16 reaches as far as f32"
    )]
    Range {
        /// The number.
        value: f32,
    },
    /// Matrices that are to be bf16 where they cannot ([`LinearProduct::bf16_matrices`]), or
    /// something to be added to results that are bf16.
    #[error("the product does not have these matrices as bf16")]
    Bf16,
    /// The system refused memory for the packed matrix, or a source cannot be read.
    #[error(transparent)]
    Memory(#[from] TensorError),
}

/// `y = activation(x w + bias + residual)`, planned: `m` rows of `k` elements, to rows of `n`.
///
/// ```
/// use plutino_cpu::{Activation, Isa, Par};
/// use plutino_products::gemm::{LinearProduct, LinearArgs, Matrix, Target};
///
/// // 3 rows of 4 numbers times 4 x 2.
/// let relu = Some(Activation::Relu);
/// let product = LinearProduct::plan(Target::this(Isa::best()), 1, [3, 4, 2], true, relu)?;
/// let w = [1.0f32, -1.0, 0.5, 2.0, -0.25, 1.0, 0.0, -3.0];
/// let w = product.pack(&w[..], (2, 1), &Par::serial())?; // once, for many runs
///
/// let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
/// let mut y = [0.0; 6];
/// let mut workspace = vec![0u8; product.workspace() + 64];
/// let start = workspace.as_ptr().align_offset(64);
/// product.run(
///     LinearArgs {
///         x: &x,
///         w: Matrix::Packed(&w),
///         bias: Some(&[0.5, 1.0]),
///         residual: None,
///         y: &mut y,
///         stride: 2,
///         workspace: &mut workspace[start..],
///     },
///     &Par::serial(),
/// )?;
/// assert_eq!(y, [0.5, 0.0, 5.5, 0.0, 10.5, 0.0]);
/// # Ok::<_, plutino_products::gemm::GemmError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct LinearProduct {
    gemm: Gemm,
    threads: usize,
    packed: bool,
    narrow: Option<Compact>,
    activation: Option<Activation>,
}

/// The right operand.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    /// Of [`LinearProduct::pack`].
    Packed(&'a PackedMatrix),
    /// As it lies in memory: elements, and how far neighbours in a column and in a row lie apart.
    Strided(&'a [f32], (usize, usize)),
}

/// What [`LinearProduct::run`] reads and writes.
#[derive(Debug)]
pub struct LinearArgs<'a> {
    /// `m` rows of `k` elements, one after the other; as bf16, words of two
    /// ([`LinearProduct::with_bf16`]).
    pub x: &'a [f32],
    /// The right operand, packed or not as planned.
    pub w: Matrix<'a>,
    /// One number for each of the `n` columns.
    pub bias: Option<&'a [f32]>,
    /// Added before the activation; laid out as `y`, which is f32 then.
    pub residual: Option<&'a [f32]>,
    /// The results; as bf16, words of two.
    pub y: &'a mut [f32],
    /// Elements, or words, from one row of `y` to the next: those of a row at least.
    pub stride: usize,
    /// [`LinearProduct::workspace`] bytes; what they hold does not matter.
    pub workspace: &'a mut [u8],
}

impl LinearProduct {
    /// Plans `m` rows of `k` elements to `n` each, `[m, k, n]`; `packed` says whether the matrix
    /// comes packed.
    ///
    /// # Errors
    /// [`GemmError::Overflow`].
    pub fn plan(
        target: Target,
        threads: usize,
        [m, k, n]: [usize; 3],
        packed: bool,
        activation: Option<Activation>,
    ) -> Result<Self, GemmError> {
        let (size, threads) = (checked([m, k, n])?, threads.max(1));
        let gemm = Gemm::new(target, threads, size, (false, packed));
        Ok(Self { gemm, threads, packed, narrow: None, activation })
    }

    /// Plans a product with a matrix that is packed as narrow floats, or as integers with scales:
    /// half or a quarter of the memory, and less time where there is one row. The sums are those of
    /// f32 with the rounded matrix.
    ///
    /// # Errors
    /// [`GemmError::Overflow`].
    pub fn plan_narrow(
        target: Target,
        threads: usize,
        [m, k, n]: [usize; 3],
        narrow: impl Into<Compact>,
        activation: Option<Activation>,
    ) -> Result<Self, GemmError> {
        let (size, threads) = (checked([m, k, n])?, threads.max(1));
        let narrow = narrow.into();
        let gemm = Gemm::narrow(target, threads, size, narrow);
        Ok(Self { gemm, threads, packed: true, narrow: Some(narrow), activation })
    }

    /// Plans a product whose operands become bf16, and what multiplies them; sums are f32. The
    /// matrix is to be packed.
    ///
    /// # Errors
    /// [`GemmError::Overflow`].
    pub fn plan_on_unit(
        target: Target,
        threads: usize,
        [m, k, n]: [usize; 3],
        unit: MatrixUnit,
        activation: Option<Activation>,
    ) -> Result<Self, GemmError> {
        // A number may have three terms.
        let (size, threads) = (checked([m, k, n])?, threads.max(1));
        checked([m, k.checked_mul(3).ok_or(GemmError::Overflow)?, n])?;
        let gemm = Gemm::on_unit(target, threads, size, unit);
        Ok(Self { gemm, threads, packed: true, narrow: None, activation })
    }

    /// Which matrices can be bf16 in memory: where operands become such anyway, as one term, and
    /// rows have whole words.
    pub fn bf16_matrices(&self) -> Bf16Matrices {
        self.gemm.bf16_matrices()
    }

    /// The same product of matrices that are bf16 in memory: `x` is not rounded on the way in, and
    /// `y` on the way out, to the nearest. What is made of the same numbers has the same bits.
    ///
    /// # Errors
    /// [`GemmError::Bf16`].
    pub fn with_bf16(self, bf16: Bf16Matrices) -> Result<Self, GemmError> {
        let can = self.bf16_matrices();
        match bf16.x && !can.x || bf16.y && !can.y {
            true => Err(GemmError::Bf16),
            false => Ok(Self { gemm: self.gemm.with_bf16(bf16), ..self }),
        }
    }

    /// What multiplies bf16, where operands become such.
    pub fn unit(&self) -> Option<MatrixUnit> {
        self.gemm.unit()
    }

    /// `[m, k, n]`.
    pub fn sizes(&self) -> [usize; 3] {
        let Size { m, k, n, .. } = self.gemm.size();
        [m, k, n]
    }

    /// Elements, or words, of a row of results.
    pub fn row_of_results(&self) -> usize {
        let [_, _, n] = self.sizes();
        if self.gemm.bf16.y { n / 2 } else { n }
    }

    /// What the product is tuned for.
    pub fn target(&self) -> Target {
        self.gemm.target()
    }

    /// What decides the form of the packed matrix.
    pub fn pack_key(&self) -> PackKey {
        if let Some(unit) = self.unit() {
            return unit.key(self.gemm.target().isa);
        }
        let key = PackedMatrix::key(Side::Right, self.gemm.target().isa);
        PackKey { precision: self.narrow.map_or(key.precision, Compact::dtype), ..key }
    }

    /// What the matrix is packed as, where it is narrow.
    pub fn narrow(&self) -> Option<Compact> {
        self.narrow
    }

    /// Packs the matrix, whose neighbours in a column and in a row lie `strides` apart.
    ///
    /// # Errors
    /// [`GemmError::Length`], [`GemmError::Memory`], and [`GemmError::Range`] where the matrix is
    /// to be packed as f16, int8 or nf4.
    pub fn pack<'w>(
        &self,
        w: impl Into<Floats<'w>>,
        strides: (usize, usize),
        par: &Par,
    ) -> Result<PackedMatrix, GemmError> {
        self.pack_from(&mut w.into(), strides, par)
    }

    /// As [`LinearProduct::pack`], of numbers that are read while they are packed: some at a time,
    /// where columns lie one after the other.
    ///
    /// # Errors
    /// As there, and those of the source.
    pub fn pack_from(
        &self,
        w: &mut dyn FloatSource,
        strides: (usize, usize),
        par: &Par,
    ) -> Result<PackedMatrix, GemmError> {
        let [_, k, n] = self.sizes();
        let elements = match (self.narrow, self.unit()) {
            (Some(narrow), _) => Elements::Narrow(narrow),
            (None, Some(unit)) => Elements::Unit(unit),
            (None, None) => Elements::F32,
        };
        let on = (self.gemm.target(), Side::Right);
        PackedMatrix::from_source(on, w, (n, k), strides, elements, par)
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> usize {
        self.gemm.scratch(self.threads).saturating_mul(size_of::<f32>())
    }

    /// Computes.
    ///
    /// # Errors
    /// Every [`GemmError`] but that of memory.
    pub fn run(&self, args: LinearArgs<'_>, par: &Par) -> Result<(), GemmError> {
        let LinearArgs { x, w, bias, residual, y, stride, workspace } = args;
        let [m, k, n] = self.sizes();
        if par.threads() > self.threads {
            return Err(GemmError::Threads { planned: self.threads, found: par.threads() });
        }
        let bf16 = self.gemm.bf16;
        if bf16.y && residual.is_some() {
            return Err(GemmError::Bf16);
        }
        let (in_row, out_row) = (self.gemm.row_len(), self.row_of_results());
        at_least("x", x.len(), m * in_row)?;
        at_least("bias", bias.map_or(n, <[f32]>::len), n)?;
        at_least("stride", stride, out_row)?;
        let rows = m.saturating_sub(1).checked_mul(stride).and_then(|len| len.checked_add(out_row));
        let len = if m == 0 { 0 } else { rows.ok_or(GemmError::Overflow)? };
        at_least("y", y.len(), len)?;
        at_least("residual", residual.map_or(len, <[f32]>::len), len)?;
        let bytes = self.workspace();
        at_least("workspace", workspace.len(), bytes)?;
        let scratch = match bytes {
            0 => &mut [], // nothing is aligned anyhow
            _ => bytemuck::try_cast_slice_mut(&mut workspace[..bytes])
                .map_err(|_| GemmError::Misaligned)?,
        };
        let b = match w {
            Matrix::Packed(matrix)
                if self.packed
                    && matrix.is_narrow() == self.narrow
                    && matrix.unit() == self.unit()
                    && matrix.matches(self.gemm.target(), Side::Right, n, self.gemm.terms()) =>
            {
                Operand::Packed(matrix)
            }
            Matrix::Strided(w, strides) if !self.packed => {
                check_matrix(w.len(), (k, n), strides)?;
                Operand::Source(Strided::right(w, (k, n), strides))
            }
            _ => return Err(GemmError::Packed),
        };
        let post_ops = PostOps {
            bias: bias.map_or(Bias::None, Bias::Cols),
            residual: residual.map_or(Residual::None, Residual::Other),
            activation: self.activation,
        };
        let a = Operand::Source(Strided::left(x, (m, in_row), (in_row, 1)));
        self.gemm.run(par, &Product { a, b, post_ops }, y, stride, scratch);
        Ok(())
    }
}

/// The size of a product, if its matrices can be addressed.
fn checked([m, k, n]: [usize; 3]) -> Result<Size, GemmError> {
    let fits = |sizes: [usize; 2]| {
        sizes[0].checked_mul(sizes[1]).is_some_and(|n| n <= isize::MAX as usize / 8)
    };
    match [[m, k], [k, n], [m, n]].into_iter().all(fits) {
        true => Ok(Size { batch: 1, m, n, k }),
        false => Err(GemmError::Overflow),
    }
}

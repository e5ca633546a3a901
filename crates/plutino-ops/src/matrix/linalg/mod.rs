//! Linear algebra of matrices and batches of them: inverses, determinants, systems of equations,
//! factorisations.
//!
//! <https://pytorch.org/docs/stable/linalg.html>. Every function computes in f64, matrix by matrix,
//! for f32 and f64; signs follow LAPACK where PyTorch's documentation leaves no choice. Vectors of
//! eigen and singular value decompositions are determined up to a sign (complex ones up to a factor
//! of absolute value 1, and all up to a rotation where values are equal), there as here.

mod eigen;
mod single;
mod systems;
#[cfg(test)]
mod tests;

use crate::support::assemble::leaf;
use crate::{
    BuildError, Cost, Kernel, Operator, PlanCx, PlanError, Planned, RunCx, RunError, ShapeError,
    TensorValue, ValueSpec,
};
use plutino_kernels::elementwise::real_of;
use plutino_kernels::linalg::{LinalgError, Matrix};
use plutino_tensor::stop;
use plutino_tensor::{Convert, DType, Shape, Tensor, alloc, for_dtype};
use std::fmt::Debug;

/// Rows and columns of the matrices of one argument.
type Size = (usize, usize);

/// What a function has as a result.
#[derive(Debug, Clone)]
enum Own {
    /// For each matrix this: dtype, and dimensions without those of the batch. Complex numbers are
    /// computed as real parts each followed by its imaginary one.
    Each(DType, Vec<usize>),
    /// A vector without elements, whatever the batch.
    Nothing(DType),
    /// As [`Own::Each`] where something is computed for every matrix, else [`Own::Nothing`].
    EachOrNothing(DType, Vec<usize>),
}

impl Own {
    fn dtype(&self) -> DType {
        let (Self::Each(dtype, _) | Self::Nothing(dtype) | Self::EachOrNothing(dtype, _)) = self;
        *dtype
    }

    /// The shape for this batch, where there is something for each matrix.
    fn shape(&self, batch: &Shape) -> Shape {
        match self {
            Self::Each(_, own) | Self::EachOrNothing(_, own) => {
                batch.iter().chain(own).copied().collect()
            }
            Self::Nothing(_) => [0].into(),
        }
    }
}

/// What is wrong with a matrix.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Linalg(#[from] LinalgError),
    #[error("is singular: it has no inverse")]
    NoInverse,
    #[error("is singular: the system has no unique solution")]
    NoSolution,
    #[error("of another argument")]
    Arguments,
}

/// A function of matrices; what is batched, broadcast and converted around it is the same for all.
trait OfMatrices: Debug + Clone + Send + Sync + 'static {
    /// PyTorch's name, shown as the kernel's.
    fn name(&self) -> &'static str;

    /// What there is for matrices of these sizes; `dtype` is theirs.
    ///
    /// # Errors
    /// Where PyTorch would refuse the sizes.
    fn results(&self, sizes: &[Size], dtype: DType) -> Result<Vec<Own>, ShapeError>;

    /// The elements of each result, row by row.
    ///
    /// # Errors
    /// What is wrong with the values.
    fn compute(&self, matrices: Vec<Matrix>, eps: f64) -> Result<Vec<Vec<f64>>, Refused>;

    /// Elements that [`OfMatrices::compute`] has at one time, at most: the matrices it is given,
    /// what it makes of them, and its results. See [`elements`].
    fn work(&self, sizes: &[Size]) -> usize;

    /// As [`Operator::refuses_data`].
    fn refuses_data(&self) -> bool {
        false
    }
}

/// Elements of so many matrices of so many rows and columns.
fn elements(matrices: &[(usize, usize, usize)]) -> usize {
    let each =
        matrices.iter().map(|(n, rows, columns)| rows.saturating_mul(*columns).saturating_mul(*n));
    each.fold(0, usize::saturating_add)
}

/// Makes an operator of a function of matrices.
#[derive(Debug)]
struct Batched<F> {
    /// The arguments: inputs of the node.
    inputs: Vec<usize>,
    /// Whether the last argument may be a vector, as the right side of a system of equations may.
    vector: bool,
    function: F,
}

impl<F: OfMatrices> Batched<F> {
    /// As builders return it.
    fn boxed(inputs: Vec<usize>, function: F) -> Result<Box<dyn Operator>, BuildError> {
        Ok(Box::new(Self { inputs, vector: false, function }))
    }
}

/// An operator bound to shapes.
struct Bound {
    dtype: DType,
    batch: Shape,
    /// For each argument its matrices and their batch.
    sizes: Vec<(Size, Shape)>,
    results: Vec<Own>,
}

impl<F: OfMatrices> Batched<F> {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Bound, ShapeError> {
        let mut tensors = Vec::with_capacity(self.inputs.len());
        for &input in &self.inputs {
            let x = TensorValue::at(inputs, input)?;
            if !matches!(x.dtype(), DType::F32 | DType::F64) {
                let (expected, found) = ("f32 or f64".into(), x.dtype());
                return Err(ShapeError::DType { input, expected, found });
            }
            tensors.push((input, x));
        }
        let Some((&(first, a), others)) = tensors.split_first() else {
            return Err(ShapeError::Invalid("a tensor of matrices is needed".into()));
        };
        let others = others.iter().map(|(input, x)| (*input, x.dtype()));
        let dtype = crate::support::assemble::same_dtype((first, a.dtype()), others)?;
        let vector = self.vector && tensors.get(1).is_some_and(|(_, b)| is_vector(a, b));
        let (mut batch, mut sizes) = (Shape::scalar(), Vec::with_capacity(tensors.len()));
        for (i, (input, x)) in tensors.iter().enumerate() {
            let mut shape = x.shape().clone();
            if vector && i > 0 {
                shape.push(1);
            }
            let &[ref outer @ .., rows, columns] = shape.dims() else {
                let (expected, found) = ("at least 2".into(), x.shape().clone());
                return Err(ShapeError::Rank { input: *input, expected, found });
            };
            let outer = Shape::from(outer);
            batch = batch.broadcast(&outer)?;
            sizes.push(((rows, columns), outer));
        }
        let own: Vec<Size> = sizes.iter().map(|(size, _)| *size).collect();
        let mut results = self.function.results(&own, dtype)?;
        if let (true, Some(Own::Each(_, solution))) = (vector, results.first_mut()) {
            solution.pop();
        }
        for own in &results {
            own.shape(&batch).checked_numel()?;
        }
        Ok(Bound { dtype, batch, sizes, results })
    }
}

/// Whether PyTorch takes `b` for a vector for each matrix of `a`.
fn is_vector(a: &TensorValue, b: &TensorValue) -> bool {
    let rows = a.shape().len().checked_sub(1).and_then(|n| a.shape().get(..n));
    b.shape().rank() == 1 || rows == Some(b.shape().dims())
}

impl<F: OfMatrices> Operator for Batched<F> {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let bound = self.bind(inputs)?;
        let output = |own: &Own| match own {
            Own::EachOrNothing(dtype, _) => ValueSpec::Dynamic { dtype: *dtype },
            own => ValueSpec::tensor(own.dtype(), own.shape(&bound.batch)),
        };
        Ok(bound.results.iter().map(output).collect())
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let bound = self.bind(cx.inputs)?;
        let count = bound.batch.checked_numel()?;
        let args = self.inputs.iter().zip(&bound.sizes).map(|(&input, (size, outer))| Arg {
            leaf: leaf(cx.inputs, input),
            size: *size,
            outer: outer.clone(),
        });
        let (name, function) = (self.function.name(), self.function.clone());
        let sizes: Vec<Size> = bound.sizes.iter().map(|(size, _)| *size).collect();
        // Beyond that, what is smaller than f32 tells from zero.
        let eps = if bound.dtype == DType::F32 { f32::EPSILON.into() } else { f64::EPSILON };
        Ok(Planned::new(MatrixKernel {
            name,
            args: args.collect(),
            batch: bound.batch.clone(),
            count,
            eps,
            results: bound.results,
            work: function.work(&sizes).saturating_mul(size_of::<f64>()),
            compute: Box::new(move |matrices, eps| function.compute(matrices, eps)),
        }))
    }

    fn refuses_data(&self) -> bool {
        self.function.refuses_data()
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.bind(inputs).map_or(0, |bound| {
            let size = bound.sizes.first().map_or((0, 0), |(size, _)| *size);
            let [n, m] = [size.0, size.1].map(|n| n as u64);
            let each = n.saturating_mul(m).saturating_mul(n.max(m));
            each.saturating_mul(bound.batch.numel() as u64)
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

/// An argument of the kernel.
struct Arg {
    leaf: usize,
    size: Size,
    /// The dimensions of its own batch.
    outer: Shape,
}

/// A function of matrices, as kernels call it.
type Compute = Box<dyn Fn(Vec<Matrix>, f64) -> Result<Vec<Vec<f64>>, Refused> + Send + Sync>;

struct MatrixKernel {
    name: &'static str,
    args: Vec<Arg>,
    batch: Shape,
    count: usize,
    eps: f64,
    results: Vec<Own>,
    /// Bytes that a matrix takes while it is computed.
    work: usize,
    compute: Compute,
}

impl MatrixKernel {
    /// Which matrix of an argument stands at this place of the batch.
    fn place(&self, arg: &Arg, mut at: usize) -> usize {
        let strides = arg.outer.dense_strides();
        let mut own = arg.outer.iter().zip(&strides).rev();
        let mut place = 0;
        for &size in self.batch.iter().rev() {
            if let Some((&dim, stride)) = own.next()
                && dim > 1
            {
                place += at % size.max(1) * stride.unsigned_abs();
            }
            at /= size.max(1);
        }
        place
    }

    /// The matrix of an argument at this place of the batch.
    fn matrix(&self, cx: &RunCx<'_>, arg: &Arg, at: usize) -> Result<Matrix, RunError> {
        let (rows, columns) = arg.size;
        let outside = || RunError::Internal("a matrix lies outside its batch".into());
        let len = rows.saturating_mul(columns);
        if len == 0 && rows.max(columns) > MOST_OF_NOTHING {
            let what = format!("{rows} x {columns}: a matrix without elements is too long");
            return Err(RunError::Value { input: arg.leaf, what });
        }
        let start = self.place(arg, at).saturating_mul(len);
        let of = start..start.saturating_add(len);
        Ok(match cx.inputs.spec(arg.leaf)?.dtype {
            DType::F64 => {
                let own = cx.inputs.get::<f64>(arg.leaf)?.get(of).ok_or_else(outside)?;
                Matrix::from_row_slice(rows, columns, own)
            }
            _ => {
                let own = cx.inputs.get::<f32>(arg.leaf)?.get(of).ok_or_else(outside)?;
                Matrix::from_row_iterator(rows, columns, own.iter().map(|&x| f64::from(x)))
            }
        })
    }
}

/// Rows or columns of a matrix without elements: no memory bounds them, and nalgebra walks along
/// them.
const MOST_OF_NOTHING: usize = 1 << 20;

impl Kernel for MatrixKernel {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let mut outputs = Vec::with_capacity(self.results.len());
        for (i, own) in self.results.iter().enumerate() {
            outputs.push(match own {
                Own::EachOrNothing(..) => Filled::Open(Vec::new()),
                _ => Filled::Fixed(cx.outputs.take_bytes(i)?.1),
            });
        }
        if self.count > 0 {
            alloc::probe(self.work)?; // one matrix after the other has that
        }
        for at in 0..self.count {
            stop::check()?;
            let matrices = self.args.iter().map(|arg| self.matrix(cx, arg, at));
            let results = (self.compute)(matrices.collect::<Result<_, _>>()?, self.eps);
            let results = results.map_err(|what| {
                let input = self.args.first().map_or(0, |arg| arg.leaf);
                RunError::Value { input, what: format!("matrix {at} {what}") }
            })?;
            for (output, (own, elements)) in
                outputs.iter_mut().zip(self.results.iter().zip(results))
            {
                let wrong = || RunError::Internal(format!("{} of another size", self.name));
                match (output, own) {
                    (Filled::Open(all), _) => all.push(elements),
                    (Filled::Fixed(bytes), Own::Each(dtype, dims)) => {
                        let len = dims.iter().product::<usize>() * dtype.size_of();
                        let part = bytes.get_mut(at * len..(at + 1) * len).ok_or_else(wrong)?;
                        write(*dtype, part, &elements).ok_or_else(wrong)?;
                    }
                    _ => {}
                }
            }
        }
        for (i, (output, own)) in outputs.into_iter().zip(&self.results).enumerate() {
            let Filled::Open(all) = output else { continue };
            // Each has the size that it has to have, or none.
            let every = all.iter().all(|elements| !elements.is_empty());
            let shape = if every { own.shape(&self.batch) } else { [0].into() };
            let mut tensor = Tensor::zeros(own.dtype(), shape)?;
            if every {
                let wrong = || RunError::Internal(format!("{} of another size", self.name));
                let elements = alloc::grow(all.into_iter().flatten())?;
                write(own.dtype(), tensor.as_mut_bytes()?, &elements).ok_or_else(wrong)?;
            }
            cx.outputs.emit(i, tensor)?;
        }
        Ok(())
    }
}

/// Where a result goes.
enum Filled<'a> {
    Fixed(&'a mut [u8]),
    /// Its shape depends on what is computed for all matrices.
    Open(Vec<Vec<f64>>),
}

/// Writes numbers as elements of a dtype; none where there are too many or too few.
fn write(dtype: DType, bytes: &mut [u8], elements: &[f64]) -> Option<()> {
    let dtype = real_of(dtype); // parts of a complex number stand side by side
    let unit = dtype.size_of();
    if elements.len().checked_mul(unit) != Some(bytes.len()) {
        return None;
    }
    for_dtype!(dtype, T => {
        for (to, &x) in bytes.chunks_exact_mut(unit).zip(elements) {
            to.copy_from_slice(bytemuck::bytes_of(&T::convert_from(x)));
        }
    });
    Some(())
}

//! The steps of an einsum, and their kernel.

use crate::support::assemble;
use crate::support::rearrange::Geometry;
use crate::{Inputs, Kernel, PlanCx, PlanError, Planned, RunCx, RunError};
use plutino_kernels::copy::{Side, StridedCopy};
use plutino_kernels::gemm::{AnyMatrix, Batch, Gemm, PostOps, Size, Target, gemm_any};
use plutino_kernels::number::Number;
use plutino_kernels::reduce::{Fold, Reduction, reduce_f32, sum};
use plutino_kernels::{Isa, Par};
use plutino_tensor::{Complex, DType, Element, bf16, f16};
use std::ops::Range;

/// Where a tensor lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Buffer {
    /// An input leaf.
    Leaf(usize),
    /// Elements of the scratch memory.
    Scratch(Range<usize>),
    /// The output.
    Output,
}

/// One step. What it writes lies behind all that it reads.
#[derive(Debug)]
pub(super) enum Step {
    /// A dense copy of elements.
    Copy { from: Buffer, geometry: Geometry, to: Buffer },
    /// The sums of rows.
    Sum { from: Buffer, offset: usize, rows: usize, row: usize, to: Buffer },
    /// Products of matrices with these distances of rows and columns.
    Product {
        size: Size,
        a: (Buffer, (usize, usize)),
        b: (Buffer, (usize, usize)),
        offsets: Vec<(usize, usize)>,
        to: Buffer,
    },
}

impl Step {
    /// Where it writes.
    pub(super) fn to(&mut self) -> &mut Buffer {
        match self {
            Self::Copy { to, .. } | Self::Sum { to, .. } | Self::Product { to, .. } => to,
        }
    }

    pub(super) fn flops(&self) -> u64 {
        let all = |sizes: &[usize]| sizes.iter().fold(1u64, |n, &s| n.saturating_mul(s as u64));
        match self {
            Self::Copy { .. } => 0,
            Self::Sum { rows, row, .. } => all(&[*rows, *row]),
            Self::Product { size, .. } => all(&[2, size.batch, size.m, size.n, size.k]),
        }
    }
}

/// What a step runs.
enum Work {
    Copy(Buffer, StridedCopy),
    /// From this element on.
    Sum(Buffer, usize, Fold),
    Product(Matrices),
}

/// See [`Step::Product`].
struct Matrices {
    size: Size,
    a: (Buffer, (usize, usize)),
    b: (Buffer, (usize, usize)),
    offsets: Vec<(usize, usize)>,
    /// For f32.
    gemm: Option<Gemm>,
}

/// The kernel.
pub(super) struct Einsum {
    name: String,
    dtype: DType,
    isa: Isa,
    /// What is run, and where it writes.
    steps: Vec<(Work, Buffer)>,
    /// Elements of the intermediate results; what follows is the products' own.
    scratch: usize,
}

impl Einsum {
    pub(super) fn plan(
        cx: &PlanCx<'_>,
        dtype: DType,
        steps: Vec<Step>,
        scratch: usize,
    ) -> Result<Planned, PlanError> {
        let mut own = 0;
        let mut bound = Vec::with_capacity(steps.len());
        for step in steps {
            bound.push(match step {
                Step::Copy { from, geometry, to } => {
                    let src = Side { offset: geometry.offset, strides: &geometry.strides };
                    let copy = StridedCopy::to_dense(dtype.size_of(), &geometry.shape, src);
                    let copy = copy.map_err(|e| PlanError::Unsupported(e.to_string()))?;
                    (Work::Copy(from, copy), to)
                }
                Step::Sum { from, offset, rows, row, to } => {
                    (Work::Sum(from, offset, Fold::new(&[rows, row], |d| d == 1)), to)
                }
                Step::Product { size, a, b, offsets, to } => {
                    let gemm = (dtype == DType::F32)
                        .then(|| Gemm::new(Target::this(cx.isa), cx.threads, size, (false, false)));
                    own = own.max(gemm.as_ref().map_or(0, |g| g.scratch(cx.threads)));
                    (Work::Product(Matrices { size, a, b, offsets, gemm }), to)
                }
            });
        }
        let bytes = scratch.saturating_add(own).saturating_mul(dtype.size_of());
        let name = format!("einsum.{}", cx.isa);
        Ok(Planned::new(Self { name, dtype, isa: cx.isa, steps: bound, scratch })
            .with_scratch(bytes))
    }

    fn run_typed<T: Number + bytemuck::Pod>(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let memory = cx.take_scratch::<T>()?;
        let short = || RunError::Internal("scratch memory of an einsum".into());
        let (memory, own) = memory.split_at_mut_checked(self.scratch).ok_or_else(short)?;
        let output = cx.outputs.take::<T>(0)?;
        for (work, to) in &self.steps {
            let (before, to) = match to {
                Buffer::Scratch(range) => {
                    let (before, rest) =
                        memory.split_at_mut_checked(range.start).ok_or_else(short)?;
                    (before, rest.get_mut(..range.len()).ok_or_else(short)?)
                }
                _ => (&mut *memory, &mut *output),
            };
            work.run(self.isa, cx.par, &cx.inputs, before, to, own)?;
        }
        Ok(())
    }
}

/// The elements of a buffer that is read.
fn source<'s, 'i: 's, T: Element>(
    buffer: &Buffer,
    inputs: &Inputs<'i>,
    scratch: &'s [T],
) -> Result<&'s [T], RunError> {
    let none = || RunError::Internal("an einsum reads what is not there".into());
    match buffer {
        Buffer::Leaf(leaf) => inputs.get(*leaf),
        Buffer::Scratch(range) => scratch.get(range.clone()).ok_or_else(none),
        Buffer::Output => Err(none()),
    }
}

impl Work {
    fn run<T: Number + bytemuck::Pod>(
        &self,
        isa: Isa,
        par: &Par,
        inputs: &Inputs<'_>,
        scratch: &[T],
        to: &mut [T],
        own: &mut [T],
    ) -> Result<(), RunError> {
        match self {
            Self::Copy(from, copy) => {
                let from = source(from, inputs, scratch)?;
                let (from, to) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
                copy.run(par, from, to).map_err(assemble::internal)?;
            }
            Self::Sum(from, offset, fold) => {
                let from = source(from, inputs, scratch)?;
                let from = from.get(*offset..).and_then(|x| x.get(..fold.inputs()));
                let from = from.ok_or_else(|| RunError::Internal("rows of an einsum".into()))?;
                match (same(from), same_mut(to)) {
                    (Some(from), Some(to)) => reduce_f32(isa, par, fold, Reduction::Sum, from, to),
                    (_, _) => sum(par, fold, 1, from, to),
                }
            }
            Self::Product(Matrices { size, a, b, offsets, gemm }) => {
                let (at_a, at_b) = (source(&a.0, inputs, scratch)?, source(&b.0, inputs, scratch)?);
                if let (Some(gemm), Some(x), Some(y)) = (gemm, same(at_a), same(at_b))
                    && let Some(own) = same_mut(own)
                    && let Some(to) = same_mut(to)
                {
                    let (a, b) = ((x, a.1), (y, b.1));
                    let post_ops = PostOps::default();
                    let batch = Batch { size: *size, a, b, offsets, scale: 1.0, post_ops };
                    gemm.run_batch(par, &batch, to, size.n, own);
                    return Ok(());
                }
                let (m, n, k) = (size.m, size.n, size.k);
                for (to, &(x, y)) in to.chunks_exact_mut((m * n).max(1)).zip(offsets) {
                    let left = AnyMatrix { data: at_a.get(x..).unwrap_or_default(), strides: a.1 };
                    let right = AnyMatrix { data: at_b.get(y..).unwrap_or_default(), strides: b.1 };
                    gemm_any(isa, par, (m, n, k), left, right, &|_, sum| T::narrow(sum), to);
                }
            }
        }
        Ok(())
    }
}

/// The slice as f32, where it is one.
fn same<T: 'static + bytemuck::Pod>(x: &[T]) -> Option<&[f32]> {
    is_f32::<T>().then(|| bytemuck::cast_slice(x))
}

/// As [`same`].
fn same_mut<T: 'static + bytemuck::Pod>(x: &mut [T]) -> Option<&mut [f32]> {
    is_f32::<T>().then(|| bytemuck::cast_slice_mut(x))
}

fn is_f32<T: 'static>() -> bool {
    std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>()
}

impl Kernel for Einsum {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        match self.dtype {
            DType::F32 => self.run_typed::<f32>(cx),
            DType::F64 => self.run_typed::<f64>(cx),
            DType::F16 => self.run_typed::<f16>(cx),
            DType::Bf16 => self.run_typed::<bf16>(cx),
            DType::I64 => self.run_typed::<i64>(cx),
            DType::C32 => self.run_typed::<Complex<f16>>(cx),
            DType::C64 => self.run_typed::<Complex<f32>>(cx),
            DType::C128 => self.run_typed::<Complex<f64>>(cx),
            other => Err(RunError::Internal(format!("an einsum of {other}"))),
        }
    }
}

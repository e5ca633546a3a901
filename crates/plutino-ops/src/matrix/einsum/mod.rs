//! Sums of products in Einstein's notation: `torch.einsum`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.einsum.html>. Operands are taken from left to
//! right, two at a time, as PyTorch does without a path of its own:
//!
//! - a label twice in one operand is its diagonal: a stride;
//! - what only one of the two has, and nobody needs any more, is summed up beforehand;
//! - what is left is a batch of matrix products: labels that both have and that are needed count
//!   the products, labels that both have and nobody needs are the depth, the others are rows and
//!   columns.
//!
//! A matrix is multiplied where it lies, whatever its strides, if its rows and its columns are
//! evenly spaced; else it is copied first.
//!
//! Integers are i64 only: PyTorch adds up smaller ones to i64 in some equations and to their own
//! dtype in others.

mod equation;
mod kernel;
#[cfg(test)]
mod tests;

use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::{Geometry, invalid};
use crate::{
    BuildError, Cost, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue,
    ValueSpec, register_op,
};
use equation::{Equation, Label};
use kernel::{Buffer, Einsum, Step};
use plutino_tensor::{DType, Shape, TensorError, alloc};

#[derive(Debug)]
struct EinsumOp {
    equation: Equation,
    inputs: Vec<usize>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let text: String = r.required("equation")?;
    let equation = Equation::parse(&text).map_err(|why| r.bad("equation", why))?;
    let inputs = r.rest();
    let recorded = inputs.iter().map(|&at| r.recorded_input(at)).collect::<Option<Vec<_>>>();
    let whole = recorded.and_then(|recorded| equation.restored(&recorded, r.recorded_output(0)?));
    Ok(Box::new(EinsumOp { equation: whole.unwrap_or(equation), inputs }))
}
register_op!(build => "torch.einsum");

/// A tensor on its way: where it lies, and the label of each dimension.
#[derive(Debug, Clone)]
struct Operand {
    buffer: Buffer,
    labels: Vec<Label>,
    geometry: Geometry,
}

impl Operand {
    fn has(&self, label: Label) -> bool {
        self.labels.contains(&label)
    }

    /// The dimensions with these labels (those it lacks are left out), in this order.
    fn part(&self, labels: &[Label]) -> Geometry {
        let at = |l: &Label| self.labels.iter().position(|own| own == l);
        self.geometry.permute(&labels.iter().filter_map(at).collect::<Vec<_>>())
    }

    /// Its own labels out of these, in their order.
    fn own(&self, labels: &[Label]) -> Vec<Label> {
        labels.iter().copied().filter(|&l| self.has(l)).collect()
    }
}

/// What a node computes for given shapes.
struct Program {
    dtype: DType,
    shape: Shape,
    steps: Vec<Step>,
    /// Elements of the intermediate results, one after the other.
    scratch: usize,
}

impl EinsumOp {
    /// Operands with their labels: those of size 1 are dropped where another operand has more,
    /// diagonals taken.
    fn operands(&self, inputs: &[ValueSpec]) -> Result<(DType, Vec<Operand>, Sizes), ShapeError> {
        let mut tensors = Vec::new();
        for &input in &self.inputs {
            let first = leaf(inputs, input);
            let items = match inputs.get(input) {
                Some(ValueSpec::List(items)) => &items[..],
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            for i in 0..items.len() {
                tensors.push((first + i, TensorValue::at(items, i)?));
            }
        }
        let Some((_, first)) = tensors.first() else {
            return Err(invalid("einsum needs a tensor"));
        };
        let dtype = first.dtype();
        if dtype == DType::Bool || (dtype.is_integer() && dtype != DType::I64) {
            return Err(invalid(format!("einsum of {dtype}: it must be a float, complex or i64")));
        }
        if let Some((_, other)) = tensors.iter().find(|(_, t)| t.dtype() != dtype) {
            return Err(invalid(format!(
                "einsum of {dtype} and {}: they must agree",
                other.dtype()
            )));
        }
        let shapes: Vec<&Shape> = tensors.iter().map(|(_, t)| t.shape()).collect();
        let labels = self.equation.bind(&shapes).map_err(invalid)?;
        let mut sizes = Sizes::default();
        for (shape, labels) in shapes.iter().zip(&labels) {
            for (d, (&label, &size)) in labels.iter().zip(shape.iter()).enumerate() {
                sizes.meet(label, size)?;
                let before = labels[..d].iter().position(|&l| l == label);
                if before.is_some_and(|b| shape[b] != size) {
                    return Err(invalid(format!("label {label} has two sizes in {shape}")));
                }
            }
        }
        let mut operands = Vec::with_capacity(tensors.len());
        for ((leaf, t), labels) in tensors.iter().zip(labels) {
            let mut operand = Operand {
                buffer: Buffer::Leaf(*leaf),
                labels: Vec::new(),
                geometry: Geometry {
                    shape: Shape::scalar(),
                    strides: Default::default(),
                    offset: 0,
                },
            };
            let strides = t.shape().dense_strides();
            for ((&size, &stride), &label) in t.shape().iter().zip(&strides).zip(&labels) {
                let whole = sizes.of(label);
                let twice = operand.labels.iter().position(|&own| own == label);
                match twice {
                    Some(_) if size == 1 && whole != 1 => {}
                    Some(d) => operand.geometry.strides[d] += stride,
                    None if size == 1 && whole != 1 => {}
                    None => {
                        operand.labels.push(label);
                        operand.geometry.shape.push(size);
                        operand.geometry.strides.push(stride);
                    }
                }
            }
            operands.push(operand);
        }
        Ok((dtype, operands, sizes))
    }

    fn program(&self, inputs: &[ValueSpec]) -> Result<Program, ShapeError> {
        let (dtype, operands, sizes) = self.operands(inputs)?;
        let output = self.equation.output(sizes.ellipsis());
        let shape: Shape = output.iter().map(|&l| sizes.of(l)).collect();
        shape.checked_numel()?;
        let mut program = Program { dtype, shape, steps: Vec::new(), scratch: 0 };
        let mut rest = operands.into_iter();
        let Some(mut left) = rest.next() else { return Err(invalid("einsum needs a tensor")) };
        let mut later: Vec<Operand> = rest.collect();
        later.reverse();
        while let Some(mut right) = later.pop() {
            let needed = |l: Label| output.contains(&l) || later.iter().any(|o| o.has(l));
            left = program.sum(left, |l| needed(l) || right.has(l))?;
            right = program.sum(right, |l| needed(l) || left.has(l))?;
            left = program.product(left, right, needed)?;
        }
        left = program.sum(left, |l| output.contains(&l))?;
        program.store(left.buffer.clone(), left.part(&output));
        Ok(program)
    }
}

/// The size of each label: that of the dimensions it names, or 1 for those.
#[derive(Debug, Default)]
struct Sizes(Vec<(Label, usize)>);

impl Sizes {
    /// The number of dimensions that `...` stands for.
    fn ellipsis(&self) -> usize {
        self.0.iter().filter(|(l, _)| matches!(l, Label::Ellipsis(_))).count()
    }

    fn of(&self, label: Label) -> usize {
        self.0.iter().find(|(l, _)| *l == label).map_or(1, |(_, size)| *size)
    }

    fn meet(&mut self, label: Label, size: usize) -> Result<(), ShapeError> {
        match self.0.iter_mut().find(|(l, _)| *l == label) {
            None => self.0.push((label, size)),
            Some((_, so_far)) if *so_far == 1 => *so_far = size,
            Some((_, so_far)) if size == 1 || *so_far == size => {}
            Some((_, so_far)) => {
                return Err(invalid(format!("label {label} has sizes {so_far} and {size}")));
            }
        }
        Ok(())
    }
}

impl Program {
    /// Memory for a dense intermediate result with these labels.
    fn place(&mut self, labels: Vec<Label>, shape: Shape) -> Result<Operand, ShapeError> {
        let (start, len) = (self.scratch, shape.checked_numel()?);
        // Whole cache lines, whatever the dtype.
        let end = start.checked_add(len).and_then(|end| end.checked_next_multiple_of(64));
        self.scratch =
            end.ok_or_else(|| invalid("an intermediate result of einsum is too large"))?;
        // In bytes of the largest dtype, too.
        Shape::from([self.scratch, 16]).checked_numel()?;
        let geometry = Geometry::dense(&shape);
        Ok(Operand { buffer: Buffer::Scratch(start..start + len), labels, geometry })
    }

    /// Writes the result: the last step does so itself, where it makes nothing else.
    fn store(&mut self, from: Buffer, geometry: Geometry) {
        if let Some(last) = self.steps.last_mut()
            && geometry.is_contiguous()
            && *last.to() == from
        {
            *last.to() = Buffer::Output;
            return;
        }
        self.steps.push(Step::Copy { from, geometry, to: Buffer::Output });
    }

    /// Sums up what is not needed.
    fn sum(&mut self, x: Operand, needed: impl Fn(Label) -> bool) -> Result<Operand, ShapeError> {
        let (kept, gone): (Vec<Label>, Vec<Label>) = x.labels.iter().partition(|l| needed(**l));
        if gone.is_empty() {
            return Ok(x);
        }
        let order = [&kept[..], &gone].concat();
        let x = self.dense(x, &order)?;
        let (kept_shape, gone_shape) = (x.part(&kept).shape, x.part(&gone).shape);
        let y = self.place(kept, kept_shape.clone())?;
        self.steps.push(Step::Sum {
            from: x.buffer.clone(),
            offset: x.geometry.offset,
            rows: kept_shape.numel(),
            row: gone_shape.numel(),
            to: y.buffer.clone(),
        });
        Ok(y)
    }

    /// The operand with dimensions in this order, without gaps: copied, where it is not so.
    fn dense(&mut self, x: Operand, order: &[Label]) -> Result<Operand, ShapeError> {
        let geometry = x.part(order);
        if geometry.is_contiguous() {
            return Ok(Operand { buffer: x.buffer, labels: order.to_vec(), geometry });
        }
        let y = self.place(order.to_vec(), geometry.shape.clone())?;
        self.steps.push(Step::Copy { from: x.buffer, geometry, to: y.buffer.clone() });
        Ok(y)
    }

    /// The product of two operands, summed over what both have and nobody needs.
    fn product(
        &mut self,
        a: Operand,
        b: Operand,
        needed: impl Fn(Label) -> bool,
    ) -> Result<Operand, ShapeError> {
        let shared: Vec<Label> = a.labels.iter().copied().filter(|&l| b.has(l)).collect();
        let (batch, depth): (Vec<Label>, Vec<Label>) = shared.iter().partition(|l| needed(**l));
        let rows: Vec<Label> = a.labels.iter().copied().filter(|&l| !b.has(l)).collect();
        let columns: Vec<Label> = b.labels.iter().copied().filter(|&l| !a.has(l)).collect();
        let a = self.matrices(a, &batch, &rows, &depth)?;
        let b = self.matrices(b, &batch, &depth, &columns)?;
        let labels = [&batch[..], &rows, &columns].concat();
        let sizes = |of: &Operand, labels: &[Label]| of.part(&of.own(labels)).shape;
        let counts = sizes(&a, &batch);
        let shape: Shape = counts
            .iter()
            .chain(sizes(&a, &rows).iter())
            .chain(sizes(&b, &columns).iter())
            .copied()
            .collect();
        let y = self.place(labels, shape)?;
        let strides = |of: &Operand, labels: &[Label]| even(&of.part(labels)).unwrap_or(0);
        // A result without elements has no products, however many matrices there would be.
        let empty = y.geometry.shape.numel() == 0;
        let offsets = |of: &Operand| match empty {
            true => Ok(Vec::new()),
            false => offsets(&of.part(&batch)),
        };
        let (from_a, from_b) = (offsets(&a)?, offsets(&b)?);
        self.steps.push(Step::Product {
            size: plutino_kernels::gemm::Size {
                batch: if empty { 0 } else { counts.numel() },
                m: sizes(&a, &rows).numel(),
                n: sizes(&b, &columns).numel(),
                k: sizes(&a, &depth).numel(),
            },
            a: (a.buffer.clone(), (strides(&a, &rows), strides(&a, &depth))),
            b: (b.buffer.clone(), (strides(&b, &depth), strides(&b, &columns))),
            offsets: alloc::grow(from_a.into_iter().zip(from_b))?,
            to: y.buffer.clone(),
        });
        Ok(y)
    }

    /// The operand as it is where its rows and columns are evenly spaced, else a copy.
    fn matrices(
        &mut self,
        x: Operand,
        batch: &[Label],
        rows: &[Label],
        columns: &[Label],
    ) -> Result<Operand, ShapeError> {
        if even(&x.part(rows)).is_some() && even(&x.part(columns)).is_some() {
            return Ok(x);
        }
        self.dense(x, &[batch, rows, columns].concat())
    }
}

/// The distance of neighbours, where elements are evenly spaced.
fn even(g: &Geometry) -> Option<usize> {
    let mut dims = g.shape.iter().zip(&g.strides).rev().filter(|(size, _)| **size != 1);
    let Some((&first, &step)) = dims.next() else { return Some(1) };
    let mut next = step.checked_mul(isize::try_from(first).ok()?)?;
    for (&size, &stride) in dims {
        if stride != next {
            return None;
        }
        next = next.checked_mul(isize::try_from(size).ok()?)?;
    }
    usize::try_from(step).ok()
}

/// Where each element lies, in order: of a shape that has some.
fn offsets(g: &Geometry) -> Result<Vec<usize>, TensorError> {
    let mut all = vec![g.offset];
    for (&size, &stride) in g.shape.iter().zip(&g.strides) {
        let stride = stride.unsigned_abs(); // those of einsum are never negative
        all = alloc::grow(all.iter().flat_map(|&at| (0..size).map(move |i| at + i * stride)))?;
    }
    Ok(all)
}

impl Operator for EinsumOp {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let Program { dtype, shape, .. } = self.program(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let Program { dtype, steps, scratch, .. } = self.program(cx.inputs)?;
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        Einsum::plan(cx, dtype, steps, scratch)
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let steps = self.program(inputs).map_or_else(|_| Vec::new(), |p| p.steps);
        let flops = steps.iter().map(Step::flops).fold(0, u64::saturating_add);
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

//! Products of the rows of one matrix, group by group, with a matrix for each group: the experts of
//! a mixture.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html>. Groups follow
//! each other; `offs` holds the row behind the last one of each. Rows behind the last group, which
//! PyTorch leaves as they are in memory, are 0.

use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::gemm::{AnyMatrix, Batch, Gemm, PostOps, Size, Target, gemm_any};
use plutino_kernels::number::{Number, Wide};
use plutino_kernels::{Isa, for_numbers};
use plutino_tensor::{DType, Shape, alloc};
use std::ops::Range;

/// (M, K) by (G, K, N) to (M, N), with ends of the groups (G).
#[derive(Debug)]
struct GroupedMm {
    input: usize,
    mat2: usize,
    offs: usize,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let operator = GroupedMm {
        input: r.required_input("input")?,
        mat2: r.required_input("mat2")?,
        offs: r.required_input("offs")?,
    };
    // PyTorch itself refuses a bias so far, and knows no other dtype than that of the operands.
    r.raw("out_dtype");
    Ok(Box::new(operator))
}
register_op!(build => "aten::_grouped_mm");

impl GroupedMm {
    /// The number of groups, and M, N, K.
    fn sizes(&self, inputs: &[ValueSpec]) -> Result<(usize, [usize; 3], DType), ShapeError> {
        let [a, b, offs] = [self.input, self.mat2, self.offs].map(|i| TensorValue::at(inputs, i));
        let (a, b, offs) = (a?, b?, offs?);
        if offs.dtype() != DType::I32 {
            let (input, expected) = (self.offs, "i32".into());
            return Err(ShapeError::DType { input, expected, found: offs.dtype() });
        }
        match (a.shape().dims(), b.shape().dims(), offs.shape().dims()) {
            (&[m, k], &[groups, depth, n], &[ends])
                if k == depth && groups == ends && a.dtype() == b.dtype() =>
            {
                Ok((groups, [m, n, k], a.dtype()))
            }
            _ => Err(invalid(format!(
                "groups of rows (M,K), matrices (G,K,N) of the same dtype and ends of groups (G) are needed, found \
                 {}, {} and {}",
                a.spec, b.spec, offs.spec
            ))),
        }
    }
}

impl Operator for GroupedMm {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (_, [m, n, _], dtype) = self.sizes(inputs)?;
        let shape = Shape::from([m, n]);
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (_, [m, n, k], dtype) = self.sizes(cx.inputs)?;
        let [a, b, offs] = [self.input, self.mat2, self.offs].map(|i| leaf(cx.inputs, i));
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let groups = Groups { a, b, offs, m, n, k };
        if dtype == DType::F32 {
            return Ok(Planned::new(Products { groups, isa: cx.isa }));
        }
        for_numbers!(dtype, T => {
            Ok(Planned::new(AnyProducts::<T> { isa: cx.isa, groups, dtype: std::marker::PhantomData }))
        })
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.sizes(inputs).map_or(0, |(_, sizes, _)| {
            sizes.iter().fold(2u64, |all, &x| all.saturating_mul(x as u64))
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

/// Leaves and sizes.
struct Groups {
    a: usize,
    b: usize,
    offs: usize,
    m: usize,
    n: usize,
    k: usize,
}

impl Groups {
    /// The rows of each group.
    fn rows(&self, cx: &RunCx<'_>) -> Result<Vec<Range<usize>>, RunError> {
        let ends = cx.inputs.get::<i32>(self.offs)?;
        let mut rows = alloc::list(ends.len())?;
        let mut start = 0;
        for &end in ends {
            let found = usize::try_from(end).ok().filter(|&end| end >= start && end <= self.m);
            let end = found.ok_or_else(|| RunError::Value {
                input: self.offs,
                what: format!("a group ends at row {end}, not within {start}..={}", self.m),
            })?;
            rows.push(start..end);
            start = end;
        }
        Ok(rows)
    }
}

/// Products of f32.
struct Products {
    groups: Groups,
    isa: Isa,
}

impl Kernel for Products {
    fn name(&self) -> &str {
        "grouped_mm"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let &Groups { a, b, m, n, k, .. } = &self.groups;
        let groups = self.groups.rows(cx)?;
        let y = cx.outputs.take::<f32>(0)?;
        let (a, b) = (cx.inputs.get::<f32>(a)?, cx.inputs.get::<f32>(b)?);
        let done = groups.last().map_or(0, |last| last.end);
        y[done * n..m * n].fill(0.0);
        let threads = cx.par.threads();
        for (g, rows) in groups.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let size = Size { batch: 1, m: rows.len(), n, k };
            let gemm = Gemm::new(Target::this(self.isa), threads, size, (false, false));
            let mut scratch = alloc::filled(gemm.scratch(threads), 0.0)?;
            let batch = Batch {
                size,
                a: (&a[rows.start * k..], (k, 1)),
                b: (&b[g * k * n..], (n, 1)),
                offsets: &[(0, 0)],
                scale: 1.0,
                post_ops: PostOps::default(),
            };
            gemm.run_batch(cx.par, &batch, &mut y[rows.start * n..rows.end * n], n, &mut scratch);
        }
        Ok(())
    }
}

/// Products of any other dtype.
struct AnyProducts<T> {
    isa: Isa,
    groups: Groups,
    dtype: std::marker::PhantomData<T>,
}

impl<T: Number> Kernel for AnyProducts<T> {
    fn name(&self) -> &str {
        "grouped_mm.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let &Groups { a, b, m, n, k, .. } = &self.groups;
        let groups = self.groups.rows(cx)?;
        let y = cx.outputs.take::<T>(0)?;
        let (a, b) = (cx.inputs.get::<T>(a)?, cx.inputs.get::<T>(b)?);
        let done = groups.last().map_or(0, |last| last.end);
        y[done * n..m * n].fill(T::narrow(<T::Wide as Wide>::ZERO));
        for (g, rows) in groups.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let a = AnyMatrix { data: &a[rows.start * k..], strides: (k, 1) };
            let b = AnyMatrix { data: &b[g * k * n..], strides: (n, 1) };
            let store = |_, sum| T::narrow(sum);
            let y = &mut y[rows.start * n..rows.end * n];
            gemm_any(self.isa, cx.par, (rows.len(), n, k), a, b, &store, y);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check_line, iota, line_error, random, tensor, values};
    use plutino_tensor::{DType, Tensor};

    const LINE: &str = "aten::_grouped_mm g 5 1 0 1 2 =None =None 9";

    #[test]
    fn each_group_has_its_matrix() {
        let (a, b) = (random([10, 8], 1), random([3, 8, 4], 2));
        // The second group is empty, the last row belongs to none.
        let ends = tensor([3], &[6i32, 6, 9]);
        let y = check_line(LINE, &[a.clone(), b.clone(), ends]).remove(0);
        let (a, b) = (values::<f32>(&a), values::<f32>(&b));
        let product = |i: usize, j: usize| -> f32 {
            let matrix = match i {
                0..6 => 0,
                6..9 => 2,
                _ => return 0.0,
            };
            (0..8).map(|k| a[i * 8 + k] * b[matrix * 32 + k * 4 + j]).sum()
        };
        let expected: Vec<f32> = (0..40).map(|at| product(at / 4, at % 4)).collect();
        assert_close(&y, &tensor([10, 4], &expected), 1e-5);
    }

    #[test]
    fn other_dtypes_and_bad_ends() {
        let wide = |t: Tensor| t.cast(DType::I64).unwrap();
        let (a, b) = (wide(iota([3, 2])), wide(iota([2, 2, 1])));
        let y = check_line(LINE, &[a.clone(), b.clone(), tensor([2], &[1i32, 3])]);
        assert_eq!(y, [tensor([3, 1], &[1i64, 13, 23])]);
        for ends in [[2i32, 1], [1, 4], [-1, 3]] {
            let error = line_error(LINE, &[a.clone(), b.clone(), tensor([2], &ends)]).to_string();
            assert!(error.contains("a group ends at row"), "{error}");
        }
        let error = line_error(LINE, &[a, b, tensor([2], &[1i64, 3])]).to_string();
        assert!(error.contains("i32"), "{error}");
    }
}

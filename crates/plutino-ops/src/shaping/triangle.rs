//! Triangles of matrices: `tril`, `triu`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.tril.html>,
//! <https://pytorch.org/docs/stable/generated/torch.triu.html>: what lies above, or below, a
//! diagonal becomes zero.

use crate::support::assemble::leaf;
use crate::{
    Arg, BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};

/// Bytes below which a task is not worth a thread.
const GRAIN: usize = 1 << 15;

#[derive(Debug)]
struct Triangle {
    input: usize,
    lower: bool,
    diagonal: Arg<i64>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let lower = r.kind().ends_with("tril");
    let diagonal = r.arg("diagonal")?.unwrap_or(Arg::Value(0));
    Ok(Box::new(Triangle { input: r.required_input("input")?, lower, diagonal }))
}
register_op!(build => "torch.tril", "torch.triu");

impl Operator for Triangle {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if x.shape().rank() < 2 {
            let (expected, found) = ("2 or more".into(), x.shape().clone());
            return Err(ShapeError::Rank { input, expected, found });
        }
        self.diagonal.int(inputs)?;
        Ok(vec![ValueSpec::tensor(x.dtype(), x.shape().clone())])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (input, x) = (leaf(cx.inputs, self.input), TensorValue::at(cx.inputs, self.input)?);
        let sizes = match x.shape().dims() {
            [.., rows, columns] => [*rows, *columns],
            _ => [0; 2],
        };
        let (lower, diagonal) = (self.lower, self.diagonal.int(cx.inputs)?);
        Ok(Planned::new(TriangleKernel { input, lower, diagonal, sizes }))
    }
}

struct TriangleKernel {
    input: usize,
    lower: bool,
    diagonal: i64,
    /// Rows and columns of a matrix.
    sizes: [usize; 2],
}

impl Kernel for TriangleKernel {
    fn name(&self) -> &str {
        "triangle"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let ([rows, columns], src) = (self.sizes, cx.inputs.bytes(self.input)?);
        let (spec, dst) = cx.outputs.take_bytes(0)?;
        let size = spec.dtype.size_of();
        let line = columns * size;
        let many = (GRAIN / line).max(1);
        cx.par.chunks_mut(dst, many * line, |chunk, out| {
            for (i, out) in out.chunks_exact_mut(line).enumerate() {
                let at = chunk * many + i;
                // The lower triangle of a row ends, and the upper one begins, at this column.
                let border = i64::try_from(at % rows).unwrap_or(i64::MAX);
                let border = border.saturating_add(self.diagonal).saturating_add(self.lower.into());
                let border = usize::try_from(border.max(0)).unwrap_or(columns).min(columns) * size;
                let kept = if self.lower { 0..border } else { border..line };
                out.fill(0);
                out[kept.clone()].copy_from_slice(&src[at * line..][kept]);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, error, iota, op, tensor, values};
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn both_triangles_of_every_matrix() {
        let x = iota([2, 2, 3]);
        let run = |line: &str| values::<f32>(&check_line(line, std::slice::from_ref(&x))[0]);
        assert_eq!(run("torch.tril t 1 1 0 1"), [0., 0., 0., 3., 4., 0., 6., 0., 0., 9., 10., 0.]);
        assert_eq!(
            run("aten::triu t 2 1 0 =0 1"),
            [0., 1., 2., 0., 4., 5., 6., 7., 8., 0., 10., 11.]
        );
        assert_eq!(
            run("aten::triu t 2 1 0 =1 1"),
            [0., 1., 2., 0., 0., 5., 0., 7., 8., 0., 0., 11.]
        );
        assert_eq!(
            run("aten::tril t 2 1 0 =-1 1"),
            [0., 0., 0., 3., 0., 0., 0., 0., 0., 9., 0., 0.]
        );
        let far = i64::MAX;
        assert_eq!(run(&format!("torch.tril t 1 1 0 1 diagonal={far}")), values::<f32>(&x));
        assert_eq!(run(&format!("torch.tril t 1 1 0 1 diagonal=-{far}")), [0.0; 12]);
        assert_eq!(run(&format!("torch.triu t 1 1 0 1 diagonal={far}")), [0.0; 12]);
        assert_eq!(run(&format!("torch.triu t 1 1 0 1 diagonal=-{far}")), values::<f32>(&x));
    }

    #[test]
    fn large_ones_small_ones_and_none() {
        let n = 300;
        let ones = tensor([n, n], &vec![true; n * n]);
        let y = check(&*op("torch.triu t 1 1 0 1 diagonal=1 $input=0"), &[ones]);
        let expected: Vec<bool> = (0..n * n).map(|i| i % n > i / n).collect();
        assert_eq!(values::<bool>(&y[0]), expected);
        let nothing = Tensor::zeros(DType::C64, [3, 2, 0]).unwrap();
        assert_eq!(check(&*op("torch.tril t 1 1 0 1"), std::slice::from_ref(&nothing))[0], nothing);
        error(&*op("torch.tril t 1 1 0 1"), &[iota([3])]);
    }
}

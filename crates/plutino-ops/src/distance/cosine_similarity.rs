//! The cosine of the angle between vectors: `F.cosine_similarity`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.cosine_similarity.html>: the
//! inputs are broadcast, then each vector along `dim` is divided by its norm, or by `eps` where
//! that is more.

use crate::support::assemble::same_dtype;
use crate::support::composite::{Compose, StepText, composed};
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, register_op};

#[derive(Debug)]
struct CosineSimilarity {
    inputs: [usize; 2],
    dim: i64,
    eps: f64,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (dim, eps) = (r.or("dim", 1)?, r.or("eps", 1e-8)?);
    let inputs = [r.required_input("x1")?, r.required_input("x2")?];
    composed(CosineSimilarity { inputs, dim, eps })
}
register_op!(build => "F.cosine_similarity", "nn.CosineSimilarity");

impl Compose for CosineSimilarity {
    fn name(&self) -> &'static str {
        "cosine_similarity"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[a, b] = inputs else { return Err(ShapeError::Invalid("two tensors".into())) };
        let [input, other] = self.inputs;
        let dtype = same_dtype((input, a.dtype()), [(other, b.dtype())])?;
        if !dtype.is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: dtype });
        }
        let shape = a.shape().broadcast(b.shape())?;
        let dim = shape.dim(self.dim)?;
        let sizes = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut steps = Vec::new();
        for (x, [own, unit]) in [(a, ["x0", "u0"]), (b, ["x1", "u1"])] {
            let mut name = own;
            if *x.shape() != shape {
                name = if own == "x0" { "y0" } else { "y1" };
                steps.push(StepText::new(
                    "Tensor.expand",
                    &[own],
                    name,
                    &format!("sizes=({sizes})"),
                ));
            }
            let parameters = format!("p=2 dim={dim} eps={:e}", self.eps);
            steps.push(StepText::new("F.normalize", &[name], unit, &parameters));
        }
        steps.push(StepText::new("torch.mul", &["u0", "u1"], "products", ""));
        let dims = format!("dim=({dim}) keepdim=False");
        steps.push(StepText::new("torch.sum", &["products"], "sums", &dims));
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{
        assert_close, check, check_line, error, iota, op, random, tensor, values,
    };
    use plutino_tensor::{DType, Tensor};

    /// Along the last dimension of equal shapes, in f64.
    fn cosines(a: &Tensor, b: &Tensor, len: usize) -> Vec<f32> {
        let (a, b) = (values::<f32>(a), values::<f32>(b));
        let dot = |x: &[f32], y: &[f32]| -> f64 {
            x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
        };
        let pairs = a.chunks(len).zip(b.chunks(len));
        pairs.map(|(x, y)| (dot(x, y) / (dot(x, x) * dot(y, y)).sqrt()) as f32).collect()
    }

    #[test]
    fn along_any_dimension_of_any_float() {
        let (a, b) = (random([6, 8], 1), random([6, 8], 2));
        let both = [a.clone(), b.clone()];
        let expected = tensor([6], &cosines(&a, &b, 8));
        let y = check_line("aten::cosine_similarity c 4 1 0 1 =-1 =1.000000e-8 2", &both);
        assert_close(&y[0], &expected, 1e-6);
        let y = check(&*op("F.cosine_similarity c 2 1 0 1 2 dim=1 eps=1.0e-8 $x1=0 $x2=1"), &both);
        assert_close(&y[0], &expected, 1e-6);
        let flipped = both.each_ref().map(|t| {
            let line = "torch.transpose t 1 1 0 1 dim0=0 dim1=1";
            check(&*op(line), std::slice::from_ref(t)).remove(0)
        });
        let y = check(&*op("nn.CosineSimilarity c 2 1 0 1 2 dim=0"), &flipped);
        assert_close(&y[0], &expected, 1e-6);
        let wide = both.each_ref().map(|t| t.view().cast(DType::F64).unwrap());
        let y = check(&*op("F.cosine_similarity c 2 1 0 1 2"), &wide).remove(0);
        assert_close(&y.view().cast(DType::F32).unwrap(), &expected, 1e-6);
    }

    #[test]
    fn broadcast_before_norms_are_taken() {
        let (a, b) = (random([3, 1, 4], 1), random([5, 4], 2));
        let y = check(&*op("F.cosine_similarity c 2 1 0 1 2 dim=-1"), &[a.clone(), b.clone()]);
        assert_eq!(y[0].shape().dims(), [3, 5]);
        let alone = cosines(
            &tensor([4], &values::<f32>(&a)[8..]),
            &tensor([4], &values::<f32>(&b)[4..8]),
            4,
        );
        assert!((values::<f32>(&y[0])[11] - alone[0]).abs() <= 1e-6);
        // One number stands for a vector of equal numbers.
        let y = check(
            &*op("F.cosine_similarity c 2 1 0 1 2"),
            &[tensor([1, 1], &[2.0f32]), tensor([1, 4], &[3.0f32; 4])],
        );
        assert_close(&y[0], &tensor([1], &[1.0f32]), 1e-6);
    }

    #[test]
    fn zeros_and_what_does_not_fit() {
        let zero = tensor([1, 3], &[0.0f32; 3]);
        let y = check(&*op("F.cosine_similarity c 2 1 0 1 2"), &[zero.clone(), iota([1, 3])]);
        assert_eq!(values::<f32>(&y[0]), [0.0]);
        error(&*op("F.cosine_similarity c 2 1 0 1 2"), &[zero.clone(), iota([1, 4])]);
        error(&*op("F.cosine_similarity c 2 1 0 1 2 dim=2"), &[zero.clone(), iota([1, 3])]);
        let wide = zero.view().cast(DType::F64).unwrap();
        error(&*op("F.cosine_similarity c 2 1 0 1 2"), &[zero, wide]);
        let whole = tensor([1, 1], &[1i64]);
        error(&*op("F.cosine_similarity c 2 1 0 1 2"), &[whole.clone(), whole]);
    }
}

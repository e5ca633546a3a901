//! Eigenvalues and eigenvectors of matrices that need not be symmetric: complex numbers.

use super::{Batched, OfMatrices, Own, Refused, Size, elements};
use crate::support::rearrange::{invalid, subject};
use crate::{BuildError, NodeReader, Operator, ShapeError, register_op};
use plutino_kernels::elementwise::complex_of;
use plutino_kernels::linalg::{Complex, Matrix, eigen};
use plutino_tensor::DType;

/// <https://pytorch.org/docs/stable/generated/torch.linalg.eig.html>, and its values alone:
/// <https://pytorch.org/docs/stable/generated/torch.linalg.eigvals.html>. The order is no better
/// defined than PyTorch's, but that of a conjugate pair the value above the real line comes first.
#[derive(Debug, Clone, Copy)]
struct Eigen {
    vectors: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let vectors = r.kind().ends_with("eig");
    let input = r.named_input("A").map_or_else(|| subject(r), Ok)?;
    Batched::boxed(vec![input], Eigen { vectors })
}
register_op!(build => "torch.linalg.eig", "torch.linalg.eigvals");

impl OfMatrices for Eigen {
    fn name(&self) -> &'static str {
        if self.vectors { "eig" } else { "eigvals" }
    }

    fn results(&self, sizes: &[Size], dtype: DType) -> Result<Vec<Own>, ShapeError> {
        let &[(n, m)] = sizes else { return Err(invalid("one tensor")) };
        if n != m {
            return Err(invalid(format!("{} needs square matrices, not {n} x {m}", self.name())));
        }
        let mut results = vec![Own::Each(complex_of(dtype), vec![n])];
        if self.vectors {
            results.push(Own::Each(complex_of(dtype), vec![n, n]));
        }
        Ok(results)
    }

    fn work(&self, sizes: &[Size]) -> usize {
        let n = sizes.first().map_or(0, |size| size.0);
        // Complex vectors are as large as two matrices, and are there twice in the end.
        elements(&[(if self.vectors { 9 } else { 3 }, n, n), (8, n, 1)])
    }

    fn compute(&self, matrices: Vec<Matrix>, _: f64) -> Result<Vec<Vec<f64>>, Refused> {
        let Ok([a]) = <[Matrix; 1]>::try_from(matrices) else { return Err(Refused::Arguments) };
        let found = eigen::eig(&a, self.vectors)?;
        let parts = |all: Vec<Complex<f64>>| all.iter().flat_map(|x| [x.re, x.im]).collect();
        let mut results = vec![parts(found.values)];
        if self.vectors {
            results.push(parts(found.vectors));
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, random, tensor};
    use plutino_tensor::{Complex, DType, Tensor};

    type C = Complex<f64>;

    fn eig(a: &Tensor) -> (Vec<C>, Vec<C>) {
        let y = check(&*op("torch.linalg.eig e 1 2 0 1 2"), std::slice::from_ref(a));
        let values = check(&*op("torch.linalg.eigvals e 1 1 0 1"), std::slice::from_ref(a));
        assert_eq!(values[0], y[0]);
        (y[0].as_slice().unwrap().to_vec(), y[1].as_slice().unwrap().to_vec())
    }

    /// A V = V diag(L) and columns of norm 1, within n rounding errors of the largest element.
    fn holds(a: &[f64], n: usize, (values, vectors): &(Vec<C>, Vec<C>), bound: f64) {
        let scale = a.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        for (k, value) in values.iter().enumerate() {
            let column: Vec<C> = (0..n).map(|i| vectors[i * n + k]).collect();
            let norm: f64 = column.iter().map(|x| x.norm_sqr()).sum();
            assert!((norm - 1.0).abs() < 1e-12, "{k}: {norm}");
            for i in 0..n {
                let left: C = (0..n).map(|j| column[j] * a[i * n + j]).sum();
                let error = (left - value * column[i]).norm();
                assert!(error <= bound * scale, "value {k} ({value}), row {i}: {error}");
            }
        }
    }

    #[test]
    fn vectors_are_turned_by_their_values() {
        for n in [1, 2, 3, 4, 7, 20] {
            for seed in 0..6 {
                let a = random([n, n], seed * 100 + n as u64).cast(DType::F64).unwrap();
                let found = eig(&a);
                holds(a.as_slice().unwrap(), n, &found, 1e3 * n as f64 * f64::EPSILON);
                // Pairs are conjugate, the value above the real line first.
                let mut k = 0;
                while k < n {
                    let value = found.0[k];
                    if value.im != 0.0 {
                        assert!(value.im > 0.0 && found.0[k + 1] == value.conj());
                        k += 1;
                    }
                    k += 1;
                }
                // The trace is the sum of all.
                let trace: f64 = (0..n).map(|i| a.as_slice::<f64>().unwrap()[i * n + i]).sum();
                let sum: C = found.0.iter().sum();
                assert!((sum - trace).norm() < 1e-12 * n as f64, "{sum} {trace}");
            }
        }
    }

    #[test]
    fn known_values() {
        let a = tensor([3, 3], &[1.0f64, 2., 0., -2., 1., 0., 0., 0., 3.]);
        let (mut values, vectors) = eig(&a);
        holds(a.as_slice().unwrap(), 3, &(values.clone(), vectors), 1e-14);
        values.sort_by(|x, y| x.re.total_cmp(&y.re).then(y.im.total_cmp(&x.im)));
        let expected = [C::new(1.0, 2.0), C::new(1.0, -2.0), C::new(3.0, 0.0)];
        for (x, y) in values.iter().zip(expected) {
            assert!((x - y).norm() < 1e-14, "{x} {y}");
        }
        // A Jordan block has one direction only; equal values and none at all are no trouble.
        let jordan = tensor([3, 3], &[2.0f64, 1., 0., 0., 2., 1., 0., 0., 2.]);
        holds(jordan.as_slice().unwrap(), 3, &eig(&jordan), 1e-4);
        let zero = tensor([2, 2], &[0.0f64; 4]);
        holds(&[0.0; 4], 2, &eig(&zero), 0.0);
        let y = check(&*op("torch.linalg.eig e 1 2 0 1 2"), &[iota([2, 0, 0])]);
        assert_eq!((y[0].shape().dims(), y[1].shape().dims()), (&[2, 0][..], &[2, 0, 0][..]));
        // Large numbers do not overflow; a batch is done matrix by matrix.
        let large = tensor([2, 2, 2], &[0.0f32, 1e30, -1e30, 0., 1., 0., 0., 4.]);
        let y = check(&*op("torch.linalg.eigvals e 1 1 0 1"), &[large]).remove(0);
        assert_eq!((y.dtype(), y.shape().dims()), (DType::C64, &[2, 2][..]));
        let y = y.as_slice::<Complex<f32>>().unwrap().to_vec();
        assert_eq!(y[0], Complex::new(0.0, 1e30));
        assert_eq!(y[2..].iter().map(|x| x.re).sum::<f32>(), 5.0);
        error(&*op("torch.linalg.eig e 1 2 0 1 2"), &[iota([2, 3])]);
        error(&*op("torch.linalg.eigvals e 1 1 0 1"), &[tensor([1, 1], &[f32::NAN])]);
    }
}

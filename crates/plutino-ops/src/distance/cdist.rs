//! Distances of every vector to every other: `cdist`, `pdist`.

use crate::reduce::planned;
use crate::support::assemble::{leaf, same_dtype};
use crate::support::halves;
use crate::{
    BuildError, Cost, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError, TensorValue,
    ValueSpec, register_op,
};
use plutino_kernels::distance::{Pairs, distance};
use plutino_kernels::for_floats;
use plutino_tensor::{DType, Shape};

/// The order of a norm: a number of at least 0, or infinite.
fn order(r: &mut NodeReader<'_>) -> Result<f64, BuildError> {
    let p = r.or("p", 2.0)?;
    if p >= 0.0 { Ok(p) } else { Err(r.bad("p", "a number of at least 0, or inf")) }
}

#[derive(Debug)]
struct CrossDistances {
    inputs: [usize; 2],
    p: f64,
}

/// <https://pytorch.org/docs/stable/generated/torch.cdist.html>: (..., P, M) and (..., R, M) make
/// (..., P, R).
fn cdist(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.raw("compute_mode"); // says how, not what
    let p = order(r)?;
    let inputs = [r.required_input("x1")?, r.required_input("x2")?];
    Ok(Box::new(CrossDistances { inputs, p }))
}
register_op!(cdist => "torch.cdist");

impl CrossDistances {
    /// Dtype, shape of the result, and where the vectors lie.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape, Pairs), ShapeError> {
        let [at_a, at_b] = self.inputs;
        let (a, b) = (TensorValue::at(inputs, at_a)?, TensorValue::at(inputs, at_b)?);
        let dtype = same_dtype((at_a, a.dtype()), [(at_b, b.dtype())])?;
        if !dtype.is_float() {
            let expected = "a float".into();
            return Err(ShapeError::DType { input: at_a, expected, found: dtype });
        }
        let of = |input: usize, x: &TensorValue| match x.shape().dims() {
            [batch @ .., vectors, len] => Ok((Shape::from(batch), *vectors, *len)),
            _ => {
                let (expected, found) = ("at least 2".into(), x.shape().clone());
                Err(ShapeError::Rank { input, expected, found })
            }
        };
        let ((batch_a, p, len), (batch_b, r, other)) = (of(at_a, a)?, of(at_b, b)?);
        if len != other {
            let (expected, found) = (format!("{len}, as of input {at_a}"), b.shape().clone());
            let dim = found.rank().saturating_sub(1);
            return Err(ShapeError::Size { input: at_b, dim, expected, found });
        }
        let mut shape = batch_a.broadcast(&batch_b)?;
        let strides = [&batch_a, &batch_b].map(|s| (s, s.dense_strides()));
        let sizes = [p.saturating_mul(len) as isize, r.saturating_mul(len) as isize];
        let mut steps: Vec<[isize; 2]> = Vec::with_capacity(shape.rank() + 2);
        for (d, &size) in shape.iter().enumerate() {
            let mut step = [0; 2];
            for (k, (own, strides)) in strides.iter().enumerate() {
                if let Some(at) = (d + own.rank()).checked_sub(shape.rank())
                    && own[at] == size
                {
                    step[k] = strides[at].wrapping_mul(sizes[k]);
                }
            }
            steps.push(step);
        }
        shape.push(p);
        shape.push(r);
        shape.checked_numel()?;
        steps.extend([[len as isize, 0], [0, len as isize]]);
        let pairs = Pairs { lens: shape.to_vec(), steps, len, inner: [1; 2] };
        Ok((dtype, shape, pairs))
    }
}

impl Operator for CrossDistances {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape, _) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _, pairs) = self.bind(cx.inputs)?;
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let ([a, b], p, isa) = (self.inputs.map(|i| leaf(cx.inputs, i)), self.p, cx.isa);
        for_floats!(dtype,
            T => Ok(planned("distance.cross", move |cx| {
                let (a, b) = (cx.inputs.get::<T>(a)?, cx.inputs.get::<T>(b)?);
                distance(isa, cx.par, &pairs, p, 0.0, a, b, cx.outputs.take::<T>(0)?);
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("a distance of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.bind(inputs).map_or(0, |(_, shape, pairs)| {
            3u64.saturating_mul(shape.numel().saturating_mul(pairs.len) as u64)
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

#[derive(Debug)]
struct OwnDistances {
    input: usize,
    p: f64,
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.functional.pdist.html>: each row of a matrix
/// to every later one.
fn pdist(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let p = order(r)?;
    Ok(Box::new(OwnDistances { input: r.required_input("input")?, p }))
}
register_op!(pdist => "F.pdist", "torch.pdist");

impl OwnDistances {
    /// Dtype, rows, columns, and the number of pairs.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, [usize; 2], usize), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        let &[rows, columns] = x.shape().dims() else {
            let (expected, found) = ("2".into(), x.shape().clone());
            return Err(ShapeError::Rank { input, expected, found });
        };
        let twice = Shape::from([rows, rows.saturating_sub(1)]).checked_numel()?;
        Ok((x.dtype(), [rows, columns], twice / 2))
    }
}

impl Operator for OwnDistances {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, _, pairs) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, [pairs])])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, [rows, columns], _) = self.bind(cx.inputs)?;
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let (input, p, isa) = (leaf(cx.inputs, self.input), self.p, cx.isa);
        for_floats!(dtype,
            T => Ok(planned("distance.own", move |cx| {
                let (x, mut y) = (cx.inputs.get::<T>(input)?, cx.outputs.take::<T>(0)?);
                for row in 0..rows {
                    let later = rows - row - 1;
                    let (now, rest) = y.split_at_mut(later);
                    let pairs = Pairs {
                        lens: vec![later],
                        steps: vec![[0, columns as isize]],
                        len: columns,
                        inner: [1; 2],
                    };
                    let (own, others) = x[row * columns..].split_at(columns);
                    distance(isa, cx.par, &pairs, p, 0.0, own, others, now);
                    y = rest;
                }
                Ok(())
            })),
            _ => Err(PlanError::Unsupported(format!("a distance of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let columns = self.bind(inputs).map_or(0, |(_, [_, columns], _)| columns as u64);
        Cost::elementwise(inputs, outputs, columns.saturating_mul(3))
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor, try_op};
    use plutino_tensor::{DType, Tensor};

    #[test]
    fn every_vector_to_every_other() {
        let (a, b) = (tensor([2, 2], &[0.0f32, 0.0, 3.0, 4.0]), tensor([1, 2], &[3.0f32, 0.0]));
        let run = |line: &str, a: &Tensor, b: &Tensor| {
            check(&*op(line), &[a.clone(), b.clone()]).remove(0)
        };
        let line = "torch.cdist c 2 1 0 1 2 p=2.0 compute_mode=None $x1=0 $x2=1";
        assert_eq!(run(line, &a, &b), tensor([2, 1], &[3.0f32, 4.0]));
        assert_eq!(run("torch.cdist c 2 1 0 1 2", &b, &a), tensor([1, 2], &[3.0f32, 4.0]));
        let y = run("torch.cdist c 2 1 0 1 2 p=inf", &a, &a);
        assert_eq!(y, tensor([2, 2], &[0.0f32, 4.0, 4.0, 0.0]));
        assert_eq!(run("torch.cdist c 2 1 0 1 2 p=0", &a, &b), tensor([2, 1], &[1.0f32, 1.0]));
        // Batches broadcast.
        let batch = tensor([2, 1, 1, 1], &[1.0f64, 2.0]);
        let other = tensor([3, 2, 1], &[0.0f64, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let y = run("torch.cdist c 2 1 0 1 2 p=1.0", &batch, &other);
        let expected = [1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 2.0, 1.0, 0.0, 1.0, 2.0, 3.0];
        assert_eq!(y, tensor([2, 3, 1, 2], &expected));
        let none = run("torch.cdist c 2 1 0 1 2", &iota([2, 0]), &iota([3, 0]));
        assert_close(&none, &tensor([2, 3], &[0.0f32; 6]), 0.0);
        error(&*op(line), &[a.clone(), iota([1, 3])]);
        error(&*op(line), &[a.clone(), iota([2])]);
        error(&*op(line), &[a.clone(), a.cast(DType::F64).unwrap()]);
        assert!(try_op("torch.cdist c 2 1 0 1 2 p=-1", &[]).is_err());
    }

    #[test]
    fn each_row_to_every_later_one() {
        let x = tensor([3, 2], &[0.0f32, 0.0, 3.0, 4.0, 0.0, 1.0]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x)).remove(0);
        assert_close(&run("F.pdist d 1 1 0 1"), &tensor([3], &[5.0, 1.0, 18f32.sqrt()]), 1e-6);
        assert_eq!(run("F.pdist d 1 1 0 1 p=1.0 $input=0"), tensor([3], &[7.0f32, 1.0, 6.0]));
        assert_eq!(check(&*op("F.pdist d 1 1 0 1"), &[iota([1, 3])])[0], iota([0]));
        assert_eq!(check(&*op("F.pdist d 1 1 0 1"), &[iota([0, 3])])[0], iota([0]));
        error(&*op("F.pdist d 1 1 0 1"), &[iota([3])]);
    }
}

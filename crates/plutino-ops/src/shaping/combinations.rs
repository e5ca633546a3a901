//! All combinations of a vector's elements: `torch.combinations`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.combinations.html>: rows of `r` elements, in
//! the order of their places, each element at most once or (`with_replacement`) as often as it
//! likes.

use crate::support::assemble::leaf;
use crate::support::rearrange::{invalid, subject};
use crate::{
    BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_tensor::Shape;

#[derive(Debug)]
struct Combinations {
    input: usize,
    r: usize,
    with_replacement: bool,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (count, with_replacement) = (r.or("r", 2)?, r.or("with_replacement", false)?);
    Ok(Box::new(Combinations { input: subject(r)?, r: count, with_replacement }))
}
register_op!(build => "torch.combinations");

/// n over r; none where it exceeds memory's addresses.
fn binomial(n: usize, r: usize) -> Option<usize> {
    if r > n {
        return Some(0);
    }
    let mut rows: u128 = 1;
    for i in 0..r.min(n - r) as u128 {
        rows = rows.checked_mul(n as u128 - i)? / (i + 1);
        usize::try_from(rows).ok()?;
    }
    usize::try_from(rows).ok()
}

impl Combinations {
    /// Number of elements, and of rows.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(usize, usize), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let &[n] = x.shape().dims() else {
            let (expected, found) = ("1".into(), x.shape().clone());
            return Err(ShapeError::Rank { input: self.input, expected, found });
        };
        let rows = match (self.with_replacement, n.checked_add(self.r)) {
            _ if self.r == 0 => Some(0), // one empty row, which PyTorch does not count
            (false, _) => binomial(n, self.r),
            (true, Some(_)) if n == 0 => Some(0),
            (true, both) => both.and_then(|sum| binomial(sum - 1, self.r)),
        };
        let rows = rows.ok_or_else(|| invalid(format!("too many combinations of {n}")))?;
        Shape::from([rows, self.r]).checked_numel()?;
        Ok((n, rows))
    }
}

impl Operator for Combinations {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (_, rows) = self.bind(inputs)?;
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        // Without elements to a row there is no second dimension.
        let shape = if self.r == 0 { Shape::from([0]) } else { [rows, self.r].into() };
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (n, rows) = self.bind(cx.inputs)?;
        let x = leaf(cx.inputs, self.input);
        let (r, with_replacement) = (if rows == 0 { 0 } else { self.r }, self.with_replacement);
        Ok(Planned::new(Rows { x, n, r, with_replacement }))
    }
}

struct Rows {
    x: usize,
    n: usize,
    /// Elements of a row; 0 where there are no rows.
    r: usize,
    with_replacement: bool,
}

impl Rows {
    /// The places of the next row; false after the last one.
    fn advance(&self, at: &mut [usize]) -> bool {
        for i in (0..at.len()).rev() {
            let most = if self.with_replacement { self.n - 1 } else { self.n + i - at.len() };
            if at[i] < most {
                let first = at[i] + 1;
                for (k, place) in at[i..].iter_mut().enumerate() {
                    *place = if self.with_replacement { first } else { first + k };
                }
                return true;
            }
        }
        false
    }
}

impl Kernel for Rows {
    fn name(&self) -> &str {
        "combinations"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let unit = cx.inputs.spec(self.x)?.dtype.size_of();
        let src = cx.inputs.bytes(self.x)?;
        let (_, dst) = cx.outputs.take_bytes(0)?;
        if self.r == 0 {
            return Ok(());
        }
        let mut at: Vec<usize> = match self.with_replacement {
            true => vec![0; self.r],        // bounded: a row of the output
            false => (0..self.r).collect(), // bounded: a row of the output
        };
        for row in dst.chunks_exact_mut(unit * self.r) {
            for (to, &i) in row.chunks_exact_mut(unit).zip(&at) {
                if let Some(from) = src.get(i * unit..(i + 1) * unit) {
                    to.copy_from_slice(from);
                }
            }
            if !self.advance(&mut at) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, infer, iota, op, specs, tensor};

    #[test]
    fn rows_of_elements() {
        let x = tensor([4], &[1u8, 2, 3, 4]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x)).remove(0);
        let y = run("torch.combinations c 1 1 0 1 r=2 with_replacement=False");
        assert_eq!(y, tensor([6, 2], &[1u8, 2, 1, 3, 1, 4, 2, 3, 2, 4, 3, 4]));
        let y = run("torch.combinations c 1 1 0 1 r=3");
        assert_eq!(y, tensor([4, 3], &[1u8, 2, 3, 1, 2, 4, 1, 3, 4, 2, 3, 4]));
        assert_eq!(run("torch.combinations c 1 1 0 1 r=5"), tensor([0, 5], &[0u8; 0]));
        assert_eq!(run("torch.combinations c 1 1 0 1 r=0"), tensor([0], &[0u8; 0]));
        let two = [tensor([2], &[1u8, 2])];
        let y = check(&*op("torch.combinations c 1 1 0 1 with_replacement=True r=3"), &two);
        assert_eq!(y[0], tensor([4, 3], &[1u8, 1, 1, 1, 1, 2, 1, 2, 2, 2, 2, 2]));
        let pairs = op("torch.combinations c 1 1 0 1 with_replacement=True");
        assert_eq!(check(&*pairs, &[iota([0])])[0], iota([0, 2]));
        error(&*pairs, &[iota([2, 2])]);
        let many = op("torch.combinations c 1 1 0 1 r=500");
        assert!(infer(&*many, &specs(&[iota([1000])])).is_err());
        let long = op("torch.combinations c 1 1 0 1 r=9223372036854775807 with_replacement=True");
        assert!(infer(&*long, &specs(&[iota([1000])])).is_err());
    }
}

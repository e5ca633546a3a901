//! Sums over what broadcasting would repeat: `Tensor.sum_to_size`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.Tensor.sum_to_size.html>

use crate::support::composite::{Compose, StepText, composed, list};
use crate::support::rearrange::invalid;
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, register_op};

#[derive(Debug)]
struct SumToSize {
    input: usize,
    size: Vec<usize>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let size: Vec<i64> = r.required("size")?;
    let size = size.into_iter().map(usize::try_from).collect::<Result<_, _>>();
    let size = size.map_err(|_| r.bad("size", "sizes that are not negative"))?;
    composed(SumToSize { input: r.required_input("input")?, size })
}
register_op!(build => "torch.sum_to_size");

impl Compose for SumToSize {
    fn name(&self) -> &'static str {
        "sum_to_size"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[x] = inputs else { return Err(invalid("one tensor")) };
        let (shape, size) = (x.shape(), &self.size);
        let wrong = || invalid(format!("{} is not what {shape} broadcasts from", list(size)));
        let more = shape.rank().checked_sub(size.len()).ok_or_else(wrong)?;
        let fits = shape.iter().skip(more).zip(size).all(|(n, m)| m == n || *m == 1);
        if !fits {
            return Err(wrong());
        }
        let summed = |&d: &usize| d < more || size.get(d - more) != shape.get(d);
        let dims: Vec<usize> = (0..shape.rank()).filter(summed).collect();
        let view = |of: &str| {
            let text = format!("shape={}", list(size));
            StepText::new("Tensor.reshape", &[of], "result", &text)
        };
        if dims.is_empty() {
            return Ok(vec![view("x0")]); // a sum of integers would be i64
        }
        let text = format!("dim={} keepdim=True", list(&dims));
        Ok(vec![StepText::new("torch.sum", &["x0"], "sums", &text), view("sums")])
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, try_op};

    #[test]
    fn what_broadcasting_repeats_is_summed() {
        let run = |size: &str, x| {
            check(&*op(&format!("torch.sum_to_size s 1 1 0 1 size={size}")), &[x]).remove(0)
        };
        assert_eq!(run("(2,1)", iota([2, 3])), tensor([2, 1], &[3.0f32, 12.0]));
        assert_eq!(run("(3)", iota([2, 3])), tensor([3], &[3.0f32, 5.0, 7.0]));
        assert_eq!(run("(1,3)", iota([2, 1, 3])), tensor([1, 3], &[3.0f32, 5.0, 7.0]));
        assert_eq!(run("()", iota([2, 2])), tensor([], &[6.0f32]));
        assert_eq!(run("(2)", tensor([2], &[1u8, 2])), tensor([2], &[1u8, 2]));
        assert_eq!(run("(1)", tensor([2], &[200u8, 200])), tensor([1], &[400i64]));
        for size in ["(2)", "(1,2,3)", "(4,3)"] {
            error(&*op(&format!("torch.sum_to_size s 1 1 0 1 size={size}")), &[iota([2, 3])]);
        }
        assert!(try_op("torch.sum_to_size s 1 1 0 1 size=(-1)", &[]).is_err());
    }
}

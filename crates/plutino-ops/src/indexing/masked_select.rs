//! The elements that a mask chooses, as one row: how many depends on data.
//!
//! <https://pytorch.org/docs/stable/generated/torch.masked_select.html>: input and mask are
//! broadcast.

use crate::support::assemble::leaf;
use crate::{
    BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_tensor::stop;
use plutino_tensor::{DType, Element, Shape, Tensor, TensorError, alloc, for_dtype};

#[derive(Debug)]
struct MaskedSelect {
    input: usize,
    mask: usize,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (input, mask) = (r.required_input("input")?, r.required_input("mask")?);
    Ok(Box::new(MaskedSelect { input, mask }))
}
register_op!(build => "torch.masked_select");

impl MaskedSelect {
    /// The dtype of the input and the shape to which it and the mask are broadcast.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape), ShapeError> {
        let (x, mask) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.mask)?);
        if mask.dtype() != DType::Bool {
            let (input, expected, found) = (self.mask, "bool".into(), mask.dtype());
            return Err(ShapeError::DType { input, expected, found });
        }
        let shape = x.shape().broadcast(mask.shape())?;
        shape.checked_numel()?;
        Ok((x.dtype(), shape))
    }
}

impl Operator for MaskedSelect {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, _) = self.bind(inputs)?;
        Ok(vec![ValueSpec::Dynamic { dtype }])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, shape) = self.bind(cx.inputs)?;
        let at = [self.input, self.mask].map(|i| leaf(cx.inputs, i));
        Ok(Planned::new(Select { dtype, at, shape }))
    }
}

struct Select {
    dtype: DType,
    /// Leaves of input and mask.
    at: [usize; 2],
    /// Both, broadcast.
    shape: Shape,
}

impl Kernel for Select {
    fn name(&self) -> &str {
        "masked_select"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let [x, mask] = self.at;
        let x = cx.inputs.view(x)?.broadcast_to(self.shape.clone())?;
        let mask = cx.inputs.view(mask)?.broadcast_to(self.shape.clone())?;
        let chosen = for_dtype!(self.dtype, T => {
            match (x.as_slice::<T>(), mask.as_slice::<bool>()) {
                (Ok(x), Ok(mask)) => chosen(x, mask)?,
                _ => {
                    let pairs = stop::paced(x.iter::<T>()?.zip(mask.iter::<bool>()?), 2);
                    let chosen: Vec<T> =
                        alloc::grow(pairs.filter(|(_, chosen)| *chosen).map(|(x, _)| x))?;
                    Tensor::from_slice(&chosen, [chosen.len()])?
                }
            }
        });
        cx.outputs.emit(0, chosen)
    }
}

/// The elements that a mask of as many chooses. Every element is written where the next one is to
/// stand, and overwritten if it is not chosen: there is no branch to be guessed wrong.
fn chosen<T: Element>(x: &[T], mask: &[bool]) -> Result<Tensor, TensorError> {
    /// Elements between two looks at the signal to stop.
    const PART: usize = 1 << 16;
    let count = mask.iter().filter(|chosen| **chosen).count();
    let mut all = Tensor::zeros(T::DTYPE, [count])?;
    let (to, mut n) = (all.as_mut_slice::<T>()?, 0);
    for part in stop::parts(0..x.len().min(mask.len()), PART) {
        for (&x, &chosen) in x[part.clone()].iter().zip(&mask[part]) {
            if let Some(slot) = to.get_mut(n) {
                *slot = x;
            }
            n += usize::from(chosen);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor};

    #[test]
    fn what_the_mask_chooses() {
        let select = op("torch.masked_select m 2 1 0 1 2 $input=0 $mask=1");
        let y = check(&*select, &[iota([2, 3]), tensor([3], &[true, false, true])]);
        assert_eq!(y[0], tensor([4], &[0.0f32, 2.0, 3.0, 5.0]));
        let y = check(&*select, &[tensor([2], &[7i64, 8]), tensor([2, 1], &[true, false])]);
        assert_eq!(y[0], tensor([2], &[7i64, 8]));
        let none = check(&*select, &[iota([2]), tensor([], &[false])]);
        assert_eq!(none[0], iota([0]));
        error(&*select, &[iota([2]), tensor([3], &[true; 3])]);
        error(&*select, &[iota([2]), tensor([2], &[1u8; 2])]);
    }
}

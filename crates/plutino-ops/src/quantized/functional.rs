//! Arithmetic of quantised tensors: `torch.ao.nn.quantized.QFunctional`, which takes the place of
//! `FloatFunctional` when a model is converted.
//!
//! pnnx writes the calls of `torch.ops.quantized` as custom operators with numbered arguments.

use super::{Grid, QuantizedType, rounded};
use crate::elementwise::{Elementwise, Formula, Lowering, Term, operand};
use crate::{Arg, BuildError, NodeReader, Operator, ShapeError, register_op};
use plutino_kernels::Activation;
use plutino_kernels::elementwise::{Binary, Scalar, Unary};

register_op!(cat => "nn.quantized.cat");

/// `quantized::cat`: joined along `dim`, then rounded.
fn cat(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let grid = Grid::read(r, ["scale", "zero_point"], QuantizedType::Quint8)?;
    Ok(rounded(crate::shaping::cat::cat(r)?, grid))
}

register_op!(binary =>
    "pnnx.custom_op.quantized.add", "pnnx.custom_op.quantized.add_relu", "pnnx.custom_op.quantized.mul",
    "pnnx.custom_op.quantized.mul_relu");

/// `quantized::add(a, b, scale, zero_point)` and its kin.
fn binary(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let arguments = [operand(r, "arg_0")?, operand(r, "arg_1")?];
    let grid = Some(Grid::read(r, ["arg_2", "arg_3"], QuantizedType::Quint8)?);
    Ok(Elementwise::boxed(Arithmetic { grid, ..Arithmetic::new(r, arguments) }))
}

register_op!(scalar =>
    "pnnx.custom_op.quantized.add_scalar", "pnnx.custom_op.quantized.add_scalar_relu",
    "pnnx.custom_op.quantized.mul_scalar", "pnnx.custom_op.quantized.mul_scalar_relu");

/// `quantized::add_scalar(a, b)` and its kin: the grid moves with the numbers, so that nothing is
/// rounded.
fn scalar(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let arguments = [operand(r, "arg_0")?, operand(r, "arg_1")?];
    Ok(Elementwise::boxed(Arithmetic::new(r, arguments)))
}

/// A sum or product, perhaps clipped at 0, perhaps rounded to a grid.
#[derive(Debug)]
struct Arithmetic {
    op: Binary,
    arguments: [Arg<Scalar>; 2],
    relu: bool,
    grid: Option<Grid>,
}

impl Arithmetic {
    /// What the type's name says.
    fn new(r: &NodeReader<'_>, arguments: [Arg<Scalar>; 2]) -> Self {
        let name = r.kind().rsplit('.').next().unwrap_or_default();
        let op = if name.starts_with("add") { Binary::Add } else { Binary::Mul };
        Self { op, arguments, relu: name.ends_with("_relu"), grid: None }
    }
}

impl Formula for Arithmetic {
    fn name(&self) -> &str {
        match self.op {
            Binary::Add => "quantized_add",
            _ => "quantized_mul",
        }
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let [a, b] = &self.arguments;
        let (a, b) = (f.arg(a)?, f.arg(b)?);
        let mut y = f.binary(self.op, a, b)?;
        if self.relu {
            y = f.unary(Unary::Activation(Activation::Relu), y)?;
        }
        match &self.grid {
            Some(grid) => grid.nearest(f, y),
            None => Ok(y),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, op, tensor, try_op, values};

    /// On the grid of scale 0.5 and zero point 4.
    const A: [f32; 4] = [-2.0, 0.5, 1.5, 3.0];
    /// On the grid of scale 0.25 and zero point 8.
    const B: [f32; 4] = [-1.0, 0.25, 0.75, 2.0];

    fn run(line: &str) -> Vec<f32> {
        values(&check(&*op(line), &[tensor([1, 4], &A), tensor([1, 4], &B)])[0])
    }

    /// PyTorch: `torch.ops.quantized.add(a, b, 0.5, 2).dequantize()` and so on, of quint8.
    #[test]
    fn sums_and_products_are_rounded() {
        let two = |name: &str| {
            run(&format!(
                "pnnx.custom_op.quantized.{name} q 2 1 0 1 2 arg_2=0.5 arg_3=2 $arg_0=0 $arg_1=1"
            ))
        };
        assert_eq!(two("add"), [-1.0, 1.0, 2.0, 5.0]);
        assert_eq!(two("add_relu"), [0.0, 1.0, 2.0, 5.0]);
        assert_eq!(two("mul"), [2.0, 0.0, 1.0, 6.0]);
    }

    #[test]
    fn tensors_are_joined_and_rounded() {
        let y = run("nn.quantized.cat c 2 1 0 1 2 dim=1 scale=0.5 zero_point=2");
        assert_eq!(y, [-1.0, 0.5, 1.5, 3.0, -1.0, 0.0, 1.0, 2.0]);
        let line = "nn.quantized.cat c 1 1 0 1 dim=0 scale=0.5 zero_point=2 $tensors=0";
        let y = check(&*op(line), &[tensor([2, 2], &A)]);
        assert_eq!(y[0], tensor([2, 2], &[-1.0f32, 0.5, 1.5, 3.0]));
        assert!(try_op("nn.quantized.cat c 2 1 0 1 2 dim=1 scale=0.5 zero_point=-2", &[]).is_err());
    }

    #[test]
    fn numbers_move_the_grid() {
        let one = |name: &str, number: f32| {
            let line =
                format!("pnnx.custom_op.quantized.{name} q 1 1 0 1 arg_1={number:?} $arg_0=0");
            check(&*op(&line), &[tensor([4], &A)]).remove(0)
        };
        assert_close(&one("add_scalar", 1.5), &tensor([4], &[-0.5f32, 2.0, 3.0, 4.5]), 0.0);
        assert_close(&one("add_scalar_relu", 1.5), &tensor([4], &[0.0f32, 2.0, 3.0, 4.5]), 0.0);
        assert_close(&one("mul_scalar", -2.0), &tensor([4], &[4.0f32, -1.0, -3.0, -6.0]), 0.0);
        assert_close(&one("mul_scalar_relu", -2.0), &tensor([4], &[4.0f32, 0.0, 0.0, 0.0]), 0.0);
    }
}

//! Whether numbers are nearly equal: `isclose`, `allclose`, `equal`.

use super::table::float;
use super::{Elementwise, Formula, Lowering, Term};
use crate::support::composite::{Compose, StepText, composed};
use crate::support::promotion::Category;
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, function, register_op};
use plutino_kernels::elementwise::{Binary, Unary};
use plutino_tensor::DType;

register_op!(build => "torch.isclose", "torch.allclose");

/// <https://pytorch.org/docs/stable/generated/torch.isclose.html>,
/// <https://pytorch.org/docs/stable/generated/torch.allclose.html>: |input - other| <= atol
/// + rtol |other|.
fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (rtol, atol): (f64, f64) = (r.or("rtol", 1e-5)?, r.or("atol", 1e-8)?);
    for (key, tolerance) in [("rtol", rtol), ("atol", atol)] {
        if tolerance.is_nan() || tolerance < 0.0 {
            return Err(r.bad(key, "a number of at least 0"));
        }
    }
    let equal_nan = r.or("equal_nan", false)?;
    let inputs = [r.required_input("input")?, r.required_input("other")?];
    let close = Close { inputs, rtol, atol, equal_nan };
    match function(r.kind()) {
        "allclose" => composed(AllClose(close)),
        _ => Ok(Elementwise::boxed(close)),
    }
}

#[derive(Debug)]
struct Close {
    inputs: [usize; 2],
    rtol: f64,
    atol: f64,
    equal_nan: bool,
}

impl Formula for Close {
    fn name(&self) -> &str {
        "isclose"
    }

    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError> {
        let [a, b] = self.inputs;
        let (a, mut b) = (f.input(a)?, f.input(b)?);
        let mut close = f.binary(Binary::Eq, a.clone(), b.clone())?;
        if self.equal_nan {
            let no_a = f.binary(Binary::Ne, a.clone(), a.clone())?;
            let no_b = f.binary(Binary::Ne, b.clone(), b.clone())?;
            let neither = f.binary(Binary::LogicalAnd, no_a, no_b)?;
            close = f.binary(Binary::LogicalOr, close, neither)?;
        }
        if self.rtol == 0.0 && self.atol == 0.0 {
            return Ok(close);
        }
        if Category::of(b.dtype()) <= Category::Integer {
            b = f.cast(b, DType::F32);
        }
        let allowed = f.binary(Binary::Mul, float(self.rtol), b.clone())?;
        let allowed = f.unary(Unary::Abs, allowed)?;
        let allowed = f.binary(Binary::Add, float(self.atol), allowed)?;
        let error = f.binary(Binary::Sub, a, b)?;
        let error = f.unary(Unary::Abs, error)?;
        let finite = f.binary(Binary::Lt, error.clone(), float(f64::INFINITY))?;
        let within = f.binary(Binary::Le, error, allowed)?;
        let within = f.binary(Binary::LogicalAnd, finite, within)?;
        f.binary(Binary::LogicalOr, close, within)
    }
}

/// Whether all elements are close.
#[derive(Debug)]
struct AllClose(Close);

impl Compose for AllClose {
    fn name(&self) -> &'static str {
        "allclose"
    }

    fn inputs(&self) -> Vec<usize> {
        self.0.inputs.to_vec()
    }

    fn steps(&self, _: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let Close { rtol, atol, equal_nan, .. } = self.0;
        let equal_nan = if equal_nan { "True" } else { "False" };
        let tolerances = format!("rtol={rtol:e} atol={atol:e} equal_nan={equal_nan}");
        Ok(vec![
            StepText::new("torch.isclose", &["x0", "x1"], "close", &tolerances),
            StepText::new("torch.all", &["close"], "all", ""),
        ])
    }
}

register_op!(equal => "torch.equal");

/// <https://pytorch.org/docs/stable/generated/torch.equal.html>: whether shapes and elements are
/// the same.
fn equal(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    composed(Equal([r.required_input("input")?, r.required_input("other")?]))
}

#[derive(Debug)]
struct Equal([usize; 2]);

impl Compose for Equal {
    fn name(&self) -> &'static str {
        "equal"
    }

    fn inputs(&self) -> Vec<usize> {
        self.0.to_vec()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[a, b] = inputs else { return Err(ShapeError::Invalid("two tensors".into())) };
        if a.shape() != b.shape() {
            // Something that is never true, of rank 0.
            return Ok(vec![
                StepText::new("torch.isnan", &["x0"], "nan", ""),
                StepText::new("torch.any", &["nan"], "any", ""),
                StepText::new("torch.ne", &["any", "any"], "never", ""),
            ]);
        }
        Ok(vec![
            StepText::new("torch.eq", &["x0", "x1"], "same", ""),
            StepText::new("torch.all", &["same"], "all", ""),
        ])
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, iota, op, tensor, try_op, values};

    #[test]
    fn tolerances_infinities_and_nan() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let a = tensor([6], &[1.0f32, 1.0, inf, inf, nan, 0.0]);
        let b = tensor([6], &[1.000_005f32, 1.1, inf, -inf, nan, 1e-9]);
        let run = |line: &str| values::<bool>(&check(&*op(line), &[a.clone(), b.clone()])[0]);
        let close = run("torch.isclose c 2 1 0 1 2 $input=0 $other=1");
        assert_eq!(close, [true, false, true, false, false, true]);
        let close = run("torch.isclose c 2 1 0 1 2 rtol=0.2 equal_nan=True");
        assert_eq!(close, [true, true, true, false, true, true]);
        let close = run("torch.isclose c 2 1 0 1 2 rtol=0 atol=0");
        assert_eq!(close, [false, false, true, false, false, false]);
        assert_eq!(run("torch.allclose c 2 1 0 1 2"), [false]);
        let whole = [tensor([2], &[100i64, 3]), tensor([2], &[101i64, 3])];
        let close = check(&*op("torch.isclose c 2 1 0 1 2 rtol=0.01"), &whole);
        assert_eq!(values::<bool>(&close[0]), [true, true]);
        let close = check(&*op("torch.allclose c 2 1 0 1 2 atol=1.5"), &whole);
        assert_eq!(close[0], tensor([], &[true]));
        assert!(try_op("torch.isclose c 2 1 0 1 2 rtol=-1.0", &[]).is_err());
    }

    #[test]
    fn the_same_shape_and_elements() {
        let equal = |a, b| values::<bool>(&check(&*op("torch.equal c 2 1 0 1 2"), &[a, b])[0])[0];
        assert!(equal(iota([2, 3]), iota([2, 3])));
        assert!(!equal(iota([2, 3]), iota([6])));
        assert!(!equal(iota([2]), tensor([2], &[0.0f32, f32::NAN])));
        assert!(equal(iota([0]), iota([0])) && !equal(iota([0]), iota([0, 2])));
    }
}

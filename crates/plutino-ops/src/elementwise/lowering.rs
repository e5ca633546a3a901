//! From PyTorch's functions of tensors and Python numbers to a program of typed functions.

use super::chain::Slot;
use super::number;
use crate::support::halves::is_half;
use crate::support::promotion::{Category, Standing, inexact, result_type};
use crate::{ShapeError, TensorValue, ValueSpec, Weight};
use plutino_kernels::elementwise::{
    Binary, Builder, ElementwiseError, Program, Scalar, Unary, Value,
};
use plutino_tensor::{DType, Shape, TensorSpec};

/// A value of a formula.
#[derive(Debug, Clone)]
pub(crate) enum Term {
    /// A Python number, known by now.
    Number(Scalar),
    /// A tensor.
    Tensor(Operand),
}

/// A tensor in a formula.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    value: Value,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Whether it is a Python number that only the run will know.
    python: bool,
    /// The input leaf, where the tensor is one as it stands.
    input: Option<usize>,
}

impl Operand {
    fn standing(&self) -> Standing {
        match (self.python, self.shape.rank()) {
            (true, _) => Standing::Python,
            (_, 0) => Standing::Scalar,
            _ => Standing::Tensor,
        }
    }
}

impl Term {
    /// Dtype, and how much it counts.
    fn rank(&self) -> (DType, Standing) {
        match self {
            Self::Number(x) => (number::dtype(*x), Standing::Python),
            Self::Tensor(t) => (t.dtype, t.standing()),
        }
    }

    /// The dtype: of a tensor its own, of a number the default one of its kind.
    pub(crate) fn dtype(&self) -> DType {
        result_type([self.rank()]).unwrap_or(self.rank().0)
    }
}

/// Where a program finds an input.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// An input leaf of the operator.
    Leaf(usize),
    /// A weight of the operator.
    Weight(Weight),
}

/// What a formula comes to.
#[derive(Debug)]
pub(crate) enum Lowered {
    /// A Python number, known by now.
    Number(Scalar),
    /// This input leaf, as it is.
    Input(usize),
    /// Something to compute.
    Computed(Computed),
}

/// A program with the shapes that it is for.
#[derive(Debug)]
pub(crate) struct Computed {
    pub(crate) program: Program,
    /// For each input of the program, where it lies and in which shape it is read.
    pub(crate) sources: Vec<(Origin, Shape)>,
    /// The shape of the result.
    pub(crate) shape: Shape,
    /// Whether the result is a Python number.
    pub(crate) python: bool,
}

/// Takes a formula for given inputs, function by function: promotes, broadcasts, computes with
/// Python numbers.
pub(crate) struct Lowering<'a> {
    inputs: &'a [ValueSpec],
    builder: Builder,
    sources: Vec<(Origin, Shape)>,
    /// Inputs that have been asked for, by position and shape.
    read: Vec<(usize, Operand)>,
    /// Where the formula at work finds its inputs, if it is a part of another one.
    frame: Option<Frame>,
    /// Functions so far.
    functions: usize,
}

/// The inputs of a formula that is a part of another one.
struct Frame {
    slots: Vec<Slot>,
    specs: Vec<ValueSpec>,
}

impl<'a> Lowering<'a> {
    /// For these inputs.
    pub(crate) fn new(inputs: &'a [ValueSpec]) -> Self {
        Self {
            inputs,
            builder: Builder::new(),
            sources: Vec::new(),
            read: Vec::new(),
            frame: None,
            functions: 0,
        }
    }

    /// The inputs as planning sees them.
    pub(crate) fn specs(&self) -> &[ValueSpec] {
        self.frame.as_ref().map_or(self.inputs, |frame| &frame.specs)
    }

    /// Number of inputs.
    pub(super) fn count(&self) -> usize {
        self.specs().len()
    }

    /// Functions so far.
    pub(super) fn functions(&self) -> usize {
        self.functions
    }

    /// Lowers a formula whose inputs are these.
    pub(super) fn within<R>(&mut self, slots: Vec<Slot>, lower: impl FnOnce(&mut Self) -> R) -> R {
        let outer = |slot| match (slot, &self.frame) {
            (Slot::Input(at), Some(frame)) => frame.slots.get(at).cloned(),
            (slot, _) => Some(slot),
        };
        let slots: Vec<Slot> = slots.into_iter().filter_map(outer).collect();
        let spec = |slot: &Slot| match slot {
            Slot::Input(at) => self.inputs.get(*at).cloned(),
            Slot::Made(Term::Tensor(t)) => {
                let (spec, python) = (TensorSpec::new(t.dtype, t.shape.clone()), t.python);
                Some(ValueSpec::Tensor(TensorValue { spec, known: None, python }))
            }
            Slot::Made(Term::Number(x)) => number::spec(*x).ok(),
        };
        let specs = slots.iter().filter_map(spec).collect();
        let before = self.frame.replace(Frame { slots, specs });
        let result = lower(self);
        self.frame = before;
        result
    }

    /// Where an input of the formula at work is found.
    fn slot(&self, at: usize) -> Result<Slot, ShapeError> {
        let Some(frame) = &self.frame else { return Ok(Slot::Input(at)) };
        let missing = || ShapeError::Invalid(format!("there is no input {at}"));
        frame.slots.get(at).cloned().ok_or_else(missing)
    }

    /// The input at this position.
    ///
    /// # Errors
    /// Where it is no tensor or number of known shape.
    pub(crate) fn input(&mut self, at: usize) -> Result<Term, ShapeError> {
        let at = match self.slot(at)? {
            Slot::Made(term) => return Ok(term),
            Slot::Input(at) => at,
        };
        let spec = TensorValue::at(self.inputs, at)?;
        if let Some(x) = spec.known.as_ref().filter(|_| spec.python).and_then(number::of_tensor) {
            return Ok(Term::Number(x));
        }
        let mut operand = self.read(at, spec, spec.shape().clone())?;
        operand.input = Some(self.leaf(at));
        Ok(Term::Tensor(operand))
    }

    /// The input at this position, its elements read in another shape.
    ///
    /// # Errors
    /// Where it is no tensor of known shape, or the shape has another number of elements.
    pub(crate) fn input_as(&mut self, at: usize, shape: Shape) -> Result<Term, ShapeError> {
        let Slot::Input(at) = self.slot(at)? else {
            return Err(ShapeError::Invalid("a result in between has its own shape".into()));
        };
        let spec = TensorValue::at(self.inputs, at)?;
        if shape.checked_numel()? != spec.shape().numel() {
            return Err(ShapeError::Invalid(format!("{} cannot be read as {shape}", spec.spec)));
        }
        Ok(Term::Tensor(self.read(at, spec, shape)?))
    }

    fn read(&mut self, at: usize, spec: &TensorValue, shape: Shape) -> Result<Operand, ShapeError> {
        let before = |(i, o): &&(usize, Operand)| *i == at && o.shape == shape;
        if let Some((_, operand)) = self.read.iter().find(before) {
            return Ok(operand.clone());
        }
        let operand = self.source(Origin::Leaf(self.leaf(at)), spec.dtype(), shape, spec.python);
        self.read.push((at, operand.clone()));
        Ok(operand)
    }

    /// The first leaf of the input at this position.
    fn leaf(&self, at: usize) -> usize {
        self.inputs[..at].iter().map(ValueSpec::leaf_count).sum()
    }

    /// A weight, its elements read in this shape.
    ///
    /// # Errors
    /// Where the shape has another number of elements.
    pub(crate) fn weight(&mut self, weight: &Weight, shape: Shape) -> Result<Term, ShapeError> {
        if shape.checked_numel()? != weight.spec.shape.numel() {
            return Err(ShapeError::Invalid(format!("{} cannot be read as {shape}", weight.spec)));
        }
        let origin = Origin::Weight(weight.clone());
        Ok(Term::Tensor(self.source(origin, weight.spec.dtype, shape, false)))
    }

    fn source(&mut self, origin: Origin, dtype: DType, shape: Shape, python: bool) -> Operand {
        self.sources.push((origin, shape.clone()));
        let value = self.builder.input(dtype);
        Operand { value, dtype, shape, python, input: None }
    }

    /// A function of one argument; integers become floats where the results are none.
    ///
    /// # Errors
    /// Where the function is not defined for the argument.
    pub(crate) fn unary(&mut self, op: Unary, x: Term) -> Result<Term, ShapeError> {
        let x = match x {
            Term::Number(x) => return Ok(Term::Number(number::unary(op, x)?)),
            Term::Tensor(x) => x,
        };
        let dtype = match op {
            Unary::Square if x.dtype == DType::Bool => DType::I64,
            _ if op.is_inexact() => inexact(x.dtype),
            _ => x.dtype,
        };
        let value = self.builder.cast(x.value, dtype);
        self.functions += 1;
        let value = self.builder.unary(op, value).map_err(refused)?;
        Ok(self.made(value, x.shape, x.python))
    }

    /// A function of two arguments, promoted and broadcast.
    ///
    /// # Errors
    /// Where the shapes do not broadcast, or the function is not defined for the arguments.
    pub(crate) fn binary(&mut self, op: Binary, a: Term, b: Term) -> Result<Term, ShapeError> {
        if let (Term::Number(a), Term::Number(b)) = (&a, &b) {
            return Ok(Term::Number(number::binary(op, *a, *b)?));
        }
        let mut dtype = common_dtype([&a, &b]);
        if op.is_inexact() {
            dtype = inexact(dtype);
        }
        let (shape, python) = broadcast(&[&a, &b])?;
        // PyTorch does not round the number that it multiplies halves by, or divides them by; one
        // in a tensor without dimensions is such a number as well.
        let number = |term: &Term| match term {
            Term::Number(_) => true,
            Term::Tensor(x) => x.shape.rank() == 0,
        };
        let exact = match op {
            Binary::Mul => number(&a) || number(&b),
            Binary::Div | Binary::FloorDivide => number(&b),
            _ => false,
        };
        let within = if exact && is_half(dtype) { DType::F32 } else { dtype };
        let (a, b) = (self.value(a, within), self.value(b, within));
        self.functions += 1;
        let value = self.builder.binary(op, a, b).map_err(refused)?;
        let value = if within == dtype { value } else { self.builder.cast(value, dtype) };
        Ok(self.made(value, shape, python))
    }

    /// The tensors among the terms in the dtype of a function of them that makes no integers: where
    /// PyTorch promotes before it computes several functions.
    pub(crate) fn promoted<const N: usize>(&mut self, terms: [Term; N]) -> [Term; N] {
        let dtype = inexact(common_dtype(terms.each_ref()));
        terms.map(|term| match term {
            Term::Tensor(_) => self.cast(term, dtype),
            number => number,
        })
    }

    /// A formula of several functions that PyTorch rounds once: within it, tensors of half the
    /// width are f32.
    ///
    /// # Errors
    /// Those of the formula.
    pub(crate) fn rounded_once<const N: usize>(
        &mut self,
        terms: [Term; N],
        formula: impl FnOnce(&mut Self, [Term; N]) -> Result<Term, ShapeError>,
    ) -> Result<Term, ShapeError> {
        let Some(dtype) = result_type(terms.each_ref().map(Term::rank)).filter(|&d| is_half(d))
        else {
            return formula(self, terms);
        };
        let wide = terms.map(|term| match term {
            Term::Tensor(_) if is_half(term.dtype()) => self.cast(term, DType::F32),
            other => other,
        });
        let result = formula(self, wide)?;
        Ok(self.cast(result, dtype))
    }

    /// `a + alpha b`, or `a - alpha b`.
    ///
    /// # Errors
    /// As [`Lowering::binary`].
    pub(crate) fn sum(
        &mut self,
        op: Binary,
        a: Term,
        alpha: Term,
        b: Term,
    ) -> Result<Term, ShapeError> {
        let dtype = result_type([a.rank(), b.rank()]);
        let alpha = match (alpha, dtype) {
            (Term::Number(Scalar::Int(1)), _) => return self.binary(op, a, b),
            (Term::Number(x), Some(dtype)) => Term::Number(number::rounded(x, dtype)),
            (other, _) => other,
        };
        // The product is one of the result's dtype, which may be wider than b's.
        let b = match (b, dtype) {
            (b @ Term::Tensor(_), Some(dtype)) => self.cast(b, dtype),
            (b, _) => b,
        };
        self.rounded_once([a, b], |f, [a, b]| {
            let b = f.binary(Binary::Mul, b, alpha)?;
            f.binary(op, a, b)
        })
    }

    /// a to the power b. Common exponents have functions of their own, as in PyTorch.
    ///
    /// # Errors
    /// As [`Lowering::binary`]; also for integers with a negative exponent.
    pub(crate) fn pow(&mut self, a: Term, b: Term) -> Result<Term, ShapeError> {
        let exponent = match (&a, &b) {
            (Term::Tensor(_), Term::Number(Scalar::Int(n))) => *n as f64,
            (Term::Tensor(_), Term::Number(Scalar::Float(x))) => *x,
            _ => return self.binary(Binary::Pow, a, b),
        };
        let dtype = common_dtype([&a, &b]);
        if Category::of(dtype) <= Category::Integer {
            if exponent < 0.0 {
                return Err(ShapeError::Invalid(
                    "integers to negative integer powers are not defined".into(),
                ));
            }
            return self.binary(Binary::Pow, a, b);
        }
        let a = self.cast(a, dtype);
        match exponent {
            1.0 => Ok(a),
            2.0 => self.unary(Unary::Square, a),
            3.0 => {
                let square = self.unary(Unary::Square, a.clone())?;
                self.binary(Binary::Mul, square, a)
            }
            0.5 => self.unary(Unary::Sqrt, a),
            -0.5 => self.unary(Unary::Rsqrt, a),
            -1.0 => self.unary(Unary::Reciprocal, a),
            -2.0 => {
                let square = self.unary(Unary::Square, a)?;
                self.unary(Unary::Reciprocal, square)
            }
            _ => self.binary(Binary::Pow, a, b),
        }
    }

    /// `a` where the condition is not zero, else `b`.
    ///
    /// # Errors
    /// Where the shapes do not broadcast.
    pub(crate) fn select(&mut self, condition: Term, a: Term, b: Term) -> Result<Term, ShapeError> {
        let dtype = result_type([a.rank(), b.rank()]).unwrap_or(DType::F32);
        let (shape, python) = broadcast(&[&condition, &a, &b])?;
        let condition = self.value(condition, DType::Bool);
        let (a, b) = (self.value(a, dtype), self.value(b, dtype));
        let value = self.builder.select(condition, a, b).map_err(refused)?;
        Ok(self.made(value, shape, python))
    }

    /// The term as a tensor of this dtype; a tensor of that dtype is left as it is.
    pub(crate) fn cast(&mut self, x: Term, dtype: DType) -> Term {
        match x {
            Term::Tensor(x) if x.dtype == dtype => Term::Tensor(x),
            Term::Tensor(x) => {
                let value = self.builder.cast(x.value, dtype);
                self.made(value, x.shape, x.python)
            }
            Term::Number(x) => {
                let value = self.builder.constant(x, dtype);
                self.made(value, Shape::scalar(), false)
            }
        }
    }

    /// The tensor, its elements repeated where `shape` asks for that.
    ///
    /// # Errors
    /// Where the tensor does not broadcast to that shape.
    pub(crate) fn expand(&mut self, x: Term, shape: &Shape) -> Result<Term, ShapeError> {
        let from = match &x {
            Term::Tensor(x) if x.shape == *shape => return Ok(Term::Tensor(x.clone())),
            Term::Tensor(x) => x.shape.clone(),
            Term::Number(_) => Shape::scalar(),
        };
        if from.broadcast(shape)? != *shape {
            return Err(ShapeError::Invalid(format!("{from} does not broadcast to {shape}")));
        }
        let dtype = x.dtype();
        let value = self.value(x, dtype);
        Ok(self.made(value, shape.clone(), false))
    }

    /// The finished formula.
    pub(crate) fn finish(self, result: Term) -> Lowered {
        match result {
            Term::Number(x) => Lowered::Number(x),
            Term::Tensor(Operand { input: Some(leaf), .. }) => Lowered::Input(leaf),
            Term::Tensor(t) => Lowered::Computed(Computed {
                program: self.builder.finish(t.value),
                sources: self.sources,
                shape: t.shape,
                python: t.python,
            }),
        }
    }

    fn value(&mut self, x: Term, dtype: DType) -> Value {
        match x {
            Term::Tensor(x) => self.builder.cast(x.value, dtype),
            Term::Number(x) => self.builder.constant(number::rounded(x, dtype), dtype),
        }
    }

    fn made(&self, value: Value, shape: Shape, python: bool) -> Term {
        let dtype = self.builder.dtype(value);
        Term::Tensor(Operand { value, dtype, shape, python, input: None })
    }
}

/// The dtype in which a function computes with these terms.
pub(crate) fn common_dtype<const N: usize>(terms: [&Term; N]) -> DType {
    result_type(terms.map(Term::rank)).unwrap_or(DType::F32)
}

/// The shape to which the terms broadcast, and whether all are Python numbers.
fn broadcast(terms: &[&Term]) -> Result<(Shape, bool), ShapeError> {
    let mut shape = Shape::scalar();
    let mut python = true;
    for term in terms {
        if let Term::Tensor(t) = term {
            shape = shape.broadcast(&t.shape)?;
            python &= t.python;
        }
    }
    Ok((shape, python))
}

fn refused(e: ElementwiseError) -> ShapeError {
    match e {
        ElementwiseError::Tensor(e) => ShapeError::Tensor(e),
        other => ShapeError::Invalid(other.to_string()),
    }
}

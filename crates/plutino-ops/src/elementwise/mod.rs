//! Elementwise operators: each is a [`Formula`], written in PyTorch's terms; promotion,
//! broadcasting, layouts, in-place computing and the kernel are the same for all.

mod binary;
mod blend;
mod cast;
mod chain;
mod close;
mod frexp;
mod kernel;
mod lowering;
mod nan;
mod number;
mod select;
mod table;
mod unary;

pub(crate) use cast::To;
pub use chain::Elementary;
pub(crate) use kernel::plan;
pub(crate) use lowering::{Lowered, Lowering, Term, common_dtype};
pub(crate) use number::{
    convert as convert_number, dtype as number_dtype, tensor as number_tensor,
};

pub(crate) use table::{float, int};

use crate::{
    Arg, BuildError, Cost, LayoutCx, LayoutSupport, NodeReader, Operator, PlanCx, PlanError,
    Planned, Role, ShapeError, StrideRule, ValueSpec,
};
use plutino_kernels::elementwise::Scalar;
use std::fmt::Debug;
use std::sync::Arc;

/// What an elementwise operator computes.
pub(crate) trait Formula: Debug + Send + Sync + 'static {
    /// PyTorch's name, shown as the kernel's.
    fn name(&self) -> &str;

    /// The result, in terms of the inputs.
    ///
    /// # Errors
    /// Where PyTorch would refuse their dtypes or shapes.
    fn lower(&self, f: &mut Lowering<'_>) -> Result<Term, ShapeError>;

    /// Where the result lies as PyTorch computes it.
    fn stride_rule(&self) -> StrideRule {
        StrideRule::Elementwise
    }

    /// What the formula is in patterns of several operators.
    fn role(&self) -> Option<Role> {
        None
    }
}

/// An operator with one output, each element of which depends on those elements of the inputs that
/// broadcasting pairs with it.
#[derive(Debug)]
pub(crate) struct Elementwise(Arc<dyn Formula>);

impl Elementwise {
    /// As builders return it.
    pub(crate) fn boxed(formula: impl Formula) -> Box<dyn Operator> {
        Box::new(Self(Arc::new(formula)))
    }

    fn lowered(&self, inputs: &[ValueSpec]) -> Result<Lowered, ShapeError> {
        let mut f = Lowering::new(inputs);
        let result = self.0.lower(&mut f)?;
        Ok(f.finish(result))
    }
}

impl Operator for Elementwise {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![self.lowered(inputs)?.spec(inputs)?])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        plan(cx, self.0.name(), vec![self.lowered(cx.inputs)?])
    }

    fn role(&self, inputs: &[ValueSpec]) -> Option<Role> {
        match (self.0.role(), inputs) {
            (None, [ValueSpec::Tensor(_), ..]) => {
                matches!(self.lowered(inputs), Ok(Lowered::Input(0))).then_some(Role::Same(0))
            }
            (role, _) => role,
        }
    }

    fn elementwise(&self) -> Option<Elementary> {
        Some(Elementary(Arc::clone(&self.0)))
    }

    fn stride_rule(&self, inputs: &[ValueSpec]) -> StrideRule {
        match (self.0.stride_rule(), self.lowered(inputs)) {
            // What is no function at all hands its input on, unless the formula knows better.
            (StrideRule::Same(input), Ok(Lowered::Computed(_))) => StrideRule::Like(input),
            (rule, _) => rule,
        }
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        match self.lowered(cx.inputs) {
            Ok(lowered) => lowered.layouts(cx.inputs, cx.block()),
            Err(_) => LayoutSupport::PLAIN,
        }
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let functions = self.lowered(inputs).map_or(0, |l| l.functions());
        Cost::elementwise(inputs, outputs, functions as u64)
    }
}

/// An argument that is a parameter, the input of that name, or the next unnamed input.
///
/// # Errors
/// Where there is none, or the parameter is no number.
pub(crate) fn operand(r: &mut NodeReader<'_>, key: &str) -> Result<Arg<Scalar>, BuildError> {
    if r.has(key) {
        return r.required(key).map(Arg::Value);
    }
    r.required_input(key).map(Arg::Input)
}

impl Lowering<'_> {
    /// An argument: a number or an input.
    ///
    /// # Errors
    /// As [`Lowering::input`].
    pub(crate) fn arg(&mut self, arg: &Arg<Scalar>) -> Result<Term, ShapeError> {
        match arg {
            Arg::Value(x) => Ok(Term::Number(*x)),
            Arg::Input(at) => self.input(*at),
        }
    }
}

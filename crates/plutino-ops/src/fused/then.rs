//! Two operators in one node of the graph: a convolution, then the rounding of its result.

use crate::{
    Alias, Cost, Input, Inputs, Kernel, LayoutSupport, Operator, Output, Outputs, PlanCx,
    PlanError, Planned, RunCx, RunError, ShapeError, ValueSpec,
};
use plutino_tensor::TensorSpec;
use smallvec::smallvec;

/// `next` of what `first` computes: one tensor, which `next` overwrites with one of the same dtype
/// and shape.
#[derive(Debug)]
pub(crate) struct Then {
    pub(crate) first: Box<dyn Operator>,
    pub(crate) next: Box<dyn Operator>,
}

impl Operator for Then {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.next.infer(&self.first.infer(inputs)?)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let refuse = |what: &str| PlanError::Unsupported(format!("{what} in a chain of operators"));
        let first = self.first.plan(cx)?;
        let next = self.next.plan(&PlanCx { inputs: cx.outputs, ..*cx })?;
        let source = match (first.kernel, first.alias.first()) {
            (Some(kernel), _) => Before::Computes(kernel),
            (None, Some(&Alias::View { input, offset })) => Before::Views { input, offset },
            (None, _) => return Err(refuse("a known value")),
        };
        let (Some(kernel), Some(Alias::InPlace { input: 0 })) = (next.kernel, next.alias.first())
        else {
            return Err(refuse("a result that cannot be overwritten"));
        };
        let name = match &source {
            Before::Computes(first) => format!("{}+{}", first.name(), kernel.name()),
            Before::Views { .. } => kernel.name().to_owned(),
        };
        let scratch = first.scratch.max(next.scratch);
        Ok(Planned::new(Chain { name, first: source, next: kernel }).with_scratch(scratch))
    }

    fn layouts(&self, inputs: &[ValueSpec], block: usize) -> LayoutSupport {
        self.first.layouts(inputs, block)
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let (first, next) = (self.first.cost(inputs, outputs), self.next.cost(outputs, outputs));
        Cost {
            flops: first.flops.saturating_add(next.flops),
            bytes: first.bytes.saturating_add(next.bytes),
        }
    }
}

/// Where the second kernel finds its input.
enum Before {
    /// In the output, computed by this one.
    Computes(Box<dyn Kernel>),
    /// In an input leaf, from this element on.
    Views { input: usize, offset: usize },
}

struct Chain {
    name: String,
    first: Before,
    next: Box<dyn Kernel>,
}

impl Kernel for Chain {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (spec, result) = cx.outputs.take_bytes(0)?;
        let bytes = match &self.first {
            Before::Computes(first) => {
                let mut inner = RunCx {
                    inputs: Inputs(cx.inputs.0.iter().copied().collect()),
                    outputs: only(spec, result),
                    scratch: &mut *cx.scratch,
                    par: cx.par,
                };
                first.run(&mut inner)?;
                None
            }
            Before::Views { input, offset } => {
                let start = offset.saturating_mul(spec.dtype.size_of());
                let part =
                    cx.inputs.bytes(*input)?.get(start..).and_then(|b| b.get(..result.len()));
                Some(
                    part.ok_or_else(|| RunError::Internal("a view lies outside its input".into()))?,
                )
            }
        };
        let mut inner = RunCx {
            inputs: Inputs(smallvec![Input { spec, bytes }]),
            outputs: only(spec, result),
            scratch: &mut *cx.scratch,
            par: cx.par,
        };
        self.next.run(&mut inner)
    }
}

/// The only output of a kernel.
pub(crate) fn only<'a>(spec: &'a TensorSpec, bytes: &'a mut [u8]) -> Outputs<'a> {
    Outputs(smallvec![Some(Output::Fixed { spec, bytes })])
}

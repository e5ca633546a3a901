//! Operators with several results, each of them computed by an operator of its own from the same
//! inputs.

use crate::{
    Alias, Cost, Input, Inputs, Kernel, Operator, Outputs, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, TensorValue, ValueSpec,
};
use plutino_tensor::DType;
use smallvec::smallvec;

/// The parts, by their results.
#[derive(Debug)]
struct Several(Vec<Box<dyn Operator>>);

/// An operator whose results are those of `parts`, each of which has one and reads the inputs of
/// the whole.
pub(crate) fn several(parts: Vec<Box<dyn Operator>>) -> Box<dyn Operator> {
    Box::new(Several(parts))
}

impl Operator for Several {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let mut outputs = Vec::with_capacity(self.0.len());
        for part in &self.0 {
            let found = part.infer(inputs)?;
            let [one] = <[_; 1]>::try_from(found)
                .map_err(|_| ShapeError::Invalid("internal: a part has one result".into()))?;
            outputs.push(one);
        }
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let mut kernels = Vec::new();
        let mut alias = vec![Alias::None; self.0.len()];
        let mut scratch = 0;
        for (i, (part, output)) in self.0.iter().zip(cx.outputs).enumerate() {
            let planned = part.plan(&PlanCx { outputs: std::slice::from_ref(output), ..*cx })?;
            scratch = scratch.max(planned.scratch);
            match (planned.kernel, planned.alias.first()) {
                // Others read the inputs, too: nothing is computed in place.
                (Some(kernel), _) => kernels.push((i, kernel)),
                (None, Some(&view)) => alias[i] = view,
                (None, None) => {}
            }
        }
        let mut planned = match kernels.is_empty() {
            true => Planned::views(Vec::new()),
            false => Planned::new(Kernels(kernels)).with_scratch(scratch),
        };
        planned.alias = alias;
        Ok(planned)
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        self.0.iter().zip(outputs).fold(Cost::default(), |all, (part, output)| {
            let cost = part.cost(inputs, std::slice::from_ref(output));
            Cost {
                flops: all.flops.saturating_add(cost.flops),
                bytes: all.bytes.saturating_add(cost.bytes),
            }
        })
    }
}

/// Kernels of parts, by the number of their result.
struct Kernels(Vec<(usize, Box<dyn Kernel>)>);

impl Kernel for Kernels {
    fn name(&self) -> &str {
        self.0.first().map_or("several", |(_, kernel)| kernel.name())
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for (i, kernel) in &self.0 {
            let output = cx.outputs.0.get_mut(*i).and_then(Option::take);
            let output = output.ok_or_else(|| RunError::Internal(format!("no output {i}")))?;
            let inputs = cx.inputs.0.iter().map(|&Input { spec, bytes }| Input { spec, bytes });
            kernel.run(&mut RunCx {
                inputs: Inputs(inputs.collect()),
                outputs: Outputs(smallvec![Some(output)]),
                scratch: &mut *cx.scratch,
                par: cx.par,
            })?;
        }
        Ok(())
    }
}

/// A result without elements, of an input's dtype or this one.
#[derive(Debug)]
pub(crate) struct Nothing {
    pub(crate) input: usize,
    pub(crate) dtype: Option<DType>,
}

impl Operator for Nothing {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        Ok(vec![ValueSpec::tensor(self.dtype.unwrap_or(dtype), [0])])
    }

    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::new(Nowhere))
    }
}

struct Nowhere;

impl Kernel for Nowhere {
    fn name(&self) -> &str {
        "nothing"
    }

    fn run(&self, _: &mut RunCx<'_>) -> Result<(), RunError> {
        Ok(())
    }
}

//! Several operators in one node of the graph, on the same inputs: the mean beside the variance.

use crate::{
    Cost, Inputs, Kernel, Operator, Outputs, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, ValueSpec,
};

/// The outputs of all parts, one part after the other. Each part computes one tensor.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) name: &'static str,
    pub(crate) parts: Vec<Box<dyn Operator>>,
}

impl Operator for Beside {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let mut outputs = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            outputs.extend(part.infer(inputs)?);
        }
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let refuse = || PlanError::Unsupported(format!("{} without a kernel", self.name));
        let (mut kernels, mut scratch) = (Vec::with_capacity(self.parts.len()), 0);
        for (part, output) in self.parts.iter().zip(cx.outputs) {
            let outputs = std::slice::from_ref(output);
            let planned = part.plan(&PlanCx { outputs, ..*cx })?;
            scratch = scratch.max(planned.scratch);
            kernels.push(planned.kernel.ok_or_else(refuse)?);
        }
        Ok(Planned::new(Parts { name: self.name, kernels }).with_scratch(scratch))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let parts = self.parts.iter().zip(outputs);
        parts.fold(Cost::default(), |all, (part, output)| {
            let cost = part.cost(inputs, std::slice::from_ref(output));
            Cost {
                flops: all.flops.saturating_add(cost.flops),
                bytes: all.bytes.saturating_add(cost.bytes),
            }
        })
    }
}

struct Parts {
    name: &'static str,
    kernels: Vec<Box<dyn Kernel>>,
}

impl Kernel for Parts {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for (i, kernel) in self.kernels.iter().enumerate() {
            let output = cx.outputs.0.get_mut(i).and_then(Option::take);
            let mut inner = RunCx {
                inputs: Inputs(cx.inputs.0.iter().copied().collect()),
                outputs: Outputs(std::iter::once(output).collect()),
                scratch: &mut *cx.scratch,
                par: cx.par,
            };
            kernel.run(&mut inner)?;
        }
        Ok(())
    }
}

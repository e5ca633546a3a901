//! A depthwise convolution and the 1x1 convolutions before and after it in one node of the graph:
//! what lies between them is made some rows at a time, and stays in cache.

use crate::convolution::conv::Conv;
use crate::convolution::kernel;
use crate::{
    Cost, LayoutCx, LayoutSupport, Operator, PlanCx, PlanError, Planned, Setting, ShapeError,
    ValueSpec,
};
use plutino_kernels::conv;
use plutino_tensor::Layout;

/// Convolutions, one of what the one before makes, in channel blocks: 1x1, depthwise, 1x1, of which
/// the first or the last one can be missing. A residual of the last one is the last input.
#[derive(Debug, Clone)]
pub struct FusedDepthwise {
    /// The 1x1 convolution before.
    pub before: Option<Conv>,
    /// The depthwise convolution.
    pub depthwise: Conv,
    /// The 1x1 convolution after it.
    pub after: Option<Conv>,
}

impl FusedDepthwise {
    /// Whether they can be computed as one, and are better so: for inputs in these layouts, that of
    /// the first one and then the others of the last one.
    pub fn pays(&self, inputs: &[ValueSpec], setting: Setting) -> bool {
        let blocks = Layout::Blocked { block: setting.isa.lanes() };
        let blocked = |input: &ValueSpec| {
            input.as_tensor().is_some_and(|t| t.spec.layout == blocks && !t.python)
        };
        inputs.iter().all(blocked) && self.fused(inputs, setting).is_ok_and(|conv| conv.is_some())
    }

    fn layers(&self) -> impl DoubleEndedIterator<Item = &Conv> {
        self.before.iter().chain([&self.depthwise]).chain(&self.after)
    }

    /// Inputs and output of each layer.
    fn values(&self, inputs: &[ValueSpec]) -> Result<Vec<(Vec<ValueSpec>, ValueSpec)>, ShapeError> {
        let nothing = || ShapeError::Invalid("a convolution that reads or makes nothing".into());
        let (mut x, others) =
            inputs.split_first().map(|(x, o)| (x.clone(), o)).ok_or_else(nothing)?;
        let (mut values, last) = (Vec::new(), self.layers().count().saturating_sub(1));
        for (i, layer) in self.layers().enumerate() {
            let others = if i == last { others } else { &[] };
            let own: Vec<ValueSpec> = std::iter::once(x).chain(others.iter().cloned()).collect();
            x = layer.infer(&own)?.into_iter().next().ok_or_else(nothing)?;
            values.push((own, x.clone()));
        }
        Ok(values)
    }

    fn fused(
        &self,
        inputs: &[ValueSpec],
        setting: Setting,
    ) -> Result<Option<conv::FusedDepthwise>, ShapeError> {
        let values = self.values(inputs)?;
        let mut sized = Vec::with_capacity(values.len());
        for (layer, (own, _)) in self.layers().zip(&values) {
            sized.push((&layer.weighted, layer.problem(own)?.0));
        }
        let mut sized = sized.into_iter();
        let before = self.before.as_ref().and_then(|_| sized.next());
        let Some(depthwise) = sized.next() else { return Ok(None) };
        Ok(kernel::fused_depthwise([before, sized.next()], depthwise, setting))
    }
}

impl Operator for FusedDepthwise {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(self.values(inputs)?.pop().map(|(_, made)| made).into_iter().collect())
    }

    fn layouts(&self, _: &LayoutCx<'_>) -> LayoutSupport {
        LayoutSupport::BLOCKS
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let apart = || PlanError::Unsupported("convolutions that are computed apart".into());
        let conv = self.fused(cx.inputs, cx.setting)?.ok_or_else(apart)?;
        let weighted: Vec<_> = self.layers().map(|layer| &layer.weighted).collect();
        kernel::plan_fused_depthwise(conv, &weighted, cx)
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let Ok(values) = self.values(inputs) else { return Cost::moved(inputs, outputs) };
        let made = std::slice::from_ref::<ValueSpec>;
        let each = self.layers().zip(&values).map(|(layer, (own, y))| layer.cost(own, made(y)));
        let all = each.fold(Cost::default(), Cost::plus);
        // What lies between is neither read nor written.
        let between = values.iter().rev().skip(1).map(|(_, value)| made(value));
        let hidden = between.map(|v| Cost::moved(v, v).bytes).fold(0, u64::saturating_add);
        Cost { bytes: all.bytes.saturating_sub(hidden), ..all }
    }
}

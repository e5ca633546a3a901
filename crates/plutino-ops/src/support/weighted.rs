//! What convolutions and linear layers have in common: a weight, a bias, and what follows the sums.
//!
//! ```text
//! y = activation(product(x, weight) + bias + residual)   or   activation(...) + residual
//! ```

use crate::support::weights::{self, Bound, Source};
use crate::{
    BuildError, Cost, Inputs, Neighbour, NodeReader, PlanCx, PlanError, RunError, ShapeError,
    TensorValue, ValueSpec, Weight,
};
use plutino_kernels::Activation;
use plutino_kernels::activation::exact;
use plutino_kernels::conv::{PostOps, ResidualOrder};
use plutino_kernels::number::{Float, Number, Wide};
use plutino_tensor::{DType, TensorSpec};

/// An operator's weights and what it has absorbed.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    /// The input that is multiplied.
    pub(crate) input: usize,
    pub(crate) weight: Source,
    pub(crate) bias: Option<Source>,
    /// Factors are input 1; a residual is the last input.
    pub(crate) post_ops: PostOps,
}

impl Weighted {
    /// Nothing absorbed.
    pub(crate) fn new(input: usize, weight: Source, bias: Option<Source>) -> Self {
        Self { input, weight, bias, post_ops: PostOps::default() }
    }

    /// Of a function: input, weight and bias are its inputs.
    pub(crate) fn of_function(r: &mut NodeReader<'_>) -> Result<Self, BuildError> {
        let input = r.required_input("input")?;
        let weight = Source::Input(r.required_input("weight")?);
        Ok(Self::new(input, weight, Source::optional_input(r, "bias")?))
    }

    /// With an activation or a residual that follows, or a scale and a shift of its outputs, where
    /// these are the rows of the weight; none where what is absorbed already comes later.
    pub(crate) fn absorb(&self, neighbour: &Neighbour) -> Option<Self> {
        let mut new = self.clone();
        let PostOps { activation, residual, .. } = self.post_ops;
        match neighbour {
            Neighbour::Activation(next)
                if activation.is_none() && residual != Some(ResidualOrder::AfterActivation) =>
            {
                new.post_ops.activation = Some(*next);
            }
            Neighbour::Add if residual.is_none() => {
                new.post_ops.residual = Some(match activation {
                    Some(_) => ResidualOrder::AfterActivation,
                    None => ResidualOrder::BeforeActivation,
                });
            }
            Neighbour::Affine(affine) if activation.is_none() && residual.is_none() => {
                let (weight, bias) =
                    weights::with_affine(&self.weight, self.bias.as_ref(), affine)?;
                (new.weight, new.bias) = (weight, Some(bias));
            }
            Neighbour::Stored(slot, weight) => return self.with_stored(*slot, weight),
            _ => return None,
        }
        Some(new)
    }

    /// With a constant in the place of an input; none where that is neither weight nor bias.
    fn with_stored(&self, slot: usize, weight: &Weight) -> Option<Self> {
        let mut new = self.clone();
        let mut found = false;
        for source in std::iter::once(&mut new.weight).chain(&mut new.bias) {
            match source {
                Source::Input(at) if *at == slot => {
                    (*source, found) = (Source::Stored(weight.clone()), true);
                }
                Source::Input(at) if *at > slot => *at -= 1,
                _ => {}
            }
        }
        if new.input > slot {
            new.input -= 1;
        }
        (found && self.input != slot && self.post_ops == PostOps::default()).then_some(new)
    }

    /// The input leaf that is added.
    pub(crate) fn residual(&self, inputs: &[ValueSpec]) -> Option<usize> {
        self.post_ops.residual.map(|_| inputs.len().saturating_sub(1))
    }

    /// Whether weight and bias are in the model file.
    pub(crate) fn is_stored(&self) -> bool {
        let stored = |source: &Source| source.stored().is_some();
        stored(&self.weight) && self.bias.as_ref().is_none_or(stored)
    }

    /// Arithmetic and memory traffic of so many operations: those of inputs and outputs, and what
    /// only the operator knows of, its own weight and the activation of its results.
    pub(crate) fn cost(&self, flops: u64, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let weight = self.weight.stored().and_then(|_| self.weight.spec(&[]).ok());
        let weight = weight.map_or(0, |weight| weight.storage_bytes().unwrap_or(0) as u64);
        let activations = match self.post_ops.activation {
            Some(activation) if !activation.is_cheap() => {
                TensorValue::at(outputs, 0).map_or(0, |y| y.shape().numel() as u64)
            }
            _ => 0,
        };
        Cost::moved(inputs, outputs).plus(Cost { flops, bytes: weight, activations })
    }

    /// Checks that the bias is one number for each output.
    pub(crate) fn check_bias(
        &self,
        outputs: &[usize],
        dtype: DType,
        inputs: &[ValueSpec],
    ) -> Result<(), ShapeError> {
        let Some(bias) = &self.bias else { return Ok(()) };
        let spec = bias.spec(inputs)?;
        if spec.shape.dims() == outputs && spec.dtype == dtype {
            return Ok(());
        }
        let expected = TensorSpec::new(dtype, outputs);
        Err(ShapeError::Invalid(format!("the bias must be {expected}, found {spec}")))
    }

    /// Checks that the residual is as the output.
    pub(crate) fn check_residual(
        &self,
        output: &TensorSpec,
        inputs: &[ValueSpec],
    ) -> Result<(), ShapeError> {
        let Some(input) = self.residual(inputs) else { return Ok(()) };
        let residual = &TensorValue::at(inputs, input)?.spec;
        if (&residual.shape, residual.dtype) == (&output.shape, output.dtype) {
            return Ok(());
        }
        Err(ShapeError::Invalid(format!("cannot add {residual} to {output}")))
    }

    /// What a kernel of a dtype without vector kernels needs; `apply` where it has activations.
    pub(crate) fn of_any<T: Number>(
        &self,
        cx: &PlanCx<'_>,
        apply: Option<Activate<T>>,
    ) -> Result<AnyWeighted<T>, PlanError> {
        let activation = match (self.post_ops.activation, apply) {
            (Some(activation), None) => {
                let what = format!("{} of this dtype", activation.name());
                return Err(PlanError::Unsupported(what));
            }
            (activation, apply) => activation.zip(apply),
        };
        Ok(AnyWeighted {
            input: self.input,
            weight: self.weight.elements(cx.inputs)?,
            bias: self.bias.as_ref().map(|b| b.elements(cx.inputs)).transpose()?,
            residual: self.residual(cx.inputs).zip(self.post_ops.residual),
            activation,
        })
    }
}

/// An activation function of a dtype without vector kernels.
pub(crate) type Activate<T> = fn(Activation, &mut [T]);

/// Applies an activation element by element.
pub(crate) fn activate<T: Float>(activation: Activation, y: &mut [T]) {
    for v in y {
        *v = T::narrow(exact(activation, v.widen()));
    }
}

/// [`Weighted`] in a kernel of a dtype without vector kernels.
pub(crate) struct AnyWeighted<T> {
    pub(crate) input: usize,
    pub(crate) weight: Bound<[T]>,
    pub(crate) bias: Option<Bound<[T]>>,
    residual: Option<(usize, ResidualOrder)>,
    activation: Option<(Activation, Activate<T>)>,
}

impl<T: Number> AnyWeighted<T> {
    /// Does to sums with their bias what was absorbed.
    pub(crate) fn finish(&self, y: &mut [T], inputs: &Inputs<'_>) -> Result<(), RunError> {
        let add = |y: &mut [T], when: ResidualOrder| -> Result<(), RunError> {
            if let Some((input, _)) = self.residual.filter(|(_, order)| *order == when) {
                for (y, x) in y.iter_mut().zip(inputs.get::<T>(input)?) {
                    *y = T::narrow(y.widen().plus(x.widen()));
                }
            }
            Ok(())
        };
        add(y, ResidualOrder::BeforeActivation)?;
        if let Some((activation, apply)) = self.activation {
            apply(activation, y);
        }
        add(y, ResidualOrder::AfterActivation)
    }
}

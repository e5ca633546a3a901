//! Where an operator's weights come from, and how they reach its kernel.

use crate::support::assemble::leaf;
use crate::support::halves::is_half;
use crate::{
    BuildError, ChannelAffine, F32View, Inputs, NodeReader, PackCache, Packed, PlanError, RunError,
    ShapeError, TensorValue,
};
use crate::{ValueSpec, Weight};
use plutino_kernels::PackKey;
use plutino_tensor::{DType, Element, FloatSource, Floats, Tensor, TensorSpec};
use std::sync::Arc;

/// The weight and the bias of a module.
pub(crate) type Stored = (Weight, Option<Weight>);

/// `weight` of this shape and, where the parameter `bias` has it, `bias` with a number for each
/// output.
pub(crate) fn of_module(r: &mut NodeReader<'_>, shape: &[usize]) -> Result<Stored, BuildError> {
    let bias = r.or("bias", true)?;
    Ok((r.weight("weight", shape)?, r.weight_if(bias, "bias", &shape[..1])?))
}

/// A weight of a module (`nn.Conv2d`), or an input of a function (`F.conv2d`).
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// In the model file.
    Stored(Weight),
    /// The input at this position.
    Input(usize),
}

/// Something a kernel needs: made while planning, or from an input at every run.
pub(crate) enum Bound<T: ?Sized> {
    /// Made while planning.
    Ready(Arc<T>),
    /// To be made from this input leaf.
    AtRun(usize),
}

impl Source {
    /// The bias of a function: an input, or the parameter `bias=None`.
    pub(crate) fn optional_input(
        reader: &mut NodeReader<'_>,
        key: &str,
    ) -> Result<Option<Self>, BuildError> {
        if reader.has(key) && reader.optional::<String>(key)?.is_some() {
            return Err(reader.bad(key, "None, or an input"));
        }
        Ok(if reader.has(key) { None } else { reader.input(key).map(Self::Input) })
    }

    /// The weight, where it is in the model file.
    pub(crate) fn stored(&self) -> Option<&Weight> {
        match self {
            Self::Stored(weight) => Some(weight),
            Self::Input(_) => None,
        }
    }

    /// Dtype and shape.
    pub(crate) fn spec<'a>(
        &'a self,
        inputs: &'a [ValueSpec],
    ) -> Result<&'a TensorSpec, ShapeError> {
        match self {
            Self::Stored(weight) => Ok(&weight.spec),
            Self::Input(i) => Ok(&TensorValue::at(inputs, *i)?.spec),
        }
    }

    /// The value, where it does not depend on the model's inputs.
    fn known(&self, inputs: &[ValueSpec]) -> Result<Option<Tensor>, PlanError> {
        match self {
            Self::Stored(weight) => Ok(Some(weight.tensor()?)),
            Self::Input(i) => Ok(TensorValue::at(inputs, *i)?.known.clone()),
        }
    }

    /// The elements as f32, where they do not depend on the model's inputs.
    ///
    /// # Errors
    /// Where a stored weight was not loaded, or the weight is no real float.
    pub(crate) fn view_f32(&self, inputs: &[ValueSpec]) -> Result<Option<Elements<'_>>, PlanError> {
        Ok(match self {
            Self::Stored(weight) => Some(Elements::Stored(weight.view_f32()?)),
            Self::Input(_) => self.known(inputs)?.map(Elements::Known),
        })
    }

    /// Whether the value does not depend on the model's inputs.
    pub(crate) fn is_known(&self, inputs: &[ValueSpec]) -> bool {
        match self {
            Self::Stored(_) => true,
            Self::Input(i) => TensorValue::at(inputs, *i).is_ok_and(|t| t.known.is_some()),
        }
    }

    /// What `pack` makes of the weight, shared under this key (see [`PackCache::get`]).
    pub(crate) fn packed<T: Packed>(
        &self,
        inputs: &[ValueSpec],
        packs: &PackCache,
        key: PackKey,
        pack: impl FnOnce(&mut dyn FloatSource) -> Result<T, PlanError>,
    ) -> Result<Bound<T>, PlanError> {
        match self {
            Self::Stored(weight) => {
                packs.get(&weight.name, key, || weight.read_f32(pack)?).map(Bound::Ready)
            }
            &Self::Input(i) => Ok(match self.known(inputs)? {
                Some(tensor) => {
                    let mut floats = Floats::from(tensor.as_slice::<f32>()?);
                    Bound::Ready(Arc::new(pack(&mut floats)?))
                }
                None => Bound::AtRun(leaf(inputs, i)),
            }),
        }
    }

    /// As [`Source::elements`], with those of a stored weight shared by all plans.
    pub(crate) fn shared_elements<T: Element>(
        &self,
        inputs: &[ValueSpec],
        packs: &PackCache,
    ) -> Result<Bound<[T]>, PlanError> {
        let Some(weight) = self.stored() else { return self.elements(inputs) };
        let key = PackKey { form: "elements as stored", ..PackKey::as_stored(T::DTYPE) };
        let shared = packs.get(&weight.name, key, || {
            Ok::<Arc<[T]>, PlanError>(read_as::<T>(weight.tensor()?)?.as_slice::<T>()?.into())
        })?;
        Ok(Bound::Ready(Arc::clone(&shared)))
    }

    /// The elements as they are.
    pub(crate) fn elements<T: Element>(
        &self,
        inputs: &[ValueSpec],
    ) -> Result<Bound<[T]>, PlanError> {
        Ok(match (self.known(inputs)?, self) {
            (Some(tensor), _) => Bound::Ready(read_as::<T>(tensor)?.as_slice::<T>()?.into()),
            (None, Self::Input(i)) => Bound::AtRun(leaf(inputs, *i)),
            (None, Self::Stored(weight)) => {
                return Err(PlanError::NoWeights { name: weight.name.to_string() });
            }
        })
    }
}

/// The tensor for a kernel of `T`: one that is stored by halves is read by kernels of f32, too.
fn read_as<T: Element>(tensor: Tensor) -> Result<Tensor, PlanError> {
    let wide = T::DTYPE == DType::F32 && is_half(tensor.dtype());
    Ok(if wide { tensor.cast(DType::F32)? } else { tensor })
}

/// Weight and bias (with as many numbers as the weight has rows) of what multiplies its results by
/// a scale and adds a shift; none where they are not stored as f32, or of other channels.
pub(crate) fn with_affine(
    weight: &Source,
    bias: Option<&Source>,
    affine: &ChannelAffine,
) -> Option<(Source, Source)> {
    let scaled = weight.stored()?.scaled(&affine.key, &affine.scale)?;
    let before = match bias {
        Some(bias) => Some(bias.stored().filter(|b| b.spec.dtype == DType::F32)?.to_f32().ok()?),
        None => None,
    };
    let sum = |(i, (scale, shift)): (usize, (&f64, &f64))| {
        let before = before.as_deref().and_then(|b| b.get(i)).copied().unwrap_or(0.0);
        (f64::from(before) * scale + shift) as f32
    };
    let bias: Vec<f32> =
        affine.scale.iter().zip(affine.shift.iter()).enumerate().map(sum).collect();
    let name = format!("{} + bias", scaled.name).into();
    let bias = Tensor::from_slice(&bias, [bias.len()]).ok()?;
    let bias = Weight::computed(name, bias.spec(), Some(bias));
    scaled.is_loaded().then_some((Source::Stored(scaled), Source::Stored(bias)))
}

/// The elements of a weight that is known while planning.
pub(crate) enum Elements<'a> {
    /// Of the model file.
    Stored(F32View<'a>),
    /// A known input, of f32.
    Known(Tensor),
}

impl Elements<'_> {
    /// The elements.
    ///
    /// # Errors
    /// Where an input is no f32.
    pub(crate) fn floats(&self) -> Result<Floats<'_>, PlanError> {
        Ok(match self {
            Self::Stored(view) => view.floats(),
            Self::Known(tensor) => tensor.as_slice::<f32>()?.into(),
        })
    }
}

impl<T: Element> Bound<[T]> {
    /// The elements, in a run.
    pub(crate) fn get<'s, 'i: 's>(&'s self, inputs: &Inputs<'i>) -> Result<&'s [T], RunError> {
        match self {
            Self::Ready(elements) => Ok(elements),
            Self::AtRun(i) => inputs.get(*i),
        }
    }
}

/// The elements of an optional vector, in a run.
pub(crate) fn optional<'s, 'i: 's, T: Element>(
    bound: &'s Option<Bound<[T]>>,
    inputs: &Inputs<'i>,
) -> Result<Option<&'s [T]>, RunError> {
    bound.as_ref().map(|b| b.get(inputs)).transpose()
}

//! Plans of the layers, packed weights, and the kernels that run them.

use super::*;
use plutino_kernels::recurrent::{PackedDirection, PackedInputs, Weights};
use plutino_tensor::Floats;

impl Network {
    /// For each result, the output that it is.
    pub(super) fn slots(&self) -> Slots {
        let slot = |part| self.outputs.iter().position(|&other| other == part);
        [Part::Sequence, Part::Hidden, Part::Cell].map(slot)
    }

    pub(super) fn plan_f32(
        &self,
        cx: &PlanCx<'_>,
        results: &Results,
        shapes: &[Shape],
    ) -> Result<Planned, PlanError> {
        let target = Target::this(cx.isa);
        let reduced = self.reduced(cx)?;
        let layers: Vec<(Recurrent, Arc<PackedLayer>)> = (self.layers.iter().zip(shapes))
            .map(|(directions, shape)| {
                let reduced = reduced.of(shape);
                let key = PackedLayer::key(cx.isa, reduced);
                let pack = || pack(target, shape, directions, (cx.inputs, reduced));
                let stored = directions.first().and_then(|d| d.weight_ih.stored());
                let weights = match stored {
                    Some(first) => cx.packs.get(&first.name, key, pack)?,
                    None => Arc::new(pack()?),
                };
                Ok((Recurrent::new(target, cx.threads, *shape, reduced), weights))
            })
            .collect::<Result<_, PlanError>>()?;
        let scratch = layers.iter().map(|(layer, _)| layer.scratch(cx.threads)).max().unwrap_or(0);
        // Results that are no outputs are computed nevertheless.
        let lens = results.lens();
        let kept = std::iter::zip(self.slots(), lens).filter(|(slot, _)| slot.is_none());
        let kept = kept.map(|(_, len)| len).fold(0, usize::saturating_add);
        let kernel = RecurrentKernel {
            name: match (reduced.inputs, shapes.first().and_then(|shape| reduced.of(shape).steps)) {
                (Some(unit), _) => format!("recurrent.{unit}"),
                (None, Some(narrow)) => format!("recurrent.{}.{}", narrow.dtype(), cx.isa),
                (None, None) => format!("recurrent.{}", cx.isa),
            },
            layers,
            input: self.input,
            initial: self.initial.clone(),
            slots: self.slots(),
            lens,
        };
        let bytes = scratch.saturating_add(kept).saturating_mul(size_of::<f32>());
        Ok(Planned::new(kernel).with_scratch(bytes))
    }

    /// What of f32 is not computed as such.
    fn reduced(&self, cx: &PlanCx<'_>) -> Result<Reduced, PlanError> {
        let stored = self.dtype(cx.inputs)?;
        // Weights of f16 have more bits than one bf16.
        let inputs = cx.unit().filter(|_| stored != DType::F16);
        let one = matches!(inputs, Some(MatrixUnit::Pairs(_) | MatrixUnit::Tiles(_, Terms::One)));
        let steps = match cx.weights.narrow(stored) {
            // Other numbers may lie beyond it.
            Some(Narrow::F16) if stored != DType::F16 => None,
            None => one.then_some(Narrow::Bf16),
            asked => asked,
        };
        // Large batches have steps of f32, which are the same where nothing was rounded.
        let same = steps == Narrow::of(stored);
        Ok(Reduced { inputs, steps: steps.filter(|_| same || !cx.batch_invariant) })
    }

    pub(super) fn plan_any<T: Float>(
        &self,
        cx: &PlanCx<'_>,
        lens: [usize; 3],
        shapes: Vec<Shape>,
    ) -> Result<Planned, PlanError> {
        let elements = |weight: &Source| weight.elements::<T>(cx.inputs);
        let direction = |d: &Direction| {
            Ok(AnyDirection {
                input: elements(&d.weight_ih)?,
                recurrent: elements(&d.weight_hh)?,
                bias: (d.bias.as_ref())
                    .map(|(ih, hh)| Ok::<_, PlanError>([elements(ih)?, elements(hh)?]))
                    .transpose()?,
                projection: d.weight_hr.as_ref().map(elements).transpose()?,
            })
        };
        let layers = (self.layers.iter().zip(shapes))
            .map(|(layer, shape)| {
                Ok((shape, layer.iter().map(direction).collect::<Result<_, PlanError>>()?))
            })
            .collect::<Result<_, PlanError>>()?;
        let (input, initial, slots) = (self.input, self.initial.clone(), self.slots());
        Ok(Planned::new(AnyRecurrent::<T> { layers, input, initial, slots, lens }))
    }
}

/// The elements of a weight that is known while planning.
fn view<'a>(weight: &'a Source, inputs: &[ValueSpec]) -> Result<Elements<'a>, PlanError> {
    let unknown = || PlanError::Unsupported("weights that are computed".into());
    weight.view_f32(inputs)?.ok_or_else(unknown)
}

fn pack(
    target: Target,
    shape: &Shape,
    directions: &[Direction],
    (inputs, reduced): (&[ValueSpec], Reduced),
) -> Result<PackedLayer, PlanError> {
    // Some weights at a time: what is read of a file is in memory while it is packed.
    let packed_inputs = {
        let views: Vec<_> =
            directions.iter().map(|d| view(&d.weight_ih, inputs)).collect::<Result<_, _>>()?;
        let floats: Vec<_> = views.iter().map(Elements::floats).collect::<Result<_, _>>()?;
        PackedInputs::new(target, shape, &floats, reduced)?
    };
    let pack = |d: &Direction| -> Result<PackedDirection, PlanError> {
        let recurrent = view(&d.weight_hh, inputs)?;
        let bias = d
            .bias
            .as_ref()
            .map(|(ih, hh)| Ok::<_, PlanError>([view(ih, inputs)?, view(hh, inputs)?]));
        let bias = bias.transpose()?;
        let projection = d.weight_hr.as_ref().map(|hr| view(hr, inputs)).transpose()?;
        let bias = bias.as_ref().map(|[ih, hh]| Ok::<_, PlanError>((ih.floats()?, hh.floats()?)));
        let weights = Weights {
            input: Floats::from(&[]),
            recurrent: recurrent.floats()?,
            bias: bias.transpose()?,
            projection: projection.as_ref().map(Elements::floats).transpose()?,
        };
        Ok(PackedDirection::new(target, shape, &weights, reduced)?)
    };
    Ok(PackedLayer::of(packed_inputs, directions.iter().map(pack).collect::<Result<_, _>>()?))
}

/// For the sequence, h and c, the output that each is.
type Slots = [Option<usize>; 3];

/// A network of f32.
struct RecurrentKernel {
    name: String,
    layers: Vec<(Recurrent, Arc<PackedLayer>)>,
    input: usize,
    initial: Vec<usize>,
    slots: Slots,
    /// Elements of the results.
    lens: [usize; 3],
}

impl Kernel for RecurrentKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let x = cx.inputs.get::<f32>(self.input)?;
        let mut scratch = cx.take_scratch::<f32>()?;
        let mut results: [&mut [f32]; 3] = [&mut [], &mut [], &mut []];
        for (result, (slot, len)) in results.iter_mut().zip(self.slots.into_iter().zip(self.lens)) {
            *result = match slot {
                Some(output) => cx.outputs.take(output)?,
                None => {
                    let (own, rest) = scratch.split_at_mut(len);
                    scratch = rest;
                    own
                }
            };
        }
        let [y, mut h, mut c] = results;
        for (i, state) in [&mut *h, &mut *c].into_iter().enumerate() {
            match self.initial.get(i) {
                Some(&input) => state.copy_from_slice(cx.inputs.get(input)?),
                None => state.fill(0.0),
            }
        }
        let layers = self.layers.len().max(1);
        let (h_layer, c_layer) = (h.len() / layers, c.len() / layers);
        for (i, (layer, weights)) in self.layers.iter().enumerate() {
            let states = States {
                h: h.split_off_mut(..h_layer).unwrap_or_default(),
                c: c.split_off_mut(..c_layer).unwrap_or_default(),
            };
            layer.run(cx.par, weights, (i == 0).then_some(x), y, states, scratch);
        }
        Ok(())
    }
}

/// A network of any other float.
struct AnyRecurrent<T> {
    layers: Vec<(Shape, Vec<AnyDirection<T>>)>,
    input: usize,
    initial: Vec<usize>,
    slots: Slots,
    /// Elements of the results.
    lens: [usize; 3],
}

struct AnyDirection<T> {
    input: Bound<[T]>,
    recurrent: Bound<[T]>,
    bias: Option<[Bound<[T]>; 2]>,
    projection: Option<Bound<[T]>>,
}

impl<T: Float> Kernel for AnyRecurrent<T> {
    fn name(&self) -> &str {
        "recurrent.any"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let mut x = alloc::collect(cx.inputs.get::<T>(self.input)?.iter().copied())?;
        let mut y = alloc::filled(self.lens[0], T::narrow(0.0))?;
        let (mut all_h, mut all_c) = (Vec::new(), Vec::new());
        for (i, (shape, directions)) in self.layers.iter().enumerate() {
            let rows = shape.directions * shape.batch;
            let initial = |which: usize, width: usize| -> Result<Vec<T>, RunError> {
                Ok(match self.initial.get(which) {
                    Some(&input) => {
                        cx.inputs.get(input)?[i * rows * width..(i + 1) * rows * width].to_vec()
                    }
                    None => alloc::filled(rows * width, T::narrow(0.0))?,
                })
            };
            let mut h = initial(0, shape.state)?;
            let lstm = shape.cell == Cell::Lstm;
            let mut c = if lstm { initial(1, shape.hidden)? } else { Vec::new() };
            let weights: Vec<Weights<&[T]>> = directions
                .iter()
                .map(|d| {
                    let bias = d.bias.as_ref().map(|[ih, hh]| {
                        Ok::<_, RunError>((ih.get(&cx.inputs)?, hh.get(&cx.inputs)?))
                    });
                    Ok(Weights {
                        input: d.input.get(&cx.inputs)?,
                        recurrent: d.recurrent.get(&cx.inputs)?,
                        bias: bias.transpose()?,
                        projection: optional(&d.projection, &cx.inputs)?,
                    })
                })
                .collect::<Result<_, RunError>>()?;
            recurrent_any(shape, &weights, &x, &mut y, &mut h, &mut c);
            x.clone_from(&y);
            all_h.extend(h);
            all_c.extend(c);
        }
        for (slot, result) in self.slots.into_iter().zip([y, all_h, all_c]) {
            if let Some(output) = slot {
                cx.outputs.take(output)?.copy_from_slice(&result);
            }
        }
        Ok(())
    }
}

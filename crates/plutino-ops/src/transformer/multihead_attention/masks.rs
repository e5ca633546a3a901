//! The masks of a call: which queries see which keys, and the sum of several.

use super::{MultiheadAttention, Sizes};
use crate::support::assemble::leaf;
use crate::transformer::attention::mask_strides;
use crate::{Inputs, PlanCx, PlanError, RunError, ShapeError, TensorValue, ValueSpec};
use plutino_kernels::attention::Mask;
use plutino_kernels::number::Float;
use plutino_tensor::{DType, Element, Shape, Tensor, TensorSpec, stop};
use smallvec::SmallVec;

/// A mask and how it is broadcast to (N, H, L, S).
#[derive(Debug)]
pub(super) struct MaskPart {
    leaf: usize,
    /// The mask itself, where it does not depend on the model's inputs.
    known: Option<Tensor>,
    strides: Vec<usize>,
    /// Of a mask of bools, the one that hides a key.
    hides: Option<bool>,
}

impl MultiheadAttention {
    /// Element strides of the masks for each batch, head, query and key.
    pub(super) fn masks(
        &self,
        s: &Sizes,
        inputs: &[ValueSpec],
    ) -> Result<Vec<MaskPart>, ShapeError> {
        let scores = Shape::from([s.batch, self.heads, s.queries, s.keys]);
        scores.checked_numel()?;
        // A mask seen in another shape; whether true in one of bools hides a key.
        let part = |at: usize, shape: Shape, hides: bool| {
            let TensorValue { spec, known, .. } = TensorValue::at(inputs, at)?;
            let seen = TensorSpec { shape, ..spec.clone() };
            Ok::<_, ShapeError>(MaskPart {
                leaf: leaf(inputs, at),
                known: known.clone(),
                strides: mask_strides(at, &seen, s.dtype, &scores)?,
                hides: (spec.dtype == DType::Bool).then_some(hides),
            })
        };
        let mut parts = Vec::new();
        if let Some(at) = self.attn_mask {
            let found = &TensorValue::at(inputs, at)?.spec.shape;
            let shape = match *found.dims() {
                [groups, rows, cols] if s.batch.checked_mul(self.heads) == Some(groups) => {
                    Shape::from([s.batch, self.heads, rows, cols])
                }
                _ => found.clone(),
            };
            parts.push(part(at, shape, !self.shows)?);
        }
        if let Some(at) = self.key_padding_mask {
            let found = &TensorValue::at(inputs, at)?.spec.shape;
            let shape = match *found.dims() {
                [keys] if !s.batched => Shape::from([1, 1, 1, keys]),
                [batch, keys] => Shape::from([batch, 1, 1, keys]),
                _ => {
                    let (expected, found) = ("2".into(), found.clone());
                    return Err(ShapeError::Rank { input: at, expected, found });
                }
            };
            parts.push(part(at, shape, true)?);
        }
        Ok(parts)
    }
}

/// The sum of all masks.
pub(super) struct MaskSum {
    pub(super) place: Place,
    parts: Vec<MaskPart>,
    /// Sizes of the sum: batch and heads are 1 where no mask tells them apart.
    dims: [usize; 4],
    /// Element strides of what attention reads.
    strides: [usize; 4],
    keys: usize,
}

/// Where the sum is.
pub(super) enum Place {
    /// A mask of floats as it is, by leaf.
    Input(usize),
    /// In scratch memory, from this element on, where each run adds up.
    Scratch(usize),
    /// Added up while planning: all masks are known.
    Known(Tensor),
}

/// The elements of a mask.
enum Elements<'a, T> {
    Floats(&'a [T]),
    /// And which of them hides a key.
    Bools(&'a [bool], bool),
}

/// Those of a mask of queries and keys, and of one of keys.
type ElementsOfParts<'a, T> = SmallVec<[Elements<'a, T>; 2]>;

impl MaskSum {
    /// Of the masks of a call, if there are any, which is computed in this dtype. `take` hands out
    /// elements of scratch memory.
    pub(super) fn plan<T: Float + Element>(
        op: &MultiheadAttention,
        s: &Sizes,
        cx: &PlanCx<'_>,
        take: impl FnOnce(usize) -> usize,
    ) -> Result<Option<Self>, PlanError> {
        let parts = op.masks(s, cx.inputs)?;
        let told_apart = |d: usize| parts.iter().any(|p| p.strides[d] != 0);
        let pick = |d: usize, size: usize| if told_apart(d) { size } else { 1 };
        let dims = [pick(0, s.batch), pick(1, op.heads), pick(2, s.queries), s.all_keys];
        let shape = Shape::from(dims);
        let dense = shape.dense_strides();
        let own = [0, 1, 2, 3].map(|d| if dims[d] > 1 || d == 3 { dense[d] as usize } else { 0 });
        let len = shape.checked_numel()?;
        let known: Option<ElementsOfParts<'_, T>> = parts.iter().map(MaskPart::known).collect();
        let (place, strides) = match (&parts[..], known) {
            ([], _) => return Ok(None),
            ([one], _) if one.hides.is_none() && s.all_keys == s.keys => {
                (Place::Input(one.leaf), [0, 1, 2, 3].map(|d| one.strides[d]))
            }
            (parts, Some(known)) => {
                let mut sum = Tensor::zeros(s.dtype, shape)?;
                add_up::<T>(parts, &known, (dims, s.keys), sum.as_mut_slice()?);
                (Place::Known(sum), own)
            }
            (_, None) => (Place::Scratch(take(len)), own),
        };
        Ok(Some(Self { place, parts, dims, strides, keys: s.keys }))
    }

    /// Where the mask of a head begins.
    pub(super) fn head(&self, n: usize, h: usize) -> usize {
        let first = if let Place::Scratch(at) = self.place { at } else { 0 };
        first + n * self.strides[0] + h * self.strides[1]
    }

    /// Elements from one query and from one key to the next.
    pub(super) fn steps(&self) -> [usize; 2] {
        [self.strides[2], self.strides[3]]
    }

    /// What attention reads, where it is known before the run.
    pub(super) fn known(&self) -> Option<&Tensor> {
        match &self.place {
            Place::Input(_) => self.parts.first()?.known.as_ref(),
            Place::Known(sum) => Some(sum),
            Place::Scratch(_) => None,
        }
    }

    /// Adds up the masks of a run.
    pub(super) fn add_up<T: Float + Element>(
        &self,
        inputs: &Inputs<'_>,
        out: &mut [T],
    ) -> Result<(), RunError> {
        let elements = |part: &MaskPart| {
            Ok::<_, RunError>(match part.hides {
                Some(hides) => Elements::Bools(inputs.get(part.leaf)?, hides),
                None => Elements::Floats(inputs.get(part.leaf)?),
            })
        };
        let elements =
            self.parts.iter().map(elements).collect::<Result<ElementsOfParts<'_, T>, _>>()?;
        add_up(&self.parts, &elements, (self.dims, self.keys), out);
        Ok(())
    }
}

impl MaskPart {
    /// Its elements, where they are known, and of the dtype in which they are added up.
    fn known<T: Element>(&self) -> Option<Elements<'_, T>> {
        let known = self.known.as_ref()?;
        match self.hides {
            Some(hides) => Some(Elements::Bools(known.as_slice().ok()?, hides)),
            None => Some(Elements::Floats(known.as_slice().ok()?)),
        }
    }
}

/// Adds all masks up, of such sizes of the sum and so many keys; those that were added are never
/// hidden. Ends where work is to end: nobody uses the sum then.
fn add_up<T: Float>(
    parts: &[MaskPart],
    elements: &[Elements<'_, T>],
    (dims, keys): ([usize; 4], usize),
    out: &mut [T],
) {
    let [batch, heads, queries, all_keys] = dims;
    if all_keys == 0 {
        return;
    }
    out[..batch * heads * queries * all_keys].fill(T::narrow(0.0));
    for (part, elements) in parts.iter().zip(elements) {
        let rows = out.chunks_exact_mut(all_keys).take(batch * heads * queries);
        for (row, out) in rows.enumerate() {
            if stop::stopped() {
                return;
            }
            let index = [row / (heads * queries), row / queries % heads, row % queries];
            let first: usize = index.iter().zip(&part.strides).map(|(i, s)| i * s).sum();
            for (k, out) in out[..keys].iter_mut().enumerate() {
                let at = first + k * part.strides[3];
                // Added in f64, and rounded: of two numbers, the sum is that of their own type.
                let added = match *elements {
                    Elements::Bools(bools, hides) if bools[at] == hides => f64::NEG_INFINITY,
                    Elements::Bools(..) => 0.0,
                    Elements::Floats(floats) => floats[at].widen(),
                };
                *out = T::narrow(out.widen() + added);
            }
        }
    }
}

/// What attention adds to scores: the sum of the masks, if there are any, where it is; in `scratch`
/// where runs add it up.
pub(super) fn read<'a, 'i: 'a, T: Float + Element>(
    sum: Option<&'a MaskSum>,
    inputs: &Inputs<'i>,
    scratch: &'a [T],
) -> Result<Mask<'a, T>, RunError> {
    Ok(match sum.map(|sum| &sum.place) {
        None => Mask::None,
        Some(Place::Scratch(_)) => Mask::Add(scratch),
        Some(Place::Input(leaf)) => Mask::Add(inputs.get(*leaf)?),
        Some(Place::Known(sum)) => Mask::Add(sum.as_slice()?),
    })
}

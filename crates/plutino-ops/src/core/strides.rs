//! Where elements lie in memory as PyTorch computes them.
//!
//! Layouts of plutino are its own, and no operator sees a view. One function of PyTorch looks
//! through views all the same: `torch.as_strided` reads the storage of its input, and that belongs
//! to the value that owns the memory. So here, in one place, stands what each sort of operator does
//! to strides: operators say of which sort they are
//! ([`Operator::stride_rule`](super::Operator::stride_rule)), [`outputs`] applies the rule. What is
//! not known stays unknown, and `torch.as_strided` of it is refused.
//!
//! <https://pytorch.org/docs/stable/tensor_view.html>

use super::{Operator, TensorValue, ValueSpec};
use plutino_tensor::{Shape, Strides};

/// What an operator does to strides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StrideRule {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Memory of its own, row-major, whatever the inputs are.
    Contiguous,
    /// Memory of its own, row-major where all inputs are.
    LikeInputs,
    /// Memory of its own, in the order of the inputs where these agree: elementwise operators.
    Elementwise,
    /// Memory of its own, in the order of this input, whatever the others are.
    Like(usize),
    /// The memory of this input, as it is.
    Same(usize),
    /// The memory of this input where that is row-major, else a row-major copy:
    /// `Tensor.contiguous`.
    Dense(usize),
    /// Another shape: the memory of this input where strides allow, else a row-major copy.
    Reshape(usize),
    /// Parts of the memory of this input; for each output leaf a loop nest over the input as if it
    /// were row-major.
    Parts(usize, Vec<LoopNest>),
    /// The memory that this input lies in is read, whatever view of it the input is:
    /// `torch.as_strided`.
    Storage(usize),
}

/// Elements of a tensor: shape, strides, and the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopNest {
    /// Sizes.
    pub shape: Shape,
    /// Steps, in elements.
    pub strides: Strides,
    /// The first element.
    pub offset: usize,
}

/// A tensor as a part of the memory that a value owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageView {
    /// Whose memory: a number that the caller chose.
    pub owner: usize,
    /// Where in it the elements lie.
    pub elements: LoopNest,
}

/// Where an output leaf lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// In memory that an input lies in.
    View(StorageView),
    /// In memory of its own, with these strides.
    Own(Strides),
}

impl StorageView {
    /// A value that owns its memory, row-major.
    pub fn contiguous(owner: usize, shape: &Shape) -> Self {
        let strides = shape.dense_strides();
        Self { owner, elements: LoopNest { shape: shape.clone(), strides, offset: 0 } }
    }

    /// Whether the elements lie one after the other. Strides of dimensions of size 1 do not count.
    fn is_contiguous(&self) -> bool {
        let LoopNest { shape, strides, .. } = &self.elements;
        let dense = shape.dense_strides();
        shape.numel() == 0
            || shape.iter().zip(strides.iter().zip(&dense)).all(|(&d, (s, t))| d == 1 || s == t)
    }

    /// Whether no memory lies between the elements, and none is read twice.
    fn is_dense(&self) -> bool {
        let LoopNest { shape, strides, .. } = &self.elements;
        let mut dims: Vec<_> =
            shape.iter().zip(strides).filter(|(d, _)| **d != 1).map(|(&d, &s)| (s, d)).collect();
        dims.sort_unstable();
        let mut next = 1;
        for (stride, size) in dims {
            if stride != next {
                return false;
            }
            next = next.saturating_mul(isize::try_from(size).unwrap_or(isize::MAX));
        }
        true
    }

    /// The element of the storage that stands at this place of the tensor in row-major order.
    fn locate(&self, mut place: usize) -> Option<isize> {
        let LoopNest { shape, strides, offset } = &self.elements;
        let mut at = isize::try_from(*offset).ok()?;
        for (&size, &stride) in shape.iter().zip(strides).rev() {
            let index = isize::try_from(place.checked_rem(size)?).ok()?;
            at = at.checked_add(index.checked_mul(stride)?)?;
            place /= size;
        }
        (place == 0).then_some(at)
    }

    /// A part of the tensor, given as if it were row-major.
    fn part(&self, part: &LoopNest) -> Option<Self> {
        let whole = part.shape.numel();
        if whole == 0 {
            let strides = part.shape.dense_strides();
            let elements = LoopNest { shape: part.shape.clone(), strides, offset: 0 };
            return Some(Self { owner: self.owner, elements });
        }
        let first = self.locate(part.offset)?;
        let step = |stride: isize, times: usize| {
            part.offset.checked_add_signed(stride.checked_mul(isize::try_from(times).ok()?)?)
        };
        let mut strides = Strides::new();
        for (&size, &stride) in part.shape.iter().zip(&part.strides) {
            if size == 1 {
                strides.push(stride);
                continue;
            }
            let own = self.locate(step(stride, 1)?)?.checked_sub(first)?;
            // Steps may be equal at the start of a dimension and not at its end: a window over a
            // seam.
            let last = self.locate(step(stride, size - 1)?)?.checked_sub(first)?;
            let straight = isize::try_from(size - 1).ok().and_then(|n| own.checked_mul(n));
            if straight != Some(last) {
                return None;
            }
            strides.push(own);
        }
        let elements =
            LoopNest { shape: part.shape.clone(), strides, offset: usize::try_from(first).ok()? };
        Some(Self { owner: self.owner, elements })
    }

    /// The same elements in another shape, where that needs no copy.
    fn reshaped(&self, wanted: &Shape) -> Option<Self> {
        let strides = reshaped_strides(&self.elements.shape, &self.elements.strides, wanted)?;
        let elements = LoopNest { shape: wanted.clone(), strides, offset: self.elements.offset };
        Some(Self { owner: self.owner, elements })
    }
}

/// Strides of the same elements in another shape: each run of dimensions that lie side by side in
/// memory is cut anew.
fn reshaped_strides(shape: &Shape, strides: &Strides, wanted: &Shape) -> Option<Strides> {
    if shape.numel() != wanted.numel() {
        return None;
    }
    if shape.numel() == 0 || shape.rank() == 0 {
        return Some(wanted.dense_strides());
    }
    let mut out = Strides::from_elem(1, wanted.rank());
    let mut left = wanted.rank();
    let (mut run, mut step) = (1usize, *strides.last()?);
    for d in (0..shape.rank()).rev() {
        run = run.checked_mul(shape[d])?;
        let joined = isize::try_from(run).ok()?.checked_mul(step)?;
        let ends = d == 0 || (shape[d - 1] != 1 && strides[d - 1] != joined);
        if !ends {
            continue;
        }
        let mut cut = 1usize;
        while left > 0 && (cut < run || wanted[left - 1] == 1) {
            left -= 1;
            out[left] = isize::try_from(cut).ok()?.checked_mul(step)?;
            cut = cut.checked_mul(wanted[left])?;
        }
        if cut != run {
            return None;
        }
        if d > 0 {
            (run, step) = (1, strides[d - 1]);
        }
    }
    (left == 0).then_some(out)
}

/// Where the output leaves of an operator lie; `views` says it of the input leaves. None where it
/// is not known.
pub fn outputs(
    operator: &dyn Operator,
    inputs: &[ValueSpec],
    outputs: &[ValueSpec],
    views: &[Option<StorageView>],
) -> Vec<Option<Memory>> {
    let leaves: Vec<&ValueSpec> = outputs.iter().flat_map(ValueSpec::leaves).collect();
    let shape = |leaf: &ValueSpec| leaf.as_tensor().map(|t| t.shape().clone());
    let row_major = |leaf: &&ValueSpec| shape(leaf).map(|s| Memory::Own(s.dense_strides()));
    let view_of = |input: usize| views.get(first_leaf(inputs, input)?)?.as_ref();
    let each = |known: bool| leaves.iter().map(|l| row_major(l).filter(|_| known)).collect();
    match operator.stride_rule(inputs) {
        // What reads storage has not been given it yet.
        StrideRule::Unknown | StrideRule::Storage(_) => each(false),
        StrideRule::Contiguous => each(true),
        StrideRule::LikeInputs => each(views.iter().all(|v| known_contiguous(v.as_ref()))),
        StrideRule::Elementwise => leaves
            .iter()
            .map(|leaf| {
                let shape = shape(leaf)?;
                elementwise(&shape, inputs, views).map(Memory::Own)
            })
            .collect(),
        StrideRule::Like(input) => {
            let like = |leaf: &&ValueSpec| {
                let of = std::slice::from_ref(inputs.get(input)?);
                let views = views.get(first_leaf(inputs, input)?..)?;
                elementwise(&shape(leaf)?, of, views).map(Memory::Own)
            };
            leaves.iter().map(like).collect()
        }
        StrideRule::Same(input) => vec![view_of(input).cloned().map(Memory::View)],
        StrideRule::Dense(input) => {
            vec![view_of(input).and_then(|view| match view.is_contiguous() {
                true => Some(Memory::View(view.clone())),
                false => row_major(leaves.first()?),
            })]
        }
        StrideRule::Reshape(input) => {
            let reshape = |leaf: &&ValueSpec| {
                let reshaped = view_of(input)?.reshaped(&shape(leaf)?);
                reshaped.map(Memory::View).or_else(|| row_major(leaf))
            };
            leaves.iter().map(reshape).collect()
        }
        StrideRule::Parts(input, parts) => {
            let part = |(part, leaf): (&LoopNest, &&ValueSpec)| {
                let (view, shape) = (view_of(input)?.part(part)?, shape(leaf)?);
                let same = view.elements.shape == shape;
                Some(Memory::View(if same { view } else { view.reshaped(&shape)? }))
            };
            parts.iter().zip(&leaves).map(part).collect()
        }
    }
}

fn known_contiguous(view: Option<&StorageView>) -> bool {
    view.is_some_and(StorageView::is_contiguous)
}

/// The number of the first leaf of an input.
fn first_leaf(inputs: &[ValueSpec], input: usize) -> Option<usize> {
    Some(inputs.get(..input)?.iter().map(ValueSpec::leaf_count).sum())
}

/// Strides of an elementwise result of this shape: those of the inputs, where all of its shape have
/// the same, or row-major where all inputs are.
fn elementwise(
    shape: &Shape,
    inputs: &[ValueSpec],
    views: &[Option<StorageView>],
) -> Option<Strides> {
    let leaves = inputs.iter().flat_map(ValueSpec::leaves).map(ValueSpec::as_tensor);
    let tensors = leaves.zip(views).filter(|(tensor, _)| {
        tensor.is_none_or(|t: &TensorValue| !t.python && t.shape().rank() > 0)
    });
    let views: Option<Vec<&StorageView>> = tensors.map(|(_, view)| view.as_ref()).collect();
    let views = views?;
    if views.iter().all(|view| view.is_contiguous()) {
        return Some(shape.dense_strides());
    }
    let first = &views.first()?.elements;
    let agree = views
        .iter()
        .all(|v| v.is_dense() && v.elements.shape == *shape && v.elements.strides == first.strides);
    agree.then(|| first.strides.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(shape: &[usize], strides: &[isize], offset: usize) -> StorageView {
        let (shape, strides) = (Shape::from(shape), strides.iter().copied().collect());
        StorageView { owner: 0, elements: LoopNest { shape, strides, offset } }
    }

    fn reshaped(shape: &[usize], strides: &[isize], wanted: &[usize]) -> Option<Vec<isize>> {
        let found = view(shape, strides, 0).reshaped(&Shape::from(wanted))?;
        Some(found.elements.strides.to_vec())
    }

    #[test]
    fn shapes_change_without_a_copy_where_strides_allow() {
        // As `torch.empty_strided(shape, strides).view(wanted).stride()` has it.
        assert_eq!(reshaped(&[4, 6], &[6, 1], &[2, 2, 3, 2]), Some(vec![12, 6, 2, 1]));
        assert_eq!(reshaped(&[4, 6], &[1, 4], &[2, 2, 6]), Some(vec![2, 1, 4]));
        assert_eq!(reshaped(&[4, 6], &[1, 4], &[24]), None);
        assert_eq!(reshaped(&[1, 64, 4, 32], &[128, 128, 32, 1], &[64, 128]), Some(vec![128, 1]));
        let heads = reshaped(&[1, 4, 64, 32], &[128, 32, 128, 1], &[4, 4, 16, 32]);
        assert_eq!(heads, Some(vec![32, 2048, 128, 1]));
        assert_eq!(
            reshaped(&[2, 3], &[10, 2], &[2, 3, 1]).map(|s| s[..2].to_vec()),
            Some(vec![10, 2])
        );
        assert_eq!(reshaped(&[6], &[0], &[2, 3]), Some(vec![0, 0]));
    }

    #[test]
    fn parts_of_views_are_parts_of_the_storage() {
        let transposed = view(&[5, 4], &[1, 5], 0);
        // x[1:, 2] of a 5 x 4 tensor, as if it were row-major.
        let column =
            LoopNest { shape: Shape::from([4]), strides: [4].into_iter().collect(), offset: 6 };
        let found = transposed.part(&column).unwrap().elements;
        assert_eq!((&found.strides[..], found.offset), (&[1][..], 11));
        // Nine elements in a row are no loop over a transposed matrix.
        let row =
            LoopNest { shape: Shape::from([9]), strides: [1].into_iter().collect(), offset: 0 };
        assert_eq!(transposed.part(&row), None);
        assert!(transposed.is_dense() && !transposed.is_contiguous());
        assert!(!view(&[2, 2], &[4, 1], 0).is_dense());
    }
}

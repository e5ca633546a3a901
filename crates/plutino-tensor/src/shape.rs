//! Shapes and strides of any rank.

use crate::TensorError;
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};

/// Dimensions that a tensor may have where it is computed with, as in PyTorch's kernels.
pub const MAX_RANK: usize = 64;

/// Strides, in elements, one for each dimension.
pub type Strides = SmallVec<[isize; 6]>;

/// The dimensions of a tensor, outermost first. Rank 0 is a scalar.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; 6]>);

impl Shape {
    /// The shape of a scalar: rank 0, one element.
    pub fn scalar() -> Self {
        Self::default()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements, saturating: a shape that came from a file goes through
    /// [`Shape::checked_numel`] first.
    pub fn numel(&self) -> usize {
        self.0.iter().fold(1, |a: usize, &d| a.saturating_mul(d))
    }

    /// Number of elements, or an error where it exceeds the address space (`isize::MAX`).
    ///
    /// A shape without elements is asked as if its zeros were ones: then strides, and sizes of
    /// parts, are numbers as well (PyTorch and NumPy refuse the same shapes).
    ///
    /// # Errors
    /// [`TensorError::Overflow`].
    pub fn checked_numel(&self) -> Result<usize, TensorError> {
        let counted = self.0.iter().try_fold(1usize, |a, &d| a.checked_mul(d.max(1)));
        match counted.filter(|&n| isize::try_from(n).is_ok()) {
            Some(_) if self.0.contains(&0) => Ok(0),
            Some(n) => Ok(n),
            None => Err(TensorError::Overflow { shape: self.clone() }),
        }
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Appends a dimension (innermost).
    pub fn push(&mut self, dim: usize) {
        self.0.push(dim);
    }

    /// Inserts a dimension before position `at` (at most the rank).
    pub fn insert(&mut self, at: usize, dim: usize) {
        self.0.insert(at.min(self.0.len()), dim);
    }

    /// Removes the dimension at position `at`, if there is one.
    pub fn remove(&mut self, at: usize) -> Option<usize> {
        (at < self.0.len()).then(|| self.0.remove(at))
    }

    /// Strides, in elements, of a dense row-major tensor of this shape.
    pub fn dense_strides(&self) -> Strides {
        let mut strides: Strides = SmallVec::from_elem(0, self.rank());
        let mut step = 1usize;
        for (s, &d) in strides.iter_mut().zip(&self.0).rev() {
            *s = isize::try_from(step).unwrap_or(isize::MAX);
            step = step.saturating_mul(d.max(1));
        }
        strides
    }

    /// Resolves a dimension as PyTorch counts it: `-rank..rank`, negative from the end.
    /// A scalar accepts -1 and 0, as PyTorch does.
    pub fn dim(&self, dim: i64) -> Result<usize, TensorError> {
        let rank = self.rank().max(1) as i64;
        let d = if dim < 0 { dim.saturating_add(rank) } else { dim };
        if (0..rank).contains(&d) {
            Ok(d as usize)
        } else {
            Err(TensorError::Dim { dim, rank: self.rank() })
        }
    }

    /// The shape to which `self` and `other` broadcast.
    ///
    /// See <https://pytorch.org/docs/stable/notes/broadcasting.html>.
    pub fn broadcast(&self, other: &Self) -> Result<Self, TensorError> {
        let rank = self.rank().max(other.rank());
        let at = |s: &Self, i: usize| (i + s.rank()).checked_sub(rank).map_or(1, |k| s.0[k]);
        let mut out = Self::default();
        for i in 0..rank {
            out.push(match (at(self, i), at(other, i)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => {
                    return Err(TensorError::Broadcast {
                        left: self.clone(),
                        right: other.clone(),
                    });
                }
            });
        }
        Ok(out)
    }

    /// Product of the dimensions in `range` (clamped to the rank).
    pub fn product(&self, range: std::ops::Range<usize>) -> usize {
        let end = range.end.min(self.rank());
        let start = range.start.min(end);
        self.0[start..end].iter().fold(1, |a: usize, &d| a.saturating_mul(d))
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.0
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(SmallVec::from_slice(dims))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(SmallVec::from_vec(dims))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(SmallVec::from_slice(&dims))
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Self {
        Self(SmallVec::from_slice(dims))
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        Self(dims.into_iter().collect())
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(")?;
        for (i, d) in self.0.iter().take(MAX_RANK).enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str(if self.0.len() > MAX_RANK { ",...)" } else { ")" })
    }
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_pytorch() {
        let s = |d: &[usize]| Shape::from(d);
        assert_eq!(s(&[3, 1]).broadcast(&s(&[4])).unwrap(), s(&[3, 4]));
        assert_eq!(s(&[]).broadcast(&s(&[2, 0])).unwrap(), s(&[2, 0]));
        assert_eq!(s(&[1]).broadcast(&s(&[0])).unwrap(), s(&[0]));
        assert!(s(&[2]).broadcast(&s(&[3])).is_err());
    }

    #[test]
    fn overflow_is_an_error() {
        assert!(Shape::from([usize::MAX, 2]).checked_numel().is_err());
        // PyTorch ("Storage size calculation overflowed") and NumPy refuse this one, too.
        assert!(Shape::from([1 << 62, 4, 0]).checked_numel().is_err());
        assert_eq!(Shape::from([1 << 40, 0]).checked_numel(), Ok(0));
    }

    #[test]
    fn dims_count_from_both_ends() {
        let s = Shape::from([2, 3]);
        assert_eq!(s.dim(-1), Ok(1));
        assert!(s.dim(2).is_err());
        assert_eq!(Shape::scalar().dim(-1), Ok(0));
        assert_eq!(s.dense_strides().as_slice(), &[3, 1]);
    }
}

//! Where the elements of a strided tensor lie: the arithmetic behind every view.

use crate::{Shape, Strides, TensorError};
use std::ops::Range;

/// Shape, strides and the position of element (0, 0, ...), all in elements. Data and dtype live
/// elsewhere.
///
/// Strides may be zero (broadcast) or negative (flipped).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) shape: Shape,
    pub(crate) strides: Strides,
    pub(crate) offset: usize,
}

impl Geometry {
    /// Row-major without gaps, from position 0.
    pub(crate) fn dense(shape: Shape) -> Self {
        let strides = shape.dense_strides();
        Self { shape, strides, offset: 0 }
    }

    /// Checks that every index inside `shape` addresses one of `len` elements.
    pub(crate) fn checked(
        shape: Shape,
        strides: &[isize],
        offset: usize,
        len: usize,
    ) -> Result<Self, TensorError> {
        let outside = || {
            TensorError::invalid(format!(
                "shape {shape} with strides {strides:?} from element {offset} reaches outside the {len} \
                 elements of its data"
            ))
        };
        if strides.len() != shape.rank() {
            return Err(TensorError::invalid(format!(
                "{} strides were given for the {} dimensions of {shape}",
                strides.len(),
                shape.rank()
            )));
        }
        if shape.checked_numel()? > 0 {
            let (mut low, mut high) = (offset as i128, offset as i128);
            for (&d, &s) in shape.iter().zip(strides) {
                // Each product is below 2^127, and there are fewer than 2^32 dimensions of size >
                // 1.
                let span = (d as i128 - 1) * s as i128;
                low = low.checked_add(span.min(0)).ok_or_else(outside)?;
                high = high.checked_add(span.max(0)).ok_or_else(outside)?;
            }
            if low < 0 || high >= len as i128 {
                return Err(outside());
            }
        } else if offset > len {
            return Err(outside());
        }
        Ok(Self { strides: Strides::from_slice(strides), shape, offset })
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        if self.shape.numel() == 0 {
            return true;
        }
        let dense = self.shape.dense_strides();
        let mut dims = self.shape.iter().zip(self.strides.iter().zip(&dense));
        dims.all(|(&d, (s, t))| d == 1 || s == t)
    }

    /// Position of an element, if the index lies inside the shape.
    pub(crate) fn position(&self, index: &[usize]) -> Result<usize, TensorError> {
        let inside =
            index.len() == self.shape.rank() && index.iter().zip(&*self.shape).all(|(i, d)| i < d);
        if !inside {
            return Err(TensorError::Index { index: index.to_vec(), shape: self.shape.clone() });
        }
        let steps = index.iter().zip(&self.strides);
        Ok(steps
            .fold(self.offset, |at, (&i, &s)| at.wrapping_add_signed(s.wrapping_mul(i as isize))))
    }

    fn check_dim(&self, dim: usize) -> Result<usize, TensorError> {
        let found = self.shape.get(dim).copied();
        found.ok_or(TensorError::Dim { dim: dim as i64, rank: self.shape.rank() })
    }

    pub(crate) fn permute(&self, dims: &[usize]) -> Result<Self, TensorError> {
        let rank = self.shape.rank();
        let mut seen = vec![false; rank];
        let fits = dims.len() == rank
            && dims.iter().all(|&d| d < rank && !std::mem::replace(&mut seen[d], true));
        if !fits {
            return Err(TensorError::invalid(format!(
                "{dims:?} is not a permutation of the {rank} dimensions"
            )));
        }
        Ok(Self {
            shape: dims.iter().map(|&d| self.shape[d]).collect(),
            strides: dims.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        })
    }

    pub(crate) fn transpose(&self, a: usize, b: usize) -> Result<Self, TensorError> {
        self.check_dim(a)?;
        self.check_dim(b)?;
        let mut out = self.clone();
        out.shape.swap(a, b);
        out.strides.swap(a, b);
        Ok(out)
    }

    pub(crate) fn slice(
        &self,
        dim: usize,
        range: Range<usize>,
        step: usize,
    ) -> Result<Self, TensorError> {
        let size = self.check_dim(dim)?;
        if range.start > range.end || range.end > size || step == 0 {
            return Err(TensorError::invalid(format!(
                "slice {}..{} with step {step} does not fit dimension {dim} of {}",
                range.start, range.end, self.shape
            )));
        }
        let mut out = self.clone();
        let len = (range.end - range.start).div_ceil(step);
        out.shape[dim] = len;
        if len > 0 && out.shape.numel() > 0 {
            // `start` is a valid index, so this is the position of an element.
            let shift = self.strides[dim].wrapping_mul(range.start as isize);
            out.offset = self.offset.wrapping_add_signed(shift);
        }
        if len > 1 {
            // Both factors are at most the distance between two elements inside the data.
            out.strides[dim] = self.strides[dim].wrapping_mul(step as isize);
        }
        Ok(out)
    }

    pub(crate) fn select(&self, dim: usize, index: usize) -> Result<Self, TensorError> {
        let size = self.check_dim(dim)?;
        if index >= size {
            return Err(TensorError::invalid(format!(
                "index {index} does not exist in dimension {dim} of {}",
                self.shape
            )));
        }
        let mut out = self.slice(dim, index..index + 1, 1)?;
        out.shape.remove(dim);
        out.strides.remove(dim);
        Ok(out)
    }

    pub(crate) fn flip(&self, dim: usize) -> Result<Self, TensorError> {
        let size = self.check_dim(dim)?;
        let mut out = self.clone();
        if self.shape.numel() > 0 {
            let shift = self.strides[dim].wrapping_mul(size as isize - 1);
            out.offset = self.offset.wrapping_add_signed(shift);
            out.strides[dim] = self.strides[dim].wrapping_neg();
        }
        Ok(out)
    }

    pub(crate) fn unsqueeze(&self, dim: usize) -> Result<Self, TensorError> {
        if dim > self.shape.rank() {
            return Err(TensorError::Dim { dim: dim as i64, rank: self.shape.rank() });
        }
        let mut out = self.clone();
        out.shape.insert(dim, 1);
        out.strides.insert(dim, 0);
        Ok(out)
    }

    pub(crate) fn squeeze(&self, dim: usize) -> Result<Self, TensorError> {
        let mut out = self.clone();
        if self.check_dim(dim)? == 1 {
            out.shape.remove(dim);
            out.strides.remove(dim);
        }
        Ok(out)
    }

    pub(crate) fn broadcast_to(&self, shape: &Shape) -> Result<Self, TensorError> {
        let fail = || TensorError::Broadcast { left: self.shape.clone(), right: shape.clone() };
        shape.checked_numel()?;
        let lead = shape.rank().checked_sub(self.shape.rank()).ok_or_else(fail)?;
        let mut strides = Strides::from_elem(0, shape.rank());
        for (i, (&d, &s)) in self.shape.iter().zip(&self.strides).enumerate() {
            match shape[lead + i] {
                want if want == d => strides[lead + i] = s,
                _ if d == 1 => {}
                _ => return Err(fail()),
            }
        }
        Ok(Self { shape: shape.clone(), strides, offset: self.offset })
    }

    /// The same elements in another shape, where strides can express it.
    pub(crate) fn reshape(&self, shape: &Shape) -> Result<Self, TensorError> {
        let (expected, found) = (shape.checked_numel()?, self.shape.numel());
        if expected != found {
            return Err(TensorError::Length { shape: shape.clone(), expected, found });
        }
        let mut strides = shape.dense_strides();
        if found > 0 {
            let mut runs = self.runs();
            let (mut left, mut step) = runs.pop().unwrap_or((1, 1));
            for (s, &d) in strides.iter_mut().zip(shape.iter()).rev() {
                if d == 1 {
                    continue;
                }
                if left == 1 {
                    (left, step) = runs.pop().unwrap_or((1, 1));
                }
                if left % d != 0 {
                    return Err(TensorError::invalid(format!(
                        "strides {:?} of shape {} cannot express shape {shape}: call to_tensor() first",
                        self.strides, self.shape
                    )));
                }
                *s = step;
                left /= d;
                step = step.wrapping_mul(d as isize);
            }
        }
        Ok(Self { shape: shape.clone(), strides, offset: self.offset })
    }

    /// (length, stride) of maximal runs of evenly spaced elements, outermost first.
    fn runs(&self) -> Vec<(usize, isize)> {
        let mut runs: Vec<(usize, isize)> = Vec::with_capacity(self.shape.rank());
        for (&d, &s) in self.shape.iter().zip(&self.strides) {
            if d == 1 {
                continue;
            }
            match runs.last_mut() {
                Some((len, step)) if *step == s.wrapping_mul(d as isize) => {
                    *len *= d;
                    *step = s;
                }
                _ => runs.push((d, s)),
            }
        }
        runs
    }

    /// Positions of all elements in row-major order.
    pub(crate) fn positions(&self) -> Positions {
        let mut outer = self.runs();
        let (row, step) = outer.pop().unwrap_or((1, 1));
        let index = vec![0; outer.len()];
        Positions {
            at: self.offset,
            step,
            in_row: row,
            left: self.shape.numel(),
            row,
            outer,
            index,
        }
    }
}

/// Iterator of [`Geometry::positions`].
#[derive(Debug, Clone)]
pub(crate) struct Positions {
    at: usize,
    /// From an element of a row to the next one.
    step: isize,
    /// Elements that are left of this row, and of all.
    in_row: usize,
    left: usize,
    /// Elements of a row: of the innermost run.
    row: usize,
    /// The runs around it, and how far each has got.
    outer: Vec<(usize, isize)>,
    index: Vec<usize>,
}

impl Positions {
    /// From a row's last element to the first one of the next row.
    fn next_row(&mut self) {
        let back = self.step.wrapping_mul(self.row as isize - 1).wrapping_neg();
        self.at = self.at.wrapping_add_signed(back);
        self.in_row = self.row;
        // The odometer: raise the innermost index; where it wraps, go back and raise the next.
        for (i, &(len, step)) in self.index.iter_mut().zip(&self.outer).rev() {
            *i += 1;
            self.at = self.at.wrapping_add_signed(step);
            if *i < len {
                return;
            }
            self.at = self.at.wrapping_add_signed(step.wrapping_mul(len as isize).wrapping_neg());
            *i = 0;
        }
    }
}

impl Iterator for Positions {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        if self.in_row > 1 {
            self.in_row -= 1;
            self.at = at.wrapping_add_signed(self.step);
        } else {
            self.next_row();
        }
        Some(at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Positions {}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(dims: &[usize]) -> Geometry {
        Geometry::dense(Shape::from(dims))
    }

    #[test]
    fn reshape_keeps_strides_where_they_allow_it() {
        // (2,3,4) transposed to (3,2,4): the last two dimensions no longer join, 4 still splits.
        let t = dense(&[2, 3, 4]).transpose(0, 1).unwrap();
        assert_eq!(t.reshape(&[3, 2, 2, 2].into()).unwrap().strides.as_slice(), &[4, 12, 2, 1]);
        assert!(t.reshape(&[6, 4].into()).is_err());
        // Every second column: evenly spaced throughout, so any shape works.
        let s = dense(&[4, 6]).slice(1, 0..6, 2).unwrap();
        assert_eq!(s.reshape(&[12].into()).unwrap().strides.as_slice(), &[2]);
        assert!(s.reshape(&[5].into()).is_err());
    }

    #[test]
    fn checked_refuses_what_lies_outside() {
        let ok = |s: &[usize], t: &[isize], o, n| Geometry::checked(s.into(), t, o, n).is_ok();
        assert!(ok(&[2, 3], &[3, 1], 0, 6));
        assert!(!ok(&[2, 3], &[3, 1], 1, 6));
        assert!(ok(&[3], &[-1], 2, 3));
        assert!(!ok(&[3], &[-1], 1, 3));
        assert!(!ok(&[3], &[isize::MAX], 0, 3));
        assert!(!ok(&[usize::MAX], &[0], 0, 3)); // more elements than an address space
        assert!(ok(&[0, 7], &[99, 99], 0, 0));
        assert!(!ok(&[2], &[1, 1], 0, 9));
    }

    #[test]
    fn views_of_nothing() {
        let e = dense(&[2, 0, 3]);
        assert_eq!(e.positions().count(), 0);
        assert_eq!(e.flip(2).unwrap().slice(0, 1..2, 1).unwrap().offset, 0);
        assert!(e.reshape(&[0].into()).is_ok());
    }
}

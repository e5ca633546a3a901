//! Numbers where they lie, aligned or not, and numbers that are read part by part.

use crate::TensorError;
use std::ops::Range;

/// f32 values at any address: a weight in its file, or a plain slice.
#[derive(Debug, Clone, Copy)]
pub struct Floats<'a>(&'a [[u8; 4]]);

impl<'a> Floats<'a> {
    /// The values in these bytes (little-endian, as in every file); none where their number is no
    /// multiple of 4.
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (values, rest) = bytes.as_chunks();
        rest.is_empty().then_some(Self(values))
    }

    /// How many there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Value `i`.
    ///
    /// # Panics
    /// Where there is none.
    #[inline(always)]
    pub fn get(&self, i: usize) -> f32 {
        f32::from_le_bytes(self.0[i])
    }

    /// Some of the values.
    ///
    /// # Panics
    /// Where they are not all there.
    #[inline(always)]
    pub fn part(&self, range: Range<usize>) -> Floats<'a> {
        Self(&self.0[range])
    }

    /// The first `n` values, and the others.
    ///
    /// # Panics
    /// Where there are fewer.
    pub fn split_at(&self, n: usize) -> (Floats<'a>, Floats<'a>) {
        let (first, rest) = self.0.split_at(n);
        (Self(first), Self(rest))
    }

    /// Parts of `n` values one after the other; fewer than `n` at the end are left out.
    ///
    /// # Panics
    /// Where `n` is 0.
    pub fn chunks_exact(&self, n: usize) -> impl Iterator<Item = Floats<'a>> + use<'a> {
        self.0.chunks_exact(n).map(Self)
    }

    /// The first value; **not aligned** for `f32`.
    #[inline(always)]
    pub fn as_ptr(&self) -> *const f32 {
        self.0.as_ptr().cast()
    }

    /// The values as a slice, where they are aligned.
    #[inline]
    pub fn as_slice(&self) -> Option<&'a [f32]> {
        bytemuck::try_cast_slice(self.0).ok()
    }

    /// Copies all values.
    ///
    /// # Panics
    /// Where `out` is of another length.
    pub fn copy_to(&self, out: &mut [f32]) {
        assert_eq!(self.len(), out.len());
        for (x, y) in self.0.iter().zip(out) {
            *y = f32::from_le_bytes(*x);
        }
    }
}

#[cfg(target_endian = "little")] // the crate that reads files refuses to compile elsewhere
impl<'a> From<&'a [f32]> for Floats<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self(bytemuck::cast_slice(values))
    }
}

#[cfg(target_endian = "little")]
impl<'a> From<&'a Vec<f32>> for Floats<'a> {
    fn from(values: &'a Vec<f32>) -> Self {
        values.as_slice().into()
    }
}

#[cfg(target_endian = "little")]
impl<'a, const N: usize> From<&'a [f32; N]> for Floats<'a> {
    fn from(values: &'a [f32; N]) -> Self {
        values.as_slice().into()
    }
}

/// f32 values that are in memory, or are read as they are asked for: a weight on its way to a
/// packed form.
pub trait FloatSource {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of the values, until the next call. Whoever asks from front to back reads each once.
    ///
    /// # Errors
    /// [`TensorError::Unread`] where they cannot be read, or no memory is left.
    ///
    /// # Panics
    /// Where they are not all there.
    fn part(&mut self, range: Range<usize>) -> Result<Floats<'_>, TensorError>;

    /// How many to ask for at a time: all of those in memory, as many as fit a cache of others.
    fn at_a_time(&self) -> usize {
        usize::MAX
    }

    /// All values.
    ///
    /// # Errors
    /// As [`FloatSource::part`].
    fn all(&mut self) -> Result<Floats<'_>, TensorError> {
        self.part(0..self.len())
    }
}

impl FloatSource for Floats<'_> {
    fn len(&self) -> usize {
        Floats::len(self)
    }

    fn part(&mut self, range: Range<usize>) -> Result<Floats<'_>, TensorError> {
        Ok(Floats::part(self, range))
    }
}

/// Some of the values of a source.
pub struct SourcePart<'a> {
    source: &'a mut dyn FloatSource,
    first: usize,
    len: usize,
}

impl<'a> SourcePart<'a> {
    /// These values of it; none where they are not all there.
    pub fn new(source: &'a mut dyn FloatSource, range: Range<usize>) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        (range.end <= source.len()).then_some(Self { source, first: range.start, len })
    }
}

impl FloatSource for SourcePart<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn part(&mut self, range: Range<usize>) -> Result<Floats<'_>, TensorError> {
        assert!(range.end <= self.len, "outside of the part");
        self.source.part(self.first + range.start..self.first + range.end)
    }

    fn at_a_time(&self) -> usize {
        self.source.at_a_time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_does_not_matter() {
        let values = [1.0f32, -2.5, f32::INFINITY];
        let mut bytes = vec![0u8];
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        let floats = Floats::from_bytes(&bytes[1..]).unwrap();
        let mut copy = [0.0; 3];
        floats.copy_to(&mut copy);
        assert_eq!((copy, floats.get(1), floats.len()), (values, -2.5, 3));
        assert_eq!((floats.part(1..3).get(0), floats.part(1..1).len()), (-2.5, 0));
        assert_eq!(floats.chunks_exact(2).map(|c| c.get(1)).collect::<Vec<_>>(), [-2.5]);
        assert_eq!(Floats::from(&values[..]).get(2), f32::INFINITY);
        assert!(Floats::from_bytes(&bytes).is_none());
    }

    #[test]
    fn parts_of_sources() {
        let mut floats = Floats::from(&[1.0f32, 2.0, 3.0, 4.0]);
        assert!(SourcePart::new(&mut floats, 2..5).is_none());
        let mut inner = SourcePart::new(&mut floats, 1..4).unwrap();
        assert_eq!((inner.len(), inner.all().unwrap().get(2)), (3, 4.0));
        assert_eq!((inner.part(1..2).unwrap().get(0), inner.at_a_time()), (3.0, usize::MAX));
    }
}

//! Numbers where they lie, aligned or not.

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
}

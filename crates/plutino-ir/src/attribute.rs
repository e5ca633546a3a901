//! Weights: `@weight=(64,3,7,7)f32` and the bytes that belong to it.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use thiserror::Error;

use crate::dtype::{DType, write_tuple};
use crate::in_file::{FilePart, WeightBytes};
use crate::mmap::Mapping;

#[cfg(target_endian = "big")]
compile_error!("PNNX weights are little-endian and are read in place");

/// A constant tensor that belongs to an operator: little-endian elements, row-major, without gaps.
///
/// Type and shape stand in the `.param` file, the bytes in the `.bin` file; a graph read without
/// weights has attributes without data. Cloning is cheap, because the bytes are shared.
#[derive(Clone, PartialEq, Eq)]
pub struct Attribute {
    dtype: DType,
    shape: Vec<usize>,
    data: Option<WeightData>,
}

/// Where the bytes of a weight are.
#[derive(Clone)]
pub enum WeightData {
    /// In memory, and the mapped file that they are a part of.
    InMemory(Bytes, Option<Mapping>),
    /// In a file, where they are read when they are needed.
    InFile(FilePart),
}

impl WeightData {
    fn look(&self) -> Result<WeightBytes<'_>, AttributeError> {
        match self {
            Self::InMemory(bytes, _) => Ok(WeightBytes::InPlace(bytes)),
            Self::InFile(part) => part.look(),
        }
    }
}

impl PartialEq for WeightData {
    /// What cannot be read equals nothing else.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::InFile(one), Self::InFile(other)) if one.is(other) => true,
            _ => {
                matches!((self.look(), other.look()), (Ok(one), Ok(other)) if one[..] == other[..])
            }
        }
    }
}

impl Eq for WeightData {}

/// An attribute's parts do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AttributeError {
    /// The bytes are not as many as shape and type ask for.
    #[error("{} of {dtype} takes {expected} bytes, found {found}", Shape(shape))]
    Size {
        /// Type of an element.
        dtype: DType,
        /// Dimensions.
        shape: Vec<usize>,
        /// Bytes that the shape asks for.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The size in bytes does not fit in `isize`, so no memory can hold it.
    #[error("{} of {dtype} is larger than memory can be", Shape(shape))]
    TooLarge {
        /// Type of an element.
        dtype: DType,
        /// Dimensions.
        shape: Vec<usize>,
    },
    /// The elements were asked for as another type.
    #[error("the elements are {found}, not {expected}")]
    DType {
        /// The type asked for.
        expected: DType,
        /// The attribute's type.
        found: DType,
    },
    /// The graph was read without weights.
    #[error("the weights were not loaded")]
    NotLoaded,
    /// The bytes were left in the file ([`Weights::Stream`](crate::Weights::Stream)), and cannot be
    /// read now.
    #[error("'{entry}' in '{}' cannot be read: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The weight's name in it.
        entry: String,
        /// What the system says.
        reason: String,
    },
    /// The bytes were left in the file, and do not have the checksum that stood there when the
    /// model was loaded.
    #[error(
        "'{entry}' in '{}' has checksum {found:08x} where {expected:08x} was recorded: the file is \
         damaged, or has changed since it was loaded", file.display()
    )]
    Checksum {
        /// The file.
        file: PathBuf,
        /// The weight's name in it.
        entry: String,
        /// Checksum in the archive.
        expected: u32,
        /// Checksum of the bytes.
        found: u32,
    },
}

struct Shape<'a>(&'a [usize]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tuple(f, self.0)
    }
}

/// A Rust type whose memory is that of one PNNX element.
pub trait Element: bytemuck::Pod {
    /// The PNNX type.
    const DTYPE: DType;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),*) => {$(
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

element!(f32 => F32, f64 => F64, i64 => I64, i32 => I32, i16 => I16, i8 => I8, u8 => U8);

impl Attribute {
    /// An attribute with its data.
    ///
    /// # Errors
    /// If `data` is not as long as shape and type ask for.
    pub fn new(
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        data: impl Into<Bytes>,
    ) -> Result<Self, AttributeError> {
        let mut attribute = Attribute::without_data(dtype, shape)?;
        attribute.set_data(data)?;
        Ok(attribute)
    }

    /// An attribute from typed elements in row-major order.
    ///
    /// # Errors
    /// If the elements are not as many as the shape asks for.
    pub fn from_elements<T: Element>(
        shape: impl Into<Vec<usize>>,
        elements: &[T],
    ) -> Result<Self, AttributeError> {
        Attribute::new(T::DTYPE, shape, bytemuck::cast_slice::<T, u8>(elements).to_vec())
    }

    /// An attribute whose data is still to come.
    ///
    /// # Errors
    /// If its size in bytes exceeds `isize::MAX`.
    pub fn without_data(
        dtype: DType,
        shape: impl Into<Vec<usize>>,
    ) -> Result<Self, AttributeError> {
        let shape = shape.into();
        match checked_byte_len(dtype, &shape) {
            Some(_) => Ok(Attribute { dtype, shape, data: None }),
            None => Err(AttributeError::TooLarge { dtype, shape }),
        }
    }

    /// Attaches or replaces the data.
    ///
    /// # Errors
    /// If `data` is not as long as shape and type ask for; the attribute is unchanged then.
    pub fn set_data(&mut self, data: impl Into<Bytes>) -> Result<(), AttributeError> {
        let data = data.into();
        if data.len() != self.byte_len() {
            return Err(AttributeError::Size {
                dtype: self.dtype,
                shape: self.shape.clone(),
                expected: self.byte_len(),
                found: data.len(),
            });
        }
        self.data = Some(WeightData::InMemory(data, None));
        Ok(())
    }

    /// Type of an element.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions; none for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements; 1 for a scalar.
    pub fn element_count(&self) -> usize {
        self.byte_len() / self.dtype.size_of()
    }

    /// Size of the data in bytes, whether loaded or not.
    pub fn byte_len(&self) -> usize {
        // The constructor has checked that this fits.
        checked_byte_len(self.dtype, &self.shape).unwrap_or_default()
    }

    /// Where the bytes are, if the graph was read with weights.
    pub fn weight_data(&self) -> Option<&WeightData> {
        self.data.as_ref()
    }

    /// Whether there is data, in memory or in a file.
    pub fn is_loaded(&self) -> bool {
        self.data.is_some()
    }

    /// The bytes, which need not be aligned to the element: those in memory, or read from the file
    /// where they were left there.
    ///
    /// # Errors
    /// If the graph was read without weights, or the file cannot be read any more.
    pub fn data(&self) -> Result<Bytes, AttributeError> {
        match self.data.as_ref().ok_or(AttributeError::NotLoaded)? {
            WeightData::InMemory(bytes, _) => Ok(bytes.clone()),
            WeightData::InFile(part) => Ok(part.read_whole()?.into()),
        }
    }

    /// The bytes for as long as they are looked at, as [`Attribute::data`].
    ///
    /// # Errors
    /// As there.
    pub fn look(&self) -> Result<WeightBytes<'_>, AttributeError> {
        self.data.as_ref().ok_or(AttributeError::NotLoaded)?.look()
    }

    /// The bytes, if they are in memory.
    pub fn in_memory(&self) -> Option<&Bytes> {
        match &self.data {
            Some(WeightData::InMemory(bytes, _)) => Some(bytes),
            _ => None,
        }
    }

    /// Where the bytes are in a file, if they were left there.
    pub fn in_file(&self) -> Option<&FilePart> {
        match &self.data {
            Some(WeightData::InFile(part)) => Some(part),
            _ => None,
        }
    }

    /// The mapped file that the bytes are a part of; none where they are memory of their own.
    pub fn mapping(&self) -> Option<&Mapping> {
        match &self.data {
            Some(WeightData::InMemory(_, mapping)) => mapping.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn set_mapping(&mut self, mapping: Option<Mapping>) {
        if let Some(WeightData::InMemory(_, of)) = &mut self.data {
            *of = mapping;
        }
    }

    /// Leaves the data in a file. Whoever calls this has compared the lengths.
    pub(crate) fn leave_in(&mut self, part: FilePart) {
        self.data = Some(WeightData::InFile(part));
    }

    /// The elements in row-major order: borrowed if the bytes happen to be aligned for `T`, else
    /// copied.
    ///
    /// # Errors
    /// If the elements are of another type, or the weights were not loaded.
    pub fn elements<T: Element>(&self) -> Result<Cow<'_, [T]>, AttributeError> {
        if self.dtype != T::DTYPE {
            return Err(AttributeError::DType { expected: T::DTYPE, found: self.dtype });
        }
        let in_memory = self.in_memory().map(|bytes| bytemuck::try_cast_slice(bytes));
        Ok(match in_memory {
            Some(Ok(elements)) => Cow::Borrowed(elements),
            _ => Cow::Owned(bytemuck::pod_collect_to_vec(&self.look()?[..])),
        })
    }
}

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.data.is_some() { "" } else { ", not loaded" };
        write!(f, "Attribute({self}{state})")
    }
}

/// As in the file: `(64,3,7,7)f32`.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tuple(f, &self.shape)?;
        write!(f, "{}", self.dtype)
    }
}

/// Product of shape and element size, if memory could hold it. A zero dimension makes it zero,
/// however large the others are.
fn checked_byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    let bytes = shape.iter().try_fold(dtype.size_of(), |bytes, &dim| bytes.checked_mul(dim))?;
    (bytes <= isize::MAX as usize).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_shape_times_element() {
        let weight = Attribute::from_elements([2, 3], &[0f32, 1., 2., 3., 4., 5.]).unwrap();
        assert_eq!((weight.byte_len(), weight.element_count()), (24, 6));
        assert_eq!(weight.to_string(), "(2,3)f32");
        let scalar = Attribute::without_data(DType::C128, []).unwrap();
        assert_eq!((scalar.byte_len(), scalar.element_count()), (16, 1));
        let empty = Attribute::new(DType::I64, [0], Bytes::new()).unwrap();
        assert_eq!(empty.element_count(), 0);
        assert_eq!(
            Attribute::new(DType::F32, [2], vec![0; 7]),
            Err(AttributeError::Size { dtype: DType::F32, shape: vec![2], expected: 8, found: 7 })
        );
        assert_eq!(
            Attribute::without_data(DType::U8, [usize::MAX, 2]),
            Err(AttributeError::TooLarge { dtype: DType::U8, shape: vec![usize::MAX, 2] })
        );
        assert!(Attribute::without_data(DType::U8, [usize::MAX, 0, 2]).is_ok());
    }

    #[test]
    fn elements_do_not_depend_on_alignment() {
        let bytes: Bytes =
            [0u8; 1].into_iter().chain(1f32.to_le_bytes()).chain(2f32.to_le_bytes()).collect();
        for start in 0..4 {
            let shifted: Bytes = std::iter::repeat_n(0u8, start).chain(bytes.slice(1..)).collect();
            let weight = Attribute::new(DType::F32, [2], shifted.slice(start..)).unwrap();
            assert_eq!(weight.elements::<f32>().unwrap().as_ref(), &[1., 2.]);
            assert_eq!(
                weight.elements::<i32>(),
                Err(AttributeError::DType { expected: DType::I32, found: DType::F32 })
            );
        }
        let absent = Attribute::without_data(DType::F32, [2]).unwrap();
        assert_eq!(absent.elements::<f32>(), Err(AttributeError::NotLoaded));
    }
}

//! Weights of an operator, as the model file holds them.

use super::PlanError;
use bytes::Bytes;
use plutino_ir::{Attribute, AttributeError, FilePart, PartReader, WeightBytes, WeightData};
use plutino_tensor::{
    AlignedBuf, DType, FloatSource, Floats, Tensor, TensorError, TensorSpec, alloc, stop,
};
use std::ops::Range;
use std::sync::Arc;

/// A weight: raw bytes of the file (often memory-mapped or still in it, not aligned) with dtype and
/// shape. Cheap to clone.
#[derive(Clone)]
pub struct Weight {
    /// `<operator name>.<weight name>`: unique in a model, the key under which packed forms are
    /// shared.
    pub name: Arc<str>,
    /// Dtype and shape.
    pub spec: TensorSpec,
    data: Option<Data>,
    /// What each index of the first dimension is multiplied with when it is read; f32 only.
    scale: Option<Arc<[f64]>>,
}

/// Where the elements of a weight come from.
#[derive(Clone)]
enum Data {
    /// The model.
    Stored(WeightData),
    /// Other weights, whenever they are read: nothing is kept beside what is packed.
    Made(Arc<dyn MakeWeight>),
}

/// Computes the elements of a weight.
pub(crate) trait MakeWeight: Send + Sync {
    /// Writes the elements, row-major.
    ///
    /// # Errors
    /// Where what they are made of cannot be read.
    fn write_to(&self, elements: &mut [f32]) -> Result<(), PlanError>;
}

impl std::fmt::Debug for Weight {
    /// All but the data, which the name tells from that of others in the model.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Weight");
        shown.field("name", &self.name).field("spec", &self.spec);
        shown.field("scale", &self.scale).finish_non_exhaustive()
    }
}

/// By name, which tells the data from that of others in the model.
impl PartialEq for Weight {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.spec, &self.scale) == (&other.name, &other.spec, &other.scale)
    }
}

impl Weight {
    /// The shape's dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.spec.shape
    }

    /// The weight of this name that a node has.
    pub(super) fn new(name: Arc<str>, spec: TensorSpec, attribute: &Attribute) -> Self {
        let data = attribute.weight_data().cloned().map(Data::Stored);
        Self { name, spec, data, scale: None }
    }

    /// The raw little-endian bytes; not aligned. Those that were left in the file are in memory
    /// from then on.
    ///
    /// # Errors
    /// Where the model was loaded without weights, or the file cannot be read any more.
    pub fn bytes(&self) -> Result<&[u8], PlanError> {
        if self.scale.is_some() {
            return Err(self.no_bytes());
        }
        match self.data()? {
            WeightData::InMemory(bytes, _) => Ok(bytes),
            WeightData::InFile(part) => {
                charge(part)?;
                part.keep().map_err(|error| self.unread(error))
            }
        }
    }

    fn no_bytes(&self) -> PlanError {
        PlanError::Unsupported(format!("the bytes of '{}'", self.name))
    }

    fn data(&self) -> Result<&WeightData, PlanError> {
        match &self.data {
            Some(Data::Stored(data)) => Ok(data),
            Some(Data::Made(_)) => Err(self.no_bytes()),
            None => Err(PlanError::NoWeights { name: self.name.to_string() }),
        }
    }

    /// What computes the elements, where they are not stored.
    fn made(&self) -> Option<&dyn MakeWeight> {
        match &self.data {
            Some(Data::Made(made)) => Some(&**made),
            _ => None,
        }
    }

    /// The bytes of the file, for as long as they are looked at.
    fn stored(&self) -> Result<WeightBytes<'_>, PlanError> {
        Ok(match self.data()? {
            WeightData::InMemory(bytes, _) => WeightBytes::InPlace(bytes),
            WeightData::InFile(part) => {
                charge(part)?;
                part.look().map_err(|error| self.unread(error))?
            }
        })
    }

    fn unread(&self, error: AttributeError) -> PlanError {
        PlanError::WeightFile { name: self.name.to_string(), error }
    }

    /// The weight of this name that was computed while decoding; without `tensor`, one of a model
    /// that was loaded without weights.
    pub(crate) fn computed(name: Arc<str>, spec: TensorSpec, tensor: Option<Tensor>) -> Self {
        struct Owner(Tensor);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }
        let data = tensor.map(|t| WeightData::InMemory(Bytes::from_owner(Owner(t)), None));
        Self { name, spec, data: data.map(Data::Stored), scale: None }
    }

    /// A weight of f32 that is computed of others whenever it is read. `name` tells it from all
    /// that are made of the same ones.
    pub(crate) fn made_by(name: Arc<str>, spec: TensorSpec, make: Arc<dyn MakeWeight>) -> Self {
        Self { name, spec, data: Some(Data::Made(make)), scale: None }
    }

    /// This weight, of f32, with each index of its first dimension multiplied by a number: done
    /// whenever it is read. `key` tells it from the weight as it is.
    pub(crate) fn scaled(&self, key: &str, scale: &Arc<[f64]>) -> Option<Self> {
        let fits = self.scale.is_none() && self.spec.dtype == DType::F32;
        (fits && self.spec.shape.first() == Some(&scale.len())).then(|| Self {
            name: format!("{} x {key}", self.name).into(),
            scale: Some(Arc::clone(scale)),
            ..self.clone()
        })
    }

    /// Whether the elements are those of the model, as they are.
    fn is_stored(&self) -> bool {
        self.scale.is_none() && self.made().is_none()
    }

    /// Whether the model was loaded with weights.
    pub(crate) fn is_loaded(&self) -> bool {
        self.data.is_some()
    }

    /// A tensor with a copy of the weight (64-byte aligned).
    ///
    /// # Errors
    /// Where the model was loaded without weights, or no memory is left.
    pub fn tensor(&self) -> Result<Tensor, PlanError> {
        let shape = self.spec.shape.clone();
        let make = || -> Result<Tensor, PlanError> {
            Ok(match self.is_stored() {
                true => Tensor::from_bytes(self.spec.dtype, shape, &self.stored()?)?,
                false => Tensor::from_slice(&self.to_f32()?, shape)?,
            })
        };
        let tensor = alloc::keeping(make, |made| made.as_ref().map_or(0, |t| t.as_bytes().len()))?;
        self.release();
        Ok(tensor)
    }

    /// Calls `read` with the elements as f32: where they lie, as they are read of the file, or
    /// converted where the weight is stored in f64, f16 or bf16. Pages of a mapped file are given
    /// back to the system afterwards, so that a model takes the memory of its packed weights only.
    ///
    /// # Errors
    /// Where the weight was not loaded, cannot be read any more, or is not a real float.
    pub fn read_f32<R>(
        &self,
        read: impl FnOnce(&mut dyn FloatSource) -> R,
    ) -> Result<R, PlanError> {
        let mut source = StoredFloats::new(self)?;
        let result = read(&mut source);
        source.finish()?;
        Ok(result)
    }

    /// As [`Weight::read_f32`], for several weights that are read together: pages are given back
    /// when the view is dropped.
    ///
    /// # Errors
    /// As there.
    pub fn view_f32(&self) -> Result<F32View<'_>, PlanError> {
        if self.spec.dtype == DType::F32 && self.is_stored() {
            let stored = self.stored()?;
            if Floats::from_bytes(&stored).is_some() {
                return Ok(F32View::Stored(self, stored));
            }
        }
        Ok(F32View::Copied(self.to_f32()?))
    }

    /// A copy of the elements as f32, converted where the weight is stored in f64, f16 or bf16.
    ///
    /// # Errors
    /// Where the weight was not loaded or is not a real float, or no memory is left.
    pub fn to_f32(&self) -> Result<F32Copy, PlanError> {
        alloc::keeping(|| self.convert(), |copy| copy.as_ref().map_or(0, |copy| copy.0.len()))
    }

    fn convert(&self) -> Result<F32Copy, PlanError> {
        let mut copy = AlignedBuf::resident(self.spec.shape.checked_numel()?.saturating_mul(4))?;
        let elements = bytemuck::cast_slice_mut(copy.as_mut_bytes());
        match self.made() {
            Some(made) => {
                made.write_to(elements)?;
                self.multiply(0, elements)?;
            }
            None => self.convert_part(&self.stored()?, 0, elements)?,
        }
        self.release();
        Ok(F32Copy(copy))
    }

    /// Converts the bytes of elements from number `first` on.
    fn convert_part(&self, bytes: &[u8], first: usize, out: &mut [f32]) -> Result<(), PlanError> {
        match self.spec.dtype {
            DType::F32 => convert(bytes, out, f32::from_le_bytes),
            DType::F64 => convert(bytes, out, |b| f64::from_le_bytes(b) as f32),
            DType::F16 => convert(bytes, out, |b| half::f16::from_le_bytes(b).to_f32()),
            DType::Bf16 => convert(bytes, out, |b| half::bf16::from_le_bytes(b).to_f32()),
            _ => return Err(self.no_float()),
        }
        self.multiply(first, out)
    }

    /// Multiplies elements from number `first` on with the factors of their rows.
    fn multiply(&self, first: usize, out: &mut [f32]) -> Result<(), PlanError> {
        if let Some(scale) = &self.scale {
            let row = (self.spec.shape.checked_numel()? / scale.len().max(1)).max(1);
            let (mut rest, mut at) = (out, first);
            while !rest.is_empty() {
                let (begun, more) = rest.split_at_mut(rest.len().min(row - at % row));
                let factor = scale.get(at / row).copied().unwrap_or(1.0);
                begun.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
                at += begun.len();
                rest = more;
            }
        }
        Ok(())
    }

    fn no_float(&self) -> PlanError {
        PlanError::Unsupported(format!("weight '{}' of dtype {}", self.name, self.spec.dtype))
    }

    /// Gives the pages of a mapped file back to the system.
    fn release(&self) {
        if let Some(Data::Stored(WeightData::InMemory(bytes, Some(mapping)))) = &self.data {
            mapping.release(bytes);
        }
    }
}

/// The elements of a weight as f32: where they lie, as they are read, or converted part by part.
struct StoredFloats<'a> {
    weight: &'a Weight,
    len: usize,
    place: Place<'a>,
    /// The part that was asked for last, where elements are converted.
    converted: Option<AlignedBuf>,
}

/// Where the bytes of a weight are.
enum Place<'a> {
    Memory(&'a [u8]),
    /// They were computed, to be read once.
    Made(F32Copy),
    File {
        part: &'a FilePart,
        reader: PartReader<'a>,
        /// Bytes that were charged for a buffer.
        charged: usize,
        /// Why some could not be read.
        error: Option<AttributeError>,
    },
}

impl Place<'_> {
    fn bytes(&mut self, range: Range<usize>) -> Result<Option<&[u8]>, TensorError> {
        match self {
            Self::Memory(bytes) => Ok(bytes.get(range)),
            Self::Made(copy) => Ok(copy.0.as_bytes().get(range)),
            Self::File { part, reader, charged, error } => {
                let needed = part.buffer_len(range.len());
                alloc::charge(needed.saturating_sub(*charged))?;
                *charged = needed.max(*charged);
                Ok(reader.bytes(range).map_err(|why| *error = Some(why)).ok())
            }
        }
    }
}

impl<'a> StoredFloats<'a> {
    fn new(weight: &'a Weight) -> Result<Self, PlanError> {
        if !matches!(weight.spec.dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16) {
            return Err(weight.no_float());
        }
        let place = match weight.made() {
            Some(_) => Place::Made(weight.to_f32()?),
            None => match weight.data()? {
                WeightData::InMemory(bytes, _) => Place::Memory(bytes),
                WeightData::InFile(part) => {
                    Place::File { part, reader: part.reader(), charged: 0, error: None }
                }
            },
        };
        let len = weight.spec.shape.checked_numel()?;
        Ok(Self { weight, len, place, converted: None })
    }

    /// Whether they can be read as they are stored.
    fn as_stored(&self) -> bool {
        let stored = self.weight.spec.dtype == DType::F32 && self.weight.scale.is_none();
        stored || matches!(self.place, Place::Made(_))
    }

    /// Compares the checksum of what was read, or says why it could not be read.
    fn finish(self) -> Result<(), PlanError> {
        match self.place {
            Place::Memory(_) => {
                self.weight.release();
                Ok(())
            }
            Place::Made(_) => Ok(()),
            Place::File { error: Some(error), .. } => Err(self.weight.unread(error)),
            // What was cut short by its caller's limits is no result.
            Place::File { .. } if stop::stopped() => Ok(()),
            Place::File { reader, .. } => {
                reader.finish().map_err(|error| self.weight.unread(error))
            }
        }
    }
}

impl FloatSource for StoredFloats<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn part(&mut self, range: Range<usize>) -> Result<Floats<'_>, TensorError> {
        let (as_stored, size) = (self.as_stored(), self.weight.spec.dtype.size_of());
        let Self { weight, place, converted, .. } = self;
        let bytes = range.start.saturating_mul(size)..range.end.saturating_mul(size);
        let unread = || TensorError::Unread { range: range.clone() };
        let bytes = place.bytes(bytes)?.ok_or_else(unread)?;
        if as_stored {
            return Floats::from_bytes(bytes).ok_or_else(unread);
        }
        let needed = range.len().saturating_mul(size_of::<f32>());
        let buffer = match converted.take().filter(|buffer| buffer.len() >= needed) {
            Some(buffer) => converted.insert(buffer),
            None => converted.insert(AlignedBuf::resident(needed)?),
        };
        let out = bytemuck::cast_slice_mut(&mut buffer.as_mut_bytes()[..needed]);
        weight.convert_part(bytes, range.start, out).map_err(|_| unread())?;
        Ok(Floats::from(&*out))
    }

    fn at_a_time(&self) -> usize {
        match self.place {
            Place::Memory(_) | Place::Made(_) if self.as_stored() => usize::MAX,
            _ => PartReader::AT_A_TIME / size_of::<f32>(),
        }
    }
}

/// Charges what reading a part of a file takes: nothing where its bytes are in memory.
fn charge(part: &FilePart) -> Result<(), PlanError> {
    Ok(if part.kept().is_none() { alloc::charge(part.len()) } else { Ok(()) }?)
}

/// The elements of a weight as f32, in memory that goes back to the system when they are dropped.
#[derive(Debug)]
pub struct F32Copy(AlignedBuf);

impl std::ops::Deref for F32Copy {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(self.0.as_bytes())
    }
}

/// The elements of a weight as f32: as they are stored, or a copy.
#[derive(Debug)]
pub enum F32View<'a> {
    /// As they are stored: whole numbers of four bytes.
    Stored(&'a Weight, WeightBytes<'a>),
    /// Converted from another dtype.
    Copied(F32Copy),
}

impl F32View<'_> {
    /// The elements.
    pub fn floats(&self) -> Floats<'_> {
        match self {
            Self::Stored(_, bytes) => Floats::from_bytes(bytes).unwrap_or_else(|| (&[][..]).into()),
            Self::Copied(copy) => Floats::from(&**copy),
        }
    }
}

impl Drop for F32View<'_> {
    fn drop(&mut self) {
        if let Self::Stored(weight, _) = self {
            weight.release();
        }
    }
}

fn convert<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (y, &bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *y = value(bytes);
    }
}

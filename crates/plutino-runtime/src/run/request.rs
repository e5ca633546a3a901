//! One run, in all detail: what is fed, what is fetched, what ends it early.

use crate::SessionError;
use plutino_ir::{CancelToken, Limits};
use plutino_tensor::{DType, Shape, Tensor, TensorError, TensorSpec, TensorView};
use std::time::Instant;

/// A run in all detail. Any operand of the graph can be fed, and any can be fetched: only what lies
/// between them is computed.
///
/// An operand is called by its name in the file, or by that of the operator that makes it and
/// nothing else: `layer1.0.conv1`, `pnnx_input_0`. What is fed is a [`Tensor`], borrowed or as one
/// of a [`TensorStore`](crate::TensorStore), or a [`TensorView`] of memory that belongs to somebody
/// else; see [`Fed`].
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    pub(crate) feeds: Vec<(&'a str, Fed<'a>)>,
    pub(crate) fetches: Vec<&'a str>,
    pub(crate) all: bool,
    pub(crate) limits: Limits,
}

impl<'a> Request<'a> {
    /// A request without feeds, that fetches the model's outputs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Feeds an operand: with a tensor, or with a view of memory that stays where it is.
    #[must_use]
    pub fn feed(mut self, operand: &'a str, data: impl Into<Fed<'a>>) -> Self {
        self.feeds.push((operand, data.into()));
        self
    }

    /// Fetches an operand. Without any, the model's outputs are fetched.
    #[must_use]
    pub fn fetch(mut self, operand: &'a str) -> Self {
        self.fetches.push(operand);
        self
    }

    /// Fetches every operand that can be computed from what is fed, in the order of the file, and
    /// what is fed itself. Passes leave alone what is fetched, so that nothing is fused.
    #[must_use]
    pub fn fetch_all(mut self) -> Self {
        self.all = true;
        self
    }

    /// Ends planning and the run when the token is cancelled, within milliseconds: steps that take
    /// long look at it as well.
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.limits.cancel = Some(token.clone());
        self
    }

    /// Ends planning and the run at this time: steps that take long look at it as well.
    #[must_use]
    pub fn deadline(mut self, at: Instant) -> Self {
        self.limits.deadline = Some(at);
        self
    }

    /// Ends planning and the run as these limits say, and not as others did before.
    #[must_use]
    pub fn within(mut self, limits: &Limits) -> Self {
        self.limits = limits.clone();
        self
    }
}

/// What an operand is fed with: a tensor, or a view of somebody else's memory, such as a buffer of
/// NumPy, ndarray or Arrow.
///
/// A view is read where it lies if its elements are dense, in row-major order, and aligned to their
/// type (complex ones to their parts), which is what kernels need. Any other view is copied once,
/// when the run starts.
#[derive(Debug, Clone)]
pub struct Fed<'a>(Kind<'a>);

#[derive(Debug, Clone)]
enum Kind<'a> {
    Tensor(&'a Tensor),
    /// In a box, so that a tensor, which nearly every feed is, takes two words.
    View(Box<TensorView<'a>>),
    /// A tensor of the request's own, whose memory it may share with others.
    Owned(Box<Tensor>),
    /// A cache of this spec to which the plan appends where it lies: nobody reads it as a feed.
    Resident(&'a TensorSpec),
}

impl<'a> From<&'a Tensor> for Fed<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self(Kind::Tensor(tensor))
    }
}

impl From<Tensor> for Fed<'_> {
    fn from(tensor: Tensor) -> Self {
        Self(Kind::Owned(Box::new(tensor)))
    }
}

impl<'a> From<TensorView<'a>> for Fed<'a> {
    fn from(view: TensorView<'a>) -> Self {
        Self(Kind::View(Box::new(view)))
    }
}

impl<'a> Fed<'a> {
    /// A cache that lies where the plan appends to it.
    pub(crate) fn resident(spec: &'a TensorSpec) -> Self {
        Self(Kind::Resident(spec))
    }

    pub(crate) fn dtype(&self) -> DType {
        match &self.0 {
            Kind::Tensor(tensor) => tensor.dtype(),
            Kind::Owned(tensor) => tensor.dtype(),
            Kind::View(view) => view.dtype(),
            Kind::Resident(spec) => spec.dtype,
        }
    }

    pub(crate) fn shape(&self) -> &Shape {
        match &self.0 {
            Kind::Tensor(tensor) => tensor.shape(),
            Kind::Owned(tensor) => tensor.shape(),
            Kind::View(view) => view.shape(),
            Kind::Resident(spec) => &spec.shape,
        }
    }

    pub(crate) fn spec(&self) -> TensorSpec {
        TensorSpec::new(self.dtype(), self.shape().clone())
    }

    /// A tensor of it, which shares the memory of one that it is; `name` is that of the operand.
    ///
    /// # Errors
    /// Where a bool is neither 0 nor 1, or there is no memory for a copy.
    pub(crate) fn owned(&self, name: &str) -> Result<Tensor, SessionError> {
        let failed = |error| SessionError::Feed { name: name.to_owned(), error };
        match &self.0 {
            Kind::Tensor(tensor) => Ok((*tensor).clone()),
            Kind::Owned(tensor) => Ok((**tensor).clone()),
            Kind::View(view) => view.to_tensor().map_err(failed),
            Kind::Resident(_) => Err(SessionError::internal("a cache cannot be queued")),
        }
    }

    /// As steps read it; `name` is that of the operand.
    ///
    /// # Errors
    /// Where a bool is neither 0 nor 1, or there is no memory for a copy.
    pub(crate) fn dense(&self, name: &str) -> Result<Dense<'a>, SessionError> {
        let view = match &self.0 {
            Kind::Tensor(tensor) => return Ok(Dense::Tensor(tensor)),
            // The memory is shared.
            Kind::Owned(tensor) => return Ok(Dense::Owned(tensor.clone())),
            Kind::Resident(_) => return Ok(Dense::Lent(&[])),
            Kind::View(view) => view,
        };
        let dense = || match view.as_bytes() {
            Ok(bytes) if is_aligned(bytes, view.dtype()) => {
                if view.dtype() == DType::Bool && bytes.iter().any(|&b| b > 1) {
                    return Err(TensorError::invalid("a byte of bools is neither 0 nor 1"));
                }
                Ok(Dense::Lent(bytes))
            }
            _ => Ok(Dense::Owned(Box::new(view.to_tensor()?))),
        };
        let failed = |error| SessionError::Feed { name: name.to_owned(), error };
        dense().map_err(failed)
    }
}

/// Whether bytes can be read as elements of this type.
fn is_aligned(bytes: &[u8], dtype: DType) -> bool {
    let part = if dtype.is_complex() { dtype.size_of() / 2 } else { dtype.size_of() };
    bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(part.max(1))
}

/// What steps read of a feed: dense and aligned.
#[derive(Debug)]
pub(crate) enum Dense<'a> {
    Tensor(&'a Tensor),
    Lent(&'a [u8]),
    /// A tensor that was copied, or shares its memory with others.
    Owned(Box<Tensor>),
}

impl Dense<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Tensor(tensor) => tensor.as_bytes(),
            Self::Lent(bytes) => bytes,
            Self::Owned(tensor) => tensor.as_bytes(),
        }
    }

    /// The tensor, where it is one: its buffer can be shared.
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::Lent(_) => None,
            Self::Owned(tensor) => Some(tensor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense<'a>(view: TensorView<'a>) -> Result<Dense<'a>, SessionError> {
        Fed::from(view).dense("x")
    }

    #[test]
    fn views_are_copied_where_kernels_cannot_read_them() {
        let numbers = [1.0f32, 2.0, 3.0, 4.0];
        let view = TensorView::from_slice(&numbers, [2, 2]).unwrap();
        let bytes = view.as_bytes().unwrap();
        let lent = |view: &TensorView<'_>| match dense(view.clone()).unwrap() {
            Dense::Lent(found) => Some(found.as_ptr().addr()),
            Dense::Owned(_) | Dense::Tensor(_) => None,
        };
        assert_eq!(lent(&view), Some(bytes.as_ptr().addr()), "in place");
        assert_eq!(lent(&view.select(0, 1).unwrap()), Some(bytes[8..].as_ptr().addr()));
        let transposed = view.transpose(0, 1).unwrap();
        assert_eq!(lent(&transposed), None);
        let copy = dense(transposed.clone()).unwrap();
        assert_eq!(copy.tensor(), Some(&transposed.to_tensor().unwrap()));
        // Two bytes on: halves may lie there, f32 may not, and complex numbers are as their parts.
        let shifted = |dtype, bytes| TensorView::from_bytes(dtype, [1], bytes).unwrap();
        assert!(lent(&shifted(DType::F16, &bytes[2..4])).is_some());
        assert!(lent(&shifted(DType::F32, &bytes[2..6])).is_none());
        assert!(lent(&shifted(DType::C64, &bytes[4..12])).is_some());
        assert!(lent(&shifted(DType::C64, &bytes[2..10])).is_none());
    }

    #[test]
    fn bytes_that_are_no_bools_are_named() {
        let view = TensorView::from_bytes(DType::Bool, [3], &[0, 1, 2]).unwrap();
        let error = dense(view).unwrap_err().to_string();
        assert!(error.starts_with("operand 'x' cannot be fed: "), "{error}");
    }
}

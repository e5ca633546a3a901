//! In-place and out-of-place in one signature.

/// Where an elementwise kernel reads and writes.
#[derive(Debug)]
pub enum InOut<'a, T> {
    /// Reads one buffer, writes another of the same length.
    Apart {
        /// Read.
        src: &'a [T],
        /// Written.
        dst: &'a mut [T],
    },
    /// Reads and writes one buffer.
    Same(&'a mut [T]),
}

impl<'a, T> InOut<'a, T> {
    /// Number of elements to compute.
    pub fn len(&self) -> usize {
        match self {
            Self::Apart { src, dst } => src.len().min(dst.len()),
            Self::Same(data) => data.len(),
        }
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes both cases one: copies the source over the destination where they are apart.
    pub fn into_same(self) -> &'a mut [T]
    where
        T: Copy,
    {
        match self {
            Self::Apart { src, dst } => {
                let n = src.len().min(dst.len());
                dst[..n].copy_from_slice(&src[..n]);
                dst
            }
            Self::Same(data) => data,
        }
    }
}

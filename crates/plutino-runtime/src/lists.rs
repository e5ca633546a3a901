//! Lists that are as long as a net: taken without force, so that memory that is refused is an
//! error.
//!
//! They are charged by the node ([`crate::plan::build::node_memory`]), not here: of all lists of a
//! plan together, that is more exact than what any single one could say.

use plutino_tensor::TensorError;

fn refused<T>(n: usize) -> TensorError {
    TensorError::OutOfMemory { bytes: n.saturating_mul(size_of::<T>()) }
}

/// An empty list with room for `n`.
pub(crate) fn list<T>(n: usize) -> Result<Vec<T>, TensorError> {
    let mut list = Vec::new();
    list.try_reserve_exact(n).map_err(|_| refused::<T>(n))?;
    Ok(list)
}

/// `n` times the same.
pub(crate) fn filled<T: Clone>(n: usize, value: T) -> Result<Vec<T>, TensorError> {
    let mut all = list(n)?;
    all.resize(n, value); // bounded: within what is reserved
    Ok(all)
}

/// Makes a list as long as this, where it is shorter.
pub(crate) fn lengthen<T: Clone>(all: &mut Vec<T>, n: usize, value: T) -> Result<(), TensorError> {
    let more = n.saturating_sub(all.len());
    all.try_reserve(more).map_err(|_| refused::<T>(n))?;
    all.extend(std::iter::repeat_n(value, more)); // bounded: within what is reserved
    Ok(())
}

/// Appends one.
pub(crate) fn push<T>(all: &mut Vec<T>, item: T) -> Result<(), TensorError> {
    all.try_reserve(1).map_err(|_| refused::<T>(all.len().saturating_mul(2)))?;
    all.push(item);
    Ok(())
}

/// Appends some.
pub(crate) fn extend<T>(
    all: &mut Vec<T>,
    items: impl IntoIterator<Item = T>,
) -> Result<(), TensorError> {
    items.into_iter().try_for_each(|item| push(all, item))
}

/// Everything that an iterator yields.
pub(crate) fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>, TensorError> {
    let items = items.into_iter();
    let mut all = list(items.size_hint().0)?;
    extend(&mut all, items)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_beyond_memory_are_errors() {
        let error = TensorError::OutOfMemory { bytes: usize::MAX };
        assert_eq!(list::<u64>(usize::MAX), Err(error.clone()));
        assert_eq!(filled(usize::MAX, 1u64), Err(error.clone()));
        let mut all = vec![1u64];
        assert_eq!(lengthen(&mut all, usize::MAX, 2), Err(error));
        lengthen(&mut all, 3, 2).unwrap();
        lengthen(&mut all, 2, 9).unwrap();
        extend(&mut all, [4]).unwrap();
        assert_eq!(all, [1, 2, 2, 4]);
        assert_eq!(collect(0..3), Ok(vec![0, 1, 2]));
    }
}

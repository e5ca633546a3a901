//! Copies whose source or destination depends on data.
//!
//! Indices are i32 or i64, count from the end where they are negative, and are checked: one outside its
//! dimension is a [`CopyError::Index`], never a read elsewhere.

use super::{CopyError, GRAIN, Walk};
use crate::number::{Number, Wide};
use crate::par::{Par, SharedMut};
use std::sync::Mutex;

/// An integer type of indices.
pub trait Index: Copy + Into<i64> + Send + Sync {}
impl Index for i32 {}
impl Index for i64 {}

/// The position that `index` means in a dimension of `size` elements.
///
/// # Errors
/// Where it is outside `-size..size`.
#[inline]
pub fn resolve(index: impl Index, size: usize) -> Result<usize, CopyError> {
    let index: i64 = index.into();
    let from_end = || index.saturating_add(i64::try_from(size).unwrap_or(i64::MAX));
    let at = if index < 0 { from_end() } else { index };
    match usize::try_from(at) {
        Ok(at) if at < size => Ok(at),
        _ => Err(CopyError::Index { index, size }),
    }
}

/// `dst[o][k] = src[o][index[k]]`, where the elements are blocks of `block` bytes and the source has
/// `size` of them for each `o`: index_select, and (with one `o`) embedding.
///
/// # Errors
/// Where an index is outside `-size..size`, or a buffer has another length than these numbers say.
pub fn take<I: Index>(
    par: &Par,
    src: &[u8],
    dst: &mut [u8],
    outer: usize,
    size: usize,
    block: usize,
    index: &[I],
) -> Result<(), CopyError> {
    expect("source", src.len(), &[outer, size, block])?;
    expect("destination", dst.len(), &[outer, index.len(), block])?;
    index.iter().try_for_each(|&i| resolve(i, size).map(drop))?;
    if block == 0 || index.is_empty() {
        return Ok(());
    }
    let rows = (GRAIN / block).max(1);
    par.chunks_mut(dst, rows * block, |chunk, rows_out| {
        for (r, out) in rows_out.chunks_exact_mut(block).enumerate() {
            let at = chunk * rows + r;
            let (o, k) = (at / index.len(), at % index.len());
            // Every index was resolved above.
            if let Ok(i) = resolve(index[k], size) {
                let from = (o * size + i) * block;
                out.copy_from_slice(&src[from..from + block]);
            }
        }
    });
    Ok(())
}

/// Where [`gather`] and [`scatter`] find their elements: `index` has `shape`, and the other tensor the
/// element strides `strides`; in dimension `dim`, of `size` elements, the index decides.
#[derive(Debug, Clone, Copy)]
pub struct Along<'a> {
    /// Shape of the index.
    pub shape: &'a [usize],
    /// Element strides of the tensor that is indexed.
    pub strides: &'a [isize],
    /// The dimension in which the index decides.
    pub dim: usize,
    /// Size of that dimension in the tensor that is indexed.
    pub size: usize,
}

impl Along<'_> {
    fn lens_and_steps(&self) -> (Vec<usize>, Vec<[isize; 1]>) {
        let free = self.strides.iter().enumerate().map(|(d, &s)| if d == self.dim { 0 } else { s });
        (self.shape.to_vec(), free.map(|s| [s]).collect())
    }

    fn check(&self) -> Result<(), CopyError> {
        if self.strides.len() == self.shape.len() && self.dim < self.shape.len().max(1) {
            return Ok(());
        }
        Err(CopyError::Strides { rank: self.shape.len(), found: self.strides.len() })
    }
}

/// `dst[i]..[j]..[k] = src[i]..[index[i, j, k]]..[k]`: PyTorch's `gather`. The destination is dense, of the
/// index's shape; elements are `N` bytes.
///
/// # Errors
/// Where an index is outside `-size..size`, or an element outside its buffer.
pub fn gather<const N: usize, I: Index>(
    par: &Par,
    src: &[[u8; N]],
    dst: &mut [[u8; N]],
    index: &[I],
    along: Along<'_>,
) -> Result<(), CopyError> {
    along.check()?;
    let numel = along.shape.iter().product::<usize>();
    if index.len() != numel || dst.len() != numel {
        let (needed, found) = (numel * N, dst.len().min(index.len()) * N);
        return Err(CopyError::Short { side: "destination", needed, found });
    }
    let (lens, steps) = along.lens_and_steps();
    let step = along.strides.get(along.dim).copied().unwrap_or(0);
    let failure = Mutex::new(None);
    let grain = (GRAIN / N).max(1);
    par.chunks_mut(dst, grain, |chunk, out| {
        let mut walk = Walk::new(&lens, &steps, [0], chunk * grain);
        for (out, &i) in out.iter_mut().zip(&index[chunk * grain..]) {
            let at = resolve(i, along.size)
                .map(|i| walk.at()[0].wrapping_add_signed(step.wrapping_mul(i as isize)));
            match at.map(|at| src.get(at)) {
                Ok(Some(x)) => *out = *x,
                Ok(None) => note(&failure, CopyError::Outside { side: "source" }),
                Err(e) => note(&failure, e),
            }
            walk.advance();
        }
    });
    outcome(failure)
}

/// What [`scatter`] does where it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// The last one stays (row-major order of the index).
    Replace,
    /// Sum with what is there.
    Add,
    /// Product with what is there.
    Multiply,
}

/// `dst[i]..[index[i, j, k]]..[k] = src[i, j, k]`, or its sum or product with what is there: PyTorch's
/// `scatter`, `scatter_add`. `src` has the element strides `src_strides` (0 everywhere for one value).
///
/// Indices that differ outside `dim` never meet, so threads share those; along `dim` the order is fixed.
///
/// # Errors
/// Where an index is outside `-size..size`, or an element outside its buffer.
pub fn scatter<T: Number, I: Index>(
    par: &Par,
    src: &[T],
    src_strides: &[isize],
    dst: &mut [T],
    index: &[I],
    along: Along<'_>,
    reduce: Reduce,
) -> Result<(), CopyError> {
    along.check()?;
    let numel = along.shape.iter().product::<usize>();
    if src_strides.len() != along.shape.len() {
        return Err(CopyError::Strides { rank: along.shape.len(), found: src_strides.len() });
    }
    if index.len() != numel {
        return Err(CopyError::Short { side: "source", needed: numel, found: index.len() });
    }
    if numel == 0 {
        return Ok(());
    }
    // Three operands move together: index, source, destination. The scattered dimension goes innermost.
    let own = super::strided::dense_strides(along.shape);
    let mut lens = along.shape.to_vec();
    let mut steps: Vec<[isize; 3]> = (0..lens.len())
        .map(|d| [own[d], src_strides[d], if d == along.dim { 0 } else { along.strides[d] }])
        .collect();
    let (len, [i_step, s_step, _]) = if lens.is_empty() {
        (1, [0; 3])
    } else {
        (lens.remove(along.dim), steps.remove(along.dim))
    };
    let d_step = along.strides.get(along.dim).copied().unwrap_or(0);
    let failure = Mutex::new(None);
    let dst = SharedMut::new(dst);
    let lanes = lens.iter().product();
    par.split(lanes, (GRAIN / (len * size_of::<T>())).max(1), |range| {
        let mut walk = Walk::new(&lens, &steps, [0; 3], range.start);
        for _ in range {
            let [mut i, mut s, d] = walk.at();
            for _ in 0..len {
                let to = resolve(index[i], along.size)
                    .map(|k| d.wrapping_add_signed(d_step.wrapping_mul(k as isize)));
                match (to, src.get(s)) {
                    (Ok(to), Some(&x)) if to < dst.len() => {
                        // SAFETY: inside the slice (just checked); another lane differs outside `dim`,
                        // and the strides are those of a tensor, so no other task gets here.
                        let y = unsafe { &mut *dst.as_mut_ptr().add(to) };
                        *y = match reduce {
                            Reduce::Replace => x,
                            Reduce::Add => T::narrow(y.widen().plus(x.widen())),
                            Reduce::Multiply => T::narrow(y.widen().times(x.widen())),
                        };
                    }
                    (Ok(_), _) => note(&failure, CopyError::Outside { side: "destination" }),
                    (Err(e), _) => note(&failure, e),
                }
                i = i.wrapping_add_signed(i_step);
                s = s.wrapping_add_signed(s_step);
            }
            walk.advance();
        }
    });
    outcome(failure)
}

/// Keeps the least failure: which thread saw it first must not show.
fn note(failure: &Mutex<Option<CopyError>>, error: CopyError) {
    let key = |e: &CopyError| match *e {
        CopyError::Index { index, .. } => (0, index),
        _ => (1, 0),
    };
    if let Ok(mut slot) = failure.lock()
        && slot.as_ref().is_none_or(|old| key(&error) < key(old))
    {
        *slot = Some(error);
    }
}

fn outcome(failure: Mutex<Option<CopyError>>) -> Result<(), CopyError> {
    failure.into_inner().ok().flatten().map_or(Ok(()), Err)
}

fn expect(side: &'static str, found: usize, factors: &[usize]) -> Result<(), CopyError> {
    let needed = factors.iter().try_fold(1usize, |a, &f| a.checked_mul(f)).unwrap_or(usize::MAX);
    if found == needed { Ok(()) } else { Err(CopyError::Short { side, needed, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use crate::reference::copy as reference;
    use crate::testkit::random;

    #[test]
    fn indices_count_from_both_ends() {
        assert_eq!(resolve(-1i32, 5), Ok(4));
        assert_eq!(resolve(5i64, 5), Err(CopyError::Index { index: 5, size: 5 }));
        assert_eq!(resolve(-6i64, 5), Err(CopyError::Index { index: -6, size: 5 }));
        assert!(resolve(i64::MIN, usize::MAX).is_err());
        assert!(resolve(0i64, 0).is_err());
    }

    #[test]
    fn take_copies_blocks() {
        let src: Vec<u8> = (0..2 * 5 * 3).collect();
        for threads in [1, 3] {
            let mut dst = [0; 2 * 4 * 3];
            Pool::new(threads)
                .enter(|par| take(par, &src, &mut dst, 2, 5, 3, &[4i32, 0, -2, 4]))
                .unwrap();
            assert_eq!(dst[..12], [12, 13, 14, 0, 1, 2, 9, 10, 11, 12, 13, 14]);
            assert_eq!(dst[12..15], [27, 28, 29]);
        }
        let par = Par::serial();
        let bad = take(&par, &src, &mut [0; 6], 2, 5, 3, &[5i64]);
        assert_eq!(bad, Err(CopyError::Index { index: 5, size: 5 }));
        assert!(take(&par, &src, &mut [0; 5], 2, 5, 3, &[1i64]).is_err());
    }

    #[test]
    fn gather_and_scatter_agree_with_the_reference() {
        let (shape, source) = ([3, 4, 50], [3usize, 7, 60]);
        let strides = [420, 60, 1];
        for (dim, &size) in source.iter().enumerate() {
            let along = Along { shape: &shape, strides: &strides, dim, size };
            let pick = |(i, _): (usize, f32)| (i * 7919 % (2 * size)) as i64 - size as i64;
            let index: Vec<i64> = random(600, 1).into_iter().enumerate().map(pick).collect();
            let src = random(1260, 2);
            let positions = reference::along(&shape, &strides, dim, size, &index);
            for threads in [1, 2, 3] {
                Pool::new(threads).enter(|par| {
                    let mut found = vec![[0; 4]; 600];
                    let bytes = src.iter().map(|x| x.to_ne_bytes()).collect::<Vec<_>>();
                    gather(par, &bytes, &mut found, &index, along).unwrap();
                    let values = positions.iter().map(|&p| src[p].to_ne_bytes());
                    assert!(found.into_iter().eq(values));

                    for reduce in [Reduce::Replace, Reduce::Add, Reduce::Multiply] {
                        let mut found = src.clone();
                        let mut expected = src.clone();
                        let update = random(600, 3);
                        let own = [200, 50, 1];
                        scatter(par, &update, &own, &mut found, &index, along, reduce).unwrap();
                        for (&p, &x) in positions.iter().zip(&update) {
                            match reduce {
                                Reduce::Replace => expected[p] = x,
                                Reduce::Add => expected[p] += x,
                                Reduce::Multiply => expected[p] *= x,
                            }
                        }
                        assert_eq!(found, expected);
                    }
                });
            }
        }
    }

    #[test]
    fn a_bad_index_is_reported_whoever_finds_it() {
        let index: Vec<i64> =
            (0..20_000).map(|i| if i % 3 == 0 { 9 } else { i % 10 - 10 }).collect();
        let along = Along { shape: &[20_000], strides: &[1], dim: 0, size: 9 };
        for threads in [1, 3] {
            let found = Pool::new(threads)
                .enter(|par| gather(par, &[[0u8; 8]; 9], &mut vec![[0; 8]; 20_000], &index, along));
            assert_eq!(found, Err(CopyError::Index { index: -10, size: 9 }));
        }
    }
}

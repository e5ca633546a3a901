//! Copies whose source or destination depends on data.
//!
//! Indices are i32 or i64 and are checked: one outside its dimension is a [`CopyError::Index`],
//! never a read elsewhere. Only [`resolve`] counts negative ones from the end, as Python does;
//! PyTorch's `gather`, `scatter`, `index_select` and `embedding` refuse them.

use super::{CopyError, GRAIN, Walk};
use crate::extent::disjoint;
use crate::number::{Number, Wide};
use crate::par::{Par, SharedMut, stop};
use std::sync::Mutex;

/// An integer type of indices.
pub trait Index: Copy + Into<i64> + Send + Sync {}
impl Index for i32 {}
impl Index for i64 {}

/// The position that `index` means in a dimension of `size` elements; negative ones count from the
/// end.
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
        _ => Err(CopyError::Index { index, size, from_end: true }),
    }
}

/// The position that `index` means in a dimension of `size` elements.
///
/// # Errors
/// Where it is outside `0..size`.
#[inline]
pub fn within(index: impl Index, size: usize) -> Result<usize, CopyError> {
    let index: i64 = index.into();
    match usize::try_from(index) {
        Ok(at) if at < size => Ok(at),
        _ => Err(CopyError::Index { index, size, from_end: false }),
    }
}

/// `dst[o][k] = src[o][index[k]]`, where the elements are blocks of `block` bytes and the source
/// has `size` of them for each `o`: index_select, and (with one `o`) embedding.
///
/// # Errors
/// Where an index is outside `0..size`, or a buffer has another length than these numbers say.
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
    index.iter().try_for_each(|&i| within(i, size).map(drop))?;
    if block == 0 || index.is_empty() {
        return Ok(());
    }
    match block {
        1 => take_elements::<1, _>(par, src, dst, size, index),
        2 => take_elements::<2, _>(par, src, dst, size, index),
        4 => take_elements::<4, _>(par, src, dst, size, index),
        8 => take_elements::<8, _>(par, src, dst, size, index),
        16 => take_elements::<16, _>(par, src, dst, size, index),
        _ => {
            let rows = (GRAIN / block).max(1);
            par.chunks_mut(dst, rows * block, |chunk, out| {
                let from = |o: usize, i: usize| &src[(o * size + i) * block..][..block];
                let copy = |out: &mut [u8], o, i| out.copy_from_slice(from(o, i));
                taken(out.chunks_exact_mut(block), chunk * rows, size, index, copy);
            });
        }
    }
    Ok(())
}

/// The copies of [`take`] where a block is an element of `N` bytes.
fn take_elements<const N: usize, I: Index>(
    par: &Par,
    src: &[u8],
    dst: &mut [u8],
    size: usize,
    index: &[I],
) {
    let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
    let rows = GRAIN / N;
    par.chunks_mut(dst, rows, |chunk, out| {
        let copy = |out: &mut [u8; N], o, i| *out = src[o * size + i];
        taken(out.iter_mut(), chunk * rows, size, index, copy);
    });
}

/// Calls `copy` for blocks of the destination, the first of which is block `first`, each with the
/// outer index and the block that are its source.
#[inline(always)]
fn taken<T, I: Index>(
    mut out: impl ExactSizeIterator<Item = T>,
    first: usize,
    size: usize,
    index: &[I],
    copy: impl Fn(T, usize, usize),
) {
    let (mut o, mut k) = (first / index.len(), first % index.len());
    while out.len() > 0 {
        for (&i, out) in index[k..].iter().zip(out.by_ref()) {
            // Every index was checked before.
            if let Ok(i) = within(i, size) {
                copy(out, o, i);
            }
        }
        (o, k) = (o + 1, 0);
    }
}

/// Where [`gather`] and [`scatter`] find their elements: `index` has `shape`, and the other tensor
/// the element strides `strides`; in dimension `dim`, of `size` elements, the index decides.
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

/// `dst[i]..[j]..[k] = src[i]..[index[i, j, k]]..[k]`: PyTorch's `gather`. The destination is
/// dense, of the index's shape; elements are `N` bytes.
///
/// # Errors
/// Where an index is outside `0..size`, or an element outside its buffer.
pub fn gather<const N: usize, I: Index>(
    par: &Par,
    src: &[[u8; N]],
    dst: &mut [[u8; N]],
    index: &[I],
    along: Along<'_>,
) -> Result<(), CopyError> {
    let numel = along.shape.iter().product::<usize>();
    if index.len() != numel || dst.len() != numel {
        let (needed, found) = (numel * N, dst.len().min(index.len()) * N);
        return Err(CopyError::Short { side: "destination", needed, found });
    }
    // An index of no elements fits every tensor, whatever its dimensions.
    if numel == 0 {
        return Ok(());
    }
    along.check()?;
    let (lens, steps) = along.lens_and_steps();
    let step = along.strides.get(along.dim).copied().unwrap_or(0);
    // Row by row of the innermost dimension.
    let rank = lens.len();
    let (len, across) = match rank {
        0 => (1, 0),
        _ => (lens[rank - 1], steps[rank - 1][0]),
    };
    let (lens, steps) = (&lens[..rank.saturating_sub(1)], &steps[..rank.saturating_sub(1)]);
    let failure = Mutex::new(None);
    let grain = (GRAIN / N).max(1);
    par.chunks_mut(dst, grain, |chunk, mut out| {
        let mut at = chunk * grain;
        let mut walk = Walk::new(lens, steps, [0], at / len);
        while !out.is_empty() {
            let first = at % len;
            let (row, rest) = out.split_at_mut(out.len().min(len - first));
            let index = &index[at..at + row.len()];
            let mut from = walk.at()[0].wrapping_add_signed(across.wrapping_mul(first as isize));
            for (out, &i) in row.iter_mut().zip(index) {
                let at = within(i, along.size)
                    .map(|i| from.wrapping_add_signed(step.wrapping_mul(i as isize)));
                match at.map(|at| src.get(at)) {
                    Ok(Some(x)) => *out = *x,
                    Ok(None) => note(&failure, CopyError::Outside { side: "source" }),
                    Err(e) => note(&failure, e),
                }
                from = from.wrapping_add_signed(across);
            }
            at += row.len();
            out = rest;
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

impl Reduce {
    #[inline(always)]
    fn apply<T: Number>(self, there: T, new: T) -> T {
        match self {
            Self::Replace => new,
            Self::Add => T::narrow(there.widen().plus(new.widen())),
            Self::Multiply => T::narrow(there.widen().times(new.widen())),
        }
    }
}

/// `dst[i]..[index[i, j, k]]..[k] = src[i, j, k]`, or its sum or product with what is there:
/// PyTorch's `scatter`, `scatter_add`. `src` has the element strides `src_strides` (0 everywhere
/// for one value).
///
/// # Errors
/// Where an index is outside `0..size`, or an element outside its buffer.
pub fn scatter<T: Number, I: Index>(
    par: &Par,
    src: &[T],
    src_strides: &[isize],
    dst: &mut [T],
    index: &[I],
    along: Along<'_>,
    reduce: Reduce,
) -> Result<(), CopyError> {
    let combine = |there, new| reduce.apply(there, new);
    scatter_with(par, src, src_strides, dst, index, along, combine)
}

/// As [`scatter`]; `combine` makes what stays of what is there and what is new.
///
/// Indices that differ outside `dim` never meet, so threads share those; along `dim` the order is
/// fixed.
///
/// # Errors
/// As there.
pub fn scatter_with<T: Copy + Send + Sync, I: Index>(
    par: &Par,
    src: &[T],
    src_strides: &[isize],
    dst: &mut [T],
    index: &[I],
    along: Along<'_>,
    combine: impl Fn(T, T) -> T + Sync,
) -> Result<(), CopyError> {
    let numel = along.shape.iter().product::<usize>();
    if index.len() != numel {
        return Err(CopyError::Short { side: "source", needed: numel, found: index.len() });
    }
    // As for `gather`.
    if numel == 0 {
        return Ok(());
    }
    along.check()?;
    if src_strides.len() != along.shape.len() {
        return Err(CopyError::Strides { rank: along.shape.len(), found: src_strides.len() });
    }
    // Three operands move together: index, source, destination. The scattered dimension goes
    // innermost.
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
    let mut lying: Vec<_> =
        lens.iter().zip(&steps).map(|(n, [.., d])| (*n, d.unsigned_abs())).collect();
    lying.push((along.size, d_step.unsigned_abs()));
    disjoint(&mut lying, 1).ok_or(CopyError::Overlap)?;
    let failure = Mutex::new(None);
    let dst = SharedMut::new(dst);
    let lanes = lens.iter().product();
    par.split(lanes, (GRAIN / (len * size_of::<T>())).max(1), |range| {
        let mut walk = Walk::new(&lens, &steps, [0; 3], range.start);
        let mut watch = stop::Watch::new();
        for _ in range {
            let [mut i, mut s, d] = walk.at();
            for _ in 0..len {
                if watch.stops(4) {
                    return;
                }
                let to = within(index[i], along.size)
                    .map(|k| d.wrapping_add_signed(d_step.wrapping_mul(k as isize)));
                match (to, src.get(s)) {
                    (Ok(to), Some(&x)) if to < dst.len() => {
                        // SAFETY: inside the slice (just checked); another lane differs outside
                        // `dim`, and no two elements have the same place (checked), so no other
                        // task gets here.
                        let y = unsafe { &mut *dst.as_mut_ptr().add(to) };
                        *y = combine(*y, x);
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

/// Positions, in blocks, that a part of a tensor is made of: all sums of one out of each list. The
/// part is dense: (outer, at, inner).
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// Before the indexed dimensions.
    pub outer: &'a [usize],
    /// What the indices say.
    pub at: &'a [usize],
    /// After them, as far as that is not part of a block.
    pub inner: &'a [usize],
    /// Bytes, or elements, of a block.
    pub block: usize,
}

impl Places<'_> {
    /// Number of blocks.
    fn len(&self) -> usize {
        self.outer.len().saturating_mul(self.at.len()).saturating_mul(self.inner.len())
    }

    /// Calls `each` for blocks `n` to `n + left` of the part with the position of the first ones
    /// and what is to be added for each of them, again and again until there are no more.
    fn runs(&self, mut n: usize, mut left: usize, mut each: impl FnMut(usize, &[usize])) {
        // The innermost list that has several.
        let (list, alone) = match self.inner {
            &[one] => (self.at, Some(one)),
            inner => (inner, None),
        };
        while left > 0 {
            let (row, first) = (n / list.len(), n % list.len());
            let count = left.min(list.len() - first);
            let before = match alone {
                Some(one) => self.outer[row] + one,
                None => self.outer[row / self.at.len()] + self.at[row % self.at.len()],
            };
            each(before, &list[first..first + count]);
            (n, left) = (n + count, left - count);
        }
    }

    /// Where block `n` of the part lies in the tensor.
    fn range(&self, n: usize) -> std::ops::Range<usize> {
        let (outer, inner) = (n / (self.at.len() * self.inner.len()), n % self.inner.len());
        let at = n / self.inner.len() % self.at.len();
        let first = self.outer[outer] + self.at[at] + self.inner[inner];
        first.saturating_mul(self.block)..first.saturating_add(1).saturating_mul(self.block)
    }
}

/// Copies a part of `src` to `dst`, which it fills: PyTorch's indexing with tensors.
///
/// # Errors
/// Where the part has another size than `dst`, or lies outside `src`.
pub fn pick(par: &Par, src: &[u8], dst: &mut [u8], places: Places<'_>) -> Result<(), CopyError> {
    expect("destination", dst.len(), &[places.len(), places.block])?;
    if dst.is_empty() {
        return Ok(());
    }
    match places.block {
        1 => pick_elements::<1>(par, src, dst, places),
        2 => pick_elements::<2>(par, src, dst, places),
        4 => pick_elements::<4>(par, src, dst, places),
        8 => pick_elements::<8>(par, src, dst, places),
        16 => pick_elements::<16>(par, src, dst, places),
        block => {
            let blocks = (GRAIN / block).max(1);
            let failure = Mutex::new(None);
            par.chunks_mut(dst, blocks * block, |chunk, out| {
                let out = out.chunks_exact_mut(block);
                let from = |at: usize| {
                    let first = at.saturating_mul(block);
                    src.get(first..first.saturating_add(block))
                };
                picked(out, chunk * blocks, places, &failure, |out, at| {
                    from(at).map(|from| out.copy_from_slice(from))
                });
            });
            outcome(failure)
        }
    }
}

/// [`pick`] where a block is an element of `N` bytes.
fn pick_elements<const N: usize>(
    par: &Par,
    src: &[u8],
    dst: &mut [u8],
    places: Places<'_>,
) -> Result<(), CopyError> {
    let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
    let failure = Mutex::new(None);
    par.chunks_mut(dst, GRAIN / N, |chunk, out| {
        picked(out.iter_mut(), chunk * (GRAIN / N), places, &failure, |out, at| {
            src.get(at).map(|from| *out = *from)
        });
    });
    outcome(failure)
}

/// Calls `copy` for blocks of the destination, the first of which is block `first`, each with the
/// block that is its source; `None` says that there is none.
#[inline(always)]
fn picked<T>(
    mut out: impl ExactSizeIterator<Item = T>,
    first: usize,
    places: Places<'_>,
    failure: &Mutex<Option<CopyError>>,
    copy: impl Fn(T, usize) -> Option<()>,
) {
    places.runs(first, out.len(), |before, list| {
        for (at, out) in list.iter().zip(out.by_ref()) {
            if copy(out, before + at).is_none() {
                note(failure, CopyError::Outside { side: "source" });
            }
        }
    });
}

/// Writes `src` to a part of `dst`, or combines it with what is there; where a place occurs more
/// than once, in order. On one thread.
///
/// # Errors
/// Where the part has another size than `src`, or lies outside `dst`.
pub fn place<T: Number>(
    src: &[T],
    dst: &mut [T],
    places: Places<'_>,
    reduce: Reduce,
) -> Result<(), CopyError> {
    expect("source", src.len(), &[places.len(), places.block])?;
    for (n, from) in stop::paced(src.chunks_exact(places.block.max(1)), 4).enumerate() {
        let to = dst.get_mut(places.range(n)).ok_or(CopyError::Outside { side: "destination" })?;
        for (y, x) in to.iter_mut().zip(from) {
            *y = reduce.apply(*y, *x);
        }
    }
    Ok(())
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
    use plutino_reference::copy as reference;
    use plutino_reference::testkit::random;

    #[test]
    fn indices_count_from_both_ends() {
        assert_eq!(resolve(-1i32, 5), Ok(4));
        assert_eq!(resolve(5i64, 5), Err(CopyError::Index { index: 5, size: 5, from_end: true }));
        assert_eq!(
            resolve(-6i64, 5).map_err(|e| e.to_string()),
            Err("index -6 is outside -5..5".into())
        );
        assert_eq!(
            within(-1i64, 5).map_err(|e| e.to_string()),
            Err("index -1 is outside 0..5".into())
        );
        assert!(resolve(i64::MIN, usize::MAX).is_err());
        assert!(resolve(0i64, 0).is_err());
    }

    #[test]
    fn take_copies_blocks() {
        let src: Vec<u8> = (0..2 * 5 * 3).collect();
        for threads in [1, 3] {
            let mut dst = [0; 2 * 4 * 3];
            Pool::new(threads)
                .enter(|par| take(par, &src, &mut dst, 2, 5, 3, &[4i32, 0, 3, 4]))
                .unwrap();
            assert_eq!(dst[..12], [12, 13, 14, 0, 1, 2, 9, 10, 11, 12, 13, 14]);
            assert_eq!(dst[12..15], [27, 28, 29]);
        }
        let par = Par::serial();
        let bad = take(&par, &src, &mut [0; 6], 2, 5, 3, &[5i64]);
        assert_eq!(bad, Err(CopyError::Index { index: 5, size: 5, from_end: false }));
        assert!(take(&par, &src, &mut [0; 5], 2, 5, 3, &[1i64]).is_err());
    }

    #[test]
    fn gather_and_scatter_agree_with_the_reference() {
        let (shape, source) = ([3, 4, 50], [3usize, 7, 60]);
        let strides = [420, 60, 1];
        for (dim, &size) in source.iter().enumerate() {
            let along = Along { shape: &shape, strides: &strides, dim, size };
            let pick = |(i, _): (usize, f32)| (i * 7919 % size) as i64;
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
                    let (mut found, mut expected) = (src.clone(), src.clone());
                    let update = random(600, 3);
                    let own = [200, 50, 1];
                    scatter_with(par, &update, &own, &mut found, &index, along, f32::max).unwrap();
                    for (&p, &x) in positions.iter().zip(&update) {
                        expected[p] = expected[p].max(x);
                    }
                    assert_eq!(found, expected);
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
            assert_eq!(found, Err(CopyError::Index { index: -10, size: 9, from_end: false }));
        }
    }

    #[test]
    fn lanes_with_one_place_are_refused() {
        let (index, mut dst) = ([0i64; 4], [0.0f32; 4]);
        for strides in [[0, 1], [1, 0], [1, 1]] {
            let along = Along { shape: &[2, 2], strides: &strides, dim: 1, size: 2 };
            let found =
                scatter(&Par::serial(), &[1.0], &[0, 0], &mut dst, &index, along, Reduce::Add);
            assert_eq!(found, Err(CopyError::Overlap), "{strides:?}");
        }
        let along = Along { shape: &[2, 2], strides: &[2, 1], dim: 1, size: 2 };
        let found = scatter(&Par::serial(), &[1.0], &[0, 0], &mut dst, &index, along, Reduce::Add);
        assert_eq!((found, dst), (Ok(()), [2.0, 0.0, 2.0, 0.0]));
    }

    #[test]
    fn pick_and_place_are_each_others_reverse() {
        // (2, 5, 3, 4) indexed in dimension 2, the last dimension as blocks.
        let src: Vec<u8> = (0..120).collect();
        let outer: Vec<usize> = (0..10).map(|i| i * 3).collect();
        let places = Places { outer: &outer, at: &[2, 0], inner: &[0], block: 4 };
        for threads in [1, 2] {
            let mut dst = vec![0; 80];
            Pool::new(threads).enter(|par| pick(par, &src, &mut dst, places)).unwrap();
            assert_eq!(dst[..8], [8, 9, 10, 11, 0, 1, 2, 3]);
            assert_eq!(dst[72..], [116, 117, 118, 119, 108, 109, 110, 111]);
            let mut back = src.clone();
            place(&dst, &mut back, places, Reduce::Replace).unwrap();
            assert_eq!(back, src);
        }
        let twice = Places { outer: &[0], at: &[1, 1], inner: &[0], block: 1 };
        let mut sum = [1.0f32, 2.0];
        place(&[10.0, 20.0], &mut sum, twice, Reduce::Add).unwrap();
        assert_eq!(sum, [1.0, 32.0]);
        let outside = Places { at: &[2], ..twice };
        assert!(place(&[1.0], &mut sum, outside, Reduce::Replace).is_err());
        assert!(pick(&Par::serial(), &src[..2], &mut [0], outside).is_err());
        assert!(pick(&Par::serial(), &src, &mut [0], twice).is_err());
    }
}

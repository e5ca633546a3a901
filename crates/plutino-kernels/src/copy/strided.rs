//! Copies between two strided tensors.
//!
//! ```text
//! dst[d0 + Σ iₖ·dstₖ] = src[s0 + Σ iₖ·srcₖ]      for all 0 ≤ iₖ < lenₖ
//! ```
//! Planning makes the nest as short as it gets: dimensions of size 1 go, the destination's largest
//! steps come first, neighbours that continue evenly on both sides become one, and an innermost run
//! that is contiguous on both sides becomes a larger element if it is 2 to 64 bytes long. What is
//! left is one of
//!
//! - `rows`: the innermost dimension is moved as a run (memcpy), a fill, backwards, or element by
//!   element; where it is short, a whole column of rows at a time;
//! - `tiles`: source and destination run along different dimensions (a transposition): square
//!   tiles, so that each cache line that is fetched is used completely while it is in the level-1
//!   cache.
//!
//! Threads share the outer indices and strips of the body; every element is written by one of them.

use super::{CopyError, GRAIN, Walk};
use crate::extent::disjoint;
use crate::par::{Par, SharedMut};
use smallvec::SmallVec;

/// Side of a tile: 32 rows of 4-byte elements are 32 cache lines on one side and 64 half lines on
/// the other, far below what a level-1 cache holds.
const TILE: usize = 32;

/// Elements below which a row is too short to be a loop of its own.
const SHORT: usize = 16;

/// Bytes of the short rows that are copied column by column: they stay in the level-1 cache.
const SHORT_BYTES: usize = 8 << 10;

/// One operand of a strided copy, in elements. Strides may be negative (flip) and, for the source,
/// zero (broadcast).
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Position of index (0, 0, ...).
    pub offset: usize,
    /// Step of each dimension.
    pub strides: &'a [isize],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dim {
    len: usize,
    src: isize,
    dst: isize,
}

/// A planned strided copy.
#[derive(Debug, Clone)]
pub struct StridedCopy {
    /// Bytes of what moves as one: an element, or a short run of them.
    unit: usize,
    /// Position of index 0, in units.
    origin: [usize; 2],
    /// Bytes that source and destination must have.
    needed: [usize; 2],
    /// The dimensions around the body; the last one counts strips of the body.
    lens: Vec<usize>,
    steps: Vec<[isize; 2]>,
    body: Body,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// `strip` elements of `inner` at a time.
    Rows { inner: Dim, strip: usize },
    /// As many of `rows` at a time, each of less than [`SHORT`] elements of `inner`.
    Short { inner: Dim, rows: Dim, strip: usize },
    /// The source runs along `across`, the destination along `inner`; [`TILE`] of the longer one at
    /// a time.
    Tiles { inner: Dim, across: Dim },
}

impl StridedCopy {
    /// Plans the copy of all elements (of `size` bytes) of `shape`.
    ///
    /// # Errors
    /// Where a side has another number of strides than dimensions, some index lies before the first
    /// element, or two indices would write to one place.
    pub fn new(
        size: usize,
        shape: &[usize],
        src: Side<'_>,
        dst: Side<'_>,
    ) -> Result<Self, CopyError> {
        if !matches!(size, 1 | 2 | 4 | 8 | 16) {
            return Err(CopyError::ElementSize { size });
        }
        for side in [&src, &dst] {
            if side.strides.len() != shape.len() {
                return Err(CopyError::Strides { rank: shape.len(), found: side.strides.len() });
            }
        }
        let needed = [
            reach("source", size, shape, src.offset, src.strides)?,
            reach("destination", size, shape, dst.offset, dst.strides)?,
        ];
        let dims = shape.iter().zip(src.strides.iter().zip(dst.strides));
        let dims: Vec<Dim> =
            dims.map(|(&len, (&src, &dst))| Dim { len, src, dst }).filter(|d| d.len != 1).collect();
        let mut nest = Nest { unit: size, dims, origin: [src.offset, dst.offset] };
        if nest.dims.iter().any(|d| d.len == 0) {
            nest.dims = vec![Dim { len: 0, src: 1, dst: 1 }];
        }
        nest.sort_and_join()?;
        nest.widen();
        Ok(nest.plan(needed))
    }

    /// Plans the copy of a dense tensor of `shape` out of strided memory.
    ///
    /// # Errors
    /// As [`StridedCopy::new`].
    pub fn to_dense(size: usize, shape: &[usize], src: Side<'_>) -> Result<Self, CopyError> {
        let strides = dense_strides(shape);
        Self::new(size, shape, src, Side { offset: 0, strides: &strides })
    }

    /// Which loop does the work: `copy`, `rows`, `short rows`, `elements` or `tiles`.
    pub fn name(&self) -> &'static str {
        match self.body {
            Body::Tiles { .. } => "tiles",
            Body::Short { .. } => "short rows",
            Body::Rows { inner: Dim { src: 1, dst: 1, .. }, .. } if self.lens.len() == 1 => "copy",
            Body::Rows { inner: Dim { src: -1..=1, dst: 1, .. }, .. } => "rows",
            Body::Rows { .. } => "elements",
        }
    }

    /// Bytes that are written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies.
    ///
    /// # Errors
    /// Where a buffer is shorter than the plan reaches.
    pub fn run(&self, par: &Par, src: &[u8], dst: &mut [u8]) -> Result<(), CopyError> {
        let lens = [("source", src.len()), ("destination", dst.len())];
        for ((side, found), needed) in lens.into_iter().zip(self.needed) {
            if found < needed {
                return Err(CopyError::Short { side, needed, found });
            }
        }
        match self.unit {
            1 => self.nest::<1>(par, src, dst),
            2 => self.nest::<2>(par, src, dst),
            4 => self.nest::<4>(par, src, dst),
            8 => self.nest::<8>(par, src, dst),
            16 => self.nest::<16>(par, src, dst),
            32 => self.nest::<32>(par, src, dst),
            _ => self.nest::<64>(par, src, dst),
        }
        Ok(())
    }

    fn nest<const N: usize>(&self, par: &Par, src: &[u8], dst: &mut [u8]) {
        let (src, dst) = (src.as_chunks::<N>().0, SharedMut::new(dst.as_chunks_mut::<N>().0));
        let strips: usize = self.lens.iter().product();
        let grain = GRAIN / (self.bytes / strips.max(1)).max(1);
        let last = self.lens.len() - 1;
        par.split(strips, grain, |range| {
            let mut walk = Walk::new(&self.lens, &self.steps, self.origin, range.start);
            for _ in range {
                let [s, d] = walk.at();
                let strip = walk.index(last);
                match self.body {
                    Body::Rows { inner, strip: width } => {
                        let len = width.min(inner.len - strip * width);
                        // SAFETY: `run` checked that every index of the plan lies inside both
                        // slices; `sort_and_join` that no two of them share a destination.
                        unsafe { row(Dim { len, ..inner }, src, s, &dst, d) };
                    }
                    Body::Short { inner, rows, strip: height } => {
                        let len = height.min(rows.len - strip * height);
                        for j in 0..inner.len as isize {
                            let s = s.wrapping_add_signed(inner.src.wrapping_mul(j));
                            let d = d.wrapping_add_signed(inner.dst.wrapping_mul(j));
                            // SAFETY: as above.
                            unsafe { elements(Dim { len, ..rows }, src, s, &dst, d) };
                        }
                    }
                    Body::Tiles { mut inner, mut across } => {
                        let longer = longer(&mut inner, &mut across);
                        longer.len = TILE.min(longer.len - strip * TILE);
                        // SAFETY: as above.
                        unsafe { tiles(inner, across, src, s, &dst, d) };
                    }
                }
                walk.advance();
            }
        });
    }
}

/// Strides of a dense row-major tensor.
pub(super) fn dense_strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1usize;
    for (s, &d) in strides.iter_mut().zip(shape).rev() {
        *s = step as isize;
        step = step.saturating_mul(d);
    }
    strides
}

/// Bytes from the buffer's start to the end of the last element that is addressed.
fn reach(
    side: &'static str,
    size: usize,
    shape: &[usize],
    offset: usize,
    strides: &[isize],
) -> Result<usize, CopyError> {
    let outside = CopyError::Outside { side };
    if shape.contains(&0) {
        return Ok(0);
    }
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (&len, &stride) in shape.iter().zip(strides) {
        let span = (len as i128 - 1) * stride as i128; // below 2^127
        low = low.checked_add(span.min(0)).ok_or(outside.clone())?;
        high = high.checked_add(span.max(0)).ok_or(outside.clone())?;
    }
    let end = high.checked_add(1).and_then(|h| h.checked_mul(size as i128)).filter(|_| low >= 0);
    end.and_then(|e| isize::try_from(e).ok()).map(|e| e as usize).ok_or(outside)
}

/// A loop nest while it is being planned. Outermost dimension first.
struct Nest {
    unit: usize,
    dims: Vec<Dim>,
    origin: [usize; 2],
}

impl Nest {
    /// Sorts by the destination's steps, checks that they do not overlap, joins neighbours.
    fn sort_and_join(&mut self) -> Result<(), CopyError> {
        self.dims.sort_by_key(|d| {
            std::cmp::Reverse((d.dst.unsigned_abs(), d.src.unsigned_abs(), d.len))
        });
        let dims = self.dims.iter().map(|d| (d.len, d.dst.unsigned_abs()));
        disjoint(&mut dims.collect::<SmallVec<[_; 8]>>(), 1).ok_or(CopyError::Overlap)?;
        let mut joined: Vec<Dim> = Vec::with_capacity(self.dims.len());
        for &d in &self.dims {
            let len = d.len as isize;
            match joined.last_mut() {
                Some(outer)
                    if outer.src == d.src.wrapping_mul(len)
                        && outer.dst == d.dst.wrapping_mul(len) =>
                {
                    *outer = Dim { len: outer.len * d.len, ..d };
                }
                _ => joined.push(d),
            }
        }
        self.dims = joined;
        Ok(())
    }

    /// Makes a short contiguous innermost run one larger element, as often as that goes.
    fn widen(&mut self) {
        while let Some((&Dim { len, src: 1, dst: 1 }, outer)) = self.dims.split_last() {
            let unit = self.unit * len;
            let whole = |x: isize| x % len as isize == 0;
            let fits = matches!(unit, 2 | 4 | 8 | 16 | 32 | 64)
                && self.origin.iter().all(|o| o % len == 0)
                && outer.iter().all(|d| whole(d.src) && whole(d.dst));
            if !fits || outer.is_empty() {
                return;
            }
            self.unit = unit;
            self.origin = self.origin.map(|o| o / len);
            self.dims.pop();
            for d in &mut self.dims {
                d.src /= len as isize;
                d.dst /= len as isize;
            }
        }
    }

    fn plan(mut self, needed: [usize; 2]) -> StridedCopy {
        let numel: usize = self.dims.iter().map(|d| d.len).product();
        let inner = self.dims.pop().unwrap_or(Dim { len: 1, src: 1, dst: 1 });
        // Where the destination runs along `inner` but the source runs along another dimension, a
        // row would use one element of each cache line that it fetches.
        let crosses =
            |d: &Dim| d.src.unsigned_abs() == 1 && inner.src.unsigned_abs() > 1 && inner.dst == 1;
        let across = self.dims.iter().position(crosses).map(|k| self.dims.remove(k));
        let short = (inner.len < SHORT && across.is_none()).then(|| self.dims.pop()).flatten();
        let (strips, step, body) = match (across, short) {
            (Some(across), _) => {
                let across = self.forwards(across);
                let cut = *longer(&mut inner.clone(), &mut across.clone());
                let step = [cut.src, cut.dst].map(|s| s.wrapping_mul(TILE as isize));
                (cut.len.div_ceil(TILE), step, Body::Tiles { inner, across })
            }
            (_, Some(rows)) => {
                let row = (inner.len * self.unit).max(1);
                let strip = (SHORT_BYTES / row).min(rows.len).max(1);
                let step = [rows.src, rows.dst].map(|s| s.wrapping_mul(strip as isize));
                (rows.len.div_ceil(strip), step, Body::Short { inner, rows, strip })
            }
            _ => {
                let strip = (GRAIN / self.unit).min(inner.len).max(1);
                let step = [inner.src, inner.dst].map(|s| s.wrapping_mul(strip as isize));
                (inner.len.div_ceil(strip), step, Body::Rows { inner, strip })
            }
        };
        StridedCopy {
            unit: self.unit,
            origin: self.origin,
            needed,
            lens: self.dims.iter().map(|d| d.len).chain([strips]).collect(),
            steps: self.dims.iter().map(|d| [d.src, d.dst]).chain([step]).collect(),
            body,
            bytes: numel * self.unit,
        }
    }

    /// The dimension, along which the source runs forwards: where it ran backwards, it is counted
    /// from its end.
    fn forwards(&mut self, dim: Dim) -> Dim {
        let Dim { len, src, dst } = dim;
        if src >= 0 {
            return dim;
        }
        for (origin, step) in self.origin.iter_mut().zip([src, dst]) {
            *origin = origin.wrapping_add_signed(step.wrapping_mul(len as isize - 1));
        }
        Dim { len, src: -src, dst: dst.wrapping_neg() }
    }
}

/// The dimension of a transposing pair that is cut into strips.
fn longer<'a>(inner: &'a mut Dim, across: &'a mut Dim) -> &'a mut Dim {
    if inner.len > across.len { inner } else { across }
}

/// Copies one row.
///
/// # Safety
/// All positions lie inside `src` and `dst`, and nobody else accesses those of `dst`.
#[inline]
unsafe fn row<const N: usize>(
    dim: Dim,
    src: &[[u8; N]],
    s: usize,
    dst: &SharedMut<'_, [u8; N]>,
    d: usize,
) {
    match dim {
        Dim { len, src: 1, dst: 1 } => {
            // SAFETY: the caller's promise.
            unsafe { dst.slice(d..d + len) }.copy_from_slice(&src[s..s + len]);
        }
        Dim { len, src: 0, dst: 1 } => {
            // SAFETY: the caller's promise.
            unsafe { dst.slice(d..d + len) }.fill(src[s]);
        }
        Dim { len, src: -1, dst: 1 } if len > 0 => {
            let from = src[s + 1 - len..=s].iter().rev();
            // SAFETY: the caller's promise.
            for (to, from) in unsafe { dst.slice(d..d + len) }.iter_mut().zip(from) {
                *to = *from;
            }
        }
        Dim { len, src: step, dst: 1 } => {
            // SAFETY: the caller's promise.
            let to = unsafe { dst.slice(d..d + len) };
            let mut s = s;
            for to in to {
                // SAFETY: the caller's promise.
                *to = unsafe { *src.get_unchecked(s) };
                s = s.wrapping_add_signed(step);
            }
        }
        // SAFETY: the caller's promise.
        _ => unsafe { elements(dim, src, s, dst, d) },
    }
}

/// Copies one row element by element.
///
/// # Safety
/// As [`row`].
#[inline]
unsafe fn elements<const N: usize>(
    dim: Dim,
    src: &[[u8; N]],
    mut s: usize,
    dst: &SharedMut<'_, [u8; N]>,
    mut d: usize,
) {
    for _ in 0..dim.len {
        // SAFETY: the caller's promise.
        unsafe { *dst.as_mut_ptr().add(d) = *src.get_unchecked(s) };
        s = s.wrapping_add_signed(dim.src);
        d = d.wrapping_add_signed(dim.dst);
    }
}

/// Transposes one strip: `across` runs along the source, `inner` along the destination, and one of
/// them is at most [`TILE`] long.
///
/// # Safety
/// As [`row`].
unsafe fn tiles<const N: usize>(
    inner: Dim,
    across: Dim,
    src: &[[u8; N]],
    s: usize,
    dst: &SharedMut<'_, [u8; N]>,
    d: usize,
) {
    for i0 in (0..across.len).step_by(TILE) {
        for j0 in (0..inner.len).step_by(TILE) {
            let tile = Dim { len: TILE.min(inner.len - j0), ..inner };
            let s = s.wrapping_add_signed(inner.src.wrapping_mul(j0 as isize));
            for i in i0..across.len.min(i0 + TILE) {
                let d = d.wrapping_add_signed(across.dst.wrapping_mul(i as isize)) + j0;
                // SAFETY: the caller's promise.
                unsafe { row(tile, src, s + i, dst, d) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use plutino_reference::copy::strided as reference;

    fn plan(size: usize, shape: &[usize], src: &[isize]) -> StridedCopy {
        StridedCopy::to_dense(size, shape, Side { offset: 0, strides: src }).unwrap()
    }

    #[test]
    fn nests_are_as_short_as_they_get() {
        assert_eq!(plan(4, &[2, 3, 4, 5], &[60, 20, 5, 1]).name(), "copy");
        // (N, H, W, C) out of (N, C, H, W): H and W stay one dimension.
        let nhwc = plan(4, &[2, 8, 8, 3], &[192, 8, 1, 64]);
        assert_eq!((nhwc.name(), nhwc.lens.len()), ("tiles", 2));
        // Heads of attention: rows of 64 floats.
        assert_eq!(plan(4, &[8, 128, 64], &[64, 512, 1]).name(), "rows");
        // Pairs of floats move as one 8-byte element.
        assert_eq!(plan(4, &[16, 16, 2], &[2, 32, 1]).unit, 8);
        assert_eq!(plan(4, &[3, 5, 3], &[3, 9, 1]).unit, 4);
    }

    #[test]
    fn what_cannot_be_copied_is_refused() {
        let shape = [2, 3];
        let dense = Side { offset: 0, strides: &[3, 1] };
        let new = |src, dst| StridedCopy::new(4, &shape, src, dst).err();
        assert_eq!(new(dense, Side { offset: 0, strides: &[0, 1] }), Some(CopyError::Overlap));
        assert_eq!(new(dense, Side { offset: 0, strides: &[2, 1] }), Some(CopyError::Overlap));
        let outside = Some(CopyError::Outside { side: "source" });
        assert_eq!(new(Side { offset: 1, strides: &[3, -1] }, dense), outside);
        assert_eq!(new(Side { offset: 1, strides: &[isize::MAX, 1] }, dense), outside);
        let copy = StridedCopy::new(4, &shape, dense, dense).unwrap();
        let short = copy.run(&Par::serial(), &[0; 23], &mut [0; 24]);
        assert_eq!(short, Err(CopyError::Short { side: "source", needed: 24, found: 23 }));
    }

    /// Shapes, strides and offsets of both sides that exercise every body, with tails.
    #[test]
    fn agrees_with_the_reference() {
        type Case = (&'static [usize], usize, &'static [isize], usize, &'static [isize]);
        let cases: &[Case] = &[
            (&[], 2, &[], 0, &[]),
            (&[7], 0, &[1], 0, &[1]),
            (&[0, 3], 0, &[3, 1], 0, &[3, 1]),
            (&[70, 65], 0, &[1, 70], 0, &[65, 1]), // transpose
            (&[2, 65, 33, 3], 0, &[6435, 33, 1, 2145], 0, &[6435, 99, 3, 1]), // (0,2,3,1)
            (&[2, 40, 3, 37], 0, &[4440, 37, 1480, 1], 0, &[4440, 111, 37, 1]), // (0,2,1,3)
            (&[1000, 3], 0, &[1, 1000], 0, &[3, 1]),
            (&[3, 1000], 0, &[1, 3], 0, &[1000, 1]),
            (&[9, 5], 44, &[-5, -1], 0, &[5, 1]), // flip
            (&[300, 700], 209_999, &[-700, -1], 0, &[700, 1]),
            (&[3, 9000], 8999, &[9000, -1], 0, &[9000, 1]),
            (&[65, 70], 64, &[-1, 65], 0, &[70, 1]), // rot90
            (&[70, 65], 69 * 65, &[1, -70], 0, &[65, 1]),
            (&[6, 5], 1, &[0, 3], 0, &[5, 1]), // expand of a slice
            (&[5000, 3], 0, &[1, 0], 0, &[3, 1]), // repeat_interleave
            (&[2, 3000, 5, 3], 2, &[12_000, 4, 0, -1], 0, &[45_000, 15, 3, 1]),
            (&[2000, 2, 7], 0, &[21, 0, 3], 0, &[14, 7, 1]),
            (&[5, 6], 1, &[3, 0], 2, &[40, 6]), // into a stack
            (&[4, 3, 2], 0, &[6, 2, 1], 3, &[20, 4, 1]), // concatenation
            (&[3, 50, 2], 0, &[2, 6, 1], 0, &[100, 2, 1]), // pairs
            (&[50_000], 0, &[1], 5, &[1]),
            (&[3, 20_000], 1, &[0, 1], 0, &[20_000, 1]),
        ];
        let pools = [1, 2, 3].map(Pool::new);
        for &(shape, so, ss, d0, ds) in cases {
            for size in [1, 2, 4, 8, 16] {
                let (from, to) =
                    (Side { offset: so, strides: ss }, Side { offset: d0, strides: ds });
                let plan = StridedCopy::new(size, shape, from, to).unwrap();
                let src: Vec<u8> = (0..plan.needed[0]).map(|i| (i * 31 + i / 251) as u8).collect();
                let mut expected = vec![7; plan.needed[1]];
                reference(size, shape, (so, ss), &src, (d0, ds), &mut expected);
                for pool in &pools {
                    let mut found = vec![7; plan.needed[1]];
                    pool.enter(|par| plan.run(par, &src, &mut found)).unwrap();
                    assert!(found == expected, "{shape:?} {ss:?} {ds:?} x {size} on {pool:?}");
                }
            }
        }
    }
}

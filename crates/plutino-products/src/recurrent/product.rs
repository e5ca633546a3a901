//! The product of a few rows with a matrix that is read once: C\[rows, N\] (+)= A\[rows, K\] B\[K,
//! N\].
//!
//! A row of A is a state, B is Whh or Whr. B lies in panels of the register tile's width and of the
//! whole depth, so that each is read in one stretch. A is read where it lies: it has to share the
//! first-level cache with all that streams through it.
//!
//! B may be narrow, bf16 or f16: half the bytes, widened in registers. Few rows are read so
//! ([`Panels::MOST_ROWS`]), which are as fast as their bytes.

use crate::gemm::narrow::panels_of_bf16;
use crate::gemm::tile::{self, Ahead, CHAIN, End, FEW, Tile, VECTORS};
use crate::gemm::{Narrow, Strided};
use plutino_cpu::par::{Par, SharedMut};
use plutino_cpu::simd::{Isa, Simd, Vectorized};
use plutino_tensor::{AlignedBuf, Floats, TensorError, alloc, f16};
use std::ops::Range;

/// The transpose of a row-major matrix in panels: for each k, `VECTORS` vectors of columns.
#[derive(Debug)]
pub struct Panels {
    buf: AlignedBuf,
    isa: Isa,
    columns: usize,
    depth: usize,
    /// The elements, where they are not f32.
    narrow: Option<Narrow>,
}

/// What is added to a product.
#[derive(Clone, Copy)]
pub(super) enum Plus<'a> {
    /// What C holds.
    Output,
    /// A bias for each column, or zero.
    Bias(Option<&'a [f32]>),
}

impl Panels {
    /// Rows that narrow panels are multiplied with at most.
    pub const MOST_ROWS: usize = FEW;

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.buf.len()
    }

    /// Packs `columns` rows of `depth` elements: PyTorch's `columns x depth` weight. Narrow ones
    /// are each the nearest of its number.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] where the system refuses.
    ///
    /// # Panics
    /// Where the weight is shorter than that.
    pub fn new(
        isa: Isa,
        weight: Floats<'_>,
        columns: usize,
        depth: usize,
        narrow: Option<Narrow>,
    ) -> Result<Self, TensorError> {
        let width = isa.lanes() * VECTORS;
        let len = columns.next_multiple_of(width).saturating_mul(depth);
        let weight = Strided::left(weight, (columns, depth), (depth, 1));
        let bytes = narrow.map_or(size_of::<f32>(), |narrow| narrow.dtype().size_of());
        let mut buf = AlignedBuf::resident(len.saturating_mul(bytes))?;
        match narrow {
            None => weight.pack_panels(isa, width, bytemuck::cast_slice_mut(buf.as_mut_bytes())),
            Some(narrow) => {
                let mut numbers = alloc::filled(len, 0.0)?;
                weight.pack_panels(isa, width, &mut numbers);
                narrow.write(isa, &numbers, buf.as_mut_bytes());
            }
        }
        Ok(Self { buf, isa, columns, depth, narrow })
    }

    /// Computes `rows` rows of C, which begins at element `at` of its memory and has rows `stride`
    /// elements apart; `a` is the left side, row after row. `back` visits the panels in reverse.
    ///
    /// # Safety
    /// Nobody else reads or writes these elements of C meanwhile.
    ///
    /// # Panics
    /// Where memory is too short, the panels were packed for another instruction set, or they are
    /// narrow and the rows too many.
    pub(super) unsafe fn multiply(
        &self,
        isa: Isa,
        par: &Par,
        rows: usize,
        a: &[f32],
        (c, at, stride): (&SharedMut<'_, f32>, usize, usize),
        plus: Plus<'_>,
        back: bool,
    ) {
        let (columns, depth) = (self.columns, self.depth);
        if rows == 0 || columns == 0 {
            return;
        }
        assert!(rows.checked_mul(depth).is_some_and(|len| len <= a.len()), "left side too short");
        let end = (rows - 1).checked_mul(stride).and_then(|x| x.checked_add(at + columns));
        assert!(stride >= columns && end.is_some_and(|end| end <= c.len()), "output too short");
        assert!(isa == self.isa, "packed for another instruction set");
        assert!(self.narrow.is_none() || rows <= Self::MOST_ROWS, "narrow panels of many rows");
        if let Plus::Bias(Some(bias)) = plus {
            assert!(bias.len() >= columns, "bias too short");
        }
        let (panels, bytes) = (columns.div_ceil(isa.lanes() * VECTORS), self.buf.as_bytes());
        let worth = self.buf.len() >= super::SHARED_BYTES;
        let grain = if worth { panels.div_ceil(par.threads()).next_multiple_of(4) } else { panels };
        par.split(panels, grain, |range| {
            let chain = depth.div_ceil(depth.div_ceil(CHAIN / 2).max(1)).max(1);
            let c = (c.as_mut_ptr().wrapping_add(at), stride);
            let whole = Multiply { b: &[], columns, depth, range, rows, a, chain, c, plus, back };
            match self.narrow {
                None => isa.run(whole.with::<f32>(bytemuck::cast_slice(bytes))),
                Some(Narrow::Bf16) => {
                    isa.run(whole.with(panels_of_bf16(bytemuck::cast_slice(bytes))));
                }
                Some(Narrow::F16) => isa.run(whole.with::<f16>(bytemuck::cast_slice(bytes))),
            }
        });
    }
}

/// A range of panels against all rows.
struct Multiply<'a, E> {
    b: &'a [E],
    columns: usize,
    depth: usize,
    range: Range<usize>,
    rows: usize,
    a: &'a [f32],
    /// Terms that are added one after the other.
    chain: usize,
    /// The first element, and the stride of rows.
    c: (*mut f32, usize),
    plus: Plus<'a>,
    back: bool,
}

impl<'a> Multiply<'a, ()> {
    /// The same with its panels.
    fn with<E>(self, b: &'a [E]) -> Multiply<'a, E> {
        let Self { b: _, columns, depth, range, rows, a, chain, c, plus, back } = self;
        Multiply { b, columns, depth, range, rows, a, chain, c, plus, back }
    }
}

impl<E> Vectorized for Multiply<'_, E>
where
    *const E: tile::Right,
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (mr, nr) = (tile::rows::<S>(), VECTORS * S::LANES);
        // Few rows take several panels at once, and what is left one by one.
        let wide = tile::wide_panels(self.rows);
        let (groups, rest) = (self.range.len() / wide, self.range.len() % wide);
        for i in 0..groups + rest {
            let i = if self.back { groups + rest - 1 - i } else { i };
            let (first, panels) =
                if i < groups { (i * wide, wide) } else { (groups * wide + i - groups, 1) };
            let j = (self.range.start + first) * nr;
            let b = &self.b[j * self.depth..(j + panels * nr) * self.depth];
            let cols = (self.columns - j).min(panels * nr);
            for tiles in tile::row_tiles(self.rows, mr) {
                let rows = &tiles.rows;
                let c = self.c.0.wrapping_add(rows.start * self.c.1 + j);
                let a = &self.a[rows.start * self.depth..rows.end * self.depth];
                for k in (0..self.depth.max(1)).step_by(self.chain) {
                    let depth = self.chain.min(self.depth - k);
                    let there = k > 0 || matches!(self.plus, Plus::Output);
                    let col_bias = match self.plus {
                        Plus::Bias(bias) if k + depth == self.depth => {
                            bias.map(|b| &b[j..j + cols])
                        }
                        _ => None,
                    };
                    let tile = Tile {
                        depth,
                        a: tile::Rows { first: a.as_ptr().wrapping_add(k), stride: self.depth },
                        b: b.as_ptr().wrapping_add(k * nr),
                        b_panel: nr * self.depth,
                        ahead: Ahead::NOTHING,
                        c,
                        c_stride: self.c.1,
                        cols,
                        below: 0,
                        end: End {
                            add: [there.then_some((c.cast_const(), self.c.1)), None],
                            scale: None,
                            row_bias: None,
                            col_bias,
                        },
                        clamp: (f32::NEG_INFINITY, f32::INFINITY),
                    };
                    // SAFETY: rows of A and panels are whole (sliced above), and terms `k..k +
                    // depth` are some of theirs; rows and columns of C exist (checked by
                    // `Panels::multiply`) and are nobody else's (its precondition, disjoint ranges
                    // of panels).
                    unsafe { tile::run_short(s, (tiles.each, panels, tiles.count()), &tile) };
                }
            }
        }
    }
}

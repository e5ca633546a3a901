//! The two inner loops: all register tiles of one block of A and one block of B.

use super::nf4::Codes;
use super::on_tiles;
use super::post_ops::{Bias, PostOps, Residual, UNLIMITED};
use super::tile::{self, Ahead, End, Right, RightElement, Tile};
use super::unit::MatrixUnit;
use plutino_cpu::Isa;
use plutino_cpu::activation::{Activation, InPlace};
use plutino_cpu::par::SharedMut;
use plutino_cpu::simd::{Pairs, Simd, Vectorized};
use plutino_cpu::tiles::WordPanels;
use plutino_tensor::f16;
use std::ops::Range;

/// Where the panels of one operand lie during one block.
pub(crate) struct Panels<'a, E = f32> {
    pub(crate) data: &'a [E],
    /// Lane and offset of the first panel; numbers of a panel for each lane.
    pub(crate) first: usize,
    pub(crate) offset: usize,
    pub(crate) depth: usize,
    /// The scales of the block, where it has such.
    pub(crate) scales: Scales<'a>,
}

/// The scales of a block of panels, from lane 0 on: so many for each lane, panel by panel and group
/// of terms by group of terms.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scales<'a> {
    pub(crate) all: &'a [f32],
    pub(crate) groups: usize,
}

impl<'a> Scales<'a> {
    /// Those of some lanes, of which a panel begins with the first.
    #[inline(always)]
    pub(crate) fn of(self, lanes: Range<usize>) -> Option<&'a [f32]> {
        let scales = self.all.get(lanes.start * self.groups..lanes.end * self.groups);
        scales.filter(|scales| !scales.is_empty())
    }
}

/// What a block of panels consists of.
pub(crate) trait PanelElement: Sized {
    /// Numbers in an element.
    const NUMBERS: usize = 1;
    /// What a tile reads.
    type Panel: tile::Right;
    /// The panel that starts at `lane`, checked to be `width` lanes long.
    fn panel(panels: &Panels<'_, Self>, lane: usize, width: usize) -> Self::Panel;
    /// What the sums of some lanes are multiplied with, where that is not 1.
    fn scale_of_sums<'a>(panels: &Panels<'a, Self>, lanes: Range<usize>) -> Option<&'a [f32]>;
}

impl<E: RightElement> PanelElement for E {
    type Panel = *const E;
    #[inline(always)]
    fn panel(panels: &Panels<'_, Self>, lane: usize, width: usize) -> *const E {
        panels.at(lane, width)
    }
    #[inline(always)]
    fn scale_of_sums<'a>(panels: &Panels<'a, Self>, lanes: Range<usize>) -> Option<&'a [f32]> {
        panels.scales.of(lanes)
    }
}

impl<E> Clone for Panels<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Panels<'_, E> {}

impl<'a, E: PanelElement> Panels<'a, E> {
    /// Without scales; lane and offset of the first panel.
    pub(crate) fn new(data: &'a [E], (first, offset): (usize, usize), depth: usize) -> Self {
        Self { data, first, offset, depth, scales: Scales::default() }
    }

    /// The panel that starts at `lane`, checked to be `width` lanes long.
    #[inline(always)]
    pub(super) fn at(&self, lane: usize, width: usize) -> *const E {
        self.panel(lane, width).as_ptr()
    }

    /// The same panel.
    #[inline(always)]
    fn panel(&self, lane: usize, width: usize) -> &'a [E] {
        self.panel_and_next(lane, width).0
    }

    /// The same, and what lies behind it: the next panel, or the first of the next depth block.
    #[inline(always)]
    pub(crate) fn panel_and_next(&self, lane: usize, width: usize) -> (&'a [E], &'a [E]) {
        let start = self.offset + (lane - self.first) * self.depth;
        self.data[start / E::NUMBERS..].split_at(width * self.depth / E::NUMBERS)
    }
}

/// The rows of A during one block.
pub(crate) trait Left: Copy {
    /// What a tile reads.
    type Rows: tile::Left;
    /// What a tile reads that starts inside a panel.
    type Seam: tile::Left;
    /// The rows from `row` on; all `mr` of them exist, or as many as the product has.
    fn rows(&self, row: usize, mr: usize) -> Self::Rows;
    /// The rows after a seam, in the panel from `panel` on and the next; the first of them is
    /// `row`.
    fn seam(&self, panel: usize, row: usize, mr: usize) -> Self::Seam;
}

/// Rows of f32 that panels of f32 are multiplied by.
pub(crate) trait Numbers: Left {
    /// Computes the tiles. Each of the implementations is no generic function: compiled here, once,
    /// and not in every crate that brings a [`Problem`](super::Problem) of its own.
    fn run(tiles: Tiles<'_, Self>, isa: Isa);
}

macro_rules! numbers {
    ($rows:ty) => {
        impl Numbers for $rows {
            fn run(tiles: Tiles<'_, Self>, isa: Isa) {
                isa.run(tiles);
            }
        }
    };
}

numbers!(Panels<'_>);
numbers!(tile::Rows);

impl Left for Panels<'_> {
    type Rows = tile::Panel;
    type Seam = tile::Seam;
    #[inline(always)]
    fn rows(&self, row: usize, mr: usize) -> tile::Panel {
        tile::Panel(self.at(row, mr))
    }
    #[inline(always)]
    fn seam(&self, panel: usize, _: usize, mr: usize) -> tile::Seam {
        tile::Seam { first: self.at(panel, 2 * mr), next: mr * self.depth }
    }
}

/// From the block's first term on.
impl Left for tile::Rows {
    type Rows = Self;
    type Seam = Self;
    #[inline(always)]
    fn rows(&self, row: usize, _: usize) -> Self {
        Self { first: self.first.wrapping_add(row * self.stride), ..*self }
    }
    #[inline(always)]
    fn seam(&self, _: usize, row: usize, mr: usize) -> Self {
        self.rows(row, mr)
    }
}

/// Rows of words, from row `first` of the product on.
#[derive(Clone, Copy)]
pub(crate) struct WordRows<'a> {
    pub(crate) data: &'a [u32],
    pub(crate) first: usize,
    pub(crate) stride: usize,
}

/// For register tiles, which read words as they do f32.
impl Left for WordRows<'_> {
    type Rows = tile::Rows;
    type Seam = tile::Rows;
    #[inline(always)]
    fn rows(&self, row: usize, _: usize) -> tile::Rows {
        let first = self.data.as_ptr().wrapping_add((row - self.first) * self.stride).cast();
        tile::Rows { first, stride: self.stride }
    }
    #[inline(always)]
    fn seam(&self, _: usize, row: usize, mr: usize) -> tile::Rows {
        self.rows(row, mr)
    }
}

/// Elements of a right operand other than f32: rows are read where they lie.
pub(crate) trait Element: PanelElement {
    /// As [`Numbers::run`].
    fn run(tiles: Tiles<'_, tile::Rows, Self>, isa: Isa);
}

/// Narrow numbers, which tiles of few rows read as they are.
macro_rules! narrow {
    ($element:ty) => {
        impl Element for $element {
            fn run(tiles: Tiles<'_, tile::Rows, Self>, isa: Isa) {
                isa.run(tiles);
            }
        }
    };
}

narrow!(u16); // bf16: see `tile.rs`
narrow!(f16);
narrow!(i8);
narrow!(Codes);

impl MatrixUnit {
    /// Computes the tiles of words. Compiled here, as those of [`Numbers::run`] are.
    ///
    /// `panels`: [`MatrixUnit::panels`] of the same unit.
    pub(crate) fn run<'b>(
        self,
        tiles: Tiles<'b, WordRows<'_>, u32>,
        panels: &mut Option<WordPanels<'b>>,
    ) {
        match (self, panels) {
            (Self::Pairs(pairs), _) => pairs.run(tiles),
            (Self::Tiles(..), Some(panels)) => on_tiles::run(tiles, panels),
            (Self::Tiles(..), None) => debug_assert!(false, "tiles without panels"),
        }
    }
}

/// One block of A times one block of B.
pub(crate) struct Tiles<'a, A, E = f32> {
    pub(crate) a: A,
    pub(crate) b: Panels<'a, E>,
    pub(crate) mr: usize,
    pub(crate) nr: usize,
    pub(crate) rows: Range<usize>,
    pub(crate) cols: Range<usize>,
    pub(crate) depth: usize,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) post_ops: PostOps<'a>,
    pub(crate) place: Place<'a>,
}

/// Where rows and columns of C are.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) c: &'a SharedMut<'a, f32>,
    /// Where element `origin` of the product lies, and elements from one row to the next.
    pub(crate) first: usize,
    pub(crate) origin: [usize; 2],
    pub(crate) stride: usize,
    /// Where finished sums go as bf16. Then C is a task's own, and a residual is not added.
    pub(crate) bf16: Option<&'a Place<'a>>,
}

impl Place<'_> {
    /// Where an element is; of bf16, the word that begins with it.
    #[inline(always)]
    fn at(&self, row: usize, col: usize) -> *mut f32 {
        let [row, col] = [row - self.origin[0], col - self.origin[1]];
        self.c.as_mut_ptr().wrapping_add(self.first + row * self.stride + col)
    }
}

impl<'a, A, E: PanelElement> Tiles<'a, A, E> {
    /// The first element of C of some rows and columns, what is added to their sums, and limits.
    /// Rows and columns of C that are of this task alone, and what is added is as large as they
    /// (`Gemm::check`, disjoint tasks).
    #[inline(always)]
    pub(crate) fn end(
        &self,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> (*mut f32, End<'a>, (f32, f32)) {
        let (t, stride) = (self, self.place.stride);
        let c = t.place.at(rows.start, cols.start);
        // What C holds, the terms before or the residual; and another matrix, once all terms are
        // there.
        let there = !t.first || matches!(t.post_ops.residual, Residual::Output);
        let there = there.then_some((c.cast_const(), stride));
        let other = match t.post_ops.residual {
            Residual::Other(other) if t.last => {
                let at = t.place.first + rows.start * stride + cols.start;
                Some((other.as_ptr().wrapping_add(at), stride))
            }
            _ => None,
        };
        let end = End {
            scale: E::scale_of_sums(&t.b, cols.clone()),
            add: [there, other],
            row_bias: match t.post_ops.bias {
                Bias::Rows(bias) if t.last => bias.get(rows),
                _ => None,
            },
            col_bias: match t.post_ops.bias {
                Bias::Cols(bias) if t.last => bias.get(cols),
                _ => None,
            },
        };
        (c, end, if t.last { t.post_ops.limits().0 } else { UNLIMITED })
    }

    /// Finishes some columns of all rows: applies what is left of the activation, and rounds them
    /// to where they go as bf16, if they do.
    pub(crate) fn finish(&self, isa: Isa, cols: Range<usize>) {
        if let Some(rounded) = self.to_bf16(cols.clone()) {
            Pairs::convert(isa, rounded);
        } else if let Some(activated) = self.activated(cols) {
            isa.run(activated);
        }
    }

    /// What applies the rest of the activation in place.
    #[inline(always)]
    fn activated(&self, cols: Range<usize>) -> Option<InPlace<'_>> {
        let activation = self.post_ops.limits().1.filter(|_| self.last)?;
        let c = self.place.at(self.rows.start, cols.start);
        let size = (self.rows.len(), cols.len());
        // SAFETY: rows and columns of C that belong to this task alone.
        Some(unsafe { InPlace::of_rows(activation, c, size, self.place.stride) })
    }

    /// What does so, and rounds.
    #[inline(always)]
    fn to_bf16(&self, cols: Range<usize>) -> Option<ToBf16> {
        let to = self.place.bf16.filter(|_| self.last)?;
        let (activation, size) = (self.post_ops.limits().1, [self.rows.len(), cols.len()]);
        let x = (self.place.at(self.rows.start, cols.start), self.place.stride);
        let y = (to.at(self.rows.start, cols.start / 2), to.stride);
        // SAFETY: rows and columns of C, and of the result, that belong to this task alone.
        Some(unsafe { ToBf16::new(activation, size, x, y) })
    }
}

impl<A: Left, E: PanelElement> Vectorized for Tiles<'_, A, E> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // A product of few rows takes several panels at once.
        let rows = self.rows.len();
        let wide = if rows < self.mr { tile::wide_panels(rows) } else { 1 };
        let mut j = self.cols.start;
        while j < self.cols.end {
            let whole = self.cols.end.next_multiple_of(self.nr) - j;
            let panels = if wide * self.nr <= whole { wide } else { 1 };
            let end = self.cols.end.min(j + panels * self.nr);
            self.column(s, j..end, panels);
            j = end;
        }
    }
}

impl<A: Left, E: PanelElement> Tiles<'_, A, E> {
    /// The tiles of all rows in one panel of B, or in `panels` side by side.
    #[inline(always)]
    fn column<S: Simd>(&self, s: S, cols: Range<usize>, panels: usize) {
        let t = self;
        let (j, cols) = (cols.start, cols.len());
        let b = E::panel(&t.b, j, panels * t.nr);
        // The next panel of B comes meanwhile, with each tile the part that it has of the rows: as
        // much with tiles of fewer rows is more than memory gives (16 rows take 3 % longer, 28 take
        // 7 %; Zen 4, 2026-11-29). Where few rows take several panels at once, the CPU sees that
        // for itself, and asking takes time: 10 to 20 % of a product of one row, from L3.
        let (all, panel) = (t.rows.len().max(1), t.nr * size_of::<E>() / E::NUMBERS);
        let next = b.address().wrapping_byte_add(panel * t.b.depth);
        let ahead = |row: usize, rows: usize| match panels {
            1 => Ahead {
                first: next.wrapping_byte_add(panel * row / all * t.depth),
                step: (panel * rows).div_ceil(all),
                rows: t.rows.len(),
            },
            _ => Ahead::NOTHING,
        };
        for tiles in tile::row_tiles(t.rows.len(), t.mr) {
            let rows = t.rows.start + tiles.rows.start..t.rows.start + tiles.rows.end;
            let i = rows.start;
            let (c, end, clamp) = t.end(rows, j..j + cols);
            let tile = Tile {
                depth: t.depth,
                a: (),
                b,
                b_panel: t.nr * t.b.depth,
                ahead: ahead(tiles.rows.start, tiles.each),
                c,
                c_stride: t.place.stride,
                cols,
                below: t.rows.end - i,
                end,
                clamp,
            };
            let size = (tiles.each, panels, tiles.count());
            // SAFETY: the panels are whole (`Panels::at`); rows i.., columns j.. of C exist and
            // belong to this task alone (`Gemm::check`, disjoint tasks); the residual is as long as
            // C (same place).
            unsafe {
                if tiles.seam {
                    tile::run(s, size, &tile.with(t.a.seam(i - tile::cut(t.mr), i, t.mr)));
                } else {
                    tile::run(s, size, &tile.with(t.a.rows(i, t.mr)));
                }
            }
        }
        if let Some(rounded) = t.to_bf16(j..j + cols) {
            s.outlined(rounded);
        } else if let Some(activated) = t.activated(j..j + cols) {
            s.outlined(activated);
        }
    }
}

/// Rows of numbers, an even number of them, that become bf16 after an activation, in words of two.
pub(crate) struct ToBf16 {
    activation: Option<Activation>,
    size: [usize; 2],
    x: (*mut f32, usize),
    y: (*mut f32, usize),
}

impl ToBf16 {
    /// `x`: the first element, and elements from one row to the next; `y`: the first word, and
    /// words from one row to the next.
    ///
    /// # Safety
    /// Until it has run, `x` is valid for reads of `size[1]` elements in each of `size[0]` rows,
    /// `y` for writes of half as many words, and nobody else writes the first or touches the
    /// second.
    #[inline(always)]
    pub(crate) unsafe fn new(
        activation: Option<Activation>,
        size: [usize; 2],
        x: (*mut f32, usize),
        y: (*mut f32, usize),
    ) -> Self {
        Self { activation, size, x, y }
    }
}

impl Vectorized for ToBf16 {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [rows, cols] = self.size;
        // Two rows at a time, the last one twice where they are odd: exponentials are long chains
        // of instructions that wait for each other.
        for row in (0..rows).step_by(2) {
            let both = [row, rows.min(row + 2) - 1];
            for at in (0..cols).step_by(2 * S::LANES) {
                let there = (cols - at).min(2 * S::LANES);
                let mut v = [s.zero(); 4];
                for (row, v) in both.into_iter().zip(v.as_chunks_mut::<2>().0) {
                    let x = self.x.0.wrapping_add(row * self.x.1 + at);
                    let next = x.wrapping_add(S::LANES);
                    // SAFETY: `there` elements of this row are there (promised by who made it).
                    *v = unsafe {
                        match there == 2 * S::LANES {
                            true => [s.load_ptr(x), s.load_ptr(next)],
                            false => [
                                s.load_partial_ptr(x, there.min(S::LANES)),
                                s.load_partial_ptr(next, there.saturating_sub(S::LANES)),
                            ],
                        }
                    };
                }
                if let Some(activation) = self.activation {
                    v = activation.apply_all(s, v);
                }
                for (row, &[lower, upper]) in both.into_iter().zip(v.as_chunks::<2>().0) {
                    let y = self.y.0.wrapping_add(row * self.y.1 + at / 2);
                    let words = s.to_pairs(lower, upper);
                    // SAFETY: half as many words of the result are there as well.
                    unsafe {
                        match there == 2 * S::LANES {
                            true => s.store_ptr(words, y),
                            false => s.store_partial_ptr(words, y, there / 2),
                        }
                    }
                }
            }
        }
    }
}

//! Products of bf16: what multiplies them, and operands in the words that it reads.
//!
//! ```text
//!   A, rows where they lie (f32)        rows of words, made block by block
//!     x0 x1 x2 x3 x4            ->        [x0 x1] [x2 x3] [x4 0]
//!   B, packed once: panels as those of f32 (pack.rs), each element a word
//!     [w00 w10] [w01 w11] ...             two rows of B, one word for each column
//! ```
//! A word is a pair of bf16. What reads them is a [`MatrixUnit`]:
//!
//! - [`Pairs`], an instruction in the place of the multiply-add. The register tile, the blocks and
//!   the tasks are those of f32 (`tile.rs`, `blocks.rs`) with `k / 2` words; a row of A is
//!   broadcast word by word.
//! - [tiles](plutino_cpu::tiles) (`on_tiles.rs`), which take blocks of 32 x 32, and numbers as one
//!   to three terms: their words stand one after the other for each step of 32 numbers, in rows as
//!   in panels. What is left of the last step is zeros. Panels of three terms are kept as numbers,
//!   and become words when their turn comes ([`Columns`]).
//!
//! Rows of words are not transposed into panels: they are short, and their lines do not crowd one
//! set of a cache. Products and sums are those of f32.
//!
//! # Measured
//! docs/decisions/014-reduced-precision.md.

use super::Target;
use super::pack::{Format, PackPanels, Side, Strided, load};
use plutino_cpu::simd::{LINE, Pairs, Simd, Vectorized};
use plutino_cpu::tiles::{BLOCK, Columns, DEPTH_BLOCK, STEP, Terms, TileUnit, WordPanels};
use plutino_cpu::{Isa, PackKey};
use plutino_tensor::{DType, Floats};
use std::ops::Range;

/// What multiplies bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatrixUnit {
    /// Pairs of them, in vectors.
    Pairs(Pairs),
    /// Tiles, and as how many terms numbers are given.
    Tiles(TileUnit, Terms),
}

impl MatrixUnit {
    /// Words of `k` numbers.
    #[inline]
    pub(crate) fn words(self, k: usize) -> usize {
        match self {
            Self::Pairs(_) => k.div_ceil(2),
            Self::Tiles(_, terms) => terms.words(k),
        }
    }

    /// The numbers of some words, of `k` in all. Words of tiles are whole steps.
    #[inline]
    pub(crate) fn numbers(self, words: &Range<usize>, k: usize) -> Range<usize> {
        let numbers = |word: usize| match self {
            Self::Pairs(_) => 2 * word,
            Self::Tiles(_, terms) => word / terms.step() * (2 * STEP),
        };
        numbers(words.start).min(k)..numbers(words.end).min(k)
    }

    /// Elements that so many words of a lane of a packed operand take in memory.
    #[inline]
    pub(crate) fn kept(self, words: usize) -> usize {
        match self {
            Self::Pairs(_) => words,
            Self::Tiles(_, terms) => words / terms.step() * terms.kept(),
        }
    }

    /// Elements of scratch memory in which a panel of so many words becomes what the unit reads.
    pub(crate) fn scratch(self, isa: Isa, words: usize) -> usize {
        match self {
            Self::Pairs(_) => 0,
            Self::Tiles(unit, terms) => Columns { unit, isa, terms }.scratch(words / terms.step()),
        }
    }

    /// What [`MatrixUnit::run`] keeps from one call to the next, for so many rows of A: nothing, or
    /// panels that become words.
    pub(crate) fn panels(
        self,
        isa: Isa,
        rows: usize,
        scratch: &mut [f32],
    ) -> Option<WordPanels<'_>> {
        let Self::Tiles(unit, terms) = self else { return None };
        let columns = Columns { unit, isa, terms };
        Some(WordPanels::new(columns, rows.div_ceil(BLOCK), scratch))
    }

    /// Where panels lie.
    pub(super) fn format(self, target: Target, side: Side, extent: usize, words: usize) -> Format {
        match self {
            Self::Pairs(_) => Format::new(target, side, extent, words),
            Self::Tiles(_, terms) => {
                let steps = words / terms.step();
                let blocks = steps.div_ceil(DEPTH_BLOCK).max(1);
                Format {
                    width: BLOCK,
                    padded: extent.div_ceil(BLOCK).saturating_mul(BLOCK),
                    depth: words,
                    kc: steps.div_ceil(blocks) * terms.step(),
                    groups: 0,
                }
            }
        }
    }

    /// The instruction set of everything beside the products: that of the vectors, or `isa`.
    pub fn isa(self, isa: Isa) -> Isa {
        match self {
            Self::Pairs(pairs) => pairs.isa(),
            Self::Tiles(..) => isa,
        }
    }

    /// What decides the form of a packed right operand.
    pub(crate) fn key(self, isa: Isa) -> PackKey {
        let (form, terms) = match self {
            Self::Pairs(_) => ("matrix.right.pairs", 0),
            Self::Tiles(_, terms) => ("matrix.right.tiles", terms.count()),
        };
        let key = PackKey::f32(form, [terms, 0, 0], isa);
        PackKey { precision: DType::Bf16, ..key }
    }

    /// Makes the words of some rows, [`apart`] for so many `words`.
    ///
    /// # Panics
    /// Where `out` is too short, or numbers are not there.
    pub(crate) fn write_rows(self, isa: Isa, rows: Rows<'_>, words: usize, out: &mut [f32]) {
        let stride = apart(words);
        match self {
            Self::Pairs(pairs) => pairs.run(RowsToWords { rows, out, stride }),
            Self::Tiles(_, terms) => Pairs::convert(isa, RowsToTerms { rows, out, stride, terms }),
        }
    }

    /// Makes a panel of `width` lanes of a matrix, as [`MatrixUnit::write_panel`]; `panel` holds as
    /// many numbers.
    pub(crate) fn pack(
        self,
        isa: Isa,
        source: &Strided<'_>,
        (lanes, depth): (Range<usize>, Range<usize>),
        width: usize,
        (panel, out): (&mut [f32], &mut [f32]),
    ) {
        if let (Self::Pairs(pairs), Some((data, stride))) = (self, source.dense_depths()) {
            let rows = Rows { data, stride, rows: depth, numbers: lanes };
            return pairs.run(DepthsToWords { rows, width, out });
        }
        isa.run(PackPanels { source, lanes, depth, width, out: panel });
        self.write_panel(isa, panel, width, out);
    }

    /// Makes a panel of `width` lanes of rows of numbers, [`MatrixUnit::kept`] elements each; zeros
    /// where there are not enough for the last word or step.
    pub(crate) fn write_panel(self, isa: Isa, panel: &[f32], width: usize, out: &mut [f32]) {
        match self {
            Self::Pairs(pairs) => pairs.run(PanelToWords { panel, width, out }),
            Self::Tiles(unit, terms) => Columns { unit, isa, terms }.keep(panel, out),
        }
    }
}

impl std::fmt::Display for MatrixUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pairs(pairs) => pairs.fmt(f),
            Self::Tiles(unit, terms) => write!(f, "bf16x{}.{unit}", terms.count()),
        }
    }
}

/// Elements from one row to the next, for rows of so many: an odd number of lines of cache, so that
/// rows do not crowd one set of it.
#[inline]
pub(crate) fn apart(elements: usize) -> usize {
    const ELEMENTS: usize = LINE / size_of::<f32>();
    (elements.div_ceil(ELEMENTS) | 1).saturating_mul(ELEMENTS)
}

/// Rows of A, `stride` numbers apart, of which some numbers become words.
pub(crate) struct Rows<'a> {
    pub(crate) data: Floats<'a>,
    pub(crate) stride: usize,
    pub(crate) rows: Range<usize>,
    pub(crate) numbers: Range<usize>,
}

impl<'a> Rows<'a> {
    /// The numbers of each.
    #[inline(always)]
    fn each(self) -> impl Iterator<Item = Floats<'a>> {
        let Self { data, stride, rows, numbers } = self;
        rows.map(move |row| data.part(row * stride + numbers.start..row * stride + numbers.end))
    }
}

struct RowsToWords<'a, 'o> {
    rows: Rows<'a>,
    out: &'o mut [f32],
    stride: usize,
}

impl Vectorized for RowsToWords<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let len = self.rows.numbers.len();
        let whole = len - len % (2 * S::LANES);
        for (row, out) in self.rows.each().zip(self.out.chunks_mut(self.stride)) {
            let (whole_out, rest) = out[..len.div_ceil(2)].split_at_mut(whole / 2);
            let (x, y) = (row.part(0..whole).as_ptr(), whole_out.as_mut_ptr());
            for at in (0..whole).step_by(2 * S::LANES) {
                // SAFETY: whole vectors of numbers, and one of words for two of them.
                unsafe {
                    let pairs = s.to_pairs(s.load_ptr(x.add(at)), s.load_ptr(x.add(at + S::LANES)));
                    s.store_ptr(pairs, y.add(at / 2));
                }
            }
            if !rest.is_empty() {
                let lower = load_or_zeros(s, row, whole);
                let upper = load_or_zeros(s, row, whole + S::LANES);
                s.store_partial(s.to_pairs(lower, upper), rest);
            }
        }
    }
}

/// The vector of numbers from `at` on, zeros where there are none.
#[cfg_attr(not(unoptimised), inline(always))]
fn load_or_zeros<S: Simd>(s: S, row: Floats<'_>, at: usize) -> S::F32 {
    match row.len().saturating_sub(at) {
        0 => s.zero(),
        n if n >= S::LANES => load(s, row, at),
        n => {
            let rest = row.part(at..at + n);
            // SAFETY: as many numbers as it has; loads need no alignment.
            unsafe { s.load_partial_ptr(rest.as_ptr(), n) }
        }
    }
}

struct RowsToTerms<'a, 'o> {
    rows: Rows<'a>,
    out: &'o mut [f32],
    stride: usize,
    terms: Terms,
}

impl Vectorized for RowsToTerms<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.terms {
            Terms::One => self.all(s, Terms::One),
            Terms::Two => self.all(s, Terms::Two),
            Terms::Three => self.all(s, Terms::Three),
        }
    }
}

impl RowsToTerms<'_, '_> {
    #[cfg_attr(not(unoptimised), inline(always))]
    fn all<S: Simd>(self, s: S, terms: Terms) {
        let Self { rows, out, stride, .. } = self;
        let len = rows.numbers.len();
        for (row, out) in rows.each().zip(out.chunks_mut(stride)) {
            for (at, out) in (0..len).step_by(2 * STEP).zip(out.chunks_exact_mut(terms.step())) {
                let whole = len - at >= 2 * STEP;
                for i in (0..STEP).step_by(S::LANES) {
                    let at = [at + 2 * i, at + 2 * i + S::LANES];
                    let both = match whole {
                        true => [load(s, row, at[0]), load(s, row, at[1])],
                        false => [load_or_zeros(s, row, at[0]), load_or_zeros(s, row, at[1])],
                    };
                    terms.write(s, both, &mut out[i..], STEP);
                }
            }
        }
    }
}

/// A word of each lane holds numbers of two rows that follow each other.
struct PanelToWords<'a, 'o> {
    panel: &'a [f32],
    width: usize,
    out: &'o mut [f32],
}

impl Vectorized for PanelToWords<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { panel, width, out } = self;
        for (rows, out) in panel.chunks(2 * width).zip(out.chunks_exact_mut(width)) {
            let (lower, upper) = rows.split_at(width);
            for at in (0..width).step_by(S::LANES) {
                let upper = match upper.get(at..) {
                    Some(upper) if !upper.is_empty() => s.load(upper),
                    _ => s.zero(),
                };
                let [lower, upper] = s.zip(s.load(&lower[at..]), upper);
                s.store(s.to_pairs(lower, upper), &mut out[at..]);
            }
        }
    }
}

/// The same of rows where a matrix has them: a row for each depth, whose numbers are the lanes.
/// (Panels are such rows, too; by this one, planning ViT-B/32 takes 3 % longer; Zen 5, 2026-11-28.)
struct DepthsToWords<'a, 'o> {
    rows: Rows<'a>,
    width: usize,
    out: &'o mut [f32],
}

impl Vectorized for DepthsToWords<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rows, width, out } = self;
        let mut rows = rows.each();
        for out in out.chunks_exact_mut(width) {
            let Some(lower) = rows.next() else { break };
            let upper = rows.next().unwrap_or([].as_slice().into());
            for at in (0..width).step_by(S::LANES) {
                let [lower, upper] =
                    s.zip(load_or_zeros(s, lower, at), load_or_zeros(s, upper, at));
                s.store(s.to_pairs(lower, upper), &mut out[at..]);
            }
        }
    }
}

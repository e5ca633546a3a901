//! Columns of B: as they are kept in memory, and as the words that tiles read.
//!
//! ```text
//!   numbers   [step][32 numbers of the sum][32 columns]     f32, 4 bytes each
//!   words     [step][term][16 words][32 columns]            2 bytes for each number and term
//! ```
//! Weights of one term or two are kept as words. Three terms would be six bytes: those weights are
//! kept as numbers, and the words of a depth block are made when its columns' turn comes, once for
//! all rows of a task. A layer of few rows takes the time in which its weights arrive, so that four
//! bytes are faster than six, too.
//!
//! Measured: docs/decisions/014-reduced-precision.md.

use super::terms::{LOWER, cut};
use super::{BLOCK, Block, Operands, STEP, Terms, TileUnit, Tiles, ahead};
use crate::Isa;
use crate::simd::{LINE, Pairs, Simd, Vectorized};
use std::ops::Range;

/// Numbers of 32 columns in a step, and words of one term.
const NUMBERS: usize = 2 * STEP * BLOCK;
const WORDS: usize = STEP * BLOCK;

/// Parts of a panel from which numbers are read in turn: the CPU looks ahead in each. (From memory,
/// Emerald Rapids, 2026-11-26: one 10.3 GB/s, two 11.7, four 14.1, eight 13.9, sixteen 13.8.)
const STREAMS: usize = 4;

/// How columns become words.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// What multiplies them.
    pub unit: TileUnit,
    /// What makes the words.
    pub isa: Isa,
    /// Terms of each number.
    pub terms: Terms,
}

impl Columns {
    /// Writes 32 columns of whole steps as they are kept, [`Terms::kept`] words a step and column:
    /// of rows of 32 numbers, zeros where there are not enough.
    pub fn keep(self, numbers: &[f32], kept: &mut [f32]) {
        let Self { isa, terms, .. } = self;
        if terms.keeps_numbers() {
            let (there, rest) = kept.split_at_mut(numbers.len().min(kept.len()));
            there.copy_from_slice(&numbers[..there.len()]);
            rest.fill(0.0);
        } else {
            Pairs::convert(isa, ToWords { numbers, terms, words: kept });
        }
    }

    /// f32 of scratch memory of [`WordPanels`] of at most so many steps: for two of them.
    pub fn scratch(self, steps: usize) -> usize {
        match self.terms.keeps_numbers() {
            true => steps.saturating_mul(2 * self.terms.step()).saturating_mul(BLOCK),
            false => 0,
        }
    }
}

/// Panels of 32 columns, one after the other, that blocks of rows are multiplied by. Those that are
/// kept as numbers become words while the panel before is multiplied.
#[derive(Debug)]
pub struct WordPanels<'a> {
    columns: Columns,
    /// Words of this panel and of the next one, where they are made.
    made: &'a mut [f32],
    next: &'a mut [f32],
    kept: &'a [u32],
    then: &'a [u32],
    /// Rows of words of the next panel that are made, and those of a step.
    rows: usize,
    each: usize,
    /// Blocks that this panel was multiplied with.
    blocks: usize,
}

impl<'a> WordPanels<'a> {
    /// Panels that so many blocks of rows are multiplied by.
    pub fn new(columns: Columns, blocks: usize, scratch: &'a mut [f32]) -> Self {
        let (made, next) = scratch.split_at_mut(scratch.len() / 2);
        let each = if blocks > 1 { STEP / 2 } else { STEP };
        Self { columns, made, next, kept: &[], then: &[], rows: 0, each, blocks: 0 }
    }

    /// How they become words.
    #[inline]
    pub fn columns(&self) -> Columns {
        self.columns
    }

    /// Goes on to a panel, and says which one comes after: whole steps of each, none where nothing
    /// comes.
    ///
    /// # Panics
    /// Where there is too little scratch memory.
    #[inline]
    pub fn go_on(&mut self, kept: &'a [u32], then: &'a [u32]) {
        let known = std::ptr::eq(self.then, kept);
        (self.kept, self.then, self.blocks) = (kept, then, 0);
        if self.columns.terms.keeps_numbers() {
            let done = if known { self.rows } else { 0 };
            let rows = kept.len() / (2 * BLOCK);
            let numbers: &[f32] = bytemuck::cast_slice(kept);
            let (ahead, words) = (numbers.as_ptr(), &mut *self.next);
            self.columns.isa.run(Split { numbers, ahead, words, rows: done..rows });
            std::mem::swap(&mut self.made, &mut self.next);
            self.rows = 0;
        }
    }

    /// A block of rows times the panel: [`Tiles::multiply`] with its columns.
    ///
    /// # Panics
    /// As that one.
    #[inline]
    pub fn multiply(&mut self, tiles: &Tiles<'_>, operands: Operands<'_>, c: &mut Block) {
        let number = self.blocks;
        self.blocks += 1;
        if !self.columns.terms.keeps_numbers() {
            let ahead = ahead(self.then, number);
            return tiles.multiply(Operands { b: self.kept, ahead, ..operands }, c);
        }
        let operands = Operands { b: bytemuck::cast_slice(self.made), ahead: &[], ..operands };
        let rows = self.then.len() / (2 * BLOCK);
        if self.rows >= rows {
            return tiles.multiply(operands, c);
        }
        let to = rows.min(self.rows + self.each * operands.steps.len());
        let numbers: &[f32] = bytemuck::cast_slice(self.then);
        // The panel after the next, if they are as far apart as these.
        let apart = self.then.as_ptr().addr().wrapping_sub(self.kept.as_ptr().addr());
        let ahead = numbers.as_ptr().wrapping_byte_add(apart);
        let split = Split { numbers, ahead, words: &mut *self.next, rows: self.rows..to };
        self.columns.isa.run(Beside { tiles, operands, c, split, each: self.each });
        self.rows = to;
    }
}

/// A block of rows, and words beside it.
struct Beside<'a, 'o> {
    tiles: &'a Tiles<'a>,
    operands: Operands<'a>,
    c: &'o mut Block,
    split: Split<'a, 'o>,
    each: usize,
}

impl Vectorized for Beside<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { tiles, operands, c, split, each } = self;
        let Split { numbers, ahead, words, rows } = split;
        tiles.begin(&operands);
        let mut from = rows.start;
        for step in 0..operands.steps.len() {
            // SAFETY: begun with the same operands.
            unsafe { tiles.add(&operands, step) };
            let to = rows.end.min(from + each);
            split_rows(s, numbers, ahead, words, from..to);
            from = to;
        }
        tiles.end(&operands, c);
    }
}

struct ToWords<'a, 'o> {
    numbers: &'a [f32],
    terms: Terms,
    words: &'o mut [f32],
}

impl Vectorized for ToWords<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { numbers, terms, words } = self;
        let steps = words.chunks_exact_mut(terms.count() * WORDS);
        for (numbers, words) in numbers.chunks(NUMBERS).zip(steps) {
            for at in (0..WORDS).step_by(S::LANES) {
                let first = at / BLOCK * 2 * BLOCK + at % BLOCK;
                let lower = vector_or_zeros(s, numbers, first);
                let upper = vector_or_zeros(s, numbers, first + BLOCK);
                terms.write(s, s.zip(lower, upper), &mut words[at..], WORDS);
            }
        }
    }
}

/// A vector of numbers, zeros past the last.
#[cfg_attr(not(unoptimised), inline(always))]
fn vector_or_zeros<S: Simd>(s: S, numbers: &[f32], at: usize) -> S::F32 {
    match numbers.get(at..at + S::LANES) {
        Some(numbers) => s.load(numbers),
        None => s.zero(),
    }
}

/// Three terms: some rows of words of each term.
struct Split<'a, 'o> {
    numbers: &'a [f32],
    /// What is fetched meanwhile, from as many numbers as these are.
    ahead: *const f32,
    words: &'o mut [f32],
    rows: Range<usize>,
}

impl Vectorized for Split<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        split_rows(s, self.numbers, self.ahead, self.words, self.rows);
    }
}

/// Some rows of words, those of a step 16, each of two rows of numbers. Each of
/// [`STREAMS`] parts of the panel has its turn.
#[cfg_attr(not(unoptimised), inline(always))]
fn split_rows<S: Simd>(
    s: S,
    numbers: &[f32],
    ahead: *const f32,
    words: &mut [f32],
    rows: Range<usize>,
) {
    let stream = numbers.len() / (2 * BLOCK) / STREAMS;
    for i in rows {
        let row = i % STREAMS * stream + i / STREAMS;
        let Some(numbers) = numbers.get(row * 2 * BLOCK..(row + 1) * 2 * BLOCK) else { return };
        let words = &mut words[row / STEP * 3 * WORDS + row % STEP * BLOCK..][..2 * WORDS + BLOCK];
        let (lower, upper) = numbers.split_at(BLOCK);
        for at in (0..2 * BLOCK).step_by(LINE / size_of::<f32>()) {
            s.prefetch_l2(ahead.wrapping_add(row * 2 * BLOCK + at));
        }
        for at in (0..BLOCK).step_by(S::LANES) {
            let (lower, lower_left) = cut(s, s.load(&lower[at..]));
            let (upper, upper_left) = cut(s, s.load(&upper[at..]));
            s.store(join(s, lower, upper), &mut words[at..]);
            let (lower, lower_left) = cut(s, lower_left);
            let (upper, upper_left) = cut(s, upper_left);
            s.store(join(s, lower, upper), &mut words[WORDS + at..]);
            s.store(join(s, lower_left, upper_left), &mut words[2 * WORDS + at..]);
        }
    }
}

/// Words of two vectors of numbers that are bf16: those of each lane.
#[cfg_attr(not(unoptimised), inline(always))]
fn join<S: Simd>(s: S, lower: S::F32, upper: S::F32) -> S::F32 {
    let lower = s.and_i32(s.shr_i32::<16>(s.as_i32(lower)), s.splat_i32(LOWER as i32));
    s.as_f32(s.or_i32(lower, s.as_i32(upper)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kept columns have the words of their numbers' terms, whatever they are kept as.
    #[test]
    fn kept_columns_have_the_words_of_their_numbers() {
        let steps = 2;
        // The last rows are missing.
        let rows = steps * 2 * STEP - 5;
        let mut state = 3u32;
        let numbers: Vec<f32> = (0..rows * BLOCK)
            .map(|_| {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                (state >> 8) as f32 / 8388608.0 - 1.0
            })
            .collect();
        for terms in Terms::ALL {
            for isa in Isa::available() {
                let columns = Columns { unit: TileUnit::EMULATED, isa, terms };
                let mut kept = vec![f32::NAN; steps * terms.kept() * BLOCK];
                columns.keep(&numbers, &mut kept);
                let mut scratch = vec![f32::NAN; columns.scratch(steps)];
                let mut panels = WordPanels::new(columns, 1, &mut scratch);
                panels.go_on(bytemuck::cast_slice(&kept), &[]);
                let words: &[u32] = match terms.keeps_numbers() {
                    true => bytemuck::cast_slice(&*panels.made),
                    false => panels.kept,
                };
                assert_eq!(words.len(), steps * terms.step() * BLOCK);
                for (i, &word) in words.iter().enumerate() {
                    let (row, column) = (i / BLOCK, i % BLOCK);
                    let (step, term) = (row / terms.step(), row % terms.step() / STEP);
                    let first = step * 2 * STEP + row % STEP * 2;
                    let number = |k: usize| numbers.get(k * BLOCK + column).copied();
                    let [lower, upper] = [first, first + 1]
                        .map(|k| u32::from(terms.of(number(k).unwrap_or(0.0))[term]));
                    // Zeros have either sign.
                    let bare = |word: u32| [word & 0xffff, word >> 16].map(|half| half & 0x7fff);
                    let same = bare(word) == bare(lower | upper << 16);
                    let signs = [word & 0xffff, word >> 16].into_iter().zip([lower, upper]);
                    let signs = signs.filter(|(_, expected)| expected & 0x7fff != 0);
                    let signs = signs.into_iter().all(|(found, expected)| found == expected);
                    assert!(same && signs, "{isa} {terms:?} [{i}]: {word:x} {lower:x} {upper:x}");
                }
            }
        }
    }
}

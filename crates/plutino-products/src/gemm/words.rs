//! The loops of products of bf16: rows of A that become words or are such, and sums that become
//! bf16 again.
//!
//! ```text
//!   A of f32                               A of bf16, in memory
//!     words of some rows, by the task        read where it lies: its rows are rows of words
//!     or by all threads, depth by depth
//!
//!   C of f32                               C of bf16
//!     for each KC of k                       for some rows (their words of all depths)
//!       for some rows: words of them           for some columns
//!         C = C + tiles                          for each KC of k:  sums = sums + tiles
//!                                                each panel, once finished, is rounded to C
//! ```
//! Sums are f32 until all terms are there: those of a block of C that stays in the second-level
//! cache, in the task's own memory.

use super::Target;
use super::blocks::{Block, Gemm, Packing};
use super::pack::{Pack, Side};
use super::problem::{Operand, Problem, Size};
use super::tile;
use super::tiles::{Panels, Place, Tiles, WordRows};
use super::unit::{self, MatrixUnit, apart};
use plutino_cpu::par::{Par, SharedMut, stop};
use plutino_cpu::tiles::{STEP, Terms};
use std::ops::Range;

/// Which matrices of a product on a unit lie as bf16: two numbers in the place of one f32, in
/// rows of an even number of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bf16Matrices {
    /// The rows that come in.
    pub x: bool,
    /// The results.
    pub y: bool,
}

impl Bf16Matrices {
    /// None of them.
    pub const NONE: Self = Self { x: false, y: false };
}

impl Gemm {
    /// Products of bf16, with a right operand that comes packed for the unit that multiplies them
    /// ([`PackedMatrix::of_unit`](super::PackedMatrix::of_unit)), and rows that lie somewhere
    /// ([`Pack::lanes`]).
    pub fn on_unit(target: Target, threads: usize, size: Size, unit: MatrixUnit) -> Self {
        let target = Target { isa: unit.isa(target.isa), ..target };
        let words = Size { k: unit.words(size.k), ..size };
        let a = unit.format(target, Side::Left, words.m, words.k);
        let b = unit.format(target, Side::Right, words.n, words.k);
        let mut gemm = Self::with_formats(target, threads, words, (false, true), [a, b]);
        gemm.unit = Some(unit);
        gemm.depth = size.k;
        gemm.in_place = false;
        gemm
    }

    /// Which matrices can be bf16: rows of whole words, of a unit that takes numbers as one term.
    pub(super) fn bf16_matrices(&self) -> Bf16Matrices {
        let rounds = match self.unit {
            Some(MatrixUnit::Pairs(_) | MatrixUnit::Tiles(_, Terms::One)) => true,
            Some(MatrixUnit::Tiles(..)) | None => false,
        };
        let of = |width: usize| rounds && width > 0 && width.is_multiple_of(2);
        Bf16Matrices { x: of(self.depth), y: of(self.size.n) }
    }

    /// The same product with these matrices as bf16, which it must be able to take so. Rows of A
    /// are words that follow each other then.
    #[must_use]
    pub(super) fn with_bf16(mut self, bf16: Bf16Matrices) -> Self {
        self.bf16 = bf16;
        if bf16.y {
            // Sums are whole before they are rounded.
            self.slab = self.size.k;
        }
        // Tiles read whole steps.
        let whole = match self.unit {
            Some(MatrixUnit::Tiles(..)) => self.depth.is_multiple_of(2 * STEP),
            _ => true,
        };
        if bf16.x && whole && !self.target.crowds(self.size.m, self.depth / 2) {
            self.a.0 = Packing::InPlace;
        }
        self
    }

    /// Elements of a row of A in memory.
    pub(super) fn row_len(&self) -> usize {
        if self.bf16.x { self.depth / 2 } else { self.depth }
    }

    /// Rows of A that are words where they lie, one after the other.
    pub(super) fn in_words<'a, P: Pack>(&self, operand: &'a Operand<'_, P>) -> Option<&'a [f32]> {
        let Operand::Source(source) = operand else { return None };
        let (data, stride) = source.lanes()?;
        data.as_slice().filter(|_| stride == self.row_len())
    }

    /// Words of a row of A that a task makes at a time.
    pub(super) fn depth_of_rows(&self) -> usize {
        if self.bf16.y { self.size.k } else { self.a.1.kc }
    }

    /// Rows and columns of a task's block of sums; the columns are whole panels, as many as few
    /// rows take at once. Where one depth block has all terms, these are enough; more of them would
    /// wait in the second-level cache, and take three quarters of it.
    fn block_of_sums(&self) -> [usize; 2] {
        let rows = self.mc.min(self.task.0);
        let panels = tile::wide_panels(rows) * self.b.1.width;
        let whole = self.a.1.kc >= self.size.k;
        let most = self.target.machine.l2 / 4 * 3 / size_of::<f32>();
        let cols = if whole { 0 } else { most / rows.max(1) / panels };
        [rows, cols.max(1).saturating_mul(panels).min(self.task.1)]
    }

    /// Elements of one thread's sums that become bf16.
    pub(super) fn sums(&self) -> usize {
        let [rows, cols] = self.block_of_sums();
        if self.bf16.y { rows.saturating_mul(apart(cols)) } else { 0 }
    }

    /// Makes one slab of words of the rows of all products, where tasks share them.
    pub(super) fn share_rows<P: Problem>(
        &self,
        unit: MatrixUnit,
        problem: &P,
        slab: &Range<usize>,
        out: &mut [f32],
        par: &Par,
    ) {
        if self.a.0 != Packing::Shared {
            return;
        }
        let stride = apart(slab.len());
        let part = out.len() / self.size.batch;
        for (i, out) in out.chunks_exact_mut(part.max(1)).enumerate() {
            let rows = problem.a(i);
            let out = &mut out[..self.size.m * stride];
            // Some rows for each thread.
            let some = self.size.m.div_ceil(par.threads().max(1)).max(1);
            par.chunks_mut(out, some * stride, |chunk, out| {
                let first = chunk * some;
                self.write_rows(unit, &rows, first..first + out.len() / stride, slab, out);
            });
        }
    }

    /// Makes words of some rows.
    fn write_rows<P: Pack>(
        &self,
        unit: MatrixUnit,
        operand: &Operand<'_, P>,
        rows: Range<usize>,
        words: &Range<usize>,
        out: &mut [f32],
    ) {
        // They lie so: asserted by `check`.
        let Operand::Source(source) = operand else { return };
        let Some((data, stride)) = source.lanes() else { return };
        if self.bf16.x {
            // Words already, which are brought to where they do not crowd a set of the cache, or
            // where zeros fill the last step.
            let there = words.start..words.end.min(self.row_len());
            for (row, out) in rows.zip(out.chunks_mut(apart(words.len()))) {
                let (copied, zeros) = out.split_at_mut(there.len());
                data.part(row * stride + there.start..row * stride + there.end).copy_to(copied);
                zeros[..words.len() - there.len()].fill(0.0);
            }
            return;
        }
        let numbers = unit.numbers(words, self.depth);
        let rows = unit::Rows { data, stride, rows, numbers };
        unit.write_rows(self.target.isa, rows, words.len(), out);
    }
}

/// A range, so many at a time.
fn chunks(range: &Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = range.end;
    range.clone().step_by(most.max(1)).map(move |start| start..(start + most).min(end))
}

/// Rows of words, of which the first is word `from` of its row.
#[derive(Clone, Copy)]
struct Words<'a> {
    rows: WordRows<'a>,
    from: usize,
}

impl<P: Problem> Block<'_, P> {
    /// All of the task. The memory is that of the worker who runs it: for rows of A, for panels
    /// that become words, and for sums.
    pub(super) fn run_on_unit(
        &self,
        unit: MatrixUnit,
        private: &mut [f32],
        scratch: &mut [f32],
        sums: &mut [f32],
    ) {
        let gemm = self.gemm;
        let (operand, kc) = (self.problem.a(self.i), gemm.a.1.kc.max(1));
        // Sums of nothing are one block, too.
        let starts = self.slab.start..self.slab.end.max(self.slab.start + 1);
        let depths = starts.step_by(kc).map(|k0| k0..(k0 + kc).min(self.slab.end));
        if !gemm.bf16.y {
            for ks in depths {
                for rows in chunks(&self.rows, gemm.mc) {
                    if stop::stopped() {
                        return;
                    }
                    let a = self.words(unit, &operand, &rows, &ks, private);
                    let part = (rows, self.cols.clone(), ks.clone());
                    self.of_words(unit, a, part, self.place(), scratch);
                }
            }
            return;
        }
        let [most, width] = gemm.block_of_sums();
        let (c, to, stride) = (&SharedMut::new(sums), &self.place(), apart(width));
        for rows in chunks(&self.rows, most) {
            let a = self.words(unit, &operand, &rows, &self.slab, private);
            for cols in chunks(&self.cols, width) {
                if stop::stopped() {
                    return;
                }
                let origin = [rows.start, cols.start];
                let place = Place { c, first: 0, origin, stride, bf16: Some(to) };
                for ks in depths.clone() {
                    self.of_words(unit, a, (rows.clone(), cols.clone(), ks), place, scratch);
                }
            }
        }
    }

    /// Words of some rows, these at least: where they lie, those that all threads made, or made
    /// here.
    fn words<'w>(
        &'w self,
        unit: MatrixUnit,
        operand: &'w Operand<'_, P::A>,
        rows: &Range<usize>,
        words: &Range<usize>,
        private: &'w mut [f32],
    ) -> Words<'w> {
        let gemm = self.gemm;
        let (data, first, stride, from) = match gemm.a.0 {
            // They lie so: asserted by `check`.
            Packing::InPlace => (gemm.in_words(operand).unwrap_or_default(), 0, gemm.row_len(), 0),
            Packing::Shared => {
                let part = self.shared.0.len() / gemm.size.batch;
                let stride = apart(self.slab.len());
                let all = &self.shared.0[self.i * part..][..gemm.size.m * stride];
                (all, 0, stride, self.slab.start)
            }
            _ => {
                let stride = apart(words.len());
                let private = &mut private[..rows.len() * stride];
                gemm.write_rows(unit, operand, rows.clone(), words, private);
                (&*private, rows.start, stride, words.start)
            }
        };
        Words { rows: WordRows { data: bytemuck::cast_slice(data), first, stride }, from }
    }

    /// Words times panels of words: some rows, columns and depths of the product.
    fn of_words<'b>(
        &'b self,
        unit: MatrixUnit,
        a: Words<'_>,
        (rows, cols, ks): (Range<usize>, Range<usize>, Range<usize>),
        place: Place<'b>,
        scratch: &mut [f32],
    ) {
        let gemm = self.gemm;
        // It is packed: asserted by `check`.
        let Operand::Packed(matrix) = self.problem.b(self.i) else { return };
        let offset = unit.kept(gemm.b.1.offset(0, ks.start, 0));
        let depth = unit.kept(ks.len());
        let b = Panels::new(matrix.as_slice_of::<u32>(), (0, offset), depth);
        let data = a.rows.data.get(ks.start - a.from..).unwrap_or_default();
        let a = WordRows { data, ..a.rows };
        let mut panels = unit.panels(gemm.target.isa, rows.len(), scratch);
        let mut run = |tiles: Tiles<'b, _, _>| unit.run(tiles, &mut panels);
        self.parts((a, b), rows, cols, &ks, place, &mut run);
    }
}

//! The two products of attention: of f32, or of bf16 by what multiplies them ([`MatrixUnit`]).
//!
//! ```text
//!                 rows                            panels
//!   S = Q Kᵀ       Q where it lies                keys, an element of each side by side
//!   O = O + P V   P, as the softmax leaves it     values, elements of one side by side
//! ```
//! Of bf16 the rows become words before each product, and panels when they are packed: a block of
//! keys once for all queries of a task. Sums are f32, and so is everything between the products.

use super::{ROWS, end};
use crate::gemm::tile;
use crate::gemm::tiles::{self, Numbers, Place, Tiles, WordRows};
use crate::gemm::unit;
use crate::gemm::{MatrixUnit, PackPanels, PostOps, Strided, Target};
use plutino_cpu::par::SharedMut;
use plutino_cpu::tiles::{BLOCK, DEPTH_BLOCK, STEP, Terms};
use std::ops::Range;

/// What multiplies, and for which machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Products {
    pub(super) target: Target,
    pub(super) unit: Option<MatrixUnit>,
}

/// Memory of a worker in which numbers become words; none where they do not.
pub(super) struct Work<'a> {
    /// A panel of numbers.
    pub(super) panel: &'a mut [f32],
    /// Rows of words.
    pub(super) rows: &'a mut [f32],
}

/// A left operand, row by row.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// From the first row on.
    pub(super) data: &'a [f32],
    /// Numbers from one row to the next.
    pub(super) stride: usize,
    pub(super) rows: usize,
    /// Numbers of each that are multiplied.
    pub(super) numbers: usize,
}

/// A right operand: panels of as many columns, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    data: &'a [f32],
    /// Elements of a column in a panel.
    depth: usize,
}

/// A product's place: rows and columns that are one task's alone.
#[derive(Clone, Copy)]
pub(super) struct Output<'a> {
    /// Whether the product is added to what is there.
    pub(super) add: bool,
    pub(super) c: &'a SharedMut<'a, f32>,
    /// Where it begins.
    pub(super) base: usize,
    /// Elements from one row to the next.
    pub(super) stride: usize,
    pub(super) cols: usize,
}

impl Products {
    /// By `unit` where it can: tiles take sums of one depth block of at most two terms.
    pub(super) fn new(target: Target, unit: Option<MatrixUnit>, longest: usize) -> Self {
        let suits = |unit: &MatrixUnit| match unit {
            MatrixUnit::Pairs(_) => true,
            MatrixUnit::Tiles(_, terms) => {
                *terms != Terms::Three && longest <= DEPTH_BLOCK * 2 * STEP
            }
        };
        let unit = unit.filter(suits);
        let isa = unit.map_or(target.isa, |unit| unit.isa(target.isa));
        Self { target: Target { isa, ..target }, unit }
    }

    /// Rows of scores come in a multiple of this: of the rows of all register tiles or blocks, and
    /// of the four whose exponentials are computed together.
    pub(super) fn rows(self) -> usize {
        match self.unit {
            Some(MatrixUnit::Tiles(..)) => BLOCK,
            _ => ROWS,
        }
    }

    /// Columns of a panel.
    pub(super) fn width(self) -> usize {
        match self.unit {
            Some(MatrixUnit::Tiles(..)) => BLOCK,
            _ => self.target.nr(),
        }
    }

    /// Elements of memory for panels of `columns` columns of `depth` numbers.
    pub(super) fn panels(self, columns: usize, depth: usize) -> usize {
        columns
            .div_ceil(self.width())
            .saturating_mul(self.width())
            .saturating_mul(self.depth(depth))
    }

    /// Elements of memory of [`Work`] for so many rows of at most `longest` numbers.
    pub(super) fn work(self, rows: usize, longest: usize) -> [usize; 2] {
        let Some(unit) = self.unit else { return [0; 2] };
        let panel = longest.saturating_mul(self.width());
        [panel, rows.saturating_mul(unit::apart(unit.words(longest)))]
    }

    /// Elements of so many numbers of a column.
    fn depth(self, numbers: usize) -> usize {
        self.unit.map_or(numbers, |unit| unit.kept(unit.words(numbers)))
    }

    /// Packs some columns of a matrix.
    pub(super) fn pack<'p>(
        self,
        source: &Strided<'_>,
        columns: Range<usize>,
        numbers: Range<usize>,
        out: &'p mut [f32],
        work: &mut Work<'_>,
    ) -> Panels<'p> {
        let (isa, width, depth) = (self.target.isa, self.width(), self.depth(numbers.len()));
        let Some(unit) = self.unit else {
            let (lanes, depth) = (columns, numbers);
            isa.run(PackPanels { source, lanes, depth: depth.clone(), width, out });
            return Panels { data: out, depth: depth.len() };
        };
        let panel = &mut work.panel[..numbers.len() * width];
        let panels = out.chunks_exact_mut((depth * width).max(1));
        for (lane, out) in columns.clone().step_by(width).zip(panels) {
            let lanes = lane..columns.end.min(lane + width);
            unit.pack(isa, source, (lanes, numbers.clone()), width, (panel, out));
        }
        Panels { data: out, depth }
    }

    /// C (rows x cols) = or += A B.
    ///
    /// # Panics
    /// Where an operand is too short.
    pub(super) fn multiply(self, a: Rows<'_>, b: Panels<'_>, c: Output<'_>, work: &mut Work<'_>) {
        let Target { isa, .. } = self.target;
        let Rows { data, stride, rows, numbers } = a;
        let end = end(0, rows, stride, numbers);
        assert!(end.is_some_and(|end| end <= data.len()), "rows of an attention are missing");
        let Some(unit) = self.unit else {
            let a = tile::Rows { first: data.as_ptr(), stride };
            return tile::Rows::run(self.tiles(a, b.of(b.data), rows, numbers, c), isa);
        };
        let words = unit.words(numbers);
        let from = unit::Rows { data: data.into(), stride, rows: 0..rows, numbers: 0..numbers };
        let stride = unit::apart(words);
        let made = &mut work.rows[..rows * stride];
        unit.write_rows(isa, from, words, made);
        let b = b.of(bytemuck::cast_slice(b.data));
        let a = WordRows { data: bytemuck::cast_slice(made), first: 0, stride };
        let mut panels = unit.panels(isa, rows, &mut []);
        unit.run(self.tiles(a, b, rows, words, c), &mut panels);
    }

    fn tiles<'a, A, E>(
        self,
        a: A,
        b: tiles::Panels<'a, E>,
        rows: usize,
        depth: usize,
        c: Output<'a>,
    ) -> Tiles<'a, A, E> {
        let Output { add, c, base, stride, cols } = c;
        let width = self.width();
        let end = end(base, rows, stride, cols);
        assert!(end.is_some_and(|end| end <= c.len()), "the place of a product");
        assert!(
            depth <= b.depth && b.data.len() >= cols.next_multiple_of(width) * b.depth,
            "panels"
        );
        Tiles {
            a,
            b,
            mr: self.target.mr(),
            nr: width,
            rows: 0..rows,
            cols: 0..cols,
            depth,
            first: !add,
            last: true,
            post_ops: PostOps::default(),
            place: Place { c, first: base, origin: [0; 2], stride, bf16: None },
        }
    }
}

impl Panels<'_> {
    /// The same as elements that are multiplied.
    fn of<E: tiles::PanelElement>(self, data: &[E]) -> tiles::Panels<'_, E> {
        tiles::Panels::new(data, (0, 0), self.depth)
    }
}

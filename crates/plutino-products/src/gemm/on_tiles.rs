//! Products on tiles: blocks of 32 x 32 of C, each over one depth block.
//!
//! ```text
//!   for each panel of B (32 columns): words of it, where it is kept as numbers
//!     for each 32 rows of A:   block = A B      (`plutino_cpu::tiles`: four tiles of C)
//!                              C = end(block)   (vectors: what was before, bias, residual, limits)
//! ```

use super::tile::End;
use super::tiles::{Tiles, WordRows};
use plutino_cpu::simd::{Simd, Vectorized};
use plutino_cpu::tiles::{
    BLOCK, Block, Columns, DEPTH_BLOCK, Operands, STEP, TILE, WordPanels, rows_of_tile,
};

/// All blocks of some rows and columns.
pub(super) fn run<'b>(t: Tiles<'b, WordRows<'_>, u32>, panels: &mut WordPanels<'b>) {
    let Columns { unit, terms, isa } = panels.columns();
    let mut steps = [0; DEPTH_BLOCK];
    for (i, step) in steps.iter_mut().enumerate() {
        *step = i * terms.step();
    }
    let steps = &steps[..t.depth / terms.step()];
    let half = rows_of_tile(t.rows.len());
    let stride = t.a.stride;
    let mut block = Block([0.0; BLOCK * BLOCK]);
    unit.set_up(half, |tiles| {
        for j in t.cols.clone().step_by(BLOCK) {
            let cols = j..(j + BLOCK).min(t.cols.end);
            let (b, next) = t.b.panel_and_next(j, BLOCK);
            // The next panel, or the first of the next depth block.
            panels.go_on(b, next.get(..b.len()).unwrap_or_default());
            for i in t.rows.clone().step_by(2 * half) {
                let rows = i..(i + 2 * half).min(t.rows.end);
                // The last rows once more, where there are not as many as tiles have.
                let starts = [i, i + half].map(|row| row.min(t.rows.end - half));
                let a = t.a.data;
                let operands = Operands {
                    a,
                    first: starts.map(|row| (row - t.a.first) * stride),
                    rows: 2 * half,
                    stride,
                    term: STEP,
                    steps,
                    b: &[],
                    ahead: &[],
                    terms,
                };
                panels.multiply(tiles, operands, &mut block);
                let (c, end, clamp) = t.end(rows.clone(), cols.clone());
                let size = [rows.len(), cols.len()];
                let (place, stride) = ((i, starts), t.place.stride);
                isa.run(Store { block: &block, half, place, size, c, stride, end, clamp });
            }
            t.finish(isa, cols);
        }
    });
}

/// Finishes a block and stores it.
///
/// `c` and what `end` adds are of this task alone, and have `size` elements: see `Tiles::end`.
struct Store<'a> {
    block: &'a Block,
    /// Rows of a half.
    half: usize,
    /// The first row of C, and the first one of each half of the block.
    place: (usize, [usize; 2]),
    size: [usize; 2],
    c: *mut f32,
    stride: usize,
    end: End<'a>,
    clamp: (f32, f32),
}

impl Vectorized for Store<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { block, half, place: (first, starts), size: [rows, cols], c, stride, end, clamp } =
            self;
        let (low, high) = (s.splat(clamp.0), s.splat(clamp.1));
        for i in 0..rows {
            let lower = usize::from(i >= half);
            let row = lower * TILE + first + i - starts[lower];
            let row = &block.0[row * BLOCK..][..BLOCK];
            for at in (0..cols).step_by(S::LANES) {
                let lanes = (cols - at).min(S::LANES);
                let mut acc = s.load(&row[at..]);
                for add in &end.add {
                    if let Some((add, stride)) = *add {
                        // SAFETY: `lanes` elements of row `i`, from column `at` on, exist.
                        let there =
                            unsafe { s.load_partial_ptr(add.wrapping_add(i * stride + at), lanes) };
                        acc = s.add(acc, there);
                    }
                }
                if let Some(bias) = end.col_bias.and_then(|b| b.get(at..at + lanes)) {
                    acc = s.add(acc, s.load_partial(bias));
                }
                if let Some(&bias) = end.row_bias.and_then(|b| b.get(i)) {
                    acc = s.add(acc, s.splat(bias));
                }
                // NaN stays NaN: min and max hand back their second operand.
                acc = s.min(high, s.max(low, acc));
                // SAFETY: as above, of C.
                unsafe { s.store_partial_ptr(acc, c.wrapping_add(i * stride + at), lanes) };
            }
        }
    }
}

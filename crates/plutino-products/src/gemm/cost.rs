//! Estimates in cycles of one core, by which ways to compute are compared: the same for any number
//! of threads, which must not decide what is computed.

use super::unit::MatrixUnit;
use plutino_cpu::Isa;
use plutino_cpu::tiles::{BLOCK, DEPTH_BLOCK, STEP, Terms, rows_of_tile};

/// Multiply-adds of a core in a cycle.
pub fn full_speed(isa: Isa) -> f64 {
    (isa.multiply_adds() * isa.lanes()) as f64
}

/// Cycles in which weights arrive: none where they stay in the second-level cache, else at 8 bytes
/// a cycle, or at 4 where one layer's fill the third-level cache.
pub fn stream_cycles(bytes: f64) -> f64 {
    match bytes {
        ..=256e3 => 0.0,
        ..=20e6 => bytes / 8.0,
        _ => bytes / 4.0,
    }
}

/// What a convolution or a product on tiles has to do.
#[derive(Debug, Clone, Copy)]
pub struct OnTiles {
    /// Terms of each number.
    pub terms: Terms,
    /// Cycles of the tiles of all pixels, for each step and 16 columns.
    pub rows: usize,
    /// Pixels of the output.
    pub pixels: usize,
    /// Steps of the sum.
    pub steps: usize,
    /// Depth blocks.
    pub blocks: usize,
    /// Output channels of a group.
    pub columns: usize,
    /// Numbers that become words.
    pub converted: usize,
    /// Groups, which are alike.
    pub groups: usize,
    /// Whether rows of A start at lines of the cache.
    pub whole_lines: bool,
}

impl OnTiles {
    /// Cycles of an image.
    ///
    /// An instruction takes a cycle for each row of its tile; loads take some of the time, more
    /// where each tile is multiplied less often. A block of C is stored, read again and finished
    /// once for each depth block. Fitted to what ResNet-50 takes on a Sapphire Rapids core, whose
    /// vectors do 32 multiply-adds in a cycle: docs/decisions/014. Emulations stand beside vectors
    /// as units do beside those, so that the same is chosen.
    pub fn cycles(self, isa: Isa) -> f64 {
        let Self { terms, rows, pixels, steps, blocks, columns, converted, groups, whole_lines } =
            self;
        // Share of the unit's rate, and cycles of vectors for each number.
        let (share, word) = match terms {
            Terms::One => (0.5, 0.25),
            Terms::Two => (0.6, 0.4),
            Terms::Three => (0.7, 0.6),
        };
        // Rows of a tile that begin inside lines take several loads each.
        let share = if whole_lines { share } else { 0.6 * share };
        const DRAIN: f64 = 10.0 / 16.0;
        // Cycles of a number that becomes three terms, and cycles of the rows of a task.
        const SPLIT: f64 = 0.5;
        const ROWS_OF_TASK: usize = 512;
        let columns = columns.next_multiple_of(BLOCK) as f64;
        let tiles = terms.products().len() as f64 * rows as f64 * steps as f64 * columns / 16.0;
        let drain = DRAIN * blocks as f64 * pixels as f64 * columns;
        let of_group = tiles / share + word * converted as f64 + drain;
        let of_unit = groups as f64 * of_group * 32.0 / full_speed(isa);
        let weights = (size_of::<f32>() * terms.kept() * steps * groups) as f64 * columns;
        // What is kept as numbers becomes words once for each task of rows.
        let tasks = rows.div_ceil(ROWS_OF_TASK) as f64;
        let split = if terms.keeps_numbers() { SPLIT * tasks * weights / 4.0 } else { 0.0 };
        of_unit + split + stream_cycles(weights)
    }
}

impl OnTiles {
    /// Those of a product of `[m, k, n]`, whose rows become words on the way in.
    pub fn of_product(terms: Terms, [m, k, n]: [usize; 3]) -> Self {
        let steps = k.div_ceil(2 * STEP);
        let blocks = m.div_ceil(BLOCK);
        let rows = 2 * blocks * (rows_of_tile(m) + 2);
        Self {
            terms,
            rows,
            pixels: m,
            steps,
            blocks: steps.div_ceil(DEPTH_BLOCK),
            columns: n,
            converted: m * k,
            groups: 1,
            whole_lines: true,
        }
    }
}

/// Whether a product of `[m, k, n]` with weights packed beforehand is estimated to take less time
/// on this unit than by multiply-adds of f32.
pub fn pays(unit: MatrixUnit, isa: Isa, sizes: [usize; 3]) -> bool {
    let MatrixUnit::Tiles(_, terms) = unit else { return true };
    OnTiles::of_product(terms, sizes).cycles(isa) < by_vectors(isa, sizes)
}

/// Cycles of the same by multiply-adds, which are slow enough that weights arrive beside them.
pub fn by_vectors(isa: Isa, [m, k, n]: [usize; 3]) -> f64 {
    const SHARE: f64 = 0.8;
    let sums = m as f64 * k as f64 * n as f64;
    (sums / (SHARE * full_speed(isa))).max(stream_cycles(4.0 * k as f64 * n as f64))
}

//! Convolution on tiles: any window, stride and dilation, with groups of whole blocks, as products
//! of words of bf16 ([`plutino_cpu::tiles`]).
//!
//! ```text
//!   y[pixel, o] = act(bias[o] + residual + sum over k of  patch[pixel, k] w[k, o])
//!   k: groups of 32 channels, of each the rows of the window, of each its taps
//!
//!   planes of words (words.rs)         weights, packed once
//!   +--+--+--+--+--+  tile of A:       panel of 32 output channels:
//!   |  |xx|xx|xx|xx|  pixels of a      [step][term][16 words x 32]
//!   +--+--+--+--+--+  row, under a
//!   |  |  |  |  |  |  tap              32 x 32 pixels and channels: a block, four tiles
//! ```
//! The image becomes words once for each depth block, of a few planes (an image of bf16 under
//! windows of one pixel is read as it is); then tiles are loaded where the pixels under a tap lie,
//! and no matrix of patches is ever made. Loops, outermost first:
//! image, group, rows of the output (a task) / depth block / panel of 32 output channels / two
//! tiles of pixels. What the blocks of depth make is added up in y; bias, residual and activation
//! come with the last of them. So chains of products are short, and the error is below that of
//! f32's chains of multiply-adds (docs/decisions/012-rounding.md).
//!
//! The phases of a transposed convolution are such convolutions, whose pixels are spread in y
//! (phases.rs).
//!
//! For: everything in two dimensions where a CPU has tiles, and the estimate is below those of
//! vectors, Winograd's among them. Figures: docs/decisions/014-reduced-precision.md.

mod phases;
mod store;
mod words;

pub(crate) use phases::bind as bind_phases;

use super::direct::has_whole_groups;
use super::finish::Finish;
use super::first_layer;
use super::format;
use super::tiled::{Spread, pad_bias};
use super::window::Window;
use crate::algorithm::{Bound, Operands, take};
use crate::choose::Request;
use crate::cost;
use crate::post_ops::{Bf16Tensors, Residual};
use crate::problem::{ConvError, ConvProblem};
use plutino_cpu::par::{SharedMut, stop};
use plutino_cpu::simd::Pairs;
use plutino_cpu::tiles::{self, BLOCK, Block, Columns, STEP, Terms, TileUnit, WordPanels};
use plutino_cpu::{Isa, PackKey, Par};
use plutino_products::gemm::MatrixUnit;
use plutino_tensor::{AlignedBuf, DType, FloatSource, Floats, TensorError};
use std::borrow::Cow;
use std::ops::Range;
use store::{Store, Stored};
use words::{Canvas, Fill, NUMBERS};

/// Bytes of words of a task, for one depth block: a part of the second-level cache of CPUs with
/// tiles. The weights of a depth block pass by once for each task.
const TASK_WORDS: usize = 768 << 10;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct OnTiles {
    problem: ConvProblem,
    isa: Isa,
    unit: TileUnit,
    terms: Terms,
    finish: Finish,
    canvas: Canvas,
    /// Whether channels are planes.
    plain: bool,
    /// Where the pixels of the output lie in a larger one; several times, where other weights
    /// compute other pixels of it from the same windows. None: they are the output.
    spreads: Vec<Spread>,
    factors: bool,
    /// What reads and makes bf16, where tensors may be such; and which of them are.
    pairs: Option<Pairs>,
    bf16: Bf16Tensors,
    /// Whether tiles are loaded from the image itself.
    in_place: bool,
    threads: usize,
    /// Rows of the windows in a depth block.
    depth: usize,
    /// Rows of the output of a task, and tasks of an image.
    rows: usize,
    parts: usize,
    /// Panels of a task, and parts of all panels of a group.
    panels: usize,
    panel_parts: usize,
    cycles: f64,
}

/// Images in channel blocks.
pub(crate) fn bind(request: &Request<'_>) -> Option<OnTiles> {
    let window = Window::of(&request.problem)?;
    let whole = OnTiles::new(request, window, false, Vec::new());
    whole.filter(|_| has_whole_groups(&request.problem, request.isa))
}

/// Plain images of few channels.
pub(crate) fn bind_plain(request: &Request<'_>) -> Option<OnTiles> {
    // Rows of tiles that begin anywhere in lines take longer to load: with three terms all in all
    // 1.1 to 1.4 times what vectors take (ResNet's first layers, Sapphire Rapids, 2026-11-26).
    let three = matches!(request.unit, Some(MatrixUnit::Tiles(_, Terms::Three)));
    let window = first_layer::window(request)?;
    OnTiles::new(request, window, true, Vec::new()).filter(|_| !three)
}

/// Steps of a depth block at most: with more terms fewer, so that no chain of six products is
/// longer than those of multiply-adds elsewhere, and a panel's weights stay in the caches.
const fn most_steps(terms: Terms) -> usize {
    match terms {
        Terms::One => 36,
        Terms::Two => 27,
        Terms::Three => 18,
    }
}

impl OnTiles {
    fn new(
        request: &Request<'_>,
        window: Window,
        plain: bool,
        spreads: Vec<Spread>,
    ) -> Option<Self> {
        let &Request { problem, post_ops, isa, threads, unit, bf16, .. } = request;
        let Some(MatrixUnit::Tiles(unit, terms)) = unit else { return None };
        let lanes = (!plain).then_some(isa.lanes());
        let canvas = Canvas::of(&window, problem.group_in(), lanes, terms)?;
        // Words of weights, and of the image.
        let phases = spreads.len().max(1);
        let all = problem.group_out().div_ceil(BLOCK).checked_mul(phases)?;
        let rows = problem.groups().checked_mul(all * BLOCK)?;
        let words = canvas.steps().checked_mul(terms.step())?.checked_mul(rows)?;
        words.checked_mul(size_of::<u32>()).filter(|&bytes| bytes <= isize::MAX as usize)?;
        canvas.converted().checked_mul(terms.count())?.checked_mul(size_of::<u32>())?;

        let depth = Self::depth(&canvas, terms);
        let (threads, batch, groups) = (threads.max(1), problem.batch(), problem.groups());
        let height = window.output[0];
        let planes = Self::planes(&canvas, depth);
        let bytes = |rows: usize| planes * canvas.plane_len(rows) * size_of::<f32>();
        // The most rows that fit, by halves.
        let mut rows = height;
        while rows > 1 && bytes(rows) > TASK_WORDS {
            rows = rows.div_ceil(2);
        }
        // A few tasks for each thread, each of two blocks at least.
        let alone = batch.saturating_mul(groups).max(1);
        let wanted = if threads == 1 { 1 } else { (4 * threads).div_ceil(alone) };
        let blocks = window.pixels().div_ceil(2 * BLOCK);
        let parts = height.div_ceil(rows).max(wanted.min(blocks).min(height));
        let rows = height.div_ceil(parts);
        let parts = height.div_ceil(rows);
        // Where pixels are few, each thread has channels of its own.
        let panels = all.div_ceil(threads.div_ceil(alone.saturating_mul(parts)));

        let cost = cost::OnTiles {
            terms,
            rows: canvas.tiles(height).cycles(),
            pixels: window.pixels(),
            steps: canvas.steps(),
            blocks: canvas.window_rows().div_ceil(depth),
            columns: all * BLOCK,
            converted: canvas.converted(),
            groups,
            whole_lines: canvas.pixel_stride().is_multiple_of(STEP),
        };
        Some(Self {
            problem,
            isa,
            unit,
            terms,
            finish: Finish::new(post_ops.activation),
            plain,
            spreads,
            factors: post_ops.factors,
            pairs: format::maker(request),
            bf16,
            in_place: bf16.input && canvas.is_image(),
            threads,
            depth,
            rows,
            parts,
            panels,
            panel_parts: all.div_ceil(panels),
            cycles: batch as f64 * cost.cycles(isa),
            canvas,
        })
    }

    /// Which tensors could be bf16: an image of whole cells, and an output that is stored once.
    fn could_be_bf16(&self) -> Bf16Tensors {
        let may = self.pairs.is_some() && self.problem.groups() == 1;
        let cells = self.canvas.cell == NUMBERS && self.canvas.channels.is_multiple_of(NUMBERS);
        let once = self.canvas.window_rows() <= self.depth && self.finish.at_once();
        Bf16Tensors {
            input: may && cells && !self.plain && !self.factors,
            residual: may,
            output: may && once,
        }
    }

    /// Rows of the windows in a depth block: whole planes, where one has not too many.
    fn depth(canvas: &Canvas, terms: Terms) -> usize {
        let most = (most_steps(terms) / canvas.runs).max(1);
        let (whole, all) = (canvas.kernel[0], canvas.window_rows());
        let most = if most >= whole { most / whole * whole } else { most };
        // As much in each.
        let blocks = all.div_ceil(most);
        let even = all.div_ceil(blocks);
        if most >= whole { even.next_multiple_of(whole) } else { even }
    }

    /// Planes of a depth block at most.
    fn planes(canvas: &Canvas, depth: usize) -> usize {
        let whole = canvas.kernel[0];
        match depth.is_multiple_of(whole) {
            true => depth / whole,
            false => (depth / whole + 2).min(canvas.planes),
        }
    }

    /// f32 of the words of a worker, in whole lines; and numbers of its table of steps.
    fn words_len(&self) -> usize {
        if self.in_place {
            return 0;
        }
        Self::planes(&self.canvas, self.depth) * self.canvas.plane_len(self.rows)
    }

    fn table_len(&self) -> usize {
        (self.depth * self.canvas.runs).next_multiple_of(16)
    }

    /// f32 of a panel of weights.
    fn panel_len(&self) -> usize {
        self.canvas.steps() * self.terms.kept() * BLOCK
    }

    /// How weights become words, and f32 of those that a worker makes.
    fn columns(&self) -> Columns {
        Columns { unit: self.unit, isa: self.isa, terms: self.terms }
    }

    fn columns_len(&self) -> usize {
        self.columns().scratch(self.depth * self.canvas.runs)
    }

    /// Panels of the output channels of a group.
    fn all_panels(&self) -> usize {
        self.problem.group_out().div_ceil(BLOCK)
    }

    /// The same, as often as there are weights for them.
    fn panels_of_phases(&self) -> usize {
        self.all_panels() * self.spreads.len().max(1)
    }
}

/// Packed weights: `[group][panel of 32 output channels][step]`, of each what [`Columns`] keep.
#[derive(Debug)]
pub(crate) struct TileWeights(AlignedBuf);

impl TileWeights {
    #[inline]
    fn words(&self) -> &[u32] {
        bytemuck::cast_slice(self.0.as_bytes())
    }
}

impl OnTiles {
    /// Packs the weights of up to 32 output channels, each `(channels, taps)`.
    fn pack_panel(&self, weight: Floats<'_>, panel: &mut [f32]) {
        let canvas = &self.canvas;
        let [height, width] = canvas.kernel;
        let len = (canvas.channels * height * width).max(1);
        for (step, panel) in panel.chunks_exact_mut(self.terms.kept() * BLOCK).enumerate() {
            let (row, run) = (step / canvas.runs, step % canvas.runs);
            let mut numbers = [0.0; NUMBERS * BLOCK];
            for (i, numbers) in numbers.chunks_exact_mut(BLOCK).enumerate() {
                let Some((channel, kx)) = canvas.number(row, run, i) else { continue };
                let from = (channel * height + row % height) * width + kx;
                for (number, weight) in numbers.iter_mut().zip(weight.chunks_exact(len)) {
                    *number = weight.get(from);
                }
            }
            self.columns().keep(&numbers, panel);
        }
    }
}

impl Bound for OnTiles {
    type Weights = TileWeights;

    fn cycles(&self) -> f64 {
        self.cycles
    }

    fn unit(&self) -> Option<MatrixUnit> {
        Some(MatrixUnit::Tiles(self.unit, self.terms))
    }

    fn bf16_tensors(&self) -> Bf16Tensors {
        self.could_be_bf16()
    }

    fn pack_key(&self) -> PackKey {
        let form = if self.plain { "conv.tiles.plain" } else { "conv.tiles" };
        let [cell, taps] = self.canvas.form();
        let key = PackKey::f32(form, [self.terms.count(), cell, taps], self.isa);
        PackKey { precision: DType::Bf16, ..key }
    }

    fn pack(&self, weight: &mut dyn FloatSource, _: &Par) -> Result<TileWeights, ConvError> {
        let (len, all) = (self.panel_len(), self.all_panels());
        let bytes = [self.problem.groups(), all, len, size_of::<f32>()];
        let bytes = bytes.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        let bytes = bytes.ok_or_else(|| TensorError::invalid("weights exceed memory"))?;
        let mut data = AlignedBuf::resident(bytes)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        let out = self.problem.group_out();
        let row = self.canvas.channels * self.canvas.kernel.iter().product::<usize>();
        for (i, panel) in packed.chunks_mut(len.max(1)).enumerate() {
            let (group, first) = (i / all, i % all * BLOCK);
            let rows = group * out + first..group * out + out.min(first + BLOCK);
            self.pack_panel(weight.part(rows.start * row..rows.end * row)?, panel);
        }
        Ok(TileWeights(data))
    }

    fn bytes(weights: &TileWeights) -> usize {
        weights.0.len()
    }

    /// Whole panels.
    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        let (groups, out) = (self.problem.groups(), self.problem.group_out());
        Cow::Owned(pad_bias(bias, groups, out, BLOCK / super::tile::NB))
    }

    fn workspace(&self) -> usize {
        let words = self.words_len().saturating_add(self.columns_len());
        let words = words.saturating_mul(size_of::<f32>());
        let table = self.table_len().saturating_mul(size_of::<usize>());
        words.saturating_add(table).saturating_mul(self.threads)
    }

    fn run(
        &self,
        weights: &TileWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        self.run_phases(&[weights.words()], operands, workspace, par)
    }
}

impl OnTiles {
    /// Computes with the weights of each of the spreads.
    fn run_phases(
        &self,
        weights: &[&[u32]],
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, factors, residual, y } = operands;
        let (words, rest) = take::<f32>(workspace, self.threads * self.words_len())?;
        let (columns, rest) = take::<f32>(rest, self.threads * self.columns_len())?;
        let (tables, _) = take::<usize>(rest, self.threads * self.table_len())?;
        let p = &self.problem;
        let (batch, groups) = (p.batch(), p.groups());
        let image = x.len() / batch.max(1);
        let factors = factors.filter(|_| self.factors);
        let of_image = factors.map_or(0, |factors| factors.len() / batch.max(1));
        let (y, words, tables) = (SharedMut::new(y), SharedMut::new(words), SharedMut::new(tables));
        let columns = SharedMut::new(columns);
        let grid = [batch, groups * self.panel_parts, self.parts];
        par.run_grid(grid, |worker, [n, layer, part]| {
            let (group, first) = (layer / self.panel_parts, layer % self.panel_parts * self.panels);
            let own = |len: usize| worker * len..(worker + 1) * len;
            // SAFETY: no two tasks run under the same worker's number at the same time.
            let words = unsafe { words.slice(own(self.words_len())) };
            // SAFETY: as above.
            let table = unsafe { tables.slice(own(self.table_len())) };
            // SAFETY: as above.
            let columns = unsafe { columns.slice(own(self.columns_len())) };
            let group_len = image / groups;
            let of_group = of_image / groups;
            let start = part * self.rows;
            let task = Task {
                conv: self,
                x: &x[n * image + group * group_len..][..group_len],
                factors: factors.map(|f| &f[n * of_image + group * of_group..][..of_group]),
                weights,
                bias,
                residual,
                y: &y,
                image: n,
                group,
                rows: start..self.canvas.output[0].min(start + self.rows),
                panels: first..self.panels_of_phases().min(first + self.panels),
            };
            task.run(words, table, columns);
        });
        Ok(())
    }
}

/// Some rows of an image's output, for some panels of output channels of a group.
struct Task<'a> {
    conv: &'a OnTiles,
    /// The image of the group, and its factors.
    x: &'a [f32],
    factors: Option<&'a [f32]>,
    weights: &'a [&'a [u32]],
    bias: &'a [f32],
    residual: Option<Residual<'a>>,
    y: &'a SharedMut<'a, f32>,
    /// Its number.
    image: usize,
    group: usize,
    rows: Range<usize>,
    panels: Range<usize>,
}

impl Task<'_> {
    fn run(&self, words: &mut [f32], table: &mut [usize], columns: &mut [f32]) {
        let conv = self.conv;
        let (canvas, terms, output) = (&conv.canvas, conv.terms, self.rows.len());
        let cut = canvas.tiles(output);
        let (height, all) = (canvas.kernel[0], canvas.window_rows());
        let mut filled = 0..0;
        let mut panels = WordPanels::new(conv.columns(), cut.count.div_ceil(2), columns);
        for start in (0..all).step_by(conv.depth) {
            let end = all.min(start + conv.depth);
            let planes = start / height..(end - 1) / height + 1;
            if planes != filled && !conv.in_place {
                filled = planes.clone();
                let (output, words) = (self.rows.clone(), &mut *words);
                let (x, factors, bf16) = (self.x, self.factors, conv.bf16.input);
                let fill = Fill { canvas, x, bf16, factors, planes, output, words };
                Pairs::convert(conv.isa, fill);
            }
            let [image_plane, image_row] = canvas.of_image();
            let (words, plane_len): (&[f32], _) = match conv.in_place {
                true => (&self.x[self.rows.start * image_row..], image_plane),
                false => (&*words, canvas.plane_len(output)),
            };
            let steps = (start..end).flat_map(|row| (0..canvas.runs).map(move |run| (row, run)));
            let mut count = 0;
            for ((row, run), step) in steps.zip(&mut *table) {
                *step = canvas.step(plane_len, filled.start, row, run);
                count += 1;
            }
            let words: &[u32] = bytemuck::cast_slice(words);
            let operands = tiles::Operands {
                a: words,
                first: [0; 2],
                rows: 2 * cut.rows,
                stride: canvas.pixel_stride(),
                term: canvas.term_len(output),
                steps: &table[..count],
                b: &[],
                ahead: &[],
                terms,
            };
            let next = all.min(end + conv.depth);
            let steps = [start, end, next].map(|row| row * canvas.runs);
            self.blocks(operands, cut, steps, [start == 0, end == all], &mut panels);
        }
    }

    /// All blocks of a depth block: of the steps from the first to the second number; those of the
    /// next one go on to the third. Whether it is the first, and the last.
    fn blocks<'w>(
        &'w self,
        operands: tiles::Operands<'_>,
        cut: words::TileCut,
        [step, end, next]: [usize; 3],
        ends: [bool; 2],
        panels: &mut WordPanels<'w>,
    ) {
        let conv = self.conv;
        let canvas = &conv.canvas;
        let mut block = Block([0.0; BLOCK * BLOCK]);
        conv.unit.set_up(cut.rows, |unit| {
            for panel in self.panels.clone() {
                if stop::stopped() {
                    return;
                }
                let then = match panel + 1 < self.panels.end {
                    true => self.weights_of(panel + 1, step..end),
                    false => self.weights_of(self.panels.start, end..next),
                };
                panels.go_on(self.weights_of(panel, step..end), then);
                for tile in (0..cut.count).step_by(2) {
                    let tiles = tile..cut.count.min(tile + 2);
                    let first = [tile, tiles.end - 1].map(|tile| canvas.first(cut, tile));
                    let operands = tiles::Operands { first, ..operands };
                    panels.multiply(unit, operands, &mut block);
                    let store = Stored { task: self, block: &block, panel, cut, tiles, ends };
                    match conv.pairs.filter(|_| conv.bf16.residual || conv.bf16.output) {
                        None => conv.isa.run(Store::<false>(store)),
                        Some(pairs) => pairs.run(Store::<true>(store)),
                    }
                }
            }
        });
    }

    /// The weights of some steps of a panel.
    fn weights_of(&self, panel: usize, steps: Range<usize>) -> &[u32] {
        let conv = self.conv;
        let (phase, panel) = (panel / conv.all_panels(), panel % conv.all_panels());
        let index = self.group * conv.all_panels() + panel;
        let panel = &self.weights[phase][index * conv.panel_len()..][..conv.panel_len()];
        let len = conv.terms.kept() * BLOCK;
        &panel[steps.start * len..steps.end * len]
    }
}

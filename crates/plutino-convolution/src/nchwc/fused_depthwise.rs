//! A depthwise convolution together with the 1x1 convolutions before and after it, some rows at a
//! time: what lies between them, the largest tensors of MobileNets, stays in the caches of the
//! thread that computes it.
//!
//! ```text
//!   x ---- 1x1 ----> rows of channels ---- depthwise ----> rows of channels ---- 1x1 ----> y
//!                            (both in scratch memory of the thread)
//! ```
//! Loops: image and a band of rows, and some channels where nothing comes after (a task) / some
//! rows of the output, for which the last lines of the input are kept / some channels: 1x1, then
//! depthwise block by block / 1x1. Where bands meet, both threads compute the lines that both read.
//!
//! Sums have the terms, and their order, that they have in the layers by themselves: the results
//! are the same bits.
//!
//! Layers that are computed depth-first: Alwani et al., "Fused-Layer CNN Accelerators" (MICRO
//! 2016). Figures: docs/decisions/004-depthwise.md.

use super::depthwise::{Depthwise, DepthwiseWeights, Filters};
use super::direct::Shared;
use super::format::Format;
use super::prefetch;
use super::tile::NB;
use super::tiled::{DirectWeights, Operands, Place};
use super::window::Window;
use crate::algorithm::{ConvWeights, take};
use crate::convolution::{Convolution, check_workspace};
use crate::post_ops::{Residual, ResidualOrder};
use crate::problem::{ConvError, check_len};
use plutino_cpu::Par;
use plutino_cpu::par::{SharedMut, part_of, stop};
use plutino_cpu::simd::LINE;
use std::ops::Range;

/// Pixels of the input of the depthwise convolution that are computed together, at least: some
/// tiles for each weight.
const LEAST_PIXELS: usize = 256;

/// Tasks for each thread, where threads have channels of their own.
const TASKS: usize = 4;

/// Two or three convolutions, planned for their sizes.
#[derive(Debug)]
pub struct FusedDepthwise {
    before: Option<Convolution>,
    depthwise: Convolution,
    after: Option<Convolution>,
    cut: Cut,
    memory: Memory,
    /// Of the last one.
    residual: Option<ResidualOrder>,
    threads: usize,
}

/// The prepared weights of one of the convolutions.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// Of its [`Convolution::pack`].
    pub weights: &'a ConvWeights,
    /// Of its [`Convolution::bias`].
    pub bias: &'a [f32],
}

/// What [`FusedDepthwise::run`] reads and writes, all in channel blocks.
#[derive(Debug)]
pub struct FusedArgs<'a> {
    /// The images: [`Convolution::input_len`] of the first convolution.
    pub x: &'a [f32],
    /// The convolutions, in the order of [`FusedDepthwise::layers`].
    pub layers: &'a [Layer<'a>],
    /// Laid out as the output, where the last convolution adds one.
    pub residual: Option<&'a [f32]>,
    /// The results: [`Convolution::output_len`] of the last convolution.
    pub y: &'a mut [f32],
    /// [`FusedDepthwise::workspace`] bytes, at a multiple of 64; what they hold does not matter.
    pub workspace: &'a mut [u8],
}

/// What is cut.
#[derive(Debug, Clone, Copy)]
struct Work<'a> {
    /// Of the depthwise convolution.
    window: &'a Window,
    /// Pairs of blocks of its channels.
    pairs: usize,
    lanes: usize,
    batch: usize,
    threads: usize,
    /// Whether there is a layer before, and after.
    beside: [bool; 2],
}

/// How the work is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    /// Bands of rows of an image.
    bands: usize,
    /// Parts of the channels.
    parts: usize,
    /// Rows of the output that are computed together.
    rows: usize,
    /// Rows of the depthwise convolution's input that these read, at most.
    read: usize,
}

impl Cut {
    /// For a second-level cache of so many bytes; none where threads would have to share what a
    /// layer after reads, or it does not fit the cache.
    fn new(work: &Work<'_>, cache: usize) -> Option<Self> {
        let &Work { window, pairs, lanes, batch, threads, beside: [before, after] } = work;
        let [height, width] = window.output;
        let bands = work.bands();
        let band = height.div_ceil(bands);
        // Bytes of so many rows of a pair of blocks, before and after the depthwise convolution.
        let bytes = |lines: usize, pixels: usize| {
            let pixels = lines.saturating_mul(pixels);
            pixels.saturating_mul(NB * lanes * size_of::<f32>())
        };
        let lines = |rows| if before { bytes(work.read(rows), window.input[1]) } else { 0 };
        let results = |rows| if after { bytes(rows, width) } else { 0 };
        let all = |rows| lines(rows).saturating_add(results(rows)).saturating_mul(pairs);
        let (most, alone) = (cache / 2, batch * bands >= threads);
        if after && !alone {
            return None;
        }
        let fresh = (2 * work.kept()).max(LEAST_PIXELS.div_ceil(window.input[1]));
        let least = fresh.div_ceil(window.stride[0]).clamp(1, band);
        let cut = |parts: usize, rows: usize| {
            let parts = pairs.div_ceil(pairs.div_ceil(parts));
            Some(Self { bands, parts, rows, read: work.read(rows) })
        };
        // As many rows as fit: what they take grows with them.
        let fitting = |bytes: &dyn Fn(usize) -> usize| {
            let (mut fit, mut more) = (least, band + 1);
            while more - fit > 1 {
                let rows = fit + (more - fit) / 2;
                if bytes(rows) <= most { fit = rows } else { more = rows }
            }
            fit
        };
        if after {
            // All channels of a band, whose input is made part by part; or rows of all channels.
            return match results(band).saturating_mul(pairs) <= most {
                true => {
                    let lines = lines(band).saturating_mul(pairs);
                    cut(lines.div_ceil((cache / 4).max(1)).clamp(1, pairs), band)
                }
                false => {
                    let rows = fitting(&all);
                    if all(rows) <= most { cut(1, rows) } else { None }
                }
            };
        }
        let parts = pairs.div_ceil(((cache / 4) / lines(least).max(1)).clamp(1, pairs));
        let wanted = if alone { 1 } else { (TASKS * threads).min(pairs) };
        let parts = parts.max(wanted);
        // Lines take a quarter of the cache.
        cut(parts, fitting(&|rows| lines(rows).saturating_mul(2 * pairs.div_ceil(parts))))
    }
}

impl Work<'_> {
    /// Lines that are kept from rows to rows.
    fn kept(&self) -> usize {
        let span = (self.window.kernel[0] - 1) * self.window.dilation[0] + 1;
        span.saturating_sub(self.window.stride[0])
    }

    /// Lines of input that so many rows read, at most.
    fn read(&self, rows: usize) -> usize {
        let window = Window { output: [rows, 1], ..self.window.clone() };
        window.extent(0).min(self.window.input[0])
    }

    /// Bands of an image: as many as threads, where lines that two of them compute are few.
    fn bands(&self) -> usize {
        let (height, threads) = (self.window.output[0], self.threads);
        let lines = |band| self.window.of_rows(part_of(band, threads, height)).1.len();
        let all = self.window.input[0];
        let few = |lines: usize| !self.beside[0] || lines <= all + all / 5;
        let cut = self.batch < threads && threads <= height;
        if cut && few((0..threads).map(lines).sum()) { threads } else { 1 }
    }
}

/// What the layers are.
struct Layers<'a> {
    before: Option<&'a Shared>,
    depthwise: &'a Depthwise,
    after: Option<&'a Shared>,
}

/// f32 of a thread's memory.
#[derive(Debug, Clone, Copy)]
struct Memory {
    /// Before the depthwise convolution.
    lines: usize,
    /// After it.
    results: usize,
    /// A copy of what a 1x1 convolution reads.
    copy: usize,
}

impl FusedDepthwise {
    /// Where the first and the last one, of which one can be missing, are 1x1 convolutions without
    /// strides and the one between them a depthwise convolution, in channel blocks, and all is read
    /// by the next one alone. Only the last one has a residual. `cache` is the size of a core's
    /// second-level cache in bytes.
    pub fn new(
        before: Option<Convolution>,
        depthwise: Convolution,
        after: Option<Convolution>,
        cache: usize,
    ) -> Option<Self> {
        let (next, q) = (depthwise.bound().depthwise()?, depthwise.problem());
        let (window, lanes) = (&next.window, next.isa.lanes());
        let mut threads = depthwise.threads();
        for (conv, size, channels) in before
            .iter()
            .map(|conv| (conv, window.input, conv.problem().out_channels()))
            .chain(after.iter().map(|c| (c, window.output, c.problem().in_channels())))
        {
            let tiles = conv.bound().pointwise()?;
            let same = (conv.problem().batch(), channels) == (q.batch(), q.in_channels());
            if !same || tiles.isa != next.isa || tiles.tiled.window.output != size {
                return None;
            }
            threads = threads.min(conv.threads());
        }
        let residual = |conv: &Convolution| conv.post_ops().residual;
        let last = after.as_ref().unwrap_or(&depthwise);
        let before_last = before.iter().chain(after.is_some().then_some(&depthwise));
        // Each row of the output sees some of the input.
        let sees = |row: usize| !window.of_rows(row..row + 1).1.is_empty();
        let fits = sees(0) && sees(window.output[0] - 1);
        if !fits || before_last.into_iter().any(|conv| residual(conv).is_some()) {
            return None;
        }
        let beside = [before.is_some(), after.is_some()];
        if beside == [false, false] {
            return None;
        }
        let pairs = q.out_channels().div_ceil(NB * lanes);
        let threads = threads.max(1);
        let work = Work { window, pairs, lanes, batch: q.batch(), threads, beside };
        let cut = Cut::new(&work, cache)?;
        let residual = residual(last);
        let pixels = [cut.read * window.input[1], cut.rows * window.output[1]];
        let copy = |conv: &Option<Convolution>, pixels| {
            let tiles = conv.as_ref().and_then(|conv| conv.bound().pointwise());
            tiles.map_or(0, |tiles| tiles.tiled.copy_len(pixels))
        };
        let copy = copy(&before, pixels[0]).max(copy(&after, pixels[1]));
        let part = if before.is_some() { pairs.div_ceil(cut.parts) } else { 0 };
        let memory = Memory {
            lines: part * NB * lanes * pixels[0],
            results: if after.is_some() { pairs * NB * lanes * pixels[1] } else { 0 },
            copy: copy.next_multiple_of(LINE / size_of::<f32>()),
        };
        Some(Self { before, depthwise, after, cut, memory, residual, threads })
    }

    /// All, as in `conv.pointwise>depthwise>pointwise.c16.avx512`.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.layers().map(|conv| conv.algorithm().name).collect();
        let isa = self.depthwise.isa();
        format!("conv.{}.c{}.{isa}", names.join(">"), isa.lanes())
    }

    /// The convolutions, two or three.
    pub fn layers(&self) -> impl Iterator<Item = &Convolution> {
        self.before.iter().chain([&self.depthwise]).chain(&self.after)
    }

    fn bound(&self) -> Option<Layers<'_>> {
        let depthwise = self.depthwise.bound().depthwise()?;
        let [before, after] = [&self.before, &self.after]
            .map(|conv| conv.as_ref().and_then(|conv| conv.bound().pointwise()));
        Some(Layers { before, depthwise, after })
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> usize {
        let Memory { lines, results, copy } = self.memory;
        let worker = lines.saturating_add(results).saturating_add(copy);
        self.threads.saturating_mul(worker).saturating_mul(size_of::<f32>())
    }

    /// Computes.
    ///
    /// # Errors
    /// As [`Convolution::run`]; [`ConvError::Length`] for another number of layers, too.
    pub fn run(&self, args: FusedArgs<'_>, par: &Par) -> Result<(), ConvError> {
        let FusedArgs { x, layers, residual, y, workspace } = args;
        let first = self.before.as_ref().unwrap_or(&self.depthwise);
        let last = self.after.as_ref().unwrap_or(&self.depthwise);
        let outputs = last.output_len();
        check_len("layers", layers.len(), self.layers().count())?;
        for (conv, layer) in self.layers().zip(layers) {
            conv.check_layer(layer.weights, layer.bias)?;
        }
        check_len("input", x.len(), first.input_len())?;
        check_len("output", y.len(), outputs)?;
        let expected = if self.residual.is_some() { outputs } else { 0 };
        check_len("residual", residual.map_or(0, <[f32]>::len), expected)?;
        let len = self.workspace();
        check_workspace(workspace, len, self.threads, par)?;
        let (Some(bound), false) = (self.bound(), y.is_empty()) else { return Ok(()) };
        let (own, rest) = layers.split_at(usize::from(self.before.is_some()));
        let Some((&filters, rest)) = rest.split_first() else { return Ok(()) };
        let (memory, _) = take::<f32>(workspace, len / size_of::<f32>())?;
        let run = Run {
            cut: self.cut,
            before: Tiles::of(bound.before, own)?,
            depthwise: bound.depthwise,
            filters: filters.weights.packed_for(bound.depthwise)?,
            bias: filters.bias,
            after: Tiles::of(bound.after, rest)?,
            x,
            residual: residual.zip(self.residual).map(|(data, order)| Residual {
                data,
                order,
                format: Format::F32,
            }),
            y: SharedMut::new(y),
            memory: (SharedMut::new(memory), self.memory),
        };
        let Cut { bands, parts, .. } = self.cut;
        let parts = if self.after.is_some() { 1 } else { parts };
        let batch = self.depthwise.problem().batch();
        par.run_grid([batch, parts, bands], |worker, task| run.task(worker, task));
        Ok(())
    }
}

/// A 1x1 convolution with its weights.
struct Tiles<'a> {
    conv: &'a Shared,
    weights: DirectWeights<&'a [f32]>,
    bias: &'a [f32],
}

impl<'a> Tiles<'a> {
    fn of(conv: Option<&'a Shared>, layer: &[Layer<'a>]) -> Result<Option<Self>, ConvError> {
        let both = conv.zip(layer.first());
        both.map(|(conv, &Layer { weights, bias })| {
            Ok(Self { conv, weights: weights.packed_for(conv)?.view(), bias })
        })
        .transpose()
    }

    /// Some pixels of `x`, an image or a part of one under `window`, for some pairs of blocks.
    fn run(
        &self,
        (x, window): (&[f32], &Window),
        (pixels, pairs): (Range<usize>, Range<usize>),
        (y, to): (&SharedMut<'_, f32>, Place),
        residual: Option<Residual<'_>>,
        copy: &mut [f32],
    ) {
        let Self { conv, weights, bias } = *self;
        let operands = Operands { x, factors: None, y, weights, bias, residual };
        conv.tiled.pixels(&operands, window, (pixels, pairs), to, copy);
    }
}

/// One run.
struct Run<'a> {
    cut: Cut,
    before: Option<Tiles<'a>>,
    depthwise: &'a Depthwise,
    filters: &'a DepthwiseWeights,
    /// Of the depthwise convolution.
    bias: &'a [f32],
    after: Option<Tiles<'a>>,
    x: &'a [f32],
    residual: Option<Residual<'a>>,
    y: SharedMut<'a, f32>,
    /// Of all threads, and of each.
    memory: (SharedMut<'a, f32>, Memory),
}

impl Run<'_> {
    /// A band of an image; where there is no layer after, some channels of it.
    fn task(&self, worker: usize, [n, part, band]: [usize; 3]) {
        let (window, b) = (&self.depthwise.window, self.depthwise.isa.lanes());
        let [height, width] = window.output;
        let Cut { bands, parts, rows: step, .. } = self.cut;
        let (memory, Memory { lines, results, copy }) = &self.memory;
        let len = lines + results + copy;
        // SAFETY: no two tasks run under the same worker's number at the same time.
        let own = unsafe { memory.slice(worker * len..(worker + 1) * len) };
        let (lines, own) = own.split_at_mut(*lines);
        let (results, copy) = own.split_at_mut(*results);
        let problem = &self.depthwise.problem;
        let blocks = problem.out_channels().div_ceil(b);
        let image = self.x.len() / problem.batch();
        let x = &self.x[n * image..(n + 1) * image];
        let band = part_of(band, bands, height);
        // All parts of the channels are one task's where a layer after it reads them.
        let parts_of_task = if self.after.is_some() { 0..parts } else { part..part + 1 };
        let fetches = prefetch::pays(self.x.len());
        let mut there = 0..0;
        let operations = step * window.input[1] * image / window.input_pixels();
        for start in stop::paced(band.clone().step_by(step), operations) {
            let rows = start..band.end.min(start + step);
            let (part_window, wanted) = window.of_rows(rows.clone());
            for part in parts_of_task.clone() {
                let pairs = part_of(part, parts, blocks.div_ceil(NB));
                let own = pairs.start * NB..(pairs.end * NB).min(blocks);
                if let Some(before) = &self.before {
                    self.fill(before, (x, pairs), own.len(), (&there, &wanted), lines, copy);
                }
                for (i, block) in own.enumerate() {
                    let line = window.input[1] * b;
                    let (from, at, fetches) = match self.before {
                        Some(_) => (&*lines, i * self.cut.read * line, false),
                        None => (x, (block * window.input[0] + wanted.start) * line, fetches),
                    };
                    let plane = (&from[at..at + wanted.len() * line], fetches);
                    let len = rows.len() * width * b;
                    let (residual, y) = if self.after.is_some() {
                        (None, &mut results[block * len..(block + 1) * len])
                    } else {
                        let at = ((n * blocks + block) * height + rows.start) * width * b;
                        let residual = self.residual.map(|r| r.part(at..at + len));
                        // SAFETY: tasks write different rows of different planes.
                        (residual, unsafe { self.y.slice(at..at + len) })
                    };
                    let filters = Filters { weights: self.filters, bias: self.bias, block };
                    self.depthwise.rows((&part_window, 0..rows.len()), plane, residual, y, filters);
                }
            }
            if let Some(after) = &self.after {
                let out = after.conv.problem.out_channels().div_ceil(b);
                let size = [rows.len(), width];
                let window =
                    Window { input: size, output: size, ..after.conv.tiled.window.clone() };
                let pixels = window.pixels();
                let first = (n * out * height + rows.start) * width * b;
                let to = Place::of_f32(first, height * width);
                let x = &results[..blocks * pixels * b];
                let pairs = 0..out.div_ceil(NB);
                after.run((x, &window), (0..pixels, pairs), (&self.y, to), self.residual, copy);
            }
            there = wanted;
        }
    }

    /// Makes the lines `wanted` of the input of the depthwise convolution, of some pairs of blocks,
    /// `blocks` in all, where the lines `there` are in memory already.
    fn fill(
        &self,
        before: &Tiles<'_>,
        (x, pairs): (&[f32], Range<usize>),
        blocks: usize,
        (there, wanted): (&Range<usize>, &Range<usize>),
        lines: &mut [f32],
        copy: &mut [f32],
    ) {
        let (width, b) = (self.depthwise.window.input[1], self.depthwise.isa.lanes());
        let line = width * b;
        if wanted.start < there.end {
            let kept = (wanted.start - there.start) * line..there.len() * line;
            for plane in lines.chunks_exact_mut(self.cut.read * line).take(blocks) {
                plane.copy_within(kept.clone(), 0);
            }
        }
        let fresh = wanted.start.max(there.end)..wanted.end;
        if fresh.is_empty() {
            return;
        }
        let first = (fresh.start - wanted.start) * line;
        let to = Place::of_f32(first, self.cut.read * width);
        let pixels = fresh.start * width..fresh.end * width;
        let window = &before.conv.tiled.window;
        before.run((x, window), (pixels, pairs), (&SharedMut::new(lines), to), None, copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(window: &Window, pairs: usize, threads: usize, beside: [bool; 2]) -> Work<'_> {
        Work { window, pairs, lanes: 16, batch: 1, threads, beside }
    }

    fn window(input: usize, kernel: usize, stride: usize) -> Window {
        let output = (input - 1) / stride + 1;
        let both = |n: usize| [n, n];
        let pad = both(kernel / 2);
        let (input, output) = (both(input), both(output));
        Window::new(input, output, both(kernel), both(stride), [1, 1], pad).unwrap()
    }

    /// MobileNetV2's layers, with 1 MiB of cache.
    #[test]
    fn threads_have_rows_of_their_own_where_few_are_computed_twice() {
        let cut = |size, stride, channels: usize, threads, beside| {
            let window = window(size, 3, stride);
            Cut::new(&work(&window, channels.div_ceil(32), threads, beside), 1 << 20)
        };
        let all = [true, true];
        // Rows of all channels where a band of them exceeds the cache, else the band.
        let expected = Cut { bands: 1, parts: 1, rows: 4, read: 9 };
        assert_eq!(cut(112, 2, 96, 1, all), Some(expected));
        let expected = Cut { bands: 2, parts: 2, rows: 14, read: 16 };
        assert_eq!(cut(28, 1, 192, 2, all), Some(expected));
        let expected = Cut { bands: 2, parts: 2, rows: 7, read: 9 };
        assert_eq!(cut(14, 1, 576, 2, all), Some(expected));
        // Two threads would compute a fifth of the lines twice, or more.
        assert_eq!(cut(7, 1, 960, 2, all), None);
        let expected = Cut { bands: 1, parts: 8, rows: 7, read: 7 };
        assert_eq!(cut(7, 1, 960, 2, [true, false]), Some(expected));
        assert_eq!(cut(14, 1, 576, 8, all), None);
        // Nothing is computed twice where the input is there.
        assert!(cut(14, 1, 576, 8, [false, true]).is_some());
    }

    #[test]
    fn no_cut_reads_more_lines_than_there_is_memory_for() {
        for (size, kernel, stride) in [(9, 3, 1), (9, 3, 2), (17, 5, 1), (30, 1, 3), (40, 7, 2)] {
            let window = window(size, kernel, stride);
            for cache in [0, 3, 10 << 10, 100 << 10, 1 << 20] {
                for threads in [1, 2, 3, 8] {
                    for beside in [[true, false], [false, true], [true, true]] {
                        let work = work(&window, 5, threads, beside);
                        let Some(cut) = Cut::new(&work, cache) else { continue };
                        let height = window.output[0];
                        assert!((1..=height).contains(&cut.bands) && cut.rows > 0);
                        assert!((1..=5).contains(&cut.parts));
                        for band in (0..cut.bands).map(|band| part_of(band, cut.bands, height)) {
                            for start in band.clone().step_by(cut.rows) {
                                let rows = start..band.end.min(start + cut.rows);
                                assert!(window.of_rows(rows).1.len() <= cut.read, "{work:?}");
                            }
                            // What is left for the parts to keep lines of.
                            let once = band.len() <= cut.rows;
                            assert!(cut.parts == 1 || once || !beside[1], "{work:?}");
                        }
                    }
                }
            }
        }
    }
}

//! What direct, pointwise and first-layer convolutions share, and the phases of transposed ones:
//! tasks, and the loops around the register tile.
//!
//! ```text
//! y[n, o, p] = act(bias[o] + residual[n, o, p] + sum over taps t, channels c of x[n, c, at(p, t)] w[o, c, t])
//! ```
//! They differ in what a tile [`Reads`], which their files decide. Each register tile (see
//! `nchwc/tile.rs`) computes where the taps of its pixels lie, or looks it up in a table of
//! offsets, made once for each block of pixels.
//!
//! Loops, outermost first: image and block of pixels (a task; its input stays in the second-level
//! cache) / pair of output channel blocks (its weights stay in the first level) / tile / input
//! channel block / tap / channel. The sum over taps and channels runs in one fixed order: the
//! result does not depend on tasks.

mod task;
mod weights;

use super::finish::{Finish, RUN};
use super::format::Format;
use super::image::PaddedImage;
use super::pairs::PairImage;
use super::prefetch;
use super::tile::{NB, tile_pixels};
use super::window::Window;
use crate::algorithm;
use crate::choose::Request;
use crate::cost;
use crate::post_ops::Residual;
use plutino_cpu::Par;
use plutino_cpu::activation::Activation;
use plutino_cpu::par::{SharedMut, part_of, stop};
use plutino_cpu::simd::{Isa, LINE, Pairs};
use std::ops::Range;
pub(super) use task::Place;
use task::{OfPairs, Task};
pub(super) use weights::{ConvInput, DirectWeights};

/// Share of the peak that tiles reach.
pub(super) const SHARE: f64 = 0.8;

/// Bytes of input that a task works through: half of a 512 KiB second-level cache.
const TASK_INPUT: usize = 256 << 10;

/// Tiles of a thread, where each has pixels of its own, at least; with fewer, each has output
/// channels of its own.
const LEAST_TILES: usize = 8;

/// Copies lie in the same scratch memory as tables.
const F32_OF_ISIZE: usize = size_of::<isize>() / size_of::<f32>();

/// Multiply-adds of a task between two looks whether it is to end: below a millisecond.
pub(super) const LOOK: usize = 4 << 20;

/// A convolution with its tasks cut: everything is decided.
#[derive(Debug)]
pub(super) struct Tiled {
    isa: Isa,
    pub(super) window: Window,
    finish: Finish,
    cut: Cut,
    /// Pairs of output blocks of a task.
    task_pairs: usize,
    reads: Reads,
    spread: Option<Spread>,
    /// What multiplies pairs of bf16, where weights and what is read are such.
    pairs: Option<Pairs>,
    /// How the output lies.
    output: Format,
}

/// How the pixels of a plane are cut into tasks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Parts of a plane of the output.
    pub(super) tasks: usize,
    /// Output pixels of a part at most.
    pub(super) pixels: usize,
    /// Pixels whose input stays in the second-level cache.
    pub(super) fitting: usize,
    /// Tasks that keep all threads busy.
    pub(super) wanted: usize,
}

impl Cut {
    /// For `bytes` of input for each output pixel.
    pub(super) fn new(
        isa: Isa,
        window: &Window,
        bytes: usize,
        batch: usize,
        threads: usize,
    ) -> Self {
        let pixels = window.pixels();
        // At least 8 tiles a task, so that weights are reused; a multiple of the tile.
        let mr = tile_pixels(isa);
        let fitting = (TASK_INPUT / bytes.max(1)).clamp(8 * mr, 1024) / mr * mr;
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let tiles = pixels.div_ceil(mr);
        let mut tasks = pixels.div_ceil(fitting).max(1);
        // As many for each thread, unless that leaves few tiles for each weight.
        if !(batch * tasks).is_multiple_of(threads) && tiles >= LEAST_TILES * threads {
            tasks = tasks.next_multiple_of(threads);
        }
        Self { tasks, pixels: tiles.div_ceil(tasks) * mr, fitting, wanted }
    }
}

/// Estimated cycles: four fifths of the peak, and weights that are read for each image.
pub(super) fn cycles(request: &Request<'_>) -> f64 {
    cost::by_sums(&request.problem, request.isa, SHARE)
}

/// The pixels of a larger plane that a convolution computes: rows and columns from `first` on,
/// `step` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spread {
    /// Height and width of the plane.
    pub(super) plane: [usize; 2],
    pub(super) first: [usize; 2],
    pub(super) step: [usize; 2],
}

impl Spread {
    /// Which pixel of the plane the one in this row and column is.
    #[inline(always)]
    pub(super) fn pixel(&self, at: [usize; 2]) -> usize {
        let [row, column] = [0, 1].map(|axis| self.first[axis] + at[axis] * self.step[axis]);
        row * self.plane[1] + column
    }

    /// Whether the pixels of a window's output lie in the plane.
    fn holds(&self, window: &Window) -> bool {
        (0..2).all(|axis| {
            let last = (window.output[axis] - 1).checked_mul(self.step[axis]);
            last.and_then(|last| last.checked_add(self.first[axis]))
                .is_some_and(|last| last < self.plane[axis])
        })
    }
}

/// What tasks read.
#[derive(Debug)]
pub(super) enum Reads {
    /// The input, in blocks: of f32, or of bf16 where such are multiplied.
    Input,
    /// A plain image, where no window reaches outside.
    Image,
    /// A copy of an image, which all threads make together: images one after the other.
    Whole(PaddedImage),
    /// A copy of its own, of the part of an image that it needs.
    Part(PaddedImage),
    /// A copy of its own, of the pixels under a 1x1 window with strides, one after the other: what
    /// lies between them would take as much cache as they do. How many elements it holds at most.
    Pixels(usize),
    /// The same, made pairs of bf16, for any stride.
    Words(PairImage, usize),
    /// A copy of an image as pairs of bf16, which all threads make together: images one after the
    /// other. How many elements it holds.
    WholeWords(PairImage, usize),
}

impl Reads {
    /// The window on what is read.
    #[inline]
    fn window<'a>(&'a self, input: &'a Window) -> &'a Window {
        match self {
            Self::Input
            | Self::Image
            | Self::Pixels(_)
            | Self::Words(..)
            | Self::WholeWords(..) => input,
            Self::Whole(image) | Self::Part(image) => &image.window,
        }
    }

    /// Whether channels are planes.
    #[inline]
    fn is_plain(&self) -> bool {
        matches!(self, Self::Image | Self::Whole(_) | Self::Part(_))
    }
}

/// The tensors of one run.
pub(super) struct Operands<'a> {
    pub(super) x: &'a [f32],
    /// What channels are multiplied by, of each image, where pixels are copied as words.
    pub(super) factors: Option<&'a [f32]>,
    pub(super) y: &'a SharedMut<'a, f32>,
    pub(super) weights: DirectWeights<&'a [f32]>,
    /// One number for each output channel, padded to whole pairs of blocks.
    pub(super) bias: &'a [f32],
    pub(super) residual: Option<Residual<'a>>,
}

/// Scratch memory of the threads: so many numbers each.
pub(super) struct Workers<'a> {
    pub(super) scratch: &'a SharedMut<'a, isize>,
    pub(super) len: usize,
}

impl Tiled {
    /// Cuts what is left of the tasks: where parts of planes are few, output channels.
    pub(super) fn new(
        isa: Isa,
        window: Window,
        (cut, reads): (Cut, Reads),
        out_channels: usize,
        batch: usize,
        activation: Option<Activation>,
    ) -> Self {
        let pairs = out_channels.div_ceil(NB * isa.lanes());
        // Parts of one image, or of all of them.
        let one = matches!(reads, Reads::Whole(_) | Reads::WholeWords(..));
        let together = if one { 1 } else { batch.max(1) };
        let tasks = together * cut.tasks;
        let task_pairs = pairs.div_ceil(cut.wanted.div_ceil(tasks)).max(1);
        let finish = Finish::new(activation);
        let (spread, pairs, output) = (None, None, Format::F32);
        Self { isa, window, finish, cut, task_pairs, reads, spread, pairs, output }
    }

    /// Of pairs of bf16, which this multiplies.
    pub(super) fn of(self, pairs: Pairs) -> Self {
        Self { pairs: Some(pairs), ..self }
    }

    /// Writes pairs of bf16, if it says so; of a single group.
    pub(super) fn writing(self, output: Format) -> Self {
        Self { output, ..self }
    }

    /// Of an input in blocks that is read where it lies: so many channels in all of it, and in all
    /// of the output.
    pub(super) fn in_place(
        isa: Isa,
        window: Window,
        [inp, out]: [usize; 2],
        batch: usize,
        activation: Option<Activation>,
        threads: usize,
    ) -> Self {
        let bytes = inp * 4 * window.stride[0] * window.stride[1];
        let cut = Cut::new(isa, &window, bytes, batch, threads.max(1));
        Self::new(isa, window, (cut, Reads::Input), out, batch, activation)
    }

    /// Writes pixels of a larger plane. Panics where they do not lie in it.
    pub(super) fn spread(self, spread: Spread) -> Self {
        assert!(spread.holds(&self.window), "pixels outside the plane");
        Self { spread: Some(spread), ..self }
    }

    /// Pixels of a plane of the output.
    #[inline]
    pub(super) fn out_pixels(&self) -> usize {
        self.spread.map_or(self.window.pixels(), |s| s.plane[0] * s.plane[1])
    }

    /// Numbers of workspace that a run on `threads` threads needs: for each a table of offsets, and
    /// copies of plain input.
    pub(super) fn scratch(&self, threads: usize) -> usize {
        let copy = match &self.reads {
            Reads::Whole(image) => image.len().div_ceil(F32_OF_ISIZE),
            Reads::WholeWords(_, len) => len.div_ceil(F32_OF_ISIZE),
            _ => 0,
        };
        threads * self.worker_len() + copy
    }

    /// Scratch memory of a thread, in whole lines of cache.
    pub(super) fn worker_len(&self) -> usize {
        let copy = match &self.reads {
            Reads::Part(image) => image.len().div_ceil(F32_OF_ISIZE),
            Reads::Pixels(len) | Reads::Words(_, len) => len.div_ceil(F32_OF_ISIZE),
            _ => 0,
        };
        (self.table_len() + copy + self.run_len()).next_multiple_of(LINE / size_of::<isize>())
    }

    /// Whether results of a run of pixels are finished in memory of the thread's own: on their way
    /// to pixels that are spread, or to bf16.
    #[inline]
    fn finishes_apart(&self) -> bool {
        let late = self.finish.run_length() < usize::MAX;
        self.spread.is_some() || (late && self.output != Format::F32)
    }

    /// Such results.
    fn run_len(&self) -> usize {
        let results = NB * RUN * self.isa.lanes();
        if self.finishes_apart() { results.div_ceil(F32_OF_ISIZE) } else { 0 }
    }

    fn table_len(&self) -> usize {
        let taps = self.window.taps();
        match self.reads {
            Reads::Image | Reads::Whole(_) | Reads::Part(_) => self.cut.pixels + taps,
            Reads::Pixels(_) | Reads::Words(..) => 0,
            Reads::Input if self.window.is_pointwise() => 0,
            Reads::Input | Reads::WholeWords(..) => self.cut.pixels * taps,
        }
    }

    /// Computes all images. `x` is blocked or plain as the weights were packed for, `y` and
    /// `residual` are blocked; `bias` is padded (see [`pad_bias`]).
    ///
    /// # Panics
    /// Where a slice is too short: [`Convolution::run`](crate::Convolution::run) checks lengths
    /// before.
    pub(super) fn run(
        &self,
        operands: algorithm::Operands<'_>,
        weights: DirectWeights<&[f32]>,
        scratch: &mut [isize],
        par: &Par,
    ) {
        let algorithm::Operands { x, bias, factors, residual, y } = operands;
        assert!(scratch.len() >= self.scratch(par.threads()), "scratch memory of a convolution");
        let len = self.worker_len();
        let (workers, rest) = scratch.split_at_mut(par.threads() * len);
        let (y, scratch) = (SharedMut::new(y), SharedMut::new(workers));
        let run = self.begin(
            Operands { x, factors, y: &y, weights, bias, residual },
            Workers { scratch: &scratch, len },
        );
        let [images, layers, places] = run.grid;
        if let Reads::Whole(image) = &self.reads {
            let copy: &mut [f32] = bytemuck::cast_slice_mut(rest);
            for n in 0..images {
                image.copy_whole(run.image(n), copy, par);
                let copy = &copy[..image.len()];
                par.run_grid([1, layers, places], |worker, [_, layer, place]| {
                    run.task(worker, copy, [n, layer, place]);
                });
            }
        } else if let (Reads::WholeWords(image, len), Some(pairs)) = (&self.reads, self.pairs) {
            let copy: &mut [f32] = bytemuck::cast_slice_mut(rest);
            for n in 0..images {
                let (x, copy) = (run.image(n), &mut copy[..*len]);
                image.copy_whole(pairs, self.window.input_pixels(), x, weights.groups, copy, par);
                let copy = &*copy;
                par.run_grid([1, layers, places], |worker, [_, layer, place]| {
                    run.task(worker, copy, [n, layer, place]);
                });
            }
        } else {
            par.run_grid(run.grid, |worker, cell| run.task(worker, run.image(cell[0]), cell));
        }
    }

    /// Computes a task, some pairs of output blocks between two looks whether it is to end.
    fn compute(&self, mut task: Task<'_>) {
        let weights = &task.operands.weights;
        let pair = task.pixels.len() * weights.channels[1] * weights.taps * NB * self.isa.lanes();
        for pairs in stop::parts(task.pairs.clone(), LOOK / pair.max(1)) {
            let task = task.of_pairs(pairs);
            match self.pairs {
                Some(unit) => unit.run(OfPairs::<true>(task)),
                None => self.isa.run(OfPairs::<false>(task)),
            }
        }
    }

    /// Whether what tiles read is not in cache: images, or a copy of a whole one. Not so a task's
    /// own copy.
    fn reads_ahead(&self, images: &[f32], copy: &[f32]) -> bool {
        match self.reads {
            Reads::Input => prefetch::pays(images.len()),
            Reads::WholeWords(..) => prefetch::pays(copy.len()),
            _ => false,
        }
    }

    /// Whether each output pixel is made of the input pixel of the same number, read where it lies
    /// or copied as words: [`Tiled::pixels`].
    pub(super) fn is_pointwise(&self) -> bool {
        let reads = match self.reads {
            Reads::Input => self.pairs.is_none(),
            Reads::Words(..) => self.output == Format::F32,
            _ => false,
        };
        reads && self.window.is_pointwise() && self.spread.is_none()
    }

    /// f32 of memory for a copy of so many input pixels.
    pub(super) fn copy_len(&self, pixels: usize) -> usize {
        match &self.reads {
            Reads::Words(image, _) => image.len(pixels, 1),
            _ => 0,
        }
    }

    /// Computes some pixels for some pairs of output blocks by itself, into `y` of `operands`: of
    /// one image of such a window, or a part of one, `operands.x`, by a convolution that
    /// [is pointwise](Self::is_pointwise).
    ///
    /// # Panics
    /// Where a slice is too short.
    pub(super) fn pixels(
        &self,
        operands: &Operands<'_>,
        window: &Window,
        (pixels, pairs): (Range<usize>, Range<usize>),
        to: Place,
        copy: &mut [f32],
    ) {
        let Operands { x, weights, bias, .. } = operands;
        let block = self.isa.lanes();
        let [out, inp] = weights.channels;
        let inp = match &self.reads {
            Reads::Words(image, _) => {
                assert_eq!(inp, image.channels.div_ceil(2), "weights of other channels");
                image.channels
            }
            _ => inp,
        };
        let words = weights.input.is_of_pairs();
        assert!(
            self.is_pointwise()
                && window.is_pointwise()
                && weights.groups == 1
                && weights.taps == 1
        );
        assert_eq!((words, words), (self.pairs.is_some(), !matches!(self.reads, Reads::Input)));
        assert_eq!(weights.block, block, "weights are packed for another instruction set");
        assert_eq!(x.len(), inp.div_ceil(block) * block * window.pixels());
        assert!(pixels.end <= window.pixels() && pairs.end <= out.div_ceil(NB * block));
        assert!(bias.len() >= pairs.end * NB * block && copy.len() >= self.copy_len(pixels.len()));
        self.compute(Task {
            conv: self,
            operands,
            window,
            x,
            factors: None,
            to,
            group: 0,
            first_read: pixels.start,
            pixels,
            pairs,
            first_reader: self.reads_ahead(x, &[]),
            table: &mut [],
            copy,
            run: &SharedMut::new(&mut []),
        });
    }

    /// A run, whose tasks are up to the caller. Panics as [`Tiled::run`] does.
    pub(super) fn begin<'a>(&'a self, operands: Operands<'a>, workers: Workers<'a>) -> Run<'a> {
        let Operands { x, factors, y, weights, bias, residual } = &operands;
        let block = self.isa.lanes();
        let [out, inp] = weights.channels;
        let groups = weights.groups;
        let blocks = (groups * out).div_ceil(block);
        let image_of = |format: Format| format.planes(blocks) * block * self.out_pixels();
        let image = image_of(self.output);
        let in_image = match weights.input {
            ConvInput::Blocked => {
                (groups * inp).div_ceil(block) * block * self.window.input_pixels()
            }
            ConvInput::Plain => inp * self.window.input_pixels(),
            ConvInput::Pairs => match &self.reads {
                Reads::Words(image, _) | Reads::WholeWords(image, _) => {
                    assert_eq!(inp, image.channels.div_ceil(2), "weights of other channels");
                    groups * image.planes() * block * self.window.input_pixels()
                }
                _ => (groups * inp).div_ceil(block) * block * self.window.input_pixels(),
            },
            ConvInput::PlainPairs => match &self.reads {
                Reads::Whole(copy) | Reads::Part(copy) => {
                    copy.channels() * self.window.input_pixels()
                }
                _ => unreachable!("words are a copy of planes"),
            },
        };
        let batch = y.len() / image;
        let pairs = out.div_ceil(NB * block);
        assert_eq!(weights.block, block, "weights are packed for another instruction set");
        assert_eq!(weights.taps, self.window.taps(), "weights are packed for another window");
        let words = matches!(self.reads, Reads::Words(..) | Reads::WholeWords(..));
        let of_pairs = weights.input.is_of_pairs();
        assert_eq!(of_pairs, self.pairs.is_some(), "weights are packed for another precision");
        assert!(of_pairs || !words, "weights are packed for another precision");
        assert!(groups == 1 || self.output == Format::F32, "bf16 of several groups");
        assert!(of_pairs || self.output == Format::F32, "bf16 without what makes it");
        let plain = weights.input.is_plain();
        assert_eq!(self.reads.is_plain(), plain, "weights are packed for another layout");
        if let Reads::Whole(copy) | Reads::Part(copy) = &self.reads {
            assert_eq!(copy.planes(), inp, "weights are packed for other channels");
        }
        assert!(
            y.len() == batch * image && x.len() == batch * in_image,
            "lengths of a convolution"
        );
        assert!(bias.len() >= groups * pairs * NB * block, "bias is not padded");
        let fits = |r: Residual<'_>| r.data.len() == batch * image_of(r.format);
        assert!(residual.is_none_or(fits), "length of a residual");
        assert!(residual.is_none_or(|r| of_pairs || r.format == Format::F32), "a residual of bf16");
        assert!(residual.is_none() || self.spread.is_none(), "a residual of spread pixels");
        let scaled = matches!(self.reads, Reads::Words(..));
        let of_image = in_image / self.window.input_pixels();
        let fits = |f: &[f32]| scaled && f.len() == batch * of_image;
        assert!(factors.is_none_or(fits), "factors of a convolution");
        assert!(workers.len >= self.worker_len(), "scratch memory of a worker");
        let pair_tasks = pairs.div_ceil(self.task_pairs);
        let grid = [batch, groups * pair_tasks, self.cut.tasks];
        Run { conv: self, operands, workers, in_image, blocks, pair_tasks, grid }
    }
}

/// A bias for [`Tiled::run`]: zeros where there is none, padded to whole pairs of output blocks of
/// each group.
pub(super) fn pad_bias(bias: Option<&[f32]>, groups: usize, out: usize, block: usize) -> Vec<f32> {
    let padded = out.next_multiple_of(NB * block);
    let mut all = vec![0.0; groups * padded]; // bounded: as many as weights
    if let Some(bias) = bias {
        for (to, from) in all.chunks_exact_mut(padded).zip(bias.chunks(out)) {
            to[..from.len()].copy_from_slice(from);
        }
    }
    all
}

/// The tasks of one run.
pub(super) struct Run<'a> {
    conv: &'a Tiled,
    operands: Operands<'a>,
    workers: Workers<'a>,
    /// Elements of an image of the input.
    in_image: usize,
    /// Blocks of an image of the output.
    blocks: usize,
    /// Parts of the pairs of output blocks of a group.
    pair_tasks: usize,
    /// Tasks: images, parts of the output channels, parts of the pixels.
    pub(super) grid: [usize; 3],
}

impl Run<'_> {
    /// One image of the input.
    #[inline]
    pub(super) fn image(&self, n: usize) -> &[f32] {
        &self.operands.x[n * self.in_image..(n + 1) * self.in_image]
    }

    /// A task; `x` is the image or the copy of all of it. No two may run under the same worker's
    /// number at a time, and none twice.
    pub(super) fn task(&self, worker: usize, x: &[f32], [n, layer, pixel_task]: [usize; 3]) {
        let conv = self.conv;
        let out = self.operands.weights.channels[0];
        let (pixels, pairs) = (conv.window.pixels(), out.div_ceil(NB * conv.isa.lanes()));
        let (group, pair_task) = (layer / self.pair_tasks, layer % self.pair_tasks);
        let first = pair_task * conv.task_pairs;
        let len = self.workers.len;
        // SAFETY: no two tasks run under the same worker's number at the same time.
        let own = unsafe { self.workers.scratch.slice(worker * len..(worker + 1) * len) };
        let (table, rest) = own.split_at_mut(conv.table_len());
        let (run, rest) = rest.split_at_mut(conv.run_len());
        let mut copy = bytemuck::cast_slice_mut(rest);
        let (x, range, first_read) = match &conv.reads {
            Reads::Part(image) => {
                let copy = std::mem::take(&mut copy);
                let range = image.copy_part(x, pixel_task, copy);
                (&*copy, range, 0)
            }
            _ => {
                let mr = tile_pixels(conv.isa);
                let tiles = part_of(pixel_task, conv.cut.tasks, pixels.div_ceil(mr));
                (x, tiles.start * mr..(tiles.end * mr).min(pixels), tiles.start * mr)
            }
        };
        let block = group * (out / conv.isa.lanes()) + first * NB;
        let skipped = if conv.spread.is_some() { 0 } else { range.start };
        let plane = conv.out_pixels();
        let start = |format: Format| {
            (format.plane_of(n, self.blocks, block) * plane + skipped) * conv.isa.lanes()
        };
        let to = Place { first: start(Format::F32), words: start(Format::of(true)), plane };
        let factors = self.operands.factors.map(|f| {
            let len = self.in_image / conv.window.input_pixels();
            &f[n * len..(n + 1) * len]
        });
        conv.compute(Task {
            conv,
            operands: &self.operands,
            window: &conv.window,
            x,
            factors,
            to,
            group,
            pixels: range,
            first_read,
            pairs: first..(first + conv.task_pairs).min(pairs),
            first_reader: conv.reads_ahead(self.operands.x, x),
            table,
            copy,
            run: &SharedMut::new(bytemuck::cast_slice_mut(run)),
        });
    }
}

//! Weights of direct convolution: packed, in the order in which they are read.

use super::super::tile::NB;
use plutino_cpu::halves::nearest_pair;
use plutino_cpu::simd::{Isa, Simd, Vectorized};
use plutino_products::gemm::Strided;
use plutino_tensor::{AlignedBuf, FloatSource, Floats, TensorError, alloc};
use std::ops::Range;

/// Lines of weights that are packed together: sixteen values of a row are a line of cache.
const LINES: usize = 16;

/// How the input of a convolution lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ConvInput {
    /// In channel blocks.
    Blocked,
    /// Plain NCHW, for the first layer with its few channels: at most
    /// [`FEW`](super::super::first_layer::FEW).
    Plain,
    /// In channel blocks, of which pairs of bf16 are made: what are called channels are pairs.
    Pairs,
    /// Plain NCHW, of which pairs are made.
    PlainPairs,
}

impl ConvInput {
    /// Whether channels are planes.
    pub(in super::super) fn is_plain(self) -> bool {
        matches!(self, Self::Plain | Self::PlainPairs)
    }

    /// Whether two of them are one of what are called channels.
    pub(in super::super) fn is_of_pairs(self) -> bool {
        matches!(self, Self::Pairs | Self::PlainPairs)
    }

    /// Channels of a block of the input as the kernel sees it.
    #[inline]
    pub(super) fn block(self, block: usize) -> usize {
        if self.is_plain() { 1 } else { block }
    }
}

/// Weights in the order in which the kernel reads them: `[group][pair of output blocks][input
/// block][tap][input channel of the block][2 b output channels]`.
///
/// `D` is where they lie: memory of their own, or borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectWeights<D = AlignedBuf> {
    data: D,
    /// Output channels and input channels of a group.
    pub(in super::super) channels: [usize; 2],
    pub(in super::super) groups: usize,
    pub(in super::super) taps: usize,
    pub(in super::super) block: usize,
    pub(in super::super) input: ConvInput,
}

impl DirectWeights {
    /// Packs `weight`, `(groups * out, in, taps)` row-major, for vectors of `block` f32. A
    /// convolution with groups needs `in` and `out` (channels of one group) to be multiples of
    /// `block`.
    ///
    /// # Errors
    /// Where the sizes do not fit each other, or no memory is left.
    pub(crate) fn pack(
        weight: &mut dyn FloatSource,
        groups: usize,
        [out, inp]: [usize; 2],
        taps: usize,
        block: usize,
        input: ConvInput,
    ) -> Result<Self, TensorError> {
        let whole = groups == 1 || (out.is_multiple_of(block) && inp.is_multiple_of(block));
        let readable = !input.is_plain() || (groups == 1 && inp <= super::super::first_layer::FEW);
        let expected = [groups, out, inp, taps].iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        if !whole || !readable || expected != Some(weight.len()) || weight.is_empty() || block == 0
        {
            return Err(TensorError::invalid(
                "weights of a blocked convolution do not fit its channels",
            ));
        }
        let width = NB * block;
        let pairs = out.div_ceil(width);
        let len = (groups * pairs).checked_mul(inp * taps * width * 4);
        let len = len.ok_or_else(|| TensorError::invalid("weights exceed memory"))?;
        let mut data = AlignedBuf::resident(len)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        let in_block = input.block(block);
        let depth = inp * taps;
        for (gp, panel) in packed.chunks_exact_mut(depth * width).enumerate() {
            let (g, first) = (gp / pairs, gp % pairs * width);
            let rows = out.min(first + width) - first;
            let start = (g * out + first) * depth;
            let weight = weight.part(start..start + rows * depth)?;
            if taps == 1 {
                let rows = Strided::left(weight, (rows, depth), (depth, 1));
                rows.pack_panels(Isa::best(), width, panel);
                continue;
            }
            // Some lines at a time, so that they stay in the first-level cache while a row after
            // the other fills them.
            for k0 in (0..depth).step_by(LINES) {
                let lines: [usize; LINES] = std::array::from_fn(|k| {
                    let (c, tap) = ((k0 + k).min(depth - 1) / taps, (k0 + k) % taps);
                    let (c0, of_block) = (c - c % in_block, in_block.min(inp - (c - c % in_block)));
                    (c0 * taps + tap * of_block + c - c0) * width
                });
                let lines = &lines[..LINES.min(depth - k0)];
                for (o, row) in weight.chunks_exact(depth).enumerate() {
                    let row = row.part(k0..k0 + lines.len());
                    for (k, line) in lines.iter().enumerate() {
                        panel[line + o] = row.get(k);
                    }
                }
            }
        }
        Ok(Self { data, channels: [out, inp], groups, taps, block, input })
    }

    /// Packs the weights as pairs of input channels, each number the nearest bf16; `inp` counts
    /// numbers.
    ///
    /// # Errors
    /// As [`DirectWeights::pack`].
    pub(crate) fn pack_pairs(
        weight: &mut dyn FloatSource,
        groups: usize,
        [out, inp]: [usize; 2],
        taps: usize,
        block: usize,
        input: ConvInput,
    ) -> Result<Self, TensorError> {
        let expected = [groups, out, inp, taps].iter().try_fold(1usize, |a, &b| a.checked_mul(b));
        if expected != Some(weight.len()) {
            return Err(TensorError::invalid("weights of a convolution do not fit its channels"));
        }
        let rows = groups * out;
        let mut words = WordRows { weight, rows, channels: inp, taps, words: Vec::new() };
        Self::pack(&mut words, groups, [out, inp.div_ceil(2)], taps, block, input)
    }

    #[inline]
    pub(in super::super) fn as_slice(&self) -> &[f32] {
        bytemuck::cast_slice(self.data.as_bytes())
    }

    #[inline]
    pub(in super::super) fn view(&self) -> DirectWeights<&[f32]> {
        self.with(self.as_slice())
    }

    /// The same weights in other memory.
    #[inline]
    pub(in super::super) fn with<D>(&self, data: D) -> DirectWeights<D> {
        let Self { data: _, channels, groups, taps, block, input } = *self;
        DirectWeights { data, channels, groups, taps, block, input }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }
}

impl<'a> DirectWeights<&'a [f32]> {
    #[inline]
    pub(super) fn as_slice(self) -> &'a [f32] {
        self.data
    }
}

/// Rows of words of two bf16, made of rows of numbers: of two input channels, tap by tap.
struct WordRows<'a> {
    weight: &'a mut dyn FloatSource,
    rows: usize,
    /// Of numbers.
    channels: usize,
    taps: usize,
    /// Those that were made last.
    words: Vec<f32>,
}

impl FloatSource for WordRows<'_> {
    fn len(&self) -> usize {
        self.rows * self.channels.div_ceil(2) * self.taps
    }

    /// Of whole rows.
    fn part(&mut self, range: Range<usize>) -> Result<Floats<'_>, TensorError> {
        let Self { weight, channels, taps, words, .. } = self;
        let (numbers, row) = (*channels * *taps, channels.div_ceil(2) * *taps);
        let rows = range.start / row.max(1)..range.end / row.max(1);
        let weight = weight.part(rows.start * numbers..rows.end * numbers)?;
        let len = rows.len() * row;
        if words.len() < len {
            *words = alloc::filled(len, 0.0f32)?;
        }
        let words = &mut words[..len];
        let sizes = [*channels, *taps];
        Isa::best().run(MakeWords { weight, sizes, words: &mut *words });
        Ok(Floats::from(&*words))
    }
}

/// Makes rows of words of rows of numbers: plain loops, which the compiler turns into vectors.
struct MakeWords<'a> {
    weight: Floats<'a>,
    /// Channels and taps of a row of numbers.
    sizes: [usize; 2],
    words: &'a mut [f32],
}

impl Vectorized for MakeWords<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { weight, sizes: [channels, taps], words } = self;
        let (numbers, row) = (channels * taps, channels.div_ceil(2) * taps);
        for (numbers, words) in weight.chunks_exact(numbers).zip(words.chunks_exact_mut(row)) {
            let (pairs, last) = words.split_at_mut(channels / 2 * taps);
            let both = numbers.chunks_exact(2 * taps);
            if taps == 1 {
                for (both, word) in both.zip(pairs) {
                    *word = nearest_pair(both.get(0), both.get(1));
                }
            } else {
                for (both, words) in both.zip(pairs.chunks_exact_mut(taps)) {
                    let (lower, upper) = both.split_at(taps);
                    for (tap, word) in words.iter_mut().enumerate() {
                        *word = nearest_pair(lower.get(tap), upper.get(tap));
                    }
                }
            }
            for (tap, word) in last.iter_mut().enumerate() {
                *word = nearest_pair(numbers.get((channels - 1) * taps + tap), 0.0);
            }
        }
    }
}

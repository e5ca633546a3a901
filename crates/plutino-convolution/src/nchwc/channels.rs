//! Channels of several tensors in another order: concatenations, shuffles and splits of channel
//! blocks in one pass.
//!
//! A block of the output takes its lanes from a few blocks of the inputs: a vector is loaded from
//! each of them and lanes are picked from it, pixel by pixel.

use plutino_cpu::Par;
use plutino_cpu::par::SharedMut;
use plutino_cpu::simd::{Isa, Simd, Vectorized};

/// Pixels of a task.
const GRAIN: usize = 2048;

/// Blocks that one of the output takes lanes from, at most: one for each lane.
const MOST: usize = 16;

/// One output, bound to the channels that it takes and to where these lie.
#[derive(Debug)]
pub struct ChannelGather {
    isa: Isa,
    /// Blocks of an image, for each input.
    inputs: Vec<usize>,
    blocks: Vec<Block>,
    batch: usize,
    /// Of a plane.
    pixels: usize,
}

/// A block of the output.
#[derive(Debug)]
struct Block {
    /// The input and its block that lanes come from.
    sources: Vec<(usize, usize)>,
    /// For each source, which lanes are its own: numbers for [`Simd::pick`], as bits. With a single
    /// one, the first are those of it and of itself once more; else the first are nothing.
    lanes: Vec<f32>,
}

impl Block {
    fn new(channels: &[(usize, usize)], block: usize) -> Self {
        let mut sources: Vec<(usize, usize)> =
            channels.iter().map(|&(input, channel)| (input, channel / block)).collect();
        sources.sort_unstable();
        sources.dedup();
        let mut lanes = Vec::with_capacity(sources.len() * block);
        for (number, source) in sources.iter().enumerate() {
            for lane in 0..block {
                // Surplus lanes may be anything.
                let (input, channel) = channels.get(lane).copied().unwrap_or_default();
                let own = (input, channel / block) == *source;
                let picked = match own {
                    true if number > 0 => block + channel % block,
                    true => channel % block,
                    // What the vectors before gave; with the second one, nothing before it was
                    // picked.
                    false if number == 1 => channel % block,
                    false => lane,
                };
                lanes.push(f32::from_bits(picked as u32));
            }
        }
        Self { sources, lanes }
    }
}

impl ChannelGather {
    /// An output of these channels, each an input's number and a channel of it. `inputs` are the
    /// channels of each; images have `pixels`. None where a channel does not exist.
    pub fn new(
        isa: Isa,
        inputs: &[usize],
        channels: &[(usize, usize)],
        batch: usize,
        pixels: usize,
    ) -> Option<Self> {
        let b = isa.lanes();
        let exist = channels.iter().all(|&(input, c)| inputs.get(input).is_some_and(|&n| c < n));
        let blocks = channels.chunks(b).map(|channels| Block::new(channels, b)).collect();
        (exist && b <= MOST).then(|| Self {
            isa,
            inputs: inputs.iter().map(|c| c.div_ceil(b)).collect(),
            blocks,
            batch,
            pixels,
        })
    }

    /// Writes the output; all tensors lie in blocks, surplus lanes become anything. `x` gives the
    /// inputs.
    ///
    /// # Panics
    /// Where slices have other lengths.
    pub fn run<'x>(&self, x: impl Fn(usize) -> &'x [f32] + Sync, y: &mut [f32], par: &Par) {
        let (b, pixels) = (self.isa.lanes(), self.pixels);
        assert_eq!(y.len(), self.batch * self.blocks.len() * pixels * b, "length of an output");
        for (i, blocks) in self.inputs.iter().enumerate() {
            assert_eq!(x(i).len(), self.batch * blocks * pixels * b, "length of input {i}");
        }
        let y = SharedMut::new(y);
        par.split_planes([self.batch, self.blocks.len(), pixels], GRAIN, |_, range| {
            let mut start = range.start;
            while start < range.end {
                let plane = start / pixels;
                let end = range.end.min((plane + 1) * pixels);
                let part = start - plane * pixels..end - plane * pixels;
                // SAFETY: tasks write different pixels.
                let to = unsafe { y.slice(start * b..end * b) };
                let (image, block) = (plane / self.blocks.len(), plane % self.blocks.len());
                let (block, mut sources) = (&self.blocks[block], [&[][..]; MOST]);
                for (source, &(input, block)) in sources.iter_mut().zip(&block.sources) {
                    let plane = (image * self.inputs[input] + block) * self.pixels;
                    *source = &x(input)[(plane + part.start) * b..(plane + part.end) * b];
                }
                gather(self.isa, sources, block, to);
                start = end;
            }
        });
    }
}

/// Some pixels of a block of an image, for whatever gives the inputs.
fn gather(isa: Isa, sources: [&[f32]; MOST], block: &Block, to: &mut [f32]) {
    isa.run(Gather { sources, count: block.sources.len(), lanes: &block.lanes, to });
}

struct Gather<'a> {
    sources: [&'a [f32]; MOST],
    count: usize,
    lanes: &'a [f32],
    to: &'a mut [f32],
}

impl Vectorized for Gather<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // A shuffle in two groups takes from two to four blocks; their lanes' numbers stay in
        // registers.
        match self.count {
            1 => self.run_for::<S, 1>(s),
            2 => self.run_for::<S, 2>(s),
            3 => self.run_for::<S, 3>(s),
            4 => self.run_for::<S, 4>(s),
            _ => self.run_for::<S, MOST>(s),
        }
    }
}

impl Gather<'_> {
    /// With N sources, or, where that is [`MOST`], with as many as there are.
    #[inline(always)]
    fn run_for<S: Simd, const N: usize>(self, s: S) {
        let count = if N == MOST { self.count } else { N };
        let mut lanes = [s.splat_i32(0); N];
        for i in 0..count {
            lanes[i] = s.as_i32(s.load(&self.lanes[i * S::LANES..]));
        }
        let len = self.to.len() / S::LANES * S::LANES;
        assert!(self.sources[..count].iter().all(|x| x.len() >= len), "pixels of a block");
        let mut sources = [self.to.as_ptr(); N];
        for i in 0..count {
            sources[i] = self.sources[i].as_ptr();
        }
        let to = self.to.as_mut_ptr();
        for at in (0..len).step_by(S::LANES) {
            // SAFETY: each source has `len` elements (asserted), and so has the output.
            unsafe {
                let mut v = s.load_ptr(sources[0].add(at));
                if N == 1 {
                    v = s.pick(lanes[0], v, v);
                }
                for i in 1..count {
                    v = s.pick(lanes[i], v, s.load_ptr(sources[i].add(at)));
                }
                s.store_ptr(v, to.add(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nchwc::{from_blocked, to_blocked};
    use plutino_reference::testkit::{on_every_machine, random};

    #[test]
    fn channels_come_from_where_they_belong() {
        let (inputs, pixels) = ([58, 7, 40], 83);
        let shuffled = |from: usize, len: usize| -> Vec<(usize, usize)> {
            (from..from + len).map(|i| if i % 2 == 0 { (0, i / 2) } else { (2, i / 2) }).collect()
        };
        for (batch, channels) in [
            (1, vec![(1, 3)]),
            (2, vec![]),
            (2, shuffled(0, 37)),
            (1, shuffled(37, 40)),
            (3, (0..58).rev().map(|c| (0, c)).collect()),
            // From everywhere: one block for each lane.
            (2, (0..50).map(|i| [(0, i * 23 % 58), (2, i * 17 % 40), (1, i % 7)][i % 3]).collect()),
        ] {
            let plain: Vec<Vec<f32>> =
                inputs.iter().map(|c| random(batch * c * pixels, *c as u64)).collect();
            let expected: Vec<f32> = (0..batch)
                .flat_map(|n| channels.iter().map(move |&c| (n, c)))
                .flat_map(|(n, (i, c))| &plain[i][(n * inputs[i] + c) * pixels..][..pixels])
                .copied()
                .collect();
            on_every_machine(
                |isa, par| {
                    let b = isa.lanes();
                    let len = |c: usize| batch * c.next_multiple_of(b) * pixels;
                    let blocked = |i: usize| {
                        let mut x = vec![f32::NAN; len(inputs[i])];
                        to_blocked(isa, &plain[i], &mut x, inputs[i], pixels, b, par);
                        x
                    };
                    let x = [0, 1, 2].map(blocked);
                    let mut y = vec![f32::NAN; len(channels.len())];
                    let gather = ChannelGather::new(isa, &inputs, &channels, batch, pixels);
                    gather.unwrap().run(|i| &x[i], &mut y, par);
                    let mut found = vec![0.0; batch * channels.len() * pixels];
                    from_blocked(isa, &y, &mut found, channels.len(), pixels, b, par);
                    found
                },
                |found| assert_eq!(found, expected),
            );
        }
    }

    #[test]
    fn channels_that_do_not_exist_are_refused() {
        let new = |channels: &[_]| ChannelGather::new(Isa::PORTABLE, &[3, 4], channels, 1, 1);
        assert!(new(&[(0, 2), (1, 3)]).is_some());
        for channels in [&[(0, 3)][..], &[(2, 0)]] {
            assert!(new(channels).is_none());
        }
    }
}

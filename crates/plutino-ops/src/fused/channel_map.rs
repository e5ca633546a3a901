//! Channels of several tensors in another order. Not an operator of PNNX: a pass puts it in the
//! place of concatenations, channel shuffles and splits that follow each other.

use crate::support::rearrange::invalid;
use crate::{
    Kernel, LayoutCx, LayoutSupport, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec,
};
use plutino_kernels::nchwc::ChannelGather;
use plutino_tensor::{DType, Layout, alloc};
use smallvec::SmallVec;

/// Channels of a tensor up to which they are listed: more than networks have.
pub(crate) const MOST_CHANNELS: usize = 1 << 16;

/// Images, (N, C, spatial...), whose channels are those of the inputs, which differ in C alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelMap {
    /// For each output its channels: an input, and a channel of it.
    pub outputs: Vec<Vec<(usize, usize)>>,
}

/// The channels that a shuffle of so many in `groups` takes, in their order: those of a group lie
/// `groups` apart. None where they are too many to list, or no whole groups.
pub fn shuffled_channels(channels: usize, groups: usize) -> Option<Vec<usize>> {
    let whole = groups > 0 && channels.is_multiple_of(groups);
    let each = channels.checked_div(groups).filter(|_| whole && channels <= MOST_CHANNELS)?;
    alloc::collect((0..channels).map(|c| c % groups * each + c / groups)).ok()
}

impl ChannelMap {
    /// The inputs, and their channels.
    fn images<'a>(
        &self,
        inputs: &'a [ValueSpec],
    ) -> Result<(Vec<&'a TensorValue>, Vec<usize>), ShapeError> {
        let images = (0..inputs.len())
            .map(|i| TensorValue::at(inputs, i))
            .collect::<Result<Vec<_>, ShapeError>>()?;
        let size = |x: &TensorValue| {
            let mut shape = x.spec.may_lie_in_blocks().then(|| x.shape().clone())?;
            shape[1] = 1;
            Some(shape)
        };
        let first = images.first().and_then(|x| size(x));
        if first.is_none() || !images.iter().all(|x| size(x) == first) {
            return Err(invalid("channels are taken from f32 images of one size only"));
        }
        let channels = images.iter().map(|x| x.shape()[1]).collect();
        Ok((images, channels))
    }
}

impl Operator for ChannelMap {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (images, channels) = self.images(inputs)?;
        let exists = |&(input, c): &(usize, usize)| channels.get(input).is_some_and(|&n| c < n);
        if !self.outputs.iter().flatten().all(exists) {
            return Err(invalid("a channel that is taken does not exist"));
        }
        let output = |taken: &Vec<_>| {
            let mut shape = images[0].shape().clone();
            shape[1] = taken.len();
            ValueSpec::tensor(DType::F32, shape)
        };
        Ok(self.outputs.iter().map(output).collect())
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        // Unless outputs are so narrow that most of their blocks would be empty.
        let padded: usize = self.outputs.iter().map(|o| o.len().next_multiple_of(cx.block())).sum();
        let channels: usize = self.outputs.iter().map(Vec::len).sum();
        LayoutSupport::common_if(padded <= 2 * channels)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (images, channels) = self.images(cx.inputs)?;
        let (batch, pixels) =
            (images[0].shape()[0], images[0].shape().product(2..images[0].shape().rank()));
        let layout = images[0].spec.layout;
        if images.iter().any(|x| x.spec.layout != layout) {
            return Err(PlanError::Unsupported("channels from several layouts".into()));
        }
        if layout == Layout::Plain {
            let outputs = self.outputs.clone();
            return Ok(Planned::new(Planes { outputs, channels, pixels }));
        }
        let gather = |taken: &Vec<_>| {
            ChannelGather::new(cx.isa, &channels, taken, batch, pixels)
                .ok_or_else(|| PlanError::Unsupported("these channels in blocks".into()))
        };
        let outputs = self.outputs.iter().map(gather).collect::<Result<_, _>>()?;
        let name = format!("channels.c{}.{}", cx.isa.lanes(), cx.isa);
        Ok(Planned::new(Blocks { name, outputs }))
    }
}

/// Elements of a task.
const GRAIN: usize = 1 << 14;

/// Plain images: planes are copied.
struct Planes {
    outputs: Vec<Vec<(usize, usize)>>,
    /// Of the inputs.
    channels: Vec<usize>,
    pixels: usize,
}

impl Kernel for Planes {
    fn name(&self) -> &str {
        "channels.planes"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let inputs = slices(cx)?;
        for (i, taken) in self.outputs.iter().enumerate() {
            let y = cx.outputs.take::<f32>(i)?;
            // Pieces that end where a plane does, or before.
            cx.par.chunks_mut(y, GRAIN, |chunk, mut to| {
                let mut at = chunk * GRAIN;
                while !to.is_empty() {
                    let (plane, start) = (at / self.pixels, at % self.pixels);
                    let (n, (input, c)) = (plane / taken.len(), taken[plane % taken.len()]);
                    let len = to.len().min(self.pixels - start);
                    let from = (n * self.channels[input] + c) * self.pixels + start;
                    let (piece, rest) = to.split_at_mut(len);
                    piece.copy_from_slice(&inputs[input][from..from + len]);
                    (at, to) = (at + len, rest);
                }
            });
        }
        Ok(())
    }
}

/// The inputs of a run.
fn slices<'a>(cx: &RunCx<'a>) -> Result<SmallVec<[&'a [f32]; 8]>, RunError> {
    (0..cx.inputs.len()).map(|i| cx.inputs.get(i)).collect()
}

/// Images in channel blocks.
struct Blocks {
    name: String,
    outputs: Vec<ChannelGather>,
}

impl Kernel for Blocks {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let inputs = slices(cx)?;
        for (i, gather) in self.outputs.iter().enumerate() {
            gather.run(|input| inputs[input], cx.outputs.take(i)?, cx.par);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{check, error, iota, values};

    #[test]
    fn channels_are_those_of_the_inputs() {
        let map = ChannelMap { outputs: vec![vec![(1, 0), (0, 1), (1, 2)], vec![(0, 0)]] };
        let y = check(&map, &[iota([2, 2, 1, 2]), iota([2, 3, 1, 2])]);
        assert_eq!(y[0].shape().dims(), [2, 3, 1, 2]);
        assert_eq!(values::<f32>(&y[0]), [0., 1., 2., 3., 4., 5., 6., 7., 6., 7., 10., 11.]);
        assert_eq!(values::<f32>(&y[1]), [0., 1., 4., 5.]);
    }

    #[test]
    fn narrow_outputs_stay_plain() {
        let layouts = |width: usize, outputs: usize| {
            let output: Vec<_> = (0..width).map(|c| (0, c)).collect();
            ChannelMap { outputs: vec![output; outputs] }.layouts(&LayoutCx {
                inputs: &[],
                setting: crate::Setting::new(plutino_kernels::Isa::PORTABLE, 1),
            })
        };
        assert_eq!(layouts(1, 4), LayoutSupport::PLAIN);
        assert_eq!(layouts(58, 2), LayoutSupport::COMMON);
        assert_eq!(layouts(0, 1), LayoutSupport::COMMON);
    }

    #[test]
    fn nonsense_is_refused() {
        let map = |channel| ChannelMap { outputs: vec![vec![channel]] };
        let x = iota([1, 2, 3, 3]);
        for channel in [(0, 2), (2, 0)] {
            error(&map(channel), &[x.clone(), x.clone()]);
        }
        error(&map((0, 0)), &[x.clone(), iota([1, 2, 3, 4])]);
        error(&map((0, 0)), &[iota([2, 3])]);
        error(&map((0, 0)), &[]);
    }
}

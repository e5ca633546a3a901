//! Depthwise convolutions that make several channels of each (a depth multiplier): those of an
//! image whose channels are repeated.
//!
//! Groups of one channel have no sum over channels, whatever they make: kernels of matrix products
//! have a row of the window's taps to multiply. A channel for each result, and the kernel is that
//! of other depthwise layers, without a change of the weight.

use super::conv::Conv;
use crate::fused::channel_map::MOST_CHANNELS;
use crate::{ChannelMap, TensorValue, ValueSpec};
use plutino_tensor::alloc;

/// Results of a channel, at most: an image that is repeated more often takes longer to write than
/// the products do.
const MOST: usize = 16;

impl Conv {
    /// The channels of its image, repeated, and the depthwise convolution that reads these; none
    /// where groups have more than a channel, or no more than a result.
    pub fn by_repeated_channels(&self, inputs: &[ValueSpec]) -> Option<(ChannelMap, Self)> {
        let (problem, _) = self.problem(inputs).ok()?;
        let (channels, out) = (problem.in_channels(), problem.out_channels());
        let x = &TensorValue::at(inputs, self.weighted.input).ok()?.spec;
        let each = out.checked_div(channels)?;
        let takes = self.transposed.is_none()
            && self.weighted.input == 0
            && self.groups == channels
            && channels > 1
            && (2..=MOST).contains(&each)
            && out <= MOST_CHANNELS
            && x.may_lie_in_blocks()
            && x.shape.rank() == self.dims + 2;
        if !takes {
            return None;
        }
        let repeated = alloc::collect((0..out).map(|channel| (0, channel / each))).ok()?;
        Some((ChannelMap { outputs: vec![repeated] }, Self { groups: out, ..self.clone() }))
    }
}

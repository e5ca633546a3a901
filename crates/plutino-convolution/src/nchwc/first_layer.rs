//! First layers: plain images of a few channels, too few for a block, in; channel blocks out.
//!
//! ```text
//! y[n, o, p] = act(bias[o] + sum over taps t, channels c of
//!                  x[n, c, p * stride + t - padding] w[o, c, t])
//! ```
//! The register tile is the direct convolution's: pixels times two blocks of output channels.
//! Planes are read where they lie if no window reaches outside, else from a copy with padded
//! borders: of the whole image, or of what a task needs, made in its cache (`image.rs`). Tiles of a
//! row read its pixels at a fixed distance; in short rows where a tap lies is the sum of two
//! numbers.
//!
//! For: at most [`FEW`] channels and any window, where Winograd on squares of pixels does not take
//! it or does not pay. Figures: docs/decisions/003-first-layers.md.

use super::direct::Shared;
use super::image::PaddedImage;
use super::tiled::{ConvInput, Cut, Reads, Tiled};
use super::window::Window;
use crate::algorithm::Bound;
use crate::choose::Request;

/// Channels up to which plain input is read.
pub(crate) const FEW: usize = 4;

/// Bytes above which a task copies less of an image than whole rows.
const LONGEST_COPY: usize = 2 << 20;

/// The window, if algorithms that read plain images and write blocks take the problem.
pub(super) fn window(request: &Request<'_>) -> Option<Window> {
    let Request { problem, post_ops, .. } = request;
    let few = problem.groups() == 1 && problem.in_channels() <= FEW;
    let window = Window::of(problem)?;
    (few && !post_ops.factors && window.is_padded_little()).then_some(window)
}

/// Bound to a problem.
pub(crate) fn bind(request: &Request<'_>) -> Option<impl Bound + use<>> {
    let &Request { problem, post_ops, isa, threads, .. } = request;
    let window = window(request)?;
    let (channels, batch) = (problem.in_channels(), problem.batch());
    let bytes = channels * 4 * window.stride[0] * window.stride[1];
    let mut cut = Cut::new(isa, &window, bytes, batch, threads.max(1));
    let part = PaddedImage::new(&window, channels, cut.fitting, LONGEST_COPY);
    let reads = if window.is_inside() {
        Reads::Image
    } else if part.parts() > 1 && batch * part.parts() >= cut.wanted {
        // A part is not to be copied for each of several tasks.
        (cut.pixels, cut.tasks) = (part.window.pixels(), part.parts());
        Reads::Part(part)
    } else {
        Reads::Whole(PaddedImage::whole(&window, channels))
    };
    let out = problem.out_channels();
    let tiled = Tiled::new(isa, window, (cut, reads), out, batch, post_ops.activation);
    Some(Shared::new(request, ConvInput::Plain, tiled))
}

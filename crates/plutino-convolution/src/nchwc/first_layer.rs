//! First layers: plain images, or lines or volumes, of a few channels, too few for a block, in;
//! channel blocks out.
//!
//! ```text
//! y[n, o, p] = act(bias[o] + sum over taps t, channels c of
//!                  x[n, c, p * stride + t - padding] w[o, c, t])
//! ```
//! The register tile is the direct convolution's: pixels times two blocks of output channels.
//! Planes are read where they lie if no window reaches outside, else from a copy with padded
//! borders: of the whole image, or of what a task needs, made in its cache (`image.rs`). Tiles of a
//! row read its pixels at a fixed distance; in short rows where a tap lies is the sum of two
//! numbers. Of pairs of bf16 (`pairs.rs`), two planes become one of words in the copy.
//!
//! For: at most [`FEW`] channels and any window, where Winograd on squares of pixels does not take
//! it or does not pay. Figures: docs/decisions/003-first-layers.md.

use super::direct::Shared;
use super::format::Format;
use super::image::PaddedImage;
use super::pairs;
use super::tiled::{self, ConvInput, Cut, Reads, Tiled};
use super::window::Window;
use crate::algorithm::Bound;
use crate::choose::Request;
use crate::post_ops::Bf16Tensors;

/// Channels up to which plain input is read.
pub(crate) const FEW: usize = 4;

/// Bytes above which a task copies less of an image than whole rows.
const LONGEST_COPY: usize = 2 << 20;

/// The window on a plane, if algorithms that read plain images and write blocks take the problem.
pub(super) fn window(request: &Request<'_>) -> Option<Window> {
    Window::of(&request.problem).filter(|window| takes(request, window))
}

fn takes(request: &Request<'_>, window: &Window) -> bool {
    let Request { problem, post_ops, .. } = request;
    let few = problem.groups() == 1 && problem.in_channels() <= FEW;
    few && !post_ops.factors && window.is_padded_little()
}

/// Of f32.
pub(crate) fn bind(request: &Request<'_>) -> Option<impl Bound + use<>> {
    let tiled = tiled(request, false)?;
    Some(Shared::new(request, ConvInput::Plain, tiled))
}

/// Of pairs of bf16.
pub(crate) fn bind_pairs(request: &Request<'_>) -> Option<impl Bound + use<>> {
    let &Request { problem, bf16, .. } = request;
    let (pairs, tiled) = (pairs::of(request)?, tiled(request, true)?);
    // Multiply-adds for each number: with an odd number of them, one meets a zero.
    let channels = problem.in_channels();
    let share = tiled::SHARE * channels as f64 / channels.next_multiple_of(2) as f64;
    let tiled = tiled.of(pairs).writing(Format::of(bf16.output));
    let shared = Shared::new(request, ConvInput::PlainPairs, tiled);
    let bf16 = Bf16Tensors { input: false, ..pairs::bf16_tensors(request) };
    Some(shared.costing(pairs::cycles(request, pairs, share)).taking(bf16))
}

/// With all decided; a copy may be of words.
fn tiled(request: &Request<'_>, words: bool) -> Option<Tiled> {
    let &Request { problem, post_ops, isa, threads, .. } = request;
    let window = Window::of_volume(&problem).filter(|window| takes(request, window))?;
    let (channels, batch) = (problem.in_channels(), problem.batch());
    let bytes = channels * 4 * window.stride[0] * window.stride[1];
    let mut cut = Cut::new(isa, &window, bytes, batch, threads.max(1));
    let copy = |image: PaddedImage| if words { image.of_words(isa) } else { image };
    let of_parts = || {
        let part = PaddedImage::new(&window, channels, cut.fitting, LONGEST_COPY);
        Some(copy(part)).filter(|p| p.parts() > 1 && batch * p.parts() >= cut.wanted)
    };
    let reads = if window.is_inside() && !words {
        Reads::Image
    } else if let Some(part) = window.is_on_plane().then(of_parts).flatten() {
        // A part is not to be copied for each of several tasks.
        (cut.pixels, cut.tasks) = (part.window.pixels(), part.parts());
        Reads::Part(part)
    } else {
        Reads::Whole(copy(PaddedImage::whole(&window, channels)))
    };
    let out = problem.out_channels();
    Some(Tiled::new(isa, window, (cut, reads), out, batch, post_ops.activation))
}

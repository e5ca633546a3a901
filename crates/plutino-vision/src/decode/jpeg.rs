//! JPEG, by zune-jpeg.
//!
//! The standard leaves room in rounding, and says nothing of how colours are smoothed that are
//! stored at half the size. Of pictures of 203 x 301 pixels at qualities 75 and 95 Pillow
//! (libjpeg-turbo) makes bytes that differ by 3 of 255 at most, by 0.02 on average; where colours
//! are halved in one direction 3 and 0.19, in both 4 and 0.40 (2026-11-24). Progressive files are
//! the same.

use plutino::tensor::alloc;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{Raw, Trouble};
use crate::Size;

pub(super) fn decode(file: &[u8]) -> Result<Raw, Trouble> {
    // Sizes are checked below, by our own limit.
    let options = DecoderOptions::default().set_max_width(usize::MAX).set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(Trouble::decoder)?;
    let info = decoder.info().ok_or_else(|| Trouble::decoder("no size"))?;
    let size = Size { height: info.height.into(), width: info.width.into() }.checked()?;
    let (samples, space) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (1, ColorSpace::Luma),
        _ => (3, ColorSpace::RGB),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(space));
    let mut bytes = alloc::filled(size.pixels() * samples, 0)?;
    decoder.decode_into(&mut bytes).map_err(Trouble::decoder)?;
    Ok(Raw { size, samples, bytes, exif: decoder.exif().cloned() })
}

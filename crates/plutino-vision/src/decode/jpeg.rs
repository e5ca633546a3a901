//! JPEG, by zune-jpeg.
//!
//! The standard leaves room in rounding, and says nothing of how colours are smoothed that are
//! stored at half the size. Of pictures of 203 x 301 pixels at qualities 75 and 95 Pillow
//! (libjpeg-turbo) makes bytes that differ by 3 of 255 at most, by 0.02 on average; where colours
//! are halved in one direction 3 and 0.19, in both 4 and 0.40 (2026-11-24). Progressive files are
//! the same.
//!
//! Left to itself the decoder paints grey what is missing of a file, and calls that a picture.

use plutino::tensor::alloc;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{Raw, Trouble};
use crate::Size;

pub(super) fn decode(file: &[u8]) -> Result<Raw, Trouble> {
    // What is missing in the last rows is none of the decoder's errors, strict as it may be.
    if !is_whole(file) {
        return Err(Trouble::decoder("the file is cut short: it ends before the picture does"));
    }
    // Sizes are checked below, by our own limit.
    let options = DecoderOptions::default().set_max_width(usize::MAX).set_max_height(usize::MAX);
    let options = options.set_strict_mode(true);
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

/// Whether the marker is there that ends a picture. That of a small picture in the notes of a
/// camera is within their segment, whose length leads behind it.
fn is_whole(file: &[u8]) -> bool {
    let mut rest = file;
    while let Some(at) = rest.iter().position(|&byte| byte == 0xff) {
        rest = rest.get(at + 1..).unwrap_or_default();
        let skip = match rest {
            [0xd9, ..] => return true,
            // Markers may have several of these in front.
            [0xff, ..] => 0,
            // Within numbers of pixels, and markers alone: where a picture begins, where to go on.
            [0 | 1 | 0xd0..=0xd8, ..] => 1,
            &[_, high, low, ..] => 1 + usize::from(u16::from_be_bytes([high, low])),
            _ => return false,
        };
        rest = rest.get(skip..).unwrap_or_default();
    }
    false
}

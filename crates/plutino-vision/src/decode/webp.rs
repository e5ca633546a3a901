use image_webp::WebPDecoder;
use plutino::tensor::alloc;

use super::{Raw, Trouble};
use crate::Size;

/// Bytes that the decoder may hold beside the pixels: notes and profiles.
const MOST_NOTES: usize = 64 << 20;

pub(super) fn decode(file: &[u8]) -> Result<Raw, Trouble> {
    let mut decoder = WebPDecoder::new(std::io::Cursor::new(file)).map_err(Trouble::decoder)?;
    decoder.set_memory_limit(MOST_NOTES);
    let (width, height) = decoder.dimensions();
    let size = Size { height, width }.checked()?;
    let samples = if decoder.has_alpha() { 4 } else { 3 };
    let mut bytes = alloc::filled(size.pixels() * samples, 0)?;
    decoder.read_image(&mut bytes).map_err(Trouble::decoder)?;
    let exif = decoder.exif_metadata().map_err(Trouble::decoder)?;
    Ok(Raw { size, samples, bytes, exif })
}

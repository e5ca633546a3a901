use plutino::tensor::alloc;
use zune_bmp::BmpDecoder;
use zune_core::bytestream::ZCursor;
use zune_core::options::DecoderOptions;

use super::{Raw, Trouble};
use crate::Size;

/// `BM`, and in the place of the second header a length that one can have: two letters alone begin
/// many a text.
pub(super) fn begins(file: &[u8]) -> bool {
    let known = |length: u32| matches!(length, 12 | 16 | 40 | 52 | 56 | 64 | 108 | 124);
    let length = file.get(14..18).and_then(|bytes| bytes.try_into().ok());
    file.starts_with(b"BM") && length.map(u32::from_le_bytes).is_some_and(known)
}

pub(super) fn decode(file: &[u8]) -> Result<Raw, Trouble> {
    let options = DecoderOptions::default().set_max_width(usize::MAX).set_max_height(usize::MAX);
    let mut decoder = BmpDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(|error| Trouble::decoder(format!("{error:?}")))?;
    let side = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (width, height) = decoder.dimensions().ok_or_else(|| Trouble::decoder("no size"))?;
    let size = Size { height: side(height), width: side(width) }.checked()?;
    if !is_whole(file, width, height) {
        return Err(Trouble::decoder("the file is cut short: it ends before the picture does"));
    }
    // zune-bmp 0.5.2 does not skip what pads rows of 1, 2 and 4 bits, and reads another picture.
    let bits = bits(file);
    if bits < 8 && !(width.saturating_mul(bits)).is_multiple_of(32) {
        return Err(Trouble::decoder(format!("{bits} bits a pixel: save it with 8 or 24")));
    }
    let samples = decoder.colorspace().map_or(3, |space| space.num_components());
    let mut bytes = alloc::filled(size.pixels() * samples, 0)?;
    decoder.decode_into(&mut bytes).map_err(|error| Trouble::decoder(format!("{error:?}")))?;
    Ok(Raw { size, samples, bytes, exif: None })
}

/// Bits of a pixel.
fn bits(file: &[u8]) -> usize {
    let at = if file.get(14) == Some(&12) { 24 } else { 28 };
    file.get(at).copied().map_or(0, usize::from)
}

/// Whether the file has as many bytes as its pixels take. The decoder takes what is missing for
/// zeros.
fn is_whole(file: &[u8], width: usize, height: usize) -> bool {
    let number = |at: usize| {
        let bytes = file.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes) as usize
    };
    // Headers of 12 bytes know no compression.
    let compression = if file.get(14) == Some(&12) { 0 } else { number(30) };
    let bytes = match compression {
        1 | 2 => number(34), // runs: as many bytes as the header says
        _ => {
            // The last row need not be padded.
            let row = width.saturating_mul(bits(file)).div_ceil(8);
            let padded = row.next_multiple_of(4);
            padded.saturating_mul(height.saturating_sub(1)).saturating_add(row)
        }
    };
    number(10).saturating_add(bytes) <= file.len()
}

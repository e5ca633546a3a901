//! PNG and JPEG files to pixels.

use super::{Size, check_pixels};
use plutino::tensor::alloc;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};

/// Rows of pixels from the top, each pixel a byte for each channel: grey, or red, green and blue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pixels {
    pub(crate) size: Size,
    /// 1 or 3.
    pub(crate) channels: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Pixels {
    /// Reads a file, whose size is looked at before memory is taken for its pixels. Palettes and
    /// other depths become bytes; transparency is left out.
    pub(crate) fn read(file: &[u8]) -> Result<Self, String> {
        match file.starts_with(super::PNG) {
            true => png(file),
            false => jpeg(file),
        }
    }

    /// With this number of channels, 1 or 3, as Pillow's `convert("L")` and `convert("RGB")` make
    /// them.
    pub(crate) fn into_channels(self, channels: usize) -> Self {
        let bytes = match (self.channels, channels) {
            (3, 1) => self.bytes.chunks_exact(3).map(|p| luma([p[0], p[1], p[2]])).collect(),
            (1, 3) => self.bytes.iter().flat_map(|&grey| [grey; 3]).collect(),
            _ => return self,
        };
        Self { channels, bytes, ..self }
    }
}

/// Rec. 601 luma, rounded as Pillow does.
pub(super) fn luma([r, g, b]: [u8; 3]) -> u8 {
    let sum = 19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b);
    ((sum + 0x8000) >> 16) as u8 // the weights add up to 2^16
}

fn png(file: &[u8]) -> Result<Pixels, String> {
    let text = |e: png::DecodingError| e.to_string();
    let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let &png::Info { width, height, .. } = decoder.read_header_info().map_err(text)?;
    let size = check_pixels(Size { height, width })?;
    let mut reader = decoder.read_info().map_err(text)?;
    let (color, _) = reader.output_color_type();
    let samples = color.samples();
    let mut bytes = alloc::filled(size.pixels() * samples, 0).map_err(|e| e.to_string())?;
    reader.next_frame(&mut bytes).map_err(text)?;
    let channels = if samples < 3 { 1 } else { 3 };
    if samples != channels {
        let opaque = bytes.chunks_exact(samples).flat_map(|pixel| &pixel[..channels]);
        bytes = opaque.copied().collect();
    }
    Ok(Pixels { size, channels, bytes })
}

fn jpeg(file: &[u8]) -> Result<Pixels, String> {
    // Sizes are checked below, once for both formats.
    let options = DecoderOptions::default().set_max_width(usize::MAX).set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(|e| e.to_string())?;
    let info = decoder.info().ok_or("a JPEG file without a size")?;
    let size = Size { height: info.height.into(), width: info.width.into() };
    let size = check_pixels(size)?;
    let (channels, space) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (1, ColorSpace::Luma),
        _ => (3, ColorSpace::RGB),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(space));
    let bytes = decoder.decode().map_err(|e| e.to_string())?;
    match bytes.len() == size.pixels() * channels {
        true => Ok(Pixels { size, channels, bytes }),
        false => Err("a JPEG file of fewer pixels than it says".into()),
    }
}

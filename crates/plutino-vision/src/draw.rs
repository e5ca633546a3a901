//! Drawing on pictures: frames, areas, text.

use std::io::Write;
use std::path::Path;

use font8x8::legacy::BASIC_LEGACY;
use plutino::ir;
use plutino::tensor::alloc;

use crate::pixels::luma;
use crate::{Format, Pixels, Size, VisionError};

/// Red, green, blue.
pub type Colour = [u8; 3];

/// Pixels of a letter's side at scale 1.
pub const LETTER: u32 = 8;

/// The colour of a class in the palette of Pascal VOC: the bits of its number, dealt out to red,
/// green and blue from the highest on.
#[must_use]
pub fn palette(class: usize) -> Colour {
    let mut colour = [0; 3];
    for bit in 0..8 {
        for (channel, value) in colour.iter_mut().enumerate() {
            *value |= ((class >> (3 * bit + channel) & 1) as u8) << (7 - bit);
        }
    }
    colour
}

impl Pixels {
    /// The picture with three channels, to be drawn on, and `more` black rows below it.
    ///
    /// # Errors
    /// Too little memory.
    pub fn canvas(self, more: u32) -> Result<Self, VisionError> {
        let mut picture = self.into_channels(3);
        if more > 0 {
            picture.size.height = picture.size.height.saturating_add(more);
            let mut bytes = alloc::filled(picture.size.pixels() * 3, 0)?;
            bytes.iter_mut().zip(&picture.bytes).for_each(|(to, from)| *to = *from);
            picture.bytes = bytes;
        }
        Ok(picture)
    }

    /// Mixes a colour into a pixel; nothing outside of the picture.
    pub fn mix(&mut self, x: i64, y: i64, colour: Colour, opacity: f32) {
        let (width, height) = (i64::from(self.size.width), i64::from(self.size.height));
        if !(0..width).contains(&x) || !(0..height).contains(&y) {
            return;
        }
        let at = (y * width + x) as usize * 3;
        for (byte, with) in self.bytes.iter_mut().skip(at).zip(colour) {
            // one step, for a slice
            let mixed = f32::from(*byte) * (1.0 - opacity) + f32::from(with) * opacity;
            *byte = mixed.round() as u8;
        }
    }

    /// Fills a rectangle, of which the part inside of the picture is drawn.
    pub fn fill(&mut self, [x, y]: [i64; 2], [width, height]: [u32; 2], colour: Colour) {
        let clip = |from: i64, length: u32, most: u32| {
            from.max(0)..from.saturating_add(i64::from(length)).min(i64::from(most))
        };
        let columns = clip(x, width, self.size.width);
        for y in clip(y, height, self.size.height) {
            columns.clone().for_each(|x| self.mix(x, y, colour, 1.0));
        }
    }

    /// Draws a frame whose outer edge is the box.
    pub fn frame(&mut self, corners: [f32; 4], thick: u32, colour: Colour) {
        // Far outside is outside; what is no number becomes 0.
        let [x1, y1, x2, y2] = corners.map(|at| at.clamp(-1e6, 1e6).round() as i64);
        let side = |from: i64, to: i64| u32::try_from(to - from).unwrap_or(0).max(thick);
        let (width, height, inner) = (side(x1, x2), side(y1, y2), i64::from(thick));
        self.fill([x1, y1], [width, thick], colour);
        self.fill([x1, y2.max(y1 + inner) - inner], [width, thick], colour);
        self.fill([x1, y1], [thick, height], colour);
        self.fill([x2.max(x1 + inner) - inner, y1], [thick, height], colour);
    }

    /// Writes text on a ground of the given colour, black or white, whatever can be read better;
    /// `?` stands for what is not ASCII.
    pub fn text(&mut self, [x, y]: [i64; 2], scale: u32, text: &str, ground: Colour) {
        let side = LETTER * scale;
        let ink = if luma(ground) > 127 { [0; 3] } else { [255; 3] };
        for (letter, left) in text.chars().zip((0..).map(|i| x + i * i64::from(side))) {
            self.fill([left, y], [side; 2], ground);
            let glyph = BASIC_LEGACY.get(letter as usize).unwrap_or(&BASIC_LEGACY[b'?' as usize]);
            for (row, bits) in (0..).zip(glyph) {
                for column in (0..8).filter(|column| bits >> column & 1 == 1) {
                    let at = |n: i64| n * i64::from(scale);
                    self.fill([left + at(column), y + at(row)], [scale; 2], ink);
                }
            }
        }
    }

    /// Writes a PNG file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), VisionError> {
        let colour =
            if self.channels == 3 { png::ColorType::Rgb } else { png::ColorType::Grayscale };
        write(path, self.size, colour, None, &self.bytes)
    }
}

/// Writes classes as a PNG file with VOC's palette: the number of a pixel is its class.
///
/// # Errors
/// The file cannot be written, or `classes` are not height x width.
pub fn save_classes(path: &Path, size: Size, classes: &[u8]) -> Result<(), VisionError> {
    let colours = (0..256).flat_map(palette).collect();
    write(path, size, png::ColorType::Indexed, Some(colours), classes)
}

fn write(
    path: &Path,
    size: Size,
    colour: png::ColorType,
    colours: Option<Vec<u8>>,
    bytes: &[u8],
) -> Result<(), VisionError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size.width, size.height);
    encoder.set_color(colour);
    encoder.set_depth(png::BitDepth::Eight);
    colours.into_iter().for_each(|colours| encoder.set_palette(colours));
    let encode = |encoder: png::Encoder<'_, _>| {
        let mut writer = encoder.write_header()?;
        writer.write_image_data(bytes)?;
        writer.finish()
    };
    encode(encoder)
        .map_err(|e| VisionError::Decode { format: Format::Png, reason: e.to_string() })?;
    ir::write_whole(path, |mut target| target.write_all(&file))
        .map_err(|error| VisionError::Io { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn black(height: u32, width: u32) -> Pixels {
        let size = Size { height, width };
        Pixels { size, channels: 1, bytes: vec![0; size.pixels()] }.canvas(0).unwrap()
    }

    #[test]
    fn the_palette_of_voc() {
        let expected = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128]];
        assert_eq!(std::array::from_fn(palette), expected);
        assert_eq!((palette(15), palette(20)), ([192, 128, 128], [0, 64, 128]));
    }

    #[test]
    fn frames_stay_inside() {
        let mut picture = black(4, 5);
        picture.frame([1.0, 1.0, 4.0, 4.0], 1, [255; 3]);
        let drawn: Vec<u8> = picture.bytes.iter().step_by(3).map(|b| b / 255).collect();
        assert_eq!(
            drawn,
            [[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 1, 0, 1, 0], [0, 1, 1, 1, 0]].concat()
        );
        picture.frame([-9.0, -9.0, 1e30, f32::NAN], 3, [255; 3]);
        picture.text([-3, 2], 2, "aé", [200; 3]);
    }

    #[test]
    fn letters_are_readable() {
        let mut picture = black(8, 8);
        picture.text([0, 0], 1, "I", [9; 3]);
        let row = &picture.bytes[..24];
        assert_eq!(row.iter().filter(|b| **b == 255).count(), 4 * 3, "the serif of an I");
    }
}

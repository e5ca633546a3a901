//! Pictures as bytes.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use plutino::ir;
use plutino::tensor::alloc;
use serde::Deserialize;

use crate::VisionError;

/// Height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SizeForm")]
pub struct Size {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

impl FromStr for Size {
    type Err = String;

    /// `224x320` is height and width, `224` both.
    fn from_str(text: &str) -> Result<Self, String> {
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        let side = |text: &str| text.parse().ok().filter(|&n| (1..=1 << 15).contains(&n));
        match (side(height), side(width)) {
            (Some(height), Some(width)) => Ok(Self { height, width }),
            _ => Err("height and width as in 224x224, each from 1 to 32768".into()),
        }
    }
}

/// How JSON says a size: `224`, `[224, 320]`, `"224x320"` or `{"height": 224, "width": 320}`.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum SizeForm {
    Side(u32),
    Sides([u32; 2]),
    Text(String),
    Named { height: u32, width: u32 },
}

impl TryFrom<SizeForm> for Size {
    type Error = String;

    fn try_from(form: SizeForm) -> Result<Self, String> {
        match form {
            SizeForm::Side(side) => side.to_string().parse(),
            SizeForm::Sides([height, width]) | SizeForm::Named { height, width } => {
                format!("{height}x{width}").parse()
            }
            SizeForm::Text(text) => text.parse(),
        }
    }
}

/// Pixels of a picture, as it is and as the model takes it, at most: each takes up to 16 bytes.
const MOST_PIXELS: u64 = 1 << 25;

impl Size {
    /// Height times width: for sizes that were checked.
    pub(crate) fn pixels(self) -> usize {
        self.height as usize * self.width as usize
    }

    /// This size, if a picture may have it.
    pub(crate) fn checked(self) -> Result<Self, VisionError> {
        match u64::from(self.height) * u64::from(self.width) {
            1..=MOST_PIXELS => Ok(self),
            _ => Err(VisionError::Size { size: self, most: MOST_PIXELS }),
        }
    }

    /// With height and width exchanged.
    pub(crate) fn turned(self) -> Self {
        Self { height: self.width, width: self.height }
    }
}

/// A picture: rows of pixels from the top, each pixel a byte for each channel: grey, or red, green
/// and blue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    pub(crate) size: Size,
    /// 1 or 3.
    pub(crate) channels: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Pixels {
    /// A picture that is in memory already, such as a camera's frame: rows from the top, a byte for
    /// each channel of each pixel.
    ///
    /// ```
    /// use plutino_vision::{Pixels, Size};
    ///
    /// let frame = vec![0; 480 * 640 * 3];
    /// let picture = Pixels::new(Size { height: 480, width: 640 }, 3, frame)?;
    /// assert_eq!(picture.channels(), 3);
    /// # Ok::<(), plutino_vision::VisionError>(())
    /// ```
    ///
    /// # Errors
    /// [`VisionError::Size`]; [`VisionError::Bytes`] where there are not height x width x
    /// `channels` bytes, or `channels` is neither 1 nor 3.
    pub fn new(size: Size, channels: usize, bytes: Vec<u8>) -> Result<Self, VisionError> {
        let pixels = size.checked()?.pixels();
        match channels {
            1 | 3 if bytes.len() == pixels * channels => Ok(Self { size, channels, bytes }),
            _ => Err(VisionError::Bytes { size, channels, found: bytes.len() }),
        }
    }

    /// Reads a file, as [`read`](Self::read) does.
    ///
    /// # Errors
    /// [`VisionError::Io`], also where the path is that of no regular file, and those of
    /// [`read`](Self::read).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, VisionError> {
        let path = path.as_ref();
        let bytes = ir::read_regular(path)
            .map_err(|error| VisionError::Io { path: path.to_owned(), error })?;
        Self::read(&bytes)
    }

    /// Height and width.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// 1 for grey, 3 for red, green and blue.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// A byte for each channel of each pixel, row by row: height x width x channels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// With this number of channels, 1 or 3, as Pillow's `convert("L")` and `convert("RGB")` make
    /// them; any other number leaves it as it is.
    #[must_use]
    pub fn into_channels(self, channels: usize) -> Self {
        let bytes = match (self.channels, channels) {
            (3, 1) => self.bytes.chunks_exact(3).map(|p| luma([p[0], p[1], p[2]])).collect(),
            (1, 3) => self.bytes.iter().flat_map(|&grey| [grey; 3]).collect(),
            _ => return self,
        };
        Self { channels, bytes, ..self }
    }

    /// Turned and mirrored as a camera's note says: the value of EXIF's tag `Orientation`, as
    /// Pillow's `ImageOps.exif_transpose` does. What is none of its values leaves the picture as it
    /// is.
    ///
    /// # Errors
    /// Too little memory.
    pub(crate) fn upright(self, orientation: u32) -> Result<Self, VisionError> {
        if !(2..=8).contains(&orientation) {
            return Ok(self);
        }
        // A pixel of what comes out is at (x, y) or, where the picture is turned, (y, x), counted
        // from the right or from the bottom.
        let turned = orientation >= 5;
        let (from_right, from_bottom) =
            (matches!(orientation, 2 | 3 | 7 | 8), matches!(orientation, 3 | 4 | 6 | 7));
        let size = if turned { self.size.turned() } else { self.size };
        let (w, h) = (self.size.width as usize, self.size.height as usize);
        let mut bytes = alloc::filled(self.bytes.len(), 0)?;
        let rows = bytes.chunks_exact_mut((size.width as usize * self.channels).max(1));
        for (y, row) in rows.enumerate() {
            for (x, pixel) in row.chunks_exact_mut(self.channels).enumerate() {
                let (x, y) = if turned { (y, x) } else { (x, y) };
                let x = if from_right { w - 1 - x } else { x };
                let y = if from_bottom { h - 1 - y } else { y };
                let at = (y * w + x) * self.channels;
                pixel.copy_from_slice(&self.bytes[at..at + self.channels]);
            }
        }
        Ok(Self { size, bytes, ..self })
    }

    /// This picture on a ground of the given brightness, its corner at column `left` and row `top`,
    /// which may lie outside: what does not fit is cut off.
    pub(crate) fn onto(
        &self,
        ground: Size,
        left: i64,
        top: i64,
        grey: u8,
    ) -> Result<Self, VisionError> {
        let c = self.channels;
        let row = ground.width as usize * c;
        let mut bytes = alloc::filled(ground.pixels() * c, grey)?;
        // Ours and theirs: the first pixel that both have, and how many.
        let shared = |at: i64, own: u32, theirs: u32| {
            let (own, theirs) = (i64::from(own), i64::from(theirs));
            let count = (theirs - at.max(0)).min(own - (-at).max(0)).max(0);
            ((-at).max(0) as usize, at.max(0) as usize, count as usize)
        };
        let (x, to_x, width) = shared(left, self.size.width, ground.width);
        let (y, to_y, height) = shared(top, self.size.height, ground.height);
        let from = self.bytes.chunks_exact(self.size.width as usize * c).skip(y).take(height);
        for (to, from) in bytes.chunks_exact_mut(row).skip(to_y).zip(from) {
            let to = to.get_mut(to_x * c..(to_x + width) * c);
            if let (Some(to), Some(from)) = (to, from.get(x * c..(x + width) * c)) {
                to.copy_from_slice(from);
            }
        }
        Ok(Self { size: ground, channels: c, bytes })
    }
}

/// Rec. 601 luma, rounded as Pillow does.
pub(crate) fn luma([r, g, b]: [u8; 3]) -> u8 {
    let sum = 19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b);
    ((sum + 0x8000) >> 16) as u8 // the weights add up to 2^16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_syntax() {
        assert_eq!("224x320".parse(), Ok(Size { height: 224, width: 320 }));
        assert_eq!("8".parse(), Ok(Size { height: 8, width: 8 }));
        for bad in ["", "x", "0x5", "5x", "-1x1", "99999x1"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    /// What Pillow's `ImageOps.exif_transpose` makes of 0 1 2 over 3 4 5.
    #[test]
    fn as_cameras_note_it() {
        let size = Size { height: 2, width: 3 };
        let expected: [(u32, [u8; 6]); 10] = [
            (0, [0, 1, 2, 3, 4, 5]),
            (1, [0, 1, 2, 3, 4, 5]),
            (2, [2, 1, 0, 5, 4, 3]),
            (3, [5, 4, 3, 2, 1, 0]),
            (4, [3, 4, 5, 0, 1, 2]),
            (5, [0, 3, 1, 4, 2, 5]),
            (6, [3, 0, 4, 1, 5, 2]),
            (7, [5, 2, 4, 1, 3, 0]),
            (8, [2, 5, 1, 4, 0, 3]),
            (9, [0, 1, 2, 3, 4, 5]),
        ];
        for (orientation, expected) in expected {
            for channels in [1, 3] {
                let wide = |bytes: &[u8]| bytes.iter().flat_map(|b| vec![*b; channels]).collect();
                let picture = Pixels { size, channels, bytes: wide(&[0, 1, 2, 3, 4, 5]) };
                let made = picture.upright(orientation).unwrap();
                let size = if (5..=8).contains(&orientation) { size.turned() } else { size };
                assert_eq!(
                    made,
                    Pixels { size, channels, bytes: wide(&expected) },
                    "{orientation}"
                );
            }
        }
    }
}

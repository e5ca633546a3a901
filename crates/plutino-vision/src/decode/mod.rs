//! Files to pixels. A format is a row of [`FORMATS`] and a file.

mod bmp;
mod jpeg;
mod png;
mod webp;

use std::fmt;

use plutino::tensor::alloc;

use crate::{Pixels, Size, VisionError};

/// A format of picture files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Portable Network Graphics
    Png,
    /// JPEG
    Jpeg,
    /// WebP: the first frame
    WebP,
    /// Windows bitmaps
    Bmp,
}

/// What a decoder makes of a file.
struct Raw {
    size: Size,
    /// Bytes of a pixel: grey, grey and alpha, red green blue, or these and alpha.
    samples: usize,
    bytes: Vec<u8>,
    /// What the camera notes, in the form of TIFF.
    exif: Option<Vec<u8>>,
}

type Decoder = fn(&[u8]) -> Result<Raw, Trouble>;

/// Why a file is refused.
enum Trouble {
    /// What the decoder says.
    Decoder(String),
    Ours(VisionError),
}

impl<E: Into<VisionError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Ours(error.into())
    }
}

impl Trouble {
    fn decoder(error: impl fmt::Display) -> Self {
        Self::Decoder(error.to_string())
    }
}

/// A format: its name, what tells a file of it, its decoder.
type Row = (Format, &'static str, fn(&[u8]) -> bool, Decoder);

const FORMATS: [Row; 4] = [
    (Format::Png, "png", |bytes| bytes.starts_with(b"\x89PNG"), png::decode),
    (Format::Jpeg, "jpeg", |bytes| bytes.starts_with(b"\xff\xd8\xff"), jpeg::decode),
    (
        Format::WebP,
        "webp",
        |bytes| bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"),
        webp::decode,
    ),
    (Format::Bmp, "bmp", bmp::begins, bmp::decode),
];

impl Format {
    /// All of them, for messages.
    pub const NAMES: &'static str = "png, jpeg, webp nor bmp";

    /// That of a file, by its first 32 bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        FORMATS.iter().find(|(_, _, begins, _)| begins(bytes)).map(|(format, ..)| *format)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = FORMATS.iter().find(|(format, ..)| format == self);
        f.write_str(row.map_or("", |(_, name, ..)| name))
    }
}

impl Pixels {
    /// Reads a file, whose size is looked at before memory is taken for its pixels, and turns the
    /// picture as the file notes that the camera was held (EXIF). Palettes and other depths become
    /// bytes; transparency is left out.
    ///
    /// # Errors
    /// [`VisionError::NoPicture`], [`VisionError::Decode`], [`VisionError::Size`] beyond 2^25
    /// pixels, and too little memory.
    pub fn read(file: &[u8]) -> Result<Self, VisionError> {
        let (pixels, exif) = decode(file)?;
        match exif.and_then(orientation) {
            Some(orientation) => pixels.upright(orientation),
            None => Ok(pixels),
        }
    }

    /// As [`read`](Self::read), but whatever the camera notes: as the file has it.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_as_stored(file: &[u8]) -> Result<Self, VisionError> {
        Ok(decode(file)?.0)
    }
}

fn decode(file: &[u8]) -> Result<(Pixels, Option<Vec<u8>>), VisionError> {
    let row = FORMATS.iter().find(|(_, _, begins, _)| begins(file));
    let &(format, _, _, decoder) = row.ok_or(VisionError::NoPicture)?;
    let raw = decoder(file).map_err(|trouble| match trouble {
        Trouble::Decoder(reason) => VisionError::Decode { format, reason },
        Trouble::Ours(error) => error,
    })?;
    let Raw { size, samples, bytes, exif } = raw;
    if bytes.len() != size.pixels() * samples || !(1..=4).contains(&samples) {
        let reason = "fewer pixels than it says".into();
        return Err(VisionError::Decode { format, reason });
    }
    let channels = if samples < 3 { 1 } else { 3 };
    if samples == channels {
        return Ok((Pixels { size, channels, bytes }, exif));
    }
    let mut opaque = alloc::filled(size.pixels() * channels, 0)?;
    for (to, from) in opaque.chunks_exact_mut(channels).zip(bytes.chunks_exact(samples)) {
        to.copy_from_slice(&from[..channels]);
    }
    Ok((Pixels { size, channels, bytes: opaque }, exif))
}

/// The camera's note how it was held; none in what is no EXIF.
fn orientation(exif: Vec<u8>) -> Option<u32> {
    // JPEG and WebP files may have the marker of JPEG before it.
    let exif = exif.strip_prefix(b"Exif\0\0").map(<[u8]>::to_vec).unwrap_or(exif);
    let read = exif::Reader::new().read_raw(exif).ok()?;
    read.get_field(exif::Tag::Orientation, exif::In::PRIMARY)?.value.get_uint(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pictures/");

    fn picture(name: &str) -> Vec<u8> {
        std::fs::read(format!("{FOLDER}{name}")).unwrap()
    }

    /// Files that Pillow wrote, with check sums of what it reads (xtask/python/golden.py).
    #[test]
    fn as_pillow_reads_them() {
        let golden: &[(&str, u32)] = &include!("decode.in");
        assert!(golden.len() >= 12);
        for &(name, crc) in golden {
            let made = Pixels::read(&picture(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
            let rgb = made.into_channels(3);
            assert_eq!(rgb.size, Size { height: 9, width: 14 }, "{name}");
            assert_eq!(crate::crc32(&rgb.bytes), crc, "{name}");
        }
    }

    /// To within what decoders of JPEG may differ by, in the place where the camera's note puts it.
    #[test]
    fn a_picture_taken_on_its_side() {
        let upright = Pixels::read(&picture("turned.jpg")).unwrap();
        let stored = Pixels::read_as_stored(&picture("turned.jpg")).unwrap();
        assert_eq!((upright.size, stored.size.turned()), (stored.size.turned(), upright.size));
        // It is red above and blue below, and was stored turned to the left.
        let at = |p: &Pixels, x: usize, y: usize| {
            let at = 3 * (y * p.size.width as usize + x);
            [p.bytes[at], p.bytes[at + 2]]
        };
        let red = |p: &Pixels, x, y| matches!(at(p, x, y), [200..=255, 0..60]);
        let (w, h) = (upright.size.width as usize, upright.size.height as usize);
        assert!(red(&upright, w / 2, 0) && !red(&upright, w / 2, h - 1));
        assert!(!red(&stored, h / 2, 0) || !red(&stored, h - 1, w / 2));
    }

    #[test]
    fn broken_files_are_errors() {
        assert!(matches!(Pixels::read(b"GIF89a"), Err(VisionError::NoPicture)));
        assert!(matches!(Pixels::read(&picture("bits.bmp")), Err(VisionError::Decode { .. })));
        let mut huge = picture("rgb.bmp");
        huge[18..26].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f]);
        assert!(Pixels::read(&huge).is_err());
    }

    /// What is missing may be no part of the picture: check sums, notes of the camera.
    #[test]
    fn files_that_are_cut_are_refused_or_whole() {
        let names = std::fs::read_dir(FOLDER).unwrap().map(|e| e.unwrap().file_name());
        for name in names.map(|name| name.into_string().unwrap()) {
            let file = picture(&name);
            let Ok(whole) = Pixels::read_as_stored(&file) else { continue };
            for kept in 0..file.len() {
                match Pixels::read_as_stored(&file[..kept]) {
                    Ok(pixels) => {
                        let of = file.len();
                        assert_eq!(pixels, whole, "{kept} of {of} bytes of {name}");
                        assert!(!name.ends_with("jpg"), "{kept} of {of} bytes of {name}");
                    }
                    Err(VisionError::NoPicture) => assert!(kept < 32, "{kept} bytes of {name}"),
                    Err(error) => assert!(matches!(error, VisionError::Decode { .. }), "{error}"),
                }
            }
        }
    }

    /// Cut, and with bytes that changed: whatever comes of it, it ends, and no decoder panics.
    #[test]
    fn damaged_pictures_end_in_pixels_or_errors() {
        let mut state = 1u32;
        let mut below = |n: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % n
        };
        let rounds = 300; // 100,000 of each were tried once
        let names: Vec<_> = std::fs::read_dir(FOLDER).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(names.len() > 12);
        let mut read = 0;
        for (file, round) in names.iter().flat_map(|name| (0..rounds).map(move |r| (name, r))) {
            let mut damaged = std::fs::read(file).unwrap();
            for _ in 0..below(4) {
                let at = below(damaged.len().min(if round % 2 == 0 { 64 } else { 4096 }));
                damaged[at] = [0, 1, 0x7f, 0xff, below(256) as u8][below(5)];
            }
            if below(3) == 0 {
                damaged.truncate(below(damaged.len()));
            }
            read += usize::from(Pixels::read(&damaged).is_ok());
        }
        assert!(read > names.len(), "{read}");
    }
}

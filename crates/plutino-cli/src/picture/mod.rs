//! Pictures as model inputs.

mod decode;
mod draw;
mod recipe;
mod resample;

pub(crate) use decode::Pixels;
pub(crate) use draw::{LETTER, palette, save_classes};
use plutino::{Shape, Tensor};
pub(crate) use recipe::{PictureArgs, Placement};
use resample::{Filter, resize};
use serde::Deserialize;
use std::str::FromStr;

/// Height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SizeForm")]
pub(crate) struct Size {
    pub(crate) height: u32,
    pub(crate) width: u32,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        let side = |text: &str| text.parse().ok().filter(|&n| (1..=1 << 15).contains(&n));
        match (side(height), side(width)) {
            (Some(height), Some(width)) => Ok(Self { height, width }),
            _ => Err("height and width as in 224x224, each from 1 to 32768".into()),
        }
    }
}

/// How JSON says a size: `224`, `[224, 320]` or `"224x320"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum SizeForm {
    Side(u32),
    Sides([u32; 2]),
    Text(String),
}

impl TryFrom<SizeForm> for Size {
    type Error = String;

    fn try_from(form: SizeForm) -> Result<Self, String> {
        match form {
            SizeForm::Side(side) => side.to_string().parse(),
            SizeForm::Sides([height, width]) => format!("{height}x{width}").parse(),
            SizeForm::Text(text) => text.parse(),
        }
    }
}

/// What the model takes: its channels, and its size where the file records one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) channels: usize,
    pub(crate) size: Option<Size>,
}

impl Size {
    /// Height times width: for sizes that were checked.
    fn pixels(self) -> usize {
        self.height as usize * self.width as usize
    }
}

/// Pixels of a picture, as it is and as the model takes it, at most: each takes up to 16 bytes.
const MOST_PIXELS: u64 = 1 << 25;

fn check_pixels(size: Size) -> Result<Size, String> {
    let Size { height, width } = size;
    match u64::from(height) * u64::from(width) {
        0 => Err("a picture without pixels".into()),
        1..=MOST_PIXELS => Ok(size),
        _ => Err(format!("{height}x{width} are too many pixels: {MOST_PIXELS} are possible")),
    }
}

/// Decodes a picture to a tensor of shape (1, channels, height, width), dtype f32: grey for one
/// channel, red, green, blue for three.
pub(crate) fn decode(bytes: &[u8], wanted: Wanted, args: &PictureArgs) -> Result<Tensor, String> {
    Ok(prepare(Pixels::read(bytes)?, wanted, args)?.0)
}

/// A picture as the model takes it, of shape (1, channels, height, width), dtype f32, and where its
/// pixels went.
pub(crate) fn prepare(
    picture: Pixels,
    wanted: Wanted,
    args: &PictureArgs,
) -> Result<(Tensor, Placement), String> {
    if !matches!(wanted.channels, 1 | 3) {
        let n = wanted.channels;
        return Err(format!("the model takes {n} channels; pictures have 1 or 3"));
    }
    let (pixels, placement) = args.place(picture.into_channels(wanted.channels), wanted.size)?;
    let scale = Scale::new(args, wanted.channels)?;
    let (h, w, c) = (pixels.size.height as usize, pixels.size.width as usize, wanted.channels);
    let from = |channel| if args.reverses_channels() { c - 1 - channel } else { channel };
    let tensor = Tensor::from_fn(Shape::from([1, c, h, w]), |i| {
        let (channel, pixel) = (i / (h * w), i % (h * w));
        let byte = pixels.bytes.get(pixel * c + from(channel)).copied().unwrap_or(0);
        scale.apply(from(channel), f32::from(byte) / 255.0)
    });
    Ok((tensor.map_err(|e| e.to_string())?, placement))
}

/// Mean and standard deviation for each channel.
struct Scale(Vec<(f32, f32)>);

impl Scale {
    fn new(args: &PictureArgs, channels: usize) -> Result<Self, String> {
        let each = |name: &str, values: &[f32], default: f32| match values.len() {
            0 => Ok(vec![default; channels]), // bounded: channels of a picture
            1 => Ok(vec![values[0]; channels]),
            n if n == channels => Ok(values.to_vec()),
            n => Err(format!("--{name} has {n} numbers; give 1 or {channels}")),
        };
        let std = each("std", &args.std, 1.0)?;
        if !std.iter().all(|s| *s != 0.0 && s.is_finite()) {
            return Err("--std must not be zero".into());
        }
        Ok(Self(each("mean", &args.mean, 0.0)?.into_iter().zip(std).collect()))
    }

    fn apply(&self, channel: usize, value: f32) -> f32 {
        let (mean, std) = self.0.get(channel).copied().unwrap_or((0.0, 1.0));
        (value - mean) / std
    }
}

/// Whether these are the first bytes of a file that [`decode`] reads.
pub(crate) fn is_picture(bytes: &[u8]) -> bool {
    bytes.starts_with(PNG) || bytes.starts_with(b"\xff\xd8\xff")
}

/// The first bytes of a PNG file.
const PNG: &[u8] = b"\x89PNG";

/// Of what tests compare with golden numbers.
#[cfg(test)]
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use png::{BitDepth, ColorType};

    fn encoded(color: ColorType, depth: BitDepth, palette: &[u8], data: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 2, 2);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if !palette.is_empty() {
            encoder.set_palette(palette);
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        file
    }

    /// Red, green; blue, white.
    const PIXELS: [u8; 12] = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];

    fn png() -> Vec<u8> {
        encoded(ColorType::Rgb, BitDepth::Eight, &[], &PIXELS)
    }

    #[test]
    fn every_sort_of_png_is_read() {
        let expected = decode(&png(), RGB, &args(&[], &[], None)).unwrap();
        let wide: Vec<u8> = PIXELS.iter().flat_map(|&x| [x, x]).collect();
        let clear: Vec<u8> = PIXELS.chunks(3).flat_map(|p| [p[0], p[1], p[2], 7]).collect();
        for file in [
            encoded(ColorType::Indexed, BitDepth::Two, &PIXELS, &[0b0001_0000, 0b1011_0000]),
            encoded(ColorType::Rgb, BitDepth::Sixteen, &[], &wide),
            encoded(ColorType::Rgba, BitDepth::Eight, &[], &clear),
        ] {
            assert_eq!(decode(&file, RGB, &args(&[], &[], None)).unwrap(), expected);
        }
        let grey = encoded(ColorType::Grayscale, BitDepth::One, &[], &[0b1000_0000, 0b0100_0000]);
        let clear =
            encoded(ColorType::GrayscaleAlpha, BitDepth::Eight, &[], &[255, 1, 0, 2, 0, 3, 255, 4]);
        for file in [grey, clear] {
            let t =
                decode(&file, Wanted { channels: 1, size: None }, &args(&[], &[], None)).unwrap();
            assert_eq!(t.as_slice::<f32>().unwrap(), [1., 0., 0., 1.]);
            let t = decode(&file, RGB, &args(&[], &[], None)).unwrap();
            assert_eq!(t.as_slice::<f32>().unwrap()[4..8], [1., 0., 0., 1.]);
        }
    }

    fn args(mean: &[f32], std: &[f32], size: Option<&str>) -> PictureArgs {
        let size = size.map(|s| s.parse().unwrap());
        PictureArgs { mean: mean.to_vec(), std: std.to_vec(), size, ..PictureArgs::default() }
    }

    const RGB: Wanted = Wanted { channels: 3, size: None };

    #[test]
    fn channels_are_planes_in_rgb_order() {
        let t = decode(&png(), RGB, &args(&[], &[], None)).unwrap();
        assert_eq!(t.shape().dims(), [1, 3, 2, 2]);
        let expected = [1., 0., 0., 1., 0., 1., 0., 1., 0., 0., 1., 1.];
        assert_eq!(t.as_slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn mean_and_std_for_each_channel() {
        let t = decode(&png(), RGB, &args(&[0.5, 0.25, 0.0], &[0.5], None)).unwrap();
        let expected = [1., -1., -1., 1., -0.5, 1.5, -0.5, 1.5, 0., 0., 2., 2.];
        assert_eq!(t.as_slice::<f32>().unwrap(), expected);
        assert!(decode(&png(), RGB, &args(&[0.5, 0.5], &[], None)).unwrap_err().contains("--mean"));
        assert!(decode(&png(), RGB, &args(&[], &[0.0], None)).unwrap_err().contains("--std"));
    }

    #[test]
    fn sizes_and_grey() {
        let grey = Wanted { channels: 1, size: Some(Size { height: 4, width: 6 }) };
        let t = decode(&png(), grey, &args(&[], &[], None)).unwrap();
        assert_eq!(t.shape().dims(), [1, 1, 4, 6]);
        let t = decode(&png(), grey, &args(&[], &[], Some("3x5"))).unwrap();
        assert_eq!(t.shape().dims(), [1, 1, 3, 5]);
        assert!(decode(&png(), Wanted { channels: 4, size: None }, &args(&[], &[], None)).is_err());
        assert!(decode(b"\x89PNG nonsense", RGB, &args(&[], &[], None)).is_err());
    }

    #[test]
    fn size_syntax() {
        assert_eq!("224x320".parse(), Ok(Size { height: 224, width: 320 }));
        assert_eq!("8".parse(), Ok(Size { height: 8, width: 8 }));
        for bad in ["", "x", "0x5", "5x", "-1x1", "99999x1"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}

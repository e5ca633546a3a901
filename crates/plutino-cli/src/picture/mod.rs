//! PNG and JPEG files as model inputs.

use crate::failure::Failure;
use image::imageops::{FilterType, resize};
use plutino::{Shape, Tensor};
use std::str::FromStr;

/// How pictures become tensors.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Pictures (png, jpeg)")]
pub(crate) struct PictureArgs {
    /// Subtracted from each channel once pixels are scaled to 0..1; one number, or one for each
    /// channel in the order red, green, blue (ImageNet: 0.485,0.456,0.406) [default: 0]
    #[arg(long, value_name = "R,G,B", value_delimiter = ',', allow_negative_numbers = true)]
    mean: Vec<f32>,
    /// Each channel is divided by this after --mean; same form (ImageNet: 0.229,0.224,0.225)
    /// [default: 1]
    #[arg(long, value_name = "R,G,B", value_delimiter = ',')]
    std: Vec<f32>,
    /// Resize to this height and width (bilinear, the whole picture) [default: the size recorded in
    /// the model]
    #[arg(long, value_name = "HxW")]
    size: Option<Size>,
}

/// Height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// What the model takes: its channels, and its size where the file records one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) channels: usize,
    pub(crate) size: Option<Size>,
}

/// Pixels of a picture, as it is and as the model takes it, at most: each takes 12 bytes.
const MOST_PIXELS: u64 = 1 << 25;

fn check_pixels(Size { height, width }: Size) -> Result<(), String> {
    match u64::from(height) * u64::from(width) {
        0..=MOST_PIXELS => Ok(()),
        _ => Err(format!("{height}x{width} are too many pixels: {MOST_PIXELS} are possible")),
    }
}

/// Decodes a picture to a tensor of shape (1, channels, height, width), dtype f32: grey for one
/// channel, red, green, blue for three.
pub(crate) fn decode(bytes: &[u8], wanted: Wanted, args: &PictureArgs) -> Result<Tensor, String> {
    let reader = image::ImageReader::new(std::io::Cursor::new(bytes));
    let reader = reader.with_guessed_format().map_err(|e| e.to_string())?;
    let (width, height) = reader.into_dimensions().map_err(|e| e.to_string())?;
    check_pixels(Size { height, width })?;
    let picture = image::load_from_memory(bytes).map_err(|e| e.to_string())?;
    let size = args.size.or(wanted.size);
    let size = size.unwrap_or(Size { height: picture.height(), width: picture.width() });
    check_pixels(size)?;
    let fits = (picture.width(), picture.height()) == (size.width, size.height);
    let pixels = match (wanted.channels, fits) {
        (1, true) => picture.to_luma32f().into_raw(),
        (1, false) => {
            resize(&picture.to_luma32f(), size.width, size.height, FilterType::Triangle).into_raw()
        }
        (3, true) => picture.to_rgb32f().into_raw(),
        (3, false) => {
            resize(&picture.to_rgb32f(), size.width, size.height, FilterType::Triangle).into_raw()
        }
        (n, _) => return Err(format!("the model takes {n} channels; pictures have 1 or 3")),
    };
    let scale = Scale::new(args, wanted.channels)?;
    let (h, w, c) = (size.height as usize, size.width as usize, wanted.channels);
    let tensor = Tensor::from_fn(Shape::from([1, c, h, w]), |i| {
        let (channel, pixel) = (i / (h * w), i % (h * w));
        scale.apply(channel, pixels.get(pixel * c + channel).copied().unwrap_or(0.0))
    });
    tensor.map_err(|e| e.to_string())
}

/// Mean and standard deviation for each channel.
struct Scale(Vec<(f32, f32)>);

impl Scale {
    fn new(args: &PictureArgs, channels: usize) -> Result<Self, String> {
        let each = |name: &str, values: &[f32], default: f32| match values.len() {
            0 => Ok(vec![default; channels]),
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
    bytes.starts_with(b"\x89PNG") || bytes.starts_with(b"\xff\xd8\xff")
}

impl PictureArgs {
    /// An error where the options are set though no input is a picture.
    pub(crate) fn check_used(&self, pictures: usize) -> Result<(), Failure> {
        if pictures == 0 && !(self.mean.is_empty() && self.std.is_empty() && self.size.is_none()) {
            return Err(Failure::usage(
                "--mean, --std and --size apply to pictures, and no input is one",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageFormat, RgbImage};

    /// Red, green; blue, white.
    fn png() -> Vec<u8> {
        let pixels = vec![255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];
        let mut out = std::io::Cursor::new(Vec::new());
        RgbImage::from_raw(2, 2, pixels).unwrap().write_to(&mut out, ImageFormat::Png).unwrap();
        out.into_inner()
    }

    fn args(mean: &[f32], std: &[f32], size: Option<&str>) -> PictureArgs {
        let size = size.map(|s| s.parse().unwrap());
        PictureArgs { mean: mean.to_vec(), std: std.to_vec(), size }
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

//! How pictures become what a model takes: what the caller says, the file `model.preprocess.json`
//! beside the model, and the customs of classifiers, detectors and segmenters, in this order.
//!
//! The file is one object with the members of [`Recipe`], none of which must be there:
//!
//! ```json
//! {"short": 256, "crop": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
//!  "filter": "bilinear", "order": "rgb", "labels": "imagenet"}
//! ```
//!
//! It may also be what Hugging Face's processors of images write (`preprocessor_config.json`).

use serde::Deserialize;

use crate::beside::Members;
use crate::resample::resize;
use crate::{Filter, Names, Pixels, Size, VisionError, Wanted};

/// How pictures become tensors. What is left open takes the whole picture as it is, with numbers
/// from 0 to 1.
///
/// It can be read from JSON, and with the feature `clap` from the command line: its members are
/// described in the words of that.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Pictures (png, jpeg, webp, bmp)"))]
#[serde(try_from = "Members")]
pub struct Recipe {
    /// Subtracted from each channel once pixels are scaled to 0..1; one number, or one for each
    /// channel in the order red, green, blue (ImageNet: 0.485,0.456,0.406). This and the options
    /// below may also stand in a file beside the model, MODEL.preprocess.json, as members of one
    /// object, or in Hugging Face's words; the command line counts more [default: 0]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "R,G,B", value_delimiter = ',', allow_negative_numbers = true, value_parser = parse_mean)
    )]
    pub mean: Vec<f32>,
    /// Each channel is divided by this after --mean; same form (ImageNet: 0.229,0.224,0.225)
    /// [default: 1]
    #[cfg_attr(feature = "clap", arg(long, value_name = "R,G,B", value_delimiter = ',', value_parser = parse_std))]
    pub std: Vec<f32>,
    /// Resize to this height and width (the whole picture) [default: the size recorded in the
    /// model]
    #[cfg_attr(feature = "clap", arg(long, value_name = "HxW"))]
    pub size: Option<Size>,
    /// Resize so that the shorter side has N pixels, then cut out the middle: --crop, else the size
    /// recorded in the model
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", conflicts_with_all = ["size", "letterbox"], value_parser = clap::value_parser!(u32).range(1..=1 << 15)))]
    pub short: Option<u32>,
    /// Cut this height and width out of the middle of the resized picture; black where it is
    /// smaller
    #[cfg_attr(feature = "clap", arg(long, value_name = "HxW", conflicts_with = "letterbox"))]
    pub crop: Option<Size>,
    /// Keep the proportions: fit the picture into --size, or the size recorded in the model, with
    /// grey beside it, as ultralytics does
    #[cfg_attr(feature = "clap", arg(long))]
    pub letterbox: bool,
    /// How to resize: bilinear and bicubic to the last bit as Pillow does, and torchvision with it
    /// [default: bilinear; linear with --letterbox]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILTER", value_enum))]
    pub filter: Option<Filter>,
    /// The order in which the model takes the channels [default: rgb]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ORDER", value_enum))]
    pub order: Option<Order>,
    /// Leave pictures as their files have them, however the camera was held (EXIF)
    #[cfg_attr(feature = "clap", arg(long))]
    pub no_exif: bool,
    /// Names of the classes; on the command line an option of its own.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub labels: Option<Names>,
}

/// An order of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Red, green, blue
    Rgb,
    /// Blue, green, red
    Bgr,
}

/// Where a picture went: `model = picture * scale + offset`, for x and y, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placement {
    /// Pixels of the model for one of the picture, along x and y.
    pub scale: [f64; 2],
    /// Where the picture's corner went, x and y.
    pub offset: [f64; 2],
}

/// For clap: what is subtracted.
#[cfg(feature = "clap")]
fn parse_mean(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|n: &f32| n.is_finite());
    number.ok_or_else(|| "a finite number".into())
}

/// For clap: what is divided by. By what is hardly more than zero numbers become infinite.
#[cfg(feature = "clap")]
fn parse_std(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|n: &f32| n.is_normal());
    number.ok_or_else(|| "a finite number other than 0".into())
}

/// Brightness beside a picture that is fitted.
const GREY: u8 = 114;

/// The shorter side before torchvision cuts 224 pixels out of it.
const SHORT_OF_224: f64 = 256.0 / 224.0;

impl Recipe {
    /// What torchvision's classifiers take: the shorter side resized to 256, the middle 224 x 224,
    /// colours as ImageNet's mean and deviation; in proportion for another size.
    #[must_use]
    pub fn of_classifier(wanted: Wanted) -> Self {
        if wanted.channels != 3 {
            return Self::default();
        }
        let crop = wanted.size.unwrap_or(Size { height: 224, width: 224 });
        let short = (f64::from(crop.height.min(crop.width)) * SHORT_OF_224).round() as u32;
        Self {
            short: Some(short),
            crop: Some(crop),
            mean: vec![0.485, 0.456, 0.406],
            std: vec![0.229, 0.224, 0.225],
            ..Self::default()
        }
    }

    /// What ultralytics' detectors take: the picture fitted into the model's size, else 640 x 640.
    #[must_use]
    pub fn of_detector(wanted: Wanted) -> Self {
        let size = wanted.size.unwrap_or(Size { height: 640, width: 640 });
        Self { letterbox: true, size: Some(size), ..Self::default() }
    }

    /// What torchvision's segmenters take: the model's size, else a shorter side of 520.
    #[must_use]
    pub fn of_segmenter(wanted: Wanted) -> Self {
        let short = wanted.size.is_none().then_some(520);
        Self { short, crop: None, ..Self::of_classifier(wanted) }
    }

    /// This recipe; what it leaves open as the file beside the model says, or without one as
    /// `custom` does.
    ///
    /// # Errors
    /// Those of [`beside`](Self::beside).
    pub fn for_model(&self, model: &str, custom: Self) -> Result<Self, VisionError> {
        Ok(self.clone().over(Self::beside(model)?.unwrap_or(custom)))
    }

    /// This one, and `base` where it says nothing, nor the opposite.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        let whole = self.size.is_some() || self.letterbox;
        let several = |own: Vec<f32>, base: Vec<f32>| if own.is_empty() { base } else { own };
        Self {
            size: self.size.or(base.size.filter(|_| self.short.is_none())),
            short: self.short.or(base.short.filter(|_| !whole)),
            crop: self.crop.or(base.crop.filter(|_| !whole)),
            letterbox: self.letterbox
                || (base.letterbox && self.short.is_none() && self.crop.is_none()),
            mean: several(self.mean, base.mean),
            std: several(self.std, base.std),
            filter: self.filter.or(base.filter),
            order: self.order.or(base.order),
            no_exif: self.no_exif || base.no_exif,
            labels: self.labels.or(base.labels),
        }
    }

    pub(crate) fn reverses_channels(&self) -> bool {
        self.order == Some(Order::Bgr)
    }

    /// The picture in the size that the model takes, and where it went.
    pub(crate) fn place(
        &self,
        picture: &Pixels,
        wanted: Option<Size>,
    ) -> Result<(Pixels, Placement), VisionError> {
        let from = picture.size;
        if self.letterbox {
            let into = self.size.or(wanted).ok_or(VisionError::NoSize)?;
            return self.fit(picture, into.checked()?);
        }
        let crop = self.crop.or(wanted.filter(|_| self.short.is_some()));
        let to = match self.short {
            Some(short) => shorter(from, short),
            None => self.size.or(wanted.filter(|_| crop.is_none())).unwrap_or(from),
        };
        let to = to.checked()?;
        let resized = resize(picture, to, self.filter.unwrap_or_default())?;
        let ratio = |to: u32, from: u32| f64::from(to) / f64::from(from);
        let scale = [ratio(to.width, from.width), ratio(to.height, from.height)];
        let Some(crop) = crop else {
            return Ok((resized, Placement { scale, offset: [0.0; 2] }));
        };
        let (left, top) = (middle(to.width, crop.width), middle(to.height, crop.height));
        let offset = [left as f64, top as f64];
        Ok((resized.onto(crop.checked()?, left, top, 0)?, Placement { scale, offset }))
    }

    /// As ultralytics' LetterBox: one scale for both sides, rounded to even, in the middle.
    fn fit(&self, picture: &Pixels, into: Size) -> Result<(Pixels, Placement), VisionError> {
        let from = picture.size;
        let ratio = |to: u32, from: u32| f64::from(to) / f64::from(from);
        let scale = ratio(into.height, from.height).min(ratio(into.width, from.width));
        let side = |n: u32| (f64::from(n) * scale).round_ties_even().max(1.0) as u32;
        let to = Size { height: side(from.height), width: side(from.width) }.checked()?;
        let before = |outer: u32, inner: u32| {
            ((f64::from(outer) - f64::from(inner)) / 2.0 - 0.1).round_ties_even() as i64
        };
        let (left, top) = (before(into.width, to.width), before(into.height, to.height));
        let resized = resize(picture, to, self.filter.unwrap_or(Filter::Linear))?;
        let placement = Placement { scale: [scale; 2], offset: [left as f64, top as f64] };
        Ok((resized.onto(into, left, top, GREY)?, placement))
    }
}

/// torchvision's `Resize(short)`: the longer side in proportion, rounded down.
fn shorter(from: Size, short: u32) -> Size {
    let (low, high) = (from.height.min(from.width), from.height.max(from.width));
    let long = u64::from(short) * u64::from(high) / u64::from(low.max(1));
    let long = u32::try_from(long).unwrap_or(u32::MAX);
    match from.height <= from.width {
        true => Size { height: short, width: long },
        false => Size { height: long, width: short },
    }
}

/// Where torchvision's `CenterCrop` puts the picture relative to what is cut out: halves are
/// rounded to even where it cuts, down where it pads.
fn middle(from: u32, crop: u32) -> i64 {
    match from >= crop {
        true => -((f64::from(from - crop) / 2.0).round_ties_even() as i64),
        false => i64::from((crop - from) / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    fn ramp(of: Size) -> Pixels {
        Pixels { size: of, channels: 1, bytes: (0..of.pixels()).map(|i| i as u8).collect() }
    }

    #[test]
    fn sides_as_torchvision_computes_them() {
        // torchvision.transforms.Resize(256) of 375 x 500 and 500 x 333.
        assert_eq!(shorter(size(375, 500), 256), size(256, 341));
        assert_eq!(shorter(size(500, 333), 256), size(384, 256));
        assert_eq!(shorter(size(1, 1 << 15), 1 << 15).width, 1 << 30);
        // CenterCrop: 341 - 224 = 117, round(58.5) = 58; 227 - 224 = 3, round(1.5) = 2.
        assert_eq!([middle(341, 224), middle(227, 224), middle(5, 8)], [-58, -2, 1]);
    }

    #[test]
    fn the_middle_is_cut_out_or_padded() {
        let args = Recipe { crop: Some(size(2, 4)), ..Default::default() };
        let (made, placement) = args.place(&ramp(size(4, 2)), None).unwrap();
        assert_eq!(made.bytes, [0, 2, 3, 0, 0, 4, 5, 0]);
        assert_eq!(placement, Placement { scale: [1.0; 2], offset: [1.0, -1.0] });
    }

    #[test]
    fn letterbox_keeps_proportions() {
        let args = Recipe { letterbox: true, ..Default::default() };
        assert!(args.place(&ramp(size(2, 4)), None).is_err());
        let (made, placement) = args.place(&ramp(size(2, 4)), Some(size(4, 4))).unwrap();
        assert_eq!(made.bytes, [[114; 4], [0, 1, 2, 3], [4, 5, 6, 7], [114; 4]].concat());
        assert_eq!(placement, Placement { scale: [1.0; 2], offset: [0.0, 1.0] });
        // 1080 x 810 into 640: 640 x 480, 80 on the left.
        let (_, placement) = args.place(&ramp(size(1080, 810)), Some(size(640, 640))).unwrap();
        assert_eq!(placement, Placement { scale: [640.0 / 1080.0; 2], offset: [80.0, 0.0] });
    }

    #[test]
    fn the_command_line_counts_more() {
        let cut = Recipe { short: Some(8), crop: Some(size(4, 4)), ..Default::default() };
        let boxed = Recipe { letterbox: true, size: Some(size(9, 9)), ..Default::default() };
        let whole = Recipe { size: Some(size(5, 5)), ..Default::default() };
        assert_eq!(whole.clone().over(cut.clone()), whole);
        assert_eq!(cut.clone().over(boxed.clone()), cut);
        let both = Recipe { letterbox: true, ..whole.clone() };
        assert_eq!(whole.over(boxed), both);
    }
}

//! How pictures become what a model takes: options of the command line, the file
//! `model.preprocess.json` beside the model, and the customs of classifiers, detectors and
//! segmenters, in this order.
//!
//! The file is one object with the members of [`PictureArgs`], none of which must be there:
//!
//! ```json
//! {"short": 256, "crop": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
//!  "filter": "bilinear", "order": "rgb", "labels": "imagenet"}
//! ```

use super::{Filter, Pixels, Size, Wanted, check_pixels, resize};
use crate::failure::Failure;
use crate::labels::Names;
use plutino::tensor::alloc;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// How pictures become tensors.
#[derive(Debug, Clone, Default, PartialEq, clap::Args, Deserialize)]
#[command(next_help_heading = "Pictures (png, jpeg)")]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PictureArgs {
    /// Subtracted from each channel once pixels are scaled to 0..1; one number, or one for each
    /// channel in the order red, green, blue (ImageNet: 0.485,0.456,0.406). This and the options
    /// below may also stand in a file beside the model, MODEL.preprocess.json, as members of one
    /// object; the command line counts more [default: 0]
    #[arg(long, value_name = "R,G,B", value_delimiter = ',', allow_negative_numbers = true)]
    pub(super) mean: Vec<f32>,
    /// Each channel is divided by this after --mean; same form (ImageNet: 0.229,0.224,0.225)
    /// [default: 1]
    #[arg(long, value_name = "R,G,B", value_delimiter = ',')]
    pub(super) std: Vec<f32>,
    /// Resize to this height and width (the whole picture) [default: the size recorded in the
    /// model]
    #[arg(long, value_name = "HxW")]
    pub(super) size: Option<Size>,
    /// Resize so that the shorter side has N pixels, then cut out the middle: --crop, else the size
    /// recorded in the model
    #[arg(long, value_name = "N", conflicts_with_all = ["size", "letterbox"],
          value_parser = clap::value_parser!(u32).range(1..=1 << 15))]
    pub(super) short: Option<u32>,
    /// Cut this height and width out of the middle of the resized picture; black where it is
    /// smaller
    #[arg(long, value_name = "HxW", conflicts_with = "letterbox")]
    pub(super) crop: Option<Size>,
    /// Keep the proportions: fit the picture into --size, or the size recorded in the model, with
    /// grey beside it, as ultralytics does
    #[arg(long)]
    pub(super) letterbox: bool,
    /// How to resize: bilinear and bicubic to the last bit as Pillow does, and torchvision with it
    /// [default: bilinear; linear with --letterbox]
    #[arg(long, value_name = "FILTER", value_enum)]
    pub(super) filter: Option<Filter>,
    /// The order in which the model takes the channels [default: rgb]
    #[arg(long, value_name = "ORDER", value_enum)]
    pub(super) order: Option<Order>,
    /// Names of the classes; only in the file.
    #[arg(skip)]
    pub(crate) labels: Option<Names>,
}

/// An order of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// Red, green, blue
    Rgb,
    /// Blue, green, red
    Bgr,
}

/// Where a picture went: `model = picture * scale + offset`, for x and y, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Placement {
    pub(crate) scale: [f64; 2],
    pub(crate) offset: [f64; 2],
}

/// Brightness beside a picture that is fitted.
const GREY: u8 = 114;

/// The shorter side before torchvision cuts 224 pixels out of it.
const SHORT_OF_224: f64 = 256.0 / 224.0;

impl PictureArgs {
    /// What torchvision's classifiers take: the shorter side resized to 256, the middle 224 x 224,
    /// colours as ImageNet's mean and deviation; in proportion for another size.
    pub(crate) fn of_classifier(wanted: Wanted) -> Self {
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
    pub(crate) fn of_detector(wanted: Wanted) -> Self {
        let size = wanted.size.unwrap_or(Size { height: 640, width: 640 });
        Self { letterbox: true, size: Some(size), ..Self::default() }
    }

    /// What torchvision's segmenters take: the model's size, else a shorter side of 520.
    pub(crate) fn of_segmenter(wanted: Wanted) -> Self {
        let short = wanted.size.is_none().then_some(520);
        Self { short, crop: None, ..Self::of_classifier(wanted) }
    }

    /// The options, with those of the file beside the model for what they leave open; without a
    /// file, those of `custom`.
    pub(crate) fn beside(&self, model: &str, custom: Self) -> Result<Self, Failure> {
        let path = file_beside(model);
        let base = match std::fs::read(&path) {
            Ok(text) => Self::parse(&text)
                .map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => custom,
            Err(e) => {
                return Err(Failure::usage(format!("cannot read '{}': {e}", path.display())));
            }
        };
        Ok(self.clone().over(base))
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err("it must hold one object, in braces".into());
        }
        let args: Self = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if args.short.is_some_and(|short| !(1..=1 << 15).contains(&short)) {
            return Err("\"short\" must be from 1 to 32768".into());
        }
        let cut = args.short.is_some() || args.crop.is_some();
        match (args.letterbox && cut, args.short.is_some() && args.size.is_some()) {
            (true, _) => Err("\"letterbox\" goes with neither \"short\" nor \"crop\"".into()),
            (_, true) => Err("\"short\" and \"size\" exclude each other".into()),
            _ => Ok(args),
        }
    }

    /// These, and `base` where they say nothing, nor the opposite.
    fn over(self, base: Self) -> Self {
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
            labels: self.labels.or(base.labels),
        }
    }

    /// An error where options are set though no input is a picture.
    pub(crate) fn check_used(&self, pictures: usize) -> Result<(), Failure> {
        if pictures == 0 && *self != Self::default() {
            return Err(Failure::usage(
                "--mean, --std, --size, --short, --crop, --letterbox, --filter and --order apply to \
                 pictures, and no input is one",
            ));
        }
        Ok(())
    }

    pub(super) fn reverses_channels(&self) -> bool {
        self.order == Some(Order::Bgr)
    }

    /// The picture in the size that the model takes, and where it went.
    pub(super) fn place(
        &self,
        picture: Pixels,
        wanted: Option<Size>,
    ) -> Result<(Pixels, Placement), String> {
        let from = picture.size;
        if self.letterbox {
            let into = self.size.or(wanted).ok_or("the model records no size: give --size")?;
            return self.fit(&picture, check_pixels(into)?);
        }
        let crop = self.crop.or(wanted.filter(|_| self.short.is_some()));
        let to = match self.short {
            Some(short) => shorter(from, short),
            None => self.size.or(wanted.filter(|_| crop.is_none())).unwrap_or(from),
        };
        let to = check_pixels(to)?;
        let resized = resize(&picture, to, self.filter.unwrap_or_default());
        let ratio = |to: u32, from: u32| f64::from(to) / f64::from(from);
        let scale = [ratio(to.width, from.width), ratio(to.height, from.height)];
        let Some(crop) = crop else {
            return Ok((resized, Placement { scale, offset: [0.0; 2] }));
        };
        let (left, top) = (middle(to.width, crop.width), middle(to.height, crop.height));
        let offset = [left as f64, top as f64];
        Ok((resized.onto(check_pixels(crop)?, left, top, 0)?, Placement { scale, offset }))
    }

    /// As ultralytics' LetterBox: one scale for both sides, rounded to even, in the middle.
    fn fit(&self, picture: &Pixels, into: Size) -> Result<(Pixels, Placement), String> {
        let from = picture.size;
        let ratio = |to: u32, from: u32| f64::from(to) / f64::from(from);
        let scale = ratio(into.height, from.height).min(ratio(into.width, from.width));
        let side = |n: u32| (f64::from(n) * scale).round_ties_even().max(1.0) as u32;
        let to = check_pixels(Size { height: side(from.height), width: side(from.width) })?;
        let before = |outer: u32, inner: u32| {
            ((f64::from(outer) - f64::from(inner)) / 2.0 - 0.1).round_ties_even() as i64
        };
        let (left, top) = (before(into.width, to.width), before(into.height, to.height));
        let resized = resize(picture, to, self.filter.unwrap_or(Filter::Linear));
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

/// `model.preprocess.json` for `model.pnnx.param`.
fn file_beside(model: &str) -> PathBuf {
    let stem = model.strip_suffix(".param").unwrap_or(model);
    let stem = stem.strip_suffix(".pnnx").unwrap_or(stem);
    Path::new(&format!("{stem}.preprocess.json")).to_owned()
}

impl Pixels {
    /// This picture on a ground of the given brightness, its corner at column `left` and row `top`,
    /// which may lie outside: what does not fit is cut off.
    fn onto(&self, ground: Size, left: i64, top: i64, grey: u8) -> Result<Self, String> {
        let c = self.channels;
        let row = ground.width as usize * c;
        let mut bytes =
            alloc::filled(ground.pixels() * c, grey).map_err(|error| error.to_string())?;
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
        let args = PictureArgs { crop: Some(size(2, 4)), ..Default::default() };
        let (made, placement) = args.place(ramp(size(4, 2)), None).unwrap();
        assert_eq!(made.bytes, [0, 2, 3, 0, 0, 4, 5, 0]);
        assert_eq!(placement, Placement { scale: [1.0; 2], offset: [1.0, -1.0] });
    }

    #[test]
    fn letterbox_keeps_proportions() {
        let args = PictureArgs { letterbox: true, ..Default::default() };
        assert!(args.place(ramp(size(2, 4)), None).is_err());
        let (made, placement) = args.place(ramp(size(2, 4)), Some(size(4, 4))).unwrap();
        assert_eq!(made.bytes, [[114; 4], [0, 1, 2, 3], [4, 5, 6, 7], [114; 4]].concat());
        assert_eq!(placement, Placement { scale: [1.0; 2], offset: [0.0, 1.0] });
        // 1080 x 810 into 640: 640 x 480, 80 on the left.
        let (_, placement) = args.place(ramp(size(1080, 810)), Some(size(640, 640))).unwrap();
        assert_eq!(placement, Placement { scale: [640.0 / 1080.0; 2], offset: [80.0, 0.0] });
    }

    #[test]
    fn files() {
        let parse = |text: &str| PictureArgs::parse(text.as_bytes());
        let all = r#"{"short": 256, "crop": [224, 192], "mean": [0.5], "std": [0.25, 0.5, 1],
            "filter": "bicubic", "order": "bgr", "labels": ["a", "b"]}"#;
        let args = parse(all).unwrap();
        assert_eq!((args.short, args.crop), (Some(256), Some(size(224, 192))));
        assert_eq!((args.filter, args.order), (Some(Filter::Bicubic), Some(Order::Bgr)));
        assert_eq!(parse(r#"{"size": "8x9"}"#).unwrap().size, Some(size(8, 9)));
        for wrong in [
            r#"{"sise": 8}"#,
            r#"{"size": 0}"#,
            r#"{"short": 0}"#,
            r#"{"short": 99999}"#,
            r#"{"short": 8, "size": 8}"#,
            r#"{"letterbox": true, "crop": 8}"#,
            r#"{"labels": "names.txt"}"#,
            "[]",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(file_beside("a.pnnx.param"), Path::new("a.preprocess.json"));
        assert_eq!(file_beside("a/b.param"), Path::new("a/b.preprocess.json"));
    }

    #[test]
    fn the_command_line_counts_more() {
        let cut = PictureArgs { short: Some(8), crop: Some(size(4, 4)), ..Default::default() };
        let boxed = PictureArgs { letterbox: true, size: Some(size(9, 9)), ..Default::default() };
        let whole = PictureArgs { size: Some(size(5, 5)), ..Default::default() };
        assert_eq!(whole.clone().over(cut.clone()), whole);
        assert_eq!(cut.clone().over(boxed.clone()), cut);
        let both = PictureArgs { letterbox: true, ..whole.clone() };
        assert_eq!(whole.over(boxed), both);
    }
}

//! Pictures for models: files become what a model takes, and what it puts out becomes classes,
//! boxes and masks.
//!
//! - [`Pixels`] are read from PNG, JPEG, WebP and BMP files, turned as a camera noted in them.
//! - A [`Recipe`] says how they become a tensor: resized to the last bit as [Pillow] and
//!   [torchvision] do it, cut, letterboxed as ultralytics does, scaled. It may stand beside the
//!   model ([`Recipe::beside`]), also as Hugging Face's processors write it.
//! - [`scores`] and [`likeliest`] read what a classifier puts out, [`Boxes`] that of a detector,
//!   [`Segments`] that of a segmenter; a [`Suppressor`] leaves out boxes that overlap a better one
//!   as `torchvision.ops.batched_nms` does; [`Labels`] know names of classes.
//! - [`Pixels`] can be drawn on, and saved.
//!
//! ```
//! use plutino::{Model, SessionOptions};
//! use plutino_vision::{Boxes, Pixels, Recipe, Suppressor, Wanted};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/shapes/");
//! let model = Model::load(format!("{folder}detector/model.pnnx.param"))?;
//! let session = model.session(SessionOptions::default())?;
//! let picture = Pixels::open(format!("{folder}0.png"))?;
//!
//! let wanted = Wanted::by(&model).ok_or("not a model of pictures")?;
//! let recipe = Recipe::beside(model.file())?.unwrap_or_else(|| Recipe::of_detector(wanted));
//! let (tensor, placement) = recipe.prepare(&picture, wanted)?;
//!
//! let boxes = Boxes::read(&session.run(&[tensor])?, None, 0.25)?;
//! for found in Suppressor::new(0.45)?.suppress(boxes.found, 300)? {
//!     let [x1, y1, x2, y2] = found.in_picture(&placement, picture.size()).corners;
//!     println!("class {} at ({x1:.0}, {y1:.0}) to ({x2:.0}, {y2:.0})", found.class);
//! }
//! # Ok(()) }
//! ```
//!
//! [Pillow]: https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.resize
//! [torchvision]: https://docs.pytorch.org/vision/stable/transforms.html
#![forbid(unsafe_code)]

mod beside;
mod classes;
mod decode;
mod detect;
mod draw;
mod error;
mod labels;
mod pixels;
mod prepare;
mod recipe;
mod resample;
mod segments;
mod wanted;

pub use classes::{Class, likeliest, scores};
pub use decode::Format;
pub use detect::{Boxes, Detection, Layout, Suppressor};
pub use draw::{Colour, LETTER, palette, save_classes};
pub use error::{VisionError, Wants};
pub use labels::{Labels, Names, Shipped};
pub use pixels::{Pixels, Size};
pub use recipe::{Order, Placement, Recipe};
pub use resample::Filter;
pub use segments::Segments;
pub use wanted::Wanted;

/// The bytes' check sum, which tests compare with that of Pillow's or torchvision's results.
#[cfg(test)]
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()))
    })
}

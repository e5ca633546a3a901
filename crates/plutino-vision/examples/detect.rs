//! Finds things in a picture and draws boxes around them.
//!
//! ```console
//! $ cargo run --release -p plutino-vision --example detect -- MODEL.pnnx.param PICTURE OUT.png
//! ```
//! Without arguments, squares and triangles of the repository's `fixtures/shapes`.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::{Model, SessionOptions};
use plutino_vision::{Boxes, Labels, Pixels, Recipe, Suppressor, Wanted, palette};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let shapes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/shapes");
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: String| arguments.next().unwrap_or(default);
    let model = Model::load(next(format!("{shapes}/detector/model.pnnx.param")))?;
    let picture = Pixels::open(next(format!("{shapes}/0.png")))?;
    let out = next(std::env::temp_dir().join("boxes.png").display().to_string());

    let wanted = Wanted::by(&model).ok_or("this model takes no picture")?;
    let recipe = Recipe::default().for_model(model.file(), Recipe::of_detector(wanted))?;
    let (tensor, placement) = recipe.prepare(&picture, wanted)?;
    let session = model.session(SessionOptions::default())?;
    let boxes = Boxes::read(&session.run(&[tensor])?, None, 0.25)?;

    let labels = Labels::read(recipe.labels.as_ref())?;
    let size = picture.size();
    let mut canvas = picture.canvas(0)?;
    for found in Suppressor::new(0.45)?.suppress(boxes.found, 300)? {
        let found = found.in_picture(&placement, size);
        canvas.frame(found.corners, 1, palette(found.class + 1));
        println!("{:.2} {} at {:.0?}", found.score, labels.name(found.class), found.corners);
    }
    Ok(canvas.save(out.as_ref())?)
}

//! Says what a picture shows.
//!
//! ```console
//! $ cargo run --release -p plutino-vision --example classify_picture -- MODEL.pnnx.param PICTURE
//! ```
//! Without arguments, a handwritten digit of the repository's `fixtures/digits`.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::{Model, SessionOptions};
use plutino_vision::{Labels, Pixels, Recipe, Wanted, likeliest, scores};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/digits");
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: String| arguments.next().unwrap_or(default);
    let model = Model::load(next(format!("{digits}/model.pnnx.param")))?;
    let picture = Pixels::open(next(format!("{digits}/samples/3.png")))?;

    let wanted = Wanted::by(&model).ok_or("this model takes no picture")?;
    let recipe = Recipe::default().for_model(model.file(), Recipe::of_classifier(wanted))?;
    let (tensor, _) = recipe.prepare(&picture, wanted)?;
    let outputs = model.session(SessionOptions::default())?.run(&[tensor])?;

    let scores = scores(&outputs)?;
    let labels = Labels::read(recipe.labels.as_ref())?.of_classes(scores.numel())?;
    for class in likeliest(&scores, 3)?.iter().flatten() {
        println!(
            "{:6.2} %  {} {}",
            class.probability * 100.0,
            class.index,
            labels.name(class.index)
        );
    }
    Ok(())
}

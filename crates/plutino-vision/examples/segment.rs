//! Says what each pixel of a picture belongs to, and writes it as a picture of classes.
//!
//! ```console
//! $ cargo run --release -p plutino-vision --example segment -- MODEL.pnnx.param PICTURE OUT.png
//! ```
//! Without arguments, squares and triangles of the repository's `fixtures/shapes`.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::{Model, SessionOptions};
use plutino_vision::{Labels, Pixels, Recipe, Segments, Size, Wanted, save_classes};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let shapes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/shapes");
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: String| arguments.next().unwrap_or(default);
    let model = Model::load(next(format!("{shapes}/segmenter/model.pnnx.param")))?;
    let picture = Pixels::open(next(format!("{shapes}/0.png")))?;
    let out = next(std::env::temp_dir().join("classes.png").display().to_string());

    let wanted = Wanted::by(&model).ok_or("this model takes no picture")?;
    let recipe = Recipe::default().for_model(model.file(), Recipe::of_segmenter(wanted))?;
    let (tensor, placement) = recipe.prepare(&picture, wanted)?;
    let &[_, _, height, width] = tensor.shape().dims() else { return Err("no picture".into()) };
    let seen = Size { height: height as u32, width: width as u32 };
    let session = model.session(SessionOptions::default())?;
    let segments = Segments::read(&session.run(&[tensor])?, seen, &placement, picture.size())?;

    let labels = Labels::read(recipe.labels.as_ref())?.of_classes(segments.count)?;
    for class in 0..segments.count {
        let pixels = segments.classes.iter().filter(|&&c| usize::from(c) == class).count();
        println!("{pixels:6} pixels of {}", labels.name(class));
    }
    Ok(save_classes(out.as_ref(), picture.size(), &segments.classes)?)
}

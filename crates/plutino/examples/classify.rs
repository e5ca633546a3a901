//! Classifies an image: loads a model and an npy file, and shows the likeliest classes.
//!
//! ```console
//! $ cargo run --release -p plutino --example classify -- MODEL.pnnx.param IMAGE.npy
//! ```
//! Without arguments, a handwritten digit of the repository's `fixtures/digits`.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::npy::{self, npz};
use plutino::{Model, SessionOptions, Tensor};
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (model, image) = match (arguments.next(), arguments.next()) {
        (Some(model), Some(image)) => (PathBuf::from(model), npy::load(image)?),
        _ => digit()?,
    };
    let model = Model::load(model)?;
    // A session is made once and used for every image, from as many threads as you like.
    let session = model.session(SessionOptions::default())?;
    let outputs = session.run(&[image])?;

    let scores = outputs[0].as_slice::<f32>()?;
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
    let mut classes: Vec<usize> = (0..scores.len()).collect();
    classes.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    for &class in classes.iter().take(3) {
        println!("{:6.2} %  {class}", 100.0 * (scores[class] - largest).exp() / sum);
    }
    Ok(())
}

/// A model and one of its images.
fn digit() -> Result<(PathBuf, Tensor), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/digits");
    let images = npz::load(folder.join("inputs.npz"))
        .map_err(|e| format!("outside of the repository, name a model and an image: {e}"))?;
    let (_, images) = images.first().ok_or("no image")?;
    let image = images.view().slice(0, 0..1, 1)?.to_tensor()?;
    Ok((folder.join("model.pnnx.param"), image))
}

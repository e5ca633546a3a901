//! The model that is built into the command: a small network that reads handwritten digits.
//!
//! Model and picture are the fixture `digits`, copied to this crate's `assets/` so that they are
//! part of the published package; a test compares the copies.

use crate::failure::Failure;
use crate::output::Output;
use plutino::{Model, Tensor, ir};
use std::io::Write;

const PARAM: &[u8] = include_bytes!("../assets/digits/model.pnnx.param");
const BIN: &[u8] = include_bytes!("../assets/digits/model.pnnx.bin");
/// A digit that the network has not seen in training.
pub(crate) const SAMPLE: &[u8] = include_bytes!("../assets/digits/sample.png");

pub(crate) fn model() -> Result<Model, Failure> {
    let graph = ir::Graph::from_bytes(PARAM, BIN).map_err(plutino::ModelError::from)?;
    Ok(Model::from_graph(graph)?)
}

/// Draws a grey picture of shape (1, 1, height, width), values 0..1: two columns for a pixel.
pub(crate) fn draw(out: &mut Output, picture: &Tensor) -> Result<(), Failure> {
    const SHADES: [&str; 5] = ["  ", "░░", "▒▒", "▓▓", "██"];
    let width = picture.shape().last().copied().unwrap_or(1).max(1);
    for row in picture.as_slice::<f32>()?.chunks(width) {
        let shade = |&v: &f32| {
            // Float to integer saturates; the index is at most the last shade.
            SHADES[((v * SHADES.len() as f32) as usize).min(SHADES.len() - 1)]
        };
        writeln!(out, "  {}", row.iter().map(shade).collect::<String>().trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_copies_are_the_fixture() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/digits");
        if !fixture.exists() {
            return; // a published package has no fixtures
        }
        let same = |copy: &[u8], name: &str| {
            let original = std::fs::read(fixture.join(name)).unwrap();
            assert!(
                copy == original,
                "copy fixtures/digits/{name} to crates/plutino-cli/assets/digits"
            );
        };
        same(PARAM, "model.pnnx.param");
        same(BIN, "model.pnnx.bin");
        same(SAMPLE, "samples/3.png");
    }
}

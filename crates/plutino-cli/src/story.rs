//! The decoder that is built into the command: it writes short stories about animals.
//!
//! It is the fixture `story`, copied to this crate's `assets/` so that it is part of the published
//! package; a test compares the copies.

use crate::failure::Failure;
use plutino::generate::{Decoder, Recipe, Tokenizer};
use plutino::{Model, ModelError, ModelOptions, SessionOptions, ir};

/// How a story begins where nobody says.
pub(crate) const PROMPT: &str = "Mira the fox";

const PARAM: &[u8] = include_bytes!("../assets/story/model.pnnx.param");
const BIN: &[u8] = include_bytes!("../assets/story/model.pnnx.bin");
/// Without weights of its own.
const STEP: &str = include_str!("../assets/story/model.step.pnnx.param");
const RECIPE: &[u8] = include_bytes!("../assets/story/model.generate.json");
const TOKENIZER: &[u8] = include_bytes!("../assets/story/tokenizer.json");

pub(crate) fn decoder(options: SessionOptions) -> Result<(Decoder, Tokenizer), Failure> {
    let malformed = |error: &dyn std::fmt::Display| Failure::Model(error.to_string());
    let first = Model::from_graph(ir::Graph::from_bytes(PARAM, BIN).map_err(ModelError::from)?)?;
    let step = ir::Graph::parse(STEP).map_err(|e| malformed(&e))?;
    let step = first.from_graph_sharing(step, ModelOptions::default())?;
    let recipe = Recipe::from_json(RECIPE).map_err(|e| malformed(&e))?;
    let tokenizer = Tokenizer::from_json(TOKENIZER).map_err(|e| malformed(&e))?;
    Ok((Decoder::new(first, Some(step), recipe, options)?, tokenizer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_copies_are_the_fixture() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/story");
        if !fixture.exists() {
            return; // a published package has no fixtures
        }
        for (copy, name) in [
            (PARAM, "model.pnnx.param"),
            (BIN, "model.pnnx.bin"),
            (STEP.as_bytes(), "model.step.pnnx.param"),
            (RECIPE, "model.generate.json"),
            (TOKENIZER, "tokenizer.json"),
        ] {
            let original = std::fs::read(fixture.join(name)).unwrap();
            assert!(
                copy == original,
                "copy fixtures/story/{name} to crates/plutino-cli/assets/story"
            );
        }
    }
}

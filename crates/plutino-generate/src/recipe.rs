//! What a file beside a decoder says of it: `model.generate.json`.

use crate::GenerateError;
use serde::Deserialize;
use std::io;
use std::path::Path;

/// What a decoder's inputs are, how far it sees, and where texts end. All of it may be left out.
///
/// ```json
/// {"inputs": ["tokens", "positions", "mask"], "context": 256, "stop": ["<|end|>", 2]}
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Recipe {
    /// What the first inputs are, in order, of both models where there are two; those behind them
    /// are caches. Without it, inputs are told apart by their dtypes and shapes.
    pub inputs: Option<Vec<InputRole>>,
    /// The most tokens that the model can see, the prompt's included.
    pub context: Option<usize>,
    /// Tokens that end a text.
    pub stop: Vec<Stop>,
}

/// What an input is fed with. N is the number of rows, T that of tokens in this run, S that of
/// tokens whose keys and values are in the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum InputRole {
    /// The tokens: (N, T).
    Tokens,
    /// The place of each token in its row, from 0: (N, T) or (T).
    Positions,
    /// Which tokens each may see: (N, 1, T, S + T) or (N, T, S + T), or, where the
    /// model itself hides what comes later, which tokens there are: (N, S + T). Floats are added
    /// to scores: 0, or negative infinity; integers and bools are 1 and 0.
    Mask,
}

/// A token that ends a text: its number, or what the tokenizer calls it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Stop {
    /// Its number.
    Token(u32),
    /// Its name.
    Name(String),
}

/// Of a recipe, at most.
const MOST_BYTES: u64 = 1 << 20;

impl Recipe {
    /// Reads a recipe; nothing at all where the file is not there.
    ///
    /// # Errors
    /// Where the file cannot be read, or says something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, GenerateError> {
        let path = path.as_ref();
        let wrong =
            |problem: String| GenerateError::Recipe { file: path.display().to_string(), problem };
        match plutino_ir::read_small(path, MOST_BYTES) {
            Ok(json) => Self::from_json(&json).map_err(|e| wrong(e.to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    /// A recipe in memory.
    ///
    /// # Errors
    /// Where it is none.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

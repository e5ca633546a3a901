//! Text generation with decoders that pnnx exported.
//!
//! ```text
//! Decoder::load  ->  Decoder::generate(prompts, options)  ->  tokens, one by one
//! ```
//! A [`Decoder`] is a model that takes tokens and yields a score for each token that may come next:
//! one file that sees all tokens each time, one that hands on caches of keys and values, or two,
//! prefill and step, that share their weights. A [`Generation`] feeds it and chooses tokens as
//! [`Sampling`] says. A [`Tokenizer`] makes tokens of text, a [`TextStream`] text of tokens, while
//! they come.
//!
//! ```no_run
//! use plutino_generate::{Decoder, GenerateOptions, TextStream, Tokenizer};
//! use plutino_runtime::SessionOptions;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let decoder = Decoder::load("story/model.pnnx.param", SessionOptions::default())?;
//! let tokenizer = Tokenizer::load("story/tokenizer.json")?;
//! let prompts = [tokenizer.encode("Mira the fox")?];
//! let options = GenerateOptions::default().with_stop(decoder.stop(&tokenizer)?);
//! let mut text = TextStream::new(&tokenizer);
//! for token in decoder.generate(&prompts, options)? {
//!     let token = token?;
//!     println!("{}", text.push(token.id)?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Which inputs a decoder may have, and how they are told apart: `docs/generate.md`, and
//! [`Recipe`].
#![forbid(unsafe_code)]

mod decoder;
mod error;
mod generation;
mod ports;
mod recipe;
mod rows;
mod sampling;
mod text;
mod tokenizer;

pub use decoder::Decoder;
pub use error::GenerateError;
pub use generation::{End, GenerateOptions, Generation, Timing, Token};
pub use recipe::{InputRole, Recipe, Stop};
pub use sampling::{Sampler, Sampling, SamplingError};
pub use text::TextStream;
pub use tokenizer::{Tokenizer, TokenizerError};

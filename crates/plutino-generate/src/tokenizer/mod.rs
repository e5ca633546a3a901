//! Text to tokens and back, as a `tokenizer.json` says.
//!
//! Read here are the tokenizers of the decoders that are common: pairs of bytes or of characters
//! (BPE), behind the splits of GPT-2, Llama 3 and Qwen 2 or none at all, with blanks as they are or
//! as `▁`. With the feature `tokenizers`, the crate of that name reads all others.

mod added;
mod bounds;
mod bpe;
mod decode;
mod file;
mod letters;
mod normalize;
mod split;

use added::Added;
use bounds::Bound;
use bpe::Bpe;
use decode::Decode;
use normalize::Normalize;
use plutino_ir::{quote, quote_path, read_small, told};
#[cfg(test)]
pub(crate) use split::byte_level;
use split::{Piece, Split};
use std::path::Path;

/// A tokenizer, or text, cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A file cannot be read.
    #[error("{file}: {error}", file = quote_path(file))]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        error: String,
    },
    /// The file is no tokenizer.
    #[error("{}: no tokenizer: {}", quote_path(file), told(problem))]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// The tokenizer has a part that is not read here.
    #[error(
        "{file}: {part} '{kind}' is read by the crate tokenizers only: build with --features tokenizers",
        file = quote_path(file), kind = quote(kind)
    )]
    Unsupported {
        /// The file.
        file: String,
        /// Which part: `model`, `pre_tokenizer`, ...
        part: &'static str,
        /// What it is.
        kind: String,
    },
    /// There is no such token.
    #[error("token {token} is not one of the tokenizer's {count}")]
    NoSuchToken {
        /// The token.
        token: u32,
        /// Number of tokens.
        count: usize,
    },
    /// The tokenizer makes more of a text than any real one does.
    #[error("the tokenizer makes {bytes} bytes of the text, {most} are possible")]
    TooLong {
        /// What one of its steps makes of the text.
        bytes: usize,
        /// What is possible for a text of this length.
        most: usize,
    },
    /// Text cannot be encoded.
    #[error("the text cannot be encoded: {0}")]
    Text(String),
}

/// What turns text into tokens and back.
pub struct Tokenizer(Kind);

enum Kind {
    Own(Box<Own>),
    #[cfg(feature = "tokenizers")]
    Crate(Box<tokenizers::Tokenizer>),
}

/// A tokenizer in its parts, in the order in which text goes through them.
struct Own {
    added: Added,
    normalize: Vec<Normalize>,
    split: Vec<Split>,
    bpe: Bpe,
    /// Tokens before and after those of a text.
    around: (Vec<u32>, Vec<u32>),
    decode: Option<Vec<Decode>>,
}

/// File name in the errors of tokenizers that come from memory.
const MEMORY: &str = "<memory>";

/// Of a tokenizer, at most: those of 250,000 tokens have 20 MB.
const MOST_BYTES: u64 = 256 << 20;

impl Tokenizer {
    /// Reads a `tokenizer.json`. What it says of padding and truncation is left to the caller.
    ///
    /// # Errors
    /// Where it cannot be read, or has parts that are not known.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let file = path.as_ref().display().to_string();
        let read = read_small(path, MOST_BYTES);
        let json =
            read.map_err(|e| TokenizerError::Io { file: file.clone(), error: e.to_string() })?;
        Self::read(&json, &file)
    }

    /// [`Tokenizer::load`] from memory.
    ///
    /// # Errors
    /// As [`Tokenizer::load`].
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        Self::read(json, MEMORY)
    }

    fn read(json: &[u8], file: &str) -> Result<Self, TokenizerError> {
        match file::read(json) {
            Ok(own) => Ok(Self(Kind::Own(Box::new(own)))),
            Err(file::Problem::Malformed(problem)) => {
                Err(TokenizerError::Malformed { file: file.to_owned(), problem })
            }
            #[cfg(feature = "tokenizers")]
            Err(file::Problem::Unsupported(..)) => {
                let read = tokenizers::Tokenizer::from_bytes(json);
                let malformed = |e: tokenizers::Error| TokenizerError::Malformed {
                    file: file.to_owned(),
                    problem: e.to_string(),
                };
                Ok(Self(Kind::Crate(Box::new(read.map_err(malformed)?))))
            }
            #[cfg(not(feature = "tokenizers"))]
            Err(file::Problem::Unsupported(part, kind)) => {
                Err(TokenizerError::Unsupported { file: file.to_owned(), part, kind })
            }
        }
    }

    /// The tokens of a text, with those that the tokenizer puts before and after it.
    ///
    /// # Errors
    /// Where a character has no token, and the tokenizer none for unknown ones.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match &self.0 {
            Kind::Own(own) => own.encode(text),
            #[cfg(feature = "tokenizers")]
            Kind::Crate(tokenizer) => {
                let encoding = tokenizer.encode(text, true);
                let encoding = encoding.map_err(|e| TokenizerError::Text(e.to_string()))?;
                Ok(encoding.get_ids().to_vec())
            }
        }
    }

    /// The text of these tokens, without special ones such as the end of a text. `U+FFFD` stands
    /// for bytes that are no text.
    ///
    /// # Errors
    /// Where there is no such token.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        match &self.0 {
            Kind::Own(own) => own.decode(tokens),
            #[cfg(feature = "tokenizers")]
            Kind::Crate(tokenizer) => {
                if let Some(&token) = tokens.iter().find(|t| tokenizer.id_to_token(**t).is_none()) {
                    let count = tokenizer.get_vocab_size(true);
                    return Err(TokenizerError::NoSuchToken { token, count });
                }
                tokenizer.decode(tokens, true).map_err(|e| TokenizerError::Text(e.to_string()))
            }
        }
    }

    /// Whether a token stands for no text, such as the end of one.
    pub fn is_special(&self, token: u32) -> bool {
        match &self.0 {
            Kind::Own(own) => own.added.is_special(token),
            #[cfg(feature = "tokenizers")]
            Kind::Crate(tokenizer) => {
                tokenizer.get_added_tokens_decoder().get(&token).is_some_and(|t| t.special)
            }
        }
    }

    /// The token that is called so: `</s>`, `<|end|>`.
    pub fn token(&self, name: &str) -> Option<u32> {
        match &self.0 {
            Kind::Own(own) => own.added.token(name).or_else(|| own.bpe.token(name)),
            #[cfg(feature = "tokenizers")]
            Kind::Crate(tokenizer) => tokenizer.token_to_id(name),
        }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Own(own) => write!(f, "Tokenizer(BPE, {} tokens)", own.count()),
            #[cfg(feature = "tokenizers")]
            Kind::Crate(tokenizer) => {
                write!(f, "Tokenizer({} tokens)", tokenizer.get_vocab_size(true))
            }
        }
    }
}

impl Own {
    fn count(&self) -> usize {
        self.bpe.count().max(self.added.end())
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut tokens = self.around.0.clone();
        let mut first = true;
        let bound = Bound::of(text.len());
        for part in self.added.parts(text) {
            match part {
                added::Part::Token(token) => tokens.push(token),
                added::Part::Text(text) => {
                    let mut text = text.to_owned();
                    for normalize in &self.normalize {
                        text = normalize.apply(text, bound)?;
                    }
                    let mut pieces = vec![Piece { text, first }];
                    for split in &self.split {
                        pieces = pieces.into_iter().flat_map(|piece| split.apply(piece)).collect();
                        bound.check(pieces.iter().map(|piece| piece.text.len()).sum())?;
                    }
                    for piece in pieces {
                        self.bpe.encode(&piece.text, &mut tokens)?;
                    }
                }
            }
            first = false;
        }
        tokens.extend(&self.around.1);
        Ok(tokens)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        let mut texts: Vec<String> = Vec::new();
        for &token in tokens {
            if self.added.is_special(token) {
                continue;
            }
            let text = self.added.text(token).or_else(|| self.bpe.text(token));
            let text = text.ok_or(TokenizerError::NoSuchToken { token, count: self.count() })?;
            texts.push(text.to_owned());
        }
        let Some(decode) = &self.decode else { return Ok(texts.join(" ")) };
        let bound = Bound::of(texts.iter().map(String::len).sum());
        let texts = decode.iter().try_fold(texts, |texts, decode| decode.apply(texts, bound))?;
        Ok(texts.concat())
    }
}

#[cfg(test)]
mod tests;

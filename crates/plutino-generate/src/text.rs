//! Text out of tokens, as soon as it is there.

use crate::tokenizer::{Tokenizer, TokenizerError};

/// What stands for bytes that are no text. At the end, they may be the beginning of a character.
const UNKNOWN: char = '\u{fffd}';

/// Turns the tokens of one row into text while they come. Characters that are not complete yet are
/// held back.
///
/// ```
/// use plutino_generate::{TextStream, Tokenizer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tokenizer = Tokenizer::from_json(
///     r#"{"model": {"type": "BPE", "vocab": {"a": 0, "Ã": 1, "¼": 2}, "merges": []},
///         "decoder": {"type": "ByteLevel"}}"#.as_bytes(),
/// )?;
/// let mut text = TextStream::new(&tokenizer);
/// assert_eq!([text.push(0)?, text.push(1)?, text.push(2)?], ["a", "", "ü"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    /// The last tokens whose text was shown, which decide about blanks, and those held back.
    recent: Vec<u32>,
    /// How many of `recent` were shown.
    shown: usize,
}

impl<'t> TextStream<'t> {
    /// No tokens yet.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, recent: Vec::new(), shown: 0 }
    }

    /// The text that one more token completes.
    ///
    /// # Errors
    /// Where there is no such token.
    pub fn push(&mut self, token: u32) -> Result<String, TokenizerError> {
        if self.tokenizer.is_special(token) {
            return Ok(String::new());
        }
        self.recent.push(token);
        self.take(false)
    }

    /// The rest, with `U+FFFD` for what is no text.
    ///
    /// # Errors
    /// Where tokens have no text.
    pub fn finish(&mut self) -> Result<String, TokenizerError> {
        self.take(true)
    }

    fn take(&mut self, all: bool) -> Result<String, TokenizerError> {
        let before = self.tokenizer.decode(self.recent.get(..self.shown).unwrap_or_default())?;
        let after = self.tokenizer.decode(&self.recent)?;
        if !all && after.ends_with(UNKNOWN) {
            return Ok(String::new());
        }
        let new = after.get(before.len()..).unwrap_or_default().to_owned();
        self.recent.drain(..self.shown);
        self.shown = self.recent.len();
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::byte_level;
    use serde_json::{Map, json};

    /// Every byte is a token, called as GPT-2 calls it.
    fn of_bytes() -> Tokenizer {
        let vocab = (0..=255u8).map(|byte| (byte_level(byte).to_string(), byte.into()));
        let model = json!({"type": "BPE", "vocab": vocab.collect::<Map<_, _>>(), "merges": []});
        let file = json!({"model": model, "decoder": {"type": "ByteLevel"}});
        Tokenizer::from_json(file.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn characters_come_whole() {
        let tokenizer = of_bytes();
        let text = "a ü € 𝄞 \"\\ end";
        let mut stream = TextStream::new(&tokenizer);
        let mut pieces = Vec::new();
        for byte in text.bytes() {
            pieces.push(stream.push(u32::from(byte)).unwrap());
        }
        pieces.push(stream.finish().unwrap());
        assert_eq!(pieces.concat(), text);
        assert!(pieces.iter().all(|piece| piece.chars().count() <= 1), "{pieces:?}");
    }

    #[test]
    fn what_is_no_text_is_shown_at_last() {
        let tokenizer = of_bytes();
        let mut stream = TextStream::new(&tokenizer);
        let push = |stream: &mut TextStream<'_>, byte: u8| stream.push(u32::from(byte)).unwrap();
        assert_eq!(push(&mut stream, 0xe2), "");
        assert_eq!(push(&mut stream, b'x'), "\u{fffd}x");
        assert_eq!(push(&mut stream, 0xf0), "");
        assert_eq!(stream.finish().unwrap(), "\u{fffd}");
        assert_eq!(stream.finish().unwrap(), "");
    }
}

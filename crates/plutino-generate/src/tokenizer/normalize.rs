//! Changes of a text before it is split.

use super::TokenizerError;
use super::bounds::Bound;

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Normalize {
    /// Text in front of what is not empty.
    Prepend(String),
    /// All places of a text.
    Replace(String, String),
    /// Unicode's composed form; only for texts that have it already.
    Composed,
}

/// Below this character, all texts are in composed form: combining ones begin here.
const COMBINING: char = '\u{300}';

impl Normalize {
    pub(super) fn apply(&self, text: String, bound: Bound) -> Result<String, TokenizerError> {
        match self {
            Self::Prepend(_) if text.is_empty() => Ok(text),
            Self::Prepend(front) => {
                bound.check(front.len().saturating_add(text.len()))?;
                Ok(format!("{front}{text}"))
            }
            Self::Replace(what, with) => bound.replace(&text, what, with),
            Self::Composed => match text.chars().find(|c| !composed(*c)) {
                None => Ok(text),
                Some(c) => Err(TokenizerError::Text(format!(
                    "'{c}' may have to be composed with what stands before it (NFC), which the \
                     crate tokenizers does: build with --features tokenizers"
                ))),
            },
        }
    }
}

/// Whether a character neither is another one in composed form nor becomes a part of the one before
/// it: the scripts that most texts are in. Unicode's property NFC_Quick_Check says the same of
/// more.
fn composed(c: char) -> bool {
    c < COMBINING
        || matches!(c, '\u{400}'..='\u{482}' | '\u{48a}'..='\u{52f}') // Cyrillic
        || matches!(c, '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}') // punctuation
        || matches!(c, '\u{20a0}'..='\u{20c0}' | '\u{2190}'..='\u{2328}') // currencies, arrows, operators
        || matches!(c, '\u{2500}'..='\u{27ff}') // boxes, symbols
        || matches!(c, '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}') // kana
        || matches!(c, '\u{3001}'..='\u{3020}' | '\u{ff01}'..='\u{ff5e}')
        || matches!(c, '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}') // Han, Hangul
        || matches!(c, '\u{1f300}'..='\u{1faff}') // emoji
}

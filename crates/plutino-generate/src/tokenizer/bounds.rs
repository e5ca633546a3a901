//! How long a text may become on its way to tokens and back: a tokenizer is a file from anywhere,
//! and each of its steps may make a text longer.

use super::TokenizerError;

/// Steps in a row that change or cut a text. Those of real tokenizers have five at most.
pub(super) const MOST_STEPS: usize = 64;

/// A text of so many bytes is never refused.
const LEAST: usize = 1 << 20;

/// Longer ones may grow so many times. Real steps make at most two bytes of one (bytes as GPT-2
/// calls them), or three of a blank.
const GROWTH: usize = 16;

/// What a text may become.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound(usize);

impl Bound {
    pub(super) fn of(bytes: usize) -> Self {
        Self(bytes.saturating_mul(GROWTH).max(LEAST))
    }

    pub(super) fn check(self, bytes: usize) -> Result<(), TokenizerError> {
        let Self(most) = self;
        match bytes <= most {
            true => Ok(()),
            false => Err(TokenizerError::TooLong { bytes, most }),
        }
    }

    /// [`str::replace`], which is asked about before memory is taken.
    pub(super) fn replace(
        self,
        text: &str,
        what: &str,
        with: &str,
    ) -> Result<String, TokenizerError> {
        let places = text.matches(what).count();
        let kept = text.len().saturating_sub(places.saturating_mul(what.len()));
        self.check(kept.saturating_add(places.saturating_mul(with.len())))?;
        Ok(text.replace(what, with))
    }
}

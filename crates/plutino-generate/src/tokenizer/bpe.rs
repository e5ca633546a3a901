//! Pairs of symbols become symbols, in the order in which they were learned (Sennrich et al.,
//! 2016).

use super::TokenizerError;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Symbols and pairs.
#[derive(Debug, Clone, Default)]
pub(super) struct Bpe {
    pub(super) vocab: HashMap<String, u32>,
    pub(super) texts: HashMap<u32, String>,
    /// What two symbols become, and how early.
    pub(super) merges: HashMap<(u32, u32), Merge>,
    /// The token of what has none.
    pub(super) unknown: Option<u32>,
    /// One unknown token for all unknown characters in a row.
    pub(super) fuse_unknown: bool,
    /// A character without a token is its bytes: `<0xE2>`.
    pub(super) byte_fallback: bool,
    /// A piece that is a token itself is not put together of pairs.
    pub(super) ignore_merges: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Merge {
    pub(super) rank: u32,
    pub(super) into: u32,
}

/// A symbol of a piece: gone once it is part of the one before it.
#[derive(Clone, Copy)]
struct Symbol {
    token: u32,
    before: usize,
    after: usize,
    gone: bool,
}

/// No neighbour.
const NONE: usize = usize::MAX;

impl Bpe {
    pub(super) fn token(&self, text: &str) -> Option<u32> {
        self.vocab.get(text).copied()
    }

    pub(super) fn text(&self, token: u32) -> Option<&str> {
        self.texts.get(&token).map(String::as_str)
    }

    /// The number behind the highest token.
    pub(super) fn count(&self) -> usize {
        self.texts.keys().max().map_or(0, |&token| token as usize + 1)
    }

    /// Appends the tokens of a piece.
    pub(super) fn encode(&self, piece: &str, to: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if self.ignore_merges
            && let Some(token) = self.token(piece)
        {
            to.push(token);
            return Ok(());
        }
        let mut symbols = self.symbols(piece)?;
        self.merge(&mut symbols);
        to.extend(symbols.iter().filter(|symbol| !symbol.gone).map(|symbol| symbol.token));
        Ok(())
    }

    /// One for each character.
    fn symbols(&self, piece: &str) -> Result<Vec<Symbol>, TokenizerError> {
        let mut tokens: Vec<u32> = Vec::new();
        let mut was_unknown = false;
        for (at, character) in piece.char_indices() {
            let text = piece.get(at..at + character.len_utf8()).unwrap_or_default();
            let bytes = || text.bytes().map(|byte| self.token(&format!("<0x{byte:02X}>")));
            let mut unknown = false;
            match self.token(text) {
                Some(token) => tokens.push(token),
                None if self.byte_fallback && bytes().all(|token| token.is_some()) => {
                    tokens.extend(bytes().flatten());
                }
                None => {
                    unknown = true;
                    let token = self.unknown.ok_or_else(|| {
                        TokenizerError::Text(format!("'{character}' has no token"))
                    })?;
                    if !(was_unknown && self.fuse_unknown) {
                        tokens.push(token);
                    }
                }
            }
            was_unknown = unknown;
        }
        let last = tokens.len().wrapping_sub(1);
        let symbol = |(i, token): (usize, u32)| Symbol {
            token,
            before: i.wrapping_sub(1), // none before the first
            after: if i == last { NONE } else { i + 1 },
            gone: false,
        };
        Ok(tokens.into_iter().enumerate().map(symbol).collect())
    }

    /// Merges the pair that was learned first, the leftmost of several, for as long as there is
    /// one.
    fn merge(&self, symbols: &mut [Symbol]) {
        let pair = |symbols: &[Symbol], left: usize| {
            let (a, b) = (symbols.get(left)?, symbols.get(symbols.get(left)?.after)?);
            let merge = self.merges.get(&(a.token, b.token))?;
            Some(Reverse((merge.rank, left, merge.into, (a.token, b.token))))
        };
        let mut pairs: BinaryHeap<_> =
            (0..symbols.len()).filter_map(|left| pair(symbols, left)).collect();
        while let Some(Reverse((_, left, into, was))) = pairs.pop() {
            let Some(&Symbol { token, after, before, gone }) = symbols.get(left) else { continue };
            let Some(&right) = symbols.get(after) else { continue };
            if gone || (token, right.token) != was {
                continue; // of symbols that are others by now
            }
            if let Some(left) = symbols.get_mut(left) {
                (left.token, left.after) = (into, right.after);
            }
            if let Some(right) = symbols.get_mut(after) {
                right.gone = true;
            }
            if let Some(next) = symbols.get_mut(right.after) {
                next.before = left;
            }
            pairs.extend([before, left].into_iter().filter_map(|at| pair(symbols, at)));
        }
    }
}

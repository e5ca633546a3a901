//! Tokens that are found in a text before anything else: ends of texts, marks of who speaks.

use std::collections::HashMap;

/// One of them.
#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) content: String,
    /// Not part of decoded text.
    #[serde(default)]
    special: bool,
    /// Takes the blanks before it.
    #[serde(default)]
    lstrip: bool,
    /// Takes the blanks behind it.
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    pub(super) single_word: bool,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Added {
    tokens: Vec<AddedToken>,
    by_id: HashMap<u32, usize>,
    /// By the first byte, the longest first.
    by_start: HashMap<u8, Vec<usize>>,
}

/// A part of a text.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    Token(u32),
    Text(&'a str),
}

impl Added {
    pub(super) fn new(tokens: Vec<AddedToken>) -> Self {
        let mut by_start: HashMap<u8, Vec<usize>> = HashMap::new();
        for (i, token) in tokens.iter().enumerate() {
            if let Some(&first) = token.content.as_bytes().first() {
                by_start.entry(first).or_default().push(i);
            }
        }
        let len = |&i: &usize| tokens.get(i).map_or(0, |t| t.content.len());
        by_start.values_mut().for_each(|list| list.sort_by_key(|i| std::cmp::Reverse(len(i))));
        let by_id = tokens.iter().enumerate().map(|(i, token)| (token.id, i)).collect();
        Self { tokens, by_id, by_start }
    }

    /// The parts of a text, none of them empty.
    pub(super) fn parts<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let (mut rest, mut from) = (text, 0);
        while let Some(&byte) = rest.as_bytes().get(from) {
            let here = rest.get(from..).unwrap_or_default();
            let candidates = self.by_start.get(&byte).into_iter().flatten();
            let mut candidates = candidates.filter_map(|&i| self.tokens.get(i));
            let Some(token) = candidates.find(|t| here.starts_with(&t.content)) else {
                from += here.chars().next().map_or(1, char::len_utf8);
                continue;
            };
            let (before, after) = rest.split_at(from);
            let after = after.get(token.content.len()..).unwrap_or_default();
            let before = if token.lstrip { before.trim_end() } else { before };
            parts.extend([Part::Text(before), Part::Token(token.id)]);
            (rest, from) = (if token.rstrip { after.trim_start() } else { after }, 0);
        }
        parts.push(Part::Text(rest));
        parts.retain(|part| *part != Part::Text(""));
        parts
    }

    pub(super) fn token(&self, name: &str) -> Option<u32> {
        self.tokens.iter().find(|token| token.content == name).map(|token| token.id)
    }

    pub(super) fn text(&self, token: u32) -> Option<&str> {
        self.get(token).map(|token| token.content.as_str())
    }

    pub(super) fn is_special(&self, token: u32) -> bool {
        self.get(token).is_some_and(|token| token.special)
    }

    /// The number behind the highest token.
    pub(super) fn end(&self) -> usize {
        self.tokens.iter().map(|t| t.id as usize + 1).max().unwrap_or(0)
    }

    fn get(&self, token: u32) -> Option<&AddedToken> {
        self.tokens.get(*self.by_id.get(&token)?)
    }
}

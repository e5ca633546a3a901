//! From the names of tokens to text.

use super::TokenizerError;
use super::bounds::Bound;
use super::split::byte_of;

/// One step. A text is what all of them make of the names of its tokens, put together.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decode {
    /// Names are bytes as GPT-2 calls them.
    Bytes,
    /// Names such as `<0xE2>` are bytes.
    ByteNames,
    /// All places of a text.
    Replace(String, String),
    /// All names are one text.
    Fuse,
    /// Takes so many characters off the beginning and the end.
    Strip { what: char, start: usize, stop: usize },
    /// A character becomes a blank; one at the beginning goes, where there is none in the text.
    Blanks { with: char, front: bool },
}

impl Decode {
    pub(super) fn apply(
        &self,
        names: Vec<String>,
        bound: Bound,
    ) -> Result<Vec<String>, TokenizerError> {
        Ok(match self {
            Self::Bytes => {
                let mut bytes = Vec::new();
                for name in names {
                    match name.chars().map(byte_of).collect::<Option<Vec<u8>>>() {
                        Some(these) => bytes.extend(these),
                        None => bytes.extend(name.bytes()), // not made of bytes: an added token
                    }
                }
                vec![String::from_utf8_lossy(&bytes).into_owned()]
            }
            Self::ByteNames => byte_names(names),
            Self::Replace(what, with) => {
                let mut bytes = 0usize;
                let replace = |name: String| {
                    let name = bound.replace(&name, what, with)?;
                    bytes = bytes.saturating_add(name.len());
                    bound.check(bytes).map(|()| name)
                };
                names.into_iter().map(replace).collect::<Result<_, _>>()?
            }
            Self::Fuse => vec![names.concat()],
            &Self::Strip { what, start, stop } => {
                let strip = |name: String| {
                    let front = name.chars().take(start).take_while(|c| *c == what).count();
                    let back = name.chars().rev().take(stop).take_while(|c| *c == what).count();
                    let width = what.len_utf8();
                    let end = name.len().saturating_sub(back.saturating_mul(width));
                    name.get(front.saturating_mul(width)..end).unwrap_or_default().to_owned()
                };
                names.into_iter().map(strip).collect()
            }
            &Self::Blanks { with, front } => {
                let blank = |(i, name): (usize, String)| match name.strip_prefix(with) {
                    Some(rest) if i == 0 && front => rest.replace(with, " "),
                    _ => name.replace(with, " "),
                };
                names.into_iter().enumerate().map(blank).collect()
            }
        })
    }
}

/// Bytes in a row are text together; each is `U+FFFD` where they are none.
fn byte_names(names: Vec<String>) -> Vec<String> {
    let mut texts = Vec::new();
    let mut bytes = Vec::new();
    let flush = |bytes: &mut Vec<u8>, texts: &mut Vec<String>| {
        let unknown = |bytes: &[u8]| bytes.iter().map(|_| '\u{fffd}').collect();
        let text = String::from_utf8(std::mem::take(bytes));
        texts.push(text.unwrap_or_else(|error| unknown(error.as_bytes())));
    };
    for name in names {
        let hex = name.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        match hex.filter(|hex| hex.len() == 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None => {
                flush(&mut bytes, &mut texts);
                texts.push(name);
            }
        }
    }
    flush(&mut bytes, &mut texts);
    texts.retain(|text| !text.is_empty());
    texts
}

//! Where a text is cut before pairs are made: no pair reaches over a cut.

use super::letters::is_letter;

/// A part of a text, and whether it stands at its beginning.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) first: bool,
}

/// One way to cut.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Split {
    /// Words, numbers, blanks and everything else apart.
    Words(Words),
    /// At each place of a text, which is a piece of its own.
    At(String),
    /// Digits apart from all else; each alone, or not.
    Digits { alone: bool },
    /// Bytes become the characters that GPT-2 calls them by; a blank in front of a text where there
    /// is none, if asked for.
    Bytes { blank: bool },
    /// Blanks become another character, which words begin with.
    Blanks { with: char, front: Front, cut: bool },
}

/// Whether [`Split::Blanks`] puts a blank in front of a text that does not begin with one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Front {
    Always,
    First,
    Never,
}

/// The expressions that tell words apart, by the models that have them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Words {
    Gpt2,
    Llama3,
    Qwen2,
}

impl Words {
    const GPT2: &str =
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    /// The expression of a `tokenizer.json`, where it is one of these.
    pub(super) fn of(expression: &str) -> Option<Self> {
        match expression {
            Self::GPT2 => Some(Self::Gpt2),
            Self::LLAMA3 => Some(Self::Llama3),
            Self::QWEN2 => Some(Self::Qwen2),
            _ => None,
        }
    }

    /// How many characters the first match has; at least one.
    fn first(self, text: &[char]) -> usize {
        let number = |most: usize| some(run(text, char::is_numeric).min(most));
        let found = match self {
            Self::Gpt2 => {
                let with_blank = |is: fn(char) -> bool| {
                    let blank = usize::from(text.first() == Some(&' '));
                    some(run(text.get(blank..)?, is)).map(|n| n + blank)
                };
                let words = [is_letter, char::is_numeric, is_other];
                contraction(text, false).or_else(|| words.into_iter().find_map(with_blank))
            }
            Self::Llama3 | Self::Qwen2 => {
                let digits = if self == Self::Llama3 { 3 } else { 1 };
                let found = contraction(text, true).or_else(|| word(text));
                let found = found.or_else(|| number(digits)).or_else(|| others(text));
                found.or_else(|| line_ends(text))
            }
        };
        let blanks = || {
            let blanks = run(text, char::is_whitespace);
            // The last blank belongs to the word behind it, if there are others.
            if blanks > 1 && blanks < text.len() { blanks - 1 } else { blanks }
        };
        found.unwrap_or_else(blanks).max(1)
    }
}

fn some(n: usize) -> Option<usize> {
    (n > 0).then_some(n)
}

/// How many characters in a row are so.
fn run(text: &[char], is: impl Fn(char) -> bool) -> usize {
    text.iter().take_while(|c| is(**c)).count()
}

/// `[^\s\p{L}\p{N}]`
fn is_other(c: char) -> bool {
    !c.is_whitespace() && !is_letter(c) && !c.is_numeric()
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

/// `'s`, `'ve`, ...
fn contraction(text: &[char], any_case: bool) -> Option<usize> {
    let rest = text.strip_prefix(&['\''])?;
    let is = |word: &str| {
        let mut rest = rest.iter();
        word.chars().all(|wanted| {
            rest.next().is_some_and(|&c| match any_case {
                // Case folding makes an s of the long one as well.
                true => c.to_ascii_lowercase() == wanted || (wanted == 's' && c == 'ſ'),
                false => c == wanted,
            })
        })
    };
    let endings = ["s", "t", "re", "ve", "m", "ll", "d"];
    endings.into_iter().find(|ending| is(ending)).map(|ending| ending.len() + 1)
}

/// `[^\r\n\p{L}\p{N}]?\p{L}+`
fn word(text: &[char]) -> Option<usize> {
    let first = *text.first()?;
    let front = usize::from(!is_line_end(first) && !is_letter(first) && !first.is_numeric());
    some(run(text.get(front..)?, is_letter)).map(|n| n + front)
}

/// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
fn others(text: &[char]) -> Option<usize> {
    let blank = usize::from(text.first() == Some(&' '));
    let n = blank + some(run(text.get(blank..)?, is_other))?;
    Some(n + run(text.get(n..)?, is_line_end))
}

/// `\s*[\r\n]+`: blanks up to the last end of a line among them.
fn line_ends(text: &[char]) -> Option<usize> {
    let blanks = text.get(..run(text, char::is_whitespace))?;
    blanks.iter().rposition(|c| is_line_end(*c)).map(|at| at + 1)
}

impl Split {
    pub(super) fn apply(&self, piece: Piece) -> Vec<Piece> {
        let Piece { text, first } = piece;
        let texts = match self {
            Self::Words(words) => {
                let characters: Vec<char> = text.chars().collect();
                let mut texts = Vec::new();
                let mut rest = &characters[..];
                while !rest.is_empty() {
                    let (word, others) = rest.split_at(words.first(rest).min(rest.len()));
                    texts.push(word.iter().collect());
                    rest = others;
                }
                texts
            }
            Self::At(at) => {
                let mut texts = Vec::new();
                let mut rest = &text[..];
                while let Some((before, after)) = rest.split_once(&**at).filter(|_| !at.is_empty())
                {
                    texts.extend([before, at].map(str::to_owned));
                    rest = after;
                }
                texts.push(rest.to_owned());
                texts
            }
            Self::Digits { alone } => {
                cut(&text, |a, b| a.is_numeric() != b.is_numeric() || (*alone && b.is_numeric()))
            }
            Self::Bytes { blank } => {
                let blank = *blank && !text.starts_with(' ');
                let front = if blank { " " } else { "" };
                vec![front.bytes().chain(text.bytes()).map(byte_level).collect()]
            }
            &Self::Blanks { with, front, cut: at_words } => {
                let text = text.replace(' ', &with.to_string());
                let wanted = front == Front::Always || front == Front::First && first;
                let text = match wanted && !text.starts_with(with) {
                    true => format!("{with}{text}"),
                    false => text,
                };
                if at_words { cut(&text, |_, b| b == with) } else { vec![text] }
            }
        };
        let texts = texts.into_iter().filter(|text| !text.is_empty());
        texts.enumerate().map(|(i, text)| Piece { text, first: first && i == 0 }).collect()
    }
}

/// Cuts between characters that are so.
fn cut(text: &str, between: impl Fn(char, char) -> bool) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut last = None;
    for c in text.chars() {
        match texts.last_mut().filter(|_| last.is_some_and(|last| !between(last, c))) {
            Some(text) => text.push(c),
            None => texts.push(c.into()),
        }
        last = Some(c);
    }
    texts
}

/// The character that a byte is called by: itself where it can be seen, else one from `U+0100` on,
/// in order.
pub(crate) fn byte_level(byte: u8) -> char {
    match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        0..=0x20 => char::from_u32(0x100 + u32::from(byte)).unwrap_or_default(),
        0x7f..=0xa0 => char::from_u32(0x121 + u32::from(byte - 0x7f)).unwrap_or_default(),
        0xad => '\u{143}',
    }
}

/// The byte that a character stands for.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

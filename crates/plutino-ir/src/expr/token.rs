//! Tokens of expressions and literals.

use nom::branch::alt;
use nom::bytes::complete::{take_while, take_while1};
use nom::character::complete::{anychar, char, one_of};
use nom::combinator::{map, recognize, verify};
use nom::error::Error;
use nom::sequence::{pair, preceded};
use nom::{IResult, Parser};

use super::error::{ExprError, ExprErrorKind, beginning};
use crate::number::{Number, is_numeric, parse_number};

/// A token and where it begins, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) at: usize,
    pub(super) kind: TokenKind<'a>,
    pub(super) text: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TokenKind<'a> {
    /// `@3`, the digits not yet read.
    Input(&'a str),
    Number(Number),
    /// A function, or one of Python's words.
    Word(&'a str),
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
}

/// Splits the text into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ExprError> {
    let mut tokens = Vec::new();
    let mut left = text;
    while !left.is_empty() {
        let at = text.len() - left.len();
        let fault = |kind| ExprError::new(text, at, kind);
        let (next, lexeme) = lexeme(left).map_err(|_| {
            fault(ExprErrorKind::Unexpected {
                expected: "a name, a number, '@n', a bracket or a comma",
                found: left.chars().take(1).collect(),
            })
        })?;
        let kind = match lexeme {
            "(" => TokenKind::Open,
            ")" => TokenKind::Close,
            "[" => TokenKind::OpenList,
            "]" => TokenKind::CloseList,
            "," => TokenKind::Comma,
            _ => match lexeme.strip_prefix('@') {
                Some(digits) => TokenKind::Input(digits),
                None if is_numeric(lexeme) => {
                    TokenKind::Number(parse_number(lexeme).map_err(|expected| {
                        fault(ExprErrorKind::Unexpected { expected, found: beginning(lexeme) })
                    })?)
                }
                None => TokenKind::Word(lexeme),
            },
        };
        tokens.push(Token { at, kind, text: lexeme });
        left = next;
    }
    Ok(tokens)
}

fn lexeme(input: &str) -> IResult<&str, &str, Error<&str>> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let in_number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-');
    let bracket = recognize(one_of("()[],"));
    let input_ref = recognize(preceded(char('@'), take_while1(|c: char| c.is_ascii_digit())));
    let number = verify(recognize(pair(anychar, take_while(in_number))), is_numeric);
    let negative_word = recognize(preceded(char('-'), take_while1(in_word)));
    let word = map(take_while1(in_word), |word| word);
    alt((bracket, input_ref, number, negative_word, word)).parse(input)
}

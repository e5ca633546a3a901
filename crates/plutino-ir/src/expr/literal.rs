//! Python's nested lists of constants, as `Tensor.index` has them: `[None,None,[1,0]]`.

use std::fmt;

use super::error::{ExprError, ExprErrorKind};
use super::token::{Token, TokenKind, tokens};
use crate::number::{FloatText, Number};

/// Deepest nesting of lists that is read: one more than the rank of the index tensor.
const MAX_DEPTH: usize = 64;

/// A Python constant, or a list of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `None`; leading ones in an index stand for `...`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// `[a,b]` or `(a,b)`.
    List(Vec<Literal>),
}

impl Literal {
    /// Reads a literal, for example the `expr` of `Tensor.index`.
    ///
    /// # Errors
    /// Where the text is no literal, or nested deeper than 64 levels.
    pub fn parse(text: &str) -> Result<Literal, ExprError> {
        let tokens = tokens(text)?;
        let mut parser = Parser { text, tokens: tokens.into_iter().peekable() };
        let literal = parser.literal(0)?;
        match parser.tokens.next() {
            None => Ok(literal),
            token => Err(parser.unexpected(token.as_ref(), "the end of the literal")),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
}

impl<'a> Parser<'a> {
    fn unexpected(&self, token: Option<&Token<'a>>, expected: &'static str) -> ExprError {
        let (at, found) = token.map_or((self.text.len(), ""), |token| (token.at, token.text));
        ExprError::new(
            self.text,
            at,
            ExprErrorKind::Unexpected { expected, found: found.to_owned() },
        )
    }

    fn literal(&mut self, depth: usize) -> Result<Literal, ExprError> {
        let token = self.tokens.next();
        match token.map(|token| token.kind) {
            Some(TokenKind::Word("None")) => Ok(Literal::None),
            Some(TokenKind::Word("True")) => Ok(Literal::Bool(true)),
            Some(TokenKind::Word("False")) => Ok(Literal::Bool(false)),
            Some(TokenKind::Number(Number::Int(value))) => Ok(Literal::Int(value)),
            Some(TokenKind::Number(Number::Float(value))) => Ok(Literal::Float(value)),
            Some(TokenKind::OpenList) => self.list(depth, TokenKind::CloseList, "',' or ']'"),
            Some(TokenKind::Open) => self.list(depth, TokenKind::Close, "',' or ')'"),
            _ => Err(self.unexpected(token.as_ref(), "None, True, False, a number or a list")),
        }
    }

    fn list(
        &mut self,
        depth: usize,
        close: TokenKind<'_>,
        expected: &'static str,
    ) -> Result<Literal, ExprError> {
        if depth == MAX_DEPTH {
            let at = self.tokens.peek().map_or(self.text.len(), |token| token.at);
            return Err(ExprError::new(self.text, at, ExprErrorKind::TooDeep { limit: MAX_DEPTH }));
        }
        let mut items = Vec::new();
        if self.tokens.next_if(|token| token.kind == close).is_some() {
            return Ok(Literal::List(items));
        }
        loop {
            items.push(self.literal(depth + 1)?);
            match self.tokens.next() {
                Some(token) if token.kind == close => return Ok(Literal::List(items)),
                Some(token) if token.kind == TokenKind::Comma => {}
                token => return Err(self.unexpected(token.as_ref(), expected)),
            }
        }
    }
}

/// As Python writes it, without blanks; lists in brackets.
impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::None => f.write_str("None"),
            Literal::Bool(true) => f.write_str("True"),
            Literal::Bool(false) => f.write_str("False"),
            Literal::Int(value) => write!(f, "{value}"),
            Literal::Float(value) => write!(f, "{}", FloatText(*value)),
            Literal::List(items) => {
                f.write_str("[")?;
                super::write_list(f, items)?;
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_lists_read_back() {
        for text in [
            "[[2,1],[0,1]]",
            "[None,None,[1,0]]",
            "[[True,False],[False,False,True,False]]",
            "[]",
            "[-1,0.5]",
        ] {
            assert_eq!(Literal::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Literal::parse("(1,[2])").unwrap().to_string(), "[1,[2]]");
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, column) in [
            ("", 1),
            ("[1", 3),
            ("[1)", 3),
            ("[1,]", 4),
            ("[1]]", 4),
            ("[x]", 2),
            ("[1 ,2]", 3),
            ("@0", 1),
        ] {
            assert_eq!(Literal::parse(text).unwrap_err().column, column, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(
            Literal::parse(&deep).unwrap_err().kind,
            ExprErrorKind::TooDeep { limit: MAX_DEPTH }
        );
    }
}

//! From text to expression.
//!
//! The converter writes calls, `sub(@0,0.5)`, but reads a stream of prefix tokens in which `(`, `)`
//! and `,` are mere separators, and does write `expm1,sub(@0,0.5)` for functions that it does not
//! know itself. So:
//!
//! ```text
//! text = word | expr                           a word alone is a constant, whatever it is
//! expr = "@" n | number | "None" | "True" | "False" | "[" [expr ("," expr)*] "]"
//!      | name "(" expr ("," expr)* ")"          as many as the function takes
//!      | name ("," expr)*                       exactly as many as the function takes
//! ```
//! Text that does not fit is read once more without its brackets, see [`stream`]. Open calls and
//! lists are kept on a stack of our own, because expressions get deep where a model's loop was
//! unrolled.

use super::error::{ExprError, ExprErrorKind, beginning};
use super::functions::{BinaryFn, Function, UnaryFn};
use super::token::{Token, TokenKind, tokens};
use super::{Expr, MAX_DEPTH, stream};
use crate::number::Number;

/// A call or list whose end is still to come.
struct Frame {
    /// Where it begins in the text.
    at: usize,
    form: Form,
    arguments: Vec<Expr>,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// `[`
    List,
    /// `name(`
    Call(Function),
    /// `name,`: ends by itself after its last argument.
    Prefix(Function),
}

pub(super) fn parse(text: &str) -> Result<Expr, ExprError> {
    if is_word(text) {
        return Ok(Expr::Word(text.to_owned()));
    }
    let tokens = tokens(text)?;
    parse_tokens(text, tokens.clone()).or_else(|error| match stream::rebracketed(&tokens) {
        Some(tokens) => parse_tokens(text, tokens).map_err(|_| error),
        None => Err(error),
    })
}

/// Whether the text is one word, such as `amax` or `nearest-exact`, and none of Python's.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
        && !matches!(text, "None" | "True" | "False" | "inf" | "nan")
}

fn parse_tokens(text: &str, tokens: Vec<Token<'_>>) -> Result<Expr, ExprError> {
    let mut parser = Parser { text, tokens: tokens.into_iter().peekable(), open: Vec::new() };
    let mut value = parser.operand()?;
    loop {
        // Here a value is complete, or a list without elements is being closed.
        match parser.accept(value)? {
            Next::Done(expr) => return Ok(expr),
            Next::Operand => value = parser.operand()?,
            Next::Value(complete) => value = Some(complete),
        }
    }
}

enum Next {
    Done(Expr),
    Operand,
    Value(Expr),
}

struct Parser<'a> {
    text: &'a str,
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
    open: Vec<Frame>,
}

impl<'a> Parser<'a> {
    fn fault(&self, at: usize, kind: ExprErrorKind) -> ExprError {
        ExprError::new(self.text, at, kind)
    }

    fn unexpected(&self, token: Option<&Token<'a>>, expected: &'static str) -> ExprError {
        let (at, found) = token.map_or((self.text.len(), ""), |token| (token.at, token.text));
        self.fault(at, ExprErrorKind::Unexpected { expected, found: beginning(found) })
    }

    /// Reads up to a complete leaf, opening calls and lists on the way; `None` at `]` or `)` right
    /// after the opening bracket.
    fn operand(&mut self) -> Result<Option<Expr>, ExprError> {
        loop {
            let Some(token) = self.tokens.next() else {
                return Err(self.missing_operand());
            };
            match token.kind {
                TokenKind::Input(digits) => {
                    let index = digits
                        .parse()
                        .map_err(|_| self.unexpected(Some(&token), "an input's number"))?;
                    return Ok(Some(Expr::Input(index)));
                }
                TokenKind::Number(Number::Int(value)) => return Ok(Some(Expr::Int(value))),
                TokenKind::Number(Number::Float(value)) => return Ok(Some(Expr::Float(value))),
                TokenKind::Number(Number::Complex(re, im)) => {
                    return Ok(Some(Expr::Complex(re, im)));
                }
                TokenKind::Word("None") => return Ok(Some(Expr::None)),
                TokenKind::Word("True") => return Ok(Some(Expr::Bool(true))),
                TokenKind::Word("False") => return Ok(Some(Expr::Bool(false))),
                TokenKind::Word("inf") => return Ok(Some(Expr::Float(f64::INFINITY))),
                TokenKind::Word("-inf") => return Ok(Some(Expr::Float(f64::NEG_INFINITY))),
                TokenKind::Word("nan") => return Ok(Some(Expr::Float(f64::NAN))),
                TokenKind::Word(name) => self.open_call(&token, name)?,
                TokenKind::OpenList => {
                    self.open(token.at, Form::List)?;
                    if self.tokens.peek().is_some_and(|next| next.kind == TokenKind::CloseList) {
                        return Ok(None);
                    }
                }
                TokenKind::Close | TokenKind::CloseList | TokenKind::Open | TokenKind::Comma => {
                    return Err(self.misplaced(&token));
                }
            }
            let call = self.open.last().is_some_and(|frame| matches!(frame.form, Form::Call(_)));
            if call && self.tokens.peek().is_some_and(|next| next.kind == TokenKind::Close) {
                return Ok(None);
            }
        }
    }

    fn open_call(&mut self, token: &Token<'a>, name: &str) -> Result<(), ExprError> {
        let function = Function::from_name(name).ok_or_else(|| {
            let (name, nearest) = (beginning(name), nearest(name));
            self.fault(token.at, ExprErrorKind::UnknownFunction { name, nearest })
        })?;
        let (least, most) = function.arity();
        match self.tokens.next_if(|next| matches!(next.kind, TokenKind::Open | TokenKind::Comma)) {
            Some(Token { kind: TokenKind::Open, .. }) => self.open(token.at, Form::Call(function)),
            Some(_) => self.open(token.at, Form::Prefix(function)),
            None => {
                let kind =
                    ExprErrorKind::Arity { function: function.name(), least, most, found: 0 };
                Err(self.fault(token.at, kind))
            }
        }
    }

    fn open(&mut self, at: usize, form: Form) -> Result<(), ExprError> {
        if self.open.len() == MAX_DEPTH {
            return Err(self.fault(at, ExprErrorKind::TooDeep { limit: MAX_DEPTH }));
        }
        self.open.push(Frame { at, form, arguments: Vec::new() });
        Ok(())
    }

    /// Hands a complete value to whatever is open, and looks at what follows.
    fn accept(&mut self, value: Option<Expr>) -> Result<Next, ExprError> {
        let Some(mut frame) = self.open.pop() else {
            return match (value, self.tokens.next()) {
                (Some(expr), None) => Ok(Next::Done(expr)),
                (_, token) => Err(match token {
                    Some(token)
                        if matches!(token.kind, TokenKind::Close | TokenKind::CloseList) =>
                    {
                        self.misplaced(&token)
                    }
                    token => self.unexpected(token.as_ref(), "the end of the expression"),
                }),
            };
        };
        frame.arguments.extend(value);
        if let Form::Prefix(function) = frame.form
            && frame.arguments.len() == function.arity().1
        {
            return self.close(frame, function).map(Next::Value);
        }
        let Some(token) = self.tokens.next() else {
            return Err(match frame.form {
                Form::List => self.fault(frame.at, ExprErrorKind::Unbalanced { bracket: '[' }),
                Form::Call(function) => self.fault(
                    frame.at + function.name().len(),
                    ExprErrorKind::Unbalanced { bracket: '(' },
                ),
                Form::Prefix(function) => self.arity(frame.at, frame.arguments.len(), function),
            });
        };
        match (frame.form, token.kind) {
            (Form::List | Form::Call(_) | Form::Prefix(_), TokenKind::Comma) => {
                // With optlevel=1 pnnx writes `add(@0,,mul(@1,0.5))`; it reads over the second one.
                if matches!(frame.form, Form::Call(_)) {
                    let _ = self.tokens.next_if(|next| next.kind == TokenKind::Comma);
                }
                self.open.push(frame);
                Ok(Next::Operand)
            }
            (Form::List, TokenKind::CloseList) => Ok(Next::Value(Expr::List(frame.arguments))),
            (Form::Call(function), TokenKind::Close) => {
                self.close(frame, function).map(Next::Value)
            }
            (Form::Prefix(function), TokenKind::Close | TokenKind::CloseList) => {
                Err(self.arity(frame.at, frame.arguments.len(), function))
            }
            (form, _) => {
                self.open.push(frame);
                Err(match (token.kind, form) {
                    (TokenKind::Close | TokenKind::CloseList, _) => self.misplaced(&token),
                    (_, Form::List) => self.unexpected(Some(&token), "',' or ']'"),
                    (_, Form::Call(_)) => self.unexpected(Some(&token), "',' or ')'"),
                    (_, Form::Prefix(_)) => self.unexpected(Some(&token), "','"),
                })
            }
        }
    }

    fn arity(&self, at: usize, found: usize, function: Function) -> ExprError {
        let (least, most) = function.arity();
        self.fault(at, ExprErrorKind::Arity { function: function.name(), least, most, found })
    }

    fn close(&self, frame: Frame, function: Function) -> Result<Expr, ExprError> {
        let (at, found) = (frame.at, frame.arguments.len());
        let mut arguments = frame.arguments.into_iter().map(Box::new);
        let expr = match (function, arguments.next(), arguments.next(), arguments.next()) {
            (Function::Unary(function), Some(a), None, None) => Expr::Unary(function, a),
            (Function::Binary(function), Some(a), Some(b), None) => Expr::Binary(function, a, b),
            (Function::Size, Some(of), dim, None) => Expr::Size { of, dim },
            _ => return Err(self.arity(at, found, function)),
        };
        Ok(expr)
    }

    /// A bracket or comma where none may be.
    fn misplaced(&self, token: &Token<'a>) -> ExprError {
        let closes_nothing =
            |form: fn(Form) -> bool| !self.open.iter().any(|frame| form(frame.form));
        match token.kind {
            TokenKind::Close if closes_nothing(|form| matches!(form, Form::Call(_))) => {
                self.fault(token.at, ExprErrorKind::Unbalanced { bracket: ')' })
            }
            TokenKind::CloseList if closes_nothing(|form| form == Form::List) => {
                self.fault(token.at, ExprErrorKind::Unbalanced { bracket: ']' })
            }
            _ => self.unexpected(Some(token), "a number, '@n', a function or a list"),
        }
    }

    fn missing_operand(&self) -> ExprError {
        match self.open.last() {
            Some(frame) => match frame.form {
                Form::Prefix(function) => self.arity(frame.at, frame.arguments.len(), function),
                _ => self.unexpected(None, "a number, '@n', a function or a list"),
            },
            None => self.unexpected(None, "an expression"),
        }
    }
}

/// The function whose name is at most two edits away, if any.
fn nearest(name: &str) -> Option<&'static str> {
    let unary = UnaryFn::ALL.iter().map(|function| function.name());
    let binary = BinaryFn::ALL.iter().map(|function| function.name());
    let distances = unary.chain(binary).map(|known| (edit_distance(name, known), known));
    distances
        .filter(|&(distance, known)| distance <= 2 && distance < known.len())
        .min()
        .map(|(_, known)| known)
}

/// Levenshtein's distance between a name from a file, of which only the beginning counts, and a
/// short one.
fn edit_distance(found: &str, known: &str) -> usize {
    let mut row: Vec<usize> = (0..=known.len()).collect();
    for (i, c) in found.bytes().take(64).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (above, k) in row.iter().skip(1).zip(known.bytes()) {
            left = (diagonal + usize::from(c != k)).min(above + 1).min(left + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

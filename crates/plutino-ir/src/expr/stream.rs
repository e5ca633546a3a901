//! Expressions whose brackets mean nothing.
//!
//! The converter reads expressions as a stream of prefix tokens and writes the brackets anew from
//! it. A function that it does not know itself (`expm1`, `log1p`) is a value to it, so that every
//! bracket after it lands on the wrong token: `add(mul(expm1(@0),1.5),0.25)` becomes
//! `add(mul(expm1,@0),1.5),0.25`. The order of the tokens is right, and with each function's number
//! of arguments so is the expression.

use super::functions::Function;
use super::token::{Token, TokenKind};

/// A call or list whose end is still to come.
enum Open {
    /// Arguments read, and those that the function takes.
    Call(usize, usize),
    /// Elements read.
    List(usize),
}

/// The tokens with brackets and commas that follow from the functions' arguments; `None` if every
/// function is followed by its brackets already, or the tokens are no expression either way.
pub(super) fn rebracketed<'a>(tokens: &[Token<'a>]) -> Option<Vec<Token<'a>>> {
    let bare = |pair: &[Token<'_>]| matches!(pair, [name, next] if function(name).is_some() && next.kind != TokenKind::Open);
    if !tokens.windows(2).any(bare) {
        return None;
    }
    let mut out: Vec<Token<'a>> = Vec::with_capacity(tokens.len());
    let mut open: Vec<Open> = Vec::new();
    let mut complete = false;
    for token in tokens {
        let mark = |kind, text| Token { at: token.at, kind, text };
        if matches!(token.kind, TokenKind::Open | TokenKind::Close | TokenKind::Comma) {
            continue;
        }
        if complete {
            return None;
        }
        if token.kind != TokenKind::CloseList
            && let Some(Open::Call(1.., _) | Open::List(1..)) = open.last()
        {
            out.push(mark(TokenKind::Comma, ","));
        }
        out.push(*token);
        match token.kind {
            TokenKind::OpenList => {
                open.push(Open::List(0));
                continue;
            }
            TokenKind::CloseList => {
                let Some(Open::List(_)) = open.pop() else { return None };
            }
            _ => {
                if let Some(function) = function(token) {
                    out.push(mark(TokenKind::Open, "("));
                    open.push(Open::Call(0, function.arity().1));
                    continue;
                }
            }
        }
        // A value is complete, and so is every call whose last argument it is.
        loop {
            match open.last_mut() {
                Some(Open::Call(read, arity)) => {
                    *read += 1;
                    if read < arity {
                        break;
                    }
                    out.push(mark(TokenKind::Close, ")"));
                    open.pop();
                }
                Some(Open::List(read)) => {
                    *read += 1;
                    break;
                }
                None => {
                    complete = true;
                    break;
                }
            }
        }
    }
    complete.then_some(out)
}

fn function(token: &Token<'_>) -> Option<Function> {
    match token.kind {
        TokenKind::Word(name) => Function::from_name(name),
        _ => None,
    }
}

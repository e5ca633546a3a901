//! The few Python literals of a npy header, read token by token: strings, booleans, tuples of
//! numbers, and brackets that are skipped.

use super::NpyError;
use super::header::invalid;

/// Deepest nesting of brackets that is read: a structured dtype needs 2 for each level of its
/// fields.
const MAX_NESTING: usize = 64;

/// Most dimensions that are read. NumPy writes at most 64.
const MAX_RANK: usize = 1024;

/// A text, and how far it has been read.
pub(super) struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Literal<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Number of the byte that comes next, after blanks.
    pub(super) fn position(&mut self) -> usize {
        self.skip_blanks();
        self.at
    }

    /// The byte that comes next, after blanks.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip_blanks();
        self.text.get(self.at).copied()
    }

    /// Takes `byte` if it comes next.
    pub(super) fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes `byte`, which has to come next.
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), NpyError> {
        match self.accept(byte) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("'{}'", byte.escape_ascii()))),
        }
    }

    /// Nothing but blanks may follow.
    pub(super) fn end(&mut self) -> Result<(), NpyError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the header")),
        }
    }

    /// A string in single or double quotes, without escapes. `u` and `b` may stand before it.
    pub(super) fn string(&mut self) -> Result<&'a [u8], NpyError> {
        let prefix = self.peek().is_some_and(|byte| byte == b'u' || byte == b'b');
        let open = self.at + usize::from(prefix);
        match self.text.get(open) {
            Some(quote @ (b'\'' | b'"')) => self.quoted(open, *quote),
            _ => Err(self.unexpected("a string")),
        }
    }

    fn quoted(&mut self, open: usize, quote: u8) -> Result<&'a [u8], NpyError> {
        let inside = self.text.get(open + 1..).unwrap_or_default();
        let end = inside.iter().position(|&byte| byte == quote || byte == b'\\' || byte == b'\n');
        match end.and_then(|end| Some((end, inside.get(..end)?, inside.get(end)?))) {
            Some((end, string, &last)) if last == quote => {
                self.at = open + 1 + end + 1;
                Ok(string)
            }
            _ => Err(invalid(format!("the string at byte {open} has no end, or an escape in it"))),
        }
    }

    /// `True` or `False`.
    pub(super) fn boolean(&mut self) -> Result<bool, NpyError> {
        let start = self.position();
        match self.word() {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => {
                self.at = start;
                Err(self.unexpected("True or False"))
            }
        }
    }

    /// Letters, digits and underscores, as far as they go.
    fn word(&mut self) -> &'a [u8] {
        let rest = self.text.get(self.position()..).unwrap_or_default();
        let other = |byte: &u8| !(byte.is_ascii_alphanumeric() || *byte == b'_');
        let len = rest.iter().position(other).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    /// A tuple of dimensions: `()`, `(3,)`, `(2, 3)`.
    pub(super) fn dims(&mut self) -> Result<Vec<usize>, NpyError> {
        self.expect(b'(')?;
        let mut dims = Vec::new();
        while !self.accept(b')') {
            if dims.len() == MAX_RANK {
                return Err(invalid(format!("more than {MAX_RANK} dimensions")));
            }
            dims.push(self.number()?);
            // In Python a number in brackets is no tuple: the first one has a comma behind it.
            if !self.accept(b',') {
                if dims.len() == 1 {
                    return Err(self.unexpected("','"));
                }
                self.expect(b')')?;
                break;
            }
        }
        Ok(dims)
    }

    /// A number as Python writes it: no sign, no leading zeros; Python 2 wrote an `L` behind large
    /// ones.
    fn number(&mut self) -> Result<usize, NpyError> {
        let start = self.position();
        let word = self.word();
        let digits = word.strip_suffix(b"L").unwrap_or(word);
        let leading_zero = digits.len() > 1 && digits.starts_with(b"0");
        if digits.is_empty() || leading_zero || !digits.iter().all(u8::is_ascii_digit) {
            self.at = start;
            return Err(self.unexpected("a dimension"));
        }
        digits
            .iter()
            .try_fold(0usize, |n, digit| n.checked_mul(10)?.checked_add(usize::from(digit - b'0')))
            .ok_or_else(|| invalid(format!("the dimension at byte {start} exceeds 64 bits")))
    }

    /// Everything from the bracket that comes next to the one that closes it, strings skipped.
    pub(super) fn brackets(&mut self) -> Result<&'a [u8], NpyError> {
        let start = self.position();
        let mut open = Vec::new();
        let mut quote = None;
        let mut escaped = false;
        for (len, &byte) in self.text.get(start..).unwrap_or_default().iter().enumerate() {
            if quote.is_some() {
                if !escaped && quote == Some(byte) {
                    quote = None;
                }
                escaped = !escaped && byte == b'\\';
                continue;
            }
            match byte {
                b'\'' | b'"' => quote = Some(byte),
                b'(' => open.push(b')'),
                b'[' => open.push(b']'),
                b'{' => open.push(b'}'),
                b')' | b']' | b'}' if open.pop() != Some(byte) => break,
                _ => {}
            }
            if open.len() > MAX_NESTING {
                return Err(invalid(format!("brackets nested deeper than {MAX_NESTING}")));
            }
            if open.is_empty() {
                self.at = start + len + 1;
                return Ok(self.text.get(start..self.at).unwrap_or_default());
            }
        }
        Err(invalid(format!("the bracket at byte {start} is not closed")))
    }

    fn unexpected(&mut self, expected: &str) -> NpyError {
        let at = self.position();
        match self.text.get(at) {
            Some(byte) => {
                let byte = byte.escape_ascii();
                invalid(format!("expected {expected} at byte {at} of the header, found '{byte}'"))
            }
            None => invalid(format!("expected {expected}, but the header ends")),
        }
    }

    fn skip_blanks(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }
}

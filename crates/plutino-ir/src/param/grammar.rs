//! Grammar of the `.param` text, line by line.
//!
//! ```text
//! file     = magic-line count-line operator-line*
//! magic    = "7767517"
//! counts   = operators operands
//! operator = kind name n-inputs n-outputs input*n-inputs output*n-outputs field*
//! field    = "@" key "=" shape dtype          weight
//!          | "#" operand "=" type             type of an operand
//!          | "$" key "=" operand              argument that an input stands for
//!          | "^" name "=after"               operator that must be over before
//!          | key "=" value                    parameter
//! type     = "(" [dim ("," dim)*] ")" [dtype | "null"]
//! dim      = integer | "?" | "%" name
//! shape    = "(" [integer ("," integer)*] ")"
//! ```
//! Words are separated by blanks; a value is whatever follows the first `=` of its word.

use std::borrow::Cow;

use nom::branch::alt;
use nom::bytes::complete::{tag, take_while1};
use nom::character::complete::{char, digit1, space0, space1};
use nom::combinator::{all_consuming, eof, map, rest, value};
use nom::error::{ErrorKind, ParseError as NomError};
use nom::multi::separated_list0;
use nom::sequence::{delimited, preceded};
use nom::{IResult, Parser};

use crate::dtype::{DType, Dim, TensorType};

/// What stands behind the name of an operator that is to be over before.
pub(crate) const AFTER: &str = "=after";

/// First line of every `.param` file.
pub(crate) const MAGIC: &str = "7767517";

/// A fault: the input from where it was met, and what was expected there.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault<'a> {
    pub(crate) at: &'a str,
    pub(crate) expected: Cow<'static, str>,
}

impl<'a> NomError<&'a str> for Fault<'a> {
    fn from_error_kind(at: &'a str, _: ErrorKind) -> Self {
        Fault { at, expected: "".into() }
    }

    fn append(_: &'a str, _: ErrorKind, other: Self) -> Self {
        other
    }

    /// Of two alternatives, the one that got further is the one that was meant.
    fn or(self, other: Self) -> Self {
        if other.at.len() < self.at.len() { other } else { self }
    }
}

type Parsed<'a, T> = IResult<&'a str, T, Fault<'a>>;

/// Says what is expected where `parser` does not match; no alternative is tried then.
fn expect<'a, T>(
    expected: &'static str,
    mut parser: impl Parser<&'a str, Output = T, Error = Fault<'a>>,
) -> impl Parser<&'a str, Output = T, Error = Fault<'a>> {
    move |input: &'a str| {
        parser.parse(input).map_err(|error| match error {
            nom::Err::Error(fault) => {
                nom::Err::Failure(Fault { at: fault.at, expected: expected.into() })
            }
            other => other,
        })
    }
}

/// One operator line, its parts still text.
#[derive(Debug, PartialEq)]
pub(crate) struct OperatorLine<'a> {
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) inputs: Vec<&'a str>,
    pub(crate) outputs: Vec<&'a str>,
    pub(crate) fields: Vec<Field<'a>>,
}

/// One `key=value` of an operator line.
#[derive(Debug, PartialEq)]
pub(crate) enum Field<'a> {
    /// `@key=(shape)dtype`
    Weight { key: &'a str, dtype: DType, shape: Vec<usize> },
    /// `#operand=(dims)dtype`
    Type { operand: &'a str, ty: TensorType },
    /// `$key=operand`
    Input { key: &'a str, operand: &'a str },
    /// `^name=after`
    After { name: &'a str },
    /// `key=value`
    Param { key: &'a str, value: &'a str },
}

/// Runs `parser` over a whole line.
pub(crate) fn whole_line<'a, T>(
    line: &'a str,
    parser: impl Parser<&'a str, Output = T, Error = Fault<'a>>,
) -> Result<T, Fault<'a>> {
    let line_end = expect("the end of the line", all_consuming(space0));
    match (parser, line_end).parse(line) {
        Ok((_, (output, _))) => Ok(output),
        Err(nom::Err::Error(fault) | nom::Err::Failure(fault)) => Err(fault),
        Err(nom::Err::Incomplete(_)) => Err(Fault { at: line, expected: "a complete line".into() }),
    }
}

/// `operators operands`
pub(crate) fn counts(input: &str) -> Parsed<'_, (usize, usize)> {
    let operators = preceded(space0, expect("the number of operators", integer));
    let operands = preceded(space1, expect("the number of operands", integer));
    (operators, expect("the number of operands", operands)).parse(input)
}

/// A whole operator line.
pub(crate) fn operator(input: &str) -> Parsed<'_, OperatorLine<'_>> {
    let (input, (kind, name, n_inputs, n_outputs)) = (
        preceded(space0, expect("an operator's kind", word)),
        expect("the operator's name", preceded(space1, word)),
        expect("the number of inputs", preceded(space1, integer)),
        expect("the number of outputs", preceded(space1, integer)),
    )
        .parse(input)?;
    let (input, inputs) = operands(n_inputs, "input").parse(input)?;
    let (input, outputs) = operands(n_outputs, "output").parse(input)?;
    let (input, fields) = fields(input)?;
    Ok((input, OperatorLine { kind, name, inputs, outputs, fields }))
}

/// As many operand names as the line announces. Memory grows with the names found, not with the
/// number announced.
fn operands<'a>(
    announced: usize,
    role: &'static str,
) -> impl Parser<&'a str, Output = Vec<&'a str>, Error = Fault<'a>> {
    move |mut input: &'a str| {
        let mut names = Vec::new();
        while names.len() < announced {
            match preceded(space1, operand_name).parse(input) {
                Ok((rest, name)) => {
                    names.push(name);
                    input = rest;
                }
                Err(nom::Err::Error(fault)) => {
                    let expected = format!("{role} {} of {announced}", names.len() + 1).into();
                    return Err(nom::Err::Failure(Fault { at: fault.at, expected }));
                }
                Err(other) => return Err(other),
            }
        }
        Ok((input, names))
    }
}

/// Everything after the operands.
fn fields(mut input: &str) -> Parsed<'_, Vec<Field<'_>>> {
    let mut fields = Vec::new();
    loop {
        let (next, _) = space0(input)?;
        if next.is_empty() {
            return Ok((input, fields));
        }
        let (next, text) = expect("a parameter", word).parse(next)?;
        let (_, (field, _)) = (field, expect("a blank", eof)).parse(text)?;
        fields.push(field);
        input = next;
    }
}

fn field(input: &str) -> Parsed<'_, Field<'_>> {
    alt((weight, type_hint, input_name, after, param)).parse(input)
}

fn weight(input: &str) -> Parsed<'_, Field<'_>> {
    let shape = expect("a shape such as (64,3,7,7)", tuple(expect("a size", integer)));
    let dtype = expect("an element type such as f32", dtype);
    map((preceded(char('@'), key), shape, dtype), |(key, shape, dtype)| Field::Weight {
        key,
        dtype,
        shape,
    })
    .parse(input)
}

fn type_hint(input: &str) -> Parsed<'_, Field<'_>> {
    map((preceded(char('#'), key), tensor_type), |(operand, ty)| Field::Type { operand, ty })
        .parse(input)
}

fn input_name(input: &str) -> Parsed<'_, Field<'_>> {
    let operand = expect("an operand", operand_name);
    map((preceded(char('$'), key), operand), |(key, operand)| Field::Input { key, operand })
        .parse(input)
}

/// The whole word: a name may contain `=`.
fn after(input: &str) -> Parsed<'_, Field<'_>> {
    let Some(order) = input.strip_prefix('^') else {
        return Err(nom::Err::Error(Fault::from_error_kind(input, ErrorKind::Verify)));
    };
    match order.strip_suffix(AFTER).filter(|name| !name.is_empty()) {
        Some(name) => Ok((&input[input.len()..], Field::After { name })),
        None => Err(nom::Err::Failure(Fault { at: input, expected: "^OPERATOR=after".into() })),
    }
}

fn param(input: &str) -> Parsed<'_, Field<'_>> {
    map((expect("key=value", key), rest), |(key, value)| Field::Param { key, value }).parse(input)
}

fn tensor_type(input: &str) -> Parsed<'_, TensorType> {
    let dims = expect("a shape such as (1,?,%w)", tuple(expect("a size, '?' or '%name'", dim)));
    let dtype = alt((value(None, tag("null")), map(dtype, Some)));
    let dtype = expect("an element type such as f32, or nothing", alt((value(None, eof), dtype)));
    map((dims, dtype), |(shape, dtype)| TensorType { shape: Some(shape), dtype }).parse(input)
}

fn dim(input: &str) -> Parsed<'_, Dim> {
    alt((
        map(char('?'), |_| Dim::Unknown),
        map(preceded(char('%'), symbol), |name: &str| Dim::Symbol(name.to_owned())),
        map(integer, Dim::Known),
    ))
    .parse(input)
}

/// `(a,b,c)`, perhaps without anything between the parentheses.
fn tuple<'a, T>(
    element: impl Parser<&'a str, Output = T, Error = Fault<'a>>,
) -> impl Parser<&'a str, Output = Vec<T>, Error = Fault<'a>> {
    let mut elements = separated_list_or_nothing(element);
    move |input: &'a str| {
        delimited(char('('), |i| elements.parse(i), expect("',' or ')'", char(')'))).parse(input)
    }
}

fn separated_list_or_nothing<'a, T>(
    mut element: impl Parser<&'a str, Output = T, Error = Fault<'a>>,
) -> impl Parser<&'a str, Output = Vec<T>, Error = Fault<'a>> {
    move |input: &'a str| {
        if input.starts_with(')') {
            return Ok((input, Vec::new()));
        }
        separated_list0(char(','), |i| element.parse(i)).parse(input)
    }
}

fn dtype(input: &str) -> Parsed<'_, DType> {
    let (left, name) = take_while1(|c: char| c.is_ascii_alphanumeric()).parse(input)?;
    match DType::from_name(name) {
        Some(dtype) => Ok((left, dtype)),
        None => Err(nom::Err::Error(Fault::from_error_kind(input, ErrorKind::Verify))),
    }
}

/// A non-negative integer that fits.
fn integer(input: &str) -> Parsed<'_, usize> {
    let (left, digits) = digit1(input)?;
    match digits.parse() {
        Ok(value) => Ok((left, value)),
        Err(_) => Err(nom::Err::Error(Fault::from_error_kind(input, ErrorKind::Verify))),
    }
}

/// Anything up to the next blank.
fn word(input: &str) -> Parsed<'_, &str> {
    take_while1(|c: char| !c.is_whitespace()).parse(input)
}

/// A word without `=`, so that a missing operand is not made up from the first parameter.
fn operand_name(input: &str) -> Parsed<'_, &str> {
    let (left, name) = word(input)?;
    if name.contains('=') {
        Err(nom::Err::Error(Fault::from_error_kind(input, ErrorKind::Verify)))
    } else {
        Ok((left, name))
    }
}

/// What stands before `=`, and the `=`.
fn key(input: &str) -> Parsed<'_, &str> {
    match input.split_once('=') {
        Some((key, left)) if !key.is_empty() => Ok((left, key)),
        _ => Err(nom::Err::Error(Fault::from_error_kind(input, ErrorKind::Verify))),
    }
}

/// Name of a symbolic dimension.
fn symbol(input: &str) -> Parsed<'_, &str> {
    take_while1(|c: char| !matches!(c, ',' | '(' | ')')).parse(input)
}

/// Whether [`symbol`] reads the whole text.
pub(crate) fn is_symbol(name: &str) -> bool {
    all_consuming(symbol).parse(name).is_ok()
}

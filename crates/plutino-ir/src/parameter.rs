//! Parameter values: `stride=(2,2)`, `eps=1.000000e-5`, `mode=nearest-exact`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::quote::quote;

use crate::dtype::write_tuple;
use crate::number::{ComplexText, FloatText, Number, is_numeric, parse_number};

/// A value of an operator's parameter. The text alone decides the kind, by PNNX's rule:
///
/// | text | kind |
/// |---|---|
/// | `None`, `()`, `[]` | [`Null`](Parameter::Null) |
/// | `True`, `False` | [`Bool`](Parameter::Bool) |
/// | contains `%` | [`Str`](Parameter::Str) |
/// | `(..)` or `[..]` without brackets inside | a list, of the common kind of its elements |
/// | `(..)` or `[..]` with brackets inside | [`Other`](Parameter::Other) |
/// | starts with a digit, or `-` and a digit | complex if it ends in `j`, float if it has `.` or `e`, else integer |
/// | everything else, `inf` and `nan` included | [`Str`](Parameter::Str) |
///
/// So `(1)` is a list of one integer and `1` an integer, and integers and floats mixed in a list
/// are floats. The parameter named `expr` is exempt: its text is always a [`Str`](Parameter::Str),
/// to be read with [`Expr::parse`](crate::expr::Expr::parse) or
/// [`Literal::parse`](crate::expr::Literal::parse).
///
/// Floats are kept as the `f64` nearest to the decimal text. That makes the way text -> value ->
/// text exact, and loses nothing: PNNX writes at most nine digits, those of an `f32`.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Parameter {
    /// `None`, `()` or `[]`.
    #[default]
    Null,
    /// `True` or `False`.
    Bool(bool),
    /// An integer. `2147483647` stands for "to the end" in slices.
    Int(i64),
    /// A finite float; see [`Parameter::float`] for the others.
    Float(f64),
    /// A word: `zeros`, `torch.float`, `i,j->ij`, and the whole text of every `expr`.
    Str(String),
    /// A list of booleans.
    Bools(Vec<bool>),
    /// A list of integers, `(1)` included.
    Ints(Vec<i64>),
    /// A list of floats, or of floats and integers.
    Floats(Vec<f64>),
    /// A list of words, or of mixed kinds as in `indexes=(@0,2147483647,@1)`: the text of each
    /// element.
    Strs(Vec<String>),
    /// A complex number, real and imaginary part.
    Complex(f64, f64),
    /// A list of complex numbers, or of complex and real ones.
    Complexes(Vec<(f64, f64)>),
    /// A nested list as raw text, `[[2,1],[0,1]]`.
    Other(String),
}

/// A parameter's text is malformed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {expected}, found '{found}'", found = quote(found))]
pub struct ParameterError {
    /// Byte offset of the fault in the text.
    pub offset: usize,
    /// What would have been right there.
    pub expected: &'static str,
    /// What stands there.
    pub found: String,
}

impl Parameter {
    /// Reads a value by the rule in the type's description.
    ///
    /// # Errors
    /// Where a number, a list or a bracket is malformed.
    pub fn parse(text: &str) -> Result<Parameter, ParameterError> {
        match text {
            "None" | "()" | "[]" => return Ok(Parameter::Null),
            "True" => return Ok(Parameter::Bool(true)),
            "False" => return Ok(Parameter::Bool(false)),
            _ if text.contains('%') => return Ok(Parameter::Str(text.to_owned())),
            _ => {}
        }
        if text.starts_with(['(', '[']) {
            return match check_brackets(text)? {
                Nesting::Flat => parse_list(text),
                Nesting::Nested => Ok(Parameter::Other(text.to_owned())),
            };
        }
        Ok(match Element::parse(text, 0)? {
            Element::Bool(value) => Parameter::Bool(value),
            Element::Number(Number::Int(value)) => Parameter::Int(value),
            Element::Number(Number::Float(value)) => Parameter::Float(value),
            Element::Number(Number::Complex(re, im)) => Parameter::Complex(re, im),
            Element::Word => Parameter::Str(text.to_owned()),
        })
    }

    /// A float, or the word that PNNX writes for an infinity (`inf`, `-inf`) or NaN (`nan`).
    pub fn float(value: f64) -> Parameter {
        if value.is_finite() {
            Parameter::Float(value)
        } else {
            Parameter::Str(value.to_string().to_lowercase())
        }
    }

    /// Name of the kind, for messages: `null`, `bool`, `int`, `float`, `string`, `bool list`, `int
    /// list`, `float list`, `string list`, `complex`, `complex list` or `other`.
    pub fn kind(&self) -> &'static str {
        match self {
            Parameter::Null => "null",
            Parameter::Bool(_) => "bool",
            Parameter::Int(_) => "int",
            Parameter::Float(_) => "float",
            Parameter::Str(_) => "string",
            Parameter::Bools(_) => "bool list",
            Parameter::Ints(_) => "int list",
            Parameter::Floats(_) => "float list",
            Parameter::Strs(_) => "string list",
            Parameter::Complex(..) => "complex",
            Parameter::Complexes(_) => "complex list",
            Parameter::Other(_) => "other",
        }
    }

    /// Whether the value is `None`, `()` or `[]`.
    pub fn is_null(&self) -> bool {
        matches!(self, Parameter::Null)
    }

    /// The boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Parameter::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer; a float without a fraction counts, because exporters write `2.0` for `2` now
    /// and then.
    pub fn as_int(&self) -> Option<i64> {
        const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: beyond it a float no longer names one integer
        match self {
            Parameter::Int(value) => Some(*value),
            Parameter::Float(value) if value.fract() == 0.0 && value.abs() <= EXACT => {
                Some(*value as i64)
            }
            _ => None,
        }
    }

    /// The float; an integer is promoted, and the words `inf`, `-inf` and `nan` count.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Parameter::Int(value) => Some(*value as f64),
            Parameter::Float(value) => Some(*value),
            Parameter::Str(word) => match word.as_str() {
                "inf" => Some(f64::INFINITY),
                "-inf" => Some(f64::NEG_INFINITY),
                "nan" | "-nan" | "nan.0" | "-nan.0" => Some(f64::NAN),
                _ => None,
            },
            _ => None,
        }
    }

    /// The word, or the raw text of a nested list.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Parameter::Str(text) | Parameter::Other(text) => Some(text),
            _ => None,
        }
    }

    /// The list of booleans.
    pub fn as_bools(&self) -> Option<&[bool]> {
        match self {
            Parameter::Bools(values) => Some(values),
            _ => None,
        }
    }

    /// The list of integers.
    pub fn as_ints(&self) -> Option<&[i64]> {
        match self {
            Parameter::Ints(values) => Some(values),
            _ => None,
        }
    }

    /// The list of floats; a list of integers is promoted.
    pub fn as_floats(&self) -> Option<Cow<'_, [f64]>> {
        match self {
            Parameter::Ints(values) => Some(values.iter().map(|&value| value as f64).collect()),
            Parameter::Floats(values) => Some(Cow::Borrowed(values)),
            _ => None,
        }
    }

    /// The list of words.
    pub fn as_strs(&self) -> Option<&[String]> {
        match self {
            Parameter::Strs(values) => Some(values),
            _ => None,
        }
    }

    /// The complex number, also if it stands in parentheses, as Python prints it: `(1.0+2.0j)`.
    pub fn as_complex(&self) -> Option<(f64, f64)> {
        match self {
            Parameter::Complex(re, im) => Some((*re, *im)),
            Parameter::Complexes(values) => match values.as_slice() {
                [value] => Some(*value),
                _ => None,
            },
            _ => None,
        }
    }

    /// The list of complex numbers.
    pub fn as_complexes(&self) -> Option<&[(f64, f64)]> {
        match self {
            Parameter::Complexes(values) => Some(values),
            _ => None,
        }
    }
}

/// The text that PNNX would write, for example `(1,1)`.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bool_text = |value: bool| if value { "True" } else { "False" };
        match self {
            Parameter::Null => f.write_str("None"),
            Parameter::Bool(value) => f.write_str(bool_text(*value)),
            Parameter::Int(value) => write!(f, "{value}"),
            Parameter::Float(value) => write!(f, "{}", FloatText(*value)),
            Parameter::Str(text) | Parameter::Other(text) => f.write_str(text),
            Parameter::Bools(values) => {
                write_tuple(f, &values.iter().map(|&value| bool_text(value)).collect::<Vec<_>>())
            }
            Parameter::Ints(values) => write_tuple(f, values),
            Parameter::Floats(values) => {
                write_tuple(f, &values.iter().map(|&value| FloatText(value)).collect::<Vec<_>>())
            }
            Parameter::Strs(values) => write_tuple(f, values),
            Parameter::Complex(re, im) => write!(f, "{}", ComplexText(*re, *im)),
            Parameter::Complexes(values) => write_tuple(
                f,
                &values.iter().map(|&(re, im)| ComplexText(re, im)).collect::<Vec<_>>(),
            ),
        }
    }
}

impl FromStr for Parameter {
    type Err = ParameterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Parameter::parse(text)
    }
}

macro_rules! from {
    ($($source:ty => |$value:ident| $parameter:expr;)*) => {$(
        impl From<$source> for Parameter {
            fn from($value: $source) -> Self {
                $parameter
            }
        }
    )*};
}

from! {
    bool => |value| Parameter::Bool(value);
    i32 => |value| Parameter::Int(value.into());
    i64 => |value| Parameter::Int(value);
    f64 => |value| Parameter::float(value);
    // The decimal that names the f32, not its binary expansion: 0.1, not 0.10000000149011612.
    f32 => |value| Parameter::float(value.to_string().parse().unwrap_or(f64::from(value)));
    &str => |value| Parameter::Str(value.to_owned());
    String => |value| Parameter::Str(value);
    Vec<bool> => |value| Parameter::Bools(value);
    Vec<i64> => |value| Parameter::Ints(value);
    &[i64] => |value| Parameter::Ints(value.to_vec());
    Vec<f64> => |value| Parameter::Floats(value);
    Vec<String> => |value| Parameter::Strs(value);
}

impl<const N: usize> From<[i64; N]> for Parameter {
    fn from(values: [i64; N]) -> Self {
        Parameter::Ints(values.to_vec())
    }
}

enum Nesting {
    Flat,
    Nested,
}

/// Checks that brackets pair up and that the first one closes at the very end.
fn check_brackets(text: &str) -> Result<Nesting, ParameterError> {
    let fault = |offset: usize, expected| {
        let found = text.get(offset..).and_then(|rest| rest.chars().next());
        Err(ParameterError {
            offset,
            expected,
            found: found.map_or("end of value".into(), String::from),
        })
    };
    let mut open = Vec::new();
    let mut nesting = Nesting::Flat;
    for (offset, c) in text.char_indices() {
        match c {
            '(' | '[' => {
                if !open.is_empty() {
                    nesting = Nesting::Nested;
                }
                open.push(c);
            }
            ')' | ']' => {
                let matching = if c == ')' { '(' } else { '[' };
                match open.pop() {
                    Some(opened) if opened == matching => {}
                    Some('(') => return fault(offset, "')'"),
                    _ => return fault(offset, "']'"),
                }
                if open.is_empty() && offset + 1 != text.len() {
                    return fault(offset + 1, "the end of the value after its closing bracket");
                }
            }
            _ => {}
        }
    }
    match open.last() {
        None => Ok(nesting),
        Some('(') => fault(text.len(), "')'"),
        Some(_) => fault(text.len(), "']'"),
    }
}

enum Element {
    Bool(bool),
    Number(Number),
    Word,
}

impl Element {
    fn parse(text: &str, offset: usize) -> Result<Element, ParameterError> {
        match text {
            "True" => Ok(Element::Bool(true)),
            "False" => Ok(Element::Bool(false)),
            _ if is_numeric(text) => parse_number(text)
                .map(Element::Number)
                .map_err(|expected| ParameterError { offset, expected, found: text.to_owned() }),
            _ => Ok(Element::Word),
        }
    }
}

/// A list without inner brackets; `text` includes the outer ones and has something between them.
fn parse_list(text: &str) -> Result<Parameter, ParameterError> {
    let body = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let mut offset = 1;
    let mut elements = Vec::new();
    for element in body.split(',') {
        if element.is_empty() {
            let found = text.get(offset..offset + 1).unwrap_or_default().to_owned();
            return Err(ParameterError { offset, expected: "a list element", found });
        }
        elements.push(Element::parse(element, offset)?);
        offset += element.len() + 1;
    }
    let collected = || body.split(',').map(str::to_owned).collect();
    Ok(join(&elements).unwrap_or_else(|| Parameter::Strs(collected())))
}

/// The narrowest list that holds all elements; `None` if only text does.
fn join(elements: &[Element]) -> Option<Parameter> {
    fn all<T>(elements: &[Element], convert: impl Fn(&Element) -> Option<T>) -> Option<Vec<T>> {
        elements.iter().map(convert).collect()
    }
    let bools = || {
        all(elements, |element| match element {
            Element::Bool(value) => Some(*value),
            _ => None,
        })
    };
    let ints = || {
        all(elements, |element| match element {
            Element::Number(Number::Int(value)) => Some(*value),
            _ => None,
        })
    };
    let floats = || {
        all(elements, |element| match element {
            Element::Number(Number::Int(value)) => Some(*value as f64),
            Element::Number(Number::Float(value)) => Some(*value),
            _ => None,
        })
    };
    let complexes = || {
        all(elements, |element| match element {
            Element::Number(Number::Int(value)) => Some((*value as f64, 0.0)),
            Element::Number(Number::Float(value)) => Some((*value, 0.0)),
            Element::Number(Number::Complex(re, im)) => Some((*re, *im)),
            _ => None,
        })
    };
    ints()
        .map(Parameter::Ints)
        .or_else(|| bools().map(Parameter::Bools))
        .or_else(|| floats().map(Parameter::Floats))
        .or_else(|| complexes().map(Parameter::Complexes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Parameter {
        Parameter::parse(text).unwrap()
    }

    #[test]
    fn the_text_decides_the_kind() {
        for (text, value) in [
            ("None", Parameter::Null),
            ("()", Parameter::Null),
            ("[]", Parameter::Null),
            ("True", Parameter::Bool(true)),
            ("3", Parameter::Int(3)),
            ("-1", Parameter::Int(-1)),
            ("2147483647", Parameter::Int(2147483647)),
            ("-1.0", Parameter::Float(-1.0)),
            ("1e5", Parameter::Float(1e5)),
            ("1.000000e-05", Parameter::Float(1e-5)),
            ("inf", Parameter::Str("inf".into())),
            ("-inf", Parameter::Str("-inf".into())),
            ("nearest-exact", Parameter::Str("nearest-exact".into())),
            ("i,j,k,l->ijkl", Parameter::Str("i,j,k,l->ijkl".into())),
            ("", Parameter::Str("".into())),
            ("(1,%x)", Parameter::Str("(1,%x)".into())),
            ("(1)", Parameter::Ints(vec![1])),
            ("[3,-1]", Parameter::Ints(vec![3, -1])),
            ("(1,2.5)", Parameter::Floats(vec![1.0, 2.5])),
            ("(True,False)", Parameter::Bools(vec![true, false])),
            ("(@0,2147483647)", Parameter::Strs(vec!["@0".into(), "2147483647".into()])),
            ("(None,3)", Parameter::Strs(vec!["None".into(), "3".into()])),
            ("1.0+2.0j", Parameter::Complex(1.0, 2.0)),
            ("(1.0+2.0j)", Parameter::Complexes(vec![(1.0, 2.0)])),
            ("(1.0+2.0j,3)", Parameter::Complexes(vec![(1.0, 2.0), (3.0, 0.0)])),
            ("[[2,1],[0,1]]", Parameter::Other("[[2,1],[0,1]]".into())),
            ("[None,None,[1,0]]", Parameter::Other("[None,None,[1,0]]".into())),
        ] {
            assert_eq!(parse(text), value, "{text}");
            assert_eq!(parse(&value.to_string()), value, "{text}");
        }
    }

    #[test]
    fn faults_are_placed() {
        for (text, offset, expected) in [
            ("0x10", 0, "a 64-bit integer"),
            ("99999999999999999999", 0, "a 64-bit integer"),
            ("1.2.3", 0, "a finite float"),
            ("(1,2x)", 3, "a 64-bit integer"),
            ("(1,,2)", 3, "a list element"),
            ("(1,)", 3, "a list element"),
            ("(1,2", 4, "')'"),
            ("(1]", 2, "')'"),
            ("[1)", 2, "']'"),
            ("(1)2", 3, "the end of the value after its closing bracket"),
            ("[[1]", 4, "']'"),
        ] {
            let fault = Parameter::parse(text).unwrap_err();
            assert_eq!((fault.offset, fault.expected), (offset, expected), "{text}: {fault}");
        }
    }

    #[test]
    fn accessors_promote() {
        assert_eq!(parse("3").as_float(), Some(3.0));
        assert_eq!(parse("3.0").as_int(), Some(3));
        assert_eq!(parse("3.5").as_int(), None);
        assert_eq!(parse("-inf").as_float(), Some(f64::NEG_INFINITY));
        assert_eq!(parse("(1,2)").as_floats().as_deref(), Some(&[1.0, 2.0][..]));
        assert_eq!(parse("(1)").as_int(), None);
        assert_eq!(parse("1").as_ints(), None);
        assert_eq!(parse("(1.0+2.0j)").as_complex(), Some((1.0, 2.0)));
    }

    #[test]
    fn native_values_convert() {
        assert_eq!(Parameter::from(0.1f32).to_string(), "0.1");
        assert_eq!(Parameter::from(f32::NEG_INFINITY).to_string(), "-inf");
        assert_eq!(Parameter::from(f64::NAN).to_string(), "nan");
        assert_eq!(Parameter::from([3, 3]).to_string(), "(3,3)");
    }
}

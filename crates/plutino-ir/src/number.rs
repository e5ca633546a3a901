//! Numbers as PNNX spells them, shared by parameters and expressions.

use std::fmt;

/// A float as PNNX writes it: the shortest digits that read back equal, `0.5`, `2.0`,
/// `0.333333343`; below 1e-4 and from 1e9 on with an exponent and at least six decimals,
/// `1.000000e-5`.
///
/// Not for infinities and NaN, which PNNX spells as words and types as strings.
pub(crate) struct FloatText(pub(crate) f64);

impl fmt::Display for FloatText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        let magnitude = value.abs();
        if magnitude == 0.0 || (1e-4..1e9).contains(&magnitude) {
            return write!(f, "{value:?}");
        }
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let point = if decimals == 0 { "." } else { "" };
        let zeros = &"000000"[decimals.min(6)..];
        let plus = if exponent.starts_with('-') { "" } else { "+" };
        write!(f, "{mantissa}{point}{zeros}e{plus}{exponent}")
    }
}

/// A complex number as Python spells it, `1.2-0.9j`.
pub(crate) struct ComplexText(pub(crate) f64, pub(crate) f64);

impl fmt::Display for ComplexText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.1.is_sign_negative() { '-' } else { '+' };
        write!(f, "{}{sign}{}j", FloatText(self.0), FloatText(self.1.abs()))
    }
}

/// A number, by PNNX's lexical rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
    Complex(f64, f64),
}

/// Whether PNNX reads this text as a number at all: it starts with a digit, or with `-` and a
/// digit.
pub(crate) fn is_numeric(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// Reads a text that [`is_numeric`]: complex if it ends in `j`, a float if it has `.` or `e`, else
/// an integer. `Err` says which of them it failed to be.
pub(crate) fn parse_number(text: &str) -> Result<Number, &'static str> {
    if let Some(body) = text.strip_suffix('j') {
        return parse_complex(body)
            .map(|(re, im)| Number::Complex(re, im))
            .ok_or("a complex number");
    }
    if text.contains(['.', 'e']) {
        return parse_finite(text).map(Number::Float).ok_or("a finite float");
    }
    text.parse().map(Number::Int).map_err(|_| "a 64-bit integer")
}

fn parse_finite(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(value)
}

/// `re+im`, `re-im`, the converter's own `re+-im`, or `im` alone.
fn parse_complex(body: &str) -> Option<(f64, f64)> {
    let bytes = body.as_bytes();
    let sign = bytes.iter().enumerate().skip(1).find(|&(i, &byte)| {
        matches!(byte, b'+' | b'-') && !matches!(bytes.get(i - 1), Some(b'e' | b'E'))
    });
    let Some((at, _)) = sign else {
        return parse_finite(body).map(|im| (0.0, im));
    };
    let (re, im) = body.split_at_checked(at)?;
    let im = if im.starts_with("+-") { im.get(1..)? } else { im };
    Some((parse_finite(re)?, parse_finite(im)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_as_pnnx_spells_them() {
        for text in [
            "0.0",
            "2.0",
            "-1.5",
            "0.1",
            "0.0001",
            "1.000000e-5",
            "1.000000e-12",
            "0.333333343",
            "4.89897966",
            "2.97674394",
            "233.0",
            "1.234567891e-7",
            "-1.000000e+10",
            "3.402823466e+38",
            "123456789.0",
        ] {
            assert_eq!(FloatText(text.parse().unwrap()).to_string(), text);
        }
    }

    #[test]
    fn numbers_are_typed_by_their_letters() {
        assert_eq!(parse_number("-3"), Ok(Number::Int(-3)));
        assert_eq!(parse_number("2.0e+00"), Ok(Number::Float(2.0)));
        assert_eq!(parse_number("1.200000e+00-9.000000e-01j"), Ok(Number::Complex(1.2, -0.9)));
        assert_eq!(parse_number("1.0+-2.0j"), Ok(Number::Complex(1.0, -2.0)));
        assert_eq!(parse_number("4j"), Ok(Number::Complex(0.0, 4.0)));
        assert_eq!(parse_number("0x10"), Err("a 64-bit integer"));
        assert_eq!(parse_number("9223372036854775808"), Err("a 64-bit integer"));
        assert_eq!(parse_number("1e999"), Err("a finite float"));
        assert_eq!(parse_number("1+j"), Err("a complex number"));
        assert!(is_numeric("-3") && !is_numeric("-inf") && !is_numeric("@0") && !is_numeric(""));
    }

    #[test]
    fn complex_reads_back() {
        for (re, im) in [(0.0, 4.0), (1.2, -0.9), (-1e-7, 1e20), (0.0, -0.0)] {
            assert_eq!(parse_number(&ComplexText(re, im).to_string()), Ok(Number::Complex(re, im)));
        }
    }
}

//! Expressions of `pnnx.Expression` and index literals of `Tensor.index`.

mod error;
mod functions;
mod literal;
mod parse;
mod stream;
mod token;

use std::fmt;

use crate::number::{ComplexText, FloatText};

pub use error::{ExprError, ExprErrorKind};
pub use functions::{BinaryFn, UnaryFn};
pub use literal::Literal;

/// Deepest nesting of calls and lists that is read. It bounds the stack of everybody who walks an
/// expression, and is far beyond what models have.
pub const MAX_DEPTH: usize = 512;

/// The value of a `pnnx.Expression`: arithmetic on the operator's inputs and on constants.
///
/// ```
/// use plutino_ir::expr::{BinaryFn, Expr};
///
/// let expr = Expr::parse("add(@0,mul(@1,2.0))")?;
/// let Expr::Binary(BinaryFn::Add, a, b) = &expr else { panic!() };
/// assert_eq!(**a, Expr::Input(0));
/// assert_eq!(b.to_string(), "mul(@1,2.0)");
/// # Ok::<(), plutino_ir::expr::ExprError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// `None`: in a list of indices, a dimension that is taken whole.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A word that is the whole text, such as `sum`: the mode that an operator takes as an input.
    Word(String),
    /// `@n`: the operator's input of this number.
    Input(usize),
    /// An integer literal.
    Int(i64),
    /// A float literal, `inf`, `-inf` or `nan`.
    Float(f64),
    /// A complex literal, real and imaginary part.
    Complex(f64, f64),
    /// `[a,b]`: a list, for instance the shape that `Tensor.reshape` takes as an input.
    List(Vec<Expr>),
    /// `size(x,d)`: the size of dimension `d` of a tensor; without `d`, the list of all sizes.
    Size {
        /// The tensor.
        of: Box<Expr>,
        /// The dimension, negative from the end.
        dim: Option<Box<Expr>>,
    },
    /// A function of one argument.
    Unary(UnaryFn, Box<Expr>),
    /// A function of two arguments.
    Binary(BinaryFn, Box<Expr>, Box<Expr>),
}

impl Expr {
    /// Reads the value of an `expr` parameter.
    ///
    /// Both forms that pnnx writes are read: calls, `sub(@0,0.5)`, and bare prefixes, `expm1,@0`.
    ///
    /// # Errors
    /// Where the text is no expression: an unknown function or the wrong number of arguments,
    /// brackets that do not pair up, a malformed number, or nesting beyond [`MAX_DEPTH`].
    pub fn parse(text: &str) -> Result<Expr, ExprError> {
        parse::parse(text)
    }

    /// The parts that this expression is made of directly.
    pub fn children(&self) -> impl Iterator<Item = &Expr> {
        let (list, a, b): (&[Expr], _, _) = match self {
            Expr::None
            | Expr::Bool(_)
            | Expr::Word(_)
            | Expr::Input(_)
            | Expr::Int(_)
            | Expr::Float(_)
            | Expr::Complex(..) => (&[], None, None),
            Expr::List(items) => (items, None, None),
            Expr::Size { of, dim } => (&[], Some(of), dim.as_ref()),
            Expr::Unary(_, a) => (&[], Some(a), None),
            Expr::Binary(_, a, b) => (&[], Some(a), Some(b)),
        };
        list.iter().chain(a.into_iter().chain(b).map(|part| &**part))
    }

    /// Calls `visit` on this expression and on every part of it, the whole before its parts.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        visit(self);
        self.children().for_each(|part| part.walk(visit));
    }

    /// One more than the largest input number, so the number of inputs that the operator needs at
    /// least.
    pub fn input_count(&self) -> usize {
        let mut count = 0;
        self.walk(&mut |part| {
            if let Expr::Input(index) = part {
                count = count.max(index.saturating_add(1));
            }
        });
        count
    }
}

/// As pnnx writes it, every function as a call.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::None => f.write_str("None"),
            Expr::Bool(true) => f.write_str("True"),
            Expr::Bool(false) => f.write_str("False"),
            Expr::Word(word) => f.write_str(word),
            Expr::Input(index) => write!(f, "@{index}"),
            Expr::Int(value) => write!(f, "{value}"),
            Expr::Float(value) if value.is_finite() => write!(f, "{}", FloatText(*value)),
            Expr::Float(value) if value.is_nan() => f.write_str("nan"),
            Expr::Float(value) => f.write_str(if *value > 0.0 { "inf" } else { "-inf" }),
            Expr::Complex(re, im) => write!(f, "{}", ComplexText(*re, *im)),
            Expr::List(items) => {
                f.write_str("[")?;
                write_list(f, items)?;
                f.write_str("]")
            }
            Expr::Size { of, dim: Some(dim) } => write!(f, "size({of},{dim})"),
            Expr::Size { of, dim: None } => write!(f, "size({of})"),
            Expr::Unary(function, a) => write!(f, "{function}({a})"),
            Expr::Binary(function, a, b) => write!(f, "{function}({a},{b})"),
        }
    }
}

fn write_list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(f, "{comma}{item}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

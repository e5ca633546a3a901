//! The functions of `pnnx.Expression`. One table drives parsing, printing and documentation.

use std::fmt;

macro_rules! functions {
    (
        $(#[$doc:meta])*
        pub enum $name:ident { $($variant:ident => $text:literal, $meaning:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`: ", $meaning, ".")] $variant,)*
        }

        impl $name {
            /// Every function, in the order of the table.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Name in an expression.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// What it computes, in a few words.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($name::$variant => $meaning,)*
                }
            }

            /// Looks a name up.
            pub fn from_name(name: &str) -> Option<$name> {
                match name {
                    $($text => Some($name::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

functions! {
    /// A function of one argument, elementwise on tensors. The meaning is that of the PyTorch
    /// function of the same name.
    pub enum UnaryFn {
        Abs => "abs", "absolute value";
        Acos => "acos", "inverse cosine";
        Acosh => "acosh", "inverse hyperbolic cosine";
        Asin => "asin", "inverse sine";
        Asinh => "asinh", "inverse hyperbolic sine";
        Atan => "atan", "inverse tangent";
        Atanh => "atanh", "inverse hyperbolic tangent";
        Ceil => "ceil", "smallest integer not below";
        Cos => "cos", "cosine";
        Cosh => "cosh", "hyperbolic cosine";
        Erf => "erf", "error function";
        Exp => "exp", "e to the power";
        Expm1 => "expm1", "e to the power, minus one, accurate near zero";
        Floor => "floor", "largest integer not above";
        Log => "log", "natural logarithm";
        Log10 => "log10", "decimal logarithm";
        Log1p => "log1p", "natural logarithm of one plus, accurate near zero";
        Neg => "neg", "negation";
        Reciprocal => "reciprocal", "one divided by";
        Round => "round", "nearest integer, halves to even";
        Rsqrt => "rsqrt", "one divided by the square root";
        Sign => "sign", "-1, 0 or 1 by sign";
        Sin => "sin", "sine";
        Sinh => "sinh", "hyperbolic sine";
        Sqrt => "sqrt", "square root";
        Square => "square", "product with itself";
        Tan => "tan", "tangent";
        Tanh => "tanh", "hyperbolic tangent";
        Trunc => "trunc", "integer part";
        Int => "int", "Python's int(): integer part, as an integer";
        Bool => "torch.bool", "conversion to bool";
        Float => "torch.float", "conversion to f32";
        Long => "torch.long", "conversion to i64";
    }
}

functions! {
    /// A function of two arguments, elementwise with broadcasting on tensors. The meaning is that
    /// of the PyTorch function or Python operator of the same name.
    pub enum BinaryFn {
        Add => "add", "sum";
        Sub => "sub", "difference";
        Mul => "mul", "product";
        Div => "div", "true quotient, a float for integers";
        FloorDivide => "floor_divide", "quotient rounded towards minus infinity";
        Remainder => "remainder", "remainder with the divisor's sign, Python's %";
        Fmod => "fmod", "remainder with the dividend's sign, C's fmod";
        Pow => "pow", "power";
        Atan2 => "atan2", "angle of the point (second, first)";
        Logaddexp => "logaddexp", "logarithm of the sum of exponentials";
        Max => "max", "larger one, NaN if either is";
        Maximum => "maximum", "larger one, NaN if either is";
        Min => "min", "smaller one, NaN if either is";
        Minimum => "minimum", "smaller one, NaN if either is";
        And => "and", "bitwise and; logical on bool";
        Or => "or", "bitwise or; logical on bool";
        Xor => "xor", "bitwise exclusive or; logical on bool";
        LeftShift => "lshift", "bits shifted to the left";
        RightShift => "rshift", "bits shifted to the right, keeping the sign";
    }
}

/// A function by name, whatever its arity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Unary(UnaryFn),
    Binary(BinaryFn),
    Size,
}

/// Name of the only function with an optional argument.
pub(super) const SIZE: &str = "size";

impl Function {
    pub(super) fn from_name(name: &str) -> Option<Function> {
        if name == SIZE {
            return Some(Function::Size);
        }
        UnaryFn::from_name(name)
            .map(Function::Unary)
            .or_else(|| BinaryFn::from_name(name).map(Function::Binary))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Function::Unary(function) => function.name(),
            Function::Binary(function) => function.name(),
            Function::Size => SIZE,
        }
    }

    /// Least and largest number of arguments.
    pub(super) fn arity(self) -> (usize, usize) {
        match self {
            Function::Unary(_) => (1, 1),
            Function::Binary(_) => (2, 2),
            Function::Size => (1, 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_found() {
        let unary = UnaryFn::ALL.iter().map(|function| function.name());
        let binary = BinaryFn::ALL.iter().map(|function| function.name());
        let names: Vec<_> = unary.chain(binary).chain([SIZE]).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for name in names {
            assert_eq!(Function::from_name(name).map(Function::name), Some(name));
        }
        assert_eq!(Function::from_name("gelu"), None);
    }
}

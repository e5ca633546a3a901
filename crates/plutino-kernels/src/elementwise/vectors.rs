//! The functions of f32 vectors.

use super::lanes::Lane;
use super::op::{Binary, Unary};
use super::steps::{Size, To};
use crate::math::{
    acos, acosh, asin, asinh, atan, atan2, atanh, cos, cosh, erf, erfc, erfinv, exp, exp2, expm1,
    log, log1p, log2, log10, neg, sin, sinh, tan,
};
use crate::simd::{Simd, Vectorized};

/// `$y` of every vector, as a loop: a closure might not be inlined, and would lack the instruction
/// set.
macro_rules! each {
    ($vectors:ident, |$x:ident| $y:expr) => {
        for v in &mut $vectors {
            let $x = *v;
            *v = $y;
        }
    };
    ($vectors:ident, $others:ident, |$a:ident, $b:ident| $y:expr) => {
        for i in 0..N {
            let y = {
                let ($a, $b) = ($vectors[i], $others[i]);
                $y
            };
            $vectors[i] = y;
        }
    };
}

impl Unary {
    /// The function of several vectors: the choice of function is made once for all of them.
    /// Activations have a way of their own ([`super::steps::UnaryF32`]).
    #[inline(always)]
    pub(super) fn apply_all<S: Simd, const N: usize>(
        self,
        s: S,
        mut x: [S::F32; N],
    ) -> [S::F32; N] {
        let zero = s.zero();
        let one = s.splat(1.0);
        match self {
            Self::Positive | Self::Real => {}
            Self::Neg => each!(x, |x| neg(s, x)),
            Self::Abs => each!(x, |x| s.abs(x)),
            Self::Sign => each!(x, |x| {
                let negative = s.select(s.lt(x, zero), s.splat(-1.0), zero);
                s.select(s.lt(zero, x), one, negative)
            }),
            Self::Floor => each!(x, |x| s.floor(x)),
            Self::Ceil => each!(x, |x| s.ceil(x)),
            Self::Round => each!(x, |x| s.round(x)),
            Self::Trunc => each!(x, |x| s.trunc(x)),
            Self::Square => each!(x, |x| s.mul(x, x)),
            Self::Sqrt => each!(x, |x| s.sqrt(x)),
            Self::Rsqrt => each!(x, |x| s.div(one, s.sqrt(x))),
            Self::Reciprocal => each!(x, |x| s.div(one, x)),
            Self::Exp => each!(x, |x| exp(s, x)),
            Self::Expm1 => each!(x, |x| expm1(s, x)),
            Self::Log => each!(x, |x| log(s, x)),
            Self::Log1p => each!(x, |x| log1p(s, x)),
            Self::Sin => each!(x, |x| sin(s, x)),
            Self::Cos => each!(x, |x| cos(s, x)),
            Self::Erf => each!(x, |x| erf(s, x)),
            Self::LogicalNot => each!(x, |x| s.select(s.eq(x, zero), one, zero)),
            Self::NotZero => each!(x, |x| s.select(s.eq(x, zero), zero, one)),
            _ => {} // others are seldom
        }
        x
    }

    /// Whether it is computed by [`Seldom`], not by [`Unary::apply_all`].
    pub(super) const fn is_seldom(self) -> bool {
        use Unary::{
            Abs, Activation, Ceil, Cos, Erf, Exp, Expm1, Floor, Log, Log1p, LogicalNot, Neg,
            NotZero, Positive, Real, Reciprocal, Round, Rsqrt, Sign, Sin, Sqrt, Square, Trunc,
        };
        !matches!(
            self,
            Abs | Activation(_)
                | Ceil
                | Cos
                | Erf
                | Exp
                | Expm1
                | Floor
                | Log
                | Log1p
                | LogicalNot
                | Neg
                | NotZero
                | Positive
                | Real
                | Reciprocal
                | Round
                | Rsqrt
                | Sign
                | Sin
                | Sqrt
                | Square
                | Trunc
        )
    }
}

impl Binary {
    /// The function of several pairs of vectors.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // as an iterator over arrays of vectors it is not inlined
    pub(super) fn apply_all<S: Simd, const N: usize>(
        self,
        s: S,
        mut a: [S::F32; N],
        b: [S::F32; N],
    ) -> [S::F32; N] {
        let zero = s.zero();
        let one = s.splat(1.0);
        match self {
            Self::Add => each!(a, b, |a, b| s.add(a, b)),
            Self::Sub => each!(a, b, |a, b| s.sub(a, b)),
            Self::Mul => each!(a, b, |a, b| s.mul(a, b)),
            Self::Div => each!(a, b, |a, b| s.div(a, b)),
            // max and min give b where either is NaN, so a NaN in a is put back.
            Self::Maximum => each!(a, b, |a, b| s.select(s.eq(a, a), s.max(a, b), a)),
            Self::Minimum => each!(a, b, |a, b| s.select(s.eq(a, a), s.min(a, b), a)),
            Self::LogAddExp => each!(a, b, |a, b| {
                let apart = log1p(s, exp(s, neg(s, s.abs(s.sub(a, b)))));
                // Equal arguments may be infinite, their difference NaN.
                let tail = s.select(s.eq(a, b), s.splat(std::f32::consts::LN_2), apart);
                s.add(s.max(a, b), tail)
            }),
            Self::Eq => each!(a, b, |a, b| s.select(s.eq(a, b), one, zero)),
            Self::Ne => each!(a, b, |a, b| s.select(s.eq(a, b), zero, one)),
            Self::Lt => each!(a, b, |a, b| s.select(s.lt(a, b), one, zero)),
            Self::Le => each!(a, b, |a, b| s.select(s.le(a, b), one, zero)),
            Self::Gt => each!(a, b, |a, b| s.select(s.lt(b, a), one, zero)),
            Self::Ge => each!(a, b, |a, b| s.select(s.le(b, a), one, zero)),
            Self::LogicalAnd => each!(a, b, |a, b| {
                let b = s.select(s.eq(b, zero), zero, one);
                s.select(s.eq(a, zero), zero, b)
            }),
            Self::LogicalOr => each!(a, b, |a, b| {
                let b = s.select(s.eq(b, zero), zero, one);
                s.select(s.eq(a, zero), b, one)
            }),
            Self::LogicalXor => each!(a, b, |a, b| {
                let not_b = s.select(s.eq(b, zero), one, zero);
                s.select(s.eq(a, zero), s.sub(one, not_b), not_b)
            }),
            Self::Prelu => each!(a, b, |a, b| s.select(s.lt(zero, a), a, s.mul(a, b))),
            _ => each!(a, b, |a, b| {
                let mut lanes = to_lanes(s, a);
                let others = to_lanes(s, b);
                s.outlined(SeldomPairs(self, &mut lanes[..S::LANES], &others[..S::LANES]));
                s.load(&lanes)
            }),
        }
        a
    }
}

#[inline(always)]
fn to_lanes<S: Simd>(s: S, x: S::F32) -> [f32; 16] {
    let mut lanes = [0.0; 16];
    s.store(x, &mut lanes);
    lanes
}

/// A function of rows, in place, compiled once: what networks seldom need.
pub(super) struct Seldom {
    pub(super) op: Unary,
    /// Every element is valid for reads and for writes.
    pub(super) rows: To<f32>,
    pub(super) size: Size,
}

impl Vectorized for Seldom {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ((rows, cols), to) = (self.size, self.rows);
        /// A loop of its own for each function: there is no choice left inside.
        macro_rules! each {
            ($lanes:ident => $body:expr) => {
                for r in 0..rows {
                    for c in (0..cols).step_by(S::LANES) {
                        let n = (cols - c).min(S::LANES);
                        // SAFETY: in the rows, whose elements are valid (the value promises it).
                        let $lanes = unsafe {
                            std::slice::from_raw_parts_mut(to.ptr.add(r * to.down + c), n)
                        };
                        $body
                    }
                }
            };
            ($function:ident) => {
                each!(lanes => {
                    let n = lanes.len();
                    s.store_up_to($function(s, s.load_up_to(lanes, n)), lanes, n);
                })
            };
        }
        match self.op {
            Unary::Log2 => each!(log2),
            Unary::Log10 => each!(log10),
            Unary::Tan => each!(tan),
            Unary::Asin => each!(asin),
            Unary::Acos => each!(acos),
            Unary::Atan => each!(atan),
            Unary::Sinh => each!(sinh),
            Unary::Cosh => each!(cosh),
            Unary::Asinh => each!(asinh),
            Unary::Acosh => each!(acosh),
            Unary::Atanh => each!(atanh),
            Unary::Erfc => each!(erfc),
            Unary::Erfinv => each!(erfinv),
            Unary::Exp2 => each!(exp2),
            // The rest is computed in f64, element by element, and rounded once.
            op => each!(lanes => lanes.iter_mut().for_each(|x| *x = f32::unary(op, *x))),
        }
    }
}

/// A function of a pair of vectors, in place of the first.
struct SeldomPairs<'a>(Binary, &'a mut [f32], &'a [f32]);

impl Vectorized for SeldomPairs<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self(op, lanes, others) = self;
        let (a, b) = (s.load(lanes), s.load(others));
        let y = match op {
            Binary::Atan2 => atan2(s, a, b),
            Binary::LogAddExp2 => {
                let apart = log1p(s, exp2(s, neg(s, s.abs(s.sub(a, b)))));
                // Equal arguments may be infinite, their difference NaN.
                let tail = s.mul(apart, s.splat(std::f32::consts::LOG2_E));
                s.add(s.max(a, b), s.select(s.eq(a, b), s.splat(1.0), tail))
            }
            _ => {
                lanes.iter_mut().zip(others).for_each(|(a, b)| *a = f32::binary(op, *a, *b));
                return;
            }
        };
        s.store(y, lanes);
    }
}

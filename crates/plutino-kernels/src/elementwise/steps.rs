//! What each step of a program does with a tile.
//!
//! Everything here reads and writes through pointers, because the result may lie where an input
//! lies: then each element is read before it is written, by the same iteration of the same loop.

use super::chunks::BinaryOf;
use super::lanes::Lane;
use super::op::{Binary, Unary};
use super::program::Constant;
use super::vectors::Seldom;
use crate::activation::InPlace;
use crate::halves::Half;
use crate::number::Number;
use crate::simd::{Simd, Vectorized};
use half::{bf16, f16};
use num_complex::Complex;
use plutino_tensor::Convert as _;

/// A tile of an operand: element (r, c) lies at `ptr + r * down + c * across`.
#[derive(Clone, Copy)]
pub(super) struct From<T> {
    pub(super) ptr: *const T,
    pub(super) down: usize,
    /// 0 or 1.
    pub(super) across: usize,
}

/// A tile of a register or of the result: element (r, c) lies at `ptr + r * down + c`.
#[derive(Clone, Copy)]
pub(super) struct To<T> {
    pub(super) ptr: *mut T,
    pub(super) down: usize,
}

/// Rows and columns of a tile.
pub(super) type Size = (usize, usize);

/// A type that registers hold.
pub(super) trait Held: Copy + 'static {
    fn constant(c: &Constant) -> &Self;
}

macro_rules! held {
    ($($t:ty: $field:ident;)*) => {$(
        impl Held for $t {
            fn constant(c: &Constant) -> &Self {
                &c.$field
            }
        }
    )*};
}
held! { f32: f32; f64: f64; i32: i32; i64: i64; Complex<f64>: c128; }

/// A function of single elements that vectors of any instruction set compute alike.
pub(super) trait OfElement {
    type Of: Copy;
    type To: Copy;
    fn apply(x: Self::Of) -> Self::To;
}

/// The f32 of a float of half the width.
pub(super) struct Widened<T>(T);

impl<T: Half> OfElement for Widened<T> {
    type Of = T;
    type To = f32;
    #[inline(always)]
    fn apply(x: T) -> f32 {
        x.to_single()
    }
}

/// The nearest float of half the width.
pub(super) struct Narrowed<T>(T);

impl<T: Half> OfElement for Narrowed<T> {
    type Of = f32;
    type To = T;
    #[inline(always)]
    fn apply(x: f32) -> T {
        T::from_single(x)
    }
}

/// The nearest float of half the width, as f32.
pub(super) struct Rounded<T>(T);

impl<T: Half> OfElement for Rounded<T> {
    type Of = f32;
    type To = f32;
    #[inline(always)]
    fn apply(x: f32) -> f32 {
        T::from_single(x).to_single()
    }
}

/// An element of an input, as registers hold it.
pub(super) struct Loaded<T>(T);

impl<T: Stored> OfElement for Loaded<T> {
    type Of = T;
    type To = T::Home;
    #[inline(always)]
    fn apply(x: T) -> T::Home {
        x.widen().convert()
    }
}

/// The bool of a byte, which may be anything when it comes from outside.
pub(super) struct Truth;

impl OfElement for Truth {
    type Of = u8;
    type To = f32;
    #[inline(always)]
    fn apply(x: u8) -> f32 {
        f32::truth(x != 0)
    }
}

/// What a dtype can hold of a register's number.
pub(super) struct Kept<T>(T);

impl<T: Stored> OfElement for Kept<T> {
    type Of = T::Home;
    type To = T;
    #[inline(always)]
    fn apply(x: T::Home) -> T {
        T::narrow(x.convert())
    }
}

/// The same, as registers hold it.
pub(super) struct Wrapped<T>(T);

impl<T: Stored> OfElement for Wrapped<T> {
    type Of = T::Home;
    type To = T::Home;
    #[inline(always)]
    fn apply(x: T::Home) -> T::Home {
        T::narrow(x.convert()).widen().convert()
    }
}

/// Whether a number is not zero.
pub(super) struct NotZero<T>(T);

impl<T: Lane> OfElement for NotZero<T> {
    type Of = T;
    type To = bool;
    #[inline(always)]
    fn apply(x: T) -> bool {
        !x.is_zero()
    }
}

/// A number in another domain.
pub(super) struct Converted<A, B>(A, B);

impl<A: Convert<B> + Copy, B: Copy> OfElement for Converted<A, B> {
    type Of = A;
    type To = B;
    #[inline(always)]
    fn apply(x: A) -> B {
        x.convert()
    }
}

/// A step that applies such a function. Every element of both tiles is valid, for reads and for
/// writes; they are disjoint, or the same elements in the same order.
pub(super) struct EachElement<F: OfElement> {
    pub(super) size: Size,
    pub(super) x: From<F::Of>,
    pub(super) to: To<F::To>,
}

impl<F: OfElement> Vectorized for EachElement<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let ((rows, cols), x, to) = (self.size, self.x, self.to);
        if cols == 0 {
            return;
        }
        for r in 0..rows {
            // SAFETY: (r, c) lies in both tiles, whose elements are valid (the value that holds
            // them promises it).
            unsafe {
                let (from, y) = (x.ptr.add(r * x.down), to.ptr.add(r * to.down));
                if x.across == 0 {
                    let once = F::apply(*from);
                    (0..cols).for_each(|c| y.add(c).write(once));
                    continue;
                }
                for c in 0..cols {
                    y.add(c).write(F::apply(*from.add(c)));
                }
            }
        }
    }
}

/// Whether any element is zero.
///
/// # Safety
/// Every element of the tile is valid for reads.
#[inline]
pub(super) unsafe fn any_zero<T: Lane>((rows, cols): Size, x: From<T>) -> bool {
    (0..rows).any(|r| {
        // SAFETY: (r, c) lies in the tile; valid (precondition).
        (0..cols).any(|c| unsafe { *x.ptr.add(r * x.down + c * x.across) }.is_zero())
    })
}

/// Conversion between the types that registers hold, as a C cast: fractions and imaginary parts are
/// lost.
pub(super) trait Convert<R> {
    fn convert(self) -> R;
}

macro_rules! conversions {
    ($($from:ty => $to:ty: |$x:ident| $y:expr;)*) => {$(
        impl Convert<$to> for $from {
            #[inline(always)]
            fn convert(self) -> $to {
                let $x = self;
                $y
            }
        }
    )*};
}
conversions! {
    f32 => f64: |x| x.into();
    f32 => i32: |x| x.to_i32();
    f32 => i64: |x| x.to_i64();
    f32 => Complex<f64>: |x| Complex::new(x.into(), 0.0);
    f64 => f32: |x| x as f32;
    f64 => i32: |x| x.to_i32();
    f64 => i64: |x| x.to_i64();
    f64 => Complex<f64>: |x| Complex::new(x, 0.0);
    i32 => f32: |x| x as f32;
    i32 => f64: |x| x.into();
    i32 => i64: |x| x.into();
    i32 => Complex<f64>: |x| Complex::new(x.into(), 0.0);
    i64 => f32: |x| x as f32;
    i64 => f64: |x| x as f64;
    i64 => i32: |x| x as i32;
    i64 => Complex<f64>: |x| Complex::new(x as f64, 0.0);
    Complex<f64> => f32: |x| x.re as f32;
    Complex<f64> => f64: |x| x.re;
    Complex<f64> => i32: |x| x.re.to_i32();
    Complex<f64> => i64: |x| x.re.to_i64();
    f32 => f32: |x| x;
    f64 => f64: |x| x;
    i32 => i32: |x| x;
    i64 => i64: |x| x;
    Complex<f64> => Complex<f64>: |x| x;
}

/// A dtype, with the type in which registers hold its values.
pub(super) trait Stored: Number<Wide: Convert<Self::Home>> {
    type Home: Held + Convert<Self::Wide>;
}

macro_rules! stored {
    ($($home:ty: $($t:ty),*;)*) => {$($(
        impl Stored for $t {
            type Home = $home;
        }
    )*)*};
}
stored! {
    f32: f32, f16, bf16, bool;
    f64: f64;
    i32: i32, i16, i8, u8;
    i64: i64;
    Complex<f64>: Complex<f32>, Complex<f64>, Complex<f16>;
}

/// A step of f32 with one operand.
pub(super) struct UnaryF32 {
    pub(super) op: Unary,
    pub(super) size: Size,
    pub(super) x: From<f32>,
    pub(super) to: To<f32>,
}

/// A step of f32 with two operands.
pub(super) struct BinaryF32 {
    pub(super) op: Binary,
    pub(super) size: Size,
    pub(super) a: From<f32>,
    pub(super) b: From<f32>,
    pub(super) to: To<f32>,
}

/// A step of f32 that chooses.
pub(super) struct SelectF32 {
    pub(super) size: Size,
    pub(super) parts: [From<f32>; 3],
    pub(super) to: To<f32>,
}

/// A row of an operand: vectors of it, or one element over and over.
#[derive(Clone, Copy)]
struct Row<V> {
    ptr: *const f32,
    splat: Option<V>,
}

impl<V: Copy> Row<V> {
    /// # Safety
    /// The row has an element.
    #[inline(always)]
    unsafe fn new<S: Simd<F32 = V>>(s: S, from: From<f32>, r: usize) -> Self {
        // SAFETY: element (r, 0) is valid (precondition).
        unsafe {
            let ptr = from.ptr.add(r * from.down);
            let splat = if from.across == 0 { Some(s.splat(*ptr)) } else { None };
            Self { ptr, splat }
        }
    }

    /// `n <= LANES` elements from column `c` on, other lanes undefined.
    ///
    /// # Safety
    /// They lie in the row.
    #[inline(always)]
    unsafe fn at<S: Simd<F32 = V>>(self, s: S, c: usize, n: usize) -> V {
        match self.splat {
            Some(v) => v,
            // SAFETY: inside the row (precondition).
            None if n >= S::LANES => unsafe { s.load_ptr(self.ptr.add(c)) },
            // SAFETY: as above, `n` elements are read.
            None => unsafe { s.load_partial_ptr(self.ptr.add(c), n) },
        }
    }
}

impl<V: Copy> Row<V> {
    /// Four vectors from column `c` on.
    ///
    /// # Safety
    /// They lie in the row.
    #[inline(always)]
    unsafe fn four<S: Simd<F32 = V>>(self, s: S, c: usize) -> [V; 4] {
        let n = S::LANES;
        // SAFETY: inside the row (precondition).
        unsafe {
            [
                self.at(s, c, n),
                self.at(s, c + n, n),
                self.at(s, c + 2 * n, n),
                self.at(s, c + 3 * n, n),
            ]
        }
    }
}

impl<V: Copy> Row<V> {
    /// The first vectors of four rows from `r` on.
    ///
    /// # Safety
    /// The rows have whole vectors.
    #[inline(always)]
    unsafe fn down<S: Simd<F32 = V>>(s: S, from: From<f32>, r: usize) -> [V; 4] {
        let n = S::LANES;
        // SAFETY: as stated.
        unsafe {
            [
                Self::new(s, from, r).at(s, 0, n),
                Self::new(s, from, r + 1).at(s, 0, n),
                Self::new(s, from, r + 2).at(s, 0, n),
                Self::new(s, from, r + 3).at(s, 0, n),
            ]
        }
    }
}

/// Computes rows of vectors: four at a time, then one by one, the last one in part. Rows of a
/// single vector, the pixels of channel blocks, are taken four at a time. `$body` sees arrays of
/// vectors (operands) and yields one. No closures: one that is not inlined lacks the instruction
/// set.
macro_rules! rows_of_vectors {
    ($s:ident, $S:ty, $size:expr, $to:expr, [$($row:ident = $from:expr),*], $body:expr) => {{
        let ((rows, cols), to) = ($size, $to);
        if cols == 0 {
            return;
        }
        let quads = if cols == <$S>::LANES { rows / 4 } else { 0 };
        for quad in 0..quads {
            let r = 4 * quad;
            // SAFETY: every element of the tiles is valid (the value that holds them promises it).
            unsafe {
                let y = {
                    $(let $row = Row::down($s, $from, r);)*
                    $body
                };
                for k in 0..4 {
                    $s.store_ptr(y[k], to.ptr.add((r + k) * to.down));
                }
            }
        }
        for r in 4 * quads..rows {
            // SAFETY: as above.
            unsafe {
                $(let $row = Row::new($s, $from, r);)*
                let out = to.ptr.add(r * to.down);
                let mut c = 0;
                while c + 4 * <$S>::LANES <= cols {
                    let y = {
                        $(let $row = $row.four($s, c);)*
                        $body
                    };
                    for k in 0..4 {
                        $s.store_ptr(y[k], out.add(c + k * <$S>::LANES));
                    }
                    c += 4 * <$S>::LANES;
                }
                while c < cols {
                    let n = (cols - c).min(<$S>::LANES);
                    let [y] = {
                        $(let $row = [$row.at($s, c, n)];)*
                        $body
                    };
                    $s.store_partial_ptr(y, out.add(c), n);
                    c += n;
                }
            }
        }
    }};
}

impl Vectorized for UnaryF32 {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ((rows, cols), to) = (self.size, self.to);
        let activation = match self.op {
            Unary::Activation(activation) => Some(activation),
            op if op.is_seldom() => None,
            op => {
                rows_of_vectors!(s, S, self.size, to, [x = self.x], op.apply_all(s, x));
                return;
            }
        };
        // Copied and changed in place, in cache: all of these functions in each of the loops above
        // are too much code.
        let there = self.x.ptr == to.ptr && self.x.down == to.down && self.x.across == 1;
        if !there {
            rows_of_vectors!(s, S, self.size, to, [x = self.x], x);
        }
        let size = if to.down == cols { (1, rows * cols) } else { (rows, cols) };
        match activation {
            // SAFETY: every element of the tile is valid (the value that holds it promises it).
            Some(f) => s.outlined(unsafe { InPlace::of_rows(f, to.ptr, size, to.down) }),
            None => s.outlined(Seldom { op: self.op, rows: to, size }),
        }
    }
}

impl Vectorized for BinaryF32 {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.op.is_by_pairs() {
            let Self { op, size, a, b, to } = self;
            return s.outlined(BinaryOf { op, size, a, b, to });
        }
        rows_of_vectors!(s, S, self.size, self.to, [a = self.a, b = self.b], {
            self.op.apply_all(s, a, b)
        });
    }
}

impl Vectorized for SelectF32 {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [condition, yes, no] = self.parts;
        rows_of_vectors!(s, S, self.size, self.to, [p = condition, a = yes, b = no], {
            choose(s, p, a, b)
        });
    }
}

#[inline(always)]
fn choose<S: Simd, const N: usize>(
    s: S,
    condition: [S::F32; N],
    yes: [S::F32; N],
    mut no: [S::F32; N],
) -> [S::F32; N] {
    for (k, no) in no.iter_mut().enumerate() {
        *no = s.select(s.eq(condition[k], s.zero()), *no, yes[k]);
    }
    no
}

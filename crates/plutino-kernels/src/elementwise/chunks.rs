//! Functions of elements of any type, chunk by chunk.
//!
//! The loop over a chunk reads slices and writes another one, which the compiler vectorises. Where
//! the result lies on an operand, or an operand is one element over and over, it reads a copy.

use super::lanes::{CHUNK, Lane};
use super::op::{Binary, Unary};
use super::steps::{From, Size, To};
use crate::simd::{Simd, Vectorized};

/// to = op(x). Every element of both tiles is valid, for reads and for writes; they are disjoint,
/// or the same elements in the same order.
pub(super) struct UnaryOf<T> {
    pub(super) op: Unary,
    pub(super) size: Size,
    pub(super) x: From<T>,
    pub(super) to: To<T>,
}

/// to = op(a, b), of such tiles.
pub(super) struct BinaryOf<T> {
    pub(super) op: Binary,
    pub(super) size: Size,
    pub(super) a: From<T>,
    pub(super) b: From<T>,
    pub(super) to: To<T>,
}

/// to = condition != 0 ? yes : no, of such tiles.
pub(super) struct SelectOf<T> {
    pub(super) size: Size,
    pub(super) parts: [From<T>; 3],
    pub(super) to: To<T>,
}

/// An operand, and room for a chunk of it that cannot be read where it lies.
struct Reader<T> {
    from: From<T>,
    /// Whether the result lies where the operand lies.
    in_place: bool,
    copy: [T; CHUNK],
}

impl<T: Lane> Reader<T> {
    #[inline(always)]
    fn new(from: From<T>, to: To<T>) -> Self {
        let in_place = std::ptr::eq(from.ptr, to.ptr);
        Self { from, in_place, copy: [T::truth(false); CHUNK] }
    }

    /// Begins a row. One element that is the same in all rows is copied once.
    ///
    /// # Safety
    /// The row has an element, which is valid for reads.
    #[inline(always)]
    unsafe fn row(&mut self, r: usize) {
        if self.from.across == 0 && (r == 0 || self.from.down != 0) {
            // SAFETY: as stated.
            self.copy.fill(unsafe { *self.from.ptr.add(r * self.from.down) });
        }
    }

    /// Elements (r, c) to (r, c + n) of a row that was begun, n at most [`CHUNK`].
    ///
    /// # Safety
    /// They are valid for reads, and while the slice lives nobody writes them but through `to`.
    #[inline(always)]
    unsafe fn chunk(&mut self, (r, c): (usize, usize), n: usize) -> &[T] {
        if self.from.across == 0 {
            return &self.copy[..n];
        }
        // SAFETY: inside the tile (precondition).
        let there =
            unsafe { std::slice::from_raw_parts(self.from.ptr.add(r * self.from.down + c), n) };
        if self.in_place {
            self.copy[..n].copy_from_slice(there);
            return &self.copy[..n];
        }
        there
    }
}

/// `$body` of every chunk of the operands and of the result. No closures: one that is not inlined
/// lacks the instruction set.
macro_rules! chunks {
    ($self:ident, [$($x:ident = $from:expr),*], $y:ident => $body:expr) => {{
        let ((rows, cols), to) = ($self.size, $self.to);
        if cols == 0 {
            return;
        }
        $(let mut $x = Reader::new($from, to);)*
        for r in 0..rows {
            // SAFETY: every element of the tiles is valid (the value that holds them promises it).
            unsafe {
                $($x.row(r);)*
            }
            for c in (0..cols).step_by(CHUNK) {
                let n = (cols - c).min(CHUNK);
                // SAFETY: as above; operands that lie where the result lies have been copied, and
                // others are disjoint from it.
                unsafe {
                    $(let $x = $x.chunk((r, c), n);)*
                    let $y = std::slice::from_raw_parts_mut(to.ptr.add(r * to.down + c), n);
                    $body
                }
            }
        }
    }};
}

impl<T: Lane> Vectorized for UnaryOf<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        chunks!(self, [x = self.x], y => T::unary_all(self.op, x, y));
    }
}

impl<T: Lane> Vectorized for BinaryOf<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        chunks!(self, [a = self.a, b = self.b], y => T::binary_all(self.op, a, b, y));
    }
}

impl<T: Lane> Vectorized for SelectOf<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let [condition, yes, no] = self.parts;
        chunks!(self, [p = condition, a = yes, b = no], y => {
            for (i, y) in y.iter_mut().enumerate() {
                *y = if p[i].is_zero() { b[i] } else { a[i] };
            }
        });
    }
}

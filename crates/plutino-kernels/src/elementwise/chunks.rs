//! Functions of elements of any type, chunk by chunk.
//!
//! A chunk is read, computed and written: the loop in the middle runs over arrays of one length,
//! which the compiler vectorises, and the result may lie where an operand lies.

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

/// Elements (r, c) to (r, c + n) of an operand. What is left of the chunk stays as it was.
///
/// # Safety
/// They are valid for reads.
#[inline(always)]
unsafe fn read<T: Copy>(chunk: &mut [T; CHUNK], from: From<T>, (r, c): (usize, usize), n: usize) {
    // SAFETY: inside the tile (precondition).
    unsafe {
        let at = from.ptr.add(r * from.down + c * from.across);
        match (from.across, n) {
            (0, _) => *chunk = [*at; CHUNK],
            (_, CHUNK) => *chunk = at.cast::<[T; CHUNK]>().read(),
            _ => at.copy_to_nonoverlapping(chunk.as_mut_ptr(), n.min(CHUNK)),
        }
    }
}

/// Writes the first n elements of a chunk to (r, c) and its neighbours.
///
/// # Safety
/// They are valid for writes.
#[inline(always)]
unsafe fn write<T: Copy>(chunk: &[T; CHUNK], to: To<T>, (r, c): (usize, usize), n: usize) {
    // SAFETY: inside the tile (precondition).
    unsafe {
        let at = to.ptr.add(r * to.down + c);
        match n {
            CHUNK => at.cast::<[T; CHUNK]>().write(*chunk),
            _ => at.copy_from_nonoverlapping(chunk.as_ptr(), n.min(CHUNK)),
        }
    }
}

/// `$y` of every chunk of the operands. No closures: one that is not inlined lacks the instruction
/// set.
macro_rules! chunks {
    ($self:ident, [$($x:ident = $from:expr),*], $y:expr) => {{
        let ((rows, cols), to) = ($self.size, $self.to);
        $(let mut $x = [T::truth(true); CHUNK];)*
        for r in 0..rows {
            for c in (0..cols).step_by(CHUNK) {
                let n = (cols - c).min(CHUNK);
                // SAFETY: every element of the tiles is valid (the value that holds them promises
                // it), and all of a chunk are read before any is written.
                unsafe {
                    $(read(&mut $x, $from, (r, c), n);)*
                    write(&$y, to, (r, c), n);
                }
            }
        }
    }};
}

impl<T: Lane> Vectorized for UnaryOf<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        chunks!(self, [x = self.x], T::unary_all(self.op, &x));
    }
}

impl<T: Lane> Vectorized for BinaryOf<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        chunks!(self, [a = self.a, b = self.b], T::binary_all(self.op, &a, &b));
    }
}

impl<T: Lane> Vectorized for SelectOf<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let [condition, yes, no] = self.parts;
        chunks!(self, [p = condition, a = yes, b = no], {
            let mut y = b;
            for i in 0..CHUNK {
                y[i] = if p[i].is_zero() { b[i] } else { a[i] };
            }
            y
        });
    }
}

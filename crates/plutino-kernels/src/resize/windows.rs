//! Output rows that are made of windows of input rows: how they are handed to threads, and which
//! input rows a thread has already.

use super::Taps;
use crate::Par;
use crate::par::SharedMut;
use std::ops::Range;

/// Multiply-adds below which a task is not worth a thread.
const GRAIN: usize = 1 << 14;

/// Rows, in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    /// An output row.
    pub(super) row: usize,
    /// The input rows that a thread keeps, resized along x.
    pub(super) kept: usize,
    /// Multiply-adds of an output row.
    pub(super) work: usize,
}

/// Hands `output`'s rows to tasks, each with the part of `scratch` in which its thread keeps rows.
///
/// # Panics
/// Where there is nothing in a row, or too little scratch memory.
pub(super) fn split<T: Send>(
    par: &Par,
    Split { row, kept, work }: Split,
    height: &Taps,
    output: &mut [T],
    scratch: &mut [T],
    task: impl Fn(Range<usize>, &mut [T], &mut [T]) + Sync,
) {
    assert!(scratch.len() / par.threads() >= kept, "scratch of a resize");
    let rows = output.len() / row;
    let (output, scratch) = (SharedMut::new(output), SharedMut::new(scratch));
    // A task starts with an empty window: a few rows at least make up for it.
    par.split_as(rows, (GRAIN / work).max(2 * height.width()), |worker, rows| {
        // SAFETY: tasks have disjoint rows; no two tasks run at the same time under the same
        // worker.
        let (output, scratch) = unsafe {
            (
                output.slice(rows.start * row..rows.end * row),
                scratch.slice(worker * kept..(worker + 1) * kept),
            )
        };
        task(rows, output, scratch);
    });
}

/// The rows of a window that are kept.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The plane that they belong to.
    plane: usize,
    rows: Range<usize>,
}

impl Kept {
    /// Moves the window to these rows; yields those of them that are there already.
    #[inline(always)]
    pub(super) fn move_to(&mut self, plane: usize, rows: Range<usize>) -> Range<usize> {
        let had = std::mem::replace(self, Self { plane, rows });
        if had.plane == plane { had.rows } else { 0..0 }
    }
}

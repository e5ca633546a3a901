//! The loops over the elements of a result, and how the inputs are addressed in them.

use super::ElementwiseError;
use plutino_tensor::Shape;
use smallvec::SmallVec;

/// Elements of a tile: every step of a program works on one, so that what it leaves behind is still
/// in the first-level cache when the next step reads it.
pub(super) const TILE: usize = 2048;

type Dims = SmallVec<[usize; 6]>;

/// Loops over a result and its broadcast inputs, all dense and row-major, merged where possible.
///
/// A dimension along which an input is broadcast has stride 0 for it. Neighbouring dimensions that
/// every input walks through without a jump are one loop: two tensors of one shape make a single
/// loop, and `(N, C, H, W)` with `(C, 1, 1)` makes three, over N, C and HW.
///
/// ```
/// use plutino_kernels::elementwise::LoopNest;
/// let nest = LoopNest::new(&[8, 16, 7, 7], &[&[8, 16, 7, 7], &[16, 1, 1]])?;
/// assert_eq!(nest.loops(), [8, 16, 49]);
/// # Ok::<(), plutino_kernels::elementwise::ElementwiseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopNest {
    /// Sizes of the loops, outermost first; at least two, rows and columns.
    loops: Dims,
    /// For each input its strides, one for each loop, in elements. The innermost one is 0 or 1.
    strides: Vec<Dims>,
    /// For each input its number of elements.
    numels: SmallVec<[usize; 4]>,
    /// Elements of the result.
    numel: usize,
    /// Rows and columns of a whole tile.
    tile: (usize, usize),
}

/// A part of the result: some columns of some rows, somewhere in the outer loops.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    /// Iteration of the outer loops, counted through.
    outer: usize,
    row: usize,
    col: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl LoopNest {
    /// The loops for inputs of these shapes and a result of shape `result`, to which all broadcast.
    ///
    /// # Errors
    /// Where an input does not broadcast to the result, or has more elements than memory can hold.
    pub fn new(result: &[usize], inputs: &[&[usize]]) -> Result<Self, ElementwiseError> {
        let numel = Shape::from(result).checked_numel()?;
        let mut numels = SmallVec::new();
        let mut all = Vec::with_capacity(inputs.len());
        for &input in inputs {
            numels.push(Shape::from(input).checked_numel()?);
            all.push(broadcast_strides(input, result).ok_or_else(|| {
                ElementwiseError::Broadcast { from: input.into(), to: result.into() }
            })?);
        }
        let mut loops = Dims::new();
        let mut strides = vec![Dims::new(); inputs.len()];
        for (d, &size) in result.iter().enumerate().filter(|&(_, &size)| size != 1) {
            let continues = strides
                .iter()
                .zip(&all)
                .all(|(merged, dense)| merged.last() == Some(&dense[d].saturating_mul(size)));
            match loops.last_mut() {
                Some(outer) if continues => {
                    *outer *= size; // at most numel, checked above
                    strides.iter_mut().zip(&all).for_each(|(merged, dense)| {
                        merged.pop();
                        merged.push(dense[d]);
                    });
                }
                _ => {
                    loops.push(size);
                    strides.iter_mut().zip(&all).for_each(|(merged, dense)| merged.push(dense[d]));
                }
            }
        }
        while loops.len() < 2 {
            loops.insert(0, 1);
            strides.iter_mut().for_each(|s| s.insert(0, 0));
        }
        let (rows, cols) = (loops[loops.len() - 2], loops[loops.len() - 1]);
        let cols = cols.clamp(1, TILE);
        let tile = (rows.clamp(1, TILE / cols), cols);
        Ok(Self { loops, strides, numels, numel, tile })
    }

    /// Sizes of the loops that remain, outermost first.
    pub fn loops(&self) -> &[usize] {
        &self.loops
    }

    /// Elements of the result.
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Number of inputs.
    pub(super) fn input_count(&self) -> usize {
        self.strides.len()
    }

    /// Elements of an input.
    #[inline]
    pub(super) fn input_numel(&self, input: usize) -> usize {
        self.numels[input]
    }

    /// Whether an input has an element of its own for each of the result: it may be overwritten.
    pub fn is_whole(&self, input: usize) -> bool {
        self.numels[input] == self.numel
    }

    /// Elements of a whole tile.
    pub(super) fn tile_len(&self) -> usize {
        self.tile.0 * self.tile.1
    }

    /// Number of tiles: 0 for a result without elements.
    pub(super) fn tiles(&self) -> usize {
        if self.numel == 0 {
            return 0;
        }
        let (rows, cols) = self.inner();
        self.numel / (rows * cols) * rows.div_ceil(self.tile.0) * cols.div_ceil(self.tile.1)
    }

    /// The tile of this number, below [`LoopNest::tiles`].
    #[inline]
    pub(super) fn tile(&self, number: usize) -> Tile {
        let (rows, cols) = self.inner();
        let (down, across) = (rows.div_ceil(self.tile.0), cols.div_ceil(self.tile.1));
        let (outer, within) = (number / (down * across), number % (down * across));
        let (row, col) = (within / across * self.tile.0, within % across * self.tile.1);
        Tile {
            outer,
            row,
            col,
            rows: self.tile.0.min(rows - row),
            cols: self.tile.1.min(cols - col),
        }
    }

    /// Where the tile's first element lies in an input, and the steps from row to row and from
    /// column to column.
    pub(super) fn input_at(&self, input: usize, tile: &Tile) -> (usize, usize, usize) {
        let strides = &self.strides[input];
        let last = self.loops.len() - 1;
        let mut at = tile.row * strides[last - 1] + tile.col * strides[last];
        let mut rest = tile.outer;
        for d in (0..last - 1).rev() {
            at += rest % self.loops[d] * strides[d];
            rest /= self.loops[d];
        }
        (at, strides[last - 1], strides[last])
    }

    /// Where the tile's first element lies in the result, and the step from row to row.
    #[inline]
    pub(super) fn result_at(&self, tile: &Tile) -> (usize, usize) {
        let (rows, cols) = self.inner();
        ((tile.outer * rows + tile.row) * cols + tile.col, cols)
    }

    fn inner(&self) -> (usize, usize) {
        let last = self.loops.len() - 1;
        (self.loops[last - 1], self.loops[last])
    }
}

/// Strides of a dense tensor of shape `from` when it is walked through as shape `to`.
fn broadcast_strides(from: &[usize], to: &[usize]) -> Option<Dims> {
    let missing = to.len().checked_sub(from.len())?;
    let mut strides: Dims = SmallVec::from_elem(0, to.len());
    let mut step = 1usize;
    for d in (0..from.len()).rev() {
        match (from[d], to[missing + d]) {
            (a, b) if a == b => strides[missing + d] = if a == 1 { 0 } else { step },
            (1, _) => {}
            _ => return None,
        }
        step = step.saturating_mul(from[d]); // an empty tensor is never addressed
    }
    Some(strides)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loops_merge_where_every_input_runs_on() {
        let loops = |to: &[usize], from: &[&[usize]]| LoopNest::new(to, from).unwrap().loops;
        assert_eq!(loops(&[2, 3, 4], &[&[2, 3, 4], &[2, 3, 4]])[..], [1, 24]);
        assert_eq!(loops(&[2, 3, 4], &[&[2, 3, 4], &[4]])[..], [6, 4]);
        assert_eq!(loops(&[2, 3, 4], &[&[2, 3, 1], &[]])[..], [6, 4]);
        assert_eq!(loops(&[5, 1, 4], &[&[5, 1, 1], &[1, 1, 4]])[..], [5, 4]);
        assert_eq!(loops(&[], &[&[], &[1, 1][..0]])[..], [1, 1]);
        assert!(LoopNest::new(&[2, 3], &[&[2]]).is_err());
        assert!(LoopNest::new(&[3], &[&[1, 3]]).is_err());
        assert_eq!(LoopNest::new(&[2, 0, 3], &[&[2, 1, 3]]).unwrap().tiles(), 0);
    }

    /// A result shape and, for two inputs, which dimensions are broadcast and how many are left
    /// out.
    fn shapes() -> impl Strategy<Value = (Vec<usize>, [Vec<usize>; 2])> {
        let dims = prop::collection::vec(prop_oneof![1usize..5, Just(1), Just(700)], 0..6)
            .prop_filter("too large", |d| d.iter().product::<usize>() < 20_000);
        (dims, any::<[u8; 2]>(), any::<[u8; 2]>()).prop_map(|(to, ones, cut)| {
            let from = std::array::from_fn(|i| {
                let cut = usize::from(cut[i]) % (to.len() + 1);
                let dim = |(d, &n): (usize, &usize)| if ones[i] >> d & 1 == 1 { 1 } else { n };
                to.iter().enumerate().map(dim).skip(cut).collect()
            });
            (to, from)
        })
    }

    proptest! {
        /// Tiles visit every element of the result once, and address the inputs' elements that
        /// broadcasting pairs with it.
        #[test]
        fn tiles_visit_what_broadcasting_pairs((to, from) in shapes()) {
            let nest = LoopNest::new(&to, &[&from[0], &from[1]]).unwrap();
            let numel: usize = to.iter().product();
            let mut visits = vec![0; numel];
            for t in 0..nest.tiles() {
                let tile = nest.tile(t);
                prop_assert!(tile.rows * tile.cols <= TILE && tile.rows * tile.cols > 0);
                let (start, pitch) = nest.result_at(&tile);
                for (r, c) in (0..tile.rows).flat_map(|r| (0..tile.cols).map(move |c| (r, c))) {
                    let at = start + r * pitch + c;
                    visits[at] += 1;
                    for (i, from) in from.iter().enumerate() {
                        let (start, down, across) = nest.input_at(i, &tile);
                        prop_assert!(across <= 1);
                        let expected = plutino_reference::elementwise::paired(&to, at, from);
                        prop_assert_eq!(start + r * down + c * across, expected);
                    }
                }
            }
            prop_assert!(visits.iter().all(|&v| v == 1));
        }
    }
}

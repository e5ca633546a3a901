//! Where the tiles of a chunk lie in the data of a point.
//!
//! The last tile of a row, and the tiles of an image's last row, may be short: they have some of
//! the points only ([`Transform::SHORT`](super::transform::Transform::SHORT)). In this order the
//! tiles of every point follow each other:
//!
//! ```text
//! last columns | other tiles | last rows | corners
//! ```
//! Points that a short column does not have leave out the first and the last part, points that a
//! short row does not have the last two.

use std::ops::Range;

/// The rows of tiles of a chunk, of one image or several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    /// The first row, counted through all images.
    first: usize,
    /// Rows of tiles of an image, and tiles of a row.
    tiles: [usize; 2],
    /// Whether the last row, and the last column, of an image are short.
    short: [bool; 2],
    /// Where the parts begin, and end.
    parts: [usize; 5],
}

/// The places of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Places {
    /// That of the first tile, if it is not the last and short; the others follow.
    first: usize,
    /// That of the last tile, where it is short.
    last: Option<usize>,
    /// Tiles of the row.
    tiles: usize,
    /// Whether it is a short row.
    pub(super) short_row: bool,
}

impl Order {
    pub(super) fn new(rows: Range<usize>, tiles: [usize; 2], short: [bool; 2]) -> Self {
        let mut order = Self { first: rows.start, tiles, short, parts: [0; 5] };
        let last_rows = order.last_rows_before(rows.end);
        let other_rows = rows.len() - last_rows;
        let (others, last) = (order.columns(), tiles[1] - order.columns());
        let sizes = [other_rows * last, other_rows * others, last_rows * others, last_rows * last];
        for (i, size) in sizes.into_iter().enumerate() {
            order.parts[i + 1] = order.parts[i] + size;
        }
        order
    }

    /// Tiles of a row that are not short.
    fn columns(&self) -> usize {
        self.tiles[1] - usize::from(self.short[1])
    }

    /// Short rows of the chunk before `row`.
    fn last_rows_before(&self, row: usize) -> usize {
        if self.short[0] { row / self.tiles[0] - self.first / self.tiles[0] } else { 0 }
    }

    /// The places of a row, counted through all images.
    #[inline]
    pub(super) fn row(&self, row: usize) -> Places {
        let short_row = self.short[0] && row % self.tiles[0] == self.tiles[0] - 1;
        let last_rows = self.last_rows_before(row);
        // Which of its kind it is, and where the parts of that begin: the last tiles, and the
        // others.
        let (index, [last, others]) = match short_row {
            true => (last_rows, [self.parts[3], self.parts[2]]),
            false => (row - self.first - last_rows, [self.parts[0], self.parts[1]]),
        };
        Places {
            first: others + index * self.columns(),
            last: self.short[1].then_some(last + index),
            tiles: self.tiles[1],
            short_row,
        }
    }

    /// The places that a point has, which is or is not one of those of short rows, and of short
    /// columns.
    #[inline]
    pub(super) fn of_point(&self, [in_row, in_column]: [bool; 2]) -> Range<usize> {
        let [in_row, in_column] = [in_row || !self.short[0], in_column || !self.short[1]];
        let start = if in_column { 0 } else { 1 };
        let end = match (in_row, in_column) {
            (true, true) => 4,
            (true, false) => 3,
            (false, _) => 2,
        };
        self.parts[start]..self.parts[end]
    }
}

impl Places {
    /// That of a tile, and whether it is a short column.
    #[inline(always)]
    pub(super) fn of(&self, tile: usize) -> (usize, bool) {
        match self.last {
            Some(last) if tile + 1 == self.tiles => (last, true),
            _ => (self.first + tile, false),
        }
    }

    /// One more than the greatest of them.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        match self.last {
            Some(last) => (self.first + self.tiles - 1).max(last + 1),
            None => self.first + self.tiles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_has_the_tiles_that_are_not_short() {
        for short in [[false, false], [true, false], [false, true], [true, true]] {
            for (tiles, rows) in [([4, 3], 0..12), ([4, 3], 2..7), ([1, 1], 0..3), ([2, 5], 1..2)] {
                let order = Order::new(rows.clone(), tiles, short);
                let mut seen = vec![None; rows.len() * tiles[1]];
                for row in rows.clone() {
                    let places = order.row(row);
                    assert!(places.end() <= seen.len());
                    assert_eq!(places.short_row, short[0] && row % tiles[0] == tiles[0] - 1);
                    for tile in 0..tiles[1] {
                        let (place, short_column) = places.of(tile);
                        assert_eq!(short_column, short[1] && tile == tiles[1] - 1);
                        assert!(place < places.end());
                        assert_eq!(seen[place].replace([places.short_row, short_column]), None);
                    }
                }
                for point in [[false, false], [true, false], [false, true], [true, true]] {
                    let range = order.of_point(point);
                    for (place, short) in seen.iter().enumerate() {
                        let [row, column] = short.unwrap();
                        let wanted = (point[0] || !row) && (point[1] || !column);
                        assert_eq!(range.contains(&place), wanted, "{short:?} {tiles:?} {rows:?}");
                    }
                }
            }
        }
    }
}

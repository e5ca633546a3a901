//! Tasks that differ in image, layer and place, and which of them a thread begins with.
//!
//! All places, one image after the other, are cut into as many ranges as there are threads. The
//! tasks of a range have numbers that follow each other: image by image, in it layer by layer, and
//! in that place by place. So a thread has all layers of its places, and takes what it read for one
//! layer (weights, say) from place to place.

use std::ops::Range;

/// One of `parts` equal parts of some items, or of parts that differ by one: where shares of
/// threads end, and therefore where all should cut that are read by the next step.
pub fn part_of(part: usize, parts: usize, items: usize) -> Range<usize> {
    // As part * items / parts, without a product that could exceed usize.
    let (whole, rest) = (items / parts, items % parts);
    let start = |part: usize| part * whole + part * rest / parts;
    start(part)..start(part + 1)
}

/// Which of `parts` parts ([`part_of`]) an item is in: the thread that begins with a unit, say.
pub fn owner(item: usize, parts: usize, items: usize) -> usize {
    match (item + 1).checked_mul(parts) {
        Some(product) => (product - 1) / items,
        None => (((item as u128 + 1) * parts as u128 - 1) / items as u128) as usize,
    }
}

/// A grid of tasks: images, layers, places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    size: [usize; 3],
    threads: usize,
    /// Whether threads have places of their own.
    placed: bool,
}

impl Grid {
    pub(super) fn new(size: [usize; 3], threads: usize) -> Self {
        let [images, _, places] = size;
        Self { size, threads, placed: images.saturating_mul(places) >= threads }
    }

    /// What is cut into shares: places of images, or single tasks.
    pub(super) fn units(&self) -> usize {
        let [images, layers, places] = self.size;
        let all = images.saturating_mul(places);
        if self.placed { all } else { all.saturating_mul(layers) }
    }

    /// Tasks of each unit.
    pub(super) fn layers(&self) -> usize {
        if self.placed { self.size[1] } else { 1 }
    }

    /// Image, layer and place of a task.
    pub(super) fn cell(&self, task: usize) -> [usize; 3] {
        let [_, layers, places] = self.size;
        // The places of the thread that begins with this task, numbered through all images.
        let own = if self.placed {
            let owner = owner(task / layers, self.threads, self.units());
            part_of(owner, self.threads, self.units())
        } else {
            0..self.size[0] * places
        };
        // Those in the first image, which may be fewer than in the others.
        let start = own.start % places;
        let of_first = (places - start).min(own.len());
        let task = task - own.start * layers;
        let (image, start, len, task) = if task < of_first * layers {
            (own.start / places, start, of_first, task)
        } else {
            let task = task - of_first * layers;
            let image = (own.start + of_first) / places + task / (places * layers);
            (image, 0, places.min(own.end - image * places), task % (places * layers))
        };
        [image, task / len, start + task % len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_unit_has_the_owner_whose_share_it_is_in() {
        for threads in 1..9 {
            for units in threads..60 {
                let shares = (0..threads).map(|w| part_of(w, threads, units));
                let owners: Vec<usize> = (0..units).map(|u| owner(u, threads, units)).collect();
                let wanted: Vec<usize> =
                    shares.enumerate().flat_map(|(w, s)| vec![w; s.len()]).collect();
                assert_eq!(owners, wanted, "{units} units, {threads} threads");
            }
        }
    }

    #[test]
    fn threads_begin_with_their_places_layer_by_layer() {
        let grid = Grid::new([1, 2, 4], 2);
        let cells = |tasks: Range<usize>| tasks.map(|t| grid.cell(t)).collect::<Vec<_>>();
        assert_eq!((grid.units(), grid.layers()), (4, 2));
        assert_eq!(cells(0..4), [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]);
        assert_eq!(cells(4..8), [[0, 0, 2], [0, 0, 3], [0, 1, 2], [0, 1, 3]]);
    }

    #[test]
    fn every_task_is_one_cell() {
        for threads in 1..6 {
            for images in 1..5 {
                for layers in 1..4 {
                    for places in 1..7 {
                        let grid = Grid::new([images, layers, places], threads);
                        let tasks = grid.units() * grid.layers();
                        assert_eq!(tasks, images * layers * places);
                        let cells: BTreeSet<_> = (0..tasks).map(|t| grid.cell(t)).collect();
                        assert_eq!(cells.len(), tasks);
                        assert!(
                            cells
                                .iter()
                                .all(|&[i, l, p]| { i < images && l < layers && p < places })
                        );
                    }
                }
            }
        }
    }
}

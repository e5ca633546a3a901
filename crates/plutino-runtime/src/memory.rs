//! The memory plan: at which offset of one arena each buffer lies.
//!
//! Greedy by size: the largest buffer goes first, each into the smallest gap that fits between the buffers that are
//! alive at the same time (XNNPACK's `memory-planner.c`; Pisarchyk and Lee, "Efficient Memory Management for Deep
//! Neural Net Inference", arXiv:2001.03288, there "greedy by size for offset calculation"). That order is the best
//! known in general but not always, so two others are tried and the smallest arena wins.

use plutino_tensor::ALIGNMENT;

/// A buffer: its size, and the first and last step during which it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) bytes: usize,
    pub(crate) born: usize,
    pub(crate) dies: usize,
}

impl Item {
    fn meets(&self, other: &Self) -> bool {
        self.born <= other.dies && other.born <= self.dies
    }

    /// Size in the arena: whole cache lines, so that every buffer starts on one.
    fn padded(&self) -> usize {
        padded(self.bytes)
    }
}

/// Rounds up to whole cache lines.
pub(crate) fn padded(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX)
}

/// Where each item lies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Layout {
    /// Offset of each item, in the order given.
    pub(crate) offsets: Vec<usize>,
    /// Size of the arena.
    pub(crate) bytes: usize,
}

/// Finds an offset for every item. None where the sizes exceed the address space.
pub(crate) fn plan(items: &[Item]) -> Option<Layout> {
    let total = items.iter().try_fold(0usize, |sum, i| sum.checked_add(i.padded()));
    total.filter(|&t| isize::try_from(t).is_ok())?;
    let bound = lower_bound(items.iter().copied());
    let span = |i: &Item| i.dies.saturating_sub(i.born);
    let by_size = |i: &Item| (i.padded(), span(i));
    let by_area = |i: &Item| (i.padded().saturating_mul(span(i) + 1), i.padded());
    let by_span = |i: &Item| (span(i), i.padded());
    let mut best: Option<Layout> = None;
    for key in [&by_size as &dyn Fn(&Item) -> (usize, usize), &by_area, &by_span] {
        let layout = greedy(items, key);
        if best.as_ref().is_none_or(|b| layout.bytes < b.bytes) {
            best = Some(layout);
        }
        if best.as_ref().is_some_and(|b| b.bytes <= bound) {
            break;
        }
    }
    best
}

/// Places items by descending key, ties by order of birth, each into the smallest gap that fits.
fn greedy(items: &[Item], key: &dyn Fn(&Item) -> (usize, usize)) -> Layout {
    let mut order: Vec<usize> = (0..items.len()).filter(|&i| items[i].bytes > 0).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(key(&items[i])), items[i].born, i));
    let mut layout = Layout { offsets: vec![0; items.len()], bytes: 0 };
    let mut placed: Vec<usize> = Vec::with_capacity(order.len()); // by ascending offset
    for at in order {
        let item = &items[at];
        let mut end = 0; // of everything below that is alive at the same time
        let mut best: Option<(usize, usize)> = None; // gap, offset
        for &other in placed.iter().filter(|&&o| items[o].meets(item)) {
            let start = layout.offsets[other];
            if let Some(gap) = start.checked_sub(end)
                && gap >= item.padded()
                && best.is_none_or(|(smallest, _)| gap < smallest)
            {
                best = Some((gap, end));
            }
            end = end.max(start + items[other].padded());
        }
        let offset = best.map_or(end, |(_, offset)| offset);
        layout.offsets[at] = offset;
        layout.bytes = layout.bytes.max(offset + item.padded());
        let rank = placed.partition_point(|&o| layout.offsets[o] <= offset);
        placed.insert(rank, at);
    }
    layout
}

/// The most bytes that are alive at the same time: no arena can be smaller.
pub(crate) fn lower_bound(items: impl Iterator<Item = Item>) -> usize {
    let mut changes: Vec<(usize, bool, usize)> = Vec::new(); // step, starts, bytes
    for item in items.filter(|i| i.bytes > 0) {
        changes.push((item.born, true, item.padded()));
        changes.push((item.dies.saturating_add(1), false, item.padded()));
    }
    changes.sort_unstable(); // at one step, ends (false) go first
    let (mut live, mut most) = (0usize, 0usize);
    for (_, starts, bytes) in changes {
        live = if starts { live.saturating_add(bytes) } else { live.saturating_sub(bytes) };
        most = most.max(live);
    }
    most
}

/// Whether items that are alive at the same time lie apart, all inside the arena and on cache lines.
pub(crate) fn validate(items: &[Item], layout: &Layout) -> Result<(), String> {
    if items.len() != layout.offsets.len() {
        return Err("the memory plan forgot a buffer".into());
    }
    let mut order: Vec<usize> = (0..items.len()).filter(|&i| items[i].bytes > 0).collect();
    order.sort_by_key(|&i| layout.offsets[i]);
    for (rank, &i) in order.iter().enumerate() {
        let (start, end) = (layout.offsets[i], layout.offsets[i].saturating_add(items[i].bytes));
        if start % ALIGNMENT != 0 || end > layout.bytes {
            return Err(format!("buffer {i} at {start} is not aligned or leaves the arena"));
        }
        let above = order[rank + 1..].iter().take_while(|&&j| layout.offsets[j] < end);
        if let Some(j) = above.copied().find(|&j| items[i].meets(&items[j])) {
            return Err(format!("buffers {i} and {j} overlap while both are alive"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(bytes: usize, born: usize, dies: usize) -> Item {
        Item { bytes, born, dies }
    }

    #[test]
    fn a_chain_needs_its_two_largest_neighbours() {
        let items = [item(64, 0, 1), item(640, 1, 2), item(128, 2, 3), item(64, 3, 4)];
        let layout = plan(&items).unwrap();
        assert_eq!(layout.bytes, 768);
        assert_eq!(lower_bound(items.iter().copied()), 768);
    }

    #[test]
    fn the_smallest_gap_that_fits_is_taken() {
        // Two gaps remain between three long-lived buffers; the small newcomer takes the small gap.
        let items = [
            item(1024, 0, 9),
            item(512, 0, 1),
            item(900, 0, 9),
            item(128, 0, 1),
            item(800, 0, 9),
            item(100, 5, 6),
        ];
        let layout = plan(&items).unwrap();
        validate(&items, &layout).unwrap();
        assert_eq!(layout.bytes, lower_bound(items.iter().copied()));
    }

    #[test]
    fn sizes_beyond_memory_are_refused() {
        assert_eq!(plan(&[item(usize::MAX / 2, 0, 0), item(usize::MAX / 2, 1, 1)]), None);
        assert_eq!(plan(&[]), Some(Layout::default()));
    }

    #[test]
    fn overlaps_are_found() {
        let items = [item(64, 0, 1), item(64, 1, 2)];
        let bad = Layout { offsets: vec![0, 0], bytes: 64 };
        assert!(validate(&items, &bad).is_err());
        let outside = Layout { offsets: vec![0, 64], bytes: 64 };
        assert!(validate(&items, &outside).is_err());
    }

    proptest! {
        #[test]
        fn plans_are_valid_and_close_to_the_bound(
            raw in prop::collection::vec((0usize..5000, 0usize..40, 0usize..6), 0..60),
        ) {
            let items: Vec<Item> = raw.iter().map(|&(b, s, l)| item(b, s, s + l)).collect();
            let layout = plan(&items).unwrap();
            prop_assert_eq!(validate(&items, &layout), Ok(()));
            let bound = lower_bound(items.iter().copied());
            prop_assert!(layout.bytes >= bound);
            // Random lifetimes are harder than networks; the published worst case of the heuristic is near 1.5.
            prop_assert!(layout.bytes <= bound + bound / 2, "{} > 1.5 x {}", layout.bytes, bound);
        }
    }
}

//! Constant masks that hold the same numbers for several heads are read once.
//!
//! A file may repeat the mask of each window: pnnx writes the 3 masks of a window of Swin-T's first
//! stage 64 times, 1.8 MB that each run would read from memory.
//!
//! *Measured* (2026-11-28, Zen 5, one thread, torchvision's Swin-T as pnnx writes it, medium):
//! attention of the first stage 1.28 to 1.01 ms, of the second 0.87 to 0.76; the run 2.7 %, in f32
//! 1.6 %.

use plutino_kernels::attention::{Head, Size};
use plutino_tensor::{Tensor, stop};
use smallvec::SmallVec;

/// Masks of one head of a group that are kept to be compared with the next ones. Windows at the
/// edges of a shifted picture make four kinds.
const MOST_KINDS: usize = 8;

/// Where the part of a head begins.
pub(crate) type Place = fn(&mut Head) -> &mut usize;

/// Lets each head whose part of `mask` has the same bits as that of an earlier one, at the same
/// place of its group of `together` heads, read the earlier one's. `steps`: elements from one query
/// and from one key to the next; `place`: where the part of a head begins.
pub(crate) fn share(
    mask: &Tensor,
    size: Size,
    steps: [usize; 2],
    heads: &mut [Head],
    together: usize,
    place: Place,
) {
    let Size { queries, keys, .. } = size;
    let [step, 1] = steps else { return };
    let (bytes, item) = (mask.as_bytes(), mask.dtype().size_of());
    let rows = if step == 0 { queries.min(1) } else { queries };
    let row = |first: usize, i: usize| {
        let from = i.checked_mul(step)?.checked_add(first)?;
        bytes.get(from.checked_mul(item)?..from.checked_add(keys)?.checked_mul(item)?)
    };
    let same = |a: usize, b: usize| {
        a == b || (0..rows).all(|i| row(a, i).is_some_and(|found| Some(found) == row(b, i)))
    };
    let none = |_: &Head| SmallVec::<[usize; MOST_KINDS]>::new();
    let mut kinds: Vec<_> = heads.iter().take(together).map(none).collect();
    for group in heads.chunks_mut(together.max(1)) {
        for (head, kinds) in group.iter_mut().zip(&mut kinds) {
            if stop::stopped() {
                return;
            }
            let at = place(head);
            match kinds.iter().find(|&&kind| same(kind, *at)) {
                Some(&kind) => *at = kind,
                None if kinds.len() < MOST_KINDS => kinds.push(*at),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the masks of these heads begin, which were 6 apart: 2 queries, 3 keys.
    fn shared(mask: &[f32], together: usize) -> Vec<usize> {
        let size = Size { queries: 2, keys: 3, depth: 4, values: 4 };
        let head = |i: usize| Head { mask: 6 * i, ..Head::default() };
        let mut heads: Vec<_> = (0..mask.len() / 6).map(head).collect();
        let mask = Tensor::from_slice(mask, [mask.len()]).unwrap();
        share(&mask, size, [3, 1], &mut heads, together, |head| &mut head.mask);
        heads.iter().map(|head| head.mask).collect()
    }

    #[test]
    fn equal_masks_are_one() {
        let [a, b, c] = [[0.0; 6], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 1.0, 2.0, 3.0, 4.0, 6.0]];
        assert_eq!(shared(&[a, b, a, b, c, a].concat(), 1), [0, 6, 0, 6, 24, 0]);
        // Of groups of two: each head has masks of its own.
        assert_eq!(shared(&[a, b, a, b, a, a].concat(), 2), [0, 6, 0, 6, 0, 30]);
        // Bits count: -0.0 is another number, a NaN is the same.
        assert_eq!(shared(&[[0.0; 6], [-0.0; 6], [0.0; 6]].concat(), 1), [0, 6, 0]);
        assert_eq!(shared(&[[f32::NAN; 6]; 2].concat(), 1), [0, 0]);
    }

    #[test]
    fn few_kinds_are_kept() {
        let many: Vec<_> =
            (0..2 * MOST_KINDS as i32).flat_map(|i| [(i / 2 % 9) as f32; 6]).collect();
        let found = shared(&[&many[..], &many[..6]].concat(), 1);
        assert_eq!(&found[..4], [0, 0, 12, 12]);
        assert_eq!(found.last(), Some(&0));
    }

    #[test]
    fn masks_of_other_strides_stay() {
        let size = Size { queries: 2, keys: 3, depth: 4, values: 4 };
        let mask = Tensor::from_slice(&[1.0f32; 12], [12]).unwrap();
        let mut heads = [0, 6].map(|mask| Head { mask, ..Head::default() });
        share(&mask, size, [1, 2], &mut heads, 1, |head| &mut head.mask);
        assert_eq!(heads[1].mask, 6);
        // A row for all queries; what lies outside is as different as can be.
        share(&mask, size, [0, 1], &mut heads, 1, |head| &mut head.mask);
        assert_eq!(heads[1].mask, 0);
        heads[1].mask = 10;
        share(&mask, size, [0, 1], &mut heads, 1, |head| &mut head.mask);
        assert_eq!(heads[1].mask, 10);
    }
}

//! Non-maximum suppression, by the engine's own operator: what `torchvision.ops.nms` and
//! `batched_nms` keep.

use std::cmp::Ordering;

use plutino::{Model, Session, SessionOptions, Tensor, ir};

use super::Detection;
use crate::VisionError;

/// Boxes that are looked at, at most: the best, as ultralytics limits them.
const MOST: usize = 30_000;

/// Numbers of boxes up to which torchvision suppresses all classes at once, each moved to a place
/// of its own: 4000 coordinates.
const AT_ONCE: usize = 1000;

/// Suppresses boxes that overlap a better one of their class by more than a threshold.
#[derive(Debug)]
pub struct Suppressor(Session);

impl Suppressor {
    /// `threshold` is the largest quotient of intersection and union that is kept.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(threshold: f32) -> Result<Self, VisionError> {
        let param = format!(
            "7767517\n4 3\n\
             pnnx.Input boxes 0 1 boxes #boxes=(?,4)f32\n\
             pnnx.Input scores 0 1 scores #scores=(?)f32\n\
             torchvision.ops.nms nms 2 1 boxes scores kept iou_threshold={threshold:?} \
             $boxes=boxes $scores=scores #boxes=(?,4)f32 #scores=(?)f32 #kept=(?)i64\n\
             pnnx.Output kept 1 0 kept #kept=(?)i64\n"
        );
        let graph = ir::Graph::from_bytes(param, Vec::new()).map_err(plutino::ModelError::from)?;
        let mut options = SessionOptions::default();
        options.threads = Some(1);
        Ok(Self(Model::from_graph(graph)?.session(options)?))
    }

    /// `torchvision.ops.nms`: which boxes are kept, best first.
    fn nms(&self, boxes: &[[f32; 4]], scores: &[f32]) -> Result<Vec<usize>, VisionError> {
        let boxes = Tensor::from_slice(boxes.as_flattened(), [boxes.len(), 4])?;
        let scores = Tensor::from_slice(scores, [scores.len()])?;
        let kept = self.0.run(&[boxes, scores])?;
        let kept = kept.first().map(|kept| kept.as_slice::<i64>()).transpose()?;
        let kept = kept.unwrap_or_default().iter();
        Ok(kept.filter_map(|&at| usize::try_from(at).ok()).collect())
    }

    /// `torchvision.ops.batched_nms`: which boxes are kept, best first.
    fn batched(&self, all: &[Detection]) -> Result<Vec<usize>, VisionError> {
        let scores: Vec<f32> = all.iter().map(|d| d.score).collect();
        if all.len() <= AT_ONCE {
            let corners = all.iter().flat_map(|d| d.corners);
            let apart = corners.fold(f32::NEG_INFINITY, f32::max) + 1.0;
            let moved = |d: &Detection| d.corners.map(|at| at + d.class as f32 * apart);
            return self.nms(&all.iter().map(moved).collect::<Vec<_>>(), &scores);
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        let class = |&at: &usize| all.get(at).map(|d| d.class);
        order.sort_by_key(class);
        let mut kept = Vec::new();
        for at in order.chunk_by(|a, b| class(a) == class(b)) {
            let (boxes, scores): (Vec<[f32; 4]>, Vec<f32>) =
                at.iter().filter_map(|&at| all.get(at)).map(|d| (d.corners, d.score)).unzip();
            let best = self.nms(&boxes, &scores)?;
            kept.extend(best.into_iter().filter_map(|i| at.get(i).copied()));
        }
        kept.sort_unstable();
        kept.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        Ok(kept)
    }

    /// The best `most` boxes, best first, none of which overlaps a better one of its class too
    /// much.
    ///
    /// # Errors
    /// Too little memory.
    pub fn suppress(
        &self,
        mut found: Vec<Detection>,
        most: usize,
    ) -> Result<Vec<Detection>, VisionError> {
        if found.is_empty() {
            return Ok(found);
        }
        keep_best(&mut found, MOST);
        let kept = self.batched(&found)?;
        Ok(kept.into_iter().take(most).filter_map(|at| found.get(at).copied()).collect())
    }
}

/// Leaves the best `most`, best first where there are more; of equal ones those that come first.
fn keep_best(found: &mut Vec<Detection>, most: usize) {
    if found.len() <= most || most == 0 {
        return found.truncate(most);
    }
    // Only those that stay are sorted.
    let mut scores: Vec<f32> = found.iter().map(|d| d.score).collect();
    let (better, &mut last, _) = scores.select_nth_unstable_by(most - 1, |a, b| b.total_cmp(a));
    let better = better.iter().filter(|score| score.total_cmp(&last).is_gt()).count();
    let mut equal = most - better;
    found.retain(|d| match d.score.total_cmp(&last) {
        Ordering::Greater => true,
        Ordering::Less => false,
        Ordering::Equal if equal == 0 => false,
        Ordering::Equal => {
            equal -= 1;
            true
        }
    });
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32;

    /// Boxes, as `boxes` in xtask/python/golden.py makes them.
    fn boxes(seed: u32, count: usize, classes: usize) -> Vec<Detection> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32
        };
        let one = |_| {
            let [x, y, w, h] = [next(), next(), next(), next()].map(|n| (n / 65536.0).floor());
            let (score, class) = (next() / 16_777_216.0, next() as usize % classes);
            Detection { corners: [x, y, x + w / 4.0, y + h / 4.0], score, class }
        };
        (0..count).map(one).collect()
    }

    fn checksum(kept: &[usize]) -> u32 {
        crc32(&kept.iter().flat_map(|&at| (at as i64).to_le_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn as_torchvision_keeps_them() {
        let golden: &[(usize, usize, f32, u32, u32)] = &include!("suppress.in");
        assert_eq!(golden.len(), 1000);
        for (seed, &(count, classes, threshold, plain, batched)) in (0..).zip(golden) {
            let all = boxes(seed, count, classes);
            let suppressor = Suppressor::new(threshold).unwrap();
            let corners: Vec<_> = all.iter().map(|d| d.corners).collect();
            let scores: Vec<_> = all.iter().map(|d| d.score).collect();
            let kept = suppressor.nms(&corners, &scores).unwrap();
            assert_eq!(checksum(&kept), plain, "case {seed}");
            assert_eq!(checksum(&suppressor.batched(&all).unwrap()), batched, "case {seed}");
        }
    }

    #[test]
    fn the_best_are_those_that_sorting_would_leave() {
        for (seed, count) in [(1, 0), (2, 1), (3, 100), (4, 1000)] {
            let mut all = boxes(seed, count, 3);
            // Many scores occur more than once; one is no number.
            all.iter_mut().for_each(|d| d.score = (d.score * 20.0).floor());
            all.iter_mut().skip(50).take(1).for_each(|d| d.score = f32::NAN);
            for most in [0, 1, 7, 99, 100, 500, 2000] {
                let (mut best, mut sorted) = (all.clone(), all.clone());
                if sorted.len() > most {
                    sorted.sort_by(|a, b| b.score.total_cmp(&a.score));
                    sorted.truncate(most);
                }
                keep_best(&mut best, most);
                let bits = |all: &[Detection]| {
                    all.iter().map(|d| (d.score.to_bits(), d.corners, d.class)).collect::<Vec<_>>()
                };
                assert_eq!(bits(&best), bits(&sorted), "{most} of {count}");
            }
        }
    }

    #[test]
    fn the_best_are_first_and_counted() {
        let suppressor = Suppressor::new(0.5).unwrap();
        assert_eq!(suppressor.suppress(Vec::new(), 9).unwrap(), []);
        let one =
            |x: f32, score, class| Detection { corners: [x, 0.0, x + 9.0, 9.0], score, class };
        let all = [one(0.0, 0.3, 0), one(1.0, 0.9, 0), one(1.0, 0.5, 1), one(50.0, 0.4, 0)];
        assert_eq!(suppressor.suppress(all.to_vec(), 2).unwrap(), [all[1], all[2]]);
        assert_eq!(suppressor.suppress(all.to_vec(), 9).unwrap().len(), 3);
    }
}

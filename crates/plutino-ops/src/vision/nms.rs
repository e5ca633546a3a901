//! Non-maximum suppression: boxes that overlap no better one too much.
//!
//! <https://pytorch.org/vision/stable/generated/torchvision.ops.nms.html>. Boxes are rows (x1, y1,
//! x2, y2); the result is the numbers of those that are kept, best first, in i64. How many there
//! are depends on data. Boxes of one score keep their order, and a score that is no number is the
//! best, as in torchvision.

use super::box_tree::{BoxTree, Row, area, quotient};
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use bytemuck::Pod;
use num_traits::{Float as _, Zero as _};
use plutino_kernels::number::{Float, Real};
use plutino_kernels::sort::{Ranked, sort_ranked};
use plutino_tensor::stop::Watch;
use plutino_tensor::{DType, Shape, Tensor, TensorError, alloc};

/// Scratch memory of a box: its score with its number, its place in the order, and a mark.
const BYTES_OF_BOX: usize = size_of::<Ranked>() + size_of::<i64>() + 1;

#[derive(Debug)]
struct Nms {
    boxes: usize,
    scores: usize,
    /// Largest quotient of intersection and union that a kept box may have with a better one.
    threshold: f64,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let raw = r.kind().starts_with("pnnx.custom_op");
    let names =
        if raw { ["arg_0", "arg_1", "arg_2"] } else { ["boxes", "scores", "iou_threshold"] };
    let [boxes, scores, threshold] = names;
    let threshold = r.required(threshold)?;
    let (boxes, scores) = (r.required_input(boxes)?, r.required_input(scores)?);
    Ok(Box::new(Nms { boxes, scores, threshold }))
}
register_op!(build => "torchvision.ops.nms", "pnnx.custom_op.torchvision.nms");

impl Nms {
    /// The dtype and the number of boxes.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, usize), ShapeError> {
        let boxes = TensorValue::at(inputs, self.boxes)?;
        let scores = TensorValue::at(inputs, self.scores)?;
        let dtype = boxes.dtype();
        if !matches!(dtype, DType::F32 | DType::F64) {
            let (input, expected) = (self.boxes, "f32 or f64".into());
            return Err(ShapeError::DType { input, expected, found: dtype });
        }
        let count = match (boxes.shape().dims(), scores.shape().dims()) {
            (&[n, 4], &[m]) if n == m && scores.dtype() == dtype => n,
            _ => {
                return Err(invalid(format!(
                    "boxes must be rows of 4 numbers with a score of the same dtype for each, found \
                     {} and {}",
                    boxes.spec, scores.spec
                )));
            }
        };
        Ok((dtype, count))
    }

    fn planned<T: Float>(&self, cx: &PlanCx<'_>, count: usize) -> Result<Planned, PlanError> {
        let scratch = Shape::from([count.max(1), BYTES_OF_BOX]).checked_numel()?;
        let at = [self.boxes, self.scores].map(|i| leaf(cx.inputs, i));
        let kernel =
            NmsKernel::<T> { at, threshold: self.threshold, count, element: Default::default() };
        Ok(Planned::new(kernel).with_scratch(scratch))
    }
}

impl Operator for Nms {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.bind(inputs)?;
        Ok(vec![ValueSpec::Dynamic { dtype: DType::I64 }])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        match self.bind(cx.inputs)? {
            (DType::F64, count) => self.planned::<f64>(cx, count),
            (_, count) => self.planned::<f32>(cx, count),
        }
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        // Pairs of boxes that lie apart are not looked at: about as many as boxes, in practice.
        let pairs = self.bind(inputs).map_or(0, |(_, n)| (n as u64).saturating_mul(64));
        Cost { flops: pairs.saturating_mul(8), ..Cost::moved(inputs, outputs) }
    }
}

struct NmsKernel<T> {
    /// Leaves of boxes and scores.
    at: [usize; 2],
    threshold: f64,
    count: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Float> Kernel for NmsKernel<T> {
    fn name(&self) -> &str {
        "nms"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let n = self.count;
        let mut scratch = std::mem::take(&mut cx.scratch);
        let ranked: &mut [Ranked] = cut(&mut scratch, n)?;
        let order: &mut [i64] = cut(&mut scratch, n)?;
        let gone: &mut [u8] = cut(&mut scratch, n)?;
        let boxes = cx.inputs.get::<T>(self.at[0])?;
        by_score(cx.inputs.get::<T>(self.at[1])?, ranked, order);
        let kept = suppress(boxes, self.threshold, order, gone)?;
        let kept = order.get(..kept).unwrap_or_default();
        cx.outputs.emit(0, Tensor::from_slice(kept, [kept.len()])?)
    }
}

/// Cuts `n` elements off the front of `scratch`.
fn cut<'a, P: Pod>(scratch: &mut &'a mut [u8], n: usize) -> Result<&'a mut [P], RunError> {
    let short = || RunError::Internal("scratch memory of nms".into());
    let bytes = n.saturating_mul(size_of::<P>());
    let (part, rest) = std::mem::take(scratch).split_at_mut_checked(bytes).ok_or_else(short)?;
    *scratch = rest;
    bytemuck::try_cast_slice_mut(part).map_err(|_| short())
}

/// Fills `order` with the numbers of all scores, best first.
fn by_score<T: Float>(scores: &[T], ranked: &mut [Ranked], order: &mut [i64]) {
    for (i, (slot, score)) in ranked.iter_mut().zip(scores).enumerate() {
        *slot = Ranked::new(!score.rank(), i);
    }
    sort_ranked(ranked);
    order.iter_mut().zip(ranked).for_each(|(slot, ranked)| *slot = ranked.at() as i64);
}

/// A box by its number.
fn row<T: Float>(boxes: &[T], at: usize) -> Row<T::Real> {
    let b = &boxes[4 * at..][..4];
    Row { edges: [b[0], b[1], b[2], b[3]].map(T::to_real), at }
}

/// Moves the boxes that are kept to the front of `order`, best first; returns their number.
/// `gone` is for marks.
fn suppress<T: Float>(
    boxes: &[T],
    threshold: f64,
    order: &mut [i64],
    gone: &mut [u8],
) -> Result<usize, TensorError> {
    gone.fill(0);
    if threshold < 0.0 {
        return suppress_apart(boxes, threshold, order, gone);
    }
    // No quotient is greater than one: the union is no less than what is shared, rounded or not.
    let none = threshold >= 1.0 || threshold.is_nan();
    let mut rows = alloc::list(if none { 0 } else { order.len() })?;
    if !none {
        let counted = (0..order.len()).map(|at| row(boxes, at));
        rows.extend(counted.filter(|row| BoxTree::counts(row.edges)));
    }
    let mut tree = BoxTree::new(rows, threshold)?;
    keep_best(order, gone, |at, gone| {
        let row = row(boxes, at);
        if none || !BoxTree::counts(row.edges) {
            return Ok(());
        }
        tree.suppress(row, |other| gone[other] = 1)
    })
}

/// [`suppress`] for a negative threshold, which suppresses boxes that lie apart, too: one box
/// leaves nearly none, so that all that are left are looked at.
fn suppress_apart<T: Float>(
    boxes: &[T],
    threshold: f64,
    order: &mut [i64],
    gone: &mut [u8],
) -> Result<usize, TensorError> {
    let mut left = alloc::list(order.len())?;
    let all = (0..order.len()).map(|at| row(boxes, at));
    left.extend(all.filter(|row| !area(row.edges).is_nan()));
    // Two boxes of area zero have no quotient.
    let is_flat = |row: &Row<T::Real>| area(row.edges) == T::Real::zero();
    let mut flat = alloc::list(left.len())?;
    flat.extend(left.iter().copied().filter(is_flat));
    left.retain(|row| !is_flat(row));
    let mut watch = Watch::new();
    keep_best(order, gone, |at, gone| {
        let best = row(boxes, at);
        if area(best.edges).is_nan() {
            return Ok(());
        }
        if watch.stops(4 * (left.len() + flat.len())) {
            return Err(TensorError::Stopped);
        }
        let mut stays = |other: &Row<T::Real>| {
            let over = quotient(best.edges, other.edges).wide() > threshold;
            gone[other.at] |= u8::from(over);
            !over && other.at != at
        };
        left.retain(&mut stays);
        if !is_flat(&best) {
            flat.retain(&mut stays);
        }
        Ok(())
    })
}

/// Goes through the boxes, best first, and calls `suppress` for each that is not gone.
fn keep_best(
    order: &mut [i64],
    gone: &mut [u8],
    mut suppress: impl FnMut(usize, &mut [u8]) -> Result<(), TensorError>,
) -> Result<usize, TensorError> {
    let mut kept = 0;
    for place in 0..order.len() {
        let i = order[place];
        if gone[i as usize] == 0 {
            order[kept] = i;
            kept += 1;
            suppress(i as usize, gone)?;
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::row;
    use crate::testkit::{check, error, op, random, tensor, try_op, values};
    use num_traits::{Float as _, Zero as _};
    use plutino_kernels::number::{Float, Real as _};
    use plutino_tensor::Tensor;

    fn line(threshold: f64) -> String {
        format!("pnnx.custom_op.torchvision.nms n 2 1 0 1 2 arg_2={threshold:?} $arg_0=0 $arg_1=1")
    }

    fn kept(boxes: &[f32], scores: &[f32], threshold: f64) -> Vec<i64> {
        let inputs = [tensor([scores.len(), 4], boxes), tensor([scores.len()], scores)];
        values(&check(&*op(&line(threshold)), &inputs)[0])
    }

    const SAME: [f32; 12] = [0., 0., 10., 10., 0., 0., 10., 10., 0., 0., 10., 10.];

    #[test]
    fn the_best_of_boxes_that_overlap() {
        let boxes = [0., 0., 10., 10., 1., 1., 11., 11., 20., 20., 30., 30., 0., 0., 10., 4.];
        assert_eq!(kept(&boxes, &[0.5, 0.9, 0.1, 0.6], 0.5), [1, 3, 2]);
        assert_eq!(kept(&boxes, &[0.5, 0.9, 0.1, 0.6], 0.2), [1, 2]);
        assert_eq!(kept(&boxes, &[0.5, 0.9, 0.1, 0.6], 0.7), [1, 3, 0, 2]);
        assert_eq!(kept(&[], &[], 0.5), [0i64; 0]);
        let spelled = op("torchvision.ops.nms n 2 1 0 1 2 iou_threshold=0.5 $boxes=0 $scores=1");
        let inputs = [tensor([4, 4], &boxes), tensor([4], &[0.5f32, 0.9, 0.1, 0.6])];
        assert_eq!(values::<i64>(&check(&*spelled, &inputs)[0]), [1, 3, 2]);
    }

    /// Values of torchvision.
    #[test]
    fn ties_and_what_is_no_number() {
        assert_eq!(kept(&SAME, &[0.5; 3], 0.5), [0]);
        assert_eq!(kept(&SAME, &[0.1, 0.2, 0.2], 0.5), [1]);
        assert_eq!(kept(&SAME, &[0.5, f32::NAN, 0.6], 0.5), [1]);
        assert_eq!(kept(&SAME, &[0.5, 0.5, 0.6], 1.0), [2, 0, 1]);
        assert_eq!(kept(&SAME, &[0.5, 0.5, 0.6], -1.0), [2]);
        let mut boxes = SAME;
        boxes[4] = f32::NAN;
        assert_eq!(kept(&boxes, &[0.5, 0.7, 0.6], 0.5), [1, 2]);
        boxes[4] = f32::INFINITY;
        assert_eq!(kept(&boxes, &[0.5, 0.7, 0.6], -0.5), [1]);
    }

    /// The rule as it is written down, without the order by left edges.
    fn plain(boxes: &[f64], scores: &[f64], threshold: f64) -> Vec<i64> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let b = |i: usize| &boxes[4 * i..][..4];
        let area = |i: usize| (b(i)[2] - b(i)[0]) * (b(i)[3] - b(i)[1]);
        let mut kept: Vec<usize> = Vec::new();
        for i in order {
            let apart = |&k: &usize| {
                let w = (b(i)[2].min(b(k)[2]) - b(i)[0].max(b(k)[0])).max(0.0);
                let h = (b(i)[3].min(b(k)[3]) - b(i)[1].max(b(k)[1])).max(0.0);
                let quotient = w * h / (area(k) + area(i) - w * h);
                quotient.is_nan() || quotient <= threshold
            };
            if kept.iter().all(apart) {
                kept.push(i);
            }
        }
        kept.into_iter().map(|i| i as i64).collect()
    }

    #[test]
    fn many_boxes_agree_with_the_rule() {
        for (n, spread, threshold) in
            [(300, 40.0, 0.4), (300, 4.0, 0.1), (200, 4.0, 0.0), (100, 4.0, -0.5), (64, 0.0, 0.99)]
        {
            let noise: Vec<f32> = values(&random([n, 5], 7));
            let (mut boxes, mut scores) = (Vec::new(), Vec::new());
            for v in noise.chunks_exact(5) {
                let v: Vec<f64> = v.iter().map(|&v| f64::from(v)).collect();
                let (x, y) = (v[0] * spread, v[1] * spread);
                boxes.extend([x, y, x + 2.0 + v[2], y + 2.0 + v[3]]);
                scores.push(v[4]);
            }
            let inputs: [Tensor; 2] = [tensor([n, 4], &boxes), tensor([n], &scores)];
            let found: Vec<i64> = values(&check(&*op(&line(threshold)), &inputs)[0]);
            assert_eq!(found, plain(&boxes, &scores, threshold), "{spread} {threshold}");
        }
    }

    /// The rule in the dtype's own arithmetic, each box against all that are kept.
    fn naive<T: Float>(boxes: &[T], scores: &[T], threshold: f64) -> Vec<i64> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by_key(|&i| !scores[i].rank());
        let mut kept: Vec<usize> = Vec::new();
        for i in order {
            let over = |&k: &usize| {
                let (a, b) = (row(boxes, k).edges, row(boxes, i).edges);
                let zero = T::Real::zero();
                let w = (a[2].min(b[2]) - a[0].max(b[0])).max(zero);
                let h = (a[3].min(b[3]) - a[1].max(b[1])).max(zero);
                let [own, other] = [a, b].map(|[x1, y1, x2, y2]| (x2 - x1) * (y2 - y1));
                (w * h / (own + other - w * h)).wide() > threshold
            };
            if !kept.iter().any(over) {
                kept.push(i);
            }
        }
        kept.into_iter().map(|i| i as i64).collect()
    }

    /// Boxes of all sorts, from noise in [-1, 1): a tree of several levels is entered and left in
    /// any way, and equal edges, areas of zero and of infinity, swapped edges and numbers below the
    /// least normal one occur.
    fn sorts<T: Float>(noise: &[f32], tiny: f64, huge: f64) -> Vec<(&'static str, Vec<T>)> {
        type Make = fn(&[f64], f64, f64) -> [f64; 4];
        fn sized(x: f64, y: f64, w: f64, h: f64) -> [f64; 4] {
            [x, y, x + w, y + h]
        }
        let sorts: [(&str, Make); 9] = [
            ("a heap", |v, _, _| sized(v[0], v[1], 2.0 + v[2], 2.0 + v[3])),
            ("scattered", |v, _, _| sized(20.0 * v[0], 20.0 * v[1], 2.0 + v[2], 2.0 + v[3])),
            ("a column", |v, _, _| sized(0.0, 400.0 * v[1], 2.0, 2.0)),
            ("a row", |v, _, _| sized(400.0 * v[0], v[1], 2.0, 2.0)),
            ("crosses", |v, _, _| {
                let long = if v[2] < 0.0 { [9.0, 0.1] } else { [0.1, 9.0] };
                sized(9.0 * v[0], 9.0 * v[1], long[0], long[1])
            }),
            ("whole numbers", |v, _, _| {
                let [x, y, w, h] = [v[0], v[1], v[2], v[3]].map(|v| (4.0 * v).round());
                sized(x, y, w, h)
            }),
            ("of all sizes", |v, _, _| {
                let [w, h] = [v[2], v[3]].map(|v| (12.0 * v).exp2());
                sized(9.0 * v[0], 9.0 * v[1], w, h)
            }),
            ("tiny", |v, tiny, _| sized(v[0], v[1], 1.0 + v[2], 1.0 + v[3]).map(|v| v * tiny)),
            ("huge", |v, _, huge| sized(v[0], v[1], 1.0 + v[2], 1.0 + v[3]).map(|v| v * huge)),
        ];
        let all = |make: Make| {
            let one = |v: &[f32]| {
                let v: Vec<f64> = v.iter().map(|&v| f64::from(v)).collect();
                make(&v, tiny, huge).map(T::narrow)
            };
            noise.chunks_exact(5).flat_map(one).collect()
        };
        sorts.into_iter().map(|(name, make)| (name, all(make))).collect()
    }

    fn agree<T: Float + plutino_tensor::Element>(tiny: f64, huge: f64) {
        for (seed, n) in [(1, 700), (2, 300), (3, 17)] {
            let noise: Vec<f32> = values(&random([n, 5], seed));
            let scores: Vec<T> = noise.chunks_exact(5).map(|v| T::narrow(v[4].into())).collect();
            for (name, boxes) in sorts::<T>(&noise, tiny, huge) {
                for threshold in [0.0, 1e-44, 0.01, 0.3, 0.5, 0.9, 0.999, 1.0, -0.5, f64::NAN] {
                    let inputs = [tensor([n, 4], &boxes), tensor([n], &scores)];
                    let mut order: Vec<i64> = (0..n as i64).collect();
                    order.sort_by_key(|&i| !scores[i as usize].rank());
                    let kept = super::suppress(&boxes, threshold, &mut order, &mut vec![7; n]);
                    order.truncate(kept.unwrap());
                    assert_eq!(order, naive(&boxes, &scores, threshold), "{name} {threshold}");
                    if threshold == 0.5 {
                        let found = check(&*op(&line(threshold)), &inputs);
                        assert_eq!(values::<i64>(&found[0]), order, "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn boxes_of_all_sorts_agree_with_the_rule_to_the_bit() {
        agree::<f32>(3e-22, 1.3e19);
        agree::<f64>(1e-161, 1e154);
    }

    /// Boxes side by side in one column: an order by left edges compares each with each.
    #[test]
    fn a_column_takes_no_square_of_time() {
        let n = 200_000;
        let boxes: Vec<f32> =
            (0..n).flat_map(|i| [0.0, 2.0 * i as f32, 1.0, 2.0 * i as f32 + 1.0]).collect();
        let mut order: Vec<i64> = (0..n).collect();
        let start = std::time::Instant::now();
        let kept = super::suppress(&boxes, 0.5, &mut order, &mut vec![0; n as usize]).unwrap();
        assert_eq!(kept, n as usize);
        // 4e10 comparisons take more than ten seconds; this takes a tenth of one.
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }

    #[test]
    fn what_does_not_fit() {
        let nms = op(&line(0.5));
        let boxes = |dims: [usize; 2]| random(dims, 1);
        error(&*nms, &[boxes([2, 5]), random([2], 1)]);
        error(&*nms, &[boxes([2, 4]), random([3], 1)]);
        error(&*nms, &[boxes([2, 4]), tensor([2], &[0.5f64; 2])]);
        error(&*nms, &[tensor([1, 4], &[0i64; 4]), tensor([1], &[0i64])]);
        assert!(try_op("torchvision.ops.nms n 2 1 0 1 2 $boxes=0 $scores=1", &[]).is_err());
    }
}

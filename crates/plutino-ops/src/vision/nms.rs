//! Non-maximum suppression: boxes that overlap no better one too much.
//!
//! <https://pytorch.org/vision/stable/generated/torchvision.ops.nms.html>. Boxes are rows (x1, y1,
//! x2, y2); the result is the numbers of those that are kept, best first, in i64. How many there
//! are depends on data. Boxes of one score keep their order, and a score that is no number is the
//! best, as in torchvision.

use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use bytemuck::Pod;
use num_traits::Float as _;
use plutino_kernels::number::{Float, Real, WideReal};
use plutino_kernels::sort::{Ranked, sort_ranked};
use plutino_tensor::stop::Watch;
use plutino_tensor::{DType, Shape, Tensor};

/// Columns that a run keeps of each box: corners, area, and the furthest right edge so far.
const COLUMNS: usize = 6;

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

    fn planned<T: Float<Real: Pod>>(
        &self,
        cx: &PlanCx<'_>,
        count: usize,
    ) -> Result<Planned, PlanError> {
        let parts = Parts { count, real: size_of::<T::Real>() };
        let scratch = Shape::from([count.max(1), parts.bytes_of_box()]).checked_numel()?;
        let at = [self.boxes, self.scores].map(|i| leaf(cx.inputs, i));
        let kernel =
            NmsKernel::<T> { at, threshold: self.threshold, parts, element: Default::default() };
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

/// How scratch memory is cut.
#[derive(Debug, Clone, Copy)]
struct Parts {
    count: usize,
    /// Bytes of a number.
    real: usize,
}

impl Parts {
    fn bytes_of_box(&self) -> usize {
        size_of::<Ranked>() + 2 * size_of::<i64>() + COLUMNS * self.real + 1
    }
}

struct NmsKernel<T> {
    /// Leaves of boxes and scores.
    at: [usize; 2],
    threshold: f64,
    parts: Parts,
    element: std::marker::PhantomData<T>,
}

impl<T: Float<Real: Pod>> Kernel for NmsKernel<T> {
    fn name(&self) -> &str {
        "nms"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let n = self.parts.count;
        let mut scratch = std::mem::take(&mut cx.scratch);
        let ranked: &mut [Ranked] = cut(&mut scratch, n)?;
        let order: &mut [i64] = cut(&mut scratch, n)?;
        let at: &mut [i64] = cut(&mut scratch, n)?;
        let mut column = || cut::<T::Real>(&mut scratch, n);
        let columns = [column()?, column()?, column()?, column()?, column()?, column()?];
        let gone: &mut [u8] = cut(&mut scratch, n)?;
        let boxes = cx.inputs.get::<T>(self.at[0])?;
        by_score(cx.inputs.get::<T>(self.at[1])?, ranked, order);
        let mut left = Left { at, columns, len: 0 };
        left.fill(boxes, ranked);
        let kept = suppress(boxes, self.threshold, order, &mut left, gone);
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

/// Boxes that may still be suppressed, by their left edges. A box can only overlap one that begins
/// before it ends.
struct Left<'a, R> {
    /// Their numbers.
    at: &'a mut [i64],
    /// x1, y1, x2, y2, area, and the greatest x2 up to each.
    columns: [&'a mut [R]; COLUMNS],
    len: usize,
}

impl<R: Real> Left<'_, R> {
    /// Takes all boxes but those without an area: no quotient with such a one is greater than
    /// anything.
    fn fill<T: Float<Real = R>>(&mut self, boxes: &[T], ranked: &mut [Ranked]) {
        for (i, b) in boxes.chunks_exact(4).map(corners).enumerate() {
            if !area(b).is_nan() {
                ranked[self.len] = Ranked::new(WideReal::rank(b[0].wide()), i);
                self.len += 1;
            }
        }
        let ranked = &mut ranked[..self.len];
        sort_ranked(ranked);
        for (slot, i) in ranked.iter().map(|ranked| ranked.at()).enumerate() {
            let b = corners(&boxes[i * 4..][..4]);
            let [x1, y1, x2, y2, s, _] = &mut self.columns;
            [x1[slot], y1[slot], x2[slot], y2[slot]] = b;
            (s[slot], self.at[slot]) = (area(b), i as i64);
        }
        self.note_ends();
    }

    /// Leaves out boxes that are gone.
    fn compact(&mut self, gone: &[u8]) {
        let mut len = 0;
        for slot in 0..self.len {
            let i = self.at[slot];
            if gone[i as usize] == 0 {
                self.at[len] = i;
                for column in &mut self.columns {
                    column[len] = column[slot];
                }
                len += 1;
            }
        }
        self.len = len;
        self.note_ends();
    }

    /// Fills the last column.
    fn note_ends(&mut self) {
        let [_, _, x2, _, _, ends] = &mut self.columns;
        let mut end = R::neg_infinity();
        for (slot, x2) in ends.iter_mut().zip(&x2[..self.len]) {
            end = end.max(*x2);
            *slot = end;
        }
    }

    /// The boxes that may overlap one from `x1` to `x2`.
    fn near(&self, x1: R, x2: R) -> std::ops::Range<usize> {
        let [begins, _, _, _, _, ends] = &self.columns;
        let first = ends[..self.len].partition_point(|&end| end <= x1);
        let last = begins[..self.len].partition_point(|&begin| begin < x2);
        first..last.max(first)
    }
}

fn corners<T: Float>(b: &[T]) -> [T::Real; 4] {
    [b[0], b[1], b[2], b[3]].map(T::to_real)
}

fn area<R: Real>([x1, y1, x2, y2]: [R; 4]) -> R {
    (x2 - x1) * (y2 - y1)
}

/// Moves the boxes that are kept to the front of `order`, best first; returns their number.
fn suppress<T: Float>(
    boxes: &[T],
    threshold: f64,
    order: &mut [i64],
    left: &mut Left<'_, T::Real>,
    gone: &mut [u8],
) -> usize {
    gone.fill(0);
    let zero = <T::Real as Real>::nearest(0.0);
    let (mut kept, mut fallen) = (0, 0);
    let mut watch = Watch::new();
    for place in 0..order.len() {
        let i = order[place];
        if std::mem::replace(&mut gone[i as usize], 1) != 0 {
            continue;
        }
        order[kept] = i;
        kept += 1;
        let b = corners(&boxes[i as usize * 4..][..4]);
        let own = area(b);
        if own.is_nan() {
            continue;
        }
        fallen += 1;
        // A negative threshold suppresses boxes that lie apart, too.
        let near = if threshold >= 0.0 { left.near(b[0], b[2]) } else { 0..left.len };
        if watch.stops(near.len().saturating_mul(4)) {
            break;
        }
        let [x1, y1, x2, y2, area, _] = left.columns.each_ref().map(|c| &c[near.clone()]);
        for (slot, &j) in left.at[near.clone()].iter().enumerate() {
            let w = (b[2].min(x2[slot]) - b[0].max(x1[slot])).max(zero);
            let h = (b[3].min(y2[slot]) - b[1].max(y1[slot])).max(zero);
            let shared = w * h;
            let quotient = shared / (own + area[slot] - shared);
            if quotient.wide() > threshold && gone[j as usize] == 0 {
                gone[j as usize] = 1;
                fallen += 1;
            }
        }
        if 2 * fallen > left.len {
            left.compact(gone);
            fallen = 0;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, op, random, tensor, try_op, values};
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

//! The work of one task: a block of queries against all keys.

use super::products::{Output, Panels, Rows, Work};
use super::softmax::{Masks, exponentials};
use super::{Attention, FOUR, Head, Mask, Size};
use crate::gemm::Strided;
use crate::gemm::tiles::ToBf16;
use plutino_cpu::math::exp_nonpositive;
use plutino_cpu::par::{SharedMut, stop};
use plutino_cpu::simd::unroll::array;
use plutino_cpu::simd::{Pairs, Simd, Vectorized};
use std::ops::Range;

/// A block of queries of one head, or of all heads of a group.
pub(super) struct Task<'a> {
    pub(super) plan: &'a Attention,
    pub(super) heads: &'a [Head],
    pub(super) which: Range<usize>,
    pub(super) queries: Range<usize>,
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) mask: Mask<'a, f32>,
    pub(super) out: &'a SharedMut<'a, f32>,
    /// The weights, and where those of this group begin.
    pub(super) weights: Option<(&'a SharedMut<'a, f32>, usize)>,
    pub(super) scratch: &'a mut [f32],
}

/// Splits the first `n` elements off.
#[inline]
fn part<'a>(rest: &mut &'a mut [f32], n: usize) -> &'a mut [f32] {
    let (part, tail) = std::mem::take(rest).split_at_mut(n);
    *rest = tail;
    part
}

/// A block of keys and values in panels: of keys for each element of them, of elements of values
/// for each key.
#[derive(Clone, Copy)]
struct Packed<'a> {
    k: Panels<'a>,
    v: Panels<'a>,
}

/// The scores of some queries, and what is known of each so far.
struct Scores<'a> {
    /// Their scores with a block of keys, then their weights relative to the greatest score so far.
    p: &'a mut [f32],
    /// The greatest score of each, and the sum of its weights.
    m: &'a mut [f32],
    l: &'a mut [f32],
    /// Room for what is added to [`FOUR`] rows.
    added: &'a mut [f32],
    /// What each one's older results are multiplied with.
    shrink: &'a mut [f32],
}

impl Vectorized for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut rest = std::mem::take(&mut self.scratch);
        let [kp, vp, p, m, l, shrink, added, panel, rows, sums] =
            self.plan.parts().map(|n| part(&mut rest, n));
        let mut work = Work { panel, rows };
        let (sums, bf16) = (SharedMut::new(sums), self.plan.bf16);
        let keys = self.plan.problem.size.keys;
        // Averaged weights are wanted for all keys.
        let causal = matches!(self.mask, Mask::Causal) && self.weights.is_none();
        let end = if causal { keys.min(self.queries.end) } else { keys };
        for h in self.which.clone() {
            m.fill(f32::NEG_INFINITY);
            l.fill(0.0);
            let results = match bf16 {
                true => Results { c: &sums, first: 0, stride: self.plan.row_of_sums() },
                false => self.results(h),
            };
            if keys == 0 {
                for query in self.queries.clone() {
                    self.row(results, query).fill(0.0);
                }
                if bf16 {
                    self.round(h, self.queries.clone(), results);
                }
            }
            for k0 in (0..end).step_by(self.plan.keys) {
                let block = k0..(k0 + self.plan.keys).min(end);
                let packed = self.pack(&self.heads[h], &block, (kp, vp), &mut work);
                for first in self.queries.clone().step_by(self.plan.rows) {
                    if stop::stopped() {
                        return;
                    }
                    let rows = first..(first + self.plan.rows).min(self.queries.end);
                    let seen =
                        block.start..if causal { block.end.min(rows.end) } else { block.end };
                    let (m, l) = (
                        &mut m[first - self.queries.start..],
                        &mut l[first - self.queries.start..],
                    );
                    if !seen.is_empty() {
                        let scores = Scores { p, m, l, shrink, added };
                        self.step(s, h, (&rows, &seen), packed, scores, results, &mut work);
                    }
                    if block.end == end {
                        for (query, &sum) in rows.clone().zip(&*l) {
                            let unattended = self.plan.problem.unattended;
                            let factor = if sum == 0.0 { unattended } else { 1.0 / sum };
                            scale(s, self.row(results, query), factor);
                        }
                        if bf16 {
                            self.round(h, rows, results);
                        }
                    }
                }
            }
        }
    }
}

impl Task<'_> {
    /// Packs a block of keys, and of values.
    fn pack<'p>(
        &self,
        head: &Head,
        block: &Range<usize>,
        (k, v): (&'p mut [f32], &'p mut [f32]),
        work: &mut Work<'_>,
    ) -> Packed<'p> {
        let Size { keys, depth, values, .. } = self.plan.problem.size;
        let (strides, products) = (self.plan.problem.strides, self.plan.products);
        let source = self.k.get(head.k..).unwrap_or_default();
        let source = Strided::right(source, (depth, keys), (1, strides.k));
        let k = products.pack(&source, block.clone(), 0..depth, k, work);
        let source = self.v.get(head.v..).unwrap_or_default();
        let source = Strided::right(source, (keys, values), (strides.v, 1));
        let v = products.pack(&source, 0..values, block.clone(), v, work);
        Packed { k, v }
    }

    /// One step of the online softmax: the queries `rows` and the keys `seen`, the first ones of a
    /// block.
    #[allow(clippy::too_many_arguments)]
    #[cfg_attr(not(unoptimised), inline(always))]
    fn step<S: Simd>(
        &self,
        s: S,
        h: usize,
        (rows, seen): (&Range<usize>, &Range<usize>),
        packed: Packed<'_>,
        scores: Scores<'_>,
        results: Results<'_>,
        work: &mut Work<'_>,
    ) {
        let (head, strides) = (&self.heads[h], &self.plan.problem.strides);
        let Size { depth, values, .. } = self.plan.problem.size;
        let width = seen.len().next_multiple_of(S::LANES);
        let Scores { p, m, l, shrink, added } = scores;
        let p = &mut p[..rows.len().next_multiple_of(FOUR) * width];
        let products = self.plan.products;
        let q = self.q.get(head.q + rows.start * strides.q..).unwrap_or_default();
        let q = Rows { data: q, stride: strides.q, rows: rows.len(), numbers: depth };
        let c = &SharedMut::new(p);
        let to = Output { add: false, c, base: 0, stride: width, cols: width };
        products.multiply(q, packed.k, to, work);

        let add = seen.start > 0;
        let [m_rows, l_rows, shrinks] =
            [&mut *m, &mut *l, &mut *shrink].map(|x| x.as_chunks_mut::<FOUR>().0);
        let of_rows = m_rows.iter_mut().zip(l_rows).zip(shrinks);
        let fours = p.chunks_exact_mut(FOUR * width).zip(of_rows).enumerate();
        for (i, (four, ((m, l), shrink))) in fours {
            // Rows behind the last query are masked as its own, and no one reads them.
            let last = rows.end - 1;
            let queries = array!(FOUR, |I| last.min(rows.start + i * FOUR + I));
            let greatest = self.mask(s, head, queries, seen, four, added);
            *shrink = *m;
            for (m, greatest) in m.iter_mut().zip(greatest) {
                *m = greatest.max(*m);
            }
            let sums: [f32; FOUR] = exponentials(s, four, m);
            if add {
                let (old, new) = (s.load_partial(shrink), s.load_partial(m));
                let none = s.eq(old, s.splat(f32::NEG_INFINITY));
                let factors = s.select(none, s.zero(), exp_nonpositive(s, s.sub(old, new)));
                s.store_partial(factors, shrink);
                for ((l, shrink), sum) in l.iter_mut().zip(shrink).zip(sums) {
                    *l = *l * *shrink + sum;
                }
            } else {
                *l = sums;
            }
        }
        if let Some((weights, at)) = self.weights {
            let at = at + rows.start * seen.len();
            // SAFETY: these rows belong to this task alone.
            let w = unsafe { weights.slice(at..at + rows.len() * seen.len()) };
            let rows = w.chunks_exact_mut(seen.len()).zip(p.chunks_exact(width));
            for ((w, p), l) in rows.zip(&*l) {
                let share = 1.0 / self.which.len() as f32 / l;
                for (w, p) in w.iter_mut().zip(p) {
                    *w = if h == self.which.start { p * share } else { *w + p * share };
                }
            }
        }

        if add {
            for (query, &shrink) in rows.clone().zip(&*shrink) {
                scale(s, self.row(results, query), shrink);
            }
        }
        let Results { c, stride, .. } = results;
        let base = results.at(rows.start - self.queries.start);
        let p = Rows { data: p, stride: width, rows: rows.len(), numbers: seen.len() };
        // These rows exist, overlap no others (`Problem::check`), and are this task's alone.
        let to = Output { add, c, base, stride, cols: values };
        products.multiply(p, packed.v, to, work);
    }

    /// Scales and masks the scores of some queries with the keys `seen`, a row each, and finds the
    /// greatest of each. (Scaled keys would do as well, but where products overflow, PyTorch's do,
    /// too.)
    #[cfg_attr(not(unoptimised), inline(always))]
    fn mask<S: Simd, const N: usize>(
        &self,
        s: S,
        head: &Head,
        queries: [usize; N],
        seen: &Range<usize>,
        scores: &mut [f32],
        added: &mut [f32],
    ) -> [f32; N] {
        let strides = &self.plan.problem.strides;
        let keys = seen.len();
        // Where the mask of a query begins.
        let row = |first: usize, [row_step, key_step]: [usize; 2], query: usize| {
            first + query * row_step + seen.start * key_step
        };
        let at = |query: usize| row(head.mask, strides.mask, query);
        let then = |query: usize| row(head.second, strides.second, query);
        let mut masks = Masks {
            scale: self.plan.problem.scale as f32,
            add: [None; 2],
            visible: array!(N, |I| keys),
        };
        let (steps, dense) = ([strides.mask[1], strides.second[1]], |step: usize| step == 1);
        match self.mask {
            Mask::None => {}
            Mask::Causal => {
                masks.visible =
                    array!(N, |I| keys.min((queries[I] + 1).saturating_sub(seen.start)));
            }
            Mask::Add(mask) if dense(steps[0]) => {
                masks.add[0] = Some(array!(N, |I| &mask[at(queries[I])..][..keys]));
            }
            Mask::Both(mask, second) if steps.into_iter().all(dense) => {
                masks.add = [
                    Some(array!(N, |I| &mask[at(queries[I])..][..keys])),
                    Some(array!(N, |I| &second[then(queries[I])..][..keys])),
                ];
            }
            // As numbers that are added; the same for all queries where they share a mask.
            Mask::Keep(mask) if dense(steps[0]) => {
                let (rows, step) = if strides.mask[0] == 0 { (1, 0) } else { (N, keys) };
                for (added, query) in added.chunks_exact_mut(keys).zip(queries).take(rows) {
                    for (added, &keep) in added.iter_mut().zip(&mask[at(query)..][..keys]) {
                        *added = if keep { 0.0 } else { f32::NEG_INFINITY };
                    }
                }
                masks.add[0] = Some(array!(N, |I| &added[I * step..][..keys]));
            }
            _ => {
                let width = scores.len() / N;
                for (row, query) in scores.chunks_exact_mut(width).zip(queries) {
                    let (at, then) = (at(query), then(query));
                    for (k, x) in row[..keys].iter_mut().enumerate() {
                        let first = at + k * steps[0];
                        *x *= masks.scale;
                        match self.mask {
                            Mask::None | Mask::Causal => {}
                            Mask::Add(mask) => *x += mask[first],
                            Mask::Both(mask, second) => {
                                *x = *x + mask[first] + second[then + k * steps[1]];
                            }
                            Mask::Keep(mask) => {
                                *x += if mask[first] { 0.0 } else { f32::NEG_INFINITY };
                            }
                        }
                    }
                }
                masks.scale = 1.0;
            }
        }
        masks.apply(s, scores, keys)
    }

    /// Where the output of a head is; of bf16 counted in words.
    #[inline(always)]
    fn results(&self, head: usize) -> Results<'_> {
        let problem = &self.plan.problem;
        let stride = problem.strides.out[2];
        let first = problem.out(head) + self.queries.start * stride;
        match self.plan.bf16 {
            true => Results { c: self.out, first: first / 2, stride: stride / 2 },
            false => Results { c: self.out, first, stride },
        }
    }

    /// The results of one query.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // as `SharedMut::slice`, which it narrows
    fn row<'r>(&self, results: Results<'r>, query: usize) -> &'r mut [f32] {
        let at = results.at(query - self.queries.start);
        // SAFETY: no two rows overlap (`Problem::check`), this task alone has this head's query,
        // and the callers drop one row before they ask for the next.
        unsafe { results.c.slice(at..at + self.plan.problem.size.values) }
    }

    /// Brings finished results of some queries to the output, as bf16.
    #[inline(always)]
    fn round(&self, head: usize, queries: Range<usize>, results: Results<'_>) {
        let (first, size) = (queries.start - self.queries.start, self.plan.problem.size.values);
        let place = |r: Results<'_>| (r.c.as_mut_ptr().wrapping_add(r.at(first)), r.stride);
        let (x, y) = (place(results), place(self.results(head)));
        let size = [queries.len(), size];
        // SAFETY: rows of this task, as above: of results, and of the output half as many words.
        let rounded = unsafe { ToBf16::new(None, size, (x.0, x.1), y) };
        Pairs::convert(self.plan.products.target.isa, rounded);
    }
}

/// Where results of a head are, from the first query of the task on: in the output, or in memory of
/// the task's own from which they are rounded.
#[derive(Clone, Copy)]
struct Results<'a> {
    c: &'a SharedMut<'a, f32>,
    first: usize,
    stride: usize,
}

impl Results<'_> {
    /// Where the row of a query begins, counted from the first one of the task.
    #[inline(always)]
    fn at(self, query: usize) -> usize {
        self.first + query * self.stride
    }
}

/// Multiplies all elements.
#[inline(always)]
fn scale<S: Simd>(s: S, row: &mut [f32], factor: f32) {
    let factor = s.splat(factor);
    for at in (0..row.len()).step_by(S::LANES) {
        let n = (row.len() - at).min(S::LANES);
        let row = &mut row[at..];
        s.store_up_to(s.mul(s.load_up_to(row, n), factor), row, n);
    }
}

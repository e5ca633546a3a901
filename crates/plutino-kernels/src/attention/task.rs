//! The work of one task: a block of queries against all keys.

use super::{Attention, Head, Mask, Size};
use crate::gemm::tile::{self, Start, Tile, VECTORS};
use crate::gemm::{Pack, Strided};
use crate::math::exp_normal;
use crate::par::SharedMut;
use crate::simd::{Interleaved, Simd, Vectorized};
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
fn part<'a>(rest: &mut &'a mut [f32], n: usize) -> &'a mut [f32] {
    let (part, tail) = std::mem::take(rest).split_at_mut(n);
    *rest = tail;
    part
}

impl Vectorized for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut rest = std::mem::take(&mut self.scratch);
        let [qp, kp, vp, p, o, m, l] = self.plan.parts().map(|n| part(&mut rest, n));
        let Size { keys, depth, values, .. } = self.plan.problem.size;
        let (mr, nr) = (tile::rows::<S>(), VECTORS * S::LANES);
        let panels = self.queries.len().div_ceil(nr);
        for h in self.which.clone() {
            let head = &self.heads[h];
            let rows = self.plan.problem.strides;
            let q = Strided::left(
                self.q.get(head.q..).unwrap_or_default(),
                (self.plan.problem.size.queries, depth),
                (rows.q, 1),
            )
            .scaled(self.plan.problem.scale);
            for (i, out) in qp.chunks_exact_mut((depth * nr).max(1)).take(panels).enumerate() {
                q.pack(s, self.queries.start + i * nr, 0..depth, nr, out);
            }
            o.fill(0.0);
            m.fill(f32::NEG_INFINITY);
            l.fill(0.0);
            // Keys beyond the last query of the block are of no use to a causal mask.
            let end = match self.mask {
                Mask::Causal if self.weights.is_none() => keys.min(self.queries.end),
                _ => keys,
            };
            for k0 in (0..end).step_by(self.plan.block.1) {
                let block = k0..(k0 + self.plan.block.1).min(end);
                let k = Strided::left(
                    self.k.get(head.k..).unwrap_or_default(),
                    (keys, depth),
                    (rows.k, 1),
                );
                for (i, out) in kp.chunks_exact_mut((depth * mr).max(1)).enumerate() {
                    if i * mr < block.len() {
                        k.pack(s, block.start + i * mr, 0..depth, mr, out);
                    }
                }
                // Lanes are the dimensions of a value, the sum runs over keys.
                let v = Strided::left(
                    self.v.get(head.v..).unwrap_or_default(),
                    (values, keys),
                    (1, rows.v),
                );
                for (i, out) in vp.chunks_exact_mut(block.len() * mr).enumerate() {
                    if i * mr < values {
                        v.pack(s, i * mr, block.clone(), mr, out);
                    }
                }
                for panel in 0..panels {
                    let lanes = panel * nr..(panel + 1) * nr;
                    let first = self.queries.start + lanes.start;
                    let p = &mut p[..block.len() * nr];
                    let qp = &qp[lanes.start * depth..lanes.end * depth];
                    product(s, (block.len(), depth), kp, qp, false, p);
                    self.apply_mask(s, head, first, &block, p);
                    let (m, l) = (&mut m[lanes.clone()], &mut l[lanes.clone()]);
                    let o = &mut o[lanes.start * values..lanes.end * values];
                    // Lanes without a query, in whole vectors, are left alone.
                    let used = (self.queries.end - first).next_multiple_of(S::LANES).min(nr);
                    softmax_step(s, used, p, m, l, o);
                    product(s, (values, block.len()), vp, p, true, o);
                    if let Some((weights, at)) = self.weights {
                        let at = at + first * keys;
                        let rows = (self.queries.end - first).min(nr);
                        // SAFETY: these rows belong to this task alone.
                        let w = unsafe { weights.slice(at..at + rows * keys) };
                        add_weights(
                            p,
                            l,
                            w,
                            keys,
                            h == self.which.start,
                            1.0 / self.which.len() as f32,
                        );
                    }
                }
            }
            for (panel, o) in o.chunks_exact_mut((nr * values).max(1)).take(panels).enumerate() {
                self.store(s, h, panel * nr, o, l);
            }
        }
    }
}

/// C (rows x NR, dense) = or += A B for one panel of B; A in panels of MR rows.
#[inline(always)]
fn product<S: Simd>(
    s: S,
    (rows, depth): (usize, usize),
    a: &[f32],
    b: &[f32],
    add: bool,
    c: &mut [f32],
) {
    let (mr, nr) = (tile::rows::<S>(), VECTORS * S::LANES);
    assert!(a.len() >= rows.div_ceil(mr) * mr * depth && b.len() >= depth * nr);
    assert!(c.len() >= rows * nr);
    let c = c.as_mut_ptr();
    for row in (0..rows).step_by(mr) {
        let c = c.wrapping_add(row * nr);
        let tile = Tile {
            depth,
            a: a[row * depth..].as_ptr(),
            b: b.as_ptr(),
            b_panel: 0,
            ahead: (std::ptr::null(), 0),
            c,
            c_stride: nr,
            cols: nr,
            start: Start {
                row_bias: None,
                col_bias: None,
                add: add.then_some((c.cast_const(), nr)),
            },
            clamp: (f32::NEG_INFINITY, f32::INFINITY),
        };
        // SAFETY: whole panels of A, one panel of B and `rows` rows of C exist (asserted above).
        unsafe { tile::run(s, mr.min(rows - row), 1, &tile) };
    }
}

/// One step of the online softmax on the first `lanes` lanes of a panel of scores, which become weights relative to the
/// new maximum.
#[inline(always)]
fn softmax_step<S: Simd>(
    s: S,
    lanes: usize,
    p: &mut [f32],
    m: &mut [f32],
    l: &mut [f32],
    o: &mut [f32],
) {
    let nr = VECTORS * S::LANES;
    for j in (0..lanes).step_by(S::LANES) {
        let old = s.load(&m[j..]);
        let mut new = old;
        for row in p.chunks_exact(nr) {
            new = s.max(s.load(&row[j..]), new); // a NaN score leaves the maximum as it is
        }
        s.store(new, &mut m[j..]);
        // Nothing seen yet but -inf: any finite base gives exp(-inf) = 0.
        let base = s.select(s.eq(new, s.splat(f32::NEG_INFINITY)), s.zero(), new);
        let mut sum = s.zero();
        // Rows by fours, step by step for all of them.
        let mut fours = p.chunks_exact_mut(4 * nr);
        for four in &mut fours {
            let mut e = [s.zero(); 4];
            for (i, e) in e.iter_mut().enumerate() {
                *e = s.sub(s.load(&four[i * nr + j..]), base);
            }
            let e = exp_normal(Interleaved::<S, 4>(s), e);
            for (i, &e) in e.iter().enumerate() {
                s.store(e, &mut four[i * nr + j..]);
                sum = s.add(sum, e);
            }
        }
        for row in fours.into_remainder().chunks_exact_mut(nr) {
            let e = exp_normal(s, s.sub(s.load(&row[j..]), base));
            s.store(e, &mut row[j..]);
            sum = s.add(sum, e);
        }
        let first = s.eq(old, s.splat(f32::NEG_INFINITY));
        let shrink = s.select(first, s.zero(), exp_normal(s, s.sub(old, base)));
        s.store(s.fma(s.load(&l[j..]), shrink, sum), &mut l[j..]);
        for row in o.chunks_exact_mut(nr) {
            s.store(s.mul(s.load(&row[j..]), shrink), &mut row[j..]);
        }
    }
}

/// Adds one head's weights, divided by their sums, to the average. `p` is (keys, NR).
#[inline(always)]
fn add_weights(p: &[f32], l: &[f32], w: &mut [f32], keys: usize, first: bool, share: f32) {
    let nr = l.len();
    for (i, w) in w.chunks_exact_mut(keys).enumerate() {
        let scale = share / l[i];
        for (k, w) in w.iter_mut().enumerate() {
            let x = p[k * nr + i] * scale;
            *w = if first { x } else { *w + x };
        }
    }
}

impl Task<'_> {
    /// Masks a panel of scores: queries from `first` on, the keys of `block`.
    #[inline(always)]
    fn apply_mask<S: Simd>(
        &self,
        s: S,
        head: &Head,
        first: usize,
        block: &Range<usize>,
        p: &mut [f32],
    ) {
        let nr = VECTORS * S::LANES;
        let [row_step, key_step] = self.plan.problem.strides.mask;
        let lanes = (self.queries.end - first).min(nr);
        let at =
            |i: usize, k: usize| head.mask + (first + i) * row_step + (block.start + k) * key_step;
        match self.mask {
            Mask::None => {}
            Mask::Causal => {
                for i in 0..lanes {
                    let hidden = (first + i + 1).saturating_sub(block.start);
                    p.iter_mut()
                        .skip(hidden * nr + i)
                        .step_by(nr)
                        .for_each(|x| *x = f32::NEG_INFINITY);
                }
            }
            Mask::Add(mask) if row_step == 0 => {
                for (k, row) in p.chunks_exact_mut(nr).enumerate() {
                    let x = s.splat(mask[at(0, k)]);
                    for j in (0..nr).step_by(S::LANES) {
                        s.store(s.add(s.load(&row[j..]), x), &mut row[j..]);
                    }
                }
            }
            Mask::Add(mask) => {
                // Rows of the mask are columns here: eight by eight where its keys are neighbours.
                let keys = p.len() / nr;
                let whole = if key_step == 1 { keys - keys % 8 } else { 0 };
                let mut block = [0.0; 64];
                for i in (0..lanes).step_by(8) {
                    let rows = (lanes - i).min(8);
                    for k in (0..whole).step_by(8) {
                        let from = &mask[at(i, k)..];
                        assert!(from.len() >= (rows - 1) * row_step + 8);
                        // SAFETY: `from` is long enough (asserted); the block holds 7 * 8 + 8.
                        unsafe {
                            s.transpose_8(rows, from.as_ptr(), row_step, block.as_mut_ptr(), 8)
                        };
                        // All eight, and so vectors: lanes without a query may become anything.
                        let scores = p[k * nr..(k + 8) * nr].chunks_exact_mut(nr);
                        for (scores, add) in scores.zip(block.as_chunks::<8>().0) {
                            if let Some(scores) = scores[i..].first_chunk_mut::<8>() {
                                for (x, add) in scores.iter_mut().zip(add) {
                                    *x += add;
                                }
                            }
                        }
                    }
                    for k in whole..keys {
                        let scores = &mut p[k * nr + i..][..rows];
                        for (j, x) in scores.iter_mut().enumerate() {
                            *x += mask[at(i + j, k)];
                        }
                    }
                }
            }
            Mask::Keep(mask) => {
                for i in 0..lanes {
                    for (k, x) in p.iter_mut().skip(i).step_by(nr).enumerate() {
                        if !mask[at(i, k)] {
                            *x = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
    }

    /// Divides a panel of results by the sums and writes it, transposed.
    #[inline(always)]
    fn store<S: Simd>(&self, s: S, head: usize, lane: usize, o: &mut [f32], l: &[f32]) {
        let nr = VECTORS * S::LANES;
        let problem = &self.plan.problem;
        // Without any key a product is a sum of nothing.
        let unattended = s.splat(if problem.size.keys == 0 { 0.0 } else { problem.unattended });
        for j in (0..nr).step_by(S::LANES) {
            let sum = s.load(&l[lane + j..]);
            let factor = s.select(s.eq(sum, s.zero()), unattended, s.div(s.splat(1.0), sum));
            for row in o.chunks_exact_mut(nr) {
                s.store(s.mul(s.load(&row[j..]), factor), &mut row[j..]);
            }
        }
        let values = self.plan.problem.size.values;
        let first = self.queries.start + lane;
        let count = (self.queries.end - first).min(nr);
        let mut block = [0.0; 64];
        for q in (0..count).step_by(8) {
            let whole = values - values % 8;
            for v in (0..whole).step_by(8) {
                let from = &o[v * nr + q..];
                assert!(from.len() >= 7 * nr + 8);
                // SAFETY: `from` is long enough (asserted); the block holds 7 * 8 + 8.
                unsafe { s.transpose_8(8, from.as_ptr(), nr, block.as_mut_ptr(), 8) };
                for (i, row) in (q..count).zip(block.chunks_exact(8)) {
                    self.output_row(head, first + i)[v..v + 8].copy_from_slice(row);
                }
            }
            for i in q..count.min(q + 8) {
                for v in whole..values {
                    self.output_row(head, first + i)[v] = o[v * nr + i];
                }
            }
        }
    }

    /// The row of the output of one query of one head.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // as `SharedMut::slice`, which it narrows
    fn output_row(&self, head: usize, query: usize) -> &mut [f32] {
        let problem = &self.plan.problem;
        let at = problem.out(head) + query * problem.strides.out[2];
        // SAFETY: no two rows overlap (`Problem::check`), this task alone has this head's query, and the
        // callers drop one row before they ask for the next.
        unsafe { self.out.slice(at..at + problem.size.values) }
    }
}

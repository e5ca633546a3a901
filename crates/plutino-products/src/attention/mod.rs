//! Scaled dot-product attention: out = softmax(scale Q Kᵀ + mask) V, block by block.
//!
//! ```text
//! task: one head, a block of queries
//!   for each block of keys (their K and V fit in L2):
//!     pack Kᵀ (panels of NR keys), V (panels of NR elements of values)
//!     for some queries (their scores fit in L1), a row each:        keys ->
//!       S = Q Kᵀ           register tiles, MR queries x NR keys    +-----------+
//!       mask, running maximum m, P = exp(S - m), sum l             |     S     |  queries
//!       O = O exp(m_old - m) + P V                                 +-----------+
//!   O / l
//! ```
//! Q and P are read where they lie, as left operands (or become words of bf16, `products.rs`), and
//! O is the output itself: only K and V are packed, and only some rows of scores exist at a time
//! (online softmax: Milakov and Gimelshein 2018; Dao et al., FlashAttention, 2022).
//!
//! A query's result depends neither on its place in a block nor on the threads.

mod any;
mod products;
mod softmax;
mod task;
use crate::gemm::{MatrixUnit, Target, cost};
pub use any::attention_any;
use plutino_cpu::Isa;
use plutino_cpu::extent::disjoint;
use plutino_cpu::par::{Par, SharedMut};
use products::Products;
use task::Task;

/// Sizes of the attention of one head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of queries, L.
    pub queries: usize,
    /// Number of keys and values, S.
    pub keys: usize,
    /// Length of a query and of a key, E.
    pub depth: usize,
    /// Length of a value, Ev.
    pub values: usize,
}

/// How rows follow each other; inside a row the elements of one head are neighbours. In elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// From one query to the next.
    pub q: usize,
    /// From one key to the next.
    pub k: usize,
    /// From one value to the next.
    pub v: usize,
    /// In the mask: from one query, and from one key, to the next. 0 where all share a mask.
    pub mask: [usize; 2],
    /// The same of the second mask ([`Mask::Both`]).
    pub second: [usize; 2],
    /// In the output: from one group of heads, one head of a group, and one query to the next.
    pub out: [usize; 3],
}

/// Where the first elements of one head lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// In the queries.
    pub q: usize,
    /// In the keys.
    pub k: usize,
    /// In the values.
    pub v: usize,
    /// In the mask.
    pub mask: usize,
    /// In the second mask.
    pub second: usize,
}

/// What is done to the scores before the softmax.
#[derive(Debug, Clone, Copy)]
pub enum Mask<'a, T> {
    /// Nothing.
    None,
    /// Query i sees keys 0 to i only.
    Causal,
    /// Added.
    Add(&'a [T]),
    /// Added, the first one first: each with strides and places of its own.
    Both(&'a [T], &'a [T]),
    /// -inf is added where this is false, as PyTorch does: a score that is NaN or +inf becomes NaN.
    Keep(&'a [bool]),
}

/// The operands of one run.
#[derive(Debug)]
pub struct Operands<'a, T> {
    /// Queries.
    pub q: &'a [T],
    /// Keys.
    pub k: &'a [T],
    /// Values.
    pub v: &'a [T],
    /// Mask.
    pub mask: Mask<'a, T>,
    /// Output; as bf16, words of two ([`Attention::to_bf16`]).
    pub out: &'a mut [T],
    /// A second output where the plan asks for it: softmax(scale Q Kᵀ + mask), averaged over the
    /// heads of each group; dense (groups, L, S).
    pub weights: Option<&'a mut [T]>,
}

/// What to compute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Problem {
    /// Sizes of one head.
    pub size: Size,
    /// How rows follow each other.
    pub strides: Strides,
    /// Number of groups of heads: the batch.
    pub groups: usize,
    /// Heads in a group.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f64,
    /// What a query gets whose keys are all masked: 0 from PyTorch's
    /// `scaled_dot_product_attention`, NaN from a plain softmax.
    pub unattended: f32,
    /// Whether the weights are an output too.
    pub weights: bool,
}

impl Problem {
    /// Asserts that everything that is addressed exists, and that no output element has two places.
    ///
    /// # Panics
    /// Where that is not so.
    pub(crate) fn check<T>(&self, heads: &[Head], x: &Operands<'_, T>, bf16: bool) {
        let Size { queries, keys, depth, values } = self.size;
        let fits = |end: Option<usize>, len: usize| end.is_some_and(|end| end <= len);
        assert_eq!(Some(heads.len()), self.groups.checked_mul(self.heads), "number of heads");
        let (s, [mask, second]) = (&self.strides, x.mask.lens());
        let covers = |first: usize, [row, key]: [usize; 2], len: Option<usize>| {
            let mask_end = end(0, keys, key, 1).and_then(|width| end(first, queries, row, width));
            len.is_none_or(|len| fits(mask_end, len))
        };
        for h in heads {
            assert!(fits(end(h.q, queries, s.q, depth), x.q.len()), "too few queries");
            assert!(fits(end(h.k, keys, s.k, depth), x.k.len()), "too few keys");
            assert!(fits(end(h.v, keys, s.v, values), x.v.len()), "too few values");
            assert!(covers(h.mask, s.mask, mask), "mask too small");
            assert!(covers(h.second, s.second, second), "second mask too small");
        }
        let mut dims = [(self.groups, s.out[0]), (self.heads, s.out[1]), (queries, s.out[2])];
        let reach = disjoint(&mut dims, values);
        assert!(reach.is_some(), "output rows overlap");
        let words = |reach: usize| if bf16 { reach.div_ceil(2) } else { reach };
        assert!(fits(reach.map(words), x.out.len()), "output too short");
        assert_eq!(self.weights, x.weights.is_some(), "weights asked for, or not");
        if let Some(w) = &x.weights {
            let len = self.groups.checked_mul(queries).and_then(|n| n.checked_mul(keys));
            assert_eq!(Some(w.len()), len, "weights of another size");
        }
    }

    /// Where the output of a head begins.
    pub(crate) fn out(&self, head: usize) -> usize {
        head / self.heads * self.strides.out[0] + head % self.heads * self.strides.out[1]
    }
}

/// A planned attention in f32.
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    products: Products,
    problem: Problem,
    /// Queries of a task.
    queries: usize,
    /// Queries whose scores exist at a time.
    rows: usize,
    /// Keys of a block.
    keys: usize,
    /// Whether the output is bf16.
    bf16: bool,
}

impl Attention {
    /// Plans for this number of threads. `unit`: what multiplies bf16, where the products may be of
    /// them; those that it does not take are f32.
    pub fn new(target: Target, threads: usize, problem: Problem, unit: Option<MatrixUnit>) -> Self {
        let size = problem.size;
        let line = target.nr() * size_of::<f32>();
        // Packed keys and values in half of L2, a panel of values in half of L1.
        let per_key = size.depth.saturating_add(size.values).saturating_mul(size_of::<f32>());
        let by_l2 = target.machine.l2 / 2 / per_key.max(1);
        let by_l1 = target.machine.l1 / 2 / line;
        // The weights are final only once the sum over all keys is known.
        let keys = if problem.weights { usize::MAX } else { by_l2.min(by_l1).clamp(64, 1024) };
        let keys = keys.min(size.keys).max(1);
        let products = Products::new(target, unit, size.depth.max(keys));
        // Scores in the other half of L1.
        let by_l1 = target.machine.l1 / 2 / size_of::<f32>() / keys;
        let some = products.rows();
        let rows = (by_l1 / some * some).clamp(some, MOST_ROWS);
        // Few heads: cut the queries, so that every thread has some; each task packs K and V again.
        let heads = problem.groups.saturating_mul(if problem.weights { 1 } else { problem.heads });
        let tasks = if threads == 1 { 1 } else { (3 * threads).div_ceil(heads.max(1)) };
        let queries = size.queries.div_ceil(tasks).clamp(2 * ROWS, LONGEST_TASK).min(size.queries);
        let queries = queries.max(1).next_multiple_of(some);
        Self { products, problem, queries, rows: rows.min(queries), keys, bf16: false }
    }

    /// The same with an output that becomes bf16, in words of two: each number the nearest. None
    /// where rows do not have whole words.
    pub fn to_bf16(self) -> Option<Self> {
        let Problem { size, strides, .. } = self.problem;
        let whole = [size.values].iter().chain(&strides.out).all(|n| n.is_multiple_of(2));
        whole.then_some(Self { bf16: true, ..self })
    }

    /// What computes the products: a unit that multiplies bf16, or an instruction set.
    pub fn by(&self) -> &dyn std::fmt::Display {
        match &self.products.unit {
            Some(unit) => unit,
            None => &self.products.target.isa,
        }
    }

    /// f32 elements of scratch memory that [`Attention::run`] needs on `threads` threads.
    pub fn scratch(&self, threads: usize) -> usize {
        self.parts().iter().fold(0usize, |a, &p| a.saturating_add(p)).saturating_mul(threads)
    }

    /// Elements of a worker's memory: packed K and V; P, m, l and the factors of the results so
    /// far; what is added to rows of scores; a panel and rows that become words.
    fn parts(&self) -> [usize; 10] {
        let Size { depth, values, .. } = self.problem.size;
        let lanes = self.products.target.isa.lanes();
        let up = |n: usize, to: usize| n.div_ceil(to).saturating_mul(to);
        let [panel, words] = self.products.work(self.rows, depth.max(self.keys));
        [
            self.products.panels(self.keys, depth),
            self.products.panels(values, self.keys),
            self.rows.saturating_mul(up(self.keys, lanes)),
            self.queries,
            self.queries,
            self.rows,
            self.keys.saturating_mul(FOUR),
            panel,
            words,
            if self.bf16 { self.queries.saturating_mul(self.row_of_sums()) } else { 0 },
        ]
        .map(|n| up(n, 16))
    }

    /// Elements from one row of results that become bf16 to the next.
    fn row_of_sums(&self) -> usize {
        self.problem.size.values.div_ceil(16).saturating_mul(16)
    }

    /// Computes all heads, group by group.
    ///
    /// # Panics
    /// Where an operand or the scratch memory is too short for what the plan and the heads say, or
    /// the strides of the output let rows overlap.
    pub fn run(&self, par: &Par, heads: &[Head], x: Operands<'_, f32>, scratch: &mut [f32]) {
        let Problem { size: Size { queries, keys, .. }, .. } = self.problem;
        assert!(scratch.len() >= self.scratch(par.threads()), "too little scratch memory");
        self.problem.check(heads, &x, self.bf16);
        if queries == 0 || heads.is_empty() {
            return;
        }
        // Heads whose weights are averaged are one task; others are on their own.
        let together = if self.problem.weights { self.problem.heads } else { 1 };
        let worker_part: usize = self.parts().iter().sum();
        let (scratch, out) = (SharedMut::new(scratch), SharedMut::new(x.out));
        let weights = x.weights.map(SharedMut::new);
        let blocks = queries.div_ceil(self.queries);
        par.run_as(heads.len() / together * blocks, |worker, task| {
            let (i, q0) = (task / blocks, task % blocks * self.queries);
            // SAFETY: no two tasks run under one worker's number at a time.
            let mine = unsafe { scratch.slice(worker * worker_part..(worker + 1) * worker_part) };
            self.products.target.isa.run(Task {
                plan: self,
                heads,
                which: i * together..(i + 1) * together,
                queries: q0..(q0 + self.queries).min(queries),
                q: x.q,
                k: x.k,
                v: x.v,
                mask: x.mask,
                out: &out,
                weights: weights.as_ref().map(|w| (w, i * queries * keys)),
                scratch: mine,
            });
        });
    }
}

/// One past the last element of `n` runs of `len` elements, `stride` apart; 0 where there are none.
fn end(first: usize, n: usize, stride: usize, len: usize) -> Option<usize> {
    match n.checked_sub(1) {
        Some(last) if len > 0 => last.checked_mul(stride)?.checked_add(first)?.checked_add(len),
        _ => Some(0),
    }
}

/// Whether attention of heads of this size is estimated to take less time on a unit than by
/// multiply-adds of f32.
pub fn pays(unit: MatrixUnit, isa: Isa, size: Size) -> bool {
    let Size { queries, keys, depth, values } = size;
    queries >= FEWEST_QUERIES
        && [[queries, depth, keys], [queries, keys, values]]
            .into_iter()
            .all(|sizes| cost::pays(unit, isa, sizes))
}

impl<T> Mask<'_, T> {
    /// Numbers of elements of the mask and the second one, where there is a tensor.
    fn lens(&self) -> [Option<usize>; 2] {
        match self {
            Self::None | Self::Causal => [None, None],
            Self::Add(m) => [Some(m.len()), None],
            Self::Both(m, second) => [Some(m.len()), Some(second.len())],
            Self::Keep(m) => [Some(m.len()), None],
        }
    }
}

/// Queries of a task at most: keeps a worker's memory small.
const LONGEST_TASK: usize = 512;
/// Rows of scores come in a multiple of this: of the rows of all register tiles, and of [`FOUR`].
const ROWS: usize = 12;
/// Queries that are worth making words of a head's keys and values. (With pairs, of 512 keys of 64
/// numbers: 4 queries 1.11 of the time of f32, 6 0.98, 8 0.95, 12 0.89, 24 0.80, 48 0.71; Zen 4,
/// 2026-11-27.)
const FEWEST_QUERIES: usize = 8;
/// Rows of scores at most.
const MOST_ROWS: usize = 96;
/// Rows whose exponentials are computed step by step together.
const FOUR: usize = 4;

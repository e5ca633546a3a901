//! Where everything lies in scratch memory, and the steps of a run.

use super::masks::{self, MaskSum, Place};
use super::*;
use crate::matrix::linear::bf16_of;
use crate::transformer::attention;
use plutino_kernels::Isa;
use plutino_kernels::gemm::Bf16Matrices;

/// Plans the products and the memory between them.
pub(super) fn plan(op: &MultiheadAttention, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
    let whole = op.sizes(cx.inputs)?;
    let e = op.embed;
    let (s, chunks) = chunk(op, &whole, cx.isa);
    let q_rows = s.batch.saturating_mul(s.queries);

    let mut memory = Memory::default();
    let (mut products, mut places) = (Vec::new(), Vec::new());
    for projected in op.projections(&s) {
        let Projected { input, m, weight, rows, covers } = projected;
        let bias = op.in_bias.as_ref().map(|bias| (bias, covers.start));
        let bf16 = Bf16Matrices { y: false, ..bf16_of(cx, input)? };
        let affine = Affine::new(cx, m, weight, rows, bias)?.with_bf16(bf16)?;
        let at = memory.take(affine.len());
        products.push((leaf(cx.inputs, input), at, affine));
        places.push((covers, at));
    }
    let rows = ProjectedRows::new(op, &s, &places, &mut memory)?;
    let row = |w: &Weight| w.to_f32().map(|row| row.to_vec());
    let bias_kv =
        op.bias_kv.as_ref().map(|(k, v)| Ok::<_, PlanError>((row(k)?, row(v)?))).transpose()?;
    let mask = MaskSum::plan::<f32>(op, &whole, cx, |len| memory.take(len))?;
    let (problem, mut heads) = rows.heads(op, (&s, &whole), mask.as_ref())?;
    if let Some(known) = mask.as_ref().and_then(MaskSum::known) {
        let (size, steps) = (problem.size, problem.strides.mask);
        attention::masks::share(known, size, steps, &mut heads, op.heads, |head| &mut head.mask);
    }
    // What attention makes is bf16 where the last product would round it anyway.
    let bias = op.out.1.as_ref().map(|bias| (bias, 0));
    let out = Affine::new(cx, q_rows, &op.out.0, 0..e, bias)?;
    let attention = planned(&cx.setting, problem);
    let rounded = attention.to_bf16().filter(|_| out.bf16_matrices().x);
    let bf16 = Bf16Matrices { x: rounded.is_some(), y: false };
    let out = out.with_bf16(bf16)?;
    let mixed = memory.take(if bf16.x { out.len() / 2 } else { out.len() });
    let attention = rounded.unwrap_or(attention);
    let work = products.iter().map(|(_, _, a)| a.scratch());
    let work = work.chain([attention.scratch(cx.threads), out.scratch()]).max().unwrap_or(0);
    let scratch = memory.end.saturating_add(work).saturating_mul(size_of::<f32>());
    let residual = op.add.then(|| leaf(cx.inputs, cx.inputs.len().saturating_sub(1)));
    let kernel = Run {
        name: format!("attention.multihead.{}", attention.by()),
        sizes: s,
        embed: e,
        chunks,
        products,
        rows,
        bias_kv,
        mask,
        heads,
        attention,
        weights: op.weights != Weights::No,
        mixed,
        out,
        residual,
        used: memory.end,
    };
    Ok(Planned::new(kernel).with_scratch(scratch))
}

/// What a chunk of the batch has, and how many there are.
pub(super) fn chunk(op: &MultiheadAttention, whole: &Sizes, isa: Isa) -> (Sizes, usize) {
    let chunks = chunks(op, whole, Target::this(isa).machine.l2);
    (Sizes { batch: whole.batch / chunks, ..*whole }, chunks)
}

/// Chunks of equal size that the batch is cut into, so that what lies between the products of one
/// stays in the second-level cache. (The 64 windows of Swin-T's first stage make 5 MB.) Each chunk
/// reads all weights, so it is not smaller than they are. The same for any number of threads, which
/// share each chunk. Where weights of heads are an output, a chunk holds what heads lie side by
/// side in.
fn chunks(op: &MultiheadAttention, s: &Sizes, cache: usize) -> usize {
    // Queries, keys, values, and what attention makes of them; four matrices.
    let positions = s.keys.saturating_add(s.queries).saturating_mul(2);
    let sequence = positions.saturating_mul(op.embed).saturating_mul(size_of::<f32>());
    let weights = op.embed.saturating_mul(op.embed).saturating_mul(4 * size_of::<f32>());
    let most = (cache / 4 * 3).max(weights);
    let fits = |&chunks: &usize| {
        s.batch.is_multiple_of(chunks) && (s.batch / chunks).saturating_mul(sequence) <= most
    };
    let apart = s.batch > 1 && s.batch_first && s.all_keys == s.keys;
    match op.weights {
        // That is a row of one sequence, or of all, where positions come first.
        Weights::Heads if s.batch_first => s.batch.max(1),
        Weights::No if apart => (1..=s.batch).find(fits).unwrap_or(s.batch),
        _ => 1,
    }
}

/// Hands out scratch memory, by cache lines.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) end: usize,
}

impl Memory {
    pub(super) fn take(&mut self, len: usize) -> usize {
        let at = self.end;
        self.end = at.saturating_add(len.div_ceil(16).saturating_mul(16));
        at
    }
}

/// Projected rows: `width` elements apart, the first at `at`.
#[derive(Debug, Clone, Copy)]
struct Part {
    at: usize,
    width: usize,
}

/// Where queries, keys and values are.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProjectedRows {
    q: Part,
    kv: (Part, Part),
    /// Keys and values with those that are added, where there are any.
    extended: Option<(Part, Part)>,
}

impl ProjectedRows {
    /// Of products that cover these columns from these elements on.
    pub(super) fn new(
        op: &MultiheadAttention,
        s: &Sizes,
        places: &[(Range<usize>, usize)],
        memory: &mut Memory,
    ) -> Result<Self, PlanError> {
        let e = op.embed;
        // Where the columns from `first` on are, of those of queries, keys and values.
        let part = |first: usize| {
            let found = places.iter().find(|(covers, _)| covers.contains(&first) || e == 0);
            let missing = || PlanError::Unsupported("columns that nobody projects".into());
            let (covers, at) = found.ok_or_else(missing)?;
            Ok::<_, PlanError>(Part { at: at + first - covers.start, width: covers.len() })
        };
        let (q, kv) = (part(0)?, (part(e)?, part(2 * e)?));
        let extended = (s.all_keys > s.keys).then(|| {
            let rows = s.batch.saturating_mul(s.all_keys);
            let mut part = || Part { at: memory.take(rows.saturating_mul(e)), width: e };
            (part(), part())
        });
        Ok(Self { q, kv, extended })
    }

    /// The problem of a chunk, and the heads of all of them.
    pub(super) fn heads(
        &self,
        op: &MultiheadAttention,
        (s, whole): (&Sizes, &Sizes),
        mask: Option<&MaskSum>,
    ) -> Result<(Problem, Vec<Head>), PlanError> {
        let (q, (k, v)) = (self.q, self.extended.unwrap_or(self.kv));
        let [q_batch, q_row] = s.steps(s.queries, q.width);
        let [k_batch, k_row] = s.steps(s.all_keys, k.width);
        let [v_batch, v_row] = s.steps(s.all_keys, v.width);
        let mut problem = op.problem(s, q_row, k_row, v_row);
        if let Some(mask) = mask {
            problem.strides.mask = mask.steps();
        }
        let depth = op.embed / op.heads;
        let mut heads = alloc::list(whole.batch.saturating_mul(op.heads))?;
        for sequence in 0..whole.batch {
            let n = sequence % s.batch;
            for h in 0..op.heads {
                heads.push(Head {
                    q: q.at + n * q_batch + h * depth,
                    k: k.at + n * k_batch + h * depth,
                    v: v.at + n * v_batch + h * depth,
                    mask: mask.map_or(0, |m| m.head(sequence, h)),
                    second: 0,
                });
            }
        }
        Ok((problem, heads))
    }

    /// Copies keys and values to where there is room for those that are added, and adds them: a row
    /// of each, where there is one, and zeros.
    pub(super) fn extend<T: Copy + Default>(
        &self,
        s: &Sizes,
        added: Option<&(Vec<T>, Vec<T>)>,
        memory: &mut [T],
    ) {
        let Some((k_out, v_out)) = self.extended else { return };
        let width = k_out.width;
        let zeros = vec![T::default(); width]; // bounded: as many as weights
        for (from, to, extra) in
            [(self.kv.0, k_out, added.map(|b| &b.0)), (self.kv.1, v_out, added.map(|b| &b.1))]
        {
            let [from_batch, from_row] = s.steps(s.keys, from.width);
            let [to_batch, to_row] = s.steps(s.all_keys, to.width);
            for n in 0..s.batch {
                for i in 0..s.keys {
                    let source = from.at + n * from_batch + i * from_row;
                    let to = to.at + n * to_batch + i * to_row;
                    memory.copy_within(source..source + width, to);
                }
                let added = extra.into_iter().chain(std::iter::repeat(&zeros));
                for (i, row) in (s.keys..s.all_keys).zip(added) {
                    let at = to.at + n * to_batch + i * to_row;
                    memory[at..at + width].copy_from_slice(row);
                }
            }
        }
    }
}

struct Run {
    name: String,
    /// Of a chunk of the batch.
    sizes: Sizes,
    embed: usize,
    /// Chunks that are computed one after the other.
    chunks: usize,
    /// Input leaf, place of the result, product.
    products: Vec<(usize, usize, Affine)>,
    rows: ProjectedRows,
    bias_kv: Option<(Vec<f32>, Vec<f32>)>,
    mask: Option<MaskSum>,
    /// Of all chunks.
    heads: Vec<Head>,
    attention: Attention,
    weights: bool,
    /// Place of what attention yields.
    mixed: usize,
    out: Affine,
    residual: Option<usize>,
    /// Scratch memory before the work space of the products.
    used: usize,
}

impl Kernel for Run {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let scratch = cx.take_scratch::<f32>()?;
        let (memory, work) = scratch.split_at_mut(self.used.min(scratch.len()));
        if let Some(sum) = &self.mask
            && let Place::Scratch(at) = sum.place
        {
            sum.add_up::<f32>(&cx.inputs, &mut memory[at..])?;
        }
        let mut out = cx.outputs.take::<f32>(0)?;
        let mut weights = if self.weights { Some(cx.outputs.take::<f32>(1)?) } else { None };
        let len = out.len() / self.chunks;
        let weights_len = weights.as_ref().map_or(0, |w| w.len() / self.chunks);
        for chunk in 0..self.chunks {
            let part = out.split_off_mut(..len).unwrap_or_default();
            let weights = weights.as_mut().and_then(|w| w.split_off_mut(..weights_len));
            self.chunk(cx, chunk, part, weights, memory, work)?;
        }
        Ok(())
    }
}

impl Run {
    /// Computes one chunk of the batch.
    fn chunk(
        &self,
        cx: &RunCx<'_>,
        chunk: usize,
        out: &mut [f32],
        weights: Option<&mut [f32]>,
        memory: &mut [f32],
        work: &mut [f32],
    ) -> Result<(), RunError> {
        let input = |leaf: usize| -> Result<&[f32], RunError> {
            let all = cx.inputs.get::<f32>(leaf)?;
            let len = all.len() / self.chunks;
            Ok(&all[chunk * len..(chunk + 1) * len])
        };
        for (leaf, at, product) in &self.products {
            let (x, out) = (input(*leaf)?, &mut memory[*at..]);
            let width = product.columns();
            product.run(cx.par, x, out, width, None, work)?;
        }
        self.rows.extend(&self.sizes, self.bias_kv.as_ref(), memory);
        let (before, mixed) = memory.split_at_mut(self.mixed);
        let mask = masks::read(self.mask.as_ref(), &cx.inputs, before)?;
        let count = self.heads.len() / self.chunks;
        let heads = &self.heads[chunk * count..(chunk + 1) * count];
        let x = Operands { q: before, k: before, v: before, mask, out: mixed, weights };
        self.attention.run(cx.par, heads, x, work);
        let residual = self.residual.map(input).transpose()?;
        self.out.run(cx.par, mixed, out, self.embed, residual, work)
    }
}

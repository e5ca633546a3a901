//! Scaled dot-product attention: `F.scaled_dot_product_attention`, and attention that a model
//! spells out ([`AttentionPattern`]).

pub(crate) mod masks;
mod shared;

use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::{Geometry, invalid};
use crate::support::several::several;
use crate::{
    Bf16Support, BuildError, BuildProblem, Cost, Inputs, Kernel, LayoutCx, Neighbour, NodeReader,
    Operator, PlanCx, PlanError, Planned, Room, RunCx, RunError, Setting, ShapeError, TensorValue,
    ValueSpec, register_op,
};
use plutino_kernels::attention::attention_any;
use plutino_kernels::attention::{Attention, Head, Mask, Operands, Problem, Size, Strides, pays};
use plutino_kernels::for_floats;
use plutino_kernels::gemm::{MatrixUnit, Target};
use plutino_kernels::number::Float;
use plutino_tensor::{DType, Layout, Shape, TensorSpec, alloc};
use smallvec::SmallVec;

/// <https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html>
#[derive(Debug, Clone)]
struct ScaledDotProduct {
    query: usize,
    key: usize,
    value: usize,
    masks: Vec<ScoreMask>,
    causal: bool,
    /// None: 1 / sqrt(E).
    scale: Option<f64>,
    /// Whether a key's head serves several heads of queries.
    grouped: bool,
    orders: Orders,
    /// What a query gets whose keys are all hidden.
    unattended: f32,
}

/// In which order dimensions are read and written; none where as they come.
#[derive(Debug, Clone, Default)]
struct Orders {
    /// Those of query, key and value.
    read: [Option<Vec<usize>>; 3],
    /// Those of (..., L, Ev), in the order in which the result has them.
    write: Option<Vec<usize>>,
}

/// What is added to the scores, or hides them.
#[derive(Debug, Clone)]
struct ScoreMask {
    input: usize,
    /// The batch dimensions that the scores have when it is added; none where as they come.
    batch: Option<Vec<usize>>,
}

/// Attention as models write it out, `softmax(scale q kᵀ + mask) v`, with what is permuted before
/// and after. Computed by the kernel of `F.scaled_dot_product_attention`; a query whose keys are
/// all masked gets NaN, as it does from the softmax.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionPattern {
    /// The orders of dimensions in which the inputs 0, 1 and 2 are (..., L, E), (..., S, E), (...,
    /// S, Ev).
    pub read: [Option<Vec<usize>>; 3],
    /// What the scores are multiplied with.
    pub scale: f64,
    /// What is added to them then, one after the other: the inputs from 3 on, as many as there are
    /// members, [`AttentionPattern::MOST_MASKS`] at most. Where the scores (..., L, S) are viewed
    /// with other batch dimensions before, these; they are as many matrices in the same order.
    pub masks: Vec<Option<Vec<usize>>>,
    /// The order in which the result has the dimensions of (..., L, Ev).
    pub write: Option<Vec<usize>>,
}

impl AttentionPattern {
    /// Masks that one kernel adds.
    pub const MOST_MASKS: usize = 2;

    /// The operator that computes the pattern.
    pub fn into_operator(self) -> Box<dyn Operator> {
        Box::new(ScaledDotProduct {
            query: 0,
            key: 1,
            value: 2,
            masks: (3..).zip(self.masks).map(|(input, batch)| ScoreMask { input, batch }).collect(),
            causal: false,
            scale: Some(self.scale),
            grouped: false,
            orders: Orders { read: self.read, write: self.write },
            unattended: f32::NAN,
        })
    }
}

fn scaled_dot_product(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (query, key) = (r.required_input("query")?, r.required_input("key")?);
    let value = r.required_input("value")?;
    let mask = if r.has("attn_mask") {
        r.optional::<i64>("attn_mask").map_err(|_| r.bad("attn_mask", "None, or an input"))?;
        None
    } else {
        r.input("attn_mask")
    };
    if r.or("dropout_p", 0.0)? != 0.0 {
        return Err(r.bad("dropout_p", "0: plutino only infers"));
    }
    let causal = r.or("is_causal", false)?;
    if causal && mask.is_some() {
        return Err(r.bad("is_causal", "False where there is an attn_mask"));
    }
    let (scale, grouped) = (r.optional("scale")?, r.or("enable_gqa", false)?);
    Ok(Box::new(ScaledDotProduct {
        query,
        key,
        value,
        masks: mask.into_iter().map(|input| ScoreMask { input, batch: None }).collect(),
        causal,
        scale,
        grouped,
        orders: Orders::default(),
        unattended: 0.0,
    }))
}
register_op!(scaled_dot_product => "F.scaled_dot_product_attention");

/// The native functions that return more than the result, none of which is computed: the node must
/// not use it.
fn native(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let _: Option<i64> = r.optional("dropout_mask")?;
    let attention = scaled_dot_product(r)?;
    let [query, key] = [r.first_use(0), r.first_use(1)];
    let kind = r.kind();
    match r.output_count() {
        1 => Ok(attention),
        2 if !r.is_read(1) => {
            let weights = kind.ends_with("_math");
            Ok(several("attention", vec![attention, Box::new(Unread { query, key, weights })]))
        }
        2 => Err(r.error(BuildProblem::Invalid("its second output is not computed".into()))),
        found => Err(r.error(BuildProblem::Outputs { expected: "1 or 2".into(), found })),
    }
}
register_op!(native => "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_attention_math");

/// The second result of a native function, which nobody reads: NaN.
#[derive(Debug)]
struct Unread {
    query: usize,
    key: usize,
    /// Whether it would be the weights of attention, not the logarithms of their sums.
    weights: bool,
}

impl Operator for Unread {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (q, k) = (TensorValue::at(inputs, self.query)?, TensorValue::at(inputs, self.key)?);
        let lead = q.shape().iter().copied().take(q.shape().rank().saturating_sub(1));
        let keys = k.shape().iter().rev().nth(1).copied().filter(|_| self.weights);
        let shape: Shape = lead.chain(keys).collect();
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(q.dtype(), shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let dtype = TensorValue::at(cx.inputs, self.query)?.dtype();
        for_floats!(dtype,
            T => Ok(Planned::new(Nan::<T>(std::marker::PhantomData))),
            _ => Err(PlanError::Unsupported(format!("attention of {dtype}"))),
        )
    }
}

struct Nan<T>(std::marker::PhantomData<T>);

impl<T: Float> Kernel for Nan<T> {
    fn name(&self) -> &str {
        "not_a_number"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        cx.outputs.take::<T>(0)?.fill(T::narrow(f64::NAN));
        Ok(())
    }
}

/// Everything about one call that the shapes decide.
struct Call {
    dtype: DType,
    /// Batch dimensions, then L and Ev.
    output: Shape,
    problem: Problem,
    heads: Vec<Head>,
}

impl ScaledDotProduct {
    fn call(&self, inputs: &[ValueSpec]) -> Result<Call, ShapeError> {
        self.call_with_room(inputs, &[])
    }

    fn call_with_room(&self, inputs: &[ValueSpec], rooms: &[Room]) -> Result<Call, ShapeError> {
        let spec = |i: usize| TensorValue::at(inputs, i).map(|t| &t.spec);
        let [q, k, v] = [spec(self.query)?, spec(self.key)?, spec(self.value)?];
        for (input, t) in [(self.query, q), (self.key, k), (self.value, v)] {
            if t.shape.rank() < 2 {
                let found = t.shape.clone();
                return Err(ShapeError::Rank { input, expected: "at least 2".into(), found });
            }
            if !t.dtype.is_float() || t.dtype != q.dtype {
                let expected =
                    if q.dtype.is_float() { q.dtype.to_string() } else { "a float".into() };
                return Err(ShapeError::DType { input, expected, found: t.dtype });
            }
        }
        let [q_order, k_order, v_order] = &self.orders.read;
        let room = |input| Room::of(rooms, input);
        let qm = Matrices::new(q, q_order, room(self.query))?;
        let km = Matrices::new(k, k_order, room(self.key))?;
        let vm = Matrices::new(v, v_order, room(self.value))?;
        let ([queries, depth], [keys, values]) = (qm.size, vm.size);
        if km.size != [keys, depth] {
            return Err(invalid(format!(
                "query {q}, key {k} and value {v} do not fit: (..., L, E), (..., S, E), (..., S, Ev)"
            )));
        }
        let (batch, repeat) = self.batch(&qm.batch, &km.batch, &vm.batch)?;
        let count = batch.checked_numel()?;
        let mut logical = batch.clone();
        logical.push(queries);
        logical.push(values);
        logical.checked_numel()?;
        let (output, groups, out) = written(&logical, count, self.orders.write.as_deref())?;

        let (qs, ks) = (qm.steps(&batch, 1), km.steps(&batch, repeat[0]));
        let vs = vm.steps(&batch, repeat[1]);
        let [mask, second] = self.added(inputs, &batch, [queries, keys], q.dtype)?;
        let mut heads = alloc::list(count)?;
        for head in 0..count {
            heads.push(Head {
                q: place(&batch, &qs, head),
                k: place(&batch, &ks, head),
                v: place(&batch, &vs, head),
                mask: place(&mask.batch, &mask.steps, head),
                second: place(&second.batch, &second.steps, head),
            });
        }
        let size = Size { queries, keys, depth, values };
        let strides =
            Strides { q: qm.row, k: km.row, v: vm.row, mask: mask.rows, second: second.rows, out };
        let problem = Problem {
            size,
            strides,
            groups,
            heads: count.checked_div(groups).unwrap_or(1),
            // Without depth scores are sums of nothing, which no factor changes.
            scale: self.scale.unwrap_or_else(|| (depth.max(1) as f64).sqrt().recip()),
            unattended: self.unattended,
            weights: false,
        };
        Ok(Call { dtype: q.dtype, output, problem, heads })
    }

    fn is_mask(&self, input: usize) -> bool {
        self.masks.iter().any(|mask| mask.input == input)
    }

    /// How what is added to the scores is read.
    fn added(
        &self,
        inputs: &[ValueSpec],
        batch: &Shape,
        [queries, keys]: [usize; 2],
        dtype: DType,
    ) -> Result<[Added; AttentionPattern::MOST_MASKS], ShapeError> {
        let mut added = [Added::default(), Added::default()];
        if self.masks.len() > added.len() {
            return Err(invalid(format!("{} masks: {} at most", self.masks.len(), added.len())));
        }
        let heads = batch.checked_numel()?;
        for (mask, added) in self.masks.iter().zip(&mut added) {
            let spec = &TensorValue::at(inputs, mask.input)?.spec;
            if self.masks.len() > 1 && spec.dtype != dtype {
                let (expected, found) = (dtype.to_string(), spec.dtype);
                return Err(ShapeError::DType { input: mask.input, expected, found });
            }
            let batch = mask.batch.as_deref().map_or_else(|| batch.clone(), Shape::from);
            if batch.checked_numel()? != heads {
                return Err(invalid(format!("{heads} matrices of scores viewed as {batch}")));
            }
            let mut scores = batch.clone();
            scores.push(queries);
            scores.push(keys);
            scores.checked_numel()?;
            let strides = mask_strides(mask.input, spec, dtype, &scores)?;
            let (steps, rows) = strides.split_at(batch.rank());
            let steps = steps.iter().map(|&step| (step, 1)).collect();
            *added = Added { batch, steps, rows: [rows[0], rows[1]] };
        }
        Ok(added)
    }

    /// The common batch dimensions, and how many heads of queries share a head of keys, and of
    /// values.
    fn batch(&self, q: &Shape, k: &Shape, v: &Shape) -> Result<(Shape, [usize; 2]), ShapeError> {
        if !self.grouped {
            return Ok((q.broadcast(k)?.broadcast(v)?, [1, 1]));
        }
        let unsuited = || invalid(format!("batch dimensions {q}, {k} and {v} cannot be grouped"));
        let heads = *q.last().ok_or_else(unsuited)?;
        let mut repeats = [1, 1];
        let mut batch = q.clone();
        for (t, repeat) in [k, v].into_iter().zip(&mut repeats) {
            let own = *t.last().filter(|&&n| n > 0).ok_or_else(unsuited)?;
            if heads % own != 0 {
                return Err(invalid(format!(
                    "{heads} heads of queries cannot share {own} heads of keys"
                )));
            }
            *repeat = heads / own;
            let mut wide = t.clone();
            if let Some(last) = wide.last_mut() {
                *last = heads;
            }
            batch = batch.broadcast(&wide)?;
        }
        Ok((batch, repeats))
    }
}

/// An operand as matrices, after its dimensions were put in order.
struct Matrices {
    batch: Shape,
    /// Element strides of the batch dimensions.
    strides: Steps,
    /// Rows, and elements of a row, which are neighbours.
    size: [usize; 2],
    /// Elements from one row to the next.
    row: usize,
}

type Steps = SmallVec<[usize; 4]>;

/// For each dimension of a batch: elements from one index to the next, and how many indices share
/// them.
type BatchSteps = SmallVec<[(usize, usize); 4]>;

/// How a mask is read; the default is that of none.
#[derive(Default)]
struct Added {
    /// The batch dimensions of the scores that it is added to, and its steps in them.
    batch: Shape,
    steps: BatchSteps,
    /// Elements from one query, and from one key, to the next.
    rows: [usize; 2],
}

/// Where the matrix of this number lies, in a batch of these dimensions.
fn place(batch: &[usize], steps: &[(usize, usize)], number: usize) -> usize {
    let (mut rest, mut at) = (number, 0);
    for (&len, &(step, repeat)) in batch.iter().zip(steps).rev() {
        at += rest % len / repeat * step; // a batch that has matrices has no dimension of size 0
        rest /= len;
    }
    at
}

impl Matrices {
    /// Of a tensor of rank 2 at least.
    fn new(
        spec: &TensorSpec,
        order: &Option<Vec<usize>>,
        room: Option<Room>,
    ) -> Result<Self, ShapeError> {
        let mut dense = Geometry::dense(&spec.shape);
        if let Some(Room { dim, capacity, .. }) = room {
            let mut whole = spec.shape.clone();
            let size = whole.get_mut(dim).ok_or_else(|| invalid("room in no dimension"))?;
            *size = capacity.max(*size);
            whole.checked_numel()?;
            dense = Geometry { shape: spec.shape.clone(), ..Geometry::dense(&whole) };
        }
        let x = match order {
            Some(order) => dense.permute(&checked_order(order, dense.shape.rank())?),
            None => dense,
        };
        let (batch, matrix) = x.shape.split_at(x.shape.rank() - 2);
        let strides: Steps = x.strides.iter().map(|&s| s as usize).collect();
        let (strides, [row, column]) = (
            SmallVec::from_slice(&strides[..batch.len()]),
            [strides[batch.len()], strides[batch.len() + 1]],
        );
        if matrix[1] > 1 && column != 1 {
            return Err(invalid(format!("the rows of {spec} in order {order:?} are not dense")));
        }
        Ok(Self { batch: Shape::from(batch), strides, size: [matrix[0], matrix[1]], row })
    }

    /// The steps in a batch that this one's is broadcast to, and where so many indices of its last
    /// dimension share a matrix.
    fn steps(&self, batch: &Shape, repeat: usize) -> BatchSteps {
        let lead = batch.rank() - self.batch.rank();
        let step = |d: usize| match d.checked_sub(lead) {
            Some(d) if self.batch[d] > 1 => self.strides[d],
            _ => 0,
        };
        (0..batch.rank())
            .map(|d| (step(d), if d + 1 == batch.rank() { repeat } else { 1 }))
            .collect()
    }
}

/// The order, if it is one of `rank` dimensions.
fn checked_order(order: &[usize], rank: usize) -> Result<Vec<usize>, ShapeError> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if sorted.iter().copied().ne(0..rank) {
        return Err(invalid(format!("{order:?} does not order {rank} dimensions")));
    }
    Ok(order.to_vec())
}

/// The shape of the result whose dimensions, in order, are (..., L, Ev); the groups of heads; and
/// the steps from one group, head and query to the next.
fn written(
    logical: &Shape,
    count: usize,
    order: Option<&[usize]>,
) -> Result<(Shape, usize, [usize; 3]), ShapeError> {
    let rank = logical.rank();
    let (queries, values) = (logical[rank - 2], logical[rank - 1]);
    let Some(order) = order else {
        return Ok((logical.clone(), count, [queries * values, 0, values]));
    };
    let order = checked_order(order, rank)?;
    let shape: Shape = order.iter().map(|&d| logical[d]).collect();
    let dense = shape.dense_strides();
    let mut strides: Steps = SmallVec::from_elem(0, rank);
    for (&d, &stride) in order.iter().zip(dense.iter()) {
        strides[d] = stride as usize;
    }
    if values > 1 && strides[rank - 1] != 1 {
        return Err(invalid(format!("rows of a result in order {order:?} are not dense")));
    }
    let row = strides[rank - 2];
    match rank {
        2 => Ok((shape, 1, [0, 0, row])),
        3 => Ok((shape, count, [strides[0], 0, row])),
        4 => Ok((shape, logical[0], [strides[0], strides[1], row])),
        _ => Err(invalid(format!("results of rank {rank} are not reordered"))),
    }
}

/// Element strides of a mask that is broadcast to the scores' shape.
pub(crate) fn mask_strides(
    input: usize,
    mask: &TensorSpec,
    dtype: DType,
    scores: &Shape,
) -> Result<Vec<usize>, ShapeError> {
    if mask.dtype != DType::Bool && mask.dtype != dtype {
        let expected = format!("bool or {dtype}");
        return Err(ShapeError::DType { input, expected, found: mask.dtype });
    }
    if mask.shape.broadcast(scores)? != *scores {
        return Err(invalid(format!(
            "a mask of shape {} does not fit scores of shape {scores}",
            mask.shape
        )));
    }
    let lead = scores.rank() - mask.shape.rank();
    let dense = mask.shape.dense_strides();
    let stride = |d: usize| match d.checked_sub(lead) {
        Some(d) if mask.shape[d] > 1 => dense[d] as usize,
        _ => 0,
    };
    Ok((0..scores.rank()).map(stride).collect())
}

impl Operator for ScaledDotProduct {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let call = self.call(inputs)?;
        Ok(vec![ValueSpec::tensor(call.dtype, call.output)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        self.plan_with_room(cx, &[])
    }

    fn absorb(&self, neighbour: &Neighbour, inputs: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        let &Neighbour::Repeated(input, times) = neighbour else { return None };
        let order = match input {
            _ if input == self.query || self.is_mask(input) => return None,
            _ if input == self.key && input == self.value => return None,
            _ if input == self.key => &self.orders.read[1],
            _ if input == self.value => &self.orders.read[2],
            _ => return None,
        };
        // The same index of the query's heads, before and after.
        let heads = |t: &TensorSpec, order: &Option<Vec<usize>>| {
            Matrices::new(t, order, None).ok()?.batch.last().copied()
        };
        let query = &TensorValue::at(inputs, self.query).ok()?.spec;
        let repeated = &TensorValue::at(inputs, input).ok()?.spec;
        let same = heads(query, &self.orders.read[0])? == heads(repeated, order)?;
        let in_order = order.as_ref().is_none_or(|o| o.iter().copied().eq(0..o.len()));
        let whole = repeated.shape.rank() >= 3 && times > 0 && in_order;
        (same && whole)
            .then(|| Box::new(Self { grouped: true, ..self.clone() }) as Box<dyn Operator>)
    }

    fn takes_room(&self, inputs: &[ValueSpec], input: usize, _: usize) -> bool {
        // Halves are widened as a whole.
        let full = |t: &TensorValue| !halves::is_half(t.dtype());
        let read = [self.key, self.value].iter().filter(|&&i| i == input).count();
        read > 0
            && input != self.query
            && !self.is_mask(input)
            && TensorValue::at(inputs, input).is_ok_and(full)
    }

    fn plan_with_room(&self, cx: &PlanCx<'_>, rooms: &[Room]) -> Result<Planned, PlanError> {
        let Call { dtype, problem, heads, .. } = self.call_with_room(cx.inputs, rooms)?;
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let (problem, mut heads) = match self.causal {
            true => (problem, heads),
            false => shared::as_rows(problem, heads, cx.threads),
        };
        let places: [([usize; 2], masks::Place); AttentionPattern::MOST_MASKS] = [
            (problem.strides.mask, |head| &mut head.mask),
            (problem.strides.second, |head| &mut head.second),
        ];
        for (mask, (steps, place)) in self.masks.iter().zip(places) {
            if let Some(known) = &TensorValue::at(cx.inputs, mask.input)?.known {
                masks::share(known, problem.size, steps, &mut heads, problem.heads, place);
            }
        }
        let plan = (dtype == DType::F32).then(|| planned(&cx.setting, problem));
        let to_bf16 = TensorValue::at(cx.outputs, 0)?.spec.layout == Layout::PlainBf16;
        let refused = || PlanError::Unsupported("rows of attention without whole words".into());
        let plan = match plan {
            Some(plan) if to_bf16 => Some(plan.to_bf16().ok_or_else(refused)?),
            other => other,
        };
        let scratch = plan.map_or(0, |p| p.scratch(cx.threads)).saturating_mul(size_of::<f32>());
        let qkv = [self.query, self.key, self.value].map(|i| leaf(cx.inputs, i));
        let kernel = AttentionKernel {
            name: plan.map_or("attention.reference".into(), |p| format!("attention.{}", p.by())),
            qkv,
            masks: self.masks.iter().map(|mask| leaf(cx.inputs, mask.input)).collect(),
            causal: self.causal,
            problem,
            heads,
            plan,
        };
        Ok(Planned::new(kernel).with_scratch(scratch))
    }

    fn bf16(&self, cx: &LayoutCx<'_>) -> Bf16Support {
        let whole = |call: &Call| {
            call.dtype == DType::F32 && planned(&cx.setting, call.problem).to_bf16().is_some()
        };
        let output = self.call(cx.inputs).is_ok_and(|call| whole(&call));
        Bf16Support { output, ..Bf16Support::default() }.of_plain()
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.call(inputs).map_or(0, |call| flops(&call.problem));
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

/// Attention of f32, with products of what the precision allows.
pub(crate) fn planned(cx: &Setting, problem: Problem) -> Attention {
    let suits = |unit: &MatrixUnit| cx.batch_invariant || pays(*unit, cx.isa, problem.size);
    Attention::new(Target::this(cx.isa), cx.threads, problem, cx.unit().filter(suits))
}

/// Floating-point operations of the two products.
pub(crate) fn flops(problem: &Problem) -> u64 {
    let Size { queries, keys, depth, values } = problem.size;
    let factors = [problem.groups, problem.heads, queries, keys, depth.saturating_add(values)];
    factors.iter().fold(2, |all, &n| all.saturating_mul(n as u64))
}

struct AttentionKernel {
    name: String,
    /// Input leaves.
    qkv: [usize; 3],
    masks: SmallVec<[usize; AttentionPattern::MOST_MASKS]>,
    causal: bool,
    problem: Problem,
    heads: Vec<Head>,
    /// None: not f32.
    plan: Option<Attention>,
}

impl AttentionKernel {
    fn mask<'a, T: Float>(&self, inputs: &Inputs<'a>) -> Result<Mask<'a, T>, RunError> {
        Ok(match self.masks[..] {
            [] if self.causal => Mask::Causal,
            [] => Mask::None,
            [at] if inputs.spec(at)?.dtype == DType::Bool => Mask::Keep(inputs.get(at)?),
            [at] => Mask::Add(inputs.get(at)?),
            [at, second, ..] => Mask::Both(inputs.get(at)?, inputs.get(second)?),
        })
    }

    fn operands<'a, T: Float>(&self, cx: &mut RunCx<'a>) -> Result<Operands<'a, T>, RunError> {
        let [q, k, v] = self.qkv;
        Ok(Operands {
            q: cx.inputs.get(q)?,
            k: cx.inputs.get(k)?,
            v: cx.inputs.get(v)?,
            mask: self.mask(&cx.inputs)?,
            out: cx.outputs.take(0)?,
            weights: None,
        })
    }
}

impl Kernel for AttentionKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        if let Some(plan) = &self.plan {
            let x = self.operands::<f32>(cx)?;
            plan.run(cx.par, &self.heads, x, cx.take_scratch()?);
            return Ok(());
        }
        let dtype = cx.inputs.spec(self.qkv[0])?.dtype;
        for_floats!(dtype,
            T => attention_any::<T>(&self.problem, &self.heads, self.operands(cx)?)?,
            _ => return Err(RunError::Internal(format!("attention in {dtype}"))),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests;

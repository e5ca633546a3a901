//! Scaled dot-product attention: `F.scaled_dot_product_attention`, and attention that a model
//! spells out ([`AttentionPattern`]).

use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::{Geometry, invalid};
use crate::support::several::several;
use crate::{
    BuildError, BuildProblem, Cost, Inputs, Kernel, Neighbour, NodeReader, Operator, PlanCx,
    PlanError, Planned, Room, RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::attention::attention_any;
use plutino_kernels::attention::{Attention, Head, Mask, Operands, Problem, Size, Strides};
use plutino_kernels::for_floats;
use plutino_kernels::gemm::Target;
use plutino_kernels::number::Float;
use plutino_tensor::{DType, Shape, TensorSpec, alloc};
use smallvec::SmallVec;

/// <https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html>
#[derive(Debug, Clone)]
struct ScaledDotProduct {
    query: usize,
    key: usize,
    value: usize,
    mask: Option<usize>,
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
    /// Whether input 3 is added to them.
    pub masked: bool,
    /// The order in which the result has the dimensions of (..., L, Ev).
    pub write: Option<Vec<usize>>,
}

impl AttentionPattern {
    /// The operator that computes the pattern.
    pub fn into_operator(self) -> Box<dyn Operator> {
        Box::new(ScaledDotProduct {
            query: 0,
            key: 1,
            value: 2,
            mask: self.masked.then_some(3),
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
        mask,
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

        let mut scores = batch.clone();
        scores.push(queries);
        scores.push(keys);
        scores.checked_numel()?;
        let mask = self.mask.map(|i| mask_strides(i, spec(i)?, q.dtype, &scores)).transpose()?;
        let (mask_rows, mask_batch) = match &mask {
            Some(strides) => {
                let (batch, rows) = strides.split_at(strides.len() - 2);
                ([rows[0], rows[1]], batch)
            }
            None => ([0, 0], &[][..]),
        };
        let (qs, ks) = (qm.steps(&batch, 1), km.steps(&batch, repeat[0]));
        let vs = vm.steps(&batch, repeat[1]);
        let ms: SmallVec<[(usize, usize); 4]> = mask_batch.iter().map(|&s| (s, 1)).collect();
        let at = |steps: &[(usize, usize)], index: &[usize]| -> usize {
            steps.iter().zip(index).map(|(&(step, repeat), &i)| i / repeat * step).sum()
        };
        let mut index = vec![0; batch.rank()];
        let mut heads = alloc::list(count)?;
        for _ in 0..count {
            let (q, k) = (at(&qs, &index), at(&ks, &index));
            heads.push(Head { q, k, v: at(&vs, &index), mask: at(&ms, &index) });
            for (i, &len) in index.iter_mut().zip(batch.iter()).rev() {
                *i += 1;
                if *i < len {
                    break;
                }
                *i = 0;
            }
        }
        let size = Size { queries, keys, depth, values };
        let strides = Strides { q: qm.row, k: km.row, v: vm.row, mask: mask_rows, out };
        let problem = Problem {
            size,
            strides,
            groups,
            heads: count.checked_div(groups).unwrap_or(1),
            // Without depth scores are sums of nothing, which no factor changes.
            scale: self.scale.unwrap_or_else(|| (depth.max(1) as f64).sqrt().recip()) as f32,
            unattended: self.unattended,
            weights: false,
        };
        Ok(Call { dtype: q.dtype, output, problem, heads })
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

    /// For each dimension of a batch that this one's is broadcast to: elements from one index to
    /// the next, and how many indices of the last one share a matrix.
    fn steps(&self, batch: &Shape, repeat: usize) -> SmallVec<[(usize, usize); 4]> {
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
            _ if input == self.query || Some(input) == self.mask => return None,
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
            && Some(input) != self.mask
            && TensorValue::at(inputs, input).is_ok_and(full)
    }

    fn plan_with_room(&self, cx: &PlanCx<'_>, rooms: &[Room]) -> Result<Planned, PlanError> {
        let Call { dtype, problem, heads, .. } = self.call_with_room(cx.inputs, rooms)?;
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let plan = (dtype == DType::F32)
            .then(|| Attention::new(Target::this(cx.isa), cx.threads, problem));
        let scratch = plan.map_or(0, |p| p.scratch(cx.threads)).saturating_mul(size_of::<f32>());
        let qkv = [self.query, self.key, self.value].map(|i| leaf(cx.inputs, i));
        let kernel = AttentionKernel {
            name: plan.map_or("attention.reference".into(), |_| format!("attention.{}", cx.isa)),
            qkv,
            mask: self.mask.map(|i| leaf(cx.inputs, i)),
            causal: self.causal,
            problem,
            heads,
            plan,
        };
        Ok(Planned::new(kernel).with_scratch(scratch))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.call(inputs).map_or(0, |call| flops(&call.problem));
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
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
    mask: Option<usize>,
    causal: bool,
    problem: Problem,
    heads: Vec<Head>,
    /// None: not f32.
    plan: Option<Attention>,
}

impl AttentionKernel {
    fn mask<'a, T: Float>(&self, inputs: &Inputs<'a>) -> Result<Mask<'a, T>, RunError> {
        Ok(match self.mask {
            None if self.causal => Mask::Causal,
            None => Mask::None,
            Some(at) if inputs.spec(at)?.dtype == DType::Bool => Mask::Keep(inputs.get(at)?),
            Some(at) => Mask::Add(inputs.get(at)?),
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
mod tests {
    use super::AttentionPattern;
    use crate::testkit::{
        assert_close, check, check_line, error, op, random, tensor, try_op, values,
    };
    use plutino_tensor::{DType, Tensor};

    const LINE: &str = "F.scaled_dot_product_attention a 3 1 0 1 2 9 attn_mask=None dropout_p=0.0 \
                        is_causal=False $query=0 $key=1 $value=2";
    const MASKED: &str = "F.scaled_dot_product_attention a 4 1 0 1 2 3 9 dropout_p=0.0 is_causal=False \
                          $query=0 $key=1 $value=2 $attn_mask=3";

    /// Attention of one head by the definition, in f64. `mask(i, k)` is added.
    fn naive(
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        scale: f64,
        mask: impl Fn(usize, usize) -> f64,
    ) -> Tensor {
        let ([l, e], [s, ev]) = ([q.shape()[0], q.shape()[1]], [v.shape()[0], v.shape()[1]]);
        let (q, k, v) = (values::<f32>(q), values::<f32>(k), values::<f32>(v));
        let mut out = Vec::new();
        for i in 0..l {
            let dot = |j: usize| -> f64 {
                (0..e).map(|d| f64::from(q[i * e + d]) * f64::from(k[j * e + d])).sum()
            };
            let p: Vec<f64> = (0..s).map(|j| (dot(j) * scale + mask(i, j)).exp()).collect();
            let sum: f64 = p.iter().sum();
            let value =
                |d: usize| (0..s).map(|j| p[j] * f64::from(v[j * ev + d])).sum::<f64>() / sum;
            out.extend((0..ev).map(|d| value(d) as f32));
        }
        tensor([l, ev], &out)
    }

    /// The matrix of a batch index.
    fn matrix(t: &Tensor, i: usize) -> Tensor {
        let shape = t.shape();
        let (rows, cols) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
        tensor([rows, cols], &values::<f32>(t)[i * rows * cols..(i + 1) * rows * cols])
    }

    // Scores of at most 0.6 in size, off by a few ULP each; sums of at most 40 weights.
    const BOUND: f32 = 40.0 * f32::EPSILON;

    #[test]
    fn batches_and_masks() {
        let (q, k, v) =
            (random([2, 3, 9, 10], 1), random([2, 3, 20, 10], 2), random([2, 3, 20, 8], 3));
        let scale = 10f64.sqrt().recip();
        let y = check(&*op(LINE), &[q.clone(), k.clone(), v.clone()]);
        assert_eq!(y[0].shape().dims(), [2, 3, 9, 8]);
        for i in 0..6 {
            let expected = naive(&matrix(&q, i), &matrix(&k, i), &matrix(&v, i), scale, |_, _| 0.0);
            assert_close(&matrix(&y[0], i), &expected, BOUND);
        }
        // A float mask for each batch, shared by the heads.
        let mask = random([2, 1, 9, 20], 4);
        let y = check(&*op(MASKED), &[q.clone(), k.clone(), v.clone(), mask.clone()]);
        let m = values::<f32>(&mask);
        let expected = naive(&matrix(&q, 4), &matrix(&k, 4), &matrix(&v, 4), scale, |i, j| {
            f64::from(m[180 + i * 20 + j])
        });
        assert_close(&matrix(&y[0], 4), &expected, BOUND);
        // A bool mask for all: true keeps.
        let keep: Vec<bool> = m[..20].iter().map(|&x| x > 0.0).collect();
        let y = check(&*op(MASKED), &[q.clone(), k.clone(), v.clone(), tensor([20], &keep)]);
        let expected = naive(&matrix(&q, 5), &matrix(&k, 5), &matrix(&v, 5), scale, |_, j| {
            if keep[j] { 0.0 } else { f64::NEG_INFINITY }
        });
        assert_close(&matrix(&y[0], 5), &expected, BOUND);
    }

    #[test]
    fn causal_and_scale_and_rank_2() {
        let (q, k, v) = (random([9, 4], 1), random([9, 4], 2), random([9, 5], 3));
        let line =
            "F.scaled_dot_product_attention a 3 1 0 1 2 9 attn_mask=None is_causal=True scale=0.5";
        let y = check(&*op(line), &[q.clone(), k.clone(), v.clone()]);
        let later = |i, j| if j > i { f64::NEG_INFINITY } else { 0.0 };
        assert_close(&y[0], &naive(&q, &k, &v, 0.5, later), BOUND);
    }

    #[test]
    fn heads_of_keys_may_be_shared() {
        let (q, k, v) =
            (random([2, 8, 9, 10], 1), random([2, 2, 9, 10], 2), random([2, 4, 9, 8], 3));
        let line = LINE.replace("is_causal=False", "is_causal=False enable_gqa=True");
        let y = check(&*op(&line), &[q.clone(), k.clone(), v.clone()]);
        for i in [0, 5, 15] {
            let (batch, head) = (i / 8, i % 8);
            let (k, v) = (matrix(&k, batch * 2 + head / 4), matrix(&v, batch * 4 + head / 2));
            let expected = naive(&matrix(&q, i), &k, &v, 10f64.sqrt().recip(), |_, _| 0.0);
            assert_close(&matrix(&y[0], i), &expected, BOUND);
        }
        error(&*op(LINE), &[q, k, v]);
    }

    #[test]
    fn keys_and_values_may_lie_with_room() {
        use crate::{PackCache, PlanCx, Room, Setting, eager};
        use plutino_kernels::{Isa, Par};
        // (2, 3, 9, ..) at the beginning of (2, 3, 14, ..), whose other rows are NaN.
        let roomy = |x: &Tensor| {
            let mut rows = Vec::new();
            for matrix in values::<f32>(x).chunks(9 * x.shape()[3]) {
                rows.extend_from_slice(matrix);
                rows.extend(std::iter::repeat_n(f32::NAN, 5 * x.shape()[3]));
            }
            tensor([2, 3, 14, x.shape()[3]], &rows)
        };
        let (q, k, v) =
            (random([2, 6, 4, 10], 1), random([2, 3, 9, 10], 2), random([2, 3, 9, 8], 3));
        let line = LINE.replace("is_causal=False", "is_causal=False enable_gqa=True");
        let op = op(&line);
        let expected = check(&*op, &[q.clone(), k.clone(), v.clone()]);
        let inputs = crate::testkit::specs(&[q.clone(), k.clone(), v.clone()]);
        assert!(!op.takes_room(&inputs, 0, 2));
        assert!(op.takes_room(&inputs, 1, 2) && op.takes_room(&inputs, 2, 2));
        let outputs = op.infer(&inputs).unwrap();
        for isa in Isa::available() {
            let (packs, setting) = (PackCache::default(), Setting::new(isa, 1));
            let cx = PlanCx { inputs: &inputs, outputs: &outputs, setting, packs: &packs };
            let rooms = [1, 2].map(|input| Room { input, dim: 2, capacity: 14 });
            let planned = op.plan_with_room(&cx, &rooms).unwrap();
            let data = [q.clone(), roomy(&k), roomy(&v)];
            let y = eager::execute(&planned, &outputs, &data, &Par::serial()).unwrap();
            let dense = op.plan(&cx).unwrap();
            let data = [q.clone(), k.clone(), v.clone()];
            let same = eager::execute(&dense, &outputs, &data, &Par::serial()).unwrap();
            assert_eq!(y, same, "{isa}");
            assert_close(&y[0], &expected[0], BOUND);
        }
    }

    #[test]
    fn repeated_heads_are_taken_as_they_are() {
        let (q, k, v) =
            (random([2, 6, 4, 10], 1), random([2, 3, 9, 10], 2), random([2, 6, 9, 8], 3));
        let repeat = op("torch.repeat_interleave r 1 1 0 1 dim=1 repeats=2 $input=0");
        let wide = check(&*repeat, std::slice::from_ref(&k)).remove(0);
        let attention = op(LINE);
        let expected = check(&*attention, &[q.clone(), wide.clone(), v.clone()]);
        let inputs = crate::testkit::specs(&[q.clone(), wide, v.clone()]);
        let absorb = |input| attention.absorb(&crate::Neighbour::Repeated(input, 2), &inputs);
        assert!(absorb(0).is_none() && absorb(3).is_none());
        assert_eq!(check(&*absorb(1).unwrap(), &[q, k, v]), expected);
    }

    #[test]
    fn a_pattern_reads_and_writes_permuted() {
        // (N, L, H, E) as projections leave them, read as (N, H, L, E), written back as (N, L, H,
        // Ev).
        let order = || Some(vec![0, 2, 1, 3]);
        let (q, k, v) =
            (random([2, 9, 3, 8], 1), random([2, 20, 3, 8], 2), random([2, 20, 3, 5], 3));
        let mask = random([2, 1, 1, 20], 4);
        let read = [order(), order(), order()];
        let pattern = AttentionPattern { read, scale: 0.3, masked: true, write: order() };
        let op = pattern.clone().into_operator();
        let y = check(&*op, &[q.clone(), k.clone(), v.clone(), mask.clone()]);
        assert_eq!(y[0].shape().dims(), [2, 9, 3, 5]);
        // Head h of batch n of a tensor (N, rows, H, E).
        let head = |t: &Tensor, n: usize, h: usize| {
            let (rows, e) = (t.shape()[1], t.shape()[3]);
            let data = values::<f32>(t);
            let row = |i: usize| &data[((n * rows + i) * 3 + h) * e..][..e];
            tensor([rows, e], &(0..rows).flat_map(row).copied().collect::<Vec<f32>>())
        };
        let m = values::<f32>(&mask);
        for (n, h) in [(0, 0), (1, 2)] {
            let (q, k, v) = (head(&q, n, h), head(&k, n, h), head(&v, n, h));
            let expected = naive(&q, &k, &v, 0.3, |_, j| f64::from(m[n * 20 + j]));
            assert_close(&head(&y[0], n, h), &expected, BOUND);
        }
        // Rows that are not dense, and orders that are none, are refused.
        for order in [vec![0, 2, 3, 1], vec![0, 1, 2], vec![0, 0, 1, 2]] {
            for at in 0..4 {
                let mut pattern = pattern.clone();
                match pattern.read.get_mut(at) {
                    Some(read) => *read = Some(order.clone()),
                    None => pattern.write = Some(order.clone()),
                }
                error(&*pattern.into_operator(), &[q.clone(), k.clone(), v.clone(), mask.clone()]);
            }
        }
    }

    #[test]
    fn a_pattern_without_anything_to_see_is_nan() {
        let read = [None, None, None];
        let pattern = AttentionPattern { read, scale: 1.0, masked: true, write: None };
        let hidden = tensor([3], &[f32::NEG_INFINITY; 3]);
        let x = random([3, 4], 1);
        let y = check(&*pattern.into_operator(), &[x.clone(), x.clone(), x, hidden]);
        assert!(values::<f32>(&y[0]).iter().all(|y| y.is_nan()));
    }

    #[test]
    fn nothing_to_ask_or_to_compare_or_to_answer() {
        let of = |q: [usize; 3], k: [usize; 3], v: [usize; 3]| {
            check(&*op(LINE), &[random(q, 1), random(k, 2), random(v, 3)]).remove(0)
        };
        assert_eq!(of([2, 0, 8], [2, 3, 8], [2, 3, 8]).shape().dims(), [2, 0, 8]);
        assert_eq!(of([2, 3, 8], [2, 4, 8], [2, 4, 0]).shape().dims(), [2, 3, 0]);
        // Without anything to compare all keys count the same.
        let y = of([2, 3, 0], [2, 4, 0], [2, 4, 5]);
        let v = random([2, 4, 5], 3);
        let mean = (0..4).map(|k| values::<f32>(&v)[k * 5]).sum::<f32>() / 4.0;
        assert!((values::<f32>(&y)[0] - mean).abs() < 1e-6);
    }

    #[test]
    fn other_floats_are_computed_too() {
        let [q, k, v] = [random([3, 4], 1), random([5, 4], 2), random([5, 2], 3)];
        let wide = [&q, &k, &v].map(|t| t.view().cast(DType::F64).unwrap());
        let y = check(&*op(LINE), &wide);
        let expected = naive(&q, &k, &v, 0.5, |_, _| 0.0);
        assert_close(&y[0].view().cast(DType::F32).unwrap(), &expected, f32::EPSILON);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let t = |shape: [usize; 2]| random(shape, 1);
        error(&*op(LINE), &[t([3, 4]), t([5, 3]), t([5, 2])]);
        error(&*op(LINE), &[t([3, 4]), t([5, 4]), t([4, 2])]);
        error(&*op(LINE), &[t([3, 4]), t([5, 4]), random([5], 1)]);
        error(&*op(MASKED), &[t([3, 4]), t([5, 4]), t([5, 2]), t([3, 4])]);
        error(&*op(MASKED), &[t([3, 4]), t([5, 4]), t([5, 2]), tensor([5], &[1i64; 5])]);
        assert!(try_op(&LINE.replace("0.0", "0.5"), &[]).is_err());
        assert!(try_op(&MASKED.replace("False", "True"), &[]).is_err());
    }

    #[test]
    fn native_functions() {
        let given = [random([1, 2, 5, 8], 1), random([1, 2, 6, 8], 2), random([1, 2, 6, 8], 3)];
        let expected = check(&*op(LINE), &given);
        let line = "aten::_scaled_dot_product_flash_attention_for_cpu a 7 2 0 1 2 =0.0 =False =None =None 8 9";
        let y = check_line(line, &given);
        assert_eq!(y[0], expected[0]);
        assert_eq!(y[1].shape().dims(), [1, 2, 5]);
        let line = "aten::_scaled_dot_product_attention_math a 9 2 0 1 2 =None =0.0 =False =None =None =False 8 9";
        let y = check_line(line, &given);
        assert_eq!((&y[0], y[1].shape().dims()), (&expected[0], &[1, 2, 5, 6][..]));
    }
}

//! Attention of the dtypes that have no kernel of their own, by the definition.

use super::{Head, Mask, Operands, Problem, Size};
use plutino_cpu::number::Float;
use plutino_tensor::stop::Watch;
use plutino_tensor::{TensorError, alloc};

/// softmax(scale Q Kᵀ + mask) V of each head, one query at a time, in f64; the weights averaged
/// over the heads of a group, where they are asked for.
///
/// # Errors
/// Where the weights of a query do not fit the memory.
///
/// # Panics
/// Where an operand is too short for what the problem and the heads say.
pub fn attention_any<T: Float>(
    problem: &Problem,
    heads: &[Head],
    mut x: Operands<'_, T>,
) -> Result<(), TensorError> {
    problem.check(heads, &x, false);
    let (Size { queries, keys, depth, values }, strides) = (problem.size, problem.strides);
    let mut p = alloc::list::<f64>(keys)?;
    let mut watch = Watch::new();
    for (h, head) in heads.iter().enumerate() {
        for i in 0..queries {
            if watch.stops(keys.saturating_mul(depth.saturating_add(values))) {
                return Err(TensorError::Stopped);
            }
            let score = |k: usize| {
                let (q, key) = (&x.q[head.q + i * strides.q..], &x.k[head.k + k * strides.k..]);
                let dot: f64 = (0..depth).map(|d| q[d].widen() * key[d].widen()).sum();
                let place = |first: usize, [row, key]: [usize; 2]| first + i * row + k * key;
                let at = place(head.mask, strides.mask);
                let score = dot * problem.scale;
                match x.mask {
                    Mask::Add(mask) => score + mask[at].widen(),
                    Mask::Both(mask, second) => {
                        let then = second[place(head.second, strides.second)].widen();
                        score + mask[at].widen() + then
                    }
                    Mask::Causal if k > i => f64::NEG_INFINITY,
                    Mask::Keep(mask) if !mask[at] => score + f64::NEG_INFINITY,
                    _ => score,
                }
            };
            p.clear();
            p.extend((0..keys).map(score)); // within what is reserved
            let max = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if p.iter().all(|&p| p == f64::NEG_INFINITY) {
                p.fill(f64::from(problem.unattended));
            } else {
                p.iter_mut().for_each(|p| *p = (*p - max).exp());
                let sum: f64 = p.iter().sum();
                p.iter_mut().for_each(|p| *p /= sum);
            }
            let out = problem.out(h) + i * strides.out[2];
            for e in 0..values {
                let value = |k: usize| x.v[head.v + k * strides.v + e].widen();
                x.out[out + e] = T::narrow((0..keys).map(|k| p[k] * value(k)).sum());
            }
            if let Some(w) = &mut x.weights {
                let row = (h / problem.heads * queries + i) * keys;
                for (w, p) in w[row..row + keys].iter_mut().zip(&p) {
                    let sum = if h % problem.heads == 0 { 0.0 } else { w.widen() };
                    *w = T::narrow(sum + p / problem.heads as f64);
                }
            }
        }
    }
    Ok(())
}

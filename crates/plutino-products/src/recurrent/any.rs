//! Recurrent layers of the dtypes that have no kernel of their own, by the definition.

use super::{Cell, Shape, Weights};
use plutino_cpu::activation::{Activation, exact as activation};
use plutino_cpu::number::Float;
use plutino_cpu::par::stop::Watch;

/// One layer: `y[row, direction * state + i]`, row by row and step by step, each sum in f64. `h`
/// and `c` hold the initial states (`directions x batch` rows) and the final ones afterwards; `c`
/// is an LSTM's alone.
///
/// # Panics
/// Where an operand is too short for the shape.
pub fn recurrent_any<T: Float>(
    shape: &Shape,
    weights: &[Weights<&[T]>],
    x: &[T],
    y: &mut [T],
    h: &mut [T],
    c: &mut [T],
) {
    let Shape { steps, batch, features, hidden, state, directions, .. } = *shape;
    let mut watch = Watch::new();
    for (direction, w) in weights.iter().enumerate() {
        for n in 0..batch {
            let own = direction * batch + n;
            let h = &mut h[own * state..(own + 1) * state];
            let lstm = shape.cell == Cell::Lstm;
            let c = if lstm { &mut c[own * hidden..(own + 1) * hidden] } else { &mut [] };
            for step in 0..steps {
                if watch.stops(shape.gates().saturating_mul(features.saturating_add(state))) {
                    return;
                }
                let t = if direction == 0 { step } else { steps - 1 - step };
                let row = shape.row(t, n);
                cell(shape, w, &x[row * features..(row + 1) * features], h, c);
                let at = (row * directions + direction) * state;
                y[at..at + state].copy_from_slice(h);
            }
        }
    }
}

/// The next state of one sequence.
fn cell<T: Float>(shape: &Shape, w: &Weights<&[T]>, x: &[T], h: &mut [T], c: &mut [T]) {
    let hidden = shape.hidden;
    let dot = |row: usize, matrix: &[T], vector: &[T]| -> f64 {
        let row = &matrix[row * vector.len()..(row + 1) * vector.len()];
        row.iter().zip(vector).map(|(a, b)| a.widen() * b.widen()).sum()
    };
    let bias = |row: usize| w.bias.map_or((0.0, 0.0), |(i, h)| (i[row].widen(), h[row].widen()));
    let from_x: Vec<f64> =
        (0..shape.gates()).map(|row| dot(row, w.input, x) + bias(row).0).collect();
    let from_h: Vec<f64> =
        (0..shape.gates()).map(|row| dot(row, w.recurrent, h) + bias(row).1).collect();
    let gate = |i: usize, unit: usize| from_x[i * hidden + unit] + from_h[i * hidden + unit];
    let sigmoid = |v: f64| activation(Activation::Sigmoid, v);
    let next: Vec<T> = (0..hidden)
        .map(|u| match shape.cell {
            Cell::Lstm => {
                let (i, f, o) = (sigmoid(gate(0, u)), sigmoid(gate(1, u)), sigmoid(gate(3, u)));
                let next = f * c[u].widen() + i * gate(2, u).tanh();
                c[u] = T::narrow(next);
                T::narrow(o * next.tanh())
            }
            Cell::Gru => {
                let (r, z) = (sigmoid(gate(0, u)), sigmoid(gate(1, u)));
                let n = (from_x[2 * hidden + u] + r * from_h[2 * hidden + u]).tanh();
                T::narrow((1.0 - z) * n + z * h[u].widen())
            }
            Cell::Rnn(f) => T::narrow(activation(f, gate(0, u))),
        })
        .collect();
    for (i, h) in h.iter_mut().enumerate() {
        *h = w.projection.map_or_else(|| next[i], |p| T::narrow(dot(i, p, &next)));
    }
}

//! Recurrent networks whose weights are inputs, and single cells.
//!
//! `aten::lstm`, `aten::gru`, `aten::rnn_tanh` and `aten::rnn_relu` are what `nn.LSTM` and its
//! neighbours call, with all weights in one list; over packed sequences, see [`super::packed`].
//! `nn.LSTMCell` (<https://pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html>) and its neighbours are a
//! network of one step.

use super::packed::PackedNetwork;
use super::{Direction, Network, Part, stored_bias};
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::support::weights::Source;
use crate::{
    BuildError, BuildProblem, Cost, NodeReader, Operator, PlanCx, PlanError, Planned, ShapeError,
    TensorValue, ValueSpec, register_op,
};
use plutino_kernels::Activation;
use plutino_kernels::recurrent::Cell;
use plutino_tensor::{DType, Shape};

/// The cell that the end of a type names; that of `nn.RNNCell` is a parameter.
fn cell(r: &mut NodeReader<'_>) -> Result<Cell, BuildError> {
    let kind = r.kind();
    Ok(match kind.rsplit([':', '.']).next().unwrap_or_default() {
        "lstm" | "lstm_cell" | "LSTMCell" => Cell::Lstm,
        "gru" | "gru_cell" | "GRUCell" => Cell::Gru,
        "rnn_relu" | "rnn_relu_cell" => Cell::Rnn(Activation::Relu),
        _ => {
            let table = [("tanh", Activation::Tanh), ("relu", Activation::Relu)];
            Cell::Rnn(r.one_of("nonlinearity", &table, Some(Activation::Tanh))?)
        }
    })
}

/// A network whose weights are one list.
#[derive(Debug)]
pub(super) struct Native {
    cell: Cell,
    pub(super) input: usize,
    /// The initial h; of an LSTM a list of h and c.
    states: usize,
    weights: usize,
    bias: bool,
    layers: usize,
    directions: usize,
    batch_first: bool,
    outputs: Vec<Part>,
}

fn native(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let batch_sizes = r.named_input("batch_sizes");
    let cell = cell(r)?;
    let layers = r.required::<usize>("num_layers")?;
    let directions = if r.or("bidirectional", false)? { 2 } else { 1 };
    let dropped: f64 = r.or("dropout", 0.0)?;
    if r.or("train", false)? && dropped > 0.0 {
        return Err(r.bad("train", "False: dropout is random"));
    }
    let parts = if cell == Cell::Lstm { 3 } else { 2 };
    let outputs = match r.output_count() {
        found if found == parts => [Part::Sequence, Part::Hidden, Part::Cell][..parts].to_vec(),
        found => {
            let expected = parts.to_string();
            return Err(r.error(BuildProblem::Outputs { expected, found }));
        }
    };
    let native = Native {
        cell,
        input: r.required_input(if batch_sizes.is_some() { "data" } else { "input" })?,
        states: r.required_input("hx")?,
        weights: r.required_input("params")?,
        bias: r.required("has_biases")?,
        layers,
        directions,
        batch_first: batch_sizes.is_none() && r.or("batch_first", false)?,
        outputs,
    };
    Ok(match batch_sizes {
        Some(batch_sizes) => Box::new(PackedNetwork { native, batch_sizes }),
        None => Box::new(native),
    })
}
register_op!(native => "aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu");

/// The leaves of all inputs, which a network counts as its inputs.
fn leaves(inputs: &[ValueSpec]) -> Vec<ValueSpec> {
    inputs.iter().flat_map(ValueSpec::leaves).cloned().collect()
}

/// The leaves of one input, by their numbers.
fn leaves_of(inputs: &[ValueSpec], at: usize) -> std::ops::Range<usize> {
    let first = leaf(inputs, at);
    first..first.saturating_add(inputs.get(at).map_or(0, ValueSpec::leaf_count))
}

/// The weights of a layer, one after the other.
struct Weights<'a> {
    inputs: &'a [ValueSpec],
    leaves: std::ops::Range<usize>,
    dtype: DType,
}

impl Weights<'_> {
    /// The next weight, which must have this shape.
    fn next(&mut self, expected: &[usize]) -> Result<Source, ShapeError> {
        let at = self.leaves.next().ok_or_else(|| invalid("a weight is missing"))?;
        let found = &TensorValue::at(self.inputs, at)?.spec;
        if found.shape.dims() != expected || found.dtype != self.dtype {
            return Err(invalid(format!(
                "a weight must be {}{}, found {found}",
                Shape::from(expected),
                self.dtype
            )));
        }
        Ok(Source::Input(at))
    }

    fn direction(
        &mut self,
        [gates, columns, state]: [usize; 3],
        bias: bool,
        projected: Option<usize>,
    ) -> Result<Direction, ShapeError> {
        let (weight_ih, weight_hh) = (self.next(&[gates, columns])?, self.next(&[gates, state])?);
        let bias = bias.then(|| Ok::<_, ShapeError>((self.next(&[gates])?, self.next(&[gates])?)));
        let weight_hr = projected.map(|hidden| self.next(&[state, hidden]));
        Ok(Direction {
            weight_ih,
            weight_hh,
            bias: bias.transpose()?,
            weight_hr: weight_hr.transpose()?,
        })
    }
}

impl Native {
    /// The network, and what it counts as its inputs.
    pub(super) fn bind(
        &self,
        inputs: &[ValueSpec],
    ) -> Result<(Network, Vec<ValueSpec>), ShapeError> {
        let flat = leaves(inputs);
        let leaves = leaves_of(inputs, self.weights);
        let each = 2 + 2 * usize::from(self.bias);
        let parts = self.layers.checked_mul(self.directions).filter(|&parts| parts > 0);
        // With a projection there is one more weight to each.
        let given = parts.and_then(|parts| {
            let divisible = leaves.len().is_multiple_of(parts);
            Some(leaves.len() / parts)
                .filter(|given| divisible && (each..=each + 1).contains(given))
        });
        let projected = match given.map(|given| given > each) {
            Some(projected) if !projected || self.cell == Cell::Lstm => projected,
            _ => {
                return Err(invalid(format!(
                    "{} weights are given for {} layers of {} directions",
                    leaves.len(),
                    self.layers,
                    self.directions
                )));
            }
        };
        let at = |i: usize| TensorValue::at(&flat, leaves.start.saturating_add(i));
        let (ih, hh) = (at(0)?, at(1)?);
        let (&[gates, features], &[_, state]) = (ih.shape().dims(), hh.shape().dims()) else {
            return Err(invalid("the weights of a layer must be matrices"));
        };
        let hidden = gates / self.cell.gates().max(1);
        if hidden == 0 || hidden.checked_mul(self.cell.gates()) != Some(gates) {
            return Err(invalid(format!("{gates} rows of weights are no gates")));
        }
        if !projected && state != hidden {
            return Err(invalid(format!(
                "a state of {hidden} cannot meet weights of {state} columns"
            )));
        }
        let mut weights = Weights { inputs: &flat, leaves, dtype: ih.dtype() };
        let wide = state.checked_mul(self.directions).ok_or_else(|| invalid("too many states"))?;
        let mut layers = Vec::new();
        for layer in 0..self.layers {
            let columns = if layer == 0 { features } else { wide };
            let hidden = projected.then_some(hidden);
            let one = |_| weights.direction([gates, columns, state], self.bias, hidden);
            layers.push((0..self.directions).map(one).collect::<Result<_, _>>()?); // bounded: 1 or 2
        }
        let network = Network {
            cell: self.cell,
            features,
            hidden,
            state,
            directions: self.directions,
            batch_first: self.batch_first,
            layers,
            input: leaf(inputs, self.input),
            initial: leaves_of(inputs, self.states).collect(),
            outputs: self.outputs.clone(),
        };
        let states = if self.cell == Cell::Lstm { 2 } else { 1 };
        if network.initial.len() != states {
            let found = network.initial.len();
            return Err(invalid(format!("{found} initial states are given, {states} are needed")));
        }
        Ok((network, flat))
    }
}

impl Operator for Native {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (network, flat) = self.bind(inputs)?;
        network.infer(&flat)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (network, flat) = self.bind(cx.inputs)?;
        network.plan(&PlanCx { inputs: &flat, ..*cx })
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        match self.bind(inputs) {
            Ok((network, flat)) => network.cost(&flat, outputs),
            Err(_) => Cost::moved(inputs, outputs),
        }
    }
}

/// One step of one layer: the input is `(N, features)` or `(features)`, the states likewise.
#[derive(Debug)]
struct SingleCell {
    cell: Cell,
    input: usize,
    /// The input with h, or with h and c as a list; c of its own.
    states: Vec<usize>,
    weights: CellWeights,
    outputs: usize,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one for each node
enum CellWeights {
    /// Of a module.
    Stored([Source; 2], Option<(Source, Source)>),
    /// Inputs.
    Given([usize; 2], Option<[usize; 2]>),
}

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let cell = cell(r)?;
    let (features, hidden): (usize, usize) =
        (r.required("input_size")?, r.required("hidden_size")?);
    let gates = cell.gates().checked_mul(hidden).filter(|&gates| gates > 0);
    let gates = gates.ok_or_else(|| r.bad("hidden_size", "an integer of at least 1"))?;
    let bias = r.or("bias", true)?;
    let weights = CellWeights::Stored(
        [
            Source::Stored(r.weight("weight_ih", &[gates, features])?),
            Source::Stored(r.weight("weight_hh", &[gates, hidden])?),
        ],
        stored_bias(r, bias, ["bias_ih", "bias_hh"], gates)?,
    );
    let input = r.required_input("input")?;
    let mut states: Vec<usize> = r.input("hx").into_iter().collect();
    states.extend(if states.is_empty() { None } else { r.input("cx") });
    single(r, cell, input, states, weights)
}
register_op!(module => "nn.LSTMCell", "nn.GRUCell", "nn.RNNCell");

fn native_cell(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let cell = cell(r)?;
    let (input, states) = (r.required_input("input")?, vec![r.required_input("hx")?]);
    let weights = [r.required_input("w_ih")?, r.required_input("w_hh")?];
    let mut bias = |key: &str| {
        let none = r.has(key) && r.optional::<String>(key)?.is_none();
        Ok::<_, BuildError>(if none { None } else { r.input(key) })
    };
    let bias = match (bias("b_ih")?, bias("b_hh")?) {
        (Some(ih), Some(hh)) => Some([ih, hh]),
        (None, None) => None,
        _ => return Err(r.bad("b_ih", "None where b_hh is None, and the reverse")),
    };
    single(r, cell, input, states, CellWeights::Given(weights, bias))
}
register_op!(native_cell => "aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell");

fn single(
    r: &NodeReader<'_>,
    cell: Cell,
    input: usize,
    states: Vec<usize>,
    weights: CellWeights,
) -> Result<Box<dyn Operator>, BuildError> {
    let most = if cell == Cell::Lstm { 2 } else { 1 };
    let outputs = r.output_count();
    if outputs == 0 || outputs > most {
        let (expected, found) = (format!("1 to {most}"), outputs);
        return Err(r.error(BuildProblem::Outputs { expected, found }));
    }
    Ok(Box::new(SingleCell { cell, input, states, weights, outputs }))
}

impl SingleCell {
    /// The network of one step, what it counts as its inputs, and the shape of its results.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(Network, Vec<ValueSpec>, Shape), ShapeError> {
        let mut flat = leaves(inputs);
        let at = |i: usize| leaf(inputs, i);
        let direction = match &self.weights {
            CellWeights::Stored([ih, hh], bias) => Direction {
                weight_ih: ih.clone(),
                weight_hh: hh.clone(),
                bias: bias.clone(),
                weight_hr: None,
            },
            CellWeights::Given([ih, hh], bias) => Direction {
                weight_ih: Source::Input(at(*ih)),
                weight_hh: Source::Input(at(*hh)),
                bias: bias.map(|b| (Source::Input(at(b[0])), Source::Input(at(b[1])))),
                weight_hr: None,
            },
        };
        let spec = direction.weight_ih.spec(&flat)?.clone();
        let &[gates, features] = spec.shape.dims() else {
            return Err(invalid(format!("the weights of a cell must be matrices, found {spec}")));
        };
        let hidden = gates / self.cell.gates().max(1);
        let fits = |source: &Source, dims: &[usize]| -> Result<bool, ShapeError> {
            let found = source.spec(&flat)?;
            Ok(found.shape.dims() == dims && found.dtype == spec.dtype)
        };
        let mut all = hidden > 0 && hidden.checked_mul(self.cell.gates()) == Some(gates);
        all &= fits(&direction.weight_hh, &[gates, hidden])?;
        if let Some((ih, hh)) = &direction.bias {
            all &= fits(ih, &[gates])? && fits(hh, &[gates])?;
        }
        if !all {
            return Err(invalid(format!("the weights of the cell do not fit {spec}")));
        }
        let x = &TensorValue::at(inputs, self.input)?.spec;
        let lead = match x.shape.dims() {
            [_] => &[][..],
            [batch, _] => std::slice::from_ref(batch),
            _ => {
                let (expected, found) = ("1 or 2".into(), x.shape.clone());
                return Err(ShapeError::Rank { input: self.input, expected, found });
            }
        };
        let result = Shape::from(&[lead, &[hidden]].concat()[..]);
        let step = |width: usize| Shape::from([1, lead.first().copied().unwrap_or(1), width]);
        let initial: Vec<usize> = self.states.iter().flat_map(|&s| leaves_of(inputs, s)).collect();
        for &state in &initial {
            let found = TensorValue::at(&flat, state)?.spec.clone();
            if found.shape != result || found.dtype != x.dtype {
                return Err(invalid(format!("a state must be {result}{}, found {found}", x.dtype)));
            }
            flat[state] = ValueSpec::tensor(found.dtype, step(hidden));
        }
        let states = if self.cell == Cell::Lstm { 2 } else { 1 };
        if !initial.is_empty() && initial.len() != states {
            return Err(invalid(format!("{} states are given, not {states}", initial.len())));
        }
        if x.shape.last() != Some(&features) {
            let (dim, expected) = (x.shape.rank() - 1, features.to_string());
            let found = x.shape.clone();
            return Err(ShapeError::Size { input: self.input, dim, expected, found });
        }
        let input = at(self.input);
        if let Some(slot) = flat.get_mut(input) {
            *slot = ValueSpec::tensor(x.dtype, step(features));
        }
        let network = Network {
            cell: self.cell,
            features,
            hidden,
            state: hidden,
            directions: 1,
            batch_first: false,
            layers: vec![vec![direction]],
            input,
            initial,
            outputs: [Part::Hidden, Part::Cell][..self.outputs].to_vec(),
        };
        Ok((network, flat, result))
    }
}

impl Operator for SingleCell {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (network, flat, shape) = self.bind(inputs)?;
        network.infer(&flat)?; // whatever else does not fit
        let dtype = TensorValue::at(inputs, self.input)?.dtype();
        Ok(vec![ValueSpec::tensor(dtype, shape); self.outputs]) // bounded: 1 or 2
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (network, flat, _) = self.bind(cx.inputs)?;
        network.plan(&PlanCx { inputs: &flat, ..*cx })
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        match self.bind(inputs) {
            Ok((network, flat, _)) => network.cost(&flat, outputs),
            Err(_) => Cost::moved(inputs, outputs),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{
        assert_close, check, check_values, op, op_with, random, specs, tensor, try_op, values,
    };
    use crate::{ValueSpec, eager};
    use plutino_tensor::Tensor;

    // One or two steps; sums of at most a dozen terms below 1 in size.
    const BOUND: f32 = 20.0 * f32::EPSILON;

    /// Weights of two layers in two directions, in the order of the list, and their names.
    fn weights(gates: usize, projected: bool) -> Vec<(String, Tensor)> {
        let state = if projected { 3 } else { 4 };
        let mut all: Vec<(String, Tensor)> = Vec::new();
        for layer in 0..2 {
            for suffix in ["", "_reverse"] {
                let columns = if layer == 0 { 5 } else { 2 * state };
                let mut add = |name: &str, dims: &[usize]| {
                    let tensor = random(dims, all.len() as u64);
                    all.push((format!("{name}_l{layer}{suffix}"), tensor));
                };
                add("weight_ih", &[gates * 4, columns]);
                add("weight_hh", &[gates * 4, state]);
                add("bias_ih", &[gates * 4]);
                add("bias_hh", &[gates * 4]);
                if projected {
                    add("weight_hr", &[state, 4]);
                }
            }
        }
        all
    }

    /// Modules and functions agree, whether the weights are known while planning or not.
    #[test]
    fn networks_with_a_list_of_weights() {
        for (module, native, gates, projected) in [
            ("LSTM", "lstm", 4, false),
            ("LSTM", "lstm", 4, true),
            ("GRU", "gru", 3, false),
            ("RNN", "rnn_tanh", 1, false),
        ] {
            let (weights, state) = (weights(gates, projected), if projected { 3 } else { 4 });
            let lstm = gates == 4;
            let (ins, outs) = if lstm { ("3", "0 1 2 7 8 9") } else { ("2", "0 1 7 8") };
            let count = if lstm { 3 } else { 2 };
            let projection = if projected { "proj_size=3" } else { "" };
            let line = format!(
                "nn.{module} m {ins} {count} {outs} input_size=5 hidden_size=4 num_layers=2 bidirectional=True \
                 batch_first=True {projection}"
            );
            let named: Vec<(&str, Tensor)> =
                weights.iter().map(|(name, t)| (&name[..], t.clone())).collect();
            let mut inputs = vec![random([3, 6, 5], 1), random([4, 3, state], 2)];
            if lstm {
                inputs.push(random([4, 3, 4], 3));
            }
            let expected = check(&*op_with(&line, &named), &inputs);

            let outs = ["7", "7 8", "7 8 9"][count - 1];
            let native = op(&format!(
                "aten::{native} m 9 {count} 0 1 2 =True =2 =0.0 =False =True =True {outs}"
            ));
            let list: Vec<Tensor> = weights.iter().map(|(_, t)| t.clone()).collect();
            for known in [true, false] {
                let list_specs = if known {
                    list.iter().cloned().map(ValueSpec::from).collect()
                } else {
                    specs(&list)
                };
                let mut states = specs(&inputs[1..]);
                let states = if lstm { ValueSpec::List(states) } else { states.remove(0) };
                let rest = [true, false].map(|v| ValueSpec::python(v).unwrap());
                let (yes, no) = (rest[0].clone(), rest[1].clone());
                let given = [
                    inputs[0].spec().into(),
                    states,
                    ValueSpec::List(list_specs),
                    yes.clone(),
                    ValueSpec::python(2i64).unwrap(),
                    ValueSpec::python(0.0f64).unwrap(),
                    no,
                    yes.clone(),
                    yes,
                ];
                let mut data: Vec<Tensor> = inputs.iter().chain(&list).cloned().collect();
                let (t, f) = (tensor([], &[true]), tensor([], &[false]));
                data.extend([
                    t.clone(),
                    tensor([], &[2i64]),
                    tensor([], &[0.0f64]),
                    f,
                    t.clone(),
                    t,
                ]);
                let found = check_values(&*native, &given, &data);
                assert_eq!(found.len(), expected.len());
                for (x, y) in found.iter().zip(&expected) {
                    if known {
                        assert_eq!(values::<f32>(x), values::<f32>(y));
                    }
                    assert_close(x, y, BOUND);
                }
            }
        }
    }

    #[test]
    fn cells_are_networks_of_one_step() {
        for (module, cell, gates) in
            [("LSTM", "lstm", 4), ("GRU", "gru", 3), ("RNN", "rnn_tanh", 1)]
        {
            let w = [
                random([gates * 4, 5], 1),
                random([gates * 4, 4], 2),
                random([gates * 4], 3),
                random([gates * 4], 4),
            ];
            let (x, h, c) = (random([3, 5], 5), random([3, 4], 6), random([3, 4], 7));
            let lstm = gates == 4;
            let count = if lstm { 2 } else { 1 };
            let named: Vec<(String, Tensor)> = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
                .iter()
                .zip(&w)
                .map(|(name, t)| (format!("{name}_l0"), t.clone()))
                .collect();
            let layer: Vec<(&str, Tensor)> =
                named.iter().map(|(name, t)| (&name[..], t.clone())).collect();
            let whole = |t: &Tensor| {
                let dims = [1, t.shape()[0], t.shape()[1]];
                Tensor::from_slice(&values::<f32>(t), dims).unwrap()
            };
            let line = match lstm {
                true => "3 3 0 1 2 7 8 9 input_size=5 hidden_size=4",
                false => "2 2 0 1 7 8 input_size=5 hidden_size=4",
            };
            let mut inputs = vec![whole(&x), whole(&h), whole(&c)];
            inputs.truncate(1 + count);
            let expected = check(&*op_with(&format!("nn.{module} m {line}"), &layer), &inputs);

            let mut states = vec![h.clone(), c.clone()];
            states.truncate(count);
            let same = |found: &[Tensor]| {
                assert_eq!(found.len(), count);
                for (x, y) in found.iter().zip(&expected[1..]) {
                    assert_eq!(x.shape().dims(), [3, 4]);
                    let y = Tensor::from_slice(&values::<f32>(y), [3, 4]).unwrap();
                    assert_close(x, &y, BOUND);
                }
            };
            // As a module.
            let cell_weights: Vec<(&str, Tensor)> =
                layer.iter().map(|(name, t)| (name.trim_end_matches("_l0"), t.clone())).collect();
            let line = match lstm {
                true => "3 2 0 1 2 7 8 input_size=5 hidden_size=4",
                false => "2 1 0 1 7 input_size=5 hidden_size=4",
            };
            let module = op_with(&format!("nn.{module}Cell m {line}"), &cell_weights);
            let inputs: Vec<Tensor> = std::iter::once(&x).chain(&states).cloned().collect();
            same(&check(&*module, &inputs));
            // As a function.
            let outs = if lstm { "7 8" } else { "7" };
            let native = op(&format!("aten::{cell}_cell m 6 {count} 0 1 2 3 4 5 {outs}"));
            let mut given = specs(&states);
            let given = if lstm { ValueSpec::List(given) } else { given.remove(0) };
            let mut all = vec![x.spec().into(), given];
            all.extend(w.iter().cloned().map(ValueSpec::from));
            let data: Vec<Tensor> = inputs.iter().chain(&w).cloned().collect();
            same(&check_values(&*native, &all, &data));
        }
    }

    #[test]
    fn a_cell_without_states_or_batch() {
        let weights = [("weight_ih", random([4, 5], 1)), ("weight_hh", random([4, 4], 2))];
        let cell = op_with(
            "nn.RNNCell m 1 1 0 1 input_size=5 hidden_size=4 bias=False nonlinearity=relu",
            &weights,
        );
        let x = random([5], 3);
        let y = values::<f32>(&check(&*cell, std::slice::from_ref(&x))[0]);
        let (w, x) = (values::<f32>(&weights[0].1), values::<f32>(&x));
        for (row, y) in w.chunks_exact(5).zip(y) {
            let sum: f32 = row.iter().zip(&x).map(|(w, x)| w * x).sum();
            assert!((sum.max(0.0) - y).abs() < BOUND);
        }
    }

    #[test]
    fn what_does_not_fit() {
        let trained = try_op("aten::gru m 9 2 0 1 2 =True =1 =0.5 =True =False =False 7 8", &[]);
        assert!(trained.unwrap_err().to_string().contains("random"));
        // More layers than weights.
        let gru =
            op("aten::gru m 9 2 0 1 2 =False =900000000000000000 =0.0 =False =True =False 7 8");
        let list = specs(&[random([12, 5], 1), random([12, 4], 2)]);
        let (x, h) = (random([6, 3, 5], 1), random([1, 3, 4], 2));
        let mut inputs = vec![x.spec().into(), h.spec().into(), ValueSpec::List(list)];
        inputs.extend((0..6).map(|_| ValueSpec::python(1i64).unwrap()));
        assert!(gru.infer(&inputs).unwrap_err().to_string().contains("2 weights"));
        let one = op("aten::gru m 9 2 0 1 2 =False =1 =0.0 =False =False =False 7 8");
        assert!(one.infer(&inputs).is_ok());
        inputs[2] = ValueSpec::List(specs(&[random([12, 5], 1), random([12, 3], 2)]));
        assert!(one.infer(&inputs).is_err());
        inputs[2] = ValueSpec::List(specs(&[random([11, 5], 1), random([11, 4], 2)]));
        assert!(one.infer(&inputs).is_err());
        let cell = op("aten::gru_cell m 6 1 0 1 2 3 =None =None 7");
        let given = [random([3, 5], 1), random([3, 4], 2), random([12, 5], 3), random([12, 3], 4)];
        let none = |_| ValueSpec::python(0i64).unwrap();
        let all: Vec<_> = specs(&given).into_iter().chain((0..2).map(none)).collect();
        let par = plutino_kernels::Par::serial();
        assert!(eager::run(&*cell, &all, &given, plutino_kernels::Isa::best(), &par).is_err());
    }
}

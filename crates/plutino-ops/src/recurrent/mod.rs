//! Recurrent networks: `nn.LSTM`, `nn.GRU`, `nn.RNN`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html> and its neighbours. The input is
//! `(L, N, features)`, `(N, L, features)` with `batch_first`, or `(L, features)` of a single
//! sequence; initial states (`(layers * directions, N, state)`, zeros where they are not given) do
//! not follow `batch_first`. Results: the last layer's states of all time steps, directions side by
//! side; the final states of every layer. Which of them the outputs are is found in [`results`].

mod native;
mod packed;
mod plan;
mod results;

use self::results::{Part, Sizes, results};
use crate::support::halves;
use crate::support::weights::{Bound, Elements, Source, optional};
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_ir::Dim;
use plutino_kernels::gemm::{MatrixUnit, Narrow, Target};
use plutino_kernels::number::Float;
use plutino_kernels::recurrent::recurrent_any;
use plutino_kernels::recurrent::{Cell, PackedLayer, Recurrent, Reduced, Shape, States};
use plutino_kernels::tiles::Terms;
use plutino_kernels::{Activation, for_floats};
use plutino_tensor::{DType, TensorSpec, alloc};
use std::sync::Arc;

register_op!(lstm => "nn.LSTM");
register_op!(gru => "nn.GRU");
register_op!(rnn => "nn.RNN");

/// A stack of recurrent layers.
#[derive(Debug)]
struct Network {
    cell: Cell,
    features: usize,
    hidden: usize,
    state: usize,
    directions: usize,
    batch_first: bool,
    /// Layers, and in each the directions.
    layers: Vec<Vec<Direction>>,
    input: usize,
    /// Inputs that hold h and, of an LSTM, c.
    initial: Vec<usize>,
    /// What each output is.
    outputs: Vec<Part>,
}

/// The weights of one direction of a layer, under PyTorch's names.
#[derive(Debug)]
struct Direction {
    weight_ih: Source,
    weight_hh: Source,
    bias: Option<(Source, Source)>,
    weight_hr: Option<Source>,
}

impl Direction {
    /// All weights.
    fn weights(&self) -> impl Iterator<Item = &Source> {
        let bias = self.bias.iter().flat_map(|(ih, hh)| [ih, hh]);
        [&self.weight_ih, &self.weight_hh].into_iter().chain(bias).chain(&self.weight_hr)
    }
}

fn lstm(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let projection = r.or("proj_size", 0)?;
    network(r, Cell::Lstm, projection)
}

fn gru(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    network(r, Cell::Gru, 0)
}

fn rnn(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let table = [("tanh", Activation::Tanh), ("relu", Activation::Relu)];
    let activation = r.one_of("nonlinearity", &table, Some(Activation::Tanh))?;
    network(r, Cell::Rnn(activation), 0)
}

fn network(
    r: &mut NodeReader<'_>,
    cell: Cell,
    projection: usize,
) -> Result<Box<dyn Operator>, BuildError> {
    let features: usize = r.required("input_size")?;
    let hidden: usize = r.required("hidden_size")?;
    let gates = cell.gates().checked_mul(hidden).filter(|&g| g > 0);
    let gates = gates.ok_or_else(|| r.bad("hidden_size", "an integer of at least 1"))?;
    if projection >= hidden {
        return Err(r.bad("proj_size", "less than hidden_size"));
    }
    let state = if projection > 0 { projection } else { hidden };
    let layers: usize = r.or("num_layers", 1)?;
    if layers == 0 {
        return Err(r.bad("num_layers", "an integer of at least 1"));
    }
    let bias = r.or("bias", true)?;
    let directions = if r.or("bidirectional", false)? { 2 } else { 1 };
    let direction = |r: &mut NodeReader<'_>, layer: usize, suffix: &str| {
        let name = |weight: &str| format!("{weight}_l{layer}{suffix}");
        let columns = if layer == 0 { features } else { state * directions };
        Ok(Direction {
            weight_ih: Source::Stored(r.weight(&name("weight_ih"), &[gates, columns])?),
            weight_hh: Source::Stored(r.weight(&name("weight_hh"), &[gates, state])?),
            bias: stored_bias(r, bias, [&name("bias_ih"), &name("bias_hh")], gates)?,
            weight_hr: r
                .weight_if(projection > 0, &name("weight_hr"), &[state, hidden])?
                .map(Source::Stored),
        })
    };
    // Stops at the first weight that is missing, however many layers the file claims to have.
    let mut read = Vec::new();
    for layer in 0..layers {
        let suffixes = &["", "_reverse"][..directions];
        let layer: Result<Vec<_>, BuildError> =
            suffixes.iter().map(|suffix| direction(r, layer, suffix)).collect();
        read.push(layer?);
    }
    let batch_first = r.or("batch_first", false)?;
    let (input, initial) =
        inputs(r, cell, [features, layers.saturating_mul(directions), state, hidden])?;
    let sizes = Sizes {
        lstm: cell == Cell::Lstm,
        batch_first,
        rows: layers.saturating_mul(directions),
        widths: [state.saturating_mul(directions), state, hidden],
    };
    let outputs = results(r, input, &sizes)?;
    Ok(Box::new(Network {
        cell,
        features,
        hidden,
        state,
        directions,
        batch_first,
        layers: read,
        input,
        initial,
        outputs,
    }))
}

/// The input, and the initial states: h, and c of an LSTM.
///
/// pnnx writes constants of a module first, so that states which are parameters or buffers stand
/// before the input; and a tensor once that is both states of an LSTM, which are as wide then.
fn inputs(
    r: &mut NodeReader<'_>,
    cell: Cell,
    [features, rows, state, hidden]: [usize; 4],
) -> Result<(usize, Vec<usize>), BuildError> {
    let named = ["input", "initial_h", "initial_c"].iter().any(|key| r.names_input(key));
    let mut all = vec![r.required_input("input")?];
    all.extend(r.input("initial_h"));
    all.extend(if cell == Cell::Lstm { r.input("initial_c") } else { None });
    let last = |at: usize| r.recorded_input(at).and_then(|dims| dims.last());
    // What the file records rules out that an input is the input, or a state.
    let is_input = |at: usize| !matches!(last(at), Some(Dim::Known(n)) if *n != features);
    let is_state = |at: usize| match r.recorded_input(at) {
        Some([first, .., last]) => {
            let is = |dim: &Dim, size: usize| !matches!(dim, Dim::Known(n) if *n != size);
            is(first, rows) && (cell == Cell::Lstm || is(last, state))
        }
        _ => true,
    };
    let states = all.split_last().map_or(&[][..], |(_, states)| states);
    let turned = !named
        && !states.is_empty()
        && states.iter().all(|&at| r.is_constant(at) && is_state(at))
        && all.last().is_some_and(|&at| !r.is_constant(at) && is_input(at));
    if turned {
        all.rotate_right(1);
    }
    let mut initial = all.split_off(1);
    if let (Cell::Lstm, &[both]) = (cell, &initial[..]) {
        let c = if state == hidden { Ok(both) } else { r.required_input("initial_c") };
        initial.push(c?);
    }
    Ok((all[0], initial))
}

/// The two biases of a module, where `present` holds.
fn stored_bias(
    r: &mut NodeReader<'_>,
    present: bool,
    [ih, hh]: [&str; 2],
    gates: usize,
) -> Result<Option<(Source, Source)>, BuildError> {
    let ih = r.weight_if(present, ih, &[gates])?;
    let hh = r.weight_if(present, hh, &[gates])?;
    Ok(ih.map(Source::Stored).zip(hh.map(Source::Stored)))
}

/// The results of a network for given inputs.
struct Results {
    steps: usize,
    batch: usize,
    /// The sequence, h and, of an LSTM, c.
    parts: Vec<TensorSpec>,
}

impl Results {
    /// Elements of each result; of c none where there is no c.
    fn lens(&self) -> [usize; 3] {
        let mut lens = [0; 3];
        for (len, part) in lens.iter_mut().zip(&self.parts) {
            *len = part.shape.numel();
        }
        lens
    }
}

impl Network {
    fn results(&self, inputs: &[ValueSpec]) -> Result<Results, ShapeError> {
        let x = &TensorValue::at(inputs, self.input)?.spec;
        let weights = self.dtype(inputs)?;
        if x.dtype != weights || !weights.is_float() {
            let expected = weights.to_string();
            return Err(ShapeError::DType { input: self.input, expected, found: x.dtype });
        }
        let rank = x.shape.rank();
        let (steps, batch) = match *x.shape.dims() {
            [steps, _] => (steps, 1),
            [batch, steps, _] if self.batch_first => (steps, batch),
            [steps, batch, _] => (steps, batch),
            _ => {
                let (expected, found) = ("2 or 3".into(), x.shape.clone());
                return Err(ShapeError::Rank { input: self.input, expected, found });
            }
        };
        let size = |dim: usize, expected: String| ShapeError::Size {
            input: self.input,
            dim,
            expected,
            found: x.shape.clone(),
        };
        if x.shape.last() != Some(&self.features) {
            return Err(size(rank - 1, self.features.to_string()));
        }
        if steps == 0 {
            let dim = usize::from(self.batch_first && rank == 3);
            return Err(size(dim, "at least 1: the time steps".into()));
        }
        let mut y = x.shape.clone();
        y[rank - 1] = self.state * self.directions;
        y.checked_numel()?;
        let rows = self.layers.len() * self.directions;
        let state = |width: usize| -> Result<TensorSpec, ShapeError> {
            let dims = if rank == 2 { vec![rows, width] } else { vec![rows, batch, width] };
            let shape = plutino_tensor::Shape::from(&dims[..]);
            shape.checked_numel()?;
            Ok(TensorSpec::new(x.dtype, shape))
        };
        let mut parts = vec![TensorSpec::new(x.dtype, y), state(self.state)?];
        if self.cell == Cell::Lstm {
            parts.push(state(self.hidden)?);
        }
        for (&input, state) in self.initial.iter().zip(&parts[1..]) {
            let given = &TensorValue::at(inputs, input)?.spec;
            if (&given.shape, given.dtype) != (&state.shape, state.dtype) {
                let text = format!("the initial state must be {state}, found {given}");
                return Err(ShapeError::Invalid(text));
            }
        }
        Ok(Results { steps, batch, parts })
    }

    /// The dtype of the weights; the first stands for all, and planning refuses others.
    fn dtype(&self, inputs: &[ValueSpec]) -> Result<DType, ShapeError> {
        let first = self.layers.first().and_then(|l| l.first());
        first.map_or(Ok(DType::F32), |d| Ok(d.weight_ih.spec(inputs)?.dtype))
    }

    /// The sizes of each layer.
    fn shapes(&self, results: &Results) -> Vec<Shape> {
        let shape = |layer: usize| Shape {
            cell: self.cell,
            steps: results.steps,
            batch: results.batch,
            batch_first: self.batch_first,
            features: if layer == 0 { self.features } else { self.state * self.directions },
            hidden: self.hidden,
            state: self.state,
            directions: self.directions,
        };
        (0..self.layers.len()).map(shape).collect()
    }
}

impl Operator for Network {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let parts = self.results(inputs)?.parts;
        let one = |&part: &Part| parts.get(part as usize).cloned().map(ValueSpec::from);
        // A file names c of an LSTM only: see `results`.
        self.outputs.iter().map(|part| one(part).ok_or_else(|| absent(*part))).collect()
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let results = self.results(cx.inputs)?;
        let shapes = self.shapes(&results);
        let dtype = self.dtype(cx.inputs)?;
        let mut weights = self.layers.iter().flatten().flat_map(Direction::weights);
        // Weights that are computed are not worth packing at every run.
        let known = weights.all(|w| w.is_known(cx.inputs));
        if dtype == DType::F32 && known {
            return self.plan_f32(cx, &results, &shapes);
        }
        if halves::is_half(dtype) && known {
            return halves::widened(cx, |cx| self.plan_f32(cx, &results, &shapes));
        }
        for_floats!(dtype,
            T => self.plan_any::<T>(cx, results.lens(), shapes),
            _ => Err(PlanError::Unsupported(format!("a recurrent network of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let moved = Cost::moved(inputs, outputs);
        let Ok(found) = self.results(inputs) else { return moved };
        let product = |factors: &[usize]| {
            factors.iter().fold(1u64, |all, &factor| all.saturating_mul(factor as u64))
        };
        self.shapes(&found).iter().fold(moved, |cost, shape| {
            let weights = product(&[shape.directions, shape.gates(), shape.features + shape.state]);
            cost.plus(Cost {
                flops: product(&[2, shape.rows()]).saturating_mul(weights),
                bytes: weights.saturating_mul(4),
                ..Cost::default()
            })
        })
    }
}

/// A result that this network does not have.
fn absent(part: Part) -> ShapeError {
    ShapeError::Invalid(format!("this network has no result {part:?}"))
}

#[cfg(test)]
mod tests {
    use super::{Cell, NodeReader, inputs};
    use crate::Operator;
    use crate::testkit::{assert_close, check, error, op_with, random, try_op, values};
    use plutino_tensor::{DType, Tensor};

    /// The weights of a network under PyTorch's names, in -1/2..1/2.
    fn weights(
        gates: usize,
        [features, hidden, state]: [usize; 3],
        layers: usize,
        directions: usize,
    ) -> Vec<(String, Tensor)> {
        let mut all = Vec::new();
        for layer in 0..layers {
            for suffix in &["", "_reverse"][..directions] {
                let columns = if layer == 0 { features } else { state * directions };
                let mut add = |name: &str, dims: &[usize]| {
                    let values = values::<f32>(&random(dims, all.len() as u64));
                    let halves: Vec<f32> = values.iter().map(|v| v * 0.5).collect();
                    let tensor = Tensor::from_slice(&halves, dims).unwrap();
                    all.push((format!("{name}_l{layer}{suffix}"), tensor));
                };
                add("weight_ih", &[gates * hidden, columns]);
                add("weight_hh", &[gates * hidden, state]);
                add("bias_ih", &[gates * hidden]);
                add("bias_hh", &[gates * hidden]);
                if state != hidden {
                    add("weight_hr", &[state, hidden]);
                }
            }
        }
        all
    }

    fn network(line: &str, weights: &[(String, Tensor)]) -> Box<dyn Operator> {
        let weights: Vec<(&str, Tensor)> =
            weights.iter().map(|(name, t)| (&name[..], t.clone())).collect();
        op_with(line, &weights)
    }

    const LSTM: &str = "nn.LSTM m 3 3 0 1 2 7 8 9 input_size=5 hidden_size=4 num_layers=2 bidirectional=True \
                        batch_first=True bias=True proj_size=3";

    // Two layers of four steps; sums of at most a dozen terms below 1 in size, off by a few ULP in
    // all.
    const BOUND: f32 = 40.0 * f32::EPSILON;

    #[test]
    fn f32_and_f64_agree_on_all_outputs() {
        let cases = [
            (LSTM.to_owned(), 4, [5, 4, 3]),
            (LSTM.replace("LSTM", "GRU").replace(" proj_size=3", ""), 3, [5, 4, 4]),
            (LSTM.replace("LSTM", "RNN").replace("proj_size=3", "nonlinearity=relu"), 1, [5, 4, 4]),
        ];
        for (line, gates, [features, hidden, state]) in cases {
            let lstm = gates == 4;
            let line = if lstm { line } else { line.replace("3 3 0 1 2 7 8 9", "2 2 0 1 7 8") };
            let weights = weights(gates, [features, hidden, state], 2, 2);
            let wide: Vec<_> = weights
                .iter()
                .map(|(n, t)| (n.clone(), t.view().cast(DType::F64).unwrap()))
                .collect();
            let mut inputs = vec![
                random([3, 4, features], 1),
                random([4, 3, state], 2),
                random([4, 3, hidden], 3),
            ];
            inputs.truncate(if lstm { 3 } else { 2 });
            let wide_inputs: Vec<Tensor> =
                inputs.iter().map(|t| t.view().cast(DType::F64).unwrap()).collect();
            let found = check(&*network(&line, &weights), &inputs);
            let expected = check(&*network(&line, &wide), &wide_inputs);
            assert_eq!(found.len(), if lstm { 3 } else { 2 });
            assert_eq!(found[0].shape().dims(), [3, 4, 2 * state]);
            for (x, y) in found.iter().zip(&expected) {
                assert_close(x, &y.view().cast(DType::F32).unwrap(), BOUND);
            }
        }
    }

    #[test]
    fn one_sequence_without_states_is_a_batch_of_one_with_zeros() {
        let weights = weights(4, [5, 4, 3], 2, 2);
        let x = random([1, 6, 5], 1);
        let zeros =
            |width: usize| Tensor::from_slice(&vec![0f32; 4 * width], [4, 1, width]).unwrap();
        let batched = check(&*network(LSTM, &weights), &[x.clone(), zeros(3), zeros(4)]);
        let flat = Tensor::from_slice(&values::<f32>(&x), [6, 5]).unwrap();
        for (arity, outputs) in [("1 3 0 7 8 9", 3), ("1 1 0 7", 1)] {
            let line = LSTM.replace("3 3 0 1 2 7 8 9", arity);
            let found = check(&*network(&line, &weights), std::slice::from_ref(&flat));
            assert_eq!(found.len(), outputs);
            assert_eq!(found[0].shape().dims(), [6, 6]);
            for (x, y) in found.iter().zip(&batched) {
                assert_eq!(values::<f32>(x), values::<f32>(y));
            }
        }
    }

    #[test]
    fn a_gated_unit_by_hand() {
        // r = z = sigmoid(0), n = tanh(x + r (h + 1)): the bias of the hidden part is inside the
        // reset.
        let one = |v: &[f32]| Tensor::from_slice(v, [3, 1]).unwrap();
        let bias = Tensor::from_slice(&[0f32, 0.0, 1.0], [3]).unwrap();
        let none = Tensor::from_slice(&[0f32; 3], [3]).unwrap();
        let weights = [
            ("weight_ih_l0", one(&[0.0, 0.0, 1.0])),
            ("weight_hh_l0", one(&[0.0, 0.0, 1.0])),
            ("bias_ih_l0", none),
            ("bias_hh_l0", bias),
        ];
        let gru = op_with("nn.GRU m 2 2 0 1 2 3 input_size=1 hidden_size=1", &weights);
        let scalar = |v: f32| Tensor::from_slice(&[v], [1, 1]).unwrap();
        let y = check(&*gru, &[scalar(0.25), scalar(0.5)]);
        let expected = 0.5 * f32::tanh(0.25 + 0.5 * 1.5) + 0.25;
        assert_close(&y[1], &scalar(expected), 4.0 * f32::EPSILON);
    }

    /// The positions of the input and of the states of a node that reads operands of these types,
    /// of which those with a `C` are constants of the model.
    fn positions(cell: Cell, types: &[&str]) -> (usize, Vec<usize>) {
        let mut text = format!("7767517\n{0} {0}\n", types.len() + 1);
        for (i, ty) in types.iter().enumerate() {
            text += &match ty.strip_prefix('C') {
                Some(ty) => format!("pnnx.Attribute a{i} 0 1 {i} @data={ty} #{i}={ty}\n"),
                None => format!("pnnx.Input in{i} 0 1 {i} #{i}={ty}\n"),
            };
        }
        let operands: Vec<String> = (0..types.len()).map(|i| i.to_string()).collect();
        text += &format!("nn.GRU m {} 1 {} y\n", types.len(), operands.join(" "));
        let graph = plutino_ir::Graph::parse(&text).unwrap();
        let (_, op) = graph.operators().last().unwrap();
        let call = crate::native::Call::default();
        let mut reader = NodeReader::in_graph("t.param", &graph, op, &call);
        inputs(&mut reader, cell, [6, 2, 4, 4]).unwrap()
    }

    #[test]
    fn states_that_are_constants_stand_before_the_input() {
        let (x, h) = ("(3,5,6)f32", "(2,5,4)f32");
        let constant = format!("C{h}");
        let (gru, lstm) = (Cell::Gru, Cell::Lstm);
        assert_eq!(positions(gru, &[x, h]), (0, vec![1]));
        assert_eq!(positions(gru, &[&constant, x]), (1, vec![0]));
        assert_eq!(positions(gru, &["C(2,5,4)f32", "(?,?,6)f32"]), (1, vec![0]));
        assert_eq!(positions(lstm, &[&constant, &constant, x]), (2, vec![0, 1]));
        // An input that is a constant, and a state that is computed.
        assert_eq!(positions(gru, &["C(3,5,6)f32", h]), (0, vec![1]));
        assert_eq!(positions(gru, &["C(2,5,6)f32", "(2,5,6)f32"]), (0, vec![1]));
        // Where nothing tells, a state is what modules have as parameters.
        assert_eq!(positions(gru, &[&constant, "(?,?,?)f32"]), (1, vec![0]));
        // One tensor that is both states of an LSTM.
        assert_eq!(positions(lstm, &[x, h]), (0, vec![1, 1]));
        assert_eq!(positions(lstm, &[&constant, x]), (1, vec![0, 0]));
    }

    /// The outputs of a node that records these shapes, as numbers of the three results, or its
    /// error.
    fn recorded(line: &str, shapes: &str, projection: usize) -> Result<Vec<usize>, String> {
        let (gates, state) = match line {
            "LSTM" => (4, if projection > 0 { projection } else { 4 }),
            line => (if line == "GRU" { 3 } else { 1 }, 4),
        };
        let weights = weights(gates, [5, 4, state], 2, 2);
        let borrowed: Vec<(&str, Tensor)> =
            weights.iter().map(|(name, t)| (&name[..], t.clone())).collect();
        let build = |arity: &str, rest: &str| {
            let sizes =
                "input_size=5 hidden_size=4 num_layers=2 bidirectional=True batch_first=True";
            let own =
                if line == "LSTM" { format!("proj_size={projection}") } else { String::new() };
            try_op(&format!("nn.{line} m {arity} {sizes} {own} {rest}"), &borrowed)
        };
        let x = random([3, 6, 5], 1);
        let all = build(if line == "LSTM" { "1 3 0 7 8 9" } else { "1 2 0 7 8" }, "").unwrap();
        let all = check(&*all, std::slice::from_ref(&x));
        let records: String =
            shapes.split(' ').enumerate().map(|(i, s)| format!(" #{}={s}f32", i + 7)).collect();
        let count = shapes.split(' ').count();
        let names: String = (0..count).map(|i| format!(" {}", i + 7)).collect();
        let operator = build(&format!("1 {count} 0{names}"), &format!("#0=(3,6,5)f32{records}"));
        let found = check(&*operator.map_err(|e| e.to_string())?, &[x]);
        let which = |y: &Tensor| all.iter().position(|z| y == z).unwrap();
        Ok(found.iter().map(which).collect())
    }

    #[test]
    fn recorded_shapes_say_which_results_the_outputs_are() {
        for gated in ["GRU", "RNN"] {
            for (shapes, results) in [
                ("(3,6,8)", &[0][..]),
                ("(4,3,4)", &[1]),
                ("(3,6,8) (4,3,4)", &[0, 1]),
                ("(4,3,4) (3,6,8)", &[1, 0]),
                ("(1,2,3)", &[0]), // of another network
            ] {
                assert_eq!(recorded(gated, shapes, 0).unwrap(), results, "{gated} {shapes}");
            }
        }
        for (shapes, projection, results) in [
            ("(3,6,8)", 0, &[0][..]),
            ("(4,3,4) (4,3,4)", 0, &[1, 2]),
            ("(4,3,4) (3,6,8) (4,3,4)", 0, &[1, 0, 2]),
            // h has three columns, c has four.
            ("(3,6,6)", 3, &[0]),
            ("(4,3,3)", 3, &[1]),
            ("(4,3,4)", 3, &[2]),
            ("(4,3,4) (4,3,3)", 3, &[2, 1]),
            ("(4,3,4) (3,6,6)", 3, &[2, 0]),
            ("(3,6,6) (4,3,4) (4,3,3)", 3, &[0, 2, 1]),
        ] {
            assert_eq!(recorded("LSTM", shapes, projection).unwrap(), results, "{shapes}");
        }
    }

    #[test]
    fn states_that_cannot_be_told_apart_are_refused() {
        for shapes in ["(4,3,4)", "(3,6,8) (4,3,4)", "(4,3,4) (3,6,8)"] {
            let error = recorded("LSTM", shapes, 0).unwrap_err();
            assert!(error.contains("which of the final states h and c"), "{error}");
        }
        assert!(recorded("LSTM", "(1,2,3) (1,2,3)", 0).unwrap_err().contains("1 or 3 outputs"));
        assert!(recorded("GRU", "(3,6,8) (4,3,4) (4,3,4)", 0).is_err());
    }

    #[test]
    fn a_sequence_of_as_many_steps_as_rows_is_the_sequence() {
        let weights = weights(3, [5, 4, 4], 1, 1);
        let sizes = "input_size=5 hidden_size=4";
        for shape in ["(1,2,4)", "(1,?,4)"] {
            let x = shape.replace('4', "5");
            let line = format!("nn.GRU m 1 1 0 7 {sizes} #0={x}f32 #7={shape}f32");
            let y = check(&*network(&line, &weights), &[random([3, 2, 5], 1)]);
            assert_eq!(y[0].shape().dims(), [3, 2, 4]);
        }
        // Sizes that changed at the export are recorded as unknown.
        let line = format!("nn.GRU m 1 1 0 7 {sizes} #0=(?,?,5)f32 #7=(1,?,4)f32");
        let h = check(&*network(&line, &weights), &[random([3, 2, 5], 1)]);
        assert_eq!(h[0].shape().dims(), [1, 2, 4]);
    }

    #[test]
    fn states_alone_in_another_precision() {
        let weights = weights(1, [5, 4, 4], 1, 1);
        let wide: Vec<_> =
            weights.iter().map(|(n, t)| (n.clone(), t.view().cast(DType::F64).unwrap())).collect();
        let line = "nn.RNN m 1 1 0 7 input_size=5 hidden_size=4 #0=(6,2,5)f32 #7=(1,2,4)f32";
        let x = random([6, 2, 5], 1);
        let found = check(&*network(line, &weights), std::slice::from_ref(&x));
        let wide_x = x.view().cast(DType::F64).unwrap();
        let expected = check(&*network(line, &wide), &[wide_x]);
        assert_close(&found[0], &expected[0].view().cast(DType::F32).unwrap(), BOUND);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let weights = weights(4, [5, 4, 3], 2, 2);
        let lstm = network(LSTM, &weights);
        let (h, c) = (random([4, 3, 3], 1), random([4, 3, 4], 1));
        let x = |dims: &[usize]| random(dims, 1);
        error(&*lstm, &[x(&[3, 4, 6]), h.clone(), c.clone()]); // features
        error(&*lstm, &[x(&[2, 4, 5]), h.clone(), c.clone()]); // batch of the states
        error(&*lstm, &[x(&[3, 0, 5]), h.clone(), c.clone()]); // no steps
        error(&*lstm, &[x(&[5]), h.clone(), c.clone()]);
        error(&*lstm, &[x(&[3, 4, 5]).view().cast(DType::F64).unwrap(), h, c]);
        let borrowed: Vec<(&str, Tensor)> =
            weights.iter().map(|(name, t)| (&name[..], t.clone())).collect();
        for (from, to) in [
            ("3 3 0 1 2 7 8 9", "3 2 0 1 2 7 8"),
            ("3 3 0 1 2 7 8 9", "3 4 0 1 2 7 8 9 10"),
            ("3 3 0 1 2 7 8 9", "2 3 0 1 7 8 9"),
            ("hidden_size=4", "hidden_size=0"),
            ("num_layers=2", "num_layers=9000000000000000000"),
            ("num_layers=2", "num_layers=0"),
            ("proj_size=3", "proj_size=4"),
            ("bidirectional=True", "bidirectional=False"),
        ] {
            assert!(try_op(&LSTM.replace(from, to), &borrowed).is_err(), "{to}");
        }
    }
}

//! What the tests of all operators share: an operator from one line of a `.param` file, and its
//! results on every instruction set and thread count. For tests alone: everything in here panics
//! where something is not as it should be.
//!
//! ```
//! use plutino_ops::testkit::{check, op, tensor, values};
//!
//! let relu = op("nn.ReLU r 1 1 0 1");
//! let y = check(&*relu, &[tensor([3], &[-1.0f32, 0.0, 2.0])]);
//! assert_eq!(values::<f32>(&y[0]), [0.0, 0.0, 2.0]);
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking
#![allow(clippy::missing_panics_doc, clippy::missing_errors_doc)] // said above, once

use crate::eager::{self, EagerError, Memory};
use crate::{
    BuildError, LayoutCx, Operator, PackCache, PlanCx, PlanError, Planned, Precision, Setting,
    ShapeError, Units, ValueSpec, registry,
};
use plutino_ir::{Attribute, Graph};
use plutino_kernels::{Isa, Par, Pool};
use plutino_tensor::{DType, Element, Layout, Shape, Tensor, TensorSpec};
use std::fmt::Write;

/// The operator of a line such as `nn.ReLU name 1 1 in out key=value $key=in`.
#[track_caller]
pub fn op(line: &str) -> Box<dyn Operator> {
    op_with(line, &[])
}

/// The operator of a line, with these weights.
#[track_caller]
pub fn op_with(line: &str, weights: &[(&str, Tensor)]) -> Box<dyn Operator> {
    try_op(line, weights).unwrap_or_else(|e| panic!("{e}"))
}

/// As [`op_with`], for lines that may be wrong.
#[track_caller]
pub fn try_op(line: &str, weights: &[(&str, Tensor)]) -> Result<Box<dyn Operator>, BuildError> {
    let mut tokens: Vec<&str> = line.split_whitespace().collect();
    let count = |i: usize| tokens[i].parse::<usize>().unwrap();
    let (n_in, n_out) = (count(2), count(3));
    let mut inputs = tokens[4..4 + n_in].to_vec();
    inputs.sort_unstable();
    inputs.dedup();
    // What begins with an equals sign is no operand's name, but a constant.
    let names: Vec<String> = (0..inputs.len())
        .map(|i| if inputs[i].starts_with('=') { format!("c{i}") } else { inputs[i].to_owned() })
        .collect();
    for token in &mut tokens[4..4 + n_in] {
        *token = &names[inputs.iter().position(|input| input == token).unwrap()];
    }
    let mut text = format!("7767517\n{} {}\n", inputs.len() + 1, inputs.len() + n_out);
    for (name, input) in names.iter().zip(&inputs) {
        let (kind, expr) = match input.strip_prefix('=') {
            Some(constant) => ("pnnx.Expression", format!("expr={constant}")),
            None => ("pnnx.Input", String::new()),
        };
        writeln!(text, "{kind} in_{name} 0 1 {name} {expr}").unwrap();
    }
    text += &tokens.join(" ");
    let mut graph = Graph::parse(&text).unwrap_or_else(|e| panic!("{line}: {e}"));
    let id = graph.operator_by_name(tokens[1]).unwrap();
    let attrs = graph.attrs_mut(id).unwrap();
    for (name, t) in weights {
        let dtype = t.dtype().name().parse().unwrap();
        let data = t.as_bytes().to_vec();
        attrs.insert((*name).to_owned(), Attribute::new(dtype, t.shape().dims(), data).unwrap());
    }
    registry().unwrap().build("test.pnnx.param", &graph, &graph[id])
}

/// A tensor of these values.
#[track_caller]
pub fn tensor<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Tensor {
    Tensor::from_slice(values, shape).unwrap()
}

/// The f32 tensor 0, 1, 2, ...
#[track_caller]
pub fn iota(shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    let values: Vec<f32> = (0..shape.numel()).map(|i| i as f32).collect();
    tensor(shape, &values)
}

/// An f32 tensor of values in -1..1, the same for the same seed (splitmix64).
#[track_caller]
pub fn random(shape: impl Into<Shape>, seed: u64) -> Tensor {
    let (shape, mut state) = (shape.into(), seed);
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = std::iter::repeat_with(next).take(shape.numel()).collect();
    tensor(shape, &values)
}

/// The elements of a tensor.
#[track_caller]
pub fn values<T: Element>(t: &Tensor) -> Vec<T> {
    t.as_slice::<T>().unwrap().to_vec()
}

/// The results (all leaves) for these inputs on the best instruction set. On every one of them
/// ([`check_each`]) the bits must be the same for 1, 2 and 3 threads, in place wherever the plan
/// offers that, and whatever outputs and scratch memory hold beforehand.
#[track_caller]
pub fn check(operator: &dyn Operator, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut last = Vec::new();
    check_each(operator, &specs(inputs), inputs, |_, found| last = found.to_vec());
    last
}

/// The first result of a line for these inputs.
#[track_caller]
pub fn run(line: &str, inputs: &[Tensor]) -> Tensor {
    check(&*op(line), inputs).remove(0)
}

/// As [`check`], with known values, Python numbers or lists among the inputs; `data` holds their
/// leaves.
#[track_caller]
pub fn check_values(operator: &dyn Operator, inputs: &[ValueSpec], data: &[Tensor]) -> Vec<Tensor> {
    let mut last = Vec::new();
    check_each(operator, inputs, data, |_, found| last = found.to_vec());
    last
}

/// The results of a line some of whose inputs are constants: `aten::lerp l 3 1 0 1 =0.5 2`.
/// `tensors` are the others.
#[track_caller]
pub fn check_line(line: &str, tensors: &[Tensor]) -> Vec<Tensor> {
    let (specs, data) = with_constants(line, tensors);
    check_values(&*op(line), &specs, &data)
}

/// As [`check_line`], the error that planning or the run ends with.
#[track_caller]
pub fn line_error(line: &str, tensors: &[Tensor]) -> EagerError {
    let (specs, data) = with_constants(line, tensors);
    let par = plutino_kernels::Par::serial();
    match eager::run(&*op(line), &specs, &data, Isa::best(), &par) {
        Err(e) => e,
        Ok(_) => panic!("{line} accepts {specs:?}"),
    }
}

/// The inputs of a line as planning sees them, and their leaves.
#[track_caller]
fn with_constants(line: &str, tensors: &[Tensor]) -> (Vec<ValueSpec>, Vec<Tensor>) {
    let tokens: Vec<&str> = line.split_whitespace().collect();
    let (mut inputs, mut data, mut tensors) = (Vec::new(), Vec::new(), tensors.iter());
    for name in &tokens[4..4 + tokens[2].parse::<usize>().unwrap()] {
        let spec = match name.strip_prefix('=') {
            Some(text) => {
                let constant = op(&format!("pnnx.Expression e 0 1 c expr={text}"));
                constant.infer(&[]).unwrap().remove(0)
            }
            None => {
                data.push(tensors.next().unwrap().clone());
                inputs.push(data.last().unwrap().spec().into());
                continue;
            }
        };
        let known = |leaf: &ValueSpec| leaf.as_tensor().unwrap().known.clone().unwrap();
        data.extend(spec.leaves().into_iter().map(known));
        inputs.push(spec);
    }
    (inputs, data)
}

/// Calls `each` with the results of every instruction set.
#[track_caller]
pub fn check_each(
    operator: &dyn Operator,
    inputs: &[ValueSpec],
    data: &[Tensor],
    mut each: impl FnMut(Isa, &[Tensor]),
) {
    thread_local!(static POOLS: [Pool; 3] = [1, 2, 3].map(Pool::new));
    let run = |isa, threads: usize, memory| {
        POOLS
            .with(|pools| {
                pools[threads - 1].enter(|par| {
                    let outputs = operator.infer(inputs).map_err(PlanError::from)?;
                    let packs = PackCache::default();
                    let cx = PlanCx {
                        inputs,
                        outputs: &outputs,
                        setting: Setting::new(isa, threads),
                        packs: &packs,
                    };
                    let planned = Planned::of(operator, &cx, &[])?;
                    Ok::<_, EagerError>(eager::execute_in(&planned, &outputs, data, par, memory)?)
                })
            })
            .unwrap_or_else(|e| panic!("{operator:?}: {e}"))
    };
    for isa in Isa::available() {
        let found = run(isa, 1, Memory::Apart { garbage: 0 });
        for threads in [1, 2, 3] {
            // All ones: NaN as a float, -1 as an integer, no bool at all.
            for memory in [Memory::Apart { garbage: 0xff }, Memory::InPlace] {
                let again = run(isa, threads, memory);
                assert!(
                    same(&found, &again),
                    "{operator:?}: {isa}, {threads} threads, {memory:?} differ"
                );
            }
        }
        each(isa, &found);
    }
}

/// Checks that the operator takes these inputs, and makes its output where it says so, as bf16 in
/// rows, and that this changes no bit: at medium precision, with emulated units.
#[track_caller]
pub fn check_bf16(operator: &dyn Operator, inputs: &[Tensor], which: &[usize], output: bool) {
    let setting = Setting { precision: Precision::Medium, ..Setting::new(Isa::PORTABLE, 2) };
    // Units compute whatever they can, not only what pays.
    let setting = Setting { batch_invariant: true, ..setting };
    let cast = |t: &Tensor, to| t.cast(to).unwrap();
    let words = |t: &Tensor| {
        let spec = t.spec().with_layout(Layout::PlainBf16);
        let bf16 = cast(t, DType::Bf16);
        Tensor::from_bytes(DType::F32, spec.physical_shape(), bf16.as_bytes()).unwrap()
    };
    // Such as they are when they are rounded.
    let round = |(i, t): (usize, &Tensor)| match which.contains(&i) {
        true => cast(&cast(t, DType::Bf16), DType::F32),
        false => t.clone(),
    };
    let rounded: Vec<Tensor> = inputs.iter().enumerate().map(round).collect();
    let plain = specs(&rounded);
    for units in [Units::EmulatedBf16, Units::EmulatedAmx] {
        let setting = Setting { units, ..setting };
        let cx = LayoutCx { inputs: &plain, setting };
        let can = operator.bf16(&cx);
        assert!(can.plain && which.iter().all(|&i| can.takes(i)), "{operator:?}: {can:?}");
        assert!(can.output || !output, "{operator:?}: {can:?}");
        let lying = |bf16: bool, mut spec: TensorSpec| -> ValueSpec {
            spec.layout = if bf16 { Layout::PlainBf16 } else { Layout::Plain };
            spec.into()
        };
        let run = |bf16: bool| {
            let made = operator.infer(&plain).unwrap();
            let spec = |value: &ValueSpec| value.as_tensor().unwrap().spec.clone();
            let outputs = [lying(bf16 && output, spec(&made[0]))];
            let own = plain.iter().enumerate();
            let own: Vec<_> =
                own.map(|(i, v)| lying(bf16 && which.contains(&i), spec(v))).collect();
            let packs = PackCache::default();
            let cx = PlanCx { inputs: &own, outputs: &outputs, setting, packs: &packs };
            let planned = Planned::of(operator, &cx, &[]).unwrap();
            let place = |(i, t): (usize, &Tensor)| match bf16 && which.contains(&i) {
                true => words(t),
                false => t.clone(),
            };
            let data: Vec<_> = rounded.iter().enumerate().map(place).collect();
            let memory = [TensorSpec::new(DType::F32, spec(&outputs[0]).physical_shape()).into()];
            let garbage = Memory::Apart { garbage: 0xff };
            let run = |par: &Par| eager::execute_in(&planned, &memory, &data, par, garbage);
            Pool::new(2).enter(run).unwrap().remove(0)
        };
        let (found, expected) = (run(true), run(false));
        let expected = if output { words(&expected) } else { expected };
        assert_eq!(found.as_bytes(), expected.as_bytes(), "{operator:?} by {units:?}");
    }
}

/// The error for these inputs, from whatever stage it comes.
#[track_caller]
pub fn error(operator: &dyn Operator, inputs: &[Tensor]) -> EagerError {
    let par = plutino_kernels::Par::serial();
    match eager::run(operator, &specs(inputs), inputs, Isa::best(), &par) {
        Err(e) => e,
        Ok(_) => panic!("{operator:?} accepts {:?}", specs(inputs)),
    }
}

/// The outputs that `operator` infers for inputs of these shapes.
pub fn infer(operator: &dyn Operator, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
    operator.infer(inputs)
}

/// How planning sees tensors that are only known at run time.
pub fn specs(inputs: &[Tensor]) -> Vec<ValueSpec> {
    inputs.iter().map(|t| t.spec().into()).collect()
}

/// Panics unless dtype and shape are those of `expected`, and |found - expected| <= `bound`
/// everywhere (f32).
#[track_caller]
pub fn assert_close(found: &Tensor, expected: &Tensor, bound: f32) {
    assert_eq!(found.spec(), expected.spec());
    for (i, (x, y)) in values::<f32>(found).into_iter().zip(values::<f32>(expected)).enumerate() {
        let same = x == y || (x.is_nan() && y.is_nan());
        assert!(same || (x - y).abs() <= bound, "[{i}]: {x} instead of {y} (bound {bound:e})");
    }
}

/// Same dtypes, shapes and bits; any f32 NaN equals any other.
fn same(a: &[Tensor], b: &[Tensor]) -> bool {
    let nan_free = |t: &Tensor| match t.as_slice::<f32>() {
        Ok(v) => v.iter().map(|x| if x.is_nan() { f32::NAN } else { *x }.to_bits()).collect(),
        Err(_) => t.as_bytes().iter().map(|&b| u32::from(b)).collect::<Vec<u32>>(),
    };
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.spec() == b.spec() && nan_free(a) == nan_free(b))
}

//! Operators with little arithmetic and every kind of plan, for the tests of this crate: f32 in,
//! f32 out.

use crate::{Model, Session, SessionOptions};
use plutino_ir::Graph;
use plutino_kernels::activation::Activation;
use plutino_ops::{
    Alias, BuildError, Kernel, Neighbour, NodeReader, Operator, PlanCx, PlanError, Planned, Role,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_tensor::{DType, Tensor};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// A model of the operators in `lines`; counts are added.
pub(crate) fn model(lines: &str) -> Model {
    Model::from_graph(graph(lines)).unwrap()
}

/// As [`model`], with numbers between -1 and 1 for all weights (from 1 to 2 for variances).
pub(crate) fn weighted(lines: &str) -> Model {
    let mut graph = graph(lines);
    let ids: Vec<_> = graph.operators().map(|(id, _)| id).collect();
    for id in ids {
        for (name, attr) in graph.attrs_mut(id).unwrap() {
            let number = |i: usize| ((i * 7919 + name.len()) % 31) as f32 / 16.0 - 1.0;
            let number = |i| if name == "running_var" { 1.0 + number(i).abs() } else { number(i) };
            let data: Vec<u8> =
                (0..attr.element_count()).flat_map(|i| number(i).to_le_bytes()).collect();
            attr.set_data(data).unwrap();
        }
    }
    Model::from_graph(graph).unwrap()
}

/// The graph of these operator lines.
pub(crate) fn graph(lines: &str) -> Graph {
    let lines: Vec<&str> = lines.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let words = |l: &&str| l.split_whitespace().nth(3).map_or(0, |n| n.parse::<usize>().unwrap());
    let operands: usize = lines.iter().map(words).sum();
    let text = format!("7767517\n{} {operands}\n{}\n", lines.len(), lines.join("\n"));
    Graph::parse(&text).unwrap()
}

/// A session of one thread.
pub(crate) fn session(lines: &str) -> Session {
    session_with(lines, SessionOptions::default())
}

pub(crate) fn session_with(lines: &str, options: SessionOptions) -> Session {
    model(lines).session(options.with_threads(1)).unwrap()
}

/// A vector.
pub(crate) fn vector(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

/// The elements.
pub(crate) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.as_slice::<f32>().unwrap().to_vec()
}

/// Kernel of a closure.
pub(crate) struct Do<F>(pub(crate) &'static str, pub(crate) F);

impl<F: Fn(&mut RunCx<'_>) -> Result<(), RunError> + Send + Sync> Kernel for Do<F> {
    fn name(&self) -> &str {
        self.0
    }
    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        (self.1)(cx)
    }
}

fn shape_like(inputs: &[ValueSpec], i: usize) -> Result<ValueSpec, ShapeError> {
    Ok(ValueSpec::tensor(DType::F32, TensorValue::at(inputs, i)?.shape().clone()))
}

/// `by * x`, then what it absorbed: with one input more for each sum.
#[derive(Debug, Clone)]
struct Scale {
    by: f32,
    then: Vec<Neighbour>,
}

impl Operator for Scale {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        Ok(vec![shape_like(inputs, 0)?])
    }
    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (by, then) = (self.by, self.then.clone());
        let kernel = Do("scale", move |cx: &mut RunCx<'_>| {
            let mut next = 1;
            let others: Vec<&[f32]> =
                (1..cx.inputs.len()).map(|i| cx.inputs.get(i)).collect::<Result<_, _>>()?;
            let data = cx.inout::<f32>(0, 0)?.into_same();
            data.iter_mut().for_each(|x| *x *= by);
            for neighbour in &then {
                match neighbour {
                    Neighbour::Add => {
                        data.iter_mut().zip(others[next - 1]).for_each(|(x, y)| *x += y);
                        next += 1;
                    }
                    _ => data.iter_mut().for_each(|x| *x = x.max(0.0)),
                }
            }
            Ok(())
        });
        Ok(Planned::new(kernel).in_place(0))
    }
    fn absorb(&self, neighbour: &Neighbour, _: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        match neighbour {
            Neighbour::Add | Neighbour::Activation(Activation::Relu) => {
                let then = [&self.then[..], std::slice::from_ref(neighbour)].concat();
                Some(Box::new(Self { by: self.by, then }))
            }
            _ => None,
        }
    }
}

fn scale(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.required_input("input")?;
    Ok(Box::new(Scale { by: r.required("by")?, then: Vec::new() }))
}
register_op!(scale => "test.Scale");

/// Notes its name, and that it began, in a log of the tests; a copy of its input, where it makes
/// one.
#[derive(Debug)]
struct Note {
    name: String,
    log: String,
    outputs: usize,
    effects: bool,
}

static LOGS: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());

/// What was noted in this log since it was asked for, sorted by who was over first.
pub(crate) fn notes(log: &str) -> Vec<String> {
    LOGS.lock().unwrap().remove(log).unwrap_or_default()
}

impl Operator for Note {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let input = TensorValue::at(inputs, 0)?.clone();
        Ok(std::iter::repeat_n(ValueSpec::Tensor(input), self.outputs).collect())
    }
    fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (name, log) = (self.name.clone(), self.log.clone());
        Ok(Planned::new(Do("note", move |cx: &mut RunCx<'_>| {
            // Those that do not wait are over before those that should have been first.
            std::thread::sleep(Duration::from_millis(if name.starts_with("slow") {
                20
            } else {
                1
            }));
            LOGS.lock().unwrap().entry(log.clone()).or_default().push(name.clone());
            let input: Vec<f32> = cx.inputs.get::<f32>(0)?.to_vec();
            if !cx.outputs.0.is_empty() {
                cx.outputs.take::<f32>(0)?.copy_from_slice(&input);
            }
            Ok(())
        })))
    }
    fn has_effects(&self) -> bool {
        self.effects
    }
}

fn note(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.required_input("input")?;
    let (log, effects) = (r.required("log")?, r.or("effects", true)?);
    let (name, outputs) = (r.name().to_owned(), r.output_count());
    Ok(Box::new(Note { name, log, outputs, effects }))
}
register_op!(note => "test.Note");

/// Operators without parameters.
#[derive(Debug, Clone, Copy)]
enum Plain {
    Relu,
    Add,
    /// Joins along dimension 0.
    Cat,
    /// Flat.
    View,
    /// Two halves of dimension 0.
    Split,
    /// A tuple of `x` and `-x`.
    Pair,
    /// The positive elements, as many as there are.
    Positive,
    /// The first input in the shape that the second one says.
    ReshapeBy,
    /// The sizes, as integers.
    SizeOf,
    /// `10.0, 20.0`.
    Constant,
    /// Refuses negative elements.
    Refuse,
    /// Sleeps for 5 ms.
    Sleep,
    /// Sleeps for a second, in tasks of 2 ms each, and knows of no limits.
    Doze,
    /// Waits until another one runs at the same time, for 10 s at most.
    Meet,
    /// Has no kernel.
    Unplanned,
    /// Uses scratch memory: reverses.
    Reverse,
}

fn plain(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    r.rest();
    Ok(Box::new(match r.kind() {
        "test.Relu" => Plain::Relu,
        "test.Add" => Plain::Add,
        "test.Cat" => Plain::Cat,
        "test.View" => Plain::View,
        "test.Split" => Plain::Split,
        "test.Pair" => Plain::Pair,
        "test.Positive" => Plain::Positive,
        "test.ReshapeBy" => Plain::ReshapeBy,
        "test.SizeOf" => Plain::SizeOf,
        "test.Constant" => Plain::Constant,
        "test.Refuse" => Plain::Refuse,
        "test.Sleep" => Plain::Sleep,
        "test.Doze" => Plain::Doze,
        "test.Meet" => Plain::Meet,
        "test.Unplanned" => Plain::Unplanned,
        _ => Plain::Reverse,
    }))
}
register_op!(plain =>
    "test.Relu", "test.Add", "test.Cat", "test.View", "test.Split", "test.Pair", "test.Positive", "test.ReshapeBy",
    "test.SizeOf", "test.Constant", "test.Refuse", "test.Sleep", "test.Doze", "test.Meet", "test.Reverse", "test.Unplanned",
);

/// Those in `test.Meet` now.
static MEETING: Mutex<usize> = Mutex::new(0);
static MET: Condvar = Condvar::new();

/// Whether somebody else came. Those who come leave together, in pairs.
fn meet() -> bool {
    let mut count = MEETING.lock().unwrap();
    *count += 1;
    if count.is_multiple_of(2) {
        MET.notify_all();
        return true;
    }
    let own = *count;
    let (count, waited) =
        MET.wait_timeout_while(count, Duration::from_secs(10), |count| *count == own).unwrap();
    drop(count);
    !waited.timed_out()
}

impl Operator for Plain {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let rows =
            |i: usize| TensorValue::at(inputs, i).map(|t| t.shape().first().copied().unwrap_or(1));
        Ok(vec![match self {
            Self::Relu
            | Self::Refuse
            | Self::Sleep
            | Self::Doze
            | Self::Meet
            | Self::Reverse
            | Self::Unplanned => shape_like(inputs, 0)?,
            Self::Add => {
                let (a, b) = (TensorValue::at(inputs, 0)?, TensorValue::at(inputs, 1)?);
                ValueSpec::tensor(DType::F32, a.shape().broadcast(b.shape())?)
            }
            Self::Cat => {
                let mut shape = TensorValue::at(inputs, 0)?.shape().clone();
                shape[0] = (0..inputs.len()).map(rows).sum::<Result<usize, _>>()?;
                ValueSpec::tensor(DType::F32, shape)
            }
            Self::View => {
                ValueSpec::tensor(DType::F32, [TensorValue::at(inputs, 0)?.shape().numel()])
            }
            Self::Split => {
                let mut shape = TensorValue::at(inputs, 0)?.shape().clone();
                shape[0] /= 2;
                return Ok(vec![
                    ValueSpec::tensor(DType::F32, shape.clone()),
                    ValueSpec::tensor(DType::F32, shape),
                ]);
            }
            Self::Pair => ValueSpec::List(vec![shape_like(inputs, 0)?, shape_like(inputs, 0)?]),
            Self::Positive => ValueSpec::Dynamic { dtype: DType::F32 },
            Self::ReshapeBy => {
                let shape = inputs.get(1).and_then(ValueSpec::known_ints);
                let shape = shape.ok_or(ShapeError::NotKnown { input: 1, what: "shape".into() })?;
                ValueSpec::tensor(DType::F32, shape.iter().map(|&d| d as usize).collect::<Vec<_>>())
            }
            Self::SizeOf => {
                let shape: Vec<i64> =
                    TensorValue::at(inputs, 0)?.shape().iter().map(|&d| d as i64).collect();
                Tensor::from_slice(&shape, [shape.len()])?.into()
            }
            Self::Constant => ValueSpec::tensor(DType::F32, [2]),
        }])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(match self {
            Self::Relu => Planned::new(Do("relu", |cx: &mut RunCx<'_>| {
                cx.inout::<f32>(0, 0)?.into_same().iter_mut().for_each(|x| *x = x.max(0.0));
                Ok(())
            }))
            .in_place(0),
            Self::Add => Planned::new(Do("add", |cx: &mut RunCx<'_>| {
                let other = cx.inputs.get::<f32>(1)?;
                let data = cx.inout::<f32>(0, 0)?.into_same();
                let n = other.len();
                data.iter_mut().enumerate().for_each(|(i, x)| *x += other[i % n]);
                Ok(())
            }))
            .in_place(0),
            Self::Cat => {
                let mut at = 0;
                let mut placement = Vec::new();
                for input in cx.inputs {
                    placement.push(at);
                    at += input.as_tensor().map_or(0, |t| t.shape().numel());
                }
                let mut planned = Planned::new(Do("cat", |cx: &mut RunCx<'_>| {
                    let mut out = cx.outputs.take::<f32>(0)?;
                    for i in 0..cx.inputs.len() {
                        let part = cx.inputs.get::<f32>(i)?;
                        let (head, tail) = out.split_at_mut(part.len());
                        head.copy_from_slice(part);
                        out = tail;
                    }
                    Ok(())
                }));
                planned.placement = Some(placement);
                planned
            }
            Self::View | Self::ReshapeBy => Planned::view_of(0),
            Self::Split => {
                let half = cx.outputs[0].as_tensor().map_or(0, |t| t.shape().numel());
                Planned::views(vec![
                    Alias::View { input: 0, offset: 0 },
                    Alias::View { input: 0, offset: half },
                ])
            }
            Self::Pair => Planned::new(Do("pair", |cx: &mut RunCx<'_>| {
                let x = cx.inputs.get::<f32>(0)?;
                cx.outputs.take::<f32>(0)?.copy_from_slice(x);
                cx.outputs.take::<f32>(1)?.iter_mut().zip(x).for_each(|(y, x)| *y = -x);
                Ok(())
            })),
            Self::Positive => Planned::new(Do("positive", |cx: &mut RunCx<'_>| {
                let x = cx.inputs.get::<f32>(0)?;
                let kept: Vec<f32> = x.iter().copied().filter(|&x| x > 0.0).collect();
                cx.outputs.emit(0, Tensor::from_slice(&kept, [kept.len()])?)
            })),
            Self::SizeOf => Planned::views(Vec::new()),
            Self::Constant => Planned::new(Do("constant", |cx: &mut RunCx<'_>| {
                cx.outputs.take::<f32>(0)?.copy_from_slice(&[10.0, 20.0]);
                Ok(())
            })),
            Self::Refuse => Planned::new(Do("refuse", |cx: &mut RunCx<'_>| {
                let x = cx.inputs.get::<f32>(0)?;
                if let Some(bad) = x.iter().find(|&&x| x < 0.0) {
                    return Err(RunError::Value { input: 0, what: format!("{bad} is negative") });
                }
                cx.outputs.take::<f32>(0)?.copy_from_slice(x);
                Ok(())
            })),
            Self::Sleep => Planned::new(Do("sleep", |cx: &mut RunCx<'_>| {
                std::thread::sleep(Duration::from_millis(5));
                let x = cx.inputs.get::<f32>(0)?;
                cx.outputs.take::<f32>(0)?.copy_from_slice(x);
                Ok(())
            })),
            Self::Doze => Planned::new(Do("doze", |cx: &mut RunCx<'_>| {
                cx.par.run(500, |_| std::thread::sleep(Duration::from_millis(2)));
                let x = cx.inputs.get::<f32>(0)?;
                cx.outputs.take::<f32>(0)?.copy_from_slice(x);
                Ok(())
            })),
            Self::Meet => Planned::new(Do("meet", |cx: &mut RunCx<'_>| {
                if !meet() {
                    return Err(RunError::Internal("nobody came".into()));
                }
                let x = cx.inputs.get::<f32>(0)?;
                cx.outputs.take::<f32>(0)?.copy_from_slice(x);
                Ok(())
            })),
            Self::Unplanned => return Err(PlanError::Unsupported("never".into())),
            Self::Reverse => {
                let bytes = 4 * cx.inputs[0].as_tensor().map_or(0, |t| t.shape().numel());
                Planned::new(Do("reverse", |cx: &mut RunCx<'_>| {
                    let x = cx.inputs.get::<f32>(0)?;
                    let scratch = cx.take_scratch::<f32>()?;
                    scratch.copy_from_slice(x);
                    scratch.reverse();
                    cx.outputs.take::<f32>(0)?.copy_from_slice(scratch);
                    Ok(())
                }))
                .with_scratch(bytes)
            }
        })
    }

    fn role(&self, _: &[ValueSpec]) -> Option<Role> {
        match self {
            Self::Relu => Some(Role::Activation(Activation::Relu)),
            Self::Add => Some(Role::Sum(vec![(0, 1.0), (1, 1.0)])),
            _ => None,
        }
    }
}

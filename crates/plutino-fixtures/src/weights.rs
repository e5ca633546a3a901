//! Weights out of names; the counterpart of `xtask/python/generator.py`.

use bytes::Bytes;
use plutino_ir::{Attribute, DType, Graph, Operator};

use crate::FixtureError;
use crate::random::Words;

/// Values uniform in `[centre - spread, centre + spread)`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rule {
    centre: f64,
    spread: f64,
}

impl Rule {
    const fn new(centre: f64, spread: f64) -> Self {
        Rule { centre, spread }
    }

    /// Variance `gain / fan_in`.
    fn fan_in(gain: f64, fan_in: usize) -> Self {
        Rule::new(0.0, (3.0 * gain / fan_in.max(1) as f64).sqrt())
    }
}

/// Gives every weight of the graph its values, apart from constants: weights that are data rather
/// than parameters (integers, booleans, the grids of `models.yolo.Detect`) are left as they are.
///
/// # Errors
/// None for a graph whose weights fit into memory.
pub fn generate_weights(graph: &mut Graph) -> Result<(), FixtureError> {
    for id in graph.operator_ids().to_vec() {
        let op = &graph[id];
        let followers = followers(graph, op);
        let mut made = Vec::new();
        for (name, attr) in op.attrs.iter().filter(|(name, attr)| !is_constant(op, name, attr)) {
            let key = format!("{}.{name}", op.name);
            let rule = rule(op, name, attr.shape(), &followers);
            let mut bytes = vec![0; attr.byte_len()];
            for part in bytes.chunks_mut(4 * period(graph, op, attr.shape()).max(1)) {
                let values = Words::of(&key).uniform(rule.centre, rule.spread);
                for (bytes, value) in part.chunks_exact_mut(4).zip(values) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
            }
            made.push((name.clone(), key, Bytes::from(bytes)));
        }
        let Ok(attrs) = graph.attrs_mut(id) else { continue };
        for (name, weight, bytes) in made {
            let Some(attr) = attrs.get_mut(&name) else { continue };
            attr.set_data(bytes).map_err(|error| FixtureError::Weight { weight, error })?;
        }
    }
    Ok(())
}

fn is_constant(op: &Operator, name: &str, attr: &Attribute) -> bool {
    attr.dtype() != DType::F32 || (op.kind == "models.yolo.Detect" && name.starts_with("pnnx_"))
}

/// The operators that read what `op` makes.
fn consumers<'g>(graph: &'g Graph, op: &Operator) -> impl Iterator<Item = &'g Operator> {
    let consumers = op.outputs.iter().flat_map(|&operand| &graph[operand].consumers);
    consumers.map(|&consumer| &graph[consumer])
}

/// The kinds of the operators that read what `op` makes.
fn followers<'g>(graph: &'g Graph, op: &Operator) -> Vec<&'g str> {
    consumers(graph, op).map(|consumer| consumer.kind.as_str()).collect()
}

/// How many values there are before they repeat: pnnx writes the masks of all heads for each
/// window.
fn period(graph: &Graph, op: &Operator, shape: &[usize]) -> usize {
    let all = shape.iter().product();
    let &[masks, rows, columns] = shape else { return all };
    if op.kind != "pnnx.Attribute" {
        return all;
    }
    let mut readers = consumers(graph, op).filter(|reader| reader.kind == "nn.MultiheadAttention");
    match readers.next().and_then(|reader| reader.param("num_heads")).map(positive_product) {
        Some(heads) if masks % heads == 0 => heads * rows * columns,
        _ => all,
    }
}

/// The distribution of one weight; the first line that fits decides.
fn rule(op: &Operator, name: &str, shape: &[usize], followers: &[&str]) -> Rule {
    const NORMS: [&str; 5] = ["BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm"];
    let kind = op.kind.as_str();
    if name == "running_var" {
        return Rule::new(1.0, 0.5);
    }
    if name == "bias" && followers.iter().any(|&kind| is_gate(kind)) {
        return Rule::new(2.0, 0.1);
    }
    if name == "running_mean" || name.contains("bias") {
        return Rule::new(0.0, 0.1);
    }
    if NORMS.iter().any(|norm| kind.contains(norm)) {
        return Rule::new(1.0, 0.25);
    }
    if kind.ends_with("PReLU") {
        return Rule::new(0.25, 0.125);
    }
    if kind == "pnnx.Attribute" {
        return Rule::new(0.0, 0.5);
    }
    if kind.ends_with("Embedding") {
        return Rule::new(0.0, 3.0f64.sqrt());
    }
    let gain = followers.iter().map(|kind| gain(kind)).fold(1.0, f64::max);
    let product = |dims: &[usize]| dims.iter().product::<usize>();
    if kind.contains("ConvTranspose") {
        // (in, out / groups, kernel...): every output sees in / groups channels, kernel / stride
        // taps.
        let ints = |key| op.param(key).map_or(1, positive_product);
        let kernel = product(shape.get(2..).unwrap_or_default());
        let inputs = shape.first().copied().unwrap_or(1);
        return Rule::fan_in(gain, inputs * kernel / (ints("groups") * ints("stride")));
    }
    Rule::fan_in(gain, product(shape.get(1..).unwrap_or_default()))
}

/// Product of an integer or of a list of integers.
fn positive_product(param: &plutino_ir::Parameter) -> usize {
    let one = param.as_int().map(|n| vec![n]);
    let all = one.or_else(|| param.as_ints().map(<[i64]>::to_vec)).unwrap_or_default();
    all.iter().map(|&n| usize::try_from(n).unwrap_or(1).max(1)).product()
}

/// 1 / E[act(x)^2] for x ~ N(0, 1), about: a layer before this activation keeps the second moment.
fn gain(follower: &str) -> f64 {
    match follower {
        "nn.ReLU" | "nn.ReLU6" | "F.relu" | "F.relu6" => 2.0,
        "nn.SiLU" | "nn.Hardswish" | "nn.GELU" | "F.silu" | "F.hardswish" | "F.gelu" => 2.5,
        _ => 1.0,
    }
}

/// Gates get a bias that opens them, or every squeeze-and-excitation would halve its signal.
fn is_gate(follower: &str) -> bool {
    matches!(follower, "nn.Sigmoid" | "nn.Hardsigmoid" | "F.sigmoid" | "F.hardsigmoid")
}

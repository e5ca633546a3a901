//! What is likely wrong in a file itself: it runs, but what it computes is not what the model did.
//!
//! pnnx runs a model once, on ones, to learn its shapes, and folds constants afterwards. What the
//! model wrote into a constant meanwhile, in place, is still in it. Other arguments are lost on the
//! way to the file. Nothing of that can be mended here; it can be said.

use crate::load::dtypes;
use crate::plan::report::Warning;
use plutino_ir::expr::{BinaryFn, Expr, UnaryFn};
use plutino_ir::{Attribute, DType, Dim, Graph, OperandId, Operator, quote};
use plutino_ops::Location;
use std::collections::BTreeMap;

/// How the names of constants begin that pnnx computed itself.
const FOLDED: &str = "pnnx_fold_";

/// Warnings after which nobody reads on.
const MOST: usize = 100;

/// What in the file is likely wrong, in its order.
pub(crate) fn warnings(graph: &Graph, file: &str) -> Vec<Warning> {
    let warn =
        |op: &Operator, what: String| Warning::File { location: Location::of(file, op), what };
    let mut warnings = Vec::new();
    for (_, op) in graph.operators() {
        let found =
            [overwritten, leftovers, frozen, halves, either_mask].map(|suspect| suspect(graph, op));
        warnings.extend(found.into_iter().flatten().map(|what| warn(op, what)));
        if warnings.len() >= MOST {
            break;
        }
    }
    warnings
}

/// What operators of this kind do to their destination, and which input that is.
#[derive(Clone, Copy)]
enum Writes {
    /// Adds to it, or multiplies it, or takes the larger.
    Onto,
    /// Overwrites some of it, where an input says: of this name, or of this number in a raw
    /// operator.
    Over { positions: (&'static str, usize) },
}

fn writes(op: &Operator) -> Option<Writes> {
    let (_, name) = op.kind.rsplit_once([':', '.'])?;
    Some(match name.trim_end_matches('_') {
        "scatter_add" | "scatter_reduce" | "index_add" | "index_reduce" => Writes::Onto,
        "index_put" if op.param("accumulate").is_some_and(|p| p.as_bool() == Some(true)) => {
            Writes::Onto
        }
        "index_put" => Writes::Over { positions: ("indices", 1) },
        "scatter" | "index_fill" | "index_copy" => Writes::Over { positions: ("index", 2) },
        "masked_fill" | "masked_scatter" => Writes::Over { positions: ("mask", 1) },
        _ => return None,
    })
}

/// A folded constant that is overwritten from end to end, which no model does.
fn overwritten(graph: &Graph, op: &Operator) -> Option<String> {
    let (_, name) = op.kind.rsplit_once([':', '.'])?;
    let whole = matches!(name.trim_end_matches('_'), "fill" | "zero")
        && constant(graph, *op.inputs.first()?)?.name.starts_with(FOLDED);
    whole.then(|| {
        "it writes to all of a constant: where the model wrote to a part of it (m[:, :1] = 0), pnnx has left \
         the rest out, and the result is wrong; build such a constant before the model is traced"
            .into()
    })
}

/// A folded constant that is written to and holds what the trial run may have left.
fn leftovers(graph: &Graph, op: &Operator) -> Option<String> {
    let writes = writes(op)?;
    let named = |name: &str| op.named_input(name);
    let destination = named("input").or_else(|| named("self")).or(op.inputs.first().copied())?;
    let constant = constant(graph, destination)?;
    let data = constant.attr("data").filter(|_| constant.name.starts_with(FOLDED))?;
    let content = Content::of(data)?;
    let suspicious = match writes {
        Writes::Onto => !content.zeros && !content.infinite,
        Writes::Over { positions: (name, number) } => {
            let at = named(name).or(op.inputs.get(number).copied());
            let fixed = at.is_some_and(|at| is_constant(graph, at));
            // Where it is the same all over, a run left nothing in it, unless it was filled from
            // end to end.
            let fills = op.param("value").and_then(|v| v.as_float()).map(|v| v as f32);
            let filled =
                op.kind.contains("fill") && content.uniform.is_some_and(|x| fills == Some(x));
            let table = op.kind.contains("masked_fill") || content.uniform.is_some();
            !fixed && (filled || !table)
        }
    };
    suspicious.then(|| {
        format!(
            "the constant '{}' that it writes to is not empty: where the model did so in place, these are the \
             leftovers of pnnx's own run, and the result is wrong; export a model that makes the tensor of an \
             input (x.new_zeros), or writes to a copy of it (index_add, scatter_add without underscore)",
            quote(&constant.name)
        )
    })
}

/// A folded constant of the shape that a tensor had in pnnx's own run, and that has another one in
/// every run: it is as long as data says.
fn frozen(graph: &Graph, op: &Operator) -> Option<String> {
    let (_, name) = op.kind.rsplit_once([':', '.'])?;
    let pairs = matches!(name, "expand_as" | "scatter_add" | "scatter_reduce")
        || op.kind == "pnnx.Expression" && op.outputs.len() == 1;
    if !pairs {
        return None;
    }
    let shape = |id: OperandId| graph.operand(id).and_then(|o| o.ty.shape.as_deref());
    let folded =
        |id: OperandId| constant(graph, id).filter(|constant| constant.name.starts_with(FOLDED));
    let mut inputs = op.inputs.iter().copied();
    let (fixed, data) = inputs.find_map(|id| {
        let mut others = op.inputs.iter().copied().filter(|&other| other != id);
        let same = |other: &OperandId| {
            shape(*other).is_some_and(|dims| !dims.is_empty()) && shape(*other) == shape(id)
        };
        let other = others.find(|other| same(other) && is_as_long_as_data_says(graph, *other))?;
        Some((folded(id)?, graph.operand(other)?))
    })?;
    Some(format!(
        "the constant '{}' is as long as '{}' was in pnnx's own run, on ones, and that depends on data: \
         with other inputs the result is wrong, or they do not fit; export a model that makes such a tensor of \
         the other one (torch.ones_like) instead of a size",
        quote(&fixed.name),
        quote(&data.name)
    ))
}

/// Producers between a tensor and the one whose length it has that are looked through.
const LOOKED_THROUGH: usize = 16;

/// Whether a tensor is what a mask leaves of another, or a view of such a one.
fn is_as_long_as_data_says(graph: &Graph, mut operand: OperandId) -> bool {
    for _ in 0..LOOKED_THROUGH {
        let producer = graph.operand(operand).and_then(|o| graph.operator(o.producer?));
        let Some(op) = producer else { return false };
        let name = op.kind.rsplit_once([':', '.']).map_or("", |(_, name)| name);
        match name {
            "nonzero" | "masked_select" | "unique" | "unique_consecutive" => return true,
            "index" if op.inputs.iter().skip(1).any(|&input| has_mask(graph, input)) => {
                return true;
            }
            "unbind" | "select" | "slice" | "clone" | "contiguous" | "to" | "type_as"
            | "expand_as" | "reshape" | "view" | "unsqueeze" | "squeeze" | "index" => {
                // What is taken by an index is as long as that.
                let at = usize::from(name == "index");
                let Some(&input) = op.inputs.get(at) else { return false };
                operand = member(graph, input).unwrap_or(input);
            }
            _ => return false,
        }
    }
    false
}

/// The only member of a list `[@0]`.
fn member(graph: &Graph, operand: OperandId) -> Option<OperandId> {
    let op = graph.operator(graph.operand(operand)?.producer?)?;
    let list = op.param("expr").and_then(|p| p.as_str()).is_some_and(|e| e.starts_with('['));
    match op.inputs[..] {
        [only] if list || op.kind == "prim::ListConstruct" => Some(only),
        _ => None,
    }
}

/// Whether an index, or a member of a list of indices, is a mask.
fn has_mask(graph: &Graph, operand: OperandId) -> bool {
    let is_bool =
        |id: OperandId| graph.operand(id).is_some_and(|o| o.ty.dtype == Some(DType::Bool));
    let producer = graph.operand(operand).and_then(|o| graph.operator(o.producer?));
    let list =
        producer.filter(|op| matches!(op.kind.as_str(), "pnnx.Expression" | "prim::ListConstruct"));
    is_bool(operand) || list.is_some_and(|op| op.inputs.iter().any(|&input| is_bool(input)))
}

/// What a weight holds.
struct Content {
    zeros: bool,
    infinite: bool,
    /// The only value, where all are the same.
    uniform: Option<f32>,
}

impl Content {
    fn of(data: &Attribute) -> Option<Self> {
        match data.dtype() {
            DType::F32 => {
                let all = data.elements::<f32>().ok()?;
                let first = all.first().copied();
                Some(Self {
                    zeros: all.iter().all(|x| *x == 0.0),
                    infinite: all.iter().all(|x| x.is_infinite()),
                    uniform: first.filter(|first| all.iter().all(|x| x == first)),
                })
            }
            _ => {
                let (bytes, size) = (data.look().ok()?, data.dtype().size_of());
                let mut elements = bytes.chunks_exact(size);
                let first = elements.next();
                let uniform = first.is_some_and(|first| elements.all(|x| x == first));
                let zeros = bytes.iter().all(|&b| b == 0);
                let value = if zeros { 0.0 } else { f32::NAN }; // equal to nothing
                Some(Self { zeros, infinite: false, uniform: uniform.then_some(value) })
            }
        }
    }
}

/// The `pnnx.Attribute` that an operand is, or is a copy of.
fn constant(graph: &Graph, operand: OperandId) -> Option<&Operator> {
    let mut producer = graph.operator(graph.operand(operand)?.producer?)?;
    if matches!(producer.kind.as_str(), "Tensor.clone" | "torch.clone") {
        producer = graph.operator(graph.operand(*producer.inputs.first()?)?.producer?)?;
    }
    (producer.kind == "pnnx.Attribute").then_some(producer)
}

/// Whether an operand is a constant, or a list of constants.
fn is_constant(graph: &Graph, operand: OperandId) -> bool {
    let producer = graph.operand(operand).and_then(|o| graph.operator(o.producer?));
    producer.is_some_and(|op| {
        op.kind == "pnnx.Attribute"
            || matches!(op.kind.as_str(), "pnnx.Expression" | "prim::ListConstruct")
                && op.inputs.iter().all(|&input| constant(graph, input).is_some())
    })
}

/// Half weights that meet a wider input: PyTorch computes that under autocast only.
fn halves(graph: &Graph, op: &Operator) -> Option<String> {
    let weight = dtypes::half_weights(op)?;
    let input = graph.operand(*op.inputs.first()?)?.ty.dtype?;
    matches!(input, DType::F32 | DType::F64).then(|| {
        format!(
            "its weights are {weight} and its input is {input}, which PyTorch multiplies under autocast only, whose \
             conversions pnnx does not write: input and result are converted here, but results of other operators \
             may be rounded less than they were; export the model in one dtype (model.float()) to be sure"
        )
    })
}

/// A mask of which the file does not say what it hides.
fn either_mask(graph: &Graph, op: &Operator) -> Option<String> {
    if op.kind != "nn.MultiheadAttention" {
        return None;
    }
    let recorded = |id: &OperandId| graph.operand(*id).map(|o| &o.ty);
    let dims = |id: &OperandId| recorded(id)?.shape.as_deref();
    let is_bool = |id: &OperandId| recorded(id).is_some_and(|ty| ty.dtype == Some(DType::Bool));
    let masks = op.inputs.iter().filter(|&id| is_bool(id)).count();
    let mask = op.inputs.iter().find(|&id| is_bool(id))?;
    let query = op.inputs.iter().find(|&id| !is_bool(id))?;
    match (dims(query)?, dims(mask)?) {
        ([Dim::Known(a), Dim::Known(b), _], [rows, _])
            if masks == 1 && a == b && *rows == Dim::Known(*a) =>
        {
            Some(format!(
                "there are as many sequences as queries, {a}, so that the file does not tell a key_padding_mask from an \
                 attn_mask: the mask is taken for an attn_mask; export with another batch size to be sure"
            ))
        }
        _ => None,
    }
}

/// What may have been lost in the export of this model, but need not: one sentence for each sort of
/// it.
pub(crate) fn notes(graph: &Graph, file: &str) -> Vec<String> {
    let mut found: BTreeMap<&'static str, (usize, String)> = BTreeMap::new();
    for (_, op) in graph.operators() {
        for what in doubts(graph, op) {
            found.entry(what).or_insert_with(|| (0, Location::of(file, op).to_string())).0 += 1;
        }
    }
    let each = found.into_iter();
    each.map(|(what, (count, first))| format!("{what} ({count}, the first: {first})")).collect()
}

/// What can have been lost of one operator.
fn doubts(graph: &Graph, op: &Operator) -> Vec<&'static str> {
    match op.kind.as_str() {
        "nn.LayerNorm" | "F.layer_norm" if op.attrs.is_empty() && op.inputs.len() == 1 => vec![
            "layer norms without weight and bias: of one that has a weight and no bias (bias=False), pnnx writes \
             neither, and the result is wrong; give such a layer a bias of zeros before the export",
        ],
        "F.gelu" if op.param("approximate").is_none() => vec![
            "GELU by name alone: pnnx writes so of GELU that a model spells out, with erf or with tanh (gelu_new, \
             NewGELU), and it is computed with erf, up to 5e-4 apart; use torch.nn.GELU('tanh') where tanh was meant",
        ],
        "torch.einsum" if unnamed_dimensions(graph, op) => vec![
            "einsum of tensors with more dimensions than the equation names: pnnx leaves out `...`, which is taken to \
             stand in front of every term where recorded shapes allow it; write all labels to be sure",
        ],
        "pnnx.Expression" => lost_arguments(graph, op),
        "pnnx.Input" if op.outputs.iter().any(|&output| is_open(graph, output)) => vec![
            "inputs with open dimensions: pnnx leaves out slices along them that have no end of their own (x[:, 1:], \
             x[:, :-1], x[:, ::2]), without a trace; give such a slice its end (x[:, 1:x.shape[1]]), or export with \
             a fixed size",
        ],
        _ => Vec::new(),
    }
}

/// Whether a dimension besides the first, which mostly is the batch, may have any size. pnnx writes
/// no names of sizes.
fn is_open(graph: &Graph, operand: OperandId) -> bool {
    let dims = graph.operand(operand).and_then(|o| o.ty.shape.as_deref()).unwrap_or_default();
    dims.iter().skip(1).any(|dim| matches!(dim, Dim::Unknown))
}

/// Whether a tensor has more dimensions than the term of the equation that is for it has labels.
fn unnamed_dimensions(graph: &Graph, op: &Operator) -> bool {
    let Some(equation) = op.param("equation").and_then(|p| p.as_str()) else { return false };
    let terms = equation.split("->").next().unwrap_or_default().split(',');
    let ranks = op.inputs.iter().map(|&id| graph.operand(id).and_then(|o| o.ty.rank()));
    !equation.contains('.') && terms.zip(ranks).any(|(term, rank)| rank > Some(term.trim().len()))
}

/// Arguments that pnnx leaves out of expressions.
fn lost_arguments(graph: &Graph, op: &Operator) -> Vec<&'static str> {
    let Some(expr) = op.param("expr").and_then(|p| p.as_str()).and_then(|e| Expr::parse(e).ok())
    else {
        return Vec::new();
    };
    let recorded = |i: usize| graph.operand(*op.inputs.get(i)?).map(|o| &o.ty);
    let dtype = |e: &Expr| match e {
        Expr::Input(i) => recorded(*i).filter(|ty| ty.rank() > Some(0)).and_then(|ty| ty.dtype),
        _ => None,
    };
    let whole =
        |d: Option<DType>| matches!(d, Some(DType::I64 | DType::I32 | DType::I16 | DType::I8));
    let result = op.outputs.first().and_then(|&o| graph.operand(o)).and_then(|o| o.ty.dtype);
    let (mut round, mut truncated, mut divided) = (false, false, false);
    expr.walk(&mut |part| match part {
        Expr::Unary(UnaryFn::Round, _) => round = true,
        Expr::Binary(BinaryFn::FloorDivide, a, _) => truncated |= dtype(a).is_some(),
        Expr::Binary(BinaryFn::Div, a, _) => divided |= whole(dtype(a)) && !whole(result),
        _ => {}
    });
    let all = [
        (round, "roundings: pnnx leaves out the decimals of torch.round, and rounds to integers"),
        (
            truncated,
            "floor divisions: pnnx writes torch.div with rounding_mode='trunc' as floor division, which differs for \
             negative numbers",
        ),
        (
            divided,
            "divisions of integers with results that are none: pnnx writes torch.div with rounding_mode='floor' as \
             true division",
        ),
    ];
    all.into_iter().filter_map(|(found, what)| found.then_some(what)).collect()
}

//! Raw operators: `aten::NAME`, as TorchScript has them.
//!
//! What pnnx has no pass for reaches the file with all arguments as inputs, in the order of
//! PyTorch's native schema; constants among them are `pnnx.Expression`s without inputs. [`call`]
//! names the arguments by the table of native functions, turns constants into parameters, and finds
//! the type whose builder decodes the operator. A function that is known as `torch.NAME`,
//! `Tensor.NAME` or `F.NAME` is thereby read in its raw form, too, in-place (`NAME_`), as
//! `NAME_copy` and as `unsafe_NAME`; [`aliases`] lists what is called otherwise. [`named`] reads
//! the same operators with their arguments by name, as plutino's exporter writes them.
//!
//! Files of pnnx's optlevel 0 and 1 have constants as inputs of operators under their public names,
//! too, as `prim::Constant` or `pnnx.Expression`: they count as parameters where the builder asks
//! for one ([`Call::constants`]).

mod aliases;
mod named;
mod signature;

use crate::Registry;
use crate::graph::expression::is_word;
use aliases::{Alias, Change};
use plutino_ir::expr::Expr;
use plutino_ir::{Graph, Operator, Parameter};
use signature::{Argument, Given, Signature, Sort, function_of, overloads};
use std::collections::BTreeMap;

/// How the types of raw operators begin.
pub(crate) const RAW: &str = "aten::";

/// Arguments that change nothing about the results of an inference on the CPU: they may stay
/// unread.
const WITHOUT_EFFECT: &[&str] = &[
    "allow_tf32",
    "benchmark",
    "cudnn_enable",
    "cudnn_enabled",
    "deterministic",
    "implicit",
    "non_blocking",
    "pin_memory",
    "scale_grad_by_freq",
    "sparse",
];

/// How the inputs of an operator are to be read.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Call {
    /// The type whose builder decodes the operator; none for its own.
    pub(crate) kind: Option<&'static str>,
    /// For each input the argument that it stands for, where that is known.
    pub(crate) names: Vec<Option<&'static str>>,
    /// For each input its value, where it is a constant; nothing where none is.
    pub(crate) constants: Vec<Option<Parameter>>,
    /// Of a public type whose inputs the file leaves without names: the arguments in their order.
    pub(crate) places: Vec<&'static str>,
    /// Constants that the builder need not read.
    pub(crate) optional: Vec<&'static str>,
    /// Parameters that the function implies.
    pub(crate) implied: Vec<(&'static str, Parameter)>,
    /// Of a raw operator that spells its arguments by name: its parameters, under the names that
    /// the builder asks for; see [`named`].
    pub(crate) params: Option<BTreeMap<String, Parameter>>,
}

/// Reads a raw operator by its native schema; any other operator has nothing to be told.
pub(crate) fn call(registry: &Registry, graph: &Graph, op: &Operator) -> Call {
    let Some(native) = op.kind.strip_prefix(RAW) else { return offered(graph, op) };
    if named::is_spelled_by_name(op) {
        return named::call(registry, graph, op, native);
    }
    let mut call = Call {
        constants: op.inputs.iter().map(|&i| constant(graph, i)).collect(),
        ..Call::default()
    };
    let given = given(graph, op, &call.constants);
    let spellings = spellings(native);
    let chosen = spellings.iter().find_map(|name| overload(name, &given));
    let alias = call.find_kind(registry, op, &spellings, chosen);
    if let Some(signature) = chosen {
        call.apply(signature, alias);
    }
    call
}

/// What is known of the inputs of an operator, whose constants are these.
fn given(graph: &Graph, op: &Operator, constants: &[Option<Parameter>]) -> Vec<Given> {
    let inputs = op.inputs.iter().zip(constants);
    let one = inputs.map(|(&input, constant)| match constant {
        Some(value) => Given::Constant(value.clone()),
        None if makes_list(graph, input) => Given::List,
        None => Given::Value,
    });
    one.collect()
}

/// The constants among the inputs of an operator under its public name, which names them, or has
/// them in the order of the native schema.
fn offered(graph: &Graph, op: &Operator) -> Call {
    let mut call = Call::default();
    let constants: Vec<_> = op.inputs.iter().map(|&input| constant(graph, input)).collect();
    let Some(function) = native_name(&op.kind).filter(|_| constants.iter().any(Option::is_some))
    else {
        return call;
    };
    let signatures = overloads(&function);
    if op.input_names.iter().all(Option::is_none) {
        let given: Vec<Given> = given(graph, op, &constants);
        let chosen = overload(&function, &given);
        call.places.extend(chosen.iter().flat_map(|s| &s.arguments).map(|a| a.name));
    }
    for (i, constant) in constants.into_iter().enumerate() {
        let named = op.input_names.get(i).and_then(Option::as_deref);
        let name = named.or_else(|| call.places.get(i).copied());
        let Some((name, mut value)) = name.zip(constant) else { continue };
        let mut arguments = signatures.iter().flat_map(|s| &s.arguments);
        let known = arguments.find(|argument| argument.name == name);
        let idle = WITHOUT_EFFECT.iter().find(|&&idle| idle == name);
        let place = known.filter(|known| {
            let default = known.default.is_some_and(|default| same(&value, default));
            default || known.sort == Sort::Place
        });
        call.optional.extend(idle.copied().or_else(|| place.map(|place| place.name)));
        match known {
            Some(known) => decode(known, &mut value),
            None if name == "dtype" => decode(&DTYPE, &mut value),
            None => {}
        }
        call.constants.resize(op.inputs.len(), None); // bounded: inputs
        if let Some(slot) = call.constants.get_mut(i) {
            *slot = Some(value);
        }
    }
    call
}

/// What `dtype` is in functions without a native schema.
const DTYPE: Argument =
    Argument { name: "dtype", sort: Sort::DType, list: false, optional: true, default: None };

/// The native function that a public type names, by PyTorch's rules; see [`public`].
fn native_name(kind: &str) -> Option<String> {
    let module = MODULES.iter().find_map(|(prefix, module)| {
        kind.strip_prefix(module).map(|name| format!("{prefix}{name}"))
    });
    let general = || GENERAL.iter().find_map(|module| kind.strip_prefix(module));
    module.or_else(|| general().map(str::to_owned))
}

/// Modules of Python's whose functions have a prefix in TorchScript, and those whose have none.
const MODULES: [(&str, &str); 3] =
    [("linalg_", "torch.linalg."), ("fft_", "torch.fft."), ("special_", "torch.special.")];
const GENERAL: [&str; 3] = ["torch.", "Tensor.", "F."];

/// The type by which the registry knows a raw one; of several, which overloads tell apart, the
/// first.
pub(crate) fn meaning(registry: &Registry, kind: &str) -> Option<&'static str> {
    let native = kind.strip_prefix(RAW)?;
    spellings(native).iter().find_map(|function| {
        let mut signatures = overloads(function).iter();
        let alias = signatures.find_map(|s| Alias::find(function, s.name));
        let known = alias.and_then(|alias| registry.find(alias.kind)).map(|(kind, _)| kind);
        known.or_else(|| public(registry, function))
    })
}

impl Call {
    /// Finds the type whose builder decodes the operator, of which `chosen` is the overload, and
    /// the alias by which it was found.
    fn find_kind(
        &mut self,
        registry: &Registry,
        op: &Operator,
        spellings: &[&str],
        chosen: Option<&Signature>,
    ) -> Option<&'static Alias> {
        if registry.get(&op.kind).is_some() {
            return None;
        }
        let mut functions = spellings.iter();
        let alias =
            chosen.and_then(|s| functions.find_map(|name| Alias::find(name, &respelled(s, name))));
        self.kind = match alias {
            Some(alias) => registry.find(alias.kind).map(|(kind, _)| kind),
            None => {
                // A type of its own may be registered without the overload.
                let own = || spellings.iter().find_map(|f| registry.find(&format!("{RAW}{f}")));
                let public = || spellings.iter().find_map(|function| public(registry, function));
                own().map(|(kind, _)| kind).or_else(public)
            }
        };
        alias
    }

    /// Names the inputs after the arguments of a signature.
    fn apply(&mut self, signature: &Signature, alias: Option<&'static Alias>) {
        for (argument, constant) in signature.arguments.iter().zip(&mut self.constants) {
            let (name, optional) = asked(argument, alias, constant.as_ref());
            if let Some(value) = constant {
                self.optional.extend(optional.then_some(name));
                decode(argument, value);
            }
            self.names.push(Some(name));
        }
        self.imply(alias);
    }

    /// Adds the parameters that the function implies.
    fn imply(&mut self, alias: Option<&'static Alias>) {
        let changes = alias.into_iter().flat_map(Alias::changes);
        self.implied.extend(changes.filter_map(|change| match change {
            Change::Add(name, value) => Some((name, Parameter::parse(value).ok()?)),
            Change::Rename(..) | Change::Only(..) => None,
        }));
    }
}

/// The name under which the builder asks for an argument, and whether it need not ask where the
/// argument has this constant value.
fn asked(
    argument: &Argument,
    alias: Option<&'static Alias>,
    value: Option<&Parameter>,
) -> (&'static str, bool) {
    let mut name = argument.name;
    let mut optional = argument.sort == Sort::Place || WITHOUT_EFFECT.contains(&name);
    for change in alias.into_iter().flat_map(Alias::changes) {
        match change {
            Change::Rename(theirs, ours) if theirs == argument.name => name = ours,
            Change::Only(theirs, only) if theirs == argument.name => {
                optional |= value.is_some_and(|value| same(value, only));
            }
            _ => {}
        }
    }
    let default = value.zip(argument.default).is_some_and(|(value, text)| same(value, text));
    (name, optional || default || value.is_some_and(Parameter::is_null))
}

/// The functions that a raw name may stand for: itself, and the one that it is a variant of.
fn spellings(native: &str) -> Vec<&str> {
    let function = function_of(native);
    let mut spellings = vec![aliases::python_operator(function).unwrap_or(function)];
    let inplace = function.strip_suffix('_').filter(|name| !name.ends_with('_'));
    spellings.extend(inplace);
    for i in 0..spellings.len() {
        let name = spellings[i];
        spellings.extend(name.strip_suffix("_copy"));
        spellings.extend(name.strip_prefix("unsafe_"));
        spellings.extend(name.strip_prefix("_unsafe_"));
    }
    spellings
}

/// `function.overload` with another function.
fn respelled(signature: &Signature, function: &str) -> String {
    match signature.name.split_once('.') {
        Some((_, overload)) => format!("{function}.{overload}"),
        None => function.to_owned(),
    }
}

/// The overload that suits these inputs best; the first in the table among equals.
fn overload(function: &str, given: &[Given]) -> Option<&'static Signature> {
    let fitting = overloads(function).iter().filter_map(|s| Some((s.distance(given)?, s)));
    fitting.min_by_key(|(distance, _)| *distance).map(|(_, signature)| signature)
}

/// The registered type that is this native function, by PyTorch's rules for names.
fn public(registry: &Registry, function: &str) -> Option<&'static str> {
    let in_module = MODULES.iter().filter_map(|(prefix, module)| {
        function.strip_prefix(prefix).map(|name| format!("{module}{name}"))
    });
    let plain = function.strip_prefix("special_").unwrap_or(function);
    let general = GENERAL.iter().map(|module| format!("{module}{plain}"));
    in_module.chain(general).find_map(|kind| registry.find(&kind)).map(|(kind, _)| kind)
}

/// What the builder of PNNX's type expects in place of TorchScript's constant.
fn decode(argument: &Argument, value: &mut Parameter) {
    let word = match (argument.sort, value.as_int()) {
        (Sort::DType, Some(number)) => dtype(number),
        (Sort::Int, Some(number)) if argument.name == "dtype" => dtype(number),
        (Sort::Int, Some(number)) if argument.name == "reduction" => {
            usize::try_from(number).ok().and_then(|n| ["none", "mean", "sum"].get(n).copied())
        }
        (Sort::Bool, Some(number)) if !argument.list => {
            *value = Parameter::Bool(number != 0);
            None
        }
        _ => None,
    };
    if let Some(word) = word {
        *value = Parameter::Str(word.to_owned());
    }
}

/// PyTorch's numbers for dtypes (`c10::ScalarType`).
fn dtype(number: i64) -> Option<&'static str> {
    Some(match number {
        0 => "torch.uint8",
        1 => "torch.int8",
        2 => "torch.short",
        3 => "torch.int",
        4 => "torch.long",
        5 => "torch.half",
        6 => "torch.float",
        7 => "torch.double",
        8 => "torch.complex32",
        9 => "torch.complex64",
        10 => "torch.complex128",
        11 => "torch.bool",
        12 => "torch.qint8",
        13 => "torch.quint8",
        14 => "torch.qint32",
        15 => "torch.bfloat16",
        _ => return None,
    })
}

/// Whether a constant is what this text says; floats to the digits that pnnx writes.
fn same(value: &Parameter, text: &str) -> bool {
    let Ok(other) = Parameter::parse(text) else { return false };
    match (value.as_float(), other.as_float()) {
        (Some(a), Some(b)) => a == b || (a - b).abs() <= 1e-6 * b.abs(),
        _ => *value == other,
    }
}

/// The value of an operand that is a constant: a number, a list of them, `None`, `True` or `False`,
/// or a word.
fn constant(graph: &Graph, input: plutino_ir::OperandId) -> Option<Parameter> {
    let producer = graph.operator(graph.operand(input)?.producer?)?;
    if producer.kind == "prim::Constant" {
        let value = producer.param("value").cloned().unwrap_or_default();
        return Some(value).filter(|p| !matches!(p, Parameter::Other(_)));
    }
    let constant = producer.kind == "pnnx.Expression" && producer.inputs.is_empty();
    let text = producer.param("expr").filter(|_| constant)?.as_str()?;
    let mut literal = true;
    let expr = match Expr::parse(text) {
        Err(_) if is_word(text) => return Some(Parameter::Str(text.to_owned())),
        expr => expr.ok()?,
    };
    expr.walk(&mut |part| {
        literal &= !matches!(
            part,
            Expr::Input(_) | Expr::Unary(..) | Expr::Binary(..) | Expr::Size { .. }
        );
    });
    // What is to be computed is an input like others.
    Parameter::parse(text).ok().filter(|p| literal && !matches!(p, Parameter::Other(_)))
}

/// Whether an operand is a list that the file puts together.
fn makes_list(graph: &Graph, input: plutino_ir::OperandId) -> bool {
    let producer = graph.operand(input).and_then(|o| graph.operator(o.producer?));
    producer.is_some_and(|producer| match producer.kind.as_str() {
        "prim::ListConstruct" | "prim::TupleConstruct" => true,
        "pnnx.Expression" => {
            producer.param("expr").and_then(Parameter::as_str).is_some_and(|e| e.starts_with('['))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    /// The call of the last line of a file whose operands are named by their constants where they
    /// have an `=`.
    fn call_of(line: &str) -> Call {
        let tokens: Vec<&str> = line.split_whitespace().collect();
        let inputs = &tokens[4..4 + tokens[2].parse::<usize>().unwrap()];
        let mut text = String::new();
        for (i, name) in inputs.iter().enumerate() {
            text += &match name.strip_prefix('=') {
                Some(constant) => format!("pnnx.Expression e{i} 0 1 v{i} expr={constant}\n"),
                None if name.starts_with('[') => format!("prim::ListConstruct l{i} 0 1 v{i}\n"),
                None => format!("pnnx.Input in{i} 0 1 v{i}\n"),
            };
        }
        let names: Vec<_> = (0..inputs.len()).map(|i| format!("v{i}")).collect();
        let count = inputs.len() + 1;
        text += &format!("{} x {} 1 {} y\n", tokens[0], inputs.len(), names.join(" "));
        let graph = Graph::parse(&format!("7767517\n{count} {count}\n{text}")).unwrap();
        let (_, op) = graph.operators().last().unwrap();
        call(registry().unwrap(), &graph, op)
    }

    fn names(call: &Call) -> Vec<&str> {
        call.names.iter().map(|n| n.unwrap_or("?")).collect()
    }

    #[test]
    fn raw_operators_find_their_public_names() {
        let found = |line: &str| call_of(line).kind;
        assert_eq!(found("aten::abs a 1 1 x"), Some("torch.abs"));
        assert_eq!(found("aten::abs_ a 1 1 x"), Some("torch.abs"));
        assert_eq!(found("aten::fft_fft a 4 1 x =None =-1 =None"), Some("torch.fft.fft"));
        assert_eq!(found("aten::unsafe_chunk a 3 1 x =3 =1"), Some("torch.chunk"));
        assert_eq!(found("aten::permute_copy a 2 1 x =[1,0]"), Some("torch.permute"));
        assert_eq!(found("aten::__and__ a 2 1 x y"), Some("torch.bitwise_and"));
        assert_eq!(found("aten::max a 2 1 x y"), Some("torch.maximum"));
        assert_eq!(found("aten::no_such_function a 1 1 x"), None);
        assert_eq!(call_of("torch.abs a 1 1 x"), Call::default());
        assert_eq!(found("aten::_transformer_encoder_layer_fwd t 1 1 x"), None); // of its own
    }

    #[test]
    fn constants_become_parameters_as_pnnx_writes_them() {
        let c = call_of("aten::new_full n 7 1 x [ =16.0 =6 =None =cpu =False");
        assert_eq!(c.kind, Some("Tensor.new_full"));
        let expected = ["input", "size", "fill_value", "dtype", "layout", "device", "pin_memory"];
        assert_eq!(names(&c), expected);
        assert_eq!(c.constants[3], Some(Parameter::Str("torch.float".into())));
        assert_eq!(c.optional, ["layout", "device", "pin_memory"]);
        let c = call_of("aten::embedding e 5 1 w i =-1 =False =False");
        assert_eq!(names(&c)[..2], ["weight", "input"]);
        assert_eq!(c.optional, ["padding_idx", "scale_grad_by_freq", "sparse"]);
        let c = call_of("aten::adaptive_max_pool2d p 2 1 x =[1,1]");
        assert_eq!(c.implied, [("return_indices", Parameter::Bool(true))]);
    }

    #[test]
    fn public_types_have_constants_as_optlevel_0_and_1_leave_them() {
        let c = call_of("F.softmax s 3 1 x =1 =7");
        assert_eq!((c.kind, &c.names[..]), (None, &[][..]));
        assert_eq!(c.places, ["input", "dim", "dtype"]);
        assert_eq!(c.constants[2], Some(Parameter::Str("torch.double".into())));
        let c = call_of("torch.einsum e 2 1 =bij,bkj->bik [");
        assert_eq!(c.places[..2], ["equation", "tensors"]);
        assert_eq!(c.constants[0], Some(Parameter::Str("bij,bkj->bik".into())));
        // Defaults need not be read.
        assert_eq!(
            call_of("torch.topk t 5 1 x =3 =-1 =True =True").optional,
            ["dim", "largest", "sorted"]
        );
    }

    #[test]
    fn what_an_alias_expects_may_stay_unread_and_nothing_else() {
        let c = call_of("aten::_softmax s 3 1 x =-1 =False");
        assert_eq!((c.kind, c.optional), (Some("F.softmax"), vec!["half_to_float"]));
        assert!(call_of("aten::_softmax s 3 1 x =-1 =True").optional.is_empty());
        assert_eq!(call_of("aten::sort s 3 1 x =-1 =True").optional, ["dim"]);
    }
}

//! Raw operators whose arguments stand by name: what is constant as a parameter, the rest as
//! inputs.
//!
//! `aten::softmax.int s 1 1 x y $input=x dim=-1` is how plutino's own exporter writes what
//! PyTorch's exporter found: PyTorch's names for the arguments (`input` for `self`), and the
//! overload behind a point. Defaults may be left out. Inputs without a key stand for the first
//! arguments that nothing else stands for.

use super::signature::{Given, Signature, function_of, overloads};
use super::{Call, asked, decode, makes_list, spellings};
use crate::Registry;
use plutino_ir::{Graph, Operator, Parameter};
use std::collections::BTreeMap;

/// Whether an operator has arguments by name; TorchScript has none.
pub(super) fn is_spelled_by_name(op: &Operator) -> bool {
    !op.params.is_empty() || op.input_names.iter().any(Option::is_some)
}

/// Where the value of an argument is.
#[derive(Clone, Copy)]
enum Place<'a> {
    Input(usize),
    Parameter(&'a Parameter),
    /// Nowhere: the default holds.
    Default,
}

/// Reads an operator `aten::NATIVE`. Where no overload has these arguments, it is read as it
/// stands.
pub(super) fn call(registry: &Registry, graph: &Graph, op: &Operator, native: &str) -> Call {
    let spellings = spellings(native);
    let chosen = spellings.iter().find_map(|name| overload(name, native, graph, op));
    let signature = chosen.as_ref().map(|(signature, _)| *signature);
    let mut call = Call::default();
    let alias = call.find_kind(registry, op, &spellings, signature);
    let Some((signature, places)) = chosen else { return call };
    call.names = op.inputs.iter().map(|_| None).collect();
    let mut params = BTreeMap::new();
    for (argument, place) in signature.arguments.iter().zip(places) {
        let value = match place {
            Place::Input(at) => {
                let (name, _) = asked(argument, alias, None);
                if let Some(slot) = call.names.get_mut(at) {
                    *slot = Some(name);
                }
                continue;
            }
            Place::Parameter(value) => Some(value.clone()),
            Place::Default => argument.default.and_then(|text| Parameter::parse(text).ok()),
        };
        let Some(mut value) = value else { continue };
        let (name, optional) = asked(argument, alias, Some(&value));
        call.optional.extend(optional.then_some(name));
        decode(argument, &mut value);
        params.insert(name.to_owned(), value);
    }
    call.params = Some(params);
    call.imply(alias);
    call
}

/// The overload of `function` that has these arguments, and where each of them is.
fn overload<'a>(
    function: &str,
    native: &str,
    graph: &Graph,
    op: &'a Operator,
) -> Option<(&'static Signature, Vec<Place<'a>>)> {
    let all = overloads(function);
    let named = |s: &&Signature| suffix(s.name) == suffix(native);
    // An overload that is named is meant; without a name, that which suits best.
    let meant: Vec<&Signature> = match suffix(native) {
        Some(_) if all.iter().any(|s| named(&s)) => all.iter().filter(named).collect(),
        _ => all.iter().collect(),
    };
    let fitting = meant.into_iter().filter_map(|signature| {
        let places = places(signature, op)?;
        Some((distance(signature, &places, graph, op)?, signature, places))
    });
    let best = fitting.min_by_key(|(distance, ..)| *distance);
    best.map(|(_, signature, places)| (signature, places))
}

/// The overload in `function.overload`.
fn suffix(name: &str) -> Option<&str> {
    Some(&name[function_of(name).len()..]).filter(|rest| !rest.is_empty())
}

/// Where each argument is; none where the operator has another one, or lacks one.
fn places<'a>(signature: &Signature, op: &'a Operator) -> Option<Vec<Place<'a>>> {
    let key = |at: usize| op.input_names.get(at).and_then(Option::as_deref);
    let mut unnamed = (0..op.inputs.len()).filter(|&at| key(at).is_none());
    let mut used = 0;
    let mut places = Vec::new();
    for argument in &signature.arguments {
        let input = (0..op.inputs.len()).find(|&at| key(at) == Some(argument.name));
        let parameter = || op.params.get(argument.name).map(Place::Parameter);
        let given = input.map(Place::Input).or_else(parameter);
        let place = match given.or_else(|| unnamed.next().map(Place::Input)) {
            Some(place) => {
                used += 1;
                place
            }
            None if argument.default.is_some() || argument.optional => Place::Default,
            None => return None,
        };
        places.push(place);
    }
    (used == op.inputs.len() + op.params.len()).then_some(places)
}

/// How badly the arguments suit, as [`Signature::distance`] has it.
fn distance(
    signature: &Signature,
    places: &[Place<'_>],
    graph: &Graph,
    op: &Operator,
) -> Option<usize> {
    let pairs = signature.arguments.iter().zip(places);
    pairs
        .map(|(argument, place)| match place {
            Place::Default => Some(16),
            Place::Parameter(value) => argument.distance(&Given::Constant((*value).clone())),
            Place::Input(at) => {
                let list = op.inputs.get(*at).is_some_and(|&input| makes_list(graph, input));
                argument.distance(if list { &Given::List } else { &Given::Value })
            }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    /// The call of an operator whose inputs are `a` and `b`.
    fn call_of(line: &str) -> Call {
        let head = "7767517\n3 3\npnnx.Input a 0 1 a\npnnx.Input b 0 1 b\n";
        let graph = Graph::parse(&format!("{head}{line}\n")).unwrap();
        let (_, op) = graph.operators().last().unwrap();
        super::super::call(registry().unwrap(), &graph, op)
    }

    fn param(call: &Call, key: &str) -> Option<String> {
        call.params.as_ref().unwrap().get(key).map(ToString::to_string)
    }

    #[test]
    fn arguments_by_name_are_those_that_the_builder_asks_for() {
        let c = call_of("aten::softmax.int s 1 1 a y $input=a dim=-1");
        assert_eq!((c.kind, &c.names[..]), (Some("torch.softmax"), &[Some("input")][..]));
        assert_eq!(param(&c, "dim").as_deref(), Some("-1"));
        // Another name, and inputs in an order of their own.
        let c = call_of("aten::embedding e 2 1 a b y $indices=a $weight=b");
        assert_eq!(c.kind, Some("F.embedding"));
        assert_eq!(c.names, [Some("input"), Some("weight")]);
        let c = call_of("aten::view v 2 1 a b y $input=a $size=b");
        assert_eq!(
            (c.kind, &c.names[..]),
            (Some("Tensor.view"), &[Some("input"), Some("shape")][..])
        );
    }

    #[test]
    fn inputs_without_a_key_stand_for_what_is_left() {
        let c = call_of("aten::where.ScalarOther w 2 1 a b y other=0.0");
        assert_eq!(c.names, [Some("condition"), Some("input")]);
        let c = call_of("aten::mean.dim m 1 1 a y dim=(1) keepdim=True");
        assert_eq!((c.kind, c.names), (Some("torch.mean"), vec![Some("input")]));
    }

    #[test]
    fn the_overload_that_is_named_is_meant_and_its_defaults_hold() {
        let c = call_of("aten::max.dim m 1 1 a y dim=1");
        assert_eq!((c.kind, param(&c, "keepdim").as_deref()), (Some("torch.max"), Some("False")));
        assert_eq!(c.optional, ["keepdim"]);
        assert_eq!(call_of("aten::max m 2 1 a b y $input=a $other=b").kind, Some("torch.maximum"));
        let c = call_of("aten::_to_copy t 1 1 a y $input=a dtype=torch.half");
        assert_eq!(c.kind, Some("Tensor.to"));
        // A type of its own, with and without the overload.
        let c = call_of(
            "aten::grid_sampler g 2 1 a b y interpolation_mode=0 padding_mode=0 align_corners=False",
        );
        assert_eq!(c.names, [Some("input"), Some("grid")]);
    }

    #[test]
    fn an_overload_without_an_argument_has_the_value_of_its_time() {
        let stft = "s 2 1 a b y n_fft=4 $input=a $window=b";
        let implied = |native: &str, more: &str| call_of(&format!("{native} {stft}{more}")).implied;
        assert_eq!(implied("aten::stft", ""), [("center", Parameter::Bool(false))]);
        assert_eq!(implied("aten::stft.center", ""), []);
        assert_eq!(implied("aten::stft", " center=True"), []);
    }

    #[test]
    fn what_no_overload_has_is_left_to_the_builder() {
        let c = call_of("aten::softmax s 1 1 a y dim=-1 axis=2");
        assert_eq!((c.kind, c.params), (Some("torch.softmax"), None));
    }
}

//! A part of a model, as a model of its own.

use plutino_ir::{DType, Graph, OperandId, Operator, OperatorId, Parameter, TensorType, quote};
use std::collections::{BTreeSet, HashMap};

/// A part cannot be taken out of a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// There is no operand of this name, nor an operator that makes one operand and no other.
    #[error(
        "there is no operand '{name}', nor an operator of that name that makes one operand and no other",
        name = quote(name)
    )]
    NoSuchOperand {
        /// The name.
        name: String,
    },
    /// An operand is named twice.
    #[error("operand '{name}' is named twice", name = quote(name))]
    Twice {
        /// The name.
        name: String,
    },
    /// No operand to compute is named.
    #[error("at least one operand to compute must be named")]
    Nothing,
    /// The part needs inputs of the model that are none of its own.
    #[error(
        "'{to}' needs {}, which none of the operands to begin with stands before: name it as well, or one \
         between", list(missing), to = quote(to)
    )]
    Missing {
        /// The operand to compute.
        to: String,
        /// The inputs of the model that it needs.
        missing: Vec<String>,
    },
    /// An operand to begin with is nothing that can be fed.
    #[error("'{}' cannot be an input of a part: it is {what}", quote(name))]
    NoTensor {
        /// The operand.
        name: String,
        /// What it is, and what to name in its place.
        what: &'static str,
    },
    /// The graph that was made is not valid: a defect of plutino, or of the graph.
    #[error("the part is no valid graph: {0}")]
    Invalid(String),
}

/// Names that a message lists.
const MOST_NAMED: usize = 8;

fn list(names: &[String]) -> String {
    let shown: Vec<String> =
        names.iter().take(MOST_NAMED).map(|name| format!("input '{}'", quote(name))).collect();
    match names.len().saturating_sub(MOST_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The operators between operands, with the weights that they need and no others. The inputs are
/// `from`, in that order, or where none are named the inputs of the model that are needed; the
/// outputs are `to`, in that order. What an operator of the part comes after belongs to it, too
/// (`^name=after`). Operands are called by their names or, where an operator makes
/// one and no other, by its name; they keep their names.
///
/// # Errors
/// Where there is no such operand, or `to` needs inputs of the model for which nothing in `from`
/// stands.
pub fn extract(graph: &Graph, from: &[&str], to: &[&str]) -> Result<Graph, ExtractError> {
    Ends { from, to, last: &[], within: None }.extract(graph)
}

/// A part of a graph by its ends.
pub(crate) struct Ends<'a> {
    /// The operands to begin with.
    pub(crate) from: &'a [&'a str],
    /// The operands to compute.
    pub(crate) to: &'a [&'a str],
    /// Operators that the outputs come after.
    pub(crate) last: &'a [OperatorId],
    /// By [`OperatorId::index`], the operators of which some may come after others in the part; all
    /// where nothing is said.
    pub(crate) within: Option<&'a BTreeSet<usize>>,
}

impl Ends<'_> {
    /// The operators between the ends.
    ///
    /// # Errors
    /// As [`extract`].
    pub(crate) fn extract(&self, graph: &Graph) -> Result<Graph, ExtractError> {
        let Self { from, to, last, within } = *self;
        let within = |id: &OperatorId| within.is_none_or(|within| within.contains(&id.index()));
        between(graph, (from, to, last), &within)
    }
}

fn between(
    graph: &Graph,
    (from, to, last): (&[&str], &[&str], &[OperatorId]),
    within: &dyn Fn(&OperatorId) -> bool,
) -> Result<Graph, ExtractError> {
    let find = |name: &&str| operand(graph, name);
    let from: Vec<OperandId> = from.iter().map(find).collect::<Result<_, _>>()?;
    let to: Vec<OperandId> = to.iter().map(find).collect::<Result<_, _>>()?;
    let name_of = |id: OperandId| graph.operand(id).map(|o| o.name.clone()).unwrap_or_default();
    let mut given = BTreeSet::new();
    if let Some(&twice) = from.iter().find(|id| !given.insert(id.index())) {
        return Err(ExtractError::Twice { name: name_of(twice) });
    }
    if to.is_empty() && last.is_empty() {
        return Err(ExtractError::Nothing);
    }
    for &id in &from {
        let producer = graph.operand(id).and_then(|operand| operand.producer);
        if let Some(what) = producer.and_then(|id| graph.operator(id)).and_then(no_tensor) {
            return Err(ExtractError::NoTensor { name: name_of(id), what });
        }
    }
    let mut needed = BTreeSet::new();
    let producer = |id: OperandId| {
        let made = || graph.operand(id)?.producer;
        made().filter(|_| !given.contains(&id.index()))
    };
    let results = to.iter().map(|&id| (name_of(id), vec![Need::Operand(id)]));
    let name = |id: OperatorId| graph.operator(id).map(|op| op.name.clone()).unwrap_or_default();
    let effects = last.iter().map(|&id| (name(id), vec![Need::Operator(id)]));
    for (result, mut left) in results.chain(effects) {
        let mut missing = Vec::new();
        while let Some(need) = left.pop() {
            let id = match need {
                Need::Operand(id) => match producer(id) {
                    Some(producer) => producer,
                    None => continue,
                },
                Need::Operator(id) => id,
            };
            let Some(operator) = graph.operator(id) else { continue };
            match (need, operator.kind == "pnnx.Input" && !from.is_empty()) {
                (Need::Operand(id), true) => missing.push(name_of(id)),
                (Need::Operator(_), true) => {} // it is there when a run begins
                _ if needed.insert(id.index()) => {
                    left.extend(operator.inputs.iter().map(|&id| Need::Operand(id)));
                    let after = operator.after.iter().filter(|id| within(id));
                    // What is given is there when the part begins.
                    let given = |id: &&OperatorId| {
                        let outputs = graph.operator(**id).map(|op| &op.outputs[..]);
                        let outputs = outputs.unwrap_or_default();
                        !outputs.is_empty() && outputs.iter().all(|o| given.contains(&o.index()))
                    };
                    left.extend(after.filter(|id| !given(id)).map(|&id| Need::Operator(id)));
                }
                _ => {}
            }
        }
        if !missing.is_empty() {
            missing.sort();
            missing.dedup();
            return Err(ExtractError::Missing { to: result, missing });
        }
    }
    Copy::of(graph, &from, (&to, last), &needed)
        .map_err(|error| ExtractError::Invalid(error.to_string()))
}

/// What a part needs.
#[derive(Clone, Copy)]
enum Need {
    Operand(OperandId),
    Operator(OperatorId),
}

/// The operand of this name, or the only one that the operator of this name makes.
fn operand(graph: &Graph, name: &str) -> Result<OperandId, ExtractError> {
    let by_operator = || match graph.operator(graph.operator_by_name(name)?)?.outputs[..] {
        [output] => Some(output),
        _ => None,
    };
    let found = graph.operand_by_name(name).or_else(by_operator);
    found.ok_or_else(|| ExtractError::NoSuchOperand { name: name.to_owned() })
}

/// A graph that is made of operators of another one.
struct Copy<'a> {
    source: &'a Graph,
    graph: Graph,
    operands: HashMap<usize, OperandId>,
}

/// Why what an operator makes cannot be fed.
fn no_tensor(operator: &Operator) -> Option<&'static str> {
    if is_list(operator) {
        return Some("a list of tensors: name those that it is made of");
    }
    let constant = ["pnnx.Expression", "prim::Constant"].contains(&operator.kind.as_str());
    (constant && operator.inputs.is_empty())
        .then_some("a constant of the file, which the part has as well: leave it out")
}

/// Whether an operator makes a tuple or list of its inputs, and nothing else of them.
pub(crate) fn is_pack(operator: &Operator) -> bool {
    matches!(operator.kind.as_str(), "prim::TupleConstruct" | "prim::ListConstruct")
}

/// Whether an operator makes a list or a tuple.
pub(crate) fn is_list(operator: &Operator) -> bool {
    let listed =
        |text: &Parameter| matches!(text, Parameter::Str(s) if s.trim_start().starts_with('['));
    let expression = || operator.kind == "pnnx.Expression";
    is_pack(operator) || expression() && operator.params.get("expr").is_some_and(listed)
}

/// Operands that a file records as 8-bit integers, as pnnx does for numbers on a quantised grid:
/// they are computed, and handed from part to part, as f32.
fn on_grids(graph: &Graph) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for (_, op) in graph.operators() {
        let name = op.kind.rsplit(['.', ':']).next().unwrap_or_default();
        let quantizes = name.starts_with("quantize_per_")
            || ["nn.quantized.", "pnnx.custom_op.quantized."]
                .iter()
                .any(|f| op.kind.starts_with(f));
        if quantizes || op.inputs.iter().any(|id| all.contains(&id.index())) {
            let recorded = |id: &OperandId| graph.operand(*id).and_then(|o| o.ty.dtype);
            let narrow = |id: &&OperandId| matches!(recorded(id), Some(DType::U8 | DType::I8));
            all.extend(op.outputs.iter().filter(narrow).map(|id| id.index()));
        }
    }
    all
}

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

impl<'a> Copy<'a> {
    fn of(
        source: &'a Graph,
        from: &[OperandId],
        (to, last): (&[OperandId], &[OperatorId]),
        needed: &BTreeSet<usize>,
    ) -> Fallible<Graph> {
        let mut copy = Self { source, graph: Graph::new(), operands: HashMap::new() };
        let on_grids = on_grids(source);
        for (number, &id) in from.iter().enumerate() {
            let place = copy.operand(id)?;
            if let Some(operand) = source.operand(id).filter(|_| on_grids.contains(&id.index())) {
                // Only here: where a number is rounded, the recorded dtype says which grid it is.
                let ty = TensorType { dtype: Some(DType::F32), ..operand.ty.clone() };
                copy.graph.set_type(place, ty)?;
            }
            let name = copy.free(&format!("pnnx_input_{number}"), needed);
            let input = copy.graph.new_operator("pnnx.Input", &name)?;
            copy.graph.connect_output(input, place)?;
        }
        let mut places = HashMap::new();
        for (id, operator) in source.operators() {
            if needed.contains(&id.index()) {
                places.insert(id, copy.operator(operator)?);
            }
        }
        for (earlier, later) in source.controls() {
            if let (Some(&earlier), Some(&later)) = (places.get(&earlier), places.get(&later)) {
                copy.graph.add_control(earlier, later)?;
            }
        }
        let mut results = Vec::new();
        for &id in to {
            results.push(copy.operand(id)?);
        }
        if results.len() > 1 {
            // As pnnx writes several results.
            let name = copy.free("pnnx_results", needed);
            let pack = copy.graph.new_operator("prim::TupleConstruct", &name)?;
            for result in results {
                copy.graph.connect_input(pack, result)?;
            }
            let mut name = "results".to_owned();
            while source.operand_by_name(&name).is_some() {
                name.push('_');
            }
            let tuple = copy.graph.new_operand(&name)?;
            copy.graph.connect_output(pack, tuple)?;
            results = vec![tuple];
        }
        let name = copy.free("pnnx_output_0", needed);
        let output = copy.graph.new_operator("pnnx.Output", &name)?;
        for result in results {
            copy.graph.connect_input(output, result)?;
        }
        for earlier in last.iter().filter_map(|id| places.get(id)) {
            copy.graph.add_control(*earlier, output)?;
        }
        copy.graph.validate()?;
        Ok(copy.graph)
    }

    /// A name that no operator has which is taken over.
    fn free(&self, name: &str, needed: &BTreeSet<usize>) -> String {
        let taken = |name: &str| {
            let theirs = self.source.operator_by_name(name);
            theirs.is_some_and(|id| needed.contains(&id.index()))
                || self.graph.operator_by_name(name).is_some()
        };
        let mut name = name.to_owned();
        while taken(&name) {
            name.push('_');
        }
        name
    }

    fn operand(&mut self, id: OperandId) -> Fallible<OperandId> {
        if let Some(&place) = self.operands.get(&id.index()) {
            return Ok(place);
        }
        let operand = self.source.operand(id).ok_or("an operand is gone")?;
        let place = self.graph.new_operand(&operand.name)?;
        self.graph.set_type(place, operand.ty.clone())?;
        self.operands.insert(id.index(), place);
        Ok(place)
    }

    fn operator(&mut self, operator: &Operator) -> Fallible<OperatorId> {
        let id = self.graph.new_operator(&operator.kind, &operator.name)?;
        for (&input, key) in operator.inputs.iter().zip(&operator.input_names) {
            let place = self.operand(input)?;
            match key {
                Some(key) => self.graph.connect_named_input(id, key, place)?,
                None => self.graph.connect_input(id, place)?,
            }
        }
        for &output in &operator.outputs {
            let mut place = self.operand(output)?;
            if self.graph.operand(place).is_some_and(|operand| operand.producer.is_some()) {
                // It is given, while a sister output is needed: what is made here goes nowhere.
                let mut name =
                    self.graph.operand(place).map(|o| o.name.clone()).unwrap_or_default();
                while self.source.operand_by_name(&name).is_some()
                    || self.graph.operand_by_name(&name).is_some()
                {
                    name.push('_');
                }
                place = self.graph.new_operand(&name)?;
            }
            self.graph.connect_output(id, place)?;
        }
        *self.graph.params_mut(id)? = operator.params.clone();
        *self.graph.attrs_mut(id)? = operator.attrs.clone();
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::graph;

    const LINES: &str = "
        pnnx.Input in 0 1 x
        pnnx.Input other 0 1 y
        nn.Linear a 1 1 x 1 bias=False in_features=2 out_features=2 @weight=(2,2)f32
        nn.ReLU b 1 1 1 2
        pnnx.Expression c 2 1 2 y 3 expr=add(@0,@1)
        torch.chunk d 1 2 3 4 5 chunks=2 dim=0
        nn.Linear e 1 1 5 6 bias=False in_features=2 out_features=2 @weight=(2,2)f32
        pnnx.Output out 2 0 4 6";

    fn lines(graph: &Graph) -> Vec<String> {
        graph.operators().map(|(_, op)| op.name.clone()).collect()
    }

    #[test]
    fn a_part_has_what_it_needs() {
        let whole = graph(LINES);
        let part = extract(&whole, &["2", "y"], &["e"]).unwrap();
        assert_eq!(lines(&part), ["pnnx_input_0", "pnnx_input_1", "c", "d", "e", "pnnx_output_0"]);
        let all = extract(&whole, &[], &["2"]).unwrap();
        assert_eq!(lines(&all), ["in", "a", "b", "pnnx_output_0"]);
        let two = extract(&whole, &["3"], &["6", "4"]).unwrap();
        assert_eq!(lines(&two)[3..], ["pnnx_results", "pnnx_output_0"]);
        // One of two sisters is given, the other is computed.
        let sister = extract(&whole, &["4", "3"], &["4", "5"]).unwrap();
        sister.validate().unwrap();
        assert_eq!(sister[sister.operator_by_name("d").unwrap()].outputs.len(), 2);
    }

    #[test]
    fn numbers_on_a_grid_are_handed_on_as_f32() {
        let whole = graph(
            "pnnx.Input in 0 1 x #x=(2)f32
            pnnx.Input bytes 0 1 b #b=(2)u8
            torch.quantize_per_tensor q 1 1 x 1 dtype=torch.quint8 scale=0.5 zero_point=3 $input=x #1=(2)u8
            nn.ReLU r 1 1 1 2 #2=(2)u8
            torch.dequantize d 1 1 2 3 $input=2 #3=(2)f32
            torch.neg n 1 1 b 4 $input=b #4=(2)u8
            pnnx.Output out 2 0 3 4",
        );
        let part = extract(&whole, &["1", "b"], &["2", "4"]).unwrap();
        let dtype = |name: &str| part[part.operand_by_name(name).unwrap()].ty.dtype;
        assert_eq!(dtype("1"), Some(DType::F32));
        // Where numbers are rounded the dtype is that of the grid; others are what they are.
        assert_eq!(["2", "b", "4"].map(dtype), [Some(DType::U8); 3]);
        let rounds = extract(&whole, &["x"], &["1"]).unwrap();
        let dtype = |name: &str| rounds[rounds.operand_by_name(name).unwrap()].ty.dtype;
        assert_eq!(dtype("1"), Some(DType::U8));
        let native = graph(
            "pnnx.Input in 0 1 x #x=(2)f32
            aten::quantize_per_tensor q 1 1 x 1 #1=(2)i8
            aten::dequantize d 1 1 1 2 #2=(2)f32
            pnnx.Output out 1 0 2",
        );
        let part = extract(&native, &["1"], &["2"]).unwrap();
        assert_eq!(part[part.operand_by_name("1").unwrap()].ty.dtype, Some(DType::F32));
    }

    #[test]
    fn what_is_missing_is_named() {
        let whole = graph(LINES);
        let missing = ExtractError::Missing { to: "6".into(), missing: vec!["y".into()] };
        assert_eq!(extract(&whole, &["2"], &["e"]).unwrap_err(), missing);
        let error = extract(&whole, &["x", "in"], &["2"]).unwrap_err();
        assert_eq!(error, ExtractError::Twice { name: "x".into() });
        let error = extract(&whole, &[], &["d"]).unwrap_err();
        assert_eq!(error, ExtractError::NoSuchOperand { name: "d".into() });
        assert_eq!(extract(&whole, &[], &[]).unwrap_err(), ExtractError::Nothing);
        let whole = graph(
            "pnnx.Input in 0 1 x
            pnnx.Expression two 0 1 n expr=2
            pnnx.Expression both 2 1 x x l expr=[@0,@1]
            torch.cat c 1 1 l y dim=0
            torch.roll r 2 1 y n z dims=(0) $input=y $shifts=n
            pnnx.Output out 1 0 z",
        );
        for name in ["n", "l"] {
            let error = extract(&whole, &[name, "x"], &["z"]).unwrap_err();
            assert!(matches!(error, ExtractError::NoTensor { name: found, .. } if found == name));
        }
    }
}

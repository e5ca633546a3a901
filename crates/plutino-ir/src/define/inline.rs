//! Definitions in the places of their nodes.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::count::Counter;
use super::error::{DefineError, DefineProblem, Site};
use super::order::{self, Unit, Units};
use super::{Definition, Definitions, Origin};
use crate::attribute::Attribute;
use crate::dtype::{Dim, TensorType};
use crate::graph::{Graph, Operand, OperandId, Operator, OperatorId};
use crate::limits::Limits;
use crate::load::GRAPH_FACTOR;
use crate::sizes::{SizeLimit, SizeLimits};

/// The type of an operator that gives its input back: stands where a result of a definition is one
/// of its inputs, or is asked for twice.
const SAME: &str = "nn.Identity";

/// How pnnx calls constants of a module that have no name in it.
const UNNAMED: &str = "pnnx_";

impl Graph {
    /// Puts definitions in the places of the operators whose types they define, and the definitions
    /// of their operators' types in theirs; a graph without such operators stays as it is. `file`
    /// is that of the graph, for messages.
    ///
    /// The operators of a definition are called by the node's name and their own, with a dot
    /// between. A weight is the node's if that has one of the weight's name within the definition
    /// (`conv.weight`; of a `pnnx.Attribute`, its name alone will do), else the definition's own.
    /// Results keep the names that they have in the graph. Ids of operators and operands are others
    /// than before.
    ///
    /// # Errors
    /// Where a definition does not fit a node: it contains itself, numbers of inputs or outputs
    /// differ, or a weight of either has no counterpart; where the graph becomes larger than
    /// `sizes` or `budget` (bytes of memory) allow, which is found out before memory is taken. The
    /// graph is unchanged then.
    pub fn inline(
        &mut self,
        file: &str,
        definitions: &Definitions,
        sizes: &SizeLimits,
        limits: &Limits,
        budget: Option<usize>,
    ) -> Result<(), DefineError> {
        let Some(size) = Counter::new(file, definitions).graph(self)? else { return Ok(()) };
        let failed = |problem| {
            let first = self.operators().find(|(_, op)| definitions.get(&op.kind).is_some());
            let (node, definition) = match first {
                Some((_, op)) => (Site::of(file, op), definitions.get(&op.kind)),
                None => return DefineError::nowhere(file, problem),
            };
            let definition = definition.map(|d| d.file.to_string()).unwrap_or_default();
            DefineError { node: Box::new(node), definition, problem }
        };
        size.check(sizes).map_err(|error| failed(DefineProblem::TooLarge(error)))?;
        let factor = usize::try_from(GRAPH_FACTOR).unwrap_or(usize::MAX);
        let needed = size.bytes.saturating_mul(factor);
        if let Some(budget) = budget.filter(|&budget| budget < needed) {
            return Err(failed(DefineProblem::Budget { needed, budget }));
        }
        let mut inliner = Inliner {
            file,
            definitions,
            limits,
            sizes,
            units: Units::of(self, definitions),
            controls: 0,
            out: Graph::new(),
            operators: self.operators().map(|(_, op)| op.name.clone()).collect(),
            operands: self.operands().map(|(_, operand)| operand.name.clone()).collect(),
        };
        let mut places = Places::with_slots(self);
        for (id, operand) in self.operands() {
            let made = inliner.operand(operand.name.clone(), operand.ty.clone());
            places.set(id, made);
        }
        let mut units = inliner.units.none();
        for (id, operator) in self.operators() {
            let unit = inliner.operator(self, operator, &places, &Around::default())?;
            units.put(id, unit);
        }
        inliner.order(self, &units).map_err(failed)?;
        *self = inliner.out;
        Ok(())
    }
}

impl Definition {
    /// The graph of this definition for a node that has these weights for it, by their names within
    /// the definition. `node` is where it stands.
    ///
    /// # Errors
    /// Where a weight of one of them has no counterpart in the other.
    pub fn for_node(
        &self,
        attrs: BTreeMap<String, Attribute>,
        node: Site,
    ) -> Result<Graph, DefineError> {
        let mut graph = (*self.graph).clone();
        let origin = Arc::new(Origin { file: Arc::clone(&self.file), node });
        let (name, read) = (origin.node.name.clone(), RefCell::default());
        let node = Node { name, attrs, read, skipped: self.skipped };
        let around = Around { origin: Some(Arc::clone(&origin)), node: Some(&node) };
        for id in graph.operator_ids().to_vec() {
            let Some(operator) = graph.operator_mut(id) else { continue };
            let mut attrs = std::mem::take(&mut operator.attrs);
            for (key, attribute) in &mut attrs {
                *attribute = node.weight(operator, key, attribute, &around)?;
            }
            operator.attrs = attrs;
            operator.origin = Some(Arc::clone(&origin));
        }
        let problem = match node.unused() {
            Some(weight) => DefineProblem::UnusedWeight { weight },
            None => return Ok(graph),
        };
        let (node, definition) = (Box::new(origin.node.clone()), self.file.to_string());
        Err(DefineError { node, definition, problem })
    }
}

impl DefineError {
    fn nowhere(file: &str, problem: DefineProblem) -> Self {
        let (kind, name) = (String::new(), String::new());
        let node = Site { file: file.into(), line: None, kind, name, origin: None };
        Self { node: Box::new(node), definition: String::new(), problem }
    }
}

/// Where the operands of one graph are in the graph that everything is put into, by
/// [`OperandId::index`].
struct Places(Vec<Option<OperandId>>);

impl Places {
    fn with_slots(graph: &Graph) -> Self {
        Self(vec![None; graph.operand_slots()])
    }

    fn set(&mut self, id: OperandId, place: OperandId) {
        if let Some(slot) = self.0.get_mut(id.index()) {
            *slot = Some(place);
        }
    }

    fn get(&self, id: OperandId) -> Option<OperandId> {
        self.0.get(id.index()).copied().flatten()
    }
}

/// What lies around an operator that is put into the graph.
#[derive(Default)]
struct Around<'a> {
    /// The node in whose place it stands.
    origin: Option<Arc<Origin>>,
    /// The weights that the node has for it, and which of them were read.
    node: Option<&'a Node>,
}

/// A node that is being replaced.
struct Node {
    name: String,
    attrs: BTreeMap<String, Attribute>,
    /// Which of them operators of the definition took.
    read: RefCell<HashSet<String>>,
    /// Whether the definition's own weights were left in its file.
    skipped: bool,
}

struct Inliner<'a> {
    file: &'a str,
    definitions: &'a Definitions,
    limits: &'a Limits,
    sizes: &'a SizeLimits,
    /// Whether anything is said about order, for all that is put into the graph.
    units: Units,
    /// Pairs of operators that come after each other without data, so far.
    controls: usize,
    out: Graph,
    /// Names that are taken.
    operators: HashSet<String>,
    operands: HashSet<String>,
}

impl Inliner<'_> {
    fn operand(&mut self, name: String, ty: TensorType) -> OperandId {
        self.out.push_operand(Operand { name, ty, producer: None, consumers: Vec::new() })
    }

    /// Puts an operator of `graph` into the result, or what defines it. Whom it comes after is said
    /// once all of `graph` is there ([`Inliner::order`]).
    fn operator(
        &mut self,
        graph: &Graph,
        operator: &Operator,
        places: &Places,
        around: &Around<'_>,
    ) -> Result<Unit, DefineError> {
        let name = match around.node {
            None => operator.name.clone(),
            Some(node) => free(&mut self.operators, format!("{}.{}", node.name, operator.name)),
        };
        let site = || Site {
            file: around.origin.as_ref().map_or_else(|| self.file.into(), |o| Arc::clone(&o.file)),
            line: operator.line,
            kind: operator.kind.clone(),
            name: name.clone(),
            origin: around.origin.clone().or_else(|| operator.origin.clone()),
        };
        let definition = self.definitions.get(&operator.kind);
        let failed = |problem| DefineError {
            node: Box::new(site()),
            definition: definition.map(|d| d.file.to_string()).unwrap_or_default(),
            problem,
        };
        let at = self.out.operator_count();
        self.limits.check_at(at).map_err(|why| failed(DefineProblem::Interrupted(why)))?;
        let mut attrs = BTreeMap::new();
        for (key, attribute) in &operator.attrs {
            let chosen = match around.node {
                None => attribute.clone(),
                Some(node) => node.weight(operator, key, attribute, around)?,
            };
            attrs.insert(key.clone(), chosen);
        }
        let inputs: Vec<OperandId> =
            operator.inputs.iter().filter_map(|&id| places.get(id)).collect();
        let outputs: Vec<OperandId> =
            operator.outputs.iter().filter_map(|&id| places.get(id)).collect();
        let Some(definition) = definition else {
            let origin = around.origin.clone().or_else(|| operator.origin.clone());
            let id = self.push(Operator {
                name: name.clone(),
                inputs,
                outputs,
                attrs,
                origin,
                after: Vec::new(),
                followers: Vec::new(),
                ..operator.clone()
            });
            return Ok(self.units.one(id));
        };
        let origin = Arc::new(Origin { file: Arc::clone(&definition.file), node: site() });
        let skipped = definition.skipped;
        let node = Node { name: name.clone(), attrs, read: RefCell::default(), skipped };
        let wanted = wanted(graph, operator, definition).map_err(&failed)?;
        let unit = self.put(definition, &node, origin, (&inputs, &outputs), &wanted, &failed)?;
        match node.unused() {
            Some(weight) => Err(failed(DefineProblem::UnusedWeight { weight })),
            None => Ok(unit),
        }
    }

    /// Puts a definition in the place of a node.
    fn put(
        &mut self,
        definition: &Definition,
        node: &Node,
        origin: Arc<Origin>,
        (inputs, outputs): (&[OperandId], &[OperandId]),
        wanted: &[OperandId],
        failed: &impl Fn(DefineProblem) -> DefineError,
    ) -> Result<Unit, DefineError> {
        let graph = &*definition.graph;
        let expected = made_by_inputs(graph);
        if expected.len() != inputs.len() {
            let expected = names(graph, &expected);
            return Err(failed(DefineProblem::Inputs { expected, found: inputs.len() }));
        }
        let mut places = Places::with_slots(graph);
        let mut recorded = true;
        for (&inner, &outer) in expected.iter().zip(inputs) {
            places.set(inner, outer);
            if let (Some(inner), Some(outer)) = (graph.operand(inner), self.out.operand(outer)) {
                recorded &= inner.ty.shape == outer.ty.shape;
            }
        }
        // What the definition makes becomes what the node made, where that is possible. Results
        // that come after something are made by operators of their own, which do.
        let last = order::before_outputs(graph);
        let mut copies = Vec::new();
        for (&inner, &outer) in wanted.iter().zip(outputs) {
            if !last.is_empty() && places.get(inner).is_none() {
                self.inner_operand(graph, inner, node, recorded, &mut places);
            }
            match places.get(inner) {
                Some(place) => copies.push((place, outer)),
                None => {
                    places.set(inner, outer);
                    let record = graph.operand(inner).map(|operand| operand.ty.clone());
                    let ours = self.out.operand_mut(outer);
                    if let (Some(record), Some(ours)) = (record.filter(|_| recorded), ours) {
                        ours.ty.shape = ours.ty.shape.take().or(record.shape);
                        ours.ty.dtype = ours.ty.dtype.or(record.dtype);
                    }
                }
            }
        }
        for (id, _) in graph.operands() {
            if places.get(id).is_none() {
                self.inner_operand(graph, id, node, recorded, &mut places);
            }
        }
        let around = Around { origin: Some(Arc::clone(&origin)), node: Some(node) };
        let mut units = self.units.none();
        for (id, operator) in graph.operators() {
            if !matches!(operator.kind.as_str(), "pnnx.Input" | "pnnx.Output") {
                let unit = self.operator(graph, operator, &places, &around)?;
                units.put(id, unit);
            }
        }
        self.order(graph, &units).map_err(failed)?;
        let mut whole = units.whole(graph);
        let last: Vec<OperatorId> = last.iter().flat_map(|&id| units.ends(id)).copied().collect();
        for (from, to) in copies {
            let name = free(&mut self.operators, format!("{}.output", node.name));
            self.controls = self.controls.saturating_add(last.len());
            self.sizes
                .check(SizeLimit::Words, self.controls)
                .map_err(|error| failed(DefineProblem::TooLarge(error)))?;
            let id = self.push(Operator {
                kind: SAME.to_owned(),
                name,
                inputs: vec![from],
                outputs: vec![to],
                input_names: vec![None],
                after: Vec::new(),
                followers: Vec::new(),
                params: BTreeMap::new(),
                attrs: BTreeMap::new(),
                line: None,
                origin: Some(Arc::clone(&origin)),
            });
            last.iter().for_each(|&earlier| self.out.link(earlier, id));
            whole.join(self.units.one(id), !last.is_empty() || !inputs.contains(&from));
        }
        Ok(whole)
    }

    /// An operand of a definition that is none of its node.
    fn inner_operand(
        &mut self,
        graph: &Graph,
        id: OperandId,
        node: &Node,
        recorded: bool,
        places: &mut Places,
    ) {
        let Some(operand) = graph.operand(id) else { return };
        let name = free(&mut self.operands, format!("{}.{}", node.name, operand.name));
        let mut ty = operand.ty.clone();
        ty.shape = ty.shape.filter(|_| recorded);
        let made = self.operand(name, ty);
        places.set(id, made);
    }

    /// Says of the operators of one graph which of them come after which others.
    fn order(&mut self, graph: &Graph, units: &Units) -> Result<(), DefineProblem> {
        for (earlier, later) in graph.controls() {
            for &later in units.begins(later) {
                let ends = units.ends(earlier);
                self.controls = self.controls.saturating_add(ends.len());
                let counted = self.sizes.check(SizeLimit::Words, self.controls);
                counted.map_err(DefineProblem::TooLarge)?;
                ends.iter().for_each(|&earlier| self.out.link(earlier, later));
            }
        }
        Ok(())
    }

    /// Appends an operator, and tells its operands.
    fn push(&mut self, operator: Operator) -> OperatorId {
        let id = OperatorId(self.out.operator_slots());
        for &input in &operator.inputs {
            if let Some(operand) = self.out.operand_mut(input) {
                operand.consumers.push(id);
            }
        }
        for &output in &operator.outputs {
            if let Some(operand) = self.out.operand_mut(output) {
                operand.producer = Some(id);
            }
        }
        self.out.push_operator(operator)
    }
}

impl Node {
    /// A weight that no operator of the definition took.
    fn unused(&self) -> Option<String> {
        let read = self.read.borrow();
        self.attrs.keys().find(|key| !key.starts_with(UNNAMED) && !read.contains(*key)).cloned()
    }

    /// The weight of an operator of the definition: the node's, where it has one of that name.
    fn weight(
        &self,
        operator: &Operator,
        key: &str,
        own: &Attribute,
        around: &Around<'_>,
    ) -> Result<Attribute, DefineError> {
        let full = format!("{}.{key}", operator.name);
        let alone = (operator.kind == "pnnx.Attribute").then(|| operator.name.clone());
        let found = [Some(full.clone()), alone].into_iter().flatten();
        let found =
            found.filter_map(|name| self.attrs.get(&name).map(|given| (name, given))).next();
        let failed = |problem| DefineError::within(operator, around, problem);
        let weight = full;
        match found {
            Some((name, given)) => {
                if (given.dtype(), given.shape()) != (own.dtype(), own.shape()) {
                    let (expected, found) = (own.to_string(), given.to_string());
                    return Err(failed(DefineProblem::Weight { weight, expected, found }));
                }
                self.read.borrow_mut().insert(name);
                Ok(given.clone())
            }
            None if self.skipped || own.is_loaded() => Ok(own.clone()),
            None => Err(failed(DefineProblem::MissingWeight { weight })),
        }
    }
}

impl DefineError {
    /// About an operator of a definition, and the node that asked for it.
    fn within(operator: &Operator, around: &Around<'_>, problem: DefineProblem) -> Self {
        let Some(origin) = &around.origin else { return Self::nowhere("", problem) };
        let line = operator.line.map(|line| format!(":{line}")).unwrap_or_default();
        let definition = format!("{}{line}", origin.file);
        Self { node: Box::new(origin.node.clone()), definition, problem }
    }
}

/// The outputs of a definition that are those of the node, in its order.
fn wanted(
    graph: &Graph,
    node: &Operator,
    definition: &Definition,
) -> Result<Vec<OperandId>, DefineProblem> {
    let inner = &*definition.graph;
    let whole: Vec<OperandId> =
        inner.operators_of("pnnx.Output").flat_map(|(_, op)| op.inputs.iter().copied()).collect();
    let reads = |id: &OperandId| graph.operand(*id).map_or(&[][..], |o| &o.consumers);
    let takes_apart = |id: &OperatorId| {
        let kind = graph.operator(*id).map(|op| op.kind.as_str());
        matches!(kind, Some("prim::TupleUnpack" | "prim::ListUnpack"))
    };
    if let ([output], [_]) = (&node.outputs[..], &whole[..])
        && reads(output).iter().any(takes_apart)
    {
        return Ok(whole); // a tuple that the graph takes apart itself
    }
    let flat = flatten(inner, &whole);
    let open = |open| DefineProblem::Outputs {
        expected: names(inner, &flat),
        found: node.outputs.len(),
        open,
    };
    if node.outputs.len() == flat.len() {
        return Ok(flat);
    }
    if node.outputs.len() > flat.len() || node.outputs.is_empty() {
        return Err(open(false));
    }
    // pnnx leaves out outputs that nobody reads. What is recorded tells which are left.
    let ty = |graph: &Graph, id: OperandId| graph.operand(id).map(|o| o.ty.clone());
    let theirs: Vec<_> = node.outputs.iter().map(|&id| ty(graph, id)).collect();
    let ours: Vec<_> = flat.iter().map(|&id| ty(inner, id)).collect();
    let same = |a: &Option<TensorType>, b: &Option<TensorType>| a == b;
    let alike = |a: &Option<TensorType>, b: &Option<TensorType>| match (a, b) {
        (Some(a), Some(b)) => a.dtype == b.dtype && rank(a) == rank(b),
        _ => false,
    };
    let choice = only_choice(&theirs, &ours, same).or_else(|| only_choice(&theirs, &ours, alike));
    let choice = choice.ok_or_else(|| open(true))?;
    Ok(choice.into_iter().filter_map(|at| flat.get(at).copied()).collect())
}

fn rank(ty: &TensorType) -> Option<usize> {
    ty.shape.as_ref().map(Vec::<Dim>::len)
}

/// Positions in `ours` of what `theirs` are, in order, where there is one choice and no other.
fn only_choice<T>(theirs: &[T], ours: &[T], fits: impl Fn(&T, &T) -> bool) -> Option<Vec<usize>> {
    // The earliest and the latest choice are the same where there is but one.
    let mut from = 0;
    let mut first = Vec::with_capacity(theirs.len());
    for each in theirs {
        let at = (from..ours.len()).find(|&at| ours.get(at).is_some_and(|o| fits(each, o)))?;
        first.push(at);
        from = at + 1;
    }
    let mut until = ours.len();
    for (each, &at) in theirs.iter().zip(&first).rev() {
        let last = (0..until).rev().find(|&at| ours.get(at).is_some_and(|o| fits(each, o)))?;
        if last != at {
            return None;
        }
        until = last;
    }
    Some(first)
}

/// The operands that `pnnx.Input` operators make, in order.
fn made_by_inputs(graph: &Graph) -> Vec<OperandId> {
    graph.operators_of("pnnx.Input").flat_map(|(_, op)| op.outputs.iter().copied()).collect()
}

/// Members of the outputs of a definition, tuples taken apart, beyond which no more are looked at.
const MOST_OUTPUTS: usize = 1 << 16;

/// Operands with tuples taken apart.
fn flatten(graph: &Graph, operands: &[OperandId]) -> Vec<OperandId> {
    let mut left: Vec<OperandId> = operands.iter().rev().copied().collect();
    let (mut flat, mut looks) = (Vec::new(), 0);
    while let Some(id) = left.pop() {
        looks += 1;
        let producer = graph.operand(id).and_then(|o| o.producer).and_then(|p| graph.operator(p));
        match producer {
            Some(pack)
                if matches!(pack.kind.as_str(), "prim::TupleConstruct" | "prim::ListConstruct")
                    && looks < MOST_OUTPUTS =>
            {
                left.extend(pack.inputs.iter().rev());
            }
            _ => flat.push(id),
        }
        if flat.len() > MOST_OUTPUTS {
            break; // more than a node may have
        }
    }
    flat
}

fn names(graph: &Graph, operands: &[OperandId]) -> Vec<String> {
    operands.iter().filter_map(|&id| graph.operand(id)).map(|o| o.name.clone()).collect()
}

/// The name, or where it is taken, one with a number behind it.
fn free(taken: &mut HashSet<String>, name: String) -> String {
    if taken.insert(name.clone()) {
        return name;
    }
    let mut numbers = 2usize..;
    let other = numbers.find_map(|n| {
        let other = format!("{name}_{n}");
        taken.insert(other.clone()).then_some(other)
    });
    other.unwrap_or(name)
}

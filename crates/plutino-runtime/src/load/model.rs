//! A model: the graph of a file with every operator decoded.

use crate::control::{self, Controls, Decoding};
use crate::error::{ModelError, UndecodedOperators, UnsupportedKind};
use crate::halt;
use crate::lists;
use crate::load::dtypes;
use crate::load::stand_ins;
use crate::load::suspects;
use crate::load::tied;
use crate::plan::report::Warning;
use crate::{Inference, ModelOptions, Session, SessionError, SessionOptions, spans};
use plutino_ir::{
    FilePart, Graph, LoadOptions, OperandId, OperatorId, SizeLimits, TensorType, Weights,
    find_param, topo,
};
use plutino_ops::{
    BuildError, BuildProblem, Location, MAX_MEMBERS, MAX_NESTING, NodeReader, Operator, PackCache,
    Registry, Weight,
};
use plutino_tensor::alloc::{self, Ledger};
use plutino_tensor::{DType, Scope};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// A model, decoded and checked. Cheap to clone; sessions of one model share its weights.
#[derive(Clone)]
pub struct Model {
    pub(crate) inner: Arc<Inner>,
}

/// What a [`Model`] shares with its sessions.
pub(crate) struct Inner {
    pub(crate) graph: Graph,
    /// The `.param` file, for messages.
    pub(crate) file: String,
    /// What each operator is, by [`OperatorId::index`].
    pub(crate) roles: Vec<Option<Role>>,
    pub(crate) inputs: Vec<ValueInfo>,
    pub(crate) outputs: Vec<ValueInfo>,
    /// What is likely wrong in the file.
    pub(crate) warnings: Vec<Warning>,
    /// How large the model and its plans may be.
    pub(crate) sizes: SizeLimits,
    /// Weights in the forms that kernels want, shared by all sessions.
    pub(crate) packs: PackCache,
    /// Bytes of weights that were read, and of what operators made of them while being decoded.
    weights: usize,
    /// Weights that were left in the file.
    in_file: Vec<FilePart>,
    /// Bytes of weights in a mapped file.
    pub(crate) mapped: usize,
    /// The operators of control flow.
    pub(crate) controls: Controls,
}

/// What an operator of the graph is to the runtime.
#[derive(Debug, Clone)]
pub(crate) enum Role {
    /// `pnnx.Input`.
    Input,
    /// `pnnx.Output`.
    Output,
    /// `pnnx.Attribute`: a constant.
    Constant(Weight),
    /// `prim::TupleConstruct` and `prim::ListConstruct`.
    Pack,
    /// `prim::TupleUnpack` and `prim::ListUnpack`.
    Unpack,
    /// Everything that computes.
    Operator(Arc<dyn Operator>),
}

/// An input or output of a model, as the file records it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ValueInfo {
    /// Name of the operand.
    pub name: String,
    /// Name of the `pnnx.Input` or `pnnx.Output` operator.
    pub operator: String,
    /// Recorded shape (with `?` and `%name`) and dtype: a hint, and for inputs the example of the
    /// export.
    pub recorded: TensorType,
    pub(crate) id: OperandId,
}

impl ValueInfo {
    /// The recorded dtype, where there is one.
    pub fn dtype(&self) -> Option<DType> {
        self.recorded.dtype.map(plutino_ops::dtype_of)
    }
}

/// Which operators a model needs, and which of them cannot be run. See [`Model::check`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Operator types of the model with their counts, sorted by type.
    pub kinds: BTreeMap<String, usize>,
    /// What cannot be run, where that is something.
    pub undecoded: Option<UndecodedOperators>,
    /// What can be inferred from the recorded inputs, where every operator is known.
    pub inference: Option<Inference>,
    /// What is likely wrong in the file: see [`Model::warnings`].
    pub warnings: Vec<Warning>,
    /// What may have been lost in the export, though nothing in the file shows it: one sentence for
    /// each sort.
    pub notes: Vec<String>,
}

impl Model {
    /// Loads a model: `path` is the `.param` file or its stem, the `.bin` file is found beside it,
    /// and so is the folder of its definitions (`STEM.definitions`), where it has any.
    ///
    /// Weights of a file of more than 1 MiB stay in it until a session needs them
    /// ([`Weights::Stream`](plutino_ir::Weights::Stream)).
    ///
    /// # Errors
    /// Where a file cannot be read or is malformed, or operators are unsupported: all of them are
    /// listed at once.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::load_with(path, ModelOptions::default())
    }

    /// [`Model::load`] with options: [`LoadOptions`] (memory-mapped weights, no check sums, no
    /// weights), or [`ModelOptions`] with operators of one's own.
    ///
    /// # Errors
    /// As [`Model::load`].
    pub fn load_with(
        path: impl AsRef<Path>,
        options: impl Into<ModelOptions>,
    ) -> Result<Self, ModelError> {
        let path = &find_param(path.as_ref())?;
        let _span = spans::load(path);
        let options = options.into().with_own_definitions(path)?;
        let (mut graph, file) = (options.whole(path)?, path.display().to_string());
        if let Some(most) = options.stand_ins {
            stand_ins::fill(&mut graph, &file, most)?;
        }
        Self::of_graph(graph, file, &options)
    }

    /// A model of a graph that was built or edited in memory.
    ///
    /// # Errors
    /// Where operators are unsupported (all are listed), or wait for each other.
    pub fn from_graph(graph: Graph) -> Result<Self, ModelError> {
        Self::from_graph_with(graph, ModelOptions::default())
    }

    /// [`Model::from_graph`] with options: operators of one's own.
    ///
    /// # Errors
    /// As [`Model::from_graph`].
    pub fn from_graph_with(
        graph: Graph,
        options: impl Into<ModelOptions>,
    ) -> Result<Self, ModelError> {
        let (file, options, mut graph) = ("<graph>", options.into(), graph);
        options.inline(&mut graph, file)?;
        Self::of_graph(graph, file.into(), &options)
    }

    /// Which operators the model needs, which of them cannot be run, and whether what is inferred
    /// of the others is what the file records. Reads the `.param` file alone.
    ///
    /// # Errors
    /// Where the file cannot be read or is malformed.
    pub fn check(path: impl AsRef<Path>) -> Result<CheckReport, ModelError> {
        Self::check_with(path, LoadOptions { weights: Weights::Skip, ..LoadOptions::default() })
    }

    /// [`Model::check`] that may read the weights, too: constants are known then, and looked at.
    ///
    /// # Errors
    /// Where a file cannot be read or is malformed.
    pub fn check_with(
        path: impl AsRef<Path>,
        options: impl Into<ModelOptions>,
    ) -> Result<CheckReport, ModelError> {
        let path = &find_param(path.as_ref())?;
        let options = options.into().with_own_definitions(path)?;
        let (graph, file) = (options.whole(path)?, path.display().to_string());
        let notes = suspects::notes(&graph, &file);
        let mut kinds = BTreeMap::new();
        for (_, op) in graph.operators() {
            *kinds.entry(op.kind.clone()).or_insert(0) += 1;
        }
        let mut report =
            CheckReport { kinds, undecoded: None, inference: None, warnings: Vec::new(), notes };
        match Self::of_graph(graph, file, &options) {
            Ok(model) => {
                for part in model.inner.parts().into_iter().skip(1) {
                    for (_, op) in part.graph.operators() {
                        *report.kinds.entry(op.kind.clone()).or_insert(0) += 1;
                    }
                }
                let interrupted =
                    |error| ModelError::Interrupted { file: path.display().to_string(), error };
                let inference =
                    model.inference_within(&options.load.limits).map_err(interrupted)?;
                report.inference = Some(inference);
                report.warnings = model.inner.warnings.clone();
            }
            Err(ModelError::Operators(list)) => report.undecoded = Some(list),
            Err(other) => return Err(other),
        }
        Ok(report)
    }

    /// A model of a graph that has all definitions in their places.
    fn of_graph(graph: Graph, file: String, options: &ModelOptions) -> Result<Self, ModelError> {
        Self::of_graph_with(graph, file, options, PackCache::default())
    }

    /// [`Model::of_graph`], whose packed weights are kept in `packs`.
    pub(crate) fn of_graph_with(
        graph: Graph,
        file: String,
        options: &ModelOptions,
        packs: PackCache,
    ) -> Result<Self, ModelError> {
        let inner = Self::decode(graph, file, packs, &mut Decoding::new(options))?;
        Ok(Self { inner })
    }

    /// Decodes a model, or a body of its control operators.
    pub(crate) fn decode(
        mut graph: Graph,
        file: String,
        packs: PackCache,
        cx: &mut Decoding<'_>,
    ) -> Result<Arc<Inner>, ModelError> {
        let options = cx.options();
        let limits = &options.load.limits;
        let _limits = halt::enter(limits);
        options.load.sizes.check_graph(&graph).map_err(|(at, error)| {
            let at =
                at.and_then(|id| graph.operator(id)).map(|op| Box::new(Location::of(&file, op)));
            ModelError::TooLarge { file: file.clone(), at, error }
        })?;
        // Weights that zeros stand in for count as they would if they were read.
        let as_mapped = options.load.mmap && options.stand_ins.is_some();
        let (weights, mapped) = weight_bytes(&graph, as_mapped);
        let budget = options.load.memory_budget;
        if let Some(budget) = budget.filter(|&budget| budget < weights) {
            return Err(ModelError::Budget { file, needed: weights, budget });
        }
        cx.mapped = cx.mapped.saturating_add(mapped);
        let over = |needed| ModelError::Budget {
            file: file.clone(),
            needed,
            budget: budget.unwrap_or_default(),
        };
        let ledger = Ledger::new(budget.map(|budget| budget - weights));
        // What a body takes is a part of what the model around it does.
        let _scope = match cx.is_inside() {
            true => {
                alloc::charge(weights).map_err(|_| over(weights))?;
                None
            }
            false => Some(Scope::current().charged_to(&ledger).enter()),
        };
        tied::drop_repeated_weights(&mut graph);
        let warnings = suspects::warnings(&graph, &file);
        dtypes::restore(&mut graph);
        let (roles, controls) = decode_operators(&graph, &file, cx)?;
        let inputs = graph.operators_of("pnnx.Input").flat_map(|(_, op)| {
            op.outputs.iter().filter_map(|&id| value_info(&graph, &op.name, id))
        });
        let inputs = inputs.collect();
        let outputs = outputs(&graph, &file, &roles, limits)?;
        if let Some(why) = halt::seen(&Scope::current()) {
            return Err(ModelError::Interrupted { file, error: why });
        }
        let weights = weights.saturating_add(ledger.spent());
        let mapped = if cx.is_inside() { mapped } else { cx.mapped };
        let sizes = options.load.sizes;
        let attributes = graph.operators().flat_map(|(_, op)| op.attrs.values());
        let in_file = attributes.filter_map(|attribute| attribute.in_file().cloned()).collect();
        Ok(Arc::new(Inner {
            graph,
            file,
            roles,
            inputs,
            outputs,
            warnings,
            sizes,
            packs,
            weights,
            in_file,
            mapped,
            controls,
        }))
    }

    /// The inputs, in the order in which [`Session::run`] takes them.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inner.inputs
    }

    /// The outputs, tuples flattened in order. Where an operator makes a list, that list is one
    /// entry here and as many outputs of a run as it has members.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.inner.outputs
    }

    /// What is likely wrong in the file itself: it runs, but what it computes is probably not what
    /// the model did. Where values differ from those that the file records is said by
    /// [`Model::inference`] and [`Plan::warnings`](crate::Plan::warnings).
    pub fn warnings(&self) -> &[Warning] {
        &self.inner.warnings
    }

    /// What may have been lost in the export, though nothing in the file shows it: one sentence for
    /// each sort, with the number of operators and the first of them.
    pub fn notes(&self) -> Vec<String> {
        suspects::notes(&self.inner.graph, &self.inner.file)
    }

    /// The graph as it was loaded, without inputs that repeat the weights of their own operator,
    /// and with conversions of dtype that only the records of the file show.
    pub fn graph(&self) -> &Graph {
        &self.inner.graph
    }

    /// The `.param` file, or what stands for it in messages.
    pub fn file(&self) -> &str {
        &self.inner.file
    }

    /// Gives memory back to the system that can be made again: packed weights that no plan of any
    /// session uses. Those of plans stay; [`Session::release_memory`] forgets plans as well. Pages
    /// of a mapped file are given back, too.
    pub fn release_memory(&self) {
        self.inner.parts().iter().for_each(|part| part.release_memory());
    }

    /// Bytes of packed weights that are in memory at the moment, for all sessions.
    pub fn packed_bytes(&self) -> usize {
        self.inner.parts().iter().map(|part| part.packs.bytes()).fold(0, usize::saturating_add)
    }

    /// A session: the model with options and threads. Plans are made when shapes are known.
    ///
    /// # Errors
    /// Where an option makes no sense.
    pub fn session(&self, options: SessionOptions) -> Result<Session, SessionError> {
        Session::new(self.clone(), options)
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Model({}, {} operators)", self.inner.file, self.inner.graph.operator_count())
    }
}

impl Inner {
    /// The model, and the bodies of its control operators, each once.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        let (mut parts, mut left): (Vec<&Self>, Vec<&Self>) = (Vec::new(), vec![self]);
        while let Some(part) = left.pop() {
            if !parts.iter().any(|&other| std::ptr::eq(other, part)) {
                parts.push(part);
                let bodies = part.controls.iter().flat_map(|(_, control)| control.flow.bodies());
                left.extend(bodies.map(|body| &*body.inner));
            }
        }
        parts
    }

    /// Bytes of weights in memory: those that were read, or made while decoding, and those that
    /// were left in the file and are read in place since.
    pub(crate) fn weights(&self) -> usize {
        let kept = self.in_file.iter().filter_map(FilePart::kept);
        kept.map(<[u8]>::len).fold(self.weights, usize::saturating_add)
    }

    /// Gives back the memory that weights were read into on their way to packed forms.
    pub(crate) fn release_buffers(&self) {
        self.in_file.iter().for_each(FilePart::release_buffers);
    }

    fn release_memory(&self) {
        self.packs.release_unused();
        self.release_buffers();
        for (_, operator) in self.graph.operators() {
            for attribute in operator.attrs.values() {
                if let (Some(mapping), Some(data)) = (attribute.mapping(), attribute.in_memory()) {
                    mapping.release(data);
                }
            }
        }
    }

    /// Where an operator stands.
    pub(crate) fn location(&self, id: OperatorId) -> Location {
        self.graph.operator(id).map_or_else(Location::default, |op| Location::of(&self.file, op))
    }
}

/// Bytes of the weights that were read, and of those in a mapped file (of all, `as_mapped`). Where
/// several weights are the same memory, as those that zeros stand in for, each counts: the model
/// has them all.
fn weight_bytes(graph: &Graph, as_mapped: bool) -> (usize, usize) {
    let mut bytes = (0usize, 0usize);
    for attribute in graph.operators().flat_map(|(_, op)| op.attrs.values()) {
        let len = attribute.in_memory().map_or(0, |data| data.len());
        let of =
            if as_mapped || attribute.mapping().is_some() { &mut bytes.1 } else { &mut bytes.0 };
        *of = of.saturating_add(len);
    }
    bytes
}

fn value_info(graph: &Graph, operator: &str, id: OperandId) -> Option<ValueInfo> {
    let operand = graph.operand(id)?;
    Some(ValueInfo {
        name: operand.name.clone(),
        operator: operator.to_owned(),
        recorded: operand.ty.clone(),
        id,
    })
}

/// Walks into tuples. Ends, because the graph has no cycles; keeps its own stack, because a file
/// may nest tuples deeper than ours.
fn flatten(graph: &Graph, roles: &[Option<Role>], id: OperandId, each: &mut impl FnMut(OperandId)) {
    let mut stack = vec![id];
    while let Some(id) = stack.pop() {
        let producer = graph.operand(id).and_then(|o| o.producer);
        let pack = producer.filter(|p| matches!(roles.get(p.index()), Some(Some(Role::Pack))));
        match pack.and_then(|p| graph.operator(p)) {
            Some(pack) => stack.extend(pack.inputs.iter().rev()),
            None => each(id),
        }
    }
}

/// Results that a model may have, tuples taken apart.
const MAX_OUTPUTS: usize = 1 << 16;

/// What every operator of a graph is, and the control operators among them.
///
/// # Errors
/// All operators that cannot be decoded at once, those of bodies among them.
fn decode_operators(
    graph: &Graph,
    file: &str,
    cx: &mut Decoding<'_>,
) -> Result<(Vec<Option<Role>>, Controls), ModelError> {
    let options = cx.options();
    let named = || file.to_owned();
    let registry = match &options.operators {
        Some(operators) => Cow::Owned(operators.over(plutino_ops::registry()?)),
        None => Cow::Borrowed(plutino_ops::registry()?),
    };
    let order = topo::kahn(graph).map_err(|error| ModelError::Cycle { file: named(), error })?;
    let memory = |error| ModelError::Memory { file: named(), error };
    let mut roles = lists::filled(graph.operator_slots(), None).map_err(memory)?;
    let mut faults = Faults::default();
    let mut controls = Controls::new();
    for (id, op) in graph.operators() {
        options
            .load
            .limits
            .check()
            .map_err(|error| ModelError::Interrupted { file: named(), error })?;
        if control::is_control(&op.kind) && registry.get(&op.kind).is_none() {
            match cx.control(file, op) {
                Ok(control) => {
                    roles[id.index()] = Some(Role::Operator(Arc::new(cx.unbound(&control))));
                    controls.push((id, control));
                }
                Err(control::Fault::Node(fault)) => faults.add(fault),
                Err(control::Fault::Body) => {} // told below
                Err(control::Fault::Model(error)) => return Err(error),
            }
            continue;
        }
        match role(&registry, file, graph, op) {
            Ok(role) => roles[id.index()] = Some(role),
            Err(fault) => faults.add(fault),
        }
    }
    let mut sizes = lists::filled(graph.operand_slots(), (0, 0)).map_err(memory)?;
    let oversized = oversized_tuple(graph, &roles, file, &order, &mut sizes);
    oversized.into_iter().for_each(|f| faults.add(f));
    cx.undefined.drain(..).for_each(|fault| faults.add(fault));
    cx.undecoded.drain(..).for_each(|list| faults.join(list));
    if let Some(undecoded) = faults.into_list(&registry, file) {
        return Err(undecoded.into());
    }
    Ok((roles, controls))
}

/// The results of a model, tuples taken apart.
///
/// # Errors
/// Where they are too many, or the limits end the work.
fn outputs(
    graph: &Graph,
    file: &str,
    roles: &[Option<Role>],
    limits: &plutino_ir::Limits,
) -> Result<Vec<ValueInfo>, ModelError> {
    let mut outputs = Vec::new();
    for (_, op) in graph.operators_of("pnnx.Output") {
        for &id in &op.inputs {
            limits
                .check()
                .map_err(|error| ModelError::Interrupted { file: file.to_owned(), error })?;
            // Each tuple is small enough, but many results may be the same one.
            flatten(graph, roles, id, &mut |id| outputs.extend(value_info(graph, &op.name, id)));
            let (found, most) = (outputs.len(), MAX_OUTPUTS);
            if found > most {
                return Err(ModelError::TooManyOutputs { file: file.to_owned(), found, most });
            }
        }
    }
    Ok(outputs)
}

/// The first tuple with too many members, or too deep inside: tuples of the same tuples grow
/// exponentially. `sizes` holds zeros for each operand: its members, and how deep they are nested.
fn oversized_tuple(
    graph: &Graph,
    roles: &[Option<Role>],
    file: &str,
    order: &[OperatorId],
    sizes: &mut [(usize, usize)],
) -> Option<BuildError> {
    for &id in order {
        let op = graph.operator(id)?;
        let (Some(Role::Pack), [output]) = (&roles[id.index()], op.outputs.as_slice()) else {
            continue;
        };
        let inputs = op.inputs.iter().map(|i| sizes[i.index()]);
        let (members, nesting) = inputs.fold((0usize, 0), |(members, nesting), (m, n)| {
            (members.saturating_add(m).saturating_add(1), nesting.max(n + 1))
        });
        if members > MAX_MEMBERS || nesting > MAX_NESTING {
            let problem = format!(
                "a tuple may have {MAX_MEMBERS} members and {MAX_NESTING} tuples inside each other at most"
            );
            return Some(NodeReader::new(file, op).error(BuildProblem::Invalid(problem)));
        }
        sizes[output.index()] = (members, nesting);
    }
    None
}

/// What an operator is to the runtime; operators of computation are decoded by the registry.
fn role(
    registry: &Registry,
    file: &str,
    graph: &Graph,
    op: &plutino_ir::Operator,
) -> Result<Role, BuildError> {
    let mut reader = NodeReader::new(file, op);
    let outputs = |reader: &NodeReader<'_>, expected: usize| match op.outputs.len() {
        found if found == expected => Ok(()),
        found => Err(reader.error(BuildProblem::Outputs { expected: expected.to_string(), found })),
    };
    let role = match op.kind.as_str() {
        "pnnx.Input" => {
            outputs(&reader, 1)?;
            Role::Input
        }
        "pnnx.Output" => {
            outputs(&reader, 0)?;
            reader.rest();
            Role::Output
        }
        "pnnx.Attribute" => {
            outputs(&reader, 1)?;
            Role::Constant(reader.any_weight("data")?)
        }
        "prim::TupleConstruct" | "prim::ListConstruct" => {
            outputs(&reader, 1)?;
            reader.rest();
            Role::Pack
        }
        "prim::TupleUnpack" | "prim::ListUnpack" => {
            reader.required_input("input")?;
            Role::Unpack
        }
        _ => return registry.build(file, graph, op).map(|op| Role::Operator(op.into())),
    };
    reader.finish()?;
    Ok(role)
}

/// Unsupported types for which the most similar name is looked for.
const MOST_HINTS: usize = 100;

/// Operators that are told one by one, and unsupported types, at most.
const MOST_FAULTS: usize = 1000;

/// What is wrong with a model: unsupported operators by type, the rest in the order of the file.
#[derive(Default)]
struct Faults {
    kinds: Vec<UnsupportedKind>,
    /// Where in `kinds` a type is.
    known: HashMap<String, usize>,
    nodes: Vec<BuildError>,
    /// Those beyond [`MOST_FAULTS`].
    more: usize,
}

impl Faults {
    fn add(&mut self, fault: BuildError) {
        let BuildProblem::UnsupportedKind { nearest } = fault.problem else {
            match self.nodes.len() {
                0..MOST_FAULTS => self.nodes.push(fault),
                _ => self.more += 1,
            }
            return;
        };
        match self.known.get(&fault.location.kind) {
            Some(&at) => self.kinds[at].count += 1,
            None if self.kinds.len() == MOST_FAULTS => self.more += 1,
            None => {
                let kind = fault.location.kind.clone();
                self.known.insert(kind.clone(), self.kinds.len());
                self.kinds.push(UnsupportedKind {
                    kind,
                    count: 1,
                    first: *fault.location,
                    nearest,
                });
            }
        }
    }

    /// Adds those of a body.
    fn join(&mut self, list: UndecodedOperators) {
        let UndecodedOperators { kinds, nodes, more, .. } = list;
        self.more = self.more.saturating_add(more);
        for kind in kinds {
            match self.known.get(&kind.kind) {
                Some(&at) => self.kinds[at].count = self.kinds[at].count.saturating_add(kind.count),
                None if self.kinds.len() == MOST_FAULTS => {
                    self.more = self.more.saturating_add(kind.count);
                }
                None => {
                    self.known.insert(kind.kind.clone(), self.kinds.len());
                    self.kinds.push(kind);
                }
            }
        }
        nodes.into_iter().for_each(|node| self.add(node));
    }

    /// All of them with names that were perhaps meant, the most frequent first; none where there
    /// are none.
    fn into_list(self, registry: &Registry, file: &str) -> Option<UndecodedOperators> {
        let Self { mut kinds, nodes, more, .. } = self;
        if kinds.is_empty() && nodes.is_empty() {
            return None;
        }
        kinds.sort_by_key(|k| std::cmp::Reverse(k.count)); // stable: the first met goes first among equals
        for kind in kinds.iter_mut().take(MOST_HINTS) {
            kind.nearest = kind.nearest.or_else(|| registry.nearest(&kind.kind));
        }
        Some(UndecodedOperators { file: file.to_owned(), kinds, nodes, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_ops::{OpEntry, PlanCx, PlanError, Planned, ShapeError, ValueSpec};
    use plutino_tensor::Tensor;

    fn model(param: &str) -> Result<Model, ModelError> {
        Model::from_graph(Graph::parse(param).unwrap())
    }

    #[test]
    fn all_unsupported_operators_are_listed_at_once() {
        let error = model(
            "7767517\n5 4\n\
             pnnx.Input a 0 1 0\n\
             test.Nothing b 1 1 0 1\n\
             aten::unheard_of c 1 1 1 2\n\
             aten::unheard_of d 1 1 2 3\n\
             pnnx.Output e 1 0 3\n",
        );
        let Err(ModelError::Operators(list)) = error else { panic!("{error:?}") };
        assert_eq!(list.kinds.len(), 2);
        assert_eq!((list.kinds[0].kind.as_str(), list.kinds[0].count), ("aten::unheard_of", 2));
        assert_eq!(list.kinds[0].first.line, Some(5));
        assert!(list.to_string().contains("3 operator(s) cannot be run"), "{list}");
    }

    /// An operator that gives its input back, whatever it is called.
    #[derive(Debug)]
    struct Same;

    impl Operator for Same {
        fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
            Ok(inputs.to_vec())
        }

        fn plan(&self, _: &PlanCx<'_>) -> Result<Planned, PlanError> {
            Ok(Planned::view_of(0))
        }
    }

    fn same(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
        r.required_input("input")?;
        Ok(Box::new(Same))
    }

    #[test]
    fn operators_that_are_given_extend_and_replace_the_linked_ones() {
        static SAME: OpEntry =
            OpEntry { kinds: &["test.Same", "nn.ReLU"], build: same, file: "same.rs", line: 1 };
        let graph = Graph::parse(
            "7767517\n4 3\n\
             pnnx.Input a 0 1 0\n\
             test.Same b 1 1 0 1\n\
             nn.ReLU c 1 1 1 2\n\
             pnnx.Output d 1 0 2\n",
        )
        .unwrap();
        assert!(Model::from_graph(graph.clone()).is_err());
        let operators = Arc::new(Registry::new([&SAME]).unwrap());
        let options = ModelOptions::default().with_operators(operators);
        let model = Model::from_graph_with(graph, &options).unwrap();
        let session = model.session(SessionOptions::default().with_threads(1)).unwrap();
        let x = Tensor::from_slice(&[-1.0f32, 2.0], [2]).unwrap();
        let y = session.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!(y[0], x, "a ReLU of ours would have made 0 of -1");
    }

    #[test]
    fn scripted_control_flow_has_no_body() {
        let error = model(
            "7767517\n4 3\n\
             pnnx.Input a 0 1 0 #0=(3,4)f32\n\
             prim::If b 1 1 0 1 #1=(3,4)f32\n\
             prim::Loop c 1 1 1 2 #2=(3,4)f32\n\
             pnnx.Output d 1 0 2\n",
        );
        let text = error.unwrap_err().to_string();
        for kind in ["prim::If x1", "prim::Loop x1"] {
            assert!(text.contains(kind), "{text}");
        }
        assert!(text.contains("no bodies of scripted control flow; trace the model"), "{text}");
        assert!(!text.contains("nearest"), "{text}");
    }

    #[test]
    fn outputs_look_through_tuples() {
        let model = model(
            "7767517\n4 4\n\
             pnnx.Input a 0 1 0 #0=(1,?)f32\n\
             prim::TupleConstruct t 2 1 0 0 1\n\
             prim::TupleConstruct u 2 1 1 0 2\n\
             pnnx.Output o 1 0 2\n"
                .replace("4 4", "4 3")
                .as_str(),
        )
        .unwrap();
        let names: Vec<_> = model.outputs().iter().map(|o| o.name.as_str()).collect();
        assert_eq!(names, ["0", "0", "0"]);
        assert_eq!(model.inputs()[0].recorded.to_string(), "(1,?)f32");
    }

    #[test]
    fn structure_operators_are_checked_too() {
        let error =
            model("7767517\n2 1\npnnx.Input a 0 1 0 x=1\npnnx.Output o 1 0 0\n").unwrap_err();
        assert!(error.to_string().contains("parameter 'x=1' is not known"), "{error}");
    }
}

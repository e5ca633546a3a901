//! How large a graph becomes, before anything is put into it: definitions of definitions grow
//! exponentially.

use std::collections::{BTreeMap, HashMap};

use super::error::{DefineError, DefineProblem, Site};
use super::{Definition, Definitions, MOST_DEFINITION_LEVELS};
use crate::graph::{Graph, Operator};
use crate::sizes::{SizeLimit, SizeLimits, TooLarge};

/// Types that no model can stand for: what they do is to connect operators, or to hold data.
const RESERVED: [&str; 7] = [
    "pnnx.Input",
    "pnnx.Output",
    "pnnx.Attribute",
    "prim::TupleConstruct",
    "prim::TupleUnpack",
    "prim::ListConstruct",
    "prim::ListUnpack",
];

/// What a graph consists of once all definitions are in their places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) operators: usize,
    pub(crate) operands: usize,
    /// Bytes of the text, without the names of the nodes around it.
    pub(crate) bytes: usize,
    /// Names that those of the nodes around are put before.
    pub(crate) names: usize,
    /// Definitions that lie within each other.
    levels: usize,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.operators = self.operators.saturating_add(other.operators);
        self.operands = self.operands.saturating_add(other.operands);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.names = self.names.saturating_add(other.names);
        self.levels = self.levels.max(other.levels);
    }

    /// The first limit that is exceeded.
    pub(crate) fn check(self, sizes: &SizeLimits) -> Result<(), TooLarge> {
        sizes.check(SizeLimit::Operators, self.operators)?;
        sizes.check(SizeLimit::Operands, self.operands)?;
        sizes.check(SizeLimit::TextBytes, self.bytes)
    }
}

/// Counts, and refuses types that contain themselves.
pub(crate) struct Counter<'a> {
    file: &'a str,
    definitions: &'a Definitions,
    known: HashMap<&'a str, Size>,
}

/// The types around a node, the outermost first.
type Chain<'a> = Vec<&'a str>;

impl<'a> Counter<'a> {
    pub(crate) fn new(file: &'a str, definitions: &'a Definitions) -> Self {
        Self { file, definitions, known: HashMap::new() }
    }

    /// The size of a graph with all definitions in their places; none where nothing in it is
    /// defined.
    ///
    /// # Errors
    /// Where a type contains itself, or is one that cannot be defined.
    pub(crate) fn graph(&mut self, graph: &'a Graph) -> Result<Option<Size>, DefineError> {
        let defined = |operator: &Operator| self.definitions.get(&operator.kind).is_some();
        if !graph.operators().any(|(_, operator)| defined(operator)) {
            return Ok(None);
        }
        self.sum(self.file, graph, &mut Vec::new()).map(Some)
    }

    fn sum(
        &mut self,
        file: &str,
        graph: &'a Graph,
        chain: &mut Chain<'a>,
    ) -> Result<Size, DefineError> {
        let mut size = Size { operands: graph.operand_count(), ..Size::default() };
        let mut nodes: BTreeMap<&'a str, (usize, usize, &'a Operator)> = BTreeMap::new();
        for (_, operator) in graph.operators() {
            size.add(own(operator));
            if self.definitions.get(&operator.kind).is_some() {
                let of = nodes.entry(&operator.kind).or_insert((0, 0, operator));
                *of = (of.0 + 1, of.1.saturating_add(operator.name.len() + 1), of.2);
            }
        }
        let names = graph.operands().map(|(_, operand)| operand.name.len() + 1);
        size.bytes = names.fold(size.bytes, usize::saturating_add);
        size.names = size.operators.saturating_add(size.operands);
        for (kind, (count, prefixes, first)) in nodes {
            let Some(definition) = self.definitions.get(kind) else { continue };
            let site = || Site::of(file, first);
            let inner = self.definition(kind, definition, site, chain)?;
            let times = |n: usize| n.saturating_mul(count);
            size.add(Size {
                operators: times(inner.operators),
                operands: times(inner.operands),
                bytes: times(inner.bytes).saturating_add(inner.names.saturating_mul(prefixes)),
                names: times(inner.names),
                levels: inner.levels + 1,
            });
        }
        Ok(size)
    }

    fn definition(
        &mut self,
        kind: &'a str,
        definition: &'a Definition,
        site: impl Fn() -> Site,
        chain: &mut Chain<'a>,
    ) -> Result<Size, DefineError> {
        let failed = |problem| DefineError {
            node: Box::new(site()),
            definition: definition.file.to_string(),
            problem,
        };
        if RESERVED.contains(&kind) {
            return Err(failed(DefineProblem::Reserved));
        }
        let named =
            |of: &[&str]| of.iter().chain([&kind]).map(|&kind| kind.to_owned()).collect::<Vec<_>>();
        if let Some(at) = chain.iter().position(|&other| other == kind) {
            let members = chain.get(at..).unwrap_or_default();
            return Err(failed(DefineProblem::Recursive(named(members))));
        }
        let known = self.known.get(kind).copied();
        if chain.len() + known.map_or(0, |size| size.levels) >= MOST_DEFINITION_LEVELS {
            return Err(failed(DefineProblem::TooDeep(named(chain))));
        }
        if let Some(size) = known {
            return Ok(size);
        }
        chain.push(kind);
        let size = self.sum(&definition.file, &definition.graph, chain);
        chain.pop();
        self.known.insert(kind, size.clone()?);
        size
    }
}

/// One operator with its parameters and weights, about as it would be written.
fn own(operator: &Operator) -> Size {
    let mut bytes = operator.kind.len() + operator.name.len() + 8;
    for (key, value) in &operator.params {
        bytes = bytes.saturating_add(key.len() + value.to_string().len() + 2);
    }
    for key in operator.attrs.keys() {
        bytes = bytes.saturating_add(key.len() + 16);
    }
    for key in operator.input_names.iter().flatten() {
        bytes = bytes.saturating_add(key.len() + 2);
    }
    let after = operator.after.len().saturating_mul(32);
    Size { operators: 1, bytes: bytes.saturating_add(after), ..Size::default() }
}

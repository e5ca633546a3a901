//! Which operators exist.

use super::similar::{LONGEST_NAME, most_similar};
use super::{Asked, BuildError, BuildProblem, NodeReader, Operator};
use super::{alias, computed};
use crate::native;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Decodes a node.
pub type Builder = fn(&mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError>;

/// One registration: a builder and the PNNX types that it decodes. Made by
/// [`register_op!`](crate::register_op).
#[derive(Debug)]
pub struct OpEntry {
    /// PNNX types, such as `nn.ReLU` and `F.relu`.
    pub kinds: &'static [&'static str],
    /// The builder.
    pub build: Builder,
    /// Source file of the registration.
    pub file: &'static str,
    /// Line of the registration.
    pub line: u32,
}

inventory::collect!(OpEntry);

/// Registers a builder for one or more PNNX types; one line beside the builder:
/// `register_op!(relu6 => "nn.ReLU6", "F.relu6");`
#[macro_export]
macro_rules! register_op {
    ($build:expr => $($kind:literal),+ $(,)?) => {
        $crate::inventory::submit! {
            $crate::OpEntry { kinds: &[$($kind),+], build: $build, file: file!(), line: line!() }
        }
    };
}

/// Two registrations of one type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operator type {kind} is registered twice: {first} and {second}")]
pub struct DuplicateKind {
    /// The type.
    pub kind: &'static str,
    /// Where one registration stands.
    pub first: String,
    /// Where the other stands.
    pub second: String,
}

/// Every registered operator type, sorted by name: the order of registration is never observable.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: BTreeMap<&'static str, &'static OpEntry>,
    /// The types that share a name but for namespace, letter case and underscores.
    bare: BTreeMap<String, Vec<&'static str>>,
}

impl Registry {
    /// A registry of these entries.
    ///
    /// # Errors
    /// Where a type is registered twice.
    pub fn new(entries: impl IntoIterator<Item = &'static OpEntry>) -> Result<Self, DuplicateKind> {
        let mut map: BTreeMap<&'static str, &'static OpEntry> = BTreeMap::new();
        for entry in entries {
            for kind in entry.kinds {
                if let Some(other) = map.insert(kind, entry) {
                    let mut places = [(other.file, other.line), (entry.file, entry.line)];
                    places.sort_unstable(); // link order must not show in the message either
                    let [first, second] = places.map(|(file, line)| format!("{file}:{line}"));
                    return Err(DuplicateKind { kind, first, second });
                }
            }
        }
        Ok(Self::of(map))
    }

    fn of(entries: BTreeMap<&'static str, &'static OpEntry>) -> Self {
        let mut bare: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
        for kind in entries.keys() {
            bare.entry(alias::bare(kind)).or_default().push(kind);
        }
        Self { entries, bare }
    }

    /// This registry with that one behind it: where both know a type, this one's builder decodes
    /// it.
    #[must_use]
    pub fn over(&self, behind: &Registry) -> Self {
        let mut entries = behind.entries.clone();
        entries.extend(&self.entries);
        Self::of(entries)
    }

    /// The registered type whose builder decodes this node: its own, or that of which a raw
    /// operator (`aten::`) is a spelling.
    pub fn resolve(
        &self,
        graph: &plutino_ir::Graph,
        op: &plutino_ir::Operator,
    ) -> Option<&'static str> {
        let call = native::call(self, graph, op);
        self.find(call.kind.unwrap_or(&op.kind)).map(|(kind, _)| kind)
    }

    /// What the builder of this node asks for, as far as it comes: parameters, weights and inputs,
    /// with their defaults.
    pub fn asked(&self, graph: &plutino_ir::Graph, op: &plutino_ir::Operator) -> Vec<Asked> {
        let call = native::call(self, graph, op);
        let mut reader = NodeReader::in_graph("", graph, op, &call);
        reader.record();
        if let Some(entry) = self.get(call.kind.unwrap_or(&op.kind)) {
            // Where the node is wrong, what was asked for until then is the answer.
            let _ = (entry.build)(&mut reader);
        }
        reader.into_asked()
    }

    /// The registration of this type.
    pub fn get(&self, kind: &str) -> Option<&'static OpEntry> {
        self.entries.get(kind).copied()
    }

    /// The registration of this type, with the type as it was registered.
    pub(crate) fn find(&self, kind: &str) -> Option<(&'static str, &'static OpEntry)> {
        self.entries.get_key_value(kind).map(|(kind, entry)| (*kind, *entry))
    }

    /// Whether nodes of this type can be decoded: it is registered, or it is the raw form
    /// (`aten::`) of a type that is.
    pub fn knows(&self, kind: &str) -> bool {
        self.get(kind).is_some() || self.meaning(kind).is_some()
    }

    /// The registered type of which this one is the raw form: `torch.sort` of `aten::sort`.
    pub fn meaning(&self, kind: &str) -> Option<&'static str> {
        native::meaning(self, kind)
    }

    /// Every type with its registration, sorted by type.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static OpEntry)> + '_ {
        self.entries.iter().map(|(k, e)| (*k, *e))
    }

    /// Number of types.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no operator is registered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The registered type that means the same, or else the one with the most similar name, if any
    /// is similar.
    pub fn nearest(&self, kind: &str) -> Option<&'static str> {
        if kind.len() > LONGEST_NAME {
            return None;
        }
        let bare = alias::bare(kind);
        // Of several with one name, that of the same namespace.
        let alike = |known: &&'static str| known.split('.').next() == kind.split('.').next();
        let named = |kinds: &Vec<&'static str>| {
            kinds.iter().copied().find(alike).or_else(|| kinds.first().copied())
        };
        let same_name = self.bare.get(&bare).and_then(named);
        let meant = || alias::meanings(&bare).find(|kind| self.entries.contains_key(kind));
        same_name.or_else(meant).or_else(|| self.similar(&bare).and_then(named))
    }

    /// The types whose name is the most similar one, if any is similar.
    fn similar(&self, bare: &str) -> Option<&Vec<&'static str>> {
        self.bare.get(most_similar(bare, self.bare.keys().map(String::as_str))?)
    }

    /// Decodes a node of `graph`, which was read from the file named `file`.
    ///
    /// # Errors
    /// Where the type is not registered, or a parameter, weight or input is missing, malformed or
    /// unknown.
    pub fn build(
        &self,
        file: &str,
        graph: &plutino_ir::Graph,
        op: &plutino_ir::Operator,
    ) -> Result<Box<dyn Operator>, BuildError> {
        let call = native::call(self, graph, op);
        let Some(entry) = self.get(call.kind.unwrap_or(&op.kind)) else {
            // Whoever reports all unsupported operators looks for similar names, once for each
            // type.
            let reader = NodeReader::in_graph(file, graph, op, &call);
            return Err(reader.error(BuildProblem::UnsupportedKind { nearest: None }));
        };
        computed::build(entry, file, graph, op, &call)
    }
}

/// The registry of everything that is linked into the program.
///
/// # Errors
/// Where two linked crates register the same type.
pub fn registry() -> Result<&'static Registry, DuplicateKind> {
    static REGISTRY: OnceLock<Result<Registry, DuplicateKind>> = OnceLock::new();
    REGISTRY
        .get_or_init(|| Registry::new(inventory::iter::<OpEntry>))
        .as_ref()
        .map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(reader: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
        Err(reader.error(BuildProblem::Invalid("never built".into())))
    }

    static FIRST: OpEntry =
        OpEntry { kinds: &["test.B", "test.A"], build: refuse, file: "first.rs", line: 1 };
    static SECOND: OpEntry =
        OpEntry { kinds: &["test.A"], build: refuse, file: "second.rs", line: 2 };

    #[test]
    fn a_kind_registered_twice_names_both_files() {
        for order in [[&FIRST, &SECOND], [&SECOND, &FIRST]] {
            let error = Registry::new(order).unwrap_err();
            assert_eq!(
                (error.first.as_str(), error.second.as_str()),
                ("first.rs:1", "second.rs:2")
            );
        }
    }

    #[test]
    fn of_two_registries_the_one_in_front_decodes() {
        static LAST: OpEntry =
            OpEntry { kinds: &["test.A", "test.C"], build: refuse, file: "last.rs", line: 1 };
        let front = Registry::new([&LAST]).unwrap();
        let both = front.over(&Registry::new([&FIRST]).unwrap());
        let files: Vec<_> = both.iter().map(|(kind, entry)| (kind, entry.file)).collect();
        let expected = [("test.A", "last.rs"), ("test.B", "first.rs"), ("test.C", "last.rs")];
        assert_eq!(files, expected);
        assert_eq!(both.nearest("test.CC"), Some("test.C"));
    }

    #[test]
    fn what_a_builder_asks_for_is_known_with_its_defaults() {
        let text = "7767517\n3 3\npnnx.Input a 0 1 0\nnn.Softplus s 1 1 0 1 beta=2.0\n\
                    aten::softplus t 1 1 0 2\n";
        let graph = plutino_ir::Graph::parse(text).unwrap();
        let registry = super::registry().unwrap();
        let nodes: Vec<_> = graph.operators().map(|(_, op)| op).collect();
        assert_eq!(registry.resolve(&graph, nodes[1]), Some("nn.Softplus"));
        assert_eq!(registry.resolve(&graph, nodes[2]), Some("F.softplus"));
        assert_eq!(registry.resolve(&graph, nodes[0]), None);
        let asked = registry.asked(&graph, nodes[1]);
        let threshold = asked.iter().find(|a| a.key == "threshold").unwrap();
        assert_eq!(threshold.expected, "a number");
        assert_eq!(threshold.default.as_deref(), Some("20.0"));
    }

    #[test]
    fn kinds_are_sorted_and_similar_names_are_found() {
        let registry = Registry::new([&FIRST]).unwrap();
        let kinds: Vec<_> = registry.iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["test.A", "test.B"]);
        assert_eq!(registry.nearest("test.AA"), Some("test.A"));
        assert_eq!(registry.nearest("xyz"), None);
        assert_eq!(registry.nearest(&"test.A".repeat(50)), None);
    }

    #[test]
    fn meaning_goes_before_spelling() {
        let registry = super::registry().unwrap();
        for (kind, meant) in [
            ("torch.absolute", "torch.abs"),
            ("Tensor.absolute_", "torch.absolute"),
            ("nn.SyncBatchNorm", "nn.BatchNorm2d"),
            ("nn.Silu", "nn.SiLU"),
            ("nn.modules.activation.ReLU", "nn.ReLU"),
            ("F.Leaky_ReLU", "F.leaky_relu"),
            ("ReduceMax", "torch.amax"),
            ("nn.Convv2d", "nn.Conv2d"),
        ] {
            // Whoever registers one of these makes the hint needless.
            if registry.get(kind).is_none() {
                assert_eq!(registry.nearest(kind), Some(meant), "{kind}");
            }
        }
        alias::all().for_each(|kind| assert!(registry.get(kind).is_some(), "{kind} is registered"));
    }
}

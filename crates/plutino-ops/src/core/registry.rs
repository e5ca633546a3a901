//! Which operators exist.

use super::{BuildError, BuildProblem, NodeReader, Operator};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Decodes a node.
pub type Builder = fn(&mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError>;

/// One registration: a builder and the PNNX types that it decodes. Made by [`register_op!`](crate::register_op).
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
#[derive(Debug, Default)]
pub struct Registry {
    entries: BTreeMap<&'static str, &'static OpEntry>,
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
        Ok(Self { entries: map })
    }

    /// The registration of this type.
    pub fn get(&self, kind: &str) -> Option<&'static OpEntry> {
        self.entries.get(kind).copied()
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

    /// The registered type with the most similar name, if any is similar.
    pub fn nearest(&self, kind: &str) -> Option<&'static str> {
        self.entries
            .keys()
            .map(|k| (strsim::jaro_winkler(k, kind), *k))
            .filter(|(similarity, _)| *similarity > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, k)| k)
    }

    /// Decodes a node of `graph`, which was read from the file named `file`.
    ///
    /// # Errors
    /// Where the type is not registered, or a parameter, weight or input is missing, malformed or unknown.
    pub fn build(
        &self,
        file: &str,
        graph: &plutino_ir::Graph,
        op: &plutino_ir::Operator,
    ) -> Result<Box<dyn Operator>, BuildError> {
        let constants = super::node::constants(graph, op);
        let mut reader = NodeReader::in_graph(file, graph, op, &constants);
        let Some(entry) = self.get(&op.kind) else {
            return Err(
                reader.error(BuildProblem::UnsupportedKind { nearest: self.nearest(&op.kind) })
            );
        };
        let operator = (entry.build)(&mut reader)?;
        reader.finish()?;
        Ok(operator)
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
    fn kinds_are_sorted_and_similar_names_are_found() {
        let registry = Registry::new([&FIRST]).unwrap();
        let kinds: Vec<_> = registry.iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["test.A", "test.B"]);
        assert_eq!(registry.nearest("test.AA"), Some("test.A"));
        assert_eq!(registry.nearest("xyz"), None);
    }
}

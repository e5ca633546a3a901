//! What a plan says about its values: what each is, who needs it when, and where it lies.

use crate::lists;
use crate::memory::Item;
use crate::memory::lay::Lay;
use crate::memory::storage::{Home, Leaf, Storage, Stored};
use crate::plan::infer::Types;
use crate::plan::members;
use crate::plan::net::{Action, Net, Node, ValueId};
use plutino_tensor::{DType, TensorError, TensorSpec};
use std::collections::HashSet;

/// What a value is to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueKind {
    /// Bound by the caller: fed.
    Bound,
    /// Known before the run: an attribute of the file, or computed while planning.
    Constant,
    /// Made by a run, in a shape that is known before.
    Internal,
    /// Made by a run, in a shape that depends on data.
    Dynamic,
}

impl ValueKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::Constant => "constant",
            Self::Internal => "internal",
            Self::Dynamic => "dynamic",
        }
    }
}

/// Where a value lies; offsets are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueStorage {
    /// In what the caller feeds, by position.
    Feed {
        /// Which of the feeds.
        feed: usize,
        /// First byte.
        offset: usize,
    },
    /// In a constant of the plan.
    Constant {
        /// Which of them.
        constant: usize,
        /// First byte.
        offset: usize,
    },
    /// In the arena of the run.
    Arena {
        /// First byte.
        offset: usize,
    },
    /// In a tensor that the run returns, and that steps write to directly.
    Output {
        /// Which of these tensors.
        output: usize,
        /// First byte.
        offset: usize,
    },
    /// In memory of its own, taken when it is made.
    Own,
}

impl std::fmt::Display for ValueStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, offset) = match self {
            Self::Feed { feed, offset } => (format!("input {feed}"), *offset),
            Self::Constant { constant, offset } => (format!("constant {constant}"), *offset),
            Self::Arena { offset } => return write!(f, "arena+{offset}"),
            Self::Output { output, offset } => (format!("output {output}"), *offset),
            Self::Own => return f.write_str("own memory"),
        };
        if offset == 0 { f.write_str(&what) } else { write!(f, "{what}+{offset}") }
    }
}

/// How a value shares the memory of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// It is a view of it: nothing computes it.
    View,
    /// It is computed in its place.
    InPlace,
    /// It is written where it is needed, as a part of it.
    Part,
    /// It is the same tensor under another name: a member of a tuple.
    Same,
}

impl Sharing {
    /// In words: `view of`.
    pub fn words(self) -> &'static str {
        match self {
            Self::View => "view of",
            Self::InPlace => "in place of",
            Self::Part => "part of",
            Self::Same => "same as",
        }
    }
}

/// A tensor of a plan. Steps are counted from 0.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlannedValue {
    /// Name of the operand; members of a tuple are numbered (`7.0`).
    pub name: String,
    /// What it is to a run.
    pub kind: ValueKind,
    /// Element type; none where only the run tells.
    pub dtype: Option<DType>,
    /// Dtype, shape and layout; none where the shape depends on data.
    pub spec: Option<TensorSpec>,
    /// Bytes; 0 where the shape depends on data.
    pub bytes: usize,
    /// How often operators read it, and results are taken of it.
    pub references: usize,
    /// The step that makes it; none for what is there before the run, and for views.
    pub made: Option<usize>,
    /// The first and the last step that read it, or a view of it.
    pub used: Option<(usize, usize)>,
    /// The steps that read it, ascending, each once. Those that read a view stand at the value that
    /// has the memory, whatever views lie between.
    pub readers: Vec<usize>,
    /// Whether it is a result of the run.
    pub fetched: bool,
    /// Whether its memory is needed when the last step is done: it is a result, or what has its
    /// memory as a view, a part or a member of a tuple is one.
    pub kept: bool,
    /// Where it lies.
    pub storage: ValueStorage,
    /// How it shares memory with another value, and the name of that.
    pub shares: Option<(Sharing, String)>,
}

/// A piece of the arena that a step takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allocation {
    /// The first step that writes to it.
    pub step: usize,
    /// The values that lie in it, at one time or another; for scratch memory none.
    pub values: Vec<String>,
    /// Bytes.
    pub bytes: usize,
    /// First byte in the arena.
    pub offset: usize,
    /// The last step that needs it: it is free from the next one on. None where a result is taken
    /// of it when the last step is done.
    pub freed_by: Option<usize>,
}

/// Who reads a tensor.
#[derive(Debug, Clone, Default)]
struct Use {
    references: usize,
    steps: Option<(usize, usize)>,
    readers: Vec<usize>,
    fetched: bool,
    kept: bool,
}

impl Use {
    fn widen(&mut self, steps: Option<(usize, usize)>) {
        self.steps = match (self.steps, steps) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
    }
}

/// Which step a node became: by node, with the next step and the one before where it is none.
pub(crate) struct Times {
    steps: Vec<Option<usize>>,
    next: Vec<Option<usize>>,
    before: Vec<Option<usize>>,
}

impl Times {
    /// Of the steps of all nodes, in order.
    pub(crate) fn new(steps: Vec<Option<usize>>) -> Self {
        let latest = |last: &mut Option<usize>, step: &Option<usize>| {
            *last = step.or(*last);
            Some(*last)
        };
        let before = steps.iter().scan(None, latest).collect();
        let mut next: Vec<_> = steps.iter().rev().scan(None, latest).collect();
        next.reverse();
        Self { steps, next, before }
    }

    fn at(&self, node: usize) -> Option<usize> {
        self.steps.get(node).copied().flatten()
    }

    /// The step of this node, or the next one.
    fn from(&self, node: usize) -> Option<usize> {
        self.next.get(node).copied().flatten()
    }

    /// The step of this node, or the one before; none after the last node.
    fn until(&self, node: usize) -> Option<usize> {
        self.before.get(node).copied().flatten()
    }
}

/// What describes the memory of a plan.
pub(crate) struct Describing<'a> {
    pub(crate) net: &'a Net,
    pub(crate) types: &'a Types,
    pub(crate) storage: &'a Storage,
    pub(crate) lay: &'a Lay,
    pub(crate) times: &'a Times,
}

impl Describing<'_> {
    /// The tensors of all values, in the order of the file.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(crate) fn values(&self) -> Result<Vec<PlannedValue>, TensorError> {
        let owners = self.owners();
        let (leaves, late) = self.uses(&owners);
        let mut values = Vec::new();
        for (at, stored) in self.storage.values.iter().enumerate() {
            let id = ValueId(at);
            match stored {
                Stored::Nowhere => {}
                Stored::Late(slot) => lists::push(
                    &mut values,
                    PlannedValue {
                        name: self.net.name(id).to_owned(),
                        kind: ValueKind::Dynamic,
                        dtype: None,
                        spec: None,
                        bytes: 0,
                        references: late[*slot].references,
                        made: self.net.producer(id).and_then(|node| self.times.at(node)),
                        used: late[*slot].steps,
                        readers: late[*slot].readers.clone(),
                        fetched: late[*slot].fetched,
                        kept: late[*slot].kept,
                        storage: ValueStorage::Own,
                        shares: None,
                    },
                )?,
                Stored::Leaves(of) => {
                    let names =
                        self.types.get(id).map(|spec| members(self.net.shared_name(id), spec));
                    for (name, &leaf) in names.unwrap_or_default().into_iter().zip(of) {
                        lists::extend(
                            &mut values,
                            self.leaf(id, name.to_string(), leaf, &leaves[leaf], &owners),
                        )?;
                    }
                }
            }
        }
        Ok(values)
    }

    fn leaf(
        &self,
        id: ValueId,
        name: String,
        at: usize,
        uses: &Use,
        owners: &[Option<usize>],
    ) -> Option<PlannedValue> {
        let leaf = &self.storage.leaves[at];
        let storage = self.place(leaf)?;
        let own = leaf.value == id;
        let name_of = |leaf: usize| self.net.leaf_name(&self.storage.leaves[leaf]).to_string();
        let part = || Some((Sharing::Part, name_of(self.whole(leaf, owners)?)));
        let shares = match (own, leaf.shares) {
            (false, _) => Some((Sharing::Same, self.net.leaf_name(leaf).to_string())),
            (true, Some((how, of))) => Some((how, name_of(of))),
            (true, None) => part(),
        };
        let kind = match leaf.place.home {
            Home::Feed(_) if leaf.shares.is_none() => ValueKind::Bound,
            Home::Constant(_) if leaf.shares.is_none() => ValueKind::Constant,
            Home::Heap(_) => ValueKind::Dynamic,
            _ => ValueKind::Internal,
        };
        Some(PlannedValue {
            name,
            kind,
            dtype: Some(leaf.dtype),
            spec: leaf.spec.clone(),
            bytes: leaf.place.len,
            references: uses.references,
            made: self.times.at(leaf.born).filter(|_| leaf.written),
            used: uses.steps,
            readers: if own { uses.readers.clone() } else { Vec::new() },
            fetched: uses.fetched,
            kept: uses.kept,
            storage,
            shares,
        })
    }

    /// The leaf that this one is written into, as a part of it.
    fn whole(&self, leaf: &Leaf, owners: &[Option<usize>]) -> Option<usize> {
        let Home::Buffer(buffer) = leaf.place.home else { return None };
        let (whole, _) = self.storage.buffers.get(buffer)?.parent?;
        owners.get(whole).copied().flatten()
    }

    fn place(&self, leaf: &Leaf) -> Option<ValueStorage> {
        let offset = leaf.place.offset;
        Some(match leaf.place.home {
            Home::Feed(feed) => ValueStorage::Feed { feed, offset },
            Home::Constant(constant) => ValueStorage::Constant { constant, offset },
            Home::Heap(_) => ValueStorage::Own,
            Home::Buffer(_) => {
                let region = self.lay.region(self.storage, &leaf.place)?;
                match region.block.checked_sub(1) {
                    None => ValueStorage::Arena { offset: region.offset },
                    Some(output) => ValueStorage::Output { output, offset: region.offset },
                }
            }
        })
    }

    /// For each buffer the leaf that is all of it: the output that others are parts of.
    fn owners(&self) -> Vec<Option<usize>> {
        let mut owners = vec![None; self.storage.buffers.len()];
        for (at, leaf) in self.storage.leaves.iter().enumerate() {
            if let Home::Buffer(buffer) = leaf.place.home
                && let Some(owner @ None) = owners.get_mut(buffer)
            {
                *owner = Some(at);
            }
        }
        owners
    }

    /// Who reads each leaf, and what each late slot holds.
    fn uses(&self, owners: &[Option<usize>]) -> (Vec<Use>, Vec<Use>) {
        let storage = self.storage;
        let mut leaves = vec![Use::default(); storage.leaves.len()];
        let mut late = vec![Use::default(); storage.late_slots]; // bounded: values
        let mut note = |id: ValueId, steps: Option<(usize, usize)>, fetched: bool| {
            let one = |uses: &mut Use| {
                uses.references += 1;
                uses.widen(steps);
                uses.readers.extend(steps.map(|(step, _)| step));
                uses.fetched |= fetched;
                uses.kept |= fetched;
            };
            match storage.values.get(id.0) {
                Some(Stored::Leaves(of)) => of.iter().for_each(|&leaf| one(&mut leaves[leaf])),
                Some(&Stored::Late(slot)) => one(&mut late[slot]),
                Some(Stored::Nowhere) | None => {}
            }
        };
        for (at, node) in self.net.nodes.iter().enumerate() {
            if reads(self.types, node) {
                let step = self.times.at(at).map(|step| (step, step));
                node.inputs.iter().for_each(|&id| note(id, step, false));
            }
        }
        self.net.fetches.iter().for_each(|&id| note(id, None, true));
        // Views are made after what they view, and parts after what they are parts of was placed.
        for (at, leaf) in storage.leaves.iter().enumerate().rev() {
            if let Some((Sharing::View, of)) = leaf.shares {
                let (steps, kept) = (leaves[at].steps, leaves[at].kept);
                leaves[of].widen(steps);
                leaves[of].kept |= kept;
            }
        }
        // Readers of views all go to the value at the beginning: one list, however long the chain.
        let mut roots: Vec<usize> = (0..storage.leaves.len()).collect();
        for (at, leaf) in storage.leaves.iter().enumerate() {
            if let Some((Sharing::View, of)) = leaf.shares {
                roots[at] = roots[of];
                let own = std::mem::take(&mut leaves[at].readers);
                leaves[roots[at]].readers.extend(&own);
                leaves[at].readers = own;
            }
            if let Some(whole) = self.whole(leaf, owners)
                && leaves[whole].kept
            {
                leaves[at].kept = true;
            }
        }
        for uses in leaves.iter_mut().chain(&mut late) {
            uses.readers.sort_unstable();
            uses.readers.dedup();
        }
        (leaves, late)
    }

    /// What steps take of the arena, in the order in which they take it.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(crate) fn allocations(&self) -> Result<Vec<Allocation>, TensorError> {
        let storage = self.storage;
        let mut names: Vec<Vec<String>> = lists::filled(storage.buffers.len(), Vec::new())?;
        for leaf in &storage.leaves {
            if let Home::Buffer(buffer) = leaf.place.home
                && buffer < storage.buffers.len()
            {
                let names = &mut names[storage.root(buffer).0];
                let name = self.net.leaf_name(leaf).to_string();
                // In another layout it is the same value.
                if names.last() != Some(&name) {
                    names.push(name);
                }
            }
        }
        let mut all = Vec::new();
        // What chains have for their own is taken once for all that lies in it.
        let blocks = self.lay.chain_blocks();
        let within: HashSet<usize> =
            blocks.iter().flat_map(|b| b.buffers.iter().copied()).collect();
        let scratch: HashSet<usize> =
            blocks.iter().flat_map(|b| b.scratch.iter().copied()).collect();
        for block in blocks {
            let (first, last) = (block.nodes.start, block.nodes.end.saturating_sub(1));
            if let (Some(step), until) = (self.times.from(first), self.times.until(last)) {
                let values = block.buffers.iter().filter_map(|&b| names.get(b)).flatten();
                let (bytes, offset) = (block.region.len, block.region.offset);
                let (values, freed_by) = (values.cloned().collect(), until.map(|u| u.max(step)));
                lists::push(&mut all, Allocation { step, values, bytes, offset, freed_by })?;
            }
        }
        let buffers = storage.buffers.iter().zip(names).zip(self.lay.roots(storage)).enumerate();
        for (at, ((buffer, values), region)) in buffers {
            let Some(region) = region.filter(|_| !within.contains(&at)) else { continue };
            let life = Item { bytes: region.len, born: buffer.born, dies: buffer.dies };
            let life = storage.overlap.widened(life);
            if let Some(step) = self.times.from(life.born) {
                let freed_by = self.times.until(life.dies).map(|last| last.max(step));
                let (bytes, offset) = (region.len, region.offset);
                lists::push(&mut all, Allocation { step, values, bytes, offset, freed_by })?;
            }
        }
        for (node, region) in self.lay.scratch_regions() {
            if let Some(step) = self.times.at(node).filter(|_| !scratch.contains(&node)) {
                let (bytes, offset) = (region.len, region.offset);
                let (values, freed_by) = (Vec::new(), Some(step));
                lists::push(&mut all, Allocation { step, values, bytes, offset, freed_by })?;
            }
        }
        all.sort_by_key(|a| (a.step, a.offset));
        Ok(all)
    }
}

/// Whether a node reads its inputs while running: making and taking apart tuples reads nothing.
pub(crate) fn reads(types: &Types, node: &Node) -> bool {
    let outputs = types.all(&node.outputs);
    match (&node.action, outputs) {
        (Action::Constant(_), _) | (Action::Pack | Action::Unpack, Some(_)) => false,
        (_, Some(outputs)) => !crate::plan::infer::all_known(&outputs),
        (_, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::testkit::session;
    use std::sync::Arc;

    fn plan(lines: &str) -> Arc<Plan> {
        session(lines).plan(&[TensorSpec::new(DType::F32, [16])]).unwrap()
    }

    fn value<'a>(plan: &'a Plan, name: &str) -> &'a PlannedValue {
        plan.values().iter().find(|v| v.name == name).unwrap_or_else(|| panic!("no value {name}"))
    }

    #[test]
    fn readers_of_a_chain_of_views_are_listed_once() {
        let plan = plan(
            "pnnx.Input in 0 1 0
             test.Reverse a 1 1 0 1
             test.View v 1 1 1 2
             test.View w 1 1 2 3
             test.Reverse b 1 1 2 4
             test.Reverse c 1 1 3 5
             prim::TupleConstruct t 3 1 3 4 5 6
             pnnx.Output o 1 0 6",
        );
        assert_eq!(value(&plan, "1").readers, [1, 2]);
        assert_eq!(
            (&value(&plan, "2").readers[..], &value(&plan, "3").readers[..]),
            (&[1][..], &[2][..])
        );
        // A view of it is a result.
        let one = value(&plan, "1");
        assert!(one.kept && !one.fetched && value(&plan, "3").fetched);
    }

    #[test]
    fn every_sort_of_value_is_described() {
        // Steps: reverse, relu (in place), positive, scale (while running), reverse.
        let plan = plan(
            "pnnx.Input in 0 1 0
             test.Reverse r 1 1 0 1
             test.Relu a 1 1 1 2
             test.View v 1 1 2 3
             test.Positive p 1 1 3 4
             test.Scale l 1 1 4 5 by=2.0
             test.SizeOf z 1 1 0 6
             test.Reverse b 1 1 3 7
             prim::TupleConstruct t 4 1 5 6 7 4 8
             pnnx.Output o 1 0 8",
        );
        let kinds: Vec<_> =
            plan.values().iter().map(|v| (v.name.as_str(), v.kind.name())).collect();
        let known = |name| kinds.iter().find(|(n, _)| *n == name).unwrap().1;
        for (name, kind) in [
            ("0", "bound"),
            ("1", "internal"),
            ("2", "internal"),
            ("3", "internal"),
            ("4", "dynamic"),
            ("5", "dynamic"),
            ("6", "constant"),
            ("7", "internal"),
        ] {
            assert_eq!(known(name), kind, "{name}");
        }
        let position = |kernel: &str, nth: usize| {
            let steps = plan.steps().enumerate().filter(|(_, step)| step.kernel == kernel);
            steps.map(|(at, _)| at).nth(nth).unwrap()
        };
        let (reverse, relu, positive) =
            (position("reverse", 0), position("relu", 0), position("positive", 0));
        let last = position("reverse", 1);
        let zero = value(&plan, "0");
        assert_eq!((zero.made, zero.used), (None, Some((reverse, reverse))));
        assert_eq!(zero.storage, ValueStorage::Feed { feed: 0, offset: 0 });
        assert_eq!((zero.references, zero.bytes, zero.fetched), (1, 64, false));
        let one = value(&plan, "1");
        assert_eq!((one.made, one.used), (Some(reverse), Some((relu, relu))));
        // The view is read by two steps; what it is a view of is read through it.
        let (two, three) = (value(&plan, "2"), value(&plan, "3"));
        assert_eq!(two.shares, Some((Sharing::InPlace, "1".into())));
        assert_eq!((two.made, two.used, two.references), (Some(relu), three.used, 1));
        assert_eq!(three.shares, Some((Sharing::View, "2".into())));
        let read = (positive.min(last), positive.max(last));
        assert_eq!((three.made, three.used, three.references), (None, Some(read), 2));
        assert_eq!(two.readers, [read.0, read.1], "read through the view");
        assert!(one.readers == [relu] && !one.kept);
        assert_eq!(three.storage, one.storage);
        assert!(value(&plan, "4").spec.is_none() && value(&plan, "4").fetched);
        assert_eq!(value(&plan, "6").made, None);
        let seven = value(&plan, "7");
        assert_eq!(seven.storage, ValueStorage::Output { output: 0, offset: 0 });
        assert!(seven.fetched && seven.kept && seven.used.is_none());
        // The last reverse has scratch memory, as the first has.
        let scratch: Vec<usize> =
            plan.allocations().iter().filter(|a| a.values.is_empty()).map(|a| a.step).collect();
        assert_eq!(scratch, [reverse, last]);
    }

    #[test]
    fn allocations_are_the_arena() {
        let plan = plan(
            "pnnx.Input in 0 1 0
             test.Reverse r 1 1 0 1
             test.Reverse s 1 1 1 2
             test.Cat c 2 1 1 2 3
             test.Reverse t 1 1 3 4
             test.Relu u 1 1 4 5
             test.Reverse w 1 1 5 6
             pnnx.Output o 1 0 6",
        );
        // 1 and 2 are written where 3 is.
        for part in ["1", "2"] {
            assert_eq!(value(&plan, part).shares, Some((Sharing::Part, "3".into())));
        }
        let all = plan.allocations();
        let joint = all.iter().find(|a| a.values.contains(&"3".to_owned())).unwrap();
        assert_eq!((joint.values.len(), joint.bytes, joint.step), (3, 128, 0));
        let reader = plan.steps().position(|step| step.location.name == "t").unwrap();
        assert_eq!(joint.freed_by, Some(reader));
        // No two that are there at the same time share a byte, and the arena holds them all.
        for (i, a) in all.iter().enumerate() {
            assert!(a.offset + a.bytes <= plan.memory().arena);
            for b in &all[i + 1..] {
                let end = |x: &Allocation| x.freed_by.unwrap_or(usize::MAX);
                let together = a.step <= end(b) && b.step <= end(a);
                let apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
                assert!(!together || apart, "{a:?} {b:?}");
            }
        }
        let live = plan.live_bytes();
        assert_eq!(live.len(), plan.steps().len());
        assert_eq!(live.iter().max(), Some(&plan.memory().lower_bound));
    }
}

//! Which values share memory: views, results computed in place, and values that need memory of
//! their own.
//!
//! Values are taken apart into *leaves* (a tuple has several, everything else one). Each leaf gets
//! a [`Place`]: a part of a buffer of the arena, of an input, of a constant, or a heap slot where
//! its shape depends on data. Time is the position of a node in the net; values fetched live until
//! [`Storage::end`].

use crate::SessionError;
use crate::lists;
use crate::plan::infer::{self, Types};
use crate::plan::net::{Action, Net, Node, ValueId};
use crate::plan::overlap::Overlap;
use crate::plan::values::{self, Sharing};
use plutino_ops::{Alias, Planned, ValueSpec};
use plutino_tensor::{DType, Tensor, TensorSpec};
use std::collections::HashSet;

/// What a place is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// A buffer of [`Storage::buffers`].
    Buffer(usize),
    /// An input of the run.
    Feed(usize),
    /// A constant of the plan.
    Constant(usize),
    /// A tensor that its producer hands over.
    Heap(usize),
}

/// Where a leaf lies, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) home: Home,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Place {
    fn overlaps(&self, other: &Self) -> bool {
        self.home == other.home
            && self.len > 0
            && other.len > 0
            && self.offset < other.offset + other.len
            && other.offset < self.offset + self.len
    }
}

/// A tensor of the plan.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub(crate) value: ValueId,
    /// Which member of a tuple it is.
    pub(crate) member: Option<usize>,
    pub(crate) dtype: DType,
    /// Nothing where the shape depends on data.
    pub(crate) spec: Option<TensorSpec>,
    pub(crate) place: Place,
    /// When it is made.
    pub(crate) born: usize,
    /// When it is read for the last time.
    pub(crate) last_use: usize,
    /// Whether its bytes are written when it is born: not so for views.
    pub(crate) written: bool,
    /// How it shares the memory of another leaf.
    pub(crate) shares: Option<(Sharing, usize)>,
}

/// Leaves in one buffer beyond which it is not searched for those that are still needed: views of
/// it by the thousand.
const MOST_RESIDENTS: usize = 1024;

/// How a value is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stored {
    /// As leaves, by position in [`Storage::leaves`].
    Leaves(Vec<usize>),
    /// In a slot, as whatever comes out while running.
    Late(usize),
    /// Not at all: no node makes it.
    Nowhere,
}

/// Memory of one or several leaves that follow each other or lie inside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) len: usize,
    pub(crate) born: usize,
    pub(crate) dies: usize,
    /// When it is written for the last time.
    pub(crate) last_write: usize,
    /// Whether a leaf in it is fetched.
    pub(crate) fetched: bool,
    /// The buffer that this one is a part of, and where.
    pub(crate) parent: Option<(usize, usize)>,
}

/// The places of everything.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) leaves: Vec<Leaf>,
    /// By [`ValueId`].
    pub(crate) values: Vec<Stored>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) constants: Vec<Tensor>,
    pub(crate) heap_slots: usize,
    pub(crate) late_slots: usize,
    /// For each node, the input leaves (counted within the node) whose memory an output took over.
    pub(crate) shared: Vec<Vec<usize>>,
    /// The time after the last node: when fetched values are read.
    pub(crate) end: usize,
    /// Which nodes run at the same time.
    pub(crate) overlap: Overlap,
    /// For each buffer the leaves in it that may be read again, as far as they have a place.
    residents: Vec<Vec<usize>>,
}

impl Storage {
    /// Finds a place for every value. `planned` holds what each node's operator said, where it was
    /// planned; `overlap` which nodes run at the same time.
    ///
    /// # Errors
    /// Where an operator's plan contradicts itself, or a size exceeds memory.
    pub(crate) fn new(
        net: &Net,
        types: &Types,
        feeds: &[TensorSpec],
        planned: &[Option<Planned>],
        overlap: Overlap,
    ) -> Result<Self, SessionError> {
        let mut storage = Self {
            leaves: Vec::new(),
            values: lists::filled(net.values.len(), Stored::Nowhere)?,
            buffers: Vec::new(),
            constants: Vec::new(),
            heap_slots: 0,
            late_slots: 0,
            shared: lists::filled(net.nodes.len(), Vec::new())?,
            end: net.nodes.len(),
            overlap,
            residents: Vec::new(),
        };
        for (at, (&id, spec)) in net.feeds.iter().zip(feeds).enumerate() {
            let place = Place { home: Home::Feed(at), offset: 0, len: spec.storage_bytes()? };
            let leaf = Leaf {
                value: id,
                member: None,
                dtype: spec.dtype,
                spec: Some(spec.clone()),
                place,
                born: 0,
                last_use: 0,
                written: false,
                shares: None,
            };
            lists::push(&mut storage.leaves, leaf)?;
            storage.values[id.0] = Stored::Leaves(vec![storage.leaves.len() - 1]);
        }
        storage.make_leaves(net, types)?;
        storage.note_uses(net, types);
        for (at, node) in net.nodes.iter().enumerate() {
            if let Some(planned) = planned.get(at).and_then(Option::as_ref) {
                storage.place_outputs(at, node, planned)?;
            }
        }
        storage.note_lifetimes(net);
        Ok(storage)
    }

    /// The leaves of several values, one after the other; none where one is kept in a slot.
    pub(crate) fn leaves_of(&self, values: &[ValueId]) -> Option<Vec<usize>> {
        let mut all = Vec::new();
        for id in values {
            match &self.values[id.0] {
                Stored::Leaves(leaves) => all.extend_from_slice(leaves),
                Stored::Late(_) | Stored::Nowhere => return None,
            }
        }
        Some(all)
    }

    /// The outermost buffer that `buffer` is a part of, and where in it.
    pub(crate) fn root(&self, mut buffer: usize) -> (usize, usize) {
        let mut offset = 0;
        while let Some((parent, at)) = self.buffers[buffer].parent {
            (buffer, offset) = (parent, offset + at);
        }
        (buffer, offset)
    }

    /// One leaf for each tensor that nodes make; the members of a tuple are those that went into
    /// it.
    fn make_leaves(&mut self, net: &Net, types: &Types) -> Result<(), SessionError> {
        for (at, node) in net.nodes.iter().enumerate() {
            let Some(specs) = types.all(&node.outputs) else {
                for id in &node.outputs {
                    self.values[id.0] = Stored::Late(self.late_slots);
                    self.late_slots += 1;
                }
                continue;
            };
            if matches!(node.action, Action::Pack | Action::Unpack) {
                self.make_known_leaves(&node.inputs, types, at)?;
                let mut leaves = self.leaves_of(&node.inputs).unwrap_or_default().into_iter();
                for (id, spec) in node.outputs.iter().zip(&specs) {
                    let own = leaves.by_ref().take(spec.leaf_count()).collect();
                    self.values[id.0] = Stored::Leaves(own);
                }
                continue;
            }
            let known = specs.iter().all(infer::known);
            for (&id, spec) in node.outputs.iter().zip(&specs) {
                let single = !matches!(spec, ValueSpec::List(_));
                // Of a list some members may be known, such as sizes beside one that is computed:
                // nobody writes those.
                let known = known || !single;
                let mut leaves = Vec::new();
                for (member, leaf) in spec.leaves().into_iter().enumerate() {
                    leaves.push(self.leaves.len());
                    let leaf = self.new_leaf(id, (!single).then_some(member), leaf, at, known)?;
                    lists::push(&mut self.leaves, leaf)?;
                }
                self.values[id.0] = Stored::Leaves(leaves);
            }
        }
        Ok(())
    }

    /// Leaves of what is known and has none because whatever made it is gone: a list has as many
    /// leaves as members, or those behind it are taken for others.
    fn make_known_leaves(
        &mut self,
        values: &[ValueId],
        types: &Types,
        at: usize,
    ) -> Result<(), SessionError> {
        for &id in values {
            let Some(spec) = types.get(id).filter(|spec| infer::known(spec)) else { continue };
            if !matches!(self.values[id.0], Stored::Nowhere) {
                continue;
            }
            let member = |i| matches!(spec, ValueSpec::List(_)).then_some(i);
            let mut leaves = Vec::new();
            for (i, leaf) in spec.leaves().into_iter().enumerate() {
                lists::push(&mut leaves, self.leaves.len())?;
                let leaf = self.new_leaf(id, member(i), leaf, at, true)?;
                lists::push(&mut self.leaves, leaf)?;
            }
            self.values[id.0] = Stored::Leaves(leaves);
        }
        Ok(())
    }

    /// A leaf without a place, unless it is a constant or on the heap.
    fn new_leaf(
        &mut self,
        value: ValueId,
        member: Option<usize>,
        spec: &ValueSpec,
        born: usize,
        known: bool,
    ) -> Result<Leaf, SessionError> {
        let mut written = true;
        let (dtype, spec, home) = match spec {
            ValueSpec::Tensor(t) => match t.known.as_ref().filter(|_| known) {
                Some(constant) => {
                    written = false;
                    self.constants.push(constant.clone());
                    (t.spec.dtype, Some(t.spec.clone()), Home::Constant(self.constants.len() - 1))
                }
                None => (t.spec.dtype, Some(t.spec.clone()), Home::Buffer(usize::MAX)),
            },
            ValueSpec::Dynamic { dtype } => {
                self.heap_slots += 1;
                (*dtype, None, Home::Heap(self.heap_slots - 1))
            }
            ValueSpec::List(_) | ValueSpec::Word(_) => {
                return Err(SessionError::internal("a list or a word is not a leaf"));
            }
        };
        let len = spec.as_ref().map_or(Ok(0), TensorSpec::storage_bytes)?;
        let place = Place { home, offset: 0, len };
        let (last_use, shares) = (born, None);
        Ok(Leaf { value, member, dtype, spec, place, born, last_use, written, shares })
    }

    /// When each leaf is read for the last time. Making and taking apart tuples reads nothing.
    fn note_uses(&mut self, net: &Net, types: &Types) {
        for (at, node) in net.nodes.iter().enumerate() {
            if values::reads(types, node) {
                node.inputs.iter().for_each(|&id| self.note_use(id, at));
            }
        }
        net.fetches.iter().for_each(|&id| self.note_use(id, self.end));
    }

    fn note_use(&mut self, id: ValueId, at: usize) {
        if let Stored::Leaves(leaves) = &self.values[id.0] {
            for &leaf in leaves {
                self.leaves[leaf].last_use = self.overlap.later(self.leaves[leaf].last_use, at);
            }
        }
    }

    /// Places what one node makes: in an input's memory where the plan and lifetimes allow it.
    fn place_outputs(
        &mut self,
        at: usize,
        node: &Node,
        planned: &Planned,
    ) -> Result<(), SessionError> {
        let wrong = |what: &str| SessionError::internal(format!("{}: {what}", node.location));
        let inputs =
            self.leaves_of(&node.inputs).ok_or_else(|| wrong("planned before its inputs"))?;
        let outputs =
            self.leaves_of(&node.outputs).ok_or_else(|| wrong("planned without outputs"))?;
        for (k, &leaf) in outputs.iter().enumerate() {
            if self.leaves[leaf].place.home != Home::Buffer(usize::MAX) {
                continue; // constant, or on the heap
            }
            let len = self.leaves[leaf].place.len;
            match planned.alias.get(k).copied().unwrap_or(Alias::None) {
                Alias::View { input, offset } => {
                    let of = *inputs.get(input).ok_or_else(|| wrong("a view of no input"))?;
                    let source = &self.leaves[of];
                    let start = offset.checked_mul(source.dtype.size_of());
                    let inside = start
                        .and_then(|s| s.checked_add(len))
                        .is_some_and(|end| end <= source.place.len);
                    let (Some(start), true) = (start, inside) else {
                        return Err(wrong("a view outside its input"));
                    };
                    let place = Place { offset: source.place.offset + start, len, ..source.place };
                    self.leaves[leaf].place = place;
                    self.leaves[leaf].written = false;
                    self.leaves[leaf].shares = Some((Sharing::View, of));
                    self.settle(at, leaf);
                }
                Alias::InPlace { input }
                    if self.may_overwrite(at, &inputs, &outputs, input, len) =>
                {
                    self.leaves[leaf].place = self.leaves[inputs[input]].place;
                    self.leaves[leaf].shares = Some((Sharing::InPlace, inputs[input]));
                    self.shared[at].push(input);
                    self.settle(at, leaf);
                }
                Alias::InPlace { .. } | Alias::None => {
                    self.leaves[leaf].place =
                        Place { home: Home::Buffer(self.buffers.len()), offset: 0, len };
                    let buffer = Buffer {
                        len,
                        born: at,
                        dies: at,
                        last_write: at,
                        fetched: false,
                        parent: None,
                    };
                    lists::push(&mut self.buffers, buffer)?;
                    lists::push(&mut self.residents, Vec::new())?;
                    self.settle(at, leaf);
                }
            }
        }
        Ok(())
    }

    /// Whether an output of `len` bytes may overwrite an input leaf: a buffer of ours, and whatever
    /// lies there is not needed after this node, nor read by it a second time.
    fn may_overwrite(
        &self,
        at: usize,
        inputs: &[usize],
        outputs: &[usize],
        input: usize,
        len: usize,
    ) -> bool {
        let Some(&leaf) = inputs.get(input) else { return false };
        let place = self.leaves[leaf].place;
        let Home::Buffer(buffer) = place.home else { return false };
        let others = inputs.iter().enumerate().filter(|(i, _)| *i != input).map(|(_, l)| *l);
        let residents = self.residents.get(buffer).map_or(&[][..], Vec::as_slice);
        place.len == len
            && residents.len() <= MOST_RESIDENTS
            && others.chain(outputs.iter().copied()).all(|l| !self.leaves[l].place.overlaps(&place))
            && residents.iter().map(|&l| &self.leaves[l]).all(|l| {
                let over = self.overlap.is_over(l.last_use, at);
                over || l.born >= at || !l.place.overlaps(&place)
            })
    }

    /// Notes that a leaf lies in its buffer from node `at` on. Leaves there that nobody reads any
    /// more are forgotten when as many came as there were, so that a chain of leaves in one buffer
    /// stays short.
    fn settle(&mut self, at: usize, leaf: usize) {
        let Home::Buffer(buffer) = self.leaves[leaf].place.home else { return };
        let Some(residents) = self.residents.get_mut(buffer) else { return };
        if residents.len() == residents.capacity() {
            let horizon = self.overlap.horizon(at);
            residents.retain(|&l| self.leaves[l].last_use >= horizon);
            residents.reserve(residents.len().max(4));
        }
        residents.push(leaf);
    }

    /// From leaves to buffers: when each is born, written for the last time, and dies.
    fn note_lifetimes(&mut self, net: &Net) {
        let fetched: HashSet<usize> =
            net.fetches.iter().filter_map(|&id| self.leaves_of(&[id])).flatten().collect();
        for (at, leaf) in self.leaves.iter().enumerate() {
            if let Home::Buffer(b) = leaf.place.home
                && let Some(buffer) = self.buffers.get_mut(b)
            {
                buffer.born = buffer.born.min(leaf.born);
                buffer.dies = self.overlap.later(buffer.dies, leaf.last_use);
                buffer.fetched |= fetched.contains(&at);
                if leaf.written {
                    buffer.last_write = self.overlap.later(buffer.last_write, leaf.born);
                }
            }
        }
    }
}

//! Layout: convolutions compute in channel blocks (NCHWc), and so does whatever lies between them.
//!
//! Shapes stay PyTorch's. First the pass decides in which physical layout each value is made, and
//! who reads it in the other one ([`Choice`]); then patches put reorders there. It decides in
//! execution order, so that one look suffices:
//!
//! 1. operators say in which layout they take each input and make each output
//!    ([`LayoutSupport`]): convolutions ask for blocks, a first one for plain images;
//! 2. what computes in either layout follows its inputs: the reorder sinks below it;
//! 3. everything else, and every result of the run, is plain;
//! 4. a value is reordered once, however many need it, and never back: its twin is found instead;
//! 5. a permutation between channels first and channels last at the edge of blocks is a reorder
//!    itself.

use super::PassCx;
use super::patch::{NewNode, Patch};
use crate::SessionError;
use crate::halt;
use crate::plan::infer;
use crate::plan::net::{Action, Net, Node, Value, ValueId};
use plutino_ops::{
    LayoutCx, LayoutOf, LayoutSupport, Location, Operator, Reorder, Role, ValueSpec,
};
use plutino_tensor::{Layout, TensorError, TensorSpec};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Chooses the layout of every value; a block has as many channels as a vector has lanes.
pub(super) fn layout(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let choice = super::searching(|| Search::new(net, cx).choose())?;
    for (at, why) in &choice.refused {
        cx.refuse(&net.nodes[*at].location.name, why.clone());
    }
    let mut twins = HashMap::new();
    // The place behind the last node is that of the results.
    for at in 0..=net.nodes.len() {
        let Some(patch) = choice.patch(net, at, &mut twins)? else { continue };
        if !cx.apply(net, patch)? {
            // Others count on it.
            return Err(SessionError::internal("a reorder was refused"));
        }
    }
    Ok(())
}

/// What is decided, before anything changes.
struct Choice {
    /// The layout of what lies in blocks.
    layout: Layout,
    /// The values that are made in blocks; all others are made plain.
    blocked: HashSet<ValueId>,
    /// Permutations that reorder on the way.
    turns: HashMap<usize, Reorder>,
    /// Numbers of the inputs that a node takes in the layout that they are not made in; behind the
    /// last node, of results.
    reads: BTreeMap<usize, Vec<usize>>,
    /// Nodes that stay plain, or are no reorders, and why.
    refused: Vec<(usize, String)>,
}

impl Choice {
    /// What changes at a node; `twins` are the reordered values so far.
    fn patch(
        &self,
        net: &mut Net,
        at: usize,
        twins: &mut HashMap<ValueId, ValueId>,
    ) -> Result<Option<Patch>, TensorError> {
        let node = net.nodes.get(at);
        let mut lying: Vec<(ValueId, Layout)> = node
            .into_iter()
            .flat_map(|node| node.outputs.iter().copied())
            .filter(|output| self.blocked.contains(output))
            .map(|output| (output, self.layout))
            .collect();
        if let Some((reorder, node)) = self.turns.get(&at).zip(node) {
            let operator: Arc<dyn Operator> = Arc::new(reorder.clone());
            let patch = Patch::replace(at, operator, node.inputs.clone(), node.outputs.clone());
            let note = format!("reorders to {} on the way", reorder.to);
            return Ok(Some(patch.lying(lying).note(&node.location.name, note)));
        }
        let slots = self.reads.get(&at).map(Vec::as_slice).unwrap_or_default();
        if slots.is_empty() && lying.is_empty() {
            return Ok(None);
        }
        let reader = node.map(|node| node.location.name.clone());
        let (mut insert, mut reads, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for &slot in slots {
            let values = net.nodes.get(at).map_or(&net.fetches, |node| &node.inputs);
            let Some(&value) = values.get(slot) else { return Ok(None) };
            let twin = if let Some(&twin) = twins.get(&value) {
                twin
            } else {
                let to = if self.blocked.contains(&value) { Layout::Plain } else { self.layout };
                let name = net.name(value);
                let reader = reader.clone().unwrap_or_else(|| name.to_owned());
                notes.push((reader, format!("reads {name} reordered to {to}")));
                let node = reorder(net, value, to)?;
                lying.extend(node.outputs.iter().map(|&twin| (twin, to)));
                insert.push(node);
                let twin = lying.last().map_or(value, |&(twin, _)| twin);
                twins.insert(value, twin);
                twin
            };
            reads.push((slot, twin));
        }
        let patch = Patch::before(at, insert, reads).lying(lying);
        Ok(Some(notes.iter().fold(patch, |patch, (reader, note)| patch.note(reader, note))))
    }
}

/// A node that makes a twin of a value in this layout. It is at the producer's place in the file,
/// for messages and profiles.
fn reorder(net: &mut Net, value: ValueId, to: Layout) -> Result<NewNode, TensorError> {
    let Value { name, recorded } = net.values[value.0].clone();
    let producer = net.producer(value).and_then(|at| net.nodes.get(at));
    let location = producer.map_or_else(Location::default, |node| (*node.location).clone());
    let location =
        Location { kind: "plutino.Reorder".to_owned(), name: name.to_string(), ..location };
    let twin = net.add_value(Value { name, recorded })?;
    Ok(NewNode {
        location: Some(Arc::new(location)),
        action: Action::Operator(Arc::new(Reorder { to, channels_last: false })),
        inputs: vec![value],
        outputs: vec![twin],
    })
}

/// Decides, in execution order.
struct Search<'a> {
    net: &'a Net,
    cx: &'a PassCx<'a>,
    choice: Choice,
}

impl<'a> Search<'a> {
    fn new(net: &'a Net, cx: &'a PassCx<'a>) -> Self {
        let choice = Choice {
            layout: Layout::Blocked { block: cx.settings.base.isa.lanes() },
            blocked: HashSet::new(),
            turns: HashMap::new(),
            reads: BTreeMap::new(),
            refused: Vec::new(),
        };
        Self { net, cx, choice }
    }

    fn choose(mut self) -> Result<Choice, SessionError> {
        let from_channels_last = self.follow_channels_last();
        for (at, node) in self.net.nodes.iter().enumerate() {
            halt::go_on_at(at)?;
            let turn = self.turn(node, from_channels_last.contains(&at));
            if let Some(reorder) = turn.filter(|_| self.allows(at)) {
                self.make(&node.outputs, |_| reorder.to != Layout::Plain);
                self.choice.turns.insert(at, reorder);
                continue;
            }
            let (inputs, outputs) = match self.sides(at, node) {
                Ok((inputs, outputs)) if self.allows(at) => (inputs, outputs),
                Err(Some(why)) => {
                    self.choice.refused.push((at, why));
                    Default::default()
                }
                _ => Default::default(),
            };
            let blocks = |slot: usize| inputs.get(slot).copied().unwrap_or(false);
            self.read(at, &node.inputs, blocks);
            self.make(&node.outputs, |output| outputs.get(output).copied().unwrap_or(false));
        }
        self.read(self.net.nodes.len(), &self.net.fetches, |_| false);
        Ok(self.choice)
    }

    /// Whether the pass may touch a node that would compute in blocks.
    fn allows(&mut self, at: usize) -> bool {
        let name = &self.net.nodes[at].location.name;
        let allowed = self.cx.allows(name);
        if !allowed {
            self.choice.refused.push((at, format!("the pass is switched off for {name}")));
        }
        allowed
    }

    /// Notes which values are taken in the layout that they are not made in.
    fn read(&mut self, at: usize, values: &[ValueId], in_blocks: impl Fn(usize) -> bool) {
        let blocked = &self.choice.blocked;
        let slots = values.iter().enumerate();
        let other = slots.filter(|&(slot, value)| in_blocks(slot) != blocked.contains(value));
        let other: Vec<usize> = other.map(|(slot, _)| slot).collect();
        if !other.is_empty() {
            self.choice.reads.insert(at, other);
        }
    }

    /// Notes which values are made in blocks.
    fn make(&mut self, values: &[ValueId], in_blocks: impl Fn(usize) -> bool) {
        let made = values.iter().enumerate().filter(|&(output, _)| in_blocks(output));
        self.choice.blocked.extend(made.map(|(_, &value)| value));
    }

    /// What is known of values, in the layouts that they are made in.
    fn specs(&self, values: &[ValueId]) -> Option<Vec<ValueSpec>> {
        let mut specs = self.net.types.all(values)?;
        for (spec, value) in specs.iter_mut().zip(values) {
            if let ValueSpec::Tensor(t) = spec
                && self.choice.blocked.contains(value)
            {
                t.spec.layout = self.choice.layout;
            }
        }
        Some(specs)
    }

    /// Whether a node takes each of its inputs, and makes each of its outputs, in blocks; none of
    /// them, where that is not possible, and why, if something lies in blocks.
    fn sides(&self, at: usize, node: &Node) -> Result<(Vec<bool>, Vec<bool>), Option<String>> {
        let outputs = self.net.types.all(&node.outputs);
        let (Some(operator), Some(inputs), Some(outputs)) =
            (node.operator(), self.specs(&node.inputs), outputs)
        else {
            return Err(None);
        };
        if infer::all_known(&outputs) {
            return Err(None); // a constant of the plan is as it was computed; nothing runs
        }
        let setting = self.cx.settings.of(&node.location);
        let support = operator.layouts(&LayoutCx { inputs: &inputs, setting });
        // Whether images lie in blocks. Images are inputs of as many dimensions as those of them
        // that do; of fewer, they are broadcast.
        let rank_of = |spec: &TensorSpec| (spec.layout != Layout::Plain, spec.shape.rank());
        let rank = inputs.iter().filter_map(blockable).map(rank_of).max().map(|(_, rank)| rank);
        let image = |v| blockable(v).filter(|spec| Some(spec.shape.rank()) == rank);
        let images: Vec<Option<bool>> =
            inputs.iter().map(|v| image(v).map(|t| t.layout != Layout::Plain)).collect();
        let comes = |of: LayoutOf| {
            let mut images = images.iter().enumerate();
            images.any(|(i, image)| *image == Some(true) && support.input(i) == of)
        };
        let common = comes(LayoutOf::Common);
        let side = |of: LayoutOf, own: bool| match of {
            LayoutOf::Plain => false,
            LayoutOf::Blocks => true,
            LayoutOf::Common => common,
            LayoutOf::Own => own,
        };
        let makes: Vec<bool> = (0..outputs.len()).map(|o| side(support.output(o), false)).collect();
        let cannot = |(blocks, spec): (&bool, &&ValueSpec)| *blocks && blockable(spec).is_none();
        if let Some((_, spec)) = makes.iter().zip(&outputs).find(|&(b, spec)| cannot((b, &spec))) {
            return Err(Some(format!("its result, {spec}, cannot lie in channel blocks")));
        }
        if comes(LayoutOf::Plain) {
            let kind = &self.net.nodes[at].location.kind;
            let why = format!("{kind} takes plain tensors here, the input lies in channel blocks");
            if support == LayoutSupport::PLAIN {
                return Err(Some(why));
            }
        }
        let takes = images.iter().enumerate();
        let takes = takes.map(|(i, own)| own.is_some_and(|own| side(support.input(i), own)));
        let takes: Vec<bool> = takes.collect();
        match takes.contains(&true) || makes.contains(&true) {
            true => Ok((takes, makes)),
            false => Err(None),
        }
    }

    /// The nodes that permute channels last to channels first, whole blocks of them, for readers
    /// that all compute in blocks.
    fn follow_channels_last(&mut self) -> HashSet<usize> {
        let (net, block) = (self.net, self.cx.settings.base.isa.lanes());
        let mut asked: HashMap<usize, LayoutSupport> = HashMap::new();
        let mut found = HashSet::new();
        for (at, node) in net.nodes.iter().enumerate() {
            let &[output] = &node.outputs[..] else { continue };
            let Some(spec) = net.types.get(output).and_then(blockable) else { continue };
            let order = Reorder::from_channels_last(spec.shape.rank());
            if net.types.is_known(output) || !permutes(node, net, &order) {
                continue; // of a constant of the plan nothing runs
            }
            let mut support = |reader: usize| {
                *asked.entry(reader).or_insert_with(|| self.when_plain(&net.nodes[reader]))
            };
            let plain = self.reader_of_plain(output, &mut support, MOST_SHAPES);
            let why = if !spec.shape[1].is_multiple_of(block) {
                format!("its {} channels are no whole blocks of {block}", spec.shape[1])
            } else if net.is_fetched(output) {
                "its result is fetched".to_owned()
            } else if let Some(reader) = plain {
                let reader = &net.nodes[reader].location.name;
                format!("{reader} does not compute in channel blocks alone")
            } else {
                found.insert(at);
                continue;
            };
            // Only who wants blocks would win.
            if net.readers(output).any(|reader| support(reader) == LayoutSupport::BLOCKS) {
                self.choice.refused.push((at, format!("is no reorder itself: {why}")));
            }
        }
        found
    }

    /// A node that does not compute in channel blocks alone, of those that read a value or, in up
    /// to so many steps, the same value in another shape.
    fn reader_of_plain(
        &self,
        value: ValueId,
        support: &mut impl FnMut(usize) -> LayoutSupport,
        shapes: usize,
    ) -> Option<usize> {
        let follows = |of: &LayoutOf| matches!(of, LayoutOf::Common | LayoutOf::Blocks);
        self.net.readers(value).find_map(|reader| {
            let LayoutSupport { inputs, outputs } = support(reader);
            if !inputs.iter().chain(outputs).all(follows) {
                return Some(reader);
            }
            match (reshapes(reader, self.net), shapes.checked_sub(1)) {
                (Some(shaped), Some(_)) if self.net.is_fetched(shaped) => Some(reader),
                (Some(shaped), Some(shapes)) => self.reader_of_plain(shaped, support, shapes),
                (Some(_), None) => Some(reader),
                (None, _) => None,
            }
        })
    }

    /// In which layouts a node computes if its inputs are plain.
    fn when_plain(&self, node: &Node) -> LayoutSupport {
        let asked = node.operator().zip(self.net.types.all(&node.inputs));
        asked.map_or(LayoutSupport::PLAIN, |(operator, inputs)| {
            let setting = self.cx.settings.of(&node.location);
            operator.layouts(&LayoutCx { inputs: &inputs, setting })
        })
    }

    /// What a permutation becomes that can reorder on the way; `to_blocks` says that readers want
    /// blocks of its result.
    fn turn(&self, node: &Node, to_blocks: bool) -> Option<Reorder> {
        let &[input] = &node.inputs[..] else { return None };
        let spec = self.net.types.get(input).and_then(blockable)?;
        let Layout::Blocked { block } = self.choice.layout else { return None };
        match self.choice.blocked.contains(&input) {
            false => to_blocks.then_some(Reorder { to: self.choice.layout, channels_last: true }),
            true => (spec.shape[1].is_multiple_of(block)
                && permutes(node, self.net, &Reorder::to_channels_last(spec.shape.rank())))
            .then_some(Reorder { to: Layout::Plain, channels_last: true }),
        }
    }
}

/// Shapes that a value is followed through.
const MOST_SHAPES: usize = 3;

/// What a node makes that does nothing but give its input another shape.
fn reshapes(at: usize, net: &Net) -> Option<ValueId> {
    net.only_output(at).filter(|_| matches!(net.role(at), Some(Role::Reshape(0))))
}

/// Whether a node does nothing but put the dimensions in this order.
fn permutes(node: &Node, net: &Net, order: &[usize]) -> bool {
    let role = node.operator().zip(net.types.all(&node.inputs)).and_then(|(op, x)| op.role(&x));
    matches!(role, Some(Role::Permute(0, own)) if own[..] == *order)
        && matches!((&node.inputs[..], &node.outputs[..]), ([_], [_]))
}

/// The spec of a value that may lie in blocks.
fn blockable(value: &ValueSpec) -> Option<&TensorSpec> {
    let tensor = value.as_tensor().filter(|t| t.spec.may_lie_in_blocks() && !t.python);
    tensor.map(|t| &t.spec)
}

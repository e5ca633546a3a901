//! What a pass puts in the place of what it matched: checked and applied here, and nowhere else.
//!
//! A value that goes is read by nobody else and is not fetched; what is promised to its readers
//! keeps its dtype and shape, as the new operators infer them; a node comes after what it reads,
//! and after what it is said to come after: new nodes take over the order of those that go.
//! A node may also stay and read the same values from elsewhere, such as tensors in another layout.

use super::PassCx;
use crate::SessionError;
use crate::lists;
use crate::order::Order;
use crate::plan::infer;
use crate::plan::net::{Action, Net, Node, ValueId};
use plutino_ops::{Location, Operator, ValueSpec};
use plutino_tensor::{DType, Layout, Shape, TensorError};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Nodes in the place of others.
pub(crate) struct Patch {
    /// The node whose place in the order is taken; the number of nodes stands for the end of the
    /// run.
    at: usize,
    /// Whether that node stays, behind what is inserted.
    stays: bool,
    /// Other nodes that are left out.
    remove: Vec<usize>,
    /// What is computed there, in order.
    insert: Vec<NewNode>,
    /// Values that are not made any more, and what their readers read instead.
    forward: Vec<(ValueId, ValueId)>,
    /// What the node that stays reads now, by number of its input; at the end of the run, what is
    /// fetched, by number of the result.
    reads: Vec<(usize, ValueId)>,
    /// Values made here that lie in another layout than before.
    layouts: Vec<(ValueId, Layout)>,
    /// What is said of which operators.
    notes: Vec<(String, String)>,
}

/// A node to be.
pub(crate) struct NewNode {
    /// Its own; none for that of the node whose place it takes.
    pub(crate) location: Option<Arc<Location>>,
    pub(crate) action: Action,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<ValueId>,
}

impl From<Node> for NewNode {
    fn from(Node { location, action, inputs, outputs, .. }: Node) -> Self {
        Self { location: Some(location), action, inputs, outputs }
    }
}

impl Patch {
    /// `operator` takes the place of the node at `at`.
    pub(crate) fn replace(
        at: usize,
        operator: impl Into<Arc<dyn Operator>>,
        inputs: Vec<ValueId>,
        outputs: Vec<ValueId>,
    ) -> Self {
        let action = Action::Operator(operator.into());
        Self::with(at, vec![NewNode { location: None, action, inputs, outputs }])
    }

    /// These nodes take the place of the one at `at`.
    pub(crate) fn with(at: usize, insert: Vec<NewNode>) -> Self {
        Self {
            at,
            stays: false,
            remove: Vec::new(),
            insert,
            forward: Vec::new(),
            reads: Vec::new(),
            layouts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// These nodes come before the one at `at`, which stays, with other values as inputs of these
    /// numbers; `at` may be the end of the run, whose inputs are what is fetched.
    pub(crate) fn before(at: usize, insert: Vec<NewNode>, reads: Vec<(usize, ValueId)>) -> Self {
        Self { stays: true, reads, ..Self::with(at, insert) }
    }

    /// The node at `at` goes; who read `gone` reads `instead`.
    pub(crate) fn forward(at: usize, gone: ValueId, instead: ValueId) -> Self {
        Self { forward: vec![(gone, instead)], ..Self::with(at, Vec::new()) }
    }

    /// These nodes go as well.
    #[must_use]
    pub(crate) fn without(mut self, nodes: impl IntoIterator<Item = usize>) -> Self {
        self.remove.extend(nodes);
        self
    }

    /// These values, which are made here, lie in these layouts.
    #[must_use]
    pub(crate) fn lying(self, layouts: Vec<(ValueId, Layout)>) -> Self {
        Self { layouts, ..self }
    }

    /// What the report says of an operator; the first one is said to be refused, if the patch is.
    #[must_use]
    pub(crate) fn note(mut self, operator: &str, what: impl Into<String>) -> Self {
        self.notes.push((operator.to_owned(), what.into()));
        self
    }

    /// Why the patch would change what others see.
    fn refusal(&self, net: &Net, cx: &PassCx<'_>) -> Option<String> {
        let touched: BTreeSet<usize> = self.touched().collect();
        let name = |at: usize| net.nodes[at].location.name.as_str();
        if let Some(&at) = touched.iter().find(|&&at| !cx.allows(name(at))) {
            return Some(format!("the pass is switched off for {}", name(at)));
        }
        if let Some(why) = self.disorder(net, cx, &touched) {
            return Some(why);
        }
        let made: HashSet<ValueId> =
            self.insert.iter().flat_map(|new| new.outputs.clone()).collect();
        let promised = |v: &ValueId| made.contains(v);
        for at in self.touched() {
            for value in net.nodes[at].outputs.iter().filter(|v| !promised(v)) {
                if net.is_fetched(*value) {
                    return Some(format!("the result of {} is fetched", name(at)));
                }
                if self.forward.iter().any(|(gone, _)| gone == value) {
                    continue;
                }
                if let Some(reader) = net.readers(*value).find(|reader| !touched.contains(reader)) {
                    let (maker, reader) = (name(at), name(reader));
                    return Some(format!("the result of {maker} is also read by {reader}"));
                }
            }
        }
        None
    }

    /// What is said about the order of all nodes that do not stay: but for what they say of each
    /// other.
    fn order(&self, net: &Net) -> Order {
        let touched: BTreeSet<usize> = self.touched().collect();
        let mut order = Order::default();
        touched.iter().for_each(|&at| order.join(&net.nodes[at].order));
        let outside = |at: usize| !touched.contains(&at);
        let orders = &net.uses.orders;
        order.waits.retain(|&token| orders.carriers(token).any(outside));
        order
            .carries
            .retain(|&token| net.last.contains(&token) || orders.waiters(token).any(outside));
        order
    }

    /// Why the new nodes cannot take over the order of those that go: some of these come before
    /// others in between, and some after them.
    fn disorder(&self, net: &Net, cx: &PassCx<'_>, touched: &BTreeSet<usize>) -> Option<String> {
        if touched.iter().all(|&at| net.nodes[at].order.is_empty()) {
            return None;
        }
        if touched.iter().any(|at| cx.queued.contains_key(at)) {
            return Some("others come after it, and it was changed before".into());
        }
        let (order, orders) = (self.order(net), &net.uses.orders);
        let name = |at: usize| net.nodes[at].location.name.as_str();
        let outside = |&at: &usize| !touched.contains(&at);
        let earlier = order.waits.iter().flat_map(|&token| orders.carriers(token)).filter(outside);
        let later = order.carries.iter().flat_map(|&token| orders.waiters(token)).filter(outside);
        let late = earlier.into_iter().find(|&at| at >= self.at);
        if let Some(at) = late {
            return Some(format!("a part of it comes after {}", name(at)));
        }
        let early = later.into_iter().find(|&at| at < self.at || (at == self.at && !self.stays));
        early.map(|at| format!("{} comes after a part of it", name(at)))
    }

    /// All nodes that do not stay: that whose place is taken comes first.
    fn touched(&self) -> impl Iterator<Item = usize> + '_ {
        (!self.stays).then_some(self.at).into_iter().chain(self.remove.iter().copied())
    }

    /// What the new nodes make, as they infer it; an error where that is not what was promised, or
    /// where a node does not come after what it reads.
    fn infer(&self, net: &Net, made: &mut HashMap<ValueId, ValueSpec>) -> Result<(), String> {
        let touched: BTreeSet<usize> = self.touched().collect();
        let read = |made: &HashMap<ValueId, ValueSpec>, value: ValueId| {
            let fresh = made.get(&value);
            let there = net.producer(value).is_none_or(|p| p < self.at && !touched.contains(&p));
            if fresh.is_none() && !there {
                return Err(format!("{} is read before it is made", net.name(value)));
            }
            let spec = fresh.or_else(|| net.types.get(value)).cloned();
            spec.ok_or_else(|| "an input of no known type".to_owned())
        };
        for new in &self.insert {
            let inputs = new.inputs.iter().map(|&input| read(made, input));
            let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
            let outputs = match &new.action {
                Action::Operator(operator) => operator.infer(&inputs),
                Action::Pack | Action::Unpack => {
                    infer::structure(&new.action, &inputs, new.outputs.len())
                }
                Action::Constant(_) => return Err("a node that stands for a constant".into()),
            };
            let outputs = outputs.map_err(|e| e.to_string())?;
            if outputs.is_empty() || outputs.len() != new.outputs.len() {
                return Err("another number of results".into());
            }
            for (&value, spec) in new.outputs.iter().zip(outputs) {
                if let Some(promised) = net.types.get(value)
                    && !alike(&spec, promised)
                {
                    let name = net.name(value);
                    return Err(format!("{name} becomes {spec} instead of {promised}"));
                }
                if net.readers(value).any(|r| r <= self.at && !touched.contains(&r)) {
                    return Err(format!("{} is made after it is read", net.name(value)));
                }
                made.insert(value, spec);
            }
        }
        let reads = net.nodes.get(self.at).map_or(&net.fetches, |node| &node.inputs);
        for &(slot, instead) in &self.reads {
            let now = read(made, instead)?;
            let before = reads.get(slot).and_then(|&before| net.types.get(before));
            if !self.stays || !before.is_some_and(|before| alike(&now, before)) {
                return Err(format!("{} is not what was read before", net.name(instead)));
            }
        }
        for &(value, layout) in &self.layouts {
            let own = self.stays && net.producer(value) == Some(self.at);
            let spec = made.get(&value).or_else(|| net.types.get(value).filter(|_| own));
            if !spec.is_some_and(|spec| may_lie(spec, layout)) {
                return Err(format!("{} cannot lie in {layout}", net.name(value)));
            }
        }
        for (gone, instead) in &self.forward {
            let types = (net.types.get(*gone), net.types.get(*instead));
            if !matches!(types, (Some(a), Some(b)) if alike(a, b)) {
                return Err(format!("{} is not what it is replaced by", net.name(*gone)));
            }
            if net.producer(*instead).is_some_and(|p| p > self.at || touched.contains(&p)) {
                return Err(format!("{} is made too late", net.name(*instead)));
            }
        }
        Ok(())
    }
}

/// Whether a value may lie in a layout: channel blocks are for f32 images that are computed at
/// run time, bf16 in rows for those of an even last dimension.
fn may_lie(value: &ValueSpec, layout: Layout) -> bool {
    let tensor = value.as_tensor().filter(|t| t.known.is_none() && !t.python);
    let of_f32 = tensor.filter(|t| t.dtype() == DType::F32);
    match layout {
        Layout::Plain => true,
        Layout::PlainBf16 => of_f32.is_some_and(|t| may_be_bf16(t.shape())),
        Layout::Blocked { .. } | Layout::BlockedBf16 { .. } => {
            of_f32.is_some_and(|t| t.spec.may_lie_in_blocks())
        }
    }
}

/// Whether rows of this shape are whole words of two bf16.
pub(super) fn may_be_bf16(shape: &Shape) -> bool {
    shape.last().is_some_and(|last| last.is_multiple_of(2)) && shape.numel() > 0
}

/// Whether a value is as another one for those who read it, wherever it lies.
fn alike(a: &ValueSpec, b: &ValueSpec) -> bool {
    match (a, b) {
        (ValueSpec::Tensor(a), ValueSpec::Tensor(b)) => {
            (&a.spec.shape, a.spec.dtype, a.python) == (&b.spec.shape, b.spec.dtype, b.python)
        }
        (ValueSpec::List(a), ValueSpec::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (ValueSpec::Dynamic { dtype: a }, ValueSpec::Dynamic { dtype: b }) => a == b,
        (ValueSpec::Word(a), ValueSpec::Word(b)) => a == b,
        _ => false,
    }
}

impl PassCx<'_> {
    /// Applies a patch; false where it would change what others see, which the report says.
    ///
    /// # Errors
    /// Where the patch is wrong: a defect of the pass.
    pub(crate) fn apply(&mut self, net: &mut Net, patch: Patch) -> Result<bool, SessionError> {
        if let Some(why) = patch.refusal(net, self) {
            let (operator, _) = patch.notes.first().cloned().unwrap_or_default();
            self.refuse(&operator, why);
            return Ok(false);
        }
        let order = patch.order(net);
        let mut made = HashMap::new();
        let values = patch.insert.iter().map(|new| new.outputs.len()).sum();
        made.try_reserve(values).map_err(|_| TensorError::OutOfMemory {
            bytes: values.saturating_mul(size_of::<(ValueId, ValueSpec)>()),
        })?;
        patch.infer(net, &mut made).map_err(|what| {
            let place = net.nodes.get(patch.at).map(|node| format!("{}: ", node.location));
            let place = place.unwrap_or_default();
            SessionError::internal(format!("{place}pass {}: {what}", self.name()))
        })?;
        for (value, spec) in made {
            if net.types.get(value).is_none() {
                net.types.put(value, spec)?;
            }
        }
        for (value, layout) in patch.layouts {
            net.types.lay(value, layout);
        }
        let mut absorbed = Vec::new();
        for &at in &patch.remove {
            absorbed.push(net.nodes[at].location.name.clone());
            absorbed.extend(net.nodes[at].absorbed.iter().cloned());
        }
        let mut unread = Vec::new();
        for &at in &patch.remove {
            unread.extend(take(net, at).inputs);
        }
        let node = (patch.at < net.nodes.len()).then(|| take(net, patch.at));
        if patch.insert.is_empty() && !patch.stays && !order.is_empty() {
            hand_on(net, &order, &patch.forward, node.as_ref());
        }
        for (gone, instead) in patch.forward {
            redirect(net, gone, instead);
        }
        let (location, source) = match &node {
            Some(node) if !patch.stays => (Arc::clone(&node.location), node.source),
            _ => (Arc::default(), None),
        };
        let new = |new: NewNode| {
            let NewNode { location: own, action, inputs, outputs } = new;
            let location = own.unwrap_or_else(|| Arc::clone(&location));
            let order = order.clone();
            Node { source, location, action, inputs, outputs, absorbed: Vec::new(), order }
        };
        let mut nodes: Vec<Node> = lists::collect(patch.insert.into_iter().map(new))?;
        nodes.iter().for_each(|node| net.uses.enter(patch.at, node));
        match node {
            Some(mut node) if patch.stays => {
                reread(&mut node.inputs, &patch.reads);
                node.absorbed.extend(absorbed);
                if !patch.remove.is_empty() {
                    node.order.join(&order);
                }
                net.uses.enter(patch.at, &node);
                net.nodes[patch.at] = node;
            }
            Some(node) => {
                if let Some(mut last) = nodes.pop() {
                    last.absorbed = [node.absorbed, absorbed].concat();
                    net.nodes[patch.at] = last;
                }
                unread.extend(node.inputs);
            }
            None => {
                reread(&mut net.fetches, &patch.reads);
                net.uses.fetch(&net.fetches);
            }
        }
        if !nodes.is_empty() {
            lists::extend(self.queued.entry(patch.at).or_default(), nodes)?;
        }
        for (operator, what) in patch.notes {
            self.did(&operator, what);
        }
        let unread = unread.into_iter().filter_map(|value| net.producer(value)).collect();
        self.sweep(net, unread);
        Ok(true)
    }

    /// Leaves out the nodes that nobody needs any more, among these and those before them.
    fn sweep(&mut self, net: &mut Net, mut unread: Vec<usize>) {
        while let Some(at) = unread.pop() {
            let node = &net.nodes[at];
            let dead = |v: &ValueId| !net.is_fetched(*v) && net.readers(*v).next().is_none();
            let needed = is_gone(node) || !node.outputs.iter().all(dead) || net.is_awaited(node);
            if needed || self.queued.contains_key(&at) {
                continue;
            }
            let earlier = net.earlier(at);
            let node = take(net, at);
            self.did(&node.location.name, "removed: nobody reads its outputs any more");
            unread.extend(node.inputs.iter().filter_map(|&value| net.producer(value)));
            unread.extend(earlier);
        }
    }

    /// Puts nodes where patches want them, and forgets those that are gone: positions change.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(super) fn settle(&mut self, net: &mut Net) -> Result<(), TensorError> {
        let queued: usize = self.queued.values().map(Vec::len).sum();
        let mut nodes = lists::list(net.nodes.len() + queued)?;
        for (at, node) in std::mem::take(&mut net.nodes).into_iter().enumerate() {
            nodes.extend(self.queued.remove(&at).unwrap_or_default());
            nodes.extend((!is_gone(&node)).then_some(node));
        }
        nodes.extend(std::mem::take(&mut self.queued).into_values().flatten());
        net.nodes = nodes;
        net.index()
    }
}

/// Takes a node out; an empty one stays in its place until [`PassCx::settle`].
fn take(net: &mut Net, at: usize) -> Node {
    let node = &mut net.nodes[at];
    let empty = Node {
        source: None,
        location: Arc::clone(&node.location),
        action: Action::Pack,
        inputs: Vec::new(),
        outputs: Vec::new(),
        absorbed: Vec::new(),
        order: Order::default(),
    };
    let node = std::mem::replace(node, empty);
    net.uses.leave(at, &node);
    node
}

/// A node goes and nothing takes its place: whoever reads what it made, or comes after it, comes
/// after what it came after and after what it read.
fn hand_on(net: &mut Net, order: &Order, gone: &[(ValueId, ValueId)], node: Option<&Node>) {
    let readers = gone.iter().flat_map(|(gone, _)| net.readers(*gone).collect::<Vec<_>>());
    let orders = &net.uses.orders;
    let waiters = order.carries.iter().flat_map(|&token| orders.waiters(token));
    let later: BTreeSet<usize> = readers.chain(waiters).collect();
    let inputs = node.map(|node| &node.inputs[..]).unwrap_or_default();
    let earlier: BTreeSet<usize> = inputs.iter().filter_map(|&id| net.producer(id)).collect();
    let mut join = |at: usize, order: &Order| {
        if let Some(node) = net.nodes.get_mut(at) {
            node.order.join(order);
            net.uses.orders.enter(at, order);
        }
    };
    let waits = Order { waits: order.waits.clone(), ..Order::default() };
    later.into_iter().for_each(|at| join(at, &waits));
    let carries = Order { carries: order.carries.clone(), ..Order::default() };
    earlier.into_iter().for_each(|at| join(at, &carries));
}

/// Every node makes something, but for those that were taken out.
fn is_gone(node: &Node) -> bool {
    node.outputs.is_empty() && matches!(node.action, Action::Pack)
}

/// Puts other values in the place of those of these numbers.
fn reread(values: &mut [ValueId], reads: &[(usize, ValueId)]) {
    for &(slot, instead) in reads {
        if let Some(value) = values.get_mut(slot) {
            *value = instead;
        }
    }
}

/// Who read `gone` reads `instead`.
fn redirect(net: &mut Net, gone: ValueId, instead: ValueId) {
    let readers = std::mem::take(&mut net.uses.readers[gone.0]);
    for (at, times) in readers {
        net.nodes[at].inputs.iter_mut().filter(|v| **v == gone).for_each(|v| *v = instead);
        *net.uses.readers[instead.0].entry(at).or_insert(0) += times;
    }
}

//! Making a plan: passes, inference, kernels, memory, steps.

use crate::SessionError;
use crate::control::{self, Shared};
use crate::halt;
use crate::lists;
use crate::load::model::Inner;
use crate::memory::arena::Region;
use crate::memory::concat::{self, Placed};
use crate::memory::lay::{self, Lay};
use crate::memory::storage::{Home, Place, Storage, Stored};
use crate::open::{self, Open, Opening, Resident};
use crate::options::Resolved;
use crate::passes::{self, PassCx, PassReport};
use crate::place::{self, Context, Located};
use crate::plan::dispatch::{self, Decision, Dispatch};
use crate::plan::infer::{self, Types};
use crate::plan::net::{Action, Net, Node, ValueId};
use crate::plan::overlap::Overlap;
use crate::plan::report::{MemoryReport, Warning};
use crate::plan::schedule::Schedule;
use crate::plan::values::{Describing, Times};
use crate::plan::{Fetch, Plan, Sink, Source, Step, StepInput, StepOutput, Work, members};
use crate::run::bind::Binding;
use crate::run::late::{LateInput, LateStep};
use crate::run::verify;
use plutino_ir::{Limits, SizeLimit};
use plutino_ops::{Cost, MemoryUse, Operator, PackCache, PlanCx, Planned, ValueSpec};
use plutino_tensor::alloc::{self, Ledger};
use plutino_tensor::{Scope, TensorSpec};
use std::sync::{Arc, OnceLock};

/// Makes a plan for this binding.
///
/// # Errors
/// Where a fetch cannot be computed, an operator refuses its inputs, or the plan exceeds the memory
/// budget.
pub(crate) fn build(
    model: &Inner,
    resolved: &Resolved,
    contexts: &[Arc<Context>],
    shared: &Arc<Shared>,
    binding: Binding,
    limits: &Limits,
) -> Result<Plan, SessionError> {
    within(model, resolved, contexts, shared, limits, |making| {
        let prepared = making.prepare(&binding)?;
        making.finish(binding, prepared, None)
    })
}

/// Makes something of a model, within the budget and the limits.
///
/// # Errors
/// Those of `make`; where the limits end the work, or the model alone exceeds the budget.
pub(crate) fn within<R>(
    model: &Inner,
    resolved: &Resolved,
    contexts: &[Arc<Context>],
    shared: &Arc<Shared>,
    limits: &Limits,
    make: impl FnOnce(&Making<'_>) -> Result<R, SessionError>,
) -> Result<R, SessionError> {
    let ledger = Ledger::new(resolved.options.memory_budget);
    let _limits = halt::enter(limits);
    let scope = Scope::current().charged_to(&ledger);
    let _scope = scope.clone().enter();
    let making = Making {
        model,
        resolved,
        contexts,
        ledger: &ledger,
        budget: resolved.options.memory_budget,
        shared,
    };
    making.check_budget(model.weights())?;
    ledger.charge(model.weights())?;
    let made = make(&making);
    model.release_buffers();
    match (made, halt::seen(&scope)) {
        (Err(error @ (SessionError::Cancelled { .. } | SessionError::Deadline { .. })), _) => {
            Err(error)
        }
        // Whoever saw the signal left work out: this is no plan.
        (_, Some(why)) => Err(why.into()),
        (made, None) => made,
    }
}

/// Makes a plan of a body of a control operator, within the scope of whoever plans or runs that,
/// and on this thread: it may be one of those that plan together. What the plan takes is charged.
///
/// # Errors
/// As [`build`].
pub(crate) fn body(
    model: &Inner,
    shared: &Arc<Shared>,
    binding: Binding,
) -> Result<Plan, SessionError> {
    let outer = Scope::current();
    let left = alloc::left();
    let ledger = Ledger::new(left);
    let scope = outer.clone().charged_to(&ledger);
    let entered = scope.clone().enter();
    let making = Making {
        model,
        resolved: &shared.resolved,
        contexts: &[],
        ledger: &ledger,
        budget: left.map(|left| left.saturating_add(model.weights())),
        shared,
    };
    let made =
        (making.prepare(&binding)).and_then(|prepared| making.finish(binding, prepared, None));
    if let Some(why) = halt::seen(&scope) {
        return Err(why.into());
    }
    let plan = made?;
    drop(entered);
    // The weights are those of the model around.
    alloc::charge(plan.memory.total().saturating_sub(model.weights()))?;
    Ok(plan)
}

/// Nodes of a plan that are not charged to the memory budget: more than models have.
const FREE_NODES: usize = 8192;

/// What a node takes in all the lists of a plan, about.
const BYTES_A_NODE: usize = 3 << 10;

/// What so many nodes take of the memory budget.
pub(crate) fn node_memory(nodes: usize) -> usize {
    nodes.saturating_sub(FREE_NODES).saturating_mul(BYTES_A_NODE)
}

/// What stays the same while a plan is made.
pub(crate) struct Making<'a> {
    pub(crate) model: &'a Inner,
    pub(crate) resolved: &'a Resolved,
    /// Where operators run, and who plans them together; none: this thread alone does.
    contexts: &'a [Arc<Context>],
    /// What the model and planning take: weights, as they are and packed, tables of kernels, values
    /// computed once.
    ledger: &'a Arc<Ledger>,
    /// Bytes that weights, tables, arena and outputs may take together.
    budget: Option<usize>,
    /// What control operators plan and run with.
    shared: &'a Arc<Shared>,
}

impl Making<'_> {
    /// The net for this binding, after all passes.
    pub(crate) fn prepare(&self, binding: &Binding) -> Result<Prepared, SessionError> {
        let Self { model, resolved, .. } = *self;
        let (feed_ids, feeds): (Vec<_>, Vec<_>) = binding.feeds.iter().cloned().unzip();
        let mut net = Net::new(model, resolved.options.sorting, feed_ids, &binding.wanted)?;
        control::bind(&mut net, &model.controls, self.shared);
        alloc::charge(node_memory(net.nodes.len()))?;
        let mut cx = PassCx::new(model, &feeds, &resolved.settings);
        let reports = passes::run(&mut net, &mut cx, resolved)?;
        let PassCx { warnings, packs, .. } = cx;
        Ok(Prepared { net, packs, reports, warnings })
    }

    /// The plan of a net; where `opening` says how, one that can be bound to other lengths.
    pub(crate) fn finish(
        &self,
        binding: Binding,
        prepared: Prepared,
        mut opening: Option<Opening>,
    ) -> Result<Plan, SessionError> {
        let model = self.model;
        let Prepared { mut net, packs, reports, warnings } = prepared;
        let feeds: Vec<_> = binding.feeds.iter().map(|(_, spec)| spec.clone()).collect();
        self.check_outputs(&net, &net.types, &feeds)?;
        let residents: Arc<Vec<Resident>> =
            opening.as_ref().map(|o| o.residents.clone()).unwrap_or_default().into();
        let mut planned = self.plan_nodes(&net, &net.types, &packs, &residents)?;
        halt::go_on()?;
        let opens = opening.is_some();
        let located = self.place(&mut net, &binding, &mut planned, &packs, (&residents, opens))?;
        let types = &net.types;
        let (arranged, alone) = match &mut opening {
            // What depends on lengths is planned again for each: in turn.
            Some(opening) => {
                let storage = Storage::new(&net, types, &feeds, &planned, Overlap::default())?;
                opening.settle(&net, &storage, &mut planned)?;
                (Arranged::new(&net, storage, &planned, &residents)?, false)
            }
            None => {
                let mut decision = self.decide(&net, types, &planned);
                decision.groups.retain(|group| located.is_one_context(group.nodes.clone()));
                self.arrange(&net, &feeds, &planned, &residents, decision)?
            }
        };
        halt::go_on()?;
        let Arranged { storage, placed, lay } = arranged;
        let assembler =
            Assembler { net: &net, types, storage: &storage, lay: &lay, residents: &residents };
        let fetches = assembler.fetches()?;
        let packed = packs.used_bytes();
        let report = MemoryReport {
            weights: model.weights(),
            mapped: model.mapped,
            packed,
            tables: self.ledger.spent().saturating_sub(packed.saturating_add(model.weights())),
            ..lay::memory_report(&storage, &lay, &fetches)
        };
        // The state that carries the caches is charged for them as well.
        let caches = open::bytes(&residents, &net);
        self.check_budget(report.total().saturating_add(caches))?;
        if cfg!(debug_assertions) {
            verify::verify(&net, types, &storage, &planned, &placed, &lay)?;
        }
        let mut steps = Vec::new();
        let mut times = Vec::new();
        let mut rebound = opening.map(|opening| opening.noting(&net, &planned));
        for (at, (planned, placed)) in planned.into_iter().zip(placed).enumerate() {
            let step = assembler.step(at, planned, placed, None)?;
            lists::push(&mut times, step.is_some().then_some(steps.len()))?;
            lists::extend(&mut steps, step.map(Arc::new))?;
        }
        if let Some(noted) = &mut rebound {
            noted.note_steps(&times);
        }
        let mut schedule = match storage.overlap.groups.is_empty() {
            true => Schedule::in_turn(steps.len(), alone),
            false => Schedule::new(&steps, &times, &storage.overlap, alone)?,
        };
        if let Some(contexts) = located.of_steps(&times) {
            schedule.place(&contexts);
        }
        let times = Times::new(times);
        let (storage_of, lay_of) = (&storage, &lay);
        let describing =
            Describing { net: &net, types, storage: storage_of, lay: lay_of, times: &times };
        let (values, allocations) = (describing.values()?, describing.allocations()?);
        let names = |ids: &[ValueId]| -> Arc<Vec<String>> {
            Arc::new(ids.iter().map(|&id| net.name(id).to_owned()).collect())
        };
        Ok(Plan {
            steps,
            schedule: Arc::new(schedule),
            placement: located.report.into(),
            fetches,
            fetched: names(&net.fetches),
            direct: lay.direct.clone(),
            heap_slots: storage.heap_slots,
            late_slots: storage.late_slots,
            constants: storage.constants.clone().into(),
            memory: report,
            packs: Arc::new(packs),
            values: values.into(),
            allocations: allocations.into(),
            passes: reports.into(),
            warnings: warnings.into(),
            input_names: names(&net.feeds),
            appends: open::appends(&residents, &net)?,
            residents,
            open: rebound
                .map(|noted| Arc::new(Open::new(noted, binding.clone(), net, storage, lay))),
            binding,
        })
    }

    /// Where each node runs, and copies of values between contexts that share no memory.
    fn place(
        &self,
        net: &mut Net,
        binding: &Binding,
        planned: &mut Vec<Option<Planned>>,
        packs: &PackCache,
        (residents, opens): (&[Resident], bool),
    ) -> Result<Located, SessionError> {
        let [_, _, ..] = self.contexts else { return Ok(Located::default()) };
        net.index()?;
        let options = &self.resolved.options;
        let estimator = options.costs.estimator(self.resolved.isa, self.resolved.threads);
        let asked = (&options.placement, self.contexts, &estimator);
        let mut placed = place::place(asked, (net, binding), planned, residents)?;
        if place::copy::are_needed(net, self.contexts, &placed.of) {
            if opens {
                return Err(SessionError::internal("a plan with copies is not open"));
            }
            let plan = |net: &Net, node: &Node| self.plan_node(&net.types, packs, node, &[]);
            place::copy::insert(net, self.contexts, planned, &mut placed.of, plan)?;
        }
        Ok(placed)
    }

    /// Which nodes run at the same time, and on how many threads. Bodies of control operators run
    /// in turn: their times are noted by the thread of the run.
    fn decide(&self, net: &Net, types: &Types, planned: &[Option<Planned>]) -> Decision {
        let (options, isa) = (&self.resolved.options, self.resolved.isa);
        let dispatch = match (self.contexts, options.memory) {
            ([_, ..], MemoryUse::Fast) => self.resolved.dispatch,
            ([], _) | (_, MemoryUse::Low) => Dispatch::InTurn,
        };
        let estimator = options.costs.estimator(isa, self.resolved.threads);
        dispatch::decide(net, types, planned, &estimator, dispatch)
    }

    /// Where everything lies, and whether the caller's thread runs everything. Groups of nodes run
    /// at the same time where the arena hardly grows for it.
    fn arrange(
        &self,
        net: &Net,
        feeds: &[TensorSpec],
        planned: &[Option<Planned>],
        residents: &[Resident],
        Decision { mut groups, alone }: Decision,
    ) -> Result<(Arranged, bool), SessionError> {
        let types = &net.types;
        let arranged = |overlap| {
            let storage = Storage::new(net, types, feeds, planned, overlap)?;
            Arranged::new(net, storage, planned, residents)
        };
        let in_turn = arranged(Overlap::default())?;
        let most = match self.resolved.dispatch {
            Dispatch::Together => usize::MAX,
            _ => dispatch::allowance(in_turn.lay.arena()),
        };
        // Each time round, some groups fewer.
        while !groups.is_empty() {
            halt::go_on()?;
            let together = arranged(Overlap::new(groups.clone(), net.nodes.len()))?;
            if together.lay.arena() <= most && self.fits(net, &together) {
                return Ok((together, alone));
            }
            let before = groups.len();
            groups.retain(|group| together.lay.needed(&group.nodes) <= most);
            if groups.len() == before {
                break;
            }
        }
        Ok((in_turn, alone))
    }

    /// Whether all of it stays within the budget.
    fn fits(&self, net: &Net, Arranged { storage, lay, .. }: &Arranged) -> bool {
        let leaves = net.fetches.iter().filter_map(|&id| storage.leaves_of(&[id])).flatten();
        let places = leaves.filter_map(|leaf| storage.leaves.get(leaf)).map(|leaf| leaf.place);
        let results = places.filter(|place| matches!(place.home, Home::Buffer(_)));
        let results = results.map(|place| place.len).fold(0, usize::saturating_add);
        let taken = self.ledger.spent().saturating_add(lay.arena()).saturating_add(results);
        self.budget.is_none_or(|budget| taken <= budget)
    }

    /// Refuses what exceeds the budget, or what any plan of the model may need.
    fn check_budget(&self, needed: usize) -> Result<(), SessionError> {
        match self.budget {
            Some(budget) if budget < needed => Err(SessionError::Budget { needed, budget }),
            _ => Ok(self.model.sizes.check(SizeLimit::PlannedBytes, needed)?),
        }
    }

    /// No node makes more than the budget and everything that is there already: before tables are
    /// made for it. (An output may be a view of an input of the run, or of a constant.)
    fn check_outputs(
        &self,
        net: &Net,
        types: &Types,
        feeds: &[TensorSpec],
    ) -> Result<(), SessionError> {
        let Some(budget) = self.budget else { return Ok(()) };
        let bytes = |spec: &TensorSpec| spec.storage_bytes().unwrap_or(usize::MAX);
        let given = feeds.iter().map(bytes).fold(0, usize::saturating_add);
        let of = |id: &ValueId| {
            let leaves = types.get(*id).map(ValueSpec::leaves).unwrap_or_default();
            let tensors = leaves.into_iter().filter_map(ValueSpec::as_tensor);
            tensors.map(|t| bytes(&t.spec)).max().unwrap_or(0)
        };
        let (mut constants, mut most) = (0usize, 0);
        for node in &net.nodes {
            for id in &node.outputs {
                if types.is_known(*id) {
                    constants = constants.saturating_add(of(id));
                } else {
                    most = most.max(of(id));
                }
            }
        }
        match most.saturating_sub(given.saturating_add(constants)) {
            excess if excess > budget => Err(SessionError::Budget { needed: most, budget }),
            _ => Ok(()),
        }
    }

    /// Plans every node that computes something, in parallel: packing weights takes most of the
    /// time.
    fn plan_nodes(
        &self,
        net: &Net,
        types: &Types,
        packs: &PackCache,
        residents: &[Resident],
    ) -> Result<Vec<Option<Planned>>, SessionError> {
        let slots: Vec<OnceLock<Result<Option<Planned>, SessionError>>> =
            lists::collect(net.nodes.iter().map(|_| OnceLock::new()))?;
        let plan = |i: usize| {
            slots[i].get_or_init(|| self.plan_node(types, packs, &net.nodes[i], residents));
        };
        match (self.resolved.options.memory, self.contexts) {
            (MemoryUse::Fast, [context, ..]) => {
                context.visit(|par| par.run(net.nodes.len(), plan));
            }
            // With little memory: one weight in memory twice at a time.
            (MemoryUse::Low, _) | (_, []) => (0..net.nodes.len()).for_each(plan),
        }
        let planned =
            slots.into_iter().zip(&net.nodes).map(|(slot, node)| match slot.into_inner() {
                Some(planned) => planned,
                // Left out, because the work is to end.
                None => halt::check(&node.location).map(|()| None),
            });
        let mut all = lists::list(net.nodes.len())?;
        for planned in planned {
            all.push(planned?);
        }
        Ok(all)
    }

    /// The plan of one node; none where there is nothing to run, or nothing known to plan for.
    fn plan_node(
        &self,
        types: &Types,
        packs: &PackCache,
        node: &Node,
        residents: &[Resident],
    ) -> Result<Option<Planned>, SessionError> {
        halt::check(&node.location)?;
        let Some(operator) = node.operator() else { return Ok(None) };
        let (Some(inputs), Some(outputs)) = (types.all(&node.inputs), types.all(&node.outputs))
        else {
            return Ok(None);
        };
        if infer::all_known(&outputs) {
            return Ok(None);
        }
        let setting = self.resolved.settings.of(&node.location);
        let cx = PlanCx { inputs: &inputs, outputs: &outputs, setting, packs };
        let planned = Planned::of(operator, &cx, &open::rooms(node, residents));
        halt::check(&node.location)?;
        let planned = planned.map_err(|error| SessionError::Plan {
            location: Box::new((*node.location).clone()),
            inputs: infer::describe(&inputs),
            error,
        })?;
        self.check_budget(planned.scratch)?; // before more is planned
        Ok(Some(planned))
    }
}

/// A net that is ready to be planned, and what passes had to say.
pub(crate) struct Prepared {
    pub(crate) net: Net,
    pub(crate) packs: PackCache,
    reports: Vec<PassReport>,
    warnings: Vec<Warning>,
}

/// Values in their places.
struct Arranged {
    storage: Storage,
    /// By node.
    placed: Vec<Option<Placed>>,
    lay: Lay,
}

impl Arranged {
    fn new(
        net: &Net,
        mut storage: Storage,
        planned: &[Option<Planned>],
        residents: &[Resident],
    ) -> Result<Self, SessionError> {
        let scratch = lay::scratch_items(planned);
        let placed = concat::place(net, &mut storage, planned, &scratch);
        let lay = lay::lay_out(net, &storage, &scratch, residents)?;
        Ok(Self { storage, placed, lay })
    }
}

/// Turns nodes into steps.
pub(crate) struct Assembler<'a> {
    pub(crate) net: &'a Net,
    pub(crate) types: &'a Types,
    pub(crate) storage: &'a Storage,
    pub(crate) lay: &'a Lay,
    pub(crate) residents: &'a [Resident],
}

impl Assembler<'_> {
    /// The step of a node; none where there is nothing to do while running. Its cost is asked of
    /// the operator where `cost` is none.
    pub(crate) fn step(
        &self,
        at: usize,
        planned: Option<Planned>,
        placed: Option<Placed>,
        cost: Option<Cost>,
    ) -> Result<Option<Step>, SessionError> {
        let node = &self.net.nodes[at];
        if !self.types.has(&node.inputs) || !self.types.has(&node.outputs) {
            return self.late_step(at, node).map(Some);
        }
        let (Some(planned), Some(operator)) = (planned, node.operator()) else { return Ok(None) };
        let wrong = |what: &str| SessionError::internal(format!("{}: {what}", node.location));
        let input_leaves =
            self.storage.leaves_of(&node.inputs).ok_or_else(|| wrong("an input has no place"))?;
        let output_leaves =
            self.storage.leaves_of(&node.outputs).ok_or_else(|| wrong("an output has no place"))?;
        let mut step = Step {
            location: node.location.clone(),
            absorbed: node.absorbed.clone(),
            after: self.after(at),
            work: Work::Copy,
            inputs: Vec::new(),
            outputs: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            scratch: planned.scratch,
            cost: cost.unwrap_or_else(|| self.cost(node, operator)),
        };
        if let Some(resident) = self.residents.iter().position(|resident| resident.node == at) {
            step.scratch = 0;
            return self.append(step, resident, &input_leaves, &output_leaves).map(Some);
        }
        if let Some(placed) = placed {
            return Ok(self.copies(step, &input_leaves, &output_leaves, &placed));
        }
        for (i, &leaf) in input_leaves.iter().enumerate() {
            let shared = self.storage.shared[at].contains(&i);
            let input = self.input(leaf, shared).ok_or_else(|| wrong("an input has no place"))?;
            if let Source::Lent(region) = input.source {
                step.reads.push(region);
            }
            step.inputs.push(input);
        }
        for &leaf in &output_leaves {
            let (output, region) =
                self.output(leaf).ok_or_else(|| wrong("an output has no place"))?;
            step.writes.extend(region);
            step.outputs.push(output);
        }
        let Some(kernel) = planned.kernel else {
            let idle = step.outputs.iter().all(|output| match &output.sink {
                Sink::View => true,
                Sink::Lent(spec) => spec.shape.numel() == 0,
                Sink::Heap { .. } => false,
            });
            return if idle { Ok(None) } else { Err(wrong("nothing computes its output")) };
        };
        step.work = Work::Kernel(kernel);
        step.writes.extend(self.lay.scratch(at));
        Ok(Some(step))
    }

    /// What a node costs, whose inputs and outputs are planned.
    fn cost(&self, node: &Node, operator: &dyn Operator) -> Cost {
        let specs = |ids: &[ValueId]| self.types.all(ids).unwrap_or_default();
        operator.cost(&specs(&node.inputs), &specs(&node.outputs))
    }

    /// Names of the operators that a node comes after without reading from them.
    fn after(&self, at: usize) -> Vec<String> {
        let earlier = self.net.earlier(at);
        let names = earlier.iter().filter_map(|&at| self.net.nodes.get(at));
        names.map(|node| node.location.name.clone()).collect()
    }

    /// What is appended to a cache: all of its memory is lent, the new rows are written.
    fn append(
        &self,
        mut step: Step,
        resident: usize,
        inputs: &[usize],
        outputs: &[usize],
    ) -> Result<Step, SessionError> {
        let wrong = |what: &str| SessionError::internal(format!("{}: {what}", step.location));
        let ([_, new], [cache]) = (inputs, outputs) else {
            return Err(wrong("two inputs and an output are a cache's"));
        };
        let input = self.input(*new, false).ok_or_else(|| wrong("an input has no place"))?;
        let (output, region) = self.output(*cache).ok_or_else(|| wrong("no place for a cache"))?;
        if let Source::Lent(region) = input.source {
            step.reads.push(region);
        }
        step.writes.extend(region);
        step.inputs.push(input);
        step.outputs.push(output);
        step.work = Work::Append(resident);
        Ok(step)
    }

    /// The copies that a placed concatenation still needs.
    fn copies(
        &self,
        mut step: Step,
        inputs: &[usize],
        outputs: &[usize],
        placed: &Placed,
    ) -> Option<Step> {
        let output = &self.storage.leaves[*outputs.first()?];
        let whole = self.lay.region(self.storage, &output.place)?;
        for &(i, offset) in &placed.copies {
            let input = self.input(*inputs.get(i)?, false)?;
            let len = input.spec.storage_bytes().ok()?;
            if let Source::Lent(region) = input.source {
                step.reads.push(region);
            }
            step.writes.push(Region { block: whole.block, offset: whole.offset + offset, len });
            step.outputs.push(StepOutput {
                name: self.net.leaf_name(output),
                sink: Sink::Lent(input.spec.clone()),
            });
            step.inputs.push(input);
        }
        step.scratch = 0;
        (!step.inputs.is_empty()).then_some(step)
    }

    fn input(&self, leaf: usize, shared: bool) -> Option<StepInput> {
        let leaf = &self.storage.leaves[leaf];
        let source = if shared { Source::Shared } else { self.source(&leaf.place)? };
        let shared = self.lay.region(self.storage, &leaf.place).filter(|_| shared);
        Some(StepInput { name: self.net.leaf_name(leaf), spec: leaf.spec.clone()?, source, shared })
    }

    fn source(&self, place: &Place) -> Option<Source> {
        let &Place { home, offset, len } = place;
        Some(match home {
            Home::Buffer(_) => Source::Lent(self.lay.region(self.storage, place)?),
            Home::Feed(feed) => Source::Feed { feed, offset, len },
            Home::Constant(constant) => Source::Constant { constant, offset, len },
            Home::Heap(slot) => Source::Heap(slot),
        })
    }

    fn output(&self, leaf: usize) -> Option<(StepOutput, Option<Region>)> {
        let leaf = &self.storage.leaves[leaf];
        let name = self.net.leaf_name(leaf);
        let (sink, region) = match (leaf.place.home, &leaf.spec) {
            (Home::Heap(slot), _) => (Sink::Heap { dtype: leaf.dtype, slot }, None),
            (Home::Buffer(_), Some(spec)) if leaf.written => {
                (Sink::Lent(spec.clone()), Some(self.lay.region(self.storage, &leaf.place)?))
            }
            _ => (Sink::View, None),
        };
        Some((StepOutput { name, sink }, region))
    }

    fn late_step(&self, at: usize, node: &Node) -> Result<Step, SessionError> {
        let wrong = |what: &str| SessionError::internal(format!("{}: {what}", node.location));
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for id in &node.inputs {
            inputs.push(match (&self.storage.values[id.0], self.types.get(*id)) {
                (Stored::Late(slot), _) => LateInput::Slot(*slot),
                (Stored::Leaves(leaves), Some(spec)) => {
                    let leaves = leaves.iter().map(|&l| {
                        let leaf = &self.storage.leaves[l];
                        let spec = leaf.spec.clone().unwrap_or(TensorSpec::new(leaf.dtype, [0]));
                        Some((spec, self.source(&leaf.place)?))
                    });
                    let leaves: Option<Vec<_>> = leaves.collect();
                    LateInput::Planned {
                        spec: spec.clone(),
                        leaves: leaves.ok_or_else(|| wrong("an input has no place"))?,
                    }
                }
                _ => return Err(wrong("an input is made by nobody")),
            });
        }
        let slot = |id: &ValueId| match self.storage.values[id.0] {
            Stored::Late(slot) => Ok(slot),
            _ => Err(wrong("an output has no slot")),
        };
        let outputs = node.outputs.iter().map(slot).collect::<Result<_, _>>()?;
        let names = |ids: &[ValueId]| ids.iter().map(|&id| self.net.name(id).to_owned()).collect();
        let (input_names, output_names) = (names(&node.inputs), names(&node.outputs));
        let action = match &node.action {
            Action::Operator(op) => Action::Operator(op.clone()),
            Action::Pack => Action::Pack,
            Action::Unpack => Action::Unpack,
            Action::Constant(_) => return Err(wrong("planned, and late")),
        };
        Ok(Step {
            location: node.location.clone(),
            absorbed: Vec::new(),
            after: self.after(at),
            work: Work::Late(Box::new(LateStep {
                action,
                inputs,
                outputs,
                input_names,
                output_names,
            })),
            inputs: Vec::new(),
            outputs: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            scratch: 0,
            cost: Default::default(),
        })
    }

    /// Where results are found at the end.
    pub(crate) fn fetches(&self) -> Result<Vec<Fetch>, SessionError> {
        let mut fetches = Vec::new();
        for (of, &id) in self.net.fetches.iter().enumerate() {
            if self.residents.iter().any(|resident| resident.output == id) {
                let spec = self.types.get(id).and_then(ValueSpec::as_tensor);
                let spec = spec.ok_or_else(|| SessionError::internal("a cache of no type"))?;
                let (name, spec) = (Arc::clone(self.net.shared_name(id)), spec.spec.clone());
                fetches.push(Fetch::Resident { of, value: id, name, spec });
                continue;
            }
            match &self.storage.values[id.0] {
                &Stored::Late(slot) => {
                    let name = Arc::clone(self.net.shared_name(id));
                    fetches.push(Fetch::Late { of, name, slot });
                }
                Stored::Leaves(leaves) => {
                    let name = self.net.shared_name(id);
                    let names = self.types.get(id).map(|spec| members(name, spec));
                    let mut names = names.unwrap_or_default().into_iter();
                    for &l in leaves {
                        let leaf = &self.storage.leaves[l];
                        let source = self.source(&leaf.place);
                        let fetch = Fetch::Leaf {
                            of,
                            name: names.next().unwrap_or_else(|| self.net.leaf_name(leaf)),
                            dtype: leaf.dtype,
                            spec: leaf.spec.clone(),
                            source: source
                                .ok_or_else(|| SessionError::internal("a result has no place"))?,
                        };
                        lists::push(&mut fetches, fetch)?;
                    }
                }
                Stored::Nowhere => {
                    let what = format!("operand {} is made by nobody", self.net.name(id));
                    return Err(SessionError::Internal(what));
                }
            }
        }
        Ok(fetches)
    }
}

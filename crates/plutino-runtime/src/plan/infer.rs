//! Dtypes, shapes and known values of everything in a net, from those of its feeds.

use crate::SessionError;
use crate::control;
use crate::halt;
use crate::lists;
use crate::passes::PassCx;
use crate::passes::fold::{self, Folded};
use crate::plan::net::{Action, Net, Node, ValueId};
use crate::plan::report::Warning;
use plutino_ir::{Dim, SizeLimit, TensorType, quote_display};
use plutino_kernels::PackKey;
use plutino_ops::{Members, Operator, PackCache, PlanError, ShapeError, ValueSpec};
use plutino_tensor::{DType, Layout, MAX_RANK, Tensor, TensorError, TensorSpec, alloc};

/// What is known of each value before the run, by [`ValueId`]; nothing where that takes the run
/// itself.
#[derive(Debug, Default)]
pub(crate) struct Types(Vec<Option<ValueSpec>>);

impl Types {
    /// What is known of a value.
    pub(crate) fn get(&self, id: ValueId) -> Option<&ValueSpec> {
        self.0.get(id.0)?.as_ref()
    }

    /// What is known of several values, if all are.
    pub(crate) fn all(&self, ids: &[ValueId]) -> Option<Vec<ValueSpec>> {
        ids.iter().map(|&id| self.get(id).cloned()).collect()
    }

    /// Whether something is known of each of several values.
    pub(crate) fn has(&self, ids: &[ValueId]) -> bool {
        ids.iter().all(|&id| self.get(id).is_some())
    }

    /// Sets what is known of a value.
    ///
    /// # Errors
    /// Where memory is refused.
    pub(crate) fn put(&mut self, id: ValueId, spec: ValueSpec) -> Result<(), TensorError> {
        lists::lengthen(&mut self.0, id.0 + 1, None)?;
        self.0[id.0] = Some(spec);
        Ok(())
    }

    /// Sets the physical layout of a tensor.
    pub(crate) fn lay(&mut self, id: ValueId, layout: Layout) {
        if let Some(Some(ValueSpec::Tensor(t))) = self.0.get_mut(id.0) {
            t.spec.layout = layout;
        }
    }

    /// Sets the size of a dimension of a tensor.
    pub(crate) fn set_size(&mut self, id: ValueId, dim: usize, size: usize) {
        if let Some(Some(ValueSpec::Tensor(t))) = self.0.get_mut(id.0)
            && let Some(old) = t.spec.shape.get_mut(dim)
        {
            *old = size;
        }
    }

    /// Whether the value itself is known.
    pub(crate) fn is_known(&self, id: ValueId) -> bool {
        self.get(id).is_some_and(known)
    }
}

/// Whether a value is known, with all its members.
pub(crate) fn known(spec: &ValueSpec) -> bool {
    spec.leaves().iter().all(|leaf| leaf.as_tensor().is_some_and(|t| t.known.is_some()))
}

/// Whether there is nothing to compute: an operator without outputs is there for what it does.
pub(crate) fn all_known(outputs: &[ValueSpec]) -> bool {
    !outputs.is_empty() && outputs.iter().all(known)
}

/// Infers everything that follows from the specs of the feeds.
///
/// # Errors
/// Where an operator refuses its inputs.
pub(crate) fn infer(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    net.types = Types(lists::filled(net.values.len(), None)?);
    for (feed, spec) in net.feeds.iter().zip(cx.feeds) {
        check_rank(spec)?;
        cx.sizes.check(SizeLimit::Rank, spec.shape.rank())?;
        spec.storage_bytes()?;
        net.types.put(*feed, spec.clone().into())?;
    }
    for each in &net.nodes {
        halt::go_on()?;
        cx.lists.read(each, &net.types)?;
        let inferred = node(&mut net.types, each, cx, true, false);
        halt::check(&each.location)?;
        inferred?;
    }
    Ok(())
}

/// Infers a node where that is asked for (`again`), and makes its outputs known where all inputs
/// are (`fold`). Whether its outputs are others than before.
///
/// # Errors
/// Where the operator refuses its inputs, or a limit is exceeded.
pub(crate) fn node(
    types: &mut Types,
    node: &Node,
    cx: &mut PassCx<'_>,
    again: bool,
    fold: bool,
) -> Result<bool, SessionError> {
    let Some(inputs) = types.all(&node.inputs) else { return Ok(false) };
    let before = types.all(&node.outputs);
    // How long a loop takes is not known before it has run.
    let constant = fold
        && cx.folds
        && inputs.iter().all(known)
        && cx.allows(&node.location.name)
        && !node.operator().is_some_and(|operator| operator.has_effects())
        && !control::is_control(&node.location.kind);
    if !again && !constant {
        return Ok(false);
    }
    let mut make = || {
        let made = match (&before, again) {
            (Some(before), false) => Some(before.clone()),
            _ => node_outputs(node, &inputs, &cx.packs)?,
        };
        let Some(mut outputs) = made else { return Ok(None) };
        let folded = match node.operator().filter(|_| constant) {
            Some(op) => {
                fold::compute(op, &inputs, &mut outputs, cx.settings.base.isa, &mut cx.allowance)
            }
            None => Folded::No,
        };
        Ok::<_, SessionError>(Some((outputs, folded)))
    };
    // What inference takes it gives back; values, lists and attributes stay.
    let made = match node.action {
        Action::Constant(_) => make(),
        _ => alloc::temporary(make),
    };
    let Some((outputs, folded)) = made? else { return Ok(false) };
    let rank = outputs.iter().flat_map(ValueSpec::leaves).filter_map(ValueSpec::as_tensor);
    let rank = rank.map(|t| t.spec.shape.rank()).max().unwrap_or(0);
    cx.sizes.check(SizeLimit::Rank, rank).map_err(|error| SessionError::TooLarge {
        at: Some(Box::new((*node.location).clone())),
        error,
    })?;
    let open = before.as_ref().is_none_or(|before| !before.iter().all(known));
    let changed = open && (again || matches!(folded, Folded::Known(_)));
    match folded {
        Folded::Known(how) => cx.did(&node.location.name, how),
        Folded::Refused(why) => cx.refuse(&node.location.name, why),
        Folded::No => {}
    }
    if node.operator().is_some() {
        let already = before.as_deref().map_or(0, computed);
        alloc::charge(computed(&outputs).saturating_sub(already))?;
    }
    if before.is_none() {
        cx.lists.make(node, &inputs, &outputs)?;
    }
    for (&id, spec) in node.outputs.iter().zip(outputs) {
        types.put(id, spec)?;
    }
    Ok(changed)
}

/// Bytes of what was computed before the run.
pub(crate) fn computed(outputs: &[ValueSpec]) -> usize {
    let leaves = outputs.iter().flat_map(ValueSpec::leaves).filter_map(ValueSpec::as_tensor);
    let known = leaves.filter_map(|t| t.known.as_ref()).map(|t| t.as_bytes().len());
    known.fold(0, usize::saturating_add)
}

/// The outputs of an operator, with nothing known of them where it has effects: what it does is not
/// done by knowing what it makes.
///
/// # Errors
/// As [`Operator::infer`].
pub(crate) fn outputs_of(
    operator: &dyn Operator,
    inputs: &[ValueSpec],
) -> Result<Vec<ValueSpec>, ShapeError> {
    let mut outputs = operator.infer(inputs)?;
    if operator.has_effects() {
        outputs.iter_mut().for_each(forget);
    }
    Ok(outputs)
}

/// Leaves nothing known of a value but what it is.
fn forget(spec: &mut ValueSpec) {
    match spec {
        ValueSpec::List(members) => members.iter_mut().for_each(forget),
        ValueSpec::Tensor(t) => t.known = None,
        ValueSpec::Dynamic { .. } | ValueSpec::Word(_) => {}
    }
}

/// The outputs of one node; none where it takes the run to know them.
pub(crate) fn node_outputs(
    node: &Node,
    inputs: &[ValueSpec],
    packs: &PackCache,
) -> Result<Option<Vec<ValueSpec>>, SessionError> {
    let shape_error = |error| SessionError::Shape {
        location: Box::new((*node.location).clone()),
        inputs: describe(inputs),
        error,
    };
    let outputs = match &node.action {
        Action::Constant(weight) => {
            let key = PackKey::as_stored(weight.spec.dtype);
            let tensor = packs.get::<Tensor, PlanError>(&weight.name, key, || weight.tensor());
            let tensor = tensor.map_err(|error| SessionError::Plan {
                location: Box::new((*node.location).clone()),
                inputs: String::new(),
                error,
            })?;
            vec![ValueSpec::from((*tensor).clone())]
        }
        Action::Pack | Action::Unpack => {
            structure(&node.action, inputs, node.outputs.len()).map_err(shape_error)?
        }
        Action::Operator(_) if inputs.iter().any(ValueSpec::is_dynamic) => return Ok(None),
        Action::Operator(operator) => {
            match outputs_of(operator.as_ref(), inputs) {
                Ok(outputs) => outputs,
                // Shapes depend on the value of an input that is computed: wait for it.
                Err(ShapeError::NotKnown { .. }) => return Ok(None),
                Err(source) => return Err(shape_error(source)),
            }
        }
    };
    check_count(node, inputs, outputs.len())?;
    check_sizes(&outputs).map_err(shape_error)?;
    Ok(Some(outputs))
}

/// What tuples made and taken apart consist of.
pub(crate) fn structure(
    action: &Action,
    inputs: &[ValueSpec],
    outputs: usize,
) -> Result<Vec<ValueSpec>, ShapeError> {
    match (action, inputs) {
        (Action::Unpack, [ValueSpec::List(members)]) if members.len() == outputs => {
            Ok(members.clone())
        }
        (Action::Unpack, [ValueSpec::List(members)]) => Err(ShapeError::Invalid(format!(
            "the tuple has {} members, the file names {outputs}",
            members.len()
        ))),
        (Action::Unpack, inputs) => {
            Err(ShapeError::Sort { input: 0, expected: "a tuple", found: describe(inputs) })
        }
        _ => {
            let mut members = Members::default();
            inputs.iter().try_for_each(|input| members.add(input, 1))?;
            members.room()?;
            Ok(vec![ValueSpec::List(inputs.to_vec())])
        }
    }
}

/// An operator makes as many outputs as the file names.
pub(crate) fn check_count(
    node: &Node,
    inputs: &[ValueSpec],
    made: usize,
) -> Result<(), SessionError> {
    if made == node.outputs.len() {
        return Ok(());
    }
    Err(SessionError::Shape {
        location: Box::new((*node.location).clone()),
        inputs: describe(inputs),
        error: ShapeError::Invalid(format!(
            "the operator makes {made} output(s), the file names {}",
            node.outputs.len()
        )),
    })
}

/// No value is larger than memory can be: planning and kernels may multiply dimensions without a
/// second thought.
pub(crate) fn check_sizes(outputs: &[ValueSpec]) -> Result<(), ShapeError> {
    let leaves = outputs.iter().flat_map(ValueSpec::leaves).filter_map(ValueSpec::as_tensor);
    for t in leaves {
        check_rank(&t.spec)?;
        t.spec.storage_bytes()?;
    }
    Ok(())
}

pub(crate) fn check_rank(spec: &TensorSpec) -> Result<(), TensorError> {
    match spec.shape.rank() {
        0..=MAX_RANK => Ok(()),
        rank => Err(TensorError::invalid(format!(
            "a tensor may have {MAX_RANK} dimensions, found {rank}"
        ))),
    }
}

/// Members of all lists of a plan.
const MAX_ALL_MEMBERS: usize = 1 << 20;

/// Members that all operators of a plan read: each has a list of its own of what it reads.
const MAX_ALL_READ: usize = 1 << 22;

/// Members that are read without being charged to the memory budget: more than models have.
const FREE_READ: usize = 1 << 16;

/// What a member takes in the lists of an operator that reads it, about.
const BYTES_A_READ: usize = 256;

/// The members of the lists of a plan, counted before they are made or copied.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    made: usize,
    read: usize,
}

impl Lists {
    /// Counts the members of the lists that a node reads: before they are looked at together, for
    /// that copies them.
    ///
    /// # Errors
    /// Where they are too many, or exceed the budget.
    pub(crate) fn read(&mut self, node: &Node, types: &Types) -> Result<(), SessionError> {
        let failed = |error: ShapeError| SessionError::Shape {
            location: Box::new((*node.location).clone()),
            inputs: format!("{} inputs", node.inputs.len()),
            error,
        };
        let mut members = Members::default();
        let lists = node.inputs.iter().filter_map(|&input| types.get(input));
        lists.into_iter().try_for_each(|list| members.inside(list, 1)).map_err(failed)?;
        members.room().map_err(failed)?;
        let before = self.read;
        self.read = before.saturating_add(members.count());
        if self.read > MAX_ALL_READ {
            let what = format!("all operators together may read {MAX_ALL_READ} members of lists");
            return Err(failed(ShapeError::Invalid(what)));
        }
        let charged = |read: usize| read.saturating_sub(FREE_READ).saturating_mul(BYTES_A_READ);
        let more = charged(self.read).saturating_sub(charged(before));
        alloc::charge(more).map_err(|e| failed(e.into()))
    }

    /// Counts the members of the lists that a node makes.
    ///
    /// # Errors
    /// Where all lists have too many, or exceed the budget.
    pub(crate) fn make(
        &mut self,
        node: &Node,
        inputs: &[ValueSpec],
        outputs: &[ValueSpec],
    ) -> Result<(), SessionError> {
        let made = outputs.iter().map(ValueSpec::members).fold(0, usize::saturating_add);
        self.made = self.made.saturating_add(made);
        let failed = |error: ShapeError| SessionError::Shape {
            location: Box::new((*node.location).clone()),
            inputs: describe(inputs),
            error,
        };
        if self.made > MAX_ALL_MEMBERS {
            let what = format!("the lists of a plan may have {MAX_ALL_MEMBERS} members");
            return Err(failed(ShapeError::Invalid(what)));
        }
        alloc::charge(made.saturating_mul(size_of::<ValueSpec>())).map_err(|e| failed(e.into()))
    }
}

/// Specs for messages: the first few of them.
pub(crate) fn describe(specs: &[ValueSpec]) -> String {
    const MOST: usize = 8;
    let mut all: Vec<String> = specs.iter().take(MOST).map(quote_display).collect();
    if let Some(more @ 1..) = specs.len().checked_sub(MOST) {
        all.push(format!("{more} more"));
    }
    all.join(", ")
}

/// Whether a tensor that the file records as 8-bit integers may be one of numbers on a quantised
/// grid, as the quantised operators compute them.
fn is_quantized(recorded: plutino_ir::DType, inferred: DType) -> bool {
    matches!(recorded, plutino_ir::DType::U8 | plutino_ir::DType::I8) && inferred == DType::F32
}

/// Whether a tensor is what the file records.
pub(crate) fn agrees(spec: &TensorSpec, recorded: &TensorType) -> bool {
    same_dtype(spec, recorded)
        && recorded.shape.as_ref().is_none_or(|dims| {
            dims.len() == spec.shape.rank()
                && dims.iter().zip(spec.shape.iter()).all(|(d, &size)| match d {
                    Dim::Known(recorded) => *recorded == size,
                    Dim::Unknown | Dim::Symbol(_) => true,
                })
        })
}

fn same_dtype(spec: &TensorSpec, recorded: &TensorType) -> bool {
    recorded.dtype.is_none_or(|d| d.name() == spec.dtype.name() || is_quantized(d, spec.dtype))
}

/// Compares what was inferred with what the file records: dtypes, and shapes where those of the
/// inputs are as they were at the export. What is made of a value that differs is no news.
pub(crate) fn compare_with_file(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let fed =
        || net.feeds.iter().zip(cx.feeds).map(|(id, spec)| (spec, &net.values[id.0].recorded));
    let as_exported = fed().all(|(spec, recorded)| agrees(spec, recorded));
    if !fed().all(|(spec, recorded)| same_dtype(spec, recorded)) {
        return Ok(());
    }
    let agrees = if as_exported { agrees } else { same_dtype };
    let mut differs = lists::filled(net.values.len(), false)?;
    for node in &net.nodes {
        let inherited = node.inputs.iter().any(|input| differs[input.0]);
        for &id in &node.outputs {
            let (Some(ValueSpec::Tensor(t)), recorded) =
                (net.types.get(id), &net.values[id.0].recorded)
            else {
                continue;
            };
            if agrees(&t.spec, recorded) {
                continue;
            }
            differs[id.0] = true;
            if !inherited {
                cx.warnings.push(Warning::Recorded {
                    location: (*node.location).clone(),
                    operand: net.name(id).to_owned(),
                    recorded: recorded.to_string(),
                    inferred: t.spec.to_string(),
                });
            }
        }
    }
    Ok(())
}
